/* opening_spec.c: how a driver is opened, or why it is not. Each spec runs in a process of its own, because a driver
 * is opened once in each. */
#include "driver/driver.h"
#include "spec.h"

#include <pthread.h>

#include "driver/cuda_calls.h"
#include "driver/hip_calls.h"

#if IS_HIP
#define VARIABLE "MOONFERRY_HIP_LIBRARY"
#define FIRST "hipInit"
#else
#define VARIABLE "MOONFERRY_CUDA_LIBRARY"
#define FIRST "cuInit"
#endif

/* The count is refused, and refused again in the same words. */
static void refused(const char *text) {
  int32_t n = 7;
  CHECK(gpu->device_count(&n, &err) == MF_EDEVICE && err.status == MF_EDEVICE && n == 0);
  CHECK(strstr(err.message, text) != NULL);
  const mf_error said = err;
  err = (mf_error){.status = MF_OK};
  CHECK(gpu->device_count(&n, &err) == MF_EDEVICE && strcmp(err.message, said.message) == 0);
  CHECK(gpu->device_count(&n, NULL) == MF_EDEVICE);
  CHECK(!gpu->usable());
  mf__entered none;
  CHECK(gpu->enter(0, &none, &err) == MF_EDEVICE);
}

static void absent(void) {
  refused("/nonexistent/driver.so");
  CHECK(strstr(err.message, VARIABLE) != NULL);
}

static void a_driver_that_is_not_there_is_named(void **state) {
  (void)state;
  in_fork_with(VARIABLE "=/nonexistent/driver.so", absent);
}

static void no_library(void) {
  refused("/etc/passwd: ");
}

static void a_file_that_is_no_library_is_said_to_be_none(void **state) {
  (void)state;
  in_fork_with(VARIABLE "=/etc/passwd", no_library);
}

static void no_driver(void) {
  refused(IS_HIP ? "libm.so.6 has no hipInit" : "libm.so.6 has no cuGetProcAddress");
}

static void a_library_that_is_no_driver_is_refused(void **state) {
  (void)state;
  in_fork_with(VARIABLE "=libm.so.6", no_driver);
}

/* What follows needs the simulator's settings; whether it is there is found out in a child, which may open it. */
static void be_simulated(void) {
  CHECK(simulated());
}

#if !IS_HIP
static void too_old(void) {
  refused("for CUDA 11.0; 11.3 or newer is needed");
}

static void a_driver_too_old_is_told_what_is_needed(void **state) {
  (void)state;
  needs_simulator_later();
  in_fork_with("SIM_DRIVER_VERSION=11000", too_old);
}
#endif

static void use_everything(void);

static void the_oldest_driver_is_enough(void **state) {
  (void)state;
  needs_simulator_later();
  if (!IS_HIP) in_fork_with("SIM_DRIVER_VERSION=11030", use_everything);
  if (!IS_HIP) in_fork_with("SIM_LEDGER=off SIM_MISSING=cuGetProcAddress", use_everything); /* the newer alone */
  if (IS_HIP) in_fork_with("SIM_LEDGER=off SIM_DRIVER_VERSION=60000000", use_everything);
  in_fork_with("SIM_LEDGER=off", use_everything);
}

static void one_device_is_enough(void **state) {
  (void)state;
  needs_simulator_later();
  in_fork_with("SIM_LEDGER=off SIM_DEVICES=1", use_everything);
}

static void none(void) {
  refused(IS_HIP ? "hip" : "cuInit answered 100");
}

static void a_machine_without_devices_says_so(void **state) {
  (void)state;
  needs_simulator_later();
  in_fork_with("SIM_DEVICES=0", none);
}

static void broken(void) {
  refused(FIRST " answered 999");
  CHECK(err.driver_code == 999 && strcmp(err.call, FIRST) == 0);
}

static void a_driver_that_does_not_start_is_quoted(void **state) {
  (void)state;
  needs_simulator_later();
  in_fork_with("SIM_FAIL=" FIRST ":999", broken);
}

