/* kernels_bf16.h: loops to and from bfloat16, which has a float's sign and exponent, so that rounding is one addition.
 * Included by kernels_convert.h, whose invariant they keep. */

static inline uint16_t rounded_bits(uint32_t bits) {
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static inline float nan_at_once(float x) {
  return x == x ? x : as_float(NAN_BITS);
}
LOOP(bf16_to_f32, uint16_t, float, nan_at_once(as_float((uint32_t)x << 16)))
AVX2_LOOP(bf16_to_f64, uint16_t, double, (double)nan_at_once(as_float((uint32_t)x << 16)))
LOOP(bf16_to_bool, uint16_t, uint8_t, (x & 0x7fffu) != 0)

/* bfloat16 holds every integer of 8 bits exactly. */
LOOP(bool_to_bf16, uint8_t, uint16_t, x != 0 ? 0x3f80u : 0)
LOOP(i8_to_bf16, int8_t, uint16_t, (uint16_t)(as_bits((float)x) >> 16))
LOOP(u8_to_bf16, uint8_t, uint16_t, (uint16_t)(as_bits((float)x) >> 16))
LOOP(i16_to_bf16, int16_t, uint16_t, rounded_bits(as_bits((float)x)))
LOOP(u16_to_bf16, uint16_t, uint16_t, rounded_bits(as_bits((float)x)))

/* In a block of small integers a float holds each one exactly, so that none has to be made odd first. */
#define INTS_TO_BF16(name, from, bias, as_odd)                                                       \
  EACH(name##_small, from, uint16_t, rounded_bits(as_bits((float)x)))                                \
  EACH(name##_large, from, uint16_t, rounded_bits(as_bits(as_odd(x))))                               \
  SOME(name) {                                                                                       \
    for (int64_t i = 0; i < n; i += BLOCK) {                                                         \
      const int64_t count = n - i < BLOCK ? n - i : BLOCK;                                           \
      const char *block = (const char *)in + i * 4;                                                  \
      uint32_t seen = 0;                                                                             \
      for (int64_t k = 0; k < count; k++) {                                                          \
        uint32_t x;                                                                                  \
        memcpy(&x, block + k * 4, sizeof x);                                                         \
        seen |= x + (bias);                                                                          \
      }                                                                                              \
      if (seen < 0x1000000u)                                                                         \
        name##_small_some((char *)out + i * 2, block, count, f);                                     \
      else                                                                                           \
        name##_large_some((char *)out + i * 2, block, count, f);                                     \
    }                                                                                                \
  }                                                                                                  \
  PASSING(name, 4, 2)
INTS_TO_BF16(i32_to_bf16, int32_t, 0x800000u, i32_as_odd)
INTS_TO_BF16(u32_to_bf16, uint32_t, 0, u32_as_odd)
#undef INTS_TO_BF16

VECTOR_LOOP(f32_to_bf16, uint32_t, uint16_t, (x & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded_bits(x))
#ifdef __AVX512F__
/* The upper half of each of these is the result. */
static inline __m512i rounded_bf16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x), one = _mm512_set1_epi32(1);
  const __m512i last = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
  const __m512i near = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), last);
  return _mm512_mask_mov_epi32(near, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32((int)NAN_BITS));
}

static inline void put_bf16(char *to, __m512 x) {
  const __m256i codes = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded_bf16(x), 16));
  _mm256_storeu_si256((__m256i *)(void *)to, codes);
}

static inline __m512i two_bf16(__m512 low, __m512 high) {
  return _mm512_permutex2var_epi16(rounded_bf16(low), _mm512_load_si512(upper_halves), rounded_bf16(high));
}

SOME(f32_to_bf16) {
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const char *from = (const char *)in + i * 4;
    _mm512_storeu_si512((char *)out + i * 2, two_bf16(sixteen_floats(from), sixteen_floats(from + 64)));
  }
  for (; i + 16 <= n; i += 16) put_bf16((char *)out + i * 2, sixteen_floats((const char *)in + i * 4));
  f32_to_bf16_rest_some((char *)out + i * 2, (const char *)in + i * 4, n - i, f);
}
PASSING(f32_to_bf16, 4, 2)

SOME(f64_to_bf16) {
  float between[16];
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const char *from = (const char *)in + i * 8;
    _mm512_storeu_si512((char *)out + i * 2, two_bf16(sixteen_of_odd(from), sixteen_of_odd(from + 128)));
  }
  for (; i + 16 <= n; i += 16) put_bf16((char *)out + i * 2, sixteen_of_odd((const char *)in + i * 8));
  odd_some(between, (const char *)in + i * 8, n - i, f);
  f32_to_bf16_rest_some((char *)out + i * 2, between, n - i, f);
}
PASSING(f64_to_bf16, 8, 2)
#elif defined(__AVX2__)
SOME(bf16_to_f64) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)((const char *)in + i * 2));
    const __m256 x = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16));
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32((int)NAN_BITS));
    const __m256 y = _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    _mm256_storeu_pd((double *)out + i, _mm256_cvtps_pd(_mm256_castps256_ps128(y)));
    _mm256_storeu_pd((double *)out + i + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(y, 1)));
  }
  bf16_to_f64_rest_some((char *)out + i * 8, (const char *)in + i * 2, n - i, f);
}
PASSING(bf16_to_f64, 2, 8)

static inline __m256i eight_rounded_bf16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x), nan = _mm256_set1_epi32((int)NAN_BITS);
  const __m256i last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i near = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), last);
  const __m256 is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  return _mm256_srli_epi32(_mm256_blendv_epi8(near, nan, _mm256_castps_si256(is_nan)), 16);
}

static inline void put_bf16(char *to, __m256 low, __m256 high) {
  const __m256i both = _mm256_packus_epi32(eight_rounded_bf16(low), eight_rounded_bf16(high));
  _mm256_storeu_si256((__m256i *)(void *)to, _mm256_permute4x64_epi64(both, 0xd8));
}

SOME(f32_to_bf16) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const float *from = (const float *)in + i;
    put_bf16((char *)out + i * 2, _mm256_loadu_ps(from), _mm256_loadu_ps(from + 8));
  }
  f32_to_bf16_rest_some((char *)out + i * 2, (const char *)in + i * 4, n - i, f);
}
PASSING(f32_to_bf16, 4, 2)

static inline __m256 eight_nearest(const double *from) {
  return _mm256_set_m128(_mm256_cvtpd_ps(_mm256_loadu_pd(from + 4)), _mm256_cvtpd_ps(_mm256_loadu_pd(from)));
}

/* All bits of those that lie halfway between two bfloat16: their doubles may have been on either side. */
static inline __m256i ties(__m256 x) {
  const __m256i behind = _mm256_slli_epi32(_mm256_castps_si256(x), 16);
  return _mm256_cmpeq_epi32(behind, _mm256_set1_epi32(INT32_MIN));
}

SOME(f64_to_bf16) {
  float between[16];
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const double *from = (const double *)in + i;
    const __m256 low = eight_nearest(from), high = eight_nearest(from + 8);
    const __m256i slow = _mm256_or_si256(ties(low), ties(high));
    if (_mm256_testz_si256(slow, slow)) {
      put_bf16((char *)out + i * 2, low, high);
    } else {
      odd_some(between, from, 16, f);
      f32_to_bf16_some((char *)out + i * 2, between, 16, f);
    }
  }
  odd_some(between, (const char *)in + i * 8, n - i, f);
  f32_to_bf16_rest_some((char *)out + i * 2, between, n - i, f);
}
PASSING(f64_to_bf16, 8, 2)
#else
#define f64_to_bf16 NULL
#endif
