/* ptx_spec.c: each instruction of the subset against what C computes. */
#include <math.h>

#include "assembler.h"
#include "kernel.h"

#define NEW_HEAD ".version 7.8\n.target sm_90\n.address_size 64\n" /* bf16 */

enum { VALUES = 24, CASES = VALUES * VALUES };

static const uint64_t values[VALUES] = {0,
                                        1,
                                        2,
                                        3,
                                        7,
                                        31,
                                        32,
                                        63,
                                        64,
                                        100,
                                        0x7f,
                                        0x80,
                                        0xff,
                                        0x7fff,
                                        0x8000,
                                        0x12345678,
                                        0x7fffffff,
                                        0x80000000,
                                        0xffffffff,
                                        0x123456789abcdef0,
                                        0x7fffffffffffffff,
                                        0x8000000000000000,
                                        0xfedcba9876543210,
                                        0xffffffffffffffff};

static float f32(uint64_t bits) {
  const uint32_t low = (uint32_t)bits;
  float v;
  memcpy(&v, &low, sizeof v);
  return v;
}

static uint64_t of32(float v) {
  uint32_t bits;
  memcpy(&bits, &v, sizeof bits);
  return bits;
}

static uint64_t of64(double v) {
  uint64_t bits;
  memcpy(&bits, &v, sizeof bits);
  return bits;
}

static uint64_t shift(uint64_t v, uint64_t n, unsigned bits) {
  return n >= bits ? 0 : v >> n;
}

static int64_t shift_signed(int64_t v, uint64_t n, unsigned bits) {
  return v >> (n >= bits ? bits - 1 : n);
}

static uint64_t high(uint64_t a, uint64_t b) {
  return (uint64_t)((__extension__(unsigned __int128) a * b) >> 64);
}

static int64_t high_signed(int64_t a, int64_t b) {
  return (int64_t)((__extension__(__int128) a * b) >> 64);
}

/* A quotient is looked at only where there is one. */
static int64_t quotient(int64_t a, int64_t b) {
  return b == 0 || (b == -1 && a == INT64_MIN) ? 0 : a / b;
}

static int64_t rest(int64_t a, int64_t b) {
  return b == 0 || b == -1 ? 0 : a % b;
}

/* An integer rounded to the 11 digits of a half; those of these specs are no ties but even ones. */
static double half_value(int v) {
  int e;
  (void)frexp((double)v, &e);
  return e <= 11 ? v : ldexp(nearbyint(ldexp((double)v, 11 - e)), e - 11);
}

static uint64_t half_of(double v) {
  int e;
  const uint64_t sign = v < 0 ? 0x8000 : 0;
  if (v == 0) return 0;
  const double digits = frexp(fabs(v), &e);
  return e > 16 ? sign | 0x7c00 : sign | (uint64_t)(e + 14) << 10 | ((uint64_t)ldexp(digits, 11) & 0x3ff);
}

static float half_float(uint16_t bits) {
  const int e = bits >> 10 & 31;
  const float digits = (float)(bits & 0x3ff) + (e == 0 ? 0.0f : 1024.0f);
  return ldexpf((bits >> 15) != 0 ? -digits : digits, (e == 0 ? 1 : e) - 25);
}

static float brain_of(float v) {
  int e;
  (void)frexpf(v, &e);
  return v == 0 ? v : ldexpf(nearbyintf(ldexpf(v, 8 - e)), e - 8);
}

#define A8 ((uint8_t)a)
#define A16 ((uint16_t)a)
#define B16 ((uint16_t)b)
#define A32 ((uint32_t)a)
#define B32 ((uint32_t)b)
#define C32 ((uint32_t)c)
#define SA16 ((int16_t)a)
#define SB16 ((int16_t)b)
#define SA32 ((int32_t)a)
#define SB32 ((int32_t)b)
#define SC32 ((int32_t)c)
#define SA64 ((int64_t)a)
#define SB64 ((int64_t)b)
#define CHOSEN (a < b)

