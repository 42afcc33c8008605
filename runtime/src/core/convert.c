/* convert.c: which loops take a row of one number type to another, and running them. A row goes in pieces, which stay
 * in the cache, through as many loops as it takes: into a type that holds every value of the source, once more where a
 * double has to be rounded to a small float, and into the target. What is not common (complex elements, those that lie
 * across bytes, float8_e8m0fnu) stays with codec.c.
 *
 * Invariant: the result of a row is what codec.c gives element by element. */
#include "core/simd.h"

#include <string.h>

#define PIECE 512

static int small_number(const mf__codec *c) {
  if (c->format.special == MF__SCALE) return -1;
  if (c->dtype.bits == 16) return c->dtype.code == kDLBfloat ? MF__N_BF16 : MF__N_F16;
  return c->dtype.bits == 8 ? MF__N_SMALL8 : -1;
}

int mf__number_of(const mf__codec *c) {
  const int bits = c->dtype.bits;
  const int log = bits == 8 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : bits == 64 ? 3 : -1;
  if (log < 0 || c->slot_bits != bits) return -1;
  switch (c->kind) {
    case MF_KIND_BOOL: return log == 0 ? MF__N_BOOL : -1;
    case MF_KIND_INT: return MF__N_I8 + log;
    case MF_KIND_UINT: return MF__N_U8 + log;
    case MF_KIND_FLOAT: return log == 3 ? MF__N_F64 : log == 2 ? MF__N_F32 : small_number(c);
    default: return -1;
  }
}

/* An element of less than a byte is a number of 8 bits here. */
static int number_in_bytes(const mf__codec *c) {
  if (c->dtype.bits >= 8 || 8 % c->slot_bits != 0) return mf__number_of(c);
  switch (c->kind) {
    case MF_KIND_BOOL: return MF__N_BOOL;
    case MF_KIND_INT: return MF__N_I8;
    case MF_KIND_UINT: return MF__N_U8;
    default: return MF__N_SMALL8;
  }
}

static bool is_real(int number) {
  return number >= MF__N_SMALL8;
}

static bool is_small(int number) {
  return is_real(number) && number < MF__N_F32;
}

static bool is_wide(int number) {
  return number == MF__N_I64 || number == MF__N_U64;
}

/* An integer of 16 bits at most. */
static bool is_short(int number) {
  return number <= MF__N_I16 || number == MF__N_U8 || number == MF__N_U16;
}

/* Of two integers. */
static int integer_pivot(int to, int from) {
  if (is_short(from) && is_short(to)) return MF__P_SHORT;
  return is_wide(from) || (from == MF__N_U32 && is_wide(to)) ? MF__P_LONG : MF__P_INT;
}

/* The type that holds all of ${from}, or of large integers what rounds to a small float as they do, and from which
 * ${to} is one rounding away. */
static int pivot_of(int to, int from) {
  if (is_real(from)) return from == MF__N_F64 ? MF__P_F64 : MF__P_F32;
  if (!is_real(to)) return integer_pivot(to, from);
  if (is_wide(from) && !is_small(to)) return from == MF__N_I64 ? MF__P_LONG : MF__P_U64;
  if (from == MF__N_I32 && to == MF__N_F32) return MF__P_INT;
  return to == MF__N_F64 && (from == MF__N_I32 || from == MF__N_U32) ? MF__P_F64 : MF__P_F32;
}

/* Integers of 8 bits are each other's bytes. */
static bool is_byte(int number) {
  return number == MF__N_I8 || number == MF__N_U8;
}

static void push(mf__convert *c, mf__loop run, const mf__codec *format, int64_t size) {
  if (run == NULL) return;
  if (format != NULL && is_small(number_in_bytes(format))) mf__small_of(&format->format, &c->stages[c->nstages].format);
  c->stages[c->nstages].run = run;
  c->stages[c->nstages++].size = size;
}

/* By way of a pivot. */
static void push_loops(mf__convert *c, const mf__loops *loops, const mf__codec *to, const mf__codec *from, int target) {
  const int source = number_in_bytes(from), pivot = pivot_of(target, source);
  const int64_t width = pivot == MF__P_SHORT ? 2 : pivot == MF__P_INT || pivot == MF__P_F32 ? 4 : 8;
  const bool odd = pivot == MF__P_F64 && is_small(target) && loops->store[pivot][target] == NULL;
  push(c, loops->load[pivot][source], from, width);
  if (odd) push(c, loops->odd, NULL, 4);
  push(c, loops->store[odd ? MF__P_F32 : pivot][target], to, c->to);
}

