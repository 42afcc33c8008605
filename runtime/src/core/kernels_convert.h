/* kernels_convert.h: loops from one number type to another, for rows of elements that follow each other. The compiler
 * makes vectors of them; a set of kernels includes this file once, and is compiled for its instructions.
 *
 * Each dtype is loaded into a pivot that holds all of its values, and stored from one: n + m loops, not n * m, and a
 * few more that go straight (kernels_direct.h). Every loop rounds once, or not at all.
 *
 * Invariant: the result is codec.c's to the last bit, that of a NaN included. */

/* What a loop does to some elements is inlined several times: for as many as there are, for few, and for a block of a
 * few lines, which then passes the caches: reading and writing take turns often enough to keep memory busy with both.
 * The elements behind the last block go by few, because one by one they would take as long as ten blocks. The last few
 * begin earlier and convert some elements again, but not if those have passed the caches: their lines would have to
 * come back. */
#define SOME(name) MF__INLINE void name##_some(                                                      \
    void *restrict out, const void *restrict in, int64_t n, const mf__small *f)

/* An address that the compiler cannot see through: otherwise it joins the loops over few elements into one. */
MF__INLINE void *hidden(const void *place, int64_t nbytes) {
  uintptr_t at = (uintptr_t)place + (uintptr_t)nbytes;
  __asm__("" : "+r"(at));
  return (void *)at;
}

#define BLOCK 64
#define FEW 16
#define NEAR 2048
/* Whether a row that does not pass the caches is prefetched: a long one that writes little, or whose two sides lie in
 * the last cache. (A row that comes from memory and writes much becomes slower by it.) */
#define ASKS(n, from, to) ((from) >= 4 * (to) ? (n) >= 4096 : (n) > 32768 && (n) * ((from) + (to)) <= 8 << 20)
#define PASSING(name, from_size, to_size)                                                            \
  static void name(void *out, const void *in, int64_t n, const mf__small *f, bool passes) {          \
    _Alignas(64) char block[BLOCK * (to_size)];                                                      \
    int64_t i = 0;                                                                                   \
    for (; passes && i + BLOCK <= n; i += BLOCK) {                                                   \
      const char *from = (const char *)in + i * (from_size);                                         \
      char *to = (char *)out + i * (to_size);                                                        \
      MF__UNROLL for (int k = 0; k < BLOCK * (from_size); k += 64) mf__prefetch(from, k + NEAR);     \
      name##_some(block, from, BLOCK, f);                                                            \
      MF__UNROLL for (int k = 0; k < BLOCK * (to_size); k += PASS_WIDTH) PASS(to + k, block + k);    \
    }                                                                                                \
    for (; !passes && ASKS(n, from_size, to_size) && i + BLOCK <= n; i += BLOCK) {                   \
      const char *from = hidden(in, i * (from_size));                                                \
      MF__UNROLL for (int k = 0; k < BLOCK * (from_size); k += 64) mf__prefetch(from, k + NEAR);     \
      name##_some(hidden(out, i * (to_size)), from, BLOCK, f);                                       \
    }                                                                                                \
    if (!passes && n - i >= BLOCK) {                                                                 \
      i = n / BLOCK * BLOCK;                                                                         \
      name##_some(out, in, i, f);                                                                    \
    }                                                                                                \
    for (; i + FEW <= n; i += FEW)                                                                   \
      name##_some(hidden(out, i * (to_size)), hidden(in, i * (from_size)), FEW, f);                  \
    if (i == n) return;                                                                              \
    if (n >= FEW && !passes)                                                                         \
      name##_some(hidden(out, (n - FEW) * (to_size)), hidden(in, (n - FEW) * (from_size)), FEW, f);  \
    else                                                                                             \
      name##_some((char *)out + i * (to_size), (const char *)in + i * (from_size), n - i, f);        \
  }

