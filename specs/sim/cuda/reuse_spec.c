/* reuse_spec.c: handles that are given to the next object of their kind, as drivers do, and ids that are not. */
#include "spec.h"

static unsigned long long id_of(CUstream s) {
  unsigned long long id = 0;
  OK(cuStreamGetId(s, &id));
  return id;
}

static void a_handle_goes_to_the_next_of_its_kind(void **state) {
  (void)state;
  CUstream a = stream(), b = stream();
  CUevent e = event();
  const unsigned long long first = id_of(a), second = id_of(b);
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
  OK(cuEventDestroy_v2(e));
  CUevent f = event();
  CUstream c = stream(), d = stream();
  assert_ptr_equal(f, e);
  assert_ptr_equal(c, b);
  assert_ptr_equal(d, a);
  const unsigned long long ids[] = {first, second, id_of(c), id_of(d), id_of(CU_STREAM_LEGACY)};
  for (int i = 0; i < 5; i++) {
    assert_true(ids[i] != (uintptr_t)c && ids[i] != (uintptr_t)d);
    for (int k = 0; k < i; k++) assert_true(ids[i] != ids[k]);
  }
  OK(cuEventDestroy_v2(f));
  OK(cuStreamDestroy_v2(c));
  OK(cuStreamDestroy_v2(d));
}

/* A stream is mistaken for the one that had its handle: nothing tells the driver, but the bytes are raced for. */
static void a_stale_handle_is_another_streams(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  CUstream stale = stream();
  OK(cuMemsetD8Async(p, 1, NBYTES, stale));
  OK(cuStreamDestroy_v2(stale));
  assert_int_equal(sim_findings(SIM_WARNING), 1);
  sim_reset();
  CUstream next = stream();
  assert_ptr_equal(next, stale);
  OK(cuStreamSynchronize(stale));
  OK(cuMemFree_v2(p));
  assert_true(told("freed by host"));
  found(SIM_RACE, 1);
  OK(cuStreamDestroy_v2(next));
  assert_int_equal(sim_findings(SIM_ANY), 0);
}

static void a_dead_handle_that_nothing_has_yet_is_found(void **state) {
  (void)state;
  CUstream s = stream();
  CUevent e = event();
  OK(cuStreamDestroy_v2(s));
  OK(cuEventDestroy_v2(e));
  FAILS(cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE);
  FAILS(cuEventSynchronize(e), CUDA_ERROR_INVALID_HANDLE);
  found(SIM_MISUSE, 2);
}

static void graphs_too(void **state) {
  (void)state;
  CUgraph g = NULL, h = NULL;
  CUgraphExec x = NULL, y = NULL;
  OK(cuGraphCreate(&g, 0));
  OK(cuGraphInstantiateWithFlags(&x, g, 0));
  OK(cuGraphExecDestroy(x));
  OK(cuGraphInstantiateWithFlags(&y, g, 0));
  assert_ptr_equal(y, x);
  OK(cuGraphDestroy(g));
  OK(cuGraphCreate(&h, 0));
  assert_ptr_equal(h, g);
  OK(cuGraphExecDestroy(y));
  OK(cuGraphDestroy(h));
}

/* Where the setting is left out, odd seeds give handles and addresses again. */
static void half_of_the_seeds_do(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 6; seed++) {
    sim_seed(seed);
    CUstream s = stream();
    CUdeviceptr p = device_memory();
    OK(cuStreamDestroy_v2(s));
    OK(cuMemFree_v2(p));
    CUstream t = stream();
    CUdeviceptr q = device_memory();
    assert_int_equal(s == t, seed % 2 != 0);
    assert_int_equal(p == q, seed % 2 != 0);
    OK(cuStreamDestroy_v2(t));
    OK(cuMemFree_v2(q));
  }
}

