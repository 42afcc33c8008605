/* external_spec.c: memory of another API by its file descriptor, laid out as Mesa lays it out: one memory on both
 * sides, and what is no such descriptor. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "spec.h"

enum { PAGE = 4096, SIZE = 4 * PAGE };

/* A file as llvmpipe makes it: a page whose first words are the size and the offset of the memory, then the memory. */
static int exported(unsigned char **bytes) {
  const uint64_t header[2] = {SIZE + PAGE, PAGE};
  const int fd = memfd_create("external", MFD_CLOEXEC);
  assert_true(fd >= 0 && ftruncate(fd, SIZE + PAGE) == 0);
  assert_int_equal(pwrite(fd, header, sizeof header, 0), sizeof header);
  *bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, PAGE);
  assert_true(*bytes != MAP_FAILED);
  return fd;
}

static CUDA_EXTERNAL_MEMORY_HANDLE_DESC of(int fd, unsigned long long size) {
  return (CUDA_EXTERNAL_MEMORY_HANDLE_DESC){
      .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd, .size = size};
}

static void one_memory_on_both_sides(void **state) {
  (void)state;
  unsigned char *bytes, got[PAGE];
  for (uint64_t seed = 0; seed < 20; seed++) {
    sim_seed(seed);
    const int fd = exported(&bytes);
    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC memory = of(fd, SIZE);
    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC second = {.offset = PAGE, .size = PAGE};
    CUexternalMemory m = NULL;
    CUdeviceptr p = 0;
    CUstream s = stream();
    memset(bytes, 3, SIZE);
    OK(cuImportExternalMemory(&m, &memory));
    OK(cuExternalMemoryGetMappedBuffer(&p, m, &second));
    OK(cuMemcpyDtoH_v2(got, p, PAGE));
    assert_true(all_bytes(got, PAGE, 3));
    OK(cuMemsetD8Async(p, 7, PAGE, s));
    OK(cuStreamSynchronize(s));
    assert_true(all_bytes(bytes, PAGE, 3) && all_bytes(bytes + PAGE, PAGE, 7) && all_bytes(bytes + 2 * PAGE, PAGE, 3));
    OK(cuDestroyExternalMemory(m)); /* what is mapped stays, until it is freed */
    assert_true(fcntl(fd, F_GETFD) < 0);
    OK(cuMemsetD8_v2(p, 8, PAGE));
    OK(cuCtxSynchronize());
    OK(cuMemFree_v2(p));
    assert_true(all_bytes(bytes + PAGE, PAGE, 8)); /* and is not poisoned: it is somebody else's */
    OK(cuStreamDestroy_v2(s));
    munmap(bytes, SIZE);
  }
}

/* As any memory of the device's. */
static void it_is_checked(void **state) {
  (void)state;
  unsigned char *bytes;
  const CUDA_EXTERNAL_MEMORY_HANDLE_DESC memory = of(exported(&bytes), SIZE);
  const CUDA_EXTERNAL_MEMORY_BUFFER_DESC all = {.size = SIZE};
  CUexternalMemory m = NULL;
  CUdeviceptr p = 0;
  CUstream s = stream(), t = stream();
  OK(cuImportExternalMemory(&m, &memory));
  OK(cuExternalMemoryGetMappedBuffer(&p, m, &all));
  OK(cuMemsetD8Async(p, 1, SIZE, s));
  OK(cuMemsetD8Async(p, 2, SIZE, t));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  FAILS(cuMemsetD8_v2(p, 1, SIZE + 1), CUDA_ERROR_INVALID_VALUE);
  found(SIM_BOUNDS, 1);
  OK(cuMemFree_v2(p));
  FAILS(cuMemsetD8_v2(p, 1, SIZE), CUDA_ERROR_INVALID_VALUE);
  found(SIM_STALE, 1);
  OK(cuDestroyExternalMemory(m));
  FAILS(cuExternalMemoryGetMappedBuffer(&p, m, &all), CUDA_ERROR_INVALID_HANDLE);
  found(SIM_MISUSE, 1);
  OK(cuStreamDestroy_v2(s));
  OK(cuStreamDestroy_v2(t));
  munmap(bytes, SIZE);
}

static void what_is_no_such_memory(void **state) {
  (void)state;
  unsigned char *bytes;
  const int fd = exported(&bytes), other = memfd_create("other", MFD_CLOEXEC);
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC memory = of(fd, SIZE + 1);
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC part = {.offset = 1, .size = PAGE};
  CUexternalMemory m = NULL;
  CUdeviceptr p = 0;
  FAILS(cuImportExternalMemory(&m, &memory), CUDA_ERROR_INVALID_VALUE);
  assert_true(told("less memory"));
  memory = of(other, SIZE);
  FAILS(cuImportExternalMemory(&m, &memory), CUDA_ERROR_INVALID_VALUE);
  assert_true(told("no memory that Mesa's drivers"));
  memory = of(-1, SIZE);
  FAILS(cuImportExternalMemory(&m, &memory), CUDA_ERROR_INVALID_VALUE);
  assert_true(told("is not open"));
  found(SIM_MISUSE, 3);
  memory = of(fd, 0);
  FAILS(cuImportExternalMemory(&m, &memory), CUDA_ERROR_INVALID_VALUE);
  memory = of(fd, SIZE);
  memory.type = 9;
  FAILS(cuImportExternalMemory(&m, &memory), CUDA_ERROR_NOT_SUPPORTED);
  memory = of(fd, SIZE);
  memory.flags = 2;
  FAILS(cuImportExternalMemory(&m, &memory), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuImportExternalMemory(&m, NULL), CUDA_ERROR_INVALID_VALUE);
  assert_true(fcntl(fd, F_GETFD) >= 0); /* what fails takes nothing over */
  memory.flags = 1;
  OK(cuImportExternalMemory(&m, &memory));
  FAILS(cuExternalMemoryGetMappedBuffer(&p, m, &part), CUDA_ERROR_NOT_SUPPORTED);
  part = (CUDA_EXTERNAL_MEMORY_BUFFER_DESC){.offset = PAGE, .size = SIZE};
  FAILS(cuExternalMemoryGetMappedBuffer(&p, m, &part), CUDA_ERROR_INVALID_VALUE);
  OK(cuDestroyExternalMemory(m));
  close(other);
  munmap(bytes, SIZE);
}

RUN(SPEC(one_memory_on_both_sides), SPEC(it_is_checked), SPEC(what_is_no_such_memory))
