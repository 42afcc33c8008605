/* kernel_spec.c: kernels that are loaded, launched, ordered, captured and that go wrong. */
#include "kernel.h"

static const copy_layout layouts[] = {
    {1, {64}, {16}, {16}},
    {1, {64}, {16}, {-16}},
    {2, {8, 8}, {128, 16}, {16, 128}},
    {2, {5, 7}, {16, 96}, {208, 32}},
    {3, {3, 4, 5}, {320, 80, 16}, {16, 48, 192}},
    {3, {3, 4, 5}, {320, 80, 16}, {0, 0, 16}},
    {8, {2, 2, 2, 2, 2, 2, 2, 2}, {16, 32, 64, 128, 256, 512, 1024, 2048}, {2048, 1024, 512, 256, 128, 64, 32, 16}},
};

/* Where the first element is read: behind those that a negative stride reaches. */
static size_t origin(const copy_layout *l) {
  size_t at = 0;
  for (uint32_t i = 0; i < l->rank; i++)
    if (l->from[i] < 0) at += (size_t)-l->from[i] * (l->shape[i] - 1);
  return at;
}

static void expect_copy(const copy_layout *l, unsigned size, unsigned char *to, const unsigned char *from) {
  for (uint64_t e = 0; e < count_of(l); e++) {
    uint64_t rest = e;
    const unsigned char *source = from + origin(l);
    unsigned char *target = to;
    for (uint32_t i = l->rank; i-- > 0; rest /= l->shape[i]) {
      target += l->to[i] * (int64_t)(rest % l->shape[i]);
      source += l->from[i] * (int64_t)(rest % l->shape[i]);
    }
    memcpy(target, source, size);
  }
}

static void copy_and_compare(CUfunction f, const copy_layout *l, unsigned size) {
  unsigned char bytes[NBYTES], got[NBYTES], expected[NBYTES];
  CUdeviceptr from = device_memory(), to = device_memory();
  CUstream s = stream(), t = stream();
  for (size_t i = 0; i < NBYTES; i++) bytes[i] = (unsigned char)(i * 7 + i / 256);
  memset(expected, 0x11, NBYTES);
  OK(cuMemcpyHtoDAsync_v2(from, bytes, NBYTES, s));
  OK(cuMemsetD8Async(to, 0x11, NBYTES, s));
  follow(t, s);
  OK(copy_strided(f, to, from + origin(l), l, t));
  OK(cuMemcpyDtoHAsync_v2(got, to, NBYTES, t));
  OK(cuStreamSynchronize(t));
  expect_copy(l, size, expected, bytes);
  assert_memory_equal(got, expected, NBYTES);
  OK(cuStreamDestroy_v2(s));
  OK(cuStreamDestroy_v2(t));
  OK(cuMemFree_v2(from));
  OK(cuMemFree_v2(to));
}

static void a_strided_copy_moves_what_it_says(void **state) {
  (void)state;
  for (unsigned size = 1; size <= 16; size *= 2) {
    kernel k = load(strided_copy(size), "strided_copy");
    for (unsigned seed = 0; seed <= 20; seed++) {
      sim_seed(seed);
      for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) copy_and_compare(k.function, &layouts[i], size);
    }
    OK(cuModuleUnload(k.module));
    nothing_left();
  }
}

static const copy_layout plain = {1, {16}, {4}, {4}};

static void a_launch_races_with_a_fill(void **state) {
  (void)state;
  kernel k = load(strided_copy(4), "strided_copy");
  CUdeviceptr from = device_memory(), to = device_memory();
  CUstream s = stream(), t = stream();
  for (int round = 0; round < 4; round++) {
    const CUdeviceptr filled = round % 2 == 0 ? from : to;
    if (round < 2) OK(copy_strided(k.function, to, from, &plain, s));
    OK(cuMemsetD8Async(filled, 1, 64, t));
    if (round >= 2) OK(copy_strided(k.function, to, from, &plain, s));
    assert_true(told("cuLaunchKernel") && told("cuMemsetD8Async"));
    found(SIM_RACE, 1);
    OK(cuCtxSynchronize());
  }
  OK(cuStreamDestroy_v2(s));
  OK(cuStreamDestroy_v2(t));
  OK(cuMemFree_v2(from));
  OK(cuMemFree_v2(to));
  OK(cuModuleUnload(k.module));
}

