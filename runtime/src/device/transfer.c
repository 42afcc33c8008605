/* transfer.c: copies and fills in which a device takes part: which way each goes, and in which steps.
 *
 *   from             to               way
 *   device, shared   device, shared   one driver copy where both sides are contiguous, or rows and slices of RUN_MIN
 *                                     bytes and more, unless the backend says that a kernel is faster; else a kernel;
 *                                     without one, up to MF__CALLS_MAX driver copies
 *   device i         device j         peer copy; a side that is not contiguous goes through memory of its own device
 *   pageable         device           up to MF__SMALL_NBYTES through pinned memory, in one go with both layouts;
 *   device           pageable         above through the staging buffers, a device side that is not contiguous through
 *                                     memory of its device
 *   any                               through the host, which waits (image.c): two drivers; elements of parts of bytes;
 *                                     places that repeat; layouts that would take more than MF__CALLS_MAX driver copies
 * Shared is pinned and managed memory, of the driver that does the copy; another driver's is pageable.
 *
 * Invariant: every step is ordered by the records of what it reads and writes, and temporaries are tensors with
 * records, so that they return to the pool behind the work that uses them. It must not know which driver there is. */
#include "device/device.h"

#include <string.h>

static bool on_device(const mf__record *a) {
  return a != NULL && a->space == MF__DEVICE;
}

/* Whether the queue's driver can access the memory. */
static bool is_known(const mf__record *a, const mf__queue *on) {
  return a != NULL && a->backend == on->backend;
}

static bool is_part_byte(const mf_tensor *t) {
  return mf__tensor_bits(t) % 8 != 0;
}

/* Refuses a capture: its graph would use the temporary when that is another tensor's memory. */
static int refuse_scratch(const mf__queue *on, mf_error *err) {
  return mf__capture_refuse(on, "this copy needs memory of its own for a while", err);
}

static int scratch(const mf_tensor *t, const mf__queue *on, mf_tensor **out, mf_error *err) {
  const int rc = refuse_scratch(on, err);
  *out = NULL;
  return rc == MF_OK ? mf__temporary(t, MF__DEVICE, on, out, err) : rc;
}

/* Copies by way of the host, from one driver's memory and to the other's. */
static int across_drivers(mf_tensor *dst, const mf_tensor *src, const mf__queue *on, mf_error *err) {
  mf_tensor *host;
  int rc = mf__tensor_create_host(&src->dl, mf__tensor_padded(src), &host, err);
  if (rc == MF_OK) rc = mf__transfer(host, src, on, err);
  if (rc == MF_OK) rc = mf__transfer(dst, host, on, err);
  (void)mf_tensor_release_later(host);
  return rc;
}

/* Both sides known to the driver */

static int move_or_image(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  bool undone = false;
  const int rc = mf__move(on, dst, src, &undone, err);
  return undone ? mf__image_copy(dst, src, on, err) : rc;
}

static int move_overlapping(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  mf_tensor *between;
  int rc = scratch(src, on, &between, err);
  if (rc == MF_OK) rc = move_or_image(on, between, src, err);
  if (rc == MF_OK) rc = move_or_image(on, dst, between, err);
  (void)mf_tensor_release_later(between);
  return rc;
}

static int peer_flat(const mf__queue *on, const mf__plan *p, mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  mf__record *to = mf__tensor_record(dst), *from = mf__tensor_record(src);
  mf__usage uses[2] = {{.record = to, .write = true}, {.record = from}};
  const mf__block_copy job = {.dst = p->dst, .src = p->src, .width = p->width, .height = 1, .depth = 1};
  int rc;
  MF__ORDERED(rc, on, uses, 2, true, err,
              on->backend->copy_peer(&job, to->ordinal, from->ordinal, on->stream, err));
  return rc;
}

