/* tile.c: the elements of one tile to another place, by the fastest kernel that its strides allow. The element by
 * element way is here, too; it takes what no kernel does, the edges of a kernel's tiles included.
 *
 * Must not know about whole layouts, which planes.c makes into tiles. */
#include "core/simd.h"

#include <string.h>

/* A network takes as long to connect as it takes to move so many bytes one by one. */
#define NETWORK_FROM 512
/* And each row for itself, of which two vectors are to be filled. */
#define NETWORK_ROW 128

/* A size that the compiler knows makes memcpy a plain load and store. */
static inline void move_each(const mf__tile *given, size_t size) {
  const mf__tile t = *given; /* what is written may not change it */
  for (int64_t i = 0; i < t.rows; i++) {
    char *dst = t.dst + i * t.dst_row;
    const char *src = t.src + i * t.src_row;
    MF__UNROLL_FEW for (int64_t j = 0; j < t.columns; j++)
      memcpy(dst + j * t.dst_column, src + j * t.src_column, size);
  }
}

static void move_elements(const mf__tile *t) {
  switch (t->size) {
    case 1: move_each(t, 1); break;
    case 2: move_each(t, 2); break;
    case 3: move_each(t, 3); break;
    case 4: move_each(t, 4); break;
    case 6: move_each(t, 6); break;
    case 8: move_each(t, 8); break;
    case 12: move_each(t, 12); break;
    case 16: move_each(t, 16); break;
    default: move_each(t, (size_t)t->size);
  }
}

/* The loop inside is the long one. Where rows are short, it goes over as many as stay in the cache until the last
 * column. */
void mf__move_plain(const mf__tile *t) {
  enum { CACHED = 16 << 10, SHORT = 16 };
  if (t->columns >= t->rows || t->columns >= SHORT) {
    move_elements(t);
    return;
  }
  const int64_t far = t->src_row < 0 ? -t->src_row : t->src_row, most = far < CACHED / 64 ? CACHED / (far + 1) : 64;
  for (int64_t row = 0; row < t->rows; row += most) {
    const int64_t rows = t->rows - row < most ? t->rows - row : most;
    const mf__tile part = {t->dst + row * t->dst_row, t->src + row * t->src_row, t->size, t->columns, rows,
                           t->dst_column, t->dst_row, t->src_column, t->src_row};
    move_elements(&part);
  }
}

static void move_plain(const mf__mover *m, const mf__tile *t) {
  (void)m;
  mf__move_plain(t);
}

/* Rows of ${half} bytes to twice as many: the two ends of each, which may overlap. */
static inline void move_ends(const mf__tile *t, size_t half, int64_t ahead) {
  const int64_t behind = t->columns * t->size - (int64_t)half;
  for (int64_t i = 0; i < t->rows; i++) {
    char *dst = t->dst + i * t->dst_row;
    const char *src = t->src + i * t->src_row;
    mf__prefetch(src, ahead);
    memcpy(dst, src, half);
    memcpy(dst + behind, src + behind, half);
  }
}

/* Columns are compact on both sides. Where rows are short, a processor does not foresee where the next ones lie: those
 * that are a kilobyte of rows ahead are prefetched. */
static void move_rows(const mf__mover *m, const mf__tile *t) {
  const int64_t width = t->columns * t->size, ahead = 1024 / width * t->src_row;
  (void)m;
  if (width >= 8 && width <= 16) {
    move_ends(t, 8, ahead);
  } else if (width > 16 && width <= 32) {
    move_ends(t, 16, ahead);
  } else if (width > 32 && width <= 64) {
    move_ends(t, 32, ahead);
  } else {
    for (int64_t i = 0; i < t->rows; i++) {
      for (int64_t k = 0; ahead != 0 && k < width; k += 64) mf__prefetch(t->src, i * t->src_row + ahead + k);
      memcpy(t->dst + i * t->dst_row, t->src + i * t->src_row, (size_t)width);
    }
  }
}

