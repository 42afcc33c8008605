/* plan.c: plans a copy between two layouts as few driver copies: finds what is contiguous on both sides, which axes are
 * a driver's rows and slices, and how many copies the rest takes.
 *
 * Invariant: the strides of the destination are positive and fall from axis to axis, and no two coordinates share a
 * place of it (unless the plan says so), so that the order in which parts are copied does not matter. It must not know
 * the order of streams. */
#include "device/device.h"

#include <string.h>

/* Reverses axes with a negative stride in the destination, on both sides. Of an axis that repeats a place only the last
 * element is copied, because it would stay. */
static void straighten(mf__plan *p, const DLTensor *dst, const int64_t *src_strides) {
  p->ndim = 0;
  for (int32_t i = 0; i < dst->ndim; i++) {
    const int64_t last = dst->shape[i] - 1;
    int64_t d = dst->strides[i];
    int64_t s = src_strides == NULL ? 0 : src_strides[i];
    if (last == 0) continue;
    if (d <= 0) {
      p->dst += d * last * p->size;
      if (p->src != NULL) p->src += s * last * p->size;
      d = -d;
      s = -s;
    }
    if (d == 0) continue;
    p->shape[p->ndim] = dst->shape[i];
    p->dst_strides[p->ndim] = d;
    p->src_strides[p->ndim] = s;
    p->ndim++;
  }
}

/* Places m times s apart and n times k * s, k <= m, lie s apart without a gap: a fill makes them one axis, which has
 * each place once. */
static bool join_overlapping(mf__plan *p) {
  for (int32_t i = 0; i < p->ndim; i++) {
    for (int32_t j = 0; j < p->ndim; j++) {
      const int64_t k = p->dst_strides[j] / p->dst_strides[i];
      if (i == j || p->dst_strides[j] % p->dst_strides[i] != 0 || k > p->shape[i]) continue;
      p->shape[i] += (p->shape[j] - 1) * k;
      p->ndim--;
      p->shape[j] = p->shape[p->ndim];
      p->dst_strides[j] = p->dst_strides[p->ndim];
      return true;
    }
  }
  return false;
}

/* Sorts and joins the axes, and takes what is contiguous out of them. */
static void condense(mf__plan *p) {
  const DLTensor view = {.ndim = p->ndim, .shape = p->shape, .strides = p->dst_strides};
  mf__walk w;
  p->repeats = mf__walk_repeats(&view);
  mf__walk_plan(&w, &view, p->src_strides, false);
  p->ndim = w.ndim;
  p->width = p->size;
  if (w.ndim > 0 && w.strides[0][w.ndim - 1] == 1 && (w.strides[1][w.ndim - 1] == 1 || p->src == NULL))
    p->width = p->size * w.shape[--p->ndim];
  for (int32_t i = 0; i < p->ndim; i++) {
    p->shape[i] = w.shape[i];
    p->dst_strides[i] = w.strides[0][i] * p->size;
    p->src_strides[i] = w.strides[1][i] * p->size;
  }
}

void mf__plan_make(mf__plan *p, const mf_tensor *dst, const mf_tensor *src) {
  p->dst = dst->dl.data;
  p->src = src == NULL ? NULL : src->dl.data;
  p->size = (mf__tensor_bits(dst) + 7) / 8;
  if (mf__is_compact(&dst->dl) && (src == NULL || mf__is_compact(&src->dl))) {
    p->ndim = 0;
    p->repeats = false;
    p->width = mf_tensor_nbytes(dst);
    return;
  }
  straighten(p, &dst->dl, src == NULL ? NULL : src->dl.strides);
  while (src == NULL && join_overlapping(p)) {
  }
  condense(p);
}

static _Atomic int64_t max_pitch = MF__MAX_PITCH;

int64_t mf__pitch_max(void) {
  return atomic_load_explicit(&max_pitch, memory_order_relaxed);
}

void mf__pitch_limit(int64_t nbytes) {
  if (nbytes < mf__pitch_max()) atomic_store_explicit(&max_pitch, nbytes, memory_order_relaxed);
}

static bool is_pitch(int64_t pitch, int64_t width) {
  return pitch >= width && pitch <= mf__pitch_max();
}

static bool is_row_axis(const mf__plan *p, int32_t i) {
  return is_pitch(p->dst_strides[i], p->width) && (p->src == NULL || is_pitch(p->src_strides[i], p->width));
}

static bool is_slice(int64_t slice, int64_t pitch, int64_t height) {
  return slice % pitch == 0 && slice / pitch >= height;
}

