/* spec.h: what the specs of the simulated HIP runtime share.
 *
 * Each spec begins on device 0 and ends there, with an empty ledger and no finding that it did not account for. */
#ifndef SIM_HIP_SPEC_H
#define SIM_HIP_SPEC_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime.h"
#include "sim.h"

#define CALL(name, version, how, params, args) hipError_t name params;
#define SCALL(name, version, twin, how, params, args) hipError_t name params; hipError_t name##_spt params;
#define REFUSE(name, version) hipError_t name(void);
#include "calls.def"
#undef CALL
#undef SCALL
#undef REFUSE
const char *hipGetErrorName(hipError_t e);
const char *hipGetErrorString(hipError_t e);
int hipGetStreamDeviceId(hipStream_t s);

#define OK(expression) assert_int_equal(expression, hipSuccess)
#define FAILS(expression, status) assert_int_equal(expression, status)
#define NBYTES 4096

static inline int begin(void **state) {
  (void)state;
  OK(hipSetDevice(0));
  hipGetLastError();
  sim_seed(0);
  sim_reset();
  return 0;
}

static inline void show_findings(void) {
  for (size_t i = 0; sim_finding(i) != NULL; i++) print_message("%s\n", sim_finding(i));
}

static inline int end(void **state) {
  int device = -1;
  (void)state;
  OK(hipGetDevice(&device));
  assert_int_equal(device, 0);
  OK(hipDeviceSynchronize());
  if (sim_findings(SIM_ANY) + sim_findings(SIM_WARNING) > 0) show_findings();
  assert_int_equal(sim_findings(SIM_ANY), 0);
  assert_int_equal(sim_findings(SIM_WARNING), 0);
  if (sim_ledger() != 0) show_findings();
  assert_int_equal(sim_findings(SIM_LEAK), 0);
  assert_int_equal(sim_left("pending"), 0);
  return 0;
}

/* The spec made a mistake on purpose: exactly n findings of this kind, and no others, which are then forgotten. */
static inline void found(sim_kind kind, uint64_t n) {
  const uint64_t others = sim_findings(SIM_ANY) - (kind == SIM_WARNING ? 0 : sim_findings(kind));
  if (sim_findings(kind) != n || others != 0) show_findings();
  assert_int_equal(sim_findings(kind), n);
  assert_int_equal(others, 0);
  sim_reset();
}

static inline bool told(const char *text) {
  for (size_t i = 0; sim_finding(i) != NULL; i++)
    if (strstr(sim_finding(i), text) != NULL) return true;
  return false;
}

static inline void *device_memory(void) {
  void *p = NULL;
  OK(hipMalloc(&p, NBYTES));
  return p;
}

static inline hipStream_t stream(void) {
  hipStream_t s = NULL;
  OK(hipStreamCreateWithFlags(&s, hipStreamNonBlocking));
  return s;
}

static inline hipEvent_t event(void) {
  hipEvent_t e = NULL;
  OK(hipEventCreateWithFlags(&e, hipEventDisableTiming));
  return e;
}

/* Makes b wait for what a has been told so far. */
static inline void follow(hipStream_t b, hipStream_t a) {
  hipEvent_t e = event();
  OK(hipEventRecord(e, a));
  OK(hipStreamWaitEvent(b, e, 0));
  OK(hipEventDestroy(e));
}

static inline bool all_bytes(const void *p, size_t n, int value) {
  for (size_t i = 0; i < n; i++)
    if (((const unsigned char *)p)[i] != value) return false;
  return true;
}

#define SPEC(name) cmocka_unit_test_setup_teardown(name, begin, end)
#define RUN(...)                                      \
  int main(void) {                                    \
    const struct CMUnitTest specs[] = {__VA_ARGS__};  \
    return cmocka_run_group_tests(specs, NULL, NULL); \
  }

#endif
