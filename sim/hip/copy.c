/* copy.c: all the calls that copy or fill, brought to the engine's two.
 *
 * A call that says which side is the host's is held to it: device memory where host memory is meant is refused,
 * though a real runtime often finds out by itself. It must not know when a copy happens. */
#include "front.h"

static hipError_t sides(uintptr_t d, uintptr_t s, hipMemcpyKind kind) {
  TRY(known_kind(kind));
  if (kind == hipMemcpyDefault) return hipSuccess;
  TRY(from(sim_on_side(d, to_host(kind))));
  return from(sim_on_side(s, from_host(kind)));
}

static hipError_t move(const sim_region *to, const sim_region *source, hipMemcpyKind kind, hipStream_t q, bool sync) {
  sim_stream *s;
  TRY(stream_of(q, &s));
  if (sim_region_empty(to)) return hipSuccess;
  TRY(sides(to->base, source->base, kind));
  sim_log_detail("%#zx <- %#zx, %zu x %zu x %zu bytes, %s", (size_t)to->base, (size_t)source->base, to->width, to->rows,
           to->depth, s->name);
  return from(sim_copy(s, to, source, sync));
}

static hipError_t linear(void *d, const void *s, size_t n, hipMemcpyKind kind, hipStream_t q, bool sync) {
  const sim_region to = sim_flat((uintptr_t)d, n), source = sim_flat((uintptr_t)s, n);
  return move(&to, &source, kind, q, sync);
}

hipError_t do_hipMemcpy(void *d, const void *s, size_t n, hipMemcpyKind kind) {
  return linear(d, s, n, kind, NULL, true);
}

hipError_t do_hipMemcpyAsync(void *d, const void *s, size_t n, hipMemcpyKind kind, hipStream_t q) {
  return linear(d, s, n, kind, q, false);
}

hipError_t do_hipMemcpyWithStream(void *d, const void *s, size_t n, hipMemcpyKind kind, hipStream_t q) {
  return linear(d, s, n, kind, q, true);
}

hipError_t do_hipMemcpyHtoD(hipDeviceptr_t d, const void *s, size_t n) {
  return linear(d, s, n, hipMemcpyHostToDevice, NULL, true);
}

hipError_t do_hipMemcpyDtoH(void *d, hipDeviceptr_t s, size_t n) {
  return linear(d, s, n, hipMemcpyDeviceToHost, NULL, true);
}

hipError_t do_hipMemcpyDtoD(hipDeviceptr_t d, hipDeviceptr_t s, size_t n) {
  return linear(d, s, n, hipMemcpyDeviceToDevice, NULL, true);
}

hipError_t do_hipMemcpyHtoDAsync(hipDeviceptr_t d, const void *s, size_t n, hipStream_t q) {
  return linear(d, s, n, hipMemcpyHostToDevice, q, false);
}

hipError_t do_hipMemcpyDtoHAsync(void *d, hipDeviceptr_t s, size_t n, hipStream_t q) {
  return linear(d, s, n, hipMemcpyDeviceToHost, q, false);
}

hipError_t do_hipMemcpyDtoDAsync(hipDeviceptr_t d, hipDeviceptr_t s, size_t n, hipStream_t q) {
  return linear(d, s, n, hipMemcpyDeviceToDevice, q, false);
}

static hipError_t two_devices(int a, int b) {
  sim_device *d;
  TRY(device_of(a, &d));
  return device_of(b, &d);
}

hipError_t do_hipMemcpyPeer(void *d, int dd, const void *s, int sd, size_t n) {
  TRY(two_devices(dd, sd));
  return linear(d, s, n, hipMemcpyDeviceToDevice, NULL, true);
}

hipError_t do_hipMemcpyPeerAsync(void *d, int dd, const void *s, int sd, size_t n, hipStream_t q) {
  TRY(two_devices(dd, sd));
  return linear(d, s, n, hipMemcpyDeviceToDevice, q, false);
}

static hipError_t pitched(const sim_region *to, const sim_region *source, hipMemcpyKind kind, hipStream_t q,
                          bool sync) {
  if (to->pitch < to->width || source->pitch < source->width) return hipErrorInvalidPitchValue;
  if (to->pitch > sim_conf.max_pitch || source->pitch > sim_conf.max_pitch) return hipErrorInvalidPitchValue;
  return move(to, source, kind, q, sync);
}

