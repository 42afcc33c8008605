/* ptx_forms.c: the opcodes of the subset and their modifiers.
 *
 * One table says what each opcode may look like; the rest follows it. What the real assembler refuses is refused
 * here. It must not know operands, nor what an instruction does. */
#include <stdio.h>
#include <string.h>

#include "ptx_lex.h"

#define SHORT "u16 s16 "
#define LONG "u32 u64 s32 s64 "
#define INTEGERS SHORT LONG
#define FLOATS "f32 f64 "
#define HALVES "f16 bf16 f16x2 "
#define BITS "b16 b32 b64 "
#define ALL BITS INTEGERS FLOATS

/* Modifiers, in their order; capitals must be there. k .volatile, q how memory is ordered, g for whom, s a space,
 * c caching of a load, n .nc, w caching of a store, v a vector, m lo, hi or wide, r rounding, p .approx or .full,
 * z .ftz, t .sat, y .cc, C a comparison, b how it joins with a predicate, u .uni, o .to, h and e which shf it is,
 * A what an atomic does, S what shfl does, B what vote asks, T the type, F the type that is converted.
 * Operands: D to, E to and may be wider, O to or _, R to 32 bits, P to a predicate and perhaps its inverse, Q to and
 * perhaps a predicate; s of the type, f of the type that is converted and may be wider, d and a of the result's
 * (wide) type, n a number of 32 bits, p a predicate, B the predicate that a comparison joins with, m what mov moves,
 * x what cas stores; V and v vectors, A an address, * those of a call. */
typedef struct form {
  const char *name;
  ptx_code code;
  const char *modifiers, *operands, *types;
} form;

