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

/* Settings are read at the first call. */
int main(void) {
  const struct CMUnitTest specs[] = {SPEC(asking_the_legacy_stream_covers_blocking_streams)};
  setenv("SIM_LEGACY", "kind", 1);
  return cmocka_run_group_tests(specs, NULL, NULL);
}
