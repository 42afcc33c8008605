/* ptx_alu.c: what the arithmetic instructions compute.
 *
 * Values are zero-extended from the width of their type, and results are cut to it. Division by zero gives all ones,
 * as devices do; so does nothing else trap. It must not know about registers or memory. */
#include <math.h>
#include <string.h>

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

static double real_of(uint64_t v, unsigned bits) {
  const uint32_t low = (uint32_t)v;
  float narrow;
  double wide;
  memcpy(&narrow, &low, sizeof narrow);
  memcpy(&wide, &v, sizeof wide);
  return bits == 32 ? (double)narrow : wide;
}

static uint64_t bits_of(double v, unsigned bits) {
  const float narrow = (float)v;
  uint32_t low;
  uint64_t all;
  memcpy(&low, &narrow, sizeof low);
  memcpy(&all, &v, sizeof all);
  return bits == 32 ? low : all;
}

/* Sums, products and quotients of two floats, rounded to double and then to float, are rounded once. */
static double real_operation(const ptx_inst *i, double x, double y) {
  if (i->code == PTX_ADD) return x + y;
  if (i->code == PTX_SUB) return x - y;
  if (i->code == PTX_MUL) return x * y;
  if (i->code == PTX_DIV) return x / y;
  return i->code == PTX_MIN ? fmin(x, y) : fmax(x, y);
}

static uint64_t real_two(const ptx_inst *i, const uint64_t *a) {
  const unsigned bits = i->type.bits;
  return bits_of(real_operation(i, real_of(a[0], bits), real_of(a[1], bits)), bits);
}

static uint64_t real_fused(const ptx_inst *i, const uint64_t *a) {
  const unsigned bits = i->type.bits;
  const double x = real_of(a[0], bits), y = real_of(a[1], bits), z = real_of(a[2], bits);
  return bits == 32 ? bits_of((double)fmaf((float)x, (float)y, (float)z), 32) : bits_of(fma(x, y, z), 64);
}

static uint64_t real_sign(const ptx_inst *i, const uint64_t *a) {
  const uint64_t sign = 1ull << (i->type.bits - 1);
  return i->code == PTX_NEG ? a[0] ^ sign : a[0] & ~sign;
}

static double whole(double v, ptx_round round) {
  if (round == PTX_TO_EVEN) return nearbyint(v);
  if (round == PTX_TO_ZERO) return trunc(v);
  if (round == PTX_DOWN) return floor(v);
  return round == PTX_UP ? ceil(v) : v;
}

/* Beyond the range of the type its nearest end, and 0 for what is no number. */
static uint64_t clamp(double v, ptx_type t) {
  const bool sign = t.class == PTX_SIGNED;
  const double high = ldexp(1.0, (int)t.bits - sign), low = sign ? -high : 0.0;
  const uint64_t most = (sign ? 1ull << (t.bits - 1) : 0) - 1;
  if (isnan(v)) return 0;
  if (v >= high) return sign ? most : UINT64_MAX;
  if (v <= low) return sign ? most + 1 : 0;
  return v < 0 ? (uint64_t)(int64_t)v : (uint64_t)v;
}

/* A 64-bit integer goes to float at once: by way of double it would be rounded twice. */
static uint64_t from_integer(const ptx_inst *i, uint64_t v) {
  const int64_t wide = ptx_extend(v, i->from);
  const bool sign = i->from.class == PTX_SIGNED;
  if (i->type.bits == 32) return bits_of(sign ? (double)(float)wide : (double)(float)v, 32);
  return bits_of(sign ? (double)wide : (double)v, 64);
}

static uint64_t convert(const ptx_inst *i, const uint64_t *a) {
  const bool from = i->from.class == PTX_FLOAT, to = i->type.class == PTX_FLOAT;
  if (!from && !to) return (uint64_t)ptx_extend(a[0], i->from);
  if (!from) return from_integer(i, a[0]);
  const double v = whole(real_of(a[0], i->from.bits), i->round);
  return to ? bits_of(v, i->type.bits) : clamp(v, i->type);
}

static const operation on_integers[] = {
    [PTX_ADD] = add,       [PTX_SUB] = subtract,     [PTX_MUL] = multiply,   [PTX_MAD] = multiply_add,
    [PTX_DIV] = divide,    [PTX_REM] = remainder_of, [PTX_MIN] = smaller,    [PTX_MAX] = larger,
    [PTX_ABS] = magnitude, [PTX_NEG] = negate,       [PTX_AND] = both,       [PTX_OR] = either,
    [PTX_XOR] = differs,   [PTX_NOT] = invert,       [PTX_SHL] = shift_left, [PTX_SHR] = shift_right,
    [PTX_SELP] = choose,   [PTX_MOV] = same,         [PTX_CVT] = convert,
};

static const operation on_reals[] = {
    [PTX_ADD] = real_two,  [PTX_SUB] = real_two, [PTX_MUL] = real_two, [PTX_FMA] = real_fused,
    [PTX_DIV] = real_two,  [PTX_MIN] = real_two, [PTX_MAX] = real_two, [PTX_ABS] = real_sign,
    [PTX_NEG] = real_sign, [PTX_SELP] = choose,  [PTX_MOV] = same,     [PTX_CVT] = convert,
};

uint64_t ptx_compute(const ptx_inst *i, const uint64_t *args) {
  const operation *table = i->type.class == PTX_FLOAT ? on_reals : on_integers;
  return ptx_truncate(table[i->code](i, args), i->mode == PTX_WIDE ? i->type.bits * 2 : i->type.bits);
}

static bool real_holds(const ptx_inst *i, double a, double b) {
  static const bool when_less[] = {[PTX_NE] = true, [PTX_LT] = true, [PTX_LE] = true, [PTX_GE] = false};
  static const bool when_more[] = {[PTX_NE] = true, [PTX_GT] = true, [PTX_GE] = true};
  if (isnan(a) || isnan(b)) return false;
  if (a < b) return when_less[i->compare];
  if (a > b) return when_more[i->compare];
  return i->compare == PTX_EQ || i->compare == PTX_LE || i->compare == PTX_GE;
}

bool ptx_holds(const ptx_inst *i, uint64_t a, uint64_t b) {
  if (i->type.class == PTX_FLOAT) return real_holds(i, real_of(a, i->type.bits), real_of(b, i->type.bits));
  if (i->compare == PTX_EQ) return a == b;
  if (i->compare == PTX_NE) return a != b;
  if (i->compare == PTX_LT) return less(i, a, b);
  if (i->compare == PTX_GE) return !less(i, a, b);
  return i->compare == PTX_GT ? less(i, b, a) : !less(i, b, a);
}
