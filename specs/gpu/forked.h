/* forked.h: a function run in a forked child, which the parent waits for. Children of one another may do so, too. */
#ifndef MOONFERRY_SPEC_FORKED_H
#define MOONFERRY_SPEC_FORKED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

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

#endif
