/* element_spec.c: one element at a time (get, put), all of them (fill, equal), and casts between any two
 * layouts, with single elements as the oracle. Which value an element takes is in cast_spec.c.
 */
#include "spec.h"

#include <math.h>

#define PADDED ((uint64_t)DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)

static mf_scalar from_int(int64_t i) { return (mf_scalar){.kind = MF_KIND_INT, .i = i}; }
static mf_scalar from_uint(uint64_t u) { return (mf_scalar){.kind = MF_KIND_UINT, .u = u}; }
static mf_scalar from_float(double f) { return (mf_scalar){.kind = MF_KIND_FLOAT, .f = f}; }
static mf_scalar from_bool(int64_t b) { return (mf_scalar){.kind = MF_KIND_BOOL, .i = b}; }
static mf_scalar from_complex(double re, double im) {
  return (mf_scalar){.kind = MF_KIND_COMPLEX, .f = re, .imag = im};
}

static mf_scalar get(const mf_tensor *t, const int64_t *coords) {
  mf_scalar s;
  memset(&s, 0x5a, sizeof s);
  OK(mf_tensor_get(t, coords, mf_tensor_dltensor(t)->ndim, &s, &spec_err));
  assert_int_equal(s.zero, 0);
  return s;
}

static void get_says_the_kind(void **state) {
  static const struct {
    const char *dtype;
    mf_scalar value;
  } rows[] = {
      {"bool", {.kind = MF_KIND_BOOL, .i = 1}},          {"bool1", {.kind = MF_KIND_BOOL, .i = 1}},
      {"int8", {.kind = MF_KIND_INT, .i = -128}},        {"int4", {.kind = MF_KIND_INT, .i = -8}},
      {"int64", {.kind = MF_KIND_INT, .i = INT64_MIN}},  {"uint64", {.kind = MF_KIND_UINT, .u = UINT64_MAX}},
      {"uint1", {.kind = MF_KIND_UINT, .u = 1}},         {"float16", {.kind = MF_KIND_FLOAT, .f = 65504}},
      {"bfloat16", {.kind = MF_KIND_FLOAT, .f = -2.5}},  {"float64", {.kind = MF_KIND_FLOAT, .f = 1e300}},
      {"float4_e2m1fn", {.kind = MF_KIND_FLOAT, .f = 6}}, {"float8_e8m0fnu", {.kind = MF_KIND_FLOAT, .f = 0.5}},
      {"complex64", {.kind = MF_KIND_COMPLEX, .f = 1.5, .imag = -2}},
      {"complex128", {.kind = MF_KIND_COMPLEX, .f = 1e300, .imag = -1e-300}},
      {"complex32", {.kind = MF_KIND_COMPLEX, .f = 0.25, .imag = 3}},
  };
  (void)state;
  for (size_t i = 0; i < COUNT(rows); i++) {
    for (uint64_t flags = 0; flags <= PADDED; flags += PADDED) {
      DLTensor like = {.ndim = 1, .dtype = spec_dtype(rows[i].dtype), .shape = (int64_t[]){5}};
      mf_tensor *t;
      mf_scalar one = from_int(1);
      OK(mf_tensor_create(&like, flags, &t, &spec_err));
      OK(mf_tensor_fill(t, &one, &spec_err));
      OK(mf_tensor_put(t, (int64_t[]){-2}, 1, &rows[i].value, &spec_err));
      mf_scalar back = get(t, (int64_t[]){3});
      assert_int_equal(back.kind, rows[i].value.kind);
      assert_int_equal(back.u, rows[i].value.u);
      assert_true(back.imag == rows[i].value.imag);
      mf_scalar beside = get(t, (int64_t[]){4});
      assert_int_equal(beside.kind, back.kind);
      if (back.kind == MF_KIND_BOOL || back.kind == MF_KIND_UINT) assert_int_equal(beside.u, 1);
      if (back.kind >= MF_KIND_FLOAT) assert_true(beside.f == 1 && beside.imag == 0);
      mf_tensor_release(t);
    }
  }
}

