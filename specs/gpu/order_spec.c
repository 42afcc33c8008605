/* order_spec.c: which driver calls order a use behind another, exactly: none on the same stream, one event record and
 * one wait between two streams, and no more than must be; and which stream is refused, and how it says so. The calls
 * are counted by the simulator; on a real driver those counts are not looked at. */
#include <pthread.h>
#include <unistd.h>

#include "device.h"

enum { NBYTES = 1024 };

static uint64_t records(void) {
  return sim_ask_calls(named("cuEventRecord", "hipEventRecord"));
}

static uint64_t waits(void) {
  return sim_ask_calls(named("cuStreamWaitEvent", "hipStreamWaitEvent"));
}

static void expect_waits(uint64_t count, int line) {
  if (!other_is_simulated()) return;
  if (records() != count || waits() != count)
    fail_msg("line %d: %d records and %d waits, not %d of each", line, (int)records(), (int)waits(), (int)count);
}

static void expect_no_call(int line) {
  if (sim_ask_calls(NULL) != 0) fail_msg("line %d: %d driver calls, not 0", line, (int)sim_ask_calls(NULL));
}

#define EXPECT_WAITS(n) expect_waits(n, __LINE__)
#define EXPECT_NO_CALL() expect_no_call(__LINE__)

static void give_to(mf_tensor *t, mf_stream stream) {
  const mf_request request = {.stream = stream};
  DLManagedTensorVersioned *given;
  OK(mf_tensor_export_to(t, &request, &given, &err));
  given->deleter(given);
}

static void the_same_stream_costs_no_call(void **state) {
  DLTensor borrowed;
  DLManagedTensorVersioned *given;
  (void)state;
  const mf_stream s = stream_new(0);
  use_stream(0, s);
  mf_tensor *t = create(gpu(0), NBYTES);
  fill(t, 1);
  sim_ask_reset();
  give_to(t, s);
  give_to(t, MF_STREAM_CURRENT);
  OK(mf_tensor_acquire(t, s, MF_WRITE, &err));
  OK(mf_tensor_acquire(t, MF_STREAM_CURRENT, MF_READ, &err));
  OK(mf_tensor_borrow(t, &borrowed, &err));
  OK(mf_tensor_export(t, 0, &given, &err));
  given->deleter(given);
  EXPECT_NO_CALL();
  mf_tensor_release(t);
  stream_end(0, s);
}

static void two_streams_cost_a_record_and_a_wait(void **state) {
  (void)state;
  const mf_stream a = stream_new(0), b = stream_new(0);
  use_stream(0, a);
  mf_tensor *t = create(gpu(0), NBYTES);
  fill(t, 1);
  give_to(t, b); /* warms the event pool */
  give_to(t, a);
  sim_ask_reset();
  give_to(t, b);
  EXPECT_WAITS(1);
  give_to(t, b);
  EXPECT_WAITS(1);
  give_to(t, a);
  EXPECT_WAITS(2);
  if (other_is_simulated())
    assert_int_equal(sim_ask_calls(named("cuEventCreate", "hipEventCreateWithFlags")), 0);
  /* CUDA's context is made current to look at the stream, and once more for the record and the wait. */
  other_current_set(-1);
  sim_ask_reset();
  OK(mf_tensor_acquire(t, b, MF_WRITE, &err));
  EXPECT_WAITS(1);
  if (other_is_simulated() && other_device_type() == kDLCUDA)
    assert_int_equal(sim_ask_calls("cuCtxPushCurrent"), 2);
  mf_tensor_release(t);
  stream_end(0, a);
  stream_end(0, b);
}

