/* graphics.c: OpenGL's buffers and textures, and arrays, by the names that the driver has for them.
 *
 * It must not know what a mapping is made of. */
#include "front.h"

CUresult do_cuGraphicsGLRegisterBuffer(CUgraphicsResource *out, unsigned buffer, unsigned flags) {
  return from(sim_call_gl_register(buffer, flags, out));
}

CUresult do_cuGraphicsGLRegisterImage(CUgraphicsResource *out, unsigned texture, unsigned target, unsigned flags) {
  return from(sim_call_gl_register_image(texture, target, flags, out));
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

CUresult do_cuGraphicsSubResourceGetMappedArray(CUarray *out, CUgraphicsResource r, unsigned index, unsigned level) {
  return from(sim_call_graphics_array(r, index, level, out));
}

CUresult do_cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *out, CUarray a) {
  sim_image form;
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(from(sim_call_array_form(a, &form)));
  *out = (CUDA_ARRAY_DESCRIPTOR){form.width, form.height, (CUarray_format)form.format, form.channels};
  return CUDA_SUCCESS;
}

CUresult do_cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *out, CUarray a) {
  sim_image form;
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(from(sim_call_array_form(a, &form)));
  *out = (CUDA_ARRAY3D_DESCRIPTOR){form.width, form.height, 0, (CUarray_format)form.format, form.channels, 0};
  return CUDA_SUCCESS;
}
