/* pointer_spec.c: calls through pointers to functions, and what a kernel prints. */
#include "assembler.h"
#include "kernel.h"

/* f(in) = in + 3, g(in) = 5 * in, h has two parameters; t points to the first two. */
#define FUNCTIONS                                                                                                \
  ".func (.param .b32 out) f(.param .b32 in)\n{\n.reg .b32 %r;\nld.param.u32 %r, [in];\nadd.u32 %r, %r, 3;\n"      \
  "st.param.b32 [out], %r;\nret;\n}\n"                                                                           \
  ".func (.param .b32 out) g(.param .b32 in)\n{\n.reg .b32 %r;\nld.param.u32 %r, [in];\nmul.lo.u32 %r, %r, 5;\n"   \
  "st.param.b32 [out], %r;\nret;\n}\n"                                                                           \
  ".func (.param .b32 out) h(.param .b32 a, .param .b32 b)\n{\nret;\n}\n"                                        \
  ".func w(.param .b64 in)\n{\nret;\n}\n"
#define TABLE ".global .align 8 .u64 t[3] = {f, g, 0};\n"
/* %d0 is where the word goes, %r1 the kernel's number; %d1 what is called. */
#define KERNEL(point, prototype)                                                                                 \
  ".visible .entry k(.param .u64 to, .param .u32 n)\n{\n.reg .b32 %r<4>;\n.reg .b64 %d<4>;\n.reg .pred %p;\n"     \
  "ld.param.u64 %d0, [to];\nld.param.u32 %r1, [n];\n" point                                                      \
  "{\n.param .b32 in;\n.param .b32 back;\nst.param.b32 [in], 20;\n"                                               \
  "proto : .callprototype " prototype ";\ncall (back), %d1, (in), proto;\nld.param.b32 %r0, [back];\n}\n"          \
  "st.global.u32 [%d0], %r0;\nret;\n}\n"
#define TAKES_ONE "(.param .b32 _) _ (.param .b32 _)"
#define FROM_TABLE "mov.u64 %d1, t;\nmul.wide.u32 %d2, %r1, 8;\nadd.u64 %d1, %d1, %d2;\nld.global.u64 %d1, [%d1];\n"

static const char *text;
static CUmodule module;
static CUdeviceptr memory;

/* What the kernel stores, and the status of its launch or of what came of it. */
static CUresult launched(uint32_t n, uint32_t *got) {
  CUfunction f;
  void *params[] = {&memory, &n};
  memory = device_memory();
  OK(cuModuleLoadData(&module, text));
  OK(cuModuleGetFunction(&f, module, "k"));
  const CUresult rc = cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
  const CUresult ran = cuMemcpyDtoH_v2(got, memory, sizeof *got);
  return rc != CUDA_SUCCESS ? rc : ran;
}

static void drop_kernel(void) {
  OK(cuModuleUnload(module));
  OK(cuMemFree_v2(memory));
}

static void stores(uint32_t n, uint32_t wanted) {
  uint32_t got = 0;
  OK(launched(n, &got));
  assert_int_equal(got, wanted);
  drop_kernel();
}

static void fails(uint32_t n, CUresult status, sim_kind kind, const char *why) {
  uint32_t got = 0;
  FAILS(launched(n, &got), status);
  assert_true(told(why));
  found(kind, 1);
  drop_kernel();
}

static void a_function_is_called_by_its_address(void **state) {
  (void)state;
  text = HEAD FUNCTIONS KERNEL("mov.u64 %d1, f;\nsetp.eq.u32 %p, %r1, 0;\n@%p bra chosen;\nmov.u64 %d1, g;\nchosen:\n",
                               TAKES_ONE);
  stores(0, 23);
  stores(1, 100);
}

static void variables_point_to_functions(void **state) {
  (void)state;
  text = HEAD FUNCTIONS TABLE KERNEL(FROM_TABLE, TAKES_ONE);
  stores(0, 23);
  stores(1, 100);
}

/* A variable that others see gets its first value before the functions are known. */
static void visible_variables_do_too(void **state) {
  (void)state;
  text = HEAD FUNCTIONS ".visible " TABLE KERNEL(FROM_TABLE, TAKES_ONE);
  stores(1, 100);
}

static void a_pointer_to_no_function_is_reported(void **state) {
  (void)state;
  text = HEAD FUNCTIONS TABLE KERNEL(FROM_TABLE, TAKES_ONE);
  fails(2, CUDA_ERROR_ILLEGAL_ADDRESS, SIM_BOUNDS,
        "it calls through a pointer that points to no function");
}

