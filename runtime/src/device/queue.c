/* queue.c: keeps events, and makes one queue, or the host, wait for another queue. A queue is a stream of a device.
 *
 * Invariant: nothing here breaks a capture (scope.c), and the whole device is waited for only where a program asks for
 * that, because this breaks any capture on it (CUDA Programming Guide, "Prohibited and Unhandled Operations").
 *
 * The per-thread stream of another thread has no name here. Only an action in the legacy stream is documented to be
 * ordered behind it, not a query of that stream or a wait for it (CUDA Driver API, "Stream synchronization behavior"),
 * so that an event which is recorded there stands for it. It must not know about records, which say for which queues to
 * wait. */
#include "device/device.h"

#include <stdlib.h>

/* Events */

#define KEPT_EVENTS 64

/* Each event that was created has a place, so that an event which is given back is never lost: neither where the device
 * cannot be entered to destroy it, nor where the host has no memory. */
typedef struct event_pool {
  int32_t count; /* of those that are kept */
  int32_t made;  /* kept and in use */
  int32_t room;  /* of more */
  void *inside[KEPT_EVENTS];
  void **more; /* instead of what is inside, where that is too small */
} event_pool;

static event_pool event_pools[MF__NBACKENDS][MF__MAX_ORDINALS];
static pthread_mutex_t events_lock = PTHREAD_MUTEX_INITIALIZER; /* held for a few instructions */

static event_pool *event_pool_of(const mf__backend *backend, int32_t ordinal) {
  return &event_pools[backend->index][ordinal];
}

static void **places_of(event_pool *pool) {
  return pool->more == NULL ? pool->inside : pool->more;
}

/* Whether one more event can have a place, which may need more room. Under the lock, and none is kept, so that the
 * places have nothing in them. */
static bool has_place(event_pool *pool) {
  const int32_t room = pool->more == NULL ? KEPT_EVENTS : pool->room;
  if (pool->made < room) return true;
  void **grown = mf__lasting_grow(pool->more, 2 * (size_t)room * sizeof *grown);
  if (grown == NULL) return false;
  pool->more = grown;
  pool->room = 2 * room;
  return true;
}

/* A kept event, or a new one, which takes its place before it is created. */
int mf__event_take(const mf__backend *backend, int32_t ordinal, void **out, mf_error *err) {
  event_pool *pool = event_pool_of(backend, ordinal);
  pthread_mutex_lock(&events_lock);
  *out = pool->count > 0 ? places_of(pool)[--pool->count] : NULL;
  const bool has = *out != NULL || has_place(pool);
  if (*out == NULL && has) pool->made++;
  const int32_t made = pool->made;
  pthread_mutex_unlock(&events_lock);
  if (*out != NULL) return MF_OK;
  if (!has) return mf__fail(err, MF_ENOMEM, "no memory for more than %d events", made);
  int rc;
  MF__CALL(rc, mf__enter_relaxed, backend, ordinal, err, backend->event_create(out, err));
  if (rc == MF_OK) return rc;
  pthread_mutex_lock(&events_lock);
  pool->made--;
  pthread_mutex_unlock(&events_lock);
  return rc;
}

/* Destroys kept events beyond the most, which give up their places. Where the device cannot be entered they stay. */
static void events_shrink(const mf__backend *backend, int32_t ordinal, int32_t most) {
  event_pool *pool = event_pool_of(backend, ordinal);
  mf__scope scope;
  void *event;
  if (mf__enter_relaxed(&scope, backend, ordinal, NULL) != MF_OK) return;
  do {
    event = NULL;
    pthread_mutex_lock(&events_lock);
    if (pool->count > most) {
      event = places_of(pool)[--pool->count];
      pool->made--;
    }
    if (pool->made == 0) {
      free(pool->more);
      pool->more = NULL;
    }
    pthread_mutex_unlock(&events_lock);
    if (event != NULL) (void)backend->event_destroy(event, NULL);
  } while (event != NULL);
  mf__leave(&scope);
}

/* In a forked child the lock may have been another thread's, and the events are lost with the driver. */
void mf__event_give(const mf__backend *backend, int32_t ordinal, void *event) {
  event_pool *pool = event_pool_of(backend, ordinal);
  if (!backend->usable()) return;
  pthread_mutex_lock(&events_lock);
  places_of(pool)[pool->count++] = event;
  const bool many = pool->count > KEPT_EVENTS;
  pthread_mutex_unlock(&events_lock);
  if (many) events_shrink(backend, ordinal, KEPT_EVENTS);
}

bool mf__events_exist(const mf__backend *backend, int32_t ordinal) {
  const event_pool *pool = event_pool_of(backend, ordinal);
  pthread_mutex_lock(&events_lock);
  const bool has = pool->count > 0;
  pthread_mutex_unlock(&events_lock);
  return has;
}

void mf__event_trim(const mf__backend *backend, int32_t ordinal) {
  if (mf__events_exist(backend, ordinal)) events_shrink(backend, ordinal, 0);
}

/* Events that were recorded */

