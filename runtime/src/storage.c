/* storage.c: memory with a reference count: our own, wrapped, or imported.
 *
 * Invariant: what a storage holds of others (release callback, deleter) is called exactly once, by the
 * thread that drops the last reference, after which the storage no longer exists; no lock is held then. It
 * must not know about shapes or dtypes. */
#include "internal.h"

typedef enum origin_kind { OWNED, WRAPPED, IMPORTED, IMPORTED_LEGACY } origin_kind;

struct mf__storage {
  _Atomic int64_t refs;
  _Atomic int32_t closed;
  origin_kind origin;
  int64_t nbytes;        /* of element memory, as the ledger counts it */
  mf_release_fn release; /* WRAPPED */
  void *holder;          /* WRAPPED: the callback's context; IMPORTED: the managed struct */
};

static size_t block_nbytes(const mf__storage *s) {
  const size_t data = s->origin == OWNED && s->nbytes > 0 ? (size_t)s->nbytes + MF_ALIGNMENT - 1 : 0;
  return sizeof *s + data;
}

static int storage_new(origin_kind origin, int64_t nbytes, void *holder, mf__storage **out, mf_error *err) {
  const mf__storage shape = {.origin = origin, .nbytes = nbytes};
  const size_t block = block_nbytes(&shape);
  mf__storage *s = mf__alloc(block);
  *out = s;
  if (s == NULL) return mf__fail(err, MF_ENOMEM, "no memory for %zu bytes", block);
  atomic_init(&s->refs, 1);
  atomic_init(&s->closed, 0);
  s->origin = origin;
  s->nbytes = nbytes;
  s->release = NULL;
  s->holder = holder;
  mf__count(MF__STORAGES, 1);
  mf__count(MF__BYTES, nbytes);
  return MF_OK;
}

/* Description and elements share one block: the elements begin at the first aligned byte behind. */
int mf__storage_create(int64_t nbytes, void **data, mf__storage **out, mf_error *err) {
  *data = NULL;
  *out = NULL;
  if (nbytes > INT64_MAX - 4096)
    return mf__fail(err, MF_EOVERFLOW, "%lld bytes leave the range of memory", (long long)nbytes);
  const int rc = storage_new(OWNED, nbytes, NULL, out, err);
  if (rc != MF_OK || nbytes == 0) return rc;
  const uintptr_t behind = (uintptr_t)(*out + 1);
  *data = (char *)(*out + 1) + (MF_ALIGNMENT - behind % MF_ALIGNMENT) % MF_ALIGNMENT;
  return rc;
}

int mf__storage_wrap(int64_t nbytes, mf_release_fn release, void *ctx, mf__storage **out, mf_error *err) {
  const int rc = storage_new(WRAPPED, nbytes, ctx, out, err);
  if (rc == MF_OK) (*out)->release = release;
  return rc;
}

int mf__storage_import(int64_t nbytes, DLManagedTensorVersioned *managed, mf__storage **out, mf_error *err) {
  return storage_new(IMPORTED, nbytes, managed, out, err);
}

int mf__storage_import_legacy(int64_t nbytes, DLManagedTensor *managed, mf__storage **out, mf_error *err) {
  return storage_new(IMPORTED_LEGACY, nbytes, managed, out, err);
}

void mf__storage_retain(mf__storage *s) {
  atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

void mf__storage_forget(mf__storage *s) {
  mf__count(MF__STORAGES, -1);
  mf__count(MF__BYTES, -s->nbytes);
  mf__free(s, block_nbytes(s));
}

static void give_back(origin_kind origin, mf_release_fn release, void *holder) {
  if (origin == WRAPPED && release != NULL) release(holder);
  if (origin == IMPORTED) {
    DLManagedTensorVersioned *managed = holder;
    if (managed->deleter != NULL) managed->deleter(managed);
  }
  if (origin == IMPORTED_LEGACY) {
    DLManagedTensor *managed = holder;
    if (managed->deleter != NULL) managed->deleter(managed);
  }
}

void mf__storage_release(mf__storage *s) {
  if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) return;
  const origin_kind origin = s->origin;
  const mf_release_fn release = s->release;
  void *holder = s->holder;
  /* Foreign code comes last, when nothing of ours is left for it to find half done. */
  mf__storage_forget(s);
  give_back(origin, release, holder);
}

int mf__storage_invalidate(mf__storage *s, mf_error *err) {
  if (s->origin != WRAPPED)
    return mf__fail(err, MF_EINVAL, "the memory is %s; only wrapped memory can be taken back",
                    s->origin == OWNED ? "Moonferry's own" : "imported");
  atomic_store_explicit(&s->closed, 1, memory_order_release);
  return MF_OK;
}

bool mf__storage_is_shared(mf__storage *s) {
  return atomic_load_explicit(&s->refs, memory_order_acquire) > 1;
}

bool mf__storage_is_closed(const mf__storage *s) {
  return atomic_load_explicit(&s->closed, memory_order_acquire) != 0;
}
