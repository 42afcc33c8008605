/* numbers_spec.c: casts and comparisons in which a device takes part. Every pair of dtypes must give
 * the bits that the host gives, every pair of memories and layouts what it gives there, gaps between the elements
 * included; and what a kernel does moves no element through the host. How the host converts is specs/c/cast_spec.c's;
 * which way a cast goes, numbers_ways_spec.c's. */
#include <math.h>

#include "places.h"

static const char *const numbers[] = {
    "bool",     "int8",          "int16",      "int32",           "int64",         "uint8",           "uint16",
    "uint32",   "uint64",        "float16",    "bfloat16",        "float32",       "float64",         "float8_e3m4",
    "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"};
static const char *const others[] = {"float8_e8m0fnu", "complex64", "float4_e2m1fn", "int4", "int4+", "complex128"};

/* Where something changes: the ends of integers, halves between whole numbers, the least and the largest of each
 * format, and what lies a little beside. */
static const double edges[] = {
    0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 7.0, 15.5, 127.0, 127.5, 128.0, 128.5, 255.0, 255.5, 256.0, 240.0, 448.0,
    464.0, 480.0, 57344.0, 61440.0, 32767.0, 32767.5, 32768.0, 65504.0, 65519.99, 65520.0, 65535.0, 65535.5,
    65536.0, 0x1p31, 0x1p31 - 1, 0x1p32, 0x1p32 - 1, 0x1p53 + 1, 0x1p63, 0x1p64, 0x1.fffffp63, 0x1p-14,
    0x1p-24, 0x1p-25, 0x1.8p-25, 0x1p-126, 0x1p-133, 0x1.8p-134, 0x1p-149, 0x1p-150, 0x1.000001p-150,
    0x1p-1074, 0x1.fffffep127, 0x1.ffffffp127, 1e300, 0x1.01p0, 0x1.008p0, 0x1.0080000001p0, 0x1.0018p0,
    0x1.00180001p0, 0x1.11p-9, 0x1p-10, 0x1.8p-10,
    /* A little beside what lies between two numbers of a format: too little for a float. */
    0x1.0020000001p0, 0x1.001fffffffp0, 0x1.0100000001p0, 0x1.00ffffffffp0, 0x1.0800000001p0, 0x1.07ffffffffp0,
    0x1.1000000001p0, 0x1.0fffffffffp0, 0x1.2000000001p0, 0x1.1fffffffffp0,
};
enum { NVALUES = 2 * (int)COUNT(edges) + 132 }; /* one or two threads of four elements to a warp more than the edges */

/* Before the two infinities that come last: NaNs with all bits, with the lowest alone and with some, of either sign. */
static void put_nans(unsigned char *data, int64_t size) {
  for (int64_t i = NVALUES - 2; i < NVALUES; i++) {
    unsigned char *full = data + (i - 2) * size, *least = data + (i - 4) * size, *some = data + (i - 6) * size;
    memset(full, 0xff, (size_t)size);
    full[size - 1] = (unsigned char)(i == NVALUES - 1 ? 0xff : 0x7f);
    memcpy(least, data + i * size, (size_t)size);
    memcpy(some, data + i * size, (size_t)size);
    least[0] |= 1;
    for (int64_t k = 0; k < size - 1; k++) some[k] |= 0x11;
  }
}

/* First what is the same in each size, with the neighbours of what lies between two bfloat16s, some of which a double
 * does not hold; then the ends of this size; then as many random bytes as a draw says, with a sign before them. */
