/* tensor.c: makes tensors, counts references to them and answers questions about them. A tensor is the immutable
 * description of elements in one storage: all of it but the reference count is written once, before anybody else can
 * see it. */
#include "core/core.h"

#include <string.h>

size_t mf__tensor_nbytes(int32_t ndim) {
  return sizeof(mf_tensor) + 2 * (size_t)ndim * sizeof(int64_t);
}

static void tensor_init(mf_tensor *t, const DLTensor *view, uint64_t flags, mf__storage *storage) {
  const int32_t ndim = view->ndim;
  t->dl = *view;
  /* Numbers are added, not pointers: the offset may be above PTRDIFF_MAX, checked to stay in the address space. */
  t->dl.data = view->data == NULL ? NULL : (void *)((uintptr_t)view->data + (uintptr_t)view->byte_offset);
  t->dl.byte_offset = 0;
  t->dl.shape = ndim > 0 ? t->extents : NULL;
  t->dl.strides = ndim > 0 ? t->extents + ndim : NULL;
  bool empty = false;
  for (int32_t i = 0; i < ndim; i++) {
    t->extents[i] = view->shape[i];
    t->extents[ndim + i] = view->strides[i];
    empty |= view->shape[i] == 0;
  }
  t->empty = empty;
  atomic_init(&t->refs, 1);
  t->storage = storage;
  t->flags = (uint32_t)flags;
  mf__count(MF__TENSORS, 1);
}

mf_tensor *mf__tensor_first(const DLTensor *view, uint64_t flags, mf__storage *storage) {
  mf_tensor *t = mf__storage_room(storage);
  tensor_init(t, view, flags, storage);
  return t;
}

int mf__tensor_view(const DLTensor *view, uint64_t flags, mf__storage *storage, mf_tensor **out,
                    mf_error *err) {
  mf_tensor *t = mf__alloc(mf__tensor_nbytes(view->ndim));
  *out = t;
  if (t == NULL) return mf__fail(err, MF_ENOMEM, "no memory for a tensor of ndim %d", view->ndim);
  mf__storage_retain(storage);
  tensor_init(t, view, flags, storage);
  return MF_OK;
}

int mf__tensor_open(const mf_tensor *t, mf_error *err) {
  return mf__storage_is_closed(t->storage) ? mf__taken_back(err) : MF_OK;
}

int mf__taken_back(mf_error *err) {
  return mf__fail(err, MF_ECLOSED, "the tensor's memory was taken back (mf_tensor_invalidate)");
}

int mf__tensor_writable(const mf_tensor *t, mf_error *err) {
  if (!(t->flags & DLPACK_FLAG_BITMASK_READ_ONLY)) return mf__tensor_open(t, err);
  return mf__fail(err, MF_EREADONLY, "the tensor is read-only; a writable one, such as a copy, expected");
}

uint64_t mf__tensor_padded(const mf_tensor *t) {
  return t->flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED;
}

int64_t mf__tensor_bits(const mf_tensor *t) {
  return mf_dtype_bits(&t->dl.dtype, t->flags);
}

/* Checks that data is there if there are elements, and that all their bytes are in the address space. */
static int check_memory(const DLTensor *view, const mf__span *span, mf_error *err) {
  const uintptr_t base = (uintptr_t)view->data;
  const uint64_t bytes_below = (uint64_t)-span->lo_byte;
  const uint64_t bytes_above = (uint64_t)span->hi_byte;
  if (view->byte_offset > UINTPTR_MAX - base)
    return mf__fail(err, MF_EOVERFLOW, "byte_offset is %llu; data + byte_offset leaves the address space",
                    (unsigned long long)view->byte_offset);
  if (span->numel == 0) return MF_OK;
  if (view->data == NULL)
    return mf__fail(err, MF_EINVAL, "data is NULL, with %lld elements", (long long)span->numel);
  const uintptr_t first = base + (uintptr_t)view->byte_offset;
  if (bytes_below > first || bytes_above > UINTPTR_MAX - first)
    return mf__fail(err, MF_EOVERFLOW, "strides reach bytes %lld to %lld, which leave the address space",
                    (long long)span->lo_byte, (long long)span->hi_byte);
  return MF_OK;
}

