/* pool_spec.c: what a pool keeps of its device's memory, and when it gives it back. */
#include "spec.h"

enum { MEMORY = 1 << 20, HALF = MEMORY / 2, THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH = 6, USED = 7, USED_HIGH = 8 };

static CUmemoryPool pool;

static uint64_t amount(int which) {
  uint64_t value = 0;
  OK(cuMemPoolGetAttribute(pool, which, &value));
  return value;
}

static size_t unused(void) {
  size_t n = 0, total = 0;
  OK(cuMemGetInfo_v2(&n, &total));
  return n;
}

static int begin_with_pool(void **state) {
  const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  begin(state);
  OK(cuMemPoolCreate(&pool, &props));
  return 0;
}

static int end_with_pool(void **state) {
  OK(cuCtxSynchronize());
  OK(cuMemPoolDestroy(pool));
  assert_int_equal(unused(), MEMORY);
  return end(state);
}

static void keep_all(void) {
  uint64_t all = UINT64_MAX;
  OK(cuMemPoolSetAttribute(pool, THRESHOLD, &all));
}

static CUdeviceptr take(size_t n, CUstream s) {
  CUdeviceptr p = 0;
  OK(cuMemAllocFromPoolAsync(&p, n, pool, s));
  return p;
}

static void memory_is_used_until_its_stream_gets_there(void **state) {
  (void)state;
  CUstream s = stream();
  keep_all();
  CUdeviceptr p = take(NBYTES, s);
  OK(cuMemFreeAsync(p, s));
  assert_int_equal(amount(USED), NBYTES);
  OK(cuStreamSynchronize(s));
  assert_int_equal(amount(USED), 0);
  assert_int_equal(amount(USED_HIGH), NBYTES);
  OK(cuStreamDestroy_v2(s));
}

static void what_is_freed_stays_reserved_until_it_is_trimmed(void **state) {
  (void)state;
  CUstream s = stream();
  CUdeviceptr q = 0;
  keep_all();
  OK(cuMemFreeAsync(take(HALF, s), s));
  OK(cuStreamSynchronize(s));
  assert_int_equal(amount(RESERVED), HALF);
  assert_int_equal(unused(), HALF);
  FAILS(cuMemAlloc_v2(&q, HALF + NBYTES), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemPoolTrimTo(pool, 0));
  assert_int_equal(amount(RESERVED), 0);
  assert_int_equal(amount(RESERVED_HIGH), HALF);
  OK(cuMemAlloc_v2(&q, HALF + NBYTES));
  OK(cuMemFree_v2(q));
  OK(cuStreamDestroy_v2(s));
}

/* "Allocations that have been asynchronously freed but whose completion has not been observed on the host ... can count
 * as outstanding." */
static void trimming_takes_only_what_the_host_has_seen_freed(void **state) {
  (void)state;
  CUstream s = stream();
  CUevent e = event();
  keep_all();
  OK(cuMemFreeAsync(take(HALF, s), s));
  OK(cuEventRecord(e, s));
  OK(cuMemPoolTrimTo(pool, 0));
  assert_int_equal(amount(RESERVED), HALF);
  OK(cuEventSynchronize(e));
  OK(cuMemPoolTrimTo(pool, 0));
  assert_int_equal(amount(RESERVED), 0);
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(s));
}

static void trimming_leaves_what_it_is_told_to(void **state) {
  (void)state;
  CUstream s = stream();
  CUdeviceptr p[4];
  keep_all();
  for (int i = 0; i < 4; i++) p[i] = take(NBYTES, s);
  for (int i = 0; i < 4; i++) OK(cuMemFreeAsync(p[i], s));
  OK(cuStreamSynchronize(s));
  OK(cuMemPoolTrimTo(pool, 2 * NBYTES + 1));
  assert_int_equal(amount(RESERVED), 3 * NBYTES);
  OK(cuMemPoolTrimTo(pool, 3 * NBYTES));
  assert_int_equal(amount(RESERVED), 3 * NBYTES);
  OK(cuStreamDestroy_v2(s));
}

static void above_its_threshold_a_pool_gives_back_when_the_host_waits(void **state) {
  (void)state;
  CUstream s = stream();
  CUdeviceptr p[4];
  uint64_t threshold = 2 * NBYTES;
  OK(cuMemPoolSetAttribute(pool, THRESHOLD, &threshold));
  for (int i = 0; i < 4; i++) p[i] = take(NBYTES, s);
  for (int i = 0; i < 4; i++) OK(cuMemFreeAsync(p[i], s));
  assert_int_equal(amount(RESERVED), 4 * NBYTES);
  OK(cuStreamSynchronize(s));
  assert_int_equal(amount(RESERVED), 2 * NBYTES);
  OK(cuStreamDestroy_v2(s));
}

static void a_pool_takes_its_own_before_it_asks_for_more(void **state) {
  (void)state;
  CUstream s = stream();
  keep_all();
  OK(cuMemFreeAsync(take(HALF, s), s));
  OK(cuMemFreeAsync(take(HALF, s), s));
  assert_int_equal(amount(RESERVED), HALF);
  OK(cuStreamSynchronize(s));
  OK(cuMemFreeAsync(take(HALF + NBYTES, s), s)); /* of other blocks than it has: it gives those up */
  OK(cuStreamSynchronize(s));
  assert_int_equal(amount(RESERVED), HALF + NBYTES);
  OK(cuStreamDestroy_v2(s));
}

