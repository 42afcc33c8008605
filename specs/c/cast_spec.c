/* cast_spec.c: conversion between all numeric dtypes, over every value of the narrow ones and edge values of
 * the wide ones. The oracle here knows a float format by its field widths: it lists the values of all its
 * codes and rounds by comparing with the exact midpoints, in long double, which holds every source exactly.
 */
#include "spec.h"

#include <float.h>
#include <math.h>

_Static_assert(LDBL_MANT_DIG >= 64, "long double holds every int64_t, uint64_t and double");

typedef unsigned __int128 bits128;

typedef enum special { IEEE, ONE_NAN, NEGATIVE_ZERO_IS_NAN, NUMBERS_ONLY, SCALE } special;

typedef struct format {
  const char *name;
  int exponent_bits, mantissa_bits, bias;
  special special;
} format;

static const format formats[] = {
    {"float16", 5, 10, 15, IEEE},
    {"bfloat16", 8, 7, 127, IEEE},
    {"float8_e3m4", 3, 4, 3, IEEE},
    {"float8_e4m3", 4, 3, 7, IEEE},
    {"float8_e4m3b11fnuz", 4, 3, 11, NEGATIVE_ZERO_IS_NAN},
    {"float8_e4m3fn", 4, 3, 7, ONE_NAN},
    {"float8_e4m3fnuz", 4, 3, 8, NEGATIVE_ZERO_IS_NAN},
    {"float8_e5m2", 5, 2, 15, IEEE},
    {"float8_e5m2fnuz", 5, 2, 16, NEGATIVE_ZERO_IS_NAN},
    {"float8_e8m0fnu", 8, 0, 127, SCALE},
    {"float6_e2m3fn", 2, 3, 1, NUMBERS_ONLY},
    {"float6_e3m2fn", 3, 2, 3, NUMBERS_ONLY},
    {"float4_e2m1fn", 2, 1, 1, NUMBERS_ONLY},
};

static int width(const format *f) {
  return f->special == SCALE ? 8 : 1 + f->exponent_bits + f->mantissa_bits;
}

static unsigned codes_without_sign(const format *f) { return 1u << (f->exponent_bits + f->mantissa_bits); }

/* The value of a code without its sign, as the formula of the format says. */
static long double formula(const format *f, unsigned code) {
  int e = (int)(code >> f->mantissa_bits);
  int m = (int)(code & ((1u << f->mantissa_bits) - 1));
  int top = (1 << f->exponent_bits) - 1;
  bool all_ones = code == codes_without_sign(f) - 1;
  if (f->special == SCALE) return all_ones ? (long double)NAN : powl(2, e - f->bias);
  if (f->special == IEEE && e == top) return m == 0 ? (long double)INFINITY : (long double)NAN;
  if (f->special == ONE_NAN && all_ones) return (long double)NAN;
  if (e == 0) return powl(2, 1 - f->bias) * m / (1 << f->mantissa_bits);
  return powl(2, e - f->bias) * (1 + (long double)m / (1 << f->mantissa_bits));
}

/* The same from a table, once worked out. */
static long double magnitude_of(const format *f, unsigned code) {
  static long double tables[COUNT(formats)][1 << 15];
  static bool known[COUNT(formats)];
  size_t which = (size_t)(f - formats);
  for (unsigned k = 0; !known[which] && k < codes_without_sign(f); k++) tables[which][k] = formula(f, k);
  known[which] = true;
  return tables[which][code];
}

static long double value_of(const format *f, unsigned code) {
  unsigned sign = codes_without_sign(f);
  if (f->special == SCALE || code < sign) return magnitude_of(f, code);
  if (f->special == NEGATIVE_ZERO_IS_NAN && code == sign) return (long double)NAN;
  return -magnitude_of(f, code - sign);
}

/* How many codes without sign are finite numbers: they come first, in ascending order. */
static unsigned count_finite(const format *f) {
  static unsigned known[COUNT(formats)];
  unsigned *n = &known[f - formats];
  if (*n == 0) *n = codes_without_sign(f);
  while (!isfinite(magnitude_of(f, *n - 1))) (*n)--;
  return *n;
}

