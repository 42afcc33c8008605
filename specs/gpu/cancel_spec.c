/* cancel_spec.c: a thread that is cancelled inside of a driver call, or while it waits for a record that another thread
 * has locked. It ends behind the operation, so that it takes no lock and no memory with it: the operation is then done
 * again by another thread, and nothing is left.
 *
 * A driver's call may be a cancellation point. Here the first of each operation's is, behind which the thread is
 * cancelled as long as the operation lasts, and one in so many of the others, others with each seed. */
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include "operations.h"

/* Beside a sanitizer a case takes some twenty times as long. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 64 };
#else
enum { STRIDE = 24 };
#endif

typedef struct cancelled {
  operation run;
  uint64_t call;   /* 0: none */
  uint64_t ncalls; /* that it made */
  bool happened, returned;
  int rc;
  mf_error said;
} cancelled;

static void end_here(void *ctx) {
  ((cancelled *)ctx)->happened = true;
  (void)pthread_cancel(pthread_self());
  pthread_testcancel();
}

static void *operate(void *arg) {
  cancelled *c = arg;
  const DLDevice device = gpu(0);
  c->rc = mine == MF_STREAM_DEFAULT ? MF_OK : mf_stream_swap(&device, mine, NULL, &c->said);
  if (c->call != 0) sim_ask_at("*", "*", c->call, end_here, c);
  const uint64_t before = sim_ask_calls(NULL);
  if (c->rc == MF_OK) c->rc = c->run(&c->said);
  c->ncalls = sim_ask_calls(NULL) - before;
  sim_ask_at("*", "*", 1, NULL, NULL);
  c->returned = true;
  pthread_testcancel();
  return NULL;
}

/* False where the operation makes fewer calls than that. */
static bool cancel(const char *name, operation run, uint64_t call) {
  cancelled c = {.run = run, .call = call};
  pthread_t thread;
  void *result;
  alarm(HANGS_SECONDS);
  assert_int_equal(pthread_create(&thread, NULL, operate, &c), 0);
  assert_int_equal(pthread_join(thread, &result), 0);
  if (!c.returned || c.rc != MF_OK || (result == PTHREAD_CANCELED) != c.happened)
    fail_msg("%s, cancelled in driver call %d: %s", name, (int)call, c.returned ? c.said.message : "it did not return");
  return c.happened;
}

/* With another thread's cancelled call before it, or none. */
static uint64_t count_calls(size_t which, uint64_t cancelled_in) {
  cancelled c = {.run = operations[which].run};
  open_tensors();
  trim_all();
  if (cancelled_in != 0) (void)cancel(operations[which].name, operations[which].run, cancelled_in);
  (void)operate(&c);
  use_stream(0, MF_STREAM_DEFAULT);
  close_tensors();
  if (c.rc != MF_OK)
    fail_msg("%s, cancelled in driver call %d, again: %s", operations[which].name, (int)cancelled_in, c.said.message);
  return c.ncalls;
}

static void a_thread_that_is_cancelled_in_a_driver_call_ends_behind_the_operation(void **state) {
  (void)state;
  needs_simulator();
  for (size_t which = 0; which < COUNT(operations); which++) {
    const uint64_t ncalls = is_drawn(which) ? count_calls(which, 0) : 0;
    if (ncalls > 0) (void)count_calls(which, 1);
    for (uint64_t call = 2 + seed_of(which) % one_in(STRIDE); call <= ncalls; call += one_in(STRIDE))
      (void)count_calls(which, call);
    nothing_left();
  }
  alarm(0);
}

/* The driver is opened, and a device is used for the first time. Only in this process's first test. */
static int create_the_first(mf_error *e) { return create_and_release(gpu(0), e); }

static void a_thread_that_is_cancelled_while_a_driver_is_opened_ends_behind_that(void **state) {
  (void)state;
  needs_simulator();
  mine = MF_STREAM_DEFAULT;
  assert_true(cancel("create", create_the_first, 1));
  alarm(0);
}

static void a_thread_that_is_cancelled_while_a_device_is_given_back_ends_behind_that(void **state) {
  (void)state;
  needs_simulator();
  mine = MF_STREAM_DEFAULT;
  for (uint64_t call = 1;; call++) {
    mf_tensor_release(create(gpu(0), NBYTES));
    synchronize(0);
    if (!cancel("trim", trim_everything, call)) break;
    nothing_left();
  }
  alarm(0);
}

