/* record.c: makes and frees the record of one memory that a driver knows, which lists the streams that used it, and
 * answers questions about one entry. It must not know which stream waits for which (order.c), nor when memory ends
 * (retire.c). */
#include "device/device.h"

#include <string.h>

int mf__record_create(const mf__device *device, mf__record **out, mf_error *err) {
  bool on_host = device->space == MF__PINNED;
  *out = NULL;
  const int rc = device->space == MF__MANAGED ? device->backend->managed_is_shared(&on_host, err) : MF_OK;
  if (rc != MF_OK) return rc;
  mf__record *a = mf__alloc(sizeof *a);
  *out = a;
  if (a == NULL) return mf__fail(err, MF_ENOMEM, "no memory for a record of %zu bytes", sizeof *a);
  memset(a, 0, sizeof *a);
  a->ops = &mf__device_ops;
  a->on_host = on_host;
  a->backend = device->backend;
  a->space = device->space;
  a->ordinal = device->ordinal;
  a->entries = a->inside;
  a->room = MF__ENTRIES_INSIDE;
  atomic_init(&a->locked, 0);
  mf__holders_add(a->backend, 1);
  return MF_OK;
}

void mf__record_drop(mf__record *a, int32_t i) {
  mf__entry *t = &a->entries[i];
  if (t->event != NULL) mf__event_give(a->backend, t->ordinal, t->event);
  *t = a->entries[--a->count];
}

void mf__record_free(mf__record *a) {
  if (a->entries != a->inside) mf__free(a->entries, (size_t)a->room * sizeof *a->entries);
  mf__holders_add(a->backend, -1);
  mf__free(a, sizeof *a);
}

mf__device mf__record_device(const mf__record *a) {
  return (mf__device){.backend = a->backend, .space = a->space, .ordinal = a->ordinal};
}

mf__queue mf__entry_queue(const mf__backend *backend, const mf__entry *entry) {
  return (mf__queue){backend, entry->ordinal, entry->thread, entry->stream};
}

bool mf__entry_done(const mf__backend *backend, const mf__entry *entry) {
  const mf__queue q = mf__entry_queue(backend, entry);
  return !entry->destroyed && mf__queue_done(&q);
}

int mf__entry_event(const mf__backend *backend, const mf__entry *entry, void **out, mf_error *err) {
  const mf__queue q = mf__entry_queue(backend, entry);
  if (entry->destroyed) return mf__fail(err, MF_EINVAL, "the stream was destroyed");
  return mf__queue_record_event(&q, out, NULL, err);
}
