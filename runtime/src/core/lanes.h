/* lanes.h: vectors of MF__WIDTH bytes as lanes of 16 bytes each, with the few operations that the kernels are made of.
 * Included once for each width that an instruction set has; no operation crosses a lane, so that the kernels are the
 * same for every width. It must not know what the kernels do. */
#define MF__JOIN2(a, b) a##b
#define MF__JOIN(a, b) MF__JOIN2(a, b)
#define NAME(name) MF__JOIN(name##_, MF__WIDTH)

#if MF__WIDTH == 64
typedef __m512i NAME(vec);
#define X86(operation) _mm512_##operation
#elif MF__WIDTH == 32
typedef __m256i NAME(vec);
#define X86(operation) _mm256_##operation
#elif defined(__SSE2__)
typedef __m128i NAME(vec);
#define X86(operation) _mm_##operation
#else
typedef uint8x16_t NAME(vec);
#endif
#define VEC NAME(vec)

/* Lane l holds the 16 bytes at from + l * stride. */
static inline VEC NAME(load)(const char *from, int64_t stride) {
#if MF__WIDTH == 64
  VEC v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)from));
  v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(const void *)(from + stride)), 1);
  v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(const void *)(from + 2 * stride)), 2);
  return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(const void *)(from + 3 * stride)), 3);
#elif MF__WIDTH == 32
  const VEC v = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)from));
  return _mm256_inserti128_si256(v, _mm_loadu_si128((const __m128i *)(const void *)(from + stride)), 1);
#elif defined(__SSE2__)
  (void)stride;
  return _mm_loadu_si128((const __m128i *)(const void *)from);
#else
  (void)stride;
  return vld1q_u8((const unsigned char *)from);
#endif
}

/* The lanes side by side. */
static inline VEC NAME(whole)(const char *from) {
#if MF__WIDTH == 64
  return _mm512_loadu_si512(from);
#elif MF__WIDTH == 32
  return _mm256_loadu_si256((const __m256i *)(const void *)from);
#else
  return NAME(load)(from, 0);
#endif
}

/* The other way. */
static inline void NAME(store)(char *to, VEC v) {
#if MF__WIDTH == 64
  _mm512_storeu_si512(to, v);
#elif MF__WIDTH == 32
  _mm256_storeu_si256((__m256i *)(void *)to, v);
#elif defined(__SSE2__)
  _mm_storeu_si128((__m128i *)(void *)to, v);
#else
  vst1q_u8((unsigned char *)to, v);
#endif
}

/* The same past the caches; ${to} is aligned to the width. */
static inline void NAME(pass)(char *to, VEC v) {
#if MF__WIDTH == 64
  _mm512_stream_si512((void *)to, v);
#elif MF__WIDTH == 32
  _mm256_stream_si256((__m256i *)(void *)to, v);
#elif defined(__SSE2__)
  _mm_stream_si128((__m128i *)(void *)to, v);
#else
  vst1q_u8((unsigned char *)to, v); /* the processors of today detect whole lines on their own */
#endif
}

/* What was passed is seen by other threads before what is stored next. */
static inline void NAME(stream_end)(void) {
#ifdef X86
  _mm_sfence();
#endif
}

/* Lane l goes to to + l * stride. */
static inline void NAME(scatter)(char *to, int64_t stride, VEC v) {
#if MF__WIDTH == 64
  _mm_storeu_si128((__m128i *)(void *)to, _mm512_castsi512_si128(v));
  _mm_storeu_si128((__m128i *)(void *)(to + stride), _mm512_extracti32x4_epi32(v, 1));
  _mm_storeu_si128((__m128i *)(void *)(to + 2 * stride), _mm512_extracti32x4_epi32(v, 2));
  _mm_storeu_si128((__m128i *)(void *)(to + 3 * stride), _mm512_extracti32x4_epi32(v, 3));
#elif MF__WIDTH == 32
  _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(v));
  _mm_storeu_si128((__m128i *)(void *)(to + stride), _mm256_extracti128_si256(v, 1));
#else
  (void)stride;
  NAME(store)(to, v);
#endif
}

/* lo8 to lo64: the elements of the lower halves of a's and b's lanes, by turns; hi8 to hi64: of the upper halves. */
#ifdef X86
#define MF__ZIP(bits)                                                                         \
  static inline VEC NAME(lo##bits)(VEC a, VEC b) { return X86(unpacklo_epi##bits)(a, b); }           \
  static inline VEC NAME(hi##bits)(VEC a, VEC b) { return X86(unpackhi_epi##bits)(a, b); }
#else
#define MF__ZIP(bits)                                                                         \
  static inline VEC NAME(lo##bits)(VEC a, VEC b) {                                                   \
    return vreinterpretq_u8_u##bits(                                                                 \
        vzip1q_u##bits(vreinterpretq_u##bits##_u8(a), vreinterpretq_u##bits##_u8(b)));               \
  }                                                                                                  \
  static inline VEC NAME(hi##bits)(VEC a, VEC b) {                                                   \
    return vreinterpretq_u8_u##bits(                                                                 \
        vzip2q_u##bits(vreinterpretq_u##bits##_u8(a), vreinterpretq_u##bits##_u8(b)));               \
  }
#endif
#if !defined(X86)
#define vreinterpretq_u8_u8(v) (v)
#endif
MF__ZIP(8)
MF__ZIP(16)
MF__ZIP(32)
MF__ZIP(64)
#undef MF__ZIP

/* Byte b of each lane becomes the byte mask[b] of the same lane of v, or 0 where mask[b] is 128 or more. */
#if defined(__SSSE3__) || !defined(X86)
#define MF__HAS_PICK
static inline VEC NAME(pick)(VEC v, VEC mask) {
#ifdef X86
  return X86(shuffle_epi8)(v, mask);
#else
  return vqtbl1q_u8(v, mask);
#endif
}

static inline VEC NAME(either)(VEC a, VEC b) {
#if MF__WIDTH == 64
  return _mm512_or_si512(a, b);
#elif MF__WIDTH == 32
  return _mm256_or_si256(a, b);
#elif defined(X86)
  return _mm_or_si128(a, b);
#else
  return vorrq_u8(a, b);
#endif
}
#endif
