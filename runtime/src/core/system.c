/* system.c: system.h for POSIX and for Windows.
 *
 * Invariant: nothing here keeps state but what the operating system keeps. It must not know what any of it is for. */
#define _GNU_SOURCE /* sched_getaffinity, syscall */
#include "core/system.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int mf__uncancelled_begin(void) {
  int before;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  return before;
}

void mf__uncancelled_end(int before) {
  pthread_setcancelstate(before, &before);
}

void mf__nap(int32_t ns) {
  const struct timespec nap = {.tv_nsec = ns};
  const int before = mf__uncancelled_begin();
  (void)nanosleep(&nap, NULL);
  mf__uncancelled_end(before);
}

const char *mf__environment(const char *name) {
  return mf__is_privileged() ? NULL : getenv(name);
}

int64_t mf__clock_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#ifdef _WIN32

#include <io.h>
#include <windows.h>

/* Tensors are finalized after everything else of a language, so this library stays until the process ends. */
__attribute__((constructor)) static void stay(void) {
  HMODULE self;
  const char *here = (const char *)(uintptr_t)stay;
  (void)GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_PIN | GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, here, &self);
}

int64_t mf__thread_id(void) {
  return (int64_t)GetCurrentThreadId();
}

int mf__thread_start(pthread_t *out, void *(*run)(void *), void *arg) {
  return pthread_create(out, NULL, run, arg);
}

int32_t mf__processors(void) {
  const DWORD n = GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
  return n > 0 ? (int32_t)n : 1;
}

/* A new thread of Windows may run wherever the process may. */
void mf__thread_unbind(void) {}

int32_t mf__process_id(void) {
  return (int32_t)GetCurrentProcessId();
}

size_t mf__page_nbytes(void) {
  SYSTEM_INFO info;
  GetSystemInfo(&info);
  return info.dwPageSize;
}

int mf__fd_copy(int fd) {
  (void)fd;
  return -1;
}

void mf__fd_close(int fd) {
  (void)_close(fd);
}

/* Windows starts no program with more rights than its caller and with the caller's variables. */
bool mf__is_privileged(void) {
  return false;
}

void mf__at_fork(void (*before)(void), void (*parent)(void), void (*child)(void)) {
  (void)before;
  (void)parent;
  (void)child;
}

/* A DLL's exit functions are called when Windows has ended all other threads, one of which may have held any lock
 * ("Dynamic-Link Library Best Practices"). What was not given back by then goes with the process. */
void mf__at_exit(void (*fn)(void)) {
  (void)fn;
}

/* The folder in which the program happens to run is not searched: a DLL there is not the one that is meant. */
void *mf__library_open(const char *file, char *why, size_t room, bool *absent) {
  const bool has_path = strpbrk(file, "/\\") != NULL;
  const DWORD beside = has_path ? LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR : 0;
  HMODULE library = LoadLibraryExA(file, NULL, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS | beside);
  const DWORD code = GetLastError();
  *absent = library == NULL && (code == ERROR_MOD_NOT_FOUND || code == ERROR_FILE_NOT_FOUND);
  if (library == NULL && *absent) (void)snprintf(why, room, "%s: no such file", file);
  else if (library == NULL) (void)snprintf(why, room, "%s: LoadLibraryEx answered %lu", file, (unsigned long)code);
  return library;
}

void *mf__library_symbol(void *library, const char *name) {
  return (void *)(uintptr_t)GetProcAddress(library, name);
}

bool mf__at_end_of_main(void (*fn)(void *)) {
  (void)fn;
  return false;
}

void mf__at_end_of_thread(void (*fn)(void *)) {
  (void)fn;
}

#else

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/auxv.h>
#include <sys/syscall.h>

int64_t mf__thread_id(void) {
  return (int64_t)syscall(SYS_gettid);
}

/* The C++ ABI's, in glibc. Another C library may lack it. */
int __cxa_thread_atexit_impl(void (*destroy)(void *), void *object, void *library) __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

void mf__at_end_of_thread(void (*fn)(void *)) {
  if (__cxa_thread_atexit_impl == NULL || mf__thread_id() == getpid()) return;
  (void)__cxa_thread_atexit_impl(fn, NULL, &__dso_handle);
}

bool mf__at_end_of_main(void (*fn)(void *)) {
  if (__cxa_thread_atexit_impl == NULL || mf__thread_id() != getpid()) return false;
  return __cxa_thread_atexit_impl(fn, NULL, &__dso_handle) == 0;
}
#else
int64_t mf__thread_id(void) {
  return (int64_t)(uintptr_t)pthread_self();
}

void mf__at_end_of_thread(void (*fn)(void *)) {
  (void)fn;
}

bool mf__at_end_of_main(void (*fn)(void *)) {
  (void)fn;
  return false;
}
#endif

int mf__thread_start(pthread_t *out, void *(*run)(void *), void *arg) {
  const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
  sigset_t most, before;
  sigfillset(&most);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&most, faults[i]);
  pthread_sigmask(SIG_BLOCK, &most, &before);
  const int failed = pthread_create(out, NULL, run, arg);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return failed;
}

#ifdef __linux__
static bool processors(cpu_set_t *out) {
  return sched_getaffinity(getpid(), sizeof *out, out) == 0;
}

int32_t mf__processors(void) {
  cpu_set_t allowed;
  const int n = processors(&allowed) ? CPU_COUNT(&allowed) : 1;
  return n < 1 ? 1 : n;
}

void mf__thread_unbind(void) {
  cpu_set_t allowed;
  if (processors(&allowed)) (void)sched_setaffinity(0, sizeof allowed, &allowed);
}
#else
int32_t mf__processors(void) {
  const long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : (int32_t)n;
}

void mf__thread_unbind(void) {}
#endif

int32_t mf__process_id(void) {
  return (int32_t)getpid();
}

size_t mf__page_nbytes(void) {
  return (size_t)sysconf(_SC_PAGESIZE);
}

int mf__fd_copy(int fd) {
  return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

void mf__fd_close(int fd) {
  const int before = mf__uncancelled_begin();
  (void)close(fd);
  mf__uncancelled_end(before);
}

bool mf__is_privileged(void) {
#ifdef __linux__
  return getauxval(AT_SECURE) != 0;
#else
  return issetugid() != 0;
#endif
}

void mf__at_fork(void (*before)(void), void (*parent)(void), void (*child)(void)) {
  (void)pthread_atfork(before, parent, child);
}

void mf__at_exit(void (*fn)(void)) {
  (void)atexit(fn);
}

/* That a file is absent is told by words alone, which begin with its name in glibc and follow others in musl. A file
 * that is there and needs one that is not is told by the other one's name. */
static bool says_absent(const char *text, const char *file) {
  static const char musl[] = "Error loading shared library ";
  const size_t named = strlen(file);
  if (strncmp(text, musl, sizeof musl - 1) == 0) text += sizeof musl - 1;
  return strncmp(text, file, named) == 0 && text[named] == ':' && strstr(text, "No such file") != NULL;
}

void *mf__library_open(const char *file, char *why, size_t room, bool *absent) {
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  const char *text = library == NULL ? dlerror() : NULL;
  if (library == NULL && text == NULL) text = "the loader gives no reason";
  *absent = library == NULL && says_absent(text, file);
  if (library == NULL) (void)snprintf(why, room, "%s", text);
  return library;
}

void *mf__library_symbol(void *library, const char *name) {
  return dlsym(library, name);
}

#endif
