/* cuda_kernel.c: kernels, which do what no call of the driver can express: copies of any layout, casts, comparisons.
 * The driver compiles each from its text (cuda_text.c, cuda_number.c) when it is first needed. It must not know when a
 * kernel is the better way. */
#include "driver/cuda.h"

#include <stdlib.h>

/* Which kernel: a copy of elements of 1 << which bytes, a cast, or a comparison of two sides of the dtype ${to}. */
typedef enum kind { COPY, CAST, COMPARE } kind;

typedef struct wanted {
  kind kind;
  int32_t which;
  const mf__codec *to, *from;
} wanted;

/* How many ways there are, and what the text calls them. */
enum { ALL = 0, TILES = 1, SQUARES = 2, ONE = 0, SOME = 1 };

static int32_t count_ways(const wanted *w) {
  return w->kind == COPY && w->which < 2 ? 3 : 2;
}

static const char *const names[][3] = {
    [COPY] = {"mf_copy", "mf_transpose", "mf_transpose_words"},
    [CAST] = {"mf_one", "mf_some"},
    [COMPARE] = {"mf_one", "mf_some"},
};

/* One number for each dtype that has kernels. */
static uint32_t number_of(const mf__codec *c) {
  const int number = mf__number_of(c);
  return number == MF__N_SMALL8 ? 0x40u + c->dtype.code : (uint32_t)number;
}

static uint32_t key_of(const wanted *w) {
  if (w->kind == COPY) return (uint32_t)w->which;
  return (uint32_t)w->kind << 16 | number_of(w->to) << 8 | number_of(w->from);
}

/* Guards the making of kernels, and the text; no lock of the runtime is taken under it. */
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static mf__cuda_text text;

static void write_text(const wanted *w) {
  if (w->kind == COPY) mf__cuda_text_copy(&text, w->which);
  if (w->kind == CAST) mf__cuda_text_cast(&text, w->to, w->from);
  if (w->kind == COMPARE) mf__cuda_text_compare(&text, w->to);
}

static mf__cuda_kernel *find(mf__cuda_device *d, uint32_t key) {
  mf__cuda_kernel *k = atomic_load_explicit(&d->kernels, memory_order_acquire);
  while (k != NULL && k->key != key) k = k->next;
  return k;
}

/* Whether the driver will answer the same next time: it cannot compile at all, or not this text, or not for this GPU
 * (CUDA Driver API, "Data types", CUresult). */
static bool is_final(CUresult code) {
  return code == CUDA_ERROR_INVALID_IMAGE || code == CUDA_ERROR_NO_BINARY_FOR_GPU ||
         (code >= CUDA_ERROR_INVALID_PTX && code <= CUDA_ERROR_JIT_COMPILATION_DISABLED) ||
         code == CUDA_ERROR_NOT_SUPPORTED;
}

static int find_grid(mf__cuda_device *d, mf_error *err) {
  enum { PER_PROCESSOR = 16 };
  int processors = 0;
  if (d->grid != 0) return MF_OK;
  const int rc = MF__ASK(cuDeviceGetAttribute, (&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, d->device));
  d->grid = processors * PER_PROCESSOR;
  return rc;
}

static int find_ways(const wanted *w, mf__cuda_kernel *k, mf_error *err) {
  int rc = MF_OK;
  for (int32_t i = 0; i < count_ways(w) && rc == MF_OK; i++)
    rc = MF__ASK(cuModuleGetFunction, (&k->ways[i], k->module, names[w->kind][i]));
  if (rc != MF_OK) (void)mf__cu.cuModuleUnload(k->module);
  return rc;
}

/* Compiles a kernel; MF_OK also where the driver never will, which ${k} says then. */
static int compile(const wanted *w, mf__cuda_kernel *k, mf_error *err) {
  enum { NOPTIONS = 2, LOG_NBYTES = 1024 };
  char log[LOG_NBYTES] = "";
  CUjit_option options[NOPTIONS] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[NOPTIONS] = {log, (void *)(uintptr_t)sizeof log};
  static const char *const whats[] = {[COPY] = "copy", [CAST] = "cast", [COMPARE] = "comparison"};
  write_text(w);
  const CUresult code = mf__cu.cuModuleLoadDataEx(&k->module, text.at, NOPTIONS, options, values);
  if (is_final(code)) {
    const char *between = *log == '\0' ? "" : ": ";
    (void)mf__cuda_answer(code, "cuModuleLoadDataEx", &k->refused);
    (void)mf__driver_explain(&k->refused, MF_EDEVICE, "the CUDA driver does not compile the %s kernel%s%.80s",
                             whats[w->kind], between, log);
    return MF_OK;
  }
  const int rc = mf__cuda_answer(code, "cuModuleLoadDataEx", err);
  return rc == MF_OK ? find_ways(w, k, err) : rc;
}

/* Under the lock. */
static int load(mf__cuda_device *d, const wanted *w, mf_error *err) {
  if (find(d, key_of(w)) != NULL) return MF_OK;
  mf__cuda_kernel *k = mf__lasting_alloc(sizeof *k);
  if (k == NULL) return mf__fail(err, MF_ENOMEM, "no memory to keep a kernel");
  k->key = key_of(w);
  int rc = find_grid(d, err);
  if (rc == MF_OK) rc = compile(w, k, err);
  if (rc != MF_OK) {
    free(k);
    return rc;
  }
  k->next = atomic_load_explicit(&d->kernels, memory_order_relaxed);
  atomic_store_explicit(&d->kernels, k, memory_order_release);
  return MF_OK;
}

