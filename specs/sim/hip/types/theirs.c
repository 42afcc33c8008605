/* theirs.c: the table as the public header has it. */
#include <hip/hip_runtime_api.h>
#include <hip/hip_version.h>

#if HIP_VERSION_MAJOR >= 6
#define SINCE_ROCM_6
#endif
#include "types.h"

const entry *their_entries(size_t *n);
const entry *their_entries(size_t *n) {
  *n = sizeof entries / sizeof *entries;
  return entries;
}
