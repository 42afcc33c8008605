/* external.c: other APIs' memory and semaphores. The two drivers' descriptions of it are laid out alike.
 *
 * It must not know whose memory it is. */
#include "forward.h"

hipError_t do_hipImportExternalMemory(hipExternalMemory_t *out, const hipExternalMemoryHandleDesc *desc) {
  return DO(cuImportExternalMemory, (CUexternalMemory *)out,
            (const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *)(const void *)desc);
}

hipError_t do_hipExternalMemoryGetMappedBuffer(void **p, hipExternalMemory_t m,
                                               const hipExternalMemoryBufferDesc *desc) {
  return DO(cuExternalMemoryGetMappedBuffer, (CUdeviceptr *)p, m,
            (const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *)(const void *)desc);
}

hipError_t do_hipDestroyExternalMemory(hipExternalMemory_t m) {
  return DO(cuDestroyExternalMemory, m);
}

hipError_t do_hipImportExternalSemaphore(hipExternalSemaphore_t *out, const hipExternalSemaphoreHandleDesc *desc) {
  return DO(cuImportExternalSemaphore, (CUexternalSemaphore *)out,
            (const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *)(const void *)desc);
}

hipError_t do_hipSignalExternalSemaphoresAsync(const hipExternalSemaphore_t *m,
                                               const hipExternalSemaphoreSignalParams *values, unsigned n,
                                               hipStream_t s) {
  return DO(cuSignalExternalSemaphoresAsync, (const CUexternalSemaphore *)m,
            (const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *)(const void *)values, n, forward_stream(s));
}

hipError_t do_hipWaitExternalSemaphoresAsync(const hipExternalSemaphore_t *m,
                                             const hipExternalSemaphoreWaitParams *values, unsigned n, hipStream_t s) {
  return DO(cuWaitExternalSemaphoresAsync, (const CUexternalSemaphore *)m,
            (const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *)(const void *)values, n, forward_stream(s));
}

hipError_t do_hipDestroyExternalSemaphore(hipExternalSemaphore_t m) {
  return DO(cuDestroyExternalSemaphore, m);
}
