/* child.c: a command run to its end, or to the end of its time, with what it printed.
 *
 * Invariant: the command and what it started are gone when this returns, because they are a process group that is
 * killed then. The command is killed too when this program ends: a Ctrl-C on the terminal does not reach its group.
 * It must not know what it runs. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

enum { MOST_OUTPUT = 1 << 20 };

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void become(char *const *command, int output, pid_t parent) {
  const int nothing = open("/dev/null", O_RDONLY);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(CLI_TROUBLE); /* it ended before */
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execvp(command[0], command);
  dprintf(STDERR_FILENO, "cannot run %s\n", command[0]);
  _exit(errno == ENOENT ? CLI_NO_COMMAND : CLI_NOT_RUNNABLE);
}

/* Reads until the other end closes, or the time is over. */
static void read_all(int from, int64_t end, cli_text *out) {
  char part[4096];
  for (;;) {
    struct pollfd in = {.fd = from, .events = POLLIN};
    const int64_t left = end - now_ms();
    if (left <= 0 || poll(&in, 1, (int)(left > 1000 ? 1000 : left)) < 0) return;
    if (in.revents == 0) continue;
    const ssize_t n = read(from, part, sizeof part);
    if (n <= 0) return;
    if (out->size < MOST_OUTPUT) cli_add_bytes(out, part, (size_t)n);
  }
}

/* Waits for the command, which may go on after it has closed its output; false when the time is over. The command stays
 * a zombie, so that the number of its group stays its own. */
static bool has_ended(pid_t pid, int64_t end) {
  for (;;) {
    siginfo_t info = {.si_pid = 0};
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0) return true;
    if (now_ms() >= end) return false;
    poll(NULL, 0, 10);
  }
}

int cli_capture(char *const *command, unsigned seconds, cli_text *out) {
  int pipe_ends[2], raw = 0;
  const pid_t parent = getpid();
  cli_add(out, "");
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) return CLI_TROUBLE;
  const pid_t pid = fork();
  if (pid == 0) become(command, pipe_ends[1], parent);
  close(pipe_ends[1]);
  const int64_t end = now_ms() + (int64_t)seconds * 1000;
  if (pid > 0) read_all(pipe_ends[0], end, out);
  close(pipe_ends[0]);
  if (pid < 0) return CLI_TROUBLE;
  const bool in_time = has_ended(pid, end);
  kill(-pid, SIGKILL);
  if (waitpid(pid, &raw, 0) < 0) return CLI_TROUBLE;
  if (!in_time) return -1;
  return WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
}
