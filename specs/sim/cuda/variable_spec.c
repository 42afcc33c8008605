/* variable_spec.c: the variables of a module: where they lie, who reads and writes them there, and how long. */
#include "kernel.h"

/* One constant array, one counter, one that is the text's own; k counts the threads and keeps what it read. */
#define VARIABLES                                                                                                  \
  HEAD ".visible .const .align 4 .u32 table[4] = {1, 2, 3, 4};\n.visible .global .align 4 .u32 count = 5;\n"       \
       ".global .align 4 .u32 own[2] = {7, 8};\n.visible .global .align 1 .b8 bytes[9];\n"                         \
       ".visible .entry k(.param .u64 to, .param .u64 n)\n{\n.reg .pred %p<4>;\n.reg .b32 %r<8>;\n.reg .b64 %d<8>;\n" \
       "ld.param.u64 %d0, [to];\nmov.u32 %r0, %tid.x;\nmad.wide.u32 %d1, %r0, 4, %d0;\n"
#define READS VARIABLES "ld.const.u32 %r1, [table+8];\nst.global.u32 [%d1], %r1;\nret;\n}\n"
#define COUNTS VARIABLES "mov.u64 %d2, count;\natom.global.add.u32 %r1, [%d2], 1;\nst.global.u32 [%d1], %r1;\nret;\n}\n"

static uint32_t word_at(CUdeviceptr p) {
  uint32_t got = 0;
  OK(cuMemcpyDtoH_v2(&got, p, sizeof got));
  return got;
}

static void they_are_found_by_name(void **state) {
  (void)state;
  kernel k = load(READS, "k");
  CUdeviceptr table = 0, again = 0, other = 0;
  size_t nbytes = 0;
  const int64_t before = sim_left("memory");
  OK(cuModuleGetGlobal_v2(&table, &nbytes, k.module, "table"));
  assert_int_equal(nbytes, 16);
  assert_int_equal(word_at(table + 12), 4);
  OK(cuModuleGetGlobal_v2(&again, NULL, k.module, "table"));
  assert_int_equal(again, table);
  OK(cuModuleGetGlobal_v2(NULL, &nbytes, k.module, "bytes"));
  assert_int_equal(nbytes, 9);
  OK(cuModuleGetGlobal_v2(&other, NULL, k.module, "count"));
  assert_int_equal(word_at(other), 5);
  FAILS(cuModuleGetGlobal_v2(&other, NULL, k.module, "k"), CUDA_ERROR_NOT_FOUND);
  FAILS(cuModuleGetGlobal_v2(&other, NULL, k.module, "own"), CUDA_ERROR_NOT_FOUND); /* not visible */
  FAILS(cuModuleGetGlobal_v2(NULL, NULL, k.module, "table"), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuModuleGetGlobal_v2(&other, NULL, k.module, NULL), CUDA_ERROR_INVALID_VALUE);
  assert_int_equal(sim_left("memory"), before);
  assert_int_equal(sim_findings(SIM_ANY), 0);
  FAILS(cuMemFree_v2(table), CUDA_ERROR_INVALID_VALUE);
  assert_true(told("is a module's variable, which goes with the module"));
  found(SIM_STALE, 1);
  OK(cuModuleUnload(k.module));
  FAILS(cuMemsetD8Async(table, 0, 1, NULL), CUDA_ERROR_INVALID_VALUE);
  found(SIM_STALE, 1);
}

static void a_kernel_reads_what_the_host_wrote(void **state) {
  (void)state;
  kernel k = load(READS, "k");
  CUdeviceptr p = device_memory(), table = 0;
  const uint32_t values[] = {10, 20, 30, 40, 50};
  CUstream s = stream();
  OK(start(k, 1, p, 0, s));
  OK(cuStreamSynchronize(s));
  assert_int_equal(word_at(p), 3);
  OK(cuModuleGetGlobal_v2(&table, NULL, k.module, "table"));
  OK(cuMemcpyHtoDAsync_v2(table, values, 16, s));
  OK(start(k, 1, p, 0, s));
  OK(cuStreamSynchronize(s));
  assert_int_equal(word_at(p), 30);
  assert_int_equal(sim_findings(SIM_ANY), 0);
  FAILS(cuMemcpyHtoDAsync_v2(table, values, 20, s), CUDA_ERROR_INVALID_VALUE);
  found(SIM_BOUNDS, 1);
  OK(cuMemFree_v2(p));
  OK(cuStreamDestroy_v2(s));
  OK(cuModuleUnload(k.module));
}

