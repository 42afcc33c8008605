/* capture_spec.c: what breaks a stream capture in the HIP runtimes of ROCm 6 and 7, where they are stricter than CUDA.
 *
 * The same program runs twice: as the version that the simulated runtime is by default, and, with SIM_DRIVER_VERSION,
 * as one that has AMD's corrections. What is expected follows from the version that the runtime reports. */
#include <pthread.h>

#include "spec.h"

static bool corrected(void) {
  int version = 0;
  OK(hipRuntimeGetVersion(&version));
  return version >= 70300000;
}

static hipError_t end_capture(hipStream_t s) {
  hipGraph_t g = NULL;
  const hipError_t rc = hipStreamEndCapture(s, &g);
  if (g != NULL) OK(hipGraphDestroy(g));
  return rc;
}

/* The capture that s took part in is broken, by one call. */
static void expect_broken(hipStream_t s) {
  FAILS(end_capture(s), hipErrorStreamCaptureInvalidated);
  found(SIM_CAPTURE, 1);
  hipGetLastError();
}

static void a_wait_for_a_device_breaks_the_captures_of_all_in_any_mode(void **state) {
  (void)state;
  hipStream_t s = stream();
  for (int mode = 0; mode < 3; mode++) {
    for (int device = 0; device < 2; device++) {
      hipStreamCaptureMode relaxed = hipStreamCaptureModeRelaxed;
      OK(hipStreamBeginCapture(s, (hipStreamCaptureMode)mode));
      OK(hipThreadExchangeStreamCaptureMode(&relaxed));
      OK(hipSetDevice(device));
      FAILS(hipDeviceSynchronize(), hipErrorStreamCaptureUnsupported);
      OK(hipSetDevice(0));
      OK(hipThreadExchangeStreamCaptureMode(&relaxed));
      expect_broken(s);
    }
  }
  OK(hipStreamDestroy(s));
}

static void a_synchronous_copy_or_fill_breaks_any_capture(void **state) {
  (void)state;
  char host[16] = {0};
  void *p = device_memory();
  hipStream_t s = stream();
  for (int fills = 0; fills < 2; fills++) {
    OK(hipStreamBeginCapture(s, hipStreamCaptureModeRelaxed));
    FAILS(fills ? hipMemset(p, 1, 16) : hipMemcpy(host, p, 16, hipMemcpyDeviceToHost), hipErrorStreamCaptureImplicit);
    expect_broken(s);
  }
  OK(hipStreamDestroy(s));
  OK(hipFree(p));
}

/* What another thread asks while a stream is captured, and in which mode. */
static struct question {
  hipStreamCaptureMode mode;
  hipStream_t s;
  hipEvent_t e;
  enum { QUERY_EVENT, SYNCHRONIZE_EVENT, QUERY_STREAM, SYNCHRONIZE_STREAM } what;
  hipError_t answer;
} question;

static void *ask(void *unused) {
  hipStreamCaptureMode mode = question.mode;
  (void)unused;
  hipThreadExchangeStreamCaptureMode(&mode);
  if (question.what == QUERY_EVENT) question.answer = hipEventQuery(question.e);
  if (question.what == SYNCHRONIZE_EVENT) question.answer = hipEventSynchronize(question.e);
  if (question.what == QUERY_STREAM) question.answer = hipStreamQuery(question.s);
  if (question.what == SYNCHRONIZE_STREAM) question.answer = hipStreamSynchronize(question.s);
  return NULL;
}

static void ask_from_elsewhere(void) {
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, ask, NULL), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
}

static void a_threads_mode_shields_little_from_anothers_global_capture(void **state) {
  (void)state;
  hipStream_t captured = stream();
  question.s = stream();
  question.e = event();
  OK(hipEventRecord(question.e, question.s));
  OK(hipStreamSynchronize(question.s));
  for (int mode = 0; mode < 3; mode++) {
    for (int what = QUERY_EVENT; what <= SYNCHRONIZE_STREAM; what++) {
      const bool shields = mode == hipStreamCaptureModeRelaxed && what >= QUERY_STREAM;
      const bool barred = mode == hipStreamCaptureModeGlobal || (!corrected() && !shields);
      question.mode = (hipStreamCaptureMode)mode;
      question.what = what;
      OK(hipStreamBeginCapture(captured, hipStreamCaptureModeGlobal));
      ask_from_elsewhere();
      assert_int_equal(question.answer, barred ? hipErrorStreamCaptureUnsupported : hipSuccess);
      if (barred) expect_broken(captured);
      if (!barred) OK(end_capture(captured));
    }
  }
  OK(hipEventDestroy(question.e));
  OK(hipStreamDestroy(question.s));
  OK(hipStreamDestroy(captured));
}

static void an_event_recorded_before_the_capture_of_its_stream_counts_as_captured(void **state) {
  (void)state;
  hipStream_t s = stream();
  hipEvent_t e = event();
  OK(hipEventRecord(e, s));
  OK(hipStreamSynchronize(s));
  OK(hipStreamBeginCapture(s, hipStreamCaptureModeRelaxed));
  FAILS(hipEventQuery(e), corrected() ? hipSuccess : hipErrorCapturedEvent);
  if (!corrected()) expect_broken(s);
  if (corrected()) OK(end_capture(s));
  OK(hipEventQuery(e));
  OK(hipEventDestroy(e));
  OK(hipStreamDestroy(s));
}

RUN(SPEC(a_wait_for_a_device_breaks_the_captures_of_all_in_any_mode),
    SPEC(a_synchronous_copy_or_fill_breaks_any_capture),
    SPEC(a_threads_mode_shields_little_from_anothers_global_capture),
    SPEC(an_event_recorded_before_the_capture_of_its_stream_counts_as_captured))
