/* threads_spec.c: tensors shared by eight threads that retain, view, export, import and release them, and the
 * library's first use by all of them at once. The counts must come out right here; that nothing races is what
 * ThreadSanitizer says of this program.
 */
#define _GNU_SOURCE /* pthread_barrier_t */
#include "spec.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 8, MANY_THREADS = 200 };

/* Operations of each thread; sanitizers take about ten times as long for each. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 20000 };
#else
enum { ROUNDS = 100000 };
#endif

static pthread_barrier_t barrier;
static atomic_int failures;
static mf_tensor *shared;

/* cmocka's assertions jump, which a thread other than the test's must not. */
static void expect(bool good) {
  if (!good) atomic_fetch_add(&failures, 1);
}

static void run(int nthreads, void *(*body)(void *), void *args[]) {
  pthread_t threads[MANY_THREADS];
  atomic_store(&failures, 0);
  pthread_barrier_init(&barrier, NULL, (unsigned)nthreads);
  for (int i = 0; i < nthreads; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, body, args == NULL ? NULL : args[i]), 0);
  for (int i = 0; i < nthreads; i++) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&barrier);
  assert_int_equal(atomic_load(&failures), 0);
}

/* Before anything else in this process has called the library. */
static void *first_use(void *arg) {
  mf_error err;
  mf_tensor *t = NULL;
  DLTensor like = {.ndim = 1, .shape = (int64_t[]){16}};
  (void)arg;
  pthread_barrier_wait(&barrier);
  expect(mf_dtype_parse("float32", &like.dtype, &err) == MF_OK);
  expect(mf_tensor_create(&like, 0, &t, &err) == MF_OK);
  mf_tensor_release(t);
  return NULL;
}

static void first_use_by_all_at_once(void **state) {
  (void)state;
  run(THREADS, first_use, NULL);
}

static void *retain_and_release(void *arg) {
  (void)arg;
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < 4 * ROUNDS; i++) {
    mf_tensor *t = mf_tensor_retain(shared);
    expect(mf_tensor_size(t) == 6);
    mf_tensor_release(t);
  }
  mf_tensor_release(shared);
  return NULL;
}

static void retain_and_release_a_shared_tensor(void **state) {
  (void)state;
  spec_loan *loan = spec_lend_compact("float32", DIMS(2, 3), false);
  OK(spec_import(loan, &shared, &spec_err));
  for (int i = 1; i < THREADS; i++) mf_tensor_retain(shared);
  run(THREADS, retain_and_release, NULL);
  assert_int_equal(spec_loan_calls(loan), 1);
}

/* One hop out and in again, each thread in both forms, through a view. */
static void hop(int i) {
  mf_error err;
  mf_tensor *v = NULL;
  mf_tensor *back = NULL;
  expect(mf_tensor_permute_dims(shared, NULL, 0, &v, &err) == MF_OK);
  if (i % 2 == 0) {
    DLManagedTensorVersioned *m;
    expect(mf_tensor_export(v, 0, &m, &err) == MF_OK);
    mf_tensor_release(v);
    expect(mf_tensor_import(m, &back, &err) == MF_OK);
  } else {
    DLManagedTensor *m;
    expect(mf_tensor_export_legacy(v, &m, &err) == MF_OK);
    mf_tensor_release(v);
    expect(mf_tensor_import_legacy(m, &back, &err) == MF_OK);
  }
  expect(mf_tensor_dltensor(back)->shape[0] == 3);
  expect(((const float *)mf_tensor_dltensor(back)->data)[0] == 0);
  mf_tensor_release(back);
}

static void *hops(void *arg) {
  (void)arg;
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < ROUNDS; i++) hop(i);
  mf_tensor_release(shared);
  return NULL;
}

static void exchange_a_shared_tensor(void **state) {
  (void)state;
  spec_loan *loan = spec_lend_compact("float32", DIMS(2, 3), true);
  OK(spec_import(loan, &shared, &spec_err));
  for (int i = 1; i < THREADS; i++) mf_tensor_retain(shared);
  run(THREADS, hops, NULL);
  assert_int_equal(spec_loan_calls(loan), 1);
}

/* What one thread writes before it releases is seen by the thread whose release frees the memory. */
typedef struct witness {
  int32_t cells[THREADS];
  int64_t sum;
  spec_once *once;
} witness;

static void sum_up(void *ctx) {
  witness *w = ctx;
  for (int i = 0; i < THREADS; i++) w->sum += w->cells[i];
  spec_once_run(w->once);
}

static void *write_and_release(void *arg) {
  int32_t *cell = arg;
  pthread_barrier_wait(&barrier);
  *cell = 1;
  mf_tensor_release(shared);
  return NULL;
}

static void the_last_release_sees_all_writes(void **state) {
  (void)state;
  for (int round = 0; round < 300; round++) {
    witness w = {.once = spec_once_new()};
    void *cells[THREADS];
    DLTensor view = {.data = w.cells, .ndim = 1, .dtype = {kDLInt, 32, 1}, .shape = (int64_t[]){THREADS}};
    OK(mf_tensor_wrap(&view, 0, sum_up, &w, &shared, &spec_err));
    for (int i = 0; i < THREADS; i++) cells[i] = &w.cells[i];
    for (int i = 1; i < THREADS; i++) mf_tensor_retain(shared);
    run(THREADS, write_and_release, cells);
    assert_int_equal(w.sum, THREADS);
  }
}

