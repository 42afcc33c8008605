/* pool.c: memory of devices that is kept for the next tensor when its last one is gone. One pool for each device and
 * space; block.c knows when a kept block may be used again.
 *
 * Invariant: a block is in use or in its pool's table, or mf__retire holds it; a thread that looks at one has taken it
 * out first, so that no driver call is made under the pool's lock.
 *
 * A stream that is being captured gets kept blocks only, and only such as need no waiting: the memory that a graph uses
 * stays the pool's, so whoever launches the graph must keep the tensors that were captured.
 *
 * Kept memory outlives every tensor and any allocator that a program sets, so that the blocks' headers are malloc's and
 * not counted as mf_ledger.blocks. It must not know about tensors or storages. */
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

typedef struct request {
  pool *pool;
  int64_t nbytes; /* of the block */
  int64_t asked;
  mf__claim claim;
} request;

static _Atomic(pool *) pools[MF__NBACKENDS][MF__MAX_ORDINALS][MF__NSPACES];

/* Sizes in four steps from one power of two to the next, of 2 MiB at most, so that little is wasted and much fits. */
static int64_t round_up(int64_t nbytes) {
  int64_t step = MIN_NBYTES;
  if (nbytes <= MIN_NBYTES) return MIN_NBYTES;
  while (step < nbytes - step && step < 4 * MAX_STEP) step *= 2;
  step /= 4;
  return nbytes > INT64_MAX - step ? nbytes : (nbytes + step - 1) / step * step;
}

static pool *pool_new(const mf__device *device) {
  pool *p = mf__lasting_alloc(sizeof *p);
  if (p == NULL) return NULL;
  pthread_mutex_init(&p->lock, NULL);
  p->device = *device;
  return p;
}

