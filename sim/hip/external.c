/* external.c: other APIs' memory, by the names that the runtime has for it.
 *
 * It must not know whose memory it is. */
#include "front.h"

hipError_t do_hipImportExternalMemory(hipExternalMemory_t *out, const hipExternalMemoryHandleDesc *desc) {
  if (desc == NULL) return hipErrorInvalidValue;
  if (desc->type != hipExternalMemoryHandleTypeOpaqueFd) return hipErrorNotSupported;
  return from(sim_call_external_import(desc->handle.fd, desc->size, out));
}

hipError_t do_hipExternalMemoryGetMappedBuffer(void **p, hipExternalMemory_t m,
                                               const hipExternalMemoryBufferDesc *desc) {
  return desc == NULL ? hipErrorInvalidValue : from(sim_call_external_map(m, desc->offset, desc->size, p));
}

hipError_t do_hipDestroyExternalMemory(hipExternalMemory_t m) {
  return from(sim_call_external_end(m));
}
