/* child.c: a command run to its end, or to the end of its time, with what it printed.
 *
 * Invariant: the command and what it started are gone when this returns, because they are a process group that is
 * killed when the time is over. It must not know what it runs. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
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

static void become(char *const *command, int output) {
  const int nothing = open("/dev/null", O_RDONLY);
  setpgid(0, 0);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execvp(command[0], command);
  dprintf(STDERR_FILENO, "cannot run %s\n", command[0]);
  _exit(errno == ENOENT ? CLI_NO_COMMAND : CLI_NOT_RUNNABLE);
}

/* Reads until the other end closes; false when the time is over. */
static bool read_all(int from, int64_t end, cli_text *out) {
  char part[4096];
  for (;;) {
    struct pollfd in = {.fd = from, .events = POLLIN};
    const int64_t left = end - now_ms();
    if (left <= 0 || poll(&in, 1, (int)(left > 1000 ? 1000 : left)) < 0) {
      if (left <= 0 || errno != EINTR) return false;
      continue;
    }
    if (in.revents == 0) continue;
    const ssize_t n = read(from, part, sizeof part - 1);
    if (n <= 0) return true;
    part[n] = '\0';
    if (out->size < MOST_OUTPUT) cli_add(out, part);
  }
}

int cli_capture(char *const *command, unsigned seconds, cli_text *out) {
  int ends[2], raw = 0;
  cli_add(out, "");
  if (pipe2(ends, O_CLOEXEC) != 0) return CLI_TROUBLE;
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) become(command, ends[1]);
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return CLI_TROUBLE;
  }
  const bool ended = read_all(ends[0], now_ms() + (int64_t)seconds * 1000, out);
  close(ends[0]);
  if (!ended) kill(-pid, SIGKILL);
  while (waitpid(pid, &raw, 0) < 0)
    if (errno != EINTR) return CLI_TROUBLE;
  if (!ended) return -1;
  return WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
}
