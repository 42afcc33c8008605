/* pool.c: memory pools and stream-ordered allocation.
 *
 * Allocating and freeing are operations in a stream: bytes may be touched by what comes after the one and before
 * the other. A pool's memory is its device's that nobody else has. What is freed stays with it: for an allocation of as
 * many pages, by a stream that is ordered behind the free or once the free has happened; for itself, where the device
 * has no more; for the device, when it is trimmed or the host waits while it is above its threshold. Nothing else is
 * promised (cuMemPoolTrimTo, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), so no other allocation takes it. A pool's settings of
 * reuse are kept and change nothing. It must not know how that order is checked. */
#include <stdlib.h>

#include "engine.h"

static sim_pool *pools; /* all that ever were */

sim_pool *sim_pool_new(const sim_device *d, bool is_default) {
  sim_pool *p = calloc(1, sizeof *p);
  if (p == NULL) abort();
  sim_object_add(&p->o, SIM_POOL);
  p->o.hidden = is_default;
  p->device = d->id;
  p->is_default = is_default;
  p->access[d->id] = 3;
  p->next = pools;
  pools = p;
  return p;
}

static bool is_freed(const sim_alloc *a) {
  return a->death == NULL || a->death->done;
}

static bool is_seen_freed(const sim_alloc *a) {
  return a->death == NULL || (a->death->done && sim_clock_covers(sim_host_clock(), a->death->slot, a->death->time));
}

static void unlink_idle(sim_pool *p, sim_alloc *a) {
  sim_alloc **link = &p->idle;
  while (*link != a) link = &(*link)->below;
  *link = a->below;
  sim_op_drop(a->death);
  a->death = NULL;
}

static void give_back(sim_pool *p, sim_alloc *a) {
  unlink_idle(p, a);
  p->reserved -= a->room;
  sim_alloc_release(a);
}

/* Gives back what may be, as long as that leaves the pool no fewer than keep bytes. */
static void shrink(sim_pool *p, uint64_t keep, bool (*may)(const sim_alloc *)) {
  for (sim_alloc *a = p->idle, *below; a != NULL && p->reserved > keep; a = below) {
    below = a->below;
    if (may(a) && p->reserved - a->room >= keep) give_back(p, a);
  }
}

void sim_pool_keep(sim_alloc *a, sim_op *death) {
  sim_pool *p = a->pool;
  a->death = sim_op_keep(death);
  a->below = p->idle;
  p->idle = a;
  if (!p->o.live) shrink(p, 0, is_freed);
}

static void end_pool(sim_pool *p) {
  sim_object_end(&p->o);
  shrink(p, 0, is_freed);
}

size_t sim_pools_end(sim_device *d, const sim_context *c) {
  size_t n = 0;
  for (sim_alloc *a = sim_alloc_first(); a != NULL; a = a->after) {
    if (a->pool == NULL || a->ctx != c) continue;
    sim_alloc_end(a);
    sim_pool_keep(a, NULL);
    sim_pool_freed(a);
    n++;
  }
  for (sim_pool *p = pools; p != NULL; p = p->next)
    if (p->o.live && p->device == d->id) end_pool(p);
  d->pool = d->default_pool = NULL;
  return n;
}

/* Under some seeds a free happens before its call is over and the block is kept. */
void sim_pool_freed(sim_alloc *a) {
  a->pool->used -= a->nbytes;
  if (!a->pool->o.live) shrink(a->pool, 0, is_freed);
}

void sim_pools_shrink(const sim_device *d) {
  for (sim_pool *p = pools; p != NULL; p = p->next)
    if (p->device == d->id && p->idle != NULL && p->reserved > p->threshold) shrink(p, p->threshold, is_seen_freed);
}

sim_pool *sim_pool_default(sim_device *d) {
  if (d->default_pool == NULL) d->default_pool = sim_pool_new(d, true);
  return d->default_pool;
}

sim_pool *sim_pool_current(sim_device *d) {
  return d->pool != NULL ? d->pool : sim_pool_default(d);
}

sim_status sim_pool_choose(sim_device *d, sim_pool *p) {
  if (p->device != d->id) return SIM_INVALID;
  d->pool = p;
  return SIM_OK;
}

sim_status sim_pool_end(sim_pool *p) {
  if (p->is_default) return SIM_INVALID;
  const sim_status rc = sim_capture_unsafe();
  if (rc != SIM_OK) return rc;
  sim_device *d = sim_device_at(p->device);
  if (d->pool == p) d->pool = NULL;
  end_pool(p);
  return SIM_OK;
}

/* Both drivers have the same numbers. */
enum { FIRST_FLAG = 1, LAST_FLAG = 3, THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH = 6, USED = 7, USED_HIGH = 8 };