/* The nearest code, ties to the even one; the count of finite codes if the magnitude is too large. */
static unsigned nearest(const format *f, long double magnitude) {
  unsigned n = count_finite(f);
  unsigned low = 0;
  unsigned high = n;
  long double step = magnitude_of(f, n - 1) - magnitude_of(f, n - 2);
  if (f->special == SCALE) step = magnitude_of(f, n - 1);
  while (high - low > 1) {
    unsigned middle = (low + high) / 2;
    if (magnitude_of(f, middle) <= magnitude) low = middle;
    else high = middle;
  }
  long double below = magnitude_of(f, low);
  long double above = low + 1 < n ? magnitude_of(f, low + 1) : magnitude_of(f, n - 1) + step;
  if (magnitude < below) return low; /* under the least of a format without zero */
  long double middle = (below + above) / 2;
  if (magnitude == middle && f->special == SCALE) return low + 1; /* one bit: the higher power is even */
  if (magnitude == middle) return low + (low & 1);
  return magnitude > middle ? low + 1 : low;
}

/* What a float of this format must hold after a conversion. */
typedef struct expectation {
  bool nan;  /* any NaN */
  bool zero; /* a zero of any sign */
  unsigned code;
} expectation;

static expectation encoded(const format *f, long double x) {
  unsigned sign = signbit(x) ? codes_without_sign(f) : 0;
  expectation e = {0};
  if (f->special == SCALE && !(x > 0)) return (expectation){.nan = true};
  if (isnan(x)) return f->special == NUMBERS_ONLY ? (expectation){.zero = true} : (expectation){.nan = true};
  unsigned code = isinf(x) ? count_finite(f) : nearest(f, fabsl(x));
  if (code == count_finite(f)) {
    if (f->special == NUMBERS_ONLY) code--;
    else if (f->special != IEEE) return (expectation){.nan = true};
  }
  e.code = code | sign;
  if (f->special == NEGATIVE_ZERO_IS_NAN && code == 0) e.code = 0;
  return e;
}

static bool as_expected(const format *f, expectation e, unsigned code) {
  long double got = value_of(f, code);
  if (e.nan) return isnan(got);
  if (e.zero) return got == 0;
  return code == e.code;
}

/* A number on its way from one dtype to another. */
typedef struct number {
  bool is_int;
  bool is_complex;
  __int128 i;
  long double re, im;
} number;

static const format *format_of(const DLDataType *d, int part_bits) {
  static const char *const by_code[] = {
      [kDLBfloat] = "bfloat16",
      [kDLFloat8_e3m4] = "float8_e3m4",
      [kDLFloat8_e4m3] = "float8_e4m3",
      [kDLFloat8_e4m3b11fnuz] = "float8_e4m3b11fnuz",
      [kDLFloat8_e4m3fn] = "float8_e4m3fn",
      [kDLFloat8_e4m3fnuz] = "float8_e4m3fnuz",
      [kDLFloat8_e5m2] = "float8_e5m2",
      [kDLFloat8_e5m2fnuz] = "float8_e5m2fnuz",
      [kDLFloat8_e8m0fnu] = "float8_e8m0fnu",
      [kDLFloat6_e2m3fn] = "float6_e2m3fn",
      [kDLFloat6_e3m2fn] = "float6_e3m2fn",
      [kDLFloat4_e2m1fn] = "float4_e2m1fn",
  };
  const char *name = d->code == kDLFloat || d->code == kDLComplex ? "float16" : by_code[d->code];
  if (part_bits > 16) return NULL;
  for (size_t i = 0; i < COUNT(formats); i++) {
    if (strcmp(formats[i].name, name) == 0) return &formats[i];
  }
  return NULL;
}

static bits128 mask(int bits) { return (((bits128)1 << (bits - 1)) << 1) - 1; }

