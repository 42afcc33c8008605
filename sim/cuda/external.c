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

CUresult do_cuImportExternalSemaphore(CUexternalSemaphore *out, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *desc) {
  if (desc == NULL) return CUDA_ERROR_INVALID_VALUE;
  const bool binary = desc->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD;
  if (!binary && desc->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD)
    return CUDA_ERROR_NOT_SUPPORTED;
  return from(sim_call_semaphore_import(desc->handle.fd, binary, desc->flags, out));
}

CUresult do_cuSignalExternalSemaphoresAsync(const CUexternalSemaphore *m,
                                            const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *values, unsigned n,
                                            CUstream s) {
  return from(sim_call_semaphores((const void *const *)m, values, sizeof *values, n, s, SIM_SIGNAL));
}

CUresult do_cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *m,
                                          const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *values, unsigned n, CUstream s) {
  return from(sim_call_semaphores((const void *const *)m, values, sizeof *values, n, s, SIM_WAIT));
}

CUresult do_cuDestroyExternalSemaphore(CUexternalSemaphore m) {
  return from(sim_call_semaphore_end(m));
}
