/* request.c: carries out what a consumer may ask for, device, copy and stream: the consumer gets the tensor itself, the
 * same memory under another label, or a copy.
 *
 * Invariant: a request is refused before anything is queued, or carried out whole. It must not know how streams are
 * ordered (order.c), nor how a copy is made (transfer.c). */
#include "exchange/exchange.h"

/* A request that was checked. */
typedef struct plan {
  mf__place target;
  DLDevice label;
  bool copy;
} plan;

static bool same_device(DLDevice a, DLDevice b) {
  return a.device_type == b.device_type && a.device_id == b.device_id;
}

/* Whether the memory may carry the label without a copy: pinned memory is the cpu's too, managed memory is also
 * every GPU's. */
static bool may_carry(const mf_tensor *t, DLDevice label, const mf__device *target) {
  const mf__device memory = mf__tensor_device(t);
  if (same_device(t->dl.device, label)) return true;
  if (memory.backend == NULL || memory.space == MF__DEVICE) return false;
  if (label.device_type == kDLCPU) return mf__tensor_on_host(t);
  if (target->backend != memory.backend) return false;
  return target->space == memory.space || (memory.space == MF__MANAGED && target->space == MF__DEVICE);
}

/* A stream for work on t's memory. A handle that is current, or that the record knows, was checked before: asking the
 * driver again would cost more than all the rest. */
static int queue_for(const mf_tensor *t, const mf__device *device, mf_stream stream, mf__queue *out, mf_error *err) {
  int32_t ordinal = device->ordinal;
  const bool known = !mf__stream_is_current(device, stream) &&
                     mf__order_knows(mf__tensor_record(t), stream, &ordinal) &&
                     (device->space != MF__DEVICE || ordinal == device->ordinal);
  const int rc = mf__queue_resolve(device, stream, !known, out, err);
  if (known) out->ordinal = ordinal;
  return rc;
}

static int check_request(const mf_request *request, mf_error *err) {
  if (request->zero != 0) return mf__fail(err, MF_EINVAL, "request.zero is %d; 0 expected", request->zero);
  if (request->copy >= MF_COPY_IF_NEEDED && request->copy <= MF_COPY_ALWAYS) return MF_OK;
  return mf__fail(err, MF_EINVAL, "request.copy is %d; 0 (if needed), 1 (never) or 2 (always) expected",
                  request->copy);
}

/* The stream is one of the target; a target without streams is the host, and then the program may name a stream of the
 * source to do the copy on. */
static int make_plan(const mf_tensor *t, const mf_request *request, plan *out, mf_error *err) {
  const mf__device memory = mf__tensor_device(t);
  mf__place *target = &out->target;
  char from[MF__NAME_CAP], to[MF__NAME_CAP];
  int rc = mf__tensor_open(t, err);
  if (rc == MF_OK) rc = check_request(request, err);
  if (rc != MF_OK) return rc;
  out->label = (int)request->device.device_type == 0 ? t->dl.device : request->device;
  rc = mf__device_resolve(&out->label, &target->device, err);
  if (rc != MF_OK) return rc;
  const bool is_named = request->stream > MF_STREAM_CURRENT || request->stream < MF_STREAM_HOST;
  const bool of_source = target->device.backend == NULL && memory.backend != NULL && is_named;
  rc = queue_for(t, of_source ? &memory : &target->device, request->stream, &target->on, err);
  if (rc != MF_OK) return rc;
  const bool needed = !may_carry(t, out->label, &target->device);
  out->copy = needed || request->copy == MF_COPY_ALWAYS;
  if (!needed || request->copy != MF_COPY_NEVER) return MF_OK;
  (void)mf_device_format(&t->dl.device, from, sizeof from, NULL);
  (void)mf_device_format(&out->label, to, sizeof to, NULL);
  return mf__fail(err, MF_ELAYOUT, "the elements are on %s; %s needs a copy, which copy=False forbids", from, to);
}

