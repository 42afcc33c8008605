/* numbers.c: casts and comparisons in which a device takes part, and the bytes of single elements.
 *
 *   from             to               way of a cast
 *   device, shared   device, shared   a kernel, where the driver has one for the two dtypes
 *   device i         device j         a kernel on i, and a copy of what it made
 *   device           pageable         the kernel where that makes less to copy, else on the host behind the copy
 *   pageable         device           on the host where that makes less to copy, else the kernel behind the copy
 *   any                               through the host, which waits: without a kernel (no hiprtc; complex, packed and
 *                                     6-bit elements; elements at no multiple of their size); places that repeat
 * A comparison goes by kernel where both sides are a device's or shared, and gives one number back; else on the host.
 *
 * Invariant: every step is ordered by the records of what it reads and writes. It must not know which driver there is.
 */
#include "device/device.h"

#include <string.h>

static int host_like(const mf_tensor *t, mf_tensor **out, mf_error *err) {
  return mf__tensor_create_host(&t->dl, mf__tensor_padded(t), out, err);
}

/* A tensor that the host may read: t itself, or a copy. Only the reference count changes, so that const may be cast
 * away. */
static int brought(const mf_tensor *t, mf_tensor **out, mf_error *err) {
  if (mf__tensor_on_host(t)) {
    const int rc = mf__host_wait(t, false, err);
    *out = rc == MF_OK ? mf_tensor_retain((mf_tensor *)(uintptr_t)t) : NULL;
    return rc;
  }
  int rc = host_like(t, out, err);
  if (rc == MF_OK) rc = mf__transfer(*out, t, NULL, err);
  return rc;
}

/* Whether a kernel on the queue reaches the memory: a device's own only there. */
static bool reaches(const mf__queue *on, const mf_tensor *t) {
  const mf__record *a = mf__tensor_record(t);
  if (a == NULL || a->backend != on->backend) return false;
  return a->space != MF__DEVICE || a->ordinal == on->ordinal;
}

/* Makes the kernel, if it is not yet made. *has: there is one. */
static int find_kernel(const mf__queue *on, const mf__numbers *n, bool *has, mf_error *err) {
  const mf__kernel_copy none = {.size = 1};
  mf__scope scope;
  mf_error why;
  uint32_t nowhere;
  int rc = mf__queue_enter(&scope, on, err);
  if (rc != MF_OK) return rc;
  rc = n->differs != NULL ? on->backend->kernel_compare(&none, &n->to, &nowhere, on->stream, &why)
                          : on->backend->kernel_cast(&none, &n->to, &n->from, on->stream, &why);
  mf__leave(&scope);
  *has = rc == MF_OK;
  if (rc != MF_OK && rc != MF_EDEVICE && err != NULL) *err = why;
  return rc == MF_EDEVICE ? MF_OK : rc;
}

/* Casts */

static int cast_by_host(mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  mf_tensor *from = NULL, *to = NULL;
  int rc = brought(src, &from, err);
  if (rc == MF_OK && mf__tensor_on_host(dst)) {
    rc = mf__host_wait(dst, true, err);
    if (rc == MF_OK) rc = mf__cast_host(dst, from, err);
  } else if (rc == MF_OK) {
    rc = host_like(dst, &to, err);
    if (rc == MF_OK) rc = mf__cast_host(to, from, err);
    if (rc == MF_OK) rc = mf__transfer(dst, to, NULL, err);
  }
  (void)mf_tensor_release_later(to);
  (void)mf_tensor_release_later(from);
  return rc;
}

/* The two do not overlap, and a kernel on the queue reaches both. */
static int cast_by_kernel(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, const mf__numbers *n,
                          mf_error *err) {
  mf__usage uses[2] = {{.record = mf__tensor_record(dst), .write = true}, {.record = mf__tensor_record(src)}};
  mf__plan p;
  int rc;
  if (!mf__plan_make_numbers(&p, dst, src)) return cast_by_host(dst, src, err);
  MF__ORDERED(rc, on, uses, 2, true, err, mf__plan_run_numbers(&p, n, on, err));
  return rc;
}

