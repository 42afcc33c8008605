/* function_spec.c: what a function is called, what it may prefer, how many blocks of it run at once, and launches in
 * which all must. */
#include "kernel.h"

/* 40 KiB of static shared memory; blocks of 256 at most. */
#define LARGE                                                                            \
  HEAD ".visible .entry large() .maxntid 256, 1, 1\n{ .shared .align 4 .b8 s[40960];\n" \
       ".reg .b32 %r; mov.u32 %r, 1; st.shared.u32 [s], %r; ret; }"
#define PLAIN HEAD ".visible .entry plain() { ret; }"

static void a_function_knows_its_name(void **state) {
  (void)state;
  kernel k = load(PLAIN, "plain");
  CUlibrary l;
  CUkernel of_library;
  const char *name = NULL;
  OK(cuLibraryLoadData(&l, LARGE, NULL, NULL, 0, NULL, NULL, 0));
  OK(cuLibraryGetKernel(&of_library, l, "large"));
  OK(cuFuncGetName(&name, k.function));
  assert_string_equal(name, "plain");
  OK(cuKernelGetName(&name, of_library));
  assert_string_equal(name, "large");
  FAILS(cuFuncGetName(NULL, k.function), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuFuncGetName(&name, NULL), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuKernelGetName(&name, NULL), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuKernelGetName(NULL, of_library), CUDA_ERROR_INVALID_VALUE);
  OK(cuLibraryUnload(l));
  OK(cuModuleUnload(k.module));
  assert_int_equal(sim_findings(SIM_ANY), 0);
  FAILS(cuFuncGetName(&name, k.function), CUDA_ERROR_INVALID_HANDLE);
  found(SIM_MISUSE, 1);
}

static void a_cache_is_a_preference(void **state) {
  (void)state;
  kernel k = load(PLAIN, "plain");
  const CUkernel same = (CUkernel)(void *)k.function;
  for (int prefers = CU_FUNC_CACHE_PREFER_NONE; prefers <= CU_FUNC_CACHE_PREFER_EQUAL; prefers++) {
    OK(cuFuncSetCacheConfig(k.function, (CUfunc_cache)prefers));
    OK(cuKernelSetCacheConfig(same, (CUfunc_cache)prefers, 1));
  }
  FAILS(cuFuncSetCacheConfig(k.function, (CUfunc_cache)4), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuFuncSetCacheConfig(k.function, (CUfunc_cache)-1), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuKernelSetCacheConfig(same, (CUfunc_cache)4, 0), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuKernelSetCacheConfig(same, CU_FUNC_CACHE_PREFER_L1, 2), CUDA_ERROR_INVALID_DEVICE);
  assert_int_equal(sim_findings(SIM_ANY), 0);
  OK(cuCtxPopCurrent_v2(NULL));
  FAILS(cuFuncSetCacheConfig(k.function, CU_FUNC_CACHE_PREFER_L1), CUDA_ERROR_INVALID_CONTEXT);
  OK(cuCtxPushCurrent_v2(contexts[0]));
  found(SIM_MISUSE, 1);
  OK(cuModuleUnload(k.module));
}

static void a_kernel_of_a_library_is_set_for_a_device(void **state) {
  (void)state;
  enum { THREADS = 0, DYNAMIC = 8, CARVEOUT = 9 };
  CUlibrary l;
  CUkernel k;
  OK(cuLibraryLoadData(&l, PLAIN, NULL, NULL, 0, NULL, NULL, 0));
  OK(cuLibraryGetKernel(&k, l, "plain"));
  OK(cuKernelSetAttribute(DYNAMIC, 1024, k, 0));
  OK(cuKernelSetAttribute(CARVEOUT, -1, k, 1));
  FAILS(cuKernelSetAttribute(DYNAMIC, 1 << 20, k, 0), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuKernelSetAttribute(THREADS, 1, k, 0), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuKernelSetAttribute(DYNAMIC, 1024, k, 2), CUDA_ERROR_INVALID_DEVICE);
  OK(cuLibraryUnload(l));
}

