/* ptx_space.c: loads, stores and atomics of a thread, space by space.
 *
 * Invariant: no byte is touched that the space does not have, whatever the address. Two threads of a block that touch
 * the same byte of shared memory between two barriers, one of them writing, are a finding when the launch runs. It must
 * not know when a thread waits. */
#include <stdio.h>
#include <string.h>

#include "ptx_lane.h"

/* Bytes that an instruction touches. */
typedef struct span {
  ptx_space space;
  uint64_t at;
  size_t nbytes;
  unsigned char *bytes, *state; /* bytes NULL: what it holds is unknown, and a store has no effect here */
} span;

static const char *verb_of(const ptx_inst *i) {
  return i->code == PTX_LD ? "reads" : i->code == PTX_ST ? "writes" : "changes";
}

static bool misplaced(lane *l, const ptx_inst *i, const span *s, ptx_end end, sim_kind kind, const char *why) {
  static const char *const names[] = {"", "", " of parameters", " of shared memory", " of local memory",
                                      " of constant memory"};
  char text[240];
  snprintf(text, sizeof text, "%s %zu bytes at %#zx%s, %s", verb_of(i), s->nbytes, (size_t)s->at, names[s->space], why);
  return ptx_wrong(l, i, end, kind, text);
}

static bool in_global(lane *l, const ptx_inst *i, span *s) {
  const char *why = NULL;
  ptx_block *b = l->b;
  const sim_thread_access access = {.base = (uintptr_t)s->at,
                                    .nbytes = s->nbytes,
                                    .thread = l->number,
                                    .index = l->index,
                                    .block = b->number,
                                    .phase = b->phase,
                                    .sync = l->sync,
                                    .line = i->line,
                                    .write = i->code != PTX_LD,
                                    .atomic = i->code == PTX_ATOM};
  if (!b->follows) s->bytes = sim_view((uintptr_t)s->at);
  if (!b->gathers) return true;
  const sim_kind kind = b->follows ? sim_launch_add_access(b->launch, &access, &why)
                                   : sim_launch_add_checked(b->launch, &access, &why);
  return kind == SIM_ANY || misplaced(l, i, s, PTX_ILLEGAL, kind, why);
}

/* Whether a barrier of the block, or of the warp, lies between the access and now. */
static bool ordered(const lane *l, const ptx_mark *m) {
  if (m->thread == 0 || m->thread - 1 == l->index || m->phase != l->b->phase) return true;
  return (m->thread - 1) / PTX_WARP_SIZE == l->index / PTX_WARP_SIZE && m->sync != l->sync;
}

static void report(lane *l, const ptx_inst *i, const ptx_mark *m, bool wrote, uint64_t at) {
  char here[200];
  const unsigned *n = l->b->grid->threads, other = m->thread - 1;
  const uint64_t *s = l->special, *p = l->b->place;
  l->b->told = true;
  sim_found(SIM_RACE,
            "two threads of one block of %s touch byte %llu of its shared memory, one of them writes, and no barrier "
            "is between\n  first  line %u, thread (%u, %u, %u) %s\n  then   line %u, thread (%u, %u, %u) %s\n"
            "  in     block (%u, %u, %u), launched %s",
            l->b->grid->entry->name, (unsigned long long)at, m->line, other % n[0], other / n[0] % n[1],
            other / n[0] / n[1], wrote ? "writes" : "reads", i->line, (unsigned)s[0], (unsigned)s[1], (unsigned)s[2],
            verb_of(i), (unsigned)p[0], (unsigned)p[1], (unsigned)p[2],
            sim_place_text(&l->b->grid->made, here, sizeof here));
}

static uint32_t warp_of(const ptx_mark *m) {
  return (m->thread - 1) / PTX_WARP_SIZE;
}

/* Of those who read since the last barrier two are kept, of two warps where there are such: a barrier of one warp
 * orders that warp's threads, and a later write must still meet the reader of the other. */
static void keep_reader(const lane *l, ptx_mark *kept, const ptx_mark *now) {
  for (int k = 0; k < 2; k++)
    if (kept[k].thread == now->thread || ordered(l, &kept[k])) {
      kept[k] = *now;
      return;
    }
  if (warp_of(&kept[0]) == warp_of(&kept[1]) && warp_of(now) != warp_of(&kept[0])) kept[1] = *now;
}