static long double float_from(const DLDataType *d, int part_bits, bits128 raw) {
  const format *f = format_of(d, part_bits);
  float single;
  double twice;
  if (f != NULL) return value_of(f, (unsigned)raw);
  uint32_t low = (uint32_t)raw;
  uint64_t all = (uint64_t)raw;
  memcpy(&single, &low, sizeof single);
  memcpy(&twice, &all, sizeof twice);
  return part_bits == 32 ? (long double)single : (long double)twice;
}

static number number_from(const DLDataType *d, bits128 raw) {
  number n = {.is_int = d->code == kDLBool || d->code == kDLInt || d->code == kDLUInt};
  int bits = d->bits;
  if (d->code == kDLBool) n.i = raw != 0;
  else if (d->code == kDLUInt) n.i = (__int128)raw;
  else if (d->code == kDLInt) n.i = raw >> (bits - 1) & 1 ? (__int128)(raw | ~mask(bits)) : (__int128)raw;
  if (n.is_int) {
    n.re = (long double)n.i;
    return n;
  }
  n.is_complex = d->code == kDLComplex;
  if (n.is_complex) bits /= 2;
  n.re = float_from(d, bits, raw & mask(bits));
  n.im = n.is_complex ? float_from(d, bits, raw >> bits) : 0;
  return n;
}

static bool float_matches(const DLDataType *d, int part_bits, long double x, bits128 raw) {
  const format *f = format_of(d, part_bits);
  if (f != NULL) return as_expected(f, encoded(f, x), (unsigned)raw);
  long double got = float_from(d, part_bits, raw);
  long double want = part_bits == 32 ? (long double)(float)x : (long double)(double)x;
  if (isnan(want)) return isnan(got);
  return want == got && signbit(want) == signbit(got);
}

static bits128 int_for(const DLDataType *d, const number *n) {
  int bits = d->bits;
  if (n->is_int) return (bits128)n->i & mask(bits);
  bool is_signed = d->code == kDLInt;
  long double low = is_signed ? -powl(2, bits - 1) : 0;
  long double high = powl(2, is_signed ? bits - 1 : bits);
  if (isnan(n->re)) return 0;
  if (n->re >= high) return is_signed ? mask(bits) >> 1 : mask(bits);
  if (n->re <= low) return is_signed ? (bits128)1 << (bits - 1) : 0;
  return (bits128)(__int128)truncl(n->re) & mask(bits);
}

/* Whether ${raw} is what ${n} becomes as an element of ${d}. */
static bool matches(const DLDataType *d, const number *n, bits128 raw) {
  int half = d->bits / 2;
  switch (d->code) {
    case kDLBool:
      return raw == (n->is_int ? n->i != 0 : !(n->re == 0) || !(n->im == 0));
    case kDLInt:
    case kDLUInt:
      return raw == int_for(d, n);
    case kDLComplex:
      return float_matches(d, half, n->re, raw & mask(half)) && float_matches(d, half, n->im, raw >> half);
    default:
      return float_matches(d, d->bits, n->re, raw);
  }
}

/* Elements in memory as raw bits. */

static bits128 raw_at(const DLTensor *v, int64_t i) {
  unsigned char bytes[16] = {0};
  bits128 raw;
  spec_read(v, 0, &i, bytes);
  memcpy(&raw, bytes, sizeof raw);
  return raw;
}

static const char *const dtypes[] = {
    "bool", "bool1", "int1", "int4", "int8", "int16", "int24", "int32", "int64", "uint1", "uint3", "uint8",
    "uint16", "uint32", "uint48", "uint64", "float16", "bfloat16", "float32", "float64", "float8_e3m4",
    "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn", "complex32",
    "complex64", "complex128",
};

