/* ptx_read.c: one entry or function of a PTX text, with its parameters, registers and labels.
 *
 * Invariant: names are found from the inside out, and a scope's names end with it. It must not know the
 * instructions, nor what else the text has. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_lex.h"

enum {
  MOST_REGISTERS = 65536,
  MOST_SYMBOLS = 32768,
  MOST_INSTRUCTIONS = 1 << 20
};

bool ptx_type_named(const char *text, size_t length, ptx_type *out) {
  static const struct {
    const char *name;
    ptx_type type;
  } types[] = {{"b8", {PTX_BITS, 8}},       {"b16", {PTX_BITS, 16}},     {"b32", {PTX_BITS, 32}},
               {"b64", {PTX_BITS, 64}},     {"u8", {PTX_UNSIGNED, 8}},   {"u16", {PTX_UNSIGNED, 16}},
               {"u32", {PTX_UNSIGNED, 32}}, {"u64", {PTX_UNSIGNED, 64}}, {"s8", {PTX_SIGNED, 8}},
               {"s16", {PTX_SIGNED, 16}},   {"s32", {PTX_SIGNED, 32}},   {"s64", {PTX_SIGNED, 64}},
               {"f32", {PTX_FLOAT, 32}},    {"f64", {PTX_FLOAT, 64}},    {"pred", {PTX_PREDICATE, 1}},
               {"f16", {PTX_FLOAT, 16}},    {"bf16", {PTX_BRAIN, 16}},   {"f16x2", {PTX_PAIR, 32}}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    if (strlen(types[i].name) != length || memcmp(types[i].name, text, length) != 0) continue;
    *out = types[i].type;
    return true;
  }
  return false;
}

/* Which of the family %r<10> the name %r7 is. */
static bool member(const ptx_symbol *s, const char *name, size_t length, uint32_t *index) {
  if (s->kind != PTX_FAMILY || length <= s->length || memcmp(name, s->at, s->length) != 0) return false;
  uint32_t n = 0;
  for (size_t i = s->length; i < length; i++) {
    const char c = name[i];
    if (c < '0' || c > '9' || n > MOST_REGISTERS) return false;
    n = n * 10 + (uint32_t)(c - '0');
  }
  if (n < s->count) *index = n;
  return n < s->count;
}

/* Whether two declarations of one scope give a register or label the same name. */
static bool clash(const ptx_symbol *a, const ptx_symbol *b) {
  uint32_t unused;
  if (a->length == b->length && memcmp(a->at, b->at, a->length) == 0) return true;
  return member(a, b->at, b->length, &unused) || member(b, a->at, a->length, &unused);
}

const ptx_symbol *ptx_lookup(const ptx_reader *r, const ptx_token *name, uint32_t *index) {
  *index = 0;
  for (size_t i = r->nsymbols; i-- > 0;) {
    const ptx_symbol *s = &r->symbols[i];
    if (s->kind == PTX_LABEL) continue;
    if (member(s, name->at, name->length, index)) return s;
    if (s->kind != PTX_FAMILY && s->length == name->length && memcmp(s->at, name->at, s->length) == 0) return s;
  }
  return NULL;
}

bool ptx_add_symbol(ptx_reader *r, const ptx_token *name, ptx_symbol s) {
  s.at = name->at;
  s.length = name->length;
  s.scope = r->scope;
  for (size_t i = r->nsymbols; i-- > 0;)
    if (r->symbols[i].scope == r->scope && clash(&r->symbols[i], &s))
      return ptx_fail(r, name->line, "'%.*s' is declared twice", ptx_shown(name), name->at);
  if (r->nsymbols == MOST_SYMBOLS) return ptx_fail(r, name->line, "more than %d names", MOST_SYMBOLS);
  r->symbols = ptx_grow(r->symbols, r->nsymbols, &r->symbols_room, sizeof s);
  r->symbols[r->nsymbols++] = s;
  return true;
}

bool ptx_take_type(ptx_reader *r, ptx_type *out) {
  ptx_token t;
  if (!ptx_take(r, PTX_WORD, "a type", &t)) return false;
  if (t.at[0] == '.' && ptx_type_named(t.at + 1, t.length - 1, out)) return true;
  return ptx_fail(r, t.line, "'%.*s' is not a type of the simulator's subset", ptx_shown(&t), t.at);
}

static char *name_of(const ptx_token *t, bool numbered, uint32_t n) {
  const size_t size = t->length + 12;
  char *name = malloc(size);
  if (name == NULL) abort();
  if (numbered) snprintf(name, size, "%.*s%u", (int)t->length, t->at, n);
  if (!numbered) snprintf(name, size, "%.*s", (int)t->length, t->at);
  return name;
}

static void add_registers(ptx_reader *r, const ptx_token *name, ptx_type type, uint32_t count, bool family) {
  ptx_entry *e = r->entry;
  for (uint32_t i = 0; i < count; i++) {
    if (e->nregs == r->regs_room) {
      size_t room = r->regs_room, same = room;
      r->types = ptx_grow(r->types, e->nregs, &room, sizeof *r->types);
      e->names = ptx_grow(e->names, e->nregs, &same, sizeof *e->names);
      r->regs_room = room;
    }
    r->types[e->nregs] = type;
    e->names[e->nregs++] = name_of(name, family, i);
  }
}