static bool is_slice_axis(const mf__plan *p, int32_t i, int32_t row) {
  if (p->src == NULL) return false; /* fills have rows only */
  return is_slice(p->dst_strides[i], p->dst_strides[row], p->shape[row]) &&
         is_slice(p->src_strides[i], p->src_strides[row], p->shape[row]);
}

static int64_t places(const mf__plan *p, int32_t naxes) {
  int64_t n = 1;
  for (int32_t i = 0; i < naxes; i++) n *= p->shape[i];
  return n;
}

/* Finds the rows and slices that cover the most. */
static int64_t best_box(const mf__plan *p, int32_t *row, int32_t *slice) {
  int64_t best = 1;
  *row = *slice = -1;
  for (int32_t i = 0; i < p->ndim; i++) {
    if (!is_row_axis(p, i)) continue;
    if (p->shape[i] > best) {
      best = p->shape[i];
      *row = i;
      *slice = -1;
    }
    for (int32_t j = 0; j < p->ndim; j++) {
      if (j == i || !is_slice_axis(p, j, i) || p->shape[i] * p->shape[j] <= best) continue;
      best = p->shape[i] * p->shape[j];
      *row = i;
      *slice = j;
    }
  }
  return best;
}

int64_t mf__plan_count(const mf__plan *p) {
  int32_t row, slice;
  return places(p, p->ndim) / best_box(p, &row, &slice);
}

/* Calls part for every coordinate of the first naxes axes. */
typedef int (*part_fn)(void *ctx, char *dst, const char *src, mf_error *err);

static int each_part(const mf__plan *p, int32_t naxes, part_fn part, void *ctx, mf_error *err) {
  int64_t index[MF_MAX_NDIM] = {0};
  int64_t dst = 0, src = 0;
  for (;;) {
    int32_t i = naxes - 1;
    const int rc = part(ctx, p->dst + dst, p->src == NULL ? NULL : p->src + src, err);
    if (rc != MF_OK) return rc;
    for (; i >= 0; i--) {
      dst += p->dst_strides[i];
      src += p->src_strides[i];
      if (++index[i] < p->shape[i]) break;
      dst -= p->dst_strides[i] * p->shape[i];
      src -= p->src_strides[i] * p->shape[i];
      index[i] = 0;
    }
    if (i < 0) return MF_OK;
  }
}

static void swap(int64_t *a, int64_t *b) {
  const int64_t t = *a;
  *a = *b;
  *b = t;
}

static void swap_axes(mf__plan *p, int32_t a, int32_t b) {
  swap(&p->shape[a], &p->shape[b]);
  swap(&p->dst_strides[a], &p->dst_strides[b]);
  swap(&p->src_strides[a], &p->src_strides[b]);
}

/* Takes the axes of rows and slices out of the plan, and describes them. */
static void take_box(mf__plan *p, mf__block_copy *box) {
  int32_t row, slice;
  (void)best_box(p, &row, &slice);
  *box = (mf__block_copy){.width = p->width, .height = 1, .depth = 1, .dst_pitch = p->width, .src_pitch = p->width};
  if (row >= 0) {
    swap_axes(p, row, --p->ndim);
    if (slice == p->ndim) slice = row;
    box->height = p->shape[p->ndim];
    box->dst_pitch = p->dst_strides[p->ndim];
    box->src_pitch = p->src_strides[p->ndim];
  }
  box->dst_slice = box->dst_pitch * box->height;
  box->src_slice = box->src_pitch * box->height;
  if (slice >= 0) {
    swap_axes(p, slice, --p->ndim);
    box->depth = p->shape[p->ndim];
    box->dst_slice = p->dst_strides[p->ndim];
    box->src_slice = p->src_strides[p->ndim];
  }
}

typedef struct box_ctx {
  const mf__queue *on;
  mf__block_copy box;
  uint32_t value; /* of a fill */
  int32_t unit;
} box_ctx;

static int copy_box(void *arg, char *dst, const char *src, mf_error *err) {
  box_ctx *c = arg;
  c->box.dst = dst;
  c->box.src = src;
  return c->on->backend->copy(&c->box, c->on->stream, err);
}

int mf__plan_run_boxes(const mf__plan *plan, const mf__queue *on, mf_error *err) {
  mf__plan p = *plan;
  box_ctx c = {.on = on};
  take_box(&p, &c.box);
  return each_part(&p, p.ndim, copy_box, &c, err);
}

/* Kernels */

/* The addresses, pitches and widths that a unit must divide, combined: bits below the unit's are 0. */
static uint64_t alignment_bits(const mf__plan *p) {
  uint64_t all = (uint64_t)p->width | (uintptr_t)p->dst | (uintptr_t)p->src;
  for (int32_t i = 0; i < p->ndim; i++) all |= (uint64_t)p->dst_strides[i] | (uint64_t)p->src_strides[i];
  return all;
}