bool mf__event_done(const mf__backend *backend, int32_t ordinal, void *event) {
  mf__scope scope;
  bool done;
  if (mf__enter_relaxed(&scope, backend, ordinal, NULL) != MF_OK) return false;
  (void)backend->event_query(event, &done, NULL);
  mf__leave(&scope);
  return done;
}

int mf__event_synchronize(const mf__backend *backend, int32_t ordinal, void *event, mf_error *err) {
  int rc;
  MF__CALL(rc, mf__enter_relaxed, backend, ordinal, err, backend->event_synchronize(event, err));
  return rc;
}

/* Records an event in a queue that was found to be in ${capture} (0: in none). Another thread may have begun another
 * one since, which then has the record: no driver ever tells whether such an event is done, and who waits for it
 * becomes a part of that capture. The record itself does a capture no harm. The legacy stream is never captured. */
static int record_in(uint64_t capture, const mf__queue *named, void *event, mf_error *err) {
  uint64_t now = capture;
  int rc = named->backend->event_record(event, named->stream, err);
  if (rc == MF_OK && named->stream != MF_STREAM_DEFAULT) rc = named->backend->stream_capture(named->stream, &now, err);
  if (rc != MF_OK || now == capture) return rc;
  return mf__fail(err, MF_ECAPTURE, "a capture of stream 0x%llx of %s:%d began or ended just as an event was recorded",
                  (unsigned long long)named->stream, named->backend->name, named->ordinal);
}

int mf__queue_record_event(const mf__queue *q, void **event, uint64_t *name, mf_error *err) {
  const mf__queue named = mf__queue_named(q);
  mf__scope scope;
  int rc = mf__event_take(q->backend, q->ordinal, event, err);
  if (rc != MF_OK) return rc;
  rc = mf__enter(&scope, q->backend, q->ordinal, err);
  if (rc == MF_OK) {
    rc = mf__capture_refuse_inside(q, "others cannot wait for what it has to do", err);
    if (rc == MF_OK) rc = record_in(0, &named, *event, err);
    if (rc == MF_OK && name != NULL) *name = q->backend->stream_name(named.stream);
    mf__leave(&scope);
  }
  if (rc == MF_OK) return rc;
  mf__event_give(q->backend, q->ordinal, *event);
  *event = NULL;
  return rc;
}

static int wait_at(const mf__queue *at, void *event, mf_error *err) {
  int rc;
  MF__CALL(rc, mf__enter, at->backend, at->ordinal, err, at->backend->event_wait(event, at->stream, err));
  return rc;
}

int mf__queue_wait_event(const mf__queue *on, int32_t ordinal, void *event, mf_error *err) {
  uint64_t id;
  const int rc = mf__capture_of(on, &id, err);
  if (rc != MF_OK) return rc;
  if (id == 0) return wait_at(on, event, err);
  if (mf__event_done(on->backend, ordinal, event)) return MF_OK;
  return mf__fail(err, MF_ECAPTURE,
                  "stream 0x%llx of %s:%d is being captured, and cannot wait for what was queued on %s:%d before",
                  (unsigned long long)on->stream, on->backend->name, on->ordinal, on->backend->name, ordinal);
}

/* What a queue has to do */

static int query_inside(const mf__queue *q, bool *done, mf_error *err) {
  const int rc = mf__capture_refuse_inside(q, "what it has to do cannot be asked", err);
  return rc == MF_OK ? q->backend->stream_query(q->stream, done, err) : rc;
}

static int is_done(const mf__queue *q, bool *done, mf_error *err) {
  void *event;
  int rc;
  if (!mf__queue_is_elsewhere(q)) {
    MF__CALL(rc, mf__enter_relaxed, q->backend, q->ordinal, err, query_inside(q, done, err));
    return rc;
  }
  rc = mf__queue_record_event(q, &event, NULL, err);
  if (rc != MF_OK) return rc;
  *done = mf__event_done(q->backend, q->ordinal, event);
  mf__event_give(q->backend, q->ordinal, event);
  return MF_OK;
}

int mf__queue_query(const mf__queue *q, bool *done, mf_error *err) {
  *done = false;
  return is_done(q, done, err);
}

bool mf__queue_done(const mf__queue *q) {
  bool done;
  if (mf__queue_is_elsewhere(q)) return false;
  (void)mf__queue_query(q, &done, NULL);
  return done;
}

static int synchronize_inside(const mf__queue *q, mf_error *err) {
  const int rc = mf__capture_refuse_inside(q, "the host cannot wait for it", err);
  return rc == MF_OK ? q->backend->stream_synchronize(q->stream, err) : rc;
}

int mf__queue_synchronize(const mf__queue *q, mf_error *err) {
  void *event;
  int rc;
  if (!mf__queue_is_elsewhere(q)) {
    MF__CALL(rc, mf__enter_relaxed, q->backend, q->ordinal, err, synchronize_inside(q, err));
    return rc;
  }
  rc = mf__queue_record_event(q, &event, NULL, err);
  if (rc != MF_OK) return rc;
  rc = mf__event_synchronize(q->backend, q->ordinal, event, err);
  mf__event_give(q->backend, q->ordinal, event);
  return rc;
}

/* One queue waits for another */

