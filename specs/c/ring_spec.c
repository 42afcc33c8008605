/* ring_spec.c: slots in turn: for one thread, which waits only for the slot's own fence, and between a worker and a
 * renderer, where nothing that is read is written meanwhile. */
#define _GNU_SOURCE
#include "spec.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MOST = 5, CELLS = 64 };

static mf_tensor *tensors[MOST];
static mf_ring *ring;

static void make(int32_t n) {
  for (int32_t i = 0; i < n; i++) tensors[i] = spec_create("int64", DIMS(CELLS));
  OK(mf_ring_create(tensors, n, &ring, &spec_err));
  for (int32_t i = 0; i < n; i++) mf_tensor_release(tensors[i]);
}

static int32_t begin(void) {
  int32_t i;
  OK(mf_ring_begin(ring, 0, &i, &spec_err));
  return i;
}

static int32_t latest(int32_t want_fresh) {
  int32_t i, fresh;
  OK(mf_ring_latest(ring, &i, &fresh, &spec_err));
  assert_int_equal(fresh, want_fresh);
  return i;
}

/* A queue that is reached up to a number, as a timeline is. */
static atomic_uint_least64_t reached;
static atomic_int drops, waits, asks;
static _Thread_local bool stranger;
static int early; /* waits that come back before their number is reached */

static int32_t timeline_wait(void *ctx, uint64_t value, int64_t ns) {
  (void)ctx;
  if (stranger) return -1;
  atomic_fetch_add(ns > 0 ? &waits : &asks, 1);
  if (ns > 0 && early > 0) early--;
  else if (ns > 0 && atomic_load(&reached) < value) atomic_store(&reached, value);
  return atomic_load(&reached) < value;
}

static void timeline_drop(void *ctx, uint64_t value) {
  (void)ctx;
  if (stranger || value > atomic_load(&reached)) abort();
  atomic_fetch_add(&drops, 1);
}

static void reset(void) {
  atomic_store(&reached, 0);
  atomic_store(&drops, 0);
  atomic_store(&waits, 0);
  atomic_store(&asks, 0);
}

static mf_fence at(uint64_t value) {
  return (mf_fence){.value = value, .wait = timeline_wait, .drop = timeline_drop};
}

static void end(uint64_t value) {
  const mf_fence f = at(value);
  OK(mf_ring_end(ring, &f, MF_READ, &spec_err));
}

static void slots_come_in_turn(void **state) {
  (void)state;
  make(3);
  assert_int_equal(mf_ring_count(ring), 3);
  assert_ptr_equal(mf_ring_slot(ring, 2), tensors[2]);
  assert_null(mf_ring_slot(ring, 3));
  assert_null(mf_ring_slot(ring, -1));
  assert_int_equal(mf_tensor_is_ordered(tensors[0]), 1);
  for (int32_t frame = 0; frame < 10; frame++) {
    assert_int_equal(begin(), frame % 3);
    OK(mf_ring_end(ring, NULL, 0, &spec_err));
  }
  mf_ring_release(ring);
}

static void it_waits_for_the_slots_own_fence(void **state) {
  (void)state;
  reset();
  make(3);
  for (uint64_t frame = 1; frame <= 3; frame++) {
    assert_int_equal(begin(), (int)frame - 1);
    end(frame);
  }
  assert_int_equal(waits, 0);
  int32_t i;
  atomic_store(&asks, 0);
  SAYS(MF_ETIMEOUT, "none of the 3 slots", mf_ring_begin(ring, 0, &i, &spec_err));
  assert_int_equal(i, -1);
  assert_int_equal(asks, 3); /* each once */
  OK(mf_ring_begin(ring, INT64_MAX, &i, &spec_err));
  assert_int_equal(i, 0);
  assert_int_equal(reached, 1); /* and for no later one */
  end(4);
  atomic_store(&reached, 3);
  assert_int_equal(begin(), 1);
  OK(mf_ring_end(ring, NULL, 0, &spec_err));
  atomic_store(&reached, 4);
  mf_ring_release(ring);
  assert_int_equal(drops, 4);
}

