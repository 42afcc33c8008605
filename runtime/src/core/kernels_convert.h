/* kernels_convert.h: loops from one number type to another, for rows of elements that follow each other. The compiler
 * makes vectors of them; a set of kernels includes this file once, and is compiled for its instructions.
 *
 * Each dtype is loaded into a pivot that holds all of its values, and stored from one: n + m loops, not n * m. Every
 * loop rounds once, or not at all.
 *
 * Invariant: the result is codec.c's to the last bit, that of a NaN included. */

/* Elements may be unaligned, so all access is by memcpy, which compiles to a move. */
#define LOOP(name, from, to, value)                                                                  \
  static void name(void *out, const void *in, int64_t n, const mf__small *f) {                       \
    (void)f;                                                                                         \
    for (int64_t i = 0; i < n; i++) {                                                                \
      from x;                                                                                        \
      memcpy(&x, (const char *)in + i * (int64_t)sizeof x, sizeof x);                                \
      const to y = (value);                                                                          \
      memcpy((char *)out + i * (int64_t)sizeof y, &y, sizeof y);                                     \
    }                                                                                                \
  }

static inline float as_float(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static inline uint32_t as_bits(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

#define NAN_BITS 0x7fc00000u

/* A multiplication rebases the exponent, and makes subnormals right, too. */
static inline uint32_t decoded(uint32_t code, const mf__small *f) {
  const uint32_t magnitude = code & (f->sign - 1);
  const uint32_t sign = (code & f->sign) != 0 ? 0x80000000u : 0;
  uint32_t bits = as_bits(as_float(magnitude << f->shift) * f->scale) | sign;
  bits = magnitude > f->max_finite ? NAN_BITS : bits;
  bits = magnitude == f->infinity ? 0x7f800000u | sign : bits;
  return code == f->nan_alone ? NAN_BITS : bits;
}

/* Below the least normal number, adding a number whose last bit is the format's least step rounds; above it, adding
 * half of the last step that stays does, and what was even goes down on a tie. */
static inline uint32_t encoded(uint32_t bits, const mf__small *f) {
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t sign = (bits & 0x80000000u) != 0 ? f->sign : 0;
  const uint32_t odd = magnitude >> f->shift & 1;
  const uint32_t normal = ((magnitude + f->half + odd) >> f->shift) - f->rebias;
  const uint32_t tiny = as_bits(as_float(magnitude) + as_float(f->step)) - f->step;
  uint32_t code = magnitude < f->least_normal ? tiny : normal;
  code = code > f->max_finite ? f->overflow : code;
  code |= code == f->unsigned_zero || code == f->nan_alone ? 0 : sign;
  return magnitude > 0x7f800000u ? f->nan : code;
}

/* A double to a float with the last bit set if anything was lost: a rounding to a format with fewer bits then still
 * sees on which side of a tie the double lay. The nearest float, or the one before it in value if that is beyond the
 * double; of what is larger than any float, the largest, which has that bit. */
static inline uint32_t rounded_odd(double x) {
  const float near = (float)x;
  const double back = (double)near;
  const bool beyond = __builtin_fabs(back) > __builtin_fabs(x);
  return (as_bits(near) - (beyond ? 1u : 0u)) | (back == x ? 0u : 1u);
}

#ifdef __AVX512F__
LOOP(odd_rest, double, uint32_t, rounded_odd(x))
/* Toward zero at once, which is odd where the last bit is set if that was not exact. */
static void odd(void *out, const void *in, int64_t n, const mf__small *f) {
  const __m256i one = _mm256_set1_epi32(1);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m512d x = _mm512_loadu_pd((const char *)in + i * 8);
    const __m256 near = _mm512_cvt_roundpd_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    const __mmask8 lost = _mm512_cmp_pd_mask(_mm512_cvtps_pd(near), x, _CMP_NEQ_UQ);
    const __m256i bits = _mm256_castps_si256(near);
    _mm256_storeu_si256((__m256i *)(void *)((char *)out + i * 4), _mm256_mask_or_epi32(bits, lost, bits, one));
  }
  odd_rest((char *)out + i * 4, (const char *)in + i * 8, n - i, f);
}
#else
LOOP(odd, double, uint32_t, rounded_odd(x))
#endif

/* Integers as int32_t or int64_t; those that are wider than their target keep their low bits. */
LOOP(bool_to_int, uint8_t, int32_t, x != 0)
LOOP(i8_to_int, int8_t, int32_t, x)
LOOP(u8_to_int, uint8_t, int32_t, x)
LOOP(i16_to_int, int16_t, int32_t, x)
LOOP(u16_to_int, uint16_t, int32_t, x)
LOOP(i32_to_long, int32_t, int64_t, x)
LOOP(u32_to_long, uint32_t, int64_t, x)
LOOP(int_to_bool, int32_t, uint8_t, x != 0)
LOOP(int_to_8, int32_t, uint8_t, (uint8_t)x)
LOOP(int_to_16, int32_t, uint16_t, (uint16_t)x)
LOOP(int_to_f32, int32_t, float, (float)x)
LOOP(long_to_bool, int64_t, uint8_t, x != 0)
LOOP(long_to_8, int64_t, uint8_t, (uint8_t)x)
LOOP(long_to_16, int64_t, uint16_t, (uint16_t)x)
LOOP(long_to_32, int64_t, uint32_t, (uint32_t)x)
LOOP(long_to_f32, int64_t, float, (float)x)
LOOP(long_to_f64, int64_t, double, (double)x)
LOOP(u64_to_f32, uint64_t, float, (float)x)
LOOP(u64_to_f64, uint64_t, double, (double)x)

/* Whatever a float holds exactly. */
LOOP(bool_to_f32, uint8_t, float, x != 0 ? 1.0f : 0.0f)
LOOP(i8_to_f32, int8_t, float, x)
LOOP(u8_to_f32, uint8_t, float, x)
LOOP(i16_to_f32, int16_t, float, x)
LOOP(u16_to_f32, uint16_t, float, x)
LOOP(bf16_to_f32, uint16_t, uint32_t, (x & 0x7fffu) > 0x7f80u ? NAN_BITS : (uint32_t)x << 16)
LOOP(small8_to_f32, uint8_t, uint32_t, decoded(x, f))
LOOP(small16_to_f32, uint16_t, uint32_t, decoded(x, f))
/* bfloat16 has a float's exponent, so that rounding is one addition. */
LOOP(f32_to_bf16, uint32_t, uint16_t,
     (uint16_t)((x & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : (x + 0x7fffu + (x >> 16 & 1)) >> 16))
LOOP(f32_to_small8, uint32_t, uint8_t, (uint8_t)encoded(x, f))
LOOP(f32_to_small16, uint32_t, uint16_t, (uint16_t)encoded(x, f))

LOOP(i32_to_f64, int32_t, double, x)
LOOP(u32_to_f64, uint32_t, double, x)
LOOP(f32_to_f64, float, double, (double)x)
LOOP(f64_to_f32, double, float, (float)x)

/* Saturation before the conversion, which would be undefined outside; NaN fails every comparison and becomes 0. */
#define CLAMPED(type)                                                                                \
  static inline type clamped_##type(type x, type lo, type hi) {                                      \
    const type low = x > lo ? x : lo, both = low < hi ? low : hi;                                    \
    return x == x ? both : 0;                                                                        \
  }
CLAMPED(float)
CLAMPED(double)

/* Where the upper end is no float: what is not below it is the largest integer. */
#define SATURATED(name, type, integer, least, most, end)                                             \
  static inline integer name(type x) {                                                               \
    const integer y = (integer)(x >= (least) && x < (end) ? x : 0);                                  \
    return x >= (end) ? (most) : x < (least) ? (integer)(least) : y;                                 \
  }
SATURATED(f32_as_i32, float, int32_t, -0x1p31f, INT32_MAX, 0x1p31f)
SATURATED(f32_as_u32, float, uint32_t, 0.0f, UINT32_MAX, 0x1p32f)
SATURATED(f32_as_i64, float, int64_t, -0x1p63f, INT64_MAX, 0x1p63f)
SATURATED(f32_as_u64, float, uint64_t, 0.0f, UINT64_MAX, 0x1p64f)
SATURATED(f64_as_i64, double, int64_t, -0x1p63, INT64_MAX, 0x1p63)
SATURATED(f64_as_u64, double, uint64_t, 0.0, UINT64_MAX, 0x1p64)

LOOP(f32_to_bool, float, uint8_t, !(x == 0))
LOOP(f32_to_i8, float, int8_t, (int8_t)(int32_t)clamped_float(x, INT8_MIN, INT8_MAX))
LOOP(f32_to_u8, float, uint8_t, (uint8_t)(int32_t)clamped_float(x, 0, UINT8_MAX))
LOOP(f32_to_i16, float, int16_t, (int16_t)(int32_t)clamped_float(x, INT16_MIN, INT16_MAX))
LOOP(f32_to_u16, float, uint16_t, (uint16_t)(int32_t)clamped_float(x, 0, UINT16_MAX))
LOOP(f32_to_i32, float, int32_t, f32_as_i32(x))
LOOP(f32_to_u32, float, uint32_t, f32_as_u32(x))
LOOP(f32_to_i64, float, int64_t, f32_as_i64(x))
LOOP(f32_to_u64, float, uint64_t, f32_as_u64(x))
LOOP(f64_to_bool, double, uint8_t, !(x == 0))
LOOP(f64_to_i8, double, int8_t, (int8_t)(int32_t)clamped_double(x, INT8_MIN, INT8_MAX))
LOOP(f64_to_u8, double, uint8_t, (uint8_t)(int32_t)clamped_double(x, 0, UINT8_MAX))
LOOP(f64_to_i16, double, int16_t, (int16_t)(int32_t)clamped_double(x, INT16_MIN, INT16_MAX))
LOOP(f64_to_u16, double, uint16_t, (uint16_t)(int32_t)clamped_double(x, 0, UINT16_MAX))
LOOP(f64_to_i32, double, int32_t, (int32_t)clamped_double(x, INT32_MIN, INT32_MAX))
LOOP(f64_to_u32, double, uint32_t, (uint32_t)(int64_t)clamped_double(x, 0, UINT32_MAX))
LOOP(f64_to_i64, double, int64_t, f64_as_i64(x))
LOOP(f64_to_u64, double, uint64_t, f64_as_u64(x))

#ifdef __F16C__
/* The instructions round as the loops above do; a NaN's payload is taken from it first. */
static void f32_to_f16(void *out, const void *in, int64_t n, const mf__small *f) {
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32((int)NAN_BITS));
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 x = _mm256_loadu_ps((const float *)in + i);
    const __m256 y = _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    _mm_storeu_si128((__m128i *)(void *)((char *)out + i * 2), _mm256_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT));
  }
  f32_to_small16((char *)out + i * 2, (const char *)in + i * 4, n - i, f);
}

