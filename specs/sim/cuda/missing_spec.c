/* missing_spec.c: each function of the simulated CUDA driver can be missing, for dlsym too. */
#include "../missing.h"

#define CALL(base, symbol, ...) #symbol,
#define SCALL(base, symbol, ...) #symbol, #symbol "_ptsz",
#define DCALL(base, symbol, ...) #symbol, #symbol "_ptds",
static const char *const names[] = {
#include "calls.def"
};

static void each_function_can_be_missing(void **state) {
  (void)state;
  all_can_be_missing(names, sizeof names / sizeof *names);
}

static void an_old_driver_lacks_what_came_later(void **state) {
  (void)state;
  assert_int_equal(run_with("SIM_DRIVER_VERSION=11010", "cuMemAllocAsync_ptsz", "cuMemAlloc_v2"), 0);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_function_can_be_missing),
                                     cmocka_unit_test(an_old_driver_lacks_what_came_later)};
  return RUN_MISSING(tests, argc, argv);
}
