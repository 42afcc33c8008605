/* graphics.c: OpenGL's buffers, by the names that the runtime has for them.
 *
 * It must not know what a mapping is made of. */
#include "front.h"

hipError_t do_hipGraphicsGLRegisterBuffer(hipGraphicsResource_t *out, unsigned buffer, unsigned flags) {
  return from(sim_call_gl_register(buffer, flags, out));
}

hipError_t do_hipGraphicsUnregisterResource(hipGraphicsResource_t r) {
  return from(sim_call_graphics_end(r));
}

hipError_t do_hipGraphicsResourceGetMappedPointer(void **p, size_t *nbytes, hipGraphicsResource_t r) {
  return from(sim_call_graphics_pointer(r, p, nbytes));
}

hipError_t do_hipGraphicsMapResources(int n, hipGraphicsResource_t *resources, hipStream_t s) {
  return from(sim_call_graphics_map(n < 0 ? 0 : (unsigned)n, (const void *const *)resources, s));
}

hipError_t do_hipGraphicsUnmapResources(int n, hipGraphicsResource_t *resources, hipStream_t s) {
  return from(sim_call_graphics_unmap(n < 0 ? 0 : (unsigned)n, (const void *const *)resources, s));
}