/* The greatest pitch of each device is asked. */
static const char *const pitch_call = IS_HIP ? "hipDeviceGetAttribute" : "cuDeviceGetAttribute";

static void pitch_unknown(void) {
  refused("answered 999");
  CHECK(strcmp(err.call, pitch_call) == 0 || strcmp(err.call, "cuDeviceGet") == 0);
}

static void the_greatest_pitch_of_each_device_is_asked(void **state) {
  char setting[64];
  (void)state;
  needs_simulator_later();
  for (int i = 1; i <= 2; i++) {
    snprintf(setting, sizeof setting, "SIM_FAIL=%s@%d:999:once", pitch_call, i);
    in_fork_with(setting, pitch_unknown);
    snprintf(setting, sizeof setting, "SIM_FAIL=cuDeviceGet@%d:999:once", i);
    if (!IS_HIP) in_fork_with(setting, pitch_unknown);
  }
}

static void pitch_of_600(void) {
  int32_t n;
  CHECK(gpu->device_count(&n, &err) == MF_OK && mf__pitch_max() == 600);
}

static void pitch_unlimited(void) {
  int32_t n;
  CHECK(gpu->device_count(&n, &err) == MF_OK && mf__pitch_max() >= INT32_MAX);
}

/* Some HIP runtimes give the low half of a large number. */
static void a_pitch_that_is_no_size_limits_nothing(void **state) {
  (void)state;
  needs_simulator_later();
  in_fork_with("SIM_MAX_PITCH=600", pitch_of_600);
  if (IS_HIP) in_fork_with("SIM_MAX_PITCH=0", pitch_unlimited);
}

/* Missing functions. */

static const char *missing = "";

static void refused_by_name(void) {
  refused(missing);
}

#define USED(result, name, params) #name,
#define USED_CUDA(name, version, params) #name,
static const char *const required[] = {
#if IS_HIP
    MF__HIP_REQUIRED(USED)
#else
    MF__CUDA_REQUIRED(USED_CUDA)
#endif
};
static const char *const optional[] = {
#if IS_HIP
    MF__HIP_OPTIONAL(USED)
#else
    MF__CUDA_OPTIONAL(USED_CUDA)
#endif
};

static void each_missing_function_is_named(void **state) {
  char setting[128];
  (void)state;
  needs_simulator_later();
  for (size_t i = 0; i < COUNT(required); i++) {
    missing = required[i];
    snprintf(setting, sizeof setting, "SIM_MISSING=%s", missing);
    in_fork_with(setting, refused_by_name);
  }
}

/* What other APIs share takes calls of its own, all of them. */
static void ask_for_what_others_share(void) {
  void *resource = NULL;
  mf__external memory;
  const bool graphics = strstr(missing, "Graphics") != NULL, external = strstr(missing, "ExternalMemory") != NULL;
  const bool semaphore = strstr(missing, "ExternalSemaphore") != NULL;
  const bool array = strstr(missing, "Array") != NULL || strstr(missing, "GLRegisterImage") != NULL;
  const bool buffer = graphics && !array;
  for (uint32_t target = 0; target <= 1; target++) {
    const bool none = target == 0 ? buffer : graphics || array;
    const mf__gl_name name = {1, target};
    CHECK(gpu->graphics_register(&name, 0, &resource, &err) == (none ? MF_EDEVICE : MF_EDRIVER) && resource == NULL);
    const char *why = target == 0 ? "no calls for OpenGL's buffers" : "no calls for OpenGL's textures";
    CHECK((strstr(err.message, why) != NULL) == none);
  }
  CHECK(gpu->external_import(-1, 64, &memory, &err) == (external ? MF_EDEVICE : MF_EINVAL));
  CHECK((strstr(err.message, "no calls for external memory") != NULL) == external);
  CHECK(gpu->semaphore_import(-1, false, &resource, &err) == (semaphore ? MF_EDEVICE : MF_EINVAL) && resource == NULL);
  CHECK((strstr(err.message, "no calls for external semaphores") != NULL) == semaphore);
}

