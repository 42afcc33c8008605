/* record_spec.c: what the record of a memory keeps of each stream, and for how long: the very first use, a consumer
 * that is not done when the host or its own stream writes, and what was left while the record is full. And what it
 * need not keep: nobody waits for a use that the host has seen finished, or for others who only read. */
#include <pthread.h>

#include "device.h"

enum { NBYTES = 4096, EARLY = 1, LATE = 9 };

static void expect_bytes(const unsigned char *seen, int byte) {
  for (int i = 0; i < NBYTES; i++)
    if (seen[i] != byte) fail_msg("byte %d is %#x, not %#x", i, seen[i], byte);
}

static DLManagedTensorVersioned *give(mf_tensor *t, mf_stream stream) {
  const mf_request request = {.stream = stream};
  DLManagedTensorVersioned *given;
  OK(mf_tensor_export_to(t, &request, &given, &err));
  return given;
}

static uint64_t device_waits(void) {
  return sim_ask_calls(named("cuStreamWaitEvent", "hipStreamWaitEvent"));
}

/* Nothing was in the record when the device read what the host had written. */
static void the_host_waits_for_the_first_use_of_all(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < seeds(10); seed++) {
    sim_ask_seed(seed);
    const mf_stream a = stream_new(0);
    mf_tensor *from = create(pinned(), NBYTES), *to = create(gpu(0), NBYTES);
    memset(data_of(from), EARLY, NBYTES);
    keep_busy(to, a);
    use_stream(0, a);
    OK(mf_tensor_copy(to, from, &err));
    use_stream(0, MF_STREAM_DEFAULT);
    OK(mf_tensor_acquire(from, MF_STREAM_HOST, MF_WRITE, &err));
    sim_ask_host(data_of(from), NBYTES, true);
    memset(data_of(from), LATE, NBYTES);
    expect_filled(to, EARLY);
    mf_tensor_release(from);
    mf_tensor_release(to);
    stream_end(0, a);
  }
}

/* More consumers that only read, each on a stream that is destroyed, than a record has room for at first. */
static void what_was_left_is_kept_while_it_runs(void **state) {
  enum { READERS = 9 };
  (void)state;
  for (uint64_t seed = 0; seed < seeds(10); seed++) {
    sim_ask_seed(seed);
    unsigned char *seen = other_pinned(READERS * NBYTES);
    mf_tensor *t = create(gpu(0), NBYTES), *constant;
    write_on(t, MF_STREAM_DEFAULT, EARLY);
    OK(mf_tensor_as_readonly(t, &constant, &err));
    for (int i = 0; i < READERS; i++) {
      const mf_stream s = other_stream(0, false);
      DLManagedTensorVersioned *given = give(constant, s);
      for (int n = 0; n < 20; n++) other_copy(0, seen + i * NBYTES, given->dl_tensor.data, NBYTES, s);
      given->deleter(given);
      other_stream_end(s);
    }
    const mf_stream b = stream_new(0);
    write_on(t, b, LATE);
    other_sync_all(0);
    for (int i = 0; i < READERS; i++) expect_bytes(seen + i * NBYTES, EARLY);
    mf_tensor_release(constant);
    mf_tensor_release(t);
    other_pinned_free(seen);
    stream_end(0, b);
  }
}

/* What the consumer queues after the host came counts as well. */
static void a_consumer_stays_where_the_host_comes(void **state) {
  const DLDevice devices[] = {gpu(0), pinned()};
  (void)state;
  for (uint64_t run = 0; run < 4 * seeds(5); run++) {
    sim_ask_seed(run / 4);
    const mf_stream a = other_stream(0, false), b = stream_new(0);
    unsigned char *seen = other_pinned(NBYTES);
    mf_tensor *t = create(devices[run % 2], NBYTES);
    DLManagedTensorVersioned *given = give(t, a);
    other_fill(0, given->dl_tensor.data, EARLY, NBYTES, a);
    OK(mf_tensor_acquire(t, MF_STREAM_HOST, run % 4 < 2 ? MF_READ : MF_WRITE, &err));
    for (int n = 0; n < 20; n++) other_fill(0, given->dl_tensor.data, LATE, NBYTES, a);
    given->deleter(given);
    OK(mf_tensor_acquire(t, b, MF_READ, &err));
    other_copy(0, seen, data_of(t), NBYTES, b);
    other_sync_all(0);
    expect_bytes(seen, LATE);
    mf_tensor_release(t);
    other_pinned_free(seen);
    other_stream_end(a);
    stream_end(0, b);
  }
}

