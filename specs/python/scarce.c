/* Lets an allocation fail that one of Moonferry's modules asks malloc for: loaded before all other libraries, it stands
 * in the place of malloc and calloc. The runtime's own allocations have mf_fault_arm, CPython's set_nomemory; realloc
 * gives Lua its memory, and LuaJIT dies where the first blocks of a state are refused. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);

static __thread long left = -1; /* how many go well before one fails */
static __thread long failed;

void scarce_arm(long nth) {
  left = nth;
  failed = 0;
}

long scarce_failed(void) {
  return failed;
}

/* Whether this allocation is the one. The modules are named as CPython and the build name them. */
static int fails(const void *caller) {
  Dl_info info;
  if (left < 0 || dladdr(caller, &info) == 0 || info.dli_fname == NULL) return 0;
  const char *name = strrchr(info.dli_fname, '/');
  if (name == NULL) return 0;
  if (strncmp(name, "/_core.", 7) != 0 && strncmp(name, "/_lua.", 6) != 0 && strcmp(name, "/moonferry_bridge.so") != 0)
    return 0;
  if (left-- > 0) return 0;
  failed++;
  return 1;
}

void *malloc(size_t size) {
  return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
  return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}
