/* device_fail_spec.c: each driver call with which a queue is asked, marked or waited for fails in turn; so does each
 * that makes or ends an event or finds out where memory lies. The failure is told, the caller's context stays, nobody
 * is left inside of the device, and the same call works afterwards. And a copy that fails may have been queued. */
#include "spec.h"

#ifdef SPEC_HIP
#include "driver/hip.h"
#else
#include "driver/cuda.h"
#endif

enum { NBYTES = 256, KEPT = 64, FILLS = 300 };

static mf__queue a, b, elsewhere;
static void *mark, *memory;

static mf__queue queue_new(void) {
  mf__entered before;
  mf_stream s = 0;
  OK(gpu->enter(0, &before, &err));
  OK(gpu->stream_create(&s, &err));
  gpu->leave(&before);
  return mf__queue_make(gpu, 0, s);
}

static void queue_end(const mf__queue *q) {
  mf__entered before;
  OK(gpu->enter(0, &before, &err));
  OK(gpu->stream_destroy(q->stream, &err));
  gpu->leave(&before);
}

/* Queue b is captured. */
static void begin_capture(void) {
  mf__entered before;
  OK(gpu->enter(0, &before, &err));
  capture_start(b.stream, CAPTURE_RELAXED);
  gpu->leave(&before);
}

/* And nothing has broken it. */
static void end_capture(void) {
  mf__entered before;
  OK(gpu->enter(0, &before, &err));
  assert_int_equal(capture_end(b.stream), 0);
  gpu->leave(&before);
}

/* The operations. No stream has anything to do, so that each succeeds, and what is asked is done. */

static int done_or_failed(int rc, bool done) {
  return rc == MF_OK && !done ? MF_EDRIVER : rc;
}

/* A call that fails gives no event. */
static int given(int rc, void *event) {
  if (rc == MF_OK) mf__event_give(gpu, 0, event);
  else assert_null(event);
  return rc;
}

static int take_an_event(void) {
  void *event = NULL;
  const int rc = mf__event_take(gpu, 0, &event, &err);
  return given(rc, event);
}

static int mark_queue(void) {
  void *event = NULL;
  const int rc = mf__queue_record_event(&a, &event, NULL, &err);
  return given(rc, event);
}

static int mark_elsewhere(void) {
  void *event = NULL;
  const int rc = mf__queue_record_event(&elsewhere, &event, NULL, &err);
  return given(rc, event);
}

static int ask_queue(void) {
  bool done = false;
  const int rc = mf__queue_query(&a, &done, &err);
  return done_or_failed(rc, done);
}

/* Not to be done is an answer, and the right one where it is not known. */
static int ask_elsewhere(void) {
  bool done;
  return mf__queue_query(&elsewhere, &done, &err);
}

static int ask_quietly(void) {
  return done_or_failed(MF_OK, mf__queue_done(&a));
}

static int ask_event(void) {
  return done_or_failed(MF_OK, mf__event_done(gpu, 0, mark));
}

static int reach_event(void) {
  return mf__event_synchronize(gpu, 0, mark, &err);
}

static int reach_queue(void) {
  return mf__queue_synchronize(&a, &err);
}

static int reach_elsewhere(void) {
  return mf__queue_synchronize(&elsewhere, &err);
}

static int reach_device(void) {
  return mf__device_synchronize(gpu, 0, &err);
}

static int follow_event(void) {
  return mf__queue_wait_event(&b, 0, mark, &err);
}

static int wait_for_queue(void) {
  return mf__queue_wait(&b, &a, &err);
}

static int refuse_captures(void) {
  return mf__capture_refuse(&a, "this is only asked", &err);
}

static int find_capture(void) {
  uint64_t id;
  return mf__capture_of(&a, &id, &err);
}

static int enter_for_work(void) {
  const mf__queue legacy = mf__queue_make(gpu, 0, MF_STREAM_DEFAULT);
  mf__scope scope;
  const int rc = mf__queue_enter(&scope, &legacy, &err);
  if (rc == MF_OK) mf__leave(&scope);
  return rc;
}

