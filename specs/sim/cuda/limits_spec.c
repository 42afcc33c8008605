/* limits_spec.c: devices that can do less: managed memory that is not the host's while they work, limits of pitches.
 *
 * The setting is read at the first call; the argument says which. */
#include "spec.h"

static void managed_memory_is_the_devices_while_it_works(void **state) {
  (void)state;
  CUdeviceptr m = 0, n = 0, p = device_memory();
  CUstream s = stream();
  int concurrent = 1;
  OK(cuDeviceGetAttribute(&concurrent, 89, 0));
  assert_int_equal(concurrent, 0);
  OK(cuMemAllocManaged(&m, NBYTES, 1));
  *(volatile char *)m = 1;
  assert_int_equal(sim_findings(SIM_ANY), 0);
  OK(cuMemsetD8Async(p, 1, NBYTES, s)); /* of other memory */
  *(volatile char *)m = 2;
  assert_int_equal(sim_findings(SIM_MISUSE), 1);
  assert_true(told("the host writes managed memory"));
  OK(cuMemAllocManaged(&n, NBYTES, 1));
  (void)*(volatile char *)n;
  assert_true(told("the host reads managed memory"));
  found(SIM_MISUSE, 2);
  OK(cuStreamSynchronize(s));
  *(volatile char *)m = 3;
  (void)*(volatile char *)n;
  assert_int_equal(sim_findings(SIM_ANY), 0);
  OK(cuMemFree_v2(n));
  OK(cuMemFree_v2(m));
  give_back(p, 0, s, NULL);
}

static void work_of_any_device_counts(void **state) {
  (void)state;
  CUdeviceptr m = 0, p = 0;
  OK(cuMemAllocManaged(&m, NBYTES, 1));
  OK(cuCtxPushCurrent_v2(contexts[1]));
  CUstream s = stream();
  OK(cuMemAlloc_v2(&p, NBYTES));
  OK(cuMemsetD8Async(p, 1, NBYTES, s));
  (void)*(volatile char *)m;
  found(SIM_MISUSE, 1);
  OK(cuCtxSynchronize());
  (void)*(volatile char *)m;
  OK(cuMemFree_v2(p));
  OK(cuStreamDestroy_v2(s));
  OK(cuCtxPopCurrent_v2(NULL));
  OK(cuMemFree_v2(m));
}

/* The work on the memory itself is a race, too, and stays one when that is waited for and other work is not. */
static void its_own_work_is_a_race_as_ever(void **state) {
  (void)state;
  CUdeviceptr m = 0, p = device_memory();
  CUstream s = stream(), other = stream();
  OK(cuMemAllocManaged(&m, NBYTES, 1));
  OK(cuMemsetD8Async(m, 1, NBYTES, s));
  (void)*(volatile char *)m;
  assert_int_equal(sim_findings(SIM_RACE), 1);
  assert_int_equal(sim_findings(SIM_MISUSE), 1);
  sim_reset();
  OK(cuMemsetD8Async(p, 1, NBYTES, other));
  OK(cuStreamSynchronize(s));
  (void)*(volatile char *)m;
  found(SIM_MISUSE, 1);
  OK(cuStreamSynchronize(other));
  assert_int_equal(*(volatile char *)m, 1);
  OK(cuMemFree_v2(m));
  give_back(p, 0, s, other);
}

static void it_cannot_be_prefetched(void **state) {
  (void)state;
  CUdeviceptr m = 0;
  OK(cuMemAllocManaged(&m, NBYTES, 1));
  FAILS(cuMemPrefetchAsync(m, NBYTES, 0, NULL), CUDA_ERROR_INVALID_DEVICE);
  OK(cuMemFree_v2(m));
}

static CUresult copy_rows(CUdeviceptr d, size_t dpitch, CUdeviceptr s, size_t spitch, bool three, bool any) {
  const CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = s, .srcPitch = spitch,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = d, .dstPitch = dpitch,
                           .WidthInBytes = 8, .Height = 2};
  const CUDA_MEMCPY3D deep = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = s, .srcPitch = spitch,
                              .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = d, .dstPitch = dpitch,
                              .WidthInBytes = 8, .Height = 2, .Depth = 1};
  if (three) return cuMemcpy3DAsync_v2(&deep, NULL);
  return any ? cuMemcpy2DUnaligned_v2(&c) : cuMemcpy2DAsync_v2(&c, NULL);
}

static void a_pitch_beyond_the_limit_is_refused(void **state) {
  (void)state;
  CUdeviceptr p = device_memory(), q = device_memory();
  int limit = 0;
  OK(cuDeviceGetAttribute(&limit, 11, 0));
  assert_int_equal(limit, 1024);
  for (int three = 0; three < 2; three++) {
    OK(copy_rows(p, 1024, q, 1024, three, false));
    FAILS(copy_rows(p, 1025, q, 1024, three, false), CUDA_ERROR_INVALID_VALUE);
    FAILS(copy_rows(p, 1024, q, 2048, three, false), CUDA_ERROR_INVALID_VALUE);
  }
  give_back(p, q, stream(), NULL);
}

static void rows_within_a_device_keep_to_what_was_allocated(void **state) {
  (void)state;
  size_t pitch = 0;
  CUdeviceptr p = device_memory(), q = 0;
  OK(cuMemAllocPitch_v2(&q, &pitch, 100, 4, 4));
  OK(copy_rows(p, pitch, q, pitch, false, false));
  FAILS(copy_rows(p, 100, q, pitch, false, false), CUDA_ERROR_INVALID_VALUE);
  FAILS(copy_rows(p, pitch, q, 100, false, false), CUDA_ERROR_INVALID_VALUE);
  OK(copy_rows(p, 100, q, 100, false, true));
  OK(copy_rows(p, 100, q, 100, true, false));
  give_back(p, q, stream(), NULL);
}

static void a_fills_pitch_fits_its_unit(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  OK(cuMemsetD2D32_v2(p, 68, 1, 16, 2));
  FAILS(cuMemsetD2D32_v2(p, 66, 1, 16, 2), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuMemsetD2D16_v2(p, 67, 1, 16, 2), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuMemsetD2D8_v2(p, 15, 1, 16, 2), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemsetD2D32_v2(p, 3, 1, 16, 1));
  give_back(p, 0, stream(), NULL);
}

int main(int argc, char **argv) {
  const struct CMUnitTest managed[] = {SPEC(managed_memory_is_the_devices_while_it_works),
                                       SPEC(work_of_any_device_counts), SPEC(its_own_work_is_a_race_as_ever),
                                       SPEC(it_cannot_be_prefetched)};
  const struct CMUnitTest limit[] = {SPEC(a_pitch_beyond_the_limit_is_refused), SPEC(a_fills_pitch_fits_its_unit)};
  const struct CMUnitTest pitch[] = {SPEC(rows_within_a_device_keep_to_what_was_allocated)};
  if (argc == 1) {
    setenv("SIM_MANAGED", "exclusive", 1);
    return cmocka_run_group_tests(managed, NULL, NULL);
  }
  if (strcmp(argv[1], "limit") == 0) {
    setenv("SIM_MAX_PITCH", "1024", 1);
    return cmocka_run_group_tests(limit, NULL, NULL);
  }
  setenv("SIM_PITCH", "strict", 1);
  return cmocka_run_group_tests(pitch, NULL, NULL);
}