/* Elements may be unaligned, so all access is by memcpy, which compiles to a move. */
#define EACH(name, from, to, value)                                                                  \
  SOME(name) {                                                                                       \
    (void)f;                                                                                         \
    MF__NO_UNROLL for (int64_t i = 0; i < n; i++) {                                                  \
      from x;                                                                                        \
      memcpy(&x, (const char *)in + i * (int64_t)sizeof x, sizeof x);                                \
      const to y = (value);                                                                          \
      memcpy((char *)out + i * (int64_t)sizeof y, &y, sizeof y);                                     \
    }                                                                                                \
  }
#define LOOP(name, from, to, value)                                                                  \
  EACH(name, from, to, value)                                                                        \
  PASSING(name, (int64_t)sizeof(from), (int64_t)sizeof(to))

/* What takes longer than memory does, or is no vector, does not pass the caches: parts of a vector that are written one
 * by one are not there yet when it is read. */
#define SLOW_LOOP(name, from, to, value)                                                             \
  EACH(name, from, to, value)                                                                        \
  static void name(void *out, const void *in, int64_t n, const mf__small *f, bool passes) {          \
    (void)passes;                                                                                    \
    name##_some(out, in, n, f);                                                                      \
  }

/* Loops that some sets have themselves; of those, these take the elements that fill no vector. */
#if defined(__AVX2__) && !defined(__AVX512DQ__)
#define AVX2_LOOP(name, from, to, value) EACH(name##_rest, from, to, value)
#else
#define AVX2_LOOP LOOP
#endif
#if defined(__AVX2__) && !defined(__AVX512DQ__)
#define LONG_LOOP AVX2_LOOP
#elif defined(__SSE2__) && !defined(__AVX512DQ__)
#define LONG_LOOP SLOW_LOOP
#else
#define LONG_LOOP LOOP
#endif
#ifdef __F16C__
#define HALF_LOOP(name, from, to, value) EACH(name##_rest, from, to, value)
#else
#define HALF_LOOP LOOP
#endif
#ifdef __AVX512F__
#define WIDE_LOOP(name, from, to, value) EACH(name##_rest, from, to, value)
/* The upper halves of 32 elements of 32 bits, of two vectors. */
static const _Alignas(64) uint16_t upper_halves[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                                       33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};

static inline __m512i side_by_side(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* Without the empty line of assembler a compiler loads each vector three times, across the ends of lines. */
static inline __m512 sixteen_floats(const char *from) {
  __m512 x = _mm512_loadu_ps(from);
  __asm__("" : "+v"(x));
  return x;
}
#else
#define WIDE_LOOP LOOP
#endif
/* Loops that AVX2 and AVX-512 have themselves. */
#ifdef __AVX2__
#define VECTOR_LOOP(name, from, to, value) EACH(name##_rest, from, to, value)
#else
#define VECTOR_LOOP LOOP
#endif

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
  code |= code == f->unsigned_zero ? 0 : sign;
  return magnitude > 0x7f800000u ? f->nan : code;
}