/* Slots whose turn it is come in their order also after a call that found none. */
static void a_timeout_changes_nothing(void **state) {
  (void)state;
  int32_t i;
  reset();
  make(3);
  for (uint64_t frame = 1; frame <= 12; frame++) {
    SAYS(MF_EINVAL, "ns is -1", mf_ring_begin(ring, -1, &i, &spec_err));
    assert_int_equal(i, -1);
    assert_int_equal(begin(), (int)((frame - 1) % 3));
    i = 7;
    SAYS(MF_EINVAL, "a slot is being written", mf_ring_begin(ring, 0, &i, &spec_err));
    assert_int_equal(i, -1);
    end(frame);
    if (frame % 3 != 0) continue;
    SAYS(MF_ETIMEOUT, "none of the 3 slots", mf_ring_begin(ring, 0, &i, &spec_err));
    assert_int_equal(i, -1);
    atomic_store(&reached, frame < 12 ? frame : 11);
  }
  assert_int_equal(begin(), 0); /* the last one is still in use */
  end(13);
  atomic_store(&reached, 13);
  assert_int_equal(begin(), 1); /* all are free: what was given back last comes last */
  OK(mf_ring_end(ring, NULL, 0, &spec_err));
  mf_ring_release(ring);
}

static void a_wait_that_comes_back_early_is_asked_again(void **state) {
  (void)state;
  int32_t i;
  reset();
  make(1);
  assert_int_equal(begin(), 0);
  end(1);
  early = 1000000000;
  SAYS(MF_ETIMEOUT, "their fences are not done", mf_ring_begin(ring, 100000, &i, &spec_err));
  early = 3;
  OK(mf_ring_begin(ring, INT64_C(600000000000), &i, &spec_err));
  assert_int_equal(i, 0);
  assert_int_equal(early, 0);
  OK(mf_ring_end(ring, NULL, 0, &spec_err));
  mf_ring_release(ring);
}

static void a_frame_allocates_nothing(void **state) {
  (void)state;
  reset();
  make(3);
  mf_fault_arm(0, 1);
  for (uint64_t frame = 1; frame <= 1000; frame++) {
    int32_t i;
    if (frame > 2) atomic_store(&reached, frame - 2);
    OK(mf_ring_begin(ring, 0, &i, &spec_err));
    end(frame);
  }
  assert_int_equal(mf_fault_hits(), 0);
  mf_fault_arm(-1, 0);
  atomic_store(&reached, 1000);
  mf_ring_release(ring);
  assert_int_equal(drops, 1000);
  assert_int_equal(waits, 0);
}

static void a_mailbox_has_the_latest(void **state) {
  (void)state;
  make(3);
  assert_int_equal(latest(0), -1);
  const int32_t first = begin();
  OK(mf_ring_publish(ring, &spec_err));
  assert_int_equal(latest(1), first);
  assert_int_equal(latest(0), first);
  const int32_t second = begin();
  OK(mf_ring_publish(ring, &spec_err));
  const int32_t third = begin();
  OK(mf_ring_publish(ring, &spec_err));
  assert_int_not_equal(second, third);
  assert_int_not_equal(third, first);
  assert_int_equal(latest(1), third); /* nobody drew the second one */
  for (int i = 0; i < 9; i++) { /* the writer never gets what is read */
    assert_int_not_equal(begin(), third);
    OK(mf_ring_publish(ring, &spec_err));
  }
  mf_ring_release(ring);
}

static void what_nobody_took_is_written_again(void **state) {
  (void)state;
  make(2);
  const int32_t read = begin();
  OK(mf_ring_publish(ring, &spec_err));
  assert_int_equal(latest(1), read);
  const int32_t other = begin();
  OK(mf_ring_publish(ring, &spec_err));
  assert_int_equal(begin(), other);
  assert_int_equal(latest(0), read);
  OK(mf_ring_publish(ring, &spec_err));
  assert_int_equal(latest(1), other);
  mf_ring_release(ring);
}

/* A slot that was published and not taken goes back behind the others. */
static void what_nobody_took_comes_back_in_its_turn(void **state) {
  (void)state;
  make(3);
  for (int32_t frame = 0; frame < 9; frame++) {
    assert_int_equal(begin(), frame % 3);
    OK(mf_ring_publish(ring, &spec_err));
  }
  SAYS(MF_EINVAL, "no slot is being written", mf_ring_publish(ring, &spec_err));
  assert_int_equal(latest(1), 2);
  mf_ring_release(ring);
}

