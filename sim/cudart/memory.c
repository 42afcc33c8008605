/* memory.c: memory, pools of it, and what a pointer is.
 *
 * It must not know about streams, except that some memory is given and taken back in one. */
#include <string.h>

#include "front.h"

static cudaError_t given(CUresult rc, const CUdeviceptr *address, void **p) {
  if (rc == CUDA_SUCCESS) *p = (void *)(uintptr_t)*address;
  return from(rc);
}

cudaError_t do_cudaMemGetInfo(size_t *unused, size_t *total) {
  TRY(context());
  return from(cuMemGetInfo_v2(unused, total));
}

/* Nothing is asked for by 0 bytes, and nothing given. */
cudaError_t do_cudaMalloc(void **p, size_t n) {
  CUdeviceptr address = 0;
  if (p == NULL) return cudaErrorInvalidValue;
  TRY(context());
  return given(n == 0 ? CUDA_SUCCESS : cuMemAlloc_v2(&address, n), &address, p);
}

cudaError_t do_cudaMallocPitch(void **p, size_t *pitch, size_t width, size_t height) {
  enum { UNIT = 16 };
  CUdeviceptr address = 0;
  if (p == NULL) return cudaErrorInvalidValue;
  TRY(context());
  return given(cuMemAllocPitch_v2(&address, pitch, width, height, UNIT), &address, p);
}

cudaError_t do_cudaMallocManaged(void **p, size_t n, unsigned flags) {
  CUdeviceptr address = 0;
  if (p == NULL) return cudaErrorInvalidValue;
  TRY(context());
  return given(cuMemAllocManaged(&address, n, flags), &address, p);
}

cudaError_t do_cudaFree(void *p) {
  TRY(context());
  return p == NULL ? cudaSuccess : from(cuMemFree_v2((uintptr_t)p));
}

cudaError_t do_cudaHostAlloc(void **p, size_t n, unsigned flags) {
  if (p == NULL) return cudaErrorInvalidValue;
  TRY(context());
  if (n > 0) return from(cuMemHostAlloc(p, n, flags));
  *p = NULL;
  return cudaSuccess;
}

cudaError_t do_cudaMallocHost(void **p, size_t n) {
  return do_cudaHostAlloc(p, n, 0);
}

cudaError_t do_cudaFreeHost(void *p) {
  TRY(context());
  return p == NULL ? cudaSuccess : from(cuMemFreeHost(p));
}

cudaError_t do_cudaHostRegister(void *p, size_t n, unsigned flags) {
  TRY(context());
  return from(cuMemHostRegister_v2(p, n, flags));
}

cudaError_t do_cudaHostUnregister(void *p) {
  TRY(context());
  return from(cuMemHostUnregister(p));
}

cudaError_t do_cudaHostGetDevicePointer(void **device, void *p, unsigned flags) {
  CUdeviceptr address = 0;
  if (device == NULL) return cudaErrorInvalidValue;
  TRY(context());
  return given(cuMemHostGetDevicePointer_v2(&address, p, flags), &address, device);
}

cudaError_t do_cudaHostGetFlags(unsigned *flags, void *p) {
  TRY(context());
  return from(cuMemHostGetFlags(flags, p));
}

cudaError_t prefetch(const void *p, size_t n, cudaMemLocation where, unsigned flags, cudaStream_t s) {
  TRY(context());
  return from(cuMemPrefetchAsync_v2((uintptr_t)p, n, where, flags, stream_of(s)));
}

/* Memory that nobody knows has the pointer itself as its address on the host, and no device. */
cudaError_t do_cudaPointerGetAttributes(cudaPointerAttributes *out, const void *p) {
  enum { MEMORY_TYPE = 2, DEVICE_POINTER = 3, HOST_POINTER = 4, IS_MANAGED = 8, DEVICE_ORDINAL = 9, N = 5 };
  unsigned type = 0;
  int managed = 0, device = 0;
  int which[N] = {MEMORY_TYPE, DEVICE_POINTER, HOST_POINTER, IS_MANAGED, DEVICE_ORDINAL};
  if (out == NULL) return cudaErrorInvalidValue;
  TRY(context());
  memset(out, 0, sizeof *out);
  void *values[N] = {&type, &out->devicePointer, &out->hostPointer, &managed, &device};
  TRY(from(cuPointerGetAttributes(N, which, values, (uintptr_t)p)));
  out->device = device;
  out->type = managed != 0 ? cudaMemoryTypeManaged
              : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
              : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
                                           : cudaMemoryTypeUnregistered;
  if (out->type == cudaMemoryTypeUnregistered) memcpy(&out->hostPointer, &p, sizeof p);
  return cudaSuccess;
}

