/* retire_beside_spec.c: a thread looks whether released memory is still in use, just when another one waits for that
 * work. Whoever waits has the deleter called before it returns, whatever the other one has seen.
 *
 * The other thread's part happens inside each of the driver's calls of the look in turn. */
#include "loan.h"

#include "../c/moment.h"

#include <sys/syscall.h>
#include <unistd.h>

static struct {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int (*wait)(mf_error *e); /* which is asked about */
  loan *of;
  mf_stream stream, other_stream;
  bool runs, acted;
  int calls;
  char wrong[300];
} waiter = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void say(bool *what) {
  pthread_mutex_lock(&waiter.lock);
  *what = true;
  pthread_cond_broadcast(&waiter.changed);
  pthread_mutex_unlock(&waiter.lock);
}

static int for_the_device(mf_error *e) {
  const DLDevice device = gpu(0);
  return mf_device_synchronize(&device, e);
}

static int for_the_stream(mf_error *e) {
  const DLDevice device = gpu(0);
  return mf_stream_synchronize(&device, waiter.stream, e);
}

static int for_nothing(mf_error *e) {
  const DLDevice device = gpu(0);
  other_sync(0, waiter.stream);
  return mf_pool_trim(&device, e);
}

static void *run_waiter(void *unused) {
  mf_error e;
  (void)unused;
  waiter.wrong[0] = '\0';
  if (waiter.wait(&e) != MF_OK) snprintf(waiter.wrong, sizeof waiter.wrong, "%s", e.message);
  waiter.calls = calls_of(waiter.of);
  say(&waiter.acted);
  return NULL;
}

/* It may have to wait for the look itself. */
static void let_wait(void *unused) {
  (void)unused;
  waiter.runs = true;
  if (pthread_create(&waiter.thread, NULL, run_waiter, NULL) != 0) abort();
  moment_wait(&waiter.changed, &waiter.lock, &waiter.acted);
}

/* False where the look has fewer calls than that. To acquire on another stream looks, and calls no deleter. */
static bool beside_call(uint64_t number, mf_tensor *other) {
  loan *l = loan_new();
  mf_tensor *t = import(l);
  waiter.of = l;
  waiter.runs = waiter.acted = false;
  keep_busy(t, waiter.stream);
  mf_tensor_release(t);
  assert_int_equal(deferred(), 1);
  sim_ask_at("*", "*", number, let_wait, NULL);
  OK(mf_tensor_acquire(other, number % 2 == 0 ? MF_STREAM_DEFAULT : waiter.other_stream, MF_WRITE, &err));
  sim_ask_at("*", "*", 1, NULL, NULL);
  if (waiter.runs) {
    pthread_join(waiter.thread, NULL);
    if (waiter.calls != 1 || waiter.wrong[0] != '\0')
      fail_msg("inside of call %llu: %d, %s", (unsigned long long)number, waiter.calls, waiter.wrong);
  }
  synchronize(0);
  loan_end(l);
  return waiter.runs;
}

static void beside_each_call(int (*wait)(mf_error *e)) {
  uint64_t number = 1;
  mf_tensor *other = create(gpu(0), NBYTES);
  waiter.wait = wait;
  waiter.stream = stream_new(0);
  waiter.other_stream = stream_new(0);
  while (beside_call(number, other)) number++;
  assert_true(number > 2);
  mf_tensor_release(other);
  stream_end(0, waiter.other_stream);
  stream_end(0, waiter.stream);
  print_message("%llu calls\n", (unsigned long long)number - 1);
}

static void who_waits_gets_what_another_thread_looks_at(void **state) {
  (void)state;
  needs_simulator();
  moment_init(&waiter.changed);
  beside_each_call(for_the_device);
  beside_each_call(for_the_stream);
  beside_each_call(for_nothing);
  pthread_cond_destroy(&waiter.changed);
}

/* The other way about: a look that begins within the wait, and has of two memories the second. */
static struct {
  pthread_t thread;
  mf_tensor *uses;
  uint64_t number; /* of the call that it stays inside of */
  bool runs, inside, stayed, waited;
} looker;