/* dst was just made, so that nobody uses it. */
static int copy_elements(mf_tensor *dst, const mf_tensor *src, const mf__queue *on, mf_error *err) {
  if (mf__is_empty(&src->dl)) return MF_OK;
  if (!mf__copied_by_host(dst, src)) return mf__transfer(dst, src, on, err);
  const int rc = mf__host_wait(src, false, err);
  return rc == MF_OK ? mf__copy_host(dst, src, err) : rc;
}

/* The copy is queued on the stream that was asked for. Where none was, because the host waits or nobody orders it, this
 * is the target's current one, and for a target without streams mf__transfer finds the source's. */
static int make_copy(const mf_tensor *t, const plan *p, mf_tensor **out, mf_error *err) {
  const bool named = p->target.on.backend != NULL && p->target.on.stream != MF_STREAM_NO_ORDER;
  const mf__place place = {.device = p->target.device,
                           .on = named ? p->target.on : mf__queue_current(&p->target.device)};
  int rc = mf__tensor_create_at(&t->dl, mf__tensor_padded(t), &place, out, err);
  if (rc == MF_OK) {
    rc = copy_elements(*out, t, &place.on, err);
    /* The caller has no other use for the original on that stream, also where a part was queued before a failure. */
    mf__order_detach(&place.on, mf__tensor_record(t));
  }
  if (rc == MF_OK && p->target.on.backend == NULL) rc = mf__host_wait(*out, true, err);
  return rc;
}

static int relabel(mf_tensor *t, DLDevice label, mf_tensor **out, mf_error *err) {
  DLTensor view = t->dl;
  if (same_device(view.device, label)) {
    *out = mf_tensor_retain(t);
    return MF_OK;
  }
  view.device = label;
  return mf__tensor_view(&view, t->flags, t->storage, out, err);
}

/* Makes the tensor that was asked for, not yet ordered unless it is a copy. The caller gives *out back, also after a
 * failure. */
static int carry_out(mf_tensor *t, const plan *p, mf_tensor **out, mf_error *err) {
  return p->copy ? make_copy(t, p, out, err) : relabel(t, p->label, out, err);
}

/* Orders the view behind its record if a stream was named; if none was, the next operation orders itself. */
static int order_view(const mf_tensor *t, const plan *p, mf_error *err) {
  mf__usage use = {.record = mf__tensor_record(t), .grants = true};
  if (p->target.on.backend == NULL) return mf__host_wait(t, !(t->flags & DLPACK_FLAG_BITMASK_READ_ONLY), err);
  if (p->target.on.stream == MF_STREAM_NO_ORDER) return MF_OK;
  return mf__order_use(&p->target.on, &use, err);
}

int mf_tensor_to(mf_tensor *t, const mf_request *request, mf_tensor **out, mf_error *err) {
  MF__NEED_OUT(out);
  MF__NEED(t);
  MF__NEED(request);
  plan p;
  int rc = make_plan(t, request, &p, err);
  if (rc == MF_OK) rc = carry_out(t, &p, out, err);
  if (rc == MF_OK && (!p.copy || p.target.on.backend != NULL)) rc = order_view(*out, &p, err);
  if (rc != MF_OK) {
    (void)mf_tensor_release_later(*out);
    *out = NULL;
  }
  return mf__end(rc, __func__, err);
}

int mf_tensor_export_to(mf_tensor *t, const mf_request *request, DLManagedTensorVersioned **out, mf_error *err) {
  MF__NEED_OUT(out);
  MF__NEED(t);
  MF__NEED(request);
  plan p;
  mf_tensor *result = NULL;
  int rc = make_plan(t, request, &p, err);
  if (rc == MF_OK) rc = carry_out(t, &p, &result, err);
  if (rc == MF_OK)
    rc = mf__export(result, p.copy ? (uint64_t)DLPACK_FLAG_BITMASK_IS_COPIED : 0, &p.target.on, out, err);
  (void)mf_tensor_release_later(result);
  return mf__end(rc, __func__, err);
}

int mf_tensor_export_legacy_to(mf_tensor *t, const mf_request *request, DLManagedTensor **out, mf_error *err) {
  MF__NEED_OUT(out);
  MF__NEED(t);
  MF__NEED(request);
  plan p;
  mf_tensor *result = NULL;
  int rc = make_plan(t, request, &p, err);
  if (rc == MF_OK) rc = carry_out(t, &p, &result, err);
  if (rc == MF_OK) rc = mf__flagless_check(result, err);
  if (rc == MF_OK) rc = mf__export_legacy(result, &p.target.on, out, err);
  (void)mf_tensor_release_later(result);
  return mf__end(rc, __func__, err);
}