bool mf__convert_find(const mf__simd *simd, const mf__codec *to, const mf__codec *from, mf__convert *out) {
  const int source = number_in_bytes(from);
  int target = number_in_bytes(to);
  if (simd == NULL || target < 0 || source < 0) return false;
  if (target == MF__N_U8 && to->dtype.bits < 8) target = MF__N_I8; /* holds all of its values */
  out->nstages = 0;
  out->from = (from->slot_bits + 7) / 8;
  out->to = (to->slot_bits + 7) / 8;
  if (is_byte(target) && is_byte(source)) return true;
  const mf__loop direct = simd->loops->direct[source][target];
  if (direct != NULL)
    push(out, direct, NULL, out->to);
  else
    push_loops(out, simd->loops, to, from, target);
  return true;
}

/* Pieces of so many bytes of the source go through all of several loops. What comes next is asked for meanwhile: no
 * more at once than a processor waits for. */
#define READ_BYTES 1024

void mf__convert_row(const mf__convert *c, char *dst, const char *src, int64_t n, bool passes) {
  _Alignas(64) char between[2][READ_BYTES * 8];
  const int32_t last = c->nstages - 1;
  if (last < 0) memcpy(dst, src, (size_t)(n * c->to)); /* another name for the same bits */
  if (last == 0) c->stages[0].run(dst, src, n, &c->stages[0].format, passes);
  if (last <= 0) return;
  const int64_t piece = READ_BYTES / c->from;
  for (int64_t done = 0; done < n; done += piece) {
    const int64_t count = n - done < piece ? n - done : piece;
    const void *from = src + done * c->from;
    if (count == piece) /* as the kernels do; a shorter piece costs more to ask for than it gains */
      mf__prefetch_ahead(from, READ_BYTES);
    for (int32_t s = 0; s <= last; s++) {
      void *to = s == last ? dst + done * c->to : between[s];
      c->stages[s].run(to, from, count, &c->stages[s].format, passes && s == last);
      from = to;
    }
  }
}

bool mf__compare_find(const mf__simd *simd, const mf__codec *codec, mf__compare *out) {
  const int number = number_in_bytes(codec);
  if (simd == NULL || number < 0) return false;
  const int pivot = is_real(number) && number != MF__N_F64 ? MF__P_F32 : MF__P_INT;
  const int64_t size = (codec->slot_bits + 7) / 8;
  *out = (mf__compare){.size = size, .width = size};
  if (number == MF__N_BOOL || is_small(number)) {
    out->load = simd->loops->load[pivot][number];
    out->width = 4;
  }
  if (is_small(number)) mf__small_of(&codec->format, &out->format);
  if (is_real(number)) out->same = number == MF__N_F64 ? simd->loops->same_f64 : simd->loops->same_f32;
  return true;
}

/* A piece of a row, as it is compared: where it lies, or in ${room}. */
static const void *compared(const mf__compare *c, const mf__strided *row, int64_t first, int64_t n,
                            char room[2][PIECE * 8]) {
  const char *from = row->data + first * row->stride;
  if (row->stride != c->size) {
    const mf__tile t = {.dst = room[0], .src = from, .size = c->size, .rows = 1, .columns = n, .dst_column = c->size,
                        .src_column = row->stride};
    mf__move_plain(&t);
    from = room[0];
  }
  if (c->load == NULL) return from;
  c->load(room[1], from, n, &c->format, false);
  return room[1];
}

bool mf__compare_row(const mf__compare *c, const mf__strided *a, const mf__strided *b, int64_t n) {
  _Alignas(64) char room[2][2][PIECE * 8];
  for (int64_t done = 0; done < n; done += PIECE) {
    const int64_t count = n - done < PIECE ? n - done : PIECE;
    const void *x = compared(c, a, done, count, room[0]), *y = compared(c, b, done, count, room[1]);
    if (c->same != NULL ? !c->same(x, y, count) : memcmp(x, y, (size_t)(count * c->width)) != 0) return false;
  }
  return true;
}