static int at_once(CUfunction f, int threads, size_t dynamic) {
  int blocks = -1;
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, threads, dynamic));
  return blocks;
}

static void threads_blocks_and_shared_memory_limit_what_runs_at_once(void **state) {
  (void)state;
  kernel plain = load(PLAIN, "plain"), large = load(LARGE, "large");
  int blocks = -1;
  assert_int_equal(at_once(plain.function, 1024, 0), 2);
  assert_int_equal(at_once(plain.function, 768, 0), 2);
  assert_int_equal(at_once(plain.function, 65, 0), 21); /* as many threads as three warps */
  assert_int_equal(at_once(plain.function, 1, 0), 32);
  assert_int_equal(at_once(plain.function, 1, 49152), 2);
  assert_int_equal(at_once(plain.function, 1, 49153), 0);
  assert_int_equal(at_once(plain.function, 1025, 0), 0);
  assert_int_equal(at_once(large.function, 256, 0), 2);
  assert_int_equal(at_once(large.function, 257, 0), 0);
  assert_int_equal(at_once(large.function, 1, 8192), 2);
  assert_int_equal(at_once(large.function, 1, 8193), 0);
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, plain.function, 1024, 0, 1));
  assert_int_equal(blocks, 2);
  FAILS(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, plain.function, 1024, 0, 2),
        CUDA_ERROR_INVALID_VALUE);
  FAILS(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, plain.function, 0, 0), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuOccupancyMaxActiveBlocksPerMultiprocessor(NULL, plain.function, 1, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuModuleUnload(plain.module));
  OK(cuModuleUnload(large.module));
}

/* More for a block than its threads are worth, so that small blocks are better; and it asks the driver. */
static size_t too_much(int threads) {
  CUcontext now = NULL;
  OK(cuCtxGetCurrent(&now));
  assert_ptr_equal(now, contexts[0]);
  return threads > 128 ? 49152 : 0;
}

static size_t impossible(int threads) {
  (void)threads;
  return 1 << 20;
}

static void the_best_block_is_the_largest_of_those_that_fill_the_device(void **state) {
  (void)state;
  kernel plain = load(PLAIN, "plain"), large = load(LARGE, "large");
  int grid = 0, block = 0;
  OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, plain.function, NULL, 0, 0));
  assert_true(grid == 16 && block == 1024);
  OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, plain.function, NULL, 0, 1000));
  assert_true(grid == 32 && block == 512); /* of 992, two; of 672, three; of 512, four: 2048 threads */
  OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, large.function, NULL, 0, 0));
  assert_true(grid == 16 && block == 256);
  OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, plain.function, too_much, 1 << 20, 992));
  assert_true(grid == 128 && block == 128);
  OK(cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, plain.function, NULL, 0, 0, 1));
  assert_true(grid == 16 && block == 1024);
  FAILS(cuOccupancyMaxPotentialBlockSize(&grid, &block, plain.function, impossible, 0, 0), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuOccupancyMaxPotentialBlockSize(&grid, NULL, plain.function, NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuOccupancyMaxPotentialBlockSize(&grid, &block, plain.function, NULL, 0, -1), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, plain.function, NULL, 0, 0, 2),
        CUDA_ERROR_INVALID_VALUE);
  OK(cuModuleUnload(plain.module));
  OK(cuModuleUnload(large.module));
}

