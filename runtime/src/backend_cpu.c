/* backend_cpu.c: the host as a device. There is always exactly one. */
#include "internal.h"

static int cpu_count(int32_t *out, mf_error *err) {
  (void)err;
  *out = 1;
  return MF_OK;
}

const mf__backend mf__backend_cpu = {.device_type = kDLCPU, .device_count = cpu_count};
