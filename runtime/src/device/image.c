/* image.c: copies and fills by the host for a device, where no driver call expresses them: elements of parts of bytes,
 * places that repeat, layouts that would take too many driver copies.
 *
 * Invariant: only bytes that hold an element of the two tensors are read or written. The bytes between them may belong
 * to another view, which another thread or another library writes meanwhile. It must not know which driver there is. */
#include "device/device.h"

#include <string.h>

/* Memory in another's order */

int mf__arranged_create(const mf_tensor *like, const mf__place *place, mf_tensor **all, mf_tensor **out,
                        mf_error *err) {
  int64_t strides[MF_MAX_NDIM], step = 1, first = 0;
  int32_t axes[MF_MAX_NDIM];
  const int64_t size = mf__tensor_bits(like) / 8;
  int rc = mf__tensor_create_at(&like->dl, mf__tensor_padded(like), place, all, err);
  if (rc != MF_OK) return rc;
  (void)mf__axes_sort(like->dl.ndim, like->dl.strides, NULL, axes);
  for (int32_t i = like->dl.ndim; i-- > 0;) {
    const int64_t extent = like->dl.shape[axes[i]];
    const bool backwards = like->dl.strides[axes[i]] < 0;
    strides[axes[i]] = backwards ? -step : step;
    if (backwards) first += (extent - 1) * step;
    step *= extent;
  }
  DLTensor view = (*all)->dl;
  view.data = (char *)view.data + first * size;
  view.strides = strides;
  rc = mf__tensor_view(&view, mf__tensor_padded(like), (*all)->storage, out, err);
  if (rc == MF_OK) return rc;
  (void)mf_tensor_release_later(*all);
  *all = NULL;
  return rc;
}

/* Whole bytes, by way of memory in the same order */

int mf__bytes_of(const mf_tensor *t, char *first, int64_t nbytes, mf_tensor **out, mf_error *err) {
  int64_t extents[2] = {nbytes, 1};
  const DLTensor view = {.data = first,
                         .device = t->dl.device,
                         .ndim = 1,
                         .dtype = {kDLUInt, 8, 1},
                         .shape = extents,
                         .strides = extents + 1};
  return mf__tensor_view(&view, 0, t->storage, out, err);
}

/* The bytes that t's elements span; they were checked when t was made. */
static mf__span span_of(const mf_tensor *t) {
  mf__span span;
  (void)mf__span_compute(&t->dl, mf__tensor_bits(t), &span, NULL);
  return span;
}

/* The elements are arranged in the order of the destination's memory and copied in one piece: straight into the
 * destination, where nothing lies between its elements; else into memory of the device, from which driver copies of
 * rows and slices take them. */
static int write_arranged(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  const mf__place host = {0}, device = mf__temporary_place(on, MF__DEVICE);
  mf_tensor *all = NULL, *arranged = NULL, *there = NULL, *arrived = NULL, *bytes = NULL;
  const mf__span span = span_of(dst);
  int rc = mf__arranged_create(dst, &host, &all, &arranged, err);
  if (rc == MF_OK) rc = mf__copy_host(arranged, src, err);
  if (rc == MF_OK && span.hi_byte - span.lo_byte == span.nbytes) {
    rc = mf__bytes_of(dst, (char *)dst->dl.data + span.lo_byte, span.nbytes, &there, err);
    if (rc == MF_OK) rc = mf__bytes_of(all, all->dl.data, span.nbytes, &bytes, err);
    if (rc == MF_OK) rc = mf__move_bytes(on, there, bytes, err);
  } else if (rc == MF_OK) {
    rc = mf__arranged_create(dst, &device, &there, &arrived, err);
    if (rc == MF_OK) rc = mf__move_bytes(on, there, all, err);
    if (rc == MF_OK) rc = mf__move_boxes(on, dst, arrived, err);
  }
  mf_tensor *const made[] = {bytes, arrived, there, arranged, all};
  for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) (void)mf_tensor_release_later(made[i]);
  return rc;
}

/* The same tensor without its repetitions: axes of stride 0 have extent 1. */
static int without_repeats(const mf_tensor *t, mf_tensor **out, mf_error *err) {
  int64_t shape[MF_MAX_NDIM];
  DLTensor view = t->dl;
  for (int32_t i = 0; i < t->dl.ndim; i++) shape[i] = t->dl.strides[i] == 0 ? 1 : t->dl.shape[i];
  view.shape = shape;
  return mf__tensor_view(&view, t->flags, t->storage, out, err);
}

