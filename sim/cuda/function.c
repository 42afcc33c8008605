/* function.c: what is known of a function: its attributes, parameters and name, and how many blocks of it a device runs
 * at once.
 *
 * A kernel of a library may be asked for in place of a function. It must not know how one is launched. */
#include <string.h>

#include "front.h"
#include "function.h"

/* Of a multiprocessor. A function takes as many registers as all threads that it has can have. */
enum { THREADS_AT_ONCE = 2048, MOST_BLOCKS = 32, SHARED_IN_ALL = 102400 };
enum { REGISTERS_OF_THREAD = 32, WARP = PTX_WARP_SIZE };

unsigned most_threads(const sim_function *f) {
  const ptx_entry *e = f->entry;
  return e->most_threads != 0 ? e->most_threads : MOST_THREADS;
}

unsigned blocks_at_once(const sim_function *f, uint64_t threads, size_t dynamic) {
  const size_t fixed = ((const ptx_program *)f->module->code)->shared;
  if (threads == 0 || threads > most_threads(f) || dynamic > SHARED || fixed > SHARED - dynamic) return 0;
  const unsigned warps = (unsigned)(threads + WARP - 1) / WARP, shared = (unsigned)(fixed + dynamic);
  unsigned n = THREADS_AT_ONCE / (warps * WARP);
  if (shared > 0 && n > SHARED_IN_ALL / shared) n = SHARED_IN_ALL / shared;
  return n < MOST_BLOCKS ? n : MOST_BLOCKS;
}

static CUresult attribute(const sim_function *f, int which, int *v) {
  const ptx_entry *e = f->entry;
  const ptx_program *p = f->module->code;
  enum { THREADS = 0, STATIC = 1, CONSTANT = 2 };
  enum { REGISTERS = 4, PTX_VERSION = 5, BINARY_VERSION = 6, DYNAMIC = 8, CARVEOUT = 9 };
  if (which < 0 || which > 16) return CUDA_ERROR_INVALID_VALUE;
  *v = 0;
  if (which == THREADS) *v = (int)most_threads(f);
  if (which == STATIC) *v = (int)p->shared;
  if (which == CONSTANT) *v = (int)e->nbytes;
  if (which == REGISTERS) *v = REGISTERS_OF_THREAD;
  if (which == PTX_VERSION || which == BINARY_VERSION) *v = CAPABILITY;
  if (which == DYNAMIC) *v = SHARED - (int)p->shared;
  if (which == CARVEOUT) *v = -1;
  return CUDA_SUCCESS;
}

