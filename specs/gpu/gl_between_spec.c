/* gl_between_spec.c: what happens between the mapping of an OpenGL buffer and its unmapping, and inside of either: a
 * capture, a fork, a trim, another thread. */
#include "gl_buffer.h"
#include "left.h"

/* A capture forbids to map and to unmap: that is refused, nothing changes, and the capture stays whole. */
static void a_capture_of_its_stream_is_left_whole(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  mf_gl_buffer *b = opened(buffer, 0);
  const int64_t s = other_stream(0, false);
  int64_t count = FLOATS;
  const DLTensor like = floats(&count);
  mf_tensor *t;
  int32_t in_use = 5;
  other_capture(0, s);
  REFUSED(mf_gl_buffer_map(b, s, &like, &t, &err), MF_ECAPTURE, "is being captured");
  assert_null(t);
  assert_true(other_capture_is_whole(0, s));
  other_graph_end(0, other_capture_end(0, s));
  (void)mapped(b, s);
  other_capture(0, s); /* nothing is to be waited for, and it is refused all the same */
  FAILS(mf_gl_buffer_unmap(b, NULL, &err), MF_ECAPTURE);
  assert_true(other_capture_is_whole(0, s));
  other_graph_end(0, other_capture_end(0, s));
  assert_int_equal(unmapped(b), 0);
  t = mapped(b, s);
  fill(t, 4);
  synchronize(0);
  other_capture(0, s);
  REFUSED(mf_gl_buffer_unmap(b, &in_use, &err), MF_ECAPTURE, "is being captured");
  fill(t, 4); /* nobody has to wait for the stream because of that */
  assert_int_equal(in_use, 0);
  REFUSED(mf_gl_buffer_close(b, &err), MF_ECAPTURE, "is being captured");
  assert_true(other_capture_is_whole(0, s));
  other_graph_end(0, other_capture_end(0, s));
  fill(t, 5); /* it is mapped still */
  assert_int_equal(unmapped(b), 0);
  expect_floats(buffer, 5);
  OK(mf_gl_buffer_close(b, &err));
  assert_int_equal(sim_ask_findings(), 0);
  other_stream_end(s);
  gl_delete(buffer);
}

/* What a capture has used cannot go before the capture is over. */
static void a_capture_that_used_it_keeps_it_mapped(void **state) {
  (void)state;
  char rule[64];
  const unsigned buffer = new_buffer(0);
  mf_gl_buffer *b = opened(buffer, 0);
  const mf_stream s = stream_new(0);
  const int64_t other = other_stream(0, false);
  mf_tensor *t = mapped(b, s);
  synchronize(0);
  other_capture(0, other);
  write_on(t, other, 6);
  FAILS(mf_gl_buffer_unmap(b, NULL, &err), MF_ECAPTURE);
  FAILS(mf_gl_buffer_close(b, &err), MF_ECAPTURE);
  /* also where the stream cannot be made to wait, and the host would wait instead */
  snprintf(rule, sizeof rule, "%s@1:999:once", named("cuStreamGetCaptureInfo", "hipStreamGetCaptureInfo"));
  sim_ask_fail(rule);
  REFUSED(mf_gl_buffer_unmap(b, NULL, &err), MF_ECAPTURE, "is being captured");
  assert_int_equal(sim_ask_faults(), 1);
  sim_ask_reset();
  assert_true(other_capture_is_whole(0, other));
  expect_captured(t, other, 6);
  assert_int_equal(unmapped(b), 0);
  expect_bytes(buffer, 6);
  OK(mf_gl_buffer_close(b, &err));
  assert_int_equal(sim_ask_findings(), 0);
  other_stream_end(other);
  stream_end(0, s);
  gl_delete(buffer);
}

/* Beside a capture of a stream that has nothing to do with it, all can be done. */
static void a_capture_elsewhere_is_no_concern_of_it(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  const mf_stream s = stream_new(0);
  const int64_t other = other_stream(0, false);
  mf_gl_buffer *b = opened(buffer, 0);
  fill(mapped(b, s), 2); /* the first use makes what is kept */
  assert_int_equal(unmapped(b), 0);
  OK(mf_gl_buffer_close(b, &err));
  for (int mapped_at_end = 0; mapped_at_end < 2; mapped_at_end++) {
    other_capture(0, other);
    b = opened(buffer, 0);
    (void)mapped(b, s);
    assert_true(other_capture_is_whole(0, other));
    if (!mapped_at_end) assert_int_equal(unmapped(b), 0);
    OK(mf_gl_buffer_close(b, &err));
    assert_true(other_capture_is_whole(0, other));
    other_graph_end(0, other_capture_end(0, other));
  }
  assert_int_equal(sim_ask_findings(), 0);
  other_stream_end(other);
  stream_end(0, s);
  gl_delete(buffer);
}