/* Allocates, copies, orders and frees: what must work without any one of the optional functions. */
static void use_everything(void) {
  mf__entered before;
  mf_stream s = 0;
  void *host = NULL, *device = NULL;
  int32_t ordinal = -1;
  uint64_t id = 7;
  CHECK(gpu->enter(0, &before, &err) == MF_OK);
  CHECK(gpu->stream_create(&s, &err) == MF_OK);
  const int located = gpu->stream_device(s, &ordinal, &err);
  CHECK((located == MF_OK && ordinal == 0) || (located == MF_EDEVICE && IS_HIP));
  CHECK(gpu->stream_capture(s, &id, &err) == MF_OK && id == 0);
  CHECK(gpu->memory_alloc(MF__PINNED, 64, s, &host, &err) == MF_OK);
  CHECK(gpu->memory_alloc(MF__DEVICE, 64, s, &device, &err) == MF_OK);
  mf__space space;
  CHECK(gpu->memory_find(host, &space, &ordinal, &err) == MF_OK && space == MF__PINNED);
  CHECK(gpu->memory_find(device, &space, &ordinal, &err) == MF_OK && space == MF__DEVICE && ordinal == 0);
  memset(host, 3, 64);
  mf__block_copy job = {.dst = device, .src = host, .width = 64, .height = 1, .depth = 1};
  CHECK(gpu->copy(&job, s, &err) == MF_OK);
  memset(&job, 0, sizeof job);
  const mf__kernel_copy kernel = {.dst = device, .src = host, .numel = 4, .ndim = 1, .size = 1, .shape = {4},
                                  .dst_strides = {1}, .src_strides = {2}};
  const int rc = gpu->kernel_copy(&kernel, s, &err);
  CHECK(rc == MF_OK || rc == MF_EDEVICE);
  CHECK(gpu->memory_free(MF__DEVICE, device, s, &err) == MF_OK);
  CHECK(gpu->stream_synchronize(s, &err) == MF_OK);
  CHECK(gpu->memory_free(MF__PINNED, host, s, &err) == MF_OK);
  CHECK(gpu->memory_trim(&err) == MF_OK);
  ask_for_what_others_share();
  CHECK(gpu->stream_destroy(s, &err) == MF_OK);
  gpu->leave(&before);
  gpu->device_forget(0);
  gpu->device_forget(0);
  CHECK(sim_ask_findings() == 0);
  CHECK(sim_ask_left("memory") == 0 && sim_ask_left("pools") == 0 && sim_ask_left("retains") == 0);
  CHECK(gpu->enter(0, &before, &err) == MF_OK); /* and it comes again */
  CHECK(gpu->memory_alloc(MF__DEVICE, 64, MF_STREAM_DEFAULT, &device, &err) == MF_OK);
  CHECK(gpu->memory_free(MF__DEVICE, device, MF_STREAM_DEFAULT, &err) == MF_OK);
  gpu->leave(&before);
}

static void without_an_optional_function_the_rest_works(void **state) {
  char setting[128];
  (void)state;
  needs_simulator_later();
  for (size_t i = 0; i < COUNT(optional); i++) {
    missing = optional[i];
    snprintf(setting, sizeof setting, "SIM_LEDGER=off SIM_MISSING=%s", missing);
    in_fork_with(setting, use_everything);
  }
  missing = "";
}

/* Without its id a capture is known, and refused. */
static void capture_unnamed(void) {
  mf__entered before;
  mf_stream s = 0;
  uint64_t id = 7;
  CHECK(gpu->enter(0, &before, &err) == MF_OK && gpu->stream_create(&s, &err) == MF_OK);
  capture_start(s, CAPTURE_RELAXED);
  CHECK(gpu->stream_capture(s, &id, &err) == MF_ECAPTURE && strstr(err.message, "cannot say into which") != NULL);
  CHECK(capture_end(s) == 0);
  CHECK(gpu->stream_destroy(s, &err) == MF_OK);
  gpu->leave(&before);
}

