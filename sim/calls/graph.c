/* graph.c: stream capture and graphs.
 *
 * It must not know the rules of capture, but for one: who may ask. */
#include "calls.h"

sim_status sim_call_capture_begin(const void *stream, unsigned mode) {
  sim_stream *s;
  if (mode > SIM_MODE_RELAXED) return SIM_INVALID;
  SIM_TRY(sim_stream_given(stream, &s));
  return sim_capture_begin(s, (int)mode);
}

sim_status sim_call_capture_end(const void *stream, void *out) {
  sim_stream *s;
  sim_graph *g;
  if (out == NULL) return SIM_INVALID;
  SIM_TRY(sim_stream_given(stream, &s));
  sim_put(out, 0);
  SIM_TRY(sim_capture_finish(s, &g));
  sim_put(out, g->o.handle);
  return SIM_OK;
}

/* Asking about the legacy stream fails while a blocking stream is captured, and harms nothing. */
static bool capturing_beside(const sim_stream *s) {
  if (s->kind != SIM_LEGACY) return false;
  for (const sim_stream *b = s->ctx->streams; b != NULL; b = b->next)
    if (b->blocking && b->capture != NULL) return true;
  return false;
}

sim_status sim_call_capture_status(const void *stream, void *status) {
  return sim_call_capture_info(stream, status, NULL, NULL, NULL, NULL);
}

sim_status sim_call_capture_info(const void *stream, void *status, void *id, void *graph, void *deps, size_t *n) {
  enum { NONE, ACTIVE, BROKEN };
  sim_stream *s;
  if (status == NULL) return SIM_INVALID;
  SIM_TRY(sim_stream_given(stream, &s));
  if (capturing_beside(s)) return SIM_CAP_IMPLICIT;
  const sim_capture *c = s->capture;
  const int is = c == NULL ? NONE : c->invalid ? BROKEN : ACTIVE;
  memcpy(status, &is, sizeof is);
  if (is != ACTIVE) return SIM_OK;
  if (id != NULL) memcpy(id, &c->id, sizeof c->id);
  if (graph != NULL) sim_put(graph, c->graph->o.handle);
  if (deps != NULL) sim_put(deps, (uintptr_t)s->front_handles);
  if (n != NULL) *n = s->nfront;
  return SIM_OK;
}

sim_status sim_call_capture_exchange(void *mode) {
  sim_thread *t = sim_self();
  int next;
  if (mode == NULL) return SIM_INVALID;
  memcpy(&next, mode, sizeof next);
  if (next < SIM_MODE_GLOBAL || next > SIM_MODE_RELAXED) return SIM_INVALID;
  memcpy(mode, &t->capture_mode, sizeof next);
  t->capture_mode = next;
  return SIM_OK;
}

sim_status sim_call_graph_new(unsigned flags, void *out) {
  if (out == NULL || flags != 0) return SIM_INVALID;
  sim_put(out, sim_graph_new(SIM_GRAPH)->o.handle);
  return SIM_OK;
}

sim_status sim_call_graph_instantiate(const void *graph, unsigned long long flags, void *out) {
  enum { AUTO_FREE = 1, UPLOAD = 2, NODE_PRIORITY = 8 };
  sim_graph *g;
  if (out == NULL) return SIM_INVALID;
  if ((flags & ~(unsigned long long)(AUTO_FREE | UPLOAD | NODE_PRIORITY)) != 0) return SIM_NOT_SUPPORTED;
  SIM_TRY(sim_given(graph, SIM_GRAPH, &g));
  sim_put(out, sim_graph_instantiate(g)->o.handle);
  return SIM_OK;
}

sim_status sim_call_graph_upload(const void *executable, const void *stream) {
  sim_graph *g;
  sim_stream *s;
  SIM_TRY(sim_stream_given(stream, &s));
  SIM_TRY(sim_given(executable, SIM_EXEC, &g));
  return sim_capture_implicit(s);
}

sim_status sim_call_graph_launch(const void *executable, const void *stream) {
  sim_graph *g;
  sim_stream *s;
  SIM_TRY(sim_stream_given(stream, &s));
  SIM_TRY(sim_given(executable, SIM_EXEC, &g));
  return sim_graph_launch(g, s);
}

sim_status sim_call_graph_end(const void *graph, sim_type type) {
  sim_graph *g;
  SIM_TRY(sim_given(graph, type, &g));
  if (g->o.hidden) return SIM_INVALID;
  sim_graph_end(g);
  return SIM_OK;
}

sim_status sim_call_graph_nodes(const void *graph, void *nodes, size_t *n) {
  sim_graph *g;
  if (n == NULL) return SIM_INVALID;
  SIM_TRY(sim_given(graph, SIM_GRAPH, &g));
  const size_t room = nodes == NULL ? 0 : *n;
  for (size_t i = 0; i < room; i++)
    sim_put((char *)nodes + i * sizeof(uintptr_t), i < g->nnodes ? g->nodes[i]->o.handle : 0);
  if (nodes == NULL || *n > g->nnodes) *n = g->nnodes;
  return SIM_OK;
}
