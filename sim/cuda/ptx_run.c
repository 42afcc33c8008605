/* ptx_run.c: the instructions of a thread, one after the other.
 *
 * The same steps serve two ends: followed, a thread touches no memory, what it loads is unknown, and nothing that
 * decides an address or a branch may be unknown; run, it does what it was followed to do, or, where that depends on
 * memory, is checked as it goes. Invariant: both take the same way through the code. It must not know when a launch
 * runs, nor how threads meet. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_lane.h"

#ifndef STEPS_OF_THREAD
#define STEPS_OF_THREAD (1ull << 24)
#endif
#define STEPS_OF_LAUNCH (1ull << 32)

bool ptx_wrong(lane *l, const ptx_inst *i, ptx_end end, sim_kind kind, const char *text) {
  char here[200];
  const uint64_t *s = l->special;
  l->b->end = end;
  sim_found(kind, "%s, line %u, thread (%u, %u, %u) of block (%u, %u, %u): %s\n  launched %s", l->e->name, i->line,
            (unsigned)s[0], (unsigned)s[1], (unsigned)s[2], (unsigned)s[6], (unsigned)s[7], (unsigned)s[8], text,
            sim_place_text(&l->b->grid->made, here, sizeof here));
  return false;
}

static bool read_unset(lane *l, const ptx_inst *i, const ptx_operand *o) {
  char text[120];
  snprintf(text, sizeof text, "the register %.60s is read before it is written", l->e->names[o->index]);
  return ptx_wrong(l, i, PTX_BEYOND, SIM_MISUSE, text);
}

/* Whether the operand may be read; *unknown is set if what it holds came from memory. */
bool ptx_readable(lane *l, const ptx_inst *i, const ptx_operand *o, bool *unknown) {
  if (!l->b->tracks || o->kind != PTX_REGISTER) return true;
  if (l->state[o->index] == PTX_UNSET) return read_unset(l, i, o);
  *unknown |= l->state[o->index] == PTX_UNKNOWN;
  return true;
}

bool ptx_settled(lane *l, const ptx_inst *i, const ptx_operand *o) {
  bool unknown = false;
  if (!ptx_readable(l, i, o, &unknown)) return false;
  if (unknown) l->b->end = PTX_LOOSE;
  return !unknown;
}

void ptx_put(lane *l, const ptx_operand *to, uint64_t v, ptx_type type, bool unknown) {
  l->regs[to->index] = ptx_truncate((uint64_t)ptx_extend(v, type), l->e->bits[to->index]);
  if (l->b->tracks) l->state[to->index] = unknown || l->perhaps ? PTX_UNKNOWN : PTX_KNOWN;
}

static bool arguments(lane *l, const ptx_inst *i, uint64_t *args, bool *unknown) {
  for (int k = 0; k < 4; k++) {
    args[k] = 0;
    if (i->args[k].kind == PTX_NOTHING) continue;
    if (!ptx_readable(l, i, &i->args[k], unknown)) return false;
    args[k] = ptx_value(l, &i->args[k]);
  }
  return true;
}

static ptx_type type_of_result(const ptx_inst *i) {
  ptx_type type = i->type;
  if (i->mode == PTX_WIDE) type.bits *= 2;
  if (i->code == PTX_POPC || i->code == PTX_CLZ) type = (ptx_type){PTX_UNSIGNED, 32};
  return type;
}

static bool compute(lane *l, const ptx_inst *i) {
  uint64_t args[4];
  bool unknown = false;
  if (!arguments(l, i, args, &unknown)) return false;
  if (i->code == PTX_CVT) args[0] = ptx_truncate(args[0], i->from.bits);
  if (!unknown && !l->perhaps && l->b->tracks && ptx_divides_by_zero(i, args))
    return ptx_wrong(l, i, PTX_BEYOND, SIM_MISUSE, "an integer is divided by zero");
  ptx_put(l, &i->to[0], ptx_compute(i, args), type_of_result(i), unknown);
  return true;
}