static void f16_to_f32(void *out, const void *in, int64_t n, const mf__small *f) {
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32((int)NAN_BITS));
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)((const char *)in + i * 2)));
    _mm256_storeu_ps((float *)out + i, _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
  }
  small16_to_f32((char *)out + i * 4, (const char *)in + i * 2, n - i, f);
}
#else
#define f32_to_f16 f32_to_small16
#define f16_to_f32 small16_to_f32
#endif

#define SAME(type)                                                                                   \
  static bool same_##type(const void *a, const void *b, int64_t n) {                                 \
    uint32_t differ = 0;                                                                             \
    for (int64_t i = 0; i < n; i++) {                                                                \
      type x, y;                                                                                     \
      memcpy(&x, (const char *)a + i * (int64_t)sizeof x, sizeof x);                                 \
      memcpy(&y, (const char *)b + i * (int64_t)sizeof y, sizeof y);                                 \
      differ |= x == y ? 0u : 1u;                                                                    \
    }                                                                                                \
    return differ == 0;                                                                              \
  }
SAME(float)
SAME(double)

static const mf__loops loops = {
    .same_f32 = same_float,
    .same_f64 = same_double,
    .odd = odd,
    .load = {
        [MF__P_INT] = {[MF__N_BOOL] = bool_to_int, [MF__N_I8] = i8_to_int, [MF__N_U8] = u8_to_int,
                       [MF__N_I16] = i16_to_int, [MF__N_U16] = u16_to_int},
        [MF__P_LONG] = {[MF__N_I32] = i32_to_long, [MF__N_U32] = u32_to_long},
        [MF__P_F32] = {[MF__N_BOOL] = bool_to_f32, [MF__N_I8] = i8_to_f32, [MF__N_U8] = u8_to_f32,
                       [MF__N_I16] = i16_to_f32, [MF__N_U16] = u16_to_f32, [MF__N_SMALL8] = small8_to_f32,
                       [MF__N_BF16] = bf16_to_f32, [MF__N_F16] = f16_to_f32},
        [MF__P_F64] = {[MF__N_I32] = i32_to_f64, [MF__N_U32] = u32_to_f64},
    },
    .store = {
        [MF__P_INT] = {[MF__N_BOOL] = int_to_bool, [MF__N_I8] = int_to_8, [MF__N_U8] = int_to_8,
                       [MF__N_I16] = int_to_16, [MF__N_U16] = int_to_16, [MF__N_I64] = i32_to_long,
                       [MF__N_U64] = i32_to_long, [MF__N_F32] = int_to_f32},
        [MF__P_LONG] = {[MF__N_BOOL] = long_to_bool, [MF__N_I8] = long_to_8, [MF__N_U8] = long_to_8,
                        [MF__N_I16] = long_to_16, [MF__N_U16] = long_to_16, [MF__N_I32] = long_to_32,
                        [MF__N_U32] = long_to_32, [MF__N_F32] = long_to_f32, [MF__N_F64] = long_to_f64},
        [MF__P_U64] = {[MF__N_F32] = u64_to_f32, [MF__N_F64] = u64_to_f64},
        [MF__P_F32] = {[MF__N_BOOL] = f32_to_bool, [MF__N_I8] = f32_to_i8, [MF__N_U8] = f32_to_u8,
                       [MF__N_I16] = f32_to_i16, [MF__N_U16] = f32_to_u16, [MF__N_I32] = f32_to_i32,
                       [MF__N_U32] = f32_to_u32, [MF__N_I64] = f32_to_i64, [MF__N_U64] = f32_to_u64,
                       [MF__N_SMALL8] = f32_to_small8, [MF__N_BF16] = f32_to_bf16, [MF__N_F16] = f32_to_f16,
                       [MF__N_F64] = f32_to_f64},
        [MF__P_F64] = {[MF__N_BOOL] = f64_to_bool, [MF__N_I8] = f64_to_i8, [MF__N_U8] = f64_to_u8,
                       [MF__N_I16] = f64_to_i16, [MF__N_U16] = f64_to_u16, [MF__N_I32] = f64_to_i32,
                       [MF__N_U32] = f64_to_u32, [MF__N_I64] = f64_to_i64, [MF__N_U64] = f64_to_u64,
                       [MF__N_F32] = f64_to_f32},
    },
};

#undef LOOP
#undef SAME
#undef CLAMPED
#undef SATURATED
