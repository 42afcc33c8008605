/* part_spec.c: copies in parts: what they leave is what a copy at once leaves, where one stops nothing behind it has
 * changed, and a position that no part has left is refused.
 */
#include "spec.h"

enum { NBYTES = 40 << 20 };

static unsigned char *from, *to, *want;

static int memory_setup(void **state) {
  from = malloc(NBYTES);
  to = malloc(NBYTES);
  want = malloc(NBYTES);
  if (from == NULL || to == NULL || want == NULL || spec_group_setup(state) != 0) return 1;
  for (int64_t i = 0; i < NBYTES; i++) from[i] = (unsigned char)((uint64_t)i * 2654435761u >> 24 & 0x3f);
  return 0;
}

static int memory_teardown(void **state) {
  (void)state;
  free(from);
  free(to);
  free(want);
  return 0;
}

/* Copies in parts what is left; returns how many there were. */
static int in_parts(mf_tensor *dst, mf_tensor *src, int64_t at) {
  const int64_t numel = mf_tensor_size(dst);
  int n = 0;
  while (at < numel) {
    const int64_t last = at;
    OK(mf_tensor_copy_part(dst, src, &at, &spec_err));
    assert_true(at > last && at <= numel);
    n++;
  }
  return n;
}

typedef struct shaped {
  const char *from, *to;
  int32_t ndim;
  int64_t shape[4], src_strides[4], dst_strides[4];
  int parts;
  int64_t first; /* elements of the first */
} shaped;

/* How far behind the lowest element the first one lies, in bytes. */
static int64_t before(const shaped *c, const int64_t *strides, const char *dtype) {
  int64_t elements = 0;
  for (int32_t i = 0; i < c->ndim; i++) elements += strides[i] < 0 ? (1 - c->shape[i]) * strides[i] : 0;
  return elements * spec_dtype(dtype).bits / 8;
}

/* Parts of dst's memory that lie far apart, and where elements share a place, row-major order. */

static void parts_leave_what_one_copy_leaves(void **state) {
  static const shaped cases[] = {
      {"uint8", "uint8", 1, {NBYTES}, {1}, {1}, 3, 13981014},
      {"uint8", "uint8", 1, {NBYTES / 2}, {2}, {1}, 2, 10485760},
      {"float32", "float32", 2, {3000, 3001}, {1, 3000}, {3001, 1}, 3, 1000 * 3001},
      {"uint8", "uint8", 3, {3, 3000, 4000}, {1, 12000, 3}, {12000000, 4000, 1}, 3, 12000000},
      {"uint8", "float32", 2, {3, 3 << 20}, {3 << 20, 1}, {3 << 20, 1}, 3, 3 << 20},
      {"float32", "uint8", 1, {9 << 20}, {1}, {1}, 1, 9 << 20},
      {"int4", "int4", 2, {5000, 16000}, {16000, 1}, {1, 5000}, 3, 5336 * 5000},
      {"int4", "int4", 1, {75000001}, {1}, {1}, 3, 25000008},
      {"uint16", "uint16", 3, {30, 800, 801}, {-640800, 801, 1}, {801, 24030, 1}, 3, 267 * 24030},
      {"uint16", "uint16", 3, {30, 800, 801}, {640800, 801, 1}, {801, -24030, 1}, 3, 267 * 24030},
      {"uint32", "uint32", 3, {20, 3000, 150}, {450000, 150, 1}, {0, 150, 1}, 3, 7 * 450000},
      {"uint32", "uint32", 4, {1, 20, 3000, 150}, {0, 450000, 150, 1}, {0, 0, 150, 1}, 3, 7 * 450000},
      {"int4", "uint8", 2, {3001, 8000}, {8000, 1}, {8000, 1}, 2, 1504 * 8000},
      {"uint8", "int4", 2, {8000, 5001}, {5001, 1}, {1, 8000}, 2, 2504 * 8000},
      {"uint8", "uint8", 1, {1 << 24}, {1}, {1}, 1, 1 << 24},
      {"uint8", "uint8", 1, {(1 << 24) + 1}, {1}, {1}, 2, (1 << 23) + 1},
  };
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++) {
    const shaped *c = &cases[i];
    mf_tensor *src = spec_wrap(from + before(c, c->src_strides, c->from), c->from, c->ndim, c->shape, c->src_strides);
    unsigned char *places[] = {want, to};
    for (int side = 0; side < 2; side++) {
      memset(places[side], 0x55, NBYTES);
      unsigned char *place = places[side] + before(c, c->dst_strides, c->to);
      mf_tensor *dst = spec_wrap(place, c->to, c->ndim, c->shape, c->dst_strides);
      if (side == 0) {
        OK(mf_tensor_astype(dst, src, &spec_err));
      } else {
        int64_t at = 0;
        OK(mf_tensor_copy_part(dst, src, &at, &spec_err));
        assert_int_equal(at, c->first);
        assert_int_equal(1 + in_parts(dst, src, at), c->parts);
      }
      mf_tensor_release(dst);
    }
    mf_tensor_release(src);
    if (memcmp(to, want, NBYTES) != 0) fail_msg("case %d: the parts leave something else", (int)i);
  }
}

