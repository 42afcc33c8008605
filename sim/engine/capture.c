/* capture.c: recording what streams are told instead of doing it, and all that is forbidden meanwhile.
 *
 * Invariant: a call that a capture forbids breaks that capture; from then on its streams answer only that it
 * is broken, until the capture is ended. It must not know how a graph runs. */
#include <stdlib.h>
#include <string.h>

#include "engine.h"

static sim_capture *captures;
/* Kept, because an event may name the capture that it was recorded in. */
static sim_capture *ended;
static uint64_t ids;
static size_t nactive;

static const char *reason(sim_status why) {
  if (why == SIM_CAP_MERGE) return "two captures are made to depend on each other";
  if (why == SIM_CAP_UNMATCHED) return "the capture is ended in a stream that it was not begun in,";
  if (why == SIM_CAP_UNJOINED) return "the capture is ended with a stream not joined again,";
  if (why == SIM_CAP_ISOLATION) return "a captured stream is made to wait for work outside,";
  if (why == SIM_CAP_IMPLICIT) return "a call that involves the legacy stream is made";
  if (why == SIM_CAP_EVENT) return "the host asks about a captured event";
  if (why == SIM_CAP_WIDE) return "the host waits for all of a device";
  return "a forbidden call is made";
}

static sim_status break_capture(sim_capture *c, sim_status why) {
  if (c->invalid) return SIM_CAP_INVALIDATED;
  char here[200];
  const sim_place now = sim_here();
  sim_found(SIM_CAPTURE, "%s while %s is being captured: %s", reason(why), c->origin->name,
            sim_place_text(&now, here, sizeof here));
  c->invalid = true;
  return why;
}

sim_status sim_capture_forbid(sim_stream *s, sim_status why) {
  return break_capture(s->capture, why);
}

size_t sim_captures(void) {
  return nactive;
}

static void join_capture(sim_stream *s, sim_capture *c) {
  s->capture = c;
  s->captured = c->streams;
  c->streams = s;
}

sim_status sim_capture_begin(sim_stream *s, int mode) {
  if (s->kind == SIM_LEGACY) return SIM_CAP_UNSUPPORTED;
  if (s->capture != NULL) return SIM_ILLEGAL_STATE;
  sim_capture *c = calloc(1, sizeof *c);
  if (c == NULL) return SIM_NOMEM;
  *c = (sim_capture){.id = ++ids, .active = true, .mode = mode, .thread = sim_self()->id, .origin = s};
  c->graph = sim_graph_new(SIM_GRAPH);
  c->graph->o.hidden = true;
  c->next = captures;
  captures = c;
  join_capture(s, c);
  nactive++;
  return SIM_OK;
}

static uintptr_t *handles_of(sim_node *const *nodes, size_t n) {
  uintptr_t *handles = n == 0 ? NULL : calloc(n, sizeof *handles);
  if (n > 0 && handles == NULL) abort();
  for (size_t i = 0; i < n; i++) handles[i] = nodes[i]->o.handle;
  return handles;
}

static void set_front(sim_stream *s, sim_node *const *front, size_t n) {
  sim_node **copy = NULL;
  if (n > 0) {
    copy = malloc(n * sizeof(sim_node *));
    if (copy == NULL) abort();
    memcpy(copy, front, n * sizeof(sim_node *));
  }
  free(s->front);
  free(s->front_handles);
  s->front = copy;
  s->nfront = n;
  s->front_handles = handles_of(copy, n);
}

static void mark_ancestors(const sim_node *n, bool *seen) {
  if (seen[n->index]) return;
  seen[n->index] = true;
  for (size_t i = 0; i < n->ndeps; i++) mark_ancestors(n->deps[i], seen);
}

static bool all_seen(const sim_stream *s, const bool *seen) {
  for (size_t i = 0; i < s->nfront; i++)
    if (!seen[s->front[i]->index]) return false;
  return true;
}

static bool joined(const sim_capture *c) {
  bool *seen = calloc(c->graph->nnodes + 1, sizeof *seen), ok = true;
  if (seen == NULL) abort();
  for (size_t i = 0; i < c->origin->nfront; i++) mark_ancestors(c->origin->front[i], seen);
  for (const sim_stream *s = c->streams; s != NULL; s = s->captured)
    if (s->o.live && !all_seen(s, seen)) ok = false;
  free(seen);
  return ok;
}

/* Lets the streams of the capture go; its graph is the caller's from now on. */
static void detach(sim_capture *c) {
  for (sim_stream *s = c->streams; s != NULL; s = s->captured) {
    set_front(s, NULL, 0);
    s->capture = NULL;
  }
  c->streams = NULL;
  sim_capture **link = &captures;
  while (*link != c) link = &(*link)->next;
  *link = c->next;
  c->next = ended;
  ended = c;
  c->active = false;
  nactive--;
}

void sim_capture_abandon(sim_stream *s) {
  sim_capture *c = s->capture;
  if (c == NULL) return;
  break_capture(c, SIM_CAP_UNSUPPORTED);
  if (c->origin != s) return;
  detach(c);
  sim_graph_end(c->graph);
}

sim_status sim_capture_finish(sim_stream *s, sim_graph **out) {
  sim_capture *c = s->capture;
  *out = NULL;
  if (c == NULL) return SIM_ILLEGAL_STATE;
  if (c->origin != s) return break_capture(c, SIM_CAP_UNMATCHED);
  if (c->mode != SIM_MODE_RELAXED && c->thread != sim_self()->id) return SIM_CAP_THREAD;
  sim_status rc = c->invalid ? SIM_CAP_INVALIDATED : SIM_OK;
  if (rc == SIM_OK && !joined(c)) rc = break_capture(c, SIM_CAP_UNJOINED);
  detach(c);
  if (rc != SIM_OK) {
    sim_graph_end(c->graph);
    return rc;
  }
  c->graph->o.hidden = false;
  *out = c->graph;
  return SIM_OK;
}

