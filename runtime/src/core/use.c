/* use.c: the host's use of plain memory of the host, which waits for the fences that others have set there, and the end
 * of that use.
 *
 * Invariant: a memory's list of fences is made once and lives as long as the memory; the epoch changes after that and
 * after a memory was taken back, so that a reader who keeps a pointer notices. It must not know how a fence is kept,
 * nor who sets one. */
#include "core/core.h"

static _Atomic uint32_t epoch;
_Static_assert(sizeof epoch == sizeof(uint32_t), "an atomic number is read as a plain one by other languages");

const uint32_t *mf_fence_epoch(void) {
  return (const uint32_t *)&epoch;
}

static void begin_epoch(void) {
  atomic_fetch_add_explicit(&epoch, 1, memory_order_release);
}

int mf_tensor_invalidate(mf_tensor *t, int32_t *in_use, mf_error *err) {
  MF__NEED(t);
  const int rc = mf__storage_invalidate(t->storage, err);
  if (rc == MF_OK) begin_epoch();
  if (in_use != NULL)
    *in_use = rc == MF_OK && (mf__storage_is_shared(t->storage) ||
                              atomic_load_explicit(&t->refs, memory_order_acquire) > 1);
  return mf__end(rc, __func__, err);
}

int mf__fences_settle(const mf_tensor *t, bool write, mf_error *err) {
  bool done;
  mf__fences *f = mf__storage_fences(t->storage);
  return f == NULL ? MF_OK : mf__fences_wait(f, write, INT64_MAX, &done, err);
}

/* Another thread may have made a list meanwhile. */
static void set_fences(mf_tensor *t, mf__fences *made) {
  if (mf__storage_set_fences(t->storage, made) == made) begin_epoch();
  else mf__fences_free(made);
}

int mf__fences_open(mf_tensor *const *tensors, int32_t n, mf_error *err) {
  mf__fences *made[MF_RING_MAX];
  for (int32_t i = 0; i < n; i++) {
    const bool has = mf__storage_fences(tensors[i]->storage) != NULL;
    made[i] = has ? NULL : mf__fences_create();
    if (has || made[i] != NULL) continue;
    while (i-- > 0) mf__fences_free(made[i]);
    return mf__fail(err, MF_ENOMEM, "no memory for the fences of this memory");
  }
  for (int32_t i = 0; i < n; i++)
    if (made[i] != NULL) set_fences(tensors[i], made[i]);
  return MF_OK;
}

static int check_plain(const mf_tensor *t, int32_t use, mf_error *err) {
  if (use != MF_READ && use != MF_WRITE)
    return mf__fail(err, MF_EINVAL, "use is %d; 1 (MF_READ) or 2 (MF_WRITE) expected", use);
  if (mf__tensor_record(t) == NULL) return MF_OK;
  return mf__fail(err, MF_EINVAL, "the memory is a GPU driver's, which has streams (mf_tensor_record); plain memory of "
                                  "the host expected");
}

int mf_tensor_fence(mf_tensor *t, const mf_fence *fence, int32_t use, mf_error *err) {
  MF__NEED(t);
  int rc = check_plain(t, use, err);
  if (rc == MF_OK && fence != NULL && fence->wait == NULL)
    rc = mf__fail(err, MF_EINVAL, "fence.wait is NULL; a function expected");
  if (rc == MF_OK) rc = mf__fences_open(&t, 1, err);
  if (rc == MF_OK && fence != NULL) rc = mf__fences_add(mf__storage_fences(t->storage), fence, use == MF_WRITE, err);
  return mf__end(rc, __func__, err);
}

int mf_tensor_fence_wait(const mf_tensor *t, int32_t use, int64_t ns, int32_t *out, mf_error *err) {
  MF__NEED(t);
  MF__NEED(out);
  bool done = true;
  mf__fences *f = mf__storage_fences(t->storage);
  int rc = check_plain(t, use, err);
  if (rc == MF_OK && ns < 0)
    rc = mf__fail(err, MF_EINVAL, "ns is %lld; 0 or more nanoseconds expected", (long long)ns);
  if (rc == MF_OK && f != NULL) rc = mf__fences_wait(f, use == MF_WRITE, ns, &done, err);
  *out = rc == MF_OK && done;
  return mf__end(rc, __func__, err);
}
