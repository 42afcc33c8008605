/* hiprtc_hooks.h: hiprtc and HIP's launches with something in their way: which kernel is taken, how many blocks run,
 * what fails and in which words; and a setup and teardown that put that there. */
#ifndef MOONFERRY_HIPRTC_HOOKS_H
#define MOONFERRY_HIPRTC_HOOKS_H

static mf__entered before;
static const mf__kernel_copy nothing = {.size = 4};

/* The device as it was before any kernel was made. */
static void forget_kernels(void) {
  OK(gpu->device_synchronize(&err));
  gpu->leave(&before);
  gpu->device_forget(0);
  OK(gpu->enter(0, &before, &err));
}

/* Opens everything; false where there is no hiprtc. */
static bool has_kernels(void) {
  return gpu->kernel_copy(&nothing, MF_STREAM_DEFAULT, NULL) == MF_OK;
}

/* Launches */

static hipError_t (*get_function)(hipFunction_t *, hipModule_t, const char *);
static hipError_t (*launch)(hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            hipStream_t, void **, void **);
static const char *only; /* the name of the kernel that all are, or NULL */
static unsigned most_blocks, last_blocks;
static bool nothing_runs;

/* The other kernel would do something else with what it is given. */
static hipError_t get_hook(hipFunction_t *f, hipModule_t module, const char *name) {
  return get_function(f, module, only == NULL ? name : only);
}

static hipError_t hipLaunchHook(hipFunction_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                              unsigned bz, unsigned shared, hipStream_t s, void **params, void **extra) {
  if (most_blocks != 0 && gx > most_blocks) gx = most_blocks;
  last_blocks = gx;
  if (nothing_runs) return hipSuccess;
  return launch(f, gx, gy, gz, bx, by, bz, shared, s, params, extra);
}

/* hiprtc */

static hiprtcResult refusal; /* what hiprtc answers, */
static const char *refused;  /* to which call, */
static const char *words;    /* with these words in its log */
static int ncompiled, ndestroyed;

#define HOOK(name, params, args)                                             \
  static hiprtcResult (*name##_real) params;                                 \
  static hiprtcResult name##_hook params {                                   \
    if (strcmp(#name, "hiprtcCompileProgram") == 0) ncompiled++;             \
    if (strcmp(#name, "hiprtcDestroyProgram") == 0) ndestroyed++;            \
    return strcmp(refused, #name) == 0 ? refusal : name##_real args;         \
  }

HOOK(hiprtcCreateProgram,
     (hiprtcProgram * out, const char *text, const char *name, int n, const char **headers, const char **names),
     (out, text, name, n, headers, names))
HOOK(hiprtcCompileProgram, (hiprtcProgram p, int n, const char **options), (p, n, options))
HOOK(hiprtcGetCodeSize, (hiprtcProgram p, size_t *n), (p, n))
HOOK(hiprtcGetCode, (hiprtcProgram p, char *out), (p, out))
HOOK(hiprtcDestroyProgram, (hiprtcProgram * p), (p))

static hiprtcResult log_size_hook(hiprtcProgram p, size_t *n) {
  (void)p;
  *n = strcmp(words, "too large") == 0 ? SIZE_MAX / 4 : strlen(words) + 1;
  return strcmp(words, "unsized") == 0 ? 3 : 0;
}

static hiprtcResult log_hook(hiprtcProgram p, char *out) {
  (void)p;
  strcpy(out, words);
  return strcmp(words, "unread") == 0 ? 3 : 0;
}

#define PUT_HOOK(name) (name##_real = mf__hiprtc.name, mf__hiprtc.name = name##_hook)
#define TAKE_HOOK(name) (mf__hiprtc.name = name##_real)

static int begin(void **state) {
  (void)state;
  sim_ask_reset();
  OK(gpu->enter(0, &before, &err));
  OK(has_kernels() ? MF_OK : MF_EDEVICE);
  forget_kernels();
  only = NULL;
  refused = words = "";
  most_blocks = 0;
  get_function = mf__hip.hipModuleGetFunction;
  mf__hip.hipModuleGetFunction = get_hook;
  launch = mf__hip.hipModuleLaunchKernel;
  mf__hip.hipModuleLaunchKernel = hipLaunchHook;
  PUT_HOOK(hiprtcCreateProgram);
  PUT_HOOK(hiprtcCompileProgram);
  PUT_HOOK(hiprtcGetCodeSize);
  PUT_HOOK(hiprtcGetCode);
  PUT_HOOK(hiprtcDestroyProgram);
  ncompiled = ndestroyed = 0;
  return 0;
}

static int begin_failing(void **state) {
  (void)begin(state);
  mf__hiprtc.hiprtcGetProgramLogSize = log_size_hook;
  mf__hiprtc.hiprtcGetProgramLog = log_hook;
  return 0;
}

/* The next spec has its kernels made anew. The hooks go before anything here can fail: a hook that is put in twice
 * calls itself for ever. */
static int end(void **state) {
  (void)state;
  mf__hip.hipModuleGetFunction = get_function;
  mf__hip.hipModuleLaunchKernel = launch;
  TAKE_HOOK(hiprtcCreateProgram);
  TAKE_HOOK(hiprtcCompileProgram);
  TAKE_HOOK(hiprtcGetCodeSize);
  TAKE_HOOK(hiprtcGetCode);
  TAKE_HOOK(hiprtcDestroyProgram);
  OK(gpu->device_synchronize(&err));
  gpu->leave(&before);
  gpu->device_forget(0);
  expect_clean_driver();
  assert_int_equal(sim_ask_left("modules"), 0);
  return 0;
}

#endif
