/* clock.c: makes a process read a wall clock that is an hour fast. A wait that ends by the wall clock then lasts an
 * hour too long, as it does where somebody sets the clock back during the wait. */
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