/* A name that begins with another one's pieces comes before it. */
static const form forms[] = {
    {"add", PTX_ADD, "rztyT", "Dss", INTEGERS FLOATS HALVES},
    {"addc", PTX_ADD, "yT", "Dss", LONG},
    {"sub", PTX_SUB, "rztyT", "Dss", INTEGERS FLOATS HALVES},
    {"subc", PTX_SUB, "yT", "Dss", LONG},
    {"mul", PTX_MUL, "mrztT", "dss", INTEGERS FLOATS HALVES},
    {"mad", PTX_MAD, "myT", "dssa", INTEGERS},
    {"mad", PTX_FMA, "rztT", "Dsss", FLOATS},
    {"madc", PTX_MAD, "myT", "dssa", LONG},
    {"fma", PTX_FMA, "rztT", "Dsss", FLOATS HALVES},
    {"div", PTX_DIV, "rpzT", "Dss", INTEGERS FLOATS},
    {"rem", PTX_REM, "T", "Dss", INTEGERS},
    {"min", PTX_MIN, "zT", "Dss", INTEGERS FLOATS HALVES},
    {"max", PTX_MAX, "zT", "Dss", INTEGERS FLOATS HALVES},
    {"abs", PTX_ABS, "zT", "Ds", "s16 s32 s64 " FLOATS HALVES},
    {"neg", PTX_NEG, "zT", "Ds", "s16 s32 s64 " FLOATS HALVES},
    {"sqrt", PTX_SQRT, "rpzT", "Ds", FLOATS},
    {"rcp", PTX_RCP, "rpzT", "Ds", FLOATS},
    {"rsqrt", PTX_RSQRT, "pzT", "Ds", FLOATS},
    {"sin", PTX_SIN, "pzT", "Ds", "f32 "},
    {"cos", PTX_COS, "pzT", "Ds", "f32 "},
    {"ex2", PTX_EX2, "pzT", "Ds", "f32 f16 "},
    {"lg2", PTX_LG2, "pzT", "Ds", "f32 "},
    {"tanh", PTX_TANH, "pzT", "Ds", "f32 f16 "},
    {"copysign", PTX_COPYSIGN, "T", "Dss", FLOATS},
    {"and", PTX_AND, "T", "Dss", BITS "pred "},
    {"or", PTX_OR, "T", "Dss", BITS "pred "},
    {"xor", PTX_XOR, "T", "Dss", BITS "pred "},
    {"not", PTX_NOT, "T", "Ds", BITS "pred "},
    {"shl", PTX_SHL, "T", "Dsn", BITS},
    {"shr", PTX_SHR, "T", "Dsn", BITS INTEGERS},
    {"shf", PTX_SHF, "heT", "Dssn", "b32 "},
    {"popc", PTX_POPC, "T", "Rs", "b32 b64 "},
    {"clz", PTX_CLZ, "T", "Rs", "b32 b64 "},
    {"brev", PTX_BREV, "T", "Ds", "b32 b64 "},
    {"bfe", PTX_BFE, "T", "Dsnn", LONG},
    {"bfi", PTX_BFI, "T", "Dssnn", "b32 b64 "},
    {"prmt", PTX_PRMT, "T", "Dsss", "b32 "},
    {"lop3", PTX_LOP3, "T", "Dsssn", "b32 "},
    {"selp", PTX_SELP, "T", "Dssp", ALL},
    {"mov", PTX_MOV, "T", "Dm", ALL "pred "},
    {"cvt", PTX_CVT, "rztTF", "Ef", "u8 s8 f16 bf16 " INTEGERS FLOATS},
    {"cvta", PTX_CVTA, "osT", "Ds", "u64 "},
    {"setp", PTX_SETP, "CbzT", "PssB", ALL "f16 bf16 "},
    {"ld", PTX_LD, "kqgscnvT", "VA", "b8 u8 s8 " ALL},
    {"st", PTX_ST, "kqgswvT", "Av", "b8 u8 s8 " ALL},
    {"atom", PTX_ATOM, "qgsAT", "OAsx", "b16 b32 b64 u32 u64 s32 s64 " FLOATS},
    {"atom", PTX_ATOM, "AqgsT", "OAsx", "b16 b32 b64 u32 u64 s32 s64 " FLOATS}, /* as libcu++ has it */
    {"red", PTX_ATOM, "AqgsT", "As", "b32 b64 u32 u64 s32 s64 " FLOATS},
    {"red", PTX_ATOM, "qgsAT", "As", "b32 b64 u32 u64 s32 s64 " FLOATS},
    {"membar", PTX_FENCE, "g", "", ""},
    {"fence", PTX_FENCE, "qg", "", ""},
    {"bar.warp.sync", PTX_WARP, "", "n", ""},
    {"bar.cta.sync", PTX_BAR, "", "n", ""},
    {"bar.sync", PTX_BAR, "", "n", ""},
    {"barrier.cta.sync.aligned", PTX_BAR, "", "n", ""},
    {"barrier.cta.sync", PTX_BAR, "", "n", ""},
    {"barrier.sync.aligned", PTX_BAR, "", "n", ""},
    {"barrier.sync", PTX_BAR, "", "n", ""},
    {"shfl.sync", PTX_SHFL, "ST", "Qsnnn", "b32 "},
    {"vote.sync", PTX_VOTE, "BT", "Dpn", "pred b32 "},
    {"call", PTX_CALL, "u", "*", ""},
    {"bra", PTX_BRA, "u", "", ""},
    {"ret", PTX_RET, "u", "", ""},
    {"exit", PTX_EXIT, "", "", ""},
    {"trap", PTX_TRAP, "", "", ""},
};

typedef struct word {
  char modifier;
  const char *name;
  int value;
} word;

