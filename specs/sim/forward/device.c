/* device.c: devices and what they say of themselves.
 *
 * Attributes and properties are the CUDA device's under HIP's numbers and names. It must not know about streams or
 * memory. */
#include <stdio.h>
#include <string.h>

#include "forward.h"

hipError_t do_hipGetDevice(int *device) {
  if (device == NULL) return hipErrorInvalidValue;
  *device = forward_device();
  return hipSuccess;
}

hipError_t do_hipDeviceGet(hipDevice_t *device, int ordinal) {
  return DO(cuDeviceGet, device, ordinal);
}

hipError_t do_hipDeviceGetName(char *name, int size, hipDevice_t device) {
  return DO(cuDeviceGetName, name, size, device);
}

hipError_t do_hipDeviceGetUuid(hipUUID *uuid, hipDevice_t device) {
  CUuuid theirs;
  if (uuid == NULL) return hipErrorInvalidValue;
  TRY(DO(cuDeviceGetUuid, &theirs, device));
  memcpy(uuid->bytes, theirs.bytes, sizeof uuid->bytes);
  return hipSuccess;
}

hipError_t do_hipDeviceTotalMem(size_t *n, hipDevice_t device) {
  return DO(cuDeviceTotalMem_v2, n, device);
}

hipError_t do_hipDeviceComputeCapability(int *major, int *minor, hipDevice_t device) {
  return DO(cuDeviceComputeCapability, major, minor, device);
}

/* HIP's numbers and CUDA's; what is not here is answered with 0. */
static const struct {
  int hip, cuda;
} attributes[] = {
    {2, 40},   /* copy engines */
    {3, 19},   /* can map host memory */
    {4, 91},   /* registered memory keeps its address */
    {5, 13},   /* clock rate */
    {8, 31},   /* concurrent kernels */
    {9, 89},   /* concurrent managed access */
    {19, 38},  /* L2 cache */
    {23, 75},  /* compute capability, major */
    {24, 83},  /* managed memory */
    {26, 2},   /* block x */
    {27, 3},   /* block y */
    {28, 4},   /* block z */
    {29, 5},   /* grid x */
    {30, 6},   /* grid y */
    {31, 7},   /* grid z */
    {56, 1},   /* threads per block */
    {57, 39},  /* threads per multiprocessor */
    {58, 11},  /* pitch */
    {59, 37},  /* memory bus width */
    {60, 36},  /* memory clock rate */
    {61, 76},  /* compute capability, minor */
    {63, 16},  /* multiprocessors */
    {65, 88},  /* pageable memory access */
    {67, 33},  /* PCI bus */
    {71, 12},  /* registers per block */
    {74, 8},   /* shared memory per block */
    {78, 78},  /* stream priorities */
    {81, 14},  /* texture alignment */
    {83, 9},   /* constant memory */
    {85, 41},  /* unified addressing */
    {87, 10},  /* warp size */
    {88, 115}, /* memory pools */
    {90, 99},  /* host registration */
};

hipError_t do_hipDeviceGetAttribute(int *v, int which, int device) {
  if (v == NULL || which < 0) return hipErrorInvalidValue;
  for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
    if (attributes[i].hip == which) return DO(cuDeviceGetAttribute, v, attributes[i].cuda, device);
  *v = 0;
  return hipSuccess;
}

static int value(int cuda, int device) {
  int v = 0;
  return DO(cuDeviceGetAttribute, &v, cuda, device) == hipSuccess ? v : 0;
}

static void describe_limits(hipDeviceProp_tR0600 *p, int d) {
  p->sharedMemPerBlock = (size_t)value(8, d);
  p->regsPerBlock = value(12, d);
  p->warpSize = value(10, d);
  p->memPitch = (size_t)value(11, d);
  p->maxThreadsPerBlock = value(1, d);
  for (int i = 0; i < 3; i++) {
    p->maxThreadsDim[i] = value(2 + i, d);
    p->maxGridSize[i] = value(5 + i, d);
  }
  p->totalConstMem = (size_t)value(9, d);
  p->textureAlignment = (size_t)value(14, d);
  p->texturePitchAlignment = (size_t)value(51, d);
  p->maxThreadsPerMultiProcessor = value(39, d);
  p->sharedMemPerMultiprocessor = p->maxSharedMemoryPerMultiProcessor = (size_t)value(81, d);
  p->regsPerMultiprocessor = value(82, d);
}

static void describe(hipDeviceProp_tR0600 *p, int d) {
  p->clockRate = value(13, d);
  p->major = value(75, d);
  p->minor = value(76, d);
  p->multiProcessorCount = value(16, d);
  p->integrated = value(18, d);
  p->canMapHostMemory = value(19, d);
  p->concurrentKernels = value(31, d);
  p->ECCEnabled = value(32, d);
  p->pciBusID = value(33, d);
  p->pciDeviceID = value(34, d);
  p->pciDomainID = value(50, d);
  p->asyncEngineCount = value(40, d);
  p->unifiedAddressing = value(41, d);
  p->memoryClockRate = value(36, d);
  p->memoryBusWidth = value(37, d);
  p->l2CacheSize = value(38, d);
  p->streamPrioritiesSupported = value(78, d);
  p->managedMemory = value(83, d);
  p->pageableMemoryAccess = value(88, d);
  p->concurrentManagedAccess = value(89, d);
  p->canUseHostPointerForRegisteredMem = value(91, d);
  p->hostRegisterSupported = value(99, d);
  p->memoryPoolsSupported = value(115, d);
  snprintf(p->gcnArchName, sizeof p->gcnArchName, "gfx%d%d0", p->major, p->minor);
}

hipError_t do_hipGetDevicePropertiesR0600(hipDeviceProp_tR0600 *p, int device) {
  if (p == NULL) return hipErrorInvalidValue;
  memset(p, 0, sizeof *p);
  TRY(do_hipDeviceTotalMem(&p->totalGlobalMem, device));
  TRY(do_hipDeviceGetName(p->name, sizeof p->name, device));
  describe_limits(p, device);
  describe(p, device);
  return do_hipDeviceGetUuid(&p->uuid, device);
}

hipError_t do_hipDeviceGetPCIBusId(char *text, int size, int device) {
  return DO(cuDeviceGetPCIBusId, text, size, device);
}

hipError_t do_hipDeviceCanAccessPeer(int *can, int device, int peer) {
  return DO(cuDeviceCanAccessPeer, can, device, peer);
}

/* CUDA counts these from 1, HIP from 0. */
hipError_t do_hipDeviceGetP2PAttribute(int *v, int which, int a, int b) {
  return DO(cuDeviceGetP2PAttribute, v, which + 1, a, b);
}

hipError_t do_hipDeviceEnablePeerAccess(int peer, unsigned flags) {
  CUcontext c;
  TRY(forward_context(peer, &c));
  return DO(cuCtxEnablePeerAccess, c, flags);
}

hipError_t do_hipDeviceDisablePeerAccess(int peer) {
  CUcontext c;
  TRY(forward_context(peer, &c));
  return DO(cuCtxDisablePeerAccess, c);
}

hipError_t do_hipDeviceSynchronize(void) {
  return DO(cuCtxSynchronize);
}

hipError_t do_hipDeviceReset(void) {
  const hipError_t rc = DO(cuDevicePrimaryCtxReset_v2, forward_device());
  forward_forget(forward_device());
  return rc;
}
