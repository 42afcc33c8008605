/* cuda_kernel.c: copies by a kernel what no copy call of the driver can express. The driver compiles the kernel from
 * the text below. It must not know when a kernel is the better way.
 *
 * The text is PTX 6.0 for the oldest GPUs that drivers of today have, so that any driver compiles it for any of its
 * GPUs (PTX ISA, "Release Notes"). Each element size has a module, which is made when it is first needed. */
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

#define KERNEL(registers, move)                                                                                  \
  ".version 6.0\n"                                                                                               \
  ".target sm_50\n"                                                                                              \
  ".address_size 64\n"                                                                                           \
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

#define SCALAR(type, register)                                                                                   \
  KERNEL("  .reg ." register " %value;\n",                                                                       \
         "  ld.global." type " %value, [%from];\n"                                                               \
         "  st.global." type " [%to], %value;\n")

static const char *const texts[MF__KERNEL_SIZES] = {
    SCALAR("u8", "u16"),
    SCALAR("u16", "u16"),
    SCALAR("u32", "u32"),
    SCALAR("u64", "u64"),
    KERNEL("  .reg .u64 %value, %second;\n",
           "  ld.global.v2.u64 {%value, %second}, [%from];\n"
           "  st.global.v2.u64 [%to], {%value, %second};\n"),
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

/* The axis along which the destination is closest comes first, so that neighbouring threads write neighbours. */
static int launch(CUfunction function, const mf__kernel_copy *job, int32_t grid, CUstream stream, mf_error *err) {
  enum { BLOCK = 256 };
  mf__kernel_copy sorted = *job;
  void *params[] = {&sorted};
  int32_t order[MF__KERNEL_AXES];
  const int64_t blocks = (job->numel - 1) / BLOCK + 1;
  const unsigned n = blocks < grid ? (unsigned)blocks : (unsigned)grid;
  (void)mf__axes_sort(job->ndim, job->dst_strides, NULL, order);
  for (int32_t i = 0; i < job->ndim; i++) {
    const int32_t from = order[job->ndim - 1 - i];
    sorted.shape[i] = job->shape[from];
    sorted.dst_strides[i] = job->dst_strides[from];
    sorted.src_strides[i] = job->src_strides[from];
  }
  return MF__ASK(cuLaunchKernel, (function, n, 1, 1, BLOCK, 1, 1, 0, stream, params, NULL));
}

int mf__cuda_kernel_copy(const mf__kernel_copy *job, mf_stream stream, mf_error *err) {
  mf__cuda_device *d = mf__cuda_here();
  int32_t which = 0;
  while (which < MF__KERNEL_SIZES - 1 && 1 << which < job->size) which++;
  if (!has_kernel_calls()) return mf__fail(err, MF_EDEVICE, "this CUDA driver has no calls for kernels");
  CUfunction function = atomic_load_explicit(&d->kernels[which], memory_order_acquire);
  if (function == NULL) {
    const int rc = load_once(d, which, err);
    if (rc != MF_OK) return rc;
    function = atomic_load_explicit(&d->kernels[which], memory_order_acquire);
  }
  return job->numel == 0 ? MF_OK : launch(function, job, d->grid, mf__cuda_stream(stream), err);
}

void mf__cuda_kernels_forget(mf__cuda_device *d) {
  for (int32_t i = 0; i < MF__KERNEL_SIZES; i++) {
    if (atomic_exchange(&d->kernels[i], NULL) != NULL) (void)mf__cu.cuModuleUnload(d->modules[i]);
    d->modules[i] = NULL;
    d->refused[i] = (mf_error){.status = MF_OK};
  }
}