/* Memory of a device for a while, with the shape of src and the dtype of either. */
static int between(const mf__queue *on, const mf_tensor *src, const mf_tensor *dtype, mf_tensor **out, mf_error *err) {
  const mf__place place = mf__temporary_place(on, MF__DEVICE);
  DLTensor like = src->dl;
  like.dtype = dtype->dl.dtype;
  *out = NULL;
  const int rc = mf__capture_refuse(on, "this cast needs memory of its own for a while", err);
  return rc == MF_OK ? mf__tensor_create_at(&like, 0, &place, out, err) : rc;
}

/* Where the source is: casts there, and copies what that made. */
static int cast_then_copy(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, const mf__numbers *n,
                          mf_error *err) {
  mf_tensor *made;
  int rc = between(on, src, dst, &made, err);
  if (rc == MF_OK) rc = cast_by_kernel(on, made, src, n, err);
  if (rc == MF_OK) rc = mf__transfer(dst, made, NULL, err);
  (void)mf_tensor_release_later(made);
  return rc;
}

/* Where the destination is: copies, and casts what arrived. */
static int copy_then_cast(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, const mf__numbers *n,
                          mf_error *err) {
  mf_tensor *arrived;
  int rc = between(on, src, src, &arrived, err);
  if (rc == MF_OK) rc = mf__transfer(arrived, src, on, err);
  if (rc == MF_OK) rc = cast_by_kernel(on, dst, arrived, n, err);
  (void)mf_tensor_release_later(arrived);
  return rc;
}

static int cast_on_device(mf_tensor *dst, const mf_tensor *src, const mf__numbers *n, mf_error *err) {
  const bool there = !mf__tensor_on_host(src), repeats = mf__walk_repeats(&dst->dl);
  mf__queue on = mf__transfer_queue(dst, src, NULL);
  bool has;
  if (there && !reaches(&on, src)) on = mf__queue_for(src, NULL);
  int rc = find_kernel(&on, n, &has, err);
  if (rc != MF_OK) return rc;
  if (!has) return cast_by_host(dst, src, err);
  if (reaches(&on, dst) && reaches(&on, src) && !repeats && !mf__overlap(dst, src))
    return cast_by_kernel(&on, dst, src, n, err);
  const int64_t to = n->to.slot_bits, from = n->from.slot_bits;
  if (there && (to <= from || !mf__tensor_on_host(dst))) return cast_then_copy(&on, dst, src, n, err);
  if (!there && from <= to && !repeats) return copy_then_cast(&on, dst, src, n, err);
  return cast_by_host(dst, src, err);
}

int mf__numbers_cast(mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  mf__numbers n = {.differs = NULL};
  if (mf__tensor_on_host(dst) && mf__tensor_on_host(src)) return cast_by_host(dst, src, err);
  int rc = mf__codec_find(&dst->dl.dtype, dst->flags, &n.to, err);
  if (rc == MF_OK) rc = mf__codec_find(&src->dl.dtype, src->flags, &n.from, err);
  return rc == MF_OK ? cast_on_device(dst, src, &n, err) : rc;
}

/* Comparisons */

static int equal_by_host(const mf_tensor *a, const mf_tensor *b, bool *out, mf_error *err) {
  mf_tensor *x = NULL, *y = NULL;
  int rc = brought(a, &x, err);
  if (rc == MF_OK) rc = brought(b, &y, err);
  if (rc == MF_OK) *out = mf__equal_host(x, y);
  (void)mf_tensor_release_later(y);
  (void)mf_tensor_release_later(x);
  return rc;
}

/* Sets the number to 0 and compares; the queue's context is current. */
static int run_compare(const mf__plan *p, const mf__numbers *n, const mf__queue *on, mf_error *err) {
  const mf__block_copy one = {.dst = n->differs, .width = 1, .height = 1, .depth = 1};
  const int rc = on->backend->fill(&one, 0, sizeof *n->differs, on->stream, err);
  return rc == MF_OK ? mf__plan_run_numbers(p, n, on, err) : rc;
}

