/* missing.h: every function of a simulated library can be missing, one at a time.
 *
 * A process looks for the names when it is run with two of them: the first must be missing, the second there. Run
 * with none it does so for each name of its list. It must not know which library is meant. */
#ifndef SIM_MISSING_H
#define SIM_MISSING_H

#include <dlfcn.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "sim.h"

static int run_with(const char *setting, char *self, const char *missing, const char *there) {
  char *arguments[] = {self, (char *)missing, (char *)there, NULL}, *environment[] = {(char *)setting, NULL};
  int status = -1;
  pid_t child;
  if (posix_spawn(&child, self, NULL, NULL, arguments, environment) != 0) return -1;
  return waitpid(child, &status, 0) == child ? status : -1;
}

static int one_missing(char *self, const char *name, const char *other) {
  char setting[160];
  snprintf(setting, sizeof setting, "SIM_MISSING=%s", name);
  return run_with(setting, self, name, other);
}

static int looked_for(const char *missing, const char *there) {
  return dlsym(RTLD_DEFAULT, missing) == NULL && dlsym(RTLD_DEFAULT, there) != NULL ? 0 : 1;
}

static int each_can_be_missing(const char *const *names, size_t n, int argc, char **argv) {
  size_t failed = 0;
  if (argc == 3) return looked_for(argv[1], argv[2]);
  for (size_t i = 0; i < n; i++) {
    if (dlsym(RTLD_DEFAULT, names[i]) == NULL) printf("%s is not there to begin with\n", names[i]), failed++;
    if (one_missing(argv[0], names[i], names[(i + 1) % n]) != 0) printf("%s cannot be missing\n", names[i]), failed++;
  }
  printf("%zu functions, %zu failures\n", n, failed);
  return sim_calls(NULL) == 0 && failed == 0 ? 0 : 1;
}

#endif