static void put_converts_as_a_cast(void **state) {
  (void)state;
  mf_tensor *t = spec_create("int8", DIMS(1));
  mf_scalar s[] = {from_int(300), from_uint(UINT64_MAX), from_float(1e9), from_float(-3.9), from_float(NAN),
                   from_bool(7)};
  static const int64_t want[] = {44, -1, 127, -3, 0, 1};
  for (size_t i = 0; i < COUNT(s); i++) {
    OK(mf_tensor_put(t, (int64_t[]){0}, 1, &s[i], &spec_err));
    assert_int_equal(get(t, (int64_t[]){0}).i, want[i]);
    OK(mf_tensor_fill(t, &s[i], &spec_err));
    assert_int_equal(get(t, (int64_t[]){0}).i, want[i]);
  }
  mf_scalar z = from_complex(1, 0);
  FAILS(MF_EDTYPE, mf_tensor_put(t, (int64_t[]){0}, 1, &z, &spec_err));
  FAILS(MF_EDTYPE, mf_tensor_fill(t, &z, &spec_err));
  mf_tensor_release(t);
  t = spec_create("bool", DIMS(1));
  mf_scalar truth[] = {from_float(NAN), from_float(0.1), from_float(-0.0), from_int(256), from_uint(0)};
  static const int64_t is_true[] = {1, 1, 0, 1, 0};
  for (size_t i = 0; i < COUNT(truth); i++) {
    OK(mf_tensor_put(t, (int64_t[]){0}, 1, &truth[i], &spec_err));
    assert_int_equal(get(t, (int64_t[]){0}).i, is_true[i]);
  }
  mf_tensor_release(t);
  t = spec_create("complex64", 0, NULL);
  mf_scalar real[] = {from_float(2.5), from_int(-7), from_uint(9), from_bool(1)};
  static const double parts[] = {2.5, -7, 9, 1};
  for (size_t i = 0; i < COUNT(real); i++) {
    OK(mf_tensor_put(t, NULL, 0, &real[i], &spec_err));
    assert_true(get(t, NULL).f == parts[i] && get(t, NULL).imag == 0);
  }
  mf_tensor_release(t);
}

static void coordinates(void **state) {
  static const int64_t bad[][2] = {{2, 0},  {0, 3},         {-3, 0},        {0, -4},
                                   {INT64_MAX, 0}, {0, INT64_MIN}, {INT64_MIN, 0}, {0, INT64_MAX}};
  int32_t memory[2][3] = {{0, 1, 2}, {3, 4, 5}};
  mf_scalar s = from_int(9);
  (void)state;
  mf_tensor *t = spec_wrap(memory, "int32", DIMS(2, 3), NULL);
  for (int64_t i = -2; i < 2; i++) {
    for (int64_t j = -3; j < 3; j++)
      assert_int_equal(get(t, (int64_t[]){i, j}).i, memory[i < 0 ? i + 2 : i][j < 0 ? j + 3 : j]);
  }
  for (size_t i = 0; i < COUNT(bad); i++) {
    FAILS(MF_EBOUNDS, mf_tensor_get(t, bad[i], 2, &s, &spec_err));
    FAILS(MF_EBOUNDS, mf_tensor_put(t, bad[i], 2, &s, &spec_err));
    assert_int_equal(mf_tensor_get(t, bad[i], 2, &s, NULL), MF_EBOUNDS);
    assert_int_equal(mf_tensor_put(t, bad[i], 2, &s, NULL), MF_EBOUNDS);
  }
  for (int32_t n = -1; n < 5; n++) {
    if (n == 2) continue;
    FAILS(MF_EINVAL, mf_tensor_get(t, (int64_t[]){0, 0, 0, 0}, n, &s, &spec_err));
    FAILS(MF_EINVAL, mf_tensor_put(t, (int64_t[]){0, 0, 0, 0}, n, &s, &spec_err));
  }
  SAYS(MF_EINVAL, "coords is NULL, with ncoords 2", mf_tensor_get(t, NULL, 2, &s, &spec_err));
  assert_int_equal(s.i, 9);
  for (int i = 0; i < 6; i++) assert_int_equal(memory[i / 3][i % 3], i);
  mf_tensor_release(t);
  t = spec_wrap(memory, "int32", DIMS(6), NULL);
  SAYS(MF_EINVAL, "coords is NULL, with ncoords 1", mf_tensor_put(t, NULL, 1, &s, &spec_err));
  mf_tensor_release(t);
  t = spec_wrap(NULL, "int32", DIMS(4, 0), (int64_t[]){INT64_MAX, 1});
  SAYS(MF_EBOUNDS, "index 0 is out of range for axis 1 of extent 0",
       mf_tensor_get(t, (int64_t[]){3, 0}, 2, &s, &spec_err));
  mf_tensor_release(t);
}

