/* ptx_alu.c: what the arithmetic instructions compute of integers and bits.
 *
 * Values are zero-extended from the width of their type, and results are cut to it. Division by zero gives all ones,
 * as devices do; so does nothing else trap. It must not know about registers or memory. */
#include "ptx.h"

typedef uint64_t (*operation)(const ptx_inst *i, const uint64_t *args);

uint64_t ptx_truncate(uint64_t v, unsigned bits) {
  return bits >= 64 ? v : v & ((1ull << bits) - 1);
}

int64_t ptx_extend(uint64_t v, ptx_type t) {
  if (t.class != PTX_SIGNED || t.bits == 64) return (int64_t)v;
  const uint64_t sign = 1ull << (t.bits - 1);
  return (int64_t)((v ^ sign) - sign);
}

static bool is_signed(const ptx_inst *i) {
  return i->type.class == PTX_SIGNED;
}

static uint64_t add(const ptx_inst *i, const uint64_t *a) {
  (void)i;
  return a[0] + a[1];
}

static uint64_t subtract(const ptx_inst *i, const uint64_t *a) {
  (void)i;
  return a[0] - a[1];
}

/* The upper half of a product of two 64-bit numbers, unsigned. */
static uint64_t upper(uint64_t a, uint64_t b) {
  const uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
  const uint64_t middle = ah * bl + (al * bl >> 32), other = al * bh + (uint32_t)middle;
  return ah * bh + (middle >> 32) + (other >> 32);
}

static uint64_t multiply(const ptx_inst *i, const uint64_t *a) {
  const uint64_t x = (uint64_t)ptx_extend(a[0], i->type), y = (uint64_t)ptx_extend(a[1], i->type);
  if (i->mode != PTX_HIGH) return x * y;
  if (i->type.bits < 64) return is_signed(i) ? (uint64_t)((int64_t)(x * y) >> i->type.bits) : x * y >> i->type.bits;
  uint64_t high = upper(x, y);
  if (is_signed(i) && x >> 63 != 0) high -= y;
  if (is_signed(i) && y >> 63 != 0) high -= x;
  return high;
}

static uint64_t multiply_add(const ptx_inst *i, const uint64_t *a) {
  return multiply(i, a) + a[2];
}

bool ptx_divides_by_zero(const ptx_inst *i, const uint64_t *a) {
  return (i->code == PTX_DIV || i->code == PTX_REM) && i->type.class != PTX_FLOAT && a[1] == 0;
}

static uint64_t divide(const ptx_inst *i, const uint64_t *a) {
  if (a[1] == 0) return UINT64_MAX;
  if (!is_signed(i)) return a[0] / a[1];
  const int64_t x = ptx_extend(a[0], i->type), y = ptx_extend(a[1], i->type);
  return y == -1 ? 0 - (uint64_t)x : (uint64_t)(x / y);
}

static uint64_t remainder_of(const ptx_inst *i, const uint64_t *a) {
  if (a[1] == 0) return UINT64_MAX;
  if (!is_signed(i)) return a[0] % a[1];
  const int64_t x = ptx_extend(a[0], i->type), y = ptx_extend(a[1], i->type);
  return y == -1 ? 0 : (uint64_t)(x % y);
}

static bool less(const ptx_inst *i, uint64_t a, uint64_t b) {
  return is_signed(i) ? ptx_extend(a, i->type) < ptx_extend(b, i->type) : a < b;
}

static uint64_t smaller(const ptx_inst *i, const uint64_t *a) {
  return less(i, a[1], a[0]) ? a[1] : a[0];
}

static uint64_t larger(const ptx_inst *i, const uint64_t *a) {
  return less(i, a[0], a[1]) ? a[1] : a[0];
}

static uint64_t negate(const ptx_inst *i, const uint64_t *a) {
  (void)i;
  return 0 - a[0];
}

static uint64_t magnitude(const ptx_inst *i, const uint64_t *a) {
  return ptx_extend(a[0], i->type) < 0 ? 0 - a[0] : a[0];
}

static uint64_t both(const ptx_inst *i, const uint64_t *a) {
  (void)i;
  return a[0] & a[1];
}

static uint64_t either(const ptx_inst *i, const uint64_t *a) {
  (void)i;
  return a[0] | a[1];
}

static uint64_t differs(const ptx_inst *i, const uint64_t *a) {
  (void)i;
  return a[0] ^ a[1];
}

