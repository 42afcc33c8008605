/* ring.c: some memories of the host in turn: one is written while others are drawn.
 *
 * Invariant: each slot is in one state, and one thread goes on with it from there: FREE slots are the writer's to take,
 * a COOLING one becomes free for the thread that sees its fences done, and a HELD one is the writer's, the reader's or,
 * in `latest`, that of the thread which takes its number out of there. No lock is taken. It must not know what a fence
 * is of. */
#include "core/core.h"

enum { FREE, COOLING, HELD };

/* Instead of the writer's slot. A fence that is asked while the slot is taken, or gets a fence, may call the writer's
 * functions: it finds no slot to write, and none to give back a second time. */
enum { NONE = -1, TAKING = -2, GIVING = -3 };

/* A state and, above it, the turn, counted from 1, in which the slot was given back: the lowest one has been free for
 * longest. Both change as one: a thread that has looked at the fences of an earlier turn cannot free a later one. */
#define STATES 4

typedef struct ring_slot {
  mf_tensor *tensor;
  _Atomic uint64_t word; /* turn * STATES + state */
} ring_slot;

struct mf_ring {
  _Atomic int64_t refs;
  int32_t n;
  _Atomic int32_t written; /* the writer's slot, or NONE, TAKING, GIVING */
  _Atomic int32_t latest;  /* the published slot that nobody took, -1 for none */
  _Atomic int32_t read;    /* the reader's slot, -1 for none */
  bool sets_fence;         /* the reader, which keeps its slot meanwhile */
  _Atomic uint64_t turns;
  ring_slot slots[];
};

static size_t ring_nbytes(int32_t n) {
  return sizeof(mf_ring) + (size_t)n * sizeof(ring_slot);
}

/* Making */

static int check_apart(mf_tensor *const *slots, int32_t i, mf_error *err) {
  for (int32_t k = 0; k < i; k++) {
    if (slots[i]->storage == slots[k]->storage)
      return mf__fail(err, MF_EINVAL, "slots[%d] and slots[%d] are views of one memory; a memory for each expected", k,
                      i);
    if (!slots[i]->empty && !slots[k]->empty && mf__overlap(slots[i], slots[k]))
      return mf__fail(err, MF_EINVAL, "slots[%d] and slots[%d] overlap", k, i);
  }
  return MF_OK;
}

static int check_slots(mf_tensor *const *slots, int32_t n, mf_error *err) {
  if (n < 1 || n > MF_RING_MAX)
    return mf__fail(err, MF_EINVAL, "n is %d; 1 to %d slots expected", n, MF_RING_MAX);
  for (int32_t i = 0; i < n; i++) {
    int rc = slots[i] == NULL ? mf__fail(err, MF_EINVAL, "slots[%d] is NULL; a tensor expected", i) : MF_OK;
    if (rc == MF_OK) rc = mf__tensor_open(slots[i], err);
    if (rc == MF_OK && mf__tensor_record(slots[i]) != NULL)
      rc = mf__fail(err, MF_EINVAL, "slots[%d] is a GPU driver's memory; plain memory of the host expected", i);
    if (rc == MF_OK) rc = check_apart(slots, i, err);
    if (rc != MF_OK) return rc;
  }
  return MF_OK;
}

/* The slots count as ordered if there is a ring, and stay as they are if there is none. */
static int make(mf_tensor *const *slots, int32_t n, mf_ring **out, mf_error *err) {
  int rc = check_slots(slots, n, err);
  if (rc != MF_OK) return rc;
  *out = mf__alloc(ring_nbytes(n));
  if (*out == NULL) return mf__fail(err, MF_ENOMEM, "no memory for a ring of %d slots", n);
  rc = mf__fences_open(slots, n, err);
  if (rc == MF_OK) return rc;
  mf__free(*out, ring_nbytes(n));
  *out = NULL;
  return rc;
}

int mf_ring_create(mf_tensor *const *slots, int32_t n, mf_ring **out, mf_error *err) {
  MF__NEED_OUT(out);
  MF__NEED(slots);
  const int rc = make(slots, n, out, err);
  if (rc != MF_OK) return mf__end(rc, __func__, err);
  mf_ring *r = *out;
  atomic_init(&r->refs, 1);
  r->n = n;
  atomic_init(&r->written, NONE);
  atomic_init(&r->latest, -1);
  atomic_init(&r->read, -1);
  r->sets_fence = false;
  atomic_init(&r->turns, (uint64_t)n + 1);
  for (int32_t i = 0; i < n; i++) {
    r->slots[i].tensor = mf_tensor_retain(slots[i]);
    atomic_init(&r->slots[i].word, (uint64_t)(i + 1) * STATES + FREE);
  }
  return MF_OK;
}

