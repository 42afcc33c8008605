/* capture_begins_spec.c: somebody begins to capture a stream just between our question whether it is captured and the
 * record of an event there. The capture stays whole, what waits for the stream is refused as if it had come a moment
 * later, and nothing is lost: once the capture has ended, the memory is used and given back as any other. */
#include "loan.h"

static mf_stream theirs;

static void begin_capture(void *unused) {
  (void)unused;
  other_capture(0, theirs);
}

/* The next event that is recorded comes into a capture. */
static void arm(void) {
  sim_ask_at("cuEventRecord", "hipEventRecord", 1, begin_capture, NULL);
}

static void disarm(void) {
  sim_ask_at("*", "*", 1, NULL, NULL);
}

static void end_capture(void) {
  disarm();
  assert_true(other_capture_is_whole(0, theirs));
  other_graph_end(0, other_capture_end(0, theirs));
}

static void what_a_consumer_gives_back_is_used_again(void **state) {
  (void)state;
  needs_simulator();
  theirs = other_stream(0, false);
  mf_tensor *t = create(gpu(0), NBYTES);
  const mf_request request = {.stream = theirs};
  DLManagedTensorVersioned *m;
  OK(mf_tensor_export_to(t, &request, &m, &err));
  other_fill(0, m->dl_tensor.data, 7, NBYTES, theirs);
  arm();
  m->deleter(m);
  end_capture();
  expect_filled(t, 7);
  OK(mf_tensor_acquire(t, MF_STREAM_DEFAULT, MF_WRITE, &err));
  mf_tensor_release(t);
  synchronize(0);
  other_stream_end(theirs);
}

static void what_is_released_is_given_back(void **state) {
  (void)state;
  needs_simulator();
  loan *l = loan_new();
  theirs = other_stream(0, false);
  mf_tensor *t = import(l);
  keep_busy(t, theirs);
  arm();
  mf_tensor_release(t);
  poll();
  end_capture();
  synchronize(0);
  loan_end(l);
  other_stream_end(theirs);
}

static void what_goes_to_the_pool_is_taken_again(void **state) {
  (void)state;
  needs_simulator();
  theirs = other_stream(0, false);
  mf_tensor *t = create(gpu(0), NBYTES);
  keep_busy(t, theirs);
  arm();
  mf_tensor_release(t);
  poll();
  end_capture();
  synchronize(0);
  trim(gpu(0));
  assert_int_equal(stats(gpu(0)).used_bytes + stats(gpu(0)).cached_bytes, 0);
  other_stream_end(theirs);
}

/* Its stream would become a part of the capture, and do nothing of what it is told. */
static void who_waits_is_refused(void **state) {
  (void)state;
  needs_simulator();
  theirs = other_stream(0, false);
  const mf_stream s = stream_new(0);
  mf_tensor *t = create(gpu(0), NBYTES);
  OK(mf_tensor_acquire(t, theirs, MF_WRITE, &err));
  arm();
  assert_int_equal(mf_tensor_acquire(t, s, MF_WRITE, &err), MF_ECAPTURE);
  end_capture();
  OK(mf_tensor_acquire(t, s, MF_WRITE, &err));
  mf_tensor_release(t);
  stream_end(0, s);
  other_stream_end(theirs);
}

/* The copy may have a part in the capture already, which is broken: its graph would copy from a buffer that is another
 * copy's by then. The buffer is used again once the device was waited for. */
static void copy_pageable(const char *cuda, const char *hip) {
  enum { MUCH = 1 << 20, BUFFERS = 4 };
  theirs = other_stream(0, false);
  mf_tensor *host = create((DLDevice){kDLCPU, 0}, MUCH), *t = create(gpu(0), MUCH);
  fill(host, 7);
  OK(mf_tensor_acquire(t, theirs, MF_WRITE, &err));
  use_stream(0, theirs);
  sim_ask_at(cuda, hip, 1, begin_capture, NULL);
  FAILS(mf_tensor_copy(t, host, &err), MF_ECAPTURE);
  disarm();
  assert_false(other_capture_is_whole(0, theirs));
  other_capture_give_up(0, theirs);
  sim_ask_reset();
  use_stream(0, MF_STREAM_DEFAULT);
  synchronize(0);
  for (int i = 0; i <= BUFFERS; i++) OK(mf_tensor_copy(t, host, &err));
  expect_filled(t, 7);
  mf_tensor_release(t);
  mf_tensor_release(host);
  other_stream_end(theirs);
}

static void a_copy_of_pageable_memory_is_refused(void **state) {
  (void)state;
  needs_simulator();
  copy_pageable("cuMemcpyAsync", "hipMemcpyAsync");
  copy_pageable("cuEventRecord", "hipEventRecord");
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(what_a_consumer_gives_back_is_used_again),
                                     SPEC(what_is_released_is_given_back),
                                     SPEC(what_goes_to_the_pool_is_taken_again), SPEC(who_waits_is_refused),
                                     SPEC(a_copy_of_pageable_memory_is_refused)};
  return RUN(tests);
}
