/* thread.c: keeps what the calling thread is doing on the bridge, tells whether it is the main thread, and waits by the
 * clock that nobody sets. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* syscall */
#endif
#include <pthread.h>
#include <time.h>
#include <unistd.h>
#ifndef __APPLE__
#include <sys/syscall.h>
#endif

#include "thread.h"

_Thread_local mf__frame *mf__top;

static _Thread_local int known; /* whether it is the main thread; 1: no, 2: yes */

int mf__thread_forked(void) {
  const int was_main = known == 2;
  known = 0;
  return was_main;
}

int mf__on_main_thread(void) {
  if (known != 0) return known == 2;
#ifdef __APPLE__
  int is = pthread_main_np();
#else
  int is = syscall(SYS_gettid) == getpid();
#endif
  known = 1 + is;
  return is;
}

int mf__calls_in(const mf__state *state) {
  int count = 0;
  for (const mf__frame *frame = mf__top; frame != NULL; frame = frame->below)
    count += frame->state == state && frame->is_call_in;
  return count;
}

int64_t mf__now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* macOS has no such attribute. */
void mf__condition_init(pthread_cond_t *condition) {
#ifdef __APPLE__
  pthread_cond_init(condition, NULL);
#else
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
#endif
}

int mf__condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t end) {
  enum { SECOND = 1000000000 };
#ifdef __APPLE__
  const int64_t now = mf__now(), left = end > now ? end - now : 0;
  const struct timespec t = {.tv_sec = (time_t)(left / SECOND), .tv_nsec = (long)(left % SECOND)};
  return pthread_cond_timedwait_relative_np(condition, mutex, &t) == 0;
#else
  const struct timespec t = {.tv_sec = (time_t)(end / SECOND), .tv_nsec = (long)(end % SECOND)};
  return pthread_cond_timedwait(condition, mutex, &t) == 0;
#endif
}