/* Waiting for a record */

static pthread_mutex_t meeting = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool is_locked, has_slept;
static _Thread_local bool sleeps_for_a_record;

/* The library's, by which a thread waits for a record that stays locked. */
__attribute__((visibility("default"))) int nanosleep(const struct timespec *wanted, struct timespec *left) {
  static _Thread_local int (*real)(const struct timespec *, struct timespec *);
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "nanosleep");
  if (!sleeps_for_a_record) return real(wanted, left);
  (void)pthread_cancel(pthread_self());
  pthread_testcancel();
  pthread_mutex_lock(&meeting);
  has_slept = true;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&meeting);
  return real(wanted, left);
}

static void wait_until(const bool *is_so) {
  pthread_mutex_lock(&meeting);
  while (!*is_so) pthread_cond_wait(&changed, &meeting);
  pthread_mutex_unlock(&meeting);
}

/* Between the records of two memories, one of which is locked; the other thread lets it go when this one has slept, or
 * has ended without that. */
static void say_that_it_sleeps(void *unused) {
  (void)unused;
  pthread_mutex_lock(&meeting);
  has_slept = true;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&meeting);
}

static void *copy_beside_it(void *arg) {
  cancelled *c = arg;
  pthread_cleanup_push(say_that_it_sleeps, NULL);
  wait_until(&is_locked);
  sleeps_for_a_record = true;
  c->rc = mf_tensor_copy(square, strided, &c->said);
  sleeps_for_a_record = false;
  c->returned = true;
  pthread_testcancel();
  pthread_cleanup_pop(0);
  return NULL;
}

static void let_the_other_sleep(void *unused) {
  (void)unused;
  pthread_mutex_lock(&meeting);
  is_locked = true;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&meeting);
  wait_until(&has_slept);
}

/* Both of its records' locks are taken in the order of their addresses, so that each is once the one that is locked. */
static void sleep_for(mf_tensor *locked) {
  cancelled c = {0};
  pthread_t thread;
  void *result;
  is_locked = has_slept = false;
  OK(mf_tensor_acquire(locked, mine, MF_WRITE, &err));
  assert_int_equal(pthread_create(&thread, NULL, copy_beside_it, &c), 0);
  sim_ask_at("cuStreamWaitEvent", "hipStreamWaitEvent", 1, let_the_other_sleep, NULL);
  OK(mf_tensor_acquire(locked, MF_STREAM_DEFAULT, MF_WRITE, &err));
  assert_int_equal(pthread_join(thread, &result), 0);
  assert_true(is_locked);
  assert_true(c.returned && c.rc == MF_OK && result == PTHREAD_CANCELED);
  OK(mf_tensor_copy(square, strided, &err));
}

static void a_thread_that_is_cancelled_while_it_waits_for_a_record_ends_behind_the_copy(void **state) {
  (void)state;
  needs_simulator();
  alarm(HANGS_SECONDS);
  open_tensors();
  sleep_for(square);
  sleep_for(strided);
  close_tensors();
  alarm(0);
}

/* A thread can be cancelled again where the device could not be entered. */
static void what_cannot_begin_leaves_the_thread_as_it_was(void **state) {
  char rule[64];
  int was;
  (void)state;
  needs_simulator();
  mf_tensor *t = create(gpu(0), NBYTES);
  const mf_scalar one = {.kind = MF_KIND_UINT, .u = 1};
  snprintf(rule, sizeof rule, "%s:999:on", named("cuCtxGetCurrent", "hipGetDevice"));
  sim_ask_fail(rule);
  REFUSED(mf_tensor_fill(t, &one, &err), MF_EDRIVER, named("cuCtxGetCurrent", "hipGetDevice"));
  sim_ask_reset();
  assert_int_equal(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &was), 0);
  assert_int_equal(was, PTHREAD_CANCEL_ENABLE);
  mf_tensor_release(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(a_thread_that_is_cancelled_while_a_driver_is_opened_ends_behind_that),
      SPEC(a_thread_that_is_cancelled_in_a_driver_call_ends_behind_the_operation),
      SPEC(a_thread_that_is_cancelled_while_a_device_is_given_back_ends_behind_that),
      SPEC(a_thread_that_is_cancelled_while_it_waits_for_a_record_ends_behind_the_copy),
      SPEC(what_cannot_begin_leaves_the_thread_as_it_was),
  };
  return RUN(tests);
}
