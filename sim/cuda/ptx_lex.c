/* ptx_lex.c: a PTX text as tokens.
 *
 * Invariant: the reader never goes behind the terminating zero, whatever the text; after the first failure it
 * stands at the end. It must not know what tokens mean. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_lex.h"

bool ptx_fail(ptx_reader *r, unsigned line, const char *format, ...) {
  va_list args;
  if (r->failed) return false;
  r->failed = true;
  const int n = snprintf(r->why->text, sizeof r->why->text, "ptx, line %u: ", line);
  va_start(args, format);
  vsnprintf(r->why->text + n, sizeof r->why->text - (size_t)n, format, args);
  va_end(args);
  r->token.kind = PTX_END;
  return false;
}

void *ptx_grow(void *list, size_t n, size_t *room, size_t size) {
  if (n < *room) return list;
  *room = *room * 2 + 16;
  void *longer = realloc(list, *room * size);
  if (longer == NULL) abort();
  return longer;
}

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

static bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == '$';
}

/* Leaves the reader at the next character that is neither blank nor in a comment. */
static void skip(ptx_reader *r) {
  for (;;) {
    while (*r->at == ' ' || *r->at == '\t' || *r->at == '\r' || *r->at == '\n') r->line += *r->at++ == '\n';
    if (strncmp(r->at, "//", 2) == 0) {
      while (*r->at != '\0' && *r->at != '\n') r->at++;
    } else if (strncmp(r->at, "/*", 2) == 0) {
      const unsigned from = r->line;
      for (r->at += 2; *r->at != '\0' && strncmp(r->at, "*/", 2) != 0; r->at++) r->line += *r->at == '\n';
      if (*r->at == '\0') ptx_fail(r, from, "a comment is not ended");
      if (*r->at != '\0') r->at += 2;
    } else {
      return;
    }
  }
}

static unsigned digit(char c) {
  if (is_digit(c)) return (unsigned)(c - '0');
  const char small = (char)(c | 32);
  return small >= 'a' && small <= 'f' ? (unsigned)(small - 'a' + 10) : 99;
}

static bool parse_digits(const char *digits, size_t n, unsigned base, uint64_t *out) {
  *out = 0;
  for (size_t i = 0; i < n; i++) {
    const unsigned d = digit(digits[i]);
    if (d >= base || *out > (UINT64_MAX - d) / base) return false;
    *out = *out * base + d;
  }
  return n > 0;
}

/* 0f3F800000 and 0d3FF0000000000000. */
static bool parse_bits(ptx_token *t) {
  const unsigned bits = (t->at[1] | 32) == 'f' ? 32 : 64;
  t->kind = PTX_REAL;
  t->bits = bits;
  return t->length == 2 + bits / 4 && parse_digits(t->at + 2, bits / 4, 16, &t->value);
}

static bool parse_integer(ptx_token *t) {
  const char *at = t->at;
  size_t n = t->length;
  if (at[n - 1] == 'U') n--;
  const char second = n > 1 && *at == '0' ? (char)(at[1] | 32) : '\0';
  if (second == 'x') return parse_digits(at + 2, n - 2, 16, &t->value);
  if (second == 'b') return parse_digits(at + 2, n - 2, 2, &t->value);
  return parse_digits(at, n, n > 1 && *at == '0' ? 8 : 10, &t->value);
}

static bool parse_decimal(ptx_token *t) {
  char text[64], *end;
  if (t->length >= sizeof text) return false;
  memcpy(text, t->at, t->length);
  text[t->length] = '\0';
  const double value = strtod(text, &end);
  memcpy(&t->value, &value, sizeof value);
  t->kind = PTX_REAL;
  t->bits = 0;
  return *end == '\0';
}

static void number(ptx_reader *r, ptx_token *t) {
  bool real = false;
  const bool plain = t->at[0] != '0' || is_digit(t->at[1]) || t->at[1] == '.';
  t->kind = PTX_INTEGER;
  while (in_word(*r->at) || *r->at == '.') {
    const bool exponent = plain && (*r->at | 32) == 'e';
    real |= *r->at == '.' || exponent;
    r->at++;
    if (exponent && (*r->at == '+' || *r->at == '-')) r->at++;
  }
  t->length = (size_t)(r->at - t->at);
  const bool bits = t->at[0] == '0' && t->length > 1 && ((t->at[1] | 32) == 'f' || (t->at[1] | 32) == 'd');
  const bool ok = real ? parse_decimal(t) : bits ? parse_bits(t) : parse_integer(t);
  if (!ok) ptx_fail(r, t->line, "'%.*s' is not a number", (int)(t->length < 60 ? t->length : 60), t->at);
}

static void string(ptx_reader *r, ptx_token *t) {
  t->kind = PTX_STRING;
  for (r->at++; *r->at != '\0' && *r->at != '"' && *r->at != '\n'; r->at++) continue;
  t->length = (size_t)(r->at - t->at);
  if (*r->at != '"') ptx_fail(r, t->line, "a string is not ended");
  if (*r->at == '"') r->at++;
}

/* Dots belong to a word only with something behind them: %tid.x and ld.param.u64 are one word each, .reg.b16 is two. */
static void word(ptx_reader *r, ptx_token *t) {
  const bool directive = *r->at == '.';
  t->kind = PTX_WORD;
  r->at++;
  while (in_word(*r->at) || (!directive && *r->at == '.' && in_word(r->at[1]))) r->at++;
  t->length = (size_t)(r->at - t->at);
}

void ptx_advance(ptx_reader *r) {
  if (r->failed) return;
  skip(r);
  if (r->failed) return;
  ptx_token *t = &r->token;
  *t = (ptx_token){.kind = PTX_END, .at = r->at, .line = r->line};
  if (*r->at == '\0') return;
  if (is_digit(*r->at)) {
    number(r, t);
  } else if (*r->at == '"') {
    string(r, t);
  } else if (in_word(*r->at) || ((*r->at == '.' || *r->at == '%') && in_word(r->at[1]))) {
    word(r, t);
  } else {
    t->kind = PTX_PUNCTUATION;
    t->length = 1;
    r->at++;
  }
}

bool ptx_same(const ptx_token *t, const char *text) {
  return t->length == strlen(text) && memcmp(t->at, text, t->length) == 0;
}

bool ptx_is(const ptx_reader *r, const char *text) {
  const bool named = r->token.kind == PTX_WORD || r->token.kind == PTX_PUNCTUATION;
  return named && ptx_same(&r->token, text);
}

bool ptx_accept(ptx_reader *r, const char *text) {
  if (!ptx_is(r, text)) return false;
  ptx_advance(r);
  return true;
}

bool ptx_unexpected(ptx_reader *r, const char *what) {
  const ptx_token *t = &r->token;
  if (t->kind == PTX_END) return ptx_fail(r, t->line, "the text ends where %s is expected", what);
  return ptx_fail(r, t->line, "'%.*s' where %s is expected", (int)(t->length < 60 ? t->length : 60), t->at, what);
}

bool ptx_expect(ptx_reader *r, const char *text) {
  char quoted[24];
  if (ptx_accept(r, text)) return !r->failed;
  snprintf(quoted, sizeof quoted, "'%s'", text);
  return ptx_unexpected(r, quoted);
}

bool ptx_take(ptx_reader *r, ptx_token_kind kind, const char *what, ptx_token *out) {
  if (r->token.kind != kind || r->failed) return ptx_unexpected(r, what);
  *out = r->token;
  ptx_advance(r);
  return !r->failed;
}