static const double edges[] = {
    0.0, -0.0, 1, -1, 0.5, 1.5, 2.5, 3.5, -0.5, -1.5, -2.5, 0.49999999999999994, 126.5, 127, 127.5, 128, -128,
    -128.5, -129, 255, 255.5, 256, 32767, 32768, -32769, 65503, 65504, 65519.99, 65520, 65536, 2147483647,
    2147483648.0, -2147483648.0, -2147483649.0, 4294967295.0, 4294967296.0, 9007199254740993.0,
    9223372036854774784.0, 9223372036854775808.0, -9223372036854775808.0, 18446744073709549568.0,
    18446744073709551616.0, 1e300, -1e300, 3.4028234663852886e38, 3.4028235677973366e38, 3.5e38, 5e-324,
    2.2250738585072014e-308, 1.401298464324817e-45, 7.006492321624085e-46, 7.006492321624086e-46,
    1.1754943508222875e-38, 5.960464477539063e-08, 2.980232238769531e-08, 2.9802322387695316e-08,
    9.1835496157991e-41, 6.103515625e-05, 1.00048828125, 1.000488281250001, 1.00390625, 1.01171875, 448, 464,
    464.1, 480, 240, 248, 57344, 61440, 15.5, 15.75, 30, 6, 7, 7.5, 7.75, 28, 30.1, 0.0625, 0.03125, 0.25, 1e-10,
};

static const uint64_t integers[] = {
    0, 1, 2, 3, 5, 7, 8, 15, 16, 127, 128, 255, 256, 2047, 2048, 2049, 2051, 4098, 65504, 65519, 65520, 65535,
    65536, 16777215, 16777216, 16777217, 16777219, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000,
    0x20000000000001, 0x20000000000003, 0x4000000000000001, 0x7fffff4000000000, 0x7fffff4000000001,
    0x7ffffffffffffbff, 0x7ffffffffffffe00, 0x7fffffffffffffff, 0x8000000000000000, 0x8000000000000401,
    0xfffffffffffff400, 0xfffffffffffffbff, 0xfffffffffffffc00, 0xffffffffffffffff, 0xff80000000000000,
    0xff80000000000001, 0x8080000000000000, 0x8080000000000001, 0x807fffffffffffff,
};

enum { MOST = 16384 };

static bits128 float_edge(const DLDataType *d, int part_bits, double x) {
  if (part_bits == 64) {
    uint64_t raw;
    memcpy(&raw, &x, sizeof raw);
    return raw;
  }
  if (part_bits == 32) {
    float narrow = (float)x;
    uint32_t raw;
    memcpy(&raw, &narrow, sizeof raw);
    return raw;
  }
  return encoded(format_of(d, part_bits), (long double)x).code;
}

static bits128 random_raw(const DLDataType *d) {
  bits128 raw = (bits128)spec_random() << 64 | spec_random();
  if (d->bits > 16 && d->code <= kDLUInt) raw >>= spec_random() % d->bits; /* integers of all magnitudes */
  return raw & mask(d->bits);
}

/* The source's elements: all of its codes, or some, or edge values; and random bits. */
static int64_t source_values(const DLDataType *d, bits128 *raw) {
  static const double odd[] = {INFINITY, -INFINITY, NAN, -NAN};
  int64_t n = 0;
  bool is_int = d->code == kDLInt || d->code == kDLUInt;
  int part_bits = d->code == kDLComplex ? d->bits / 2 : d->bits;
  unsigned step = d->bits > 8 ? (ROUNDS_OF(20) > 1 ? 7 : 97) : 1;
  for (unsigned i = 0; d->bits <= 16 && i < 1u << d->bits; i += step) raw[n++] = i;
  for (size_t i = 0; i < COUNT(integers) && is_int; i++) {
    raw[n++] = integers[i] & mask(d->bits);
    raw[n++] = (0 - integers[i]) & mask(d->bits);
  }
  for (size_t i = 0; d->bits > 16 && !is_int && i < COUNT(edges) + COUNT(odd); i++) {
    double x = i < COUNT(edges) ? edges[i] : odd[i - COUNT(edges)];
    bits128 one = float_edge(d, part_bits, x);
    bits128 minus = float_edge(d, part_bits, -x);
    raw[n++] = d->code == kDLComplex ? one | minus << part_bits : one;
    raw[n++] = minus;
  }
  for (int i = 0; i < 400; i++) raw[n++] = random_raw(d);
  return n;
}

