/* pool_limit_spec.c: kept memory when there is no more: limits, a driver without memory, calls that fail. */
#include "device.h"

enum { NBYTES = 4096, LIMIT = 2 * NBYTES };

static void the_limit_is_kept(void **state) {
  (void)state;
  mf_tensor *t, *more;
  const DLDevice device = gpu(0);
  REFUSED(mf_pool_limit(&device, -1, &err), MF_EINVAL, "-1");
  OK(mf_pool_limit(&device, 3 * NBYTES, &err));
  assert_int_equal(stats(device).limit_bytes, 3 * NBYTES);
  t = create(device, 2 * NBYTES);
  more = (mf_tensor *)(uintptr_t)16;
  REFUSED(create_at(device, 2 * NBYTES, &more), MF_ENOMEM, "8192 are used and 0 cached, with a limit of 12288");
  assert_null(more);
  assert_int_equal(err.driver_code, 0);
  assert_string_equal(err.call, "mf_tensor_create");
  mf_tensor_release(t);
  /* What is cached makes room. */
  t = create(device, 3 * NBYTES);
  assert_int_equal(stats(device).cached_bytes, 0);
  mf_tensor_release(t);
  OK(mf_pool_limit(&device, 0, &err));
}

/* Blocks are rounded up, but the limit is for what was asked for. */
static void what_fits_to_the_byte_is_given(void **state) {
  (void)state;
  enum { FIRST = 990000, SECOND = 9999, MOST = FIRST + SECOND };
  const DLDevice devices[] = {gpu(0), pinned()};
  mf_tensor *first, *second, *more;
  for (int i = 0; i < 2; i++) {
    OK(mf_pool_limit(&devices[i], MOST, &err));
    first = create(devices[i], FIRST);
    second = create(devices[i], SECOND);
    fill(second, 2);
    fill(first, 1);
    expect_filled(second, 2);
    assert_int_equal(stats(devices[i]).used_bytes, MOST);
    REFUSED(create_at(devices[i], 1, &more), MF_ENOMEM, "999999 are used and 0 cached, with a limit of 999999");
    mf_tensor_release(second);
    second = create(devices[i], SECOND); /* which is cached */
    mf_tensor_release(second);
    mf_tensor_release(first);
    OK(mf_pool_limit(&devices[i], 0, &err));
  }
}

/* A block that has work of several streams: taken on streams[0] and written there, and then read by n of them. */
static void release_busy(const mf_stream *streams, int n, char *seen) {
  use_stream(0, streams[0]);
  mf_tensor *t = create(gpu(0), NBYTES);
  write_on(t, streams[0], 1);
  for (int i = n - 1; i >= 0; i--) {
    OK(mf_tensor_acquire(t, streams[i], MF_READ, &err));
    for (int k = 0; k < 300; k++) other_copy(0, seen + i, data_of(t), 1, streams[i]);
  }
  mf_tensor_release(t);
  use_stream(0, MF_STREAM_DEFAULT);
}

typedef void (*scene_fn)(const mf_stream *streams, char *seen);

static void play_under_limit(scene_fn play) {
  enum { STREAMS = 5 };
  const DLDevice device = gpu(0);
  mf_stream streams[STREAMS];
  char *seen = other_pinned(STREAMS);
  for (int i = 0; i < STREAMS; i++) streams[i] = stream_new(0);
  OK(mf_pool_limit(&device, NBYTES, &err));
  play(streams, seen);
  OK(mf_pool_limit(&device, 0, &err));
  use_stream(0, MF_STREAM_DEFAULT);
  other_sync_all(0);
  other_pinned_free(seen);
  for (int i = 0; i < STREAMS; i++) stream_end(0, streams[i]);
}

/* The asking stream waits for each of them, not the host. */
static void after_three_readers(const mf_stream *streams, char *seen) {
  release_busy(streams, 4, seen);
  const uint64_t waits = host_waits();
  use_stream(0, streams[4]);
  mf_tensor *t = create(gpu(0), NBYTES);
  assert_int_equal(host_waits(), waits);
  write_on(t, streams[4], 2);
  mf_tensor_release(t);
}

static void three_readers_are_waited_for_on_the_device(void **state) {
  (void)state;
  play_under_limit(after_three_readers);
}

