/* pool.c: memory pools and stream-ordered allocation.
 *
 * Allocating and freeing are operations in a stream: bytes may be touched by what comes after the one and before
 * the other. No address is used twice, so a pool's reuse settings are kept and change nothing. It must not know
 * how that order is checked. */
#include <stdlib.h>

#include "front.h"

static CUmemoryPool handle_of(const sim_pool *p) {
  return (CUmemoryPool)p->o.handle;
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

sim_pool *pool_default(sim_device *d) {
  if (d->default_pool == NULL) d->default_pool = pool_new(d, true);
  return d->default_pool;
}

sim_pool *pool_current(sim_device *d) {
  return d->pool != NULL ? d->pool : pool_default(d);
}

CUresult do_cuDeviceGetDefaultMemPool(CUmemoryPool *p, CUdevice d) {
  sim_device *device;
  if (p == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(device_of(d, &device));
  *p = handle_of(pool_default(device));
  return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetMemPool(CUmemoryPool *p, CUdevice d) {
  sim_device *device;
  if (p == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(device_of(d, &device));
  *p = handle_of(pool_current(device));
  return CUDA_SUCCESS;
}

CUresult do_cuDeviceSetMemPool(CUdevice d, CUmemoryPool p) {
  sim_device *device;
  sim_pool *pool;
  TRY(device_of(d, &device));
  TRY(object_of(p, SIM_POOL, &pool));
  if (pool->device != d) return CUDA_ERROR_INVALID_VALUE;
  device->pool = pool;
  return CUDA_SUCCESS;
}

static CUresult located(const CUmemLocation *where, int type, sim_device **d) {
  if (where == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (where->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_NOT_SUPPORTED;
  return device_of(where->id, d);
}

CUresult do_cuMemGetDefaultMemPool(CUmemoryPool *p, CUmemLocation *where, int type) {
  sim_device *d;
  TRY(located(where, type, &d));
  return do_cuDeviceGetDefaultMemPool(p, d->id);
}

CUresult do_cuMemGetMemPool(CUmemoryPool *p, CUmemLocation *where, int type) {
  sim_device *d;
  TRY(located(where, type, &d));
  return do_cuDeviceGetMemPool(p, d->id);
}

CUresult do_cuMemPoolCreate(CUmemoryPool *p, const CUmemPoolProps *props) {
  sim_device *d;
  if (p == NULL || props == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (props->handleTypes != 0) return CUDA_ERROR_NOT_SUPPORTED;
  TRY(located(&props->location, (int)props->allocType, &d));
  *p = handle_of(pool_new(d, false));
  return CUDA_SUCCESS;
}

CUresult do_cuMemPoolDestroy(CUmemoryPool p) {
  sim_pool *pool;
  TRY(object_of(p, SIM_POOL, &pool));
  if (pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  sim_device *d = sim_device_at(pool->device);
  if (d->pool == pool) d->pool = NULL;
  sim_object_end(&pool->o);
  return CUDA_SUCCESS;
}

enum { FIRST_FLAG = 1, LAST_FLAG = 3, THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH = 6, USED = 7, USED_HIGH = 8 };

CUresult do_cuMemPoolGetAttribute(CUmemoryPool p, int which, void *v) {
  sim_pool *pool;
  TRY(object_of(p, SIM_POOL, &pool));
  if (v == NULL || which < FIRST_FLAG || which > USED_HIGH) return CUDA_ERROR_INVALID_VALUE;
  if (which <= LAST_FLAG) *(int *)v = (pool->off & (1u << which)) == 0;
  if (which == THRESHOLD) *(uint64_t *)v = pool->threshold;
  if (which == RESERVED || which == USED) *(uint64_t *)v = pool->used;
  if (which == RESERVED_HIGH || which == USED_HIGH) *(uint64_t *)v = pool->used_high;
  return CUDA_SUCCESS;
}

CUresult do_cuMemPoolSetAttribute(CUmemoryPool p, int which, void *v) {
  sim_pool *pool;
  TRY(object_of(p, SIM_POOL, &pool));
  if (v == NULL || which < FIRST_FLAG || which > USED_HIGH || which == RESERVED || which == USED)
    return CUDA_ERROR_INVALID_VALUE;
  if (which <= LAST_FLAG) pool->off = (pool->off & ~(1u << which)) | (*(int *)v == 0 ? 1u << which : 0);
  if (which == THRESHOLD) pool->threshold = *(uint64_t *)v;
  if (which >= RESERVED_HIGH && *(uint64_t *)v != 0) return CUDA_ERROR_INVALID_VALUE;
  if (which >= RESERVED_HIGH) pool->used_high = pool->used;
  return CUDA_SUCCESS;
}

CUresult do_cuMemPoolTrimTo(CUmemoryPool p, size_t keep) {
  sim_pool *pool;
  (void)keep;
  return object_of(p, SIM_POOL, &pool);
}

CUresult do_cuMemPoolSetAccess(CUmemoryPool p, const CUmemAccessDesc *map, size_t n) {
  sim_pool *pool;
  sim_device *d;
  TRY(object_of(p, SIM_POOL, &pool));
  if (map == NULL && n > 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < n; i++) {
    if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    TRY(device_of(map[i].location.id, &d));
    if (d->id == pool->device && map[i].flags != 3) return CUDA_ERROR_INVALID_DEVICE;
    pool->access[d->id] = (unsigned)map[i].flags;
  }
  return CUDA_SUCCESS;
}

CUresult do_cuMemPoolGetAccess(int *flags, CUmemoryPool p, CUmemLocation *where) {
  sim_pool *pool;
  sim_device *d;
  if (flags == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(object_of(p, SIM_POOL, &pool));
  TRY(located(where, CU_MEM_ALLOCATION_TYPE_PINNED, &d));
  *flags = (int)pool->access[d->id];
  return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *p, size_t n, sim_pool *pool, sim_stream *s) {
  sim_alloc *a;
  if (n == 0) return CUDA_ERROR_INVALID_VALUE;
  if (s->capture != NULL) return CUDA_ERROR_NOT_SUPPORTED;
  TRY(from(sim_capture_implicit(s)));
  TRY(from(sim_alloc_new(SIM_DEVICE, pool->device, n, &a)));
  a->pool = pool;
  a->ctx = s->ctx;
  pool->used += n;
  if (pool->used > pool->used_high) pool->used_high = pool->used;
  const sim_work w = {.kind = SIM_BIRTH, .to = a, .dst = sim_flat(a->base, n)};
  TRY(from(sim_submit(s, &w, NULL)));
  sim_note("%zu bytes at %#zx, %s", n, (size_t)a->base, s->name);
  *p = a->base;
  return CUDA_SUCCESS;
}

CUresult do_cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t n, CUmemoryPool handle, CUstream q) {
  sim_pool *pool;
  sim_stream *s;
  if (p == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(stream_of(q, &s));
  TRY(object_of(handle, SIM_POOL, &pool));
  return allocate(p, n, pool, s);
}

CUresult do_cuMemAllocAsync(CUdeviceptr *p, size_t n, CUstream q) {
  sim_stream *s;
  if (p == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(stream_of(q, &s));
  return allocate(p, n, pool_current(s->ctx->device), s);
}

CUresult do_cuMemFreeAsync(CUdeviceptr p, CUstream q) {
  sim_stream *s;
  TRY(stream_of(q, &s));
  if (p == 0) return CUDA_SUCCESS;
  sim_alloc *a = sim_alloc_find((uintptr_t)p);
  sim_note("%#zx, %s", (size_t)p, s->name);
  if (a == NULL || a->base != (uintptr_t)p || a->space != SIM_DEVICE) {
    sim_found(SIM_STALE, "%s of %#zx, which is no allocation", sim_here().call, (size_t)p);
    return CUDA_ERROR_INVALID_VALUE;
  }
  return from(sim_free_in(s, a));
}
