/* context_spec.c: what a backend leaves alone (the caller's context or device, HIP's last error), and what it says of
 * streams that are not its own. */
#include "spec.h"

#include <pthread.h>

enum { NBYTES = 256 };

/* The caller works on device 1 while ours is 0. */
static void *go_elsewhere(void) {
  if (IS_HIP) {
    assert_int_equal(driver_call("hipSetDevice", (void *)1), 0);
    return driver_current();
  }
  int (*retain)(void **, int);
  void *context = NULL;
  *(void **)&retain = driver_symbol("cuDevicePrimaryCtxRetain");
  assert_int_equal(retain(&context, 1), 0);
  assert_int_equal(driver_call("cuCtxPushCurrent_v2", context), 0);
  return context;
}

static void come_back(void) {
  void *popped;
  int (*release)(int);
  if (IS_HIP) {
    assert_int_equal(driver_call("hipSetDevice", NULL), 0);
    return;
  }
  assert_int_equal(driver_call("cuCtxPopCurrent_v2", &popped), 0);
  *(void **)&release = driver_symbol("cuDevicePrimaryCtxRelease_v2");
  assert_int_equal(release(1), 0);
}

/* Nested, on other devices, and back: each level finds what it left. */
static void the_callers_context_stays(void **state) {
  mf__entered outer, inner;
  (void)state;
  needs_devices(2);
  void *const at_first = driver_current();
  OK(gpu->enter(0, &outer, &err));
  gpu->leave(&outer);
  assert_ptr_equal(driver_current(), at_first);
  void *const elsewhere = go_elsewhere();
  OK(gpu->enter(0, &outer, &err));
  void *const ours = driver_current();
  assert_ptr_not_equal(ours, elsewhere);
  OK(gpu->enter(1, &inner, &err));
  assert_ptr_equal(driver_current(), elsewhere);
  gpu->leave(&inner);
  assert_ptr_equal(driver_current(), ours);
  gpu->leave(&outer);
  assert_ptr_equal(driver_current(), elsewhere);
  come_back();
  assert_ptr_equal(driver_current(), at_first);
  assert_int_equal(sim_ask_left("contexts"), 0);
}

/* Where the device is already current, nothing is pushed and nothing set. */
static void what_is_current_is_not_made_so(void **state) {
  mf__entered outer, inner;
  (void)state;
  needs_devices(1);
  OK(gpu->enter(0, &outer, &err));
  sim_ask_reset();
  OK(gpu->enter(0, &inner, &err));
  gpu->leave(&inner);
  assert_int_equal(sim_ask_calls(NULL), simulated() ? 1 : 0);
  gpu->leave(&outer);
}

static void a_failure_does_not_move_the_caller(void **state) {
  static const char *const rules[] = {
      "cuCtxPushCurrent:999", "cuCtxPushCurrent:999:late", "cuCtxPopCurrent:999", "cuCtxPopCurrent:999:late",
      "cuCtxGetCurrent:999", "hipSetDevice:999", "hipSetDevice:999:late", "hipSetDevice@2:999", "hipGetDevice:999",
  };
  mf__entered before;
  (void)state;
  needs_devices(2);
  needs_simulator();
  void *const elsewhere = go_elsewhere();
  for (size_t i = 0; i < COUNT(rules); i++) {
    sim_ask_reset();
    sim_ask_fail(rules[i]);
    if (gpu->enter(0, &before, &err) == MF_OK) gpu->leave(&before);
    sim_ask_reset();
    if (driver_current() != elsewhere) fail_msg("%s moved the caller", rules[i]);
    assert_int_equal(driver_last_error(), 0);
    OK(gpu->enter(0, &before, &err));
    gpu->leave(&before);
    assert_ptr_equal(driver_current(), elsewhere);
  }
  come_back();
  assert_int_equal(sim_ask_left("contexts"), 0);
}