/* NAME, where the result is (h 16 bits, r 32, d 64, f and g floats, p a predicate), the instruction on a, b and
 * c = a ^ b (registers 1, 2, 3), and the same in C. A predicate that an instruction reads, %p1, is a < b. */
#define ROWS(X)                                                                                                  \
  X(add_u16, 'h', "add.u16 %h0, %h1, %h2;", (uint16_t)(a + b))                                                   \
  X(add_u32, 'r', "add.u32 %r0, %r1, %r2;", A32 + B32)                                                           \
  X(add_s32, 'r', "add.s32 %r0, %r1, -5;", A32 - 5)                                                              \
  X(add_u64, 'd', "add.u64 %d0, %d1, %d2;", a + b)                                                               \
  X(add_large, 'r', "add.u32 %r0, %r1, 0x1FFFFFFFF;", A32 - 1)                                                   \
  X(sub_u32, 'r', "sub.u32 %r0, %r1, %r2;", A32 - B32)                                                           \
  X(sub_s64, 'd', "sub.s64 %d0, %d1, %d2;", a - b)                                                               \
  X(mul_lo_u32, 'r', "mul.lo.u32 %r0, %r1, %r2;", A32 *B32)                                                      \
  X(mul_lo_s64, 'd', "mul.lo.s64 %d0, %d1, %d2;", a *b)                                                          \
  X(mul_hi_u16, 'h', "mul.hi.u16 %h0, %h1, %h2;", (uint16_t)((uint32_t)A16 * B16 >> 16))                         \
  X(mul_hi_u32, 'r', "mul.hi.u32 %r0, %r1, %r2;", (uint32_t)((uint64_t)A32 * B32 >> 32))                         \
  X(mul_hi_s32, 'r', "mul.hi.s32 %r0, %r1, %r2;", (uint32_t)((int64_t)SA32 * SB32 >> 32))                        \
  X(mul_hi_u64, 'd', "mul.hi.u64 %d0, %d1, %d2;", high(a, b))                                                    \
  X(mul_hi_s64, 'd', "mul.hi.s64 %d0, %d1, %d2;", (uint64_t)high_signed(SA64, SB64))                             \
  X(mul_wide_u16, 'r', "mul.wide.u16 %r0, %h1, %h2;", (uint32_t)A16 * B16)                                       \
  X(mul_wide_s16, 'r', "mul.wide.s16 %r0, %h1, %h2;", (uint32_t)(SA16 * SB16))                                   \
  X(mul_wide_u32, 'd', "mul.wide.u32 %d0, %r1, %r2;", (uint64_t)A32 *B32)                                        \
  X(mul_wide_s32, 'd', "mul.wide.s32 %d0, %r1, %r2;", (uint64_t)((int64_t)SA32 * SB32))                          \
  X(mul_wide_constant, 'd', "mul.wide.s32 %d0, %r1, -4;", (uint64_t)((int64_t)SA32 * -4))                        \
  X(mad_lo_u32, 'r', "mad.lo.u32 %r0, %r1, %r2, %r3;", A32 *B32 + C32)                                           \
  X(mad_lo_s64, 'd', "mad.lo.s64 %d0, %d1, %d2, %d3;", a *b + c)                                                 \
  X(mad_hi_s32, 'r', "mad.hi.s32 %r0, %r1, %r2, %r3;", (uint32_t)((int64_t)SA32 * SB32 >> 32) + C32)             \
  X(mad_wide_u32, 'd', "mad.wide.u32 %d0, %r1, %r2, %d3;", (uint64_t)A32 *B32 + c)                               \
  X(mad_wide_s16, 'r', "mad.wide.s16 %r0, %h1, %h2, %r3;", (uint32_t)(SA16 * SB16) + C32)                        \
  X(div_u32, 'r', "div.u32 %r0, %r1, %r2;", B32 == 0 ? UINT32_MAX : A32 / B32)                                   \
  X(div_s32, 'r', "div.s32 %r0, %r1, %r2;", B32 == 0 ? UINT32_MAX : (uint32_t)quotient(SA32, SB32))              \
  X(div_u64, 'd', "div.u64 %d0, %d1, %d2;", b == 0 ? UINT64_MAX : a / b)                                         \
  X(div_s64, 'd', "div.s64 %d0, %d1, %d2;",                                                                      \
    b == 0 ? UINT64_MAX : SB64 == -1 ? 0 - a : (uint64_t)quotient(SA64, SB64))                                   \
  X(rem_u32, 'r', "rem.u32 %r0, %r1, %r2;", B32 == 0 ? UINT32_MAX : A32 % B32)                                   \
  X(rem_s32, 'r', "rem.s32 %r0, %r1, %r2;", B32 == 0 ? UINT32_MAX : (uint32_t)rest(SA32, SB32))                  \
  X(rem_u64, 'd', "rem.u64 %d0, %d1, %d2;", b == 0 ? UINT64_MAX : a % b)                                         \
  X(rem_s64, 'd', "rem.s64 %d0, %d1, %d2;", b == 0 ? UINT64_MAX : (uint64_t)rest(SA64, SB64))                    \
  X(min_u32, 'r', "min.u32 %r0, %r1, %r2;", A32 < B32 ? A32 : B32)                                               \
  X(min_s64, 'd', "min.s64 %d0, %d1, %d2;", SA64 < SB64 ? a : b)                                                 \
  X(max_s32, 'r', "max.s32 %r0, %r1, %r2;", SA32 > SB32 ? A32 : B32)                                             \
  X(max_u64, 'd', "max.u64 %d0, %d1, %d2;", a > b ? a : b)                                                       \
  X(abs_s32, 'r', "abs.s32 %r0, %r1;", SA32 < 0 ? 0 - A32 : A32)                                                 \
  X(neg_s32, 'r', "neg.s32 %r0, %r1;", 0 - A32)                                                                  \
  X(neg_s64, 'd', "neg.s64 %d0, %d1;", 0 - a)                                                                    \
  X(and_b32, 'r', "and.b32 %r0, %r1, %r2;", A32 &B32)                                                            \
  X(or_b64, 'd', "or.b64 %d0, %d1, %d2;", a | b)                                                                 \
  X(xor_b16, 'h', "xor.b16 %h0, %h1, 0xFF;", (uint16_t)(A16 ^ 0xFF))                                             \
  X(not_b32, 'r', "not.b32 %r0, %r1;", ~A32)                                                                     \
  X(and_pred, 'p', "setp.eq.u32 %p2, %r1, 7; and.pred %p0, %p1, %p2;", CHOSEN &&A32 == 7)                        \
  X(or_pred, 'p', "setp.eq.u32 %p2, %r1, 7; or.pred %p0, %p1, %p2;", CHOSEN || A32 == 7)                         \
  X(not_pred, 'p', "not.pred %p0, %p1;", !CHOSEN)                                                                \
  X(mov_pred, 'p', "mov.pred %p0, !%p1;", !CHOSEN)                                                               \
  X(shl_b32, 'r', "shl.b32 %r0, %r1, %r2;", B32 >= 32 ? 0 : A32 << B32)                                          \
  X(shl_b64, 'd', "shl.b64 %d0, %d1, %r2;", B32 >= 64 ? 0 : a << B32)                                            \
  X(shr_u32, 'r', "shr.u32 %r0, %r1, %r2;", shift(A32, B32, 32))                                                 \
  X(shr_s32, 'r', "shr.s32 %r0, %r1, %r2;", (uint32_t)shift_signed(SA32, B32, 32))                               \
  X(shr_b64, 'd', "shr.b64 %d0, %d1, 5;", a >> 5)                                                                \
  X(shr_s64, 'd', "shr.s64 %d0, %d1, %r2;", (uint64_t)shift_signed(SA64, B32, 64))                               \
  X(selp_b32, 'r', "selp.b32 %r0, %r1, %r2, %p1;", CHOSEN ? A32 : B32)                                           \
  X(selp_not, 'd', "selp.u64 %d0, %d1, 9, !%p1;", CHOSEN ? 9 : a)                                                \
  X(mov_b64, 'd', "mov.b64 %d0, %d1;", a)                                                                        \
  X(mov_s32, 'r', "mov.s32 %r0, -3;", (uint32_t)-3)                                                              \
  X(setp_eq, 'p', "setp.eq.b64 %p0, %d1, %d2;", a == b)                                                          \
  X(setp_ne, 'p', "setp.ne.u16 %p0, %h1, %h2;", A16 != B16)                                                      \
  X(setp_lt_s, 'p', "setp.lt.s32 %p0, %r1, %r2;", SA32 < SB32)                                                   \
  X(setp_le_u, 'p', "setp.le.u64 %p0, %d1, %d2;", a <= b)                                                        \
  X(setp_gt_s, 'p', "setp.gt.s64 %p0, %d1, %d2;", SA64 > SB64)                                                   \
  X(setp_ge_s, 'p', "setp.ge.s16 %p0, %h1, %h2;", SA16 >= SB16)                                                  \
  X(setp_lo, 'p', "setp.lo.u32 %p0, %r1, %r2;", A32 < B32)                                                       \
  X(setp_ls, 'p', "setp.ls.u32 %p0, %r1, %r2;", A32 <= B32)                                                      \
  X(setp_hi, 'p', "setp.hi.u32 %p0, %r1, %r2;", A32 > B32)                                                       \
  X(setp_hs, 'p', "setp.hs.u32 %p0, %r1, %r2;", A32 >= B32)                                                      \
  X(setp_and, 'p', "setp.lt.and.u32 %p0, %r1, %r2, %p1;", A32 < B32 && CHOSEN)                                   \
  X(setp_or, 'p', "setp.eq.or.u32 %p0, %r1, 1, !%p1;", A32 == 1 || !CHOSEN)                                      \
  X(setp_xor, 'p', "setp.lt.xor.s32 %p0, %r1, %r2, %p1;", (SA32 < SB32) != CHOSEN)                               \
  X(setp_inverse, 'p', "setp.lt.and.u32 %p2|%p0, %r1, %r2, %p1;", !(A32 < B32) && CHOSEN)                        \
  X(cvt_narrow, 'r', "cvt.u8.u32 %r0, %r1;", A8)                                                                 \
  X(cvt_sign, 'r', "cvt.s8.u32 %r0, %r1;", (uint32_t)(int8_t)a)                                                  \
  X(cvt_widen, 'd', "cvt.s64.s32 %d0, %r1;", (uint64_t)(int64_t)SA32)                                            \
  X(cvt_unsigned, 'd', "cvt.u64.u32 %d0, %r1;", (uint64_t)A32)                                                   \
  X(cvt_low_byte, 'd', "cvt.s64.s8 %d0, %h1;", (uint64_t)(int64_t)(int8_t)a)                                     \
  X(cvt_16, 'h', "cvt.u16.u64 %h0, %d1;", A16)                                                                   \
  X(cvt_f32, 'f', "cvt.rn.f32.s32 %f0, %r1;", of32((float)SA32))                                                 \
  X(cvt_f32_long, 'f', "cvt.rn.f32.u64 %f0, %d1;", of32((float)a))                                               \
  X(cvt_f64, 'g', "cvt.rn.f64.s64 %g0, %d1;", of64((double)SA64))                                                \
  X(cvt_integer, 'r', "cvt.rn.f64.s32 %g0, %r1; cvt.rzi.s32.f64 %r0, %g0;", A32)                                 \
  X(cvt_down, 'r', "cvt.rn.f64.s16 %g0, %h1; mul.f64 %g0, %g0, 0.5; cvt.rmi.s32.f64 %r0, %g0;",                  \
    (uint32_t)(SA16 >> 1))                                                                                       \
  X(cvt_clamp, 'r', "cvt.rn.f64.u64 %g0, %d1; cvt.rni.u32.f64 %r0, %g0;", a > UINT32_MAX ? UINT32_MAX : A32)     \
  X(nan_s32, 'r', "mov.f64 %g0, 0d7ff8000000000000; cvt.rzi.s32.f64 %r0, %g0;", 0x80000000)                      \
  X(nan_u32, 'r', "mov.f64 %g0, 0d7ff8000000000000; cvt.rzi.u32.f64 %r0, %g0;", 0x80000000)                      \
  X(nan_s64, 'd', "mov.f64 %g0, 0d7ff8000000000000; cvt.rni.s64.f64 %d0, %g0;", 1ull << 63)                      \
  X(nan_f32_s32, 'r', "mov.f32 %f0, 0f7fffffff; cvt.rzi.s32.f32 %r0, %f0;", 0)                                   \
  X(nan_f32_u32, 'r', "mov.f32 %f0, 0f7fffffff; cvt.rzi.u32.f32 %r0, %f0;", 0)                                   \
  X(nan_f32_u64, 'd', "mov.f32 %f0, 0f7fffffff; cvt.rzi.u64.f32 %d0, %f0;", 1ull << 63)                          \
  X(nan_f32_f64, 'f', "mov.f64 %g0, 0dfff8000012345678; cvt.rn.f32.f64 %f0, %g0;", 0x7fffffff)                   \
  X(nan_f64_f32, 'g', "mov.f32 %f0, 0fffc12345; cvt.f64.f32 %g0, %f0;", INT64_MAX)                               \
  X(nan_add_f32, 'f', "mov.f32 %f1, 0fffc12345; add.f32 %f0, %f1, 0f3F800000;", 0x7fffffff)                      \
  X(cvt_f64_f32, 'g', "cvt.rn.f32.u16 %f0, %h1; cvt.f64.f32 %g0, %f0;", of64((double)A16))                       \
  X(cvt_f32_f64, 'f', "cvt.rn.f64.u32 %g0, %r1; cvt.rn.f32.f64 %f0, %g0;", of32((float)A32))                     \
  X(add_f32, 'f', "cvt.rn.f32.u32 %f1, %r1; add.f32 %f0, %f1, 0f3F800000;", of32((float)A32 + 1.0f))             \
  X(sub_f64, 'g', "cvt.rn.f64.u32 %g1, %r1; sub.rn.f64 %g0, %g1, 0d3FF0000000000000;", of64((double)A32 - 1.0))  \
  X(mul_f32, 'f', "cvt.rn.f32.u16 %f1, %h1; mul.f32 %f0, %f1, 0f40490FDB;", of32((float)A16 *f32(0x40490FDB)))   \
  X(div_f64, 'g', "cvt.rn.f64.u16 %g1, %h1; div.rn.f64 %g0, %g1, 0d4008000000000000;", of64((double)A16 / 3.0))  \
  X(fma_f64, 'g', "cvt.rn.f64.s16 %g1, %h1; fma.rn.f64 %g0, %g1, %g1, %g1;",                                     \
    of64((double)SA16 *(double)SA16 + (double)SA16))                                                             \
  X(neg_f32, 'f', "cvt.rn.f32.u16 %f1, %h1; neg.f32 %f0, %f1;", of32(-(float)A16))                               \
  X(abs_f64, 'g', "cvt.rn.f64.s16 %g1, %h1; abs.f64 %g0, %g1;", of64(fabs((double)SA16)))                        \
  X(setp_f32, 'p', "cvt.rn.f32.s16 %f1, %h1; cvt.rn.f32.s16 %f2, %h2; setp.lt.f32 %p0, %f1, %f2;", SA16 < SB16)  \
  X(setp_nan, 'p', "mov.f32 %f1, 0f7FC00000; setp.ne.f32 %p0, %f1, %f1;", 0)                                     \
  X(selp_f64, 'g', "selp.f64 %g0, 1.5, 0d4000000000000000, %p1;", of64(CHOSEN ? 1.5 : 2.0))                      \
  X(guard, 'r', "mov.u32 %r0, 1; @%p1 mov.u32 %r0, 2; @!%p1 add.u32 %r0, %r0, 8;", CHOSEN ? 2 : 9)               \
  X(scope, 'r', "mov.u32 %r0, 1; { .reg .b32 %r<2>, own; mov.u32 %r1, 5; mov.u32 own, 6; } ", 1)                 \
  X(octal, 'r', "mov.u32 %r0, 017;", 15)                                                                         \
  X(binary, 'r', "mov.u32 %r0, 0b1011U; // a comment\n", 11)                                                     \
  X(comment, 'r', "mov.u32 /* this; is\n not */ %r0, 3;", 3)                                                     \
  X(addc_u32, 'd', "add.cc.u32 %r0, %r1, %r2; addc.u32 %r4, 0, 0; mov.b64 %d0, {%r0, %r4};", (uint64_t)A32 + B32) \
  X(subc_s64, 'd', "sub.cc.u64 %d4, %d1, %d2; subc.u64 %d0, %d1, 5;", a - 5 - (a < b))                            \
  X(madc_hi, 'd',                                                                                                 \
    "mad.lo.cc.u32 %r0, %r1, %r2, %r3; madc.hi.u32 %r4, %r1, %r2, 0; "                                            \
    "mov.b64 %d0, {%r0, %r4};",                                                                                   \
    (uint64_t)A32 *B32 + C32)                                                                                     \
  X(popc, 'r', "popc.b64 %r0, %d1;", (uint64_t)__builtin_popcountll(a))                                           \
  X(clz, 'r', "clz.b32 %r0, %r1;", A32 == 0 ? 32 : (uint64_t)__builtin_clz(A32))                                  \
  X(brev, 'r', "brev.b32 %r0, %r1; brev.b32 %r0, %r0;", A32)                                                      \
  X(bfe_u32, 'r', "bfe.u32 %r0, %r1, 4, 8;", A32 >> 4 & 0xff)                                                     \
  X(bfe_s32, 'r', "bfe.s32 %r0, %r1, 28, 8;", (uint32_t)(SA32 >> 28))                                             \
  X(bfi_b32, 'r', "bfi.b32 %r0, %r2, %r1, 8, 12;", (A32 & ~0xfff00u) | (B32 & 0xfff) << 8)                        \
  X(prmt, 'r', "prmt.b32 %r0, %r1, %r2, 0x5410;", (A32 & 0xffff) | B32 << 16)                                     \
  X(lop3, 'r', "lop3.b32 %r0, %r1, %r2, %r3, 0xE8;", (A32 & B32) | (A32 & C32) | (B32 & C32))                     \
  X(shf_l, 'r', "shf.l.wrap.b32 %r0, %r1, %r2, 7;", B32 << 7 | A32 >> 25)                                         \
  X(shf_r, 'r',                                                                                                   \
    "shf.r.clamp.b32 %r0, %r1, %r2, %r3;",                                                                        \
    C32 >= 32 ? B32 : (uint32_t)((A32 | (uint64_t)B32 << 32) >> C32))                                             \
  X(unpack, 'd', "mov.b64 {%r0, %r4}, %d1; mov.b64 %d0, {%r4, %r0};", a << 32 | a >> 32)                          \
  X(unpack_4, 'd', "mov.b64 {%h0, _, _, %h3}, %d1; cvt.u64.u16 %d0, %h3;", a >> 48)                               \
  X(sqrt, 'g', "cvt.rn.f64.u32 %g1, %r1; sqrt.rn.f64 %g0, %g1;", of64(sqrt((double)A32)))                         \
  X(rcp, 'f',                                                                                                     \
    "cvt.rn.f32.u16 %f1, %h1; add.f32 %f1, %f1, 0f3F800000; rcp.rn.f32 %f0, %f1;",                                \
    of32(1.0f / ((float)A16 + 1.0f)))                                                                             \
  X(ex2, 'f', "cvt.rn.f32.s16 %f1, %h1; ex2.approx.f32 %f0, %f1;", of32((float)exp2((double)SA16)))               \
  X(add_down, 'f', "cvt.rn.f32.u16 %f1, %h1; add.rm.f32 %f0, %f1, 0f33800000;",                                  \
    of32(A16 == 0 ? f32(0x33800000) : (float)A16))                                                               \
  X(sat, 'f', "cvt.rn.f32.s16 %f1, %h1; add.sat.f32 %f0, %f1, 0f00000000;", of32(SA16 > 0 ? 1.0f : 0.0f))         \
  X(half, 'h',                                                                                                    \
    "cvt.rn.f16.s16 %h0, %h1; add.f16 %h0, %h0, %h0; cvt.f32.f16 %f0, %h0; "                                      \
    "cvt.rn.f16.f32 %h0, %f0;",                                                                                   \
    half_of(2 * half_value(SA16)))                                                                                \
  X(half_bits, 'r',                                                                                               \
    "cvt.f32.f16 %f0, %h1; mov.b32 %r0, %f0; and.b32 %r4, %r0, 0x7f800000; "                                      \
    "setp.eq.u32 %p2, %r4, 0x7f800000; @%p2 mov.u32 %r0, 0;",                                                     \
    (A16 & 0x7c00) == 0x7c00 ? 0 : of32(half_float(A16)))                                                         \
  X(brain, 'f',                                                                                                   \
    "cvt.rn.f32.u16 %f1, %h1; cvt.rn.bf16.f32 %h0, %f1; cvt.u32.u16 %r0, %h0; "                                   \
    "shl.b32 %r0, %r0, 16; mov.b32 %f0, %r0;",                                                                    \
    of32(brain_of((float)A16)))                                                                                   \
  X(brain_of_integer, 'f',                                                                                        \
    "cvt.rn.bf16.s16 %h0, %h1; cvt.u32.u16 %r0, %h0; shl.b32 %r0, %r0, 16; mov.b32 %f0, %r0;",                    \
    of32(brain_of((float)SA16)))                                                                                  \
  X(brain_to_integer, 'r',                                                                                        \
    "cvt.rn.bf16.s16 %h0, %h1; cvt.rzi.s32.bf16 %r0, %h0;", (uint32_t)(int32_t)brain_of((float)SA16))             \
  X(brain_of_half, 'h', "cvt.rn.f16.u8 %h0, %h1; cvt.rn.bf16.f16 %h0, %h0; cvt.f16.bf16 %h0, %h0;",                \
    half_of((double)A8))                                                                                          \
  X(joined_directives, 'r', "{ .reg.b16 own; .reg.b32 wide; cvt.u16.u32 own, %r1; cvt.u32.u16 wide, own; "        \
    "mov.u32 %r0, wide; }", A16)                                                                                  \
  X(setp_unordered, 'p', "mov.f32 %f1, 0f7FC00000; setp.geu.f32 %p0, %f1, %f1;", 1)                               \
  X(copysign, 'f',                                                                                                \
    "mov.b32 %f1, %r1; mov.b32 %f2, %r2; copysign.f32 %f0, %f1, %f2;",                                            \
    (A32 & 0x80000000) | (B32 & 0x7fffffff))                                                                      \
  X(own_memory, 'r',                                                                                              \
    ".local .align 8 .b8 own[16]; mov.u64 %d4, own; cvta.local.u64 %d5, %d4; "                                    \
    "st.local.u32 [%d4+4], %r1; ld.u32 %r0, [%d5+4];",                                                            \
    A32)                                                                                                          \
  X(threads, 'r', "mov.u32 %r0, %r4;", i)