static void a_capture_without_a_name_is_refused(void **state) {
  (void)state;
  needs_simulator_later();
  in_fork_with(IS_HIP ? "SIM_LEDGER=off SIM_MISSING=hipStreamGetCaptureInfo"
                  : "SIM_LEDGER=off SIM_MISSING=cuStreamGetCaptureInfo", capture_unnamed);
}

/* Without pools memory is freed once its stream is done, whatever that wait answers; but what a capture uses stays. */
static void free_without_pools(void) {
  void *p = NULL;
  mf__entered before;
  mf_stream s = 0;
  CHECK(gpu->enter(0, &before, &err) == MF_OK && gpu->stream_create(&s, &err) == MF_OK);
  CHECK(gpu->memory_alloc(MF__DEVICE, 64, s, &p, &err) == MF_OK && sim_ask_left("pools") == 0);
  sim_ask_fail(IS_HIP ? "hipStreamSynchronize:999" : "cuStreamSynchronize:999");
  CHECK(gpu->memory_free(MF__DEVICE, p, s, &err) == MF_EDRIVER && err.driver_code == 999);
  CHECK(sim_ask_left("memory") == 0 && sim_ask_findings() == 0);
  CHECK(gpu->memory_alloc(MF__DEVICE, 64, s, &p, &err) == MF_OK);
  capture_start(s, CAPTURE_GLOBAL);
  CHECK(gpu->memory_free(MF__DEVICE, p, s, &err) == MF_ECAPTURE && sim_ask_left("memory") == 64);
  CHECK(capture_end(s) != 0); /* the wait broke it */
  sim_ask_reset();
  CHECK(gpu->memory_free(MF__DEVICE, p, s, &err) == MF_OK && sim_ask_left("memory") == 0);
  CHECK(gpu->memory_alloc(MF__DEVICE, 64, s, &p, &err) == MF_OK);
  (void)driver_last_error(); /* the capture's end was the spec's own */
  sim_ask_fail(IS_HIP ? "hipStreamSynchronize:999,hipFree:999" : "cuStreamSynchronize:999,cuMemFree:999");
  CHECK(gpu->memory_free(MF__DEVICE, p, s, &err) == MF_EDRIVER);
  CHECK(driver_last_error() == 0);
  gpu->leave(&before);
}

static void without_pools_memory_is_freed_all_the_same(void **state) {
  (void)state;
  needs_simulator_later();
  in_fork_with(IS_HIP ? "SIM_LEDGER=off SIM_MISSING=hipMemPoolCreate" : "SIM_LEDGER=off SIM_MISSING=cuMemPoolCreate",
           free_without_pools);
}

#if !IS_HIP
/* Nothing is said to be copied that is not. */
static void refuse_kernels(void) {
  const mf__kernel_copy kernel = {.numel = 4, .ndim = 1, .size = 1, .shape = {4}, .dst_strides = {1}};
  mf__entered before;
  CHECK(gpu->enter(0, &before, &err) == MF_OK);
  CHECK(gpu->kernel_copy(&kernel, MF_STREAM_DEFAULT, &err) == MF_EDEVICE);
  CHECK(strstr(err.message, "no calls for kernels") != NULL);
  gpu->leave(&before);
}

static void a_driver_without_kernels_says_so(void **state) {
  (void)state;
  needs_simulator_later();
  in_fork_with("SIM_LEDGER=off SIM_MISSING=cuLaunchKernel", refuse_kernels);
}

