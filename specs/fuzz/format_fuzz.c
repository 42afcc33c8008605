/* format_fuzz.c: a libFuzzer target for the buffer formats that the Python binding reads.
 *
 * The first byte is the size of an item, the rest the format. What is taken must be a number of that size by an oracle
 * of its own, which knows the struct module's table and nothing of the reader, and must be written as a format that is
 * read as the same dtype.
 */
#include "core.h"

#include <stdio.h>

enum { MOST_TEXT = 64 };

static void check(bool good, const char *what) {
  if (good) return;
  fprintf(stderr, "format_fuzz: %s\n", what);
  abort();
}

typedef struct row {
  char letter;
  uint8_t code;
  int sizes[3]; /* native and standard ones; 0: no more */
} row;

/* The struct module's table, with NumPy's F and D. */
static const row rows[] = {
    {'?', kDLBool, {1}},          {'c', kDLUInt, {1}},          {'b', kDLInt, {1}},      {'B', kDLUInt, {1}},
    {'h', kDLInt, {2}},           {'H', kDLUInt, {2}},          {'i', kDLInt, {4}},      {'I', kDLUInt, {4}},
    {'l', kDLInt, {4, 8}},        {'L', kDLUInt, {4, 8}},       {'q', kDLInt, {8}},      {'Q', kDLUInt, {8}},
    {'n', kDLInt, {8}},           {'N', kDLUInt, {8}},          {'e', kDLFloat, {2}},    {'f', kDLFloat, {4}},
    {'d', kDLFloat, {8}},         {'F', kDLComplex, {8}},       {'D', kDLComplex, {16}},
};

static const row *row_of(const char *text) {
  const size_t length = strlen(text);
  const bool complex = length == 2 && text[0] == 'Z';
  const char letter = !complex ? text[0] : text[1] == 'f' ? 'F' : text[1] == 'd' ? 'D' : '\0';
  if (length != 1 && !complex) return NULL;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (letter != '\0' && rows[i].letter == letter) return &rows[i];
  return NULL;
}

/* A producer's size is believed where the letter's kind has a dtype of that size. */
static void check_taken(const char *text, Py_ssize_t itemsize, const DLDataType *got) {
  const char *plain = text[0] != '\0' && strchr("@=<>!", text[0]) != NULL ? text + 1 : text;
  const row *r = row_of(plain);
  DLDataType again;
  check(r != NULL, "only a letter of the struct module's is taken");
  check(got->code == r->code && got->lanes == 1, "the dtype is the letter's");
  check(got->bits == itemsize * 8, "and of the item's size");
  check(itemsize == 1 || (text[0] != '>' && text[0] != '!'), "the other byte order is not taken");
  const char *written = core_buffer_format(*got);
  check(written != NULL && core_format_parse(written, itemsize, &again) == 0, "what is taken can be written");
  check(memcmp(&again, got, sizeof again) == 0, "and is read as the same");
}

static void check_refused(const char *text, Py_ssize_t itemsize) {
  const char *plain = text[0] != '\0' && strchr("@=<", text[0]) != NULL ? text + 1 : text;
  const row *r = row_of(plain);
  for (int i = 0; r != NULL && i < 3; i++) check(r->sizes[i] != itemsize || itemsize == 0, "a known number is taken");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  DLDataType got;
  if (size == 0 || size > MOST_TEXT) return -1;
  const Py_ssize_t itemsize = (int8_t)data[0];
  char *text = malloc(size);
  memcpy(text, data + 1, size - 1);
  text[size - 1] = '\0';
  if (core_format_parse(text, itemsize, &got) == 0)
    check_taken(text, itemsize, &got);
  else
    check_refused(text, itemsize);
  free(text);
  return 0;
}