static void what_is_no_number(void **state) {
  static const char *const dtypes[] = {"handle64", "float32x2", "int65", "uint128", "bool65", "float24",
                                       "float80", "bfloat8", "complex16", "float8_e5m2_b16"};
  mf_scalar s = from_int(1);
  (void)state;
  mf_tensor *number = spec_create("int32", DIMS(2));
  for (size_t i = 0; i < COUNT(dtypes); i++) {
    mf_tensor *t = spec_create(dtypes[i], DIMS(2));
    memset(mf_tensor_dltensor(t)->data, 0, (size_t)mf_tensor_nbytes(t));
    SAYS(MF_EDTYPE, dtypes[i], mf_tensor_get(t, (int64_t[]){0}, 1, &s, &spec_err));
    FAILS(MF_EDTYPE, mf_tensor_put(t, (int64_t[]){0}, 1, &s, &spec_err));
    FAILS(MF_EDTYPE, mf_tensor_fill(t, &s, &spec_err));
    FAILS(MF_EDTYPE, mf_tensor_astype(number, t, &spec_err));
    FAILS(MF_EDTYPE, mf_tensor_astype(t, number, &spec_err));
    mf_tensor *same = spec_create(dtypes[i], DIMS(2));
    OK(mf_tensor_astype(same, t, &spec_err)); /* the same dtype is a copy */
    mf_tensor_release(same);
    mf_tensor_release(t);
  }
  mf_tensor_release(number);
}

static void scalars_are_checked(void **state) {
  (void)state;
  mf_tensor *t = spec_create("float32", DIMS(2));
  for (int32_t kind = -2; kind < 8; kind++) {
    mf_scalar s = {.kind = kind};
    if (kind >= MF_KIND_BOOL && kind <= MF_KIND_FLOAT) continue;
    int want = kind == MF_KIND_COMPLEX ? MF_EDTYPE : MF_EINVAL;
    FAILS(want, mf_tensor_fill(t, &s, &spec_err));
    FAILS(want, mf_tensor_put(t, (int64_t[]){0}, 1, &s, &spec_err));
    assert_int_equal(mf_tensor_fill(t, &s, NULL), want);
  }
  mf_scalar s = {.kind = MF_KIND_INT, .zero = 1};
  SAYS(MF_EINVAL, "zero", mf_tensor_fill(t, &s, &spec_err));
  SAYS(MF_EINVAL, "zero", mf_tensor_put(t, (int64_t[]){0}, 1, &s, &spec_err));
  mf_tensor *ro;
  s.zero = 0;
  OK(mf_tensor_as_readonly(t, &ro, &spec_err));
  FAILS(MF_EREADONLY, mf_tensor_fill(ro, &s, &spec_err));
  FAILS(MF_EREADONLY, mf_tensor_put(ro, (int64_t[]){0}, 1, &s, &spec_err));
  mf_tensor_release(ro);
  mf_tensor_release(t);
  t = spec_create("float32", DIMS(2, 0));
  OK(mf_tensor_fill(t, &s, &spec_err));
  mf_tensor_release(t);
}

static int32_t equal(const mf_tensor *a, const mf_tensor *b) {
  int32_t ab = -1;
  int32_t ba = -1;
  OK(mf_tensor_equal(a, b, &ab, &spec_err));
  OK(mf_tensor_equal(b, a, &ba, &spec_err));
  assert_int_equal(ab, ba);
  return ab;
}

