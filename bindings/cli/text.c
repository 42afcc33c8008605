/* text.c: text that grows, the ways to quote it, and whether what was printed has arrived.
 *
 * Invariant: a cli_text that was added to ends in a NUL that its size does not count. It must not know what
 * the text says. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

void *cli_room(void *old, size_t nbytes) {
  void *p = realloc(old, nbytes == 0 ? 1 : nbytes);
  if (p != NULL) return p;
  fprintf(stderr, "moonferry: out of memory\n");
  exit(CLI_TROUBLE);
}

char *cli_copy(const char *s, size_t size) {
  char *copy = cli_room(NULL, size + 1);
  memcpy(copy, s, size);
  copy[size] = '\0';
  return copy;
}

int cli_printed(int status, int trouble) {
  errno = 0;
  if (fflush(stdout) == 0 && !ferror(stdout)) return status;
  fprintf(stderr, "moonferry: cannot write to the standard output: %s\n",
          errno != 0 ? strerror(errno) : "an earlier write has failed");
  return trouble;
}

bool cli_begins(const char *s, const char *with) {
  return strncmp(s, with, strlen(with)) == 0;
}

static void need(cli_text *t, size_t more) {
  if (t->size + more + 1 <= t->room) return;
  t->room = (t->size + more + 1) * 2;
  t->at = cli_room(t->at, t->room);
}

void cli_add_bytes(cli_text *t, const char *s, size_t size) {
  need(t, size);
  memcpy(t->at + t->size, s, size);
  t->size += size;
  t->at[t->size] = '\0';
}

void cli_add(cli_text *t, const char *s) {
  cli_add_bytes(t, s, strlen(s));
}

void cli_addf(cli_text *t, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  const int n = vsnprintf(NULL, 0, format, args);
  va_end(args);
  if (n > 0) {
    need(t, (size_t)n);
    vsnprintf(t->at + t->size, (size_t)n + 1, format, again);
    t->size += (size_t)n;
  }
  va_end(again);
}

/* The length of the UTF-8 character at s, or 0 if there is none. */
static size_t utf8_length(const unsigned char *s) {
  const size_t n = s[0] < 0x80 ? 1 : s[0] >= 0xC2 && s[0] < 0xE0 ? 2 : s[0] >= 0xE0 && s[0] < 0xF0 ? 3 : 4;
  if (s[0] > 0xF4 || (s[0] >= 0x80 && s[0] < 0xC2)) return 0;
  for (size_t i = 1; i < n; i++)
    if ((s[i] & 0xC0) != 0x80) return 0;
  const bool overlong = (s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xF0 && s[1] < 0x90);
  const bool surrogate = s[0] == 0xED && s[1] > 0x9F;
  return overlong || surrogate || (s[0] == 0xF4 && s[1] > 0x8F) ? 0 : n;
}

void cli_add_json(cli_text *t, const char *s) {
  cli_add(t, "\"");
  while (*s != '\0') {
    const size_t n = utf8_length((const unsigned char *)s);
    if (n == 0)
      cli_add(t, "\\ufffd");
    else if (*s == '"' || *s == '\\')
      cli_addf(t, "\\%c", *s);
    else if ((unsigned char)*s < ' ')
      cli_addf(t, "\\u%04x", (unsigned)(unsigned char)*s);
    else
      cli_add_bytes(t, s, n);
    s += n == 0 ? 1 : n;
  }
  cli_add(t, "\"");
}

void cli_add_shell(cli_text *t, const char *s) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%_+=:,./-";
  if (*s != '\0' && s[strspn(s, plain)] == '\0') {
    cli_add(t, s);
    return;
  }
  cli_add(t, "'");
  for (; *s != '\0'; s++) {
    if (*s == '\'')
      cli_add(t, "'\\''");
    else
      cli_add_bytes(t, s, 1);
  }
  cli_add(t, "'");
}

void cli_add_command(cli_text *t, char *const *words) {
  for (size_t i = 0; words[i] != NULL; i++) {
    if (i > 0) cli_add(t, " ");
    cli_add_shell(t, words[i]);
  }
}