hipError_t do_hipMemcpy2D(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, hipMemcpyKind kind) {
  const sim_region to = sim_plane((uintptr_t)d, dp, w, h), source = sim_plane((uintptr_t)s, sp, w, h);
  return pitched(&to, &source, kind, NULL, true);
}

hipError_t do_hipMemcpy2DAsync(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, hipMemcpyKind kind,
                               hipStream_t q) {
  const sim_region to = sim_plane((uintptr_t)d, dp, w, h), source = sim_plane((uintptr_t)s, sp, w, h);
  return pitched(&to, &source, kind, q, false);
}

/* One array and rows of memory: x and width are in bytes, y and height in rows. */
hipError_t do_hipMemcpy2DToArrayAsync(hipArray_t a, size_t x, size_t y, const void *s, size_t sp, size_t w, size_t h,
                                      hipMemcpyKind kind, hipStream_t q) {
  const sim_box part = {x, y, 0, w, h, 1};
  const sim_region source = sim_plane((uintptr_t)s, sp, w, h);
  sim_region to;
  TRY(from(sim_call_array_part(a, &part, &to)));
  return pitched(&to, &source, kind, q, false);
}

hipError_t do_hipMemcpy2DFromArrayAsync(void *d, size_t dp, hipArray_const_t a, size_t x, size_t y, size_t w, size_t h,
                                        hipMemcpyKind kind, hipStream_t q) {
  const sim_box part = {x, y, 0, w, h, 1};
  const sim_region to = sim_plane((uintptr_t)d, dp, w, h);
  sim_region source;
  TRY(from(sim_call_array_part(a, &part, &source)));
  return pitched(&to, &source, kind, q, false);
}

static sim_region box(const hipPitchedPtr *p, const hipPos *at, const hipExtent *e) {
  const size_t slice = p->pitch * p->ysize;
  const uintptr_t base = (uintptr_t)p->ptr + at->z * slice + at->y * p->pitch + at->x;
  return (sim_region){base, e->width, p->pitch, e->height, slice, e->depth};
}

static hipError_t fits(const hipPitchedPtr *p, const hipPos *at, const hipExtent *e) {
  if (p->pitch < at->x + e->width || p->pitch > sim_conf.max_pitch) return hipErrorInvalidPitchValue;
  return e->depth > 1 && p->ysize < at->y + e->height ? hipErrorInvalidValue : hipSuccess;
}

static hipError_t three(const hipMemcpy3DParms *p, hipStream_t q, bool sync) {
  if (p == NULL) return hipErrorInvalidValue;
  if (p->srcArray != NULL || p->dstArray != NULL) return hipErrorNotSupported;
  TRY(fits(&p->srcPtr, &p->srcPos, &p->extent));
  TRY(fits(&p->dstPtr, &p->dstPos, &p->extent));
  const sim_region to = box(&p->dstPtr, &p->dstPos, &p->extent), source = box(&p->srcPtr, &p->srcPos, &p->extent);
  return move(&to, &source, p->kind, q, sync);
}

hipError_t do_hipMemcpy3D(const hipMemcpy3DParms *p) {
  return three(p, NULL, true);
}

hipError_t do_hipMemcpy3DAsync(const hipMemcpy3DParms *p, hipStream_t q) {
  return three(p, q, false);
}

/* One side of a copy that says of itself what it is. */
typedef struct side {
  hipMemoryType type;
  const void *host, *device;
  hipArray_t array;
  size_t x, y, z, pitch, height;
} side;

static hipError_t locate(const side *p, const hipExtent *e, sim_region *out) {
  const bool host = p->type == hipMemoryTypeHost;
  const bool known = host || p->type == hipMemoryTypeDevice || p->type == hipMemoryTypeUnified;
  const size_t pitch = p->pitch != 0 ? p->pitch : p->x + e->width;
  const hipPitchedPtr whole = {(void *)(uintptr_t)(host ? p->host : p->device), pitch, pitch,
                               p->height != 0 ? p->height : p->y + e->height};
  const hipPos at = {p->x, p->y, p->z};
  const sim_box part = {p->x, p->y, p->z, e->width, e->height, e->depth};
  if (p->type == hipMemoryTypeArray) return from(sim_call_array_part(p->array, &part, out));
  if (!known) return hipErrorInvalidValue;
  *out = box(&whole, &at, e);
  return fits(&whole, &at, e);
}

