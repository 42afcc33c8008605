/* order_capture_spec.c: what can be ordered while a stream is being captured, what is refused, and that neither breaks
 * the capture. */
#include <pthread.h>
#include <semaphore.h>

#include "device.h"
#include "left.h"

enum { NBYTES = 1024 };

static void give_to(mf_tensor *t, mf_stream stream) {
  const mf_request request = {.stream = stream};
  DLManagedTensorVersioned *given;
  OK(mf_tensor_export_to(t, &request, &given, &err));
  given->deleter(given);
}

static void uses_of_one_stream_are_captured(void **state) {
  (void)state;
  const mf_stream s = stream_new(0);
  use_stream(0, s);
  mf_tensor *from = create(gpu(0), NBYTES), *to = create(gpu(0), NBYTES);
  fill(from, 1);
  fill(to, 2);
  other_capture(0, s);
  OK(mf_tensor_copy(to, from, &err));
  fill(from, 9);
  give_to(to, s);
  void *graph = other_capture_end(0, s);
  expect_filled(to, 2);
  OK(mf_tensor_acquire(to, s, MF_WRITE, &err));
  OK(mf_tensor_acquire(from, s, MF_WRITE, &err));
  other_launch(0, graph, s);
  expect_filled(to, 1);
  expect_filled(from, 9);
  OK(mf_tensor_acquire(to, s, MF_WRITE, &err));
  OK(mf_tensor_acquire(from, s, MF_WRITE, &err));
  other_launch(0, graph, s);
  expect_filled(to, 9);
  other_graph_end(0, graph);
  mf_tensor_release(from);
  mf_tensor_release(to);
  stream_end(0, s);
}

static void streams_of_one_capture_order_each_other(void **state) {
  const DLDevice device = gpu(0);
  (void)state;
  const mf_stream a = stream_new(0), b = stream_new(0);
  use_stream(0, a);
  mf_tensor *t = create(gpu(0), NBYTES), *u = create(gpu(0), NBYTES);
  fill(t, 1);
  OK(mf_stream_synchronize(&device, a, &err));
  other_capture(0, a);
  other_after(0, b, a); /* b joins the capture */
  fill(t, 5);
  use_stream(0, b);
  OK(mf_tensor_copy(u, t, &err));
  other_after(0, a, b);
  void *graph = other_capture_end(0, a);
  OK(mf_tensor_acquire(u, a, MF_WRITE, &err));
  OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  other_launch(0, graph, a);
  use_stream(0, a);
  expect_filled(u, 5);
  other_graph_end(0, graph);
  mf_tensor_release(t);
  mf_tensor_release(u);
  stream_end(0, a);
  stream_end(0, b);
}

/* A capture cannot wait for work outside, nor be waited for: both are refused, with the same words, and leave the
 * capture whole. */
static void captured_and_not_is_refused(void **state) {
  const char *name = other_device_type() == kDLROCM ? "rocm" : "cuda";
  char words[128];
  (void)state;
  const mf_stream in = stream_new(0), out = stream_new(0);
  snprintf(words, sizeof words, "stream 0x%llx of %s:0 is being captured and stream 0x%llx of %s:0 is not",
           (unsigned long long)in, name, (unsigned long long)out, name);
  use_stream(0, out);
  mf_tensor *outside = create(gpu(0), NBYTES), *inside = create(gpu(0), NBYTES);
  fill(outside, 3);
  use_stream(0, in);
  OK(mf_tensor_acquire(inside, in, MF_WRITE, &err));
  other_capture(0, in);
  REFUSED(mf_tensor_acquire(outside, in, MF_READ, &err), MF_ECAPTURE, words);
  fill(inside, 4);
  REFUSED(mf_tensor_acquire(inside, out, MF_READ, &err), MF_ECAPTURE, words);
  FAILS(mf_tensor_acquire(inside, MF_STREAM_HOST, MF_READ, &err), MF_ECAPTURE);
  give_to(outside, MF_STREAM_NO_ORDER);
  void *graph = other_capture_end(0, in);
  other_launch(0, graph, in);
  OK(mf_tensor_acquire(inside, in, MF_WRITE, &err));
  expect_filled(inside, 4);
  expect_filled(outside, 3);
  other_graph_end(0, graph);
  mf_tensor_release(inside);
  mf_tensor_release(outside);
  stream_end(0, in);
  stream_end(0, out);
}

