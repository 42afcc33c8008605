/* stream.c: tells which stream a name or a handle means, and keeps the current streams of each thread. It must not know
 * the order of streams. */
#include "device/device.h"

#include <stdlib.h>

/* Own default streams. A thread whose own stream has to do with memory that was allocated in the order of streams hangs
 * in CUDA's driver when it ends, unless it has waited for that stream: seen with driver 580.159 on an H100, in programs
 * without Moonferry as well. So it waits before the driver hears of its end. On ROCm it waits, too, because no document
 * says whether what others queue in the legacy stream comes behind the work of a thread that has ended. */

static _Thread_local uint64_t own_streams[MF__NBACKENDS] MF__TLS; /* a bit for each GPU whose own stream was named */

static void wait_for_own_streams(void *unused) {
  (void)unused;
  for (int32_t b = 0; b < MF__NBACKENDS; b++) {
    mf__queue own = {.backend = mf__backends[b], .stream = MF_STREAM_PER_THREAD};
    for (uint64_t named = own_streams[b]; named != 0; named >>= 1, own.ordinal++)
      if ((named & 1) != 0 && mf__device_used(own.backend, own.ordinal)) (void)mf__queue_synchronize(&own, NULL);
  }
}

uint32_t mf__own_stream(const mf__backend *backend, int32_t ordinal) {
  uint64_t *named = &own_streams[backend->index];
  const uint64_t bit = UINT64_C(1) << ordinal;
  if ((*named & bit) == 0) {
    if (*named == 0) mf__at_end_of_thread(wait_for_own_streams);
    *named |= bit;
  }
  return mf__thread_number();
}

/* Current streams; 0 where nothing was set, which is the legacy default stream. */

typedef struct current_streams {
  mf_stream of[MF__NBACKENDS][MF__MAX_ORDINALS];
} current_streams;

/* NULL until the thread sets one. Only the pointer is thread-local: a library that is loaded late gets little static
 * thread-local storage (glibc: 1664 bytes for all of them), or none. */
static _Thread_local current_streams *currents MF__TLS;
static pthread_key_t currents_key;
static pthread_once_t currents_once = PTHREAD_ONCE_INIT;
static bool currents_kept; /* the key exists, so that they end with their thread */

static void end_currents(void *table) {
  currents = NULL;
  free(table);
}

static void make_currents_key(void) {
  currents_kept = pthread_key_create(&currents_key, end_currents) == 0;
}

static int make_currents(mf_error *err) {
  if (currents != NULL) return MF_OK;
  pthread_once(&currents_once, make_currents_key);
  current_streams *made = mf__lasting_alloc(sizeof *made);
  if (made == NULL || !currents_kept || pthread_setspecific(currents_key, made) != 0) {
    free(made);
    return mf__fail(err, MF_ENOMEM, "no memory for the thread's current streams");
  }
  currents = made;
  return MF_OK;
}

static mf_stream current(const mf__device *device) {
  const mf_stream stream = currents == NULL ? MF_STREAM_CURRENT : currents->of[device->backend->index][device->ordinal];
  return stream == MF_STREAM_CURRENT ? MF_STREAM_DEFAULT : stream;
}

mf__queue mf__queue_current(const mf__device *device) {
  if (device->backend == NULL) return mf__queue_host();
  return mf__queue_make(device->backend, device->ordinal, current(device));
}

bool mf__stream_is_current(const mf__device *device, mf_stream stream) {
  return device->backend != NULL && stream == current(device);
}

static int owner_of(const mf__device *device, mf_stream stream, int32_t *ordinal, mf_error *err) {
  int rc;
  MF__CALL(rc, mf__enter, device->backend, device->ordinal, err, device->backend->stream_device(stream, ordinal, err));
  if (rc != MF_OK || *ordinal == device->ordinal || device->space != MF__DEVICE) return rc;
  return mf__fail(err, MF_EINVAL, "stream 0x%llx is one of %s:%d; a stream of %s:%d expected",
                  (unsigned long long)stream, device->backend->name, *ordinal, device->backend->name,
                  device->ordinal);
}