static hipMemcpyKind kind_of(hipMemoryType to, hipMemoryType source) {
  if (to == hipMemoryTypeUnified || source == hipMemoryTypeUnified) return hipMemcpyDefault;
  if (to == hipMemoryTypeHost) return source == hipMemoryTypeHost ? hipMemcpyHostToHost : hipMemcpyDeviceToHost;
  return source == hipMemoryTypeHost ? hipMemcpyHostToDevice : hipMemcpyDeviceToDevice;
}

hipError_t described(const HIP_MEMCPY3D *c, hipStream_t q, bool sync) {
  sim_region to, source;
  const hipExtent e = {c->WidthInBytes, c->Height, c->Depth};
  const side a = {c->srcMemoryType, c->srcHost, c->srcDevice, c->srcArray, c->srcXInBytes, c->srcY, c->srcZ,
                  c->srcPitch, c->srcHeight};
  const side b = {c->dstMemoryType, c->dstHost, c->dstDevice, c->dstArray, c->dstXInBytes, c->dstY, c->dstZ,
                  c->dstPitch, c->dstHeight};
  TRY(locate(&a, &e, &source));
  TRY(locate(&b, &e, &to));
  return move(&to, &source, kind_of(b.type, a.type), q, sync);
}

/* The runtime of ROCm 6 and 7 does not capture this one, but copies at once; here that is forbidden. */
hipError_t do_hipDrvMemcpy3DAsync(const HIP_MEMCPY3D *c, hipStream_t q) {
  sim_stream *s;
  TRY(stream_of(q, &s));
  if (s->capture != NULL) return from(sim_capture_forbid(s, SIM_CAP_UNSUPPORTED));
  return c == NULL ? hipErrorInvalidValue : described(c, q, false);
}

static hipError_t fill(const sim_region *r, uint32_t value, unsigned unit, hipStream_t q, bool sync) {
  return from(sim_call_fill(q, r, value, unit, sync));
}

hipError_t do_hipMemset(void *d, int v, size_t n) {
  const sim_region r = sim_flat((uintptr_t)d, n);
  return fill(&r, (unsigned char)v, 1, NULL, true);
}

hipError_t do_hipMemsetAsync(void *d, int v, size_t n, hipStream_t q) {
  const sim_region r = sim_flat((uintptr_t)d, n);
  return fill(&r, (unsigned char)v, 1, q, false);
}

hipError_t do_hipMemset2D(void *d, size_t pitch, int v, size_t w, size_t h) {
  const sim_region r = sim_plane((uintptr_t)d, pitch, w, h);
  return pitch < w ? hipErrorInvalidValue : fill(&r, (unsigned char)v, 1, NULL, true);
}

hipError_t do_hipMemset2DAsync(void *d, size_t pitch, int v, size_t w, size_t h, hipStream_t q) {
  const sim_region r = sim_plane((uintptr_t)d, pitch, w, h);
  return pitch < w ? hipErrorInvalidValue : fill(&r, (unsigned char)v, 1, q, false);
}

static hipError_t fill_3d(const hipPitchedPtr *p, int v, const hipExtent *e, hipStream_t q, bool sync) {
  const hipPos origin = {0, 0, 0};
  const sim_region r = box(p, &origin, e);
  return fits(p, &origin, e) != hipSuccess ? hipErrorInvalidValue : fill(&r, (unsigned char)v, 1, q, sync);
}

hipError_t do_hipMemset3D(hipPitchedPtr p, int v, hipExtent e) {
  return fill_3d(&p, v, &e, NULL, true);
}

hipError_t do_hipMemset3DAsync(hipPitchedPtr p, int v, hipExtent e, hipStream_t q) {
  return fill_3d(&p, v, &e, q, false);
}

#define FILLS(bits, type)                                                                       \
  hipError_t do_hipMemsetD##bits(hipDeviceptr_t d, type v, size_t n) {                          \
    const sim_region r = sim_flat((uintptr_t)d, n * (bits / 8));                                \
    return fill(&r, (uint32_t)v, bits / 8, NULL, true);                                         \
  }                                                                                             \
  hipError_t do_hipMemsetD##bits##Async(hipDeviceptr_t d, type v, size_t n, hipStream_t q) {    \
    const sim_region r = sim_flat((uintptr_t)d, n * (bits / 8));                                \
    return fill(&r, (uint32_t)v, bits / 8, q, false);                                           \
  }
FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, int)