CUresult do_cuFuncGetAttribute(int *v, int which, CUfunction handle) {
  sim_function *f;
  if (v == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(object_of(handle, SIM_FUNCTION, &f));
  return attribute(f, which, v);
}

CUresult do_cuKernelGetAttribute(int *v, int which, CUkernel handle, CUdevice d) {
  sim_device *device;
  TRY(device_of(d, &device));
  return do_cuFuncGetAttribute(v, which, (CUfunction)(void *)handle);
}

/* Only what concerns shared memory can be set, and all of it may be used without asking. */
CUresult do_cuFuncSetAttribute(CUfunction handle, int which, int value) {
  enum { DYNAMIC = 8, CARVEOUT = 9 };
  sim_function *f;
  TRY(object_of(handle, SIM_FUNCTION, &f));
  if (which != DYNAMIC && which != CARVEOUT) return CUDA_ERROR_INVALID_VALUE;
  return value > SHARED || value < -1 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult do_cuKernelSetAttribute(int which, int value, CUkernel handle, CUdevice d) {
  sim_device *device;
  TRY(device_of(d, &device));
  return do_cuFuncSetAttribute((CUfunction)(void *)handle, which, value);
}

CUresult do_cuFuncGetParamInfo(CUfunction handle, size_t i, size_t *offset, size_t *size) {
  sim_function *f;
  if (offset == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(object_of(handle, SIM_FUNCTION, &f));
  const ptx_entry *e = f->entry;
  if (i >= e->nparams) return CUDA_ERROR_INVALID_VALUE;
  *offset = e->params[i].offset;
  if (size != NULL) *size = e->params[i].nbytes;
  return CUDA_SUCCESS;
}

CUresult do_cuKernelGetParamInfo(CUkernel handle, size_t i, size_t *offset, size_t *size) {
  return do_cuFuncGetParamInfo((CUfunction)(void *)handle, i, offset, size);
}

/* What is NULL is invalid here, by the documentation, and not a handle that is nobody's. */
CUresult do_cuFuncGetName(const char **name, CUfunction handle) {
  sim_function *f;
  if (name == NULL || handle == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(object_of(handle, SIM_FUNCTION, &f));
  *name = ((const ptx_entry *)f->entry)->name;
  return CUDA_SUCCESS;
}

CUresult do_cuKernelGetName(const char **name, CUkernel handle) {
  return do_cuFuncGetName(name, (CUfunction)(void *)handle);
}

/* A preference, which the driver may pass over; so does this one. */
CUresult do_cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
  sim_function *f;
  sim_context *c;
  TRY(from(sim_context_of(&c)));
  TRY(object_of(handle, SIM_FUNCTION, &f));
  return (unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult do_cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice d) {
  sim_device *device;
  sim_function *f;
  TRY(device_of(d, &device));
  TRY(object_of(handle, SIM_FUNCTION, &f));
  return (unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult do_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction handle, int threads,
                                                                 size_t dynamic, unsigned flags) {
  sim_function *f;
  sim_context *c;
  if (blocks == NULL || threads <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) return CUDA_ERROR_INVALID_VALUE;
  TRY(from(sim_context_of(&c)));
  TRY(object_of(handle, SIM_FUNCTION, &f));
  *blocks = (int)blocks_at_once(f, (uint64_t)threads, dynamic);
  return CUDA_SUCCESS;
}

CUresult do_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction f, int threads, size_t dynamic) {
  return do_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, threads, dynamic, CU_OCCUPANCY_DEFAULT);
}

typedef struct question {
  CUoccupancyB2DSize dynamic_of;
  int threads;
  size_t dynamic;
} question;

static void put(void *arg) {
  question *q = arg;
  q->dynamic = q->dynamic_of(q->threads);
}

/* The program's function may call the driver. */
static size_t asked(CUoccupancyB2DSize dynamic_of, int threads) {
  question q = {dynamic_of, threads, 0};
  sim_unlock();
  sim_from_program(put, &q);
  sim_lock();
  return q.dynamic;
}

/* Of the sizes with which the most threads run at once, the largest. */
static CUresult best_block(const sim_function *given, CUoccupancyB2DSize dynamic_of, size_t dynamic, unsigned limit,
                           int *grid, int *block) {
  const sim_function f = *given;
  unsigned most = 0;
  *block = 0;
  for (unsigned threads = limit; threads > 0; threads = (threads - 1) / WARP * WARP) {
    const size_t wanted = dynamic_of == NULL ? dynamic : asked(dynamic_of, (int)threads);
    const unsigned blocks = blocks_at_once(&f, threads, wanted);
    if (blocks * threads <= most) continue;
    most = blocks * threads;
    *grid = (int)(blocks * MULTIPROCESSORS);
    *block = (int)threads;
  }
  return most == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult do_cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction handle,
                                                      CUoccupancyB2DSize dynamic_of, size_t dynamic, int limit,
                                                      unsigned flags) {
  sim_function *f;
  sim_context *c;
  if (grid == NULL || block == NULL || limit < 0) return CUDA_ERROR_INVALID_VALUE;
  if (flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) return CUDA_ERROR_INVALID_VALUE;
  TRY(from(sim_context_of(&c)));
  TRY(object_of(handle, SIM_FUNCTION, &f));
  const unsigned most = most_threads(f);
  return best_block(f, dynamic_of, dynamic, limit == 0 || (unsigned)limit > most ? most : (unsigned)limit, grid, block);
}

CUresult do_cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction f, CUoccupancyB2DSize dynamic_of,
                                             size_t dynamic, int limit) {
  return do_cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, f, dynamic_of, dynamic, limit, CU_OCCUPANCY_DEFAULT);
}
