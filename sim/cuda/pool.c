/* pool.c: memory pools and stream-ordered allocation, as the program sees them.
 *
 * It must not know what a pool does. */
#include "front.h"

static CUmemoryPool handle_of(const sim_pool *p) {
  return (CUmemoryPool)p->o.handle;
}

CUresult do_cuDeviceGetDefaultMemPool(CUmemoryPool *p, CUdevice d) {
  sim_device *device;
  if (p == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(device_of(d, &device));
  *p = handle_of(sim_pool_default(device));
  return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetMemPool(CUmemoryPool *p, CUdevice d) {
  sim_device *device;
  if (p == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(device_of(d, &device));
  *p = handle_of(sim_pool_current(device));
  return CUDA_SUCCESS;
}

CUresult do_cuDeviceSetMemPool(CUdevice d, CUmemoryPool p) {
  sim_device *device;
  sim_pool *pool;
  TRY(device_of(d, &device));
  TRY(object_of(p, SIM_POOL, &pool));
  return from(sim_pool_choose(device, pool));
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
  *p = handle_of(sim_pool_new(d, false));
  return CUDA_SUCCESS;
}

CUresult do_cuMemPoolDestroy(CUmemoryPool p) {
  sim_pool *pool;
  TRY(object_of(p, SIM_POOL, &pool));
  return from(sim_pool_end(pool));
}

CUresult do_cuMemPoolGetAttribute(CUmemoryPool p, int which, void *v) {
  sim_pool *pool;
  TRY(object_of(p, SIM_POOL, &pool));
  return from(sim_pool_get(pool, which, v));
}

CUresult do_cuMemPoolSetAttribute(CUmemoryPool p, int which, void *v) {
  sim_pool *pool;
  TRY(object_of(p, SIM_POOL, &pool));
  return from(sim_pool_set(pool, which, v));
}

CUresult do_cuMemPoolTrimTo(CUmemoryPool p, size_t keep) {
  sim_pool *pool;
  TRY(object_of(p, SIM_POOL, &pool));
  return from(sim_pool_trim(pool, keep));
}

CUresult do_cuMemPoolSetAccess(CUmemoryPool p, const CUmemAccessDesc *map, size_t n) {
  sim_pool *pool;
  TRY(object_of(p, SIM_POOL, &pool));
  if (map == NULL && n > 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < n; i++) {
    if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    TRY(from(sim_pool_allow(pool, map[i].location.id, (unsigned)map[i].flags)));
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
  uintptr_t at;
  TRY(from(sim_pool_alloc(pool, s, n, &at)));
  *p = (CUdeviceptr)at;
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
  return allocate(p, n, sim_pool_current(s->ctx->device), s);
}

CUresult do_cuMemFreeAsync(CUdeviceptr p, CUstream q) {
  sim_stream *s;
  TRY(stream_of(q, &s));
  return from(sim_pool_free(s, (uintptr_t)p));
}
