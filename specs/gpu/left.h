/* left.h: what a spec has happen before the library enters the driver, and when it has left it, where the simulators
 * cannot call it: around a scope, in which the thread is not to be cancelled. It must not know what happens then. */
#ifndef MOONFERRY_SPEC_LEFT_H
#define MOONFERRY_SPEC_LEFT_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* Of the thread; NULL: nothing happens. */
static _Thread_local void (*when_entering)(void), (*when_left)(void);

/* The library's, which begins a scope so, before the device is entered, and ends it so, after the driver was left. */
__attribute__((visibility("default"))) int pthread_setcancelstate(int state, int *before) {
  static int (*real)(int, int *);
  static _Thread_local bool busy;
  int was;
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "pthread_setcancelstate");
  const int rc = real(state, &was);
  if (before != NULL) *before = was;
  const bool enters = state == PTHREAD_CANCEL_DISABLE && was == PTHREAD_CANCEL_ENABLE;
  void (*happen)(void) = enters ? when_entering : state == PTHREAD_CANCEL_ENABLE ? when_left : NULL;
  if (happen == NULL || busy) return rc;
  busy = true;
  happen();
  busy = false;
  return rc;
}

#endif
