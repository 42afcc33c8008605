/* pool.c: memory pools and stream-ordered allocation.
 *
 * Allocating and freeing are operations in a stream: bytes may be touched by what comes after the one and before
 * the other. No address is used twice, so a pool's reuse settings are kept and change nothing. It must not know
 * how that order is checked. */
#include <stdlib.h>

#include "front.h"

static hipMemPool_t handle_of(const sim_pool *p) {
  return (hipMemPool_t)p->o.handle;
}

static sim_pool *pool_new(const sim_device *d, bool is_default) {
  sim_pool *p = calloc(1, sizeof *p);
  if (p == NULL) abort();
  sim_object_add(&p->o, SIM_POOL);
  p->o.hidden = is_default;
  p->device = d->id;
  p->is_default = is_default;
  p->access[d->id] = 3;
  return p;
}

static sim_pool *pool_default(sim_device *d) {
  if (d->default_pool == NULL) d->default_pool = pool_new(d, true);
  return d->default_pool;
}

static sim_pool *pool_current(sim_device *d) {
  return d->pool != NULL ? d->pool : pool_default(d);
}

hipError_t do_hipDeviceGetDefaultMemPool(hipMemPool_t *p, int d) {
  sim_device *device;
  if (p == NULL) return hipErrorInvalidValue;
  TRY(device_of(d, &device));
  *p = handle_of(pool_default(device));
  return hipSuccess;
}

hipError_t do_hipDeviceGetMemPool(hipMemPool_t *p, int d) {
  sim_device *device;
  if (p == NULL) return hipErrorInvalidValue;
  TRY(device_of(d, &device));
  *p = handle_of(pool_current(device));
  return hipSuccess;
}

hipError_t do_hipDeviceSetMemPool(int d, hipMemPool_t p) {
  sim_device *device;
  sim_pool *pool;
  TRY(device_of(d, &device));
  TRY(object_of(p, SIM_POOL, &pool));
  if (pool->device != d) return hipErrorInvalidValue;
  device->pool = pool;
  return hipSuccess;
}

static hipError_t located(const hipMemLocation *where, int type, sim_device **d) {
  if (where == NULL) return hipErrorInvalidValue;
  if (where->type != hipMemLocationTypeDevice || type != hipMemAllocationTypePinned)
    return hipErrorNotSupported;
  return device_of(where->id, d);
}

hipError_t do_hipMemPoolCreate(hipMemPool_t *p, const hipMemPoolProps *props) {
  sim_device *d;
  if (p == NULL || props == NULL) return hipErrorInvalidValue;
  if (props->handleTypes != 0) return hipErrorNotSupported;
  TRY(located(&props->location, (int)props->allocType, &d));
  *p = handle_of(pool_new(d, false));
  return hipSuccess;
}

hipError_t do_hipMemPoolDestroy(hipMemPool_t p) {
  sim_pool *pool;
  TRY(object_of(p, SIM_POOL, &pool));
  if (pool->is_default) return hipErrorInvalidValue;
  sim_device *d = sim_device_at(pool->device);
  if (d->pool == pool) d->pool = NULL;
  sim_object_end(&pool->o);
  return hipSuccess;
}

enum { FIRST_FLAG = 1, LAST_FLAG = 3, THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH = 6, USED = 7, USED_HIGH = 8 };

hipError_t do_hipMemPoolGetAttribute(hipMemPool_t p, int which, void *v) {
  sim_pool *pool;
  TRY(object_of(p, SIM_POOL, &pool));
  if (v == NULL || which < FIRST_FLAG || which > USED_HIGH) return hipErrorInvalidValue;
  if (which <= LAST_FLAG) *(int *)v = (pool->off & (1u << which)) == 0;
  if (which == THRESHOLD) *(uint64_t *)v = pool->threshold;
  if (which == RESERVED || which == USED) *(uint64_t *)v = pool->used;
  if (which == RESERVED_HIGH || which == USED_HIGH) *(uint64_t *)v = pool->used_high;
  return hipSuccess;
}

