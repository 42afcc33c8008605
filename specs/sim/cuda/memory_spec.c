/* memory_spec.c: where memory lies, who may touch it, and that it is not used after it is freed. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spec.h"

/* What a child dies of when it touches p. */
static int signal_from_touching(uintptr_t p, bool write) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    if (write) *(volatile char *)p = 1;
    if (!write) (void)*(volatile char *)p;
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void the_host_cannot_touch_device_memory(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  assert_int_equal(signal_from_touching(p, false), SIGSEGV);
  assert_int_equal(signal_from_touching(p, true), SIGSEGV);
  OK(cuMemFree_v2(p));
}

static void the_host_touches_pinned_and_managed_memory_until_it_is_freed(void **state) {
  (void)state;
  void *pinned = NULL;
  CUdeviceptr managed = 0;
  OK(cuMemHostAlloc(&pinned, NBYTES, 0));
  OK(cuMemAllocManaged(&managed, NBYTES, 1));
  assert_true(all_bytes(pinned, NBYTES, 0xCB));
  assert_int_equal(signal_from_touching((uintptr_t)pinned, true), 0);
  assert_int_equal(signal_from_touching(managed, true), 0);
  OK(cuMemFreeHost(pinned));
  OK(cuMemFree_v2(managed));
  assert_int_equal(signal_from_touching((uintptr_t)pinned, false), SIGSEGV);
  assert_int_equal(signal_from_touching(managed, false), SIGSEGV);
}

static void handles_cannot_be_dereferenced(void **state) {
  (void)state;
  CUstream s = stream();
  assert_int_equal(signal_from_touching((uintptr_t)s, false), SIGSEGV);
  OK(cuStreamDestroy_v2(s));
}

static void fresh_and_freed_memory_is_poisoned(void **state) {
  (void)state;
  unsigned char got[NBYTES];
  CUdeviceptr p = device_memory();
  OK(cuMemcpyDtoH_v2(got, p, NBYTES));
  assert_true(all_bytes(got, NBYTES, 0xCB));
  OK(cuMemFree_v2(p));
  assert_int_equal(sim_peek((void *)p, got, NBYTES), 0);
  assert_true(all_bytes(got, NBYTES, 0xDB));
}

static void a_freed_address_does_not_come_back(void **state) {
  (void)state;
  CUdeviceptr seen[100];
  for (int i = 0; i < 100; i++) {
    seen[i] = device_memory();
    OK(cuMemFree_v2(seen[i]));
    for (int k = 0; k < i; k++) assert_true(seen[k] != seen[i]);
  }
}

static void freeing_twice_is_found(void **state) {
  (void)state;
  CUdeviceptr p = device_memory();
  OK(cuMemFree_v2(p));
  FAILS(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
  assert_true(told("freed twice"));
  found(SIM_STALE, 1);
  FAILS(cuMemFree_v2(p + 16), CUDA_ERROR_INVALID_VALUE);
  found(SIM_STALE, 1);
}

static void use_after_free_is_found(void **state) {
  (void)state;
  char got[16];
  CUdeviceptr p = device_memory();
  OK(cuMemFree_v2(p));
  FAILS(cuMemcpyDtoH_v2(got, p, 16), CUDA_ERROR_INVALID_VALUE);
  found(SIM_STALE, 1);
  FAILS(cuMemsetD8Async(p, 0, 16, NULL), CUDA_ERROR_INVALID_VALUE);
  found(SIM_STALE, 1);
}

static void leaving_an_allocation_is_found(void **state) {
  (void)state;
  char got[NBYTES + 1];
  CUdeviceptr p = device_memory(), behind = device_memory();
  FAILS(cuMemcpyDtoH_v2(got, p, NBYTES + 1), CUDA_ERROR_INVALID_VALUE);
  found(SIM_BOUNDS, 1);
  FAILS(cuMemsetD8_v2(p + NBYTES, 0, 1), CUDA_ERROR_INVALID_VALUE);
  found(SIM_BOUNDS, 1);
  FAILS(cuMemsetD2D8_v2(p, NBYTES / 2, 0, 8, 3), CUDA_ERROR_INVALID_VALUE);
  found(SIM_BOUNDS, 1);
  OK(cuMemsetD2D8_v2(p, NBYTES / 2, 0, NBYTES / 2, 2));
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(behind));
  OK(cuMemFree_v2(p));
}

