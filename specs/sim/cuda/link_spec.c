/* link_spec.c: texts of PTX that name what others of them have, through the driver's linker. */
#include "assembler.h"
#include "kernel.h"

enum { PTX = 1 };

/* %d0 is where the kernel stores %r0 in the end. */
#define KERNEL(body)                                                                                             \
  ".visible .entry k(.param .u64 to)\n{\n.reg .b32 %r<8>;\n.reg .b64 %d<4>;\nld.param.u64 %d0, [to];\n" body      \
  "st.global.u32 [%d0], %r0;\nret;\n}\n"
#define CALL_F                                                                                                   \
  "{\n.param .b32 in;\n.param .b32 out;\nst.param.b32 [in], 20;\ncall.uni (out), f, (in);\n"                      \
  "ld.param.b32 %r0, [out];\n}\n"
#define EXTERN_F ".extern .func (.param .b32 out) f(.param .b32 in);\n"
/* f(in) = in + what */
#define FUNCTION(linkage, name, what)                                                                            \
  linkage " .func (.param .b32 out) " name "(.param .b32 in)\n{\n.reg .b32 %r<2>;\nld.param.u32 %r0, [in];\n"      \
  "add.u32 %r1, %r0, " what ";\nst.param.b32 [out], %r1;\nret;\n}\n"

static char said[256];

/* What cuLinkComplete gives, after every text was taken. */
static CUresult complete(CUlinkState *l, const char *const *texts, void **code, size_t *size) {
  int options[] = {5, 6};
  void *values[] = {said, (void *)(uintptr_t)sizeof said};
  OK(cuLinkCreate_v2(2, options, values, l));
  for (int i = 0; texts[i] != NULL; i++)
    OK(cuLinkAddData_v2(*l, PTX, (void *)(uintptr_t)texts[i], strlen(texts[i]), "t", 0, NULL, NULL));
  return cuLinkComplete(*l, code, size);
}

/* The word that the kernel k of these texts stores. */
static uint32_t ran(const char *const *texts) {
  uint32_t got = 0;
  size_t size = 0;
  void *code = NULL;
  CUlinkState l;
  CUmodule m;
  CUfunction f;
  CUdeviceptr p = device_memory();
  void *params[] = {&p};
  OK(complete(&l, texts, &code, &size));
  void *copy = malloc(size); /* what comes out needs nothing behind it */
  memcpy(copy, code, size);
  OK(cuLinkDestroy(l));
  OK(cuModuleLoadData(&m, copy));
  free(copy);
  OK(cuModuleGetFunction(&f, m, "k"));
  OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
  OK(cuMemcpyDtoH_v2(&got, p, sizeof got));
  OK(cuModuleUnload(m));
  OK(cuMemFree_v2(p));
  return got;
}

#define RAN(...) ran((const char *const[]){__VA_ARGS__, NULL})

