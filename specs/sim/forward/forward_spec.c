/* forward_spec.c: what only the runtime that forwards to CUDA promises. */
#include "spec.h"

#include "driver.h"

CUresult cuCtxGetCurrent(CUcontext *c);
CUresult cuCtxSetCurrent(CUcontext c);
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d);

static CUcontext current_context(void) {
  CUcontext c = NULL;
  OK(cuCtxGetCurrent(&c));
  return c;
}

static void cudas_current_context_stays(void **state) {
  (void)state;
  CUcontext other;
  assert_null(current_context());
  OK(hipFree(device_memory()));
  FAILS(hipFree((void *)8), hipErrorInvalidValue);
  found(SIM_STALE, 1);
  assert_null(current_context());
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  OK(cuCtxSetCurrent(other));
  OK(hipSetDevice(0));
  OK(hipFree(device_memory()));
  OK(hipStreamDestroy(stream()));
  assert_ptr_equal(current_context(), other);
  OK(cuCtxSetCurrent(NULL));
  OK(cuDevicePrimaryCtxRelease_v2(1));
  hipGetLastError();
}

static void memory_is_cudas(void **state) {
  (void)state;
  hipPointerAttribute_t a;
  unsigned char in[4] = {0};
  void *p = device_memory();
  assert_int_equal(sim_left("memory"), NBYTES);
  OK(hipMemset(p, 7, 4));
  OK(hipDeviceSynchronize());
  assert_int_equal(sim_peek(p, in, 4), 0);
  assert_true(all_bytes(in, 4, 7));
  OK(hipPointerGetAttributes(&a, p));
  assert_int_equal(a.type, hipMemoryTypeDevice);
  OK(hipFree(p));
}

RUN(SPEC(cudas_current_context_stays), SPEC(memory_is_cudas))
