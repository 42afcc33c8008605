/* capture_mode_spec.c: what a backend says of captures, that it gives the thread's mode back, and that forgetting a
 * device breaks none. */
#include "spec.h"

enum { NBYTES = 256 };

static void a_capture_has_a_name(void **state) {
  mf__entered before;
  mf_stream a = 0, b = 0;
  void *event = NULL;
  uint64_t id = 7, same = 0;
  (void)state;
  needs_devices(1);
  OK(gpu->enter(0, &before, &err));
  OK(gpu->stream_create(&a, &err));
  OK(gpu->stream_create(&b, &err));
  OK(gpu->event_create(&event, &err));
  OK(gpu->stream_capture(a, &id, &err));
  assert_int_equal(id, 0);
  capture_start(a, CAPTURE_RELAXED);
  OK(gpu->stream_capture(a, &id, &err));
  assert_int_not_equal(id, 0);
  OK(gpu->stream_capture(b, &same, &err));
  assert_int_equal(same, 0);
  OK(gpu->event_record(event, a, &err));
  OK(gpu->event_wait(event, b, &err));
  OK(gpu->stream_capture(b, &same, &err));
  assert_int_equal(same, id);
  OK(gpu->event_record(event, b, &err));
  OK(gpu->event_wait(event, a, &err));
  assert_int_equal(capture_end(a), 0);
  OK(gpu->event_destroy(event, &err));
  OK(gpu->stream_destroy(a, &err));
  OK(gpu->stream_destroy(b, &err));
  gpu->leave(&before);
}

static void what_a_capture_forbids_is_called_that(void **state) {
  mf__entered before;
  mf_stream s = 0;
  void *p = NULL;
  uint64_t id;
  (void)state;
  needs_devices(1);
  OK(gpu->enter(0, &before, &err));
  OK(gpu->stream_create(&s, &err));
  capture_start(s, CAPTURE_GLOBAL);
  FAILS(gpu->stream_synchronize(s, &err), MF_ECAPTURE);
  FAILS(gpu->stream_capture(s, &id, &err), MF_ECAPTURE);
  SAYS("broken");
  assert_int_not_equal(capture_end(s), 0);
  sim_ask_reset();
  capture_start(s, CAPTURE_GLOBAL);
  OK(gpu->capture_relax(true, &err));
  OK(gpu->capture_relax(true, &err));
  OK(gpu->memory_alloc(MF__PINNED, NBYTES, s, &p, &err));
  OK(gpu->memory_free(MF__PINNED, p, s, &err));
  OK(gpu->capture_relax(false, &err));
  OK(gpu->memory_alloc(MF__PINNED, NBYTES, s, &p, &err));
  OK(gpu->memory_free(MF__PINNED, p, s, &err));
  OK(gpu->capture_relax(false, &err));
  FAILS(gpu->memory_alloc(MF__PINNED, NBYTES, s, &p, &err), MF_ECAPTURE);
  (void)capture_end(s);
  sim_ask_reset();
  OK(gpu->memory_alloc(MF__PINNED, NBYTES, s, &p, &err));
  OK(gpu->memory_free(MF__PINNED, p, s, &err));
  OK(gpu->stream_destroy(s, &err));
  gpu->leave(&before);
}

/* A driver that does not give a thread's mode back at once is asked again, at the latest with the next pair. */
static void a_mode_that_stayed_is_given_back_later(void **state) {
  mf__entered before;
  mf_stream s = 0;
  void *p = NULL;
  (void)state;
  needs_devices(1);
  needs_simulator();
  OK(gpu->enter(0, &before, &err));
  OK(gpu->stream_create(&s, &err));
  for (int always = 0; always < 2; always++) {
    const char *name = IS_HIP ? "hipThreadExchangeStreamCaptureMode" : "cuThreadExchangeStreamCaptureMode";
    char rule[96];
    sim_ask_reset();
    snprintf(rule, sizeof rule, "%s@2:999:%s", name, always ? "on" : "once");
    sim_ask_fail(rule);
    OK(gpu->capture_relax(true, &err));
    FAILS(gpu->capture_relax(false, &err), MF_EDRIVER);
    sim_ask_reset();
    if (always) OK(gpu->capture_relax(true, &err));
    if (always) OK(gpu->capture_relax(false, &err));
    capture_start(s, CAPTURE_GLOBAL);
    FAILS(gpu->memory_alloc(MF__PINNED, NBYTES, s, &p, &err), MF_ECAPTURE); /* as in the mode that was */
    (void)capture_end(s);
  }
  sim_ask_reset();
  OK(gpu->stream_destroy(s, &err));
  gpu->leave(&before);
}