/* Another stream may not have what a stream has yet to free. */
static void a_pool_runs_out_while_a_free_is_pending(void **state) {
  (void)state;
  CUstream a = stream(), b = stream();
  CUdeviceptr p = take(HALF + NBYTES, a), q = 0;
  keep_all();
  OK(cuMemFreeAsync(p, a));
  FAILS(cuMemAllocFromPoolAsync(&q, HALF, pool, b), CUDA_ERROR_OUT_OF_MEMORY);
  follow(b, a);
  q = take(HALF + NBYTES, b);
  OK(cuMemFreeAsync(q, b));
  OK(cuStreamSynchronize(b));
  OK(cuMemAllocFromPoolAsync(&q, HALF, pool, a));
  OK(cuMemFreeAsync(q, a));
  OK(cuStreamSynchronize(a));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

static void a_pool_that_ends_keeps_its_memory_until_the_last_of_it_is_free(void **state) {
  (void)state;
  const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemoryPool other = NULL;
  CUdeviceptr p = 0, q = 0;
  CUstream s = stream();
  uint64_t all = UINT64_MAX;
  OK(cuMemPoolCreate(&other, &props));
  OK(cuMemPoolSetAttribute(other, THRESHOLD, &all));
  OK(cuMemAllocFromPoolAsync(&p, HALF, other, s));
  OK(cuMemAllocFromPoolAsync(&q, NBYTES, other, s));
  OK(cuMemFreeAsync(q, s));
  OK(cuStreamSynchronize(s));
  OK(cuMemPoolDestroy(other));
  assert_int_equal(unused(), HALF);
  OK(cuMemFreeAsync(p, s));
  assert_int_equal(unused(), HALF);
  OK(cuStreamSynchronize(s));
  assert_int_equal(unused(), MEMORY);
  OK(cuStreamDestroy_v2(s));
}

static void memory_of_a_pool_may_be_freed_by_the_host(void **state) {
  (void)state;
  CUstream s = stream();
  keep_all();
  CUdeviceptr p = take(HALF, s);
  OK(cuStreamSynchronize(s));
  OK(cuMemFree_v2(p));
  assert_int_equal(amount(USED), 0);
  assert_int_equal(amount(RESERVED), HALF);
  OK(cuMemPoolTrimTo(pool, 0));
  assert_int_equal(amount(RESERVED), 0);
  OK(cuStreamDestroy_v2(s));
}

static void what_there_is_no_memory_for_is_not_reserved(void **state) {
  (void)state;
  CUdeviceptr p = 0;
  CUstream s = stream();
  FAILS(cuMemAllocFromPoolAsync(&p, 2 * MEMORY, pool, s), CUDA_ERROR_OUT_OF_MEMORY);
  assert_int_equal(amount(RESERVED), 0);
  assert_int_equal(amount(USED), 0);
  OK(cuStreamDestroy_v2(s));
}

/* A real driver would make a node of it. */
static void a_capture_takes_no_allocation(void **state) {
  (void)state;
  CUdeviceptr p = 0;
  CUgraph graph = NULL;
  CUstream s = stream();
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  FAILS(cuMemAllocFromPoolAsync(&p, NBYTES, pool, s), CUDA_ERROR_NOT_SUPPORTED);
  OK(cuStreamEndCapture(s, &graph));
  assert_int_equal(amount(USED), 0);
  OK(cuGraphDestroy(graph));
  OK(cuStreamDestroy_v2(s));
}

#define POOL_SPEC(name) cmocka_unit_test_setup_teardown(name, begin_with_pool, end_with_pool)

/* Settings are read at the first call. Addresses are used again, or, with an argument, not. */
int main(int argc, char **argv) {
  (void)argv;
  const struct CMUnitTest specs[] = {
      POOL_SPEC(memory_is_used_until_its_stream_gets_there),
      POOL_SPEC(what_is_freed_stays_reserved_until_it_is_trimmed),
      POOL_SPEC(trimming_takes_only_what_the_host_has_seen_freed), POOL_SPEC(trimming_leaves_what_it_is_told_to),
      POOL_SPEC(above_its_threshold_a_pool_gives_back_when_the_host_waits),
      POOL_SPEC(a_pool_takes_its_own_before_it_asks_for_more), POOL_SPEC(a_pool_runs_out_while_a_free_is_pending),
      POOL_SPEC(a_pool_that_ends_keeps_its_memory_until_the_last_of_it_is_free),
      POOL_SPEC(memory_of_a_pool_may_be_freed_by_the_host),
      POOL_SPEC(what_there_is_no_memory_for_is_not_reserved), POOL_SPEC(a_capture_takes_no_allocation)};
  setenv("SIM_MEMORY", "1M", 1);
  setenv("SIM_REUSE", argc > 1 ? "0" : "1", 1);
  return cmocka_run_group_tests(specs, NULL, NULL);
}
