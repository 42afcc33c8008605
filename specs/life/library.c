/* library.c: a library that has an exit function. With LEAVES set, the process ends while it is loaded. */
#define _GNU_SOURCE /* usleep */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LONG_US = 100000 };

static void end(void) {
  puts("the library ended");
  fflush(stdout);
}

__attribute__((constructor)) static void begin(void) {
  atexit(end);
  if (getenv("LEAVES") == NULL) return;
  usleep(LONG_US);
  exit(0);
}
