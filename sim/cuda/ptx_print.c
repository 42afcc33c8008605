/* ptx_print.c: vprintf of a kernel: a format, and the values behind each other as the compiler lays them out.
 *
 * What is printed comes out when the launch runs, as it does on a device when the host waits for it. A thread that is
 * followed reads the same bytes and prints nothing. Invariant: the host's printf gets one conversion at a time, made of
 * characters that were looked at, with a value of the width that it names. It must not know how a function is
 * called. */
#include <stdio.h>
#include <string.h>

#include "ptx_lane.h"

enum { LONGEST = 4096, LONGEST_FORM = 48, WORD = 8 };

/* What has been printed so far, and where the next value lies. */
typedef struct printed {
  lane *l;
  const ptx_inst *i;
  uint64_t values;
  uint32_t nvalues;
  size_t n;
  char text[LONGEST];
} printed;

/* One conversion: its flags, width and precision behind a %, its letter, and whether its value has 64 bits. */
typedef struct conversion {
  char form[LONGEST_FORM];
  char letter;
  bool wide;
} conversion;

static void add(printed *p, const char *text, size_t n) {
  const size_t room = sizeof p->text - 1 - p->n;
  memcpy(p->text + p->n, text, n < room ? n : room);
  p->n += n < room ? n : room;
}

static bool unknown_text(printed *p) {
  p->l->b->end = PTX_LOOSE;
  return false;
}

/* Values lie at multiples of their size. */
static bool take(printed *p, size_t nbytes, uint64_t *out, bool *unknown) {
  p->values = (p->values + nbytes - 1) / nbytes * nbytes;
  p->nvalues++;
  if (!ptx_peek(p->l, p->i, p->values, (unsigned)nbytes * 8, out, unknown)) return false;
  p->values += nbytes;
  return true;
}

/* The characters up to the 0 that ends them. How many there are in memory is known when the launch runs. */
static bool characters(printed *p, uint64_t at, char out[LONGEST]) {
  bool unknown = at >> 56 == 0 && p->l->b->follows;
  uint64_t c = 1;
  size_t n = 0;
  while (c != 0 && n < LONGEST - 1 && !unknown) {
    if (!ptx_peek(p->l, p->i, at + n, 8, &c, &unknown)) return false;
    out[n++] = (char)c;
  }
  out[n] = '\0';
  return !unknown || unknown_text(p);
}

/* From behind the % to behind the letter. A width that is a value stands in the form as a number. */
static bool read_conversion(printed *p, const char **at, conversion *out) {
  size_t n = 1;
  *out = (conversion){.form = "%"};
  for (; **at != '\0' && strchr("-+ #.*hlLzjt0123456789", **at) != NULL; ++*at) {
    uint64_t width = 0;
    bool unknown;
    if (n > LONGEST_FORM - 20) continue; /* room for a number and the rest */
    if (**at == '*' && !take(p, WORD / 2, &width, &unknown)) return false;
    if (**at == '*') n += (size_t)snprintf(out->form + n, sizeof out->form - n, "%d", (int)(int32_t)width);
    else if (strchr("hlLzjt", **at) != NULL) out->wide |= **at != 'h';
    else out->form[n++] = **at;
  }
  out->form[n] = '\0';
  out->letter = **at;
  if (out->letter != '\0') ++*at;
  return true;
}

static bool print_text(printed *p, conversion *c) {
  char text[LONGEST], made[LONGEST];
  uint64_t at = 0;
  bool unknown = false;
  if (!take(p, WORD, &at, &unknown)) return false;
  if (unknown) return unknown_text(p);
  if (!characters(p, at, text)) return false;
  snprintf(made, sizeof made, strcat(c->form, "s"), text);
  add(p, made, strlen(made));
  return true;
}

static bool print_number(printed *p, conversion *c) {
  char made[LONGEST];
  const char *const end = (const char[]){c->letter, '\0'};
  const bool is_real = strchr("aAeEfFgG", c->letter) != NULL, is_pointer = c->letter == 'p';
  const size_t nbytes = is_real || is_pointer || c->wide ? WORD : WORD / 2;
  uint64_t v = 0;
  double real;
  bool unknown;
  if (!take(p, nbytes, &v, &unknown)) return false;
  memcpy(&real, &v, sizeof real);
  if (nbytes == WORD && !is_real) strcat(c->form, is_pointer ? "#ll" : "ll");
  strcat(c->form, is_pointer ? "x" : end);
  if (is_real) snprintf(made, sizeof made, c->form, real);
  else if (nbytes == WORD) snprintf(made, sizeof made, c->form, (unsigned long long)v);
  else snprintf(made, sizeof made, c->form, (unsigned)v);
  add(p, made, strlen(made));
  return true;
}

/* What is no conversion stays as it stands in the format. */
static bool print_conversion(printed *p, const char **at) {
  const char *const begin = *at - 1;
  conversion c;
  if (!read_conversion(p, at, &c)) return false;
  if (c.letter == 's') return print_text(p, &c);
  if (c.letter != '\0' && strchr("diouxXcaAeEfFgGp", c.letter) != NULL) return print_number(p, &c);
  if (c.letter == '%') add(p, "%", 1);
  else add(p, begin, (size_t)(*at - begin));
  return true;
}

/* Of one of the frame's parameters. */
static bool argument(lane *l, size_t which, uint64_t *out) {
  const size_t at = l->frames[l->depth].bytes + l->e->params[which].offset;
  memcpy(out, l->bytes + at, sizeof *out);
  for (size_t k = 0; k < sizeof *out; k++)
    if (l->bytes_state[at + k] == PTX_UNKNOWN) l->b->end = PTX_LOOSE;
  return l->b->end == PTX_DONE;
}

bool ptx_print(lane *l, const ptx_inst *i) {
  printed p = {.l = l, .i = i};
  char format[LONGEST];
  uint64_t where = 0;
  if (!argument(l, 1, &where) || !argument(l, 2, &p.values) || !characters(&p, where, format)) return false;
  for (const char *at = format; *at != '\0';) {
    const size_t plain = strcspn(at, "%");
    add(&p, at, plain);
    at += plain;
    if (*at++ == '\0') break;
    if (!print_conversion(&p, &at)) return false;
  }
  memcpy(l->bytes + l->frames[l->depth].bytes + l->e->params[0].offset, &p.nvalues, sizeof p.nvalues);
  if (l->b->follows) return true;
  fwrite(p.text, 1, p.n, stdout);
  fflush(stdout);
  return true;
}
