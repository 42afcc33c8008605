/* tiles.c: whole layouts copied by tiles. What is large is gathered tile by tile in a buffer that stays in the cache,
 * and from there written past the caches in whole lines: memory that is not read before it is replaced takes a third
 * less of the bus, and a line that comes once does not evict what will be used again. */
#include "core/simd.h"

#include <string.h>

#define BUFFER (32 << 10)
#define ROW_BUFFER (4 << 10)
#define LINE 64
/* What reads and writes so many bytes passes the caches. What takes fewer may still lie in the last cache from its last
 * use, and to write past it would evict it first. Planes that are crossed gain from MF__LARGE on: they write parts of
 * many lines. */
#define STREAM_FROM (INT64_C(72) << 20)
/* What one thread takes at a time of work that is shared: some tens of microseconds. */
#define PART (INT64_C(512) << 10)

typedef struct tiles {
  mf__mover mover;
  const mf__simd *simd;
  int64_t rows, columns; /* of a tile */
  bool streams;
  bool asks;             /* a tile's columns are as long as a line, and those of the next one are prefetched */
  bool run;              /* rows of the destination follow each other, so that a tile is one run */
  int64_t depth;         /* of a stack of planes */
  int64_t src_plane;     /* from one of its planes to the next */
} tiles;

static void move_tile(const tiles *c, const mf__tile *t) {
  c->mover.move(&c->mover, t);
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

typedef void (*part_fn)(const tiles *c, const mf__tile *t);

/* How many elements of ${size} bytes lie before the next line; a tile's ${usual} where none or parts of some do. */
static int64_t lead(const char *from, int64_t size, int64_t usual) {
  const int64_t nbytes = -(intptr_t)from & (LINE - 1);
  return nbytes > 0 && nbytes % size == 0 ? least(nbytes / size, usual) : usual;
}

/* The tiles of a plane: along the rows first, on which the source is close. Those that are streamed begin with a line
 * of the destination: a line that is written in two parts is read in between. */
static void each_part(const tiles *c, const mf__tile *t, part_fn part) {
  const bool crossed = c->streams && !c->run && t->src_row == t->size;
  const bool lines = !c->run && (c->streams || (t->dst_row % LINE == 0 && t->columns * t->dst_column >= 4 * LINE));
  const int64_t columns = lines ? lead(t->dst, t->dst_column, c->columns) : c->columns;
  const int64_t rows = crossed ? lead(t->src, t->size, c->rows) : c->rows;
  for (int64_t column = 0, wide = columns; column < t->columns; column += wide, wide = c->columns) {
    for (int64_t row = 0, high = rows; row < t->rows; row += high, high = c->rows) {
      mf__tile one = *t;
      one.dst += row * t->dst_row + column * t->dst_column;
      one.src += row * t->src_row + column * t->src_column;
      one.rows = least(high, t->rows - row);
      one.columns = least(wide, t->columns - column);
      part(c, &one);
    }
  }
}

/* For the next tile's lines, while this one's are moved. */
MF__INLINE void ask_next(const tiles *c, const mf__tile *t) {
  if (!c->asks) return;
  for (int64_t j = 0; j < t->columns; j++) mf__prefetch(t->src, j * t->src_column + LINE);
}

static void stream_tile(const tiles *c, const mf__tile *t) {
  _Alignas(LINE) char buffer[BUFFER];
  const int64_t width = t->columns * t->size;
  mf__tile inside = *t;
  inside.dst = buffer;
  inside.dst_row = width;
  ask_next(c, t);
  c->mover.move(&c->mover, &inside);
  if (c->run) {
    c->simd->stream(t->dst, buffer, t->rows * width);
    return;
  }
  for (int64_t i = 0; i < t->rows; i++) c->simd->stream(t->dst + i * t->dst_row, buffer + i * width, width);
}

static void copy_plane(void *ctx, const mf__tile *t) {
  const tiles *c = ctx;
  if (c->rows > 0)
    each_part(c, t, move_tile);
  else
    move_tile(c, t);
}

static void stream_plane(void *ctx, const mf__tile *t) {
  each_part(ctx, t, stream_tile);
}

/* Rows that are compact on both sides need no buffer. */
static void stream_rows(void *ctx, const mf__tile *t) {
  const tiles *c = ctx;
  for (int64_t i = 0; i < t->rows; i++)
    c->simd->stream(t->dst + i * t->dst_row, t->src + i * t->src_row, t->columns * t->size);
}

/* Rows of one element each. What is repeated is as long as whole elements and whole lines are, and begins where the
 * destination's first line does. */
static void stream_repeated(void *ctx, const mf__tile *t) {
  _Alignas(LINE) char buffer[ROW_BUFFER + LINE];
  const tiles *c = ctx;
  const int64_t size = t->size, width = t->columns * size, most = ROW_BUFFER / (LINE * size) * LINE * size;
  for (int64_t i = 0; i < t->rows; i++) {
    char *dst = t->dst + i * t->dst_row;
    const int64_t before = least(-(intptr_t)dst & (LINE - 1), width);
    mf__repeat_row(buffer, t->src + i * t->src_row, size, most / size + 1);
    memcpy(dst, buffer, (size_t)before);
    for (int64_t done = before; done < width; done += most)
      c->simd->stream(dst + done, buffer + before % size, least(most, width - done));
  }
}

/* Planes whose rows are short and follow each other in the destination, plane after plane: several are gathered at
 * once, so that what is written are long rows, which have few parts of lines at their ends. */
static void stream_stack(void *ctx, const mf__tile *t) {
  _Alignas(LINE) char buffer[BUFFER];
  const tiles *c = ctx;
  const int64_t width = t->columns * t->size, most = BUFFER / c->rows / width;
  const int64_t first = lead(t->src, t->size, c->rows);
  for (int64_t plane = 0; plane < c->depth; plane += most) {
    const int64_t n = least(most, c->depth - plane);
    for (int64_t row = 0, high = first; row < t->rows; row += high, high = c->rows) {
      mf__tile one = *t;
      one.rows = least(high, t->rows - row);
      one.dst_row = n * width;
      for (int64_t i = 0; i < n; i++) {
        one.dst = buffer + i * width;
        one.src = t->src + row * t->src_row + (plane + i) * c->src_plane;
        c->mover.move(&c->mover, &one);
      }
      for (int64_t i = 0; i < one.rows; i++)
        c->simd->stream(t->dst + (row + i) * t->dst_row + plane * width, buffer + i * n * width, n * width);
    }
  }
}

static bool is_crossed(const mf__tile *t) {
  return t->src_row == t->size && t->src_column != t->size && t->src_column != 0;
}

static bool is_repeated(const mf__tile *t) {
  const bool is_long = t->columns * t->size >= 8 * LINE;
  return t->src_column == 0 && t->dst_column == t->size && t->size <= LINE && is_long;
}

/* What is gathered from parts of lines waits for memory, not for the bus; a row backwards and short rows are as fast
 * without a buffer. */
static bool gains(const mf__tile *t) {
  if (is_crossed(t)) return true;
  return t->src_column == t->size && t->columns * t->size >= 8 * LINE;
}

/* ${nbytes} are written, ${to} of each element. */
static bool is_worth_streaming(const mf__tile *t, int64_t nbytes, int64_t to) {
  const bool strewn = is_crossed(t) && t->rows > 4 && t->columns > 4 && t->size <= 16;
  return strewn ? nbytes >= MF__LARGE : nbytes / to * (to + t->size) >= STREAM_FROM;
}

/* How large a tile is. False where lines of the destination would be written in parts, or nothing is gained. */
static bool find_stream(tiles *c, const mf__tile *t) {
  const int64_t size = t->size, width = t->columns * size;
  const bool crossed = is_crossed(t);
  c->run = t->dst_row == width;
  if (t->dst_column != size || size > LINE || (width < 2 * LINE && !c->run) || !gains(t)) return false;
  if (crossed) {
    /* A line of each column of the source. Where rows of the destination are no whole lines, they are written in long
     * pieces, which have few parts of lines at their ends. */
    const bool aligned = t->src_column % LINE == 0 && t->dst_row % LINE == 0;
    c->asks = true;
    c->rows = LINE / size;
    c->columns = aligned ? (size < 16 ? 4 : 8) * LINE / size : BUFFER / LINE;
  } else {
    c->columns = ROW_BUFFER / size;
    c->rows = 1;
  }
  c->run &= c->columns >= t->columns;
  c->columns = least(c->columns, t->columns);
  if (c->run && crossed) /* several lines of each column */
    c->rows *= BUFFER / width / c->rows;
  else if (c->run)
    c->rows = ROW_BUFFER / width;
  return true;
}

/* Takes the innermost axis around the planes for a stack, where that gains. */
static bool find_stack(tiles *c, mf__planes *p) {
  const mf__tile *t = &p->plane;
  const int32_t last = p->ndim - 1;
  const int64_t width = t->columns * t->size;
  if (last < 0 || !is_crossed(t) || c->run || t->columns > c->columns || p->dst[last] != width) return false;
  const uintptr_t aligned = (uintptr_t)t->dst | (uintptr_t)t->dst_row | (uintptr_t)width;
  if (aligned % LINE == 0) return false; /* no parts of lines */
  const int64_t rows = LINE / t->size;   /* a line of the source */
  if (width > BUFFER / rows / 2) return false;
  c->rows = rows;
  c->depth = p->shape[last];
  c->src_plane = p->src[last];
  p->ndim = last;
  return true;
}

/* A plane whose sides are close on different axes goes by squares, of which the lines of both stay in the cache. */
static void find_tile(tiles *c, const mf__tile *t) {
  const bool crossed = t->src_row < t->src_column && t->src_row > 0;
  const bool large = t->rows * t->columns * t->size > BUFFER;
  c->rows = crossed && large ? 4 * LINE / least(t->size, LINE) : 0;
  c->columns = c->rows;
}

typedef void (*plane_fn)(void *ctx, const mf__tile *t);

/* The planes of a layout, in parts. */
typedef struct shares {
  const mf__simd *simd;
  const mf__planes *planes;
  mf__cut cut;
  plane_fn plane;
  void *ctx;
} shares;

static void do_part(void *ctx, int64_t i) {
  const shares *s = ctx;
  mf__planes part;
  mf__planes_part(s->planes, &s->cut, i, &part);
  mf__planes_each(&part, s->plane, s->ctx);
  s->simd->stream_end();
}

/* Whether several planes read the same lines of the source, and a plane is so large that none of them stays in the
 * cache until the next plane reads it. */
static bool comes_back(const mf__planes *p) {
  bool close = false;
  for (int32_t i = 0; i < p->ndim; i++) close = close || (p->src[i] > -LINE && p->src[i] < LINE && p->src[i] != 0);
  return close && p->plane.rows * p->plane.columns * p->plane.size >= PART;
}

/* Calls ${plane} for each of the planes, in which ${nbytes} are written; large ones on several threads. */
static void each_plane(const tiles *c, const mf__planes *p, int64_t nbytes, plane_fn plane, void *ctx) {
  shares s = {.simd = c->simd, .planes = p, .plane = plane, .ctx = ctx};
  if (nbytes >= MF__LARGE && (mf_threads() > 1 || comes_back(p))) {
    mf__planes_cut(p, nbytes / PART, &s.cut);
    mf__share(s.cut.nparts, do_part, &s);
    return;
  }
  mf__planes_each(p, plane, ctx);
  if (c->streams) c->simd->stream_end();
}

void mf__tiles_copy(const mf__simd *simd, const DLTensor *dst, const mf__side *src) {
  tiles c; /* not cleared, which would take as long as a small copy */
  mf__planes p;
  int64_t nbytes = src->size;
  for (int32_t i = 0; i < dst->ndim; i++) nbytes *= dst->shape[i];
  mf__planes_make(&p, dst, src->size, src, true);
  mf__mover_find(&c.mover, simd, &p.plane, nbytes);
  c.simd = simd;
  c.asks = c.run = false;
  c.streams = is_worth_streaming(&p.plane, nbytes, p.plane.size);
  if (c.streams && is_repeated(&p.plane)) {
    each_plane(&c, &p, nbytes, stream_repeated, &c);
    return;
  }
  c.streams = c.streams && find_stream(&c, &p.plane);
  if (!c.streams) {
    find_tile(&c, &p.plane);
    each_plane(&c, &p, nbytes, copy_plane, &c);
    return;
  }
  if (find_stack(&c, &p)) {
    each_plane(&c, &p, nbytes, stream_stack, &c);
    return;
  }
  const bool rows = p.plane.src_column == p.plane.size && p.plane.columns * p.plane.size >= 8 * LINE;
  each_plane(&c, &p, nbytes, rows ? stream_rows : stream_plane, &c);
}

/* Casts and comparisons: a tile is gathered in the source's dtype, unless its rows are compact, and then converted, or
 * compared with what is there, row by row. */

#define CAST_BUFFER (16 << 10)
#define CAST_ROW 512
/* Where no buffer limits it: a processor with AVX-512 loses 150 ns each time that such a row ends. */
#define CAST_LONG_ROW (64 * CAST_ROW)

typedef struct casts casts;
struct casts {
  tiles t; /* first: the parts of a plane find the size of a tile there */
  int64_t to; /* bytes of an element of the destination */
  void (*rows)(const casts *c, const mf__tile *t, const mf__tile *inside); /* of a tile, gathered where need be */
  const mf__convert *convert; /* or */
  const mf__compare *compare;
  _Atomic bool *differs; /* set by the first row that does; the others need not be compared then */
  bool gathers;
};

/* A row of n elements, which lie side by side at src. */
static void cast_row(const casts *c, const mf__tile *t, char *dst, const char *src, int64_t n) {
  _Alignas(LINE) char buffer[CAST_ROW * 8 * 4];
  const int64_t size = c->to, to_line = -(intptr_t)dst & (LINE - 1);
  if (t->dst_column == size && c->t.streams && to_line % size == 0) {
    const int64_t first = least(to_line / size, n);
    mf__convert_row(c->convert, dst, src, first, false);
    mf__convert_row(c->convert, dst + first * size, src + first * c->convert->from, n - first, true);
  } else if (t->dst_column == size) {
    mf__convert_row(c->convert, dst, src, n, false);
  } else {
    const mf__tile row = {.dst = dst, .src = buffer, .size = size, .rows = 1, .columns = n,
                          .dst_column = t->dst_column, .src_column = size};
    mf__convert_row(c->convert, buffer, src, n, false);
    mf__move_plain(&row);
  }
}

/* Short rows that were gathered are one run, and moved as they lie in the destination when they are converted. */
static void cast_short_rows(const casts *c, const mf__tile *t, const mf__tile *inside) {
  _Alignas(LINE) char converted[CAST_BUFFER * 2];
  const int64_t width = t->columns * c->to;
  mf__convert_row(c->convert, converted, inside->src, t->rows * t->columns, false);
  for (int64_t i = 0; i < t->rows; i++) memcpy(t->dst + i * t->dst_row, converted + i * width, (size_t)width);
}

static void cast_rows(const casts *c, const mf__tile *t, const mf__tile *inside) {
  if (c->gathers && t->rows > 1 && t->dst_column == c->to && t->rows * t->columns * c->to <= CAST_BUFFER * 2 &&
      t->columns < CAST_ROW / 8) {
    cast_short_rows(c, t, inside);
    return;
  }
  if (c->convert->nstages == 1 && t->dst_column == c->to && !c->t.streams) { /* short rows: no decision for each */
    const mf__loop run = c->convert->stages[0].run;
    for (int64_t i = 0; i < t->rows; i++)
      run(t->dst + i * t->dst_row, inside->src + i * inside->src_row, t->columns, &c->convert->stages[0].format, false);
    return;
  }
  for (int64_t i = 0; i < t->rows; i++)
    cast_row(c, t, t->dst + i * t->dst_row, inside->src + i * inside->src_row, t->columns);
}

static bool is_decided(const casts *c) {
  return c->differs != NULL && atomic_load_explicit(c->differs, memory_order_relaxed);
}

static void compare_rows(const casts *c, const mf__tile *t, const mf__tile *inside) {
  for (int64_t i = 0; i < t->rows && !is_decided(c); i++) {
    const mf__strided a = {t->dst + i * t->dst_row, t->dst_column}, b = {inside->src + i * inside->src_row, c->to};
    if (!mf__compare_row(c->compare, &a, &b, t->columns))
      atomic_store_explicit(c->differs, true, memory_order_relaxed);
  }
}

static void cast_tile(const tiles *ctx, const mf__tile *t) {
  const casts *c = (const casts *)(const void *)ctx;
  _Alignas(LINE) char buffer[CAST_BUFFER];
  mf__tile inside = *t;
  if (is_decided(c)) return;
  if (c->gathers) {
    inside.dst = buffer;
    inside.dst_column = t->size;
    inside.dst_row = t->columns * t->size;
    ask_next(&c->t, t);
    c->t.mover.move(&c->t.mover, &inside);
    inside.src = buffer;
    inside.src_row = inside.dst_row;
  }
  if (!c->t.run) {
    c->rows(c, t, &inside);
    return;
  }
  mf__tile all = *t;
  all.rows = 1;
  all.columns = t->rows * t->columns;
  c->rows(c, &all, &inside);
}

static void cast_plane(void *ctx, const mf__tile *t) {
  each_part(ctx, t, cast_tile);
}

/* The destination's rows follow each other, and so do the source's, or they are gathered so. */
static bool is_run(const casts *c, const mf__tile *t) {
  const int64_t to = c->to;
  if (t->dst_column != to || t->dst_row != t->columns * to || c->t.columns != t->columns) return false;
  return c->gathers || t->src_row == t->columns * t->size;
}

/* How many elements of a row a tile has at most. */
static int64_t row_of_tile(const casts *c, const mf__tile *t, bool crossed) {
  if (crossed && t->rows > 4) return CAST_ROW / 2;
  if (c->gathers) return CAST_ROW;
  return t->dst_column == c->to ? CAST_LONG_ROW : CAST_ROW * 4;
}

/* How many rows of one run a tile has: a multiple of a line's elements, so that a tile that begins with a line ends
 * with one. */
static int64_t rows_of_run(const casts *c, const mf__tile *t) {
  int64_t rows = CAST_ROW * 4 / t->columns;
  if (c->gathers) rows = least(rows, CAST_BUFFER / t->size / t->columns);
  return rows > LINE ? rows - rows % LINE : rows;
}

static void find_cast_tile(casts *c, const mf__tile *t, int64_t nbytes) {
  const bool crossed = t->src_row > 0 && t->src_row < t->src_column;
  const mf__tile inside = {.size = t->size, .rows = t->rows, .columns = t->columns, .dst_row = t->columns * t->size,
                           .dst_column = t->size, .src_row = t->src_row, .src_column = t->src_column};
  c->gathers = t->src_column != t->size;
  if (c->gathers) mf__mover_find(&c->t.mover, c->t.simd, &inside, nbytes);
  c->t.columns = least(t->columns, row_of_tile(c, t, crossed));
  c->t.rows = crossed ? LINE / t->size : 1;
  c->t.asks = crossed && c->gathers && t->rows > 4;
  if (crossed && t->rows <= 4) c->t.rows = t->rows;
  c->t.run = is_run(c, t);
  if (c->t.run) c->t.rows = rows_of_run(c, t);
  if (!crossed && !c->t.run && c->t.columns == t->columns) c->t.rows = 1 + CAST_ROW / t->columns;
}

void mf__tiles_cast(const mf__simd *simd, const mf__convert *convert, const DLTensor *dst, const mf__side *src) {
  casts c = {.t = {.simd = simd}, .to = convert->to, .rows = cast_rows, .convert = convert};
  mf__planes p;
  if (convert->nstages == 0) { /* the same bits */
    mf__tiles_copy(simd, dst, src);
    return;
  }
  int64_t nbytes = c.to;
  for (int32_t i = 0; i < dst->ndim; i++) nbytes *= dst->shape[i];
  mf__planes_make(&p, dst, c.to, src, false);
  find_cast_tile(&c, &p.plane, nbytes);
  c.t.streams = is_worth_streaming(&p.plane, nbytes, c.to) && (c.t.run || c.t.columns * c.to >= 2 * LINE);
  each_plane(&c.t, &p, nbytes, cast_plane, &c);
}

static bool compare_planes(const mf__simd *simd, const mf__compare *compare, const mf__planes *p, int64_t nbytes) {
  _Atomic bool differs = false;
  casts c = {.t = {.simd = simd}, .to = p->plane.size, .rows = compare_rows, .compare = compare, .differs = &differs};
  find_cast_tile(&c, &p->plane, nbytes);
  each_plane(&c.t, p, nbytes, cast_plane, &c);
  return !atomic_load_explicit(&differs, memory_order_relaxed);
}

bool mf__tiles_equal(const mf__simd *simd, const mf__compare *compare, const DLTensor *a, const mf__side *b,
                     bool *same) {
  mf__planes p;
  int64_t nbytes = b->size;
  for (int32_t i = 0; i < a->ndim; i++) nbytes *= a->shape[i];
  if (nbytes < LINE * LINE) return false;
  mf__planes_make(&p, a, b->size, b, false);
  if (!is_crossed(&p.plane) || p.plane.rows * b->size < LINE || p.plane.columns * b->size < LINE) return false;
  *same = compare_planes(simd, compare, &p, nbytes);
  return true;
}
