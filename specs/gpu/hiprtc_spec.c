/* hiprtc_spec.c: kernels on ROCm: what they copy, in each of their ways and in rounds of blocks; what happens where
 * hiprtc is absent, broken or refuses a text. numbers_spec.c has what they convert and compare.
 *
 * With MOONFERRY_HIPRTC=FILE, a real hiprtc, each text is compiled for each of MOONFERRY_HIPRTC_TARGETS instead. */
#include "driver/hip.h"
#include "spec.h"

#include <malloc.h>

#include "kernels.h"
#include "privileged.h"
/* which needs those */
#include "hiprtc_hooks.h"

static void each_pair(void) {
  uint32_t nowhere;
  for (size_t i = 0; i < COUNT(all_numbers); i++) {
    const mf__codec to = codec_of(i), from = codec_of((i * 7 + 3) % COUNT(all_numbers));
    OK(gpu->kernel_compare(&nothing, &to, &nowhere, MF_STREAM_DEFAULT, &err));
    OK(gpu->kernel_cast(&nothing, &to, &from, MF_STREAM_DEFAULT, &err));
  }
}

/* Copies */

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

static void small_elements_that_swap_go_by_words(void **state) {
  (void)state;
  for (int32_t size = 1; size <= 2; size *= 2)
    for (size_t i = COUNT(transposes) - NSMALL; i < COUNT(transposes); i++) {
      only = i < COUNT(transposes) - NSMALL + NWORDS ? "mf_transpose_words" : "mf_transpose";
      OK(run_kernel(&transposes[i], size, 0));
      forget_kernels();
    }
}

/* Where there are more blocks of elements, or tiles, than the grid has. */
static void blocks_go_on_in_rounds(void **state) {
  (void)state;
  for (most_blocks = 1; most_blocks <= 3; most_blocks++) each_in_rounds();
}

/* Each has 256 threads. What goes beyond is done in rounds. */
static void a_grid_has_less_than_2_to_the_32_threads(void **state) {
  const mf__kernel_copy far = {.size = 1, .ndim = 1, .numel = INT64_C(1) << 40, .shape = {INT64_C(1) << 40},
                               .dst_strides = {2}, .src_strides = {3}};
  (void)state;
  nothing_runs = true;
  OK(gpu->kernel_copy(&far, MF_STREAM_DEFAULT, &err));
  nothing_runs = false;
  assert_int_equal(last_blocks, 1 << 20);
}

static void extents_of_64_bits_are_read_whole(void **state) {
  (void)state;
  each_size(NFIRST, long_axes, COUNT(long_axes));
}

/* What fails */

/* A text that is refused is not asked for again until the device is forgotten, and is no reason for another way. */
static void who_cannot_compile_is_asked_once(void **state) {
  static const char *const logs[] = {"", "line 3 is wrong", "unread", "unsized", "too large"};
  (void)state;
  refused = "hiprtcCompileProgram";
  refusal = 6;
  for (size_t i = 0; i < COUNT(logs); i++) {
    const bool says = i == 1;
    char said[200];
    words = logs[i];
    ncompiled = 0;
    snprintf(said, sizeof said, "hiprtc does not compile the copy kernel (MOONFERRY_HIPRTC_LIBRARY=none does "
             "without)%s%s", says ? ": line 3" : "", says ? " is wrong" : "");
    for (int k = 0; k < 2; k++) {
      assert_int_equal(run_kernel(&jobs[0], 4, 0), MF_EDRIVER);
      SAYS(said);
      assert_int_equal(err.driver_code, 6);
      if (i > 1) assert_null(strstr(err.message, words));
    }
    assert_int_equal(gpu->kernel_copy(&nothing, MF_STREAM_DEFAULT, NULL), MF_EDRIVER);
    assert_int_equal(ncompiled, 1);
    forget_kernels();
  }
  refused = "";
  OK(run_kernel(&jobs[0], 4, 0));
}

