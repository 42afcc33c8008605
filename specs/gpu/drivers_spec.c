/* drivers_spec.c: two drivers in one process. What one has goes to the other through the host; no memory carries a
 * label of the other's, and no stream waits for one of the other's. Needs both simulated drivers. */
#include <dlfcn.h>

#include "device.h"

enum { ROWS = 48, COLUMNS = 40, NBYTES = ROWS * COLUMNS };

static const DLDevice cpu = {kDLCPU, 0};
static void *second_library;
static DLDevice second, second_pinned;

/* The simulator that lies beside the one that the spec runs on. The runtime finds it by its name, as it is loaded. */
static bool second_open(void) {
  const bool rocm = other_device_type() == kDLROCM;
  char folder[4096], path[4200];
  void *first = dlopen(rocm ? "libamdhip64.so.7" : "libcuda.so.1", RTLD_NOW);
  if (first == NULL || dlinfo(first, RTLD_DI_ORIGIN, folder) != 0) return false;
  (void)snprintf(path, sizeof path, "%s/../%s", folder, rocm ? "cuda/libcuda.so.1" : "hip/libamdhip64.so.7");
  second_library = dlopen(path, RTLD_NOW);
  second = (DLDevice){rocm ? kDLCUDA : kDLROCM, 0};
  second_pinned = (DLDevice){rocm ? kDLCUDAHost : kDLROCMHost, 0};
  (void)dlclose(first);
  return second_library != NULL;
}

static void second_is_empty(void) {
  static const char *const sorts[] = {"memory", "streams", "events", "contexts", "captures", "pending"};
  int64_t (*left)(const char *);
  uint64_t (*findings)(int);
  OK(mf_device_synchronize(&second, &err));
  trim(second_pinned);
  trim(second);
  OK(mf_device_synchronize(&second, &err));
  *(void **)&left = dlsym(second_library, "sim_left");
  *(void **)&findings = dlsym(second_library, "sim_findings");
  for (size_t i = 0; i < COUNT(sorts); i++) assert_int_equal(left(sorts[i]), 0);
  assert_int_equal(findings(0), 0);
}

