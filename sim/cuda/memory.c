/* memory.c: memory by the names in the driver, and what the driver's attributes say of a pointer.
 *
 * Asking about a pointer that is nobody's is no mistake and leaves no finding. It must not know what an allocation is
 * made of. */
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

CUresult do_cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
  return from(sim_call_alloc(SIM_DEVICE, n, 0, p));
}

CUresult do_cuMemAllocPitch_v2(CUdeviceptr *p, size_t *pitch, size_t width, size_t height, unsigned unit) {
  const size_t row = (width + 511) / 512 * 512;
  if (pitch == NULL || row < width || height == 0 || row > SIZE_MAX / height) return CUDA_ERROR_INVALID_VALUE;
  if (unit != 4 && unit != 8 && unit != 16) return CUDA_ERROR_INVALID_VALUE;
  TRY(do_cuMemAlloc_v2(p, row * height));
  *pitch = row;
  return CUDA_SUCCESS;
}

CUresult do_cuMemFree_v2(CUdeviceptr p) {
  return from(sim_call_free((uintptr_t)p, false));
}

CUresult do_cuMemFreeHost(void *p) {
  return from(sim_call_free((uintptr_t)p, true));
}

CUresult do_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *n, CUdeviceptr p) {
  return from(sim_call_address_range((uintptr_t)p, base, n));
}

CUresult do_cuMemHostAlloc(void **p, size_t n, unsigned flags) {
  return flags > 7 ? CUDA_ERROR_INVALID_VALUE : from(sim_call_alloc(SIM_PINNED, n, flags, p));
}

CUresult do_cuMemAllocHost_v2(void **p, size_t n) {
  return do_cuMemHostAlloc(p, n, 0);
}

CUresult do_cuMemHostGetDevicePointer_v2(CUdeviceptr *d, void *p, unsigned flags) {
  return from(sim_call_host_address(p, flags, d));
}

CUresult do_cuMemHostGetFlags(unsigned *flags, void *p) {
  return from(sim_call_host_flags(p, flags));
}

CUresult do_cuMemHostRegister_v2(void *p, size_t n, unsigned flags) {
  return from(sim_call_register(p, n, flags));
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
  return flags != 1 && flags != 2 ? CUDA_ERROR_INVALID_VALUE : from(sim_call_alloc(SIM_MANAGED, n, flags, p));
}

CUresult do_cuMemPrefetchAsync(CUdeviceptr p, size_t n, CUdevice d, CUstream s) {
  if (d != -1 && sim_device_at(d) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  return from(sim_call_prefetch(s, (uintptr_t)p, n));
}

CUresult do_cuMemPrefetchAsync_v2(CUdeviceptr p, size_t n, CUmemLocation where, unsigned flags, CUstream s) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return do_cuMemPrefetchAsync(p, n, where.type == CU_MEM_LOCATION_TYPE_DEVICE ? where.id : -1, s);
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
  ATTR_LEGACY_IPC = 10,
  ATTR_RANGE_START = 11,
  ATTR_RANGE_SIZE = 12,
  ATTR_MAPPED = 13,
  ATTR_HANDLE_TYPES = 14,
  ATTR_ACCESS_FLAGS = 16,
  ATTR_MEMPOOL = 17,
  ATTR_MAPPING_SIZE = 18,
  ATTR_MAPPING_BASE = 19,
  ATTR_BLOCK_ID = 20
};

static void put(void *out, uint64_t value, size_t size) {
  memcpy(out, &value, size);
}

static uint64_t host_address(const sim_alloc *a, uintptr_t p) {
  return a->space == SIM_DEVICE ? 0 : p;
}

/* Which memory it is, and where it begins and ends. */
static bool extent_attribute(void *out, int which, uintptr_t base, size_t nbytes, uint64_t id) {
  switch (which) {
    case ATTR_BUFFER_ID:
    case ATTR_BLOCK_ID: put(out, id, 8); return true;
    case ATTR_RANGE_START:
    case ATTR_MAPPING_BASE: put(out, base, 8); return true;
    case ATTR_RANGE_SIZE:
    case ATTR_MAPPING_SIZE: put(out, nbytes, 8); return true;
    default: return false;
  }
}

/* Who may have it, where memory is mapped at the address. */
static bool mapped_attribute(void *out, int which, const sim_map *m) {
  const sim_context *c = sim_current();
  switch (which) {
    case ATTR_DEVICE_ORDINAL: put(out, (uint64_t)m->of->memory->device, 4); return true;
    case ATTR_LEGACY_IPC: put(out, 0, 4); return true;
    case ATTR_HANDLE_TYPES: put(out, m->of->exportable, 8); return true;
    case ATTR_ACCESS_FLAGS: put(out, c == NULL ? 0 : m->access[c->device->id], 4); return true;
    default: return extent_attribute(out, which, m->at, m->nbytes, m->of->memory->id);
  }
}

/* And where it is an allocation. */
static bool owned_attribute(void *out, int which, const sim_alloc *a) {
  const bool plain = a->space == SIM_DEVICE && a->pool == NULL && a->opened == 0;
  switch (which) {
    case ATTR_DEVICE_ORDINAL: put(out, (uint64_t)a->device, 4); return true;
    case ATTR_LEGACY_IPC: put(out, plain, 4); return true;
    case ATTR_HANDLE_TYPES: put(out, a->pool != NULL && a->pool->exportable, 8); return true;
    case ATTR_SYNC_MEMOPS: put(out, 0, 4); return true;
    case ATTR_MAPPED: put(out, 1, 4); return true;
    case ATTR_ACCESS_FLAGS: put(out, 3, 4); return true;
    case ATTR_MEMPOOL: put(out, a->pool == NULL ? 0 : a->pool->o.handle, 8); return true;
    default: return extent_attribute(out, which, a->base, a->nbytes, a->id);
  }
}

static CUresult attribute(void *out, int which, const sim_alloc *a, uintptr_t p) {
  const bool device = a->space == SIM_DEVICE || a->space == SIM_MANAGED;
  if (a->maps != NULL && mapped_attribute(out, which, sim_map_at(a, p))) return CUDA_SUCCESS;
  switch (which) {
    case ATTR_CONTEXT: put(out, a->pool != NULL || a->ctx == NULL ? 0 : a->ctx->o.handle, 8); break;
    case ATTR_MEMORY_TYPE: put(out, device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST, 4); break;
    case ATTR_DEVICE_POINTER: put(out, p, 8); break;
    case ATTR_HOST_POINTER:
      if (a->space == SIM_DEVICE) return CUDA_ERROR_INVALID_VALUE;
      put(out, host_address(a, p), 8);
      break;
    case ATTR_IS_MANAGED: put(out, a->space == SIM_MANAGED, 4); break;
    default: return owned_attribute(out, which, a) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
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
                      which == ATTR_DEVICE_ORDINAL || which == ATTR_LEGACY_IPC || which == ATTR_MAPPED ||
                      which == ATTR_ACCESS_FLAGS;
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
