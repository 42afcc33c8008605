/* cuda.c: mf__backend on the CUDA driver's interface: opening it, contexts, memory, streams and events. Work
 * that is queued is in cuda_work.c. It must not know what a tensor is, nor when work must be ordered.
 *
 * Invariant: the calling thread's current context after leave is the one before enter, whatever failed between. The
 * primary context of each device is retained once, and everything of ours lives in it. */
#include "driver/cuda.h"

#include <string.h>

mf__cuda mf__cu;

/* The ordinal that this thread entered; what the driver calls the current device. */
static _Thread_local int32_t here MF__TLS;

static mf__cuda_device devices[MF__MAX_ORDINALS];
/* Of what is made once for each device. */
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

/* cuGetProcAddress, which has two signatures. */
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
  if (rc != MF_OK) err->status = MF_EDEVICE;
  return rc == MF_OK ? MF_OK : MF_EDEVICE;
}

static const char *const files[] = {"libcuda.so.1", NULL};
static mf__driver driver = MF__DRIVER("CUDA", "cuda", "MOONFERRY_CUDA_LIBRARY", files, start);

static int device_count(int32_t *out, mf_error *err) {
  return mf__driver_count(&driver, out, err);
}

static bool usable(void) {
  return mf__driver_usable(&driver);
}

mf__cuda_device *mf__cuda_here(void) {
  return &devices[here];
}

static int retain(int32_t ordinal, mf__cuda_device *d, mf_error *err) {
  CUcontext context = NULL;
  int rc = MF__ASK(cuDeviceGet, (&d->device, ordinal));
  if (rc == MF_OK) rc = MF__ASK(cuDevicePrimaryCtxRetain, (&context, d->device));
  atomic_store_explicit(&d->context, context, memory_order_release);
  return rc;
}

int mf__cuda_primary(int32_t ordinal, CUcontext *out, mf_error *err) {
  int rc = MF_OK;
  mf__cuda_device *d = &devices[ordinal];
  *out = atomic_load_explicit(&d->context, memory_order_acquire);
  if (*out != NULL) return MF_OK;
  pthread_mutex_lock(&devices_lock);
  if (atomic_load_explicit(&d->context, memory_order_relaxed) == NULL) rc = retain(ordinal, d, err);
  *out = atomic_load_explicit(&d->context, memory_order_relaxed);
  pthread_mutex_unlock(&devices_lock);
  return rc;
}

/* After a push or a pop that failed: a driver may report there what went wrong earlier, having done what it was
 * told. */
static void restore(CUcontext wanted) {
  CUcontext current = NULL;
  if (mf__cu.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == wanted) return;
  (void)mf__cu.cuCtxPopCurrent(&current);
  if (mf__cu.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == wanted) return;
  (void)mf__cu.cuCtxSetCurrent(wanted);
}

static int push(CUcontext context, CUcontext current, mf_error *err) {
  const int rc = MF__ASK(cuCtxPushCurrent, (context));
  if (rc != MF_OK) restore(current);
  return rc;
}

static int make_current(int32_t ordinal, mf__entered *before, mf_error *err) {
  CUcontext context = NULL, current = NULL;
  int rc = mf__cuda_primary(ordinal, &context, err);
  if (rc == MF_OK) rc = MF__ASK(cuCtxGetCurrent, (&current));
  if (rc == MF_OK && current != context) rc = push(context, current, err);
  *before = (mf__entered){current, here, current != context};
  if (rc == MF_OK) here = ordinal;
  return rc;
}

static void make_former(const mf__entered *before) {
  CUcontext popped;
  here = before->ordinal;
  if (!before->changed || !usable()) return;
  if (mf__cu.cuCtxPopCurrent(&popped) != CUDA_SUCCESS) restore(before->context);
}

static int enter(int32_t ordinal, mf__entered *before, mf_error *err) {
  int rc = mf__driver_enter(&driver, ordinal, err);
  if (rc != MF_OK) return rc;
  rc = make_current(ordinal, before, err);
  if (rc != MF_OK) mf__driver_leave(&driver, ordinal);
  return rc;
}

static void leave(const mf__entered *before) {
  const int32_t left = here;
  make_former(before);
  mf__driver_leave(&driver, left);
}

/* The ordinal of the context that the calling thread has; -1 if it has none. */
static int current_ordinal(int32_t *out, mf_error *err) {
  CUcontext context = NULL;
  CUdevice device = -1, each;
  *out = -1;
  int rc = MF__ASK(cuCtxGetCurrent, (&context));
  if (rc != MF_OK || context == NULL) return rc;
  for (int32_t i = 0; i < driver.count; i++) {
    if (atomic_load_explicit(&devices[i].context, memory_order_acquire) != context) continue;
    *out = i;
    return MF_OK;
  }
  rc = MF__ASK(cuCtxGetDevice, (&device));
  for (int32_t i = 0; rc == MF_OK && i < driver.count && *out < 0; i++)
    if (mf__cu.cuDeviceGet(&each, i) == CUDA_SUCCESS && each == device) *out = i;
  return rc;
}