static const word words[] = {
    {'k', "volatile", 0},
    {'q', "weak", 0},
    {'q', "relaxed", 0},
    {'q', "acquire", 0},
    {'q', "release", 0},
    {'q', "acq_rel", 0},
    {'q', "sc", 0},
    {'g', "cta", 0},
    {'g', "gl", 1},
    {'g', "gpu", 1},
    {'g', "sys", 1},
    {'s', "global", PTX_GLOBAL},
    {'s', "param", PTX_PARAM},
    {'s', "shared", PTX_SHARED},
    {'s', "local", PTX_LOCAL},
    {'s', "const", PTX_CONST},
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
    {'r', "rz", PTX_CHOPPED},
    {'r', "rm", PTX_LOWER},
    {'r', "rp", PTX_HIGHER},
    {'r', "rni", PTX_TO_EVEN},
    {'r', "rzi", PTX_TO_ZERO},
    {'r', "rmi", PTX_DOWN},
    {'r', "rpi", PTX_UP},
    {'p', "approx", 0},
    {'p', "full", 0},
    {'z', "ftz", 0},
    {'t', "sat", 0},
    {'y', "cc", 0},
    {'b', "and", PTX_WITH_AND},
    {'b', "or", PTX_WITH_OR},
    {'b', "xor", PTX_WITH_XOR},
    {'u', "uni", 0},
    {'o', "to", 0},
    {'h', "l", 1},
    {'h', "r", 0},
    {'e', "wrap", 1},
    {'e', "clamp", 0},
    {'A', "add", PTX_ATOM_ADD},
    {'A', "min", PTX_ATOM_MIN},
    {'A', "max", PTX_ATOM_MAX},
    {'A', "and", PTX_ATOM_AND},
    {'A', "or", PTX_ATOM_OR},
    {'A', "xor", PTX_ATOM_XOR},
    {'A', "exch", PTX_ATOM_EXCH},
    {'A', "cas", PTX_ATOM_CAS},
    {'A', "inc", PTX_ATOM_INC},
    {'A', "dec", PTX_ATOM_DEC},
    {'S', "up", PTX_SHFL_UP},
    {'S', "down", PTX_SHFL_DOWN},
    {'S', "bfly", PTX_SHFL_BFLY},
    {'S', "idx", PTX_SHFL_IDX},
    {'B', "all", PTX_VOTE_ALL},
    {'B', "any", PTX_VOTE_ANY},
    {'B', "uni", PTX_VOTE_UNI},
    {'B', "ballot", PTX_VOTE_BALLOT},
};

typedef enum compares_what { ANY_NUMBERS, UNSIGNED_ONLY, REALS_ONLY } compares_what;

static const struct {
  const char *name;
  ptx_compare compare;
  compares_what what;
} compares[] = {{"eq", PTX_EQ, ANY_NUMBERS},   {"ne", PTX_NE, ANY_NUMBERS},   {"lt", PTX_LT, ANY_NUMBERS},
                {"le", PTX_LE, ANY_NUMBERS},   {"gt", PTX_GT, ANY_NUMBERS},   {"ge", PTX_GE, ANY_NUMBERS},
                {"lo", PTX_LT, UNSIGNED_ONLY}, {"ls", PTX_LE, UNSIGNED_ONLY}, {"hi", PTX_GT, UNSIGNED_ONLY},
                {"hs", PTX_GE, UNSIGNED_ONLY}, {"equ", PTX_EQ, REALS_ONLY},   {"neu", PTX_NE, REALS_ONLY},
                {"ltu", PTX_LT, REALS_ONLY},   {"leu", PTX_LE, REALS_ONLY},   {"gtu", PTX_GT, REALS_ONLY},
                {"geu", PTX_GE, REALS_ONLY},   {"num", PTX_NUM, REALS_ONLY},  {"nan", PTX_NAN, REALS_ONLY}};

/* The opcode word, piece by piece. */
typedef struct pieces {
  const char *at[12];
  size_t length[12];
  size_t n, next;
  compares_what compares;
  bool has_space, is_volatile, cached, approximate, carries, is_wide;
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

static void set_word(pieces *p, ptx_inst *i, char modifier, int value) {
  switch (modifier) {
    case 's':
      i->space = (ptx_space)value;
      p->has_space = true;
      break;
    case 'v':
      i->lanes = (unsigned)value;
      break;
    case 'm':
      i->mode = (ptx_mode)value;
      break;
    case 'r':
      i->round = (ptx_round)value;
      break;
    case 'b':
      i->join = (ptx_join)value;
      break;
    case 'A':
    case 'S':
    case 'B':
      i->act = (ptx_act)value;
      break;
    default:
      break;
  }
}

/* Words that say one thing or, left out, its opposite. */
static void set_flag(pieces *p, ptx_inst *i, char modifier, int value) {
  const struct {
    char modifier;
    bool *flag;
    bool value;
  } flags[] = {{'k', &p->is_volatile, true},   {'c', &p->cached, true},    {'n', &p->cached, true},
               {'w', &p->cached, true},        {'p', &p->approximate, true}, {'y', &p->carries, true},
               {'g', &p->is_wide, value != 0}, {'z', &i->flushes, true},   {'t', &i->saturates, true},
               {'o', &i->to_space, true},      {'h', &i->left, value != 0}, {'e', &i->wraps, value != 0}};
  for (size_t k = 0; k < sizeof flags / sizeof *flags; k++)
    if (flags[k].modifier == modifier) *flags[k].flag = flags[k].value;
}

static bool take_word(pieces *p, ptx_inst *i, char modifier) {
  for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
    if (words[k].modifier != modifier || !piece_is(p, p->next, words[k].name)) continue;
    set_word(p, i, modifier, words[k].value);
    set_flag(p, i, modifier, words[k].value);
    p->next++;
    return true;
  }
  return false;
}

