/* process.c: a command run to its end, with our standard streams, and with the signals that reach us.
 *
 * A signal from the terminal reaches the command too, since both are in the terminal's process group; one that
 * was sent to this process alone is passed on. Invariant: while a command runs, none of these signals ends this
 * process, so its report is always written. It must not know what it runs. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
enum { PASSED_ON = sizeof passed_on / sizeof *passed_on };

static volatile sig_atomic_t child, stopped_by;

static void pass_on(int signal, siginfo_t *info, void *context) {
  const int before = errno;
  (void)context;
  if (signal != SIGUSR1 && signal != SIGUSR2) stopped_by = signal;
  if (info->si_code <= 0 && child > 0) kill((pid_t)child, signal);
  errno = before;
}

/* With SA_RESTART no call of this file is cut short by a signal. */
static void catch_signals(struct sigaction *before) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = pass_on;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < PASSED_ON; i++) {
    sigaction(passed_on[i], NULL, &before[i]);
    if (before[i].sa_handler != SIG_IGN) sigaction(passed_on[i], &action, NULL); /* nohup stays nohup */
  }
}

static void release_signals(const struct sigaction *before) {
  for (int i = 0; i < PASSED_ON; i++) sigaction(passed_on[i], &before[i], NULL);
}

static void become(char *const *command, const struct sigaction *before, const sigset_t *mask, int tell) {
  release_signals(before);
  sigprocmask(SIG_SETMASK, mask, NULL);
  execvp(command[0], command);
  const int why = errno;
  _exit(write(tell, &why, sizeof why) < 0 ? CLI_TROUBLE : CLI_NO_COMMAND);
}

static int wait_for(pid_t pid) {
  int raw = 0;
  if (waitpid(pid, &raw, 0) < 0) return CLI_TROUBLE;
  return WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
}

/* What exec failed with, or 0: the pipe closes without a word when exec works. */
static int failure(int from) {
  int why = 0;
  return read(from, &why, sizeof why) == (ssize_t)sizeof why ? why : 0;
}

static cli_ended not_run(const char *what, int why) {
  fprintf(stderr, "moonferry sim: cannot run '%s': %s\n", what, strerror(why));
  return (cli_ended){.status = why == ENOENT ? CLI_NO_COMMAND : CLI_NOT_RUNNABLE};
}

static cli_ended trouble(const char *what) {
  fprintf(stderr, "moonferry sim: %s: %s\n", what, strerror(errno));
  return (cli_ended){.status = CLI_TROUBLE};
}

cli_ended cli_run(char *const *command) {
  struct sigaction before[PASSED_ON];
  sigset_t all, mask;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return trouble("pipe");
  catch_signals(before);
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &mask); /* none may come between fork and knowing the child */
  const pid_t pid = fork();
  if (pid == 0) become(command, before, &mask, ends[1]);
  child = pid;
  sigprocmask(SIG_SETMASK, &mask, NULL);
  close(ends[1]);
  const int why = pid < 0 ? 0 : failure(ends[0]);
  close(ends[0]);
  const int status = pid < 0 ? 0 : wait_for(pid);
  child = 0;
  release_signals(before);
  if (pid < 0) return trouble("fork");
  if (why != 0) return not_run(command[0], why);
  return (cli_ended){.status = status, .interrupted = stopped_by, .ran = true};
}
