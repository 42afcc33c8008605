/* legacy_spec.c: the legacy stream: whom it orders, for whom it speaks, and what its use does to captures. */
#include "spec.h"

#include <pthread.h>

static void the_legacy_stream_orders_blocking_streams_only(void **state) {
  (void)state;
  for (unsigned flags = 0; flags < 2; flags++) {
    CUdeviceptr p = device_memory();
    CUstream s = NULL;
    OK(cuStreamCreate(&s, flags));
    OK(cuMemsetD8Async(p, 1, NBYTES, s));
    OK(cuMemsetD8Async(p, 2, NBYTES, CU_STREAM_LEGACY));
    OK(cuMemsetD8Async(p, 3, NBYTES, s));
    found(SIM_RACE, flags == 0 ? 0 : 2);
    give_back(p, 0, s, NULL);
  }
}

/* Work is on a blocking stream; the legacy stream is asked, or waited for, or an event recorded in it is waited for. */
enum { ASKED, WAITED_FOR, RECORDED_IN };

static void use_legacy(int how) {
  CUevent e = event();
  if (how == ASKED) OK(cuStreamQuery(NULL));
  if (how == WAITED_FOR) OK(cuStreamSynchronize(CU_STREAM_LEGACY));
  if (how == RECORDED_IN) OK(cuEventRecord(e, NULL));
  if (how == RECORDED_IN) OK(cuEventSynchronize(e));
  OK(cuEventDestroy_v2(e));
}

static void asking_the_legacy_stream_proves_nothing_of_blocking_streams(void **state) {
  (void)state;
  for (int how = ASKED; how <= RECORDED_IN; how++) {
    for (int own = 0; own < 2; own++) {
      CUdeviceptr p = device_memory();
      CUstream blocking = NULL, s = CU_STREAM_PER_THREAD;
      OK(cuStreamCreate(&blocking, 0));
      if (own == 0) s = blocking;
      OK(cuMemsetD8Async(p, 1, NBYTES, s));
      use_legacy(how);
      OK(cuMemFree_v2(p));
      found(SIM_RACE, how != RECORDED_IN);
      give_back(0, 0, blocking, NULL);
    }
  }
}

static void asking_the_legacy_stream_orders_no_blocking_streams(void **state) {
  (void)state;
  for (int how = ASKED; how <= RECORDED_IN; how++) {
    CUdeviceptr p = device_memory();
    CUstream a = NULL, b = NULL;
    OK(cuStreamCreate(&a, 0));
    OK(cuStreamCreate(&b, 0));
    OK(cuMemsetD8Async(p, 1, NBYTES, a));
    use_legacy(how);
    OK(cuMemsetD8Async(p, 2, NBYTES, b));
    found(SIM_RACE, how != RECORDED_IN);
    give_back(p, 0, a, b);
  }
}

static void the_per_thread_stream_is_a_blocking_one(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  OK(cuMemsetD8Async(p, 1, NBYTES, CU_STREAM_PER_THREAD));
  OK(cuMemsetD8Async(p, 2, NBYTES, NULL));
  OK(cuMemsetD8Async_ptsz(p, 3, NBYTES, NULL));
  assert_int_equal(sim_findings(SIM_RACE), 0);
  CUstream s = NULL;
  OK(cuStreamCreate(&s, 0));
  OK(cuMemsetD8Async(p, 4, NBYTES, s));
  found(SIM_RACE, 1);
  give_back(p, 0, s, NULL);
}

static void *fill_on_my_own(void *p) {
  OK(cuCtxPushCurrent_v2(contexts[0]));
  OK(cuMemsetD8Async(*(CUdeviceptr *)p, 1, NBYTES, CU_STREAM_PER_THREAD));
  OK(cuCtxPopCurrent_v2(NULL));
  return NULL;
}

static void each_thread_has_a_stream_of_its_own(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  pthread_t thread;
  OK(cuMemsetD8Async(p, 2, NBYTES, CU_STREAM_PER_THREAD));
  OK(pthread_create(&thread, NULL, fill_on_my_own, &p));
  OK(pthread_join(thread, NULL));
  assert_true(told("the per-thread stream of thread 1 on device 0"));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(p));
}

static pthread_key_t last_words;

static void call_at_the_end(void *unused) {
  int n;
  (void)unused;
  OK(cuDeviceGetCount(&n));
}

static void *fill_and_say_last_words(void *p) {
  OK(pthread_setspecific(last_words, p));
  return fill_on_my_own(p);
}

/* The work on its own stream is as that on a stream that was destroyed; a wait for the device covers both. */
static void nothing_speaks_for_a_thread_that_has_ended(void **state) {
  (void)state;
  void *(*const runs[])(void *) = {fill_on_my_own, fill_and_say_last_words};
  OK(pthread_key_create(&last_words, call_at_the_end));
  for (int k = 0; k < 4; k++) {
    CUdeviceptr p = device_memory();
    pthread_t thread;
    OK(pthread_create(&thread, NULL, runs[k % 2], &p));
    OK(pthread_join(thread, NULL));
    if (k >= 2) OK(cuCtxSynchronize());
    OK(cuMemsetD8Async(p, 2, NBYTES, NULL));
    if (k < 2) assert_true(told("the legacy stream of device 0 must wait for the per-thread stream of thread"));
    found(SIM_RACE, k < 2);
    OK(cuCtxSynchronize());
    OK(cuMemFree_v2(p));
  }
  OK(pthread_key_delete(last_words));
}