/* Whoever used it last left a mark, which stands for it: nothing is recorded on its stream when another wants it. */
static void after_a_writer_of_another_stream(const mf_stream *streams, char *seen) {
  (void)seen;
  use_stream(0, streams[0]);
  mf_tensor *t = create(gpu(0), NBYTES);
  keep_busy(t, streams[1]);
  mf_tensor_release(t);
  use_stream(0, streams[2]);
  sim_ask_reset();
  t = create(gpu(0), NBYTES);
  assert_int_equal(sim_ask_calls(named("cuEventRecord", "hipEventRecord")), 0);
  write_on(t, streams[2], 2);
  mf_tensor_release(t);
}

static void a_stream_that_left_a_mark_gets_no_other(void **state) {
  (void)state;
  needs_simulator();
  play_under_limit(after_a_writer_of_another_stream);
}

/* What fails once is tried again, and the memory is given to nobody before that has succeeded. */
static void where_a_call_fails_once(const mf_stream *streams, char *seen) {
  char rules[4][64];
  for (int i = 0; i < 3; i++)
    snprintf(rules[i], sizeof rules[i], "%s@%d:999:once", named("cuStreamWaitEvent", "hipStreamWaitEvent"), i + 1);
  snprintf(rules[3], sizeof rules[3], "%s:999:once", named("cuEventRecord", "hipEventRecord"));
  for (int i = 0; i < 4; i++) {
    release_busy(streams, 3, seen);
    sim_ask_fail(rules[i]);
    use_stream(0, streams[3]);
    mf_tensor *t = create(gpu(0), NBYTES);
    assert_true(sim_ask_faults() > 0);
    assert_int_equal(sim_ask_findings(), 0);
    sim_ask_reset();
    write_on(t, streams[3], 2);
    mf_tensor_release(t);
    assert_int_equal(sim_ask_findings(), 0);
    synchronize(0);
    trim(gpu(0));
  }
}

static void a_call_that_fails_once_is_made_again(void **state) {
  (void)state;
  needs_simulator();
  play_under_limit(where_a_call_fails_once);
}

/* With nothing else left, the block of another stream, in the order of both. */
static void under_the_limit_streams_share(void **state) {
  (void)state;
  const DLDevice device = gpu(0);
  const mf_stream a = stream_new(0), b = stream_new(0);
  OK(mf_pool_limit(&device, NBYTES, &err));
  for (uint64_t seed = 0; seed < seeds(50); seed++) {
    sim_ask_seed(seed);
    for (int i = 0; i < 4; i++) {
      const mf_stream s = i % 2 == 0 ? a : b;
      use_stream(0, s);
      const uint64_t waits = host_waits();
      mf_tensor *t = create(device, NBYTES);
      assert_int_equal(host_waits(), waits);
      write_on(t, s, i);
      if (i == 2) write_on(t, MF_STREAM_PER_THREAD, i);
      if (i == 3) expect_filled(t, i);
      mf_tensor_release(t);
    }
    assert_int_equal(sim_ask_findings(), 0);
  }
  OK(mf_pool_limit(&device, 0, &err));
  use_stream(0, MF_STREAM_DEFAULT);
  stream_end(0, a);
  stream_end(0, b);
}

/* The host waits at last, where nothing else helps: pinned memory cannot be handed over in order. */
static void at_last_the_host_waits(void **state) {
  (void)state;
  const DLDevice device = pinned();
  const mf_stream s = stream_new(0);
  OK(mf_pool_limit(&device, NBYTES, &err));
  mf_tensor *t = create(device, NBYTES);
  keep_busy(t, s);
  mf_tensor_release(t);
  t = create(device, NBYTES);
  sim_ask_host(data_of(t), NBYTES, true);
  mf_tensor_release(t);
  OK(mf_pool_limit(&device, 0, &err));
  stream_end(0, s);
}

static void the_hosts_wait_is_made_again(void **state) {
  (void)state;
  needs_simulator();
  char rule[64];
  const DLDevice device = pinned();
  const mf_stream s = stream_new(0);
  snprintf(rule, sizeof rule, "%s:999:once", named("cuEventSynchronize", "hipStreamSynchronize"));
  OK(mf_pool_limit(&device, NBYTES, &err));
  mf_tensor *t = create(device, NBYTES);
  keep_busy(t, s);
  mf_tensor_release(t);
  sim_ask_fail(rule);
  t = create(device, NBYTES);
  assert_true(sim_ask_faults() > 0);
  sim_ask_host(data_of(t), NBYTES, true);
  mf_tensor_release(t);
  OK(mf_pool_limit(&device, 0, &err));
  stream_end(0, s);
}

