/* wait.c: carries out the waits that a program asks for: for a stream, of one stream for another, for a whole device.
 * */
#include "device/device.h"

static int open_queue(const DLDevice *device, mf_stream stream, mf__queue *out, mf_error *err) {
  mf__device d;
  int rc = mf__device_resolve(device, &d, err);
  if (rc == MF_OK) rc = mf__queue_resolve(&d, stream, true, out, err);
  if (rc == MF_OK && (out->backend == NULL || out->stream == MF_STREAM_NO_ORDER))
    rc = mf__fail(err, MF_EINVAL, "stream is %lld; a stream of a GPU expected", (long long)stream);
  return rc;
}

int mf_stream_synchronize(const DLDevice *device, mf_stream stream, mf_error *err) {
  MF__NEED(device);
  mf__queue q;
  int rc = open_queue(device, stream, &q, err);
  if (rc == MF_OK) rc = mf__queue_synchronize(&q, err);
  if (rc == MF_OK) mf__retire_drain(q.backend);
  mf_releases_run();
  return mf__end(rc, __func__, err);
}

int mf_stream_query(const DLDevice *device, mf_stream stream, int32_t *out, mf_error *err) {
  MF__NEED(device);
  MF__NEED(out);
  mf__queue q;
  bool done = false;
  int rc = open_queue(device, stream, &q, err);
  if (rc == MF_OK) rc = mf__queue_query(&q, &done, err);
  *out = done;
  return mf__end(rc, __func__, err);
}

int mf_stream_wait(const DLDevice *device, mf_stream stream, const DLDevice *other_device, mf_stream other,
                   mf_error *err) {
  MF__NEED(device);
  MF__NEED(other_device);
  mf__queue on, behind;
  int rc = open_queue(device, stream, &on, err);
  if (rc == MF_OK) rc = open_queue(other_device, other, &behind, err);
  if (rc == MF_OK && on.backend != behind.backend)
    rc = mf__fail(err, MF_EINVAL, "a stream of %s cannot wait for one of %s", on.backend->name, behind.backend->name);
  if (rc != MF_OK) return mf__end(rc, __func__, err);
  mf__holders_add(on.backend, 1); /* of the event */
  rc = mf__queue_wait(&on, &behind, err);
  mf__holders_add(on.backend, -1);
  return mf__end(rc, __func__, err);
}

/* Pinned and managed memory is used on the streams of any GPU: waits for each that was ever entered, as every GPU in a
 * record was. All are waited for; the first failure is told. */
static int synchronize(const mf__device *d, mf_error *err) {
  int32_t count = 0;
  int first = mf__device_synchronize(d->backend, d->ordinal, err);
  if (d->space != MF__DEVICE) (void)d->backend->device_count(&count, NULL);
  for (int32_t i = 0; i < count; i++) {
    if (i == d->ordinal || !mf__device_used(d->backend, i)) continue;
    const int rc = mf__device_synchronize(d->backend, i, first == MF_OK ? err : NULL);
    if (first == MF_OK) first = rc;
  }
  return first;
}

int mf_device_synchronize(const DLDevice *device, mf_error *err) {
  MF__NEED(device);
  mf__device d;
  int rc = mf__device_resolve(device, &d, err);
  if (rc != MF_OK || d.backend == NULL) return mf__end(rc, __func__, err);
  rc = synchronize(&d, err);
  mf__retire_drain(d.backend);
  mf_releases_run();
  return mf__end(rc, __func__, err);
}