static void the_readers_fence_holds_the_slot(void **state) {
  (void)state;
  reset();
  make(3);
  const int32_t first = begin();
  OK(mf_ring_publish(ring, &spec_err));
  assert_int_equal(latest(1), first);
  const mf_fence f = at(1);
  OK(mf_ring_fence(ring, &f, MF_READ, &spec_err));
  const int32_t second = begin();
  OK(mf_ring_publish(ring, &spec_err));
  assert_int_equal(latest(1), second);
  stranger = true; /* a worker cannot wait for a renderer's fence, and need not */
  assert_int_not_equal(begin(), first);
  OK(mf_ring_publish(ring, &spec_err));
  assert_int_not_equal(begin(), first);
  OK(mf_ring_publish(ring, &spec_err));
  stranger = false;
  atomic_store(&reached, 1);
  assert_int_not_equal(latest(1), first);
  assert_int_equal(drops, 1);
  stranger = true;
  assert_int_equal(begin(), second < first ? second : first); /* both are free by now, in the order of their return */
  stranger = false;
  OK(mf_ring_end(ring, NULL, 0, &spec_err));
  mf_ring_release(ring);
}

static void the_time_that_was_given_ends(void **state) {
  (void)state;
  reset();
  make(1);
  int32_t i;
  assert_int_equal(begin(), 0);
  end(1);
  stranger = true;
  SAYS(MF_ETIMEOUT, "cannot be waited for on this thread", mf_ring_begin(ring, 200000, &i, &spec_err));
  stranger = false;
  OK(mf_ring_begin(ring, 1, &i, &spec_err));
  OK(mf_ring_publish(ring, &spec_err));
  assert_int_equal(latest(1), 0);
  SAYS(MF_ETIMEOUT, "the reader has not given one back", mf_ring_begin(ring, 200000, &i, &spec_err));
  mf_ring_release(ring);
}

static void it_outlives_its_fences(void **state) {
  (void)state;
  reset();
  make(2);
  assert_int_equal(begin(), 0);
  end(1);
  mf_ledger l;
  assert_ptr_equal(mf_ring_retain(ring), ring);
  assert_null(mf_ring_retain(NULL));
  assert_int_equal(mf_ring_count(NULL), 0);
  assert_null(mf_ring_slot(NULL, 0));
  mf_ring_release(ring);
  mf_ledger_read(&l);
  assert_int_equal(l.storages, 2);
  mf_ring_release(ring);
  mf_ring_release(NULL);
  mf_ledger_read(&l);
  assert_int_equal(l.storages, 1);
  atomic_store(&reached, 1);
  mf_releases_run();
  assert_int_equal(drops, 1);
}

static void as_many_slots_as_a_ring_may_have(void **state) {
  (void)state;
  mf_tensor *many[MF_RING_MAX];
  for (int32_t i = 0; i < MF_RING_MAX; i++) many[i] = spec_create("int8", DIMS(1));
  OK(mf_ring_create(many, MF_RING_MAX, &ring, &spec_err));
  for (int32_t i = 0; i < MF_RING_MAX; i++) mf_tensor_release(many[i]);
  for (int32_t frame = 0; frame < 2 * MF_RING_MAX; frame++) {
    assert_int_equal(begin(), frame % MF_RING_MAX);
    OK(mf_ring_end(ring, NULL, 0, &spec_err));
  }
  mf_ring_release(ring);
}

/* New memory of an allocator may hold anything, zeros as well. */
static void *zeroing_realloc(void *ctx, void *ptr, size_t old_nbytes, size_t new_nbytes) {
  (void)ctx;
  (void)old_nbytes;
  if (new_nbytes == 0) free(ptr);
  return new_nbytes == 0 ? NULL : ptr == NULL ? calloc(1, new_nbytes) : realloc(ptr, new_nbytes);
}

static void whatever_new_memory_holds(void **state) {
  OK(mf_allocator_set(zeroing_realloc, NULL, &spec_err));
  slots_come_in_turn(state);
  OK(mf_allocator_set(spec_strict_realloc, NULL, &spec_err));
}

