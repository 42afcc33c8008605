/* queue.c: events, and one queue that waits for another or is waited for by the host. A queue is a stream of a device.
 *
 * Invariant: nothing here breaks a capture: of a stream that is being captured nothing is asked that a capture forbids,
 * and calls that a capture elsewhere forbids are made in relaxed mode. It must not know about records, which say for
 * whom to wait. */
#include "internal.h"

/* Threads, backends */

uint32_t mf__thread_number(void) {
  static _Atomic uint32_t last;
  static _Thread_local uint32_t mine;
  if (mine == 0) mine = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
  return mine;
}

static _Atomic int64_t holders[2];

static int backend_index(const mf__backend *backend) {
  return backend == &mf__backend_hip;
}

void mf__holders_add(const mf__backend *backend, int64_t delta) {
  atomic_fetch_add_explicit(&holders[backend_index(backend)], delta, memory_order_acq_rel);
}

int64_t mf__holders(const mf__backend *backend) {
  return atomic_load_explicit(&holders[backend_index(backend)], memory_order_acquire);
}

/* Events */

#define KEPT_EVENTS 64

typedef struct event_pool {
  pthread_mutex_t lock;
  int32_t count;
  void *events[KEPT_EVENTS];
} event_pool;

static event_pool event_pools[2][MF__MAX_ORDINALS];
static pthread_once_t event_once = PTHREAD_ONCE_INIT;

static void event_pools_init(void) {
  for (int b = 0; b < 2; b++)
    for (int i = 0; i < MF__MAX_ORDINALS; i++) pthread_mutex_init(&event_pools[b][i].lock, NULL);
}

static event_pool *event_pool_of(const mf__backend *backend, int32_t ordinal) {
  pthread_once(&event_once, event_pools_init);
  return &event_pools[backend_index(backend)][ordinal];
}

static void *event_pop(event_pool *pool) {
  pthread_mutex_lock(&pool->lock);
  void *event = pool->count > 0 ? pool->events[--pool->count] : NULL;
  pthread_mutex_unlock(&pool->lock);
  return event;
}

int mf__event_take(const mf__backend *backend, int32_t ordinal, void **out, mf_error *err) {
  mf__entered before;
  *out = event_pop(event_pool_of(backend, ordinal));
  if (*out != NULL) return MF_OK;
  int rc = backend->enter(ordinal, &before, err);
  if (rc != MF_OK) return rc;
  rc = backend->event_create(out, err);
  backend->leave(&before);
  return rc;
}

static void event_destroy(const mf__backend *backend, int32_t ordinal, void *event) {
  mf__entered before;
  if (!backend->usable() || backend->enter(ordinal, &before, NULL) != MF_OK) return;
  (void)backend->event_destroy(event, NULL);
  backend->leave(&before);
}

void mf__event_give(const mf__backend *backend, int32_t ordinal, void *event) {
  event_pool *pool = event_pool_of(backend, ordinal);
  pthread_mutex_lock(&pool->lock);
  const bool kept = pool->count < KEPT_EVENTS;
  if (kept) pool->events[pool->count++] = event;
  pthread_mutex_unlock(&pool->lock);
  if (!kept) event_destroy(backend, ordinal, event);
}

bool mf__events_exist(const mf__backend *backend, int32_t ordinal) {
  event_pool *pool = event_pool_of(backend, ordinal);
  pthread_mutex_lock(&pool->lock);
  const bool has = pool->count > 0;
  pthread_mutex_unlock(&pool->lock);
  return has;
}

void mf__event_trim(const mf__backend *backend, int32_t ordinal) {
  event_pool *pool = event_pool_of(backend, ordinal);
  mf__entered before;
  if (!backend->usable() || !mf__events_exist(backend, ordinal)) return;
  if (backend->enter(ordinal, &before, NULL) != MF_OK) return;
  for (void *event = event_pop(pool); event != NULL; event = event_pop(pool)) (void)backend->event_destroy(event, NULL);
  backend->leave(&before);
}

/* Driver calls that a capture elsewhere does not forbid */

int mf__scope_open(mf__scope *s, const mf__backend *backend, int32_t ordinal, mf_error *err) {
  s->backend = backend;
  const int rc = backend->enter(ordinal, &s->before, err);
  if (rc == MF_OK) s->relaxed = backend->capture_relax(true, NULL) == MF_OK;
  return rc;
}

