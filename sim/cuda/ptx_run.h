/* ptx_run.h: running an entry over a grid. */
#ifndef SIM_CUDA_PTX_RUN_H
#define SIM_CUDA_PTX_RUN_H

#include "kernel.h"
#include "ptx.h"

typedef struct ptx_grid {
  const ptx_entry *entry;
  unsigned blocks[3], threads[3];
  unsigned char *params; /* entry->nbytes of them */
} ptx_grid;

typedef enum ptx_end { PTX_DONE, PTX_ILLEGAL, PTX_MISALIGNED, PTX_ENDLESS, PTX_BEYOND } ptx_end;

/* Follows every thread without touching memory and tells the launch what each would touch. What is wrong is a
 * finding; PTX_BEYOND means that it depends on what memory holds, or on what was never written. */
ptx_end ptx_follow(const ptx_grid *g, sim_launch *l);
/* Runs every thread on memory as it is now. Only after ptx_follow ended with PTX_DONE. */
void ptx_run(const ptx_grid *g);

#endif
