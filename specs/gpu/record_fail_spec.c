/* record_fail_spec.c: the record of a memory where something fails: the driver that is asked about the memory, the
 * host's memory for one more stream or event, a stream that was destroyed and is named again, a child that was forked
 * while the record was locked, events that go back to the driver, and the wait for all that may use the memory of the
 * host. */
#include "device.h"

enum { NBYTES = 4096 };

static const char *attribute_rule(void) {
  static char rule[96];
  snprintf(rule, sizeof rule, "%s:999:once", named("cuDeviceGetAttribute", "hipDeviceGetAttribute"));
  return rule;
}

/* The answer is kept from the first time on, so that this spec comes first: memory that the host might have to wait for
 * is not given out before it is known. */
static void managed_memory_of_unknown_use_is_refused(void **state) {
  mf_tensor *t;
  (void)state;
  needs_simulator();
  skip_unless(other_managed_type() != 0, "there is none here");
  mf_tensor_release(create(gpu(0), NBYTES));
  sim_ask_fail(attribute_rule());
  REFUSED(create_at(managed(), NBYTES, &t), MF_EDRIVER, "GetAttribute");
  assert_null(t);
  t = create(managed(), NBYTES);
  write_on(t, MF_STREAM_DEFAULT, 3);
  expect_filled(t, 3);
  mf_tensor_release(t);
}

/* One stream more than a record has room for: the use is refused, nothing is entered, and the next try is as good as
 * the first. */
static void no_memory_for_one_more_stream(void **state) {
  enum { STREAMS = 13 };
  mf_stream s[STREAMS];
  int refused = 0;
  (void)state;
  mf_tensor *t = create(gpu(0), NBYTES);
  write_on(t, MF_STREAM_DEFAULT, 5);
  for (int i = 0; i < STREAMS; i++) {
    s[i] = stream_new(0);
    mf_fault_arm(0, 1);
    const int rc = i % 2 == 0 ? mf_tensor_acquire(t, s[i], MF_READ, &err) : mf_tensor_record(t, s[i], MF_READ, &err);
    mf_fault_arm(-1, 0);
    if (rc == MF_OK) continue;
    refused++;
    assert_int_equal(rc, MF_ENOMEM);
    assert_non_null(strstr(err.message, "record"));
    OK(mf_tensor_acquire(t, s[i], MF_READ, &err));
  }
  assert_int_equal(refused, 3); /* at 3, at 6 and at 12 */
  write_on(t, MF_STREAM_DEFAULT, 6);
  expect_filled(t, 6);
  mf_tensor_release(t);
  for (int i = 0; i < STREAMS; i++) stream_end(0, s[i]);
}

/* The record knows the stream from before, and has left it: its owner may have destroyed it since. */
static void a_stream_that_was_left_is_checked_when_it_is_named_again(void **state) {
  (void)state;
  needs_simulator();
  const mf_stream theirs = other_stream(0, false);
  const mf_request request = {.stream = theirs};
  DLManagedTensorVersioned *out;
  mf_tensor *t = create(gpu(0), NBYTES);
  OK(mf_tensor_export_to(t, &request, &out, &err));
  out->deleter(out);
  other_stream_end(theirs);
  REFUSED(mf_tensor_acquire(t, theirs, MF_READ, &err), MF_EINVAL, "stream");
  REFUSED(mf_tensor_export_to(t, &request, &out, &err), MF_EINVAL, "stream");
  sim_ask_reset(); /* the simulator reports that a dead handle was asked about, as it should */
  write_on(t, MF_STREAM_DEFAULT, 4);
  expect_filled(t, 4);
  mf_tensor_release(t);
}

