/* dlpack.c: the only place that reads or fills a managed tensor of DLPack. Everything that comes in passes
 * mf__dltensor_resolve before ownership is taken; everything that goes out is an `export_block`.
 *
 * Invariant: a managed struct is the producer's until import returns MF_OK, and ours from then on. Nothing
 * can fail after that point. */
#include "internal.h"

static int check_memory(const DLTensor *view, const mf__span *span, mf_error *err) {
  const uintptr_t base = (uintptr_t)view->data;
  const uint64_t reach_down = (uint64_t)-span->lo_byte;
  const uint64_t reach_up = (uint64_t)span->hi_byte;
  if (view->byte_offset > UINTPTR_MAX - base)
    return mf__fail(err, MF_EOVERFLOW, "byte_offset is %llu; data + byte_offset leaves the address space",
                    (unsigned long long)view->byte_offset);
  if (span->numel == 0) return MF_OK;
  if (view->data == NULL)
    return mf__fail(err, MF_EINVAL, "data is NULL, with %lld elements", (long long)span->numel);
  const uintptr_t first = base + (uintptr_t)view->byte_offset;
  if (reach_down > first || reach_up > UINTPTR_MAX - first)
    return mf__fail(err, MF_EOVERFLOW, "strides reach bytes %lld to %lld, which leave the address space",
                    (long long)span->lo_byte, (long long)span->hi_byte);
  return MF_OK;
}

int mf__dltensor_resolve(const DLTensor *view, uint64_t flags, DLTensor *resolved, int64_t *strides,
                         mf__span *span, mf_error *err) {
  const mf__backend *backend;
  int rc = mf__backend_find(&view->device, &backend, err);
  if (rc == MF_OK) rc = mf__dtype_check(&view->dtype, err);
  if (rc == MF_OK) rc = mf__shape_check(view->shape, view->ndim, err);
  if (rc != MF_OK) return rc;
  *resolved = *view;
  if (view->strides == NULL && view->ndim > 0) {
    rc = mf__compact_strides(view->shape, view->ndim, strides, err);
    if (rc != MF_OK) return rc;
    resolved->strides = strides;
  }
  rc = mf__span_compute(resolved, mf_dtype_bits(&view->dtype, flags), span, err);
  return rc == MF_OK ? check_memory(resolved, span, err) : rc;
}

int mf_dltensor_check(const DLTensor *view, uint64_t flags, mf_error *err) {
  int64_t strides[MF_MAX_NDIM];
  DLTensor resolved;
  mf__span span;
  return mf__end(mf__dltensor_resolve(view, flags, &resolved, strides, &span, err), __func__, err);
}

int mf_tensor_import(DLManagedTensorVersioned *managed, mf_tensor **out, mf_error *err) {
  int64_t strides[MF_MAX_NDIM];
  DLTensor resolved;
  mf__span span;
  mf__storage *storage = NULL;
  int rc = MF_OK;
  *out = NULL;
  if (managed->version.major != DLPACK_MAJOR_VERSION) {
    rc = mf__fail(err, MF_EVERSION, "version.major is %u; %d expected", managed->version.major,
                  DLPACK_MAJOR_VERSION);
    return mf__end(rc, __func__, err);
  }
  const uint64_t flags = managed->flags & MF__FLAGS_KNOWN;
  rc = mf__dltensor_resolve(&managed->dl_tensor, flags, &resolved, strides, &span, err);
  if (rc == MF_OK)
    rc = mf__storage_import(mf__tensor_nbytes(resolved.ndim), span.hi_byte - span.lo_byte, managed, &storage,
                            err);
  if (rc == MF_OK) *out = mf__tensor_first(&resolved, flags, storage);
  return mf__end(rc, __func__, err);
}