static void what_is_behind_stays(void **state) {
  int64_t at = 0;
  (void)state;
  mf_tensor *src = spec_wrap(from, "uint8", DIMS(NBYTES), NULL), *dst = spec_wrap(to, "uint8", DIMS(NBYTES), NULL);
  memset(to, 0x55, NBYTES);
  memset(want, 0x55, NBYTES);
  OK(mf_tensor_copy_part(dst, src, &at, &spec_err));
  assert_true(at > 0 && at < NBYTES / 2);
  memcpy(want, from, (size_t)at);
  assert_memory_equal(to, want, NBYTES);
  mf_tensor_release(src);
  mf_tensor_release(dst);
}

static void a_small_one_is_one_part(void **state) {
  (void)state;
  int64_t at = 0;
  mf_tensor *a = spec_wrap(from, "float32", DIMS(7, 5), NULL), *b = spec_wrap(to, "float32", DIMS(7, 5), NULL);
  assert_int_equal(in_parts(b, a, 0), 1);
  assert_memory_equal(to, from, 7 * 5 * 4);
  mf_tensor_release(a);
  mf_tensor_release(b);
  a = spec_wrap(from + 64, "float32", 0, NULL, NULL);
  b = spec_wrap(to, "float32", 0, NULL, NULL);
  assert_int_equal(in_parts(b, a, 0), 1);
  assert_memory_equal(to, from + 64, 4);
  mf_tensor_release(a);
  mf_tensor_release(b);
  a = spec_wrap(from, "float32", DIMS(0, 5), NULL);
  b = spec_wrap(to, "float32", DIMS(0, 5), NULL);
  OK(mf_tensor_copy_part(b, a, &at, &spec_err));
  assert_int_equal(at, 0);
  mf_tensor_release(a);
  mf_tensor_release(b);
}

/* No axis is long enough for 6 parts, such as those of the states of qubits. */
enum { SHORT = 12, ROW = 9765625, ALL = 10 * ROW };

static unsigned char *wrap_short(const int64_t *dst_strides, mf_tensor **src, mf_tensor **dst) {
  static const int64_t shape[SHORT] = {2, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5}, src_strides[SHORT] = {1, 2};
  unsigned char *memory = malloc(ALL);
  assert_non_null(memory);
  memset(memory, 0x55, ALL);
  *src = spec_wrap(from, "uint8", SHORT, shape, src_strides);
  *dst = spec_wrap(memory, "uint8", SHORT, shape, dst_strides);
  return memory;
}

static void expect_all(const unsigned char *bytes, int64_t n, unsigned char want_byte) {
  for (int64_t i = 0; i < n; i++)
    if (bytes[i] != want_byte) fail_msg("byte %lld is %#x, not %#x", (long long)i, bytes[i], want_byte);
}

