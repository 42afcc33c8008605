/* cuda_kernel.c: copies by a kernel what no copy call of the driver can express. The driver compiles the kernel from
 * the text below. It must not know when a kernel is the better way.
 *
 * The text is PTX 6.0 for the oldest GPUs that drivers of today have, so that any driver compiles it for any of its
 * GPUs (PTX ISA, "Release Notes"). Each element size has a module of two kernels, which is made when it is first
 * needed. */
#include "driver/cuda.h"

/* The kernel's one parameter is the job itself; the text below has its offsets. */
#define AT(member, offset) _Static_assert(offsetof(mf__kernel_copy, member) == (offset), "the kernel's text")
AT(dst, 0);
AT(src, 8);
AT(numel, 16);
AT(ndim, 24);
AT(shape, 32);
AT(dst_strides, 96);
AT(src_strides, 160);
_Static_assert(sizeof(mf__kernel_copy) == 224, "the kernel's text");

/* Goes through the elements thread by thread, a grid at a time. Axis 0 of the job is the fastest here. The index is
 * split by divisions, one less than there are axes; in 32 bits where the count allows, which is several times
 * faster. */
#define WALK(w, bits, move)                                                                                      \
  "  mul.lo.u32 %step, %blocks, %width;\n"                                                                       \
  "  cvt.u" bits ".u32 %step" w ", %step;\n"                                                                     \
  "  mad.lo.u32 %first, %block, %width, %thread;\n"                                                              \
  "  cvt.u" bits ".u32 %i" w ", %first;\n"                                                                       \
  "next" w ":\n"                                                                                                 \
  "  setp.ge.u" bits " %p, %i" w ", %numel" w ";\n"                                                              \
  "  @%p bra done;\n"                                                                                            \
  "  mov.u64 %to, %dst;\n"                                                                                       \
  "  mov.u64 %from, %src;\n"                                                                                     \
  "  mov.u" bits " %left" w ", %i" w ";\n"                                                                       \
  "  mov.u64 %at, job;\n"                                                                                        \
  "  mov.u32 %axis, 1;\n"                                                                                        \
  "axis" w ":\n"                                                                                                 \
  "  ld.param.u64 %todo, [%at+96];\n"                                                                            \
  "  ld.param.u64 %fromdo, [%at+160];\n"                                                                         \
  "  setp.ge.u32 %p, %axis, %ndim;\n"                                                                            \
  "  @%p bra last" w ";\n"                                                                                       \
  "  ld.param.u" bits " %extent" w ", [%at+32];\n"                                                               \
  "  div.u" bits " %rest" w ", %left" w ", %extent" w ";\n"                                                      \
  "  mul.lo.u" bits " %whole" w ", %rest" w ", %extent" w ";\n"                                                  \
  "  sub.u" bits " %index" w ", %left" w ", %whole" w ";\n"                                                      \
  "  cvt.u64.u" bits " %wide, %index" w ";\n"                                                                    \
  "  mad.lo.u64 %to, %wide, %todo, %to;\n"                                                                       \
  "  mad.lo.u64 %from, %wide, %fromdo, %from;\n"                                                                 \
  "  mov.u" bits " %left" w ", %rest" w ";\n"                                                                    \
  "  add.u32 %axis, %axis, 1;\n"                                                                                 \
  "  add.u64 %at, %at, 8;\n"                                                                                     \
  "  bra axis" w ";\n"                                                                                           \
  "last" w ":\n"                                                                                                 \
  "  cvt.u64.u" bits " %wide, %left" w ";\n"                                                                     \
  "  mad.lo.u64 %to, %wide, %todo, %to;\n"                                                                       \
  "  mad.lo.u64 %from, %wide, %fromdo, %from;\n" move                                                            \
  "  add.u" bits " %i" w ", %i" w ", %step" w ";\n"                                                              \
  "  bra next" w ";\n"

#define INDICES(w, bits)                                                                                         \
  "  .reg .u" bits " %i" w ", %step" w ", %numel" w ", %left" w ";\n" \
  "  .reg .u" bits " %extent" w ", %rest" w ", %whole" w ", %index" w ";\n"

#define HEAD ".version 6.0\n.target sm_50\n.address_size 64\n"

