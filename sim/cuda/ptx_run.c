/* ptx_run.c: running an entry over a grid, thread after thread.
 *
 * The same steps serve two ends: followed, a thread touches no memory, what it loads is unknown, and nothing that
 * decides an address or a branch may be unknown; run, it does what it was followed to do. Invariant: both take the
 * same way through the code. It must not know when a launch runs. */
#include "ptx_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNSET, KNOWN, UNKNOWN }; /* what is known of a register while a thread is followed */
#ifndef STEPS_OF_THREAD
#define STEPS_OF_THREAD (1ull << 24)
#endif
#define STEPS_OF_LAUNCH (1ull << 32)

typedef struct lane {
  const ptx_grid *grid;
  const ptx_entry *e;
  sim_launch *launch; /* NULL: it is run */
  uint64_t *regs;
  unsigned char *state;
  uint64_t special[PTX_SPECIALS];
  uint32_t number; /* of the thread in the grid */
  bool perhaps;    /* whether the instruction is carried out depends on memory */
  uint64_t steps, limit;
  size_t next;
  ptx_end end;
} lane;

static bool wrong(lane *l, const ptx_inst *i, ptx_end end, sim_kind kind, const char *text) {
  char here[200];
  const sim_place now = sim_here();
  const uint64_t *s = l->special;
  l->end = end;
  sim_found(kind, "%s, line %u, thread (%u, %u, %u) of block (%u, %u, %u): %s\n  launched %s", l->e->name, i->line,
            (unsigned)s[0], (unsigned)s[1], (unsigned)s[2], (unsigned)s[6], (unsigned)s[7], (unsigned)s[8], text,
            sim_place_text(&now, here, sizeof here));
  return false;
}

static uint64_t value(const lane *l, const ptx_operand *o) {
  if (o->kind == PTX_REGISTER) return o->negated ? l->regs[o->index] == 0 : l->regs[o->index];
  return o->kind == PTX_SPECIAL ? l->special[o->index] : o->value;
}

static bool read_unset(lane *l, const ptx_inst *i, const ptx_operand *o) {
  char text[120];
  snprintf(text, sizeof text, "the register %.60s is read before it is written", l->e->names[o->index]);
  return wrong(l, i, PTX_BEYOND, SIM_MISUSE, text);
}

/* Whether the operand may be read; *unknown is set if what it holds came from memory. */
static bool readable(lane *l, const ptx_inst *i, const ptx_operand *o, bool *unknown) {
  if (l->launch == NULL || o->kind != PTX_REGISTER) return true;
  if (l->state[o->index] == UNSET) return read_unset(l, i, o);
  *unknown |= l->state[o->index] == UNKNOWN;
  return true;
}

static bool known(lane *l, const ptx_inst *i, const ptx_operand *o, const char *what) {
  char text[160];
  bool unknown = false;
  if (!readable(l, i, o, &unknown)) return false;
  if (!unknown) return true;
  snprintf(text, sizeof text, "%s depends on what memory holds, which the simulator does not follow", what);
  return wrong(l, i, PTX_BEYOND, SIM_MISUSE, text);
}

static void put(lane *l, const ptx_operand *to, uint64_t v, ptx_type type, bool unknown) {
  l->regs[to->index] = ptx_truncate((uint64_t)ptx_extend(v, type), l->e->bits[to->index]);
  if (l->launch != NULL) l->state[to->index] = unknown || l->perhaps ? UNKNOWN : KNOWN;
}

static bool compute(lane *l, const ptx_inst *i) {
  uint64_t args[4];
  bool unknown = false;
  for (int k = 0; k < 4; k++) {
    if (i->args[k].kind == PTX_NOTHING) continue;
    if (!readable(l, i, &i->args[k], &unknown)) return false;
    args[k] = value(l, &i->args[k]);
  }
  if (i->code == PTX_CVT) args[0] = ptx_truncate(args[0], i->from.bits);
  if (!unknown && !l->perhaps && l->launch != NULL && ptx_divides_by_zero(i, args))
    return wrong(l, i, PTX_BEYOND, SIM_MISUSE, "an integer is divided by zero");
  ptx_type type = i->type;
  if (i->mode == PTX_WIDE) type.bits *= 2;
  put(l, &i->to[0], ptx_compute(i, args), type, unknown);
  return true;
}