static void a_kernel_and_a_copy_of_a_variable_race(void **state) {
  (void)state;
  kernel k = load(READS, "k");
  CUdeviceptr p = device_memory(), table = 0;
  CUstream s = stream(), t = stream();
  OK(cuModuleGetGlobal_v2(&table, NULL, k.module, "table"));
  OK(start(k, 1, p, 0, s));
  OK(cuMemsetD8Async(table, 0, 8, t)); /* other words */
  assert_int_equal(sim_findings(SIM_ANY), 0);
  OK(cuMemsetD8Async(table + 8, 0, 4, t));
  found(SIM_RACE, 1);
  give_back(p, 0, s, t);
  OK(cuModuleUnload(k.module));
}

static void a_kernel_writes_what_the_host_reads(void **state) {
  (void)state;
  kernel k = load(COUNTS, "k");
  CUdeviceptr p = device_memory(), count = 0;
  OK(start(k, 32, p, 0, NULL));
  OK(cuModuleGetGlobal_v2(&count, NULL, k.module, "count"));
  assert_int_equal(word_at(count), 37);
  OK(start(k, 1, p, 0, NULL));
  assert_int_equal(word_at(count), 38);
  CUstream s = stream();
  OK(start(k, 1, p, 0, s));
  OK(cuMemsetD32Async(count, 0, 1, NULL));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  give_back(p, 0, s, NULL);
  OK(cuModuleUnload(k.module));
}

static void what_depends_on_memory_reaches_them_too(void **state) {
  (void)state;
  kernel k = load(VARIABLES "ld.global.u32 %r1, [%d0];\nsetp.eq.u32 %p0, %r1, 0;\n@%p0 bra END;\n"
                            "ld.const.u32 %r2, [table];\nld.global.u32 %r3, [count];\nadd.u32 %r2, %r2, %r3;\n"
                            "st.global.u32 [own+4], %r2;\nst.global.u32 [count], %r2;\nEND: ret;\n}\n",
                  "k");
  CUdeviceptr p = device_memory(), count = 0;
  CUstream s = stream();
  OK(cuMemsetD32Async(p, 1, 1, s));
  OK(start(k, 1, p, 0, s));
  OK(start(k, 1, p, 0, s));
  OK(cuModuleGetGlobal_v2(&count, NULL, k.module, "count"));
  OK(cuStreamSynchronize(s));
  assert_int_equal(word_at(count), 7);
  OK(start(k, 1, p, 0, s));
  OK(cuMemsetD8Async(count, 0, 1, NULL));
  found(SIM_RACE, 1);
  OK(cuStreamSynchronize(s));
  assert_int_equal(sim_findings(SIM_ANY), 0);
  give_back(p, 0, s, NULL);
  OK(cuModuleUnload(k.module));
}

static void what_is_wrong_is_found(void **state) {
  (void)state;
  static const struct {
    const char *body, *text;
    sim_kind kind;
  } wrong[] = {
      {"mov.u64 %d2, own;\nst.global.u32 [%d2+8], 1;", "which lies in no variable", SIM_BOUNDS},
      {"mov.u64 %d2, bytes;\nst.global.u16 [%d2+8], 1;", "ends behind its allocation", SIM_BOUNDS},
      {"mov.u64 %d2, bytes;\nst.global.u16 [%d2+1], 1;", "which is no multiple of that", SIM_BOUNDS},
  };
  char text[2048];
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    snprintf(text, sizeof text, "%s%s\nret;\n}\n", VARIABLES, wrong[i].body);
    kernel k = load(text, "k");
    OK(start(k, 1, 0, 0, NULL));
    if (!told(wrong[i].text)) show_findings();
    assert_true(told(wrong[i].text));
    found(wrong[i].kind, 1);
    assert_int_not_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    sim_reset();
    OK(cuModuleUnload(k.module));
  }
}

