/* ptx_inst.c: the instructions of the subset, their modifiers and operands.
 *
 * One table says what each opcode may look like; the rest follows it. What the real assembler refuses is refused
 * here: an operand has the size of the instruction's type, and a float is no integer. It must not know what an
 * instruction does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_lex.h"

#define INTEGERS "u16 u32 u64 s16 s32 s64 "
#define FLOATS "f32 f64 "
#define BITS "b16 b32 b64 "
#define ALL BITS INTEGERS FLOATS

/* Modifiers, in their order; capitals must be there. k .volatile, s a space, c caching of a load, n .nc,
 * w caching of a store, v a vector, m lo, hi or wide, r rounding, C a comparison, b how it joins with a predicate,
 * u .uni, o .to, T the type, F the type that is converted.
 * Operands: D to, E to and may be wider, P to a predicate and perhaps its inverse; s of the type, f of the type
 * that is converted and may be wider, d and a of the result's (wide) type, n a number of bits, p a predicate,
 * B the predicate that a comparison joins with, m what mov moves; V and v vectors, A an address. */
typedef struct form {
  const char *name;
  ptx_code code;
  const char *modifiers, *operands, *types;
} form;

static const form forms[] = {
    {"add", PTX_ADD, "rT", "Dss", INTEGERS FLOATS},
    {"sub", PTX_SUB, "rT", "Dss", INTEGERS FLOATS},
    {"mul", PTX_MUL, "mrT", "dss", INTEGERS FLOATS},
    {"mad", PTX_MAD, "mT", "dssa", INTEGERS},
    {"fma", PTX_FMA, "rT", "Dsss", FLOATS},
    {"div", PTX_DIV, "rT", "Dss", INTEGERS FLOATS},
    {"rem", PTX_REM, "T", "Dss", INTEGERS},
    {"min", PTX_MIN, "T", "Dss", INTEGERS FLOATS},
    {"max", PTX_MAX, "T", "Dss", INTEGERS FLOATS},
    {"abs", PTX_ABS, "T", "Ds", "s16 s32 s64 " FLOATS},
    {"neg", PTX_NEG, "T", "Ds", "s16 s32 s64 " FLOATS},
    {"and", PTX_AND, "T", "Dss", BITS "pred "},
    {"or", PTX_OR, "T", "Dss", BITS "pred "},
    {"xor", PTX_XOR, "T", "Dss", BITS "pred "},
    {"not", PTX_NOT, "T", "Ds", BITS "pred "},
    {"shl", PTX_SHL, "T", "Dsn", BITS},
    {"shr", PTX_SHR, "T", "Dsn", BITS INTEGERS},
    {"selp", PTX_SELP, "T", "Dssp", ALL},
    {"mov", PTX_MOV, "T", "Dm", ALL "pred "},
    {"cvt", PTX_CVT, "rTF", "Ef", "u8 s8 " INTEGERS FLOATS},
    {"cvta", PTX_MOV, "osT", "Ds", "u64 "},
    {"setp", PTX_SETP, "CbT", "PssB", ALL},
    {"ld", PTX_LD, "kscnvT", "VA", "b8 u8 s8 " ALL},
    {"st", PTX_ST, "kswvT", "Av", "b8 u8 s8 " ALL},
    {"bra", PTX_BRA, "u", "", ""},
    {"ret", PTX_RET, "u", "", ""},
    {"exit", PTX_RET, "", "", ""},
};

typedef struct word {
  char modifier;
  const char *name;
  int value;
} word;

static const word words[] = {
    {'k', "volatile", 0},
    {'s', "global", PTX_GLOBAL},
    {'s', "param", PTX_PARAM},
    {'c', "ca", 0},
    {'c', "cg", 0},
    {'c', "cs", 0},
    {'c', "lu", 0},
    {'c', "cv", 0},
    {'n', "nc", 0},
    {'w', "wb", 0},
    {'w', "cg", 0},
    {'w', "cs", 0},
    {'w', "wt", 0},
    {'v', "v2", 2},
    {'v', "v4", 4},
    {'m', "lo", PTX_LOW},
    {'m', "hi", PTX_HIGH},
    {'m', "wide", PTX_WIDE},
    {'r', "rn", PTX_NEAREST},
    {'r', "rni", PTX_TO_EVEN},
    {'r', "rzi", PTX_TO_ZERO},
    {'r', "rmi", PTX_DOWN},
    {'r', "rpi", PTX_UP},
    {'b', "and", PTX_WITH_AND},
    {'b', "or", PTX_WITH_OR},
    {'b', "xor", PTX_WITH_XOR},
    {'u', "uni", 0},
    {'o', "to", 0},
};