/* Compiles a kernel once, in relaxed mode: the calls have no part in any capture, and no capture elsewhere may forbid
 * them. */
static int load_once(mf__cuda_device *d, const wanted *w, mf_error *err) {
  int rc = mf__cuda_capture_relax(true, err);
  if (rc != MF_OK) return rc;
  pthread_mutex_lock(&load_lock);
  rc = load(d, w, err);
  pthread_mutex_unlock(&load_lock);
  const int restored = mf__cuda_capture_relax(false, rc == MF_OK ? err : NULL);
  return rc == MF_OK ? restored : rc;
}

static bool has_kernel_calls(void) {
  return mf__cu.cuModuleLoadDataEx != NULL && mf__cu.cuModuleUnload != NULL && mf__cu.cuModuleGetFunction != NULL &&
         mf__cu.cuLaunchKernel != NULL;
}

static int need(mf__cuda_device *d, const wanted *w, const mf__cuda_kernel **out, mf_error *err) {
  if (!has_kernel_calls()) return mf__fail(err, MF_EDEVICE, "this CUDA driver has no calls for kernels");
  const mf__cuda_kernel *k = find(d, key_of(w));
  if (k == NULL) {
    const int rc = load_once(d, w, err);
    if (rc != MF_OK) return rc;
    k = find(d, key_of(w));
  }
  if (k->refused.status != MF_OK && err != NULL) *err = k->refused;
  *out = k;
  return k->refused.status;
}

enum { BLOCK = 256, TILE = 32, LEAST = 16 /* elements along an axis of which a tile is worth while */ };

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
  return (extent - 1) / TILE + 1;
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

/* ${nblocks} of the grid, or as many as fill the device. */
static int launch(const mf__cuda_device *d, CUfunction function, int64_t nblocks, void **params, mf_stream stream,
                  mf_error *err) {
  const unsigned n = nblocks < d->grid ? (unsigned)nblocks : (unsigned)d->grid;
  return MF__ASK(cuLaunchKernel, (function, n, 1, 1, BLOCK, 1, 1, 0, mf__cuda_stream(stream), params, NULL));
}

static int64_t blocks_for(int64_t numel) {
  return (numel - 1) / BLOCK + 1;
}

static int copy(const mf__cuda_device *d, const mf__cuda_kernel *k, const mf__kernel_copy *job, mf_stream stream,
                mf_error *err) {
  mf__kernel_copy sorted = sort_axes(job), tiles = sorted;
  void *params[] = {&sorted};
  const int32_t axis = transposed_axis(&sorted);
  if (axis == 0) return launch(d, k->ways[ALL], blocks_for(job->numel), params, stream, err);
  swap_axes(&tiles, axis);
  const int way = square(&tiles) ? SQUARES : TILES;
  if (!count_tiles(&tiles)) return launch(d, k->ways[ALL], blocks_for(job->numel), params, stream, err);
  params[0] = &tiles;
  return launch(d, k->ways[way], tiles.numel, params, stream, err);
}

int mf__cuda_kernel_copy(const mf__kernel_copy *job, mf_stream stream, mf_error *err) {
  mf__cuda_device *d = mf__cuda_here();
  wanted w = {.kind = COPY};
  const mf__cuda_kernel *k;
  while (w.which < MF__KERNEL_SIZES - 1 && 1 << w.which < job->size) w.which++;
  const int rc = need(d, &w, &k, err);
  return rc != MF_OK || job->numel == 0 ? rc : copy(d, k, job, stream, err);
}

/* Numbers */

/* Has each thread take several elements, which lie side by side on both sides; false where they do not. */
static bool take_some(mf__kernel_copy *job, const wanted *w) {
  const int64_t n = mf__cuda_lanes(w->to, w->from), to = w->to->slot_bits / 8, from = w->from->slot_bits / 8;
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
static int each_number(const mf__kernel_copy *job, const wanted *w, uint32_t *differs, mf_stream stream,
                       mf_error *err) {
  mf__cuda_device *d = mf__cuda_here();
  const mf__cuda_kernel *k;
  if (mf__number_of(w->to) < 0 || mf__number_of(w->from) < 0)
    return mf__fail(err, MF_EDEVICE, "there is no kernel for one of the dtypes");
  const int rc = need(d, w, &k, err);
  if (rc != MF_OK || job->numel == 0) return rc;
  mf__kernel_copy sorted = sort_axes(job);
  const int way = take_some(&sorted, w) ? SOME : ONE;
  void *params[] = {&sorted, &differs};
  return launch(d, k->ways[way], blocks_for(sorted.numel), params, stream, err);
}

int mf__cuda_kernel_cast(const mf__kernel_copy *job, const mf__codec *to, const mf__codec *from, mf_stream stream,
                         mf_error *err) {
  const wanted w = {.kind = CAST, .to = to, .from = from};
  return each_number(job, &w, NULL, stream, err);
}

int mf__cuda_kernel_compare(const mf__kernel_copy *job, const mf__codec *of, uint32_t *differs, mf_stream stream,
                            mf_error *err) {
  const wanted w = {.kind = COMPARE, .to = of, .from = of};
  return each_number(job, &w, differs, stream, err);
}

void mf__cuda_kernels_forget(mf__cuda_device *d) {
  mf__cuda_kernel *k = atomic_exchange(&d->kernels, NULL);
  while (k != NULL) {
    mf__cuda_kernel *next = k->next;
    if (k->module != NULL) (void)mf__cu.cuModuleUnload(k->module);
    free(k);
    k = next;
  }
}
