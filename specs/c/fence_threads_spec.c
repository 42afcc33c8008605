/* fence_threads_spec.c: threads that set fences of one memory and wait for them at the same time. */
#include "spec.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { THREADS = 4, EACH = 2000 };
static mf_tensor *shared;
static atomic_int drops;

static int32_t always(void *ctx, uint64_t value, int64_t ns) {
  (void)ctx;
  (void)ns;
  return (int32_t)(value & 1) && ns == 0 ? 1 : 0; /* an odd one is done for who waits */
}

static void count_drop(void *ctx, uint64_t value) {
  (void)ctx;
  (void)value;
  atomic_fetch_add(&drops, 1);
}

static void *fences_of_a_thread(void *arg) {
  int32_t done;
  for (uint64_t i = 0; i < EACH; i++) {
    const mf_fence f = {.value = i, .wait = always, .drop = count_drop};
    if (mf_tensor_fence(shared, &f, i % 3 == 0 ? MF_WRITE : MF_READ, NULL) != MF_OK) abort();
    if (i % 4 == 0 && mf_tensor_fence_wait(shared, MF_WRITE, INT64_MAX, &done, NULL) != MF_OK) abort();
  }
  return arg;
}

static void threads_drop_each_fence_once(void **state) {
  (void)state;
  pthread_t threads[THREADS];
  int32_t done;
  shared = spec_create("float32", DIMS(4));
  atomic_store(&drops, 0);
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, fences_of_a_thread, NULL), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  OK(mf_tensor_fence_wait(shared, MF_WRITE, INT64_MAX, &done, &spec_err));
  assert_int_equal(drops, THREADS * EACH);
  mf_tensor_release(shared);
}

/* A reader of the memory, which sets a fence and drops it when it is done; here at once. */
static int64_t seen;
static atomic_bool read_and_dropped;

static void *read_behind_a_fence(void *arg) {
  const mf_fence f = {.value = 0, .wait = always};
  int32_t done;
  if (mf_tensor_fence(shared, &f, MF_READ, NULL) != MF_OK) abort();
  seen = *(int64_t *)mf_tensor_dltensor(shared)->data;
  if (mf_tensor_fence_wait(shared, MF_WRITE, 0, &done, NULL) != MF_OK || !done) abort();
  atomic_store_explicit(&read_and_dropped, true, memory_order_relaxed);
  return arg;
}

/* Nothing but the list of fences, which is empty again, orders this write behind the read: ThreadSanitizer tells. */
static void that_no_fence_is_left_is_news_of_who_dropped_it(void **state) {
  (void)state;
  pthread_t reader;
  int32_t done;
  shared = spec_create("int64", DIMS(4));
  int64_t *cell = mf_tensor_dltensor(shared)->data;
  *cell = 5;
  OK(mf_tensor_fence(shared, NULL, MF_READ, &spec_err)); /* makes the list */
  atomic_store(&read_and_dropped, false);
  assert_int_equal(pthread_create(&reader, NULL, read_behind_a_fence, NULL), 0);
  while (!atomic_load_explicit(&read_and_dropped, memory_order_relaxed)) sched_yield();
  OK(mf_tensor_fence_wait(shared, MF_WRITE, 0, &done, &spec_err));
  assert_int_equal(done, 1);
  *cell = 7;
  pthread_join(reader, NULL);
  assert_int_equal(seen, 5);
  mf_tensor_release(shared);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(threads_drop_each_fence_once),
      SPEC(that_no_fence_is_left_is_news_of_who_dropped_it),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
