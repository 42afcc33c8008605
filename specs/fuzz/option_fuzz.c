/* option_fuzz.c: a libFuzzer target for the program's options: words, split at newlines, read by a table that has one
 * option of each kind.
 *
 * What was read must be what the words say by a second, slower reading of them, and nothing behind the first word that
 * is no option is touched. What the reader prints is formatted and thrown away.
 */
#define _GNU_SOURCE /* strtok_r */
#include <stdarg.h>
#include <stdio.h>

static char said[1 << 16];

static void say(const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(said, sizeof said, format, args);
  va_end(args);
}

#define fprintf(file, ...) ((void)(file), say(__VA_ARGS__))
#include "../../bindings/cli/option.c"
#undef fprintf

enum { MOST_TEXT = 2048, MOST_WORDS = 64, NOPTIONS = 5 };

static const cli_option table[NOPTIONS] = {
    {"--help", NULL, "this text", CLI_FLAG, NULL, 0, 0, NULL, 0},
    {"--word", "TEXT", "a word", CLI_WORD, NULL, 0, 0, NULL, 0},
    {"--number", "N", "a number", CLI_NUMBER, NULL, 2, 1000, NULL, 0},
    {"--size", "BYTES", "a size", CLI_SIZE, NULL, 1, UINT64_MAX, NULL, 0},
    {"--numbers", "N", "a longer name", CLI_NUMBER, NULL, 0, UINT64_MAX, NULL, 0},
};

static void check(bool good, const char *what) {
  if (good) return;
  fprintf(stderr, "option_fuzz: %s\n", what);
  abort();
}

/* What the digits from ${at} on are together. */
static __uint128_t sum_of(const char *at, size_t count, unsigned base) {
  static const char digits[] = "0123456789abcdef";
  __uint128_t sum = 0;
  for (size_t i = 0; i < count; i++) {
    const char *found = strchr(digits, at[i] | 32);
    check(found != NULL && found - digits < base, "a number has digits alone");
    sum = sum * base + (unsigned)(found - digits);
    check(sum <= UINT64_MAX, "a number fits");
  }
  return sum;
}

static void check_number(const char *text, bool size) {
  uint64_t value = 12345;
  if (!cli_number(text, size, &value)) return;
  const size_t length = strlen(text);
  const char last = text[length - 1];
  const unsigned shift = last == 'K' ? 10 : last == 'M' ? 20 : last == 'G' ? 30 : 0;
  const size_t from = length > 2 && text[0] == '0' && (text[1] | 32) == 'x' ? 2 : 0, to = length - (shift != 0);
  check(length > 0 && (size || shift == 0), "a number has digits alone, a size may have a letter");
  check(sum_of(text + from, to - from, from != 0 ? 16 : 10) << shift == value, "a number is what its digits say");
}

/* Each option that has a text got it from a word of the command. */
static void check_option(const cli_option *o, char *const *words, int taken) {
  bool found = o->text == NULL || o->kind == CLI_FLAG;
  for (int i = 0; i < taken && !found; i++)
    found = o->text >= words[i] && o->text <= words[i] + strlen(words[i]);
  check(found, "a value comes from the words that were taken");
  if (o->text == NULL || (o->kind != CLI_NUMBER && o->kind != CLI_SIZE)) return;
  check(o->number >= o->least && o->number <= o->most, "a number is in its range");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  cli_option options[NOPTIONS];
  char *words[MOST_WORDS + 1], *save = NULL;
  int n = 0;
  if (size > MOST_TEXT) return -1;
  char *text = malloc(size + 1);
  memcpy(text, data, size);
  text[size] = '\0';
  for (char *w = strtok_r(text, "\n", &save); w != NULL && n < MOST_WORDS; w = strtok_r(NULL, "\n", &save))
    words[n++] = w;
  words[n] = NULL;
  memcpy(options, table, sizeof table);
  const int taken = cli_options_read(options, NOPTIONS, words, "option_fuzz");
  check(taken >= -1 && taken <= n, "no more words are taken than there are");
  if (taken < 0) check(said[0] != '\0', "a refusal says why");
  for (int i = 0; i < NOPTIONS && taken >= 0; i++) check_option(&options[i], words, taken);
  for (int i = 0; i < n; i++) check_number(words[i], false);
  for (int i = 0; i < n; i++) check_number(words[i], true);
  free(text);
  return 0;
}
