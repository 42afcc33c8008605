/* kernel_spec.c: the copy by kernel, in both halves of its text (indices of 32 and of 64 bits), and that the toolkit's
 * own assembler takes the texts for old and new GPUs; a kernel that two threads need at once is made once.
 * hiprtc_spec.c has the kernels for HIP.
 *
 * The texts are those that the runtime ships: they are taken on their way to the driver. The half with 64 bits is for
 * 2^31 elements and more, which no spec can afford; here the number in the text is another one. */
#include <pthread.h>
#include <semaphore.h>

#include "driver/cuda.h"
#include "spec.h"

#include "kernels.h"

/* The number of elements from which on indices have 64 bits, and the way into the half with 32, in the texts' words. */
#define FROM "2147483648"
#define NARROW "cvt.u32.u64 %numeln, %numelw;"

static CUresult (*load)(CUmodule *, const void *, unsigned, CUjit_option *, void **);
static int ntexts; /* that came to the driver */
static FILE *gathered; /* gets them too, where there is one */
static int ngathered;
static CUresult refusal; /* what the driver answers instead of compiling, with these words in its log */
static const char *words;
static char *first; /* what stands in the place of FROM; NULL: the texts stay as they are */

/* Exactly one place of the text; both are of one length. */
static void put(char *text, const char *what, const char *instead) {
  char *at = strstr(text, what);
  assert_non_null(at);
  assert_null(strstr(at + 1, what));
  assert_int_equal(strlen(instead), strlen(what));
  memcpy(at, instead, strlen(instead));
}

/* Another thread that needs the kernel which is being made: it has found none, and comes to make it. */
static struct {
  bool wanted;
  pthread_t thread;
  sem_t came;
  int rc;
} rival;
static _Thread_local bool is_rival;
static CUresult (*exchange_mode)(CUstreamCaptureMode *);
static CUresult (*get_function)(CUfunction *, CUmodule, const char *);
static CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                          void **, void **);
static unsigned most_blocks; /* of a grid; 0: as many as it is to have */
static const char *only; /* the name of the kernel that all are, or NULL */

/* The way to make a kernel begins with this call. */
static CUresult exchange_hook(CUstreamCaptureMode *mode) {
  if (is_rival) sem_post(&rival.came);
  return exchange_mode(mode);
}

static void *need_a_kernel(void *arg) {
  const mf__kernel_copy nothing = {.size = 4};
  mf__entered its;
  mf_error why;
  (void)arg;
  is_rival = true;
  rival.rc = gpu->enter(0, &its, &why);
  if (rival.rc != MF_OK) return NULL;
  rival.rc = gpu->kernel_copy(&nothing, MF_STREAM_DEFAULT, &why);
  gpu->leave(&its);
  return NULL;
}

static void start_rival(void) {
  rival.wanted = false;
  if (pthread_create(&rival.thread, NULL, need_a_kernel, NULL) != 0) abort();
  sem_wait(&rival.came);
}

/* All texts in one file, whose kernels each have a name of their own. */
static void gather(const char *text) {
  const char *body = strstr(text, ".address_size 64\n"), *entry;
  assert_non_null(body);
  if (ngathered++ > 0) text = body + strlen(".address_size 64\n");
  while ((entry = strstr(text, "entry mf_")) != NULL) {
    fprintf(gathered, "%.*sentry mf_%d_", (int)(entry - text), text, ngathered);
    text = entry + strlen("entry mf_");
  }
  fputs(text, gathered);
}

/* With a first of 0, whoever came into the half with 32 bits would copy nothing. */
static CUresult load_hook(CUmodule *module, const void *image, unsigned n, CUjit_option *options, void **values) {
  if (rival.wanted) start_rival();
  if (refusal != CUDA_SUCCESS) {
    ntexts++;
    strcpy(values[0], words);
    return refusal;
  }
  if (first == NULL) {
    if (gathered != NULL) gather(image);
    ntexts++;
    return load(module, image, n, options, values);
  }
  char *text = strdup(image);
  put(text, FROM, first);
  if (strtol(first, NULL, 10) == 0) put(text, NARROW, "bra done;                    ");
  const CUresult code = load(module, text, n, options, values);
  free(text);
  return code;
}

