/* step_spec.c: single steps of order that only a rare sequence of uses shows: each spec here notices that one step is
 * left out of the runtime (specs/mutants). Under every seed (MOONFERRY_SPEC_SEEDS, 10 if it is not set) nothing is
 * unordered and the bytes are right. */
#include "use.h"

static uint64_t seeds(void) {
  const char *text = getenv("MOONFERRY_SPEC_SEEDS");
  return text == NULL ? 10 : strtoull(text, NULL, 10);
}

static DLManagedTensorVersioned *give(mf_tensor *t, mf_stream stream) {
  const mf_request request = {.stream = stream};
  DLManagedTensorVersioned *given;
  OK(mf_tensor_export_to(t, &request, &given, &err));
  return given;
}

typedef struct scene {
  mf_stream ours;
  int64_t theirs;
  unsigned char *seen;
  mf_tensor *t, *constant;
} scene;

static scene scene_open(void) {
  scene s = {.ours = use_new_stream(0), .theirs = other_stream(0, false), .seen = other_pinned(NBYTES)};
  use_stream(0, s.ours);
  s.t = use_create(gpu_device(0));
  use_fill(s.t, 1);
  OK(mf_tensor_readonly(s.t, &s.constant, &err));
  return s;
}

static void scene_close(scene *s) {
  const DLDevice device = gpu_device(0);
  mf_tensor_release(s->constant);
  mf_tensor_release(s->t);
  OK(mf_device_synchronize(&device, &err));
  use_stream(0, MF_STREAM_DEFAULT);
  other_stream_end(s->theirs);
  use_end_stream(0, s->ours);
  other_pinned_free(s->seen);
}

static void expect_seen(const scene *s, int want) {
  for (int i = 0; i < NBYTES; i++) assert_int_equal(s->seen[i], want);
}

static void each_seed(void (*play)(scene *s)) {
  for (uint64_t seed = 0; seed < seeds(); seed++) {
    sim_ask_seed(seed);
    scene s = scene_open();
    play(&s);
    scene_close(&s);
    if (sim_ask_findings() != 0) fail_msg("seed %llu", (unsigned long long)seed);
  }
}

/* A stream that was left and comes again to read brings its earlier write along. */
static void comes_again(scene *s) {
  DLManagedTensorVersioned *given = give(s->t, s->theirs);
  other_fill(0, given->dl_tensor.data, 2, NBYTES, s->theirs);
  given->deleter(given);
  OK(mf_tensor_acquire(s->t, s->theirs, MF_READ, &err));
  OK(mf_tensor_acquire(s->t, s->ours, MF_READ, &err));
  other_copy(0, s->seen, use_data(s->t), NBYTES, s->ours);
  other_sync(0, s->ours);
  expect_seen(s, 2);
}

static void what_a_stream_wrote_before_it_came_again(void **state) {
  (void)state;
  each_seed(comes_again);
}

/* A reader whose stream wrote meanwhile is a reader again until its deleter was called. */
static void reads_on(scene *s) {
  DLManagedTensorVersioned *given = give(s->constant, s->theirs);
  OK(mf_tensor_acquire(s->t, s->theirs, MF_WRITE, &err));
  other_fill(0, use_data(s->t), 2, NBYTES, s->theirs);
  OK(mf_tensor_acquire(s->t, s->ours, MF_READ, &err));
  other_copy(0, s->seen, given->dl_tensor.data, NBYTES, s->theirs);
  given->deleter(given);
  use_fill(s->t, 3);
  use_expect(s->t, 3);
  other_sync(0, s->theirs);
  expect_seen(s, 2);
}

static void a_reader_that_wrote_meanwhile_reads_on(void **state) {
  (void)state;
  each_seed(reads_on);
}

/* A name cannot vanish, so that a consumer that is done with it leaves nothing to be marked. */
static void the_per_thread_stream_is_left_without_a_call(void **state) {
  (void)state;
  scene s = scene_open();
  DLManagedTensorVersioned *given = give(s.t, MF_STREAM_PER_THREAD);
  sim_ask_reset();
  given->deleter(given);
  assert_int_equal(sim_ask_calls(NULL), 0);
  scene_close(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      USE(what_a_stream_wrote_before_it_came_again),
      USE(a_reader_that_wrote_meanwhile_reads_on),
      USE(the_per_thread_stream_is_left_without_a_call),
  };
  return other_open() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
