/* order_gone_spec.c: a stream of somebody else's that its owner destroys when its consumer is done, while the memory
 * lives on: what it had queued is waited for, and its handle is not used again. And what becomes of the use of a tensor
 * where an owner has broken the promise that the stream lives. */
#include "device.h"

enum { NBYTES = 1024 };

static uint64_t records(void) {
  return sim_ask_calls(named("cuEventRecord", "hipEventRecord"));
}

static uint64_t waits(void) {
  return sim_ask_calls(named("cuStreamWaitEvent", "hipStreamWaitEvent"));
}

static void expect_calls(uint64_t want_records, uint64_t want_waits, int line) {
  if (!other_is_simulated() || (records() == want_records && waits() == want_waits)) return;
  fail_msg("line %d: %d records and %d waits, not %d and %d", line, (int)records(), (int)waits(), (int)want_records,
           (int)want_waits);
}

#define EXPECT_CALLS(records, waits) expect_calls(records, waits, __LINE__)

static DLManagedTensorVersioned *give(mf_tensor *t, mf_stream stream) {
  const mf_request request = {.stream = stream};
  DLManagedTensorVersioned *given;
  OK(mf_tensor_export_to(t, &request, &given, &err));
  return given;
}

/* A consumer on a stream of its own, which it destroys when it has queued its work and called the deleter. */
static void consume(mf_tensor *t, int byte) {
  const mf_stream s = other_stream(0, false);
  DLManagedTensorVersioned *given = give(t, s);
  other_fill(0, given->dl_tensor.data, byte, NBYTES, s);
  given->deleter(given);
  other_stream_end(s);
}

static void read_by_other(mf_tensor *t, void *to) {
  const mf_stream s = other_stream(0, false);
  DLManagedTensorVersioned *given = give(t, s);
  other_copy(0, to, given->dl_tensor.data, NBYTES, s);
  given->deleter(given);
  other_stream_end(s);
}

typedef void (*next_use)(mf_tensor *t);

static void on_the_host(mf_tensor *t) {
  expect_filled(t, 6);
}

static void acquired_for_the_host(mf_tensor *t) {
  OK(mf_tensor_acquire(t, MF_STREAM_HOST, MF_READ, &err));
  expect_filled(t, 6);
}

static void on_our_stream(mf_tensor *t) {
  const mf_stream s = stream_new(0);
  use_stream(0, s);
  expect_filled(t, 6);
  fill(t, 7);
  expect_filled(t, 7);
  use_stream(0, MF_STREAM_DEFAULT);
  stream_end(0, s);
}

static void by_another_consumer(mf_tensor *t) {
  consume(t, 8);
  consume(t, 9);
  expect_filled(t, 9);
}

static void by_a_copy(mf_tensor *t) {
  mf_tensor *copy;
  OK(mf_tensor_clone(t, &copy, &err));
  expect_filled(copy, 6);
  mf_tensor_release(copy);
}

static void by_nobody(mf_tensor *t) {
  (void)t;
}

static void the_next_use_waits_for_what_it_queued(void **state) {
  const next_use uses[] = {on_the_host,         acquired_for_the_host, on_our_stream,
                           by_another_consumer, by_a_copy,             by_nobody};
  (void)state;
  for (uint64_t seed = 0; seed < 50; seed++) {
    for (size_t i = 0; i < COUNT(uses); i++) {
      sim_ask_seed(seed);
      mf_tensor *t = create(gpu(0), NBYTES);
      fill(t, 1);
      consume(t, 6);
      uses[i](t);
      mf_tensor_release(t);
      t = create(gpu(0), NBYTES); /* the same memory */
      fill(t, 2);
      expect_filled(t, 2);
      mf_tensor_release(t);
    }
    if (sim_ask_findings() != 0) fail_msg("seed %llu", (unsigned long long)seed);
  }
}