static void kernels_copy_what_no_call_can(void **state) {
  (void)state;
  each_size(0, jobs, COUNT(jobs));
  assert_int_equal(ntexts, MF__KERNEL_SIZES);
}

static mf__entered before;

/* The device as it was before any kernel was made. */
static void forget_kernels(void) {
  OK(gpu->device_synchronize(&err));
  gpu->leave(&before);
  gpu->device_forget(0);
  OK(gpu->enter(0, &before, &err));
  ntexts = 0;
}

/* The other kernel would do something else with what it is given. */
static CUresult get_hook(CUfunction *f, CUmodule module, const char *name) {
  return get_function(f, module, only == NULL ? name : only);
}

static CUresult cuLaunchHook(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                             unsigned shared, CUstream s, void **params, void **extra) {
  if (most_blocks != 0 && gx > most_blocks) gx = most_blocks;
  return launch(f, gx, gy, gz, bx, by, bz, shared, s, params, extra);
}

/* The copy by tiles, which is taken where the closest axes of both sides differ and are long enough. */
static void axes_that_swap_go_by_tiles(void **state) {
  const job straight = {{.ndim = 2, .shape = {17, 40}, .dst_strides = {80, 2}, .src_strides = {80, 1}}, 1, 2};
  (void)state;
  only = "mf_transpose";
  for (int32_t size = 4; size <= 16; size *= 2)
    for (size_t i = 0; i < COUNT(transposes) - NSMALL; i++) OK(run_kernel(&transposes[i], size, 0));
  forget_kernels();
  only = "mf_copy";
  each_size(0, jobs, COUNT(jobs));
  each_size(0, &straight, 1);
}

/* What goes by words of several elements, and does not where an element has 4 bytes or lies between words. */
static void small_elements_that_swap_go_by_words(void **state) {
  (void)state;
  for (int32_t size = 1; size <= 2; size *= 2)
    for (size_t i = COUNT(transposes) - NSMALL; i < COUNT(transposes); i++) {
      only = i < COUNT(transposes) - NSMALL + NWORDS ? "mf_transpose_words" : "mf_transpose";
      OK(run_kernel(&transposes[i], size, 0));
      forget_kernels();
    }
}

/* Where there are more blocks of elements, or tiles, than the grid has, with indices of either size. */
static void blocks_go_on_in_rounds(void **state) {
  (void)state;
  for (int wide = 0; wide <= 1; wide++) {
    for (most_blocks = 1; most_blocks <= 3; most_blocks++) each_in_rounds();
    first = "         0";
    forget_kernels();
  }
}

static void indices_of_64_bits_copy_the_same(void **state) {
  (void)state;
  first = "         0";
  each_size(0, jobs, COUNT(jobs));
}

/* 40 elements are few, 48 and 60 many. */
static void the_number_of_elements_decides(void **state) {
  (void)state;
  first = "        41";
  each_size(0, jobs, COUNT(jobs));
}

/* The first elements of more than 2^32 along an axis, which an index of 32 bits cannot count through. */
static void extents_of_64_bits_are_read_whole(void **state) {
  (void)state;
  first = "         0";
  each_size(NFIRST, long_axes, COUNT(long_axes));
}

/* A driver that cannot compile is asked once, and refuses in the same words until the device is forgotten. */
static void who_cannot_compile_is_asked_once(void **state) {
  static const CUresult final[] = {200, 209, 218, 221, 222, 223, 801};
  static const char *const logs[] = {"", "line 3 is wrong"};
  (void)state;
  for (size_t i = 0; i < 2 * COUNT(final); i++) {
    char said[96];
    refusal = final[i / 2];
    words = logs[i % 2];
    snprintf(said, sizeof said, "does not compile the copy kernel: %s%scuModuleLoadDataEx answered %d", words,
             *words == '\0' ? "" : ": ", refusal);
    assert_int_equal(run_kernel(&jobs[0], 4, 0), MF_EDEVICE);
    SAYS(said);
    refusal = CUDA_SUCCESS;
    assert_int_equal(run_kernel(&jobs[0], 4, 0), MF_EDEVICE);
    SAYS(said);
    mf__kernel_copy k = jobs[0].copy;
    k.size = 4;
    assert_int_equal(gpu->kernel_copy(&k, MF_STREAM_DEFAULT, NULL), MF_EDEVICE);
    assert_int_equal(ntexts, 1);
    OK(run_kernel(&jobs[0], 8, 0)); /* each size has a text of its own */
    forget_kernels();
    OK(run_kernel(&jobs[0], 4, 0));
    forget_kernels();
  }
}

