/* load.c: the CUDA driver, and what every HIP call passes on its way in and out.
 *
 * Stands in for the engine under hip/entry.c: nothing is counted, nothing is made to fail. Invariant: a HIP call leaves
 * the CUDA context of the calling thread as it was. It must not know what a call does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "forward.h"

driver cu;
sim_config sim_conf;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static hipError_t loaded;
static CUcontext contexts[SIM_MAX_DEVICES];
static _Thread_local int current, depth;

static void find(void *library, const char *symbol, void *out) {
  void *at = dlsym(library, symbol);
  memcpy(out, &at, sizeof at);
}

#define CALL(name, symbol, since, how, params, args) find(library, #symbol, &cu.symbol);
#define SCALL CALL
#define DCALL(name, symbol, since, how, params, args) \
  find(library, #symbol, &cu.symbol);                 \
  find(library, #symbol "_ptds", &cu.symbol##_ptds);
static void find_all(void *library) {
#include "cuda/calls.def"
}

static void load(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  sim_conf.missing = getenv("SIM_MISSING");
  loaded = hipErrorNoDevice;
  if (library == NULL) return;
  find_all(library);
  loaded = DO(cuInit, 0);
}

hipError_t forward_status(CUresult rc) {
  if (rc == CUDA_ERROR_NOT_PERMITTED) return hipErrorIllegalState;
  return error_known((hipError_t)rc) ? (hipError_t)rc : hipErrorUnknown;
}

CUstream forward_stream(hipStream_t s) {
  if (s == hipStreamPerThread || (s == NULL && sim_default_is_per_thread())) return CU_STREAM_PER_THREAD;
  return s == NULL || s == hipStreamLegacy ? CU_STREAM_LEGACY : (CUstream)s;
}

int forward_device(void) {
  return current;
}

hipError_t forward_context(int device, CUcontext *c) {
  int count = 0;
  pthread_once(&once, load);
  TRY(loaded);
  TRY(DO(cuDeviceGetCount, &count));
  if (device < 0 || device >= count || device >= SIM_MAX_DEVICES) return hipErrorInvalidDevice;
  pthread_mutex_lock(&lock);
  const hipError_t rc = contexts[device] != NULL ? hipSuccess : DO(cuDevicePrimaryCtxRetain, &contexts[device], device);
  *c = contexts[device];
  pthread_mutex_unlock(&lock);
  return rc;
}

void forward_forget(int device) {
  pthread_mutex_lock(&lock);
  contexts[device] = NULL;
  pthread_mutex_unlock(&lock);
}

hipError_t device_enter(void) {
  CUcontext c;
  TRY(forward_context(current, &c));
  TRY(DO(cuCtxPushCurrent_v2, c));
  depth++;
  return hipSuccess;
}

hipError_t do_hipGetDeviceCount(int *count) {
  if (count == NULL) return hipErrorInvalidValue;
  *count = 0;
  pthread_once(&once, load);
  TRY(loaded);
  return DO(cuDeviceGetCount, count);
}

hipError_t do_hipSetDevice(int device) {
  CUcontext c;
  TRY(forward_context(device, &c));
  current = device;
  return hipSuccess;
}

void sim_set_numbers(int not_permitted, int forked) {
  (void)not_permitted;
  (void)forked;
}

bool sim_enter(sim_call *c, sim_counter *counter, void *caller, unsigned how) {
  (void)counter;
  (void)caller;
  (void)how;
  c->raw = 0;
  return false;
}

int sim_leave(sim_call *c, int raw) {
  CUcontext popped;
  if (depth > 0) {
    depth--;
    DO(cuCtxPopCurrent_v2, &popped);
  }
  return c->raw != 0 ? c->raw : raw;
}

void sim_log_detail(const char *format, ...) {
  (void)format;
}

bool sim_named(const char *list, const char *name) {
  const size_t n = strlen(name);
  for (const char *p = list; p != NULL && (p = strstr(p, name)) != NULL; p += n)
    if ((p == list || p[-1] == ',') && (p[n] == ',' || p[n] == '\0')) return true;
  return false;
}
