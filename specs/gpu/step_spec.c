/* step_spec.c: single steps of order that only a rare sequence of uses shows: each spec here notices that one step is
 * left out of the runtime (specs/mutants). Under every seed (MOONFERRY_SPEC_SEEDS, 10 if it is not set) nothing is
 * unordered and the bytes are right. */
#include "device.h"

enum { NBYTES = 1024 };

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
  scene s = {.ours = stream_new(0), .theirs = other_stream(0, false), .seen = other_pinned(NBYTES)};
  use_stream(0, s.ours);
  s.t = create(gpu(0), NBYTES);
  fill(s.t, 1);
  OK(mf_tensor_as_readonly(s.t, &s.constant, &err));
  return s;
}

static void scene_close(scene *s) {
  const DLDevice device = gpu(0);
  mf_tensor_release(s->constant);
  mf_tensor_release(s->t);
  OK(mf_device_synchronize(&device, &err));
  use_stream(0, MF_STREAM_DEFAULT);
  other_stream_end(s->theirs);
  stream_end(0, s->ours);
  other_pinned_free(s->seen);
}

static void expect_seen(const scene *s, int want) {
  for (int i = 0; i < NBYTES; i++) assert_int_equal(s->seen[i], want);
}

static void each_seed(void (*play)(scene *s)) {
  for (uint64_t seed = 0; seed < seeds(10); seed++) {
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
  other_copy(0, s->seen, data_of(s->t), NBYTES, s->ours);
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
  other_fill(0, data_of(s->t), 2, NBYTES, s->theirs);
  OK(mf_tensor_acquire(s->t, s->ours, MF_READ, &err));
  other_copy(0, s->seen, given->dl_tensor.data, NBYTES, s->theirs);
  given->deleter(given);
  fill(s->t, 3);
  expect_filled(s->t, 3);
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

/* An event that has to be made for a wait is made on the right device, and the program's own stays current. */
static void a_wait_without_a_kept_event_leaves_no_context(void **state) {
  const DLDevice device = gpu(0);
  (void)state;
  const mf_stream ours = stream_new(0);
  const int64_t theirs = other_stream(0, false);
  give_all_back(); /* no event is kept */
  other_current_set(-1);
  void *before = other_current();
  OK(mf_stream_wait(&device, ours, &device, theirs, &err));
  assert_ptr_equal(other_current(), before);
  assert_int_equal(sim_ask_left("contexts"), 0);
  other_stream_end(theirs);
  stream_end(0, ours);
}

/* More events come back at once than are kept: the rest is destroyed. */
static void events_that_are_not_kept_leave_no_context(void **state) {
  enum { READERS = 80 };
  (void)state;
  scene s = scene_open();
  for (int i = 0; i < READERS; i++) {
    const int64_t reader = other_stream(0, false);
    DLManagedTensorVersioned *given = give(s.constant, reader);
    other_copy(0, s.seen + i, given->dl_tensor.data, 1, reader);
    given->deleter(given);
    other_stream_end(reader);
  }
  other_current_set(-1);
  void *before = other_current();
  OK(mf_tensor_acquire(s.t, s.ours, MF_WRITE, &err));
  assert_ptr_equal(other_current(), before);
  assert_int_equal(sim_ask_left("contexts"), 0);
  scene_close(&s);
}

static int deletions;

static void count_deletion(DLManagedTensorVersioned *self) {
  deletions++;
  other_free(0, self->dl_tensor.data);
}

/* Who waits for a stream has what waited for it released on return, and the current device is what it was. */
static void a_wait_for_a_stream_releases(void **state) {
  static int64_t shape[] = {NBYTES}, strides[] = {1};
  static DLManagedTensorVersioned managed;
  const DLDevice device = gpu(0);
  mf_tensor *t;
  int32_t done;
  (void)state;
  const mf_stream s = stream_new(0);
  managed = (DLManagedTensorVersioned){.version = {1, 0}, .deleter = count_deletion};
  managed.dl_tensor = (DLTensor){.data = other_alloc(0, NBYTES), .device = device, .ndim = 1,
                                 .dtype = {kDLUInt, 8, 1}, .shape = shape, .strides = strides};
  deletions = 0;
  OK(mf_tensor_import(&managed, &t, &err));
  OK(mf_tensor_acquire(t, s, MF_WRITE, &err));
  other_fill(0, data_of(t), 1, NBYTES, s);
  mf_tensor_release(t);
  other_current_set(-1);
  void *before = other_current();
  OK(mf_stream_query(&device, s, &done, &err));
  assert_ptr_equal(other_current(), before);
  OK(mf_stream_synchronize(&device, s, &err));
  assert_int_equal(deletions, 1);
  assert_ptr_equal(other_current(), before);
  stream_end(0, s);
}

/* A copy that is asked for on the host is done, whatever memory it is in. */
static void done_for_the_host(scene *s) {
  const mf_request request = {.device = pinned(), .copy = MF_COPY_ALWAYS, .stream = MF_STREAM_HOST};
  mf_tensor *copy;
  OK(mf_tensor_to(s->t, &request, &copy, &err));
  sim_ask_host(data_of(copy), NBYTES, false);
  for (int i = 0; i < NBYTES; i++) assert_int_equal(((unsigned char *)data_of(copy))[i], 1);
  mf_tensor_release(copy);
}

static void a_pinned_copy_for_the_host_is_done(void **state) {
  (void)state;
  each_seed(done_for_the_host);
}

/* Memory that the driver gives in the order of one stream is ready for a reader on another. */
static void read_when_new(scene *s) {
  give_all_back(); /* none is kept */
  mf_tensor *t = create(gpu(0), NBYTES);
  OK(mf_tensor_acquire(t, s->theirs, MF_READ, &err));
  other_copy(0, s->seen, data_of(t), NBYTES, s->theirs);
  other_sync(0, s->theirs);
  mf_tensor_release(t);
}

static void new_memory_is_ready_for_a_reader_elsewhere(void **state) {
  (void)state;
  each_seed(read_when_new);
}

/* No copy, but another stream to be ready on. */
static void ready_elsewhere(scene *s) {
  const mf_request request = {.copy = MF_COPY_NEVER, .stream = s->theirs};
  mf_tensor *same;
  OK(mf_tensor_to(s->t, &request, &same, &err));
  other_copy(0, s->seen, data_of(same), NBYTES, s->theirs);
  mf_tensor_release(same);
  fill(s->t, 2);
  expect_filled(s->t, 2);
  other_sync(0, s->theirs);
  expect_seen(s, 1);
}

static void a_view_is_ready_on_the_stream_that_was_asked_for(void **state) {
  (void)state;
  each_seed(ready_elsewhere);
}

/* A stream of the source's may be named for a copy to the host; one that nobody orders is ordered all the same. */
static void copied_on_a_stream(scene *s) {
  const mf_stream streams[] = {s->theirs, s->ours, MF_STREAM_CURRENT, MF_STREAM_HOST, MF_STREAM_NO_ORDER};
  for (size_t i = 0; i < COUNT(streams); i++) {
    const mf_request on_host = {.device = {kDLCPU, 0}, .stream = streams[i]};
    mf_tensor *host;
    OK(mf_tensor_to(s->t, &on_host, &host, &err));
    for (int k = 0; k < NBYTES; k++) assert_int_equal(((unsigned char *)data_of(host))[k], 1);
    const mf_request refused = {.stream = s->ours};
    mf_tensor *none;
    FAILS(mf_tensor_to(host, &refused, &none, &err), MF_EINVAL);
    SAYS("no streams");
    mf_tensor_release(host);
  }
  const mf_request unordered = {.copy = MF_COPY_ALWAYS, .stream = MF_STREAM_NO_ORDER};
  mf_tensor *copy;
  OK(mf_tensor_to(s->t, &unordered, &copy, &err));
  expect_filled(copy, 1);
  mf_tensor_release(copy);
}

static void a_copy_is_made_on_the_stream_that_was_named(void **state) {
  (void)state;
  each_seed(copied_on_a_stream);
}

/* A use that nobody orders leaves nothing behind, and memory without a record has nothing to order. */
static void uses_without_order_cost_no_call(void **state) {
  (void)state;
  scene s = scene_open();
  mf_tensor *host = create((DLDevice){kDLCPU, 0}, NBYTES);
  OK(mf_tensor_acquire(s.t, s.theirs, MF_WRITE, &err));
  sim_ask_reset();
  OK(mf_tensor_acquire(s.t, MF_STREAM_NO_ORDER, MF_READ, &err));
  OK(mf_tensor_acquire(s.t, MF_STREAM_NO_ORDER, MF_WRITE, &err));
  OK(mf_tensor_acquire(host, MF_STREAM_CURRENT, MF_WRITE, &err));
  OK(mf_tensor_acquire(host, MF_STREAM_HOST, MF_READ, &err));
  assert_int_equal(sim_ask_calls(NULL), 0);
  mf_tensor_release(host);
  scene_close(&s);
}

/* Whichever allocation of the host's fails, the device's memory goes back to the pool. */
static void no_host_memory_keeps_no_device_memory(void **state) {
  static int64_t shape[] = {NBYTES};
  const DLTensor like = {.device = gpu(0), .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  int rc = MF_ENOMEM;
  (void)state;
  for (int n = 0; rc != MF_OK && n < 20; n++) {
    mf_tensor *t;
    mf_pool_stats stats;
    mf_fault_arm(n, 1);
    rc = mf_tensor_create(&like, 0, &t, &err);
    mf_fault_arm(-1, 0);
    mf_tensor_release(t);
    assert_true(rc == MF_OK || rc == MF_ENOMEM);
    OK(mf_pool_read(&like.device, &stats, &err));
    assert_int_equal(stats.used_bytes, 0);
  }
  assert_int_equal(rc, MF_OK);
}

/* The struct before 1.0 is ordered like the later one, both when it is given and when its consumer is done. */
static void given_in_the_old_struct(scene *s) {
  const mf_request request = {.stream = s->theirs};
  DLManagedTensor *given;
  OK(mf_tensor_export_legacy_to(s->t, &request, &given, &err));
  other_copy(0, s->seen, given->dl_tensor.data, NBYTES, s->theirs);
  other_fill(0, given->dl_tensor.data, 2, NBYTES, s->theirs);
  expect_filled(s->t, 2); /* the consumer is not done */
  other_fill(0, given->dl_tensor.data, 3, NBYTES, s->theirs);
  given->deleter(given);
  expect_filled(s->t, 3);
  other_sync(0, s->theirs);
  expect_seen(s, 1);
}

static void the_old_struct_is_ordered(void **state) {
  (void)state;
  each_seed(given_in_the_old_struct);
}

/* A borrower works on the current stream. */
static void borrowed(scene *s) {
  DLTensor view;
  OK(mf_tensor_acquire(s->t, s->theirs, MF_WRITE, &err));
  other_fill(0, data_of(s->t), 2, NBYTES, s->theirs);
  OK(mf_tensor_borrow(s->t, &view, &err));
  other_copy(0, s->seen, view.data, NBYTES, s->ours);
  other_fill(0, view.data, 3, NBYTES, s->ours);
  OK(mf_tensor_acquire(s->t, s->theirs, MF_WRITE, &err));
  other_fill(0, data_of(s->t), 4, NBYTES, s->theirs);
  expect_filled(s->t, 4);
  other_sync(0, s->ours);
  expect_seen(s, 2);
}

static void what_is_borrowed_is_ordered(void **state) {
  (void)state;
  each_seed(borrowed);
}

/* What a forked child lets go of leaves nothing of ours in the child, though the driver's memory must stay. */
static mf_tensor *inherited;

static void release_the_inherited(void) {
  mf_ledger alive;
  mf_tensor_release(inherited);
  mf_ledger_read(&alive);
  _exit(alive.tensors != 0 || alive.storages != 0 || alive.blocks != 0);
}

static void a_forked_child_frees_its_records(void **state) {
  (void)state;
  inherited = create(gpu(0), NBYTES);
  fill(inherited, 1);
  in_fork(release_the_inherited);
  mf_tensor_release(inherited);
}

/* A stream that has waited for all others speaks for them when memory is released: it alone gets an event. */
static void who_has_waited_is_asked_alone(void **state) {
  static int64_t shape[] = {NBYTES}, strides[] = {1};
  static DLManagedTensorVersioned managed;
  mf_tensor *t;
  (void)state;
  needs_simulator();
  scene s = scene_open();
  managed = (DLManagedTensorVersioned){.version = {1, 0}, .deleter = count_deletion};
  managed.dl_tensor = (DLTensor){.data = other_alloc(0, NBYTES), .device = gpu(0), .ndim = 1,
                                 .dtype = {kDLUInt, 8, 1}, .shape = shape, .strides = strides};
  deletions = 0;
  OK(mf_tensor_import(&managed, &t, &err));
  fill(t, 1);
  OK(mf_tensor_acquire(t, s.theirs, MF_READ, &err));
  other_copy(0, s.seen, data_of(t), NBYTES, s.theirs);
  sim_ask_reset();
  mf_tensor_release(t);
  assert_int_equal(sim_ask_calls(named("cuEventRecord", "hipEventRecord")), 1);
  other_sync(0, s.theirs);
  scene_close(&s);
  assert_int_equal(deletions, 1);
}

static void names_are_checked_without_a_call(void **state) {
  const DLDevice device = gpu(0), cpu = {kDLCPU, 0};
  (void)state;
  const mf_stream ours = stream_new(0);
  sim_ask_reset();
  OK(mf_stream_check(&device, MF_STREAM_PER_THREAD, &err));
  OK(mf_stream_check(&device, MF_STREAM_DEFAULT, &err));
  assert_int_equal(sim_ask_calls(NULL), 0);
  FAILS(mf_stream_check(&cpu, ours, &err), MF_EINVAL);
  SAYS("no streams");
  OK(mf_stream_check(&cpu, MF_STREAM_HOST, &err));
  stream_end(0, ours);
}

static void expect_number(mf_stream stream, int64_t want) {
  const DLDevice device = gpu(0);
  int64_t number;
  OK(mf_stream_to_number(&device, stream, &number, &err));
  assert_int_equal(number, want);
}

static void a_stream_has_the_number_that_a_producer_expects(void **state) {
  const DLDevice device = gpu(0);
  const bool rocm = other_device_type() == kDLROCM;
  int64_t number;
  (void)state;
  const mf_stream ours = stream_new(0);
  expect_number(ours, ours);
  expect_number(MF_STREAM_CURRENT, rocm ? 0 : 1);
  use_stream(0, ours);
  expect_number(MF_STREAM_CURRENT, ours);
  expect_number(MF_STREAM_DEFAULT, rocm ? 0 : 1);
  expect_number(MF_STREAM_NO_ORDER, -1);
  expect_number(MF_STREAM_HOST, MF_NUMBER_NONE);
  if (rocm) FAILS(mf_stream_to_number(&device, MF_STREAM_PER_THREAD, &number, &err), MF_EINVAL);
  else expect_number(MF_STREAM_PER_THREAD, 2);
  FAILS(mf_stream_to_number(&device, -9, &number, &err), MF_EINVAL);
  assert_int_equal(number, MF_NUMBER_NONE);
  use_stream(0, MF_STREAM_DEFAULT);
  stream_end(0, ours);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(what_a_stream_wrote_before_it_came_again),
      SPEC(a_reader_that_wrote_meanwhile_reads_on),
      SPEC(the_per_thread_stream_is_left_without_a_call),
      SPEC(a_wait_without_a_kept_event_leaves_no_context),
      SPEC(events_that_are_not_kept_leave_no_context),
      SPEC(a_wait_for_a_stream_releases),
      SPEC(a_pinned_copy_for_the_host_is_done),
      SPEC(new_memory_is_ready_for_a_reader_elsewhere),
      SPEC(a_view_is_ready_on_the_stream_that_was_asked_for),
      SPEC(a_copy_is_made_on_the_stream_that_was_named),
      SPEC(uses_without_order_cost_no_call),
      SPEC(no_host_memory_keeps_no_device_memory),
      SPEC(the_old_struct_is_ordered),
      SPEC(what_is_borrowed_is_ordered),
      SPEC(a_forked_child_frees_its_records),
      SPEC(who_has_waited_is_asked_alone),
      SPEC(names_are_checked_without_a_call),
      SPEC(a_stream_has_the_number_that_a_producer_expects),
  };
  return RUN(tests);
}