void mf__scope_close(const mf__scope *s) {
  if (s->relaxed) (void)s->backend->capture_relax(false, NULL);
  s->backend->leave(&s->before);
}

/* One queue waits for another */

static bool same_queue(const mf__queue *a, const mf__queue *b) {
  return a->ordinal == b->ordinal && a->stream == b->stream;
}

static int capture_of(const mf__queue *q, uint64_t *id, mf_error *err) {
  mf__entered before;
  int rc = q->backend->enter(q->ordinal, &before, err);
  if (rc != MF_OK) return rc;
  rc = q->backend->stream_capture(q->stream, id, err);
  q->backend->leave(&before);
  return rc;
}

/* Whether everything on the queue is done. In relaxed mode, because a capture elsewhere forbids to ask. */
static int is_done(const mf__queue *q, bool *done, mf_error *err) {
  mf__entered before;
  int rc = q->backend->enter(q->ordinal, &before, err);
  if (rc != MF_OK) return rc;
  rc = q->backend->capture_relax(true, err);
  if (rc == MF_OK) {
    rc = q->backend->stream_query(q->stream, done, err);
    const int off = q->backend->capture_relax(false, rc == MF_OK ? err : NULL);
    if (rc == MF_OK) rc = off;
  }
  q->backend->leave(&before);
  return rc;
}

static int refuse_capture(const mf__queue *captured, const mf__queue *other, mf_error *err) {
  return mf__fail(err, MF_ECAPTURE,
                  "stream 0x%llx of %s:%d is being captured and stream 0x%llx of %s:%d is not in the same capture; "
                  "neither can wait for the other",
                  (unsigned long long)captured->stream, captured->backend->name, captured->ordinal,
                  (unsigned long long)other->stream, other->backend->name, other->ordinal);
}

/* *needed becomes false where the other's work is done, which is all that a capture can wait for. */
static int check_captures(const mf__queue *on, const mf__queue *other, bool *needed, mf_error *err) {
  uint64_t mine = 0, theirs = 0;
  bool done = false;
  *needed = true;
  int rc = capture_of(on, &mine, err);
  if (rc == MF_OK) rc = capture_of(other, &theirs, err);
  if (rc != MF_OK || mine == theirs) return rc;
  if (theirs != 0) return refuse_capture(other, on, err);
  rc = is_done(other, &done, err);
  if (rc == MF_OK && !done) rc = refuse_capture(on, other, err);
  *needed = false;
  return rc;
}

static int record_at(const mf__queue *at, void *event, mf_error *err) {
  mf__entered before;
  int rc = at->backend->enter(at->ordinal, &before, err);
  if (rc != MF_OK) return rc;
  rc = at->backend->event_record(event, at->stream, err);
  at->backend->leave(&before);
  return rc;
}

static int wait_at(const mf__queue *at, void *event, mf_error *err) {
  mf__entered before;
  int rc = at->backend->enter(at->ordinal, &before, err);
  if (rc != MF_OK) return rc;
  rc = at->backend->event_wait(event, at->stream, err);
  at->backend->leave(&before);
  return rc;
}

int mf__queue_wait(const mf__queue *on, const mf__queue *other, mf_error *err) {
  bool needed;
  void *event;
  if (same_queue(on, other)) return MF_OK;
  int rc = check_captures(on, other, &needed, err);
  if (rc != MF_OK || !needed) return rc;
  rc = mf__event_take(other->backend, other->ordinal, &event, err);
  if (rc != MF_OK) return rc;
  rc = record_at(other, event, err);
  /* A wait looks at the event as it is now, so that the event may be recorded anew at once. */
  if (rc == MF_OK) rc = wait_at(on, event, err);
  mf__event_give(other->backend, other->ordinal, event);
  return rc;
}

/* Events that were recorded earlier */

