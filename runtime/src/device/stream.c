/* stream.c: which stream a name, a handle or a number of the Python protocol means; the threads' current streams;
 * the streams that we make.
 *
 * Invariant: a stream of ours that was given back stays with us, for the next who asks, as long as a record or kept
 * memory may still name it: a record can always be waited for. It must not know who waits for whom. */
#include "core/core.h"

#include <stdlib.h>

static _Atomic int32_t none_meaning;

int mf_stream_none_set(int32_t meaning, mf_error *err) {
  if (meaning >= MF_NONE_DEFAULT && meaning <= MF_NONE_REFUSE) {
    atomic_store(&none_meaning, meaning);
    return MF_OK;
  }
  const int rc = mf__fail(err, MF_EINVAL, "meaning is %d; 0 (default), 1 (no order) or 2 (refuse) expected", meaning);
  return mf__end(rc, __func__, err);
}

int32_t mf_stream_none(void) {
  return atomic_load(&none_meaning);
}

/* Numbers of the Python protocol: one row for each device type. */

typedef enum meaning { REFUSED, HOST, NO_ORDER, DEFAULT, PER_THREAD, HANDLE, SETTING } meaning;

typedef struct number_row {
  int32_t device_type;
  uint8_t none, minus_one, zero, one, two, above; /* a meaning */
} number_row;

static const number_row numbers[] = {
    {kDLCPU, HOST, HOST, REFUSED, REFUSED, REFUSED, REFUSED},
    {kDLCUDA, SETTING, NO_ORDER, REFUSED, DEFAULT, PER_THREAD, HANDLE},
    {kDLCUDAHost, HOST, NO_ORDER, REFUSED, DEFAULT, PER_THREAD, HANDLE},
    {kDLCUDAManaged, HOST, NO_ORDER, REFUSED, DEFAULT, PER_THREAD, HANDLE},
    {kDLROCM, SETTING, NO_ORDER, DEFAULT, REFUSED, REFUSED, HANDLE},
    {kDLROCMHost, HOST, NO_ORDER, DEFAULT, REFUSED, REFUSED, HANDLE},
};

#define NNUMBERS (sizeof numbers / sizeof numbers[0])

static const number_row *row_of(const DLDevice *device) {
  for (size_t i = 0; i < NNUMBERS; i++)
    if (numbers[i].device_type == (int32_t)device->device_type) return &numbers[i];
  return NULL;
}

static meaning meaning_of(const number_row *row, int64_t number) {
  uint8_t m = row->above;
  if (number == MF_NUMBER_NONE) m = row->none;
  else if (number < -1) m = REFUSED;
  else if (number == -1) m = row->minus_one;
  else if (number == 0) m = row->zero;
  else if (number == 1) m = row->one;
  else if (number == 2) m = row->two;
  return (meaning)m;
}

static const char *expectation(int32_t type) {
  if (type == kDLCPU) return "None or -1";
  if (type == kDLROCM || type == kDLROCMHost) return "None, -1, 0 (default) or a handle above 2";
  return "None, -1, 1 (legacy default), 2 (per thread) or a handle";
}

static int refuse_number(const DLDevice *device, int64_t number, mf_error *err) {
  const int32_t type = (int32_t)device->device_type;
  if (number == 0 && type != kDLCPU)
    return mf__fail(err, MF_EINVAL, "stream is 0, which could be either default stream of %s; 1 (legacy default), 2 "
                    "(per thread), None, -1 or a handle expected", mf__device_type_name(type));
  return mf__fail(err, MF_EINVAL, "stream is %lld; %s expected for memory on %s", (long long)number, expectation(type),
                  mf__device_type_name(type));
}

static int none_by_setting(const DLDevice *device, mf_stream *out, mf_error *err) {
  switch (mf_stream_none()) {
    case MF_NONE_DEFAULT: *out = MF_STREAM_DEFAULT; return MF_OK;
    case MF_NONE_NO_ORDER: *out = MF_STREAM_NO_ORDER; return MF_OK;
    default:
      return mf__fail(err, MF_EINVAL, "stream is None, which mf_stream_none_set refuses; a stream of %s expected",
                      mf__device_type_name((int32_t)device->device_type));
  }
}

