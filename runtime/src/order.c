/* order.c: who waits for whom. Each memory that a driver knows has a record of the streams that used it; an
 * operation waits on the device for those streams that it must, and for no other.
 *
 * Invariant: between mf__order_begin and mf__order_end the record is locked, so whoever finds a stream in a record
 * finds its work queued. Events are recorded when somebody has to wait, never at a use: a use on one stream costs no
 * driver call. The legacy stream's implicit order is relied on in one place only, to reach another thread's
 * per-thread stream, which has no other name.
 *
 * It must not know about tensors, or what the numbers of the Python protocol mean. */
#define _POSIX_C_SOURCE 200809L
#include "internal.h"

#include <sched.h>
#include <string.h>
#include <time.h>

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

static bool has_events(event_pool *pool) {
  pthread_mutex_lock(&pool->lock);
  const bool has = pool->count > 0;
  pthread_mutex_unlock(&pool->lock);
  return has;
}

void mf__event_trim(const mf__backend *backend, int32_t ordinal) {
  event_pool *pool = event_pool_of(backend, ordinal);
  mf__entered before;
  if (!backend->usable() || !has_events(pool) || backend->enter(ordinal, &before, NULL) != MF_OK) return;
  for (void *event = event_pop(pool); event != NULL; event = event_pop(pool)) (void)backend->event_destroy(event, NULL);
  backend->leave(&before);
}

/* One stream waits for another */

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

/* Records */

/* One atomic exchange, where a mutex takes two, because every use of a tensor pays for it. Who finds it taken sleeps:
 * a copy through the host may hold it for long. In a forked child nobody is left who could unlock. */
static void lock(mf__access *a) {
  const struct timespec nap = {.tv_nsec = 20000};
  for (int tries = 0; atomic_exchange_explicit(&a->locked, 1, memory_order_acquire) != 0; tries++) {
    if (tries < 100) sched_yield();
    else nanosleep(&nap, NULL);
    if (!a->backend->usable()) return;
  }
}

static void unlock(mf__access *a) {
  atomic_store_explicit(&a->locked, 0, memory_order_release);
}

int mf__access_create(const mf__device *device, mf__access **out, mf_error *err) {
  mf__access *a = mf__alloc(sizeof *a);
  *out = a;
  if (a == NULL) return mf__fail(err, MF_ENOMEM, "no memory for a record of %zu bytes", sizeof *a);
  memset(a, 0, sizeof *a);
  a->backend = device->backend;
  a->space = device->space;
  a->ordinal = device->ordinal;
  a->touches = a->inside;
  a->room = MF__TOUCHES_INSIDE;
  atomic_init(&a->locked, 0);
  mf__holders_add(a->backend, 1);
  return MF_OK;
}

void mf__access_free(mf__access *a) {
  if (a->touches != a->inside) mf__free(a->touches, (size_t)a->room * sizeof *a->touches);
  mf__holders_add(a->backend, -1);
  mf__free(a, sizeof *a);
}

mf__device mf__access_device(const mf__access *a) {
  return (mf__device){.backend = a->backend, .space = a->space, .ordinal = a->ordinal};
}

static int reserve(mf__access *a, mf_error *err) {
  if (a->count < a->room) return MF_OK;
  mf__touch *grown = mf__alloc((size_t)a->room * 2 * sizeof *grown);
  if (grown == NULL) return mf__fail(err, MF_ENOMEM, "no memory for a record of %d streams", a->room * 2);
  memcpy(grown, a->touches, (size_t)a->count * sizeof *grown);
  if (a->touches != a->inside) mf__free(a->touches, (size_t)a->room * sizeof *grown);
  a->touches = grown;
  a->room *= 2;
  return MF_OK;
}

static uint32_t owner_of(mf_stream stream) {
  return stream == MF_STREAM_PER_THREAD ? mf__thread_number() : 0;
}

static mf__touch *find(mf__access *a, const mf__queue *q, uint32_t thread) {
  for (int32_t i = 0; i < a->count; i++) {
    mf__touch *t = &a->touches[i];
    if (t->stream == q->stream && t->ordinal == q->ordinal && t->thread == thread) return t;
  }
  return NULL;
}

/* The queue's own entry; there is room for a new one. */
static mf__touch *entry(mf__access *a, const mf__queue *q) {
  const uint32_t thread = owner_of(q->stream);
  mf__touch *t = find(a, q, thread);
  if (t != NULL) return t;
  t = &a->touches[a->count++];
  *t = (mf__touch){.ordinal = q->ordinal, .thread = thread, .stream = q->stream};
  return t;
}

