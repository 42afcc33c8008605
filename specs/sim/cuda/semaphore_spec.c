/* semaphore_spec.c: semaphores of another API: streams wait for its signals and signal to it, waits order streams of
 * ours, and what a GPU would hang on, or do wrong, is reported. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "spec.h"

static CUexternalSemaphore imported(int fd, bool binary) {
  const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC of = {
      .type = binary ? CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD
                     : CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,
      .handle.fd = dup(fd)};
  CUexternalSemaphore m = NULL;
  OK(cuImportExternalSemaphore(&m, &of));
  return m;
}

static CUresult wait_for(CUexternalSemaphore m, uint64_t value, CUstream s) {
  const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS reach = {.params.fence.value = value};
  return cuWaitExternalSemaphoresAsync(&m, &reach, 1, s);
}

static CUresult signal_with(CUexternalSemaphore m, uint64_t value, CUstream s) {
  const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS reach = {.params.fence.value = value};
  return cuSignalExternalSemaphoresAsync(&m, &reach, 1, s);
}

static uint64_t value_of(int fd) {
  uint64_t value;
  assert_int_equal(sim_semaphore_read(fd, &value), 0);
  return value;
}

static uint64_t host_waits(void) {
  return sim_calls("cuStreamSynchronize");
}

static uint64_t waits_before;

/* Signals when the host has begun to wait. */
static void *the_other_api(void *ctx) {
  while (host_waits() == waits_before) sched_yield();
  assert_int_equal(sim_semaphore_signal(*(int *)ctx, 5), 0);
  return NULL;
}

static void it_goes_both_ways(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 20; seed++) {
    unsigned char got[NBYTES];
    pthread_t other;
    sim_seed(seed);
    int fd = sim_semaphore_create(3, 0);
    CUexternalSemaphore m = imported(fd, false);
    CUdeviceptr p = device_memory();
    CUstream s = stream();
    OK(wait_for(m, 3, s)); /* it has that */
    OK(cuMemsetD8Async(p, 1, NBYTES, s));
    OK(cuStreamSynchronize(s));
    OK(wait_for(m, 5, s));
    OK(cuMemsetD8Async(p, 2, NBYTES, s));
    OK(signal_with(m, 6, s));
    for (int i = 0; i < 10; i++) FAILS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    assert_int_equal(sim_peek((void *)(uintptr_t)p, got, NBYTES), 0);
    assert_true(all_bytes(got, NBYTES, 1)); /* nothing behind the wait has run */
    assert_int_equal(value_of(fd), 3);
    waits_before = host_waits();
    assert_int_equal(pthread_create(&other, NULL, the_other_api, &fd), 0);
    OK(cuStreamSynchronize(s));
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_int_equal(value_of(fd), 6);
    OK(cuMemcpyDtoH_v2(got, p, NBYTES));
    assert_true(all_bytes(got, NBYTES, 2));
    OK(cuMemFree_v2(p));
    OK(cuStreamDestroy_v2(s));
    OK(cuDestroyExternalSemaphore(m));
    close(fd);
  }
}

/* One stream's signal is another's wait; without the wait it is a race. */
static void it_orders_streams(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 20; seed++) {
    sim_seed(seed);
    const int fd = sim_semaphore_create(0, 0);
    CUexternalSemaphore m = imported(fd, false), same = imported(fd, false);
    CUdeviceptr p = device_memory();
    CUstream a = stream(), b = stream();
    for (uint64_t n = 0; n < 100; n += 2) {
      OK(cuMemsetD8Async(p, 1, NBYTES, a));
      OK(signal_with(m, n + 1, a));
      OK(wait_for(same, n + 1, b));
      OK(cuMemsetD8Async(p, 2, NBYTES, b));
      OK(signal_with(same, n + 2, b));
      OK(wait_for(m, n + 2, a));
    }
    OK(cuCtxSynchronize());
    found(SIM_ANY, 0);
    OK(cuMemsetD8Async(p, 1, NBYTES, a));
    OK(signal_with(m, 101, a));
    OK(wait_for(m, 100, b)); /* not what was signalled */
    OK(cuMemsetD8Async(p, 2, NBYTES, b));
    found(SIM_RACE, 1);
    OK(cuCtxSynchronize());
    OK(cuMemFree_v2(p));
    OK(cuStreamDestroy_v2(a));
    OK(cuStreamDestroy_v2(b));
    OK(cuDestroyExternalSemaphore(m));
    OK(cuDestroyExternalSemaphore(same));
    close(fd);
  }
}

