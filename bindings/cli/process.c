/* process.c: a command run to its end, with our standard streams, and with the signals that reach us.
 *
 * A signal from the terminal reaches the command too, since both are in the terminal's process group; one that
 * was sent to this process alone is passed on. Invariant: from the first cli_catch_signals to the last
 * cli_release_signals none of these signals ends this process, so that its report is always written; but the second
 * that comes while no command runs does, should this process not come to its end. It must not know what it runs. */
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

static struct sigaction before[PASSED_ON];
static int catchers;
static volatile sig_atomic_t child, stopped_by;
static volatile sig_atomic_t alone; /* how many came since the last command ended */

static void end_by(int signal_number) {
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

static void pass_on(int signal, siginfo_t *info, void *context) {
  const int error = errno;
  const bool stops = signal != SIGUSR1 && signal != SIGUSR2;
  (void)context;
  if (stops) stopped_by = signal;
  if (child > 0 && info->si_code <= 0) kill((pid_t)child, signal);
  if (child == 0 && stops && ++alone > 1) end_by(signal);
  errno = error;
}

/* With SA_RESTART no call is cut short by a signal. */
void cli_catch_signals(void) {
  struct sigaction action;
  if (catchers++ > 0) return;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = pass_on;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < PASSED_ON; i++) {
    sigaction(passed_on[i], NULL, &before[i]);
    if (before[i].sa_handler != SIG_IGN) sigaction(passed_on[i], &action, NULL); /* nohup stays nohup */
  }
}

static void put_signals_back(void) {
  for (int i = 0; i < PASSED_ON; i++) sigaction(passed_on[i], &before[i], NULL);
}

void cli_release_signals(void) {
  if (--catchers == 0) put_signals_back();
}

int cli_stopped_by(void) {
  return stopped_by;
}

static void become(char *const *command, const sigset_t *mask, int tell) {
  put_signals_back();
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

/* Starts the command; 0 if a signal has asked this program to stop before, and -1 if that fails. */
static pid_t start(char *const *command, int tell) {
  sigset_t all, mask;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &mask); /* none may come between fork and knowing the child */
  const pid_t pid = stopped_by == 0 ? fork() : 0;
  if (pid == 0 && stopped_by == 0) become(command, &mask, tell);
  if (pid > 0) child = pid;
  sigprocmask(SIG_SETMASK, &mask, NULL);
  return pid;
}

cli_ended cli_run(char *const *command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return trouble("pipe");
  cli_catch_signals();
  const pid_t pid = start(command, ends[1]);
  close(ends[1]);
  const int why = pid <= 0 ? 0 : failure(ends[0]);
  close(ends[0]);
  const int status = pid <= 0 ? 0 : wait_for(pid);
  alone = 0;
  child = 0;
  cli_release_signals();
  if (pid < 0) return trouble("fork");
  if (why != 0) return not_run(command[0], why);
  return (cli_ended){.status = status, .ran = pid > 0};
}
