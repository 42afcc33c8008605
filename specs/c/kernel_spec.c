/* kernel_spec.c: the kernels of every instruction set that this machine has, against the plain walk: random layouts of
 * all element sizes and number types, small and large, at the edges of memory that may be touched. What either leaves
 * in the destination's memory must be the same to the last bit, gaps included.
 *
 * MOONFERRY_SPEC_ROUNDS sets how many random layouts; `make test` takes some thousands.
 */
#include "sets.h"

/* A random layout for a shape: permuted, reversed and spread axes; now and then one that repeats an axis.
 * Gives how many elements it reaches below and above element 0. */
static void draw_strides(const DLTensor *view, bool repeats, int64_t *lo, int64_t *hi) {
  bool taken[MF_MAX_NDIM] = {false};
  int64_t step = spec_random() % 4 == 0 ? spec_between(2, 5) : 1;
  *lo = *hi = 0;
  for (int32_t n = 0; n < view->ndim; n++) {
    int32_t axis = view->ndim - 1 - n;
    if (spec_random() % 2) axis = (int32_t)spec_between(0, view->ndim - 1);
    while (taken[axis]) axis = (axis + view->ndim - 1) % view->ndim;
    taken[axis] = true;
    const bool back = spec_random() % 5 == 0, repeated = repeats && spec_random() % 8 == 0;
    view->strides[axis] = repeated ? 0 : back ? -step : step;
    if (repeated) continue;
    *(back ? lo : hi) += (view->shape[axis] - 1) * step;
    step *= view->shape[axis];
    if (spec_random() % 6 == 0) step += spec_between(1, 9);
  }
}

/* At one of the ends of the region, or anywhere. */
static unsigned char *place(spec_region r, int64_t size, int64_t lo, int64_t hi) {
  const int64_t nbytes = (lo + hi + 1) * size, room = (int64_t)r.nbytes - nbytes;
  assert_true(room >= 0);
  const int64_t at = spec_random() % 3 == 0 ? 0 : spec_random() % 2 ? room : spec_between(0, room);
  return r.start + at + lo * size;
}

static const char *const dtypes[] = {"uint8",     "int16",     "float32", "float64",  "complex128", "uint8x3",
                                     "uint16x3",  "uint32x3",  "uint8x5", "float64x4", "uint8x31",  "bfloat16"};

/* Extents around the widths of vectors, few elements in all, or some millions of bytes. */
static void draw_shape(DLTensor *view, int64_t most) {
  static const int64_t extents[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 128, 255, 1000};
  int64_t numel = 1;
  view->ndim = (int32_t)spec_between(1, spec_random() % 4 == 0 ? 8 : 4);
  for (int32_t i = 0; i < view->ndim; i++) {
    int64_t extent = extents[spec_random() % COUNT(extents)];
    if (numel * extent > most) extent = spec_between(1, most / numel < 4 ? most / numel : 4);
    view->shape[i] = extent;
    numel *= extent;
  }
}

/* Those that are converted to each other, and one that has no loops. */
static const char *const numbers[] = {
    "bool",          "int8",          "int16",       "int32",           "int64",         "uint8",
    "uint16",        "uint32",        "uint64",      "float16",         "bfloat16",      "float32",
    "float64",       "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e3m4",
    "float8_e4m3b11fnuz", "float8_e4m3", "float8_e8m0fnu",
};

/* The tensor over that memory: dst[0] is filled by the plain walk, dst[1] by the kernels. */
typedef struct trial {
  DLTensor view;
  DLDataType to; /* of the destination */
  int64_t shape[MF_MAX_NDIM], dst_strides[MF_MAX_NDIM], src_strides[MF_MAX_NDIM];
  spec_region dst[2], src;
} trial;

static mf_tensor *wrapped(const trial *t, unsigned char *data, DLDataType dtype, const int64_t *strides) {
  DLTensor view = t->view;
  view.dtype = dtype;
  mf_tensor *out;
  view.data = data;
  view.strides = (int64_t *)strides;
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &out, &spec_err));
  return out;
}

