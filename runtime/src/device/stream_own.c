/* stream_own.c: makes and keeps streams of ours.
 *
 * Invariant: a stream of ours that the program gave back stays with us, for the next that is asked for, as long as a
 * record or kept memory may still name it: a record can always be waited for. */
#include "device/device.h"

#include <stdlib.h>

typedef struct own_stream {
  struct own_stream *next;
  const mf__backend *backend;
  mf_stream handle;
  int32_t ordinal;
  bool in_use;
  bool busy; /* a trim has left it to its work */
} own_stream;

static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;
static own_stream *own_streams;

/* The first kept stream behind ${after} (NULL: of all), which is given back: nobody unlinks it before that. */
static own_stream *take_next(const mf__device *device, own_stream *after) {
  own_stream *s;
  pthread_mutex_lock(&own_lock);
  for (s = after == NULL ? own_streams : after->next; s != NULL; s = s->next)
    if (!s->in_use && s->backend == device->backend && s->ordinal == device->ordinal) break;
  if (s != NULL) s->in_use = true;
  if (after != NULL) after->in_use = false;
  pthread_mutex_unlock(&own_lock);
  return s;
}

/* A program may give a stream back in the middle of a capture; nobody can use it until that ends. */
static bool is_captured(const own_stream *s) {
  const mf__queue q = {.backend = s->backend, .ordinal = s->ordinal, .stream = s->handle};
  uint64_t id;
  return mf__capture_of(&q, &id, NULL) == MF_ECAPTURE || id != 0;
}

static own_stream *take_kept(const mf__device *device) {
  own_stream *s = take_next(device, NULL);
  while (s != NULL && is_captured(s)) s = take_next(device, s);
  return s;
}

static void link_stream(own_stream *s) {
  pthread_mutex_lock(&own_lock);
  s->next = own_streams;
  own_streams = s;
  pthread_mutex_unlock(&own_lock);
}

/* Entries of the list outlive every tensor, so that they are no blocks of the ledger. */
static int create_stream(const mf__device *device, own_stream **out, mf_error *err) {
  own_stream *s = mf__lasting_alloc(sizeof *s);
  if (s == NULL) return mf__fail(err, MF_ENOMEM, "no memory for a stream's entry");
  *s = (own_stream){.backend = device->backend, .ordinal = device->ordinal, .in_use = true};
  const mf__backend *backend = device->backend;
  int rc;
  MF__CALL(rc, mf__enter_relaxed, backend, device->ordinal, err, backend->stream_create(&s->handle, err));
  if (rc != MF_OK) {
    free(s);
    return rc;
  }
  link_stream(s);
  *out = s;
  return MF_OK;
}

int mf_stream_create(const DLDevice *device, mf_stream *out, mf_error *err) {
  MF__NEED(device);
  MF__NEED(out);
  mf__device d;
  *out = MF_STREAM_CURRENT;
  int rc = mf__device_resolve(device, &d, err);
  if (rc == MF_OK && d.backend == NULL) rc = mf__fail(err, MF_EINVAL, "device is the cpu, which has no streams");
  if (rc != MF_OK) return mf__end(rc, __func__, err);
  mf__holders_add(d.backend, 1); /* until the stream is in the list */
  own_stream *s = take_kept(&d);
  if (s == NULL) rc = create_stream(&d, &s, err);
  mf__holders_add(d.backend, -1);
  if (rc == MF_OK) *out = s->handle;
  return mf__end(rc, __func__, err);
}

static bool give_back(const mf__device *device, mf_stream stream) {
  own_stream *s;
  pthread_mutex_lock(&own_lock);
  for (s = own_streams; s != NULL; s = s->next)
    if (s->in_use && s->handle == stream && s->backend == device->backend && s->ordinal == device->ordinal) break;
  if (s != NULL) s->in_use = false;
  pthread_mutex_unlock(&own_lock);
  return s != NULL;
}

int mf_stream_destroy(const DLDevice *device, mf_stream stream, mf_error *err) {
  MF__NEED(device);
  mf__device d;
  int rc = mf__device_resolve(device, &d, err);
  if (rc == MF_OK && !give_back(&d, stream))
    rc = mf__fail(err, MF_EINVAL, "stream 0x%llx was not made by mf_stream_create on this device, or is gone",
                  (unsigned long long)stream);
  return mf__end(rc, __func__, err);
}

/* In a forked child the lock may have been another thread's, and no stream is left. */
bool mf__stream_owned(const mf__backend *backend, int32_t ordinal, mf_stream stream) {
  const own_stream *s;
  if (!backend->usable()) return false;
  pthread_mutex_lock(&own_lock);
  for (s = own_streams; s != NULL; s = s->next)
    if (s->handle == stream && s->backend == backend && s->ordinal == ordinal) break;
  pthread_mutex_unlock(&own_lock);
  return s != NULL;
}

/* While a holder is counted, a record may name a kept stream. */
static own_stream *unlink_kept(const mf__backend *backend, int32_t ordinal) {
  own_stream *found = NULL;
  pthread_mutex_lock(&own_lock);
  for (own_stream **at = &own_streams; *at != NULL && found == NULL && mf__holders(backend) == 0;) {
    own_stream *s = *at;
    if (s->in_use || s->backend != backend || s->ordinal != ordinal) {
      at = &s->next;
      continue;
    }
    *at = s->next;
    found = s;
  }
  pthread_mutex_unlock(&own_lock);
  return found;
}

bool mf__streams_exist(const mf__backend *backend) {
  const own_stream *s;
  pthread_mutex_lock(&own_lock);
  for (s = own_streams; s != NULL; s = s->next)
    if (s->backend == backend) break;
  pthread_mutex_unlock(&own_lock);
  return s != NULL;
}

/* A driver that may drop what a destroyed stream has to do is asked first; where it fails to say, the stream goes. */
static bool is_busy(own_stream *s) {
  const mf__queue q = {.backend = s->backend, .ordinal = s->ordinal, .stream = s->handle};
  bool done = true;
  s->busy = s->backend->destroy_may_drop && mf__queue_query(&q, &done, NULL) == MF_OK && !done;
  return s->busy;
}

bool mf__streams_busy(const mf__backend *backend) {
  const own_stream *s;
  if (mf__holders(backend) != 0) return false;
  pthread_mutex_lock(&own_lock);
  for (s = own_streams; s != NULL; s = s->next)
    if (s->backend == backend && !s->in_use && s->busy) break;
  pthread_mutex_unlock(&own_lock);
  return s != NULL;
}

/* A capture would go with its stream, and work may, so that such a one stays. */
void mf__stream_trim(const mf__backend *backend, int32_t ordinal) {
  mf__scope scope;
  own_stream *s, *staying = NULL;
  if (mf__holders(backend) != 0 || !backend->usable() || !mf__streams_exist(backend)) return;
  if (mf__enter_relaxed(&scope, backend, ordinal, NULL) != MF_OK) return;
  while ((s = unlink_kept(backend, ordinal)) != NULL) {
    if (is_captured(s) || is_busy(s)) {
      s->next = staying;
      staying = s;
      continue;
    }
    (void)backend->stream_destroy(s->handle, NULL);
    free(s);
  }
  while ((s = staying) != NULL) {
    staying = s->next;
    link_stream(s);
  }
  mf__leave(&scope);
}
