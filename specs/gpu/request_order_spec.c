/* request_order_spec.c: what a request, a use and a record order: on which stream a copy is made, which streams wait
 * for it, and that a wait which fails leaves the order as it was. Under every seed (MOONFERRY_SPEC_SEEDS, 10 if it is
 * not set) nothing is unordered and the bytes are right. */
#include "device.h"

enum { NBYTES = 2048 };

static const DLDevice cpu = {kDLCPU, 0};

typedef struct scene {
  mf_stream ours, third;
  int64_t theirs;
  unsigned char *seen;
} scene;

static void each_seed(void (*play)(const scene *s)) {
  for (uint64_t seed = 0; seed < seeds(10); seed++) {
    sim_ask_seed(seed);
    scene s = {stream_new(0), stream_new(0), other_stream(0, false), other_pinned(NBYTES)};
    play(&s);
    use_stream(0, MF_STREAM_DEFAULT);
    synchronize(0);
    trim_all(); /* what is kept may be somebody else's stream's */
    other_stream_end(s.theirs);
    other_pinned_free(s.seen);
    stream_end(0, s.ours);
    stream_end(0, s.third);
    if (sim_ask_findings() != 0) fail_msg("seed %llu", (unsigned long long)seed);
  }
}

static void expect_seen(const scene *s, int64_t on, int byte) {
  other_sync(0, on);
  for (int i = 0; i < NBYTES; i++) assert_int_equal(s->seen[i], byte);
}

/* Each use that waits, with a wait that fails: the next one on a third stream still waits for the writer. */
static int acquire(mf_tensor *t, const scene *s) {
  return mf_tensor_acquire(t, s->ours, MF_WRITE, &err);
}

static int view(mf_tensor *t, const scene *s) {
  const mf_request request = {.stream = s->ours};
  mf_tensor *out = t;
  const int rc = mf_tensor_to(t, &request, &out, &err);
  assert_null(out);
  return rc;
}

static int borrow(mf_tensor *t, const scene *s) {
  DLTensor out;
  use_stream(0, s->ours);
  return mf_tensor_borrow(t, &out, &err);
}

static int export(mf_tensor *t, const scene *s) {
  const mf_request request = {.stream = s->ours};
  DLManagedTensorVersioned *out = (DLManagedTensorVersioned *)(uintptr_t)16;
  const int rc = mf_tensor_export_to(t, &request, &out, &err);
  assert_null(out);
  return rc;
}

static int export_legacy(mf_tensor *t, const scene *s) {
  const mf_request request = {.stream = s->ours};
  DLManagedTensor *out = (DLManagedTensor *)(uintptr_t)16;
  const int rc = mf_tensor_export_legacy_to(t, &request, &out, &err);
  assert_null(out);
  return rc;
}

static int fill_current(mf_tensor *t, const scene *s) {
  use_stream(0, s->ours);
  return try_fill(t, 9);
}

static mf_tensor *source;

static int copy_into(mf_tensor *t, const scene *s) {
  use_stream(0, s->ours);
  return mf_tensor_copy(t, source, &err);
}

static int (*const failing[])(mf_tensor *t, const scene *s) = {acquire,      view,          borrow,   export,
                                                                fill_current, export_legacy, copy_into};

static void fail_to_wait(const scene *s) {
  char rule[64];
  (void)snprintf(rule, sizeof rule, "%s:719:once", named("cuStreamWaitEvent", "hipStreamWaitEvent"));
  use_stream(0, s->ours);
  source = create(gpu(0), NBYTES);
  for (size_t i = 0; i < COUNT(failing); i++) {
    mf_tensor *t = create(gpu(0), NBYTES);
    write_on(t, s->theirs, (int)i);
    sim_ask_fail(rule);
    assert_int_equal(failing[i](t, s), MF_EDRIVER);
    OK(mf_tensor_acquire(t, s->third, MF_READ, &err));
    other_copy(0, s->seen, data_of(t), NBYTES, s->third);
    expect_seen(s, s->third, (int)i);
    sim_ask_reset();
    OK(mf_tensor_acquire(t, s->third, MF_WRITE, &err)); /* of the writer, who may read on, and of nobody else */
    assert_int_equal(sim_ask_calls(named("cuEventRecord", "hipEventRecord")), 1);
    mf_tensor_release(t);
  }
  mf_tensor_release(source);
}

