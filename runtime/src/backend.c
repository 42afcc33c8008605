/* backend.c: which kinds of devices there are, their names, and which of them this library can drive. A
 * kind without a backend is refused here, with the reason, so that nobody else has to ask. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

static const mf__backend *const backends[] = {&mf__backend_cpu};

#define NBACKENDS (sizeof backends / sizeof backends[0])

typedef struct device_name {
  int32_t type;
  const char *name;
} device_name;

static const device_name names[] = {
    {kDLCPU, "cpu"},           {kDLCUDA, "cuda"},       {kDLCUDAHost, "cuda_host"},
    {kDLOpenCL, "opencl"},     {kDLVulkan, "vulkan"},   {kDLMetal, "metal"},
    {kDLVPI, "vpi"},           {kDLROCM, "rocm"},       {kDLROCMHost, "rocm_host"},
    {kDLExtDev, "ext_dev"},    {kDLCUDAManaged, "cuda_managed"}, {kDLOneAPI, "oneapi"},
    {kDLWebGPU, "webgpu"},     {kDLHexagon, "hexagon"}, {kDLMAIA, "maia"},
    {kDLTrn, "trn"},
};

#define NNAMES (sizeof names / sizeof names[0])

static const char *type_name(int32_t type) {
  for (size_t i = 0; i < NNAMES; i++)
    if (names[i].type == type) return names[i].name;
  return NULL;
}

static const mf__backend *find(int32_t type) {
  for (size_t i = 0; i < NBACKENDS; i++)
    if (backends[i]->device_type == type) return backends[i];
  return NULL;
}

static int refuse(int32_t type, mf_error *err) {
  const char *name = type_name(type);
  if (name == NULL)
    return mf__fail(err, MF_EDEVICE, "device.device_type is %d, which DLPack 1.3 does not define", type);
  return mf__fail(err, MF_EDEVICE, "device.device_type is %d (%s), which has no backend here; 1 (cpu) expected",
                  type, name);
}

int mf__backend_find(const DLDevice *device, const mf__backend **out, mf_error *err) {
  int32_t count;
  *out = find((int32_t)device->device_type);
  if (*out == NULL) return refuse((int32_t)device->device_type, err);
  const int rc = (*out)->device_count(&count, err);
  if (rc != MF_OK) return rc;
  if (device->device_id < 0 || device->device_id >= count)
    return mf__fail(err, MF_EDEVICE, "device.device_id is %d; 0 to %d expected for %s", device->device_id,
                    count - 1, type_name((int32_t)device->device_type));
  return MF_OK;
}

int mf_device_count(int32_t device_type, int32_t *out, mf_error *err) {
  const mf__backend *backend = find(device_type);
  *out = 0;
  const int rc = backend == NULL ? refuse(device_type, err) : backend->device_count(out, err);
  return mf__end(rc, __func__, err);
}

/* The ordinal behind "name:"; -1 if it is none. */
static int64_t parse_ordinal(const char *text) {
  int64_t value = 0;
  if (*text == '\0') return -1;
  for (; *text != '\0'; text++) {
    if (*text < '0' || *text > '9') return -1;
    value = value * 10 + (*text - '0');
    if (value > INT32_MAX) return -1;
  }
  return value;
}

int mf_device_parse(const char *name, DLDevice *out, mf_error *err) {
  for (size_t i = 0; i < NNAMES; i++) {
    const size_t length = strlen(names[i].name);
    if (strncmp(name, names[i].name, length) != 0) continue;
    const int64_t ordinal = name[length] == ':' ? parse_ordinal(name + length + 1) : name[length] == '\0' ? 0 : -1;
    if (ordinal < 0) continue;
    out->device_type = (DLDeviceType)names[i].type;
    out->device_id = (int32_t)ordinal;
    return MF_OK;
  }
  const int rc =
      mf__fail(err, MF_EDEVICE, "device is \"%.64s\"; a name such as \"cpu\" or \"cuda:0\" expected", name);
  return mf__end(rc, __func__, err);
}

int mf_device_format(const DLDevice *device, char *buf, size_t cap, mf_error *err) {
  const int32_t type = (int32_t)device->device_type;
  const char *name = type_name(type);
  int n;
  if (name == NULL)
    n = snprintf(buf, cap, "%d:%d", type, device->device_id);
  else if (type == kDLCPU && device->device_id == 0)
    n = snprintf(buf, cap, "%s", name);
  else
    n = snprintf(buf, cap, "%s:%d", name, device->device_id);
  if ((size_t)n < cap) return MF_OK;
  const int rc = mf__fail(err, MF_EINVAL, "cap is %zu; the name takes %d bytes", cap, n + 1);
  return mf__end(rc, __func__, err);
}