static void fail_to_run(const char *call) {
  char rule[64];
  snprintf(rule, sizeof rule, "%s:999:once", call);
  sim_ask_reset();
  sim_ask_fail(rule);
  assert_int_equal(run_kernel(&jobs[0], 4, 0), MF_EDRIVER);
  assert_string_equal(err.call, call);
  assert_int_equal(sim_ask_faults(), 1);
  sim_ask_reset();
  assert_int_equal(sim_ask_left("modules"), strcmp(call, "cuLaunchKernel") == 0);
  OK(run_kernel(&jobs[0], 4, 0));
}

/* What fails for another reason is tried again. */
static void what_fails_once_is_tried_again(void **state) {
  static const CUresult passing[] = {1, 2, 100, 199, 201, 208, 210, 217, 224, 700, 719, 800, 802, 999};
  static const char *const calls[] = {"cuModuleGetFunction", "cuModuleLoadDataEx",
                                      "cuThreadExchangeStreamCaptureMode", "cuLaunchKernel"};
  (void)state;
  for (size_t i = 0; i < COUNT(passing); i++) {
    refusal = passing[i];
    words = "";
    assert_int_equal(run_kernel(&jobs[0], 4, 0), mf__driver_status(refusal));
    assert_int_equal(err.driver_code, refusal);
    refusal = CUDA_SUCCESS;
    OK(run_kernel(&jobs[0], 4, 0));
    forget_kernels();
  }
  for (size_t i = 0; i < COUNT(calls) && simulated(); i++) {
    fail_to_run(calls[i]);
    forget_kernels();
  }
}

/* This spec comes first: how many processors there are is asked once. */
static void the_first_kernel_asks_for_the_device(void **state) {
  (void)state;
  if (simulated()) fail_to_run("cuDeviceGetAttribute");
}

/* Making a kernel is in nobody's capture, and the thread's mode is its own again. */
static void making_a_kernel_breaks_no_capture(void **state) {
  const mf__kernel_copy nothing = {.size = 4};
  void *p = NULL;
  mf_stream s = 0;
  (void)state;
  OK(gpu->stream_create(&s, &err));
  capture_start(s, CAPTURE_GLOBAL);
  OK(gpu->kernel_copy(&nothing, MF_STREAM_PER_THREAD, &err));
  assert_int_equal(ntexts, 1);
  assert_int_equal(capture_end(s), 0);
  capture_start(s, CAPTURE_GLOBAL);
  FAILS(gpu->memory_alloc(MF__PINNED, 64, s, &p, &err), MF_ECAPTURE);
  assert_int_not_equal(capture_end(s), 0);
  sim_ask_reset();
  OK(gpu->stream_destroy(s, &err));
}

/* Each would leave a module that nobody unloads, if both made it. */
static void two_threads_make_one_kernel(void **state) {
  (void)state;
  assert_int_equal(sem_init(&rival.came, 0, 0), 0);
  rival.wanted = true;
  OK(run_kernel(&jobs[0], 4, 0));
  assert_int_equal(pthread_join(rival.thread, NULL), 0);
  assert_int_equal(rival.rc, MF_OK);
  assert_int_equal(ntexts, 1);
  sem_destroy(&rival.came);
}

/* The texts of copies and comparisons, and of one cast in fourteen, drawn anew with each commit: all take minutes
 * (make test-ptxas). */