bool mf__order_knows(mf__access *a, mf_stream stream, int32_t *ordinal) {
  bool known = false;
  if (a == NULL || stream <= MF_STREAM_PER_THREAD) return false;
  lock(a);
  for (int32_t i = 0; i < a->count && !known; i++) {
    known = a->touches[i].stream == stream;
    if (known) *ordinal = a->touches[i].ordinal;
  }
  unlock(a);
  return known;
}

static bool is_open(const mf__touch *t) {
  return t->open_reads > 0 || t->open_writes > 0;
}

/* Where the touch's work is queued, as seen from this thread. */
static mf__queue queue_of(const mf__backend *backend, const mf__touch *t) {
  const bool elsewhere = t->thread != 0 && t->thread != mf__thread_number();
  return (mf__queue){backend, t->ordinal, elsewhere ? MF_STREAM_DEFAULT : t->stream};
}

static bool must_wait(const mf__touch *t, const mf__touch *self, bool write) {
  const uint64_t seen_writes = self == NULL ? 0 : self->seen_writes;
  if (t == self) return false;
  if (t->open_writes > 0 || t->last_write > seen_writes) return true;
  return write && (t->open_reads > 0 || t->last_read > 0);
}

static int wait_on_device(const mf__queue *on, mf__access *a, bool write, mf_error *err) {
  if (on->backend != a->backend)
    return mf__fail(err, MF_EINVAL, "the stream is one of %s; the memory is %s's", on->backend->name,
                    a->backend->name);
  int rc = reserve(a, err);
  const mf__touch *self = find(a, on, owner_of(on->stream));
  for (int32_t i = 0; rc == MF_OK && i < a->count; i++) {
    if (!must_wait(&a->touches[i], self, write)) continue;
    const mf__queue other = queue_of(a->backend, &a->touches[i]);
    rc = mf__queue_wait(on, &other, err);
  }
  return rc;
}

