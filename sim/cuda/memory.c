/* memory.c: allocation, pinned and managed memory, and what a pointer is.
 *
 * Asking about a pointer that is nobody's is no mistake and leaves no finding. It must not know about streams,
 * except that prefetching is an operation in one. */
#include <string.h>

#include "front.h"

static CUresult current(sim_context **out) {
  return from(sim_context_of(out));
}

CUresult do_cuMemGetInfo_v2(size_t *unused, size_t *total) {
  sim_context *c;
  TRY(current(&c));
  if (unused != NULL) *unused = c->device->total - c->device->used;
  if (total != NULL) *total = c->device->total;
  return CUDA_SUCCESS;
}

static CUresult allocate(sim_space space, size_t n, sim_alloc **out) {
  sim_context *c;
  TRY(current(&c));
  TRY(from(sim_capture_unsafe()));
  if (n == 0) return CUDA_ERROR_INVALID_VALUE;
  TRY(from(sim_alloc_new(space, c->device->id, n, NULL, out)));
  (*out)->ctx = c;
  sim_poison(*out, SIM_FRESH);
  sim_note("%zu bytes at %#zx", n, (size_t)(*out)->base);
  return CUDA_SUCCESS;
}

CUresult do_cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
  sim_alloc *a;
  if (p == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(allocate(SIM_DEVICE, n, &a));
  *p = a->base;
  return CUDA_SUCCESS;
}

CUresult do_cuMemAllocPitch_v2(CUdeviceptr *p, size_t *pitch, size_t width, size_t height, unsigned unit) {
  const size_t row = (width + 511) / 512 * 512;
  if (pitch == NULL || row < width || height == 0 || row > SIZE_MAX / height) return CUDA_ERROR_INVALID_VALUE;
  if (unit != 4 && unit != 8 && unit != 16) return CUDA_ERROR_INVALID_VALUE;
  TRY(do_cuMemAlloc_v2(p, row * height));
  *pitch = row;
  return CUDA_SUCCESS;
}

static CUresult release(uintptr_t p, bool pinned) {
  sim_context *c;
  if (p == 0) return CUDA_SUCCESS;
  TRY(current(&c));
  return from(sim_release(p, pinned));
}

CUresult do_cuMemFree_v2(CUdeviceptr p) {
  return release((uintptr_t)p, false);
}

CUresult do_cuMemFreeHost(void *p) {
  return release((uintptr_t)p, true);
}

CUresult do_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *n, CUdeviceptr p) {
  const sim_alloc *a = sim_live((uintptr_t)p);
  if (a == NULL) return CUDA_ERROR_NOT_FOUND;
  if (base != NULL) *base = a->base;
  if (n != NULL) *n = a->nbytes;
  return CUDA_SUCCESS;
}