static int refuse_mixture(const mf__queue *captured, const mf__queue *other, mf_error *err) {
  return mf__fail(err, MF_ECAPTURE,
                  "stream 0x%llx of %s:%d is being captured and stream 0x%llx of %s:%d is not in the same capture; "
                  "neither can wait for the other",
                  (unsigned long long)captured->stream, captured->backend->name, captured->ordinal,
                  (unsigned long long)other->stream, other->backend->name, other->ordinal);
}

/* *needed becomes false where the other's work is done, which is all that a capture can wait for; else both are in
 * ${capture}. */
static int check_captures(const mf__queue *on, const mf__queue *other, uint64_t *capture, bool *needed, mf_error *err) {
  const mf__queue named = mf__queue_named(other);
  uint64_t mine;
  bool done;
  *needed = true;
  int rc = mf__capture_of(on, &mine, err);
  if (rc == MF_OK) rc = mf__capture_of(&named, capture, err);
  if (rc != MF_OK || mine == *capture) return rc;
  if (*capture != 0) return refuse_mixture(other, on, err);
  rc = is_done(other, &done, err);
  if (rc == MF_OK && !done) rc = refuse_mixture(on, other, err);
  *needed = false;
  return rc;
}

/* Asks about captures last, because another thread may begin one while an event is made. */
static int wait_by(void *event, const mf__queue *on, const mf__queue *other, mf_error *err) {
  const mf__queue named = mf__queue_named(other);
  uint64_t capture;
  bool needed;
  int rc = check_captures(on, other, &capture, &needed, err);
  if (rc != MF_OK || !needed) return rc;
  MF__CALL(rc, mf__enter, named.backend, named.ordinal, err, record_in(capture, &named, event, err));
  /* A wait is for the last record of the event at the time of the call, so that the event may be recorded anew at once
   * (CUDA Driver API, Event Management, cuEventRecord). */
  return rc == MF_OK ? wait_at(on, event, err) : rc;
}

static int wait_inside(const mf__queue *on, const mf__queue *other, mf_error *err) {
  void *event;
  int rc = mf__event_take(other->backend, other->ordinal, &event, err);
  if (rc != MF_OK) return rc;
  rc = wait_by(event, on, other, err);
  mf__event_give(other->backend, other->ordinal, event);
  return rc;
}

/* A stream is behind its own work. The device is entered once for all of it: to make it current costs a driver call or
 * two, to find it current half of one. */
int mf__queue_wait(const mf__queue *on, const mf__queue *other, mf_error *err) {
  const mf__queue named = mf__queue_named(other);
  int rc;
  if (on->ordinal == named.ordinal && on->stream == named.stream && on->thread == named.thread) return MF_OK;
  MF__CALL(rc, mf__enter, on->backend, on->ordinal, err, wait_inside(on, other, err));
  return rc;
}

/* Devices, and the state of a handle */

static _Atomic uint64_t waits_begun[MF__NBACKENDS][MF__MAX_ORDINALS], waits_ended[MF__NBACKENDS][MF__MAX_ORDINALS];

int mf__device_synchronize(const mf__backend *backend, int32_t ordinal, mf_error *err) {
  const uint64_t number = atomic_fetch_add(&waits_begun[backend->index][ordinal], 1) + 1;
  int rc;
  MF__CALL(rc, mf__enter_relaxed, backend, ordinal, err, backend->device_synchronize(err));
  _Atomic uint64_t *ended = &waits_ended[backend->index][ordinal];
  uint64_t last = atomic_load(ended);
  while (rc == MF_OK && last < number && !atomic_compare_exchange_weak(ended, &last, number)) {
  }
  return rc;
}

uint64_t mf__device_waits(const mf__backend *backend, int32_t ordinal) {
  return atomic_load(&waits_begun[backend->index][ordinal]);
}

bool mf__device_waited(const mf__backend *backend, int32_t ordinal, uint64_t since) {
  return atomic_load(&waits_ended[backend->index][ordinal]) > since;
}

bool mf__queue_is_destroyed(const mf__queue *q) {
  mf__scope scope;
  int32_t ordinal;
  if (q->stream <= MF_STREAM_PER_THREAD || mf__enter(&scope, q->backend, q->ordinal, NULL) != MF_OK) return false;
  const int rc = q->backend->stream_device(q->stream, &ordinal, NULL);
  bool gone = rc == MF_OK && ordinal != q->ordinal;
  if (rc == MF_EINVAL) {
    /* A lost device may fail every call as a driver fails one about a dead handle. A stream that cannot be dead tells
     * the two apart. */
    uint64_t id;
    const int living = q->backend->stream_capture(MF_STREAM_PER_THREAD, &id, NULL);
    gone = living == MF_OK || living == MF_ECAPTURE;
  }
  mf__leave(&scope);
  return gone;
}

uint64_t mf__queue_name(const mf__queue *q) {
  mf__scope scope;
  if (mf__enter(&scope, q->backend, q->ordinal, NULL) != MF_OK) return 0;
  const uint64_t name = q->backend->stream_name(q->stream);
  mf__leave(&scope);
  return name;
}
