/* kernels.h: what the specs of either driver's kernels copy, and what must come out. spec.h comes first. */
#ifndef GPU_KERNELS_H
#define GPU_KERNELS_H

/* The strides are in elements; the job begins dst_at and src_at elements behind a multiple of 16 bytes. */
typedef struct job {
  mf__kernel_copy copy;
  int64_t dst_at, src_at;
} job;

static const job jobs[] = {
    {{.ndim = 2, .shape = {7, 5}, .dst_strides = {5, 1}, .src_strides = {1, 7}}, 1, 2},
    {{.ndim = 3, .shape = {3, 4, 5}, .dst_strides = {1, 3, 12}, .src_strides = {-20, 5, -1}}, 0, 44},
    {{.ndim = 1, .shape = {40}, .dst_strides = {3}, .src_strides = {0}}, 2, 3},
    {{.ndim = 0}, 2, 3},
    {{.ndim = 8,
      .shape = {2, 1, 2, 1, 3, 2, 2, 2},
      .dst_strides = {96, 9, 48, 9, 16, 8, 4, 2},
      .src_strides = {1, 2, 2, 8, 4, 12, 24, 48}},
     0,
     0},
};

/* Where element i of the index space lies on either side, in bytes. */
static void places_of(const mf__kernel_copy *k, int64_t i, int64_t *to, int64_t *from) {
  *to = *from = 0;
  for (int32_t axis = k->ndim - 1; axis >= 0; axis--) {
    *to += i % k->shape[axis] * k->dst_strides[axis];
    *from += i % k->shape[axis] * k->src_strides[axis];
    i /= k->shape[axis];
  }
}

/* One side's memory, which ends with the last element, so that the simulator sees whoever reads or writes behind it. */
typedef struct side {
  int64_t low, high; /* of all elements, from where the job begins */
  int64_t lead;      /* bytes before the lowest, fewer than 16 */
  size_t nbytes;
  char *memory;
} side;

static void widen(side *s, int64_t at, int64_t size) {
  if (at < s->low) s->low = at;
  if (at + size > s->high) s->high = at + size;
}

/* The job begins ${at} bytes behind a multiple of 16. */
static void make_side(side *s, int64_t at) {
  void *p = NULL;
  s->lead = ((at + s->low) % 16 + 16) % 16;
  const int64_t nbytes = s->lead + s->high - s->low;
  OK(gpu->memory_alloc(MF__PINNED, nbytes, MF_STREAM_DEFAULT, &p, &err));
  s->nbytes = (size_t)nbytes;
  s->memory = p;
}

static char *begin_of(const side *s, char *memory) {
  return memory + s->lead - s->low;
}

static void make_sides(mf__kernel_copy *k, const job *j, side *dst, side *src) {
  int64_t to, from;
  for (int64_t i = 0; i < k->numel; i++) {
    places_of(k, i, &to, &from);
    widen(dst, to, k->size);
    widen(src, from, k->size);
  }
  make_side(dst, j->dst_at * k->size);
  make_side(src, j->src_at * k->size);
  for (size_t i = 0; i < src->nbytes; i++) src->memory[i] = (char)(i * 7 + i / 64);
  memset(dst->memory, 9, dst->nbytes);
  k->dst = begin_of(dst, dst->memory);
  k->src = begin_of(src, src->memory);
}

/* What the kernel should make of the destination's memory. */
static char *wanted(const mf__kernel_copy *k, const side *dst) {
  char *want = malloc(dst->nbytes);
  int64_t to, from;
  assert_non_null(want);
  memset(want, 9, dst->nbytes);
  for (int64_t i = 0; i < k->numel; i++) {
    places_of(k, i, &to, &from);
    memcpy(begin_of(dst, want) + to, (const char *)k->src + from, (size_t)k->size);
  }
  return want;
}

/* numel 0: all of the index space. */
static int run_kernel(const job *j, int32_t size, int64_t numel) {
  mf__kernel_copy k = j->copy;
  side dst = {.low = INT64_MAX, .high = INT64_MIN}, src = dst;
  k.size = size;
  k.numel = 1;
  for (int32_t i = 0; i < k.ndim; i++) {
    k.numel *= k.shape[i];
    k.dst_strides[i] *= size;
    k.src_strides[i] *= size;
  }
  if (numel != 0) k.numel = numel;
  make_sides(&k, j, &dst, &src);
  const int rc = gpu->kernel_copy(&k, MF_STREAM_DEFAULT, &err);
  const mf_error said = err;
  if (rc == MF_OK) {
    char *want = wanted(&k, &dst);
    OK(gpu->stream_synchronize(MF_STREAM_DEFAULT, &err));
    assert_memory_equal(dst.memory, want, dst.nbytes);
    free(want);
  }
  OK(gpu->memory_free(MF__PINNED, dst.memory, MF_STREAM_DEFAULT, &err));
  OK(gpu->memory_free(MF__PINNED, src.memory, MF_STREAM_DEFAULT, &err));
  err = said;
  return rc;
}

static void each_size(int64_t numel, const job *some, size_t n) {
  for (int32_t size = 1; size <= 16; size *= 2)
    for (size_t i = 0; i < n; i++) OK(run_kernel(&some[i], size, numel));
}

