/* retire_spec.c: memory of others that was released while queued work may still use it: its deleter is called once,
 * when all of that is done, and neither earlier nor never. */
#include "loan.h"

#include <pthread.h>

static void without_work_at_once(void **state) {
  (void)state;
  loan *l = loan_new();
  mf_tensor_release(import(l));
  assert_int_equal(calls_of(l), 1);
  assert_int_equal(deferred(), 0);
  loan_end(l);
}

static void after_done_work_at_once(void **state) {
  (void)state;
  loan *l = loan_new();
  const mf_stream s = stream_new(0);
  mf_tensor *t = import(l);
  write_on(t, s, 1);
  other_sync(0, s);
  mf_tensor_release(t);
  assert_int_equal(calls_of(l), 1);
  loan_end(l);
  stream_end(0, s);
}

static void after_queued_work_later(void **state) {
  (void)state;
  loan *l = loan_new();
  const mf_stream s = stream_new(0);
  mf_tensor *t = import(l);
  keep_busy(t, s);
  mf_tensor_release(t);
  assert_int_equal(calls_of(l), 0);
  assert_int_equal(deferred(), 1);
  other_sync(0, s);
  poll();
  assert_int_equal(calls_of(l), 1);
  assert_int_equal(deferred(), 0);
  loan_end(l);
  stream_end(0, s);
}

/* Operations notice that the work is done, but only a function that may call foreign code calls the deleter. */
static void no_other_function_calls_it(void **state) {
  (void)state;
  const DLDevice device = gpu(0);
  loan *l = loan_new();
  const mf_stream s = stream_new(0);
  const mf_scalar zero = {.kind = MF_KIND_UINT};
  const mf_request copied = {.copy = MF_COPY_ALWAYS};
  int32_t done;
  mf_tensor *other = create(gpu(0), NBYTES), *copy;
  mf_tensor *t = import(l);
  write_on(t, s, 1);
  mf_tensor_release(t);
  other_sync(0, s);
  OK(mf_stream_query(&device, s, &done, &err));
  OK(mf_tensor_fill(other, &zero, &err));
  OK(mf_tensor_acquire(other, s, MF_WRITE, &err));
  OK(mf_tensor_to(other, &copied, &copy, &err));
  assert_int_equal(calls_of(l), 0);
  assert_int_equal(deferred(), 0);
  assert_int_equal(mf_tensor_release_later(copy), 1);
  assert_int_equal(calls_of(l), 0);
  mf_releases_run();
  assert_int_equal(calls_of(l), 1);
  mf_tensor_release(other);
  loan_end(l);
  stream_end(0, s);
}

/* A struct that was told so calls no deleter either, and its consumer's stream is left all the same. */
static void a_struct_that_is_deleted_later_calls_none(void **state) {
  (void)state;
  for (int legacy = 0; legacy < 2; legacy++) {
    loan *l = loan_new();
    const mf_stream s = stream_new(0);
    const mf_request on_s = {.stream = s};
    mf_tensor *t = import(l);
    DLManagedTensorVersioned *m;
    DLManagedTensor *old;
    if (legacy) {
      OK(mf_tensor_export_legacy_to(t, &on_s, &old, &err));
      mf_export_delete_later_legacy(old);
    } else {
      OK(mf_tensor_export_to(t, &on_s, &m, &err));
      mf_export_delete_later(m);
    }
    mf_tensor_release(t);
    if (legacy) old->deleter(old);
    else m->deleter(m);
    other_sync(0, s);
    assert_int_equal(calls_of(l), 0);
    poll();
    assert_int_equal(calls_of(l), 1);
    loan_end(l);
    stream_end(0, s);
  }
}

static void each_stream_counts(void **state) {
  (void)state;
  char *seen = other_pinned(4);
  mf_stream streams[4];
  for (int i = 0; i < 4; i++) streams[i] = i == 3 ? other_stream(0, false) : stream_new(0);
  for (int last = 0; last < 4; last++) {
    loan *l = loan_new();
    mf_tensor *t = import(l);
    l->then = free_at_once;
    for (int i = 0; i < 4; i++) {
      OK(mf_tensor_acquire(t, streams[i], MF_READ, &err));
      other_copy(0, seen + i, data_of(t), 1, streams[i]);
    }
    mf_tensor_release(t);
    for (int i = 0; i < 4; i++)
      if (i != last) other_sync(0, streams[i]);
    for (int i = 0; i < 4 && calls_of(l) == 0; i++) poll();
    other_sync(0, streams[last]);
    poll();
    assert_int_equal(calls_of(l), 1);
    free(l);
  }
  for (int i = 0; i < 3; i++) stream_end(0, streams[i]);
  other_stream_end(streams[3]);
  other_pinned_free(seen);
}