/* A failure decides nothing; an answer is kept, so that it is asked for once. */
static void ask_twice(bool shared) {
  bool out = !shared;
  int32_t n = 0;
  CHECK(gpu->device_count(&n, &err) == MF_OK);
  sim_ask_fail("cuDeviceGetAttribute@2:999:once");
  CHECK(gpu->managed_is_shared(&out, &err) == MF_EDRIVER && err.driver_code == 999);
  sim_ask_fail("cuDeviceGet:999:once");
  CHECK(gpu->managed_is_shared(&out, &err) == MF_EDRIVER && strcmp(err.call, "cuDeviceGet") == 0);
  sim_ask_reset();
  CHECK(gpu->managed_is_shared(&out, &err) == MF_OK && out == shared);
  const uint64_t calls = sim_ask_calls(NULL);
  CHECK(gpu->managed_is_shared(&out, &err) == MF_OK && out == shared && sim_ask_calls(NULL) == calls);
}

static void ask_where_it_is_shared(void) {
  ask_twice(true);
}

static void ask_where_it_is_exclusive(void) {
  ask_twice(false);
}

static void whether_managed_memory_is_shared_is_asked_once(void **state) {
  (void)state;
  needs_simulator_later();
  in_fork_with("SIM_LEDGER=off SIM_MANAGED=shared", ask_where_it_is_shared);
  in_fork_with("SIM_LEDGER=off SIM_MANAGED=exclusive", ask_where_it_is_exclusive);
}
#endif

#if IS_HIP
/* Two calls say of which device a stream is, and not every runtime has one of them. */
static void locate_streams(void) {
  mf__entered outer, inner;
  mf_stream s = 0;
  int32_t ordinal = -1;
  CHECK(gpu->enter(0, &outer, &err) == MF_OK && gpu->enter(1, &inner, &err) == MF_OK);
  CHECK(gpu->stream_create(&s, &err) == MF_OK);
  gpu->leave(&inner);
  CHECK(gpu->stream_device(s, &ordinal, &err) == MF_OK && ordinal == 1);
  CHECK(gpu->stream_destroy(s, &err) == MF_OK);
  CHECK(gpu->stream_device(s, &ordinal, &err) == MF_EINVAL && strstr(err.message, "no living stream") != NULL);
  gpu->leave(&outer);
}

static void locate_nothing(void) {
  mf__entered before;
  mf_stream s = 0;
  int32_t ordinal = -1;
  CHECK(gpu->enter(0, &before, &err) == MF_OK && gpu->stream_create(&s, &err) == MF_OK);
  CHECK(gpu->stream_device(s, &ordinal, &err) == MF_EDEVICE && strstr(err.message, "of which device") != NULL);
  CHECK(gpu->stream_destroy(s, &err) == MF_OK);
  gpu->leave(&before);
}

static void a_stream_is_located_by_what_the_runtime_has(void **state) {
  (void)state;
  needs_simulator_later();
  in_fork_with("SIM_LEDGER=off", locate_streams);
  in_fork_with("SIM_LEDGER=off SIM_MISSING=hipGetStreamDeviceId", locate_streams);
  in_fork_with("SIM_LEDGER=off SIM_MISSING=hipStreamGetDevice", locate_streams);
  in_fork_with("SIM_LEDGER=off SIM_MISSING=hipStreamGetDevice,hipGetStreamDeviceId", locate_nothing);
}
#endif

/* Threads and forks. */

static void *count_devices(void *unused) {
  int32_t n = 0;
  (void)unused;
  CHECK(gpu->device_count(&n, NULL) == MF_OK && n > 0);
  return NULL;
}

