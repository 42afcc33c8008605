/* pool.c: memory pools and stream-ordered allocation, as the program sees them.
 *
 * It must not know what a pool does. */
#include "front.h"

static hipMemPool_t handle_of(const sim_pool *p) {
  return (hipMemPool_t)p->o.handle;
}

hipError_t do_hipDeviceGetDefaultMemPool(hipMemPool_t *p, int d) {
  sim_device *device;
  if (p == NULL) return hipErrorInvalidValue;
  TRY(device_of(d, &device));
  *p = handle_of(sim_pool_default(device));
  return hipSuccess;
}

hipError_t do_hipDeviceGetMemPool(hipMemPool_t *p, int d) {
  sim_device *device;
  if (p == NULL) return hipErrorInvalidValue;
  TRY(device_of(d, &device));
  *p = handle_of(sim_pool_current(device));
  return hipSuccess;
}

hipError_t do_hipDeviceSetMemPool(int d, hipMemPool_t p) {
  sim_device *device;
  sim_pool *pool;
  TRY(device_of(d, &device));
  TRY(object_of(p, SIM_POOL, &pool));
  return from(sim_pool_choose(device, pool));
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
  *p = handle_of(sim_pool_new(d, false));
  return hipSuccess;
}

hipError_t do_hipMemPoolDestroy(hipMemPool_t p) {
  sim_pool *pool;
  TRY(object_of(p, SIM_POOL, &pool));
  return from(sim_pool_end(pool));
}

hipError_t do_hipMemPoolGetAttribute(hipMemPool_t p, int which, void *v) {
  sim_pool *pool;
  TRY(object_of(p, SIM_POOL, &pool));
  return from(sim_pool_get(pool, which, v));
}

hipError_t do_hipMemPoolSetAttribute(hipMemPool_t p, int which, void *v) {
  sim_pool *pool;
  TRY(object_of(p, SIM_POOL, &pool));
  return from(sim_pool_set(pool, which, v));
}

hipError_t do_hipMemPoolTrimTo(hipMemPool_t p, size_t keep) {
  sim_pool *pool;
  TRY(object_of(p, SIM_POOL, &pool));
  return from(sim_pool_trim(pool, keep));
}

hipError_t do_hipMemPoolSetAccess(hipMemPool_t p, const hipMemAccessDesc *map, size_t n) {
  sim_pool *pool;
  TRY(object_of(p, SIM_POOL, &pool));
  if (map == NULL && n > 0) return hipErrorInvalidValue;
  for (size_t i = 0; i < n; i++) {
    if (map[i].location.type != hipMemLocationTypeDevice) return hipErrorInvalidValue;
    TRY(from(sim_pool_allow(pool, map[i].location.id, (unsigned)map[i].flags)));
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
  uintptr_t at;
  TRY(from(sim_pool_alloc(pool, s, n, &at)));
  *p = (void *)at;
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
  return allocate(p, n, sim_pool_current(s->ctx->device), s);
}

hipError_t do_hipFreeAsync(void *p, hipStream_t q) {
  sim_stream *s;
  TRY(stream_of(q, &s));
  return from(sim_pool_free(s, (uintptr_t)p));
}
