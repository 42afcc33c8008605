/* collide.c: whether threads of one launch race with each other.
 *
 * Two threads that touch the same byte, one of them writing, race unless both do it atomically, or they are of one
 * block and a barrier lies between. The accesses come sorted by address; what has ended before the next begins is
 * forgotten, and of those that differ in the thread alone two are enough. It must not know what the code is made of. */
#include <stdlib.h>

#include "kernel.h"

enum { WARP = 32 };
typedef enum sort { READS, WRITES, ATOMICS, SORTS } sort;

/* Those that the next access may overlap. */
typedef struct open_accesses {
  const sim_thread_access **at;
  size_t n, room;
} open_accesses;

/* A plain load of what others change atomically, whole: how loops around atomicCAS begin, the Guide's own included. */
static bool loads_for_atomic(const sim_thread_access *a, const sim_thread_access *b) {
  return a->base == b->base && a->nbytes == b->nbytes && ((!a->write && b->atomic) || (a->atomic && !b->write));
}

static bool ordered(const sim_launch *l, const sim_thread_access *a, const sim_thread_access *b) {
  if (a->thread == b->thread || loads_for_atomic(a, b)) return true;
  if (a->block != b->block) return l->fenced;
  return a->phase != b->phase || (a->index / WARP == b->index / WARP && a->sync != b->sync);
}

static void drop_ended(open_accesses *list, uintptr_t base) {
  size_t kept = 0;
  for (size_t i = 0; i < list->n; i++)
    if (list->at[i]->base + list->at[i]->nbytes > base) list->at[kept++] = list->at[i];
  list->n = kept;
}

static void add(open_accesses *list, const sim_thread_access *r) {
  if (list->n == list->room) drop_ended(list, r->base);
  if (list->n * 2 >= list->room) {
    list->room = list->room * 2 + 64;
    list->at = realloc(list->at, list->room * sizeof *list->at);
    if (list->at == NULL) abort();
  }
  list->at[list->n++] = r;
}

static const sim_thread_access *met(const sim_launch *l, open_accesses *list, const sim_thread_access *r) {
  drop_ended(list, r->base);
  for (size_t i = 0; i < list->n; i++)
    if (!ordered(l, list->at[i], r)) return list->at[i];
  return NULL;
}

static sort sort_of(const sim_thread_access *r) {
  return r->atomic ? ATOMICS : r->write ? WRITES : READS;
}

/* Whether the two before it say all that this one could. */
static bool says_nothing_new(const sim_thread_access *r, size_t i) {
  if (i < 2) return false;
  for (int k = 1; k <= 2; k++) {
    const sim_thread_access *a = &r[i - (size_t)k], *b = &r[i];
    if (a->base != b->base || a->nbytes != b->nbytes || sort_of(a) != sort_of(b)) return false;
    if (a->block != b->block || a->phase != b->phase || a->sync != b->sync) return false;
  }
  return r[i - 1].thread != r[i - 2].thread;
}

static const sim_thread_access *collision(const sim_launch *l, const sim_thread_access **other) {
  open_accesses lists[SORTS] = {{NULL, 0, 0}};
  const sim_thread_access *found = NULL;
  *other = NULL;
  for (size_t i = 0; i < l->ngathered && *other == NULL; i++) {
    const sim_thread_access *r = &l->gathered[i];
    const sort mine = sort_of(r);
    if (says_nothing_new(l->gathered, i)) continue;
    for (sort k = READS; k < SORTS && *other == NULL; k++)
      if (mine == READS ? k != READS : !(mine == ATOMICS && k == ATOMICS)) *other = met(l, &lists[k], r);
    found = r;
    add(&lists[mine], r);
  }
  for (sort k = READS; k < SORTS; k++) free(lists[k].at);
  return found;
}

void sim_launch_collide(const sim_launch *l, const char *name, const sim_place *made) {
  char here[200];
  const sim_place itself = {.call = "itself"}; /* not the pair of two launches made here */
  const sim_thread_access *other, *r = l->blurred ? NULL : collision(l, &other);
  if (r == NULL || other == NULL || !sim_found_pair(SIM_RACE, made, &itself)) return;
  sim_found(SIM_RACE,
            "two threads of one launch of %s touch the same bytes at %#zx, and one of them writes: %s\n"
            "  one    line %u, thread %u of block %u %s\n  other  line %u, thread %u of block %u %s",
            name, (size_t)r->base, sim_place_text(made, here, sizeof here), other->line, other->index, other->block,
            other->write ? "writes" : "reads", r->line, r->index, r->block, r->write ? "writes" : "reads");
}
