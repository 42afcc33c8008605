/* export.c: gives tensors out as managed tensors of DLPack, or for one call as a borrowed DLTensor.
 *
 * Invariant: an exported struct holds a reference to its tensor until its deleter is called, once, on any thread; the
 * deleter needs no interpreter. */
#include "exchange/exchange.h"

bool mf__is_old_bool(const DLDataType *dtype) {
  return dtype->code == kDLUInt && dtype->bits == 1 && dtype->lanes == 1;
}

/* shape and strides of an exported struct are the tensor's own arrays: they never change, and the struct
 * keeps the tensor alive. */
static void describe(const mf_tensor *t, DLTensor *out) {
  *out = t->dl;
  if (t->empty) out->data = NULL;
}

/* The struct that a consumer gets, of either sort, and what its deleter needs. */
typedef struct exported {
  union { /* first */
    DLManagedTensorVersioned versioned;
    DLManagedTensor legacy;
  };
  uint64_t entry; /* of the record: until the deleter is called the consumer may use the memory there; 0: none */
} exported;

static inline bool is_writable(const mf_tensor *t) {
  return !(t->flags & DLPACK_FLAG_BITMASK_READ_ONLY);
}

/* With a reference to the tensor. */
static inline exported *exported_new(mf_tensor *t) {
  exported *e = mf__alloc(sizeof *e);
  if (e == NULL) return NULL;
  e->entry = 0;
  (void)mf_tensor_retain(t);
  return e;
}

static int no_memory(mf_error *err) {
  return mf__fail(err, MF_ENOMEM, "no memory for the struct");
}

static int begin_export(mf_tensor *t, const mf__queue *on, exported **out, mf_error *err) {
  mf__record *record = mf__tensor_record(t);
  *out = exported_new(t);
  if (*out == NULL) return no_memory(err);
  const int rc = record == NULL ? mf__fences_settle(t, is_writable(t), err)
                                : mf__order_open(on, record, is_writable(t), &(*out)->entry, err);
  if (rc == MF_OK) return rc;
  mf__free(*out, sizeof **out);
  (void)mf_tensor_release_later(t); /* the caller has another reference */
  return rc;
}

/* Returns ${t}, whose reference the caller gives back. */
static inline mf_tensor *end_export(void *self, mf_tensor *t) {
  const uint64_t entry = ((exported *)self)->entry;
  mf__free(self, sizeof(exported));
  if (entry != 0) mf__order_close(mf__tensor_record(t), entry, is_writable(t));
  return t;
}

/* Deleters. Their addresses tell that a struct is ours. Each has a twin, _later, that calls no foreign code. */

static void delete_versioned(DLManagedTensorVersioned *self) {
  mf_tensor_release(end_export(self, self->manager_ctx));
}

static void delete_versioned_later(DLManagedTensorVersioned *self) {
  (void)mf_tensor_release_later(end_export(self, self->manager_ctx));
}

static void delete_legacy(DLManagedTensor *self) {
  mf_tensor_release(end_export(self, self->manager_ctx));
}

static void delete_legacy_later(DLManagedTensor *self) {
  (void)mf_tensor_release_later(end_export(self, self->manager_ctx));
}

void mf_export_delete_later(DLManagedTensorVersioned *managed) {
  if (managed != NULL && managed->deleter == delete_versioned) managed->deleter = delete_versioned_later;
}

void mf_export_delete_later_legacy(DLManagedTensor *managed) {
  if (managed != NULL && managed->deleter == delete_legacy) managed->deleter = delete_legacy_later;
}

mf_tensor *mf__exported_tensor(const mf__foreign *from) {
  const DLManagedTensorVersioned *m = from->versioned;
  const DLManagedTensor *old = from->legacy;
  if (m != NULL) return m->deleter == delete_versioned || m->deleter == delete_versioned_later ? m->manager_ctx : NULL;
  return old->deleter == delete_legacy || old->deleter == delete_legacy_later ? old->manager_ctx : NULL;
}

void mf__exported_delete(const mf__foreign *from) {
  if (from->versioned != NULL) delete_versioned_later(from->versioned);
  else delete_legacy_later(from->legacy);
}

