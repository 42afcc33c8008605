/* device_spec.c: names of devices, and which there are. */
#include "spec.h"

static const struct {
  int32_t type;
  const char *name;
} named[] = {
    {kDLCPU, "cpu"},         {kDLCUDA, "cuda"},       {kDLCUDAHost, "cuda_host"}, {kDLOpenCL, "opencl"},
    {kDLVulkan, "vulkan"},   {kDLMetal, "metal"},     {kDLVPI, "vpi"},            {kDLROCM, "rocm"},
    {kDLROCMHost, "rocm_host"}, {kDLExtDev, "ext_dev"}, {kDLCUDAManaged, "cuda_managed"}, {kDLOneAPI, "oneapi"},
    {kDLWebGPU, "webgpu"},   {kDLHexagon, "hexagon"}, {kDLMAIA, "maia"},          {kDLTrn, "trn"},
};

static void the_cpu(void **state) {
  DLDevice device = {kDLExtDev, 9};
  char name[32];
  (void)state;
  OK(mf_device_parse("cpu", &device, &spec_err));
  assert_int_equal(device.device_type, kDLCPU);
  assert_int_equal(device.device_id, 0);
  OK(mf_device_format(&device, name, sizeof name, &spec_err));
  assert_string_equal(name, "cpu");
  int32_t count = -1;
  OK(mf_device_count(kDLCPU, &count, &spec_err));
  assert_int_equal(count, 1);
}

static void no_other_backend(void **state) {
  (void)state;
  for (int32_t type = -2; type < 40; type++) {
    int32_t count = 7;
    if (type == kDLCPU) continue;
    FAILS(MF_EDEVICE, mf_device_count(type, &count, &spec_err));
    assert_int_equal(count, 0);
    assert_int_equal(mf_device_count(type, &count, NULL), MF_EDEVICE);
  }
  int32_t count;
  FAILS(MF_EDEVICE, mf_device_count(INT32_MIN, &count, &spec_err));
  FAILS(MF_EDEVICE, mf_device_count(INT32_MAX, &count, &spec_err));
}

/* What DLPack does not define is told from what it does and no driver here has, whose name is said. */
static void a_refusal_says_why(void **state) {
  static const int32_t driven[] = {kDLCPU, kDLCUDA, kDLCUDAHost, kDLCUDAManaged, kDLROCM, kDLROCMHost};
  int32_t count;
  (void)state;
  SAYS(MF_EDEVICE, "77, which DLPack", mf_device_count(77, &count, &spec_err));
  SAYS(MF_EDEVICE, "device_type is 0, which DLPack", mf_device_count(0, &count, &spec_err));
  for (size_t i = 0; i < COUNT(named); i++) {
    char name[48];
    bool has_driver = false;
    for (size_t k = 0; k < COUNT(driven); k++) has_driver = has_driver || driven[k] == named[i].type;
    if (has_driver) continue;
    snprintf(name, sizeof name, "%d (%s), which has no backend", named[i].type, named[i].name);
    SAYS(MF_EDEVICE, name, mf_device_count(named[i].type, &count, &spec_err));
  }
}

/* The cpu has no driver to ask. Where nothing is found nothing is said to be: the answer is the cpu. */
static void no_driver_to_ask_about_a_pointer(void **state) {
  static const struct {
    int32_t type;
    const char *said;
  } types[] = {{0, "device_type is 0"},
               {77, "device_type is 77"},
               {kDLVulkan, "device_type is 7"},
               {kDLCUDA, "device is cuda (device_type 2): "},
               {kDLCUDAHost, "device is cuda_host (device_type 3): "},
               {kDLROCM, "device is rocm (device_type 10): "}};
  int local = 0;
  DLDevice found = {kDLExtDev, 9};
  (void)state;
  SAYS(MF_EINVAL, "cpu", mf_device_of_pointer(kDLCPU, &local, &found, &spec_err));
  assert_int_equal(found.device_type, kDLCPU);
  for (size_t i = 0; i < COUNT(types); i++) {
    found = (DLDevice){kDLExtDev, 9};
    SAYS(MF_EDEVICE, types[i].said, mf_device_of_pointer(types[i].type, &local, &found, &spec_err));
    assert_int_equal(found.device_type, kDLCPU);
    assert_int_equal(found.device_id, 0);
  }
}

