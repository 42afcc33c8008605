/* theirs_cuda.c: the CUDA driver's declarations as the toolkit has them, and whether each function that the runtime
 * asks for has the signature that it takes it to have, in the version that it names: that this compiles says so. */
#include <cuda.h>
#include <cudaGL.h>
#include <cudaGLTypedefs.h>
#include <cudaTypedefs.h>

#include "driver/cuda_calls.h"
#include "table.h"

/* cuGetProcAddress gives the newest that is not newer than what is asked for, so the version is the function's own. */
#define CHECKED(name, version, params)                                                              \
  _Static_assert(__builtin_types_compatible_p(CUresult(CUDAAPI *) params, PFN_##name##_v##version), \
                 "signature of " #name);
MF__CUDA_REQUIRED(CHECKED)
MF__CUDA_OPTIONAL(CHECKED)

const type_entry *their_cuda(size_t *n) {
  *n = NENTRIES;
  return entries;
}