static uint64_t invert(const ptx_inst *i, const uint64_t *a) {
  (void)i;
  return ~a[0];
}

static uint64_t shift_left(const ptx_inst *i, const uint64_t *a) {
  return a[1] >= i->type.bits ? 0 : a[0] << a[1];
}

/* More than the width shifts everything out; a signed value leaves its sign. */
static uint64_t shift_right(const ptx_inst *i, const uint64_t *a) {
  if (is_signed(i)) return (uint64_t)(ptx_extend(a[0], i->type) >> (a[1] >= i->type.bits ? i->type.bits - 1 : a[1]));
  return a[1] >= i->type.bits ? 0 : a[0] >> a[1];
}

static uint64_t choose(const ptx_inst *i, const uint64_t *a) {
  (void)i;
  return a[2] != 0 ? a[0] : a[1];
}

static uint64_t same(const ptx_inst *i, const uint64_t *a) {
  (void)i;
  return a[0];
}

static uint64_t ones(uint64_t v) {
  return (uint64_t)__builtin_popcountll(v);
}

static uint64_t leading_zeros(const ptx_inst *i, uint64_t v) {
  return v == 0 ? i->type.bits : (uint64_t)__builtin_clzll(v) - (64 - i->type.bits);
}

static uint64_t count(const ptx_inst *i, const uint64_t *a) {
  return i->code == PTX_POPC ? ones(a[0]) : leading_zeros(i, a[0]);
}

static uint64_t reverse(const ptx_inst *i, const uint64_t *a) {
  uint64_t out = 0;
  for (unsigned k = 0; k < i->type.bits; k++) out |= (a[0] >> k & 1) << (i->type.bits - 1 - k);
  return out;
}

/* Bits behind the end are copies of the field's sign, or of the value's. */
static uint64_t extract(const ptx_inst *i, const uint64_t *a) {
  const unsigned bits = i->type.bits, from = (unsigned)(a[1] & 0xff), n = (unsigned)(a[2] & 0xff);
  if (n == 0) return 0;
  const unsigned last = from + n - 1 < bits - 1 ? from + n - 1 : bits - 1;
  const bool sign = is_signed(i) && (a[0] >> last & 1) != 0;
  const unsigned kept = from >= bits ? 0 : n < bits - from ? n : bits - from;
  const uint64_t field = kept == 0 ? 0 : ptx_truncate(a[0] >> from, kept);
  return sign && kept < 64 ? field | ~(uint64_t)0 << kept : field;
}

static uint64_t insert(const ptx_inst *i, const uint64_t *a) {
  const unsigned bits = i->type.bits, from = (unsigned)(a[2] & 0xff), n = (unsigned)(a[3] & 0xff);
  if (from >= bits) return a[1];
  const uint64_t mask = ptx_truncate(UINT64_MAX, n) << from;
  return (a[1] & ~mask) | (a[0] << from & mask);
}

/* Four of the eight bytes of two words, or the sign of one in all its bits. */
static uint64_t permute(const ptx_inst *i, const uint64_t *a) {
  const uint64_t bytes = a[0] | a[1] << 32;
  uint64_t out = 0;
  (void)i;
  for (unsigned k = 0; k < 4; k++) {
    const uint64_t which = a[2] >> 4 * k & 15, byte = bytes >> 8 * (which & 7) & 0xff;
    out |= (which < 8 ? byte : byte >> 7 != 0 ? 0xff : 0) << 8 * k;
  }
  return out;
}

static uint64_t table_of_three(const ptx_inst *i, const uint64_t *a) {
  uint64_t out = 0;
  for (unsigned k = 0; k < i->type.bits; k++) {
    const uint64_t row = (a[0] >> k & 1) << 2 | (a[1] >> k & 1) << 1 | (a[2] >> k & 1);
    out |= (a[3] >> row & 1) << k;
  }
  return out;
}

static uint64_t funnel(const ptx_inst *i, const uint64_t *a) {
  const uint64_t wide = a[0] | a[1] << 32, n = i->wraps ? a[2] & 31 : a[2] > 32 ? 32 : a[2];
  return i->left ? wide << n >> 32 : wide >> n;
}

static uint64_t pack(const ptx_inst *i, const uint64_t *a) {
  uint64_t out = 0;
  for (unsigned k = 0; k < i->lanes; k++) out |= a[k] << k * (i->type.bits / i->lanes);
  return out;
}

