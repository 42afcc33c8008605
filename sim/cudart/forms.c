/* forms.c: the calls that CUDA 12 and CUDA 13 declare differently, made of what both can do.
 *
 * It must not know what such a call does. */
#include <string.h>

#include "front.h"

#if CUDART_MAJOR == 12

/* The form of CUDA 11, whose structure ends earlier. */
cudaError_t do_cudaGetDeviceProperties(cudaDeviceProp *prop, int device) {
  cudaDeviceProp all;
  if (prop == NULL) return cudaErrorInvalidValue;
  TRY(properties_of(device, &all));
  memcpy(prop, &all, offsetof(cudaDeviceProp, hostRegisterSupported));
  return cudaSuccess;
}

cudaError_t do_cudaGetDeviceProperties_v2(cudaDeviceProp *prop, int device) {
  return properties_of(device, prop);
}

cudaError_t do_cudaMemPrefetchAsync(const void *p, size_t n, int device, cudaStream_t s) {
  enum { THE_HOST = -1 };
  const cudaMemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0}, there = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return prefetch(p, n, device == THE_HOST ? host : there, 0, s);
}

cudaError_t do_cudaMemPrefetchAsync_v2(const void *p, size_t n, cudaMemLocation where, unsigned flags,
                                       cudaStream_t s) {
  return prefetch(p, n, where, flags, s);
}

cudaError_t do_cudaStreamGetCaptureInfo(cudaStream_t s, cudaStreamCaptureStatus *status, unsigned long long *id) {
  return capture_info(s, &(capture_answer){status, id, NULL, NULL, NULL, NULL});
}

cudaError_t do_cudaStreamGetCaptureInfo_v2(cudaStream_t s, cudaStreamCaptureStatus *status, unsigned long long *id,
                                           cudaGraph_t *g, const cudaGraphNode_t **deps, size_t *n) {
  return capture_info(s, &(capture_answer){status, id, g, deps, NULL, n});
}

cudaError_t do_cudaStreamGetCaptureInfo_v3(cudaStream_t s, cudaStreamCaptureStatus *status, unsigned long long *id,
                                           cudaGraph_t *g, const cudaGraphNode_t **deps,
                                           const cudaGraphEdgeData **edges, size_t *n) {
  return capture_info(s, &(capture_answer){status, id, g, deps, edges, n});
}

cudaError_t do_cudaEventElapsedTime_v2(float *ms, cudaEvent_t a, cudaEvent_t b) {
  return do_cudaEventElapsedTime(ms, a, b);
}

#else

cudaError_t do_cudaGetDeviceProperties(cudaDeviceProp *prop, int device) {
  return properties_of(device, prop);
}

cudaError_t do_cudaMemPrefetchAsync(const void *p, size_t n, cudaMemLocation where, unsigned flags, cudaStream_t s) {
  return prefetch(p, n, where, flags, s);
}

cudaError_t do_cudaStreamGetCaptureInfo(cudaStream_t s, cudaStreamCaptureStatus *status, unsigned long long *id,
                                        cudaGraph_t *g, const cudaGraphNode_t **deps, const cudaGraphEdgeData **edges,
                                        size_t *n) {
  return capture_info(s, &(capture_answer){status, id, g, deps, edges, n});
}

#endif