static int find_memory(void) {
  DLDevice found = {kDLExtDev, 7};
  const int rc = mf_device_of_pointer(gpu->types[MF__DEVICE], memory, &found, &err);
  assert_int_equal(found.device_type, rc == MF_OK ? gpu->types[MF__PINNED] : kDLCPU);
  assert_int_equal(found.device_id, 0);
  return rc;
}

typedef struct operation {
  const char *name;
  int (*run)(void);
  bool captured; /* while b is being captured, which can wait for what is done already */
  bool has_an_answer; /* to what it cannot know: that it is not done */
} operation;

static const operation operations[] = {
    {"take an event", take_an_event, false, false},
    {"mark", mark_queue, false, false},
    {"mark elsewhere", mark_elsewhere, false, false},
    {"ask", ask_queue, false, false},
    {"ask elsewhere", ask_elsewhere, false, true},
    {"ask quietly", ask_quietly, false, false},
    {"ask an event", ask_event, false, true},
    {"reach an event", reach_event, false, false},
    {"reach", reach_queue, false, false},
    {"reach elsewhere", reach_elsewhere, false, false},
    {"reach the device", reach_device, false, false},
    {"follow", follow_event, false, false},
    {"follow in a capture", follow_event, true, true},
    {"wait", wait_for_queue, false, false},
    {"wait in a capture", wait_for_queue, true, false},
    {"refuse captures", refuse_captures, false, false},
    {"find a capture", find_capture, false, false},
    {"enter for work", enter_for_work, false, false},
    {"find memory", find_memory, false, false},
};

/* Failures of these come out, but that of giving the thread's mode back, which is every other call. */
static const char *const names[] = {
#if IS_HIP
    "hipGetDevice", "hipStreamGetCaptureInfo", "hipStreamQuery", "hipStreamSynchronize", "hipDeviceSynchronize",
    "hipEventCreateWithFlags", "hipEventRecord", "hipEventQuery", "hipEventSynchronize", "hipStreamWaitEvent",
    "hipPointerGetAttributes", "hipThreadExchangeStreamCaptureMode",
#else
    "cuCtxGetCurrent", "cuCtxPushCurrent", "cuStreamGetCaptureInfo", "cuStreamQuery", "cuStreamSynchronize",
    "cuCtxSynchronize", "cuEventCreate", "cuEventRecord", "cuEventQuery", "cuEventSynchronize", "cuStreamWaitEvent",
    "cuPointerGetAttributes", "cuThreadExchangeStreamCaptureMode",
#endif
};

static bool may_be_silent(const operation *o, const char *name, int nth) {
  if (strstr(name, "ExchangeStreamCaptureMode") != NULL && nth % 2 == 0) return true;
  if (strcmp(name, "hipStreamQuery") == 0 && o->run != ask_queue) return true; /* another stream of ours is asked */
  return o->has_an_answer;
}

/* What came of an operation in which a call failed. */
static void check_failure(const operation *o, int rc, const char *name, int nth) {
  const bool refused = rc == MF_ECAPTURE && o->captured && o->has_an_answer;
  if (rc == MF_OK && !may_be_silent(o, name, nth)) fail_msg("%s: %s, call %d, is swallowed", o->name, name, nth);
  if (rc != MF_OK && rc != MF_EDRIVER && !refused) fail_msg("%s: %s gives %d: %s", o->name, name, rc, err.message);
  if (rc == MF_EDRIVER && err.status == rc && strstr(err.message, name) == NULL)
    fail_msg("%s: %s is told as %s", o->name, name, err.message);
}

static void nobody_is_inside(const char *what) {
  if (!mf__device_shut(gpu, 0)) fail_msg("%s leaves somebody inside", what);
  mf__device_open(gpu, 0);
}

