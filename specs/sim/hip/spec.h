/* spec.h: what the specs of the simulated HIP runtime share.
 *
 * Each spec begins on device 0 and ends there, with an empty ledger and no finding that it did not account for. */
#ifndef SIM_HIP_SPEC_H
#define SIM_HIP_SPEC_H

#include "../common.h"
#include "runtime.h"

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

/* The same specs run on the runtime that forwards to CUDA: there the simulator sees CUDA's calls and objects. */
#ifdef FORWARD
enum { FORWARDED = 1 };
#define CALLED(hip, cuda) cuda
#else
enum { FORWARDED = 0 };
#define CALLED(hip, cuda) hip
#endif

/* Leaves a spec out where only the simulated runtime is as strict as that. */
#define RUNTIME_ONLY(what)                                                           \
  do {                                                                               \
    if (!FORWARDED) break;                                                           \
    print_message("skipped: left out of the runtime that forwards to CUDA, which %s\n", what); \
    skip();                                                                          \
  } while (0)

static inline int begin(void **state) {
  (void)state;
  OK(hipSetDevice(0));
  hipGetLastError();
  sim_seed(0);
  sim_reset();
  return 0;
}

static inline int end(void **state) {
  int device = -1;
  (void)state;
  OK(hipGetDevice(&device));
  assert_int_equal(device, 0);
  OK(hipDeviceSynchronize());
  nothing_left_or_found();
  if (!FORWARDED) assert_int_equal(sim_ledger(), 0);
  return 0;
}

/* A mistake that only the simulated runtime itself sees. */
static inline void found_by_the_runtime(sim_kind kind, uint64_t n) {
  found(kind, FORWARDED ? 0 : n);
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

#endif
