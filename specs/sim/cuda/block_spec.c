/* block_spec.c: the threads of a block together: shared memory, barriers, atomics, warps, functions; and what they do
 * wrong. */
#include "assembler.h"
#include "kernel.h"

enum { THREADS = 64 };

/* %r0 is the thread, %r1 4 times that, %r2 the place of s in shared memory plus that, %d1 of `to`. */
#define BEGIN                                                                                                    \
  ".shared .align 4 .b8 s[256];\n.reg .f32 %f<4>;\nmov.u32 %r0, %tid.x;\nshl.b32 %r1, %r0, 2;\n"                 \
  "mov.u32 %r2, s;\nadd.u32 %r2, %r2, %r1;\nmad.wide.u32 %d1, %r0, 4, %d0;\n"
/* Each thread takes what its opposite wrote. */
#define STORE "st.shared.u32 [%r2], %r0;\n"
#define TAKE "mov.u32 %r3, 252;\nsub.u32 %r3, %r3, %r1;\nld.shared.u32 %r4, [%r3];\nst.global.u32 [%d1], %r4;\n"

static kernel made(const char *body) {
  static char text[8192];
  snprintf(text, sizeof text,
           ".version 7.0\n.target sm_70\n.address_size 64\n.extern .shared .align 16 .b8 more[];\n"
           ".const .align 4 .u32 odd[3] = {1, 3, 5};\n.global .align 4 .u32 even[2] = {2, 4};\n"
           ".func (.param .b32 out) twice(.param .b32 in)\n{\n.reg .b32 %%r<2>;\nld.param.u32 %%r0, [in];\n"
           "add.u32 %%r1, %%r0, %%r0;\nst.param.b32 [out], %%r1;\nret;\n}\n"
           ".visible .entry k(.param .u64 to, .param .u64 n)\n{\n.reg .pred %%p<4>;\n.reg .b32 %%r<8>;\n"
           ".reg .b64 %%d<8>;\nld.param.u64 %%d0, [to];\n%s\nret;\n}\n",
           body);
  if (*assembler() != '\0') assert_true(assembles(text));
  return load(text, "k");
}

static void expect_words(const char *body, uint32_t (*want)(uint32_t i)) {
  uint32_t got[THREADS];
  for (unsigned seed = 0; seed < 3; seed++) {
    sim_seed(seed);
    const kernel k = made(body);
    CUdeviceptr p = device_memory();
    uint64_t n = 0;
    void *params[] = {&p, &n};
    OK(cuMemsetD8_v2(p, 0, NBYTES));
    OK(cuLaunchKernel(k.function, 1, 1, 1, THREADS, 1, 1, 512, NULL, params, NULL));
    OK(cuMemcpyDtoH_v2(got, p, sizeof got));
    assert_int_equal(sim_findings(SIM_ANY), 0);
    for (uint32_t i = 0; i < THREADS; i++) assert_int_equal(got[i], want(i));
    OK(cuMemFree_v2(p));
    OK(cuModuleUnload(k.module));
  }
}

static uint32_t opposite(uint32_t i) {
  return 63 - i;
}

static void threads_exchange_by_shared_memory(void **state) {
  (void)state;
  expect_words(BEGIN STORE "bar.sync 0;\n" TAKE, opposite);
  expect_words(BEGIN "mov.u32 %r5, more;\nadd.u32 %r2, %r5, %r1;\n" STORE "barrier.sync 1;\nmov.u32 %r3, 252;\n"
               "sub.u32 %r3, %r3, %r1;\nadd.u32 %r3, %r3, %r5;\nld.shared.u32 %r4, [%r3];\nst.global.u32 [%d1], %r4;",
               opposite);
  expect_words(BEGIN "cvt.u64.u32 %d2, %r2;\ncvta.shared.u64 %d2, %d2;\nst.u32 [%d2], %r0;\nbar.sync 0;\n" TAKE,
               opposite);
}

