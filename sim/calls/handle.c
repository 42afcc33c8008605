/* calls.c: what calls of both drivers have in common beyond one step of the engine.
 *
 * It must not know any driver's names or numbers; those that are the same in both stand in calls.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

void *sim_given(const void *handle, sim_type type) {
  void *object = sim_object_find(handle, type);
  if (object == NULL && handle != NULL && !sim_object_was(handle))
    sim_found(SIM_MISUSE, "%s is given %p as a %s", sim_here().call, handle, sim_type_name(type));
  return object;
}

void sim_device_name(const sim_device *d, char *text, size_t size) {
  snprintf(text, size, "Simulated GPU %d", d->id);
}

void sim_device_bus(const sim_device *d, char *text, size_t size) {
  snprintf(text, size, "0000:%02x:00.0", d->id + 1);
}

sim_status sim_peer_access(sim_context *c, int peer, bool on) {
  if (peer == c->device->id) return SIM_BAD_DEVICE;
  const sim_status rc = sim_capture_unsafe();
  if (rc != SIM_OK) return rc;
  if (c->peers[peer] == on) return on ? SIM_PEER_ON : SIM_PEER_OFF;
  c->peers[peer] = on;
  return SIM_OK;
}

sim_status sim_stream_given(sim_context *c, const void *handle, bool per_thread_default, sim_stream **out) {
  enum { DEFAULT = 0, LEGACY = 1, PER_THREAD = 2 };
  const uintptr_t number = (uintptr_t)handle;
  if (number == PER_THREAD || (number == DEFAULT && per_thread_default))
    *out = sim_stream_per_thread(c);
  else if (number == DEFAULT || number == LEGACY)
    *out = c->legacy;
  else
    *out = sim_given(handle, SIM_STREAM);
  return *out == NULL ? SIM_BAD_HANDLE : SIM_OK;
}

sim_status sim_call_host(sim_stream *s, void (*fn)(void *), void *arg) {
  const sim_work w = {.kind = SIM_HOST, .fn = fn, .arg = arg};
  return fn == NULL ? SIM_INVALID : sim_submit(s, &w, NULL);
}

sim_status sim_call_with(sim_stream *s, void (*fn)(void *), const void *bytes, size_t n) {
  if (s->capture != NULL) return sim_capture_forbid(s, SIM_CAP_UNSUPPORTED);
  void *copy = malloc(n);
  if (copy == NULL) return SIM_NOMEM;
  memcpy(copy, bytes, n);
  const sim_status rc = sim_call_host(s, fn, copy);
  if (rc != SIM_OK) free(copy);
  return rc;
}

sim_alloc *sim_live(uintptr_t p) {
  sim_alloc *a = sim_alloc_find(p);
  return a == NULL || a->freed ? NULL : a;
}

sim_alloc *sim_host_memory(uintptr_t p) {
  sim_alloc *a = sim_live(p);
  return a != NULL && (a->space == SIM_PINNED || a->space == SIM_FOREIGN) ? a : NULL;
}

sim_status sim_release(uintptr_t p, bool pinned) {
  if (p == 0) return SIM_OK;
  sim_alloc *a = sim_alloc_find(p);
  const bool fits = a != NULL && a->base == p && a->space != SIM_FOREIGN && (a->space == SIM_PINNED) == pinned;
  sim_note("%#zx", (size_t)p);
  if (fits) return sim_free_host(a);
  sim_found(SIM_STALE, "%s of %#zx, which %s", sim_here().call, (size_t)p,
            a == NULL ? "is nobody's" : a->base != p ? "is inside an allocation" : "is memory of another kind");
  return SIM_INVALID;
}

sim_status sim_prefetch(sim_stream *s, uintptr_t p, size_t nbytes) {
  const sim_work mark = {.kind = SIM_MARK};
  const sim_alloc *a = sim_live(p);
  const sim_status rc = sim_capture_implicit(s);
  if (rc != SIM_OK) return rc;
  if (sim_conf.managed_exclusive) return SIM_BAD_DEVICE;
  if (a == NULL || a->space != SIM_MANAGED || nbytes > a->nbytes - (p - a->base)) return SIM_INVALID;
  return sim_submit(s, &mark, NULL);
}

bool sim_is_device(uintptr_t p) {
  return sim_ours(p) || sim_alloc_find(p) != NULL;
}

bool sim_is_host(uintptr_t p) {
  const sim_alloc *a = sim_alloc_find(p);
  return a == NULL ? !sim_ours(p) : a->space != SIM_DEVICE;
}

sim_status sim_on_side(uintptr_t p, bool host) {
  if (host ? sim_is_host(p) : sim_is_device(p)) return SIM_OK;
  sim_found(SIM_BOUNDS, "%s: %#zx is not %s memory", sim_here().call, (size_t)p, host ? "host" : "device");
  return SIM_INVALID;
}

sim_region sim_plane(uintptr_t base, size_t pitch, size_t width, size_t rows) {
  return (sim_region){base, width, pitch, rows, pitch * rows, 1};
}

sim_status sim_fill_call(sim_stream *s, const sim_region *r, uint32_t value, unsigned unit, bool sync) {
  sim_status rc = sync ? sim_capture_sync(s) : SIM_OK;
  sim_note("%#zx <- %#x, %zu x %zu bytes, %s", (size_t)r->base, value, r->width, r->rows, s->name);
  if (rc == SIM_OK) rc = sim_fill(s, r, value, unit);
  if (rc != SIM_OK || !sync || sim_region_empty(r) || !sim_is_host(r->base)) return rc;
  return sim_stream_wait_host(s);
}

/* Asking about the legacy stream fails while a blocking stream is captured, and harms nothing. */
static bool capturing_beside(const sim_stream *s) {
  if (s->kind != SIM_LEGACY) return false;
  for (const sim_stream *b = s->ctx->streams; b != NULL; b = b->next)
    if (b->blocking && b->capture != NULL) return true;
  return false;
}

sim_status sim_capture_ask(const sim_stream *s, sim_capture_info *out) {
  const sim_capture *c = s->capture;
  *out = (sim_capture_info){0};
  if (capturing_beside(s)) return SIM_CAP_IMPLICIT;
  if (c == NULL) return SIM_OK;
  out->status = c->invalid ? 2 : 1;
  out->id = c->id;
  out->graph = c->graph;
  out->nfront = s->nfront;
  return SIM_OK;
}

sim_status sim_capture_exchange(int *mode) {
  sim_thread *t = sim_self();
  const int before = t->capture_mode;
  if (*mode < SIM_MODE_GLOBAL || *mode > SIM_MODE_RELAXED) return SIM_INVALID;
  t->capture_mode = *mode;
  *mode = before;
  return SIM_OK;
}

void sim_graph_list(const sim_graph *g, void *nodes, size_t *n) {
  const size_t room = nodes == NULL ? 0 : *n;
  for (size_t i = 0; i < room; i++) {
    const uintptr_t handle = i < g->nnodes ? g->nodes[i]->o.handle : 0;
    memcpy((char *)nodes + i * sizeof handle, &handle, sizeof handle);
  }
  if (nodes == NULL || *n > g->nnodes) *n = g->nnodes;
}

sim_status sim_graph_drop(sim_graph *g) {
  if (g->o.hidden) return SIM_INVALID;
  sim_graph_end(g);
  return SIM_OK;
}