/* A stream that could not be made to wait for all leaves the block as it was: the next one waits for all. */
static void a_wait_that_fails_is_not_forgotten(void **state) {
  (void)state;
  needs_simulator();
  char rule[128];
  const DLDevice device = gpu(0);
  mf_tensor *t;
  mf_stream streams[5];
  char *seen = other_pinned(3);
  for (int i = 0; i < 5; i++) streams[i] = stream_new(0);
  OK(mf_pool_limit(&device, NBYTES, &err));
  use_stream(0, streams[0]);
  t = create(device, NBYTES);
  write_on(t, streams[0], 1);
  for (int i = 0; i < 3; i++) {
    OK(mf_tensor_acquire(t, streams[i], MF_READ, &err));
    for (int k = 0; k < 300; k++) other_copy(0, seen + i, data_of(t), 1, streams[i]);
  }
  mf_tensor_release(t);
  snprintf(rule, sizeof rule, "%s@2:999:on,%s:999:on", named("cuStreamWaitEvent", "hipStreamWaitEvent"),
           named("cuStreamSynchronize", "hipStreamSynchronize"));
  sim_ask_fail(rule);
  use_stream(0, streams[3]);
  assert_int_equal(create_at(device, NBYTES, &t), MF_ENOMEM);
  sim_ask_reset();
  use_stream(0, streams[4]);
  t = create(device, NBYTES);
  write_on(t, streams[4], 2);
  expect_filled(t, 2);
  mf_tensor_release(t);
  OK(mf_pool_limit(&device, 0, &err));
  use_stream(0, MF_STREAM_DEFAULT);
  other_sync_all(0);
  other_pinned_free(seen);
  for (int i = 0; i < 5; i++) stream_end(0, streams[i]);
}

/* Kept memory that the driver cannot be given back stands in the way: then that is the reason. */
static void why_nothing_could_be_freed_is_told(void **state) {
  (void)state;
  needs_simulator();
  char rule[96];
  const DLDevice device = gpu(0);
  const mf_stream a = stream_new(0), b = stream_new(0);
  mf_tensor *t;
  OK(mf_pool_limit(&device, 3 * NBYTES, &err));
  use_stream(0, a);
  mf_tensor_release(create(device, NBYTES));
  mf_tensor_release(create(device, 2 * NBYTES));
  use_stream(0, b);
  snprintf(rule, sizeof rule, "%s:999:on", named("cuThreadExchangeStreamCaptureMode",
                                                "hipThreadExchangeStreamCaptureMode"));
  sim_ask_fail(rule);
  REFUSED(create_at(device, 3 * NBYTES, &t), MF_EDRIVER, "ExchangeStreamCaptureMode");
  assert_int_equal(err.driver_code, 999);
  sim_ask_reset();
  mf_tensor_release(create(device, 3 * NBYTES));
  OK(mf_pool_limit(&device, 0, &err));
  use_stream(0, MF_STREAM_DEFAULT);
  stream_end(0, a);
  stream_end(0, b);
}

/* More waits for a capture to end than an operation looks at: all of it is looked at before the host waits. */
static void all_that_is_deferred_is_looked_at(void **state) {
  enum { MANY = 12 };
  (void)state;
  needs_simulator();
  const DLDevice device = gpu(0);
  const mf_stream s = stream_new(0);
  mf_tensor *t[MANY], *unrelated = create(pinned(), NBYTES);
  OK(mf_pool_limit(&device, MANY * NBYTES, &err));
  for (int i = 0; i < MANY; i++) t[i] = create(device, NBYTES);
  other_capture(0, s);
  for (int i = 0; i < MANY; i++) {
    OK(mf_tensor_record(t[i], s, MF_READ, &err));
    mf_tensor_release(t[i]);
  }
  assert_int_equal(stats(device).deferred, MANY);
  other_graph_end(0, other_capture_end(0, s));
  /* Once for each: a simulator says "not yet" the first time. */
  for (int i = 0; i < 3; i++) OK(mf_tensor_acquire(unrelated, i % 2 == 0 ? s : MF_STREAM_DEFAULT, MF_WRITE, &err));
  other_sync_all(0);
  const uint64_t waits = host_waits();
  mf_tensor *all = create(device, MANY * NBYTES);
  assert_int_equal(host_waits(), waits);
  mf_tensor_release(all);
  mf_tensor_release(unrelated);
  OK(mf_pool_limit(&device, 0, &err));
  stream_end(0, s);
}

