/* stage_spec.c: the pinned buffers that large copies of pageable memory go through, where the driver fails: none is
 * used again while queued work may still use it, and each is had back once that is known to be done. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "../c/moment.h"
#include "device.h"

enum { NBYTES = 1 << 20, BUFFERS = 4, PART = 8 << 20 };

typedef struct scene {
  mf_tensor *host, *there;
} scene;

static scene open_scene(void) {
  return (scene){create((DLDevice){kDLCPU, 0}, NBYTES), create(gpu(0), NBYTES)};
}

static int upload(const scene *s, int byte) {
  memset(data_of(s->host), byte, NBYTES);
  return mf_tensor_copy(s->there, s->host, &err);
}

static void close_scene(scene *s) {
  mf_tensor_release(s->host);
  mf_tensor_release(s->there);
}

static void fail_from_now_on(const char *cuda, const char *hip, const char *how) {
  char rule[64];
  snprintf(rule, sizeof rule, "%s:999:%s", named(cuda, hip), how);
  sim_ask_fail(rule);
}

static void end_failures(void) {
  assert_true(sim_ask_faults() > 0);
  assert_int_equal(sim_ask_findings(), 0);
  sim_ask_reset();
}

/* No event stands behind the copy, and the stream cannot be waited for. */
static void lose_a_buffer(const scene *s) {
  fail_from_now_on("cuEventRecord", "hipEventRecord", "on");
  fail_from_now_on("cuStreamSynchronize", "hipStreamSynchronize", "on");
  REFUSED(upload(s, 1), MF_EDRIVER, "EventRecord");
  end_failures();
}

/* Each copy loses one: the next takes another, and at last there is none to have until the device was waited for. */
static void what_is_lost_comes_back_with_the_device(void **state) {
  (void)state;
  needs_simulator();
  scene s = open_scene();
  for (int i = 0; i < BUFFERS - 1; i++) lose_a_buffer(&s);
  for (int i = 0; i < 3; i++) OK(upload(&s, 2));
  synchronize(0);
  for (int i = 0; i < BUFFERS; i++) OK(upload(&s, 3));
  synchronize(0);
  trim_all();
  for (int i = 0; i < BUFFERS; i++) lose_a_buffer(&s);
  REFUSED(upload(&s, 4), MF_EDRIVER, "mf_device_synchronize");
  trim(gpu(0)); /* which keeps them */
  REFUSED(upload(&s, 4), MF_EDRIVER, "mf_device_synchronize");
  synchronize(0);
  OK(upload(&s, 5));
  expect_filled(s.there, 5);
  close_scene(&s);
}

/* A wait for an earlier device's work says nothing of what was queued since. */
static void a_lost_buffer_needs_a_later_wait(void **state) {
  (void)state;
  needs_simulator();
  scene s = open_scene();
  synchronize(0);
  trim_all();
  for (int i = 0; i < BUFFERS; i++) lose_a_buffer(&s);
  REFUSED(upload(&s, 4), MF_EDRIVER, "mf_device_synchronize");
  synchronize(0);
  trim(gpu(0));
  assert_int_equal(sim_ask_left("memory"), NBYTES); /* of the tensor */
  close_scene(&s);
}

/* What counts are waits for the buffer's device, however many there were for each before. */
static void a_lost_buffer_needs_a_wait_for_its_device(void **state) {
  enum { MANY = 100 };
  (void)state;
  needs_simulator();
  for (int ahead = 0; ahead < 2; ahead++) {
    for (int i = 0; i < MANY; i++) synchronize(ahead);
    for (int used = 0; used < 2; used++) {
      scene s = {create((DLDevice){kDLCPU, 0}, NBYTES), create(gpu(used), NBYTES)};
      for (int i = 0; i < BUFFERS; i++) lose_a_buffer(&s);
      synchronize(!used);
      REFUSED(upload(&s, 4), MF_EDRIVER, "mf_device_synchronize");
      synchronize(used);
      OK(upload(&s, 5));
      expect_filled(s.there, 5);
      close_scene(&s);
    }
  }
}

