/* storage.c: owns memory by a reference count: our own, wrapped, or imported.
 *
 * The tensor that a storage is made for lies in the same block, in the room behind it, so that an import costs one
 * allocation; elements of our own follow it there.
 *
 * Invariant: a release callback or deleter that a storage holds is called exactly once, after which the storage no
 * longer exists; no lock is held then. Only this file calls foreign code, and it does so only below the functions that
 * moonferry.h names for it: elsewhere the last reference of a storage puts it into the due list, which needs no memory.
 * It must not know about shapes or dtypes, nor what a record says. */
#include "core/core.h"

enum { CLOSED = 1, FENCED = 2 };

typedef enum origin_kind { OWNED, WRAPPED, IMPORTED, IMPORTED_LEGACY } origin_kind;

struct mf__storage {
  _Atomic int64_t refs;
  _Atomic int32_t marks; /* CLOSED, FENCED */
  int16_t origin;
  bool quiet;            /* its release calls no foreign code */
  size_t block;          /* bytes of the whole block, from this struct on */
  int64_t nbytes;        /* of element memory, as the ledger counts it */
  mf_release_fn release; /* WRAPPED */
  void *holder;          /* WRAPPED: the callback's context; IMPORTED: the managed struct */
  mf__storage *base;     /* of memory of ours that came back: the storage that it shares memory and record with, with
                            a reference */
  _Atomic(mf__fences *) fences; /* of memory without a record */
  union {
    mf__record *record; /* of memory that a driver knows */
    mf__storage *next;  /* in the due list or the fenced one, where the record is gone */
  };
};

/* behind is how many bytes follow the struct in its block. */
static int storage_new(origin_kind origin, size_t behind, int64_t nbytes, mf__storage **out, mf_error *err) {
  const size_t block = sizeof(mf__storage) + behind;
  mf__storage *s = mf__alloc(block);
  *out = s;
  if (s == NULL) return mf__fail(err, MF_ENOMEM, "no memory for %zu bytes", block);
  *s = (mf__storage){.refs = 1, .origin = (int16_t)origin, .block = block, .nbytes = nbytes};
  mf__count(MF__STORAGES, 1);
  mf__count(MF__BYTES, nbytes);
  return MF_OK;
}

void *mf__storage_room(mf__storage *s) {
  return s + 1;
}

/* ${of} is a power of two. */
static size_t to_multiple(size_t n, size_t of) {
  return (n + of - 1) & ~(of - 1);
}

/* The elements begin at the first aligned byte behind the room; with ${pages} all of the last page is the memory's,
 * too. Nothing overflows: a layout whose bits fit into int64_t has fewer than 2^61 bytes. */
int mf__storage_create(size_t room, int64_t nbytes, bool pages, void **data, mf__storage **out, mf_error *err) {
  const size_t unit = pages ? mf__page_nbytes() : MF_ALIGNMENT;
  const size_t elements = pages ? to_multiple((size_t)nbytes, unit) : (size_t)nbytes;
  const int rc = storage_new(OWNED, room + elements + unit - 1, nbytes, out, err);
  if (*out == NULL || nbytes == 0) return rc;
  const uintptr_t behind = (uintptr_t)mf__storage_room(*out) + room;
  *data = (char *)mf__storage_room(*out) + room + (to_multiple(behind, unit) - behind);
  return rc;
}

int mf__storage_create_apart(size_t room, int64_t nbytes, mf__storage **out, mf_error *err) {
  return storage_new(OWNED, room, nbytes, out, err);
}

int mf__storage_adopt(size_t room, int64_t nbytes, const mf__foreign *from, mf__storage **out, mf_error *err) {
  const origin_kind origin = from->versioned != NULL ? IMPORTED : from->legacy != NULL ? IMPORTED_LEGACY : WRAPPED;
  const int rc = storage_new(origin, room, nbytes, out, err);
  if (rc != MF_OK) return rc;
  (*out)->release = from->release;
  (*out)->holder = origin == IMPORTED ? (void *)from->versioned : origin == WRAPPED ? from->ctx : (void *)from->legacy;
  (*out)->quiet = origin == WRAPPED && (from->release == mf_release_mark || from->release == mf_release_defer);
  return rc;
}

void mf__storage_set_record(mf__storage *s, mf__record *record, mf__storage *base) {
  s->record = record;
  s->base = base;
}

mf__record *mf__storage_record(const mf__storage *s) {
  return s->record;
}

mf__storage *mf__storage_base(const mf__storage *s) {
  return s->base;
}

void mf__storage_retain(mf__storage *s) {
  atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

/* The last release leaves the count at 1 (see mf__refs_drop), or at 0. Both this and mf__storage_let_go are called
 * under the lock of the block's owner, so that only one of them sees the storage alive. */
bool mf__storage_retain_living(mf__storage *s) {
  if (atomic_load_explicit(&s->refs, memory_order_acquire) == 0) return false;
  mf__storage_retain(s);
  return true;
}

bool mf__storage_let_go(mf__storage *s) {
  if (atomic_load_explicit(&s->refs, memory_order_acquire) <= 1) return true;
  return atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) == 1;
}

/* Whether there is a release callback or a deleter. */
static bool wants_release(const mf__storage *s) {
  switch ((origin_kind)s->origin) {
    case WRAPPED: return s->release != NULL;
    case IMPORTED: return ((const DLManagedTensorVersioned *)s->holder)->deleter != NULL;
    case IMPORTED_LEGACY: return ((const DLManagedTensor *)s->holder)->deleter != NULL;
    default: return false;
  }
}