#if IS_HIP
/* The program's own check must not see what went wrong in here. */
static void no_error_of_ours_stays_behind(void **state) {
  mf__entered before;
  mf__space space;
  int32_t ordinal, local = 0;
  bool done = true;
  mf_stream s = 0;
  void *host = NULL, *never = NULL;
  (void)state;
  (void)driver_last_error();
  OK(gpu->enter(0, &before, &err));
  FAILS(gpu->memory_find(&local, &space, &ordinal, &err), MF_EINVAL);
  assert_int_equal(driver_last_error(), 0);
  FAILS(gpu->memory_alloc(MF__DEVICE, INT64_MAX, MF_STREAM_DEFAULT, &never, &err), MF_ENOMEM);
  FAILS(gpu->memory_alloc(MF__MANAGED, NBYTES, MF_STREAM_DEFAULT, &never, &err), MF_EDEVICE);
  OK(gpu->stream_create(&s, &err));
  OK(gpu->memory_alloc(MF__PINNED, NBYTES, s, &host, &err));
  const mf__block_copy job = {.dst = host, .width = NBYTES, .height = 1, .depth = 1};
  for (int i = 0; i < 300; i++) OK(gpu->fill(&job, 1, 1, s, &err)); /* that to ask does not finish it, as it may */
  OK(gpu->stream_query(s, &done, &err));
  if (simulated()) assert_false(done);
  assert_int_equal(driver_last_error(), 0);
  OK(gpu->stream_synchronize(s, &err));
  OK(gpu->memory_free(MF__PINNED, host, s, &err));
  OK(gpu->stream_destroy(s, &err));
  assert_int_equal(driver_last_error(), 0);
  gpu->leave(&before);
}
#else
static void a_stream_of_another_context_is_refused(void **state) {
  int (*create)(void **, unsigned, int), (*new_stream)(void **, unsigned);
  void *context = NULL, *foreign = NULL;
  mf__entered before;
  int32_t ordinal;
  (void)state;
  needs_devices(1);
  *(void **)&create = driver_symbol("cuCtxCreate_v2");
  *(void **)&new_stream = driver_symbol("cuStreamCreate");
  assert_int_equal(create(&context, 0, 0), 0);
  assert_int_equal(new_stream(&foreign, 1), 0);
  OK(gpu->enter(0, &before, &err));
  const int64_t retained = sim_ask_left("retains");
  FAILS(gpu->stream_device((mf_stream)(intptr_t)foreign, &ordinal, &err), MF_EINVAL);
  SAYS("not a device's primary");
  assert_int_equal(sim_ask_left("retains"), retained); /* no context was made to compare with */
  gpu->leave(&before);
  assert_ptr_equal(driver_current(), context);
  assert_int_equal(driver_call("cuStreamDestroy_v2", foreign), 0);
  assert_int_equal(driver_call("cuCtxDestroy_v2", context), 0); /* and it is popped */
}
#endif

#if !IS_HIP
/* Calls about no device in particular go to the calling thread's, whoever's context it has. */
static void the_current_device_is_the_callers(void **state) {
  int (*create)(void **, unsigned, int);
  mf__entered before;
  int32_t ordinal = -1;
  void *context = NULL;
  (void)state;
  needs_devices(2);
  for (int32_t i = 0; i < 2; i++) {
    OK(gpu->enter(i, &before, &err));
    OK(gpu->device_current(&ordinal, &err));
    assert_int_equal(ordinal, i);
    gpu->leave(&before);
  }
  OK(gpu->device_current(&ordinal, &err));
  assert_int_equal(ordinal, 0);
  *(void **)&create = driver_symbol("cuCtxCreate_v2");
  for (int i = 1; i >= 0; i--) {
    static const char *const rules[] = {"cuCtxGetCurrent:999", "cuCtxGetDevice:999", "cuCtxGetCurrent:400"};
    assert_int_equal(create(&context, 0, i), 0);
    OK(gpu->device_current(&ordinal, &err));
    assert_int_equal(ordinal, i);
    for (size_t k = 0; k < COUNT(rules) && simulated(); k++) {
      sim_ask_reset();
      sim_ask_fail(rules[k]);
      FAILS(gpu->device_current(&ordinal, &err), MF_EDRIVER);
      sim_ask_reset();
    }
    assert_int_equal(driver_call("cuCtxDestroy_v2", context), 0);
  }
}

