/* graphics.c: OpenGL's buffers and textures, and arrays, by the names that the runtime has for them.
 *
 * It must not know what a mapping is made of. */
#include "front.h"

hipError_t do_hipGraphicsGLRegisterBuffer(hipGraphicsResource_t *out, unsigned buffer, unsigned flags) {
  return from(sim_call_gl_register(buffer, flags, out));
}

hipError_t do_hipGraphicsGLRegisterImage(hipGraphicsResource_t *out, unsigned texture, unsigned target,
                                         unsigned flags) {
  return from(sim_call_gl_register_image(texture, target, flags, out));
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

hipError_t do_hipGraphicsSubResourceGetMappedArray(hipArray_t *out, hipGraphicsResource_t r, unsigned index,
                                                   unsigned level) {
  return from(sim_call_graphics_array(r, index, level, out));
}

hipError_t do_hipArrayGetDescriptor(HIP_ARRAY_DESCRIPTOR *out, hipArray_t a) {
  sim_image form;
  if (out == NULL) return hipErrorInvalidValue;
  TRY(from(sim_call_array_form(a, &form)));
  *out = (HIP_ARRAY_DESCRIPTOR){form.width, form.height, (hipArray_Format)form.format, form.channels};
  return hipSuccess;
}

hipError_t do_hipArray3DGetDescriptor(HIP_ARRAY3D_DESCRIPTOR *out, hipArray_t a) {
  sim_image form;
  if (out == NULL) return hipErrorInvalidValue;
  TRY(from(sim_call_array_form(a, &form)));
  *out = (HIP_ARRAY3D_DESCRIPTOR){form.width, form.height, 0, (hipArray_Format)form.format, form.channels, 0};
  return hipSuccess;
}