static void put_integers(unsigned char *data, int64_t size) {
  static const int64_t same[] = {0, 1, 2, -1, 0x40400001, 0x403fffff, 0x10100000001, 0x100ffffffff,
                                 0x20200000000001, 0x1010000000000001, 0x1010000000000000, 0x100fffffffffffff};
  static const int64_t ends[] = {INT64_MIN, INT64_MAX};
  for (size_t i = 0; i < COUNT(same); i++, data += size) memcpy(data, &same[i], (size_t)size);
  for (size_t i = 0; i < COUNT(ends); i++, data += size) {
    const int64_t end = ends[i] >> (64 - 8 * size);
    memcpy(data, &end, (size_t)size);
  }
  for (size_t i = COUNT(same) + COUNT(ends); i < NVALUES; i++, data += size)
    for (int64_t k = 0, n = (int64_t)(draw() % 9), sign = (int64_t)(draw() % 2) * 255; k < size; k++)
      if (k > n) data[k] = (unsigned char)sign;
}

/* Bits of any kind, small integers among them; where the dtype is a float, the edges come first, of either sign. */
static mf_tensor *values_of(const char *dtype) {
  const int64_t shape[] = {NVALUES};
  mf_tensor *t = random_host(dtype, 1, shape), *wide = create_shaped(CPU, "float64", 1, shape);
  const DLTensor *dl = mf_tensor_dltensor(t);
  const int64_t size = mf_tensor_nbytes(t) / NVALUES;
  unsigned char *data = dl->data;
  if (dl->dtype.code == kDLInt || dl->dtype.code == kDLUInt) put_integers(data, size);
  if (dl->dtype.code == kDLFloat || dl->dtype.code == kDLBfloat || dl->dtype.code >= kDLFloat8_e3m4) {
    mf_tensor *rest = random_host("uint8", 1, (int64_t[]){NVALUES * size});
    double *x = mf_tensor_dltensor(wide)->data;
    const int64_t n = 2 * (int64_t)COUNT(edges);
    for (int64_t i = 0; i < NVALUES; i++) x[i] = i < n ? (i % 2 == 0 ? 1 : -1) * edges[i / 2] : (double)INFINITY;
    x[NVALUES - 1] = -(double)INFINITY;
    OK(mf_tensor_astype(t, wide, &err));
    memcpy(data + n * size, mf_tensor_dltensor(rest)->data, (size_t)((NVALUES - 2 - n) * size));
    mf_tensor_release(rest);
    put_nans(data, size);
  }
  mf_tensor_release(wide);
  return t;
}

static void one_pair(const char *to, mf_tensor *src, const char *from) {
  const int64_t shape[] = {NVALUES};
  char what[64];
  snprintf(what, sizeof what, "%s to %s", from, to);
  mf_tensor *want = create_shaped(CPU, to, 1, shape), *there = at_place(src, GPU0);
  mf_tensor *got = create_shaped(GPU0, to, 1, shape);
  OK(mf_tensor_astype(want, src, &err));
  const uint64_t before = copies_made();
  OK(mf_tensor_astype(got, there, &err));
  if (has_kernels()) assert_int_equal(copies_made(), before);
  same_bytes(got, want, what);
  mf_tensor_release(want);
  mf_tensor_release(there);
  mf_tensor_release(got);
}

/* All of the first 13 with each other; each of the 8-bit floats, which differ in constants alone, with a third. */
static bool is_asked_for(size_t to, size_t from) {
  return to != from && ((to < 13 && from < 13) || (to + from) % 3 == 0);
}

static void each_pair_gives_the_hosts_bits(void **state) {
  (void)state;
  random_state = seed_of(0);
  for (size_t f = 0; f < COUNT(numbers); f++) {
    mf_tensor *src = values_of(numbers[f]);
    for (size_t t = 0; t < COUNT(numbers); t++)
      if (is_asked_for(t, f)) one_pair(numbers[t], src, numbers[f]);
    mf_tensor_release(src);
  }
}

/* Layouts and memories */

/* Now and then one that has no kernel. */
static const char *any_number(const char *other) {
  const char *name;
  do {
    name = draw() % 6 == 0 ? others[draw() % COUNT(others)] : numbers[draw() % COUNT(numbers)];
  } while (other != NULL && strcmp(name, other) == 0);
  return name;
}

