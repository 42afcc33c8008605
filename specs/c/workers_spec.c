/* workers_spec.c: the threads that share large copies, casts and fills: how many there are and when, what
 * they are (their signals, their processors), and what happens around them: fork, faults, a limit on threads, several
 * copies at once. That a shared copy has the bits of one that is not is kernel_spec.c's.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS, sched_setaffinity, pthread_barrier_t, RTLD_NEXT */
#include "fork.h"
#include "spec.h"
#include "tasks.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SIDE = 1024, SMALL = 64 }; /* 4 MiB, and 16 KiB */

static uint32_t *picture_new(int64_t side) {
  uint32_t *p = mmap(NULL, (size_t)(side * side) * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) abort(); /* an assertion jumps, which threads other than the test's must not */
  return p;
}

/* On any thread. */
static mf_tensor *wrapped(uint32_t *data, int64_t side, bool transposed) {
  int64_t shape[] = {side, side}, strides[] = {transposed ? 1 : side, transposed ? side : 1};
  const DLTensor view = {.data = data, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLUInt, 32, 1}, .shape = shape,
                         .strides = strides};
  mf_tensor *t = NULL;
  if (mf_tensor_wrap(&view, 0, NULL, NULL, &t, NULL) != MF_OK) abort();
  return t;
}

static void picture_free(uint32_t *p, int64_t side) {
  munmap(p, (size_t)(side * side) * 4);
}

static bool is_transposed(const uint32_t *dst, const uint32_t *src, int64_t side) {
  for (int64_t i = 0; i < side; i++)
    for (int64_t j = 0; j < side; j++)
      if (dst[i * side + j] != src[j * side + i]) return false;
  return true;
}

/* Transposes a picture; whether that came out right. */
static bool transposes(int64_t side, uint32_t seed) {
  uint32_t *src = picture_new(side), *dst = picture_new(side);
  for (int64_t i = 0; i < side * side; i++) src[i] = (uint32_t)i * 2654435761u + seed;
  mf_tensor *s = wrapped(src, side, true), *d = wrapped(dst, side, false);
  const bool copied = mf_tensor_copy(d, s, NULL) == MF_OK;
  mf_tensor_release(s);
  mf_tensor_release(d);
  const bool right = copied && is_transposed(dst, src, side);
  picture_free(src, side);
  picture_free(dst, side);
  return right;
}

static void threads_begin_with_the_first_large_copy(void **state) {
  (void)state;
  const int before = tasks_at_rest();
  OK(mf_threads_set(4, &spec_err));
  assert_int_equal(mf_threads(), 4);
  assert_true(transposes(SMALL, 1));
  assert_int_equal(tasks(), before);
  assert_true(transposes(SIDE, 2));
  assert_int_equal(tasks(), before + 3);
  assert_true(transposes(SIDE, 3));
  assert_int_equal(tasks(), before + 3);
  OK(mf_threads_set(2, &spec_err));
  assert_true(tasks_become(before));
  assert_true(transposes(SIDE, 4));
  assert_int_equal(tasks(), before + 1);
  OK(mf_threads_set(1, &spec_err));
  assert_true(tasks_become(before));
  assert_true(transposes(SIDE, 5));
  assert_int_equal(tasks(), before);
}

/* What is more than a copy: a comparison (what the threads of one find is shared_walk_spec.c's). */
static void threads_begin_with_a_large_comparison_too(void **state) {
  uint32_t *picture = picture_new(SIDE);
  int32_t same = 0;
  (void)state;
  mf_tensor *t = wrapped(picture, SIDE, false), *small = wrapped(picture, 64, false);
  const int before = tasks_at_rest();
  OK(mf_threads_set(3, &spec_err));
  OK(mf_tensor_equal(small, small, &same, &spec_err));
  assert_int_equal(tasks(), before);
  OK(mf_tensor_equal(t, t, &same, &spec_err));
  assert_int_equal(same, 1);
  assert_int_equal(tasks(), before + 2);
  OK(mf_threads_set(1, &spec_err));
  assert_true(tasks_become(before));
  mf_tensor_release(small);
  mf_tensor_release(t);
  picture_free(picture, SIDE);
}

static void a_number_out_of_range_is_refused(void **state) {
  (void)state;
  OK(mf_threads_set(3, &spec_err));
  SAYS(MF_EINVAL, "n is -1; 0 to 64 expected", mf_threads_set(-1, &spec_err));
  SAYS(MF_EINVAL, "n is 65; 0 to 64 expected", mf_threads_set(MF_THREADS_MAX + 1, &spec_err));
  assert_int_equal(mf_threads(), 3);
  OK(mf_threads_set(1, &spec_err));
}

