/* fault_spec.c: calls that fail on demand, names that are missing, drivers that are old. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spec.h"

static void a_named_call_fails_once(void **state) {
  (void)state;
  CUdeviceptr p = 0;
  assert_int_equal(sim_fail("cuMemAlloc:2"), 0);
  FAILS(cuMemAlloc_v2(&p, NBYTES), CUDA_ERROR_OUT_OF_MEMORY);
  assert_true(p == 0);
  assert_int_equal(sim_faults(), 1);
  OK(cuMemAlloc_v2(&p, NBYTES));
  OK(cuMemFree_v2(p));
}

static void the_third_call_fails_or_all_from_then_on(void **state) {
  (void)state;
  assert_int_equal(sim_fail("cuCtxSynchronize@3:4:on"), 0);
  OK(cuCtxSynchronize());
  OK(cuCtxSynchronize());
  FAILS(cuCtxSynchronize(), CUDA_ERROR_DEINITIALIZED);
  FAILS(cuCtxSynchronize(), CUDA_ERROR_DEINITIALIZED);
  OK(cuStreamSynchronize(NULL));
  sim_reset();
  OK(cuCtxSynchronize());
}

static void a_sticky_error_stays(void **state) {
  (void)state;
  int version = 0;
  CUdeviceptr p = device_memory();
  assert_int_equal(sim_fail("cuMemsetD8Async:719:sticky"), 0);
  FAILS(cuMemsetD8Async(p, 1, NBYTES, NULL), CUDA_ERROR_LAUNCH_FAILED);
  FAILS(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
  OK(cuDriverGetVersion(&version));
  FAILS(cuMemFree_v2(p), CUDA_ERROR_LAUNCH_FAILED);
  assert_int_equal(sim_left("memory"), 0);
  sim_reset();
}

/* What is asked of the other device, its streams, events and memory; then of the lost one from there. */
static void a_lost_device_leaves_the_other_alone(void **state) {
  (void)state;
  unsigned char got[NBYTES];
  CUdeviceptr p = device_memory(), q = 0;
  CUstream s = stream();
  CUcontext again = NULL;
  CUevent e = event();
  assert_int_equal(sim_fail("cuMemsetD8Async:700:late"), 0);
  OK(cuMemsetD8Async(p, 1, NBYTES, s));
  FAILS(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
  FAILS(cuMemAlloc_v2(&q, NBYTES), CUDA_ERROR_ILLEGAL_ADDRESS);
  OK(cuCtxPushCurrent_v2(contexts[1]));
  OK(cuMemAlloc_v2(&q, NBYTES));
  CUstream t = stream();
  CUevent f = event();
  OK(cuMemsetD8Async(q, 2, NBYTES, t));
  OK(cuEventRecord(f, t));
  OK(cuEventSynchronize(f));
  OK(cuMemcpyDtoH_v2(got, q, NBYTES));
  assert_true(all_bytes(got, NBYTES, 2));
  FAILS(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
  FAILS(cuMemsetD8Async(p, 3, NBYTES, s), CUDA_ERROR_ILLEGAL_ADDRESS);
  FAILS(cuEventRecord(e, s), CUDA_ERROR_ILLEGAL_ADDRESS);
  FAILS(cuEventSynchronize(e), CUDA_ERROR_ILLEGAL_ADDRESS);
  FAILS(cuDevicePrimaryCtxRetain(&again, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
  OK(cuCtxSynchronize());
  OK(cuEventDestroy_v2(f));
  OK(cuStreamDestroy_v2(t));
  OK(cuMemFree_v2(q));
  OK(cuCtxPopCurrent_v2(NULL));
  FAILS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  sim_reset();
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(p));
}

static void an_error_can_come_late(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  assert_int_equal(sim_fail("cuMemsetD8Async:700:late"), 0);
  OK(cuMemsetD8Async(p, 1, NBYTES, s));
  OK(cuMemsetD8Async(p, 2, NBYTES, s));
  FAILS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
  FAILS(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
  FAILS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  unsigned char got[NBYTES];
  assert_int_equal(sim_peek((void *)p, got, NBYTES), 0);
  assert_true(all_bytes(got, NBYTES, 0xCB));
  sim_reset();
  OK(cuMemFree_v2(p));
  OK(cuStreamDestroy_v2(s));
}

/* A failing free still frees: else a program that can do no more would look as if it leaked. */
static void a_call_that_gives_back_does_so_though_it_fails(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  assert_int_equal(sim_fail("cuMemFree:1,cuStreamDestroy:1,cuCtxPopCurrent:4"), 0);
  FAILS(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuStreamDestroy_v2(s), CUDA_ERROR_INVALID_VALUE);
  OK(cuCtxPushCurrent_v2(contexts[1]));
  FAILS(cuCtxPopCurrent_v2(NULL), CUDA_ERROR_DEINITIALIZED);
  CUcontext current = NULL;
  OK(cuCtxGetCurrent(&current));
  assert_ptr_equal(current, contexts[0]);
  sim_reset();
}

static void a_rule_that_is_none_is_refused(void **state) {
  (void)state;
  static const char *const wrong[] = {"cuInit", "cuInit:x",       "cuInit:0",    ":1",
                                      "*@1:0",  "cuInit:1:maybe", "#:1",         "*:2, *@1:x"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    CUdeviceptr p = 0;
    assert_int_equal(sim_fail(wrong[i]), -1);
    OK(cuMemAlloc_v2(&p, NBYTES)); /* nothing of it was taken */
    assert_true(p != 0);
    OK(cuMemFree_v2(p));
  }
  assert_int_equal(sim_faults(), 0);
}

enum { MANY = 20000 };
static _Atomic bool over;

static void *adds_rules(void *arg) {
  (void)arg;
  for (int i = 0; !atomic_load(&over); i++) {
    if (i % 60 == 0) sim_reset();
    if (sim_fail("*@1000000:2") != 0) abort();
  }
  return NULL;
}

/* A rule that was read while half of it stood there skipped a call, which answered success. */
static void another_thread_may_add_rules_at_any_time(void **state) {
  (void)state;
  pthread_t thread;
  atomic_store(&over, false);
  assert_int_equal(pthread_create(&thread, NULL, adds_rules, NULL), 0);
  for (int i = 0; i < MANY; i++) {
    CUcontext current = NULL;
    OK(cuCtxPushCurrent_v2(contexts[1]));
    OK(cuCtxGetCurrent(&current));
    assert_ptr_equal(current, contexts[1]);
    OK(cuCtxPopCurrent_v2(NULL));
  }
  atomic_store(&over, true);
  assert_int_equal(pthread_join(thread, NULL), 0);
  sim_reset();
}

/* The settings are read once, so each setting needs a process: this program again. */
static int child(const char *what, const char *name, const char *value) {
  int status = 0;
  const pid_t pid = fork();
  if (pid == 0) {
    setenv(name, value, 1);
    setenv("SIM_REPORT", "/dev/null", 1);
    setenv("SIM_EXIT", "77", 1);
    execl("/proc/self/exe", "fault_spec", what, NULL);
    _exit(127);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return WEXITSTATUS(status);
}

static int everything_is_lost(CUresult init) {
  CUdeviceptr p = 0;
  CUcontext c = NULL;
  int n = 0;
  if (init != 0 || cuDevicePrimaryCtxRetain(&c, 0) != 0 || cuCtxPushCurrent_v2(c) != 0) return 2;
  if (sim_fail("cuMemAlloc:700:sticky") != 0 || cuMemAlloc_v2(&p, 16) != 700) return 3;
  const CUresult other = cuDevicePrimaryCtxRetain(&c, 1);
  const bool lost = cuDeviceGetCount(&n) == 700 && other == 700;
  cuCtxPopCurrent_v2(NULL);
  cuDevicePrimaryCtxRelease_v2(0);
  if (other == CUDA_SUCCESS) cuDevicePrimaryCtxRelease_v2(1);
  return !lost;
}

static int no_device(CUresult init) {
  int n = -1;
  return init != CUDA_ERROR_NO_DEVICE || cuDeviceGetCount(&n) == 0;
}

static int three_devices(CUresult init) {
  int n = -1;
  return init != 0 || cuDeviceGetCount(&n) != 0 || n != 3;
}

static int the_second_call_fails(CUresult init) {
  int n = -1;
  return init != 0 || cuDeviceGetCount(&n) != 2 || cuDeviceGetCount(&n) != 0;
}

static int not_initialised(CUresult init) {
  return init != CUDA_ERROR_NOT_INITIALIZED;
}

static int one_is_missing(CUresult init) {
  void *fn = NULL;
  CUdriverProcAddressQueryResult why;
  return init != 0 || cuGetProcAddress_v2("cuMemAlloc", &fn, 13000, 0, &why) != 0 || fn != NULL ||
         why != CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
}

static int an_old_driver(CUresult init) {
  int n = -1;
  void *fn = NULL;
  CUdriverProcAddressQueryResult why;
  if (init != 0 || cuDriverGetVersion(&n) != 0 || n != 11010) return 1;
  return cuGetProcAddress_v2("cuMemAlloc", &fn, 11010, 0, &why) != 0 ||
         cuGetProcAddress_v2("cuMemAlloc", &fn, 11020, 0, &why) != CUDA_ERROR_INVALID_VALUE ||
         cuGetProcAddress_v2("cuMemAllocAsync", &fn, 11010, 0, &why) != 0 || fn != NULL ||
         why != CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
}

static int leak(CUresult init) {
  CUdeviceptr p;
  CUcontext c;
  return init != 0 || cuDevicePrimaryCtxRetain(&c, 0) != 0 || cuCtxPushCurrent_v2(c) != 0 ||
         cuMemAlloc_v2(&p, 16) != 0;
}

static int scenario(const char *what) {
  static const struct {
    const char *name;
    int (*run)(CUresult init);
  } all[] = {{"none", no_device}, {"three", three_devices}, {"number", the_second_call_fails},
             {"uninitialised", not_initialised}, {"lost", everything_is_lost}, {"missing", one_is_missing},
             {"old", an_old_driver}, {"leak", leak}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (strcmp(all[i].name, what) == 0) return all[i].run(cuInit(0));
  return 2;
}

static void settings_choose_the_driver(void **state) {
  (void)state;
  assert_int_equal(child("none", "SIM_DEVICES", "0"), 0);
  assert_int_equal(child("three", "SIM_DEVICES", "3"), 0);
  assert_int_equal(child("number", "SIM_FAIL", "#2:2"), 0);
  assert_int_equal(child("uninitialised", "SIM_FAIL", "cuInit:3"), 0);
  assert_int_equal(child("missing", "SIM_MISSING", "cuMemFree,cuMemAlloc"), 0);
  assert_int_equal(child("lost", "SIM_STICKY", "process"), 0);
  assert_int_equal(child("lost", "SIM_STICKY", "device"), 1);
  assert_int_equal(child("old", "SIM_DRIVER_VERSION", "11010"), 0);
}

static void a_leak_decides_the_exit_status(void **state) {
  (void)state;
  assert_int_equal(child("leak", "SIM_SEED", "1"), 77);
  assert_int_equal(child("leak", "SIM_LEDGER", "off"), 0);
}

/* Misspelt, not simulated, an exported name instead of the base name, another library's. */
static void names_that_are_not_there_are_not_found(void **state) {
  (void)state;
  static const char *const names[] = {"cuMemAllocAsnyc", "cuGreenCtxCreate", "cuMemAlloc_v2", "cudaMalloc", ""};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    void *p = &p;
    CUdriverProcAddressQueryResult why = CU_GET_PROC_ADDRESS_SUCCESS;
    OK(cuGetProcAddress_v2(names[i], &p, 13000, 0, &why));
    assert_null(p);
    assert_int_equal(why, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    p = &p;
    OK(cuGetProcAddress_v2(names[i], &p, 13000, 0, NULL));
    assert_null(p);
    FAILS(cuGetProcAddress(names[i], &p, 11030, 0), CUDA_ERROR_NOT_FOUND);
  }
}

/* What NVIDIA documents nowhere. Libraries that ask for it give up. */
static void there_are_no_tables_of_hidden_functions(void **state) {
  (void)state;
  const CUuuid any = {{1}};
  const void *table = &any;
  FAILS(cuGetExportTable(&table, &any), CUDA_ERROR_NOT_SUPPORTED);
  assert_null(table);
  FAILS(cuGetExportTable(NULL, &any), CUDA_ERROR_INVALID_VALUE);
}

static void what_is_asked_for_must_make_sense(void **state) {
  (void)state;
  void *p = &p;
  for (uint64_t flags = 0; flags < 3; flags++) OK(cuGetProcAddress_v2("cuMemAlloc", &p, 13000, flags, NULL));
  for (uint64_t flags = 3; flags < 9; flags++)
    FAILS(cuGetProcAddress_v2("cuMemAlloc", &p, 13000, flags, NULL), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuGetProcAddress_v2("cuMemAlloc", &p, 13010, 0, NULL), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuGetProcAddress_v2(NULL, &p, 13000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuGetProcAddress_v2("cuMemAlloc", NULL, 13000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
}

static void names_are_found_in_the_version_that_was_asked_for(void **state) {
  (void)state;
  void *p = NULL;
  OK(cuGetProcAddress_v2("cuGetProcAddress", &p, 11030, 0, NULL));
  assert_ptr_equal(p, (void *)(uintptr_t)cuGetProcAddress);
  OK(cuGetProcAddress_v2("cuGetProcAddress", &p, 12000, 0, NULL));
  assert_ptr_equal(p, (void *)(uintptr_t)cuGetProcAddress_v2);
  OK(cuGetProcAddress_v2("cuMemcpyAsync", &p, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
  assert_ptr_equal(p, (void *)(uintptr_t)cuMemcpyAsync_ptsz);
}

static void calls_are_counted(void **state) {
  (void)state;
  sim_reset();
  assert_int_equal(sim_calls(NULL), 0);
  CUdeviceptr p = device_memory();
  OK(cuMemFree_v2(p));
  assert_int_equal(sim_calls("cuMemAlloc"), 1);
  assert_int_equal(sim_calls("cuMemFree"), 1);
  assert_int_equal(sim_calls(NULL), 2);
}

int main(int argc, char **argv) {
  const struct CMUnitTest specs[] = {
      SPEC(a_named_call_fails_once), SPEC(the_third_call_fails_or_all_from_then_on), SPEC(a_sticky_error_stays),
      SPEC(a_lost_device_leaves_the_other_alone),
      SPEC(an_error_can_come_late), SPEC(a_call_that_gives_back_does_so_though_it_fails),
      SPEC(a_rule_that_is_none_is_refused), SPEC(another_thread_may_add_rules_at_any_time),
      SPEC(settings_choose_the_driver), SPEC(a_leak_decides_the_exit_status),
      SPEC(names_that_are_not_there_are_not_found), SPEC(there_are_no_tables_of_hidden_functions),
      SPEC(what_is_asked_for_must_make_sense),
      SPEC(names_are_found_in_the_version_that_was_asked_for), SPEC(calls_are_counted)};
  if (argc > 1) return scenario(argv[1]);
  return cmocka_run_group_tests(specs, NULL, NULL);
}
