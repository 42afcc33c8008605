/* pool.c: keeps memory of devices for the next tensor when its last one is gone. There is one pool for each device and
 * space; block.c knows when a kept block may be used again.
 *
 * Invariant: a block is in use or in its pool's table, or mf__retire holds it; a thread that looks at one has taken it
 * out first, so that no driver call is made under the pool's lock.
 *
 * A stream that is being captured gets kept blocks only, and only such as need no waiting: the memory that a graph uses
 * stays the pool's, so that a program which launches the graph must keep the tensors that were captured.
 *
 * Kept memory outlives every tensor and any allocator that a program sets, so that the headers of blocks come from
 * malloc and are not counted as mf_ledger.blocks. It must not know about tensors or storages. */
#include "device/block.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NBUCKETS = 64, MAX_QUERIES = 8 };

#define MIN_NBYTES 512
#define MAX_STEP ((int64_t)2 << 20)

typedef struct chain {
  mf__block *first;
  mf__block *last;
} chain;

typedef struct pool {
  pthread_mutex_t lock;
  mf__device device;
  int64_t used, cached, limit, hits, misses;
  chain buckets[NBUCKETS];
} pool;

/* An allocation that is being carried out. */
typedef struct allocation {
  pool *pool;
  int64_t nbytes; /* of the block, rounded up; where the limit has no room for that, it has those that were asked for */
  int64_t asked;
  mf__block_request request;
} allocation;

static _Atomic(pool *) pools[MF__NBACKENDS][MF__MAX_ORDINALS][MF__NSPACES];

/* Rounds to four steps from one power of two to the next, of 2 MiB at most, so that little is wasted and much fits. */
static int64_t round_up(int64_t nbytes) {
  int64_t step = MIN_NBYTES;
  if (nbytes <= MIN_NBYTES) return MIN_NBYTES;
  while (step < nbytes - step && step < 4 * MAX_STEP) step *= 2;
  step /= 4;
  return nbytes > INT64_MAX - step ? nbytes : (nbytes + step - 1) / step * step;
}

/* Pinned and managed memory have one pool for all devices of a driver. */
static int pool_find(const mf__device *device, pool **out, mf_error *err) {
  const int32_t ordinal = device->space == MF__DEVICE ? device->ordinal : 0;
  _Atomic(pool *) *place = &pools[device->backend->index][ordinal][device->space];
  *out = atomic_load_explicit(place, memory_order_acquire);
  if (*out != NULL) return MF_OK;
  pool *none = NULL;
  pool *made = mf__lasting_alloc(sizeof *made);
  if (made == NULL) return mf__fail(err, MF_ENOMEM, "no host memory for a pool");
  pthread_mutex_init(&made->lock, NULL);
  made->device = *device;
  if (atomic_compare_exchange_strong(place, &none, made)) {
    *out = made;
    return MF_OK;
  }
  pthread_mutex_destroy(&made->lock);
  free(made);
  *out = none;
  return MF_OK;
}

/* The table: under the pool's lock */

static int bucket_of(int64_t nbytes, const mf__home *h) {
  uint64_t key = (uint64_t)nbytes ^ (uint64_t)h->stream * 0x9e3779b97f4a7c15u ^ (uint64_t)h->thread << 32;
  key *= 0xff51afd7ed558ccdu;
  return (int)(key >> 58);
}

/* Takes the block behind ${before} (NULL: the first) out of its chain and counts it as used. */
static mf__block *take_behind(pool *p, chain *c, mf__block *before) {
  mf__block *b = before == NULL ? c->first : before->next;
  if (before == NULL) c->first = b->next;
  else before->next = b->next;
  if (c->last == b) c->last = before;
  p->cached -= b->memory.nbytes;
  p->used += b->memory.nbytes;
  return b;
}

static bool is_candidate(const mf__block *b, const allocation *a) {
  const int64_t nbytes = b->memory.nbytes;
  return nbytes >= a->asked && nbytes - a->nbytes <= a->nbytes / 4 && mf__block_is_candidate(b, &a->request);
}

/* Takes a block that may serve the allocation (NULL: any block), those of the requesting stream first. */
static mf__block *take_any(pool *p, const allocation *a) {
  mf__block *found = NULL;
  pthread_mutex_lock(&p->lock);
  const int first = a == NULL ? 0 : bucket_of(a->nbytes, &a->request.home);
  for (int i = 0; i < NBUCKETS && found == NULL; i++) {
    chain *c = &p->buckets[(first + i) % NBUCKETS];
    mf__block *before = NULL;
    for (mf__block *b = c->first; b != NULL && found == NULL; before = b, b = b->next)
      if (a == NULL || is_candidate(b, a)) found = take_behind(p, c, before);
  }
  pthread_mutex_unlock(&p->lock);
  return found;
}