mf_ring *mf_ring_retain(mf_ring *r) {
  if (r != NULL) atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
  return r;
}

void mf_ring_release(mf_ring *r) {
  if (r == NULL || !mf__refs_drop(&r->refs)) return;
  mf_tensor *slots[MF_RING_MAX];
  const int32_t n = r->n;
  for (int32_t i = 0; i < n; i++) slots[i] = r->slots[i].tensor;
  mf__free(r, ring_nbytes(n));
  const int before = mf__uncancelled_begin();
  for (int32_t i = 0; i < n; i++) mf_tensor_release(slots[i]); /* foreign code comes last */
  mf__uncancelled_end(before);
}

int32_t mf_ring_count(const mf_ring *r) {
  return r != NULL ? r->n : 0;
}

mf_tensor *mf_ring_slot(const mf_ring *r, int32_t i) {
  return r != NULL && i >= 0 && i < r->n ? r->slots[i].tensor : NULL;
}

/* Slots that come and go */

static void give_back(mf_ring *r, int32_t i) {
  const uint64_t turn = atomic_fetch_add_explicit(&r->turns, 1, memory_order_relaxed);
  atomic_store_explicit(&r->slots[i].word, turn * STATES + COOLING, memory_order_release);
}

/* The slot in that state that was given back first, of those with a higher word; -1 if there is none. */
static int32_t oldest(const mf_ring *r, uint64_t state, uint64_t above, uint64_t *word) {
  int32_t found = -1;
  *word = UINT64_MAX;
  for (int32_t i = 0; i < r->n; i++) {
    const uint64_t w = atomic_load_explicit(&r->slots[i].word, memory_order_acquire);
    if (w % STATES != state || w >= *word || w <= above) continue;
    found = i;
    *word = w;
  }
  return found;
}

/* Makes slots free whose fences are done. Their functions may release the ring, so that the caller holds it. */
static void cool(mf_ring *r) {
  uint64_t word;
  for (int32_t i = oldest(r, COOLING, 0, &word); i >= 0; i = oldest(r, COOLING, word, &word)) {
    int32_t done;
    uint64_t expected = word;
    (void)mf_tensor_fence_wait(r->slots[i].tensor, MF_WRITE, 0, &done, NULL);
    if (done)
      (void)atomic_compare_exchange_strong_explicit(&r->slots[i].word, &expected, word - COOLING + FREE,
                                                    memory_order_acq_rel, memory_order_relaxed);
  }
}

/* A free slot, or the latest one if nobody has taken it; -1 if there is neither. */
static int32_t take_now(mf_ring *r) {
  uint64_t word;
  cool(r);
  const int32_t i = oldest(r, FREE, 0, &word); /* only the writer takes them */
  return i >= 0 ? i : atomic_exchange_explicit(&r->latest, -1, memory_order_acq_rel);
}

/* Waits for the fence of the slot that was given back first. For a moment only where the reader has to look at it, or
 * to give a slot back: then why says so. */
static void wait_a_while(const mf_ring *r, int64_t ns, mf_error *why) {
  uint64_t word;
  int32_t done;
  const int32_t i = oldest(r, COOLING, 0, &word);
  int rc = mf__fail(why, MF_EINVAL, "the reader has not given one back");
  if (i >= 0) rc = mf_tensor_fence_wait(r->slots[i].tensor, MF_WRITE, ns, &done, why);
  if (rc == MF_OK) (void)mf__fail(why, MF_OK, "their fences are not done");
  else mf__nap(ns < 50000 ? (int32_t)ns : 50000);
}

static int take(mf_ring *r, int64_t ns, int32_t *out, mf_error *err) {
  mf_error why = {.message = "nobody waited"};
  const int64_t start = ns > 0 ? mf__clock_ns() : 0;
  *out = take_now(r);
  for (int64_t left = ns; *out < 0 && left > 0; left = ns == INT64_MAX ? ns : ns - (mf__clock_ns() - start)) {
    wait_a_while(r, left, &why);
    *out = take_now(r);
  }
  if (*out >= 0) return MF_OK;
  return mf__fail(err, MF_ETIMEOUT, "none of the %d slots was free within %lld ns: %s", r->n, (long long)ns,
                  why.message);
}

/* The writer */

