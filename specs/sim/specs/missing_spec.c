/* missing_spec.c: each function of the simulated CUDA driver can be missing, for dlsym too. */
#include "missing.h"

#define CALL(base, symbol, ...) #symbol,
#define SCALL(base, symbol, ...) #symbol, #symbol "_ptsz",
#define DCALL(base, symbol, ...) #symbol, #symbol "_ptds",
static const char *const names[] = {
#include "calls.def"
};

static int an_old_driver(char *self) {
  return run_with("SIM_DRIVER_VERSION=11010", self, "cuMemAllocAsync_ptsz", "cuMemAlloc_v2");
}

int main(int argc, char **argv) {
  if (argc == 1 && an_old_driver(argv[0]) != 0) return 1;
  return each_can_be_missing(names, sizeof names / sizeof *names, argc, argv);
}