/* The stream could be waited for: the buffer is free at once. */
static void where_no_event_can_be_recorded_the_host_waits(void **state) {
  (void)state;
  needs_simulator();
  scene s = open_scene();
  for (int i = 0; i < 2 * BUFFERS; i++) {
    fail_from_now_on("cuEventRecord", "hipEventRecord", "once");
    REFUSED(upload(&s, i), MF_EDRIVER, "EventRecord");
    end_failures();
  }
  OK(upload(&s, 7));
  expect_filled(s.there, 7);
  close_scene(&s);
}

/* All buffers are in use: a copy that cannot wait for one fails, and so does not take it from those that use it. */
static void a_wait_that_fails_frees_no_buffer(void **state) {
  (void)state;
  needs_simulator();
  scene s = open_scene();
  for (int i = 0; i < BUFFERS; i++) OK(upload(&s, i));
  for (int i = 0; i < BUFFERS; i++) {
    fail_from_now_on("cuEventSynchronize", "hipStreamSynchronize", "once");
    if (i % 2 == 0) REFUSED(upload(&s, 8), MF_EDRIVER, "Synchronize");
    else REFUSED(mf_tensor_copy(s.host, s.there, &err), MF_EDRIVER, "Synchronize");
    end_failures();
  }
  for (int i = 0; i < BUFFERS; i++) OK(upload(&s, 9));
  expect_filled(s.there, 9);
  close_scene(&s);
}

/* Of a copy to the host that fails in the middle each buffer comes back, and nothing is written behind what failed. */
static void a_download_that_fails_keeps_no_buffer(void **state) {
  enum { PARTS = 3, LARGE = PARTS * PART };
  (void)state;
  needs_simulator();
  mf_tensor *host = create((DLDevice){kDLCPU, 0}, LARGE), *there = create(gpu(0), LARGE);
  write_on(there, MF_STREAM_DEFAULT, 5);
  for (int part = 0; part < PARTS; part++) {
    char rule[64];
    memset(data_of(host), 1, LARGE);
    snprintf(rule, sizeof rule, "%s@%d:999:once", named("cuEventSynchronize", "hipStreamSynchronize"), part + 1);
    sim_ask_fail(rule);
    REFUSED(mf_tensor_copy(host, there, &err), MF_EDRIVER, "Synchronize");
    end_failures();
    for (int64_t i = 0; i < LARGE; i++)
      if (((unsigned char *)data_of(host))[i] != (i < part * PART ? 5 : 1)) fail_msg("byte %lld", (long long)i);
    if (part == PARTS - 1) break;
    synchronize(0);
    trim_all(); /* the next copy waits for its own parts alone */
  }
  OK(mf_tensor_copy(host, there, &err));
  assert_int_equal(((unsigned char *)data_of(host))[LARGE - 1], 5);
  synchronize(0);
  trim(gpu(0));
  assert_int_equal(sim_ask_left("memory"), LARGE); /* of the tensor */
  mf_tensor_release(host);
  mf_tensor_release(there);
}

/* Whichever part of a large copy cannot be queued, the copy has failed, in either direction, and keeps no buffer. */
static void each_part_that_cannot_be_queued_is_told(void **state) {
  enum { PARTS = 3, LARGE = PARTS * PART };
  (void)state;
  needs_simulator();
  mf_tensor *host = create((DLDevice){kDLCPU, 0}, LARGE), *there = create(gpu(0), LARGE);
  for (int i = 0; i < 4 * PARTS; i++) {
    const bool up = i % 2 == 0;
    char rule[64];
    memset(data_of(host), i, LARGE);
    snprintf(rule, sizeof rule, "%s@%d:999:once", named("cuEventRecord", "hipEventRecord"), i / 4 + 1);
    sim_ask_fail(rule);
    REFUSED(up ? mf_tensor_copy(there, host, &err) : mf_tensor_copy(host, there, &err), MF_EDRIVER, "EventRecord");
    end_failures();
    memset(data_of(host), i, LARGE);
    OK(mf_tensor_copy(there, host, &err));
    expect_filled(there, i);
  }
  synchronize(0);
  trim(gpu(0));
  assert_int_equal(sim_ask_left("memory"), LARGE);
  mf_tensor_release(host);
  mf_tensor_release(there);
}

