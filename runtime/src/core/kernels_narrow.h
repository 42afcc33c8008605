/* kernels_narrow.h: the loops of kernels_saturate.h for AVX2, whose instructions saturate integers when they pack them
 * into narrower ones. The instruction that converts a float gives the least int32_t for NaN and for whatever fits no
 * int32_t. */

static inline __m256 eight_floats(const char *from) {
  return _mm256_loadu_ps((const float *)(const void *)from);
}

static inline __m256 eight_bf16(const char *from) {
  const __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)from);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16));
}

/* A float that is too large has become the least int32_t. The bits of the largest one are the inverse of those. */
static inline __m256i eight_i32(__m256 x) {
  const __m256i over = _mm256_castps_si256(_mm256_cmp_ps(x, _mm256_set1_ps(0x1p31f), _CMP_GE_OQ));
  const __m256i number = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_ORD_Q));
  return _mm256_and_si256(_mm256_xor_si256(_mm256_cvttps_epi32(x), over), number);
}

/* Floats from 2^31 on lose 2^31 before they are converted, and get it back as a bit. */
static inline __m256i eight_u32(__m256 x) {
  const __m256 half = _mm256_set1_ps(0x1p31f), y = _mm256_max_ps(x, _mm256_setzero_ps());
  const __m256 upper = _mm256_cmp_ps(y, half, _CMP_GE_OQ), over = _mm256_cmp_ps(y, _mm256_set1_ps(0x1p32f), _CMP_GE_OQ);
  const __m256i low = _mm256_cvttps_epi32(_mm256_sub_ps(y, _mm256_and_ps(upper, half)));
  const __m256i bits = _mm256_xor_si256(low, _mm256_slli_epi32(_mm256_castps_si256(upper), 31));
  return _mm256_or_si256(bits, _mm256_castps_si256(over));
}

/* Eight integers of ${most} at most. Packing with unsigned saturation makes 0 of NaN; before signed packing, NaN must
 * become 0 here. */
static inline __m256i eight_below(__m256 x, float most, bool is_unsigned) {
  const __m256i y = _mm256_cvttps_epi32(_mm256_min_ps(_mm256_set1_ps(most), x));
  return is_unsigned ? y : _mm256_and_si256(y, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_ORD_Q)));
}

static inline __m256i floats_below(const char *from, double most, bool is_unsigned) {
  return eight_below(eight_floats(from), (float)most, is_unsigned);
}

static inline __m256i bf16_below(const char *from, double most, bool is_unsigned) {
  return eight_below(eight_bf16(from), (float)most, is_unsigned);
}

static inline __m128i four_below(const char *from, double most, bool is_unsigned) {
  const __m256d given = _mm256_loadu_pd((const double *)(const void *)from);
  const __m256d x = is_unsigned ? given : _mm256_and_pd(given, _mm256_cmp_pd(given, given, _CMP_ORD_Q));
  return _mm256_cvttpd_epi32(_mm256_min_pd(_mm256_set1_pd(most), x));
}

static inline __m256i doubles_below(const char *from, double most, bool is_unsigned) {
  return _mm256_set_m128i(four_below(from + 32, most, is_unsigned), four_below(from, most, is_unsigned));
}

/* For the elements that fill no vector of the loops below. */
#define ONE_BY_ONE(name, raw, from, value, to, lo, hi)                                               \
  static inline to name##_one(raw x) {                                                               \
    const from number = (value), low = number > (lo) ? number : (lo), both = low < (hi) ? low : (hi); \
    return (to)(int64_t)(number == number ? both : 0);                                               \
  }                                                                                                  \
  EACH(name##_rest, raw, to, name##_one(x))

#define TO_BYTES(name, size, below, pack, most, is_unsigned)                                         \
  SOME(name) {                                                                                       \
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);                                 \
    int64_t i = 0;                                                                                   \
    for (; i + 32 <= n; i += 32) {                                                                   \
      const char *from = (const char *)in + i * (size);                                              \
      const __m256i a = below(from, most, is_unsigned), b = below(from + 8 * (size), most, is_unsigned); \
      const __m256i c = below(from + 16 * (size), most, is_unsigned);                                \
      const __m256i d = below(from + 24 * (size), most, is_unsigned);                                \
      const __m256i bytes = pack(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));                \
      _mm256_storeu_si256((__m256i *)(void *)((char *)out + i), _mm256_permutevar8x32_epi32(bytes, order)); \
    }                                                                                                \
    for (; i + 16 <= n; i += 16) {                                                                   \
      const char *from = (const char *)in + i * (size);                                              \
      const __m256i a = below(from, most, is_unsigned), b = below(from + 8 * (size), most, is_unsigned); \
      const __m256i shorts = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);               \
      const __m256i bytes = _mm256_permute4x64_epi64(pack(shorts, shorts), 0xd8);                    \
      _mm_storeu_si128((__m128i *)(void *)((char *)out + i), _mm256_castsi256_si128(bytes));         \
    }                                                                                                \
    name##_rest_some((char *)out + i, (const char *)in + i * (size), n - i, f);                      \
  }                                                                                                  \
  PASSING(name, size, 1)

