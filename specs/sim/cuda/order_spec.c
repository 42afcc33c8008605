/* order_spec.c: what is ordered, and that a missing wait is found whatever the seed. */
#include "spec.h"

static void same_stream_is_ordered(void **state) {
  (void)state;
  CUdeviceptr p = device_memory(), q = device_memory();
  CUstream s = stream();
  OK(cuMemsetD8Async(p, 1, NBYTES, s));
  OK(cuMemcpyDtoDAsync_v2(q, p, NBYTES, s));
  OK(cuStreamSynchronize(s));
  OK(cuMemFree_v2(p));
  OK(cuMemFree_v2(q));
  OK(cuStreamDestroy_v2(s));
}

/* One writes, another reads; with or without the wait. */
static void exchange(bool waits, CUstream a, CUstream b) {
  CUdeviceptr p = device_memory(), q = device_memory();
  OK(cuMemsetD8Async(p, 7, NBYTES, a));
  if (waits) follow(b, a);
  OK(cuMemcpyDtoDAsync_v2(q, p, NBYTES, b));
  OK(cuStreamSynchronize(a));
  OK(cuStreamSynchronize(b));
  OK(cuMemFree_v2(p));
  OK(cuMemFree_v2(q));
}

static void a_missing_wait_is_found_under_every_seed(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 50; seed++) {
    CUstream a = stream(), b = stream();
    sim_seed(seed);
    exchange(true, a, b);
    assert_int_equal(sim_findings(SIM_RACE), 0);
    exchange(false, a, b);
    found(SIM_RACE, 1);
    OK(cuStreamDestroy_v2(a));
    OK(cuStreamDestroy_v2(b));
  }
}

