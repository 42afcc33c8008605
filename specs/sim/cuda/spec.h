/* spec.h: what the specs of the simulated CUDA driver share.
 *
 * Each spec begins with both devices' primary contexts retained and device 0's current, and ends with an empty
 * ledger and no finding that it did not account for. */
#ifndef SIM_SPEC_H
#define SIM_SPEC_H

#include "../common.h"
#include "driver.h"

#define CALL(name, symbol, since, how, params, args) CUresult symbol params;
#define SCALL(name, symbol, since, how, params, args) CUresult symbol params; CUresult symbol##_ptsz params;
#define DCALL(name, symbol, since, how, params, args) CUresult symbol params; CUresult symbol##_ptds params;
#include "calls.def"
#undef CALL
#undef SCALL
#undef DCALL

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

/* Ends a spec, or one round of one. */
static inline void nothing_left(void) {
  OK(cuCtxSynchronize());
  nothing_left_or_found();
}

static inline int end(void **state) {
  (void)state;
  nothing_left();
  OK(cuCtxPopCurrent_v2(NULL));
  for (int i = 0; i < 2; i++) OK(cuDevicePrimaryCtxRelease_v2(i));
  assert_int_equal(sim_ledger(), 0);
  return 0;
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

/* Once the device is idle, memory and streams go back: two of each, or 0 and NULL. */
static inline void give_back(CUdeviceptr p, CUdeviceptr q, CUstream a, CUstream b) {
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(p));
  OK(cuMemFree_v2(q));
  OK(cuStreamDestroy_v2(a));
  if (b != NULL) OK(cuStreamDestroy_v2(b));
}

#endif
