/* ipc.c: memory, events and pools of other processes, by their names in the runtime.
 *
 * What is no memory of a device, and a handle that opens nothing, is an invalid device pointer here; an address that is
 * not open is an invalid handle (ROCm/clr, hip_memory.cpp). It must not know how anything crosses. */
#include "front.h"

_Static_assert(sizeof(hipIpcMemHandle_t) == SIM_TICKET && sizeof(hipIpcEventHandle_t) == SIM_TICKET &&
                   sizeof(hipMemPoolPtrExportData) == SIM_TICKET,
               "calls/ipc.c writes them");

static hipError_t instead_of(sim_status plain, hipError_t theirs, sim_status rc) {
  return rc == plain ? theirs : from(rc);
}

hipError_t do_hipIpcGetMemHandle(hipIpcMemHandle_t *handle, void *p) {
  if (handle == NULL || p == NULL) return hipErrorInvalidValue;
  return instead_of(SIM_INVALID, hipErrorInvalidDevicePointer, sim_call_ipc_memory((uintptr_t)p, handle));
}

hipError_t do_hipIpcOpenMemHandle(void **p, hipIpcMemHandle_t handle, unsigned flags) {
  return instead_of(SIM_BAD_HANDLE, hipErrorInvalidDevicePointer, sim_call_ipc_open(&handle, flags, p));
}

hipError_t do_hipIpcCloseMemHandle(void *p) {
  if (p == NULL) return hipErrorInvalidValue;
  return instead_of(SIM_INVALID, hipErrorInvalidHandle, sim_call_ipc_close((uintptr_t)p));
}

hipError_t do_hipIpcGetEventHandle(hipIpcEventHandle_t *handle, hipEvent_t e) {
  return from(sim_call_ipc_event(e, handle));
}

hipError_t do_hipIpcOpenEventHandle(hipEvent_t *e, hipIpcEventHandle_t handle) {
  return from(sim_call_ipc_open_event(&handle, hipEventInterprocess | hipEventDisableTiming, e));
}

hipError_t do_hipMemPoolExportToShareableHandle(void *out, hipMemPool_t p, hipMemAllocationHandleType kind,
                                                unsigned flags) {
  return from(sim_call_pool_export(p, (unsigned)kind, flags, out));
}

hipError_t do_hipMemPoolImportFromShareableHandle(hipMemPool_t *p, void *handle, hipMemAllocationHandleType kind,
                                                  unsigned flags) {
  return from(sim_call_pool_import((int)(intptr_t)handle, (unsigned)kind, flags, p));
}

hipError_t do_hipMemPoolExportPointer(hipMemPoolPtrExportData *out, void *p) {
  return from(sim_call_pool_export_pointer((uintptr_t)p, out));
}

hipError_t do_hipMemPoolImportPointer(void **p, hipMemPool_t pool, hipMemPoolPtrExportData *data) {
  return from(sim_call_pool_import_pointer(pool, data, p));
}