static void readers_do_not_wait_for_each_other(void **state) {
  (void)state;
  const mf_stream a = stream_new(0), b = stream_new(0), c = stream_new(0);
  mf_tensor *t = create(gpu(0), NBYTES);
  OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  sim_ask_reset();
  OK(mf_tensor_acquire(t, b, MF_READ, &err));
  EXPECT_WAITS(1);
  OK(mf_tensor_acquire(t, c, MF_READ, &err));
  EXPECT_WAITS(2);
  OK(mf_tensor_acquire(t, b, MF_READ, &err));
  OK(mf_tensor_acquire(t, c, MF_READ, &err));
  EXPECT_WAITS(2);
  OK(mf_tensor_acquire(t, a, MF_READ, &err));
  EXPECT_WAITS(2);
  OK(mf_tensor_acquire(t, a, MF_WRITE, &err)); /* behind both readers */
  EXPECT_WAITS(4);
  OK(mf_tensor_acquire(t, b, MF_READ, &err)); /* behind the writer alone */
  EXPECT_WAITS(5);
  OK(mf_tensor_acquire(t, b, MF_WRITE, &err)); /* which it has seen, but which may have gone on reading */
  EXPECT_WAITS(6);
  OK(mf_tensor_acquire(t, b, MF_WRITE, &err));
  EXPECT_WAITS(6);
  mf_tensor_release(t);
  stream_end(0, a);
  stream_end(0, b);
  stream_end(0, c);
}

/* A stream that used the memory last, and alone, takes a short way; what it may not do is refused there too. */
static void a_stream_is_alone_until_another_comes(void **state) {
  const int64_t twice[] = {2, NBYTES};
  mf_tensor *t, *view;
  (void)state;
  const mf_stream a = stream_new(0), b = stream_new(0);
  t = create(gpu(0), NBYTES);
  OK(mf_tensor_broadcast_to(t, twice, 2, &view, &err));
  for (int round = 0; round < 3; round++) OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  FAILS(mf_tensor_acquire(view, a, MF_WRITE, &err), MF_EREADONLY);
  FAILS(mf_tensor_acquire(t, a, 3, &err), MF_EINVAL);
  sim_ask_reset();
  OK(mf_tensor_acquire(view, a, MF_READ, &err));
  OK(mf_tensor_acquire(t, b, MF_WRITE, &err));
  EXPECT_WAITS(1);
  OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  EXPECT_WAITS(2);
  for (int round = 0; round < 3; round++) OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  OK(mf_tensor_acquire(t, b, MF_READ, &err));
  EXPECT_WAITS(3);
  OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  EXPECT_WAITS(4);
  mf_tensor_release(view);
  mf_tensor_release(t);
  stream_end(0, a);
  stream_end(0, b);
}

static mf_tensor *as_of(mf_tensor *managed, int ordinal) {
  const mf_request request = {.device = gpu(ordinal), .copy = MF_COPY_NEVER, .stream = MF_STREAM_NO_ORDER};
  mf_tensor *t;
  OK(mf_tensor_to(managed, &request, &t, &err));
  return t;
}

static void default_streams_of_two_devices_are_two(void **state) {
  (void)state;
  skip_unless(other_devices() >= 2 && other_managed_type() != 0, "there is one device, or no managed memory");
  mf_tensor *t = create(managed(), NBYTES);
  mf_tensor *first = as_of(t, 0), *second = as_of(t, 1);
  for (int round = 0; round < 3; round++) OK(mf_tensor_acquire(first, MF_STREAM_DEFAULT, MF_WRITE, &err));
  sim_ask_reset();
  OK(mf_tensor_acquire(second, MF_STREAM_DEFAULT, MF_WRITE, &err));
  EXPECT_WAITS(1);
  OK(mf_tensor_acquire(t, MF_STREAM_HOST, MF_WRITE, &err));
  mf_tensor_release(first);
  mf_tensor_release(second);
  mf_tensor_release(t);
}

