/* module_spec.c: modules, libraries and functions, what a launch may be asked, and what it cannot do. */
#include "kernel.h"

#define STORE "st.global.u32 [%d0], 7;"

static uint32_t word_at(CUdeviceptr p) {
  uint32_t got = 0;
  OK(cuMemcpyDtoH_v2(&got, p, sizeof got));
  return got;
}

static void functions_are_found_by_name(void **state) {
  (void)state;
  CUmodule m;
  CUfunction f = NULL, g = NULL;
  OK(cuModuleLoadData(&m, HEAD ".entry a() { ret; } .visible .entry b(.param .u8 x, .param .u64 y) { ret; }"));
  OK(cuModuleGetFunction(&f, m, "a"));
  OK(cuModuleGetFunction(&g, m, "b"));
  assert_ptr_not_equal(f, g);
  FAILS(cuModuleGetFunction(&f, m, "c"), CUDA_ERROR_NOT_FOUND);
  const char *text = NULL;
  OK(cuGetErrorName(cuModuleLoadData(&m, "no PTX"), &text));
  assert_string_equal(text, "CUDA_ERROR_INVALID_PTX");
  FAILS(cuModuleGetFunction(&f, m, NULL), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuModuleGetFunction(&f, NULL, "a"), CUDA_ERROR_INVALID_HANDLE);
  OK(cuModuleUnload(m));
  FAILS(cuModuleUnload(m), CUDA_ERROR_INVALID_HANDLE);
  FAILS(cuLaunchKernel(g, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
  assert_true(told("destroyed module") && told("destroyed function"));
  found(SIM_MISUSE, 2);
}

static void a_function_says_what_it_is(void **state) {
  (void)state;
  CUmodule m;
  CUfunction f;
  int v = 0;
  size_t offset = 0, size = 0;
  OK(cuModuleLoadData(&m, HEAD ".entry b(.param .u8 x, .param .u64 y, .param .align 16 .b8 z[20])\n"
                               ".maxntid 128, 2, 1 .minnctapersm 2 { .pragma \"nounroll\"; .loc 1 2 3\nret; }"));
  OK(cuModuleGetFunction(&f, m, "b"));
  OK(cuFuncGetAttribute(&v, 0, f));
  assert_int_equal(v, 256);
  OK(cuFuncGetAttribute(&v, 6, f));
  assert_int_equal(v, 90);
  FAILS(cuFuncGetAttribute(&v, 17, f), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuFuncGetAttribute(NULL, 0, f), CUDA_ERROR_INVALID_VALUE);
  OK(cuFuncSetAttribute(f, 8, 1024));
  FAILS(cuFuncSetAttribute(f, 8, 1 << 20), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuFuncSetAttribute(f, 0, 1), CUDA_ERROR_INVALID_VALUE);
  static const size_t offsets[] = {0, 8, 16}, sizes[] = {1, 8, 20};
  for (size_t i = 0; i < 3; i++) {
    OK(cuFuncGetParamInfo(f, i, &offset, &size));
    assert_true(offset == offsets[i] && size == sizes[i]);
  }
  FAILS(cuFuncGetParamInfo(f, 3, &offset, &size), CUDA_ERROR_INVALID_VALUE);
  OK(cuModuleUnload(m));
}

/* What a debugger reads says nothing of what runs. */
static void sections_are_passed_over(void **state) {
  (void)state;
  CUmodule m;
  CUfunction f;
  OK(cuModuleLoadData(&m, HEAD ".visible .entry b()\n{\n.reg.b32 %r<2>;\n$L__func_begin0:\n$L__tmp0:\n"
                               "mov.u32 %r0, 1;\nret;\n$L__func_end0:\n}\n"
                               ".section .debug_abbrev\n{\n.b8 1, 17\n.b8 0\n}\n.section .debug_info\n{\n"
                               ".b32 18\n.b32 .debug_abbrev\n.b64 $L__func_begin0\n$L__info_string0:\n.b8 77\n}\n"
                               ".section .debug_macinfo { }\n.visible .entry c() { ret; }\n"));
  OK(cuModuleGetFunction(&f, m, "b"));
  OK(cuModuleGetFunction(&f, m, "c"));
  OK(cuModuleUnload(m));
  FAILS(cuModuleLoadData(&m, HEAD ".section .debug_info { .b8 1"), CUDA_ERROR_INVALID_PTX);
}

static void a_grid_has_limits(void **state) {
  (void)state;
  static const struct {
    unsigned blocks[3], threads[3], shared;
    bool ok;
  } grids[] = {
      {{1, 1, 1}, {1024, 1, 1}, 0, true},   {{1, 1, 1}, {1025, 1, 1}, 0, false},
      {{1, 1, 1}, {0, 1, 1}, 0, false},     {{0, 1, 1}, {1, 1, 1}, 0, false},
      {{1, 0, 1}, {1, 1, 1}, 0, false},     {{1, 1, 1}, {1, 1, 64}, 0, true},
      {{1, 1, 1}, {1, 1, 65}, 0, false},    {{1, 1, 1}, {32, 33, 1}, 0, false},
      {{1, 65535, 1}, {1, 1, 1}, 0, true},  {{1, 65536, 1}, {1, 1, 1}, 0, false},
      {{1, 1, 65536}, {1, 1, 1}, 0, false}, {{1u << 31, 1, 1}, {1, 1, 1}, 0, false},
      {{1, 1, 1}, {1, 1, 1}, 49152, true},  {{1, 1, 1}, {1, 1, 1}, 49153, false},
  };
  kernel k = load(HEAD ".entry k() { ret; }", "k"), exact = load(HEAD ".entry k() .reqntid 4 { ret; }", "k");
  for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
    const unsigned *b = grids[i].blocks, *t = grids[i].threads;
    const CUresult rc =
        cuLaunchKernel(k.function, b[0], b[1], b[2], t[0], t[1], t[2], grids[i].shared, NULL, NULL, NULL);
    assert_int_equal(rc, grids[i].ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
  }
  OK(cuLaunchKernel(exact.function, 1, 1, 1, 4, 1, 1, 0, NULL, NULL, NULL));
  FAILS(cuLaunchKernel(exact.function, 1, 1, 1, 3, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
  OK(cuCtxSynchronize());
  OK(cuModuleUnload(k.module));
  OK(cuModuleUnload(exact.module));
}

static void parameters_come_one_by_one_or_in_a_block(void **state) {
  (void)state;
  kernel k = load(entry("ld.param.u32 %r0, [n];\nst.global.u32 [%d0], %r0;"), "k");
  CUdeviceptr p = device_memory();
  uint64_t block[2] = {p, 5};
  size_t size = sizeof block, small = 8;
  void *extra[] = {(void *)1, block, (void *)2, &size, NULL}, *one[] = {&p, NULL};
  void *short_extra[] = {(void *)1, block, (void *)2, &small, NULL}, *odd[] = {(void *)9, block, NULL};
  OK(cuLaunchKernel(k.function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
  block[1] = 6;
  assert_int_equal(word_at(p), 5);
  CUlaunchAttribute cluster = {.id = (CUlaunchAttributeID)4}, none = {.id = CU_LAUNCH_ATTRIBUTE_IGNORE};
  const CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, &none, 1}, more = {1, 1, 1, 1, 1, 1, 0, NULL, &cluster, 1},
                       absent = {1, 1, 1, 1, 1, 1, 0, NULL, NULL, 1};
  OK(cuLaunchKernelEx(&config, k.function, NULL, extra));
  assert_int_equal(word_at(p), 6);
  FAILS(cuLaunchKernelEx(&more, k.function, NULL, extra), CUDA_ERROR_NOT_SUPPORTED);
  FAILS(cuLaunchKernelEx(&absent, k.function, NULL, extra), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuLaunchKernelEx(NULL, k.function, NULL, extra), CUDA_ERROR_INVALID_VALUE);
  void **const wrong[][2] = {{NULL, NULL}, {one, NULL}, {one, extra}, {NULL, short_extra}, {NULL, odd}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    FAILS(cuLaunchKernel(k.function, 1, 1, 1, 1, 1, 1, 0, NULL, wrong[i][0], wrong[i][1]), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree_v2(p));
  OK(cuModuleUnload(k.module));
}

static void every_thread_knows_its_place(void **state) {
  (void)state;
  uint32_t got[48];
  kernel k = load(entry("mov.u32 %r0, %ctaid.z;\nmov.u32 %r1, %nctaid.y;\nmov.u32 %r2, %ctaid.y;\n"
                        "mad.lo.u32 %r0, %r0, %r1, %r2;\nmov.u32 %r1, %nctaid.x;\nmov.u32 %r2, %ctaid.x;\n"
                        "mad.lo.u32 %r0, %r0, %r1, %r2;\nmov.u32 %r1, %ntid.z;\nmov.u32 %r2, %tid.z;\n"
                        "mad.lo.u32 %r0, %r0, %r1, %r2;\nmov.u32 %r1, %ntid.y;\nmov.u32 %r2, %tid.y;\n"
                        "mad.lo.u32 %r0, %r0, %r1, %r2;\nmov.u32 %r1, %ntid.x;\nmov.u32 %r2, %tid.x;\n"
                        "mad.lo.u32 %r0, %r0, %r1, %r2;\nmad.wide.u32 %d1, %r0, 4, %d0;\nst.global.u32 [%d1], %r0;"),
                  "k");
  CUdeviceptr p = device_memory();
  uint64_t n = 0;
  void *params[] = {&p, &n};
  OK(cuLaunchKernel(k.function, 2, 3, 1, 2, 1, 4, 0, NULL, params, NULL));
  OK(cuMemcpyDtoH_v2(got, p, sizeof got));
  for (uint32_t i = 0; i < 48; i++) assert_int_equal(got[i], i);
  OK(cuMemFree_v2(p));
  OK(cuModuleUnload(k.module));
}

/* What cannot be followed, not even by way of the parameters, is refused when the call is made, and says why. */
static void what_depends_on_memory_is_refused(void **state) {
  (void)state;
  static const char *const refused[][2] = {
      {"ld.global.u64 %d1, [%d0];\nst.global.u32 [%d1], 1;",
       "k, line 11: an address comes from what memory holds, and from no parameter"},
      {"mov.u32 %r0, %r1;", "the register %r1 is read before it is written"},
      {"@%p1 mov.u32 %r0, 1;", "the register %p1 is read"},
      {"mov.u32 %r0, %tid.x;\nsetp.eq.u32 %p0, %r0, 0;\n@%p0 mov.u32 %r1, 1;\nadd.u32 %r0, %r1, 1;",
       "thread (1, 0, 0) of block (0, 0, 0): the register %r1 is read"},
      {"st.global.u32 [%d0], %r3;", "the register %r3 is read"},
      {"mov.u32 %r0, 0;\ndiv.u32 %r0, 1, %r0;", "an integer is divided by zero"},
  };
  CUdeviceptr p = device_memory();
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    kernel k = load(entry(refused[i][0]), "k");
    FAILS(start(k, 2, p, 0, NULL), CUDA_ERROR_NOT_SUPPORTED);
    if (!told(refused[i][1])) show_findings();
    assert_true(told(refused[i][1]));
    found(SIM_MISUSE, 1);
    OK(cuCtxSynchronize());
    OK(cuModuleUnload(k.module));
  }
  OK(cuMemFree_v2(p));
}

static void values_that_depend_on_memory_are_not(void **state) {
  (void)state;
  kernel k = load(entry("ld.global.u32 %r0, [%d0];\nsetp.eq.u32 %p0, %r0, 41;\nselp.u32 %r1, 1, 5, %p0;\n"
                        "@!%p0 mov.u32 %r1, 9;\nmov.u32 %r3, 0;\n@!%p0 div.u32 %r2, %r3, %r3;\n"
                        "add.u32 %r0, %r0, %r1;\nst.global.u32 [%d0], %r0;"),
                  "k");
  CUdeviceptr p = device_memory();
  OK(cuMemsetD32Async(p, 41, 1, NULL));
  OK(start(k, 1, p, 0, NULL));
  OK(start(k, 1, p, 0, NULL));
  assert_int_equal(word_at(p), 51);
  OK(cuMemFree_v2(p));
  OK(cuModuleUnload(k.module));
}

static void a_launch_that_does_not_end_is_found(void **state) {
  (void)state;
  kernel k = load(entry("AGAIN: bra AGAIN;"), "k");
  OK(start(k, 1, 0, 0, NULL));
  assert_true(told("it does not come to an end"));
  FAILS(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_TIMEOUT);
  found(SIM_MISUSE, 1);
  OK(cuModuleUnload(k.module));
}

static void a_parameter_is_read_only_where_it_is(void **state) {
  (void)state;
  kernel k = load(entry("mov.u64 %d1, n;\nmov.u32 %r1, %tid.x;\nmad.wide.u32 %d1, %r1, 8, %d1;\n"
                        "ld.param.u64 %d2, [%d1];\n@%p0 bra X;\nX:"),
                  "k");
  FAILS(start(k, 1, 0, 0, NULL), CUDA_ERROR_NOT_SUPPORTED);
  assert_true(told("the register %p0"));
  found(SIM_MISUSE, 1);
  OK(cuModuleUnload(k.module));
  k = load(entry("mov.u64 %d1, n;\nmov.u32 %r1, %tid.x;\nmad.wide.u32 %d1, %r1, 8, %d1;\nld.param.u64 %d2, [%d1];"),
           "k");
  OK(start(k, 1, 0, 0, NULL));
  OK(cuCtxSynchronize());
  OK(start(k, 2, 0, 0, NULL));
  assert_true(told("thread (1, 0, 0) of block (0, 0, 0): a parameter is read outside"));
  FAILS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  found(SIM_BOUNDS, 1);
  OK(cuModuleUnload(k.module));
}

static void code_is_kept_until_its_launches_are_done(void **state) {
  (void)state;
  kernel k = load(entry(STORE), "k");
  CUdeviceptr p = device_memory();
  OK(start(k, 1, p, 0, NULL));
  OK(cuModuleUnload(k.module));
  assert_true(told("a module is unloaded while a launch of it may be queued"));
  found(SIM_MISUSE, 1);
  assert_int_equal(word_at(p), 7);
  OK(cuMemFree_v2(p));
}

static void a_graph_does_not_keep_the_code(void **state) {
  (void)state;
  kernel k = load(entry(STORE), "k");
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  CUgraph g;
  CUgraphExec x;
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(start(k, 1, p, 0, s));
  OK(cuStreamEndCapture(s, &g));
  OK(cuGraphInstantiateWithFlags(&x, g, 0));
  OK(cuModuleUnload(k.module));
  assert_int_equal(sim_findings(SIM_ANY), 0);
  OK(cuGraphLaunch(x, s));
  assert_true(told("a kernel of a module that was unloaded is launched"));
  found(SIM_STALE, 1);
  OK(cuStreamSynchronize(s));
  OK(cuGraphExecDestroy(x));
  OK(cuGraphDestroy(g));
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(p));
}

static void a_module_belongs_to_its_context(void **state) {
  (void)state;
  kernel k = load(entry(STORE), "k");
  CUcontext own;
  CUmodule m;
  CUdeviceptr p = device_memory();
  OK(cuCtxPushCurrent_v2(contexts[1]));
  FAILS(start(k, 1, p, 0, NULL), CUDA_ERROR_INVALID_HANDLE);
  assert_true(told("the module is another context's"));
  OK(cuCtxPopCurrent_v2(NULL));
  found(SIM_MISUSE, 1);
  CUstream s = stream();
  OK(cuCtxPushCurrent_v2(contexts[1]));
  FAILS(start(k, 1, p, 0, s), CUDA_ERROR_INVALID_HANDLE);
  assert_true(told("the current one is another context's"));
  OK(cuCtxPopCurrent_v2(NULL));
  found(SIM_MISUSE, 1);
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(p));
  OK(cuModuleUnload(k.module));
  OK(cuCtxCreate_v2(&own, 0, 0));
  OK(cuModuleLoadData(&m, entry("")));
  assert_int_equal(sim_left("modules"), 1);
  OK(cuCtxDestroy_v2(own));
  assert_int_equal(sim_left("modules"), 0);
}

static void a_library_serves_every_device(void **state) {
  (void)state;
  CUlibrary l;
  CUkernel k;
  CUfunction f;
  int v = 0;
  size_t offset = 0;
  OK(cuLibraryLoadData(&l, entry(STORE), NULL, NULL, 0, NULL, NULL, 0));
  OK(cuLibraryGetKernel(&k, l, "k"));
  FAILS(cuLibraryGetKernel(&k, l, "none"), CUDA_ERROR_NOT_FOUND);
  OK(cuKernelGetAttribute(&v, 0, k, 1));
  assert_int_equal(v, 1024);
  OK(cuKernelGetParamInfo(k, 1, &offset, NULL));
  assert_int_equal(offset, 8);
  for (int d = 0; d < 2; d++) {
    OK(cuCtxPushCurrent_v2(contexts[d]));
    CUdeviceptr p = device_memory();
    uint64_t n = 0;
    void *params[] = {&p, &n};
    OK(cuLaunchKernel((CUfunction)(void *)k, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    assert_int_equal(word_at(p), 7);
    OK(cuKernelGetFunction(&f, k));
    assert_ptr_not_equal(f, k);
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemFree_v2(p));
    OK(cuCtxPopCurrent_v2(NULL));
  }
  FAILS(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
  found(SIM_MISUSE, 1);
  assert_int_equal(sim_left("modules"), 1);
  OK(cuLibraryUnload(l));
  FAILS(cuLibraryGetKernel(&k, l, "k"), CUDA_ERROR_INVALID_HANDLE);
  found(SIM_MISUSE, 1);
}

static void the_stream_0_of_a_thread_is_its_own(void **state) {
  (void)state;
  kernel k = load(entry(STORE), "k");
  CUdeviceptr p = device_memory();
  CUstream s = stream();
  uint64_t n = 0;
  void *params[] = {&p, &n};
  OK(cuLaunchKernel_ptsz(k.function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
  OK(cuMemsetD8Async(p, 0, 4, s));
  assert_true(told("the per-thread stream"));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(p));
  OK(cuModuleUnload(k.module));
}

/* More places than are told apart: gaps count as touched then, never the other way round. */
static void a_scattered_launch_is_still_checked(void **state) {
  (void)state;
  kernel squares = load(entry("mov.u32 %r0, %tid.x;\nmul.lo.u32 %r0, %r0, %r0;\nmad.wide.u32 %d1, %r0, 4, %d0;\n" STORE
                              "\nand.b32 %r0, %r0, 1;\nsetp.eq.u32 %p0, %r0, 0;\n@%p0 st.global.u32 [%d1], 7;\n"
                              "@!%p0 st.global.u8 [%d1], 7;"),
                        "k");
  kernel many = load(entry("mov.u32 %r0, %ctaid.x;\nmov.u32 %r1, %ntid.x;\nmov.u32 %r2, %tid.x;\n"
                           "mad.lo.u32 %r0, %r0, %r1, %r2;\nmad.wide.u32 %d1, %r0, 4, %d0;\n"
                           "ld.global.u8 %r3, [%d1];\nst.global.u8 [%d1], 7;\nld.global.u8 %r3, [%d1+2];"),
                     "k");
  CUdeviceptr p = 0;
  CUstream s = stream(), t = stream();
  uint64_t n = 0;
  void *params[] = {&p, &n};
  OK(cuMemAlloc_v2(&p, 1024 * 1024 * 4));
  OK(start(squares, 1, p, 0, s));
  OK(cuLaunchKernel(many.function, 700, 1, 1, 1024, 1, 1, 0, s, params, NULL));
  assert_int_equal(sim_findings(SIM_ANY), 0);
  OK(cuMemsetD8Async(p + 700 * 1024 * 4, 0, 64, t));
  OK(cuMemsetD8Async(p + 1001, 0, 1, t));
  assert_int_equal(sim_findings(SIM_ANY), 0);
  OK(cuMemsetD8Async(p + 1000, 0, 1, t));
  found(SIM_RACE, 1);
  OK(cuMemsetD8Async(p + 1002, 0, 1, t));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  OK(start(squares, 1024, p, 0, s));
  found(SIM_RACE, 1); /* all of them store the first word too */
  OK(cuMemsetD8Async(p + 4 * 1023 * 1023, 0, 1, t));
  found(SIM_RACE, 1);
  OK(cuMemsetD8Async(p + 10, 0, 1, t)); /* between the second and the third */
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  OK(cuStreamDestroy_v2(s));
  OK(cuStreamDestroy_v2(t));
  OK(cuMemFree_v2(p));
  OK(cuModuleUnload(squares.module));
  OK(cuModuleUnload(many.module));
}

static CUresult attempt(const char *name, kernel k, CUdeviceptr p, CUlibrary library, CUkernel of_library) {
  CUmodule m;
  CUlibrary l;
  CUkernel got;
  CUfunction f;
  size_t size;
  int v;
  uint64_t n = 0;
  void *params[] = {&p, &n};
  const CUlaunchConfig c = {1, 1, 1, 1, 1, 1, 0, NULL, NULL, 0};
  if (strcmp(name, "cuModuleLoadData") == 0) return cuModuleLoadData(&m, entry(STORE));
  if (strcmp(name, "cuModuleLoadDataEx") == 0) return cuModuleLoadDataEx(&m, entry(STORE), 0, NULL, NULL);
  if (strcmp(name, "cuModuleGetFunction") == 0) return cuModuleGetFunction(&f, k.module, "k");
  if (strcmp(name, "cuLibraryLoadData") == 0) return cuLibraryLoadData(&l, entry(STORE), NULL, NULL, 0, NULL, NULL, 0);
  if (strcmp(name, "cuLibraryGetKernel") == 0) return cuLibraryGetKernel(&got, library, "k");
  if (strcmp(name, "cuKernelGetFunction") == 0) return cuKernelGetFunction(&f, of_library);
  if (strcmp(name, "cuKernelGetAttribute") == 0) return cuKernelGetAttribute(&v, 0, of_library, 0);
  if (strcmp(name, "cuKernelGetParamInfo") == 0) return cuKernelGetParamInfo(of_library, 0, &size, &size);
  if (strcmp(name, "cuFuncGetAttribute") == 0) return cuFuncGetAttribute(&v, 0, k.function);
  if (strcmp(name, "cuFuncSetAttribute") == 0) return cuFuncSetAttribute(k.function, 8, 0);
  if (strcmp(name, "cuFuncGetParamInfo") == 0) return cuFuncGetParamInfo(k.function, 0, &size, &size);
  if (strcmp(name, "cuLaunchKernelEx") == 0) return cuLaunchKernelEx(&c, k.function, params, NULL);
  return start(k, 1, p, 0, NULL);
}

static void every_call_fails_on_demand(void **state) {
  (void)state;
  static const char *const names[] = {
      "cuModuleLoadData",    "cuModuleLoadDataEx",   "cuModuleGetFunction",  "cuLibraryLoadData",  "cuLibraryGetKernel",
      "cuKernelGetFunction", "cuKernelGetAttribute", "cuKernelGetParamInfo", "cuFuncGetAttribute", "cuFuncSetAttribute",
      "cuFuncGetParamInfo",  "cuLaunchKernel",       "cuLaunchKernelEx"};
  kernel k = load(entry(STORE), "k");
  CUdeviceptr p = device_memory();
  CUlibrary l;
  CUkernel of_library;
  char rule[64];
  OK(cuLibraryLoadData(&l, entry(STORE), NULL, NULL, 0, NULL, NULL, 0));
  OK(cuLibraryGetKernel(&of_library, l, "k"));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    snprintf(rule, sizeof rule, "%s:2", names[i]);
    assert_int_equal(sim_fail(rule), 0);
    FAILS(attempt(names[i], k, p, l, of_library), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(sim_faults(), 1);
    sim_reset();
  }
  assert_int_equal(sim_left("modules"), 2);
  OK(cuCtxSynchronize());
  assert_int_equal(word_at(p), 0xCBCBCBCB);
  assert_int_equal(sim_fail("cuModuleUnload:1,cuLibraryUnload:1"), 0);
  FAILS(cuModuleUnload(k.module), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuLibraryUnload(l), CUDA_ERROR_INVALID_VALUE);
  assert_int_equal(sim_left("modules"), 0);
  sim_reset();
  OK(cuMemFree_v2(p));
}

static void a_launch_fails_late(void **state) {
  (void)state;
  kernel k = load(entry(STORE), "k");
  CUdeviceptr p = device_memory();
  assert_int_equal(sim_fail("cuLaunchKernel:719:late"), 0);
  OK(start(k, 1, p, 0, NULL));
  FAILS(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
  sim_reset();
  assert_int_equal(word_at(p), 0xCBCBCBCB);
  OK(cuMemFree_v2(p));
  OK(cuModuleUnload(k.module));
}

static void a_module_that_is_left_is_in_the_ledger(void **state) {
  (void)state;
  CUmodule m;
  const uint64_t before = sim_ledger();
  sim_reset();
  OK(cuModuleLoadData(&m, entry("")));
  assert_int_equal(sim_ledger(), before + 1);
  assert_true(told("leak: module 0x"));
  sim_reset();
  OK(cuModuleUnload(m));
}

RUN(SPEC(functions_are_found_by_name), SPEC(a_function_says_what_it_is), SPEC(sections_are_passed_over),
    SPEC(a_grid_has_limits),
    SPEC(parameters_come_one_by_one_or_in_a_block), SPEC(every_thread_knows_its_place),
    SPEC(what_depends_on_memory_is_refused), SPEC(values_that_depend_on_memory_are_not),
    SPEC(a_launch_that_does_not_end_is_found), SPEC(a_parameter_is_read_only_where_it_is),
    SPEC(code_is_kept_until_its_launches_are_done), SPEC(a_graph_does_not_keep_the_code),
    SPEC(a_module_belongs_to_its_context), SPEC(a_library_serves_every_device),
    SPEC(the_stream_0_of_a_thread_is_its_own), SPEC(a_scattered_launch_is_still_checked),
    SPEC(every_call_fails_on_demand), SPEC(a_launch_fails_late), SPEC(a_module_that_is_left_is_in_the_ledger))
