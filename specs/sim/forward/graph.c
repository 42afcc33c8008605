/* graph.c: stream capture and graphs.
 *
 * Modes and statuses have the same numbers on both sides. It must not know about streams beyond their handles. */
#include "forward.h"

hipError_t do_hipStreamBeginCapture(hipStream_t s, hipStreamCaptureMode mode) {
  return DO(cuStreamBeginCapture_v2, forward_stream(s), (CUstreamCaptureMode)mode);
}

hipError_t do_hipStreamEndCapture(hipStream_t s, hipGraph_t *g) {
  CUgraph graph = NULL;
  if (g == NULL) return hipErrorInvalidValue;
  const hipError_t rc = DO(cuStreamEndCapture, forward_stream(s), &graph);
  *g = (hipGraph_t)graph;
  return rc;
}

hipError_t do_hipStreamIsCapturing(hipStream_t s, hipStreamCaptureStatus *status) {
  CUstreamCaptureStatus theirs = CU_STREAM_CAPTURE_STATUS_NONE;
  if (status == NULL) return hipErrorInvalidValue;
  TRY(DO(cuStreamIsCapturing, forward_stream(s), &theirs));
  *status = (hipStreamCaptureStatus)theirs;
  return hipSuccess;
}

/* A driver for CUDA 13 and one for CUDA 11 are asked in different ways. */
static hipError_t info(CUstream s, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *g, size_t *n) {
  if (cu.cuStreamGetCaptureInfo_v3 != NULL) return DO(cuStreamGetCaptureInfo_v3, s, status, id, g, NULL, NULL, n);
  return DO(cuStreamGetCaptureInfo_v2, s, status, id, g, NULL, n);
}

hipError_t do_hipStreamGetCaptureInfo_v2(hipStream_t s, hipStreamCaptureStatus *status, unsigned long long *id,
                                         hipGraph_t *g, const hipGraphNode_t **deps, size_t *n) {
  CUstreamCaptureStatus theirs = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = NULL;
  uint64_t number = 0;
  size_t edges = 0;
  if (status == NULL) return hipErrorInvalidValue;
  if (deps != NULL) return hipErrorNotSupported;
  TRY(info(forward_stream(s), &theirs, &number, &graph, &edges));
  *status = (hipStreamCaptureStatus)theirs;
  if (theirs != CU_STREAM_CAPTURE_STATUS_ACTIVE) return hipSuccess;
  if (id != NULL) *id = number;
  if (g != NULL) *g = (hipGraph_t)graph;
  if (n != NULL) *n = edges;
  return hipSuccess;
}

hipError_t do_hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode) {
  CUstreamCaptureMode theirs;
  if (mode == NULL) return hipErrorInvalidValue;
  theirs = (CUstreamCaptureMode)*mode;
  TRY(DO(cuThreadExchangeStreamCaptureMode, &theirs));
  *mode = (hipStreamCaptureMode)theirs;
  return hipSuccess;
}

hipError_t do_hipGraphCreate(hipGraph_t *g, unsigned flags) {
  CUgraph graph = NULL;
  if (g == NULL) return hipErrorInvalidValue;
  TRY(DO(cuGraphCreate, &graph, flags));
  *g = (hipGraph_t)graph;
  return hipSuccess;
}

hipError_t do_hipGraphDestroy(hipGraph_t g) {
  return DO(cuGraphDestroy, (CUgraph)g);
}

hipError_t do_hipGraphGetNodes(hipGraph_t g, hipGraphNode_t *nodes, size_t *n) {
  return DO(cuGraphGetNodes, (CUgraph)g, (CUgraphNode *)nodes, n);
}

hipError_t do_hipGraphInstantiateWithFlags(hipGraphExec_t *x, hipGraph_t g, unsigned long long flags) {
  CUgraphExec exec = NULL;
  if (x == NULL) return hipErrorInvalidValue;
  TRY(DO(cuGraphInstantiateWithFlags, &exec, (CUgraph)g, flags));
  *x = (hipGraphExec_t)exec;
  return hipSuccess;
}

hipError_t do_hipGraphUpload(hipGraphExec_t x, hipStream_t s) {
  return DO(cuGraphUpload, (CUgraphExec)x, forward_stream(s));
}

hipError_t do_hipGraphLaunch(hipGraphExec_t x, hipStream_t s) {
  return DO(cuGraphLaunch, (CUgraphExec)x, forward_stream(s));
}

hipError_t do_hipGraphExecDestroy(hipGraphExec_t x) {
  return DO(cuGraphExecDestroy, (CUgraphExec)x);
}
