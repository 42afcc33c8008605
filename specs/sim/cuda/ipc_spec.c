/* ipc_spec.c: memory, events and pools that two processes have in common.
 *
 * In most specs this process has the memory, and the second one opens it. */
#define _GNU_SOURCE
#include "spec.h"

#include "../pair.h"

enum { SEEDS = 6 };

static CUdeviceptr opened(int fd) {
  CUipcMemHandle h;
  CUdeviceptr p = 0;
  hear(fd, &h, sizeof h);
  OK(cuIpcOpenMemHandle_v2(&p, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  return p;
}

static CUevent opened_event(int fd) {
  CUipcEventHandle h;
  CUevent e = NULL;
  hear(fd, &h, sizeof h);
  OK(cuIpcOpenEventHandle(&e, h));
  return e;
}

static void give_memory(int fd, CUdeviceptr p) {
  CUipcMemHandle h;
  OK(cuIpcGetMemHandle(&h, p));
  tell(fd, &h, sizeof h);
}

static CUevent give_event(int fd) {
  CUevent e = NULL;
  CUipcEventHandle h;
  OK(cuEventCreate(&e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  OK(cuIpcGetEventHandle(&h, e));
  tell(fd, &h, sizeof h);
  return e;
}

static void assert_bytes(CUdeviceptr p, int value) {
  unsigned char bytes[NBYTES];
  OK(cuMemcpyDtoH_v2(bytes, p, NBYTES));
  assert_true(all_bytes(bytes, NBYTES, value));
}

/* Reads 7, writes 9. */
static void use(int fd) {
  CUdeviceptr p = opened(fd);
  assert_bytes(p, 7);
  OK(cuMemsetD8_v2(p, 9, NBYTES));
  OK(cuCtxSynchronize());
  OK(cuIpcCloseMemHandle(p));
  tell_done(fd);
}

static void another_process_has_the_same_memory(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  const pair two = second_process("use");
  OK(cuMemsetD8_v2(p, 7, NBYTES));
  OK(cuCtxSynchronize());
  give_memory(two.fd, p);
  hear_done(two.fd);
  assert_bytes(p, 9);
  finish_well(two);
  OK(cuMemFree_v2(p));
}

static void open_twice(int fd) {
  CUipcMemHandle h;
  CUdeviceptr p, q;
  hear(fd, &h, sizeof h);
  OK(cuIpcOpenMemHandle_v2(&p, h, 1));
  OK(cuIpcOpenMemHandle_v2(&q, h, 1));
  assert_int_equal(p, q);
  FAILS(cuIpcOpenMemHandle_v2(&q, h, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuIpcCloseMemHandle(p));
  assert_bytes(p, 7);
  OK(cuIpcCloseMemHandle(p));
  FAILS(cuIpcCloseMemHandle(p), CUDA_ERROR_INVALID_VALUE);
  assert_int_equal(sim_findings(SIM_STALE), 1);
  sim_reset();
}

static void a_handle_is_opened_twice_and_closed_twice(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  OK(cuMemsetD8_v2(p, 7, NBYTES));
  OK(cuCtxSynchronize());
  const pair two = second_process("open_twice");
  give_memory(two.fd, p);
  finish_well(two);
  OK(cuMemFree_v2(p));
}

/* Reads on a stream behind the other's event. */
static void wait_and_read(int fd) {
  uint64_t seed;
  hear(fd, &seed, sizeof seed);
  sim_seed(seed);
  CUdeviceptr p = opened(fd);
  CUevent e = opened_event(fd);
  CUstream s = stream();
  void *out;
  OK(cuMemHostAlloc(&out, NBYTES, 0));
  hear_done(fd);
  OK(cuStreamWaitEvent(s, e, 0));
  OK(cuMemcpyDtoHAsync_v2(out, p, NBYTES, s));
  OK(cuStreamSynchronize(s));
  assert_true(all_bytes(out, NBYTES, 7));
  OK(cuMemFreeHost(out));
  OK(cuStreamDestroy_v2(s));
  OK(cuEventDestroy_v2(e));
  OK(cuIpcCloseMemHandle(p));
  tell_done(fd);
}

static void an_event_of_another_process_orders(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    sim_seed(seed);
    const pair two = second_process("wait_and_read");
    tell(two.fd, &seed, sizeof seed);
    CUdeviceptr p = device_memory();
    CUstream s = stream();
    give_memory(two.fd, p);
    CUevent e = give_event(two.fd);
    OK(cuMemsetD8Async(p, 7, NBYTES, s));
    OK(cuEventRecord(e, s));
    tell_done(two.fd);
    hear_done(two.fd);
    finish_well(two);
    OK(cuStreamSynchronize(s));
    OK(cuEventDestroy_v2(e));
    give_back(p, 0, s, NULL);
  }
}

/* Reads at once. */
static void read_early(int fd) {
  CUdeviceptr p = opened(fd);
  CUstream s = stream();
  void *out;
  OK(cuMemHostAlloc(&out, NBYTES, 0));
  hear_done(fd);
  OK(cuMemcpyDtoHAsync_v2(out, p, NBYTES, s));
  OK(cuStreamSynchronize(s));
  OK(cuMemFreeHost(out));
  OK(cuStreamDestroy_v2(s));
  OK(cuIpcCloseMemHandle(p));
  tell_done(fd);
}

/* The work is queued before there is a handle, or after. */
static outcome unordered(bool wait, bool before) {
  const pair two = second_process("read_early");
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  if (!before) give_memory(two.fd, p);
  OK(cuMemsetD8Async(p, 7, NBYTES, s));
  if (before) give_memory(two.fd, p);
  if (wait) OK(cuStreamSynchronize(s));
  tell_done(two.fd);
  hear_done(two.fd);
  const outcome o = finish(two);
  give_back(p, 0, s, NULL);
  return o;
}

static void a_read_that_waits_for_nothing_races_with_the_other_process(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    sim_seed(seed);
    const outcome o = unordered(false, seed % 2 != 0);
    assert_int_equal(o.findings, 1);
    assert_int_equal(o.races, 1);
    assert_non_null(strstr(o.text, "written by stream"));
    assert_non_null(strstr(o.text, "of process"));
    assert_non_null(strstr(o.text, "cuMemsetD8Async"));
    assert_int_equal(unordered(true, seed % 2 != 0).findings, 0);
  }
}

/* Writes behind nothing, and records: the first process waits. */
static void write_and_record(int fd) {
  CUdeviceptr p = opened(fd);
  CUevent e = opened_event(fd);
  CUstream s = stream();
  OK(cuMemsetD8Async(p, 7, NBYTES, s));
  OK(cuEventRecord(e, s));
  tell_done(fd);
  hear_done(fd);
  OK(cuStreamSynchronize(s));
  OK(cuStreamDestroy_v2(s));
  OK(cuEventDestroy_v2(e));
  OK(cuIpcCloseMemHandle(p));
}

static void whoever_opened_an_event_may_record_it(void **state) {
  (void)state;
  const pair two = second_process("write_and_record");
  CUdeviceptr p = device_memory();
  give_memory(two.fd, p);
  CUevent e = give_event(two.fd);
  OK(cuEventSynchronize(e)); /* nobody has recorded it, perhaps */
  hear_done(two.fd);
  FAILS(cuEventElapsedTime(&(float){0}, e, e), CUDA_ERROR_INVALID_HANDLE);
  OK(cuEventSynchronize(e));
  OK(cuEventQuery(e));
  assert_bytes(p, 7);
  tell_done(two.fd);
  finish_well(two);
  OK(cuEventDestroy_v2(e));
  OK(cuMemFree_v2(p));
}

/* The first process waits for nothing. */
static void the_race_is_seen_on_the_other_side_too(void **state) {
  (void)state;
  const pair two = second_process("write_and_record");
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  give_memory(two.fd, p);
  CUevent e = give_event(two.fd);
  hear_done(two.fd);
  OK(cuMemsetD8Async(p, 1, NBYTES, s));
  found(SIM_RACE, 1);
  OK(cuStreamSynchronize(s));
  tell_done(two.fd);
  finish(two);
  OK(cuEventDestroy_v2(e));
  give_back(p, 0, s, NULL);
}

/* Holds the memory until told, then touches it. */
static void hold(int fd) {
  CUdeviceptr p = opened(fd);
  tell_done(fd);
  hear_done(fd);
  OK(cuMemsetD8_v2(p, 9, NBYTES));
  OK(cuCtxSynchronize());
  OK(cuIpcCloseMemHandle(p));
}

static void memory_is_not_freed_while_another_process_has_it(void **state) {
  (void)state;
  const pair two = second_process("hold");
  CUdeviceptr p = device_memory();
  give_memory(two.fd, p);
  hear_done(two.fd);
  OK(cuMemFree_v2(p));
  assert_true(told("memory is freed while process"));
  found(SIM_MISUSE, 1);
  tell_done(two.fd);
  const outcome o = finish(two);
  assert_int_equal(o.findings, 1);
  assert_non_null(strstr(o.text, "which has freed it"));
}

/* Closes with a read queued. */
static void close_early(int fd) {
  CUdeviceptr p = opened(fd);
  CUstream s = stream();
  void *out;
  OK(cuMemHostAlloc(&out, NBYTES, 0));
  OK(cuMemcpyDtoHAsync_v2(out, p, NBYTES, s));
  OK(cuIpcCloseMemHandle(p));
  OK(cuStreamSynchronize(s));
  OK(cuMemFreeHost(out));
  OK(cuStreamDestroy_v2(s));
}

static void memory_is_not_closed_while_work_on_it_is_queued(void **state) {
  (void)state;
  const pair two = second_process("close_early");
  CUdeviceptr p = device_memory();
  OK(cuMemsetD8_v2(p, 7, NBYTES));
  OK(cuCtxSynchronize());
  give_memory(two.fd, p);
  const outcome o = finish(two);
  assert_int_equal(o.findings, 1);
  assert_non_null(strstr(o.text, "unmapped by host"));
  OK(cuMemFree_v2(p));
}

/* Is the one that has the memory, and ends. */
static void leave(int fd) {
  CUdeviceptr p = device_memory();
  OK(cuMemsetD8_v2(p, 7, NBYTES));
  OK(cuCtxSynchronize());
  give_memory(fd, p);
  hear_done(fd);
}

static void memory_ends_with_its_process(void **state) {
  (void)state;
  const pair two = second_process("leave");
  CUipcMemHandle h;
  CUdeviceptr p = 0;
  hear(two.fd, &h, sizeof h);
  OK(cuIpcOpenMemHandle_v2(&p, h, 1));
  assert_bytes(p, 7);
  FAILS(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
  found(SIM_STALE, 1);
  tell_done(two.fd);
  finish(two);
  OK(cuMemsetD8_v2(p, 1, NBYTES));
  assert_true(told("which has ended"));
  found(SIM_STALE, 1);
  OK(cuCtxSynchronize());
  OK(cuIpcCloseMemHandle(p));
  FAILS(cuIpcOpenMemHandle_v2(&p, h, 1), CUDA_ERROR_INVALID_HANDLE);
  assert_true(told("its memory is gone"));
  found(SIM_MISUSE, 1);
}

static void what_has_no_handle_and_what_opens_none(void **state) {
  (void)state;
  CUipcMemHandle h;
  CUipcEventHandle eh;
  CUdeviceptr p = device_memory(), q = 0;
  void *pinned;
  CUevent e = event();
  OK(cuMemHostAlloc(&pinned, NBYTES, 0));
  OK(cuIpcGetMemHandle(&h, p));
  FAILS(cuIpcGetMemHandle(&h, p + 64), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuIpcGetMemHandle(NULL, p), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuIpcGetMemHandle(&h, (CUdeviceptr)(uintptr_t)pinned), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuIpcGetEventHandle(&eh, e), CUDA_ERROR_INVALID_HANDLE);
  FAILS(cuEventCreate(&e, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuIpcOpenMemHandle_v2(&q, h, 1), CUDA_ERROR_INVALID_CONTEXT);
  found(SIM_MISUSE, 1);
  memset(&h, 1, sizeof h);
  FAILS(cuIpcOpenMemHandle_v2(&q, h, 1), CUDA_ERROR_INVALID_HANDLE);
  FAILS(cuIpcCloseMemHandle(p), CUDA_ERROR_INVALID_VALUE);
  found(SIM_STALE, 1);
  OK(cuEventDestroy_v2(e));
  OK(cuMemFreeHost(pinned));
  OK(cuMemFree_v2(p));
}

/* Takes memory of the other's pool, reads it behind its event, frees it in stream order. */
static void take_from_pool(int fd) {
  CUmemoryPool pool;
  CUmemPoolPtrExportData data;
  CUdeviceptr p, q;
  const int file = take_descriptor(fd);
  OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  close(file);
  hear(fd, &data, sizeof data);
  OK(cuMemPoolImportPointer(&p, pool, &data));
  CUevent e = opened_event(fd);
  CUstream s = stream();
  hear_done(fd);
  OK(cuStreamWaitEvent(s, e, 0));
  FAILS(cuMemAllocFromPoolAsync(&q, NBYTES, pool, s), CUDA_ERROR_INVALID_VALUE);
  unsigned char bytes[NBYTES];
  OK(cuMemcpyDtoHAsync_v2(bytes, p, NBYTES, s));
  assert_true(all_bytes(bytes, NBYTES, 7));
  OK(cuMemFreeAsync(p, s));
  OK(cuStreamSynchronize(s));
  OK(cuStreamDestroy_v2(s));
  OK(cuEventDestroy_v2(e));
  OK(cuMemPoolDestroy(pool));
}

static void memory_of_a_pool_crosses(void **state) {
  (void)state;
  const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemoryPool pool;
  CUmemPoolPtrExportData data;
  CUdeviceptr p;
  int file;
  CUstream s = stream();
  const pair two = second_process("take_from_pool");
  OK(cuMemPoolCreate(&pool, &props));
  OK(cuMemPoolExportToShareableHandle(&file, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  pass_descriptor(two.fd, file);
  close(file);
  OK(cuMemAllocFromPoolAsync(&p, NBYTES, pool, s));
  OK(cuMemPoolExportPointer(&data, p));
  tell(two.fd, &data, sizeof data);
  CUevent e = give_event(two.fd);
  OK(cuMemsetD8Async(p, 7, NBYTES, s));
  OK(cuEventRecord(e, s));
  tell_done(two.fd);
  finish_well(two);
  OK(cuMemFreeAsync(p, s));
  OK(cuStreamSynchronize(s));
  OK(cuStreamDestroy_v2(s));
  OK(cuEventDestroy_v2(e));
  OK(cuMemPoolDestroy(pool));
}

static void a_pool_that_is_not_for_others_gives_nothing(void **state) {
  (void)state;
  CUmemoryPool pool;
  CUmemPoolPtrExportData data;
  CUdeviceptr p;
  int file;
  CUstream s = stream();
  OK(cuDeviceGetDefaultMemPool(&pool, 0));
  FAILS(cuMemPoolExportToShareableHandle(&file, pool, 1, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemAllocAsync(&p, NBYTES, s));
  FAILS(cuMemPoolExportPointer(&data, p), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFreeAsync(p, s));
  OK(cuStreamSynchronize(s));
  OK(cuStreamDestroy_v2(s));
}

static const struct {
  const char *name;
  void (*role)(int);
} roles[] = {{"use", use},
             {"open_twice", open_twice},
             {"wait_and_read", wait_and_read},
             {"read_early", read_early},
             {"write_and_record", write_and_record},
             {"hold", hold},
             {"close_early", close_early},
             {"leave", leave},
             {"take_from_pool", take_from_pool}};

int main(int argc, char **argv) {
  for (size_t i = 0; argc == 3 && i < sizeof roles / sizeof *roles; i++)
    if (strcmp(argv[1], roles[i].name) == 0) return second(roles[i].role, atoi(argv[2]));
  const struct CMUnitTest specs[] = {
      SPEC(another_process_has_the_same_memory),
      SPEC(a_handle_is_opened_twice_and_closed_twice),
      SPEC(an_event_of_another_process_orders),
      SPEC(a_read_that_waits_for_nothing_races_with_the_other_process),
      SPEC(whoever_opened_an_event_may_record_it),
      SPEC(the_race_is_seen_on_the_other_side_too),
      SPEC(memory_is_not_freed_while_another_process_has_it),
      SPEC(memory_is_not_closed_while_work_on_it_is_queued),
      SPEC(memory_ends_with_its_process),
      SPEC(what_has_no_handle_and_what_opens_none),
      SPEC(memory_of_a_pool_crosses),
      SPEC(a_pool_that_is_not_for_others_gives_nothing),
  };
  return cmocka_run_group_tests(specs, NULL, NULL);
}
