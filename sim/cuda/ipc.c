/* ipc.c: memory, events and pools of other processes, by their names in the driver.
 *
 * It must not know how anything crosses. */
#include "front.h"

_Static_assert(sizeof(CUipcMemHandle) == SIM_TICKET && sizeof(CUipcEventHandle) == SIM_TICKET &&
                   sizeof(CUmemPoolPtrExportData) == SIM_TICKET,
               "calls/ipc.c writes them");

CUresult do_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr p) {
  return from(sim_call_ipc_memory((uintptr_t)p, handle));
}

CUresult do_cuIpcOpenMemHandle_v2(CUdeviceptr *p, CUipcMemHandle handle, unsigned flags) {
  return from(sim_call_ipc_open(&handle, flags, p));
}

CUresult do_cuIpcCloseMemHandle(CUdeviceptr p) {
  return from(sim_call_ipc_close((uintptr_t)p));
}

CUresult do_cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent e) {
  return from(sim_call_ipc_event(e, handle));
}

CUresult do_cuIpcOpenEventHandle(CUevent *e, CUipcEventHandle handle) {
  return from(sim_call_ipc_open_event(&handle, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, e));
}

CUresult do_cuMemPoolExportToShareableHandle(void *out, CUmemoryPool p, int kind, unsigned long long flags) {
  return from(sim_call_pool_export(p, (unsigned)kind, flags, out));
}

CUresult do_cuMemPoolImportFromShareableHandle(CUmemoryPool *p, void *handle, int kind, unsigned long long flags) {
  return from(sim_call_pool_import((int)(intptr_t)handle, (unsigned)kind, flags, p));
}

CUresult do_cuMemPoolExportPointer(CUmemPoolPtrExportData *out, CUdeviceptr p) {
  return from(sim_call_pool_export_pointer((uintptr_t)p, out));
}

CUresult do_cuMemPoolImportPointer(CUdeviceptr *p, CUmemoryPool pool, CUmemPoolPtrExportData *data) {
  return from(sim_call_pool_import_pointer(pool, data, p));
}
