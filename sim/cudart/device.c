/* device.c: devices, as the runtime describes them.
 *
 * All of it is asked of the driver, whose numbers for attributes the runtime shares. It must not know about contexts,
 * except that a few calls need one. */
#include <string.h>

#include "front.h"

cudaError_t do_cudaGetDeviceCount(int *count) {
  if (count == NULL) return cudaErrorInvalidValue;
  *count = 0;
  TRY(from(cuInit(0)));
  TRY(from(cuDeviceGetCount(count)));
  return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t do_cudaSetDeviceFlags(unsigned flags) {
  enum { MOST = 0xff };
  int device = 0;
  if (flags > MOST) return cudaErrorInvalidValue;
  TRY(do_cudaGetDevice(&device));
  return from(cuDevicePrimaryCtxSetFlags_v2(device, flags));
}

cudaError_t do_cudaGetDeviceFlags(unsigned *flags) {
  int device = 0, active = 0;
  if (flags == NULL) return cudaErrorInvalidValue;
  TRY(do_cudaGetDevice(&device));
  return from(cuDevicePrimaryCtxGetState(device, flags, &active));
}

cudaError_t do_cudaDeviceSynchronize(void) {
  TRY(context());
  return from(cuCtxSynchronize());
}

/* Limits have the driver's numbers, too. */
cudaError_t do_cudaDeviceGetLimit(size_t *value, int which) {
  TRY(context());
  return from(cuCtxGetLimit(value, (CUlimit)which));
}

cudaError_t do_cudaDeviceSetLimit(int which, size_t value) {
  TRY(context());
  return from(cuCtxSetLimit((CUlimit)which, value));
}

cudaError_t do_cudaDeviceGetAttribute(int *value, int which, int device) {
  TRY(known_device(device));
  return from(cuDeviceGetAttribute(value, which, device));
}

cudaError_t do_cudaDeviceGetP2PAttribute(int *value, int which, int a, int b) {
  TRY(known_device(a));
  TRY(known_device(b));
  return from(cuDeviceGetP2PAttribute(value, which, a, b));
}

cudaError_t do_cudaDeviceGetPCIBusId(char *text, int size, int device) {
  TRY(known_device(device));
  return from(cuDeviceGetPCIBusId(text, size, device));
}

cudaError_t do_cudaDeviceGetByPCIBusId(int *device, const char *text) {
  char own[32];
  if (device == NULL || text == NULL) return cudaErrorInvalidValue;
  for (int i = 0; do_cudaDeviceGetPCIBusId(own, sizeof own, i) == cudaSuccess; i++) {
    if (strcmp(own, text) != 0) continue;
    *device = i;
    return cudaSuccess;
  }
  return cudaErrorInvalidDevice;
}

cudaError_t do_cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  TRY(context());
  return from(cuCtxGetStreamPriorityRange(least, greatest));
}

cudaError_t do_cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  TRY(known_device(device));
  TRY(known_device(peer));
  return from(cuDeviceCanAccessPeer(can, device, peer));
}

cudaError_t do_cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  CUcontext c;
  TRY(context());
  TRY(primary_of(peer, &c));
  return from(cuCtxEnablePeerAccess(c, flags));
}

cudaError_t do_cudaDeviceDisablePeerAccess(int peer) {
  CUcontext c;
  TRY(context());
  TRY(primary_of(peer, &c));
  return from(cuCtxDisablePeerAccess(c));
}

