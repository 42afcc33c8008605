/* fault_spec.c: each call that a backend makes to its driver fails in turn. The failure must name the call and the
 * driver's number, leave nothing behind, keep the caller's context current, and not spoil what comes next. */
#include "spec.h"

#include "driver/cuda_calls.h"
#include "driver/hip_calls.h"

enum { NBYTES = 256 };

/* One use of every slot. Goes on to the end after a failure, so that what was made is given back. */
typedef struct scenario {
  int rc;        /* of the first failure */
  mf_error said; /* of the same */
  int count;     /* of failures */
} scenario;

static bool step(scenario *s, int rc) {
  if (rc == MF_OK) return true;
  if (s->count++ == 0) {
    s->rc = rc;
    s->said = err;
  }
  return false;
}

/* Waiting is tried again. Giving back is not: a driver that answers with a failure there has done it, and tells of
 * something earlier; a mode that stayed goes with the next pair. */
#define AGAIN(call)                       \
  do {                                    \
    if (!step(s, call)) step(s, call);    \
  } while (0)

static void work(scenario *s, mf_stream q, char *host, char *device) {
  const mf__block_copy flat = {.dst = device, .src = host, .width = NBYTES, .height = 1, .depth = 1};
  const mf__block_copy plane = {.dst = device, .src = host, .width = 8, .height = 4, .depth = 1, .dst_pitch = 16,
                                .src_pitch = 32};
  const mf__block_copy box = {.dst = device, .src = host, .width = 4, .height = 2, .depth = 3, .dst_pitch = 8,
                              .src_pitch = 16, .dst_slice = 24, .src_slice = 64};
  const mf__block_copy line = {.dst = device, .width = NBYTES / 4, .height = 1, .depth = 1};
  const mf__block_copy cells = {.dst = device, .width = 2, .height = 3, .depth = 1, .dst_pitch = 16};
  const mf__kernel_copy kernel = {.dst = device, .src = host, .numel = 4, .ndim = 1, .size = 4, .shape = {4},
                                  .dst_strides = {4}, .src_strides = {8}};
  step(s, gpu->copy(&flat, q, &err));
  step(s, gpu->copy(&plane, q, &err));
  step(s, gpu->copy(&box, q, &err));
  for (int32_t unit = 1; unit <= 4; unit *= 2) {
    step(s, gpu->fill(&line, 5, unit, q, &err));
    step(s, gpu->fill(&cells, 5, unit, q, &err));
  }
  const int rc = gpu->kernel_copy(&kernel, q, &err);
  if (rc != MF_EDEVICE || err.driver_code != 0) step(s, rc);
}

static void order(scenario *s, mf_stream q) {
  void *event = NULL;
  uint64_t id;
  int32_t ordinal;
  bool done;
  step(s, gpu->stream_device(q, &ordinal, &err));
  step(s, gpu->stream_capture(q, &id, &err));
  if (step(s, gpu->event_create(&event, &err))) {
    step(s, gpu->event_record(event, q, &err));
    step(s, gpu->event_query(event, &done, &err));
    step(s, gpu->event_wait(event, MF_STREAM_PER_THREAD, &err));
    step(s, gpu->event_synchronize(event, &err));
    step(s, gpu->event_destroy(event, &err));
  }
  step(s, gpu->stream_query(q, &done, &err));
  if (step(s, gpu->capture_relax(true, &err))) step(s, gpu->capture_relax(false, &err));
}