static void what_only_reads_is_waited_for_by_a_write(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 50; seed++) {
    sim_ask_seed(seed);
    unsigned char *seen = other_pinned(NBYTES);
    mf_tensor *t = create(gpu(0), NBYTES), *constant;
    fill(t, 3);
    OK(mf_tensor_as_readonly(t, &constant, &err));
    read_by_other(constant, seen);
    fill(t, 4);
    expect_filled(t, 4);
    other_sync_all(0);
    for (int i = 0; i < NBYTES; i++) assert_int_equal(seen[i], 3);
    mf_tensor_release(constant);
    mf_tensor_release(t);
    other_pinned_free(seen);
  }
}

/* The record of memory that is only read does not grow by a stream for each reader there ever was. */
static void readers_that_come_and_go_leave_nothing(void **state) {
  enum { READERS = 200 };
  (void)state;
  unsigned char *seen = other_pinned(READERS * NBYTES);
  mf_tensor *t = create(gpu(0), NBYTES), *constant;
  fill(t, 3);
  OK(mf_tensor_as_readonly(t, &constant, &err));
  for (int i = 0; i < READERS; i++) {
    read_by_other(constant, seen + i * NBYTES);
    if (i % 10 == 9) other_sync_all(0);
    if (sim_ask_left("events") > 40) fail_msg("%lld events after %d readers", (long long)sim_ask_left("events"), i);
  }
  other_sync_all(0);
  mf_tensor_release(constant);
  mf_tensor_release(t);
  other_pinned_free(seen);
}

/* One record and one wait, as for a stream that stays: the record is only made earlier. */
static void it_costs_no_more_than_a_stream_that_stays(void **state) {
  (void)state;
  const mf_stream a = stream_new(0), theirs = other_stream(0, false);
  use_stream(0, a);
  mf_tensor *t = create(gpu(0), NBYTES);
  use_stream(0, MF_STREAM_DEFAULT);
  sim_ask_reset();
  DLManagedTensorVersioned *given = give(t, theirs);
  EXPECT_CALLS(1, 1);
  DLManagedTensorVersioned *again = give(t, theirs);
  EXPECT_CALLS(1, 1);
  again->deleter(again); /* the stream is still in use */
  EXPECT_CALLS(1, 1);
  given->deleter(given);
  EXPECT_CALLS(2, 1);
  OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  EXPECT_CALLS(2, 2);
  OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  EXPECT_CALLS(2, 2);
  mf_tensor_release(t);
  EXPECT_CALLS(2, 2);
  stream_end(0, a);
  other_stream_end(theirs);
}

/* A driver that has names for streams says that it is the same one; else it waits for itself, because a handle that
 * was destroyed may be another stream's. */
static void a_consumer_that_comes_again_is_known(void **state) {
  (void)state;
  const bool has_names = sim_ask_is_direct() && other_device_type() == kDLCUDA;
  const mf_stream theirs = other_stream(0, false);
  mf_tensor *t = create(gpu(0), NBYTES);
  DLManagedTensorVersioned *given = give(t, theirs);
  given->deleter(given);
  sim_ask_reset();
  given = give(t, theirs);
  EXPECT_CALLS(0, has_names ? 0 : 1);
  given->deleter(given);
  EXPECT_CALLS(1, has_names ? 0 : 1);
  mf_tensor_release(t);
  EXPECT_CALLS(1, has_names ? 0 : 1);
  other_sync_all(0);
  other_stream_end(theirs);
}

/* Whoever makes a stream current, or acquires memory for it, has promised that it lives: that costs nothing. */
static void a_promised_stream_costs_nothing(void **state) {
  (void)state;
  const mf_stream theirs = other_stream(0, false);
  use_stream(0, theirs);
  mf_tensor *current = create(gpu(0), NBYTES);
  fill(current, 1);
  use_stream(0, MF_STREAM_DEFAULT);
  mf_tensor *acquired = create(gpu(0), NBYTES);
  OK(mf_tensor_acquire(acquired, theirs, MF_WRITE, &err));
  sim_ask_reset();
  mf_tensor *const both[] = {current, acquired};
  for (int i = 0; i < 2; i++) {
    DLManagedTensorVersioned *given = give(both[i], theirs);
    given->deleter(given);
  }
  assert_int_equal(sim_ask_calls(NULL), 0);
  mf_tensor_release(current);
  mf_tensor_release(acquired);
  other_sync_all(0);
  other_stream_end(theirs);
}

