/* copy.c: all the calls that copy or fill.
 *
 * CUDA finds out by itself where memory lies; only what HIP calls the host's side of a box is named so, because it may
 * be memory that the driver does not know. It must not know about allocation. */
#include "forward.h"

static CUdeviceptr address(const void *p) {
  return (CUdeviceptr)(uintptr_t)p;
}

hipError_t do_hipMemcpy(void *d, const void *s, size_t n, hipMemcpyKind kind) {
  TRY(known_kind(kind));
  return n == 0 ? hipSuccess : DO_DEFAULT(cuMemcpy, address(d), address(s), n);
}

hipError_t do_hipMemcpyAsync(void *d, const void *s, size_t n, hipMemcpyKind kind, hipStream_t q) {
  TRY(known_kind(kind));
  return n == 0 ? hipSuccess : DO(cuMemcpyAsync, address(d), address(s), n, forward_stream(q));
}

hipError_t do_hipMemcpyWithStream(void *d, const void *s, size_t n, hipMemcpyKind kind, hipStream_t q) {
  TRY(do_hipMemcpyAsync(d, s, n, kind, q));
  return DO(cuStreamSynchronize, forward_stream(q));
}

hipError_t do_hipMemcpyHtoD(hipDeviceptr_t d, const void *s, size_t n) {
  return n == 0 ? hipSuccess : DO(cuMemcpyHtoD_v2, address(d), s, n);
}

hipError_t do_hipMemcpyDtoH(void *d, hipDeviceptr_t s, size_t n) {
  return n == 0 ? hipSuccess : DO(cuMemcpyDtoH_v2, d, address(s), n);
}

hipError_t do_hipMemcpyDtoD(hipDeviceptr_t d, hipDeviceptr_t s, size_t n) {
  return n == 0 ? hipSuccess : DO(cuMemcpyDtoD_v2, address(d), address(s), n);
}

hipError_t do_hipMemcpyHtoDAsync(hipDeviceptr_t d, const void *s, size_t n, hipStream_t q) {
  return n == 0 ? hipSuccess : DO(cuMemcpyHtoDAsync_v2, address(d), s, n, forward_stream(q));
}

hipError_t do_hipMemcpyDtoHAsync(void *d, hipDeviceptr_t s, size_t n, hipStream_t q) {
  return n == 0 ? hipSuccess : DO(cuMemcpyDtoHAsync_v2, d, address(s), n, forward_stream(q));
}

hipError_t do_hipMemcpyDtoDAsync(hipDeviceptr_t d, hipDeviceptr_t s, size_t n, hipStream_t q) {
  return n == 0 ? hipSuccess : DO(cuMemcpyDtoDAsync_v2, address(d), address(s), n, forward_stream(q));
}

hipError_t do_hipMemcpyPeer(void *d, int dd, const void *s, int sd, size_t n) {
  CUcontext to, source;
  TRY(forward_context(dd, &to));
  TRY(forward_context(sd, &source));
  return DO_DEFAULT(cuMemcpyPeer, address(d), to, address(s), source, n);
}

hipError_t do_hipMemcpyPeerAsync(void *d, int dd, const void *s, int sd, size_t n, hipStream_t q) {
  CUcontext to, source;
  TRY(forward_context(dd, &to));
  TRY(forward_context(sd, &source));
  return DO(cuMemcpyPeerAsync, address(d), to, address(s), source, n, forward_stream(q));
}

/* One side of a box. */
typedef struct side {
  const void *p;
  bool host;
  hipArray_t array; /* instead of p; NULL: none */
  size_t x, y, z, pitch, height;
} side;

static CUmemorytype type_of(const side *a) {
  if (a->array != NULL) return CU_MEMORYTYPE_ARRAY;
  return a->host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED;
}

/* In a single slice no height is needed, but CUDA looks at it. */
static size_t height_of(const side *a, const hipExtent *e) {
  return e->depth == 1 && a->z == 0 && a->height < a->y + e->height ? a->y + e->height : a->height;
}