/* What is done needs no waiting, so that a capture may use what was made elsewhere before. */
static void finished_work_outside_is_no_hindrance(void **state) {
  const DLDevice device = gpu(0);
  (void)state;
  const mf_stream in = stream_new(0), out = stream_new(0);
  use_stream(0, out);
  mf_tensor *made = create(device, NBYTES), *to = create(device, NBYTES);
  fill(made, 6);
  OK(mf_tensor_acquire(to, in, MF_WRITE, &err));
  OK(mf_stream_synchronize(&device, out, &err));
  use_stream(0, in);
  other_capture(0, in);
  OK(mf_tensor_copy(to, made, &err));
  expect_captured(to, in, 6);
  mf_tensor_release(made);
  mf_tensor_release(to);
  stream_end(0, in);
  stream_end(0, out);
}

static mf_tensor *shared;
static sem_t written, may_end;

static void *write_on_my_stream(void *arg) {
  OK(mf_tensor_acquire(shared, MF_STREAM_PER_THREAD, MF_WRITE, &err));
  for (int i = 0; i < 300; i++) other_fill(0, data_of(shared), 6, NBYTES, 2);
  return arg;
}

/* At its end a thread waits for its stream. */
static void *write_and_stay(void *arg) {
  (void)write_on_my_stream(arg);
  sem_post(&written);
  sem_wait(&may_end);
  return arg;
}

/* Another thread's own stream has no name here, so that an event tells whether it is done; none is lost by that. Of
 * one that was just recorded CUDA need not say so at once, even where all is done. */
static void another_threads_work_is_asked_about_by_an_event(void **state) {
  const DLDevice device = gpu(0);
  char rule[64];
  pthread_t thread;
  (void)state;
  needs_simulator();
  const mf_stream s = stream_new(0);
  shared = create(device, NBYTES);
  sem_init(&written, 0, 0);
  sem_init(&may_end, 0, 0);
  assert_int_equal(pthread_create(&thread, NULL, write_and_stay, NULL), 0);
  sem_wait(&written);
  other_capture(0, s);
  FAILS(mf_tensor_acquire(shared, s, MF_READ, &err), MF_ECAPTURE);
  const int64_t events = sim_ask_left("events");
  for (int i = 0; i < 3; i++) FAILS(mf_tensor_acquire(shared, s, MF_READ, &err), MF_ECAPTURE);
  assert_int_equal(sim_ask_left("events"), events);
  snprintf(rule, sizeof rule, "%s:999:once", named("cuEventRecord", "hipEventRecord"));
  sim_ask_fail(rule);
  REFUSED(mf_tensor_acquire(shared, s, MF_READ, &err), MF_EDRIVER, "EventRecord");
  other_graph_end(0, other_capture_end(0, s));
  sem_post(&may_end);
  assert_int_equal(pthread_join(thread, NULL), 0);
  OK(mf_device_synchronize(&device, &err));
  other_capture(0, s);
  if (other_device_type() == kDLROCM) OK(mf_tensor_acquire(shared, s, MF_READ, &err));
  other_graph_end(0, other_capture_end(0, s));
  expect_filled(shared, 6);
  mf_tensor_release(shared);
  stream_end(0, s);
}

