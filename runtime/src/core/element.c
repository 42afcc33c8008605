/* element.c: reads and writes one element at a time, checked, and compares all elements of two tensors. It must not
 * know how a value is encoded. */
#include "core/simd.h"

#include <string.h>

/* The element's place, in elements from element 0. */
static int locate(const mf_tensor *t, const int64_t *coords, int32_t ncoords, int64_t *at, mf_error *err) {
  *at = 0;
  if (ncoords != t->dl.ndim)
    return mf__fail(err, MF_EINVAL, "ncoords is %d; ndim, %d, expected", ncoords, t->dl.ndim);
  if (coords == NULL && ncoords > 0) return mf__fail(err, MF_EINVAL, "coords is NULL, with ncoords %d", ncoords);
  for (int32_t i = 0; i < ncoords; i++) {
    const int64_t extent = t->dl.shape[i];
    const int64_t c = coords[i] < 0 ? coords[i] + extent : coords[i];
    if (c < 0 || c >= extent)
      return mf__fail(err, MF_EBOUNDS, "index %lld is out of range for axis %d of extent %lld", (long long)coords[i], i,
                      (long long)extent);
    /* Unsigned, because a tensor without elements may carry any strides until its empty axis refuses. */
    *at = (int64_t)((uint64_t)*at + (uint64_t)c * (uint64_t)t->dl.strides[i]);
  }
  return MF_OK;
}

/* The bytes that hold an element of memory with a record, and where it begins in them. */
typedef struct held {
  int64_t first, nbytes; /* from the bytes of element 0 */
  int64_t bit;
  unsigned char bytes[32]; /* complex128 takes 16 */
} held;

static held held_by(const mf__codec *c, int64_t at) {
  const int64_t bit = at * c->slot_bits;
  return (held){.first = bit >> 3, .nbytes = ((bit & 7) + c->slot_bits + 7) >> 3, .bit = bit & 7};
}

static int load(const mf_tensor *t, const mf__codec *c, int64_t at, mf_scalar *out, mf_error *err) {
  const mf__record *record = mf__tensor_record(t);
  if (record != NULL) {
    held h = held_by(c, at);
    const int rc = mf__ops_of(record)->read(t, h.first, h.nbytes, h.bytes, err);
    if (rc == MF_OK) mf__codec_load(c, h.bytes, h.bit, out);
    return rc;
  }
  const int rc = mf__fences_settle(t, false, err);
  if (rc == MF_OK) mf__codec_load(c, t->dl.data, at * c->slot_bits, out);
  return rc;
}

/* Bits of the bytes that are not the element's stay as they are. */
static int store(mf_tensor *t, const mf__codec *c, int64_t at, const mf_scalar *value, mf_error *err) {
  const mf__record *record = mf__tensor_record(t);
  if (record != NULL) {
    held h = held_by(c, at);
    const bool whole = h.bit == 0 && h.nbytes * 8 == c->dtype.bits;
    int rc = whole ? MF_OK : mf__ops_of(record)->read(t, h.first, h.nbytes, h.bytes, err);
    if (rc != MF_OK) return rc;
    mf__codec_store(c, h.bytes, h.bit, value);
    return mf__ops_of(record)->write(t, h.first, h.nbytes, h.bytes, err);
  }
  const int rc = mf__fences_settle(t, true, err);
  if (rc == MF_OK) mf__codec_store(c, t->dl.data, at * c->slot_bits, value);
  return rc;
}

int mf_tensor_get(const mf_tensor *t, const int64_t *coords, int32_t ncoords, mf_scalar *out, mf_error *err) {
  MF__NEED(t);
  MF__NEED(out);
  mf__codec c;
  int64_t at;
  int rc = mf__tensor_open(t, err);
  if (rc == MF_OK) rc = mf__codec_find(&t->dl.dtype, t->flags, &c, err);
  if (rc == MF_OK) rc = locate(t, coords, ncoords, &at, err);
  if (rc == MF_OK) rc = load(t, &c, at, out, err);
  return mf__end(rc, __func__, err);
}

int mf_tensor_put(mf_tensor *t, const int64_t *coords, int32_t ncoords, const mf_scalar *value, mf_error *err) {
  MF__NEED(t);
  MF__NEED(value);
  mf__codec c;
  int64_t at;
  int rc = mf__tensor_writable(t, err);
  if (rc == MF_OK) rc = mf__scalar_check(value, err);
  if (rc == MF_OK) rc = mf__codec_find(&t->dl.dtype, t->flags, &c, err);
  if (rc == MF_OK) rc = mf__codec_accepts(&c, value->kind, err);
  if (rc == MF_OK) rc = locate(t, coords, ncoords, &at, err);
  if (rc == MF_OK) rc = store(t, &c, at, value, err);
  return mf__end(rc, __func__, err);
}

typedef struct equal_ctx {
  mf__codec codec[2];
  mf__compare compare; /* where there is a fast way */
  mf__slots slots[2];  /* of elements of less than a byte */
  const char *data[2];
  int64_t bits[2];      /* from one element to the next */
  int64_t element_bits; /* of which the element takes */
  bool as_numbers;
} equal_ctx;

