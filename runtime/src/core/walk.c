/* walk.c: going over one or two layouts of the same shape in rows, with as few and as long rows as the
 * strides allow. Everything that touches many elements is a row function under this walk. */
#include "core/core.h"

#include <string.h>

static void take_axes(mf__walk *w, const DLTensor *first, const int64_t *second_strides) {
  w->ndim = 0;
  for (int32_t i = 0; i < first->ndim; i++) {
    if (first->shape[i] == 1) continue;
    w->shape[w->ndim] = first->shape[i];
    w->strides[0][w->ndim] = first->strides[i];
    w->strides[1][w->ndim] = second_strides == NULL ? 0 : second_strides[i];
    w->ndim++;
  }
}

static void sort_axes(mf__walk *w) {
  int64_t shape[MF_MAX_NDIM], strides[2][MF_MAX_NDIM];
  int32_t order[MF_MAX_NDIM];
  if (!mf__axes_sort(w->ndim, w->strides[0], w->strides[1], order)) return;
  for (int32_t i = 0; i < w->ndim; i++) {
    shape[i] = w->shape[order[i]];
    strides[0][i] = w->strides[0][order[i]];
    strides[1][i] = w->strides[1][order[i]];
  }
  memcpy(w->shape, shape, (size_t)w->ndim * sizeof *shape);
  memcpy(w->strides[0], strides[0], (size_t)w->ndim * sizeof *shape);
  memcpy(w->strides[1], strides[1], (size_t)w->ndim * sizeof *shape);
}

/* Axis i goes on where a whole run of axis i + 1 ends, in both operands. */
static bool joins(const mf__walk *w, int32_t i, int32_t next) {
  for (int o = 0; o < 2; o++) {
    /* Both axes lie in memory, so the run is a place in it, at most one past what they reach. */
    if (w->strides[o][i] != w->strides[o][next] * w->shape[next]) return false;
  }
  return true;
}

static void join_axes(mf__walk *w) {
  int32_t n = 0;
  for (int32_t i = 1; i < w->ndim; i++) {
    if (joins(w, n, i)) {
      w->shape[n] *= w->shape[i];
    } else {
      n++;
      w->shape[n] = w->shape[i];
    }
    w->strides[0][n] = w->strides[0][i];
    w->strides[1][n] = w->strides[1][i];
  }
  if (w->ndim > 0) w->ndim = n + 1;
}

void mf__walk_plan(mf__walk *w, const DLTensor *first, const int64_t *second_strides, bool keep_order) {
  take_axes(w, first, second_strides);
  w->first[0] = w->first[1] = 0;
  if (!keep_order) sort_axes(w);
  join_axes(w);
}

bool mf__walk_rows(const mf__walk *w, mf__row_fn row, void *ctx) {
  const int32_t inner = w->ndim - 1;
  const int64_t n = inner < 0 ? 1 : w->shape[inner];
  const int64_t step[2] = {inner < 0 ? 1 : w->strides[0][inner], inner < 0 ? 1 : w->strides[1][inner]};
  int64_t at[2] = {w->first[0], w->first[1]};
  int64_t index[MF_MAX_NDIM] = {0};
  for (;;) {
    int32_t i = inner - 1;
    if (!row(ctx, at, n, step)) return false;
    for (; i >= 0; i--) {
      at[0] += w->strides[0][i];
      at[1] += w->strides[1][i];
      if (++index[i] < w->shape[i]) break;
      at[0] -= w->strides[0][i] * w->shape[i];
      at[1] -= w->strides[1][i] * w->shape[i];
      index[i] = 0;
    }
    if (i < 0) return true;
  }
}

bool mf__walk_repeats(const DLTensor *view) {
  mf__walk w;
  int64_t reach = 0;
  take_axes(&w, view, NULL);
  sort_axes(&w);
  for (int32_t i = w.ndim - 1; i >= 0; i--) {
    const int64_t stride = w.strides[0][i] < 0 ? -w.strides[0][i] : w.strides[0][i];
    if (stride <= reach) return true;
    reach += stride * (w.shape[i] - 1);
  }
  return false;
}