static const struct {
  const char *name;
  ptx_compare compare;
  bool unsigned_only;
} compares[] = {{"eq", PTX_EQ, false}, {"ne", PTX_NE, false}, {"lt", PTX_LT, false}, {"le", PTX_LE, false},
                {"gt", PTX_GT, false}, {"ge", PTX_GE, false}, {"lo", PTX_LT, true},  {"ls", PTX_LE, true},
                {"hi", PTX_GT, true},  {"hs", PTX_GE, true}};

/* The opcode word, piece by piece. */
typedef struct pieces {
  const char *at[12];
  size_t length[12];
  size_t n, next;
  bool unsigned_compare, has_space, is_volatile, cached;
} pieces;

static bool split(const ptx_token *t, pieces *out) {
  *out = (pieces){.n = 0};
  const char *from = t->at, *end = t->at + t->length;
  for (const char *p = from; p <= end; p++) {
    if (p < end && *p != '.') continue;
    if (out->n == sizeof out->at / sizeof *out->at) return false;
    out->at[out->n] = from;
    out->length[out->n++] = (size_t)(p - from);
    from = p + 1;
  }
  return true;
}

static bool piece_is(const pieces *p, size_t i, const char *text) {
  return i < p->n && p->length[i] == strlen(text) && memcmp(p->at[i], text, p->length[i]) == 0;
}

static bool take_word(pieces *p, ptx_inst *i, char modifier) {
  for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
    if (words[k].modifier != modifier || !piece_is(p, p->next, words[k].name)) continue;
    if (modifier == 's') i->space = (ptx_space)words[k].value;
    if (modifier == 's') p->has_space = true;
    if (modifier == 'v') i->lanes = (unsigned)words[k].value;
    if (modifier == 'm') i->mode = (ptx_mode)words[k].value;
    if (modifier == 'r') i->round = (ptx_round)words[k].value;
    if (modifier == 'b') i->join = (ptx_join)words[k].value;
    if (modifier == 'k') p->is_volatile = true;
    if (modifier == 'c' || modifier == 'n' || modifier == 'w') p->cached = true;
    p->next++;
    return true;
  }
  return false;
}

static bool take_compare(pieces *p, ptx_inst *i) {
  for (size_t k = 0; k < sizeof compares / sizeof *compares; k++) {
    if (!piece_is(p, p->next, compares[k].name)) continue;
    i->compare = compares[k].compare;
    p->unsigned_compare = compares[k].unsigned_only;
    p->next++;
    return true;
  }
  return false;
}

static bool take_type(pieces *p, const form *f, ptx_type *out) {
  char wanted[8];
  if (p->next == p->n || p->length[p->next] > 6) return false;
  if (!ptx_type_named(p->at[p->next], p->length[p->next], out)) return false;
  snprintf(wanted, sizeof wanted, "%.*s ", (int)p->length[p->next], p->at[p->next]);
  p->next++;
  return strstr(f->types, wanted) != NULL;
}

static bool take_modifiers(pieces *p, const form *f, ptx_inst *i) {
  for (const char *m = f->modifiers; *m != '\0'; m++) {
    bool ok = true;
    if (*m == 'T')
      ok = take_type(p, f, &i->type);
    else if (*m == 'F')
      ok = take_type(p, f, &i->from);
    else if (*m == 'C')
      ok = take_compare(p, i);
    else
      take_word(p, i, *m);
    if (!ok) return false;
  }
  return p->next == p->n;
}