int mf_tensor_import_legacy(DLManagedTensor *managed, mf_tensor **out, mf_error *err) {
  int64_t strides[MF_MAX_NDIM];
  DLTensor resolved;
  mf__span span;
  mf__storage *storage = NULL;
  *out = NULL;
  int rc = mf__dltensor_resolve(&managed->dl_tensor, 0, &resolved, strides, &span, err);
  if (rc == MF_OK)
    rc = mf__storage_import_legacy(mf__tensor_nbytes(resolved.ndim), span.hi_byte - span.lo_byte, managed, &storage,
                            err);
  if (rc == MF_OK) *out = mf__tensor_first(&resolved, 0, storage);
  return mf__end(rc, __func__, err);
}

/* shape and strides of an exported struct are the tensor's own arrays: they never change, and the struct
 * keeps the tensor alive. */
static void describe(const mf_tensor *t, DLTensor *out) {
  *out = t->dl;
  if (mf__is_empty(&t->dl)) out->data = NULL;
}

static void delete_versioned(DLManagedTensorVersioned *self) {
  mf_tensor *t = self->manager_ctx;
  mf__free(self, sizeof *self);
  mf_tensor_release(t);
}

static void delete_legacy(DLManagedTensor *self) {
  mf_tensor *t = self->manager_ctx;
  mf__free(self, sizeof *self);
  mf_tensor_release(t);
}

int mf_tensor_export(mf_tensor *t, uint64_t flags, DLManagedTensorVersioned **out, mf_error *err) {
  *out = NULL;
  int rc = mf__tensor_open(t, err);
  if (rc == MF_OK && (flags & ~(uint64_t)DLPACK_FLAG_BITMASK_IS_COPIED))
    rc = mf__fail(err, MF_EINVAL, "flags is 0x%llx; 0 or 0x2 (is copied) expected", (unsigned long long)flags);
  if (rc != MF_OK) return mf__end(rc, __func__, err);
  DLManagedTensorVersioned *m = mf__alloc(sizeof *m);
  if (m == NULL) return mf__end(mf__fail(err, MF_ENOMEM, "no memory for the struct"), __func__, err);
  m->version = (DLPackVersion){DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  m->manager_ctx = mf_tensor_retain(t);
  m->deleter = delete_versioned;
  /* Whether this is a copy is up to this export, not to how t once came in. */
  m->flags = (t->flags & ~(uint64_t)DLPACK_FLAG_BITMASK_IS_COPIED) | flags;
  describe(t, &m->dl_tensor);
  *out = m;
  return MF_OK;
}

/* A struct without flags can carry neither of these two. */
static int check_flagless(const mf_tensor *t, mf_error *err) {
  if (t->flags & DLPACK_FLAG_BITMASK_READ_ONLY)
    return mf__fail(err, MF_EREADONLY, "the tensor is read-only, which this struct cannot say; a versioned one can");
  if (mf__tensor_padded(t) && t->dl.dtype.bits < 8)
    return mf__fail(err, MF_EDTYPE, "the elements are padded to bytes, which this struct cannot say");
  return mf__tensor_open(t, err);
}

int mf_tensor_export_legacy(mf_tensor *t, DLManagedTensor **out, mf_error *err) {
  *out = NULL;
  const int rc = check_flagless(t, err);
  if (rc != MF_OK) return mf__end(rc, __func__, err);
  DLManagedTensor *m = mf__alloc(sizeof *m);
  if (m == NULL) return mf__end(mf__fail(err, MF_ENOMEM, "no memory for the struct"), __func__, err);
  m->manager_ctx = mf_tensor_retain(t);
  m->deleter = delete_legacy;
  describe(t, &m->dl_tensor);
  *out = m;
  return MF_OK;
}

/* Consumers call this for each argument of each kernel: the usual tensor leaves before any check that could
 * fail has to be set up. */
int mf_tensor_borrow(const mf_tensor *t, DLTensor *out, mf_error *err) {
  if (t->flags & ~(uint64_t)DLPACK_FLAG_BITMASK_IS_COPIED || mf__storage_is_closed(t->storage)) {
    const int rc = check_flagless(t, err);
    if (rc != MF_OK) return mf__end(rc, __func__, err);
  }
  describe(t, out);
  return MF_OK;
}