/* Doubles what is written so far, so that even one byte repeats at the speed of memcpy. */
void mf__repeat_row(char *dst, const char *src, int64_t size, int64_t n) {
  const int64_t total = size * n;
  /* A chunk that stays in the cache is read again faster than one that does not. */
  const int64_t most = size < 32768 ? 32768 / size * size : size;
  int64_t done = size;
  memcpy(dst, src, (size_t)size);
  while (done < total) {
    int64_t chunk = done < most ? done : most;
    if (chunk > total - done) chunk = total - done;
    memcpy(dst + done, dst, (size_t)chunk);
    done += chunk;
  }
}

static void move_repeated(const mf__mover *m, const mf__tile *t) {
  (void)m;
  for (int64_t i = 0; i < t->rows; i++)
    mf__repeat_row(t->dst + i * t->dst_row, t->src + i * t->src_row, t->size, t->columns);
}

static void move_transposed(const mf__mover *m, const mf__tile *t) {
  if (t->rows * t->size < 16 || t->columns * t->size < 16)
    mf__move_plain(t);
  else
    m->simd->transpose[__builtin_ctz((unsigned)t->size)](t);
}

/* ${n} columns from ${first} on. */
static mf__tile columns_of(const mf__tile *t, int64_t first, int64_t n) {
  mf__tile part = *t;
  part.dst += first * t->dst_column;
  part.src += first * t->src_column;
  part.columns = n;
  return part;
}

/* The columns from ${done} on, of which no kernel takes care. */
static void move_rest(const mf__tile *t, int64_t done) {
  const mf__tile rest = columns_of(t, done, t->columns - done);
  if (rest.columns > 0) mf__move_plain(&rest);
}

/* Too few rows to fill a vector: each column is read as if it had 16 bytes. The bytes behind it belong to the next
 * columns, except at one end of the tile, where a few columns are moved element by element. They become rows of the
 * buffer that are not copied to the destination. */
#define NARROW_STEP 64
#define NARROW_WIDTH 256

static void move_narrow_columns(const mf__mover *m, const mf__tile *t) {
  _Alignas(64) char buffer[16 * NARROW_WIDTH];
  mf__tile tall = *t;
  tall.dst = buffer;
  tall.dst_row = NARROW_WIDTH;
  tall.rows = 16 / t->size;
  m->simd->transpose[__builtin_ctz((unsigned)t->size)](&tall);
  for (int64_t i = 0; i < t->rows; i++)
    memcpy(t->dst + i * t->dst_row, buffer + i * NARROW_WIDTH, (size_t)(t->columns * t->size));
}

static void move_narrow(const mf__mover *m, const mf__tile *t) {
  const int64_t size = t->size, step = t->src_column < 0 ? -t->src_column : t->src_column;
  const int64_t beyond = (16 - t->rows * size + step - 1) / step, begin = t->src_column < 0 ? beyond : 0;
  const int64_t end = t->src_column < 0 ? t->columns : t->columns - beyond, least = 16 / size;
  int64_t done = begin;
  if (end - begin < least) {
    mf__move_plain(t);
    return;
  }
  const mf__tile before = columns_of(t, 0, begin);
  if (begin > 0) mf__move_plain(&before);
  for (; done + least <= end; done += NARROW_WIDTH / size) {
    const int64_t left = end - done, n = left < NARROW_WIDTH / size ? left : NARROW_WIDTH / size;
    const mf__tile part = columns_of(t, done, n);
    move_narrow_columns(m, &part);
  }
  move_rest(t, done < end ? done : end);
}

/* Byte ${out} of what a group becomes is byte ${in} of it. */
static void connect(mf__network *n, int64_t out, int64_t in) {
  n->mask[out / 16][in / 16][out % 16] = (unsigned char)(in % 16);
}

static void network_begin(mf__network *n, int64_t inputs, int64_t outputs) {
  n->inputs = (int)inputs;
  n->outputs = (int)outputs;
  memset(n->mask, 0x80, sizeof n->mask);
}