static void the_last_address_comes_back_first(void **state) {
  (void)state;
  unsigned char got[NBYTES];
  void *pinned = NULL, *again = NULL;
  CUdeviceptr p = device_memory(), q = device_memory(), managed = 0, next = 0;
  OK(cuMemsetD8_v2(p, 7, NBYTES));
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(q));
  OK(cuMemFree_v2(p));
  assert_true(device_memory() == p);
  OK(cuMemcpyDtoH_v2(got, p, NBYTES));
  assert_true(all_bytes(got, NBYTES, 0xCB));
  assert_true(device_memory() == q);
  OK(cuMemHostAlloc(&pinned, NBYTES, 0));
  OK(cuMemFreeHost(pinned));
  OK(cuMemHostAlloc(&again, NBYTES, 0));
  assert_ptr_equal(again, pinned);
  OK(cuMemAllocManaged(&managed, NBYTES, 1));
  OK(cuMemFree_v2(managed));
  OK(cuMemAllocManaged(&next, NBYTES, 1));
  assert_true(next == managed);
  OK(cuMemFree_v2(next));
  OK(cuMemFreeHost(again));
  OK(cuMemFree_v2(p));
  OK(cuMemFree_v2(q));
}

static unsigned long long buffer_id(CUdeviceptr p) {
  unsigned long long id = 0;
  OK(cuPointerGetAttribute(&id, 7, p));
  return id;
}

static void a_new_memory_at_an_old_address_has_an_id_of_its_own(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  const unsigned long long id = buffer_id(p);
  OK(cuMemFree_v2(p));
  assert_true(device_memory() == p);
  assert_true(buffer_id(p) != id);
  OK(cuMemFree_v2(p));
}

/* Freed too early, and given to somebody else: the write that was queued lands there. */
static void work_that_was_not_waited_for_spoils_the_next_memory(void **state) {
  (void)state;
  unsigned char got[NBYTES];
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  OK(cuMemsetD8Async(p, 5, NBYTES, s));
  OK(cuMemFree_v2(p));
  found(SIM_RACE, 1);
  assert_true(device_memory() == p);
  OK(cuStreamSynchronize(s));
  OK(cuMemcpyDtoH_v2(got, p, NBYTES));
  assert_true(all_bytes(got, NBYTES, 5));
  OK(cuMemFree_v2(p));
  OK(cuStreamDestroy_v2(s));
}

static void a_pool_gives_an_address_again_where_its_stream_is(void **state) {
  (void)state;
  unsigned char got[NBYTES];
  CUdeviceptr p = 0, q = 0;
  CUstream a = stream(), b = stream();
  OK(cuMemAllocAsync(&p, NBYTES, a));
  OK(cuMemsetD8Async(p, 1, NBYTES, a));
  OK(cuMemFreeAsync(p, a));
  OK(cuMemAllocAsync(&q, NBYTES, b));
  assert_true(q != p); /* the free is pending, and nothing orders b behind it */
  OK(cuMemFreeAsync(q, b));
  OK(cuMemAllocAsync(&q, NBYTES, a));
  assert_true(q == p);
  OK(cuMemsetD8Async(q, 2, NBYTES, a));
  OK(cuMemcpyDtoHAsync_v2(got, q, NBYTES, a));
  assert_true(all_bytes(got, NBYTES, 2));
  OK(cuMemFreeAsync(q, a));
  OK(cuStreamSynchronize(a));
  OK(cuStreamSynchronize(b));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

static int always(void **state) {
  setenv("SIM_REUSE", "1", 1);
  return begin(state);
}

/* Settings are read at the first call. */
int main(int argc, char **argv) {
  (void)argv;
  const struct CMUnitTest by_seed[] = {SPEC(half_of_the_seeds_do)};
  const struct CMUnitTest specs[] = {
      cmocka_unit_test_setup_teardown(a_handle_goes_to_the_next_of_its_kind, always, end),
      SPEC(a_stale_handle_is_another_streams), SPEC(a_dead_handle_that_nothing_has_yet_is_found), SPEC(graphs_too),
      SPEC(the_last_address_comes_back_first), SPEC(a_new_memory_at_an_old_address_has_an_id_of_its_own),
      SPEC(work_that_was_not_waited_for_spoils_the_next_memory),
      SPEC(a_pool_gives_an_address_again_where_its_stream_is)};
  if (argc > 1) return cmocka_run_group_tests(by_seed, NULL, NULL);
  return cmocka_run_group_tests(specs, NULL, NULL);
}