#define KERNEL(registers, move)                                                                                  \
  ".visible .entry mf_copy(.param .align 8 .b8 job[224])\n"                                                      \
  "{\n"                                                                                                          \
  "  .reg .pred %p;\n"                                                                                           \
  "  .reg .u32 %ndim, %axis, %step, %first, %block, %blocks, %width, %thread;\n"                                 \
  "  .reg .u64 %dst, %src, %to, %from, %at, %todo, %fromdo, %wide;\n"                                            \
  INDICES("n", "32") INDICES("w", "64")                                                                          \
  registers                                                                                                      \
  "  ld.param.u64 %dst, [job];\n"                                                                                \
  "  ld.param.u64 %src, [job+8];\n"                                                                              \
  "  ld.param.u64 %numelw, [job+16];\n"                                                                          \
  "  ld.param.u32 %ndim, [job+24];\n"                                                                            \
  "  mov.u32 %block, %ctaid.x;\n"                                                                                \
  "  mov.u32 %blocks, %nctaid.x;\n"                                                                              \
  "  mov.u32 %width, %ntid.x;\n"                                                                                 \
  "  mov.u32 %thread, %tid.x;\n"                                                                                 \
  "  setp.ge.u64 %p, %numelw, 2147483648;\n"                                                                     \
  "  @%p bra wide;\n"                                                                                            \
  "  cvt.u32.u64 %numeln, %numelw;\n"                                                                            \
  WALK("n", "32", move)                                                                                          \
  "wide:\n"                                                                                                      \
  WALK("w", "64", move)                                                                                          \
  "done:\n"                                                                                                      \
  "  ret;\n"                                                                                                     \
  "}\n"

/* Axis 0 is the destination's fastest and axis 1 the source's: a block takes tiles of 32 by 32 elements of these two
 * through shared memory, so that neighbouring threads read neighbours and write neighbours. A row of the tile is padded
 * by an element, and an element has 4 bytes at least, so that no two threads of a warp meet in a bank of shared memory
 * (CUDA C++ Best Practices Guide, "Shared Memory in Matrix Multiplication (C=AAT)"). numel is the number of tiles; of
 * these, and along an axis of elements, there are fewer than 2^31. The axes behind the two are split as above, once for
 * a tile. */
#define ROW_IN(load, keep)                                                                                       \
  "  setp.lt.and.u32 %q, %row, %n0, %p;\n"                                                                       \
  "  @%q ld.global." load ", [%from];\n"                                                                         \
  "  @%q st.shared." keep ";\n"                                                                                  \
  "  add.u32 %row, %row, 8;\n"                                                                                   \
  "  add.u32 %place, %place, %putdo;\n"                                                                          \
  "  add.u64 %from, %from, %fromdo8;\n"

#define ROW_OUT(take, store)                                                                                     \
  "  setp.lt.and.u32 %q, %row, %n1, %p;\n"                                                                       \
  "  @%q ld.shared." take ", [%place];\n"                                                                        \
  "  @%q st.global." store ";\n"                                                                                 \
  "  add.u32 %row, %row, 8;\n"                                                                                   \
  "  add.u32 %place, %place, %getdo;\n"                                                                          \
  "  add.u64 %to, %to, %todo8;\n"

