/* crew_spec.c: the threads that help with a large copy of pageable memory: how many are started, that they take part,
 * that one that cannot be started is done without, that each is waited for and ended before the copy returns, that
 * nobody waits in vain, however late they are, and that what the program does at a fault of its memory is done for
 * them, too. It stands before the functions of the system that they use. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "places.h"

/* ThreadSanitizer calls them before it is ready for instrumented code. */
#define FUNCTION(name) __attribute__((visibility("default"), no_sanitize("thread"))) name

enum { CORES = 4, MANY_CORES = 64, MOST_HELPERS = 7, LATE_US = 500 };

/* Large enough for helpers; four buffers of them, and a part. */
static const int64_t large[] = {(33 << 20) + 12345};

static _Atomic int started, joined, refused;
static int startable; /* by one copy */
static int cores = CORES;
static bool watching;
static int open_signals, closed_faults; /* of the threads that are started, whose mask is their creator's */

/* Signals are the program's, and faults belong to the thread that they happen on. */
__attribute__((no_sanitize("thread"))) static void look_at_mask(void) {
  static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD, SIGPIPE, SIGIO};
  static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
  sigset_t now;
  if (pthread_sigmask(SIG_BLOCK, NULL, &now) != 0) abort();
  for (size_t i = 0; i < COUNT(signals); i++) open_signals += !sigismember(&now, signals[i]);
  for (size_t i = 0; i < COUNT(faults); i++) closed_faults += sigismember(&now, faults[i]);
}

__attribute__((no_sanitize("thread"))) static void *system_function(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  if (found == NULL) abort();
  return found;
}

/* Looked up once. */
__attribute__((no_sanitize("thread"))) static void *known_function(_Atomic(void *) *found, const char *name) {
  if (*found == NULL) *found = system_function(name);
  return *found;
}

int FUNCTION(sched_getaffinity)(pid_t pid, size_t nbytes, cpu_set_t *out) {
  int (*real)(pid_t, size_t, cpu_set_t *);
  *(void **)&real = system_function("sched_getaffinity");
  if (!watching) return real(pid, nbytes, out);
  CPU_ZERO_S(nbytes, out);
  for (size_t i = 0; i < (size_t)cores; i++) CPU_SET_S(i, nbytes, out);
  return 0;
}

int FUNCTION(pthread_create)(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg) {
  int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  *(void **)&real = system_function("pthread_create");
  if (watching) look_at_mask();
  if (watching && started >= startable) {
    refused++;
    return EAGAIN;
  }
  const int rc = real(thread, attr, run, arg);
  if (rc == 0) started++;
  return rc;
}

int FUNCTION(pthread_join)(pthread_t thread, void **result) {
  int (*real)(pthread_t, void **);
  *(void **)&real = system_function("pthread_join");
  if (watching && ++joined > started) return ESRCH; /* none that was started */
  return real(thread, result);
}

/* A helper that has decided to sleep holds the lock, and does not sleep before the caller wants that lock, or wakes
 * whoever sleeps without it. */
static bool holds_back;
static _Atomic(void *) caller_wants;
static _Atomic int broadcasts;
static _Atomic bool is_about_to_sleep;
static _Atomic(pthread_cond_t *) sleeps_on; /* where it sleeps */

__attribute__((no_sanitize("thread"))) static void wait_for_the_caller(const void *lock) {
  const int before = broadcasts;
  is_about_to_sleep = true;
  while (caller_wants != lock && broadcasts == before) sched_yield();
  is_about_to_sleep = false;
}

/* Whoever is not the main thread is late each time, so that the main thread has to wait for the last piece. */
int FUNCTION(pthread_mutex_lock)(pthread_mutex_t *lock) {
  static _Atomic(void *) found;
  int (*real)(pthread_mutex_t *);
  *(void **)&real = known_function(&found, "pthread_mutex_lock");
  if (watching && gettid() != getpid()) usleep(LATE_US);
  if (!holds_back || gettid() != getpid()) return real(lock);
  caller_wants = lock;
  const int rc = real(lock);
  caller_wants = NULL;
  return rc;
}

