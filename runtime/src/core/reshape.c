/* reshape.c: changes the number of axes of a layout: reshape, broadcast, squeeze, expand, diagonal, and the resizing of
 * the last axis when a dtype is reinterpreted. The invariant is that of layout.c. */
#include "core/core.h"

#include <string.h>

static bool is_empty(const mf__layout *l) {
  for (int32_t i = 0; i < l->ndim; i++)
    if (l->shape[i] == 0) return true;
  return false;
}

static int64_t layout_numel(const mf__layout *l) {
  int64_t n = 1;
  if (is_empty(l)) return 0;
  for (int32_t i = 0; i < l->ndim; i++) n *= l->shape[i];
  return n;
}

/* Multiplies the extents of a wanted shape, leaving out the extent -1, whose axis is *hole (-1: none). */
static int wanted_numel(const int64_t *shape, int32_t ndim, int64_t *numel, int32_t *hole, mf_error *err) {
  bool empty = false;
  *numel = 1;
  *hole = -1;
  if (ndim < 0 || ndim > MF_MAX_NDIM)
    return mf__fail(err, MF_EINVAL, "ndim is %d; 0 to %d expected", ndim, MF_MAX_NDIM);
  if (shape == NULL && ndim > 0) return mf__fail(err, MF_EINVAL, "shape is NULL, with ndim %d", ndim);
  for (int32_t i = 0; i < ndim; i++) {
    if (shape[i] == -1 && *hole < 0) {
      *hole = i;
    } else if (shape[i] < 0) {
      return mf__fail(err, MF_EINVAL, "shape[%d] is %lld; at least 0, or -1 once, expected", i,
                      (long long)shape[i]);
    }
    empty |= shape[i] == 0;
  }
  for (int32_t i = 0; i < ndim && !empty; i++)
    if (i != *hole && __builtin_mul_overflow(*numel, shape[i], numel))
      return mf__fail(err, MF_EOVERFLOW, "shape[%d] is %lld; the element count leaves int64_t", i,
                      (long long)shape[i]);
  if (empty) *numel = 0;
  return MF_OK;
}

static int resolve_shape(int64_t have, const int64_t *shape, int32_t ndim, int64_t *out, mf_error *err) {
  int64_t numel;
  int32_t hole;
  const int rc = wanted_numel(shape, ndim, &numel, &hole, err);
  if (rc != MF_OK) return rc;
  for (int32_t i = 0; i < ndim; i++) out[i] = shape[i];
  if (hole >= 0 && numel > 0 && have % numel == 0) {
    out[hole] = have / numel;
    return MF_OK;
  }
  if (hole >= 0 && numel == 0 && have == 0)
    return mf__fail(err, MF_EINVAL, "shape[%d] is -1, but beside an extent of 0 any number fits; a number expected",
                    hole);
  if (hole >= 0 || numel != have)
    return mf__fail(err, MF_EINVAL, "the new shape holds %s%lld element%s; %lld expected",
                    hole >= 0 ? "a multiple of " : "", (long long)numel, numel == 1 ? "" : "s", (long long)have);
  return MF_OK;
}

static void drop_ones(mf__layout *l) {
  int32_t n = 0;
  for (int32_t i = 0; i < l->ndim; i++) {
    if (l->shape[i] == 1) continue;
    l->shape[n] = l->shape[i];
    l->strides[n++] = l->strides[i];
  }
  l->ndim = n;
}

/* Matches groups of old axes (without those of extent 1) to groups of new ones with equal products. A group of old axes
 * must be compact in itself, each stride being the next one's times its extent; the new strides are then the group's
 * innermost one, multiplied up. */
