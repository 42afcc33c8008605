/* capture_spec.c: stream capture, what it forbids, and what a graph does when it is launched. */
#include <pthread.h>

#include "spec.h"

static CUgraph ended(CUstream s, CUresult expected) {
  CUgraph g = NULL;
  FAILS(cuStreamEndCapture(s, &g), expected);
  return g;
}

static void a_captured_stream_does_nothing_until_the_graph_is_launched(void **state) {
  (void)state;
  unsigned char got[NBYTES];
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  CUgraphExec x = NULL;
  size_t n = 0;
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuMemsetD8Async(p, 1, NBYTES, s));
  OK(cuMemsetD8Async(p, 2, NBYTES / 2, s));
  CUgraph g = ended(s, CUDA_SUCCESS);
  OK(cuGraphGetNodes(g, NULL, &n));
  assert_int_equal(n, 2);
  OK(cuMemcpyDtoH_v2(got, p, NBYTES));
  assert_true(all_bytes(got, NBYTES, 0xCB));
  OK(cuGraphInstantiateWithFlags(&x, g, 0));
  OK(cuGraphDestroy(g));
  for (int i = 0; i < 3; i++) OK(cuGraphLaunch(x, s));
  OK(cuMemcpyDtoHAsync_v2(got, p, NBYTES, s));
  assert_true(all_bytes(got, NBYTES / 2, 2) && all_bytes(got + NBYTES / 2, NBYTES / 2, 1));
  OK(cuGraphExecDestroy(x));
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(p));
}

/* Two branches of a graph: ordered by the join at the end, not by each other. */
static void branches_of_a_graph_are_checked(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 20; seed++) {
    CUdeviceptr p = device_memory();
    CUstream a = stream(), b = stream();
    CUgraphExec x = NULL;
    const size_t second = seed % 2 == 0 ? NBYTES / 2 : NBYTES / 2 - 1;
    sim_seed(seed);
    OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD8Async(p, 0, NBYTES, a));
    follow(b, a);
    OK(cuMemsetD8Async(p, 1, NBYTES / 2, a));
    OK(cuMemsetD8Async(p + second, 2, NBYTES / 2, b));
    follow(a, b);
    OK(cuMemsetD8Async(p, 3, NBYTES, a));
    CUgraph g = ended(a, CUDA_SUCCESS);
    OK(cuGraphInstantiateWithFlags(&x, g, 0));
    OK(cuGraphLaunch(x, a));
    found(SIM_RACE, seed % 2);
    OK(cuMemsetD8Async(p, 4, NBYTES, b));
    found(SIM_RACE, 1);
    OK(cuStreamSynchronize(a));
    OK(cuStreamSynchronize(b));
    OK(cuGraphExecDestroy(x));
    OK(cuGraphDestroy(g));
    OK(cuStreamDestroy_v2(a));
    OK(cuStreamDestroy_v2(b));
    OK(cuMemFree_v2(p));
  }
}

typedef CUresult (*forbidden)(CUstream s, CUdeviceptr p);

static CUresult synchronize(CUstream s, CUdeviceptr p) {
  (void)p;
  return cuStreamSynchronize(s);
}
static CUresult query(CUstream s, CUdeviceptr p) {
  (void)p;
  return cuStreamQuery(s);
}
static CUresult context(CUstream s, CUdeviceptr p) {
  (void)s, (void)p;
  return cuCtxSynchronize();
}
static CUresult allocate(CUstream s, CUdeviceptr p) {
  (void)s;
  return cuMemAlloc_v2(&p, NBYTES);
}
static CUresult release(CUstream s, CUdeviceptr p) {
  (void)s;
  return cuMemFree_v2(p);
}
static CUresult callback(CUstream s, CUdeviceptr p) {
  (void)p;
  return cuStreamAddCallback(s, (CUstreamCallback)(void (*)(void))abort, NULL, 0);
}
static CUresult synchronous_copy(CUstream s, CUdeviceptr p) {
  char host[16];
  (void)s;
  return cuMemcpyDtoH_v2(host, p, 16);
}
static CUmemoryPool a_pool;
static CUresult trim(CUstream s, CUdeviceptr p) {
  (void)s, (void)p;
  return cuMemPoolTrimTo(a_pool, 0);
}
static CUresult open_pool(CUstream s, CUdeviceptr p) {
  const CUmemAccessDesc to_both = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, 3};
  (void)s, (void)p;
  return cuMemPoolSetAccess(a_pool, &to_both, 1);
}
static CUresult end_pool(CUstream s, CUdeviceptr p) {
  (void)s, (void)p;
  return cuMemPoolDestroy(a_pool);
}
static CUresult enable_peer(CUstream s, CUdeviceptr p) {
  (void)s, (void)p;
  return cuCtxEnablePeerAccess(contexts[1], 0);
}

