/* ipc_spec.c: memory, events and pools of two processes, through the runtime's calls. */
#define _GNU_SOURCE
#include "spec.h"

#include "../pair.h"

static void assert_bytes(const void *p, int value) {
  unsigned char bytes[NBYTES];
  OK(cudaMemcpy(bytes, p, NBYTES, cudaMemcpyDeviceToHost));
  assert_true(all_bytes(bytes, NBYTES, value));
}

/* Reads behind the other's event. */
static void wait_and_read(int fd) {
  cudaIpcMemHandle_t h;
  cudaIpcEventHandle_t eh;
  cudaEvent_t e;
  void *p, *same;
  hear(fd, &h, sizeof h);
  hear(fd, &eh, sizeof eh);
  OK(cudaIpcOpenMemHandle(&p, h, cudaIpcMemLazyEnablePeerAccess));
  OK(cudaIpcOpenMemHandle(&same, h, cudaIpcMemLazyEnablePeerAccess));
  assert_ptr_equal(p, same);
  OK(cudaIpcOpenEventHandle(&e, eh));
  OK(cudaStreamWaitEvent(NULL, e, 0));
  assert_bytes(p, 7);
  OK(cudaEventDestroy(e));
  OK(cudaIpcCloseMemHandle(p));
  OK(cudaIpcCloseMemHandle(p));
  tell_done(fd);
}

static void memory_and_an_event_cross(void **state) {
  (void)state;
  cudaIpcMemHandle_t h;
  cudaIpcEventHandle_t eh;
  cudaEvent_t e;
  cudaStream_t s = stream();
  char *p = device_memory();
  const pair two = second_process("wait_and_read");
  OK(cudaEventCreateWithFlags(&e, cudaEventInterprocess | cudaEventDisableTiming));
  OK(cudaMemsetAsync(p, 7, NBYTES, s));
  OK(cudaEventRecord(e, s));
  OK(cudaIpcGetMemHandle(&h, p));
  OK(cudaIpcGetEventHandle(&eh, e));
  tell(two.fd, &h, sizeof h);
  tell(two.fd, &eh, sizeof eh);
  hear_done(two.fd);
  finish_well(two);
  FAILS(cudaIpcOpenMemHandle((void **)&p, h, cudaIpcMemLazyEnablePeerAccess), cudaErrorDeviceUninitialized);
  found(SIM_MISUSE, 1);
  OK(cudaStreamSynchronize(s));
  OK(cudaStreamDestroy(s));
  OK(cudaEventDestroy(e));
  OK(cudaFree(p));
}

static void take_from_pool(int fd) {
  cudaMemPool_t pool;
  cudaMemPoolPtrExportData data;
  void *p;
  const int file = take_descriptor(fd);
  OK(cudaMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)file, cudaMemHandleTypePosixFileDescriptor, 0));
  close(file);
  hear(fd, &data, sizeof data);
  OK(cudaMemPoolImportPointer(&p, pool, &data));
  assert_bytes(p, 7);
  OK(cudaFreeAsync(p, NULL));
  OK(cudaStreamSynchronize(NULL));
  OK(cudaMemPoolDestroy(pool));
  tell_done(fd);
}

static void memory_of_a_pool_crosses(void **state) {
  (void)state;
  const cudaMemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                  .handleTypes = cudaMemHandleTypePosixFileDescriptor};
  cudaMemPool_t pool;
  cudaMemPoolPtrExportData data;
  void *p;
  int file;
  const pair two = second_process("take_from_pool");
  OK(cudaMemPoolCreate(&pool, &props));
  OK(cudaMemPoolExportToShareableHandle(&file, pool, cudaMemHandleTypePosixFileDescriptor, 0));
  pass_descriptor(two.fd, file);
  close(file);
  OK(cudaMallocFromPoolAsync(&p, NBYTES, pool, NULL));
  OK(cudaMemsetAsync(p, 7, NBYTES, NULL));
  OK(cudaStreamSynchronize(NULL));
  OK(cudaMemPoolExportPointer(&data, p));
  tell(two.fd, &data, sizeof data);
  hear_done(two.fd);
  finish_well(two);
  OK(cudaFreeAsync(p, NULL));
  OK(cudaStreamSynchronize(NULL));
  OK(cudaMemPoolDestroy(pool));
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "wait_and_read") == 0) return second(wait_and_read, atoi(argv[2]));
  if (argc == 3 && strcmp(argv[1], "take_from_pool") == 0) return second(take_from_pool, atoi(argv[2]));
  const struct CMUnitTest specs[] = {SPEC(memory_and_an_event_cross), SPEC(memory_of_a_pool_crosses)};
  return cmocka_run_group_tests(specs, NULL, NULL);
}