static void host_and_device_are_not_interchangeable(void **state) {
  (void)state;
  char host[16];
  CUdeviceptr p = device_memory();
  FAILS(cuMemcpyHtoD_v2((CUdeviceptr)(uintptr_t)host, host, 16), CUDA_ERROR_INVALID_VALUE);
  found(SIM_BOUNDS, 1);
  FAILS(cuMemcpyHtoD_v2(p, (void *)p, 16), CUDA_ERROR_INVALID_VALUE);
  found(SIM_BOUNDS, 1);
  FAILS(cuMemcpyDtoD_v2(p, (CUdeviceptr)(uintptr_t)host, 16), CUDA_ERROR_INVALID_VALUE);
  found(SIM_BOUNDS, 1);
  OK(cuMemFree_v2(p));
}

static void a_device_reaches_another_only_as_a_peer(void **state) {
  (void)state;
  CUdeviceptr p = 0, q = 0;
  OK(cuMemAlloc_v2(&p, NBYTES));
  OK(cuCtxPushCurrent_v2(contexts[1]));
  CUstream s = stream();
  OK(cuMemAlloc_v2(&q, NBYTES));
  FAILS(cuMemsetD8Async(p, 1, NBYTES, s), CUDA_ERROR_INVALID_VALUE);
  found(SIM_BOUNDS, 1);
  OK(cuMemcpyPeerAsync(q, contexts[1], p, contexts[0], NBYTES, s));
  OK(cuCtxEnablePeerAccess(contexts[0], 0));
  FAILS(cuCtxEnablePeerAccess(contexts[0], 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  OK(cuMemsetD8Async(p, 1, NBYTES, s));
  OK(cuCtxDisablePeerAccess(contexts[0]));
  FAILS(cuCtxDisablePeerAccess(contexts[0]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  OK(cuStreamSynchronize(s));
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(q));
  OK(cuCtxPopCurrent_v2(NULL));
  OK(cuMemFree_v2(p));
}

static void memory_runs_out(void **state) {
  (void)state;
  size_t free_bytes = 0, total = 0;
  CUdeviceptr p = 0, q = 0;
  OK(cuMemGetInfo_v2(&free_bytes, &total));
  assert_int_equal(free_bytes, total);
  OK(cuMemAlloc_v2(&p, total - NBYTES));
  FAILS(cuMemAlloc_v2(&q, 2 * NBYTES), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemAlloc_v2(&q, NBYTES));
  OK(cuMemFree_v2(p));
  OK(cuMemFree_v2(q));
}

static void pointers_are_described(void **state) {
  (void)state;
  int local = 0, type = 0, ordinal = 0, managed = 1;
  unsigned long long id = 0;
  int which[] = {2, 9, 8, 7};
  void *out[] = {&type, &ordinal, &managed, &id};
  CUdeviceptr p = device_memory(), base = 0;
  size_t n = 0;
  OK(cuPointerGetAttributes(4, which, out, p + 5));
  assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
  assert_int_equal(ordinal, 0);
  assert_int_equal(managed, 0);
  assert_true(id != 0);
  OK(cuPointerGetAttributes(4, which, out, (CUdeviceptr)(uintptr_t)&local));
  assert_int_equal(type, 0);
  assert_int_equal(ordinal, -2);
  FAILS(cuPointerGetAttribute(&type, 2, (CUdeviceptr)(uintptr_t)&local), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemGetAddressRange_v2(&base, &n, p + 7));
  assert_true(base == p && n == NBYTES);
  OK(cuMemFree_v2(p));
}

static void the_programs_own_memory_can_be_registered(void **state) {
  (void)state;
  static unsigned char bytes[NBYTES];
  CUdeviceptr p = device_memory(), d = 0;
  CUstream s = stream();
  OK(cuMemHostRegister_v2(bytes, NBYTES, 0));
  FAILS(cuMemHostRegister_v2(bytes + 5, 10, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  OK(cuMemHostGetDevicePointer_v2(&d, bytes, 0));
  assert_true(d == (CUdeviceptr)(uintptr_t)bytes);
  OK(cuMemsetD8Async(p, 3, NBYTES, s));
  OK(cuMemcpyDtoHAsync_v2(bytes, p, NBYTES, s));
  assert_true(all_bytes(bytes, NBYTES, 0));
  OK(cuStreamSynchronize(s));
  assert_true(all_bytes(bytes, NBYTES, 3));
  OK(cuMemHostUnregister(bytes));
  FAILS(cuMemHostUnregister(bytes), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(p));
}

static void pools_allocate_and_free_in_stream_order(void **state) {
  (void)state;
  unsigned char got[NBYTES];
  CUdeviceptr p = 0;
  CUstream a = stream(), b = stream();
  OK(cuMemAllocAsync(&p, NBYTES, a));
  assert_int_equal(signal_from_touching(p, false), SIGSEGV);
  OK(cuMemsetD8Async(p, 1, NBYTES, a));
  OK(cuMemcpyDtoHAsync_v2(got, p, NBYTES, a));
  assert_true(all_bytes(got, NBYTES, 1));
  OK(cuMemFreeAsync(p, b));
  assert_int_equal(sim_findings(SIM_ANY), 0);
  assert_int_equal(sim_peek((void *)p, got, NBYTES), 0);
  assert_true(all_bytes(got, NBYTES, 1));
  OK(cuStreamSynchronize(b));
  assert_int_equal(sim_peek((void *)p, got, NBYTES), 0);
  assert_true(all_bytes(got, NBYTES, 0xDB));
  FAILS(cuMemFreeAsync(p, b), CUDA_ERROR_INVALID_VALUE);
  found(SIM_STALE, 1);
  OK(cuMemAllocAsync(&p, NBYTES, a));
  OK(cuMemsetD8Async(p, 1, NBYTES, b));
  assert_true(told("written by"));
  found(SIM_RACE, 1);
  follow(a, b);
  OK(cuMemFreeAsync(p, a));
  OK(cuMemAllocAsync(&p, NBYTES, a));
  follow(b, a);
  OK(cuMemsetD8Async(p, 1, NBYTES, b));
  OK(cuMemFreeAsync(p, a));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

static void pools_have_owners_and_settings(void **state) {
  (void)state;
  const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, 3};
  CUmemoryPool pool = NULL, standard = NULL;
  CUdeviceptr p = 0;
  uint64_t value = 12345;
  int on = -1, flags = -1;
  OK(cuDeviceGetDefaultMemPool(&standard, 0));
  FAILS(cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemPoolCreate(&pool, &props));
  OK(cuMemPoolSetAttribute(pool, 4, &value));
  value = 0;
  OK(cuMemPoolGetAttribute(pool, 4, &value));
  assert_int_equal(value, 12345);
  OK(cuMemPoolGetAttribute(pool, 1, &on));
  assert_int_equal(on, 1);
  OK(cuMemPoolGetAccess(&flags, pool, &access.location));
  assert_int_equal(flags, 0);
  OK(cuMemPoolSetAccess(pool, &access, 1));
  OK(cuMemPoolGetAccess(&flags, pool, &access.location));
  assert_int_equal(flags, 3);
  OK(cuMemAllocFromPoolAsync(&p, NBYTES, pool, NULL));
  OK(cuMemPoolGetAttribute(pool, 7, &value));
  assert_int_equal(value, NBYTES);
  OK(cuMemFreeAsync(p, NULL));
  OK(cuMemPoolDestroy(pool));
}

static void strided_copies_put_rows_where_they_belong(void **state) {
  (void)state;
  unsigned char from[6][8], to[NBYTES];
  CUdeviceptr p = device_memory();
  for (size_t i = 0; i < sizeof from; i++) ((unsigned char *)from)[i] = (unsigned char)i;
  OK(cuMemsetD8_v2(p, 0xEE, NBYTES));
  const CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = from, .srcPitch = 8, .srcHeight = 3,
                           .srcXInBytes = 1, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = p, .dstPitch = 16,
                           .dstHeight = 4, .dstY = 1, .WidthInBytes = 5, .Height = 2, .Depth = 2};
  OK(cuMemcpy3D_v2(&c));
  OK(cuMemcpyDtoH_v2(to, p, NBYTES));
  for (size_t i = 0; i < 128; i++) {
    const size_t z = i / 64, y = i / 16 % 4, x = i % 16;
    const bool inside = x < 5 && y >= 1 && y < 3;
    assert_int_equal(to[i], inside ? from[z * 3 + y - 1][x + 1] : 0xEE);
  }
  OK(cuMemFree_v2(p));
}

RUN(SPEC(the_host_cannot_touch_device_memory), SPEC(the_host_touches_pinned_and_managed_memory_until_it_is_freed),
    SPEC(handles_cannot_be_dereferenced), SPEC(fresh_and_freed_memory_is_poisoned),
    SPEC(a_freed_address_does_not_come_back), SPEC(freeing_twice_is_found), SPEC(use_after_free_is_found),
    SPEC(leaving_an_allocation_is_found), SPEC(host_and_device_are_not_interchangeable),
    SPEC(a_device_reaches_another_only_as_a_peer), SPEC(memory_runs_out), SPEC(pointers_are_described),
    SPEC(the_programs_own_memory_can_be_registered), SPEC(pools_allocate_and_free_in_stream_order),
    SPEC(pools_have_owners_and_settings), SPEC(strided_copies_put_rows_where_they_belong))