static int synchronize(const mf__queue *q, mf_error *err) {
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

/* What the host has seen finished need not be waited for again. */
static int wait_on_host(mf__access *a, bool write, mf_error *err) {
  for (int32_t i = 0; i < a->count;) {
    mf__touch *t = &a->touches[i];
    if (!must_wait(t, NULL, write)) {
      i++;
      continue;
    }
    const mf__queue q = queue_of(a->backend, t);
    const int rc = synchronize(&q, err);
    if (rc != MF_OK) return rc;
    if (is_open(t))
      i++;
    else
      *t = a->touches[--a->count];
  }
  return MF_OK;
}

/* Records in the order of their addresses, each once, so that two threads cannot wait for each other. */
static int sort_uses(mf__usage *uses, int count, mf__usage *sorted) {
  int n = 0;
  sorted[0] = uses[0];
  if (count == 1) return uses[0].access != NULL;
  for (int i = 0; i < count; i++) {
    int at = 0;
    if (uses[i].access == NULL) continue;
    while (at < n && (uintptr_t)sorted[at].access < (uintptr_t)uses[i].access) at++;
    if (at < n && sorted[at].access == uses[i].access) {
      sorted[at].write |= uses[i].write;
      continue;
    }
    memmove(sorted + at + 1, sorted + at, (size_t)(n - at) * sizeof *sorted);
    sorted[at] = uses[i];
    n++;
  }
  return n;
}

#define MAX_USES 3

int mf__order_begin(const mf__queue *on, mf__usage *uses, int count, mf_error *err) {
  mf__usage sorted[MAX_USES];
  const int n = sort_uses(uses, count, sorted);
  int rc = MF_OK;
  mf__retire_poll();
  for (int i = 0; i < n; i++) lock(sorted[i].access);
  for (int i = 0; rc == MF_OK && i < n; i++)
    rc = on->backend == NULL ? wait_on_host(sorted[i].access, sorted[i].write, err)
                             : wait_on_device(on, sorted[i].access, sorted[i].write, err);
  if (rc != MF_OK)
    for (int i = 0; i < n; i++) unlock(sorted[i].access);
  return rc;
}

/* A write comes after all that was there, so whoever waits for it waits for them: they need not be kept. */
static void forget_others(mf__access *a, const mf__queue *on) {
  const uint32_t thread = owner_of(on->stream);
  int32_t kept = 0;
  for (int32_t i = 0; i < a->count; i++) {
    const mf__touch *t = &a->touches[i];
    const bool self = t->stream == on->stream && t->ordinal == on->ordinal && t->thread == thread;
    if (self || is_open(t)) a->touches[kept++] = *t;
  }
  a->count = kept;
}

static void enter_use(const mf__queue *on, mf__access *a, bool write) {
  mf__touch *self = entry(a, on);
  self->seen_writes = a->clock;
  a->clock++;
  if (!write) {
    self->last_read = a->clock;
    return;
  }
  self->last_write = a->clock;
  self->last_read = 0; /* before the write, so that who waits for that has waited for it */
  forget_others(a, on);
}

void mf__order_end(const mf__queue *on, mf__usage *uses, int count, bool queued) {
  mf__usage sorted[MAX_USES];
  const int n = sort_uses(uses, count, sorted);
  for (int i = 0; i < n; i++) {
    if (queued && on->backend != NULL) enter_use(on, sorted[i].access, sorted[i].write);
    unlock(sorted[i].access);
  }
}

bool mf__order_again(const mf__queue *on, mf__access *a, bool write) {
  if (atomic_exchange_explicit(&a->locked, 1, memory_order_acquire) != 0) return false;
  mf__touch *t = a->touches;
  const bool alone = a->count == 1 && t->stream == on->stream && t->ordinal == on->ordinal &&
                     on->stream != MF_STREAM_PER_THREAD;
  if (alone) {
    a->clock++;
    if (write) t->last_write = a->clock;
    else t->last_read = a->clock;
  }
  unlock(a);
  return alone;
}

static bool is_ordered(const mf__queue *on) {
  return on->backend != NULL && on->stream != MF_STREAM_NO_ORDER;
}

int mf__order_enter(const mf__queue *on, mf__access *a, bool write, mf_error *err) {
  if (!is_ordered(on)) return MF_OK;
  lock(a);
  const int rc = reserve(a, err);
  if (rc == MF_OK) {
    mf__touch *self = entry(a, on);
    a->clock++;
    if (write) self->last_write = a->clock;
    else self->last_read = a->clock;
  }
  unlock(a);
  return rc;
}

int mf__order_open(const mf__queue *on, mf__access *a, bool write, mf_error *err) {
  mf__usage use = {a, write};
  if (on->stream == MF_STREAM_NO_ORDER) return MF_OK;
  const int rc = mf__order_begin(on, &use, 1, err);
  if (rc != MF_OK) return rc;
  if (on->backend != NULL) {
    enter_use(on, a, write);
    mf__touch *self = entry(a, on);
    if (write) self->open_writes++;
    else self->open_reads++;
  }
  unlock(a);
  return MF_OK;
}

void mf__order_close(const mf__queue *on, uint32_t thread, mf__access *a, bool write) {
  if (!is_ordered(on)) return;
  lock(a);
  mf__touch *t = find(a, on, thread);
  /* Whoever used the memory last has seen less than the clock, so that it will wait for what came until now. */
  if (write) {
    t->open_writes--;
    t->last_write = a->clock;
  } else {
    t->open_reads--;
    t->last_read = a->clock;
  }
  unlock(a);
}

bool mf__touch_done(const mf__backend *backend, const mf__touch *touch) {
  const mf__queue q = queue_of(backend, touch);
  uint64_t id;
  bool done = false;
  return capture_of(&q, &id, NULL) == MF_OK && id == 0 && is_done(&q, &done, NULL) == MF_OK && done;
}

int mf__touch_record(const mf__backend *backend, const mf__touch *touch, void **out, mf_error *err) {
  const mf__queue q = queue_of(backend, touch);
  uint64_t id;
  *out = NULL;
  int rc = capture_of(&q, &id, err);
  if (rc == MF_OK && id != 0)
    rc = mf__fail(err, MF_ECAPTURE, "stream 0x%llx of %s:%d is being captured", (unsigned long long)q.stream,
                  backend->name, q.ordinal);
  if (rc != MF_OK) return rc;
  rc = mf__event_take(backend, q.ordinal, out, err);
  if (rc != MF_OK) return rc;
  rc = record_at(&q, *out, err);
  if (rc == MF_OK) return rc;
  mf__event_give(backend, q.ordinal, *out);
  *out = NULL;
  return rc;
}