int mf_stream_from_number(const DLDevice *device, int64_t number, mf_stream *out, mf_error *err) {
  static const mf_stream names[] = {[HOST] = MF_STREAM_HOST, [NO_ORDER] = MF_STREAM_NO_ORDER,
                                    [DEFAULT] = MF_STREAM_DEFAULT, [PER_THREAD] = MF_STREAM_PER_THREAD};
  const number_row *row = row_of(device);
  int rc = MF_OK;
  *out = MF_STREAM_CURRENT;
  const meaning m = row == NULL ? REFUSED : meaning_of(row, number);
  if (m == SETTING) rc = none_by_setting(device, out, err);
  else if (m == HANDLE) *out = number;
  else if (m != REFUSED) *out = names[m];
  else if (row != NULL) rc = refuse_number(device, number, err);
  else rc = mf__fail(err, MF_EINVAL, "device.device_type is %d, which has no streams here", (int)device->device_type);
  return mf__end(rc, __func__, err);
}

static int number_of(const DLDevice *device, mf_stream stream, int64_t *out, mf_error *err) {
  mf__device d;
  mf__queue q;
  int rc = mf__device_resolve(device, &d, err);
  if (rc != MF_OK || d.backend == NULL) return rc;
  rc = mf__queue_resolve(&d, stream, false, &q, err);
  if (rc != MF_OK) return rc;
  *out = q.stream;
  if (q.backend == NULL) *out = MF_NUMBER_NONE;
  const number_row *row = row_of(device);
  if (q.backend == NULL || row->zero != DEFAULT) return MF_OK;
  if (q.stream == MF_STREAM_PER_THREAD)
    return mf__fail(err, MF_EINVAL, "the per-thread stream of %s has no number in the Python protocol",
                    mf__device_type_name((int32_t)device->device_type));
  if (q.stream == MF_STREAM_DEFAULT) *out = 0;
  return MF_OK;
}

int mf_stream_to_number(const DLDevice *device, mf_stream stream, int64_t *out, mf_error *err) {
  *out = MF_NUMBER_NONE;
  return mf__end(number_of(device, stream, out, err), __func__, err);
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
  mf__scope scope;
  int rc = mf__enter(&scope, device->backend, device->ordinal, err);
  if (rc != MF_OK) return rc;
  rc = device->backend->stream_device(stream, ordinal, err);
  mf__leave(&scope);
  if (rc != MF_OK || *ordinal == device->ordinal || device->space != MF__DEVICE) return rc;
  return mf__fail(err, MF_EINVAL, "stream 0x%llx is one of %s:%d; a stream of %s:%d expected",
                  (unsigned long long)stream, device->backend->name, *ordinal, device->backend->name,
                  device->ordinal);
}

int mf__queue_resolve(const mf__device *device, mf_stream stream, bool check, mf__queue *out, mf_error *err) {
  *out = (mf__queue){.backend = device->backend, .ordinal = device->ordinal, .stream = stream};
  if (stream < MF_STREAM_HOST)
    return mf__fail(err, MF_EINVAL, "stream is %lld; a name (-2 to 2) or a handle expected", (long long)stream);
  if (stream == MF_STREAM_HOST || device->backend == NULL) {
    *out = mf__queue_host();
    if (device->backend != NULL || stream <= MF_STREAM_CURRENT) return MF_OK;
    return mf__fail(err, MF_EINVAL, "stream is %lld; the cpu has no streams", (long long)stream);
  }
  if (stream == MF_STREAM_CURRENT) out->stream = current(device);
  if (out->stream == MF_STREAM_PER_THREAD) out->thread = mf__thread_number();
  if (!check || stream <= MF_STREAM_PER_THREAD || stream == current(device)) return MF_OK;
  return owner_of(device, stream, &out->ordinal, err);
}

int mf_stream_check(const DLDevice *device, mf_stream stream, mf_error *err) {
  mf__device d;
  mf__queue q;
  int rc = mf__device_resolve(device, &d, err);
  if (rc == MF_OK) rc = mf__queue_resolve(&d, stream, true, &q, err);
  return mf__end(rc, __func__, err);
}

int mf_stream_current(const DLDevice *device, mf_stream *out, mf_error *err) {
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
  if (old != NULL) *old = MF_STREAM_CURRENT;
  return mf__end(swap(device, stream, old, err), __func__, err);
}

/* Streams of ours */

typedef struct own_stream {
  struct own_stream *next;
  const mf__backend *backend;
  mf_stream handle;
  int32_t ordinal;
  bool in_use;
} own_stream;

static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;
static own_stream *own_streams;