static void equal_as_numbers(void **state) {
  double zeros[] = {0.0, -0.0, 1};
  double same[] = {-0.0, 0.0, 1};
  double nan[] = {0.0, 0.0, NAN};
  (void)state;
  mf_tensor *a = spec_wrap(zeros, "float64", DIMS(3), NULL);
  mf_tensor *b = spec_wrap(same, "float64", DIMS(3), NULL);
  mf_tensor *c = spec_wrap(nan, "float64", DIMS(3), NULL);
  mf_tensor *shape = spec_wrap(same, "float64", DIMS(1, 3), NULL);
  mf_tensor *dtype = spec_wrap(same, "int64", DIMS(3), NULL);
  assert_int_equal(equal(a, b), 1);
  assert_int_equal(equal(c, c), 0);
  assert_int_equal(equal(a, c), 0);
  assert_int_equal(equal(a, shape), 0);
  assert_int_equal(equal(a, dtype), 0);
  mf_tensor_release(a);
  mf_tensor_release(b);
  mf_tensor_release(c);
  mf_tensor_release(shape);
  mf_tensor_release(dtype);
  float parts[] = {1, 2, 1, 3};
  a = spec_wrap(&parts[0], "complex64", 0, NULL, NULL);
  b = spec_wrap(&parts[2], "complex64", 0, NULL, NULL);
  assert_int_equal(equal(a, a), 1);
  assert_int_equal(equal(a, b), 0);
  mf_tensor_release(a);
  mf_tensor_release(b);
  /* One element repeated over two axes, against a tensor whose axes are the other way round. */
  a = spec_wrap(zeros, "float64", DIMS(2, 2), (int64_t[]){0, 0});
  b = spec_wrap(same, "float64", DIMS(2, 2), (int64_t[]){0, 1});
  c = spec_wrap(zeros, "float64", DIMS(2, 2), (int64_t[]){0, 2});
  assert_int_equal(equal(a, b), 1);
  assert_int_equal(equal(a, c), 0);
  mf_tensor_release(a);
  mf_tensor_release(b);
  mf_tensor_release(c);
  /* A packed tensor and a padded one, which no kernel compares: 0 and -0. */
  const DLTensor like = {.ndim = 1, .shape = (int64_t[]){2}, .dtype = spec_dtype("float4_e2m1fn")};
  OK(mf_tensor_create(&like, 0, &a, &spec_err));
  OK(mf_tensor_create(&like, PADDED, &b, &spec_err));
  *(unsigned char *)mf_tensor_dltensor(a)->data = 0x80;
  memset(mf_tensor_dltensor(b)->data, 0, 2);
  assert_int_equal(equal(a, b), 1);
  *(unsigned char *)mf_tensor_dltensor(a)->data = 0x90;
  assert_int_equal(equal(a, b), 0);
  mf_tensor_release(a);
  mf_tensor_release(b);
  a = spec_create("int32", DIMS(0, 3));
  b = spec_create("int32", DIMS(0, 3));
  c = spec_create("int32", DIMS(3, 0));
  assert_int_equal(equal(a, b), 1);
  assert_int_equal(equal(a, c), 0);
  mf_tensor_release(a);
  mf_tensor_release(b);
  mf_tensor_release(c);
}

/* So many that tiles would compare them if they were numbers, and the two lie the other way round. */
static void equal_bits_that_are_crossed(void **state) {
  enum { SIDE = 64 };
  static int32_t ours[SIDE][SIDE][4], theirs[SIDE][SIDE][4];
  (void)state;
  for (int i = 0; i < SIDE; i++)
    for (int k = 0; k < SIDE; k++)
      for (int lane = 0; lane < 4; lane++) ours[i][k][lane] = theirs[k][i][lane] = i * 1000 + k * 4 + lane;
  mf_tensor *a = spec_wrap(ours, "int32x4", DIMS(SIDE, SIDE), NULL);
  mf_tensor *b = spec_wrap(theirs, "int32x4", DIMS(SIDE, SIDE), (int64_t[]){1, SIDE});
  assert_int_equal(equal(a, b), 1);
  theirs[40][50][3]++;
  assert_int_equal(equal(a, b), 0);
  mf_tensor_release(a);
  mf_tensor_release(b);
}

