/* stack.c: measures how much of the C stack is left.
 *
 * Calls between the languages nest on the C stack, where neither language's limit counts them: Python's can be set
 * higher than the stack is, and a thread's stack can be small. Must not know: which function is called. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "lifetime.h"

/* Bytes that are kept free for further C code; of a small stack no more than a part of it. */
enum { MARGIN = 256 * 1024, PART = 4 };

static _Thread_local struct {
  int known;
  uintptr_t lowest;
  size_t margin; /* 0 where the stack's bounds cannot be had */
} here;

static void find_bounds(void) {
  size_t size = 0;
  void *lowest = NULL;
#ifdef __APPLE__
  size = pthread_get_stacksize_np(pthread_self());
  lowest = (char *)pthread_get_stackaddr_np(pthread_self()) - size;
#else
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    if (pthread_attr_getstack(&attributes, &lowest, &size) != 0) size = 0;
    pthread_attr_destroy(&attributes);
  }
#endif
  here.known = 1;
  here.lowest = (uintptr_t)lowest;
  here.margin = size / PART < MARGIN ? size / PART : MARGIN;
}

/* On a stack that is not the thread's own, as fibers have, the difference is not small. */
static size_t left(void) {
  if (!here.known) find_bounds();
  return (uintptr_t)__builtin_frame_address(0) - here.lowest;
}

int mf__stack_is_low(int part) {
  return left() < here.margin / (size_t)part;
}

int mf__stack_has(size_t nbytes) {
  return left() >= here.margin / 4 + nbytes || here.margin == 0;
}
