/* virtual_spec.c: memory that is mapped at reserved addresses, in one process and in two. */
#define _GNU_SOURCE
#include "kernel.h"

#include "../pair.h"

enum { PIECE = 2 << 20 };

static CUmemAllocationProp kind(int device, bool exportable) {
  return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .requestedHandleTypes = exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
}

static CUmemGenericAllocationHandle memory(bool exportable) {
  CUmemGenericAllocationHandle h = 0;
  const CUmemAllocationProp prop = kind(0, exportable);
  OK(cuMemCreate(&h, PIECE, &prop, 0));
  return h;
}

static CUdeviceptr addresses(size_t pieces) {
  CUdeviceptr p = 0;
  OK(cuMemAddressReserve(&p, pieces * PIECE, 0, 0, 0));
  assert_int_equal(p % PIECE, 0);
  return p;
}

static CUresult allow(CUdeviceptr p, size_t pieces, int device, int flags) {
  const CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
  return cuMemSetAccess(p, pieces * PIECE, &desc, 1);
}

/* Pieces of memory of their own, one behind the other. */
static CUdeviceptr mapped(size_t pieces) {
  CUdeviceptr p = addresses(pieces);
  for (size_t i = 0; i < pieces; i++) {
    CUmemGenericAllocationHandle h = memory(false);
    OK(cuMemMap(p + i * PIECE, PIECE, 0, h, 0));
    OK(cuMemRelease(h)); /* what is mapped stays */
  }
  OK(allow(p, pieces, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  return p;
}

static void unmap(CUdeviceptr p, size_t pieces) {
  OK(cuMemUnmap(p, pieces * PIECE));
  OK(cuMemAddressFree(p, pieces * PIECE));
}

static void assert_bytes(CUdeviceptr p, size_t n, int value) {
  unsigned char *bytes = malloc(n);
  OK(cuMemcpyDtoH_v2(bytes, p, n));
  assert_true(all_bytes(bytes, n, value));
  free(bytes);
}

static void pieces_are_one_memory(void **state) {
  (void)state;
  size_t before, during;
  OK(cuMemGetInfo_v2(&before, &(size_t){0}));
  CUdeviceptr p = mapped(2);
  OK(cuMemGetInfo_v2(&during, &(size_t){0}));
  assert_int_equal(before - during, 2 * PIECE);
  assert_bytes(p + PIECE - 64, 128, 0xCB);
  OK(cuMemsetD8_v2(p + PIECE - 64, 7, 128));
  assert_bytes(p + PIECE - 64, 128, 7);
  OK(cuCtxSynchronize());
  unmap(p, 2);
  OK(cuMemGetInfo_v2(&during, &(size_t){0}));
  assert_int_equal(before, during);
}

static void memory_keeps_its_bytes_at_another_address(void **state) {
  (void)state;
  CUmemGenericAllocationHandle h = memory(false);
  CUdeviceptr p = addresses(1), q = addresses(1);
  OK(cuMemMap(p, PIECE, 0, h, 0));
  OK(cuMemMap(q, PIECE, 0, h, 0));
  OK(allow(p, 1, 0, 3));
  OK(allow(q, 1, 0, 3));
  OK(cuMemsetD8_v2(p, 7, PIECE));
  assert_bytes(q, PIECE, 7);
  OK(cuCtxSynchronize());
  unmap(p, 1);
  unmap(q, 1);
  p = addresses(1);
  OK(cuMemMap(p, PIECE, 0, h, 0));
  OK(allow(p, 1, 0, 1));
  assert_bytes(p, PIECE, 7);
  unmap(p, 1);
  OK(cuMemRelease(h));
}

/* Two addresses, one memory: two streams that do not wait for each other race. */
static void a_race_by_two_addresses_is_seen(void **state) {
  (void)state;
  CUmemGenericAllocationHandle h = memory(false);
  CUdeviceptr p = addresses(2);
  CUstream a = stream(), b = stream();
  for (size_t i = 0; i < 2; i++) OK(cuMemMap(p + i * PIECE, PIECE, 0, h, 0));
  OK(allow(p, 2, 0, 3));
  OK(cuMemsetD8Async(p + 64, 1, 64, a));
  OK(cuMemsetD8Async(p + PIECE + 128, 1, 64, b)); /* others */
  OK(cuMemsetD8Async(p + PIECE + 100, 2, 64, b));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  unmap(p, 2);
  OK(cuMemRelease(h));
  give_back(0, 0, a, b);
}

/* Rows of which one begins in a piece and ends in the next. */
static void rows_across_pieces_are_checked_as_they_lie(void **state) {
  (void)state;
  CUdeviceptr p = mapped(2), rows = p + PIECE - 1024 - 8;
  CUstream a = stream(), b = stream();
  OK(cuMemsetD2D8Async(rows, 512, 3, 16, 8, a)); /* the third row lies across */
  OK(cuMemsetD8Async(rows + 16, 1, 496, b));
  OK(cuMemsetD8Async(rows + 3 * 512 + 16, 1, 496, b));
  assert_int_equal(sim_findings(SIM_ANY), 0);
  OK(cuMemsetD8Async(p + PIECE + 7, 1, 1, b));
  found(SIM_RACE, 1);
  OK(cuMemsetD8Async(p + PIECE - 1, 1, 1, b));
  found(SIM_RACE, 1);
  OK(cuMemsetD8Async(rows + 512 + 15, 1, 1, b));
  found(SIM_RACE, 1);
  OK(cuMemsetD8Async(rows + 7 * 512, 1, 1, b));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  unmap(p, 2);
  give_back(0, 0, a, b);
}

static void access_has_to_be_given(void **state) {
  (void)state;
  CUmemGenericAllocationHandle h = memory(false);
  CUdeviceptr p = addresses(2);
  unsigned long long flags;
  const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  FAILS(cuMemsetD8_v2(p, 1, 64), CUDA_ERROR_INVALID_VALUE);
  assert_true(told("no memory is mapped there"));
  found(SIM_BOUNDS, 1);
  OK(cuMemMap(p, PIECE, 0, h, 0));
  FAILS(cuMemsetD8_v2(p, 1, 64), CUDA_ERROR_INVALID_VALUE);
  assert_true(told("has no access (cuMemSetAccess)"));
  found(SIM_BOUNDS, 1);
  OK(allow(p, 1, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
  OK(cuMemGetAccess(&flags, &here, p));
  assert_int_equal(flags, 1);
  assert_bytes(p, 64, 0xCB);
  FAILS(cuMemsetD8_v2(p, 1, 64), CUDA_ERROR_INVALID_VALUE);
  assert_true(told("may only read"));
  found(SIM_BOUNDS, 1);
  OK(allow(p, 1, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  OK(cuMemsetD8_v2(p, 1, 64));
  FAILS(cuMemsetD8_v2(p + PIECE - 32, 1, 64), CUDA_ERROR_INVALID_VALUE);
  found(SIM_BOUNDS, 1);
  FAILS(allow(p, 2, 0, 3), CUDA_ERROR_INVALID_VALUE);
  found(SIM_MISUSE, 1);
  OK(cuCtxSynchronize());
  OK(cuMemRelease(h));
  OK(cuMemUnmap(p, PIECE));
  OK(cuMemAddressFree(p, 2 * PIECE));
}

static void another_device_needs_access_of_its_own(void **state) {
  (void)state;
  CUdeviceptr p = mapped(1);
  OK(cuCtxPushCurrent_v2(contexts[1]));
  CUstream s = stream();
  FAILS(cuMemsetD8Async(p, 1, 64, s), CUDA_ERROR_INVALID_VALUE);
  found(SIM_BOUNDS, 1);
  OK(allow(p, 1, 1, 3));
  OK(cuMemsetD8Async(p, 1, 64, s));
  OK(cuStreamSynchronize(s));
  OK(cuStreamDestroy_v2(s));
  OK(cuCtxPopCurrent_v2(NULL));
  assert_bytes(p, 64, 1);
  unmap(p, 1);
}

static void mappings_are_whole_and_never_over_each_other(void **state) {
  (void)state;
  CUmemGenericAllocationHandle h = memory(false);
  CUdeviceptr p = addresses(3);
  FAILS(cuMemMap(p, 4096, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuMemMap(p, 2 * PIECE, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuMemMap(p + 2 * PIECE, 2 * PIECE, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
  found(SIM_MISUSE, 3);
  FAILS(cuMemMap(p, PIECE, PIECE, h, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemMap(p + PIECE, PIECE, 0, h, 0));
  FAILS(cuMemMap(p + PIECE, PIECE, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
  assert_true(told("memory is mapped there"));
  found(SIM_MISUSE, 1);
  OK(cuMemMap(p, PIECE, 0, h, 0));
  FAILS(cuMemUnmap(p, PIECE / 2), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuMemUnmap(p, 3 * PIECE), CUDA_ERROR_INVALID_VALUE);
  found(SIM_MISUSE, 2);
  FAILS(cuMemAddressFree(p, 3 * PIECE), CUDA_ERROR_INVALID_VALUE);
  found(SIM_MISUSE, 1);
  FAILS(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
  found(SIM_STALE, 1);
  OK(cuMemUnmap(p, 2 * PIECE));
  FAILS(cuMemAddressFree(p, PIECE), CUDA_ERROR_INVALID_VALUE);
  found(SIM_MISUSE, 1);
  OK(cuMemAddressFree(p, 3 * PIECE));
  OK(cuMemRelease(h));
}

static void nothing_is_unmapped_while_work_on_it_is_queued(void **state) {
  (void)state;
  CUdeviceptr p = mapped(2);
  CUstream s = stream();
  OK(cuMemsetD8Async(p + PIECE, 1, 64, s));
  OK(cuMemUnmap(p, PIECE));
  assert_int_equal(sim_findings(SIM_ANY), 0);
  OK(cuMemUnmap(p + PIECE, PIECE));
  assert_true(told("unmapped by host"));
  found(SIM_RACE, 1);
  OK(cuMemAddressFree(p, 2 * PIECE));
  give_back(0, 0, s, NULL);
}

static void what_a_driver_says_of_such_a_pointer(void **state) {
  (void)state;
  enum { CONTEXT = 1, TYPE = 2, ORDINAL = 9, START = 11, SIZE = 12, ACCESS = 16 };
  CUdeviceptr p = mapped(2), base = 0;
  size_t n = 0;
  uint64_t value = 1;
  OK(cuPointerGetAttribute(&value, CONTEXT, p + PIECE + 8));
  assert_int_equal(value, 0);
  OK(cuPointerGetAttribute(&value, START, p + PIECE + 8));
  assert_int_equal(value, p + PIECE);
  OK(cuPointerGetAttribute(&value, SIZE, p));
  assert_int_equal(value, PIECE);
  value = 0;
  OK(cuPointerGetAttribute(&value, TYPE, p));
  assert_int_equal(value, CU_MEMORYTYPE_DEVICE);
  OK(cuPointerGetAttribute(&value, ACCESS, p));
  assert_int_equal(value, 3);
  OK(cuMemGetAddressRange_v2(&base, &n, p + PIECE + 8));
  assert_int_equal(base, p + PIECE);
  assert_int_equal(n, PIECE);
  OK(cuMemUnmap(p, PIECE));
  FAILS(cuPointerGetAttribute(&value, TYPE, p), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemUnmap(p + PIECE, PIECE));
  OK(cuMemAddressFree(p, 2 * PIECE));
}

static void what_is_asked_for_wrongly(void **state) {
  (void)state;
  CUmemGenericAllocationHandle h = memory(false), same = 0;
  CUmemAllocationProp prop = kind(0, false), got;
  CUdeviceptr p;
  size_t n;
  int fd;
  OK(cuMemGetAllocationGranularity(&n, &prop, 0));
  assert_int_equal(n, PIECE);
  FAILS(cuMemCreate(&same, 4096, &prop, 0), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuMemCreate(&same, PIECE, NULL, 0), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuMemCreate(&same, (size_t)8 << 30, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
  prop.location.id = 7;
  FAILS(cuMemCreate(&same, PIECE, &prop, 0), CUDA_ERROR_INVALID_DEVICE);
  FAILS(cuMemAddressReserve(&p, 4096, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuMemAddressReserve(&p, PIECE, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuMemExportToShareableHandle(&fd, h, 1, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemGetAllocationPropertiesFromHandle(&got, h));
  assert_int_equal(got.location.id, 0);
  p = addresses(1);
  OK(cuMemMap(p, PIECE, 0, h, 0));
  OK(cuMemRetainAllocationHandle(&same, (void *)(uintptr_t)(p + 64)));
  assert_int_equal(same, h);
  OK(cuMemRelease(h));
  OK(cuMemRelease(same));
  FAILS(cuMemRelease(h), CUDA_ERROR_INVALID_HANDLE);
  found(SIM_MISUSE, 1);
  unmap(p, 1);
}

static void a_kernel_runs_across_pieces(void **state) {
  (void)state;
  CUdeviceptr p = mapped(2), at = p + PIECE - 512;
  const kernel k = load(entry("mov.u32 %r1, %tid.x;\nmul.wide.u32 %d1, %r1, 4;\nadd.u64 %d0, %d0, %d1;\n"
                              "mov.u32 %r2, 5;\nst.global.u32 [%d0], %r2;"), "k");
  unsigned got[256];
  OK(start(k, 256, at, 0, NULL));
  OK(cuMemcpyDtoH_v2(got, at, sizeof got));
  for (size_t i = 0; i < 256; i++) assert_int_equal(got[i], 5);
  OK(cuMemUnmap(p + PIECE, PIECE));
  OK(start(k, 128, at, 0, NULL));
  OK(cuCtxSynchronize());
  assert_int_equal(sim_findings(SIM_ANY), 0);
  OK(cuModuleUnload(k.module));
  OK(cuMemUnmap(p, PIECE));
  OK(cuMemAddressFree(p, 2 * PIECE));
}

/* Maps what the first process exported, reads it behind its event. */
static void map_and_read(int fd) {
  CUmemGenericAllocationHandle h;
  CUipcEventHandle eh;
  CUevent e;
  uint64_t wait;
  const int file = take_descriptor(fd);
  OK(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)file, 1));
  close(file);
  hear(fd, &eh, sizeof eh);
  OK(cuIpcOpenEventHandle(&e, eh));
  hear(fd, &wait, sizeof wait);
  CUdeviceptr p = addresses(1);
  CUstream s = stream();
  unsigned char bytes[64];
  OK(cuMemMap(p, PIECE, 0, h, 0));
  OK(cuMemRelease(h));
  OK(allow(p, 1, 0, 3));
  if (wait != 0) OK(cuStreamWaitEvent(s, e, 0));
  OK(cuMemcpyDtoHAsync_v2(bytes, p, 64, s));
  if (wait != 0) assert_true(all_bytes(bytes, 64, 7));
  OK(cuStreamDestroy_v2(s));
  OK(cuEventDestroy_v2(e));
  unmap(p, 1);
  tell_done(fd);
}

static outcome shared(uint64_t wait) {
  const pair two = second_process("map_and_read");
  CUmemGenericAllocationHandle h = memory(true);
  CUdeviceptr p = addresses(1);
  CUstream s = stream();
  CUevent e;
  CUipcEventHandle eh;
  int fd = -1;
  OK(cuMemMap(p, PIECE, 0, h, 0));
  OK(allow(p, 1, 0, 3));
  OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  pass_descriptor(two.fd, fd);
  close(fd);
  OK(cuEventCreate(&e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  OK(cuIpcGetEventHandle(&eh, e));
  tell(two.fd, &eh, sizeof eh);
  OK(cuMemsetD8Async(p, 7, PIECE, s));
  OK(cuEventRecord(e, s));
  tell(two.fd, &wait, sizeof wait);
  hear_done(two.fd);
  const outcome o = finish(two);
  OK(cuStreamSynchronize(s));
  OK(cuStreamDestroy_v2(s));
  OK(cuEventDestroy_v2(e));
  unmap(p, 1);
  OK(cuMemRelease(h));
  return o;
}

static void two_processes_map_one_memory(void **state) {
  (void)state;
  const outcome right = shared(1);
  if (right.findings != 0 || right.left != 0) fail_msg("%s", right.text);
  const outcome wrong = shared(0);
  assert_int_equal(wrong.races, 1);
  assert_int_equal(wrong.findings, 1);
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "map_and_read") == 0) return second(map_and_read, atoi(argv[2]));
  const struct CMUnitTest specs[] = {
      SPEC(pieces_are_one_memory),
      SPEC(memory_keeps_its_bytes_at_another_address),
      SPEC(a_race_by_two_addresses_is_seen),
      SPEC(rows_across_pieces_are_checked_as_they_lie),
      SPEC(access_has_to_be_given),
      SPEC(another_device_needs_access_of_its_own),
      SPEC(mappings_are_whole_and_never_over_each_other),
      SPEC(nothing_is_unmapped_while_work_on_it_is_queued),
      SPEC(what_a_driver_says_of_such_a_pointer),
      SPEC(what_is_asked_for_wrongly),
      SPEC(a_kernel_runs_across_pieces),
      SPEC(two_processes_map_one_memory),
  };
  return cmocka_run_group_tests(specs, NULL, NULL);
}
