/* dlpack.c: the only place that reads or fills a managed tensor of DLPack. Everything that comes in passes
 * mf__dltensor_resolve before ownership is taken; everything that goes out is an `export_block`.
 *
 * Invariant: a managed struct is the producer's until import returns MF_OK, and ours from then on. Nothing
 * can fail after that point. */
#include "core/core.h"

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

/* The label is the producer's word; the driver knows better. Managed memory may be labelled as any GPU's, and pinned
 * memory as the GPU's that can read it: its streams then are those of that GPU. *device becomes where the memory really
 * is. */
static int check_pointer(const DLTensor *view, mf__device *device, mf_error *err) {
  const void *first = (const void *)((uintptr_t)view->data + (uintptr_t)view->byte_offset);
  mf__device found;
  const int rc = mf__pointer_find(device, first, &found, err);
  if (rc != MF_OK) return rc;
  const bool elsewhere = device->space == MF__DEVICE && found.space == MF__DEVICE && found.ordinal != device->ordinal;
  const bool other = device->space != found.space && device->space != MF__DEVICE;
  if (elsewhere || other)
    return mf__fail(err, MF_EDEVICE, "data is memory of %s:%d; device says %s:%d",
                    mf__device_type_name(found.backend->types[found.space]), found.ordinal,
                    mf__device_type_name((int32_t)view->device.device_type), view->device.device_id);
  if (device->space == MF__DEVICE) found.ordinal = device->ordinal;
  *device = found;
  return MF_OK;
}

mf__region mf__region_of(const mf__resolved *r) {
  const uintptr_t first = (uintptr_t)r->view.data + (uintptr_t)r->view.byte_offset;
  const int64_t nbytes = r->span.hi_byte - r->span.lo_byte;
  return (mf__region){r->device, (const void *)(first - (uintptr_t)-r->span.lo_byte), nbytes};
}

int mf__dltensor_resolve(const DLTensor *view, uint64_t flags, mf__resolved *out, mf_error *err) {
  out->view = *view;
  int rc = mf__device_resolve_label(&out->view.device, &out->device, err);
  if (rc == MF_OK) rc = mf__dtype_check(&view->dtype, err);
  if (rc == MF_OK) rc = mf__shape_check(view->shape, view->ndim, err);
  if (rc != MF_OK) return rc;
  if (view->strides == NULL && view->ndim > 0) {
    rc = mf__compact_strides(view->shape, view->ndim, out->strides, err);
    if (rc != MF_OK) return rc;
    out->view.strides = out->strides;
  }
  rc = mf__span_compute(&out->view, mf_dtype_bits(&view->dtype, flags), &out->span, err);
  if (rc == MF_OK) rc = check_memory(&out->view, &out->span, err);
  if (rc != MF_OK || out->device.backend == NULL) return rc;
  if (out->span.numel > 0) return check_pointer(view, &out->device, err);
  out->device.backend = NULL; /* nothing there that anybody could use */
  return MF_OK;
}

int mf_dltensor_check(const DLTensor *view, uint64_t flags, mf_error *err) {
  mf__resolved r;
  return mf__end(mf__dltensor_resolve(view, flags, &r, err), __func__, err);
}

static bool delete_later(DLManagedTensorVersioned *m);
static bool delete_later_legacy(DLManagedTensor *m);

/* A struct of our own that comes back calls no foreign code when it is deleted. */
static int adopt(const mf__resolved *r, const mf__foreign *from, mf__storage **out, mf_error *err) {
  const mf__region memory = mf__region_of(r);
  const int rc = mf__storage_adopt(mf__tensor_nbytes(r->view.ndim), &memory, from, out, err);
  if (rc != MF_OK) return rc;
  const bool ours = from->versioned != NULL ? delete_later(from->versioned) : delete_later_legacy(from->legacy);
  if (ours) mf__storage_quieten(*out);
  return rc;
}

