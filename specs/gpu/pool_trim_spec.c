/* pool_trim_spec.c: how kept memory goes back to the driver; forks and threads. */
#include "device.h"

#include <pthread.h>

enum { NBYTES = 4096 };

static uint64_t calls(void) {
  return sim_ask_calls(NULL);
}

static void trim_gives_all_back(void **state) {
  (void)state;
  const mf_stream s = stream_new(0);
  for (int i = 0; i < 20; i++) {
    use_stream(0, i % 2 == 0 ? s : MF_STREAM_DEFAULT);
    mf_tensor_release(create(gpu(0), NBYTES * (i + 1)));
    mf_tensor_release(create(pinned(), NBYTES * (i + 1)));
  }
  assert_true(stats(gpu(0)).cached_bytes > 0);
  use_stream(0, MF_STREAM_DEFAULT);
  stream_end(0, s);
  trim_all();
  assert_int_equal(stats(gpu(0)).cached_bytes, 0);
  assert_int_equal(stats(pinned()).cached_bytes, 0);
  sync_all(); /* the frees that the trim has queued, for which streams stay on ROCm */
  trim_all();
  assert_int_equal(sim_ask_left("streams"), 0);
}

/* Queued work goes on: device memory is freed in its order, pinned memory later. */
static void trim_waits_for_nothing(void **state) {
  (void)state;
  const mf_stream s = stream_new(0), b = stream_new(0);
  use_stream(0, s);
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
  use_stream(0, MF_STREAM_DEFAULT);
  other_sync(0, b);
  other_pinned_free(seen);
  stream_end(0, s);
  stream_end(0, b);
}

