/* copy.c: all the calls that copy or fill, brought to the engine's two.
 *
 * A call that says which side is the host's is held to it: device memory where host memory is meant is refused.
 * It must not know when a copy happens. */
#include "front.h"

static CUresult linear(CUstream handle, uintptr_t d, uintptr_t s, size_t n, bool sync) {
  sim_stream *stream;
  TRY(stream_of(handle, &stream));
  const sim_region to = sim_flat(d, n), source = sim_flat(s, n);
  sim_log_detail("%#zx <- %#zx, %zu bytes, %s", (size_t)d, (size_t)s, n, stream->name);
  return from(sim_copy(stream, &to, &source, sync));
}

static CUresult on_side(uintptr_t p, bool host) {
  return from(sim_on_side(p, host));
}

static CUresult sides(uintptr_t device, const void *host) {
  TRY(on_side(device, false));
  return on_side((uintptr_t)host, true);
}

CUresult do_cuMemcpy(CUdeviceptr d, CUdeviceptr s, size_t n) {
  return linear(NULL, (uintptr_t)d, (uintptr_t)s, n, true);
}

CUresult do_cuMemcpyAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream q) {
  return linear(q, (uintptr_t)d, (uintptr_t)s, n, false);
}

static CUresult two_contexts(CUcontext a, CUcontext b) {
  sim_context *c;
  TRY(object_of(a, SIM_CONTEXT, &c));
  return object_of(b, SIM_CONTEXT, &c);
}

CUresult do_cuMemcpyPeer(CUdeviceptr d, CUcontext dc, CUdeviceptr s, CUcontext sc, size_t n) {
  TRY(two_contexts(dc, sc));
  return do_cuMemcpy(d, s, n);
}

CUresult do_cuMemcpyPeerAsync(CUdeviceptr d, CUcontext dc, CUdeviceptr s, CUcontext sc, size_t n, CUstream q) {
  TRY(two_contexts(dc, sc));
  return do_cuMemcpyAsync(d, s, n, q);
}

CUresult do_cuMemcpyHtoD_v2(CUdeviceptr d, const void *s, size_t n) {
  if (n > 0) TRY(sides((uintptr_t)d, s));
  return linear(NULL, (uintptr_t)d, (uintptr_t)s, n, true);
}

CUresult do_cuMemcpyDtoH_v2(void *d, CUdeviceptr s, size_t n) {
  if (n > 0) TRY(sides((uintptr_t)s, d));
  return linear(NULL, (uintptr_t)d, (uintptr_t)s, n, true);
}

CUresult do_cuMemcpyDtoD_v2(CUdeviceptr d, CUdeviceptr s, size_t n) {
  if (n > 0) TRY(on_side((uintptr_t)d, false));
  if (n > 0) TRY(on_side((uintptr_t)s, false));
  return linear(NULL, (uintptr_t)d, (uintptr_t)s, n, true);
}

CUresult do_cuMemcpyHtoDAsync_v2(CUdeviceptr d, const void *s, size_t n, CUstream q) {
  if (n > 0) TRY(sides((uintptr_t)d, s));
  return linear(q, (uintptr_t)d, (uintptr_t)s, n, false);
}

CUresult do_cuMemcpyDtoHAsync_v2(void *d, CUdeviceptr s, size_t n, CUstream q) {
  if (n > 0) TRY(sides((uintptr_t)s, d));
  return linear(q, (uintptr_t)d, (uintptr_t)s, n, false);
}

CUresult do_cuMemcpyDtoDAsync_v2(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream q) {
  if (n > 0) TRY(on_side((uintptr_t)d, false));
  if (n > 0) TRY(on_side((uintptr_t)s, false));
  return linear(q, (uintptr_t)d, (uintptr_t)s, n, false);
}

/* One side of a 2-D or 3-D copy. */
typedef struct side {
  CUmemorytype type;
  const void *host;
  CUdeviceptr device;
  CUarray array;
  size_t x, y, z, pitch, height;
} side;

