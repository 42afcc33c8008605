/* layout.c: shapes and strides as numbers. Every product and sum that could leave int64_t is checked here,
 * so that no other file multiplies extents on its own. It must not know about memory or ownership.
 *
 * Invariant: a layout derived from a checked one reaches only places that the checked one reaches; an axis
 * of extent 0 or 1 may carry any stride, and its stride is never multiplied. */
#include "core/core.h"

#include <string.h>

static int64_t max64(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* A tensor without elements may carry strides that no check has seen; their products are never used, but
 * they must not be undefined either. */
static int64_t wrapping_mul(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a * (uint64_t)b);
}

static void move_offset(mf__layout *l, int64_t count, int64_t stride) {
  l->offset = (int64_t)((uint64_t)l->offset + (uint64_t)wrapping_mul(count, stride));
}

int mf__shape_check(const int64_t *shape, int32_t ndim, mf_error *err) {
  if (ndim < 0 || ndim > MF_MAX_NDIM)
    return mf__fail(err, MF_EINVAL, "ndim is %d; 0 to %d expected", ndim, MF_MAX_NDIM);
  if (ndim > 0 && shape == NULL) return mf__fail(err, MF_EINVAL, "shape is NULL, with ndim %d", ndim);
  for (int32_t i = 0; i < ndim; i++)
    if (shape[i] < 0)
      return mf__fail(err, MF_EINVAL, "shape[%d] is %lld; at least 0 expected", i, (long long)shape[i]);
  return MF_OK;
}

int mf__compact_strides(const int64_t *shape, int32_t ndim, int64_t *strides, mf_error *err) {
  int64_t step = 1;
  for (int32_t i = ndim - 1; i >= 0; i--) {
    strides[i] = step;
    if (__builtin_mul_overflow(step, max64(shape[i], 1), &step))
      return mf__fail(err, MF_EOVERFLOW, "shape[%d] is %lld; compact strides leave the range of int64_t", i,
                      (long long)shape[i]);
  }
  return MF_OK;
}

bool mf__is_empty(const DLTensor *view) {
  for (int32_t i = 0; i < view->ndim; i++)
    if (view->shape[i] == 0) return true;
  return false;
}

bool mf__is_compact(const DLTensor *view) {
  int64_t step = 1;
  if (mf__is_empty(view)) return true;
  for (int32_t i = view->ndim - 1; i >= 0; i--) {
    if (view->shape[i] == 1) continue;
    if (view->strides[i] != step) return false;
    step *= view->shape[i];
  }
  return true;
}

typedef struct reach {
  int64_t numel;
  int64_t lo; /* elements reached below (<= 0) and above (>= 0) element 0 */
  int64_t hi;
} reach;

static int count_elements(const DLTensor *view, reach *out, mf_error *err) {
  /* In registers: every import comes through here. */
  int64_t numel = 1, lo = 0, hi = 0;
  for (int32_t i = 0; i < view->ndim; i++) {
    const int64_t extent = view->shape[i];
    const int64_t stride = view->strides[i];
    int64_t far;
    if (extent == 1) continue;
    if (__builtin_mul_overflow(numel, extent, &numel))
      return mf__fail(err, MF_EOVERFLOW, "shape[%d] is %lld; the element count leaves the range of int64_t",
                      i, (long long)extent);
    if (__builtin_mul_overflow(extent - 1, stride, &far) ||
        (stride < 0 ? __builtin_add_overflow(lo, far, &lo) : __builtin_add_overflow(hi, far, &hi)))
      return mf__fail(err, MF_EOVERFLOW, "strides[%d] is %lld, with extent %lld; the reach leaves int64_t", i,
                      (long long)stride, (long long)extent);
  }
  *out = (reach){numel, lo, hi};
  return MF_OK;
}

static int64_t floor_div8(int64_t bits) {
  return bits >> 3;
}

int mf__span_compute(const DLTensor *view, int64_t bits, mf__span *out, mf_error *err) {
  reach r = {1, 0, 0};
  int64_t lo_bits, hi_bits, total;
  *out = (mf__span){0};
  if (mf__is_empty(view)) return MF_OK;
  const int rc = count_elements(view, &r, err);
  if (rc != MF_OK) return rc;
  if (__builtin_mul_overflow(r.numel, bits, &total) || total > INT64_MAX - 7)
    return mf__fail(err, MF_EOVERFLOW, "%lld elements of %lld bits leave the range of int64_t",
                    (long long)r.numel, (long long)bits);
  if (__builtin_mul_overflow(r.lo, bits, &lo_bits) || __builtin_mul_overflow(r.hi, bits, &hi_bits) ||
      __builtin_add_overflow(hi_bits, bits + 7, &hi_bits))
    return mf__fail(err, MF_EOVERFLOW, "strides reach elements %lld to %lld; their bytes leave int64_t",
                    (long long)r.lo, (long long)r.hi);
  *out = (mf__span){r.numel, floor_div8(total + 7), floor_div8(lo_bits), floor_div8(hi_bits)};
  return MF_OK;
}

