/* stage.c: copies much pageable host memory to and from a device, through a ring of pinned buffers for each device, so
 * that the host fills or empties one buffer while the device copies others.
 *
 * Invariant: a copy that holds a buffer never waits for another one, so that two copies at once cannot wait for each
 * other. A buffer that is free may still be in use by queued work; the copy that takes it waits for that. The calling
 * thread makes all driver calls (its per-thread stream belongs to it); helpers only move bytes. It must not know about
 * layouts. */
#include "device/device.h"

#include <sched.h>

#define NBUFFERS 4
#define BUFFER_NBYTES (INT64_C(8) << 20)

typedef struct buffer {
  void *data; /* NULL: not made yet */
  void *event;
  bool taken;
  bool queued;    /* work may still use it, until the event */
  bool lost;      /* work may use it, and no event stands behind that */
  uint64_t waits; /* mf__device_waits when it was lost */
  uint64_t since; /* when it was given back */
} buffer;

typedef struct ring {
  buffer buffers[NBUFFERS];
  uint64_t clock;
} ring;

static ring rings[MF__NBACKENDS][MF__MAX_ORDINALS];
static pthread_mutex_t rings_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t buffer_returned = PTHREAD_COND_INITIALIZER;

static ring *ring_of(const mf__backend *backend, int32_t ordinal) {
  return &rings[backend->index][ordinal];
}

/* Ranks ready buffers first, then those to be made, those to be waited for, and the lost ones; among equals the one
 * that was given back first. */
static uint64_t rank(const buffer *b) {
  const uint64_t kind = b->lost ? 3 : b->data == NULL ? 1 : b->queued ? 2 : 0;
  return (kind << 62) + b->since;
}

static buffer *find_free(ring *r) {
  buffer *best = NULL;
  for (int i = 0; i < NBUFFERS; i++) {
    buffer *b = &r->buffers[i];
    if (!b->taken && (best == NULL || rank(b) < rank(best))) best = b;
  }
  if (best != NULL) best->taken = true;
  return best;
}

/* Returns NULL only if it may not wait. */
static buffer *buffer_take(ring *r, bool wait) {
  pthread_mutex_lock(&rings_lock);
  buffer *b = find_free(r);
  while (b == NULL && wait) {
    pthread_cond_wait(&buffer_returned, &rings_lock);
    b = find_free(r);
  }
  pthread_mutex_unlock(&rings_lock);
  return b;
}

static void buffer_give(ring *r, buffer *b) {
  pthread_mutex_lock(&rings_lock);
  b->taken = false;
  b->since = ++r->clock;
  pthread_cond_broadcast(&buffer_returned);
  pthread_mutex_unlock(&rings_lock);
}

/* Only a wait for the whole device, which the program may ask for, tells that a lost buffer is free. */
static int buffer_wait(const mf__queue *on, buffer *b, mf_error *err) {
  int rc = MF_OK;
  if (b->lost && mf__device_waited(on->backend, on->ordinal, b->waits)) b->queued = b->lost = false;
  if (b->lost)
    return mf__fail(err, MF_EDRIVER,
                    "the driver failed while it used the staging buffers of %s:%d; mf_device_synchronize tells "
                    "whether it has ended",
                    on->backend->name, on->ordinal);
  if (b->queued) rc = on->backend->event_synchronize(b->event, err);
  if (rc == MF_OK) b->queued = false;
  return rc;
}

/* Makes the buffer, if there is none yet, or waits for the work that uses it. */
static int buffer_ready(const mf__queue *on, buffer *b, mf_error *err) {
  void *data = NULL;
  if (b->data != NULL) return buffer_wait(on, b, err);
  int rc = b->event == NULL ? mf__event_take(on->backend, on->ordinal, &b->event, err) : MF_OK;
  if (rc == MF_OK) rc = on->backend->memory_alloc(MF__PINNED, BUFFER_NBYTES, on->stream, &data, err);
  b->data = data;
  return rc;
}

/* The host's part, by several threads. The sizes are those that were fastest on the machine of docs/gpu.md. */

#define HELPERS_MAX 7
#define HELPERS_FROM (INT64_C(8) << 20) /* copies from here on are worth starting threads for */
#define PIECE (INT64_C(128) << 10)
#define WATCHES 100 /* some tens of microseconds */

/* Threads that take pieces of one buffer at a time. The caller is one of them. */
typedef struct crew {
  const mf__stage_job *job;
  pthread_mutex_t lock;
  pthread_cond_t work, done;
  char *buffer;
  int64_t at, nbytes;   /* of the buffer's part of the job */
  int64_t next;         /* of it, what nobody has taken yet */
  int64_t left;         /* of it, what is not finished */
  _Atomic int32_t turn; /* counts buffers */
  bool stop;
  int nhelpers;
  pthread_t helpers[HELPERS_MAX];
} crew;