/* A write on the consumer's own stream comes after what it had read, not after what it still reads. */
static void a_reader_stays_where_its_own_stream_writes(void **state) {
  (void)state;
  for (uint64_t run = 0; run < 2 * seeds(10); run++) {
    const bool is_done = run % 2 == 1; /* before the next writer comes, and with work that is not */
    sim_ask_seed(run / 2);
    const mf_stream a = stream_new(0), b = stream_new(0);
    unsigned char *seen = other_pinned(NBYTES);
    mf_tensor *t = create(gpu(0), NBYTES), *constant;
    const mf_scalar early = {.kind = MF_KIND_UINT, .u = EARLY};
    OK(mf_tensor_as_readonly(t, &constant, &err));
    DLManagedTensorVersioned *given = give(constant, a);
    use_stream(0, a);
    OK(mf_tensor_fill(t, &early, &err));
    use_stream(0, MF_STREAM_DEFAULT);
    OK(mf_tensor_acquire(t, b, MF_READ, &err)); /* has seen the write */
    for (int n = 0; n < 20; n++) other_copy(0, seen, given->dl_tensor.data, NBYTES, a);
    if (is_done) given->deleter(given);
    write_on(t, b, LATE);
    other_sync_all(0);
    expect_bytes(seen, EARLY);
    if (!is_done) given->deleter(given);
    mf_tensor_release(constant);
    mf_tensor_release(t);
    other_pinned_free(seen);
    stream_end(0, a);
    stream_end(0, b);
  }
}

/* A consumer has read, and its stream is destroyed. Whoever reads next waits for the writer alone. */
static void readers_do_not_wait_for_a_reader_that_left(void **state) {
  (void)state;
  needs_simulator();
  const mf_stream a = stream_new(0), b = stream_new(0), theirs = other_stream(0, false);
  mf_tensor *t = create(gpu(0), NBYTES), *constant;
  write_on(t, a, EARLY);
  OK(mf_tensor_as_readonly(t, &constant, &err));
  DLManagedTensorVersioned *given = give(constant, theirs);
  given->deleter(given);
  other_stream_end(theirs);
  sim_ask_reset();
  OK(mf_tensor_acquire(t, b, MF_READ, &err));
  assert_int_equal(device_waits(), 1);
  mf_tensor_release(constant);
  mf_tensor_release(t);
  stream_end(0, a);
  stream_end(0, b);
}

/* The host waits for what was written, once, and for nobody who reads as well. */
static void the_host_waits_once_for_a_write(void **state) {
  const DLDevice devices[] = {gpu(0), pinned()};
  (void)state;
  needs_simulator();
  for (int i = 0; i < 2; i++) {
    const mf_stream a = stream_new(0), b = stream_new(0);
    mf_tensor *t = create(devices[i], NBYTES);
    write_on(t, a, EARLY);
    OK(mf_tensor_acquire(t, MF_STREAM_HOST, MF_READ, &err));
    sim_ask_reset();
    OK(mf_tensor_acquire(t, MF_STREAM_HOST, MF_READ, &err));
    OK(mf_tensor_acquire(t, b, MF_READ, &err));
    OK(mf_tensor_acquire(t, MF_STREAM_HOST, MF_READ, &err));
    assert_int_equal(device_waits(), 0);
    assert_int_equal(host_waits(), 0);
    mf_tensor_release(t);
    stream_end(0, a);
    stream_end(0, b);
  }
}

/* Uses that nobody was granted: who has waited for them once, on the device or as the host, has done with them. */
static void what_was_waited_for_is_done_with(void **state) {
  const DLDevice devices[] = {gpu(0), pinned()};
  const mf_scalar early = {.kind = MF_KIND_UINT, .u = EARLY};
  (void)state;
  needs_simulator();
  for (int i = 0; i < 4; i++) {
    const mf_stream a = stream_new(0), b = stream_new(0);
    mf_tensor *t = create(devices[i % 2], NBYTES), *copy;
    use_stream(0, a);
    OK(mf_tensor_clone(t, &copy, &err)); /* a read that is before the write */
    OK(mf_tensor_fill(t, &early, &err));
    use_stream(0, MF_STREAM_DEFAULT);
    sim_ask_reset();
    OK(mf_tensor_acquire(t, i < 2 ? b : MF_STREAM_HOST, MF_READ, &err));
    sim_ask_reset();
    OK(mf_tensor_acquire(t, b, MF_WRITE, &err));
    assert_int_equal(device_waits(), 0);
    mf_tensor_release(copy);
    mf_tensor_release(t);
    stream_end(0, a);
    stream_end(0, b);
  }
}