static inline double as_double(uint64_t bits) {
  double f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static inline uint64_t double_bits(double f) {
  uint64_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

/* A double to the float from which a small format is rounded: the bits that a float has not become zero, and the one
 * before them is set if any of them was, so that the rounding still sees on which side of a tie the double lay. Of
 * those formats bfloat16 alone has numbers below a float's least normal one: what lies there is rounded to its step at
 * once, by an addition. */
static inline float rounded_odd(double x) {
  const double magnitude = __builtin_fabs(x), tiny = magnitude + 0x1.8p-81 - 0x1.8p-81;
  const uint64_t sign = double_bits(x) & UINT64_C(1) << 63, last = (UINT64_C(1) << 29) - 1;
  const uint64_t bits = double_bits(magnitude), odd = (bits | ((bits & last) + last)) & ~last;
  return (float)as_double((magnitude < 0x1p-126 ? double_bits(tiny) : odd) | sign);
}

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

/* Integers as int16_t, int32_t or int64_t; those that are wider than their target keep their low bits. */
LOOP(bool_to_short, uint8_t, int16_t, x != 0)
LOOP(i8_to_short, int8_t, int16_t, x)
LOOP(u8_to_short, uint8_t, int16_t, x)
LOOP(short_to_bool, int16_t, uint8_t, x != 0)
LOOP(short_to_8, int16_t, uint8_t, (uint8_t)x)
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

/* Whatever a float holds exactly. */
LOOP(bool_to_f32, uint8_t, float, x != 0 ? 1.0f : 0.0f)
LOOP(i8_to_f32, int8_t, float, x)
LOOP(u8_to_f32, uint8_t, float, x)
LOOP(i16_to_f32, int16_t, float, x)
LOOP(u16_to_f32, uint16_t, float, x)
LOOP(small8_to_f32, uint8_t, uint32_t, decoded(x, f))
HALF_LOOP(f16_to_f32, uint16_t, uint32_t, decoded(x, f))
SLOW_LOOP(f32_to_small8, uint32_t, uint8_t, (uint8_t)encoded(x, f))
HALF_LOOP(f32_to_f16, uint32_t, uint16_t, (uint16_t)encoded(x, f))

/* A large integer to the float from which a small format is rounded, in the same way: a double lacks 11 bits of one of
 * 64 bits at most, and a float 8 of one of 32. */
static inline uint64_t exact_or_odd(uint64_t x, uint64_t magnitude) {
  return magnitude >> 53 == 0 ? x : (x | ((x & 2047) + 2047)) & ~UINT64_C(2047);
}
VECTOR_LOOP(i64_to_odd, int64_t, float,
            rounded_odd((double)(int64_t)exact_or_odd((uint64_t)x, (uint64_t)(x < 0 ? ~x : x))))
VECTOR_LOOP(u64_to_odd, uint64_t, float, rounded_odd((double)exact_or_odd(x, x)))

static inline uint32_t exact_or_odd32(uint32_t x, uint32_t magnitude) {
  return magnitude >> 24 == 0 ? x : (x | ((x & 255) + 255)) & ~255u;
}

static inline float i32_as_odd(int32_t x) {
  return (float)(int32_t)exact_or_odd32((uint32_t)x, (uint32_t)(x < 0 ? ~x : x));
}

static inline float u32_as_odd(uint32_t x) {
  return (float)exact_or_odd32(x, x);
}
LOOP(i32_to_odd, int32_t, float, i32_as_odd(x))
LOOP(u32_to_odd, uint32_t, float, u32_as_odd(x))

LOOP(i32_to_f64, int32_t, double, x)
LOOP(u32_to_f64, uint32_t, double, x)
LOOP(f32_to_f64, float, double, (double)x)
LOOP(f64_to_f32, double, float, (float)x)

LOOP(f32_to_bool, float, uint8_t, !(x == 0))
LOOP(f64_to_bool, double, uint8_t, !(x == 0))

LONG_LOOP(long_to_f32, int64_t, float, (float)x)
LONG_LOOP(long_to_f64, int64_t, double, (double)x)
LONG_LOOP(u64_to_f32, uint64_t, float, (float)x)
LONG_LOOP(u64_to_f64, uint64_t, double, (double)x)
LONG_LOOP(f32_to_i64, float, int64_t, f32_as_i64(x))
LONG_LOOP(f32_to_u64, float, uint64_t, f32_as_u64(x))
LONG_LOOP(f64_to_i64, double, int64_t, f64_as_i64(x))
LONG_LOOP(f64_to_u64, double, uint64_t, f64_as_u64(x))

WIDE_LOOP(odd, double, float, rounded_odd(x))
#ifdef __AVX512F__
/* Eight toward zero at once, which is odd where the last bit is set if that was not exact. */
#define ODD(name, type, toward_zero, back, differs)                                                  \
  static inline __m256i eight_of_##name(const char *from) {                                          \
    type x;                                                                                          \
    memcpy(&x, from, sizeof x);                                                                      \
    const __m256 near = toward_zero(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);                      \
    const __m256i bits = _mm256_castps_si256(near);                                                  \
    return _mm256_mask_or_epi32(bits, differs(back(near), x), bits, _mm256_set1_epi32(1));           \
  }                                                                                                  \
                                                                                                     \
  static inline __m512 sixteen_of_##name(const char *from) {                                         \
    return _mm512_castsi512_ps(side_by_side(eight_of_##name(from), eight_of_##name(from + 64)));     \
  }                                                                                                  \
                                                                                                     \
  SOME(name) {                                                                                       \
    int64_t i = 0;                                                                                   \
    for (; i + 16 <= n; i += 16) _mm512_storeu_ps((float *)out + i, sixteen_of_##name((const char *)in + i * 8)); \
    name##_rest_some((char *)out + i * 4, (const char *)in + i * 8, n - i, f);                       \
  }                                                                                                  \
  PASSING(name, 8, 4)
#define DOUBLES_DIFFER(a, b) _mm512_cmp_pd_mask(a, b, _CMP_NEQ_UQ)
ODD(odd, __m512d, _mm512_cvt_roundpd_ps, _mm512_cvtps_pd, DOUBLES_DIFFER)
ODD(i64_to_odd, __m512i, _mm512_cvt_roundepi64_ps, _mm512_cvtps_epi64, _mm512_cmpneq_epi64_mask)
ODD(u64_to_odd, __m512i, _mm512_cvt_roundepu64_ps, _mm512_cvtps_epu64, _mm512_cmpneq_epi64_mask)
#undef DOUBLES_DIFFER
#undef ODD
#endif

#if defined(__AVX2__) && !defined(__AVX512DQ__)
#include "core/kernels_long.h"
#endif

#include "core/kernels_bf16.h"
#include "core/kernels_half.h"
#include "core/kernels_saturate.h"
#include "core/kernels_direct.h"

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
        [MF__P_SHORT] = {[MF__N_BOOL] = bool_to_short, [MF__N_I8] = i8_to_short, [MF__N_U8] = u8_to_short},
        [MF__P_INT] = {[MF__N_BOOL] = bool_to_int, [MF__N_I8] = i8_to_int, [MF__N_U8] = u8_to_int,
                       [MF__N_I16] = i16_to_int, [MF__N_U16] = u16_to_int},
        [MF__P_LONG] = {[MF__N_I32] = i32_to_long, [MF__N_U32] = u32_to_long},
        [MF__P_F32] = {[MF__N_BOOL] = bool_to_f32, [MF__N_I8] = i8_to_f32, [MF__N_U8] = u8_to_f32,
                       [MF__N_I16] = i16_to_f32, [MF__N_U16] = u16_to_f32, [MF__N_I32] = i32_to_odd,
                       [MF__N_U32] = u32_to_odd, [MF__N_I64] = i64_to_odd, [MF__N_U64] = u64_to_odd,
                       [MF__N_SMALL8] = small8_to_f32, [MF__N_BF16] = bf16_to_f32, [MF__N_F16] = f16_to_f32},
        [MF__P_F64] = {[MF__N_I32] = i32_to_f64, [MF__N_U32] = u32_to_f64},
    },
    .store = {
        [MF__P_SHORT] = {[MF__N_BOOL] = short_to_bool, [MF__N_I8] = short_to_8, [MF__N_U8] = short_to_8},
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
                       [MF__N_BF16] = f64_to_bf16, [MF__N_F16] = f64_to_f16, [MF__N_F32] = f64_to_f32},
    },
    .direct = DIRECT_LOOPS,
};

#undef LOOP
#undef EACH
#undef SLOW_LOOP
#undef SOME
#undef PASSING
#undef FEW
#undef ASKS
#undef LONG_LOOP
#undef AVX2_LOOP
#undef VECTOR_LOOP
#undef HALF_LOOP
#undef WIDE_LOOP
#undef SAME
#undef SATURATED
#undef DIRECT_LOOPS
