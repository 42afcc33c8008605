/* thread_spec.c: what orders two host threads, where they count apart (SIM_THREADS=separate, and threads/ preloaded).
 *
 * In each round one thread waits for a stream, then lets another free the memory that the stream used. An atomic
 * variable sees to it that it happens in this order; whether that is seen depends on what is used beside it. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "spec.h"

static CUdeviceptr memory;
static CUstream queue;
static _Atomic int turn; /* what happens next */

static void wait_for_turn(int n) {
  while (atomic_load(&turn) != n) sched_yield();
}

/* How the first lets go and the second takes. */
typedef struct way {
  const char *name;
  void (*give)(void), (*take)(void);
  bool orders;
} way;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, other_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spinlock;
static pthread_once_t once;
static sem_t semaphore;
static bool given;

static void nothing(void) {
}
static void lock_and_unlock(void) {
  pthread_mutex_lock(&mutex);
  pthread_mutex_unlock(&mutex);
}
static void try_and_unlock(void) {
  assert_int_equal(pthread_mutex_trylock(&mutex), 0);
  pthread_mutex_unlock(&mutex);
}
static void lock_another(void) {
  pthread_mutex_lock(&other_mutex);
  pthread_mutex_unlock(&other_mutex);
}
static void signal_it(void) {
  pthread_mutex_lock(&mutex);
  given = true;
  pthread_cond_signal(&cond);
  pthread_mutex_unlock(&mutex);
}
static void wait_for_signal(void) {
  pthread_mutex_lock(&mutex);
  while (!given) pthread_cond_wait(&cond, &mutex);
  pthread_mutex_unlock(&mutex);
}
static void post(void) {
  sem_post(&semaphore);
}
static void wait_for_post(void) {
  sem_wait(&semaphore);
}
static void spin(void) {
  pthread_spin_lock(&spinlock);
  pthread_spin_unlock(&spinlock);
}
static void write_locked(void) {
  pthread_rwlock_wrlock(&rwlock);
  pthread_rwlock_unlock(&rwlock);
}
static void read_locked(void) {
  pthread_rwlock_rdlock(&rwlock);
  pthread_rwlock_unlock(&rwlock);
}
static void do_once(void) {
  pthread_once(&once, nothing);
}
static void say_released(void) {
  sim_released(&turn);
}
static void say_acquired(void) {
  sim_acquired(&turn);
}

static void say_turn(void *unused) {
  (void)unused;
  atomic_store(&turn, 1);
}

static void *frees(void *p) {
  const way *w = p;
  wait_for_turn(1);
  w->take();
  cuCtxPushCurrent_v2(contexts[0]);
  cuMemFree_v2(memory);
  cuCtxPopCurrent_v2(NULL);
  atomic_store(&turn, 2);
  return NULL;
}

static void what_orders_two_threads(void **state) {
  (void)state;
  static const way ways[] = {{"nothing", nothing, nothing, false},
                             {"a mutex", lock_and_unlock, lock_and_unlock, true},
                             {"a mutex that is tried", lock_and_unlock, try_and_unlock, true},
                             {"two mutexes", lock_and_unlock, lock_another, false},
                             {"a condition", signal_it, wait_for_signal, true},
                             {"a semaphore", post, wait_for_post, true},
                             {"a spin lock", spin, spin, true},
                             {"a writer before a writer", write_locked, write_locked, true},
                             {"a writer before a reader", write_locked, read_locked, true},
                             {"a reader before a writer", read_locked, write_locked, true},
                             {"a reader before a reader", read_locked, read_locked, false},
                             {"what is done once", do_once, do_once, true},
                             {"what the program says", say_released, say_acquired, true}};
  pthread_spin_init(&spinlock, PTHREAD_PROCESS_PRIVATE);
  sem_init(&semaphore, 0, 0);
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    const pthread_once_t fresh = PTHREAD_ONCE_INIT;
    pthread_t second;
    once = fresh;
    given = false;
    atomic_store(&turn, 0);
    assert_int_equal(pthread_create(&second, NULL, frees, (void *)(uintptr_t)&ways[i]), 0);
    memory = device_memory();
    OK(cuMemsetD8Async(memory, 1, NBYTES, queue));
    OK(cuStreamSynchronize(queue));
    ways[i].give();
    atomic_store(&turn, 1);
    wait_for_turn(2);
    if ((sim_findings(SIM_RACE) == 0) != ways[i].orders) fail_msg("%s: %d", ways[i].name, (int)ways[i].orders);
    sim_reset();
    assert_int_equal(pthread_join(second, NULL), 0);
  }
  sem_destroy(&semaphore);
  pthread_spin_destroy(&spinlock);
}

