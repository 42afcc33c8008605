/* stream.c: streams and events, as the program sees them.
 *
 * Invariant: the handles 0, 1 and 2 are resolved when the call is made, for the calling thread's current device.
 * It must not know what orders streams. */
#include <stdlib.h>

#include "front.h"

/* A bad stream or event crashes the runtime of ROCm 7; here it is reported, with the status of ROCm 6. */
hipError_t object_of(const void *handle, sim_type type, void *out) {
  void *object = sim_given(handle, type);
  *(void **)out = object;
  if (object != NULL) return hipSuccess;
  return type == SIM_STREAM ? hipErrorContextIsDestroyed : hipErrorInvalidHandle;
}

hipError_t stream_of(hipStream_t handle, sim_stream **out) {
  const sim_status rc = sim_stream_given(device_context(), handle, per_thread_default(), out);
  return rc == SIM_BAD_HANDLE ? hipErrorContextIsDestroyed : from(rc);
}

hipError_t do_hipStreamCreateWithPriority(hipStream_t *out, unsigned flags, int priority) {
  if (out == NULL || flags > hipStreamNonBlocking) return hipErrorInvalidValue;
  const int clamped = priority > 1 ? 1 : priority < -1 ? -1 : priority;
  *out = (hipStream_t)sim_stream_new(device_context(), SIM_ORDINARY, flags == hipStreamDefault, clamped)->o.handle;
  sim_note("%p", (void *)*out);
  return hipSuccess;
}

hipError_t do_hipStreamDestroy(hipStream_t handle) {
  sim_stream *s;
  if (handle == NULL || handle == hipStreamPerThread) return hipErrorInvalidHandle;
  TRY(object_of(handle, SIM_STREAM, &s));
  return from(sim_stream_end(s));
}

hipError_t do_hipStreamQuery(hipStream_t handle) {
  sim_stream *s;
  TRY(stream_of(handle, &s));
  return from(sim_stream_query(s));
}

/* Of the null stream it is documented that this waits for other streams of the device too; of hipStreamLegacy, and of
 * hipStreamQuery, it is not. */
hipError_t do_hipStreamSynchronize(hipStream_t handle) {
  sim_stream *s;
  TRY(stream_of(handle, &s));
  sim_note("%s", s->name);
  const bool null = handle == NULL && s->kind == SIM_LEGACY;
  return from(null ? sim_stream_wait_blocking(s->ctx) : sim_stream_wait_host(s));
}

/* The runtime of ROCm 6 and 7 takes hipStreamLegacy for an address in calls that ask what a stream is, and dies. */
static hipError_t asked_of(hipStream_t handle, sim_stream **s) {
  if (handle != hipStreamLegacy) return stream_of(handle, s);
  sim_found(SIM_MISUSE, "%s is given hipStreamLegacy, which crashes the runtime", sim_here().call);
  return hipErrorInvalidHandle;
}

hipError_t do_hipStreamGetPriority(hipStream_t handle, int *priority) {
  sim_stream *s;
  if (priority == NULL) return hipErrorInvalidValue;
  TRY(asked_of(handle, &s));
  *priority = s->priority;
  return hipSuccess;
}

hipError_t do_hipStreamGetFlags(hipStream_t handle, unsigned *flags) {
  sim_stream *s;
  if (flags == NULL || (handle == NULL && !per_thread_default())) return hipErrorInvalidValue;
  TRY(asked_of(handle, &s));
  *flags = s->blocking ? hipStreamDefault : hipStreamNonBlocking;
  return hipSuccess;
}

hipError_t do_hipStreamGetDevice(hipStream_t handle, hipDevice_t *device) {
  sim_stream *s;
  if (device == NULL) return hipErrorInvalidValue;
  TRY(asked_of(handle, &s));
  *device = s->ctx->device->id;
  return hipSuccess;
}

hipError_t do_hipLaunchHostFunc(hipStream_t handle, hipHostFn_t fn, void *arg) {
  sim_stream *s;
  TRY(stream_of(handle, &s));
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

hipError_t do_hipStreamAddCallback(hipStream_t handle, hipStreamCallback_t fn, void *arg, unsigned flags) {
  const callback c = {fn, handle, arg};
  sim_stream *s;
  if (fn == NULL || flags != 0) return hipErrorInvalidValue;
  TRY(stream_of(handle, &s));
  return from(sim_call_with(s, run_callback, &c, sizeof c));
}

hipError_t do_hipEventCreateWithFlags(hipEvent_t *out, unsigned flags) {
  const unsigned known = hipEventBlockingSync | hipEventDisableTiming | hipEventInterprocess | 0xE0000000u;
  if (out == NULL || (flags & ~known) != 0) return hipErrorInvalidValue;
  if ((flags & hipEventInterprocess) != 0) return hipErrorNotSupported;
  *out = (hipEvent_t)sim_event_new(device_context(), flags, (flags & hipEventDisableTiming) == 0)->o.handle;
  sim_note("%p", (void *)*out);
  return hipSuccess;
}

hipError_t do_hipEventRecord(hipEvent_t event, hipStream_t handle) {
  sim_event *e;
  sim_stream *s;
  TRY(object_of(event, SIM_EVENT, &e));
  TRY(stream_of(handle, &s));
  sim_note("%p, %s", (void *)event, s->name);
  return from(sim_event_record(e, s));
}

hipError_t do_hipStreamWaitEvent(hipStream_t handle, hipEvent_t event, unsigned flags) {
  sim_event *e;
  sim_stream *s;
  if (flags > 1) return hipErrorInvalidValue;
  TRY(object_of(event, SIM_EVENT, &e));
  TRY(stream_of(handle, &s));
  sim_note("%s, %p", s->name, (void *)event);
  return from(sim_event_wait(s, e));
}

hipError_t do_hipEventQuery(hipEvent_t event) {
  sim_event *e;
  TRY(object_of(event, SIM_EVENT, &e));
  return from(sim_event_query(e));
}

hipError_t do_hipEventSynchronize(hipEvent_t event) {
  sim_event *e;
  TRY(object_of(event, SIM_EVENT, &e));
  return from(sim_event_wait_host(e));
}

hipError_t do_hipEventDestroy(hipEvent_t event) {
  sim_event *e;
  TRY(object_of(event, SIM_EVENT, &e));
  sim_event_end(e);
  return hipSuccess;
}

hipError_t do_hipEventElapsedTime(float *ms, hipEvent_t a, hipEvent_t b) {
  sim_event *first, *second;
  if (ms == NULL) return hipErrorInvalidValue;
  TRY(object_of(a, SIM_EVENT, &first));
  TRY(object_of(b, SIM_EVENT, &second));
  return from(sim_event_elapsed(first, second, ms));
}