static void open_from_many(void) {
  enum { NTHREADS = 8 };
  pthread_t threads[NTHREADS];
  for (int i = 0; i < NTHREADS; i++) CHECK(pthread_create(&threads[i], NULL, count_devices, NULL) == 0);
  for (int i = 0; i < NTHREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(sim_ask_calls(FIRST) == 1);
}

static void a_driver_is_opened_once(void **state) {
  (void)state;
  needs_simulator_later();
  in_fork_with("SIM_LEDGER=off", open_from_many);
}

/* The child makes no call to the driver, not even a harmless one. */
static mf__entered inherited;
static int32_t inherited_devices;

static void use_in_child(void) {
  mf__entered inner;
  int32_t n;
  const uint64_t calls = sim_ask_calls(NULL);
  gpu->leave(&inherited);
  CHECK(!gpu->usable());
  CHECK(gpu->device_count(&n, &err) == MF_EDEVICE && n == 0);
  CHECK(strstr(err.message, "forked after") != NULL && strstr(err.message, "spawn") != NULL);
  CHECK(gpu->enter(0, &inner, &err) == MF_EDEVICE && strstr(err.message, "forked after") != NULL);
  for (int32_t i = 0; i < inherited_devices; i++) gpu->device_forget(i);
  CHECK(sim_ask_calls(NULL) == calls);
}

static void fork_after_use(void) {
  int32_t n;
  CHECK(gpu->device_count(&n, &err) == MF_OK);
  CHECK(gpu->enter(n - 1, &inherited, &err) == MF_OK); /* is not current */
  inherited_devices = n;
  CHECK(status_in_fork(use_in_child) == 0);
  CHECK(gpu->usable() && gpu->device_count(&n, &err) == MF_OK);
  gpu->leave(&inherited);
}

static void a_forked_child_is_told_to_start_anew(void **state) {
  (void)state;
  needs_simulator_later();
  in_fork_with("SIM_LEDGER=off", fork_after_use);
}

static void a_child_forked_before_any_use_is_free(void **state) {
  (void)state;
  needs_simulator_later();
  in_fork_with("SIM_LEDGER=off", be_simulated);
  in_fork_with("SIM_LEDGER=off", use_everything);
}

static void an_array_of_an_unknown_format_is_refused(void **state) {
  (void)state;
  DLDataType dtype;
  OK(mf__driver_array_dtype(0x0a, &dtype, &err));
  assert_true(dtype.code == kDLInt && dtype.bits == 32 && dtype.lanes == 1);
  FAILS(mf__driver_array_dtype(0xb0, &dtype, &err), MF_EDTYPE);
  assert_non_null(strstr(err.message, "format 0xb0"));
}

int main(void) {
  const struct CMUnitTest specs[] = {
      cmocka_unit_test(a_driver_that_is_not_there_is_named),
      cmocka_unit_test(a_file_that_is_no_library_is_said_to_be_none),
      cmocka_unit_test(a_library_that_is_no_driver_is_refused),
      cmocka_unit_test(the_oldest_driver_is_enough),
      cmocka_unit_test(a_machine_without_devices_says_so),
      cmocka_unit_test(a_driver_that_does_not_start_is_quoted),
      cmocka_unit_test(the_greatest_pitch_of_each_device_is_asked),
      cmocka_unit_test(a_pitch_that_is_no_size_limits_nothing),
      cmocka_unit_test(each_missing_function_is_named),
      cmocka_unit_test(an_array_of_an_unknown_format_is_refused),
      cmocka_unit_test(without_an_optional_function_the_rest_works),
#if !IS_HIP
      cmocka_unit_test(a_driver_too_old_is_told_what_is_needed),
      cmocka_unit_test(a_driver_without_kernels_says_so),
      cmocka_unit_test(whether_managed_memory_is_shared_is_asked_once),
#else
      cmocka_unit_test(a_stream_is_located_by_what_the_runtime_has),
#endif
      cmocka_unit_test(one_device_is_enough),
      cmocka_unit_test(a_capture_without_a_name_is_refused),
      cmocka_unit_test(without_pools_memory_is_freed_all_the_same),
      cmocka_unit_test(a_driver_is_opened_once),
      cmocka_unit_test(a_forked_child_is_told_to_start_anew),
      cmocka_unit_test(a_child_forked_before_any_use_is_free),
  };
  return cmocka_run_group_tests(specs, NULL, NULL);
}
