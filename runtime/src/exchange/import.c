/* import.c: takes memory of others over, as a managed tensor of DLPack or with a release callback. All of it passes
 * `resolve` before ownership is taken.
 *
 * Invariant: a managed struct is the producer's until import returns MF_OK, and ours from then on. Nothing
 * can fail after that point. */
#include "exchange/exchange.h"

/* A tensor of others that was checked, and where its memory is. */
typedef struct resolved {
  mf__checked checked;
  mf__device device;
} resolved;

/* The driver speaks of the address that it was asked for, which is not data's where there is a byte_offset. */
static int refuse_address(const DLTensor *view, const void *first, mf_error *err) {
  return mf__fail(err, MF_EINVAL, "data is %p and byte_offset %llu; the driver does not know %p, where element 0 is",
                  view->data, (unsigned long long)view->byte_offset, first);
}

static int refuse_label(const DLTensor *view, const mf__device *found, mf_error *err) {
  char has[MF__NAME_CAP], says[MF__NAME_CAP];
  const DLDevice device = mf__device_name(found);
  (void)mf_device_format(&device, has, sizeof has, NULL);
  (void)mf_device_format(&view->device, says, sizeof says, NULL);
  return mf__fail(err, MF_EDEVICE, "data is memory of %s; device says %s", has, says);
}

/* Compares the producer's label with what the driver says. Managed memory may be labelled as any GPU's, and pinned
 * memory as that of a GPU which can read it: its streams then are those of that GPU. *device becomes the device that
 * the memory really is on. */
static int check_pointer(const DLTensor *view, mf__device *device, mf_error *err) {
  const void *first = (const void *)((uintptr_t)view->data + (uintptr_t)view->byte_offset);
  mf__device found;
  const int rc = mf__pointer_find(device, first, &found, err);
  if (rc == MF_EINVAL && view->byte_offset != 0) return refuse_address(view, first, err);
  if (rc != MF_OK) return rc;
  const bool elsewhere = device->space == MF__DEVICE && found.space == MF__DEVICE && found.ordinal != device->ordinal;
  const bool other = device->space != found.space && device->space != MF__DEVICE;
  if (elsewhere || other) return refuse_label(view, &found, err);
  if (device->space == MF__DEVICE) found.ordinal = device->ordinal;
  *device = found;
  return MF_OK;
}

static int resolve(const DLTensor *view, uint64_t flags, resolved *out, mf_error *err) {
  DLDevice label = view->device;
  int rc = mf__device_resolve_label(&label, &out->device, err);
  if (rc == MF_OK) rc = mf__checked_view(view, flags, &out->checked, err);
  out->checked.view.device = label;
  if (rc != MF_OK || out->device.backend == NULL) return rc;
  if (out->checked.span.numel > 0) return check_pointer(view, &out->device, err);
  out->device.backend = NULL; /* nothing there that anybody could use */
  return MF_OK;
}

int mf_dltensor_check(const DLTensor *view, uint64_t flags, mf_error *err) {
  MF__NEED(view);
  resolved r;
  return mf__end(resolve(view, flags, &r, err), __func__, err);
}

static int adopt(const resolved *r, const mf__foreign *from, mf__storage **out, mf_error *err) {
  const mf__checked *c = &r->checked;
  const uintptr_t first = (uintptr_t)c->view.data + (uintptr_t)c->view.byte_offset;
  const int64_t nbytes = c->span.hi_byte - c->span.lo_byte;
  const mf__region memory = {r->device, (const void *)(first - (uintptr_t)-c->span.lo_byte), nbytes};
  return mf__memory_adopt(mf__tensor_nbytes(c->view.ndim), &memory, from, out, err);
}

int mf_tensor_wrap(const DLTensor *view, uint64_t flags, mf_release_fn release, void *ctx, mf_tensor **out,
                   mf_error *err) {
  MF__NEED_OUT(out);
  MF__NEED(view);
  const mf__foreign from = {.release = release, .ctx = ctx};
  resolved r;
  DLTensor placed = *view;
  mf__storage *storage = NULL;
  if ((int)placed.device.device_type == 0) placed.device.device_type = kDLCPU;
  int rc = MF_OK;
  if (flags & ~MF__FLAGS_KNOWN)
    rc = mf__fail(err, MF_EINVAL, "flags is 0x%llx; bits of 0x%llx expected", (unsigned long long)flags,
                  (unsigned long long)MF__FLAGS_KNOWN);
  if (rc == MF_OK) rc = resolve(&placed, flags, &r, err);
  if (rc == MF_OK) rc = adopt(&r, &from, &storage, err);
  if (rc == MF_OK) *out = mf__tensor_first(&r.checked.view, flags, storage);
  return mf__end(rc, __func__, err);
}

/* A struct of ours that comes back has no storage of its own: however often a program hands a tensor on in this way,
 * there is one memory with one record, and taking it back closes all tensors that share it. Kept out of line, so that
 * the usual way does not pay for this one's stack frame. */
static __attribute__((noinline)) int take_back(const resolved *r, uint64_t flags, const mf_tensor *own,
                                               const mf__foreign *from, mf_tensor **out, mf_error *err) {
  const int rc = mf__memory_share(own, &r->checked.view, flags, &r->device, out, err);
  if (rc == MF_OK) mf__exported_delete(from);
  return rc;
}

static int take(const resolved *r, uint64_t flags, const mf__foreign *from, mf_tensor **out, mf_error *err) {
  const mf_tensor *own = mf__exported_tensor(from);
  mf__storage *storage = NULL;
  if (own != NULL) return take_back(r, flags, own, from, out, err);
  const int rc = adopt(r, from, &storage, err);
  if (rc == MF_OK) *out = mf__tensor_first(&r->checked.view, flags, storage);
  return rc;
}

/* Inlines everything, because the calls of the many checks cost as much as the checks. */
__attribute__((flatten)) int mf_tensor_import(DLManagedTensorVersioned *managed, mf_tensor **out, mf_error *err) {
  MF__NEED_OUT(out);
  MF__NEED(managed);
  resolved r;
  const mf__foreign from = {.versioned = managed};
  int rc = MF_OK;
  if (managed->version.major != DLPACK_MAJOR_VERSION) {
    rc = mf__fail(err, MF_EVERSION, "version.major is %u; %d expected", managed->version.major,
                  DLPACK_MAJOR_VERSION);
    return mf__end(rc, __func__, err);
  }
  const uint64_t flags = managed->flags & MF__FLAGS_KNOWN;
  rc = resolve(&managed->dl_tensor, flags, &r, err);
  if (rc == MF_OK) rc = take(&r, flags, &from, out, err);
  return mf__end(rc, __func__, err);
}

int mf_tensor_import_legacy(DLManagedTensor *managed, mf_tensor **out, mf_error *err) {
  MF__NEED_OUT(out);
  MF__NEED(managed);
  resolved r;
  const mf__foreign from = {.legacy = managed};
  DLTensor view = managed->dl_tensor;
  if (mf__is_old_bool(&view.dtype)) view.dtype = (DLDataType){kDLBool, 8, 1};
  int rc = resolve(&view, 0, &r, err);
  if (rc == MF_OK) rc = take(&r, 0, &from, out, err);
  return mf__end(rc, __func__, err);
}
