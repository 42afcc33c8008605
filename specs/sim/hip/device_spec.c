/* device_spec.c: the current device, devices' properties, errors and finding functions. */
#include <pthread.h>

#include "spec.h"

static void *device_of_a_new_thread(void *out) {
  OK(hipGetDevice(out));
  return NULL;
}

static void each_thread_has_its_own_device(void **state) {
  (void)state;
  pthread_t t;
  int device = -1;
  OK(hipSetDevice(1));
  assert_int_equal(pthread_create(&t, NULL, device_of_a_new_thread, &device), 0);
  pthread_join(t, NULL);
  assert_int_equal(device, 0);
  OK(hipGetDevice(&device));
  assert_int_equal(device, 1);
  OK(hipSetDevice(0));
}

static void memory_and_streams_belong_to_the_current_device(void **state) {
  (void)state;
  hipPointerAttribute_t a;
  OK(hipSetDevice(1));
  void *p = device_memory();
  hipStream_t s = stream();
  OK(hipSetDevice(0));
  OK(hipPointerGetAttributes(&a, p));
  assert_int_equal(a.device, 1);
  assert_int_equal(hipGetStreamDeviceId(s), 1);
  OK(hipFree(p));
  OK(hipStreamDestroy(s));
}

static void a_device_that_is_not_there(void **state) {
  (void)state;
  int device = -1;
  FAILS(hipSetDevice(2), hipErrorInvalidDevice);
  FAILS(hipSetDevice(-1), hipErrorInvalidDevice);
  OK(hipGetDevice(&device));
  assert_int_equal(device, 0);
}

static void devices_are_described(void **state) {
  (void)state;
  hipDeviceProp_tR0600 p;
  int count = 0, v = 0, device = -1;
  char text[24];
  OK(hipGetDeviceCount(&count));
  assert_int_equal(count, 2);
  OK(hipGetDevicePropertiesR0600(&p, 1));
  assert_string_equal(p.name, "Simulated GPU 1");
  assert_string_equal(p.gcnArchName, "gfx900");
  assert_int_equal(p.warpSize, FORWARDED ? 32 : 64);
  OK(hipDeviceGetAttribute(&v, 87, 0));
  assert_int_equal(v, p.warpSize);
  OK(hipDeviceGetPCIBusId(text, sizeof text, 1));
  OK(hipDeviceGetByPCIBusId(&device, text));
  assert_int_equal(device, 1);
  FAILS(hipGetDevicePropertiesR0600(&p, 2), hipErrorInvalidDevice);
}

static void the_last_error_is_kept_until_asked_for(void **state) {
  (void)state;
  void *p = NULL;
  FAILS(hipSetDevice(7), hipErrorInvalidDevice);
  OK(hipMalloc(&p, 8));
  OK(hipFree(p));
  FAILS(hipPeekAtLastError(), hipErrorInvalidDevice);
  FAILS(hipGetLastError(), hipErrorInvalidDevice);
  OK(hipGetLastError());
  assert_string_equal(hipGetErrorName(hipErrorInvalidDevice), "hipErrorInvalidDevice");
  assert_string_equal(hipGetErrorString(hipErrorOutOfMemory), "out of memory");
}

static void not_ready_is_no_error(void **state) {
  (void)state;
  void *p = device_memory();
  hipStream_t s = stream();
  OK(hipMemsetAsync(p, 1, NBYTES, s));
  FAILS(hipStreamQuery(s), hipErrorNotReady);
  OK(hipGetLastError());
  OK(hipStreamSynchronize(s));
  OK(hipStreamQuery(s));
  OK(hipFree(p));
  OK(hipStreamDestroy(s));
}

static void a_call_fails_when_told_to(void **state) {
  (void)state;
  void *p = NULL;
  assert_int_equal(sim_fail(CALLED("hipMalloc", "cuMemAlloc") ":2"), 0);
  FAILS(hipMalloc(&p, 8), hipErrorOutOfMemory);
  FAILS(hipGetLastError(), hipErrorOutOfMemory);
  OK(hipMalloc(&p, 8));
  OK(hipFree(p));
  assert_int_equal(sim_calls(CALLED("hipMalloc", "cuMemAlloc")), 2);
}

static void what_is_not_simulated_is_refused(void **state) {
  (void)state;
  hipModule_t module = NULL;
  FAILS(hipLaunchKernel(), hipErrorNotSupported);
  FAILS(hipModuleLoadData(&module, "\177ELF"), hipErrorNotSupported);
  assert_int_equal(sim_calls("hipLaunchKernel"), FORWARDED ? 0 : 1);
  FAILS(hipGetLastError(), hipErrorNotSupported);
}

static void functions_are_found_by_name(void **state) {
  (void)state;
  void *fn = NULL, *twin = NULL;
  hipDriverProcAddressQueryResult why;
  OK(hipGetProcAddress("hipMemcpyAsync", &fn, 70000000, 0, &why));
  OK(hipGetProcAddress("hipMemcpyAsync", &twin, 70000000, 2, NULL));
  assert_ptr_equal(fn, (void *)hipMemcpyAsync);
  assert_ptr_equal(twin, (void *)hipMemcpyAsync_spt);
  FAILS(hipGetProcAddress("hipNoSuchThing", &fn, 70000000, 0, &why), hipErrorInvalidValue);
  assert_int_equal(why, HIP_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  assert_null(fn);
}

static void peers(void **state) {
  (void)state;
  int can = 0;
  OK(hipDeviceCanAccessPeer(&can, 0, 1));
  assert_int_equal(can, 1);
  OK(hipDeviceEnablePeerAccess(1, 0));
  FAILS(hipDeviceEnablePeerAccess(1, 0), hipErrorPeerAccessAlreadyEnabled);
  OK(hipDeviceDisablePeerAccess(1));
  FAILS(hipDeviceDisablePeerAccess(1), hipErrorPeerAccessNotEnabled);
  FAILS(hipDeviceEnablePeerAccess(0, 0), hipErrorInvalidDevice);
  hipGetLastError();
}

RUN(SPEC(each_thread_has_its_own_device), SPEC(memory_and_streams_belong_to_the_current_device),
    SPEC(a_device_that_is_not_there), SPEC(devices_are_described), SPEC(the_last_error_is_kept_until_asked_for),
    SPEC(not_ready_is_no_error), SPEC(a_call_fails_when_told_to), SPEC(what_is_not_simulated_is_refused),
    SPEC(functions_are_found_by_name), SPEC(peers))
