/* plain.c: calls that are made of other calls, or need none.
 *
 * The simulated runtime and the one that forwards both have them from here. It must not know which of the two it is
 * part of. */
#include <string.h>

#include "front.h"

int runtime_version(void) {
  return sim_conf.version != 0 ? sim_conf.version : RUNTIME_VERSION;
}

hipError_t do_hipInit(unsigned flags) {
  return flags != 0 ? hipErrorInvalidValue : hipSuccess;
}

hipError_t do_hipDriverGetVersion(int *version) {
  if (version == NULL) return hipErrorInvalidValue;
  *version = runtime_version();
  return hipSuccess;
}

hipError_t do_hipRuntimeGetVersion(int *version) {
  return do_hipDriverGetVersion(version);
}

hipError_t do_hipDeviceGetByPCIBusId(int *device, const char *text) {
  char own[24];
  if (device == NULL || text == NULL) return hipErrorInvalidValue;
  for (int i = 0; do_hipDeviceGetPCIBusId(own, sizeof own, i) == hipSuccess; i++) {
    if (strcmp(own, text) != 0) continue;
    *device = i;
    return hipSuccess;
  }
  return hipErrorInvalidValue;
}

hipError_t do_hipDeviceGetLimit(size_t *v, int which) {
  (void)which;
  return v == NULL ? hipErrorInvalidValue : hipErrorUnsupportedLimit;
}

hipError_t do_hipDeviceGetStreamPriorityRange(int *least, int *greatest) {
  if (least != NULL) *least = 1;
  if (greatest != NULL) *greatest = -1;
  return hipSuccess;
}

hipError_t do_hipHostAlloc(void **p, size_t n, unsigned flags) {
  return do_hipHostMalloc(p, n, flags);
}

hipError_t do_hipStreamCreateWithFlags(hipStream_t *out, unsigned flags) {
  return do_hipStreamCreateWithPriority(out, flags, 0);
}

hipError_t do_hipStreamCreate(hipStream_t *out) {
  return do_hipStreamCreateWithPriority(out, hipStreamDefault, 0);
}

hipError_t do_hipEventCreate(hipEvent_t *out) {
  return do_hipEventCreateWithFlags(out, 0);
}

hipError_t do_hipStreamGetCaptureInfo(hipStream_t s, hipStreamCaptureStatus *status, unsigned long long *id) {
  return do_hipStreamGetCaptureInfo_v2(s, status, id, NULL, NULL, NULL);
}

hipError_t do_hipGraphInstantiate(hipGraphExec_t *x, hipGraph_t g, hipGraphNode_t *bad, char *log, size_t size) {
  if (bad != NULL) *bad = NULL;
  if (log != NULL && size > 0) *log = '\0';
  return do_hipGraphInstantiateWithFlags(x, g, 0);
}

bool to_host(hipMemcpyKind kind) {
  return kind == hipMemcpyHostToHost || kind == hipMemcpyDeviceToHost;
}

bool from_host(hipMemcpyKind kind) {
  return kind == hipMemcpyHostToHost || kind == hipMemcpyHostToDevice;
}

hipError_t known_kind(hipMemcpyKind kind) {
  const bool is = (kind >= hipMemcpyHostToHost && kind <= hipMemcpyDefault) || kind == hipMemcpyDeviceToDeviceNoCU;
  return is ? hipSuccess : hipErrorInvalidMemcpyDirection;
}

static HIP_MEMCPY3D widened(const hip_Memcpy2D *c) {
  return (HIP_MEMCPY3D){.srcXInBytes = c->srcXInBytes, .srcY = c->srcY, .srcMemoryType = c->srcMemoryType,
                        .srcHost = c->srcHost, .srcDevice = c->srcDevice, .srcArray = c->srcArray,
                        .srcPitch = c->srcPitch,
                        .dstXInBytes = c->dstXInBytes, .dstY = c->dstY, .dstMemoryType = c->dstMemoryType,
                        .dstHost = c->dstHost, .dstDevice = c->dstDevice, .dstArray = c->dstArray,
                        .dstPitch = c->dstPitch,
                        .WidthInBytes = c->WidthInBytes, .Height = c->Height, .Depth = 1};
}

static hipError_t described_2d(const hip_Memcpy2D *c, hipStream_t q, bool sync) {
  if (c == NULL) return hipErrorInvalidValue;
  const HIP_MEMCPY3D wide = widened(c);
  return described(&wide, q, sync);
}

hipError_t do_hipMemcpyParam2D(const hip_Memcpy2D *c) {
  return described_2d(c, NULL, true);
}

hipError_t do_hipMemcpyParam2DAsync(const hip_Memcpy2D *c, hipStream_t q) {
  return described_2d(c, q, false);
}

hipError_t do_hipDrvMemcpy3D(const HIP_MEMCPY3D *c) {
  return c == NULL ? hipErrorInvalidValue : described(c, NULL, true);
}