/* Another stream then waits for the parts that were queued before one failed, which the simulators check. */
static void the_parts_before_one_that_fails_are_waited_for(void **state) {
  enum { PARTS = 2, LARGE = PARTS * PART };
  (void)state;
  needs_simulator();
  mf_tensor *host = create((DLDevice){kDLCPU, 0}, LARGE), *there = create(gpu(0), LARGE);
  const mf_stream s = stream_new(0);
  memset(data_of(host), 1, LARGE);
  for (int up = 0; up < 2; up++) {
    fill(there, 2);
    synchronize(0);
    trim_all(); /* each part needs a buffer that has to be made */
    use_stream(0, s);
    fail_from_now_on("cuMemHostAlloc@2", "hipHostMalloc@2", "once");
    FAILS(up ? mf_tensor_copy(there, host, &err) : mf_tensor_copy(host, there, &err), MF_EDRIVER);
    end_failures();
    use_stream(0, MF_STREAM_DEFAULT);
    fill(there, 3);
    expect_filled(there, 3);
    assert_int_equal(sim_ask_findings(), 0);
  }
  stream_end(0, s);
  mf_tensor_release(host);
  mf_tensor_release(there);
}

/* Whatever call fails: what is not told to have failed is there. */
static void each_call_of_an_upload_fails(void **state) {
  bool struck = true;
  (void)state;
  needs_simulator();
  scene s = open_scene();
  for (int number = 1; struck; number++) {
    char rule[32];
    snprintf(rule, sizeof rule, "*@%d:999:once", number);
    sim_ask_fail(rule);
    const int rc = upload(&s, number);
    struck = sim_ask_faults() > 0;
    assert_true(rc == MF_OK || struck);
    assert_int_equal(sim_ask_findings(), 0);
    sim_ask_reset();
    if (rc == MF_OK) expect_filled(s.there, number);
    synchronize(0);
  }
  close_scene(&s);
}

/* The device cannot be entered: nothing is left that was not. */
static void a_copy_that_cannot_begin_changes_nothing(void **state) {
  (void)state;
  needs_simulator();
  scene s = open_scene();
  OK(upload(&s, 1));
  other_current_set(-1);
  void *before = other_current();
  fail_from_now_on("cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode", "once");
  REFUSED(upload(&s, 2), MF_EDRIVER, "ExchangeStreamCaptureMode");
  end_failures();
  assert_ptr_equal(other_current(), before);
  assert_int_equal(sim_ask_left("contexts"), 0);
  expect_filled(s.there, 1);
  close_scene(&s);
}

/* Nothing of a buffer that could not be made stays behind, and the next copy makes it. */
static void a_buffer_that_cannot_be_made_is_made_later(void **state) {
  (void)state;
  needs_simulator();
  scene s = open_scene();
  trim_all(); /* no event is kept */
  fail_from_now_on("cuEventCreate", "hipEventCreateWithFlags", "once");
  REFUSED(upload(&s, 1), MF_EDRIVER, "EventCreate");
  end_failures();
  assert_int_equal(sim_ask_left("memory"), NBYTES);
  OK(upload(&s, 6));
  expect_filled(s.there, 6);
  close_scene(&s);
}

/* Nothing was queued: the next use waits for nothing. */
static void a_copy_without_a_buffer_leaves_no_use(void **state) {
  (void)state;
  needs_simulator();
  const mf_stream mine = stream_new(0), other = stream_new(0);
  use_stream(0, mine);
  scene s = open_scene();
  use_stream(0, other);
  fail_from_now_on("cuMemHostAlloc", "hipHostMalloc", "once");
  REFUSED(upload(&s, 1), MF_EDRIVER, "Host");
  end_failures();
  use_stream(0, mine);
  OK(upload(&s, 2));
  assert_int_equal(sim_ask_calls(named("cuStreamWaitEvent", "hipStreamWaitEvent")), 0);
  close_scene(&s);
  use_stream(0, MF_STREAM_DEFAULT);
  stream_end(0, mine);
  stream_end(0, other);
}