int mf__checked_view(const DLTensor *view, uint64_t flags, mf__checked *out, mf_error *err) {
  int rc = mf__dtype_check(&view->dtype, err);
  if (rc == MF_OK) rc = mf__shape_check(view->shape, view->ndim, err);
  if (rc != MF_OK) return rc;
  out->view = *view;
  if (view->strides == NULL && view->ndim > 0) {
    rc = mf__compact_strides(view->shape, view->ndim, out->strides, err);
    if (rc != MF_OK) return rc;
    out->view.strides = out->strides;
  }
  rc = mf__span_compute(&out->view, mf_dtype_bits(&view->dtype, flags), &out->span, err);
  return rc == MF_OK ? check_memory(&out->view, &out->span, err) : rc;
}

/* Only what a prototype must carry is read. */
int mf__checked_new(const DLTensor *like, uint64_t flags, mf__checked *out, mf_error *err) {
  DLTensor *view = &out->view;
  *view = (DLTensor){.device = {kDLCPU, 0}, .ndim = like->ndim, .dtype = like->dtype, .shape = like->shape};
  if (flags & ~(uint64_t)DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)
    return mf__fail(err, MF_EINVAL,
                    "flags has 0x%llx; a sum of 0x4 (sub-byte padded) and, on the cpu, 0x100 (whole pages) expected",
                    (unsigned long long)flags);
  int rc = mf__dtype_check(&view->dtype, err);
  if (rc == MF_OK) rc = mf__shape_check(view->shape, view->ndim, err);
  if (rc == MF_OK) rc = mf__compact_strides(view->shape, view->ndim, out->strides, err);
  view->strides = out->strides;
  if (rc == MF_OK) rc = mf__span_compute(view, mf_dtype_bits(&view->dtype, flags), &out->span, err);
  return rc;
}

int mf__tensor_create_host(const DLTensor *like, uint64_t flags, mf_tensor **out, mf_error *err) {
  mf__checked c;
  mf__storage *storage = NULL;
  const bool pages = (flags & MF_CREATE_PAGES) != 0;
  *out = NULL;
  flags &= ~(uint64_t)MF_CREATE_PAGES;
  int rc = mf__checked_new(like, flags, &c, err);
  if (rc == MF_OK)
    rc = mf__storage_create(mf__tensor_nbytes(c.view.ndim), c.span.nbytes, pages, &c.view.data, &storage, err);
  if (rc == MF_OK) *out = mf__tensor_first(&c.view, flags, storage);
  return rc;
}

mf_tensor *mf_tensor_retain(mf_tensor *t) {
  if (t != NULL) atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
  return t;
}

static inline bool drop_reference(mf_tensor *t, bool foreign_allowed) {
  if (t == NULL || !mf__refs_drop(&t->refs)) return false;
  mf__storage *storage = t->storage;
  mf__count(MF__TENSORS, -1);
  if (t != mf__storage_room(storage)) mf__free(t, mf__tensor_nbytes(t->dl.ndim));
  mf__storage_release(storage, foreign_allowed);
  return true;
}

void mf_tensor_release(mf_tensor *t) {
  if (drop_reference(t, true) && mf__foreign_is_due()) mf_releases_run();
}

int32_t mf_tensor_release_later(mf_tensor *t) {
  (void)drop_reference(t, false);
  return mf__foreign_is_due();
}

int32_t mf_tensor_is_valid(const mf_tensor *t) {
  return t != NULL && !mf__storage_is_closed(t->storage);
}

const DLTensor *mf_tensor_dltensor(const mf_tensor *t) {
  return t != NULL ? &t->dl : NULL;
}

uint64_t mf_tensor_flags(const mf_tensor *t) {
  return t != NULL ? t->flags : 0;
}

int64_t mf_tensor_size(const mf_tensor *t) {
  int64_t n = 1;
  if (t == NULL || mf__is_empty(&t->dl)) return 0;
  for (int32_t i = 0; i < t->dl.ndim; i++) n *= t->dl.shape[i];
  return n;
}

int64_t mf_tensor_nbytes(const mf_tensor *t) {
  return t != NULL ? (mf_tensor_size(t) * mf__tensor_bits(t) + 7) / 8 : 0;
}

int32_t mf_tensor_is_ordered(const mf_tensor *t) {
  return t != NULL && (mf__tensor_record(t) != NULL || mf__storage_fences(t->storage) != NULL);
}

int32_t mf_tensor_is_contiguous(const mf_tensor *t) {
  return t != NULL && mf__is_compact(&t->dl);
}