#define TRANSPOSE(slot, nbytes, registers, load, keep, take, store)                                              \
  ".visible .entry mf_transpose(.param .align 8 .b8 job[224])\n"                                                 \
  "{\n"                                                                                                          \
  "  .shared .align 16 .b8 elements[" nbytes "];\n"                                                              \
  "  .reg .pred %p, %q;\n"                                                                                       \
  "  .reg .u32 %tiles, %ndim, %axis, %tile, %step, %n0, %n1, %tiles0, %tiles1, %at0, %at1;\n"                    \
  "  .reg .u32 %left, %rest, %whole, %extent;\n" \
  "  .reg .u32 %index, %thread, %x, %y, %row, %column, %slot, %base, %put, %putdo, %get, %getdo, %place;\n"      \
  "  .reg .u64 %dst, %src, %to, %from, %todo, %todo0, %todo1, %todo8, %at, %wide;\n"                             \
  "  .reg .u64 %fromdo, %fromdo0, %fromdo1, %fromdo8;\n" \
  registers                                                                                                      \
  "  ld.param.u64 %dst, [job];\n"                                                                                \
  "  ld.param.u64 %src, [job+8];\n"                                                                              \
  "  ld.param.u32 %tiles, [job+16];\n"                                                                           \
  "  ld.param.u32 %ndim, [job+24];\n"                                                                            \
  "  ld.param.u32 %n0, [job+32];\n"                                                                              \
  "  ld.param.u32 %n1, [job+40];\n"                                                                              \
  "  ld.param.u64 %todo0, [job+96];\n"                                                                           \
  "  ld.param.u64 %todo1, [job+104];\n"                                                                          \
  "  ld.param.u64 %fromdo0, [job+160];\n"                                                                        \
  "  ld.param.u64 %fromdo1, [job+168];\n"                                                                        \
  "  shl.b64 %todo8, %todo1, 3;\n"                                                                               \
  "  shl.b64 %fromdo8, %fromdo0, 3;\n"                                                                           \
  "  add.u32 %tiles0, %n0, 31;\n"                                                                                \
  "  shr.u32 %tiles0, %tiles0, 5;\n"                                                                             \
  "  add.u32 %tiles1, %n1, 31;\n"                                                                                \
  "  shr.u32 %tiles1, %tiles1, 5;\n"                                                                             \
  "  mov.u32 %thread, %tid.x;\n"                                                                                 \
  "  and.b32 %x, %thread, 31;\n"                                                                                 \
  "  shr.u32 %y, %thread, 5;\n"                                                                                  \
  "  mov.u32 %base, elements;\n"                                                                                 \
  "  mov.u32 %slot, " slot ";\n"                                                                                 \
  "  mad.lo.u32 %put, %y, 33, %x;\n"                                                                             \
  "  mad.lo.u32 %put, %put, %slot, %base;\n"                                                                     \
  "  mul.lo.u32 %putdo, %slot, 264;\n"                                                                           \
  "  mad.lo.u32 %get, %x, 33, %y;\n"                                                                             \
  "  mad.lo.u32 %get, %get, %slot, %base;\n"                                                                     \
  "  mul.lo.u32 %getdo, %slot, 8;\n"                                                                             \
  "  mov.u32 %tile, %ctaid.x;\n"                                                                                 \
  "  mov.u32 %step, %nctaid.x;\n"                                                                                \
  "next:\n"                                                                                                      \
  "  setp.ge.u32 %p, %tile, %tiles;\n"                                                                           \
  "  @%p bra done;\n"                                                                                            \
  "  div.u32 %rest, %tile, %tiles0;\n"                                                                           \
  "  mul.lo.u32 %whole, %rest, %tiles0;\n"                                                                       \
  "  sub.u32 %at0, %tile, %whole;\n"                                                                             \
  "  shl.b32 %at0, %at0, 5;\n"                                                                                   \
  "  div.u32 %left, %rest, %tiles1;\n"                                                                           \
  "  mul.lo.u32 %whole, %left, %tiles1;\n"                                                                       \
  "  sub.u32 %at1, %rest, %whole;\n"                                                                             \
  "  shl.b32 %at1, %at1, 5;\n"                                                                                   \
  "  mov.u64 %to, %dst;\n"                                                                                       \
  "  mov.u64 %from, %src;\n"                                                                                     \
  "  mov.u64 %at, job;\n"                                                                                        \
  "  mov.u32 %axis, 2;\n"                                                                                        \
  "axis:\n"                                                                                                      \
  "  setp.ge.u32 %p, %axis, %ndim;\n"                                                                            \
  "  @%p bra ready;\n"                                                                                           \
  "  ld.param.u32 %extent, [%at+48];\n"                                                                          \
  "  ld.param.u64 %todo, [%at+112];\n"                                                                           \
  "  ld.param.u64 %fromdo, [%at+176];\n"                                                                         \
  "  div.u32 %rest, %left, %extent;\n"                                                                           \
  "  mul.lo.u32 %whole, %rest, %extent;\n"                                                                       \
  "  sub.u32 %index, %left, %whole;\n"                                                                           \
  "  cvt.u64.u32 %wide, %index;\n"                                                                               \
  "  mad.lo.u64 %to, %wide, %todo, %to;\n"                                                                       \
  "  mad.lo.u64 %from, %wide, %fromdo, %from;\n"                                                                 \
  "  mov.u32 %left, %rest;\n"                                                                                    \
  "  add.u32 %axis, %axis, 1;\n"                                                                                 \
  "  add.u64 %at, %at, 8;\n"                                                                                     \
  "  bra axis;\n"                                                                                                \
  "ready:\n"                                                                                                     \
  "  add.u32 %column, %at1, %x;\n"                                                                               \
  "  add.u32 %row, %at0, %y;\n"                                                                                  \
  "  cvt.u64.u32 %wide, %column;\n"                                                                              \
  "  mad.lo.u64 %from, %wide, %fromdo1, %from;\n"                                                                \
  "  cvt.u64.u32 %wide, %row;\n"                                                                                 \
  "  mad.lo.u64 %from, %wide, %fromdo0, %from;\n"                                                                \
  "  mov.u32 %place, %put;\n"                                                                                    \
  "  setp.lt.u32 %p, %column, %n1;\n"                                                                            \
  ROW_IN(load, keep) ROW_IN(load, keep) ROW_IN(load, keep) ROW_IN(load, keep)                                    \
  "  bar.sync 0;\n"                                                                                              \
  "  add.u32 %column, %at0, %x;\n"                                                                               \
  "  add.u32 %row, %at1, %y;\n"                                                                                  \
  "  cvt.u64.u32 %wide, %column;\n"                                                                              \
  "  mad.lo.u64 %to, %wide, %todo0, %to;\n"                                                                      \
  "  cvt.u64.u32 %wide, %row;\n"                                                                                 \
  "  mad.lo.u64 %to, %wide, %todo1, %to;\n"                                                                      \
  "  mov.u32 %place, %get;\n"                                                                                    \
  "  setp.lt.u32 %p, %column, %n0;\n"                                                                            \
  ROW_OUT(take, store) ROW_OUT(take, store) ROW_OUT(take, store) ROW_OUT(take, store)                            \
  "  bar.sync 0;\n"                                                                                              \
  "  add.u32 %tile, %tile, %step;\n"                                                                             \
  "  bra next;\n"                                                                                                \
  "done:\n"                                                                                                      \
  "  ret;\n"                                                                                                     \
  "}\n"