static void another_kind_of_function_is_reported(void **state) {
  (void)state;
  text = HEAD FUNCTIONS KERNEL("mov.u64 %d1, h;\n", TAKES_ONE);
  fails(0, CUDA_ERROR_ILLEGAL_ADDRESS, SIM_MISUSE,
        "it calls h through a pointer as another kind of function");
}

static void arguments_of_another_size_are_reported(void **state) {
  (void)state;
  text = HEAD FUNCTIONS ".func (.param .b32 out) v(.param .b64 in)\n{\nret;\n}\n"
      KERNEL("mov.u64 %d1, v;\n", TAKES_ONE);
  fails(0, CUDA_ERROR_ILLEGAL_ADDRESS, SIM_MISUSE,
        "it calls v through a pointer as another kind of function");
}

static void a_pointer_of_no_value_is_reported(void **state) {
  (void)state;
  text = HEAD FUNCTIONS KERNEL("", TAKES_ONE);
  fails(0, CUDA_ERROR_NOT_SUPPORTED, SIM_MISUSE,
        "the register %d1 is read before it is written");
}

/* Each is refused, and the assembler, where there is one, thinks the same. */
static void wrong_texts_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *text, *why;
    bool right; /* PTX that the simulator does not run */
  } texts[] = {
      {HEAD FUNCTIONS KERNEL("mov.u64 %d1, f;\n", "(.param .b32 _) _ ()"),
       "'proto' has 1 results and 0 parameters, not 1 and 1", false},
      {HEAD FUNCTIONS KERNEL("mov.u64 %d1, f;\n", "(.param .b32 _) (.param .b32 _)"), "where '_' is expected", false},
      {HEAD FUNCTIONS KERNEL("mov.u64 %d1, nobody;\n", TAKES_ONE),
       "'nobody' is not a register", false},
      {HEAD FUNCTIONS ".global .u64 t = nobody;\n" KERNEL("mov.u64 %d1, f;\n", TAKES_ONE),
       "'nobody' is no function", false},
      {HEAD FUNCTIONS ".global .u32 t = f;\n" KERNEL("mov.u64 %d1, f;\n", TAKES_ONE),
       "an address has 64 bits", true},
      {HEAD FUNCTIONS ".visible .entry k()\n{\n.reg .b64 %d;\nmov.u64 %d, w;\ncall %d;\nret;\n}\n",
       "where a prototype", false},
      {HEAD FUNCTIONS ".visible .entry k()\n{\n.reg .b64 %d;\n.reg .b32 %r;\np : .callprototype ()_ ();\n"
                      "mov.u32 %r, 1;\ncall %r, p;\nret;\n}\n",
       "'%r' is a register of type b32, where b64 is expected", true},
      {HEAD FUNCTIONS ".visible .entry k()\n{\n.reg .b64 %d;\nmov.u64 %d, w;\ncall %d, w;\nret;\n}\n",
       "'w' is not a prototype", false},
      {HEAD FUNCTIONS ".visible .entry k()\n{\ncall w, 1;\nret;\n}\n", "where the arguments of a call", false},
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    char log[256] = "";
    int options[] = {5, 6};
    void *values[] = {log, (void *)(uintptr_t)sizeof log};
    CUmodule m;
    FAILS(cuModuleLoadDataEx(&m, texts[i].text, 2, options, values), CUDA_ERROR_INVALID_PTX);
    if (strstr(log, texts[i].why) == NULL) fail_msg("'%s' is not in '%s'", texts[i].why, log);
    if (*assembler() != '\0' && assembles(texts[i].text) != texts[i].right)
      fail_msg("the assembler is of another opinion on %s", texts[i].text);
  }
}

static void the_assembler_takes_what_runs(void **state) {
  (void)state;
  NEEDS_ASSEMBLER
  assert_true(assembles(HEAD FUNCTIONS TABLE KERNEL(FROM_TABLE, TAKES_ONE)));
  assert_true(assembles(HEAD FUNCTIONS ".visible " TABLE KERNEL(FROM_TABLE, TAKES_ONE)));
}