/* Makes the source contiguous on its device first, if it is not, by a temporary, which no capture may use. */
static int peer_from(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  const mf__queue there = mf__queue_for(src, on);
  mf_tensor *packed;
  mf__plan p;
  mf__plan_make(&p, dst, src);
  if (p.ndim == 0 && !p.repeats) return peer_flat(on, &p, dst, src, err);
  int rc = refuse_scratch(on, err);
  if (rc == MF_OK) rc = scratch(src, &there, &packed, err);
  if (rc != MF_OK) return rc;
  rc = move_or_image(&there, packed, src, err);
  mf__plan_make(&p, dst, packed);
  if (rc == MF_OK) rc = peer_flat(on, &p, dst, packed, err);
  (void)mf_tensor_release_later(packed);
  return rc;
}

static int peer(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  mf_tensor *arrived;
  mf__plan p;
  mf__plan_make(&p, dst, src);
  if ((p.ndim == 0 && !p.repeats) || mf__is_compact(&dst->dl)) return peer_from(on, dst, src, err);
  int rc = scratch(src, on, &arrived, err);
  if (rc != MF_OK) return rc;
  rc = peer_from(on, arrived, src, err);
  if (rc == MF_OK) rc = move_or_image(on, dst, arrived, err);
  (void)mf_tensor_release_later(arrived);
  return rc;
}

/* Pageable memory */

/* The host's side of a staged copy. */
typedef struct host_part {
  const mf_tensor *tensor; /* NULL: flat bytes */
  char *data;
  int64_t size;
} host_part;

static void read_host(const void *ctx, int64_t at, int64_t nbytes, char *buffer) {
  const host_part *h = ctx;
  if (h->tensor == NULL)
    memcpy(buffer, h->data + at, (size_t)nbytes);
  else
    mf__gather(h->tensor, at / h->size, nbytes / h->size, buffer);
}

static void write_host(const void *ctx, int64_t at, int64_t nbytes, char *buffer) {
  const host_part *h = ctx;
  if (h->tensor == NULL)
    memcpy(h->data + at, buffer, (size_t)nbytes);
  else
    mf__scatter(h->tensor, at / h->size, nbytes / h->size, buffer);
}

/* Copies to contiguous memory of the device, which is a temporary if need be; the host's side stays as it is. */
static int upload_large(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  mf_tensor *arrived;
  mf__plan p;
  mf__plan_make(&p, dst, src);
  host_part host = {NULL, (char *)p.src, p.size};
  mf__stage_job job = {.device = p.dst, .nbytes = p.width, .grain = 1, .to_device = true, .move = read_host,
                       .ctx = &host};
  if (p.ndim == 0 && !p.repeats) return mf__move_staged(on, &job, dst, err);
  if (mf__is_compact(&dst->dl)) {
    host.tensor = src;
    job.nbytes = mf_tensor_nbytes(dst);
    job.grain = p.size;
    return mf__move_staged(on, &job, dst, err);
  }
  int rc = mf__temporary(src, MF__DEVICE, on, &arrived, err);
  if (rc == MF_OK) rc = upload_large(on, arrived, src, err);
  if (rc == MF_OK) rc = move_or_image(on, dst, arrived, err);
  (void)mf_tensor_release_later(arrived);
  return rc;
}

/* Where places of the destination repeat, its elements must come in their order, on one thread. */
static int download_repeated(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  mf_tensor *host;
  int rc = mf__tensor_create_host(&src->dl, mf__tensor_padded(src), &host, err);
  if (rc == MF_OK) rc = mf__transfer(host, src, on, err);
  if (rc == MF_OK) rc = mf__copy_host(dst, host, err);
  (void)mf_tensor_release_later(host);
  return rc;
}

static int download_large(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  mf_tensor *packed;
  mf__plan p;
  mf__plan_make(&p, dst, src);
  host_part host = {NULL, p.dst, p.size};
  mf__stage_job job = {.device = (char *)p.src, .nbytes = p.width, .grain = 1, .move = write_host, .ctx = &host};
  if (p.ndim == 0 && !p.repeats) return mf__move_staged(on, &job, src, err);
  if (mf__walk_repeats(&dst->dl)) return download_repeated(on, dst, src, err);
  if (mf__is_compact(&src->dl)) {
    host.tensor = dst;
    job.device = src->dl.data;
    job.nbytes = mf_tensor_nbytes(src);
    job.grain = p.size;
    return mf__move_staged(on, &job, src, err);
  }
  int rc = mf__temporary(src, MF__DEVICE, on, &packed, err);
  if (rc == MF_OK) rc = move_or_image(on, packed, src, err);
  if (rc == MF_OK) rc = download_large(on, dst, packed, err);
  (void)mf_tensor_release_later(packed);
  return rc;
}

