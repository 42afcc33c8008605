/* hip_calls.h: lists every function of the HIP runtime that is used, with its result and its signature. A list of
 * macros and nothing else, so that a spec can compare it with the public header. It must not declare a type. */
#ifndef MOONFERRY_HIP_CALLS_H
#define MOONFERRY_HIP_CALLS_H

/* A runtime without one of these is not used; ROCm 5.2 has them all. */
#define MF__HIP_REQUIRED(X)                                                                                      \
  X(hipError_t, hipInit, (unsigned flags))                                                                       \
  X(hipError_t, hipRuntimeGetVersion, (int *version))                                                            \
  X(const char *, hipGetErrorString, (hipError_t code))                                                          \
  X(hipError_t, hipGetLastError, (void))                                                                         \
  X(hipError_t, hipPeekAtLastError, (void))                                                                      \
  X(hipError_t, hipGetDeviceCount, (int *count))                                                                 \
  X(hipError_t, hipGetDevice, (int *device))                                                                     \
  X(hipError_t, hipSetDevice, (int device))                                                                      \
  X(hipError_t, hipDeviceGetAttribute, (int *value, hipDeviceAttribute_t which, int device))                     \
  X(hipError_t, hipDeviceSynchronize, (void))                                                                    \
  X(hipError_t, hipMalloc, (void **out, size_t nbytes))                                                          \
  X(hipError_t, hipFree, (void *ptr))                                                                            \
  X(hipError_t, hipHostMalloc, (void **out, size_t nbytes, unsigned flags))                                      \
  X(hipError_t, hipHostFree, (void *ptr))                                                                        \
  X(hipError_t, hipPointerGetAttributes, (hipPointerAttribute_t *out, const void *ptr))                          \
  X(hipError_t, hipMemcpyAsync,                                                                                  \
    (void *dst, const void *src, size_t nbytes, hipMemcpyKind kind, hipStream_t stream))                         \
  X(hipError_t, hipMemcpy2DAsync,                                                                                \
    (void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height,                \
     hipMemcpyKind kind, hipStream_t stream))                                                                    \
  X(hipError_t, hipMemcpy3DAsync, (const hipMemcpy3DParms *copy, hipStream_t stream))                            \
  X(hipError_t, hipMemcpyPeerAsync,                                                                              \
    (void *dst, int dst_device, const void *src, int src_device, size_t nbytes, hipStream_t stream))             \
  X(hipError_t, hipMemsetD8Async, (hipDeviceptr_t dst, unsigned char value, size_t count, hipStream_t stream))   \
  X(hipError_t, hipMemsetD16Async, (hipDeviceptr_t dst, unsigned short value, size_t count, hipStream_t stream)) \
  X(hipError_t, hipMemsetD32Async, (hipDeviceptr_t dst, int value, size_t count, hipStream_t stream))            \
  X(hipError_t, hipMemset2DAsync,                                                                                \
    (void *dst, size_t pitch, int value, size_t width, size_t height, hipStream_t stream))                       \
  X(hipError_t, hipStreamCreateWithFlags, (hipStream_t *out, unsigned flags))                                    \
  X(hipError_t, hipStreamDestroy, (hipStream_t stream))                                                          \
  X(hipError_t, hipStreamQuery, (hipStream_t stream))                                                            \
  X(hipError_t, hipStreamSynchronize, (hipStream_t stream))                                                      \
  X(hipError_t, hipStreamWaitEvent, (hipStream_t stream, hipEvent_t event, unsigned flags))                      \
  X(hipError_t, hipStreamIsCapturing, (hipStream_t stream, hipStreamCaptureStatus *status))                      \
  X(hipError_t, hipThreadExchangeStreamCaptureMode, (hipStreamCaptureMode *mode))                                \
  X(hipError_t, hipEventCreateWithFlags, (hipEvent_t *out, unsigned flags))                                      \
  X(hipError_t, hipEventDestroy, (hipEvent_t event))                                                             \
  X(hipError_t, hipEventRecord, (hipEvent_t event, hipStream_t stream))                                          \
  X(hipError_t, hipEventQuery, (hipEvent_t event))                                                               \
  X(hipError_t, hipEventSynchronize, (hipEvent_t event))

