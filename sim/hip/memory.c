/* memory.c: memory by the names in the runtime, and what the runtime's attributes say of a pointer.
 *
 * Asking about a pointer that is nobody's is no mistake and leaves no finding. It must not know what an allocation is
 * made of. */
#include "front.h"

hipError_t do_hipMemGetInfo(size_t *unused, size_t *total) {
  const sim_device *d = device_context()->device;
  if (unused == NULL || total == NULL) return hipErrorInvalidValue;
  *unused = d->total - d->used;
  *total = d->total;
  return hipSuccess;
}

/* No bytes give no address, and succeed. */
static hipError_t allocate(void **p, sim_space space, size_t n, unsigned flags) {
  if (p == NULL) return hipErrorInvalidValue;
  *p = NULL;
  return n == 0 ? hipSuccess : from(sim_call_alloc(space, n, flags, p));
}

hipError_t do_hipMalloc(void **p, size_t n) {
  return allocate(p, SIM_DEVICE, n, 0);
}

hipError_t do_hipMallocPitch(void **p, size_t *pitch, size_t width, size_t height) {
  const size_t row = (width + 255) / 256 * 256;
  if (pitch == NULL || row < width || (height != 0 && row > SIZE_MAX / height)) return hipErrorInvalidValue;
  TRY(do_hipMalloc(p, row * height));
  *pitch = row;
  return hipSuccess;
}

hipError_t do_hipMallocManaged(void **p, size_t n, unsigned flags) {
  if (n == 0 || (flags != hipMemAttachGlobal && flags != hipMemAttachHost)) return hipErrorInvalidValue;
  return allocate(p, SIM_MANAGED, n, flags);
}

hipError_t do_hipHostMalloc(void **p, size_t n, unsigned flags) {
  const unsigned known = 7u | 0xE0000000u; /* portable, mapped, write-combined; NUMA, coherent, non-coherent */
  return (flags & ~known) != 0 ? hipErrorInvalidValue : allocate(p, SIM_PINNED, n, flags);
}

hipError_t do_hipFree(void *p) {
  return from(sim_call_free((uintptr_t)p, false));
}

hipError_t do_hipHostFree(void *p) {
  return from(sim_call_free((uintptr_t)p, true));
}

hipError_t do_hipMemGetAddressRange(hipDeviceptr_t *base, size_t *n, hipDeviceptr_t p) {
  return from(sim_call_address_range((uintptr_t)p, base, n));
}

hipError_t do_hipHostRegister(void *p, size_t n, unsigned flags) {
  return from(sim_call_register(p, n, flags));
}

hipError_t do_hipHostUnregister(void *p) {
  sim_alloc *a = sim_live((uintptr_t)p);
  if (p == NULL) return hipErrorInvalidValue;
  if (a == NULL || a->space != SIM_FOREIGN || a->base != (uintptr_t)p) return hipErrorHostMemoryNotRegistered;
  return from(sim_free_host(a));
}

hipError_t do_hipHostGetDevicePointer(void **d, void *p, unsigned flags) {
  return from(sim_call_host_address(p, flags, d));
}

hipError_t do_hipHostGetFlags(unsigned *flags, void *p) {
  return from(sim_call_host_flags(p, flags));
}

static hipMemoryType type_of(const sim_alloc *a) {
  if (a->space == SIM_MANAGED) return hipMemoryTypeManaged;
  return a->space == SIM_DEVICE ? hipMemoryTypeDevice : hipMemoryTypeHost;
}

hipError_t do_hipPointerGetAttributes(hipPointerAttribute_t *out, const void *p) {
  if (out == NULL || p == NULL) return hipErrorInvalidValue;
  const sim_alloc *a = sim_live((uintptr_t)p);
  *out = (hipPointerAttribute_t){.type = hipMemoryTypeUnregistered, .device = hipInvalidDeviceId};
  if (a == NULL) return hipSuccess;
  out->type = type_of(a);
  out->device = a->device;
  out->devicePointer = (void *)(uintptr_t)p;
  if (a->space != SIM_DEVICE) out->hostPointer = (void *)(uintptr_t)p;
  out->isManaged = a->space == SIM_MANAGED;
  out->allocationFlags = a->flags;
  return hipSuccess;
}

/* Types and widths are the runtime's: managed memory counts as the host's here, a size is 32 bits wide, and what is
 * true or false a byte. */
hipError_t do_hipPointerGetAttribute(void *out, hipPointer_attribute which, hipDeviceptr_t p) {
  const sim_alloc *a = sim_live((uintptr_t)p);
  if (out == NULL || a == NULL) return hipErrorInvalidValue;
  switch (which) {
    case HIP_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *(uint32_t *)out = a->space == SIM_DEVICE ? hipMemoryTypeDevice : hipMemoryTypeHost;
      break;
    case HIP_POINTER_ATTRIBUTE_DEVICE_POINTER: *(void **)out = p; break;
    case HIP_POINTER_ATTRIBUTE_HOST_POINTER:
      *(void **)out = a->space == SIM_DEVICE ? NULL : p;
      return a->space == SIM_DEVICE ? hipErrorInvalidValue : hipSuccess;
    case HIP_POINTER_ATTRIBUTE_BUFFER_ID: *(uint32_t *)out = (uint32_t)a->id; break;
    case HIP_POINTER_ATTRIBUTE_IS_MANAGED: *(bool *)out = a->space == SIM_MANAGED; break;
    case HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)out = a->device; break;
    case HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(void **)out = (void *)a->base; break;
    case HIP_POINTER_ATTRIBUTE_RANGE_SIZE: *(uint32_t *)out = (uint32_t)a->nbytes; break;
    case HIP_POINTER_ATTRIBUTE_MAPPED: *(bool *)out = true; break;
    default: return hipErrorNotSupported;
  }
  return hipSuccess;
}

static hipError_t placed(int device) {
  return device != hipCpuDeviceId && sim_device_at(device) == NULL ? hipErrorInvalidDevice : hipSuccess;
}

hipError_t do_hipMemPrefetchAsync(const void *p, size_t n, int device, hipStream_t handle) {
  sim_stream *s;
  TRY(stream_of(handle, &s));
  TRY(placed(device));
  return from(sim_call_prefetch(handle, (uintptr_t)p, n));
}

/* Advice changes no result. */
hipError_t do_hipMemAdvise(const void *p, size_t n, int advice, int device) {
  const sim_alloc *a = sim_live((uintptr_t)p);
  TRY(placed(device));
  return advice < 1 || n == 0 || a == NULL || a->space != SIM_MANAGED ? hipErrorInvalidValue : hipSuccess;
}
