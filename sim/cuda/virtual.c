/* virtual.c: virtual memory, by its names in the driver.
 *
 * It must not know what a mapping is. */
#include "front.h"

static const void *object(CUmemGenericAllocationHandle handle) {
  return (const void *)(uintptr_t)handle;
}

/* Memory of a device, pinned to it, exported as a descriptor or not at all. */
static CUresult known(const CUmemAllocationProp *prop, int *device) {
  if (prop == NULL || (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0)
    return prop == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
  return from(sim_located(&prop->location, (int)prop->type, device));
}

CUresult do_cuMemGetAllocationGranularity(size_t *n, const CUmemAllocationProp *prop, int which) {
  int device;
  if (which != 0 && which != 1) return CUDA_ERROR_INVALID_VALUE;
  TRY(known(prop, &device));
  return from(sim_call_granularity(device, n));
}

CUresult do_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t n, const CUmemAllocationProp *prop,
                        unsigned long long flags) {
  int device;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  TRY(known(prop, &device));
  return from(sim_call_physical_new(device, n, prop->requestedHandleTypes != 0, handle));
}

CUresult do_cuMemRelease(CUmemGenericAllocationHandle handle) {
  return from(sim_call_physical_end(object(handle)));
}

CUresult do_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *p) {
  return from(sim_call_physical_at((uintptr_t)p, handle));
}

CUresult do_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle) {
  int device;
  bool exportable;
  if (prop == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(from(sim_call_physical_facts(object(handle), &device, &exportable)));
  *prop = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
  return CUDA_SUCCESS;
}

CUresult do_cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int kind,
                                         unsigned long long flags) {
  return from(sim_call_physical_export(object(handle), (unsigned)kind, flags, out));
}

CUresult do_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *given, int kind) {
  return from(sim_call_physical_import((int)(intptr_t)given, (unsigned)kind, handle));
}

/* The address that the program would like is a wish. */
CUresult do_cuMemAddressReserve(CUdeviceptr *p, size_t n, size_t align, CUdeviceptr wish, unsigned long long flags) {
  (void)wish;
  return from(sim_call_reserve(n, align, flags, p));
}

CUresult do_cuMemAddressFree(CUdeviceptr p, size_t n) {
  return from(sim_unreserve((uintptr_t)p, n));
}

CUresult do_cuMemMap(CUdeviceptr p, size_t n, size_t offset, CUmemGenericAllocationHandle handle,
                     unsigned long long flags) {
  return from(sim_call_map((uintptr_t)p, n, offset, object(handle), flags));
}

CUresult do_cuMemUnmap(CUdeviceptr p, size_t n) {
  return from(sim_call_unmap((uintptr_t)p, n));
}

CUresult do_cuMemSetAccess(CUdeviceptr p, size_t n, const CUmemAccessDesc *desc, size_t count) {
  return from(sim_call_map_permit((uintptr_t)p, n, desc, count));
}

CUresult do_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *where, CUdeviceptr p) {
  return from(sim_call_map_permitted((uintptr_t)p, where, flags));
}