static hipError_t box(const side *d, const side *s, const hipExtent *e, hipStream_t q, bool sync) {
  if (e->width == 0 || e->height == 0 || e->depth == 0) return hipSuccess;
  if (d->pitch < d->x + e->width || s->pitch < s->x + e->width) return hipErrorInvalidPitchValue;
  const CUDA_MEMCPY3D c = {
      .srcXInBytes = s->x, .srcY = s->y, .srcZ = s->z, .srcMemoryType = type_of(s), .srcHost = s->p,
      .srcDevice = address(s->p), .srcArray = (CUarray)s->array, .srcPitch = s->pitch, .srcHeight = height_of(s, e),
      .dstXInBytes = d->x, .dstY = d->y, .dstZ = d->z, .dstMemoryType = type_of(d), .dstHost = (void *)(uintptr_t)d->p,
      .dstDevice = address(d->p), .dstArray = (CUarray)d->array, .dstPitch = d->pitch, .dstHeight = height_of(d, e),
      .WidthInBytes = e->width, .Height = e->height, .Depth = e->depth};
  return sync ? DO_DEFAULT(cuMemcpy3D_v2, &c) : DO(cuMemcpy3DAsync_v2, &c, forward_stream(q));
}

typedef struct plane {
  void *d;
  const void *s;
  size_t dp, sp, w, h;
} plane;

static hipError_t flat(const plane *c, hipMemcpyKind kind, hipStream_t q, bool sync) {
  TRY(known_kind(kind));
  if (c->w == 0 || c->h == 0) return hipSuccess;
  if (c->dp < c->w || c->sp < c->w) return hipErrorInvalidPitchValue;
  const CUDA_MEMCPY2D two = {.srcMemoryType = from_host(kind) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED,
                             .srcHost = c->s, .srcDevice = address(c->s), .srcPitch = c->sp,
                             .dstMemoryType = to_host(kind) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED,
                             .dstHost = c->d, .dstDevice = address(c->d), .dstPitch = c->dp,
                             .WidthInBytes = c->w, .Height = c->h};
  return sync ? DO_DEFAULT(cuMemcpy2DUnaligned_v2, &two) : DO(cuMemcpy2DAsync_v2, &two, forward_stream(q));
}

hipError_t do_hipMemcpy2D(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, hipMemcpyKind kind) {
  const plane c = {d, s, dp, sp, w, h};
  return flat(&c, kind, NULL, true);
}

hipError_t do_hipMemcpy2DAsync(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, hipMemcpyKind kind,
                               hipStream_t q) {
  const plane c = {d, s, dp, sp, w, h};
  return flat(&c, kind, q, false);
}

hipError_t do_hipMemcpy2DToArrayAsync(hipArray_t a, size_t x, size_t y, const void *s, size_t sp, size_t w, size_t h,
                                      hipMemcpyKind kind, hipStream_t q) {
  const CUDA_MEMCPY2D two = {.srcMemoryType = from_host(kind) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED,
                             .srcHost = s, .srcDevice = address(s), .srcPitch = sp, .dstXInBytes = x, .dstY = y,
                             .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = (CUarray)a, .WidthInBytes = w,
                             .Height = h};
  TRY(known_kind(kind));
  return DO(cuMemcpy2DAsync_v2, &two, forward_stream(q));
}

hipError_t do_hipMemcpy2DFromArrayAsync(void *d, size_t dp, hipArray_const_t a, size_t x, size_t y, size_t w, size_t h,
                                        hipMemcpyKind kind, hipStream_t q) {
  const CUDA_MEMCPY2D two = {.dstMemoryType = to_host(kind) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED,
                             .dstHost = d, .dstDevice = address(d), .dstPitch = dp, .srcXInBytes = x, .srcY = y,
                             .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = (CUarray)(uintptr_t)a,
                             .WidthInBytes = w, .Height = h};
  TRY(known_kind(kind));
  return DO(cuMemcpy2DAsync_v2, &two, forward_stream(q));
}

static hipError_t three(const hipMemcpy3DParms *p, hipStream_t q, bool sync) {
  if (p == NULL) return hipErrorInvalidValue;
  if (p->srcArray != NULL || p->dstArray != NULL) return hipErrorNotSupported;
  TRY(known_kind(p->kind));
  const side s = {p->srcPtr.ptr, from_host(p->kind), NULL, p->srcPos.x, p->srcPos.y, p->srcPos.z, p->srcPtr.pitch,
                  p->srcPtr.ysize};
  const side d = {p->dstPtr.ptr, to_host(p->kind), NULL, p->dstPos.x, p->dstPos.y, p->dstPos.z, p->dstPtr.pitch,
                  p->dstPtr.ysize};
  return box(&d, &s, &p->extent, q, sync);
}

hipError_t do_hipMemcpy3D(const hipMemcpy3DParms *p) {
  return three(p, NULL, true);
}

hipError_t do_hipMemcpy3DAsync(const hipMemcpy3DParms *p, hipStream_t q) {
  return three(p, q, false);
}