/* Pinned and managed memory have one pool for all devices of a driver. */
static int pool_find(const mf__device *device, pool **out, mf_error *err) {
  const int32_t ordinal = device->space == MF__DEVICE ? device->ordinal : 0;
  _Atomic(pool *) *place = &pools[device->backend->index][ordinal][device->space];
  *out = atomic_load_explicit(place, memory_order_acquire);
  if (*out != NULL) return MF_OK;
  pool *none = NULL;
  pool *made = pool_new(device);
  if (made == NULL) return mf__fail(err, MF_ENOMEM, "no host memory for a pool");
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

static void append(chain *c, mf__block *b) {
  b->next = NULL;
  if (c->first == NULL) c->first = b;
  else c->last->next = b;
  c->last = b;
}

/* Takes the block behind ${before} (NULL: the first) out of its chain and counts it as used. */
static mf__block *take_behind(pool *p, chain *c, mf__block *before) {
  mf__block *b = before == NULL ? c->first : before->next;
  if (before == NULL) c->first = b->next;
  else before->next = b->next;
  if (c->last == b) c->last = before;
  p->cached -= b->nbytes;
  p->used += b->nbytes;
  return b;
}

/* The usual case: a kept block of that size which the asked stream may use at once, found in its own bucket. */
static mf__block *take_at_once(const request *r) {
  pool *p = r->pool;
  mf__block *found = NULL, *before = NULL;
  pthread_mutex_lock(&p->lock);
  chain *c = &p->buckets[bucket_of(r->nbytes, &r->claim.home)];
  for (mf__block *b = c->first; b != NULL && found == NULL; before = b, b = b->next)
    if (b->nbytes == r->nbytes && mf__block_is_clean(b, &r->claim)) found = take_behind(p, c, before);
  if (found != NULL) p->hits++;
  pthread_mutex_unlock(&p->lock);
  return found;
}

typedef bool (*block_test)(const mf__block *b, const request *r);

static bool is_candidate(const mf__block *b, const request *r) {
  const int64_t spare = b->nbytes - r->nbytes;
  return spare >= 0 && spare <= r->nbytes / 4 && mf__block_is_candidate(b, &r->claim);
}

static bool is_any(const mf__block *b, const request *r) {
  (void)b;
  (void)r;
  return true;
}

/* Any block that passes, those of the asked stream first. */
static mf__block *take_any(pool *p, block_test passes, const request *r) {
  mf__block *found = NULL;
  pthread_mutex_lock(&p->lock);
  const int first = bucket_of(r->nbytes, &r->claim.home);
  for (int i = 0; i < NBUCKETS && found == NULL; i++) {
    chain *c = &p->buckets[(first + i) % NBUCKETS];
    mf__block *before = NULL;
    for (mf__block *b = c->first; b != NULL && found == NULL; before = b, b = b->next)
      if (passes(b, r)) found = take_behind(p, c, before);
  }
  pthread_mutex_unlock(&p->lock);
  return found;
}

static void put(mf__block *b) {
  pool *p = b->pool;
  pthread_mutex_lock(&p->lock);
  p->used -= b->nbytes;
  p->cached += b->nbytes;
  append(&p->buckets[bucket_of(b->nbytes, &b->home)], b);
  pthread_mutex_unlock(&p->lock);
}

/* Giving back */

static void put_back(void *ctx) {
  mf__block *b = ctx;
  mf__record *record = b->record;
  put(b);
  mf__record_free(record);
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
  if (mf__block_note(b, record)) put_back(b);
  else mf__retire(record, put_back, b);
}

/* Taking */

/* Puts a list of blocks that were taken out back. */
static void put_all(mf__block *all) {
  for (mf__block *b = all, *next; b != NULL; b = next) {
    next = b->next;
    put(b);
  }
}

/* Looks at some of the blocks that could do. */
static mf__block *take_ready(const request *r) {
  mf__scope scope;
  mf__block *found = NULL, *refused = NULL;
  if (mf__enter_relaxed(&scope, r->claim.on->backend, r->claim.on->ordinal, NULL) != MF_OK) return NULL;
  for (int tries = 0; found == NULL && tries < MAX_QUERIES; tries++) {
    mf__block *b = take_any(r->pool, is_candidate, r);
    if (b == NULL) break;
    if (mf__block_ready(b, &r->claim)) {
      found = b;
    } else {
      b->next = refused;
      refused = b;
    }
  }
  mf__leave(&scope);
  put_all(refused);
  return found;
}

static bool reserve(pool *p, int64_t nbytes) {
  pthread_mutex_lock(&p->lock);
  const bool fits = p->limit == 0 || nbytes <= p->limit - p->used - p->cached;
  if (fits) p->used += nbytes;
  pthread_mutex_unlock(&p->lock);
  return fits;
}

static void unreserve(pool *p, int64_t nbytes) {
  pthread_mutex_lock(&p->lock);
  p->used -= nbytes;
  pthread_mutex_unlock(&p->lock);
}

static int driver_alloc(const request *r, mf__block *b, mf_error *err) {
  const mf__queue *on = r->claim.on;
  mf__scope scope;
  int rc = mf__enter_relaxed(&scope, on->backend, on->ordinal, err);
  if (rc != MF_OK) return rc;
  rc = on->backend->memory_alloc(r->pool->device.space, r->nbytes, on->stream, &b->data, err);
  if (rc == MF_OK) {
    rc = mf__owned_add(b, err);
    if (rc != MF_OK) (void)mf__memory_free(on, r->pool->device.space, &b->data, NULL);
  }
  mf__leave(&scope);
  return rc;
}

static mf__block *block_new(const request *r) {
  mf__block *b = mf__lasting_alloc(sizeof *b);
  if (b == NULL) return NULL;
  b->pool = r->pool;
  b->device = r->pool->device;
  b->nbytes = r->nbytes;
  b->ordinal = r->claim.on->ordinal;
  return b;
}

static int grow(const request *r, mf__block **out, mf_error *err) {
  if (!reserve(r->pool, r->nbytes)) return mf__fail(err, MF_ENOMEM, "the limit would be exceeded");
  mf__block *b = block_new(r);
  const int rc = b == NULL ? mf__fail(err, MF_ENOMEM, "no host memory") : driver_alloc(r, b, err);
  if (rc != MF_OK) {
    unreserve(r->pool, r->nbytes);
    free(b);
    return rc;
  }
  *out = b;
  return MF_OK;
}

static mf__block *take_all(const request *r) {
  mf__block *all = NULL;
  for (mf__block *b = take_any(r->pool, is_any, r); b != NULL; b = take_any(r->pool, is_any, r)) {
    b->next = all;
    all = b;
  }
  return all;
}

/* To the driver if that can be now, else back into the pool. */
static int free_or_put(mf__block *b, const mf__claim *c, mf_error *err) {
  bool freed = false;
  const int rc = mf__block_free(b, c, &freed, err);
  if (!freed) {
    put(b);
    return rc;
  }
  unreserve(b->pool, b->nbytes);
  free(b);
  return rc;
}

static int free_cached(const request *r, mf_error *err) {
  int first = MF_OK;
  for (mf__block *b = take_all(r), *next; b != NULL; b = next) {
    next = b->next;
    const int rc = free_or_put(b, &r->claim, first == MF_OK ? err : NULL);
    if (first == MF_OK) first = rc;
  }
  return first;
}

/* The host waits for what the asked stream has to do, so that the driver has its freed memory back. */
static void wait_for_driver(const request *r) {
  const mf__queue *on = r->claim.on;
  mf__scope scope;
  mf__retire_wait(on->backend);
  if (mf__queue_synchronize(on, NULL) != MF_OK) return;
  if (mf__enter_relaxed(&scope, on->backend, on->ordinal, NULL) != MF_OK) return;
  (void)on->backend->memory_trim(NULL);
  mf__leave(&scope);
}

/* Keeps the driver's own number, if it was the driver that had no memory. */
static int out_of_memory(const request *r, mf_error *err) {
  char name[MF__NAME_CAP], limit[32] = "no limit";
  mf_pool_stats s;
  const DLDevice device = mf__device_name(&r->pool->device);
  if (err == NULL) return MF_ENOMEM;
  const mf_error driver = *err;
  (void)mf_device_format(&device, name, sizeof name, NULL);
  (void)mf_pool_read(&device, &s, NULL);
  if (s.limit_bytes != 0) snprintf(limit, sizeof limit, "a limit of %lld", (long long)s.limit_bytes);
  (void)mf__fail(err, MF_ENOMEM, "no memory for %lld bytes on %s: %lld are used and %lld cached, with %s",
                 (long long)r->asked, name, (long long)s.used_bytes, (long long)s.cached_bytes, limit);
  err->driver_code = driver.driver_code;
  err->call = driver.call;
  return MF_ENOMEM;
}

/* Others' blocks; then without the cache; then with what became free meanwhile; then the host waits. A limit that is
 * exceeded only because the driver frees nothing is the driver's failure. */
static int reclaim(request *r, mf__block **out, mf_error *err) {
  mf_error why;
  int kept = MF_OK;
  for (int step = 0; step < 3; step++) {
    if (step == 1) mf__retire_drain(r->pool->device.backend);
    if (step == 2) wait_for_driver(r);
    r->claim.may_block = r->pool->device.space == MF__DEVICE || step == 2;
    *out = take_ready(r);
    if (*out != NULL) return MF_OK;
    kept = free_cached(r, &why);
    const int rc = grow(r, out, err);
    if (rc != MF_ENOMEM) return rc;
  }
  if (kept == MF_OK || err->driver_code != 0) return out_of_memory(r, err);
  *err = why;
  return kept;
}

static int refuse_captured(const request *r, mf_error *err) {
  const mf__queue *on = r->claim.on;
  return mf__fail(err, MF_ECAPTURE,
                  "stream 0x%llx of %s:%d is being captured, and no memory of %lld bytes is kept for it; allocate "
                  "before the capture",
                  (unsigned long long)on->stream, on->backend->name, on->ordinal, (long long)r->asked);
}

static int take_slowly(request *r, mf__block **out, mf_error *err) {
  int rc = mf__claim_look(&r->claim, err);
  if (rc != MF_OK) return rc;
  *out = take_ready(r);
  if (*out == NULL) {
    if (r->claim.captured) return refuse_captured(r, err);
    mf_error failed; /* which the caller sees only if nothing helps */
    rc = grow(r, out, &failed);
    if (rc == MF_ENOMEM) rc = reclaim(r, out, &failed);
    if (rc != MF_OK && err != NULL) *err = failed;
    if (rc != MF_OK) return rc;
  }
  pthread_mutex_lock(&r->pool->lock);
  r->pool->misses++;
  pthread_mutex_unlock(&r->pool->lock);
  return MF_OK;
}

int mf__pool_take(const mf__queue *on, mf__space space, int64_t nbytes, void **data, void **block_out, mf_error *err) {
  const mf__device device = {on->backend, space, on->ordinal};
  request r = {.nbytes = round_up(nbytes), .asked = nbytes, .claim = mf__claim_of(on)};
  int32_t count;
  int rc = on->backend->usable() ? MF_OK : on->backend->device_count(&count, err);
  if (rc == MF_OK) rc = pool_find(&device, &r.pool, err);
  if (rc != MF_OK) return rc;
  mf__retire_poll();
  mf__block *b = take_at_once(&r);
  if (b == NULL) rc = take_slowly(&r, &b, err);
  if (rc != MF_OK) return rc;
  mf__block_take(b, &r.claim);
  *data = b->data;
  *block_out = b;
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
  mf__claim c = mf__claim_of(&q);
  const int rc = mf__claim_look(&c, err);
  c.may_block = b->has_home && mf__home_same(&b->home, &c.home);
  if (rc == MF_OK && !c.captured) return free_or_put(b, &c, err);
  put(b);
  return rc == MF_ECAPTURE ? MF_OK : rc;
}

int mf__pool_trim(const mf__device *device, mf_error *err) {
  request r = {0};
  int first = pool_find(device, &r.pool, err);
  if (first != MF_OK) return first;
  for (mf__block *b = take_all(&r), *next; b != NULL; b = next) {
    next = b->next;
    const int rc = trim_block(b, first == MF_OK ? err : NULL);
    if (first == MF_OK) first = rc;
  }
  return first;
}

static bool caches(pool *p) {
  if (p == NULL) return false;
  pthread_mutex_lock(&p->lock);
  const bool something = p->cached != 0;
  pthread_mutex_unlock(&p->lock);
  return something;
}

bool mf__pools_cache(const mf__backend *backend) {
  for (int32_t i = 0; i < MF__MAX_ORDINALS; i++)
    for (int space = 0; space < MF__NSPACES; space++)
      if (caches(atomic_load_explicit(&pools[backend->index][i][space], memory_order_acquire))) return true;
  return false;
}
