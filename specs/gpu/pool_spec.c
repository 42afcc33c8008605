/* pool_spec.c: memory that is kept for reuse: who gets it, when, at what cost, and how it goes back. */
#include "api.h"

#include <pthread.h>

enum { NBYTES = 4096 };

static uint64_t calls(void) {
  return sim_ask_calls(NULL);
}

/* Creates and releases on a stream; the driver calls that the second time takes. */
static uint64_t cost_of_reuse(mf_stream s) {
  use(s);
  mf_tensor_release(create(gpu(0), NBYTES));
  const uint64_t before = calls();
  const mf_pool_stats first = stats(gpu(0));
  mf_tensor *t = create(gpu(0), NBYTES);
  mf_tensor_release(t);
  const uint64_t cost = calls() - before;
  const mf_pool_stats second = stats(gpu(0));
  assert_int_equal(second.hits - first.hits, 1);
  assert_int_equal(second.misses - first.misses, 0);
  return cost;
}

static void reuse_on_one_stream_makes_no_driver_call(void **state) {
  (void)state;
  const mf_stream own = stream_new();
  assert_int_equal(cost_of_reuse(MF_STREAM_DEFAULT), 0);
  assert_int_equal(cost_of_reuse(MF_STREAM_PER_THREAD), 0);
  assert_int_equal(cost_of_reuse(own), 0);
  use(MF_STREAM_DEFAULT);
  stream_end(own);
}

static void reuse_after_work_makes_no_driver_call(void **state) {
  (void)state;
  const mf_stream s = stream_new();
  use(s);
  mf_tensor *t = create(gpu(0), NBYTES);
  void *data = data_of(t);
  write_on(t, s, 1);
  const uint64_t before = calls();
  mf_tensor_release(t);
  t = create(gpu(0), NBYTES);
  assert_int_equal(calls() - before, 0);
  assert_ptr_equal(data_of(t), data);
  write_on(t, s, 2);
  expect_filled(t, 2);
  mf_tensor_release(t);
  use(MF_STREAM_DEFAULT);
  stream_end(s);
}

static void little_is_wasted(void **state) {
  (void)state;
  for (int64_t nbytes = 1; nbytes < (int64_t)40 << 20; nbytes += nbytes / 3 + 1) {
    mf_tensor *t = create(gpu(0), nbytes);
    const int64_t used = stats(gpu(0)).used_bytes;
    assert_true(used >= nbytes && used >= 512);
    if (nbytes > 512) assert_true(used <= nbytes + nbytes / 4);
    if (nbytes > 16 << 20) assert_true(used < nbytes + (2 << 20));
    mf_tensor_release(t);
    assert_int_equal(stats(gpu(0)).used_bytes, 0);
    assert_true(stats(gpu(0)).cached_bytes >= used);
    trim(gpu(0));
    assert_int_equal(stats(gpu(0)).cached_bytes, 0);
  }
}

static void sizes_of_one_step_share_blocks(void **state) {
  (void)state;
  mf_tensor *t = create(gpu(0), 1000);
  void *data = data_of(t);
  mf_tensor_release(t);
  t = create(gpu(0), 1024);
  assert_ptr_equal(data_of(t), data);
  mf_tensor_release(t);
  t = create(gpu(0), 1025);
  assert_ptr_not_equal(data_of(t), data);
  mf_tensor_release(t);
}

/* Memory that another stream still uses is not given out, though the stream that asks is the one that made it. */
static void others_work_keeps_a_block(void **state) {
  (void)state;
  const mf_stream a = stream_new(), b = stream_new();
  use(a);
  mf_tensor *t = create(gpu(0), NBYTES);
  void *data = data_of(t);
  write_on(t, b, 1);
  mf_tensor_release(t);
  t = create(gpu(0), NBYTES);
  assert_ptr_not_equal(data_of(t), data);
  other_sync(0, b);
  mf_tensor *again = create(gpu(0), NBYTES);
  assert_ptr_equal(data_of(again), data);
  mf_tensor_release(again);
  mf_tensor_release(t);
  use(MF_STREAM_DEFAULT);
  stream_end(a);
  stream_end(b);
}

