/* work_spec.c: memory, copies, streams, events and graphs through the runtime's calls. */
#include "spec.h"

#define CALL(name, symbol, since, how, params, args) CUresult symbol params;
#define SCALL CALL
#define DCALL CALL
#include "../../../sim/cuda/calls.def"

static char host[NBYTES];

static void copies_go_where_their_kind_says(void **state) {
  (void)state;
  char *a = device_memory(), *b = device_memory(), back[NBYTES];
  memset(host, 3, sizeof host);
  OK(cudaMemcpy(a, host, NBYTES, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(b, a, NBYTES, cudaMemcpyDeviceToDevice));
  OK(cudaMemcpy(back, b, NBYTES, cudaMemcpyDeviceToHost));
  assert_true(all_bytes(back, NBYTES, 3));
  OK(cudaMemset(b, 4, NBYTES));
  OK(cudaMemcpy(back, b, NBYTES, cudaMemcpyDefault));
  assert_true(all_bytes(back, NBYTES, 4));
  OK(cudaMemcpy(back, host, NBYTES, cudaMemcpyHostToHost));
  assert_true(all_bytes(back, NBYTES, 3));
  OK(cudaMemcpy(NULL, NULL, 0, cudaMemcpyHostToDevice));
  OK(cudaFree(a));
  OK(cudaFree(b));
}

static void a_kind_that_is_not_so_is_refused(void **state) {
  (void)state;
  char *p = device_memory();
  FAILS(cudaMemcpy(p, host, NBYTES, (cudaMemcpyKind)5), cudaErrorInvalidMemcpyDirection);
  FAILS(cudaMemcpy(p, host, NBYTES, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  FAILS(cudaMemcpy(p, host, NBYTES, cudaMemcpyHostToHost), cudaErrorInvalidValue);
  FAILS(cudaMemcpyAsync(host, p, NBYTES, cudaMemcpyHostToHost, NULL), cudaErrorInvalidValue);
  found(SIM_BOUNDS, 3);
  OK(cudaFree(p));
}

static void rows_keep_their_pitch(void **state) {
  (void)state;
  enum { W = 10, H = 4 };
  char from[W * H], to[W * H] = {0}, *p;
  void *rows = NULL;
  size_t pitch = 0;
  for (int i = 0; i < W * H; i++) from[i] = (char)i;
  OK(cudaMallocPitch(&rows, &pitch, W, H));
  assert_true(pitch >= W);
  p = rows;
  FAILS(cudaMemcpy2D(p, pitch, from, W - 1, W, H, cudaMemcpyHostToDevice), cudaErrorInvalidPitchValue);
  OK(cudaMemcpy2D(p, pitch, from, W, W, H, cudaMemcpyHostToDevice));
  const cudaMemcpy3DParms last_row = {.srcPtr = {p, pitch, W, H}, .srcPos = {2, H - 1, 0}, .dstPtr = {to, W, W, H},
                                      .dstPos = {2, 0, 0}, .extent = {W - 2, 1, 1}, .kind = cudaMemcpyDeviceToHost};
  OK(cudaMemcpy3D(&last_row));
  assert_memory_equal(to + 2, from + (H - 1) * W + 2, W - 2);
  OK(cudaMemcpy2DAsync(to, W, p, pitch, W, H, cudaMemcpyDefault, NULL));
  OK(cudaStreamSynchronize(NULL));
  assert_memory_equal(to, from, sizeof to);
  OK(cudaMemset2D(p, pitch, 9, W, 2));
  OK(cudaMemcpy2D(to, W, p, pitch, W, H, cudaMemcpyDeviceToHost));
  assert_true(all_bytes(to, 2 * W, 9));
  assert_memory_equal(to + 2 * W, from + 2 * W, 2 * W);
  OK(cudaFree(p));
}

static void memory_goes_from_device_to_device(void **state) {
  (void)state;
  char *a = device_memory(), *b, back[NBYTES];
  int can = 0;
  OK(cudaSetDevice(1));
  b = device_memory();
  OK(cudaDeviceCanAccessPeer(&can, 1, 0));
  assert_int_equal(can, 1);
  OK(cudaDeviceEnablePeerAccess(0, 0));
  FAILS(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
  OK(cudaSetDevice(0));
  OK(cudaMemset(a, 6, NBYTES));
  OK(cudaDeviceSynchronize());
  OK(cudaMemcpyPeer(b, 1, a, 0, NBYTES));
  OK(cudaMemcpyPeerAsync(a, 0, b, 1, NBYTES, NULL));
  OK(cudaMemcpy(back, a, NBYTES, cudaMemcpyDeviceToHost));
  assert_true(all_bytes(back, NBYTES, 6));
  OK(cudaFree(a));
  OK(cudaSetDevice(1));
  OK(cudaDeviceDisablePeerAccess(0));
  OK(cudaFree(b));
}

static void pointers_say_what_they_are(void **state) {
  (void)state;
  void *pinned = NULL, *managed = NULL, *alias = NULL;
  unsigned flags = 0;
  cudaPointerAttributes about;
  OK(cudaHostAlloc(&pinned, NBYTES, cudaHostAllocPortable));
  OK(cudaMallocManaged(&managed, NBYTES, cudaMemAttachGlobal));
  OK(cudaPointerGetAttributes(&about, pinned));
  assert_int_equal(about.type, cudaMemoryTypeHost);
  assert_ptr_equal(about.hostPointer, pinned);
  OK(cudaPointerGetAttributes(&about, managed));
  assert_int_equal(about.type, cudaMemoryTypeManaged);
  OK(cudaPointerGetAttributes(&about, host));
  assert_int_equal(about.type, cudaMemoryTypeUnregistered);
  assert_int_equal(about.device, -2);
  assert_null(about.devicePointer);
  OK(cudaHostGetFlags(&flags, pinned));
  assert_int_equal(flags & cudaHostAllocPortable, cudaHostAllocPortable);
  OK(cudaHostGetDevicePointer(&alias, pinned, 0));
  assert_ptr_equal(alias, pinned);
  OK(cudaHostRegister(host, sizeof host, 0));
  OK(cudaHostUnregister(host));
  OK(cudaFreeHost(pinned));
  OK(cudaFree(managed));
}

static void nothing_is_given_for_no_bytes(void **state) {
  (void)state;
  void *p = &p;
  OK(cudaMalloc(&p, 0));
  assert_null(p);
  p = &p;
  OK(cudaMallocHost(&p, 0));
  assert_null(p);
  OK(cudaFree(NULL));
  OK(cudaFreeHost(NULL));
}

/* A finding names the runtime's call and who made it, not the library in between. */
static void a_race_between_streams_is_reported_with_the_calls_that_were_made(void **state) {
  (void)state;
  cudaStream_t a = stream(), b = stream();
  char *p = device_memory();
  OK(cudaMemsetAsync(p, 1, NBYTES, a));
  OK(cudaMemcpyAsync(host, p, NBYTES, cudaMemcpyDeviceToHost, b));
  OK(cudaDeviceSynchronize());
  assert_true(told("cudaMemsetAsync, thread 1 from " PROGRAM));
  assert_true(told("cudaMemcpyAsync, thread 1 from " PROGRAM));
  found(SIM_RACE, 1);
  OK(cudaStreamDestroy(a));
  OK(cudaStreamDestroy(b));
  OK(cudaFree(p));
}

static void an_event_orders_two_streams(void **state) {
  (void)state;
  cudaStream_t a = stream(), b = stream();
  cudaEvent_t e, f;
  float ms = -1, back = 1;
  char *p = device_memory();
  OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  OK(cudaMemsetAsync(p, 7, NBYTES, a));
  OK(cudaEventRecord(e, a));
  FAILS(cudaEventQuery(e), cudaErrorNotReady);
  FAILS(cudaGetLastError(), cudaErrorNotReady);
  OK(cudaStreamWaitEvent(b, e, 0));
  OK(cudaMemcpyAsync(host, p, NBYTES, cudaMemcpyDeviceToHost, b));
  OK(cudaStreamSynchronize(b));
  assert_true(all_bytes(host, NBYTES, 7));
  OK(cudaEventDestroy(e));
  OK(cudaEventCreate(&e));
  OK(cudaEventCreate(&f));
  OK(cudaEventRecord(e, a));
  OK(cudaEventRecordWithFlags(f, a, 0));
  OK(cudaEventSynchronize(f));
  OK(cudaEventElapsedTime(&ms, e, f));
  OK(cudaEventElapsedTime(&back, f, e));
  assert_true(ms >= 0 && ms < 60000 && back == -ms);
  OK(cudaEventDestroy(e));
  OK(cudaEventDestroy(f));
  OK(cudaStreamDestroy(a));
  OK(cudaStreamDestroy(b));
  OK(cudaFree(p));
}

/* A program that was compiled for per-thread default streams calls the twins. */
static void the_twins_mean_the_stream_of_the_thread(void **state) {
  (void)state;
  unsigned long long legacy = 0, own = 0, named = 0;
  char *p = device_memory();
  OK(cudaStreamGetId(NULL, &legacy));
  OK(cudaStreamGetId_ptsz(NULL, &own));
  OK(cudaStreamGetId(CU_STREAM_PER_THREAD, &named));
  assert_true(own == named && own != legacy);
  OK(cudaStreamGetId_ptsz(CU_STREAM_LEGACY, &named));
  assert_true(named == legacy);
  OK(cudaMemset_ptds(p, 5, NBYTES));
  OK(cudaMemcpyAsync_ptsz(host, p, NBYTES, cudaMemcpyDeviceToHost, NULL));
  OK(cudaStreamSynchronize_ptsz(NULL));
  assert_true(all_bytes(host, NBYTES, 5));
  OK(cudaFree(p));
}

static void count_up(void *arg) {
  ++*(int *)arg;
}

static void call_back(cudaStream_t s, cudaError_t status, void *arg) {
  (void)s;
  if (status == cudaSuccess) ++*(int *)arg;
}

static void functions_of_the_host_run_in_their_turn(void **state) {
  (void)state;
  int n = 0;
  cudaStream_t s = stream();
  OK(cudaLaunchHostFunc(s, count_up, &n));
  OK(cudaStreamAddCallback(s, call_back, &n, 0));
  assert_int_equal(n, 0);
  OK(cudaStreamSynchronize(s));
  assert_int_equal(n, 2);
  FAILS(cudaStreamAddCallback(s, NULL, &n, 0), cudaErrorInvalidValue);
  FAILS(cudaStreamAddCallback(s, call_back, &n, 1), cudaErrorInvalidValue);
  OK(cudaStreamDestroy(s));
}

/* What the program does in the middle of the runtime's call is its own. */
static void misuse(void *unused) {
  (void)unused;
  FAILS(cuStreamQuery((CUstream)host), CUDA_ERROR_INVALID_HANDLE);
}

static void a_call_in_the_middle_of_another_has_its_own_name(void **state) {
  (void)state;
  char *p = device_memory();
  OK(sim_at("cuMemsetD8Async", 1, misuse, NULL));
  OK(cudaMemsetAsync(p, 1, NBYTES, NULL));
  assert_true(told("cuStreamQuery"));
  assert_false(told("cudaMemsetAsync"));
  found(SIM_MISUSE, 1);
  OK(cudaDeviceSynchronize());
  OK(cudaFree(p));
}

static void memory_of_pools_belongs_to_streams(void **state) {
  (void)state;
  const cudaMemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  cudaMemPool_t pool, standard, current;
  uint64_t used = 0;
  void *p = NULL, *q = NULL;
  cudaStream_t s = stream();
  OK(cudaMemPoolCreate(&pool, &props));
  OK(cudaMallocFromPoolAsync(&p, NBYTES, pool, s));
  OK(cudaMallocAsync(&q, NBYTES, s));
  OK(cudaMemPoolGetAttribute(pool, 7, &used));
  assert_true(used >= NBYTES);
  OK(cudaFreeAsync(p, s));
  OK(cudaFreeAsync(q, s));
  OK(cudaStreamSynchronize(s));
  OK(cudaMemPoolTrimTo(pool, 0));
  OK(cudaDeviceGetDefaultMemPool(&standard, 0));
  OK(cudaDeviceGetMemPool(&current, 0));
  assert_ptr_equal(standard, current);
  OK(cudaMemPoolDestroy(pool));
  OK(cudaStreamDestroy(s));
}

/* `may` wait, says its page; PyTorch's allocator is made for runtimes that do. SIM_FREE=never is the strict reading. */
/* PyTorch asks before and after a capture. */
static void graphs_have_no_memory_of_their_own(void **state) {
  (void)state;
  uint64_t value = 7;
  for (int which = 0; which < 4; which++) {
    OK(cudaDeviceGetGraphMemAttribute(1, which, &value));
    assert_true(value == 0);
    FAILS(cudaDeviceSetGraphMemAttribute(1, which, &value), which % 2 == 1 ? cudaSuccess : cudaErrorInvalidValue);
    value = 7;
    FAILS(cudaDeviceSetGraphMemAttribute(1, which, &value), cudaErrorInvalidValue);
  }
  FAILS(cudaDeviceGetGraphMemAttribute(0, 4, &value), cudaErrorInvalidValue);
  FAILS(cudaDeviceGetGraphMemAttribute(0, 0, NULL), cudaErrorInvalidValue);
  FAILS(cudaDeviceGetGraphMemAttribute(2, 0, &value), cudaErrorInvalidDevice);
  FAILS(cudaDeviceSetGraphMemAttribute(0, 1, NULL), cudaErrorInvalidValue);
  OK(cudaDeviceGraphMemTrim(1));
  FAILS(cudaDeviceGraphMemTrim(2), cudaErrorInvalidDevice);
  (void)cudaGetLastError();
}

static void a_free_waits_for_what_is_queued(void **state) {
  (void)state;
  const bool never = getenv("SIM_FREE") != NULL;
  cudaStream_t s = stream();
  char *p = device_memory();
  OK(cudaMemsetAsync(p, 1, NBYTES, s));
  OK(cudaFree(p));
  FAILS(cudaStreamQuery(s), never ? cudaErrorNotReady : cudaSuccess);
  found(SIM_RACE, never);
  OK(cudaStreamSynchronize(s));
  OK(cudaStreamDestroy(s));
}

static void no_other_free_waits(void **state) {
  (void)state;
  void *p = NULL, *pinned = NULL;
  static char own[NBYTES];
  CUdeviceptr q = 0;
  cudaStream_t s = stream();
  OK(cudaMallocAsync(&p, NBYTES, s));
  OK(cudaMemsetAsync(p, 1, NBYTES, s));
  OK(cudaFree(p));
  FAILS(cudaStreamQuery(s), cudaErrorNotReady);
  found(SIM_RACE, 1);
  OK(cudaHostAlloc(&pinned, NBYTES, 0));
  OK(cuMemAlloc_v2(&q, NBYTES));
  OK(cudaMemcpyAsync((void *)(uintptr_t)q, pinned, NBYTES, cudaMemcpyHostToDevice, s));
  OK(cudaFreeHost(pinned));
  found(SIM_RACE, 1);
  OK(cudaHostRegister(own, sizeof own, 0));
  OK(cudaMemcpyAsync((void *)(uintptr_t)q, own, sizeof own, cudaMemcpyHostToDevice, s));
  OK(cudaHostUnregister(own));
  FAILS(cudaStreamQuery(s), cudaErrorNotReady);
  found(SIM_RACE, 1);
  OK(cuMemFree_v2(q)); /* the driver's page says the same, and there the strict reading holds */
  found(SIM_RACE, 1);
  OK(cudaStreamSynchronize(s));
  OK(cudaStreamDestroy(s));
}

static void what_is_captured_runs_when_the_graph_is_launched(void **state) {
  (void)state;
  cudaStreamCaptureStatus status;
  const cudaGraphNode_t *front = NULL;
  const cudaGraphEdgeData *edges = NULL;
  cudaGraphNode_t node = NULL, only = NULL;
  cudaGraph_t g;
  cudaGraphExec_t x;
  size_t n = 0;
  cudaStream_t s = stream();
  char *p = device_memory();
  OK(cudaMemset(p, 1, NBYTES));
  OK(cudaDeviceSynchronize());
  OK(cudaStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(cudaMemsetAsync(p, 8, NBYTES, s));
  OK(cudaStreamGetCaptureInfo(s, &status, NULL, NULL, &front, &edges, &n));
  assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  assert_int_equal(n, 1);
  node = front[0];
  assert_true(all_bytes(edges, sizeof *edges, 0));
  FAILS(cudaEventCreateWithFlags(NULL, 0), cudaErrorInvalidValue);
  OK(cudaStreamEndCapture(s, &g));
  OK(cudaStreamIsCapturing(s, &status));
  assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
  OK(cudaGraphGetNodes(g, NULL, &n));
  assert_int_equal(n, 1);
  OK(cudaGraphGetNodes(g, &only, &n));
  assert_ptr_equal(only, node);
  OK(cudaGraphInstantiate(&x, g, 0));
  OK(cudaGraphDestroy(g));
  OK(cudaMemcpy(host, p, NBYTES, cudaMemcpyDeviceToHost));
  assert_true(all_bytes(host, NBYTES, 1));
  OK(cudaGraphLaunch(x, s));
  OK(cudaStreamSynchronize(s));
  OK(cudaMemcpy(host, p, NBYTES, cudaMemcpyDeviceToHost));
  assert_true(all_bytes(host, NBYTES, 8));
  OK(cudaGraphExecDestroy(x));
  OK(cudaStreamDestroy(s));
  OK(cudaFree(p));
}

RUN(SPEC(copies_go_where_their_kind_says), SPEC(a_kind_that_is_not_so_is_refused), SPEC(rows_keep_their_pitch),
    SPEC(memory_goes_from_device_to_device), SPEC(pointers_say_what_they_are), SPEC(nothing_is_given_for_no_bytes),
    SPEC(a_race_between_streams_is_reported_with_the_calls_that_were_made), SPEC(an_event_orders_two_streams),
    SPEC(the_twins_mean_the_stream_of_the_thread), SPEC(functions_of_the_host_run_in_their_turn),
    SPEC(a_call_in_the_middle_of_another_has_its_own_name), SPEC(memory_of_pools_belongs_to_streams),
    SPEC(graphs_have_no_memory_of_their_own), SPEC(a_free_waits_for_what_is_queued), SPEC(no_other_free_waits),
    SPEC(what_is_captured_runs_when_the_graph_is_launched))