#define UNIT_MAX 16

static int32_t unit_of(const mf__plan *p) {
  const uint64_t all = alignment_bits(p);
  int32_t unit = UNIT_MAX;
  while (all % (uint64_t)unit != 0) unit /= 2;
  return unit;
}

bool mf__plan_is_aligned(const mf__plan *p) {
  return unit_of(p) == UNIT_MAX;
}

typedef struct kernel_ctx {
  const mf__queue *on;
  mf__kernel_copy job;
} kernel_ctx;

static int copy_by_kernel(void *arg, char *dst, const char *src, mf_error *err) {
  kernel_ctx *c = arg;
  c->job.dst = dst;
  c->job.src = src;
  return c->on->backend->kernel_copy(&c->job, c->on->stream, err);
}

/* Describes the axes from ${first} on. */
static void describe_axes(const mf__plan *p, int32_t first, mf__kernel_copy *job) {
  *job = (mf__kernel_copy){.numel = 1};
  for (int32_t i = first; i < p->ndim; i++) {
    job->shape[job->ndim] = p->shape[i];
    job->dst_strides[job->ndim] = p->dst_strides[i];
    job->src_strides[job->ndim] = p->src_strides[i];
    job->numel *= p->shape[i];
    job->ndim++;
  }
}

/* Describes these, and the units of a run. */
static void describe_kernel(const mf__plan *p, int32_t first, mf__kernel_copy *job) {
  const int32_t size = unit_of(p);
  describe_axes(p, first, job);
  job->size = size;
  if (p->width == size) return;
  job->shape[job->ndim] = p->width / size;
  job->dst_strides[job->ndim] = job->src_strides[job->ndim] = size;
  job->numel *= p->width / size;
  job->ndim++;
}

/* How many axes are left for a loop outside of the kernel. */
static int32_t kernel_first(const mf__plan *p) {
  const int32_t room = MF__KERNEL_AXES - (p->width == unit_of(p) ? 0 : 1);
  return p->ndim > room ? p->ndim - room : 0;
}

int64_t mf__plan_count_kernels(const mf__plan *p) {
  return places(p, kernel_first(p));
}

int mf__plan_run_kernels(const mf__plan *p, const mf__queue *on, mf_error *err) {
  kernel_ctx c = {.on = on};
  const int32_t first = kernel_first(p);
  describe_kernel(p, first, &c.job);
  return each_part(p, first, copy_by_kernel, &c, err);
}

/* Numbers: casts and comparisons */

bool mf__plan_make_numbers(mf__plan *p, const mf_tensor *dst, const mf_tensor *src) {
  const int64_t to = mf__tensor_bits(dst) / 8, from = mf__tensor_bits(src) / 8;
  mf__walk w;
  mf__walk_plan(&w, &dst->dl, src->dl.strides, false);
  *p = (mf__plan){.dst = dst->dl.data, .src = src->dl.data, .size = to, .ndim = w.ndim};
  uint64_t all[2] = {(uintptr_t)p->dst, (uintptr_t)p->src};
  for (int32_t i = 0; i < w.ndim; i++) {
    p->shape[i] = w.shape[i];
    all[0] |= (uint64_t)(p->dst_strides[i] = w.strides[0][i] * to);
    all[1] |= (uint64_t)(p->src_strides[i] = w.strides[1][i] * from);
  }
  return all[0] % (uint64_t)to == 0 && all[1] % (uint64_t)from == 0;
}

typedef struct numbers_ctx {
  const mf__queue *on;
  const mf__numbers *numbers;
  mf__kernel_copy job;
} numbers_ctx;

static int numbers_by_kernel(void *arg, char *dst, const char *src, mf_error *err) {
  numbers_ctx *c = arg;
  const mf__backend *driver = c->on->backend;
  const mf__numbers *n = c->numbers;
  c->job.dst = dst;
  c->job.src = src;
  return n->differs != NULL ? driver->kernel_compare(&c->job, &n->to, n->differs, c->on->stream, err)
                            : driver->kernel_cast(&c->job, &n->to, &n->from, c->on->stream, err);
}

int mf__plan_run_numbers(const mf__plan *p, const mf__numbers *numbers, const mf__queue *on, mf_error *err) {
  const int32_t first = p->ndim > MF__KERNEL_AXES ? p->ndim - MF__KERNEL_AXES : 0;
  numbers_ctx c = {.on = on, .numbers = numbers};
  describe_axes(p, first, &c.job);
  return each_part(p, first, numbers_by_kernel, &c, err);
}

/* Fills */

/* An element as units of a driver's fill. */
typedef struct pattern {
  int32_t unit;
  bool narrow; /* it repeats after one unit */
} pattern;

