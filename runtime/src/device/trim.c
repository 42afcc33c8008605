/* trim.c: gives back to the drivers what is kept and not in use; and, once nothing of ours is left, all that they hold
 * for us. It must not know how any of it is kept.
 *
 * Invariant: a device is forgotten only while no thread is between enter and leave there and nothing of ours exists
 * that could name anything on it. A call that keeps a stream or an event from one entry to the next counts as a holder
 * meanwhile. */
#include "device/device.h"

static int count_of(const mf__backend *backend) {
  int32_t count = 0;
  if (backend->usable()) (void)backend->device_count(&count, NULL);
  return count;
}

/* Gives back the kept events and streams of a device. */
static void trim_queues(const mf__backend *backend, int32_t ordinal) {
  if (!mf__device_used(backend, ordinal)) return;
  mf__blocks_left_end(backend, ordinal); /* whose events are kept then */
  mf__event_trim(backend, ordinal);
  mf__stream_trim(backend, ordinal);
}

static int trim_gpu(const mf__device *d, mf_error *err) {
  if (!mf__device_used(d->backend, d->ordinal)) return MF_OK;
  mf__stage_trim(d->backend, d->ordinal);
  int driver, rc = mf__pool_trim(d, err);
  mf_error *first = rc == MF_OK ? err : NULL;
  MF__CALL(driver, mf__enter_relaxed, d->backend, d->ordinal, first, d->backend->memory_trim(first));
  if (rc == MF_OK) rc = driver;
  trim_queues(d->backend, d->ordinal);
  return rc;
}

/* Pinned and managed memory was allocated on any device, and its blocks may have events of all. */
static int trim_shared(const mf__device *d, mf_error *err) {
  const int32_t count = count_of(d->backend);
  for (int32_t i = 0; d->space == MF__PINNED && i < count; i++)
    if (mf__device_used(d->backend, i)) mf__stage_trim(d->backend, i);
  const int rc = mf__pool_trim(d, err);
  for (int32_t i = 0; i < count; i++) trim_queues(d->backend, i);
  return rc;
}

static int trim_device(const mf__device *d, mf_error *err) {
  return d->space == MF__DEVICE ? trim_gpu(d, err) : trim_shared(d, err);
}

/* Memory that is in use has a record, which is a holder. Another thread may take kept memory meanwhile, which needs no
 * entry: it is a holder before it does. */
static bool is_unused(const mf__backend *backend, int32_t ordinal) {
  const uint64_t state = mf__holders_state(backend);
  return (uint32_t)state == 0 && !mf__pools_cache(backend) && !mf__streams_exist(backend) &&
         !mf__blocks_left(backend, ordinal) && !mf__events_exist(backend, ordinal) &&
         !mf__stage_exists(backend, ordinal) && mf__holders_state(backend) == state;
}

static void forget_unused(const mf__backend *backend) {
  const int32_t count = count_of(backend);
  for (int32_t i = 0; i < count; i++) {
    if (!mf__device_used(backend, i) || !mf__device_shut(backend, i)) continue;
    const int before = mf__uncancelled_begin();
    if (is_unused(backend, i)) backend->device_forget(i);
    mf__uncancelled_end(before);
    mf__device_open(backend, i);
  }
}

int mf_pool_trim(const DLDevice *device, mf_error *err) {
  MF__NEED(device);
  mf__device d;
  int rc = mf__device_resolve(device, &d, err);
  if (rc == MF_OK && d.backend == NULL)
    rc = mf__fail(err, MF_EDEVICE, "device is the cpu, whose memory is not pooled");
  if (rc != MF_OK) return mf__end(rc, __func__, err);
  mf__retire_drain(d.backend);
  mf_releases_run();
  rc = trim_device(&d, err);
  forget_unused(d.backend);
  return mf__end(rc, __func__, err);
}

/* Trims the host's memory first, because its blocks may have events of all devices. */
static int trim_all_of(const mf__backend *backend, mf_error *err) {
  const int32_t count = count_of(backend);
  int first = MF_OK;
  for (int space = MF__NSPACES; space-- > 0;)
    for (int32_t i = 0; i < (space == MF__DEVICE ? count : count > 0); i++) {
      const mf__device d = {.backend = backend, .space = (mf__space)space, .ordinal = i};
      const int rc = backend->types[space] == 0 ? MF_OK : trim_device(&d, first == MF_OK ? err : NULL);
      if (first == MF_OK) first = rc;
    }
  /* A device's blocks may have had events of one that came before it. */
  for (int32_t i = 0; i < count; i++) trim_queues(backend, i);
  forget_unused(backend);
  return first;
}

static int trim_all(bool delete, mf_error *err) {
  int first = MF_OK;
  for (size_t i = 0; i < MF__NBACKENDS; i++) {
    mf__retire_drain(mf__backends[i]);
    if (delete) mf_releases_run();
    const int rc = trim_all_of(mf__backends[i], first == MF_OK ? err : NULL);
    if (first == MF_OK) first = rc;
  }
  return first;
}

/* Whether a later trim would find more, once queued work is done. */
static bool is_pending(bool delete) {
  bool pending = false;
  for (size_t i = 0; i < MF__NBACKENDS && !pending; i++) {
    const mf__backend *backend = mf__backends[i];
    const int32_t count = count_of(backend);
    pending = count > 0 && (mf__pools_cache(backend) || mf__streams_busy(backend) ||
                            (delete && mf__retire_waits(backend)));
    for (int32_t k = 0; k < count && !pending; k++)
      pending = mf__stage_exists(backend, k) || mf__blocks_left(backend, k);
  }
  return pending;
}

static void nap(void) {
  mf__nap(500000);
}

static int trim_within(int32_t wait_ms, mf_error *err) {
  const int64_t until = mf__clock_ns() + (int64_t)wait_ms * 1000000;
  int rc = trim_all(true, err);
  while (rc == MF_OK && is_pending(true) && mf__clock_ns() < until) {
    nap();
    rc = trim_all(true, err);
  }
  return rc;
}

int mf_pools_trim(int32_t wait_ms, mf_error *err) {
  int rc = MF_OK;
  if (wait_ms < 0) rc = mf__fail(err, MF_EINVAL, "wait_ms is %d; 0 or more expected", wait_ms);
  if (rc == MF_OK) rc = trim_within(wait_ms, err);
  return mf__end(rc, __func__, err);
}

/* Calls no deleter: the language that it belongs to may be gone. Work that never ends must not keep a process from
 * ending; naps are counted, for a busy machine may stop this thread, or the driver's, for longer than work takes. */
void mf__trim_at_exit(void) {
  enum { NAPS = 200 };
  for (int n = 0; trim_all(false, NULL) == MF_OK && is_pending(false) && n < NAPS; n++) nap();
}
