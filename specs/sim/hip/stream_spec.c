/* stream_spec.c: streams and their numbers, events, capture; a missing wait is found. */
#include "spec.h"

static void exchange(bool waits, hipStream_t a, hipStream_t b) {
  void *p = device_memory(), *q = device_memory();
  OK(hipMemsetAsync(p, 7, NBYTES, a));
  if (waits) follow(b, a);
  OK(hipMemcpyAsync(q, p, NBYTES, hipMemcpyDeviceToDevice, b));
  OK(hipStreamSynchronize(a));
  OK(hipStreamSynchronize(b));
  OK(hipFree(p));
  OK(hipFree(q));
}

static void a_missing_wait_is_found_under_every_seed(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 50; seed++) {
    hipStream_t a = stream(), b = stream();
    sim_seed(seed);
    exchange(true, a, b);
    assert_int_equal(sim_findings(SIM_RACE), 0);
    exchange(false, a, b);
    assert_true(told(CALLED("hipMemsetAsync", "cuMemsetD8Async")));
    assert_true(told(CALLED("hipMemcpyAsync", "cuMemcpyAsync")));
    found(SIM_RACE, 1);
    OK(hipStreamDestroy(a));
    OK(hipStreamDestroy(b));
  }
}

static void the_default_stream_orders_blocking_streams_only(void **state) {
  (void)state;
  hipStream_t blocking = NULL, other = stream();
  OK(hipStreamCreate(&blocking));
  exchange(false, blocking, NULL);
  exchange(false, NULL, blocking);
  exchange(false, hipStreamLegacy, blocking);
  exchange(false, hipStreamPerThread, NULL);
  assert_int_equal(sim_findings(SIM_RACE), 0);
  exchange(false, other, NULL);
  found(SIM_RACE, 1);
  exchange(false, hipStreamPerThread, blocking);
  found(SIM_RACE, 1);
  OK(hipStreamDestroy(blocking));
  OK(hipStreamDestroy(other));
}

static void only_the_null_stream_is_waited_for_with_all_others(void **state) {
  (void)state;
  const hipStream_t names[] = {NULL, hipStreamLegacy};
  for (int i = 0; i < 2; i++) {
    void *p = device_memory();
    hipStream_t s = NULL;
    OK(hipStreamCreate(&s));
    OK(hipMemsetAsync(p, 1, NBYTES, s));
    OK(hipStreamSynchronize(names[i]));
    OK(hipFree(p));
    found(SIM_RACE, names[i] == hipStreamLegacy);
    OK(hipStreamSynchronize(s));
    OK(hipStreamDestroy(s));
  }
}

static void the_twin_means_the_threads_own_stream(void **state) {
  (void)state;
  hipStream_t blocking = NULL;
  void *p = device_memory();
  OK(hipStreamCreate(&blocking));
  OK(hipMemsetAsync(p, 7, NBYTES, blocking));
  OK(hipMemsetAsync_spt(p, 8, NBYTES, NULL));
  found(SIM_RACE, 1);
  OK(hipStreamSynchronize_spt(NULL));
  OK(hipDeviceSynchronize());
  OK(hipFree(p));
  OK(hipStreamDestroy(blocking));
}

static void what_a_stream_is(void **state) {
  (void)state;
  hipStream_t s = NULL;
  unsigned flags = 9;
  int priority = 9;
  OK(hipStreamCreateWithPriority(&s, hipStreamNonBlocking, -5));
  OK(hipStreamGetFlags(s, &flags));
  OK(hipStreamGetPriority(s, &priority));
  assert_int_equal(flags, hipStreamNonBlocking);
  assert_int_equal(priority, -1);
  OK(hipStreamDestroy(s));
}

static void what_the_named_streams_answer(void **state) {
  (void)state;
  unsigned flags = 9;
  int priority = 9, device = 9;
  OK(hipStreamGetPriority(NULL, &priority));
  assert_int_equal(priority, 0);
  OK(hipStreamGetDevice(hipStreamPerThread, &device));
  assert_int_equal(device, 0);
  OK(hipStreamGetFlags(hipStreamPerThread, &flags));
  assert_int_equal(flags, hipStreamDefault);
  FAILS(hipStreamGetFlags(NULL, &flags), hipErrorInvalidValue);
  FAILS(hipStreamDestroy(NULL), hipErrorInvalidHandle);
  FAILS(hipStreamDestroy(hipStreamPerThread), hipErrorInvalidHandle);
  FAILS(hipStreamGetDevice(hipStreamLegacy, &device), hipErrorInvalidHandle);
  found_by_the_runtime(SIM_MISUSE, 1);
  hipGetLastError();
}