/* Rounding is said where a value may change by it: to integer where a float becomes one, to nearest where not. */
static bool converts(const ptx_inst *i) {
  const bool from = i->from.class == PTX_FLOAT, to = i->type.class == PTX_FLOAT;
  const bool whole = i->round >= PTX_TO_EVEN;
  if (from && to && i->from.bits == i->type.bits) return i->round == PTX_NO_ROUND || whole;
  if (from && to) return i->round == (i->from.bits > i->type.bits ? PTX_NEAREST : PTX_NO_ROUND);
  if (from) return whole;
  return i->round == (to ? PTX_NEAREST : PTX_NO_ROUND);
}

static bool rounds(const ptx_inst *i) {
  const bool real = i->type.class == PTX_FLOAT;
  if (i->code == PTX_CVT) return converts(i);
  if (i->code == PTX_FMA || (i->code == PTX_DIV && real)) return i->round == PTX_NEAREST;
  return i->round == PTX_NO_ROUND || (real && i->round == PTX_NEAREST);
}

static bool multiplies(const ptx_inst *i) {
  if (i->code != PTX_MUL && i->code != PTX_MAD) return true;
  if (i->type.class == PTX_FLOAT) return i->mode == PTX_NO_MODE;
  return i->mode != PTX_NO_MODE && (i->mode != PTX_WIDE || i->type.bits < 64);
}

static bool compares_well(const ptx_inst *i, const pieces *p) {
  if (i->code != PTX_SETP) return true;
  if (p->unsigned_compare) return i->type.class == PTX_UNSIGNED;
  return i->type.class != PTX_BITS || i->compare <= PTX_NE;
}

/* What the order of modifiers does not say. */
static bool agrees(const form *f, const ptx_inst *i, const pieces *p) {
  if (strcmp(f->name, "cvta") == 0) return p->has_space && i->space == PTX_GLOBAL;
  if (i->code == PTX_ST && i->space != PTX_GLOBAL) return false;
  if (p->is_volatile && p->cached) return false;
  if ((i->code == PTX_LD || i->code == PTX_ST) && i->lanes * i->type.bits > 128) return false;
  return rounds(i) && multiplies(i) && compares_well(i, p);
}

static int shown(const ptx_token *t) {
  return (int)(t->length < 80 ? t->length : 80);
}

static bool opcode(ptx_reader *r, ptx_inst *i, const char **operands) {
  ptx_token t;
  pieces p;
  if (!ptx_take(r, PTX_WORD, "an instruction", &t)) return false;
  i->line = t.line;
  if (!split(&t, &p)) return ptx_fail(r, t.line, "'%.*s' is not in the simulator's subset", shown(&t), t.at);
  for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
    if (!piece_is(&p, 0, forms[k].name)) continue;
    i->code = forms[k].code;
    p.next = 1;
    *operands = forms[k].operands;
    if (take_modifiers(&p, &forms[k], i) && agrees(&forms[k], i, &p)) return true;
    return ptx_fail(r, t.line, "this form of '%s' is not in the simulator's subset: '%.*s'", forms[k].name, shown(&t),
                    t.at);
  }
  return ptx_fail(r, t.line, "the instruction '%.*s' is not in the simulator's subset", shown(&t), t.at);
}

static bool fits(ptx_type reg, ptx_type type, bool wider) {
  if ((reg.class == PTX_PREDICATE) != (type.class == PTX_PREDICATE)) return false;
  const bool real = reg.class == PTX_FLOAT || type.class == PTX_FLOAT;
  const bool kinds = !real || reg.class == type.class || reg.class == PTX_BITS || type.class == PTX_BITS;
  return kinds && (reg.bits == type.bits || (wider && !real && reg.bits > type.bits));
}

static const char *const class_names = "busfp";

static bool register_operand(ptx_reader *r, const ptx_token *name, ptx_type type, bool wider, ptx_operand *out) {
  uint32_t index;
  const ptx_symbol *s = ptx_lookup(r, name, &index);
  if (s == NULL || s->kind == PTX_PARAMETER)
    return ptx_fail(r, name->line, "'%.*s' is not a register", shown(name), name->at);
  if (!fits(s->type, type, wider))
    return ptx_fail(r, name->line, "'%.*s' is a register of type %c%u, where %c%u is expected", shown(name), name->at,
                    class_names[s->type.class], s->type.bits, class_names[type.class], type.bits);
  out->kind = PTX_REGISTER;
  out->index = s->first + index;
  return true;
}

