/* kernel.c: kernels and launches.
 *
 * A kernel is the host function of a compiled one, or the driver's handle of one that a library of PTX gave; the
 * runtime documents that either may stand for the other in a launch. Compiled ones cannot run. It must not know what
 * registers them. */
#include <stdio.h>
#include <string.h>

#include "front.h"
#include "opaque.h"
#include "registry.h"

enum { CAPABILITY = 90, MOST_THREADS = 1024, THREADS_AT_ONCE = 2048, BLOCKS_AT_ONCE = 32, SHARED = 49152 };

cudaError_t do_cudaLibraryLoadData(cudaLibrary_t *l, const void *code, int *options, void **values, unsigned n,
                                   int *library_options, void **library_values, unsigned nlibrary) {
  TRY(context());
  return from(cuLibraryLoadData(l, code, options, values, n, library_options, library_values, nlibrary));
}

cudaError_t do_cudaLibraryUnload(cudaLibrary_t l) {
  TRY(context());
  return from(cuLibraryUnload(l));
}

cudaError_t do_cudaLibraryGetKernel(cudaKernel_t *k, cudaLibrary_t l, const char *name) {
  TRY(context());
  return from(cuLibraryGetKernel(k, l, name));
}

cudaError_t do_cudaLibraryLoadFromFile(cudaLibrary_t *l, const char *file, int *options, void **values, unsigned n,
                                       int *library_options, void **library_values, unsigned nlibrary) {
  TRY(context());
  return from(cuLibraryLoadFromFile(l, file, options, values, n, library_options, library_values, nlibrary));
}

cudaError_t do_cudaLibraryGetKernelCount(unsigned *count, cudaLibrary_t l) {
  TRY(context());
  return from(cuLibraryGetKernelCount(count, l));
}

cudaError_t do_cudaLibraryGetGlobal(void **at, size_t *nbytes, cudaLibrary_t l, const char *name) {
  TRY(context());
  return from(cuLibraryGetGlobal((CUdeviceptr *)at, nbytes, l, name));
}

cudaError_t do_cudaLibraryGetManaged(void **at, size_t *nbytes, cudaLibrary_t l, const char *name) {
  TRY(context());
  return from(cuLibraryGetManaged((CUdeviceptr *)at, nbytes, l, name));
}

cudaError_t do_cudaLibraryGetUnifiedFunction(void **f, cudaLibrary_t l, const char *name) {
  TRY(context());
  return from(cuLibraryGetUnifiedFunction(f, l, name));
}

cudaError_t do_cudaGetKernel(cudaKernel_t *k, const void *f) {
  if (k == NULL) return cudaErrorInvalidValue;
  if (kernel_name(f) == NULL) return cudaErrorInvalidDeviceFunction;
  memcpy(k, &f, sizeof f);
  return cudaSuccess;
}

cudaError_t do___cudaGetKernel(cudaKernel_t *k, const void *f) {
  return do_cudaGetKernel(k, f);
}

cudaError_t do_cudaFuncGetName(const char **name, const void *f) {
  const char *found = kernel_name(f);
  if (name == NULL) return cudaErrorInvalidValue;
  if (found == NULL) return cudaErrorInvalidDeviceFunction;
  *name = found;
  return cudaSuccess;
}

static CUkernel handle_of(const void *f) {
  CUkernel k;
  memcpy(&k, &f, sizeof k);
  return k;
}

/* A compiled kernel is said to use what any kernel of the simulated device may use. */
cudaError_t do_cudaFuncGetAttributes(cudaFuncAttributes *out, const void *f) {
  enum { THREADS = 0, CONSTANT = 2, REGISTERS = 4 };
  int device = 0, constant = 0;
  if (out == NULL) return cudaErrorInvalidValue;
  TRY(context());
  TRY(do_cudaGetDevice(&device));
  *out = (cudaFuncAttributes){.maxThreadsPerBlock = MOST_THREADS, .numRegs = 32, .ptxVersion = CAPABILITY,
                              .binaryVersion = CAPABILITY, .maxDynamicSharedSizeBytes = SHARED,
                              .preferredShmemCarveout = -1};
  if (kernel_name(f) != NULL) return cudaSuccess;
  const CUkernel k = handle_of(f);
  if (cuKernelGetAttribute(&out->maxThreadsPerBlock, THREADS, k, device) != CUDA_SUCCESS)
    return cudaErrorInvalidDeviceFunction;
  TRY(from(cuKernelGetAttribute(&constant, CONSTANT, k, device)));
  out->constSizeBytes = (size_t)constant;
  return from(cuKernelGetAttribute(&out->numRegs, REGISTERS, k, device));
}

