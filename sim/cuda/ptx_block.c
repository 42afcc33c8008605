/* ptx_block.c: the threads of a block, their frames, and how they meet.
 *
 * Each thread runs until it ends or waits; those of a warp that wait for each other exchange what they hold, and when
 * all of the block are at a barrier, they pass it. Invariant: a thread that waits is passed on only by those it waits
 * for; what can pass nobody on is a finding. It must not know instructions that wait for nobody. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_lane.h"

static void reserve(unsigned char **bytes, unsigned char **state, size_t *room, size_t n) {
  if (n <= *room && *bytes != NULL) return;
  *room = n * 2 + 64;
  *bytes = realloc(*bytes, *room);
  *state = realloc(*state, *room);
  if (*bytes == NULL || *state == NULL) abort();
}

/* The frame at l->depth becomes the one that runs, from its first instruction on. */
static void open_frame(lane *l, const ptx_entry *e, const ptx_call *call) {
  ptx_frame *f = &l->frames[l->depth];
  const ptx_frame *below = l->depth > 0 ? f - 1 : NULL;
  *f = (ptx_frame){.e = e, .call = call};
  if (below != NULL) {
    f->regs = below->regs + below->e->nregs;
    f->bytes = below->bytes + (below->e->frame + 15) / 16 * 16;
    f->local = l->local_used;
  }
  const size_t regs = f->regs + e->nregs + 1;
  if (regs > l->regs_room) {
    l->regs_room = regs * 2;
    l->all_regs = realloc(l->all_regs, l->regs_room * sizeof *l->all_regs);
    l->all_state = realloc(l->all_state, l->regs_room);
    if (l->all_regs == NULL || l->all_state == NULL) abort();
  }
  l->local_used = (f->local + e->local + 15) / 16 * 16;
  reserve(&l->bytes, &l->bytes_state, &l->bytes_room, f->bytes + e->frame);
  reserve(&l->local, &l->local_state, &l->local_room, l->local_used);
  memset(l->local + f->local, 0xCB, l->local_used - f->local);
  memset(l->local_state + f->local, PTX_KNOWN, l->local_used - f->local);
  memset(l->bytes + f->bytes, 0, e->frame);
  memset(l->bytes_state + f->bytes, PTX_KNOWN, e->frame);
  l->e = e;
  l->regs = l->all_regs + f->regs;
  l->state = l->all_state + f->regs;
  if (l->b->tracks) memset(l->state, PTX_UNSET, e->nregs);
  l->next = 0;
}

void ptx_lane_begin(lane *l, const uint64_t place[3], uint32_t index) {
  const ptx_block *b = l->b;
  const ptx_grid *g = b->grid;
  l->depth = 0;
  l->sync = 0;
  l->until = 0;
  l->local_used = 0;
  l->status = PTX_RUNNING;
  l->index = index;
  l->number = b->number * g->threads[0] * g->threads[1] * g->threads[2] + index;
  for (int k = 0; k < 3; k++) {
    l->special[k] = place[k];
    l->special[3 + k] = g->threads[k];
    l->special[6 + k] = b->place[k];
    l->special[9 + k] = g->blocks[k];
  }
  const uint32_t bit = 1u << index % PTX_WARP_SIZE;
  const uint32_t masks[] = {bit, bit - 1, bit - 1 + bit, ~(bit - 1 + bit), ~(bit - 1)};
  l->special[PTX_LANE] = index % PTX_WARP_SIZE;
  l->special[PTX_WARP_ID] = index / PTX_WARP_SIZE;
  for (int k = 0; k < 5; k++) l->special[PTX_LANE_MASKS + k] = masks[k];
  l->special[PTX_SM] = 0;
  l->special[PTX_DYNAMIC_SHARED] = g->dynamic;
  l->special[PTX_TOTAL_SHARED] = b->nshared;
  open_frame(l, g->entry, NULL);
  memcpy(l->bytes, g->params, g->entry->nbytes);
}

void ptx_lane_free(lane *l) {
  free(l->all_regs);
  free(l->all_state);
  free(l->bytes);
  free(l->bytes_state);
  free(l->local);
  free(l->local_state);
}

/* Copies a parameter between two frames of the thread. */
static void hand(lane *l, size_t to, size_t from, size_t n) {
  memmove(l->bytes + to, l->bytes + from, n);
  memmove(l->bytes_state + to, l->bytes_state + from, n);
}

