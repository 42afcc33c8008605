/* ring_fence_spec.c: what may happen inside of a fence that a ring asks: the ring is closed or gone on with, or another
 * thread takes the slot that has just become free. */
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

/* A fence that goes on with the ring whose slot is just being given a fence */

typedef struct meddler {
  mf_ring *ring;
  int32_t asked, ended, published, begun, slot, fresh;
  mf_error why;
} meddler;

static int32_t meddles(void *ctx, uint64_t value, int64_t ns) {
  meddler *m = ctx;
  (void)value;
  (void)ns;
  if (m->asked++ > 0) return 0;
  m->ended = mf_ring_end(m->ring, NULL, MF_READ, &m->why);
  m->published = mf_ring_publish(m->ring, NULL);
  m->begun = mf_ring_begin(m->ring, 0, &m->slot, NULL);
  (void)mf_ring_fence(m->ring, NULL, MF_READ, NULL);
  (void)mf_ring_latest(m->ring, &m->slot, &m->fresh, NULL);
  return 0;
}

/* No room for a fifth: the next one that sets a fence asks these. */
static void fill_with(mf_ring *ring, int32_t i, const mf_fence *fence) {
  for (int k = 0; k < 4; k++) OK(mf_tensor_fence(mf_ring_slot(ring, i), fence, MF_READ, &spec_err));
}

static int32_t is_pending(void *ctx, uint64_t value, int64_t ns) {
  (void)value;
  (void)ns;
  return *(const int32_t *)ctx;
}

/* A slot that is being given back is nobody's to give back once more, to publish, or to begin. */
static void a_fence_cannot_give_the_slot_back_that_is_given_back(void **state) {
  (void)state;
  mf_ring *ring = make(3);
  meddler m = {.ring = ring};
  int32_t pending = 1;
  const mf_fence meddling = {.ctx = &m, .wait = meddles}, last = {.ctx = &pending, .wait = is_pending};
  const int32_t i = begin(ring);
  fill_with(ring, i, &meddling);
  OK(mf_ring_end(ring, &last, MF_READ, &spec_err));
  assert_int_equal(m.ended, MF_EINVAL);
  assert_non_null(strstr(m.why.message, "is just being given back"));
  assert_int_equal(m.published, MF_EINVAL);
  assert_int_equal(m.begun, MF_EINVAL);
  assert_int_equal(m.slot, -1);
  assert_int_equal(latest(ring), -1);
  const int32_t next = begin(ring);
  assert_int_not_equal(next, i);
  SAYS(MF_EINVAL, "use is 9", mf_ring_end(ring, &last, 9, &spec_err)); /* and the slot can still be given back */
  OK(mf_ring_end(ring, NULL, MF_READ, &spec_err));
  (void)begin(ring);
  OK(mf_ring_end(ring, NULL, MF_READ, &spec_err));
  assert_int_equal(begin(ring), next); /* not ${i}, whose fence is not done */
  pending = 0;
  mf_ring_release(ring);
}

/* The reader has its slot until that has the fence, whoever asks for a later one. */
static void a_fence_cannot_take_the_next_slot_from_the_reader_that_sets_one(void **state) {
  (void)state;
  mf_ring *ring = make(3);
  meddler m = {.ring = ring};
  const mf_fence meddling = {.ctx = &m, .wait = meddles};
  const int32_t first = begin(ring);
  OK(mf_ring_publish(ring, &spec_err));
  assert_int_equal(latest(ring), first);
  const int32_t second = begin(ring);
  OK(mf_ring_publish(ring, &spec_err));
  fill_with(ring, first, &meddling);
  OK(mf_ring_fence(ring, &meddling, MF_READ, &spec_err));
  assert_int_equal(m.slot, first);
  assert_int_equal(m.fresh, 0);
  assert_int_equal(latest(ring), second);
  SAYS(MF_EINVAL, "use is 9", mf_ring_fence(ring, &meddling, 9, &spec_err));
  assert_int_equal(m.begun, MF_OK);
  OK(mf_ring_publish(ring, &spec_err));
  assert_int_not_equal(latest(ring), second);
  mf_ring_release(ring);
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
      SPEC(a_fence_cannot_give_the_slot_back_that_is_given_back),
      SPEC(a_fence_cannot_take_the_next_slot_from_the_reader_that_sets_one),
      SPEC(a_slot_is_taken_while_the_reader_looks_at_the_next),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