int mf__axis_check(int64_t axis, int32_t ndim, int32_t *out, mf_error *err) {
  const int64_t resolved = axis < 0 ? axis + ndim : axis;
  *out = 0;
  if (ndim == 0) return mf__fail(err, MF_EBOUNDS, "axis is %lld; ndim is 0, without any axis", (long long)axis);
  if (resolved < 0 || resolved >= ndim)
    return mf__fail(err, MF_EBOUNDS, "axis is %lld; %d to %d expected", (long long)axis, -ndim, ndim - 1);
  *out = (int32_t)resolved;
  return MF_OK;
}

static uint64_t magnitude(int64_t stride) {
  return stride < 0 ? -(uint64_t)stride : (uint64_t)stride;
}

/* Insertion: ranks are small, and axes are mostly in order already. */
bool mf__axes_sort(int32_t ndim, const int64_t *strides, const int64_t *ties, int32_t *order) {
  bool moved = false;
  for (int32_t i = 0; i < ndim; i++) {
    int32_t at = i;
    for (; at > 0; at--) {
      const int32_t before = order[at - 1];
      const uint64_t mine = magnitude(strides[i]), its = magnitude(strides[before]);
      if (mine < its) break;
      if (mine == its && (ties == NULL || magnitude(ties[i]) <= magnitude(ties[before]))) break;
      order[at] = before;
      moved = true;
    }
    order[at] = i;
  }
  return moved;
}

void mf__layout_of(const DLTensor *view, mf__layout *out) {
  out->ndim = view->ndim;
  out->offset = 0;
  for (int32_t i = 0; i < view->ndim; i++) {
    out->shape[i] = view->shape[i];
    out->strides[i] = view->strides[i];
  }
}

static void push_axis(mf__layout *l, int64_t extent, int64_t stride) {
  l->shape[l->ndim] = extent;
  l->strides[l->ndim] = stride;
  l->ndim++;
}

static int index_at(const mf_index *item, int32_t axis, int64_t extent, int64_t stride, mf__layout *to,
                    mf_error *err) {
  const int64_t at = item->start < 0 ? item->start + extent : item->start;
  if (at < 0 || at >= extent)
    return mf__fail(err, MF_EBOUNDS, "index %lld is out of range for axis %d of extent %lld",
                    (long long)item->start, axis, (long long)extent);
  if (extent > 1) move_offset(to, at, stride);
  return MF_OK;
}

/* One end of a slice as Python resolves it: into lowest ... highest. */
static int64_t clamp_end(int64_t end, int64_t extent, int64_t lowest, int64_t highest) {
  if (end < 0) end += extent;
  return end < lowest ? lowest : end > highest ? highest : end;
}

static int index_slice(const mf_index *item, int64_t extent, int64_t stride, mf__layout *to, mf_error *err) {
  const int64_t step = item->step == MF_INDEX_NONE ? 1 : item->step;
  if (step == 0) return mf__fail(err, MF_EINVAL, "step is 0; a slice needs another one");
  /* Going down, an end may stand before element 0, at -1. */
  const int64_t lowest = step < 0 ? -1 : 0;
  const int64_t highest = step < 0 ? extent - 1 : extent;
  const int64_t first = item->start != MF_INDEX_NONE ? clamp_end(item->start, extent, lowest, highest)
                        : step < 0                    ? highest
                                                      : lowest;
  const int64_t last = item->stop != MF_INDEX_NONE ? clamp_end(item->stop, extent, lowest, highest)
                       : step < 0                   ? lowest
                                                    : highest;
  const int64_t distance = step < 0 ? first - last : last - first;
  /* In unsigned numbers, because -INT64_MIN is none; MF_INDEX_NONE was ruled out above. */
  const uint64_t stride_of_step = step < 0 ? 0 - (uint64_t)step : (uint64_t)step;
  const int64_t count =
      distance <= 0 ? 0 : (int64_t)(((uint64_t)distance + stride_of_step - 1) / stride_of_step);
  if (count > 0 && extent > 1) move_offset(to, first, stride);
  push_axis(to, count, count > 1 ? wrapping_mul(stride, step) : stride);
  return MF_OK;
}

