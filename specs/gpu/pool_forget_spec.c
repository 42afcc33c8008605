/* pool_forget_spec.c: once nothing of Moonferry's is left, a trim gives back what the driver itself holds for it:
 * pools, contexts, kernels. And the next use makes it anew. */
#include <pthread.h>
#include <stdatomic.h>

#include "loan.h"

static int64_t held(void) {
  return sim_ask_left("pools") + sim_ask_left("modules") + sim_ask_left("retains");
}

static int64_t held_before; /* by the other library */

static int begin_empty(void **state) {
  begin(state);
  other_sync_all(0);
  trim_all();
  held_before = held();
  return 0;
}

static void expect_held(bool something, int line) {
  if (other_is_simulated() && (held() > held_before) != something)
    fail_msg("line %d: the driver holds %lld, %lld before", line, (long long)held(), (long long)held_before);
}

#define EXPECT_HELD(something) expect_held(something, __LINE__)

static void work(void) {
  mf_tensor *t = create(gpu(0), NBYTES);
  write_on(t, MF_STREAM_DEFAULT, 7);
  expect_filled(t, 7);
  mf_tensor_release(t);
}

static void it_is_given_back_and_made_anew(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    work();
    EXPECT_HELD(true);
    other_sync_all(0);
    trim_all();
    EXPECT_HELD(false);
  }
}

/* Whether anything is left is looked at behind the trim, so that one is enough. */
static void one_trim_is_enough(void **state) {
  (void)state;
  mf_tensor *t = create(gpu(0), NBYTES);
  write_on(t, MF_STREAM_DEFAULT, 7);
  mf_tensor_release(t);
  other_sync_all(0);
  trim(gpu(0));
  EXPECT_HELD(false);
}

/* So are deleters, of memory whose work is found done by the same trim. */
static void one_trim_of_all_calls_deleters(void **state) {
  (void)state;
  loan *l = loan_new();
  const mf_stream s = stream_new(0);
  mf_tensor *t = import(l);
  keep_busy(t, s);
  mf_tensor_release(t);
  other_sync(0, s);
  assert_int_equal(calls_of(l), 0);
  OK(mf_pools_trim(0, &err));
  assert_int_equal(calls_of(l), 1);
  loan_end(l);
  stream_end(0, s);
}

/* A strided copy needs a kernel where the driver can compile one. */
static void copy_by_a_kernel(int ordinal) {
  int64_t shape[] = {64, 64}, strides[] = {1, 64};
  const DLTensor like = {.device = gpu(ordinal), .ndim = 2, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  const int32_t axes[] = {1, 0};
  mf_tensor *t, *u, *turned;
  OK(mf_tensor_create(&like, 0, &t, &err));
  OK(mf_tensor_create(&like, 0, &u, &err));
  OK(mf_tensor_permute_dims(t, axes, 2, &turned, &err));
  assert_int_equal(mf_tensor_dltensor(turned)->strides[0], strides[0]);
  OK(mf_tensor_copy(u, turned, &err));
  mf_tensor_release(turned);
  mf_tensor_release(t);
  mf_tensor_release(u);
}

static void kernels_are_compiled_again(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    copy_by_a_kernel(0);
    other_sync_all(0);
    trim_all();
    EXPECT_HELD(false);
  }
}

/* The driver would unload it while it may run, which the simulators report. */
static void not_while_a_kernel_may_be_queued(void **state) {
  (void)state;
  for (int i = 0; i < other_devices(); i++) {
    copy_by_a_kernel(i);
    trim_all();
    sync_all();
    trim_all();
    EXPECT_HELD(false);
  }
}

/* What the driver holds for gpu 1 after a trim, on which a kernel is queued; what gpu 0 was used for is done. */
static int64_t held_behind_a_kernel(bool uses_gpu_0) {
  void *busy = other_alloc(1, 1);
  if (uses_gpu_0) copy_by_a_kernel(0);
  other_sync_all(0);
  for (int i = 0; i < 300; i++) other_fill(1, busy, 1, 1, MF_STREAM_DEFAULT);
  copy_by_a_kernel(1);
  trim_all();
  const int64_t now = held();
  sync_all();
  other_free(1, busy);
  trim_all();
  EXPECT_HELD(false);
  return now;
}

static void it_keeps_nothing_of_another_device(void **state) {
  (void)state;
  needs_simulator();
  const int64_t of_gpu_1 = held_behind_a_kernel(false);
  assert_int_equal(held_behind_a_kernel(true), of_gpu_1);
  assert_true(of_gpu_1 > held_before);
}

