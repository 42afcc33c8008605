/* stream.c: streams and events, by their names in the driver.
 *
 * It must not know what orders streams. */
#include <stdlib.h>

#include "front.h"

CUresult stream_of(CUstream handle, sim_stream **out) {
  return from(sim_stream_given(handle, out));
}

CUresult do_cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
  return from(sim_call_stream_new(flags, priority > 0 ? 0 : priority < -5 ? -5 : priority, out));
}

CUresult do_cuStreamCreate(CUstream *out, unsigned flags) {
  return do_cuStreamCreateWithPriority(out, flags, 0);
}

CUresult do_cuStreamDestroy_v2(CUstream s) {
  return from(sim_call_stream_end(s));
}

CUresult do_cuStreamQuery(CUstream s) {
  return from(sim_call_stream_query(s));
}

CUresult do_cuStreamSynchronize(CUstream s) {
  return from(sim_call_stream_wait(s));
}

CUresult do_cuStreamGetPriority(CUstream s, int *priority) {
  return from(sim_call_stream_priority(s, priority));
}

CUresult do_cuStreamGetFlags(CUstream s, unsigned *flags) {
  return from(sim_call_stream_flags(s, flags));
}

CUresult do_cuStreamGetDevice(CUstream s, CUdevice *d) {
  return from(sim_call_stream_device(s, d));
}

CUresult do_cuStreamGetCtx(CUstream handle, CUcontext *c) {
  sim_stream *s;
  if (c == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(stream_of(handle, &s));
  *c = (CUcontext)s->ctx->o.handle;
  return CUDA_SUCCESS;
}

/* No document says so, but a stream that is being captured has no id, and to ask for one breaks the capture in any
 * mode (driver 580.159 on an H100, 2026-11-26); so does to ask for the legacy stream's beside a blocking capture. */
CUresult do_cuStreamGetId(CUstream handle, unsigned long long *id) {
  sim_stream *s;
  if (id == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(stream_of(handle, &s));
  if (s->capture != NULL) return from(sim_capture_forbid(s, SIM_CAP_UNSUPPORTED));
  TRY(from(sim_capture_implicit(s)));
  *id = s->o.id;
  return CUDA_SUCCESS;
}

CUresult do_cuLaunchHostFunc(CUstream s, CUhostFn fn, void *arg) {
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

CUresult do_cuStreamAddCallback(CUstream s, CUstreamCallback fn, void *arg, unsigned flags) {
  const callback c = {fn, s, arg};
  if (fn == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return from(sim_call_host_with(s, run_callback, &c, sizeof c));
}

CUresult do_cuEventCreate(CUevent *out, unsigned flags) {
  if (out == NULL || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  return from(sim_call_event_new(flags, (flags & CU_EVENT_DISABLE_TIMING) == 0, out));
}

CUresult do_cuEventRecord(CUevent event, CUstream s) {
  return from(sim_call_event_record(event, s));
}

CUresult do_cuEventRecordWithFlags(CUevent event, CUstream s, unsigned flags) {
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : do_cuEventRecord(event, s);
}

CUresult do_cuStreamWaitEvent(CUstream s, CUevent event, unsigned flags) {
  return from(sim_call_event_wait(s, event, flags));
}

CUresult do_cuEventQuery(CUevent event) {
  return from(sim_call_event_query(event));
}

CUresult do_cuEventSynchronize(CUevent event) {
  return from(sim_call_event_wait_host(event));
}

CUresult do_cuEventDestroy_v2(CUevent event) {
  return from(sim_call_event_end(event));
}

CUresult do_cuEventElapsedTime_v2(float *ms, CUevent a, CUevent b) {
  return from(sim_call_event_elapsed(a, b, ms));
}

CUresult do_cuEventElapsedTime(float *ms, CUevent a, CUevent b) {
  return do_cuEventElapsedTime_v2(ms, a, b);
}
