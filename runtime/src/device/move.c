/* move.c: carries out the steps that copies with a device are made of: between memories that one driver knows, and
 * between a device and pageable memory where both are contiguous. It must not know which way a copy takes (transfer.c).
 *
 * Invariant: every step is ordered by the records of the memory that it reads and writes. */
#include "device/device.h"

#include <string.h>

/* Below this, the driver's pitched copies are slower than a kernel in any case. */
#define RUN_MIN 64

/* Pinned and managed memory is used on any device's streams: where none is asked for, on those of its label. */
mf__queue mf__queue_for(const mf_tensor *t, const mf__queue *on) {
  const mf__device device = mf__tensor_device(t);
  const bool fits =
      on != NULL && on->backend == device.backend && (device.space != MF__DEVICE || on->ordinal == device.ordinal);
  return fits ? *on : mf__queue_current(&device);
}

mf__place mf__temporary_place(const mf__queue *on, mf__space space) {
  return (mf__place){.device = {on->backend, space, on->ordinal}, .on = *on, .temporary = true};
}

int mf__temporary(const mf_tensor *t, mf__space space, const mf__queue *on, mf_tensor **out, mf_error *err) {
  const mf__place place = mf__temporary_place(on, space);
  return mf__tensor_create_at(&t->dl, mf__tensor_padded(t), &place, out, err);
}

/* Then both are on the same one. */
static bool are_on_device(const mf__usage *uses) {
  return uses[0].record->space == MF__DEVICE && uses[1].record->space == MF__DEVICE;
}

/* Whether one driver copy does it, and no kernel would be faster. */
static bool is_for_driver(const mf__plan *p, const mf__queue *on, const mf__usage *uses) {
  if (p->ndim == 0) return true;
  int64_t nbytes = p->width;
  for (int32_t i = 0; i < p->ndim; i++) nbytes *= p->shape[i];
  const int64_t from = on->backend->kernel_rows_from;
  const bool is_slow = from > 0 && nbytes >= from && mf__plan_is_aligned(p) && are_on_device(uses);
  return p->width >= RUN_MIN && !is_slow;
}

/* *undone becomes true where it would take too many driver copies: nothing failed, and nothing was queued. */
static int run_plan(const mf__plan *p, const mf__queue *on, const mf__usage *uses, bool *undone, mf_error *err) {
  const int64_t boxes = mf__plan_count(p);
  if (boxes == 1 && is_for_driver(p, on, uses)) return mf__plan_run_boxes(p, on, err);
  if (mf__plan_count_kernels(p) <= MF__CALLS_MAX) {
    mf_error why; /* that there is no kernel is no failure yet */
    const int rc = mf__plan_run_kernels(p, on, &why);
    if (rc != MF_OK && rc != MF_EDEVICE && err != NULL) *err = why;
    if (rc != MF_EDEVICE) return rc;
  }
  if (boxes <= MF__CALLS_MAX) return mf__plan_run_boxes(p, on, err);
  *undone = true;
  return MF_OK;
}

/* Both sides are known to the queue's driver and do not overlap. undone NULL: however many driver copies it takes. */
static int move(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, bool *undone, mf_error *err) {
  mf__usage uses[2] = {{.record = mf__tensor_record(dst), .write = true}, {.record = mf__tensor_record(src)}};
  int rc;
  mf__plan p;
  mf__plan_make(&p, dst, src);
  if (p.repeats && undone != NULL) {
    *undone = true;
    return MF_OK;
  }
  MF__ORDERED(rc, on, uses, 2, undone == NULL || !*undone, err,
              undone != NULL ? run_plan(&p, on, uses, undone, err) : mf__plan_run_boxes(&p, on, err));
  return rc;
}

int mf__move(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, bool *undone, mf_error *err) {
  return move(on, dst, src, undone, err);
}

int mf__move_boxes(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  return move(on, dst, src, NULL, err);
}

int mf__move_staged(const mf__queue *on, mf__stage_job *job, const mf_tensor *device, mf_error *err) {
  mf__usage use = {.record = mf__tensor_record(device), .write = job->to_device};
  int rc = mf__order_begin(on, &use, 1, err);
  if (rc != MF_OK) return rc;
  rc = mf__stage_copy(on, job, err);
  mf__order_end(on, &use, 1, job->queued);
  return rc;
}

static void read_bytes(const void *ctx, int64_t at, int64_t nbytes, char *buffer) {
  memcpy(buffer, (const char *)ctx + at, (size_t)nbytes);
}

static void write_bytes(const void *ctx, int64_t at, int64_t nbytes, char *buffer) {
  memcpy((char *)(uintptr_t)ctx + at, buffer, (size_t)nbytes);
}

/* Copies by way of pinned memory, which the host fills or empties. */
static int move_small(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, bool up, mf_error *err) {
  mf_tensor *pinned;
  int rc = mf__temporary(src, MF__PINNED, on, &pinned, err);
  if (rc == MF_OK && up) memcpy(pinned->dl.data, src->dl.data, (size_t)mf_tensor_nbytes(src));
  if (rc == MF_OK) rc = up ? move(on, dst, pinned, NULL, err) : move(on, pinned, src, NULL, err);
  if (rc == MF_OK && !up) rc = mf__host_wait(pinned, false, err);
  if (rc == MF_OK && !up) memcpy(dst->dl.data, pinned->dl.data, (size_t)mf_tensor_nbytes(dst));
  (void)mf_tensor_release_later(pinned);
  return rc;
}

int mf__move_bytes(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  const mf__record *to = mf__tensor_record(dst);
  const bool up = to != NULL && to->backend == on->backend;
  const int64_t nbytes = mf_tensor_nbytes(dst);
  if (nbytes <= MF__SMALL_NBYTES) return move_small(on, dst, src, up, err);
  mf__stage_job job = {.device = up ? dst->dl.data : src->dl.data, .nbytes = nbytes, .grain = 1, .to_device = up,
                       .move = up ? read_bytes : write_bytes, .ctx = up ? src->dl.data : dst->dl.data};
  return mf__move_staged(on, &job, up ? dst : src, err);
}