static bool take_compare(pieces *p, ptx_inst *i) {
  for (size_t k = 0; k < sizeof compares / sizeof *compares; k++) {
    if (!piece_is(p, p->next, compares[k].name)) continue;
    i->compare = compares[k].compare;
    p->compares = compares[k].what;
    i->unordered = p->compares == REALS_ONLY && i->compare != PTX_NUM;
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
  const char *at = strstr(f->types, wanted);
  return at != NULL && (at == f->types || at[-1] == ' ');
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
      ok = take_word(p, i, *m) || (*m >= 'a' && *m <= 'z' && *m != 'h' && *m != 'e');
    if (!ok) return false;
  }
  return p->next == p->n;
}

/* Rounding is said where a value may change by it: to integer where a float becomes one, to the type where not. Between
 * f16 and bf16 it may be left out. */
static bool converts(const ptx_inst *i) {
  const bool from = ptx_is_real(i->from), to = ptx_is_real(i->type);
  const bool whole = i->round >= PTX_TO_EVEN, none = i->round == PTX_NO_ROUND;
  if (!from || !to) return from ? whole : to ? !whole && !none : none;
  if (i->from.bits == i->type.bits && i->from.class != i->type.class) return !whole;
  if (i->from.bits == i->type.bits) return none || whole;
  return i->from.bits > i->type.bits ? !whole && !none : none;
}

static bool is_conversion(const ptx_inst *i) {
  return (!i->saturates || ptx_is_real(i->type)) && converts(i);
}

static bool must_round(const ptx_inst *i) {
  return i->code == PTX_FMA || i->code == PTX_SQRT || i->code == PTX_RCP || i->code == PTX_DIV;
}

static bool is_approximated(const ptx_inst *i) {
  return i->code >= PTX_RSQRT && i->code <= PTX_TANH && i->code != PTX_RCP;
}

static bool rounds(const ptx_inst *i, const pieces *p) {
  const bool real = ptx_is_real(i->type), none = i->round == PTX_NO_ROUND;
  const bool half = i->type.bits == 16 || i->type.class == PTX_PAIR;
  if (i->code == PTX_CVT) return is_conversion(i);
  if (!real) return none && !p->approximate;
  if (i->round >= PTX_TO_EVEN || (half && i->round > PTX_NEAREST)) return false;
  const bool wide = i->type.bits == 64 && i->code != PTX_RCP && i->code != PTX_RSQRT;
  if (p->approximate || is_approximated(i)) return p->approximate && none && !wide;
  return !none || !must_round(i);
}

static bool multiplies(const ptx_inst *i) {
  if (i->code != PTX_MUL && i->code != PTX_MAD) return true;
  if (ptx_is_real(i->type)) return i->mode == PTX_NO_MODE;
  return i->mode != PTX_NO_MODE && (i->mode != PTX_WIDE || i->type.bits < 64);
}

static bool compares_well(const ptx_inst *i, const pieces *p) {
  if (i->code != PTX_SETP) return true;
  if (p->compares == UNSIGNED_ONLY) return i->type.class == PTX_UNSIGNED;
  if (p->compares == REALS_ONLY) return ptx_is_real(i->type);
  return i->type.class != PTX_BITS || i->compare <= PTX_NE;
}

/* Which atomics there are for a type: bits are compared and exchanged, numbers added. */
static bool acts_on(ptx_act act, ptx_type t) {
  const ptx_class c = t.class;
  const bool integer = c == PTX_UNSIGNED || c == PTX_SIGNED;
  if (act == PTX_ATOM_CAS) return c == PTX_BITS;
  if (act >= PTX_ATOM_AND && act <= PTX_ATOM_EXCH) return c == PTX_BITS && t.bits > 16;
  if (act >= PTX_ATOM_INC) return c == PTX_UNSIGNED && t.bits == 32;
  if (act == PTX_ATOM_ADD) return c == PTX_FLOAT || (integer && (c == PTX_UNSIGNED || t.bits == 32));
  return integer;
}

