/* cuda_graphics.c: OpenGL's buffers by the CUDA driver's calls. It must not know what a tensor is. */
#include "driver/cuda.h"

static bool has_graphics_calls(void) {
  return mf__cu.cuGraphicsGLRegisterBuffer != NULL && mf__cu.cuGraphicsUnregisterResource != NULL &&
         mf__cu.cuGraphicsResourceGetMappedPointer != NULL && mf__cu.cuGraphicsMapResources != NULL &&
         mf__cu.cuGraphicsUnmapResources != NULL;
}

/* The flags have CUDA's numbers (CUDA Driver API, CUgraphicsRegisterFlags). */
int mf__cuda_graphics_register(uint32_t buffer, uint32_t flags, void **out, mf_error *err) {
  CUgraphicsResource resource = NULL;
  if (!has_graphics_calls()) return mf__fail(err, MF_EDEVICE, "the CUDA driver has no calls for OpenGL's buffers");
  const int rc = MF__ASK(cuGraphicsGLRegisterBuffer, (&resource, buffer, flags));
  *out = rc == MF_OK ? resource : NULL;
  return rc;
}

int mf__cuda_graphics_unregister(void *resource, mf_error *err) {
  return MF__ASK(cuGraphicsUnregisterResource, (resource));
}

int mf__cuda_graphics_map(void *resource, mf_stream stream, void **data, size_t *nbytes, mf_error *err) {
  CUgraphicsResource one = resource;
  CUdeviceptr ptr = 0;
  int rc = MF__ASK(cuGraphicsMapResources, (1, &one, mf__cuda_stream(stream)));
  if (rc != MF_OK) return rc;
  rc = MF__ASK(cuGraphicsResourceGetMappedPointer, (&ptr, nbytes, resource));
  if (rc != MF_OK) (void)mf__cu.cuGraphicsUnmapResources(1, &one, mf__cuda_stream(stream));
  *data = (void *)(uintptr_t)ptr;
  return rc;
}

int mf__cuda_graphics_unmap(void *resource, mf_stream stream, mf_error *err) {
  CUgraphicsResource one = resource;
  return MF__ASK(cuGraphicsUnmapResources, (1, &one, mf__cuda_stream(stream)));
}