static void compare(trial *t, const char *set, unsigned char *src_data) {
  int64_t lo, hi;
  const int64_t size = mf_dtype_bits(&t->to, 0) / 8;
  DLTensor view = t->view;
  view.strides = t->dst_strides;
  draw_strides(&view, false, &lo, &hi);
  const int64_t at = place(t->dst[0], size, lo, hi) - t->dst[0].start;
  mf_tensor *src = wrapped(t, src_data, t->view.dtype, t->src_strides);
  for (int i = 0; i < 2; i++) {
    mf_tensor *dst = wrapped(t, t->dst[i].start + at, t->to, t->dst_strides);
    OK(mf_simd_set(i == 0 ? "plain" : set, &spec_err));
    OK(mf_threads_set((int32_t)spec_between(1, 4), &spec_err));
    OK(mf_tensor_astype(dst, src, &spec_err));
    mf_tensor_release(dst);
  }
  if (memcmp(t->dst[0].start, t->dst[1].start, t->dst[0].nbytes) != 0) {
    for (int32_t i = 0; i < t->view.ndim; i++)
      print_error("shape %lld, strides %lld <- %lld\n", (long long)t->shape[i], (long long)t->dst_strides[i],
                  (long long)t->src_strides[i]);
    fail_msg("the kernels of %s and the plain walk differ, from dtype %d of %d bits to %d of %d", set,
             t->view.dtype.code, t->view.dtype.bits, t->to.code, t->to.bits);
  }
  mf_tensor_release(src);
}

/* In a kilobyte all integers of 64 bits, and so every second one of 32, have about as many bits: kernels take blocks
 * of small integers another way. */
static void draw_magnitudes(int64_t *integers, size_t n) {
  int shift = 0;
  for (size_t i = 0; i < n; i++) {
    if (i % 128 == 0) shift = (int)spec_between(0, 48);
    integers[i] >>= shift;
  }
}

static void trials(const char *set, int n, int64_t most, bool casts) {
  const size_t room = (size_t)most * 40;
  trial t = {.dst = {spec_guarded(room), spec_guarded(room)}, .src = spec_guarded(room)};
  spec_random_bytes(t.src.start, t.src.nbytes);
  if (casts) draw_magnitudes((int64_t *)(void *)t.src.start, t.src.nbytes / 8);
  t.view.shape = t.shape;
  for (int round = 0; round < n; round++) {
    int64_t lo, hi;
    t.to = t.view.dtype = spec_dtype(dtypes[spec_random() % COUNT(dtypes)]);
    if (casts) t.view.dtype = spec_dtype(numbers[spec_random() % COUNT(numbers)]);
    if (casts) t.to = spec_dtype(numbers[spec_random() % COUNT(numbers)]);
    const int64_t size = mf_dtype_bits(&t.view.dtype, 0) / 8;
    do {
      draw_shape(&t.view, most / (casts ? 8 : size));
      t.view.strides = t.src_strides;
      draw_strides(&t.view, true, &lo, &hi);
    } while ((lo + hi + 1) * size > (int64_t)t.src.nbytes);
    compare(&t, set, place(t.src, size, lo, hi));
  }
  spec_unguard(t.src);
  spec_unguard(t.dst[0]);
  spec_unguard(t.dst[1]);
}

static void small_layouts(const char *set) {
  trials(set, rounds(3000), 1 << 14, false);
}

static void large_layouts(const char *set) {
  trials(set, rounds(3000) / 150, 3 << 20, false);
}

static void small_casts(const char *set) {
  trials(set, rounds(3000), 1 << 14, true);
}

static void large_casts(const char *set) {
  trials(set, rounds(3000) / 300, 3 << 20, true);
}

static void casts_are_as_codecs_have_them(void **state) {
  (void)state;
  with_each_set(small_casts);
  with_each_set(large_casts);
}

/* Floats around every midpoint of a format, every code of one, and doubles that only just are no float: what random
 * bits seldom are. */
static void edges_of(const char *set) {
  enum { N = 65536 * 4 };
  static uint64_t from[N], to[2][N];
  for (size_t i = 0; i < COUNT(numbers); i++) {
    for (size_t j = 0; j < COUNT(numbers); j++) {
      const DLDataType dtype = spec_dtype(numbers[i]);
      const int64_t n = ROUNDS_OF(4096) + (int64_t)(spec_random() % 64);
      for (int64_t k = 0; k < n; k++) {
        const uint64_t code = spec_random() >> 48, ulps = spec_random() % 5;
        const uint64_t far = (code << 48) >> (spec_random() % 12) << (spec_random() % 12);
        const uint64_t wide = dtype.bits == 64 ? far : code << 16;
        const uint64_t raw = dtype.bits <= 16 ? code : wide + ulps - 2 + (spec_random() % 4 == 0 ? 0x8000u : 0u);
        memcpy((char *)from + k * dtype.bits / 8, &raw, dtype.bits / 8u);
      }
      mf_tensor *src = spec_wrap(from, numbers[i], DIMS(n), NULL);
      for (int side = 0; side < 2; side++) {
        mf_tensor *dst = spec_wrap(to[side], numbers[j], DIMS(n), NULL);
        OK(mf_simd_set(side == 0 ? "plain" : set, &spec_err));
        OK(mf_tensor_astype(dst, src, &spec_err));
        mf_tensor_release(dst);
      }
      mf_tensor_release(src);
      if (memcmp(to[0], to[1], (size_t)n * 8) != 0) fail_msg("%s: %s to %s differs", set, numbers[i], numbers[j]);
    }
  }
}