/* Whether a function may be called as a prototype says. */
static bool agrees(const ptx_entry *e, const ptx_prototype *p) {
  if (!e->is_function || !e->has_body || e->nresults != p->results) return false;
  if (e->nparams != p->results + p->arguments) return false;
  for (size_t k = 0; k < e->nparams; k++)
    if (e->params[k].nbytes != p->nbytes[k]) return false;
  return true;
}

/* The function that a call's pointer points to, or NULL with a finding. */
static const ptx_entry *pointed_to(lane *l, const ptx_inst *i, const ptx_call *c) {
  const ptx_program *p = l->b->grid->program;
  if (!ptx_settled(l, i, &i->base)) return NULL;
  const uint64_t index = ptx_value(l, &i->base) ^ PTX_CODE_WINDOW;
  char text[160];
  if (index >= p->nentries) {
    ptx_wrong(l, i, PTX_ILLEGAL, SIM_BOUNDS, "it calls through a pointer that points to no function");
    return NULL;
  }
  const ptx_entry *e = &p->entries[index];
  if (agrees(e, &l->e->prototypes[c->prototype])) return e;
  snprintf(text, sizeof text, "it calls %.80s through a pointer as another kind of function", e->name);
  ptx_wrong(l, i, PTX_ILLEGAL, SIM_MISUSE, text);
  return NULL;
}

bool ptx_enter(lane *l, const ptx_inst *i) {
  const ptx_call *c = &l->e->calls[i->target];
  const bool by_name = c->name != NULL;
  const ptx_entry *e = by_name ? &l->b->grid->program->entries[c->callee] : pointed_to(l, i, c);
  ptx_frame *mine = &l->frames[l->depth];
  if (e == NULL) return false;
  if (l->depth + 1 == PTX_MOST_DEPTH)
    return ptx_wrong(l, i, PTX_ENDLESS, SIM_MISUSE, "functions call each other more than 32 deep");
  mine->next = l->next;
  l->depth++;
  open_frame(l, e, c);
  for (size_t k = c->results; k < e->nparams; k++)
    hand(l, l->frames[l->depth].bytes + e->params[k].offset, l->frames[l->depth - 1].bytes + c->places[k],
         e->params[k].nbytes);
  return true;
}

void ptx_leave(lane *l) {
  const ptx_frame *f = &l->frames[l->depth];
  if (f->call == NULL) {
    l->status = PTX_ENDED;
    return;
  }
  const ptx_frame *below = f - 1;
  for (size_t k = 0; k < f->call->results; k++)
    hand(l, below->bytes + f->call->places[k], f->bytes + f->e->params[k].offset, f->e->params[k].nbytes);
  l->local_used = f->local;
  l->depth--;
  l->e = below->e;
  l->regs = l->all_regs + below->regs;
  l->state = l->all_state + below->regs;
  l->next = below->next;
}

static bool one_by_one(ptx_block *b, lane *l) {
  const unsigned *n = b->grid->threads;
  uint64_t place[3];
  uint32_t index = 0;
  for (place[2] = 0; place[2] < n[2]; place[2]++)
    for (place[1] = 0; place[1] < n[1]; place[1]++)
      for (place[0] = 0; place[0] < n[0]; place[0]++) {
        ptx_lane_begin(l, place, index++);
        if (!ptx_go_on(l)) return false;
      }
  return true;
}

static uint32_t first_in(const lane *lanes, uint32_t n, ptx_status status) {
  uint32_t k = 0;
  while (k < n && lanes[k].status != status) k++;
  return k;
}

/* Whether all threads that the mask names wait at this instruction: then they meet. *moved says that some did. */
static bool try_warp(lane *warp, uint32_t n, bool *moved) {
  for (uint32_t k = 0; k < n; k++) {
    lane *l = &warp[k];
    if (l->status != PTX_IN_WARP) continue;
    const ptx_operand *o = &l->at->args[l->at->code == PTX_SHFL ? 3 : l->at->code == PTX_VOTE ? 1 : 0];
    const uint32_t mask = (uint32_t)ptx_value(l, o);
    bool unknown = false;
    if (!ptx_readable(l, l->at, o, &unknown)) return false;
    if (unknown) return ptx_settled(l, l->at, o);
    if ((mask >> k & 1) == 0)
      return ptx_wrong(l, l->at, PTX_STUCK, SIM_MISUSE, "its mask leaves the thread itself out");
    bool all = true;
    for (uint32_t other = 0; other < n && all; other++)
      all = (mask >> other & 1) == 0 || (warp[other].status == PTX_IN_WARP && warp[other].at == l->at);
    if (!all) continue;
    if (!ptx_warp_meet(warp, n, l)) return false;
    *moved = true;
  }
  return true;
}

