/* graph.c: stream capture and graphs, by their names in the driver.
 *
 * It must not know the rules of capture. */
#include <string.h>

#include "front.h"

_Static_assert(sizeof(CUstreamCaptureStatus) == sizeof(int) && sizeof(CUstreamCaptureMode) == sizeof(int),
               "calls/graph.c fills and reads them");

CUresult do_cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode) {
  return from(sim_call_capture_begin(s, mode));
}

CUresult do_cuStreamEndCapture(CUstream s, CUgraph *out) {
  return from(sim_call_capture_end(s, out));
}

CUresult do_cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *status) {
  return from(sim_call_capture_status(s, status));
}

CUresult do_cuStreamGetCaptureInfo_v2(CUstream s, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *g,
                                      const CUgraphNode **deps, size_t *n) {
  return from(sim_call_capture_info(s, status, id, g, deps, n));
}

/* Every edge is a plain one, whose data is zero: what follows a node waits for all of it. */
CUresult do_cuStreamGetCaptureInfo_v3(CUstream s, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *g,
                                      const CUgraphNode **deps, const CUgraphEdgeData **edges, size_t *n) {
  enum { MOST_EDGES = 4096 };
  static const CUgraphEdgeData plain[MOST_EDGES];
  size_t count = 0;
  TRY(do_cuStreamGetCaptureInfo_v2(s, status, id, g, deps, &count));
  if (n != NULL) *n = count;
  if (edges != NULL && count > MOST_EDGES) return CUDA_ERROR_NOT_SUPPORTED;
  if (edges != NULL) *edges = plain;
  return CUDA_SUCCESS;
}

CUresult do_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  return from(sim_call_capture_exchange(mode));
}

CUresult do_cuGraphCreate(CUgraph *g, unsigned flags) {
  return from(sim_call_graph_new(flags, g));
}

CUresult do_cuGraphInstantiateWithFlags(CUgraphExec *x, CUgraph g, unsigned long long flags) {
  return from(sim_call_graph_instantiate(g, flags, x));
}

CUresult do_cuGraphInstantiateWithParams(CUgraphExec *x, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS *p) {
  if (p == NULL) return CUDA_ERROR_INVALID_VALUE;
  p->hErrNode_out = NULL;
  p->result_out = 0;
  return do_cuGraphInstantiateWithFlags(x, g, p->flags);
}

CUresult do_cuGraphUpload(CUgraphExec x, CUstream s) {
  return from(sim_call_graph_upload(x, s));
}

CUresult do_cuGraphLaunch(CUgraphExec x, CUstream s) {
  return from(sim_call_graph_launch(x, s));
}

CUresult do_cuGraphDestroy(CUgraph g) {
  return from(sim_call_graph_end(g, SIM_GRAPH));
}

CUresult do_cuGraphExecDestroy(CUgraphExec x) {
  return from(sim_call_graph_end(x, SIM_EXEC));
}

CUresult do_cuGraphGetNodes(CUgraph g, CUgraphNode *nodes, size_t *n) {
  return from(sim_call_graph_nodes(g, nodes, n));
}

/* Graphs allocate nothing here, so that they never have memory, and never had. */
enum { GRAPH_MEM_USED_HIGH = 1, GRAPH_MEM_RESERVED_HIGH = 3 };

CUresult do_cuDeviceGetGraphMemAttribute(CUdevice d, int which, void *v) {
  const uint64_t none = 0;
  if (sim_device_at(d) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  if (v == NULL || which < 0 || which > GRAPH_MEM_RESERVED_HIGH) return CUDA_ERROR_INVALID_VALUE;
  memcpy(v, &none, sizeof none);
  return CUDA_SUCCESS;
}

/* What was most can be forgotten, and nothing else be set. */
CUresult do_cuDeviceSetGraphMemAttribute(CUdevice d, int which, void *v) {
  uint64_t value = 1;
  if (sim_device_at(d) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  if (v != NULL) memcpy(&value, v, sizeof value);
  const bool highest = which == GRAPH_MEM_USED_HIGH || which == GRAPH_MEM_RESERVED_HIGH;
  return highest && value == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuDeviceGraphMemTrim(CUdevice d) {
  return sim_device_at(d) == NULL ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}