static bool one_declaration(ptx_reader *r, ptx_type type) {
  ptx_token name, count = {.value = 1};
  if (!ptx_take(r, PTX_WORD, "the name of a register", &name)) return false;
  const bool family = ptx_accept(r, "<");
  if (family && (!ptx_take(r, PTX_INTEGER, "a number of registers", &count) || !ptx_expect(r, ">"))) return false;
  if (count.value > MOST_REGISTERS - r->entry->nregs)
    return ptx_fail(r, name.line, "more than %d registers", MOST_REGISTERS);
  const ptx_symbol s = {.kind = family ? PTX_FAMILY : PTX_ONE,
                        .type = type,
                        .first = (uint32_t)r->entry->nregs,
                        .count = (uint32_t)count.value};
  if (!ptx_add_symbol(r, &name, s)) return false;
  add_registers(r, &name, type, s.count, family);
  return true;
}

static bool declaration(ptx_reader *r) {
  ptx_type type;
  if (!ptx_take_type(r, &type)) return false;
  do {
    if (!one_declaration(r, type)) return false;
  } while (ptx_accept(r, ","));
  return ptx_expect(r, ";");
}

uint32_t ptx_carry(ptx_reader *r) {
  static const ptx_token name = {.at = "the carry", .length = 9};
  if (!r->carries) {
    r->carry = (uint32_t)r->entry->nregs;
    add_registers(r, &name, (ptx_type){PTX_PREDICATE, 1}, 1, false);
  }
  r->carries = true;
  return r->carry;
}

static bool extents(ptx_reader *r, unsigned out[3]) {
  ptx_token t;
  out[0] = out[1] = out[2] = 1;
  for (int i = 0; i < 3; i++) {
    if (!ptx_take(r, PTX_INTEGER, "a number of threads", &t)) return false;
    if (t.value == 0 || t.value > 1024) return ptx_fail(r, t.line, "%llu threads", (unsigned long long)t.value);
    out[i] = (unsigned)t.value;
    if (!ptx_accept(r, ",")) break;
  }
  return true;
}

/* What the program promises about its launches; hints for a compiler are passed over. */
static bool tuning(ptx_reader *r) {
  ptx_entry *e = r->entry;
  ptx_token unused;
  unsigned most[3];
  while (!r->failed && !ptx_is(r, "{")) {
    if (ptx_accept(r, ".reqntid")) {
      if (!extents(r, e->exact)) return false;
    } else if (ptx_accept(r, ".maxntid")) {
      if (!extents(r, most)) return false;
      e->most_threads = most[0] * most[1] * most[2];
    } else if (ptx_accept(r, ".minnctapersm") || ptx_accept(r, ".maxnreg")) {
      if (!ptx_take(r, PTX_INTEGER, "a number", &unused)) return false;
    } else {
      return ptx_expect(r, "{");
    }
  }
  return !r->failed;
}

static bool open_scope(ptx_reader *r) {
  if (r->nscopes == PTX_MOST_SCOPES) return ptx_fail(r, r->token.line, "more than %d scopes", PTX_MOST_SCOPES);
  r->parents[r->nscopes] = r->scope;
  r->scope = r->nscopes++;
  return true;
}

/* Labels stay: a branch before or behind the scope's end is resolved when the entry is complete. */
static void close_scope(ptx_reader *r) {
  size_t kept = 0;
  for (size_t i = 0; i < r->nsymbols; i++)
    if (r->symbols[i].scope != r->scope || r->symbols[i].kind == PTX_LABEL) r->symbols[kept++] = r->symbols[i];
  r->nsymbols = kept;
  r->scope = r->parents[r->scope];
}

static bool guard(ptx_reader *r, ptx_operand *out) {
  ptx_token name;
  uint32_t index;
  out->negated = ptx_accept(r, "!");
  if (!ptx_take(r, PTX_WORD, "a predicate", &name)) return false;
  const ptx_symbol *s = ptx_lookup(r, &name, &index);
  if (s == NULL || s->kind == PTX_VARIABLE || s->type.class != PTX_PREDICATE)
    return ptx_fail(r, name.line, "'%.*s' is not a predicate", ptx_shown(&name), name.at);
  out->kind = PTX_REGISTER;
  out->index = s->first + index;
  return true;
}

static bool add_instruction(ptx_reader *r, const ptx_inst *i, const ptx_token *label) {
  ptx_entry *e = r->entry;
  if (e->ninsts == MOST_INSTRUCTIONS) return ptx_fail(r, i->line, "more than %d instructions", MOST_INSTRUCTIONS);
  if (i->code == PTX_BRA) {
    r->jumps = ptx_grow(r->jumps, r->njumps, &r->jumps_room, sizeof *r->jumps);
    r->jumps[r->njumps++] = (ptx_jump){*label, r->scope, e->ninsts};
  }
  e->insts = ptx_grow(e->insts, e->ninsts, &r->insts_room, sizeof *e->insts);
  e->insts[e->ninsts++] = *i;
  return true;
}

