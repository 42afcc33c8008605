/* order_spec.c: which driver calls order a use behind another, exactly: none on the same stream, one event record and
 * one wait between two streams, and no more than must be; and which stream is refused, and how it says so. The calls
 * are counted by the simulator; on a real driver those counts are not looked at. */
#include <pthread.h>
#include <unistd.h>

#include "use.h"

static uint64_t records(void) {
  return sim_ask_calls(sim_ask_which("cuEventRecord", "hipEventRecord"));
}

static uint64_t waits(void) {
  return sim_ask_calls(sim_ask_which("cuStreamWaitEvent", "hipStreamWaitEvent"));
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
  const mf_stream s = use_new_stream(0);
  use_stream(0, s);
  mf_tensor *t = use_create(gpu_device(0));
  use_fill(t, 1);
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
  use_end_stream(0, s);
}

static void two_streams_cost_a_record_and_a_wait(void **state) {
  (void)state;
  const mf_stream a = use_new_stream(0), b = use_new_stream(0);
  use_stream(0, a);
  mf_tensor *t = use_create(gpu_device(0));
  use_fill(t, 1);
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
    assert_int_equal(sim_ask_calls(sim_ask_which("cuEventCreate", "hipEventCreateWithFlags")), 0);
  mf_tensor_release(t);
  use_end_stream(0, a);
  use_end_stream(0, b);
}

static void readers_do_not_wait_for_each_other(void **state) {
  (void)state;
  const mf_stream a = use_new_stream(0), b = use_new_stream(0), c = use_new_stream(0);
  mf_tensor *t = use_create(gpu_device(0));
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
  use_end_stream(0, a);
  use_end_stream(0, b);
  use_end_stream(0, c);
}

/* A stream that used the memory last, and alone, takes a short way; what it may not do is refused there too. */
static void a_stream_is_alone_until_another_comes(void **state) {
  const int64_t twice[] = {2, NBYTES};
  mf_tensor *t, *view;
  (void)state;
  const mf_stream a = use_new_stream(0), b = use_new_stream(0);
  t = use_create(gpu_device(0));
  OK(mf_tensor_broadcast(t, twice, 2, &view, &err));
  for (int round = 0; round < 3; round++) OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  FAILS(MF_EREADONLY, mf_tensor_acquire(view, a, MF_WRITE, &err));
  FAILS(MF_EINVAL, mf_tensor_acquire(t, a, 3, &err));
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
  use_end_stream(0, a);
  use_end_stream(0, b);
}

static mf_tensor *as_of(mf_tensor *managed, int ordinal) {
  const mf_request request = {.device = gpu_device(ordinal), .copy = MF_COPY_NEVER, .stream = MF_STREAM_NO_ORDER};
  mf_tensor *t;
  OK(mf_tensor_to(managed, &request, &t, &err));
  return t;
}

static void default_streams_of_two_devices_are_two(void **state) {
  (void)state;
  if (other_devices() < 2 || other_managed_type() == 0) {
    print_message("skipped: there is one device, or no managed memory\n");
    skip();
  }
  mf_tensor *t = use_create((DLDevice){(DLDeviceType)other_managed_type(), 0});
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
  const mf_stream a = use_new_stream(0), b = use_new_stream(0);
  const mf_request request = {.stream = b};
  mf_tensor *t = use_create(gpu_device(0));
  mf_tensor *constant;
  OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  OK(mf_tensor_readonly(t, &constant, &err));
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
  use_end_stream(0, a);
  use_end_stream(0, b);
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
    const mf_stream s = use_new_stream(0);
    void *seen = other_pinned(NBYTES);
    mf_tensor *t, *unrelated = use_create(gpu_device(0));
    use_stream(0, s);
    managed.dl_tensor = (DLTensor){.data = other_alloc(0, NBYTES), .device = gpu_device(0), .ndim = 1,
                                   .dtype = {kDLUInt, 8, 1}, .shape = shape, .strides = strides};
    deletions = 0;
    OK(mf_tensor_import(&managed, &t, &err));
    OK(mf_tensor_acquire(t, MF_STREAM_CURRENT, use, &err));
    for (int i = 0; i < 300; i++) other_copy(0, seen, use_data(t), NBYTES, s); /* to ask does not finish it */
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
    use_end_stream(0, s);
  }
}

