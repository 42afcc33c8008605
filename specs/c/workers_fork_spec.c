/* workers_fork_spec.c: a child that forks off at the worst moment: in the middle of a part of shared work, and while
 * the workers' lock is held; and one that has its parent's number. It has none of its parent's work, locks and workers.
 * workers_spec.c has the other moments. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, RTLD_NEXT */
#include "fork.h"
#include "spec.h"
#include "tasks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SIDE = 1024, NBYTES = SIDE * SIDE * 4 };

/* A transposition, which threads share: what it writes is at ${to}, which is new where that is NULL. */
static bool transposes(uint32_t *to) {
  int64_t shape[] = {SIDE, SIDE}, across[] = {1, SIDE};
  uint32_t *from = malloc(NBYTES), *own = to == NULL ? malloc(NBYTES) : NULL;
  if (from == NULL || (to == NULL && own == NULL)) return false;
  for (int i = 0; i < SIDE * SIDE; i++) from[i] = (uint32_t)i;
  DLTensor view = {.data = from, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLUInt, 32, 1}, .shape = shape};
  mf_tensor *src = NULL, *dst = NULL;
  bool good = mf_tensor_wrap(&view, 0, NULL, NULL, &src, NULL) == MF_OK;
  view.data = to == NULL ? own : to;
  view.strides = across;
  good = good && mf_tensor_wrap(&view, 0, NULL, NULL, &dst, NULL) == MF_OK;
  good = good && mf_tensor_copy(dst, src, NULL) == MF_OK;
  const uint32_t *got = view.data;
  for (int i = 0; good && i < SIDE * SIDE; i++) good = got[i % SIDE * SIDE + i / SIDE] == (uint32_t)i;
  mf_tensor_release(src);
  mf_tensor_release(dst);
  free(from);
  free(own);
  return good;
}

static bool works_anew(void) {
  return mf_threads_set(3, NULL) == MF_OK && transposes(NULL) && transposes(NULL) && mf_threads_set(1, NULL) == MF_OK;
}

static uint32_t *closed;
static bool in_the_child, went_well;
static _Atomic int inside; /* threads that have come to the closed memory */

/* Each thread waits there until two have a part, and the one that asked for the copy forks. */
static void fork_within(int number, siginfo_t *info, void *context) {
  static _Atomic bool forked;
  const struct timespec nap = {.tv_nsec = 1000 * 1000};
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  (void)number;
  (void)context;
  if (in_the_child) _exit(3);
  atomic_fetch_add(&inside, 1);
  for (int i = 0; atomic_load(&inside) < 2 && i < 20000; i++) nanosleep(&nap, NULL);
  if (spec_thread_id() == (int64_t)getpid() && !atomic_load(&forked)) {
    const pid_t child = fork();
    in_the_child = child == 0;
    if (in_the_child) _exit(works_anew() ? 0 : 1);
    int status = -1;
    went_well = waitpid(child, &status, 0) == child && status == 0 && atomic_load(&inside) >= 2;
    atomic_store(&forked, true);
  }
  for (int i = 0; !atomic_load(&forked) && i < 60000; i++) nanosleep(&nap, NULL);
  if (mprotect((void *)((uintptr_t)info->si_addr & ~(page - 1)), page, PROT_READ | PROT_WRITE) != 0) _exit(2);
}

/* The library's, in the child: a new worker looks for work before there is any. */
__attribute__((visibility("default"))) int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                                                          void *(*run)(void *), void *arg) {
  int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
  if (real == NULL) abort();
  const int failed = real(thread, attributes, run, arg);
  if (in_the_child) nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
  return failed;
}

static void a_child_does_not_go_on_with_the_parents_work(void **state) {
  struct sigaction action = {.sa_sigaction = fork_within, .sa_flags = SA_SIGINFO}, before;
  (void)state;
  needs_threads_in_a_child(__func__);
  OK(mf_threads_set(3, &spec_err));
  assert_true(transposes(NULL));
  closed = mmap(NULL, NBYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(closed != MAP_FAILED);
  assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
  assert_true(transposes(closed));
  assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
  assert_true(went_well);
  munmap(closed, NBYTES);
  OK(mf_threads_set(1, &spec_err));
}

/* The library's calls, with the lock held. */
static bool forks_at_broadcast;

__attribute__((visibility("default"))) int pthread_cond_broadcast(pthread_cond_t *cond) {
  int (*real)(pthread_cond_t *);
  *(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_broadcast");
  if (real == NULL) abort();
  if (forks_at_broadcast) {
    forks_at_broadcast = false;
    went_well = in_child(works_anew);
  }
  return real(cond);
}

static void a_child_has_a_lock_of_its_own(void **state) {
  (void)state;
  needs_threads_in_a_child(__func__);
  OK(mf_threads_set(3, &spec_err));
  assert_true(transposes(NULL));
  for (int i = 0; i < 2; i++) { /* as work begins, and as the workers are told to end */
    went_well = false;
    forks_at_broadcast = true;
    if (i == 0) assert_true(transposes(NULL));
    else OK(mf_threads_set(1, &spec_err));
    assert_true(went_well && !forks_at_broadcast);
  }
}

/* The system's, of a child that is the first process of a namespace, as its parent is of its own: both have the number
 * 1. */
static pid_t number_of_both; /* 0: each has its own */

__attribute__((visibility("default"))) pid_t getpid(void) {
  return number_of_both != 0 ? number_of_both : (pid_t)syscall(SYS_getpid);
}

static bool has_workers_of_its_own(void) {
  return tasks() == 1 && transposes(NULL) && tasks() == 3 && mf_threads_set(1, NULL) == MF_OK;
}

static void a_child_may_have_its_parents_number(void **state) {
  (void)state;
  needs_threads_in_a_child(__func__);
  OK(mf_threads_set(3, &spec_err));
  assert_true(transposes(NULL));
  number_of_both = getpid();
  assert_true(in_child(has_workers_of_its_own));
  number_of_both = 0;
  OK(mf_threads_set(1, &spec_err));
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(a_child_does_not_go_on_with_the_parents_work),
                                     SPEC(a_child_has_a_lock_of_its_own),
                                     SPEC(a_child_may_have_its_parents_number)};
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
