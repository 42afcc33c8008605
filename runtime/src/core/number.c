/* number.c: numbers as bits: the small float formats, and conversions that C leaves undefined or rounds
 * twice. Everything rounds once, to nearest with ties to even, whatever the way to the target.
 *
 * It must not know about tensors or memory. */
#include "core/simd.h"

#include <math.h>
#include <string.h>

static uint32_t exponent_max(const mf__float_format *f) {
  return (1u << f->exponent_bits) - 1;
}

static uint32_t sign_bit(const mf__float_format *f) {
  return 1u << (f->exponent_bits + f->mantissa_bits);
}

/* The largest magnitude code that is a finite number. */
static uint32_t max_finite(const mf__float_format *f) {
  const uint32_t all_ones = sign_bit(f) - 1;
  if (f->special == MF__IEEE) return (exponent_max(f) << f->mantissa_bits) - 1;
  return f->special == MF__FN || f->special == MF__SCALE ? all_ones - 1 : all_ones;
}

/* The code of NaN without its sign; the finite formats have none, and give negative zero. */
static uint32_t nan_code(const mf__float_format *f) {
  if (f->special == MF__FN || f->special == MF__SCALE) return sign_bit(f) - 1;
  if (f->special == MF__FNUZ || f->special == MF__FINITE) return sign_bit(f);
  return max_finite(f) + 1 + (1u << (f->mantissa_bits - 1));
}

static bool is_nan_code(const mf__float_format *f, uint32_t bits, uint32_t magnitude) {
  if (f->special == MF__FNUZ) return bits == sign_bit(f);
  return f->special != MF__FINITE && magnitude > max_finite(f) + (f->special == MF__IEEE);
}

double mf__float_decode(const mf__float_format *f, uint32_t bits) {
  const uint32_t magnitude = bits & (sign_bit(f) - 1);
  const uint32_t mantissa = magnitude & ((1u << f->mantissa_bits) - 1);
  const int exponent = (int)(magnitude >> f->mantissa_bits);
  double value;
  if (is_nan_code(f, bits, magnitude)) return (double)NAN;
  if (magnitude > max_finite(f))
    value = (double)INFINITY;
  else if (exponent == 0 && f->special != MF__SCALE)
    value = ldexp(mantissa, 1 - f->bias - f->mantissa_bits);
  else
    value = ldexp(mantissa + (1u << f->mantissa_bits), exponent - f->bias - f->mantissa_bits);
  return bits & sign_bit(f) ? -value : value;
}

static uint32_t overflow_code(const mf__float_format *f) {
  if (f->special == MF__IEEE) return max_finite(f) + 1;
  return f->special == MF__FINITE ? max_finite(f) : nan_code(f);
}

/* The code of a finite number without sign, rounded; it may come out above max_finite. */
static int64_t round_magnitude(const mf__float_format *f, double magnitude) {
  const int lowest = f->special == MF__SCALE ? -f->bias : 1 - f->bias;
  int exponent;
  (void)frexp(magnitude, &exponent);
  /* Zero has no exponent of its own, whatever frexp says. */
  exponent = exponent - 1 < lowest || magnitude == 0 ? lowest : exponent - 1;
  const double units = rint(ldexp(magnitude, f->mantissa_bits - exponent));
  /* The implicit bit is part of units: it carries into the exponent, and so does rounding up. */
  if (f->special != MF__SCALE) return (int64_t)(exponent - lowest) * (1 << f->mantissa_bits) + (int64_t)units;
  return exponent - lowest + (units > 1);
}

/* float8_e8m0fnu: powers of two only, without sign and without zero. */
static uint32_t encode_scale(const mf__float_format *f, double value) {
  if (!(value > 0) || isinf(value)) return nan_code(f);
  const int64_t code = round_magnitude(f, value);
  return code > (int64_t)max_finite(f) ? nan_code(f) : (uint32_t)code;
}

uint32_t mf__float_encode(const mf__float_format *f, double value) {
  if (f->special == MF__SCALE) return encode_scale(f, value);
  if (isnan(value)) return nan_code(f);
  const uint32_t sign = signbit(value) ? sign_bit(f) : 0;
  const double magnitude = fabs(value);
  uint32_t code = overflow_code(f);
  if (!isinf(magnitude)) {
    const int64_t rounded = round_magnitude(f, magnitude);
    if (rounded <= (int64_t)max_finite(f)) code = (uint32_t)rounded;
  }
  /* Negative zero's code is NaN there, and so is what already overflowed to NaN. */
  if (f->special == MF__FNUZ && (code == 0 || code == sign_bit(f))) return code;
  return sign | code;
}

/* A double has 53 bits; what does not fit is folded into the last one ("round to odd"), so that a later
 * rounding to a narrower format still sees on which side of a tie the integer lay. */
double mf__uint_to_double_odd(uint64_t value) {
  int shift = 0;
  while (value >> shift >= (UINT64_C(1) << 53)) shift++;
  const uint64_t lost = value & ((UINT64_C(1) << shift) - 1);
  return ldexp((double)((value >> shift) | (lost != 0)), shift);
}

double mf__int_to_double_odd(int64_t value) {
  return value < 0 ? -mf__uint_to_double_odd(0 - (uint64_t)value) : mf__uint_to_double_odd((uint64_t)value);
}

int64_t mf__double_to_int(double value, int bits) {
  const double limit = ldexp(1.0, bits - 1);
  if (isnan(value)) return 0;
  if (value >= limit) return (int64_t)((UINT64_C(1) << (bits - 1)) - 1);
  if (value <= -limit) return (int64_t)(0 - (UINT64_C(1) << (bits - 1)));
  return (int64_t)value;
}

uint64_t mf__double_to_uint(double value, int bits) {
  if (isnan(value) || value <= 0) return 0;
  if (value >= ldexp(1.0, bits)) return UINT64_MAX >> (64 - bits);
  return (uint64_t)value;
}

static float power(int exponent) {
  return (float)ldexp(1.0, exponent);
}

static uint32_t float_bits(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

void mf__small_of(const mf__float_format *f, mf__small *out) {
  const int m = f->mantissa_bits;
  const bool fnuz = f->special == MF__FNUZ;
  out->sign = sign_bit(f);
  out->shift = (uint32_t)(23 - m);
  out->rebias = (uint32_t)(127 - f->bias) << m;
  out->half = (1u << (22 - m)) - 1;
  out->step = float_bits(power(24 - f->bias - m));
  out->least_normal = float_bits(power(1 - f->bias));
  out->scale = power(127 - f->bias);
  out->max_finite = max_finite(f);
  out->infinity = f->special == MF__IEEE ? max_finite(f) + 1 : UINT32_MAX;
  out->overflow = overflow_code(f);
  out->nan = nan_code(f);
  out->unsigned_zero = fnuz ? 0 : UINT32_MAX;
  out->nan_alone = fnuz ? nan_code(f) : UINT32_MAX;
}
