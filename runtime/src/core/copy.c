/* copy.c: elements from one layout to another with the bits unchanged, and one element repeated. What
 * converts is cast.c.
 *
 * Invariant: the source is read as it was before the copy, however the two overlap. */
#include "core/simd.h"

#include <string.h>

/* Up to 8 bits from any position, which may be negative. */
static unsigned read_chunk(const unsigned char *src, int64_t bit, int count) {
  const int64_t byte = bit >> 3;
  const int shift = (int)(bit & 7);
  unsigned value = (unsigned)src[byte] >> shift;
  if (shift + count > 8) value |= (unsigned)src[byte + 1] << (8 - shift);
  return value & ((1u << count) - 1);
}

static void write_chunk(unsigned char *dst, int64_t bit, int count, unsigned value) {
  const int shift = (int)(bit & 7);
  const unsigned mask = ((1u << count) - 1) << shift;
  dst[bit >> 3] = (unsigned char)((dst[bit >> 3] & ~mask) | (value << shift));
}

void mf__bits_copy(void *dst, int64_t dst_bit, const void *src, int64_t src_bit, int64_t nbits) {
  while (nbits > 0) {
    if (((dst_bit | src_bit) & 7) == 0 && nbits >= 8) {
      memcpy((char *)dst + (dst_bit >> 3), (const char *)src + (src_bit >> 3), (size_t)(nbits >> 3));
      dst_bit += nbits & ~INT64_C(7);
      src_bit += nbits & ~INT64_C(7);
      nbits &= 7;
      continue;
    }
    const int room = 8 - (int)(dst_bit & 7);
    const int count = nbits < room ? (int)nbits : room;
    write_chunk(dst, dst_bit, count, read_chunk(src, src_bit, count));
    dst_bit += count;
    src_bit += count;
    nbits -= count;
  }
}

typedef struct copy_ctx {
  char *dst;
  const char *src;
  int64_t size; /* of one element, in bytes, or in bits for copy_bits_row */
} copy_ctx;

/* A byte of equal elements. */
static unsigned char repeated(const char *src, int64_t bit, int64_t size) {
  unsigned byte = read_chunk((const unsigned char *)src, bit, (int)size);
  for (int64_t have = size; have < 8; have *= 2) byte |= byte << have;
  return (unsigned char)byte;
}

static bool copy_bits_row(void *arg, const int64_t at[2], int64_t n, const int64_t step[2]) {
  const copy_ctx *c = arg;
  if (step[0] == 1 && step[1] == 1) {
    mf__bits_copy(c->dst, at[0] * c->size, c->src, at[1] * c->size, n * c->size);
    return true;
  }
  int64_t i = 0;
  if (step[0] == 1 && step[1] == 0 && 8 % c->size == 0 && at[0] * c->size % 8 == 0) {
    const unsigned char byte = repeated(c->src, at[1] * c->size, c->size);
    memset(c->dst + at[0] * c->size / 8, byte, (size_t)(n * c->size / 8));
    i = n - n % (8 / c->size);
  }
  for (; i < n; i++)
    mf__bits_copy(c->dst, (at[0] + i * step[0]) * c->size, c->src, (at[1] + i * step[1]) * c->size, c->size);
  return true;
}

/* A size that the compiler knows makes memcpy a plain load and store. */
#define COPY_EACH(nbytes)                                                                            \
  for (int64_t i = 0; i < n; i++) memcpy(dst + i * dst_step, src + i * src_step, (nbytes))

static bool copy_row(void *arg, const int64_t at[2], int64_t n, const int64_t step[2]) {
  const copy_ctx *c = arg;
  const int64_t size = c->size;
  char *dst = c->dst + at[0] * size;
  const char *src = c->src + at[1] * size;
  const int64_t dst_step = step[0] * size;
  const int64_t src_step = step[1] * size;
  if (step[0] == 1 && step[1] == 1) {
    memcpy(dst, src, (size_t)(n * size));
    return true;
  }
  if (step[0] == 1 && step[1] == 0) {
    mf__repeat_row(dst, src, size, n);
    return true;
  }
  switch (size) {
    case 1: COPY_EACH(1); break;
    case 2: COPY_EACH(2); break;
    case 4: COPY_EACH(4); break;
    case 8: COPY_EACH(8); break;
    case 16: COPY_EACH(16); break;
    default: COPY_EACH((size_t)size);
  }
  return true;
}

