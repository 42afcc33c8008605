/* context_spec.c: which device a call works on, errors of a thread, and what is said of devices. */
#include "spec.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALL(name, symbol, since, how, params, args) CUresult symbol params;
#define SCALL CALL
#define DCALL CALL
#include "../../../sim/cuda/calls.def"

static int device_of_memory(void) {
  cudaPointerAttributes about;
  void *p = device_memory();
  OK(cudaPointerGetAttributes(&about, p));
  assert_int_equal(about.type, cudaMemoryTypeDevice);
  OK(cudaFree(p));
  return about.device;
}

static void a_thread_works_on_the_device_that_it_chose(void **state) {
  (void)state;
  int device = -1;
  OK(cudaSetDevice(1));
  OK(cudaGetDevice(&device));
  assert_int_equal(device, 1);
  assert_int_equal(device_of_memory(), 1);
  FAILS(cudaSetDevice(2), cudaErrorInvalidDevice);
  FAILS(cudaSetDevice(-1), cudaErrorInvalidDevice);
  assert_int_equal(device_of_memory(), 1);
}

static void *first_calls(void *out) {
  int *seen = out;
  OK(cudaGetDevice(&seen[0]));
  seen[1] = device_of_memory();
  seen[2] = (int)cudaGetLastError();
  return NULL;
}

static void a_new_thread_has_device_0_and_no_error(void **state) {
  (void)state;
  int seen[3] = {-1, -1, -1};
  pthread_t t;
  OK(cudaSetDevice(1));
  FAILS(cudaSetDevice(9), cudaErrorInvalidDevice);
  OK(pthread_create(&t, NULL, first_calls, seen));
  OK(pthread_join(t, NULL));
  assert_int_equal(seen[0], 0);
  assert_int_equal(seen[1], 0);
  assert_int_equal(seen[2], 0);
}

/* Libraries beside PyTorch push the context that they work in. */
static void a_context_that_the_driver_made_current_is_used(void **state) {
  (void)state;
  CUcontext c, before, after;
  int device = -1;
  OK(cuDevicePrimaryCtxRetain(&c, 1));
  OK(cuCtxGetCurrent(&before));
  OK(cuCtxPushCurrent_v2(c));
  OK(cudaGetDevice(&device));
  assert_int_equal(device, 1);
  assert_int_equal(device_of_memory(), 1);
  OK(cuCtxPopCurrent_v2(&c));
  OK(cudaGetDevice(&device));
  assert_int_equal(device, 0);
  OK(cuCtxGetCurrent(&after));
  assert_ptr_equal(before, after);
  OK(cuDevicePrimaryCtxRelease_v2(1));
}

static void a_reset_device_begins_anew(void **state) {
  (void)state;
  char *p = device_memory();
  OK(cudaDeviceReset());
  found(SIM_WARNING, 1);
  FAILS(cudaFree(p), cudaErrorInvalidValue);
  found(SIM_STALE, 1);
  assert_int_equal(device_of_memory(), 0);
}

static void limits_are_the_drivers(void **state) {
  (void)state;
  enum { STACK = 0, SYNC_DEPTH = 3 };
  size_t value = 0;
  OK(cudaDeviceSetLimit(STACK, 4095));
  OK(cudaDeviceGetLimit(&value, STACK));
  assert_int_equal(value, 4096);
  FAILS(cudaDeviceGetLimit(&value, SYNC_DEPTH), cudaErrorUnsupportedLimit);
  FAILS(cudaDeviceSetLimit(99, 0), cudaErrorInvalidValue);
  assert_string_equal(cudaGetErrorString(cudaErrorUnsupportedLimit), "limit is not supported on this architecture");
}

