/* retire_fail_spec.c: released memory whose streams or driver fail: its deleter is still called once, and not early. */
#include "loan.h"

static void find_no_memory(void) {
  const DLDevice device = gpu(0);
  mf_tensor *t;
  OK(mf_pool_limit(&device, 1, &err));
  assert_int_equal(create_at(device, NBYTES, &t), MF_ENOMEM);
  OK(mf_pool_limit(&device, 0, &err));
  mf_releases_run();
}

/* Memory of it is released, and its stream, which has work there, is gone. */
static void release_what_a_lost_stream_uses(void *loan_of_it) {
  DLManagedTensorVersioned *given;
  const mf_stream s = other_stream(0, false);
  mf_tensor *t = import(loan_of_it);
  const mf_request request = {.stream = s};
  OK(mf_tensor_export_to(t, &request, &given, &err));
  mf_tensor_release(t);
  other_fill(0, given->dl_tensor.data, 1, NBYTES, s);
  other_stream_end(s);
  given->deleter(given);
}

static void lose_a_stream(bool memory_is_short) {
  loan *l = loan_new();
  release_what_a_lost_stream_uses(l);
  for (int i = 0; i < 3; i++) poll();
  trim(gpu(0));
  assert_int_equal(calls_of(l), 0);
  assert_int_equal(deferred(), 1);
  if (memory_is_short) find_no_memory();
  assert_int_equal(calls_of(l), 0);
  synchronize(0);
  assert_int_equal(calls_of(l), 1);
  loan_end(l);
  sim_ask_reset();
}

/* A consumer that destroys its stream before it calls the deleter: misuse, but nothing is freed early, and a wait for
 * the device gives everything back. Only the program may ask for one, because it breaks any capture there; an
 * allocation that finds no memory does not. */
static void a_destroyed_stream_waits_for_the_device(void **state) {
  (void)state;
  needs_simulator();
  lose_a_stream(false);
  lose_a_stream(true);
}

/* That wait may have looked at the device already, before the work was queued. */
static void a_wait_that_began_earlier_is_not_the_one(void **state) {
  (void)state;
  needs_simulator();
  loan *l = loan_new();
  sim_ask_at("cuCtxSynchronize", "hipDeviceSynchronize", 1, release_what_a_lost_stream_uses, l);
  synchronize(0);
  sim_ask_at("*", "*", 1, NULL, NULL);
  assert_int_equal(deferred(), 1);
  assert_int_equal(calls_of(l), 0);
  synchronize(0);
  assert_int_equal(calls_of(l), 1);
  loan_end(l);
  sim_ask_reset();
}

static int64_t deferred_pinned(void) {
  return stats(pinned()).deferred;
}

/* Pinned memory is used on the streams of any GPU: what counts are waits for the GPU of the stream that is gone,
 * however many there were for each before. */
static void only_a_wait_for_its_device_counts(void **state) {
  enum { MANY = 100 };
  (void)state;
  needs_simulator();
  for (int ahead = 0; ahead < 2; ahead++) {
    for (int i = 0; i < MANY; i++) synchronize(ahead);
    for (int used = 0; used < 2; used++) {
      const mf_stream theirs = other_stream(used, false);
      mf_tensor *t = create(pinned(), NBYTES);
      OK(mf_tensor_acquire(t, theirs, MF_WRITE, &err));
      other_fill(used, data_of(t), 1, NBYTES, theirs);
      other_stream_end(theirs);
      mf_tensor_release(t);
      assert_int_equal(deferred_pinned(), 1);
      for (int i = 0; i < 2; i++) assert_int_equal(stats(gpu(i)).deferred, 0); /* which is no memory of theirs */
      synchronize(!used);
      assert_int_equal(deferred_pinned(), 1);
      synchronize(used);
      assert_int_equal(deferred_pinned(), 0);
      sim_ask_reset(); /* of the use of a stream that is gone */
    }
  }
}

/* An allocation that finds no memory waits as well; it calls no deleter, which is due then. */
static void no_memory_waits_for_what_is_deferred(void **state) {
  (void)state;
  loan *l = loan_new();
  const DLDevice device = gpu(0);
  const mf_stream s = stream_new(0);
  mf_tensor *t = import(l), *more;
  keep_busy(t, s);
  mf_tensor_release(t);
  OK(mf_pool_limit(&device, NBYTES, &err));
  assert_int_equal(calls_of(l), 0);
  assert_int_equal(create_at(device, 2 * NBYTES, &more), MF_ENOMEM);
  assert_int_equal(calls_of(l), 0);
  mf_releases_run();
  assert_int_equal(calls_of(l), 1);
  OK(mf_pool_limit(&device, 0, &err));
  loan_end(l);
  stream_end(0, s);
}

