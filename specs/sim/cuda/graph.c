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

/* Asking about the legacy stream fails while a blocking stream is captured, and harms nothing. */
static bool capturing_beside(const sim_stream *s) {
  if (s->kind != SIM_LEGACY) return false;
  for (const sim_stream *b = s->ctx->streams; b != NULL; b = b->next)
    if (b->blocking && b->capture != NULL) return true;
  return false;
}

CUresult do_cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
  sim_stream *s;
  if (status == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(stream_of(handle, &s));
  if (capturing_beside(s)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (s->capture != NULL)
    *status = s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

CUresult do_cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *g,
                                      const CUgraphNode **deps, size_t *n) {
  sim_stream *s;
  TRY(do_cuStreamIsCapturing(handle, status));
  TRY(stream_of(handle, &s));
  if (s->capture == NULL || s->capture->invalid) return CUDA_SUCCESS;
  if (deps != NULL) return CUDA_ERROR_NOT_SUPPORTED;
  if (id != NULL) *id = s->capture->id;
  if (g != NULL) *g = (CUgraph)s->capture->graph->o.handle;
  if (n != NULL) *n = s->nfront;
  return CUDA_SUCCESS;
}

CUresult do_cuStreamGetCaptureInfo_v3(CUstream s, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *g,
                                      const CUgraphNode **deps, const CUgraphEdgeData **edges, size_t *n) {
  if (edges != NULL) return CUDA_ERROR_NOT_SUPPORTED;
  return do_cuStreamGetCaptureInfo_v2(s, status, id, g, deps, n);
}

CUresult do_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  if (mode == NULL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  const int before = sim_self()->capture_mode;
  sim_self()->capture_mode = (int)*mode;
  *mode = (CUstreamCaptureMode)before;
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
  return object_of(x, SIM_EXEC, &g);
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
  if (g->o.hidden) return CUDA_ERROR_INVALID_VALUE;
  sim_graph_end(g);
  return CUDA_SUCCESS;
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
  const size_t room = nodes == NULL ? 0 : *n;
  for (size_t i = 0; i < room; i++) nodes[i] = i < g->nnodes ? (CUgraphNode)g->nodes[i]->o.handle : NULL;
  if (nodes == NULL || *n > g->nnodes) *n = g->nnodes;
  return CUDA_SUCCESS;
}
