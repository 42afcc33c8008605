/* kernel.c: does what is the same for the kernels of every driver. A kernel is made when it is first needed, and kept
 * with its device; a job's axes are brought into the order in which threads go best. It must not know any driver's
 * calls, nor when a kernel is the better way. */
#include "driver/kernel.h"

#include <stdlib.h>

static int32_t number_of_size(int32_t size) {
  int32_t which = 0;
  while (which < MF__KERNEL_SIZES - 1 && 1 << which < size) which++;
  return which;
}

/* One number for each dtype that has kernels. */
static uint32_t number_of(const mf__codec *c) {
  const int number = mf__number_of(c);
  return number == MF__N_SMALL8 ? 0x40u + c->dtype.code : (uint32_t)number;
}

static uint32_t key_of(const mf__kernel_wanted *w) {
  if (w->kind == MF__COPIES) return (uint32_t)w->which;
  return (uint32_t)w->kind << 16 | number_of(w->to) << 8 | number_of(w->from);
}

const char *mf__kernel_name(mf__kernel_kind kind) {
  static const char *const names[] = {[MF__COPIES] = "copy", [MF__CASTS] = "cast", [MF__COMPARES] = "comparison"};
  return names[kind];
}

/* Guards the making of kernels; no lock of the runtime is taken under it. */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

static mf__kernel *find(mf__kernels *of, uint32_t key) {
  mf__kernel *k = atomic_load_explicit(&of->first, memory_order_acquire);
  while (k != NULL && k->key != key) k = k->next;
  return k;
}

/* Under the lock. */
static int make(const mf__compiler *c, const mf__kernel_wanted *w, mf_error *err) {
  mf__kernels *of = c->here();
  if (find(of, key_of(w)) != NULL) return MF_OK;
  mf__kernel *k = mf__lasting_alloc(sizeof *k);
  if (k == NULL) return mf__fail(err, MF_ENOMEM, "no memory to keep a kernel");
  k->key = key_of(w);
  const int rc = c->make(w, k, err);
  if (rc != MF_OK) {
    free(k);
    return rc;
  }
  k->next = atomic_load_explicit(&of->first, memory_order_relaxed);
  atomic_store_explicit(&of->first, k, memory_order_release);
  return MF_OK;
}

/* Makes a kernel once, in relaxed mode: the calls have no part in any capture, and no capture elsewhere may forbid
 * them. */
static int make_once(const mf__compiler *c, const mf__kernel_wanted *w, mf_error *err) {
  int rc = c->relax(true, err);
  if (rc != MF_OK) return rc;
  pthread_mutex_lock(&making);
  rc = make(c, w, err);
  pthread_mutex_unlock(&making);
  const int restored = c->relax(false, rc == MF_OK ? err : NULL);
  return rc == MF_OK ? restored : rc;
}

/* To make a kernel takes long. Where another thread has begun to capture a blocking stream meanwhile, a launch in the
 * legacy stream would break that capture, so that it is asked about again. */
static int need(const mf__compiler *c, const mf__kernel_wanted *w, mf_stream stream, const mf__kernel **out,
                mf_error *err) {
  uint64_t id;
  int rc = c->open(err);
  if (rc != MF_OK) return rc;
  const mf__kernel *k = find(c->here(), key_of(w));
  if (k == NULL) {
    rc = make_once(c, w, err);
    if (rc == MF_OK && stream == MF_STREAM_DEFAULT) rc = c->capture(stream, &id, err);
    if (rc != MF_OK) return rc;
    k = find(c->here(), key_of(w));
  }
  if (k->refused.status != MF_OK && err != NULL) *err = k->refused;
  *out = k;
  return k->refused.status;
}

enum { LEAST = 16 /* elements along an axis of which a tile is worth while */ };

