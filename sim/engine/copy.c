/* copy.c: copies, fills and frees, as the host asks for them.
 *
 * Decides when the host's part of an operation happens: bytes of the program's own (pageable) memory are taken
 * when the call is made, and the host waits for a result that lands there. A synchronous call promises the host
 * only what the drivers' documentation promises: nothing for device to device, staging but not arrival for
 * pageable sources. It must not know how operations are run. */
#include <stdlib.h>
#include <string.h>

#include "engine.h"

static void report_stale(const sim_alloc *a, const sim_region *r, const char *what) {
  char here[200], gone[200];
  const sim_place now = sim_here();
  if (!sim_found_pair(SIM_STALE, &a->gone, &now)) return;
  sim_found(SIM_STALE, "%s at %#zx (%zu into an allocation of %zu)\n  here   %s\n  freed  %s", what, (size_t)r->base,
            (size_t)(r->base - a->base), a->nbytes, sim_place_text(&now, here, sizeof here),
            sim_place_text(&a->gone, gone, sizeof gone));
}

/* Reserved addresses are memory where something is mapped that the device may touch. */
static sim_status mapped(const sim_stream *s, const sim_alloc *a, const sim_region *r, bool write) {
  char here[200];
  const sim_place now = sim_here();
  const char *why = a == NULL ? NULL : sim_map_forbids(a, r->base, sim_region_end(r), s->ctx->device->id, write);
  if (why == NULL) return SIM_OK;
  sim_found(SIM_BOUNDS, "%s at %#zx, for %s: %s", why, (size_t)r->base, s->name,
            sim_place_text(&now, here, sizeof here));
  return SIM_INVALID;
}

static sim_status resolve(const sim_stream *s, const sim_region *r, bool write, sim_alloc **out) {
  *out = NULL;
  if (sim_region_empty(r)) return SIM_OK;
  *out = sim_alloc_find(r->base);
  sim_status rc = sim_check_range(*out, r, write ? "destination" : "source");
  if (rc == SIM_OK) rc = mapped(s, *out, r, write);
  if (rc != SIM_OK || *out == NULL || !(*out)->freed) return rc;
  report_stale(*out, r, "use of freed memory");
  return SIM_INVALID;
}

static void *stage(const sim_region *r) {
  char *bytes = malloc(r->width * r->rows * r->depth), *at = bytes;
  if (bytes == NULL) abort();
  for (size_t k = 0; k < r->depth; k++)
    for (size_t i = 0; i < r->rows; i++, at += r->width)
      memcpy(at, (const char *)(r->base + k * r->slice + i * r->pitch), r->width);
  return bytes;
}

static bool on_device(const sim_alloc *a) {
  return a != NULL && (a->space == SIM_DEVICE || a->space == SIM_MANAGED);
}

static sim_status wait_for(sim_op *op) {
  sim_op_keep(op);
  sim_op_run(op);
  sim_host_after(op);
  const sim_device *d = op->ctx->device;
  sim_pools_shrink(d);
  sim_op_drop(op);
  return sim_device_verdict(d);
}

static bool waits(const sim_work *w, bool sync) {
  if (w->to == NULL) return true;
  if (!sync || (on_device(w->to) && on_device(w->from))) return false;
  return w->from != NULL;
}

static sim_status queue_copy(sim_stream *s, sim_work *w, bool sync) {
  sim_op *op = NULL;
  if (s->capture != NULL) return sim_submit(s, w, NULL);
  if (sync && w->from == NULL) {
    const sim_status rc = sim_stream_wait_host(s);
    if (rc != SIM_OK) return rc;
  }
  if (w->from == NULL) w->staged = stage(&w->src);
  const sim_status rc = sim_submit(s, w, &op);
  if (rc != SIM_OK) {
    free(w->staged);
    return rc;
  }
  return waits(w, sync) ? wait_for(op) : SIM_OK;
}

sim_status sim_copy(sim_stream *s, const sim_region *dst, const sim_region *src, bool sync) {
  sim_work w = {.kind = SIM_COPY, .dst = *dst, .src = *src};
  sim_status rc = sync ? sim_capture_sync(s) : sim_capture_implicit(s);
  if (rc == SIM_OK) rc = resolve(s, src, false, &w.from);
  if (rc == SIM_OK) rc = resolve(s, dst, true, &w.to);
  if (rc != SIM_OK || sim_region_empty(dst)) return rc;
  return queue_copy(s, &w, sync);
}

static sim_status unreachable(const sim_stream *s, const sim_alloc *a) {
  char here[200];
  const sim_place now = sim_here();
  sim_found(SIM_BOUNDS, "memory of device %d is not reachable from %s: %s", a->device, s->name,
            sim_place_text(&now, here, sizeof here));
  return SIM_INVALID;
}

sim_status sim_fill(sim_stream *s, const sim_region *dst, uint32_t value, unsigned unit) {
  sim_work w = {.kind = SIM_FILL, .dst = *dst, .value = value, .unit = unit};
  sim_status rc = sim_capture_implicit(s);
  if (rc == SIM_OK) rc = resolve(s, dst, true, &w.to);
  if (rc != SIM_OK || sim_region_empty(dst)) return rc;
  if (w.to == NULL || dst->base % unit != 0) return SIM_INVALID;
  if (!sim_device_can_access(s->ctx->device->id, w.to)) return unreachable(s, w.to);
  return sim_submit(s, &w, NULL);
}

static sim_status wait_for_all(void) {
  for (int i = 0; sim_device_at(i) != NULL; i++) {
    const sim_device *d = sim_device_at(i);
    const sim_status rc = d->primary == NULL ? SIM_OK : sim_context_drain(d->primary);
    if (rc != SIM_OK) return rc;
  }
  return SIM_OK;
}

/* Not for memory of a pool, as both documentations say; nor, without the setting, for the host's. */
static bool free_waits(const sim_alloc *a) {
  const bool hosts = a->space == SIM_PINNED || a->space == SIM_FOREIGN;
  if (a->pool != NULL) return false;
  return sim_conf.free == SIM_FREE_WAITS || (sim_conf.free == SIM_FREE_BY_CALLER && sim_is_on_behalf() && !hosts);
}

sim_status sim_free_host(sim_alloc *a) {
  const sim_region whole = sim_flat(a->base, a->nbytes > 0 ? a->nbytes : 1);
  sim_status rc = sim_capture_unsafe();
  if (rc != SIM_OK) return rc;
  if (a->freed) {
    report_stale(a, &whole, "freed twice");
    return SIM_INVALID;
  }
  if (free_waits(a)) rc = wait_for_all();
  if (rc != SIM_OK && rc != SIM_STUCK) return rc;
  if (sim_share_is_others(a->share)) sim_check_unmapped(a, &whole);
  else sim_check_host(a, &whole, true, true);
  sim_poison(a, SIM_GONE);
  sim_alloc_end(a);
  if (a->pool == NULL) return SIM_OK;
  sim_pool_keep(a, NULL);
  sim_pool_freed(a);
  return SIM_OK;
}

sim_status sim_free_in(sim_stream *s, sim_alloc *a) {
  const sim_work w = {.kind = SIM_DEATH, .to = a, .dst = sim_flat(a->base, a->nbytes)};
  if (a->freed) {
    report_stale(a, &w.dst, "freed twice");
    return SIM_INVALID;
  }
  sim_op *op;
  const sim_status rc = sim_submit(s, &w, &op);
  if (rc != SIM_OK) return rc;
  sim_alloc_end(a);
  sim_pool_keep(a, op);
  return sim_device_verdict(s->ctx->device);
}