static void copy_apart(mf_tensor *dst, const void *src, const int64_t *src_strides) {
  const int64_t bits = mf__tensor_bits(dst);
  const bool whole = bits % 8 == 0, repeats = mf__walk_repeats(&dst->dl);
  const mf__simd *simd = mf__simd_now();
  copy_ctx ctx = {dst->dl.data, src, whole ? bits / 8 : bits};
  mf__walk w;
  if (whole && !repeats && simd != NULL) {
    const mf__side from = {ctx.src, src_strides, ctx.size};
    mf__tiles_copy(simd, &dst->dl, &from);
    return;
  }
  mf__walk_plan(&w, &dst->dl, src_strides, repeats);
  if (repeats || !mf__walk_is_apart(&w, bits))
    (void)mf__walk_rows(&w, whole ? copy_row : copy_bits_row, &ctx);
  else
    (void)mf__walk_share(&w, mf_tensor_nbytes(dst), 8, whole ? copy_row : copy_bits_row, &ctx);
}

/* The n elements from first on, row by row: where each row lies in t, and where in compact memory. */
static void each_row_of(const mf_tensor *t, int64_t first, int64_t n, copy_ctx *c, bool gather) {
  mf__walk w;
  mf__walk_plan(&w, &t->dl, NULL, true);
  const int32_t inner = w.ndim - 1;
  const int64_t length = inner < 0 ? 1 : w.shape[inner];
  const int64_t step = inner < 0 ? 1 : w.strides[0][inner];
  for (int64_t done = 0; done < n;) {
    int64_t row = (first + done) / length;
    const int64_t column = (first + done) % length;
    const int64_t count = length - column < n - done ? length - column : n - done;
    int64_t at = column * step;
    for (int32_t i = inner - 1; i >= 0; i--) {
      at += row % w.shape[i] * w.strides[0][i];
      row /= w.shape[i];
    }
    const int64_t places[2] = {gather ? done : at, gather ? at : done};
    const int64_t steps[2] = {gather ? 1 : step, gather ? step : 1};
    (void)copy_row(c, places, count, steps);
    done += count;
  }
}

void mf__gather(const mf_tensor *t, int64_t first, int64_t n, char *to) {
  copy_ctx c = {to, t->dl.data, mf__tensor_bits(t) / 8};
  each_row_of(t, first, n, &c, true);
}

void mf__scatter(const mf_tensor *t, int64_t first, int64_t n, const char *from) {
  copy_ctx c = {t->dl.data, from, mf__tensor_bits(t) / 8};
  each_row_of(t, first, n, &c, false);
}

void mf__repeat(mf_tensor *dst, const void *slot) {
  copy_apart(dst, slot, NULL);
}

int mf__same_shape(const mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  if (dst->dl.ndim != src->dl.ndim)
    return mf__fail(err, MF_EINVAL, "src.ndim is %d; dst.ndim, %d, expected", src->dl.ndim, dst->dl.ndim);
  for (int32_t i = 0; i < dst->dl.ndim; i++)
    if (dst->dl.shape[i] != src->dl.shape[i])
      return mf__fail(err, MF_EINVAL, "src.shape[%d] is %lld; dst.shape[%d], %lld, expected", i,
                      (long long)src->dl.shape[i], i, (long long)dst->dl.shape[i]);
  return MF_OK;
}