static void use_memory(scenario *s, mf_stream q) {
  void *host = NULL, *device = NULL, *managed = NULL;
  mf__space space;
  int32_t ordinal;
  bool both = step(s, gpu->memory_alloc(MF__PINNED, NBYTES, q, &host, &err));
  both = step(s, gpu->memory_alloc(MF__DEVICE, NBYTES, q, &device, &err)) && both;
  if (both) work(s, q, host, device);
  if (device != NULL) step(s, gpu->memory_find(device, &space, &ordinal, &err));
  if (device != NULL) step(s, gpu->memory_free(MF__DEVICE, device, q, &err));
  if (!step(s, gpu->stream_synchronize(q, &err))) step(s, gpu->device_synchronize(&err));
  if (host != NULL) step(s, gpu->memory_free(MF__PINNED, host, q, &err));
  if (gpu->types[MF__MANAGED] != 0 && step(s, gpu->memory_alloc(MF__MANAGED, NBYTES, q, &managed, &err)))
    step(s, gpu->memory_free(MF__MANAGED, managed, q, &err));
  step(s, gpu->memory_trim(&err));
}

static void peer(scenario *s) {
  mf__entered inner;
  void *near = NULL, *far = NULL;
  if (!step(s, gpu->memory_alloc(MF__DEVICE, NBYTES, MF_STREAM_DEFAULT, &near, &err))) return;
  AGAIN(gpu->device_synchronize(&err));
  if (step(s, gpu->enter(1, &inner, &err))) {
    if (step(s, gpu->memory_alloc(MF__DEVICE, NBYTES, MF_STREAM_DEFAULT, &far, &err))) {
      const mf__block_copy flat = {.dst = near, .src = far, .width = NBYTES, .height = 1, .depth = 1};
      step(s, gpu->copy_peer(&flat, 0, 1, MF_STREAM_DEFAULT, &err));
      AGAIN(gpu->device_synchronize(&err));
      step(s, gpu->memory_free(MF__DEVICE, far, MF_STREAM_DEFAULT, &err));
      AGAIN(gpu->device_synchronize(&err));
    }
    gpu->leave(&inner);
  }
  step(s, gpu->memory_free(MF__DEVICE, near, MF_STREAM_DEFAULT, &err));
}

static scenario run(void) {
  scenario own = {.rc = MF_OK}, *s = &own;
  mf__entered before;
  mf_stream q = 0;
  if (!step(s, gpu->enter(0, &before, &err))) return own;
  if (step(s, gpu->stream_create(&q, &err))) {
    use_memory(s, q);
    order(s, q);
    step(s, gpu->stream_destroy(q, &err));
  }
  peer(s);
  AGAIN(gpu->device_synchronize(&err));
  gpu->leave(&before);
  return own;
}

static int expected_status(int code) {
  return code == 2 ? MF_ENOMEM : code >= 900 && code <= 908 ? MF_ECAPTURE : MF_EDRIVER;
}

/* Failures that need not come out: leaving cannot fail, a text has a stand-in, and that there are no pools is an
 * answer. */
static bool may_be_silent(const char *name, int code) {
  static const char *const names[] = {"cuCtxPopCurrent", "cuCtxSetCurrent", "cuGetErrorString", "hipSetDevice",
                                      "hipGetLastError", "hipPeekAtLastError", "hipGetErrorString"};
  for (size_t i = 0; i < COUNT(names); i++)
    if (strcmp(names[i], name) == 0) return true;
  return code == 801 && strcmp(name, "hipMemPoolCreate") == 0;
}

/* How the driver's own words begin, which a message may not have room for. */
static const char *words_of(int code) {
  enum { BEGINNING = 20 };
  static char words[BEGINNING + 1];
  const char *text = NULL;
  void *ask = driver_symbol(IS_HIP ? "hipGetErrorString" : "cuGetErrorString");
#if IS_HIP
  const char *(*function)(int);
  memcpy(&function, &ask, sizeof function);
  text = function(code);
#else
  int (*function)(int, const char **);
  memcpy(&function, &ask, sizeof function);
  if (function(code, &text) != 0 || text == NULL) text = "unknown to this driver";
#endif
  snprintf(words, sizeof words, "%.*s", BEGINNING, text);
  return words;
}

