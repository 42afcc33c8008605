/* nvml.c: the part of the management library (libnvidia-ml) that libraries ask before they use virtual memory: which
 * devices there are, and that nothing joins them but the bus.
 *
 * It calls the driver by its public names. A device's handle is its number, plus 1. Names, numbers and layouts are
 * those of NVIDIA's NVML API reference. It must not know what a device does. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "driver.h"
#include "sim.h"

#define CALL(name, symbol, since, how, params, args) CUresult symbol params;
#define SCALL CALL
#define DCALL CALL
#include "calls.def"
#undef CALL
#undef SCALL
#undef DCALL

typedef enum nvmlReturn_t {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;

typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlPciInfo_st {
  char busIdLegacy[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
} nvmlPciInfo_t;

static _Atomic unsigned users;

static nvmlReturn_t begin(void) {
  if (cuInit(0) != CUDA_SUCCESS) return NVML_ERROR_UNKNOWN;
  users++;
  return NVML_SUCCESS;
}

static int count(void) {
  int n = 0;
  return users > 0 && cuDeviceGetCount(&n) == CUDA_SUCCESS ? n : 0;
}

static nvmlDevice_t handle_of(int device) {
  return (nvmlDevice_t)(uintptr_t)(device + 1);
}

/* The device of a handle, or -1. */
static int known(nvmlDevice_t handle) {
  const uintptr_t n = (uintptr_t)handle;
  return n >= 1 && n <= (uintptr_t)count() ? (int)n - 1 : -1;
}

static nvmlReturn_t put(char *out, unsigned room, const char *text) {
  if (out == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (strlen(text) >= room) return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(out, text, strlen(text) + 1);
  return NVML_SUCCESS;
}

static void uuid_text(int device, char *out, size_t size) {
  CUuuid id;
  unsigned char b[16] = {0};
  if (cuDeviceGetUuid_v2(&id, device) == CUDA_SUCCESS) memcpy(b, id.bytes, sizeof b);
  snprintf(out, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2],
           b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

static bool bus_of(int device, unsigned *domain, unsigned *bus, unsigned *slot) {
  char text[32];
  return cuDeviceGetPCIBusId(text, sizeof text, device) == CUDA_SUCCESS &&
         sscanf(text, "%x:%x:%x", domain, bus, slot) == 3;
}

#define EXPORT(name, params) \
  SIM_PUBLIC nvmlReturn_t name params; \
  nvmlReturn_t name params

EXPORT(nvmlInit, (void)) {
  return begin();
}

EXPORT(nvmlInit_v2, (void)) {
  return begin();
}

EXPORT(nvmlInitWithFlags, (unsigned flags)) {
  (void)flags;
  return begin();
}

EXPORT(nvmlShutdown, (void)) {
  if (users == 0) return NVML_ERROR_UNINITIALIZED;
  users--;
  return NVML_SUCCESS;
}

SIM_PUBLIC const char *nvmlErrorString(nvmlReturn_t e);
const char *nvmlErrorString(nvmlReturn_t e) {
  switch (e) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    default: return "Unknown Error";
  }
}

EXPORT(nvmlSystemGetCudaDriverVersion, (int *version)) {
  return version != NULL && cuDriverGetVersion(version) == CUDA_SUCCESS ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT(nvmlSystemGetCudaDriverVersion_v2, (int *version)) {
  return nvmlSystemGetCudaDriverVersion(version);
}

EXPORT(nvmlDeviceGetCount_v2, (unsigned *n)) {
  if (users == 0) return NVML_ERROR_UNINITIALIZED;
  if (n == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *n = (unsigned)count();
  return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetHandleByIndex_v2, (unsigned i, nvmlDevice_t *out)) {
  if (users == 0) return NVML_ERROR_UNINITIALIZED;
  if (out == NULL || i >= (unsigned)count()) return NVML_ERROR_INVALID_ARGUMENT;
  *out = handle_of((int)i);
  return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetHandleByPciBusId_v2, (const char *text, nvmlDevice_t *out)) {
  unsigned domain, bus, slot, d, b, s;
  if (users == 0) return NVML_ERROR_UNINITIALIZED;
  if (text == NULL || out == NULL || sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3)
    return NVML_ERROR_INVALID_ARGUMENT;
  for (int i = 0; i < count(); i++) {
    if (!bus_of(i, &d, &b, &s) || d != domain || b != bus || s != slot) continue;
    *out = handle_of(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

EXPORT(nvmlDeviceGetHandleByUUID, (const char *text, nvmlDevice_t *out)) {
  char own[48];
  if (users == 0) return NVML_ERROR_UNINITIALIZED;
  if (text == NULL || out == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  for (int i = 0; i < count(); i++) {
    uuid_text(i, own, sizeof own);
    if (strcmp(own, text) != 0) continue;
    *out = handle_of(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

EXPORT(nvmlDeviceGetUUID, (nvmlDevice_t handle, char *out, unsigned room)) {
  char text[48];
  const int device = known(handle);
  if (device < 0) return NVML_ERROR_INVALID_ARGUMENT;
  uuid_text(device, text, sizeof text);
  return put(out, room, text);
}

EXPORT(nvmlDeviceGetName, (nvmlDevice_t handle, char *out, unsigned room)) {
  char text[96];
  const int device = known(handle);
  if (device < 0 || cuDeviceGetName(text, sizeof text, device) != CUDA_SUCCESS) return NVML_ERROR_INVALID_ARGUMENT;
  return put(out, room, text);
}

EXPORT(nvmlDeviceGetCudaComputeCapability, (nvmlDevice_t handle, int *major, int *minor)) {
  const int device = known(handle);
  if (device < 0 || major == NULL || minor == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  return cuDeviceComputeCapability(major, minor, device) == CUDA_SUCCESS ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

EXPORT(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t handle, nvmlPciInfo_t *out)) {
  const int device = known(handle);
  nvmlPciInfo_t i = {0};
  if (device < 0 || out == NULL || !bus_of(device, &i.domain, &i.bus, &i.device)) return NVML_ERROR_INVALID_ARGUMENT;
  snprintf(i.busIdLegacy, sizeof i.busIdLegacy, "%04x:%02x:%02x.0", i.domain & 0xffff, i.bus & 0xff, i.device & 0xff);
  snprintf(i.busId, sizeof i.busId, "%08x:%02x:%02x.0", i.domain, i.bus, i.device);
  *out = i;
  return NVML_SUCCESS;
}

/* Who else uses the device: a caller that has room for nobody hears that there is nobody. */
EXPORT(nvmlDeviceGetComputeRunningProcesses, (nvmlDevice_t handle, unsigned *n, void *infos)) {
  (void)infos;
  if (known(handle) < 0 || n == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *n = 0;
  return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetComputeRunningProcesses_v3, (nvmlDevice_t handle, unsigned *n, void *infos)) {
  return nvmlDeviceGetComputeRunningProcesses(handle, n, infos);
}

EXPORT(nvmlDeviceGetNvLinkRemoteDeviceType, (nvmlDevice_t handle, unsigned link, int *type)) {
  (void)link;
  (void)type;
  return known(handle) < 0 ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT(nvmlDeviceGetNvLinkRemotePciInfo_v2, (nvmlDevice_t handle, unsigned link, nvmlPciInfo_t *out)) {
  (void)link;
  (void)out;
  return known(handle) < 0 ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
}
