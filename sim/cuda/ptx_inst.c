/* ptx_inst.c: the operands of the instructions of the subset.
 *
 * What the real assembler refuses is refused here: an operand has the size of the instruction's type, and a float is
 * no integer. It must not know what an instruction does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_lex.h"

static bool fits(ptx_type reg, ptx_type type, bool wider) {
  if ((reg.class == PTX_PREDICATE) != (type.class == PTX_PREDICATE)) return false;
  const bool real = ptx_is_real(reg) || ptx_is_real(type);
  const bool kinds = !real || reg.class == type.class || reg.class == PTX_BITS || type.class == PTX_BITS;
  return kinds && (reg.bits == type.bits || (wider && !real && reg.bits > type.bits));
}

static const char *const class_names = "busfpgh";

static bool register_operand(ptx_reader *r, const ptx_token *name, ptx_type type, bool wider, ptx_operand *out) {
  uint32_t index;
  const ptx_symbol *s = ptx_lookup(r, name, &index);
  if (s == NULL || s->kind == PTX_VARIABLE || s->kind == PTX_PROTOTYPE)
    return ptx_fail(r, name->line, "'%.*s' is not a register", ptx_shown(name), name->at);
  if (!fits(s->type, type, wider))
    return ptx_fail(r, name->line, "'%.*s' is a register of type %c%u, where %c%u is expected", ptx_shown(name),
                    name->at, class_names[s->type.class], s->type.bits, class_names[type.class], type.bits);
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
  if (type.class != PTX_FLOAT || type.bits < 32) return false;
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
  } else if (!ptx_is_real(type)) {
    out->value = ptx_truncate(minus ? 0 - t.value : t.value, type.bits);
    if (type.class == PTX_PREDICATE) out->value = t.value != 0;
    return !r->failed;
  }
  return ptx_fail(r, t.line, "the constant '%.*s' where a value of type %c%u is expected", ptx_shown(&t), t.at,
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

/* A register, or _ for a result that nobody wants. */
static bool destination_or_none(ptx_reader *r, ptx_type type, bool wider, ptx_operand *out) {
  return ptx_accept(r, "_") || destination(r, type, wider, out);
}

static bool with_predicate(ptx_reader *r, ptx_inst *i, ptx_type type) {
  const ptx_type bit = {PTX_PREDICATE, 1};
  if (!destination(r, type, false, &i->to[0])) return false;
  return !ptx_accept(r, "|") || destination(r, bit, false, &i->to[1]);
}

/* Returns how many bits it has, or 0 if the name is none. */
static unsigned special(const ptx_token *t, uint32_t *index) {
  static const char *const names[] = {"%tid.", "%ntid.", "%ctaid.", "%nctaid."};
  static const char *const others[] = {"%laneid",      "%warpid",      "%lanemask_eq", "%lanemask_lt",
                                       "%lanemask_le", "%lanemask_gt", "%lanemask_ge", "%smid",
                                       "%dynamic_smem_size", "%total_smem_size"};
  for (uint32_t k = 0; k < 4; k++) {
    const size_t n = strlen(names[k]);
    if (t->length != n + 1 || memcmp(t->at, names[k], n) != 0) continue;
    if (t->at[n] < 'x' || t->at[n] > 'z') continue;
    *index = k * 3 + (uint32_t)(t->at[n] - 'x');
    return 32;
  }
  for (uint32_t k = 0; k < sizeof others / sizeof *others; k++) {
    *index = PTX_LANE + k;
    if (ptx_same(t, others[k])) return 32;
  }
  return 0;
}

/* Variables in global memory lie with the constants. */
static bool address_of(ptx_reader *r, const ptx_symbol *s, const ptx_token *name, uint64_t *out) {
  r->entry->has_shared |= s->space == PTX_SHARED;
  *out = s->space == PTX_GLOBAL ? PTX_WINDOW(PTX_CONST) + s->offset : s->offset;
  if (!s->missing || !r->whole) return true;
  return ptx_fail(r, name->line, "no text defines the variable '%.*s'", ptx_shown(name), name->at);
}

/* What has a name without being declared in the entry: a special register, the size of a warp, a function's address.
 * Returns how many bits it must be moved as, 0 where any do, or -1 if it is none of these. */
static int known_name(ptx_reader *r, const ptx_token *t, ptx_operand *out) {
  *out = (ptx_operand){.kind = PTX_SPECIAL};
  if (special(t, &out->index) != 0) return 32;
  *out = (ptx_operand){.kind = PTX_CONSTANT, .value = PTX_WARP_SIZE};
  if (ptx_same(t, "WARP_SZ")) return 0;
  return ptx_function_named(r, t, &out->value) ? 64 : -1;
}

