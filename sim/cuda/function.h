/* function.h: what the files that know functions share: what a device has for one. */
#ifndef SIM_CUDA_FUNCTION_H
#define SIM_CUDA_FUNCTION_H

#include "driver.h"
#include "kernel.h"
#include "ptx.h"

enum { CAPABILITY = 90, SHARED = 49152, MOST_THREADS = 1024, MULTIPROCESSORS = 8 };

/* The most threads that a block of it may have. */
unsigned most_threads(const sim_function *f);
/* How many blocks of so many threads, each with so much shared memory of dynamic size, a multiprocessor runs at once; 0
 * for blocks that no launch may have. */
unsigned blocks_at_once(const sim_function *f, uint64_t threads, size_t dynamic);
/* The memory of a module's variable in a context, which it has from then on. */
CUresult place_variable(sim_module *m, sim_context *c, size_t which, sim_alloc **out);

#endif