static void a_failure_without_words_is_told_all_the_same(void **state) {
  mf__entered before;
  (void)state;
  needs_devices(1);
  needs_simulator();
  OK(gpu->enter(0, &before, &err));
  sim_ask_fail("cuGetErrorString:999:once,cuStreamSynchronize:999:once");
  FAILS(gpu->stream_synchronize(MF_STREAM_DEFAULT, &err), MF_EDRIVER);
  SAYS("cuStreamSynchronize answered 999: unknown to this driver");
  assert_int_equal(sim_ask_faults(), 2);
  sim_ask_reset();
  gpu->leave(&before);
}

static void a_device_that_another_library_has_reset_says_so(void **state) {
  mf__entered before;
  (void)state;
  needs_devices(2);
  needs_simulator();
  void *const elsewhere = go_elsewhere();
  sim_ask_fail("cuCtxPushCurrent:709:once");
  FAILS(gpu->enter(0, &before, &err), MF_EDRIVER);
  SAYS("cuCtxPushCurrent answered 709: another library has reset the device, which is lost to this process");
  assert_int_equal(sim_ask_faults(), 1);
  assert_ptr_equal(driver_current(), elsewhere);
  sim_ask_reset();
  come_back();
}

/* What a driver has done although it answers with a failure, or has not done: the spec does it for the simulated one,
 * when that is asked for the context that it has now. */
static void *pushed;
static int pushes;

static void push_once_more(void *unused) {
  (void)unused;
  for (int i = 0; i < pushes; i++) assert_int_equal(driver_call("cuCtxPushCurrent_v2", pushed), 0);
}

static void the_context_is_restored_whatever_was_done(void **state) {
  mf__entered before;
  void *popped;
  (void)state;
  needs_devices(2);
  needs_simulator();
  OK(gpu->enter(0, &before, &err));
  pushed = driver_current();
  gpu->leave(&before);
  void *const elsewhere = go_elsewhere();
  const int64_t depth = sim_ask_left("contexts");
  for (pushes = 0; pushes <= 2; pushes++) {
    sim_ask_reset();
    sim_ask_fail("cuCtxPushCurrent:999:once");
    sim_ask_at("cuCtxGetCurrent", 2, push_once_more);
    FAILS(gpu->enter(0, &before, &err), MF_EDRIVER);
    sim_ask_at(NULL, 0, NULL);
    assert_ptr_equal(driver_current(), elsewhere);
    if (pushes == 2) assert_int_equal(driver_call("cuCtxPopCurrent_v2", &popped), 0);
    assert_int_equal(sim_ask_left("contexts"), depth);
    sim_ask_reset();
    OK(gpu->enter(0, &before, &err));
    sim_ask_fail("cuCtxPopCurrent:999:once");
    sim_ask_at("cuCtxGetCurrent", 1, push_once_more);
    gpu->leave(&before);
    sim_ask_at(NULL, 0, NULL);
    assert_ptr_equal(driver_current(), elsewhere);
    if (pushes == 2) assert_int_equal(driver_call("cuCtxPopCurrent_v2", &popped), 0);
    assert_int_equal(sim_ask_left("contexts"), depth);
  }
  sim_ask_reset();
  come_back();
}

/* The driver does not even say which context is current, as often as it is asked: a call that one rule fails does not
 * count for the next. An enter asks once before. */
#define UNKNOWN_FROM(n) "cuCtxGetCurrent@" n ":999:once"
#define UNKNOWN(n) UNKNOWN_FROM(n) "," UNKNOWN_FROM(n) "," UNKNOWN_FROM(n)
#define UNKNOWN_TO_LEAVE UNKNOWN("1")
#define UNKNOWN_TO_ENTER UNKNOWN("2")

