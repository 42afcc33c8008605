/* ipc_spec.c: memory, events and pools of two processes, by HIP's names and with HIP's answers.
 *
 * What crosses, and which races are seen, is looked at in ../cuda/ipc_spec.c: both drivers have it from one place. */
#define _GNU_SOURCE
#include "spec.h"

#include "../pair.h"

static void assert_bytes(const void *p, int value) {
  unsigned char bytes[NBYTES];
  OK(hipMemcpy(bytes, p, NBYTES, hipMemcpyDeviceToHost));
  assert_true(all_bytes(bytes, NBYTES, value));
}

/* Reads behind the other's event. */
static void wait_and_read(int fd) {
  hipIpcMemHandle_t h;
  hipIpcEventHandle_t eh;
  hipEvent_t e;
  void *p, *same;
  hipStream_t s = stream();
  hear(fd, &h, sizeof h);
  hear(fd, &eh, sizeof eh);
  FAILS(hipIpcOpenMemHandle(&p, h, 0), hipErrorInvalidValue);
  FAILS(hipIpcOpenMemHandle(NULL, h, hipIpcMemLazyEnablePeerAccess), hipErrorInvalidValue);
  OK(hipIpcOpenMemHandle(&p, h, hipIpcMemLazyEnablePeerAccess));
  OK(hipIpcOpenMemHandle(&same, h, hipIpcMemLazyEnablePeerAccess));
  OK(hipIpcOpenEventHandle(&e, eh));
  OK(hipStreamWaitEvent(s, e, 0));
  OK(hipStreamSynchronize(s));
  assert_bytes(p, 7);
  assert_bytes(same, 7);
  FAILS(hipEventElapsedTime(&(float){0}, e, e), hipErrorInvalidHandle);
  OK(hipEventDestroy(e));
  OK(hipStreamDestroy(s));
  OK(hipIpcCloseMemHandle(p));
  OK(hipIpcCloseMemHandle(same));
  FAILS(hipIpcCloseMemHandle(p), hipErrorInvalidHandle);
  assert_int_equal(sim_findings(SIM_STALE), 1);
  sim_reset();
  tell_done(fd);
}

/* The second process gets both handles after the work was queued. */
static pair shared(const char *role, void *p, hipEvent_t e) {
  hipIpcMemHandle_t h;
  hipIpcEventHandle_t eh;
  const pair two = second_process(role);
  OK(hipIpcGetMemHandle(&h, p));
  OK(hipIpcGetEventHandle(&eh, e));
  tell(two.fd, &h, sizeof h);
  tell(two.fd, &eh, sizeof eh);
  return two;
}

static hipEvent_t event_of_both(void) {
  hipEvent_t e = NULL;
  OK(hipEventCreateWithFlags(&e, hipEventInterprocess | hipEventDisableTiming));
  return e;
}

static void memory_and_an_event_cross(void **state) {
  (void)state;
  hipStream_t s = stream();
  hipEvent_t e = event_of_both();
  void *p = device_memory();
  OK(hipMemsetAsync(p, 7, NBYTES, s));
  OK(hipEventRecord(e, s));
  const pair two = shared("wait_and_read", p, e);
  hear_done(two.fd);
  finish_well(two);
  OK(hipStreamSynchronize(s));
  OK(hipStreamDestroy(s));
  OK(hipEventDestroy(e));
  OK(hipFree(p));
}

/* Reads without waiting for the event. */
static void read_early(int fd) {
  hipIpcMemHandle_t h;
  hipIpcEventHandle_t eh;
  void *p;
  hear(fd, &h, sizeof h);
  hear(fd, &eh, sizeof eh);
  OK(hipIpcOpenMemHandle(&p, h, hipIpcMemLazyEnablePeerAccess));
  OK(hipMemcpy((char[NBYTES]){0}, p, NBYTES, hipMemcpyDeviceToHost));
  OK(hipIpcCloseMemHandle(p));
}

static void a_missing_wait_is_a_race_of_two_processes(void **state) {
  (void)state;
  hipStream_t s = stream();
  hipEvent_t e = event_of_both();
  void *p = device_memory();
  OK(hipMemsetAsync(p, 7, NBYTES, s));
  const outcome o = finish(shared("read_early", p, e));
  assert_int_equal(o.findings, 1);
  assert_int_equal(o.races, 1);
  assert_non_null(strstr(o.text, CALLED("hipMemsetAsync", "cuMemsetD8Async")));
  OK(hipStreamSynchronize(s));
  OK(hipStreamDestroy(s));
  OK(hipEventDestroy(e));
  OK(hipFree(p));
}

