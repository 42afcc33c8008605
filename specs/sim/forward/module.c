/* module.c: kernels, of which there are none here: what hiprtc compiles is for AMD's GPUs. */
#include "forward.h"

hipError_t do_hipModuleLoadData(hipModule_t *out, const void *image) {
  (void)out;
  (void)image;
  return hipErrorNotSupported;
}

hipError_t do_hipModuleUnload(hipModule_t m) {
  (void)m;
  return hipErrorNotSupported;
}

hipError_t do_hipModuleGetFunction(hipFunction_t *out, hipModule_t m, const char *name) {
  (void)out;
  (void)m;
  (void)name;
  return hipErrorNotSupported;
}

hipError_t do_hipModuleLaunchKernel(hipFunction_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                    unsigned bz, unsigned shared, hipStream_t s, void **params, void **extra) {
  (void)f;
  (void)s;
  (void)params;
  (void)extra;
  return gx == 0 || gy == 0 || gz == 0 || bx == 0 || by == 0 || bz == 0 || shared > 0 ? hipErrorInvalidValue
                                                                                      : hipErrorNotSupported;
}
