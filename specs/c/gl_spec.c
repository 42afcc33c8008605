/* gl_spec.c: OpenGL's sync objects as fences: what is asked of OpenGL, on which context, what its answers mean, and
 * that each sync object goes once, and none after its context. The OpenGL here is the spec's own and keeps count;
 * specs/lua/gl_spec.lua has a real one. */
#include "spec.h"

#include <pthread.h>

enum { COMPLETE = 0x9117, FLUSH = 1, ALREADY = 0x911A, EXPIRED = 0x911B, SATISFIED = 0x911C, FAILED = 0x911D };

static struct {
  void *current; /* the context, on each thread */
  int made, deleted, waits;
  bool makes_none;
  uint32_t answer;
  uint64_t timeout_ns;
  void *deleted_last;
} gl;

static int context, other_context;

static void *fence_sync(uint32_t condition, uint32_t flags) {
  if (condition != COMPLETE || flags != 0) abort();
  return gl.makes_none ? NULL : (void *)(uintptr_t)(100 + ++gl.made);
}

static uint32_t client_wait_sync(void *sync, uint32_t flags, uint64_t timeout_ns) {
  if (sync != (void *)(uintptr_t)(100 + gl.made) || flags != FLUSH) abort();
  gl.waits++;
  gl.timeout_ns = timeout_ns;
  return gl.answer;
}

static void delete_sync(void *sync) {
  gl.deleted++;
  gl.deleted_last = sync;
}

static void *current_context(void) {
  return gl.current;
}

static const mf_gl_calls calls = {fence_sync, client_wait_sync, delete_sync, current_context};

static mf_gl *opened(void) {
  mf_gl *g;
  memset(&gl, 0, sizeof gl);
  gl.current = &context;
  gl.answer = SATISFIED;
  OK(mf_gl_create(&calls, &g, &spec_err));
  return g;
}

static mf_fence fence_of(mf_gl *g) {
  mf_fence f;
  OK(mf_gl_fence(g, &f, &spec_err));
  return f;
}

/* What the last failure said names the thread that it is about. */
static void says_this_thread(void) {
  char number[32];
  snprintf(number, sizeof number, "thread%s %lld", strstr(spec_err.message, "this") ? "," : "",
           (long long)spec_thread_id());
  if (strstr(spec_err.message, number) == NULL) fail_msg("\"%s\" does not say \"%s\"", spec_err.message, number);
}

static void each_function_is_needed_and_a_context(void **state) {
  (void)state;
  mf_gl *g = opened();
  mf_gl_release(g);
  for (int missing = 0; missing < 4; missing++) {
    mf_gl_calls some = calls;
    if (missing == 0) some.fence_sync = NULL;
    if (missing == 1) some.client_wait_sync = NULL;
    if (missing == 2) some.delete_sync = NULL;
    if (missing == 3) some.current_context = NULL;
    g = (mf_gl *)(uintptr_t)16;
    SAYS(MF_EINVAL, "a function is NULL", mf_gl_create(&some, &g, &spec_err));
    assert_null(g);
  }
  gl.current = NULL;
  REFUSES(MF_EINVAL, g, mf_gl_create(&calls, &g, &spec_err));
  SAYS(MF_EINVAL, "no context of OpenGL is current", mf_gl_create(&calls, &g, &spec_err));
  says_this_thread();
  mf_gl_end(NULL);
  mf_gl_release(NULL);
}

static int make_and_release(void *unused, mf_error *err) {
  mf_gl *g;
  (void)unused;
  const int rc = mf_gl_create(&calls, &g, err);
  assert_true((rc == MF_OK) == (g != NULL));
  mf_gl_release(g);
  return rc;
}

static void no_memory(void **state) {
  (void)state;
  mf_gl_release(opened());
  assert_int_equal(spec_each_failure(make_and_release, NULL), 1);
}

/* A question, and a wait, which has a time. */
static void answers_are_told(void **state) {
  static const struct {
    uint32_t answer;
    int32_t means;
  } answers[] = {{ALREADY, 0}, {SATISFIED, 0}, {EXPIRED, 1}, {FAILED, -2}, {0, -2}};
  (void)state;
  mf_gl *g = opened();
  mf_fence f = fence_of(g);
  for (size_t i = 0; i < COUNT(answers); i++) {
    gl.answer = answers[i].answer;
    assert_int_equal(f.wait(f.ctx, f.value, (int64_t)i * 5), answers[i].means);
    assert_int_equal(gl.timeout_ns, i * 5);
  }
  gl.current = &other_context;
  assert_int_equal(f.wait(f.ctx, f.value, 1), -1);
  assert_int_equal(gl.waits, COUNT(answers));
  f.drop(f.ctx, f.value);
  mf_gl_release(g);
}

