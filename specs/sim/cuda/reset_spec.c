/* reset_spec.c: somebody resets a device that others use. */
#include "spec.h"

/* What somebody else had on device 0, and what the reset did to it. */
typedef struct others {
  CUdeviceptr memory, of_pool;
  void *pinned;
  CUstream s;
  CUevent e;
  CUmemoryPool pool;
} others;

static others make(void) {
  const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  others o = {.memory = device_memory(), .s = stream(), .e = event()};
  OK(cuMemHostAlloc(&o.pinned, NBYTES, 0));
  OK(cuMemPoolCreate(&o.pool, &props));
  OK(cuMemAllocFromPoolAsync(&o.of_pool, NBYTES, o.pool, o.s));
  OK(cuMemsetD8Async(o.of_pool, 1, NBYTES, o.s));
  return o;
}

static void reset(void) {
  OK(cuDevicePrimaryCtxReset_v2(0));
  found(SIM_WARNING, 1);
}

/* What every spec here ends with: device 0 has a context again, which is current. */
static void start_again(void) {
  OK(cuCtxPopCurrent_v2(NULL));
  OK(cuDevicePrimaryCtxRelease_v2(0)); /* safe after a reset, and owed */
  OK(cuDevicePrimaryCtxRetain(&contexts[0], 0));
  OK(cuCtxPushCurrent_v2(contexts[0]));
}

static void a_reset_ends_all_that_a_device_had(void **state) {
  (void)state;
  make();
  reset();
  start_again();
  nothing_left();
}

/* As a reset does (CUDA Driver API, cuDevicePrimaryCtxRelease). */
static void the_last_release_ends_it_as_well(void **state) {
  (void)state;
  const others o = make();
  OK(cuCtxPopCurrent_v2(NULL));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  found(SIM_WARNING, 1);
  OK(cuDevicePrimaryCtxRetain(&contexts[0], 0));
  OK(cuCtxPushCurrent_v2(contexts[0]));
  FAILS(cuMemsetD8_v2(o.of_pool, 1, NBYTES), CUDA_ERROR_INVALID_VALUE);
  found(SIM_STALE, 1);
  nothing_left();
}

static void the_context_is_gone_for_all(void **state) {
  (void)state;
  CUcontext old = contexts[0], current = NULL;
  CUdeviceptr p = 0;
  int active = 1;
  unsigned flags = 0;
  make();
  reset();
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  assert_int_equal(active, 0);
  OK(cuCtxGetCurrent(&current));
  assert_ptr_equal(current, old);
  FAILS(cuMemAlloc_v2(&p, NBYTES), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  assert_true(told("the current context of device 0 was destroyed"));
  FAILS(cuStreamSynchronize(NULL), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  FAILS(cuCtxPushCurrent_v2(old), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  found(SIM_MISUSE, 3);
  start_again();
  assert_ptr_not_equal(contexts[0], old);
  OK(cuMemAlloc_v2(&p, NBYTES));
  OK(cuMemFree_v2(p));
}

static void what_is_used_later_is_found(void **state) {
  (void)state;
  const others o = make();
  uint64_t value = 0;
  reset();
  start_again();
  FAILS(cuStreamQuery(o.s), CUDA_ERROR_INVALID_HANDLE);
  FAILS(cuEventQuery(o.e), CUDA_ERROR_INVALID_HANDLE);
  FAILS(cuMemPoolGetAttribute(o.pool, 7, &value), CUDA_ERROR_INVALID_HANDLE);
  found(SIM_MISUSE, 3);
  FAILS(cuMemFree_v2(o.memory), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuMemFreeHost(o.pinned), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuMemFreeAsync(o.of_pool, NULL), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuMemsetD8Async(o.memory, 1, NBYTES, NULL), CUDA_ERROR_INVALID_VALUE);
  found(SIM_STALE, 4);
}

static void the_other_device_goes_on(void **state) {
  (void)state;
  unsigned char got[NBYTES];
  CUdeviceptr p = 0;
  make();
  OK(cuCtxPushCurrent_v2(contexts[1]));
  CUstream s = stream();
  OK(cuMemAlloc_v2(&p, NBYTES));
  OK(cuMemsetD8Async(p, 5, NBYTES, s));
  reset();
  OK(cuMemcpyDtoHAsync_v2(got, p, NBYTES, s));
  assert_true(all_bytes(got, NBYTES, 5));
  OK(cuMemFree_v2(p));
  OK(cuStreamDestroy_v2(s));
  OK(cuCtxPopCurrent_v2(NULL));
  start_again();
}

static void a_release_too_many_is_one(void **state) {
  (void)state;
  OK(cuDevicePrimaryCtxReset_v2(0));
  start_again();
  OK(cuCtxPopCurrent_v2(NULL));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  FAILS(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
  found(SIM_MISUSE, 1);
  OK(cuDevicePrimaryCtxRetain(&contexts[0], 0));
  OK(cuCtxPushCurrent_v2(contexts[0]));
}

RUN(SPEC(a_reset_ends_all_that_a_device_had), SPEC(the_last_release_ends_it_as_well),
    SPEC(the_context_is_gone_for_all), SPEC(what_is_used_later_is_found),
    SPEC(the_other_device_goes_on), SPEC(a_release_too_many_is_one))
