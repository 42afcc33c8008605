/* fork.h: children of fork, of a process that may have other threads. One program includes it once.
 */
#ifndef SPECS_FORK_H
#define SPECS_FORK_H

#include "spec.h"

#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
/* In gcc 12 a child has the locks that ASan's other threads held. Without a quarantine they take one at their end. */
__attribute__((visibility("default"))) const char *__asan_default_options(void) {
  return "quarantine_size_mb=0:thread_local_quarantine_size_kb=0";
}
static const bool ends_alone = true;
#else
static const bool ends_alone = false;
#endif

/* Runs ${body} in a child; true if that says so. */
static bool in_child(bool (*body)(void)) {
  int status = -1;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) _exit(body() ? 0 : 1);
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* QEMU 7.2 stops with an assertion of its own where the child of a process with threads starts one. */
static inline void needs_threads_in_a_child(const char *name) {
  if (getenv("MOONFERRY_SPEC_EMULATED") == NULL) return;
  print_message("skip %s: QEMU cannot start threads in the child of a process that has some\n", name);
  skip();
}

#endif