static bool is_allowed(const mf_tensor *t, int32_t use) {
  const bool known = use == MF_READ || (use == MF_WRITE && !(t->flags & DLPACK_FLAG_BITMASK_READ_ONLY));
  return known && !mf__storage_is_closed(t->storage);
}

static int check_use(const mf_tensor *t, int32_t use, mf_error *err) {
  if (use == MF_WRITE) return mf__tensor_writable(t, err);
  if (use == MF_READ) return mf__tensor_open(t, err);
  return mf__fail(err, MF_EINVAL, "use is %d; 1 (MF_READ) or 2 (MF_WRITE) expected", use);
}

/* The queue for work on t's memory; *needed false where there is nothing to order. */
static int work_queue(const mf_tensor *t, mf_stream stream, mf__queue *on, bool *needed, mf_error *err) {
  const mf__device device = mf__tensor_device(t);
  const int rc = queue_for(t, &device, stream, on, err);
  *needed = mf__tensor_record(t) != NULL && on->stream != MF_STREAM_NO_ORDER;
  return rc;
}

/* The usual case, which every use pays for: the stream is the only one in the record. */
static bool acquire_repeated(const mf_tensor *t, mf_stream stream, int32_t use) {
  mf__queue on;
  mf__record *record = mf__tensor_record(t);
  if (record == NULL || stream < MF_STREAM_CURRENT || !is_allowed(t, use)) return false;
  const mf__device device = mf__tensor_device(t);
  (void)mf__queue_resolve(&device, stream, false, &on, NULL);
  return mf__order_is_sole_writer(record, on.stream) ||
         mf__order_repeat(&on, &(mf__usage){.record = record, .write = use == MF_WRITE, .grants = true});
}

/* Kept out of line, so that the usual case does not pay for this one's stack frame. */
static __attribute__((noinline)) int acquire_any(mf_tensor *t, mf_stream stream, int32_t use, mf_error *err) {
  if (acquire_repeated(t, stream, use)) return MF_OK;
  mf__queue on;
  bool needed;
  mf__usage usage = {.record = mf__tensor_record(t), .write = use == MF_WRITE, .grants = true};
  int rc = check_use(t, use, err);
  if (rc == MF_OK && stream == MF_STREAM_HOST) rc = mf__tensor_shared_check(t, err);
  if (rc == MF_OK) rc = work_queue(t, stream, &on, &needed, err);
  if (rc == MF_OK && usage.record == NULL) rc = mf__fences_settle(t, usage.write, err);
  if (rc == MF_OK && needed) rc = mf__order_use(&on, &usage, err);
  return mf__end(rc, "mf_tensor_acquire", err);
}

int mf_tensor_acquire(mf_tensor *t, mf_stream stream, int32_t use, mf_error *err) {
  MF__NEED(t);
  const mf__record *record = mf__tensor_record(t);
  const bool sole = record != NULL && stream != MF_STREAM_CURRENT && mf__order_is_sole_writer(record, stream);
  return sole && is_allowed(t, use) ? MF_OK : acquire_any(t, stream, use, err);
}

int mf_tensor_record(mf_tensor *t, mf_stream stream, int32_t use, mf_error *err) {
  MF__NEED(t);
  const mf__usage usage = {mf__tensor_record(t), use == MF_WRITE, true};
  mf__queue on;
  bool needed;
  int rc = check_use(t, use, err);
  if (rc == MF_OK && (stream == MF_STREAM_HOST || stream == MF_STREAM_NO_ORDER))
    rc = mf__fail(err, MF_EINVAL, "stream is %lld; a stream of a GPU expected", (long long)stream);
  if (rc == MF_OK) rc = work_queue(t, stream, &on, &needed, err);
  if (rc == MF_OK && needed) rc = mf__order_enter(&on, &usage, err);
  return mf__end(rc, __func__, err);
}