static bool real_constant(const ptx_token *t, bool minus, ptx_type type, uint64_t *out) {
  double wide;
  float narrow;
  uint32_t low;
  const bool bits_fit = t->bits == type.bits && type.class <= PTX_FLOAT && !minus;
  *out = t->value;
  if (t->bits != 0) return bits_fit && (type.class == PTX_FLOAT || type.class == PTX_BITS);
  if (type.class != PTX_FLOAT) return false;
  memcpy(&wide, &t->value, sizeof wide);
  if (minus) wide = -wide;
  narrow = (float)wide;
  memcpy(&low, &narrow, sizeof low);
  memcpy(out, &wide, sizeof wide);
  if (type.bits == 32) *out = low;
  return true;
}

static bool constant(ptx_reader *r, ptx_type type, ptx_operand *out) {
  const bool minus = ptx_accept(r, "-");
  const ptx_token t = r->token;
  if (t.kind != PTX_INTEGER && t.kind != PTX_REAL) return ptx_unexpected(r, "an operand");
  ptx_advance(r);
  out->kind = PTX_CONSTANT;
  if (t.kind == PTX_REAL) {
    if (real_constant(&t, minus, type, &out->value)) return !r->failed;
  } else if (type.class != PTX_FLOAT) {
    out->value = ptx_truncate(minus ? 0 - t.value : t.value, type.bits);
    if (type.class == PTX_PREDICATE) out->value = t.value != 0;
    return !r->failed;
  }
  return ptx_fail(r, t.line, "the constant '%.*s' where a value of type %c%u is expected", shown(&t), t.at,
                  class_names[type.class], type.bits);
}

static bool source(ptx_reader *r, ptx_type type, bool wider, ptx_operand *out) {
  if (type.class == PTX_PREDICATE) out->negated = ptx_accept(r, "!");
  if (r->token.kind != PTX_WORD) return constant(r, type, out);
  const ptx_token name = r->token;
  ptx_advance(r);
  return register_operand(r, &name, type, wider, out);
}

static bool destination(ptx_reader *r, ptx_type type, bool wider, ptx_operand *out) {
  ptx_token name;
  return ptx_take(r, PTX_WORD, "a register", &name) && register_operand(r, &name, type, wider, out);
}

static bool predicates(ptx_reader *r, ptx_inst *i) {
  const ptx_type type = {PTX_PREDICATE, 1};
  if (!destination(r, type, false, &i->to[0])) return false;
  return !ptx_accept(r, "|") || destination(r, type, false, &i->to[1]);
}

static bool special(const ptx_token *t, uint32_t *index) {
  static const char *const names[] = {"%tid.", "%ntid.", "%ctaid.", "%nctaid."};
  for (uint32_t k = 0; k < 4; k++) {
    const size_t n = strlen(names[k]);
    if (t->length != n + 1 || memcmp(t->at, names[k], n) != 0) continue;
    if (t->at[n] < 'x' || t->at[n] > 'z') continue;
    *index = k * 3 + (uint32_t)(t->at[n] - 'x');
    return true;
  }
  return false;
}

/* A register, a constant, a special register, or where a parameter lies. */
static bool moved(ptx_reader *r, const ptx_inst *i, ptx_operand *out) {
  uint32_t index;
  const ptx_token t = r->token;
  if (t.kind != PTX_WORD) return source(r, i->type, false, out);
  if (special(&t, &index)) {
    if (i->type.bits != 32 || i->type.class == PTX_FLOAT)
      return ptx_fail(r, t.line, "'%.*s' has 32 bits", shown(&t), t.at);
    *out = (ptx_operand){.kind = PTX_SPECIAL, .index = index};
    ptx_advance(r);
    return true;
  }
  const ptx_symbol *s = ptx_lookup(r, &t, &index);
  if (s == NULL || s->kind != PTX_PARAMETER) return source(r, i->type, false, out);
  if (i->type.bits != 64 || i->type.class == PTX_FLOAT) return ptx_fail(r, t.line, "an address has 64 bits");
  *out = (ptx_operand){.kind = PTX_CONSTANT, .value = r->entry->params[s->first].offset};
  ptx_advance(r);
  return true;
}

