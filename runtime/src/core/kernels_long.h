/* kernels_long.h: loops between 64-bit integers and floats for AVX2, which has no instructions for them: where none of
 * a few numbers is beyond an int32_t, by way of those, and else out of their bits. Included by kernels_convert.h, whose
 * invariant they keep; its loop for single elements, ${name}_rest, takes what fills no vector. */
#define VECTOR(from) _mm256_loadu_si256((const __m256i *)(const void *)(from))
#define PUT(to, v) _mm256_storeu_si256((__m256i *)(void *)(to), (v))
#define LONGS(x) _mm256_set1_epi64x((int64_t)(x))

/* The halves of an integer as the last bits of a double of 2^84 and of one of 2^52: their sum is rounded once. ${flip}
 * makes a signed half positive, and ${offset} is what the two have too much. */
static inline __m256d joined(__m256i x, uint64_t flip, double offset) {
  const __m256i high = _mm256_xor_si256(_mm256_srli_epi64(x, 32), LONGS(UINT64_C(0x4530000000000000) ^ flip));
  const __m256i low = _mm256_blend_epi32(x, LONGS(0x4330000000000000), 0xaa);
  return _mm256_add_pd(_mm256_sub_pd(_mm256_castsi256_pd(high), _mm256_set1_pd(offset)), _mm256_castsi256_pd(low));
}

static inline __m256d i64_as_f64(__m256i x) {
  return joined(x, 0x80000000u, 0x1p84 + 0x1p63 + 0x1p52);
}

static inline __m256d u64_as_f64(__m256i x) {
  return joined(x, 0, 0x1p84 + 0x1p52);
}

/* Of what a double does not hold exactly, the last 11 bits become zero, and the one before them is set if any of them
 * was: the double is exact then, and rounded to a float as the integer is. */
static inline __m256i without_ties(__m256i x, __m256i magnitude) {
  const __m256i last = LONGS(2047), more = _mm256_add_epi64(_mm256_and_si256(x, last), last);
  const __m256i odd = _mm256_andnot_si256(last, _mm256_or_si256(x, more));
  const __m256i exact = _mm256_cmpeq_epi64(_mm256_srli_epi64(magnitude, 53), LONGS(0));
  return _mm256_blendv_epi8(odd, x, exact);
}

static inline __m256d i64_without_ties(__m256i x) {
  return i64_as_f64(without_ties(x, _mm256_xor_si256(x, _mm256_cmpgt_epi64(LONGS(0), x))));
}

static inline __m256d u64_without_ties(__m256i x) {
  return u64_as_f64(without_ties(x, x));
}

static inline __m128 i64_as_f32(__m256i x) { return _mm256_cvtpd_ps(i64_without_ties(x)); }
static inline __m128 u64_as_f32(__m256i x) { return _mm256_cvtpd_ps(u64_without_ties(x)); }

/* The lower halves of eight integers of 64 bits, in their order. */
static inline __m256i lower(__m256i a, __m256i b) {
  const __m256 both = _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88);
  return _mm256_permute4x64_epi64(_mm256_castps_si256(both), 0xd8);
}