/* This thread's own stream has the same number, but is another; that it is being captured does not make the two one. */
static void another_threads_stream_is_not_in_this_ones_capture(void **state) {
  const DLDevice device = gpu(0);
  pthread_t thread;
  (void)state;
  shared = create(device, NBYTES);
  assert_int_equal(pthread_create(&thread, NULL, write_on_my_stream, NULL), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  other_capture(0, MF_STREAM_PER_THREAD);
  FAILS(mf_tensor_acquire(shared, MF_STREAM_PER_THREAD, MF_READ, &err), MF_ECAPTURE);
  assert_true(other_capture_is_whole(0, MF_STREAM_PER_THREAD));
  other_graph_end(0, other_capture_end(0, MF_STREAM_PER_THREAD));
  expect_filled(shared, 6);
  mf_tensor_release(shared);
}

/* A deleter that runs during a capture must neither break it nor free what the capture still reads. */
static void releases_during_a_capture_wait(void **state) {
  const DLDevice device = gpu(0);
  (void)state;
  const mf_stream s = stream_new(0), other = stream_new(0);
  use_stream(0, s);
  mf_tensor *t = create(device, NBYTES), *kept = create(device, NBYTES);
  fill(t, 8);
  fill(kept, 1);
  OK(mf_tensor_acquire(kept, other, MF_READ, &err));
  OK(mf_stream_synchronize(&device, other, &err));
  other_capture(0, s);
  fill(kept, 2);
  mf_tensor_release(t);
  expect_captured(kept, s, 2);
  mf_tensor_release(kept);
  stream_end(0, s);
  stream_end(0, other);
}

/* To wait for a device while one of its streams is being captured is an error that breaks the capture (CUDA Programming
 * Guide, "Prohibited and Unhandled Operations"), whatever mode a thread is in. It happens only to who asks for it. */
static void a_wait_for_the_device_breaks_a_capture(void **state) {
  const DLDevice device = gpu(0);
  (void)state;
  const mf_stream s = stream_new(0);
  use_stream(0, s);
  mf_tensor *t = create(device, NBYTES);
  fill(t, 1);
  OK(mf_stream_synchronize(&device, s, &err));
  other_capture(0, s);
  fill(t, 8);
  FAILS(mf_device_synchronize(&device, &err), MF_ECAPTURE);
  assert_false(other_capture_is_whole(0, s));
  FAILS(try_fill(t, 9), MF_ECAPTURE); /* until it is ended */
  FAILS(mf_stream_synchronize(&device, s, &err), MF_ECAPTURE);
  SAYS("broken");
  other_capture_give_up(0, s);
  fill(t, 9);
  expect_filled(t, 9);
  OK(mf_device_synchronize(&device, &err));
  sim_ask_reset(); /* the simulator reports what broke the capture, as it should */
  mf_tensor_release(t);
  stream_end(0, s);
}

/* A blocking stream, as CuPy makes them by default: while it is captured the legacy stream may not even be asked. What
 * that stream used before is refused, and says what helps; the capture stays whole. */
static void the_legacy_stream_beside_a_blocking_capture(void **state) {
  (void)state;
  const mf_stream theirs = other_stream(0, true);
  const mf_request request = {.stream = theirs};
  DLManagedTensorVersioned *given;
  mf_tensor *t = create(gpu(0), NBYTES), *other = create(gpu(0), NBYTES), *copy;
  fill(t, 1);
  fill(other, 1);
  OK(mf_tensor_acquire(other, MF_STREAM_HOST, MF_WRITE, &err));
  other_sync_all(0);
  other_capture(0, theirs);
  FAILS(mf_tensor_export_to(t, &request, &given, &err), MF_ECAPTURE);
  SAYS("MF_STREAM_HOST");
  FAILS(try_fill(t, 2), MF_ECAPTURE); /* on the legacy stream itself */
  SAYS("legacy");
  FAILS(mf_tensor_clone(t, &copy, &err), MF_ECAPTURE);
  assert_true(other_capture_is_whole(0, theirs));
  OK(mf_tensor_export_to(other, &request, &given, &err));
  other_fill(0, given->dl_tensor.data, 3, NBYTES, theirs);
  given->deleter(given);
  mf_tensor_release(t); /* what it waits for is asked for later */
  OK(mf_pools_trim(0, &err));
  assert_true(other_capture_is_whole(0, theirs));
  expect_captured(other, theirs, 3);
  mf_tensor_release(other);
  other_sync_all(0);
  other_stream_end(theirs);
}

static void capture_now(void *stream) {
  other_capture(0, *(const mf_stream *)stream);
}

/* As on another thread: a long copy is on its way in the legacy stream, and its buffers are made. */
static void a_capture_that_begins_within_a_long_copy_stays_whole(void **state) {
  enum { PARTS = 20 << 20 };
  (void)state;
  needs_simulator();
  mf_stream theirs = other_stream(0, true);
  for (int up = 0; up < 2; up++) {
    mf_tensor *host = create((DLDevice){kDLCPU, 0}, PARTS), *there = create(gpu(0), PARTS);
    mf_tensor *to = up ? there : host, *from = up ? host : there;
    fill(from, 1);
    synchronize(0);
    trim_all();
    sim_ask_at("cuMemHostAlloc", "hipHostMalloc", 2, capture_now, &theirs);
    FAILS(mf_tensor_copy(to, from, &err), MF_ECAPTURE);
    SAYS("legacy");
    assert_true(other_capture_is_whole(0, theirs));
    other_graph_end(0, other_capture_end(0, theirs));
    OK(mf_tensor_copy(to, from, &err));
    expect_filled(to, 1);
    mf_tensor_release(host);
    mf_tensor_release(there);
  }
  other_stream_end(theirs);
}

/* Nor while the kernel of a copy is made, which takes longer than all else. */
static void a_capture_that_begins_while_a_kernel_is_made_stays_whole(void **state) {
  (void)state;
  needs_simulator();
  mf_stream theirs = other_stream(0, true);
  int64_t shape[2] = {64, 64};
  const DLTensor like = {.device = gpu(0), .ndim = 2, .dtype = {kDLUInt, 64, 1}, .shape = shape};
  mf_tensor *from, *to, *turned;
  OK(mf_tensor_create(&like, 0, &from, &err));
  OK(mf_tensor_create(&like, 0, &to, &err));
  OK(mf_tensor_permute_dims(from, NULL, 0, &turned, &err));
  fill(from, 0);
  synchronize(0);
  sim_ask_at("cuModuleLoadDataEx", "hipModuleLoadData", 1, capture_now, &theirs);
  FAILS(mf_tensor_copy(to, turned, &err), MF_ECAPTURE);
  SAYS("legacy");
  assert_true(other_capture_is_whole(0, theirs));
  other_graph_end(0, other_capture_end(0, theirs));
  OK(mf_tensor_copy(to, turned, &err));
  expect_filled(to, 0);
  mf_tensor_release(turned);
  mf_tensor_release(from);
  mf_tensor_release(to);
  other_stream_end(theirs);
}

/* What mixes the legacy stream with others, and what happens in it when another thread begins a capture. */
static int wait_behind_legacy(void) {
  const DLDevice device = gpu(0);
  return mf_stream_wait(&device, MF_STREAM_PER_THREAD, &device, MF_STREAM_DEFAULT, &err);
}

static int synchronize_legacy(void) {
  const DLDevice device = gpu(0);
  return mf_stream_synchronize(&device, MF_STREAM_DEFAULT, &err);
}

static int query_legacy(void) {
  const DLDevice device = gpu(0);
  int32_t done;
  return mf_stream_query(&device, MF_STREAM_DEFAULT, &done, &err);
}

/* The driver has no memory before the host has waited, and has freed what was kept. */
static int allocate_at_last(void) {
  const char *name = named("cuMemAllocFromPoolAsync", "hipMallocFromPoolAsync");
  char rules[200];
  mf_tensor *t;
  snprintf(rules, sizeof rules, "%s:2:once,%s:2:once,%s:2:once", name, name, name);
  if (sim_ask_calls(name) == 0) sim_ask_fail(rules);
  const int rc = create_at(gpu(0), NBYTES, &t);
  mf_tensor_release(t);
  return rc;
}

static void a_capture_that_begins_between_two_calls_stays_whole(void **state) {
  static const struct {
    int (*run)(void);
    const char *cuda, *hip; /* the driver call in which it begins */
  } cases[] = {
      {wait_behind_legacy, "cuEventCreate", "hipEventCreateWithFlags"},
      {synchronize_legacy, "cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode"},
      {query_legacy, "cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode"},
      {allocate_at_last, "cuMemPoolTrimTo", "hipMemPoolTrimTo"},
  };
  (void)state;
  needs_simulator();
  mf_stream theirs = other_stream(0, true);
  for (size_t i = 0; i < COUNT(cases); i++) {
    synchronize(0);
    trim_all();
    sim_ask_reset();
    sim_ask_at(cases[i].cuda, cases[i].hip, 1, capture_now, &theirs);
    if (cases[i].run() != MF_ECAPTURE) fail_msg("case %zu: %s", i, mf_status_name(err.status));
    SAYS("legacy");
    if (!other_capture_is_whole(0, theirs)) fail_msg("case %zu breaks it", i);
    other_graph_end(0, other_capture_end(0, theirs));
    OK(cases[i].run());
  }
  other_stream_end(theirs);
}

static mf_stream soon_captured;
static int scopes_before; /* until it is */

static void capture_at_a_scope(void) {
  if (--scopes_before == 0) other_capture(0, soon_captured);
}

/* A capture of the copy's stream that begins before one scope after another, once the memory's earlier work is done on
 * the other stream: where the copy is refused nothing was queued, and the other stream may go on using the memory while
 * the capture lasts. Returns whether the copy had so many scopes. */
static bool refused_without_a_use(mf_tensor *t, const mf_tensor *host, mf_stream other, int nth) {
  const DLDevice device = gpu(0);
  soon_captured = stream_new(0);
  use_stream(0, other);
  fill(t, 1);
  OK(mf_stream_synchronize(&device, other, &err));
  use_stream(0, soon_captured);
  scopes_before = nth;
  when_entering = capture_at_a_scope;
  const int rc = mf_tensor_copy(t, host, &err);
  when_entering = NULL;
  const bool began = scopes_before <= 0;
  assert_true(rc == MF_OK || (began && rc == MF_ECAPTURE));
  if (rc != MF_OK) OK(mf_tensor_acquire(t, other, MF_WRITE, &err));
  if (began) {
    assert_true(other_capture_is_whole(0, soon_captured));
    other_graph_end(0, other_capture_end(0, soon_captured));
  }
  use_stream(0, MF_STREAM_DEFAULT);
  stream_end(0, soon_captured);
  return began;
}

/* Through pinned memory, and through one buffer of the staging ring. */
static void what_is_refused_halfway_is_no_use(void **state) {
  const int64_t sizes[] = {NBYTES, 100 << 10};
  (void)state;
  needs_simulator();
  const mf_stream other = stream_new(0);
  for (size_t i = 0; i < COUNT(sizes); i++) {
    mf_tensor *t = create(gpu(0), sizes[i]), *host = create((DLDevice){kDLCPU, 0}, sizes[i]);
    int nth = 1;
    while (refused_without_a_use(t, host, other, nth)) nth++;
    assert_true(nth > 2);
    mf_tensor_release(host);
    mf_tensor_release(t);
  }
  stream_end(0, other);
}

/* A stream of our own lasts as long as what used it, whatever the driver answers where it is asked for it. */
static void our_own_stream_is_not_taken_for_a_destroyed_one(void **state) {
  (void)state;
  needs_simulator();
  const mf_stream s = stream_new(0), theirs = other_stream(0, false);
  use_stream(0, s);
  mf_tensor *from = create(gpu(0), NBYTES), *to = create(gpu(0), NBYTES);
  fill(from, 1);
  fill(to, 2);
  use_stream(0, theirs);
  other_capture(0, theirs);
  sim_ask_fail(named("cuStreamGetCtx:1:once", "hipStreamGetDevice:1:once"));
  FAILS(mf_tensor_copy(to, from, &err), MF_ECAPTURE);
  SAYS("is being captured");
  other_graph_end(0, other_capture_end(0, theirs));
  sim_ask_reset();
  OK(mf_tensor_copy(to, from, &err));
  expect_filled(to, 1);
  use_stream(0, MF_STREAM_DEFAULT);
  mf_tensor_release(from);
  mf_tensor_release(to);
  stream_end(0, s);
  synchronize(0);
  other_stream_end(theirs);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(uses_of_one_stream_are_captured),
      SPEC(streams_of_one_capture_order_each_other),
      SPEC(captured_and_not_is_refused),
      SPEC(finished_work_outside_is_no_hindrance),
      SPEC(another_threads_work_is_asked_about_by_an_event),
      SPEC(another_threads_stream_is_not_in_this_ones_capture),
      SPEC(releases_during_a_capture_wait),
      SPEC(a_wait_for_the_device_breaks_a_capture),
      SPEC(the_legacy_stream_beside_a_blocking_capture),
      SPEC(a_capture_that_begins_within_a_long_copy_stays_whole),
      SPEC(a_capture_that_begins_between_two_calls_stays_whole),
      SPEC(a_capture_that_begins_while_a_kernel_is_made_stays_whole),
      SPEC(what_is_refused_halfway_is_no_use),
      SPEC(our_own_stream_is_not_taken_for_a_destroyed_one),
  };
  return RUN(tests);
}