/* Memory without elements has nothing to order, whatever the stream. */
static void empty_tensors_are_given_to_any_stream(void **state) {
  static int64_t shape[] = {0};
  const DLTensor like = {.device = gpu_device(0), .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  (void)state;
  const mf_stream s = use_new_stream(0);
  const mf_stream all[] = {s, MF_STREAM_CURRENT, MF_STREAM_DEFAULT, MF_STREAM_PER_THREAD, MF_STREAM_NO_ORDER};
  mf_tensor *t;
  OK(mf_tensor_create(&like, 0, &t, &err));
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) give_to(t, all[i]);
  use_fill(t, 1);
  mf_tensor_release(t);
  use_end_stream(0, s);
}

static void no_order_means_no_call_and_no_record(void **state) {
  (void)state;
  const mf_stream a = use_new_stream(0);
  mf_tensor *t = use_create(gpu_device(0));
  OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  sim_ask_reset();
  give_to(t, MF_STREAM_NO_ORDER);
  OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  EXPECT_NO_CALL();
  mf_tensor_release(t);
  use_end_stream(0, a);
}

static void two_devices_are_ordered_on_the_device(void **state) {
  const DLDevice first = gpu_device(0), second = gpu_device(1);
  (void)state;
  if (other_devices() < 2) {
    print_message("skipped: there is one device\n");
    skip();
  }
  const mf_stream a = use_new_stream(0), b = use_new_stream(1);
  sim_ask_reset();
  OK(mf_stream_wait(&second, b, &first, a, &err));
  EXPECT_WAITS(1);
  FAILS(MF_EINVAL, mf_stream_check(&first, b, &err));
  SAYS("one of");
  mf_tensor *t = use_create(first);
  FAILS(MF_EINVAL, mf_tensor_acquire(t, b, MF_READ, &err));
  mf_tensor_release(t);
  use_end_stream(0, a);
  use_end_stream(1, b);
}

static mf_tensor *shared;

static void *fill_on_my_stream(void *arg) {
  (void)arg;
  OK(mf_tensor_acquire(shared, MF_STREAM_PER_THREAD, MF_WRITE, &err));
  other_fill(0, use_data(shared), 7, NBYTES, 2);
  return NULL;
}

/* Value 2 is another stream in each thread, and nobody but the thread itself can name it. */
static void per_thread_streams_of_two_threads_are_two(void **state) {
  pthread_t thread;
  (void)state;
  for (uint64_t seed = 0; seed < 10; seed++) {
    sim_ask_seed(seed);
    shared = use_create(gpu_device(0));
    pthread_create(&thread, NULL, fill_on_my_stream, NULL);
    pthread_join(thread, NULL);
    use_stream(0, MF_STREAM_PER_THREAD);
    unsigned char *seen = other_pinned(NBYTES);
    OK(mf_tensor_acquire(shared, MF_STREAM_PER_THREAD, MF_READ, &err));
    other_copy(0, seen, use_data(shared), NBYTES, 2);
    mf_tensor *copy;
    OK(mf_tensor_clone(shared, &copy, &err));
    use_expect(copy, 7);
    mf_tensor_release(copy);
    other_sync(0, 2);
    assert_int_equal(seen[NBYTES - 1], 7);
    other_pinned_free(seen);
    mf_tensor_release(shared);
    use_stream(0, MF_STREAM_DEFAULT);
  }
}

/* Bad input */

static void a_destroyed_stream_is_refused(void **state) {
  const DLDevice device = gpu_device(0);
  (void)state;
  const int64_t gone = other_stream(0, false);
  other_stream_end(gone);
  mf_tensor *t = use_create(device);
  const mf_request request = {.stream = gone};
  DLManagedTensorVersioned *given;
  FAILS(MF_EINVAL, mf_stream_check(&device, gone, &err));
  SAYS("stream");
  FAILS(MF_EINVAL, mf_tensor_export_to(t, &request, &given, &err));
  assert_null(given);
  FAILS(MF_EINVAL, mf_stream_swap(&device, gone, NULL, &err));
  FAILS(MF_EINVAL, mf_stream_destroy(&device, gone, &err));
  use_fill(t, 1);
  use_expect(t, 1);
  mf_tensor_release(t);
  sim_ask_reset(); /* the simulator reports that a dead handle was asked about, as it should */
}