/* Pixels of n->inputs elements, side by side, of which the first n->outputs become a row each. */
static void connect_planes(mf__network *n, int64_t size, int64_t width, int64_t planes) {
  network_begin(n, width, planes);
  for (int64_t plane = 0; plane < planes; plane++)
    for (int64_t b = 0; b < 16; b++)
      connect(n, plane * 16 + b, (b / size * width + plane) * size + b % size);
}

static void move_planes(const mf__mover *m, const mf__tile *t) {
  const int64_t pixels = 16 / t->size;
  const bool whole = t->rows == m->network.inputs;
  /* The last pixel may end where the memory does, before the elements that are not wanted. */
  const mf__groups g = {t->dst, t->src, (whole ? t->columns : t->columns - 1) / pixels, t->dst_row, 16,
                        16, t->src_column * pixels};
  m->simd->network(&m->network, &g);
  move_rest(t, g.count * pixels);
}

/* Rows of their own, each from every ${inputs}-th element; the last may end where the memory does, as above. */
static void move_every(const mf__mover *m, const mf__tile *t) {
  const int64_t pixels = 16 / t->size;
  mf__groups g = {.count = (t->columns - 1) / pixels, .dst_vector = 16, .dst_group = 16,
                  .src_vector = 16, .src_group = t->src_column * pixels};
  for (int64_t i = 0; i < t->rows; i++) {
    g.dst = t->dst + i * t->dst_row;
    g.src = t->src + i * t->src_row;
    m->simd->network(&m->network, &g);
  }
  move_rest(t, g.count * pixels);
}

/* The other way: rows of the tile are pixels, side by side in the destination; each column is a plane of the source. */
static void connect_pixels(mf__network *n, int64_t size, int64_t width) {
  network_begin(n, width, width);
  for (int64_t b = 0; b < 16 * width; b++) {
    const int64_t element = b / size;
    connect(n, b, element % width * 16 + element / width * size + b % size);
  }
}

static void move_pixels(const mf__mover *m, const mf__tile *t) {
  const int64_t pixels = 16 / t->size, width = t->columns * t->size;
  const mf__groups g = {t->dst, t->src, t->rows / pixels, 16, width * pixels, t->src_column, 16};
  mf__tile rest = *t;
  m->simd->network(&m->network, &g);
  rest.dst += g.count * pixels * t->dst_row;
  rest.src += g.count * pixels * t->src_row;
  rest.rows -= g.count * pixels;
  if (rest.rows > 0) mf__move_plain(&rest);
}

/* Elements of each pixel backwards: RGB to BGR. */
static void connect_swapped(mf__network *n, int64_t size, int64_t width) {
  network_begin(n, width, width);
  for (int64_t b = 0; b < 16 * width; b++) {
    const int64_t element = b / size, first = element / width * width;
    connect(n, b, (2 * first + width - 1 - element) * size + b % size);
  }
}

/* The tile's element 0 is the last of the first pixel. */
static void move_swapped(const mf__mover *m, const mf__tile *t) {
  const int64_t pixels = 16 / t->size, group = t->dst_row * pixels, behind = (t->columns - 1) * t->size;
  const mf__groups g = {t->dst, t->src - behind, t->rows / pixels, 16, group, 16, group};
  mf__tile rest = *t;
  m->simd->network(&m->network, &g);
  rest.dst += g.count * group;
  rest.src += g.count * group;
  rest.rows -= g.count * pixels;
  if (rest.rows > 0) mf__move_plain(&rest);
}

/* A row backwards: a group's elements, and the groups themselves, in the other order. */
static void connect_reversed(mf__network *n, int64_t size) {
  const int64_t vectors = size % 3 == 0 ? 3 : 1;
  network_begin(n, vectors, vectors);
  for (int64_t b = 0; b < 16 * vectors; b++) connect(n, b, (16 * vectors / size - 1 - b / size) * size + b % size);
}