static int same_dtype(const mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  char a[MF__NAME_CAP], b[MF__NAME_CAP];
  if (!mf__dtype_equal(&dst->dl.dtype, &src->dl.dtype)) {
    (void)mf_dtype_format(&src->dl.dtype, b, sizeof b, NULL);
    (void)mf_dtype_format(&dst->dl.dtype, a, sizeof a, NULL);
    return mf__fail(err, MF_EDTYPE, "src.dtype is %s; dst.dtype, %s, expected", b, a);
  }
  if (mf__tensor_bits(dst) != mf__tensor_bits(src))
    return mf__fail(err, MF_EDTYPE, "one of dst and src is padded to bytes, the other packed");
  return MF_OK;
}

/* The addresses that a tensor's elements occupy; it was checked that they fit when it was made. */
static void address_range(const mf_tensor *t, uintptr_t *lo, uintptr_t *hi) {
  mf__span span;
  (void)mf__span_compute(&t->dl, mf__tensor_bits(t), &span, NULL);
  *lo = (uintptr_t)t->dl.data - (uintptr_t)-span.lo_byte;
  *hi = (uintptr_t)t->dl.data + (uintptr_t)span.hi_byte;
}

bool mf__overlap(const mf_tensor *a, const mf_tensor *b) {
  uintptr_t a_lo, a_hi, b_lo, b_hi;
  address_range(a, &a_lo, &a_hi);
  address_range(b, &b_lo, &b_hi);
  return a_lo < b_hi && b_lo < a_hi;
}

/* Both compact, both in whole bytes: one call does it, overlap or not. What is large and lies apart goes by tiles. */
static bool copy_compact(mf_tensor *dst, const mf_tensor *src) {
  if (mf__tensor_bits(dst) % 8 != 0 || !mf__is_compact(&dst->dl) || !mf__is_compact(&src->dl)) return false;
  if (mf_tensor_nbytes(dst) >= MF__LARGE && !mf__overlap(dst, src)) return false;
  memmove(dst->dl.data, src->dl.data, (size_t)mf_tensor_nbytes(dst));
  return true;
}

static int copy_staged(mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  mf_tensor *staged;
  const int rc = mf__tensor_create_host(&src->dl, mf__tensor_padded(src), &staged, err);
  if (rc != MF_OK) return rc;
  copy_apart(staged, src->dl.data, src->dl.strides);
  copy_apart(dst, staged->dl.data, staged->dl.strides);
  (void)mf_tensor_release_later(staged);
  return MF_OK;
}

int mf__copy_host(mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  if (copy_compact(dst, src)) return MF_OK;
  if (mf__overlap(dst, src)) return copy_staged(dst, src, err);
  copy_apart(dst, src->dl.data, src->dl.strides);
  return MF_OK;
}

const mf__record *mf__either_record(const mf_tensor *a, const mf_tensor *b) {
  const mf__record *record = mf__tensor_record(a);
  return record != NULL ? record : mf__tensor_record(b);
}

static int copy_any(mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  const mf__record *record = mf__either_record(dst, src);
  if (record != NULL) return mf__ops_of(record)->copy(dst, src, err);
  int rc = mf__fences_settle(src, false, err);
  if (rc == MF_OK) rc = mf__fences_settle(dst, true, err);
  return rc == MF_OK ? mf__copy_host(dst, src, err) : rc;
}

int mf__copy_new(mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  const mf__record *record = mf__either_record(dst, src);
  if (record != NULL) return mf__ops_of(record)->copy(dst, src, err);
  const int rc = mf__fences_settle(src, false, err);
  if (rc != MF_OK) return rc;
  if (!copy_compact(dst, src)) copy_apart(dst, src->dl.data, src->dl.strides);
  return MF_OK;
}

int mf_tensor_copy(mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  MF__NEED(dst);
  MF__NEED(src);
  int rc = mf__tensor_writable(dst, err);
  if (rc == MF_OK) rc = mf__tensor_open(src, err);
  if (rc == MF_OK) rc = same_dtype(dst, src, err);
  if (rc == MF_OK) rc = mf__same_shape(dst, src, err);
  if (rc == MF_OK && !mf__is_empty(&dst->dl)) rc = copy_any(dst, src, err);
  return mf__end(rc, __func__, err);
}