/* The driver may have freed all the same, so that the memory is not used again; the rest goes as usual. */
static void a_free_that_fails_is_told(void **state) {
  (void)state;
  needs_simulator();
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

/* Of several that fail the first is told. */
static void the_first_free_that_fails_is_told(void **state) {
  (void)state;
  needs_simulator();
  char rules[128];
  const DLDevice device = gpu(0);
  const char *name = named("cuMemFreeAsync", "hipFreeAsync");
  mf_tensor_release(create(device, NBYTES));
  mf_tensor_release(create(device, 4 * NBYTES));
  snprintf(rules, sizeof rules, "%s:999:once,%s:400:once", name, name);
  sim_ask_fail(rules);
  REFUSED(mf_pool_trim(&device, &err), MF_EDRIVER, "FreeAsync");
  assert_int_equal(err.driver_code, 999);
  assert_int_equal(sim_ask_faults(), 2);
}

/* So it is where memory is short: of the two blocks that the last attempt could not free, the first, which is the last
 * but one of all that failed. */
static void the_first_eviction_that_fails_is_told(void **state) {
  (void)state;
  needs_simulator();
  char rules[128];
  mf_tensor *t;
  const DLDevice device = gpu(0);
  const char *name = named("cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode");
  OK(mf_pool_limit(&device, 3 * NBYTES, &err));
  mf_tensor_release(create(device, NBYTES));
  mf_tensor_release(create(device, 2 * NBYTES));
  for (int n = 1, all = n; n <= all; n++) {
    snprintf(rules, sizeof rules, "%s@%d:999:once,%s:400:on", name, n, name);
    sim_ask_reset();
    sim_ask_fail(rules);
    REFUSED(create_at(device, 3 * NBYTES, &t), MF_EDRIVER, "ExchangeStreamCaptureMode");
    all = (int)sim_ask_faults();
    assert_int_equal(err.driver_code, n == all - 1 ? 999 : 400);
  }
  sim_ask_reset();
  OK(mf_pool_limit(&device, 0, &err));
}

/* Pinned memory is marked by events, of whatever device. */
static void a_trim_of_the_hosts_memory_gives_events_back(void **state) {
  const DLDevice device = gpu(0);
  (void)state;
  const mf_stream a = stream_new(0), b = stream_new(0);
  OK(mf_stream_wait(&device, a, &device, b, &err));
  stream_end(0, a);
  stream_end(0, b);
  if (other_is_simulated()) assert_true(sim_ask_left("events") > 0);
  trim(pinned());
  assert_int_equal(sim_ask_left("events"), 0);
}

/* So is a driver that does not give back what it keeps itself, if nothing failed before. */
static void a_driver_that_keeps_its_memory_is_told(void **state) {
  (void)state;
  needs_simulator();
  char rules[128];
  const DLDevice device = gpu(0);
  const char *keeps = named("cuMemPoolTrimTo", "hipMemPoolTrimTo");
  mf_tensor_release(create(device, NBYTES));
  snprintf(rules, sizeof rules, "%s:400:once", keeps);
  sim_ask_fail(rules);
  REFUSED(mf_pool_trim(&device, &err), MF_EDRIVER, "PoolTrimTo");
  mf_tensor_release(create(device, NBYTES));
  snprintf(rules, sizeof rules, "%s:999:once,%s:400:once", named("cuMemFreeAsync", "hipFreeAsync"), keeps);
  sim_ask_fail(rules);
  REFUSED(mf_pool_trim(&device, &err), MF_EDRIVER, "FreeAsync");
  assert_int_equal(sim_ask_faults(), 3);
}

/* In a process of its own, because the simulator asks once how much memory there is: what the pool had is another
 * library's to have, while memory of ours is in use there. */
static int status_of_little_memory = -1;

static void hand_memory_on(void) {
  enum { MOST = 4 << 20 };
  mf_tensor *kept, *large;
  const DLDevice device = gpu(0);
  if (create_at(device, NBYTES, &kept) != MF_OK || create_at(device, MOST, &large) != MF_OK) _exit(2);
  mf_tensor_release(large);
  if (mf_pool_trim(&device, &err) != MF_OK) _exit(3); /* which queues the free */
  other_sync_all(0);
  if (mf_pool_trim(&device, &err) != MF_OK) _exit(3);
  other_free(0, other_alloc(0, MOST));
  mf_tensor_release(kept);
  _exit(sim_ask_findings() == 0 ? 0 : 4);
}

static void what_was_trimmed_is_for_others(void **state) {
  (void)state;
  assert_int_equal(status_of_little_memory, 0);
}

/* Each driver call of a trim fails, while other memory of the device is in use: what could not be freed is kept, and
 * the next trim has it. */
static bool trim_failing(uint64_t number) {
  char rule[64];
  const DLDevice device = gpu(0), host = pinned();
  mf_tensor *t[] = {create(device, NBYTES), create(device, 4 * NBYTES), create(host, NBYTES)};
  for (size_t i = 0; i < COUNT(t); i++) mf_tensor_release(t[i]);
  snprintf(rule, sizeof rule, "*@%llu:999:once", (unsigned long long)number);
  sim_ask_fail(rule);
  (void)mf_pool_trim(&device, &err);
  (void)mf_pool_trim(&host, &err);
  const bool struck = sim_ask_faults() != 0;
  sim_ask_reset();
  trim(device);
  trim(host);
  return struck;
}

static void a_trim_that_fails_loses_nothing(void **state) {
  (void)state;
  needs_simulator();
  mf_tensor *used = create(gpu(0), NBYTES);
  uint64_t number = 1;
  do {
    synchronize(0);
    trim_all();
    if (sim_ask_left("memory") != NBYTES) fail_msg("call %llu", (unsigned long long)number - 1);
  } while (trim_failing(number++));
  assert_true(number > 10);
  mf_tensor_release(used);
}

/* Memory that a foreign stream still uses goes when that is done, and no stream is made to wait for it before. */
static void a_trim_makes_no_stream_wait(void **state) {
  (void)state;
  needs_simulator();
  const mf_stream s = other_stream(0, false);
  mf_tensor *t = create(gpu(0), NBYTES);
  keep_busy(t, s);
  mf_tensor_release(t);
  trim(gpu(0));
  assert_int_equal(stats(gpu(0)).cached_bytes, NBYTES);
  other_sync(0, s);
  trim(gpu(0));
  assert_int_equal(stats(gpu(0)).cached_bytes, 0);
  other_stream_end(s);
}

static void release_it(void *t) {
  mf_tensor_release(t);
}

/* What a deleter that is due gives back is trimmed, too, by either call. */
static void a_trim_runs_what_is_due_first(void **state) {
  (void)state;
  static char bytes[4];
  const DLTensor foreign = {.data = bytes, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLUInt, 8, 1},
                            .shape = (int64_t[]){sizeof bytes}};
  for (int all = 0; all <= 1; all++) {
    mf_tensor *t;
    OK(mf_tensor_wrap(&foreign, 0, release_it, create(gpu(0), NBYTES), &t, &err));
    assert_int_equal(mf_tensor_release_later(t), 1);
    if (all) OK(mf_pools_trim(0, &err));
    else trim(gpu(0));
    assert_int_equal(sim_ask_left("memory"), 0);
  }
}

static void a_trim_that_is_refused_trims_nothing(void **state) {
  (void)state;
  mf_tensor_release(create(gpu(0), NBYTES));
  REFUSED(mf_pools_trim(-1, &err), MF_EINVAL, "wait_ms is -1");
  assert_int_equal(stats(gpu(0)).cached_bytes, NBYTES);
  trim_all();
}

