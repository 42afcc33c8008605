/* handover_spec.c: what one thread did in the host's memory before it gave something back, or said that something is
 * so, the next thread sees. */
#define _POSIX_C_SOURCE 200809L

#include "spec.h"
#include "turns.h"

#define CHECK(condition) ((condition) ? (void)0 : abort()) /* in either thread */

/* References */

static void expect_used(void *unused) {
  (void)unused;
  assert_int_equal(data, 1);
}

static mf_tensor *shared;
static int32_t numbers[2];

static mf_tensor *wrapped_at(int32_t *number, mf_release_fn release, void *ctx) {
  const DLTensor view = {.data = number, .device = {kDLCPU, 0}, .dtype = {kDLInt, 32, 1}};
  mf_tensor *t = NULL;
  OK(mf_tensor_wrap(&view, 0, release, ctx, &t, &spec_err));
  return t;
}

static mf_tensor *wrapped(mf_release_fn release, void *ctx) {
  return wrapped_at(&numbers[0], release, ctx);
}

static void *use_and_release(void *unused) {
  (void)unused;
  data = 1;
  mf_tensor_release(shared);
  give_turn(1);
  return NULL;
}

static void the_last_reference_sees_what_the_others_did(void **state) {
  (void)state;
  shared = wrapped(expect_used, NULL);
  mf_tensor *other = mf_tensor_retain(shared);
  const pthread_t thread = begin_thread(use_and_release);
  wait_for_turn(1);
  mf_tensor_release(other);
  end_thread(thread);
}

static int32_t is_released;

static void who_sees_the_mark_sees_what_was_done(void **state) {
  (void)state;
  is_released = 0;
  shared = wrapped(mf_release_mark, &is_released);
  const pthread_t thread = begin_thread(use_and_release);
  while (atomic_load_explicit((_Atomic int32_t *)&is_released, memory_order_acquire) == 0) sched_yield();
  assert_int_equal(data, 1);
  end_thread(thread);
}

static void who_runs_a_list_sees_what_was_done(void **state) {
  (void)state;
  static mf_release_list list;
  mf_release_entry entry = {.release = expect_used, .list = &list};
  shared = wrapped(mf_release_defer, &entry);
  const pthread_t thread = begin_thread(use_and_release);
  wait_for_turn(1);
  assert_int_equal(mf_release_list_run(&list), 1);
  end_thread(thread);
}

static void *use_and_release_later(void *unused) {
  (void)unused;
  data = 1;
  CHECK(mf_tensor_release_later(shared) == 1);
  give_turn(1);
  return NULL;
}

static void who_runs_what_is_due_sees_what_was_done(void **state) {
  (void)state;
  shared = wrapped(expect_used, NULL);
  const pthread_t thread = begin_thread(use_and_release_later);
  wait_for_turn(1);
  mf_releases_run();
  end_thread(thread);
}

/* Memory that is taken back */

static void *use_and_take_back(void *unused) {
  (void)unused;
  data = 1;
  CHECK(mf_tensor_invalidate(shared, NULL, NULL) == MF_OK);
  return NULL;
}

static void who_finds_memory_taken_back_sees_what_was_done(void **state) {
  (void)state;
  shared = wrapped(NULL, NULL);
  const pthread_t thread = begin_thread(use_and_take_back);
  while (mf_tensor_is_valid(shared)) sched_yield();
  assert_int_equal(data, 1);
  end_thread(thread);
  mf_tensor_release(shared);
}

/* By way of a reference to the same tensor, or of another tensor over the memory. */
static void take_back_from(mf_tensor *other) {
  int32_t in_use = 1;
  const pthread_t thread = begin_thread(use_and_release);
  while (in_use) {
    OK(mf_tensor_invalidate(other, &in_use, &spec_err));
    sched_yield();
  }
  assert_int_equal(data, 1);
  end_thread(thread);
  mf_tensor_release(other);
}

static void who_takes_memory_back_sees_what_its_users_did(void **state) {
  (void)state;
  mf_tensor *view;
  shared = wrapped(NULL, NULL);
  take_back_from(mf_tensor_retain(shared));
  shared = wrapped(NULL, NULL);
  OK(mf_tensor_permute_dims(shared, NULL, 0, &view, &spec_err));
  take_back_from(view);
}

/* Fences */

static int32_t look(void *ctx, uint64_t value, int64_t ns) {
  (void)ctx, (void)value, (void)ns;
  CHECK(data == 1);
  data = 2;
  return 0;
}