static void put(mf__block *b) {
  pool *p = b->pool;
  pthread_mutex_lock(&p->lock);
  p->used -= b->memory.nbytes;
  p->cached += b->memory.nbytes;
  chain *c = &p->buckets[bucket_of(b->memory.nbytes, &b->home)];
  b->next = NULL;
  if (c->first == NULL) c->first = b;
  else c->last->next = b;
  c->last = b;
  pthread_mutex_unlock(&p->lock);
}

/* Giving back */

static void put_back(void *ctx) {
  mf__block *b = ctx;
  mf__record *record = b->record;
  put(b);
  mf__record_free(record);
}

mf__owned *mf__pool_owned(void *block) {
  return &((mf__block *)block)->memory;
}

void mf__pool_give(void *block_taken, mf__record *record) {
  mf__block *b = block_taken;
  b->record = record;
  if (!record->backend->usable()) {
    free(b);
    mf__record_free(record);
    return;
  }
  mf__record_prune(record);
  if (mf__block_take_events(b, record)) put_back(b);
  else mf__retire(record, put_back, b);
}

/* Taking */

/* Tries some of the candidates; those that are refused go back once all were tried, so that none is tried twice.
 * Another thread may begin a capture at any time, so that it is asked about here, before the stream waits for
 * anything. */
static int take_ready(allocation *a, mf__block **out, mf_error *err) {
  mf__scope scope;
  mf__block *refused = NULL;
  if (mf__enter_relaxed(&scope, a->request.on->backend, a->request.on->ordinal, NULL) != MF_OK) return MF_OK;
  const int rc = mf__block_request_ask_capture(&a->request, err);
  for (int tries = 0; rc == MF_OK && *out == NULL && tries < MAX_QUERIES; tries++) {
    mf__block *b = take_any(a->pool, a);
    if (b == NULL) break;
    if (mf__block_ready(b, &a->request)) {
      *out = b;
    } else {
      b->next = refused;
      refused = b;
    }
  }
  mf__leave(&scope);
  for (mf__block *b = refused, *next; b != NULL; b = next) {
    next = b->next;
    put(b);
  }
  return rc;
}

/* How many bytes a new block may have; 0 where the limit has no room. */
static int64_t reserve(const allocation *a) {
  pool *p = a->pool;
  pthread_mutex_lock(&p->lock);
  const int64_t room = p->limit == 0 ? INT64_MAX : p->limit - p->used - p->cached;
  const int64_t nbytes = a->nbytes <= room ? a->nbytes : a->asked <= room ? a->asked : 0;
  p->used += nbytes;
  pthread_mutex_unlock(&p->lock);
  return nbytes;
}

static void unreserve(pool *p, int64_t nbytes) {
  pthread_mutex_lock(&p->lock);
  p->used -= nbytes;
  pthread_mutex_unlock(&p->lock);
}

static int driver_alloc(const allocation *a, mf__block *b, mf_error *err) {
  const mf__queue *on = a->request.on;
  mf__owned *o = &b->memory;
  mf__scope scope;
  int rc = mf__enter_relaxed(&scope, on->backend, on->ordinal, err);
  if (rc != MF_OK) return rc;
  if (a->pool->device.space == MF__DEVICE) /* what was tried before took a while */
    rc = mf__capture_refuse_inside(on, "no memory is kept for it; allocate before the capture", err);
  if (rc == MF_OK) rc = on->backend->memory_alloc(a->pool->device.space, o->nbytes, on->stream, &o->data, err);
  if (rc == MF_OK) {
    rc = mf__owned_add(o, err);
    if (rc != MF_OK) (void)mf__memory_free(on, a->pool->device.space, &o->data, NULL);
  }
  mf__leave(&scope);
  return rc;
}

/* A new block, if the limit and the driver allow it. */
static int grow(const allocation *a, mf__block **out, mf_error *err) {
  const int64_t nbytes = reserve(a);
  if (nbytes == 0) return mf__fail(err, MF_ENOMEM, "the limit would be exceeded");
  mf__block *b = mf__lasting_alloc(sizeof *b);
  int rc = b == NULL ? mf__fail(err, MF_ENOMEM, "no host memory") : MF_OK;
  if (rc == MF_OK) {
    b->pool = a->pool;
    b->device = a->pool->device;
    b->memory.nbytes = nbytes;
    b->memory.backend = b->device.backend;
    b->ordinal = a->request.on->ordinal;
    rc = driver_alloc(a, b, err);
  }
  if (rc != MF_OK) {
    unreserve(a->pool, nbytes);
    free(b);
    return rc;
  }
  *out = b;
  return MF_OK;
}

static mf__block *take_all(pool *p) {
  mf__block *all = NULL;
  for (mf__block *b = take_any(p, NULL); b != NULL; b = take_any(p, NULL)) {
    b->next = all;
    all = b;
  }
  return all;
}