/* ${bias} makes what is small enough for an int32_t less than ${limit}, and nothing else. */
#define TO_FLOATS(name, from, bias, limit)                                                           \
  SOME(name##_to_f32) {                                                                              \
    int64_t i = 0;                                                                                   \
    for (; i + 8 <= n; i += 8) {                                                                     \
      float *to = (float *)out + i;                                                                  \
      const __m256i a = VECTOR((const char *)in + i * 8), b = VECTOR((const char *)in + i * 8 + 32); \
      const __m256i both = _mm256_or_si256(_mm256_add_epi64(a, LONGS(bias)), _mm256_add_epi64(b, LONGS(bias))); \
      if (_mm256_testz_si256(both, LONGS(0 - (limit))))                                              \
        _mm256_storeu_ps(to, _mm256_cvtepi32_ps(lower(a, b)));                                       \
      else                                                                                           \
        _mm256_storeu_ps(to, _mm256_set_m128(from##_as_f32(b), from##_as_f32(a)));                   \
    }                                                                                                \
    name##_to_f32_rest_some((char *)out + i * 4, (const char *)in + i * 8, n - i, f);                     \
  }                                                                                                  \
                                                                                                     \
  SOME(name##_to_f64) {                                                                              \
    int64_t i = 0;                                                                                   \
    for (; i + 4 <= n; i += 4)                                                                       \
      _mm256_storeu_pd((double *)out + i, from##_as_f64(VECTOR((const char *)in + i * 8)));          \
    name##_to_f64_rest_some((char *)out + i * 8, (const char *)in + i * 8, n - i, f);                     \
  }
TO_FLOATS(long, i64, INT64_C(0x80000000), INT64_C(1) << 32)
TO_FLOATS(u64, u64, 0, INT64_C(1) << 31)
#undef TO_FLOATS
PASSING(long_to_f32, 8, 4)
PASSING(long_to_f64, 8, 8)
PASSING(u64_to_f32, 8, 4)
PASSING(u64_to_f64, 8, 8)

/* Eight integers to floats that are odd where they are not exact. ${bias} is as above, for what a float holds
 * exactly. */
#define TO_ODD(type, bias)                                                                           \
  SOME(type##_to_odd) {                                                                              \
    double between[8];                                                                               \
    int64_t i = 0;                                                                                   \
    for (; i + 8 <= n; i += 8) {                                                                     \
      const char *from = (const char *)in + i * 8;                                                   \
      const __m256i a = VECTOR(from), b = VECTOR(from + 32);                                         \
      const __m256i both = _mm256_or_si256(_mm256_add_epi64(a, LONGS(bias)), _mm256_add_epi64(b, LONGS(bias))); \
      if (_mm256_testz_si256(both, LONGS(-(INT64_C(1) << 24)))) {                                    \
        _mm256_storeu_ps((float *)out + i, _mm256_cvtepi32_ps(lower(a, b)));                         \
        continue;                                                                                    \
      }                                                                                              \
      _mm256_storeu_pd(between, type##_without_ties(a));                                             \
      _mm256_storeu_pd(between + 4, type##_without_ties(b));                                         \
      odd_some((float *)out + i, between, 8, f);                                                     \
    }                                                                                                \
    type##_to_odd_rest_some((float *)out + i, (const char *)in + i * 8, n - i, f);                   \
  }                                                                                                  \
  PASSING(type##_to_odd, 8, 4)
TO_ODD(i64, INT64_C(0x800000))
TO_ODD(u64, 0)
#undef TO_ODD

/* Of four floats, each in 64 bits, of which it has the lowest: its sign (all bits or none), what is without it, and the
 * integer below that, 0 from 2^64 on. The mantissa begins with the highest bit, and goes down as far as the exponent is
 * below that of 2^63: to nothing, if that is far. */
typedef struct mf__floats {
  __m256i sign, magnitude, exponent, whole;
  int64_t infinity, exponent_63;
} mf__floats;

static inline mf__floats taken_apart(__m256i bits, int width, int mantissa) {
  const int64_t bias = (INT64_C(1) << (width - mantissa - 2)) - 1;
  mf__floats x = {.infinity = (2 * bias + 1) << mantissa, .exponent_63 = bias + 63};
  x.sign = _mm256_sub_epi64(LONGS(0), _mm256_srli_epi64(bits, width - 1));
  x.magnitude = _mm256_and_si256(bits, LONGS(UINT64_MAX >> (65 - width)));
  x.exponent = _mm256_srli_epi64(x.magnitude, mantissa);
  const __m256i from_top = _mm256_or_si256(_mm256_slli_epi64(bits, 63 - mantissa), LONGS(INT64_MIN));
  x.whole = _mm256_srlv_epi64(from_top, _mm256_sub_epi64(LONGS(x.exponent_63), x.exponent));
  return x;
}

static inline __m256i as_i64(__m256i bits, int width, int mantissa) {
  const mf__floats x = taken_apart(bits, width, mantissa);
  const __m256i over = _mm256_cmpgt_epi64(x.exponent, LONGS(x.exponent_63 - 1));
  const __m256i y = _mm256_blendv_epi8(x.whole, _mm256_sub_epi64(LONGS(INT64_MAX), x.sign), over);
  const __m256i nan = _mm256_cmpgt_epi64(x.magnitude, LONGS(x.infinity));
  return _mm256_andnot_si256(nan, _mm256_sub_epi64(_mm256_xor_si256(y, x.sign), x.sign));
}

static inline __m256i as_u64(__m256i bits, int width, int mantissa) {
  const mf__floats x = taken_apart(bits, width, mantissa);
  const __m256i over = _mm256_cmpgt_epi64(x.exponent, LONGS(x.exponent_63));
  const __m256i nan = _mm256_cmpgt_epi64(x.magnitude, LONGS(x.infinity));
  return _mm256_andnot_si256(_mm256_or_si256(nan, x.sign), _mm256_or_si256(x.whole, over));
}

/* What is beyond an int32_t, or no number, has become its least one. */
static inline bool are_ints(__m128i x) {
  return _mm_movemask_epi8(_mm_cmpeq_epi32(x, _mm_set1_epi32(INT32_MIN))) == 0;
}

/* What fits into 32 bits is converted by the instruction for that, four at a time. */
#define TO_LONG(name, size, as_ints, of_ints, of_bits)                                               \
  SOME(name) {                                                                                       \
    int64_t i = 0;                                                                                   \
    for (; i + 4 <= n; i += 4) {                                                                     \
      const char *from = (const char *)in + i * (size);                                              \
      const __m128i ints = as_ints;                                                                  \
      if (are_ints(ints))                                                                            \
        PUT((char *)out + i * 8, _mm256_cvtepi32_epi64(of_ints));                                    \
      else                                                                                           \
        PUT((char *)out + i * 8, of_bits);                                                           \
    }                                                                                                \
    name##_rest_some((char *)out + i * 8, (const char *)in + i * (size), n - i, f);                  \
  }
#define TO_LONGS(name, size, width, mantissa, as_ints, load)                                         \
  TO_LONG(name##_to_i64, size, as_ints, ints, as_i64(load, width, mantissa))                         \
  TO_LONG(name##_to_u64, size, as_ints, _mm_max_epi32(ints, _mm_setzero_si128()), as_u64(load, width, mantissa))
TO_LONGS(f32, 4, 32, 23, _mm_cvttps_epi32(_mm_loadu_ps((const float *)(const void *)from)),
         _mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)(const void *)from)))
TO_LONGS(f64, 8, 64, 52, _mm256_cvttpd_epi32(_mm256_loadu_pd((const double *)(const void *)from)), VECTOR(from))
#undef TO_LONGS
#undef TO_LONG
PASSING(f32_to_i64, 4, 8)
PASSING(f32_to_u64, 4, 8)
PASSING(f64_to_i64, 8, 8)
PASSING(f64_to_u64, 8, 8)

#undef VECTOR
#undef PUT
#undef LONGS