#define FUNCTION(name, kind, text, expression)                                                    \
  static uint64_t c_##name(uint64_t a, uint64_t b, uint64_t c, uint64_t i) {                      \
    (void)a, (void)b, (void)c, (void)i;                                                           \
    return expression;                                                                            \
  }
ROWS(FUNCTION)

#define ROW(name, kind, text, expression) {#name, kind, text, c_##name},
static const struct row {
  const char *name;
  char kind;
  const char *text;
  uint64_t (*c)(uint64_t a, uint64_t b, uint64_t c, uint64_t i);
} rows[] = {ROWS(ROW)};

static const char *result_of(char kind) {
  if (kind == 'h') return "cvt.u64.u16 %d0, %h0;";
  if (kind == 'r') return "cvt.u64.u32 %d0, %r0;";
  if (kind == 'f') return "mov.b32 %r0, %f0;\ncvt.u64.u32 %d0, %r0;";
  if (kind == 'g') return "mov.b64 %d0, %g0;";
  return kind == 'p' ? "selp.u64 %d0, 1, 0, %p0;" : "";
}

/* Without the head, so that all can be one text. */
static const char *row_entry(const struct row *r) {
  static char text[4096];
  snprintf(text, sizeof text,
           ".visible .entry %s(.param .u64 to, .param .u64 from)\n{\n.reg .pred %%p<4>;\n.reg .b16 %%h<4>;\n"
                ".reg .b32 %%r<8>;\n.reg .b64 %%d<8>;\n.reg .f32 %%f<4>;\n.reg .f64 %%g<4>;\n"
                "ld.param.u64 %%d6, [from];\nld.param.u64 %%d7, [to];\n"
                "mov.u32 %%r4, %%tid.x;\nmov.u32 %%r5, %%ctaid.x;\n"
                "mov.u32 %%r6, %%ntid.x;\nmad.lo.u32 %%r4, %%r5, %%r6, %%r4;\nmad.wide.u32 %%d6, %%r4, 16, %%d6;\n"
                "mad.wide.u32 %%d7, %%r4, 8, %%d7;\nld.global.v2.u64 {%%d1, %%d2}, [%%d6];\nxor.b64 %%d3, %%d1, %%d2;\n"
                "cvt.u16.u64 %%h1, %%d1;\ncvt.u16.u64 %%h2, %%d2;\ncvt.u32.u64 %%r1, %%d1;\ncvt.u32.u64 %%r2, %%d2;\n"
                "cvt.u32.u64 %%r3, %%d3;\nsetp.lt.u64 %%p1, %%d1, %%d2;\n%s\n%s\nst.global.u64 [%%d7], %%d0;\n"
                "ret;\n}\n",
           r->name, r->text, result_of(r->kind));
  return text;
}

