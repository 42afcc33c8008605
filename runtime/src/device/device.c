/* device.c: lists the kinds of devices and their names, and finds the driver of one. It refuses a kind without a
 * driver, and says why, so that no other file has to ask. */
#include "device/device.h"

#include <stdio.h>
#include <string.h>

#define MF__BACKEND(name) [MF__INDEX_##name] = &mf__backend_##name,
const mf__backend *const mf__backends[MF__NBACKENDS] = {MF__BACKENDS(MF__BACKEND)};
#undef MF__BACKEND

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

const char *mf__device_type_name(int32_t type) {
  for (size_t i = 0; i < NNAMES; i++)
    if (names[i].type == type) return names[i].name;
  return NULL;
}

/* Finds the driver of a device type, and the space that the type means. */
static bool find(int32_t type, mf__device *out) {
  for (size_t i = 0; i < MF__NBACKENDS; i++)
    for (int space = 0; space < MF__NSPACES; space++)
      if (mf__backends[i]->types[space] == type) {
        *out = (mf__device){.backend = mf__backends[i], .space = (mf__space)space};
        return true;
      }
  return false;
}

int mf__device_type_refuse(int32_t type, mf_error *err) {
  static const char expected[] = "cpu, cuda, cuda_host, cuda_managed, rocm or rocm_host expected";
  const char *name = mf__device_type_name(type);
  if (name == NULL)
    return mf__fail(err, MF_EDEVICE, "device.device_type is %d, which DLPack 1.3 does not define; %s", type, expected);
  return mf__fail(err, MF_EDEVICE, "device.device_type is %d (%s), which has no backend here; %s", type, name,
                  expected);
}

/* Counts the GPUs of the type's driver; 1 for the cpu. */
static int count_gpus(int32_t type, mf__device *device, int32_t *out, mf_error *err) {
  *out = 1;
  *device = (mf__device){0};
  if (type == kDLCPU) return MF_OK;
  *out = 0;
  if (type == 0 || !find(type, device)) return mf__device_type_refuse(type, err);
  const int rc = device->backend->device_count(out, err);
  if (rc == MF_OK || err == NULL) return rc;
  char reason[sizeof err->message];
  memcpy(reason, err->message, sizeof reason);
  (void)snprintf(err->message, sizeof err->message, "device is %s (device_type %d): %.200s",
                 mf__device_type_name(type), type, reason);
  return rc;
}

/* Pinned and managed memory have one device each, whatever the number of GPUs. */
static int count_devices(int32_t type, mf__device *device, int32_t *out, mf_error *err) {
  const int rc = count_gpus(type, device, out, err);
  if (rc == MF_OK && device->space != MF__DEVICE) *out = 1;
  return rc;
}

static int find_current(mf__device *out, mf_error *err) {
  const int before = mf__uncancelled_begin();
  const int rc = out->backend->device_current(&out->ordinal, err);
  mf__uncancelled_end(before);
  return rc;
}

static int resolve(const DLDevice *device, int32_t count, mf__device *out, mf_error *err) {
  if (device->device_id < 0 || device->device_id >= count)
    return mf__fail(err, MF_EDEVICE, "device is %s:%d; a device_id of 0 to %d expected",
                    mf__device_type_name((int32_t)device->device_type), device->device_id, count - 1);
  if (out->backend != NULL && out->space != MF__DEVICE) return find_current(out, err);
  out->ordinal = device->device_id;
  return MF_OK;
}

/* The usual answer, which every new tensor asks for and which nothing needs to be counted for. */
static inline bool is_the_host(const DLDevice *device, mf__device *out) {
  if (device->device_type != kDLCPU || device->device_id != 0) return false;
  *out = (mf__device){0};
  return true;
}

int mf__device_resolve(const DLDevice *device, mf__device *out, mf_error *err) {
  if (is_the_host(device, out)) return MF_OK;
  int32_t count;
  const int rc = count_devices((int32_t)device->device_type, out, &count, err);
  return rc == MF_OK ? resolve(device, count, out, err) : rc;
}

int mf__device_resolve_label(DLDevice *device, mf__device *out, mf_error *err) {
  if (is_the_host(device, out)) return MF_OK;
  int32_t count;
  int rc = count_gpus((int32_t)device->device_type, out, &count, err);
  if (rc == MF_OK) rc = resolve(device, count, out, err);
  if (rc == MF_OK && out->backend != NULL && out->space != MF__DEVICE) device->device_id = 0;
  return rc;
}

DLDevice mf__device_name(const mf__device *device) {
  if (device->backend == NULL) return (DLDevice){kDLCPU, 0};
  const DLDeviceType type = (DLDeviceType)device->backend->types[device->space];
  return (DLDevice){type, device->space == MF__DEVICE ? device->ordinal : 0};
}

int mf_device_count(int32_t device_type, int32_t *out, mf_error *err) {
  MF__NEED(out);
  mf__device device;
  return mf__end(count_devices(device_type, &device, out, err), __func__, err);
}

int mf__pointer_find(const mf__device *at, const void *ptr, mf__device *out, mf_error *err) {
  *out = (mf__device){.backend = at->backend};
  int rc;
  MF__CALL(rc, mf__enter, at->backend, at->ordinal, err,
           at->backend->memory_find(ptr, &out->space, &out->ordinal, err));
  return rc;
}

int mf__memory_free(const mf__queue *on, mf__space space, void **ptr, mf_error *err) {
  void *freed = *ptr;
  *ptr = NULL;
  return freed == NULL ? MF_OK : on->backend->memory_free(space, freed, on->stream, err);
}

int mf_device_of_pointer(int32_t device_type, const void *ptr, DLDevice *out, mf_error *err) {
  MF__NEED(out);
  mf__device device, found;
  int32_t count;
  *out = (DLDevice){kDLCPU, 0};
  int rc = count_devices(device_type, &device, &count, err);
  if (rc == MF_OK && device.backend == NULL)
    rc = mf__fail(err, MF_EINVAL, "device_type is 1 (cpu); one of a GPU driver expected");
  if (rc == MF_OK) rc = find_current(&device, err);
  if (rc == MF_OK) rc = mf__pointer_find(&device, ptr, &found, err);
  if (rc == MF_OK) *out = mf__device_name(&found);
  return mf__end(rc, __func__, err);
}

/* Reads the ordinal behind "name:"; -1 for text that is no ordinal. */
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
  MF__NEED(name);
  MF__NEED(out);
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
      mf__fail(err, MF_EDEVICE, "device is \"%.64s\"; a name such as \"cpu\", \"cuda:0\" or \"rocm:0\" expected", name);
  return mf__end(rc, __func__, err);
}

int mf_device_format(const DLDevice *device, char *buf, size_t cap, mf_error *err) {
  MF__NEED(device);
  MF__NEED(buf);
  const int32_t type = (int32_t)device->device_type;
  const char *name = mf__device_type_name(type);
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
