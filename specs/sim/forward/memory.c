/* memory.c: allocation, pinned and managed memory, and what a pointer is.
 *
 * It must not know about streams, except that prefetching is an operation in one. */
#include <string.h>

#include "forward.h"

static CUdeviceptr address(const void *p) {
  return (CUdeviceptr)(uintptr_t)p;
}

hipError_t do_hipMemGetInfo(size_t *unused, size_t *total) {
  return unused == NULL || total == NULL ? hipErrorInvalidValue : DO(cuMemGetInfo_v2, unused, total);
}

static hipError_t given(void **p, const CUdeviceptr *at, hipError_t rc) {
  if (rc == hipSuccess) *p = (void *)(uintptr_t)*at;
  return rc;
}

/* No bytes give no address, and succeed. */
static bool nothing(void **p, size_t n) {
  if (p != NULL) *p = NULL;
  return p == NULL || n == 0;
}

hipError_t do_hipMalloc(void **p, size_t n) {
  CUdeviceptr at = 0;
  if (nothing(p, n)) return p == NULL ? hipErrorInvalidValue : hipSuccess;
  return given(p, &at, DO(cuMemAlloc_v2, &at, n));
}

hipError_t do_hipMallocPitch(void **p, size_t *pitch, size_t width, size_t height) {
  CUdeviceptr at = 0;
  if (pitch == NULL) return hipErrorInvalidValue;
  if (nothing(p, width * height)) return p == NULL ? hipErrorInvalidValue : hipSuccess;
  return given(p, &at, DO(cuMemAllocPitch_v2, &at, pitch, width, height, 4));
}

hipError_t do_hipMallocManaged(void **p, size_t n, unsigned flags) {
  CUdeviceptr at = 0;
  if (p == NULL) return hipErrorInvalidValue;
  return given(p, &at, DO(cuMemAllocManaged, &at, n, flags));
}

hipError_t do_hipHostMalloc(void **p, size_t n, unsigned flags) {
  const unsigned coherence = 0xE0000000u; /* NUMA, coherent, non-coherent: always so here */
  if (nothing(p, n)) return p == NULL ? hipErrorInvalidValue : hipSuccess;
  return DO(cuMemHostAlloc, p, n, flags & ~coherence);
}

hipError_t do_hipFree(void *p) {
  return p == NULL ? hipSuccess : DO(cuMemFree_v2, address(p));
}

hipError_t do_hipHostFree(void *p) {
  return p == NULL ? hipSuccess : DO(cuMemFreeHost, p);
}

hipError_t do_hipMemGetAddressRange(hipDeviceptr_t *base, size_t *n, hipDeviceptr_t p) {
  CUdeviceptr at = 0;
  TRY(DO(cuMemGetAddressRange_v2, &at, n, address(p)));
  if (base != NULL) *base = (void *)(uintptr_t)at;
  return hipSuccess;
}

hipError_t do_hipHostRegister(void *p, size_t n, unsigned flags) {
  return DO(cuMemHostRegister_v2, p, n, flags);
}

hipError_t do_hipHostUnregister(void *p) {
  return p == NULL ? hipErrorInvalidValue : DO(cuMemHostUnregister, p);
}

hipError_t do_hipHostGetDevicePointer(void **d, void *p, unsigned flags) {
  CUdeviceptr at = 0;
  if (d == NULL) return hipErrorInvalidValue;
  return given(d, &at, DO(cuMemHostGetDevicePointer_v2, &at, p, flags));
}

hipError_t do_hipHostGetFlags(unsigned *flags, void *p) {
  return DO(cuMemHostGetFlags, flags, p);
}

typedef struct about {
  unsigned type, managed;
  int device;
  CUdeviceptr on_device;
  void *on_host;
} about;

static hipError_t look_up(const void *p, about *a) {
  enum { TYPE = 2, DEVICE_POINTER = 3, HOST_POINTER = 4, IS_MANAGED = 8, ORDINAL = 9 };
  int which[] = {TYPE, IS_MANAGED, ORDINAL, DEVICE_POINTER, HOST_POINTER};
  void *out[] = {&a->type, &a->managed, &a->device, &a->on_device, &a->on_host};
  *a = (about){.device = hipInvalidDeviceId};
  return DO(cuPointerGetAttributes, 5, which, out, address(p));
}

static hipMemoryType type_of(const about *a) {
  if ((a->managed & 0xFF) != 0) return hipMemoryTypeManaged;
  if (a->type == CU_MEMORYTYPE_DEVICE) return hipMemoryTypeDevice;
  return a->type == CU_MEMORYTYPE_HOST ? hipMemoryTypeHost : hipMemoryTypeUnregistered;
}

hipError_t do_hipPointerGetAttributes(hipPointerAttribute_t *out, const void *p) {
  about a;
  if (out == NULL || p == NULL) return hipErrorInvalidValue;
  TRY(look_up(p, &a));
  *out = (hipPointerAttribute_t){.type = type_of(&a), .device = hipInvalidDeviceId};
  if (out->type == hipMemoryTypeUnregistered) return hipSuccess;
  out->device = a.device;
  out->devicePointer = (void *)(uintptr_t)a.on_device;
  out->hostPointer = a.on_host;
  out->isManaged = out->type == hipMemoryTypeManaged;
  if (out->type == hipMemoryTypeHost) DO(cuMemHostGetFlags, &out->allocationFlags, a.on_host);
  return hipSuccess;
}

/* How many bytes HIP writes, where CUDA may write eight. */
static size_t width_of(hipPointer_attribute which) {
  if (which == HIP_POINTER_ATTRIBUTE_IS_MANAGED || which == HIP_POINTER_ATTRIBUTE_MAPPED) return 1;
  const bool address_wide = which == HIP_POINTER_ATTRIBUTE_DEVICE_POINTER ||
                            which == HIP_POINTER_ATTRIBUTE_HOST_POINTER ||
                            which == HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR;
  return address_wide ? 8 : 4;
}

hipError_t do_hipPointerGetAttribute(void *out, hipPointer_attribute which, hipDeviceptr_t p) {
  uint64_t v = 0;
  if (out == NULL) return hipErrorInvalidValue;
  TRY(DO(cuPointerGetAttribute, &v, (int)which, address(p)));
  memcpy(out, &v, width_of(which));
  return hipSuccess;
}

hipError_t do_hipMemPrefetchAsync(const void *p, size_t n, int device, hipStream_t s) {
  return DO(cuMemPrefetchAsync, address(p), n, device, forward_stream(s));
}

/* Advice changes no result. */
hipError_t do_hipMemAdvise(const void *p, size_t n, int advice, int device) {
  about a;
  (void)n;
  (void)device;
  TRY(look_up(p, &a));
  return advice < 1 || type_of(&a) != hipMemoryTypeManaged ? hipErrorInvalidValue : hipSuccess;
}
