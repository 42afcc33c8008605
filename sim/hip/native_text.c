/* native_text.c: reads the text of a kernel for HIP. What it consists of, beside the parts that are known, are
 * constants.
 *
 * It must not know what a kernel does. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native.h"

#define MF__HIP_TEXT(name, ...) {#name, #__VA_ARGS__ "\n"},
static const struct {
  const char *name, *text;
} parts[] = {
#include "driver/hip_copy.h"
#include "driver/hip_number.h"
#include "driver/hip_thread.h"
#include "driver/hip_walk.h"
};

/* Takes the part out of the text, once; false where it is not there. */
static bool take_out(char *text, const char *name) {
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    char *at = strcmp(parts[i].name, name) == 0 ? strstr(text, parts[i].text) : NULL;
    if (at == NULL) continue;
    memset(at, '\n', strlen(parts[i].text));
    return true;
  }
  return false;
}

static bool read_constant(const char *line, const char *name, unsigned *out) {
  char format[64];
  snprintf(format, sizeof format, "#define %s %%u", name);
  return sscanf(line, format, out) == 1;
}

static bool read_format(const char *line, const char *name, unsigned *out) {
  char begins[64], *at;
  snprintf(begins, sizeof begins, "static __device__ const format %s = {", name);
  if (strncmp(line, begins, strlen(begins)) != 0) return false;
  at = (char *)(uintptr_t)line + strlen(begins);
  for (int i = 0; i < NATIVE_FORMAT; i++) {
    out[i] = (unsigned)strtoul(at, &at, 10);
    at += strspn(at, "u, ");
  }
  return strcmp(at, "};") == 0;
}

/* Constants, and the names that stand for what the parts do not say. */
static bool read_line(const char *line, native_program *out) {
  unsigned lanes;
  if (read_constant(line, "SIZE", &out->size)) return true;
  if (read_constant(line, "LANES", &lanes)) return (out->lanes = (int)lanes) > 0;
  if (read_format(line, "TO", out->to) || read_format(line, "FROM", out->from)) return true;
  return *line == '\0' || *line == '#';
}

static bool read_lines(char *text, native_program *out) {
  char *rest;
  bool all = true;
  for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
    all = all && read_line(line, out);
  return all;
}

static bool read_copy(char *text, native_program *out) {
  out->kind = NATIVE_COPIES;
  if (!take_out(text, "copy")) return false;
  (void)take_out(text, "copy"); /* by squares */
  return read_lines(text, out) && out->size > 0 && out->size <= 16;
}

static bool read_numbers(char *text, native_program *out) {
  const bool casts = take_out(text, "cast");
  out->kind = casts ? NATIVE_CASTS : NATIVE_COMPARES;
  if (!casts && !take_out(text, "compare")) return false;
  if (!take_out(text, "format") || !take_out(text, "number")) return false;
  return read_lines(text, out) && out->lanes > 0;
}

bool native_read(const char *given, native_program *out, const char **why) {
  char *text = strdup(given);
  if (text == NULL) abort();
  *out = (native_program){.kind = NATIVE_COPIES};
  bool ours = take_out(text, "thread") && take_out(text, "walk");
  ours = ours && (read_copy(text, out) || read_numbers(text, out));
  free(text);
  *why = ours ? "" : "the simulator compiles no text but Moonferry's own";
  return ours;
}