static bool same_value(const equal_ctx *c, const int64_t at[2]) {
  mf_scalar a, b;
  mf__codec_load(&c->codec[0], c->data[0], at[0] * c->bits[0], &a);
  mf__codec_load(&c->codec[1], c->data[1], at[1] * c->bits[1], &b);
  if (a.kind < MF_KIND_FLOAT) return a.u == b.u;
  return a.f == b.f && a.imag == b.imag;
}

/* Compares the element's own bits in chunks; what pads its slot belongs to no element. */
static bool same_bits(const equal_ctx *c, const int64_t at[2]) {
  for (int64_t done = 0; done < c->element_bits; done += 64) {
    const int64_t n = c->element_bits - done < 64 ? c->element_bits - done : 64;
    uint64_t a = 0, b = 0;
    mf__bits_copy(&a, 0, c->data[0], at[0] * c->bits[0] + done, n);
    mf__bits_copy(&b, 0, c->data[1], at[1] * c->bits[1] + done, n);
    if (a != b) return false;
  }
  return true;
}

static bool equal_row(void *arg, const int64_t at[2], int64_t n, const int64_t step[2]) {
  const equal_ctx *c = arg;
  int64_t here[2] = {at[0], at[1]};
  for (int64_t i = 0; i < n; i++) {
    if (!(c->as_numbers ? same_value(c, here) : same_bits(c, here))) return false;
    here[0] += step[0];
    here[1] += step[1];
  }
  return true;
}

static bool compare_row(void *arg, const int64_t at[2], int64_t n, const int64_t step[2]) {
  const equal_ctx *c = arg;
  const int64_t size = c->bits[0] / 8;
  const mf__strided a = {c->data[0] + at[0] * size, step[0] * size};
  const mf__strided b = {c->data[1] + at[1] * size, step[1] * size};
  return mf__compare_row(&c->compare, &a, &b, n);
}

/* Elements of less than a byte, as bytes. */
static bool compare_bytes_row(void *arg, const int64_t at[2], int64_t n, const int64_t step[2]) {
  enum { PIECE = 512 };
  char room[2][PIECE];
  const equal_ctx *c = arg;
  bool same = true;
  for (int64_t done = 0; same && done < n; done += PIECE) {
    mf__strided bytes[2];
    const int64_t count = n - done < PIECE ? n - done : PIECE;
    for (int i = 0; i < 2; i++) {
      const mf__run run = {at[i] + done * step[i], step[i], count};
      bytes[i] = (mf__strided){mf__slots_load(&c->slots[i], c->data[i], &run, room[i]), 1};
    }
    same = mf__compare_row(&c->compare, &bytes[0], &bytes[1], count);
  }
  return same;
}

static mf__row_fn find_row(equal_ctx *c, const mf__simd *simd) {
  if (!c->as_numbers || !mf__compare_find(simd, &c->codec[0], &c->compare)) return equal_row;
  if (c->codec[0].dtype.bits >= 8) return compare_row;
  for (int i = 0; i < 2; i++)
    if (!mf__slots_of(simd, &c->codec[i], false, &c->slots[i])) return equal_row;
  return compare_bytes_row;
}

bool mf__equal_host(const mf_tensor *a, const mf_tensor *b) {
  equal_ctx c = {.data = {a->dl.data, b->dl.data}, .bits = {mf__tensor_bits(a), mf__tensor_bits(b)}};
  const mf__side side = {c.data[1], b->dl.strides, c.bits[1] / 8};
  const mf__simd *simd = mf__simd_now();
  mf__walk w;
  bool same;
  c.as_numbers = mf__codec_find(&a->dl.dtype, a->flags, &c.codec[0], NULL) == MF_OK;
  (void)mf__codec_find(&b->dl.dtype, b->flags, &c.codec[1], NULL); /* the same dtype, perhaps padded */
  c.element_bits = (int64_t)a->dl.dtype.bits * a->dl.dtype.lanes;
  const mf__row_fn row = find_row(&c, simd);
  if (row == compare_row && mf__tiles_equal(simd, &c.compare, &a->dl, &side, &same)) return same;
  mf__walk_plan(&w, &a->dl, b->dl.strides, false);
  return mf__walk_share(&w, mf_tensor_nbytes(a), 1, row, &c);
}

static int equal(const mf_tensor *a, const mf_tensor *b, bool *out, mf_error *err) {
  *out = mf__dtype_equal(&a->dl.dtype, &b->dl.dtype) && mf__same_shape(a, b, NULL) == MF_OK;
  if (!*out || mf__is_empty(&a->dl)) return MF_OK;
  const mf__record *record = mf__either_record(a, b);
  if (record != NULL) return mf__ops_of(record)->equal(a, b, out, err);
  int rc = mf__fences_settle(a, false, err);
  if (rc == MF_OK) rc = mf__fences_settle(b, false, err);
  if (rc == MF_OK) *out = mf__equal_host(a, b);
  return rc;
}

int mf_tensor_equal(const mf_tensor *a, const mf_tensor *b, int32_t *out, mf_error *err) {
  MF__NEED(a);
  MF__NEED(b);
  MF__NEED(out);
  bool same;
  *out = 0;
  int rc = mf__tensor_open(a, err);
  if (rc == MF_OK) rc = mf__tensor_open(b, err);
  if (rc == MF_OK) rc = equal(a, b, &same, err);
  if (rc == MF_OK) *out = same;
  return mf__end(rc, __func__, err);
}