/* Between a generic address and one in a space. */
static uint64_t convert_address(const ptx_inst *i, const uint64_t *a) {
  if (i->space == PTX_GLOBAL) return a[0];
  return i->to_space ? a[0] - PTX_WINDOW(i->space) : a[0] + PTX_WINDOW(i->space);
}

static uint64_t widen(const ptx_inst *i, const uint64_t *a) {
  return (uint64_t)ptx_extend(a[0], i->from);
}

static const operation on_integers[] = {
    [PTX_ADD] = add,         [PTX_SUB] = subtract,     [PTX_MUL] = multiply,   [PTX_MAD] = multiply_add,
    [PTX_DIV] = divide,      [PTX_REM] = remainder_of, [PTX_MIN] = smaller,    [PTX_MAX] = larger,
    [PTX_ABS] = magnitude,   [PTX_NEG] = negate,       [PTX_AND] = both,       [PTX_OR] = either,
    [PTX_XOR] = differs,     [PTX_NOT] = invert,       [PTX_SHL] = shift_left, [PTX_SHR] = shift_right,
    [PTX_SELP] = choose,     [PTX_MOV] = same,         [PTX_CVT] = widen,      [PTX_POPC] = count,
    [PTX_CLZ] = count,       [PTX_BREV] = reverse,     [PTX_BFE] = extract,    [PTX_BFI] = insert,
    [PTX_PRMT] = permute,    [PTX_LOP3] = table_of_three, [PTX_SHF] = funnel,  [PTX_PACK] = pack,
    [PTX_CVTA] = convert_address,
};

bool ptx_is_real(ptx_type t) {
  return t.class == PTX_FLOAT || t.class == PTX_BRAIN || t.class == PTX_PAIR;
}

uint64_t ptx_compute(const ptx_inst *i, const uint64_t *args) {
  const unsigned bits = i->mode == PTX_WIDE ? i->type.bits * 2 : i->type.bits;
  if (i->code == PTX_SELP || i->code == PTX_MOV || i->code == PTX_PACK)
    return ptx_truncate(on_integers[i->code](i, args), bits);
  const bool real = ptx_is_real(i->type) || (i->code == PTX_CVT && ptx_is_real(i->from));
  return ptx_truncate(real ? ptx_real_compute(i, args) : on_integers[i->code](i, args), bits);
}

bool ptx_holds(const ptx_inst *i, uint64_t a, uint64_t b) {
  if (ptx_is_real(i->type)) return ptx_real_holds(i, a, b);
  if (i->compare == PTX_EQ) return a == b;
  if (i->compare == PTX_NE) return a != b;
  if (i->compare == PTX_LT) return less(i, a, b);
  if (i->compare == PTX_GE) return !less(i, a, b);
  return i->compare == PTX_GT ? less(i, b, a) : !less(i, b, a);
}

uint64_t ptx_atomic(const ptx_inst *i, uint64_t old, const uint64_t *a) {
  const uint64_t both_values[] = {old, a[0]};
  ptx_inst plain = *i;
  plain.round = PTX_NEAREST;
  plain.code = i->act == PTX_ATOM_MIN ? PTX_MIN : i->act == PTX_ATOM_MAX ? PTX_MAX : PTX_ADD;
  switch (i->act) {
    case PTX_ATOM_AND: return old & a[0];
    case PTX_ATOM_OR: return old | a[0];
    case PTX_ATOM_XOR: return old ^ a[0];
    case PTX_ATOM_EXCH: return a[0];
    case PTX_ATOM_CAS: return old == a[0] ? a[1] : old;
    case PTX_ATOM_INC: return old >= a[0] ? 0 : old + 1;
    case PTX_ATOM_DEC: return old == 0 || old > a[0] ? a[0] : old - 1;
    default: return ptx_compute(&plain, both_values);
  }
}

/* What comes out at the upper end of a sum, or is missing at that of a difference. */
uint64_t ptx_with_carry(const ptx_inst *i, const uint64_t *args, bool in, bool *out) {
  uint64_t a = args[0], b = args[1];
  if (i->code == PTX_MAD) {
    const uint64_t factors[] = {args[0], args[1], 0};
    a = ptx_compute(i, factors);
    b = args[2];
  }
  if (i->code == PTX_SUB) {
    *out = a < b || (in && a == b);
    return ptx_truncate(a - b - in, i->type.bits);
  }
  const uint64_t sum = ptx_truncate(a + b, i->type.bits), all = ptx_truncate(sum + in, i->type.bits);
  *out = sum < a || all < sum;
  return all;
}