/* Elements of 4 bytes every 16: what lies between them is nobody's, also in two and three dimensions. */
static void a_launch_touches_no_more_than_its_elements(void **state) {
  (void)state;
  static const copy_layout sparse[] = {{1, {16}, {16}, {4}},
                                       {2, {4, 8}, {512, 16}, {32, 4}},
                                       {3, {2, 3, 4}, {1024, 256, 16}, {48, 16, 4}},
                                       {4, {2, 2, 2, 2}, {2048, 512, 176, 16}, {32, 16, 8, 4}}};
  kernel k = load(strided_copy(4), "strided_copy");
  CUdeviceptr from = device_memory(), to = device_memory();
  CUstream s = stream(), t = stream();
  for (size_t i = 0; i < sizeof sparse / sizeof *sparse; i++) {
    OK(copy_strided(k.function, to, from, &sparse[i], s));
    OK(cuMemsetD2D8Async(to + 4, 16, 2, 12, NBYTES / 16 - 1, t));
    assert_int_equal(sim_findings(SIM_ANY), 0);
    OK(cuMemsetD8Async(to + 3, 3, 1, t));
    found(SIM_RACE, 1);
    OK(cuCtxSynchronize());
  }
  OK(cuStreamDestroy_v2(s));
  OK(cuStreamDestroy_v2(t));
  OK(cuMemFree_v2(from));
  OK(cuMemFree_v2(to));
  OK(cuModuleUnload(k.module));
}

static void two_threads_race_with_each_other(void **state) {
  (void)state;
  kernel same = load(entry("st.global.u32 [%d0], 1;"), "k");
  CUdeviceptr p = device_memory();
  OK(start(same, 1, p, 0, NULL));
  assert_int_equal(sim_findings(SIM_ANY), 0);
  OK(start(same, 2, p, 0, NULL));
  assert_true(told("two threads of one launch of k"));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  OK(cuModuleUnload(same.module));
  /* Each thread reads what its neighbour writes. */
  kernel shift = load(entry("mov.u32 %r0, %tid.x;\nmad.wide.u32 %d1, %r0, 4, %d0;\nld.global.u32 %r1, [%d1+4];\n"
                            "st.global.u32 [%d1], %r1;"),
                      "k");
  OK(start(shift, 8, p, 0, NULL));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  OK(cuModuleUnload(shift.module));
  kernel half = load(entry("mov.u32 %r0, %tid.x;\nsetp.eq.u32 %p0, %r0, 0;\n@%p0 st.global.u64 [%d0], %d0;\n"
                           "@!%p0 ld.global.u32 %r1, [%d0+4];"),
                     "k");
  OK(start(half, 2, p, 0, NULL));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  OK(cuModuleUnload(half.module));
  OK(cuMemFree_v2(p));
}

/* The call succeeds; what it queued fails when it runs, and so does every call after that. */
static void expect_failure(CUresult rc, sim_kind kind, const char *text, CUresult status) {
  OK(rc);
  assert_int_equal(sim_findings(kind), 1);
  if (!told(text)) show_findings();
  assert_true(told(text));
  FAILS(cuCtxSynchronize(), status);
  FAILS(cuCtxSynchronize(), status);
  found(kind, 1);
}