/* Gives the block to the driver if that is possible now, else back to the pool. */
static int free_or_put(mf__block *b, const mf__block_request *r, mf_error *err) {
  bool freed = false;
  const int rc = mf__block_free(b, r, &freed, err);
  if (!freed) {
    put(b);
    return rc;
  }
  unreserve(b->pool, b->memory.nbytes);
  mf__block_leave(b);
  return rc;
}

/* A program that never trims comes here again and again: what is known of earlier blocks is looked at first. */
static int free_cached(const allocation *a, mf_error *err) {
  int first = MF_OK;
  mf__blocks_left_end(a->request.on->backend, a->request.on->ordinal);
  mf__block *all = take_all(a->pool);
  for (mf__block *b = all; b != NULL; b = b->next) mf__block_look(b, a->request.on);
  for (mf__block *b = all, *next; b != NULL; b = next) {
    next = b->next;
    const int rc = free_or_put(b, &a->request, first == MF_OK ? err : NULL);
    if (first == MF_OK) first = rc;
  }
  return first;
}

/* The host waits for what the requesting stream has to do, so that the driver has its freed memory back. */
static void wait_for_driver(const allocation *a) {
  const mf__queue *on = a->request.on;
  mf__scope scope;
  mf__retire_wait(on->backend);
  if (mf__queue_synchronize(on, NULL) != MF_OK) return;
  if (mf__enter_relaxed(&scope, on->backend, on->ordinal, NULL) != MF_OK) return;
  (void)on->backend->memory_trim(NULL);
  mf__leave(&scope);
}

/* Keeps the driver's number, if it was the driver that had no memory. */
static int out_of_memory(const allocation *a, mf_error *err) {
  char name[MF__NAME_CAP], limit[32] = "no limit";
  mf_pool_stats s;
  const DLDevice device = mf__device_name(&a->pool->device);
  if (err == NULL) return MF_ENOMEM;
  const mf_error driver = *err;
  (void)mf_device_format(&device, name, sizeof name, NULL);
  (void)mf_pool_read(&device, &s, NULL);
  if (s.limit_bytes != 0) snprintf(limit, sizeof limit, "a limit of %lld", (long long)s.limit_bytes);
  (void)mf__fail(err, MF_ENOMEM, "no memory for %lld bytes on %s: %lld are used and %lld cached, with %s",
                 (long long)a->asked, name, (long long)s.used_bytes, (long long)s.cached_bytes, limit);
  err->driver_code = driver.driver_code;
  err->call = driver.call;
  return MF_ENOMEM;
}

/* Tries in turn: blocks of other streams; the driver, once the cache is freed; both again, with the memory that became
 * free meanwhile; and both after the host has waited. A limit that is exceeded only because the driver frees nothing is
 * the driver's failure. */
static int reclaim(allocation *a, mf__block **out, mf_error *err) {
  mf_error why;
  int kept = MF_OK;
  for (int step = 0; step < 3; step++) {
    if (step == 1) mf__retire_drain(a->pool->device.backend);
    if (step == 2) wait_for_driver(a);
    a->request.may_block = a->pool->device.space == MF__DEVICE || step == 2;
    (void)take_ready(a, out, NULL);
    if (*out != NULL) return MF_OK;
    kept = free_cached(a, &why);
    const int rc = grow(a, out, err);
    if (rc != MF_ENOMEM) return rc;
  }
  if (kept == MF_OK || err->driver_code != 0) return out_of_memory(a, err);
  *err = why;
  return kept;
}

static int take_slowly(allocation *a, mf__block **out, mf_error *err) {
  const mf__queue *on = a->request.on;
  int rc = take_ready(a, out, err);
  if (rc != MF_OK) return rc;
  if (*out == NULL) {
    mf_error failed; /* which the caller sees only if nothing helps */
    if (a->request.captured)
      return mf__fail(err, MF_ECAPTURE,
                      "stream 0x%llx of %s:%d is being captured, and no memory of %lld bytes is kept for it; allocate "
                      "before the capture",
                      (unsigned long long)on->stream, on->backend->name, on->ordinal, (long long)a->asked);
    rc = grow(a, out, &failed);
    if (rc == MF_ENOMEM) rc = reclaim(a, out, &failed);
    if (rc != MF_OK && err != NULL) *err = failed;
    if (rc != MF_OK) return rc;
  }
  pthread_mutex_lock(&a->pool->lock);
  a->pool->misses++;
  pthread_mutex_unlock(&a->pool->lock);
  return MF_OK;
}