/* Where the program has none, nothing is popped. */
static void of_no_context_none_is_popped(void **state) {
  mf__entered before;
  (void)state;
  needs_simulator();
  OK(gpu->enter(0, &before, &err));
  gpu->leave(&before);
  assert_null(driver_current());
  sim_ask_fail("cuCtxPushCurrent:999:once," UNKNOWN_TO_ENTER);
  FAILS(gpu->enter(0, &before, &err), MF_EDRIVER);
  sim_ask_reset();
  OK(gpu->enter(0, &before, &err));
  sim_ask_fail("cuCtxPopCurrent:999:once," UNKNOWN_TO_LEAVE);
  gpu->leave(&before);
  assert_int_equal(sim_ask_faults(), 4);
  assert_int_equal(sim_ask_findings(), 0);
  sim_ask_reset();
  assert_null(driver_current());
}

/* What the caller has below its own stays, too, also where that does not go back at once. */
static void unknown_contexts_are_not_dropped(void **state) {
  mf__entered before;
  void *popped;
  (void)state;
  needs_devices(2);
  needs_simulator();
  OK(gpu->enter(0, &before, &err));
  pushed = driver_current();
  gpu->leave(&before);
  assert_int_equal(driver_call("cuCtxPushCurrent_v2", pushed), 0);
  void *const elsewhere = go_elsewhere();
  const int64_t depth = sim_ask_left("contexts");
  for (int i = 0; i < 8; i++) {
    const bool enters = i < 4, fails_again = i & 2;
    char again[40];
    pushes = i % 2;
    (void)snprintf(again, sizeof again, "cuCtxPushCurrent@%d:999:once", 1 + pushes);
    sim_ask_reset();
    if (!enters) OK(gpu->enter(0, &before, &err));
    sim_ask_fail(enters ? "cuCtxPushCurrent:999:once," UNKNOWN_TO_ENTER : "cuCtxPopCurrent:999:once," UNKNOWN_TO_LEAVE);
    if (fails_again) sim_ask_fail(again);
    sim_ask_at("cuCtxGetCurrent", enters ? 2 : 1, push_once_more);
    if (enters) FAILS(gpu->enter(0, &before, &err), MF_EDRIVER);
    else gpu->leave(&before);
    sim_ask_at(NULL, 0, NULL);
    assert_int_equal(sim_ask_faults(), fails_again && pushes == 0 ? 5 : 4);
    sim_ask_reset();
    assert_ptr_equal(driver_current(), elsewhere);
    assert_int_equal(sim_ask_left("contexts"), depth);
  }
  come_back();
  assert_ptr_equal(driver_current(), pushed);
  assert_int_equal(driver_call("cuCtxPopCurrent_v2", &popped), 0);
}

/* One that was popped goes back once: where its push fails and has pushed, where nobody says that it is there, and
 * where it fails for good (then it takes the place of the one below). */
static void a_popped_context_goes_back_once(void **state) {
  static const struct {
    const char *rules;
    unsigned push, lost; /* the call that has pushed although it fails, and how many contexts the caller has fewer */
  } cases[] = {
      {"cuCtxPushCurrent:999:once,cuCtxPushCurrent@2:999:once," UNKNOWN_TO_ENTER, 2, 0},
      {"cuCtxPushCurrent:999:once,cuCtxGetCurrent@2:999:on", 0, 0},
      {"cuCtxPushCurrent:999:on," UNKNOWN_TO_ENTER, 0, 1},
  };
  mf__entered before;
  void *popped;
  (void)state;
  needs_devices(2);
  needs_simulator();
  OK(gpu->enter(0, &before, &err));
  void *const below = driver_current();
  gpu->leave(&before);
  for (size_t i = 0; i < COUNT(cases); i++) {
    assert_int_equal(driver_call("cuCtxPushCurrent_v2", below), 0);
    void *const elsewhere = go_elsewhere();
    pushed = elsewhere;
    pushes = 1;
    sim_ask_reset();
    sim_ask_fail(cases[i].rules);
    if (cases[i].push > 0) sim_ask_at("cuCtxPushCurrent", cases[i].push, push_once_more);
    FAILS(gpu->enter(0, &before, &err), MF_EDRIVER);
    sim_ask_at(NULL, 0, NULL);
    sim_ask_reset();
    assert_ptr_equal(driver_current(), elsewhere);
    come_back();
    assert_ptr_equal(driver_current(), cases[i].lost ? NULL : below);
    if (!cases[i].lost) assert_int_equal(driver_call("cuCtxPopCurrent_v2", &popped), 0);
    assert_null(driver_current());
  }
}

