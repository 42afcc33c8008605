/* cuda_context.c: opens the CUDA driver and enters the contexts that its calls are made in. It must not know what the
 * calls are made for.
 *
 * Invariant: the calling thread's current context after leave is the one before enter, whatever failed between. The
 * primary context of each device is retained once, and everything of ours lives in it. */
#include "driver/cuda.h"

#include <string.h>

mf__cuda mf__cu;

_Thread_local int32_t mf__cuda_ordinal MF__TLS;

mf__cuda_device mf__cuda_devices[MF__MAX_ORDINALS];
/* Guards the contexts, which are retained once for each device. */
static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;

static const mf__symbol symbols[] = {
#define SYMBOL(name, version, params) {#name, version, false, offsetof(mf__cuda, name)},
    MF__CUDA_REQUIRED(SYMBOL)
#undef SYMBOL
#define SYMBOL(name, version, params) {#name, version, true, offsetof(mf__cuda, name)},
    MF__CUDA_OPTIONAL(SYMBOL)
#undef SYMBOL
};

int mf__cuda_answer(CUresult code, const char *call, mf_error *err) {
  const char *text = NULL;
  if (code == CUDA_SUCCESS) return MF_OK;
  (void)mf__cu.cuGetErrorString(code, &text);
  if (text == NULL) text = "unknown to this driver";
  return mf__fail_driver(err, mf__driver_status(code), code, call, text);
}

/* Both signatures of cuGetProcAddress, which got another parameter in CUDA 12.0 (CUDA Driver API, "Driver Entry Point
 * Access"). */
typedef struct getter {
  CUresult (*old)(const char *name, void **out, int version, uint64_t flags);
  CUresult (*current)(const char *name, void **out, int version, uint64_t flags, int *why);
} getter;

static mf__function look_up(void *from, const char *name, int32_t version) {
  const getter *get = from;
  const uint64_t flags = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
  void *found = NULL;
  int why = 0;
  mf__function function = NULL;
  if (get->current != NULL) (void)get->current(name, &found, version, flags, &why);
  else (void)get->old(name, &found, version, flags);
  memcpy(&function, &found, sizeof function);
  return function;
}

static int refuse_old(const mf__driver *driver, mf_error *err) {
  CUresult (*ask)(int *version) = NULL;
  int version = 0;
  const mf__function found = mf__driver_symbol(driver->library, "cuDriverGetVersion", 0);
  memcpy(&ask, &found, sizeof ask);
  if (ask == NULL || ask(&version) != CUDA_SUCCESS)
    return mf__fail(err, MF_EDEVICE, "%s has no cuGetProcAddress: a driver for CUDA 11.3 or newer is needed",
                    driver->file);
  return mf__fail(err, MF_EDEVICE, "the CUDA driver is too old: %s is for CUDA %d.%d; 11.3 or newer is needed",
                  driver->file, version / 1000, version % 1000 / 10);
}

static int ask_pitches(const mf__driver *driver, mf_error *err) {
  int rc = MF_OK;
  for (int32_t i = 0; rc == MF_OK && i < driver->count; i++) {
    CUdevice device = -1;
    int pitch = INT32_MAX;
    rc = MF__ASK(cuDeviceGet, (&device, i));
    if (rc != MF_OK) return rc;
    rc = MF__ASK(cuDeviceGetAttribute, (&pitch, CU_DEVICE_ATTRIBUTE_MAX_PITCH, device));
    mf__pitch_limit(pitch);
  }
  return rc;
}