static mf_tensor *counted(DLDevice device) {
  const mf_request request = {.device = device, .copy = MF_COPY_ALWAYS};
  int64_t shape[] = {ROWS, COLUMNS};
  const DLTensor like = {.device = cpu, .ndim = 2, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  mf_tensor *host, *t;
  OK(mf_tensor_create(&like, 0, &host, &err));
  for (int i = 0; i < NBYTES; i++) ((unsigned char *)data_of(host))[i] = (unsigned char)(i * 7);
  OK(mf_tensor_to(host, &request, &t, &err));
  mf_tensor_release(host);
  return t;
}

static void expect_counted(mf_tensor *t) {
  const mf_request on_host = {.device = cpu, .copy = MF_COPY_ALWAYS};
  mf_tensor *host;
  OK(mf_tensor_to(t, &on_host, &host, &err));
  for (int i = 0; i < NBYTES; i++)
    if (((unsigned char *)data_of(host))[i] != (unsigned char)(i * 7)) fail_msg("byte %d", i);
  mf_tensor_release(host);
}

/* Whatever the label says, the elements are copied. */
static void expect_copied(mf_tensor *t, DLDevice to) {
  mf_request request = {.device = to};
  mf_tensor *copy;
  OK(mf_tensor_to(t, &request, &copy, &err));
  assert_ptr_not_equal(data_of(copy), data_of(t));
  assert_int_equal(mf_tensor_dltensor(copy)->device.device_type, to.device_type);
  expect_counted(copy);
  mf_tensor_release(copy);
  request.copy = MF_COPY_NEVER;
  REFUSED(mf_tensor_to(t, &request, &copy, &err), MF_ELAYOUT, "needs a copy");
}

static void needs_both_simulators(void) {
  skip_unless(second_library != NULL, "it needs both simulated drivers");
}

static void each_memory_goes_to_the_other_driver(void **state) {
  const DLDevice ours[] = {gpu(0), pinned(), managed()}, theirs[] = {second, second_pinned};
  (void)state;
  needs_both_simulators();
  for (size_t i = 0; i < COUNT(ours); i++)
    for (size_t k = 0; k < COUNT(theirs) && (int)ours[i].device_type != 0; k++) {
      mf_tensor *here = counted(ours[i]), *there = counted(theirs[k]);
      expect_copied(here, theirs[k]);
      expect_copied(there, ours[i]);
      mf_tensor_release(here);
      mf_tensor_release(there);
    }
  second_is_empty();
}

/* Both sides in layouts of their own, behind work on streams of each. */
static void strided_elements_go_over_in_order(void **state) {
  (void)state;
  needs_both_simulators();
  for (uint64_t seed = 0; seed < seeds(5); seed++) {
    sim_ask_seed(seed);
    const mf_stream s = stream_new(0);
    mf_tensor *here = counted(gpu(0)), *there = counted(second), *turned_here, *turned_there, *back = counted(gpu(0));
    const mf_scalar zero = {.kind = MF_KIND_UINT};
    OK(mf_tensor_permute_dims(here, NULL, 0, &turned_here, &err));
    OK(mf_tensor_permute_dims(there, NULL, 0, &turned_there, &err));
    OK(mf_tensor_fill(there, &zero, &err));
    keep_busy(back, s);
    OK(mf_tensor_copy(turned_there, turned_here, &err));
    expect_counted(there);
    use_stream(0, s);
    OK(mf_tensor_copy(back, there, &err));
    use_stream(0, MF_STREAM_DEFAULT);
    expect_counted(back);
    mf_tensor *all[] = {here, there, turned_here, turned_there, back};
    for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
    stream_end(0, s);
  }
  second_is_empty();
}

static void set_to_zero(mf_tensor *t) {
  const mf_scalar zero = {.kind = MF_KIND_UINT};
  OK(mf_tensor_fill(t, &zero, &err));
}

/* Half bytes that are padded to bytes stay so on the way. */
static void padded_elements_go_over(void **state) {
  const mf_request to_second = {.device = second, .copy = MF_COPY_ALWAYS}, to_host = {.device = cpu};
  int64_t shape[] = {13};
  const DLTensor like = {.device = cpu, .ndim = 1, .dtype = {kDLInt, 4, 1}, .shape = shape};
  mf_tensor *host, *here, *there, *back, *clone;
  int32_t same = 7;
  (void)state;
  needs_both_simulators();
  OK(mf_tensor_create(&like, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, &host, &err));
  for (int i = 0; i < 13; i++) ((unsigned char *)data_of(host))[i] = (unsigned char)i;
  here = moved(host, gpu(0), MF_COPY_ALWAYS);
  OK(mf_tensor_to(here, &to_second, &there, &err));
  OK(mf_tensor_clone(there, &clone, &err));
  set_to_zero(here);
  OK(mf_tensor_copy(here, clone, &err));
  OK(mf_tensor_to(here, &to_host, &back, &err));
  for (int i = 0; i < 13; i++) assert_int_equal(((unsigned char *)data_of(back))[i], i);
  OK(mf_tensor_equal(here, there, &same, &err));
  assert_int_equal(same, 1);
  mf_tensor *all[] = {host, here, there, back, clone};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
  second_is_empty();
}

/* No kernel reaches both. */
static void numbers_are_converted_and_compared_across(void **state) {
  (void)state;
  needs_both_simulators();
  const DLDevice places[] = {gpu(0), pinned(), second, second_pinned};
  for (size_t i = 0; i < COUNT(places); i++)
    for (size_t k = 0; k < COUNT(places); k++) {
      mf_tensor *bytes = counted(places[i]), *same = counted(places[k]), *wide;
      DLTensor like = *mf_tensor_dltensor(same);
      int32_t equal = 7;
      like.dtype = (DLDataType){kDLFloat, 32, 1};
      OK(mf_tensor_equal(bytes, same, &equal, &err));
      assert_int_equal(equal, 1);
      OK(mf_tensor_create(&like, 0, &wide, &err));
      OK(mf_tensor_astype(wide, bytes, &err));
      set_to_zero(same);
      OK(mf_tensor_astype(same, wide, &err));
      expect_counted(same);
      mf_tensor *all[] = {bytes, same, wide};
      for (size_t j = 0; j < COUNT(all); j++) mf_tensor_release(all[j]);
    }
  second_is_empty();
}

/* Whether something failed. */
static bool copy_that_fails(mf_tensor *to, mf_tensor *from, int64_t number, bool in_the_driver) {
  char rule[48];
  (void)snprintf(rule, sizeof rule, "*@%lld:999:once", (long long)number + 1);
  set_to_zero(to);
  sim_ask_reset();
  if (in_the_driver) sim_ask_fail(rule);
  else mf_fault_arm(number, 1);
  const int rc = mf_tensor_copy(to, from, &err);
  const bool struck = in_the_driver ? sim_ask_faults() > 0 : mf_fault_hits() > 0;
  mf_fault_arm(-1, 0);
  assert_int_equal(sim_ask_findings(), 0);
  sim_ask_reset();
  if (rc == MF_OK) expect_counted(to);
  else assert_int_equal(rc, in_the_driver ? MF_EDRIVER : MF_ENOMEM);
  assert_true(rc == MF_OK || struck);
  return struck;
}

/* On the first driver's side and on the host; what failed is told, and the same copy then works. */
static void a_failure_on_the_way_is_told(void **state) {
  (void)state;
  needs_both_simulators();
  mf_tensor *here = counted(gpu(0)), *there = counted(second);
  for (int way = 0; way < 4; way++) {
    mf_tensor *to = way % 2 == 0 ? there : here, *from = way % 2 == 0 ? here : there;
    int64_t number = 0;
    while (copy_that_fails(to, from, number, way < 2)) {
      assert_true(++number < 300);
      OK(mf_tensor_copy(to, from, &err));
      expect_counted(to);
    }
    assert_true(number > 0);
  }
  mf_tensor_release(here);
  mf_tensor_release(there);
  second_is_empty();
}

/* Work of the second driver on its pinned memory, far behind other work there, and how our copies fit in with it. */
typedef struct beside {
  mf_tensor *here, *there, *there_pinned;
} beside;

static beside beside_open(void) {
  const beside b = {counted(gpu(0)), counted(second), counted(second_pinned)};
  return b;
}

static void beside_close(beside *b) {
  mf_tensor *all[] = {b->here, b->there, b->there_pinned};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
  second_is_empty();
}

static void queue_there(mf_tensor *dst, const mf_tensor *src) {
  mf_tensor *busy = counted(second);
  for (int i = 0; i < 300; i++) set_to_zero(busy);
  OK(mf_tensor_copy(dst, src, &err));
  mf_tensor_release(busy);
}

static void what_the_other_driver_writes_is_read_behind_it(void **state) {
  (void)state;
  needs_both_simulators();
  beside b = beside_open();
  set_to_zero(b.there_pinned);
  set_to_zero(b.here);
  OK(mf_device_synchronize(&second, &err));
  queue_there(b.there_pinned, b.there);
  OK(mf_tensor_copy(b.here, b.there_pinned, &err));
  expect_counted(b.here);
  beside_close(&b);
}

static void what_the_other_driver_reads_is_written_behind_it(void **state) {
  (void)state;
  needs_both_simulators();
  beside b = beside_open();
  set_to_zero(b.there);
  set_to_zero(b.here);
  OK(mf_device_synchronize(&second, &err));
  queue_there(b.there, b.there_pinned);
  OK(mf_tensor_copy(b.there_pinned, b.here, &err));
  expect_counted(b.there);
  beside_close(&b);
}

static uint64_t second_waits(void) {
  uint64_t (*calls)(const char *);
  const bool cuda = second.device_type == kDLCUDA;
  *(void **)&calls = dlsym(second_library, "sim_calls");
  return calls(cuda ? "cuStreamSynchronize" : "hipStreamSynchronize") +
         calls(cuda ? "cuEventSynchronize" : "hipEventSynchronize");
}

static void two_who_read_do_not_wait(void **state) {
  (void)state;
  needs_both_simulators();
  beside b = beside_open();
  queue_there(b.there, b.there_pinned);
  const uint64_t before = second_waits();
  OK(mf_tensor_copy(b.here, b.there_pinned, &err));
  assert_int_equal(second_waits(), before);
  expect_counted(b.here);
  beside_close(&b);
}

static void a_wait_for_the_other_driver_that_fails_is_told(void **state) {
  int (*fail_calls)(const char *);
  uint64_t (*faults)(void);
  void (*reset)(void);
  (void)state;
  needs_both_simulators();
  *(void **)&fail_calls = dlsym(second_library, "sim_fail");
  *(void **)&faults = dlsym(second_library, "sim_faults");
  *(void **)&reset = dlsym(second_library, "sim_reset");
  for (int number = 1, struck = 1; struck; number++) {
    char rule[32];
    beside b = beside_open();
    set_to_zero(b.there_pinned);
    queue_there(b.there_pinned, b.there);
    (void)snprintf(rule, sizeof rule, "*@%d:999:once", number);
    assert_int_equal(fail_calls(rule), 0);
    const int rc = mf_tensor_copy(b.here, b.there_pinned, &err);
    struck = faults() > 0;
    reset();
    assert_true(rc == MF_OK || (rc == MF_EDRIVER && struck));
    assert_true(number > 1 || struck);
    if (rc == MF_OK) expect_counted(b.here);
    OK(mf_tensor_copy(b.here, b.there_pinned, &err));
    expect_counted(b.here);
    beside_close(&b);
  }
}

static void no_stream_waits_for_the_other_drivers(void **state) {
  const DLDevice first = gpu(0);
  mf_stream there, again;
  (void)state;
  needs_both_simulators();
  mf_tensor *t = counted(first);
  const mf_stream here = stream_new(0);
  stream_end(0, here);
  OK(mf_stream_create(&second, &there, &err));
  OK(mf_stream_query(&second, there, &(int32_t){0}, &err));
  REFUSED(mf_stream_wait(&first, MF_STREAM_DEFAULT, &second, there, &err), MF_EINVAL, "cannot wait for one of");
  REFUSED(mf_stream_wait(&second, there, &first, MF_STREAM_DEFAULT, &err), MF_EINVAL, "cannot wait for one of");
  OK(mf_stream_destroy(&second, there, &err));
  OK(mf_stream_create(&first, &again, &err));
  assert_int_equal(again, here); /* each driver has its own */
  stream_end(0, again);
  mf_tensor_release(t);
  second_is_empty();
}

/* Of two drivers that fail the first is told, and the second is trimmed all the same. */
static void a_trim_of_both_tells_of_the_first(void **state) {
  static const char *const rules[] = {"cuMemFreeAsync:999:once", "hipFreeAsync:400:once"};
  const bool rocm = other_device_type() == kDLROCM;
  int (*fail_second)(const char *);
  (void)state;
  needs_both_simulators();
  *(void **)&fail_second = dlsym(second_library, "sim_fail");
  mf_tensor_release(create(gpu(0), NBYTES));
  mf_tensor_release(create(second, NBYTES));
  sim_ask_fail(rules[rocm]);
  (void)fail_second(rules[!rocm]);
  REFUSED(mf_pools_trim(0, &err), MF_EDRIVER, "cuMemFreeAsync");
  assert_int_equal(err.driver_code, 999);
  assert_int_equal(stats(gpu(0)).cached_bytes + stats(second).cached_bytes, 0);
  OK(mf_pools_trim(0, &err));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(each_memory_goes_to_the_other_driver),
      SPEC(strided_elements_go_over_in_order),
      SPEC(padded_elements_go_over),
      SPEC(numbers_are_converted_and_compared_across),
      SPEC(a_failure_on_the_way_is_told),
      SPEC(what_the_other_driver_writes_is_read_behind_it),
      SPEC(what_the_other_driver_reads_is_written_behind_it),
      SPEC(two_who_read_do_not_wait),
      SPEC(a_wait_for_the_other_driver_that_fails_is_told),
      SPEC(no_stream_waits_for_the_other_drivers),
      SPEC(a_trim_of_both_tells_of_the_first),
  };
  if (!other_open()) return 77;
  if (other_is_simulated() && !second_open()) return 1;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
