/* pool_capture_spec.c: kept memory while a stream is being captured. */
#include "device.h"

enum { NBYTES = 4096 };

static void a_captured_stream_gets_its_kept_block(void **state) {
  (void)state;
  const mf_stream s = stream_new(0);
  use_stream(0, s);
  mf_tensor *t = create(gpu(0), NBYTES);
  void *data = data_of(t);
  write_on(t, s, 1);
  mf_tensor_release(t);
  other_capture(0, s);
  for (int i = 0; i < 2; i++) {
    t = create(gpu(0), NBYTES);
    assert_ptr_equal(data_of(t), data);
    write_on(t, s, 7);
    if (i == 0) mf_tensor_release(t);
  }
  void *graph = other_capture_end(0, s);
  other_launch(0, graph, s);
  expect_filled(t, 7);
  other_graph_end(0, graph);
  mf_tensor_release(t);
  use_stream(0, MF_STREAM_DEFAULT);
  stream_end(0, s);
}

static void a_captured_stream_gets_nothing_new(void **state) {
  (void)state;
  mf_tensor *t;
  const mf_stream s = stream_new(0), b = stream_new(0);
  use_stream(0, b);
  mf_tensor_release(create(gpu(0), NBYTES));
  use_stream(0, s);
  other_capture(0, s);
  REFUSED(create_at(gpu(0), NBYTES, &t), MF_ECAPTURE, "allocate before the capture");
  assert_null(t);
  REFUSED(create_at(gpu(0), NBYTES, &t), MF_ECAPTURE, "4096 bytes");
  /* Another stream of the same thread is not concerned. */
  use_stream(0, b);
  t = create(gpu(0), 3 * NBYTES);
  write_on(t, b, 3);
  void *graph = other_capture_end(0, s);
  other_graph_end(0, graph);
  expect_filled(t, 3);
  mf_tensor_release(t);
  use_stream(0, MF_STREAM_DEFAULT);
  stream_end(0, s);
  stream_end(0, b);
}

/* Nothing is given where the driver does not say whether the stream is being captured. */
static void an_answer_that_fails_is_told(void **state) {
  char rule[64];
  mf_tensor *t;
  (void)state;
  needs_simulator();
  snprintf(rule, sizeof rule, "%s:999:once", named("cuStreamGetCaptureInfo", "hipStreamGetCaptureInfo"));
  sim_ask_fail(rule);
  REFUSED(create_at(gpu(0), NBYTES, &t), MF_EDRIVER, "CaptureInfo");
  assert_int_equal(stats(gpu(0)).used_bytes, 0);
  sim_ask_reset();
}

/* The stream's own work from before the capture is no hindrance, though its own mark is not the only one. */
static void a_captured_stream_is_not_kept_by_its_own_work(void **state) {
  (void)state;
  const mf_stream a = stream_new(0), s = stream_new(0), reader = other_stream(0, false);
  char *seen = other_pinned(1);
  use_stream(0, a);
  mf_tensor *t = create(gpu(0), NBYTES);
  void *data = data_of(t);
  keep_busy(t, s);
  OK(mf_tensor_acquire(t, reader, MF_READ, &err));
  mf_tensor_release(t);
  keep_busy(t = create(gpu(0), 2 * NBYTES), s); /* s goes on for longer than the reader */
  other_sync(0, reader);
  use_stream(0, s);
  other_capture(0, s);
  mf_tensor *captured = create(gpu(0), NBYTES);
  assert_ptr_equal(data_of(captured), data);
  write_on(captured, s, 7);
  void *graph = other_capture_end(0, s);
  other_launch(0, graph, s);
  expect_filled(captured, 7);
  other_graph_end(0, graph);
  mf_tensor_release(captured);
  mf_tensor_release(t);
  use_stream(0, MF_STREAM_DEFAULT);
  other_pinned_free(seen);
  other_stream_end(reader);
  stream_end(0, a);
  stream_end(0, s);
}

