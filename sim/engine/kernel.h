/* kernel.h: loaded code, and launches of it.
 *
 * It must not know what the code is made of. */
#ifndef SIM_KERNEL_H
#define SIM_KERNEL_H

#include "engine.h"

/* Memory of a variable in one context. */
typedef struct sim_variable {
  const sim_context *ctx;
  size_t which;
  sim_alloc *alloc;
  struct sim_variable *next;
} sim_variable;

typedef struct sim_module {
  sim_object o;
  sim_context *ctx; /* NULL: of every context */
  void *code;
  void (*drop)(void *code);
  unsigned refs;  /* the program's, and one of each launch */
  sim_clock used; /* by slot, when it was last launched */
  sim_variable *variables; /* those that have memory of their own */
} sim_module;

typedef struct sim_function {
  sim_object o;
  sim_module *module;
  sim_context *ctx; /* NULL: of every context */
  const void *entry;
} sim_function;

typedef struct sim_launch_access {
  sim_alloc *alloc;
  sim_region region;
  bool write;
} sim_launch_access;

/* What one thread of a launch touches by one instruction. A block's barriers count its phases, a warp's its syncs:
 * they order what its threads do. */
typedef struct sim_thread_access {
  uintptr_t base;
  size_t nbytes;
  uint32_t thread, index; /* in the launch, in its block */
  uint32_t block, phase, sync;
  uint32_t line; /* of the code */
  bool write, atomic;
} sim_thread_access;

/* A launch: made, followed (sim_launch_add_access for what its threads touch), sealed, then queued. */
struct sim_launch {
  unsigned refs;
  sim_module *module;
  int device;
  void (*run)(sim_launch *l);
  void *body;
  void (*drop)(void *body);
  int illegal; /* the driver's number for a touch that may not be */
  int broken;  /* the driver's number that it fails with when it runs, or 0 */
  sim_launch_access *accesses;
  size_t naccesses;
  sim_thread_access *gathered;
  size_t ngathered, room;
  bool blurred;
  bool fenced; /* its code has fences that may order blocks, so that those are not told to race */
  sim_alloc *recent[2];
};

sim_module *sim_module_new(sim_type type, sim_context *ctx, void *code, void (*drop)(void *));
void sim_module_end(sim_module *m);
size_t sim_module_end_all(const sim_context *c); /* how many the program had left */
/* The memory of the module's variable of that number in a context: NULL if it has none yet; and made, with these bytes
 * in it, if it has none. */
sim_alloc *sim_module_variable(const sim_module *m, const sim_context *c, size_t which);
sim_status sim_module_place(sim_module *m, sim_context *c, size_t which, const void *bytes, size_t nbytes,
                            sim_alloc **out);
sim_function *sim_function_of(sim_module *m, sim_context *ctx, const void *entry);
sim_launch *sim_launch_new(sim_module *m, int device);
sim_launch *sim_launch_keep(sim_launch *l);
void sim_launch_drop(sim_launch *l);
/* SIM_ANY if the launch may touch these bytes; else the kind of finding, and why not. */
sim_kind sim_launch_add_access(sim_launch *l, const sim_thread_access *r, const char **why);
/* All of the allocation that this address lies in, if there is one. */
void sim_launch_add_whole(sim_launch *l, uintptr_t at, bool write);
void sim_launch_forget(sim_launch *l); /* what was added */
void sim_launch_seal(sim_launch *l, const char *name);
/* While it runs: SIM_ANY if these bytes are among those that it was sealed with. What was added is looked at when it
 * has run: its threads may race with each other. */
sim_kind sim_launch_add_checked(sim_launch *l, const sim_thread_access *r, const char **why);
/* Reports the first two threads that race; what was gathered is sorted by address. */
void sim_launch_collide(const sim_launch *l, const char *name, const sim_place *made);
void sim_launch_ran(sim_launch *l, const char *name, const sim_place *made);
void sim_launch_pin(const sim_launch *l, bool on);
void sim_launch_check(sim_launch *l, const sim_op *op);
void sim_launch_run(sim_launch *l);

#endif
