/* ptx_real.c: what the arithmetic instructions compute of floats.
 *
 * Everything is computed in double, and rounded to the type once: sums, products and quotients of two floats are right
 * then. What a device approximates is computed as well as C can. It must not know about registers or memory. */
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "ptx.h"

/* How a 16-bit float is made: digits (the hidden one included), the exponent of the least normal number, and the
 * bias. */
typedef struct narrow {
  int digits, least, bias;
} narrow;

static const narrow half = {11, -14, 15}, brain = {8, -126, 127};

static double from_narrow(uint64_t v, const narrow *n) {
  const int fraction = n->digits - 1, top = 15 - fraction;
  const int exponent = (int)(v >> fraction & ((1u << top) - 1));
  const double digits = (double)(v & ((1u << fraction) - 1));
  const double sign = (v & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << top) - 1) return digits == 0 ? sign * (double)INFINITY : (double)NAN;
  if (exponent == 0) return sign * ldexp(digits, n->least - fraction);
  return sign * ldexp(digits + (double)(1u << fraction), exponent - n->bias - fraction);
}

/* Rounded as the processor is set to round; the one NaN that devices give. */
static uint64_t to_narrow(double v, const narrow *n) {
  const int fraction = n->digits - 1;
  const uint64_t infinite = (uint64_t)((1u << (15 - fraction)) - 1) << fraction, sign = signbit(v) ? 0x8000 : 0;
  int e;
  if (isnan(v)) return 0x7fff;
  if (isinf(v)) return sign | infinite;
  if (v == 0) return sign;
  (void)frexp(v, &e);
  e = e - 1 < n->least ? n->least : e - 1;
  const double unit = fabs(nearbyint(ldexp(v, fraction - e)));
  const uint64_t digits = (uint64_t)unit; /* a carry out of the digits goes into the exponent */
  const uint64_t bits = digits + ((uint64_t)(e + n->bias - 1) << fraction);
  if (bits < infinite) return sign | bits;
  const int mode = fegetround();
  const bool inwards = mode == FE_TOWARDZERO || (mode == FE_DOWNWARD && sign == 0) || (mode == FE_UPWARD && sign != 0);
  return sign | (inwards ? infinite - 1 : infinite);
}

static double real_of(uint64_t v, ptx_type t) {
  const uint32_t low = (uint32_t)v;
  float single;
  double wide;
  if (t.class == PTX_BRAIN) return from_narrow(v, &brain);
  if (t.bits == 16) return from_narrow(v, &half);
  memcpy(&single, &low, sizeof single);
  memcpy(&wide, &v, sizeof wide);
  return t.bits == 32 ? (double)single : wide;
}

/* No float32 keeps the bits of a NaN (PTX ISA, "Floating-Point Instructions"). */
static uint64_t bits_of(double v, ptx_type t) {
  uint32_t low;
  uint64_t all;
  if (t.class == PTX_BRAIN) return to_narrow(v, &brain);
  if (t.bits == 16) return to_narrow(v, &half);
  if (t.bits == 32 && isnan(v)) return 0x7fffffff;
  const float single = (float)v;
  memcpy(&low, &single, sizeof low);
  memcpy(&all, &v, sizeof all);
  return t.bits == 32 ? low : all;
}

/* .ftz: what is less than the least normal float32 is 0. */
static double flushed(const ptx_inst *i, double v, ptx_type t) {
  return i->flushes && t.bits == 32 && fabs(v) < ldexp(1.0, -126) ? copysign(0.0, v) : v;
}

static double argument(const ptx_inst *i, uint64_t v, ptx_type t) {
  return flushed(i, real_of(v, t), t);
}

static uint64_t result(const ptx_inst *i, double v) {
  if (i->saturates) v = isnan(v) || v < 0 ? 0.0 : v > 1 ? 1.0 : v;
  const uint64_t bits = bits_of(v, i->type);
  return i->flushes ? bits_of(flushed(i, real_of(bits, i->type), i->type), i->type) : bits;
}

static double one(const ptx_inst *i, double x) {
  switch (i->code) {
    case PTX_SQRT: return sqrt(x);
    case PTX_RSQRT: return 1.0 / sqrt(x);
    case PTX_RCP: return 1.0 / x;
    case PTX_SIN: return sin(x);
    case PTX_COS: return cos(x);
    case PTX_EX2: return exp2(x);
    case PTX_LG2: return log2(x);
    default: return tanh(x);
  }
}

static double two(const ptx_inst *i, double x, double y) {
  switch (i->code) {
    case PTX_ADD: return x + y;
    case PTX_SUB: return x - y;
    case PTX_MUL: return x * y;
    case PTX_DIV: return x / y;
    case PTX_MIN: return fmin(x, y);
    default: return fmax(x, y);
  }
}

static double fused(const ptx_inst *i, const uint64_t *a) {
  const double x = argument(i, a[0], i->type), y = argument(i, a[1], i->type), z = argument(i, a[2], i->type);
  return i->type.bits == 32 ? (double)fmaf((float)x, (float)y, (float)z) : fma(x, y, z);
}

