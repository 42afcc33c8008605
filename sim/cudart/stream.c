/* stream.c: streams, events, capture and graphs, whose handles and numbers are the driver's.
 *
 * It must not know what orders streams. */
#include <stdlib.h>

#include "front.h"

cudaError_t do_cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority) {
  TRY(context());
  return from(cuStreamCreateWithPriority(s, flags, priority));
}

cudaError_t do_cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
  return do_cudaStreamCreateWithPriority(s, flags, 0);
}

cudaError_t do_cudaStreamCreate(cudaStream_t *s) {
  return do_cudaStreamCreateWithPriority(s, 0, 0);
}

/* The three default streams cannot be destroyed. */
cudaError_t do_cudaStreamDestroy(cudaStream_t s) {
  TRY(context());
  return s == NULL ? cudaErrorInvalidResourceHandle : from(cuStreamDestroy_v2(s));
}

cudaError_t do_cudaStreamQuery(cudaStream_t s) {
  TRY(context());
  return from(cuStreamQuery(stream_of(s)));
}

cudaError_t do_cudaStreamSynchronize(cudaStream_t s) {
  TRY(context());
  return from(cuStreamSynchronize(stream_of(s)));
}

cudaError_t do_cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
  TRY(context());
  return from(cuStreamWaitEvent(stream_of(s), e, flags));
}

cudaError_t do_cudaStreamGetPriority(cudaStream_t s, int *priority) {
  TRY(context());
  return from(cuStreamGetPriority(stream_of(s), priority));
}

cudaError_t do_cudaStreamGetFlags(cudaStream_t s, unsigned *flags) {
  TRY(context());
  return from(cuStreamGetFlags(stream_of(s), flags));
}

cudaError_t do_cudaStreamGetId(cudaStream_t s, unsigned long long *id) {
  TRY(context());
  return from(cuStreamGetId(stream_of(s), id));
}

cudaError_t do_cudaStreamGetDevice(cudaStream_t s, int *device) {
  TRY(context());
  return from(cuStreamGetDevice(stream_of(s), device));
}

/* A status is an enumeration of the same width and values in both. */
typedef struct callback {
  cudaStreamCallback_t fn;
  void *arg;
} callback;

static void call_back(CUstream s, CUresult status, void *given) {
  const callback c = *(callback *)given;
  free(given);
  c.fn(s, (cudaError_t)status, c.arg);
}

cudaError_t do_cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t fn, void *arg, unsigned flags) {
  if (fn == NULL) return cudaErrorInvalidValue;
  TRY(context());
  callback *c = malloc(sizeof *c);
  if (c == NULL) return cudaErrorMemoryAllocation;
  *c = (callback){fn, arg};
  const CUresult rc = cuStreamAddCallback(stream_of(s), call_back, c, flags);
  if (rc != CUDA_SUCCESS) free(c);
  return from(rc);
}

cudaError_t do_cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *arg) {
  TRY(context());
  return from(cuLaunchHostFunc(stream_of(s), fn, arg));
}

cudaError_t do_cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode) {
  TRY(context());
  return from(cuStreamBeginCapture_v2(stream_of(s), mode));
}

cudaError_t do_cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) {
  TRY(context());
  return from(cuStreamEndCapture(stream_of(s), g));
}

cudaError_t do_cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *status) {
  TRY(context());
  return from(cuStreamIsCapturing(stream_of(s), status));
}

cudaError_t capture_info(cudaStream_t s, const capture_answer *out) {
  uint64_t number = 0;
  TRY(context());
  TRY(from(cuStreamGetCaptureInfo_v3(stream_of(s), out->status, &number, out->graph, out->nodes, out->edges, out->n)));
  if (out->id != NULL) *out->id = number;
  return cudaSuccess;
}

cudaError_t do_cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
  TRY(from(cuInit(0)));
  return from(cuThreadExchangeStreamCaptureMode(mode));
}

cudaError_t do_cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
  TRY(context());
  return from(cuEventCreate(e, flags));
}

cudaError_t do_cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t e) {
  TRY(context());
  return from(cuIpcGetEventHandle(handle, e));
}

cudaError_t do_cudaIpcOpenEventHandle(cudaEvent_t *e, cudaIpcEventHandle_t handle) {
  TRY(context());
  return from(cuIpcOpenEventHandle(e, handle));
}

cudaError_t do_cudaEventCreate(cudaEvent_t *e) {
  return do_cudaEventCreateWithFlags(e, 0);
}

cudaError_t do_cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  TRY(context());
  return from(cuEventRecord(e, stream_of(s)));
}

cudaError_t do_cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags) {
  TRY(context());
  return from(cuEventRecordWithFlags(e, stream_of(s), flags));
}

cudaError_t do_cudaEventQuery(cudaEvent_t e) {
  TRY(context());
  return from(cuEventQuery(e));
}

cudaError_t do_cudaEventSynchronize(cudaEvent_t e) {
  TRY(context());
  return from(cuEventSynchronize(e));
}

cudaError_t do_cudaEventDestroy(cudaEvent_t e) {
  TRY(context());
  return from(cuEventDestroy_v2(e));
}

cudaError_t do_cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
  TRY(context());
  return from(cuEventElapsedTime(ms, a, b));
}

cudaError_t do_cudaGraphCreate(cudaGraph_t *g, unsigned flags) {
  TRY(from(cuInit(0)));
  return from(cuGraphCreate(g, flags));
}

cudaError_t do_cudaGraphInstantiateWithFlags(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags) {
  TRY(context());
  return from(cuGraphInstantiateWithFlags(x, g, flags));
}

cudaError_t do_cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags) {
  return do_cudaGraphInstantiateWithFlags(x, g, flags);
}

cudaError_t do_cudaGraphInstantiateWithParams(cudaGraphExec_t *x, cudaGraph_t g, cudaGraphInstantiateParams *p) {
  TRY(context());
  return from(cuGraphInstantiateWithParams(x, g, p));
}

cudaError_t do_cudaGraphUpload(cudaGraphExec_t x, cudaStream_t s) {
  TRY(context());
  return from(cuGraphUpload(x, stream_of(s)));
}

cudaError_t do_cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s) {
  TRY(context());
  return from(cuGraphLaunch(x, stream_of(s)));
}

cudaError_t do_cudaGraphDestroy(cudaGraph_t g) {
  return from(cuGraphDestroy(g));
}

cudaError_t do_cudaGraphExecDestroy(cudaGraphExec_t x) {
  return from(cuGraphExecDestroy(x));
}

cudaError_t do_cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n) {
  return from(cuGraphGetNodes(g, nodes, n));
}

cudaError_t do_cudaUserObjectCreate(cudaUserObject_t *u, void *arg, cudaHostFn_t destroy, unsigned refs,
                                    unsigned flags) {
  TRY(from(cuInit(0)));
  return from(cuUserObjectCreate(u, arg, destroy, refs, flags));
}

cudaError_t do_cudaUserObjectRetain(cudaUserObject_t u, unsigned count) {
  return from(cuUserObjectRetain(u, count));
}

cudaError_t do_cudaUserObjectRelease(cudaUserObject_t u, unsigned count) {
  return from(cuUserObjectRelease(u, count));
}

cudaError_t do_cudaGraphRetainUserObject(cudaGraph_t g, cudaUserObject_t u, unsigned count, unsigned flags) {
  return from(cuGraphRetainUserObject(g, u, count, flags));
}

cudaError_t do_cudaGraphReleaseUserObject(cudaGraph_t g, cudaUserObject_t u, unsigned count) {
  return from(cuGraphReleaseUserObject(g, u, count));
}