/* The same by way of memory of the device, where each launch is followed. */
#define STORE_FAR "st.global.u32 [%d1+256], %r0;\n"
#define TAKE_FAR(other)                                                                                          \
  "xor.b32 %r3, %r0, " other ";\nmad.wide.u32 %d2, %r3, 4, %d0;\nld.global.u32 %r4, [%d2+256];\n"                \
  "st.global.u32 [%d1], %r4;\n"

static uint32_t opposite_of_warp(uint32_t i) {
  return i ^ 31;
}

static void threads_exchange_by_the_devices_memory(void **state) {
  (void)state;
  expect_words(BEGIN STORE_FAR "bar.sync 0;\n" TAKE_FAR("63"), opposite);
  expect_words(BEGIN STORE_FAR "bar.warp.sync -1;\n" TAKE_FAR("31"), opposite_of_warp);
}

static uint32_t sums(uint32_t i) {
  return i == 0 ? 63 * 64 / 2 : i < 6 ? i * 2 : i == 7 ? 64 : i == 8 ? 5 : i == 9 ? 0xAAAAAAAA : 0;
}

static void atomics_add_up(void **state) {
  (void)state;
  expect_words(BEGIN "setp.lt.u32 %p0, %r0, 6;\nsetp.ge.u32 %p1, %r0, 1;\nand.pred %p0, %p0, %p1;\n"
               "red.add.relaxed.gpu.u32 [%d0], %r0;\n@%p0 atom.add.acq_rel.sys.u32 _, [%d1], %r1;\n"
               "shr.u32 %r3, %r1, 1;\n@%p0 atom.global.min.u32 %r4, [%d1], %r3;\n"
               "atom.global.inc.u32 _, [%d0+28], 100;\n"
               "and.b32 %r5, %r0, 1;\nshl.b32 %r6, %r5, %r0;\nred.global.or.b32 [%d0+36], %r6;\n"
               "mov.u32 %r6, 0;\nsetp.eq.u32 %p2, %r0, 9;\n@%p2 mov.u32 %r6, 5;\n"
               "atom.global.max.u32 %r7, [%d0+32], %r6;",
               sums);
}

static uint32_t neighbours(uint32_t i) {
  return (i % 32 < 31 ? i + 1 : i) + (i < 32 ? 0x10 : 0) + (i % 32 == 0 ? 0 : 100);
}

static void a_warp_exchanges_registers(void **state) {
  (void)state;
  expect_words(BEGIN "shfl.sync.down.b32 %r3|%p0, %r0, 1, 31, -1;\nsetp.lt.u32 %p1, %r0, 5;\n"
               "vote.sync.ballot.b32 %r4, %p1, -1;\npopc.b32 %r4, %r4;\nsetp.eq.u32 %p2, %r4, 5;\n"
               "@%p2 add.u32 %r3, %r3, 16;\nmov.u32 %r5, %laneid;\nsetp.ne.u32 %p3, %r5, 0;\n"
               "@%p3 add.u32 %r3, %r3, 100;\nst.global.u32 [%d1], %r3;\nbar.warp.sync -1;",
               neighbours);
}

static uint32_t called(uint32_t i) {
  return i * 4 + 5 + 4 + 3;
}

static void functions_and_variables_of_the_text(void **state) {
  (void)state;
  expect_words(BEGIN "{\n.param .b32 in;\n.param .b32 out;\nst.param.b32 [in], %r0;\ncall.uni (out), twice, (in);\n"
               "ld.param.b32 %r3, [out];\nst.param.b32 [in], %r3;\ncall (out), twice, (in);\n"
               "ld.param.b32 %r3, [out];\n}\n"
               "ld.const.u32 %r4, [odd+8];\nadd.u32 %r3, %r3, %r4;\nld.global.u32 %r4, [even+4];\n"
               "add.u32 %r3, %r3, %r4;\n"
               "mov.u64 %d2, odd;\nld.const.u32 %r4, [%d2+4];\nadd.u32 %r3, %r3, %r4;\nst.global.u32 [%d1], %r3;",
               called);
}

