/* stream_spec.c: streams as a program names them: by handle, by name, by a number of the Python protocol; a thread's
 * current ones; ours, which are kept when they are given back. What is refused says why and gives nothing out. */
#include <pthread.h>

#include "device.h"

enum { NBYTES = 256 };

static const DLDevice cpu = {kDLCPU, 0}, unknown = {(DLDeviceType)99, 0};

static bool is_rocm(void) {
  return other_device_type() == kDLROCM;
}

/* Numbers */

static mf_stream meant(DLDevice device, int64_t number) {
  mf_stream s = 77;
  OK(mf_stream_from_number(&device, number, &s, &err));
  return s;
}

static void no_number(DLDevice device, int64_t number, const char *saying) {
  mf_stream s = 77;
  REFUSED(mf_stream_from_number(&device, number, &s, &err), MF_EINVAL, saying);
  assert_int_equal(s, MF_STREAM_CURRENT);
}

static void what_a_number_means(void **state) {
  const DLDevice both[] = {gpu(0), pinned()};
  (void)state;
  for (size_t i = 0; i < COUNT(both); i++) {
    assert_int_equal(meant(both[i], -1), MF_STREAM_NO_ORDER);
    assert_int_equal(meant(both[i], 0x5000), 0x5000);
    assert_int_equal(meant(both[i], 3), 3);
    if (is_rocm()) assert_int_equal(meant(both[i], 0), MF_STREAM_DEFAULT);
    else assert_int_equal(meant(both[i], 1), MF_STREAM_DEFAULT);
    if (!is_rocm()) assert_int_equal(meant(both[i], 2), MF_STREAM_PER_THREAD);
    if (!is_rocm()) no_number(both[i], 0, "stream is 0, which could be either default stream");
    if (is_rocm()) no_number(both[i], 1, "stream is 1; None, -1, 0 (default) or a handle above 2 expected");
    if (is_rocm()) no_number(both[i], 2, "stream is 2; None, -1, 0 (default) or a handle above 2 expected");
    no_number(both[i], -2, is_rocm() ? "stream is -2; None, -1, 0 (default)" : "stream is -2; None, -1, 1 (legacy");
  }
  assert_int_equal(meant(pinned(), MF_NUMBER_NONE), MF_STREAM_HOST);
  assert_int_equal(meant(cpu, MF_NUMBER_NONE), MF_STREAM_HOST);
  assert_int_equal(meant(cpu, -1), MF_STREAM_HOST);
  for (int64_t number = -2; number < 6; number++)
    if (number != -1) no_number(cpu, number, "None or -1 expected for memory on cpu");
  mf_stream s = 7;
  REFUSED(mf_stream_from_number(&unknown, 1, &s, &err), MF_EDEVICE,
          "device.device_type is 99, which DLPack 1.3 does not define; cpu, cuda, cuda_host, cuda_managed, rocm or "
          "rocm_host expected");
  assert_int_equal(s, MF_STREAM_CURRENT);
}

static void what_none_means(void **state) {
  (void)state;
  assert_int_equal(mf_stream_none(), MF_NONE_DEFAULT);
  assert_int_equal(meant(gpu(0), MF_NUMBER_NONE), MF_STREAM_DEFAULT);
  OK(mf_stream_none_set(MF_NONE_NO_ORDER, &err));
  assert_int_equal(mf_stream_none(), MF_NONE_NO_ORDER);
  assert_int_equal(meant(gpu(0), MF_NUMBER_NONE), MF_STREAM_NO_ORDER);
  OK(mf_stream_none_set(MF_NONE_REFUSE, &err));
  no_number(gpu(0), MF_NUMBER_NONE, "stream is None");
  REFUSED(mf_stream_none_set(3, &err), MF_EINVAL, "meaning is 3");
  REFUSED(mf_stream_none_set(-1, &err), MF_EINVAL, "meaning is -1");
  assert_int_equal(mf_stream_none(), MF_NONE_REFUSE);
  OK(mf_stream_none_set(MF_NONE_DEFAULT, &err));
  assert_int_equal(meant(gpu(0), MF_NUMBER_NONE), MF_STREAM_DEFAULT);
}