static void edge_values_are_as_codecs_have_them(void **state) {
  (void)state;
  with_each_set(edges_of);
}

/* One element of many differs, or is a NaN, or a zero of the other sign: equal is what the plain walk says. */
static void comparisons(const char *set) {
  static unsigned char a[8 * 3000], b[8 * 3000];
  for (int round = 0; round < rounds(1500); round++) {
    const char *name = numbers[spec_random() % COUNT(numbers)];
    const DLDataType dtype = spec_dtype(name);
    const int64_t n = spec_between(1, 1400), step = spec_between(1, 2), size = dtype.bits / 8;
    int32_t equal[2];
    for (int64_t k = 0; k < n * step * size; k++) a[k] = (unsigned char)(spec_random() % 0x38);
    memcpy(b, a, sizeof b);
    unsigned char *other = b + spec_between(0, n - 1) * step * size;
    const uint64_t kind = spec_random() % 4;
    if (kind == 0) other[size - 1] ^= 0x80;
    if (kind == 1) memset(other, 0, (size_t)size), memset(a + (other - b), 0, (size_t)size), other[size - 1] = 0x80;
    if (kind == 2) memset(other, 0xff, (size_t)size), memset(a + (other - b), 0xff, (size_t)size);
    mf_tensor *x = spec_wrap(a, name, DIMS(n), &step), *y = spec_wrap(b, name, DIMS(n), &step);
    for (int i = 0; i < 2; i++) {
      OK(mf_simd_set(i == 0 ? "plain" : set, &spec_err));
      OK(mf_tensor_equal(x, y, &equal[i], &spec_err));
    }
    if (equal[0] != equal[1]) fail_msg("%s: equal of %s is %d, not %d", set, name, equal[1], equal[0]);
    mf_tensor_release(x);
    mf_tensor_release(y);
  }
}

static void comparisons_are_as_codecs_have_them(void **state) {
  (void)state;
  with_each_set(comparisons);
}

/* Of random ones and zeros up to a bit; behind it all are zeros, or ones: around every midpoint. */
static uint64_t any_integer(void) {
  const int cut = 63 - (int)(spec_random() % 64);
  return (spec_random() >> cut << cut >> (spec_random() % 64)) + spec_random() % 3 - 1;
}

/* Floats between 2^-170 and 2^70, some of which are no float32, and any bits. */
static double any_float(void) {
  uint64_t bits = any_integer();
  double out;
  if (spec_random() % 2 == 0) bits = (uint64_t)spec_between(853, 1093) << 52 | (bits & 1) << 63 | bits >> 12;
  memcpy(&out, &bits, sizeof out);
  return out;
}

/* Integers of 64 bits and floats: some groups of them small, and some of all magnitudes, so that numbers for which a
 * set has ways of its own stand beside others. */
static void draw_wide(void *to, bool integers, int64_t size, int64_t n) {
  bool small = false;
  for (int64_t k = 0; k < n; k++) {
    if (spec_random() % 8 == 0) small = !small;
    const uint64_t integer = small ? (uint64_t)spec_between(-1000, 1000) : any_integer();
    const double twice = small ? (double)spec_between(-1000, 1000) / 4 : any_float();
    const float once = (float)twice;
    memcpy((char *)to + k * size, integers ? (const void *)&integer : size == 8 ? (const void *)&twice : &once,
           (size_t)size);
  }
}