/* A driver that has names for streams says that it is the same one, which has seen what was written. */
static void a_consumer_that_comes_again_has_seen_the_write(void **state) {
  (void)state;
  needs_simulator();
  const bool has_names = sim_ask_is_direct() && other_device_type() == kDLCUDA;
  const mf_stream a = stream_new(0), theirs = other_stream(0, false);
  mf_tensor *t = create(gpu(0), NBYTES), *constant;
  write_on(t, a, EARLY);
  OK(mf_tensor_as_readonly(t, &constant, &err));
  DLManagedTensorVersioned *given = give(constant, theirs);
  given->deleter(given);
  sim_ask_reset();
  given = give(constant, theirs);
  assert_int_equal(device_waits(), has_names ? 0 : 1);
  given->deleter(given);
  mf_tensor_release(constant);
  mf_tensor_release(t);
  synchronize(0);
  other_stream_end(theirs);
  stream_end(0, a);
}

/* A stream of ours lives as long as a record names it: nobody has to ask the driver whether it does. */
static void a_stream_of_ours_is_not_asked_about(void **state) {
  (void)state;
  needs_simulator();
  const mf_stream a = stream_new(0), b = stream_new(0);
  mf_tensor *t = create(gpu(0), NBYTES);
  OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  OK(mf_tensor_record(t, b, MF_READ, &err)); /* both handles are in the record, and known */
  sim_ask_reset();
  OK(mf_tensor_acquire(t, b, MF_READ, &err));
  OK(mf_tensor_acquire(t, a, MF_WRITE, &err));
  OK(mf_tensor_acquire(t, MF_STREAM_HOST, MF_WRITE, &err));
  assert_int_equal(device_waits(), 2);
  assert_int_equal(sim_ask_calls(named("cuStreamGetCtx", "hipStreamGetDevice")), 0);
  mf_tensor_release(t);
  stream_end(0, a);
  stream_end(0, b);
}

static mf_tensor *shared;

static void *write_on_my_stream(void *arg) {
  (void)arg;
  write_on(shared, MF_STREAM_PER_THREAD, EARLY);
  return NULL;
}

/* What is queued on the legacy stream comes after all that other threads have queued on theirs, and no stream has to
 * wait for itself. */
static void the_driver_orders_the_legacy_stream_and_each_by_itself(void **state) {
  const DLDevice device = gpu(0);
  pthread_t thread;
  (void)state;
  needs_simulator();
  const mf_stream a = stream_new(0);
  shared = create(gpu(0), NBYTES);
  assert_int_equal(pthread_create(&thread, NULL, write_on_my_stream, NULL), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  sim_ask_reset();
  OK(mf_tensor_acquire(shared, MF_STREAM_DEFAULT, MF_WRITE, &err));
  OK(mf_stream_wait(&device, a, &device, a, &err));
  OK(mf_stream_wait(&device, MF_STREAM_DEFAULT, &device, MF_STREAM_DEFAULT, &err));
  assert_int_equal(device_waits(), 0);
  assert_int_equal(sim_ask_calls(named("cuEventRecord", "hipEventRecord")), 0);
  expect_filled(shared, EARLY);
  mf_tensor_release(shared);
  stream_end(0, a);
}

static mf_tensor *half(mf_tensor *t, int64_t from) {
  const mf_index part = {.kind = MF_INDEX_SLICE, .start = from, .stop = from + NBYTES / 2, .step = 1};
  mf_tensor *view;
  OK(mf_tensor_index(t, &part, 1, &view, &err));
  return view;
}

/* A copy within one memory uses one record twice. */
static void both_sides_of_a_copy_may_be_one_memory(void **state) {
  const DLDevice devices[] = {gpu(0), pinned()};
  (void)state;
  for (int i = 0; i < 2; i++) {
    const mf_stream a = stream_new(0);
    mf_tensor *t = create(devices[i], NBYTES), *low = half(t, 0), *high = half(t, NBYTES / 2);
    write_on(t, a, EARLY);
    write_on(low, a, LATE);
    OK(mf_tensor_copy(high, low, &err));
    expect_filled(t, LATE);
    OK(mf_tensor_copy(low, high, &err));
    expect_filled(t, LATE);
    mf_tensor_release(low);
    mf_tensor_release(high);
    mf_tensor_release(t);
    stream_end(0, a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(the_host_waits_for_the_first_use_of_all),
      SPEC(what_was_left_is_kept_while_it_runs),
      SPEC(a_consumer_stays_where_the_host_comes),
      SPEC(a_reader_stays_where_its_own_stream_writes),
      SPEC(readers_do_not_wait_for_a_reader_that_left),
      SPEC(the_host_waits_once_for_a_write),
      SPEC(what_was_waited_for_is_done_with),
      SPEC(a_consumer_that_comes_again_has_seen_the_write),
      SPEC(a_stream_of_ours_is_not_asked_about),
      SPEC(the_driver_orders_the_legacy_stream_and_each_by_itself),
      SPEC(both_sides_of_a_copy_may_be_one_memory),
  };
  return RUN(tests);
}
