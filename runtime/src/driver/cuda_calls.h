/* cuda_calls.h: lists every function of the CUDA driver that is used, by the name and version under which
 * cuGetProcAddress knows it, with its signature. A list of macros and nothing else, so that a spec can compare it with
 * the toolkit's declarations. It must not declare a type. */
#ifndef MOONFERRY_CUDA_CALLS_H
#define MOONFERRY_CUDA_CALLS_H

/* A driver without one of these is not used. */
#define MF__CUDA_REQUIRED(X)                                                                                     \
  X(cuInit, 2000, (unsigned flags))                                                                              \
  X(cuGetErrorString, 6000, (CUresult code, const char **text))                                                  \
  X(cuDeviceGetCount, 2000, (int *count))                                                                        \
  X(cuDeviceGet, 2000, (CUdevice *device, int ordinal))                                                          \
  X(cuDeviceGetAttribute, 2000, (int *value, CUdevice_attribute which, CUdevice device))                         \
  X(cuDevicePrimaryCtxRetain, 7000, (CUcontext *context, CUdevice device))                                       \
  X(cuDevicePrimaryCtxRelease, 11000, (CUdevice device))                                                         \
  X(cuDevicePrimaryCtxGetState, 7000, (CUdevice device, unsigned *flags, int *active))                           \
  X(cuCtxGetCurrent, 4000, (CUcontext *context))                                                                 \
  X(cuCtxSetCurrent, 4000, (CUcontext context))                                                                  \
  X(cuCtxPushCurrent, 4000, (CUcontext context))                                                                 \
  X(cuCtxPopCurrent, 4000, (CUcontext *context))                                                                 \
  X(cuCtxGetDevice, 2000, (CUdevice *device))                                                                    \
  X(cuCtxSynchronize, 2000, (void))                                                                              \
  X(cuMemAlloc, 3020, (CUdeviceptr *out, size_t nbytes))                                                         \
  X(cuMemFree, 3020, (CUdeviceptr ptr))                                                                          \
  X(cuMemHostAlloc, 2020, (void **out, size_t nbytes, unsigned flags))                                           \
  X(cuMemFreeHost, 2000, (void *ptr))                                                                            \
  X(cuMemAllocManaged, 6000, (CUdeviceptr *out, size_t nbytes, unsigned flags))                                  \
  X(cuPointerGetAttributes, 7000, (unsigned count, CUpointer_attribute *which, void **out, CUdeviceptr ptr))     \
  X(cuMemcpyAsync, 4000, (CUdeviceptr dst, CUdeviceptr src, size_t nbytes, CUstream stream))                     \
  X(cuMemcpyPeerAsync, 4000,                                                                                     \
    (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t nbytes,              \
     CUstream stream))                                                                                           \
  X(cuMemcpy2DAsync, 3020, (const CUDA_MEMCPY2D *copy, CUstream stream))                                         \
  X(cuMemcpy3DAsync, 3020, (const CUDA_MEMCPY3D *copy, CUstream stream))                                         \
  X(cuMemsetD8Async, 3020, (CUdeviceptr dst, unsigned char value, size_t count, CUstream stream))                \
  X(cuMemsetD16Async, 3020, (CUdeviceptr dst, unsigned short value, size_t count, CUstream stream))              \
  X(cuMemsetD32Async, 3020, (CUdeviceptr dst, unsigned value, size_t count, CUstream stream))                    \
  X(cuMemsetD2D8Async, 3020,                                                                                     \
    (CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream))          \
  X(cuMemsetD2D16Async, 3020,                                                                                    \
    (CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream))         \
  X(cuMemsetD2D32Async, 3020,                                                                                    \
    (CUdeviceptr dst, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream))               \
  X(cuStreamCreate, 2000, (CUstream *out, unsigned flags))                                                       \
  X(cuStreamDestroy, 4000, (CUstream stream))                                                                    \
  X(cuStreamQuery, 2000, (CUstream stream))                                                                      \
  X(cuStreamSynchronize, 2000, (CUstream stream))                                                                \
  X(cuStreamWaitEvent, 3020, (CUstream stream, CUevent event, unsigned flags))                                   \
  X(cuStreamGetCtx, 9020, (CUstream stream, CUcontext *context))                                                 \
  X(cuStreamIsCapturing, 10000, (CUstream stream, CUstreamCaptureStatus *status))                                \
  X(cuThreadExchangeStreamCaptureMode, 10010, (CUstreamCaptureMode * mode))                                      \
  X(cuEventCreate, 2000, (CUevent *out, unsigned flags))                                                         \
  X(cuEventDestroy, 4000, (CUevent event))                                                                       \
  X(cuEventRecord, 2000, (CUevent event, CUstream stream))                                                       \
  X(cuEventQuery, 2000, (CUevent event))                                                                         \
  X(cuEventSynchronize, 2000, (CUevent event))