/* How many axes the items take, and whether an ellipsis is among them. */
static int count_items(const mf_index *items, int32_t nitems, int32_t *taken, int32_t *added, bool *ellipsis,
                       mf_error *err) {
  *taken = *added = 0;
  *ellipsis = false;
  if (nitems < 0) return mf__fail(err, MF_EINVAL, "nitems is %d; at least 0 expected", nitems);
  if (items == NULL && nitems > 0) return mf__fail(err, MF_EINVAL, "items is NULL, with nitems %d", nitems);
  for (int32_t i = 0; i < nitems; i++) {
    const int32_t kind = items[i].kind;
    if (kind < MF_INDEX_AT || kind > MF_INDEX_ELLIPSIS)
      return mf__fail(err, MF_EINVAL, "items[%d].kind is %d; an mf_index_kind expected", i, kind);
    if (items[i].zero != 0) return mf__fail(err, MF_EINVAL, "items[%d].zero is %d; 0 expected", i, items[i].zero);
    if (kind == MF_INDEX_ELLIPSIS && *ellipsis)
      return mf__fail(err, MF_EINVAL, "items[%d] is a second ellipsis; one at most expected", i);
    *ellipsis |= kind == MF_INDEX_ELLIPSIS;
    *taken += kind == MF_INDEX_AT || kind == MF_INDEX_SLICE;
    *added += kind == MF_INDEX_NEWAXIS;
    *added -= kind == MF_INDEX_AT;
  }
  return MF_OK;
}

static void keep_axes(const mf__layout *from, int32_t *axis, int32_t count, mf__layout *to) {
  for (; count > 0; count--, (*axis)++) push_axis(to, from->shape[*axis], from->strides[*axis]);
}

int mf__layout_index(mf__layout *l, const mf_index *items, int32_t nitems, mf_error *err) {
  const mf__layout from = *l;
  int32_t taken, added, axis = 0;
  bool ellipsis;
  int rc = count_items(items, nitems, &taken, &added, &ellipsis, err);
  if (rc != MF_OK) return rc;
  if (taken > from.ndim)
    return mf__fail(err, MF_EBOUNDS, "%d %s; at most %d, one for each axis, expected", taken,
                    taken == 1 ? "index" : "indices", from.ndim);
  if (from.ndim + added > MF_MAX_NDIM)
    return mf__fail(err, MF_EINVAL, "ndim becomes %d; %d at most", from.ndim + added, MF_MAX_NDIM);
  l->ndim = 0;
  for (int32_t i = 0; i < nitems && rc == MF_OK; i++) {
    if (items[i].kind == MF_INDEX_NEWAXIS) {
      push_axis(l, 1, 0);
    } else if (items[i].kind == MF_INDEX_ELLIPSIS) {
      keep_axes(&from, &axis, from.ndim - taken, l);
    } else if (items[i].kind == MF_INDEX_AT) {
      rc = index_at(&items[i], axis, from.shape[axis], from.strides[axis], l, err);
      axis++;
    } else {
      rc = index_slice(&items[i], from.shape[axis], from.strides[axis], l, err);
      axis++;
    }
  }
  if (rc == MF_OK) keep_axes(&from, &axis, from.ndim - axis, l);
  return rc;
}

/* Resolves axes and marks them; each may be named once. */
static int mark_axes(const int32_t *axes, int32_t naxes, int32_t ndim, bool *marked, mf_error *err) {
  memset(marked, 0, MF_MAX_NDIM * sizeof *marked);
  for (int32_t i = 0; i < naxes; i++) {
    int32_t axis;
    const int rc = mf__axis_check(axes[i], ndim, &axis, err);
    if (rc != MF_OK) return rc;
    if (marked[axis]) return mf__fail(err, MF_EINVAL, "axes[%d] is %d, named before", i, axes[i]);
    marked[axis] = true;
  }
  return MF_OK;
}

int mf__layout_permute(mf__layout *l, const int32_t *axes, int32_t naxes, mf_error *err) {
  const mf__layout from = *l;
  bool marked[MF_MAX_NDIM];
  if (axes == NULL && naxes == 0) {
    for (int32_t i = 0; i < l->ndim; i++) {
      l->shape[i] = from.shape[l->ndim - 1 - i];
      l->strides[i] = from.strides[l->ndim - 1 - i];
    }
    return MF_OK;
  }
  if (naxes != l->ndim)
    return mf__fail(err, MF_EINVAL, "axes has %d entr%s; ndim is %d, so %d expected", naxes, naxes == 1 ? "y" : "ies",
                    l->ndim, l->ndim);
  if (axes == NULL) return mf__fail(err, MF_EINVAL, "axes is NULL, with naxes %d", naxes);
  const int rc = mark_axes(axes, naxes, l->ndim, marked, err);
  if (rc != MF_OK) return rc;
  for (int32_t i = 0; i < l->ndim; i++) {
    const int32_t axis = axes[i] < 0 ? axes[i] + l->ndim : axes[i];
    l->shape[i] = from.shape[axis];
    l->strides[i] = from.strides[axis];
  }
  return MF_OK;
}
