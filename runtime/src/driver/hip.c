/* hip.c: fills mf__backend by the HIP runtime's calls: memory, streams and events. hip_context.c has opening,
 * hip_work.c has the work that is queued. It must not know what a tensor is, nor when work must be ordered. */
#include "driver/hip.h"

enum { NPROBES = 4 };

/* Streams of ours by which events are queried; see event_query. NULL until one is needed. */
typedef struct probes {
  hipStream_t streams[NPROBES];
  bool taken[NPROBES];
} probes;

static mf__pooling poolings[MF__MAX_ORDINALS];
static probes all_probes[MF__MAX_ORDINALS];
static pthread_mutex_t probes_lock = PTHREAD_MUTEX_INITIALIZER;

/* Memory. */

static bool has_pool_calls(void) {
  return mf__hip.hipMemPoolCreate != NULL && mf__hip.hipMemPoolDestroy != NULL &&
         mf__hip.hipMemPoolSetAttribute != NULL &&
         mf__hip.hipMemPoolTrimTo != NULL && mf__hip.hipMallocFromPoolAsync != NULL && mf__hip.hipFreeAsync != NULL;
}

/* Creates a pool without asking for the attribute of pools first, whose number changed between versions of HIP:
 * creation fails with hipErrorNotSupported where there are none. */
static int create_pool(int32_t ordinal, void **out, mf_error *err) {
  const hipMemPoolProps props = {.allocType = hipMemAllocationTypePinned,
                                 .location = {hipMemLocationTypeDevice, ordinal}};
  hipMemPool_t pool = NULL;
  uint64_t keep_all = UINT64_MAX;
  *out = NULL;
  if (!has_pool_calls()) return MF_OK;
  const hipError_t code = mf__hip.hipMemPoolCreate(&pool, &props);
  int rc = mf__hip_answer(code, "hipMemPoolCreate", err);
  if (code == hipErrorNotSupported) return MF_OK;
  if (rc != MF_OK) return rc;
  rc = MF__HIP_ASK(hipMemPoolSetAttribute, (pool, hipMemPoolAttrReleaseThreshold, &keep_all));
  if (rc != MF_OK) mf__hip_clear(mf__hip.hipMemPoolDestroy(pool));
  if (rc == MF_OK) *out = pool;
  return rc;
}

static int memory_alloc(mf__space space, int64_t nbytes, mf_stream stream, void **out, mf_error *err) {
  const size_t n = (size_t)nbytes;
  void *pool;
  if (space == MF__PINNED) return MF__HIP_ASK(hipHostMalloc, (out, n, hipHostMallocPortable | hipHostMallocMapped));
  if (space != MF__DEVICE) return mf__fail(err, MF_EDEVICE, "DLPack has no device type for ROCm's managed memory");
  const int rc = mf__driver_pool(&poolings[mf__hip_ordinal], mf__hip_ordinal, create_pool, &pool, err);
  if (rc != MF_OK) return rc;
  if (pool == NULL) return MF__HIP_ASK(hipMalloc, (out, n));
  return MF__HIP_ASK(hipMallocFromPoolAsync, (out, n, pool, mf__hip_stream(stream)));
}

static int memory_free(mf__space space, void *ptr, mf_stream stream, mf_error *err) {
  const hipStream_t s = mf__hip_stream(stream);
  if (space == MF__PINNED) return MF__HIP_ASK(hipHostFree, (ptr));
  if (mf__driver_pool_made(&poolings[mf__hip_ordinal]) != NULL) return MF__HIP_ASK(hipFreeAsync, (ptr, s));
  const int rc = MF__HIP_ASK(hipStreamSynchronize, (s));
  if (rc == MF_OK) return MF__HIP_ASK(hipFree, (ptr));
  if (rc != MF_ECAPTURE) mf__hip_clear(mf__hip.hipFree(ptr));
  return rc;
}