/* The axis along which the destination is closest comes first, so that neighbouring threads write neighbours. */
static mf__kernel_copy sort_axes(const mf__kernel_copy *job) {
  mf__kernel_copy sorted = *job;
  int32_t order[MF__KERNEL_AXES];
  (void)mf__axes_sort(job->ndim, job->dst_strides, NULL, order);
  for (int32_t i = 0; i < job->ndim; i++) {
    const int32_t from = order[job->ndim - 1 - i];
    sorted.shape[i] = job->shape[from];
    sorted.dst_strides[i] = job->dst_strides[from];
    sorted.src_strides[i] = job->src_strides[from];
  }
  return sorted;
}

static int64_t distance(int64_t stride) {
  return stride < 0 ? -stride : stride;
}

/* The axis along which the source is closest, if it is another one than the destination's; 0 where threads that write
 * neighbours read near enough, or the axes are too short. */
static int32_t transposed_axis(const mf__kernel_copy *sorted) {
  int32_t best = 0;
  for (int32_t i = 1; i < sorted->ndim; i++) {
    const int64_t stride = distance(sorted->src_strides[i]);
    if (sorted->shape[i] >= LEAST && stride != 0 && stride < distance(sorted->src_strides[best])) best = i;
  }
  return sorted->ndim > 1 && sorted->shape[0] >= LEAST ? best : 0;
}

static int64_t tiles_along(int64_t extent) {
  return (extent - 1) / MF__KERNEL_TILE + 1;
}

/* The axis becomes axis 1. */
static void swap_axes(mf__kernel_copy *job, int32_t axis) {
  int64_t *const lists[] = {job->shape, job->dst_strides, job->src_strides};
  for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
    const int64_t first = lists[k][1];
    lists[k][1] = lists[k][axis];
    lists[k][axis] = first;
  }
}

/* Makes numel the number of tiles. False where that, or an extent, has more than 31 bits. */
static bool count_tiles(mf__kernel_copy *job) {
  int64_t n = 1;
  for (int32_t i = 0; i < job->ndim; i++) {
    if (job->shape[i] > INT32_MAX) return false;
    n *= i < 2 ? tiles_along(job->shape[i]) : job->shape[i];
    if (n > INT32_MAX) return false;
  }
  job->numel = n;
  return true;
}

/* The address and the strides of one side but for that along one axis, combined: bits below those of what divides them
 * all are 0. */
static uint64_t side_bits(const void *at, const int64_t *strides, int32_t ndim, int32_t but) {
  uint64_t all = (uintptr_t)at;
  for (int32_t i = 0; i < ndim; i++) all |= i == but ? 0 : (uint64_t)strides[i];
  return all;
}

/* Makes the tiles' elements squares of as many as a word of 4 bytes holds. False where words do not lie side by side
 * along both axes. */
static bool square(mf__kernel_copy *job) {
  const int64_t n = 4 / job->size;
  if (job->size >= 4 || job->shape[0] % n != 0 || job->shape[1] % n != 0) return false;
  if (job->dst_strides[0] != job->size || job->src_strides[1] != job->size) return false;
  const uint64_t all = side_bits(job->dst, job->dst_strides, job->ndim, 0) |
                       side_bits(job->src, job->src_strides, job->ndim, 1);
  if (all % 4 != 0) return false;
  for (int32_t i = 0; i < 2; i++) {
    job->shape[i] /= n;
    job->dst_strides[i] *= n;
    job->src_strides[i] *= n;
  }
  return true;
}

static int64_t blocks_for(int64_t numel) {
  return (numel - 1) / MF__KERNEL_THREADS + 1;
}

static int copy(const mf__compiler *c, const mf__kernel *k, const mf__kernel_copy *job, mf_stream stream,
                mf_error *err) {
  mf__kernel_copy sorted = sort_axes(job), tiles = sorted;
  void *params[] = {&sorted};
  const int32_t axis = transposed_axis(&sorted);
  if (axis == 0) return c->launch(k->ways[MF__WAY_ALL], blocks_for(job->numel), params, stream, err);
  swap_axes(&tiles, axis);
  const int way = square(&tiles) ? MF__WAY_SQUARES : MF__WAY_TILES;
  if (!count_tiles(&tiles)) return c->launch(k->ways[MF__WAY_ALL], blocks_for(job->numel), params, stream, err);
  params[0] = &tiles;
  return c->launch(k->ways[way], tiles.numel, params, stream, err);
}

