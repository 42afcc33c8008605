/* tasks.h: how many threads this process has. */
#ifndef MOONFERRY_SPEC_TASKS_H
#define MOONFERRY_SPEC_TASKS_H

#include "spec.h"

#include <dirent.h>
#include <pthread.h>
#include <time.h>

static inline int tasks(void) {
  int n = 0;
  DIR *dir = opendir("/proc/self/task");
  assert_non_null(dir);
  for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) n += e->d_name[0] != '.';
  closedir(dir);
  return n;
}

/* For another thread, on a machine that has more to do. */
static inline void sleep_a_little(void) {
  nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
}

enum { PATIENCE = 60000 };

/* A thread that was joined is in the list until the kernel has taken it out. */
static inline bool tasks_become(int n) {
  for (int i = 0; i < PATIENCE && tasks() != n; i++) sleep_a_little();
  return tasks() == n;
}

/* How many there are when no case runs: a thread of the case before may still be there. */
static inline int tasks_at_rest(void) {
  static int first;
  if (first == 0) first = tasks();
  assert_true(tasks_become(first));
  return first;
}

static inline void *no_work(void *arg) {
  return arg;
}

/* ThreadSanitizer starts one of its own with the first of the program, which counts then. */
static inline void start_the_sanitizers_thread(void) {
  pthread_t first;
  if (pthread_create(&first, NULL, no_work, NULL) != 0 || pthread_join(first, NULL) != 0) abort();
}

#endif
