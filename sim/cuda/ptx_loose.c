/* ptx_loose.c: what a launch may touch whose addresses or branches depend on memory.
 *
 * Each register is followed back to the parameters that it was computed from, whatever the order of instructions: so it
 * is known which parameters are read through and which are written through. Invariant: a load or store whose address
 * comes from no parameter makes the answer PTX_BEYOND. It must not run anything. */
#include <stdlib.h>
#include <string.h>

#include "ptx_run.h"

enum { WORD = 8, LAST = 62 }; /* one bit for each 8 bytes of the parameters; what is behind them shares the last */
#define VARIABLES (1ull << 63) /* where the text's own variables lie */

typedef struct origins {
  const ptx_program *program;
  const ptx_entry *entry;
  uint64_t **of; /* by entry, then register: which parameters */
  uint64_t all, through; /* all words there are; what went through other memory than global */
  uint64_t read, written;
  bool changed;
  const ptx_inst *lost; /* an access to an address that comes from no parameter */
} origins;

static uint64_t bit_of(uint64_t offset) {
  const uint64_t word = offset / WORD;
  return 1ull << (word < LAST ? word : LAST);
}

static void join(origins *o, uint64_t *into, uint64_t more) {
  if ((*into | more) == *into) return;
  *into |= more;
  o->changed = true;
}

static uint64_t operand(const uint64_t *of, const ptx_operand *a) {
  if (a->kind == PTX_CONSTANT && a->value >> 56 == PTX_CONST) return VARIABLES;
  return a->kind == PTX_REGISTER ? of[a->index] : 0;
}

static uint64_t loaded(const origins *o, const ptx_entry *e, const ptx_inst *i) {
  if (i->space == PTX_CONST) return 0;
  if (i->space == PTX_GLOBAL) return 0;
  if (i->space != PTX_PARAM || e->is_function) return o->through;
  if (i->base.kind == PTX_NOTHING && i->offset < e->nbytes) return bit_of(i->offset);
  return o->through | o->all;
}

static void access(origins *o, const uint64_t *of, const ptx_inst *i) {
  const bool by_name = i->space == PTX_GLOBAL && i->base.kind == PTX_NOTHING;
  const uint64_t from = by_name ? VARIABLES : operand(of, &i->base);
  if (i->space == PTX_CONST) o->read |= VARIABLES;
  if (i->space != PTX_GLOBAL && i->space != PTX_GENERIC) return;
  if (from == 0 && i->space == PTX_GLOBAL && i->base.kind == PTX_REGISTER) o->lost = i;
  if (i->code != PTX_ST) o->read |= from;
  if (i->code != PTX_LD) o->written |= from;
}

static void one(origins *o, const ptx_entry *e, uint64_t *of, const ptx_inst *i) {
  uint64_t from = 0;
  for (int k = 0; k < 8; k++) from |= operand(of, &i->args[k]);
  if (i->code == PTX_LD) from |= loaded(o, e, i);
  if (i->code == PTX_ATOM) from |= i->space == PTX_SHARED ? o->through : 0;
  if ((i->code == PTX_ST || i->code == PTX_ATOM) && i->space != PTX_GLOBAL) join(o, &o->through, from);
  for (int k = 0; k < 8; k++)
    if (i->to[k].kind == PTX_REGISTER) join(o, &of[i->to[k].index], from);
}

static void each(origins *o, void (*visit)(origins *, const ptx_entry *, uint64_t *, const ptx_inst *)) {
  for (size_t n = 0; n < o->program->nentries; n++) {
    const ptx_entry *e = &o->program->entries[n];
    if (!e->is_function && e != o->entry) continue;
    for (size_t k = 0; k < e->ninsts; k++) visit(o, e, o->of[n], &e->insts[k]);
  }
}

/* What the driver's vprintf is given may be strings; it went through the parameters of the call, or local memory. */
static void touch(origins *o, const ptx_entry *e, uint64_t *of, const ptx_inst *i) {
  if (i->code == PTX_TRAP && strcmp(e->name, PTX_PRINTING) == 0) o->read |= o->through;
  if (i->code == PTX_LD || i->code == PTX_ST || i->code == PTX_ATOM) access(o, of, i);
}

static ptx_end refuse(const ptx_grid *g, const ptx_inst *i) {
  char here[200];
  sim_found(SIM_MISUSE,
            "%s, line %u: an address comes from what memory holds, and from no parameter, so the simulator cannot know "
            "what the launch will touch\n  launched %s",
            g->entry->name, i->line, sim_place_text(&g->made, here, sizeof here));
  return PTX_BEYOND;
}

/* PTX_UNPLACED if one that may be stored to is as the text has it. */
static ptx_end tell_variables(const origins *o, ptx_grid *g, sim_launch *l) {
  const ptx_program *p = g->program;
  const bool reads = (o->read & VARIABLES) != 0, writes = (o->written & VARIABLES) != 0;
  for (size_t i = 0; i < p->nvariables; i++) {
    const uint64_t at = g->places == NULL ? 0 : g->places[i];
    const bool stored = writes && !p->variables[i].constant;
    if (at == 0 && stored) return PTX_UNPLACED;
    if (at == 0) g->reads_text |= reads;
    if (at != 0 && reads) sim_launch_add_whole(l, (uintptr_t)at, false);
    if (at != 0 && stored) sim_launch_add_whole(l, (uintptr_t)at, true);
  }
  return PTX_DONE;
}

static void tell(const origins *o, const ptx_grid *g, sim_launch *l) {
  for (size_t at = 0; at + WORD <= g->entry->nbytes; at += WORD) {
    uint64_t address;
    memcpy(&address, g->params + at, WORD);
    if ((o->read & bit_of(at)) != 0) sim_launch_add_whole(l, (uintptr_t)address, false);
    if ((o->written & bit_of(at)) != 0) sim_launch_add_whole(l, (uintptr_t)address, true);
  }
}

ptx_end ptx_follow_params(ptx_grid *g, sim_launch *l) {
  const ptx_program *p = g->program;
  origins o = {.program = p, .entry = g->entry, .changed = true};
  o.of = calloc(p->nentries, sizeof *o.of);
  if (o.of == NULL) abort();
  for (size_t n = 0; n < p->nentries; n++) {
    o.of[n] = calloc(p->entries[n].nregs + 1, sizeof **o.of);
    if (o.of[n] == NULL) abort();
  }
  for (size_t at = 0; at < g->entry->nbytes; at++) o.all |= bit_of(at);
  while (o.changed) {
    o.changed = false;
    each(&o, one);
  }
  each(&o, touch);
  if (o.lost == NULL) tell(&o, g, l);
  const ptx_end end = o.lost == NULL ? tell_variables(&o, g, l) : PTX_BEYOND;
  for (size_t n = 0; n < p->nentries; n++) free(o.of[n]);
  free(o.of);
  return o.lost == NULL ? end : refuse(g, o.lost);
}