static void short_axes_are_cut_together(void **state) {
  static const int64_t wanted[] = {2, 4, 5, 7, 9, 10}, refused[] = {1, 3, 6, 8};
  mf_tensor *src, *dst;
  int64_t at = 0;
  (void)state;
  unsigned char *memory = wrap_short(NULL, &src, &dst);
  for (size_t i = 0; i < COUNT(wanted); i++) {
    OK(mf_tensor_copy_part(dst, src, &at, &spec_err));
    assert_int_equal(at, wanted[i] * ROW);
    if (i == 0) expect_all(memory + at, ALL - at, 0x55);
  }
  for (int64_t row = 0; row < 10; row++) expect_all(memory + row * ROW, ROW, from[row / 5 + row % 5 * 2]);
  for (size_t i = 0; i < COUNT(refused); i++) {
    at = refused[i] * ROW;
    FAILS(MF_EINVAL, mf_tensor_copy_part(dst, src, &at, &spec_err));
    assert_int_equal(at, refused[i] * ROW);
  }
  mf_tensor_release(src);
  mf_tensor_release(dst);
  free(memory);
}

/* The axes that go farthest in the destination are cut, whichever they are. */
static void short_axes_that_go_farthest(void **state) {
  int64_t strides[SHORT] = {1, 2}, at = 0;
  mf_tensor *src, *dst;
  (void)state;
  for (int i = 2; i < SHORT; i++) strides[i] = strides[i - 1] * 5;
  unsigned char *memory = wrap_short(strides, &src, &dst);
  OK(mf_tensor_copy_part(dst, src, &at, &spec_err));
  assert_int_equal(at, 3 * ALL / 25);
  expect_all(memory + at, ALL - at, 0x55);
  assert_int_equal(in_parts(dst, src, at), 9);
  for (int64_t i = 0; i < ALL; i++)
    if (memory[i] != from[i % 10]) fail_msg("element %d", (int)i);
  mf_tensor_release(src);
  mf_tensor_release(dst);
  free(memory);
}

/* The last of the elements that share a place stays. */
static void short_axes_that_repeat(void **state) {
  int64_t strides[SHORT] = {0};
  mf_tensor *src, *dst;
  (void)state;
  strides[SHORT - 1] = 1;
  for (int i = SHORT - 2; i > 0; i--) strides[i] = strides[i + 1] * 5;
  unsigned char *memory = wrap_short(strides, &src, &dst);
  assert_int_equal(in_parts(dst, src, 0), 6);
  for (int64_t row = 0; row < 5; row++) expect_all(memory + row * ROW, ROW, from[1 + 2 * row]);
  expect_all(memory + 5 * ROW, 5 * ROW, 0x55);
  mf_tensor_release(src);
  mf_tensor_release(dst);
  free(memory);
}

/* Also where nothing is left to copy. */
static void what_is_done_is_refused_like_the_first(void **state) {
  static const int64_t all = 6;
  (void)state;
  int64_t at = all;
  mf_tensor *src = spec_wrap(from, "uint8", DIMS(2, 3), NULL), *dst = spec_wrap(to, "uint8", DIMS(2, 3), NULL);
  mf_tensor *other = spec_wrap(from, "uint8", DIMS(3, 2), NULL), *readonly;
  OK(mf_tensor_as_readonly(dst, &readonly, &spec_err));
  FAILS(MF_EREADONLY, mf_tensor_copy_part(readonly, src, &at, &spec_err));
  FAILS(MF_EINVAL, mf_tensor_copy_part(dst, other, &at, &spec_err));
  SAYS(MF_EINVAL, "reach into the same memory", mf_tensor_copy_part(dst, dst, &at, &spec_err));
  OK(mf_tensor_invalidate(src, NULL, &spec_err));
  FAILS(MF_ECLOSED, mf_tensor_copy_part(dst, src, &at, &spec_err));
  assert_int_equal(at, all);
  mf_tensor *tensors[] = {src, dst, other, readonly};
  for (size_t i = 0; i < COUNT(tensors); i++) mf_tensor_release(tensors[i]);
}