static int start(mf__driver *driver, mf_error *err) {
  getter get;
  const mf__function old = mf__driver_symbol(driver->library, "cuGetProcAddress", 0);
  const mf__function current = mf__driver_symbol(driver->library, "cuGetProcAddress_v2", 0);
  const mf__symbols wanted = {symbols, sizeof symbols / sizeof *symbols, look_up, &get};
  memcpy(&get.old, &old, sizeof get.old);
  memcpy(&get.current, &current, sizeof get.current);
  if (old == NULL && current == NULL) return refuse_old(driver, err);
  int rc = mf__driver_fill(driver, &wanted, &mf__cu, err);
  if (rc == MF_OK) rc = MF__ASK(cuInit, (0));
  if (rc == MF_OK) rc = MF__ASK(cuDeviceGetCount, (&driver->count));
  if (rc == MF_OK && driver->count <= 0)
    return mf__fail(err, MF_EDEVICE, "the CUDA driver %s finds no device", driver->file);
  if (rc == MF_OK) rc = ask_pitches(driver, err);
  if (rc != MF_OK) err->status = MF_EDEVICE;
  return rc == MF_OK ? MF_OK : MF_EDEVICE;
}

static const char *const files[] = {MF__FILE("libcuda.so.1", "nvcuda.dll"), NULL};
mf__driver mf__cuda_driver = MF__DRIVER("CUDA", "cuda", "MOONFERRY_CUDA_LIBRARY", files, start);

int mf__cuda_count(int32_t *out, mf_error *err) {
  return mf__driver_count(&mf__cuda_driver, out, err);
}

bool mf__cuda_usable(void) {
  return mf__driver_usable(&mf__cuda_driver);
}

mf__cuda_device *mf__cuda_here(void) {
  return &mf__cuda_devices[mf__cuda_ordinal];
}

int mf__cuda_primary(int32_t ordinal, CUcontext *out, mf_error *err) {
  int rc = MF_OK;
  mf__cuda_device *d = &mf__cuda_devices[ordinal];
  *out = atomic_load_explicit(&d->context, memory_order_acquire);
  if (*out != NULL) return MF_OK;
  pthread_mutex_lock(&devices_lock);
  if (atomic_load_explicit(&d->context, memory_order_relaxed) == NULL) {
    CUcontext context = NULL;
    rc = MF__ASK(cuDeviceGet, (&d->device, ordinal));
    if (rc == MF_OK) rc = MF__ASK(cuDevicePrimaryCtxRetain, (&context, d->device));
    atomic_store_explicit(&d->context, context, memory_order_release);
  }
  *out = atomic_load_explicit(&d->context, memory_order_relaxed);
  pthread_mutex_unlock(&devices_lock);
  return rc;
}

void mf__cuda_context_forget(mf__cuda_device *d) {
  pthread_mutex_lock(&devices_lock);
  atomic_store(&d->context, NULL);
  pthread_mutex_unlock(&devices_lock);
}

/* A call that fails for what went wrong earlier may succeed when it is made again. */
enum { TRIES = 3 };

static bool is_current(CUcontext wanted) {
  CUcontext current = NULL;
  bool known = false;
  for (int i = 0; i < TRIES && !known; i++) known = mf__cu.cuCtxGetCurrent(&current) == CUDA_SUCCESS;
  return known && current == wanted;
}

/* Back to its place above those that the caller has below it: to set it would replace the one there. */
static bool push_again(CUcontext wanted) {
  for (int i = 0; i < TRIES; i++)
    if (mf__cu.cuCtxPushCurrent(wanted) == CUDA_SUCCESS || is_current(wanted)) return true;
  return false;
}

/* Restores the context after a push or a pop that failed: these may return errors of previous, asynchronous launches,
 * and have changed the context all the same (CUDA Driver API, "Context Management", notes of cuCtxPushCurrent and
 * cuCtxPopCurrent). So may the question which context is current: where it has no answer, the context that is popped
 * tells. */
static void restore(CUcontext wanted) {
  CUcontext popped = NULL;
  if (is_current(wanted)) return;
  for (int i = 0; wanted != NULL && i < TRIES; i++) {
    popped = NULL;
    (void)mf__cu.cuCtxPopCurrent(&popped);
    if (popped == wanted ? push_again(wanted) : is_current(wanted)) return;
    if (popped != NULL) break;
  }
  (void)mf__cu.cuCtxSetCurrent(wanted); /* NULL pops, if there is anything */
}

