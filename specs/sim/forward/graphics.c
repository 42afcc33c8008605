/* graphics.c: OpenGL's buffers and textures, and their arrays.
 *
 * A resource and an array are CUDA's under HIP's names. It must not know about streams. */
#include "forward.h"

hipError_t do_hipGraphicsGLRegisterBuffer(hipGraphicsResource_t *out, unsigned buffer, unsigned flags) {
  return DO(cuGraphicsGLRegisterBuffer, (CUgraphicsResource *)out, buffer, flags);
}

hipError_t do_hipGraphicsGLRegisterImage(hipGraphicsResource_t *out, unsigned texture, unsigned target,
                                         unsigned flags) {
  return DO(cuGraphicsGLRegisterImage, (CUgraphicsResource *)out, texture, target, flags);
}

hipError_t do_hipGraphicsSubResourceGetMappedArray(hipArray_t *out, hipGraphicsResource_t r, unsigned index,
                                                   unsigned level) {
  return DO(cuGraphicsSubResourceGetMappedArray, (CUarray *)out, (CUgraphicsResource)r, index, level);
}

hipError_t do_hipArrayGetDescriptor(HIP_ARRAY_DESCRIPTOR *out, hipArray_t a) {
  return DO(cuArrayGetDescriptor_v2, (CUDA_ARRAY_DESCRIPTOR *)out, (CUarray)a);
}

hipError_t do_hipArray3DGetDescriptor(HIP_ARRAY3D_DESCRIPTOR *out, hipArray_t a) {
  return DO(cuArray3DGetDescriptor_v2, (CUDA_ARRAY3D_DESCRIPTOR *)out, (CUarray)a);
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
