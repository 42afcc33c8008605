/* retire_spec.c: memory of others that was released while queued work may still use it: its deleter is called once, when
 * all of that is done, and neither earlier nor never. */
#include "api.h"

#include <pthread.h>
#include <stdatomic.h>

enum { NBYTES = 4096 };

/* Somebody's memory, with a deleter that counts. */
typedef struct loan {
  DLManagedTensorVersioned managed;
  int64_t shape[1], strides[1];
  atomic_int deleted;
  void (*then)(struct loan *self);
  struct loan *next;
} loan;

static void loan_deleter(DLManagedTensorVersioned *self) {
  loan *l = (loan *)self;
  atomic_fetch_add(&l->deleted, 1);
  if (l->then != NULL) l->then(l);
}

static loan *loan_new(void) {
  loan *l = calloc(1, sizeof *l);
  l->shape[0] = NBYTES;
  l->strides[0] = 1;
  l->managed.version = (DLPackVersion){1, 0};
  l->managed.deleter = loan_deleter;
  l->managed.dl_tensor = (DLTensor){.data = other_alloc(0, NBYTES), .device = gpu(0), .ndim = 1,
                                    .dtype = {kDLUInt, 8, 1}, .shape = l->shape, .strides = l->strides};
  return l;
}

static mf_tensor *import(loan *l) {
  mf_tensor *t;
  OK(mf_tensor_import(&l->managed, &t, &err));
  return t;
}

static void loan_end(loan *l) {
  assert_int_equal(atomic_load(&l->deleted), 1);
  other_free(0, l->managed.dl_tensor.data);
  free(l);
}

static int calls_of(const loan *l) {
  return atomic_load(&l->deleted);
}

/* Any operation on a device looks at what waits. */
static void poll(void) {
  mf_tensor_release(create(gpu(0), NBYTES));
}

static int64_t deferred(void) {
  return stats(gpu(0)).deferred;
}

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
  const mf_stream s = stream_new();
  mf_tensor *t = import(l);
  write_on(t, s, 1);
  other_sync(0, s);
  mf_tensor_release(t);
  assert_int_equal(calls_of(l), 1);
  loan_end(l);
  stream_end(s);
}

static void after_queued_work_later(void **state) {
  (void)state;
  loan *l = loan_new();
  const mf_stream s = stream_new();
  mf_tensor *t = import(l);
  write_on(t, s, 1);
  mf_tensor_release(t);
  assert_int_equal(calls_of(l), 0);
  assert_int_equal(deferred(), 1);
  other_sync(0, s);
  poll();
  assert_int_equal(calls_of(l), 1);
  assert_int_equal(deferred(), 0);
  loan_end(l);
  stream_end(s);
}

/* What the deleter frees at once must be nobody's by then: the race checker sees the free. */
static void free_at_once(loan *self) {
  other_free(0, self->managed.dl_tensor.data);
  self->managed.dl_tensor.data = NULL;
}

static void each_stream_counts(void **state) {
  (void)state;
  char *seen = other_pinned(4);
  mf_stream streams[4];
  for (int i = 0; i < 4; i++) streams[i] = i == 3 ? other_stream(0, false) : stream_new();
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
  for (int i = 0; i < 3; i++) stream_end(streams[i]);
  other_stream_end(streams[3]);
  other_pinned_free(seen);
}

static void under_every_order(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < seeds(50); seed++) {
    mf_stream streams[] = {MF_STREAM_DEFAULT, MF_STREAM_PER_THREAD, stream_new(), other_stream(0, true)};
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
    synchronize();
    for (size_t i = 0; i < COUNT(loans); i++) {
      assert_int_equal(calls_of(loans[i]), 1);
      free(loans[i]);
    }
    stream_end(streams[2]);
    other_stream_end(streams[3]);
    if (sim_ask_findings() != 0) fail_msg("seed %llu", (unsigned long long)seed);
  }
}

static void a_captured_stream_later(void **state) {
  (void)state;
  loan *l = loan_new();
  const mf_stream s = stream_new();
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
  stream_end(s);
}

static void find_no_memory(void) {
  const DLDevice device = gpu(0);
  mf_tensor *t;
  OK(mf_pool_limit(&device, 1, &err));
  assert_int_equal(create_at(device, NBYTES, &t), MF_ENOMEM);
  OK(mf_pool_limit(&device, 0, &err));
}

static void lose_a_stream(void (*then)(void)) {
  loan *l = loan_new();
  DLManagedTensorVersioned *given;
  const mf_stream s = other_stream(0, false);
  mf_tensor *t = import(l);
  const mf_request request = {.stream = s};
  OK(mf_tensor_export_to(t, &request, &given, &err));
  mf_tensor_release(t);
  other_fill(0, given->dl_tensor.data, 1, NBYTES, s);
  other_stream_end(s);
  given->deleter(given);
  for (int i = 0; i < 3; i++) poll();
  trim(gpu(0));
  assert_int_equal(calls_of(l), 0);
  assert_int_equal(deferred(), 1);
  then();
  assert_int_equal(calls_of(l), 1);
  loan_end(l);
  sim_ask_reset();
}

/* A consumer that destroys its stream before it calls the deleter: misuse, but nothing is freed early, and a wait for
 * the device gives everything back. */
static void a_destroyed_stream_waits_for_the_device(void **state) {
  (void)state;
  ONLY_SIMULATED
  lose_a_stream(synchronize);
  lose_a_stream(find_no_memory);
}

