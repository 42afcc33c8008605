/* stream_spec.c: when work runs, queries, host functions, timing, and handles that are not what they should be. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spec.h"

static void work_runs_as_late_as_it_may(void **state) {
  (void)state;
  unsigned char got[NBYTES];
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  OK(cuMemsetD8Async(p, 1, NBYTES, s));
  assert_int_equal(sim_peek((void *)p, got, NBYTES), 0);
  assert_true(all_bytes(got, NBYTES, 0xCB));
  FAILS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
  OK(cuStreamQuery(s));
  assert_int_equal(sim_peek((void *)p, got, NBYTES), 0);
  assert_true(all_bytes(got, NBYTES, 1));
  OK(cuMemsetD8Async(p, 2, NBYTES, s)); /* which is asked about for the first time */
  FAILS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
  OK(cuStreamQuery(s));
  OK(cuMemFree_v2(p));
  OK(cuStreamDestroy_v2(s));
}

/* Two streams write different bytes of one pair: over the seeds, each of them comes first sometimes. */
static void seeds_give_different_orders(void **state) {
  (void)state;
  int late = 0, early = 0;
  for (uint64_t seed = 1; seed <= 40; seed++) {
    unsigned char got = 0;
    CUdeviceptr p = device_memory();
    CUstream a = stream(), b = stream();
    sim_seed(seed);
    OK(cuMemsetD8Async(p, 1, 1, a));
    OK(cuMemsetD8Async(p, 2, 1, b));
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(&got, p, 1));
    late += got == 2;
    early += got == 1;
    found(SIM_RACE, 1);
    OK(cuMemFree_v2(p));
    OK(cuStreamDestroy_v2(a));
    OK(cuStreamDestroy_v2(b));
  }
  assert_true(late > 4 && early > 4);
}

static void a_query_that_says_done_orders(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  CUstream a = stream();
  CUevent e = event();
  OK(cuMemsetD8Async(p, 1, NBYTES, a));
  OK(cuEventRecord(e, a));
  while (cuEventQuery(e) == CUDA_ERROR_NOT_READY) continue;
  OK(cuMemFree_v2(p));
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(a));
}

static int order[4], norder;

static void note(void *p) {
  order[norder++] = (int)(intptr_t)p;
}

static void host_functions_run_in_stream_order(void **state) {
  (void)state;
  CUstream s = stream();
  norder = 0;
  for (int i = 0; i < 4; i++) OK(cuLaunchHostFunc(s, note, (void *)(intptr_t)i));
  OK(cuStreamSynchronize(s));
  assert_int_equal(norder, 4);
  for (int i = 0; i < 4; i++) assert_int_equal(order[i], i);
  OK(cuStreamDestroy_v2(s));
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;
static bool is_done;
static sigset_t blocked; /* in the thread of the last host function */

static void signal_done(void *unused) {
  (void)unused;
  pthread_mutex_lock(&lock);
  is_done = true;
  pthread_sigmask(SIG_SETMASK, NULL, &blocked);
  pthread_cond_signal(&done);
  pthread_mutex_unlock(&lock);
}

static void run_without_a_call(CUstream s) {
  is_done = false;
  OK(cuLaunchHostFunc(s, signal_done, NULL));
  pthread_mutex_lock(&lock);
  while (!is_done) pthread_cond_wait(&done, &lock);
  pthread_mutex_unlock(&lock);
}

static void a_host_function_runs_though_nobody_calls_the_driver(void **state) {
  (void)state;
  CUstream s = stream();
  run_without_a_call(s);
  OK(cuStreamSynchronize(s));
  OK(cuStreamDestroy_v2(s));
}

/* Otherwise a signal that the program's threads have blocked, because one waits for it (sigwait), would end the process
 * in the driver's own thread. */
static void signals_are_for_the_programs_threads(void **state) {
  const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
  sigset_t before, after;
  (void)state;
  pthread_sigmask(SIG_SETMASK, NULL, &before);
  CUstream s = stream();
  run_without_a_call(s);
  pthread_sigmask(SIG_SETMASK, NULL, &after);
  assert_int_equal(sigismember(&after, SIGUSR1), sigismember(&before, SIGUSR1));
  assert_int_equal(sigismember(&blocked, SIGUSR1), 1);
  assert_int_equal(sigismember(&blocked, SIGINT), 1);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) assert_int_equal(sigismember(&blocked, faults[i]), 0);
  OK(cuStreamSynchronize(s));
  OK(cuStreamDestroy_v2(s));
}

static void call_the_driver(void *p) {
  *(CUresult *)p = cuCtxSynchronize();
}

static void a_host_function_may_not_call_the_driver(void **state) {
  (void)state;
  CUresult rc = CUDA_SUCCESS;
  CUstream s = stream();
  OK(cuLaunchHostFunc(s, call_the_driver, &rc));
  OK(cuStreamSynchronize(s));
  assert_int_equal(rc, CUDA_ERROR_NOT_PERMITTED);
  found(SIM_MISUSE, 1);
  OK(cuStreamDestroy_v2(s));
}