/* A copy that was made for a consumer: of the original it wants nothing more. */
static void the_original_of_a_copy_is_free_of_it(void **state) {
  const mf_request original = {.copy = MF_COPY_ALWAYS};
  (void)state;
  for (uint64_t seed = 0; seed < 20; seed++) {
    sim_ask_seed(seed);
    const mf_stream theirs = other_stream(0, false);
    mf_request request = original;
    DLManagedTensorVersioned *given;
    mf_tensor *t = create(gpu(0), NBYTES);
    fill(t, 5);
    request.stream = theirs;
    OK(mf_tensor_export_to(t, &request, &given, &err));
    other_fill(0, given->dl_tensor.data, 9, NBYTES, theirs);
    given->deleter(given);
    other_stream_end(theirs);
    fill(t, 6);
    expect_filled(t, 6);
    mf_tensor_release(t);
  }
}

/* A consumer that captures has queued nothing yet; its stream is asked again later. */
static void a_captured_stream_is_not_disturbed(void **state) {
  const DLDevice device = gpu(0);
  (void)state;
  const mf_stream theirs = other_stream(0, false);
  mf_tensor *t = create(gpu(0), NBYTES);
  OK(mf_tensor_acquire(t, theirs, MF_WRITE, &err));
  OK(mf_stream_synchronize(&device, theirs, &err));
  other_capture(0, theirs);
  DLManagedTensorVersioned *given = give(t, theirs);
  other_fill(0, given->dl_tensor.data, 4, NBYTES, theirs);
  given->deleter(given);
  expect_captured(t, theirs, 4);
  mf_tensor_release(t);
  other_stream_end(theirs);
}

static void a_capture_waits_for_no_work_of_before(void **state) {
  const DLDevice device = gpu(0);
  (void)state;
  const mf_stream s = stream_new(0);
  mf_tensor *t = create(device, NBYTES);
  OK(mf_tensor_acquire(t, s, MF_WRITE, &err));
  use_stream(0, s);
  fill(t, 1);
  for (int i = 0; i < 300; i++) consume(t, 6);
  other_capture(0, s);
  if (other_is_simulated()) {
    FAILS(mf_tensor_acquire(t, s, MF_READ, &err), MF_ECAPTURE);
    SAYS("captured");
  }
  void *graph = other_capture_end(0, s);
  OK(mf_device_synchronize(&device, &err));
  other_graph_end(0, graph);
  other_capture(0, s);
  OK(mf_tensor_acquire(t, s, MF_READ, &err));
  graph = other_capture_end(0, s);
  other_graph_end(0, graph);
  expect_filled(t, 6);
  mf_tensor_release(t);
  stream_end(0, s);
}

/* The promise is broken */

static mf_tensor *used_on_a_gone_stream(int byte) {
  const mf_stream theirs = other_stream(0, false);
  mf_tensor *t = create(gpu(0), NBYTES);
  OK(mf_tensor_acquire(t, theirs, MF_WRITE, &err));
  other_fill(0, data_of(t), byte, NBYTES, theirs);
  other_stream_end(theirs);
  return t;
}

/* On a real driver the use of a destroyed stream may do anything: what follows takes a simulator. */

/* Each sort of use that has to wait is told the same, and a second time without a call about the dead handle. */
static void expect_refused(mf_tensor *t) {
  const mf_stream ours = stream_new(0);
  const mf_request on_host = {.device = {kDLCPU, 0}}, on_ours = {.stream = ours};
  DLManagedTensorVersioned *given;
  mf_tensor *out;
  FAILS(mf_tensor_to(t, &on_host, &out, &err), MF_EINVAL);
  SAYS("mf_device_synchronize");
  sim_ask_reset(); /* the simulator reports that a dead handle was used, as it should */
  FAILS(mf_tensor_to(t, &on_host, &out, &err), MF_EINVAL);
  FAILS(mf_tensor_export_to(t, &on_ours, &given, &err), MF_EINVAL);
  FAILS(mf_tensor_acquire(t, ours, MF_WRITE, &err), MF_EINVAL);
  FAILS(mf_tensor_acquire(t, MF_STREAM_HOST, MF_READ, &err), MF_EINVAL);
  FAILS(try_fill(t, 1), MF_EINVAL);
  SAYS("mf_device_synchronize");
  assert_int_equal(sim_ask_findings(), 0);
  assert_int_equal(sim_ask_calls(named("cuCtxSynchronize", "hipDeviceSynchronize")), 0);
  stream_end(0, ours);
}

