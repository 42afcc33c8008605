/* ipc.c: memory, events and pools of other processes, whose handles have one size on both sides.
 *
 * It must not know what is in a handle. */
#include <string.h>

#include "forward.h"

_Static_assert(sizeof(hipIpcMemHandle_t) == sizeof(CUipcMemHandle) &&
                   sizeof(hipIpcEventHandle_t) == sizeof(CUipcEventHandle) &&
                   sizeof(hipMemPoolPtrExportData) == sizeof(CUmemPoolPtrExportData),
               "they are passed on as they are");

static hipError_t instead_of(hipError_t plain, hipError_t theirs, hipError_t rc) {
  return rc == plain ? theirs : rc;
}

hipError_t do_hipIpcGetMemHandle(hipIpcMemHandle_t *handle, void *p) {
  if (handle == NULL || p == NULL) return hipErrorInvalidValue;
  const hipError_t rc = DO(cuIpcGetMemHandle, (CUipcMemHandle *)handle, (CUdeviceptr)(uintptr_t)p);
  return instead_of(hipErrorInvalidValue, hipErrorInvalidDevicePointer, rc);
}

hipError_t do_hipIpcOpenMemHandle(void **p, hipIpcMemHandle_t handle, unsigned flags) {
  CUipcMemHandle theirs;
  CUdeviceptr at = 0;
  if (p == NULL) return hipErrorInvalidValue;
  memcpy(&theirs, &handle, sizeof theirs);
  const hipError_t rc = DO(cuIpcOpenMemHandle_v2, &at, theirs, flags);
  if (rc == hipSuccess) *p = (void *)(uintptr_t)at;
  return instead_of(hipErrorInvalidHandle, hipErrorInvalidDevicePointer, rc);
}

hipError_t do_hipIpcCloseMemHandle(void *p) {
  if (p == NULL) return hipErrorInvalidValue;
  return instead_of(hipErrorInvalidValue, hipErrorInvalidHandle, DO(cuIpcCloseMemHandle, (CUdeviceptr)(uintptr_t)p));
}

hipError_t do_hipIpcGetEventHandle(hipIpcEventHandle_t *handle, hipEvent_t e) {
  return DO(cuIpcGetEventHandle, (CUipcEventHandle *)handle, (CUevent)e);
}

hipError_t do_hipIpcOpenEventHandle(hipEvent_t *e, hipIpcEventHandle_t handle) {
  CUipcEventHandle theirs;
  CUevent made = NULL;
  if (e == NULL) return hipErrorInvalidValue;
  memcpy(&theirs, &handle, sizeof theirs);
  TRY(DO(cuIpcOpenEventHandle, &made, theirs));
  *e = (hipEvent_t)made;
  return hipSuccess;
}

hipError_t do_hipMemPoolExportToShareableHandle(void *out, hipMemPool_t p, hipMemAllocationHandleType kind,
                                                unsigned flags) {
  return DO(cuMemPoolExportToShareableHandle, out, (CUmemoryPool)p, (int)kind, flags);
}

hipError_t do_hipMemPoolImportFromShareableHandle(hipMemPool_t *p, void *handle, hipMemAllocationHandleType kind,
                                                  unsigned flags) {
  CUmemoryPool pool = NULL;
  if (p == NULL) return hipErrorInvalidValue;
  TRY(DO(cuMemPoolImportFromShareableHandle, &pool, handle, (int)kind, flags));
  *p = (hipMemPool_t)pool;
  return hipSuccess;
}

hipError_t do_hipMemPoolExportPointer(hipMemPoolPtrExportData *out, void *p) {
  return DO(cuMemPoolExportPointer, (CUmemPoolPtrExportData *)out, (CUdeviceptr)(uintptr_t)p);
}

hipError_t do_hipMemPoolImportPointer(void **p, hipMemPool_t pool, hipMemPoolPtrExportData *data) {
  CUdeviceptr at = 0;
  if (p == NULL) return hipErrorInvalidValue;
  TRY(DO(cuMemPoolImportPointer, &at, (CUmemoryPool)pool, (CUmemPoolPtrExportData *)data));
  *p = (void *)(uintptr_t)at;
  return hipSuccess;
}