static void mark(lane *l, const ptx_inst *i, ptx_cell *c, uint64_t at) {
  const bool atomic = i->code == PTX_ATOM, reads = i->code == PTX_LD;
  const ptx_mark now = {l->index + 1, i->line, l->b->phase, l->sync, atomic};
  /* To load what others change atomically is how loops around atomicCAS begin. */
  if (!ordered(l, &c->write) && !((atomic || reads) && c->write.atomic) && !l->b->told)
    report(l, i, &c->write, true, at);
  for (int k = 0; k < 2 && !reads && !atomic && !l->b->told; k++)
    if (!ordered(l, &c->read[k])) report(l, i, &c->read[k], false, at);
  if (reads) keep_reader(l, c->read, &now);
  else c->write = now;
}

static bool in_shared(lane *l, const ptx_inst *i, span *s) {
  ptx_block *b = l->b;
  const uint64_t fixed = b->nshared == 0 ? 0 : b->nshared - b->grid->dynamic;
  uint64_t at = s->at;
  if (at >= PTX_DYNAMIC_AT) at = at - PTX_DYNAMIC_AT + fixed;
  const uint64_t end = s->at >= PTX_DYNAMIC_AT ? b->nshared : fixed;
  if (at > end || end - at < s->nbytes) {
    char why[96];
    snprintf(why, sizeof why, "and the block has %llu bytes and %u of dynamic size", (unsigned long long)fixed,
             b->grid->dynamic);
    return misplaced(l, i, s, PTX_ILLEGAL, SIM_BOUNDS, why);
  }
  if (b->follows) return true;
  s->bytes = b->shared + at;
  for (size_t k = 0; k < s->nbytes; k++) mark(l, i, &b->cells[at + k], at + k);
  return true;
}

static bool within(lane *l, const ptx_inst *i, span *s, unsigned char *bytes, unsigned char *state, size_t n) {
  if (s->at > n || n - s->at < s->nbytes) {
    if (s->space == PTX_PARAM)
      return ptx_wrong(l, i, PTX_ILLEGAL, SIM_BOUNDS,
                       "a parameter is read outside of what was declared, or misaligned");
    return misplaced(l, i, s, PTX_ILLEGAL, SIM_BOUNDS, "which lies outside of it");
  }
  s->bytes = bytes + s->at;
  s->state = state == NULL ? NULL : state + s->at;
  return true;
}

/* A variable of the text: one whose place is known to others, or that is stored to, lies in the device's memory, and
 * any other is as the text has it. */
static bool in_variable(lane *l, const ptx_inst *i, span *s) {
  const ptx_grid *g = l->b->grid;
  const ptx_program *p = g->program;
  const bool stores = i->code != PTX_LD;
  const size_t which = stores || g->places != NULL ? ptx_variable_at(p, s->at) : p->nvariables;
  const ptx_module_variable *v = which < p->nvariables ? &p->variables[which] : NULL;
  if (stores && (v == NULL || v->constant))
    return misplaced(l, i, s, PTX_ILLEGAL, SIM_BOUNDS, v == NULL ? "which lies in no variable" : "which is only read");
  if (v != NULL && g->places != NULL && g->places[which] != 0) {
    s->at += g->places[which] - v->offset;
    s->space = PTX_GLOBAL;
    if (s->at % s->nbytes == 0) return in_global(l, i, s);
    return misplaced(l, i, s, PTX_MISALIGNED, SIM_BOUNDS, "which is no multiple of that");
  }
  if (stores) {
    l->b->end = PTX_UNPLACED;
    return false;
  }
  l->b->reads_text = true;
  return within(l, i, s, p->consts, NULL, p->nconsts);
}

static bool reach(lane *l, const ptx_inst *i, span *s) {
  const ptx_frame *f = &l->frames[l->depth];
  if (s->space == PTX_GENERIC || (s->space == PTX_GLOBAL && s->at >> 56 == PTX_CONST)) {
    const uint64_t window = s->at >> 56;
    const bool other = window >= PTX_SHARED && window <= PTX_CONST;
    s->space = other ? (ptx_space)window : PTX_GLOBAL;
    if (other) s->at -= PTX_WINDOW(window);
  }
  if (s->at % s->nbytes != 0) {
    if (s->space == PTX_PARAM) return within(l, i, s, NULL, NULL, 0);
    return misplaced(l, i, s, PTX_MISALIGNED, SIM_BOUNDS, "which is no multiple of that");
  }
  switch (s->space) {
    case PTX_SHARED: return in_shared(l, i, s);
    case PTX_LOCAL: return within(l, i, s, l->local, l->local_state, l->local_used);
    case PTX_CONST: return in_variable(l, i, s);
    case PTX_PARAM: return within(l, i, s, l->bytes + f->bytes, l->bytes_state + f->bytes, l->e->frame);
    default: return in_global(l, i, s);
  }
}