/* Only a wait for the whole device reaches what such a stream had queued, and that would break any capture there: the
 * program has to ask for it. Then the memory is as good as any. */
static void a_stream_that_is_gone_has_to_be_waited_for(void **state) {
  (void)state;
  needs_simulator();
  const next_use uses[] = {on_the_host, on_our_stream, by_another_consumer, by_a_copy};
  /* Under odd seeds the handle is the next stream's, which HIP has no way to tell. */
  const uint64_t step = other_device_type() == kDLROCM ? 2 : 1;
  for (uint64_t seed = 0; seed < 20; seed += step) {
    for (size_t i = 0; i < COUNT(uses); i++) {
      sim_ask_seed(seed);
      mf_tensor *t = used_on_a_gone_stream(6);
      expect_refused(t);
      synchronize(0);
      uses[i](t);
      fill(t, 1);
      expect_filled(t, 1);
      assert_int_equal(sim_ask_findings(), 0);
      mf_tensor_release(t);
    }
  }
}

/* The handle is another stream's by now, under odd seeds of the simulator. Where streams have names it is not waited
 * for in the place of the one that is gone. */
static void a_later_stream_of_that_handle_is_not_taken_for_it(void **state) {
  (void)state;
  needs_simulator();
  for (uint64_t seed = 1; seed < 20 && other_device_type() == kDLCUDA && sim_ask_is_direct(); seed += 2) {
    sim_ask_seed(seed);
    mf_tensor *t = used_on_a_gone_stream(6);
    const mf_stream later = other_stream(0, false);
    expect_refused(t);
    synchronize(0);
    expect_filled(t, 6);
    mf_tensor_release(t);
    other_stream_end(later);
  }
}

/* A wait that began before the stream was found gone says nothing of what it queued meanwhile. */
static void an_earlier_wait_does_not_count(void **state) {
  (void)state;
  needs_simulator();
  mf_tensor *t = used_on_a_gone_stream(6);
  synchronize(0);
  expect_refused(t);
  synchronize(0);
  expect_filled(t, 6);
  mf_tensor_release(t);
}

/* Pinned memory is used on the streams of any GPU: what counts is a wait for the GPU of the stream that is gone. */
static void a_wait_for_another_device_does_not_count(void **state) {
  (void)state;
  needs_simulator();
  const mf_stream theirs = other_stream(1, false);
  mf_tensor *t = create(pinned(), NBYTES);
  OK(mf_tensor_acquire(t, theirs, MF_WRITE, &err));
  other_fill(1, data_of(t), 6, NBYTES, theirs);
  other_stream_end(theirs);
  synchronize(0);
  FAILS(mf_tensor_acquire(t, MF_STREAM_HOST, MF_READ, &err), MF_EINVAL);
  sim_ask_reset(); /* as in expect_refused */
  synchronize(0);
  FAILS(mf_tensor_acquire(t, MF_STREAM_HOST, MF_READ, &err), MF_EINVAL);
  synchronize(1);
  expect_filled(t, 6);
  mf_tensor_release(t);
}

static void a_consumer_may_still_call_its_deleter(void **state) {
  (void)state;
  needs_simulator();
  const mf_stream theirs = other_stream(0, false);
  mf_tensor *t = create(gpu(0), NBYTES);
  DLManagedTensorVersioned *given = give(t, theirs);
  other_fill(0, given->dl_tensor.data, 6, NBYTES, theirs);
  other_stream_end(theirs);
  expect_refused(t);
  given->deleter(given);
  assert_int_equal(sim_ask_findings(), 0); /* the dead handle is not used */
  expect_refused(t);
  synchronize(0);
  expect_filled(t, 6);
  assert_int_equal(sim_ask_findings(), 0);
  mf_tensor_release(t);
}