/* add.cc, addc and the like: the condition code is one more register. */
static bool compute_with_carry(lane *l, const ptx_inst *i) {
  const ptx_operand *in = &i->args[PTX_CARRY], *out = &i->to[PTX_CARRY];
  uint64_t args[4];
  bool unknown = false, over = false;
  if (!arguments(l, i, args, &unknown) || !ptx_readable(l, i, in, &unknown)) return false;
  const uint64_t v = ptx_with_carry(i, args, in->kind == PTX_REGISTER && ptx_value(l, in) != 0, &over);
  ptx_put(l, &i->to[0], v, i->type, unknown);
  if (out->kind == PTX_REGISTER) ptx_put(l, out, over, (ptx_type){PTX_PREDICATE, 1}, unknown);
  return true;
}

static bool compare(lane *l, const ptx_inst *i) {
  const ptx_type bit = {PTX_PREDICATE, 1};
  bool unknown = false;
  for (int k = 0; k < 3; k++)
    if (!ptx_readable(l, i, &i->args[k], &unknown)) return false;
  const bool holds = ptx_holds(i, ptx_value(l, &i->args[0]), ptx_value(l, &i->args[1]));
  const bool with = i->join == PTX_ALONE || ptx_value(l, &i->args[2]) != 0;
  for (int k = 0; k < 2; k++) {
    const bool h = holds != (k == 1);
    const bool v = i->join == PTX_WITH_OR ? h || with : i->join == PTX_WITH_XOR ? h != with : h && with;
    if (i->to[k].kind == PTX_REGISTER) ptx_put(l, &i->to[k], v, bit, unknown);
  }
  return true;
}

static bool unpack(lane *l, const ptx_inst *i) {
  const ptx_type part = {PTX_BITS, i->type.bits / i->lanes};
  bool unknown = false;
  if (!ptx_readable(l, i, &i->args[0], &unknown)) return false;
  const uint64_t v = ptx_value(l, &i->args[0]);
  for (unsigned k = 0; k < i->lanes; k++) {
    const uint64_t one = ptx_truncate(v >> k * part.bits, part.bits);
    if (i->to[k].kind == PTX_REGISTER) ptx_put(l, &i->to[k], one, part, unknown);
  }
  return true;
}

/* An unknown guard is no matter where only registers change: they are unknown then. */
static bool guarded(lane *l, const ptx_inst *i, bool *skip) {
  const bool registers_only = i->code < PTX_LD;
  const bool own = i->code == PTX_ST && (i->space == PTX_LOCAL || i->space == PTX_PARAM);
  const bool shared = i->space == PTX_SHARED && (i->code == PTX_LD || i->code == PTX_ST || i->code == PTX_ATOM);
  bool unknown = false;
  *skip = false;
  if (!registers_only && !own && !shared && !ptx_settled(l, i, &i->guard)) return false;
  if (!ptx_readable(l, i, &i->guard, &unknown)) return false;
  l->perhaps = unknown;
  *skip = !unknown && ptx_value(l, &i->guard) == 0;
  return true;
}

static bool wait(lane *l, const ptx_inst *i, ptx_status status) {
  bool unknown = false;
  for (int k = 0; k < 4; k++)
    if (!ptx_readable(l, i, &i->args[k], &unknown)) return false;
  l->status = status;
  l->at = i;
  return true;
}

/* The functions that PTX's texts call to print and where an assertion fails are the driver's own: ptx_text.c has
 * them. */
static bool trap(lane *l, const ptx_inst *i) {
  if (strcmp(l->e->name, PTX_PRINTING) == 0) return ptx_print(l, i);
  const bool asserted = strcmp(l->e->name, PTX_ASSERTION) == 0;
  return ptx_wrong(l, i, asserted ? PTX_ASSERTED : PTX_STUCK, SIM_MISUSE,
                   asserted ? "an assertion of the kernel fails" : "it comes to a trap");
}

