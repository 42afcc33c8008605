/* forms_spec.c: what the runtimes of CUDA 12 and 13 declare differently. */
#include "spec.h"

#undef cudaGetDeviceProperties
#undef cudaStreamGetCaptureInfo

static void the_runtime_says_its_own_version(void **state) {
  (void)state;
  int version = 0;
  OK(cudaRuntimeGetVersion(&version));
  assert_int_equal(version / 1000, CUDART_MAJOR);
  assert_true(version % 1000 <= 90 && version % 10 == 0);
}

/* A program has room for no more than its own header says. */
static void attributes_of_a_pointer_are_as_long_as_declared(void **state) {
  (void)state;
  enum { BYTES = CUDART_MAJOR == 12 ? 24 : 88, BEHIND = 64 };
  union {
    cudaPointerAttributes about;
    unsigned char bytes[BYTES + BEHIND];
  } room;
  char *p = device_memory();
  memset(&room, 0xa5, sizeof room);
  OK(cudaPointerGetAttributes(&room.about, p));
  assert_ptr_equal(room.about.devicePointer, p);
  assert_true(all_bytes(room.bytes + 24, BYTES - 24, 0));
  assert_true(all_bytes(room.bytes + BYTES, BEHIND, 0xa5));
  OK(cudaFree(p));
}

#if CUDART_MAJOR == 12

static void properties_are_clocks_and_modes_too(void **state) {
  (void)state;
  cudaDeviceProp about;
  memset(&about, 0xff, sizeof about);
  OK(cudaGetDeviceProperties_v2(&about, 1));
  assert_true(about.clockRate > 0 && about.memoryClockRate > 0 && about.deviceOverlap == 1);
  assert_int_equal(about.computeMode, 0);
  assert_int_equal(about.kernelExecTimeoutEnabled, 0);
  assert_int_equal(about.cooperativeMultiDeviceLaunch, 0);
  assert_int_equal(about.maxThreadsPerMultiProcessor, 2048);
  assert_true(all_bytes(about.reserved, sizeof about.reserved, 0));
}

/* 728 bytes are CUDA 11's structure. */
static void properties_without_a_number_are_those_of_cuda_11(void **state) {
  (void)state;
  cudaDeviceProp whole, part;
  OK(cudaGetDeviceProperties_v2(&whole, 0));
  memset(&part, 0xa5, sizeof part);
  OK(cudaGetDeviceProperties(&part, 0));
  assert_memory_equal(&part, &whole, 728);
  assert_true(all_bytes((char *)&part + 728, sizeof part - 728, 0xa5));
  FAILS(cudaGetDeviceProperties(&part, 2), cudaErrorInvalidDevice);
  FAILS(cudaGetDeviceProperties(NULL, 0), cudaErrorInvalidValue);
}

static void memory_is_prefetched_to_a_number(void **state) {
  (void)state;
  const cudaMemLocation second = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  void *p = NULL;
  cudaStream_t s = stream();
  OK(cudaMallocManaged(&p, NBYTES, cudaMemAttachGlobal));
  OK(cudaMemPrefetchAsync(p, NBYTES, 0, s));
  OK(cudaMemPrefetchAsync(p, NBYTES, -1, s));
  OK(cudaMemPrefetchAsync_v2(p, NBYTES, second, 0, s));
  FAILS(cudaMemPrefetchAsync(p, NBYTES, 2, s), cudaErrorInvalidDevice);
  OK(cudaStreamSynchronize(s));
  OK(cudaFree(p));
  OK(cudaStreamDestroy(s));
}

static void each_form_tells_of_a_capture(void **state) {
  (void)state;
  cudaStreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  unsigned long long id[3] = {0, 0, 0};
  cudaGraph_t g = NULL, same = NULL;
  const cudaGraphNode_t *deps = NULL;
  const cudaGraphEdgeData *edges = NULL;
  size_t n = 9;
  cudaStream_t s = stream();
  char *p = device_memory();
  OK(cudaStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cudaMemsetAsync(p, 8, NBYTES, s));
  OK(cudaStreamGetCaptureInfo(s, &status, &id[0]));
  assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(cudaStreamGetCaptureInfo_v2(s, &status, &id[1], &g, &deps, &n));
  assert_int_equal(n, 1);
  OK(cudaStreamGetCaptureInfo_v3(s, &status, &id[2], NULL, &deps, &edges, &n));
  assert_true(id[0] == id[1] && id[1] == id[2]);
  OK(cudaStreamEndCapture(s, &same));
  assert_ptr_equal(g, same);
  OK(cudaGraphDestroy(g));
  OK(cudaFree(p));
  OK(cudaStreamDestroy(s));
}

static void events_have_two_names_for_their_distance(void **state) {
  (void)state;
  cudaEvent_t e;
  float ms = -1;
  OK(cudaEventCreate(&e));
  OK(cudaEventRecord(e, NULL));
  OK(cudaEventSynchronize(e));
  OK(cudaEventElapsedTime_v2(&ms, e, e));
  assert_true(ms == 0);
  OK(cudaEventDestroy(e));
}

RUN(SPEC(the_runtime_says_its_own_version), SPEC(attributes_of_a_pointer_are_as_long_as_declared),
    SPEC(properties_are_clocks_and_modes_too), SPEC(properties_without_a_number_are_those_of_cuda_11),
    SPEC(memory_is_prefetched_to_a_number), SPEC(each_form_tells_of_a_capture),
    SPEC(events_have_two_names_for_their_distance))

#else

static void memory_is_prefetched_to_a_location(void **state) {
  (void)state;
  const cudaMemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0}, third = {CU_MEM_LOCATION_TYPE_DEVICE, 2};
  void *p = NULL;
  cudaStream_t s = stream();
  OK(cudaMallocManaged(&p, NBYTES, cudaMemAttachGlobal));
  OK(cudaMemPrefetchAsync(p, NBYTES, host, 0, s));
  FAILS(cudaMemPrefetchAsync(p, NBYTES, third, 0, s), cudaErrorInvalidDevice);
  OK(cudaStreamSynchronize(s));
  OK(cudaFree(p));
  OK(cudaStreamDestroy(s));
}

RUN(SPEC(the_runtime_says_its_own_version), SPEC(attributes_of_a_pointer_are_as_long_as_declared),
    SPEC(memory_is_prefetched_to_a_location))

#endif