#define SCALAR(type, register, slot, nbytes)                                                                     \
  HEAD                                                                                                           \
  KERNEL("  .reg ." register " %value;\n",                                                                       \
         "  ld.global." type " %value, [%from];\n"                                                               \
         "  st.global." type " [%to], %value;\n")                                                                \
  TRANSPOSE(slot, nbytes, "  .reg ." register " %value;\n", type " %value", type " [%place], %value",            \
            type " %value", type " [%to], %value")

static const char *const texts[MF__KERNEL_SIZES] = {
    SCALAR("u8", "u16", "4", "4224"),
    SCALAR("u16", "u16", "4", "4224"),
    SCALAR("u32", "u32", "4", "4224"),
    SCALAR("u64", "u64", "8", "8448"),
    HEAD
    KERNEL("  .reg .u64 %value, %second;\n",
           "  ld.global.v2.u64 {%value, %second}, [%from];\n"
           "  st.global.v2.u64 [%to], {%value, %second};\n")
    TRANSPOSE("16", "16896", "  .reg .u64 %value, %second;\n", "v2.u64 {%value, %second}",
              "v2.u64 [%place], {%value, %second}", "v2.u64 {%value, %second}", "v2.u64 [%to], {%value, %second}"),
};

/* Guards the making of kernels; no lock of the runtime is taken under it. */
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;

/* Whether the driver will answer the same next time: it cannot compile at all, or not this text, or not for this GPU
 * (CUDA Driver API, "Data types", CUresult). */
static bool is_final(CUresult code) {
  return code == CUDA_ERROR_INVALID_IMAGE || code == CUDA_ERROR_NO_BINARY_FOR_GPU ||
         (code >= CUDA_ERROR_INVALID_PTX && code <= CUDA_ERROR_JIT_COMPILATION_DISABLED) ||
         code == CUDA_ERROR_NOT_SUPPORTED;
}

static int find_function(mf__cuda_device *d, int32_t which, CUmodule module, mf_error *err) {
  CUfunction function = NULL;
  int rc = MF_OK;
  if (d->grid == 0) {
    enum { PER_PROCESSOR = 16 };
    int processors = 0;
    rc = MF__ASK(cuDeviceGetAttribute, (&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, d->device));
    d->grid = processors * PER_PROCESSOR;
  }
  if (rc == MF_OK) rc = MF__ASK(cuModuleGetFunction, (&function, module, "mf_copy"));
  if (rc == MF_OK) rc = MF__ASK(cuModuleGetFunction, (&d->transposes[which], module, "mf_transpose"));
  if (rc != MF_OK) {
    (void)mf__cu.cuModuleUnload(module);
    return rc;
  }
  d->modules[which] = module;
  atomic_store_explicit(&d->kernels[which], function, memory_order_release);
  return MF_OK;
}

