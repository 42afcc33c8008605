/* pool.c: memory pools and stream-ordered allocation.
 *
 * Attributes, access flags and kinds of location have the same numbers on both sides. It must not know how a pool
 * reuses memory. */
#include "forward.h"

static hipError_t named(hipMemPool_t *out, CUmemoryPool p, hipError_t rc) {
  if (rc == hipSuccess) *out = (hipMemPool_t)p;
  return rc;
}

hipError_t do_hipDeviceGetDefaultMemPool(hipMemPool_t *p, int device) {
  CUmemoryPool pool = NULL;
  if (p == NULL) return hipErrorInvalidValue;
  const hipError_t rc = DO(cuDeviceGetDefaultMemPool, &pool, device);
  return named(p, pool, rc);
}

hipError_t do_hipDeviceGetMemPool(hipMemPool_t *p, int device) {
  CUmemoryPool pool = NULL;
  if (p == NULL) return hipErrorInvalidValue;
  const hipError_t rc = DO(cuDeviceGetMemPool, &pool, device);
  return named(p, pool, rc);
}

hipError_t do_hipDeviceSetMemPool(int device, hipMemPool_t p) {
  return DO(cuDeviceSetMemPool, device, (CUmemoryPool)p);
}

static CUmemLocation location_of(const hipMemLocation *where) {
  return (CUmemLocation){(CUmemLocationType)where->type, where->id};
}

hipError_t do_hipMemPoolCreate(hipMemPool_t *p, const hipMemPoolProps *props) {
  CUmemoryPool pool = NULL;
  if (p == NULL || props == NULL) return hipErrorInvalidValue;
  const CUmemPoolProps theirs = {.allocType = (CUmemAllocationType)props->allocType,
                                 .handleTypes = props->handleTypes,
                                 .location = location_of(&props->location),
                                 .maxSize = props->maxSize};
  const hipError_t rc = DO(cuMemPoolCreate, &pool, &theirs);
  return named(p, pool, rc);
}

hipError_t do_hipMemPoolDestroy(hipMemPool_t p) {
  return DO(cuMemPoolDestroy, (CUmemoryPool)p);
}

hipError_t do_hipMemPoolGetAttribute(hipMemPool_t p, int which, void *v) {
  return DO(cuMemPoolGetAttribute, (CUmemoryPool)p, which, v);
}

hipError_t do_hipMemPoolSetAttribute(hipMemPool_t p, int which, void *v) {
  return DO(cuMemPoolSetAttribute, (CUmemoryPool)p, which, v);
}

hipError_t do_hipMemPoolTrimTo(hipMemPool_t p, size_t keep) {
  return DO(cuMemPoolTrimTo, (CUmemoryPool)p, keep);
}

hipError_t do_hipMemPoolSetAccess(hipMemPool_t p, const hipMemAccessDesc *map, size_t n) {
  if (map == NULL && n > 0) return hipErrorInvalidValue;
  for (size_t i = 0; i < n; i++) {
    const CUmemAccessDesc theirs = {location_of(&map[i].location), map[i].flags};
    TRY(DO(cuMemPoolSetAccess, (CUmemoryPool)p, &theirs, 1));
  }
  return hipSuccess;
}

hipError_t do_hipMemPoolGetAccess(int *flags, hipMemPool_t p, hipMemLocation *where) {
  if (flags == NULL || where == NULL) return hipErrorInvalidValue;
  CUmemLocation theirs = location_of(where);
  return DO(cuMemPoolGetAccess, flags, (CUmemoryPool)p, &theirs);
}

static hipError_t given(void **p, CUdeviceptr at, hipError_t rc) {
  if (rc == hipSuccess) *p = (void *)(uintptr_t)at;
  return rc;
}

hipError_t do_hipMallocAsync(void **p, size_t n, hipStream_t s) {
  CUdeviceptr at = 0;
  if (p == NULL) return hipErrorInvalidValue;
  const hipError_t rc = DO(cuMemAllocAsync, &at, n, forward_stream(s));
  return given(p, at, rc);
}

hipError_t do_hipMallocFromPoolAsync(void **p, size_t n, hipMemPool_t pool, hipStream_t s) {
  CUdeviceptr at = 0;
  if (p == NULL) return hipErrorInvalidValue;
  const hipError_t rc = DO(cuMemAllocFromPoolAsync, &at, n, (CUmemoryPool)pool, forward_stream(s));
  return given(p, at, rc);
}

hipError_t do_hipFreeAsync(void *p, hipStream_t s) {
  return p == NULL ? hipSuccess : DO(cuMemFreeAsync, (CUdeviceptr)(uintptr_t)p, forward_stream(s));
}