/* Every device type, known or not, with any ordinal, comes back from its name. */
static void names_come_back(void **state) {
  static const int32_t ids[] = {0, 1, 7, 90, INT32_MAX};
  (void)state;
  for (int32_t type = 1; type <= 18; type++) {
    for (size_t i = 0; i < COUNT(ids); i++) {
      DLDevice device = {(DLDeviceType)type, ids[i]};
      DLDevice back;
      char name[32];
      OK(mf_device_format(&device, name, sizeof name, &spec_err));
      int rc = mf_device_parse(name, &back, NULL);
      if (type == 5 || type == 6) continue; /* no such types: written in numbers, for messages */
      assert_int_equal(rc, MF_OK);
      assert_memory_equal(&back, &device, sizeof back);
    }
  }
}

static void known_types_have_names(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(named); i++) {
    DLDevice device = {(DLDeviceType)named[i].type, 3};
    char name[32], expected[32];
    OK(mf_device_format(&device, name, sizeof name, &spec_err));
    snprintf(expected, sizeof expected, "%s:3", named[i].name);
    assert_string_equal(name, expected);
  }
}

static void unknown_types_are_numbers(void **state) {
  char name[32];
  (void)state;
  DLDevice device = {(DLDeviceType)77, 2};
  OK(mf_device_format(&device, name, sizeof name, &spec_err));
  assert_string_equal(name, "77:2");
  device = (DLDevice){(DLDeviceType)INT32_MIN, INT32_MIN};
  OK(mf_device_format(&device, name, sizeof name, &spec_err));
  assert_string_equal(name, "-2147483648:-2147483648");
}

static void bad_names(void **state) {
  static const char *const names[] = {
      "",       "gpu",       "cpu:",        "CPU",  "cpu0", "cuda:-1", "cuda:x", "cuda:1x", ":1", "cuda:",
      "cuda: 1", "cuda:2147483648", "cuda:99999999999999999999", "cud", "cudaa:1", "cpux",
      "a name so long that it cannot be one and does not fit into the message, whatever that message says, "
      "because it goes on and on and on, beyond two hundred and forty bytes, without any hope of an end, "
      "and then a little further, to be sure",
  };
  (void)state;
  for (size_t i = 0; i < COUNT(names); i++) {
    DLDevice device = {kDLExtDev, 9};
    FAILS(MF_EDEVICE, mf_device_parse(names[i], &device, &spec_err));
    assert_int_equal(device.device_id, 9);
    assert_int_equal(mf_device_parse(names[i], &device, NULL), MF_EDEVICE);
  }
}

static void a_short_buffer_is_refused(void **state) {
  char name[32];
  DLDevice device = {kDLCUDA, 12};
  (void)state;
  for (size_t cap = 0; cap < sizeof "cuda:12"; cap++) {
    memset(name, '#', sizeof name);
    SAYS(MF_EINVAL, "cap", mf_device_format(&device, name, cap, &spec_err));
    assert_int_equal(name[cap], '#');
  }
  OK(mf_device_format(&device, name, sizeof "cuda:12", &spec_err));
  assert_string_equal(name, "cuda:12");
  assert_int_equal(mf_device_format(&device, name, 2, NULL), MF_EINVAL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(the_cpu),
      SPEC(no_other_backend),
      SPEC(a_refusal_says_why),
      SPEC(no_driver_to_ask_about_a_pointer),
      SPEC(names_come_back),
      SPEC(known_types_have_names),
      SPEC(unknown_types_are_numbers),
      SPEC(bad_names),
      SPEC(a_short_buffer_is_refused),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