static void numbers_cost_no_call(void **state) {
  const DLDevice device = gpu(0);
  int64_t number = 0;
  (void)state;
  const int64_t theirs = other_stream(0, false);
  sim_ask_reset();
  OK(mf_stream_to_number(&device, theirs, &number, &err));
  assert_int_equal(number, theirs);
  assert_int_equal(sim_ask_calls(NULL), 0);
  for (mf_stream s = MF_STREAM_HOST; s < 5; s++) {
    number = 5;
    OK(mf_stream_to_number(&cpu, s, &number, &err));
    assert_int_equal(number, MF_NUMBER_NONE);
  }
  other_stream_end(theirs);
}

/* What is refused */

static void streams_that_the_cpu_has_not(void **state) {
  mf_stream s = 77;
  int32_t done = 77;
  (void)state;
  for (mf_stream name = MF_STREAM_DEFAULT; name < 4; name++)
    REFUSED(mf_stream_check(&cpu, name, &err), MF_EINVAL, "the cpu has no streams");
  for (mf_stream name = MF_STREAM_HOST; name <= MF_STREAM_CURRENT; name++) OK(mf_stream_check(&cpu, name, &err));
  OK(mf_stream_current(&cpu, &s, &err));
  assert_int_equal(s, MF_STREAM_HOST);
  s = 77;
  REFUSED(mf_stream_swap(&cpu, MF_STREAM_DEFAULT, &s, &err), MF_EINVAL, "device is the cpu");
  assert_int_equal(s, MF_STREAM_CURRENT);
  s = 77;
  REFUSED(mf_stream_create(&cpu, &s, &err), MF_EINVAL, "device is the cpu");
  assert_int_equal(s, MF_STREAM_CURRENT);
  REFUSED(mf_stream_query(&cpu, MF_STREAM_HOST, &done, &err), MF_EINVAL, "a stream of a GPU expected");
  assert_int_equal(done, 0);
  REFUSED(mf_stream_synchronize(&cpu, MF_STREAM_CURRENT, &err), MF_EINVAL, "a stream of a GPU expected");
  OK(mf_device_synchronize(&cpu, &err));
}

static void no_device(const DLDevice *bad, const char *saying) {
  const DLDevice device = gpu(0);
  mf_stream s = 77;
  int32_t done = 77;
  int64_t number = 77;
  REFUSED(mf_stream_check(bad, MF_STREAM_HOST, &err), MF_EDEVICE, saying);
  REFUSED(mf_stream_to_number(bad, MF_STREAM_DEFAULT, &number, &err), MF_EDEVICE, saying);
  assert_int_equal(number, MF_NUMBER_NONE);
  REFUSED(mf_stream_current(bad, &s, &err), MF_EDEVICE, saying);
  assert_int_equal(s, MF_STREAM_HOST);
  s = 77;
  REFUSED(mf_stream_swap(bad, -1, &s, &err), MF_EDEVICE, saying);
  assert_int_equal(s, MF_STREAM_CURRENT);
  s = 77;
  REFUSED(mf_stream_create(bad, &s, &err), MF_EDEVICE, saying);
  assert_int_equal(s, MF_STREAM_CURRENT);
  REFUSED(mf_stream_destroy(bad, 0x5000, &err), MF_EDEVICE, saying);
  REFUSED(mf_stream_query(bad, MF_STREAM_DEFAULT, &done, &err), MF_EDEVICE, saying);
  assert_int_equal(done, 0);
  REFUSED(mf_stream_synchronize(bad, MF_STREAM_DEFAULT, &err), MF_EDEVICE, saying);
  REFUSED(mf_stream_wait(bad, MF_STREAM_DEFAULT, &device, MF_STREAM_DEFAULT, &err), MF_EDEVICE, saying);
  REFUSED(mf_stream_wait(&device, MF_STREAM_DEFAULT, bad, MF_STREAM_DEFAULT, &err), MF_EDEVICE, saying);
  REFUSED(mf_device_synchronize(bad, &err), MF_EDEVICE, saying);
}