/* A register, a constant, a special register, or where a variable or function lies. */
static bool moved(ptx_reader *r, const ptx_inst *i, ptx_operand *out) {
  uint32_t index;
  ptx_operand found;
  const ptx_token t = r->token;
  if (t.kind != PTX_WORD) return source(r, i->type, false, out);
  const ptx_symbol *s = ptx_lookup(r, &t, &index);
  const int bits = s == NULL ? known_name(r, &t, &found) : -1;
  if (bits > 0 && ((unsigned)bits != i->type.bits || ptx_is_real(i->type)))
    return ptx_fail(r, t.line, "'%.*s' has %d bits", ptx_shown(&t), t.at, bits);
  if (bits >= 0) {
    *out = found;
    ptx_advance(r);
    return true;
  }
  if (s == NULL || s->kind != PTX_VARIABLE) return source(r, i->type, false, out);
  const bool near = s->space == PTX_SHARED && i->type.bits == 32;
  if ((i->type.bits != 64 && !near) || ptx_is_real(i->type)) return ptx_fail(r, t.line, "an address has 64 bits");
  *out = (ptx_operand){.kind = s->space == PTX_LOCAL ? PTX_OWN_PLACE : PTX_CONSTANT};
  ptx_advance(r);
  return address_of(r, s, &t, &out->value);
}

/* {a, b} or {a, b, c, d}: the parts of what mov takes apart or puts together. */
static bool parts(ptx_reader *r, ptx_inst *i, bool apart) {
  const char *at = r->at;
  unsigned n = 1;
  for (; *at != '}' && *at != ';' && *at != '\0'; at++) n += *at == ',';
  const ptx_type type = {PTX_BITS, i->type.bits / n};
  if (i->type.class == PTX_PREDICATE || (n != 2 && n != 4) || type.bits < 8)
    return ptx_fail(r, r->token.line, "%u parts of %u bits", n, i->type.bits);
  i->code = apart ? PTX_UNPACK : PTX_PACK;
  i->lanes = n;
  if (!ptx_expect(r, "{")) return false;
  for (unsigned k = 0; k < n; k++) {
    if (k > 0 && !ptx_expect(r, ",")) return false;
    if (!(apart ? destination_or_none(r, type, false, &i->to[k]) : source(r, type, false, &i->args[k]))) return false;
  }
  return ptx_expect(r, "}");
}

static bool vector(ptx_reader *r, ptx_inst *i, bool store) {
  ptx_operand *list = store ? i->args : i->to;
  const bool braced = i->lanes > 1;
  if (braced && !ptx_expect(r, "{")) return false;
  for (unsigned k = 0; k < i->lanes; k++) {
    if (k > 0 && !ptx_expect(r, ",")) return false;
    const bool ok = store    ? source(r, i->type, true, &list[k])
                    : braced ? destination_or_none(r, i->type, true, &list[k])
                             : destination(r, i->type, true, &list[k]);
    if (!ok) return false;
  }
  return !braced || ptx_expect(r, "}");
}

static bool inside(ptx_reader *r, const ptx_inst *i, const ptx_symbol *s, const ptx_token *name) {
  const uint64_t from = i->offset - s->offset, size = i->lanes * i->type.bits / 8;
  if (from <= s->nbytes && s->nbytes - from >= size && i->offset % size == 0) return true;
  return ptx_fail(r, name->line, "%llu bytes at %lld in the parameter '%.*s' of %llu bytes", (unsigned long long)size,
                  (long long)from, ptx_shown(name), name->at, (unsigned long long)s->nbytes);
}

static const char *space_name(ptx_space space) {
  static const char *const names[] = {"generic", "global", "parameter", "shared", "local", "constant"};
  return names[space];
}

/* Whether a variable may be named here: in its own space; a kernel's parameters are not stored to. */
static bool is_placed(ptx_reader *r, const ptx_inst *i, const ptx_symbol *s, const ptx_token *name) {
  const char *kind = s->space == PTX_PARAM ? "parameter" : "variable";
  if (s->space != i->space)
    return ptx_fail(r, name->line, "the %s '%.*s' is not in %s memory", kind, ptx_shown(name), name->at,
                    space_name(i->space));
  if (s->space == PTX_PARAM && s->formal && i->code == PTX_ST && !r->entry->is_function)
    return ptx_fail(r, name->line, "the parameter '%.*s' of an entry is not stored to", ptx_shown(name), name->at);
  return true;
}

