/* host_spec.c: the host's own loads and stores on pinned and managed memory, seen without being told of. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spec.h"

static volatile unsigned char *pinned(void) {
  void *p = NULL;
  OK(cuMemHostAlloc(&p, 4 * NBYTES, 0));
  return p;
}

/* Work of stream s that reads or writes the second page of m. */
static void queue_work(volatile unsigned char *m, CUdeviceptr p, bool writes, CUstream s) {
  void *at = (void *)(uintptr_t)(m + NBYTES);
  if (writes) OK(cuMemcpyDtoHAsync_v2(at, p, NBYTES, s));
  if (!writes) OK(cuMemcpyHtoDAsync_v2(p, at, NBYTES, s));
}

static void touch(volatile unsigned char *at, bool write) {
  if (write) *at = 1;
  if (!write) (void)*at;
}

/* A race if one of the two writes, and none once the host has waited. */
static void what_the_host_touches_too_early_is_a_race(void **state) {
  (void)state;
  for (int which = 0; which < 4; which++) {
    const bool work_writes = which / 2, host_writes = which % 2;
    volatile unsigned char *m = pinned();
    CUdeviceptr p = device_memory();
    CUstream s = stream();
    OK(cuMemsetD8_v2(p, 7, NBYTES));
    OK(cuCtxSynchronize());
    queue_work(m, p, work_writes, s);
    touch(m + NBYTES + 100, host_writes);
    assert_int_equal(sim_findings(SIM_RACE), work_writes || host_writes);
    if (work_writes || host_writes) assert_true(told(host_writes ? "written by host: call" : "read by host: call"));
    if (work_writes || host_writes) assert_true(told("the program, thread 1 from sim_host_spec"));
    if (work_writes || host_writes) assert_true(told("the host must wait for stream"));
    sim_reset();
    OK(cuStreamSynchronize(s));
    touch(m + NBYTES + 100, host_writes);
    touch(m + NBYTES + 101, true);
    assert_int_equal(sim_findings(SIM_ANY), 0);
    OK(cuMemFreeHost((void *)(uintptr_t)m));
    give_back(p, 0, s, NULL);
  }
}

static void other_bytes_are_the_hosts(void **state) {
  (void)state;
  volatile unsigned char *m = pinned();
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  queue_work(m, p, true, s);
  for (int page = 0; page < 4; page += page == 0 ? 2 : 1)
    for (int i = 0; i < NBYTES; i++) touch(m + page * NBYTES + i, true);
  assert_int_equal(sim_findings(SIM_ANY), 0);
  OK(cuStreamSynchronize(s));
  OK(cuMemcpyDtoHAsync_v2((void *)(uintptr_t)m, p, 100, s));
  touch(m + 100, true); /* of the same page */
  assert_int_equal(sim_findings(SIM_ANY), 0);
  touch(m + 99, false);
  OK(cuStreamQuery(CU_STREAM_PER_THREAD)); /* any call closes the page again */
  touch(m + 98, false);
  found(SIM_RACE, 1);
  OK(cuStreamSynchronize(s));
  OK(cuMemFreeHost((void *)(uintptr_t)m));
  give_back(p, 0, s, NULL);
}

static void managed_memory_is_watched_too(void **state) {
  (void)state;
  CUdeviceptr m = 0;
  CUstream s = stream();
  OK(cuMemAllocManaged(&m, NBYTES, 1));
  *(volatile char *)m = 1;
  OK(cuMemsetD8Async(m, 9, NBYTES, s));
  assert_int_not_equal(*(volatile char *)m, 9);
  found(SIM_RACE, 1);
  OK(cuStreamSynchronize(s));
  assert_int_equal(*(volatile char *)m, 9);
  OK(cuMemFree_v2(m));
  OK(cuStreamDestroy_v2(s));
}

static void touch_all(void *m) {
  for (int i = 0; i < NBYTES; i += 64) touch((volatile unsigned char *)m + NBYTES + i, true);
}

static void a_host_function_touches_in_its_streams_turn(void **state) {
  (void)state;
  volatile unsigned char *m = pinned();
  CUdeviceptr p = device_memory();
  CUstream s = stream(), other = stream();
  queue_work(m, p, true, s);
  OK(cuLaunchHostFunc(s, touch_all, (void *)(uintptr_t)m));
  queue_work(m, p, false, s);
  OK(cuStreamSynchronize(s));
  assert_int_equal(sim_findings(SIM_ANY), 0);
  queue_work(m, p, true, s);
  OK(cuLaunchHostFunc(other, touch_all, (void *)(uintptr_t)m));
  OK(cuStreamSynchronize(other));
  assert_true(told("written by stream"));
  found(SIM_RACE, 1);
  OK(cuStreamSynchronize(s));
  OK(cuMemFreeHost((void *)(uintptr_t)m));
  give_back(p, 0, s, other);
}