/* Which ignores it. */
static void a_privileged_program_is_not_told_of_a_variable(void **state) {
  (void)state;
  refused = "hiprtcCompileProgram";
  refusal = 6;
  words = "line 3 is wrong";
  is_privileged = true;
  assert_int_equal(run_kernel(&jobs[0], 4, 0), MF_EDRIVER);
  SAYS("hiprtc does not compile the copy kernel: line 3 is wrong");
  is_privileged = false;
  forget_kernels();
  refused = "";
}

static void what_fails_once_is_tried_again(void **state) {
  static const char *const calls[] = {"hiprtcCreateProgram", "hiprtcCompileProgram", "hiprtcGetCodeSize",
                                      "hiprtcGetCode"};
  static const char *const driver_calls[] = {"hipModuleLoadData", "hipModuleGetFunction",
                                             "hipThreadExchangeStreamCaptureMode", "hipModuleLaunchKernel"};
  (void)state;
  for (size_t i = 0; i < COUNT(calls); i++) {
    for (refusal = 1; refusal < 4; refusal += 2) {
      if (i == 1 && refusal != 1) continue;
      refused = calls[i];
      ncompiled = 0;
      assert_int_equal(run_kernel(&jobs[0], 4, 0), refusal == 1 ? MF_ENOMEM : MF_EDRIVER);
      assert_string_equal(err.call, calls[i]);
      assert_int_equal(err.driver_code, refusal);
      assert_int_equal(ncompiled, i > 0);
      refused = "";
      OK(run_kernel(&jobs[0], 4, 0));
      forget_kernels();
    }
  }
  for (size_t i = 0; i < COUNT(driver_calls) && simulated(); i++) {
    char rule[64];
    snprintf(rule, sizeof rule, "%s:999:once", driver_calls[i]);
    sim_ask_fail(rule);
    assert_int_equal(run_kernel(&jobs[0], 4, 0), MF_EDRIVER);
    assert_string_equal(err.call, driver_calls[i]);
    assert_int_equal(driver_last_error(), 0);
    assert_int_equal(sim_ask_left("modules"), i == 3);
    OK(run_kernel(&jobs[0], 4, 0));
    forget_kernels();
  }
}

static const char *named; /* what hiprtc says that a code means */

static const char *name_hook(hiprtcResult code) {
  (void)code;
  return named;
}

static void a_failure_is_told_in_hiprtcs_words(void **state) {
  static const char *const said[][2] = {{"out of luck", ": out of luck"}, {NULL, ": unknown to this hiprtc"}};
  const char *(*real_name)(hiprtcResult) = mf__hiprtc.hiprtcGetErrorString;
  (void)state;
  refused = "hiprtcCreateProgram";
  refusal = 3;
  mf__hiprtc.hiprtcGetErrorString = name_hook;
  for (size_t i = 0; i < COUNT(said); i++) {
    named = said[i][0];
    assert_int_equal(run_kernel(&jobs[0], 4, 0), MF_EDRIVER);
    SAYS(said[i][1]);
  }
  mf__hiprtc.hiprtcGetErrorString = real_name;
}

static hiprtcResult (*code_size)(hiprtcProgram, size_t *);

static size_t more_nbytes;

static hiprtcResult larger(hiprtcProgram p, size_t *n) {
  const hiprtcResult code = code_size(p, n);
  *n += more_nbytes;
  return code;
}

static void a_kernel_without_memory_is_refused(void **state) {
  (void)state;
  code_size = mf__hiprtc.hiprtcGetCodeSize;
  mf__hiprtc.hiprtcGetCodeSize = larger;
  more_nbytes = SIZE_MAX / 4;
  assert_int_equal(run_kernel(&jobs[0], 4, 0), MF_ENOMEM);
  SAYS("no memory for the ");
  mf__hiprtc.hiprtcGetCodeSize = code_size;
  OK(run_kernel(&jobs[0], 4, 0));
}

static hipError_t (*unload)(hipModule_t);