/* Memory stays where no event tells when the kernel is done. */
static void nor_freed_without_an_event_behind_it(void **state) {
  char rule[64];
  (void)state;
  needs_simulator();
  const DLDevice device = gpu(0);
  copy_by_a_kernel(0);
  const int64_t cached = stats(device).cached_bytes;
  snprintf(rule, sizeof rule, "%s:999:on", named("cuEventRecord", "hipEventRecord"));
  sim_ask_fail(rule);
  REFUSED(mf_pool_trim(&device, &err), MF_EDRIVER, "EventRecord");
  sim_ask_reset();
  assert_int_equal(stats(device).cached_bytes, cached);
}

/* Nor where the question just before, whether a capture forbids it, fails: the fourth, because each of the two blocks
 * was looked at. */
static void nor_freed_without_an_answer_about_captures(void **state) {
  char rule[64];
  (void)state;
  needs_simulator();
  const DLDevice device = gpu(0);
  copy_by_a_kernel(0);
  assert_int_equal(stats(device).cached_bytes, 2 * NBYTES);
  snprintf(rule, sizeof rule, "%s@4:999:once", named("cuStreamGetCaptureInfo", "hipStreamGetCaptureInfo"));
  sim_ask_fail(rule);
  REFUSED(mf_pool_trim(&device, &err), MF_EDRIVER, "CaptureInfo");
  assert_int_equal(sim_ask_faults(), 1);
  assert_int_equal(stats(device).cached_bytes, NBYTES);
  sim_ask_reset();
}

/* An allocation on the stream, which is behind the kernel or waits for it, frees the memory and then fails: it leaves
 * nothing of ours there. */
static void where_an_allocation_frees_the_memory(mf_stream stream) {
  enum { LIMIT = 64 << 10 };
  char rule[64];
  mf_tensor *t;
  const DLDevice device = gpu(0);
  copy_by_a_kernel(0);
  OK(mf_pool_limit(&device, LIMIT, &err));
  use_stream(0, stream);
  snprintf(rule, sizeof rule, "%s:999:once", named("cuMemAllocFromPoolAsync", "hipMallocFromPoolAsync"));
  sim_ask_fail(rule);
  REFUSED(create_at(device, LIMIT, &t), MF_EDRIVER, "FromPoolAsync");
  assert_int_equal(stats(device).cached_bytes, 0);
  sim_ask_reset();
  use_stream(0, MF_STREAM_DEFAULT);
  OK(mf_pool_limit(&device, 0, &err));
  trim_all();
  assert_int_equal(sim_ask_findings(), 0);
  sync_all();
  trim_all();
  EXPECT_HELD(false);
}

static void nor_where_an_allocation_frees_the_memory(void **state) {
  (void)state;
  needs_simulator();
  const int64_t idle = other_stream(0, false);
  where_an_allocation_frees_the_memory(idle);
  where_an_allocation_frees_the_memory(MF_STREAM_DEFAULT);
  other_stream_end(idle);
}

/* A program that never trims, at the limit of its pool: what tells of the work on evicted memory is used again. */
static void evicted_memory_leaves_nothing_for_good(void **state) {
  enum { TIMES = 40 };
  const DLDevice device = gpu(0);
  (void)state;
  needs_simulator();
  copy_by_a_kernel(0);
  OK(mf_pool_limit(&device, 1 << 20, &err));
  const int64_t before = sim_ask_left("events");
  for (int i = 0; i < TIMES; i++) { /* neither can have the block of the one before */
    mf_tensor *t = create(device, i % 2 == 0 ? 900 << 10 : 200 << 10);
    keep_busy(t, MF_STREAM_DEFAULT);
    mf_tensor_release(t);
    if (i % 2 == 1) other_sync_all(0);
  }
  OK(mf_pool_limit(&device, 0, &err));
  assert_true(sim_ask_left("events") < before + TIMES / 4);
}

/* A wait for pinned memory, which any device may use, enters those alone that were. */
static void a_wait_makes_nothing_anew(void **state) {
  const DLDevice device = pinned();
  (void)state;
  mf_tensor *t = create(device, NBYTES);
  const int64_t now = held();
  OK(mf_device_synchronize(&device, &err));
  if (other_is_simulated()) assert_int_equal(held(), now);
  mf_tensor_release(t);
  trim_all();
  EXPECT_HELD(false);
}

