/* left.h: what a spec has happen when the library has left the driver, where the simulators cannot call it: at the end
 * of a scope, in which the thread is not to be cancelled. It must not know what happens then. */
#ifndef MOONFERRY_SPEC_LEFT_H
#define MOONFERRY_SPEC_LEFT_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

static void (*when_left)(void); /* NULL: nothing happens */

/* The library's, which ends a scope so, after the driver and the device were left. */
__attribute__((visibility("default"))) int pthread_setcancelstate(int state, int *before) {
  static int (*real)(int, int *);
  static _Thread_local bool busy;
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "pthread_setcancelstate");
  const int rc = real(state, before);
  if (when_left == NULL || busy || state != PTHREAD_CANCEL_ENABLE) return rc;
  busy = true;
  when_left();
  busy = false;
  return rc;
}

#endif