/* The stream that made a block need not wait for its own work to have it again. */
static void only_others_work_counts(void **state) {
  (void)state;
  const mf_stream a = stream_new(), b = stream_new();
  use(a);
  mf_tensor *t = create(gpu(0), NBYTES);
  char *seen = other_pinned(2);
  void *data = data_of(t);
  write_on(t, b, 1);
  OK(mf_tensor_acquire(t, a, MF_READ, &err));
  OK(mf_tensor_acquire(t, b, MF_READ, &err));
  other_copy(0, seen, data, 1, b);
  other_sync(0, b);
  for (int i = 0; i < 300; i++) other_copy(0, seen + 1, data, 1, a);
  mf_tensor_release(t);
  /* A simulator says "not yet" the first time. */
  mf_tensor *first = create(gpu(0), NBYTES);
  t = data_of(first) == data ? mf_tensor_retain(first) : create(gpu(0), NBYTES);
  assert_ptr_equal(data_of(t), data);
  mf_tensor_release(first);
  mf_tensor_release(t);
  use(MF_STREAM_DEFAULT);
  other_sync(0, a);
  other_pinned_free(seen);
  stream_end(a);
  stream_end(b);
}

/* One event for the stream that is behind the others. */
static void who_waited_for_all_speaks_for_all(void **state) {
  (void)state;
  const mf_stream s = other_stream(0, false), b = stream_new();
  use(s);
  mf_tensor *t = create(gpu(0), NBYTES);
  write_on(t, s, 1);
  OK(mf_tensor_acquire(t, b, MF_READ, &err));
  const uint64_t before = sim_ask_calls(named("cuEventRecord", "hipEventRecord"));
  mf_tensor_release(t);
  if (other_is_simulated())
    assert_int_equal(sim_ask_calls(named("cuEventRecord", "hipEventRecord")) - before, 1);
  use(MF_STREAM_DEFAULT);
  other_stream_end(s);
  stream_end(b);
}

/* What a loop hands to another stream comes back: the pool does not grow with each round. */
static void a_loop_that_hands_over_does_not_grow(void **state) {
  (void)state;
  const mf_stream a = stream_new(), b = stream_new();
  use(a);
  for (int i = 0; i < 50; i++) {
    mf_tensor *t = create(gpu(0), NBYTES);
    write_on(t, a, 1);
    write_on(t, b, 2);
    mf_tensor_release(t);
    if (i % 3 == 0) other_sync(0, b);
  }
  assert_true(stats(gpu(0)).cached_bytes <= 4 * NBYTES);
  use(MF_STREAM_DEFAULT);
  stream_end(a);
  stream_end(b);
}

/* A program drawn at random: tensors made on, written on and released from streams of every sort. */
enum { NTENSORS = 6, NSTREAMS = 6, NSTEPS = 150 };

typedef struct world {
  uint64_t random;
  mf_stream streams[NSTREAMS];
  mf_tensor *tensors[NTENSORS];
  int bytes[NTENSORS];
} world;

static DLDevice any_device(world *w) {
  const uint64_t draw = random_of(&w->random) % 6;
  if (draw == 0 && other_managed_type() != 0) return managed();
  return draw == 1 ? pinned() : gpu(0);
}

static void step(world *w) {
  const int i = (int)(random_of(&w->random) % NTENSORS);
  const mf_stream s = w->streams[random_of(&w->random) % NSTREAMS];
  if (w->tensors[i] == NULL) {
    use(s);
    w->tensors[i] = create(any_device(w), NBYTES >> random_of(&w->random) % 2);
    w->bytes[i] = -1;
    return;
  }
  switch (random_of(&w->random) % 4) {
    case 0:
      mf_tensor_release(w->tensors[i]);
      w->tensors[i] = NULL;
      return;
    case 1:
      if (w->bytes[i] >= 0) expect_filled(w->tensors[i], w->bytes[i]);
      return;
    default:
      w->bytes[i] = (int)(random_of(&w->random) % 256);
      write_on(w->tensors[i], s, w->bytes[i]);
  }
}