static void what_may_not_be_touched_fails_as_on_a_device(void **state) {
  (void)state;
  kernel k = load(entry("mov.u32 %r0, %tid.x;\nmad.wide.u32 %d1, %r0, 4, %d0;\nst.global.u32 [%d1], 7;"), "k");
  CUdeviceptr p = device_memory(), gone = device_memory(), far = 0, small = 0;
  uint32_t mine[4] = {0};
  OK(cuMemFree_v2(gone));
  OK(cuMemAlloc_v2(&small, 6));
  OK(cuCtxPushCurrent_v2(contexts[1]));
  OK(cuMemAlloc_v2(&far, NBYTES));
  OK(cuCtxPopCurrent_v2(NULL));
  expect_failure(start(k, 5, p + NBYTES - 16, 0, NULL), SIM_BOUNDS, "belongs to no allocation",
                 CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_failure(start(k, 1, p + 2, 0, NULL), SIM_BOUNDS, "k, line 12, thread (0, 0, 0) of block (0, 0, 0): writes 4",
                 CUDA_ERROR_MISALIGNED_ADDRESS);
  expect_failure(start(k, 2, small, 0, NULL), SIM_BOUNDS, "and ends behind its allocation", CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_failure(start(k, 1, gone, 0, NULL), SIM_STALE, "which is freed memory", CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_failure(start(k, 1, far, 0, NULL), SIM_BOUNDS, "another device's memory", CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_failure(start(k, 1, (CUdeviceptr)(uintptr_t)mine, 0, NULL), SIM_BOUNDS, "the host's own memory",
                 CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_failure(start(k, 1, 0, 0, NULL), SIM_BOUNDS, "at 0", CUDA_ERROR_ILLEGAL_ADDRESS);
  OK(cuMemFree_v2(p));
  OK(cuMemFree_v2(far));
  OK(cuMemFree_v2(small));
  OK(cuModuleUnload(k.module));
}

static void memory_that_host_or_peer_share_is_reached(void **state) {
  (void)state;
  kernel k = load(entry("st.global.u32 [%d0], 7;"), "k");
  uint32_t own = 0, *pinned = NULL, *managed = NULL, got = 0;
  CUdeviceptr p = 0, far = 0;
  OK(cuMemHostRegister_v2(&own, sizeof own, 0));
  OK(cuMemAllocHost_v2((void **)&pinned, 64));
  OK(cuMemAllocManaged(&p, 64, 1));
  managed = (uint32_t *)(uintptr_t)p;
  OK(cuCtxEnablePeerAccess(contexts[1], 0));
  OK(cuCtxPushCurrent_v2(contexts[1]));
  OK(cuMemAlloc_v2(&far, 64));
  OK(cuCtxPopCurrent_v2(NULL));
  OK(start(k, 1, (CUdeviceptr)(uintptr_t)&own, 0, NULL));
  OK(start(k, 1, (CUdeviceptr)(uintptr_t)pinned, 0, NULL));
  OK(start(k, 1, p, 0, NULL));
  OK(start(k, 1, far, 0, NULL));
  assert_int_equal(own, 0);
  OK(cuCtxSynchronize());
  OK(cuMemcpyDtoH_v2(&got, far, 4));
  assert_true(own == 7 && *pinned == 7 && *managed == 7 && got == 7);
  OK(cuCtxDisablePeerAccess(contexts[1]));
  OK(cuMemHostUnregister(&own));
  OK(cuMemFreeHost(pinned));
  OK(cuMemFree_v2(p));
  OK(cuMemFree_v2(far));
  OK(cuModuleUnload(k.module));
}

/* The program's memory may be gone when the launch runs; then nothing is written there. */
static void memory_unregistered_too_early_is_left_alone(void **state) {
  (void)state;
  kernel k = load(entry("st.global.u32 [%d0], 7;"), "k");
  uint32_t own = 0;
  OK(cuMemHostRegister_v2(&own, sizeof own, 0));
  OK(start(k, 1, (CUdeviceptr)(uintptr_t)&own, 0, NULL));
  OK(cuMemHostUnregister(&own));
  FAILS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  assert_int_equal(own, 0);
  found(SIM_RACE, 1);
  OK(cuModuleUnload(k.module));
}

static void memory_freed_too_early_is_found(void **state) {
  (void)state;
  kernel k = load(entry("st.global.u32 [%d0], 7;"), "k");
  CUdeviceptr p = device_memory();
  CUstream s = stream(), t = stream();
  OK(start(k, 1, p, 0, s));
  OK(cuMemFree_v2(p));
  found(SIM_RACE, 1);
  OK(cuMemAllocAsync(&p, 64, s));
  OK(start(k, 1, p, 0, s));
  OK(cuMemFreeAsync(p, s));
  assert_int_equal(sim_findings(SIM_ANY), 0);
  OK(cuMemAllocAsync(&p, 64, s));
  OK(start(k, 1, p, 0, t));
  OK(cuMemFreeAsync(p, t));
  found(SIM_RACE, 2); /* neither the launch nor the free waits for the allocation */
  OK(cuStreamDestroy_v2(t));
  found(SIM_WARNING, 1); /* the launch in it may not be done */
  OK(cuCtxSynchronize());
  OK(cuStreamDestroy_v2(s));
  OK(cuModuleUnload(k.module));
}

static void a_captured_launch_is_replayed(void **state) {
  (void)state;
  for (unsigned seed = 0; seed <= 20; seed++) {
    sim_seed(seed);
    kernel k = load(entry("ld.global.u32 %r0, [%d0];\nld.param.u32 %r1, [n];\nadd.u32 %r0, %r0, %r1;\n"
                          "st.global.u32 [%d0], %r0;"),
                    "k");
    CUdeviceptr p = device_memory();
    CUstream s = stream();
    CUgraph g;
    CUgraphExec x;
    uint32_t got = 0;
    OK(cuMemsetD32Async(p, 100, 1, s));
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(start(k, 1, p, 5, s));
    OK(cuStreamEndCapture(s, &g));
    OK(cuGraphInstantiateWithFlags(&x, g, 0));
    OK(cuGraphDestroy(g));
    OK(cuGraphLaunch(x, s));
    OK(cuGraphLaunch(x, s));
    OK(cuMemcpyDtoHAsync_v2(&got, p, 4, s));
    OK(cuStreamSynchronize(s));
    assert_int_equal(got, 110);
    OK(cuGraphExecDestroy(x));
    OK(cuModuleUnload(k.module));
    OK(cuStreamDestroy_v2(s));
    OK(cuMemFree_v2(p));
    nothing_left();
  }
}

static void a_replayed_launch_races_too(void **state) {
  (void)state;
  kernel k = load(entry("st.global.u32 [%d0], 7;"), "k");
  CUdeviceptr p = device_memory();
  CUstream s = stream(), t = stream();
  CUgraph g;
  CUgraphExec x;
  CUmodule m;
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(start(k, 1, p, 0, s));
  OK(cuStreamEndCapture(s, &g));
  OK(cuGraphInstantiateWithFlags(&x, g, 0));
  OK(cuGraphDestroy(g));
  OK(cuGraphLaunch(x, s));
  OK(cuMemsetD8Async(p, 0, 4, t));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  FAILS(cuModuleLoadData(&m, entry("")), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  FAILS(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  found(SIM_CAPTURE, 1);
  OK(cuGraphExecDestroy(x));
  OK(cuModuleUnload(k.module));
  OK(cuStreamDestroy_v2(s));
  OK(cuStreamDestroy_v2(t));
  OK(cuMemFree_v2(p));
}

RUN(SPEC(a_strided_copy_moves_what_it_says), SPEC(a_launch_races_with_a_fill),
    SPEC(a_launch_touches_no_more_than_its_elements), SPEC(two_threads_race_with_each_other),
    SPEC(what_may_not_be_touched_fails_as_on_a_device), SPEC(memory_that_host_or_peer_share_is_reached),
    SPEC(memory_unregistered_too_early_is_left_alone), SPEC(memory_freed_too_early_is_found),
    SPEC(a_captured_launch_is_replayed), SPEC(a_replayed_launch_races_too))