/* They are pinned memory, and they are the device's. */
static void either_trim_gives_them_back(void **state) {
  const DLDevice devices[] = {gpu(0), pinned()};
  (void)state;
  for (int i = 0; i < 2; i++) {
    scene s = open_scene();
    OK(upload(&s, 1));
    synchronize(0);
    trim(devices[i]);
    if (other_is_simulated()) assert_int_equal(sim_ask_left("memory"), NBYTES);
    const uint64_t asked = sim_ask_calls(named("cuEventQuery", "hipEventQuery"));
    trim(devices[i]); /* and asks no more for what it has given back */
    assert_int_equal(sim_ask_calls(named("cuEventQuery", "hipEventQuery")), asked);
    close_scene(&s);
  }
}

/* A device is not forgotten while queued work reads a buffer, though nothing else of ours is left there. */
static void a_trim_leaves_a_buffer_that_is_in_use(void **state) {
  (void)state;
  needs_simulator();
  scene s = open_scene();
  OK(upload(&s, 1));
  close_scene(&s);
  trim_all();
  assert_int_equal(sim_ask_findings(), 0);
  other_sync_all(0);
  trim_all();
  assert_int_equal(sim_ask_left("memory"), 0);
  assert_int_equal(sim_ask_left("events"), 0);
}

/* A device's context goes when nothing of ours is left on that device, whatever buffers the next device has. */
static void buffers_of_the_next_device_keep_no_context(void **state) {
  int64_t shape[] = {NBYTES}, stride[] = {1};
  mf_tensor *next;
  (void)state;
  needs_devices(2);
  needs_simulator();
  trim_all();
  const int64_t contexts = other_device_type() == kDLCUDA; /* of each device; HIP has none to give back */
  const int64_t retained = sim_ask_left("retains");
  const DLTensor foreign = {.data = other_alloc(1, NBYTES), .device = gpu(1), .ndim = 1, .dtype = {kDLUInt, 8, 1},
                            .shape = shape, .strides = stride};
  OK(mf_tensor_wrap(&foreign, 0, NULL, NULL, &next, &err));
  scene s = open_scene();
  OK(upload(&s, 1));
  OK(mf_tensor_copy(next, s.host, &err));
  synchronize(0);
  synchronize(1);
  close_scene(&s);
  mf_tensor_release(next);
  assert_int_equal(sim_ask_left("retains"), retained + 2 * contexts);
  trim(gpu(0));
  assert_int_equal(sim_ask_left("retains"), retained + contexts);
  trim(gpu(1));
  assert_int_equal(sim_ask_left("retains"), retained);
  other_free(1, foreign.data);
}

/* Nothing is given back then, and nothing is left half done: the next copy and the next trim are as any. */
static void a_trim_that_cannot_enter_changes_nothing(void **state) {
  const char *const calls[] = {
      named("cuCtxGetCurrent", "hipGetDevice"),
      named("cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode"),
  };
  (void)state;
  needs_simulator();
  scene s = open_scene();
  for (size_t i = 0; i < COUNT(calls); i++) {
    bool struck = true;
    for (int number = 1; struck; number++) {
      const DLDevice device = gpu(0);
      char rule[80];
      OK(upload(&s, number));
      synchronize(0);
      snprintf(rule, sizeof rule, "%s@%d:999:once", calls[i], number);
      sim_ask_fail(rule);
      (void)mf_pool_trim(&device, &err);
      struck = sim_ask_faults() > 0;
      assert_int_equal(sim_ask_findings(), 0);
      sim_ask_reset();
      expect_filled(s.there, number);
    }
  }
  trim(gpu(0));
  assert_int_equal(sim_ask_left("memory"), NBYTES);
  close_scene(&s);
}

/* While a trim gives a buffer back another copy begins, as on another thread: it has a buffer of its own, and both are
 * whole afterwards. */
static void upload_inside(void *ctx) {
  OK(upload(ctx, 2));
}

static void a_copy_inside_of_a_trim_takes_another_buffer(void **state) {
  (void)state;
  needs_simulator();
  scene s = open_scene();
  for (int freed = 1; freed <= BUFFERS; freed++) {
    for (int i = 0; i < BUFFERS; i++) OK(upload(&s, 1));
    synchronize(0);
    sim_ask_at("cuMemFreeHost", "hipHostFree", (uint64_t)freed, upload_inside, &s);
    trim(gpu(0));
    expect_filled(s.there, 2);
    for (int i = 0; i < BUFFERS; i++) OK(upload(&s, 3));
    expect_filled(s.there, 3);
    synchronize(0);
    trim(gpu(0));
    assert_int_equal(sim_ask_left("memory"), NBYTES);
  }
  close_scene(&s);
}

