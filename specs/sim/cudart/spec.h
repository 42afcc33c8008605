/* spec.h: what the specs of the simulated CUDA runtime share.
 *
 * Each call is found as a program that was linked with the real runtime finds it: by its name and its version. Each
 * spec begins on device 0 and ends with both devices reset, an empty ledger and no finding that it did not account
 * for. */
#ifndef SIM_CUDART_SPEC_H
#define SIM_CUDART_SPEC_H

#define _GNU_SOURCE
#include <dlfcn.h>

#include "../common.h"
#include "runtime.h"

#define VERSION_OF(major) "libcudart.so." #major
#define VERSION(major) VERSION_OF(major)

#define CALL(name, how, params, args) static cudaError_t(*name) params;
#define SCALL(name, how, params, args) CALL(name, how, params, args) static cudaError_t(*name##_ptsz) params;
#define DCALL(name, how, params, args) CALL(name, how, params, args) static cudaError_t(*name##_ptds) params;
#define REFUSE(name) static cudaError_t (*name)(void);
#include "calls.def"
#undef CALL
#undef SCALL
#undef DCALL
#undef REFUSE
static const char *(*cudaGetErrorName)(cudaError_t e);
static const char *(*cudaGetErrorString)(cudaError_t e);
static void **(*__cudaRegisterFatBinary)(const void *image);
static void (*__cudaRegisterFatBinaryEnd)(void **handle);
static void (*__cudaUnregisterFatBinary)(void **handle);
static void (*__cudaRegisterFunction)(void **, const char *, char *, const char *, int, void *, void *, void *, void *,
                                      int *);
static void (*__cudaRegisterVar)(void **, char *, char *, const char *, int, size_t, int, int);
static unsigned (*__cudaPushCallConfiguration)(dim3 grid, dim3 block, size_t shared, cudaStream_t s);
static cudaError_t (*__cudaPopCallConfiguration)(dim3 *grid, dim3 *block, size_t *shared, void *s);

static void find_call(void *library, const char *name, void *out) {
  void *found = dlvsym(library, name, VERSION(CUDART_MAJOR));
  if (found == NULL) fail_msg("%s@%s is not there", name, VERSION(CUDART_MAJOR));
  memcpy(out, &found, sizeof found);
}

/* CUDART is where the library lies. */
static void find_calls(void) {
  void *library = dlopen(CUDART, RTLD_NOW);
  if (library == NULL) fail_msg("%s", dlerror());
#define FIND(name) find_call(library, #name, &name);
#define CALL(name, how, params, args) FIND(name)
#define SCALL(name, how, params, args) FIND(name) FIND(name##_ptsz)
#define DCALL(name, how, params, args) FIND(name) FIND(name##_ptds)
#define REFUSE(name) FIND(name)
#include "calls.def"
#undef CALL
#undef SCALL
#undef DCALL
#undef REFUSE
  FIND(cudaGetErrorName) FIND(cudaGetErrorString) FIND(__cudaRegisterFatBinary) FIND(__cudaRegisterFatBinaryEnd)
  FIND(__cudaUnregisterFatBinary) FIND(__cudaRegisterFunction) FIND(__cudaRegisterVar)
  FIND(__cudaPushCallConfiguration) FIND(__cudaPopCallConfiguration)
}

/* So that a text means the same call in both; the header of CUDA 12 has the first of these lines itself. */
#if CUDART_MAJOR == 12
#define cudaGetDeviceProperties cudaGetDeviceProperties_v2
#define cudaStreamGetCaptureInfo cudaStreamGetCaptureInfo_v3
#endif

static inline int begin(void **state) {
  (void)state;
  if (cudaMalloc == NULL) find_calls();
  OK(cudaSetDevice(0));
  sim_seed(0);
  sim_reset();
  return 0;
}

static inline int end(void **state) {
  (void)state;
  for (int i = 1; i >= 0; i--) {
    OK(cudaSetDevice(i));
    OK(cudaDeviceSynchronize());
  }
  nothing_left_or_found();
  for (int i = 0; i < 2; i++) {
    OK(cudaSetDevice(i));
    OK(cudaDeviceReset());
  }
  (void)cudaGetLastError();
  assert_int_equal(sim_ledger(), 0);
  return 0;
}

static inline char *device_memory(void) {
  void *p = NULL;
  OK(cudaMalloc(&p, NBYTES));
  return p;
}

static inline cudaStream_t stream(void) {
  cudaStream_t s = NULL;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  return s;
}

#endif