static void not_while_a_tensor_lives(void **state) {
  (void)state;
  const DLDevice places[] = {gpu(0), pinned()};
  for (size_t i = 0; i < COUNT(places); i++) {
    mf_tensor *t = create(places[i], NBYTES);
    work();
    other_sync_all(0);
    trim_all();
    EXPECT_HELD(true);
    OK(mf_tensor_acquire(t, MF_STREAM_DEFAULT, MF_WRITE, &err));
    mf_tensor_release(t);
    other_sync_all(0);
    trim_all();
    EXPECT_HELD(false);
  }
}

static void not_while_a_stream_of_ours_is_in_use(void **state) {
  (void)state;
  work();
  const mf_stream s = stream_new(0);
  other_sync_all(0);
  trim_all();
  EXPECT_HELD(true);
  OK(mf_stream_check(&(DLDevice){(DLDeviceType)other_device_type(), 0}, s, &err));
  stream_end(0, s);
  trim_all();
  EXPECT_HELD(false);
}

static void not_while_released_memory_waits(void **state) {
  (void)state;
  work();
  const mf_stream s = other_stream(0, false);
  loan *l = loan_new();
  mf_tensor *t = import(l);
  keep_busy(t, s);
  mf_tensor_release(t);
  trim_all();
  if (other_is_simulated()) assert_int_equal(calls_of(l), 0);
  if (other_is_simulated()) EXPECT_HELD(true);
  other_sync(0, s);
  trim_all();
  assert_int_equal(calls_of(l), 1);
  EXPECT_HELD(false);
  loan_end(l);
  other_stream_end(s);
}

static atomic_bool stop;

static void *work_on(void *arg) {
  (void)arg;
  while (!atomic_load(&stop)) {
    mf_tensor *t;
    mf_stream s;
    mf_error why;
    const DLDevice device = gpu(0);
    const int64_t nbytes = NBYTES;
    const DLTensor like = {.device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = (int64_t *)&nbytes};
    const mf_scalar value = {.kind = MF_KIND_UINT, .u = 3};
    if (mf_stream_create(&device, &s, &why) != MF_OK) return "stream";
    if (mf_stream_wait(&device, s, &device, MF_STREAM_DEFAULT, &why) != MF_OK) return "wait";
    if (mf_tensor_create(&like, 0, &t, &why) != MF_OK) return "create";
    if (mf_tensor_fill(t, &value, &why) != MF_OK) return "fill";
    if (mf_tensor_acquire(t, s, MF_WRITE, &why) != MF_OK) return "acquire";
    if (mf_stream_synchronize(&device, s, &why) != MF_OK) return "synchronize";
    mf_tensor_release(t);
    if (mf_stream_destroy(&device, s, &why) != MF_OK) return "destroy";
  }
  return NULL;
}

/* A trim never takes away what another thread is about to use. */
static void threads_do_not_notice(void **state) {
  enum { THREADS = 3, TRIMS = 300 };
  pthread_t threads[THREADS];
  (void)state;
  atomic_store(&stop, false);
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, work_on, NULL), 0);
  for (int i = 0; i < TRIMS; i++) trim_all();
  atomic_store(&stop, true);
  for (int i = 0; i < THREADS; i++) {
    void *failed;
    pthread_join(threads[i], &failed);
    if (failed != NULL) fail_msg("%s", (const char *)failed);
  }
  other_sync_all(0);
  trim_all();
  other_sync_all(0); /* the frees that the trim has queued, for which streams stay on ROCm */
  trim_all();
  EXPECT_HELD(false);
}

static void trim_the_other_device(void *unused) {
  (void)unused;
  trim(gpu(1));
}

/* Nor what another trim has just taken out of a pool: here an event of another device, behind the last work on pinned
 * memory. */
static void nor_what_another_trim_looks_at(void **state) {
  (void)state;
  needs_simulator();
  needs_devices(2);
  mf_tensor *t = create(pinned(), NBYTES);
  OK(mf_tensor_acquire(t, MF_STREAM_OF(1, MF_STREAM_DEFAULT), MF_WRITE, &err));
  other_fill(1, data_of(t), 1, NBYTES, MF_STREAM_DEFAULT);
  mf_tensor_release(t);
  sync_all();
  sim_ask_at("cuEventQuery", "hipEventQuery", 1, trim_the_other_device, NULL);
  trim(pinned());
  trim_all();
  EXPECT_HELD(false);
  assert_int_equal(sim_ask_left("events"), 0);
}