static void some_texts(void) {
  const char *seed = getenv("MOONFERRY_SPEC_SEED");
  const size_t every = getenv("MOONFERRY_SPEC_EVERY") == NULL ? 14 : 1;
  const size_t drawn = seed == NULL ? 0 : (size_t)strtoull(seed, NULL, 10) % every;
  const mf__kernel_copy nothing = {.size = 1};
  uint32_t nowhere;
  each_size(0, jobs, 1);
  for (size_t i = 0; i < COUNT(all_numbers); i++) {
    const mf__codec to = codec_of(i);
    OK(gpu->kernel_compare(&nothing, &to, &nowhere, MF_STREAM_DEFAULT, &err));
    for (size_t k = 0; k < COUNT(all_numbers); k++) {
      const mf__codec from = codec_of(k);
      if (i != k && (i * 3 + k) % every == drawn) OK(gpu->kernel_cast(&nothing, &to, &from, MF_STREAM_DEFAULT, &err));
    }
  }
}

static void the_assembler_takes_the_texts(void **state) {
  static const char *const archs[] = {"sm_75", "sm_90", "sm_100"};
  const char *ptxas = getenv("MOONFERRY_PTXAS");
  char path[] = "/tmp/moonferry-ptx-XXXXXX", command[1024];
  (void)state;
  skip_unless(ptxas != NULL, "MOONFERRY_PTXAS names no assembler");
  gathered = fdopen(mkstemp(path), "w");
  assert_non_null(gathered);
  ngathered = 0;
  some_texts();
  fclose(gathered);
  gathered = NULL;
  for (size_t i = 0; i < COUNT(archs); i++) {
    (void)snprintf(command, sizeof command, "%s -arch=%s %s -o /dev/null", ptxas, archs[i], path);
    if (is_drawn(i) && system(command) != 0) fail_msg("%s: one of %d texts", command, ngathered);
  }
  unlink(path);
}

static int begin(void **state) {
  (void)state;
  sim_ask_reset();
  OK(gpu->enter(0, &before, &err));
  load = mf__cu.cuModuleLoadDataEx;
  mf__cu.cuModuleLoadDataEx = load_hook;
  exchange_mode = mf__cu.cuThreadExchangeStreamCaptureMode;
  mf__cu.cuThreadExchangeStreamCaptureMode = exchange_hook;
  get_function = mf__cu.cuModuleGetFunction;
  mf__cu.cuModuleGetFunction = get_hook;
  launch = mf__cu.cuLaunchKernel;
  mf__cu.cuLaunchKernel = cuLaunchHook;
  only = NULL;
  ntexts = 0;
  first = NULL;
  most_blocks = 0;
  return 0;
}

/* The next spec has its kernels made anew. The hooks go before anything here can fail: a hook that is put in twice
 * calls itself for ever. */
static int end(void **state) {
  (void)state;
  mf__cu.cuModuleLoadDataEx = load;
  mf__cu.cuThreadExchangeStreamCaptureMode = exchange_mode;
  mf__cu.cuModuleGetFunction = get_function;
  mf__cu.cuLaunchKernel = launch;
  OK(gpu->device_synchronize(&err));
  gpu->leave(&before);
  gpu->device_forget(0);
  expect_clean_driver();
  assert_int_equal(sim_ask_left("modules"), 0);
  return 0;
}

int main(void) {
#define SPEC(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest specs[] = {
      SPEC(the_first_kernel_asks_for_the_device),
      SPEC(kernels_copy_what_no_call_can), SPEC(axes_that_swap_go_by_tiles),
      SPEC(small_elements_that_swap_go_by_words), SPEC(blocks_go_on_in_rounds),
      SPEC(indices_of_64_bits_copy_the_same),
      SPEC(the_number_of_elements_decides), SPEC(extents_of_64_bits_are_read_whole),
      SPEC(who_cannot_compile_is_asked_once), SPEC(what_fails_once_is_tried_again),
      SPEC(making_a_kernel_breaks_no_capture), SPEC(two_threads_make_one_kernel),
      SPEC(the_assembler_takes_the_texts),
  };
  return cmocka_run_group_tests(specs, NULL, NULL);
}