static uint32_t counted(uint32_t i) {
  return i < 3 ? 20 + (i == 0 ? 4 : 0) : 0;
}

/* Which word is changed depends on the words themselves: the allocation counts whole, and is checked when it runs. */
static void what_depends_on_memory_runs_too(void **state) {
  (void)state;
  expect_words(BEGIN "add.u64 %d2, %d1, 1024;\nrem.u32 %r3, %r0, 3;\nst.global.u32 [%d2], %r3;\nbar.sync 0;\n"
               "ld.global.u32 %r4, [%d2];\nmad.wide.u32 %d3, %r4, 4, %d0;\nsetp.lt.u32 %p0, %r0, 60;\n"
               "setp.eq.u32 %p1, %r4, 0;\nor.pred %p0, %p0, %p1;\n@!%p0 bra END;\nred.global.add.u32 [%d3], 1;\n"
               "END: setp.eq.u32 %p2, %r0, 63;\n@%p2 red.global.add.u32 [%d0], 2;",
               counted);
}

/* What a kernel does wrong when it runs: a finding of this kind that says so, and the context's status after it. */
static void expect_wrong(const char *body, unsigned threads, sim_kind kind, const char *text, CUresult status) {
  const kernel k = made(body);
  CUdeviceptr p = device_memory();
  uint64_t n = 0;
  void *params[] = {&p, &n};
  OK(cuMemsetD32_v2(p, 77, NBYTES / 4));
  OK(cuCtxSynchronize());
  OK(cuLaunchKernel(k.function, 1, 1, 1, threads, 1, 1, 16, NULL, params, NULL));
  const CUresult rc = cuCtxSynchronize();
  if (rc != status || !told(text)) show_findings();
  assert_int_equal(rc, status);
  assert_true(told(text));
  found(kind, 1);
  OK(cuMemFree_v2(p));
  OK(cuModuleUnload(k.module));
}

static void threads_without_a_barrier_race(void **state) {
  (void)state;
  expect_wrong(BEGIN STORE TAKE, THREADS, SIM_RACE,
               "line 31, thread (31, 0, 0) reads\n  then   line 28, thread (32, 0, 0) writes", CUDA_SUCCESS);
  expect_wrong(BEGIN STORE TAKE, THREADS, SIM_RACE, "no barrier is between", CUDA_SUCCESS);
  expect_wrong(BEGIN "ld.shared.u32 %r3, [%r2];\nbar.sync 0;\nst.shared.u32 [s], %r0;", THREADS, SIM_RACE,
               "byte 0 of its shared memory", CUDA_SUCCESS);
  expect_wrong(BEGIN "atom.shared.add.u32 %r3, [s], 1;\nsetp.eq.u32 %p0, %r0, 9;\n@%p0 st.shared.u32 [s], 0;", THREADS,
               SIM_RACE, "thread (9, 0, 0) writes", CUDA_SUCCESS);
  expect_wrong(BEGIN STORE "bar.warp.sync -1;\n" TAKE, THREADS, SIM_RACE, "no barrier is between", CUDA_SUCCESS);
  expect_wrong("mov.u32 %r0, %tid.x;\nst.global.u32 [%d0], %r0;", 2, SIM_RACE,
               "one    line 22, thread 0 of block 0 writes\n  other  line 22, thread 1 of block 0 writes",
               CUDA_SUCCESS);
  expect_wrong(BEGIN STORE_FAR TAKE_FAR("63"), THREADS, SIM_RACE, "thread 63 of block 0 reads", CUDA_SUCCESS);
  expect_wrong(BEGIN STORE_FAR "bar.warp.sync -1;\n" TAKE_FAR("63"), THREADS, SIM_RACE, "thread 63 of block 0 reads",
               CUDA_SUCCESS);
  /* the same where the address depends on memory */
  expect_wrong("ld.global.u32 %r0, [%d0];\nand.b32 %r0, %r0, 4;\nmad.wide.u32 %d1, %r0, 4, %d0;\n"
               "st.global.u32 [%d1+256], %r0;", 2, SIM_RACE, "line 24, thread 0 of block 0 writes", CUDA_SUCCESS);
}

