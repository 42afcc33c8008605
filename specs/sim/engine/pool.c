/* pool.c: memory pools and stream-ordered allocation.
 *
 * Allocating and freeing are operations in a stream: bytes may be touched by what comes after the one and before
 * the other. No address is used twice, so a pool's reuse settings are kept and change nothing. It must not know
 * how that order is checked. */
#include <stdlib.h>

#include "calls.h"

sim_pool *sim_pool_new(const sim_device *d, bool is_default) {
  sim_pool *p = calloc(1, sizeof *p);
  if (p == NULL) abort();
  sim_object_add(&p->o, SIM_POOL);
  p->o.hidden = is_default;
  p->device = d->id;
  p->is_default = is_default;
  p->access[d->id] = 3;
  return p;
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
  sim_object_end(&p->o);
  return SIM_OK;
}

/* Both drivers have the same numbers. */
enum { FIRST_FLAG = 1, LAST_FLAG = 3, THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH = 6, USED = 7, USED_HIGH = 8 };

sim_status sim_pool_get(const sim_pool *p, int which, void *v) {
  if (v == NULL || which < FIRST_FLAG || which > USED_HIGH) return SIM_INVALID;
  if (which <= LAST_FLAG) *(int *)v = (p->off & (1u << which)) == 0;
  if (which == THRESHOLD) *(uint64_t *)v = p->threshold;
  if (which == RESERVED || which == USED) *(uint64_t *)v = p->used;
  if (which == RESERVED_HIGH || which == USED_HIGH) *(uint64_t *)v = p->used_high;
  return SIM_OK;
}

sim_status sim_pool_set(sim_pool *p, int which, const void *v) {
  if (v == NULL || which < FIRST_FLAG || which > USED_HIGH || which == RESERVED || which == USED) return SIM_INVALID;
  if (which <= LAST_FLAG) p->off = (p->off & ~(1u << which)) | (*(const int *)v == 0 ? 1u << which : 0);
  if (which == THRESHOLD) p->threshold = *(const uint64_t *)v;
  if (which >= RESERVED_HIGH && *(const uint64_t *)v != 0) return SIM_INVALID;
  if (which >= RESERVED_HIGH) p->used_high = p->used;
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
  (void)p;
  (void)keep;
  return sim_capture_unsafe();
}

sim_status sim_pool_alloc(sim_pool *p, sim_stream *s, size_t nbytes, uintptr_t *out) {
  sim_alloc *a;
  if (nbytes == 0) return SIM_INVALID;
  if (s->capture != NULL) return SIM_NOT_SUPPORTED;
  sim_status rc = sim_capture_implicit(s);
  if (rc == SIM_OK) rc = sim_alloc_new(SIM_DEVICE, p->device, nbytes, &a);
  if (rc != SIM_OK) return rc;
  a->pool = p;
  a->ctx = s->ctx;
  p->used += nbytes;
  if (p->used > p->used_high) p->used_high = p->used;
  const sim_work w = {.kind = SIM_BIRTH, .to = a, .dst = sim_flat(a->base, nbytes)};
  sim_note("%zu bytes at %#zx, %s", nbytes, (size_t)a->base, s->name);
  *out = a->base;
  return sim_submit(s, &w, NULL);
}

sim_status sim_pool_free(sim_stream *s, uintptr_t p) {
  if (p == 0) return SIM_OK;
  sim_alloc *a = sim_alloc_find(p);
  sim_note("%#zx, %s", (size_t)p, s->name);
  if (a != NULL && a->base == p && a->space == SIM_DEVICE) return sim_free_in(s, a);
  sim_found(SIM_STALE, "%s of %#zx, which is no allocation", sim_here().call, (size_t)p);
  return SIM_INVALID;
}
