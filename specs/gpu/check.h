/* check.h: what a device spec says, whether it uses Moonferry from outside (device.h) or looks inside the runtime
 * (spec.h): that a call succeeds, or fails and how; what a spec needs; that nothing is left; and what runs in a forked
 * child. A call in OK, FAILS or REFUSED tells its failure in err. It must not know how the driver is reached. */
#ifndef MOONFERRY_SPEC_CHECK_H
#define MOONFERRY_SPEC_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "moonferry.h"

/* For alarm, where a fault would make a spec wait for ever: so long that no busy machine looks like one. */
enum { HANGS_SECONDS = 600 };

/* One case in so many of a list that is only long, all of them where MOONFERRY_SPEC_EVERY is set. */
static inline uint64_t one_in(uint64_t count) { return getenv("MOONFERRY_SPEC_EVERY") == NULL ? count : 1; }

/* Whether the i-th case of a long list is run: each one, but under a sanitizer one in three, others with each seed, if
 * MOONFERRY_SPEC_WHOLE does not ask for all. */
static inline bool is_drawn(uint64_t i) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  const char *seed = getenv("MOONFERRY_SPEC_SEED");
  const uint64_t first = seed == NULL ? 0 : strtoull(seed, NULL, 10) / 4 % 3;
  return (i + first) % 3 == 0 || getenv("MOONFERRY_SPEC_WHOLE") != NULL;
#else
  (void)i;
  return true;
#endif
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static mf_error err;

/* OK does not clear err first: threads may say it at the same time. */
#define OK(call) check_ok((call), #call, __LINE__)
/* The call fails with this status, and err has it, too. */
#define FAILS(call, status) (err = (mf_error){0}, check_fails((call), status, #call, __LINE__))
/* What the last failure said contains this text. */
#define SAYS(text) check_says(text, __LINE__)
#define REFUSED(call, status, text) (FAILS(call, status), SAYS(text))

static inline void check_ok(int rc, const char *what, int line) {
  if (rc == MF_OK) return;
  fail_msg("line %d: %s: %s, not MF_OK; %s: %s", line, what, mf_status_name(rc), err.call, err.message);
}

static inline void check_fails(int rc, int want, const char *what, int line) {
  if (rc == want && err.status == want) return;
  fail_msg("line %d: %s: %s, and err has %s; not %s; %s: %s", line, what, mf_status_name(rc),
           mf_status_name(err.status), mf_status_name(want), err.call, err.message);
}

static inline void check_says(const char *text, int line) {
  if (strstr(err.message, text) == NULL) fail_msg("line %d: \"%s\" does not say \"%s\"", line, err.message, text);
}

/* What a spec needs. Each reason stands in specs/skips.txt. */

static inline void skip_unless(bool given, const char *reason) {
  if (given) return;
  print_message("skipped: %s\n", reason);
  skip();
}

static inline void skip_unless_simulated(bool is_simulated) {
  skip_unless(is_simulated, "it takes a simulator");
}

static inline void skip_unless_devices(int found, int wanted) {
  skip_unless(found >= wanted, found == 0 ? "there is no device" : "there is one device");
}

/* Nothing left */

static inline void expect_empty_ledger(void) {
  mf_ledger alive;
  mf_ledger_read(&alive);
  assert_int_equal(alive.tensors, 0);
  assert_int_equal(alive.storages, 0);
  assert_int_equal(alive.bytes, 0);
  assert_int_equal(alive.blocks, 0);
}

/* The driver's ledger: ${left} asks the simulator how many of a sort there are. */
static inline void expect_empty_driver(int64_t (*left)(const char *sort)) {
  static const char *const sorts[] = {"memory", "streams", "events", "captures", "graphs", "contexts", "pending"};
  for (size_t i = 0; i < COUNT(sorts); i++)
    if (left(sorts[i]) != 0) fail_msg("%s left: %lld", sorts[i], (long long)left(sorts[i]));
}

/* Forks. Children may do so, too. */

/* The exit status of a forked child that runs fn, 0 if that returns; of a child that a signal ended, that signal's
 * negative number; 255 where there was no child. */
static inline int status_in_fork(void (*fn)(void)) {
  int status;
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) {
    fn();
    _exit(0);
  }
  if (pid < 0 || waitpid(pid, &status, 0) != pid) return 255;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Runs fn in a forked child, which must end well by itself. */
static inline void in_fork(void (*fn)(void)) {
  assert_int_equal(status_in_fork(fn), 0);
}

static const char *fork_settings;
static void (*fork_body)(void);

static inline void set_and_run(void) {
  char *copy = strdup(fork_settings), *save = NULL;
  for (char *item = strtok_r(copy, " ", &save); item != NULL; item = strtok_r(NULL, " ", &save)) putenv(item);
  fork_body();
}

/* status_in_fork under settings ("NAME=VALUE NAME=VALUE") that a simulator reads once, as it is opened. The parent must
 * not have opened it. */
static inline int status_with(const char *settings, void (*fn)(void)) {
  fork_settings = settings;
  fork_body = fn;
  return status_in_fork(set_and_run);
}

/* The same of a child that must end well. */
static inline void in_fork_with(const char *settings, void (*fn)(void)) {
  const int status = status_with(settings, fn);
  if (status != 0) fail_msg("the child of \"%s\" ended with %d", settings, status);
}

#endif