/* Without one of these its feature is off: which capture a stream is in, streams' names, pools, copies by kernel. */
#define MF__CUDA_OPTIONAL(X)                                                                                     \
  X(cuStreamGetCaptureInfo, 11030,                                                                               \
    (CUstream stream, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph,                               \
     const CUgraphNode **dependencies, size_t *count))                                                           \
  X(cuStreamGetId, 12000, (CUstream stream, unsigned long long *id))                                             \
  X(cuMemPoolCreate, 11020, (CUmemoryPool * out, const CUmemPoolProps *props))                                   \
  X(cuMemPoolDestroy, 11020, (CUmemoryPool pool))                                                                \
  X(cuMemPoolSetAttribute, 11020, (CUmemoryPool pool, CUmemPool_attribute which, void *value))                   \
  X(cuMemPoolTrimTo, 11020, (CUmemoryPool pool, size_t keep))                                                    \
  X(cuMemAllocFromPoolAsync, 11020, (CUdeviceptr *out, size_t nbytes, CUmemoryPool pool, CUstream stream))       \
  X(cuMemFreeAsync, 11020, (CUdeviceptr ptr, CUstream stream))                                                   \
  X(cuModuleLoadDataEx, 2010,                                                                                    \
    (CUmodule * out, const void *image, unsigned count, CUjit_option *options, void **values))                   \
  X(cuModuleUnload, 2000, (CUmodule module))                                                                     \
  X(cuModuleGetFunction, 2000, (CUfunction * out, CUmodule module, const char *name))                            \
  X(cuLaunchKernel, 4000,                                                                                        \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared_nbytes, CUstream stream, void **params, void **extra))                    \
  X(cuGraphicsGLRegisterBuffer, 3000, (CUgraphicsResource * out, unsigned buffer, unsigned flags))               \
  X(cuGraphicsGLRegisterImage, 3000,                                                                             \
    (CUgraphicsResource * out, unsigned texture, unsigned target, unsigned flags))                               \
  X(cuGraphicsSubResourceGetMappedArray, 3000,                                                                   \
    (CUarray * out, CUgraphicsResource resource, unsigned index, unsigned level))                                \
  X(cuArrayGetDescriptor, 3020, (CUDA_ARRAY_DESCRIPTOR * out, CUarray array))                                    \
  X(cuGraphicsUnregisterResource, 3000, (CUgraphicsResource resource))                                           \
  X(cuGraphicsResourceGetMappedPointer, 3020, (CUdeviceptr *out, size_t *nbytes, CUgraphicsResource resource))   \
  X(cuGraphicsMapResources, 3000, (unsigned count, CUgraphicsResource *resources, CUstream stream))              \
  X(cuGraphicsUnmapResources, 3000, (unsigned count, CUgraphicsResource *resources, CUstream stream))            \
  X(cuImportExternalMemory, 10000, (CUexternalMemory * out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memory))     \
  X(cuExternalMemoryGetMappedBuffer, 10000,                                                                      \
    (CUdeviceptr *out, CUexternalMemory memory, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *part))                   \
  X(cuDestroyExternalMemory, 10000, (CUexternalMemory memory))                                                   \
  X(cuImportExternalSemaphore, 10000,                                                                            \
    (CUexternalSemaphore * out, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *semaphore))                           \
  X(cuSignalExternalSemaphoresAsync, 10000,                                                                      \
    (const CUexternalSemaphore *semaphores, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *values,                 \
     unsigned count, CUstream stream))                                                                           \
  X(cuWaitExternalSemaphoresAsync, 10000,                                                                        \
    (const CUexternalSemaphore *semaphores, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *values,                   \
     unsigned count, CUstream stream))                                                                           \
  X(cuDestroyExternalSemaphore, 10000, (CUexternalSemaphore semaphore))

#endif
