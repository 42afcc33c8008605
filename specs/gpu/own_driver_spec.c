/* own_driver_spec.c: what is the same for any driver (driver.c), shown by drivers of the spec's own: how one is opened,
 * by several threads at once, beside another one, before and after forks, from one of several files, and with more
 * devices than are looked at; who may be inside of a device; what a driver's codes mean. Specs that open one run in a
 * process of their own, because a driver is opened once in each; who waits in vain there is ended. */
#include <pthread.h>
#include <sched.h>

#include "driver/driver.h"
#include "privileged.h"
#include "real_lock.h"
#include "spec.h"

enum { NTHREADS = 4 };

/* Of threads that have come to a driver's lock. It stands before the function of the system. */
static pthread_mutex_t *watched;
static _Thread_local bool is_watched; /* at whichever lock */
static _Atomic int arrived;

__attribute__((visibility("default"), no_sanitize("thread"))) int pthread_mutex_lock(pthread_mutex_t *lock) {
  if (lock == watched || is_watched) arrived++;
  return real_mutex_lock(lock);
}

static _Atomic int starts;

static int start_late(mf__driver *driver, mf_error *error) {
  (void)error;
  starts++;
  while (arrived < NTHREADS) sched_yield();
  driver->count = 1;
  return MF_OK;
}

static int start_many(mf__driver *driver, mf_error *error) {
  (void)error;
  driver->count = MF__MAX_ORDINALS + 1;
  return MF_OK;
}

static const char *const files[] = {"libm.so.6", NULL};
static mf__driver late = MF__DRIVER("late", "late", "MOONFERRY_NO_SUCH_VARIABLE", files, start_late);
static mf__driver many = MF__DRIVER("many", "many", "MOONFERRY_NO_SUCH_VARIABLE", files, start_many);

static void *open_late(void *unused) {
  CHECK(mf__driver_open(&late, NULL) == MF_OK);
  return unused;
}

/* A fork waits for nobody, and in the child no driver is the child's. Nor does one of the child's own wait. */
static void find_no_driver(void) {
  mf_error own;
  alarm(HANGS_SECONDS);
  CHECK(!mf__driver_usable(&late) && !mf__driver_usable(&many));
  CHECK(mf__driver_open(&late, &own) == MF_EDEVICE && strstr(own.message, "forked after the late") != NULL);
}

static void fork_twice(void) {
  find_no_driver();
  for (int i = 0; i < 2; i++) CHECK(status_in_fork(find_no_driver) == 0);
}

static void fork_often(void) {
  for (int i = 0; i < 2; i++) CHECK(status_in_fork(fork_twice) == 0);
}