static void one_cast(place from, place to, uint64_t seed) {
  const char *of = any_number(NULL), *becomes = any_number(of);
  int64_t shape[5];
  int32_t ndim;
  side src, dst;
  char what[128];
  any_shape(&ndim, shape);
  snprintf(what, sizeof what, "seed %llu, %s to %s from %s to %s", (unsigned long long)seed, of, becomes,
           place_names[from], place_names[to]);
  find_way(&src.way, ndim, shape, draw() % 4 == 0 ? PLAIN : draw() % 6 == 0 ? REPEAT : 0);
  find_way(&dst.way, ndim, shape, draw() % 3 == 0 ? PLAIN : 0);
  side_open(&src, from, of, shape);
  side_open(&dst, to, becomes, shape);
  if (src.host_view != NULL && dst.host_view != NULL && (*of != 'c' || *becomes == 'c')) {
    OK(mf_tensor_astype(dst.host_view, src.host_view, &err));
    use_any_stream();
    if (mf_tensor_astype(dst.device_view, src.device_view, &err) != MF_OK) fail_msg("%s: %s", what, err.message);
    use_any_stream();
    same_bytes(dst.device, dst.host, what);
    same_bytes(src.device, src.host, what);
  }
  side_close(&src);
  side_close(&dst);
}

static void any_cast_from_anywhere_to_anywhere(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < seeds(2); seed++) {
    sim_ask_seed(seed);
    random_state = seed_of(seed);
    for (place from = 0; from < NPLACES; from++)
      for (place to = 0; to < NPLACES; to++)
        for (int i = 0; i < 4 && have(from) && have(to); i++) one_cast(from, to, seed);
    if (sim_ask_findings() != 0) fail_msg("seed %llu", (unsigned long long)seed);
  }
}

/* A tensor, and one with the same elements in another layout; or with one element that differs. */
static void one_comparison(place here, place there, uint64_t seed) {
  const char *name = any_number(NULL);
  int64_t shape[5];
  int32_t ndim;
  side a, b;
  int32_t want, got;
  any_shape(&ndim, shape);
  find_way(&a.way, ndim, shape, draw() % 6 == 0 ? REPEAT : 0);
  find_way(&b.way, ndim, shape, draw() % 3 == 0 ? PLAIN : draw() % 6 == 0 ? REPEAT : 0);
  side_open(&a, here, name, shape);
  side_open(&b, there, name, shape);
  if (a.host_view != NULL && b.host_view != NULL) {
    for (int same = 0; same < 2; same++) {
      if (same && b.way.broadcast < 0) {
        OK(mf_tensor_copy(b.host_view, a.host_view, &err));
        OK(mf_tensor_copy(b.device_view, a.device_view, &err));
      }
      OK(mf_tensor_equal(a.host_view, b.host_view, &want, &err));
      use_any_stream();
      OK(mf_tensor_equal(a.device_view, b.device_view, &got, &err));
      if (got != want)
        fail_msg("seed %llu, %s, %s and %s: %d, not %d", (unsigned long long)seed, name, place_names[here],
                 place_names[there], got, want);
    }
    use_any_stream();
    same_bytes(a.device, a.host, "only read");
    same_bytes(b.device, b.host, "only read");
  }
  side_close(&a);
  side_close(&b);
}

static void anything_is_compared_with_anything(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < seeds(2); seed++) {
    sim_ask_seed(seed);
    random_state = seed_of(seed);
    for (place a = 0; a < NPLACES; a++)
      for (place b = 0; b < NPLACES; b++)
        for (int i = 0; i < 2 && have(a) && have(b); i++) one_comparison(a, b, seed);
    if (sim_ask_findings() != 0) fail_msg("seed %llu", (unsigned long long)seed);
  }
}