static bool is_atomic(const form *f, const ptx_inst *i) {
  const bool result_alone = i->act == PTX_ATOM_EXCH || i->act == PTX_ATOM_CAS;
  if (i->code != PTX_ATOM) return true;
  if (i->space != PTX_GENERIC && i->space != PTX_GLOBAL && i->space != PTX_SHARED) return false;
  return acts_on(i->act, i->type) && (!result_alone || strcmp(f->name, "atom") == 0);
}

static bool is_access(const ptx_inst *i, const pieces *p) {
  if (i->code != PTX_LD && i->code != PTX_ST) return true;
  if (p->is_volatile && p->cached) return false;
  if (i->code == PTX_ST && i->space == PTX_CONST) return false;
  return i->lanes * i->type.bits <= 128;
}

static bool modifies(const form *f, const ptx_inst *i, const pieces *p) {
  const bool integer = !ptx_is_real(i->type), real = !integer || ptx_is_real(i->from), wide = i->type.bits == 64;
  const bool reciprocal = i->code == PTX_RCP || i->code == PTX_RSQRT;
  if (i->flushes && (!real || (wide && !reciprocal) || i->type.class == PTX_BRAIN)) return false;
  if (i->code == PTX_VOTE) return (i->act == PTX_VOTE_BALLOT) == (i->type.class == PTX_BITS);
  return i->code != PTX_CVTA || (p->has_space && i->space != PTX_PARAM && f->code == PTX_CVTA);
}

static bool can_saturate(const ptx_inst *i) {
  return !i->saturates || i->code == PTX_CVT || (ptx_is_real(i->type) && i->type.bits < 64);
}

static bool can_carry(const ptx_inst *i, const pieces *p) {
  return !p->carries || (!ptx_is_real(i->type) && i->type.bits >= 32 && i->mode != PTX_WIDE);
}

/* What the order of modifiers does not say. */
static bool agrees(const form *f, const ptx_inst *i, const pieces *p) {
  if (!rounds(i, p) || !multiplies(i) || !compares_well(i, p) || !is_atomic(f, i) || !is_access(i, p)) return false;
  return modifies(f, i, p) && can_carry(i, p) && can_saturate(i);
}

static bool matches(const form *f, pieces *p, ptx_inst *i) {
  char name[32];
  size_t n = 0;
  for (const char *at = f->name; at != NULL; at = strchr(at, '.') == NULL ? NULL : strchr(at, '.') + 1) {
    snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "."), at);
    if (!piece_is(p, n++, name)) return false;
  }
  p->next = n;
  i->code = f->code;
  return true;
}

/* addc and the like take the carry, .cc leaves it. */
static void carry(ptx_reader *r, const form *f, const pieces *p, ptx_inst *i) {
  const size_t n = strlen(f->name);
  const bool takes = i->code <= PTX_MAD && n == 4 && f->name[3] == 'c';
  if (takes) i->args[PTX_CARRY] = (ptx_operand){.kind = PTX_REGISTER, .index = ptx_carry(r)};
  if (p->carries) i->to[PTX_CARRY] = (ptx_operand){.kind = PTX_REGISTER, .index = ptx_carry(r)};
}

bool ptx_opcode(ptx_reader *r, ptx_inst *i, const char **operands) {
  ptx_token t;
  pieces p;
  const ptx_inst before = *i;
  const form *known = NULL;
  if (!ptx_take(r, PTX_WORD, "an instruction", &t)) return false;
  if (!split(&t, &p)) return ptx_fail(r, t.line, "'%.*s' is not in the simulator's subset", ptx_shown(&t), t.at);
  for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
    const form *f = &forms[k];
    *i = before;
    i->line = t.line;
    split(&t, &p);
    if (!matches(f, &p, i)) continue;
    known = f;
    if (!take_modifiers(&p, f, i) || !agrees(f, i, &p)) continue;
    carry(r, f, &p, i);
    r->program->fences |= i->code == PTX_FENCE && p.is_wide;
    *operands = f->operands;
    return true;
  }
  if (known == NULL)
    return ptx_fail(r, t.line, "the instruction '%.*s' is not in the simulator's subset", ptx_shown(&t), t.at);
  return ptx_fail(r, t.line, "this form of '%s' is not in the simulator's subset: '%.*s'", known->name, ptx_shown(&t),
                  t.at);
}
