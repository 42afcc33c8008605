/* guest_spec.c: the language that another one brought into this process, as a program in C speaks to it. */
#define _GNU_SOURCE /* dladdr */
#include "spec.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static int collected, finished, output;

static int collect(mf_error *err) {
  (void)err;
  collected++;
  return MF_OK;
}

static int finish(int32_t wait_ms, int32_t *late, mf_error *err) {
  (void)err;
  finished = wait_ms;
  *late = 3;
  return MF_OK;
}

static int refuse(int32_t wait_ms, int32_t *late, mf_error *err) {
  (void)wait_ms;
  (void)late;
  *err = (mf_error){.status = MF_EINVAL, .message = "not from here"};
  return MF_EINVAL;
}

static void say(const char *what) {
  if (write(output, what, 1) != 1) _exit(9);
}

static void leave(void) {
  say("l");
}

static void at_exit(void) {
  say("a");
}

static void without_a_guest_there_is_nothing_to_do(void **state) {
  int32_t late = 7;
  (void)state;
  OK(mf_guest_collect(&spec_err));
  OK(mf_guest_finish(1, &late, &spec_err));
  assert_int_equal(late, 0);
  FAILS(MF_EINVAL, mf_guest_finish(-1, &late, &spec_err));
}

static void the_guest_is_asked(void **state) {
  static const mf_guest guest = {collect, finish, NULL}, other = {collect, refuse, NULL};
  int32_t late = 0;
  (void)state;
  mf_guest_set(&guest);
  OK(mf_guest_collect(&spec_err));
  OK(mf_guest_finish(250, &late, &spec_err));
  OK(mf_guest_finish(250, NULL, NULL));
  mf_guest_set(&other);
  SAYS(MF_EINVAL, "not from here", mf_guest_finish(0, &late, &spec_err));
  assert_int_equal(late, 0);
  SAYS(MF_EINVAL, "wait_ms is -5", mf_guest_finish(-5, &late, &spec_err));
  mf_guest_set(NULL);
  assert_int_equal(collected, 1);
  assert_int_equal(finished, 250);
}

/* glibc tells the end of main; musl tells it nobody. */
#ifdef __GLIBC__
enum { TOLD = 1 };
#else
enum { TOLD = 0 };
#endif

/* This program is linked with the library, so its main thread has loaded it. */
static void main_leaves_before_any_exit_function_runs(void **state) {
  static const mf_guest guest = {collect, finish, leave};
  char said[3] = "";
  int ends[2], status;
  (void)state;
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    output = ends[1];
    int32_t told = mf_guest_set(&guest);
    if (told != TOLD || atexit(at_exit) != 0) _exit(8);
    exit(0);
  }
  close(ends[1]);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(read(ends[0], said, 2), TOLD ? 2 : 1);
  assert_string_equal(said, TOLD ? "la" : "a");
  close(ends[0]);
}

/* A copy, because the library itself is loaded. */
static void copy_library(char *to) {
  static char bytes[65536];
  Dl_info info;
  const int out = mkstemp(to);
  assert_true(out >= 0 && dladdr(dlsym(RTLD_DEFAULT, "mf_guest_set"), &info) != 0);
  FILE *in = fopen(info.dli_fname, "rb");
  assert_non_null(in);
  for (size_t n; (n = fread(bytes, 1, sizeof bytes, in)) > 0;) assert_int_equal(write(out, bytes, n), n);
  fclose(in);
  close(out);
}

static void *load(void *path) {
  return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void main_does_not_tell_what_another_thread_has_loaded(void **state) {
  char path[] = "/tmp/moonferry-guest-XXXXXX";
  pthread_t thread;
  void *library, *found;
  (void)state;
  copy_library(path);
  assert_int_equal(pthread_create(&thread, NULL, load, path), 0);
  assert_int_equal(pthread_join(thread, &library), 0);
  assert_int_equal(unlink(path), 0);
  assert_non_null(library);
  int32_t (*set)(const mf_guest *);
  found = dlsym(library, "mf_guest_set");
  assert_non_null(found);
  assert_true(found != dlsym(RTLD_DEFAULT, "mf_guest_set"));
  *(void **)&set = found;
  assert_int_equal(set(NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(without_a_guest_there_is_nothing_to_do), SPEC(the_guest_is_asked),
                                     SPEC(main_leaves_before_any_exit_function_runs),
                                     SPEC(main_does_not_tell_what_another_thread_has_loaded)};
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