static void stay_inside(void *unused) {
  (void)unused;
  looker.stayed = true;
  say(&looker.inside);
  moment_wait(&waiter.changed, &waiter.lock, &looker.waited);
}

static void *run_looker(void *unused) {
  mf_error e;
  (void)unused;
  looker.stayed = false;
  sim_ask_at("*", "*", looker.number, stay_inside, NULL);
  if (mf_tensor_acquire(looker.uses, MF_STREAM_DEFAULT, MF_WRITE, &e) != MF_OK) abort();
  sim_ask_at("*", "*", 1, NULL, NULL);
  say(&looker.inside);
  return NULL;
}

static void let_look(void *unused) {
  (void)unused;
  looker.runs = true;
  if (pthread_create(&looker.thread, NULL, run_looker, NULL) != 0) abort();
  pthread_mutex_lock(&waiter.lock);
  while (!looker.inside) pthread_cond_wait(&waiter.changed, &waiter.lock);
  pthread_mutex_unlock(&waiter.lock);
}

static bool within_call(uint64_t number) {
  loan *const loans[] = {loan_new(), loan_new()};
  looker.runs = looker.inside = looker.waited = false;
  looker.number = 1;
  for (size_t i = 0; i < COUNT(loans); i++) {
    mf_tensor *t = import(loans[i]);
    keep_busy(t, waiter.stream);
    mf_tensor_release(t);
  }
  OK(mf_tensor_acquire(looker.uses, waiter.other_stream, MF_WRITE, &err));
  sim_ask_at("*", "*", number, let_look, NULL);
  synchronize(0);
  const int calls = calls_of(loans[0]) + calls_of(loans[1]);
  say(&looker.waited);
  if (looker.runs) pthread_join(looker.thread, NULL);
  sim_ask_at("*", "*", 1, NULL, NULL);
  if (calls != 2) fail_msg("inside of call %llu: %d", (unsigned long long)number, calls);
  for (size_t i = 0; i < COUNT(loans); i++) loan_end(loans[i]);
  return looker.runs;
}

/* Tries one call after the other, until ${try_call} says that there is none of that number. */
static void at_each_call(bool (*try_call)(uint64_t number)) {
  uint64_t number = 1;
  moment_init(&waiter.changed);
  looker.uses = create(gpu(0), NBYTES);
  waiter.stream = stream_new(0);
  waiter.other_stream = stream_new(0);
  while (try_call(number)) number++;
  assert_true(number > 2);
  mf_tensor_release(looker.uses);
  stream_end(0, waiter.other_stream);
  stream_end(0, waiter.stream);
  pthread_cond_destroy(&waiter.changed);
}

static void who_waits_gets_what_is_looked_at_meanwhile(void **state) {
  (void)state;
  needs_simulator();
  at_each_call(within_call);
}

/* In _exit, ThreadSanitizer would miss the threads that a child does not have. */
static void trim_in_child(void) {
  mf_error e;
  alarm(HANGS_SECONDS);
  syscall(SYS_exit_group, mf_pools_trim(0, &e) == MF_OK ? 0 : 2);
}

static bool fork_beside_call(uint64_t number) {
  loan *l = loan_new();
  mf_tensor *t = import(l);
  looker.inside = looker.waited = false;
  looker.number = number;
  keep_busy(t, waiter.stream);
  mf_tensor_release(t);
  OK(mf_tensor_acquire(looker.uses, waiter.other_stream, MF_WRITE, &err));
  let_look(NULL);
  in_fork(trim_in_child);
  say(&looker.waited);
  pthread_join(looker.thread, NULL);
  synchronize(0);
  loan_end(l);
  return looker.stayed;
}

/* The thread that looks is not there in a child, and is not waited for. */
static void a_child_does_not_wait_for_a_thread_that_it_does_not_have(void **state) {
  (void)state;
  needs_simulator();
  at_each_call(fork_beside_call);
}

/* What is looked at still waits, whoever asks inside of whichever call of the look. */
static int64_t counted;