/* The members that are attributes, by the driver's numbers for these. */
#define INT(member, which) {offsetof(cudaDeviceProp, member), sizeof(int), which}
#define WIDE(member, which) {offsetof(cudaDeviceProp, member), sizeof(size_t), which}
static const struct {
  size_t offset, size;
  int which;
} members[] = {
    INT(maxThreadsPerBlock, 1), INT(maxThreadsDim[0], 2), INT(maxThreadsDim[1], 3), INT(maxThreadsDim[2], 4),
    INT(maxGridSize[0], 5), INT(maxGridSize[1], 6), INT(maxGridSize[2], 7), WIDE(sharedMemPerBlock, 8),
    WIDE(totalConstMem, 9), INT(warpSize, 10), WIDE(memPitch, 11), INT(regsPerBlock, 12), WIDE(textureAlignment, 14),
    INT(multiProcessorCount, 16), INT(integrated, 18), INT(canMapHostMemory, 19), WIDE(surfaceAlignment, 30),
    INT(concurrentKernels, 31), INT(ECCEnabled, 32), INT(pciBusID, 33), INT(pciDeviceID, 34), INT(tccDriver, 35),
    INT(memoryBusWidth, 37), INT(l2CacheSize, 38), INT(maxThreadsPerMultiProcessor, 39), INT(asyncEngineCount, 40),
    INT(unifiedAddressing, 41), INT(pciDomainID, 50), WIDE(texturePitchAlignment, 51), INT(major, 75), INT(minor, 76),
    INT(streamPrioritiesSupported, 78), INT(globalL1CacheSupported, 79), INT(localL1CacheSupported, 80),
    WIDE(sharedMemPerMultiprocessor, 81), INT(regsPerMultiprocessor, 82), INT(managedMemory, 83),
    INT(isMultiGpuBoard, 84), INT(multiGpuBoardGroupID, 85), INT(hostNativeAtomicSupported, 86),
    INT(pageableMemoryAccess, 88), INT(concurrentManagedAccess, 89), INT(computePreemptionSupported, 90),
    INT(canUseHostPointerForRegisteredMem, 91), INT(cooperativeLaunch, 95), WIDE(sharedMemPerBlockOptin, 97),
    INT(hostRegisterSupported, 99), INT(pageableMemoryAccessUsesHostPageTables, 100),
    INT(directManagedMemAccessFromHost, 101), INT(maxBlocksPerMultiProcessor, 106),
    INT(persistingL2CacheMaxSize, 108), INT(accessPolicyMaxWindowSize, 109), WIDE(reservedSharedMemPerBlock, 111),
    INT(sparseCudaArraySupported, 112), INT(hostRegisterReadOnlySupported, 113),
    INT(timelineSemaphoreInteropSupported, 114), INT(memoryPoolsSupported, 115), INT(gpuDirectRDMASupported, 116),
    INT(gpuDirectRDMAFlushWritesOptions, 117), INT(gpuDirectRDMAWritesOrdering, 118),
    INT(memoryPoolSupportedHandleTypes, 119), INT(clusterLaunch, 120), INT(deferredMappingCudaArraySupported, 121),
    INT(ipcEventSupported, 125), INT(unifiedFunctionPointers, 129),
    IN_12(INT(clockRate, 13), INT(deviceOverlap, 15), INT(kernelExecTimeoutEnabled, 17), INT(computeMode, 20),
          INT(memoryClockRate, 36), INT(singleToDoublePrecisionPerfRatio, 87), INT(cooperativeMultiDeviceLaunch, 96))
    IN_13(INT(deviceNumaConfig, 130), INT(deviceNumaId, 131), INT(mpsEnabled, 133), INT(hostNumaId, 134),
          INT(gpuPciDeviceID, 139), INT(gpuPciSubsystemID, 140), INT(hostNumaMultinodeIpcSupported, 143))
};

cudaError_t properties_of(int device, cudaDeviceProp *prop) {
  if (prop == NULL) return cudaErrorInvalidValue;
  TRY(known_device(device));
  memset(prop, 0, sizeof *prop);
  TRY(from(cuDeviceGetName(prop->name, (int)sizeof prop->name, device)));
  TRY(from(cuDeviceGetUuid_v2(&prop->uuid, device)));
  TRY(from(cuDeviceTotalMem_v2(&prop->totalGlobalMem, device)));
  for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
    int value = 0;
    TRY(from(cuDeviceGetAttribute(&value, members[i].which, device)));
    const size_t wide = (size_t)value;
    memcpy((char *)prop + members[i].offset, members[i].size == sizeof wide ? (const void *)&wide : &value,
           members[i].size);
  }
  return cudaSuccess;
}