static size_t or_else(size_t given, size_t otherwise) {
  return given != 0 ? given : otherwise;
}

static hipArray_t array_of(hipMemoryType type, hipArray_t array) {
  return type == hipMemoryTypeArray ? array : NULL;
}

hipError_t described(const HIP_MEMCPY3D *c, hipStream_t q, bool sync) {
  const bool out = c->srcMemoryType == hipMemoryTypeHost, in = c->dstMemoryType == hipMemoryTypeHost;
  const hipExtent e = {c->WidthInBytes, c->Height, c->Depth};
  const hipArray_t from_array = array_of(c->srcMemoryType, c->srcArray);
  const hipArray_t to_array = array_of(c->dstMemoryType, c->dstArray);
  const side s = {out ? c->srcHost : c->srcDevice, out, from_array, c->srcXInBytes, c->srcY, c->srcZ,
                  or_else(c->srcPitch, c->srcXInBytes + e.width), or_else(c->srcHeight, c->srcY + e.height)};
  const side d = {in ? c->dstHost : c->dstDevice, in, to_array, c->dstXInBytes, c->dstY, c->dstZ,
                  or_else(c->dstPitch, c->dstXInBytes + e.width), or_else(c->dstHeight, c->dstY + e.height)};
  return box(&d, &s, &e, q, sync);
}

hipError_t do_hipDrvMemcpy3DAsync(const HIP_MEMCPY3D *c, hipStream_t q) {
  return c == NULL ? hipErrorInvalidValue : described(c, q, false);
}

hipError_t do_hipMemset(void *d, int v, size_t n) {
  return n == 0 ? hipSuccess : DO_DEFAULT(cuMemsetD8_v2, address(d), (unsigned char)v, n);
}

hipError_t do_hipMemsetAsync(void *d, int v, size_t n, hipStream_t q) {
  return n == 0 ? hipSuccess : DO(cuMemsetD8Async, address(d), (unsigned char)v, n, forward_stream(q));
}

hipError_t do_hipMemset2D(void *d, size_t pitch, int v, size_t w, size_t h) {
  if (pitch < w) return hipErrorInvalidValue;
  return w == 0 || h == 0 ? hipSuccess : DO_DEFAULT(cuMemsetD2D8_v2, address(d), pitch, (unsigned char)v, w, h);
}

hipError_t do_hipMemset2DAsync(void *d, size_t pitch, int v, size_t w, size_t h, hipStream_t q) {
  if (pitch < w) return hipErrorInvalidValue;
  if (w == 0 || h == 0) return hipSuccess;
  return DO(cuMemsetD2D8Async, address(d), pitch, (unsigned char)v, w, h, forward_stream(q));
}

/* CUDA fills no boxes: plane by plane. */
static hipError_t fill_3d(const hipPitchedPtr *p, int v, const hipExtent *e, hipStream_t q, bool sync) {
  if (p->pitch < e->width || (e->depth > 1 && p->ysize < e->height)) return hipErrorInvalidValue;
  for (size_t z = 0; z < e->depth; z++) {
    char *at = (char *)p->ptr + z * p->ysize * p->pitch;
    TRY(sync ? do_hipMemset2D(at, p->pitch, v, e->width, e->height)
             : do_hipMemset2DAsync(at, p->pitch, v, e->width, e->height, q));
  }
  return hipSuccess;
}

hipError_t do_hipMemset3D(hipPitchedPtr p, int v, hipExtent e) {
  return fill_3d(&p, v, &e, NULL, true);
}

hipError_t do_hipMemset3DAsync(hipPitchedPtr p, int v, hipExtent e, hipStream_t q) {
  return fill_3d(&p, v, &e, q, false);
}

#define FILLS(bits, type, theirs)                                                                                    \
  hipError_t do_hipMemsetD##bits(hipDeviceptr_t d, type v, size_t n) {                                               \
    return n == 0 ? hipSuccess : DO(cuMemsetD##bits##_v2, address(d), (theirs)v, n);                                 \
  }                                                                                                                  \
  hipError_t do_hipMemsetD##bits##Async(hipDeviceptr_t d, type v, size_t n, hipStream_t q) {                         \
    return n == 0 ? hipSuccess : DO(cuMemsetD##bits##Async, address(d), (theirs)v, n, forward_stream(q));            \
  }
FILLS(8, unsigned char, unsigned char)
FILLS(16, unsigned short, unsigned short)
FILLS(32, int, unsigned)