static void misuse(void **state) {
  (void)state;
  int32_t i;
  mf_tensor *view;
  const mf_fence f = at(1);
  make(2);
  mf_ring *none;
  REFUSES(MF_EINVAL, none, mf_ring_create(tensors, 0, &none, &spec_err));
  SAYS(MF_EINVAL, "n is 65; 1 to 64 slots expected", mf_ring_create(tensors, MF_RING_MAX + 1, &none, &spec_err));
  OK(mf_tensor_permute_dims(tensors[0], NULL, 0, &view, &spec_err));
  SAYS(MF_EINVAL, "slots[0] and slots[1] are views of one memory",
       mf_ring_create((mf_tensor *[]){tensors[0], view}, 2, &none, &spec_err));
  SAYS(MF_EINVAL, "slots[1] is NULL", mf_ring_create((mf_tensor *[]){tensors[0], NULL}, 2, &none, &spec_err));
  mf_tensor_release(view);
  int64_t memory[CELLS + 1];
  mf_tensor *low = spec_wrap(memory, "int64", DIMS(CELLS), NULL);
  mf_tensor *high = spec_wrap(memory + 1, "int64", DIMS(CELLS), NULL);
  SAYS(MF_EINVAL, "slots[0] and slots[1] overlap",
       mf_ring_create((mf_tensor *[]){low, high}, 2, &none, &spec_err));
  OK(mf_tensor_invalidate(low, NULL, &spec_err));
  FAILS(MF_ECLOSED, mf_ring_create(&low, 1, &none, &spec_err));
  mf_tensor_release(low);
  mf_tensor_release(high);
  SAYS(MF_EINVAL, "no slot is being written", mf_ring_end(ring, NULL, 0, &spec_err));
  SAYS(MF_EINVAL, "no slot is being written", mf_ring_end(ring, &f, MF_READ, &spec_err));
  SAYS(MF_EINVAL, "the reader has no slot", mf_ring_fence(ring, NULL, MF_READ, &spec_err));
  SAYS(MF_EINVAL, "no slot is being written", mf_ring_publish(ring, &spec_err));
  SAYS(MF_EINVAL, "the reader has no slot", mf_ring_fence(ring, &f, MF_READ, &spec_err));
  SAYS(MF_EINVAL, "ns is -1", mf_ring_begin(ring, -1, &i, &spec_err));
  (void)begin();
  SAYS(MF_EINVAL, "a slot is being written", mf_ring_begin(ring, 0, &i, &spec_err));
  SAYS(MF_EINVAL, "use is 9", mf_ring_end(ring, &f, 9, &spec_err));
  OK(mf_ring_publish(ring, &spec_err));
  (void)latest(1);
  SAYS(MF_EINVAL, "fence is NULL", mf_ring_fence(ring, NULL, MF_READ, &spec_err));
  mf_ring_release(ring);
}

static int make_and_release(void *ctx, mf_error *err) {
  mf_tensor *t = ctx;
  mf_ring *r;
  const int rc = mf_ring_create(&t, 1, &r, err);
  mf_ring_release(r);
  return rc;
}

static void no_memory(void **state) {
  (void)state;
  mf_tensor *t = spec_create("int64", DIMS(4));
  OK(mf_tensor_fence(t, NULL, MF_READ, &spec_err)); /* the ledger counts the list as the tensor's */
  assert_int_equal(spec_each_failure(make_and_release, t), 1);
  mf_tensor_release(t);
}

static int make_of_two(void *ctx, mf_error *err) {
  mf_tensor **both = ctx;
  mf_ring *r;
  const int rc = mf_ring_create(both, 2, &r, err);
  if (rc != MF_OK) assert_null(r);
  mf_ring_release(r);
  for (int i = 0; i < 2 && rc != MF_OK; i++) assert_int_equal(mf_tensor_is_ordered(both[i]), 0);
  return rc;
}