/* An allocation that finds no memory waits as well. */
static void no_memory_waits_for_what_is_deferred(void **state) {
  (void)state;
  loan *l = loan_new();
  const DLDevice device = gpu(0);
  const mf_stream s = stream_new();
  mf_tensor *t = import(l), *more;
  keep_busy(t, s);
  mf_tensor_release(t);
  OK(mf_pool_limit(&device, NBYTES, &err));
  assert_int_equal(calls_of(l), 0);
  assert_int_equal(create_at(device, 2 * NBYTES, &more), MF_ENOMEM);
  assert_int_equal(calls_of(l), 1);
  OK(mf_pool_limit(&device, 0, &err));
  loan_end(l);
  stream_end(s);
}

static void no_host_memory_is_needed(void **state) {
  (void)state;
  loan *l = loan_new();
  const mf_stream s = stream_new();
  mf_tensor *t = import(l);
  write_on(t, s, 1);
  mf_fault_arm(0, 1);
  mf_tensor_release(t);
  mf_fault_arm(-1, 0);
  assert_int_equal(calls_of(l), 0);
  other_sync(0, s);
  poll();
  loan_end(l);
  stream_end(s);
}

/* Each driver call of a release that must wait fails, once and from then on. */
static bool release_failing(const char *how, uint64_t number) {
  char rule[64];
  loan *l = loan_new();
  const mf_stream s = stream_new();
  mf_tensor *t = import(l);
  write_on(t, s, 1);
  snprintf(rule, sizeof rule, "*@%llu:999:%s", (unsigned long long)number, how);
  sim_ask_reset();
  sim_ask_fail(rule);
  mf_tensor_release(t);
  poll();
  const bool struck = sim_ask_faults() != 0;
  sim_ask_reset();
  const bool early = calls_of(l) == 1;
  if (early) free_at_once(l);
  synchronize();
  if (sim_ask_findings() != 0) fail_msg("call %llu fails %s", (unsigned long long)number, how);
  assert_int_equal(calls_of(l), 1);
  if (!early) free_at_once(l);
  free(l);
  stream_end(s);
  return struck;
}

static void driver_calls_that_fail(void **state) {
  (void)state;
  ONLY_SIMULATED
  static const char *const ways[] = {"once", "on"};
  for (size_t i = 0; i < COUNT(ways); i++) {
    uint64_t number = 1;
    while (release_failing(ways[i], number)) number++;
    assert_true(number > 10);
  }
}

/* Records fail for ever: it is tried twice and no more, and the device can still be waited for. */
static void records_that_always_fail(void **state) {
  (void)state;
  ONLY_SIMULATED
  char rule[64];
  const char *record = named("cuEventRecord", "hipEventRecord");
  loan *l = loan_new();
  const mf_stream s = stream_new();
  mf_tensor *t = import(l);
  keep_busy(t, s);
  snprintf(rule, sizeof rule, "%s:999:on", record);
  sim_ask_fail(rule);
  const uint64_t before = sim_ask_calls(record);
  mf_tensor_release(t);
  for (int i = 0; i < 5; i++) poll();
  assert_int_equal(sim_ask_calls(record) - before, 2);
  assert_int_equal(calls_of(l), 0);
  synchronize();
  loan_end(l);
  sim_ask_reset();
  stream_end(s);
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
  chain_stream = stream_new();
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
  stream_end(chain_stream);
}

/* One operation looks at a few only, however many wait. */
static void looking_is_cheap(void **state) {
  (void)state;
  ONLY_SIMULATED
  enum { MANY = 200 };
  loan *loans[MANY];
  const mf_stream s = stream_new();
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
  stream_end(s);
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
  const mf_stream s = stream_new();
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
  stream_end(s);
}

/* Waiting for one device says nothing about another. */
static void each_device_counts(void **state) {
  (void)state;
  if (other_devices() < 2) {
    print_message("skipped: there is one device\n");
    skip();
  }
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
  synchronize();
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
    workers[i].stream = stream_new();
    for (int k = 0; k < ROUNDS; k++) {
      workers[i].loans[k] = loan_new();
      workers[i].loans[k]->then = free_at_once;
    }
  }
  for (int i = 0; i < NTHREADS; i++) assert_int_equal(pthread_create(&ids[i], NULL, work, &workers[i]), 0);
  for (int i = 0; i < NTHREADS; i++) pthread_join(ids[i], NULL);
  synchronize();
  for (int i = 0; i < NTHREADS; i++) {
    assert_int_equal(workers[i].wrong, 0);
    for (int k = 0; k < ROUNDS; k++) {
      assert_int_equal(calls_of(workers[i].loans[k]), 1);
      free(workers[i].loans[k]);
    }
    stream_end(workers[i].stream);
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
  const mf_stream s = stream_new();
  mf_tensor *t = import(waiting);
  write_on(t, s, 1);
  mf_tensor_release(t);
  inherited_loan = loan_new();
  inherited = import(inherited_loan);
  write_on(inherited, s, 1);
  in_fork(child);
  mf_tensor_release(inherited);
  synchronize();
  loan_end(inherited_loan);
  loan_end(waiting);
  stream_end(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(without_work_at_once),
      SPEC(after_done_work_at_once),
      SPEC(after_queued_work_later),
      SPEC(each_stream_counts),
      SPEC(under_every_order),
      SPEC(a_captured_stream_later),
      SPEC(a_destroyed_stream_waits_for_the_device),
      SPEC(no_memory_waits_for_what_is_deferred),
      SPEC(no_host_memory_is_needed),
      SPEC(driver_calls_that_fail),
      SPEC(records_that_always_fail),
      SPEC(deleters_may_use_the_library),
      SPEC(deleters_are_not_nested),
      SPEC(each_device_counts),
      SPEC(looking_is_cheap),
      SPEC(threads),
      SPEC(a_forked_child_deletes_at_once),
  };
  return RUN(tests);
}