int mf__pool_take(const mf__queue *on, mf__space space, int64_t nbytes, void **data, void **block_out, mf_error *err) {
  const mf__device device = {on->backend, space, on->ordinal};
  allocation a = {.nbytes = round_up(nbytes), .asked = nbytes, .request = mf__block_request_make(on)};
  int32_t count;
  int rc = on->backend->usable() ? MF_OK : on->backend->device_count(&count, err);
  if (rc == MF_OK) rc = pool_find(&device, &a.pool, err);
  if (rc != MF_OK) return rc;
  mf__retire_poll();
  /* The usual case: a kept block of that size which the requesting stream may use at once, found in its bucket. */
  mf__block *found = NULL, *before = NULL;
  pthread_mutex_lock(&a.pool->lock);
  chain *c = &a.pool->buckets[bucket_of(a.nbytes, &a.request.home)];
  for (mf__block *b = c->first; b != NULL && found == NULL; before = b, b = b->next)
    if (b->memory.nbytes == a.nbytes && mf__block_is_clean(b, &a.request)) found = take_behind(a.pool, c, before);
  if (found != NULL) a.pool->hits++;
  pthread_mutex_unlock(&a.pool->lock);
  if (found == NULL) rc = take_slowly(&a, &found, err);
  if (rc != MF_OK) return rc;
  mf__block_take(found, &a.request);
  *data = found->memory.data;
  *block_out = found;
  return MF_OK;
}

/* The public side */

static int find_public(const DLDevice *device, pool **out, mf_error *err) {
  mf__device d;
  const int rc = mf__device_resolve(device, &d, err);
  if (rc != MF_OK) return rc;
  if (d.backend == NULL) return mf__fail(err, MF_EDEVICE, "device is the cpu, whose memory is not pooled");
  return pool_find(&d, out, err);
}

int mf_pool_read(const DLDevice *device, mf_pool_stats *out, mf_error *err) {
  MF__NEED(device);
  MF__NEED(out);
  pool *p;
  memset(out, 0, sizeof *out);
  const int rc = find_public(device, &p, err);
  if (rc != MF_OK) return mf__end(rc, __func__, err);
  pthread_mutex_lock(&p->lock);
  *out = (mf_pool_stats){p->used, p->cached, p->limit, 0, p->hits, p->misses};
  pthread_mutex_unlock(&p->lock);
  out->deferred = mf__retire_count(&p->device);
  return MF_OK;
}

int mf_pool_limit(const DLDevice *device, int64_t nbytes, mf_error *err) {
  MF__NEED(device);
  pool *p;
  int rc = find_public(device, &p, err);
  if (rc == MF_OK && nbytes < 0)
    rc = mf__fail(err, MF_EINVAL, "nbytes is %lld; 0 (no limit) or more expected", (long long)nbytes);
  if (rc != MF_OK) return mf__end(rc, __func__, err);
  pthread_mutex_lock(&p->lock);
  p->limit = nbytes;
  pthread_mutex_unlock(&p->lock);
  return MF_OK;
}

static int trim_block(mf__block *b, mf_error *err) {
  const mf__queue q = mf__block_queue(b);
  mf__block_request r = mf__block_request_make(&q);
  int rc = mf__block_request_ask_capture(&r, err);
  r.may_block = b->has_home && mf__home_same(&b->home, &r.home);
  if (rc == MF_OK && !r.captured) rc = free_or_put(b, &r, err);
  else put(b);
  return rc == MF_ECAPTURE ? MF_OK : rc;
}

static int trim_all(mf__block *all, mf_error *err) {
  int first = MF_OK;
  for (mf__block *b = all; b != NULL; b = b->next) {
    const mf__queue q = mf__block_queue(b);
    mf__block_look(b, &q);
  }
  for (mf__block *b = all, *next; b != NULL; b = next) {
    next = b->next;
    const int rc = trim_block(b, first == MF_OK ? err : NULL);
    if (first == MF_OK) first = rc;
  }
  return first;
}

/* Blocks that were taken out have no record. They count as a holder until they are back or freed, so that another
 * thread's trim forgets no device that they, or their events, are of. */
int mf__pool_trim(const mf__device *device, mf_error *err) {
  pool *p;
  int rc = pool_find(device, &p, err);
  if (rc != MF_OK) return rc;
  mf__holders_add(device->backend, 1);
  rc = trim_all(take_all(p), err);
  mf__holders_add(device->backend, -1);
  return rc;
}

bool mf__pools_cache(const mf__backend *backend) {
  bool something = false;
  for (int32_t i = 0; i < MF__MAX_ORDINALS; i++)
    for (int space = 0; space < MF__NSPACES && !something; space++) {
      pool *p = atomic_load_explicit(&pools[backend->index][i][space], memory_order_acquire);
      if (p == NULL) continue;
      pthread_mutex_lock(&p->lock);
      something = p->cached != 0;
      pthread_mutex_unlock(&p->lock);
    }
  return something;
}
