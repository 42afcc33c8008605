/* external.c: other APIs' memory, by the names that the driver has for it.
 *
 * It must not know whose memory it is. */
#include "front.h"

CUresult do_cuImportExternalMemory(CUexternalMemory *out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc) {
  enum { DEDICATED = 1 };
  if (desc == NULL || desc->flags > DEDICATED) return CUDA_ERROR_INVALID_VALUE;
  if (desc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD) return CUDA_ERROR_NOT_SUPPORTED;
  return from(sim_call_external_import(desc->handle.fd, desc->size, out));
}

CUresult do_cuExternalMemoryGetMappedBuffer(CUdeviceptr *p, CUexternalMemory m,
                                            const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc) {
  if (desc == NULL || desc->flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return from(sim_call_external_map(m, desc->offset, desc->size, p));
}

CUresult do_cuDestroyExternalMemory(CUexternalMemory m) {
  return from(sim_call_external_end(m));
}
