/* theirs_hip.c: the HIP runtime's declarations as the public header has them, and whether each function that the
 * runtime asks for has the signature that it takes it to have: that this compiles says so. */
#include <hip/hip_runtime_api.h>
#include <hip/hip_version.h>
#if HIP_VERSION_MAJOR >= 6
#include <GL/gl.h>
#include <hip/amd_detail/amd_hip_gl_interop.h>
#endif

#define OF_HIP
#if HIP_VERSION_MAJOR >= 6
#define SINCE_ROCM_6
#endif
#include "driver/hip_calls.h"
#include "table.h"

#define CHECKED(result, name, params) \
  _Static_assert(__builtin_types_compatible_p(result(*) params, __typeof__(&name)), "signature of " #name);
MF__HIP_REQUIRED(CHECKED)
#ifdef SINCE_ROCM_6
MF__HIP_OPTIONAL(CHECKED)
#endif

const type_entry *their_hip(size_t *n) {
  *n = NENTRIES;
  return entries;
}
