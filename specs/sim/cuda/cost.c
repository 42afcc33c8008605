/* cost.c: what a call costs on the simulated CUDA driver: `build/dev/bench/sim_cost [seed]`.
 *
 * Nanoseconds of processor time; each line is the least of five rounds, over all calls of the round. Nothing asserts
 * these figures: they are for whoever asks. It must not use anything but the driver's calls and sim.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver.h"
#include "sim.h"

#define CALL(name, symbol, since, how, params, args) CUresult symbol params;
#define SCALL CALL
#define DCALL CALL
#include "calls.def"
#undef CALL
#undef SCALL
#undef DCALL

enum { BUFFERS = 64, NBYTES = 4096, EACH = 20000, PART = 500, ROUNDS = 5 };

static CUdeviceptr buffers[BUFFERS];
static CUstream a, b;
static void *pinned;

static void ok(CUresult rc) {
  if (rc == CUDA_SUCCESS) return;
  fprintf(stderr, "a call failed: %d\n", (int)rc);
  exit(1);
}

static void fills(int i) {
  ok(cuMemsetD8Async(buffers[i % BUFFERS], 1, NBYTES, a));
}

static void copies(int i) {
  ok(cuMemcpyDtoDAsync_v2(buffers[i % BUFFERS], buffers[(i + 1) % BUFFERS], NBYTES, a));
}

static void hand_over(int i) {
  static CUevent e;
  if (e == NULL) ok(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  ok(cuMemsetD8Async(buffers[i % BUFFERS], 1, NBYTES, a));
  ok(cuEventRecord(e, a));
  ok(cuStreamWaitEvent(b, e, 0));
  ok(cuMemsetD8Async(buffers[i % BUFFERS], 2, NBYTES, b));
  ok(cuEventRecord(e, b));
  ok(cuStreamWaitEvent(a, e, 0));
}

static void downloads(int i) {
  ok(cuMemcpyDtoHAsync_v2(pinned, buffers[i % BUFFERS], NBYTES, a));
  ok(cuStreamSynchronize(a));
  if (*(volatile char *)pinned == 77) abort();
}

static void pooled(int i) {
  CUdeviceptr p = 0;
  (void)i;
  ok(cuMemAllocAsync(&p, NBYTES, a));
  ok(cuMemsetD8Async(p, 1, NBYTES, a));
  ok(cuMemFreeAsync(p, a));
}

static void brief(int i) {
  CUstream s = NULL;
  CUevent e = NULL;
  (void)i;
  ok(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  ok(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  ok(cuEventDestroy_v2(e));
  ok(cuStreamDestroy_v2(s));
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* 1000 times the four instructions of a loop, in 64 threads; followed when the call is made, and run after it. */
enum { TIMES = 1000, IN_LOOP = 4, THREADS = 64, LAUNCHES = 8 };

static const char *const loop =
    ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry k()\n{\n.reg .pred %p;\n.reg .u32 %r, %s;\n"
    "mov.u32 %r, 0;\nmov.u32 %s, 1;\nagain:\nmad.lo.u32 %s, %s, %s, %r;\nadd.u32 %r, %r, 1;\n"
    "setp.lt.u32 %p, %r, 1000;\n@%p bra again;\nret;\n}\n";

/* The same with a load of global memory among the four. */
static const char *const accesses =
    ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry k(.param .u64 to)\n{\n.reg .pred %p;\n"
    ".reg .u32 %r, %s, %t;\n.reg .u64 %d;\nmov.u32 %r, 0;\nmov.u32 %t, %tid.x;\nld.param.u64 %d, [to];\n"
    "mad.wide.u32 %d, %t, 4, %d;\nagain:\nld.global.u32 %s, [%d];\nadd.u32 %r, %r, 1;\nsetp.lt.u32 %p, %r, 1000;\n"
    "@%p bra again;\nret;\n}\n";

/* The same with a store to shared memory, and a barrier instead of the multiplication. */
static const char *const barriers =
    ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry k()\n{\n.reg .pred %p;\n.reg .u32 %r, %s, %t;\n"
    ".shared .align 4 .b8 s[256];\nmov.u32 %r, 0;\nmov.u32 %t, %tid.x;\nmov.u32 %s, s;\nmad.lo.u32 %s, %t, 4, %s;\n"
    "again:\nst.shared.u32 [%s], %r;\nadd.u32 %r, %r, 1;\nbar.sync 0;\nsetp.lt.u32 %p, %r, 1000;\n"
    "@%p bra again;\nret;\n}\n";

static double nanoseconds_of_kernel(const char *text) {
  CUmodule m;
  CUfunction f;
  void *params[] = {&buffers[0]};
  double least = 1e18;
  ok(cuModuleLoadData(&m, text));
  ok(cuModuleGetFunction(&f, m, "k"));
  for (int round = 0; round < ROUNDS; round++) {
    const double start = seconds();
    for (int i = 0; i < LAUNCHES; i++) ok(cuLaunchKernel(f, 1, 1, 1, THREADS, 1, 1, 0, a, params, NULL));
    ok(cuCtxSynchronize());
    const double ns = (seconds() - start) / ((double)LAUNCHES * THREADS * TIMES * IN_LOOP) * 1e9;
    if (ns < least) least = ns;
  }
  return least;
}

static const struct {
  const char *name;
  void (*run)(int);
  int calls;
} rows[] = {{"fill on one stream", fills, 1},
            {"copy on one stream", copies, 1},
            {"fill, record, wait, and back, of two streams", hand_over, 6},
            {"copy to pinned memory, wait, and read it", downloads, 2},
            {"allocate from a pool, fill, free", pooled, 3},
            {"stream and event made and destroyed", brief, 4}};


static double round_of(void (*run)(int), int calls) {
  const double start = seconds();
  for (int i = 0; i < EACH / calls; i++) {
    run(i);
    if (i % PART == PART - 1) ok(cuCtxSynchronize());
  }
  ok(cuCtxSynchronize());
  return (seconds() - start) / (EACH / calls * calls) * 1e9;
}

int main(int argc, char **argv) {
  CUcontext c = NULL;
  ok(cuInit(0));
  ok(cuDevicePrimaryCtxRetain(&c, 0));
  ok(cuCtxPushCurrent_v2(c));
  for (int i = 0; i < BUFFERS; i++) ok(cuMemAlloc_v2(&buffers[i], NBYTES));
  ok(cuMemHostAlloc(&pinned, NBYTES, 0));
  ok(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
  ok(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
  if (argc > 1) sim_seed(strtoull(argv[1], NULL, 0));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    double least = 1e18;
    for (int round = 0; round < ROUNDS; round++) {
      const double ns = round_of(rows[i].run, rows[i].calls);
      if (ns < least) least = ns;
    }
    printf("%-48s %7.0f ns a call\n", rows[i].name, least);
  }
  printf("%-48s %7.1f ns an instruction\n", "kernel of arithmetic, followed and run", nanoseconds_of_kernel(loop));
  printf("%-48s %7.1f ns an instruction\n", "kernel with loads, followed and run", nanoseconds_of_kernel(accesses));
  printf("%-48s %7.1f ns an instruction\n", "kernel with shared memory and barriers, of 5",
         nanoseconds_of_kernel(barriers) * IN_LOOP / (IN_LOOP + 1));
  fflush(stdout);
  _Exit(0);
}
