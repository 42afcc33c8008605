/* part.c: a copy in parts, one for each call, for whoever shows how far it is or stops it. Between two parts nothing is
 * held: no lock, no reference, no memory. */
#include "core/core.h"

#include <stdlib.h>

/* Large enough for threads and for what passes the caches: some milliseconds. */
#define PART_NBYTES (INT64_C(16) << 20)

typedef struct part {
  int32_t naxes; /* that are cut: all but the last one into single places */
  int32_t axes[MF_MAX_NDIM];
  int64_t step;  /* along the last one */
  int64_t numel; /* of one place along the last one */
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

/* As many axes as so many parts take, those that go farthest in dst first; in row-major order where its elements share
 * places. Returns how many places there are without the last one. */
static int64_t find_axes(const DLTensor *dst, bool repeats, int64_t nparts, part *p) {
  int32_t order[MF_MAX_NDIM];
  int64_t before = 1, places = 1;
  (void)mf__axes_sort(dst->ndim, dst->strides, NULL, order);
  p->naxes = 0;
  for (int32_t i = 0; i < dst->ndim && places < nparts; i++) {
    const int32_t axis = repeats ? i : order[i];
    if (dst->shape[axis] == 1) continue;
    before = places;
    places *= dst->shape[axis];
    p->axes[p->naxes++] = axis;
  }
  return before;
}

/* The same for the same two whenever it is asked. Packed elements are cut where all begin a byte: along one axis. */
static void find_part(const mf_tensor *dst, const mf_tensor *src, part *p) {
  const int64_t unit = (mf__tensor_bits(dst) | mf__tensor_bits(src)) % 8 == 0 ? 1 : 8;
  const int64_t nparts = (mf_tensor_nbytes(dst) + PART_NBYTES - 1) / PART_NBYTES;
  const bool repeats = mf__walk_repeats(&dst->dl);
  int64_t before = 1;
  p->naxes = 1;
  p->axes[0] = repeats ? outermost(&dst->dl) : find_axis(&dst->dl, nparts);
  if (unit == 1 && dst->dl.shape[p->axes[0]] < nparts) before = find_axes(&dst->dl, repeats, nparts, p);
  const int64_t extent = dst->dl.shape[p->axes[p->naxes - 1]], along = (nparts + before - 1) / before;
  p->step = ((extent + along - 1) / along + unit - 1) / unit * unit;
  p->numel = mf_tensor_size(dst) / before / extent;
}

/* Where the part begins that is next, and how many places of each axis it has; returns how many elements. */
static int64_t find_place(const DLTensor *dst, const part *p, int64_t at, int64_t *first, int64_t *count) {
  int64_t place = at / p->numel;
  const int32_t last = p->axes[p->naxes - 1];
  for (int32_t i = 0; i < dst->ndim; i++) {
    first[i] = 0;
    count[i] = dst->shape[i];
  }
  for (int32_t i = p->naxes; i-- > 0; place /= dst->shape[p->axes[i]]) {
    first[p->axes[i]] = place % dst->shape[p->axes[i]];
    count[p->axes[i]] = 1;
  }
  const int64_t left = dst->shape[last] - first[last];
  count[last] = p->step < left ? p->step : left;
  return count[last] * p->numel;
}

static int copy_part(mf_tensor *dst, const mf_tensor *src, const part *p, int64_t *at, mf_error *err) {
  int64_t first[MF_MAX_NDIM], count[MF_MAX_NDIM];
  const int64_t n = find_place(&dst->dl, p, *at, first, count);
  mf_tensor *to = NULL, *from = NULL;
  int rc = mf__tensor_narrow(dst, first, count, &to, err);
  if (rc == MF_OK) rc = mf__tensor_narrow(src, first, count, &from, err);
  if (rc == MF_OK) rc = mf_tensor_astype(to, from, err);
  if (to != NULL) (void)mf_tensor_release_later(to);
  if (from != NULL) (void)mf_tensor_release_later(from);
  if (rc == MF_OK) *at += n;
  return rc;
}

static int check_apart(const mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  if (mf__is_empty(&dst->dl) || !mf__overlap(dst, src)) return MF_OK;
  return mf__fail(err, MF_EINVAL, "src and dst reach into the same memory, which the first part would change for the "
                                  "others; a clone of src expected");
}

/* Parts begin each ${step} elements of each ${row}. */
static int check_at(int64_t numel, int64_t row, int64_t step, int64_t at, mf_error *err) {
  if (at == numel || (at >= 0 && at < numel && at % row % step == 0)) return MF_OK;
  return mf__fail(err, MF_EINVAL, "*at is %lld; 0, or what the last part left there, expected", (long long)at);
}

static int copy_next(mf_tensor *dst, const mf_tensor *src, int64_t *at, mf_error *err) {
  part p;
  find_part(dst, src, &p);
  const int64_t row = dst->dl.shape[p.axes[p.naxes - 1]] * p.numel;
  const int rc = check_at(mf_tensor_size(dst), row, p.step * p.numel, *at, err);
  return rc == MF_OK && *at < mf_tensor_size(dst) ? copy_part(dst, src, &p, at, err) : rc;
}

/* A single element, or none; what cannot be copied is refused then, too. */
static int copy_whole(mf_tensor *dst, const mf_tensor *src, int64_t *at, mf_error *err) {
  const int64_t numel = mf_tensor_size(dst);
  int rc = check_at(numel, 1, 1, *at, err);
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