static bool reads_the_environment(void) {
  cpu_set_t all;
  setenv("MOONFERRY_THREADS", "7", 1);
  bool good = mf_threads_set(0, NULL) == MF_OK && mf_threads() == 7;
  unsetenv("MOONFERRY_THREADS");
  sched_getaffinity(0, sizeof all, &all);
  const int n = CPU_COUNT(&all) < 8 ? CPU_COUNT(&all) : 8;
  good = good && mf_threads_set(0, NULL) == MF_OK && mf_threads() == n;
  for (int wanted = 1; wanted <= MF_THREADS_MAX; wanted += MF_THREADS_MAX - 1) {
    char text[16];
    snprintf(text, sizeof text, "%d", wanted);
    setenv("MOONFERRY_THREADS", text, 1);
    good = good && mf_threads_set(0, NULL) == MF_OK && mf_threads() == wanted;
  }
  const char *const no_number[] = {"", "0", "-1", "65", "two", "2x", "99999999999999999999"};
  for (size_t i = 0; i < COUNT(no_number); i++) {
    setenv("MOONFERRY_THREADS", no_number[i], 1);
    good = good && mf_threads_set(0, NULL) == MF_OK && mf_threads() == n;
  }
  return good;
}

/* Nobody has asked before. */
static bool asks_the_environment_once(void) {
  setenv("MOONFERRY_THREADS", "5", 1);
  const bool first = mf_threads() == 5;
  setenv("MOONFERRY_THREADS", "6", 1);
  return first && mf_threads() == 5;
}

static void the_environment_is_asked_once(void **state) {
  (void)state;
  assert_true(in_child(asks_the_environment_once));
}

static void the_environment_says_how_many_at_first(void **state) {
  (void)state;
  assert_true(in_child(reads_the_environment));
}

/* How many threads besides the first pass a test of their id. */
static int count_workers(bool (*good)(pid_t id)) {
  int n = 0;
  DIR *dir = opendir("/proc/self/task");
  assert_non_null(dir);
  for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
    n += e->d_name[0] != '.' && atoi(e->d_name) != (int)getpid() && good((pid_t)atoi(e->d_name));
  closedir(dir);
  return n;
}

static bool blocks_signals_and_no_faults(pid_t id) {
  const int blocked[] = {SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGCHLD, SIGPROF};
  const int open[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
  char path[64], line[300];
  unsigned long long mask = 0;
  snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)id);
  FILE *f = fopen(path, "r");
  if (f == NULL) return false;
  while (fgets(line, sizeof line, f) != NULL)
    if (strncmp(line, "SigBlk:", 7) == 0) mask = strtoull(line + 7, NULL, 16);
  fclose(f);
  bool good = true;
  for (size_t i = 0; i < COUNT(blocked); i++) good = good && (mask >> (blocked[i] - 1) & 1) == 1;
  for (size_t i = 0; i < COUNT(open); i++) good = good && (mask >> (open[i] - 1) & 1) == 0;
  return good;
}

static void signals_are_blocked_and_faults_are_not(void **state) {
  sigset_t now;
  (void)state;
  OK(mf_threads_set(3, &spec_err));
  assert_true(transposes(SIDE, 1));
  assert_int_equal(count_workers(blocks_signals_and_no_faults), 2);
  assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
  assert_int_equal(sigismember(&now, SIGINT) + sigismember(&now, SIGTERM), 0); /* the program's threads as before */
  OK(mf_threads_set(1, &spec_err));
}

static cpu_set_t processors;

static bool has_all_processors(pid_t id) {
  cpu_set_t its;
  return sched_getaffinity(id, sizeof its, &its) == 0 && CPU_EQUAL(&its, &processors);
}

static void *copy_on_one_processor(void *arg) {
  cpu_set_t one;
  size_t first = 0;
  while (!CPU_ISSET(first, &processors)) first++;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  *(bool *)arg = sched_setaffinity(0, sizeof one, &one) == 0 && transposes(SIDE, 1);
  return NULL;
}

/* The thread that happens to start the workers may be bound to a processor. */
static void workers_have_the_processors_of_the_process(void **state) {
  pthread_t thread;
  bool good = false;
  (void)state;
  assert_int_equal(sched_getaffinity(0, sizeof processors, &processors), 0);
  const int before = count_workers(has_all_processors);
  OK(mf_threads_set(3, &spec_err));
  assert_int_equal(pthread_create(&thread, NULL, copy_on_one_processor, &good), 0);
  pthread_join(thread, NULL);
  assert_true(good);
  /* A worker says so when it begins. */
  for (int i = 0; i < PATIENCE && count_workers(has_all_processors) < before + 2; i++) sleep_a_little();
  assert_int_equal(count_workers(has_all_processors), before + 2);
  OK(mf_threads_set(1, &spec_err));
}

static pthread_barrier_t barrier;
static atomic_bool stop;
static atomic_int failures;