static void dead_and_strange_handles_are_found(void **state) {
  (void)state;
  const hipError_t dead = FORWARDED ? hipErrorInvalidHandle : hipErrorContextIsDestroyed;
  hipStream_t s = stream();
  OK(hipStreamDestroy(s));
  FAILS(hipStreamSynchronize(s), dead);
  assert_true(sim_findings(SIM_ANY) == 1);
  sim_reset();
  FAILS(hipStreamSynchronize((hipStream_t)0x1234), dead);
  found(SIM_MISUSE, 1);
  FAILS(hipEventRecord(NULL, NULL), hipErrorInvalidHandle);
  hipGetLastError();
}

static void an_event_is_recorded_on_its_own_device(void **state) {
  (void)state;
  hipEvent_t e = event();
  OK(hipSetDevice(1));
  hipStream_t s = stream();
  FAILS(hipEventRecord(e, s), hipErrorInvalidHandle);
  found(SIM_MISUSE, 1);
  OK(hipStreamWaitEvent(s, e, 0));
  OK(hipSetDevice(0));
  OK(hipEventDestroy(e));
  OK(hipStreamSynchronize(s));
  OK(hipStreamDestroy(s));
}

static void count(hipStream_t s, hipError_t status, void *n) {
  (void)s;
  *(int *)n += status == hipSuccess;
}

static void add(void *n) {
  ++*(int *)n;
}

static void host_functions_run_in_order(void **state) {
  (void)state;
  hipStream_t s = stream();
  int n = 0;
  OK(hipStreamAddCallback(s, count, &n, 0));
  OK(hipLaunchHostFunc(s, add, &n));
  assert_int_equal(n, 0);
  OK(hipStreamSynchronize(s));
  assert_int_equal(n, 2);
  OK(hipStreamDestroy(s));
}

static void events_measure_time(void **state) {
  (void)state;
  hipEvent_t a = NULL, b = NULL;
  float ms = -1, back = 1;
  OK(hipEventCreate(&a));
  OK(hipEventCreate(&b));
  OK(hipEventRecord(a, NULL));
  OK(hipEventRecord(b, NULL));
  OK(hipEventSynchronize(b));
  OK(hipEventElapsedTime(&ms, a, b));
  OK(hipEventElapsedTime(&back, b, a));
  assert_true(ms >= 0 && ms < 60000 && back == -ms);
  OK(hipEventDestroy(a));
  OK(hipEventDestroy(b));
}