__attribute__((no_sanitize("thread"))) static int wake_all(pthread_cond_t *changed) {
  static _Atomic(void *) found;
  int (*real)(pthread_cond_t *);
  *(void **)&real = known_function(&found, "pthread_cond_broadcast");
  return real(changed);
}

int FUNCTION(pthread_cond_broadcast)(pthread_cond_t *changed) {
  broadcasts++;
  return wake_all(changed);
}

/* Whether a helper holds the last piece, and the caller then has waited for it, or has gone on. */
static _Atomic bool last_taken, caller_waited, caller_went_on;

typedef int wait_function(pthread_cond_t *changed, pthread_mutex_t *lock);

/* The caller, once it is woken, wants the lock before this returns. */
__attribute__((no_sanitize("thread"))) static int wait_and_want(wait_function *real, pthread_cond_t *changed,
                                                                pthread_mutex_t *lock) {
  caller_wants = lock;
  const int rc = real(changed, lock);
  caller_wants = NULL;
  return rc;
}

int FUNCTION(pthread_cond_wait)(pthread_cond_t *changed, pthread_mutex_t *lock) {
  static _Atomic(void *) found;
  wait_function *real;
  *(void **)&real = known_function(&found, "pthread_cond_wait");
  if (last_taken && !caller_went_on && gettid() == getpid()) caller_waited = true;
  if (!holds_back) return real(changed, lock);
  if (gettid() == getpid()) return wait_and_want(real, changed, lock);
  wait_for_the_caller(lock);
  sleeps_on = changed;
  const int rc = real(changed, lock);
  sleeps_on = NULL;
  return rc;
}

static int begin_timed(void **state) {
  alarm(HANGS_SECONDS);
  return begin_with_streams(state);
}

static int end_timed(void **state) {
  watching = holds_back = false;
  alarm(0);
  return end_with_streams(state);
}

static void copy_with(int helpers, mf_tensor *to, mf_tensor *from) {
  sigset_t before, after;
  startable = helpers;
  started = joined = refused = open_signals = closed_faults = 0;
  assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &before), 0);
  watching = true;
  OK(mf_tensor_copy(to, from, &err));
  watching = false;
  assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &after), 0);
  for (int number = 1; number < NSIG; number++)
    assert_int_equal(sigismember(&after, number), sigismember(&before, number));
  assert_int_equal(open_signals, 0);
  assert_int_equal(closed_faults, 0);
  const int most = cores - 1 < MOST_HELPERS ? cores - 1 : MOST_HELPERS;
  assert_int_equal(started, helpers < most ? helpers : most);
  assert_int_equal(joined, started);
  assert_int_equal(refused, helpers < most);
}

static void to_the_device_and_back(int helpers, const int64_t *shape) {
  mf_tensor *from = random_host("uint8", 1, shape), *back = create_shaped(CPU, "uint8", 1, shape);
  mf_tensor *there = create_shaped(GPU0, "uint8", 1, shape);
  copy_with(helpers, there, from);
  copy_with(helpers, back, there);
  same_bytes(back, from, "there and back");
  mf_tensor *all[] = {from, back, there};
  for (int i = 0; i < 3; i++) mf_tensor_release(all[i]);
}

static void one_for_each_core_but_the_callers(void **state) {
  (void)state;
  to_the_device_and_back(CORES, large);
}

/* From which size on helpers are started is the runtime's to choose; each that was is ended, there as well. */
static void none_is_left_at_the_size_where_they_begin(void **state) {
  (void)state;
  for (int64_t more = -1; more <= 1; more++) {
    const int64_t shape[] = {(8 << 20) + more};
    mf_tensor *from = random_host("uint8", 1, shape), *there = create_shaped(GPU0, "uint8", 1, shape);
    startable = CORES;
    started = joined = 0;
    watching = true;
    OK(mf_tensor_copy(there, from, &err));
    watching = false;
    assert_int_equal(joined, started);
    mf_tensor_release(from);
    mf_tensor_release(there);
  }
}