static bool compare(lane *l, const ptx_inst *i) {
  const ptx_type bit = {PTX_PREDICATE, 1};
  bool unknown = false;
  for (int k = 0; k < 3; k++)
    if (!readable(l, i, &i->args[k], &unknown)) return false;
  const bool holds = ptx_holds(i, value(l, &i->args[0]), value(l, &i->args[1]));
  const bool with = i->join == PTX_ALONE || value(l, &i->args[2]) != 0;
  for (int k = 0; k < 2; k++) {
    const bool h = holds != (k == 1);
    const bool v = i->join == PTX_WITH_OR ? h || with : i->join == PTX_WITH_XOR ? h != with : h && with;
    if (i->to[k].kind == PTX_REGISTER) put(l, &i->to[k], v, bit, unknown);
  }
  return true;
}

static bool may_access(lane *l, const ptx_inst *i, uintptr_t p, size_t nbytes) {
  const char *why;
  char text[200];
  const bool write = i->code == PTX_ST;
  const sim_thread_access access = {p, nbytes, l->number, write};
  const char *verb = write ? "writes" : "reads";
  if (p % nbytes != 0) {
    snprintf(text, sizeof text, "%s %zu bytes at %#zx, which is no multiple of that", verb, nbytes, (size_t)p);
    return wrong(l, i, PTX_MISALIGNED, SIM_BOUNDS, text);
  }
  const sim_kind kind = sim_launch_add_access(l->launch, &access, &why);
  if (kind == SIM_ANY) return true;
  snprintf(text, sizeof text, "%s %zu bytes at %#zx, %s", verb, nbytes, (size_t)p, why);
  return wrong(l, i, PTX_ILLEGAL, kind, text);
}

/* A parameter that is indexed by a register may lie anywhere, so it is looked at again. */
static const unsigned char *parameter(lane *l, const ptx_inst *i, uint64_t at, size_t nbytes) {
  if (at <= l->e->nbytes && l->e->nbytes - at >= nbytes && at % nbytes == 0) return l->grid->params + at;
  wrong(l, i, PTX_ILLEGAL, SIM_BOUNDS, "a parameter is read outside of what was declared, or misaligned");
  return NULL;
}

static bool load(lane *l, const ptx_inst *i) {
  const size_t unit = i->type.bits / 8, nbytes = unit * i->lanes;
  const bool param = i->space == PTX_PARAM, followed = l->launch != NULL;
  const unsigned char *from = NULL;
  if (!known(l, i, &i->base, "an address")) return false;
  const uint64_t at = value(l, &i->base) + i->offset;
  if (param) {
    from = parameter(l, i, at, nbytes);
    if (from == NULL) return false;
  } else if (followed) {
    if (!may_access(l, i, (uintptr_t)at, nbytes)) return false;
  } else {
    from = sim_view((uintptr_t)at);
  }
  for (unsigned k = 0; k < i->lanes; k++) {
    uint64_t v = 0;
    if (from != NULL) memcpy(&v, from + k * unit, unit);
    put(l, &i->to[k], v, i->type, from == NULL);
  }
  return true;
}

static bool store(lane *l, const ptx_inst *i) {
  const size_t unit = i->type.bits / 8, nbytes = unit * i->lanes;
  bool unknown = false;
  if (!known(l, i, &i->base, "an address")) return false;
  for (unsigned k = 0; k < i->lanes; k++)
    if (!readable(l, i, &i->args[k], &unknown)) return false;
  const uint64_t at = value(l, &i->base) + i->offset;
  if (l->launch != NULL) return may_access(l, i, (uintptr_t)at, nbytes);
  unsigned char *to = sim_view((uintptr_t)at);
  for (unsigned k = 0; k < i->lanes; k++) {
    const uint64_t v = value(l, &i->args[k]);
    memcpy(to + k * unit, &v, unit);
  }
  return true;
}