static void a_cooperative_launch_is_no_larger_than_what_runs_at_once(void **state) {
  (void)state;
  int can = 0;
  uint32_t got[32];
  kernel k = load(entry("mov.u32 %r0, %ctaid.x;\nmad.wide.u32 %d1, %r0, 4, %d0;\nst.global.u32 [%d1], %r0;"), "k");
  CUdeviceptr p = device_memory();
  uint64_t n = 0;
  void *params[] = {&p, &n};
  CUlaunchAttribute all = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = {.cooperative = 1}};
  CUlaunchConfig c = {17, 1, 1, 1024, 1, 1, 0, NULL, &all, 1};
  OK(cuDeviceGetAttribute(&can, 95, 0));
  assert_int_equal(can, 1);
  OK(cuLaunchCooperativeKernel(k.function, 16, 1, 1, 1024, 1, 1, 0, NULL, params));
  OK(cuMemcpyDtoH_v2(got, p, sizeof got));
  assert_int_equal(got[15], 15);
  found(SIM_RACE, 1); /* all threads of a block store its number */
  const CUresult large = CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  FAILS(cuLaunchCooperativeKernel(k.function, 17, 1, 1, 1024, 1, 1, 0, NULL, params), large);
  FAILS(cuLaunchCooperativeKernel(k.function, 65535, 65535, 65535, 1, 1, 1, 0, NULL, params), large);
  FAILS(cuLaunchCooperativeKernel(k.function, 17, 1, 1, 1, 1, 1, 49152, NULL, params), large);
  FAILS(cuLaunchCooperativeKernel(k.function, 1, 1, 1, 1025, 1, 1, 0, NULL, params), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuLaunchCooperativeKernel(k.function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuLaunchKernelEx(&c, k.function, params, NULL), large);
  all.value.cooperative = 0;
  OK(cuLaunchKernelEx(&c, k.function, params, NULL));
  OK(cuCtxSynchronize());
  found(SIM_RACE, 1);
  OK(cuMemFree_v2(p));
  OK(cuModuleUnload(k.module));
}

static CUresult attempt(const char *name, kernel k) {
  int n = 0;
  const char *text;
  const CUkernel same = (CUkernel)(void *)k.function;
  if (strcmp(name, "cuFuncGetName") == 0) return cuFuncGetName(&text, k.function);
  if (strcmp(name, "cuKernelGetName") == 0) return cuKernelGetName(&text, same);
  if (strcmp(name, "cuFuncSetCacheConfig") == 0) return cuFuncSetCacheConfig(k.function, 0);
  if (strcmp(name, "cuKernelSetCacheConfig") == 0) return cuKernelSetCacheConfig(same, 0, 0);
  if (strcmp(name, "cuOccupancyMaxPotentialBlockSize") == 0)
    return cuOccupancyMaxPotentialBlockSize(&n, &n, k.function, NULL, 0, 0);
  if (strcmp(name, "cuLaunchCooperativeKernel") == 0)
    return cuLaunchCooperativeKernel(k.function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL);
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(&n, k.function, 1, 0);
}

static void every_call_fails_on_demand(void **state) {
  (void)state;
  static const char *const names[] = {"cuFuncGetName",          "cuKernelGetName",
                                      "cuFuncSetCacheConfig",   "cuKernelSetCacheConfig",
                                      "cuLaunchCooperativeKernel", "cuOccupancyMaxPotentialBlockSize",
                                      "cuOccupancyMaxActiveBlocksPerMultiprocessor"};
  kernel k = load(PLAIN, "plain");
  char rule[80];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    OK(attempt(names[i], k));
    sim_reset();
    snprintf(rule, sizeof rule, "%s:2", names[i]);
    assert_int_equal(sim_fail(rule), 0);
    FAILS(attempt(names[i], k), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(sim_faults(), 1);
    sim_reset();
  }
  OK(cuCtxSynchronize());
  OK(cuModuleUnload(k.module));
}

RUN(SPEC(a_function_knows_its_name), SPEC(a_cache_is_a_preference), SPEC(a_kernel_of_a_library_is_set_for_a_device),
    SPEC(threads_blocks_and_shared_memory_limit_what_runs_at_once),
    SPEC(the_best_block_is_the_largest_of_those_that_fill_the_device),
    SPEC(a_cooperative_launch_is_no_larger_than_what_runs_at_once), SPEC(every_call_fails_on_demand))
