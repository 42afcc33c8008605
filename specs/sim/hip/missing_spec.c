/* missing_spec.c: each function of the simulated HIP runtime can be missing, for dlsym too. */
#include "../missing.h"

#define CALL(name, ...) #name,
#define SCALL(name, ...) #name, #name "_spt",
#define REFUSE(name, version) #name,
static const char *const names[] = {
#include "calls.def"
    "hipGetErrorName", "hipGetErrorString", "hipGetStreamDeviceId", "__hipRegisterFatBinary",
};

static void each_function_can_be_missing(void **state) {
  (void)state;
  all_can_be_missing(names, sizeof names / sizeof *names);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_function_can_be_missing)};
  return RUN_MISSING(tests, argc, argv);
}
