/* memory.c: makes storages and tensors in memory that a driver knows, takes over such memory from others, and does what
 * has to happen before the host uses it or it ends.
 *
 * Invariant: such a storage has a record from the moment that anybody can see it until nothing uses the memory any
 * more. Memory of ours that comes back through another library shares the record that it has already: a second record
 * would let two streams use the same memory unordered. It must not know how memory is kept, or the order of streams. */
#include "device/owned.h"

/* Making */

/* Takes memory from the pool. Memory of a device is ready on the stream of the place, with which the record begins;
 * pinned and managed memory is ready for all streams. */
static int take_memory(const mf__place *place, int64_t nbytes, void **data, mf__record **out, mf_error *err) {
  const mf__device *device = &place->device;
  int rc = mf__record_create(device, out, err);
  if (rc != MF_OK) return rc;
  (*out)->temporary = place->temporary;
  rc = mf__pool_take(&place->on, device->space, nbytes, data, &(*out)->block, err);
  const mf__usage use = {.record = *out, .write = true};
  if (rc != MF_OK) {
    mf__record_free(*out);
    return rc;
  }
  (*out)->owned = mf__pool_owned((*out)->block);
  return device->space == MF__DEVICE ? mf__order_enter(&place->on, &use, err) : MF_OK;
}

int mf__memory_create(size_t room, int64_t nbytes, const mf__place *place, void **data, mf__storage **out,
                      mf_error *err) {
  mf__record *record = NULL;
  int rc = nbytes > 0 ? take_memory(place, nbytes, data, &record, err) : MF_OK;
  if (rc != MF_OK) return rc;
  rc = mf__storage_create_apart(room, nbytes, out, err);
  if (record == NULL) return rc;
  if (rc != MF_OK) {
    mf__pool_give(record->block, record);
    return rc;
  }
  mf__storage_set_record(*out, record, NULL);
  mf__owned_set(record->owned, *out);
  return rc;
}

int mf__tensor_create_at(const DLTensor *like, uint64_t flags, const mf__place *place, mf_tensor **out, mf_error *err) {
  mf__checked c;
  mf__storage *storage = NULL;
  *out = NULL;
  if (place->device.backend == NULL) return mf__tensor_create_host(like, flags, out, err);
  int rc = mf__checked_new(like, flags, &c, err);
  if (rc != MF_OK) return rc;
  c.view.device = mf__device_name(&place->device);
  rc = mf__memory_create(mf__tensor_nbytes(c.view.ndim), c.span.nbytes, place, &c.view.data, &storage, err);
  if (rc == MF_OK) *out = mf__tensor_first(&c.view, flags, storage);
  return rc;
}

static int create(const DLTensor *like, uint64_t flags, mf_tensor **out, mf_error *err) {
  DLDevice device = like->device;
  mf__place place = {0};
  if ((int)device.device_type == 0) device.device_type = kDLCPU;
  const int rc = mf__device_resolve(&device, &place.device, err);
  if (rc != MF_OK) return rc;
  if (place.device.backend != NULL) place.on = mf__queue_current(&place.device);
  return mf__tensor_create_at(like, flags, &place, out, err);
}

int mf_tensor_create(const DLTensor *like, uint64_t flags, mf_tensor **out, mf_error *err) {
  MF__NEED_OUT(out);
  MF__NEED(like);
  return mf__end(create(like, flags, out, err), __func__, err);
}

int mf_tensor_clone(const mf_tensor *t, mf_tensor **out, mf_error *err) {
  MF__NEED_OUT(out);
  MF__NEED(t);
  int rc = mf__tensor_open(t, err);
  if (rc == MF_OK) rc = create(&t->dl, mf__tensor_padded(t), out, err);
  if (rc == MF_OK && !mf__is_empty(&t->dl)) rc = mf__copy_new(*out, t, err);
  if (rc != MF_OK) {
    (void)mf_tensor_release_later(*out);
    *out = NULL;
  }
  return mf__end(rc, __func__, err);
}

/* Taking over */

static int own(const mf_tensor *t, void *data, int64_t nbytes, mf_error *err) {
  mf__record *record = mf__tensor_record(t);
  if (record == NULL || record->owned != NULL) return MF_OK; /* without elements; known already */
  mf__owned *o = mf__alloc(sizeof *o);
  if (o == NULL) return mf__fail(err, MF_ENOMEM, "no memory for %zu bytes", sizeof *o);
  *o = (mf__owned){.data = data, .nbytes = nbytes, .backend = record->backend};
  const int rc = mf__owned_add(o, err);
  if (rc != MF_OK) {
    mf__free(o, sizeof *o);
    return rc;
  }
  record->owned = o;
  mf__owned_set(o, t->storage);
  return MF_OK;
}

int mf__memory_own(mf_tensor **t, void *data, int64_t nbytes, mf_error *err) {
  const int rc = own(*t, data, nbytes, err);
  if (rc == MF_OK) return rc;
  (void)mf_tensor_release_later(*t);
  *t = NULL;
  return rc;
}

