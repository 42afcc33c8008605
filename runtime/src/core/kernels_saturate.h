/* kernels_saturate.h: loops from floats, doubles and bfloat16 to integers of up to 32 bits. Numbers beyond the integer
 * type become its least or largest integer, and NaN becomes 0. Included by kernels_convert.h. */

static inline float bf16_as_float(uint16_t x) {
  return as_float((uint32_t)x << 16);
}

#if !defined(__AVX2__) || defined(__AVX512F__)
/* Saturation before the conversion, which would be undefined outside. A compiler that knows the limits
 * makes more of the comparisons than the two instructions that they are, and so it does not know them. */
#if defined(__x86_64__)
#define FLOAT_REGISTER "x"
#else
#define FLOAT_REGISTER "w"
#endif
#define CLAMPED_FROM(name, raw, from, value, to, wide, lo, hi)                                        \
  SOME(name) {                                                                                       \
    from least = (lo), most = (hi);                                                                  \
    __asm__("" : "+" FLOAT_REGISTER(least), "+" FLOAT_REGISTER(most));                               \
    (void)f;                                                                                         \
    MF__NO_UNROLL for (int64_t i = 0; i < n; i++) {                                                  \
      raw x;                                                                                         \
      memcpy(&x, (const char *)in + i * (int64_t)sizeof x, sizeof x);                                \
      const from number = (value), low = number > least ? number : least, both = low < most ? low : most; \
      const to y = (to)(wide)(number == number ? both : 0);                                          \
      memcpy((char *)out + i * (int64_t)sizeof y, &y, sizeof y);                                     \
    }                                                                                                \
  }                                                                                                  \
  PASSING(name, (int64_t)sizeof(raw), (int64_t)sizeof(to))
#define CLAMPED(name, from, to, wide, lo, hi) CLAMPED_FROM(name, from, from, x, to, wide, lo, hi)

CLAMPED(f32_to_i8, float, int8_t, int32_t, INT8_MIN, INT8_MAX)
CLAMPED(f32_to_u8, float, uint8_t, int32_t, 0, UINT8_MAX)
CLAMPED(f32_to_i16, float, int16_t, int32_t, INT16_MIN, INT16_MAX)
CLAMPED(f32_to_u16, float, uint16_t, int32_t, 0, UINT16_MAX)
CLAMPED(f64_to_i8, double, int8_t, int32_t, INT8_MIN, INT8_MAX)
CLAMPED(f64_to_u8, double, uint8_t, int32_t, 0, UINT8_MAX)
CLAMPED(f64_to_i16, double, int16_t, int32_t, INT16_MIN, INT16_MAX)
CLAMPED(f64_to_u16, double, uint16_t, int32_t, 0, UINT16_MAX)
CLAMPED(f64_to_i32, double, int32_t, int32_t, INT32_MIN, INT32_MAX)
CLAMPED(f64_to_u32, double, uint32_t, uint32_t, 0, UINT32_MAX)
CLAMPED_FROM(bf16_to_i8, uint16_t, float, bf16_as_float(x), int8_t, int32_t, INT8_MIN, INT8_MAX)
CLAMPED_FROM(bf16_to_u8, uint16_t, float, bf16_as_float(x), uint8_t, int32_t, 0, UINT8_MAX)
CLAMPED_FROM(bf16_to_i16, uint16_t, float, bf16_as_float(x), int16_t, int32_t, INT16_MIN, INT16_MAX)
CLAMPED_FROM(bf16_to_u16, uint16_t, float, bf16_as_float(x), uint16_t, int32_t, 0, UINT16_MAX)
#undef CLAMPED
#undef CLAMPED_FROM
#undef FLOAT_REGISTER
#endif

VECTOR_LOOP(f32_to_i32, float, int32_t, f32_as_i32(x))
VECTOR_LOOP(f32_to_u32, float, uint32_t, f32_as_u32(x))
VECTOR_LOOP(bf16_to_i32, uint16_t, int32_t, f32_as_i32(bf16_as_float(x)))
VECTOR_LOOP(bf16_to_u32, uint16_t, uint32_t, f32_as_u32(bf16_as_float(x)))

#ifdef __AVX512F__
static inline __m512i sixteen_i32(__m512 x) {
  const __mmask16 number = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
  const __mmask16 over = _mm512_cmp_ps_mask(x, _mm512_set1_ps(0x1p31f), _CMP_GE_OQ);
  const __m512i y = _mm512_maskz_cvttps_epi32(number, x);
  return _mm512_mask_mov_epi32(y, over, _mm512_set1_epi32(INT32_MAX));
}

/* The instruction gives the largest uint32_t for numbers beyond it. */
static inline __m512i sixteen_u32(__m512 x) {
  return _mm512_maskz_cvttps_epu32(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ), x);
}

static inline __m512 sixteen_bf16(const char *from) {
  const __m256i codes = _mm256_loadu_si256((const __m256i *)(const void *)from);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(codes), 16));
}

#define TO_INTS(name, size, floats, ints)                                                            \
  SOME(name) {                                                                                       \
    int64_t i = 0;                                                                                   \
    for (; i + 16 <= n; i += 16)                                                                     \
      _mm512_storeu_si512((char *)out + i * 4, ints(floats((const char *)in + i * (size))));         \
    name##_rest_some((char *)out + i * 4, (const char *)in + i * (size), n - i, f);                  \
  }                                                                                                  \
  PASSING(name, size, 4)
TO_INTS(f32_to_i32, 4, sixteen_floats, sixteen_i32)
TO_INTS(f32_to_u32, 4, sixteen_floats, sixteen_u32)
TO_INTS(bf16_to_i32, 2, sixteen_bf16, sixteen_i32)
TO_INTS(bf16_to_u32, 2, sixteen_bf16, sixteen_u32)
#undef TO_INTS
#elif defined(__AVX2__)
#include "core/kernels_narrow.h"
#endif