/* One bit of difference anywhere is seen, in any layout and dtype; a clone is equal. */
static void equal_in_any_layout(void **state) {
  static const char *const dtypes[] = {"int8", "int4", "uint3", "float32x3", "handle64", "uint8x5", "int64",
                                       "uint12", "uint4x3", "complex32", "uint1", "uint100", "uint16"};
  (void)state;
  for (int round = 0; round < ROUNDS_OF(6000); round++) {
    uint64_t flags = spec_random() % 4 == 0 ? PADDED : 0;
    spec_layout l;
    unsigned char element[64];
    int64_t coords[MF_MAX_NDIM];
    mf_tensor *c;
    spec_layout_random(&l, spec_dtype(dtypes[spec_random() % COUNT(dtypes)]), flags, 4);
    if (l.view.dtype.code == kDLComplex) memset(l.block, 0x11, l.block_nbytes); /* no NaN */
    mf_tensor *t = spec_layout_wrap(&l, flags);
    OK(mf_tensor_clone(t, &c, &spec_err));
    assert_int_equal(equal(t, c), 1);
    const DLTensor *d = mf_tensor_dltensor(c);
    if (spec_first(d->ndim, d->shape, coords)) {
      for (int64_t k = spec_between(0, mf_tensor_size(c) - 1); k > 0; k--) spec_next(d->ndim, d->shape, coords);
      int64_t bits = (int64_t)d->dtype.bits * d->dtype.lanes;
      int64_t flip = d->dtype.code == kDLComplex ? 0 : spec_between(0, bits - 1);
      spec_read(d, flags, coords, element);
      element[flip / 8] = (unsigned char)(element[flip / 8] ^ 1u << flip % 8);
      spec_write(d->data, spec_bit(d, flags, coords), bits, element);
      assert_int_equal(equal(t, c), 0);
    }
    mf_tensor_release(c);
    mf_tensor_release(t);
    free(l.block);
  }
}

/* Bits between padded elements belong to no element. */
static void padding_does_not_count(void **state) {
  static const char *const dtypes[] = {"int4", "uint4x3", "uint12", "handle12"};
  (void)state;
  for (size_t i = 0; i < COUNT(dtypes); i++) {
    unsigned char a[] = {0x03, 0x02, 0x01, 0x04};
    unsigned char b[] = {0xf3, 0xf2, 0xf1, 0xf4};
    DLTensor like = {.data = a, .ndim = 1, .dtype = spec_dtype(dtypes[i]), .shape = (int64_t[]){4}};
    mf_tensor *t;
    mf_tensor *u;
    bool wide = like.dtype.bits * like.dtype.lanes == 12;
    if (wide) {
      like.shape[0] = 2;
      b[0] = a[0];
      b[2] = a[2];
    }
    OK(mf_tensor_wrap(&like, PADDED, NULL, NULL, &t, &spec_err));
    like.data = b;
    OK(mf_tensor_wrap(&like, PADDED, NULL, NULL, &u, &spec_err));
    assert_int_equal(equal(t, u), 1);
    mf_tensor_release(t);
    mf_tensor_release(u);
  }
}

/* A packed tensor is equal to a padded one with the same elements. */
static void packed_and_padded(void **state) {
  unsigned char packed[] = {0x21, 0x43};
  unsigned char padded[] = {1, 2, 3, 4};
  DLTensor like = {.ndim = 1, .dtype = {kDLInt, 4, 1}, .shape = (int64_t[]){4}};
  mf_tensor *a;
  mf_tensor *b;
  (void)state;
  for (int lanes = 1; lanes <= 2; lanes++) {
    like.dtype.lanes = (uint16_t)lanes;
    like.shape[0] = 4 / lanes;
    like.data = packed;
    OK(mf_tensor_wrap(&like, 0, NULL, NULL, &a, &spec_err));
    like.data = lanes == 1 ? padded : packed;
    OK(mf_tensor_wrap(&like, PADDED, NULL, NULL, &b, &spec_err));
    assert_int_equal(equal(a, b), 1);
    mf_tensor_release(a);
    mf_tensor_release(b);
  }
}

/* Casts between random layouts, apart or overlapping, against one element after another. */
static void cast_one_by_one(mf_tensor *dst, const mf_tensor *src) {
  const DLTensor *d = mf_tensor_dltensor(src);
  int64_t coords[MF_MAX_NDIM];
  mf_scalar *values = malloc((size_t)(mf_tensor_size(src) + 1) * sizeof *values);
  size_t n = 0;
  for (bool more = spec_first(d->ndim, d->shape, coords); more; more = spec_next(d->ndim, d->shape, coords))
    values[n++] = get(src, coords);
  n = 0;
  for (bool more = spec_first(d->ndim, d->shape, coords); more; more = spec_next(d->ndim, d->shape, coords))
    OK(mf_tensor_put(dst, coords, d->ndim, &values[n++], &spec_err));
  free(values);
}

