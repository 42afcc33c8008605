/* kernel.h: what the specs that launch kernels share.
 *
 * The strided copy is the kernel that these simulators were given kernels for: any layout to any other, up to eight
 * axes, each thread taking every n-th element. */
#ifndef SIM_SPEC_KERNEL_H
#define SIM_SPEC_KERNEL_H

#include "spec.h"

#define HEAD ".version 7.0\n.target sm_50\n.address_size 64\n"
enum { AXES = 8 };

/* One %s for how an element is loaded and stored, and two for the registers: ".u8", "%v1"; ".v2.u64", "{%v1, %v2}". */
#define STRIDED_COPY                                                            \
  HEAD                                                                          \
  ".visible .entry strided_copy(.param .u64 to, .param .u64 from,\n"           \
  "  .param .u64 count, .param .u32 rank, .param .align 8 .b8 shape[64],\n"     \
  "  .param .align 8 .b8 to_strides[64], .param .align 8 .b8 from_strides[64])\n" \
  "{\n"                                                                         \
  "  .reg .pred %%p<2>;\n"                                                      \
  "  .reg .b32 %%r<8>;\n"                                                       \
  "  .reg .b64 %%d<24>;\n"                                                      \
  "  .reg .b64 %%v<3>;\n"                                                       \
  "  ld.param.u64 %%d1, [to];\n"                                                \
  "  ld.param.u64 %%d2, [from];\n"                                              \
  "  ld.param.u64 %%d3, [count];\n"                                             \
  "  ld.param.u32 %%r1, [rank];\n"                                              \
  "  cvta.to.global.u64 %%d1, %%d1;\n"                                          \
  "  cvta.to.global.u64 %%d2, %%d2;\n"                                          \
  "  mov.u32 %%r2, %%ctaid.x;\n"                                                \
  "  mov.u32 %%r3, %%ntid.x;\n"                                                 \
  "  mov.u32 %%r4, %%tid.x;\n"                                                  \
  "  mov.u32 %%r5, %%nctaid.x;\n"                                               \
  "  mul.wide.u32 %%d4, %%r2, %%r3;\n"                                          \
  "  cvt.u64.u32 %%d5, %%r4;\n"                                                 \
  "  add.u64 %%d4, %%d4, %%d5; // the element\n"                                \
  "  mul.wide.u32 %%d6, %%r5, %%r3; // how many threads there are\n"            \
  "  mov.u64 %%d7, shape;\n"                                                    \
  "  mov.u64 %%d8, to_strides;\n"                                               \
  "  mov.u64 %%d9, from_strides;\n"                                             \
  "NEXT:\n"                                                                     \
  "  setp.ge.u64 %%p0, %%d4, %%d3;\n"                                           \
  "  @%%p0 bra DONE;\n"                                                         \
  "  mov.u64 %%d10, %%d4;\n"                                                    \
  "  mov.u64 %%d11, %%d1;\n"                                                    \
  "  mov.u64 %%d12, %%d2;\n"                                                    \
  "  mov.u32 %%r6, %%r1;\n"                                                     \
  "AXIS:\n"                                                                     \
  "  setp.eq.u32 %%p1, %%r6, 0;\n"                                              \
  "  @%%p1 bra MOVE;\n"                                                         \
  "  sub.u32 %%r6, %%r6, 1;\n"                                                  \
  "  mul.wide.u32 %%d13, %%r6, 8;\n"                                            \
  "  add.u64 %%d14, %%d7, %%d13;\n"                                             \
  "  ld.param.u64 %%d15, [%%d14];\n"                                            \
  "  rem.u64 %%d16, %%d10, %%d15;\n"                                            \
  "  div.u64 %%d10, %%d10, %%d15;\n"                                            \
  "  add.u64 %%d14, %%d8, %%d13;\n"                                             \
  "  ld.param.s64 %%d17, [%%d14];\n"                                            \
  "  mad.lo.s64 %%d11, %%d16, %%d17, %%d11;\n"                                  \
  "  add.u64 %%d14, %%d9, %%d13;\n"                                             \
  "  ld.param.s64 %%d17, [%%d14];\n"                                            \
  "  mad.lo.s64 %%d12, %%d16, %%d17, %%d12;\n"                                  \
  "  bra.uni AXIS;\n"                                                           \
  "MOVE:\n"                                                                     \
  "  ld.global%s %s, [%%d12];\n"                                                \
  "  st.global%s [%%d11], %s;\n"                                                \
  "  add.u64 %%d4, %%d4, %%d6;\n"                                               \
  "  bra NEXT;\n"                                                               \
  "DONE:\n"                                                                     \
  "  ret;\n"                                                                    \
  "}\n"

typedef struct copy_layout {
  uint32_t rank;
  uint64_t shape[AXES];
  int64_t to[AXES], from[AXES]; /* in bytes */
} copy_layout;

static inline const char *strided_copy(unsigned size) {
  static const char *const access[] = {".u8", ".u16", ".u32", ".u64", ".v2.u64"};
  static char text[4096];
  unsigned k = 0;
  while (1u << k < size) k++;
  const char *regs = size == 16 ? "{%v1, %v2}" : "%v1";
  snprintf(text, sizeof text, STRIDED_COPY, access[k], regs, access[k], regs);
  return text;
}

static inline uint64_t count_of(const copy_layout *l) {
  uint64_t n = 1;
  for (uint32_t i = 0; i < l->rank; i++) n *= l->shape[i];
  return n;
}

static inline CUresult copy_strided(CUfunction f, CUdeviceptr to, CUdeviceptr from, const copy_layout *l, CUstream s) {
  copy_layout copy = *l;
  uint64_t n = count_of(l);
  void *params[] = {&to, &from, &n, &copy.rank, copy.shape, copy.to, copy.from};
  const CUresult rc = cuLaunchKernel(f, 3, 1, 1, 8, 1, 1, 0, s, params, NULL);
  memset(&copy, 0xEE, sizeof copy); /* the parameters were copied */
  return rc;
}

typedef struct kernel {
  CUmodule module;
  CUfunction function;
} kernel;

static inline kernel load(const char *text, const char *name) {
  kernel k;
  char log[256] = "";
  int options[] = {5, 6};
  void *values[] = {log, (void *)(uintptr_t)sizeof log};
  const CUresult rc = cuModuleLoadDataEx(&k.module, text, 2, options, values);
  if (rc != CUDA_SUCCESS) fail_msg("%d: %s", rc, log);
  OK(cuModuleGetFunction(&k.function, k.module, name));
  return k;
}

/* HEAD, one entry k(.param .u64 to, .param .u64 n) with registers %p, %r, %d; %d0 is what `to` holds. */
static inline const char *entry(const char *body) {
  static char text[8192];
  snprintf(text, sizeof text,
           HEAD ".visible .entry k(.param .u64 to, .param .u64 n)\n{\n.reg .pred %%p<4>;\n.reg .b32 %%r<8>;\n"
                ".reg .b64 %%d<8>;\nld.param.u64 %%d0, [to];\n%s\nret;\n}\n",
           body);
  return text;
}

static inline CUresult start(kernel k, unsigned threads, CUdeviceptr to, uint64_t n, CUstream s) {
  void *params[] = {&to, &n};
  return cuLaunchKernel(k.function, 1, 1, 1, threads, 1, 1, 0, s, params, NULL);
}

#endif
