/* pool_home_spec.c: which stream a kept block belongs to, and who else may have it: the stream that used it last has it
 * at once; every other one has what is known to be done, however many blocks there are that are not; and a stream that
 * has the handle of one that is gone is not taken for it. */
#include <pthread.h>

#include "device.h"

enum { NBYTES = 4096 };

/* Its work is still queued, and no driver call is made. */
static void who_used_it_last_has_it_at_once(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < seeds(10); seed++) {
    sim_ask_seed(seed);
    const mf_stream a = stream_new(0), b = stream_new(0);
    use_stream(0, a);
    mf_tensor *t = create(gpu(0), NBYTES);
    void *data = data_of(t);
    write_on(t, a, 1);
    keep_busy(t, b);
    mf_tensor_release(t);
    use_stream(0, b);
    const uint64_t before = sim_ask_calls(NULL);
    t = create(gpu(0), NBYTES);
    assert_int_equal(sim_ask_calls(NULL), before);
    assert_ptr_equal(data_of(t), data);
    write_on(t, b, 2);
    expect_filled(t, 2);
    mf_tensor_release(t);
    use_stream(0, MF_STREAM_DEFAULT);
    stream_end(0, a);
    stream_end(0, b);
    synchronize(0);
    trim_all();
  }
}

/* Memory that a foreign stream has done with is anybody's, and is found among much that is others'. */
static void what_is_done_is_found_among_what_is_not(void **state) {
  enum { OTHERS = 12, EACH = 10, ROUNDS = 5 };
  mf_stream others[OTHERS], foreign[ROUNDS];
  mf_tensor *kept[OTHERS][EACH];
  (void)state;
  for (int i = 0; i < OTHERS; i++) {
    others[i] = stream_new(0);
    use_stream(0, others[i]);
    for (int k = 0; k < EACH; k++) kept[i][k] = create(gpu(0), NBYTES);
  }
  for (int i = 0; i < OTHERS; i++)
    for (int k = 0; k < EACH; k++) mf_tensor_release(kept[i][k]);
  for (int i = 0; i < ROUNDS; i++) foreign[i] = other_stream(0, false);
  const mf_stream mine = stream_new(0);
  mf_tensor *got[ROUNDS];
  for (int i = 0; i < ROUNDS; i++) {
    use_stream(0, foreign[i]);
    mf_tensor *t = create(gpu(0), NBYTES);
    void *data = data_of(t);
    const mf_stream last = foreign[i % 2 == 0 ? i : 0]; /* the one that it was made for, or another */
    write_on(t, last, 1);
    mf_tensor_release(t);
    other_sync(0, last);
    use_stream(0, mine);
    got[i] = create(gpu(0), NBYTES);
    assert_ptr_equal(data_of(got[i]), data);
  }
  use_stream(0, MF_STREAM_DEFAULT);
  for (int i = 0; i < ROUNDS; i++) mf_tensor_release(got[i]);
  for (int i = 0; i < OTHERS; i++) stream_end(0, others[i]);
  for (int i = 0; i < ROUNDS; i++) other_stream_end(foreign[i]);
  stream_end(0, mine);
}

/* Of another size, if no more than a quarter of what is asked for is wasted. */
static void a_larger_block_will_do(void **state) {
  (void)state;
  const mf_stream foreign = other_stream(0, false), mine = stream_new(0);
  use_stream(0, foreign);
  mf_tensor *t = create(gpu(0), 2560);
  void *data = data_of(t);
  write_on(t, foreign, 1);
  mf_tensor_release(t);
  other_sync(0, foreign);
  use_stream(0, mine);
  mf_tensor *small = create(gpu(0), 1536), *fitting = create(gpu(0), 2048);
  assert_ptr_not_equal(data_of(small), data);
  assert_ptr_equal(data_of(fitting), data);
  use_stream(0, MF_STREAM_DEFAULT);
  mf_tensor_release(small);
  mf_tensor_release(fitting);
  other_stream_end(foreign);
  stream_end(0, mine);
}

/* A stream of ours that the driver gave the handle of a consumer's, which is destroyed; 0 if it gave another. */
static mf_stream later_of(mf_stream gone) {
  const mf_stream later = stream_new(0);
  if (later == gone) return later;
  stream_end(0, later);
  trim_all(); /* so that the next one is made anew */
  return 0;
}