static int equal_by_kernel(const mf__queue *on, const mf_tensor *a, const mf_tensor *b, mf__numbers *n, bool *out,
                           mf_error *err) {
  const DLTensor one = {.dtype = {kDLUInt, 32, 1}};
  const mf__place place = mf__temporary_place(on, MF__DEVICE);
  mf_tensor *flag = NULL;
  uint32_t differs = 0;
  mf__plan p;
  if (!mf__plan_make_numbers(&p, a, b)) return equal_by_host(a, b, out, err);
  int rc = mf__tensor_create_at(&one, 0, &place, &flag, err);
  if (rc != MF_OK) return rc;
  n->differs = flag->dl.data;
  mf__usage uses[3] = {{.record = mf__tensor_record(flag), .write = true},
                       {.record = mf__tensor_record(a)},
                       {.record = mf__tensor_record(b)}};
  MF__ORDERED(rc, on, uses, 3, true, err, run_compare(&p, n, on, err));
  if (rc == MF_OK) rc = mf__numbers_read(flag, 0, sizeof differs, &differs, err);
  *out = differs == 0;
  (void)mf_tensor_release_later(flag);
  return rc;
}

int mf__numbers_equal(const mf_tensor *a, const mf_tensor *b, bool *out, mf_error *err) {
  uint32_t asked;
  mf__numbers n = {.differs = &asked};
  bool has = false;
  if (mf__tensor_on_host(a) && mf__tensor_on_host(b)) return equal_by_host(a, b, out, err);
  const mf__queue on = mf__transfer_queue(a, b, NULL);
  int rc = mf__capture_refuse(&on, "the host waits for what a comparison says", err);
  const bool numbers = mf__codec_find(&a->dl.dtype, a->flags, &n.to, NULL) == MF_OK;
  if (rc == MF_OK && numbers && reaches(&on, a) && reaches(&on, b)) rc = find_kernel(&on, &n, &has, err);
  if (rc != MF_OK) return rc;
  return has ? equal_by_kernel(&on, a, b, &n, out, err) : equal_by_host(a, b, out, err);
}

/* Bytes, for elements that the host reads and writes one at a time */

static int bytes_there_and_here(const mf_tensor *t, int64_t first, int64_t nbytes, mf_tensor **there, mf_tensor **here,
                                mf_error *err) {
  *there = *here = NULL;
  const int rc = mf__bytes_of(t, (char *)t->dl.data + first, nbytes, there, err);
  return rc == MF_OK ? mf__tensor_create_host(&(*there)->dl, 0, here, err) : rc;
}

int mf__numbers_read(const mf_tensor *t, int64_t first, int64_t nbytes, void *buffer, mf_error *err) {
  mf_tensor *there, *here;
  if (mf__tensor_on_host(t)) {
    const int waited = mf__host_wait(t, false, err);
    if (waited == MF_OK) memcpy(buffer, (const char *)t->dl.data + first, (size_t)nbytes);
    return waited;
  }
  int rc = bytes_there_and_here(t, first, nbytes, &there, &here, err);
  if (rc == MF_OK) rc = mf__transfer(here, there, NULL, err);
  if (rc == MF_OK) memcpy(buffer, here->dl.data, (size_t)nbytes);
  (void)mf_tensor_release_later(here);
  (void)mf_tensor_release_later(there);
  return rc;
}

int mf__numbers_write(mf_tensor *t, int64_t first, int64_t nbytes, const void *buffer, mf_error *err) {
  mf_tensor *there, *here;
  if (mf__tensor_on_host(t)) {
    const int waited = mf__host_wait(t, true, err);
    if (waited == MF_OK) memcpy((char *)t->dl.data + first, buffer, (size_t)nbytes);
    return waited;
  }
  int rc = bytes_there_and_here(t, first, nbytes, &there, &here, err);
  if (rc == MF_OK) memcpy(here->dl.data, buffer, (size_t)nbytes);
  if (rc == MF_OK) rc = mf__transfer(there, here, NULL, err);
  (void)mf_tensor_release_later(here);
  (void)mf_tensor_release_later(there);
  return rc;
}

const mf__record_ops mf__device_ops = {
    .release = mf__memory_release,
    .copy = mf__transfer_copy,
    .fill = mf__transfer_fill,
    .cast = mf__numbers_cast,
    .equal = mf__numbers_equal,
    .read = mf__numbers_read,
    .write = mf__numbers_write,
};