cudaError_t do_cudaMallocAsync(void **p, size_t n, cudaStream_t s) {
  CUdeviceptr address = 0;
  if (p == NULL) return cudaErrorInvalidValue;
  TRY(context());
  return given(cuMemAllocAsync(&address, n, stream_of(s)), &address, p);
}

cudaError_t do_cudaMallocFromPoolAsync(void **p, size_t n, cudaMemPool_t pool, cudaStream_t s) {
  CUdeviceptr address = 0;
  if (p == NULL) return cudaErrorInvalidValue;
  TRY(context());
  return given(cuMemAllocFromPoolAsync(&address, n, pool, stream_of(s)), &address, p);
}

cudaError_t do_cudaFreeAsync(void *p, cudaStream_t s) {
  TRY(context());
  return from(cuMemFreeAsync((uintptr_t)p, stream_of(s)));
}

cudaError_t do_cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
  TRY(known_device(device));
  return from(cuDeviceGetDefaultMemPool(pool, device));
}

cudaError_t do_cudaDeviceGetMemPool(cudaMemPool_t *pool, int device) {
  TRY(known_device(device));
  return from(cuDeviceGetMemPool(pool, device));
}

cudaError_t do_cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  TRY(known_device(device));
  return from(cuDeviceSetMemPool(device, pool));
}

cudaError_t do_cudaMemPoolCreate(cudaMemPool_t *pool, const cudaMemPoolProps *props) {
  TRY(from(cuInit(0)));
  return from(cuMemPoolCreate(pool, props));
}

cudaError_t do_cudaMemPoolDestroy(cudaMemPool_t pool) {
  return from(cuMemPoolDestroy(pool));
}

cudaError_t do_cudaMemPoolGetAttribute(cudaMemPool_t pool, int which, void *value) {
  return from(cuMemPoolGetAttribute(pool, which, value));
}

cudaError_t do_cudaMemPoolSetAttribute(cudaMemPool_t pool, int which, void *value) {
  return from(cuMemPoolSetAttribute(pool, which, value));
}

cudaError_t do_cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
  return from(cuMemPoolTrimTo(pool, keep));
}

cudaError_t do_cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc *map, size_t n) {
  return from(cuMemPoolSetAccess(pool, map, n));
}

cudaError_t do_cudaMemPoolGetAccess(int *flags, cudaMemPool_t pool, cudaMemLocation *where) {
  return from(cuMemPoolGetAccess(flags, pool, where));
}

cudaError_t do_cudaMemPoolExportToShareableHandle(void *out, cudaMemPool_t pool, int kind, unsigned flags) {
  return from(cuMemPoolExportToShareableHandle(out, pool, kind, flags));
}

cudaError_t do_cudaMemPoolImportFromShareableHandle(cudaMemPool_t *pool, void *handle, int kind, unsigned flags) {
  TRY(context());
  return from(cuMemPoolImportFromShareableHandle(pool, handle, kind, flags));
}

cudaError_t do_cudaMemPoolExportPointer(cudaMemPoolPtrExportData *out, void *p) {
  return from(cuMemPoolExportPointer(out, (uintptr_t)p));
}

cudaError_t do_cudaMemPoolImportPointer(void **p, cudaMemPool_t pool, cudaMemPoolPtrExportData *data) {
  CUdeviceptr address = 0;
  if (p == NULL) return cudaErrorInvalidValue;
  TRY(context());
  return given(cuMemPoolImportPointer(&address, pool, data), &address, p);
}

cudaError_t do_cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *p) {
  TRY(context());
  return from(cuIpcGetMemHandle(handle, (uintptr_t)p));
}

cudaError_t do_cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t handle, unsigned flags) {
  CUdeviceptr address = 0;
  if (p == NULL) return cudaErrorInvalidValue;
  TRY(context());
  return given(cuIpcOpenMemHandle_v2(&address, handle, flags), &address, p);
}

cudaError_t do_cudaIpcCloseMemHandle(void *p) {
  TRY(context());
  return from(cuIpcCloseMemHandle((uintptr_t)p));
}

cudaError_t do_cudaDeviceGetGraphMemAttribute(int device, int which, void *value) {
  TRY(known_device(device));
  return from(cuDeviceGetGraphMemAttribute(device, which, value));
}

cudaError_t do_cudaDeviceSetGraphMemAttribute(int device, int which, void *value) {
  TRY(known_device(device));
  return from(cuDeviceSetGraphMemAttribute(device, which, value));
}

cudaError_t do_cudaDeviceGraphMemTrim(int device) {
  TRY(known_device(device));
  return from(cuDeviceGraphMemTrim(device));
}