/* The event that it got before goes back, too. */
static void a_buffer_without_memory_leaves_no_event(void **state) {
  (void)state;
  needs_simulator();
  scene s = open_scene();
  trim_all();
  fail_from_now_on("cuMemHostAlloc", "hipHostMalloc", "once");
  REFUSED(upload(&s, 1), MF_EDRIVER, "Host");
  end_failures();
  close_scene(&s);
  synchronize(0);
  trim_all();
  assert_int_equal(sim_ask_left("events"), 0);
}

/* Each copy's part is handed to the driver while the next one takes a buffer; then a thread wants one that nobody has
 * left, and gets the first that comes back. */
static scene nested[BUFFERS + 1];
static int depth;
static _Atomic bool has_begun;

static void *upload_at_last(void *unused) {
  mf_error own;
  (void)unused;
  atomic_store(&has_begun, true);
  if (mf_tensor_copy(nested[BUFFERS].there, nested[BUFFERS].host, &own) != MF_OK) abort();
  return NULL;
}

static void let_it_wait(void) {
  pthread_cond_t changed;
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  const bool never = false;
  while (!atomic_load(&has_begun)) sched_yield();
  moment_init(&changed);
  moment_wait(&changed, &lock, &never);
  pthread_cond_destroy(&changed);
}

static void upload_the_next(void *thread) {
  if (++depth == BUFFERS) {
    assert_int_equal(pthread_create(thread, NULL, upload_at_last, NULL), 0);
    let_it_wait();
    return;
  }
  sim_ask_at("cuMemcpyAsync", "hipMemcpyAsync", 1, upload_the_next, thread);
  OK(upload(&nested[depth], depth));
  if (depth == BUFFERS) {
    assert_int_equal(pthread_join(*(pthread_t *)thread, NULL), 0);
    depth++;
  }
}

static void who_waits_for_a_buffer_gets_the_first_that_comes_back(void **state) {
  pthread_t thread;
  (void)state;
  needs_simulator();
  for (int i = 0; i <= BUFFERS; i++) nested[i] = open_scene();
  memset(data_of(nested[BUFFERS].host), BUFFERS, NBYTES);
  depth = 0;
  atomic_store(&has_begun, false);
  sim_ask_at("cuMemcpyAsync", "hipMemcpyAsync", 1, upload_the_next, &thread);
  OK(upload(&nested[0], 0));
  assert_int_equal(depth, BUFFERS + 1);
  for (int i = 0; i <= BUFFERS; i++) {
    expect_filled(nested[i].there, i);
    close_scene(&nested[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(what_is_lost_comes_back_with_the_device),
      SPEC(a_lost_buffer_needs_a_later_wait),
      SPEC(a_lost_buffer_needs_a_wait_for_its_device),
      SPEC(where_no_event_can_be_recorded_the_host_waits),
      SPEC(a_wait_that_fails_frees_no_buffer),
      SPEC(a_download_that_fails_keeps_no_buffer),
      SPEC(each_part_that_cannot_be_queued_is_told),
      SPEC(the_parts_before_one_that_fails_are_waited_for),
      SPEC(each_call_of_an_upload_fails),
      SPEC(a_copy_that_cannot_begin_changes_nothing),
      SPEC(a_buffer_that_cannot_be_made_is_made_later),
      SPEC(a_copy_without_a_buffer_leaves_no_use),
      SPEC(either_trim_gives_them_back),
      SPEC(a_trim_leaves_a_buffer_that_is_in_use),
      SPEC(buffers_of_the_next_device_keep_no_context),
      SPEC(a_trim_that_cannot_enter_changes_nothing),
      SPEC(a_copy_inside_of_a_trim_takes_another_buffer),
      SPEC(a_buffer_without_memory_leaves_no_event),
      SPEC(who_waits_for_a_buffer_gets_the_first_that_comes_back),
  };
  return RUN(tests);
}