/* Takes one piece, with the lock held, and gives the lock up while it moves it. */
static void crew_step(crew *c) {
  const int64_t piece = PIECE < c->job->grain ? c->job->grain : PIECE / c->job->grain * c->job->grain;
  const int64_t from = c->next;
  const int64_t n = c->nbytes - from < piece ? c->nbytes - from : piece;
  c->next += n;
  pthread_mutex_unlock(&c->lock);
  c->job->move(c->job->ctx, c->at + from, n, c->buffer + from);
  pthread_mutex_lock(&c->lock);
  c->left -= n;
  if (c->left == 0) pthread_cond_signal(&c->done);
}

/* Spins for a while before it sleeps: the next buffer comes soon, and waking up takes as long as a part of it. The lock
 * is held before and after. */
static void crew_watch(crew *c) {
  const int32_t now = atomic_load_explicit(&c->turn, memory_order_relaxed);
  pthread_mutex_unlock(&c->lock);
  for (int i = 0; i < WATCHES && atomic_load_explicit(&c->turn, memory_order_relaxed) == now; i++) sched_yield();
  pthread_mutex_lock(&c->lock);
  if (!c->stop && atomic_load_explicit(&c->turn, memory_order_relaxed) == now) pthread_cond_wait(&c->work, &c->lock);
}

static void *crew_help(void *arg) {
  crew *c = arg;
  pthread_mutex_lock(&c->lock);
  while (!c->stop) {
    if (c->next < c->nbytes)
      crew_step(c);
    else
      crew_watch(c);
  }
  pthread_mutex_unlock(&c->lock);
  return NULL;
}

static void crew_move(crew *c, int64_t at, int64_t nbytes, char *to) {
  if (c->nhelpers == 0) {
    c->job->move(c->job->ctx, at, nbytes, to);
    return;
  }
  pthread_mutex_lock(&c->lock);
  c->at = at;
  c->buffer = to;
  c->nbytes = c->left = nbytes;
  c->next = 0;
  atomic_fetch_add_explicit(&c->turn, 1, memory_order_relaxed);
  pthread_cond_broadcast(&c->work);
  while (c->next < c->nbytes) crew_step(c);
  while (c->left > 0) pthread_cond_wait(&c->done, &c->lock);
  pthread_mutex_unlock(&c->lock);
}

/* Goes on with fewer helpers where one cannot be started. */
static void crew_start(crew *c, const mf__stage_job *job) {
  *c = (crew){.job = job};
  if (job->nbytes < HELPERS_FROM) return;
  const int32_t cores = mf__processors();
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->work, NULL);
  pthread_cond_init(&c->done, NULL);
  while (c->nhelpers < HELPERS_MAX && c->nhelpers + 1 < cores) {
    if (mf__thread_start(&c->helpers[c->nhelpers], crew_help, c) != 0) break;
    c->nhelpers++;
  }
}

static void crew_end(crew *c) {
  if (c->job->nbytes < HELPERS_FROM) return;
  pthread_mutex_lock(&c->lock);
  c->stop = true;
  pthread_cond_broadcast(&c->work);
  pthread_mutex_unlock(&c->lock);
  for (int i = 0; i < c->nhelpers; i++) pthread_join(c->helpers[i], NULL);
  pthread_cond_destroy(&c->done);
  pthread_cond_destroy(&c->work);
  pthread_mutex_destroy(&c->lock);
}

/* The two directions */

/* Queues a copy between the buffer and a part of the device's side, and the event behind it. A copy that fails may have
 * been queued all the same: the call may return the error of earlier work (CUDA Driver API, cuMemcpyAsync, notes). The
 * host's part, and the wait for a buffer, take a while, in which another thread may begin a capture: its graph would
 * use the buffer, which is another copy's by then. One that began since it was asked about has the copy, or the event
 * alone, which then never tells that it is done: the wait for the stream breaks it, and only one for the device frees
 * the buffer. */
static int buffer_queue(const mf__queue *on, mf__stage_job *job, buffer *b, int64_t at, int64_t n, mf_error *err) {
  char *const device = job->device + at;
  const mf__block_copy part = {
      job->to_device ? device : b->data, job->to_device ? b->data : device, n, 1, 1, n, n, n, n};
  int rc = mf__capture_refuse_inside(on, "what is left of this copy of pageable memory cannot take part", err);
  if (rc != MF_OK) return rc;
  job->queued = true;
  rc = on->backend->copy(&part, on->stream, err);
  if (rc == MF_OK) rc = on->backend->event_record(b->event, on->stream, err);
  if (rc == MF_OK) rc = mf__capture_refuse_inside(on, "this copy of pageable memory cannot take part", err);
  b->queued = rc == MF_OK;
  if (rc != MF_OK && on->backend->stream_synchronize(on->stream, NULL) != MF_OK) {
    b->lost = true;
    b->waits = mf__device_waits(on->backend, on->ordinal);
  }
  return rc;
}

static int64_t chunk_of(const mf__stage_job *job, int64_t at) {
  const int64_t most = BUFFER_NBYTES / job->grain * job->grain;
  return job->nbytes - at < most ? job->nbytes - at : most;
}