static void move_reversed(const mf__mover *m, const mf__tile *t) {
  const int64_t group = m->network.inputs * 16;
  mf__groups g = {.count = t->columns * t->size / group, .dst_vector = 16, .dst_group = group,
                  .src_vector = 16, .src_group = -group};
  for (int64_t i = 0; i < t->rows; i++) {
    g.dst = t->dst + i * t->dst_row;
    g.src = t->src + i * t->src_row + t->size - group; /* the element at src is the last of its group */
    m->simd->network(&m->network, &g);
  }
  move_rest(t, g.count * group / t->size);
}

static bool is_power(int64_t size, int64_t most) {
  return size <= most && (size & (size - 1)) == 0;
}

/* Pixels whose elements become rows: all of them, or three of four. */
static bool is_of_planes(const mf__tile *t) {
  const int64_t width = t->src_column / t->size;
  const bool fits = width == t->rows || (width == 4 && t->rows == 3);
  return fits && width >= 2 && width <= 4 && t->src_column % t->size == 0 && t->columns * t->size >= NETWORK_ROW;
}

static bool is_of_pixels(const mf__tile *t) {
  return t->columns >= 2 && t->columns <= 4 && t->dst_row == t->columns * t->size && t->rows * t->size >= NETWORK_ROW;
}

static bool is_narrow(const mf__tile *t) {
  const bool close = t->src_column >= -NARROW_STEP && t->src_column <= NARROW_STEP;
  return is_power(t->size, 4) && t->rows > 3 && t->rows * t->size < 16 && close && t->columns * t->size >= NETWORK_ROW;
}

/* Where columns are compact in the destination, and rows in the source. */
static void find_transposing(mf__mover *m, const mf__tile *t, bool permutes) {
  const int64_t size = t->size;
  const bool small = permutes && is_power(size, 8);
  if (small && is_of_planes(t)) {
    connect_planes(&m->network, size, t->src_column / size, t->rows);
    m->move = move_planes;
  } else if (small && is_of_pixels(t)) {
    connect_pixels(&m->network, size, t->columns);
    m->move = move_pixels;
  } else if (is_narrow(t)) {
    m->move = move_narrow;
  } else if (is_power(size, 16)) {
    m->move = move_transposed;
  }
}

static bool is_swapped(const mf__tile *t) {
  const bool pixels = t->dst_row == t->columns * t->size && t->src_row == t->dst_row;
  return pixels && is_power(t->size, 8) && t->columns >= 2 && t->columns <= 4;
}

/* Where bytes can be permuted, and columns are the closest axis on both sides. Short rows are as fast one by one; so
 * are elements that lie more than 8 bytes apart, unless they come from memory, which a network asks for ahead. */
static void find_permuting(mf__mover *m, const mf__tile *t, bool is_large) {
  const int64_t size = t->size, step = t->src_column;
  if (step == -size && is_swapped(t)) {
    connect_swapped(&m->network, size, t->columns);
    m->move = move_swapped;
  } else if (t->columns <= 16) {
    return;
  } else if (step == -size && (is_power(size, 16) || size == 3 || size == 6 || size == 12)) {
    connect_reversed(&m->network, size);
    m->move = move_reversed;
  } else if (is_power(size, 8) && (step == 2 * size || step == 3 * size || step == 4 * size) &&
             (step <= 8 || is_large)) {
    connect_planes(&m->network, size, step / size, 1);
    m->move = move_every;
  }
}

void mf__mover_find(mf__mover *m, const mf__simd *simd, const mf__tile *like, int64_t nbytes) {
  const bool crossed = like->src_row == like->size && like->src_column != like->size && like->src_column != 0;
  const bool permutes = simd->network != NULL && nbytes >= NETWORK_FROM;
  m->simd = simd;
  m->move = move_plain;
  if (like->dst_column != like->size) return;
  if (crossed) {
    find_transposing(m, like, permutes);
  } else if (like->src_column == like->size) {
    m->move = move_rows;
  } else if (like->src_column == 0) {
    m->move = move_repeated;
  } else if (permutes) {
    find_permuting(m, like, nbytes >= MF__LARGE);
  }
}
