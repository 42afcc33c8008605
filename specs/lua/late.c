/* late.c: holds a thread up between what it has looked at and the line that it is to wait in, for specs that close a
 * Lua state meanwhile.
 *
 * Preloaded, it stands before the C library's pthread_cond_init, which the bridge calls for a thread that is to wait
 * for a Lua state, after it has seen the state open. Invariant: only a thread that has asked for it is held up, once
 * each time. Knows nothing of Lua or Python. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#define LATE_API __attribute__((visibility("default")))

LATE_API void late_begin(void);
LATE_API void late_end(const char *how);
LATE_API void late_await(void);
LATE_API int late_go_on(int seconds);
LATE_API int pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attributes);

static _Thread_local bool is_late;
static sem_t awaited, held, may_go, ended;
static const char *how_it_ended = "it waits for ever";

__attribute__((constructor)) static void make(void) {
  sem_init(&awaited, 0, 0);
  sem_init(&held, 0, 0);
  sem_init(&may_go, 0, 0);
  sem_init(&ended, 0, 0);
}

static void await(sem_t *semaphore) {
  while (sem_wait(semaphore) != 0 && errno == EINTR) {
  }
}

/* This thread's next wait for a Lua state begins when late_go_on lets it. Returns when somebody is in late_await. */
void late_begin(void) {
  await(&awaited);
  is_late = true;
}

/* What that came to; a text that stays. */
void late_end(const char *how) {
  how_it_ended = how;
  sem_post(&ended);
}

/* Returns when a thread is held up. */
void late_await(void) {
  sem_post(&awaited);
  await(&held);
}

/* Lets it go on, waits for its end, so long at most, and prints what that is. */
int late_go_on(int seconds) {
  struct timespec until;
  int status;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += seconds;
  sem_post(&may_go);
  do status = sem_timedwait(&ended, &until);
  while (status != 0 && errno == EINTR);
  puts(how_it_ended);
  fflush(stdout);
  return status;
}

/* The name has an older version as well, for programs of before 2003. */
int pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attributes) {
  int (*next)(pthread_cond_t *, const pthread_condattr_t *);
  *(void **)&next = dlvsym(RTLD_NEXT, "pthread_cond_init", "GLIBC_2.3.2");
  if (is_late) {
    is_late = false;
    sem_post(&held);
    await(&may_go);
  }
  return next(cond, attributes);
}