/* A wait that was queued first is ended by a signal that is queued after it, on another stream. */
static void a_wait_may_come_first(void **state) {
  (void)state;
  const int fd = sim_semaphore_create(0, 0);
  CUexternalSemaphore m = imported(fd, false);
  CUstream a = stream(), b = stream();
  OK(wait_for(m, 1, a));
  OK(signal_with(m, 2, a));
  OK(wait_for(m, 2, b));
  FAILS(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
  OK(signal_with(m, 1, b)); /* behind b's wait: nothing can run */
  assert_int_equal(sim_semaphore_signal(fd, 1), 0);
  OK(cuStreamSynchronize(a));
  OK(cuStreamSynchronize(b));
  assert_true(told("its value must rise"));
  found(SIM_MISUSE, 1); /* b's signal came when the value was 2 */
  assert_int_equal(value_of(fd), 2);
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
  OK(cuDestroyExternalSemaphore(m));
  close(fd);
}

static void a_binary_one_is_taken(void **state) {
  (void)state;
  const int fd = sim_semaphore_create(0, 1);
  CUexternalSemaphore m = imported(fd, true);
  CUstream a = stream(), b = stream();
  for (int i = 0; i < 3; i++) {
    OK(signal_with(m, 77, a));
    OK(wait_for(m, 99, b));
    OK(cuStreamSynchronize(b));
    assert_int_equal(value_of(fd), 0);
  }
  OK(signal_with(m, 0, a));
  OK(signal_with(m, 0, a));
  OK(cuStreamSynchronize(a));
  assert_true(told("nobody has waited for it"));
  found(SIM_MISUSE, 1);
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
  OK(cuDestroyExternalSemaphore(m));
  close(fd);
}

/* SIM_PATIENCE is 3 for this program. */
static void a_wait_in_vain(void **state) {
  (void)state;
  const int fd = sim_semaphore_create(4, 0);
  CUexternalSemaphore m = imported(fd, false);
  CUstream s = stream();
  OK(wait_for(m, 5, s));
  OK(cuStreamSynchronize(s));
  assert_true(told("waits for 5 of a semaphore that has 4"));
  found(SIM_MISUSE, 1);
  OK(cuStreamDestroy_v2(s));
  OK(cuDestroyExternalSemaphore(m));
  close(fd);
}

static void misuse(void **state) {
  (void)state;
  const int fd = sim_semaphore_create(0, 0), other = memfd_create("other", MFD_CLOEXEC);
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC of = {.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd};
  CUexternalSemaphore m = NULL;
  CUstream s = stream();
  FAILS(cuImportExternalSemaphore(&m, &of), CUDA_ERROR_INVALID_VALUE);
  assert_true(told("imported as a binary semaphore"));
  of.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
  of.handle.fd = other;
  FAILS(cuImportExternalSemaphore(&m, &of), CUDA_ERROR_INVALID_VALUE);
  assert_true(told("is no semaphore"));
  found(SIM_MISUSE, 2);
  of.type = 2;
  FAILS(cuImportExternalSemaphore(&m, &of), CUDA_ERROR_NOT_SUPPORTED);
  of = (CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC){.type = 9, .handle.fd = fd, .flags = 1};
  FAILS(cuImportExternalSemaphore(&m, &of), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuImportExternalSemaphore(&m, NULL), CUDA_ERROR_INVALID_VALUE);
  assert_true(fcntl(fd, F_GETFD) >= 0); /* what fails takes nothing over */
  m = imported(fd, false);
  FAILS(cuWaitExternalSemaphoresAsync(&m, NULL, 1, s), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuSignalExternalSemaphoresAsync(NULL, NULL, 0, s), CUDA_ERROR_INVALID_VALUE);
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  FAILS(signal_with(m, 1, s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph graph = NULL;
  FAILS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  found(SIM_CAPTURE, 1);
  OK(signal_with(m, 1, s));
  OK(cuDestroyExternalSemaphore(m));
  assert_true(told("has work with it"));
  found(SIM_MISUSE, 1);
  OK(cuStreamSynchronize(s));
  assert_int_equal(value_of(fd), 1);
  FAILS(signal_with(m, 2, s), CUDA_ERROR_INVALID_HANDLE);
  found(SIM_MISUSE, 1);
  OK(cuStreamDestroy_v2(s));
  assert_int_equal(sim_semaphore_signal(other, 1), -1);
  close(other);
  close(fd);
}

RUN(SPEC(it_goes_both_ways), SPEC(it_orders_streams), SPEC(a_wait_may_come_first), SPEC(a_binary_one_is_taken),
    SPEC(a_wait_in_vain), SPEC(misuse))
