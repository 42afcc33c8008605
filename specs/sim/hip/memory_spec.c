/* memory_spec.c: kinds of memory, copies, and what a pointer is. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spec.h"

static void no_bytes_have_no_address(void **state) {
  (void)state;
  void *p = &p;
  OK(hipMalloc(&p, 0));
  assert_null(p);
  OK(hipFree(NULL));
  OK(hipHostFree(NULL));
}

static void the_host_cannot_touch_device_memory(void **state) {
  (void)state;
  volatile char *p = device_memory();
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    p[0] = 1;
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), SIGSEGV);
  OK(hipFree((void *)p));
}

static void kind_of(const void *p, hipMemoryType type, bool host) {
  hipPointerAttribute_t a;
  OK(hipPointerGetAttributes(&a, p));
  assert_int_equal(a.type, type);
  assert_ptr_equal(a.hostPointer, host ? p : NULL);
}

static void pointers_are_told_apart(void **state) {
  (void)state;
  static char own[NBYTES];
  void *pinned = NULL, *managed = NULL, *device = device_memory();
  OK(hipHostMalloc(&pinned, NBYTES, 0));
  OK(hipMallocManaged(&managed, NBYTES, hipMemAttachGlobal));
  kind_of(device, hipMemoryTypeDevice, false);
  kind_of((char *)device + 5, hipMemoryTypeDevice, false);
  kind_of(pinned, hipMemoryTypeHost, true);
  kind_of(managed, hipMemoryTypeManaged, true);
  kind_of(own, hipMemoryTypeUnregistered, false);
  OK(hipHostRegister(own, sizeof own, 0));
  kind_of(own, hipMemoryTypeHost, true);
  OK(hipHostUnregister(own));
  OK(hipFree(device));
  OK(hipHostFree(pinned));
  OK(hipFree(managed));
}

static void bytes_go_there_and_back(void **state) {
  (void)state;
  unsigned char out[NBYTES], in[NBYTES];
  void *p = device_memory(), *q = device_memory();
  for (int i = 0; i < NBYTES; i++) out[i] = (unsigned char)(i * 7);
  OK(hipMemcpy(p, out, NBYTES, hipMemcpyHostToDevice));
  OK(hipMemcpy(q, p, NBYTES, hipMemcpyDefault));
  OK(hipMemcpyDtoH(in, q, NBYTES));
  assert_memory_equal(in, out, NBYTES);
  OK(hipMemsetD32(q, 0x01010101, NBYTES / 4));
  OK(hipMemcpy(in, q, NBYTES, hipMemcpyDeviceToHost));
  assert_true(all_bytes(in, NBYTES, 1));
  OK(hipFree(p));
  OK(hipFree(q));
}

static void a_part_of_a_plane_and_of_a_box(void **state) {
  (void)state;
  unsigned char in[NBYTES];
  void *p = device_memory();
  OK(hipMemset(p, 0, NBYTES));
  OK(hipMemset2D((char *)p + 3, 64, 5, 4, 8));
  OK(hipMemcpy2D(in, 4, (char *)p + 3, 64, 4, 8, hipMemcpyDeviceToHost));
  assert_true(all_bytes(in, 32, 5));
  FAILS(hipMemcpy2D(in, 3, p, 64, 4, 8, hipMemcpyDeviceToHost), hipErrorInvalidPitchValue);
  OK(hipMemset((char *)p + 64 * 6 + 3, 6, 4));
  const hipMemcpy3DParms box = {.srcPtr = {p, 64, 64, 4}, .srcPos = {3, 2, 1}, .dstPtr = {in, 2, 2, 2},
                                .extent = {2, 2, 1}, .kind = hipMemcpyDeviceToHost};
  memset(in, 9, sizeof in);
  OK(hipMemcpy3D(&box));
  assert_true(all_bytes(in, 2, 6));
  assert_true(all_bytes(in + 2, 2, 5));
  assert_true(all_bytes(in + 4, 4, 9));
  const hipMemcpy3DParms slice = {.srcPtr = {(char *)p + 3, 64, 64, 1}, .dstPtr = {in, 4, 4, 1}, .extent = {4, 2, 1},
                                  .kind = hipMemcpyDeviceToHost};
  OK(hipMemcpy3D(&slice));
  assert_true(all_bytes(in, 8, 5));
  OK(hipFree(p));
}

static void copies_that_describe_both_sides(void **state) {
  (void)state;
  unsigned char in[NBYTES];
  void *p = device_memory();
  OK(hipMemset3D((hipPitchedPtr){p, 64, 64, 4}, 5, (hipExtent){64, 4, 16}));
  OK(hipMemset3D((hipPitchedPtr){(char *)p + 64 * 5 + 3, 64, 64, 4}, 6, (hipExtent){2, 1, 2}));
  const HIP_MEMCPY3D box = {.srcXInBytes = 3, .srcY = 1, .srcZ = 1, .srcMemoryType = hipMemoryTypeDevice,
                            .srcDevice = p, .srcPitch = 64, .srcHeight = 4, .dstMemoryType = hipMemoryTypeHost,
                            .dstHost = in, .WidthInBytes = 2, .Height = 2, .Depth = 2};
  OK(hipDrvMemcpy3D(&box));
  assert_memory_equal(in, "\6\6\5\5\6\6\5\5", 8);
  hip_Memcpy2D plane = {.srcXInBytes = 3, .srcY = 5, .srcMemoryType = hipMemoryTypeUnified, .srcDevice = p,
                        .srcPitch = 64, .dstMemoryType = hipMemoryTypeHost, .dstHost = in, .WidthInBytes = 4,
                        .Height = 2};
  OK(hipMemcpyParam2D(&plane));
  assert_memory_equal(in, "\6\6\5\5\5\5\5\5", 8);
  plane.dstPitch = 3;
  FAILS(hipMemcpyParam2D(&plane), hipErrorInvalidPitchValue);
  plane.dstPitch = 0;
  plane.srcMemoryType = hipMemoryTypeHost;
  plane.srcHost = p;
  FAILS(hipMemcpyParam2D(&plane), hipErrorInvalidValue);
  found(SIM_BOUNDS, 1);
  OK(hipFree(p));
}

static void one_thing_about_a_pointer(void **state) {
  (void)state;
  void *p = device_memory(), *out = NULL;
  int ordinal = -1;
  unsigned size = 0;
  OK(hipPointerGetAttribute(&out, HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR, (char *)p + 5));
  assert_ptr_equal(out, p);
  OK(hipPointerGetAttribute(&size, HIP_POINTER_ATTRIBUTE_RANGE_SIZE, p));
  assert_int_equal(size, NBYTES);
  OK(hipPointerGetAttribute(&ordinal, HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
  assert_int_equal(ordinal, 0);
  FAILS(hipPointerGetAttribute(&out, HIP_POINTER_ATTRIBUTE_HOST_POINTER, p), hipErrorInvalidValue);
  FAILS(hipPointerGetAttribute(&out, HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR, &out), hipErrorInvalidValue);
  OK(hipFree(p));
}

static void the_direction_must_be_true(void **state) {
  (void)state;
  char host[16];
  RUNTIME_ONLY("finds out by itself where memory lies");
  void *p = device_memory();
  FAILS(hipMemcpy(p, host, 16, hipMemcpyDeviceToDevice), hipErrorInvalidValue);
  found(SIM_BOUNDS, 1);
  FAILS(hipMemcpy(p, host, 16, (hipMemcpyKind)77), hipErrorInvalidMemcpyDirection);
  OK(hipFree(p));
}

static void wrong_frees_are_found(void **state) {
  (void)state;
  void *pinned = NULL, *p = device_memory();
  OK(hipHostMalloc(&pinned, 8, 0));
  FAILS(hipFree(pinned), hipErrorInvalidValue);
  found(SIM_STALE, 1);
  FAILS(hipFree((char *)p + 8), hipErrorInvalidValue);
  found(SIM_STALE, 1);
  OK(hipFree(p));
  FAILS(hipFree(p), hipErrorInvalidValue);
  found(SIM_STALE, 1);
  OK(hipHostFree(pinned));
}

static void a_pool_frees_in_its_stream(void **state) {
  (void)state;
  hipStream_t a = stream(), b = stream();
  void *p = NULL;
  OK(hipMallocAsync(&p, NBYTES, a));
  OK(hipMemsetAsync(p, 1, NBYTES, a));
  OK(hipFreeAsync(p, a));
  OK(hipMallocAsync(&p, NBYTES, a));
  OK(hipMemsetAsync(p, 1, NBYTES, a));
  OK(hipFreeAsync(p, b));
  found(SIM_RACE, 1);
  OK(hipDeviceSynchronize());
  OK(hipStreamDestroy(a));
  OK(hipStreamDestroy(b));
}

static void another_devices_memory(void **state) {
  (void)state;
  unsigned char in[NBYTES];
  void *p = device_memory(), *q;
  OK(hipSetDevice(1));
  q = device_memory();
  OK(hipSetDevice(0));
  OK(hipMemset(p, 4, NBYTES));
  OK(hipMemcpyPeer(q, 1, p, 0, NBYTES));
  OK(hipDeviceSynchronize());
  OK(hipMemcpy(in, q, NBYTES, hipMemcpyDeviceToHost));
  assert_true(all_bytes(in, NBYTES, 4));
  FAILS(hipMemset(q, 4, NBYTES), hipErrorInvalidValue);
  found(SIM_BOUNDS, 1);
  OK(hipDeviceEnablePeerAccess(1, 0));
  OK(hipMemset(q, 4, NBYTES));
  OK(hipDeviceSynchronize());
  OK(hipDeviceDisablePeerAccess(1));
  OK(hipFree(p));
  OK(hipFree(q));
}

static void what_is_left_is_reported(void **state) {
  (void)state;
  void *p = device_memory();
  assert_int_equal(sim_ledger(), 1 + FORWARDED); /* CUDA's context is retained there */
  assert_true(told("made by call"));
  assert_true(told(CALLED("hipMalloc", "cuMemAlloc")));
  sim_reset();
  OK(hipFree(p));
}