static const char *row_text(const struct row *r) {
  static char text[4200];
  snprintf(text, sizeof text, NEW_HEAD "%s", row_entry(r));
  return text;
}

static void run_row(const struct row *r, CUdeviceptr to, CUdeviceptr from) {
  uint64_t got[CASES];
  void *params[] = {&to, &from};
  const kernel k = load(row_text(r), r->name);
  OK(cuLaunchKernel(k.function, VALUES, 1, 1, VALUES, 1, 1, 0, NULL, params, NULL));
  OK(cuMemcpyDtoH_v2(got, to, sizeof got));
  for (uint64_t i = 0; i < CASES; i++) {
    const uint64_t a = values[i / VALUES], b = values[i % VALUES], expected = r->c(a, b, a ^ b, i);
    if (got[i] != expected)
      fail_msg("%s of %#llx and %#llx: %#llx, not %#llx", r->name, (unsigned long long)a, (unsigned long long)b,
               (unsigned long long)got[i], (unsigned long long)expected);
  }
  OK(cuModuleUnload(k.module));
}

static void instructions_compute_what_c_computes(void **state) {
  (void)state;
  uint64_t pairs[CASES][2];
  CUdeviceptr to = 0, from = 0;
  for (size_t i = 0; i < CASES; i++) {
    pairs[i][0] = values[i / VALUES];
    pairs[i][1] = values[i % VALUES];
  }
  OK(cuMemAlloc_v2(&to, CASES * 8));
  OK(cuMemAlloc_v2(&from, sizeof pairs));
  OK(cuMemcpyHtoD_v2(from, pairs, sizeof pairs));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) run_row(&rows[i], to, from);
  OK(cuMemFree_v2(to));
  OK(cuMemFree_v2(from));
}

static void the_assembler_takes_what_is_right(void **state) {
  (void)state;
  static char all[256 * 1024] = NEW_HEAD;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) strcat(all, row_entry(&rows[i]));
  assert_true(sizeof all - strlen(all) > 4096);
  NEEDS_ASSEMBLER
  assert_true(assembles(all));
  for (unsigned size = 1; size <= 16; size *= 2) assert_true(assembles(strided_copy(size)));
}

RUN(SPEC(instructions_compute_what_c_computes), SPEC(the_assembler_takes_what_is_right))
