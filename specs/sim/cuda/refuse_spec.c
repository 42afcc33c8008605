/* refuse_spec.c: PTX texts that are malformed or beyond the subset, and texts that are damaged at random.
 *
 * Each is refused with a message that names the line, and nothing crashes. */
#include "assembler.h"
#include "kernel.h"

typedef struct refusal {
  const char *text, *message;
  bool beyond; /* right PTX that the simulator does not run */
} refusal;

static const refusal bodies[] = {
#include "refusals.def"
};

static const refusal wholes[] = {
    {"", "the text ends where '.version'", false},
    {"hello", "'hello' where '.version'", false},
    {".version 7.0\n", "the text ends where '.target'", false},
    {".version seven\n.target sm_50\n", "a version is expected", false},
    {".version 7\n.target sm_50\n", "a version is expected", false},
    {".version 7.0\n.target\n", "the text ends where a target", false},
    {".version 7.0\n.target gpu\n", "'gpu' is not a target", false},
    {".version 7.0\n.target sm_50\n.address_size 32\n.visible .entry k() { ret; }", "addresses of 32 bits", false},
    {HEAD "entry k() { ret; }", "'entry' is not in the simulator's subset", false},
    {HEAD ".alias f, g;", "'.alias' is not in the simulator's subset", false},
    {HEAD ".local .b32 l;", "a variable of this kind is not declared here", false},
    {HEAD ".func f() { ret; } .func f() { ret; }", "'f' is declared twice", false},
    {HEAD ".func f() { ret; } .entry k() { .param .b32 p; call f, (p); }", "'f' has 0 results and 0 parameters", false},
    {HEAD ".func f(); .entry k() { call f; }", "no text defines the function 'f'", false},
    {HEAD ".global .u64 g = f;", "'f' is no function", false},
    {HEAD ".const .b32 c[2] = {1, 2;", "';' where '}' is expected", false},
    {HEAD ".entry { ret; }", "'{' where the name of an entry", false},
    {HEAD ".entry k( { ret; }", "'{' where '.param'", false},
    {HEAD ".entry k(.param .u64) { ret; }", "')' where the name of a parameter", false},
    {HEAD ".entry k(.param .pred p) { ret; }", "a parameter or variable cannot be a predicate", false},
    {HEAD ".entry k(.param .u64 a, .param .u64 a) { ret; }", "'a' is declared twice", false},
    {HEAD ".entry k(.param .align 3 .b8 a[8]) { ret; }", "an alignment of 3", false},
    {HEAD ".entry k(.param .b8 a[5000]) { ret; }", "parameters of more than 4096 bytes", false},
    {HEAD ".entry k(.param .b8 a[18446744073709551615]) { ret; }", "parameters of more than 4096", false},
    {HEAD ".entry k() .what 5 { ret; }", "'.what' where '{'", false},
    {HEAD ".entry k() .maxntid 0 { ret; }", "0 threads", false},
    {HEAD ".entry k() ret;", "'ret' where '{'", false},
    {HEAD ".entry k() { ret; } .entry k() { ret; }", "'k' is declared twice", false},
};

static unsigned nwrong;

static void expect_refusal(const char *text, const refusal *r) {
  char log[300] = "";
  int options[] = {5, 6};
  void *log_values[] = {log, (void *)(uintptr_t)sizeof log};
  CUmodule m = NULL;
  const CUresult rc = cuModuleLoadDataEx(&m, text, 2, options, log_values);
  if (rc != CUDA_ERROR_INVALID_PTX || strstr(log, r->message) == NULL) {
    print_error("%s\n  gives %d, '%s'\n  and should say '%s'\n", r->text, rc, log, r->message);
    nwrong++;
    return;
  }
  assert_null(m);
  assert_memory_equal(log, "ptx, line ", 10);
  assert_int_equal((uintptr_t)log_values[1], strlen(log));
}

static void what_is_malformed_is_refused(void **state) {
  (void)state;
  nwrong = 0;
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) expect_refusal(entry(bodies[i].text), &bodies[i]);
  for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) expect_refusal(wholes[i].text, &wholes[i]);
  assert_int_equal(nwrong, 0);
}

