/* stage_spec.c: the pinned buffers that large copies of pageable memory go through, where the driver fails: none is used
 * again while queued work may still use it, and each is had back once that is known to be done. */
#include "api.h"

enum { NBYTES = 1 << 20, BUFFERS = 4 };

typedef struct scene {
  mf_tensor *host, *there;
} scene;

static scene open_scene(void) {
  return (scene){create((DLDevice){kDLCPU, 0}, NBYTES), create(gpu(0), NBYTES)};
}

static int upload(const scene *s, int byte) {
  memset(data_of(s->host), byte, NBYTES);
  return mf_tensor_copy(s->there, s->host, &err);
}

static void close_scene(scene *s) {
  mf_tensor_release(s->host);
  mf_tensor_release(s->there);
}

static void fail_from_now_on(const char *cuda, const char *hip, const char *how) {
  char rule[64];
  snprintf(rule, sizeof rule, "%s:999:%s", named(cuda, hip), how);
  sim_ask_fail(rule);
}

static void end_failures(void) {
  assert_true(sim_ask_faults() > 0);
  assert_int_equal(sim_ask_findings(), 0);
  sim_ask_reset();
}

/* No event stands behind the copy, and the stream cannot be waited for. */
static void lose_a_buffer(const scene *s) {
  fail_from_now_on("cuEventRecord", "hipEventRecord", "on");
  fail_from_now_on("cuStreamSynchronize", "hipStreamSynchronize", "on");
  REFUSED(upload(s, 1), MF_EDRIVER, "EventRecord");
  end_failures();
}

/* Each copy loses one: the next takes another, and at last there is none to have until the device was waited for. */
static void what_is_lost_comes_back_with_the_device(void **state) {
  (void)state;
  ONLY_SIMULATED
  scene s = open_scene();
  for (int i = 0; i < BUFFERS - 1; i++) lose_a_buffer(&s);
  for (int i = 0; i < 3; i++) OK(upload(&s, 2));
  synchronize();
  for (int i = 0; i < BUFFERS; i++) OK(upload(&s, 3));
  synchronize();
  trim_all();
  for (int i = 0; i < BUFFERS; i++) lose_a_buffer(&s);
  REFUSED(upload(&s, 4), MF_EDRIVER, "mf_device_synchronize");
  trim(gpu(0)); /* which keeps them */
  REFUSED(upload(&s, 4), MF_EDRIVER, "mf_device_synchronize");
  synchronize();
  OK(upload(&s, 5));
  expect_filled(s.there, 5);
  close_scene(&s);
}

/* A wait for an earlier device's work says nothing of what was queued since. */
static void a_lost_buffer_needs_a_later_wait(void **state) {
  (void)state;
  ONLY_SIMULATED
  scene s = open_scene();
  synchronize();
  trim_all();
  for (int i = 0; i < BUFFERS; i++) lose_a_buffer(&s);
  REFUSED(upload(&s, 4), MF_EDRIVER, "mf_device_synchronize");
  synchronize();
  trim(gpu(0));
  assert_int_equal(sim_ask_left("memory"), NBYTES); /* of the tensor */
  close_scene(&s);
}

/* The stream could be waited for: the buffer is free at once. */
static void where_no_event_can_be_recorded_the_host_waits(void **state) {
  (void)state;
  ONLY_SIMULATED
  scene s = open_scene();
  for (int i = 0; i < 2 * BUFFERS; i++) {
    fail_from_now_on("cuEventRecord", "hipEventRecord", "once");
    REFUSED(upload(&s, i), MF_EDRIVER, "EventRecord");
    end_failures();
  }
  OK(upload(&s, 7));
  expect_filled(s.there, 7);
  close_scene(&s);
}

/* All buffers are in use: a copy that cannot wait for one fails, and so does not take it from those that use it. */
static void a_wait_that_fails_frees_no_buffer(void **state) {
  (void)state;
  ONLY_SIMULATED
  scene s = open_scene();
  for (int i = 0; i < BUFFERS; i++) OK(upload(&s, i));
  for (int i = 0; i < BUFFERS; i++) {
    fail_from_now_on("cuEventSynchronize", "hipStreamSynchronize", "once");
    REFUSED(upload(&s, 8), MF_EDRIVER, "Synchronize");
    end_failures();
  }
  for (int i = 0; i < BUFFERS; i++) OK(upload(&s, 9));
  expect_filled(s.there, 9);
  close_scene(&s);
}

/* Nothing of a buffer that could not be made stays behind, and the next copy makes it. */
static void a_buffer_that_cannot_be_made_is_made_later(void **state) {
  (void)state;
  ONLY_SIMULATED
  scene s = open_scene();
  trim_all(); /* no event is kept */
  fail_from_now_on("cuEventCreate", "hipEventCreateWithFlags", "once");
  REFUSED(upload(&s, 1), MF_EDRIVER, "EventCreate");
  end_failures();
  assert_int_equal(sim_ask_left("memory"), NBYTES);
  OK(upload(&s, 6));
  expect_filled(s.there, 6);
  close_scene(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(what_is_lost_comes_back_with_the_device),
      SPEC(a_lost_buffer_needs_a_later_wait),
      SPEC(where_no_event_can_be_recorded_the_host_waits),
      SPEC(a_wait_that_fails_frees_no_buffer),
      SPEC(a_buffer_that_cannot_be_made_is_made_later),
  };
  return RUN(tests);
}