static int upload(const mf__queue *on, mf__stage_job *job, crew *c, mf_error *err) {
  ring *r = ring_of(on->backend, on->ordinal);
  int rc = MF_OK;
  for (int64_t at = 0; rc == MF_OK && at < job->nbytes;) {
    const int64_t n = chunk_of(job, at);
    buffer *b = buffer_take(r, true);
    rc = buffer_ready(on, b, err);
    if (rc == MF_OK) {
      crew_move(c, at, n, b->data);
      rc = buffer_queue(on, job, b, at, n, err);
    }
    buffer_give(r, b);
    at += n;
  }
  return rc;
}

/* The buffers that this copy holds, in the order of their parts. */
typedef struct flight {
  buffer *buffers[NBUFFERS];
  int first, count;
  int64_t queued; /* bytes whose copies to the host are queued */
} flight;

/* Queues as many parts as there are buffers to have without waiting; one at least. */
static int flight_fill(const mf__queue *on, mf__stage_job *job, flight *f, mf_error *err) {
  ring *r = ring_of(on->backend, on->ordinal);
  while (f->queued < job->nbytes && f->count < NBUFFERS) {
    const int64_t n = chunk_of(job, f->queued);
    buffer *b = buffer_take(r, f->count == 0);
    if (b == NULL) return MF_OK;
    int rc = buffer_ready(on, b, err);
    if (rc == MF_OK) rc = buffer_queue(on, job, b, f->queued, n, err);
    if (rc != MF_OK) {
      buffer_give(r, b);
      return rc;
    }
    f->buffers[(f->first + f->count++) % NBUFFERS] = b;
    f->queued += n;
  }
  return MF_OK;
}

static buffer *flight_pop(flight *f) {
  buffer *b = f->buffers[f->first];
  f->first = (f->first + 1) % NBUFFERS;
  f->count--;
  return b;
}

static int download(const mf__queue *on, mf__stage_job *job, crew *c, mf_error *err) {
  ring *r = ring_of(on->backend, on->ordinal);
  flight f = {0};
  int rc = MF_OK;
  for (int64_t at = 0; rc == MF_OK && at < job->nbytes;) {
    rc = flight_fill(on, job, &f, err);
    if (rc != MF_OK) break;
    const int64_t n = chunk_of(job, at);
    buffer *b = flight_pop(&f);
    rc = buffer_wait(on, b, err);
    if (rc == MF_OK) crew_move(c, at, n, b->data);
    buffer_give(r, b);
    at += n;
  }
  while (f.count > 0) buffer_give(r, flight_pop(&f));
  return rc;
}

int mf__stage_copy(const mf__queue *on, mf__stage_job *job, mf_error *err) {
  mf__scope scope;
  crew c;
  int rc = mf__enter_relaxed(&scope, on->backend, on->ordinal, err);
  if (rc != MF_OK) return rc;
  crew_start(&c, job);
  rc = job->to_device ? upload(on, job, &c, err) : download(on, job, &c, err);
  crew_end(&c);
  mf__leave(&scope);
  return rc;
}

/* Trimming */

/* Keeps the buffers that queued work still uses. */
static void buffer_free(const mf__queue *on, buffer *b) {
  bool done = true;
  if (b->lost && mf__device_waited(on->backend, on->ordinal, b->waits)) b->queued = b->lost = false;
  if (b->lost) return;
  if (b->queued) (void)on->backend->event_query(b->event, &done, NULL);
  if (!done) return;
  b->queued = false;
  (void)mf__memory_free(on, MF__PINNED, &b->data, NULL);
  if (b->event != NULL) mf__event_give(on->backend, on->ordinal, b->event);
  b->event = NULL;
}

/* A buffer has its event before its memory, and as long. */
bool mf__stage_exists(const mf__backend *backend, int32_t ordinal) {
  const ring *r = ring_of(backend, ordinal);
  bool exists = false;
  pthread_mutex_lock(&rings_lock);
  for (int i = 0; i < NBUFFERS; i++)
    exists = exists || r->buffers[i].taken || r->buffers[i].event != NULL;
  pthread_mutex_unlock(&rings_lock);
  return exists;
}

/* The host does not wait. */
void mf__stage_trim(const mf__backend *backend, int32_t ordinal) {
  const mf__queue on = mf__queue_make(backend, ordinal, MF_STREAM_DEFAULT);
  ring *r = ring_of(backend, ordinal);
  mf__scope scope;
  if (mf__enter_relaxed(&scope, backend, ordinal, NULL) != MF_OK) return;
  for (int i = 0; i < NBUFFERS; i++) {
    buffer *b = &r->buffers[i];
    pthread_mutex_lock(&rings_lock);
    const bool mine = !b->taken;
    b->taken = true;
    pthread_mutex_unlock(&rings_lock);
    if (!mine) continue;
    buffer_free(&on, b);
    buffer_give(r, b);
  }
  mf__leave(&scope);
}