hipError_t do_hipMemPoolSetAttribute(hipMemPool_t p, int which, void *v) {
  sim_pool *pool;
  TRY(object_of(p, SIM_POOL, &pool));
  if (v == NULL || which < FIRST_FLAG || which > USED_HIGH || which == RESERVED || which == USED)
    return hipErrorInvalidValue;
  if (which <= LAST_FLAG) pool->off = (pool->off & ~(1u << which)) | (*(int *)v == 0 ? 1u << which : 0);
  if (which == THRESHOLD) pool->threshold = *(uint64_t *)v;
  if (which >= RESERVED_HIGH && *(uint64_t *)v != 0) return hipErrorInvalidValue;
  if (which >= RESERVED_HIGH) pool->used_high = pool->used;
  return hipSuccess;
}

hipError_t do_hipMemPoolTrimTo(hipMemPool_t p, size_t keep) {
  sim_pool *pool;
  (void)keep;
  return object_of(p, SIM_POOL, &pool);
}

hipError_t do_hipMemPoolSetAccess(hipMemPool_t p, const hipMemAccessDesc *map, size_t n) {
  sim_pool *pool;
  sim_device *d;
  TRY(object_of(p, SIM_POOL, &pool));
  if (map == NULL && n > 0) return hipErrorInvalidValue;
  for (size_t i = 0; i < n; i++) {
    if (map[i].location.type != hipMemLocationTypeDevice) return hipErrorInvalidValue;
    TRY(device_of(map[i].location.id, &d));
    if (d->id == pool->device && map[i].flags != 3) return hipErrorInvalidDevice;
    pool->access[d->id] = (unsigned)map[i].flags;
  }
  return hipSuccess;
}

hipError_t do_hipMemPoolGetAccess(int *flags, hipMemPool_t p, hipMemLocation *where) {
  sim_pool *pool;
  sim_device *d;
  if (flags == NULL) return hipErrorInvalidValue;
  TRY(object_of(p, SIM_POOL, &pool));
  TRY(located(where, hipMemAllocationTypePinned, &d));
  *flags = (int)pool->access[d->id];
  return hipSuccess;
}

static hipError_t allocate(void **p, size_t n, sim_pool *pool, sim_stream *s) {
  sim_alloc *a;
  if (n == 0) return hipErrorInvalidValue;
  if (s->capture != NULL) return hipErrorNotSupported;
  TRY(from(sim_capture_implicit(s)));
  TRY(from(sim_alloc_new(SIM_DEVICE, pool->device, n, &a)));
  a->pool = pool;
  a->ctx = s->ctx;
  pool->used += n;
  if (pool->used > pool->used_high) pool->used_high = pool->used;
  const sim_work w = {.kind = SIM_BIRTH, .to = a, .dst = sim_flat(a->base, n)};
  TRY(from(sim_submit(s, &w, NULL)));
  sim_note("%zu bytes at %#zx, %s", n, (size_t)a->base, s->name);
  *p = (void *)a->base;
  return hipSuccess;
}

hipError_t do_hipMallocFromPoolAsync(void **p, size_t n, hipMemPool_t handle, hipStream_t q) {
  sim_pool *pool;
  sim_stream *s;
  if (p == NULL) return hipErrorInvalidValue;
  TRY(stream_of(q, &s));
  TRY(object_of(handle, SIM_POOL, &pool));
  return allocate(p, n, pool, s);
}

hipError_t do_hipMallocAsync(void **p, size_t n, hipStream_t q) {
  sim_stream *s;
  if (p == NULL) return hipErrorInvalidValue;
  TRY(stream_of(q, &s));
  return allocate(p, n, pool_current(s->ctx->device), s);
}

hipError_t do_hipFreeAsync(void *p, hipStream_t q) {
  sim_stream *s;
  TRY(stream_of(q, &s));
  if (p == 0) return hipSuccess;
  sim_alloc *a = sim_alloc_find((uintptr_t)p);
  sim_note("%#zx, %s", (size_t)p, s->name);
  if (a == NULL || a->base != (uintptr_t)p || a->space != SIM_DEVICE) {
    sim_found(SIM_STALE, "%s of %#zx, which is no allocation", sim_here().call, (size_t)p);
    return hipErrorInvalidValue;
  }
  return from(sim_free_in(s, a));
}