static void world_run(uint64_t seed) {
  world w = {.random = seed, .streams = {MF_STREAM_DEFAULT, MF_STREAM_PER_THREAD}};
  for (int i = 2; i < 4; i++) w.streams[i] = stream_new();
  for (int i = 4; i < 6; i++) w.streams[i] = other_stream(0, i == 5);
  sim_ask_seed(seed);
  for (int i = 0; i < NSTEPS; i++) step(&w);
  for (int i = 0; i < NTENSORS; i++) {
    if (w.tensors[i] != NULL && w.bytes[i] >= 0) expect_filled(w.tensors[i], w.bytes[i]);
    mf_tensor_release(w.tensors[i]);
  }
  use(MF_STREAM_DEFAULT);
  for (int i = 2; i < 4; i++) stream_end(w.streams[i]);
  for (int i = 4; i < 6; i++) other_stream_end(w.streams[i]);
  if (seed % 3 == 0) trim_all();
  if (sim_ask_findings() != 0) fail_msg("seed %llu", (unsigned long long)seed);
}

static void programs_at_random(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < seeds(50); seed++) world_run(seed);
}

/* A foreign stream may be destroyed once the memory that it touched was released, its work still queued. */
static void a_foreign_stream_may_go(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    const mf_stream s = other_stream(0, false);
    use(s);
    mf_tensor *t = create(gpu(0), NBYTES);
    write_on(t, s, 1);
    mf_tensor_release(t);
    use(MF_STREAM_DEFAULT);
    other_stream_end(s);
    if (i == 1) trim_all();
    t = create(gpu(0), NBYTES);
    write_on(t, MF_STREAM_DEFAULT, 2);
    expect_filled(t, 2);
    mf_tensor_release(t);
  }
}

/* The stream of a foreign library gets its own memory back in the order of its work. */
static void a_foreign_stream_gets_its_block_back(void **state) {
  (void)state;
  const mf_stream s = other_stream(0, false);
  use(s);
  mf_tensor *t = create(gpu(0), NBYTES);
  void *data = data_of(t);
  write_on(t, s, 1);
  mf_tensor_release(t);
  t = create(gpu(0), NBYTES);
  assert_ptr_equal(data_of(t), data);
  write_on(t, s, 2);
  expect_filled(t, 2);
  mf_tensor_release(t);
  use(MF_STREAM_DEFAULT);
  other_stream_end(s);
}

static void pinned_memory_is_the_hosts_at_once(void **state) {
  (void)state;
  const mf_stream s = stream_new();
  use(s);
  mf_tensor *t = create(pinned(), NBYTES);
  void *data = data_of(t);
  write_on(t, s, 1);
  mf_tensor_release(t);
  t = create(pinned(), NBYTES);
  assert_ptr_not_equal(data_of(t), data);
  memset(data_of(t), 2, NBYTES);
  sim_ask_host(data_of(t), NBYTES, true);
  other_sync(0, s);
  mf_tensor *again = create(pinned(), NBYTES);
  assert_ptr_equal(data_of(again), data);
  sim_ask_host(data_of(again), NBYTES, true);
  mf_tensor_release(t);
  mf_tensor_release(again);
  use(MF_STREAM_DEFAULT);
  stream_end(s);
}

static void memory_of_two_devices_is_kept_apart(void **state) {
  (void)state;
  if (other_devices() < 2) {
    print_message("skipped: there is one device\n");
    skip();
  }
  mf_tensor_release(create(gpu(0), NBYTES));
  assert_int_equal(stats(gpu(0)).cached_bytes, NBYTES);
  assert_int_equal(stats(gpu(1)).cached_bytes, 0);
  mf_tensor_release(create(gpu(1), NBYTES));
  trim(gpu(0));
  assert_int_equal(stats(gpu(0)).cached_bytes, 0);
  assert_int_equal(stats(gpu(1)).cached_bytes, NBYTES);
}