/* By somebody, while others use the device: what they had is gone. */
static void a_reset_takes_all_from_everybody(void **state) {
  RUNTIME_ONLY("resets CUDA's context");
  (void)state;
  void *p = device_memory(), *of_pool = NULL, *next = NULL;
  hipStream_t s = stream();
  OK(hipMallocAsync(&of_pool, NBYTES, s));
  OK(hipDeviceReset());
  found(SIM_WARNING, 1);
  FAILS(hipStreamSynchronize(s), hipErrorContextIsDestroyed);
  found(SIM_MISUSE, 1);
  FAILS(hipFree(p), hipErrorInvalidValue);
  FAILS(hipFreeAsync(of_pool, NULL), hipErrorInvalidValue);
  found(SIM_STALE, 2);
  OK(hipMalloc(&next, NBYTES));
  OK(hipFree(next));
  hipGetLastError();
}

RUN(SPEC(a_reset_takes_all_from_everybody), SPEC(no_bytes_have_no_address),
    SPEC(the_host_cannot_touch_device_memory), SPEC(pointers_are_told_apart), SPEC(bytes_go_there_and_back),
    SPEC(a_part_of_a_plane_and_of_a_box), SPEC(copies_that_describe_both_sides), SPEC(one_thing_about_a_pointer),
    SPEC(the_direction_must_be_true), SPEC(wrong_frees_are_found), SPEC(a_pool_frees_in_its_stream),
    SPEC(another_devices_memory), SPEC(what_is_left_is_reported))