static void a_race_names_both_places_and_the_wait(void **state) {
  (void)state;
  char line[100];
  CUstream a = stream(), b = stream();
  exchange(false, a, b);
  assert_true(told("written by stream"));
  assert_true(told("cuMemsetD8Async"));
  assert_true(told("cuMemcpyDtoDAsync"));
  assert_true(told("from sim_order_spec"));
  snprintf(line, sizeof line, "missing: stream %p (device 0, non-blocking) must wait for stream %p", (void *)b,
           (void *)a);
  assert_true(told(line));
  found(SIM_RACE, 1);
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

/* Bytes as they are without the wait: the lazy driver has the reader run first, on poison. */
static void a_missing_wait_gives_wrong_bytes(void **state) {
  (void)state;
  unsigned char got[NBYTES];
  CUdeviceptr p = device_memory();
  CUstream a = stream(), b = stream();
  OK(cuMemsetD8Async(p, 7, NBYTES, a));
  OK(cuMemcpyDtoHAsync_v2(got, p, NBYTES, b));
  assert_true(all_bytes(got, NBYTES, 0xCB));
  found(SIM_RACE, 1);
  give_back(p, 0, a, b);
}

static void reads_do_not_race(void **state) {
  (void)state;
  unsigned char one[NBYTES], two[NBYTES];
  CUdeviceptr p = device_memory();
  CUstream a = stream(), b = stream();
  OK(cuMemsetD8Async(p, 7, NBYTES, a));
  OK(cuStreamSynchronize(a));
  OK(cuMemcpyDtoHAsync_v2(one, p, NBYTES, a));
  OK(cuMemcpyDtoHAsync_v2(two, p, NBYTES, b));
  assert_memory_equal(one, two, NBYTES);
  OK(cuMemFree_v2(p));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

static void a_later_write_must_wait_for_readers(void **state) {
  (void)state;
  CUdeviceptr p = device_memory(), q = device_memory();
  CUstream a = stream(), b = stream();
  OK(cuMemsetD8Async(p, 7, NBYTES, a));
  follow(b, a);
  OK(cuMemcpyDtoDAsync_v2(q, p, NBYTES, b));
  OK(cuMemsetD8Async(p, 8, NBYTES, a));
  found(SIM_RACE, 1);
  give_back(p, q, a, b);
}

static void different_bytes_do_not_race(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  CUstream a = stream(), b = stream();
  OK(cuMemsetD8Async(p, 7, NBYTES / 2, a));
  OK(cuMemsetD8Async(p + NBYTES / 2, 7, NBYTES / 2, b));
  assert_int_equal(sim_findings(SIM_RACE), 0);
  OK(cuCtxSynchronize());
  OK(cuMemsetD2D8Async(p, 64, 1, 32, NBYTES / 64, a));
  OK(cuMemsetD2D8Async(p + NBYTES / 2 + 32, 64, 2, 32, NBYTES / 128, b));
  assert_int_equal(sim_findings(SIM_RACE), 0);
  OK(cuMemsetD2D8Async(p + NBYTES / 2 + 31, 64, 2, 1, NBYTES / 128, b));
  found(SIM_RACE, 1);
  give_back(p, 0, a, b);
}

static void a_free_while_work_is_queued_is_a_race(void **state) {
  (void)state;
  for (int late = 0; late < 2; late++) {
    CUdeviceptr p = device_memory();
    CUstream s = stream();
    OK(cuMemsetD8Async(p, 7, NBYTES, s));
    if (!late) OK(cuStreamSynchronize(s));
    OK(cuMemFree_v2(p));
    if (late) assert_true(told("freed by host"));
    found(SIM_RACE, late ? 1 : 0);
    OK(cuStreamSynchronize(s));
    OK(cuStreamDestroy_v2(s));
  }
}

static void a_wait_means_the_last_record_before_it(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  CUstream a = stream(), b = stream();
  CUevent e = event();
  OK(cuMemsetD8Async(p, 1, 16, a));
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(cuMemsetD8Async(p + 16, 1, 16, a));
  OK(cuEventRecord(e, a));
  OK(cuMemsetD8Async(p, 2, 16, b));
  assert_int_equal(sim_findings(SIM_RACE), 0);
  OK(cuMemsetD8Async(p + 16, 2, 16, b));
  found(SIM_RACE, 1);
  OK(cuEventDestroy_v2(e));
  give_back(p, 0, a, b);
}

static void waiting_for_an_event_never_recorded_orders_nothing(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  CUstream a = stream(), b = stream();
  CUevent e = event();
  OK(cuMemsetD8Async(p, 1, NBYTES, a));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(cuMemsetD8Async(p, 2, NBYTES, b));
  found(SIM_RACE, 1);
  OK(cuEventDestroy_v2(e));
  give_back(p, 0, a, b);
}

/* A copy from the program's own memory returns before the bytes arrive, and one on a device before it has begun;
 * another stream must still wait. */
static void a_synchronous_copy_promises_no_more_than_documented(void **state) {
  (void)state;
  unsigned char bytes[NBYTES] = {1};
  void *pinned = NULL;
  CUdeviceptr p = device_memory(), q = device_memory();
  CUstream s = stream();
  OK(cuMemHostAlloc(&pinned, NBYTES, 0));
  OK(cuMemcpyHtoD_v2(p, pinned, NBYTES));
  OK(cuMemsetD8Async(p, 2, NBYTES, s));
  OK(cuStreamSynchronize(s));
  assert_int_equal(sim_findings(SIM_RACE), 0);
  OK(cuMemcpyHtoD_v2(p, bytes, NBYTES));
  OK(cuMemsetD8Async(p, 2, NBYTES, s));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  OK(cuMemcpyDtoD_v2(q, p, NBYTES));
  OK(cuMemsetD8Async(q, 2, NBYTES, s));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(p));
  OK(cuMemFree_v2(q));
  OK(cuMemFreeHost(pinned));
  OK(cuStreamDestroy_v2(s));
}

/* The program may change its own memory as soon as the call returns. */
static void bytes_of_pageable_memory_are_taken_at_once(void **state) {
  (void)state;
  unsigned char bytes[NBYTES], got[NBYTES];
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  memset(bytes, 1, sizeof bytes);
  OK(cuMemcpyHtoDAsync_v2(p, bytes, NBYTES, s));
  memset(bytes, 2, sizeof bytes);
  OK(cuMemcpyDtoHAsync_v2(got, p, NBYTES, s));
  assert_true(all_bytes(got, NBYTES, 1));
  OK(cuMemFree_v2(p));
  OK(cuStreamDestroy_v2(s));
}

static void a_read_does_not_hide_the_write_before_it(void **state) {
  (void)state;
  CUdeviceptr p = device_memory(), q = device_memory(), r = device_memory();
  CUstream a = stream(), b = stream();
  OK(cuMemsetD8Async(p, 1, NBYTES, a));
  OK(cuMemcpyDtoDAsync_v2(q, p, NBYTES, a));
  OK(cuMemcpyDtoDAsync_v2(r, p, NBYTES, b));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(p));
  OK(cuMemFree_v2(q));
  OK(cuMemFree_v2(r));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

/* Nor is it, in the vector clocks, the one that was destroyed. */
static void a_new_stream_is_not_ordered_after_one_that_is_gone(void **state) {
  CUdeviceptr p = device_memory();
  CUstream gone = stream();
  (void)state;
  OK(cuMemsetD8Async(p, 1, NBYTES, gone));
  OK(cuStreamDestroy_v2(gone));
  assert_int_equal(sim_findings(SIM_WARNING), 1);
  sim_reset();
  CUstream next = stream();
  OK(cuMemsetD8Async(p, 2, NBYTES, next));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  OK(cuMemsetD8Async(p, 3, NBYTES, next));
  OK(cuStreamSynchronize(next));
  OK(cuMemFree_v2(p));
  OK(cuStreamDestroy_v2(next));
}

static void a_pair_of_places_is_reported_once(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  CUstream a = stream(), b = stream();
  for (int i = 0; i < 5; i++) {
    OK(cuMemsetD8Async(p, 1, NBYTES, a));
    OK(cuMemsetD8Async(p, 2, NBYTES, b));
    OK(cuCtxSynchronize());
  }
  found(SIM_RACE, 1);
  OK(cuMemFree_v2(p));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

static void pinned_memory_is_checked_too(void **state) {
  (void)state;
  void *pinned = NULL;
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  OK(cuMemHostAlloc(&pinned, NBYTES, 0));
  OK(cuMemsetD8Async(p, 5, NBYTES, s));
  OK(cuMemcpyDtoHAsync_v2(pinned, p, NBYTES, s));
  sim_host_access(pinned, NBYTES, 0);
  found(SIM_RACE, 1);
  OK(cuStreamSynchronize(s));
  sim_host_access(pinned, NBYTES, 0);
  assert_true(all_bytes(pinned, NBYTES, 5));
  OK(cuMemcpyHtoDAsync_v2(p, pinned, NBYTES, s));
  sim_host_access(pinned, 1, 0);
  assert_int_equal(sim_findings(SIM_RACE), 0);
  sim_host_access(pinned, 1, 1);
  found(SIM_RACE, 1);
  OK(cuStreamSynchronize(s));
  OK(cuMemFree_v2(p));
  OK(cuMemFreeHost(pinned));
  OK(cuStreamDestroy_v2(s));
}

/* Also between two memories of the host's, where CUDA says that the call waits, and HIP does not. */
static void a_copy_in_a_stream_is_not_waited_for_by_the_call(void **state) {
  (void)state;
  void *from = NULL, *to = NULL;
  CUstream s = stream();
  OK(cuMemHostAlloc(&from, NBYTES, 0));
  OK(cuMemHostAlloc(&to, NBYTES, 0));
  memset(from, 5, NBYTES);
  OK(cuMemcpyAsync((CUdeviceptr)to, (CUdeviceptr)from, NBYTES, s));
  FAILS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
  sim_host_access(to, NBYTES, 0);
  found(SIM_RACE, 1);
  OK(cuStreamSynchronize(s));
  assert_true(all_bytes(to, NBYTES, 5));
  OK(cuMemFreeHost(from));
  OK(cuMemFreeHost(to));
  OK(cuStreamDestroy_v2(s));
}

RUN(SPEC(same_stream_is_ordered), SPEC(a_missing_wait_is_found_under_every_seed),
    SPEC(a_race_names_both_places_and_the_wait), SPEC(a_missing_wait_gives_wrong_bytes), SPEC(reads_do_not_race),
    SPEC(a_later_write_must_wait_for_readers), SPEC(different_bytes_do_not_race),
    SPEC(a_free_while_work_is_queued_is_a_race), SPEC(a_wait_means_the_last_record_before_it),
    SPEC(waiting_for_an_event_never_recorded_orders_nothing),
    SPEC(a_synchronous_copy_promises_no_more_than_documented), SPEC(bytes_of_pageable_memory_are_taken_at_once),
    SPEC(a_copy_in_a_stream_is_not_waited_for_by_the_call), SPEC(a_read_does_not_hide_the_write_before_it),
    SPEC(a_pair_of_places_is_reported_once),
    SPEC(pinned_memory_is_checked_too), SPEC(a_new_stream_is_not_ordered_after_one_that_is_gone))