static int upload_small(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  mf_tensor *pinned;
  int rc = mf__temporary(src, MF__PINNED, on, &pinned, err);
  if (rc == MF_OK) rc = mf__copy_host(pinned, src, err);
  if (rc == MF_OK) rc = move_or_image(on, dst, pinned, err);
  (void)mf_tensor_release_later(pinned);
  return rc;
}

static int download_small(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  mf_tensor *pinned;
  int rc = mf__temporary(src, MF__PINNED, on, &pinned, err);
  if (rc == MF_OK) rc = move_or_image(on, pinned, src, err);
  if (rc == MF_OK) rc = mf__host_wait(pinned, false, err);
  if (rc == MF_OK) rc = mf__copy_host(dst, pinned, err);
  (void)mf_tensor_release_later(pinned);
  return rc;
}

/* One side is not known to the queue's driver, and the host uses it. */
static int with_pageable(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  const bool up = is_known(mf__tensor_record(dst), on);
  const bool small = mf_tensor_nbytes(dst) <= MF__SMALL_NBYTES;
  int rc = mf__capture_refuse(on, "pageable host memory cannot take part; use pinned memory (cuda_host)", err);
  if (rc == MF_OK) rc = up ? mf__host_wait(src, false, err) : mf__host_wait(dst, true, err);
  if (rc != MF_OK) return rc;
  if (up) return small ? upload_small(on, dst, src, err) : upload_large(on, dst, src, err);
  return small ? download_small(on, dst, src, err) : download_large(on, dst, src, err);
}

/* The ways */

/* Elements of parts of bytes go as bytes where both sides are compact and no bit of the last byte is another's: it is
 * full, or in memory of ours that has no other tensor. */
static bool is_bytes(const mf_tensor *dst, const mf_tensor *src) {
  if (!is_part_byte(dst)) return true;
  if (!mf__is_compact(&dst->dl) || !mf__is_compact(&src->dl)) return false;
  return mf_tensor_size(dst) * mf__tensor_bits(dst) % 8 == 0 ||
         (mf__storage_is_own(dst->storage) && !mf__storage_is_shared(dst->storage));
}

mf__queue mf__transfer_queue(const mf_tensor *dst, const mf_tensor *src, const mf__queue *on) {
  const mf__record *to = mf__tensor_record(dst), *from = mf__tensor_record(src);
  return mf__queue_for(to == NULL || (on_device(from) && !on_device(to)) ? src : dst, on);
}

int mf__transfer(mf_tensor *dst, const mf_tensor *src, const mf__queue *on, mf_error *err) {
  const mf__record *to = mf__tensor_record(dst), *from = mf__tensor_record(src);
  const bool both = on_device(to) && on_device(from);
  if (both && to->backend != from->backend) return across_drivers(dst, src, on, err);
  const mf__queue q = mf__transfer_queue(dst, src, on);
  if (!is_bytes(dst, src)) return mf__image_copy(dst, src, &q, err);
  if (!is_known(to, &q) || !is_known(from, &q)) return with_pageable(&q, dst, src, err);
  if (mf__overlap(dst, src)) return move_overlapping(&q, dst, src, err);
  return both && to->ordinal != from->ordinal ? peer(&q, dst, src, err) : move_or_image(&q, dst, src, err);
}

/* Fills */

typedef int (*fill_fn)(const mf__plan *p, const void *slot, const mf__queue *on, mf_error *err);

static int fill_ordered(const mf__queue *on, mf_tensor *dst, const mf__plan *p, fill_fn fill, const void *slot,
                        mf_error *err) {
  mf__usage use = {.record = mf__tensor_record(dst), .write = true};
  int rc;
  MF__ORDERED(rc, on, &use, 1, true, err, fill(p, slot, on, err));
  return rc;
}

