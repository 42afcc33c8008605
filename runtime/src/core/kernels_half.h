/* kernels_half.h: loops between float16 and floats or doubles, where instructions convert float16. Included by
 * kernels_convert.h, whose invariant they keep; its loops for single elements, ${name}_rest, take what fills no
 * vector. */
#ifdef __F16C__
/* The instructions round as the loops above do; a NaN's payload is taken from it first. */
static inline __m128i eight_f16(__m256 x) {
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32((int)NAN_BITS));
  return _mm256_cvtps_ph(_mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q)), _MM_FROUND_TO_NEAREST_INT);
}

#ifdef __AVX512F__
static inline __m256i sixteen_f16(__m512 x) {
  const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32((int)NAN_BITS));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtps_ph(_mm512_mask_mov_ps(x, is_nan, nan), _MM_FROUND_TO_NEAREST_INT);
}

static inline __m512 sixteen_f32(const char *from) {
  const __m512 x = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
  const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32((int)NAN_BITS));
  return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan);
}
#endif

SOME(f32_to_f16) {
  const char *from = in;
  char *to = out;
  int64_t i = 0;
#ifdef __AVX512F__
  for (; i + 32 <= n; i += 32) {
    const __m256i low = sixteen_f16(sixteen_floats(from + i * 4));
    const __m256i high = sixteen_f16(sixteen_floats(from + i * 4 + 64));
    _mm512_storeu_si512(to + i * 2, side_by_side(low, high));
  }
#endif
  for (; i + 16 <= n; i += 16) {
    const __m128i low = eight_f16(_mm256_loadu_ps((const float *)(const void *)(from + i * 4)));
    const __m128i high = eight_f16(_mm256_loadu_ps((const float *)(const void *)(from + i * 4 + 32)));
    _mm256_storeu_si256((__m256i *)(void *)(to + i * 2), _mm256_set_m128i(high, low));
  }
  for (; i + 8 <= n; i += 8) {
    const __m256 x = _mm256_loadu_ps((const float *)(const void *)(from + i * 4));
    _mm_storeu_si128((__m128i *)(void *)(to + i * 2), eight_f16(x));
  }
  f32_to_f16_rest_some(to + i * 2, from + i * 4, n - i, f);
}
PASSING(f32_to_f16, 4, 2)

SOME(f16_to_f32) {
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32((int)NAN_BITS));
  int64_t i = 0;
#ifdef __AVX512F__
  for (; i + 16 <= n; i += 16) _mm512_storeu_ps((float *)out + i, sixteen_f32((const char *)in + i * 2));
#endif
  for (; i + 8 <= n; i += 8) {
    const __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)((const char *)in + i * 2)));
    _mm256_storeu_ps((float *)out + i, _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
  }
  f16_to_f32_rest_some((char *)out + i * 4, (const char *)in + i * 2, n - i, f);
}
PASSING(f16_to_f32, 2, 4)
#endif

#ifdef __AVX512F__
SOME(f64_to_f16) {
  float between[16];
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i y = sixteen_f16(sixteen_of_odd((const char *)in + i * 8));
    _mm256_storeu_si256((__m256i *)(void *)((char *)out + i * 2), y);
  }
  odd_some(between, (const char *)in + i * 8, n - i, f);
  f32_to_f16_rest_some((char *)out + i * 2, between, n - i, f);
}
PASSING(f64_to_f16, 8, 2)
#elif defined(__F16C__)
/* Eight doubles by way of the nearest floats. False if one of those is a tie between two float16, on either side of
 * which the double may have been, or is below the least normal float16, where ties look different. */
static inline bool eight_f64(const char *from, __m128i *out) {
  const __m128 low = _mm256_cvtpd_ps(_mm256_loadu_pd((const double *)(const void *)from));
  const __m128 high = _mm256_cvtpd_ps(_mm256_loadu_pd((const double *)(const void *)(from + 32)));
  const __m256 x = _mm256_set_m128(high, low);
  const __m256i bits = _mm256_castps_si256(x), behind = _mm256_and_si256(bits, _mm256_set1_epi32(0x1fff));
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(INT32_MAX));
  const __m256i but_zero = _mm256_sub_epi32(magnitude, _mm256_set1_epi32(1));
  const __m256i least = _mm256_min_epu32(but_zero, _mm256_set1_epi32(0x38800000 - 2));
  const __m256i tie = _mm256_cmpeq_epi32(behind, _mm256_set1_epi32(0x1000));
  const __m256i slow = _mm256_or_si256(tie, _mm256_cmpeq_epi32(least, but_zero));
  *out = eight_f16(x);
  return _mm256_testz_si256(slow, slow);
}

SOME(f64_to_f16) {
  float between[16];
  const char *from = in;
  char *to = out;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m128i low, high;
    if (eight_f64(from + i * 8, &low) && eight_f64(from + i * 8 + 64, &high)) {
      _mm256_storeu_si256((__m256i *)(void *)(to + i * 2), _mm256_set_m128i(high, low));
    } else {
      odd_some(between, from + i * 8, 16, f);
      f32_to_f16_some(to + i * 2, between, 16, f);
    }
  }
  odd_some(between, from + i * 8, n - i, f);
  f32_to_f16_rest_some(to + i * 2, between, n - i, f);
}
PASSING(f64_to_f16, 8, 2)
#else
#define f64_to_f16 NULL
#endif
