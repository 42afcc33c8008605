/* clock.c: makes the wall clock of a process an hour fast, as it looks where the clock was set back by one meanwhile:
 * a wait that ends by that clock then lasts an hour longer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *t) {
  static int (*original)(clockid_t, struct timespec *);
  if (original == NULL) *(void **)&original = dlsym(RTLD_NEXT, "clock_gettime");
  const int status = original(clock, t);
  if (status == 0 && clock == CLOCK_REALTIME) t->tv_sec += 3600;
  return status;
}