/* An unknown guard is no matter where only registers change: they are unknown then. */
static bool guarded(lane *l, const ptx_inst *i, bool *skip) {
  const bool registers_only = i->code < PTX_LD;
  bool unknown = false;
  *skip = false;
  if (!registers_only && !known(l, i, &i->guard, "whether a thread branches, loads or stores")) return false;
  if (!readable(l, i, &i->guard, &unknown)) return false;
  l->perhaps = unknown;
  *skip = !unknown && value(l, &i->guard) == 0;
  return true;
}

static bool step(lane *l, const ptx_inst *i) {
  bool skip;
  l->perhaps = false;
  if (i->guard.kind == PTX_REGISTER) {
    if (!guarded(l, i, &skip)) return false;
    if (skip) return true;
  }
  switch (i->code) {
    case PTX_LD:
      return load(l, i);
    case PTX_ST:
      return store(l, i);
    case PTX_SETP:
      return compare(l, i);
    case PTX_BRA:
      l->next = i->target;
      return true;
    case PTX_RET:
      l->next = l->e->ninsts;
      return true;
    default:
      return compute(l, i);
  }
}

static bool too_long(lane *l, const ptx_inst *i) {
  return wrong(l, i, PTX_ENDLESS, SIM_MISUSE, "it does not come to an end: too many instructions");
}

/* Only a followed thread counts its steps: one that is run takes the same ones. */
static bool thread(lane *l) {
  const uint64_t until = l->steps + STEPS_OF_THREAD < l->limit ? l->steps + STEPS_OF_THREAD : l->limit;
  l->next = 0;
  if (l->launch != NULL) memset(l->state, UNSET, l->e->nregs);
  while (l->next < l->e->ninsts) {
    const ptx_inst *i = &l->e->insts[l->next++];
    if (l->launch != NULL && ++l->steps > until) return too_long(l, i);
    if (!step(l, i)) return false;
  }
  return true;
}

static bool block(lane *l) {
  const unsigned *n = l->grid->threads;
  for (l->special[2] = 0; l->special[2] < n[2]; l->special[2]++)
    for (l->special[1] = 0; l->special[1] < n[1]; l->special[1]++)
      for (l->special[0] = 0; l->special[0] < n[0]; l->special[0]++, l->number++)
        if (!thread(l)) return false;
  return true;
}

static void all(lane *l) {
  const unsigned *n = l->grid->blocks;
  for (int k = 0; k < 3; k++) {
    l->special[3 + k] = l->grid->threads[k];
    l->special[9 + k] = n[k];
  }
  for (l->special[8] = 0; l->special[8] < n[2]; l->special[8]++)
    for (l->special[7] = 0; l->special[7] < n[1]; l->special[7]++)
      for (l->special[6] = 0; l->special[6] < n[0]; l->special[6]++)
        if (!block(l)) return;
}

static ptx_end go(const ptx_grid *g, sim_launch *launch) {
  lane l = {.grid = g, .e = g->entry, .launch = launch, .limit = STEPS_OF_LAUNCH, .end = PTX_DONE};
  l.regs = calloc(g->entry->nregs + 1, sizeof *l.regs);
  l.state = calloc(g->entry->nregs + 1, 1);
  if (l.regs == NULL || l.state == NULL) abort();
  if (g->entry->ninsts > 0) all(&l);
  free(l.regs);
  free(l.state);
  return l.end;
}

ptx_end ptx_follow(const ptx_grid *g, sim_launch *l) {
  return go(g, l);
}

void ptx_run(const ptx_grid *g) {
  go(g, NULL);
}
