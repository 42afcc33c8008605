/* alloc.c: the one place where host memory is taken and given back, and the ledger of what is alive.
 *
 * Invariant: every block that mf__alloc gives out is counted until mf__free gets it back with the same size.
 *
 * The counters are on the path of every exchange, where a locked add costs as much as the exchange itself. So
 * each thread counts in a slot of its own with plain loads and stores (relaxed atomics), and a reader sums
 * the slots. A slot keeps its values when its thread ends and goes to the next thread that asks; a block
 * may be freed by another thread than the one that allocated it, so only the sum means anything.
 *
 * A slot also keeps one free block of each small size: exchanges allocate and free the same few sizes over
 * and over, and malloc costs them more than all the rest. */
#include "internal.h"

#include <pthread.h>
#include <stdlib.h>

#define NSLOTS 128

#ifndef __has_feature
#define __has_feature(name) 0
#endif

/* Blocks up to this size are kept. The sanitizers must see every free. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) || \
  __has_feature(thread_sanitizer)
#define SPARE_MAX 0
#else
#define SPARE_MAX 256
#endif

typedef struct slot {
  _Alignas(64) _Atomic int64_t counts[MF__NCOUNTERS];
  _Atomic int claimed;
  void *spares[SPARE_MAX / 8 + 1]; /* by size in units of 8 bytes; the owning thread's alone */
} slot;

static slot slots[NSLOTS];
/* For threads beyond NSLOTS, with locked adds. */
static slot shared_slot;

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

static mf_realloc_fn allocator;
static void *allocator_ctx;

/* The initial-exec model saves a call per access; the block is small enough for dlopen. */
typedef struct thread_state {
  slot *slot;
  int64_t fault_left; /* allocations until the one that fails, that one included; 0 is disarmed */
  int64_t fault_hits;
  int32_t fault_sticky;
} thread_state;

static _Thread_local thread_state thread __attribute__((tls_model("initial-exec")));

_Thread_local _Atomic int64_t *mf__thread_counts __attribute__((tls_model("initial-exec")));

static void give_slot_back(void *ptr) {
  slot *s = ptr;
  thread.slot = NULL;
  mf__thread_counts = NULL;
  for (size_t i = 0; i <= SPARE_MAX / 8; i++) {
    free(s->spares[i]);
    s->spares[i] = NULL;
  }
  atomic_store_explicit(&s->claimed, 0, memory_order_release);
}

static void make_key(void) {
  /* Without a key the slots of ended threads are not used again, and later threads share one. */
  (void)pthread_key_create(&key, give_slot_back);
}

static slot *claim_slot(void) {
  pthread_once(&key_once, make_key);
  for (int i = 0; i < NSLOTS; i++) {
    if (atomic_exchange_explicit(&slots[i].claimed, 1, memory_order_acquire) == 0) {
      (void)pthread_setspecific(key, &slots[i]);
      mf__thread_counts = slots[i].counts;
      return thread.slot = &slots[i];
    }
  }
  return &shared_slot;
}

/* For a thread without a slot: it gets one, or counts in the shared one. */
void mf__count_first(mf__counter which, int64_t delta) {
  slot *s = claim_slot();
  atomic_fetch_add_explicit(&s->counts[which], delta, memory_order_relaxed);
}

static int64_t total(mf__counter which) {
  int64_t sum = atomic_load_explicit(&shared_slot.counts[which], memory_order_relaxed);
  for (int i = 0; i < NSLOTS; i++)
    sum = mf__count_sum(sum, atomic_load_explicit(&slots[i].counts[which], memory_order_relaxed));
  return sum;
}

void mf_ledger_read(mf_ledger *out) {
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
  allocator = fn;
  allocator_ctx = ctx;
  return MF_OK;
}

void mf_fault_arm(int64_t nth, int32_t sticky) {
  thread.fault_left = nth < 0 || nth == INT64_MAX ? 0 : nth + 1;
  thread.fault_sticky = sticky;
  thread.fault_hits = 0;
}

int64_t mf_fault_hits(void) {
  return thread.fault_hits;
}

static bool fault_strikes(void) {
  if (thread.fault_left > 1) {
    thread.fault_left--;
    return false;
  }
  thread.fault_hits++;
  if (!thread.fault_sticky) thread.fault_left = 0;
  return true;
}

/* Where this thread keeps a spare block of a size; NULL where it keeps none. */
static void **spare_place(size_t nbytes) {
  return thread.slot == NULL || nbytes > SPARE_MAX ? NULL : &thread.slot->spares[(nbytes + 7) / 8];
}

static void *take_block(size_t nbytes) {
  void **place = spare_place(nbytes);
  /* Rounded up, because any size of its unit may get the block later. */
  if (place == NULL || *place == NULL) return malloc((nbytes + 7) / 8 * 8);
  void *ptr = *place;
  *place = NULL;
  return ptr;
}

static void give_block_back(void *ptr, size_t nbytes) {
  void **place = spare_place(nbytes);
  if (place != NULL && *place == NULL)
    *place = ptr;
  else
    free(ptr);
}

void *mf__alloc(size_t nbytes) {
  if (thread.fault_left != 0 && fault_strikes()) return NULL;
  void *ptr = allocator != NULL ? allocator(allocator_ctx, NULL, 0, nbytes) : take_block(nbytes);
  if (ptr != NULL) mf__count(MF__BLOCKS, 1);
  return ptr;
}

void mf__free(void *ptr, size_t nbytes) {
  mf__count(MF__BLOCKS, -1);
  if (allocator != NULL)
    (void)allocator(allocator_ctx, ptr, nbytes, 0);
  else
    give_block_back(ptr, nbytes);
}