static bool reshape_strides(const mf__layout *old, const int64_t *shape, int32_t ndim, int64_t *strides) {
  int32_t o = 0, n = 0;
  while (o < old->ndim) {
    const int32_t o_first = o, n_first = n;
    int64_t have = old->shape[o++];
    int64_t want = shape[n++];
    while (have != want) {
      if (have < want)
        have *= old->shape[o++];
      else
        want *= shape[n++];
    }
    for (int32_t i = o_first; i + 1 < o; i++) {
      int64_t run;
      if (__builtin_mul_overflow(old->strides[i + 1], old->shape[i + 1], &run) || old->strides[i] != run) return false;
    }
    int64_t stride = old->strides[o - 1];
    for (int32_t i = n - 1; i >= n_first; i--) {
      strides[i] = stride;
      stride = (int64_t)((uint64_t)stride * (uint64_t)shape[i]);
    }
  }
  for (; n < ndim; n++) strides[n] = n > 0 ? strides[n - 1] : 1;
  return true;
}

int mf__layout_reshape(mf__layout *l, const int64_t *shape, int32_t ndim, mf_error *err) {
  const int64_t have = layout_numel(l);
  mf__layout to = {.ndim = ndim, .offset = l->offset};
  int rc = resolve_shape(have, shape, ndim, to.shape, err);
  if (rc != MF_OK) return rc;
  if (have == 0) {
    rc = mf__compact_strides(to.shape, ndim, to.strides, err);
  } else {
    drop_ones(l);
    if (!reshape_strides(l, to.shape, ndim, to.strides))
      rc = mf__fail(err, MF_ELAYOUT, "the elements do not lie so that this shape is a view; copy() makes them compact");
  }
  if (rc == MF_OK) *l = to;
  return rc;
}

int mf__layout_broadcast(mf__layout *l, const int64_t *shape, int32_t ndim, mf_error *err) {
  const mf__layout from = *l;
  const int rc = mf__shape_check(shape, ndim, err);
  if (rc != MF_OK) return rc;
  const int32_t added = ndim - from.ndim;
  if (added < 0) return mf__fail(err, MF_EINVAL, "ndim is %d; at least %d expected", ndim, from.ndim);
  for (int32_t i = 0; i < ndim; i++) {
    const int64_t extent = i < added ? 1 : from.shape[i - added];
    if (extent != shape[i] && extent != 1)
      return mf__fail(err, MF_EINVAL, "shape[%d] is %lld; %lld expected, for only an extent of 1 repeats", i,
                      (long long)shape[i], (long long)extent);
    l->shape[i] = shape[i];
    l->strides[i] = extent == shape[i] && i >= added ? from.strides[i - added] : 0;
  }
  l->ndim = ndim;
  return MF_OK;
}

int mf__layout_squeeze(mf__layout *l, const int32_t *axes, int32_t naxes, mf_error *err) {
  bool drop[MF_MAX_NDIM] = {false};
  int32_t n = 0;
  if (axes == NULL && naxes != 0) return mf__fail(err, MF_EINVAL, "axes is NULL, with naxes %d", naxes);
  if (naxes < 0 || naxes > l->ndim)
    return mf__fail(err, MF_EINVAL, "naxes is %d; 0 to ndim, %d, expected", naxes, l->ndim);
  for (int32_t i = 0; i < naxes; i++) {
    int32_t axis;
    const int rc = mf__axis_check(axes[i], l->ndim, &axis, err);
    if (rc != MF_OK) return rc;
    if (l->shape[axis] != 1)
      return mf__fail(err, MF_EINVAL, "axis %d has extent %lld; 1 expected", axis, (long long)l->shape[axis]);
    drop[axis] = true;
  }
  for (int32_t i = 0; i < l->ndim; i++) {
    if (drop[i] || (axes == NULL && l->shape[i] == 1)) continue;
    l->shape[n] = l->shape[i];
    l->strides[n++] = l->strides[i];
  }
  l->ndim = n;
  return MF_OK;
}