/* What is done makes room before the host waits for what is not. */
static void the_host_waits_for_pinned_memory_only_at_last(void **state) {
  (void)state;
  needs_simulator();
  const DLDevice device = pinned();
  const mf_stream s = stream_new(0);
  OK(mf_pool_limit(&device, 5 * NBYTES, &err));
  mf_tensor *busy = create(device, NBYTES), *idle = create(device, 4 * NBYTES);
  keep_busy(busy, s);
  mf_tensor_release(busy);
  mf_tensor_release(idle);
  const uint64_t waits = host_waits();
  mf_tensor *t = create(device, NBYTES);
  assert_int_equal(host_waits(), waits);
  mf_tensor_release(t);
  OK(mf_pool_limit(&device, 0, &err));
  stream_end(0, s);
}

/* Each driver call of an allocation that has to make room fails: what is current stays, and nothing is lost. */
static bool make_room_failing(mf_stream a, mf_stream b, uint64_t number, int64_t nbytes) {
  char rule[64];
  const DLDevice device = gpu(0);
  mf_tensor *t;
  use_stream(0, a);
  t = create(device, NBYTES);
  keep_busy(t, a);
  mf_tensor_release(t);
  use_stream(0, b);
  other_current_set(-1);
  void *before = other_current();
  snprintf(rule, sizeof rule, "*@%llu:999:once", (unsigned long long)number);
  sim_ask_fail(rule);
  const int rc = create_at(device, nbytes, &t);
  const bool struck = sim_ask_faults() != 0;
  assert_true(rc == MF_OK || struck || nbytes > LIMIT);
  if (sim_ask_findings() != 0) fail_msg("call %llu fails", (unsigned long long)number);
  sim_ask_reset();
  assert_ptr_equal(other_current(), before);
  assert_int_equal(sim_ask_left("contexts"), 0);
  mf_tensor_release(t);
  use_stream(0, MF_STREAM_DEFAULT);
  synchronize(0);
  trim_all();
  assert_int_equal(stats(device).used_bytes, 0);
  assert_int_equal(sim_ask_left("memory"), 0);
  return struck;
}

static void making_room_fails_at_each_call(void **state) {
  (void)state;
  needs_simulator();
  const DLDevice device = gpu(0);
  const mf_stream a = stream_new(0), b = stream_new(0);
  OK(mf_pool_limit(&device, LIMIT, &err));
  for (int64_t nbytes = LIMIT; nbytes <= LIMIT + NBYTES; nbytes += NBYTES) { /* as much as may be, and too much */
    uint64_t number = 1;
    while (make_room_failing(a, b, number, nbytes)) number++;
    assert_true(number > 10);
  }
  OK(mf_pool_limit(&device, 0, &err));
  stream_end(0, a);
  stream_end(0, b);
}

/* A driver with little memory, which has it back when the stream comes to the free; in a process of its own, because
 * the simulator asks once how much there is. */
static int status_of_little_memory = -1;

static void fill_little_memory(void) {
  enum { MOST = 5 << 20, LESS = 3 << 20 };
  mf_stream a, b;
  mf_tensor *t;
  const DLDevice device = gpu(0);
  if (mf_stream_create(&device, &a, &err) != MF_OK || mf_stream_create(&device, &b, &err) != MF_OK) _exit(2);
  if (mf_stream_swap(&device, a, NULL, &err) != MF_OK || create_at(device, MOST, &t) != MF_OK) _exit(3);
  if (mf_tensor_acquire(t, a, MF_WRITE, &err) != MF_OK) _exit(4);
  for (int i = 0; i < 300; i++) other_fill(0, data_of(t), 1, 1, a);
  mf_tensor_release(t);
  if (mf_stream_swap(&device, b, NULL, &err) != MF_OK || create_at(device, LESS, &t) != MF_OK) _exit(5);
  mf_tensor_release(t);
  _exit(mf_stream_swap(&device, MF_STREAM_DEFAULT, NULL, &err) == MF_OK && sim_ask_findings() == 0 ? 0 : 6);
}

static void what_a_stream_has_yet_to_free_is_waited_for(void **state) {
  (void)state;
  assert_int_equal(status_of_little_memory, 0);
}

static const char *alloc_rule(const char *how) {
  static char rule[96];
  snprintf(rule, sizeof rule, "%s:2:%s", named("cuMemAllocFromPoolAsync", "hipMallocFromPoolAsync"), how);
  return rule;
}

static void no_memory_once_is_not_told(void **state) {
  (void)state;
  needs_simulator();
  mf_tensor *t;
  const mf_error before = err;
  mf_tensor_release(create(gpu(0), 9 * NBYTES));
  sim_ask_fail(alloc_rule("once"));
  OK(create_at(gpu(0), NBYTES, &t));
  assert_memory_equal(&err, &before, sizeof err);
  assert_true(sim_ask_faults() > 0);
  /* The cache went before the second try. */
  assert_int_equal(stats(gpu(0)).cached_bytes, 0);
  mf_tensor_release(t);
}

