/* workers_wait_spec.c: what comes while a thread waits for the workers that share its copy: it is cancelled, and ends
 * behind the copy, so that they have neither its stack nor its lock; or fewer workers are wanted, and some end. And the
 * end of a process, which waits for them, too, and of one whose main thread has left it, which waits for nobody else.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#ifndef __SANITIZE_THREAD__
#include "fork.h"
#endif
#include "spec.h"
#include "tasks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

enum { SIDE = 1024, ROUNDS = 20, HANGS_SECONDS = 600 };

static mf_tensor *from, *to;
static _Thread_local bool is_cancelled_where_it_waits, wants_one_where_it_waits;

/* The library's, by which the thread that shares its copy waits for those who work on it still. */
__attribute__((visibility("default"))) int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock) {
  int (*real)(pthread_cond_t *, pthread_mutex_t *);
  *(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_wait");
  if (real == NULL) abort();
  if (is_cancelled_where_it_waits) (void)pthread_cancel(pthread_self());
  if (wants_one_where_it_waits) {
    wants_one_where_it_waits = false;
    OK(mf_threads_set(1, &spec_err));
  }
  return real(cond, lock);
}

/* The library's, where it ends its workers. */
static int joins_until_the_end; /* 0: it does not end by these */

__attribute__((visibility("default"))) int pthread_join(pthread_t thread, void **result) {
  int (*real)(pthread_t, void **);
  *(void **)&real = dlsym(RTLD_NEXT, "pthread_join");
  if (real == NULL) abort();
  const int failed = real(thread, result);
  if (joins_until_the_end > 0 && --joins_until_the_end == 0) _exit(0);
  return failed;
}

static mf_tensor *square(void) {
  int64_t shape[] = {SIDE, SIDE};
  const DLTensor like = {.device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLUInt, 32, 1}, .shape = shape};
  mf_tensor *t;
  OK(mf_tensor_create(&like, 0, &t, &spec_err));
  return t;
}

static void *copy_until_it_has_waited(void *across) {
  for (is_cancelled_where_it_waits = true;; pthread_testcancel())
    if (mf_tensor_copy(to, across, NULL) != MF_OK) abort();
  return NULL;
}

static void a_copy_ends_before_its_thread_does(void **state) {
  const int32_t axes[] = {1, 0};
  mf_tensor *across;
  (void)state;
  OK(mf_threads_set(4, &spec_err));
  from = square();
  to = square();
  OK(mf_tensor_permute_dims(from, axes, 2, &across, &spec_err));
  alarm(HANGS_SECONDS); /* the lock of a thread that has ended is never given back */
  for (int i = 0; i < ROUNDS; i++) {
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, copy_until_it_has_waited, across), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_true(result == PTHREAD_CANCELED);
    OK(mf_tensor_copy(to, across, &spec_err));
  }
  alarm(0);
  mf_tensor_release(across);
  mf_tensor_release(from);
  mf_tensor_release(to);
  OK(mf_threads_set(1, &spec_err));
}

static void workers_that_are_wanted_no_more_end_behind_the_copy(void **state) {
  const int32_t axes[] = {1, 0};
  mf_tensor *across;
  (void)state;
  from = square();
  to = square();
  OK(mf_tensor_permute_dims(from, axes, 2, &across, &spec_err));
  const int before = tasks();
  OK(mf_threads_set(4, &spec_err));
  wants_one_where_it_waits = true;
  alarm(HANGS_SECONDS);
  while (wants_one_where_it_waits) OK(mf_tensor_copy(to, across, &spec_err));
  alarm(0);
  assert_int_equal(tasks(), before);
  mf_tensor_release(across);
  mf_tensor_release(from);
  mf_tensor_release(to);
}

#ifndef __SANITIZE_THREAD__
static bool ends_behind_its_workers(void) {
  const int32_t axes[] = {1, 0};
  mf_tensor *across;
  from = square();
  to = square();
  if (mf_tensor_permute_dims(from, axes, 2, &across, NULL) != MF_OK || mf_threads_set(3, NULL) != MF_OK) return false;
  if (mf_tensor_copy(to, across, NULL) != MF_OK) return false;
  joins_until_the_end = 2;
  exit(7);
}

static pthread_t main_thread;

/* Cmocka's blocks hang on the main thread's stack: without it LeakSanitizer, which asks this, calls them lost. */
static bool has_no_main_thread;

__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
__attribute__((visibility("default"))) int __lsan_is_turned_off(void) {
  return has_no_main_thread;
}

static void copy_by_workers(void) {
  const int32_t axes[] = {1, 0};
  mf_tensor *across;
  OK(mf_tensor_permute_dims(from, axes, 2, &across, &spec_err));
  OK(mf_tensor_copy(to, across, &spec_err));
  mf_tensor_release(across);
}

static void *copy_behind_main(void *unused) {
  (void)unused;
  if (pthread_join(main_thread, NULL) != 0) _exit(2);
  copy_by_workers();
  return NULL;
}

/* Workers block signals: only SIGKILL would end a process that has no other thread. */
static int status_at_the_end_of(pid_t child) {
  int status = -1;
  assert_true(child > 0);
  for (int i = 0; i < PATIENCE && waitpid(child, &status, WNOHANG) == 0; i++) sleep_a_little();
  if (status == -1 && kill(child, SIGKILL) == 0) (void)waitpid(child, &status, 0);
  return status;
}

/* One worker; ${then} may be NULL. */
static pid_t child_that_its_main_thread_leaves(void *(*then)(void *)) {
  const pid_t child = fork();
  if (child != 0) return child;
  pthread_t thread;
  main_thread = pthread_self();
  has_no_main_thread = true;
  from = square();
  to = square();
  OK(mf_threads_set(2, &spec_err));
  copy_by_workers();
  if (then != NULL && pthread_create(&thread, NULL, then, NULL) != 0) _exit(1);
  pthread_exit(NULL);
}

/* The forking thread is the child's main one. */
static void *fork_here(void *child) {
  *(pid_t *)child = child_that_its_main_thread_leaves(NULL);
  return NULL;
}

static void a_process_ends_that_its_main_thread_has_left(void **state) {
  pthread_t thread;
  pid_t child = -1;
  (void)state;
  needs_threads_in_a_child(__func__);
  assert_int_equal(status_at_the_end_of(child_that_its_main_thread_leaves(NULL)), 0);
  assert_int_equal(status_at_the_end_of(child_that_its_main_thread_leaves(copy_behind_main)), 0);
  assert_int_equal(pthread_create(&thread, NULL, fork_here, &child), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(status_at_the_end_of(child), 0);
}

static void a_process_waits_for_its_workers(void **state) {
  (void)state;
  needs_threads_in_a_child(__func__);
  assert_true(in_child(ends_behind_its_workers));
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(a_copy_ends_before_its_thread_does),
#ifndef __SANITIZE_THREAD__
                                     SPEC(a_process_waits_for_its_workers),
                                     SPEC(a_process_ends_that_its_main_thread_has_left),
#endif
                                     SPEC(workers_that_are_wanted_no_more_end_behind_the_copy)};
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