/* What cuThreadExchangeStreamCaptureMode documents. Which calls may be unsafe is listed nowhere: here it is those that
 * ask how far something is, and those that give, take or map memory or code outside of any stream. */
static bool bars(const sim_capture *c, const sim_thread *t, unsigned what) {
  if (c->thread == t->id) return t->capture_mode != SIM_MODE_RELAXED && c->mode != SIM_MODE_RELAXED;
  if (c->mode != SIM_MODE_GLOBAL) return false;
  if (t->capture_mode == SIM_MODE_THREAD) return (what & sim_driver.unsafe_in_thread_mode) != 0;
  if (t->capture_mode == SIM_MODE_RELAXED) return (what & sim_driver.unsafe_in_relaxed_mode) != 0;
  return true;
}

sim_status sim_capture_asking(unsigned what) {
  sim_status rc = SIM_OK;
  for (sim_capture *c = captures; c != NULL; c = c->next) {
    if (!bars(c, sim_self(), what)) continue;
    break_capture(c, SIM_CAP_UNSUPPORTED);
    rc = SIM_CAP_UNSUPPORTED;
  }
  return rc;
}

sim_status sim_capture_unsafe(void) {
  return sim_capture_asking(0);
}

static bool is_in(const sim_capture *c, const sim_context *ctx) {
  for (const sim_stream *s = c->streams; s != NULL; s = s->captured)
    if (s->ctx == ctx) return true;
  return false;
}

/* ctx NULL: of all contexts. */
static sim_status break_all(const sim_context *ctx, sim_status why) {
  sim_status rc = SIM_OK;
  for (sim_capture *c = captures; c != NULL; c = c->next) {
    if (ctx != NULL && !is_in(c, ctx)) continue;
    break_capture(c, why);
    rc = why;
  }
  return rc;
}

/* The CUDA Programming Guide ("Prohibited and Unhandled Operations") calls it invalid to query or synchronize a handle
 * that encompasses a captured stream, such as a context's, and names no mode that would allow it. */
sim_status sim_capture_wide(const sim_context *c) {
  const sim_status rc = break_all(sim_driver.waits_break_all ? NULL : c, SIM_CAP_WIDE);
  return rc != SIM_OK ? SIM_CAP_UNSUPPORTED : sim_capture_unsafe();
}

sim_status sim_capture_sync(sim_stream *s) {
  const sim_status rc = sim_driver.waits_break_all ? break_all(NULL, SIM_CAP_IMPLICIT) : sim_capture_implicit(s);
  return rc != SIM_OK ? rc : sim_capture_unsafe();
}

sim_status sim_capture_implicit(sim_stream *s) {
  sim_status rc = SIM_OK;
  if (nactive == 0 || s->kind != SIM_LEGACY) return SIM_OK;
  for (sim_stream *b = s->ctx->streams; b != NULL; b = b->next) {
    if (!b->blocking || b->capture == NULL) continue;
    break_capture(b->capture, SIM_CAP_IMPLICIT);
    rc = SIM_CAP_IMPLICIT;
  }
  return rc;
}

sim_status sim_capture_node(sim_stream *s, const sim_work *w) {
  sim_capture *c = s->capture;
  if (c->invalid) return SIM_CAP_INVALIDATED;
  if (w->kind == SIM_BIRTH) return SIM_NOT_SUPPORTED;
  if (w->kind == SIM_DEATH) return SIM_INVALID; /* only what the graph itself allocates may be freed in it */
  sim_node *n = sim_graph_add(c->graph, w, s->front, s->nfront);
  set_front(s, &n, 1);
  return SIM_OK;
}

sim_status sim_capture_record(sim_event *e, sim_stream *s) {
  if (s->capture->invalid) return SIM_CAP_INVALIDATED;
  e->capture = s->capture;
  e->nfront = s->nfront;
  e->front = malloc((s->nfront + 1) * sizeof(sim_node *));
  if (e->front == NULL) abort();
  if (s->nfront > 0) memcpy(e->front, s->front, s->nfront * sizeof(sim_node *));
  return SIM_OK;
}

static void join_front(sim_stream *s, const sim_event *e) {
  size_t n = 0;
  sim_node **both = malloc((s->nfront + e->nfront + 1) * sizeof(sim_node *));
  if (both == NULL) abort();
  for (size_t i = 0; i < s->nfront; i++) both[n++] = s->front[i];
  for (size_t i = 0; i < e->nfront; i++) {
    size_t j = 0;
    while (j < n && both[j] != e->front[i]) j++;
    if (j == n) both[n++] = e->front[i];
  }
  set_front(s, both, n);
  free(both);
}

sim_status sim_capture_wait(sim_stream *s, sim_event *e) {
  if (s->capture != NULL && s->capture->invalid) return SIM_CAP_INVALIDATED;
  if (e->capture == NULL) return e->op == NULL ? SIM_OK : break_capture(s->capture, SIM_CAP_ISOLATION);
  if (!e->capture->active) return s->capture == NULL ? SIM_CAP_EVENT : break_capture(s->capture, SIM_CAP_ISOLATION);
  if (s->kind == SIM_LEGACY) return break_capture(e->capture, SIM_CAP_IMPLICIT);
  if (s->capture != NULL && s->capture != e->capture) {
    break_capture(e->capture, SIM_CAP_MERGE);
    return break_capture(s->capture, SIM_CAP_MERGE);
  }
  if (s->capture == NULL) join_capture(s, e->capture);
  join_front(s, e);
  return SIM_OK;
}
