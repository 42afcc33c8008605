/* stream.c: streams and events, as the program sees them.
 *
 * Invariant: the handles 0, 1 and 2 are resolved when the call is made, for the calling thread's current
 * context. It must not know what orders streams. */
#include <stdlib.h>

#include "front.h"

CUresult stream_of(CUstream handle, sim_stream **out) {
  sim_context *c;
  TRY(from(sim_context_of(&c)));
  return from(sim_stream_given(c, handle, per_thread_default(), out));
}

CUresult do_cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
  sim_context *c;
  if (out == NULL || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  TRY(from(sim_context_of(&c)));
  const int clamped = priority > 0 ? 0 : priority < -5 ? -5 : priority;
  *out = (CUstream)sim_stream_new(c, SIM_ORDINARY, flags == 0, clamped)->o.handle;
  sim_note("%p", (void *)*out);
  return CUDA_SUCCESS;
}

CUresult do_cuStreamCreate(CUstream *out, unsigned flags) {
  return do_cuStreamCreateWithPriority(out, flags, 0);
}

CUresult do_cuStreamDestroy_v2(CUstream handle) {
  sim_stream *s;
  TRY(object_of(handle, SIM_STREAM, &s));
  return from(sim_stream_end(s));
}

CUresult do_cuStreamQuery(CUstream handle) {
  sim_stream *s;
  TRY(stream_of(handle, &s));
  return from(sim_stream_query(s));
}

CUresult do_cuStreamSynchronize(CUstream handle) {
  sim_stream *s;
  TRY(stream_of(handle, &s));
  sim_note("%s", s->name);
  return from(sim_stream_wait_host(s));
}

CUresult do_cuStreamGetPriority(CUstream handle, int *priority) {
  sim_stream *s;
  if (priority == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(stream_of(handle, &s));
  *priority = s->priority;
  return CUDA_SUCCESS;
}

CUresult do_cuStreamGetFlags(CUstream handle, unsigned *flags) {
  sim_stream *s;
  if (flags == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(stream_of(handle, &s));
  *flags = s->blocking ? 0 : CU_STREAM_NON_BLOCKING;
  return CUDA_SUCCESS;
}

CUresult do_cuStreamGetCtx(CUstream handle, CUcontext *c) {
  sim_stream *s;
  if (c == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(stream_of(handle, &s));
  *c = (CUcontext)s->ctx->o.handle;
  return CUDA_SUCCESS;
}

CUresult do_cuStreamGetId(CUstream handle, unsigned long long *id) {
  sim_stream *s;
  if (id == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(stream_of(handle, &s));
  *id = s->o.id;
  return CUDA_SUCCESS;
}

CUresult do_cuStreamGetDevice(CUstream handle, CUdevice *d) {
  sim_stream *s;
  if (d == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(stream_of(handle, &s));
  *d = s->ctx->device->id;
  return CUDA_SUCCESS;
}

CUresult do_cuLaunchHostFunc(CUstream handle, CUhostFn fn, void *arg) {
  sim_stream *s;
  TRY(stream_of(handle, &s));
  return from(sim_call_host(s, fn, arg));
}

typedef struct callback {
  CUstreamCallback fn;
  CUstream stream;
  void *arg;
} callback;

static void run_callback(void *p) {
  callback *c = p;
  c->fn(c->stream, CUDA_SUCCESS, c->arg);
  free(c);
}

CUresult do_cuStreamAddCallback(CUstream handle, CUstreamCallback fn, void *arg, unsigned flags) {
  const callback c = {fn, handle, arg};
  sim_stream *s;
  if (fn == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  TRY(stream_of(handle, &s));
  return from(sim_call_with(s, run_callback, &c, sizeof c));
}

CUresult do_cuEventCreate(CUevent *out, unsigned flags) {
  sim_context *c;
  if (out == NULL || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  TRY(from(sim_context_of(&c)));
  *out = (CUevent)sim_event_new(c, flags, (flags & CU_EVENT_DISABLE_TIMING) == 0)->o.handle;
  sim_note("%p", (void *)*out);
  return CUDA_SUCCESS;
}

CUresult do_cuEventRecord(CUevent event, CUstream handle) {
  sim_event *e;
  sim_stream *s;
  TRY(stream_of(handle, &s));
  TRY(object_of(event, SIM_EVENT, &e));
  sim_note("%p, %s", (void *)event, s->name);
  return from(sim_event_record(e, s));
}

CUresult do_cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned flags) {
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : do_cuEventRecord(event, handle);
}

CUresult do_cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
  sim_event *e;
  sim_stream *s;
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  TRY(stream_of(handle, &s));
  TRY(object_of(event, SIM_EVENT, &e));
  sim_note("%s, %p", s->name, (void *)event);
  return from(sim_event_wait(s, e));
}

CUresult do_cuEventQuery(CUevent event) {
  sim_event *e;
  TRY(object_of(event, SIM_EVENT, &e));
  return from(sim_event_query(e));
}

CUresult do_cuEventSynchronize(CUevent event) {
  sim_event *e;
  TRY(object_of(event, SIM_EVENT, &e));
  return from(sim_event_wait_host(e));
}

CUresult do_cuEventDestroy_v2(CUevent event) {
  sim_event *e;
  TRY(object_of(event, SIM_EVENT, &e));
  sim_event_end(e);
  return CUDA_SUCCESS;
}

CUresult do_cuEventElapsedTime_v2(float *ms, CUevent a, CUevent b) {
  sim_event *first, *second;
  if (ms == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(object_of(a, SIM_EVENT, &first));
  TRY(object_of(b, SIM_EVENT, &second));
  return from(sim_event_elapsed(first, second, ms));
}

CUresult do_cuEventElapsedTime(float *ms, CUevent a, CUevent b) {
  return do_cuEventElapsedTime_v2(ms, a, b);
}
