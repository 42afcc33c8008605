/* kernel_spec.c: compiled kernels are known by name and refused; kernels of PTX run. */
#include "spec.h"

static const dim3 one = {1, 1, 1};
static const char image[16], stub_a, stub_b;

/* As the code does that a compiler puts into a library with kernels. */
static void **registered(void) {
  void **handle = __cudaRegisterFatBinary(image);
  __cudaRegisterFunction(handle, &stub_a, NULL, "_Z5firstPf", -1, NULL, NULL, NULL, NULL, NULL);
  __cudaRegisterFunction(handle, &stub_b, NULL, "_Z6secondPf", -1, NULL, NULL, NULL, NULL, NULL);
  __cudaRegisterVar(handle, NULL, NULL, "table", 0, 64, 1, 0);
  __cudaRegisterFatBinaryEnd(handle);
  return handle;
}

static void a_compiled_kernel_is_refused_by_its_name(void **state) {
  (void)state;
  void **handle = registered(), *p = device_memory(), *args[] = {&p};
  const cudaLaunchConfig_t config = {.gridDim = one, .blockDim = one};
  FAILS(cudaLaunchKernel(&stub_b, one, one, args, 0, NULL), cudaErrorNotSupported);
  FAILS(cudaGetLastError(), cudaErrorNotSupported);
  assert_true(told("kernel _Z6secondPf is compiled code"));
  assert_true(told("cudaLaunchKernel, thread 1 from sim_cudart_kernel_spec"));
  assert_false(told("_Z5firstPf"));
  found(SIM_MISUSE, 1);
  FAILS(cudaLaunchKernelExC(&config, &stub_a, args), cudaErrorNotSupported);
  assert_true(told("_Z5firstPf"));
  found(SIM_MISUSE, 1);
  FAILS(cudaLaunchCooperativeKernel(&stub_a, one, one, args, 0, NULL), cudaErrorNotSupported);
  found(SIM_MISUSE, 1);
  OK(cudaFree(p));
  __cudaUnregisterFatBinary(handle);
}

static void a_kernel_is_known_while_its_library_is_loaded(void **state) {
  (void)state;
  void **handle = registered(), **other = __cudaRegisterFatBinary(image);
  static const char stub_c;
  const char *name = NULL;
  cudaKernel_t k = NULL;
  cudaFuncAttributes about;
  int blocks = 0;
  __cudaRegisterFunction(other, &stub_c, NULL, "_Z5thirdv", -1, NULL, NULL, NULL, NULL, NULL);
  OK(cudaFuncGetName(&name, &stub_a));
  assert_string_equal(name, "_Z5firstPf");
  OK(__cudaGetKernel(&k, &stub_a));
  FAILS(__cudaLaunchKernel(k, one, one, NULL, 0, NULL), cudaErrorNotSupported);
  found(SIM_MISUSE, 1);
  OK(cudaFuncGetAttributes(&about, &stub_a));
  assert_int_equal(about.maxThreadsPerBlock, 1024);
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &stub_a, 256, 0));
  assert_int_equal(blocks, 8);
  __cudaUnregisterFatBinary(handle);
  FAILS(cudaFuncGetName(&name, &stub_a), cudaErrorInvalidDeviceFunction);
  FAILS(cudaGetKernel(&k, &stub_b), cudaErrorInvalidDeviceFunction);
  OK(cudaFuncGetName(&name, &stub_c));
  assert_string_equal(name, "_Z5thirdv");
  __cudaUnregisterFatBinary(other);
}

static void configurations_are_taken_as_they_were_left(void **state) {
  (void)state;
  const dim3 two = {2, 3, 4};
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t s = NULL;
  FAILS(__cudaPopCallConfiguration(&grid, &block, &shared, &s), cudaErrorMissingConfiguration);
  OK(__cudaPushCallConfiguration(one, two, 5, CU_STREAM_LEGACY));
  OK(__cudaPushCallConfiguration(two, one, 6, CU_STREAM_PER_THREAD));
  OK(__cudaPopCallConfiguration(&grid, &block, &shared, &s));
  assert_true(grid.z == 4 && block.x == 1 && shared == 6 && s == CU_STREAM_PER_THREAD);
  OK(__cudaPopCallConfiguration(&grid, &block, &shared, &s));
  assert_true(grid.x == 1 && block.y == 3 && shared == 5 && s == CU_STREAM_LEGACY);
}

static void what_is_no_kernel_is_not_launched(void **state) {
  (void)state;
  const dim3 none = {0, 1, 1}, many = {1024, 2, 1};
  void **handle = registered();
  FAILS(cudaLaunchKernel(&stub_a, none, one, NULL, 0, NULL), cudaErrorInvalidConfiguration);
  FAILS(cudaLaunchKernel(&stub_a, one, many, NULL, 0, NULL), cudaErrorInvalidConfiguration);
  FAILS(cudaLaunchKernelExC(NULL, &stub_a, NULL), cudaErrorInvalidValue);
  __cudaUnregisterFatBinary(handle);
  FAILS(cudaLaunchKernel(&stub_a, one, one, NULL, 0, NULL), cudaErrorInvalidDeviceFunction);
  found(SIM_MISUSE, 1);
}

/* Each thread stores its number. */
static const char text[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                           ".visible .entry number(.param .u64 to)\n{\n"
                           "  .reg .b32 %r<2>;\n  .reg .b64 %d<3>;\n"
                           "  ld.param.u64 %d1, [to];\n  cvta.to.global.u64 %d1, %d1;\n"
                           "  mov.u32 %r1, %tid.x;\n  mul.wide.u32 %d2, %r1, 4;\n  add.u64 %d1, %d1, %d2;\n"
                           "  st.global.u32 [%d1], %r1;\n  ret;\n}\n";

static void a_kernel_of_ptx_runs(void **state) {
  (void)state;
  const dim3 threads = {8, 1, 1};
  cudaLibrary_t l = NULL;
  cudaKernel_t k = NULL;
  cudaFuncAttributes about;
  unsigned back[8];
  void *p = device_memory(), *args[] = {&p};
  OK(cudaLibraryLoadData(&l, text, NULL, NULL, 0, NULL, NULL, 0));
  FAILS(cudaLibraryGetKernel(&k, l, "letter"), cudaErrorSymbolNotFound);
  OK(cudaLibraryGetKernel(&k, l, "number"));
  OK(cudaLaunchKernel(k, one, threads, args, 0, NULL));
  OK(cudaMemcpy(back, p, sizeof back, cudaMemcpyDeviceToHost));
  for (unsigned i = 0; i < 8; i++) assert_int_equal(back[i], i);
  OK(cudaFuncGetAttributes(&about, k));
  assert_int_equal(about.constSizeBytes, sizeof p);
  FAILS(cudaLaunchKernel(k, one, (dim3){2000, 1, 1}, args, 0, NULL), cudaErrorInvalidConfiguration);
  OK(cudaLibraryUnload(l));
  OK(cudaFree(p));
}

RUN(SPEC(a_compiled_kernel_is_refused_by_its_name), SPEC(a_kernel_is_known_while_its_library_is_loaded),
    SPEC(configurations_are_taken_as_they_were_left), SPEC(what_is_no_kernel_is_not_launched),
    SPEC(a_kernel_of_ptx_runs))
