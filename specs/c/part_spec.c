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

/* Copies in parts; returns how many there were. */
static int in_parts(mf_tensor *dst, mf_tensor *src) {
  const int64_t numel = mf_tensor_size(dst);
  int64_t at = 0;
  int n = 0;
  while (at < numel) {
    const int64_t before = at;
    OK(mf_tensor_copy_part(dst, src, &at, &spec_err));
    assert_true(at > before && at <= numel);
    n++;
  }
  return n;
}

typedef struct shaped {
  const char *from, *to;
  int32_t ndim;
  int64_t shape[4], src_strides[4], dst_strides[4];
  int least; /* parts */
} shaped;

static void parts_leave_what_one_copy_leaves(void **state) {
  static const shaped cases[] = {
      {"uint8", "uint8", 1, {NBYTES}, {1}, {1}, 3},
      {"uint8", "uint8", 1, {NBYTES / 2}, {2}, {1}, 2},
      {"float32", "float32", 2, {3000, 3001}, {1, 3000}, {3001, 1}, 3},
      {"uint8", "uint8", 3, {3, 3000, 4000}, {1, 12000, 3}, {12000000, 4000, 1}, 3},
      {"uint8", "float32", 2, {3, 3 << 20}, {3 << 20, 1}, {3 << 20, 1}, 3},
      {"float32", "uint8", 1, {9 << 20}, {1}, {1}, 1},
      {"int4", "int4", 2, {5000, 16000}, {16000, 1}, {1, 5000}, 3},
      {"int4", "int4", 1, {75000001}, {1}, {1}, 3},
      {"uint16", "uint16", 3, {30, 800, 801}, {-640800, 801, 1}, {801, 24030, 1}, 3},
      {"uint32", "uint32", 3, {20, 3000, 150}, {450000, 150, 1}, {0, 150, 1}, 3},
  };
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++) {
    const shaped *c = &cases[i];
    const bool back = c->src_strides[0] < 0;
    unsigned char *first = from + (back ? -(c->shape[0] - 1) * c->src_strides[0] * spec_dtype(c->from).bits / 8 : 0);
    mf_tensor *src = spec_wrap(first, c->from, c->ndim, c->shape, c->src_strides);
    unsigned char *places[] = {want, to};
    for (int side = 0; side < 2; side++) {
      memset(places[side], 0x55, NBYTES);
      mf_tensor *dst = spec_wrap(places[side], c->to, c->ndim, c->shape, c->dst_strides);
      if (side == 0)
        OK(mf_tensor_astype(dst, src, &spec_err));
      else
        assert_true(in_parts(dst, src) >= c->least);
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
  assert_int_equal(in_parts(b, a), 1);
  assert_memory_equal(to, from, 7 * 5 * 4);
  mf_tensor_release(a);
  mf_tensor_release(b);
  a = spec_wrap(from + 64, "float32", 0, NULL, NULL);
  b = spec_wrap(to, "float32", 0, NULL, NULL);
  assert_int_equal(in_parts(b, a), 1);
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
  OK(mf_tensor_copy_part(dst, src, &at, &spec_err));
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
      SPEC(parts_leave_what_one_copy_leaves), SPEC(what_is_behind_stays),     SPEC(a_small_one_is_one_part),
      SPEC(refusals),                         SPEC(each_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, memory_setup, memory_teardown);
}