/* Gives ${out} the shape of src, on the host. */
static int read_arranged(const mf__queue *on, const mf_tensor *src, mf_tensor **out, mf_error *err) {
  const mf__place host = {0}, device = mf__temporary_place(on, MF__DEVICE);
  mf_tensor *once = NULL, *packed = NULL, *arranged = NULL, *all = NULL, *arrived = NULL;
  int rc = without_repeats(src, &once, err);
  if (rc == MF_OK) rc = mf__arranged_create(once, &device, &packed, &arranged, err);
  if (rc == MF_OK) rc = mf__move_boxes(on, arranged, once, err);
  if (rc == MF_OK) rc = mf__arranged_create(once, &host, &all, &arrived, err);
  if (rc == MF_OK) rc = mf__move_bytes(on, all, packed, err);
  if (rc == MF_OK) {
    int64_t strides[MF_MAX_NDIM];
    DLTensor view = arrived->dl;
    for (int32_t i = 0; i < view.ndim; i++) strides[i] = src->dl.strides[i] == 0 ? 0 : arrived->dl.strides[i];
    view.shape = src->dl.shape;
    view.strides = strides;
    rc = mf__tensor_view(&view, 0, all->storage, out, err);
  }
  mf_tensor *const made[] = {arrived, all, arranged, packed, once};
  for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) (void)mf_tensor_release_later(made[i]);
  return rc;
}

/* Images: everything else, run by run of the bytes that have something of an element */

/* A device's tensor, and its image on the host. */
typedef struct image {
  const mf_tensor *of;
  mf_tensor *bytes;  /* the bytes that the original spans, in its memory */
  mf_tensor *pinned; /* as many bytes that both sides can use */
  mf_tensor *tensor; /* the original's layout over those */
  mf_tensor *mask;   /* for each byte, which of its bits are an element's */
} image;

static void image_release(image *m) {
  mf_tensor *const made[] = {m->tensor, m->mask, m->pinned, m->bytes};
  for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) (void)mf_tensor_release_later(made[i]);
}

typedef struct marker {
  unsigned char *mask;
  int64_t bits;  /* of an element */
  int64_t first; /* bit of element 0 */
} marker;

static bool mark_row(void *arg, const int64_t at[2], int64_t n, const int64_t step[2]) {
  const marker *m = arg;
  for (int64_t i = 0; i < n; i++) {
    int64_t bit = m->first + (at[0] + i * step[0]) * m->bits;
    for (const int64_t end = bit + m->bits; bit < end;) {
      const int64_t next = bit / 8 * 8 + 8 < end ? bit / 8 * 8 + 8 : end;
      m->mask[bit / 8] |= (unsigned char)(((1u << (next - bit)) - 1) << bit % 8);
      bit = next;
    }
  }
  return true;
}

static int image_open(image *m, const mf_tensor *t, const mf__queue *on, mf_error *err) {
  const mf__place host = {0}, shared = mf__temporary_place(on, MF__PINNED);
  const mf__span span = span_of(t);
  marker marks = {NULL, mf__tensor_bits(t), -span.lo_byte * 8};
  mf__walk w;
  *m = (image){.of = t};
  int rc = mf__bytes_of(t, (char *)t->dl.data + span.lo_byte, span.hi_byte - span.lo_byte, &m->bytes, err);
  if (rc == MF_OK) rc = mf__tensor_create_at(&m->bytes->dl, 0, &shared, &m->pinned, err);
  if (rc == MF_OK) rc = mf__tensor_create_at(&m->bytes->dl, 0, &host, &m->mask, err);
  if (rc != MF_OK) return rc;
  DLTensor view = t->dl;
  view.data = (char *)m->pinned->dl.data - span.lo_byte;
  view.device = m->pinned->dl.device;
  rc = mf__tensor_view(&view, mf__tensor_padded(t), m->pinned->storage, &m->tensor, err);
  if (rc != MF_OK) return rc;
  marks.mask = m->mask->dl.data;
  memset(marks.mask, 0, (size_t)mf_tensor_nbytes(m->mask));
  mf__walk_plan(&w, &t->dl, NULL, false);
  (void)mf__walk_rows(&w, mark_row, &marks);
  return MF_OK;
}

typedef bool (*byte_test)(unsigned char mask);

static bool has_own_bits(unsigned char mask) {
  return mask != 0;
}