/* What the consumer left is work that goes on when its stream is gone. */
static bool left_and_named_again(void) {
  unsigned char *seen = other_pinned(NBYTES);
  const mf_stream theirs = other_stream(0, false);
  const mf_request request = {.stream = theirs};
  DLManagedTensorVersioned *given;
  mf_tensor *t = create(gpu(0), NBYTES);
  OK(mf_tensor_export_to(t, &request, &given, &err));
  for (int i = 0; i < 20; i++) other_copy(0, seen, given->dl_tensor.data, NBYTES, theirs);
  given->deleter(given);
  other_stream_end(theirs);
  const mf_stream ours = later_of(theirs);
  mf_tensor_release(t);
  if (ours != 0) {
    use_stream(0, ours);
    t = create(gpu(0), NBYTES);
    write_on(t, ours, 2);
    expect_filled(t, 2);
    mf_tensor_release(t);
    use_stream(0, MF_STREAM_DEFAULT);
    stream_end(0, ours);
  }
  other_sync_all(0);
  other_pinned_free(seen);
  return ours != 0;
}

/* Of what a stream had queued nothing is known when it was destroyed too early. */
static bool gone_and_named_again(void) {
  const mf_stream theirs = other_stream(0, false), witness = stream_new(0);
  use_stream(0, theirs);
  mf_tensor *t = create(gpu(0), NBYTES);
  void *data = data_of(t);
  write_on(t, theirs, 1);
  use_stream(0, MF_STREAM_DEFAULT);
  other_stream_end(theirs);
  REFUSED(mf_tensor_acquire(t, witness, MF_WRITE, &err), MF_EINVAL, "mf_device_synchronize");
  sim_ask_reset(); /* the simulator reports that a dead handle was asked about, as it should */
  const mf_stream ours = later_of(theirs);
  mf_tensor_release(t);
  if (ours != 0) {
    use_stream(0, ours);
    t = create(gpu(0), NBYTES);
    assert_ptr_not_equal(data_of(t), data);
    mf_tensor_release(t);
    use_stream(0, MF_STREAM_DEFAULT);
    stream_end(0, ours);
  }
  synchronize(0);
  stream_end(0, witness);
  return ours != 0;
}

static void each_seed(bool (*play)(void)) {
  int met = 0;
  for (uint64_t seed = 0; seed < 12; seed++) {
    sim_ask_seed(seed);
    trim_all();
    met += play();
    if (sim_ask_findings() != 0) fail_msg("seed %llu", (unsigned long long)seed);
  }
  assert_true(met > 0);
}

static void a_stream_with_the_handle_of_one_that_was_left_waits(void **state) {
  (void)state;
  needs_simulator();
  each_seed(left_and_named_again);
}

static void a_stream_with_the_handle_of_one_that_is_gone_gets_nothing(void **state) {
  (void)state;
  needs_simulator();
  each_seed(gone_and_named_again);
}

/* Memory of a thread's own stream that three more streams have used is trimmed by another thread. */
static mf_stream readers[3];

static void *leave_memory(void *arg) {
  (void)arg;
  use_stream(0, MF_STREAM_PER_THREAD);
  for (int i = 0; i < 4; i++) {
    mf_tensor *t = create(gpu(0), NBYTES << i);
    for (int k = 0; k < 3; k++) OK(mf_tensor_record(t, readers[k], MF_READ, &err));
    mf_tensor_release(t);
  }
  return NULL;
}

static void another_threads_memory_goes_at_last(void **state) {
  pthread_t thread;
  (void)state;
  trim(gpu(0));
  for (int i = 0; i < 3; i++) readers[i] = stream_new(0);
  assert_int_equal(pthread_create(&thread, NULL, leave_memory, NULL), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_true(stats(gpu(0)).cached_bytes > 0);
  trim(gpu(0));
  assert_true(stats(gpu(0)).cached_bytes > 0); /* no stream is made to wait for the thread's */
  for (int i = 0; i < 6; i++) { /* which can first forget the readers, then ask how far the thread's stream was */
    trim(gpu(0));
    other_sync_all(0);
  }
  assert_int_equal(stats(gpu(0)).cached_bytes, 0);
  for (int i = 0; i < 3; i++) stream_end(0, readers[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(who_used_it_last_has_it_at_once),
      SPEC(what_is_done_is_found_among_what_is_not),
      SPEC(a_larger_block_will_do),
      SPEC(a_stream_with_the_handle_of_one_that_was_left_waits),
      SPEC(a_stream_with_the_handle_of_one_that_is_gone_gets_nothing),
      SPEC(another_threads_memory_goes_at_last),
  };
  return RUN(tests);
}