/* The record knows that the stream is gone, and knows of no other. */
static void a_stream_that_is_gone_is_refused_where_it_was_alone(void **state) {
  (void)state;
  needs_simulator();
  const mf_stream theirs = other_stream(0, false), ours = stream_new(0);
  mf_tensor *t = create(gpu(0), NBYTES);
  OK(mf_tensor_acquire(t, theirs, MF_WRITE, &err));
  other_fill(0, data_of(t), 1, NBYTES, theirs);
  other_stream_end(theirs);
  REFUSED(mf_tensor_acquire(t, ours, MF_READ, &err), MF_EINVAL, "mf_device_synchronize");
  REFUSED(mf_tensor_acquire(t, theirs, MF_READ, &err), MF_EINVAL, "stream");
  REFUSED(mf_tensor_record(t, theirs, MF_WRITE, &err), MF_EINVAL, "stream");
  sim_ask_reset();
  synchronize(0);
  write_on(t, ours, 4);
  expect_filled(t, 4);
  mf_tensor_release(t);
  stream_end(0, ours);
}

/* Plain host memory has no record that could know the stream. */
static void a_stream_for_a_copy_of_host_memory_is_checked(void **state) {
  (void)state;
  needs_simulator();
  const mf_stream theirs = other_stream(0, false);
  const DLDevice places[] = {gpu(0), pinned()};
  mf_tensor *host = create((DLDevice){kDLCPU, 0}, NBYTES), *copy;
  memset(data_of(host), 8, NBYTES);
  for (size_t i = 0; i < COUNT(places); i++) {
    const mf_request request = {.device = places[i], .stream = theirs};
    OK(mf_tensor_to(host, &request, &copy, &err));
    expect_filled(copy, 8);
    mf_tensor_release(copy);
  }
  other_stream_end(theirs);
  for (size_t i = 0; i < COUNT(places); i++) {
    const mf_request request = {.device = places[i], .stream = theirs};
    REFUSED(mf_tensor_to(host, &request, &copy, &err), MF_EINVAL, "stream");
  }
  sim_ask_reset();
  mf_tensor_release(host);
}

/* Nobody is left in the child who could unlock a record. It can let go of what it inherited all the same. */
static mf_tensor *filled;
static DLManagedTensorVersioned *given;
static int status_of_child;

static void release_both(void) {
  mf_ledger alive;
  alarm(HANGS_SECONDS);
  given->deleter(given);
  mf_tensor_release(filled);
  mf_ledger_read(&alive);
  _exit(alive.tensors != 0 || alive.storages != 0 || alive.blocks != 0);
}

/* Inside of a driver call, out of which no assertion may jump. */
static void fork_here(void *ctx) {
  (void)ctx;
  status_of_child = status_in_fork(release_both);
}

static void a_child_is_not_kept_by_a_locked_record(void **state) {
  const mf_scalar value = {.kind = MF_KIND_UINT, .u = 7};
  const mf_request request = {.stream = MF_STREAM_DEFAULT};
  (void)state;
  needs_simulator();
  filled = create(gpu(0), NBYTES);
  OK(mf_tensor_export_to(filled, &request, &given, &err));
  status_of_child = -1;
  sim_ask_at("cuMemsetD8Async", "hipMemsetD8Async", 1, fork_here, NULL);
  OK(mf_tensor_fill(filled, &value, &err));
  assert_int_equal(status_of_child, 0);
  given->deleter(given);
  expect_filled(filled, 7);
  mf_tensor_release(filled);
}

/* More memories, each used by somebody's stream and given back, than there are events kept for others. */
enum { MANY = 70 };

static void lend_many(mf_stream theirs, DLManagedTensorVersioned **out) {
  const mf_request request = {.stream = theirs};
  for (int i = 0; i < MANY; i++) {
    mf_tensor *t = create(gpu(0), NBYTES);
    OK(mf_tensor_export_to(t, &request, &out[i], &err));
    mf_tensor_release(t);
  }
}

static void give_back_many(DLManagedTensorVersioned **lent) {
  for (int i = 0; i < MANY; i++) lent[i]->deleter(lent[i]);
}

/* A call that fails while a trim gives their events back; false where there are fewer calls than that. */
static bool trim_many(uint64_t number) {
  char rule[32];
  snprintf(rule, sizeof rule, "*@%llu:999:once", (unsigned long long)number);
  sim_ask_reset();
  sim_ask_fail(rule);
  (void)mf_pools_trim(0, &err);
  const bool failed = sim_ask_faults() != 0;
  sim_ask_reset();
  return failed;
}

