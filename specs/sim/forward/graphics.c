/* graphics.c: OpenGL's buffers.
 *
 * A resource is CUDA's under HIP's name. It must not know about streams. */
#include "forward.h"

hipError_t do_hipGraphicsGLRegisterBuffer(hipGraphicsResource_t *out, unsigned buffer, unsigned flags) {
  return DO(cuGraphicsGLRegisterBuffer, (CUgraphicsResource *)out, buffer, flags);
}

hipError_t do_hipGraphicsUnregisterResource(hipGraphicsResource_t r) {
  return DO(cuGraphicsUnregisterResource, (CUgraphicsResource)r);
}

hipError_t do_hipGraphicsResourceGetMappedPointer(void **p, size_t *nbytes, hipGraphicsResource_t r) {
  return DO(cuGraphicsResourceGetMappedPointer_v2, (CUdeviceptr *)p, nbytes, (CUgraphicsResource)r);
}

hipError_t do_hipGraphicsMapResources(int n, hipGraphicsResource_t *resources, hipStream_t s) {
  if (n <= 0) return hipErrorInvalidValue;
  return DO(cuGraphicsMapResources, (unsigned)n, (CUgraphicsResource *)resources, forward_stream(s));
}

hipError_t do_hipGraphicsUnmapResources(int n, hipGraphicsResource_t *resources, hipStream_t s) {
  if (n <= 0) return hipErrorInvalidValue;
  return DO(cuGraphicsUnmapResources, (unsigned)n, (CUgraphicsResource *)resources, forward_stream(s));
}