static bool is_active(int32_t ordinal) {
  CUdevice device = ordinal;
  unsigned flags;
  int active = 0;
  return mf__cu.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS &&
         mf__cu.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

/* To enter a device makes its primary context, which takes hundreds of megabytes of it and fails where it is full or
 * another process's alone. */
static int device_current(int32_t *ordinal, mf_error *err) {
  int rc = current_ordinal(ordinal, err);
  for (int32_t i = 0; rc == MF_OK && *ordinal < 0 && i < driver.count; i++)
    if (mf__device_used(&mf__backend_cuda, i)) *ordinal = i;
  for (int32_t i = 0; rc == MF_OK && *ordinal < 0 && i < driver.count; i++)
    if (is_active(i)) *ordinal = i;
  if (*ordinal < 0) *ordinal = 0;
  return rc;
}

/* Memory. */

/* CUDA Programming Guide, "Coherency and Concurrency" of unified memory: where the attribute is 0 the host may not
 * touch managed memory while any kernel runs. One device without it decides, because all devices can use the memory. */
static int ask_sharing(bool *out, mf_error *err) {
  *out = true;
  for (int32_t i = 0; i < driver.count; i++) {
    CUdevice device = i;
    int concurrent = 0;
    int rc = MF__ASK(cuDeviceGet, (&device, i));
    if (rc != MF_OK) return rc;
    rc = MF__ASK(cuDeviceGetAttribute, (&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device));
    if (rc != MF_OK) return rc;
    if (!concurrent) *out = false;
  }
  return MF_OK;
}

static int managed_is_shared(bool *out, mf_error *err) {
  enum { UNKNOWN, EXCLUSIVE, SHARED };
  static _Atomic int32_t known;
  const int32_t answer = atomic_load_explicit(&known, memory_order_relaxed);
  *out = answer == SHARED;
  if (answer != UNKNOWN) return MF_OK;
  const int rc = ask_sharing(out, err);
  if (rc == MF_OK) atomic_store_explicit(&known, *out ? SHARED : EXCLUSIVE, memory_order_relaxed);
  return rc;
}

static bool has_pool_calls(void) {
  return mf__cu.cuMemPoolCreate != NULL && mf__cu.cuMemPoolDestroy != NULL && mf__cu.cuMemPoolSetAttribute != NULL &&
         mf__cu.cuMemPoolTrimTo != NULL && mf__cu.cuMemAllocFromPoolAsync != NULL && mf__cu.cuMemFreeAsync != NULL;
}

/* A pool of our own, so that no other library's settings, nor its trimming, touch our memory. */
static int create_pool(int32_t ordinal, void **out, mf_error *err) {
  const CUdevice device = devices[ordinal].device;
  const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
  CUmemoryPool pool = NULL;
  uint64_t keep_all = UINT64_MAX;
  int supported = 0;
  *out = NULL;
  if (!has_pool_calls()) return MF_OK;
  int rc = MF__ASK(cuDeviceGetAttribute, (&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device));
  if (!supported) return rc;
  rc = MF__ASK(cuMemPoolCreate, (&pool, &props));
  if (rc != MF_OK) return rc;
  rc = MF__ASK(cuMemPoolSetAttribute, (pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep_all));
  if (rc != MF_OK) (void)mf__cu.cuMemPoolDestroy(pool);
  if (rc == MF_OK) *out = pool;
  return rc;
}

static int alloc_device(size_t nbytes, CUstream stream, CUdeviceptr *out, mf_error *err) {
  void *pool;
  const int rc = mf__driver_pool(&mf__cuda_here()->pooling, here, create_pool, &pool, err);
  if (rc != MF_OK) return rc;
  if (pool == NULL) return MF__ASK(cuMemAlloc, (out, nbytes));
  return MF__ASK(cuMemAllocFromPoolAsync, (out, nbytes, pool, stream));
}

static int memory_alloc(mf__space space, int64_t nbytes, mf_stream stream, void **out, mf_error *err) {
  const unsigned flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
  CUdeviceptr ptr = 0;
  int rc;
  if (space == MF__PINNED) return MF__ASK(cuMemHostAlloc, (out, (size_t)nbytes, flags));
  if (space == MF__MANAGED)
    rc = MF__ASK(cuMemAllocManaged, (&ptr, (size_t)nbytes, CU_MEM_ATTACH_GLOBAL));
  else
    rc = alloc_device((size_t)nbytes, mf__cuda_stream(stream), &ptr, err);
  *out = (void *)(uintptr_t)ptr;
  return rc;
}

static int memory_free(mf__space space, void *ptr, mf_stream stream, mf_error *err) {
  const CUdeviceptr device_ptr = mf__cuda_ptr(ptr);
  const CUstream s = mf__cuda_stream(stream);
  int rc = MF_OK;
  if (space == MF__PINNED) return MF__ASK(cuMemFreeHost, (ptr));
  if (space == MF__DEVICE && mf__driver_pool_made(&mf__cuda_here()->pooling) != NULL)
    return MF__ASK(cuMemFreeAsync, (device_ptr, s));
  if (space == MF__DEVICE) rc = MF__ASK(cuStreamSynchronize, (s));
  if (rc == MF_OK) return MF__ASK(cuMemFree, (device_ptr));
  if (rc != MF_ECAPTURE) (void)mf__cu.cuMemFree(device_ptr);
  return rc;
}

static int memory_find(const void *ptr, mf__space *space, int32_t *ordinal, mf_error *err) {
  enum { NASKED = 3 };
  CUpointer_attribute which[NASKED] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  unsigned type = 0, managed = 0;
  int device = -1;
  void *out[NASKED] = {&type, &managed, &device};
  const int rc = MF__ASK(cuPointerGetAttributes, (NASKED, which, out, mf__cuda_ptr(ptr)));
  if (rc != MF_OK) return rc;
  if ((type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE) || device < 0)
    return mf__fail(err, MF_EINVAL, "data is %p, which the CUDA driver does not know: neither a device's memory nor "
                    "pinned or managed host memory", ptr);
  *space = managed != 0 ? MF__MANAGED : type == CU_MEMORYTYPE_HOST ? MF__PINNED : MF__DEVICE;
  *ordinal = device;
  return MF_OK;
}

static int memory_trim(mf_error *err) {
  void *pool = mf__driver_pool_made(&mf__cuda_here()->pooling);
  return pool != NULL ? MF__ASK(cuMemPoolTrimTo, (pool, 0)) : MF_OK;
}

/* The device's context is current. */
static void give_back_all(mf__cuda_device *d) {
  pthread_mutex_lock(&devices_lock);
  mf__cuda_kernels_forget(d);
  void *pool = mf__driver_pool_forget(&d->pooling);
  if (pool != NULL) (void)mf__cu.cuMemPoolDestroy(pool);
  atomic_store(&d->context, NULL);
  pthread_mutex_unlock(&devices_lock);
}

/* In relaxed mode, because another library may capture on this device meanwhile. */
static void device_forget(int32_t ordinal) {
  mf__entered before;
  mf__cuda_device *d = &devices[ordinal];
  if (!usable()) return;
  if (atomic_load(&d->context) != NULL) {
    if (make_current(ordinal, &before, NULL) != MF_OK) return;
    const bool relaxed = mf__cuda_capture_relax(true, NULL) == MF_OK;
    if (relaxed) give_back_all(d);
    if (relaxed) (void)mf__cuda_capture_relax(false, NULL);
    make_former(&before);
    if (!relaxed) return;
    (void)mf__cu.cuDevicePrimaryCtxRelease(d->device);
  }
  mf__driver_forget(&driver, ordinal);
}

/* Streams and events. */

static int stream_create(mf_stream *out, mf_error *err) {
  CUstream stream = NULL;
  const int rc = MF__ASK(cuStreamCreate, (&stream, CU_STREAM_NON_BLOCKING));
  *out = rc == MF_OK ? (mf_stream)(intptr_t)stream : 0;
  return rc;
}

static int stream_destroy(mf_stream stream, mf_error *err) {
  return MF__ASK(cuStreamDestroy, (mf__cuda_stream(stream)));
}

/* The ordinal whose primary context this is, -1 if it is none's. A context that is not active is not made so. */
static int32_t find_primary(CUcontext context) {
  CUcontext primary = NULL;
  for (int32_t i = 0; i < driver.count; i++)
    if (atomic_load_explicit(&devices[i].context, memory_order_acquire) == context) return i;
  for (int32_t i = 0; i < driver.count; i++) {
    if (is_active(i) && mf__cuda_primary(i, &primary, NULL) == MF_OK && primary == context) return i;
  }
  return -1;
}

static int stream_device(mf_stream stream, int32_t *ordinal, mf_error *err) {
  CUcontext context = NULL;
  *ordinal = here;
  if (stream == MF_STREAM_DEFAULT || stream == MF_STREAM_PER_THREAD) return MF_OK;
  int rc = mf__driver_handle_check(stream, err);
  if (rc != MF_OK) return rc;
  const CUresult code = mf__cu.cuStreamGetCtx(mf__cuda_stream(stream), &context);
  rc = mf__cuda_answer(code, "cuStreamGetCtx", err);
  if (rc != MF_OK) return mf__driver_dead_stream(stream, code, rc, err);
  *ordinal = find_primary(context);
  if (*ordinal >= 0) return MF_OK;
  return mf__fail(err, MF_EINVAL, "stream is %#llx, of a context that is not a device's primary one; streams of the "
                  "primary context, which the CUDA runtime uses, expected", (unsigned long long)stream);
}

static uint64_t stream_name(mf_stream stream) {
  unsigned long long id = 0;
  if (mf__cu.cuStreamGetId == NULL || mf__cu.cuStreamGetId(mf__cuda_stream(stream), &id) != CUDA_SUCCESS) return 0;
  return id;
}

static int stream_capture(mf_stream stream, uint64_t *id, mf_error *err) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUstream s = mf__cuda_stream(stream);
  *id = 0;
  const bool has_id = mf__cu.cuStreamGetCaptureInfo != NULL;
  const CUresult code = has_id ? mf__cu.cuStreamGetCaptureInfo(s, &status, id, NULL, NULL, NULL)
                               : mf__cu.cuStreamIsCapturing(s, &status);
  const int rc = mf__cuda_answer(code, has_id ? "cuStreamGetCaptureInfo" : "cuStreamIsCapturing", err);
  if (rc != MF_OK || status == CU_STREAM_CAPTURE_STATUS_NONE) *id = 0;
  if (rc != MF_OK) return mf__driver_implicit(rc, code, err);
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return rc;
  return mf__driver_captured(stream, status == CU_STREAM_CAPTURE_STATUS_INVALIDATED, id, err);
}