static void under_every_order(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < seeds(50); seed++) {
    mf_stream streams[] = {MF_STREAM_DEFAULT, MF_STREAM_PER_THREAD, stream_new(0), other_stream(0, true)};
    uint64_t random = seed;
    loan *loans[20];
    sim_ask_seed(seed);
    for (size_t i = 0; i < COUNT(loans); i++) {
      loans[i] = loan_new();
      loans[i]->then = free_at_once;
      mf_tensor *t = import(loans[i]);
      for (uint64_t n = random_of(&random) % 4; n > 0; n--) write_on(t, streams[random_of(&random) % 4], 1);
      mf_tensor_release(t);
      if (random_of(&random) % 4 == 0) other_sync(0, streams[random_of(&random) % 4]);
    }
    synchronize(0);
    for (size_t i = 0; i < COUNT(loans); i++) {
      assert_int_equal(calls_of(loans[i]), 1);
      free(loans[i]);
    }
    stream_end(0, streams[2]);
    other_stream_end(streams[3]);
    if (sim_ask_findings() != 0) fail_msg("seed %llu", (unsigned long long)seed);
  }
}

static void a_captured_stream_later(void **state) {
  (void)state;
  loan *l = loan_new();
  const mf_stream s = stream_new(0);
  mf_tensor *t = import(l);
  OK(mf_stream_synchronize(&(DLDevice){(DLDeviceType)other_device_type(), 0}, MF_STREAM_DEFAULT, &err));
  other_capture(0, s);
  OK(mf_tensor_record(t, s, MF_READ, &err));
  mf_tensor_release(t);
  poll();
  trim(gpu(0));
  assert_int_equal(calls_of(l), 0);
  assert_int_equal(deferred(), 1);
  void *graph = other_capture_end(0, s);
  other_graph_end(0, graph);
  poll();
  loan_end(l);
  stream_end(0, s);
}

/* Deleters that use the library: release more, allocate, import. */
static mf_stream chain_stream;

static void release_next(loan *self) {
  mf_tensor *t = create(gpu(0), NBYTES);
  write_on(t, chain_stream, 3);
  mf_tensor_release(t);
  if (self->next != NULL) {
    t = import(self->next);
    write_on(t, chain_stream, 4);
    mf_tensor_release(t);
  }
}

static void deleters_may_use_the_library(void **state) {
  (void)state;
  enum { LENGTH = 100 };
  loan *loans[LENGTH];
  chain_stream = stream_new(0);
  for (int i = 0; i < LENGTH; i++) {
    loans[i] = loan_new();
    loans[i]->then = release_next;
    if (i > 0) loans[i - 1]->next = loans[i];
  }
  mf_tensor *t = import(loans[0]);
  write_on(t, chain_stream, 1);
  mf_tensor_release(t);
  for (int i = 0; i < LENGTH; i++) {
    other_sync(0, chain_stream);
    poll();
    assert_int_equal(calls_of(loans[i]), 1);
  }
  for (int i = 0; i < LENGTH; i++) loan_end(loans[i]);
  stream_end(0, chain_stream);
}

/* One operation looks at a few only, however many wait. */
static void looking_is_cheap(void **state) {
  (void)state;
  needs_simulator();
  enum { MANY = 200 };
  loan *loans[MANY];
  const mf_stream s = stream_new(0);
  poll();
  uint64_t before = sim_ask_calls(NULL);
  poll();
  assert_int_equal(sim_ask_calls(NULL), before);
  for (int i = 0; i < MANY; i++) loans[i] = loan_new();
  other_capture(0, s);
  for (int i = 0; i < MANY; i++) {
    mf_tensor *t = import(loans[i]);
    OK(mf_tensor_record(t, s, MF_READ, &err));
    mf_tensor_release(t);
  }
  assert_int_equal(deferred(), MANY);
  before = sim_ask_calls(NULL);
  poll();
  assert_true(sim_ask_calls(NULL) - before < 50);
  void *graph = other_capture_end(0, s);
  other_graph_end(0, graph);
  trim(gpu(0));
  assert_int_equal(deferred(), 0);
  for (int i = 0; i < MANY; i++) loan_end(loans[i]);
  stream_end(0, s);
}

