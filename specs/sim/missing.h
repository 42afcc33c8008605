/* missing.h: every function of a simulated library can be missing, one at a time.
 *
 * A process looks for the names when it is run with two of them: the first must be missing, the second there. Run
 * with none it does so for each name of its list. It must not know which library is meant. */
#ifndef SIM_MISSING_H
#define SIM_MISSING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "sim.h"

static char *self; /* this program */

static int run_with(const char *setting, const char *missing, const char *there) {
  char *arguments[] = {self, (char *)missing, (char *)there, NULL}, *environment[] = {(char *)setting, NULL};
  int status = -1;
  pid_t child;
  if (posix_spawn(&child, self, NULL, NULL, arguments, environment) != 0) return -1;
  return waitpid(child, &status, 0) == child ? status : -1;
}

static int one_missing(const char *name, const char *other) {
  char setting[160];
  snprintf(setting, sizeof setting, "SIM_MISSING=%s", name);
  return run_with(setting, name, other);
}

static int looked_for(const char *missing, const char *there) {
  return dlsym(RTLD_DEFAULT, missing) == NULL && dlsym(RTLD_DEFAULT, there) != NULL ? 0 : 1;
}

static void all_can_be_missing(const char *const *names, size_t n) {
  assert_true(n > 100);
  for (size_t i = 0; i < n; i++) {
    if (dlsym(RTLD_DEFAULT, names[i]) == NULL) fail_msg("%s is not there to begin with", names[i]);
    if (one_missing(names[i], names[(i + 1) % n]) != 0) fail_msg("%s cannot be missing", names[i]);
  }
  assert_int_equal(sim_calls(NULL), 0);
}

/* The group, or in a process that looks for two names the answer. */
#define RUN_MISSING(tests, argc, argv) \
  (self = (argv)[0], \
   (argc) == 3 ? looked_for((argv)[1], (argv)[2]) : cmocka_run_group_tests(tests, NULL, NULL))

#endif