/* Between mapping and unmapping */

static mf_gl_buffer *held; /* which what happens there uses */

static void child_ends_what_it_has(void) {
  int64_t count = FLOATS;
  const DLTensor like = floats(&count);
  mf_tensor *t;
  mf_error e;
  alarm(HANGS_SECONDS);
  if (mf_gl_buffer_map(held, MF_STREAM_DEFAULT, &like, &t, &e) == MF_OK) _exit(1);
  if (mf_gl_buffer_unmap(held, NULL, &e) == MF_OK) _exit(2);
  if (mf_gl_buffer_close(held, &e) == MF_OK) _exit(3);
}

static void forks(void *unused) {
  (void)unused;
  in_fork(child_ends_what_it_has);
}

static void *trims_in_thread(void *unused) {
  OK(mf_pools_trim(0, &err));
  return unused;
}

static void another_thread_trims(void *unused) {
  pthread_t thread;
  (void)unused;
  assert_int_equal(pthread_create(&thread, NULL, trims_in_thread, NULL), 0);
  pthread_join(thread, NULL);
}

static void trims(void *unused) {
  (void)trims_in_thread(unused);
}

/* Maps on one stream, uses on another and unmaps, where the event strikes at that driver call. */
static bool maps_with(void (*happen)(void *ctx), uint64_t call, unsigned buffer) {
  const mf_stream s = stream_new(0), other = stream_new(0);
  const uint64_t before = sim_ask_calls(NULL);
  sim_ask_at("*", "*", call, happen, NULL);
  mf_tensor *t = mapped(held, s);
  use_stream(0, other);
  fill(t, call % 100);
  use_stream(0, MF_STREAM_DEFAULT);
  assert_int_equal(unmapped(held), 0);
  const bool happened = sim_ask_calls(NULL) - before >= call;
  sim_ask_at("*", "*", 1, NULL, NULL);
  expect_floats(buffer, call % 100);
  assert_int_equal(sim_ask_findings(), 0);
  stream_end(0, s);
  stream_end(0, other);
  return happened;
}

static void each_call_with(void (*happen)(void *ctx)) {
  const unsigned buffer = new_buffer(0);
  uint64_t call = 1;
  held = opened(buffer, 0);
  while (maps_with(happen, call, buffer)) call++;
  assert_true(call > 4);
  OK(mf_gl_buffer_close(held, &err));
  gl_delete(buffer);
}

static void a_fork_in_between(void **state) {
  (void)state;
  each_call_with(forks);
  /* and while it is mapped */
  const unsigned buffer = new_buffer(0);
  held = opened(buffer, 0);
  fill(mapped(held, MF_STREAM_DEFAULT), 9);
  in_fork(child_ends_what_it_has);
  assert_int_equal(unmapped(held), 0);
  OK(mf_gl_buffer_close(held, &err));
  expect_floats(buffer, 9);
  gl_delete(buffer);
}

static void a_trim_in_between(void **state) {
  (void)state;
  each_call_with(trims);
  each_call_with(another_thread_trims);
}

/* As on another thread, which finds nobody inside of the device: what is registered is of it. */
static void trims_around(void) {
  OK(mf_pools_trim(0, &err));
}

static void expect_not_forgotten(void *unused) {
  (void)unused;
  assert_int_equal(sim_ask_calls("cuDevicePrimaryCtxRelease"), 0);
}

static void a_trim_while_it_is_registered(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  synchronize(0);
  trim_all();
  sim_ask_reset();
  when_left = trims_around;
  held = opened(buffer, 0);
  expect_not_forgotten(NULL);
  when_left = NULL;
  sim_ask_at("cuGraphicsUnregisterResource", "hipGraphicsUnregisterResource", 1, expect_not_forgotten, NULL);
  when_entering = trims_around;
  OK(mf_gl_buffer_close(held, &err));
  when_entering = NULL;
  gl_delete(buffer);
}

static mf_stream captured;
static unsigned until; /* how often the driver is left before the capture begins */

static void capture_then(void) {
  if (until > 0 && --until == 0) other_capture(0, captured);
}

