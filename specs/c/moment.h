/* moment.h: waits for another thread, but a moment at most, by a clock that nobody sets. The including file asks for
 * POSIX of 2008. */
#ifndef MOONFERRY_SPEC_MOMENT_H
#define MOONFERRY_SPEC_MOMENT_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

static inline void moment_init(pthread_cond_t *changed) {
  pthread_condattr_t attributes;
  if (pthread_condattr_init(&attributes) != 0) abort();
  if (pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) != 0) abort();
  if (pthread_cond_init(changed, &attributes) != 0) abort();
  pthread_condattr_destroy(&attributes);
}

/* Until another thread sets *done under the lock and says so by the condition, or 20 ms are over. */
static inline void moment_wait(pthread_cond_t *changed, pthread_mutex_t *lock, const bool *done) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += (until.tv_nsec += 20 * 1000 * 1000) / 1000000000;
  until.tv_nsec %= 1000000000;
  pthread_mutex_lock(lock);
  while (!*done && pthread_cond_timedwait(changed, lock, &until) != ETIMEDOUT) continue;
  pthread_mutex_unlock(lock);
}

#endif
