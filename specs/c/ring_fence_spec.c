/* ring_fence_spec.c: what may happen inside of a fence that a ring asks: the ring is closed, or another thread takes
 * the slot that has just become free. */
#include "spec.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { CELLS = 4 };

static mf_ring *make(int32_t n) {
  mf_tensor *tensors[3];
  mf_ring *ring;
  for (int32_t i = 0; i < n; i++) tensors[i] = spec_create("int64", DIMS(CELLS));
  OK(mf_ring_create(tensors, n, &ring, &spec_err));
  for (int32_t i = 0; i < n; i++) mf_tensor_release(tensors[i]);
  return ring;
}

static int32_t begin(mf_ring *ring) {
  int32_t i;
  OK(mf_ring_begin(ring, 0, &i, &spec_err));
  return i;
}

static int32_t latest(mf_ring *ring) {
  int32_t i;
  OK(mf_ring_latest(ring, &i, NULL, &spec_err));
  return i;
}

/* A fence that releases the ring */

static int32_t drops;

static int32_t releases_the_ring(void *ctx, uint64_t value, int64_t ns) {
  mf_ring **ring = ctx;
  (void)value;
  (void)ns;
  mf_ring_release(*ring);
  *ring = NULL;
  return 0;
}

static void count_drop(void *ctx, uint64_t value) {
  (void)ctx;
  (void)value;
  drops++;
}

static mf_fence releasing(mf_ring **ring) {
  return (mf_fence){.ctx = ring, .wait = releases_the_ring, .drop = count_drop};
}

static void a_fence_releases_the_ring_that_begins(void **state) {
  (void)state;
  for (int64_t ns = 0; ns <= 1; ns++) {
    mf_ring *ring = make(2);
    const mf_fence f = releasing(&ring);
    drops = 0;
    (void)begin(ring);
    OK(mf_ring_end(ring, &f, MF_READ, &spec_err));
    int32_t i;
    OK(mf_ring_begin(ring, ns, &i, &spec_err));
    assert_null(ring);
    assert_int_equal(drops, 1);
  }
}

static void a_fence_releases_the_ring_that_is_asked_for_the_latest(void **state) {
  (void)state;
  mf_ring *ring = make(3);
  const mf_fence f = releasing(&ring);
  drops = 0;
  const int32_t published = begin(ring);
  OK(mf_ring_publish(ring, &spec_err));
  (void)begin(ring);
  OK(mf_ring_end(ring, &f, MF_READ, &spec_err));
  assert_int_equal(latest(ring), published);
  assert_null(ring);
  assert_int_equal(drops, 1);
}

/* There is no room for a fifth fence until one has been asked and is done. */
static void a_fence_releases_the_ring_that_sets_another(void **state) {
  (void)state;
  for (int reads = 0; reads < 2; reads++) {
    mf_ring *ring = make(2), *none = NULL;
    const mf_fence f = releasing(&ring), other = releasing(&none);
    drops = 0;
    const int32_t i = begin(ring);
    OK(mf_tensor_fence(mf_ring_slot(ring, i), &f, MF_READ, &spec_err));
    for (int k = 0; k < 3; k++) OK(mf_tensor_fence(mf_ring_slot(ring, i), &other, MF_READ, &spec_err));
    if (reads) {
      OK(mf_ring_publish(ring, &spec_err));
      assert_int_equal(latest(ring), i);
    }
    OK((reads ? mf_ring_fence : mf_ring_end)(ring, &other, MF_READ, &spec_err));
    assert_null(ring);
    assert_int_equal(drops, 5);
  }
}

/* Another thread takes the slot while the reader looks at the next one */

enum { READ_BY_QUEUE = 7, WRITTEN = 8 };

/* All relaxed, so that nothing but the ring orders the two threads. */
static atomic_bool is_drawn, begins, has_written;
static _Thread_local bool writes;

static void wait_for(const atomic_bool *flag) {
  while (!atomic_load_explicit(flag, memory_order_relaxed)) sched_yield();
}

static int64_t *cells(mf_ring *ring, int32_t i) {
  return mf_tensor_dltensor(mf_ring_slot(ring, i))->data;
}

/* The queue that draws the slot reads it for the last time when the reader asks. */
static int32_t reads_the_slot(void *ctx, uint64_t value, int64_t ns) {
  mf_ring *ring = ctx;
  (void)ns;
  if (writes || !atomic_load_explicit(&is_drawn, memory_order_relaxed)) return 1;
  if (cells(ring, (int32_t)value)[0] != READ_BY_QUEUE) abort();
  return 0;
}

/* The reader looks at it after that one, and is inside until the writer has written. */
static int32_t meets_the_writer(void *ctx, uint64_t value, int64_t ns) {
  (void)ctx;
  (void)value;
  (void)ns;
  if (writes) return 1;
  atomic_store_explicit(&begins, true, memory_order_relaxed);
  wait_for(&has_written);
  return 0;
}

static void *writer(void *arg) {
  mf_ring *ring = arg;
  int32_t i;
  writes = true;
  wait_for(&begins);
  if (mf_ring_begin(ring, 0, &i, NULL) != MF_OK || i != 0) abort();
  cells(ring, i)[0] = WRITTEN;
  atomic_store_explicit(&has_written, true, memory_order_relaxed);
  return NULL;
}

/* What the reader did in the slot comes before what the writer does there: TSan sees it. */
static void a_slot_is_taken_while_the_reader_looks_at_the_next(void **state) {
  (void)state;
  mf_ring *ring = make(3);
  const mf_fence drawn = {.ctx = ring, .value = 0, .wait = reads_the_slot};
  const mf_fence next = {.wait = meets_the_writer};
  pthread_t thread;
  assert_int_equal(begin(ring), 0);
  cells(ring, 0)[0] = READ_BY_QUEUE;
  OK(mf_ring_publish(ring, &spec_err));
  assert_int_equal(latest(ring), 0);
  OK(mf_ring_fence(ring, &drawn, MF_READ, &spec_err));
  assert_int_equal(begin(ring), 1);
  OK(mf_ring_publish(ring, &spec_err));
  assert_int_equal(latest(ring), 1);
  assert_int_equal(begin(ring), 2);
  OK(mf_ring_end(ring, &next, MF_READ, &spec_err));
  assert_int_equal(pthread_create(&thread, NULL, writer, ring), 0);
  atomic_store_explicit(&is_drawn, true, memory_order_relaxed);
  assert_int_equal(latest(ring), 1);
  assert_true(atomic_load_explicit(&has_written, memory_order_relaxed));
  pthread_join(thread, NULL);
  assert_int_equal(cells(ring, 0)[0], WRITTEN);
  mf_ring_release(ring);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(a_fence_releases_the_ring_that_begins),
      SPEC(a_fence_releases_the_ring_that_is_asked_for_the_latest),
      SPEC(a_fence_releases_the_ring_that_sets_another),
      SPEC(a_slot_is_taken_while_the_reader_looks_at_the_next),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