static void *work_on_my_own_and_forget(void *arg) {
  const DLDevice device = gpu(0);
  (void)arg;
  if (mf_stream_swap(&device, MF_STREAM_PER_THREAD, NULL, NULL) != MF_OK) abort();
  work();
  other_sync_all(0);
  trim_all();
  return NULL;
}

/* A thread waits for its own default stream as it ends, but not on a device that was given back. */
static void the_end_of_a_thread_makes_nothing_anew(void **state) {
  pthread_t thread;
  (void)state;
  assert_int_equal(pthread_create(&thread, NULL, work_on_my_own_and_forget, NULL), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  EXPECT_HELD(false);
}

/* Nor does it take a device into use. */
static void a_trim_of_what_is_not_used_enters_no_device(void **state) {
  (void)state;
  sim_ask_reset();
  trim_all();
  assert_int_equal(sim_ask_calls(named("cuDevicePrimaryCtxRetain", "hipSetDevice")), 0);
}

static void all_devices_at_once(void **state) {
  (void)state;
  for (int i = 0; i < other_devices() && i < 2; i++) mf_tensor_release(create(gpu(i), NBYTES));
  mf_tensor_release(create(pinned(), NBYTES));
  OK(mf_pools_trim(0, &err));
  EXPECT_HELD(false);
}

/* With time to wait, deleters that wait for queued work are called before it returns. */
static void it_can_wait_for_what_was_released(void **state) {
  (void)state;
  const mf_stream s = other_stream(0, false);
  loan *l = loan_new();
  mf_tensor *t = import(l);
  keep_busy(t, s);
  mf_tensor_release(t);
  REFUSED(mf_pools_trim(-1, &err), MF_EINVAL, "wait_ms");
  OK(mf_pools_trim(10000, &err));
  assert_int_equal(calls_of(l), 1);
  EXPECT_HELD(false);
  loan_end(l);
  other_stream_end(s);
}

/* Processes of their own, from before any driver was opened: what they ended with. */

static int status_of_opening = -1, status_of_end = -1;

static void open_nothing(void) {
  sim_ask_reset();
  if (mf_pools_trim(1000, &err) != MF_OK || sim_ask_calls(NULL) != 0) _exit(1);
}

static void a_trim_of_all_opens_no_driver(void **state) {
  (void)state;
  assert_int_equal(status_of_opening, 0);
}

static void end_with_nothing(void) {
  _exit(held() == held_before && sim_ask_left("memory") == 0 && sim_ask_left("events") == 0 ? 0 : 1);
}

static void keep_a_cache(void) {
  const DLDevice device = gpu(0);
  mf_tensor *t;
  held_before = held();
  atexit(end_with_nothing); /* before Moonferry opens the driver, so that it comes last */
  if (create_at(device, NBYTES, &t) != MF_OK) _exit(2);
  mf_tensor_release(t);
  if (held() == held_before) _exit(3);
  exit(4);
}

static void a_process_gives_back_at_its_end(void **state) {
  (void)state;
  assert_int_equal(status_of_end, 0);
}

#define EMPTY(name) cmocka_unit_test_setup_teardown(name, begin_empty, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_trim_of_all_opens_no_driver),
      cmocka_unit_test(a_process_gives_back_at_its_end),
      EMPTY(it_is_given_back_and_made_anew),
      EMPTY(one_trim_is_enough),
      EMPTY(one_trim_of_all_calls_deleters),
      EMPTY(kernels_are_compiled_again),
      EMPTY(not_while_a_kernel_may_be_queued),
      EMPTY(it_keeps_nothing_of_another_device),
      EMPTY(nor_freed_without_an_event_behind_it),
      EMPTY(nor_freed_without_an_answer_about_captures),
      EMPTY(nor_where_an_allocation_frees_the_memory),
      EMPTY(evicted_memory_leaves_nothing_for_good),
      EMPTY(a_wait_makes_nothing_anew),
      EMPTY(not_while_a_tensor_lives),
      EMPTY(not_while_a_stream_of_ours_is_in_use),
      EMPTY(not_while_released_memory_waits),
      EMPTY(threads_do_not_notice),
      EMPTY(nor_what_another_trim_looks_at),
      EMPTY(the_end_of_a_thread_makes_nothing_anew),
      EMPTY(a_trim_of_what_is_not_used_enters_no_device),
      EMPTY(all_devices_at_once),
      EMPTY(it_can_wait_for_what_was_released),
  };
  status_of_opening = status_alone("", open_nothing);
  status_of_end = status_alone("", keep_a_cache);
  return RUN(tests);
}