static atomic_int heard;

static void tell_it(void *unused) {
  (void)unused;
  atomic_store(&heard, 1);
}

/* Goes on by the function's own word, of which the driver knows nothing. */
static void wait_until_heard(void) {
  while (atomic_load(&heard) == 0) sched_yield();
  atomic_store(&heard, 0);
}

/* The start of the function is a wait for what came before it (cuLaunchHostFunc); what is queued after it is not waited
 * for. */
static void a_host_function_orders_whoever_hears_of_it(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 8; seed++) {
    sim_seed(seed);
    volatile unsigned char *m = pinned();
    CUdeviceptr p = device_memory();
    CUstream s = stream(), other = stream();
    queue_work(m, p, true, s);
    OK(cuLaunchHostFunc(s, tell_it, NULL));
    wait_until_heard();
    touch(m + NBYTES + 100, false);
    OK(cuMemsetD8Async(p, 3, NBYTES, other));
    OK(cuStreamSynchronize(other));
    assert_int_equal(sim_findings(SIM_ANY), 0);
    OK(cuLaunchHostFunc(s, tell_it, NULL));
    queue_work(m, p, false, s);
    wait_until_heard();
    OK(cuMemsetD8Async(p, 4, NBYTES, other));
    assert_true(told("must wait for stream"));
    found(SIM_RACE, 1);
    OK(cuStreamSynchronize(s));
    OK(cuMemFreeHost((void *)(uintptr_t)m));
    give_back(p, 0, s, other);
  }
}

static void what_the_driver_writes_there_is_the_hosts(void **state) {
  (void)state;
  volatile unsigned char *m = pinned();
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  queue_work(m, p, true, s);
  OK(cuMemGetInfo_v2((size_t *)(uintptr_t)(m + NBYTES), NULL));
  OK(cuStreamSynchronize(s));
  found(SIM_RACE, 1);
  OK(cuMemFreeHost((void *)(uintptr_t)m));
  give_back(p, 0, s, NULL);
}

static void *read_and_count(void *m) {
  size_t sum = 0;
  for (int i = 0; i < 4 * NBYTES; i++) sum += ((volatile unsigned char *)m)[i];
  return (void *)sum;
}

static void threads_may_fault_at_once(void **state) {
  (void)state;
  volatile unsigned char *m = pinned();
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  for (int round = 0; round < 50; round++) {
    pthread_t threads[4];
    queue_work(m, p, true, s);
    for (int i = 0; i < 4; i++)
      assert_int_equal(pthread_create(&threads[i], NULL, read_and_count, (void *)(uintptr_t)m), 0);
    OK(cuStreamSynchronize(s));
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  }
  sim_reset(); /* whether any read came before the wait is up to chance */
  OK(cuMemFreeHost((void *)(uintptr_t)m));
  give_back(p, 0, s, NULL);
}

static int ending_of(void (*run)(volatile unsigned char *), volatile unsigned char *m) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    run(m);
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void touch_closed(volatile unsigned char *m) {
  touch(m + NBYTES, true);
}

static void touch_nothing(volatile unsigned char *m) {
  (void)m;
  touch((volatile unsigned char *)16, true);
}

static void send_the_signal(volatile unsigned char *m) {
  (void)m;
  raise(SIGSEGV);
}

static void a_child_may_touch_and_die_as_ever(void **state) {
  (void)state;
  volatile unsigned char *m = pinned();
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  struct sigaction before;
  const struct sigaction none = {.sa_handler = SIG_DFL};
  assert_int_equal(sigaction(SIGSEGV, &none, &before), 0); /* cmocka's */
  queue_work(m, p, true, s);
  assert_int_equal(ending_of(touch_closed, m), 0);
  assert_int_equal(ending_of(touch_nothing, m), SIGSEGV);
  assert_int_equal(ending_of(send_the_signal, m), SIGSEGV);
  assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
  OK(cuStreamSynchronize(s));
  assert_int_equal(sim_findings(SIM_ANY), 0);
  OK(cuMemFreeHost((void *)(uintptr_t)m));
  give_back(p, 0, s, NULL);
}

RUN(SPEC(what_the_host_touches_too_early_is_a_race), SPEC(other_bytes_are_the_hosts),
    SPEC(managed_memory_is_watched_too), SPEC(a_host_function_touches_in_its_streams_turn),
    SPEC(a_host_function_orders_whoever_hears_of_it),
    SPEC(what_the_driver_writes_there_is_the_hosts), SPEC(threads_may_fault_at_once),
    SPEC(a_child_may_touch_and_die_as_ever))