void mf__memory_disown(mf_tensor *t) {
  mf__record *record = mf__tensor_record(t);
  if (record == NULL || record->owned->data == NULL) return;
  mf__owned_remove(record->owned);
  record->owned->data = NULL;
}

int mf__memory_adopt(size_t room, const mf__region *memory, const mf__foreign *from, mf__storage **out,
                     mf_error *err) {
  if (memory->device.backend == NULL) return mf__storage_adopt(room, memory->nbytes, from, out, err);
  mf__storage *base = mf__owned_find(memory);
  mf__record *record = base != NULL ? mf__storage_record(base) : NULL;
  int rc = base != NULL ? mf__record_reimport(&memory->device, record, err)
                        : mf__record_import(&memory->device, &record, err);
  if (rc == MF_OK) rc = mf__storage_adopt(room, memory->nbytes, from, out, err);
  if (rc == MF_OK) {
    mf__storage_set_record(*out, record, base);
    return rc;
  }
  if (base != NULL) mf__storage_release(base, false);
  else if (record != NULL) mf__record_free(record);
  return rc;
}

int mf__memory_share(const mf_tensor *of, const DLTensor *view, uint64_t flags, const mf__device *device,
                     mf_tensor **out, mf_error *err) {
  mf__record *record = mf__tensor_record(of);
  int rc = mf__tensor_open(of, err);
  if (rc == MF_OK && record != NULL && device->backend != NULL) rc = mf__record_reimport(device, record, err);
  return rc == MF_OK ? mf__tensor_view(view, flags, of->storage, out, err) : rc;
}

/* Ending */

/* Drops the entries that are older than the import: the producer waits for that work. */
static void forget_producer(mf__record *a) {
  for (int32_t i = 0; i < a->count;) {
    const mf__entry *t = &a->entries[i];
    if (t->last_read > a->producer_uses || t->last_write > a->producer_uses) i++;
    else mf__record_drop(a, i);
  }
}

/* Ends a storage whose memory nothing uses any more. */
static void finish(void *ctx) {
  mf__record_free(mf__storage_record(ctx));
  mf__storage_end(ctx);
}

/* Memory that was mapped for us, which no tensor has any more. */
static void end_mapped(mf__owned *o) {
  if (o->data != NULL) mf__owned_remove(o);
  mf__free(o, sizeof *o);
}

void mf__memory_release(mf__storage *s) {
  mf__storage *base = mf__storage_base(s);
  mf__record *record = mf__storage_record(s);
  if (base != NULL) { /* the release of the base waits for all that their record knows of */
    mf__storage_release(base, false);
    mf__storage_end(s);
    return;
  }
  if (record->owned != NULL && !mf__owned_clear(record->owned, s)) return;
  if (record->block != NULL) {
    mf__pool_give(record->block, record);
    mf__storage_end(s);
    return;
  }
  if (record->owned != NULL) end_mapped(record->owned);
  forget_producer(record);
  mf__retire(record, finish, s);
}

/* Where it is, and the host's use of it */

mf__device mf__tensor_device(const mf_tensor *t) {
  const mf__record *record = mf__tensor_record(t);
  mf__device device;
  /* Without elements there is no memory and no record: only the label says where the tensor is. Its driver fails in a
   * forked child alone, and says so to whoever uses it. */
  if (record == NULL) {
    device = (mf__device){0};
    if (t->dl.device.device_type != kDLCPU) (void)mf__device_resolve(&t->dl.device, &device, NULL);
    return device;
  }
  device = mf__record_device(record);
  /* Managed memory that is labelled as a GPU's is used on that GPU. */
  if ((int32_t)t->dl.device.device_type == device.backend->types[MF__DEVICE]) device.ordinal = t->dl.device.device_id;
  return device;
}

bool mf__tensor_on_host(const mf_tensor *t) {
  const mf__record *a = mf__tensor_record(t);
  return a == NULL || a->on_host;
}

static int refuse_device(const mf__record *a, mf_error *err) {
  char name[MF__NAME_CAP];
  const mf__device device = mf__record_device(a);
  const DLDevice at = mf__device_name(&device);
  (void)mf_device_format(&at, name, sizeof name, NULL);
  return mf__fail(err, MF_EDEVICE, "the elements are on %s; copy them to the cpu first (mf_tensor_to)", name);
}

int mf__tensor_shared_check(const mf_tensor *t, mf_error *err) {
  const mf__record *a = mf__tensor_record(t);
  return a == NULL || a->on_host || a->space != MF__MANAGED ? MF_OK : refuse_device(a, err);
}

int mf__host_wait(const mf_tensor *t, bool write, mf_error *err) {
  mf__record *record = mf__tensor_record(t);
  if (record == NULL) return mf__fences_settle(t, write, err);
  const mf__queue host = mf__queue_host();
  return mf__order_use(&host, &(mf__usage){.record = record, .write = write}, err);
}