static void no_more_than_seven_however_many_cores(void **state) {
  (void)state;
  cores = MANY_CORES;
  to_the_device_and_back(MANY_CORES, large);
  cores = CORES;
}

static void who_cannot_be_started_is_done_without(void **state) {
  (void)state;
  for (int helpers = 0; helpers < CORES - 1; helpers++) to_the_device_and_back(helpers, large);
}

/* Memory that is opened where somebody comes to it, as garbage collectors and simulated drivers have it. */
enum { OPENED_AT_ONCE = 64 << 10 };
static struct sigaction others;
static char *closed;
static size_t closed_nbytes;
static _Atomic int opened, helped;

static void open_at_fault(int number, siginfo_t *info, void *context) {
  const size_t at = (size_t)((uintptr_t)info->si_addr - (uintptr_t)closed);
  if (closed != NULL && (uintptr_t)info->si_addr >= (uintptr_t)closed && at < closed_nbytes) {
    if (gettid() != getpid()) helped++;
    else while (helped == 0) sched_yield(); /* whoever was started takes part: there is more to move than one piece */
    const size_t from = at / OPENED_AT_ONCE * OPENED_AT_ONCE;
    const size_t rest = closed_nbytes - from;
    if (mprotect(closed + from, rest < OPENED_AT_ONCE ? rest : OPENED_AT_ONCE, PROT_READ | PROT_WRITE) != 0) abort();
    opened++;
  } else if ((others.sa_flags & SA_SIGINFO) != 0) {
    others.sa_sigaction(number, info, context);
  } else {
    signal(number, SIG_DFL); /* and the fault comes again */
  }
}

static void close_memory(mf_tensor *t) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), data = (uintptr_t)mf_tensor_dltensor(t)->data;
  const uintptr_t from = (data + page - 1) / page * page, to = (data + (uintptr_t)mf_tensor_nbytes(t)) / page * page;
  closed = (char *)from;
  closed_nbytes = to - from;
  assert_int_equal(mprotect(closed, closed_nbytes, PROT_NONE), 0);
}

static void a_fault_of_the_programs_memory_is_the_programs_to_handle(void **state) {
  const struct sigaction ours = {.sa_sigaction = open_at_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
  mf_tensor *from = random_host("uint8", 1, large), *back = create_shaped(CPU, "uint8", 1, large);
  mf_tensor *there = create_shaped(GPU0, "uint8", 1, large);
  (void)state;
  assert_int_equal(sigaction(SIGSEGV, &ours, &others), 0);
  close_memory(from);
  copy_with(CORES, there, from);
  assert_true(opened * (int64_t)OPENED_AT_ONCE >= (int64_t)closed_nbytes);
  closed = NULL;
  assert_int_equal(sigaction(SIGSEGV, &others, NULL), 0);
  copy_with(CORES, back, there);
  same_bytes(back, from, "there and back");
  mf_tensor *all[] = {from, back, there};
  for (int i = 0; i < 3; i++) mf_tensor_release(all[i]);
}

/* A copy whose last buffer has two pieces, the second of one byte. The caller always takes the first. */
enum { BUFFER = 8 << 20, FULL_BUFFERS = 4, PIECE = 128 << 10 };
static char *first_piece, *last_piece; /* each begins with a page that is closed */

static void hold_the_last_piece(int number, siginfo_t *info, void *context) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *at = (char *)((uintptr_t)info->si_addr / page * page);
  if (at != first_piece && at != last_piece) {
    open_at_fault(number, info, context);
    return;
  }
  if (at == first_piece && gettid() == getpid()) {
    while (!last_taken) sched_yield();
  } else if (at == last_piece && gettid() != getpid()) {
    last_taken = true;
    while (!caller_waited && !caller_went_on) sched_yield();
  }
  if (mprotect(at, page, PROT_READ | PROT_WRITE) != 0) abort();
}