/* Flat, because the calls of the many checks cost as much as the checks. */
__attribute__((flatten)) int mf_tensor_import(DLManagedTensorVersioned *managed, mf_tensor **out, mf_error *err) {
  mf__resolved r;
  mf__storage *storage = NULL;
  const mf__foreign from = {.versioned = managed};
  int rc = MF_OK;
  *out = NULL;
  if (managed->version.major != DLPACK_MAJOR_VERSION) {
    rc = mf__fail(err, MF_EVERSION, "version.major is %u; %d expected", managed->version.major,
                  DLPACK_MAJOR_VERSION);
    return mf__end(rc, __func__, err);
  }
  const uint64_t flags = managed->flags & MF__FLAGS_KNOWN;
  rc = mf__dltensor_resolve(&managed->dl_tensor, flags, &r, err);
  if (rc == MF_OK) rc = adopt(&r, &from, &storage, err);
  if (rc == MF_OK) *out = mf__tensor_first(&r.view, flags, storage);
  return mf__end(rc, __func__, err);
}

/* bool as it was before DLPack had kDLBool, an element a byte. TVM's and MXNet's structs still say it so. */
static bool is_old_bool(const DLDataType *dtype) {
  return dtype->code == kDLUInt && dtype->bits == 1 && dtype->lanes == 1;
}

int mf_tensor_import_legacy(DLManagedTensor *managed, mf_tensor **out, mf_error *err) {
  mf__resolved r;
  mf__storage *storage = NULL;
  const mf__foreign from = {.legacy = managed};
  DLTensor view = managed->dl_tensor;
  *out = NULL;
  if (is_old_bool(&view.dtype)) view.dtype = (DLDataType){kDLBool, 8, 1};
  int rc = mf__dltensor_resolve(&view, 0, &r, err);
  if (rc == MF_OK) rc = adopt(&r, &from, &storage, err);
  if (rc == MF_OK) *out = mf__tensor_first(&r.view, 0, storage);
  return mf__end(rc, __func__, err);
}

/* shape and strides of an exported struct are the tensor's own arrays: they never change, and the struct
 * keeps the tensor alive. */
static void describe(const mf_tensor *t, DLTensor *out) {
  *out = t->dl;
  if (t->empty) out->data = NULL;
}

/* Each deleter has a twin, _later, that calls no foreign code. */

static void delete_versioned(DLManagedTensorVersioned *self) {
  mf_tensor *t = self->manager_ctx;
  mf__free(self, sizeof *self);
  mf_tensor_release(t);
}

static void delete_versioned_later(DLManagedTensorVersioned *self) {
  mf_tensor *t = self->manager_ctx;
  mf__free(self, sizeof *self);
  (void)mf_tensor_release_later(t);
}

static void delete_legacy(DLManagedTensor *self) {
  mf_tensor *t = self->manager_ctx;
  mf__free(self, sizeof *self);
  mf_tensor_release(t);
}

static void delete_legacy_later(DLManagedTensor *self) {
  mf_tensor *t = self->manager_ctx;
  mf__free(self, sizeof *self);
  (void)mf_tensor_release_later(t);
}

/* An export of memory with a record: on the stream that the record's entry id names the consumer may use it until the
 * deleter is called. */
typedef struct stay {
  mf_tensor *t;
  uint64_t id;
  bool write;
} stay;

typedef struct ordered_versioned {
  DLManagedTensorVersioned managed; /* first: what the consumer gets */
  stay stay;
} ordered_versioned;

typedef struct ordered_legacy {
  DLManagedTensor managed; /* first */
  stay stay;
} ordered_legacy;

static int begin_stay(mf_tensor *t, const mf__queue *on, stay *out, mf_error *err) {
  *out = (stay){.t = t, .write = !(t->flags & DLPACK_FLAG_BITMASK_READ_ONLY)};
  return mf__order_open(on, mf__storage_access(t->storage), out->write, &out->id, err);
}

/* The tensor's reference is the caller's to give back. */
static mf_tensor *end_stay(stay s) {
  mf__order_close(mf__storage_access(s.t->storage), s.id, s.write);
  return s.t;
}

static mf_tensor *end_ordered(DLManagedTensorVersioned *self) {
  const stay s = ((ordered_versioned *)self)->stay;
  mf__free(self, sizeof(ordered_versioned));
  return end_stay(s);
}