static void open_at_once(void) {
  pthread_t threads[NTHREADS];
  alarm(HANGS_SECONDS);
  watched = &late.lock;
  for (int i = 0; i < NTHREADS; i++) CHECK(pthread_create(&threads[i], NULL, open_late, NULL) == 0);
  for (int i = 0; i < NTHREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  watched = NULL;
  CHECK(starts == 1);
  fork_often();
  CHECK(mf__driver_open(&many, &err) == MF_OK); /* after a fork */
  fork_often();
  CHECK(mf__driver_usable(&late) && mf__driver_usable(&many));
}

static void several_threads_open_one_driver(void **state) {
  (void)state;
  in_fork_with("", open_at_once);
}

/* A child may open what its parent did not. */
static void open_many(void) {
  alarm(HANGS_SECONDS);
  CHECK(mf__driver_open(&many, &err) == MF_OK && mf__driver_usable(&many));
  fork_often();
}

static void open_in_child(void) {
  alarm(HANGS_SECONDS);
  arrived = NTHREADS;
  CHECK(mf__driver_open(&late, &err) == MF_OK);
  CHECK(status_in_fork(open_many) == 0);
  CHECK(!mf__driver_usable(&many));
}

static void a_child_opens_what_its_parent_did_not(void **state) {
  (void)state;
  in_fork_with("", open_in_child);
}

static void count_many(void) {
  int32_t n = 0;
  CHECK(mf__driver_count(&many, &n, &err) == MF_OK && n == MF__MAX_ORDINALS);
  CHECK(mf__driver_enter(&many, MF__MAX_ORDINALS - 1, &err) == MF_OK);
  mf__driver_leave(&many, MF__MAX_ORDINALS - 1);
  CHECK(mf__driver_enter(&many, MF__MAX_ORDINALS, &err) == MF_EDEVICE);
  CHECK(strstr(err.message, "0 to 63 expected for many") != NULL);
}

static void no_more_devices_than_there_is_room_for(void **state) {
  (void)state;
  in_fork_with("", count_many);
}

/* Who wants to enter a device that is shut waits until it is opened, and is inside then. */
static const mf__backend of_many = {.gates = many.gates};
static _Atomic bool entered;

static void *enter_later(void *unused) {
  is_watched = true;
  CHECK(mf__driver_enter(&many, 1, NULL) == MF_OK);
  is_watched = false;
  entered = true;
  return unused;
}

static void shut_and_open(void) {
  pthread_t thread;
  alarm(HANGS_SECONDS);
  CHECK(mf__driver_open(&many, &err) == MF_OK && !mf__device_used(&of_many, 1));
  for (int i = 0; i < 2; i++) {
    arrived = 0;
    entered = false;
    CHECK(mf__device_shut(&of_many, 1));
    CHECK(pthread_create(&thread, NULL, enter_later, NULL) == 0);
    while (arrived == 0) sched_yield();
    CHECK(!entered);
    mf__device_open(&of_many, 1);
    CHECK(pthread_join(thread, NULL) == 0 && entered && mf__device_used(&of_many, 1));
    CHECK(!mf__device_shut(&of_many, 1));
    mf__driver_leave(&many, 1);
  }
  mf__gate_forget(&many.gates[1]);
  CHECK(!mf__device_used(&of_many, 1) && mf__device_shut(&of_many, 1));
  mf__device_open(&of_many, 1);
}

static void a_device_that_is_shut_is_entered_later(void **state) {
  (void)state;
  in_fork_with("", shut_and_open);
}

/* A device's pool is made once, however many ask for it; where that fails nothing is decided. */
static _Atomic int made;

static int make_late(int32_t ordinal, void **out, mf_error *error) {
  (void)ordinal;
  (void)error;
  made++;
  while (arrived < NTHREADS) sched_yield();
  *out = &late;
  return MF_OK;
}

static int make_nothing(int32_t ordinal, void **out, mf_error *error) {
  *out = NULL;
  return mf__fail(error, MF_EDRIVER, "no pool for %d", ordinal);
}

static mf__pooling pooling;

static void *ask_for_pool(void *unused) {
  void *pool = NULL;
  is_watched = true;
  CHECK(mf__driver_pool(&pooling, 0, make_late, &pool, NULL) == MF_OK && pool == &late);
  return unused;
}

static void pool_at_once(void) {
  pthread_t threads[NTHREADS];
  void *pool = &late;
  alarm(HANGS_SECONDS);
  CHECK(mf__driver_pool(&pooling, 0, make_nothing, &pool, &err) == MF_EDRIVER && pool == NULL);
  CHECK(mf__driver_pool_made(&pooling) == NULL);
  for (int i = 0; i < NTHREADS; i++) CHECK(pthread_create(&threads[i], NULL, ask_for_pool, NULL) == 0);
  for (int i = 0; i < NTHREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(made == 1 && mf__driver_pool_made(&pooling) == &late);
  CHECK(mf__driver_pool_forget(&pooling) == &late && mf__driver_pool_made(&pooling) == NULL);
}

static void a_pool_is_made_once(void **state) {
  (void)state;
  in_fork_with("", pool_at_once);
}

/* The driver's mode of the thread, and how many exchanges from now on fail, having been done or not. */
static int mode_of_thread, failures;
static bool done_all_the_same;

static int exchange(int *mode, mf_error *error) {
  const int former = mode_of_thread;
  const bool fails = failures > 0 && failures-- > 0;
  if (!fails || done_all_the_same) {
    mode_of_thread = *mode;
    *mode = former;
  }
  return fails ? mf__fail(error, MF_EDRIVER, "no exchange") : MF_OK;
}

/* Whatever mode the thread had it has again after the outermost pair, at the latest after the next one where the driver
 * did not give it back. */
static void a_thread_gets_its_own_mode_back(void **state) {
  enum { NMODES = 3, RELAXED = 2, MOST_FAILURES = 3 };
  (void)state;
  for (int mode = 0; mode < NMODES; mode++)
    for (int failing = 0; failing < MOST_FAILURES; failing++)
      for (int done = 0; done < 2; done++) {
        mf__relaxation own = {0};
        mode_of_thread = mode;
        done_all_the_same = done;
        failures = 1;
        FAILS(mf__driver_relax(&own, true, exchange, &err), MF_EDRIVER);
        failures = 0;
        assert_int_equal(mode_of_thread, mode);
        OK(mf__driver_relax(&own, true, exchange, &err));
        OK(mf__driver_relax(&own, true, exchange, &err));
        assert_int_equal(mode_of_thread, RELAXED);
        OK(mf__driver_relax(&own, false, exchange, &err));
        assert_int_equal(mode_of_thread, RELAXED);
        failures = failing;
        FAILS(mf__driver_relax(&own, false, exchange, &err), failing == 0 ? MF_OK : MF_EDRIVER);
        failures = 0;
        if (done || failing < 2) assert_int_equal(mode_of_thread, mode);
        OK(mf__driver_relax(&own, true, exchange, &err));
        assert_int_equal(mode_of_thread, RELAXED);
        OK(mf__driver_relax(&own, false, exchange, &err));
        assert_int_equal(mode_of_thread, mode);
      }
}

/* Both drivers count alike: 2 is no memory, 900 to 908 are what a capture forbids. */
static void a_drivers_code_becomes_a_status(void **state) {
  static const int32_t codes[][2] = {{0, MF_OK}, {1, MF_EDRIVER}, {2, MF_ENOMEM}, {3, MF_EDRIVER}, {899, MF_EDRIVER},
                                     {900, MF_ECAPTURE}, {908, MF_ECAPTURE}, {909, MF_EDRIVER}, {999, MF_EDRIVER}};
  (void)state;
  for (size_t i = 0; i < COUNT(codes); i++)
    assert_int_equal(mf__driver_status(codes[i][0]), codes[i][1]);
}

/* Of several files that cannot be opened the one is told that is there, else the first. */
static int never(mf__driver *driver, mf_error *error) {
  (void)driver;
  return mf__fail(error, MF_EDEVICE, "no library was opened, and yet this is asked");
}

static const struct {
  const char *list[4], *told;
} no_libraries[] = {
    {{"/etc/passwd", "/nonexistent/second.so", NULL}, "/etc/passwd"},
    {{"/nonexistent/first.so", "/etc/passwd", "/nonexistent/third.so", NULL}, "/etc/passwd"},
    {{"/nonexistent/first.so", "/nonexistent/second.so", NULL}, "/nonexistent/first.so"},
};
static size_t which;

static void open_one(void) {
  mf__driver own = MF__DRIVER("own", "own", "MOONFERRY_NO_SUCH_VARIABLE", no_libraries[which].list, never);
  char words[96];
  snprintf(words, sizeof words, "there is no own driver here: %s: ", no_libraries[which].told);
  CHECK(mf__driver_open(&own, &err) == MF_EDEVICE && strstr(err.message, words) == err.message);
  CHECK(strstr(err.message, "(MOONFERRY_NO_SUCH_VARIABLE names another file)") != NULL);
  CHECK(err.call != NULL && mf__driver_open(&own, NULL) == MF_EDEVICE);
}

static void tell_the_file(void) {
  for (which = 0; which < COUNT(no_libraries); which++) CHECK(status_in_fork(open_one) == 0);
}

static void a_file_that_is_there_is_told_rather_than_one_that_is_not(void **state) {
  (void)state;
  in_fork_with("", tell_the_file);
}

static void open_the_callers(void) {
  mf__driver own = MF__DRIVER("own", "own", "MOONFERRY_OWN_LIBRARY", no_libraries[2].list, never);
  CHECK(mf__driver_open(&own, &err) == MF_EDEVICE);
  CHECK(strstr(err.message, is_privileged ? "/nonexistent/first.so: " : "/etc/passwd: ") != NULL);
  CHECK(strstr(err.message, is_privileged ? "(MOONFERRY_OWN_LIBRARY is ignored: this program has raised privileges)"
                                          : "(MOONFERRY_OWN_LIBRARY names another file)") != NULL);
}

static void a_privileged_program_opens_no_library_that_its_caller_names(void **state) {
  (void)state;
  in_fork_with("MOONFERRY_OWN_LIBRARY=/etc/passwd", open_the_callers);
  is_privileged = true;
  in_fork_with("MOONFERRY_OWN_LIBRARY=/etc/passwd", open_the_callers);
  is_privileged = false;
}

int main(void) {
  const struct CMUnitTest specs[] = {
      cmocka_unit_test(several_threads_open_one_driver),
      cmocka_unit_test(a_child_opens_what_its_parent_did_not),
      cmocka_unit_test(no_more_devices_than_there_is_room_for),
      cmocka_unit_test(a_device_that_is_shut_is_entered_later),
      cmocka_unit_test(a_pool_is_made_once),
      cmocka_unit_test(a_thread_gets_its_own_mode_back),
      cmocka_unit_test(a_drivers_code_becomes_a_status),
      cmocka_unit_test(a_file_that_is_there_is_told_rather_than_one_that_is_not),
      cmocka_unit_test(a_privileged_program_opens_no_library_that_its_caller_names),
  };
  return cmocka_run_group_tests(specs, NULL, NULL);
}