/* The same where it is the host that waits, or the copy itself that fails. */
static void fail_on_the_host(const scene *s) {
  const mf_request requests[] = {{.device = cpu, .copy = MF_COPY_ALWAYS},
                                 {.device = cpu, .copy = MF_COPY_NEVER},
                                 {.device = gpu(0), .copy = MF_COPY_ALWAYS}};
  const char *calls[] = {named("cuStreamSynchronize", "hipStreamSynchronize"),
                         named("cuStreamSynchronize", "hipStreamSynchronize"),
                         named("cuMemcpyAsync", "hipMemcpyAsync")};
  for (size_t i = 0; i < COUNT(requests); i++) {
    mf_tensor *t = create(pinned(), NBYTES), *out = t;
    char rule[64];
    (void)snprintf(rule, sizeof rule, "%s:719:once", calls[i]);
    write_on(t, s->theirs, 4);
    sim_ask_fail(rule);
    assert_int_equal(mf_tensor_to(t, &requests[i], &out, &err), MF_EDRIVER);
    assert_null(out);
    OK(mf_tensor_to(t, &requests[i], &out, &err));
    expect_filled(out, 4);
    mf_tensor_release(out);
    mf_tensor_release(t);
  }
}

static void a_request_that_fails_can_be_made_again(void **state) {
  (void)state;
  needs_simulator();
  each_seed(fail_on_the_host);
}

static void a_wait_that_fails_is_no_use(void **state) {
  (void)state;
  needs_simulator();
  each_seed(fail_to_wait);
}

/* A copy that nobody orders is made on the current stream, whose owner needs no further word. */
static void copied_without_order(const scene *s) {
  const mf_request unordered = {.copy = MF_COPY_ALWAYS, .stream = MF_STREAM_NO_ORDER};
  mf_tensor *t = create(gpu(0), NBYTES), *copy;
  write_on(t, s->theirs, 6);
  use_stream(0, s->ours);
  OK(mf_tensor_to(t, &unordered, &copy, &err));
  other_copy(0, s->seen, data_of(copy), NBYTES, s->ours);
  expect_seen(s, s->ours, 6);
  mf_tensor_release(copy);
  mf_tensor_release(t);
}

static void a_copy_without_order_is_on_the_current_stream(void **state) {
  (void)state;
  each_seed(copied_without_order);
}

/* A copy that is asked for on a stream has no part on the current one, which is being captured. */
static void copied_beside_the_current_stream(const scene *s) {
  const DLDevice places[] = {gpu(0), pinned()};
  for (size_t i = 0; i < COUNT(places); i++) {
    const mf_request request = {.device = places[i], .copy = MF_COPY_ALWAYS, .stream = s->theirs};
    mf_tensor *copy;
    use_stream(0, s->theirs);
    mf_tensor *t = create(gpu(0), NBYTES);
    write_on(t, s->theirs, 6);
    OK(mf_tensor_to(t, &request, &copy, &err)); /* whatever the driver prepares once */
    mf_tensor_release(copy);
    other_sync(0, s->theirs);
    use_stream(0, s->ours);
    other_capture(0, s->ours);
    OK(mf_tensor_to(t, &request, &copy, &err));
    assert_true(other_capture_is_whole(0, s->ours));
    other_graph_end(0, other_capture_end(0, s->ours));
    expect_filled(copy, 6);
    mf_tensor_release(copy);
    mf_tensor_release(t);
  }
}

static void a_copy_leaves_the_current_stream_alone(void **state) {
  (void)state;
  each_seed(copied_beside_the_current_stream);
}

/* On the legacy default stream, which is a name. */
static void to_the_host_on_the_default_stream(const scene *s) {
  const mf_request request = {.device = cpu, .stream = MF_STREAM_DEFAULT};
  mf_tensor *t = create(gpu(0), NBYTES), *host;
  write_on(t, s->theirs, 7);
  OK(mf_tensor_to(t, &request, &host, &err));
  assert_int_equal(((unsigned char *)data_of(host))[NBYTES - 1], 7);
  mf_tensor_release(host);
  mf_tensor_release(t);
}

static void a_name_may_be_the_sources_stream(void **state) {
  (void)state;
  each_seed(to_the_host_on_the_default_stream);
}