static mf_tensor *end_ordered_legacy(DLManagedTensor *self) {
  const stay s = ((ordered_legacy *)self)->stay;
  mf__free(self, sizeof(ordered_legacy));
  return end_stay(s);
}

static void delete_ordered(DLManagedTensorVersioned *self) {
  mf_tensor_release(end_ordered(self));
}

static void delete_ordered_later(DLManagedTensorVersioned *self) {
  (void)mf_tensor_release_later(end_ordered(self));
}

static void delete_ordered_legacy(DLManagedTensor *self) {
  mf_tensor_release(end_ordered_legacy(self));
}

static void delete_ordered_legacy_later(DLManagedTensor *self) {
  (void)mf_tensor_release_later(end_ordered_legacy(self));
}

/* Gives a struct of ours the deleter that calls no foreign code; false for a struct of somebody else's. */
static bool delete_later(DLManagedTensorVersioned *m) {
  if (m->deleter == delete_versioned) m->deleter = delete_versioned_later;
  if (m->deleter == delete_ordered) m->deleter = delete_ordered_later;
  return m->deleter == delete_versioned_later || m->deleter == delete_ordered_later;
}

static bool delete_later_legacy(DLManagedTensor *m) {
  if (m->deleter == delete_legacy) m->deleter = delete_legacy_later;
  if (m->deleter == delete_ordered_legacy) m->deleter = delete_ordered_legacy_later;
  return m->deleter == delete_legacy_later || m->deleter == delete_ordered_legacy_later;
}

void mf_export_delete_later(DLManagedTensorVersioned *managed) {
  (void)delete_later(managed);
}

void mf_export_delete_later_legacy(DLManagedTensor *managed) {
  (void)delete_later_legacy(managed);
}