static void wide_numbers(const char *set) {
  enum { N = 4096 };
  static uint64_t from[N], to[2][N];
  static const char *const names[] = {"int64", "uint64", "int32", "uint32", "float64", "float32"};
  static const char *const others[] = {"float32", "float64", "float16", "bfloat16", "int64", "uint64", "uint32"};
  for (int round = 0; round < rounds(200); round++) {
    const size_t kind = spec_random() % COUNT(names);
    const int64_t n = spec_between(N - 64, N);
    draw_wide(from, kind < 4, spec_dtype(names[kind]).bits / 8, n);
    mf_tensor *src = spec_wrap(from, names[kind], DIMS(n), NULL);
    for (size_t j = 0; j < COUNT(others); j++) {
      for (int side = 0; side < 2; side++) {
        mf_tensor *dst = spec_wrap(to[side], others[j], DIMS(n), NULL);
        OK(mf_simd_set(side == 0 ? "plain" : set, &spec_err));
        OK(mf_tensor_astype(dst, src, &spec_err));
        mf_tensor_release(dst);
      }
      if (memcmp(to[0], to[1], (size_t)n * spec_dtype(others[j]).bits / 8) != 0)
        fail_msg("%s: %s to %s differs", set, names[kind], others[j]);
    }
    mf_tensor_release(src);
  }
}

static void wide_numbers_are_as_codecs_have_them(void **state) {
  (void)state;
  with_each_set(wide_numbers);
}

/* One of them lies the other way around, apart, backwards or repeated, and one element of it may differ. */
static void crossed(const char *set) {
  enum { MOST = 200 };
  static unsigned char a[MOST * 2 * MOST * 16], b[sizeof a];
  for (int round = 0; round < rounds(300); round++) {
    const char *name = numbers[spec_random() % COUNT(numbers)];
    const int64_t size = spec_dtype(name).bits / 8, rows = spec_between(1, MOST), columns = spec_between(1, MOST);
    const int64_t shape[] = {rows, columns}, apart = spec_between(1, 2);
    int64_t along[] = {columns + spec_between(0, 9), 1}, across[] = {apart, rows * apart + spec_between(0, 9)};
    int64_t first = 0;
    int32_t equal[2], again;
    if (spec_random() % 6 == 0) first = (rows - 1) * across[0], across[0] = -across[0];
    if (spec_random() % 6 == 0) along[0] = across[0] = first = 0;
    for (size_t k = 0; k < sizeof a; k++) a[k] = (unsigned char)(k % 7 == 0 ? spec_random() % 0x38 : 0x11);
    mf_tensor *x = spec_wrap(a, name, 2, shape, along), *y = spec_wrap(b + first * size, name, 2, shape, across);
    OK(mf_simd_set("plain", &spec_err));
    OK(mf_tensor_copy(y, x, &spec_err));
    if (spec_random() % 2 == 0) {
      const int64_t at = first + spec_between(0, rows - 1) * across[0] + spec_between(0, columns - 1) * across[1];
      b[at * size + spec_between(0, size - 1)] ^= (unsigned char)(1u << spec_random() % 8);
    }
    for (int i = 0; i < 2; i++) {
      OK(mf_simd_set(i == 0 ? "plain" : set, &spec_err));
      OK(mf_tensor_equal(x, y, &equal[i], &spec_err));
      OK(mf_tensor_equal(y, x, &again, &spec_err));
      assert_int_equal(again, equal[i]);
    }
    if (equal[0] != equal[1]) fail_msg("%s: equal of %s, crossed, is %d, not %d", set, name, equal[1], equal[0]);
    mf_tensor_release(x);
    mf_tensor_release(y);
  }
}

static void crossed_ones_are_compared_as_the_walk_does(void **state) {
  (void)state;
  with_each_set(crossed);
}

static void small_copies_are_as_the_walk_has_them(void **state) {
  (void)state;
  with_each_set(small_layouts);
}

static void large_copies_are_as_the_walk_has_them(void **state) {
  (void)state;
  with_each_set(large_layouts);
}

/* Pictures of 1 to 5 channels to planes and back, whole or a part of the channels, of every small width: the tiles of
 * the kernels that permute bytes, and their edges; and channels the other way around. */