/* Threads 0, 40 and then 1 read, a barrier of warps comes, and one of the first warp writes: 40 is of another. */
static void a_reader_of_another_warp_is_not_forgotten(void **state) {
  (void)state;
  static const char *const bodies[] = {
      "@%p0 ld.shared.u32 %r3, [s];\n@%p1 ld.shared.u32 %r3, [s];\nvote.sync.ballot.b32 %r4, %p0, -1;\n"
      "@%p2 ld.shared.u32 %r3, [s];\nbar.warp.sync -1;\n@%p0 st.shared.u32 [s], %r0;",
      "@%p0 ld.shared.u32 %r3, [s];\n@%p2 ld.shared.u32 %r3, [s];\nvote.sync.ballot.b32 %r4, %p0, -1;\n"
      "@%p1 ld.shared.u32 %r3, [s];\nbar.warp.sync -1;\n@%p2 st.shared.u32 [s], %r0;",
      "@%p1 ld.shared.u32 %r3, [s];\nvote.sync.ballot.b32 %r4, %p0, -1;\n@%p0 ld.shared.u32 %r3, [s];\n"
      "@%p2 ld.shared.u32 %r3, [s];\nbar.warp.sync -1;\n@%p0 st.shared.u32 [s], %r0;"};
  char body[1024];
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
    snprintf(body, sizeof body, "%s%s%s", BEGIN,
             "setp.eq.u32 %p0, %r0, 0;\nsetp.eq.u32 %p1, %r0, 40;\nsetp.eq.u32 %p2, %r0, 1;\n", bodies[i]);
    expect_wrong(body, 64, SIM_RACE, "thread (40, 0, 0) reads", CUDA_SUCCESS);
  }
}

static void a_barrier_that_not_all_reach_is_found(void **state) {
  (void)state;
  expect_wrong(BEGIN "setp.lt.u32 %p0, %r0, 5;\n@%p0 bar.sync 0;", THREADS, SIM_MISUSE,
               "k, line 29, thread (0, 0, 0) of block (0, 0, 0): it waits for all threads of its block at a "
               "barrier, and "
               "thread (5, 0, 0) is not going to come there",
               CUDA_ERROR_LAUNCH_FAILED);
  expect_wrong(BEGIN "setp.lt.u32 %p0, %r0, 5;\n@%p0 bra A;\nbar.sync 0;\nbra B;\nA:\nbar.sync 0;\nB:", THREADS,
               SIM_MISUSE, "threads of one block are at different barriers", CUDA_ERROR_LAUNCH_FAILED);
  expect_wrong(BEGIN "setp.lt.u32 %p0, %r0, 5;\n@%p0 shfl.sync.idx.b32 %r3, %r0, 0, 31, -1;\nbar.sync 0;", THREADS,
               SIM_MISUSE, "it waits for others of its warp, and thread (5, 0, 0) waits at the barrier of line 30",
               CUDA_ERROR_LAUNCH_FAILED);
  expect_wrong("shfl.sync.idx.b32 %r0, 5, 0, 31, 2;", 2, SIM_MISUSE, "leaves the thread itself out",
               CUDA_ERROR_LAUNCH_FAILED);
  expect_wrong("trap;", 1, SIM_MISUSE, "it comes to a trap", CUDA_ERROR_LAUNCH_FAILED);
}