static void *copy_again_and_again(void *arg) {
  pthread_barrier_wait(&barrier);
  for (uint32_t i = 0; i < 6; i++)
    if (!transposes(SIDE * 3 / 4, (uint32_t)(uintptr_t)arg + i)) atomic_fetch_add(&failures, 1);
  return NULL;
}

static void *change_the_number(void *arg) {
  pthread_barrier_wait(&barrier);
  for (int32_t n = 0; !atomic_load(&stop); n++)
    if (mf_threads_set(1 + n % 4, NULL) != MF_OK) atomic_fetch_add(&failures, 1);
  return arg;
}

static void copies_at_once_while_the_number_changes(void **state) {
  enum { N = 4 };
  pthread_t threads[N], changer;
  const int before = tasks_at_rest();
  (void)state;
  atomic_store(&stop, false);
  pthread_barrier_init(&barrier, NULL, N + 1);
  for (uintptr_t i = 0; i < N; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, copy_again_and_again, (void *)(i * 100)), 0);
  assert_int_equal(pthread_create(&changer, NULL, change_the_number, NULL), 0);
  for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
  atomic_store(&stop, true);
  pthread_join(changer, NULL);
  pthread_barrier_destroy(&barrier);
  assert_int_equal(atomic_load(&failures), 0);
  OK(mf_threads_set(1, &spec_err));
  assert_true(tasks_become(before));
}

#ifndef __SANITIZE_THREAD__ /* which knows no threads in a child of a process that has several */
static bool copies_with_threads_of_its_own(void) {
  const int before = tasks();
  return transposes(SIDE, 7) && tasks() == before + 2 && transposes(SIDE, 8) &&
         mf_threads_set(1, NULL) == MF_OK && tasks_become(before);
}

static void *copy_until_told(void *arg) {
  uint32_t *src = picture_new(SIDE), *dst = picture_new(SIDE);
  mf_tensor *s = wrapped(src, SIDE, true), *d = wrapped(dst, SIDE, false);
  pthread_barrier_wait(&barrier);
  while (!atomic_load(&stop))
    if (mf_tensor_copy(d, s, NULL) != MF_OK) atomic_fetch_add(&failures, 1);
  mf_tensor_release(s);
  mf_tensor_release(d);
  picture_free(src, SIDE);
  picture_free(dst, SIDE);
  return arg;
}

/* The child has none of the parent's workers, though another thread may be in the middle of work with them. */
static void a_child_of_fork_starts_its_own(void **state) {
  pthread_t other;
  (void)state;
  needs_threads_in_a_child(__func__);
  OK(mf_threads_set(3, &spec_err));
  assert_true(transposes(SIDE, 6));
  assert_true(in_child(copies_with_threads_of_its_own));
  atomic_store(&stop, false);
  pthread_barrier_init(&barrier, NULL, 2);
  assert_int_equal(pthread_create(&other, NULL, copy_until_told, NULL), 0);
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < 20; i++) assert_true(in_child(copies_with_threads_of_its_own));
  atomic_store(&stop, true);
  pthread_join(other, NULL);
  pthread_barrier_destroy(&barrier);
  assert_int_equal(atomic_load(&failures), 0);
  assert_true(transposes(SIDE, 9));
  OK(mf_threads_set(1, &spec_err));
}

static bool ends_with_exit(void) {
  if (!transposes(SIDE, 10)) return false;
  exit(0);
}

/* The library's, while it ends the workers. */
static bool forks_at_join, went_well;

static bool begins_anew(void) {
  return mf_threads_set(3, NULL) == MF_OK && copies_with_threads_of_its_own();
}

__attribute__((visibility("default"))) int pthread_join(pthread_t thread, void **result) {
  int (*real)(pthread_t, void **);
  *(void **)&real = dlsym(RTLD_NEXT, "pthread_join");
  if (real == NULL) abort();
  if (forks_at_join) {
    forks_at_join = false;
    if (ends_alone) tasks_become(1);
    went_well = in_child(begins_anew);
  }
  return real(thread, result);
}

/* The child's own workers are not told to stop, though the parent's were. */
static void a_child_of_fork_at_the_end_of_the_workers_has_its_own(void **state) {
  (void)state;
  needs_threads_in_a_child(__func__);
  for (int i = 0; i < 5; i++) {
    OK(mf_threads_set(4, &spec_err));
    assert_true(transposes(SIDE, 6));
    went_well = false;
    forks_at_join = true;
    OK(mf_threads_set(1, &spec_err));
    assert_true(went_well);
  }
}

