/* stream.c: streams and events.
 *
 * A stream or event is CUDA's under HIP's name. It must not know about graphs. */
#include <stdlib.h>

#include "forward.h"

hipError_t do_hipStreamCreateWithPriority(hipStream_t *out, unsigned flags, int priority) {
  CUstream s = NULL;
  if (out == NULL) return hipErrorInvalidValue;
  TRY(DO(cuStreamCreateWithPriority, &s, flags, priority < 0 ? -1 : 0));
  *out = (hipStream_t)s;
  return hipSuccess;
}

hipError_t do_hipStreamDestroy(hipStream_t s) {
  if (s == NULL || s == hipStreamLegacy || s == hipStreamPerThread) return hipErrorInvalidHandle;
  return DO(cuStreamDestroy_v2, (CUstream)s);
}

hipError_t do_hipStreamQuery(hipStream_t s) {
  return DO(cuStreamQuery, forward_stream(s));
}

/* HIP's null stream is waited for with all blocking streams. CUDA promises that of no wait, but of what is queued. */
static hipError_t synchronize_all(void) {
  CUevent e = NULL;
  TRY(DO(cuEventCreate, &e, CU_EVENT_DISABLE_TIMING));
  hipError_t rc = DO(cuEventRecord, e, CU_STREAM_LEGACY);
  if (rc == hipSuccess) rc = DO(cuEventSynchronize, e);
  const hipError_t ended = DO(cuEventDestroy_v2, e);
  return rc != hipSuccess ? rc : ended;
}

hipError_t do_hipStreamSynchronize(hipStream_t s) {
  return s == NULL && !sim_default_is_per_thread() ? synchronize_all() : DO(cuStreamSynchronize, forward_stream(s));
}

hipError_t do_hipStreamWaitEvent(hipStream_t s, hipEvent_t e, unsigned flags) {
  return DO(cuStreamWaitEvent, forward_stream(s), (CUevent)e, flags);
}

/* HIP's runtime dies of this one where it is asked what a stream is. */
static hipError_t askable(hipStream_t s) {
  return s == hipStreamLegacy ? hipErrorInvalidHandle : hipSuccess;
}

hipError_t do_hipStreamGetPriority(hipStream_t s, int *priority) {
  int theirs = 0;
  if (priority == NULL) return hipErrorInvalidValue;
  TRY(askable(s));
  TRY(DO(cuStreamGetPriority, forward_stream(s), &theirs));
  *priority = theirs < 0 ? -1 : 0;
  return hipSuccess;
}

hipError_t do_hipStreamGetFlags(hipStream_t s, unsigned *flags) {
  if (flags == NULL || (s == NULL && !sim_default_is_per_thread())) return hipErrorInvalidValue;
  TRY(askable(s));
  return DO(cuStreamGetFlags, forward_stream(s), flags);
}

/* The driver that can be asked for a stream's device is newer than the one that knows its context. */
hipError_t do_hipStreamGetDevice(hipStream_t s, hipDevice_t *device) {
  CUcontext c, popped;
  if (device == NULL) return hipErrorInvalidValue;
  TRY(askable(s));
  TRY(DO(cuStreamGetCtx, forward_stream(s), &c));
  TRY(DO(cuCtxPushCurrent_v2, c));
  const hipError_t rc = DO(cuCtxGetDevice, device);
  TRY(DO(cuCtxPopCurrent_v2, &popped));
  return rc;
}

hipError_t do_hipLaunchHostFunc(hipStream_t s, hipHostFn_t fn, void *arg) {
  return DO(cuLaunchHostFunc, forward_stream(s), fn, arg);
}

typedef struct callback {
  hipStreamCallback_t fn;
  hipStream_t stream;
  void *arg;
} callback;

static void run_callback(CUstream s, CUresult status, void *p) {
  callback *c = p;
  (void)s;
  c->fn(c->stream, forward_status(status), c->arg);
  free(c);
}

hipError_t do_hipStreamAddCallback(hipStream_t s, hipStreamCallback_t fn, void *arg, unsigned flags) {
  if (fn == NULL) return hipErrorInvalidValue;
  callback *c = malloc(sizeof *c);
  if (c == NULL) return hipErrorOutOfMemory;
  *c = (callback){fn, s, arg};
  const hipError_t rc = DO(cuStreamAddCallback, forward_stream(s), run_callback, c, flags);
  if (rc != hipSuccess) free(c);
  return rc;
}

hipError_t do_hipEventCreateWithFlags(hipEvent_t *out, unsigned flags) {
  const unsigned fences = 0xE0000000u; /* how far memory is made visible: always to all here */
  CUevent e = NULL;
  if (out == NULL) return hipErrorInvalidValue;
  TRY(DO(cuEventCreate, &e, flags & ~fences));
  *out = (hipEvent_t)e;
  return hipSuccess;
}

hipError_t do_hipEventDestroy(hipEvent_t e) {
  return DO(cuEventDestroy_v2, (CUevent)e);
}

hipError_t do_hipEventRecord(hipEvent_t e, hipStream_t s) {
  return DO(cuEventRecord, (CUevent)e, forward_stream(s));
}

hipError_t do_hipEventQuery(hipEvent_t e) {
  return DO(cuEventQuery, (CUevent)e);
}

hipError_t do_hipEventSynchronize(hipEvent_t e) {
  return DO(cuEventSynchronize, (CUevent)e);
}

hipError_t do_hipEventElapsedTime(float *ms, hipEvent_t a, hipEvent_t b) {
  return DO(cuEventElapsedTime, ms, (CUevent)a, (CUevent)b);
}