CUresult do_cuMemHostAlloc(void **p, size_t n, unsigned flags) {
  sim_alloc *a;
  if (p == NULL || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  TRY(allocate(SIM_PINNED, n, &a));
  a->flags = flags;
  *p = (void *)a->base;
  return CUDA_SUCCESS;
}

CUresult do_cuMemAllocHost_v2(void **p, size_t n) {
  return do_cuMemHostAlloc(p, n, 0);
}

CUresult do_cuMemHostGetDevicePointer_v2(CUdeviceptr *d, void *p, unsigned flags) {
  if (d == NULL || flags != 0 || sim_host_memory((uintptr_t)p) == NULL) return CUDA_ERROR_INVALID_VALUE;
  *d = (CUdeviceptr)(uintptr_t)p;
  return CUDA_SUCCESS;
}

CUresult do_cuMemHostGetFlags(unsigned *flags, void *p) {
  const sim_alloc *a = sim_host_memory((uintptr_t)p);
  if (flags == NULL || a == NULL) return CUDA_ERROR_INVALID_VALUE;
  *flags = a->flags;
  return CUDA_SUCCESS;
}

CUresult do_cuMemHostRegister_v2(void *p, size_t n, unsigned flags) {
  sim_context *c;
  sim_alloc *a;
  TRY(current(&c));
  if (p == NULL || n == 0 || flags > 15) return CUDA_ERROR_INVALID_VALUE;
  TRY(from(sim_capture_unsafe()));
  TRY(from(sim_register(p, n, &a)));
  a->device = c->device->id;
  a->ctx = c;
  a->flags = flags;
  return CUDA_SUCCESS;
}

CUresult do_cuMemHostUnregister(void *p) {
  sim_context *c;
  TRY(current(&c));
  sim_alloc *a = sim_live((uintptr_t)p);
  if (a == NULL || a->space != SIM_FOREIGN) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  if (a->base != (uintptr_t)p) return CUDA_ERROR_INVALID_VALUE;
  return from(sim_free_host(a));
}

CUresult do_cuMemAllocManaged(CUdeviceptr *p, size_t n, unsigned flags) {
  sim_alloc *a;
  if (p == NULL || (flags != 1 && flags != 2)) return CUDA_ERROR_INVALID_VALUE;
  TRY(allocate(SIM_MANAGED, n, &a));
  a->flags = flags;
  *p = a->base;
  return CUDA_SUCCESS;
}

static CUresult prefetch(CUdeviceptr p, size_t n, CUstream handle) {
  sim_stream *s;
  TRY(stream_of(handle, &s));
  return from(sim_prefetch(s, (uintptr_t)p, n));
}

CUresult do_cuMemPrefetchAsync(CUdeviceptr p, size_t n, CUdevice d, CUstream s) {
  if (d != -1 && sim_device_at(d) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  return prefetch(p, n, s);
}

CUresult do_cuMemPrefetchAsync_v2(CUdeviceptr p, size_t n, CUmemLocation where, unsigned flags, CUstream s) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (where.type == CU_MEM_LOCATION_TYPE_DEVICE) return do_cuMemPrefetchAsync(p, n, where.id, s);
  return prefetch(p, n, s);
}

enum {
  ATTR_CONTEXT = 1,
  ATTR_MEMORY_TYPE = 2,
  ATTR_DEVICE_POINTER = 3,
  ATTR_HOST_POINTER = 4,
  ATTR_SYNC_MEMOPS = 6,
  ATTR_BUFFER_ID = 7,
  ATTR_IS_MANAGED = 8,
  ATTR_DEVICE_ORDINAL = 9,
  ATTR_RANGE_START = 11,
  ATTR_RANGE_SIZE = 12,
  ATTR_MAPPED = 13,
  ATTR_HANDLE_TYPES = 14,
  ATTR_ACCESS_FLAGS = 16,
  ATTR_MEMPOOL = 17
};

static void put(void *out, uint64_t value, size_t size) {
  memcpy(out, &value, size);
}

static uint64_t host_address(const sim_alloc *a, uintptr_t p) {
  return a->space == SIM_DEVICE ? 0 : p;
}

/* unknown says that a is nobody's: one attribute asked alone then fails, in a list it comes out as zero. */
static CUresult attribute(void *out, int which, const sim_alloc *a, uintptr_t p) {
  const bool device = a->space == SIM_DEVICE || a->space == SIM_MANAGED;
  switch (which) {
    case ATTR_CONTEXT: put(out, a->pool != NULL || a->ctx == NULL ? 0 : a->ctx->o.handle, 8); break;
    case ATTR_MEMORY_TYPE: put(out, device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST, 4); break;
    case ATTR_DEVICE_POINTER: put(out, p, 8); break;
    case ATTR_HOST_POINTER:
      if (a->space == SIM_DEVICE) return CUDA_ERROR_INVALID_VALUE;
      put(out, host_address(a, p), 8);
      break;
    case ATTR_SYNC_MEMOPS: put(out, 0, 4); break;
    case ATTR_BUFFER_ID: put(out, a->id, 8); break;
    case ATTR_IS_MANAGED: put(out, a->space == SIM_MANAGED, 4); break;
    case ATTR_DEVICE_ORDINAL: put(out, (uint64_t)a->device, 4); break;
    case ATTR_RANGE_START: put(out, a->base, 8); break;
    case ATTR_RANGE_SIZE: put(out, a->nbytes, 8); break;
    case ATTR_MAPPED: put(out, 1, 4); break;
    case ATTR_HANDLE_TYPES: put(out, 0, 8); break;
    case ATTR_ACCESS_FLAGS: put(out, 3, 4); break;
    case ATTR_MEMPOOL: put(out, a->pool == NULL ? 0 : a->pool->o.handle, 8); break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

CUresult do_cuPointerGetAttribute(void *out, int which, CUdeviceptr p) {
  const sim_alloc *a = sim_live((uintptr_t)p);
  if (out == NULL || a == NULL) return CUDA_ERROR_INVALID_VALUE;
  return attribute(out, which, a, (uintptr_t)p);
}

static size_t width_of(int which) {
  const bool narrow = which == ATTR_MEMORY_TYPE || which == ATTR_SYNC_MEMOPS || which == ATTR_IS_MANAGED ||
                      which == ATTR_DEVICE_ORDINAL || which == ATTR_MAPPED || which == ATTR_ACCESS_FLAGS;
  return narrow ? 4 : 8;
}

/* In a list, what a pointer does not have comes out as zero (an ordinal as -2), as the driver documents. */
CUresult do_cuPointerGetAttributes(unsigned n, int *which, void **out, CUdeviceptr p) {
  const sim_alloc *a = sim_live((uintptr_t)p);
  if (n == 0 || which == NULL || out == NULL) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < n; i++) {
    if (a != NULL && attribute(out[i], which[i], a, (uintptr_t)p) == CUDA_SUCCESS) continue;
    put(out[i], which[i] == ATTR_DEVICE_ORDINAL ? (uint64_t)-2 : 0, width_of(which[i]));
  }
  return CUDA_SUCCESS;
}

CUresult do_cuPointerSetAttribute(const void *value, int which, CUdeviceptr p) {
  const sim_alloc *a = sim_live((uintptr_t)p);
  if (value == NULL || a == NULL || which != ATTR_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}
