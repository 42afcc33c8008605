/* pool.c: memory pools and stream-ordered allocation, by their names in the driver.
 *
 * It must not know what a pool does. */
#include "front.h"

_Static_assert(sizeof(CUmemLocation) == sizeof(sim_location) &&
                   offsetof(CUmemLocation, id) == offsetof(sim_location, id) &&
                   sizeof(CUmemAccessDesc) == sizeof(sim_permit) &&
                   offsetof(CUmemAccessDesc, flags) == offsetof(sim_permit, flags) &&
                   (int)CU_MEM_LOCATION_TYPE_DEVICE == SIM_AT_DEVICE &&
                   (int)CU_MEM_ALLOCATION_TYPE_PINNED == SIM_PINNED_TO_IT,
               "calls/pool.c reads what the program gives");

CUresult do_cuDeviceGetDefaultMemPool(CUmemoryPool *p, CUdevice d) {
  return from(sim_call_pool_default(d, p));
}

CUresult do_cuDeviceGetMemPool(CUmemoryPool *p, CUdevice d) {
  return from(sim_call_pool_current(d, p));
}

CUresult do_cuDeviceSetMemPool(CUdevice d, CUmemoryPool p) {
  return from(sim_call_pool_choose(d, p));
}

CUresult do_cuMemGetDefaultMemPool(CUmemoryPool *p, CUmemLocation *where, int type) {
  int device;
  TRY(from(sim_located(where, type, &device)));
  return from(sim_call_pool_default(device, p));
}

CUresult do_cuMemGetMemPool(CUmemoryPool *p, CUmemLocation *where, int type) {
  int device;
  TRY(from(sim_located(where, type, &device)));
  return from(sim_call_pool_current(device, p));
}

CUresult do_cuMemPoolCreate(CUmemoryPool *p, const CUmemPoolProps *props) {
  if (props == NULL) return CUDA_ERROR_INVALID_VALUE;
  return from(sim_call_pool_new(&props->location, (int)props->allocType, (unsigned)props->handleTypes, p));
}

CUresult do_cuMemPoolDestroy(CUmemoryPool p) {
  return from(sim_call_pool_end(p));
}

CUresult do_cuMemPoolGetAttribute(CUmemoryPool p, int which, void *v) {
  return from(sim_call_pool_get(p, which, v));
}

CUresult do_cuMemPoolSetAttribute(CUmemoryPool p, int which, void *v) {
  return from(sim_call_pool_set(p, which, v));
}

CUresult do_cuMemPoolTrimTo(CUmemoryPool p, size_t keep) {
  return from(sim_call_pool_trim(p, keep));
}

CUresult do_cuMemPoolSetAccess(CUmemoryPool p, const CUmemAccessDesc *map, size_t n) {
  return from(sim_call_pool_permit(p, map, n));
}

CUresult do_cuMemPoolGetAccess(int *flags, CUmemoryPool p, CUmemLocation *where) {
  return from(sim_call_pool_permitted(p, where, flags));
}

CUresult do_cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t n, CUmemoryPool pool, CUstream q) {
  return from(sim_call_pool_alloc(pool, n, q, p));
}

CUresult do_cuMemAllocAsync(CUdeviceptr *p, size_t n, CUstream q) {
  return from(sim_call_alloc_async(n, q, p));
}

CUresult do_cuMemFreeAsync(CUdeviceptr p, CUstream q) {
  return from(sim_call_free_async((uintptr_t)p, q));
}