static bool vector(ptx_reader *r, ptx_inst *i, bool store) {
  ptx_operand *list = store ? i->args : i->to;
  const bool braced = i->lanes > 1;
  if (braced && !ptx_expect(r, "{")) return false;
  for (unsigned k = 0; k < i->lanes; k++) {
    if (k > 0 && !ptx_expect(r, ",")) return false;
    const bool ok = store ? source(r, i->type, true, &list[k]) : destination(r, i->type, true, &list[k]);
    if (!ok) return false;
  }
  return !braced || ptx_expect(r, "}");
}

static bool inside(ptx_reader *r, const ptx_inst *i, const ptx_param *p, const ptx_token *name) {
  const uint64_t from = i->offset - p->offset, size = i->lanes * i->type.bits / 8;
  if (from <= p->nbytes && p->nbytes - from >= size && i->offset % size == 0) return true;
  return ptx_fail(r, name->line, "%llu bytes at %lld in the parameter '%.*s' of %zu bytes", (unsigned long long)size,
                  (long long)from, shown(name), name->at, p->nbytes);
}

static bool address(ptx_reader *r, ptx_inst *i) {
  const ptx_type type = {PTX_BITS, 64};
  ptx_token name, offset = {.value = 0};
  uint32_t index;
  if (!ptx_expect(r, "[") || !ptx_take(r, PTX_WORD, "a register or a parameter", &name)) return false;
  const ptx_symbol *s = ptx_lookup(r, &name, &index);
  const ptx_param *p = s != NULL && s->kind == PTX_PARAMETER ? &r->entry->params[s->first] : NULL;
  if (p != NULL && i->space != PTX_PARAM)
    return ptx_fail(r, name.line, "the parameter '%.*s' is not in global memory", shown(&name), name.at);
  if (p == NULL && !register_operand(r, &name, type, false, &i->base)) return false;
  if (ptx_accept(r, "+")) {
    const bool minus = ptx_accept(r, "-");
    if (!ptx_take(r, PTX_INTEGER, "a number of bytes", &offset)) return false;
    i->offset = minus ? 0 - offset.value : offset.value;
  }
  if (p != NULL) i->offset += p->offset;
  if (p != NULL && !inside(r, i, p, &name)) return false;
  return ptx_expect(r, "]");
}

/* One operand, by its letter in the table. */
static bool operand(ptx_reader *r, ptx_inst *i, char letter, ptx_operand *arg) {
  const ptx_type bit = {PTX_PREDICATE, 1}, count = {PTX_UNSIGNED, 32};
  ptx_type result = i->type;
  if (i->mode == PTX_WIDE) result.bits *= 2;
  if (letter == 'D') return destination(r, i->type, false, &i->to[0]);
  if (letter == 'E') return destination(r, i->type, true, &i->to[0]);
  if (letter == 'd') return destination(r, result, false, &i->to[0]);
  if (letter == 'P') return predicates(r, i);
  if (letter == 'V') return vector(r, i, false);
  if (letter == 'v') return vector(r, i, true);
  if (letter == 'A') return address(r, i);
  if (letter == 'm') return moved(r, i, arg);
  if (letter == 'a') return source(r, result, false, arg);
  if (letter == 'n') return source(r, count, false, arg);
  if (letter == 'p' || letter == 'B') return source(r, bit, false, arg);
  if (letter == 'f') return source(r, i->from, true, arg);
  return source(r, i->type, false, arg);
}

bool ptx_instruction(ptx_reader *r, ptx_inst *i) {
  const char *operands = "";
  size_t nargs = 0;
  if (!opcode(r, i, &operands)) return false;
  for (const char *letter = operands; *letter != '\0'; letter++) {
    if (*letter == 'B' && i->join == PTX_ALONE) continue;
    if (letter != operands && !ptx_expect(r, ",")) return false;
    const bool argument = strchr("DEdPVvA", *letter) == NULL;
    if (!operand(r, i, *letter, &i->args[argument ? nargs : 3])) return false;
    nargs += argument;
  }
  return true;
}
