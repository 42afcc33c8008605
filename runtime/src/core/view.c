/* view.c: makes new tensors over the memory of an old one. The arithmetic is that of layout.c and reshape.c; here a
 * finished layout becomes a tensor, or nothing happens at all. */
#include "core/core.h"

/* Without elements the place of element 0 does not matter, and strides that no check has seen must not move it. */
static int make(const mf_tensor *t, mf__layout *l, uint64_t more_flags, mf_tensor **out, mf_error *err) {
  DLTensor view = t->dl;
  view.ndim = l->ndim;
  view.shape = l->shape;
  view.strides = l->strides;
  if (!mf__is_empty(&view)) {
    const int64_t bits = l->offset * mf__tensor_bits(t);
    if (bits % 8 != 0)
      return mf__fail(err, MF_ELAYOUT, "the view begins %lld bits into the tensor; a whole byte expected",
                      (long long)bits);
    view.data = (char *)view.data + bits / 8;
  }
  return mf__tensor_view(&view, t->flags | more_flags, t->storage, out, err);
}

/* Begins every view, which then works on the layout and ends with make(). */
static int begin(const mf_tensor *t, mf__layout *l, mf_tensor **out, mf_error *err) {
  MF__NEED_OUT(out);
  MF__NEED(t);
  mf__layout_of(&t->dl, l);
  return mf__tensor_open(t, err);
}

int mf__tensor_narrow(const mf_tensor *t, const int64_t *first, const int64_t *count, mf_tensor **out, mf_error *err) {
  mf__layout l;
  const int rc = begin(t, &l, out, err);
  if (rc != MF_OK) return rc;
  for (int32_t i = 0; i < l.ndim; i++) {
    l.offset += first[i] * l.strides[i];
    l.shape[i] = count[i];
  }
  return make(t, &l, 0, out, err);
}

int mf_tensor_index(const mf_tensor *t, const mf_index *items, int32_t nitems, mf_tensor **out, mf_error *err) {
  mf__layout l;
  int rc = begin(t, &l, out, err);
  if (rc == MF_OK) rc = mf__layout_index(&l, items, nitems, err);
  if (rc == MF_OK) rc = make(t, &l, 0, out, err);
  return mf__end(rc, __func__, err);
}

int mf_tensor_permute_dims(const mf_tensor *t, const int32_t *axes, int32_t naxes, mf_tensor **out, mf_error *err) {
  mf__layout l;
  int rc = begin(t, &l, out, err);
  if (rc == MF_OK) rc = mf__layout_permute(&l, axes, naxes, err);
  if (rc == MF_OK) rc = make(t, &l, 0, out, err);
  return mf__end(rc, __func__, err);
}

int mf_tensor_reshape(const mf_tensor *t, const int64_t *shape, int32_t ndim, mf_tensor **out, mf_error *err) {
  mf__layout l;
  int rc = begin(t, &l, out, err);
  if (rc == MF_OK) rc = mf__layout_reshape(&l, shape, ndim, err);
  if (rc == MF_OK) rc = make(t, &l, 0, out, err);
  return mf__end(rc, __func__, err);
}

/* Repeating elements adds to their count without adding memory, so the sizes are checked anew. */
static int check_repeated(const mf_tensor *t, mf__layout *l, uint64_t *more_flags, mf_error *err) {
  mf__span span;
  const DLTensor view = {.ndim = l->ndim, .shape = l->shape, .strides = l->strides};
  const int rc = mf__span_compute(&view, mf__tensor_bits(t), &span, err);
  if (rc == MF_OK && span.numel > mf_tensor_size(t)) *more_flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  return rc;
}

int mf_tensor_broadcast_to(const mf_tensor *t, const int64_t *shape, int32_t ndim, mf_tensor **out,
                        mf_error *err) {
  mf__layout l;
  uint64_t more_flags = 0;
  int rc = begin(t, &l, out, err);
  if (rc == MF_OK) rc = mf__layout_broadcast(&l, shape, ndim, err);
  if (rc == MF_OK) rc = check_repeated(t, &l, &more_flags, err);
  if (rc == MF_OK) rc = make(t, &l, more_flags, out, err);
  return mf__end(rc, __func__, err);
}

int mf_tensor_squeeze(const mf_tensor *t, const int32_t *axes, int32_t naxes, mf_tensor **out, mf_error *err) {
  mf__layout l;
  int rc = begin(t, &l, out, err);
  if (rc == MF_OK) rc = mf__layout_squeeze(&l, axes, naxes, err);
  if (rc == MF_OK) rc = make(t, &l, 0, out, err);
  return mf__end(rc, __func__, err);
}

int mf_tensor_expand_dims(const mf_tensor *t, int32_t axis, mf_tensor **out, mf_error *err) {
  mf__layout l;
  int rc = begin(t, &l, out, err);
  if (rc == MF_OK) rc = mf__layout_expand(&l, axis, err);
  if (rc == MF_OK) rc = make(t, &l, 0, out, err);
  return mf__end(rc, __func__, err);
}

int mf_tensor_diagonal(const mf_tensor *t, int64_t offset, const int32_t axes[2], mf_tensor **out,
                       mf_error *err) {
  MF__NEED_OUT(out);
  MF__NEED(axes);
  mf__layout l;
  int rc = begin(t, &l, out, err);
  if (rc == MF_OK) rc = mf__layout_diagonal(&l, offset, axes, err);
  if (rc == MF_OK) rc = make(t, &l, 0, out, err);
  return mf__end(rc, __func__, err);
}

int mf_tensor_reinterpret(const mf_tensor *t, const DLDataType *dtype, mf_tensor **out, mf_error *err) {
  MF__NEED_OUT(out);
  MF__NEED(dtype);
  mf__layout l;
  int rc = begin(t, &l, out, err);
  if (rc == MF_OK) rc = mf__dtype_check(dtype, err);
  if (rc == MF_OK) rc = mf__layout_resize(&l, mf__tensor_bits(t), mf_dtype_bits(dtype, t->flags), err);
  if (rc == MF_OK) rc = make(t, &l, 0, out, err);
  if (rc == MF_OK) (*out)->dl.dtype = *dtype;
  return mf__end(rc, __func__, err);
}

int mf_tensor_as_readonly(const mf_tensor *t, mf_tensor **out, mf_error *err) {
  mf__layout l;
  int rc = begin(t, &l, out, err);
  if (rc == MF_OK) rc = make(t, &l, DLPACK_FLAG_BITMASK_READ_ONLY, out, err);
  return mf__end(rc, __func__, err);
}