static bool strike(const operation *o, const char *name, int nth) {
  char rule[96];
  void *const before = driver_current();
  mf__event_trim(gpu, 0); /* so that each event has to be made */
  OK(mf__device_synchronize(gpu, 0, &err));
  if (o->captured) begin_capture();
  snprintf(rule, sizeof rule, "%s@%d:999:once", name, nth);
  sim_ask_reset();
  sim_ask_fail(rule);
  memset(&err, 0, sizeof err);
  const int rc = o->run();
  const bool struck = sim_ask_faults() > 0;
  assert_int_equal(sim_ask_findings(), 0);
  sim_ask_reset();
  if (struck) check_failure(o, rc, name, nth);
  else if (rc != MF_OK) fail_msg("%s: %s", o->name, err.message);
  nobody_is_inside(rule);
  assert_ptr_equal(driver_current(), before);
  if (o->captured) end_capture();
  OK(mf__device_synchronize(gpu, 0, &err));
  OK(o->run());
  return struck;
}

static void each_call_fails_in_turn(void **state) {
  int struck = 0;
  (void)state;
  needs_simulator();
  for (size_t i = 0; i < COUNT(operations); i++)
    for (size_t k = 0; k < COUNT(names); k++)
      for (int nth = 1; strike(&operations[i], names[k], nth); nth++) struck++;
  print_message("%d failures\n", struck);
  assert_true(struck > 100);
}

/* One event more comes back than is kept, and the device cannot be entered to end it: it is kept, too, until a trim. */
static void a_surplus_event_leaves_nobody_inside(void **state) {
  static const char *const rules[] = {IS_HIP ? "hipGetDevice:999" : "cuCtxGetCurrent:999",
                                      IS_HIP ? "hipThreadExchangeStreamCaptureMode:999"
                                             : "cuThreadExchangeStreamCaptureMode:999"};
  void *events[KEPT + 1];
  (void)state;
  needs_simulator();
  mf__event_trim(gpu, 0);
  const int64_t others = sim_ask_left("events");
  for (size_t i = 0; i < COUNT(rules); i++) {
    void *const before = driver_current();
    for (int k = 0; k <= KEPT; k++) OK(mf__event_take(gpu, 0, &events[k], &err));
    const uint64_t calls = sim_ask_calls(NULL);
    for (int k = 0; k < KEPT; k++) mf__event_give(gpu, 0, events[k]);
    assert_int_equal(sim_ask_calls(NULL), calls);
    sim_ask_reset();
    sim_ask_fail(rules[i]);
    mf__event_give(gpu, 0, events[KEPT]);
    assert_int_equal(sim_ask_faults(), 1);
    assert_int_equal(sim_ask_findings(), 0);
    sim_ask_reset();
    nobody_is_inside(rules[i]);
    assert_ptr_equal(driver_current(), before);
    assert_int_equal(sim_ask_left("events"), others + KEPT + 1);
    mf__event_trim(gpu, 0);
    assert_int_equal(sim_ask_left("events"), others);
  }
}

/* The one given back last is the next one taken. */
static void a_kept_event_is_taken_before_one_is_made(void **state) {
  void *first = NULL, *second = NULL;
  (void)state;
  mf__event_trim(gpu, 0);
  OK(mf__event_take(gpu, 0, &first, &err));
  mf__event_give(gpu, 0, first);
  OK(mf__event_take(gpu, 0, &second, &err));
  assert_ptr_equal(second, first);
  mf__event_give(gpu, 0, second);
}

/* Nobody outside of a capture can wait for what is captured, and no event is lost for it. */
static void a_captured_queue_is_not_marked(void **state) {
  void *event = &event;
  (void)state;
  mf__event_trim(gpu, 0);
  const int64_t others = sim_ask_left("events");
  begin_capture();
  REFUSED(mf__queue_record_event(&b, &event, NULL, &err), MF_ECAPTURE, "others cannot wait for what it has to do");
  assert_null(event);
  end_capture();
  mf__event_trim(gpu, 0);
  assert_int_equal(sim_ask_left("events"), others);
}