int mf__queue_mark(const mf__queue *q, void **event, uint64_t *name, mf_error *err) {
  mf__entered before;
  uint64_t id = 0;
  int rc = mf__event_take(q->backend, q->ordinal, event, err);
  if (rc != MF_OK) return rc;
  rc = q->backend->enter(q->ordinal, &before, err);
  if (rc == MF_OK) {
    rc = q->backend->stream_capture(q->stream, &id, err);
    if (rc == MF_OK && id != 0)
      rc = mf__fail(err, MF_ECAPTURE, "stream 0x%llx of %s:%d is being captured", (unsigned long long)q->stream,
                    q->backend->name, q->ordinal);
    if (rc == MF_OK) rc = q->backend->event_record(*event, q->stream, err);
    if (rc == MF_OK && name != NULL) *name = q->backend->stream_name(q->stream);
    q->backend->leave(&before);
  }
  if (rc == MF_OK) return rc;
  mf__event_give(q->backend, q->ordinal, *event);
  *event = NULL;
  return rc;
}

bool mf__event_done(const mf__backend *backend, int32_t ordinal, void *event) {
  mf__scope scope;
  bool done = false;
  if (mf__scope_open(&scope, backend, ordinal, NULL) != MF_OK) return false;
  if (backend->event_query(event, &done, NULL) != MF_OK) done = false;
  mf__scope_close(&scope);
  return done;
}

int mf__queue_follow(const mf__queue *on, int32_t ordinal, void *event, mf_error *err) {
  uint64_t id = 0;
  const int rc = capture_of(on, &id, err);
  if (rc != MF_OK) return rc;
  if (id == 0) return wait_at(on, event, err);
  if (mf__event_done(on->backend, ordinal, event)) return MF_OK;
  return mf__fail(err, MF_ECAPTURE,
                  "stream 0x%llx of %s:%d is being captured, and cannot wait for what was queued on %s:%d before",
                  (unsigned long long)on->stream, on->backend->name, on->ordinal, on->backend->name, ordinal);
}

/* The host waits */

int mf__event_reach(const mf__backend *backend, int32_t ordinal, void *event, mf_error *err) {
  mf__scope scope;
  int rc = mf__scope_open(&scope, backend, ordinal, err);
  if (rc != MF_OK) return rc;
  rc = backend->event_synchronize(event, err);
  mf__scope_close(&scope);
  return rc;
}

int mf__queue_reach(const mf__queue *q, mf_error *err) {
  uint64_t id;
  mf__entered before;
  int rc = capture_of(q, &id, err);
  if (rc == MF_OK && id != 0)
    rc = mf__fail(err, MF_ECAPTURE, "the host cannot wait for stream 0x%llx of %s:%d, which is being captured",
                  (unsigned long long)q->stream, q->backend->name, q->ordinal);
  if (rc == MF_OK) rc = q->backend->enter(q->ordinal, &before, err);
  if (rc != MF_OK) return rc;
  rc = q->backend->capture_relax(true, err);
  if (rc == MF_OK) {
    rc = q->backend->stream_synchronize(q->stream, err);
    (void)q->backend->capture_relax(false, NULL);
  }
  q->backend->leave(&before);
  return rc;
}

int mf__device_reach(const mf__backend *backend, int32_t ordinal, mf_error *err) {
  mf__scope scope;
  int rc = mf__scope_open(&scope, backend, ordinal, err);
  if (rc != MF_OK) return rc;
  rc = backend->device_synchronize(err);
  mf__scope_close(&scope);
  return rc;
}

/* What a driver says of the handle itself */

bool mf__queue_done(const mf__queue *q) {
  uint64_t id;
  bool done = false;
  return capture_of(q, &id, NULL) == MF_OK && id == 0 && is_done(q, &done, NULL) == MF_OK && done;
}

bool mf__queue_gone(const mf__queue *q) {
  mf__entered before;
  int32_t ordinal;
  if (q->stream <= MF_STREAM_PER_THREAD || q->backend->enter(q->ordinal, &before, NULL) != MF_OK) return false;
  const bool gone = q->backend->stream_device(q->stream, &ordinal, NULL) == MF_EINVAL || ordinal != q->ordinal;
  q->backend->leave(&before);
  return gone;
}

uint64_t mf__queue_name(const mf__queue *q) {
  mf__entered before;
  if (q->backend->enter(q->ordinal, &before, NULL) != MF_OK) return 0;
  const uint64_t name = q->backend->stream_name(q->stream);
  q->backend->leave(&before);
  return name;
}