/* With an answer of the driver's own, of which it keeps a note. */
static hipError_t unload_hook(hipModule_t module) {
  (void)unload(module);
  return unload(NULL);
}

/* What the driver answers there is no later call's to find. */
static void a_kernel_that_cannot_be_unloaded_is_nobodys_error(void **state) {
  (void)state;
  OK(run_kernel(&jobs[0], 4, 0));
  unload = mf__hip.hipModuleUnload;
  mf__hip.hipModuleUnload = unload_hook;
  OK(gpu->device_synchronize(&err));
  gpu->leave(&before);
  gpu->device_forget(0);
  const int kept = driver_last_error();
  mf__hip.hipModuleUnload = unload;
  OK(gpu->enter(0, &before, &err));
  assert_int_equal(kept, 0);
  sim_ask_reset();
}

/* By glibc's malloc; a sanitizer, which has another one, finds by itself what is lost. */
static size_t allocated(void) {
  return mallinfo2().uordblks + mallinfo2().hblkhd;
}

/* How much so many kernels leave, of which hiprtc refuses that call, or none. */
static size_t left_by(int rounds, const char *call) {
  const size_t first = allocated();
  refused = call;
  for (int i = 0; i < rounds; i++) {
    assert_int_equal(run_kernel(&jobs[0], 4, 0), *call == '\0' ? MF_OK : MF_EDRIVER);
    forget_kernels();
  }
  return allocated() > first ? allocated() - first : 0;
}

static void compiling_leaves_no_memory(void **state) {
  enum { ROUNDS = 20, MANY_NBYTES = 40000 }; /* more than the simulator keeps of each text */
  static char log[MANY_NBYTES];
  (void)state;
  memset(log, 'x', sizeof log - 1);
  words = log;
  more_nbytes = MANY_NBYTES;
  code_size = mf__hiprtc.hiprtcGetCodeSize;
  mf__hiprtc.hiprtcGetCodeSize = larger;
  static const char *const calls[] = {"", "hiprtcCompileProgram"};
  refusal = 6;
  for (size_t i = 0; i < COUNT(calls); i++) {
    left_by(ROUNDS, calls[i]);
    assert_true(left_by(ROUNDS, calls[i]) < ROUNDS * (size_t)MANY_NBYTES / 2);
  }
  assert_int_equal(ncompiled, 4 * ROUNDS);
  assert_int_equal(ndestroyed, ncompiled);
  mf__hiprtc.hiprtcGetCodeSize = code_size;
}

/* Neither one that is not made nor one that was refused, and neither is launched. */
static void a_kernel_that_is_none_leaves_no_memory(void **state) {
  static const char *const calls[] = {"hiprtcCreateProgram", "hiprtcCompileProgram"};
  const mf__kernel_copy one = {.size = 4, .numel = 1};
  const mf__codec any = codec_of(0);
  (void)state;
  refusal = 3;
  last_blocks = 0;
  for (size_t k = 0; k < COUNT(calls); k++) {
    const size_t first = allocated();
    refused = calls[k];
    for (int i = 0; i < 200; i++) {
      assert_int_equal(gpu->kernel_copy(&one, MF_STREAM_DEFAULT, &err), MF_EDRIVER);
      assert_int_equal(gpu->kernel_cast(&one, &any, &any, MF_STREAM_DEFAULT, &err), MF_EDRIVER);
      if (k == 1) forget_kernels();
    }
    assert_true(allocated() < first + 100 * sizeof(mf__kernel));
  }
  assert_int_equal(last_blocks, 0);
}

/* Making a kernel is in nobody's capture. */
static void making_a_kernel_breaks_no_capture(void **state) {
  mf_stream s = 0;
  (void)state;
  OK(gpu->stream_create(&s, &err));
  capture_start(s, CAPTURE_GLOBAL);
  OK(gpu->kernel_copy(&nothing, MF_STREAM_PER_THREAD, &err));
  assert_int_equal(capture_end(s), 0);
  OK(gpu->stream_destroy(s, &err));
}