/* Who was granted a use goes on reading after the host has waited for its write; the next writer waits for that. */
static void goes_on_reading(const scene *s, mf_tensor *t) {
  OK(mf_tensor_acquire(t, MF_STREAM_HOST, MF_READ, &err));
  sim_ask_host(data_of(t), NBYTES, false);
  other_copy(0, s->seen, data_of(t), NBYTES, s->theirs);
  write_on(t, s->ours, 9);
  expect_seen(s, s->theirs, 8);
  mf_tensor_release(t);
}

static void granted_by_a_request(const scene *s) {
  const mf_request request = {.device = pinned(), .copy = MF_COPY_ALWAYS, .stream = s->theirs};
  mf_tensor *t = create(gpu(0), NBYTES), *copy;
  write_on(t, s->ours, 8);
  OK(mf_tensor_to(t, &request, &copy, &err));
  goes_on_reading(s, copy);
  mf_tensor_release(t);
}

static void granted_by_a_record(const scene *s) {
  mf_tensor *t = create(pinned(), NBYTES);
  other_fill(0, data_of(t), 8, NBYTES, s->theirs);
  OK(mf_tensor_record(t, s->theirs, MF_WRITE, &err));
  goes_on_reading(s, t);
}

static void who_was_granted_a_use_reads_on(void **state) {
  (void)state;
  each_seed(granted_by_a_request);
  each_seed(granted_by_a_record);
}

/* A write that was recorded is a write; what was acquired again after the host has waited is one, too. */
static void recorded(const scene *s) {
  mf_tensor *t = create(gpu(0), NBYTES);
  synchronize(0);
  other_fill(0, data_of(t), 4, NBYTES, s->theirs);
  OK(mf_tensor_record(t, s->theirs, MF_WRITE, &err));
  OK(mf_tensor_acquire(t, s->ours, MF_READ, &err));
  other_copy(0, s->seen, data_of(t), NBYTES, s->ours);
  expect_seen(s, s->ours, 4);
  mf_tensor_release(t);
}

static void written_again(const scene *s) {
  mf_tensor *t = create(pinned(), NBYTES);
  write_on(t, s->theirs, 3);
  OK(mf_tensor_acquire(t, MF_STREAM_HOST, MF_READ, &err));
  write_on(t, s->theirs, 4);
  OK(mf_tensor_acquire(t, s->ours, MF_READ, &err));
  other_copy(0, s->seen, data_of(t), NBYTES, s->ours);
  expect_seen(s, s->ours, 4);
  mf_tensor_release(t);
}

static void a_write_is_waited_for(void **state) {
  (void)state;
  each_seed(recorded);
  each_seed(written_again);
}

/* As the cpu's, shared memory may be written at once: its readers are waited for, unless it is read-only. */
static void as_the_cpus(const scene *s) {
  mf_tensor *t = create(pinned(), NBYTES), *constant, *mine;
  memset(data_of(t), 5, NBYTES);
  OK(mf_tensor_as_readonly(t, &constant, &err));
  OK(mf_tensor_acquire(t, s->theirs, MF_READ, &err));
  for (int i = 0; i < 300; i++) other_copy(0, s->seen, data_of(t), NBYTES, s->theirs);
  const uint64_t waited = host_waits();
  mine = moved(constant, cpu, MF_COPY_IF_NEEDED);
  mf_tensor_release(mine);
  mine = moved(t, cpu, MF_COPY_ALWAYS);
  mf_tensor_release(mine);
  assert_int_equal(host_waits(), waited);
  mine = moved(t, cpu, MF_COPY_IF_NEEDED);
  sim_ask_host(data_of(mine), NBYTES, true);
  memset(data_of(mine), 6, NBYTES);
  expect_seen(s, s->theirs, 5);
  mf_tensor_release(mine);
  mf_tensor_release(constant);
  mf_tensor_release(t);
}

static void shared_memory_as_the_cpus(void **state) {
  (void)state;
  each_seed(as_the_cpus);
}

