/* entry.c: the exported functions, and the last error of each thread.
 *
 * Invariant: while a call of the program's is under way on a thread, the driver knows that call and its caller, and
 * nothing that the call's implementation does changes the last error but its outcome. It must not know what a call
 * does. */
#include <stdio.h>
#include <string.h>

#include "front.h"

/* A call under way; a function of the program's that runs inside of it may make another one. */
typedef struct frame {
  const char *call;
  const void *caller;
  bool per_thread;
  const struct frame *outer;
} frame;

static _Thread_local const frame *innermost;
static _Thread_local cudaError_t last_error;

bool per_thread_default(void) {
  return innermost != NULL && innermost->per_thread;
}

static void enter(frame *f) {
  f->outer = innermost;
  innermost = f;
  sim_from(f->call, f->caller);
}

static cudaError_t leave(const frame *f, cudaError_t rc, unsigned how) {
  innermost = f->outer;
  sim_from(innermost != NULL ? innermost->call : NULL, innermost != NULL ? innermost->caller : NULL);
  if ((how & KEEPS_ERROR) == 0 && rc != cudaSuccess) last_error = rc;
  return rc;
}

cudaError_t refuse(const char *what) {
  sim_add_finding(SIM_MISUSE, what);
  return cudaErrorNotSupported;
}

static cudaError_t refuse_call(const char *name) {
  char text[200];
  snprintf(text, sizeof text, "%s is not simulated", name);
  return refuse(text);
}

/* Names of parameters come from the list, so the names in here must not be among them. */
#define ENTRY(name, symbol, how, ptds, params, args)                                              \
  SIM_PUBLIC cudaError_t symbol params;                                                           \
  cudaError_t symbol params {                                                                     \
    frame entry_frame = {#name, __builtin_return_address(0), ptds, NULL};                         \
    enter(&entry_frame);                                                                          \
    return leave(&entry_frame, do_##name args, how);                                              \
  }
#define CALL(name, how, params, args) ENTRY(name, name, how, false, params, args)
#define SCALL(name, how, params, args) \
  CALL(name, how, params, args)        \
  ENTRY(name, name##_ptsz, how, true, params, args)
#define DCALL(name, how, params, args) \
  CALL(name, how, params, args)        \
  ENTRY(name, name##_ptds, how, true, params, args)
#define REFUSE(name)                                                            \
  SIM_PUBLIC cudaError_t name(void);                                            \
  cudaError_t name(void) {                                                      \
    frame entry_frame = {#name, __builtin_return_address(0), false, NULL};      \
    enter(&entry_frame);                                                        \
    return leave(&entry_frame, refuse_call(#name), 0);                          \
  }
#include "calls.def"

cudaError_t do_cudaGetLastError(void) {
  const cudaError_t e = last_error;
  last_error = cudaSuccess;
  return e;
}

cudaError_t do_cudaPeekAtLastError(void) {
  return last_error;
}

cudaError_t do_cudaRuntimeGetVersion(int *version) {
  if (version == NULL) return cudaErrorInvalidValue;
  *version = RUNTIME_VERSION;
  return cudaSuccess;
}

cudaError_t do_cudaDriverGetVersion(int *version) {
  return from(cuDriverGetVersion(version));
}

/* Asked for by a version that the driver does not have yet, a function is not found, which is no error. */
cudaError_t do_cudaGetDriverEntryPointByVersion(const char *name, void **fn, unsigned version, unsigned long long flags,
                                                cudaDriverEntryPointQueryResult *why) {
  CUdriverProcAddressQueryResult unused, *result = why != NULL ? why : &unused;
  int newest = 0;
  TRY(from(cuDriverGetVersion(&newest)));
  if (name == NULL || fn == NULL || version > INT32_MAX) return cudaErrorInvalidValue;
  if (flags == 0 && per_thread_default()) flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (version <= (unsigned)newest) return from(cuGetProcAddress_v2(name, fn, (int)version, flags, result));
  *fn = NULL;
  *result = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  return cudaSuccess;
}

cudaError_t do_cudaGetDriverEntryPoint(const char *name, void **fn, unsigned long long flags,
                                       cudaDriverEntryPointQueryResult *why) {
  return do_cudaGetDriverEntryPointByVersion(name, fn, RUNTIME_VERSION, flags, why);
}

cudaError_t do_cudaProfilerStart(void) {
  return cudaSuccess;
}

cudaError_t do_cudaProfilerStop(void) {
  return cudaSuccess;
}