static inline DLManagedTensorVersioned *fill_versioned(exported *e, mf_tensor *t, uint64_t flags) {
  DLManagedTensorVersioned *m = &e->versioned;
  m->version = (DLPackVersion){DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  m->manager_ctx = t;
  m->deleter = delete_versioned;
  /* Whether this is a copy is up to this export, not to how t once came in. */
  m->flags = (t->flags & ~(uint64_t)DLPACK_FLAG_BITMASK_IS_COPIED) | flags;
  describe(t, &m->dl_tensor);
  return m;
}

static inline DLManagedTensor *fill_legacy(exported *e, mf_tensor *t) {
  DLManagedTensor *m = &e->legacy;
  m->manager_ctx = t;
  m->deleter = delete_legacy;
  describe(t, &m->dl_tensor);
  return m;
}

int mf__export(mf_tensor *t, uint64_t flags, const mf__queue *on, DLManagedTensorVersioned **out, mf_error *err) {
  exported *e = NULL;
  const int rc = begin_export(t, on, &e, err);
  if (rc == MF_OK) *out = fill_versioned(e, t, flags);
  return rc;
}

int mf__export_legacy(mf_tensor *t, const mf__queue *on, DLManagedTensor **out, mf_error *err) {
  exported *e = NULL;
  const int rc = begin_export(t, on, &e, err);
  if (rc == MF_OK) *out = fill_legacy(e, t);
  return rc;
}

/* The queue of a consumer that was told no stream: the host if the label says so, else the current stream. */
static mf__queue usual_queue(const mf_tensor *t) {
  const mf__device device = mf__tensor_device(t);
  return t->dl.device.device_type == kDLCPU ? mf__queue_host() : mf__queue_current(&device);
}

/* Kept out of line, so that the short way does not pay for this one's stack frame. */
static __attribute__((noinline)) int export_any(mf_tensor *t, uint64_t flags, DLManagedTensorVersioned **out,
                                                mf_error *err) {
  int rc = mf__tensor_open(t, err);
  if (rc == MF_OK && (flags & ~(uint64_t)DLPACK_FLAG_BITMASK_IS_COPIED))
    rc = mf__fail(err, MF_EINVAL, "flags is 0x%llx; 0 or 0x2 (is copied) expected", (unsigned long long)flags);
  const mf__queue on = usual_queue(t);
  if (rc == MF_OK) rc = mf__export(t, flags, &on, out, err);
  return mf__end(rc, "mf_tensor_export", err);
}

/* Most exchanges are of plain memory, where nothing but the allocation can fail: they take the short way. */
static inline bool is_plain(const mf_tensor *t) {
  return mf__tensor_record(t) == NULL && !mf__storage_is_marked(t->storage);
}

int mf_tensor_export(mf_tensor *t, uint64_t flags, DLManagedTensorVersioned **out, mf_error *err) {
  MF__NEED_OUT(out);
  MF__NEED(t);
  if (flags != 0 || !is_plain(t)) return export_any(t, flags, out, err);
  exported *e = exported_new(t);
  *out = e != NULL ? fill_versioned(e, t, 0) : NULL;
  return e != NULL ? MF_OK : mf__end(no_memory(err), __func__, err);
}

/* Refuses what a struct without flags cannot say. */
int mf__flagless_check(const mf_tensor *t, mf_error *err) {
  if (t->flags & DLPACK_FLAG_BITMASK_READ_ONLY)
    return mf__fail(err, MF_EREADONLY, "the tensor is read-only, which this struct cannot say; a versioned one can");
  if (mf__tensor_padded(t) && t->dl.dtype.bits < 8)
    return mf__fail(err, MF_EDTYPE, "the elements are padded to bytes, which this struct cannot say");
  if (mf__is_old_bool(&t->dl.dtype))
    return mf__fail(err, MF_EDTYPE, "the dtype is uint1, packed bits, which this struct's consumers read as bytes");
  return mf__tensor_open(t, err);
}

int mf_tensor_export_legacy(mf_tensor *t, DLManagedTensor **out, mf_error *err) {
  MF__NEED_OUT(out);
  MF__NEED(t);
  int rc = mf__flagless_check(t, err);
  if (rc == MF_OK && is_plain(t)) {
    exported *e = exported_new(t);
    if (e != NULL) *out = fill_legacy(e, t);
    else rc = no_memory(err);
  } else if (rc == MF_OK) {
    const mf__queue on = usual_queue(t);
    rc = mf__export_legacy(t, &on, out, err);
  }
  return mf__end(rc, __func__, err);
}

/* The borrower works on the current stream, and has queued its work when it returns control. */
static int order_borrow(const mf_tensor *t, mf_error *err) {
  const mf__queue on = usual_queue(t);
  mf__usage use = {mf__tensor_record(t), is_writable(t), true};
  return use.record == NULL ? mf__fences_settle(t, use.write, err) : mf__order_use(&on, &use, err);
}

/* Consumers call this for each argument of each kernel: the usual tensor leaves before any check that could
 * fail has to be set up. */
int mf_tensor_borrow(const mf_tensor *t, DLTensor *out, mf_error *err) {
  MF__NEED(t);
  MF__NEED(out);
  if (t->flags & ~(uint64_t)DLPACK_FLAG_BITMASK_IS_COPIED || t->dl.dtype.bits == 1 ||
      mf__storage_is_marked(t->storage)) {
    const int rc = mf__flagless_check(t, err);
    if (rc != MF_OK) return mf__end(rc, __func__, err);
  }
  if (mf__tensor_record(t) != NULL || mf__storage_is_marked(t->storage)) {
    const int rc = order_borrow(t, err);
    if (rc != MF_OK) return mf__end(rc, __func__, err);
  }
  describe(t, out);
  return MF_OK;
}