/* NaNs of any payload are the same: those that stand at one place in both memories become zeros. */
static void forget_nans(const DLTensor *view, unsigned char *block, unsigned char *want) {
  static const unsigned char zeros[8];
  DLTensor there = *view;
  int64_t coords[MF_MAX_NDIM];
  mf_tensor *a;
  mf_tensor *b;
  there.data = want + ((unsigned char *)view->data - block);
  OK(mf_tensor_wrap(view, 0, NULL, NULL, &a, &spec_err));
  OK(mf_tensor_wrap(&there, 0, NULL, NULL, &b, &spec_err));
  for (bool more = spec_first(view->ndim, view->shape, coords); more;
       more = spec_next(view->ndim, view->shape, coords)) {
    mf_scalar x = get(a, coords);
    mf_scalar y = get(b, coords);
    if (x.kind != MF_KIND_FLOAT || !isnan(x.f) || !isnan(y.f)) continue;
    spec_write(view->data, spec_bit(view, 0, coords), view->dtype.bits, zeros);
    spec_write(there.data, spec_bit(view, 0, coords), view->dtype.bits, zeros);
  }
  mf_tensor_release(a);
  mf_tensor_release(b);
}

static void cast_any_layout(void **state) {
  enum { NBYTES = 1 << 14, ORIGIN = NBYTES / 2 };
  static const char *const dtypes[] = {"int8", "uint16", "int32", "float32", "float64", "int4", "uint64",
                                       "float16", "bfloat16", "bool", "uint1", "float8_e4m3fn"};
  static unsigned char block[NBYTES];
  static unsigned char before[NBYTES];
  static unsigned char want[NBYTES];
  (void)state;
  for (int round = 0; round < ROUNDS_OF(12000); round++) {
    spec_layout d;
    spec_layout_random(&d, spec_dtype(dtypes[spec_random() % COUNT(dtypes)]), 0, 3);
    free(d.block);
    if (d.view.ndim > 0 && round % 16 == 0) {
      d.shape[d.view.ndim - 1] = 255 + spec_between(0, 3);
      for (int i = 0; i < d.view.ndim; i++) d.strides[i] = i == d.view.ndim - 1 ? 1 : 0;
    }
    spec_layout s = d;
    s.view.shape = s.shape;
    s.view.strides = s.strides;
    s.view.dtype = spec_dtype(dtypes[spec_random() % COUNT(dtypes)]);
    if (s.view.dtype.code == kDLBool) s.view.dtype.code = kDLUInt; /* bool to bool copies any byte */
    if (spec_random() % 2 && round % 16 != 0) spec_layout_strides(&s, true);
    d.view.data = block + ORIGIN;
    s.view.data = block + ORIGIN + (round % 3 == 0 ? 0 : round % 3 == 1 ? 4096 : spec_between(-30, 30));
    spec_random_bytes(block, NBYTES);
    memcpy(before, block, NBYTES);
    mf_tensor *dst = spec_layout_wrap(&d, 0);
    mf_tensor *src = spec_layout_wrap(&s, 0);
    cast_one_by_one(dst, src);
    memcpy(want, block, NBYTES);
    memcpy(block, before, NBYTES);
    OK(mf_tensor_astype(dst, src, &spec_err));
    forget_nans(&d.view, block, want);
    assert_memory_equal(block, want, NBYTES);
    mf_tensor_release(dst);
    mf_tensor_release(src);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(get_says_the_kind),
      SPEC(put_converts_as_a_cast),
      SPEC(coordinates),
      SPEC(what_is_no_number),
      SPEC(scalars_are_checked),
      SPEC(equal_as_numbers),
      SPEC(equal_bits_that_are_crossed),
      SPEC(equal_in_any_layout),
      SPEC(padding_does_not_count),
      SPEC(packed_and_padded),
      SPEC(cast_any_layout),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