int mf_ring_begin(mf_ring *r, int64_t ns, int32_t *slot, mf_error *err) {
  int32_t none = NONE;
  MF__NEED(slot);
  *slot = -1;
  MF__NEED(r);
  if (ns < 0) {
    const int rc = mf__fail(err, MF_EINVAL, "ns is %lld; 0 or more nanoseconds expected", (long long)ns);
    return mf__end(rc, __func__, err);
  }
  if (!atomic_compare_exchange_strong_explicit(&r->written, &none, TAKING, memory_order_acquire,
                                               memory_order_relaxed)) {
    const int rc = mf__fail(err, MF_EINVAL, "a slot is being written; give it back or publish it first");
    return mf__end(rc, __func__, err);
  }
  (void)mf_ring_retain(r);
  const int rc = take(r, ns, slot, err);
  if (rc == MF_OK) atomic_store_explicit(&r->slots[*slot].word, HELD, memory_order_relaxed);
  atomic_store_explicit(&r->written, *slot, memory_order_release);
  mf_ring_release(r);
  return mf__end(rc, __func__, err);
}

/* Takes the slot from the writer, who has it back only from a call that fails. */
static int take_written(mf_ring *r, int32_t *out, mf_error *err) {
  *out = atomic_load_explicit(&r->written, memory_order_acquire);
  int32_t now = *out;
  if (now >= 0 && atomic_compare_exchange_strong_explicit(&r->written, &now, GIVING, memory_order_relaxed,
                                                          memory_order_relaxed))
    return MF_OK;
  if (now == GIVING) return mf__fail(err, MF_EINVAL, "the slot that was written is just being given back");
  return mf__fail(err, MF_EINVAL, "no slot is being written; begin one first");
}

int mf_ring_end(mf_ring *r, const mf_fence *fence, int32_t use, mf_error *err) {
  MF__NEED(r);
  int32_t i;
  (void)mf_ring_retain(r);
  int rc = take_written(r, &i, err);
  const bool taken = rc == MF_OK;
  if (taken && fence != NULL) rc = mf_tensor_fence(r->slots[i].tensor, fence, use, err);
  if (taken && rc == MF_OK) give_back(r, i);
  if (taken) atomic_store_explicit(&r->written, rc == MF_OK ? NONE : i, memory_order_release);
  mf_ring_release(r);
  return mf__end(rc, __func__, err);
}

int mf_ring_publish(mf_ring *r, mf_error *err) {
  MF__NEED(r);
  int32_t i;
  const int rc = take_written(r, &i, err);
  if (rc == MF_OK) {
    const int32_t before = atomic_exchange_explicit(&r->latest, i, memory_order_acq_rel);
    if (before >= 0) give_back(r, before);
    atomic_store_explicit(&r->written, NONE, memory_order_release);
  }
  return mf__end(rc, __func__, err);
}

/* The reader */

int mf_ring_latest(mf_ring *r, int32_t *slot, int32_t *fresh, mf_error *err) {
  MF__NEED(r);
  MF__NEED(slot);
  const int32_t i = r->sets_fence ? -1 : atomic_exchange_explicit(&r->latest, -1, memory_order_acq_rel);
  if (i >= 0) {
    const int32_t before = atomic_load_explicit(&r->read, memory_order_relaxed);
    atomic_store_explicit(&r->read, i, memory_order_relaxed);
    if (before >= 0) give_back(r, before);
  }
  (void)mf_ring_retain(r);
  cool(r);
  *slot = atomic_load_explicit(&r->read, memory_order_relaxed);
  if (fresh != NULL) *fresh = i >= 0;
  mf_ring_release(r);
  return MF_OK;
}

int mf_ring_fence(mf_ring *r, const mf_fence *fence, int32_t use, mf_error *err) {
  MF__NEED(r);
  (void)mf_ring_retain(r);
  const int32_t i = atomic_load_explicit(&r->read, memory_order_relaxed);
  int rc = i >= 0 ? MF_OK : mf__fail(err, MF_EINVAL, "the reader has no slot; take the latest one first");
  if (rc == MF_OK && fence == NULL) rc = mf__fail(err, MF_EINVAL, "fence is NULL; a fence expected");
  const bool outer = r->sets_fence; /* a fence that is asked may set one, too */
  r->sets_fence = true;
  if (rc == MF_OK) rc = mf_tensor_fence(r->slots[i].tensor, fence, use, err);
  r->sets_fence = outer;
  mf_ring_release(r);
  return mf__end(rc, __func__, err);
}
