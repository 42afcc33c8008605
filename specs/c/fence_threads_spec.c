/* fence_threads_spec.c: threads that set fences of one memory and wait for them at the same time. */
#include "spec.h"

#include <pthread.h>
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

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(threads_drop_each_fence_once)};
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