#define TO_SHORTS(name, size, below, pack, most, is_unsigned)                                        \
  SOME(name) {                                                                                       \
    int64_t i = 0;                                                                                   \
    for (; i + 16 <= n; i += 16) {                                                                   \
      const char *from = (const char *)in + i * (size);                                              \
      const __m256i a = below(from, most, is_unsigned), b = below(from + 8 * (size), most, is_unsigned); \
      const __m256i shorts = _mm256_permute4x64_epi64(pack(a, b), 0xd8);                             \
      _mm256_storeu_si256((__m256i *)(void *)((char *)out + i * 2), shorts);                         \
    }                                                                                                \
    name##_rest_some((char *)out + i * 2, (const char *)in + i * (size), n - i, f);                  \
  }                                                                                                  \
  PASSING(name, size, 2)

#define TO_NARROW(from, raw, type, value, below)                                                     \
  ONE_BY_ONE(from##_to_i8, raw, type, value, int8_t, INT8_MIN, INT8_MAX)                             \
  ONE_BY_ONE(from##_to_u8, raw, type, value, uint8_t, 0, UINT8_MAX)                                  \
  ONE_BY_ONE(from##_to_i16, raw, type, value, int16_t, INT16_MIN, INT16_MAX)                         \
  ONE_BY_ONE(from##_to_u16, raw, type, value, uint16_t, 0, UINT16_MAX)                               \
  TO_BYTES(from##_to_i8, (int64_t)sizeof(raw), below, _mm256_packs_epi16, INT8_MAX, false)           \
  TO_BYTES(from##_to_u8, (int64_t)sizeof(raw), below, _mm256_packus_epi16, UINT8_MAX, true)          \
  TO_SHORTS(from##_to_i16, (int64_t)sizeof(raw), below, _mm256_packs_epi32, INT16_MAX, false)        \
  TO_SHORTS(from##_to_u16, (int64_t)sizeof(raw), below, _mm256_packus_epi32, UINT16_MAX, true)
TO_NARROW(f32, float, float, x, floats_below)
TO_NARROW(f64, double, double, x, doubles_below)
TO_NARROW(bf16, uint16_t, float, bf16_as_float(x), bf16_below)

/* Adding 2^52 to a whole number puts it into the last bits of the double. */
static inline __m256i eight_u32_of_doubles(const char *from) {
  __m256 halves[2];
  MF__UNROLL for (int k = 0; k < 2; k++) {
    const __m256d x = _mm256_loadu_pd((const double *)(const void *)(from + k * 32));
    const __m256d y = _mm256_min_pd(_mm256_max_pd(x, _mm256_setzero_pd()), _mm256_set1_pd(UINT32_MAX));
    const __m256d whole = _mm256_round_pd(y, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    halves[k] = _mm256_castpd_ps(_mm256_add_pd(whole, _mm256_set1_pd(0x1p52)));
  }
  return _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(halves[0], halves[1], 0x88)), 0xd8);
}

static inline __m256i eight_i32_of_doubles(const char *from) {
  return doubles_below(from, INT32_MAX, false);
}

static inline __m256i eight_i32_of_floats(const char *from) { return eight_i32(eight_floats(from)); }
static inline __m256i eight_u32_of_floats(const char *from) { return eight_u32(eight_floats(from)); }
static inline __m256i eight_i32_of_bf16(const char *from) { return eight_i32(eight_bf16(from)); }
static inline __m256i eight_u32_of_bf16(const char *from) { return eight_u32(eight_bf16(from)); }

#define TO_INTS(name, size, ints)                                                                    \
  SOME(name) {                                                                                       \
    int64_t i = 0;                                                                                   \
    for (; i + 8 <= n; i += 8)                                                                       \
      _mm256_storeu_si256((__m256i *)(void *)((char *)out + i * 4), ints((const char *)in + i * (size))); \
    name##_rest_some((char *)out + i * 4, (const char *)in + i * (size), n - i, f);                  \
  }                                                                                                  \
  PASSING(name, size, 4)
ONE_BY_ONE(f64_to_i32, double, double, x, int32_t, INT32_MIN, INT32_MAX)
ONE_BY_ONE(f64_to_u32, double, double, x, uint32_t, 0, UINT32_MAX)
TO_INTS(f32_to_i32, 4, eight_i32_of_floats)
TO_INTS(f32_to_u32, 4, eight_u32_of_floats)
TO_INTS(bf16_to_i32, 2, eight_i32_of_bf16)
TO_INTS(bf16_to_u32, 2, eight_u32_of_bf16)
TO_INTS(f64_to_i32, 8, eight_i32_of_doubles)
TO_INTS(f64_to_u32, 8, eight_u32_of_doubles)
#undef TO_INTS
#undef TO_NARROW
#undef TO_SHORTS
#undef TO_BYTES
#undef ONE_BY_ONE