static void a_consumer_that_is_not_done_is_waited_for_each_time(void **state) {
  DLManagedTensorVersioned *given;
  (void)state;
  const mf_stream a = stream_new(0), b = stream_new(0);
  const mf_request request = {.stream = b};
  mf_tensor *t = create(gpu(0), NBYTES);
  mf_tensor *constant;
  OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  OK(mf_tensor_as_readonly(t, &constant, &err));
  OK(mf_tensor_export_to(t, &request, &given, &err));
  sim_ask_reset();
  OK(mf_tensor_acquire(t, a, MF_READ, &err));
  OK(mf_tensor_acquire(t, a, MF_READ, &err));
  EXPECT_WAITS(2);
  given->deleter(given);
  OK(mf_tensor_acquire(t, a, MF_READ, &err));
  EXPECT_WAITS(3);
  OK(mf_tensor_acquire(t, a, MF_READ, &err));
  EXPECT_WAITS(3);
  OK(mf_tensor_export_to(constant, &request, &given, &err)); /* a reader: only writers wait for it */
  sim_ask_reset();
  OK(mf_tensor_acquire(t, a, MF_READ, &err));
  EXPECT_WAITS(0);
  OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  EXPECT_WAITS(2);
  given->deleter(given);
  OK(mf_tensor_acquire(t, a, MF_READ, &err));
  EXPECT_WAITS(2);
  OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  EXPECT_WAITS(3);
  OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  EXPECT_WAITS(3);
  mf_tensor_release(constant);
  mf_tensor_release(t);
  stream_end(0, a);
  stream_end(0, b);
}

static int deletions;

static void count_deletion(DLManagedTensorVersioned *self) {
  deletions++;
  other_free(0, self->dl_tensor.data);
}

/* A use on the very stream that the memory came on, which costs no call, still keeps the deleter from running early;
 * any later operation on the device, on whatever memory, makes it due; and the next release calls it. */
static void the_deleter_waits_for_the_last_use(void **state) {
  static int64_t shape[] = {NBYTES}, strides[] = {1};
  DLManagedTensorVersioned managed = {.version = {1, 0}, .deleter = count_deletion};
  (void)state;
  for (int use = MF_READ; use <= MF_WRITE; use++) {
    const mf_stream s = stream_new(0);
    void *seen = other_pinned(NBYTES);
    mf_tensor *t, *unrelated = create(gpu(0), NBYTES);
    use_stream(0, s);
    managed.dl_tensor = (DLTensor){.data = other_alloc(0, NBYTES), .device = gpu(0), .ndim = 1,
                                   .dtype = {kDLUInt, 8, 1}, .shape = shape, .strides = strides};
    deletions = 0;
    OK(mf_tensor_import(&managed, &t, &err));
    OK(mf_tensor_acquire(t, MF_STREAM_CURRENT, use, &err));
    other_busy(0, s);
    for (int i = 0; i < 300; i++) other_copy(0, seen, data_of(t), NBYTES, s); /* to ask does not finish it */
    mf_tensor_release(t);
    if (other_is_simulated()) assert_int_equal(deletions, 0);
    other_sync(0, s);
    OK(mf_tensor_acquire(unrelated, MF_STREAM_DEFAULT, MF_WRITE, &err));
    OK(mf_tensor_acquire(unrelated, MF_STREAM_PER_THREAD, MF_READ, &err));
    assert_int_equal(deletions, 0);
    mf_tensor_release(unrelated);
    assert_int_equal(deletions, 1);
    other_pinned_free(seen);
    use_stream(0, MF_STREAM_DEFAULT);
    stream_end(0, s);
  }
}