/* A copy to another device runs on a stream of that one, which then has used the source. */
static void another_device_keeps_a_block(void **state) {
  (void)state;
  if (other_devices() < 2) {
    print_message("skipped: there is one device\n");
    skip();
  }
  const DLDevice second = gpu(1);
  mf_stream there;
  OK(mf_stream_create(&second, &there, &err));
  OK(mf_stream_swap(&second, there, NULL, &err));
  for (uint64_t seed = 0; seed < seeds(50); seed++) {
    sim_ask_seed(seed);
    for (int i = 0; i < 3; i++) {
      mf_tensor *a = create(gpu(0), NBYTES), *b = create(second, NBYTES);
      write_on(a, MF_STREAM_DEFAULT, i);
      OK(mf_tensor_copy(b, a, &err));
      mf_tensor_release(a);
      a = create(gpu(0), NBYTES);
      write_on(a, MF_STREAM_DEFAULT, 9);
      mf_tensor_release(a);
      if (i == 2) expect_filled(b, i);
      mf_tensor_release(b);
    }
    assert_int_equal(sim_ask_findings(), 0);
  }
  OK(mf_stream_swap(&second, MF_STREAM_DEFAULT, NULL, &err));
  OK(mf_stream_destroy(&second, there, &err));
}

/* Capture */

static void a_captured_stream_gets_its_kept_block(void **state) {
  (void)state;
  const mf_stream s = stream_new();
  use(s);
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
  use(MF_STREAM_DEFAULT);
  stream_end(s);
}

static void a_captured_stream_gets_nothing_new(void **state) {
  (void)state;
  mf_tensor *t;
  const mf_stream s = stream_new(), b = stream_new();
  use(b);
  mf_tensor_release(create(gpu(0), NBYTES));
  use(s);
  other_capture(0, s);
  REFUSED(create_at(gpu(0), NBYTES, &t), MF_ECAPTURE, "allocate before the capture");
  assert_null(t);
  REFUSED(create_at(gpu(0), NBYTES, &t), MF_ECAPTURE, "4096 bytes");
  /* Another stream of the same thread is not concerned. */
  use(b);
  t = create(gpu(0), 3 * NBYTES);
  write_on(t, b, 3);
  void *graph = other_capture_end(0, s);
  other_graph_end(0, graph);
  expect_filled(t, 3);
  mf_tensor_release(t);
  use(MF_STREAM_DEFAULT);
  stream_end(s);
  stream_end(b);
}

/* An event from before the capture cannot be waited for within it. */
static void a_captured_foreign_stream_gets_what_is_done(void **state) {
  (void)state;
  mf_tensor *t;
  const mf_stream s = other_stream(0, false);
  use(s);
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
  use(MF_STREAM_DEFAULT);
  other_stream_end(s);
}

/* Captures in global mode forbid much to their thread, which must not keep other streams from working, nor change what
 * the thread itself is forbidden. */
static void a_capture_does_not_hinder_other_streams(void **state) {
  (void)state;
  const char *mode = named("cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode");
  const mf_stream s = stream_new(), b = stream_new();
  const uint64_t before = sim_ask_calls(mode);
  other_capture(0, s);
  use(b);
  for (int i = 0; i < 3; i++) {
    mf_tensor *t = create(gpu(0), NBYTES), *host = create(pinned(), NBYTES);
    write_on(host, b, 1);
    write_on(t, b, 1);
    mf_tensor_release(host);
    mf_tensor_release(t);
    trim(pinned());
  }
  assert_int_equal((sim_ask_calls(mode) - before) % 2, 0);
  void *graph = other_capture_end(0, s);
  other_graph_end(0, graph);
  use(MF_STREAM_DEFAULT);
  stream_end(s);
  stream_end(b);
}

/* Released while one of its streams is captured: nothing can be recorded there, so that it waits for the end. */
static void a_release_during_a_capture_is_deferred(void **state) {
  (void)state;
  const mf_stream a = stream_new(), s = other_stream(0, false);
  use(a);
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
  use(MF_STREAM_DEFAULT);
  stream_end(a);
  other_stream_end(s);
}