/* Whether the number is one of MF_STREAM_OF, whose parts ${out} gets. */
static bool has_gpu(mf_stream stream, mf__queue *out) {
  const uint64_t parts = (uint64_t)MF_STREAM_OF(0, 0) - (uint64_t)stream, ordinal = parts / 4;
  const mf_stream name = (mf_stream)(parts % 4);
  if (ordinal >= MF__MAX_ORDINALS || (name != MF_STREAM_DEFAULT && name != MF_STREAM_PER_THREAD)) return false;
  out->ordinal = (int32_t)ordinal;
  out->stream = name;
  return true;
}

static int check_gpu(const mf__device *device, int32_t ordinal, mf_error *err) {
  const char *name = device->backend->name;
  int32_t count = 0;
  (void)device->backend->device_count(&count, NULL); /* the driver is open: it cannot fail */
  if (ordinal >= count)
    return mf__fail(err, MF_EINVAL, "stream is one of %s:%d; a device_id of 0 to %d expected", name, ordinal,
                    count - 1);
  if (ordinal == device->ordinal || device->space != MF__DEVICE) return MF_OK;
  return mf__fail(err, MF_EINVAL, "stream is one of %s:%d; one of %s:%d expected", name, ordinal, name,
                  device->ordinal);
}

int mf__queue_resolve(const mf__device *device, mf_stream stream, bool check, mf__queue *out, mf_error *err) {
  *out = (mf__queue){.backend = device->backend, .ordinal = device->ordinal, .stream = stream};
  const bool of_gpu = has_gpu(stream, out);
  if (stream < MF_STREAM_HOST && !of_gpu)
    return mf__fail(err, MF_EINVAL, "stream is %lld; a name (-2 to 2) or a handle expected", (long long)stream);
  if (stream == MF_STREAM_HOST || device->backend == NULL) {
    *out = mf__queue_host();
    if (device->backend != NULL || (stream <= MF_STREAM_CURRENT && !of_gpu)) return MF_OK;
    return mf__fail(err, MF_EINVAL, "stream is %lld; the cpu has no streams", (long long)stream);
  }
  const int rc = of_gpu ? check_gpu(device, out->ordinal, err) : MF_OK;
  if (rc != MF_OK) return rc;
  if (stream == MF_STREAM_CURRENT) out->stream = current(device);
  if (out->stream == MF_STREAM_PER_THREAD) out->thread = mf__own_stream(device->backend, out->ordinal);
  if (!check || stream <= MF_STREAM_PER_THREAD || stream == current(device)) return MF_OK;
  return owner_of(device, stream, &out->ordinal, err);
}

int mf_stream_check(const DLDevice *device, mf_stream stream, mf_error *err) {
  MF__NEED(device);
  mf__device d;
  mf__queue q;
  int rc = mf__device_resolve(device, &d, err);
  if (rc == MF_OK) rc = mf__queue_resolve(&d, stream, true, &q, err);
  return mf__end(rc, __func__, err);
}

int mf_stream_current(const DLDevice *device, mf_stream *out, mf_error *err) {
  MF__NEED(device);
  MF__NEED(out);
  mf__device d;
  *out = MF_STREAM_HOST;
  const int rc = mf__device_resolve(device, &d, err);
  if (rc == MF_OK && d.backend != NULL) *out = current(&d);
  return mf__end(rc, __func__, err);
}

static int swap(const DLDevice *device, mf_stream stream, mf_stream *old, mf_error *err) {
  mf__device d;
  mf__queue q;
  int rc = mf__device_resolve(device, &d, err);
  if (rc == MF_OK && d.backend == NULL) rc = mf__fail(err, MF_EINVAL, "device is the cpu, which has no streams");
  if (rc == MF_OK && stream < MF_STREAM_CURRENT)
    rc = mf__fail(err, MF_EINVAL, "stream is %lld; a name of a stream (0 to 2) or a handle expected",
                  (long long)stream);
  if (rc == MF_OK) rc = mf__queue_resolve(&d, stream, true, &q, err);
  if (rc == MF_OK) rc = make_currents(err);
  if (rc != MF_OK) return rc;
  d.ordinal = q.ordinal; /* pinned and managed memory may name any device's stream */
  if (old != NULL) *old = current(&d);
  currents->of[d.backend->index][d.ordinal] = q.stream;
  return MF_OK;
}

int mf_stream_swap(const DLDevice *device, mf_stream stream, mf_stream *old, mf_error *err) {
  MF__NEED(device);
  if (old != NULL) *old = MF_STREAM_CURRENT;
  return mf__end(swap(device, stream, old, err), __func__, err);
}