/* Whoever resets a device destroys the context that the whole process shares, and all that is in it. */
static int push(CUcontext context, CUcontext current, mf_error *err) {
  const CUresult code = mf__cu.cuCtxPushCurrent(context);
  if (code == CUDA_SUCCESS) return MF_OK;
  restore(current);
  if (code != CUDA_ERROR_CONTEXT_IS_DESTROYED) return mf__cuda_answer(code, "cuCtxPushCurrent", err);
  return mf__fail_driver(err, mf__driver_status(code), code, "cuCtxPushCurrent",
                         "another library has reset the device, which is lost to this process");
}

int mf__cuda_make_current(int32_t ordinal, mf__entered *before, mf_error *err) {
  CUcontext context = NULL, current = NULL;
  int rc = mf__cuda_primary(ordinal, &context, err);
  if (rc == MF_OK) rc = MF__ASK(cuCtxGetCurrent, (&current));
  if (rc == MF_OK && current != context) rc = push(context, current, err);
  *before = (mf__entered){current, mf__cuda_ordinal, current != context};
  if (rc == MF_OK) mf__cuda_ordinal = ordinal;
  return rc;
}

void mf__cuda_make_former(const mf__entered *before) {
  CUcontext popped;
  mf__cuda_ordinal = before->ordinal;
  if (!before->changed || !mf__cuda_usable()) return;
  if (mf__cu.cuCtxPopCurrent(&popped) != CUDA_SUCCESS) restore(before->context);
}

int mf__cuda_enter(int32_t ordinal, mf__entered *before, mf_error *err) {
  int rc = mf__driver_enter(&mf__cuda_driver, ordinal, err);
  if (rc != MF_OK) return rc;
  rc = mf__cuda_make_current(ordinal, before, err);
  if (rc != MF_OK) mf__driver_leave(&mf__cuda_driver, ordinal);
  return rc;
}

void mf__cuda_leave(const mf__entered *before) {
  const int32_t left = mf__cuda_ordinal;
  mf__cuda_make_former(before);
  mf__driver_leave(&mf__cuda_driver, left);
}

/* Finds the ordinal of the calling thread's context; -1 if it has none. */
static int current_ordinal(int32_t *out, mf_error *err) {
  CUcontext context = NULL;
  CUdevice device = -1, each;
  *out = -1;
  int rc = MF__ASK(cuCtxGetCurrent, (&context));
  if (rc != MF_OK || context == NULL) return rc;
  for (int32_t i = 0; i < mf__cuda_driver.count; i++) { /* compared alone: who enters asks mf__cuda_primary */
    if (atomic_load_explicit(&mf__cuda_devices[i].context, memory_order_relaxed) != context) continue;
    *out = i;
    return MF_OK;
  }
  rc = MF__ASK(cuCtxGetDevice, (&device));
  for (int32_t i = 0; rc == MF_OK && i < mf__cuda_driver.count && *out < 0; i++)
    if (mf__cu.cuDeviceGet(&each, i) == CUDA_SUCCESS && each == device) *out = i;
  return rc;
}

bool mf__cuda_is_active(int32_t ordinal) {
  CUdevice device = ordinal;
  unsigned flags;
  int active = 0;
  return mf__cu.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS &&
         mf__cu.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

/* Prefers a device that is in use, because entering another one makes its primary context, which takes hundreds of
 * megabytes of the device and fails where that is full or belongs to another process alone. */
int mf__cuda_current(int32_t *ordinal, mf_error *err) {
  int rc = current_ordinal(ordinal, err);
  for (int32_t i = 0; rc == MF_OK && *ordinal < 0 && i < mf__cuda_driver.count; i++)
    if (mf__gate_used(&mf__cuda_driver.gates[i])) *ordinal = i;
  for (int32_t i = 0; rc == MF_OK && *ordinal < 0 && i < mf__cuda_driver.count; i++)
    if (mf__cuda_is_active(i)) *ordinal = i;
  if (*ordinal < 0) *ordinal = 0;
  return rc;
}