/* *seen is false where the address is not known and need not be: shared and local memory are nobody else's. */
static bool span_of(lane *l, const ptx_inst *i, span *out, bool *seen) {
  bool unknown = false;
  const size_t nbytes = (size_t)i->type.bits / 8 * i->lanes;
  *out = (span){.space = i->space, .nbytes = nbytes};
  *seen = false;
  if (!ptx_readable(l, i, &i->base, &unknown)) return false;
  if (unknown && i->space == PTX_LOCAL) memset(l->local_state, PTX_UNKNOWN, i->code == PTX_LD ? 0 : l->local_used);
  if (unknown && (i->space == PTX_SHARED || i->space == PTX_LOCAL || i->space == PTX_CONST)) return true;
  if (unknown) return ptx_settled(l, i, &i->base);
  out->at = ptx_value(l, &i->base) + i->offset;
  *seen = true;
  return reach(l, i, out);
}

static uint64_t element(const span *s, size_t k, size_t unit, bool *unknown) {
  uint64_t v = 0;
  *unknown = s->bytes == NULL;
  if (s->bytes == NULL) return 0;
  memcpy(&v, s->bytes + k * unit, unit);
  for (size_t n = 0; s->state != NULL && n < unit; n++) *unknown |= s->state[k * unit + n] == PTX_UNKNOWN;
  return v;
}

bool ptx_peek(lane *l, const ptx_inst *i, uint64_t address, unsigned bits, uint64_t *out, bool *unknown) {
  const ptx_inst read = {.code = PTX_LD, .type = {PTX_BITS, bits}, .lanes = 1, .line = i->line};
  span s = {.nbytes = bits / 8, .at = address};
  if (!reach(l, &read, &s)) return false;
  *out = element(&s, 0, s.nbytes, unknown);
  return true;
}

bool ptx_load(lane *l, const ptx_inst *i) {
  const size_t unit = i->type.bits / 8;
  bool seen, unknown;
  span s;
  if (!span_of(l, i, &s, &seen)) return false;
  for (unsigned k = 0; k < i->lanes; k++) {
    const uint64_t v = element(&s, k, unit, &unknown);
    if (i->to[k].kind == PTX_REGISTER) ptx_put(l, &i->to[k], v, i->type, unknown);
  }
  return true;
}

bool ptx_store(lane *l, const ptx_inst *i) {
  const size_t unit = i->type.bits / 8;
  bool seen, unknown[4] = {false};
  span s;
  for (unsigned k = 0; k < i->lanes; k++)
    if (!ptx_readable(l, i, &i->args[k], &unknown[k])) return false;
  if (!span_of(l, i, &s, &seen)) return false;
  for (unsigned k = 0; k < i->lanes && s.bytes != NULL; k++) {
    const uint64_t v = ptx_value(l, &i->args[k]);
    memcpy(s.bytes + k * unit, &v, unit);
    if (s.state != NULL) memset(s.state + k * unit, unknown[k] || l->perhaps ? PTX_UNKNOWN : PTX_KNOWN, unit);
  }
  return true;
}

bool ptx_atom(lane *l, const ptx_inst *i) {
  uint64_t args[2], old = 0;
  bool seen, unknown = true;
  span s;
  for (int k = 0; k < 2; k++) {
    if (i->args[k].kind != PTX_NOTHING && !ptx_readable(l, i, &i->args[k], &unknown)) return false;
    args[k] = ptx_value(l, &i->args[k]);
  }
  if (!span_of(l, i, &s, &seen)) return false;
  if (s.bytes != NULL) {
    old = element(&s, 0, s.nbytes, &unknown);
    const uint64_t left = ptx_atomic(i, old, args);
    memcpy(s.bytes, &left, s.nbytes);
  }
  if (i->to[0].kind == PTX_REGISTER) ptx_put(l, &i->to[0], old, i->type, unknown);
  return true;
}
