/* trim_all_spec.c: mf_pools_trim goes on where a device fails and tells of the first, whichever devices there are; what
 * is kept of one device for another goes as well. */
#include "device.h"

enum { NBYTES = 1 << 16, FOR_EVER_MS = INT32_MAX, LONG_MS = 10000, LARGE = 3 << 20 };

static void cache(DLDevice device) {
  mf_tensor_release(create(device, NBYTES));
}

static void nothing_is_cached(void) {
  const DLDevice devices[] = {pinned(), gpu(0), gpu(1)};
  for (size_t i = 0; i < COUNT(devices); i++) assert_int_equal(stats(devices[i]).cached_bytes, 0);
}

static void the_first_device_that_fails_is_told(void **state) {
  (void)state;
  needs_simulator();
  const char *name = named("cuMemFreeAsync", "hipFreeAsync");
  for (int failures = 1; failures <= 2; failures++) {
    char rules[128];
    cache(pinned());
    cache(gpu(0));
    cache(gpu(1));
    snprintf(rules, sizeof rules, failures == 1 ? "%s:999:once" : "%s:999:once,%s:400:once", name, name);
    sim_ask_fail(rules);
    REFUSED(mf_pools_trim(0, &err), MF_EDRIVER, "FreeAsync");
    assert_int_equal(err.driver_code, 999);
    nothing_is_cached();
    OK(mf_pools_trim(0, &err));
  }
}

/* The second device's block is marked by an event of the first, whose events are looked at before the block is. */
static void events_of_another_device_go_as_well(void **state) {
  (void)state;
  needs_simulator();
  mf_tensor *here = create(gpu(0), NBYTES), *there = create(gpu(1), NBYTES);
  const mf_stream stream = stream_new(0);
  use_stream(0, stream);
  keep_busy(here, stream);
  OK(mf_tensor_copy(here, there, &err));
  mf_tensor_release(there);
  mf_tensor_release(here);
  use_stream(0, MF_STREAM_DEFAULT);
  other_sync_all(0);
  other_sync_all(1);
  stream_end(0, stream);
  OK(mf_pools_trim(0, &err));
  nothing_is_cached();
  assert_int_equal(sim_ask_left("events"), 0);
}

/* The buffers of a copy that is queued are all that is left to wait for. */
static void staging_buffers_are_waited_for(void **state) {
  (void)state;
  needs_simulator();
  const DLDevice cpu = {kDLCPU, 0};
  mf_tensor *host = create(cpu, LARGE), *t = create(gpu(0), LARGE);
  const mf_stream stream = stream_new(0);
  OK(mf_pools_trim(LONG_MS, &err));
  const int64_t before = sim_ask_left("memory");
  memset(data_of(host), 5, LARGE);
  use_stream(0, stream);
  keep_busy(t, stream);
  OK(mf_tensor_copy(t, host, &err));
  use_stream(0, MF_STREAM_DEFAULT);
  OK(mf_pools_trim(LONG_MS, &err));
  assert_int_equal(sim_ask_left("memory"), before);
  expect_filled(t, 5);
  mf_tensor_release(host);
  mf_tensor_release(t);
  stream_end(0, stream);
}

/* Pinned memory that is in use until its work is done. */
static void leave_busy(mf_stream stream, int fills) {
  mf_tensor *t = create(pinned(), NBYTES);
  OK(mf_tensor_acquire(t, stream, MF_WRITE, &err));
  for (int i = 0; i < fills; i++) other_fill(0, data_of(t), 1, 1, stream);
  mf_tensor_release(t);
}

/* Nothing is tried again that would hide it. */
static void a_failure_is_told_though_more_is_waited_for(void **state) {
  char rule[64];
  (void)state;
  needs_simulator();
  const mf_stream stream = stream_new(0);
  leave_busy(stream, 300);
  cache(gpu(0));
  snprintf(rule, sizeof rule, "%s:999:once", named("cuMemFreeAsync", "hipFreeAsync"));
  sim_ask_fail(rule);
  REFUSED(mf_pools_trim(LONG_MS, &err), MF_EDRIVER, "FreeAsync");
  stream_end(0, stream);
}