static own_stream *take_kept(const mf__device *device) {
  own_stream *s;
  pthread_mutex_lock(&own_lock);
  for (s = own_streams; s != NULL; s = s->next)
    if (!s->in_use && s->backend == device->backend && s->ordinal == device->ordinal) break;
  if (s != NULL) s->in_use = true;
  pthread_mutex_unlock(&own_lock);
  return s;
}

static int create_handle(const mf__device *device, mf_stream *out, mf_error *err) {
  mf__scope scope;
  int rc = mf__enter_relaxed(&scope, device->backend, device->ordinal, err);
  if (rc != MF_OK) return rc;
  rc = device->backend->stream_create(out, err);
  mf__leave(&scope);
  return rc;
}

/* These entries outlive every tensor, so that they are no blocks of the ledger. */
static int create_stream(const mf__device *device, own_stream **out, mf_error *err) {
  own_stream *s = mf__lasting_alloc(sizeof *s);
  if (s == NULL) return mf__fail(err, MF_ENOMEM, "no memory for a stream's entry");
  *s = (own_stream){.backend = device->backend, .ordinal = device->ordinal, .in_use = true};
  const int rc = create_handle(device, &s->handle, err);
  if (rc != MF_OK) {
    free(s);
    return rc;
  }
  pthread_mutex_lock(&own_lock);
  s->next = own_streams;
  own_streams = s;
  pthread_mutex_unlock(&own_lock);
  *out = s;
  return MF_OK;
}

int mf_stream_create(const DLDevice *device, mf_stream *out, mf_error *err) {
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
  mf__device d;
  int rc = mf__device_resolve(device, &d, err);
  if (rc == MF_OK && !give_back(&d, stream))
    rc = mf__fail(err, MF_EINVAL, "stream 0x%llx was not made by mf_stream_create on this device, or is gone",
                  (unsigned long long)stream);
  return mf__end(rc, __func__, err);
}

bool mf__stream_owned(const mf__backend *backend, int32_t ordinal, mf_stream stream) {
  const own_stream *s;
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

void mf__stream_trim(const mf__backend *backend, int32_t ordinal) {
  mf__scope scope;
  own_stream *s;
  if (mf__holders(backend) != 0 || !backend->usable() || !mf__streams_exist(backend)) return;
  if (mf__enter_relaxed(&scope, backend, ordinal, NULL) != MF_OK) return;
  while ((s = unlink_kept(backend, ordinal)) != NULL) {
    (void)backend->stream_destroy(s->handle, NULL);
    free(s);
  }
  mf__leave(&scope);
}

/* Waiting */

static int open_queue(const DLDevice *device, mf_stream stream, mf__queue *out, mf_error *err) {
  mf__device d;
  int rc = mf__device_resolve(device, &d, err);
  if (rc == MF_OK) rc = mf__queue_resolve(&d, stream, true, out, err);
  if (rc == MF_OK && (out->backend == NULL || out->stream == MF_STREAM_NO_ORDER))
    rc = mf__fail(err, MF_EINVAL, "stream is %lld; a stream of a GPU expected", (long long)stream);
  return rc;
}

int mf_stream_synchronize(const DLDevice *device, mf_stream stream, mf_error *err) {
  mf__queue q;
  int rc = open_queue(device, stream, &q, err);
  if (rc == MF_OK) rc = mf__queue_reach(&q, err);
  mf__retire_poll();
  mf_releases_run();
  return mf__end(rc, __func__, err);
}

int mf_stream_query(const DLDevice *device, mf_stream stream, int32_t *out, mf_error *err) {
  mf__queue q;
  bool done = false;
  int rc = open_queue(device, stream, &q, err);
  if (rc == MF_OK) rc = mf__queue_query(&q, &done, err);
  *out = done;
  return mf__end(rc, __func__, err);
}

int mf_stream_wait(const DLDevice *device, mf_stream stream, const DLDevice *other_device, mf_stream other,
                   mf_error *err) {
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

int mf_device_synchronize(const DLDevice *device, mf_error *err) {
  mf__device d;
  int rc = mf__device_resolve(device, &d, err);
  if (rc != MF_OK || d.backend == NULL) return mf__end(rc, __func__, err);
  rc = mf__device_reach(d.backend, d.ordinal, err);
  mf__retire_drain(d.backend);
  mf_releases_run();
  return mf__end(rc, __func__, err);
}