/* Invalidated by one thread while the others go on asking: each gets a tensor or MF_ECLOSED. */
static void *ask(void *arg) {
  (void)arg;
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < 1000; i++) {
    mf_tensor *v = NULL;
    int rc = mf_tensor_permute_dims(shared, NULL, 0, &v, NULL);
    expect(rc == MF_OK ? v != NULL : rc == MF_ECLOSED && v == NULL);
    mf_tensor_release(v);
  }
  return NULL;
}

static void *take_back(void *arg) {
  (void)arg;
  pthread_barrier_wait(&barrier);
  expect(mf_tensor_invalidate(shared, NULL, NULL) == MF_OK);
  return NULL;
}

static void *ask_or_take_back(void *arg) { return arg == NULL ? ask(NULL) : take_back(NULL); }

static void invalidate_while_others_ask(void **state) {
  int32_t memory[6] = {0};
  void *roles[THREADS] = {&barrier};
  (void)state;
  shared = spec_wrap(memory, "int32", DIMS(2, 3), NULL);
  run(THREADS, ask_or_take_back, roles);
  assert_int_equal(mf_tensor_is_valid(shared), 0);
  mf_tensor_release(shared);
}

/* The ledger stays exact over more threads than it has slots for, alive at once, and over ended threads. */
static void *create_and_wait(void *arg) {
  mf_tensor **out = arg;
  DLTensor like = {.ndim = 1, .shape = (int64_t[]){10}, .dtype = {kDLUInt, 8, 1}};
  expect(mf_tensor_create(&like, 0, out, NULL) == MF_OK);
  pthread_barrier_wait(&barrier);
  return NULL;
}

static void more_threads_than_slots(void **state) {
  mf_tensor *made[MANY_THREADS];
  void *args[MANY_THREADS];
  mf_ledger l;
  (void)state;
  for (int i = 0; i < MANY_THREADS; i++) args[i] = &made[i];
  for (int round = 0; round < 3; round++) {
    run(MANY_THREADS, create_and_wait, args);
    mf_ledger_read(&l);
    assert_int_equal(l.tensors, MANY_THREADS);
    assert_int_equal(l.storages, MANY_THREADS);
    assert_int_equal(l.bytes, 10 * MANY_THREADS);
    for (int i = 0; i < MANY_THREADS; i++) mf_tensor_release(made[i]);
  }
}

/* A struct of ours that is imported while another thread takes the memory back: either the tensor shares what was
 * taken, or the struct is the caller's still. */
typedef struct homecoming {
  DLManagedTensorVersioned *managed; /* NULL: takes the memory back */
  mf_tensor *back;
} homecoming;

static void *come_back_or_take_back(void *arg) {
  homecoming *h = arg;
  pthread_barrier_wait(&barrier);
  if (h->managed == NULL) {
    expect(mf_tensor_invalidate(shared, NULL, NULL) == MF_OK);
    return NULL;
  }
  const int rc = mf_tensor_import(h->managed, &h->back, NULL);
  if (rc != MF_OK) h->managed->deleter(h->managed);
  expect(rc == MF_OK || (rc == MF_ECLOSED && h->back == NULL));
  return NULL;
}

static void structs_come_back_while_the_memory_is_taken_back(void **state) {
  float memory[6] = {0};
  (void)state;
  for (int round = 0; round < 300; round++) {
    homecoming each[THREADS] = {{0}};
    void *args[THREADS] = {&each[0]};
    shared = spec_wrap(memory, "float32", DIMS(2, 3), NULL);
    for (int i = 1; i < THREADS; i++) {
      OK(mf_tensor_export(shared, 0, &each[i].managed, &spec_err));
      args[i] = &each[i];
    }
    run(THREADS, come_back_or_take_back, args);
    for (int i = 1; i < THREADS; i++) {
      if (each[i].back == NULL) continue;
      assert_false(mf_tensor_is_valid(each[i].back));
      mf_tensor_release(each[i].back);
    }
    mf_tensor_release(shared);
  }
}

/* Faults are armed for one thread only. */
static void *create_here(void *arg) {
  mf_tensor *t = NULL;
  DLTensor like = {.ndim = 0, .dtype = {kDLUInt, 8, 1}};
  (void)arg;
  expect(mf_tensor_create(&like, 0, &t, NULL) == MF_OK);
  expect(mf_fault_hits() == 0);
  mf_tensor_release(t);
  return NULL;
}

static void faults_stay_in_their_thread(void **state) {
  (void)state;
  mf_fault_arm(0, 1);
  run(1, create_here, NULL);
  mf_fault_arm(-1, 0);
}

static int first_of_all(void **state) {
  first_use_by_all_at_once(state);
  return spec_group_setup(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(first_use_by_all_at_once),
      SPEC(retain_and_release_a_shared_tensor),
      SPEC(exchange_a_shared_tensor),
      SPEC(the_last_release_sees_all_writes),
      SPEC(invalidate_while_others_ask),
      SPEC(structs_come_back_while_the_memory_is_taken_back),
      SPEC(more_threads_than_slots),
      SPEC(faults_stay_in_their_thread),
  };
  return cmocka_run_group_tests(tests, first_of_all, NULL);
}