/* +4, +-4 or nothing. */
static bool offset(ptx_reader *r, ptx_inst *i) {
  ptx_token n;
  if (!ptx_accept(r, "+")) return true;
  const bool minus = ptx_accept(r, "-");
  if (!ptx_take(r, PTX_INTEGER, "a number of bytes", &n)) return false;
  i->offset = minus ? 0 - n.value : n.value;
  return true;
}

static bool address_in_variable(ptx_reader *r, ptx_inst *i, const ptx_symbol *s, const ptx_token *name) {
  uint64_t at;
  if (!is_placed(r, i, s, name) || !offset(r, i) || !address_of(r, s, name, &at)) return false;
  if (s->space == PTX_LOCAL) i->base.kind = PTX_OWN_PLACE;
  i->offset += at;
  return (s->space != PTX_PARAM || inside(r, i, s, name)) && ptx_expect(r, "]");
}

/* Addresses in shared memory may have 32 bits. */
static bool address(ptx_reader *r, ptx_inst *i) {
  ptx_type type = {PTX_BITS, 64};
  ptx_token name;
  uint32_t index;
  if (!ptx_expect(r, "[") || !ptx_take(r, PTX_WORD, "a register or a variable", &name)) return false;
  const ptx_symbol *s = ptx_lookup(r, &name, &index);
  if (s != NULL && s->kind == PTX_VARIABLE) return address_in_variable(r, i, s, &name);
  if (s != NULL && i->space == PTX_SHARED && s->type.bits == 32) type.bits = 32;
  return register_operand(r, &name, type, false, &i->base) && offset(r, i) && ptx_expect(r, "]");
}

bool ptx_pointer_operand(ptx_reader *r, const ptx_token *name, ptx_operand *out) {
  return register_operand(r, name, (ptx_type){PTX_BITS, 64}, false, out);
}

/* One operand that is written, by its letter in the table. */
static bool result(ptx_reader *r, ptx_inst *i, char letter) {
  const ptx_type bit = {PTX_PREDICATE, 1}, count = {PTX_UNSIGNED, 32};
  ptx_type wide = i->type;
  if (i->mode == PTX_WIDE) wide.bits *= 2;
  if (letter == 'D' && i->code == PTX_MOV && ptx_is(r, "{")) return parts(r, i, true);
  if (letter == 'O') return destination_or_none(r, i->type, false, &i->to[0]);
  if (letter == 'E') return destination(r, i->type, true, &i->to[0]);
  if (letter == 'R') return destination(r, count, false, &i->to[0]);
  if (letter == 'P') return with_predicate(r, i, bit);
  if (letter == 'Q') return with_predicate(r, i, i->type);
  if (letter == 'V') return vector(r, i, false);
  return destination(r, letter == 'd' ? wide : i->type, false, &i->to[0]);
}

static bool argument(ptx_reader *r, ptx_inst *i, char letter, ptx_operand *arg) {
  const ptx_type bit = {PTX_PREDICATE, 1}, count = {PTX_UNSIGNED, 32};
  ptx_type wide = i->type;
  if (i->mode == PTX_WIDE) wide.bits *= 2;
  if (letter == 'm' && i->code == PTX_MOV && ptx_is(r, "{")) return parts(r, i, false);
  if (letter == 'm' && i->code == PTX_MOV) return moved(r, i, arg);
  if (letter == 'a') return source(r, wide, false, arg);
  if (letter == 'n') return source(r, count, false, arg);
  if (letter == 'p' || letter == 'B') return source(r, bit, false, arg);
  if (letter == 'f') return source(r, i->from, true, arg);
  return source(r, i->type, false, arg);
}

bool ptx_instruction(ptx_reader *r, ptx_inst *i) {
  const char *operands = "";
  size_t nargs = 0;
  if (!ptx_opcode(r, i, &operands)) return false;
  for (const char *letter = operands; *letter != '\0'; letter++) {
    if (*letter == 'B' && i->join == PTX_ALONE) continue;
    if (*letter == 'x' && i->act != PTX_ATOM_CAS) continue;
    if (letter != operands && !ptx_expect(r, ",")) return false;
    bool ok = true;
    if (*letter == '*') ok = ptx_call_operands(r, i);
    else if (*letter == 'A') ok = address(r, i);
    else if (*letter == 'v') ok = vector(r, i, true);
    else if (strchr("DEOdPQRV", *letter) != NULL) ok = result(r, i, *letter);
    else ok = argument(r, i, *letter, &i->args[nargs++]);
    if (!ok) return false;
  }
  return true;
}