static void what_lies_outside_fails(void **state) {
  (void)state;
  expect_wrong(BEGIN "st.shared.u32 [%r2+4], %r0;", THREADS, SIM_BOUNDS,
               "k, line 28, thread (63, 0, 0) of block (0, 0, 0): writes 4 bytes at 0x100 of shared memory, "
               "and the block "
               "has 256 bytes and 16 of dynamic size",
               CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_wrong("mov.u32 %r0, more;\nld.shared.u32 %r1, [%r0+16];", 1, SIM_BOUNDS, "reads 4 bytes",
               CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_wrong(BEGIN "ld.shared.u32 %r3, [%r2+2];", 1, SIM_BOUNDS, "of shared memory, which is no multiple",
               CUDA_ERROR_MISALIGNED_ADDRESS);
  expect_wrong(".local .b32 own;\nmov.u64 %d1, own;\nst.local.u32 [%d1+1024], 1;", 1, SIM_BOUNDS,
               "of local memory, which lies outside of it", CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_wrong("mov.u64 %d1, odd;\ncvta.const.u64 %d1, %d1;\nst.u32 [%d1], 1;", 1, SIM_BOUNDS, "which is only read",
               CUDA_ERROR_ILLEGAL_ADDRESS);
  /* 77 bytes times 4096 behind: found when it runs */
  expect_wrong("ld.global.u32 %r0, [%d0];\nmad.wide.u32 %d1, %r0, 4096, %d0;\nst.global.u32 [%d1], 1;", 1, SIM_BOUNDS,
               "which is in no allocation that its parameters lead to", CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* A launch whose addresses depend on memory counts as touching all of what it may touch. */
static void a_loose_launch_races_with_a_fill(void **state) {
  (void)state;
  const kernel k = made("ld.global.u32 %r0, [%d0];\nand.b32 %r0, %r0, 4;\nmad.wide.u32 %d1, %r0, 4, %d0;\n"
                        "st.global.u32 [%d1+256], %r0;");
  CUdeviceptr p = device_memory();
  CUstream s = stream(), t = stream();
  OK(start(k, 1, p, 0, s));
  OK(cuMemsetD8Async(p + 4000, 1, 1, t));
  assert_true(told("cuLaunchKernel") && told("cuMemsetD8Async"));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  OK(cuStreamDestroy_v2(s));
  OK(cuStreamDestroy_v2(t));
  OK(cuMemFree_v2(p));
  OK(cuModuleUnload(k.module));
}

static void shared_memory_has_a_limit(void **state) {
  (void)state;
  const kernel k = made(".shared .b8 s[40000];\nst.shared.u8 [s], 1;");
  uint64_t n = 0;
  CUdeviceptr p = 0;
  void *params[] = {&p, &n};
  int v = 0;
  OK(cuFuncGetAttribute(&v, 1, k.function));
  assert_int_equal(v, 40000);
  OK(cuFuncGetAttribute(&v, 8, k.function));
  assert_int_equal(v, 9152);
  OK(cuLaunchKernel(k.function, 1, 1, 1, 1, 1, 1, 9152, NULL, params, NULL));
  FAILS(cuLaunchKernel(k.function, 1, 1, 1, 1, 1, 1, 9153, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
  OK(cuCtxSynchronize());
  OK(cuModuleUnload(k.module));
}

RUN(SPEC(threads_exchange_by_shared_memory), SPEC(threads_exchange_by_the_devices_memory), SPEC(atomics_add_up),
    SPEC(a_warp_exchanges_registers), SPEC(functions_and_variables_of_the_text),
    SPEC(what_depends_on_memory_runs_too), SPEC(threads_without_a_barrier_race),
    SPEC(a_reader_of_another_warp_is_not_forgotten), SPEC(a_barrier_that_not_all_reach_is_found),
    SPEC(what_lies_outside_fails), SPEC(a_loose_launch_races_with_a_fill), SPEC(shared_memory_has_a_limit))