int mf__layout_expand(mf__layout *l, int32_t axis, mf_error *err) {
  int32_t at;
  const int rc = mf__axis_check(axis, l->ndim + 1, &at, err);
  if (rc != MF_OK) return rc;
  if (l->ndim == MF_MAX_NDIM) return mf__fail(err, MF_EINVAL, "ndim is %d already, the most", MF_MAX_NDIM);
  const size_t nbytes = (size_t)(l->ndim - at) * sizeof(int64_t);
  memmove(&l->shape[at + 1], &l->shape[at], nbytes);
  memmove(&l->strides[at + 1], &l->strides[at], nbytes);
  l->shape[at] = 1;
  l->strides[at] = 0;
  l->ndim++;
  return MF_OK;
}

static int64_t min64(int64_t a, int64_t b) {
  return a < b ? a : b;
}

int mf__layout_diagonal(mf__layout *l, int64_t offset, const int32_t axes[2], mf_error *err) {
  int32_t row, col, n = 0;
  int rc = mf__axis_check(axes[0], l->ndim, &row, err);
  if (rc == MF_OK) rc = mf__axis_check(axes[1], l->ndim, &col, err);
  if (rc != MF_OK) return rc;
  if (row == col) return mf__fail(err, MF_EINVAL, "axes[0] and axes[1] are both axis %d", row);
  const mf__layout from = *l;
  /* Rows and columns before the diagonal's first element; an offset outside the plane leaves nothing. */
  const bool outside = offset >= from.shape[col] || offset <= -from.shape[row];
  const int64_t skip_row = offset < 0 && !outside ? -offset : 0;
  const int64_t skip_col = offset > 0 && !outside ? offset : 0;
  const int64_t count = outside ? 0 : min64(from.shape[row] - skip_row, from.shape[col] - skip_col);
  for (int32_t i = 0; i < from.ndim; i++) {
    if (i == row || i == col) continue;
    l->shape[n] = from.shape[i];
    l->strides[n++] = from.strides[i];
  }
  if (count > 0 && !is_empty(&from)) {
    if (skip_row > 0) l->offset += skip_row * from.strides[row];
    if (skip_col > 0) l->offset += skip_col * from.strides[col];
  }
  l->shape[n] = count;
  l->strides[n] = count > 1 && !is_empty(&from) ? from.strides[row] + from.strides[col] : 1;
  l->ndim = n + 1;
  return MF_OK;
}

int mf__layout_resize(mf__layout *l, int64_t old_bits, int64_t new_bits, mf_error *err) {
  const int32_t last = l->ndim - 1;
  int64_t total;
  if (old_bits == new_bits) return MF_OK;
  if (last < 0 || (l->strides[last] != 1 && l->shape[last] > 1))
    return mf__fail(err, MF_ELAYOUT, "%lld-bit elements as %lld-bit ones need a compact last axis",
                    (long long)old_bits, (long long)new_bits);
  if (__builtin_mul_overflow(l->shape[last], old_bits, &total))
    return mf__fail(err, MF_EOVERFLOW, "shape[%d] is %lld; its bits leave int64_t", last,
                    (long long)l->shape[last]);
  if (total % new_bits != 0)
    return mf__fail(err, MF_ELAYOUT, "a last axis of %lld bits does not divide into elements of %lld bits",
                    (long long)total, (long long)new_bits);
  for (int32_t i = 0; i < last; i++) {
    int64_t stride_bits;
    if (l->shape[i] <= 1) {
      l->strides[i] = 0;
      continue;
    }
    if (__builtin_mul_overflow(l->strides[i], old_bits, &stride_bits) || stride_bits % new_bits != 0)
      return mf__fail(err, MF_ELAYOUT, "strides[%d] is %lld elements of %lld bits; no multiple of %lld bits", i,
                      (long long)l->strides[i], (long long)old_bits, (long long)new_bits);
    l->strides[i] = stride_bits / new_bits;
  }
  l->shape[last] = total / new_bits;
  l->strides[last] = 1;
  return MF_OK;
}