static void *fence_and_wait(void *unused) {
  const mf_fence fence = {.wait = look};
  int32_t done = 0;
  (void)unused;
  data = 1;
  CHECK(mf_tensor_fence(shared, &fence, MF_WRITE, NULL) == MF_OK);
  give_turn(1);
  wait_for_turn(2);
  CHECK(mf_tensor_fence_wait(shared, MF_WRITE, 0, &done, NULL) == MF_OK && done);
  CHECK(data == 2);
  return NULL;
}

static void who_waits_for_a_fence_sees_what_was_done(void **state) {
  int32_t done = 0;
  (void)state;
  shared = wrapped(NULL, NULL);
  const pthread_t thread = begin_thread(fence_and_wait);
  wait_for_turn(1);
  OK(mf_tensor_fence_wait(shared, MF_WRITE, 0, &done, &spec_err));
  assert_true(done);
  give_turn(2);
  end_thread(thread);
  mf_tensor_release(shared);
}

static void *fence_with_nothing(void *unused) {
  (void)unused;
  data = 1;
  CHECK(mf_tensor_fence(shared, NULL, MF_WRITE, NULL) == MF_OK);
  give_turn(1);
  return NULL;
}

static void who_finds_memory_ordered_sees_what_was_done(void **state) {
  (void)state;
  shared = wrapped(NULL, NULL);
  const pthread_t thread = begin_thread(fence_with_nothing);
  while (!mf_tensor_is_ordered(shared)) sched_yield();
  assert_int_equal(data, 1);
  end_thread(thread);
  mf_tensor_release(shared);
}

static void who_looks_for_fences_sees_the_list_as_it_was_made(void **state) {
  int32_t done = 0;
  (void)state;
  shared = wrapped(NULL, NULL);
  const pthread_t thread = begin_thread(fence_with_nothing);
  wait_for_turn(1);
  OK(mf_tensor_fence_wait(shared, MF_WRITE, 0, &done, &spec_err));
  assert_true(done);
  end_thread(thread);
  mf_tensor_release(shared);
}

static _Atomic int32_t answer;
static int32_t use_there;

static int32_t say(void *ctx, uint64_t value, int64_t ns) {
  (void)ctx, (void)value, (void)ns;
  return atomic_load_explicit(&answer, memory_order_relaxed);
}

static void wait_for_fence(int32_t use) {
  int32_t done;
  CHECK(mf_tensor_fence_wait(shared, use, 0, &done, NULL) == MF_OK);
}

static void *wait_there(void *unused) {
  (void)unused;
  wait_for_fence(use_there);
  give_turn(1);
  return NULL;
}

/* Another thread looks at the fence, which is done or not, and has been when its place is taken for the next one. */
static void set_another(int32_t use, int32_t answer_there) {
  const mf_fence fence = {.wait = say};
  shared = wrapped(NULL, NULL);
  OK(mf_tensor_fence(shared, &fence, use, &spec_err));
  use_there = use;
  atomic_store(&answer, answer_there);
  const pthread_t thread = begin_thread(wait_there);
  wait_for_turn(1);
  atomic_store_explicit(&answer, 0, memory_order_relaxed);
  if (answer_there != 0) wait_for_fence(MF_WRITE);
  OK(mf_tensor_fence(shared, &fence, use, &spec_err));
  end_thread(thread);
  mf_tensor_release(shared);
}

/* Several times: ThreadSanitizer remembers only some of the accesses to one word, which the state and the use share. */
static void who_takes_a_fences_place_comes_after_who_looked_there(void **state) {
  (void)state;
  for (int i = 0; i < 20; i++) {
    set_another(MF_WRITE, 0);
    set_another(MF_WRITE, 1);
    set_another(MF_READ, 1); /* whoever reads does not ask it */
  }
}

/* Rings */

static mf_ring *ring;

static void make_ring(void) {
  mf_tensor *slots[] = {wrapped_at(&numbers[0], NULL, NULL), wrapped_at(&numbers[1], NULL, NULL)};
  OK(mf_ring_create(slots, 2, &ring, &spec_err));
  for (size_t i = 0; i < COUNT(slots); i++) mf_tensor_release(slots[i]);
}

static void begin_slot(int value) {
  int32_t i;
  CHECK(mf_ring_begin(ring, 0, &i, NULL) == MF_OK);
  numbers[i] = value;
}

static void *publish_twice(void *unused) {
  (void)unused;
  begin_slot(1);
  CHECK(mf_ring_publish(ring, NULL) == MF_OK);
  wait_for_turn(1);
  begin_slot(2);
  CHECK(mf_ring_publish(ring, NULL) == MF_OK);
  wait_for_turn(2);
  begin_slot(3); /* what the reader has given back */
  CHECK(mf_ring_end(ring, NULL, MF_WRITE, NULL) == MF_OK);
  return NULL;
}