static void streams_of_no_device(void **state) {
  const DLDevice beyond = gpu(63);
  (void)state;
  no_device(&unknown, "99");
  no_device(&beyond, ":63; a device_id of 0 to");
}

static void names_that_are_no_streams(void **state) {
  const DLDevice device = gpu(0);
  mf_stream old = 77;
  int32_t done = 77;
  (void)state;
  for (mf_stream name = MF_STREAM_HOST; name < MF_STREAM_CURRENT; name++) {
    REFUSED(mf_stream_swap(&device, name, &old, &err), MF_EINVAL, "a name of a stream (0 to 2) or a handle expected");
    assert_int_equal(old, MF_STREAM_CURRENT);
    REFUSED(mf_stream_query(&device, name, &done, &err), MF_EINVAL, "a stream of a GPU expected");
    assert_int_equal(done, 0);
    REFUSED(mf_stream_synchronize(&device, name, &err), MF_EINVAL, "a stream of a GPU expected");
    REFUSED(mf_stream_wait(&device, name, &device, MF_STREAM_DEFAULT, &err), MF_EINVAL, "a stream of a GPU");
    REFUSED(mf_stream_wait(&device, MF_STREAM_DEFAULT, &device, name, &err), MF_EINVAL, "a stream of a GPU");
  }
  REFUSED(mf_stream_check(&device, -3, &err), MF_EINVAL, "stream is -3");
}

static void streams_of_another_gpu(void **state) {
  const DLDevice device = gpu(0), next = gpu(1), shared = pinned();
  mf_stream now;
  int32_t done;
  (void)state;
  needs_devices(2);
  const int64_t there = other_stream(1, false);
  REFUSED(mf_stream_swap(&device, there, NULL, &err), MF_EINVAL, "expected");
  REFUSED(mf_stream_query(&device, there, &done, &err), MF_EINVAL, "expected");
  REFUSED(mf_stream_synchronize(&device, there, &err), MF_EINVAL, "expected");
  OK(mf_stream_swap(&shared, there, NULL, &err)); /* which any GPU's stream may use */
  OK(mf_stream_current(&next, &now, &err));
  assert_int_equal(now, there);
  OK(mf_stream_current(&device, &now, &err));
  assert_int_equal(now, MF_STREAM_DEFAULT);
  OK(mf_stream_swap(&next, MF_STREAM_DEFAULT, NULL, &err));
  other_stream_end(there);
}

/* Current streams */

static void the_current_stream(void **state) {
  const DLDevice device = gpu(0);
  mf_stream old = 77, now = 77;
  (void)state;
  const int64_t theirs = other_stream(0, false);
  OK(mf_stream_swap(&device, theirs, &old, &err));
  assert_int_equal(old, MF_STREAM_DEFAULT);
  sim_ask_reset();
  OK(mf_stream_check(&device, theirs, &err));
  assert_int_equal(sim_ask_calls(NULL), 0);
  OK(mf_stream_swap(&device, MF_STREAM_CURRENT, &old, &err));
  assert_int_equal(old, theirs);
  OK(mf_stream_current(&device, &now, &err));
  assert_int_equal(now, theirs);
  OK(mf_stream_swap(&device, MF_STREAM_PER_THREAD, &old, &err));
  assert_int_equal(old, theirs);
  OK(mf_stream_current(&device, &now, &err));
  assert_int_equal(now, MF_STREAM_PER_THREAD);
  use_stream(0, MF_STREAM_DEFAULT);
  other_stream_end(theirs);
}

/* A stream of the second GPU may be made current by way of pinned memory. What was current before is that GPU's stream,
 * and not the one of the first GPU, which is the thread's current device. */
static void what_was_current_is_told_of_the_streams_gpu(void **state) {
  (void)state;
  needs_devices(2);
  const DLDevice host = pinned();
  const mf_stream own = stream_new(1), other = stream_new(1);
  mf_stream before;
  use_stream(1, own);
  other_current_set(0);
  OK(mf_stream_swap(&host, other, &before, &err));
  assert_int_equal(before, own);
  use_stream(1, MF_STREAM_DEFAULT);
  stream_end(1, own);
  stream_end(1, other);
}