/* It is found without the lock and the mode that making one needs. */
static void a_kernel_that_is_there_is_not_made_again(void **state) {
  static const char mode[] = "hipThreadExchangeStreamCaptureMode";
  (void)state;
  OK(gpu->kernel_copy(&nothing, MF_STREAM_DEFAULT, &err));
  const uint64_t asked = sim_ask_calls(mode);
  for (int i = 0; i < 3; i++) OK(gpu->kernel_copy(&nothing, MF_STREAM_DEFAULT, &err));
  assert_int_equal(sim_ask_calls(mode), asked);
  assert_int_equal(ncompiled, 1);
}

/* Which hiprtc there is is found once in a process. */

static int ask_for_a_kernel(void) {
  CHECK(gpu->enter(0, &before, &err) == MF_OK);
  const int rc = gpu->kernel_copy(&nothing, MF_STREAM_DEFAULT, &err);
  CHECK(gpu->kernel_copy(&nothing, MF_STREAM_DEFAULT, NULL) == rc);
  gpu->leave(&before);
  gpu->device_forget(0);
  return rc;
}

static void absent(void) {
  CHECK(ask_for_a_kernel() == MF_EDEVICE && err.status == MF_EDEVICE);
  CHECK(strstr(err.message, "there is no hiprtc driver here") != NULL);
}

static void broken(void) {
  CHECK(ask_for_a_kernel() == MF_EDRIVER && err.status == MF_EDRIVER);
  CHECK(strstr(err.message, "/etc/passwd") != NULL);
}

static void another_library(void) {
  CHECK(ask_for_a_kernel() == MF_EDRIVER && err.status == MF_EDRIVER);
  CHECK(strstr(err.message, "the hiprtc driver libm.so.6 has no hiprtcGetErrorString") != NULL);
}

/* Each of the calls in turn. */
static void no_calls(void) {
  mf__hip_table all, *t = &mf__hip;
  int32_t n;
  CHECK(gpu->device_count(&n, &err) == MF_OK);
  all = *t;
  for (int i = 0; i < 4; i++) {
    *t = all;
    if (i == 0) t->hipModuleLoadData = NULL;
    if (i == 1) t->hipModuleUnload = NULL;
    if (i == 2) t->hipModuleGetFunction = NULL;
    if (i == 3) t->hipModuleLaunchKernel = NULL;
    CHECK(ask_for_a_kernel() == MF_EDEVICE);
    CHECK(strstr(err.message, "this HIP runtime has no calls for kernels") != NULL);
  }
}

/* Another way is found where there are none, and where hiprtc is broken that is told. */
static void only_absence_means_no_kernels(void **state) {
  (void)state;
  in_fork_with("MOONFERRY_HIPRTC_LIBRARY=none", absent);
  in_fork_with("MOONFERRY_HIPRTC_LIBRARY=/etc/passwd", broken);
  in_fork_with("MOONFERRY_HIPRTC_LIBRARY=libm.so.6", another_library);
  in_fork_with("SIM_LEDGER=off", no_calls);
}

/* A real hiprtc */

static mf__hiprtc_table real;

static void compile(const mf__hip_text *text, const char *target) {
  char option[64], log[4096] = "";
  const char *options[] = {option};
  hiprtcProgram program = NULL;
  size_t nbytes = 0;
  snprintf(option, sizeof option, "--offload-arch=%s", target);
  assert_int_equal(real.hiprtcCreateProgram(&program, text->at, "moonferry", 0, NULL, NULL), 0);
  const hiprtcResult code = real.hiprtcCompileProgram(program, 1, options);
  if (real.hiprtcGetProgramLogSize(program, &nbytes) == 0 && nbytes < sizeof log)
    (void)real.hiprtcGetProgramLog(program, log);
  if (code != 0) fail_msg("%s: %s: %s\n%s", target, real.hiprtcGetErrorString(code), log, text->at);
  assert_int_equal(real.hiprtcGetCodeSize(program, &nbytes), 0);
  char *image = malloc(nbytes);
  assert_int_equal(real.hiprtcGetCode(program, image), 0);
  assert_memory_equal(image, "\177ELF", 4);
  free(image);
  assert_int_equal(real.hiprtcDestroyProgram(&program), 0);
}