static void trim_leaves_a_captured_stream_alone(void **state) {
  (void)state;
  const mf_stream s = stream_new();
  use(s);
  mf_tensor_release(create(gpu(0), NBYTES));
  other_capture(0, s);
  trim(gpu(0));
  assert_int_equal(stats(gpu(0)).cached_bytes, NBYTES);
  void *graph = other_capture_end(0, s);
  other_graph_end(0, graph);
  use(MF_STREAM_DEFAULT);
  stream_end(s);
}

/* Limits, and no memory */

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

/* With nothing else left, the block of another stream, in the order of both. */
static void under_the_limit_streams_share(void **state) {
  (void)state;
  const DLDevice device = gpu(0);
  const mf_stream a = stream_new(), b = stream_new();
  OK(mf_pool_limit(&device, NBYTES, &err));
  for (uint64_t seed = 0; seed < seeds(50); seed++) {
    sim_ask_seed(seed);
    for (int i = 0; i < 4; i++) {
      const mf_stream s = i % 2 == 0 ? a : b;
      use(s);
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
  use(MF_STREAM_DEFAULT);
  stream_end(a);
  stream_end(b);
}

/* The host waits at last, where nothing else helps: pinned memory cannot be handed over in order. */
static void at_last_the_host_waits(void **state) {
  (void)state;
  const DLDevice device = pinned();
  const mf_stream s = stream_new();
  OK(mf_pool_limit(&device, NBYTES, &err));
  mf_tensor *t = create(device, NBYTES);
  keep_busy(t, s);
  mf_tensor_release(t);
  t = create(device, NBYTES);
  sim_ask_host(data_of(t), NBYTES, true);
  mf_tensor_release(t);
  OK(mf_pool_limit(&device, 0, &err));
  stream_end(s);
}

static const char *alloc_rule(const char *how) {
  static char rule[96];
  snprintf(rule, sizeof rule, "%s:2:%s", named("cuMemAllocFromPoolAsync", "hipMallocFromPoolAsync"), how);
  return rule;
}

static void no_memory_once_is_not_told(void **state) {
  (void)state;
  ONLY_SIMULATED
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
  ONLY_SIMULATED
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
  const mf_stream a = stream_new(), b = stream_new();
  snprintf(rule, sizeof rule, "*@%llu:999:once", (unsigned long long)number);
  sim_ask_fail(rule);
  round_of_use(a, b);
  const bool struck = sim_ask_faults() != 0;
  if (sim_ask_findings() != 0) fail_msg("call %llu fails", (unsigned long long)number);
  sim_ask_reset();
  use(a);
  t = create(gpu(0), NBYTES);
  write_on(t, b, 6);
  expect_filled(t, 6);
  mf_tensor_release(t);
  use(MF_STREAM_DEFAULT);
  stream_end(a);
  stream_end(b);
  synchronize();
  if (sim_ask_findings() != 0) fail_msg("after call %llu failed", (unsigned long long)number);
  return struck;
}

static void driver_calls_that_fail(void **state) {
  (void)state;
  ONLY_SIMULATED
  uint64_t number = 1;
  while (round_failing(number)) number++;
  assert_true(number > 30);
}

/* Trimming */

static void trim_gives_all_back(void **state) {
  (void)state;
  const mf_stream s = stream_new();
  for (int i = 0; i < 20; i++) {
    use(i % 2 == 0 ? s : MF_STREAM_DEFAULT);
    mf_tensor_release(create(gpu(0), NBYTES * (i + 1)));
    mf_tensor_release(create(pinned(), NBYTES * (i + 1)));
  }
  assert_true(stats(gpu(0)).cached_bytes > 0);
  use(MF_STREAM_DEFAULT);
  stream_end(s);
  trim_all();
  assert_int_equal(stats(gpu(0)).cached_bytes, 0);
  assert_int_equal(stats(pinned()).cached_bytes, 0);
  assert_int_equal(sim_ask_left("streams"), 0);
}

/* Queued work goes on: device memory is freed in its order, pinned memory later. */
static void trim_waits_for_nothing(void **state) {
  (void)state;
  const mf_stream s = stream_new(), b = stream_new();
  use(s);
  mf_tensor *t = create(gpu(0), NBYTES), *host = create(pinned(), NBYTES);
  write_on(t, s, 1);
  write_on(host, s, 1);
  OK(mf_tensor_acquire(t, b, MF_READ, &err));
  char *seen = other_pinned(1);
  for (int i = 0; i < 300; i++) other_copy(0, seen, data_of(t), 1, b);
  OK(mf_tensor_acquire(t, s, MF_READ, &err));
  keep_busy(host, s);
  mf_tensor_release(t);
  mf_tensor_release(host);
  const int64_t pending = sim_ask_left("pending");
  trim(gpu(0));
  trim(pinned());
  if (other_is_simulated()) assert_true(sim_ask_left("pending") > pending - 300);
  assert_int_equal(stats(gpu(0)).cached_bytes, 0);
  assert_int_equal(stats(pinned()).cached_bytes, NBYTES);
  other_sync(0, s);
  trim(pinned());
  assert_int_equal(stats(pinned()).cached_bytes, 0);
  use(MF_STREAM_DEFAULT);
  other_sync(0, b);
  other_pinned_free(seen);
  stream_end(s);
  stream_end(b);
}

/* The driver may have freed all the same, so that the memory is not used again; the rest goes as usual. */
static void a_free_that_fails_is_told(void **state) {
  (void)state;
  ONLY_SIMULATED
  char rule[96];
  const DLDevice device = gpu(0);
  mf_tensor_release(create(device, NBYTES));
  mf_tensor_release(create(device, 4 * NBYTES));
  snprintf(rule, sizeof rule, "%s:999:once", named("cuMemFreeAsync", "hipFreeAsync"));
  sim_ask_fail(rule);
  REFUSED(mf_pool_trim(&device, &err), MF_EDRIVER, "FreeAsync");
  assert_int_equal(err.driver_code, 999);
  assert_int_equal(stats(device).cached_bytes, 0);
  assert_int_equal(stats(device).used_bytes, 0);
  trim(device);
}

static void the_cpu_has_no_pool(void **state) {
  (void)state;
  const DLDevice cpu = {kDLCPU, 0};
  mf_pool_stats s;
  REFUSED(mf_pool_read(&cpu, &s, &err), MF_EDEVICE, "cpu");
  REFUSED(mf_pool_limit(&cpu, 0, &err), MF_EDEVICE, "cpu");
  REFUSED(mf_pool_trim(&cpu, &err), MF_EDEVICE, "cpu");
  const DLDevice beyond = gpu(99);
  REFUSED(mf_pool_read(&beyond, &s, &err), MF_EDEVICE, "99");
}

/* Fork */

static mf_tensor *inherited;

static void child(void) {
  mf_tensor *t;
  mf_pool_stats s;
  const DLDevice device = gpu(0);
  const uint64_t before = calls();
  mf_tensor_release(inherited);
  if (create_at(device, NBYTES, &t) != MF_EDEVICE || strstr(err.message, "fork") == NULL) _exit(2);
  if (mf_pool_read(&device, &s, &err) != MF_EDEVICE) _exit(3);
  if (mf_pool_trim(&device, &err) != MF_EDEVICE) _exit(4);
  if (calls() != before) _exit(5);
}

static void a_forked_child_makes_no_driver_call(void **state) {
  (void)state;
  mf_tensor_release(create(gpu(0), 2 * NBYTES));
  inherited = create(gpu(0), NBYTES);
  write_on(inherited, MF_STREAM_DEFAULT, 9);
  OK(mf_tensor_record(inherited, MF_STREAM_PER_THREAD, MF_READ, &err));
  in_fork(child);
  expect_filled(inherited, 9);
  mf_tensor_release(inherited);
}

/* Threads */

enum { NTHREADS = 8, ROUNDS = 300 };

typedef struct worker {
  mf_stream stream;
  int number;
  int wrong;
} worker;

static void *work(void *arg) {
  worker *w = arg;
  mf_error mine;
  const DLDevice device = gpu(0);
  int64_t nbytes = NBYTES;
  const DLTensor like = {.device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &nbytes};
  if (mf_stream_swap(&device, w->stream, NULL, &mine) != MF_OK) w->wrong++;
  for (int i = 0; i < ROUNDS; i++) {
    mf_tensor *t;
    nbytes = NBYTES << i % 3;
    if (mf_tensor_create(&like, 0, &t, &mine) != MF_OK) {
      w->wrong++;
      continue;
    }
    const mf_scalar value = {.kind = MF_KIND_UINT, .u = (uint64_t)w->number};
    if (mf_tensor_fill(t, &value, &mine) != MF_OK) w->wrong++;
    mf_tensor_release(t);
  }
  return NULL;
}

static void run_threads(worker *workers) {
  pthread_t threads[NTHREADS];
  for (int i = 0; i < NTHREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  for (int i = 0; i < NTHREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < NTHREADS; i++) assert_int_equal(workers[i].wrong, 0);
  assert_int_equal(stats(gpu(0)).used_bytes, 0);
}

static void threads_on_their_own_streams(void **state) {
  worker workers[NTHREADS] = {{0}};
  (void)state;
  for (int i = 0; i < NTHREADS; i++) workers[i] = (worker){stream_new(), i, 0};
  run_threads(workers);
  for (int i = 0; i < NTHREADS; i++) stream_end(workers[i].stream);
}

static void threads_on_one_stream(void **state) {
  worker workers[NTHREADS] = {{0}};
  (void)state;
  const mf_stream s = stream_new();
  for (int i = 0; i < NTHREADS; i++) workers[i] = (worker){s, i, 0};
  run_threads(workers);
  stream_end(s);
}

/* Their memory is nobody's home any more, and goes all the same: at the second trim, as the first can only record how far
 * those streams were. */
static void threads_on_their_per_thread_streams(void **state) {
  worker workers[NTHREADS] = {{0}};
  (void)state;
  for (int i = 0; i < NTHREADS; i++) workers[i] = (worker){MF_STREAM_PER_THREAD, i, 0};
  run_threads(workers);
  trim(gpu(0));
  other_sync_all(0);
  trim(gpu(0));
  assert_int_equal(stats(gpu(0)).cached_bytes, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(reuse_on_one_stream_makes_no_driver_call),
      SPEC(reuse_after_work_makes_no_driver_call),
      SPEC(little_is_wasted),
      SPEC(sizes_of_one_step_share_blocks),
      SPEC(others_work_keeps_a_block),
      SPEC(only_others_work_counts),
      SPEC(who_waited_for_all_speaks_for_all),
      SPEC(a_loop_that_hands_over_does_not_grow),
      SPEC(programs_at_random),
      SPEC(a_foreign_stream_may_go),
      SPEC(a_foreign_stream_gets_its_block_back),
      SPEC(pinned_memory_is_the_hosts_at_once),
      SPEC(memory_of_two_devices_is_kept_apart),
      SPEC(another_device_keeps_a_block),
      SPEC(a_captured_stream_gets_its_kept_block),
      SPEC(a_captured_stream_gets_nothing_new),
      SPEC(a_captured_foreign_stream_gets_what_is_done),
      SPEC(a_capture_does_not_hinder_other_streams),
      SPEC(a_release_during_a_capture_is_deferred),
      SPEC(trim_leaves_a_captured_stream_alone),
      SPEC(the_limit_is_kept),
      SPEC(under_the_limit_streams_share),
      SPEC(at_last_the_host_waits),
      SPEC(no_memory_once_is_not_told),
      SPEC(no_memory_for_ever),
      SPEC(driver_calls_that_fail),
      SPEC(trim_gives_all_back),
      SPEC(trim_waits_for_nothing),
      SPEC(a_free_that_fails_is_told),
      SPEC(the_cpu_has_no_pool),
      SPEC(a_forked_child_makes_no_driver_call),
      SPEC(threads_on_their_own_streams),
      SPEC(threads_on_one_stream),
      SPEC(threads_on_their_per_thread_streams),
  };
  return RUN(tests);
}
