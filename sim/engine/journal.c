/* journal.c: findings on disk as soon as they are found, one file for each process in the folder SIM_JOURNAL.
 *
 * A process that is killed, or that leaves by _exit, never comes to its report; what it had found is here
 * nevertheless, and that the last line ("seed ...") is missing shows that it did not end in order.
 * Invariant: each record is one write, by the process that opened the file. It must not know what is found. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine.h"

enum { MAX_COMMAND = 200, SAME_PROCESS = 100 };

static int file = -1;

/* What the process calls itself: the arguments with spaces between them, on one line. */
static void command_line(char *out, size_t size) {
  const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);
  if (fd >= 0) close(fd);
  while (n > 0 && out[n - 1] == '\0') n--;
  out[n < 0 ? 0 : n] = '\0';
  for (ssize_t i = 0; i < n; i++)
    if ((unsigned char)out[i] < ' ') out[i] = ' ';
}

/* Not as a standard stream that is closed: what the program writes there would be findings. */
static int beyond_streams(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  close(fd);
  return moved;
}

/* A process that replaced its program by exec keeps its number, so a number may come twice. */
static int open_new(const char *folder) {
  char *path = NULL;
  int fd = -1;
  for (int i = 0; fd < 0 && i < SAME_PROCESS; i++) {
    if (asprintf(&path, "%s/%08d.%02d", folder, (int)getpid(), i) < 0) abort();
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    free(path);
  }
  return beyond_streams(fd);
}

void sim_journal_open(void) {
  const char *folder = getenv("SIM_JOURNAL");
  char command[MAX_COMMAND];
  if (folder == NULL || *folder == '\0') return;
  file = open_new(folder);
  if (file < 0) fprintf(stderr, "sim: cannot write in the folder SIM_JOURNAL=%s\n", folder);
  command_line(command, sizeof command);
  sim_journal_line("process %d: %s", (int)getpid(), command);
}

void sim_journal_line(const char *format, ...) {
  va_list args;
  char *text = NULL, *whole = NULL;
  if (file < 0 || !sim_is_owner()) return;
  va_start(args, format);
  if (vasprintf(&text, format, args) < 0 || asprintf(&whole, "sim: %s\n", text) < 0) abort();
  va_end(args);
  if (write(file, whole, strlen(whole)) < 0) file = -1;
  free(whole);
  free(text);
}

bool sim_journal_kept(void) {
  return file >= 0;
}