static void expect_agreement(const char *text, const refusal *r) {
  if (assembles(text) == r->beyond) return;
  print_error("the assembler %s: %s\n", r->beyond ? "refuses" : "takes", r->text);
  nwrong++;
}

static void the_assembler_refuses_the_same(void **state) {
  (void)state;
  nwrong = 0;
  NEEDS_ASSEMBLER
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) expect_agreement(entry(bodies[i].text), &bodies[i]);
  for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) expect_agreement(wholes[i].text, &wholes[i]);
  assert_int_equal(nwrong, 0);
}

/* Whatever the driver says of it: it says something. */
static void try(const char *text) {
  CUmodule m = NULL;
  const CUresult rc = cuModuleLoadData(&m, text);
  assert_true(rc == CUDA_SUCCESS || (rc >= CUDA_ERROR_INVALID_IMAGE && rc <= CUDA_ERROR_UNSUPPORTED_PTX_VERSION));
  if (rc == CUDA_SUCCESS) OK(cuModuleUnload(m));
}

static void a_damaged_text_crashes_nothing(void **state) {
  (void)state;
  static const char bytes[] = "{}[]()<>;:,.+-!@|%$\"/*\n 09afxr_\x80\x7f";
  const char *whole = strided_copy(16);
  const size_t n = strlen(whole);
  for (size_t i = 0; i <= n; i++) {
    char *cut = strndup(whole, i); /* so that a sanitizer sees the end */
    try(cut);
    free(cut);
  }
  const char *moving = getenv("MOONFERRY_SPEC_SEED");
  srand(1);
  for (int round = 0; round < 3000; round++) {
    if (round == 1500 && moving != NULL) srand((unsigned)strtoul(moving, NULL, 10));
    char *text = strdup(whole);
    for (int k = rand() % 4; k >= 0; k--) text[(size_t)rand() % n] = bytes[(size_t)rand() % (sizeof bytes - 1)];
    try(text);
    free(text);
  }
}

static void a_text_beyond_the_driver_or_device_is_refused(void **state) {
  (void)state;
  CUmodule m;
  FAILS(cuModuleLoadData(&m, ".version 9.1\n.target sm_50\n"), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  FAILS(cuModuleLoadData(&m, ".version 8.7\n.target sm_100\n"), CUDA_ERROR_NO_BINARY_FOR_GPU);
  FAILS(cuModuleLoadData(&m,
                         "\x7f"
                         "ELF and so on"),
        CUDA_ERROR_INVALID_IMAGE);
  FAILS(cuModuleLoadData(&m, "\x50\xed\x55\xba and so on"), CUDA_ERROR_INVALID_IMAGE);
  FAILS(cuModuleLoadData(&m, NULL), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuModuleLoadData(NULL, HEAD), CUDA_ERROR_INVALID_VALUE);
  OK(cuModuleLoadData(&m, ".version 9.0\n.target sm_90a\n.address_size 64\n"));
  OK(cuModuleUnload(m));
}

static void a_short_log_is_not_overrun(void **state) {
  (void)state;
  char log[] = "0123456789";
  int options[] = {3, 4, 5, 6};
  void *log_values[] = {NULL, NULL, log, (void *)(uintptr_t)4};
  CUmodule m;
  FAILS(cuModuleLoadDataEx(&m, "hello", 4, options, log_values), CUDA_ERROR_INVALID_PTX);
  assert_memory_equal(log,
                      "ptx\0"
                      "456789",
                      11);
  assert_int_equal((uintptr_t)log_values[3], 3);
  FAILS(cuModuleLoadDataEx(&m, "hello", 1, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
  options[0] = 1000;
  FAILS(cuModuleLoadDataEx(&m, "hello", 4, options, log_values), CUDA_ERROR_INVALID_VALUE);
}

RUN(SPEC(what_is_malformed_is_refused), SPEC(the_assembler_refuses_the_same), SPEC(a_damaged_text_crashes_nothing),
    SPEC(a_text_beyond_the_driver_or_device_is_refused), SPEC(a_short_log_is_not_overrun))
