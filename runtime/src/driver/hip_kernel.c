/* hip_kernel.c: has hiprtc compile kernels, where that library is there, and the HIP runtime launch them. hip_text.c
 * has their texts. It must not know when a kernel is the better way.
 *
 * Only that hiprtc is absent means that there are no kernels, and the caller finds another way: whatever else fails is
 * told. */
#include "driver/hip.h"

#include <stdlib.h>

mf__hiprtc_table mf__hiprtc;

static mf__kernels kernels[MF__MAX_ORDINALS];
static mf__hip_text text; /* one kernel is made at a time */

/* The library */

static const mf__symbol symbols[] = {
#define SYMBOL(result, name, params) {#name, 0, false, offsetof(mf__hiprtc_table, name)},
    MF__HIPRTC_REQUIRED(SYMBOL)
#undef SYMBOL
};

static int start(mf__driver *driver, mf_error *err) {
  const mf__symbols wanted = {symbols, sizeof symbols / sizeof *symbols, mf__driver_symbol, driver->library};
  return mf__driver_fill(driver, &wanted, &mf__hiprtc, err);
}

/* ROCm 5.2 has it inside of the runtime. */
static const char *const files[] = {MF__FILE("libhiprtc.so.7", "hiprtc0700.dll"),
                                    MF__FILE("libhiprtc.so.6", "hiprtc0600.dll"),
                                    MF__FILE("libhiprtc.so.5", "hiprtc0507.dll"),
                                    MF__FILE("libhiprtc.so", NULL),
                                    MF__FILE("libamdhip64.so.5", NULL), NULL};
static mf__driver hiprtc = MF__DRIVER("hiprtc", "rocm", "MOONFERRY_HIPRTC_LIBRARY", files, start);

static bool has_kernel_calls(void) {
  return mf__hip.hipModuleLoadData != NULL && mf__hip.hipModuleUnload != NULL &&
         mf__hip.hipModuleGetFunction != NULL && mf__hip.hipModuleLaunchKernel != NULL;
}

static int open_library(mf_error *err) {
  if (!has_kernel_calls()) return mf__fail(err, MF_EDEVICE, "this HIP runtime has no calls for kernels");
  int rc = mf__driver_open(&hiprtc, err);
  if (rc == MF_OK || hiprtc.absent) return rc;
  if (err != NULL) err->status = MF_EDRIVER;
  return MF_EDRIVER;
}

/* Compiling */

enum { HIPRTC_ERROR_OUT_OF_MEMORY = 1 };

static int answer(hiprtcResult code, const char *call, mf_error *err) {
  if (code == 0) return MF_OK;
  const char *said = mf__hiprtc.hiprtcGetErrorString(code);
  return mf__fail_driver(err, code == HIPRTC_ERROR_OUT_OF_MEMORY ? MF_ENOMEM : MF_EDRIVER, code, call,
                         said != NULL ? said : "unknown to this hiprtc");
}

#define ASK(name, arguments) answer(mf__hiprtc.name arguments, #name, err)

static void write_text(const mf__kernel_wanted *w) {
  if (w->kind == MF__COPIES) mf__hip_text_copy(&text, w->which);
  if (w->kind == MF__CASTS) mf__hip_text_cast(&text, w->to, w->from);
  if (w->kind == MF__COMPARES) mf__hip_text_compare(&text, w->to);
}

/* Keeps why a text is refused, and what the compiler says of it, so that it is not asked again. */
static void refuse(hiprtcProgram program, hiprtcResult code, const mf__kernel_wanted *w, mf_error *out) {
  size_t nbytes = 0;
  char *log = NULL;
  (void)answer(code, "hiprtcCompileProgram", out);
  if (mf__hiprtc.hiprtcGetProgramLogSize(program, &nbytes) == 0) log = calloc(1, nbytes + 1);
  if (log != NULL && mf__hiprtc.hiprtcGetProgramLog(program, log) != 0) *log = '\0';
  const bool says = log != NULL && *log != '\0';
  (void)mf__driver_explain(out, MF_EDRIVER, "hiprtc does not compile the %s kernel%s%s%.80s", mf__kernel_name(w->kind),
                           mf__is_privileged() ? "" : " (MOONFERRY_HIPRTC_LIBRARY=none does without)",
                           says ? ": " : "", says ? log : "");
  free(log);
}