/* Only what concerns shared memory can be set, as in the driver. */
static cudaError_t settable(int which, int value) {
  enum { DYNAMIC = 8, CARVEOUT = 9 };
  if (which != DYNAMIC && which != CARVEOUT) return cudaErrorInvalidValue;
  return value > SHARED || value < -1 ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t do_cudaFuncSetAttribute(const void *f, int which, int value) {
  CUfunction function;
  TRY(context());
  if (kernel_name(f) != NULL) return settable(which, value);
  if (cuKernelGetFunction(&function, handle_of(f)) != CUDA_SUCCESS) return cudaErrorInvalidDeviceFunction;
  return from(cuFuncSetAttribute(function, which, value));
}

cudaError_t do_cudaKernelSetAttributeForDevice(cudaKernel_t k, int which, int value, int device) {
  TRY(known_device(device));
  return do_cudaFuncSetAttribute((const void *)k, which, value);
}

/* Of a compiled kernel as many blocks as the device has threads and room in shared memory for. */
cudaError_t do_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *f, int threads,
                                                                      size_t shared, unsigned flags) {
  enum { SHARED_IN_ALL = 102400 };
  cudaFuncAttributes unused;
  if (blocks == NULL || threads <= 0 || flags > 1) return cudaErrorInvalidValue;
  TRY(do_cudaFuncGetAttributes(&unused, f));
  if (kernel_name(f) == NULL)
    return from(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, (CUfunction)(void *)handle_of(f), threads,
                                                                     shared, flags));
  size_t n = threads > MOST_THREADS ? 0 : (size_t)(THREADS_AT_ONCE / threads);
  if (shared > 0 && n > SHARED_IN_ALL / shared) n = SHARED_IN_ALL / shared;
  *blocks = n > BLOCKS_AT_ONCE ? BLOCKS_AT_ONCE : (int)n;
  return cudaSuccess;
}

cudaError_t do_cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *f, int threads, size_t shared) {
  return do_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, threads, shared, 0);
}

static cudaError_t refuse_kernel(const char *name, const char *why) {
  char text[1400];
  snprintf(text, sizeof text, "kernel %s is compiled code, which cannot run here: its launch is refused%s%s", name,
           why == NULL ? "" : ", because ", why == NULL ? "" : why);
  return refuse(text);
}

static cudaError_t launch_compiled(const void *f, const char *name, void **args, cudaStream_t s) {
  const char *why = NULL;
  if (!kernels_are_opaque()) return refuse_kernel(name, NULL);
  const cudaError_t rc = launch_opaque(kernel_image(f), name, args, stream_of(s), &why);
  return rc == cudaErrorNotSupported ? refuse_kernel(name, why) : rc;
}

static bool fits(dim3 grid, dim3 block) {
  const uint64_t threads = (uint64_t)block.x * block.y * block.z;
  return grid.x > 0 && grid.y > 0 && grid.z > 0 && threads > 0 && threads <= MOST_THREADS;
}

cudaError_t do_cudaLaunchKernel(const void *f, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s) {
  CUfunction function;
  TRY(context());
  if (!fits(grid, block) || shared > UINT32_MAX) return cudaErrorInvalidConfiguration;
  const char *name = kernel_name(f);
  if (name != NULL) return launch_compiled(f, name, args, s);
  if (cuKernelGetFunction(&function, handle_of(f)) != CUDA_SUCCESS) return cudaErrorInvalidDeviceFunction;
  return from(cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared,
                             stream_of(s), args, NULL));
}

cudaError_t do___cudaLaunchKernel(cudaKernel_t k, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s) {
  return do_cudaLaunchKernel((const void *)k, grid, block, args, shared, s);
}

cudaError_t do_cudaLaunchCooperativeKernel(const void *f, dim3 grid, dim3 block, void **args, size_t shared,
                                           cudaStream_t s) {
  CUfunction function;
  if (kernel_name(f) != NULL) return do_cudaLaunchKernel(f, grid, block, args, shared, s);
  TRY(context());
  if (!fits(grid, block) || shared > UINT32_MAX) return cudaErrorInvalidConfiguration;
  if (cuKernelGetFunction(&function, handle_of(f)) != CUDA_SUCCESS) return cudaErrorInvalidDeviceFunction;
  return from(cuLaunchCooperativeKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared,
                                        stream_of(s), args));
}

cudaError_t do_cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *f, void **args) {
  if (c == NULL) return cudaErrorInvalidValue;
  if (c->numAttrs > 0 && kernel_name(f) == NULL) return refuse("a launch with attributes is not simulated");
  return do_cudaLaunchKernel(f, c->gridDim, c->blockDim, args, c->dynamicSmemBytes, c->stream);
}

/* The configuration that the compiler's code leaves for the stub of a kernel, which it calls next. */
static _Thread_local struct configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
} left[16];
static _Thread_local unsigned nleft;

SIM_PUBLIC unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t s);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t s) {
  if (nleft == sizeof left / sizeof *left) return cudaErrorInvalidConfiguration;
  left[nleft++] = (struct configuration){grid, block, shared, s};
  return cudaSuccess;
}

SIM_PUBLIC cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *s);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *s) {
  if (nleft == 0) return cudaErrorMissingConfiguration;
  const struct configuration *c = &left[--nleft];
  *grid = c->grid, *block = c->block, *shared = c->shared;
  memcpy(s, &c->stream, sizeof c->stream);
  return cudaSuccess;
}
