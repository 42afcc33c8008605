/* planes.c: two layouts of one shape as planes of rows and columns, with as few planes as strides allow, and the axes
 * around them. Knows no kernel and no dtype.
 *
 * Invariant: destination strides of columns and of the axes around are not negative, and neither is the source's of
 * rows. */
#include "core/simd.h"

#include <stdlib.h>
#include <string.h>

static void take(mf__planes *p, const mf__walk *w, const DLTensor *dst, int64_t dst_size, const mf__side *src) {
  p->ndim = w->ndim;
  p->plane = (mf__tile){.dst = dst->data, .src = src->data, .size = src->size, .rows = 1, .columns = 1,
                        .dst_column = dst_size, .src_column = src->size};
  for (int32_t i = 0; i < w->ndim; i++) {
    p->shape[i] = w->shape[i];
    p->dst[i] = w->strides[0][i] * dst_size;
    p->src[i] = w->strides[1][i] * src->size;
    if (p->dst[i] >= 0) continue;
    /* From the other end. */
    p->plane.dst += p->dst[i] * (p->shape[i] - 1);
    p->plane.src += p->src[i] * (p->shape[i] - 1);
    p->dst[i] = -p->dst[i];
    p->src[i] = -p->src[i];
  }
}

static void fuse(mf__planes *p) {
  while (p->ndim > 0) {
    const int32_t last = p->ndim - 1;
    if (p->dst[last] != p->plane.size || p->src[last] != p->plane.size || p->shape[last] > 16 / p->plane.size) return;
    p->plane.size *= p->shape[last];
    p->plane.dst_column = p->plane.src_column = p->plane.size;
    p->ndim--;
  }
}

static void remove_axis(mf__planes *p, int32_t axis) {
  const size_t behind = (size_t)(--p->ndim - axis) * sizeof *p->shape;
  memmove(p->shape + axis, p->shape + axis + 1, behind);
  memmove(p->dst + axis, p->dst + axis + 1, behind);
  memmove(p->src + axis, p->src + axis + 1, behind);
}

/* The axis that is closest in the source, if that is closer than ${than}; else the last. */
static int32_t closest(const mf__planes *p, int64_t than) {
  int32_t found = p->ndim - 1;
  int64_t least = than < 0 ? -than : than;
  for (int32_t i = 0; i < p->ndim; i++) {
    const int64_t stride = p->src[i] < 0 ? -p->src[i] : p->src[i];
    if (stride == 0 || stride >= least) continue;
    least = stride;
    found = i;
  }
  return found;
}

static void take_columns(mf__planes *p) {
  const int32_t last = p->ndim - 1;
  p->plane.columns = p->shape[last];
  p->plane.dst_column = p->dst[last];
  p->plane.src_column = p->src[last];
  remove_axis(p, last);
}

/* The axis for rows. Going to a plane of a few elements, or of a few short rows, costs more than moving it: there the
 * rows are the longest axis. */
static int32_t row_axis(const mf__planes *p) {
  enum { FEW = 16, FEW_ROWS = 8, SHORT = 512 };
  const mf__tile *t = &p->plane;
  int32_t axis = closest(p, t->src_column);
  const bool short_rows = t->src_column == t->size && t->columns * t->size < SHORT && p->shape[axis] < FEW_ROWS;
  if (p->shape[axis] * t->columns >= FEW && !short_rows) return axis;
  for (int32_t i = 0; i < p->ndim; i++)
    if (p->shape[i] > p->shape[axis]) axis = i;
  return axis;
}

static void take_rows(mf__planes *p) {
  mf__tile *t = &p->plane;
  const int32_t axis = row_axis(p);
  t->rows = p->shape[axis];
  t->dst_row = p->dst[axis];
  t->src_row = p->src[axis];
  remove_axis(p, axis);
  if (t->src_row >= 0) return;
  t->dst += t->dst_row * (t->rows - 1);
  t->src += t->src_row * (t->rows - 1);
  t->dst_row = -t->dst_row;
  t->src_row = -t->src_row;
}

void mf__planes_make(mf__planes *p, const DLTensor *dst, int64_t dst_size, const mf__side *src, bool fuses) {
  mf__walk w;
  mf__walk_plan(&w, dst, src->strides, false);
  take(p, &w, dst, dst_size, src);
  if (fuses) fuse(p);
  if (p->ndim > 0) take_columns(p);
  if (p->ndim > 0) take_rows(p);
}

