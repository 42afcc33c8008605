/* convert.c: rows of the common dtypes converted at machine speed. A row goes through a block of int64_t or
 * double that holds every value of the source exactly, so n sources and m targets need n + m loops. What is
 * not common (packed, narrow floats as targets, uint64 as a float) stays with codec.c.
 *
 * Invariant: the result of a row is what codec.c gives element by element, but for the payload of a NaN. */
#include "core/core.h"

#include <string.h>

#define BLOCK 256

/* Steps are in bytes. Elements may be unaligned, so all access is by memcpy, which compiles to a move; the
 * loop with a constant step is the one that the compiler turns into vector instructions. */
#define LOAD_LOOP(type, step, value)                                                                 \
  for (int64_t i = 0; i < n; i++) {                                                                  \
    type x;                                                                                          \
    memcpy(&x, src + i * (step), sizeof x);                                                          \
    out[i] = (value);                                                                                \
  }

#define LOADER(name, type, block, value)                                                             \
  static void name(const char *src, int64_t stride, int64_t n, void *to) {                           \
    block *out = to;                                                                                 \
    if (stride == (int64_t)sizeof(type))                                                             \
      LOAD_LOOP(type, (int64_t)sizeof(type), value)                                                  \
    else                                                                                             \
      LOAD_LOOP(type, stride, value)                                                                 \
  }

#define STORE_LOOP(type, step, value)                                                                \
  for (int64_t i = 0; i < n; i++) {                                                                  \
    const type y = (value);                                                                          \
    memcpy(dst + i * (step), &y, sizeof y);                                                          \
  }

#define STORER(name, type, block, value)                                                             \
  static void name(char *dst, int64_t stride, int64_t n, const void *from) {                         \
    const block *x = from;                                                                           \
    if (stride == (int64_t)sizeof(type))                                                             \
      STORE_LOOP(type, (int64_t)sizeof(type), value)                                                 \
    else                                                                                             \
      STORE_LOOP(type, stride, value)                                                                \
  }