static int stream_synchronize(mf_stream stream, mf_error *err) {
  return MF__ASK(cuStreamSynchronize, (mf__cuda_stream(stream)));
}

static int stream_query(mf_stream stream, bool *done, mf_error *err) {
  const CUresult code = mf__cu.cuStreamQuery(mf__cuda_stream(stream));
  *done = code == CUDA_SUCCESS;
  return code == CUDA_ERROR_NOT_READY ? MF_OK : mf__cuda_answer(code, "cuStreamQuery", err);
}

static int device_synchronize(mf_error *err) {
  return MF__ASK(cuCtxSynchronize, ());
}

static int event_create(void **out, mf_error *err) {
  CUevent event = NULL;
  const int rc = MF__ASK(cuEventCreate, (&event, CU_EVENT_DISABLE_TIMING));
  *out = rc == MF_OK ? event : NULL;
  return rc;
}

static int event_destroy(void *event, mf_error *err) {
  return MF__ASK(cuEventDestroy, (event));
}

static int event_record(void *event, mf_stream stream, mf_error *err) {
  return MF__ASK(cuEventRecord, (event, mf__cuda_stream(stream)));
}

static int event_wait(void *event, mf_stream stream, mf_error *err) {
  return MF__ASK(cuStreamWaitEvent, (mf__cuda_stream(stream), event, 0));
}