/* Managed memory counts as its device's memory, as in every other library. */
static int memory_find(const void *ptr, mf__space *space, int32_t *ordinal, mf_error *err) {
  enum { FIRST_WITH_UNREGISTERED = 600, HOST_BEFORE = 0, DEVICE_BEFORE = 1 };
  const bool newer = mf__hip_version >= FIRST_WITH_UNREGISTERED;
  const int host = newer ? hipMemoryTypeHost : HOST_BEFORE, device = newer ? hipMemoryTypeDevice : DEVICE_BEFORE;
  hipPointerAttribute_t found = {.type = -1};
  const hipError_t code = mf__hip.hipPointerGetAttributes(&found, ptr);
  const int rc = mf__hip_answer(code, "hipPointerGetAttributes", err);
  if (rc != MF_OK && code != hipErrorInvalidValue) return rc;
  const bool on_device = found.type == device || found.isManaged != 0 || (newer && found.type == hipMemoryTypeManaged);
  if (rc != MF_OK) return mf__driver_explain(err, MF_EINVAL, "data is %p, which the HIP runtime does not know", ptr);
  if (found.device < 0 || !(on_device || found.type == host))
    return mf__fail(err, MF_EINVAL, "data is %p, which the HIP runtime does not know: neither a device's memory nor "
                    "pinned host memory", ptr);
  *space = on_device ? MF__DEVICE : MF__PINNED;
  *ordinal = found.device;
  return MF_OK;
}

static int memory_trim(mf_error *err) {
  void *pool = mf__driver_pool_made(&poolings[mf__hip_ordinal]);
  return pool != NULL ? MF__HIP_ASK(hipMemPoolTrimTo, (pool, 0)) : MF_OK;
}

/* Streams and events. */

static int stream_create(mf_stream *out, mf_error *err) {
  hipStream_t stream = NULL;
  const int rc = MF__HIP_ASK(hipStreamCreateWithFlags, (&stream, hipStreamNonBlocking));
  *out = rc == MF_OK ? (mf_stream)(intptr_t)stream : 0;
  return rc;
}

static int stream_destroy(mf_stream stream, mf_error *err) {
  return MF__HIP_ASK(hipStreamDestroy, (mf__hip_stream(stream)));
}

static int stream_device(mf_stream stream, int32_t *ordinal, mf_error *err) {
  int device = -1;
  *ordinal = mf__hip_ordinal;
  if (stream == MF_STREAM_DEFAULT || stream == MF_STREAM_PER_THREAD) return MF_OK;
  const int rc = mf__driver_handle_check(stream, err);
  if (rc != MF_OK) return rc;
  if (mf__hip.hipStreamGetDevice != NULL) {
    const hipError_t code = mf__hip.hipStreamGetDevice(mf__hip_stream(stream), &device);
    const int failed = mf__hip_answer(code, "hipStreamGetDevice", err);
    if (failed != MF_OK) return mf__driver_dead_stream(stream, code, failed, err);
  } else if (mf__hip.hipGetStreamDeviceId != NULL) {
    device = mf__hip.hipGetStreamDeviceId(mf__hip_stream(stream));
  } else {
    return mf__fail(err, MF_EDEVICE, "stream is %#llx, and this HIP runtime cannot say of which device",
                    (unsigned long long)stream);
  }
  if (device < 0)
    return mf__fail(err, MF_EINVAL, "stream is %#llx, which is no living stream", (unsigned long long)stream);
  *ordinal = device;
  return MF_OK;
}

static uint64_t stream_name(mf_stream stream) {
  (void)stream;
  return 0;
}

static int stream_synchronize(mf_stream stream, mf_error *err) {
  return MF__HIP_ASK(hipStreamSynchronize, (mf__hip_stream(stream)));
}

static int stream_query(mf_stream stream, bool *done, mf_error *err) {
  return mf__hip_answer_done(mf__hip.hipStreamQuery(mf__hip_stream(stream)), "hipStreamQuery", done, err);
}