/* How many deleters and release callbacks this thread is in, one below the other. They nest where each array keeps
 * another one alive, as arrays do that two libraries make of one another in turn. The one that would be the seventeenth
 * becomes due instead, so that a chain of any length ends on a small C stack. */
static _Thread_local int nested;
enum { NESTED_MAX = 16 };

/* Foreign code comes last, when nothing of ours is left for it to find half done. */
static void end_storage(mf__storage *s) {
  const origin_kind origin = (origin_kind)s->origin;
  const mf_release_fn release = s->release;
  void *holder = s->holder;
  const bool wanted = wants_release(s);
  mf__fences_free(atomic_load_explicit(&s->fences, memory_order_acquire));
  mf__count(MF__STORAGES, -1);
  mf__count(MF__BYTES, -s->nbytes);
  mf__free(s, s->block);
  if (!wanted) return;
  nested++;
  if (origin == WRAPPED) release(holder);
  else if (origin == IMPORTED) ((DLManagedTensorVersioned *)holder)->deleter(holder);
  else ((DLManagedTensor *)holder)->deleter(holder);
  nested--;
}

/* Storages whose foreign code is due, the last one first. A stack without a lock, so that a fork cannot leave one
 * locked; a thread that takes from it takes all. */
static _Atomic(mf__storage *) due;
static _Thread_local bool running;
/* The same of storages without a reference whose fences were not all done when somebody last looked. */
static _Atomic(mf__storage *) fenced;

static void push(_Atomic(mf__storage *) *list, mf__storage *s) {
  s->next = atomic_load_explicit(list, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(list, &s->next, s, memory_order_release, memory_order_relaxed)) {
  }
}

/* All that the list has, the first one first. */
static mf__storage *take_all(_Atomic(mf__storage *) *list) {
  mf__storage *first = NULL;
  for (mf__storage *s = atomic_exchange_explicit(list, NULL, memory_order_acquire), *next; s != NULL; s = next) {
    next = s->next;
    s->next = first;
    first = s;
  }
  return first;
}

static inline bool fences_are_done(const mf__storage *s) {
  mf__fences *f = atomic_load_explicit(&s->fences, memory_order_acquire);
  return f == NULL || mf__fences_end(f);
}

static void look_at_fenced(void) {
  if (atomic_load_explicit(&fenced, memory_order_relaxed) == NULL) return;
  for (mf__storage *s = take_all(&fenced), *next; s != NULL; s = next) {
    next = s->next;
    if (fences_are_done(s)) mf__storage_end(s);
    else push(&fenced, s);
  }
}

bool mf__foreign_is_due(void) {
  look_at_fenced();
  return atomic_load_explicit(&due, memory_order_relaxed) != NULL;
}

/* A deleter may make more storages due while it runs: their deleters are called after it, not within it. */
void mf_releases_run(void) {
  if (running) return;
  const int before = mf__uncancelled_begin(); /* what was taken from the list is in no other */
  running = true;
  look_at_fenced();
  for (mf__storage *s = take_all(&due); s != NULL; s = take_all(&due)) {
    for (mf__storage *next; s != NULL; s = next) {
      next = s->next;
      end_storage(s);
    }
  }
  running = false;
  mf__uncancelled_end(before);
}

void mf__storage_end(mf__storage *s) {
  if (wants_release(s) && !s->quiet) push(&due, s);
  else end_storage(s);
}

void mf__storage_release(mf__storage *s, bool foreign_allowed) {
  if (!mf__refs_drop(&s->refs)) return;
  if (s->record != NULL) mf__ops_of(s->record)->release(s);
  else if (!fences_are_done(s)) push(&fenced, s);
  else if (foreign_allowed && nested < NESTED_MAX) end_storage(s);
  else mf__storage_end(s);
}

int mf__storage_invalidate(mf__storage *s, mf_error *err) {
  if (s->origin != WRAPPED)
    return mf__fail(err, MF_EINVAL, "the memory is %s; only wrapped memory can be taken back",
                    s->origin == OWNED ? "Moonferry's own" : "imported");
  atomic_fetch_or_explicit(&s->marks, CLOSED, memory_order_release);
  return MF_OK;
}

bool mf__storage_is_shared(const mf__storage *s) {
  return atomic_load_explicit(&s->refs, memory_order_acquire) > 1;
}

bool mf__storage_is_own(const mf__storage *s) {
  return s->origin == OWNED;
}

/* Memory that came back is closed with the storage that it shares. */
bool mf__storage_is_closed(const mf__storage *s) {
  if ((atomic_load_explicit(&s->marks, memory_order_acquire) & CLOSED) != 0) return true;
  return s->base != NULL && (atomic_load_explicit(&s->base->marks, memory_order_acquire) & CLOSED) != 0;
}

bool mf__storage_is_marked(const mf__storage *s) {
  return atomic_load_explicit(&s->marks, memory_order_acquire) != 0;
}

mf__fences *mf__storage_fences(const mf__storage *s) {
  return atomic_load_explicit(&s->fences, memory_order_acquire);
}

mf__fences *mf__storage_set_fences(mf__storage *s, mf__fences *fences) {
  mf__fences *had = NULL;
  if (!atomic_compare_exchange_strong_explicit(&s->fences, &had, fences, memory_order_acq_rel, memory_order_acquire))
    return had;
  atomic_fetch_or_explicit(&s->marks, FENCED, memory_order_release);
  return fences;
}
