/* capture_beside_spec.c: one thread captures a stream of its own in the strictest mode while another uses Moonferry: no
 * operation breaks that capture, and each does what it does without one. */
#include <pthread.h>

#include "operations.h"

typedef struct job {
  size_t which;
  int rc;
  mf_error err;
} job;

static void *run(void *arg) {
  job *j = arg;
  const DLDevice device = gpu(0);
  j->rc = mf_stream_swap(&device, mine, NULL, &j->err);
  if (j->rc == MF_OK) j->rc = operations[j->which].run(&j->err);
  return NULL;
}

static void beside(int64_t captured, size_t which) {
  job j = {.which = which};
  pthread_t thread;
  other_capture(0, captured);
  other_fill(0, data_of(strided), 1, 1, captured);
  assert_int_equal(pthread_create(&thread, NULL, run, &j), 0);
  pthread_join(thread, NULL);
  const bool whole = other_capture_is_whole(0, captured);
  if (!whole || j.rc != MF_OK)
    fail_msg("%s: the capture is %s; the operation: %d, %s", operations[which].name, whole ? "whole" : "broken", j.rc,
             j.rc == MF_OK ? "" : j.err.message);
  other_graph_end(0, other_capture_end(0, captured));
}

/* What the operation needs is made while the capture goes on (kernels, buffers, events, pools), and then used again. */
static void each_operation(bool warm) {
  for (size_t which = 0; which < COUNT(operations); which++) {
    open_tensors();
    const int64_t captured = other_stream(0, false);
    if (warm) {
      job j = {.which = which};
      run(&j);
      assert_int_equal(j.rc, MF_OK);
      use_stream(0, MF_STREAM_DEFAULT);
    } else {
      trim_all();
    }
    beside(captured, which);
    other_stream_end(captured);
    close_tensors();
    nothing_left();
  }
}

static void the_first_time(void **state) {
  (void)state;
  each_operation(false);
}

static void and_again(void **state) {
  (void)state;
  each_operation(true);
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(the_first_time), SPEC(and_again)};
  return RUN(tests);
}