static uint32_t value_of(const void *slot, int32_t unit) {
  uint32_t value = 0;
  memcpy(&value, slot, (size_t)unit); /* drivers' hosts are little-endian */
  return value;
}

static pattern pattern_of(const mf__plan *p, const void *slot) {
  const unsigned char *bytes = slot;
  const uint64_t all = alignment_bits(p) | (uint64_t)p->size;
  int32_t unit = 4;
  for (int32_t u = 1; u <= 4 && all % (uint64_t)u == 0; u *= 2)
    if (memcmp(bytes, bytes + u, (size_t)(p->size - u)) == 0) return (pattern){u, true};
  while (all % (uint64_t)unit != 0) unit /= 2;
  return (pattern){unit, false};
}

int64_t mf__plan_count_fill(const mf__plan *p, const void *slot) {
  const pattern t = pattern_of(p, slot);
  if (t.narrow) return mf__plan_count(p);
  return p->ndim == 0 ? p->size / t.unit + 63 : INT64_MAX; /* the first element, then doublings */
}

static int fill_box(void *arg, char *dst, const char *src, mf_error *err) {
  box_ctx *c = arg;
  (void)src;
  c->box.dst = dst;
  return c->on->backend->fill(&c->box, c->value, c->unit, c->on->stream, err);
}

static mf__block_copy flat(char *dst, const char *src, int64_t nbytes) {
  return (mf__block_copy){dst, src, nbytes, 1, 1, nbytes, nbytes, nbytes, nbytes};
}

/* No driver fills with more than 4 bytes (CUDA Driver API, "Memory Management", cuMemsetD32Async; HIP documentation,
 * hipMemsetD32Async): fills the first element unit by unit, and then doubles what is filled. */
static int fill_wide(const mf__plan *p, const char *slot, int32_t unit, const mf__queue *on, mf_error *err) {
  int rc = MF_OK;
  for (int64_t at = 0; rc == MF_OK && at < p->size; at += unit) {
    mf__block_copy one = flat(p->dst + at, NULL, unit);
    one.width = 1;
    rc = on->backend->fill(&one, value_of(slot + at, unit), unit, on->stream, err);
  }
  for (int64_t done = p->size; rc == MF_OK && done < p->width;) {
    const int64_t more = done < p->width - done ? done : p->width - done;
    const mf__block_copy again = flat(p->dst + done, p->dst, more);
    rc = on->backend->copy(&again, on->stream, err);
    done += more;
  }
  return rc;
}

int mf__plan_run_fill(const mf__plan *plan, const void *slot, const mf__queue *on, mf_error *err) {
  const pattern t = pattern_of(plan, slot);
  if (!t.narrow) return fill_wide(plan, slot, t.unit, on, err);
  mf__plan p = *plan;
  box_ctx c = {.on = on, .value = value_of(slot, t.unit), .unit = t.unit};
  take_box(&p, &c.box);
  c.box.width /= t.unit;
  return each_part(&p, p.ndim, fill_box, &c, err);
}

/* Copies the first place of an axis, with all axes behind it, to its other places. */
static int spread(const mf__plan *p, int32_t axis, const mf__queue *on, mf_error *err) {
  mf__plan q = {.dst = p->dst + p->dst_strides[axis], .src = p->dst, .size = p->size, .width = p->size};
  for (int32_t i = axis; i < p->ndim; i++) {
    q.shape[q.ndim] = p->shape[i] - (i == axis);
    q.dst_strides[q.ndim] = p->dst_strides[i];
    q.src_strides[q.ndim++] = i == axis ? 0 : p->dst_strides[i];
  }
  return mf__plan_run_kernels(&q, on, err);
}

/* Fills the first element, and spreads it axis by axis, so that no kernel reads what it writes. */
int mf__plan_run_fill_kernels(const mf__plan *plan, const void *slot, const mf__queue *on, mf_error *err) {
  mf__plan first = *plan, p = *plan;
  first.ndim = 0;
  first.width = p.size;
  if (p.width > p.size) {
    p.shape[p.ndim] = p.width / p.size;
    p.dst_strides[p.ndim++] = p.size;
  }
  /* Ask for the kernel before anything is queued: where there is none, the caller goes another way, or refuses. */
  const mf__kernel_copy none = {.size = unit_of(&p)};
  int rc = on->backend->kernel_copy(&none, on->stream, err);
  if (rc == MF_OK) rc = mf__plan_run_fill(&first, slot, on, err);
  for (int32_t axis = p.ndim - 1; rc == MF_OK && axis >= 0; axis--) rc = spread(&p, axis, on, err);
  return rc;
}
