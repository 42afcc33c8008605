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
    assert_true(told("hipMemsetAsync"));
    assert_true(told("hipMemcpyAsync"));
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

static void dead_and_strange_handles_are_found(void **state) {
  (void)state;
  hipStream_t s = stream();
  OK(hipStreamDestroy(s));
  FAILS(hipStreamSynchronize(s), hipErrorContextIsDestroyed);
  assert_true(sim_findings(SIM_ANY) == 1);
  sim_reset();
  FAILS(hipStreamSynchronize((hipStream_t)0x1234), hipErrorContextIsDestroyed);
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
  float ms = -1;
  OK(hipEventCreate(&a));
  OK(hipEventCreate(&b));
  OK(hipEventRecord(a, NULL));
  OK(hipEventRecord(b, NULL));
  OK(hipEventSynchronize(b));
  OK(hipEventElapsedTime(&ms, a, b));
  assert_true(ms >= 0);
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
    SPEC(the_twin_means_the_threads_own_stream), SPEC(what_a_stream_is), SPEC(dead_and_strange_handles_are_found),
    SPEC(an_event_is_recorded_on_its_own_device), SPEC(host_functions_run_in_order), SPEC(events_measure_time),
    SPEC(a_capture_is_launched), SPEC(what_capture_forbids_breaks_it))
