/* gl_return_spec.c: a mapped buffer of OpenGL's that goes out to another library and comes back in a struct of that
 * library's is known again, as memory of the pool's is (return_spec.c): both tensors have one record, so that the
 * unmapping waits for what is done to either, and both are over then. */
#include <pthread.h>
#include <sched.h>

#include "gl_buffer.h"
#include "passing.h"

static void the_unmapping_waits_for_either(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  const mf_stream s = stream_new(0), other = stream_new(0);
  mf_gl_buffer *b = opened(buffer, 0);
  for (uint64_t seed = 0; seed < seeds(10); seed++) {
    passing p;
    sim_ask_seed(seed);
    mf_tensor *t = mapped(b, s), *u = back(&p, t, other);
    fill_on(t, s, 1);
    fill_on(u, other, 2);
    if (seed % 2 == 0) fill_on(t, s, 3);
    fill_on(u, other, seed);
    if (seed % 3 == 0) {
      mf_tensor_release(u); /* before the unmapping, which waits for what it did all the same */
      assert_int_equal(unmapped(b), 0);
    } else {
      assert_int_equal(unmapped(b), 1);
      assert_false(mf_tensor_is_valid(u));
      FAILS(try_fill(u, 7), MF_ECLOSED);
      FAILS(mf_tensor_acquire(u, other, MF_READ, &err), MF_ECLOSED);
      mf_tensor_release(u);
    }
    mf_releases_run();
    assert_int_equal(p.deleted, 1);
    assert_int_equal(sim_ask_findings(), 0);
    expect_floats(buffer, seed);
  }
  OK(mf_gl_buffer_close(b, &err));
  stream_end(0, s);
  stream_end(0, other);
  gl_delete(buffer);
}

/* Whose tensors somebody still has. */
static void an_earlier_mapping_is_not_found(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  mf_gl_buffer *b = opened(buffer, 0);
  passing p, q;
  mf_tensor *first = mf_tensor_retain(mapped(b, MF_STREAM_DEFAULT)), *u = back(&p, first, MF_STREAM_DEFAULT);
  assert_int_equal(unmapped(b), 1);
  mf_tensor *t = mapped(b, MF_STREAM_DEFAULT), *v = back(&q, t, MF_STREAM_DEFAULT);
  fill(v, 4);
  mf_tensor_release(u);
  mf_tensor_release(first);
  fill(t, 5);
  fill(v, 6);
  mf_tensor_release(v);
  assert_int_equal(unmapped(b), 0);
  OK(mf_gl_buffer_close(b, &err));
  mf_releases_run();
  assert_int_equal(p.deleted + q.deleted, 2);
  assert_int_equal(sim_ask_findings(), 0);
  expect_floats(buffer, 6);
  gl_delete(buffer);
}

/* What another thread did before the unmapping is seen behind it by who finds the tensor closed. */
static int left_behind;

static void *wait_until_closed(void *tensor) {
  while (mf_tensor_is_valid(tensor)) (void)sched_yield();
  left_behind++;
  return NULL;
}

static void who_finds_it_closed_comes_behind_the_unmapping(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  mf_gl_buffer *b = opened(buffer, 0);
  passing p;
  pthread_t thread;
  mf_tensor *u = back(&p, mapped(b, MF_STREAM_DEFAULT), MF_STREAM_DEFAULT);
  assert_int_equal(pthread_create(&thread, NULL, wait_until_closed, u), 0);
  left_behind = 1;
  assert_int_equal(unmapped(b), 1);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(left_behind, 2);
  mf_tensor_release(u);
  OK(mf_gl_buffer_close(b, &err));
  mf_releases_run();
  assert_int_equal(p.deleted, 1);
  gl_delete(buffer);
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(the_unmapping_waits_for_either), SPEC(an_earlier_mapping_is_not_found),
                                     SPEC(who_finds_it_closed_comes_behind_the_unmapping)};
  return RUN(tests);
}