/* One element, or none, is one part. */
static void of_a_single_element_and_of_none(void **state) {
  (void)state;
  mf_tensor *one = spec_wrap(to, "uint8", 0, NULL, NULL), *src = spec_wrap(from, "uint8", 0, NULL, NULL);
  int64_t at = 1;
  to[0] = (unsigned char)~from[0];
  OK(mf_tensor_copy_part(one, src, &at, &spec_err));
  assert_int_not_equal(to[0], from[0]);
  at = 2;
  SAYS(MF_EINVAL, "*at is 2", mf_tensor_copy_part(one, src, &at, &spec_err));
  at = 0;
  SAYS(MF_EINVAL, "reach into the same memory", mf_tensor_copy_part(one, one, &at, &spec_err));
  mf_tensor *single = spec_wrap(from, "complex64", 0, NULL, NULL);
  at = 0;
  FAILS(MF_EDTYPE, mf_tensor_copy_part(one, single, &at, &spec_err));
  assert_int_equal(at, 0);
  mf_tensor_release(single);
  mf_tensor_release(one);
  mf_tensor_release(src);
  mf_tensor *none = spec_wrap(to, "uint8", DIMS(0, 5), NULL);
  mf_tensor *complex = spec_wrap(from, "complex64", DIMS(0, 5), NULL);
  OK(mf_tensor_copy_part(none, none, &at, &spec_err));
  FAILS(MF_EDTYPE, mf_tensor_copy_part(none, complex, &at, &spec_err));
  at = 1;
  SAYS(MF_EINVAL, "*at is 1", mf_tensor_copy_part(none, none, &at, &spec_err));
  mf_tensor_release(none);
  mf_tensor_release(complex);
}

static void refusals(void **state) {
  (void)state;
  int64_t at = 0;
  mf_tensor *src = spec_wrap(from, "uint8", DIMS(NBYTES), NULL), *dst = spec_wrap(to, "uint8", DIMS(NBYTES), NULL);
  mf_tensor *narrow = spec_wrap(to, "uint8", DIMS(NBYTES - 1), NULL);
  mf_tensor *inside = spec_wrap(to + 5, "uint8", DIMS(9), NULL);
  mf_tensor *start = spec_wrap(to, "uint8", DIMS(9), NULL), *complex = spec_wrap(from, "complex64", DIMS(9), NULL);
  mf_tensor *readonly;
  FAILS(MF_EINVAL, mf_tensor_copy_part(narrow, src, &at, &spec_err));
  SAYS(MF_EINVAL, "reach into the same memory", mf_tensor_copy_part(inside, start, &at, &spec_err));
  FAILS(MF_EDTYPE, mf_tensor_copy_part(start, complex, &at, &spec_err));
  OK(mf_tensor_as_readonly(dst, &readonly, &spec_err));
  FAILS(MF_EREADONLY, mf_tensor_copy_part(readonly, src, &at, &spec_err));
  mf_tensor_release(readonly);
  assert_int_equal(at, 0);
  const int64_t wrong[] = {-1, 1, NBYTES + 1, INT64_MIN, INT64_MAX};
  for (size_t i = 0; i < COUNT(wrong); i++) {
    at = wrong[i];
    SAYS(MF_EINVAL, "0, or what the last part left there", mf_tensor_copy_part(dst, src, &at, &spec_err));
    assert_int_equal(at, wrong[i]);
  }
  at = NBYTES;
  mf_fault_arm(0, 1); /* nothing is left to do, so that no memory is needed */
  OK(mf_tensor_copy_part(dst, src, &at, &spec_err));
  mf_fault_arm(-1, 0);
  assert_int_equal(at, NBYTES);
  mf_tensor *all[] = {src, dst, narrow, inside, start, complex};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
}

static int one_part(void *ctx, mf_error *err) {
  mf_tensor **pair = ctx;
  int64_t at = 0;
  const int rc = mf_tensor_copy_part(pair[0], pair[1], &at, err);
  assert_true(rc == MF_OK ? at > 0 : at == 0);
  return rc;
}

static void each_allocation_may_fail(void **state) {
  (void)state;
  mf_tensor *pair[] = {spec_wrap(to, "uint8", DIMS(NBYTES), NULL), spec_wrap(from, "uint8", DIMS(NBYTES), NULL)};
  assert_true(spec_each_failure(one_part, pair) > 0);
  mf_tensor_release(pair[0]);
  mf_tensor_release(pair[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(parts_leave_what_one_copy_leaves),
      SPEC(what_is_behind_stays),
      SPEC(a_small_one_is_one_part),
      SPEC(short_axes_are_cut_together),
      SPEC(short_axes_that_go_farthest),
      SPEC(short_axes_that_repeat),
      SPEC(what_is_done_is_refused_like_the_first),
      SPEC(of_a_single_element_and_of_none),
      SPEC(refusals),
      SPEC(each_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, memory_setup, memory_teardown);
}