sim_status sim_pool_get(const sim_pool *p, int which, void *v) {
  if (v == NULL || which < FIRST_FLAG || which > USED_HIGH) return SIM_INVALID;
  if (which <= LAST_FLAG) *(int *)v = (p->off & (1u << which)) == 0;
  if (which == THRESHOLD) *(uint64_t *)v = p->threshold;
  if (which == RESERVED) *(uint64_t *)v = p->reserved;
  if (which == RESERVED_HIGH) *(uint64_t *)v = p->reserved_high;
  if (which == USED) *(uint64_t *)v = p->used;
  if (which == USED_HIGH) *(uint64_t *)v = p->used_high;
  return SIM_OK;
}

sim_status sim_pool_set(sim_pool *p, int which, const void *v) {
  if (v == NULL || which < FIRST_FLAG || which > USED_HIGH || which == RESERVED || which == USED) return SIM_INVALID;
  if (which <= LAST_FLAG) p->off = (p->off & ~(1u << which)) | (*(const int *)v == 0 ? 1u << which : 0);
  if (which == THRESHOLD) p->threshold = *(const uint64_t *)v;
  if (which >= RESERVED_HIGH && *(const uint64_t *)v != 0) return SIM_INVALID;
  if (which == RESERVED_HIGH) p->reserved_high = p->reserved;
  if (which == USED_HIGH) p->used_high = p->used;
  return SIM_OK;
}

sim_status sim_pool_allow(sim_pool *p, int device, unsigned flags) {
  if (sim_device_at(device) == NULL || (device == p->device && flags != 3)) return SIM_BAD_DEVICE;
  const sim_status rc = sim_capture_unsafe();
  if (rc != SIM_OK) return rc;
  p->access[device] = flags;
  return SIM_OK;
}

sim_status sim_pool_trim(sim_pool *p, size_t keep) {
  const sim_status rc = sim_capture_unsafe();
  if (rc == SIM_OK) shrink(p, keep, is_seen_freed);
  return rc;
}

/* The block that was freed last of those that s may have. */
static sim_alloc *take_idle(sim_pool *p, const sim_stream *s, size_t room) {
  sim_alloc *a = p->idle;
  while (a != NULL) {
    const bool behind = is_freed(a) || sim_clock_covers(&s->clock, a->death->slot, a->death->time);
    if (a->room == room && behind) break;
    a = a->below;
  }
  return a;
}

/* Memory for a new allocation in s: where an idle block was, or the device's, for which idle blocks may have to go. */
static sim_status find_memory(sim_pool *p, const sim_stream *s, size_t nbytes, sim_alloc **out) {
  const sim_device *d = sim_device_at(p->device);
  const size_t room = sim_room(nbytes);
  sim_alloc *at = take_idle(p, s, room);
  if (at != NULL && sim_reuses()) {
    unlink_idle(p, at);
    return sim_alloc_new(SIM_DEVICE, p->device, nbytes, at, out);
  }
  if (at != NULL) give_back(p, at);
  if (d->used + room > d->total) shrink(p, 0, is_freed);
  const sim_status rc = sim_alloc_new(SIM_DEVICE, p->device, nbytes, NULL, out);
  if (rc == SIM_OK) p->reserved += room;
  return rc;
}

sim_status sim_pool_alloc(sim_pool *p, sim_stream *s, size_t nbytes, uintptr_t *out) {
  sim_alloc *a;
  if (nbytes == 0) return SIM_INVALID;
  if (s->capture != NULL) return SIM_NOT_SUPPORTED;
  if (p->imported) return SIM_INVALID; /* it is another process that allocates */
  sim_status rc = sim_capture_implicit(s);
  if (rc == SIM_OK) rc = find_memory(p, s, nbytes, &a);
  if (rc != SIM_OK) return rc;
  a->pool = p;
  a->ctx = s->ctx;
  p->used += nbytes;
  if (p->used > p->used_high) p->used_high = p->used;
  if (p->reserved > p->reserved_high) p->reserved_high = p->reserved;
  const sim_work w = {.kind = SIM_BIRTH, .to = a, .dst = sim_flat(a->base, nbytes)};
  sim_log_detail("%zu bytes at %#zx, %s", nbytes, (size_t)a->base, s->name);
  *out = a->base;
  return sim_submit(s, &w, NULL);
}

/* Memory of no pool may be freed so as well: it goes to the default pool, and to the device when the host next waits.
 */
sim_status sim_pool_free(sim_stream *s, uintptr_t p) {
  if (p == 0) return SIM_OK;
  sim_alloc *a = sim_alloc_find(p);
  sim_log_detail("%#zx, %s", (size_t)p, s->name);
  if (a != NULL && a->base == p && a->space == SIM_DEVICE && a->kept == NULL && a->maps == NULL && a->opened == 0) {
    if (a->pool == NULL && !a->freed && s->capture == NULL && sim_capture_implicit(s) == SIM_OK) {
      a->pool = sim_pool_default(sim_device_at(a->device));
      a->pool->used += a->nbytes;
      a->pool->reserved += a->room;
    }
    return sim_free_in(s, a);
  }
  sim_found(SIM_STALE, "%s of %#zx, which is no allocation", sim_here().call, (size_t)p);
  return SIM_INVALID;
}