static CUresult place(const side *p, const CUDA_MEMCPY3D *c, sim_region *out) {
  const bool host = p->type == CU_MEMORYTYPE_HOST;
  const uintptr_t base = host ? (uintptr_t)p->host : (uintptr_t)p->device;
  const size_t pitch = p->pitch != 0 ? p->pitch : c->WidthInBytes + p->x;
  const size_t slice = pitch * (p->height != 0 ? p->height : c->Height + p->y);
  const sim_box box = {p->x, p->y, p->z, c->WidthInBytes, c->Height, c->Depth};
  if (p->type == CU_MEMORYTYPE_ARRAY) return from(sim_call_array_part(p->array, &box, out));
  if (p->type < CU_MEMORYTYPE_HOST || p->type > CU_MEMORYTYPE_UNIFIED) return CUDA_ERROR_INVALID_VALUE;
  if (p->pitch > sim_conf.max_pitch || (c->Height > 1 && pitch > sim_conf.max_pitch)) return CUDA_ERROR_INVALID_VALUE;
  if (pitch < c->WidthInBytes + p->x || (p->height != 0 && p->height < c->Height + p->y))
    return CUDA_ERROR_INVALID_VALUE;
  *out = (sim_region){base + p->z * slice + p->y * pitch + p->x, c->WidthInBytes, pitch, c->Height, slice, c->Depth};
  if (sim_region_empty(out) || p->type == CU_MEMORYTYPE_UNIFIED) return CUDA_SUCCESS;
  return on_side(out->base, host);
}

static side source_of(const CUDA_MEMCPY3D *c) {
  return (side){c->srcMemoryType, c->srcHost, c->srcDevice, c->srcArray, c->srcXInBytes, c->srcY, c->srcZ, c->srcPitch,
                c->srcHeight};
}

static side destination_of(const CUDA_MEMCPY3D *c) {
  return (side){c->dstMemoryType, c->dstHost, c->dstDevice, c->dstArray, c->dstXInBytes, c->dstY, c->dstZ, c->dstPitch,
                c->dstHeight};
}

static CUresult pitched(const CUDA_MEMCPY3D *c, CUstream handle, bool sync) {
  sim_stream *s;
  sim_region to, source;
  TRY(stream_of(handle, &s));
  if (c->srcLOD != 0 || c->dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  const side a = source_of(c), b = destination_of(c);
  TRY(place(&a, c, &source));
  TRY(place(&b, c, &to));
  sim_log_detail("%#zx <- %#zx, %zu x %zu x %zu, %s", (size_t)to.base, (size_t)source.base, c->WidthInBytes, c->Height,
           c->Depth, s->name);
  return from(sim_copy(s, &to, &source, sync));
}

/* Copies within one device's memory may fail in cuMemcpy2D for pitches that cuMemAllocPitch did not compute;
 * cuMemcpy2DUnaligned does not fail (CUDA Driver API, "Memory Management"). */
static CUresult aligned_rows(const CUDA_MEMCPY3D *c) {
  enum { UNIT = 512 }; /* of cuMemAllocPitch */
  sim_region to, source;
  const side a = source_of(c), b = destination_of(c);
  TRY(place(&a, c, &source));
  TRY(place(&b, c, &to));
  if (a.type == CU_MEMORYTYPE_ARRAY || b.type == CU_MEMORYTYPE_ARRAY) return CUDA_SUCCESS;
  const sim_alloc *from_memory = sim_live(source.base), *to_memory = sim_live(to.base);
  if (!sim_conf.pitch_strict || from_memory == NULL || to_memory == NULL) return CUDA_SUCCESS;
  if (from_memory->space != SIM_DEVICE || to_memory->space != SIM_DEVICE) return CUDA_SUCCESS;
  if (from_memory->device != to_memory->device || c->Height < 2) return CUDA_SUCCESS;
  return source.pitch % UNIT != 0 || to.pitch % UNIT != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUDA_MEMCPY3D widen(const CUDA_MEMCPY2D *c) {
  return (CUDA_MEMCPY3D){.srcXInBytes = c->srcXInBytes, .srcY = c->srcY, .srcMemoryType = c->srcMemoryType,
                         .srcHost = c->srcHost, .srcDevice = c->srcDevice, .srcArray = c->srcArray,
                         .srcPitch = c->srcPitch,
                         .dstXInBytes = c->dstXInBytes, .dstY = c->dstY, .dstMemoryType = c->dstMemoryType,
                         .dstHost = c->dstHost, .dstDevice = c->dstDevice, .dstArray = c->dstArray,
                         .dstPitch = c->dstPitch,
                         .WidthInBytes = c->WidthInBytes, .Height = c->Height, .Depth = 1};
}

static CUresult pitched_2d(const CUDA_MEMCPY2D *c, CUstream q, bool sync, bool any_pitch) {
  if (c == NULL) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY3D wide = widen(c);
  if (!any_pitch) TRY(aligned_rows(&wide));
  return pitched(&wide, q, sync);
}

CUresult do_cuMemcpy2D_v2(const CUDA_MEMCPY2D *c) {
  return pitched_2d(c, NULL, true, false);
}

CUresult do_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *c) {
  return pitched_2d(c, NULL, true, true);
}

CUresult do_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream q) {
  return pitched_2d(c, q, false, false);
}

