/* context_limit_spec.c: what a context is limited to, which kernels alone feel; and profiling, which needs one. */
#include "spec.h"

static size_t limit(CUlimit which) {
  size_t value = 0;
  OK(cuCtxGetLimit(&value, which));
  return value;
}

static void a_limit_is_what_the_driver_makes_of_it(void **state) {
  (void)state;
  assert_int_equal(limit(CU_LIMIT_STACK_SIZE), 1024);
  OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2001));
  assert_int_equal(limit(CU_LIMIT_STACK_SIZE), 2016);
  OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, SIZE_MAX));
  assert_int_equal(limit(CU_LIMIT_STACK_SIZE), 512 * 1024);
  OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 0));
  assert_int_equal(limit(CU_LIMIT_STACK_SIZE), 0);
  OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024));
  assert_int_equal(limit(CU_LIMIT_MALLOC_HEAP_SIZE), 8 << 20);
  OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, (8 << 20) + 1));
  assert_int_equal(limit(CU_LIMIT_MALLOC_HEAP_SIZE), 12 << 20);
  OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 1));
  assert_int_equal(limit(CU_LIMIT_PRINTF_FIFO_SIZE), 1 << 20);
  OK(cuCtxSetLimit(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 4096));
  assert_int_equal(limit(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT), 4096);
  OK(cuCtxSetLimit(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 1000));
  assert_int_equal(limit(CU_LIMIT_MAX_L2_FETCH_GRANULARITY), 128);
  OK(cuCtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 1 << 20)); /* the device has none to set aside */
  assert_int_equal(limit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE), 0);
}

static void each_context_has_its_own(void **state) {
  (void)state;
  OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
  OK(cuCtxPushCurrent_v2(contexts[1]));
  assert_int_equal(limit(CU_LIMIT_STACK_SIZE), 1024);
  OK(cuCtxPopCurrent_v2(NULL));
  assert_int_equal(limit(CU_LIMIT_STACK_SIZE), 4096);
}

static void what_cannot_be_is_refused(void **state) {
  (void)state;
  static const CUlimit unsupported[] = {CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, CU_LIMIT_SHMEM_SIZE, CU_LIMIT_CIG_ENABLED,
                                        CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED};
  size_t value = 7, total = 0;
  for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++) {
    FAILS(cuCtxSetLimit(unsupported[i], 1), CUDA_ERROR_UNSUPPORTED_LIMIT);
    FAILS(cuCtxGetLimit(&value, unsupported[i]), CUDA_ERROR_UNSUPPORTED_LIMIT);
  }
  FAILS(cuCtxSetLimit((CUlimit)10, 1), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuCtxGetLimit(&value, (CUlimit)-1), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuCtxGetLimit(NULL, CU_LIMIT_STACK_SIZE), CUDA_ERROR_INVALID_VALUE);
  assert_int_equal(value, 7);
  OK(cuMemGetInfo_v2(NULL, &total));
  FAILS(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
  assert_int_equal(limit(CU_LIMIT_MALLOC_HEAP_SIZE), 8 << 20);
  OK(cuCtxPopCurrent_v2(NULL));
  FAILS(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE), CUDA_ERROR_INVALID_CONTEXT);
  OK(cuCtxPushCurrent_v2(contexts[0]));
  found(SIM_MISUSE, 1);
}

static void profiling_takes_a_context(void **state) {
  (void)state;
  OK(cuProfilerStart());
  OK(cuProfilerStop());
  OK(cuCtxPopCurrent_v2(NULL));
  FAILS(cuProfilerStart(), CUDA_ERROR_INVALID_CONTEXT);
  FAILS(cuProfilerStop(), CUDA_ERROR_INVALID_CONTEXT);
  OK(cuCtxPushCurrent_v2(contexts[0]));
  assert_true(sim_findings(SIM_MISUSE) > 0);
  sim_reset();
}

RUN(SPEC(a_limit_is_what_the_driver_makes_of_it), SPEC(each_context_has_its_own), SPEC(what_cannot_be_is_refused),
    SPEC(profiling_takes_a_context))