static void numbers_that_are_no_stream_are_refused(void **state) {
  const DLDevice device = gpu_device(0);
  (void)state;
  mf_tensor *t = use_create(device);
  for (mf_stream s = -9; s < MF_STREAM_HOST; s++) FAILS(MF_EINVAL, mf_tensor_acquire(t, s, MF_READ, &err));
  FAILS(MF_EINVAL, mf_tensor_record(t, MF_STREAM_HOST, MF_READ, &err));
  FAILS(MF_EINVAL, mf_tensor_record(t, MF_STREAM_NO_ORDER, MF_READ, &err));
  FAILS(MF_EINVAL, mf_tensor_acquire(t, MF_STREAM_DEFAULT, 3, &err));
  FAILS(MF_EINVAL, mf_stream_swap(&device, MF_STREAM_NO_ORDER, NULL, &err));
  mf_tensor_release(t);
}

static void pointers_are_where_the_driver_says(void **state) {
  static int64_t shape[] = {16};
  static unsigned char plain[16];
  (void)state;
  void *mine = other_alloc(0, 64);
  DLTensor view = {.data = mine, .device = gpu_device(0), .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  OK(mf_dltensor_check(&view, 0, &err));
  if (other_devices() > 1) {
    view.device = gpu_device(1);
    FAILS(MF_EDEVICE, mf_dltensor_check(&view, 0, &err));
    SAYS("device says");
  }
  view.device = pinned_device();
  FAILS(MF_EDEVICE, mf_dltensor_check(&view, 0, &err));
  view.device = gpu_device(0);
  view.data = plain;
  FAILS(MF_EINVAL, mf_dltensor_check(&view, 0, &err));
  SAYS("data");
  view.device = gpu_device(other_devices());
  FAILS(MF_EDEVICE, mf_dltensor_check(&view, 0, &err));
  SAYS("device_id");
  other_free(0, mine);
}

static void the_current_device_stays(void **state) {
  (void)state;
  for (int current = -1; current < other_devices() && current < 2; current++) {
    other_current_set(current);
    void *before = other_current();
    for (int ordinal = 0; ordinal < other_devices() && ordinal < 2; ordinal++) {
      const mf_stream s = use_new_stream(ordinal);
      use_stream(ordinal, s);
      mf_tensor *t = use_create(gpu_device(ordinal));
      use_fill(t, 1);
      give_to(t, MF_STREAM_DEFAULT);
      use_expect(t, 1);
      mf_tensor_release(t);
      use_stream(ordinal, MF_STREAM_DEFAULT);
      use_end_stream(ordinal, s);
      assert_ptr_equal(other_current(), before);
    }
  }
  other_current_set(-1);
}

/* The child makes no driver call, says why it cannot, and can still let go of what it inherited. */
static mf_tensor *inherited;

static void use_the_inherited(void) {
  mf_tensor *u;
  const DLTensor like = {.device = gpu_device(0), .ndim = 0, .dtype = {kDLUInt, 8, 1}};
  sim_ask_reset();
  if (mf_tensor_create(&like, 0, &u, &err) != MF_EDEVICE || strstr(err.message, "fork") == NULL) _exit(1);
  if (use_try_fill(inherited, 2) == MF_OK || strstr(err.message, "fork") == NULL) _exit(2);
  mf_tensor_release(inherited);
  const DLTensor host = {.ndim = 0, .dtype = {kDLUInt, 8, 1}};
  if (mf_tensor_create(&host, 0, &u, &err) != MF_OK) _exit(3);
  mf_tensor_release(u);
  if (sim_ask_calls(NULL) != 0) _exit(4);
}

static void a_forked_child_is_told(void **state) {
  (void)state;
  inherited = use_create(gpu_device(0));
  use_fill(inherited, 1);
  in_fork(use_the_inherited);
  use_expect(inherited, 1);
  mf_tensor_release(inherited);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      USE(the_same_stream_costs_no_call),
      USE(two_streams_cost_a_record_and_a_wait),
      USE(readers_do_not_wait_for_each_other),
      USE(a_stream_is_alone_until_another_comes),
      USE(default_streams_of_two_devices_are_two),
      USE(a_consumer_that_is_not_done_is_waited_for_each_time),
      USE(the_deleter_waits_for_the_last_use),
      USE(empty_tensors_are_given_to_any_stream),
      USE(no_order_means_no_call_and_no_record),
      USE(two_devices_are_ordered_on_the_device),
      USE(per_thread_streams_of_two_threads_are_two),
      USE(a_destroyed_stream_is_refused),
      USE(numbers_that_are_no_stream_are_refused),
      USE(pointers_are_where_the_driver_says),
      USE(the_current_device_stays),
      USE(a_forked_child_is_told),
  };
  return other_open() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
