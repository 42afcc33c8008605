/* ptx_run.h: running an entry over a grid. */
#ifndef SIM_CUDA_PTX_RUN_H
#define SIM_CUDA_PTX_RUN_H

#include "kernel.h"
#include "ptx.h"

typedef struct ptx_grid {
  const ptx_program *program;
  const ptx_entry *entry;
  unsigned blocks[3], threads[3];
  unsigned dynamic;      /* bytes of shared memory beside what the text declares */
  unsigned char *params; /* entry->nbytes of them */
  bool loose;            /* what it touches depends on memory: checked when it runs */
  sim_context *ctx;
  uint64_t *places; /* of the program's variables, each 0 if it is as the text has it; NULL: all are */
  bool reads_text;  /* it was followed to read one that is */
  sim_place made;        /* the launch */
} ptx_grid;

/* PTX_LOOSE: what is touched depends on what memory holds. PTX_BEYOND: it reads what was never written, or the like.
 * PTX_UNPLACED: it stores to a variable of .global, which must have a place. */
typedef enum ptx_end {
  PTX_DONE,
  PTX_ILLEGAL,
  PTX_MISALIGNED,
  PTX_ENDLESS,
  PTX_STUCK,
  PTX_ASSERTED,
  PTX_LOOSE,
  PTX_BEYOND,
  PTX_UNPLACED
} ptx_end;

/* Follows every thread without touching memory and tells the launch what each would touch. What is wrong is a
 * finding. */
ptx_end ptx_follow(ptx_grid *g, sim_launch *l);
/* For what cannot be followed: the allocations that its parameters point into count as touched whole, read or written
 * as the code does with what it computes from each. PTX_BEYOND if an address comes from none of them. */
ptx_end ptx_follow_params(ptx_grid *g, sim_launch *l);
/* Runs every thread on memory as it is now. Only after one of the two above ended with PTX_DONE. */
ptx_end ptx_run(const ptx_grid *g, sim_launch *l);

#endif
