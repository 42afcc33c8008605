/* graph.c: stream capture and graphs, as the program sees them.
 *
 * It must not know the rules of capture. */
#include "front.h"

enum { AUTO_FREE = 1, UPLOAD = 2, NODE_PRIORITY = 8 };

CUresult do_cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  sim_stream *s;
  if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  TRY(stream_of(handle, &s));
  return from(sim_capture_begin(s, (int)mode));
}

CUresult do_cuStreamEndCapture(CUstream handle, CUgraph *out) {
  sim_stream *s;
  sim_graph *g;
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(stream_of(handle, &s));
  *out = NULL;
  TRY(from(sim_capture_finish(s, &g)));
  *out = (CUgraph)g->o.handle;
  return CUDA_SUCCESS;
}

static CUresult ask(CUstream handle, sim_capture_info *out) {
  sim_stream *s;
  TRY(stream_of(handle, &s));
  return from(sim_capture_ask(s, out));
}

CUresult do_cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
  sim_capture_info info;
  if (status == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(ask(handle, &info));
  *status = (CUstreamCaptureStatus)info.status;
  return CUDA_SUCCESS;
}

CUresult do_cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *g,
                                      const CUgraphNode **deps, size_t *n) {
  sim_capture_info info;
  TRY(do_cuStreamIsCapturing(handle, status));
  TRY(ask(handle, &info));
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (deps != NULL) return CUDA_ERROR_NOT_SUPPORTED;
  if (id != NULL) *id = info.id;
  if (g != NULL) *g = (CUgraph)info.graph->o.handle;
  if (n != NULL) *n = info.nfront;
  return CUDA_SUCCESS;
}

CUresult do_cuStreamGetCaptureInfo_v3(CUstream s, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *g,
                                      const CUgraphNode **deps, const CUgraphEdgeData **edges, size_t *n) {
  if (edges != NULL) return CUDA_ERROR_NOT_SUPPORTED;
  return do_cuStreamGetCaptureInfo_v2(s, status, id, g, deps, n);
}

CUresult do_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  if (mode == NULL) return CUDA_ERROR_INVALID_VALUE;
  int other = (int)*mode;
  TRY(from(sim_capture_exchange(&other)));
  *mode = (CUstreamCaptureMode)other;
  return CUDA_SUCCESS;
}

CUresult do_cuGraphCreate(CUgraph *g, unsigned flags) {
  if (g == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *g = (CUgraph)sim_graph_new(SIM_GRAPH)->o.handle;
  return CUDA_SUCCESS;
}

CUresult do_cuGraphInstantiateWithFlags(CUgraphExec *x, CUgraph handle, unsigned long long flags) {
  sim_graph *g;
  if (x == NULL) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & ~(unsigned long long)(AUTO_FREE | UPLOAD | NODE_PRIORITY)) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  TRY(object_of(handle, SIM_GRAPH, &g));
  *x = (CUgraphExec)sim_graph_instantiate(g)->o.handle;
  return CUDA_SUCCESS;
}

CUresult do_cuGraphInstantiateWithParams(CUgraphExec *x, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS *p) {
  if (p == NULL) return CUDA_ERROR_INVALID_VALUE;
  p->hErrNode_out = NULL;
  p->result_out = 0;
  return do_cuGraphInstantiateWithFlags(x, g, p->flags);
}

CUresult do_cuGraphUpload(CUgraphExec x, CUstream handle) {
  sim_graph *g;
  sim_stream *s;
  TRY(stream_of(handle, &s));
  TRY(object_of(x, SIM_EXEC, &g));
  return from(sim_capture_implicit(s));
}

CUresult do_cuGraphLaunch(CUgraphExec x, CUstream handle) {
  sim_graph *g;
  sim_stream *s;
  TRY(stream_of(handle, &s));
  TRY(object_of(x, SIM_EXEC, &g));
  return from(sim_graph_launch(g, s));
}

static CUresult end(const void *handle, sim_type type) {
  sim_graph *g;
  TRY(object_of(handle, type, &g));
  return from(sim_graph_drop(g));
}

CUresult do_cuGraphDestroy(CUgraph g) {
  return end(g, SIM_GRAPH);
}

CUresult do_cuGraphExecDestroy(CUgraphExec x) {
  return end(x, SIM_EXEC);
}

CUresult do_cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *n) {
  sim_graph *g;
  if (n == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(object_of(handle, SIM_GRAPH, &g));
  sim_graph_list(g, nodes, n);
  return CUDA_SUCCESS;
}