static int event_synchronize(void *event, mf_error *err) {
  return MF__ASK(cuEventSynchronize, (event));
}

static int event_query(void *event, bool *done, mf_error *err) {
  const CUresult code = mf__cu.cuEventQuery(event);
  *done = code == CUDA_SUCCESS;
  return code == CUDA_ERROR_NOT_READY ? MF_OK : mf__cuda_answer(code, "cuEventQuery", err);
}

const mf__backend mf__backend_cuda = {
    .name = "cuda",
    .index = MF__INDEX_cuda,
    .driver = &driver,
    .types = {kDLCUDA, kDLCUDAHost, kDLCUDAManaged},
    .device_count = device_count,
    .usable = usable,
    .device_current = device_current,
    .enter = enter,
    .leave = leave,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .memory_find = memory_find,
    .managed_is_shared = managed_is_shared,
    .memory_trim = memory_trim,
    .device_forget = device_forget,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_name = stream_name,
    .stream_device = stream_device,
    .stream_capture = stream_capture,
    .stream_synchronize = stream_synchronize,
    .stream_query = stream_query,
    .device_synchronize = device_synchronize,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_synchronize = event_synchronize,
    .event_query = event_query,
    .copy = mf__cuda_copy,
    .copy_peer = mf__cuda_copy_peer,
    .fill = mf__cuda_fill,
    .kernel_copy = mf__cuda_kernel_copy,
    .capture_relax = mf__cuda_capture_relax,
};