/* Memory without elements has nothing to order, whatever the stream. */
static void empty_tensors_are_given_to_any_stream(void **state) {
  static int64_t shape[] = {0};
  const DLTensor like = {.device = gpu(0), .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  (void)state;
  const mf_stream s = stream_new(0);
  const mf_stream all[] = {s, MF_STREAM_CURRENT, MF_STREAM_DEFAULT, MF_STREAM_PER_THREAD, MF_STREAM_NO_ORDER};
  mf_tensor *t;
  OK(mf_tensor_create(&like, 0, &t, &err));
  for (size_t i = 0; i < COUNT(all); i++) give_to(t, all[i]);
  fill(t, 1);
  mf_tensor_release(t);
  stream_end(0, s);
}

/* A program that works on batches meets an empty one: it is on its device as any other. */
static void empty_tensors_take_the_streams_of_their_device(void **state) {
  static int64_t shape[] = {0, 3};
  const DLDevice places[] = {gpu(0), pinned(), managed()};
  (void)state;
  const mf_stream s = stream_new(0);
  const mf_stream all[] = {s, MF_STREAM_DEFAULT, MF_STREAM_PER_THREAD, MF_STREAM_OF(0, MF_STREAM_DEFAULT)};
  for (size_t p = 0; p < (other_managed_type() != 0 ? 3 : 2); p++) {
    const DLTensor like = {.device = places[p], .ndim = 2, .dtype = {kDLUInt, 8, 1}, .shape = shape};
    mf_tensor *t, *copy;
    OK(mf_tensor_create(&like, 0, &t, &err));
    for (size_t i = 0; i < COUNT(all); i++) {
      OK(mf_tensor_acquire(t, all[i], MF_WRITE, &err));
      OK(mf_tensor_record(t, all[i], MF_READ, &err));
      OK(mf_tensor_to(t, &(mf_request){.device = {kDLCPU, 0}, .copy = MF_COPY_ALWAYS, .stream = all[i]}, &copy, &err));
      mf_tensor_release(copy);
    }
    OK(mf_tensor_acquire(t, MF_STREAM_HOST, MF_WRITE, &err));
    FAILS(mf_tensor_acquire(t, -3, MF_READ, &err), MF_EINVAL);
    FAILS(mf_tensor_acquire(t, MF_STREAM_OF(63, MF_STREAM_DEFAULT), MF_READ, &err), MF_EINVAL);
    SAYS("device_id of 0 to");
    const mf_request on_host = {.device = {kDLCPU, 0}, .copy = MF_COPY_NEVER};
    if (p == 0) FAILS(mf_tensor_to(t, &on_host, &copy, &err), MF_ELAYOUT);
    else OK(mf_tensor_to(t, &on_host, &copy, &err));
    if (p > 0) mf_tensor_release(copy);
    mf_tensor_release(t);
  }
  stream_end(0, s);
}

static void no_order_means_no_call_and_no_record(void **state) {
  (void)state;
  const mf_stream a = stream_new(0);
  mf_tensor *t = create(gpu(0), NBYTES);
  OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  sim_ask_reset();
  give_to(t, MF_STREAM_NO_ORDER);
  OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  EXPECT_NO_CALL();
  mf_tensor_release(t);
  stream_end(0, a);
}

static void two_devices_are_ordered_on_the_device(void **state) {
  const DLDevice first = gpu(0), second = gpu(1);
  (void)state;
  needs_devices(2);
  const mf_stream a = stream_new(0), b = stream_new(1);
  sim_ask_reset();
  OK(mf_stream_wait(&second, b, &first, a, &err));
  EXPECT_WAITS(1);
  FAILS(mf_stream_check(&first, b, &err), MF_EINVAL);
  SAYS("one of");
  mf_tensor *t = create(first, NBYTES);
  FAILS(mf_tensor_acquire(t, b, MF_READ, &err), MF_EINVAL);
  mf_tensor_release(t);
  stream_end(0, a);
  stream_end(1, b);
}

static mf_tensor *shared;

/* What both threads call their stream: by its name, or the one that is current. */
static mf_stream called;
static pthread_barrier_t both;

/* It lives on: where a thread ends, its stream is waited for. */
static void *fill_on_my_stream(void *arg) {
  (void)arg;
  use_stream(0, MF_STREAM_PER_THREAD);
  OK(mf_tensor_acquire(shared, called, MF_WRITE, &err));
  other_fill(0, data_of(shared), 7, NBYTES, 2);
  (void)pthread_barrier_wait(&both);
  (void)pthread_barrier_wait(&both);
  return NULL;
}

/* Value 2 is another stream in each thread, and nobody but the thread itself can name it. */
static void per_thread_streams_of_two_threads_are_two(void **state) {
  pthread_t thread;
  (void)state;
  assert_int_equal(pthread_barrier_init(&both, NULL, 2), 0);
  for (uint64_t seed = 0; seed < 20; seed++) {
    sim_ask_seed(seed);
    called = seed % 2 == 0 ? MF_STREAM_PER_THREAD : MF_STREAM_CURRENT;
    shared = create(gpu(0), NBYTES);
    pthread_create(&thread, NULL, fill_on_my_stream, NULL);
    (void)pthread_barrier_wait(&both);
    use_stream(0, MF_STREAM_PER_THREAD);
    unsigned char *seen = other_pinned(NBYTES);
    OK(mf_tensor_acquire(shared, called, MF_READ, &err));
    other_copy(0, seen, data_of(shared), NBYTES, 2);
    mf_tensor *copy;
    OK(mf_tensor_clone(shared, &copy, &err));
    expect_filled(copy, 7);
    mf_tensor_release(copy);
    other_sync(0, 2);
    assert_int_equal(seen[NBYTES - 1], 7);
    other_pinned_free(seen);
    (void)pthread_barrier_wait(&both);
    pthread_join(thread, NULL);
    mf_tensor_release(shared);
    use_stream(0, MF_STREAM_DEFAULT);
  }
  (void)pthread_barrier_destroy(&both);
}

/* Bad input */

/* NVIDIA's driver reads what the handle points to, whatever is there by then. */
static void a_destroyed_stream_is_refused(void **state) {
  const DLDevice device = gpu(0);
  (void)state;
  needs_simulator();
  const int64_t gone = other_stream(0, false);
  other_stream_end(gone);
  mf_tensor *t = create(device, NBYTES);
  const mf_request request = {.stream = gone};
  DLManagedTensorVersioned *given;
  FAILS(mf_stream_check(&device, gone, &err), MF_EINVAL);
  SAYS("stream");
  FAILS(mf_tensor_export_to(t, &request, &given, &err), MF_EINVAL);
  assert_null(given);
  FAILS(mf_stream_swap(&device, gone, NULL, &err), MF_EINVAL);
  FAILS(mf_stream_destroy(&device, gone, &err), MF_EINVAL);
  fill(t, 1);
  expect_filled(t, 1);
  mf_tensor_release(t);
  sim_ask_reset(); /* the simulator reports that a dead handle was asked about, as it should */
}

static void numbers_that_are_no_stream_are_refused(void **state) {
  const DLDevice device = gpu(0);
  (void)state;
  mf_tensor *t = create(device, NBYTES);
  for (mf_stream s = -9; s < MF_STREAM_HOST; s++) FAILS(mf_tensor_acquire(t, s, MF_READ, &err), MF_EINVAL);
  FAILS(mf_tensor_record(t, MF_STREAM_HOST, MF_READ, &err), MF_EINVAL);
  FAILS(mf_tensor_record(t, MF_STREAM_NO_ORDER, MF_READ, &err), MF_EINVAL);
  FAILS(mf_tensor_acquire(t, MF_STREAM_DEFAULT, 3, &err), MF_EINVAL);
  FAILS(mf_stream_swap(&device, MF_STREAM_NO_ORDER, NULL, &err), MF_EINVAL);
  mf_tensor_release(t);
}

static void pointers_are_where_the_driver_says(void **state) {
  static int64_t shape[] = {16};
  static unsigned char plain[16];
  (void)state;
  void *mine = other_alloc(0, 64);
  DLTensor view = {.data = mine, .device = gpu(0), .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  OK(mf_dltensor_check(&view, 0, &err));
  if (other_devices() > 1) {
    view.device = gpu(1);
    FAILS(mf_dltensor_check(&view, 0, &err), MF_EDEVICE);
    SAYS("device says");
  }
  view.device = pinned();
  FAILS(mf_dltensor_check(&view, 0, &err), MF_EDEVICE);
  view.device = gpu(0);
  view.data = plain;
  FAILS(mf_dltensor_check(&view, 0, &err), MF_EINVAL);
  SAYS("data");
  view.device = gpu(other_devices());
  FAILS(mf_dltensor_check(&view, 0, &err), MF_EDEVICE);
  SAYS("device_id");
  other_free(0, mine);
}

static void the_current_device_stays(void **state) {
  (void)state;
  for (int current = -1; current < other_devices() && current < 2; current++) {
    other_current_set(current);
    void *before = other_current();
    for (int ordinal = 0; ordinal < other_devices() && ordinal < 2; ordinal++) {
      const mf_stream s = stream_new(ordinal);
      use_stream(ordinal, s);
      mf_tensor *t = create(gpu(ordinal), NBYTES);
      fill(t, 1);
      give_to(t, MF_STREAM_DEFAULT);
      expect_filled(t, 1);
      mf_tensor_release(t);
      use_stream(ordinal, MF_STREAM_DEFAULT);
      stream_end(ordinal, s);
      assert_ptr_equal(other_current(), before);
    }
  }
  other_current_set(-1);
}

/* The child makes no driver call, says why it cannot, and can still let go of what it inherited. */
static mf_tensor *inherited, *inherited_empty;

static void use_the_inherited(void) {
  mf_tensor *u;
  const DLTensor like = {.device = gpu(0), .ndim = 0, .dtype = {kDLUInt, 8, 1}};
  sim_ask_reset();
  if (mf_tensor_create(&like, 0, &u, &err) != MF_EDEVICE || strstr(err.message, "fork") == NULL) _exit(1);
  if (try_fill(inherited, 2) == MF_OK || strstr(err.message, "fork") == NULL) _exit(2);
  if (mf_tensor_acquire(inherited_empty, 64, MF_READ, &err) == MF_OK || strstr(err.message, "fork") == NULL) _exit(5);
  mf_tensor_release(inherited_empty);
  mf_tensor_release(inherited);
  const DLTensor host = {.ndim = 0, .dtype = {kDLUInt, 8, 1}};
  if (mf_tensor_create(&host, 0, &u, &err) != MF_OK) _exit(3);
  mf_tensor_release(u);
  if (sim_ask_calls(NULL) != 0) _exit(4);
}

static void a_forked_child_is_told(void **state) {
  (void)state;
  inherited = create(gpu(0), NBYTES);
  inherited_empty = create(gpu(0), 0);
  fill(inherited, 1);
  in_fork(use_the_inherited);
  expect_filled(inherited, 1);
  mf_tensor_release(inherited_empty);
  mf_tensor_release(inherited);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(the_same_stream_costs_no_call),
      SPEC(two_streams_cost_a_record_and_a_wait),
      SPEC(readers_do_not_wait_for_each_other),
      SPEC(a_stream_is_alone_until_another_comes),
      SPEC(default_streams_of_two_devices_are_two),
      SPEC(a_consumer_that_is_not_done_is_waited_for_each_time),
      SPEC(the_deleter_waits_for_the_last_use),
      SPEC(empty_tensors_are_given_to_any_stream),
      SPEC(empty_tensors_take_the_streams_of_their_device),
      SPEC(no_order_means_no_call_and_no_record),
      SPEC(two_devices_are_ordered_on_the_device),
      SPEC(per_thread_streams_of_two_threads_are_two),
      SPEC(a_destroyed_stream_is_refused),
      SPEC(numbers_that_are_no_stream_are_refused),
      SPEC(pointers_are_where_the_driver_says),
      SPEC(the_current_device_stays),
      SPEC(a_forked_child_is_told),
  };
  return RUN(tests);
}