/* Compiles a kernel, under the lock. */
static int load(mf__cuda_device *d, int32_t which, mf_error *err) {
  enum { NOPTIONS = 2, LOG_NBYTES = 1024 };
  char log[LOG_NBYTES] = "";
  CUjit_option options[NOPTIONS] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[NOPTIONS] = {log, (void *)(uintptr_t)sizeof log};
  mf_error own;
  CUmodule module = NULL;
  if (err == NULL) err = &own;
  if (d->refused[which].status != MF_OK) {
    *err = d->refused[which];
    return err->status;
  }
  const CUresult code = mf__cu.cuModuleLoadDataEx(&module, texts[which], NOPTIONS, options, values);
  const int rc = mf__cuda_answer(code, "cuModuleLoadDataEx", err);
  if (is_final(code)) {
    const char *between = *log == '\0' ? "" : ": ";
    (void)mf__driver_explain(err, MF_EDEVICE, "the CUDA driver does not compile the copy kernel%s%.80s", between, log);
    d->refused[which] = *err;
    return MF_EDEVICE;
  }
  return rc == MF_OK ? find_function(d, which, module, err) : rc;
}

/* Compiles a kernel once, in relaxed mode: the calls have no part in any capture, and no capture elsewhere may forbid
 * them. */
static int load_once(mf__cuda_device *d, int32_t which, mf_error *err) {
  int rc = mf__cuda_capture_relax(true, err);
  if (rc != MF_OK) return rc;
  pthread_mutex_lock(&load_lock);
  if (atomic_load_explicit(&d->kernels[which], memory_order_relaxed) == NULL) rc = load(d, which, err);
  pthread_mutex_unlock(&load_lock);
  const int restored = mf__cuda_capture_relax(false, rc == MF_OK ? err : NULL);
  return rc == MF_OK ? restored : rc;
}

static bool has_kernel_calls(void) {
  return mf__cu.cuModuleLoadDataEx != NULL && mf__cu.cuModuleUnload != NULL && mf__cu.cuModuleGetFunction != NULL &&
         mf__cu.cuLaunchKernel != NULL;
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

/* Makes the job one of tiles. False where their number or an extent has more than 31 bits. */
static bool tile(mf__kernel_copy *job, int32_t axis) {
  int64_t *const lists[] = {job->shape, job->dst_strides, job->src_strides};
  for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
    const int64_t first = lists[k][1];
    lists[k][1] = lists[k][axis];
    lists[k][axis] = first;
  }
  int64_t n = 1;
  for (int32_t i = 0; i < job->ndim; i++) {
    if (job->shape[i] > INT32_MAX) return false;
    n *= i < 2 ? tiles_along(job->shape[i]) : job->shape[i];
    if (n > INT32_MAX) return false;
  }
  job->numel = n;
  return true;
}

static int launch(mf__cuda_device *d, int32_t which, const mf__kernel_copy *job, CUstream stream, mf_error *err) {
  mf__kernel_copy sorted = sort_axes(job), tiles = sorted;
  const int32_t axis = transposed_axis(&sorted);
  const bool tiled = axis != 0 && tile(&tiles, axis);
  void *params[] = {tiled ? &tiles : &sorted};
  CUfunction function = tiled ? d->transposes[which] : atomic_load_explicit(&d->kernels[which], memory_order_relaxed);
  const int64_t blocks = tiled ? tiles.numel : (job->numel - 1) / BLOCK + 1;
  const unsigned n = blocks < d->grid ? (unsigned)blocks : (unsigned)d->grid;
  return MF__ASK(cuLaunchKernel, (function, n, 1, 1, BLOCK, 1, 1, 0, stream, params, NULL));
}

int mf__cuda_kernel_copy(const mf__kernel_copy *job, mf_stream stream, mf_error *err) {
  mf__cuda_device *d = mf__cuda_here();
  int32_t which = 0;
  while (which < MF__KERNEL_SIZES - 1 && 1 << which < job->size) which++;
  if (!has_kernel_calls()) return mf__fail(err, MF_EDEVICE, "this CUDA driver has no calls for kernels");
  if (atomic_load_explicit(&d->kernels[which], memory_order_acquire) == NULL) {
    const int rc = load_once(d, which, err);
    if (rc != MF_OK) return rc;
  }
  return job->numel == 0 ? MF_OK : launch(d, which, job, mf__cuda_stream(stream), err);
}

void mf__cuda_kernels_forget(mf__cuda_device *d) {
  for (int32_t i = 0; i < MF__KERNEL_SIZES; i++) {
    if (atomic_exchange(&d->kernels[i], NULL) != NULL) (void)mf__cu.cuModuleUnload(d->modules[i]);
    d->modules[i] = NULL;
    d->refused[i] = (mf_error){.status = MF_OK};
  }
}
