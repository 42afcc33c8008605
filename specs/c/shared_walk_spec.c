/* shared_walk_spec.c: what goes over two layouts row by row by several threads: comparisons, and what is done to packed
 * elements. The rows themselves are copy_spec.c's, cast_spec.c's and element_spec.c's; the threads, workers_spec.c's.
 */
#include "spec.h"

enum { SIDE = 1024 }; /* 4 MiB, which is worth it */

static mf_tensor *wrapped(uint32_t *data, bool transposed) {
  int64_t shape[] = {SIDE, SIDE}, strides[] = {transposed ? 1 : SIDE, transposed ? SIDE : 1};
  const DLTensor view = {.data = data, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLUInt, 32, 1}, .shape = shape,
                         .strides = strides};
  mf_tensor *t;
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &t, &spec_err));
  return t;
}

/* One element anywhere that differs, whichever thread has it; in one order on both sides, and in two. */
static void a_comparison_is_shared(void **state) {
  static const int64_t places[] = {0, SIDE * SIDE / 3, SIDE * SIDE - 1};
  static uint32_t a[SIDE * SIDE], b[SIDE * SIDE];
  (void)state;
  OK(mf_threads_set(3, &spec_err));
  for (int64_t i = 0; i < SIDE; i++)
    for (int64_t k = 0; k < SIDE; k++) a[i * SIDE + k] = b[i * SIDE + k] = (uint32_t)((i ^ k) + i * k);
  for (int turned = 0; turned < 2; turned++) {
    mf_tensor *x = wrapped(a, false), *y = wrapped(b, turned);
    int32_t same = 0;
    OK(mf_tensor_equal(x, y, &same, &spec_err));
    assert_int_equal(same, 1);
    for (size_t i = 0; i < COUNT(places); i++) {
      b[places[i]] ^= 1u << 31;
      OK(mf_tensor_equal(x, y, &same, &spec_err));
      assert_int_equal(same, 0);
      b[places[i]] ^= 1u << 31;
    }
    mf_tensor_release(x);
    mf_tensor_release(y);
  }
  OK(mf_threads_set(1, &spec_err));
}

static mf_tensor *nibbles(int64_t rows, int64_t columns) {
  const DLTensor like = {.ndim = 2, .dtype = {kDLInt, 4, 1}, .shape = (int64_t[]){rows, columns}};
  mf_tensor *t;
  OK(mf_tensor_create(&like, 0, &t, &spec_err));
  return t;
}

/* Packed elements: what two threads write shares no byte. 3 and 5 rows have no whole number of bytes. */
static void packed_elements_are_shared(void **state) {
  enum { COLUMNS = 1048583, ROWS = 5 };
  const DLTensor like = {.ndim = 2, .dtype = {kDLInt, 16, 1}, .shape = (int64_t[]){ROWS, COLUMNS}};
  mf_tensor *wide, *again, *packed = nibbles(ROWS, COLUMNS), *copy = nibbles(ROWS, COLUMNS);
  const mf_scalar minus = {.kind = MF_KIND_INT, .i = -3};
  int32_t same = 0;
  (void)state;
  OK(mf_tensor_create(&like, 0, &wide, &spec_err));
  OK(mf_tensor_create(&like, 0, &again, &spec_err));
  int16_t *x = mf_tensor_dltensor(wide)->data;
  for (int64_t i = 0; i < ROWS * COLUMNS; i++) x[i] = (int16_t)(i * 7 % 16 - 8);
  OK(mf_threads_set(4, &spec_err));
  OK(mf_tensor_astype(packed, wide, &spec_err));
  OK(mf_tensor_astype(again, packed, &spec_err));
  OK(mf_tensor_equal(again, wide, &same, &spec_err));
  assert_int_equal(same, 1);
  OK(mf_tensor_copy(copy, packed, &spec_err));
  OK(mf_tensor_equal(copy, packed, &same, &spec_err));
  assert_int_equal(same, 1);
  OK(mf_tensor_fill(copy, &minus, &spec_err));
  OK(mf_tensor_astype(again, copy, &spec_err));
  const int16_t *y = mf_tensor_dltensor(again)->data;
  for (int64_t i = 0; i < ROWS * COLUMNS; i++)
    if (y[i] != -3) fail_msg("element %lld is %d", (long long)i, y[i]);
  OK(mf_threads_set(1, &spec_err));
  mf_tensor *flat, *backwards;
  const mf_index item = {.kind = MF_INDEX_SLICE, .start = MF_INDEX_NONE, .stop = MF_INDEX_NONE, .step = -1};
  OK(mf_tensor_reshape(wide, (int64_t[]){ROWS * COLUMNS}, 1, &flat, &spec_err));
  OK(mf_tensor_index(flat, &item, 1, &backwards, &spec_err));
  mf_tensor_release(flat);
  OK(mf_tensor_reshape(packed, (int64_t[]){ROWS * COLUMNS}, 1, &flat, &spec_err));
  OK(mf_tensor_astype(flat, backwards, &spec_err));
  for (int64_t i = 0; i < 8; i++) {
    mf_scalar got;
    OK(mf_tensor_get(flat, &i, 1, &got, &spec_err));
    assert_int_equal(got.i, x[ROWS * COLUMNS - 1 - i]);
  }
  mf_tensor *all[] = {wide, again, packed, copy, flat, backwards};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(a_comparison_is_shared), SPEC(packed_elements_are_shared)};
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