/* A stream of the second GPU that the record knows is one of the second GPU still; a name means the first one's. */
static void used_by_another_gpu(const scene *s) {
  const DLDevice next = gpu(1);
  mf_tensor *t = create(pinned(), NBYTES), *there = create(gpu(1), NBYTES);
  const int64_t stream = other_stream(1, false);
  for (int i = 0; i < 2; i++) {
    OK(mf_tensor_acquire(t, stream, MF_WRITE, &err));
    other_fill(1, data_of(t), 1 + i, NBYTES, stream);
  }
  OK(mf_tensor_acquire(t, s->ours, MF_READ, &err));
  other_copy(0, s->seen, data_of(t), NBYTES, s->ours);
  expect_seen(s, s->ours, 2);
  for (mf_stream name = MF_STREAM_DEFAULT; name <= MF_STREAM_PER_THREAD; name++) {
    OK(mf_stream_swap(&next, name, NULL, &err));
    OK(mf_tensor_acquire(there, name, MF_WRITE, &err));
    for (int i = 0; i < 50; i++) other_fill(1, data_of(there), 2 + (int)name, NBYTES, name);
    OK(mf_tensor_copy(t, there, &err)); /* on the second GPU's stream of that name */
    OK(mf_tensor_acquire(t, name, MF_READ, &err));
    other_copy(0, s->seen, data_of(t), NBYTES, name);
    expect_seen(s, name, 2 + (int)name);
  }
  OK(mf_stream_swap(&next, MF_STREAM_DEFAULT, NULL, &err));
  mf_tensor_release(t);
  mf_tensor_release(there);
  other_sync_all(1);
  trim_all();
  other_stream_end(stream);
}

static void shared_memory_and_another_gpus_streams(void **state) {
  (void)state;
  needs_devices(2);
  each_seed(used_by_another_gpu);
}

/* A consumer that was told no stream works on the current one, and is ordered until its deleter is called. */
static DLTensor *given(mf_tensor *t, bool legacy, void **managed) {
  DLManagedTensorVersioned *m;
  DLManagedTensor *old;
  if (legacy) OK(mf_tensor_export_legacy(t, &old, &err));
  else OK(mf_tensor_export(t, 0, &m, &err));
  *managed = legacy ? (void *)old : (void *)m;
  return legacy ? &old->dl_tensor : &m->dl_tensor;
}

static void delete(void *managed, bool legacy) {
  if (legacy) ((DLManagedTensor *)managed)->deleter(managed);
  else ((DLManagedTensorVersioned *)managed)->deleter(managed);
}

static void given_without_a_stream(const scene *s, bool legacy) {
  mf_tensor *t = create(gpu(0), NBYTES);
  void *managed;
  write_on(t, s->theirs, 1);
  use_stream(0, s->ours);
  DLTensor *view = given(t, legacy, &managed);
  other_copy(0, s->seen, view->data, NBYTES, s->ours);
  expect_seen(s, s->ours, 1);
  OK(mf_tensor_acquire(t, s->third, MF_READ, &err));
  other_fill(0, view->data, 2, NBYTES, s->ours);
  delete(managed, legacy);
  OK(mf_tensor_acquire(t, s->third, MF_READ, &err));
  other_copy(0, s->seen, data_of(t), NBYTES, s->third);
  expect_seen(s, s->third, 2);
  mf_tensor_release(t);
}

static void given_in_either_struct(const scene *s) {
  given_without_a_stream(s, false);
  given_without_a_stream(s, true);
}

static void a_consumer_without_a_stream_is_on_the_current_one(void **state) {
  (void)state;
  each_seed(given_in_either_struct);
}

/* What is the cpu's by its label is ready for the host. */
static void given_to_the_host(const scene *s) {
  for (int legacy = 0; legacy < 2; legacy++) {
    mf_tensor *t = create(pinned(), NBYTES), *mine = moved(t, cpu, MF_COPY_NEVER);
    void *managed;
    write_on(t, s->theirs, 4);
    DLTensor *view = given(mine, legacy != 0, &managed);
    sim_ask_host(view->data, NBYTES, true);
    for (int i = 0; i < NBYTES; i++) assert_int_equal(((unsigned char *)view->data)[i], 4);
    delete(managed, legacy != 0);
    mf_tensor_release(mine);
    mf_tensor_release(t);
  }
}

static void a_consumer_on_the_cpu_finds_it_ready(void **state) {
  (void)state;
  each_seed(given_to_the_host);
}

