/* device.c: devices, contexts and each thread's stack of contexts.
 *
 * Invariant: a device has at most one primary context, alive while someone retains it, unless it is reset: then it is
 * gone for all, whoever retained it, and still owed its releases. It must not know about
 * memory beyond which device may reach it. */
#include <stdlib.h>

#include "engine.h"
#include "kernel.h"

static sim_device devices[SIM_MAX_DEVICES];
static bool ready;

bool sim_ready(void) {
  return ready;
}

sim_status sim_init(void) {
  if (ready) return SIM_OK;
  if (sim_conf.devices == 0) return SIM_NO_DEVICE;
  const sim_status rc = sim_memory_open(sim_conf.devices);
  if (rc != SIM_OK) return rc;
  for (int i = 0; i < sim_conf.devices; i++) devices[i] = (sim_device){.id = i, .total = sim_conf.memory};
  ready = true;
  return SIM_OK;
}

sim_device *sim_device_at(int id) {
  return ready && id >= 0 && id < sim_conf.devices ? &devices[id] : NULL;
}

sim_context *sim_current(void) {
  const sim_thread *t = sim_self();
  return t->depth == 0 ? NULL : t->stack[t->depth - 1];
}

static sim_status report_dead(const sim_context *c) {
  char here[200], gone[200];
  const sim_place now = sim_here();
  if (!sim_found_pair(SIM_MISUSE, &now, &c->o.gone)) return SIM_DEAD_CONTEXT;
  sim_found(SIM_MISUSE, "the current context of device %d was destroyed\n  used      %s\n  destroyed %s", c->device->id,
            sim_place_text(&now, here, sizeof here), sim_place_text(&c->o.gone, gone, sizeof gone));
  return SIM_DEAD_CONTEXT;
}

sim_status sim_context_of(sim_context **out) {
  *out = sim_current();
  if (*out != NULL) return (*out)->o.live ? SIM_OK : report_dead(*out);
  sim_found(SIM_MISUSE, "%s without a current context", sim_here().call);
  return SIM_BAD_CONTEXT;
}

sim_status sim_context_new(sim_device *d, unsigned flags, sim_context **out) {
  const sim_status lost = sim_device_verdict(d);
  sim_context *c = lost != SIM_OK ? NULL : calloc(1, sizeof *c);
  if (c == NULL) return lost != SIM_OK ? lost : SIM_NOMEM;
  sim_object_add(&c->o, SIM_CONTEXT);
  c->device = d;
  c->flags = flags;
  c->legacy = sim_stream_new(c, SIM_LEGACY, true, 0);
  *out = c;
  return SIM_OK;
}

static size_t end_memory(const sim_context *c) {
  size_t n = 0;
  for (sim_alloc *a = sim_alloc_first(); a != NULL; a = a->after) {
    if (a->ctx != c || a->pool != NULL) continue;
    sim_alloc_end(a);
    n++;
  }
  return n;
}

static size_t end_streams(const sim_context *c) {
  size_t n = 0;
  while (c->streams != NULL) {
    n += c->streams->kind == SIM_ORDINARY;
    sim_stream_end(c->streams);
  }
  return n;
}

static size_t end_events(const sim_context *c) {
  size_t n = 0;
  for (sim_object *o = sim_object_first(); o != NULL; o = o->after) {
    sim_event *e = (sim_event *)(void *)o;
    if (o->type != SIM_EVENT || e->ctx != c) continue;
    sim_event_end(e);
    n++;
  }
  return n;
}

/* What still lives of a context goes with it, as on a real device; with a primary one, all that was allocated from the
 * device's pools, too: the last release resets it (CUDA Driver API, cuDevicePrimaryCtxRelease). */
void sim_context_end(sim_context *c) {
  char here[200];
  const sim_place now = sim_here();
  sim_context_drain(c);
  sim_module_end_all(c);
  const size_t pooled = c->primary ? sim_pools_end(c->device, c) : 0;
  const size_t allocations = end_memory(c) + pooled, streams = end_streams(c), events = end_events(c);
  if (allocations + streams + events > 0)
    sim_found(SIM_WARNING, "a context of device %d ends with %zu allocations, %zu streams and %zu events in it: %s",
              c->device->id, allocations, streams, events, sim_place_text(&now, here, sizeof here));
  sim_object_end(&c->legacy->o);
  sim_object_end(&c->o);
}

static void count_push(sim_thread *t, int by) {
  const sim_place now = sim_here();
  t->pushed += by;
  if (sim_ledger_counts(&now)) t->owed += by;
}

sim_status sim_context_stack(sim_context *c) {
  sim_thread *t = sim_self();
  if (t->depth == SIM_MAX_DEPTH) return SIM_INVALID;
  t->stack[t->depth++] = c;
  return SIM_OK;
}

sim_status sim_context_push(sim_context *c) {
  const sim_status rc = sim_context_stack(c);
  if (rc == SIM_OK) count_push(sim_self(), 1);
  return rc;
}

sim_status sim_context_pop(sim_context **out) {
  sim_thread *t = sim_self();
  if (t->depth == 0) {
    sim_found(SIM_MISUSE, "%s with nothing to pop", sim_here().call);
    return SIM_BAD_CONTEXT;
  }
  *out = t->stack[--t->depth];
  count_push(t, -1);
  return SIM_OK;
}

/* Replaces the top. Setting a context on an empty stack, and NULL on a stack of one, are no pushes or pops. */
void sim_context_set(sim_context *c) {
  sim_thread *t = sim_self();
  if (t->depth > 0) t->depth--;
  if (c != NULL) t->stack[t->depth++] = c;
}

sim_status sim_primary_retain(sim_device *d, sim_context **out) {
  if (d->primary == NULL) {
    const sim_status rc = sim_context_new(d, d->primary_flags, &d->primary);
    if (rc != SIM_OK) return rc;
    d->primary->primary = true;
  }
  d->retains++;
  *out = d->primary;
  return SIM_OK;
}

sim_status sim_primary_release(sim_device *d) {
  if (d->retains == 0) {
    sim_found(SIM_MISUSE, "%s: the primary context of device %d is released once too often", sim_here().call, d->id);
    return SIM_BAD_CONTEXT;
  }
  if (--d->retains == 0) sim_primary_reset(d);
  return SIM_OK;
}

void sim_primary_reset(sim_device *d) {
  sim_context *c = d->primary;
  if (c == NULL) return;
  sim_context_end(c);
  d->primary = NULL;
}

bool sim_device_can_access(int from, const sim_alloc *a) {
  if (a->space != SIM_DEVICE || a->device == from || a->maps != NULL) return true;
  if (a->pool != NULL) return a->pool->access[from] != 0;
  const sim_context *primary = devices[from].primary;
  const sim_context *current = sim_current();
  if (current != NULL && current->device->id == from && current->peers[a->device]) return true;
  return primary != NULL && primary->peers[a->device];
}