static void the_last_error_stays_until_it_is_asked_for(void **state) {
  (void)state;
  int device;
  (void)cudaGetLastError();
  FAILS(cudaSetDevice(7), cudaErrorInvalidDevice);
  OK(cudaGetDevice(&device));
  FAILS(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  FAILS(cudaGetLastError(), cudaErrorInvalidDevice);
  OK(cudaGetLastError());
  FAILS(cudaMalloc(NULL, 1), cudaErrorInvalidValue);
  FAILS(cudaGetLastError(), cudaErrorInvalidValue);
}

static void errors_have_names_and_texts(void **state) {
  (void)state;
  assert_string_equal(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
  assert_string_equal(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  assert_string_equal(cudaGetErrorName(cudaErrorCapturedEvent), "cudaErrorCapturedEvent");
  assert_string_equal(cudaGetErrorString(cudaErrorInvalidPitchValue), "invalid pitch argument");
  assert_string_equal(cudaGetErrorName((cudaError_t)12345), "unrecognized error code");
  assert_string_equal(cudaGetErrorString((cudaError_t)12345), "unrecognized error code");
}

static void faults_of_the_driver_come_through(void **state) {
  (void)state;
  void *p = NULL;
  OK(sim_fail("cuMemAlloc:2"));
  FAILS(cudaMalloc(&p, NBYTES), cudaErrorMemoryAllocation);
  FAILS(cudaGetLastError(), cudaErrorMemoryAllocation);
  assert_null(p);
}

static void properties_are_the_attributes(void **state) {
  (void)state;
  cudaDeviceProp about;
  int value = 0, n = 0, device = -1;
  char bus[32];
  OK(cudaGetDeviceCount(&n));
  assert_int_equal(n, 2);
  memset(&about, 0xff, sizeof about);
  OK(cudaGetDeviceProperties(&about, 1));
  OK(cudaDeviceGetAttribute(&value, 39, 1));
  assert_int_equal(about.maxThreadsPerMultiProcessor, value);
  assert_true(value > 0 && about.multiProcessorCount > 0 && about.warpSize == 32);
  assert_int_equal(about.major * 10 + about.minor, 90);
  assert_int_equal(about.maxTexture1D, 0);
  assert_true(all_bytes(about.reserved, sizeof about.reserved, 0));
  assert_true(strlen(about.name) > 0 && about.totalGlobalMem > 0);
  FAILS(cudaGetDeviceProperties(&about, 2), cudaErrorInvalidDevice);
  FAILS(cudaGetDeviceProperties(NULL, 0), cudaErrorInvalidValue);
  OK(cudaDeviceGetPCIBusId(bus, sizeof bus, 1));
  OK(cudaDeviceGetByPCIBusId(&device, bus));
  assert_int_equal(device, 1);
  FAILS(cudaDeviceGetByPCIBusId(&device, "0000:ff:1f.7"), cudaErrorInvalidDevice);
}

static void driver_functions_are_found_by_version(void **state) {
  (void)state;
  cudaDriverEntryPointQueryResult why;
  void *fn = NULL, *direct = NULL;
  OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &fn, 3020, 0, &why));
  assert_int_equal(why, CU_GET_PROC_ADDRESS_SUCCESS);
  OK(cuGetProcAddress_v2("cuMemAlloc", &direct, 3020, 0, &why));
  assert_ptr_equal(fn, direct);
  OK(cudaGetDriverEntryPointByVersion("cuNothingOfTheKind", &fn, 12000, 0, &why));
  assert_int_equal(why, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  assert_null(fn);
  OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &fn, 99000, 0, &why));
  assert_int_equal(why, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  FAILS(cudaGetDriverEntryPoint(NULL, &fn, 0, &why), cudaErrorInvalidValue);
}

static void a_forked_child_gets_an_error(void **state) {
  (void)state;
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    void *p = NULL;
    const cudaError_t first = cudaMalloc(&p, 1), second = cudaSetDevice(0);
    _exit(first == cudaErrorInitializationError && second == cudaErrorInitializationError ? 0 : 1);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

static void what_is_not_simulated_is_refused_by_name(void **state) {
  (void)state;
  FAILS(cudaMemAdvise(), cudaErrorNotSupported);
  FAILS(cudaGetLastError(), cudaErrorNotSupported);
  assert_true(told("cudaMemAdvise is not simulated"));
  assert_true(told(PROGRAM));
  found(SIM_MISUSE, 1);
}

RUN(SPEC(a_thread_works_on_the_device_that_it_chose), SPEC(a_new_thread_has_device_0_and_no_error),
    SPEC(a_context_that_the_driver_made_current_is_used), SPEC(a_reset_device_begins_anew),
    SPEC(limits_are_the_drivers),
    SPEC(the_last_error_stays_until_it_is_asked_for), SPEC(errors_have_names_and_texts),
    SPEC(faults_of_the_driver_come_through), SPEC(properties_are_the_attributes),
    SPEC(driver_functions_are_found_by_version), SPEC(a_forked_child_gets_an_error),
    SPEC(what_is_not_simulated_is_refused_by_name))