static void a_text_is_linked(void **state) {
  (void)state;
  static char text[] = HEAD ".entry k() { ret; }", wrong[] = "hello";
  char log[128] = "";
  int options[] = {5, 6};
  void *values[] = {log, (void *)(uintptr_t)sizeof log}, *code = NULL;
  size_t size = 0;
  CUlinkState l;
  CUmodule m;
  OK(cuLinkCreate_v2(2, options, values, &l));
  assert_int_equal(sim_left("modules"), 1);
  FAILS(cuLinkComplete(l, &code, &size), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuLinkAddData_v2(l, PTX, wrong, sizeof wrong, "w", 0, NULL, NULL), CUDA_ERROR_INVALID_PTX);
  assert_non_null(strstr(log, "'hello' where '.version'"));
  FAILS(cuLinkAddData_v2(l, 0, text, sizeof text, "k", 0, NULL, NULL), CUDA_ERROR_NOT_SUPPORTED);
  FAILS(cuLinkAddData_v2(l, 9, text, sizeof text, "k", 0, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
  OK(cuLinkAddData_v2(l, PTX, text, strlen(text), "k", 0, NULL, NULL));
  OK(cuLinkComplete(l, &code, &size));
  FAILS(cuLinkAddData_v2(l, PTX, text, sizeof text, "k", 0, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
  OK(cuModuleLoadData(&m, code));
  OK(cuModuleUnload(m));
  OK(cuLinkDestroy(l));
  FAILS(cuLinkDestroy(l), CUDA_ERROR_INVALID_HANDLE);
  found(SIM_MISUSE, 1);
}

static void a_function_of_another_text_is_called(void **state) {
  (void)state;
  static const char calls[] = HEAD EXTERN_F KERNEL(CALL_F), f[] = HEAD FUNCTION(".visible", "f", "3");
  if (*assembler() != '\0') assert_true(assembles(f));
  assert_int_equal(RAN(calls, f), 23);
  assert_int_equal(RAN(f, calls), 23);
}

/* What is not visible is each text's own, and has no part in what others of its name are. */
static void names_of_their_own_stay_apart(void **state) {
  (void)state;
  static const char with_own[] = HEAD EXTERN_F FUNCTION("", "g", "100") ".global .u32 own = 1;\n"
      KERNEL(CALL_F "ld.global.u32 %r1, [own];\nadd.u32 %r0, %r0, %r1;\n");
  static const char f[] = HEAD FUNCTION("", "g", "7") ".global .u32 own = 1000;\n"
      ".visible .func (.param .b32 out) f(.param .b32 in)\n{\n.reg .b32 %r<2>;\n.param .b32 i;\n.param .b32 o;\n"
      "ld.param.u32 %r0, [in];\nst.param.b32 [i], %r0;\ncall (o), g, (i);\nld.param.b32 %r1, [o];\n"
      "st.param.b32 [out], %r1;\nret;\n}\n";
  static const char visible_g[] = HEAD FUNCTION(".visible", "g", "50");
  assert_int_equal(RAN(with_own, f), 28);
  assert_int_equal(RAN(visible_g, f, with_own), 28);
}

static void a_variable_of_another_text_is_read(void **state) {
  (void)state;
  static const char table[] = HEAD ".visible .global .align 4 .u32 table[3] = {5, 6, 7};\n"
      ".visible .const .u32 c = 40;\n";
  static const char reads[] = HEAD ".extern .global .align 4 .u32 table[];\n.extern .const .u32 c;\n"
      ".global .u32 own = 9;\n"
      KERNEL("mov.u64 %d1, table;\nld.global.u32 %r0, [%d1+8];\nld.const.u32 %r1, [c];\nadd.u32 %r0, %r0, %r1;\n"
             "ld.global.u32 %r1, [table+4];\nadd.u32 %r0, %r0, %r1;\n");
  assert_int_equal(RAN(table, reads), 53);
  assert_int_equal(RAN(reads, table), 53);
}

static void another_may_stand_in_for_what_is_weak(void **state) {
  (void)state;
  static const char calls[] = HEAD EXTERN_F ".extern .global .u32 x;\n"
      KERNEL(CALL_F "ld.global.u32 %r1, [x];\nadd.u32 %r0, %r0, %r1;\n");
  static const char weak[] = HEAD FUNCTION(".weak", "f", "1") ".weak .global .u32 x = 100;\n";
  static const char weaker[] = HEAD FUNCTION(".weak", "f", "2") ".weak .global .u32 x = 200;\n";
  static const char strong[] = HEAD FUNCTION(".visible", "f", "3") ".visible .global .u32 x = 300;\n";
  assert_int_equal(RAN(calls, weak, weaker), 121);
  assert_int_equal(RAN(weak, strong, calls), 323);
  assert_int_equal(RAN(strong, calls, weak), 323);
}

/* Those of one name are one, as large as the largest, and begin as zeros. */
static void common_variables_are_one(void **state) {
  (void)state;
  static const char small[] = HEAD ".common .global .align 4 .u32 x[2];\n";
  static const char large[] = HEAD ".common .global .align 4 .u32 x[8];\n" KERNEL("ld.global.u32 %r0, [x+28];\n");
  static const char value[] = HEAD ".visible .global .align 4 .u32 x[8] = {1, 2, 3, 4, 5, 6, 7, 8};\n";
  assert_int_equal(RAN(small, large), 0);
  assert_int_equal(RAN(large, small), 0);
  assert_int_equal(RAN(small, large, value), 8);
}

/* Texts of which each is right, and which are not together. */
static void expect_refusal(const char *const *texts, const char *why) {
  CUlinkState l;
  void *code = NULL;
  said[0] = '\0';
  FAILS(complete(&l, texts, &code, NULL), CUDA_ERROR_UNKNOWN);
  assert_null(code);
  if (strstr(said, why) == NULL) fail_msg("'%s' is not in '%s'", why, said);
  OK(cuLinkDestroy(l));
}

#define REFUSED(why, ...) expect_refusal((const char *const[]){__VA_ARGS__, NULL}, why)

/* A kernel whose assertion fails where its word is not 5; what is called then is the driver's own. */
#define ASSERTS(word)                                                                                             \
  HEAD ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n"  \
  KERNEL(".reg .pred %p;\nmov.u32 %r0, " word ";\nsetp.eq.u32 %p, %r0, 5;\n@%p bra right;\n{\n.param .b64 a;\n"      \
         ".param .b64 b;\n.param .b32 c;\n.param .b64 d;\n.param .b64 e;\nst.param.b64 [a], %d0;\n"               \
         "st.param.b64 [b], %d0;\nst.param.b32 [c], 7;\nst.param.b64 [d], %d0;\nst.param.b64 [e], 1;\n"             \
         "call.uni __assertfail, (a, b, c, d, e);\n}\nright:\n")

static void an_assertion_calls_the_driver(void **state) {
  (void)state;
  CUmodule m;
  CUfunction f;
  CUdeviceptr p = device_memory();
  void *params[] = {&p};
  assert_int_equal(RAN(ASSERTS("5")), 5);
  OK(cuModuleLoadData(&m, ASSERTS("6")));
  OK(cuModuleGetFunction(&f, m, "k"));
  OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
  FAILS(cuCtxSynchronize(), CUDA_ERROR_ASSERT);
  assert_true(told("__assertfail, line 6, thread (0, 0, 0) of block (0, 0, 0): an assertion of the kernel fails"));
  found(SIM_MISUSE, 1);
  OK(cuModuleUnload(m));
  OK(cuMemFree_v2(p));
}

static void what_no_text_has_is_said(void **state) {
  (void)state;
  static const char calls[] = HEAD EXTERN_F KERNEL(CALL_F), f[] = HEAD FUNCTION(".visible", "f", "3");
  static const char own[] = HEAD FUNCTION("", "f", "3");
  static const char reads[] = HEAD ".extern .global .u32 x;\n" KERNEL("ld.global.u32 %r0, [x];\n");
  static const char takes[] = HEAD ".extern .global .u32 x;\n" KERNEL("mov.u64 %d1, x;\nmov.u32 %r0, 0;\n");
  REFUSED("ptx, line 14: no text defines the function 'f'", calls);
  REFUSED("no text defines the function 'f'", calls, own);
  REFUSED("no text defines the variable 'x'", reads);
  REFUSED("no text defines the variable 'x'", takes, f);
  CUmodule m;
  FAILS(cuModuleLoadData(&m, calls), CUDA_ERROR_INVALID_PTX);
  FAILS(cuModuleLoadData(&m, reads), CUDA_ERROR_INVALID_PTX);
}

static void what_two_texts_have_is_said(void **state) {
  (void)state;
  static const char f[] = HEAD FUNCTION(".visible", "f", "3"), calls[] = HEAD KERNEL("mov.u32 %r0, 0;\n");
  static const char x[] = HEAD ".visible .global .u32 x = 3;\n";
  static const char other[] = HEAD ".extern .global .u32 x[2];\n", constant[] = HEAD ".extern .const .u32 x;\n";
  static const char two[] = HEAD ".extern .func (.param .b32 out) f(.param .b32 a, .param .b32 b);\n"
      KERNEL("{\n.param .b32 a;\n.param .b32 o;\nst.param.b32 [a], 1;\ncall (o), f, (a, a);\n"
             "ld.param.b32 %r0, [o];\n}\n");
  REFUSED("'f' is declared twice", f, f);
  REFUSED("'k' is declared twice", calls, calls);
  REFUSED("'x' is declared twice", x, x);
  REFUSED("'x' has 8 bytes here and 4 where it is defined", x, other);
  REFUSED("or lies in another space", x, constant);
  REFUSED("'f' has 1 results and 1 parameters, not 1 and 2", f, two);
}

/* Only what the linker gave out may hold several texts. */
static void texts_behind_each_other_are_no_text(void **state) {
  (void)state;
  CUmodule m;
  FAILS(cuModuleLoadData(&m, HEAD ".entry a() { ret; }\n" HEAD ".entry b() { ret; }"), CUDA_ERROR_INVALID_PTX);
  FAILS(cuModuleLoadData(&m, HEAD ".extern .global .u32 x = 4;"), CUDA_ERROR_INVALID_PTX);
}

RUN(SPEC(a_text_is_linked), SPEC(a_function_of_another_text_is_called), SPEC(names_of_their_own_stay_apart),
    SPEC(a_variable_of_another_text_is_read), SPEC(another_may_stand_in_for_what_is_weak),
    SPEC(common_variables_are_one), SPEC(an_assertion_calls_the_driver),
    SPEC(what_no_text_has_is_said), SPEC(what_two_texts_have_is_said),
    SPEC(texts_behind_each_other_are_no_text))