static void fill_versioned(mf_tensor *t, uint64_t flags, DLManagedTensorVersioned *m) {
  m->version = (DLPackVersion){DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  m->manager_ctx = mf_tensor_retain(t);
  m->deleter = delete_versioned;
  /* Whether this is a copy is up to this export, not to how t once came in. */
  m->flags = (t->flags & ~(uint64_t)DLPACK_FLAG_BITMASK_IS_COPIED) | flags;
  describe(t, &m->dl_tensor);
}

static int no_memory(mf_error *err) {
  return mf__fail(err, MF_ENOMEM, "no memory for the struct");
}

/* Of memory without a record. */
static inline DLManagedTensorVersioned *export_plain(mf_tensor *t, uint64_t flags) {
  DLManagedTensorVersioned *m = mf__alloc(sizeof *m);
  if (m != NULL) fill_versioned(t, flags, m);
  return m;
}

int mf__export(mf_tensor *t, uint64_t flags, const mf__queue *on, DLManagedTensorVersioned **out, mf_error *err) {
  if (mf__storage_access(t->storage) == NULL) {
    *out = export_plain(t, flags);
    return *out == NULL ? no_memory(err) : MF_OK;
  }
  ordered_versioned *o = mf__alloc(sizeof *o);
  if (o == NULL) return no_memory(err);
  const int rc = begin_stay(t, on, &o->stay, err);
  if (rc != MF_OK) {
    mf__free(o, sizeof *o);
    return rc;
  }
  fill_versioned(t, flags, &o->managed);
  o->managed.deleter = delete_ordered;
  *out = &o->managed;
  return MF_OK;
}

static void fill_legacy(mf_tensor *t, DLManagedTensor *m) {
  m->manager_ctx = mf_tensor_retain(t);
  m->deleter = delete_legacy;
  describe(t, &m->dl_tensor);
}

int mf__export_legacy(mf_tensor *t, const mf__queue *on, DLManagedTensor **out, mf_error *err) {
  if (mf__storage_access(t->storage) == NULL) {
    DLManagedTensor *m = mf__alloc(sizeof *m);
    if (m == NULL) return no_memory(err);
    fill_legacy(t, m);
    *out = m;
    return MF_OK;
  }
  ordered_legacy *o = mf__alloc(sizeof *o);
  if (o == NULL) return no_memory(err);
  const int rc = begin_stay(t, on, &o->stay, err);
  if (rc != MF_OK) {
    mf__free(o, sizeof *o);
    return rc;
  }
  fill_legacy(t, &o->managed);
  o->managed.deleter = delete_ordered_legacy;
  *out = &o->managed;
  return MF_OK;
}

/* Where a consumer works that was told no stream: on the host if the label says so, else on the current stream. */
static mf__queue usual_queue(const mf_tensor *t) {
  const mf__device device = mf__tensor_device(t);
  return t->dl.device.device_type == kDLCPU ? mf__queue_host() : mf__queue_current(&device);
}

/* Apart, so that the short way makes no room for all of this. */
static __attribute__((noinline)) int export_any(mf_tensor *t, uint64_t flags, DLManagedTensorVersioned **out,
                                                mf_error *err) {
  *out = NULL;
  int rc = mf__tensor_open(t, err);
  if (rc == MF_OK && (flags & ~(uint64_t)DLPACK_FLAG_BITMASK_IS_COPIED))
    rc = mf__fail(err, MF_EINVAL, "flags is 0x%llx; 0 or 0x2 (is copied) expected", (unsigned long long)flags);
  const mf__queue on = usual_queue(t);
  if (rc == MF_OK) rc = mf__export(t, flags, &on, out, err);
  return mf__end(rc, "mf_tensor_export", err);
}

/* Most exchanges are of plain memory, where nothing but the allocation can fail: they take the short way. */
int mf_tensor_export(mf_tensor *t, uint64_t flags, DLManagedTensorVersioned **out, mf_error *err) {
  if (flags != 0 || mf__storage_access(t->storage) != NULL || mf__storage_is_closed(t->storage))
    return export_any(t, flags, out, err);
  *out = export_plain(t, 0);
  return *out != NULL ? MF_OK : mf__end(no_memory(err), __func__, err);
}

/* A struct without flags can carry neither of these two. */
int mf__flagless_check(const mf_tensor *t, mf_error *err) {
  if (t->flags & DLPACK_FLAG_BITMASK_READ_ONLY)
    return mf__fail(err, MF_EREADONLY, "the tensor is read-only, which this struct cannot say; a versioned one can");
  if (mf__tensor_padded(t) && t->dl.dtype.bits < 8)
    return mf__fail(err, MF_EDTYPE, "the elements are padded to bytes, which this struct cannot say");
  if (is_old_bool(&t->dl.dtype))
    return mf__fail(err, MF_EDTYPE, "the dtype is uint1, packed bits, which this struct's consumers read as bytes");
  return mf__tensor_open(t, err);
}

int mf_tensor_export_legacy(mf_tensor *t, DLManagedTensor **out, mf_error *err) {
  const mf__queue on = usual_queue(t);
  *out = NULL;
  int rc = mf__flagless_check(t, err);
  if (rc == MF_OK) rc = mf__export_legacy(t, &on, out, err);
  return mf__end(rc, __func__, err);
}

/* The borrower works on the current stream, and is done with queuing when it gives control back. */
static int order_borrow(const mf_tensor *t, mf_error *err) {
  const mf__queue on = usual_queue(t);
  mf__usage use = {mf__storage_access(t->storage), !(t->flags & DLPACK_FLAG_BITMASK_READ_ONLY), true};
  const int rc = mf__order_begin(&on, &use, 1, err);
  if (rc == MF_OK) mf__order_end(&on, &use, 1, true);
  return rc;
}

/* Consumers call this for each argument of each kernel: the usual tensor leaves before any check that could
 * fail has to be set up. */
int mf_tensor_borrow(const mf_tensor *t, DLTensor *out, mf_error *err) {
  if (t->flags & ~(uint64_t)DLPACK_FLAG_BITMASK_IS_COPIED || t->dl.dtype.bits == 1 ||
      mf__storage_is_closed(t->storage)) {
    const int rc = mf__flagless_check(t, err);
    if (rc != MF_OK) return mf__end(rc, __func__, err);
  }
  if (mf__storage_access(t->storage) != NULL) {
    const int rc = order_borrow(t, err);
    if (rc != MF_OK) return mf__end(rc, __func__, err);
  }
  describe(t, out);
  return MF_OK;
}