/* Released instead of used again: it waits for such a wait, too. */
static void its_memory_is_not_given_out_before(void **state) {
  (void)state;
  needs_simulator();
  mf_tensor *t = used_on_a_gone_stream(6);
  void *data = data_of(t);
  expect_refused(t);
  mf_tensor_release(t);
  t = create(gpu(0), NBYTES);
  assert_ptr_not_equal(data_of(t), data);
  mf_tensor_release(t);
  synchronize(0);
  assert_int_equal(sim_ask_findings(), 0);
}

/* A device that cannot be waited for: an error, and the tensor can be used once it can. */
static void a_device_that_fails_is_an_error(void **state) {
  (void)state;
  needs_simulator();
  const DLDevice device = gpu(0);
  mf_tensor *t = used_on_a_gone_stream(6);
  expect_refused(t);
  sim_ask_fail(named("cuCtxSynchronize:999:once", "hipDeviceSynchronize:999:once"));
  FAILS(mf_device_synchronize(&device, &err), MF_EDRIVER);
  assert_int_equal(err.driver_code, 999);
  sim_ask_reset();
  expect_refused(t);
  synchronize(0);
  expect_filled(t, 6);
  mf_tensor_release(t);
}

/* Every second element: no copy of the driver's does that at once. */
static mf_tensor *thinned(mf_tensor *t) {
  const mf_index second = {.kind = MF_INDEX_SLICE, .start = MF_INDEX_NONE, .stop = MF_INDEX_NONE, .step = 2};
  mf_tensor *view;
  OK(mf_tensor_index(t, &second, 1, &view, &err));
  return view;
}

/* Whether the copy that a consumer asks for failed, at the call of this number; the consumer's stream goes then. */
static bool copy_fails_at(mf_tensor *t, uint64_t call) {
  const mf_stream s = other_stream(0, false);
  const mf_request request = {.stream = s, .copy = MF_COPY_ALWAYS};
  DLManagedTensorVersioned *given;
  char rule[40];
  (void)snprintf(rule, sizeof rule, "*@%llu:999:once", (unsigned long long)call);
  sim_ask_reset();
  sim_ask_fail(rule);
  const int rc = mf_tensor_export_to(t, &request, &given, &err);
  sim_ask_reset();
  if (rc == MF_OK) given->deleter(given);
  other_stream_end(s);
  return rc != MF_OK;
}

static void a_copy_that_fails_leaves_the_original_free(void **state) {
  (void)state;
  int failed = 0;
  skip_unless_simulated(other_is_simulated() && sim_ask_is_direct());
  for (uint64_t call = 1; call < 80; call++) {
    mf_tensor *t = create(gpu(0), NBYTES), *view = thinned(t);
    fill(t, 6);
    const bool fails = copy_fails_at(view, call);
    /* What fails of a copy that succeeds is the event that is to stand for the stream. */
    if (!fails && try_fill(t, 6) != MF_OK) synchronize(0);
    failed += fails;
    on_our_stream(t);
    mf_tensor_release(view);
    mf_tensor_release(t);
    give_all_back();
  }
  assert_true(failed > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(the_next_use_waits_for_what_it_queued),
      SPEC(what_only_reads_is_waited_for_by_a_write),
      SPEC(readers_that_come_and_go_leave_nothing),
      SPEC(it_costs_no_more_than_a_stream_that_stays),
      SPEC(a_consumer_that_comes_again_is_known),
      SPEC(a_promised_stream_costs_nothing),
      SPEC(the_original_of_a_copy_is_free_of_it),
      SPEC(a_captured_stream_is_not_disturbed),
      SPEC(a_capture_waits_for_no_work_of_before),
      SPEC(a_stream_that_is_gone_has_to_be_waited_for),
      SPEC(a_later_stream_of_that_handle_is_not_taken_for_it),
      SPEC(an_earlier_wait_does_not_count),
      SPEC(a_wait_for_another_device_does_not_count),
      SPEC(its_memory_is_not_given_out_before),
      SPEC(a_consumer_may_still_call_its_deleter),
      SPEC(a_device_that_fails_is_an_error),
      SPEC(a_copy_that_fails_leaves_the_original_free),
  };
  return RUN(tests);
}