/* Slots count as ordered because of a ring, and not because there might have been one. */
static void a_ring_that_cannot_be_made_leaves_the_slots(void **state) {
  (void)state;
  mf_tensor *both[] = {spec_create("int64", DIMS(4)), spec_create("int64", DIMS(4))};
  const uint32_t *epoch = mf_fence_epoch(), before = *epoch;
  mf_ring *none;
  FAILS(MF_EINVAL, mf_ring_create((mf_tensor *[]){both[0], both[0]}, 2, &none, &spec_err));
  FAILS(MF_EINVAL, mf_ring_create((mf_tensor *[]){both[0], NULL}, 2, &none, &spec_err));
  for (int64_t nth = 0; nth < 3; nth++) {
    mf_fault_arm(nth, 0);
    assert_int_equal(make_of_two(both, &spec_err), MF_ENOMEM);
    assert_int_equal(spec_err.status, MF_ENOMEM);
    assert_string_equal(spec_err.call, "mf_ring_create");
  }
  mf_fault_arm(-1, 0);
  assert_int_equal(*epoch, before);
  OK(make_of_two(both, &spec_err));
  assert_int_equal(*epoch, before + 2);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(mf_tensor_is_ordered(both[i]), 1);
    mf_tensor_release(both[i]);
  }
}

/* A worker that writes patterns, and a renderer whose queue is some frames behind. */

static atomic_bool over;

static int64_t *cells(int32_t i) {
  return mf_tensor_dltensor(mf_ring_slot(ring, i))->data;
}

static void *worker(void *arg) {
  stranger = true;
  for (int64_t n = 1; n <= *(int64_t *)arg; n++) {
    int32_t i;
    if (mf_ring_begin(ring, INT64_MAX, &i, NULL) != MF_OK) abort();
    for (int k = 0; k < CELLS; k++) cells(i)[k] = n;
    if (mf_ring_publish(ring, NULL) != MF_OK) abort();
  }
  atomic_store(&over, true);
  return NULL;
}

/* What the queue still reads is as it was when it was queued. */
typedef struct queued {
  int32_t slot;
  int64_t pattern;
} queued;

static bool is_whole(int32_t i, int64_t pattern) {
  for (int k = 0; k < CELLS; k++)
    if (cells(i)[k] != pattern) return false;
  return true;
}

static void nothing_is_torn(int32_t n, int64_t rounds) {
  queued behind[2] = {{-1, 0}, {-1, 0}};
  uint64_t value = 0;
  int64_t last = 0;
  pthread_t thread;
  reset();
  make(n);
  atomic_store(&over, false);
  assert_int_equal(pthread_create(&thread, NULL, worker, &rounds), 0);
  for (bool ends = false; !ends;) {
    int32_t i, fresh;
    ends = atomic_load(&over);
    OK(mf_ring_latest(ring, &i, &fresh, &spec_err));
    if (i < 0) continue;
    const int64_t pattern = cells(i)[0];
    if (!is_whole(i, pattern)) fail_msg("slot %d is torn at pattern %lld", i, (long long)pattern);
    if (pattern < last || (fresh && pattern == last)) fail_msg("%lld after %lld", (long long)pattern, (long long)last);
    last = pattern;
    const mf_fence f = at(++value);
    OK(mf_ring_fence(ring, &f, MF_READ, &spec_err));
    const queued done = behind[value % 2];
    if (done.slot >= 0 && !is_whole(done.slot, done.pattern)) fail_msg("slot %d was written while drawn", done.slot);
    behind[value % 2] = (queued){i, pattern};
    if (value > 2) atomic_store(&reached, value - 2);
  }
  pthread_join(thread, NULL);
  assert_int_equal(last, rounds);
  atomic_store(&reached, UINT64_MAX);
  mf_ring_release(ring);
  assert_int_equal(drops, (int)value);
}

static void a_worker_and_a_renderer(void **state) {
  (void)state;
  nothing_is_torn(3, 3000);
  nothing_is_torn(4, 3000);
  nothing_is_torn(5, 3000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(slots_come_in_turn),
      SPEC(it_waits_for_the_slots_own_fence),
      SPEC(a_timeout_changes_nothing),
      SPEC(a_wait_that_comes_back_early_is_asked_again),
      SPEC(a_frame_allocates_nothing),
      SPEC(a_mailbox_has_the_latest),
      SPEC(what_nobody_took_is_written_again),
      SPEC(what_nobody_took_comes_back_in_its_turn),
      SPEC(the_readers_fence_holds_the_slot),
      SPEC(the_time_that_was_given_ends),
      SPEC(it_outlives_its_fences),
      SPEC(as_many_slots_as_a_ring_may_have),
      SPEC(whatever_new_memory_holds),
      SPEC(misuse),
      SPEC(no_memory),
      SPEC(a_ring_that_cannot_be_made_leaves_the_slots),
      SPEC(a_worker_and_a_renderer),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
