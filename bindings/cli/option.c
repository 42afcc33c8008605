/* option.c: options read from a table, and the help that the same table gives.
 *
 * Invariant: an option that was read has its text set, and its number if it is one. The last of several wins.
 * It must not know what an option does. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { HELP_COLUMN = 26 };

/* Digits, or 0x and such; of a size the letter K, M or G may follow. No sign, no space. */
bool cli_number(const char *text, bool size, uint64_t *out) {
  const int base = text[0] == '0' && (text[1] == 'x' || text[1] == 'X') ? 16 : 10;
  char *end = NULL;
  if (text[0] < '0' || text[0] > '9') return false;
  errno = 0;
  const uint64_t value = strtoull(text, &end, base);
  if (errno != 0) return false;
  const unsigned shift = !size ? 0 : *end == 'G' ? 30 : *end == 'M' ? 20 : *end == 'K' ? 10 : 0;
  if (shift != 0) end++;
  if (*end != '\0' || (value << shift) >> shift != value) return false;
  *out = value << shift;
  return true;
}

static bool number_fits(cli_option *o, const char *program) {
  const bool size = o->kind == CLI_SIZE;
  if (cli_number(o->text, size, &o->number) && o->number >= o->least && o->number <= o->most) return true;
  fprintf(stderr, "%s: %s is '%s'; expected: a whole number from %" PRIu64 " to %" PRIu64 "%s\n", program, o->name,
          o->text, o->least, o->most, size ? ", which K, M or G may follow" : "");
  return false;
}

/* The option that a word names, with what stands behind its "=", if anything. */
static cli_option *named(cli_option *options, size_t count, const char *word, const char **behind) {
  const size_t length = strcspn(word, "=");
  *behind = word[length] == '=' ? word + length + 1 : NULL;
  if (strcmp(word, "-h") == 0) word = "--help";
  for (size_t i = 0; i < count; i++)
    if (strcmp(options[i].name, word) == 0 || (*behind != NULL && strlen(options[i].name) == length &&
                                              strncmp(options[i].name, word, length) == 0))
      return &options[i];
  return NULL;
}

/* How many words the option took, or -1. */
static int take(cli_option *o, const char *behind, const char *next, const char *program) {
  if (o->kind == CLI_FLAG) {
    o->text = "";
    if (behind == NULL) return 1;
    fprintf(stderr, "%s: %s takes no value, and was given '%s'\n", program, o->name, behind);
    return -1;
  }
  o->text = behind != NULL ? behind : next;
  if (o->text == NULL || (o->kind == CLI_WORD && behind == NULL && strcmp(o->text, "--") == 0)) {
    fprintf(stderr, "%s: %s needs a value: %s %s\n", program, o->name, o->name, o->value);
    return -1;
  }
  if ((o->kind == CLI_NUMBER || o->kind == CLI_SIZE) && !number_fits(o, program)) return -1;
  return behind != NULL ? 1 : 2;
}

int cli_options_read(cli_option *options, size_t count, char *const *words, const char *program) {
  int i = 0;
  while (words[i] != NULL && words[i][0] == '-' && words[i][1] != '\0') {
    const char *behind;
    if (strcmp(words[i], "--") == 0) return i + 1;
    cli_option *o = named(options, count, words[i], &behind);
    if (o == NULL) {
      fprintf(stderr, "%s: there is no option '%s'; '%s --help' lists them\n", program, words[i], program);
      return -1;
    }
    const int took = take(o, behind, words[i + 1], program);
    if (took < 0) return -1;
    i += took;
  }
  return i;
}

void cli_options_help(const cli_option *options, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const cli_option *o = &options[i];
    const int wide = printf("  %s%s%s", o->name, o->value != NULL ? " " : "", o->value != NULL ? o->value : "");
    printf("%*s", wide < HELP_COLUMN ? HELP_COLUMN - wide : 1, "");
    for (const char *p = o->help; *p != '\0'; p++) {
      putchar(*p);
      if (*p == '\n') printf("%*s", HELP_COLUMN, "");
    }
    putchar('\n');
  }
}