/* Nothing is known of the work then. */
static void a_wait_that_fails_releases_nothing(void **state) {
  (void)state;
  needs_simulator();
  char rule[64];
  loan *l = loan_new();
  const mf_stream s = stream_new(0);
  mf_tensor *t = import(l);
  keep_busy(t, s);
  mf_tensor_release(t);
  snprintf(rule, sizeof rule, "%s:999:on", named("cuEventSynchronize", "hipStreamSynchronize"));
  sim_ask_fail(rule);
  find_no_memory();
  assert_true(sim_ask_faults() > 0);
  assert_int_equal(calls_of(l), 0);
  sim_ask_reset();
  synchronize(0);
  loan_end(l);
  stream_end(0, s);
}

static void no_host_memory_is_needed(void **state) {
  (void)state;
  loan *l = loan_new();
  const mf_stream s = stream_new(0);
  mf_tensor *t = import(l);
  keep_busy(t, s);
  mf_fault_arm(0, 1);
  mf_tensor_release(t);
  mf_fault_arm(-1, 0);
  assert_int_equal(calls_of(l), 0);
  other_sync(0, s);
  poll();
  loan_end(l);
  stream_end(0, s);
}

/* Each driver call of a release that must wait fails, once and from then on. */
static bool release_failing(const char *how, uint64_t number) {
  char rule[64];
  loan *l = loan_new();
  const mf_stream s = stream_new(0);
  mf_tensor *t = import(l);
  write_on(t, s, 1);
  snprintf(rule, sizeof rule, "*@%llu:999:%s", (unsigned long long)number, how);
  sim_ask_reset();
  sim_ask_fail(rule);
  mf_tensor_release(t);
  poll();
  const bool struck = sim_ask_faults() != 0;
  sim_ask_reset();
  const bool early = calls_of(l) == 1;
  if (early) free_at_once(l);
  synchronize(0);
  if (sim_ask_findings() != 0) fail_msg("call %llu fails %s", (unsigned long long)number, how);
  assert_int_equal(calls_of(l), 1);
  if (!early) free_at_once(l);
  free(l);
  stream_end(0, s);
  return struck;
}

static void driver_calls_that_fail(void **state) {
  (void)state;
  needs_simulator();
  static const char *const ways[] = {"once", "on"};
  for (size_t i = 0; i < COUNT(ways); i++) {
    uint64_t number = 1;
    while (release_failing(ways[i], number)) number++;
    assert_true(number > 10);
  }
}

/* Records fail for ever: it is tried twice and no more, and the device can still be waited for. */
static void records_that_always_fail(void **state) {
  (void)state;
  needs_simulator();
  char rule[64];
  const char *record = named("cuEventRecord", "hipEventRecord");
  loan *l = loan_new();
  const mf_stream s = stream_new(0);
  mf_tensor *t = import(l);
  keep_busy(t, s);
  snprintf(rule, sizeof rule, "%s:999:on", record);
  sim_ask_fail(rule);
  const uint64_t before = sim_ask_calls(record);
  mf_tensor_release(t);
  for (int i = 0; i < 5; i++) poll();
  assert_int_equal(sim_ask_calls(record) - before, 2);
  assert_int_equal(calls_of(l), 0);
  synchronize(0);
  loan_end(l);
  sim_ask_reset();
  stream_end(0, s);
}

/* A process that ends looks once more for what is done, and calls no deleter: its language may be gone. */
static loan *left_behind;
static int status_of_an_end = -1;

static void say_what_was_deleted(void) {
  _exit(calls_of(left_behind) == 0 ? 0 : 2);
}

static void end_with_work_done(void) {
  if (atexit(say_what_was_deleted) != 0) _exit(3); /* before Moonferry's, which therefore runs first */
  left_behind = loan_new();
  const mf_stream s = other_stream(0, false);
  mf_tensor *t = import(left_behind);
  write_on(t, s, 1);
  mf_tensor_release(t);
  if (deferred() != 1) _exit(4);
  other_sync(0, s);
  exit(5);
}

static void no_deleter_is_called_at_the_end(void **state) {
  (void)state;
  assert_int_equal(status_of_an_end, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(no_deleter_is_called_at_the_end),
      SPEC(only_a_wait_for_its_device_counts), /* first, while each device was waited for a few times only */
      SPEC(a_destroyed_stream_waits_for_the_device),
      SPEC(a_wait_that_began_earlier_is_not_the_one),
      SPEC(no_memory_waits_for_what_is_deferred),
      SPEC(a_wait_that_fails_releases_nothing),
      SPEC(no_host_memory_is_needed),
      SPEC(driver_calls_that_fail),
      SPEC(records_that_always_fail),
  };
  status_of_an_end = status_alone("SIM_DEVICES=1", end_with_work_done);
  return RUN(tests);
}