static void each_sync_object_goes_once(void **state) {
  (void)state;
  mf_gl *g = opened();
  mf_fence first = fence_of(g), second = fence_of(g);
  assert_int_equal(gl.made, 2);
  first.drop(first.ctx, first.value);
  assert_ptr_equal(gl.deleted_last, (void *)(uintptr_t)101);
  mf_gl_release(g); /* the fence has a reference of its own */
  assert_int_equal(second.wait(second.ctx, second.value, 0), 0);
  second.drop(second.ctx, second.value);
  assert_int_equal(gl.deleted, 2);
  assert_ptr_equal(gl.deleted_last, (void *)(uintptr_t)102);
}

static void after_the_end_opengl_is_asked_for_nothing(void **state) {
  (void)state;
  mf_gl *g = opened();
  mf_fence f = fence_of(g), second = fence_of(g), none = f;
  mf_gl_end(g);
  gl.current = NULL;
  gl.answer = EXPIRED;
  assert_int_equal(f.wait(f.ctx, f.value, 5), 0);
  SAYS(MF_EINVAL, "the context has ended", mf_gl_fence(g, &none, &spec_err));
  assert_true(none.ctx == NULL && none.drop == NULL && none.wait == NULL && none.value == 0);
  f.drop(f.ctx, f.value);
  gl.current = &context; /* another one, which the driver has put in the same place */
  assert_int_equal(second.wait(second.ctx, second.value, 5), 0);
  second.drop(second.ctx, second.value);
  assert_int_equal(gl.waits + gl.deleted, 0);
  mf_gl_release(g);
}

/* In another one its name may be another sync object's. */
static void without_its_context_a_sync_object_is_left_to_that(void **state) {
  (void)state;
  mf_gl *g = opened();
  mf_fence f = fence_of(g), second = fence_of(g);
  gl.current = &other_context;
  f.drop(f.ctx, f.value);
  gl.current = NULL;
  second.drop(second.ctx, second.value);
  assert_int_equal(gl.deleted, 0);
  mf_gl_release(g);
}

static void a_fence_needs_its_context_and_a_sync_object(void **state) {
  (void)state;
  mf_gl *g = opened();
  mf_fence f = {.value = 3};
  gl.current = &other_context;
  SAYS(MF_EINVAL, "is not current on this thread", mf_gl_fence(g, &f, &spec_err));
  says_this_thread();
  assert_int_equal(gl.made, 0);
  assert_int_equal(f.value, 0);
  gl.current = &context;
  gl.makes_none = true;
  assert_int_equal(mf_gl_fence(g, &f, &spec_err), MF_EDRIVER);
  assert_string_equal(spec_err.call, "glFenceSync");
  assert_null(f.ctx);
  gl.makes_none = false;
  f = fence_of(g);
  f.drop(f.ctx, f.value);
  mf_gl_release(g);
}

/* References come and go on any thread. */
static void *drops_many(void *g) {
  for (int i = 0; i < 2000; i++) {
    mf_fence f;
    if (mf_gl_fence(g, &f, NULL) != MF_OK) abort();
    f.drop(f.ctx, f.value);
  }
  return NULL;
}

static void *uncounted_sync(uint32_t condition, uint32_t flags) {
  return (void *)(uintptr_t)(1 + condition + flags);
}

static void uncounted_delete(void *sync) {
  if (sync == NULL) abort();
}

static void threads_share_a_context(void **state) {
  (void)state;
  static const mf_gl_calls uncounted = {uncounted_sync, client_wait_sync, uncounted_delete, current_context};
  pthread_t threads[2];
  mf_gl *g;
  mf_gl_release(opened());
  OK(mf_gl_create(&uncounted, &g, &spec_err));
  for (size_t i = 0; i < COUNT(threads); i++) assert_int_equal(pthread_create(&threads[i], NULL, drops_many, g), 0);
  for (size_t i = 0; i < COUNT(threads); i++) pthread_join(threads[i], NULL);
  mf_gl_release(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(each_function_is_needed_and_a_context), SPEC(no_memory), SPEC(answers_are_told),
      SPEC(each_sync_object_goes_once), SPEC(after_the_end_opengl_is_asked_for_nothing),
      SPEC(without_its_context_a_sync_object_is_left_to_that),
      SPEC(a_fence_needs_its_context_and_a_sync_object), SPEC(threads_share_a_context),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