static void events_that_are_too_many_go_back_though_a_call_fails(void **state) {
  DLManagedTensorVersioned *lent[MANY];
  uint64_t number = 0;
  bool failed;
  (void)state;
  needs_simulator();
  do {
    const mf_stream theirs = other_stream(0, false);
    lend_many(theirs, lent);
    give_back_many(lent);
    synchronize(0);
    failed = trim_many(++number);
    other_stream_end(theirs);
    nothing_left();
  } while (failed);
  assert_true(number > MANY);
}

/* Memory for which there is no event waits for its stream itself. */
static void no_memory_for_one_more_event(void **state) {
  DLManagedTensorVersioned *lent[MANY];
  (void)state;
  needs_simulator();
  const mf_stream theirs = other_stream(0, false);
  lend_many(theirs, lent);
  mf_fault_arm(0, 1);
  give_back_many(lent);
  mf_fault_arm(-1, 0);
  const int64_t left = sim_ask_left("events");
  assert_true(left >= 1 && left < MANY);
  synchronize(0);
  other_stream_end(theirs);
  nothing_left();
}

/* No place is kept for those: without memory there are still as many to have as before. */
static void events_that_cannot_be_made_take_no_place(void **state) {
  const DLDevice device = gpu(0);
  char rule[64];
  (void)state;
  needs_simulator();
  const mf_stream a = stream_new(0), b = stream_new(0);
  snprintf(rule, sizeof rule, "%s:999:on", named("cuEventCreate", "hipEventCreateWithFlags"));
  sim_ask_fail(rule);
  mf_fault_arm(0, 1);
  for (int i = 0; i < MANY; i++) REFUSED(mf_stream_wait(&device, a, &device, b, &err), MF_EDRIVER, "EventCreate");
  sim_ask_reset();
  OK(mf_stream_wait(&device, a, &device, b, &err));
  mf_fault_arm(-1, 0);
  stream_end(0, a);
  stream_end(0, b);
}

/* The host's memory may be in use on each GPU. All are waited for, and the first failure is told. */
static void a_wait_for_the_hosts_memory(void **state) {
  (void)state;
  needs_devices(2);
  needs_simulator();
  const DLDevice host = pinned();
  const char *wait = named("cuCtxSynchronize", "hipDeviceSynchronize");
  mf_tensor *t[] = {create(gpu(0), NBYTES), create(gpu(1), NBYTES)};
  for (int failing = 1; failing <= 3; failing++) {
    char first[48], second[48];
    (void)snprintf(first, sizeof first, "%s@1:999:once", wait);
    (void)snprintf(second, sizeof second, "%s@%d:400:once", wait, failing == 2 ? 2 : 1); /* of those that are left */
    sim_ask_reset();
    if (failing != 2) sim_ask_fail(first);
    if (failing != 1) sim_ask_fail(second);
    REFUSED(mf_device_synchronize(&host, &err), MF_EDRIVER, failing == 2 ? "answered 400" : "answered 999");
    assert_int_equal(sim_ask_calls(wait), 2);
    assert_int_equal(sim_ask_faults(), failing == 3 ? 2 : 1);
  }
  sim_ask_reset();
  for (size_t i = 0; i < COUNT(t); i++) mf_tensor_release(t[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(managed_memory_of_unknown_use_is_refused),
      SPEC(no_memory_for_one_more_stream),
      SPEC(a_stream_that_was_left_is_checked_when_it_is_named_again),
      SPEC(a_stream_that_is_gone_is_refused_where_it_was_alone),
      SPEC(a_stream_for_a_copy_of_host_memory_is_checked),
      SPEC(a_child_is_not_kept_by_a_locked_record),
      SPEC(events_that_are_too_many_go_back_though_a_call_fails),
      SPEC(no_memory_for_one_more_event),
      SPEC(events_that_cannot_be_made_take_no_place),
      SPEC(a_wait_for_the_hosts_memory),
  };
  return RUN(tests);
}