static void pictures(const char *set) {
  static unsigned char from[5 * 300 * 8], to[2][4 * 5 * 300 * 8];
  static const char *const names[] = {"uint8", "uint16", "float32", "float64"};
  spec_random_bytes(from, sizeof from);
  for (int64_t n = 1; n < 150; n += n < 70 ? 1 : 13) {
    for (int64_t channels = 1; channels <= 5; channels++) {
      for (int64_t taken = 1; taken <= channels; taken++) {
        const char *name = names[spec_random() % COUNT(names)];
        mf_tensor *packed = spec_wrap(from, name, DIMS(n, taken), (int64_t[]){channels, 1});
        mf_tensor *planes = spec_wrap(from, name, DIMS(n, taken), (int64_t[]){1, n + 3});
        unsigned char *last = from + (taken - 1) * spec_dtype(name).bits / 8;
        mf_tensor *swapped = spec_wrap(last, name, DIMS(n, taken), (int64_t[]){channels, -1});
        for (int i = 0; i < 2; i++) {
          OK(mf_simd_set(i == 0 ? "plain" : set, &spec_err));
          memset(to[i], 0x55, sizeof to[i]);
          mf_tensor *dst = spec_wrap(to[i], name, DIMS(n, taken), (int64_t[]){1, n});
          OK(mf_tensor_copy(dst, packed, &spec_err));
          mf_tensor_release(dst);
          dst = spec_wrap(to[i] + sizeof to[i] / 2, name, DIMS(n, taken), NULL);
          OK(mf_tensor_copy(dst, planes, &spec_err));
          mf_tensor_release(dst);
          dst = spec_wrap(to[i] + sizeof to[i] / 4, name, DIMS(n, taken), NULL);
          OK(mf_tensor_copy(dst, swapped, &spec_err));
          mf_tensor_release(dst);
        }
        mf_tensor_release(swapped);
        assert_memory_equal(to[0], to[1], sizeof to[0]);
        mf_tensor_release(packed);
        mf_tensor_release(planes);
      }
    }
  }
}

static void pictures_and_planes(void **state) {
  (void)state;
  with_each_set(pictures);
}

/* Layouts of some millions of bytes with short rows, which begin at a line or do not, and all axes the other way
 * around: several planes go at once, on one thread or on several. */
static void reversed(const char *set) {
  static const char *const names[] = {"uint8", "uint16", "float32", "float64", "uint8x3"};
  enum { BYTES = 8 << 20 };
  spec_region from = spec_guarded(BYTES), to[2] = {spec_guarded(BYTES), spec_guarded(BYTES)};
  spec_random_bytes(from.start, BYTES);
  for (size_t i = 0; i < COUNT(names) * 4; i++) {
    const char *name = names[i / 4];
    const int64_t size = spec_dtype(name).bits * spec_dtype(name).lanes / 8;
    const int64_t d = 16 * spec_between(1, 4) / size + 1, a = spec_between(16, 40), b = spec_between(3, 70);
    const int64_t c = (INT64_C(2200) << 10) / (a * b * d * size) + 1, nbytes = a * b * c * d * size;
    const int64_t at = i % 2 == 0 ? 0 : BYTES - nbytes;
    mf_tensor *src = spec_wrap(from.start + at, name, DIMS(a, b, c, d), (int64_t[]){1, a, a * b, a * b * c});
    for (int side = 0; side < 2; side++) {
      OK(mf_simd_set(side == 0 ? "plain" : set, &spec_err));
      OK(mf_threads_set(1 + (int32_t)(i % 3), &spec_err));
      mf_tensor *dst = spec_wrap(to[side].start + BYTES - nbytes - at, name, DIMS(a, b, c, d), NULL);
      OK(mf_tensor_copy(dst, src, &spec_err));
      mf_tensor_release(dst);
    }
    mf_tensor_release(src);
    if (memcmp(to[0].start, to[1].start, BYTES) != 0)
      fail_msg("%s: %s, %d x %d x %d x %d differs", set, name, (int)a, (int)b, (int)c, (int)d);
  }
  spec_unguard(from);
  spec_unguard(to[0]);
  spec_unguard(to[1]);
}

static void reversed_axes(void **state) {
  (void)state;
  with_each_set(reversed);
}

/* So many bytes that they pass the caches, from and to places that are no line's first: one element to many; and casts,
 * which are what their parts are that pass none. */
enum { PASSING = ROUNDS_OF(80 << 20) };