/* Whether another thread's capture of the stream begins within an unmapping, when the driver is left for that time. */
static bool unmaps_while_captured(unsigned time, unsigned buffer) {
  mf_tensor *t = mapped(held, captured);
  fill(t, time);
  until = time;
  when_left = capture_then;
  const int rc = mf_gl_buffer_unmap(held, NULL, &err);
  when_left = NULL;
  const bool happened = until == 0;
  if (happened) {
    assert_true(rc == MF_OK || rc == MF_ECAPTURE);
    if (rc == MF_ECAPTURE) fill(t, time); /* which does not have to wait for what was not queued */
    assert_true(other_capture_is_whole(0, captured));
    other_graph_end(0, other_capture_end(0, captured));
  }
  if (rc == MF_ECAPTURE) {
    fill(t, ++time); /* it is mapped still */
    assert_int_equal(unmapped(held), 0);
  }
  expect_floats(buffer, time);
  return happened;
}

static void a_capture_that_begins_while_it_unmaps_stays_whole(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  unsigned time = 1;
  held = opened(buffer, 0);
  captured = other_stream(0, false);
  while (unmaps_while_captured(time, buffer)) time++;
  assert_true(time > 2);
  OK(mf_gl_buffer_close(held, &err));
  assert_int_equal(sim_ask_findings(), 0);
  other_stream_end(captured);
  gl_delete(buffer);
}

static mf_tensor *seen;
static int was_valid;

static void look(void *unused) {
  (void)unused;
  was_valid = mf_tensor_is_valid(seen);
}

/* Before OpenGL may have it, for whoever looks at the tensor meanwhile. */
static void its_tensor_is_over_when_the_driver_unmaps(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  held = opened(buffer, 0);
  seen = mapped(held, MF_STREAM_DEFAULT);
  was_valid = -1;
  sim_ask_at("cuGraphicsUnmapResources", "hipGraphicsUnmapResources", 1, look, NULL);
  assert_int_equal(unmapped(held), 0);
  assert_int_equal(was_valid, 0);
  OK(mf_gl_buffer_close(held, &err));
  gl_delete(buffer);
}

/* One maps it, the other is told so, and where it would have been mapped stays unknown. */
static int told;
static mf_stream elsewhere;

static void *maps_and_ends_it(void *unused) {
  int64_t count = FLOATS;
  const DLTensor like = floats(&count);
  mf_tensor *t;
  mf_error e;
  told += mf_gl_buffer_map(held, elsewhere, &like, &t, &e) == MF_EINVAL && t == NULL;
  told += mf_gl_buffer_unmap(held, NULL, &e) == MF_EINVAL;
  told += mf_gl_buffer_close(held, &e) == MF_EINVAL;
  return unused;
}

static void another_thread_maps(void *unused) {
  pthread_t thread;
  (void)unused;
  assert_int_equal(pthread_create(&thread, NULL, maps_and_ends_it, NULL), 0);
  pthread_join(thread, NULL);
}

static void of_two_threads_one_has_it(void **state) {
  static const char *const calls[][2] = {{"cuGraphicsMapResources", "hipGraphicsMapResources"},
                                         {"cuGraphicsUnmapResources", "hipGraphicsUnmapResources"},
                                         {"cuGraphicsUnregisterResource", "hipGraphicsUnregisterResource"}};
  (void)state;
  const unsigned buffer = new_buffer(0);
  const mf_stream s = stream_new(0);
  elsewhere = stream_new(0);
  for (size_t i = 0; i < COUNT(calls); i++) {
    held = opened(buffer, 0);
    told = 0;
    sim_ask_at(calls[i][0], calls[i][1], 1, another_thread_maps, NULL);
    fill(mapped(held, s), i);
    assert_int_equal(unmapped(held), 0);
    OK(mf_gl_buffer_close(held, &err));
    assert_int_equal(told, 3);
    expect_floats(buffer, i);
  }
  assert_int_equal(sim_ask_findings(), 0);
  stream_end(0, s);
  stream_end(0, elsewhere);
  gl_delete(buffer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(a_capture_of_its_stream_is_left_whole),
      SPEC(a_capture_that_used_it_keeps_it_mapped),
      SPEC(a_capture_elsewhere_is_no_concern_of_it),
      SPEC(a_fork_in_between),
      SPEC(a_trim_in_between),
      SPEC(a_trim_while_it_is_registered),
      SPEC(a_capture_that_begins_while_it_unmaps_stays_whole),
      SPEC(its_tensor_is_over_when_the_driver_unmaps),
      SPEC(of_two_threads_one_has_it),
  };
  return RUN(tests);
}
