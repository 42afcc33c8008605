/* cuda_kernel.c: has the CUDA driver compile and launch kernels, which do what no call of it can express: copies of any
 * layout, casts, comparisons. cuda_text.c and cuda_number.c have their texts. It must not know when a kernel is the
 * better way. */
#include "driver/cuda.h"

static int32_t count_ways(const mf__kernel_wanted *w) {
  return w->kind == MF__COPIES && w->which < 2 ? 3 : 2;
}

static const char *const names[][MF__NWAYS] = {
    [MF__COPIES] = {"mf_copy", "mf_transpose", "mf_transpose_words"},
    [MF__CASTS] = {"mf_one", "mf_some"},
    [MF__COMPARES] = {"mf_one", "mf_some"},
};

static mf__cuda_text text; /* one kernel is made at a time */

static void write_text(const mf__kernel_wanted *w) {
  if (w->kind == MF__COPIES) mf__cuda_text_copy(&text, w->which);
  if (w->kind == MF__CASTS) mf__cuda_text_cast(&text, w->to, w->from);
  if (w->kind == MF__COMPARES) mf__cuda_text_compare(&text, w->to);
}

/* Whether the driver will answer the same next time: it cannot compile at all, or not this text, or not for this GPU
 * (CUDA Driver API, "Data types", CUresult). */
static bool is_final(CUresult code) {
  return code == CUDA_ERROR_INVALID_IMAGE || code == CUDA_ERROR_NO_BINARY_FOR_GPU ||
         (code >= CUDA_ERROR_INVALID_PTX && code <= CUDA_ERROR_JIT_COMPILATION_DISABLED) ||
         code == CUDA_ERROR_NOT_SUPPORTED;
}

static int find_grid(mf_error *err) {
  enum { PER_PROCESSOR = 16 };
  mf__cuda_device *d = mf__cuda_here();
  int processors = 0;
  if (d->grid != 0) return MF_OK;
  const int rc = MF__ASK(cuDeviceGetAttribute, (&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, d->device));
  d->grid = processors * PER_PROCESSOR;
  return rc;
}

static void unload(void *module) {
  (void)mf__cu.cuModuleUnload(module);
}

static int find_ways(const mf__kernel_wanted *w, mf__kernel *k, mf_error *err) {
  int rc = MF_OK;
  for (int32_t i = 0; i < count_ways(w) && rc == MF_OK; i++) {
    CUfunction way = NULL;
    rc = MF__ASK(cuModuleGetFunction, (&way, k->module, names[w->kind][i]));
    k->ways[i] = way;
  }
  if (rc != MF_OK) unload(k->module);
  return rc;
}

/* Compiles a kernel; MF_OK also where the driver never will, which ${k} says then. */
static int compile(const mf__kernel_wanted *w, mf__kernel *k, mf_error *err) {
  enum { NOPTIONS = 2, LOG_NBYTES = 1024 };
  char log[LOG_NBYTES] = "";
  CUjit_option options[NOPTIONS] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[NOPTIONS] = {log, (void *)(uintptr_t)sizeof log};
  write_text(w);
  CUmodule module = NULL;
  const CUresult code = mf__cu.cuModuleLoadDataEx(&module, text.at, NOPTIONS, options, values);
  if (is_final(code)) {
    const char *between = *log == '\0' ? "" : ": ";
    (void)mf__cuda_answer(code, "cuModuleLoadDataEx", &k->refused);
    (void)mf__driver_explain(&k->refused, MF_EDEVICE, "the CUDA driver does not compile the %s kernel%s%.80s",
                             mf__kernel_name(w->kind), between, log);
    return MF_OK;
  }
  const int rc = mf__cuda_answer(code, "cuModuleLoadDataEx", err);
  k->module = module;
  return rc == MF_OK ? find_ways(w, k, err) : rc;
}

static int make(const mf__kernel_wanted *w, mf__kernel *k, mf_error *err) {
  const int rc = find_grid(err);
  return rc == MF_OK ? compile(w, k, err) : rc;
}

static int open_calls(mf_error *err) {
  if (mf__cu.cuModuleLoadDataEx != NULL && mf__cu.cuModuleUnload != NULL && mf__cu.cuModuleGetFunction != NULL &&
      mf__cu.cuLaunchKernel != NULL)
    return MF_OK;
  return mf__fail(err, MF_EDEVICE, "this CUDA driver has no calls for kernels");
}

static mf__kernels *here(void) {
  return &mf__cuda_here()->kernels;
}

static int launch(void *way, int64_t nblocks, void **params, mf_stream stream, mf_error *err) {
  const int32_t grid = mf__cuda_here()->grid;
  const unsigned n = nblocks < grid ? (unsigned)nblocks : (unsigned)grid;
  return MF__ASK(cuLaunchKernel,
                 (way, n, 1, 1, MF__KERNEL_THREADS, 1, 1, 0, mf__cuda_stream(stream), params, NULL));
}

const mf__compiler mf__cuda_compiler = {open_calls, here,   mf__cuda_capture_relax, mf__cuda_stream_capture,
                                       make,       launch, unload};

int mf__cuda_kernel_copy(const mf__kernel_copy *job, mf_stream stream, mf_error *err) {
  return mf__kernel_copy_by(&mf__cuda_compiler, job, stream, err);
}

int mf__cuda_kernel_cast(const mf__kernel_copy *job, const mf__codec *to, const mf__codec *from, mf_stream stream,
                         mf_error *err) {
  return mf__kernel_cast_by(&mf__cuda_compiler, job, to, from, stream, err);
}

int mf__cuda_kernel_compare(const mf__kernel_copy *job, const mf__codec *of, uint32_t *differs, mf_stream stream,
                            mf_error *err) {
  return mf__kernel_compare_by(&mf__cuda_compiler, job, of, differs, stream, err);
}
