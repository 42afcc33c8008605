/* part.c: a copy in parts, one for each call, for whoever shows how far it is or stops it. Between two parts nothing is
 * held: no lock, no reference, no memory. */
#include "core/core.h"

#include <stdlib.h>

/* Large enough for threads and for what passes the caches: some milliseconds. */
#define PART_NBYTES (INT64_C(16) << 20)

typedef struct part {
  int32_t axis;
  int64_t step;  /* along the axis */
  int64_t numel; /* of one place along the axis */
} part;

/* Where elements of dst share a place the last one stays: parts come in row-major order. Some axis is longer than 1. */
static int32_t outermost(const DLTensor *dst) {
  int32_t axis = 0;
  while (dst->shape[axis] == 1) axis++;
  return axis;
}

/* The axis whose parts lie farthest apart in dst, if it is long enough for so many parts, else the longest one. */
static int32_t find_axis(const DLTensor *dst, int64_t nparts) {
  int32_t longest = 0, best = -1;
  for (int32_t i = 0; i < dst->ndim; i++) {
    if (dst->shape[i] > dst->shape[longest]) longest = i;
    if (dst->shape[i] < nparts) continue;
    if (best < 0 || llabs(dst->strides[i]) > llabs(dst->strides[best])) best = i;
  }
  return best < 0 ? longest : best;
}

/* The same for the same two whenever it is asked. Packed elements are cut where all begin a byte. */
static void find_part(const mf_tensor *dst, const mf_tensor *src, part *p) {
  const int64_t unit = (mf__tensor_bits(dst) | mf__tensor_bits(src)) % 8 == 0 ? 1 : 8;
  const int64_t nparts = (mf_tensor_nbytes(dst) + PART_NBYTES - 1) / PART_NBYTES;
  p->axis = mf__walk_repeats(&dst->dl) ? outermost(&dst->dl) : find_axis(&dst->dl, nparts);
  const int64_t extent = dst->dl.shape[p->axis];
  p->step = ((extent + nparts - 1) / nparts + unit - 1) / unit * unit;
  p->numel = mf_tensor_size(dst) / extent;
}

static int copy_part(mf_tensor *dst, const mf_tensor *src, const part *p, int64_t *at, mf_error *err) {
  mf_tensor *to = NULL, *from = NULL;
  const int64_t first = *at / p->numel, left = dst->dl.shape[p->axis] - first;
  const int64_t n = p->step < left ? p->step : left;
  int rc = mf__tensor_narrow(dst, p->axis, first, n, &to, err);
  if (rc == MF_OK) rc = mf__tensor_narrow(src, p->axis, first, n, &from, err);
  if (rc == MF_OK) rc = mf_tensor_astype(to, from, err);
  if (to != NULL) (void)mf_tensor_release_later(to);
  if (from != NULL) (void)mf_tensor_release_later(from);
  if (rc == MF_OK) *at += n * p->numel;
  return rc;
}

static int check_apart(const mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  if (mf__is_empty(&dst->dl) || !mf__overlap(dst, src)) return MF_OK;
  return mf__fail(err, MF_EINVAL, "src and dst reach into the same memory, which the first part would change for the "
                                  "others; a clone of src expected");
}

static int check_at(int64_t numel, int64_t step, int64_t at, mf_error *err) {
  if (at == numel || (at >= 0 && at < numel && at % step == 0)) return MF_OK;
  return mf__fail(err, MF_EINVAL, "*at is %lld; 0, or what the last part left there, expected", (long long)at);
}

static int copy_next(mf_tensor *dst, const mf_tensor *src, int64_t *at, mf_error *err) {
  part p;
  find_part(dst, src, &p);
  const int rc = check_at(mf_tensor_size(dst), p.step * p.numel, *at, err);
  return rc == MF_OK && *at < mf_tensor_size(dst) ? copy_part(dst, src, &p, at, err) : rc;
}

/* A single element, or none; what cannot be copied is refused then, too. */
static int copy_whole(mf_tensor *dst, const mf_tensor *src, int64_t *at, mf_error *err) {
  const int64_t numel = mf_tensor_size(dst);
  int rc = check_at(numel, 1, *at, err);
  if (rc == MF_OK && (numel == 0 || *at < numel)) rc = mf_tensor_astype(dst, src, err);
  if (rc == MF_OK) *at = numel;
  return rc;
}

int mf_tensor_copy_part(mf_tensor *dst, const mf_tensor *src, int64_t *at, mf_error *err) {
  MF__NEED(dst);
  MF__NEED(src);
  MF__NEED(at);
  int rc = mf__tensor_writable(dst, err);
  if (rc == MF_OK) rc = mf__tensor_open(src, err);
  if (rc == MF_OK) rc = mf__same_shape(dst, src, err);
  if (rc == MF_OK) rc = check_apart(dst, src, err);
  const bool is_whole = dst->dl.ndim == 0 || mf__is_empty(&dst->dl);
  if (rc == MF_OK) rc = is_whole ? copy_whole(dst, src, at, err) : copy_next(dst, src, at, err);
  return mf__end(rc, __func__, err);
}
