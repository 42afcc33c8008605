/* graph.c: stream capture and graphs, by their names in the runtime.
 *
 * It must not know the rules of capture. */
#include "front.h"

_Static_assert(sizeof(hipStreamCaptureStatus) == sizeof(int) && sizeof(hipStreamCaptureMode) == sizeof(int),
               "calls/graph.c fills and reads them");

hipError_t do_hipStreamBeginCapture(hipStream_t s, hipStreamCaptureMode mode) {
  return from(sim_call_capture_begin(s, mode));
}

hipError_t do_hipStreamEndCapture(hipStream_t s, hipGraph_t *out) {
  return from(sim_call_capture_end(s, out));
}

hipError_t do_hipStreamIsCapturing(hipStream_t s, hipStreamCaptureStatus *status) {
  return from(sim_call_capture_status(s, status));
}

hipError_t do_hipStreamGetCaptureInfo_v2(hipStream_t s, hipStreamCaptureStatus *status, unsigned long long *id,
                                         hipGraph_t *g, const hipGraphNode_t **deps, size_t *n) {
  return from(sim_call_capture_info(s, status, id, g, deps, n));
}

hipError_t do_hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode) {
  return from(sim_call_capture_exchange(mode));
}

hipError_t do_hipGraphCreate(hipGraph_t *g, unsigned flags) {
  return from(sim_call_graph_new(flags, g));
}

hipError_t do_hipGraphInstantiateWithFlags(hipGraphExec_t *x, hipGraph_t g, unsigned long long flags) {
  return from(sim_call_graph_instantiate(g, flags, x));
}

hipError_t do_hipGraphUpload(hipGraphExec_t x, hipStream_t s) {
  return from(sim_call_graph_upload(x, s));
}

hipError_t do_hipGraphLaunch(hipGraphExec_t x, hipStream_t s) {
  return from(sim_call_graph_launch(x, s));
}

hipError_t do_hipGraphDestroy(hipGraph_t g) {
  return from(sim_call_graph_end(g, SIM_GRAPH));
}

hipError_t do_hipGraphExecDestroy(hipGraphExec_t x) {
  return from(sim_call_graph_end(x, SIM_EXEC));
}

hipError_t do_hipGraphGetNodes(hipGraph_t g, hipGraphNode_t *nodes, size_t *n) {
  return from(sim_call_graph_nodes(g, nodes, n));
}