static pthread_key_t last_words;
static mf_stream at_the_end, again;

static void say_last_words(void *device) {
  if (mf_stream_current(device, &at_the_end, NULL) != MF_OK) abort();
  if (mf_stream_swap(device, MF_STREAM_PER_THREAD, NULL, NULL) != MF_OK) abort();
  if (mf_stream_current(device, &again, NULL) != MF_OK) abort();
}

static void *choose_and_end(void *device) {
  if (mf_stream_swap(device, MF_STREAM_PER_THREAD, NULL, NULL) != MF_OK) abort();
  if (pthread_setspecific(last_words, device) != 0) abort();
  return NULL;
}

/* Another library's destructor that runs after ours: the thread's choice is over, and it may choose again. */
static void a_threads_choice_ends_with_it(void **state) {
  DLDevice device = gpu(0);
  pthread_t thread;
  (void)state;
  use_stream(0, MF_STREAM_DEFAULT); /* our own key is older */
  assert_int_equal(pthread_key_create(&last_words, say_last_words), 0);
  assert_int_equal(pthread_create(&thread, NULL, choose_and_end, &device), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(at_the_end, MF_STREAM_DEFAULT);
  assert_int_equal(again, MF_STREAM_PER_THREAD);
  (void)pthread_key_delete(last_words);
}

static void *write_on_my_own(void *t) {
  const DLDevice device = gpu(0);
  if (mf_stream_check(&device, MF_STREAM_PER_THREAD, NULL) != MF_OK) abort();
  other_fill(0, data_of(t), 7, NBYTES, MF_STREAM_PER_THREAD);
  return NULL;
}

static void *write_on_the_legacy(void *t) {
  if (mf_tensor_acquire(t, MF_STREAM_DEFAULT, MF_WRITE, NULL) != MF_OK) abort();
  return NULL;
}

static uint64_t waits_of(void *(*run)(void *), mf_tensor *t) {
  pthread_t thread;
  const char *wait = is_rocm() ? "hipStreamSynchronize" : "cuStreamSynchronize";
  const uint64_t before = sim_ask_calls(wait);
  assert_int_equal(pthread_create(&thread, NULL, run, t), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  return sim_ask_calls(wait) - before;
}

/* CUDA's driver may hang otherwise, and on a real one this spec does. No capture hears of it, not even one that forbids
 * to wait for the legacy stream. */
static void a_thread_that_ends_has_waited_for_its_own_stream(void **state) {
  (void)state;
  const mf_stream theirs = other_stream(0, true);
  for (int round = 0; round < 5; round++) {
    mf_tensor *t = create(gpu(0), NBYTES);
    synchronize(0);
    if (round == 4) other_capture(0, theirs);
    const uint64_t waits = waits_of(write_on_my_own, t);
    if (other_is_simulated()) assert_int_equal(waits, 1);
    if (round == 4) {
      assert_true(other_capture_is_whole(0, theirs));
      other_graph_end(0, other_capture_end(0, theirs));
    }
    expect_filled(t, 7);
    if (other_is_simulated()) assert_int_equal(waits_of(write_on_the_legacy, t), 0);
    mf_tensor_release(t);
  }
  other_stream_end(theirs);
}

/* Ours */

static void a_stream_that_was_given_back_is_given_out_again(void **state) {
  const DLDevice device = gpu(0);
  (void)state;
  const mf_stream first = stream_new(0), second = stream_new(0);
  assert_int_not_equal(first, second);
  stream_end(0, first);
  REFUSED(mf_stream_destroy(&device, first, &err), MF_EINVAL, "or is gone");
  assert_int_equal(stream_new(0), first);
  stream_end(0, second);
  stream_end(0, first);
}

/* Whoever gets it could do nothing with it, and knows of no capture. */
static void a_stream_that_is_being_captured_is_neither_given_out_nor_destroyed(void **state) {
  const DLDevice device = gpu(0);
  (void)state;
  needs_simulator();
  const mf_stream free_one = stream_new(0), captured = stream_new(0), broken = stream_new(0);
  other_capture(0, captured);
  other_capture(0, broken);
  other_tolerate(true);
  other_sync(0, broken);
  other_tolerate(false);
  assert_false(other_capture_is_whole(0, broken));
  stream_end(0, captured);
  stream_end(0, broken);
  stream_end(0, free_one);
  assert_int_equal(stream_new(0), free_one);
  const mf_stream another = stream_new(0);
  assert_true(another != captured && another != broken);
  mf_tensor *t = create(gpu(0), 512);
  write_on(t, another, 3);
  expect_filled(t, 3);
  mf_tensor_release(t);
  trim(gpu(0));
  other_capture_give_up(0, broken);
  sim_ask_reset(); /* of what was found when it was broken */
  other_graph_end(0, other_capture_end(0, captured));
  const mf_stream later[] = {stream_new(0), stream_new(0)};
  assert_true(later[0] != later[1]);
  for (int i = 0; i < 2; i++) {
    assert_true(later[i] == captured || later[i] == broken);
    OK(mf_stream_synchronize(&device, later[i], &err));
    stream_end(0, later[i]);
  }
  stream_end(0, another);
  stream_end(0, free_one);
}

static void a_trim_destroys_one_gpus_streams(void **state) {
  const DLDevice next = gpu(1);
  mf_stream there;
  (void)state;
  needs_devices(2);
  needs_simulator();
  const mf_stream here = stream_new(0), used = stream_new(0);
  OK(mf_stream_create(&next, &there, &err));
  OK(mf_stream_destroy(&next, there, &err));
  stream_end(0, here);
  assert_int_equal(sim_ask_left("streams"), 3);
  trim(gpu(0));
  assert_int_equal(sim_ask_left("streams"), 2);
  stream_end(0, used);
  trim(next);
  assert_int_equal(sim_ask_left("streams"), 1);
}

/* While a tensor lives its record may name a stream that was given back. */
static void no_stream_goes_while_a_tensor_may_name_it(void **state) {
  (void)state;
  needs_simulator();
  const mf_stream s = stream_new(0);
  mf_tensor *t = create(gpu(0), 512);
  write_on(t, s, 1);
  stream_end(0, s);
  trim(gpu(0));
  assert_int_equal(sim_ask_left("streams"), 1);
  expect_filled(t, 1);
  mf_tensor_release(t);
}

/* Whichever driver call fails while one is made: nothing is given out, or a stream that works; and nothing is left. */
static bool fail_to_make(int number) {
  const DLDevice device = gpu(0);
  mf_stream s = 77;
  int32_t done;
  char rule[32];
  trim_all();
  sim_ask_reset();
  (void)snprintf(rule, sizeof rule, "*@%d:999:once", number);
  sim_ask_fail(rule);
  const int rc = mf_stream_create(&device, &s, &err);
  const bool struck = sim_ask_faults() > 0;
  sim_ask_reset();
  if (rc == MF_OK) assert_true(s > MF_STREAM_PER_THREAD);
  if (rc == MF_OK) OK(mf_stream_query(&device, s, &done, &err));
  else assert_int_equal(s, MF_STREAM_CURRENT);
  if (rc == MF_OK) stream_end(0, s);
  trim_all();
  assert_int_equal(sim_ask_left("streams"), 0);
  assert_true(rc == MF_OK || struck);
  stream_end(0, stream_new(0));
  return struck;
}

static void a_stream_that_cannot_be_made(void **state) {
  int number = 1;
  (void)state;
  needs_simulator();
  while (number < 100 && fail_to_make(number)) number++;
  assert_true(number >= 3 && number <= 99);
}

/* Whether it is done */

static void whether_a_stream_is_done(void **state) {
  const DLDevice device = gpu(0);
  int32_t done = 77;
  (void)state;
  const mf_stream s = stream_new(0);
  mf_tensor *t = create(gpu(0), 512);
  keep_busy(t, s);
  OK(mf_stream_query(&device, s, &done, &err));
  if (other_is_simulated()) assert_int_equal(done, 0);
  OK(mf_stream_synchronize(&device, s, &err));
  OK(mf_stream_query(&device, s, &done, &err));
  assert_int_equal(done, 1);
  mf_tensor_release(t);
  stream_end(0, s);
}

/* Memory that every GPU can use, whichever of them was current when it was made. */
static void a_name_of_one_gpu_is_that_of_no_other(void **state) {
  const mf_stream names[] = {MF_STREAM_DEFAULT, MF_STREAM_PER_THREAD};
  (void)state;
  needs_devices(2);
  for (uint64_t seed = 0; seed < seeds(10); seed++)
    for (int home = 0; home < 2; home++)
      for (int on = 0; on < 2; on++)
        for (size_t i = 0; i < COUNT(names); i++) {
          sim_ask_seed(seed);
          other_current_set(home);
          mf_tensor *t = create(pinned(), 4096);
          other_current_set(0);
          OK(mf_tensor_acquire(t, MF_STREAM_OF(on, names[i]), MF_WRITE, &err));
          other_fill(on, data_of(t), 3, 4096, names[i]);
          expect_filled(t, 3);
          mf_tensor_release(t);
        }
}

static void a_name_of_one_gpu_is_checked(void **state) {
  const mf_stream wrong[] = {MF_STREAM_OF(0, 0), MF_STREAM_OF(0, 3), MF_STREAM_OF(64, 1), INT64_MIN};
  const mf_request there = {.device = cpu, .stream = MF_STREAM_OF(0, MF_STREAM_DEFAULT)};
  mf_tensor *t = create(pinned(), 64), *host = create(cpu, 64), *own = create(gpu(0), 64), *out;
  char said[96];
  (void)state;
  for (size_t i = 0; i < COUNT(wrong); i++)
    REFUSED(mf_tensor_acquire(t, wrong[i], MF_READ, &err), MF_EINVAL, "a name (-2 to 2) or a handle expected");
  const int beyond[] = {other_devices(), 63};
  for (size_t i = 0; i < COUNT(beyond); i++) {
    snprintf(said, sizeof said, "stream is one of %s:%d; a device_id of 0 to %d expected", is_rocm() ? "rocm" : "cuda",
             beyond[i], other_devices() - 1);
    REFUSED(mf_tensor_acquire(t, MF_STREAM_OF(beyond[i], MF_STREAM_DEFAULT), MF_READ, &err), MF_EINVAL, said);
  }
  REFUSED(mf_tensor_acquire(host, there.stream, MF_READ, &err), MF_EINVAL, "the cpu has no streams");
  OK(mf_tensor_acquire(own, there.stream, MF_READ, &err));
  if (other_devices() > 1)
    REFUSED(mf_tensor_acquire(own, MF_STREAM_OF(1, MF_STREAM_DEFAULT), MF_READ, &err), MF_EINVAL, ":1; one of ");
  OK(mf_tensor_to(own, &there, &out, &err));
  mf_tensor_release(out);
  mf_tensor_release(own);
  mf_tensor_release(host);
  mf_tensor_release(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(what_a_number_means),
      SPEC(what_none_means),
      SPEC(numbers_cost_no_call),
      SPEC(streams_that_the_cpu_has_not),
      SPEC(streams_of_no_device),
      SPEC(names_that_are_no_streams),
      SPEC(streams_of_another_gpu),
      SPEC(a_name_of_one_gpu_is_that_of_no_other),
      SPEC(a_name_of_one_gpu_is_checked),
      SPEC(the_current_stream),
      SPEC(what_was_current_is_told_of_the_streams_gpu),
      SPEC(a_threads_choice_ends_with_it),
      SPEC(a_thread_that_ends_has_waited_for_its_own_stream),
      SPEC(a_stream_that_was_given_back_is_given_out_again),
      SPEC(a_stream_that_is_being_captured_is_neither_given_out_nor_destroyed),
      SPEC(a_trim_destroys_one_gpus_streams),
      SPEC(no_stream_goes_while_a_tensor_may_name_it),
      SPEC(a_stream_that_cannot_be_made),
      SPEC(whether_a_stream_is_done),
  };
  return RUN(tests);
}