/* Once the deleter was called the stream may go. */
static void let_the_stream_go(const scene *s) {
  for (int legacy = 0; legacy < 2; legacy++) {
    mf_tensor *t = create(gpu(0), NBYTES);
    const int64_t stream = other_stream(0, false);
    const mf_request request = {.stream = stream};
    DLManagedTensorVersioned *m;
    DLManagedTensor *old;
    if (legacy) OK(mf_tensor_export_legacy_to(t, &request, &old, &err));
    else OK(mf_tensor_export_to(t, &request, &m, &err));
    other_fill(0, data_of(t), 5, NBYTES, stream);
    delete(legacy ? (void *)old : (void *)m, legacy != 0);
    other_stream_end(stream);
    OK(mf_tensor_acquire(t, s->ours, MF_READ, &err));
    other_copy(0, s->seen, data_of(t), NBYTES, s->ours);
    expect_seen(s, s->ours, 5);
    mf_tensor_release(t);
  }
}

static void a_consumer_that_is_done_may_end_its_stream(void **state) {
  (void)state;
  each_seed(let_the_stream_go);
}

/* Who borrows what may be written writes it; who borrows what is read-only waits for no reader. */
static void write_what_is_borrowed(const scene *s) {
  mf_tensor *t = create(gpu(0), NBYTES), *constant;
  DLTensor view;
  OK(mf_tensor_as_readonly(t, &constant, &err));
  use_stream(0, s->ours);
  OK(mf_tensor_borrow(t, &view, &err));
  other_fill(0, view.data, 3, NBYTES, s->ours);
  OK(mf_tensor_acquire(t, s->third, MF_READ, &err));
  other_copy(0, s->seen, view.data, NBYTES, s->third);
  expect_seen(s, s->third, 3);
  mf_tensor_release(constant);
  mf_tensor_release(t);
}

static void what_is_borrowed_may_be_written(void **state) {
  (void)state;
  each_seed(write_what_is_borrowed);
}

/* Managed memory that is labelled as a GPU's is filled, copied and converted on that GPU's current stream, which a
 * capture may be of, and not where it was made. */
static void what_is_labelled_as_a_gpus_is_used_there(void **state) {
  (void)state;
  needs_simulator();
  needs_devices(2);
  if (other_managed_type() == 0) return;
  const DLDevice second = gpu(1);
  const mf_request there = {.device = second};
  int64_t count = NBYTES;
  DLTensor like = {.device = managed(), .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &count};
  mf_tensor *made[2], *labelled[2];
  for (int i = 0; i < 2; i++) {
    OK(mf_tensor_create(&like, 0, &made[i], &err));
    OK(mf_tensor_to(made[i], &there, &labelled[i], &err));
    fill(made[i], 1);
  }
  synchronize(0);
  synchronize(1);
  const mf_stream s = other_stream(1, false);
  OK(mf_stream_swap(&second, s, NULL, &err));
  other_capture(1, s);
  fill(labelled[0], 3);
  OK(mf_tensor_copy(labelled[1], labelled[0], &err));
  assert_true(other_capture_is_whole(1, s));
  void *graph = other_capture_end(1, s);
  OK(mf_tensor_acquire(labelled[1], MF_STREAM_HOST, MF_READ, &err));
  assert_int_equal(*(const unsigned char *)data_of(labelled[1]), 1); /* it is in the graph, which has not run */
  other_launch(1, graph, s);
  other_sync(1, s);
  OK(mf_stream_swap(&second, MF_STREAM_DEFAULT, NULL, &err));
  expect_filled(labelled[1], 3);
  for (int i = 0; i < 2; i++) {
    mf_tensor_release(labelled[i]);
    mf_tensor_release(made[i]);
  }
  other_graph_end(1, graph);
  other_stream_end(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(a_wait_that_fails_is_no_use),
      SPEC(a_request_that_fails_can_be_made_again),
      SPEC(a_copy_without_order_is_on_the_current_stream),
      SPEC(a_copy_leaves_the_current_stream_alone),
      SPEC(a_name_may_be_the_sources_stream),
      SPEC(who_was_granted_a_use_reads_on),
      SPEC(a_write_is_waited_for),
      SPEC(shared_memory_as_the_cpus),
      SPEC(shared_memory_and_another_gpus_streams),
      SPEC(a_consumer_without_a_stream_is_on_the_current_one),
      SPEC(a_consumer_on_the_cpu_finds_it_ready),
      SPEC(a_consumer_that_is_done_may_end_its_stream),
      SPEC(what_is_borrowed_may_be_written),
      SPEC(what_is_labelled_as_a_gpus_is_used_there),
  };
  return RUN(tests);
}