/* However many wait for its work, as a wait for the device does. */
static void a_wait_for_the_stream_returns_all_of_it(void **state) {
  (void)state;
  enum { MANY = 12 };
  const DLDevice device = gpu(0);
  loan *loans[MANY];
  const mf_stream s = stream_new(0);
  for (int i = 0; i < MANY; i++) {
    loans[i] = loan_new();
    mf_tensor *t = import(loans[i]);
    keep_busy(t, s);
    mf_tensor_release(t);
  }
  OK(mf_stream_synchronize(&device, s, &err));
  assert_int_equal(deferred(), 0);
  for (int i = 0; i < MANY; i++) loan_end(loans[i]);
  stream_end(0, s);
}

static int depth, deepest;

static void poll_within(loan *self) {
  (void)self;
  if (++depth > deepest) deepest = depth;
  poll();
  depth--;
}

/* A deleter that uses the library is not interrupted by the next one. */
static void deleters_are_not_nested(void **state) {
  (void)state;
  enum { MANY = 50 };
  loan *loans[MANY];
  const mf_stream s = stream_new(0);
  for (int i = 0; i < MANY; i++) {
    loans[i] = loan_new();
    loans[i]->then = poll_within;
  }
  other_capture(0, s);
  for (int i = 0; i < MANY; i++) {
    mf_tensor *t = import(loans[i]);
    OK(mf_tensor_record(t, s, MF_READ, &err));
    mf_tensor_release(t);
  }
  void *graph = other_capture_end(0, s);
  other_graph_end(0, graph);
  deepest = 0;
  trim(gpu(0));
  assert_int_equal(deepest, 1);
  for (int i = 0; i < MANY; i++) loan_end(loans[i]);
  stream_end(0, s);
}

/* Waiting for one device says nothing about another. */
static void each_device_counts(void **state) {
  (void)state;
  needs_devices(2);
  const DLDevice second = gpu(1);
  mf_stream s;
  OK(mf_stream_create(&second, &s, &err));
  loan *l = loan_new();
  other_free(0, l->managed.dl_tensor.data);
  l->managed.dl_tensor.device = second;
  l->managed.dl_tensor.data = other_alloc(1, NBYTES);
  mf_tensor *t = import(l);
  OK(mf_tensor_acquire(t, s, MF_WRITE, &err));
  for (int i = 0; i < 300; i++) other_fill(1, data_of(t), 1, 1, s);
  mf_tensor_release(t);
  synchronize(0);
  assert_int_equal(calls_of(l), 0);
  assert_int_equal(deferred(), 0);
  assert_int_equal(stats(second).deferred, 1);
  assert_int_equal(stats(pinned()).deferred, 0);
  OK(mf_device_synchronize(&second, &err));
  assert_int_equal(calls_of(l), 1);
  other_free(1, l->managed.dl_tensor.data);
  free(l);
  OK(mf_stream_destroy(&second, s, &err));
}

/* Others' pinned memory, used on a stream of that GPU and released before the work is done, so that an event is kept
 * for it. */
static void release_pinned_busy(int ordinal, mf_stream s) {
  loan *l = loan_new();
  other_free(0, l->managed.dl_tensor.data);
  l->managed.dl_tensor.device = pinned();
  l->managed.dl_tensor.data = other_pinned(NBYTES);
  mf_tensor *t = import(l);
  OK(mf_tensor_acquire(t, s, MF_WRITE, &err));
  other_busy(ordinal, s);
  for (int i = 0; i < 300; i++) other_fill(ordinal, data_of(t), 1, 1, s);
  mf_tensor_release(t);
  assert_int_equal(calls_of(l), 0);
  other_sync(ordinal, s);
  poll();
  assert_int_equal(calls_of(l), 1);
  other_pinned_free(l->managed.dl_tensor.data);
  free(l);
}

/* Pinned memory is used on the streams of any GPU. A driver refuses an event on a stream of another GPU. */
static void an_event_goes_back_to_its_device(void **state) {
  (void)state;
  needs_devices(2);
  const mf_stream streams[] = {stream_new(0), stream_new(1)};
  for (int first = 0; first < 2; first++) {
    release_pinned_busy(first, streams[first]);
    release_pinned_busy(!first, streams[!first]);
  }
  stream_end(0, streams[0]);
  stream_end(1, streams[1]);
}

/* Threads release, poll and delete at once. */
enum { NTHREADS = 8, ROUNDS = 60 };

typedef struct worker {
  mf_stream stream;
  loan *loans[ROUNDS];
  int wrong;
} worker;

