/* graphics.c: OpenGL's buffers, by the names that the driver has for them.
 *
 * It must not know what a mapping is made of. */
#include "front.h"

CUresult do_cuGraphicsGLRegisterBuffer(CUgraphicsResource *out, unsigned buffer, unsigned flags) {
  return from(sim_call_gl_register(buffer, flags, out));
}

CUresult do_cuGraphicsUnregisterResource(CUgraphicsResource r) {
  return from(sim_call_graphics_end(r));
}

CUresult do_cuGraphicsResourceSetMapFlags_v2(CUgraphicsResource r, unsigned flags) {
  return from(sim_call_graphics_flags(r, flags));
}

CUresult do_cuGraphicsResourceGetMappedPointer_v2(CUdeviceptr *p, size_t *nbytes, CUgraphicsResource r) {
  return from(sim_call_graphics_pointer(r, p, nbytes));
}

CUresult do_cuGraphicsMapResources(unsigned n, CUgraphicsResource *resources, CUstream s) {
  return from(sim_call_graphics_map(n, (const void *const *)resources, s));
}

CUresult do_cuGraphicsUnmapResources(unsigned n, CUgraphicsResource *resources, CUstream s) {
  return from(sim_call_graphics_unmap(n, (const void *const *)resources, s));
}