static void each_forbidden_call_fails_and_breaks_the_capture(void **state) {
  (void)state;
  static const forbidden calls[] = {synchronize, query, context, allocate, release, callback, synchronous_copy,
                                    trim, open_pool, end_pool, enable_peer};
  const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUdeviceptr p = device_memory();
  OK(cuMemPoolCreate(&a_pool, &props));
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    CUstreamCaptureStatus status;
    CUstream s = stream();
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD8Async(p, 1, NBYTES, s));
    FAILS(calls[i](s, p), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    OK(cuStreamIsCapturing(s, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    FAILS(cuMemsetD8Async(p, 1, NBYTES, s), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_null(ended(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    found(SIM_CAPTURE, 1);
    OK(cuMemsetD8Async(p, 1, NBYTES, s));
    OK(cuStreamSynchronize(s));
    OK(cuStreamDestroy_v2(s));
  }
  OK(cuMemPoolDestroy(a_pool));
  OK(cuMemFree_v2(p));
}

static void relaxed_captures_allow_what_does_not_conflict(void **state) {
  (void)state;
  CUdeviceptr p = 0;
  CUstream s = stream();
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuMemAlloc_v2(&p, NBYTES));
  OK(cuMemFree_v2(p));
  FAILS(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  ended(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  found(SIM_CAPTURE, 1);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(cuMemAlloc_v2(&p, NBYTES));
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  OK(cuGraphDestroy(ended(s, CUDA_SUCCESS)));
  OK(cuMemFree_v2(p));
  OK(cuStreamDestroy_v2(s));
}

static void expect_broken(CUstream s) {
  CUstreamCaptureStatus status;
  OK(cuStreamIsCapturing(s, &status));
  assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  assert_null(ended(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
  found(SIM_CAPTURE, 1);
}

static void a_wait_for_a_device_breaks_its_captures_in_any_mode(void **state) {
  (void)state;
  CUstream s = stream();
  OK(cuCtxPushCurrent_v2(contexts[1]));
  CUstream far = stream();
  for (unsigned mode = 0; mode < 3; mode++) {
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cuStreamBeginCapture_v2(far, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuThreadExchangeStreamCaptureMode(&relaxed));
    OK(cuStreamBeginCapture_v2(s, (CUstreamCaptureMode)mode));
    OK(cuCtxPushCurrent_v2(contexts[0]));
    FAILS(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_true(told("the host waits for all of a device"));
    OK(cuCtxPopCurrent_v2(NULL));
    expect_broken(s);
    OK(cuThreadExchangeStreamCaptureMode(&relaxed));
    OK(cuGraphDestroy(ended(far, CUDA_SUCCESS)));
  }
  OK(cuStreamDestroy_v2(far));
  OK(cuCtxPopCurrent_v2(NULL));
  OK(cuStreamDestroy_v2(s));
}

static void a_capture_ends_with_the_stream_it_began_in(void **state) {
  (void)state;
  CUdeviceptr p = 0;
  CUstream s = stream();
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuStreamDestroy_v2(s));
  found(SIM_CAPTURE, 1);
  assert_int_equal(sim_left("captures"), 0);
  OK(cuMemAlloc_v2(&p, NBYTES));
  OK(cuMemFree_v2(p));
}

static void edges_into_and_between_captures_are_refused(void **state) {
  (void)state;
  CUstream a = stream(), b = stream();
  CUevent outside = event(), inside = event();
  OK(cuEventRecord(outside, b));
  OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  FAILS(cuStreamWaitEvent(a, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  ended(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  found(SIM_CAPTURE, 1);
  OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuStreamBeginCapture_v2(b, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuEventRecord(inside, a));
  FAILS(cuStreamWaitEvent(b, inside, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  ended(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  ended(b, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  found(SIM_CAPTURE, 2);
  OK(cuEventDestroy_v2(outside));
  OK(cuEventDestroy_v2(inside));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

static void captured_events_are_not_the_hosts(void **state) {
  (void)state;
  CUstream s = stream();
  CUevent e = event();
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuEventRecord(e, s));
  FAILS(cuEventSynchronize(e), CUDA_ERROR_CAPTURED_EVENT);
  ended(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  found(SIM_CAPTURE, 1);
  FAILS(cuEventQuery(e), CUDA_ERROR_CAPTURED_EVENT);
  OK(cuEventRecord(e, s));
  OK(cuEventSynchronize(e));
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(s));
}

static void a_fork_must_be_joined(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  CUstream a = stream(), b = stream();
  OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuMemsetD8Async(p, 1, NBYTES, a));
  follow(b, a);
  OK(cuMemsetD8Async(p, 1, NBYTES, b));
  FAILS(cuStreamEndCapture(b, &(CUgraph){NULL}), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  ended(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  found(SIM_CAPTURE, 1);
  OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuMemsetD8Async(p, 1, NBYTES, a));
  follow(b, a);
  OK(cuMemsetD8Async(p, 1, NBYTES, b));
  ended(a, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  found(SIM_CAPTURE, 1);
  FAILS(cuStreamEndCapture(a, &(CUgraph){NULL}), CUDA_ERROR_ILLEGAL_STATE);
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
  OK(cuMemFree_v2(p));
}

static CUstream shared;
static CUresult results[2];

static void *elsewhere(void *unused) {
  CUdeviceptr p = 0;
  CUgraph g = NULL;
  (void)unused;
  cuCtxPushCurrent_v2(contexts[0]);
  results[0] = cuMemAlloc_v2(&p, NBYTES);
  results[1] = cuStreamEndCapture(shared, &g);
  if (results[0] == CUDA_SUCCESS) cuMemFree_v2(p);
  cuCtxPopCurrent_v2(NULL);
  return NULL;
}

static void other_threads_are_bound_by_a_global_capture_only(void **state) {
  (void)state;
  shared = stream();
  for (int mode = 0; mode < 2; mode++) {
    pthread_t thread;
    OK(cuStreamBeginCapture_v2(shared, (CUstreamCaptureMode)mode));
    assert_int_equal(pthread_create(&thread, NULL, elsewhere, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(results[0], mode == 0 ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS);
    assert_int_equal(results[1], CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    CUgraph g = ended(shared, mode == 0 ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
    if (g != NULL) OK(cuGraphDestroy(g));
    found(SIM_CAPTURE, mode == 0);
  }
  OK(cuStreamDestroy_v2(shared));
}

static void a_graph_that_outlives_its_memory_is_found(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  CUgraphExec x = NULL;
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuMemsetD8Async(p, 1, NBYTES, s));
  CUgraph g = ended(s, CUDA_SUCCESS);
  OK(cuGraphInstantiateWithFlags(&x, g, 0));
  OK(cuMemFree_v2(p));
  OK(cuGraphLaunch(x, s));
  assert_true(told("use of freed memory"));
  found(SIM_STALE, 1);
  OK(cuStreamSynchronize(s));
  OK(cuGraphExecDestroy(x));
  OK(cuGraphDestroy(g));
  OK(cuStreamDestroy_v2(s));
}

static CUgraphExec filling(CUdeviceptr p, int byte, CUstream s) {
  CUgraphExec x = NULL;
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuMemsetD8Async(p, (unsigned char)byte, NBYTES, s));
  CUgraph g = ended(s, CUDA_SUCCESS);
  OK(cuGraphInstantiateWithFlags(&x, g, 0));
  OK(cuGraphDestroy(g));
  return x;
}

static void a_graph_is_not_ordered_after_one_that_is_gone(void **state) {
  CUdeviceptr p = device_memory();
  CUstream a = stream(), b = stream();
  (void)state;
  CUgraphExec x = filling(p, 1, a);
  OK(cuGraphLaunch(x, a));
  OK(cuGraphExecDestroy(x));
  x = filling(p, 2, b);
  OK(cuGraphLaunch(x, b));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  OK(cuGraphLaunch(x, a));
  OK(cuGraphExecDestroy(x));
  give_back(p, 0, a, b);
}

/* Each launch moves p to q and then fills p: q shows what the launch before left, so launches of one executable
 * must not mix, though their streams are not ordered, and a launch must keep its own order. */
static void launches_of_one_executable_follow_each_other(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 30; seed++) {
    unsigned char got[NBYTES];
    CUdeviceptr p = device_memory(), q = device_memory();
    CUstream a = stream(), b = stream();
    CUgraphExec x = NULL;
    sim_seed(seed);
    OK(cuMemsetD8Async(p, 1, NBYTES, a));
    OK(cuStreamSynchronize(a));
    OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemcpyDtoDAsync_v2(q, p, NBYTES, a));
    OK(cuMemsetD8Async(p, 9, NBYTES, a));
    CUgraph g = ended(a, CUDA_SUCCESS);
    OK(cuGraphInstantiateWithFlags(&x, g, 0));
    OK(cuGraphLaunch(x, a));
    OK(cuStreamSynchronize(a));
    OK(cuMemcpyDtoH_v2(got, q, NBYTES));
    assert_true(all_bytes(got, NBYTES, 1));
    OK(cuMemsetD8Async(p, 1, NBYTES, a));
    OK(cuGraphLaunch(x, a));
    OK(cuGraphLaunch(x, b));
    OK(cuStreamSynchronize(b));
    OK(cuMemcpyDtoH_v2(got, q, NBYTES));
    assert_true(all_bytes(got, NBYTES, 9));
    OK(cuGraphExecDestroy(x));
    OK(cuGraphDestroy(g));
    OK(cuMemFree_v2(p));
    OK(cuMemFree_v2(q));
    OK(cuStreamDestroy_v2(a));
    OK(cuStreamDestroy_v2(b));
  }
}

static int destroyed;

static void count_destroyed(void *p) {
  *(int *)p += 1;
}

static void a_graph_and_its_executable_keep_user_objects(void **state) {
  (void)state;
  CUuserObject u = NULL;
  CUgraph g = NULL;
  CUgraphExec x = NULL;
  destroyed = 0;
  OK(cuUserObjectCreate(&u, &destroyed, count_destroyed, 1, 1));
  OK(cuGraphCreate(&g, 0));
  OK(cuGraphRetainUserObject(g, u, 1, 1));
  OK(cuGraphInstantiateWithFlags(&x, g, 0));
  OK(cuGraphDestroy(g));
  assert_int_equal(destroyed, 0);
  OK(cuGraphExecDestroy(x));
  assert_int_equal(destroyed, 1);
  FAILS(cuUserObjectRelease(u, 1), CUDA_ERROR_INVALID_HANDLE);
  found(SIM_MISUSE, 1);
}

static void two_graphs_in_two_streams_are_not_ordered(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  CUstream s[2] = {stream(), stream()};
  CUgraphExec x[2] = {NULL, NULL};
  for (int i = 0; i < 2; i++) {
    OK(cuStreamBeginCapture_v2(s[i], CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD8Async(p, 1, NBYTES, s[i]));
    CUgraph g = ended(s[i], CUDA_SUCCESS);
    OK(cuGraphInstantiateWithFlags(&x[i], g, 0));
    OK(cuGraphDestroy(g));
  }
  OK(cuGraphLaunch(x[0], s[0]));
  OK(cuGraphLaunch(x[1], s[1]));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  OK(cuGraphLaunch(x[0], s[0]));
  OK(cuGraphLaunch(x[0], s[1]));
  OK(cuCtxSynchronize());
  for (int i = 0; i < 2; i++) {
    OK(cuGraphExecDestroy(x[i]));
    OK(cuStreamDestroy_v2(s[i]));
  }
  OK(cuMemFree_v2(p));
}

RUN(SPEC(a_wait_for_a_device_breaks_its_captures_in_any_mode), SPEC(a_capture_ends_with_the_stream_it_began_in),
    SPEC(a_captured_stream_does_nothing_until_the_graph_is_launched), SPEC(branches_of_a_graph_are_checked),
    SPEC(each_forbidden_call_fails_and_breaks_the_capture), SPEC(relaxed_captures_allow_what_does_not_conflict),
    SPEC(edges_into_and_between_captures_are_refused),
    SPEC(captured_events_are_not_the_hosts), SPEC(a_fork_must_be_joined),
    SPEC(other_threads_are_bound_by_a_global_capture_only), SPEC(a_graph_that_outlives_its_memory_is_found),
    SPEC(two_graphs_in_two_streams_are_not_ordered),
    SPEC(launches_of_one_executable_follow_each_other),
    SPEC(a_graph_is_not_ordered_after_one_that_is_gone), SPEC(a_graph_and_its_executable_keep_user_objects))