static void read_latest(int value) {
  int32_t i, is_new = 0;
  while (!is_new) {
    OK(mf_ring_latest(ring, &i, &is_new, &spec_err));
    sched_yield();
  }
  assert_int_equal(numbers[i], value);
}

static void who_takes_a_slot_sees_what_was_done_there(void **state) {
  (void)state;
  make_ring();
  const pthread_t thread = begin_thread(publish_twice);
  read_latest(1);
  give_turn(1);
  read_latest(2);
  give_turn(2);
  end_thread(thread);
  mf_ring_release(ring);
}

/* How a writer is done with a slot. */
static int publish(void) {
  return mf_ring_publish(ring, NULL);
}

static int give_back(void) {
  return mf_ring_end(ring, NULL, MF_WRITE, NULL);
}

static int (*leave_slot)(void);

static void *write_slot(void *unused) {
  (void)unused;
  begin_slot(1);
  data = 1;
  CHECK(leave_slot() == MF_OK);
  give_turn(1);
  return NULL;
}

static void who_writes_next_sees_what_the_last_writer_did(void **state) {
  int (*const ways[])(void) = {publish, give_back};
  (void)state;
  for (size_t i = 0; i < COUNT(ways); i++) {
    make_ring();
    leave_slot = ways[i];
    const pthread_t thread = begin_thread(write_slot);
    wait_for_turn(1);
    begin_slot(2);
    assert_int_equal(data, 1);
    OK(publish());
    end_thread(thread);
    mf_ring_release(ring);
  }
}

static void *begin_for_another(void *unused) {
  (void)unused;
  data = 1;
  begin_slot(2);
  give_turn(1);
  return NULL;
}

static void who_publishes_for_another_sees_the_slot(void **state) {
  (void)state;
  make_ring();
  const pthread_t thread = begin_thread(begin_for_another);
  wait_for_turn(1);
  OK(publish());
  assert_int_equal(data, 1);
  end_thread(thread);
  mf_ring_release(ring);
}

/* OpenGL's context */

static mf_gl *gl;

static void *some_context(void) {
  static _Thread_local bool is_made;
  if (is_made) return NULL; /* current while the object is made, and no longer */
  is_made = true;
  return &numbers[0];
}

static void *no_sync(uint32_t condition, uint32_t flags) {
  (void)condition;
  (void)flags;
  return NULL;
}

static uint32_t no_wait(void *sync, uint32_t flags, uint64_t timeout_ns) {
  (void)sync;
  (void)flags;
  (void)timeout_ns;
  return 0;
}

static void nothing_to_delete(void *sync) {
  (void)sync;
}

static void *finish_and_end(void *unused) {
  (void)unused;
  data = 1;
  mf_gl_end(gl);
  return NULL;
}

static void who_finds_a_context_ended_sees_what_was_done_before(void **state) {
  const mf_gl_calls calls = {no_sync, no_wait, nothing_to_delete, some_context};
  mf_fence fence;
  (void)state;
  OK(mf_gl_create(&calls, &gl, &spec_err));
  const pthread_t thread = begin_thread(finish_and_end);
  do assert_int_equal(mf_gl_fence(gl, &fence, &spec_err), MF_EINVAL);
  while (strstr(spec_err.message, "has ended") == NULL);
  assert_int_equal(data, 1);
  end_thread(thread);
  mf_gl_release(gl);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(the_last_reference_sees_what_the_others_did),
      SPEC(who_sees_the_mark_sees_what_was_done),
      SPEC(who_runs_a_list_sees_what_was_done),
      SPEC(who_runs_what_is_due_sees_what_was_done),
      SPEC(who_finds_memory_taken_back_sees_what_was_done),
      SPEC(who_takes_memory_back_sees_what_its_users_did),
      SPEC(who_waits_for_a_fence_sees_what_was_done),
      SPEC(who_finds_memory_ordered_sees_what_was_done),
      SPEC(who_looks_for_fences_sees_the_list_as_it_was_made),
      SPEC(who_takes_a_fences_place_comes_after_who_looked_there),
      SPEC(who_takes_a_slot_sees_what_was_done_there),
      SPEC(who_writes_next_sees_what_the_last_writer_did),
      SPEC(who_publishes_for_another_sees_the_slot),
      SPEC(who_finds_a_context_ended_sees_what_was_done_before),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