/* A new tensor of n elements that lie ${step} apart. */
static mf_tensor *stepped(const char *dtype, int64_t n, int64_t step) {
  int64_t room = n * step;
  mf_index item = {.kind = MF_INDEX_SLICE, .start = MF_INDEX_NONE, .stop = MF_INDEX_NONE, .step = step};
  mf_tensor *whole = spec_create(dtype, 1, &room);
  mf_tensor *t;
  OK(mf_tensor_index(whole, &item, 1, &t, &spec_err));
  mf_tensor_release(whole);
  return t;
}

static void cast_pair(const char *from, const char *to, int64_t step) {
  static bits128 raw[MOST];
  DLDataType source = spec_dtype(from);
  DLDataType target = spec_dtype(to);
  int64_t n = source_values(&source, raw);
  mf_tensor *src = stepped(from, n, step);
  mf_tensor *dst = stepped(to, n, step);
  const DLTensor *s = mf_tensor_dltensor(src);
  for (int64_t i = 0; i < n; i++)
    spec_write(s->data, spec_bit(s, 0, &i), source.bits, (const unsigned char *)&raw[i]);
  if (source.code == kDLComplex && target.code != kDLComplex) {
    SAYS(MF_EDTYPE, "complex", mf_tensor_astype(dst, src, &spec_err));
  } else {
    OK(mf_tensor_astype(dst, src, &spec_err));
    for (int64_t i = 0; i < n; i++) {
      number x = number_from(&source, raw[i]);
      bits128 got = raw_at(mf_tensor_dltensor(dst), i);
      bool same = source.code == target.code && source.bits == target.bits;
      if (same ? got != raw[i] : !matches(&target, &x, got))
        fail_msg("%s %.20Lg (%.20Lgi) became %s 0x%llx", from, x.re, x.im, to, (unsigned long long)got);
    }
  }
  mf_tensor_release(src);
  mf_tensor_release(dst);
}

static void every_pair(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(dtypes); i++) {
    for (size_t j = 0; j < COUNT(dtypes); j++) {
      cast_pair(dtypes[i], dtypes[j], 1);
      if (ROUNDS_OF(20) > 1) cast_pair(dtypes[i], dtypes[j], 3);
    }
  }
}

/* All codes of all narrow floats to float64, which holds them exactly. */
static void narrow_floats_are_read_exactly(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(formats); i++) {
    const format *f = &formats[i];
    int64_t n = (int64_t)1 << width(f);
    mf_tensor *src = spec_create(f->name, 1, &n);
    mf_tensor *dst = spec_create("float64", 1, &n);
    const DLTensor *s = mf_tensor_dltensor(src);
    for (int64_t k = 0; k < n; k++)
      spec_write(s->data, spec_bit(s, 0, &k), width(f), (const unsigned char *)&k);
    OK(mf_tensor_astype(dst, src, &spec_err));
    for (int64_t k = 0; k < n; k++) {
      double got = ((const double *)mf_tensor_dltensor(dst)->data)[k];
      long double want = value_of(f, (unsigned)k);
      mf_scalar one;
      OK(mf_tensor_get(src, &k, 1, &one, &spec_err));
      assert_int_equal(one.kind, MF_KIND_FLOAT);
      assert_true(isnan(want) ? isnan(got) && isnan(one.f) : want == got && want == one.f);
      if (!isnan(want)) assert_true(!signbit(want) == !signbit(got) && !signbit(want) == !signbit(one.f));
    }
    mf_tensor_release(src);
    mf_tensor_release(dst);
  }
}

