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

hipError_t do_hipImportExternalSemaphore(hipExternalSemaphore_t *out, const hipExternalSemaphoreHandleDesc *desc) {
  if (desc == NULL) return hipErrorInvalidValue;
  const bool binary = desc->type == hipExternalSemaphoreHandleTypeOpaqueFd;
  if (!binary && desc->type != hipExternalSemaphoreHandleTypeTimelineSemaphoreFd) return hipErrorNotSupported;
  return from(sim_call_semaphore_import(desc->handle.fd, binary, desc->flags, out));
}

hipError_t do_hipSignalExternalSemaphoresAsync(const hipExternalSemaphore_t *m,
                                               const hipExternalSemaphoreSignalParams *values, unsigned n,
                                               hipStream_t s) {
  return from(sim_call_semaphores((const void *const *)m, values, sizeof *values, n, s, SIM_SIGNAL));
}

hipError_t do_hipWaitExternalSemaphoresAsync(const hipExternalSemaphore_t *m,
                                             const hipExternalSemaphoreWaitParams *values, unsigned n, hipStream_t s) {
  return from(sim_call_semaphores((const void *const *)m, values, sizeof *values, n, s, SIM_WAIT));
}

hipError_t do_hipDestroyExternalSemaphore(hipExternalSemaphore_t m) {
  return from(sim_call_semaphore_end(m));
}