/* A kernel that prints: %d1 the format's address, %d2 that of the values, of which it has 32 bytes. */
#define PRINTS(variables, body)                                                                                  \
  HEAD ".extern .func (.param .b32 n) vprintf(.param .b64 format, .param .b64 values);\n" variables                \
  ".visible .entry k(.param .u64 to, .param .u32 n)\n{\n.reg .b32 %r<4>;\n.reg .b64 %d<6>;\n"                      \
  ".local .align 8 .b8 own[32];\nld.param.u64 %d0, [to];\nmov.u64 %d1, text;\ncvta.global.u64 %d1, %d1;\n"        \
  "mov.u64 %d2, own;\ncvta.local.u64 %d2, %d2;\n" body                                                           \
  "{\n.param .b64 a;\n.param .b64 b;\n.param .b32 r;\nst.param.b64 [a], %d1;\nst.param.b64 [b], %d2;\n"           \
  "call (r), vprintf, (a, b);\nld.param.b32 %r0, [r];\n}\nst.global.u32 [%d0], %r0;\nret;\n}\n"

/* What came out on standard output while the kernel ran. */
static const char *printed(uint32_t *result) {
  static char got[512];
  FILE *file = tmpfile();
  fflush(stdout);
  const int before = dup(1);
  dup2(fileno(file), 1);
  const CUresult rc = launched(0, result);
  dup2(before, 1);
  close(before);
  rewind(file);
  got[fread(got, 1, sizeof got - 1, file)] = '\0';
  fclose(file);
  OK(rc);
  drop_kernel();
  return got;
}

static void a_kernel_prints(void **state) {
  (void)state;
  uint32_t n = 9;
  /* "%c %5d %s%%%y %lx|" */
  text = PRINTS(".global .align 1 .b8 text[20] = {37, 99, 32, 37, 53, 100, 32, 37, 115, 37, 37, 37, 121, 32, 37, 108, "
                "120, 124, 0};\n.global .align 1 .b8 word[3] = {111, 110, 0};\n",
                "st.local.u32 [own], 65;\nst.local.u32 [own+4], -7;\nmov.u64 %d3, word;\ncvta.global.u64 %d3, %d3;\n"
                "st.local.u64 [own+8], %d3;\nmov.u64 %d4, 0x123456789a;\nst.local.u64 [own+16], %d4;\n");
  assert_string_equal(printed(&n), "A    -7 on%%y 123456789a|");
  assert_int_equal(n, 4);
}

/* "%*d %.*f": widths that are values. */
static void a_width_is_a_value(void **state) {
  (void)state;
  uint32_t n = 0;
  text = PRINTS(".global .align 1 .b8 text[9] = {37, 42, 100, 32, 37, 46, 42, 102, 0};\n",
                "st.local.u32 [own], 4;\nst.local.u32 [own+4], 7;\nst.local.u32 [own+8], 2;\n"
                "mov.u64 %d4, 0x3ff8000000000000;\nst.local.u64 [own+16], %d4;\n");
  assert_string_equal(printed(&n), "   7 1.50");
  assert_int_equal(n, 4);
}

/* "%s" of what the kernel was given: how long it is only the memory knows. */
static void a_string_in_memory_is_read_when_it_is_printed(void **state) {
  (void)state;
  uint32_t n = 0;
  text = PRINTS(".global .align 1 .b8 text[3] = {37, 115, 0};\n",
                "st.local.u64 [own], %d0;\nst.global.u32 [%d0], 0x00434241;\n");
  assert_string_equal(printed(&n), "ABC");
}

static void values_that_are_not_there_are_reported(void **state) {
  (void)state;
  text = PRINTS(".global .align 1 .b8 text[4] = {37, 108, 100, 0};\n", "add.u64 %d2, %d2, 32;\n");
  fails(0, CUDA_ERROR_ILLEGAL_ADDRESS, SIM_BOUNDS,
        "reads 8 bytes at 0x20 of local memory, which lies outside of it");
}

RUN(SPEC(a_function_is_called_by_its_address), SPEC(variables_point_to_functions), SPEC(visible_variables_do_too),
    SPEC(a_pointer_to_no_function_is_reported), SPEC(another_kind_of_function_is_reported),
    SPEC(arguments_of_another_size_are_reported), SPEC(a_pointer_of_no_value_is_reported),
    SPEC(wrong_texts_are_refused), SPEC(the_assembler_takes_what_runs), SPEC(a_kernel_prints), SPEC(a_width_is_a_value),
    SPEC(a_string_in_memory_is_read_when_it_is_printed), SPEC(values_that_are_not_there_are_reported))