CUresult do_cuMemcpy3D_v2(const CUDA_MEMCPY3D *c) {
  return c == NULL ? CUDA_ERROR_INVALID_VALUE : pitched(c, NULL, true);
}

CUresult do_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *c, CUstream q) {
  return c == NULL ? CUDA_ERROR_INVALID_VALUE : pitched(c, q, false);
}

static CUresult peer_3d(const CUDA_MEMCPY3D_PEER *c, CUstream q, bool sync) {
  if (c == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(two_contexts(c->srcContext, c->dstContext));
  const CUDA_MEMCPY3D plain = {
      c->srcXInBytes, c->srcY, c->srcZ, c->srcLOD, c->srcMemoryType, c->srcHost, c->srcDevice,
      c->srcArray, NULL,
      c->srcPitch, c->srcHeight, c->dstXInBytes, c->dstY, c->dstZ, c->dstLOD, c->dstMemoryType, c->dstHost,
      c->dstDevice, c->dstArray, NULL, c->dstPitch, c->dstHeight, c->WidthInBytes, c->Height, c->Depth};
  return pitched(&plain, q, sync);
}

CUresult do_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *c) {
  return peer_3d(c, NULL, true);
}

CUresult do_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *c, CUstream q) {
  return peer_3d(c, q, false);
}

/* The pitch of a single row is unused. */
static CUresult fill(const sim_region *r, uint32_t value, unsigned unit, CUstream q, bool sync) {
  if (r->rows > 1 && (r->pitch < r->width || r->pitch % unit != 0)) return CUDA_ERROR_INVALID_VALUE;
  return from(sim_call_fill(q, r, value, unit, sync));
}

#define FILLS(bits, type)                                                                                     \
  CUresult do_cuMemsetD##bits##_v2(CUdeviceptr d, type v, size_t n) {                                         \
    const sim_region r = sim_flat((uintptr_t)d, n * (bits / 8));                                              \
    return fill(&r, v, bits / 8, NULL, true);                                                                 \
  }                                                                                                           \
  CUresult do_cuMemsetD##bits##Async(CUdeviceptr d, type v, size_t n, CUstream q) {                           \
    const sim_region r = sim_flat((uintptr_t)d, n * (bits / 8));                                              \
    return fill(&r, v, bits / 8, q, false);                                                                   \
  }                                                                                                           \
  CUresult do_cuMemsetD2D##bits##_v2(CUdeviceptr d, size_t pitch, type v, size_t w, size_t h) {               \
    const sim_region r = sim_plane((uintptr_t)d, pitch, w * (bits / 8), h);                                   \
    return fill(&r, v, bits / 8, NULL, true);                                                                 \
  }                                                                                                           \
  CUresult do_cuMemsetD2D##bits##Async(CUdeviceptr d, size_t pitch, type v, size_t w, size_t h, CUstream q) { \
    const sim_region r = sim_plane((uintptr_t)d, pitch, w * (bits / 8), h);                                   \
    return fill(&r, v, bits / 8, q, false);                                                                   \
  }
FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned)

/* A write of one word, whether or not what was written before must be seen with it. */
CUresult do_cuStreamWriteValue32_v2(CUstream s, CUdeviceptr p, unsigned value, unsigned flags) {
  enum { NO_BARRIER = 1 };
  const sim_region word = sim_flat((uintptr_t)p, sizeof value);
  return flags > NO_BARRIER ? CUDA_ERROR_INVALID_VALUE : fill(&word, value, sizeof value, s, false);
}