/* An event from before the capture cannot be waited for within it. */
static void a_captured_foreign_stream_gets_what_is_done(void **state) {
  (void)state;
  mf_tensor *t;
  const mf_stream s = other_stream(0, false);
  use_stream(0, s);
  for (int done = 0; done < 2; done++) {
    t = create(gpu(0), NBYTES);
    void *data = data_of(t);
    keep_busy(t, s);
    mf_tensor_release(t);
    if (done) other_sync(0, s);
    other_capture(0, s);
    if (done) {
      t = create(gpu(0), NBYTES);
      assert_ptr_equal(data_of(t), data);
    } else {
      REFUSED(create_at(gpu(0), NBYTES, &t), MF_ECAPTURE, "before the capture");
    }
    void *graph = other_capture_end(0, s);
    other_graph_end(0, graph);
    mf_tensor_release(t);
    other_sync(0, s);
  }
  use_stream(0, MF_STREAM_DEFAULT);
  other_stream_end(s);
}

/* Captures in global mode forbid much to their thread, which must not keep other streams from working, nor change what
 * the thread itself is forbidden. */
static void a_capture_does_not_hinder_other_streams(void **state) {
  (void)state;
  const char *mode = named("cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode");
  const mf_stream s = stream_new(0), b = stream_new(0);
  other_capture(0, s);
  use_stream(0, b);
  for (int i = 0; i < 3; i++) {
    mf_tensor *t = create(gpu(0), NBYTES);
    assert_int_equal(sim_ask_calls(mode) % 2, 0);
    if (other_is_simulated()) assert_true(sim_ask_calls(mode) > 0);
    mf_tensor *host = create(pinned(), NBYTES);
    assert_int_equal(sim_ask_calls(mode) % 2, 0);
    write_on(host, b, 1);
    write_on(t, b, 1);
    mf_tensor_release(host);
    mf_tensor_release(t);
    trim(pinned());
    assert_int_equal(sim_ask_calls(mode) % 2, 0);
  }
  void *graph = other_capture_end(0, s);
  other_graph_end(0, graph);
  use_stream(0, MF_STREAM_DEFAULT);
  stream_end(0, s);
  stream_end(0, b);
}

/* Released while one of its streams is captured: nothing can be recorded there, so that it waits for the end. */
static void a_release_during_a_capture_is_deferred(void **state) {
  (void)state;
  const mf_stream a = stream_new(0), s = other_stream(0, false);
  use_stream(0, a);
  mf_tensor *t = create(gpu(0), NBYTES);
  write_on(t, a, 1);
  other_sync(0, a);
  other_capture(0, s);
  write_on(t, s, 2);
  void *data = data_of(t);
  mf_tensor_release(t);
  assert_int_equal(stats(gpu(0)).deferred, 1);
  assert_int_equal(stats(gpu(0)).used_bytes, NBYTES);
  t = create(gpu(0), NBYTES);
  assert_ptr_not_equal(data_of(t), data);
  void *graph = other_capture_end(0, s);
  other_graph_end(0, graph);
  mf_tensor *again = create(gpu(0), NBYTES);
  assert_ptr_equal(data_of(again), data);
  assert_int_equal(stats(gpu(0)).deferred, 0);
  mf_tensor_release(t);
  mf_tensor_release(again);
  use_stream(0, MF_STREAM_DEFAULT);
  stream_end(0, a);
  other_stream_end(s);
}

static void trim_leaves_a_captured_stream_alone(void **state) {
  (void)state;
  const mf_stream s = stream_new(0);
  use_stream(0, s);
  mf_tensor_release(create(gpu(0), NBYTES));
  other_capture(0, s);
  trim(gpu(0));
  assert_int_equal(stats(gpu(0)).cached_bytes, NBYTES);
  void *graph = other_capture_end(0, s);
  other_graph_end(0, graph);
  use_stream(0, MF_STREAM_DEFAULT);
  stream_end(0, s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(a_captured_stream_gets_its_kept_block),
      SPEC(a_captured_stream_is_not_kept_by_its_own_work),
      SPEC(a_captured_stream_gets_nothing_new),
      SPEC(an_answer_that_fails_is_told),
      SPEC(a_captured_foreign_stream_gets_what_is_done),
      SPEC(a_capture_does_not_hinder_other_streams),
      SPEC(a_release_during_a_capture_is_deferred),
      SPEC(trim_leaves_a_captured_stream_alone),
  };
  return RUN(tests);
}
