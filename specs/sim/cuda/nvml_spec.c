/* nvml_spec.c: the management library: the same devices as the driver's, by number, place and UUID, and what PyTorch
 * and JAX ask before they map memory, or when memory runs out. A library that lacks one of these is worse than none:
 * PyTorch takes each for granted where the library is there. */
#include "spec.h"

#include <dlfcn.h>

enum { UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlPciInfo_st {
  char busIdLegacy[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
} nvmlPciInfo_t;

int nvmlInit_v2(void), nvmlShutdown(void);
int nvmlSystemGetCudaDriverVersion_v2(int *version);
int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *out);
int nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *out);
int nvmlDeviceGetHandleByUUID(const char *text, nvmlDevice_t *out);
int nvmlDeviceGetUUID(nvmlDevice_t d, char *out, unsigned room);
int nvmlDeviceGetName(nvmlDevice_t d, char *out, unsigned room);
int nvmlDeviceGetCudaComputeCapability(nvmlDevice_t d, int *major, int *minor);
int nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *out);
int nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t d, unsigned *n, void *infos);
int nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t d, unsigned link, int *type);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t d, unsigned link, nvmlPciInfo_t *out);

static nvmlDevice_t device(unsigned i) {
  nvmlDevice_t d = NULL;
  OK(nvmlDeviceGetHandleByIndex_v2(i, &d));
  return d;
}

static int begin_managed(void **state) {
  begin(state);
  OK(nvmlInit_v2());
  return 0;
}

static int end_managed(void **state) {
  OK(nvmlShutdown());
  return end(state);
}

static void its_devices_are_the_drivers(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    char name[96], drivers_name[96], place[32];
    int major = 0, minor = 0, drivers_major = 0, drivers_minor = 0;
    nvmlDevice_t d = device((unsigned)i), same = NULL;
    nvmlPciInfo_t pci;
    OK(nvmlDeviceGetName(d, name, sizeof name));
    OK(cuDeviceGetName(drivers_name, sizeof drivers_name, i));
    assert_string_equal(name, drivers_name);
    OK(nvmlDeviceGetCudaComputeCapability(d, &major, &minor));
    OK(cuDeviceGetAttribute(&drivers_major, 75, i));
    OK(cuDeviceGetAttribute(&drivers_minor, 76, i));
    assert_int_equal(major * 10 + minor, drivers_major * 10 + drivers_minor);
    OK(cuDeviceGetPCIBusId(place, sizeof place, i));
    OK(nvmlDeviceGetHandleByPciBusId_v2(place, &same));
    assert_ptr_equal(same, d);
    OK(nvmlDeviceGetPciInfo_v3(d, &pci));
    OK(nvmlDeviceGetHandleByPciBusId_v2(pci.busId, &same));
    assert_ptr_equal(same, d);
    OK(nvmlDeviceGetHandleByPciBusId_v2(pci.busIdLegacy, &same));
    assert_ptr_equal(same, d);
  }
}

static void a_uuid_names_one_device(void **state) {
  (void)state;
  char uuid[2][48];
  for (unsigned i = 0; i < 2; i++) {
    nvmlDevice_t d = device(i), same = NULL;
    CUuuid id;
    char first[16];
    OK(nvmlDeviceGetUUID(d, uuid[i], sizeof uuid[i]));
    OK(nvmlDeviceGetHandleByUUID(uuid[i], &same));
    assert_ptr_equal(same, d);
    OK(cuDeviceGetUuid_v2(&id, (int)i));
    const unsigned char *b = (const unsigned char *)id.bytes;
    snprintf(first, sizeof first, "GPU-%02x%02x%02x%02x-", b[0], b[1], b[2], b[3]);
    assert_memory_equal(uuid[i], first, strlen(first));
    FAILS(nvmlDeviceGetUUID(d, uuid[i], 40), INSUFFICIENT_SIZE);
  }
  assert_string_not_equal(uuid[0], uuid[1]);
}

