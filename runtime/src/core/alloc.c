/* alloc.c: takes all host memory and gives it back, and keeps the ledger of what is alive.
 *
 * Invariant: every block that mf__alloc gives out is counted until mf__free gets it back with the same size.
 *
 * Every exchange changes the counters, and a locked add costs as much as the exchange itself. So each thread counts in
 * a slot of its own with plain loads and stores (relaxed atomics), and a reader adds the slots up. A slot keeps its
 * values when its thread ends and goes to the next thread that asks; a block may be freed by another thread than the
 * one that allocated it, so only the sum means anything.
 *
 * A slot also keeps one free block of each small size: exchanges allocate and free the same few sizes over and over,
 * and malloc costs them more than all the rest. */
#include "core/core.h"

#include <pthread.h>
#include <stdlib.h>

#define NSLOTS 128

static mf__slot slots[NSLOTS];
/* For threads beyond NSLOTS, with locked adds. */
static mf__slot shared_slot;

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

mf_realloc_fn mf__allocator;
static void *allocator_ctx;

typedef struct fault_state {
  int64_t countdown; /* allocations until the one that fails, that one included; 0 is disarmed */
  int64_t hits;
  int32_t sticky;
} fault_state;

static _Thread_local fault_state fault MF__TLS;
static _Thread_local mf__slot *own_slot MF__TLS;

_Thread_local _Atomic int64_t *mf__thread_counts MF__TLS;
_Thread_local mf__slot *mf__thread_slot MF__TLS;

static void use_slot(mf__slot *s) {
  own_slot = s;
  mf__thread_counts = s == NULL ? NULL : s->counts;
  mf__thread_slot = fault.countdown != 0 ? NULL : s;
}

static void give_slot_back(void *ptr) {
  mf__slot *s = ptr;
  use_slot(NULL);
  for (size_t i = 0; i <= MF__SPARE_MAX / 8; i++) {
    free(s->spares[i]);
    s->spares[i] = NULL;
  }
  atomic_store_explicit(&s->taken, 0, memory_order_release);
}

static void make_key(void) {
  /* Without a key the slots of ended threads are not used again, and later threads share one. */
  (void)pthread_key_create(&key, give_slot_back);
}

/* For a thread without a slot: it gets one, or counts in the shared one. */
void mf__count_first(mf__counter which, int64_t delta) {
  mf__slot *s = &shared_slot;
  pthread_once(&key_once, make_key);
  for (int i = 0; i < NSLOTS; i++) {
    /* The load comes first: with more threads than slots this loop runs at each count, and an exchange costs more. */
    if (atomic_load_explicit(&slots[i].taken, memory_order_relaxed) == 0 &&
        atomic_exchange_explicit(&slots[i].taken, 1, memory_order_acquire) == 0) {
      s = &slots[i];
      (void)pthread_setspecific(key, s);
      use_slot(s);
      break;
    }
  }
  atomic_fetch_add_explicit(&s->counts[which], delta, memory_order_relaxed);
}

static int64_t total(mf__counter which) {
  int64_t sum = atomic_load_explicit(&shared_slot.counts[which], memory_order_relaxed);
  for (int i = 0; i < NSLOTS; i++)
    sum = mf__count_sum(sum, atomic_load_explicit(&slots[i].counts[which], memory_order_relaxed));
  return sum;
}

void mf_ledger_read(mf_ledger *out) {
  if (out == NULL) return;
  out->tensors = total(MF__TENSORS);
  out->storages = total(MF__STORAGES);
  out->bytes = total(MF__BYTES);
  out->blocks = total(MF__BLOCKS);
}

int mf_allocator_set(mf_realloc_fn fn, void *ctx, mf_error *err) {
  const int64_t blocks = total(MF__BLOCKS);
  if (blocks != 0) {
    const int rc = mf__fail(err, MF_EINVAL,
                            "the allocator cannot change while %lld blocks of the old one are alive",
                            (long long)blocks);
    return mf__end(rc, __func__, err);
  }
  mf__allocator = fn;
  allocator_ctx = ctx;
  return MF_OK;
}

static void arm(int64_t countdown) {
  fault.countdown = countdown;
  mf__thread_slot = countdown != 0 ? NULL : own_slot;
}

void mf_fault_arm(int64_t nth, int32_t sticky) {
  arm(nth < 0 || nth == INT64_MAX ? 0 : nth + 1);
  fault.sticky = sticky;
  fault.hits = 0;
}

int64_t mf_fault_hits(void) {
  return fault.hits;
}

static bool fault_strikes(void) {
  if (fault.countdown > 1) {
    fault.countdown--;
    return false;
  }
  fault.hits++;
  if (!fault.sticky) arm(0);
  return true;
}

/* Rounds up, because any size of the same unit may get the block later. */
void *mf__alloc_any(size_t nbytes) {
  if (fault.countdown != 0 && fault_strikes()) return NULL;
  const size_t unit = (nbytes + 7) / 8 * 8;
  void *ptr = mf__allocator != NULL ? mf__allocator(allocator_ctx, NULL, 0, nbytes) : malloc(unit);
  if (ptr != NULL) mf__count(MF__BLOCKS, 1);
  return ptr;
}

void *mf__lasting_alloc(size_t nbytes) {
  return fault.countdown != 0 && fault_strikes() ? NULL : calloc(1, nbytes);
}

void *mf__lasting_grow(void *ptr, size_t nbytes) {
  return fault.countdown != 0 && fault_strikes() ? NULL : realloc(ptr, nbytes);
}

void mf__free_any(void *ptr, size_t nbytes) {
  mf__count(MF__BLOCKS, -1);
  if (mf__allocator != NULL)
    (void)mf__allocator(allocator_ctx, ptr, nbytes, 0);
  else
    free(ptr);
}
