/* kernels.h: what the specs of either driver's kernels copy, and what must come out. spec.h comes first. */
#ifndef GPU_KERNELS_H
#define GPU_KERNELS_H

enum { NBYTES = 64 * 1024 };

/* The strides are in elements; the job begins dst_at and src_at elements into its memory. */
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

/* Element i of the index space, as the kernel should see it. */
static void want_kernel(const mf__kernel_copy *k, char *dst, const char *src) {
  for (int64_t i = 0; i < k->numel; i++) {
    int64_t left = i, to = 0, from = 0;
    for (int32_t axis = k->ndim - 1; axis >= 0; axis--) {
      to += left % k->shape[axis] * k->dst_strides[axis];
      from += left % k->shape[axis] * k->src_strides[axis];
      left /= k->shape[axis];
    }
    memcpy(dst + to, src + from, (size_t)k->size);
  }
}

static char *pinned(void) {
  void *p = NULL;
  OK(gpu->memory_alloc(MF__PINNED, NBYTES, MF_STREAM_DEFAULT, &p, &err));
  return p;
}

/* numel 0: all of the index space. */
static int run_kernel(const job *j, int32_t size, int64_t numel) {
  char want[NBYTES];
  char *dst = pinned(), *src = pinned();
  mf__kernel_copy k = j->copy;
  for (int i = 0; i < NBYTES; i++) src[i] = (char)(i * 7 + i / 64);
  memset(dst, 9, NBYTES);
  memset(want, 9, NBYTES);
  k.size = size;
  k.numel = 1;
  for (int32_t i = 0; i < k.ndim; i++) {
    k.numel *= k.shape[i];
    k.dst_strides[i] *= size;
    k.src_strides[i] *= size;
  }
  if (numel != 0) k.numel = numel;
  k.dst = dst + j->dst_at * size;
  k.src = src + j->src_at * size;
  want_kernel(&k, want + j->dst_at * size, src + j->src_at * size);
  const int rc = gpu->kernel_copy(&k, MF_STREAM_DEFAULT, &err);
  const mf_error said = err;
  if (rc == MF_OK) {
    OK(gpu->stream_synchronize(MF_STREAM_DEFAULT, &err));
    assert_memory_equal(dst, want, NBYTES);
  }
  OK(gpu->memory_free(MF__PINNED, dst, MF_STREAM_DEFAULT, &err));
  OK(gpu->memory_free(MF__PINNED, src, MF_STREAM_DEFAULT, &err));
  err = said;
  return rc;
}

static void each_size(int64_t numel, const job *some, size_t n) {
  for (int32_t size = 1; size <= 16; size *= 2)
    for (size_t i = 0; i < n; i++) OK(run_kernel(&some[i], size, numel));
}

/* Axes that swap: tiles of 32 by 32, whole and cut, with axes behind them, backwards, and from every n-th place. */
enum { NSMALL = 8, NWORDS = 3 }; /* the last ones are for small elements, of which the first go by words */
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
    /* Squares of small elements: whole tiles, cut ones, with an axis behind them, from farther rows. */
    {{.ndim = 2, .shape = {128, 128}, .dst_strides = {128, 1}, .src_strides = {1, 128}}, 0, 0},
    {{.ndim = 2, .shape = {140, 68}, .dst_strides = {68, 1}, .src_strides = {1, 140}}, 4, 8},
    {{.ndim = 3, .shape = {2, 16, 20}, .dst_strides = {400, 24, 1}, .src_strides = {-320, 1, 16}}, 0, 320},
    /* No squares: rows that begin between words, on either side, and an extent that no word divides. */
    {{.ndim = 2, .shape = {16, 20}, .dst_strides = {21, 1}, .src_strides = {1, 16}}, 0, 0},
    {{.ndim = 2, .shape = {16, 20}, .dst_strides = {20, 1}, .src_strides = {1, 17}}, 0, 0},
    {{.ndim = 2, .shape = {16, 20}, .dst_strides = {20, 1}, .src_strides = {1, 16}}, 1, 0},
    {{.ndim = 2, .shape = {17, 20}, .dst_strides = {20, 1}, .src_strides = {1, 20}}, 0, 0},
    {{.ndim = 2, .shape = {20, 17}, .dst_strides = {20, 1}, .src_strides = {1, 20}}, 0, 0},
};

/* More elements than a few blocks take at once, and more tiles than there are few blocks. */
static inline void each_in_rounds(void) {
  const job many = {{.ndim = 1, .shape = {1500}, .dst_strides = {2}, .src_strides = {1}}, 1, 2};
  each_size(0, &many, 1);
  for (int32_t size = 1; size <= 2; size *= 2)
    for (size_t i = 0; i < COUNT(transposes); i++) OK(run_kernel(&transposes[i], size, 0));
}

/* The first elements of more than 2^32 along an axis, of which the index needs 64 bits; the last has axes that swap,
 * and more tiles than are counted. */
enum { NFIRST = 40 };
#define MANY (INT64_C(1) << 33)
static const job long_axes[] __attribute__((unused)) = {
    {{.ndim = 2, .shape = {2, MANY}, .dst_strides = {200, 1}, .src_strides = {0, 2}}, 0, 0},
    {{.ndim = 3, .shape = {2, MANY, 4}, .dst_strides = {240, 5, 1}, .src_strides = {1, 8, 2}}, 0, 0},
    {{.ndim = 2, .shape = {16, MANY}, .dst_strides = {200, 1}, .src_strides = {1, 16}}, 0, 0},
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