static void a_capture_is_launched(void **state) {
  (void)state;
  unsigned char in[NBYTES];
  hipStream_t s = stream();
  hipGraph_t g = NULL;
  hipGraphExec_t x = NULL;
  hipStreamCaptureStatus status;
  void *p = device_memory();
  OK(hipMemset(p, 1, NBYTES));
  OK(hipDeviceSynchronize());
  OK(hipStreamIsCapturing(s, &status));
  assert_int_equal(status, hipStreamCaptureStatusNone);
  OK(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
  OK(hipStreamIsCapturing(s, &status));
  assert_int_equal(status, hipStreamCaptureStatusActive);
  OK(hipMemsetAsync(p, 2, NBYTES, s));
  OK(hipStreamEndCapture(s, &g));
  OK(hipGraphInstantiate(&x, g, NULL, NULL, 0));
  OK(hipMemcpy(in, p, NBYTES, hipMemcpyDeviceToHost));
  assert_true(all_bytes(in, NBYTES, 1));
  OK(hipGraphLaunch(x, s));
  OK(hipStreamSynchronize(s));
  OK(hipMemcpy(in, p, NBYTES, hipMemcpyDeviceToHost));
  assert_true(all_bytes(in, NBYTES, 2));
  OK(hipGraphExecDestroy(x));
  OK(hipGraphDestroy(g));
  OK(hipFree(p));
  OK(hipStreamDestroy(s));
}

/* Ends a capture, and says how. */
static hipError_t end_capture(hipStream_t s) {
  hipGraph_t g = NULL;
  const hipError_t rc = hipStreamEndCapture(s, &g);
  if (g != NULL) OK(hipGraphDestroy(g));
  return rc;
}

static void a_captured_event_cannot_be_asked(void **state) {
  (void)state;
  hipStream_t s = stream();
  hipEvent_t e = event();
  OK(hipStreamBeginCapture(s, hipStreamCaptureModeRelaxed));
  OK(hipEventRecord(e, s));
  FAILS(hipEventQuery(e), hipErrorCapturedEvent);
  FAILS(end_capture(s), hipErrorStreamCaptureInvalidated);
  found(SIM_CAPTURE, 1);
  OK(hipEventDestroy(e));
  OK(hipStreamDestroy(s));
  hipGetLastError();
}

static void a_wait_takes_a_stream_into_the_capture(void **state) {
  (void)state;
  hipStream_t s = stream(), t = stream();
  hipStreamCaptureStatus status;
  unsigned long long first = 0, second = 1;
  OK(hipStreamBeginCapture(s, hipStreamCaptureModeThreadLocal));
  follow(t, s);
  OK(hipStreamGetCaptureInfo_v2(s, &status, &first, NULL, NULL, NULL));
  OK(hipStreamGetCaptureInfo_v2(t, &status, &second, NULL, NULL, NULL));
  assert_int_equal(status, hipStreamCaptureStatusActive);
  assert_int_equal(first, second);
  follow(s, t);
  OK(end_capture(s));
  OK(hipStreamIsCapturing(t, &status));
  assert_int_equal(status, hipStreamCaptureStatusNone);
  OK(hipStreamDestroy(s));
  OK(hipStreamDestroy(t));
}

static void waiting_for_work_outside_breaks_a_capture(void **state) {
  (void)state;
  hipStream_t s = stream(), t = stream();
  hipEvent_t e = event();
  OK(hipEventRecord(e, t));
  OK(hipStreamBeginCapture(s, hipStreamCaptureModeRelaxed));
  FAILS(hipStreamWaitEvent(s, e, 0), hipErrorStreamCaptureIsolation);
  FAILS(end_capture(s), hipErrorStreamCaptureInvalidated);
  found(SIM_CAPTURE, 1);
  OK(hipEventDestroy(e));
  OK(hipStreamDestroy(s));
  OK(hipStreamDestroy(t));
  hipGetLastError();
}

static void a_thread_may_relax_the_rules(void **state) {
  (void)state;
  hipStream_t s = stream();
  hipStreamCaptureMode mode = hipStreamCaptureModeRelaxed;
  OK(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
  OK(hipThreadExchangeStreamCaptureMode(&mode));
  assert_int_equal(mode, hipStreamCaptureModeGlobal);
  OK(hipFree(device_memory()));
  OK(hipThreadExchangeStreamCaptureMode(&mode));
  assert_int_equal(mode, hipStreamCaptureModeRelaxed);
  OK(end_capture(s));
  OK(hipStreamDestroy(s));
}

static void memory_from_outside_is_not_freed_in_a_capture(void **state) {
  (void)state;
  hipStream_t s = stream();
  void *p = NULL;
  OK(hipMallocAsync(&p, NBYTES, s));
  OK(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
  FAILS(hipFreeAsync(p, s), hipErrorInvalidValue);
  OK(end_capture(s));
  OK(hipFreeAsync(p, s));
  OK(hipStreamSynchronize(s));
  OK(hipStreamDestroy(s));
  hipGetLastError();
}

static void a_described_copy_is_not_captured(void **state) {
  (void)state;
  const HIP_MEMCPY3D nothing = {.srcMemoryType = hipMemoryTypeHost, .dstMemoryType = hipMemoryTypeHost};
  RUNTIME_ONLY("captures every copy");
  hipStream_t s = stream();
  OK(hipDrvMemcpy3DAsync(&nothing, s));
  OK(hipStreamBeginCapture(s, hipStreamCaptureModeRelaxed));
  FAILS(hipDrvMemcpy3DAsync(&nothing, s), hipErrorStreamCaptureUnsupported);
  FAILS(end_capture(s), hipErrorStreamCaptureInvalidated);
  found(SIM_CAPTURE, 1);
  OK(hipStreamDestroy(s));
  hipGetLastError();
}

static void what_capture_forbids_breaks_it(void **state) {
  (void)state;
  hipStream_t s = stream();
  hipGraph_t g = NULL;
  OK(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
  void *p = NULL;
  FAILS(hipMalloc(&p, NBYTES), hipErrorStreamCaptureUnsupported);
  assert_null(p);
  FAILS(hipStreamSynchronize(s), hipErrorStreamCaptureInvalidated);
  FAILS(hipStreamEndCapture(s, &g), hipErrorStreamCaptureInvalidated);
  assert_null(g);
  found(SIM_CAPTURE, 1);
  OK(hipStreamDestroy(s));
  hipGetLastError();
}

RUN(SPEC(a_missing_wait_is_found_under_every_seed), SPEC(the_default_stream_orders_blocking_streams_only),
    SPEC(only_the_null_stream_is_waited_for_with_all_others),
    SPEC(the_twin_means_the_threads_own_stream), SPEC(what_a_stream_is), SPEC(what_the_named_streams_answer),
    SPEC(dead_and_strange_handles_are_found),
    SPEC(an_event_is_recorded_on_its_own_device), SPEC(host_functions_run_in_order), SPEC(events_measure_time),
    SPEC(a_capture_is_launched), SPEC(a_captured_event_cannot_be_asked),
    SPEC(a_wait_takes_a_stream_into_the_capture), SPEC(waiting_for_work_outside_breaks_a_capture),
    SPEC(a_thread_may_relax_the_rules), SPEC(memory_from_outside_is_not_freed_in_a_capture),
    SPEC(a_described_copy_is_not_captured), SPEC(what_capture_forbids_breaks_it))