/* A processor does not foresee where the next plane lies if planes are small and far from each other in the source.
 * Returns how many bytes ahead to prefetch, or 0 where that gains nothing. */
static int64_t ahead_of(const mf__planes *p) {
  enum { FAR = 2048, FEW = 32, PLANES = 4 };
  const int32_t last = p->ndim - 1;
  if (last < 0 || p->plane.columns > FEW || p->plane.rows > FEW || p->shape[last] <= PLANES) return 0;
  const int64_t step = p->src[last];
  return step >= FAR || step <= -FAR ? PLANES * step : 0;
}

void mf__planes_each(const mf__planes *p, void (*plane)(void *ctx, const mf__tile *t), void *ctx) {
  const int64_t ahead = ahead_of(p);
  mf__tile t = p->plane;
  int64_t index[MF_MAX_NDIM];
  memset(index, 0, (size_t)p->ndim * sizeof *index); /* not all of it, for what is small */
  for (;;) {
    int32_t i = p->ndim - 1;
    for (int64_t j = 0; ahead != 0 && j < t.columns; j++) mf__prefetch(t.src, ahead + j * t.src_column);
    plane(ctx, &t);
    for (; i >= 0; i--) {
      t.dst += p->dst[i];
      t.src += p->src[i];
      if (++index[i] < p->shape[i]) break;
      t.dst -= p->dst[i] * p->shape[i];
      t.src -= p->src[i] * p->shape[i];
      index[i] = 0;
    }
    if (i < 0) return;
  }
}

/* A plane is cut where whole lines of the cache begin, if it begins with one. */
#define LINE 64
/* So many parts are enough for several threads that are not equally fast. */
#define ENOUGH 16

/* The outermost axis that gives enough parts, else the longest; MF__COLUMNS where the plane has to be cut. */
static int32_t cut_around(const mf__planes *p, int64_t enough) {
  int32_t best = MF__COLUMNS;
  for (int32_t i = 0; i < p->ndim; i++) {
    if (p->shape[i] >= enough) return i;
    if (best == MF__COLUMNS || p->shape[i] > p->shape[best]) best = i;
  }
  return best != MF__COLUMNS && p->plane.rows * p->plane.columns < LINE * LINE ? best : MF__COLUMNS;
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

void mf__planes_cut(const mf__planes *p, int64_t nparts, mf__cut *out) {
  const mf__tile *t = &p->plane;
  const int64_t enough = nparts < ENOUGH ? nparts : ENOUGH;
  const bool crossed = t->src_row < t->src_column && t->src_row > 0;
  int64_t extent, unit = 1;
  out->axis = cut_around(p, enough);
  if (out->axis == MF__COLUMNS) {
    /* Tiles go along the rows first where the source does; and rows that follow each other stay whole. */
    if (t->rows >= enough && (!crossed || t->columns < enough * LINE || t->dst_row % LINE != 0)) out->axis = MF__ROWS;
    extent = out->axis == MF__ROWS ? t->rows : t->columns;
    unit = crossed || out->axis == MF__COLUMNS ? LINE : 1;
  } else {
    extent = p->shape[out->axis];
  }
  out->step = (extent + nparts - 1) / nparts;
  out->step = (out->step + unit - 1) / unit * unit;
  /* Rows whose lines two threads write are read by both in between. */
  const int64_t before_line = -(intptr_t)t->dst & (LINE - 1);
  const bool meets = out->axis == MF__COLUMNS && t->dst_column > 0 && before_line % t->dst_column == 0;
  out->first = least(extent, out->step + (meets ? before_line / t->dst_column : 0));
  out->nparts = 1 + (extent - out->first + out->step - 1) / out->step;
}

void mf__planes_part(const mf__planes *p, const mf__cut *cut, int64_t i, mf__planes *out) {
  mf__tile *t = &out->plane;
  const int64_t begin = i == 0 ? 0 : cut->first + (i - 1) * cut->step;
  *out = *p;
  int64_t *extent = cut->axis == MF__COLUMNS ? &t->columns : cut->axis == MF__ROWS ? &t->rows : &out->shape[cut->axis];
  const int64_t dst = cut->axis == MF__COLUMNS ? t->dst_column : cut->axis == MF__ROWS ? t->dst_row : p->dst[cut->axis];
  const int64_t src = cut->axis == MF__COLUMNS ? t->src_column : cut->axis == MF__ROWS ? t->src_row : p->src[cut->axis];
  t->dst += begin * dst;
  t->src += begin * src;
  *extent = least(*extent - begin, i == 0 ? cut->first : cut->step);
}