static bool guarded_instruction(ptx_reader *r) {
  ptx_inst i = {.lanes = 1};
  ptx_token label = {0};
  const bool has_guard = ptx_accept(r, "@");
  if (has_guard && !guard(r, &i.guard)) return false;
  if (!ptx_instruction(r, &i)) return false;
  if (i.code == PTX_BRA && !ptx_take(r, PTX_WORD, "a label", &label)) return false;
  r->entry->waits |= i.code >= PTX_BAR;
  return ptx_expect(r, ";") && add_instruction(r, &i, &label);
}

static bool passed_over(ptx_reader *r) {
  const bool line_table = ptx_is(r, ".loc");
  if (!line_table && !ptx_is(r, ".pragma")) return false;
  const unsigned line = r->token.line;
  while (r->token.kind != PTX_END && (line_table ? r->token.line == line : !ptx_is(r, ";"))) ptx_advance(r);
  if (!line_table) ptx_expect(r, ";");
  return true;
}

static bool statement(ptx_reader *r) {
  ptx_space space;
  if (ptx_accept(r, ".reg")) return declaration(r);
  if (ptx_space_word(r, &space)) return ptx_variables(r, space);
  if (passed_over(r)) return !r->failed;
  if (r->token.kind != PTX_WORD || r->token.at[0] == '.') return guarded_instruction(r);
  const ptx_token name = r->token;
  const char *behind = r->at;
  while (*behind == ' ' || *behind == '\t') behind++;
  if (*behind != ':') return guarded_instruction(r);
  ptx_advance(r);
  ptx_advance(r);
  if (ptx_accept(r, ".callprototype")) return ptx_prototype_read(r, &name);
  const ptx_symbol s = {.kind = PTX_LABEL, .first = (uint32_t)r->entry->ninsts};
  return ptx_add_symbol(r, &name, s);
}

static bool body(ptx_reader *r) {
  unsigned depth = 0;
  do {
    if (r->token.kind == PTX_END) return ptx_fail(r, r->token.line, "the text ends within an entry");
    if (ptx_accept(r, "{")) {
      if (!open_scope(r)) return false;
      depth++;
    } else if (ptx_accept(r, "}")) {
      close_scope(r);
      depth--;
    } else if (!statement(r)) {
      return false;
    }
  } while (depth > 0 && !r->failed);
  return !r->failed;
}

static const ptx_symbol *label_of(const ptx_reader *r, const ptx_jump *j) {
  for (unsigned scope = j->scope; scope != 0; scope = r->parents[scope])
    for (size_t i = 0; i < r->nsymbols; i++) {
      const ptx_symbol *s = &r->symbols[i];
      if (s->kind != PTX_LABEL || s->scope != scope || s->length != j->label.length) continue;
      if (memcmp(s->at, j->label.at, s->length) == 0) return s;
    }
  return NULL;
}

static bool resolve(ptx_reader *r) {
  for (size_t i = 0; i < r->njumps; i++) {
    const ptx_jump *j = &r->jumps[i];
    const ptx_symbol *s = label_of(r, j);
    if (s == NULL) return ptx_fail(r, j->label.line, "there is no label '%.*s'", ptx_shown(&j->label), j->label.at);
    r->entry->insts[j->inst].target = s->first;
  }
  return true;
}

static void keep_widths(ptx_reader *r) {
  ptx_entry *e = r->entry;
  e->bits = malloc(e->nregs + 1);
  if (e->bits == NULL) abort();
  for (size_t i = 0; i < e->nregs; i++) e->bits[i] = (uint8_t)r->types[i].bits;
}

/* All of it is read into r->entry, which has its name when that is met: results come before. */
bool ptx_entry_read(ptx_reader *r, bool is_function) {
  ptx_entry *e = r->entry;
  ptx_token name;
  r->nsymbols = r->noutside;
  r->njumps = r->insts_room = r->regs_room = r->params_room = r->calls_room = r->prototypes_room = 0;
  r->scope = 0;
  r->nscopes = 1;
  r->carries = false;
  free(r->types);
  r->types = NULL;
  if (is_function && !ptx_parameters(r)) return false;
  e->nresults = e->nparams;
  e->is_function = is_function;
  if (!ptx_take(r, PTX_WORD, is_function ? "the name of a function" : "the name of an entry", &name)) return false;
  e->name = name_of(&name, false, 0);
  e->line = name.line;
  if (!ptx_parameters(r)) return false;
  e->frame = e->nbytes;
  if (is_function) ptx_accept(r, ".noreturn");
  if (is_function && ptx_accept(r, ";")) return !r->failed;
  e->has_body = true;
  const bool ok = tuning(r) && body(r) && resolve(r);
  keep_widths(r);
  return ok;
}