static bool move_on(lane *l, const ptx_inst *i) {
  switch (i->code) {
    case PTX_BRA:
      l->next = i->target;
      return true;
    case PTX_CALL:
      return ptx_enter(l, i);
    case PTX_RET:
      ptx_leave(l);
      return true;
    case PTX_EXIT:
      l->status = PTX_ENDED;
      return true;
    case PTX_TRAP:
      return trap(l, i);
    case PTX_BAR:
      return wait(l, i, PTX_AT_BARRIER);
    default:
      return i->code == PTX_FENCE || wait(l, i, PTX_IN_WARP);
  }
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
      return ptx_load(l, i);
    case PTX_ST:
      return ptx_store(l, i);
    case PTX_ATOM:
      return ptx_atom(l, i);
    case PTX_SETP:
      return compare(l, i);
    case PTX_UNPACK:
      return unpack(l, i);
    default:
      if (i->code > PTX_LD) return move_on(l, i);
      if (i->args[PTX_CARRY].kind == PTX_REGISTER || i->to[PTX_CARRY].kind == PTX_REGISTER)
        return compute_with_carry(l, i);
      return compute(l, i);
  }
}

/* Only a thread that is followed, or was not, counts its steps: one that is run after that takes the same ones. */
bool ptx_go_on(lane *l) {
  ptx_block *b = l->b;
  if (b->tracks && l->until == 0)
    l->until = b->steps + STEPS_OF_THREAD < b->limit ? b->steps + STEPS_OF_THREAD : b->limit;
  l->status = PTX_RUNNING;
  while (l->status == PTX_RUNNING) {
    if (l->next >= l->e->ninsts) {
      ptx_leave(l);
      continue;
    }
    const ptx_inst *i = &l->e->insts[l->next++];
    if (b->tracks && ++b->steps > l->until)
      return ptx_wrong(l, i, PTX_ENDLESS, SIM_MISUSE, "it does not come to an end: too many instructions");
    if (!step(l, i)) return false;
  }
  return true;
}

static void all(ptx_block *b, lane *lanes) {
  const unsigned *n = b->grid->blocks;
  for (b->place[2] = 0; b->place[2] < n[2]; b->place[2]++)
    for (b->place[1] = 0; b->place[1] < n[1]; b->place[1]++)
      for (b->place[0] = 0; b->place[0] < n[0]; b->place[0]++, b->number++)
        if (!ptx_block_run(b, lanes)) return;
}

static void *room(size_t n, size_t size) {
  void *p = calloc(n + 1, size);
  if (p == NULL) abort();
  return p;
}

/* Threads that never wait for others run one after the other, and need one place. */
static ptx_end go(const ptx_grid *g, sim_launch *launch, bool follows, bool *reads_text) {
  const size_t threads = (size_t)g->threads[0] * g->threads[1] * g->threads[2];
  const bool calls = g->entry->ncalls > 0;
  const bool waits = g->entry->waits || (calls && g->program->waits);
  const size_t nlanes = waits ? threads : 1;
  const bool has_shared = g->entry->has_shared || (calls && g->program->has_shared);
  const size_t nshared = has_shared ? g->program->shared + g->dynamic : 0;
  ptx_block b = {.grid = g,
                 .launch = launch,
                 .follows = follows,
                 .tracks = follows || g->loose,
                 .gathers = follows || g->loose,
                 .limit = STEPS_OF_LAUNCH,
                 .waits = waits,
                 .end = PTX_DONE,
                 .nshared = nshared};
  lane *lanes = room(nlanes, sizeof *lanes);
  b.shared = room(nshared, 1);
  if (!follows) b.cells = room(nshared, sizeof *b.cells);
  for (size_t k = 0; k < nlanes; k++) lanes[k].b = &b;
  if (g->entry->ninsts > 0) all(&b, lanes);
  for (size_t k = 0; k < nlanes; k++) ptx_lane_free(&lanes[k]);
  free(lanes);
  free(b.shared);
  free(b.cells);
  *reads_text = b.reads_text;
  return b.end;
}

ptx_end ptx_follow(ptx_grid *g, sim_launch *l) {
  return go(g, l, true, &g->reads_text);
}

ptx_end ptx_run(const ptx_grid *g, sim_launch *l) {
  bool unused;
  return go(g, l, false, &unused);
}
