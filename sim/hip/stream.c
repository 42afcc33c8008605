/* stream.c: streams and events, by their names in the runtime, and the runtime's own rules about them.
 *
 * It must not know what orders streams. */
#include <stdlib.h>

#include "front.h"

hipError_t object_of(const void *handle, sim_type type, void *out) {
  return from(sim_given(handle, type, out));
}

hipError_t stream_of(hipStream_t handle, sim_stream **out) {
  return from(sim_stream_given(handle, out));
}

hipError_t do_hipStreamCreateWithPriority(hipStream_t *out, unsigned flags, int priority) {
  return from(sim_call_stream_new(flags, priority > 1 ? 1 : priority < -1 ? -1 : priority, out));
}

hipError_t do_hipStreamDestroy(hipStream_t s) {
  return s == NULL || s == hipStreamPerThread ? hipErrorInvalidHandle : from(sim_call_stream_end(s));
}

hipError_t do_hipStreamQuery(hipStream_t s) {
  return from(sim_call_stream_query(s));
}

hipError_t do_hipStreamSynchronize(hipStream_t s) {
  return from(sim_call_stream_wait(s));
}

/* The runtime of ROCm 6 and 7 takes hipStreamLegacy for an address in calls that ask what a stream is, and dies. */
static hipError_t may_be_asked(hipStream_t s) {
  if (s != hipStreamLegacy) return hipSuccess;
  sim_found(SIM_MISUSE, "%s is given hipStreamLegacy, which crashes the runtime", sim_here().call);
  return hipErrorInvalidHandle;
}

hipError_t do_hipStreamGetPriority(hipStream_t s, int *priority) {
  if (priority == NULL) return hipErrorInvalidValue;
  TRY(may_be_asked(s));
  return from(sim_call_stream_priority(s, priority));
}

hipError_t do_hipStreamGetFlags(hipStream_t s, unsigned *flags) {
  if (flags == NULL || (s == NULL && !sim_default_is_per_thread())) return hipErrorInvalidValue;
  TRY(may_be_asked(s));
  return from(sim_call_stream_flags(s, flags));
}

hipError_t do_hipStreamGetDevice(hipStream_t s, hipDevice_t *device) {
  if (device == NULL) return hipErrorInvalidValue;
  TRY(may_be_asked(s));
  return from(sim_call_stream_device(s, device));
}

hipError_t do_hipLaunchHostFunc(hipStream_t s, hipHostFn_t fn, void *arg) {
  return from(sim_call_host(s, fn, arg));
}

typedef struct callback {
  hipStreamCallback_t fn;
  hipStream_t stream;
  void *arg;
} callback;

static void run_callback(void *p) {
  callback *c = p;
  c->fn(c->stream, hipSuccess, c->arg);
  free(c);
}

hipError_t do_hipStreamAddCallback(hipStream_t s, hipStreamCallback_t fn, void *arg, unsigned flags) {
  const callback c = {fn, s, arg};
  if (fn == NULL || flags != 0) return hipErrorInvalidValue;
  return from(sim_call_host_with(s, run_callback, &c, sizeof c));
}

hipError_t do_hipEventCreateWithFlags(hipEvent_t *out, unsigned flags) {
  const unsigned known = hipEventBlockingSync | hipEventDisableTiming | hipEventInterprocess | 0xE0000000u;
  if (out == NULL || (flags & ~known) != 0) return hipErrorInvalidValue;
  return from(sim_call_event_new(flags, (flags & hipEventDisableTiming) == 0, out));
}

hipError_t do_hipEventRecord(hipEvent_t event, hipStream_t s) {
  return from(sim_call_event_record(event, s));
}

hipError_t do_hipStreamWaitEvent(hipStream_t s, hipEvent_t event, unsigned flags) {
  return from(sim_call_event_wait(s, event, flags));
}

hipError_t do_hipEventQuery(hipEvent_t event) {
  return from(sim_call_event_query(event));
}

hipError_t do_hipEventSynchronize(hipEvent_t event) {
  return from(sim_call_event_wait_host(event));
}

hipError_t do_hipEventDestroy(hipEvent_t event) {
  return from(sim_call_event_end(event));
}

hipError_t do_hipEventElapsedTime(float *ms, hipEvent_t a, hipEvent_t b) {
  return from(sim_call_event_elapsed(a, b, ms));
}