/* What was followed with the first values of the text cannot read others. */
static void a_graph_that_is_older_than_the_question_is_told(void **state) {
  (void)state;
  kernel k = load(READS, "k");
  CUdeviceptr p = device_memory(), table = 0;
  CUstream s = stream();
  CUgraph g;
  CUgraphExec x;
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(start(k, 1, p, 0, s));
  OK(cuStreamEndCapture(s, &g));
  OK(cuGraphInstantiateWithFlags(&x, g, 0));
  OK(cuModuleGetGlobal_v2(&table, NULL, k.module, "table"));
  OK(cuGraphLaunch(x, s));
  OK(cuStreamSynchronize(s));
  assert_int_equal(sim_findings(SIM_ANY), 0); /* nobody has written there */
  OK(cuMemsetD32Async(table, 9, 4, s));
  OK(cuGraphLaunch(x, s));
  OK(cuStreamSynchronize(s));
  assert_true(told("before anybody had asked where 'table' lies"));
  found(SIM_MISUSE, 1);
  OK(cuGraphExecDestroy(x));
  OK(cuGraphDestroy(g));
  give_back(p, 0, s, NULL);
  OK(cuModuleUnload(k.module));
}

static void a_library_has_them_in_each_context(void **state) {
  (void)state;
  CUlibrary l;
  CUkernel k;
  CUdeviceptr at[2] = {0}, p = 0;
  uint64_t n = 0;
  void *params[] = {&p, &n};
  OK(cuLibraryLoadData(&l, COUNTS, NULL, NULL, 0, NULL, NULL, 0));
  OK(cuLibraryGetKernel(&k, l, "k"));
  for (int d = 0; d < 2; d++) {
    OK(cuCtxPushCurrent_v2(contexts[d]));
    p = device_memory();
    OK(cuLibraryGetGlobal(&at[d], NULL, l, "count"));
    for (int times = 0; times <= d; times++)
      OK(cuLaunchKernel((CUfunction)(void *)k, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    assert_int_equal(word_at(at[d]), 6 + d);
    OK(cuMemFree_v2(p));
    OK(cuCtxPopCurrent_v2(NULL));
  }
  assert_int_not_equal(at[0], at[1]);
  FAILS(cuLibraryGetGlobal(&p, NULL, l, "own"), CUDA_ERROR_NOT_FOUND);
  FAILS(cuLibraryGetGlobal(NULL, NULL, l, "count"), CUDA_ERROR_INVALID_VALUE);
  OK(cuCtxPopCurrent_v2(NULL));
  FAILS(cuLibraryGetGlobal(&p, NULL, l, "count"), CUDA_ERROR_INVALID_CONTEXT);
  OK(cuCtxPushCurrent_v2(contexts[0]));
  found(SIM_MISUSE, 1);
  OK(cuLibraryUnload(l));
}

static void a_context_takes_its_own_with_it(void **state) {
  (void)state;
  CUlibrary l;
  CUcontext own;
  CUdeviceptr at = 0, other = 0;
  OK(cuLibraryLoadData(&l, COUNTS, NULL, NULL, 0, NULL, NULL, 0));
  OK(cuLibraryGetGlobal(&other, NULL, l, "count"));
  OK(cuCtxCreate_v2(&own, 0, 0));
  OK(cuLibraryGetGlobal(&at, NULL, l, "count"));
  OK(cuCtxDestroy_v2(own));
  assert_int_equal(sim_findings(SIM_ANY), 0); /* it had no memory of the program's */
  assert_int_equal(word_at(other), 5);
  FAILS(cuMemsetD8Async(at, 0, 1, NULL), CUDA_ERROR_INVALID_VALUE);
  found(SIM_STALE, 1);
  OK(cuLibraryUnload(l));
}

static void the_device_may_have_no_memory_for_them(void **state) {
  (void)state;
  kernel k = load(COUNTS, "k");
  CUdeviceptr p = 0, rest = 0;
  size_t left = 0;
  OK(cuMemAlloc_v2(&p, NBYTES));
  OK(cuMemGetInfo_v2(&left, NULL));
  OK(cuMemAlloc_v2(&rest, left));
  FAILS(cuModuleGetGlobal_v2(&p, NULL, k.module, "table"), CUDA_ERROR_OUT_OF_MEMORY);
  FAILS(start(k, 1, p, 0, NULL), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemFree_v2(rest));
  OK(start(k, 1, p, 0, NULL));
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(p));
  OK(cuModuleUnload(k.module));
}

RUN(SPEC(they_are_found_by_name), SPEC(a_kernel_reads_what_the_host_wrote),
    SPEC(a_kernel_and_a_copy_of_a_variable_race), SPEC(a_kernel_writes_what_the_host_reads),
    SPEC(what_depends_on_memory_reaches_them_too), SPEC(what_is_wrong_is_found),
    SPEC(a_graph_that_is_older_than_the_question_is_told), SPEC(a_library_has_them_in_each_context),
    SPEC(a_context_takes_its_own_with_it), SPEC(the_device_may_have_no_memory_for_them))