/* Axes that swap: tiles of 32 by 32, whole and cut, with axes behind them, backwards, and from every n-th place. */
enum { NSMALL = 10, NWORDS = 5 }; /* the last ones are for small elements, of which the first go by words */
static const job transposes[] __attribute__((unused)) = {
    {{.ndim = 2, .shape = {32, 32}, .dst_strides = {32, 1}, .src_strides = {1, 32}}, 0, 0},
    {{.ndim = 2, .shape = {37, 70}, .dst_strides = {70, 1}, .src_strides = {1, 37}}, 1, 2},
    {{.ndim = 3, .shape = {2, 33, 41}, .dst_strides = {41 * 33, 41, 1}, .src_strides = {41 * 33, 1, 33}}, 0, 0},
    {{.ndim = 3, .shape = {40, 2, 17}, .dst_strides = {34, 17, 1}, .src_strides = {1, 700, -41}}, 0, 700},
    {{.ndim = 2, .shape = {17, 16}, .dst_strides = {17, 1}, .src_strides = {-2, 36}}, 0, 40},
    {{.ndim = 5,
      .shape = {2, 16, 3, 1, 18},
      .dst_strides = {864, 54, 18, 18, 1},
      .src_strides = {1, 4, 64, 7, 192}},
     0,
     0},
    /* Whole tiles, with an axis behind them. */
    {{.ndim = 3, .shape = {3, 64, 32}, .dst_strides = {2048, 32, 1}, .src_strides = {2048, 1, 64}}, 0, 0},
    /* Two axes behind them whose extents have a common factor. With 2 and 3, wrong indices make each pair, too. */
    {{.ndim = 4, .shape = {4, 2, 17, 18}, .dst_strides = {650, 320, 18, 1}, .src_strides = {306, 1230, 1, 17}}, 0, 0},
    /* Squares of small elements: whole tiles, cut ones, with an axis behind them, from farther rows, backwards. */
    {{.ndim = 2, .shape = {128, 128}, .dst_strides = {128, 1}, .src_strides = {1, 128}}, 0, 0},
    {{.ndim = 2, .shape = {140, 68}, .dst_strides = {68, 1}, .src_strides = {1, 140}}, 4, 8},
    {{.ndim = 3, .shape = {2, 16, 20}, .dst_strides = {400, 24, 1}, .src_strides = {-320, 1, 16}}, 0, 320},
    {{.ndim = 2, .shape = {36, 40}, .dst_strides = {40, 1}, .src_strides = {1, -36}}, 0, 1404},
    {{.ndim = 2, .shape = {36, 40}, .dst_strides = {-40, 1}, .src_strides = {1, 36}}, 1400, 0},
    /* No squares: rows that begin between words, on either side, and an extent that no word divides. */
    {{.ndim = 2, .shape = {16, 20}, .dst_strides = {21, 1}, .src_strides = {1, 16}}, 0, 0},
    {{.ndim = 2, .shape = {16, 20}, .dst_strides = {20, 1}, .src_strides = {1, 17}}, 0, 0},
    {{.ndim = 2, .shape = {16, 20}, .dst_strides = {20, 1}, .src_strides = {1, 16}}, 1, 0},
    {{.ndim = 2, .shape = {17, 20}, .dst_strides = {20, 1}, .src_strides = {1, 20}}, 0, 0},
    {{.ndim = 2, .shape = {20, 17}, .dst_strides = {20, 1}, .src_strides = {1, 20}}, 0, 0},
};

/* More elements, and more tiles, than a few blocks take at once. */
static inline void each_in_rounds(void) {
  const job many = {{.ndim = 1, .shape = {1500}, .dst_strides = {2}, .src_strides = {1}}, 1, 2};
  each_size(0, &many, 1);
  for (int32_t size = 1; size <= 2; size *= 2)
    for (size_t i = 0; i < COUNT(transposes); i++) OK(run_kernel(&transposes[i], size, 0));
}

/* The first of 2^32 elements along an axis, which no number of 32 bits counts; the last has axes that swap, and more
 * tiles than are counted, of words of four elements, too. */
enum { NFIRST = 40 };
#define MANY (INT64_C(1) << 32)
static const job long_axes[] __attribute__((unused)) = {
    {{.ndim = 2, .shape = {2, MANY}, .dst_strides = {200, 1}, .src_strides = {0, 2}}, 0, 0},
    {{.ndim = 3, .shape = {2, MANY, 4}, .dst_strides = {240, 5, 1}, .src_strides = {1, 8, 2}}, 0, 0},
    {{.ndim = 2, .shape = {16, 2 * MANY}, .dst_strides = {200, 1}, .src_strides = {1, 16}}, 0, 0},
};

static const DLDataType all_numbers[] = {
    {kDLBool, 8, 1},           {kDLInt, 8, 1},          {kDLInt, 16, 1},         {kDLInt, 32, 1},
    {kDLInt, 64, 1},           {kDLUInt, 8, 1},         {kDLUInt, 16, 1},        {kDLUInt, 32, 1},
    {kDLUInt, 64, 1},          {kDLFloat, 16, 1},       {kDLBfloat, 16, 1},      {kDLFloat, 32, 1},
    {kDLFloat, 64, 1},         {kDLFloat8_e3m4, 8, 1},  {kDLFloat8_e4m3, 8, 1},  {kDLFloat8_e4m3b11fnuz, 8, 1},
    {kDLFloat8_e4m3fn, 8, 1},  {kDLFloat8_e4m3fnuz, 8, 1}, {kDLFloat8_e5m2, 8, 1}, {kDLFloat8_e5m2fnuz, 8, 1}};

static mf__codec codec_of(size_t which) {
  mf__codec c;
  OK(mf__codec_find(&all_numbers[which], 0, &c, &err));
  return c;
}

#endif
