/* release_spec.c: release callbacks that wait for the thread that may run them. */
#include "spec.h"

#include <pthread.h>

enum { BUFFERS = 200, THREADS = 4 };

typedef struct buffer {
  mf_release_entry entry;
  float element;
  int32_t released;
} buffer;

static mf_release_list list;
static buffer buffers[BUFFERS];
static pthread_t renderer;
static int64_t order;

static void release(void *ctx) {
  buffer *b = ctx;
  assert_true(pthread_equal(pthread_self(), renderer));
  assert_int_equal(b->released, 0);
  b->released = (int32_t)++order;
}

static mf_tensor *wrapped(buffer *b) {
  mf_tensor *t;
  *b = (buffer){.entry = {.release = release, .ctx = b, .list = &list}};
  const DLTensor view = {.data = &b->element, .dtype = {kDLFloat, 32, 1}};
  OK(mf_tensor_wrap(&view, 0, mf_release_defer, &b->entry, &t, &spec_err));
  return t;
}

static void begin_list(void) {
  list = (mf_release_list){0};
  order = 0;
  renderer = pthread_self();
}

static void each_waits_for_its_thread(void **state) {
  (void)state;
  begin_list();
  assert_int_equal(mf_release_list_run(&list), 0);
  mf_tensor *a = wrapped(&buffers[0]), *b = wrapped(&buffers[1]);
  mf_tensor_release(b);
  assert_int_equal(mf_tensor_release_later(a), 0); /* nothing foreign is due: the list has it */
  mf_releases_run();
  assert_int_equal(order, 0);
  assert_int_equal(mf_release_list_run(&list), 2);
  assert_int_equal(buffers[1].released, 1);
  assert_int_equal(buffers[0].released, 2);
  assert_int_equal(mf_release_list_run(&list), 0);
}

static void null_is_nothing(void **state) {
  mf_release_entry unlisted = {.release = release};
  (void)state;
  mf_release_mark(NULL);
  mf_release_defer(NULL);
  mf_release_defer(&unlisted);
  assert_int_equal(mf_release_list_run(NULL), 0);
}

/* What a release makes due comes with the next call, and an entry may be used again at once. */
static void release_and_wrap_again(void *ctx) {
  buffer *b = ctx;
  if (b->released++ > 0) return;
  mf_tensor *t;
  const DLTensor view = {.data = &b->element, .dtype = {kDLFloat, 32, 1}};
  OK(mf_tensor_wrap(&view, 0, mf_release_defer, &b->entry, &t, &spec_err));
  mf_tensor_release(t);
}

static void a_release_may_wrap_again(void **state) {
  (void)state;
  begin_list();
  mf_tensor *t = wrapped(&buffers[0]), *behind = wrapped(&buffers[1]);
  buffers[0].entry.release = release_and_wrap_again;
  mf_tensor_release(t);
  mf_tensor_release(behind);
  assert_int_equal(mf_release_list_run(&list), 2);
  assert_int_equal(mf_release_list_run(&list), 1);
  assert_int_equal(mf_release_list_run(&list), 0);
}

static void *release_all(void *ctx) {
  mf_tensor **part = ctx;
  for (int i = 0; i < BUFFERS / THREADS; i++) mf_tensor_release(part[i]);
  return NULL;
}

static void threads_release_and_one_runs(void **state) {
  (void)state;
  pthread_t threads[THREADS];
  static mf_tensor *all[BUFFERS];
  begin_list();
  for (int i = 0; i < BUFFERS; i++) all[i] = wrapped(&buffers[i]);
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, release_all, &all[i * (BUFFERS / THREADS)]), 0);
  int64_t ran = 0;
  while (ran < BUFFERS) ran += mf_release_list_run(&list);
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  assert_int_equal(ran, BUFFERS);
  assert_int_equal(order, BUFFERS);
  for (int i = 0; i < BUFFERS; i++) assert_true(buffers[i].released > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(each_waits_for_its_thread), SPEC(null_is_nothing),
                                     SPEC(a_release_may_wrap_again), SPEC(threads_release_and_one_runs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