/* There is room for so many events that are out at once, and memory is needed for more. */
static void no_event_without_a_place_for_it(void **state) {
  void *events[KEPT + 1];
  int n = 0, rc;
  (void)state;
  mf__event_trim(gpu, 0);
  mf_fault_arm(0, 1);
  while ((rc = mf__event_take(gpu, 0, &events[n], &err)) == MF_OK && n < KEPT) n++;
  mf_fault_arm(-1, 0);
  const mf_error told = err;
  assert_int_equal(rc, MF_ENOMEM);
  assert_string_equal(told.message, "no memory for more than 64 events");
  assert_null(events[n]);
  OK(mf__event_take(gpu, 0, &events[n], &err));
  for (int k = 0; k <= n; k++) mf__event_give(gpu, 0, events[k]);
  mf__event_trim(gpu, 0);
}

/* Nothing is known to be done by it. */
static void a_wait_for_the_device_that_fails_is_none(void **state) {
  (void)state;
  needs_simulator();
  const uint64_t since = mf__device_waits(gpu, 0);
  sim_ask_fail(IS_HIP ? "hipDeviceSynchronize:999:once" : "cuCtxSynchronize:999:once");
  FAILS(mf__device_synchronize(gpu, 0, &err), MF_EDRIVER);
  assert_false(mf__device_waited(gpu, 0, since));
  OK(mf__device_synchronize(gpu, 0, &err));
  assert_true(mf__device_waited(gpu, 0, since));
}

/* A device that does not answer, or answers whatever it is asked about streams as if they were dead, tells nothing of
 * a stream that lives. It tells its name, if anybody can enter. */
static void a_lost_device_does_not_make_its_streams_gone(void **state) {
  static const char *const rules[] = {
      "cuCtxGetCurrent:999:on", "cuStreamGetCtx:999:on", "cuStreamGetCtx:400:on,cuStreamGetCaptureInfo:400:on",
      "hipGetDevice:999:on", "hipStreamGetDevice:999:on", "hipStreamGetDevice:400:on,hipStreamGetCaptureInfo:400:on",
  };
  (void)state;
  needs_simulator();
  for (size_t i = 0; i < COUNT(rules); i++) {
    sim_ask_reset();
    sim_ask_fail(rules[i]);
    assert_false(mf__queue_is_destroyed(&a));
    const bool is_shut = strstr(rules[i], IS_HIP ? "hipGetDevice:" : "cuCtxGetCurrent:") != NULL;
    if (is_shut) assert_int_equal(mf__queue_name(&a), 0);
    sim_ask_reset();
    nobody_is_inside(rules[i]);
  }
  if (!IS_HIP) assert_int_not_equal(mf__queue_name(&a), 0); /* HIP has no names for streams */
  assert_false(mf__queue_is_destroyed(&a));
  const mf__queue gone = queue_new();
  queue_end(&gone);
  assert_true(mf__queue_is_destroyed(&gone));
  sim_ask_reset(); /* it was asked about a dead stream */
}

/* Whoever waits for all to be released must not miss what another thread is just ending. */
static bool still_waits;

static void end_record(void *record) {
  still_waits = mf__retire_waits(gpu);
  mf__record_free(record);
}

static void what_is_being_ended_counts_as_waiting(void **state) {
  const mf__device device = {.backend = gpu, .space = MF__PINNED};
  const mf__block_copy job = {.dst = memory, .width = NBYTES, .height = 1, .depth = 1};
  mf__entered before;
  mf__usage use = {.write = true};
  (void)state;
  needs_simulator();
  OK(mf__record_create(&device, &use.record, &err));
  OK(mf__order_use(&a, &use, &err));
  OK(gpu->enter(0, &before, &err));
  for (int i = 0; i < FILLS; i++) OK(gpu->fill(&job, 1, 1, a.stream, &err)); /* so that to ask does not finish it */
  gpu->leave(&before);
  still_waits = false;
  mf__retire(use.record, end_record, use.record);
  assert_true(mf__retire_waits(gpu));
  OK(mf__queue_synchronize(&a, &err));
  mf__retire_drain(gpu);
  assert_true(still_waits);
  assert_false(mf__retire_waits(gpu));
}