static void count_within(void *unused) {
  (void)unused;
  counted = deferred();
}

static void what_is_looked_at_counts(void **state) {
  enum { NOT_CALLED = -1 };
  (void)state;
  needs_simulator();
  loan *l = loan_new();
  mf_tensor *t = import(l), *other = create(gpu(0), NBYTES);
  const mf_stream s = stream_new(0);
  keep_busy(t, s);
  mf_tensor_release(t);
  OK(mf_tensor_acquire(other, s, MF_WRITE, &err));
  int calls = 0;
  do {
    counted = NOT_CALLED;
    sim_ask_at("*", "*", (uint64_t)calls + 1, count_within, NULL);
    OK(mf_tensor_acquire(other, calls % 2 == 0 ? MF_STREAM_DEFAULT : s, MF_WRITE, &err));
    sim_ask_at("*", "*", 1, NULL, NULL);
    if (counted != NOT_CALLED) assert_int_equal(counted, 1);
    calls++;
  } while (counted != NOT_CALLED);
  assert_true(calls > 3);
  synchronize(0);
  assert_int_equal(deferred(), 0);
  loan_end(l);
  mf_tensor_release(other);
  stream_end(0, s);
}

/* An allocation that finds no memory waits for as long as the work of any device takes. */
static void *run_trim(void *failed) {
  const DLDevice device = gpu(0);
  *(int *)failed = mf_pool_trim(&device, NULL);
  return NULL;
}

static void trim_beside(void *failed) {
  pthread_t thread;
  counted = deferred();
  if (pthread_create(&thread, NULL, run_trim, failed) != 0) abort();
  pthread_join(thread, NULL);
}

static void who_waits_for_memory_is_not_waited_for(void **state) {
  (void)state;
  needs_simulator();
  const DLDevice device = gpu(0);
  loan *l = loan_new();
  mf_tensor *t = import(l), *more;
  const mf_stream s = stream_new(0);
  int failed = 1;
  keep_busy(t, s);
  mf_tensor_release(t);
  OK(mf_pool_limit(&device, NBYTES, &err));
  sim_ask_at("cuEventSynchronize", "hipStreamSynchronize", 1, trim_beside, &failed);
  alarm(HANGS_SECONDS);
  assert_int_equal(create_at(device, 2 * NBYTES, &more), MF_ENOMEM);
  alarm(0);
  assert_int_equal(failed, MF_OK);
  assert_int_equal(counted, 1);
  assert_int_equal(deferred(), 0);
  OK(mf_pool_limit(&device, 0, &err));
  mf_releases_run();
  loan_end(l);
  stream_end(0, s);
}

static void synchronize_within(void *unused) {
  (void)unused;
  synchronize(0);
}

/* A look of one's own is not waited for. */
static void who_looks_may_wait(void **state) {
  (void)state;
  needs_simulator();
  loan *l = loan_new();
  mf_tensor *t = import(l), *other = create(gpu(0), NBYTES);
  const mf_stream s = stream_new(0);
  keep_busy(t, s);
  mf_tensor_release(t);
  alarm(HANGS_SECONDS);
  OK(mf_tensor_acquire(other, s, MF_WRITE, &err));
  sim_ask_at("*", "*", 1, synchronize_within, NULL);
  OK(mf_tensor_acquire(other, MF_STREAM_DEFAULT, MF_WRITE, &err));
  sim_ask_at("*", "*", 1, NULL, NULL);
  alarm(0);
  synchronize(0);
  loan_end(l);
  mf_tensor_release(other);
  stream_end(0, s);
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(who_waits_gets_what_another_thread_looks_at), SPEC(who_looks_may_wait),
                                     SPEC(what_is_looked_at_counts),
                                     SPEC(who_waits_for_memory_is_not_waited_for),
                                     SPEC(who_waits_gets_what_is_looked_at_meanwhile),
                                     SPEC(a_child_does_not_wait_for_a_thread_that_it_does_not_have)};
  return RUN(tests);
}
