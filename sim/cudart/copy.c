/* copy.c: copies and fills, brought to the driver's.
 *
 * A call that says by its kind which side is the host's is held to it. It must not know when a copy happens. */
#include "front.h"

static bool from_host(cudaMemcpyKind kind) {
  return kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice;
}

static bool to_host(cudaMemcpyKind kind) {
  return kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost;
}

static CUmemorytype type_of(cudaMemcpyKind kind, bool host) {
  return kind == cudaMemcpyDefault ? CU_MEMORYTYPE_UNIFIED : host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

static cudaError_t known_kind(cudaMemcpyKind kind) {
  const bool is = kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault;
  return is ? cudaSuccess : cudaErrorInvalidMemcpyDirection;
}

/* A copy of one row of bytes has no pitch to keep to. */
static CUDA_MEMCPY2D row(void *d, const void *s, size_t n, cudaMemcpyKind kind) {
  const CUDA_MEMCPY2D c = {.srcMemoryType = type_of(kind, from_host(kind)), .srcHost = s, .srcDevice = (uintptr_t)s,
                           .dstMemoryType = type_of(kind, to_host(kind)), .dstHost = d, .dstDevice = (uintptr_t)d,
                           .WidthInBytes = n, .Height = 1};
  return c;
}

cudaError_t do_cudaMemcpy(void *d, const void *s, size_t n, cudaMemcpyKind kind) {
  TRY(known_kind(kind));
  TRY(context());
  if (n == 0) return cudaSuccess;
  switch (kind) {
    case cudaMemcpyHostToDevice: return from(BY_DEFAULT(cuMemcpyHtoD_v2)((uintptr_t)d, s, n));
    case cudaMemcpyDeviceToHost: return from(BY_DEFAULT(cuMemcpyDtoH_v2)(d, (uintptr_t)s, n));
    case cudaMemcpyDeviceToDevice: return from(BY_DEFAULT(cuMemcpyDtoD_v2)((uintptr_t)d, (uintptr_t)s, n));
    case cudaMemcpyDefault: return from(BY_DEFAULT(cuMemcpy)((uintptr_t)d, (uintptr_t)s, n));
    case cudaMemcpyHostToHost: break;
  }
  const CUDA_MEMCPY2D c = row(d, s, n, kind);
  return from(BY_DEFAULT(cuMemcpy2DUnaligned_v2)(&c));
}

cudaError_t do_cudaMemcpyAsync(void *d, const void *s, size_t n, cudaMemcpyKind kind, cudaStream_t q) {
  const CUstream stream = stream_of(q);
  TRY(known_kind(kind));
  TRY(context());
  if (n == 0) return cudaSuccess;
  switch (kind) {
    case cudaMemcpyHostToDevice: return from(cuMemcpyHtoDAsync_v2((uintptr_t)d, s, n, stream));
    case cudaMemcpyDeviceToHost: return from(cuMemcpyDtoHAsync_v2(d, (uintptr_t)s, n, stream));
    case cudaMemcpyDeviceToDevice: return from(cuMemcpyDtoDAsync_v2((uintptr_t)d, (uintptr_t)s, n, stream));
    case cudaMemcpyDefault: return from(cuMemcpyAsync((uintptr_t)d, (uintptr_t)s, n, stream));
    case cudaMemcpyHostToHost: break;
  }
  const CUDA_MEMCPY2D c = row(d, s, n, kind);
  return from(cuMemcpy2DAsync_v2(&c, stream));
}

cudaError_t do_cudaMemcpyPeer(void *d, int to, const void *s, int source, size_t n) {
  CUcontext a, b;
  TRY(context());
  TRY(primary_of(to, &a));
  TRY(primary_of(source, &b));
  return from(cuMemcpyPeer((uintptr_t)d, a, (uintptr_t)s, b, n));
}

cudaError_t do_cudaMemcpyPeerAsync(void *d, int to, const void *s, int source, size_t n, cudaStream_t q) {
  CUcontext a, b;
  TRY(context());
  TRY(primary_of(to, &a));
  TRY(primary_of(source, &b));
  return from(cuMemcpyPeerAsync((uintptr_t)d, a, (uintptr_t)s, b, n, q));
}

/* A row is no wider than the pitch, on either side. */
static cudaError_t pitched(const CUDA_MEMCPY2D *c, cudaMemcpyKind kind) {
  TRY(known_kind(kind));
  if (c->WidthInBytes > c->dstPitch || c->WidthInBytes > c->srcPitch) return cudaErrorInvalidPitchValue;
  return context();
}

cudaError_t do_cudaMemcpy2D(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, cudaMemcpyKind kind) {
  CUDA_MEMCPY2D c = row(d, s, w, kind);
  c.dstPitch = dp, c.srcPitch = sp, c.Height = h;
  TRY(pitched(&c, kind));
  return from(BY_DEFAULT(cuMemcpy2DUnaligned_v2)(&c));
}

cudaError_t do_cudaMemcpy2DAsync(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, cudaMemcpyKind kind,
                                 cudaStream_t q) {
  CUDA_MEMCPY2D c = row(d, s, w, kind);
  c.dstPitch = dp, c.srcPitch = sp, c.Height = h;
  TRY(pitched(&c, kind));
  return from(cuMemcpy2DAsync_v2(&c, stream_of(q)));
}

/* Without an array, positions and widths count bytes, and ysize is the rows of a slice. */
static cudaError_t spatial(const cudaMemcpy3DParms *c, CUDA_MEMCPY3D *out) {
  if (c == NULL) return cudaErrorInvalidValue;
  TRY(known_kind(c->kind));
  if (c->srcArray != NULL || c->dstArray != NULL) return refuse("a copy from or to a CUDA array is not simulated");
  const void *s = c->srcPtr.ptr;
  *out = (CUDA_MEMCPY3D){
      .srcMemoryType = type_of(c->kind, from_host(c->kind)), .srcHost = s, .srcDevice = (uintptr_t)s,
      .srcXInBytes = c->srcPos.x, .srcY = c->srcPos.y, .srcZ = c->srcPos.z,
      .srcPitch = c->srcPtr.pitch, .srcHeight = c->srcPtr.ysize,
      .dstMemoryType = type_of(c->kind, to_host(c->kind)), .dstHost = c->dstPtr.ptr,
      .dstDevice = (uintptr_t)c->dstPtr.ptr, .dstXInBytes = c->dstPos.x, .dstY = c->dstPos.y, .dstZ = c->dstPos.z,
      .dstPitch = c->dstPtr.pitch, .dstHeight = c->dstPtr.ysize,
      .WidthInBytes = c->extent.width, .Height = c->extent.height, .Depth = c->extent.depth};
  if (c->extent.width > c->srcPtr.pitch || c->extent.width > c->dstPtr.pitch) return cudaErrorInvalidPitchValue;
  return context();
}

cudaError_t do_cudaMemcpy3D(const cudaMemcpy3DParms *p) {
  CUDA_MEMCPY3D c;
  TRY(spatial(p, &c));
  return from(BY_DEFAULT(cuMemcpy3D_v2)(&c));
}

cudaError_t do_cudaMemcpy3DAsync(const cudaMemcpy3DParms *p, cudaStream_t q) {
  CUDA_MEMCPY3D c;
  TRY(spatial(p, &c));
  return from(cuMemcpy3DAsync_v2(&c, stream_of(q)));
}

cudaError_t do_cudaMemset(void *p, int value, size_t n) {
  TRY(context());
  return from(BY_DEFAULT(cuMemsetD8_v2)((uintptr_t)p, (unsigned char)value, n));
}

cudaError_t do_cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t q) {
  TRY(context());
  return from(cuMemsetD8Async((uintptr_t)p, (unsigned char)value, n, stream_of(q)));
}

cudaError_t do_cudaMemset2D(void *p, size_t pitch, int value, size_t w, size_t h) {
  TRY(context());
  return from(BY_DEFAULT(cuMemsetD2D8_v2)((uintptr_t)p, pitch, (unsigned char)value, w, h));
}

cudaError_t do_cudaMemset2DAsync(void *p, size_t pitch, int value, size_t w, size_t h, cudaStream_t q) {
  TRY(context());
  return from(cuMemsetD2D8Async((uintptr_t)p, pitch, (unsigned char)value, w, h, stream_of(q)));
}
