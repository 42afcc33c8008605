/* reach_spec.c: what no host can touch, and whose handler the fault then goes to. Without a thread, because what is
 * reported of such a fault is more than a handler may do in a process that goes on, and ThreadSanitizer says so. */
#include <setjmp.h>
#include <signal.h>

#include "spec.h"

static void touch(volatile unsigned char *at, bool write) {
  if (write) *at = 1;
  if (!write) (void)*at;
}

static sigjmp_buf back;

static void jump(int unused) {
  (void)unused;
  siglongjmp(back, 1);
}

/* The program's own handler, there before ours or put in its place later, gets the faults that are the program's. */
static void other_faults_go_to_the_programs_handler(void **state) {
  (void)state;
  void *m = NULL;
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  struct sigaction before;
  const struct sigaction own = {.sa_handler = jump, .sa_flags = SA_NODEFER};
  OK(cuMemHostAlloc(&m, NBYTES, 0));
  assert_int_equal(sigaction(SIGSEGV, &own, &before), 0);
  for (int i = 0; i < 2; i++) {
    OK(cuMemcpyDtoHAsync_v2(m, p, NBYTES, s));
    touch(m, false);
    OK(cuStreamSynchronize(s));
    if (sigsetjmp(back, 1) == 0) {
      (void)*(volatile char *)p;
      fail_msg("the host read device memory");
    }
    assert_int_equal(sigaction(SIGSEGV, &own, NULL), 0);
  }
  assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
  assert_int_equal(sim_findings(SIM_RACE), 1);
  assert_int_equal(sim_findings(SIM_MISUSE), 1);
  sim_reset();
  OK(cuMemFreeHost(m));
  give_back(p, 0, s, NULL);
}

/* With the program's handler as a way back, since nothing else survives it. */
static void reach_for(CUdeviceptr at, bool write) {
  struct sigaction before;
  const struct sigaction own = {.sa_handler = jump, .sa_flags = SA_NODEFER};
  assert_int_equal(sigaction(SIGSEGV, &own, &before), 0);
  const CUdeviceptr other = device_memory(); /* the simulator's handler is the first again */
  if (sigsetjmp(back, 1) == 0) {
    touch((volatile unsigned char *)at, write);
    fail_msg("the host touched %#zx", (size_t)at);
  }
  OK(cuMemFree_v2(other));
  assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
}

static void deeper(CUdeviceptr at) {
  volatile char below[1 << 14];
  below[0] = 0;
  reach_for(at, below[0] != 0);
}

/* What the handler has left by a jump is over, wherever on the stack the next fault is. */
static void a_handler_may_jump_out_at_any_depth(void **state) {
  (void)state;
  const CUdeviceptr p = device_memory();
  reach_for(p, false);
  deeper(p);
  reach_for(p, false);
  assert_int_equal(sim_findings(SIM_MISUSE), 1);
  sim_reset();
  OK(cuMemFree_v2(p));
}

static void what_no_host_can_touch_is_told_before_the_process_dies_of_it(void **state) {
  (void)state;
  void *m = NULL;
  const CUdeviceptr p = device_memory();
  for (int write = 0; write < 2; write++) {
    reach_for(p + 9, write != 0);
    assert_true(told(write != 0 ? "the host writes a device's memory" : "the host reads a device's memory"));
    assert_true(told("(9 into an allocation of 4096)\n  here   call #"));
    assert_true(told("the program, thread 1 from sim_reach_spec"));
    assert_true(told("\n  made   call #"));
    found(SIM_MISUSE, 1);
  }
  OK(cuMemFree_v2(p));
  OK(cuMemHostAlloc(&m, NBYTES, 0));
  OK(cuMemFreeHost(m));
  reach_for((uintptr_t)m, false);
  assert_true(told("the host reads freed memory at"));
  assert_true(told("\n  freed  call #"));
  found(SIM_STALE, 1);
  reach_for((uintptr_t)m + NBYTES, true);
  assert_true(told(", where no memory is\n  here   call #"));
  found(SIM_MISUSE, 1);
}

RUN(SPEC(other_faults_go_to_the_programs_handler), SPEC(a_handler_may_jump_out_at_any_depth),
    SPEC(what_no_host_can_touch_is_told_before_the_process_dies_of_it))
