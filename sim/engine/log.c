/* log.c: the log of all calls, one line each, where SIM_LOG names a file.
 *
 * Invariant: a line is written when the call returns, under the lock, so lines are in the order in which the
 * calls took effect. It must not know what the calls mean. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine.h"

static FILE *file;

void sim_log_open(void) {
  const char *path = getenv("SIM_LOG");
  if (path == NULL || *path == '\0') return;
  file = fopen(path, "ae");
  if (file == NULL) fprintf(stderr, "sim: cannot open the log %s\n", path);
  if (file != NULL) setvbuf(file, NULL, _IOLBF, 0);
}

void sim_log_call(const sim_call *c, int raw) {
  if (file == NULL) return;
  fprintf(file, "#%llu t%d %s", (unsigned long long)c->place.number, c->place.thread, c->counter->name);
  if (c->place.call != c->counter->name) fprintf(file, " for %s", c->place.call);
  if (c->detail[0] != '\0') fprintf(file, " (%s)", c->detail);
  fprintf(file, " -> %d\n", raw);
}

void sim_say(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fputs("sim: ", stderr);
  vfprintf(stderr, format, args);
  va_end(args);
  fputc('\n', stderr);
}

void sim_log_line(const char *format, ...) {
  if (file == NULL) return;
  va_list args;
  va_start(args, format);
  vfprintf(file, format, args);
  va_end(args);
  fputc('\n', file);
}