static uint64_t sign_of(const ptx_inst *i, const uint64_t *a) {
  const uint64_t sign = 1ull << (i->type.bits - 1);
  if (i->code == PTX_COPYSIGN) return (a[0] & sign) | (a[1] & ~sign);
  return i->code == PTX_NEG ? a[0] ^ sign : a[0] & ~sign;
}

static double whole(double v, ptx_round round) {
  if (round == PTX_TO_EVEN) return nearbyint(v);
  if (round == PTX_TO_ZERO) return trunc(v);
  if (round == PTX_DOWN) return floor(v);
  return round == PTX_UP ? ceil(v) : v;
}

/* Beyond the range of the type its nearest end. What is no number is 0, but where 64 bits are the source's or the
 * result's the lowest signed number's bits (PTX ISA, cvt). */
static uint64_t clamp(double v, ptx_type from, ptx_type t) {
  const bool sign = t.class == PTX_SIGNED;
  const double high = ldexp(1.0, (int)t.bits - sign), low = sign ? -high : 0.0;
  const uint64_t most = (sign ? 1ull << (t.bits - 1) : 0) - 1;
  if (isnan(v)) return from.bits == 64 || t.bits == 64 ? 1ull << (t.bits - 1) : 0;
  if (v >= high) return sign ? most : UINT64_MAX;
  if (v <= low) return sign ? most + 1 : 0;
  return v < 0 ? (uint64_t)(int64_t)v : (uint64_t)v;
}

/* A 64-bit integer goes to float at once: by way of double it would be rounded twice. */
static uint64_t from_integer(const ptx_inst *i, uint64_t v) {
  const int64_t wide = ptx_extend(v, i->from);
  const bool sign = i->from.class == PTX_SIGNED;
  if (i->type.bits == 32) return result(i, sign ? (double)(float)wide : (double)(float)v);
  return result(i, sign ? (double)wide : (double)v);
}

/* Which NaN a NaN becomes is left open (PTX ISA, cvt): none that tells what it was. */
static uint64_t convert(const ptx_inst *i, const uint64_t *a) {
  if (!ptx_is_real(i->from)) return from_integer(i, a[0]);
  const double v = whole(argument(i, a[0], i->from), i->round);
  if (i->type.class == PTX_FLOAT && i->type.bits == 64 && isnan(v)) return INT64_MAX;
  return ptx_is_real(i->type) ? result(i, v) : clamp(v, i->from, i->type);
}

static uint64_t in_mode(const ptx_inst *i, const uint64_t *a) {
  const ptx_type t = i->type;
  if (i->code == PTX_CVT) return convert(i, a);
  if (i->code == PTX_NEG || i->code == PTX_ABS || i->code == PTX_COPYSIGN) return sign_of(i, a);
  if (i->code == PTX_FMA) return result(i, fused(i, a));
  if (i->code >= PTX_SQRT && i->code <= PTX_TANH) return result(i, one(i, argument(i, a[0], t)));
  return result(i, two(i, argument(i, a[0], t), argument(i, a[1], t)));
}

/* Both halves of a pair, one after the other. */
static uint64_t pairwise(const ptx_inst *i, const uint64_t *a) {
  uint64_t out = 0;
  ptx_inst one_half = *i;
  one_half.type = (ptx_type){PTX_FLOAT, 16};
  for (unsigned shift = 0; shift < 32; shift += 16) {
    const uint64_t args[3] = {a[0] >> shift & 0xffff, a[1] >> shift & 0xffff, a[2] >> shift & 0xffff};
    out |= in_mode(&one_half, args) << shift;
  }
  return out;
}

uint64_t ptx_real_compute(const ptx_inst *i, const uint64_t *args) {
  static const int modes[] = {[PTX_CHOPPED] = FE_TOWARDZERO, [PTX_LOWER] = FE_DOWNWARD, [PTX_HIGHER] = FE_UPWARD};
  if (i->type.class == PTX_PAIR) return pairwise(i, args);
  const bool directed = i->round >= PTX_CHOPPED && i->round <= PTX_HIGHER;
  if (!directed) return in_mode(i, args);
  const int before = fegetround();
  fesetround(modes[i->round]);
  const uint64_t out = in_mode(i, args);
  fesetround(before);
  return out;
}

bool ptx_real_holds(const ptx_inst *i, uint64_t x, uint64_t y) {
  static const bool when_less[] = {[PTX_NE] = true, [PTX_LT] = true, [PTX_LE] = true, [PTX_NAN] = false};
  static const bool when_more[] = {[PTX_NE] = true, [PTX_GT] = true, [PTX_GE] = true, [PTX_NAN] = false};
  const double a = argument(i, x, i->type), b = argument(i, y, i->type);
  if (i->compare == PTX_NUM || i->compare == PTX_NAN) return (isnan(a) || isnan(b)) == (i->compare == PTX_NAN);
  if (isnan(a) || isnan(b)) return i->unordered;
  if (a < b) return when_less[i->compare];
  if (a > b) return when_more[i->compare];
  return i->compare == PTX_EQ || i->compare == PTX_LE || i->compare == PTX_GE;
}