static void go_on(void *ctx) {
  (void)ctx;
  caller_went_on = true;
}

/* Where the driver is simulated, a caller that did not wait is seen to go on; on a real one the spec would hang. */
static void the_caller_waits_for_a_last_piece_of_one_byte(void **state) {
  const struct sigaction ours = {.sa_sigaction = hold_the_last_piece, .sa_flags = SA_SIGINFO | SA_NODEFER};
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), full = FULL_BUFFERS * (size_t)BUFFER, nbytes = full + PIECE + 1;
  const int64_t shape[] = {(int64_t)nbytes};
  char *data = mmap(NULL, full + PIECE + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  DLTensor described = {.data = data, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLUInt, 8, 1},
                        .shape = (int64_t *)(uintptr_t)shape};
  mf_tensor *from, *there = create_shaped(GPU0, "uint8", 1, shape);
  (void)state;
  assert_true(data != MAP_FAILED);
  memset(data, 7, nbytes);
  OK(mf_tensor_wrap(&described, 0, NULL, NULL, &from, &err));
  first_piece = data + full;
  last_piece = first_piece + PIECE;
  last_taken = caller_waited = caller_went_on = false;
  assert_int_equal(mprotect(first_piece, page, PROT_NONE), 0);
  assert_int_equal(mprotect(last_piece, page, PROT_NONE), 0);
  assert_int_equal(sigaction(SIGSEGV, &ours, &others), 0);
  sim_ask_at("cuMemcpyAsync", "hipMemcpyAsync", FULL_BUFFERS + 1, go_on, NULL);
  copy_with(CORES, there, from);
  assert_int_equal(sigaction(SIGSEGV, &others, NULL), 0);
  assert_true(last_taken);
  assert_true(caller_waited);
  same_bytes(there, from, "the last byte");
  first_piece = last_piece = NULL;
  mf_tensor_release(from);
  mf_tensor_release(there);
  assert_int_equal(munmap(data, full + PIECE + page), 0);
}

#define TIMED(name) cmocka_unit_test_setup_teardown(name, begin_timed, end_timed)

/* It sleeps already if the caller was the last to finish a piece. Whoever is woken for nothing looks, and is about to
 * sleep again. */
static void until_it_is_about_to_sleep(void *ctx) {
  (void)ctx;
  while (!is_about_to_sleep) {
    pthread_cond_t *asleep = sleeps_on;
    if (asleep != NULL) wake_all(asleep);
    sched_yield();
  }
}

/* It would sleep for ever if the end were told without the lock, or to nobody. */
static void a_helper_that_is_about_to_sleep_hears_of_the_end(void **state) {
  const int64_t shape[] = {(FULL_BUFFERS + 1) * BUFFER};
  mf_tensor *from = random_host("uint8", 1, shape), *there = create_shaped(GPU0, "uint8", 1, shape);
  (void)state;
  holds_back = true;
  sim_ask_at("cuMemcpyAsync", "hipMemcpyAsync", FULL_BUFFERS + 1, until_it_is_about_to_sleep, NULL);
  copy_with(1, there, from);
  holds_back = false;
  same_bytes(there, from, "all");
  mf_tensor_release(from);
  mf_tensor_release(there);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TIMED(one_for_each_core_but_the_callers),
      TIMED(none_is_left_at_the_size_where_they_begin),
      TIMED(no_more_than_seven_however_many_cores),
      TIMED(who_cannot_be_started_is_done_without),
      TIMED(a_fault_of_the_programs_memory_is_the_programs_to_handle),
      TIMED(the_caller_waits_for_a_last_piece_of_one_byte),
      TIMED(a_helper_that_is_about_to_sleep_hears_of_the_end),
  };
  return RUN(tests);
}
