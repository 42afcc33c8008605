/* real_lock.h: the system's pthread_mutex_lock, for a spec whose own function of that name stands before it. */
#ifndef MOONFERRY_SPEC_REAL_LOCK_H
#define MOONFERRY_SPEC_REAL_LOCK_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

__attribute__((no_sanitize("thread"))) static inline int real_mutex_lock(pthread_mutex_t *lock) {
  static _Atomic(void *) found;
  int (*real)(pthread_mutex_t *);
  if (found == NULL) found = dlsym(RTLD_NEXT, "pthread_mutex_lock");
  void *function = found;
  memcpy(&real, &function, sizeof real);
  return real(lock);
}

/* Whether a call came from the library, not from a driver or the spec itself. */
static inline bool is_the_librarys(const void *caller) {
  Dl_info info;
  return dladdr(caller, &info) != 0 && strstr(info.dli_fname, "libmoonferry") != NULL;
}

#endif