/* Nothing else is asked of a device that cannot be had, and nothing is kept: the next use finds it. */
static void a_device_that_is_not_had_says_so(void **state) {
  mf__entered before;
  (void)state;
  needs_devices(1);
  needs_simulator();
  const int64_t retained = sim_ask_left("retains");
  sim_ask_fail("cuDeviceGet:999:once");
  FAILS(gpu->enter(0, &before, &err), MF_EDRIVER);
  SAYS("cuDeviceGet answered 999");
  sim_ask_reset();
  assert_int_equal(sim_ask_left("retains"), retained);
  assert_null(driver_current());
  OK(gpu->enter(0, &before, &err));
  gpu->leave(&before);
}
#endif

/* Threads that enter at once, each on its own device, see their own. */
static void *enter_often(void *argument) {
  const int32_t ordinal = *(const int32_t *)argument;
  mf__entered before;
  mf_error own;
  for (int i = 0; i < 50; i++) {
    void *p = NULL;
    mf__space space;
    int32_t found = -1;
    if (gpu->enter(ordinal, &before, &own) != MF_OK) return argument;
    const int rc = gpu->memory_alloc(MF__DEVICE, NBYTES, MF_STREAM_PER_THREAD, &p, &own);
    if (rc != MF_OK || gpu->memory_find(p, &space, &found, &own) != MF_OK || found != ordinal) return argument;
    if (gpu->memory_free(MF__DEVICE, p, MF_STREAM_PER_THREAD, &own) != MF_OK) return argument;
    if (gpu->stream_synchronize(MF_STREAM_PER_THREAD, &own) != MF_OK) return argument;
    gpu->leave(&before);
  }
  return NULL;
}

static void threads_have_their_own_device(void **state) {
  enum { NTHREADS = 4 };
  pthread_t threads[NTHREADS];
  static int32_t ordinals[NTHREADS] = {0, 1, 0, 1};
  void *failed = NULL;
  (void)state;
  needs_devices(2);
  for (int i = 0; i < NTHREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, enter_often, &ordinals[i]), 0);
  for (int i = 0; i < NTHREADS; i++) {
    assert_int_equal(pthread_join(threads[i], &failed), 0);
    assert_null(failed);
  }
}

int main(void) {
#define SPEC(name) cmocka_unit_test_teardown(name, forget_all)
  const struct CMUnitTest specs[] = {
#if !IS_HIP
      SPEC(a_device_that_is_not_had_says_so), /* the process's first use of it */
#endif
      SPEC(the_callers_context_stays),
      SPEC(what_is_current_is_not_made_so),
      SPEC(a_failure_does_not_move_the_caller),
#if IS_HIP
      SPEC(no_error_of_ours_stays_behind),
#else
      SPEC(a_stream_of_another_context_is_refused),
      SPEC(the_current_device_is_the_callers),
      SPEC(a_failure_without_words_is_told_all_the_same),
      SPEC(a_device_that_another_library_has_reset_says_so),
      SPEC(the_context_is_restored_whatever_was_done),
      SPEC(of_no_context_none_is_popped),
      SPEC(unknown_contexts_are_not_dropped),
      SPEC(a_popped_context_goes_back_once),
#endif
      SPEC(threads_have_their_own_device),
  };
  return cmocka_run_group_tests(specs, NULL, NULL);
}