static void *work(void *arg) {
  worker *w = arg;
  mf_error mine;
  for (int i = 0; i < ROUNDS; i++) {
    mf_tensor *t;
    if (mf_tensor_import(&w->loans[i]->managed, &t, &mine) != MF_OK) {
      w->wrong++;
      continue;
    }
    if (mf_tensor_acquire(t, w->stream, MF_WRITE, &mine) != MF_OK) w->wrong++;
    other_fill(0, data_of(t), i, NBYTES, w->stream);
    mf_tensor_release(t);
    if (i % 8 == 0) other_sync(0, w->stream);
  }
  return NULL;
}

static void threads(void **state) {
  static worker workers[NTHREADS];
  pthread_t ids[NTHREADS];
  (void)state;
  for (int i = 0; i < NTHREADS; i++) {
    workers[i].stream = stream_new(0);
    for (int k = 0; k < ROUNDS; k++) {
      workers[i].loans[k] = loan_new();
      workers[i].loans[k]->then = free_at_once;
    }
  }
  for (int i = 0; i < NTHREADS; i++) assert_int_equal(pthread_create(&ids[i], NULL, work, &workers[i]), 0);
  for (int i = 0; i < NTHREADS; i++) pthread_join(ids[i], NULL);
  synchronize(0);
  for (int i = 0; i < NTHREADS; i++) {
    assert_int_equal(workers[i].wrong, 0);
    for (int k = 0; k < ROUNDS; k++) {
      assert_int_equal(calls_of(workers[i].loans[k]), 1);
      free(workers[i].loans[k]);
    }
    stream_end(0, workers[i].stream);
  }
}

/* A child owns no work: what it releases goes at once, without the driver. */
static mf_tensor *inherited;
static loan *inherited_loan;

static void child(void) {
  const uint64_t before = sim_ask_calls(NULL);
  mf_tensor_release(inherited);
  if (calls_of(inherited_loan) != 1) _exit(2);
  if (sim_ask_calls(NULL) != before) _exit(3);
}

static void a_forked_child_deletes_at_once(void **state) {
  (void)state;
  loan *waiting = loan_new();
  const mf_stream s = stream_new(0);
  mf_tensor *t = import(waiting);
  write_on(t, s, 1);
  mf_tensor_release(t);
  inherited_loan = loan_new();
  inherited = import(inherited_loan);
  write_on(inherited, s, 1);
  in_fork(child);
  mf_tensor_release(inherited);
  synchronize(0);
  loan_end(inherited_loan);
  loan_end(waiting);
  stream_end(0, s);
}

/* Of such a stream an event is left, which is asked instead of the handle. */
static void a_stream_that_was_destroyed_is_waited_for(void **state) {
  (void)state;
  needs_simulator();
  loan *l = loan_new();
  mf_tensor *t = import(l);
  void *seen = other_pinned(NBYTES);
  const mf_stream theirs = other_stream(0, false);
  const mf_request request = {.stream = theirs};
  DLManagedTensorVersioned *given;
  OK(mf_tensor_export_to(t, &request, &given, &err));
  for (int i = 0; i < 300; i++) other_copy(0, seen, given->dl_tensor.data, NBYTES, theirs);
  given->deleter(given);
  other_stream_end(theirs);
  mf_tensor_release(t);
  assert_int_equal(calls_of(l), 0);
  mf_tensor *unrelated = create(gpu(0), NBYTES);
  sim_ask_reset();
  for (int i = 0; i < 3; i++) OK(mf_tensor_acquire(unrelated, MF_STREAM_DEFAULT, MF_READ, &err));
  OK(mf_tensor_acquire(unrelated, MF_STREAM_PER_THREAD, MF_WRITE, &err));
  assert_int_equal(host_waits(), 0); /* to look is not to wait */
  assert_int_equal(deferred(), 1);
  assert_int_equal(calls_of(l), 0);
  mf_tensor_release(unrelated);
  other_sync_all(0);
  poll();
  mf_releases_run();
  assert_int_equal(calls_of(l), 1);
  loan_end(l);
  other_pinned_free(seen);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(without_work_at_once),
      SPEC(after_done_work_at_once),
      SPEC(after_queued_work_later),
      SPEC(no_other_function_calls_it),
      SPEC(a_struct_that_is_deleted_later_calls_none),
      SPEC(each_stream_counts),
      SPEC(under_every_order),
      SPEC(a_captured_stream_later),
      SPEC(deleters_may_use_the_library),
      SPEC(looking_is_cheap),
      SPEC(a_wait_for_the_stream_returns_all_of_it),
      SPEC(deleters_are_not_nested),
      SPEC(each_device_counts),
      SPEC(an_event_goes_back_to_its_device),
      SPEC(threads),
      SPEC(a_forked_child_deletes_at_once),
      SPEC(a_stream_that_was_destroyed_is_waited_for),
  };
  return RUN(tests);
}
