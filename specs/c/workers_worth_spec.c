/* workers_worth_spec.c: which copies and casts have several threads, and which must not. What they make is
 * shared_walk_spec.c's, and that of tiles stream_spec.c's. */
#define _GNU_SOURCE /* nanosleep */
#include "tasks.h"

enum { ROWS = 1023, COLUMNS = 4203, ROW = 4301, ALL = ROWS * COLUMNS };

/* Over memory that is there; a single row is a tensor of one axis. */
static mf_tensor *wrapped(void *data, uint8_t bits, int64_t rows, int64_t columns, int64_t row, int64_t column) {
  int64_t shape[] = {rows, columns}, strides[] = {row, column};
  const int32_t first = rows == 1;
  const DLTensor view = {.data = data, .device = {kDLCPU, 0}, .ndim = 2 - first, .dtype = {kDLUInt, bits, 1},
                         .shape = shape + first, .strides = strides + first};
  mf_tensor *t;
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &t, &spec_err));
  return t;
}

/* How many threads a copy starts, or a cast, and ends. */
static int starts(int threads, mf_tensor *dst, mf_tensor *src) {
  const int before = tasks_at_rest();
  OK(mf_threads_set(threads, &spec_err));
  OK(mf_tensor_astype(dst, src, &spec_err));
  const int more = tasks() - before;
  OK(mf_threads_set(1, &spec_err));
  assert_true(tasks_become(before));
  mf_tensor_release(dst);
  mf_tensor_release(src);
  return more;
}

/* Of two threads that write a byte at the same time, one would lose what the other has put there. */
static void a_byte_is_written_by_one_thread(void **state) {
  void *from = calloc(ALL, 1), *to = calloc(ALL, 1);
  (void)state;
  assert_true(from != NULL && to != NULL);
  assert_int_equal(starts(3, wrapped(to, 4, ROWS, COLUMNS, ROW, 1), wrapped(from, 8, ROWS, COLUMNS, COLUMNS, 1)), 0);
  assert_int_equal(starts(3, wrapped(to, 4, 1, ALL, 0, 2), wrapped(from, 8, 1, ALL, 0, 1)), 2);
  assert_int_equal(starts(3, wrapped(to, 4, ROWS, COLUMNS, ROW, 1), wrapped(from, 4, ROWS, COLUMNS, COLUMNS, 1)), 0);
  assert_int_equal(starts(3, wrapped(to, 4, 1, ALL, 0, 2), wrapped(from, 4, 1, ALL, 0, 1)), 2);
  free(to);
  free(from);
}

static int of_rows(int threads, char *to, uint8_t bits, char *from, int64_t rows, int64_t columns) {
  return starts(threads, wrapped(to, bits, rows, columns, columns + 98, 1),
                wrapped(from, 8, rows, columns, columns, 1));
}

/* Two are enough, and no plane need be read twice. 2 MiB are large. */
static void large_rows_have_several_threads(void **state) {
  char *from = calloc(ROWS, ROW), *to = calloc(ROWS, 2 * ROW);
  (void)state;
  assert_true(from != NULL && to != NULL);
  for (int n = 1; n <= 3; n++)
    for (uint8_t bits = 8; bits <= 16; bits *= 2)
      assert_int_equal(of_rows(n, to, bits, from, ROWS, COLUMNS), n - 1);
  assert_int_equal(of_rows(2, to, 8, from, 1024, 2048), 1);
  assert_int_equal(of_rows(2, to, 8, from, 1025, 2046), 0);
  assert_int_equal(of_rows(2, to, 16, from, 1024, 1024), 1);
  assert_int_equal(of_rows(2, to, 16, from, 1025, 1023), 0);
  free(to);
  free(from);
}

static void large_compact_memory_has_several_threads(void **state) {
  char *from = calloc(ALL, 1), *to = calloc(ALL, 1);
  (void)state;
  assert_true(from != NULL && to != NULL);
  for (int n = 1; n <= 3; n++)
    assert_int_equal(starts(n, wrapped(to, 8, 1, ALL, 0, 1), wrapped(from, 8, 1, ALL, 0, 1)), n - 1);
  free(to);
  free(from);
}

int main(void) {
  start_the_sanitizers_thread();
  const struct CMUnitTest tests[] = {SPEC(a_byte_is_written_by_one_thread), SPEC(large_rows_have_several_threads),
                                     SPEC(large_compact_memory_has_several_threads)};
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