static double half_value(uint16_t half) {
  /* The exponent's rebasing by a multiplication makes subnormals right, too. */
  const uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13;
  const uint32_t special = (half & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
  uint32_t bits;
  float f;
  memcpy(&f, &magnitude, sizeof f);
  f *= 0x1p112f;
  memcpy(&bits, &f, sizeof bits);
  bits |= special | (uint32_t)(half & 0x8000) << 16;
  memcpy(&f, &bits, sizeof f);
  return (double)f;
}

static double brain_value(uint16_t brain) {
  const uint32_t bits = (uint32_t)brain << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return (double)f;
}

LOADER(load_bool, uint8_t, int64_t, x != 0)
LOADER(load_i8, int8_t, int64_t, x)
LOADER(load_i16, int16_t, int64_t, x)
LOADER(load_i32, int32_t, int64_t, x)
LOADER(load_i64, int64_t, int64_t, x)
LOADER(load_u8, uint8_t, int64_t, x)
LOADER(load_u16, uint16_t, int64_t, x)
LOADER(load_u32, uint32_t, int64_t, x)
LOADER(load_f16, uint16_t, double, half_value(x))
LOADER(load_bf16, uint16_t, double, brain_value(x))
LOADER(load_f32, float, double, (double)x)
LOADER(load_f64, double, double, x)

/* Integers keep their low bits, so signed and unsigned targets share a loop. */
STORER(int_to_bool, uint8_t, int64_t, x[i] != 0)
STORER(int_to_8, uint8_t, int64_t, (uint8_t)x[i])
STORER(int_to_16, uint16_t, int64_t, (uint16_t)x[i])
STORER(int_to_32, uint32_t, int64_t, (uint32_t)x[i])
STORER(int_to_64, int64_t, int64_t, x[i])
STORER(int_to_f32, float, int64_t, (float)x[i])
STORER(int_to_f64, double, int64_t, (double)x[i])

/* Saturation before the conversion, which would be undefined outside; NaN fails every comparison. */
static double clamp(double x, double lo, double hi) {
  return x > lo ? (x < hi ? x : hi) : x <= lo ? lo : 0;
}

STORER(real_to_bool, uint8_t, double, !(x[i] == 0))
STORER(real_to_i8, int8_t, double, (int8_t)clamp(x[i], INT8_MIN, INT8_MAX))
STORER(real_to_i16, int16_t, double, (int16_t)clamp(x[i], INT16_MIN, INT16_MAX))
STORER(real_to_i32, int32_t, double, (int32_t)clamp(x[i], INT32_MIN, INT32_MAX))
STORER(real_to_i64, int64_t, double, mf__double_to_int(x[i], 64))
STORER(real_to_u8, uint8_t, double, (uint8_t)clamp(x[i], 0, UINT8_MAX))
STORER(real_to_u16, uint16_t, double, (uint16_t)clamp(x[i], 0, UINT16_MAX))
STORER(real_to_u32, uint32_t, double, (uint32_t)clamp(x[i], 0, UINT32_MAX))
STORER(real_to_u64, uint64_t, double, mf__double_to_uint(x[i], 64))
STORER(real_to_f32, float, double, (float)x[i])
STORER(real_to_f64, double, double, x[i])

typedef struct plain {
  uint8_t code;
  uint8_t bits;
  void (*load)(const char *src, int64_t stride, int64_t n, void *to);
  void (*from_int)(char *dst, int64_t stride, int64_t n, const void *from);
  void (*from_real)(char *dst, int64_t stride, int64_t n, const void *from);
} plain;

static const plain plains[] = {
    {kDLBool, 8, load_bool, int_to_bool, real_to_bool}, {kDLInt, 8, load_i8, int_to_8, real_to_i8},
    {kDLInt, 16, load_i16, int_to_16, real_to_i16},     {kDLInt, 32, load_i32, int_to_32, real_to_i32},
    {kDLInt, 64, load_i64, int_to_64, real_to_i64},     {kDLUInt, 8, load_u8, int_to_8, real_to_u8},
    {kDLUInt, 16, load_u16, int_to_16, real_to_u16},    {kDLUInt, 32, load_u32, int_to_32, real_to_u32},
    {kDLUInt, 64, load_i64, int_to_64, real_to_u64},    {kDLFloat, 32, load_f32, int_to_f32, real_to_f32},
    {kDLFloat, 64, load_f64, int_to_f64, real_to_f64},  {kDLFloat, 16, load_f16, NULL, NULL},
    {kDLBfloat, 16, load_bf16, NULL, NULL},
};

static const plain *find(const DLDataType *d) {
  for (size_t i = 0; d->lanes == 1 && i < sizeof plains / sizeof plains[0]; i++)
    if (plains[i].code == d->code && plains[i].bits == d->bits) return &plains[i];
  return NULL;
}

bool mf__convert_find(const DLDataType *to, const DLDataType *from, mf__convert *out) {
  const plain *target = find(to);
  const plain *source = find(from);
  if (target == NULL || source == NULL) return false;
  const bool real = source->code == kDLFloat || source->code == kDLBfloat;
  /* A uint64 above INT64_MAX is no int64_t, which matters only as a float. */
  if (source->code == kDLUInt && source->bits == 64 && target->code == kDLFloat) return false;
  out->real = real;
  out->load = source->load;
  out->store = real ? target->from_real : target->from_int;
  return out->store != NULL;
}

typedef union block {
  int64_t i[BLOCK];
  double f[BLOCK];
} block;

void mf__convert_row(const mf__convert *c, const mf__strided *dst, const mf__strided *src, int64_t n) {
  block b;
  for (int64_t done = 0; done < n; done += BLOCK) {
    const int64_t count = n - done < BLOCK ? n - done : BLOCK;
    c->load(src->data + done * src->stride, src->stride, count, &b);
    c->store(dst->data + done * dst->stride, dst->stride, count, &b);
  }
}

static bool same_block(const block *a, const block *b, int64_t n, bool real) {
  bool same = true;
  for (int64_t i = 0; i < n; i++) same &= real ? a->f[i] == b->f[i] : a->i[i] == b->i[i];
  return same;
}

bool mf__convert_same_row(const mf__convert *c, const mf__strided *a, const mf__strided *b, int64_t n) {
  block x, y;
  for (int64_t done = 0; done < n; done += BLOCK) {
    const int64_t count = n - done < BLOCK ? n - done : BLOCK;
    c->load(a->data + done * a->stride, a->stride, count, &x);
    c->load(b->data + done * b->stride, b->stride, count, &y);
    if (!same_block(&x, &y, count, c->real)) return false;
  }
  return true;
}