/* Doubles around every midpoint between two neighbours, and just beyond: rounding to nearest, ties to even. */
static void narrow_floats_round_once(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(formats); i++) {
    const format *f = &formats[i];
    unsigned finite = count_finite(f);
    int64_t n = (int64_t)finite * 6;
    mf_tensor *src = spec_create("float64", 1, &n);
    mf_tensor *dst = spec_create(f->name, 1, &n);
    double *x = mf_tensor_dltensor(src)->data;
    for (unsigned k = 0; k < finite; k++) {
      long double above = k + 1 < finite ? magnitude_of(f, k + 1)
                                         : 2 * magnitude_of(f, k) - magnitude_of(f, k - 1);
      double middle = (double)((magnitude_of(f, k) + above) / 2);
      double near[] = {middle, -middle, nextafter(middle, 0), nextafter(middle, INFINITY),
                       -nextafter(middle, 0), -nextafter(middle, INFINITY)};
      memcpy(&x[k * 6], near, sizeof near);
    }
    OK(mf_tensor_astype(dst, src, &spec_err));
    for (int64_t k = 0; k < n; k++) {
      unsigned got = (unsigned)raw_at(mf_tensor_dltensor(dst), k);
      if (!as_expected(f, encoded(f, (long double)x[k]), got))
        fail_msg("float64 %.20g became %s 0x%x", x[k], f->name, got);
    }
    mf_tensor_release(src);
    mf_tensor_release(dst);
  }
}

/* Too large for the caches, and no two elements of a cache line near each other in the walk. */
static void a_large_view_of_elements_far_apart(void **state) {
  enum { ROWS = 1 << 16, COLUMNS = 8 };
  const int64_t apart[] = {17, 2}, pitched[] = {9, 1};
  (void)state;
  int32_t *from = calloc(ROWS, 17 * sizeof *from);
  int16_t *to = calloc(ROWS, 9 * sizeof *to);
  assert_true(from != NULL && to != NULL);
  for (int i = 0; i < ROWS * 17; i++) from[i] = i % 30011;
  mf_tensor *src = spec_wrap(from, "int32", DIMS(ROWS, COLUMNS), apart);
  mf_tensor *dst = spec_wrap(to, "int16", DIMS(ROWS, COLUMNS), pitched);
  OK(mf_tensor_astype(dst, src, &spec_err));
  for (int i = 0; i < ROWS; i++) {
    for (int k = 0; k < COLUMNS; k++) assert_int_equal(to[i * 9 + k], from[i * 17 + 2 * k]);
    assert_int_equal(to[i * 9 + COLUMNS], 0);
  }
  mf_tensor_release(src);
  mf_tensor_release(dst);
  free(from);
  free(to);
}

/* The first reason is told, and nothing is written. */
static void what_cannot_be_cast(void **state) {
  float from[12] = {1, 2, 3, 4, 5, 6};
  int8_t to[6], untouched[6];
  (void)state;
  memset(to, 7, sizeof to);
  memset(untouched, 7, sizeof untouched);
  mf_tensor *src = spec_wrap(from, "float32", DIMS(6), NULL), *dst = spec_wrap(to, "int8", DIMS(6), NULL);
  mf_tensor *shorter = spec_wrap(to, "int8", DIMS(5), NULL), *complex = spec_wrap(from, "complex64", DIMS(5), NULL);
  mf_tensor *readonly;
  OK(mf_tensor_as_readonly(dst, &readonly, &spec_err));
  FAILS(MF_EINVAL, mf_tensor_astype(shorter, src, &spec_err));
  FAILS(MF_EDTYPE, mf_tensor_astype(dst, complex, &spec_err));
  FAILS(MF_EREADONLY, mf_tensor_astype(readonly, complex, &spec_err));
  OK(mf_tensor_invalidate(src, NULL, &spec_err));
  FAILS(MF_ECLOSED, mf_tensor_astype(dst, src, &spec_err));
  FAILS(MF_ECLOSED, mf_tensor_astype(shorter, src, &spec_err));
  FAILS(MF_EREADONLY, mf_tensor_astype(readonly, src, &spec_err));
  OK(mf_tensor_invalidate(complex, NULL, &spec_err));
  FAILS(MF_ECLOSED, mf_tensor_astype(dst, complex, &spec_err));
  assert_memory_equal(to, untouched, sizeof to);
  mf_tensor *all[] = {src, dst, shorter, complex, readonly};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(what_cannot_be_cast),
      SPEC(a_large_view_of_elements_far_apart),
      SPEC(narrow_floats_are_read_exactly),
      SPEC(narrow_floats_round_once),
      SPEC(every_pair),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