static mf_tensor *uploaded(const char *dtype, int64_t n, const void *data) {
  mf_tensor *t = create_shaped(CPU, dtype, 1, &n);
  memcpy(data_of(t), data, (size_t)mf_tensor_nbytes(t));
  mf_tensor *there = at_place(t, GPU0);
  mf_tensor_release(t);
  return there;
}

/* NaN is not equal to itself, zeros are whatever their sign, and so is what is true. One element of many tells. */
static void numbers_are_compared_as_numbers(void **state) {
  static float zeros[1000];
  (void)state;
  zeros[500] = -0.0f;
  for (int last = 0; last < 1000; last += 333) {
    static float changed[1000];
    memcpy(changed, zeros, sizeof changed);
    changed[last] = 0x1p-149f;
    mf_tensor *a = uploaded("float32", 1000, zeros), *b = uploaded("float32", 1000, changed);
    mf_tensor *c = uploaded("float32", 1000, (float[1000]){0});
    assert_false(equal(a, b));
    assert_true(equal(a, c));
    mf_tensor_release(a);
    mf_tensor_release(b);
    mf_tensor_release(c);
  }
  static const struct {
    const char *dtype;
    uint64_t a, b;
    bool same;
  } cases[] = {{"float32", 0x7fc00000, 0x7fc00000, false}, {"float64", 0x7ff8000000000000, 0x7ff8000000000000, false},
               {"float64", 0, 0x8000000000000000, true},   {"float16", 0x8000, 0, true},
               {"float16", 0x7e00, 0x7e00, false},         {"bfloat16", 0x7fc0, 0x7fc0, false},
               {"bfloat16", 0x8000, 0, true},              {"float8_e4m3fn", 0x7f, 0x7f, false},
               {"float8_e4m3fn", 0x80, 0, true},           {"bool", 1, 2, true},
               {"bool", 0, 2, false},                      {"int64", 1ull << 40, 0, false},
               {"uint64", 1ull << 63, 1ull << 63, true},   {"int8", 0x80, 0x80, true}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    mf_tensor *a = uploaded(cases[i].dtype, 1, &cases[i].a), *b = uploaded(cases[i].dtype, 1, &cases[i].b);
    if (equal(a, b) != cases[i].same) fail_msg("%s, case %zu", cases[i].dtype, i);
    mf_tensor_release(a);
    mf_tensor_release(b);
  }
}

static void what_differs_in_kind_is_not_compared(void **state) {
  const int64_t four[] = {4}, five[] = {5}, none[] = {0};
  (void)state;
  mf_tensor *t[] = {create_shaped(GPU0, "int32", 1, four), create_shaped(GPU0, "int32", 1, five),
                    create_shaped(GPU0, "uint32", 1, four), create_shaped(GPU0, "int32", 1, none),
                    create_shaped(GPU0, "int32", 1, none)};
  const uint64_t before = sim_ask_calls("cuLaunchKernel") + copies_made();
  assert_false(equal(t[0], t[1]));
  assert_false(equal(t[0], t[2]));
  assert_true(equal(t[3], t[4]));
  assert_int_equal(sim_ask_calls("cuLaunchKernel") + copies_made(), before);
  for (size_t i = 0; i < COUNT(t); i++) mf_tensor_release(t[i]);
}

/* Ways that have no kernel */

/* Bytes of a float32 that begin one byte behind a multiple of 4. */
static mf_tensor *shifted(mf_tensor *bytes, int64_t n) {
  DLTensor view = *mf_tensor_dltensor(bytes);
  int64_t stride = 1;
  mf_tensor *t;
  view.data = (char *)view.data + 1;
  view.dtype = dtype_of("float32");
  view.ndim = 1;
  view.shape = &n;
  view.strides = &stride;
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &t, &err));
  return t;
}

