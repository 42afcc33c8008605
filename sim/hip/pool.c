/* pool.c: memory pools and stream-ordered allocation, by their names in the runtime.
 *
 * It must not know what a pool does. */
#include "front.h"

_Static_assert(sizeof(hipMemLocation) == sizeof(sim_location) &&
                   offsetof(hipMemLocation, id) == offsetof(sim_location, id) &&
                   sizeof(hipMemAccessDesc) == sizeof(sim_permit) &&
                   offsetof(hipMemAccessDesc, flags) == offsetof(sim_permit, flags) &&
                   (int)hipMemLocationTypeDevice == SIM_AT_DEVICE &&
                   (int)hipMemAllocationTypePinned == SIM_PINNED_TO_IT,
               "calls/pool.c reads what the program gives");

hipError_t do_hipDeviceGetDefaultMemPool(hipMemPool_t *p, int d) {
  return from(sim_call_pool_default(d, p));
}

hipError_t do_hipDeviceGetMemPool(hipMemPool_t *p, int d) {
  return from(sim_call_pool_current(d, p));
}

hipError_t do_hipDeviceSetMemPool(int d, hipMemPool_t p) {
  return from(sim_call_pool_choose(d, p));
}

hipError_t do_hipMemPoolCreate(hipMemPool_t *p, const hipMemPoolProps *props) {
  if (props == NULL) return hipErrorInvalidValue;
  return from(sim_call_pool_new(&props->location, (int)props->allocType, (unsigned)props->handleTypes, p));
}

hipError_t do_hipMemPoolDestroy(hipMemPool_t p) {
  return from(sim_call_pool_end(p));
}

hipError_t do_hipMemPoolGetAttribute(hipMemPool_t p, int which, void *v) {
  return from(sim_call_pool_get(p, which, v));
}

hipError_t do_hipMemPoolSetAttribute(hipMemPool_t p, int which, void *v) {
  return from(sim_call_pool_set(p, which, v));
}

hipError_t do_hipMemPoolTrimTo(hipMemPool_t p, size_t keep) {
  return from(sim_call_pool_trim(p, keep));
}

hipError_t do_hipMemPoolSetAccess(hipMemPool_t p, const hipMemAccessDesc *map, size_t n) {
  return from(sim_call_pool_permit(p, map, n));
}

hipError_t do_hipMemPoolGetAccess(int *flags, hipMemPool_t p, hipMemLocation *where) {
  return from(sim_call_pool_permitted(p, where, flags));
}

hipError_t do_hipMallocFromPoolAsync(void **p, size_t n, hipMemPool_t pool, hipStream_t q) {
  return from(sim_call_pool_alloc(pool, n, q, p));
}

hipError_t do_hipMallocAsync(void **p, size_t n, hipStream_t q) {
  return from(sim_call_alloc_async(n, q, p));
}

hipError_t do_hipFreeAsync(void *p, hipStream_t q) {
  return from(sim_call_free_async((uintptr_t)p, q));
}