/* What is done once comes before the others of the same once, whoever they are. */
static void wait_in_once(void) {
  OK(cuMemsetD8Async(memory, 1, NBYTES, queue));
  OK(cuStreamSynchronize(queue));
}

static void do_it(void) {
  pthread_once(&once, wait_in_once);
}

static void what_is_done_once_is_done_before(void **state) {
  (void)state;
  const pthread_once_t fresh = PTHREAD_ONCE_INIT;
  const way w = {"once", do_it, do_it, true};
  pthread_t second;
  once = fresh;
  atomic_store(&turn, 0);
  assert_int_equal(pthread_create(&second, NULL, frees, (void *)(uintptr_t)&w), 0);
  memory = device_memory();
  do_it();
  atomic_store(&turn, 1);
  assert_int_equal(pthread_join(second, NULL), 0);
  assert_int_equal(sim_findings(SIM_ANY), 0);
}

static void *waits(void *unused) {
  cuCtxPushCurrent_v2(contexts[0]);
  cuStreamSynchronize(queue);
  cuCtxPopCurrent_v2(NULL);
  return unused;
}

static void a_thread_begins_and_ends_in_order(void **state) {
  (void)state;
  const way none = {"nothing", nothing, nothing, false};
  pthread_t thread;
  memory = device_memory();
  OK(cuMemsetD8Async(memory, 1, NBYTES, queue));
  assert_int_equal(pthread_create(&thread, NULL, waits, NULL), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  OK(cuMemFree_v2(memory));
  memory = device_memory();
  OK(cuMemsetD8Async(memory, 1, NBYTES, queue));
  OK(cuStreamSynchronize(queue));
  atomic_store(&turn, 1);
  assert_int_equal(pthread_create(&thread, NULL, frees, (void *)(uintptr_t)&none), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(sim_findings(SIM_ANY), 0);
}

static pthread_key_t last_words;

static void wait_at_the_end(void *round) {
  if (round == (void *)1) {
    OK(pthread_setspecific(last_words, (void *)2));
    return;
  }
  OK(cuStreamSynchronize(queue));
  OK(cuCtxPopCurrent_v2(NULL));
}

static void *ends_with_a_wait(void *unused) {
  OK(cuCtxPushCurrent_v2(contexts[0]));
  OK(pthread_setspecific(last_words, (void *)1));
  return unused;
}

/* In the second round of destructors. */
static void what_destructors_do_comes_before_the_join(void **state) {
  (void)state;
  pthread_t thread;
  memory = device_memory();
  OK(pthread_key_create(&last_words, wait_at_the_end));
  OK(cuMemsetD8Async(memory, 1, NBYTES, queue));
  OK(pthread_create(&thread, NULL, ends_with_a_wait, NULL));
  OK(pthread_join(thread, NULL));
  OK(cuMemFree_v2(memory));
  assert_int_equal(sim_findings(SIM_RACE), 0);
  OK(pthread_key_delete(last_words));
}

static void *writes(void *p) {
  wait_for_turn(1);
  *(volatile char *)p = 1;
  atomic_store(&turn, 2);
  return NULL;
}

/* A thread that never called the driver, too. */
static void the_wait_of_one_thread_says_nothing_of_anothers_stores(void **state) {
  (void)state;
  void *pinned = NULL;
  CUdeviceptr p = device_memory();
  pthread_t thread;
  OK(cuMemHostAlloc(&pinned, NBYTES, 0));
  for (int told = 0; told < 2; told++) {
    atomic_store(&turn, 0);
    if (!told) assert_int_equal(pthread_create(&thread, NULL, writes, pinned), 0);
    OK(cuMemcpyHtoDAsync_v2(p, pinned, NBYTES, queue));
    OK(cuStreamSynchronize(queue));
    if (told) assert_int_equal(pthread_create(&thread, NULL, writes, pinned), 0);
    atomic_store(&turn, 1);
    wait_for_turn(2);
    assert_int_equal(sim_findings(SIM_RACE), !told);
    sim_reset();
    assert_int_equal(pthread_join(thread, NULL), 0);
  }
  OK(cuMemFreeHost(pinned));
  OK(cuMemFree_v2(p));
}

static void post_it(void *unused) {
  (void)unused;
  sem_post(&semaphore);
}

/* A host function that runs hands on what came before it in its stream, if it releases what another thread acquires. */
static void a_host_function_hands_on_what_came_before_it(void **state) {
  (void)state;
  for (int hears = 0; hears < 2; hears++) {
    sem_init(&semaphore, 0, 0);
    atomic_store(&turn, 0);
    memory = device_memory();
    CUstream other = stream();
    OK(cuMemsetD8Async(memory, 1, NBYTES, queue));
    OK(cuLaunchHostFunc(queue, hears ? post_it : say_turn, NULL));
    if (hears) sem_wait(&semaphore);
    if (!hears) wait_for_turn(1);
    OK(cuMemsetD8Async(memory, 2, NBYTES, other));
    assert_int_equal(sim_findings(SIM_RACE), hears ? 0 : 1);
    sim_reset();
    give_back(memory, 0, queue, other);
    queue = stream();
    sem_destroy(&semaphore);
  }
}

/* A thread that asks for another stream may be the one that runs it. It has waited for nothing. */
static void whoever_runs_a_host_function_has_not_waited(void **state) {
  enum { STEPS = 40 };
  (void)state;
  for (uint64_t seed = 1; seed <= 10; seed++) {
    sim_seed(seed);
    CUdeviceptr apart = device_memory();
    CUstream other = stream();
    memory = device_memory();
    OK(cuMemsetD8Async(memory, 1, NBYTES, queue));
    OK(cuLaunchHostFunc(queue, say_turn, NULL));
    for (int i = 0; i < STEPS; i++) OK(cuMemsetD8Async(apart, 2, NBYTES, other));
    while (cuStreamQuery(other) == CUDA_ERROR_NOT_READY) continue;
    assert_int_equal(sim_findings(SIM_RACE), 0);
    OK(cuMemsetD8Async(memory, 3, NBYTES, other));
    assert_int_equal(sim_findings(SIM_RACE), 1);
    sim_reset();
    give_back(memory, apart, queue, other);
    queue = stream();
  }
}

static int begin_with_stream(void **state) {
  begin(state);
  queue = stream();
  return 0;
}

static int end_with_stream(void **state) {
  OK(cuStreamDestroy_v2(queue));
  return end(state);
}

#define THREAD_SPEC(name) cmocka_unit_test_setup_teardown(name, begin_with_stream, end_with_stream)

/* Settings are read at the first call. */
int main(void) {
  const struct CMUnitTest specs[] = {THREAD_SPEC(what_orders_two_threads),
                                     THREAD_SPEC(what_is_done_once_is_done_before),
                                     THREAD_SPEC(a_thread_begins_and_ends_in_order),
                                     THREAD_SPEC(what_destructors_do_comes_before_the_join),
                                     THREAD_SPEC(a_host_function_hands_on_what_came_before_it),
                                     THREAD_SPEC(whoever_runs_a_host_function_has_not_waited),
                                     THREAD_SPEC(the_wait_of_one_thread_says_nothing_of_anothers_stores)};
  setenv("SIM_THREADS", "separate", 1);
  return cmocka_run_group_tests(specs, NULL, NULL);
}
