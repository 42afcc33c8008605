/* missing_spec.c: each function of the simulated HIP runtime can be missing, for dlsym too. */
#include "../specs/missing.h"

#define CALL(name, ...) #name,
#define SCALL(name, ...) #name, #name "_spt",
#define REFUSE(name, version) #name,
static const char *const names[] = {
#include "calls.def"
    "hipGetErrorName", "hipGetErrorString", "hipGetStreamDeviceId", "__hipRegisterFatBinary",
};

int main(int argc, char **argv) {
  return each_can_be_missing(names, sizeof names / sizeof *names, argc, argv);
}