static void elements_at_odd_places_are_converted_all_the_same(void **state) {
  const int64_t n = 6, nbytes[] = {25};
  (void)state;
  random_state = seed_of(3);
  mf_tensor *host = random_host("uint8", 1, nbytes), *there = at_place(host, GPU0);
  mf_tensor *a = shifted(host, n), *b = shifted(there, n), *want = create_shaped(CPU, "float64", 1, &n);
  mf_tensor *got = create_shaped(GPU0, "float64", 1, &n);
  OK(mf_tensor_astype(want, a, &err));
  OK(mf_tensor_astype(got, b, &err));
  same_bytes(got, want, "read");
  OK(mf_tensor_astype(a, want, &err));
  OK(mf_tensor_astype(b, got, &err));
  same_bytes(there, host, "written");
  fill(there, 0);
  assert_true(equal(b, b));
  mf_tensor *other = at_place(host, GPU0), *c = shifted(other, n);
  assert_false(equal(b, c));
  mf_tensor *all[] = {a, b, c, want, got, host, there, other};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
}

/* Elements of less than a byte, packed, and padded to a byte each; the host converts them. */
static void packed_and_padded_elements_are_converted(void **state) {
  enum { N = 13 };
  const int64_t n = N;
  const DLTensor like = {.device = gpu(0), .ndim = 1, .dtype = {kDLInt, 4, 1}, .shape = (int64_t *)(uintptr_t)&n};
  mf_tensor *padded, *packed, *src = random_host("int8", 1, &n), *there = at_place(src, GPU0);
  mf_tensor *got = create_shaped(GPU0, "int8", 1, &n), *want = create_shaped(CPU, "int8", 1, &n);
  (void)state;
  for (int64_t i = 0; i < N; i++) {
    const mf_scalar low = {.kind = MF_KIND_INT, .i = i % 16 - 8};
    OK(mf_tensor_put(there, &i, 1, &low, &err));
    OK(mf_tensor_put(want, &i, 1, &low, &err));
  }
  OK(mf_tensor_create(&like, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, &padded, &err));
  OK(mf_tensor_create(&like, 0, &packed, &err));
  OK(mf_tensor_astype(padded, there, &err));
  mf_tensor *back = at_place(padded, CPU);
  const unsigned char *bytes = mf_tensor_dltensor(back)->data;
  for (int i = 0; i < N; i++) assert_int_equal(bytes[i] & 15, (i - 8) & 15);
  OK(mf_tensor_astype(packed, padded, &err));
  assert_true(equal(packed, padded) && equal(padded, packed));
  OK(mf_tensor_astype(got, packed, &err));
  same_bytes(got, want, "from packed");
  fill(got, 0);
  OK(mf_tensor_astype(got, padded, &err));
  same_bytes(got, want, "from padded");
  mf_tensor *all[] = {padded, packed, back, src, there, got, want};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
}

/* More axes than a kernel has, none of which joins another. */
static void axes_beyond_the_kernels_are_gone_through(void **state) {
  const int64_t shape[] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 3};
  int32_t axes[10];
  (void)state;
  random_state = seed_of(4);
  for (int32_t i = 0; i < 10; i++) axes[i] = (i * 3 + 1) % 10;
  mf_tensor *host = random_host("int16", 10, shape), *there = at_place(host, GPU0), *views[2];
  OK(mf_tensor_permute_dims(host, axes, 10, &views[0], &err));
  OK(mf_tensor_permute_dims(there, axes, 10, &views[1], &err));
  mf_tensor *want = create_shaped(CPU, "float32", 10, mf_tensor_dltensor(views[0])->shape);
  mf_tensor *got = create_shaped(GPU0, "float32", 10, mf_tensor_dltensor(views[0])->shape);
  OK(mf_tensor_astype(want, views[0], &err));
  OK(mf_tensor_astype(got, views[1], &err));
  same_bytes(got, want, "ten axes");
  mf_tensor *compact;
  OK(mf_tensor_clone(views[1], &compact, &err));
  assert_true(equal(compact, views[1]));
  mf_tensor *all[] = {host, there, views[0], views[1], want, got, compact};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
}

