/* history_spec.c: the race checker forgets nothing that matters, or says that it did. */
#include "spec.h"

enum { MANY = 4000, SIZE = 1 << 20 };

static CUdeviceptr large;

static int begin_large(void **state) {
  begin(state);
  OK(cuMemAlloc_v2(&large, SIZE));
  return 0;
}

static int end_large(void **state) {
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(large));
  return end(state);
}

/* One early access in stream a, n others in pieces behind it, then one in stream b to the bytes of the first. */
static void race_at_a_distance(int n, CUstream a, CUstream b) {
  OK(cuMemsetD8Async(large, 1, 16, a));
  for (int i = 1; i <= n; i++) OK(cuMemsetD8Async(large + (size_t)i * 32, 1, 16, a));
  OK(cuMemsetD8Async(large, 2, 16, b));
}

static void an_access_is_remembered_behind_thousands(void **state) {
  (void)state;
  CUstream a = stream(), b = stream();
  race_at_a_distance(MANY, a, b);
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

static void what_the_host_has_seen_takes_no_room(void **state) {
  (void)state;
  CUstream a = stream(), b = stream();
  for (int round = 0; round < 8; round++) {
    for (int i = 0; i < MANY; i++) OK(cuMemsetD8Async(large + (size_t)i * 32, 1, 16, a));
    OK(cuStreamSynchronize(a));
  }
  assert_int_equal(sim_findings(SIM_WARNING), 0);
  race_at_a_distance(10, a, b);
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

static void what_must_be_forgotten_is_told(void **state) {
  (void)state;
  CUstream a = stream(), b = stream();
  race_at_a_distance(MANY, a, b);
  assert_int_equal(sim_findings(SIM_RACE), 0);
  assert_true(told("the first of them are forgotten"));
  found(SIM_WARNING, 1);
  OK(cuCtxSynchronize());
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

#define LARGE_SPEC(name) cmocka_unit_test_setup_teardown(name, begin_large, end_large)

/* Settings are read at the first call; with an argument, there is room for few. */
int main(int argc, char **argv) {
  (void)argv;
  const struct CMUnitTest all[] = {LARGE_SPEC(an_access_is_remembered_behind_thousands),
                                   LARGE_SPEC(what_the_host_has_seen_takes_no_room)};
  const struct CMUnitTest few[] = {LARGE_SPEC(what_must_be_forgotten_is_told)};
  if (argc == 1) return cmocka_run_group_tests(all, NULL, NULL);
  setenv("SIM_HISTORY", "1000", 1);
  return cmocka_run_group_tests(few, NULL, NULL);
}
