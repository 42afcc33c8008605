/* spec.h: what the specs of the simulated CUDA driver share.
 *
 * Each spec begins with both devices' primary contexts retained and device 0's current, and ends with an empty
 * ledger and no finding that it did not account for. */
#ifndef SIM_SPEC_H
#define SIM_SPEC_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "driver.h"
#include "sim.h"

#define CALL(name, symbol, since, how, params, args) CUresult symbol params;
#define SCALL(name, symbol, since, how, params, args) CUresult symbol params; CUresult symbol##_ptsz params;
#define DCALL(name, symbol, since, how, params, args) CUresult symbol params; CUresult symbol##_ptds params;
#include "calls.def"
#undef CALL
#undef SCALL
#undef DCALL

#define OK(expression) assert_int_equal(expression, CUDA_SUCCESS)
#define FAILS(expression, status) assert_int_equal(expression, status)
#define NBYTES 4096

static CUcontext contexts[2];

static inline int begin(void **state) {
  (void)state;
  OK(cuInit(0));
  for (int i = 0; i < 2; i++) OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
  OK(cuCtxPushCurrent_v2(contexts[0]));
  sim_seed(0);
  sim_reset();
  return 0;
}

static inline void show_findings(void) {
  for (size_t i = 0; sim_finding(i) != NULL; i++) print_message("%s\n", sim_finding(i));
}

/* Ends a spec, or one round of one: nothing is left and nothing was found. */
static inline void nothing_left(void) {
  static const char *const sorts[] = {"memory", "streams", "events", "graphs", "pools", "captures", "pending"};
  OK(cuCtxSynchronize());
  if (sim_findings(SIM_ANY) + sim_findings(SIM_WARNING) > 0) show_findings();
  assert_int_equal(sim_findings(SIM_ANY), 0);
  assert_int_equal(sim_findings(SIM_WARNING), 0);
  for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++)
    if (sim_left(sorts[i]) != 0) fail_msg("%s left: %lld", sorts[i], (long long)sim_left(sorts[i]));
}

static inline int end(void **state) {
  (void)state;
  nothing_left();
  OK(cuCtxPopCurrent_v2(NULL));
  for (int i = 0; i < 2; i++) OK(cuDevicePrimaryCtxRelease_v2(i));
  assert_int_equal(sim_ledger(), 0);
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

static inline CUdeviceptr device_memory(void) {
  CUdeviceptr p = 0;
  OK(cuMemAlloc_v2(&p, NBYTES));
  return p;
}

static inline CUstream stream(void) {
  CUstream s = NULL;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  return s;
}

static inline CUevent event(void) {
  CUevent e = NULL;
  OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  return e;
}

/* Makes b wait for what a has been told so far. */
static inline void follow(CUstream b, CUstream a) {
  CUevent e = event();
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(cuEventDestroy_v2(e));
}

static inline bool all_bytes(const void *p, size_t n, int value) {
  for (size_t i = 0; i < n; i++)
    if (((const unsigned char *)p)[i] != value) return false;
  return true;
}

#define SPEC(name) cmocka_unit_test_setup_teardown(name, begin, end)
#define RUN(...)                                                                       \
  int main(void) {                                                                     \
    const struct CMUnitTest specs[] = {__VA_ARGS__};                                   \
    return cmocka_run_group_tests(specs, NULL, NULL);                                  \
  }

#endif
