/* native.h: Moonferry's kernels for HIP, which the host's compiler has compiled with the simulator: which of them a
 * text says, and what a launch of one does.
 *
 * It must not know how texts come here, nor handles. */
#ifndef SIM_HIP_NATIVE_H
#define SIM_HIP_NATIVE_H

#include "kernel.h"

enum { NATIVE_THREADS = 256, NATIVE_JOB = 224, NATIVE_FORMAT = 15, NATIVE_ENTRIES = 3 };

typedef struct native_entry {
  const char *name;
  void (*copy)(const void *job);
  void (*compare)(const void *job, unsigned *differs); /* one of the two */
} native_entry;

typedef enum native_kind { NATIVE_COPIES, NATIVE_CASTS, NATIVE_COMPARES } native_kind;

/* What a text says. */
typedef struct native_program {
  native_kind kind;
  unsigned size; /* of a copy's elements */
  unsigned to[NATIVE_FORMAT], from[NATIVE_FORMAT];
  int lanes; /* of numbers, as the two formats */
} native_program;

typedef struct native_grid {
  const native_program *program;
  const native_entry *entry;
  unsigned blocks;
  _Alignas(8) unsigned char job[NATIVE_JOB];
  unsigned *differs;
  sim_place made;
} native_grid;

typedef enum native_end { NATIVE_DONE, NATIVE_ILLEGAL, NATIVE_STUCK } native_end;

/* The first bytes of what the simulated hiprtc compiles to: the text stands behind them. */
#define NATIVE_MAGIC "moonferry's HIP\n"

/* native_text.c: false, and why, for any other text than those of runtime/src/driver/hip_text.c */
bool native_read(const char *text, native_program *out, const char **why);

/* native.c */
const native_entry *native_find(const native_program *p, const char *name);
/* Runs every thread; with ${follows} none touches memory, and the launch is told what each would touch. */
native_end native_run(const native_grid *g, sim_launch *l, bool follows);

#endif
