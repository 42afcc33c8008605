/* lenient_spec.c: the settings that make the driver kinder than its documentation, for programs that need it. */
#include "spec.h"

static void asking_the_legacy_stream_covers_blocking_streams(void **state) {
  (void)state;
  for (int waits = 0; waits < 2; waits++) {
    CUdeviceptr p = device_memory();
    CUstream a = NULL, b = NULL;
    OK(cuStreamCreate(&a, 0));
    OK(cuStreamCreate(&b, 0));
    OK(cuMemsetD8Async(p, 1, NBYTES, a));
    if (waits) OK(cuStreamSynchronize(NULL));
    if (!waits) FAILS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    OK(cuMemsetD8Async(p, 2, NBYTES, b));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemFree_v2(p));
    give_back(0, 0, a, b);
  }
}

static void the_hosts_own_accesses_are_not_seen(void **state) {
  (void)state;
  void *m = NULL;
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  OK(cuMemHostAlloc(&m, NBYTES, 0));
  OK(cuMemcpyDtoHAsync_v2(m, p, NBYTES, s));
  *(volatile char *)m = 1;
  assert_int_equal(sim_findings(SIM_ANY), 0);
  OK(cuStreamSynchronize(s));
  OK(cuMemFreeHost(m));
  give_back(p, 0, s, NULL);
}

static void a_free_waits_for_the_device(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  OK(cuMemsetD8Async(p, 1, NBYTES, s));
  OK(cuMemFree_v2(p));
  OK(cuStreamQuery(s));
  give_back(0, 0, s, NULL);
}

/* Settings are read at the first call. */
int main(void) {
  const struct CMUnitTest specs[] = {SPEC(asking_the_legacy_stream_covers_blocking_streams),
                                     SPEC(the_hosts_own_accesses_are_not_seen),
                                     SPEC(a_free_waits_for_the_device)};
  setenv("SIM_LEGACY", "kind", 1);
  setenv("SIM_FREE", "wait", 1);
  setenv("SIM_HOST_TRAP", "0", 1);
  return cmocka_run_group_tests(specs, NULL, NULL);
}