static bool has_other_bits(unsigned char mask) {
  return mask != 0 && mask != 0xff;
}

/* Queues the runs of bytes that pass; the queue's context is current. */
static int copy_runs(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, const image *m, byte_test passes,
                     mf_error *err) {
  const unsigned char *mask = m->mask->dl.data;
  const int64_t nbytes = mf_tensor_nbytes(m->mask);
  int rc = MF_OK;
  for (int64_t at = 0, n; rc == MF_OK && at < nbytes; at += n) {
    for (n = 1; at + n < nbytes && passes(mask[at + n]) == passes(mask[at]);) n++;
    const mf__block_copy job = {(char *)dst->dl.data + at, (const char *)src->dl.data + at, n, 1, 1, n, n, n, n};
    if (passes(mask[at])) rc = on->backend->copy(&job, on->stream, err);
  }
  return rc;
}

static int move_runs(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, const image *m, byte_test passes,
                     mf_error *err) {
  mf__usage uses[2] = {{.record = mf__tensor_record(dst), .write = true},
                       {.record = mf__tensor_record(src)}};
  int rc;
  MF__ORDERED(rc, on, uses, 2, true, err, copy_runs(on, dst, src, m, passes, err));
  return rc;
}

/* The host may use the image afterwards. */
static int image_read(const mf__queue *on, image *m, byte_test passes, mf_error *err) {
  const int rc = move_runs(on, m->pinned, m->bytes, m, passes, err);
  return rc == MF_OK ? mf__host_wait(m->pinned, true, err) : rc;
}

/* Reads only those bytes of the destination that hold a part of another element. */
static int write_image(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, const void *slot, mf_error *err) {
  image m;
  int rc = image_open(&m, dst, on, err);
  if (rc == MF_OK) rc = image_read(on, &m, has_other_bits, err);
  if (rc == MF_OK && src != NULL) rc = mf__copy_host(m.tensor, src, err);
  if (rc == MF_OK && src == NULL) mf__repeat(m.tensor, slot);
  if (rc == MF_OK) rc = move_runs(on, m.bytes, m.pinned, &m, has_own_bits, err);
  image_release(&m);
  return rc;
}

static int read_image(const mf__queue *on, const mf_tensor *src, mf_tensor **out, mf_error *err) {
  image m;
  int rc = image_open(&m, src, on, err);
  if (rc == MF_OK) rc = image_read(on, &m, has_own_bits, err);
  if (rc == MF_OK) *out = mf_tensor_retain(m.tensor);
  image_release(&m);
  return rc;
}

/* The two sides */

static bool is_whole(const mf_tensor *t) {
  return mf__tensor_bits(t) % 8 == 0;
}

/* Only the reference count of src changes, so that const may be cast away. */
static int read_side(const mf__queue *on, const mf_tensor *src, mf_tensor **out, mf_error *err) {
  if (!mf__tensor_on_host(src))
    return is_whole(src) ? read_arranged(on, src, out, err) : read_image(on, src, out, err);
  *out = mf_tensor_retain((mf_tensor *)src);
  return mf__host_wait(src, false, err);
}

static int write_side(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  if (!mf__tensor_on_host(dst))
    return is_whole(dst) && !mf__walk_repeats(&dst->dl) ? write_arranged(on, dst, src, err)
                                                        : write_image(on, dst, src, NULL, err);
  const int rc = mf__host_wait(dst, true, err);
  return rc == MF_OK ? mf__copy_host(dst, src, err) : rc;
}

int mf__image_copy(mf_tensor *dst, const mf_tensor *src, const mf__queue *on, mf_error *err) {
  mf_tensor *from = NULL;
  int rc = mf__capture_refuse(on, "this layout is copied by the host", err);
  if (rc == MF_OK) rc = read_side(on, src, &from, err);
  if (rc == MF_OK) rc = write_side(on, dst, from, err);
  (void)mf_tensor_release_later(from);
  return rc;
}

int mf__image_fill(mf_tensor *dst, const void *slot, const mf__queue *on, mf_error *err) {
  int rc = mf__capture_refuse(on, "this layout is filled by the host", err);
  if (rc != MF_OK) return rc;
  if (!mf__tensor_on_host(dst)) return write_image(on, dst, NULL, slot, err);
  rc = mf__host_wait(dst, true, err);
  if (rc == MF_OK) mf__repeat(dst, slot);
  return rc;
}
