/* ptx_lane.h: what the files that run PTX share: a thread, its frames, and the block that it is in.
 *
 * It must not be included by what reads it. */
#ifndef SIM_CUDA_PTX_LANE_H
#define SIM_CUDA_PTX_LANE_H

#include "ptx_run.h"

enum { PTX_UNSET, PTX_KNOWN, PTX_UNKNOWN }; /* what is known of a register */
enum { PTX_MOST_DEPTH = 32 };

/* What a thread does next; from PTX_AT_BARRIER on it waits at the instruction `at`. */
typedef enum ptx_status { PTX_RUNNING, PTX_ENDED, PTX_AT_BARRIER, PTX_IN_WARP } ptx_status;

typedef struct ptx_frame {
  const ptx_entry *e;
  const ptx_call *call; /* that it was made by; NULL: the launch */
  size_t next;          /* the instruction, while another frame is above it */
  size_t regs, bytes, local; /* where its registers, parameters and local memory begin */
} ptx_frame;

/* The last access to a byte of shared memory: who writes, and two who read, of two warps where there are such. */
typedef struct ptx_mark {
  uint32_t thread, line; /* thread: its index in the block + 1; 0: nobody */
  uint32_t phase, sync;
  bool atomic;
} ptx_mark;

typedef struct ptx_cell {
  ptx_mark write, read[2];
} ptx_cell;

/* What all threads of a launch share, and those of the block that is running. */
typedef struct ptx_block {
  const ptx_grid *grid;
  sim_launch *launch;
  bool waits;   /* its threads wait for each other */
  bool follows; /* no memory is touched, and what it holds is unknown */
  bool tracks;  /* the state of registers is kept */
  bool gathers; /* what is touched in global memory is told to the launch */
  uint64_t steps, limit;
  ptx_end end;
  uint32_t number, phase; /* of the block; how many barriers and blocks were passed */
  uint64_t place[3];
  unsigned char *shared;
  ptx_cell *cells;
  size_t nshared;
  bool told; /* that threads race in shared memory */
  bool reads_text; /* variables as the text has them */
} ptx_block;

typedef struct lane {
  ptx_block *b;
  const ptx_entry *e;
  uint64_t *regs; /* of the frame */
  unsigned char *state;
  size_t next;
  uint64_t special[PTX_SPECIALS];
  uint32_t number, index; /* of the thread in the grid, in the block */
  uint32_t sync;          /* of its warp's synchronizations, how many it passed */
  bool perhaps;           /* whether the instruction is carried out depends on memory */
  uint64_t until;         /* the step at which it has taken too long */
  ptx_status status;
  const ptx_inst *at;
  unsigned depth;
  ptx_frame frames[PTX_MOST_DEPTH];
  uint64_t *all_regs;
  unsigned char *all_state;
  unsigned char *bytes, *bytes_state, *local, *local_state; /* parameters; local memory; state: KNOWN or UNKNOWN */
  size_t regs_room, bytes_room, local_room, local_used;
} lane;

static inline uint64_t ptx_value(const lane *l, const ptx_operand *o) {
  if (o->kind == PTX_REGISTER) return o->negated ? l->regs[o->index] == 0 : l->regs[o->index];
  if (o->kind == PTX_SPECIAL) return l->special[o->index];
  return o->kind == PTX_OWN_PLACE ? o->value + l->frames[l->depth].local : o->value;
}

/* Each is false, with a finding, where the thread cannot go on. */
bool ptx_wrong(lane *l, const ptx_inst *i, ptx_end end, sim_kind kind, const char *text);
bool ptx_readable(lane *l, const ptx_inst *i, const ptx_operand *o, bool *unknown);
bool ptx_settled(lane *l, const ptx_inst *i, const ptx_operand *o); /* the launch is loose if it is unknown */
void ptx_put(lane *l, const ptx_operand *to, uint64_t v, ptx_type type, bool unknown);
bool ptx_load(lane *l, const ptx_inst *i);
bool ptx_store(lane *l, const ptx_inst *i);
bool ptx_atom(lane *l, const ptx_inst *i);
/* What lies at a generic address, as an instruction of this one's line reads it. */
bool ptx_peek(lane *l, const ptx_inst *i, uint64_t address, unsigned bits, uint64_t *out, bool *unknown);
/* The driver's vprintf, in whose frame the thread is. */
bool ptx_print(lane *l, const ptx_inst *i);

/* Frames: a thread begins anew; a call enters, a return leaves. */
void ptx_lane_begin(lane *l, const uint64_t place[3], uint32_t index);
bool ptx_enter(lane *l, const ptx_inst *i);
void ptx_leave(lane *l);
void ptx_lane_free(lane *l);

/* Until the thread ends or waits. */
bool ptx_go_on(lane *l);
/* All threads of the block whose place is set. */
bool ptx_block_run(ptx_block *b, lane *lanes);
/* Threads of a warp that met: the exchange of what they hold. */
bool ptx_warp_meet(lane *warp, uint32_t n, lane *first);

#endif