static void what_has_no_handle_and_what_opens_none(void **state) {
  (void)state;
  hipIpcMemHandle_t h;
  hipIpcEventHandle_t eh;
  void *p = device_memory(), *pinned, *q = NULL;
  hipEvent_t e = event(), other = NULL;
  OK(hipHostMalloc(&pinned, NBYTES, 0));
  FAILS(hipIpcGetMemHandle(NULL, p), hipErrorInvalidValue);
  FAILS(hipIpcGetMemHandle(&h, NULL), hipErrorInvalidValue);
  FAILS(hipIpcGetMemHandle(&h, (char *)p + 64), hipErrorInvalidDevicePointer);
  FAILS(hipIpcGetMemHandle(&h, pinned), hipErrorInvalidDevicePointer);
  FAILS(hipIpcGetEventHandle(&eh, e), hipErrorInvalidHandle);
  FAILS(hipEventCreateWithFlags(&other, hipEventInterprocess), hipErrorInvalidValue);
  OK(hipIpcGetMemHandle(&h, p));
  FAILS(hipIpcOpenMemHandle(&q, h, hipIpcMemLazyEnablePeerAccess), hipErrorInvalidContext);
  found(SIM_MISUSE, 1);
  memset(&h, 1, sizeof h);
  FAILS(hipIpcOpenMemHandle(&q, h, hipIpcMemLazyEnablePeerAccess), hipErrorInvalidDevicePointer);
  FAILS(hipIpcCloseMemHandle(NULL), hipErrorInvalidValue);
  FAILS(hipIpcCloseMemHandle(p), hipErrorInvalidHandle);
  found(SIM_STALE, 1);
  hipGetLastError();
  OK(hipEventDestroy(e));
  OK(hipHostFree(pinned));
  OK(hipFree(p));
}

static void take_from_pool(int fd) {
  hipMemPool_t pool;
  hipMemPoolPtrExportData data;
  void *p;
  const int file = take_descriptor(fd);
  OK(hipMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)file, hipMemHandleTypePosixFileDescriptor, 0));
  close(file);
  hear(fd, &data, sizeof data);
  OK(hipMemPoolImportPointer(&p, pool, &data));
  assert_bytes(p, 7);
  OK(hipFreeAsync(p, NULL));
  OK(hipStreamSynchronize(NULL));
  OK(hipMemPoolDestroy(pool));
  tell_done(fd);
}

static void memory_of_a_pool_crosses(void **state) {
  (void)state;
  const hipMemPoolProps props = {.allocType = hipMemAllocationTypePinned,
                                 .handleTypes = hipMemHandleTypePosixFileDescriptor,
                                 .location = {hipMemLocationTypeDevice, 0}};
  hipMemPool_t pool;
  hipMemPoolPtrExportData data;
  void *p;
  int file;
  const pair two = second_process("take_from_pool");
  OK(hipMemPoolCreate(&pool, &props));
  OK(hipMemPoolExportToShareableHandle(&file, pool, hipMemHandleTypePosixFileDescriptor, 0));
  pass_descriptor(two.fd, file);
  close(file);
  OK(hipMallocFromPoolAsync(&p, NBYTES, pool, NULL));
  OK(hipMemsetAsync(p, 7, NBYTES, NULL));
  OK(hipStreamSynchronize(NULL));
  OK(hipMemPoolExportPointer(&data, p));
  tell(two.fd, &data, sizeof data);
  hear_done(two.fd);
  finish_well(two);
  OK(hipFreeAsync(p, NULL));
  OK(hipStreamSynchronize(NULL));
  OK(hipMemPoolDestroy(pool));
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "wait_and_read") == 0) return second(wait_and_read, atoi(argv[2]));
  if (argc == 3 && strcmp(argv[1], "read_early") == 0) return second(read_early, atoi(argv[2]));
  if (argc == 3 && strcmp(argv[1], "take_from_pool") == 0) return second(take_from_pool, atoi(argv[2]));
  const struct CMUnitTest specs[] = {
      SPEC(memory_and_an_event_cross),
      SPEC(a_missing_wait_is_a_race_of_two_processes),
      SPEC(what_has_no_handle_and_what_opens_none),
      SPEC(memory_of_a_pool_crosses),
  };
  return cmocka_run_group_tests(specs, NULL, NULL);
}