int mf__kernel_copy_by(const mf__compiler *c, const mf__kernel_copy *job, mf_stream stream, mf_error *err) {
  const mf__kernel_wanted w = {.kind = MF__COPIES, .which = number_of_size(job->size)};
  const mf__kernel *k;
  const int rc = need(c, &w, stream, &k, err);
  return rc != MF_OK || job->numel == 0 ? rc : copy(c, k, job, stream, err);
}

/* Numbers */

int mf__kernel_lanes(const mf__codec *a, const mf__codec *b) {
  return a->slot_bits == 64 || b->slot_bits == 64 ? 2 : 4;
}

/* Has each thread take several elements, which lie side by side on both sides; false where they do not. */
static bool take_some(mf__kernel_copy *job, const mf__kernel_wanted *w) {
  const int64_t n = mf__kernel_lanes(w->to, w->from), to = w->to->slot_bits / 8, from = w->from->slot_bits / 8;
  if (job->ndim == 0 || job->shape[0] % n != 0) return false;
  if (job->dst_strides[0] != to || job->src_strides[0] != from) return false;
  if (side_bits(job->dst, job->dst_strides, job->ndim, 0) % (uint64_t)(n * to) != 0) return false;
  if (side_bits(job->src, job->src_strides, job->ndim, 0) % (uint64_t)(n * from) != 0) return false;
  job->shape[0] /= n;
  job->dst_strides[0] *= n;
  job->src_strides[0] *= n;
  job->numel /= n;
  return true;
}

/* ${differs} is a comparison's alone. */
static int each_number(const mf__compiler *c, const mf__kernel_copy *job, const mf__kernel_wanted *w,
                       uint32_t *differs, mf_stream stream, mf_error *err) {
  const mf__kernel *k;
  if (mf__number_of(w->to) < 0 || mf__number_of(w->from) < 0)
    return mf__fail(err, MF_EDEVICE, "there is no kernel for one of the dtypes");
  const int rc = need(c, w, stream, &k, err);
  if (rc != MF_OK || job->numel == 0) return rc;
  mf__kernel_copy sorted = sort_axes(job);
  const int way = take_some(&sorted, w) ? MF__WAY_SOME : MF__WAY_ONE;
  void *params[] = {&sorted, &differs};
  return c->launch(k->ways[way], blocks_for(sorted.numel), params, stream, err);
}

int mf__kernel_cast_by(const mf__compiler *c, const mf__kernel_copy *job, const mf__codec *to, const mf__codec *from,
                       mf_stream stream, mf_error *err) {
  const mf__kernel_wanted w = {.kind = MF__CASTS, .to = to, .from = from};
  return each_number(c, job, &w, NULL, stream, err);
}

int mf__kernel_compare_by(const mf__compiler *c, const mf__kernel_copy *job, const mf__codec *of, uint32_t *differs,
                          mf_stream stream, mf_error *err) {
  const mf__kernel_wanted w = {.kind = MF__COMPARES, .to = of, .from = of};
  return each_number(c, job, &w, differs, stream, err);
}

bool mf__kernels_loaded(const mf__kernels *of) {
  return atomic_load_explicit(&of->first, memory_order_relaxed) != NULL;
}

void mf__kernels_forget(const mf__compiler *c, mf__kernels *of) {
  mf__kernel *k = atomic_exchange(&of->first, NULL);
  while (k != NULL) {
    mf__kernel *next = k->next;
    if (k->module != NULL) c->unload(k->module);
    free(k);
    k = next;
  }
}
