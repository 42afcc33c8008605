/* graph.c: stream capture and graphs, as the program sees them.
 *
 * It must not know the rules of capture. */
#include "front.h"

enum { AUTO_FREE = 1, UPLOAD = 2, NODE_PRIORITY = 8 };

hipError_t do_hipStreamBeginCapture(hipStream_t handle, hipStreamCaptureMode mode) {
  sim_stream *s;
  if (mode > hipStreamCaptureModeRelaxed) return hipErrorInvalidValue;
  TRY(stream_of(handle, &s));
  return from(sim_capture_begin(s, (int)mode));
}

hipError_t do_hipStreamEndCapture(hipStream_t handle, hipGraph_t *out) {
  sim_stream *s;
  sim_graph *g;
  if (out == NULL) return hipErrorInvalidValue;
  TRY(stream_of(handle, &s));
  *out = NULL;
  TRY(from(sim_capture_finish(s, &g)));
  *out = (hipGraph_t)g->o.handle;
  return hipSuccess;
}

static hipError_t ask(hipStream_t handle, sim_capture_info *out) {
  sim_stream *s;
  TRY(stream_of(handle, &s));
  return from(sim_capture_ask(s, out));
}

hipError_t do_hipStreamIsCapturing(hipStream_t handle, hipStreamCaptureStatus *status) {
  sim_capture_info info;
  if (status == NULL) return hipErrorInvalidValue;
  TRY(ask(handle, &info));
  *status = (hipStreamCaptureStatus)info.status;
  return hipSuccess;
}

hipError_t do_hipStreamGetCaptureInfo_v2(hipStream_t handle, hipStreamCaptureStatus *status, unsigned long long *id,
                                         hipGraph_t *g, const hipGraphNode_t **deps, size_t *n) {
  sim_capture_info info;
  TRY(do_hipStreamIsCapturing(handle, status));
  TRY(ask(handle, &info));
  if (*status != hipStreamCaptureStatusActive) return hipSuccess;
  if (deps != NULL) return hipErrorNotSupported;
  if (id != NULL) *id = info.id;
  if (g != NULL) *g = (hipGraph_t)info.graph->o.handle;
  if (n != NULL) *n = info.nfront;
  return hipSuccess;
}

hipError_t do_hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode) {
  if (mode == NULL) return hipErrorInvalidValue;
  int other = (int)*mode;
  TRY(from(sim_capture_exchange(&other)));
  *mode = (hipStreamCaptureMode)other;
  return hipSuccess;
}

hipError_t do_hipGraphCreate(hipGraph_t *g, unsigned flags) {
  if (g == NULL || flags != 0) return hipErrorInvalidValue;
  *g = (hipGraph_t)sim_graph_new(SIM_GRAPH)->o.handle;
  return hipSuccess;
}

hipError_t do_hipGraphInstantiateWithFlags(hipGraphExec_t *x, hipGraph_t handle, unsigned long long flags) {
  sim_graph *g;
  if (x == NULL) return hipErrorInvalidValue;
  if ((flags & ~(unsigned long long)(AUTO_FREE | UPLOAD | NODE_PRIORITY)) != 0) return hipErrorNotSupported;
  TRY(object_of(handle, SIM_GRAPH, &g));
  *x = (hipGraphExec_t)sim_graph_instantiate(g)->o.handle;
  return hipSuccess;
}

hipError_t do_hipGraphUpload(hipGraphExec_t x, hipStream_t handle) {
  sim_graph *g;
  sim_stream *s;
  TRY(stream_of(handle, &s));
  TRY(object_of(x, SIM_EXEC, &g));
  return from(sim_capture_implicit(s));
}

hipError_t do_hipGraphLaunch(hipGraphExec_t x, hipStream_t handle) {
  sim_graph *g;
  sim_stream *s;
  TRY(stream_of(handle, &s));
  TRY(object_of(x, SIM_EXEC, &g));
  return from(sim_graph_launch(g, s));
}

static hipError_t end(const void *handle, sim_type type) {
  sim_graph *g;
  TRY(object_of(handle, type, &g));
  return from(sim_graph_drop(g));
}

hipError_t do_hipGraphDestroy(hipGraph_t g) {
  return end(g, SIM_GRAPH);
}

hipError_t do_hipGraphExecDestroy(hipGraphExec_t x) {
  return end(x, SIM_EXEC);
}

hipError_t do_hipGraphGetNodes(hipGraph_t handle, hipGraphNode_t *nodes, size_t *n) {
  sim_graph *g;
  if (n == NULL) return hipErrorInvalidValue;
  TRY(object_of(handle, SIM_GRAPH, &g));
  sim_graph_list(g, nodes, n);
  return hipSuccess;
}