static void time_passes_between_events(void **state) {
  (void)state;
  float ms = -1;
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  CUevent a = NULL, b = NULL, untimed = event();
  OK(cuEventCreate(&a, 0));
  OK(cuEventCreate(&b, 0));
  OK(cuEventRecord(a, s));
  OK(cuMemsetD8Async(p, 1, NBYTES, s));
  OK(cuEventRecord(b, s));
  FAILS(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_NOT_READY);
  OK(cuEventSynchronize(b));
  OK(cuEventElapsedTime(&ms, a, b));
  assert_true(ms > 0 && ms < 1);
  OK(cuEventElapsedTime(&ms, b, a));
  assert_true(ms < 0);
  FAILS(cuEventElapsedTime(&ms, a, untimed), CUDA_ERROR_INVALID_HANDLE);
  OK(cuEventDestroy_v2(a));
  OK(cuEventDestroy_v2(b));
  OK(cuEventDestroy_v2(untimed));
  OK(cuMemFree_v2(p));
  OK(cuStreamDestroy_v2(s));
}

static void a_destroyed_stream_is_recognised(void **state) {
  (void)state;
  CUstream s = stream();
  OK(cuStreamDestroy_v2(s));
  FAILS(cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE);
  assert_true(told("use of a destroyed stream"));
  found(SIM_MISUSE, 1);
  FAILS(cuStreamDestroy_v2(s), CUDA_ERROR_INVALID_HANDLE);
  found(SIM_MISUSE, 1);
  FAILS(cuStreamSynchronize((CUstream)0x1234), CUDA_ERROR_INVALID_HANDLE);
  found(SIM_MISUSE, 1);
}

static void an_event_is_not_recorded_in_another_context(void **state) {
  (void)state;
  CUevent e = event();
  OK(cuCtxPushCurrent_v2(contexts[1]));
  CUstream s = stream();
  FAILS(cuEventRecord(e, s), CUDA_ERROR_INVALID_HANDLE);
  assert_true(told("another context"));
  found(SIM_MISUSE, 1);
  CUevent own = event();
  OK(cuEventRecord(own, s));
  OK(cuCtxPopCurrent_v2(NULL));
  CUstream here = stream();
  OK(cuStreamWaitEvent(here, own, 0));
  OK(cuCtxPushCurrent_v2(contexts[1]));
  OK(cuCtxSynchronize());
  OK(cuCtxPopCurrent_v2(NULL));
  OK(cuEventDestroy_v2(e));
  OK(cuEventDestroy_v2(own));
  OK(cuStreamDestroy_v2(s));
  OK(cuStreamDestroy_v2(here));
}

static void a_call_without_a_context_is_found(void **state) {
  (void)state;
  CUdeviceptr p = 0;
  CUcontext c = NULL;
  OK(cuCtxPopCurrent_v2(&c));
  FAILS(cuMemAlloc_v2(&p, NBYTES), CUDA_ERROR_INVALID_CONTEXT);
  found(SIM_MISUSE, 1);
  FAILS(cuCtxPopCurrent_v2(NULL), CUDA_ERROR_INVALID_CONTEXT);
  found(SIM_MISUSE, 1);
  OK(cuCtxPushCurrent_v2(c));
}

static void destroying_a_busy_stream_is_warned_of(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  OK(cuMemsetD8Async(p, 1, NBYTES, s));
  OK(cuStreamDestroy_v2(s));
  found(SIM_WARNING, 1);
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(p));
}

static void what_is_left_is_told(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  CUevent e = event();
  OK(cuCtxPushCurrent_v2(contexts[1]));
  assert_int_equal(sim_left("memory"), NBYTES);
  assert_int_equal(sim_left("contexts"), 2);
  assert_true(sim_ledger() >= 4);
  assert_true(told("stream") && told("event") && told("4096 bytes") && told("pushed"));
  sim_reset();
  OK(cuCtxPopCurrent_v2(NULL));
  OK(cuMemFree_v2(p));
  OK(cuStreamDestroy_v2(s));
  OK(cuEventDestroy_v2(e));
}

static void a_forked_child_may_not_call_the_driver(void **state) {
  (void)state;
  int status = 0;
  const pid_t child = fork();
  if (child == 0) _exit(cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void *hammer(void *unused) {
  (void)unused;
  cuCtxPushCurrent_v2(contexts[0]);
  for (int i = 0; i < 300; i++) {
    CUdeviceptr p = 0;
    CUstream s = NULL;
    cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
    cuMemAlloc_v2(&p, NBYTES);
    cuMemsetD8Async(p, 1, NBYTES, s);
    cuLaunchHostFunc(s, signal_done, NULL);
    cuStreamSynchronize(s);
    cuMemFree_v2(p);
    cuStreamDestroy_v2(s);
  }
  cuCtxPopCurrent_v2(NULL);
  return NULL;
}

static void threads_share_the_driver(void **state) {
  (void)state;
  pthread_t threads[4];
  sim_seed(9);
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, hammer, NULL), 0);
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
}

RUN(SPEC(work_runs_as_late_as_it_may), SPEC(seeds_give_different_orders), SPEC(a_query_that_says_done_orders),
    SPEC(host_functions_run_in_stream_order), SPEC(a_host_function_runs_though_nobody_calls_the_driver),
    SPEC(signals_are_for_the_programs_threads),
    SPEC(a_host_function_may_not_call_the_driver), SPEC(time_passes_between_events),
    SPEC(a_destroyed_stream_is_recognised), SPEC(an_event_is_not_recorded_in_another_context),
    SPEC(a_call_without_a_context_is_found), SPEC(destroying_a_busy_stream_is_warned_of), SPEC(what_is_left_is_told),
    SPEC(a_forked_child_may_not_call_the_driver), SPEC(threads_share_the_driver))