static void passing_fills(const char *set, spec_region to) {
  static const char *const names[] = {"uint8",    "float32",  "complex128", "uint8x3",
                                      "uint32x3", "uint8x31", "uint8x80"};
  for (size_t i = 0; i < COUNT(names); i++) {
    const int64_t size = spec_dtype(names[i]).bits * spec_dtype(names[i]).lanes / 8, rows = spec_between(1, 5);
    const int64_t at = spec_between(0, 65), end = spec_between(0, 65), apart = spec_between(0, 1);
    const int64_t columns = (PASSING / 2 - at - end) / rows / size - apart, step = (columns + apart) * size;
    unsigned char *first = to.start + PASSING / 2 - end - rows * step;
    mf_tensor *dst = spec_wrap(first, names[i], DIMS(rows, columns), (int64_t[]){columns + apart, 1});
    unsigned char source[5 * 80];
    mf_tensor *src = spec_wrap(source, names[i], DIMS(rows, columns), (int64_t[]){1, 0});
    spec_random_bytes(source, sizeof source);
    memset(to.start, 0, PASSING / 2);
    OK(mf_simd_set(set, &spec_err));
    OK(mf_threads_set(1 + (int32_t)(i % 3), &spec_err));
    OK(mf_tensor_copy(dst, src, &spec_err));
    for (int64_t row = 0; row < rows; row++) {
      const unsigned char *line = first + row * step, gap[80] = {0};
      const bool right = memcmp(line, source + row * size, (size_t)size) == 0 &&
                         memcmp(line + size, line, (size_t)(columns * size - size)) == 0 &&
                         memcmp(line + columns * size, gap, (size_t)(apart * size)) == 0;
      if (!right) fail_msg("%s: a row of %s, %d bytes behind a line", set, names[i], (int)((uintptr_t)line % 64));
    }
    for (unsigned char *p = to.start; p < first; p++) assert_int_equal(*p, 0);
    mf_tensor_release(src);
    mf_tensor_release(dst);
  }
}

static void passing_casts(const char *set, spec_region from, spec_region to[2]) {
  static const char *const names[][2] = {{"float32", "uint8"}, {"float64", "float16"}, {"int64", "int32"},
                                         {"float32", "int64"}, {"int16", "uint8"}, {"uint8", "float64"}};
  for (int i = 0; i < 2; i++) {
    const char *const *pair = names[spec_random() % COUNT(names)];
    const int64_t read = spec_dtype(pair[0]).bits / 8, written = spec_dtype(pair[1]).bits / 8;
    const int64_t most = PASSING / (read + written) - 66, offset = spec_between(0, 65), n = most - spec_between(0, 65);
    mf_tensor *src = spec_wrap(from.start + offset, pair[0], DIMS(n), NULL), *dst, *part, *some;
    OK(mf_simd_set(set, &spec_err));
    OK(mf_threads_set(1 + i, &spec_err));
    for (int side = 0; side < 2; side++) {
      memset(to[side].start, 0x55, PASSING);
      dst = spec_wrap(to[side].start + offset, pair[1], DIMS(n), NULL);
      for (int64_t at = 0, step = side == 0 ? n : 100003; at < n; at += step) {
        const mf_index item = {.kind = MF_INDEX_SLICE, .start = at, .stop = at + step, .step = 1};
        OK(mf_tensor_index(dst, &item, 1, &part, &spec_err));
        OK(mf_tensor_index(src, &item, 1, &some, &spec_err));
        OK(mf_tensor_astype(part, some, &spec_err));
        mf_tensor_release(part);
        mf_tensor_release(some);
      }
      mf_tensor_release(dst);
    }
    mf_tensor_release(src);
    if (memcmp(to[0].start, to[1].start, PASSING) != 0) fail_msg("%s: %s to %s differs", set, pair[0], pair[1]);
  }
}

static void passing(const char *set) {
  spec_region from = spec_guarded(PASSING), to[2] = {spec_guarded(PASSING), spec_guarded(PASSING)};
  for (int64_t done = 0; done < PASSING; done += 1 << 16)
    spec_random_bytes(from.start + done, done < 1 << 20 ? 1 << 16 : 16);
  passing_fills(set, to[0]);
  passing_casts(set, from, to);
  spec_unguard(from);
  spec_unguard(to[0]);
  spec_unguard(to[1]);
}

static void what_passes_the_caches(void **state) {
  (void)state;
  with_each_set(passing);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(small_copies_are_as_the_walk_has_them),
      SPEC(large_copies_are_as_the_walk_has_them),
      SPEC(casts_are_as_codecs_have_them),
      SPEC(edge_values_are_as_codecs_have_them),
      SPEC(wide_numbers_are_as_codecs_have_them),
      SPEC(comparisons_are_as_codecs_have_them),
      SPEC(crossed_ones_are_compared_as_the_walk_does),
      SPEC(pictures_and_planes),
      SPEC(reversed_axes),
      SPEC(what_passes_the_caches),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
