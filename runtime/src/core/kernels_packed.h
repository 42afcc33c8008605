/* kernels_packed.h: loops between elements that take a part of a byte, and the same in a byte each. The compiler makes
 * vectors of them, as it does of those of kernels_convert.h. */
#define MASK(bits) ((UINT64_C(1) << (bits)) - 1)
/* A number in each unit of so many bits. */
#define IN_EACH(unit, number) (~UINT64_C(0) / MASK(unit) * (number))

/* Eight elements, which are ${bits} bytes, to eight bytes: halves go apart, then quarters, then each. The other way,
 * the low bits of each byte count. */
static inline uint64_t spread(uint64_t x, int bits) {
  x = (x | x << (32 - 4 * bits)) & IN_EACH(32, MASK(4 * bits));
  x = (x | x << (16 - 2 * bits)) & IN_EACH(16, MASK(2 * bits));
  return (x | x << (8 - bits)) & IN_EACH(8, MASK(bits));
}

static inline uint64_t gathered(uint64_t x, int bits) {
  x &= IN_EACH(8, MASK(bits));
  x = (x | x >> (8 - bits)) & IN_EACH(16, MASK(2 * bits));
  x = (x | x >> (16 - 2 * bits)) & IN_EACH(32, MASK(4 * bits));
  return x | x >> (32 - 4 * bits);
}

/* n times eight elements, each time a ${type} of them. */
#define EIGHTS(bits, type, pack)                                                                     \
  static void unpack_##bits(unsigned char *restrict out, const unsigned char *restrict in, int64_t n) { \
    for (int64_t i = 0; i < n; i++) {                                                                \
      type packed;                                                                                   \
      memcpy(&packed, in + i * (bits), (bits));                                                      \
      const uint64_t x = spread(packed, (bits));                                                     \
      memcpy(out + i * 8, &x, 8);                                                                    \
    }                                                                                                \
  }                                                                                                  \
  static void pack(unsigned char *restrict out, const unsigned char *restrict in, int64_t n) { \
    for (int64_t i = 0; i < n; i++) {                                                                \
      uint64_t x;                                                                                    \
      memcpy(&x, in + i * 8, 8);                                                                     \
      const type packed = (type)gathered(x, (bits));                                                 \
      memcpy(out + i * (bits), &packed, (bits));                                                     \
    }                                                                                                \
  }
#ifdef __SSE2__
EIGHTS(1, uint8_t, pack_rest)
/* The lowest bits become the highest, of which there is an instruction to gather them. */
static void pack_1(unsigned char *restrict out, const unsigned char *restrict in, int64_t n) {
  int64_t i = 0;
#ifdef __AVX512BW__
  for (; i + 8 <= n; i += 8) {
    const __mmask64 packed = _mm512_test_epi8_mask(_mm512_loadu_si512(in + i * 8), _mm512_set1_epi8(1));
    memcpy(out + i, &packed, 8);
  }
#endif
#ifdef __AVX2__
  for (; i + 4 <= n; i += 4) {
    const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(in + i * 8));
    const int packed = _mm256_movemask_epi8(_mm256_slli_epi16(v, 7));
    memcpy(out + i, &packed, 4);
  }
#endif
  for (; i + 2 <= n; i += 2) {
    const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(in + i * 8));
    const uint16_t packed = (uint16_t)_mm_movemask_epi8(_mm_slli_epi16(v, 7));
    memcpy(out + i, &packed, 2);
  }
  pack_rest(out + i, in + i * 8, n - i);
}
#else
EIGHTS(1, uint8_t, pack_1)
#endif
EIGHTS(2, uint16_t, pack_2)
EIGHTS(4, uint32_t, pack_4)

/* Where elements have a byte each: n bytes. */
static void take(unsigned char *restrict out, const unsigned char *restrict in, int64_t n, unsigned mask) {
  for (int64_t i = 0; i < n; i++) out[i] = (unsigned char)(in[i] & mask);
}

static void merge(unsigned char *restrict out, const unsigned char *restrict in, int64_t n, unsigned mask) {
  for (int64_t i = 0; i < n; i++) out[i] = (unsigned char)((out[i] & ~mask) | (in[i] & mask));
}

static void extend(unsigned char *bytes, int64_t n, unsigned sign) {
  for (int64_t i = 0; i < n; i++) bytes[i] = (unsigned char)((bytes[i] ^ sign) - sign);
}

/* The number that has room, for one that has none itself. */
static void clamp(unsigned char *bytes, int64_t n, const mf__slots *s) {
  const signed char least = s->least, most = s->most;
  for (int64_t i = 0; i < n; i++) {
    const signed char x = (signed char)bytes[i], low = x > least ? x : least;
    bytes[i] = (unsigned char)(low < most ? low : most);
  }
}

static const mf__bits bits = {
    .unpack = {[1] = unpack_1, [2] = unpack_2, [4] = unpack_4},
    .pack = {[1] = pack_1, [2] = pack_2, [4] = pack_4},
    .take = take,
    .merge = merge,
    .extend = extend,
    .clamp = clamp,
};

#undef MASK
#undef IN_EACH
#undef EIGHTS
