/* blocks.c: casts of layouts whose rows are short: a call for each row would cost more than the row. Blocks of all the
 * innermost axes that fit are gathered into one row, converted, and scattered, each of which has its own fast way. It
 * must not know a dtype, nor how a layout is copied. */
#include "core/simd.h"

/* Elements; a row that takes several loops costs as much as two. */
enum { BLOCK = 1024, LONG_ROW = 32 };

/* The inner axes are those of a block; the one before them is cut, so that a block has several places along it. */
typedef struct blocks {
  const mf__simd *simd;
  const mf__convert *convert;
  char *dst;
  const char *src;
  int64_t numel, most; /* of the inner axes; places along the one that is cut */
  int32_t ndim;        /* of a block: 1 more than inner axes */
  int64_t shape[MF_MAX_NDIM + 1], strides[2][MF_MAX_NDIM + 1]; /* those of a block but for the first */
} blocks;

/* One block: a tensor as it will be, and what becomes it. */
typedef struct block {
  DLTensor to;
  mf__side from;
  int64_t numel;
} block;

/* Of a block that is compact. */
static void compact_strides(int32_t ndim, const int64_t *shape, int64_t *strides) {
  int64_t n = 1;
  for (int32_t i = ndim; i-- > 0; n *= shape[i]) strides[i] = n;
}

static bool is_same(int32_t ndim, const int64_t *shape, const int64_t *a, const int64_t *b) {
  for (int32_t i = 0; i < ndim; i++)
    if (shape[i] != 1 && a[i] != b[i]) return false;
  return true;
}

static void cast_block(const mf__simd *simd, const mf__convert *c, const block *b) {
  _Alignas(64) char gathered[BLOCK * 8], converted[BLOCK * 8];
  int64_t strides[MF_MAX_NDIM + 1];
  const int32_t ndim = b->to.ndim;
  compact_strides(ndim, b->to.shape, strides);
  const bool in_place = is_same(ndim, b->to.shape, b->to.strides, strides);
  const char *src = b->from.data;
  if (!is_same(ndim, b->to.shape, b->from.strides, strides)) {
    const DLTensor all = {.data = gathered, .ndim = ndim, .shape = b->to.shape, .strides = strides};
    mf__tiles_copy(simd, &all, &b->from);
    src = gathered;
  }
  mf__convert_row(c, in_place ? b->to.data : converted, src, b->numel, false);
  const mf__side made = {converted, strides, c->to};
  if (!in_place) mf__tiles_copy(simd, &b->to, &made);
}

/* A row of the outer walk: the axis that is cut. Several threads do this. */
static bool cast_blocks(void *arg, const int64_t at[2], int64_t n, const int64_t step[2]) {
  const blocks *b = arg;
  const mf__convert *c = b->convert;
  int64_t shape[MF_MAX_NDIM + 1], strides[2][MF_MAX_NDIM + 1];
  for (int32_t i = 1; i < b->ndim; i++) {
    shape[i] = b->shape[i];
    for (int o = 0; o < 2; o++) strides[o][i] = b->strides[o][i];
  }
  for (int o = 0; o < 2; o++) strides[o][0] = step[o];
  for (int64_t done = 0; done < n; done += b->most) {
    shape[0] = n - done < b->most ? n - done : b->most;
    char *to = b->dst + (at[0] + done * step[0]) * c->to;
    const block one = {
        .to = {.data = to, .ndim = b->ndim, .shape = shape, .strides = strides[0]},
        .from = {b->src + (at[1] + done * step[1]) * c->from, strides[1], c->from},
        .numel = shape[0] * b->numel,
    };
    cast_block(b->simd, c, &one);
  }
  return true;
}

/* Takes the axes that fit into a block out of the walk. */
static void take_inner(blocks *b, mf__walk *w) {
  int32_t first = w->ndim;
  b->numel = 1;
  while (first > 0 && b->numel * w->shape[first - 1] <= BLOCK) b->numel *= w->shape[--first];
  b->ndim = w->ndim - first + 1;
  for (int32_t i = 1; i < b->ndim; i++) {
    b->shape[i] = w->shape[first + i - 1];
    for (int o = 0; o < 2; o++) b->strides[o][i] = w->strides[o][first + i - 1];
  }
  b->most = BLOCK / b->numel;
  w->ndim = first;
}

/* How many elements a call for each row, or for rows that follow each other, converts. */
static int64_t row_length(const DLTensor *dst, const mf__convert *c, const mf__side *src) {
  mf__planes p;
  mf__planes_make(&p, dst, c->to, src, false);
  const mf__tile *t = &p.plane;
  const bool run = t->dst_column == c->to && t->dst_row == t->columns * c->to &&
                   (t->src_column != t->size || t->src_row == t->columns * t->size);
  return run ? t->rows * t->columns : t->columns;
}

/* Whether what is close in the source is so within a block. Else each of its lines would be read by many blocks, of
 * which each takes an element. */
static bool has_close(const blocks *b, const mf__walk *w) {
  bool close = w->ndim > 0 && (w->strides[1][w->ndim - 1] == 1 || w->strides[1][w->ndim - 1] == -1);
  for (int32_t i = 1; i < b->ndim; i++) close = close || b->strides[1][i] == 1 || b->strides[1][i] == -1;
  return close;
}

bool mf__blocks_cast(const mf__simd *simd, const mf__convert *c, const DLTensor *dst, const mf__side *src,
                     int64_t numel) {
  if (numel <= BLOCK && mf__is_compact(dst)) {
    const block all = {*dst, *src, numel};
    cast_block(simd, c, &all);
    return true;
  }
  mf__walk w;
  blocks b; /* not cleared, which would take as long as a small cast */
  const int64_t enough = c->nstages > 1 ? 2 * LONG_ROW : LONG_ROW;
  mf__walk_plan(&w, dst, src->strides, false);
  if (w.ndim < 2 || w.shape[w.ndim - 1] >= enough || row_length(dst, c, src) >= enough) return false;
  b.simd = simd;
  b.convert = c;
  b.dst = dst->data;
  b.src = src->data;
  take_inner(&b, &w);
  if (numel * c->from >= MF__LARGE && !has_close(&b, &w)) return false;
  (void)mf__walk_share(&w, numel * c->to, 1, cast_blocks, &b);
  return true;
}