static void compile_all(const char *target) {
  static mf__hip_text text;
  for (int32_t which = 0; which < MF__KERNEL_SIZES; which++) {
    mf__hip_text_copy(&text, which);
    assert_true(text.length < sizeof text.at * 2 / 3);
    compile(&text, target);
  }
  for (size_t i = 0; i < COUNT(all_numbers) * COUNT(all_numbers); i++) {
    const mf__codec to = codec_of(i / COUNT(all_numbers)), from = codec_of(i % COUNT(all_numbers));
    if (i / COUNT(all_numbers) == i % COUNT(all_numbers)) mf__hip_text_compare(&text, &to);
    else mf__hip_text_cast(&text, &to, &from);
    assert_true(text.length < sizeof text.at * 2 / 3);
    compile(&text, target);
  }
}

static void a_real_compiler_takes_every_text(void **state) {
  const char *given = getenv("MOONFERRY_HIPRTC_TARGETS");
  char targets[128];
  void *library = dlopen(getenv("MOONFERRY_HIPRTC"), RTLD_NOW);
  (void)state;
  if (library == NULL) fail_msg("%s", dlerror());
#define FIND(result, name, params) *(void **)&real.name = dlsym(library, #name);
  MF__HIPRTC_REQUIRED(FIND)
#undef FIND
  snprintf(targets, sizeof targets, "%s", given == NULL ? "gfx906 gfx90a gfx1030" : given);
  for (char *target = strtok(targets, " "); target != NULL; target = strtok(NULL, " ")) compile_all(target);
}

static void every_kernel_is_made(void **state) {
  (void)state;
  each_size(0, jobs, COUNT(jobs));
  each_pair();
}

/* Whether this process's driver has kernels, asked in another one. */
static void says_whether(void) {
  if (ask_for_a_kernel() != MF_OK) _exit(7);
}

int main(void) {
#define SPEC(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest compiled[] = {cmocka_unit_test(a_real_compiler_takes_every_text)};
  const struct CMUnitTest without[] = {cmocka_unit_test(only_absence_means_no_kernels)};
  const struct CMUnitTest specs[] = {
      cmocka_unit_test(only_absence_means_no_kernels), /* before this process opens the driver */
      SPEC(every_kernel_is_made), SPEC(axes_that_swap_go_by_tiles), SPEC(small_elements_that_swap_go_by_words),
      SPEC(blocks_go_on_in_rounds), SPEC(a_grid_has_less_than_2_to_the_32_threads),
      SPEC(extents_of_64_bits_are_read_whole),
      cmocka_unit_test_setup_teardown(who_cannot_compile_is_asked_once, begin_failing, end),
      cmocka_unit_test_setup_teardown(compiling_leaves_no_memory, begin_failing, end),
      SPEC(a_kernel_that_is_none_leaves_no_memory), SPEC(a_failure_is_told_in_hiprtcs_words),
      SPEC(a_kernel_without_memory_is_refused),
      SPEC(a_kernel_that_cannot_be_unloaded_is_nobodys_error), SPEC(what_fails_once_is_tried_again),
      SPEC(a_privileged_program_is_not_told_of_a_variable),
      SPEC(making_a_kernel_breaks_no_capture), SPEC(a_kernel_that_is_there_is_not_made_again),
  };
  if (getenv("MOONFERRY_HIPRTC") != NULL) return cmocka_run_group_tests(compiled, NULL, NULL);
  if (status_with("SIM_LEDGER=off", says_whether) != 0) return cmocka_run_group_tests(without, NULL, NULL);
  return cmocka_run_group_tests(specs, NULL, NULL);
}