static void no_memory_for_ever(void **state) {
  (void)state;
  needs_simulator();
  mf_tensor *t;
  sim_ask_fail(alloc_rule("on"));
  REFUSED(create_at(gpu(0), NBYTES, &t), MF_ENOMEM, "no memory for 4096 bytes");
  assert_null(t);
  assert_int_equal(err.driver_code, 2);
  assert_non_null(strstr(err.call, "FromPoolAsync"));
  assert_int_equal(create_at(gpu(0), NBYTES, &t), MF_ENOMEM);
  assert_int_equal(stats(gpu(0)).used_bytes, 0);
  sim_ask_reset();
  t = create(gpu(0), NBYTES);
  write_on(t, MF_STREAM_DEFAULT, 5);
  expect_filled(t, 5);
  mf_tensor_release(t);
}

/* A round of all that the pool does with the driver. What fails is told, and nothing is lost or used too early. */
static void round_of_use(mf_stream a, mf_stream b) {
  mf_tensor *tensors[4] = {NULL};
  for (int i = 0; i < 4; i++) {
    const mf_stream s = i % 2 == 0 ? a : b;
    const DLDevice device = i == 3 ? pinned() : gpu(0), plain = gpu(0);
    if (mf_stream_swap(&plain, s, NULL, &err) != MF_OK) continue;
    if (create_at(device, NBYTES, &tensors[i]) != MF_OK) continue;
    (void)mf_tensor_fill(tensors[i], &(mf_scalar){.kind = MF_KIND_UINT, .u = 1}, &err);
    if (i > 0 && tensors[i - 1] != NULL) (void)mf_tensor_copy(tensors[i], tensors[i - 1], &err);
    if (i == 1) mf_tensor_release(tensors[0]);
    if (i == 1) tensors[0] = NULL;
  }
  for (int i = 0; i < 4; i++) mf_tensor_release(tensors[i]);
  const DLDevice device = gpu(0), host = pinned();
  (void)mf_pool_trim(&device, &err);
  (void)mf_pool_trim(&host, &err);
}

static bool round_failing(uint64_t number) {
  char rule[64];
  mf_tensor *t;
  const mf_stream a = stream_new(0), b = stream_new(0);
  snprintf(rule, sizeof rule, "*@%llu:999:once", (unsigned long long)number);
  sim_ask_fail(rule);
  round_of_use(a, b);
  const bool struck = sim_ask_faults() != 0;
  if (sim_ask_findings() != 0) fail_msg("call %llu fails", (unsigned long long)number);
  sim_ask_reset();
  use_stream(0, a);
  t = create(gpu(0), NBYTES);
  write_on(t, b, 6);
  expect_filled(t, 6);
  mf_tensor_release(t);
  use_stream(0, MF_STREAM_DEFAULT);
  stream_end(0, a);
  stream_end(0, b);
  synchronize(0);
  if (sim_ask_findings() != 0) fail_msg("after call %llu failed", (unsigned long long)number);
  return struck;
}

static void driver_calls_that_fail(void **state) {
  (void)state;
  needs_simulator();
  uint64_t number = 1;
  while (round_failing(number)) number++;
  assert_true(number > 30);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(the_limit_is_kept),
      SPEC(what_fits_to_the_byte_is_given),
      SPEC(under_the_limit_streams_share),
      SPEC(three_readers_are_waited_for_on_the_device),
      SPEC(a_stream_that_left_a_mark_gets_no_other),
      SPEC(a_call_that_fails_once_is_made_again),
      SPEC(at_last_the_host_waits),
      SPEC(the_hosts_wait_is_made_again),
      SPEC(a_wait_that_fails_is_not_forgotten),
      SPEC(why_nothing_could_be_freed_is_told),
      SPEC(all_that_is_deferred_is_looked_at),
      SPEC(the_host_waits_for_pinned_memory_only_at_last),
      SPEC(making_room_fails_at_each_call),
      SPEC(what_a_stream_has_yet_to_free_is_waited_for),
      SPEC(no_memory_once_is_not_told),
      SPEC(no_memory_for_ever),
      SPEC(driver_calls_that_fail),
  };
  status_of_little_memory = status_alone("SIM_MEMORY=6M", fill_little_memory);
  return RUN(tests);
}
