/* system.c: what specs ask of the operating system, for POSIX and for Windows. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, gettid */
#include "spec.h"

#ifdef _WIN32
#include <windows.h>
#else
#include <sys/mman.h>
#include <unistd.h>
#endif

#ifdef _WIN32
int64_t spec_thread_id(void) {
  return GetCurrentThreadId();
}

size_t spec_page_nbytes(void) {
  SYSTEM_INFO info;
  GetSystemInfo(&info);
  return info.dwPageSize;
}

spec_region spec_guarded(size_t nbytes) {
  const size_t page = spec_page_nbytes(), whole = (nbytes + page - 1) / page * page;
  unsigned char *pages = VirtualAlloc(NULL, whole + 2 * page, MEM_RESERVE, PAGE_NOACCESS);
  assert_non_null(pages);
  assert_non_null(VirtualAlloc(pages + page, whole, MEM_COMMIT, PAGE_READWRITE));
  return (spec_region){pages + page, whole};
}

void spec_unguard(spec_region r) {
  assert_true(VirtualFree(r.start - spec_page_nbytes(), 0, MEM_RELEASE));
}
#else
int64_t spec_thread_id(void) {
  return gettid();
}

size_t spec_page_nbytes(void) {
  return (size_t)sysconf(_SC_PAGESIZE);
}

spec_region spec_guarded(size_t nbytes) {
  const size_t page = spec_page_nbytes(), whole = (nbytes + page - 1) / page * page;
  unsigned char *pages = mmap(NULL, whole + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(pages, MAP_FAILED);
  assert_int_equal(mprotect(pages + page, whole, PROT_READ | PROT_WRITE), 0);
  return (spec_region){pages + page, whole};
}

void spec_unguard(spec_region r) {
  const size_t page = spec_page_nbytes();
  assert_int_equal(munmap(r.start - page, r.nbytes + 2 * page), 0);
}
#endif