static void check_message(const scenario *s, const char *name, int code) {
  char number[16];
  if (s->said.driver_code != code) fail_msg("%s:%d came out as %s", name, code, s->said.message);
  snprintf(number, sizeof number, "%d", code);
  if (strcmp(s->said.call, name) != 0) fail_msg("%s:%d came out as of %s", name, code, s->said.call);
  if (strstr(s->said.message, name) == NULL || strstr(s->said.message, number) == NULL)
    fail_msg("%s:%d is not in: %s", name, code, s->said.message);
  if (strstr(s->said.message, words_of(code)) == NULL) fail_msg("%s:%d is told as: %s", name, code, s->said.message);
  const bool remembered = s->rc == MF_EDEVICE && strstr(s->said.message, "kernel") != NULL;
  const bool blamed = s->rc == MF_EINVAL && strstr(s->said.message, "no living stream") != NULL;
  const bool unknown = s->rc == MF_EINVAL && strstr(s->said.message, "does not know") != NULL;
  if (!remembered && !blamed && !unknown && s->rc != expected_status(code))
    fail_msg("%s:%d came out as %d", name, code, s->rc);
}

/* Who cannot wait for a device at all cannot order what the specs free on two of them. */
static bool waits_for_device(const char *name) {
  return strcmp(name, IS_HIP ? "hipDeviceSynchronize" : "cuCtxSynchronize") == 0;
}

/* The nth call of this name fails, or with nth 0 all of them. False once it is not made that often. */
static bool strike(const char *name, int nth, int code) {
  char rule[128];
  void *const before = driver_current();
  if (nth == 0) snprintf(rule, sizeof rule, "%s:%d:on", name, code);
  else snprintf(rule, sizeof rule, "%s@%d:%d", name, nth, code);
  sim_ask_reset();
  sim_ask_fail(rule);
  const scenario s = run();
  const bool struck = sim_ask_faults() > 0;
  if (nth > 0 || !waits_for_device(name)) assert_int_equal(sim_ask_findings(), 0);
  sim_ask_reset();
  if (struck && s.rc == MF_OK && !may_be_silent(name, code)) fail_msg("%s was swallowed", rule);
  if (!struck && s.rc != MF_OK) fail_msg("%s did not strike, but: %s", rule, s.said.message);
  if (s.rc != MF_OK) check_message(&s, name, code);
  assert_ptr_equal(driver_current(), before);
  const scenario after = run();
  if (after.rc != MF_OK && after.rc != MF_EDEVICE) fail_msg("after %s: %s", rule, after.said.message);
  gpu->device_forget(0);
  gpu->device_forget(1);
  expect_clean_driver();
  assert_int_equal(sim_ask_left("pools"), 0);
  assert_ptr_equal(driver_current(), before);
  return struck;
}

#define USED(result, name, params) #name,
#define USED_CUDA(name, version, params) #name,
static const char *const names[] = {
#if IS_HIP
    MF__HIP_REQUIRED(USED) MF__HIP_OPTIONAL(USED)
#else
    MF__CUDA_REQUIRED(USED_CUDA) MF__CUDA_OPTIONAL(USED_CUDA)
#endif
};

static void every_call_fails_in_turn(void **state) {
  int32_t n;
  static const int codes[] = {1, 2, 201, 400, 719, 801, 900, 906, 999};
  int struck = 0;
  (void)state;
  needs_simulator();
  OK(gpu->device_count(&n, &err));
  for (size_t i = 0; i < COUNT(names); i++)
    for (size_t k = 0; k < COUNT(codes); k++)
      for (int nth = 0; nth < 3 && is_drawn(i + k) && strike(names[i], nth, codes[k]); nth++) struck++;
  print_message("%d failures\n", struck);
  assert_true(struck > (is_drawn(0) && is_drawn(1) ? 300 : 90));
}

int main(void) {
  const struct CMUnitTest specs[] = {cmocka_unit_test(every_call_fails_in_turn)};
  return cmocka_run_group_tests(specs, NULL, NULL);
}
