/* cuda.c: fills mf__backend by the CUDA driver's calls: memory, streams and events. cuda_context.c has opening and
 * contexts, cuda_work.c and cuda_kernel.c have the work that is queued. It must not know what a tensor is, nor when
 * work must be ordered. */
#include "driver/cuda.h"

/* Memory. */

/* Asks whether the host may use managed memory while a kernel runs, which it may not where the attribute is 0 (CUDA
 * Programming Guide, Unified Memory Programming, "Coherency and Concurrency"). One device without it decides, because
 * all devices can use the memory. */
static int ask_sharing(bool *out, mf_error *err) {
  *out = true;
  for (int32_t i = 0; i < mf__cuda_driver.count; i++) {
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

/* Creates a pool of our own, so that no other library changes its settings or trims it (CUDA Driver API, "Stream
 * Ordered Memory Allocator"). */
static int create_pool(int32_t ordinal, void **out, mf_error *err) {
  const CUdevice device = mf__cuda_devices[ordinal].device;
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

static int memory_alloc(mf__space space, int64_t nbytes, mf_stream stream, void **out, mf_error *err) {
  const unsigned flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
  const size_t n = (size_t)nbytes;
  CUdeviceptr ptr = 0;
  void *pool = NULL;
  int rc;
  if (space == MF__PINNED) return MF__ASK(cuMemHostAlloc, (out, n, flags));
  if (space == MF__MANAGED) {
    rc = MF__ASK(cuMemAllocManaged, (&ptr, n, CU_MEM_ATTACH_GLOBAL));
  } else {
    rc = mf__driver_pool(&mf__cuda_here()->pooling, mf__cuda_ordinal, create_pool, &pool, err);
    if (rc == MF_OK && pool == NULL) rc = MF__ASK(cuMemAlloc, (&ptr, n));
    else if (rc == MF_OK) rc = MF__ASK(cuMemAllocFromPoolAsync, (&ptr, n, pool, mf__cuda_stream(stream)));
  }
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

static bool kernels_loaded(int32_t ordinal) {
  return mf__kernels_loaded(&mf__cuda_devices[ordinal].kernels);
}

/* Works in relaxed mode, because another library may capture on this device meanwhile. */
static void device_forget(int32_t ordinal) {
  mf__entered before;
  mf__cuda_device *d = &mf__cuda_devices[ordinal];
  if (!mf__cuda_usable()) return;
  if (atomic_load(&d->context) != NULL) {
    if (mf__cuda_make_current(ordinal, &before, NULL) != MF_OK) return;
    const bool relaxed = mf__cuda_capture_relax(true, NULL) == MF_OK;
    if (relaxed) {
      mf__kernels_forget(&mf__cuda_compiler, &d->kernels);
      void *pool = mf__driver_pool_forget(&d->pooling);
      if (pool != NULL) (void)mf__cu.cuMemPoolDestroy(pool);
      mf__cuda_context_forget(d);
      (void)mf__cuda_capture_relax(false, NULL);
    }
    mf__cuda_make_former(&before);
    if (!relaxed) return;
    (void)mf__cu.cuDevicePrimaryCtxRelease(d->device);
  }
  mf__gate_forget(&mf__cuda_driver.gates[ordinal]);
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

/* Finds the ordinal whose primary context this is, -1 if there is none. Activates no context (CUDA Driver API, "Primary
 * Context Management"). */
static int32_t find_primary(CUcontext context) {
  CUcontext primary = NULL;
  for (int32_t i = 0; i < mf__cuda_driver.count; i++) /* compared alone: who enters asks mf__cuda_primary */
    if (atomic_load_explicit(&mf__cuda_devices[i].context, memory_order_relaxed) == context) return i;
  for (int32_t i = 0; i < mf__cuda_driver.count; i++) {
    if (mf__cuda_is_active(i) && mf__cuda_primary(i, &primary, NULL) == MF_OK && primary == context) return i;
  }
  return -1;
}

static int stream_device(mf_stream stream, int32_t *ordinal, mf_error *err) {
  CUcontext context = NULL;
  *ordinal = mf__cuda_ordinal;
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

/* Although no document says so, to ask a stream that is being captured for its id breaks the capture, in any mode (seen
 * with driver 580.159 on an H100). */
static uint64_t stream_name(mf_stream stream) {
  unsigned long long id = 0;
  uint64_t capture = 0;
  if (mf__cu.cuStreamGetId == NULL) return 0;
  if (mf__cuda_stream_capture(stream, &capture, NULL) != MF_OK || capture != 0) return 0;
  return mf__cu.cuStreamGetId(mf__cuda_stream(stream), &id) == CUDA_SUCCESS ? id : 0;
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
    .gates = mf__cuda_driver.gates,
    .types = {kDLCUDA, kDLCUDAHost, kDLCUDAManaged},
    .device_count = mf__cuda_count,
    .usable = mf__cuda_usable,
    .device_current = mf__cuda_current,
    .enter = mf__cuda_enter,
    .leave = mf__cuda_leave,
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
    .stream_capture = mf__cuda_stream_capture,
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
    .kernel_rows_from = INT64_C(4) << 20, /* below it, to compile the kernel would take longer than it saves */
    .kernel_copy = mf__cuda_kernel_copy,
    .kernel_cast = mf__cuda_kernel_cast,
    .kernel_compare = mf__cuda_kernel_compare,
    .kernels_loaded = kernels_loaded,
    .capture_relax = mf__cuda_capture_relax,
    .graphics_register = mf__cuda_graphics_register,
    .graphics_unregister = mf__cuda_graphics_unregister,
    .graphics_map = mf__cuda_graphics_map,
    .graphics_map_array = mf__cuda_graphics_map_array,
    .graphics_unmap = mf__cuda_graphics_unmap,
    .array_copy = mf__cuda_array_copy,
    .external_import = mf__cuda_external_import,
    .external_end = mf__cuda_external_end,
    .semaphore_import = mf__cuda_semaphore_import,
    .semaphore_end = mf__cuda_semaphore_end,
    .semaphore_wait = mf__cuda_semaphore_wait,
    .semaphore_signal = mf__cuda_semaphore_signal,
};