/* Places of the destination that repeat: the last one stays. */
static void where_places_repeat_the_last_stays(void **state) {
  int64_t shape[] = {50, 4}, strides[] = {0, 1};
  (void)state;
  random_state = seed_of(6);
  mf_tensor *src = random_host("int32", 2, shape), *host = random_host("float64", 1, shape + 1), *there[2], *views[2];
  there[0] = at_place(src, GPU0);
  there[1] = at_place(host, GPU0);
  for (int i = 0; i < 2; i++) {
    DLTensor view = *mf_tensor_dltensor(i == 0 ? host : there[1]);
    view.ndim = 2;
    view.shape = shape;
    view.strides = strides;
    OK(mf_tensor_wrap(&view, 0, NULL, NULL, &views[i], &err));
  }
  OK(mf_tensor_astype(views[0], src, &err));
  OK(mf_tensor_astype(views[1], there[0], &err));
  same_bytes(there[1], host, "from the device");
  OK(mf_tensor_astype(views[1], src, &err));
  same_bytes(there[1], host, "from the host");
  mf_tensor *all[] = {src, host, there[0], there[1], views[0], views[1]};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
}

/* The source is read as it was, on one memory. */
static void overlapping_casts_as_if_read_first(void **state) {
  int64_t n[] = {100}, one[] = {1};
  (void)state;
  random_state = seed_of(5);
  mf_tensor *host = random_host("uint8", 1, (int64_t[]){800}), *there = at_place(host, GPU0), *sides[4];
  for (int i = 0; i < 4; i++) {
    DLTensor view = *mf_tensor_dltensor(i < 2 ? host : there);
    view.shape = n;
    view.strides = one;
    view.dtype = dtype_of(i % 2 == 0 ? "float64" : "int32");
    view.data = (char *)view.data + (i % 2 == 0 ? 0 : 200);
    OK(mf_tensor_wrap(&view, 0, NULL, NULL, &sides[i], &err));
  }
  OK(mf_tensor_astype(sides[0], sides[1], &err));
  OK(mf_tensor_astype(sides[2], sides[3], &err));
  same_bytes(there, host, "overlap");
  for (int i = 0; i < 4; i++) mf_tensor_release(sides[i]);
  mf_tensor_release(host);
  mf_tensor_release(there);
}

/* In parts, as copies are. */
static void a_cast_goes_in_parts(void **state) {
  const int64_t n[] = {10 << 20};
  int64_t at = 0;
  int parts = 0;
  (void)state;
  skip_unless(has_kernels(), "there are no kernels here");
  mf_tensor *src = create(gpu(0), n[0]), *dst = create_shaped(CPU, "uint16", 1, n);
  fill(src, 7);
  while (at < n[0] && parts++ < 100) OK(mf_tensor_copy_part(dst, src, &at, &err));
  assert_int_equal(parts, 2);
  const uint16_t *x = data_of(dst);
  for (int64_t i = 0; i < n[0]; i++)
    if (x[i] != 7) fail_msg("element %lld", (long long)i);
  mf_tensor_release(src);
  mf_tensor_release(dst);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_STREAMS(each_pair_gives_the_hosts_bits),
      WITH_STREAMS(any_cast_from_anywhere_to_anywhere),
      WITH_STREAMS(anything_is_compared_with_anything),
      WITH_STREAMS(numbers_are_compared_as_numbers),
      WITH_STREAMS(what_differs_in_kind_is_not_compared),
      WITH_STREAMS(elements_at_odd_places_are_converted_all_the_same),
      WITH_STREAMS(packed_and_padded_elements_are_converted),
      WITH_STREAMS(axes_beyond_the_kernels_are_gone_through),
      WITH_STREAMS(where_places_repeat_the_last_stays),
      WITH_STREAMS(overlapping_casts_as_if_read_first),
      WITH_STREAMS(a_cast_goes_in_parts),
  };
  return RUN(tests);
}