static int fill_compact(const mf__queue *on, mf_tensor *dst, const void *slot, mf_error *err) {
  mf__plan p;
  mf__plan_make(&p, dst, NULL);
  return fill_ordered(on, dst, &p, mf__plan_run_fill, slot, err);
}

/* Copies from memory that is filled with the element, where there are no kernels and too many rows, or elements of more
 * than 4 bytes. */
static int fill_by_copy(const mf__queue *on, mf_tensor *dst, const void *slot, mf_error *err) {
  const mf__place place = mf__temporary_place(on, MF__DEVICE);
  mf_tensor *all, *filled;
  int rc = refuse_scratch(on, err);
  if (rc == MF_OK) rc = mf__arranged_create(dst, &place, &all, &filled, err);
  if (rc != MF_OK) return rc;
  rc = fill_compact(on, all, slot, err);
  if (rc == MF_OK) rc = mf__move_boxes(on, dst, filled, err);
  (void)mf_tensor_release_later(filled);
  (void)mf_tensor_release_later(all);
  return rc;
}

static int fill_strided(const mf__queue *on, mf_tensor *dst, const mf__plan *p, const void *slot, mf_error *err) {
  if (mf__plan_count_kernels(p) <= MF__CALLS_MAX) {
    mf_error why; /* that there is no kernel is no failure yet */
    const int rc = fill_ordered(on, dst, p, mf__plan_run_fill_kernels, slot, &why);
    if (rc != MF_OK && rc != MF_EDEVICE && err != NULL) *err = why;
    if (rc != MF_EDEVICE) return rc;
  }
  if (mf__plan_count_fill(p, slot) > MF__CALLS_MAX) return fill_by_copy(on, dst, slot, err);
  return fill_ordered(on, dst, p, mf__plan_run_fill, slot, err);
}

/* Fills elements of 1, 2 or 4 bits as bytes that repeat them. */
static int fill_part_bytes(const mf__queue *on, mf_tensor *dst, const void *slot, mf_error *err) {
  const int64_t bits = mf__tensor_bits(dst);
  unsigned byte = *(const unsigned char *)slot & ((1u << (bits & 7)) - 1);
  if (8 % bits != 0 || !is_bytes(dst, dst)) return mf__image_fill(dst, slot, on, err);
  for (int64_t have = bits; have < 8; have *= 2) byte |= byte << have;
  const unsigned char pattern = (unsigned char)byte;
  return fill_compact(on, dst, &pattern, err);
}

/* Up to here a loop of fills is cheaper than a kernel. */
#define FILLS_MAX 8

int mf__transfer_fill(mf_tensor *dst, const void *slot, mf_error *err) {
  const mf__queue q = mf__queue_for(dst, NULL);
  mf__plan p;
  if (is_part_byte(dst)) return fill_part_bytes(&q, dst, slot, err);
  mf__plan_make(&p, dst, NULL);
  if (p.repeats) return mf__image_fill(dst, slot, &q, err);
  if (p.ndim > 0 && mf__plan_count_fill(&p, slot) > FILLS_MAX) return fill_strided(&q, dst, &p, slot, err);
  return fill_ordered(&q, dst, &p, mf__plan_run_fill, slot, err);
}

/* Copies that tensors ask for */

bool mf__copied_by_host(const mf_tensor *dst, const mf_tensor *src) {
  const mf__record *to = mf__tensor_record(dst), *from = mf__tensor_record(src);
  if (!mf__tensor_on_host(dst) || !mf__tensor_on_host(src)) return false;
  return to == NULL || from == NULL || to->backend != from->backend;
}

/* At least one side lies in memory that a driver knows. */
int mf__transfer_copy(mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  if (!mf__copied_by_host(dst, src)) return mf__transfer(dst, src, NULL, err);
  int rc = mf__host_wait(src, false, err);
  if (rc == MF_OK) rc = mf__host_wait(dst, true, err);
  return rc == MF_OK ? mf__copy_host(dst, src, err) : rc;
}