static void the_cpu_has_no_pool(void **state) {
  (void)state;
  const DLDevice cpu = {kDLCPU, 0};
  mf_pool_stats s = {1, 1, 1, 1, 1, 1};
  const mf_pool_stats nothing = {0};
  REFUSED(mf_pool_read(&cpu, &s, &err), MF_EDEVICE, "cpu");
  assert_memory_equal(&s, &nothing, sizeof s);
  REFUSED(mf_pool_limit(&cpu, -1, &err), MF_EDEVICE, "cpu");
  REFUSED(mf_pool_limit(&cpu, 0, &err), MF_EDEVICE, "cpu");
  REFUSED(mf_pool_trim(&cpu, &err), MF_EDEVICE, "cpu");
  const DLDevice beyond = gpu(99);
  REFUSED(mf_pool_read(&beyond, &s, &err), MF_EDEVICE, "99");
  REFUSED(mf_pool_trim(&beyond, &err), MF_EDEVICE, "99");
  const DLDevice unknown = {(DLDeviceType)77, 0};
  REFUSED(mf_pool_trim(&unknown, &err), MF_EDEVICE, "77");
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
    /* One changes the limit meanwhile, which nobody comes near. */
    if (w->number == 0 && mf_pool_limit(&device, i % 2 == 0 ? INT64_C(1) << 40 : 0, &mine) != MF_OK) w->wrong++;
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
  for (int i = 0; i < NTHREADS; i++) workers[i] = (worker){stream_new(0), i, 0};
  run_threads(workers);
  for (int i = 0; i < NTHREADS; i++) stream_end(0, workers[i].stream);
}

static void threads_on_one_stream(void **state) {
  worker workers[NTHREADS] = {{0}};
  (void)state;
  const mf_stream s = stream_new(0);
  for (int i = 0; i < NTHREADS; i++) workers[i] = (worker){s, i, 0};
  run_threads(workers);
  stream_end(0, s);
}

/* Their memory is nobody's home any more, and goes all the same: at the second trim, as the first can only record how
 * far those streams were. */
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

/* Both that a trim asks: neither is taken for an answer, and the memory stays. */
static void a_question_about_captures_that_fails_is_told(void **state) {
  const DLDevice device = gpu(0);
  char rule[64];
  bool struck = true;
  (void)state;
  needs_simulator();
  for (int n = 1; struck; n++) {
    mf_tensor_release(create(device, NBYTES));
    snprintf(rule, sizeof rule, "%s@%d:999:once", named("cuStreamGetCaptureInfo", "hipStreamGetCaptureInfo"), n);
    sim_ask_reset();
    sim_ask_fail(rule);
    const int rc = mf_pool_trim(&device, &err);
    struck = sim_ask_faults() > 0;
    assert_true(struck || n > 2);
    assert_int_equal(rc, struck ? MF_EDRIVER : MF_OK);
    assert_int_equal(stats(device).cached_bytes, struck ? NBYTES : 0);
  }
  sim_ask_reset();
}

/* Returns the argument where something is not as it should be. */
static void *wait_in_vain(void *wrong) {
  const DLDevice device = gpu(0);
  mf_error e;
  for (int i = 0; i < 50; i++)
    if (mf_stream_wait(&device, MF_STREAM_PER_THREAD, &device, MF_STREAM_DEFAULT, &e) != MF_EDRIVER) return wrong;
  return NULL;
}

/* An event that cannot be created gives up its place among those that are to be kept, whoever else asks for one. */
static void events_that_two_threads_cannot_have(void **state) {
  pthread_t thread;
  void *wrong;
  char rule[64];
  needs_simulator();
  trim_all();
  snprintf(rule, sizeof rule, "%s:999:on", named("cuEventCreate", "hipEventCreateWithFlags"));
  sim_ask_fail(rule);
  assert_int_equal(pthread_create(&thread, NULL, wait_in_vain, state), 0);
  assert_null(wait_in_vain(state));
  assert_int_equal(pthread_join(thread, &wrong), 0);
  assert_null(wrong);
  sim_ask_reset();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(trim_gives_all_back),
      SPEC(trim_waits_for_nothing),
      SPEC(a_free_that_fails_is_told),
      SPEC(the_first_free_that_fails_is_told),
      SPEC(the_first_eviction_that_fails_is_told),
      SPEC(a_trim_of_the_hosts_memory_gives_events_back),
      SPEC(a_driver_that_keeps_its_memory_is_told),
      SPEC(what_was_trimmed_is_for_others),
      SPEC(a_trim_that_fails_loses_nothing),
      SPEC(a_trim_makes_no_stream_wait),
      SPEC(a_trim_runs_what_is_due_first),
      SPEC(a_trim_that_is_refused_trims_nothing),
      SPEC(the_cpu_has_no_pool),
      SPEC(a_forked_child_makes_no_driver_call),
      SPEC(a_question_about_captures_that_fails_is_told),
      SPEC(threads_on_their_own_streams),
      SPEC(threads_on_one_stream),
      SPEC(threads_on_their_per_thread_streams),
      SPEC(events_that_two_threads_cannot_have),
  };
  status_of_little_memory = status_alone("SIM_MEMORY=6M", hand_memory_on);
  return RUN(tests);
}
