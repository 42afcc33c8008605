/* cancel_spec.c: a thread that is cancelled inside of a call, where that waits or calls what a program has given it.
 * The call ends before the thread does, so that it leaves nothing half done. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include "spec.h"

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

enum { SIDE = 1024 };

static _Thread_local bool is_cancelled_where_it_sleeps, is_cancelled_where_it_joins;

/* Makes the place from which it is called a cancellation point, in which this thread is cancelled. */
static void end_here(void) {
  (void)pthread_cancel(pthread_self());
  pthread_testcancel();
}

/* The library's own. */

__attribute__((visibility("default"))) int nanosleep(const struct timespec *wanted, struct timespec *left) {
  static _Thread_local int (*real)(const struct timespec *, struct timespec *);
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "nanosleep");
  if (is_cancelled_where_it_sleeps) end_here();
  return real(wanted, left);
}

__attribute__((visibility("default"))) int pthread_join(pthread_t thread, void **result) {
  static _Thread_local int (*real)(pthread_t, void **);
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "pthread_join");
  if (is_cancelled_where_it_joins) end_here();
  return real(thread, result);
}

static bool has_returned;

static void *call(void *arg) {
  void (*act)(void);
  *(void **)&act = arg;
  act();
  has_returned = true;
  pthread_testcancel();
  return NULL;
}

static void expect_end_behind(void (*act)(void)) {
  pthread_t thread;
  void *result;
  has_returned = false;
  assert_int_equal(pthread_create(&thread, NULL, call, *(void **)&act), 0);
  assert_int_equal(pthread_join(thread, &result), 0);
  assert_true(result == PTHREAD_CANCELED);
  assert_true(has_returned);
}

static mf_tensor *shared;
static mf_ring *ring;
static mf_release_list list;
static int drops, releases;

static int32_t end_in_a_wait(void *ctx, uint64_t value, int64_t ns) {
  (void)ctx;
  (void)value;
  (void)ns;
  end_here();
  return 0;
}

static void count_drop(void *ctx, uint64_t value) {
  (void)ctx;
  (void)value;
  drops++;
}

static void wait_for_a_fence(void) {
  int32_t done;
  if (mf_tensor_fence_wait(shared, MF_READ, 0, &done, NULL) != MF_OK || !done) abort();
}

static void a_fence_is_dropped(void **state) {
  const mf_fence fence = {.wait = end_in_a_wait, .drop = count_drop};
  (void)state;
  shared = spec_create("float32", DIMS(4));
  drops = 0;
  OK(mf_tensor_fence(shared, &fence, MF_WRITE, &spec_err));
  expect_end_behind(wait_for_a_fence);
  assert_int_equal(drops, 1);
  mf_tensor_release(shared);
}

static void end_where_all_slots_are_taken(void) {
  int32_t slot;
  is_cancelled_where_it_sleeps = true;
  if (mf_ring_begin(ring, 1, &slot, NULL) != MF_ETIMEOUT) abort();
}

static void a_ring_has_no_writer(void **state) {
  mf_tensor *only = spec_create("float32", DIMS(4));
  int32_t slot;
  (void)state;
  OK(mf_ring_create(&only, 1, &ring, &spec_err));
  mf_tensor_release(only);
  OK(mf_ring_begin(ring, 0, &slot, &spec_err));
  OK(mf_ring_publish(ring, &spec_err));
  OK(mf_ring_latest(ring, &slot, NULL, &spec_err)); /* and keeps it */
  expect_end_behind(end_where_all_slots_are_taken);
  SAYS(MF_ETIMEOUT, "none of the 1 slots", mf_ring_begin(ring, 0, &slot, &spec_err));
  mf_ring_release(ring);
}

static void end_in_a_release(void *ctx) {
  (void)ctx;
  releases++;
  end_here();
}

static mf_tensor *wrapped(void) {
  static float elements[4];
  static int at;
  int64_t shape[] = {1};
  const DLTensor like = {
      .data = &elements[at++ % 4], .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  mf_tensor *t;
  OK(mf_tensor_wrap(&like, 0, end_in_a_release, NULL, &t, &spec_err));
  return t;
}

static void run_the_list(void) {
  if (mf_release_list_run(&list) != 2) abort();
}

static void a_list_of_releases_is_run_to_its_end(void **state) {
  mf_release_entry entries[2];
  (void)state;
  releases = 0;
  for (int i = 0; i < 2; i++) {
    entries[i] = (mf_release_entry){.release = end_in_a_release, .list = &list};
    mf_release_defer(&entries[i]);
  }
  expect_end_behind(run_the_list);
  assert_int_equal(releases, 2);
}

static void all_that_is_due_is_released(void **state) {
  (void)state;
  releases = 0;
  for (int i = 0; i < 2; i++) (void)mf_tensor_release_later(wrapped());
  expect_end_behind(mf_releases_run);
  assert_int_equal(releases, 2);
}

static void release_the_ring(void) {
  mf_ring_release(ring);
}

static void each_slot_of_a_ring_is_released(void **state) {
  mf_tensor *slots[] = {wrapped(), wrapped()};
  (void)state;
  releases = 0;
  OK(mf_ring_create(slots, 2, &ring, &spec_err));
  for (int i = 0; i < 2; i++) mf_tensor_release(slots[i]);
  expect_end_behind(release_the_ring);
  assert_int_equal(releases, 2);
}

static void want_no_workers(void) {
  is_cancelled_where_it_joins = true;
  if (mf_threads_set(1, NULL) != MF_OK) abort();
  is_cancelled_where_it_joins = false;
}

static void workers_that_are_wanted_no_more_end(void **state) {
  mf_tensor *from = spec_create("uint32", DIMS(SIDE, SIDE)), *to = spec_create("uint32", DIMS(SIDE, SIDE)), *across;
  (void)state;
  OK(mf_tensor_permute_dims(from, NULL, 0, &across, &spec_err));
  OK(mf_threads_set(2, &spec_err));
  OK(mf_tensor_copy(to, across, &spec_err));
  expect_end_behind(want_no_workers);
  mf_tensor_release(across);
  mf_tensor_release(from);
  mf_tensor_release(to);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(a_fence_is_dropped),
      SPEC(a_ring_has_no_writer),
      SPEC(a_list_of_releases_is_run_to_its_end),
      SPEC(all_that_is_due_is_released),
      SPEC(each_slot_of_a_ring_is_released),
      SPEC(workers_that_are_wanted_no_more_end),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
