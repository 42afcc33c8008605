/* shared_walk.c: one walk by several threads, in parts along its longest axis. It must not know what a row does.
 *
 * Invariant: each element is in one part. */
#include "core/core.h"

/* A walk in parts along one axis. */
typedef struct shared {
  const mf__walk *walk;
  int32_t axis;
  int64_t step; /* places of a part */
  mf__row_fn row;
  void *ctx;
  _Atomic bool ended; /* a row said so */
} shared;

static void walk_part(void *arg, int64_t i) {
  shared *s = arg;
  mf__walk w = *s->walk;
  const int64_t first = i * s->step, left = w.shape[s->axis] - first;
  if (atomic_load_explicit(&s->ended, memory_order_relaxed)) return;
  w.shape[s->axis] = s->step < left ? s->step : left;
  for (int o = 0; o < 2; o++) w.first[o] += first * w.strides[o][s->axis];
  if (!mf__walk_rows(&w, s->row, s->ctx)) atomic_store_explicit(&s->ended, true, memory_order_relaxed);
}

bool mf__walk_share(const mf__walk *w, int64_t nbytes, int64_t unit, mf__row_fn row, void *ctx) {
  enum { PARTS_EACH = 4 }; /* for each thread, so that one that is late holds up little */
  shared s = {.walk = w, .row = row, .ctx = ctx};
  if (nbytes < MF__LARGE || w->ndim == 0) return mf__walk_rows(w, row, ctx);
  for (int32_t i = 1; i < w->ndim; i++)
    if (w->shape[i] > w->shape[s.axis]) s.axis = i;
  const int64_t extent = w->shape[s.axis], nparts = (int64_t)mf_threads() * PARTS_EACH;
  s.step = ((extent + nparts - 1) / nparts + unit - 1) / unit * unit;
  mf__share((extent + s.step - 1) / s.step, walk_part, &s);
  return !s.ended;
}