static int device_synchronize(mf_error *err) {
  return MF__HIP_ASK(hipDeviceSynchronize, ());
}

static int event_create(void **out, mf_error *err) {
  hipEvent_t event = NULL;
  const int rc = MF__HIP_ASK(hipEventCreateWithFlags, (&event, hipEventDisableTiming));
  *out = rc == MF_OK ? event : NULL;
  return rc;
}

static int event_destroy(void *event, mf_error *err) {
  return MF__HIP_ASK(hipEventDestroy, (event));
}

static int event_record(void *event, mf_stream stream, mf_error *err) {
  return MF__HIP_ASK(hipEventRecord, (event, mf__hip_stream(stream)));
}

static int event_wait(void *event, mf_stream stream, mf_error *err) {
  return MF__HIP_ASK(hipStreamWaitEvent, (mf__hip_stream(stream), event, 0));
}

/* Up to ROCm 7.2 hipEventQuery and hipEventSynchronize fail while any thread captures in global mode, and break that
 * capture, whatever mode the calling thread is in (ROCm/rocm-systems pull request 3176, in a later 7.2). Calls about a
 * stream look at the mode. So a stream of ours is made to wait for the event, and is asked. */
static bool events_break_captures(void) {
  enum { FIRST_THAT_LOOKS_AT_THE_MODE = 703 };
  return mf__hip_version < FIRST_THAT_LOOKS_AT_THE_MODE;
}

static void end_stream(hipStream_t stream) {
  const hipError_t code = mf__hip.hipStreamDestroy(stream);
  if (code != hipSuccess) mf__hip_clear(code);
}

static bool is_idle(hipStream_t stream) {
  bool done;
  (void)mf__hip_answer_done(mf__hip.hipStreamQuery(stream), "hipStreamQuery", &done, NULL);
  return done;
}

/* Takes a stream that has nothing to do; *which is -1 where all wait for earlier events. */
static int probe_take(probes *p, int *which, mf_error *err) {
  int rc = MF_OK;
  *which = -1;
  pthread_mutex_lock(&probes_lock);
  for (int i = 0; rc == MF_OK && i < NPROBES && *which < 0; i++) {
    if (p->taken[i] || (p->streams[i] != NULL && !is_idle(p->streams[i]))) continue;
    if (p->streams[i] == NULL) rc = MF__HIP_ASK(hipStreamCreateWithFlags, (&p->streams[i], hipStreamNonBlocking));
    if (rc != MF_OK) p->streams[i] = NULL;
    else p->taken[*which = i] = true;
  }
  pthread_mutex_unlock(&probes_lock);
  return rc;
}

static void probe_give(probes *p, int which) {
  pthread_mutex_lock(&probes_lock);
  p->taken[which] = false;
  pthread_mutex_unlock(&probes_lock);
}

/* Asks more than once, because the runtime may take a moment to see that the wait is over. An event that cannot be
 * queried, because all probes wait, counts as not done: that is never wrong. */
static int event_query(void *event, bool *done, mf_error *err) {
  enum { TRIES = 4 };
  probes *p = &all_probes[mf__hip_ordinal];
  int which;
  if (!events_break_captures()) return mf__hip_answer_done(mf__hip.hipEventQuery(event), "hipEventQuery", done, err);
  *done = false;
  int rc = probe_take(p, &which, err);
  if (which < 0) return rc;
  rc = MF__HIP_ASK(hipStreamWaitEvent, (p->streams[which], event, 0));
  for (int i = 0; rc == MF_OK && !*done && i < TRIES; i++)
    rc = mf__hip_answer_done(mf__hip.hipStreamQuery(p->streams[which]), "hipStreamQuery", done, err);
  probe_give(p, which);
  return rc;
}

/* Takes a new stream where every probe waits, because a probe may wait for work that the host queues only after this
 * call. */