/* A copy that is queued, and yet fails: the call tells of earlier work's failure. */
#ifdef SPEC_HIP
static hipError_t (*queue_copy)(void *, const void *, size_t, hipMemcpyKind, hipStream_t);

static hipError_t queue_and_fail(void *dst, const void *src, size_t nbytes, hipMemcpyKind kind, hipStream_t stream) {
  (void)queue_copy(dst, src, nbytes, kind, stream);
  return 999;
}
#define COPY mf__hip.hipMemcpyAsync
#else
static CUresult (*queue_copy)(CUdeviceptr, CUdeviceptr, size_t, CUstream);

static CUresult queue_and_fail(CUdeviceptr dst, CUdeviceptr src, size_t nbytes, CUstream stream) {
  (void)queue_copy(dst, src, nbytes, stream);
  return 999;
}
#define COPY mf__cu.cuMemcpyAsync
#endif

static void move_nothing(const void *ctx, int64_t at, int64_t nbytes, char *to) {
  (void)ctx;
  (void)at;
  (void)nbytes;
  (void)to;
}

/* The buffer is given to the driver at once, if nothing is known to use it. */
static void stage_and_trim(void *device, bool up) {
  mf__stage_job job = {device, NBYTES, 1, up, move_nothing, NULL, false};
  queue_copy = COPY;
  COPY = queue_and_fail;
  const int rc = mf__stage_copy(&a, &job, &err);
  COPY = queue_copy;
  assert_int_equal(rc, MF_EDRIVER);
  mf__stage_trim(gpu, 0);
  assert_int_equal(sim_ask_findings(), 0);
  assert_false(mf__stage_exists(gpu, 0));
}

static void a_buffer_stays_while_a_copy_that_failed_may_use_it(void **state) {
  (void)state;
  skip_unless_simulated(simulated());
  mf__entered before;
  void *device = NULL;
  OK(gpu->enter(0, &before, &err));
  OK(gpu->memory_alloc(MF__DEVICE, NBYTES, a.stream, &device, &err));
  stage_and_trim(device, true);
  stage_and_trim(device, false);
  OK(gpu->memory_free(MF__DEVICE, device, a.stream, &err));
  OK(gpu->stream_synchronize(a.stream, &err));
  gpu->leave(&before);
}

static int begin(void **state) {
  mf__entered before;
  (void)state;
  sim_ask_reset();
  a = queue_new();
  b = queue_new();
  elsewhere = mf__queue_make(gpu, 0, MF_STREAM_PER_THREAD);
  elsewhere.thread++;
  assert_true(mf__queue_is_elsewhere(&elsewhere));
  OK(mf__queue_record_event(&a, &mark, NULL, &err));
  OK(mf__event_synchronize(gpu, 0, mark, &err));
  OK(gpu->enter(0, &before, &err));
  OK(gpu->memory_alloc(MF__PINNED, NBYTES, a.stream, &memory, &err));
  gpu->leave(&before);
  return 0;
}

static int end(void **state) {
  mf__entered before;
  (void)state;
  mf__event_give(gpu, 0, mark);
  OK(gpu->enter(0, &before, &err));
  OK(gpu->memory_free(MF__PINNED, memory, a.stream, &err));
  gpu->leave(&before);
  queue_end(&a);
  queue_end(&b);
  mf__event_trim(gpu, 0);
  gpu->device_forget(0);
  expect_clean_driver();
  sim_ask_reset();
  return 0;
}

int main(void) {
#define SPEC(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest specs[] = {
      SPEC(each_call_fails_in_turn),
      SPEC(a_surplus_event_leaves_nobody_inside),
      SPEC(a_buffer_stays_while_a_copy_that_failed_may_use_it),
      SPEC(a_kept_event_is_taken_before_one_is_made),
      SPEC(a_captured_queue_is_not_marked),
      SPEC(no_event_without_a_place_for_it),
      SPEC(what_is_being_ended_counts_as_waiting),
      SPEC(a_wait_for_the_device_that_fails_is_none),
      SPEC(a_lost_device_does_not_make_its_streams_gone),
  };
  return cmocka_run_group_tests(specs, NULL, NULL);
}