static bool stuck(lane *lanes, uint32_t n) {
  char text[200];
  const uint32_t waits = first_in(lanes, n, PTX_IN_WARP);
  lane *l = &lanes[waits < n ? waits : first_in(lanes, n, PTX_AT_BARRIER)];
  const uint32_t other = first_in(lanes, n, waits < n ? PTX_AT_BARRIER : PTX_ENDED);
  const uint64_t *s = lanes[other < n ? other : 0].special;
  const char *what = waits < n ? "others of its warp" : "all threads of its block at a barrier";
  if (other < n && lanes[other].status == PTX_AT_BARRIER)
    snprintf(text, sizeof text, "it waits for %s, and thread (%u, %u, %u) waits at the barrier of line %u", what,
             (unsigned)s[0], (unsigned)s[1], (unsigned)s[2], lanes[other].at->line);
  else
    snprintf(text, sizeof text, "it waits for %s, and thread (%u, %u, %u) is not going to come there", what,
             (unsigned)s[0], (unsigned)s[1], (unsigned)s[2]);
  return ptx_wrong(l, l->at, PTX_STUCK, SIM_MISUSE, text);
}

/* Threads of a warp pass a barrier at the same instruction, all threads the same barrier. */
static bool diverges(lane *lanes, uint32_t n) {
  for (uint32_t k = 1; k < n; k++) {
    lane *l = &lanes[k], *first = &lanes[k - k % PTX_WARP_SIZE];
    char text[160];
    const bool same = ptx_value(l, &l->at->args[0]) == ptx_value(&lanes[0], &lanes[0].at->args[0]);
    if (same && l->at == first->at) continue;
    snprintf(text, sizeof text, "threads of one block are at different barriers: thread (%u, %u, %u) is at line %u",
             (unsigned)first->special[0], (unsigned)first->special[1], (unsigned)first->special[2], first->at->line);
    return !ptx_wrong(l, l->at, PTX_STUCK, SIM_MISUSE, text);
  }
  return false;
}

static bool meet(ptx_block *b, lane *lanes, uint32_t n, bool *ended) {
  bool moved = false;
  for (uint32_t k = 0; k < n; k += PTX_WARP_SIZE)
    if (!try_warp(&lanes[k], n - k < PTX_WARP_SIZE ? n - k : PTX_WARP_SIZE, &moved)) return false;
  if (moved) return true;
  uint32_t at_barrier = 0, over = 0;
  for (uint32_t k = 0; k < n; k++) {
    at_barrier += lanes[k].status == PTX_AT_BARRIER;
    over += lanes[k].status == PTX_ENDED;
  }
  *ended = over == n;
  if (over == n) return true;
  if (at_barrier != n) return stuck(lanes, n);
  if (diverges(lanes, n)) return false;
  b->phase++;
  for (uint32_t k = 0; k < n; k++) lanes[k].status = PTX_RUNNING;
  return true;
}

static bool together(ptx_block *b, lane *lanes) {
  const unsigned *n = b->grid->threads;
  const uint32_t count = n[0] * n[1] * n[2];
  bool ended = false;
  for (uint32_t k = 0; k < count; k++)
    ptx_lane_begin(&lanes[k], (const uint64_t[]){k % n[0], k / n[0] % n[1], k / n[0] / n[1]}, k);
  while (!ended) {
    for (uint32_t k = 0; k < count; k++)
      if (lanes[k].status == PTX_RUNNING && !ptx_go_on(&lanes[k])) return false;
    if (!meet(b, lanes, count, &ended)) return false;
  }
  return true;
}

bool ptx_block_run(ptx_block *b, lane *lanes) {
  b->phase++; /* so that what the last block left in b->cells is older */
  memset(b->shared, 0xCB, b->nshared);
  return b->waits ? together(b, lanes) : one_by_one(b, lanes);
}