/* Each look finishes a little of it, and the time is over long before all of it is done. */
static void work_is_not_waited_for_beyond_the_time(void **state) {
  enum { SHORTLY_MS = 5, FILLS = 50000 };
  (void)state;
  needs_simulator();
  const mf_stream stream = stream_new(0);
  leave_busy(stream, FILLS);
  OK(mf_pools_trim(SHORTLY_MS, &err));
  assert_int_equal(stats(pinned()).cached_bytes, NBYTES);
  stream_end(0, stream);
}

/* ROCm may drop what a destroyed stream has to do, which is somebody else's here and must go on. CUDA does not. */
static void a_stream_that_was_given_back_goes_on_with_its_work(void **state) {
  enum { FILLS = 300 };
  (void)state;
  needs_simulator();
  const bool drops = strcmp(named("cuda", "hip"), "hip") == 0;
  void *theirs = other_alloc(0, FILLS);
  const mf_stream stream = stream_new(0);
  for (int i = 0; i < FILLS; i++) other_fill(0, (char *)theirs + i, 1, 1, stream);
  stream_end(0, stream);
  OK(mf_pools_trim(0, &err));
  assert_true(sim_ask_left("pending") > 0);
  assert_int_equal(sim_ask_left("streams") > 0, drops);
  alarm(HANGS_SECONDS);
  mf_tensor *t = create(gpu(0), NBYTES); /* in whose record it may be */
  OK(mf_pools_trim(FOR_EVER_MS, &err));
  mf_tensor_release(t);
  const mf_stream again = stream_new(0);
  OK(mf_pools_trim(FOR_EVER_MS, &err));
  stream_end(0, again);
  alarm(0);
  assert_true(sim_ask_left("pending") > 0);
  OK(mf_pools_trim(LONG_MS, &err));
  assert_int_equal(sim_ask_left("streams"), 0);
  other_sync_all(0);
  other_free(0, theirs);
}

/* In a forked child there is nothing to wait for. */
static void trim_in_child(void) {
  alarm(HANGS_SECONDS);
  if (mf_pools_trim(FOR_EVER_MS, &err) != MF_OK) _exit(1);
}

static void a_forked_child_waits_for_nothing(void **state) {
  (void)state;
  cache(gpu(0));
  in_fork(trim_in_child);
}

static int status_of_one_device = -1;

static void with_one_device(void) {
  mf_tensor *t;
  if (other_devices() != 1 || create_at(pinned(), NBYTES, &t) != MF_OK) _exit(2);
  mf_tensor_release(t);
  if (mf_pools_trim(0, &err) != MF_OK || stats(pinned()).cached_bytes != 0) _exit(3);
  const mf_stream stream = stream_new(0);
  if (create_at(pinned(), NBYTES, &t) != MF_OK) _exit(4);
  keep_busy(t, stream);
  mf_tensor_release(t);
  if (mf_pools_trim(LONG_MS, &err) != MF_OK || stats(pinned()).cached_bytes + stats(pinned()).used_bytes != 0) _exit(5);
  stream_end(0, stream);
  _exit(sim_ask_findings() == 0 ? 0 : 6);
}

static void where_there_is_one_device(void **state) {
  (void)state;
  assert_int_equal(status_of_one_device, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(the_first_device_that_fails_is_told),
      SPEC(events_of_another_device_go_as_well),
      SPEC(staging_buffers_are_waited_for),
      SPEC(a_failure_is_told_though_more_is_waited_for),
      SPEC(work_is_not_waited_for_beyond_the_time),
      SPEC(a_stream_that_was_given_back_goes_on_with_its_work),
      SPEC(a_forked_child_waits_for_nothing),
      SPEC(where_there_is_one_device),
  };
  status_of_one_device = status_alone("SIM_DEVICES=1", with_one_device);
  return RUN(tests);
}