static void a_process_ends_with_its_workers(void **state) {
  (void)state;
  OK(mf_threads_set(3, &spec_err));
  assert_true(in_child(ends_with_exit));
  OK(mf_threads_set(1, &spec_err));
}
#endif

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* which need much address space themselves */
/* Memory for a few more stacks, and not for all. */
static bool copies_where_no_thread_starts(void) {
  const int before = tasks();
  unsigned long pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (f == NULL || fscanf(f, "%lu", &pages) != 1) return false;
  fclose(f);
  const rlim_t most = pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)64 << 20);
  const struct rlimit limit = {most, most};
  return mf_threads_set(64, NULL) == MF_OK && setrlimit(RLIMIT_AS, &limit) == 0 && transposes(2 * SIDE, 11) &&
         tasks() < before + 63;
}

static void a_copy_goes_on_where_no_thread_starts(void **state) {
  (void)state;
  assert_true(in_child(copies_where_no_thread_starts));
}
#endif

static uint32_t *closed;

static void open_it(int number, siginfo_t *info, void *context) {
  (void)number;
  (void)context;
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  if (mprotect((void *)((uintptr_t)info->si_addr & ~(page - 1)), page, PROT_READ | PROT_WRITE) != 0) _exit(2);
}

/* The thread that asks comes to nothing before a worker has taken a part. */
static _Atomic int by_workers, waited_in_vain;

static void wait_for_a_worker(int number, siginfo_t *info, void *context) {
  const struct timespec nap = {.tv_nsec = 1000 * 1000};
  const bool asks = spec_thread_id() == (int64_t)getpid();
  if (!asks) atomic_fetch_add(&by_workers, 1);
  for (int i = 0; asks && atomic_load(&by_workers) == 0 && i < 20000; i++) nanosleep(&nap, NULL);
  if (asks && atomic_load(&by_workers) == 0) atomic_store(&waited_in_vain, 1);
  open_it(number, info, context);
}

static void workers_take_part(void **state) {
  struct sigaction action = {.sa_sigaction = wait_for_a_worker, .sa_flags = SA_SIGINFO}, before;
  uint32_t *src = picture_new(SIDE);
  (void)state;
  closed = picture_new(SIDE);
  OK(mf_threads_set(3, &spec_err));
  mf_tensor *s = wrapped(src, SIDE, true), *d = wrapped(closed, SIDE, false);
  assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
  for (int round = 0; round < 3; round++) {
    atomic_store(&by_workers, 0);
    assert_int_equal(mprotect(closed, (size_t)SIDE * SIDE * 4, PROT_NONE), 0);
    OK(mf_tensor_copy(d, s, &spec_err));
    assert_int_equal(atomic_load(&waited_in_vain), 0);
  }
  assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
  mf_tensor_release(s);
  mf_tensor_release(d);
  OK(mf_threads_set(1, &spec_err));
  assert_true(is_transposed(closed, src, SIDE));
  picture_free(src, SIDE);
  picture_free(closed, SIDE);
}

/* A program that opens its memory when it is touched (a pager in user space) sees the workers' faults, too. */
static void faults_on_workers_reach_the_programs_handler(void **state) {
  struct sigaction action = {.sa_sigaction = open_it, .sa_flags = SA_SIGINFO}, before;
  uint32_t *src = picture_new(SIDE);
  (void)state;
  closed = picture_new(SIDE);
  for (int64_t i = 0; i < SIDE * SIDE; i++) src[i] = (uint32_t)i;
  assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
  OK(mf_threads_set(3, &spec_err));
  mf_tensor *s = wrapped(src, SIDE, true), *d = wrapped(closed, SIDE, false);
  for (int round = 0; round < 5; round++) {
    assert_int_equal(mprotect(closed, (size_t)SIDE * SIDE * 4, PROT_NONE), 0);
    OK(mf_tensor_copy(d, s, &spec_err));
  }
  mf_tensor_release(s);
  mf_tensor_release(d);
  OK(mf_threads_set(1, &spec_err));
  assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
  assert_true(is_transposed(closed, src, SIDE));
  picture_free(src, SIDE);
  picture_free(closed, SIDE);
}

int main(void) {
  start_the_sanitizers_thread();
  const struct CMUnitTest tests[] = {
      SPEC(the_environment_is_asked_once),
      SPEC(threads_begin_with_the_first_large_copy),
      SPEC(threads_begin_with_a_large_comparison_too),
      SPEC(a_number_out_of_range_is_refused),
      SPEC(the_environment_says_how_many_at_first),
      SPEC(signals_are_blocked_and_faults_are_not),
      SPEC(workers_have_the_processors_of_the_process),
      SPEC(copies_at_once_while_the_number_changes),
#ifndef __SANITIZE_THREAD__
      SPEC(a_child_of_fork_starts_its_own),
      SPEC(a_child_of_fork_at_the_end_of_the_workers_has_its_own),
      SPEC(a_process_ends_with_its_workers),
#endif
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
      SPEC(a_copy_goes_on_where_no_thread_starts),
#endif
      SPEC(faults_on_workers_reach_the_programs_handler),
      SPEC(workers_take_part),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