/* The legacy stream cannot say anything while a stream that it would wait for is captured; asking breaks nothing. */
static void the_legacy_stream_answers_for_blocking_ones(void **state) {
  int (*create)(void **, unsigned);
  mf__entered before;
  void *blocking = NULL;
  uint64_t id = 7;
  (void)state;
  needs_devices(1);
  *(void **)&create = driver_symbol(IS_HIP ? "hipStreamCreateWithFlags" : "cuStreamCreate");
  OK(gpu->enter(0, &before, &err));
  assert_int_equal(create(&blocking, 0), 0);
  OK(gpu->stream_capture(MF_STREAM_DEFAULT, &id, &err));
  assert_int_equal(id, 0);
  capture_start((mf_stream)(intptr_t)blocking, CAPTURE_RELAXED);
  FAILS(gpu->stream_capture(MF_STREAM_DEFAULT, &id, &err), MF_ECAPTURE);
  assert_int_equal(id, 0);
  OK(gpu->stream_capture((mf_stream)(intptr_t)blocking, &id, &err));
  assert_int_not_equal(id, 0);
  assert_int_equal(capture_end((mf_stream)(intptr_t)blocking), 0);
  sim_ask_reset();
  OK(gpu->stream_destroy((mf_stream)(intptr_t)blocking, &err));
  gpu->leave(&before);
}

/* Forgetting a device is in nobody's capture and breaks none; where a call fails that it begins with, the device is as
 * it was, and is forgotten the next time. */
static void make_what_is_forgotten(void) {
  mf__entered before;
  void *p = NULL, *event = NULL;
  bool done;
  OK(gpu->enter(0, &before, &err));
  OK(gpu->memory_alloc(MF__DEVICE, NBYTES, MF_STREAM_PER_THREAD, &p, &err));
  OK(gpu->memory_free(MF__DEVICE, p, MF_STREAM_PER_THREAD, &err));
  OK(gpu->stream_synchronize(MF_STREAM_PER_THREAD, &err));
  OK(gpu->event_create(&event, &err));
  OK(gpu->event_record(event, MF_STREAM_PER_THREAD, &err));
  OK(gpu->event_query(event, &done, &err)); /* by a stream of ours on HIP */
  OK(gpu->event_destroy(event, &err));
  OK(gpu->stream_synchronize(MF_STREAM_PER_THREAD, &err));
  gpu->leave(&before);
}

static void forgetting_a_device_breaks_no_capture(void **state) {
  static const char *const rules[] = {
      IS_HIP ? "hipGetDevice:999" : "cuCtxGetCurrent:999",
      IS_HIP ? "hipThreadExchangeStreamCaptureMode:999" : "cuThreadExchangeStreamCaptureMode:999",
  };
  mf__entered before;
  mf_stream s = 0;
  (void)state;
  needs_devices(2);
  OK(gpu->enter(1, &before, &err));
  OK(gpu->stream_create(&s, &err));
  make_what_is_forgotten();
  void *const here = driver_current();
  capture_start(s, CAPTURE_GLOBAL);
  for (size_t i = 0; i < COUNT(rules) && simulated(); i++) {
    sim_ask_reset();
    sim_ask_fail(rules[i]);
    gpu->device_forget(0);
    assert_int_equal(sim_ask_faults(), 1);
    sim_ask_reset();
    assert_int_equal(sim_ask_left("pools"), 1);
    assert_true(mf__device_used(gpu, 0));
    assert_ptr_equal(driver_current(), here);
  }
  gpu->device_forget(0);
  assert_int_equal(sim_ask_left("pools"), 0);
  assert_false(mf__device_used(gpu, 0));
  assert_ptr_equal(driver_current(), here);
  assert_int_equal(capture_end(s), 0);
  OK(gpu->stream_destroy(s, &err));
  gpu->leave(&before);
}

#if IS_HIP
static void a_stream_of_ours_that_cannot_be_ended_leaves_no_error(void **state) {
  (void)state;
  needs_devices(1);
  needs_simulator();
  make_what_is_forgotten();
  sim_ask_reset();
  sim_ask_fail("hipStreamDestroy:999,hipMemPoolDestroy:999");
  gpu->device_forget(0);
  assert_int_equal(sim_ask_faults(), 2);
  assert_int_equal(driver_last_error(), 0);
}
#endif

int main(void) {
#define SPEC(name) cmocka_unit_test_teardown(name, forget_all)
  const struct CMUnitTest specs[] = {
      SPEC(a_capture_has_a_name),
      SPEC(what_a_capture_forbids_is_called_that),
      SPEC(a_mode_that_stayed_is_given_back_later),
      SPEC(the_legacy_stream_answers_for_blocking_ones),
      SPEC(forgetting_a_device_breaks_no_capture),
#if IS_HIP
      SPEC(a_stream_of_ours_that_cannot_be_ended_leaves_no_error),
#endif
  };
  return cmocka_run_group_tests(specs, NULL, NULL);
}