/* When memory runs out PyTorch says who else has some, and before that asks what joins two devices. */
static void nothing_joins_the_devices_and_nobody_else_uses_them(void **state) {
  (void)state;
  unsigned n = 7;
  int type = -1, version = 0, drivers = 0;
  nvmlPciInfo_t pci;
  OK(nvmlDeviceGetComputeRunningProcesses(device(1), &n, NULL));
  assert_int_equal(n, 0);
  FAILS(nvmlDeviceGetNvLinkRemoteDeviceType(device(0), 0, &type), NOT_SUPPORTED);
  FAILS(nvmlDeviceGetNvLinkRemotePciInfo_v2(device(0), 0, &pci), NOT_SUPPORTED);
  OK(nvmlSystemGetCudaDriverVersion_v2(&version));
  OK(cuDriverGetVersion(&drivers));
  assert_int_equal(version, drivers);
}

static void what_is_not_there_is_said(void **state) {
  (void)state;
  nvmlDevice_t d = NULL;
  unsigned n = 0;
  int type;
  OK(nvmlDeviceGetCount_v2(&n));
  assert_int_equal(n, 2);
  FAILS(nvmlDeviceGetHandleByIndex_v2(2, &d), INVALID_ARGUMENT);
  FAILS(nvmlDeviceGetHandleByPciBusId_v2("0000:ff:1f.7", &d), NOT_FOUND);
  FAILS(nvmlDeviceGetHandleByPciBusId_v2("here", &d), INVALID_ARGUMENT);
  FAILS(nvmlDeviceGetHandleByUUID("GPU-0", &d), NOT_FOUND);
  FAILS(nvmlDeviceGetComputeRunningProcesses(NULL, &n, NULL), INVALID_ARGUMENT);
  FAILS(nvmlDeviceGetNvLinkRemoteDeviceType(NULL, 0, &type), INVALID_ARGUMENT);
}

/* Each part of a program that uses it begins and ends that by itself. */
static void it_is_used_between_the_first_beginning_and_the_last_end(void **state) {
  (void)state;
  nvmlDevice_t d = NULL;
  unsigned n = 0;
  OK(nvmlInit_v2());
  OK(nvmlShutdown());
  OK(nvmlDeviceGetCount_v2(&n));
  OK(nvmlShutdown());
  FAILS(nvmlShutdown(), UNINITIALIZED);
  FAILS(nvmlDeviceGetCount_v2(&n), UNINITIALIZED);
  FAILS(nvmlDeviceGetHandleByIndex_v2(0, &d), UNINITIALIZED);
  OK(nvmlInit_v2());
}

/* PyTorch stops the process where one of them is missing. */
static void what_pytorch_looks_for_is_there(void **state) {
  (void)state;
  static const char *const names[] = {
      "nvmlInit_v2",
      "nvmlDeviceGetHandleByPciBusId_v2",
      "nvmlDeviceGetComputeRunningProcesses",
      "nvmlDeviceGetNvLinkRemoteDeviceType",
      "nvmlDeviceGetNvLinkRemotePciInfo_v2",
      "nvmlSystemGetCudaDriverVersion_v2",
  };
  void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
  assert_non_null(library);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_non_null(dlsym(library, names[i]));
  dlclose(library);
}

#define MANAGED(name) cmocka_unit_test_setup_teardown(name, begin_managed, end_managed)

int main(void) {
  const struct CMUnitTest specs[] = {
      MANAGED(its_devices_are_the_drivers), MANAGED(a_uuid_names_one_device),
      MANAGED(nothing_joins_the_devices_and_nobody_else_uses_them), MANAGED(what_is_not_there_is_said),
      MANAGED(it_is_used_between_the_first_beginning_and_the_last_end), MANAGED(what_pytorch_looks_for_is_there)};
  return cmocka_run_group_tests(specs, NULL, NULL);
}