static int event_synchronize(void *event, mf_error *err) {
  probes *p = &all_probes[mf__hip_ordinal];
  hipStream_t own = NULL;
  int which = -1;
  if (!events_break_captures()) return MF__HIP_ASK(hipEventSynchronize, (event));
  int rc = probe_take(p, &which, err);
  if (which < 0) rc = MF__HIP_ASK(hipStreamCreateWithFlags, (&own, hipStreamNonBlocking));
  if (rc != MF_OK) return rc;
  const hipStream_t stream = which >= 0 ? p->streams[which] : own;
  rc = MF__HIP_ASK(hipStreamWaitEvent, (stream, event, 0));
  if (rc == MF_OK) rc = MF__HIP_ASK(hipStreamSynchronize, (stream));
  if (which >= 0) probe_give(p, which);
  else end_stream(own);
  return rc;
}

/* Works in relaxed mode, because another library may capture on this device meanwhile. */
static void device_forget(int32_t ordinal) {
  probes *p = &all_probes[ordinal];
  mf__entered before;
  if (!mf__hip_usable() || mf__hip_make_current(ordinal, &before, NULL) != MF_OK) return;
  const bool relaxed = mf__hip_capture_relax(true, NULL) == MF_OK;
  if (relaxed) {
    void *pool = mf__driver_pool_forget(&poolings[ordinal]);
    mf__hip_kernels_forget(ordinal);
    if (pool != NULL) mf__hip_clear(mf__hip.hipMemPoolDestroy(pool));
    for (int i = 0; i < NPROBES; i++) {
      if (p->streams[i] != NULL) end_stream(p->streams[i]);
      p->streams[i] = NULL;
    }
    (void)mf__hip_capture_relax(false, NULL);
    mf__gate_forget(&mf__hip_driver.gates[ordinal]);
  }
  mf__hip_make_former(&before);
}

const mf__backend mf__backend_hip = {
    .name = "rocm",
    .index = MF__INDEX_hip,
    .gates = mf__hip_driver.gates,
    .types = {kDLROCM, kDLROCMHost, 0},
    .device_count = mf__hip_count,
    .usable = mf__hip_usable,
    .device_current = mf__hip_current,
    .enter = mf__hip_enter,
    .leave = mf__hip_leave,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .memory_find = memory_find,
    .memory_trim = memory_trim,
    .device_forget = device_forget,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .destroy_may_drop = true, /* HIP, Stream Management, hipStreamDestroy; CUDA's driver finishes it */
    .stream_name = stream_name,
    .stream_device = stream_device,
    .stream_capture = mf__hip_stream_capture,
    .stream_synchronize = stream_synchronize,
    .stream_query = stream_query,
    .device_synchronize = device_synchronize,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_synchronize = event_synchronize,
    .event_query = event_query,
    .copy = mf__hip_copy,
    .copy_peer = mf__hip_copy_peer,
    .fill = mf__hip_fill,
    .kernel_copy = mf__hip_kernel_copy,
    .kernel_cast = mf__hip_kernel_cast,
    .kernel_compare = mf__hip_kernel_compare,
    .kernels_loaded = mf__hip_kernels_loaded,
    .capture_relax = mf__hip_capture_relax,
    .graphics_register = mf__hip_graphics_register,
    .graphics_unregister = mf__hip_graphics_unregister,
    .graphics_map = mf__hip_graphics_map,
    .graphics_map_array = mf__hip_graphics_map_array,
    .graphics_unmap = mf__hip_graphics_unmap,
    .array_copy = mf__hip_array_copy,
    .external_import = mf__hip_external_import,
    .external_end = mf__hip_external_end,
    .semaphore_import = mf__hip_semaphore_import,
    .semaphore_end = mf__hip_semaphore_end,
    .semaphore_wait = mf__hip_semaphore_wait,
    .semaphore_signal = mf__hip_semaphore_signal,
};