static const char *const names[][MF__NWAYS] = {
    [MF__COPIES] = {"mf_copy", "mf_transpose", "mf_transpose_words"},
    [MF__CASTS] = {"mf_cast_one", "mf_cast_some"},
    [MF__COMPARES] = {"mf_compare_one", "mf_compare_some"},
};

static void unload(void *module) {
  const hipError_t code = mf__hip.hipModuleUnload(module);
  if (code != hipSuccess) mf__hip_clear(code);
}

static int find_ways(const mf__kernel_wanted *w, mf__kernel *k, mf_error *err) {
  const int nways = w->kind == MF__COPIES && w->which < 2 ? 3 : 2;
  int rc = MF_OK;
  for (int i = 0; i < nways && rc == MF_OK; i++) {
    hipFunction_t way = NULL;
    rc = MF__HIP_ASK(hipModuleGetFunction, (&way, k->module, names[w->kind][i]));
    k->ways[i] = way;
  }
  if (rc != MF_OK) unload(k->module);
  return rc;
}

static int load(hiprtcProgram program, const mf__kernel_wanted *w, mf__kernel *k, mf_error *err) {
  hipModule_t module = NULL;
  size_t nbytes = 0;
  int rc = ASK(hiprtcGetCodeSize, (program, &nbytes));
  if (rc != MF_OK) return rc;
  char *code = malloc(nbytes + 1);
  if (code == NULL) return mf__fail(err, MF_ENOMEM, "no memory for the %zu bytes of a kernel", nbytes);
  rc = ASK(hiprtcGetCode, (program, code));
  if (rc == MF_OK) rc = MF__HIP_ASK(hipModuleLoadData, (&module, code));
  free(code);
  k->module = module;
  return rc == MF_OK ? find_ways(w, k, err) : rc;
}

/* For the current device, which is what hiprtc compiles for where nothing else is asked for. */
static int make(const mf__kernel_wanted *w, mf__kernel *k, mf_error *err) {
  hiprtcProgram program = NULL;
  write_text(w);
  int rc = ASK(hiprtcCreateProgram, (&program, text.at, "moonferry", 0, NULL, NULL));
  if (rc != MF_OK) return rc;
  const hiprtcResult code = mf__hiprtc.hiprtcCompileProgram(program, 0, NULL);
  if (code == 0) rc = load(program, w, k, err);
  else if (code == HIPRTC_ERROR_OUT_OF_MEMORY) rc = answer(code, "hiprtcCompileProgram", err);
  else refuse(program, code, w, &k->refused);
  (void)mf__hiprtc.hiprtcDestroyProgram(&program);
  return rc;
}

/* Launching */

static mf__kernels *here(void) {
  return &kernels[mf__hip_ordinal];
}

/* A grid has less than 2^32 threads; so many go over more in rounds. */
static int launch(void *way, int64_t nblocks, void **params, mf_stream stream, mf_error *err) {
  enum { MOST = 1 << 20 };
  const unsigned n = nblocks < MOST ? (unsigned)nblocks : MOST;
  return MF__HIP_ASK(hipModuleLaunchKernel,
                     (way, n, 1, 1, MF__KERNEL_THREADS, 1, 1, 0, mf__hip_stream(stream), params, NULL));
}

static const mf__compiler compiler = {open_library, here,   mf__hip_capture_relax, mf__hip_stream_capture,
                                    make,         launch, unload};

int mf__hip_kernel_copy(const mf__kernel_copy *job, mf_stream stream, mf_error *err) {
  return mf__kernel_copy_by(&compiler, job, stream, err);
}

int mf__hip_kernel_cast(const mf__kernel_copy *job, const mf__codec *to, const mf__codec *from, mf_stream stream,
                        mf_error *err) {
  return mf__kernel_cast_by(&compiler, job, to, from, stream, err);
}

int mf__hip_kernel_compare(const mf__kernel_copy *job, const mf__codec *of, uint32_t *differs, mf_stream stream,
                           mf_error *err) {
  return mf__kernel_compare_by(&compiler, job, of, differs, stream, err);
}

bool mf__hip_kernels_loaded(int32_t ordinal) {
  return mf__kernels_loaded(&kernels[ordinal]);
}

void mf__hip_kernels_forget(int32_t ordinal) {
  mf__kernels_forget(&compiler, &kernels[ordinal]);
}