static void abort_on(void *unused) {
  (void)unused;
  abort();
}

static CUgraph ended(CUstream s, CUresult expected) {
  CUgraph g = NULL;
  FAILS(cuStreamEndCapture(s, &g), expected);
  return g;
}

/* What a call that names the legacy stream is made with. */
typedef struct names_legacy {
  CUdeviceptr p, managed;
  CUevent e;
  CUgraphExec x;
  unsigned char host[16];
} names_legacy;

static CUresult legacy_fill(names_legacy *w) {
  return cuMemsetD8Async(w->p, 1, 16, NULL);
}
static CUresult legacy_copy(names_legacy *w) {
  return cuMemcpyDtoDAsync_v2(w->p, w->p + 64, 16, CU_STREAM_LEGACY);
}
static CUresult legacy_sync_copy(names_legacy *w) {
  return cuMemcpyDtoH_v2(w->host, w->p, 16);
}
static CUresult legacy_sync_fill(names_legacy *w) {
  return cuMemsetD8_v2(w->p, 1, 16);
}
static CUresult legacy_record(names_legacy *w) {
  return cuEventRecord(w->e, NULL);
}
static CUresult legacy_wait(names_legacy *w) {
  return cuStreamWaitEvent(NULL, w->e, 0);
}
static CUresult legacy_query(names_legacy *w) {
  (void)w;
  return cuStreamQuery(CU_STREAM_LEGACY);
}
static CUresult legacy_synchronize(names_legacy *w) {
  (void)w;
  return cuStreamSynchronize(NULL);
}
static CUresult legacy_host(names_legacy *w) {
  return cuLaunchHostFunc(NULL, abort_on, w);
}
static CUresult legacy_prefetch(names_legacy *w) {
  return cuMemPrefetchAsync(w->managed, 16, 0, NULL);
}
static CUresult legacy_launch(names_legacy *w) {
  return cuGraphLaunch(w->x, NULL);
}
static CUresult legacy_upload(names_legacy *w) {
  return cuGraphUpload(w->x, NULL);
}
static CUresult legacy_allocate(names_legacy *w) {
  CUdeviceptr q = 0;
  (void)w;
  return cuMemAllocAsync(&q, 16, NULL);
}
static CUresult legacy_free(names_legacy *w) {
  return cuMemFreeAsync(w->p, NULL);
}

static void every_use_of_the_legacy_stream_breaks_the_capture_of_a_blocking_one(void **state) {
  (void)state;
  static CUresult (*const calls[])(names_legacy *) = {
      legacy_fill, legacy_copy, legacy_sync_copy, legacy_sync_fill, legacy_record, legacy_wait, legacy_query,
      legacy_synchronize, legacy_host, legacy_prefetch, legacy_launch, legacy_upload, legacy_allocate, legacy_free};
  names_legacy w = {.p = device_memory(), .e = event()};
  CUstream s = NULL;
  CUgraph g = NULL;
  OK(cuMemAllocManaged(&w.managed, NBYTES, 1));
  OK(cuStreamCreate(&s, 0));
  OK(cuEventRecord(w.e, s));
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuMemsetD8Async(w.p, 1, 16, s));
  OK(cuStreamEndCapture(s, &g));
  OK(cuGraphInstantiateWithFlags(&w.x, g, 0));
  OK(cuGraphLaunch(w.x, s));
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(calls[i](&w), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    ended(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    found(SIM_CAPTURE, 1);
  }
  OK(cuCtxSynchronize());
  OK(cuGraphExecDestroy(w.x));
  OK(cuGraphDestroy(g));
  OK(cuEventDestroy_v2(w.e));
  OK(cuMemFree_v2(w.managed));
  give_back(w.p, 0, s, NULL);
}

static void the_legacy_stream_and_captures_do_not_mix(void **state) {
  (void)state;
  CUstreamCaptureStatus status;
  CUdeviceptr p = device_memory();
  CUstream s = NULL, other = stream();
  OK(cuStreamCreate(&s, 0));
  FAILS(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  OK(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuMemsetD8Async(p, 1, NBYTES, NULL));
  OK(cuGraphDestroy(ended(other, CUDA_SUCCESS)));
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  FAILS(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  OK(cuStreamIsCapturing(s, &status));
  assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  FAILS(cuMemsetD8Async(p, 1, NBYTES, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  ended(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  found(SIM_CAPTURE, 1);
  OK(cuCtxSynchronize());
  OK(cuStreamDestroy_v2(s));
  OK(cuStreamDestroy_v2(other));
  OK(cuMemFree_v2(p));
}

RUN(SPEC(the_legacy_stream_orders_blocking_streams_only),
    SPEC(asking_the_legacy_stream_proves_nothing_of_blocking_streams),
    SPEC(asking_the_legacy_stream_orders_no_blocking_streams), SPEC(the_per_thread_stream_is_a_blocking_one),
    SPEC(each_thread_has_a_stream_of_its_own), SPEC(nothing_speaks_for_a_thread_that_has_ended),
    SPEC(every_use_of_the_legacy_stream_breaks_the_capture_of_a_blocking_one),
    SPEC(the_legacy_stream_and_captures_do_not_mix))