/* Without one of these its feature is off: which capture a stream is in, which device (one of two suffices), pools. */
#define MF__HIP_OPTIONAL(X)                                                                                      \
  X(hipError_t, hipStreamGetCaptureInfo,                                                                         \
    (hipStream_t stream, hipStreamCaptureStatus *status, unsigned long long *id))                                \
  X(hipError_t, hipStreamGetDevice, (hipStream_t stream, hipDevice_t *device))                                   \
  X(int, hipGetStreamDeviceId, (hipStream_t stream))                                                             \
  X(hipError_t, hipMemPoolCreate, (hipMemPool_t *out, const hipMemPoolProps *props))                             \
  X(hipError_t, hipMemPoolDestroy, (hipMemPool_t pool))                                                          \
  X(hipError_t, hipMemPoolSetAttribute, (hipMemPool_t pool, hipMemPoolAttr which, void *value))                  \
  X(hipError_t, hipMemPoolTrimTo, (hipMemPool_t pool, size_t keep))                                              \
  X(hipError_t, hipMallocFromPoolAsync, (void **out, size_t nbytes, hipMemPool_t pool, hipStream_t stream))      \
  X(hipError_t, hipFreeAsync, (void *ptr, hipStream_t stream))                                                   \
  X(hipError_t, hipGraphicsGLRegisterBuffer, (hipGraphicsResource_t *out, unsigned buffer, unsigned flags))      \
  X(hipError_t, hipGraphicsGLRegisterImage,                                                                      \
    (hipGraphicsResource_t *out, unsigned texture, unsigned target, unsigned flags))                             \
  X(hipError_t, hipGraphicsSubResourceGetMappedArray,                                                            \
    (hipArray_t *out, hipGraphicsResource_t resource, unsigned index, unsigned level))                           \
  X(hipError_t, hipArrayGetDescriptor, (HIP_ARRAY_DESCRIPTOR *out, hipArray_t array))                            \
  X(hipError_t, hipMemcpy2DToArrayAsync,                                                                         \
    (hipArray_t dst, size_t x, size_t y, const void *src, size_t pitch, size_t width, size_t height,             \
     hipMemcpyKind kind, hipStream_t stream))                                                                    \
  X(hipError_t, hipMemcpy2DFromArrayAsync,                                                                       \
    (void *dst, size_t pitch, hipArray_const_t src, size_t x, size_t y, size_t width, size_t height,             \
     hipMemcpyKind kind, hipStream_t stream))                                                                    \
  X(hipError_t, hipGraphicsUnregisterResource, (hipGraphicsResource_t resource))                                 \
  X(hipError_t, hipGraphicsResourceGetMappedPointer, (void **out, size_t *nbytes, hipGraphicsResource_t resource)) \
  X(hipError_t, hipGraphicsMapResources, (int count, hipGraphicsResource_t *resources, hipStream_t stream))      \
  X(hipError_t, hipGraphicsUnmapResources, (int count, hipGraphicsResource_t *resources, hipStream_t stream))    \
  X(hipError_t, hipImportExternalMemory, (hipExternalMemory_t *out, const hipExternalMemoryHandleDesc *memory))  \
  X(hipError_t, hipExternalMemoryGetMappedBuffer,                                                                \
    (void **out, hipExternalMemory_t memory, const hipExternalMemoryBufferDesc *part))                           \
  X(hipError_t, hipDestroyExternalMemory, (hipExternalMemory_t memory))                                          \
  X(hipError_t, hipImportExternalSemaphore,                                                                      \
    (hipExternalSemaphore_t *out, const hipExternalSemaphoreHandleDesc *semaphore))                              \
  X(hipError_t, hipSignalExternalSemaphoresAsync,                                                                \
    (const hipExternalSemaphore_t *semaphores, const hipExternalSemaphoreSignalParams *values,                   \
     unsigned count, hipStream_t stream))                                                                        \
  X(hipError_t, hipWaitExternalSemaphoresAsync,                                                                  \
    (const hipExternalSemaphore_t *semaphores, const hipExternalSemaphoreWaitParams *values,                     \
     unsigned count, hipStream_t stream))                                                                        \
  X(hipError_t, hipDestroyExternalSemaphore, (hipExternalSemaphore_t semaphore))                                 \
  X(hipError_t, hipModuleLoadData, (hipModule_t * out, const void *image))                                       \
  X(hipError_t, hipModuleUnload, (hipModule_t module))                                                           \
  X(hipError_t, hipModuleGetFunction, (hipFunction_t * out, hipModule_t module, const char *name))               \
  X(hipError_t, hipModuleLaunchKernel,                                                                           \
    (hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,                \
     unsigned block_y, unsigned block_z, unsigned shared_nbytes, hipStream_t stream, void **params, void **extra))

/* Of hiprtc: without one of these there are no kernels. */
#define MF__HIPRTC_REQUIRED(X)                                                                                   \
  X(const char *, hiprtcGetErrorString, (hiprtcResult code))                                                     \
  X(hiprtcResult, hiprtcCreateProgram,                                                                           \
    (hiprtcProgram * out, const char *text, const char *name, int nheaders, const char **headers,                \
     const char **header_names))                                                                                 \
  X(hiprtcResult, hiprtcDestroyProgram, (hiprtcProgram * program))                                               \
  X(hiprtcResult, hiprtcCompileProgram, (hiprtcProgram program, int noptions, const char **options))             \
  X(hiprtcResult, hiprtcGetProgramLogSize, (hiprtcProgram program, size_t *nbytes))                              \
  X(hiprtcResult, hiprtcGetProgramLog, (hiprtcProgram program, char *out))                                       \
  X(hiprtcResult, hiprtcGetCodeSize, (hiprtcProgram program, size_t *nbytes))                                    \
  X(hiprtcResult, hiprtcGetCode, (hiprtcProgram program, char *out))

#endif
