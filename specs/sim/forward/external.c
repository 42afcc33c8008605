/* external.c: other APIs' memory. The two drivers' descriptions of it are laid out alike.
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
