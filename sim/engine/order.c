/* order.c: who touched which bytes, and whether anything orders two who did.
 *
 * Each allocation remembers the accesses that something could still conflict with. Two accesses conflict if
 * they share a byte and one of them writes; the earlier must then have been seen, by vector clock, by the later.
 * What all host threads have seen is forgotten, since whatever comes is ordered behind it; anything else only where an
 * allocation has more than SIM_HISTORY of it, and then that is said.
 * Invariant: what is found depends only on the calls made and their order, never on when work happened to run.
 * It must not know how an order came about. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

enum { AT_FIRST = 256 }; /* accesses of one allocation, before it is looked what may be forgotten */

static const char *verb(const sim_access *a) {
  if (a->is_free) return "freed";
  if (a->is_unmap) return "unmapped";
  return a->write ? "written" : "read";
}

static bool is_host(const char *who) {
  return strncmp(who, "host", 4) == 0;
}

static void advise(const sim_access *a, const sim_access *b, char *out, size_t size) {
  if (is_host(b->who) && is_host(a->who))
    snprintf(out, size, "nothing orders these two threads");
  else if (is_host(b->who))
    snprintf(out, size, "the host must wait for %s after call #%llu and before call #%llu", a->who,
             (unsigned long long)a->place.number, (unsigned long long)b->place.number);
  else
    snprintf(out, size, "%s must wait for %s: an event recorded after call #%llu, waited for before call #%llu",
             b->who, a->who, (unsigned long long)a->place.number, (unsigned long long)b->place.number);
}

static void report(const sim_alloc *m, const sim_access *a, const sim_access *b) {
  char first[200], second[200], made[200], missing[300];
  const size_t nbytes = sim_region_end(&b->region) - b->region.base;
  if (!sim_found_pair(SIM_RACE, &a->place, &b->place)) return;
  advise(a, b, missing, sizeof missing);
  sim_found(SIM_RACE,
            "race on %zu byte%s at %#zx (%zu into an allocation of %zu)\n  first  %s by %s: %s\n  then   %s by %s: %s\n"
            "  made   %s\n  missing: %s",
            nbytes, nbytes == 1 ? "" : "s", (size_t)b->region.base,
            (size_t)(b->region.base - m->base), m->nbytes, verb(a), a->who,
            sim_place_text(&a->place, first, sizeof first), verb(b), b->who,
            sim_place_text(&b->place, second, sizeof second), sim_place_text(&m->made, made, sizeof made), missing);
}

static void report_stale(const sim_alloc *m, const sim_access *b) {
  char here[200], gone[200];
  if (!sim_found_pair(SIM_STALE, &m->gone, &b->place)) return;
  sim_found(SIM_STALE, "use of freed memory at %#zx (%zu into an allocation of %zu)\n  %s by %s: %s\n  freed  %s",
            (size_t)b->region.base, (size_t)(b->region.base - m->base), m->nbytes, verb(b), b->who,
            sim_place_text(&b->place, here, sizeof here), sim_place_text(&m->gone, gone, sizeof gone));
}

/* b covers all that a says: whoever conflicts with a and is not ordered after it conflicts with b too. */
static bool replaces(const sim_access *b, const sim_access *a, bool ordered) {
  if (!ordered || (a->write && !b->write)) return false;
  const bool plain = b->region.rows == 1 && b->region.depth == 1;
  if (plain) return b->region.base <= a->region.base && sim_region_end(&a->region) <= sim_region_end(&b->region);
  return memcmp(&a->region, &b->region, sizeof a->region) == 0;
}

static bool seen_by_all(const sim_access *a) {
  if (!sim_conf.separate_threads) return sim_clock_covers(sim_host_clock(), a->slot, a->time);
  for (const sim_thread *t = sim_threads(); t != NULL; t = t->next)
    if (!t->ended && !sim_clock_covers(&t->clock, a->slot, a->time)) return false;
  return true;
}

/* Keeps the free of the memory, which must be known to the last. */
static void drop_seen(sim_alloc *m) {
  size_t kept = 0;
  for (size_t i = 0; i < m->naccesses; i++)
    if (m->accesses[i].is_free || !seen_by_all(&m->accesses[i])) m->accesses[kept++] = m->accesses[i];
  m->naccesses = kept;
}

static void drop_half(sim_alloc *m) {
  char made[200];
  const size_t half = m->naccesses / 2;
  memmove(m->accesses, m->accesses + half, (m->naccesses - half) * sizeof *m->accesses);
  m->naccesses -= half;
  if (m->forgetful) return;
  m->forgetful = true;
  sim_found(SIM_WARNING, "more than %zu accesses to one allocation that the host has not waited for: the first of them"
            " are forgotten, and races with those are not found (SIM_HISTORY says how many are kept)\n  made   %s",
            2 * half, sim_place_text(&m->made, made, sizeof made));
  sim_say("the race checker forgets: more than %zu accesses to one allocation; SIM_HISTORY says how many are kept",
          2 * half);
}

static void remember(sim_alloc *m, const sim_access *b) {
  if (m->keep == 0) m->keep = AT_FIRST;
  if (m->naccesses >= m->keep) {
    drop_seen(m);
    if (m->naccesses >= sim_conf.history) drop_half(m);
    if (m->naccesses > m->keep / 2) m->keep = 2 * m->keep < sim_conf.history ? 2 * m->keep : sim_conf.history;
  }
  if (m->naccesses == m->capacity) {
    m->capacity = m->capacity * 2 + 4;
    m->accesses = realloc(m->accesses, m->capacity * sizeof *b);
    if (m->accesses == NULL) abort();
  }
  m->accesses[m->naccesses++] = *b;
}

/* What other processes say of the memory now takes the place of what they said before. */
static void hear_others(sim_alloc *m) {
  size_t kept = 0;
  sim_access *heard = malloc(sim_share_most() * sizeof *heard);
  if (heard == NULL) abort();
  for (size_t i = 0; i < m->naccesses; i++)
    if (!m->accesses[i].foreign) m->accesses[kept++] = m->accesses[i];
  m->naccesses = kept;
  const size_t n = sim_share_read(m, heard);
  for (size_t i = 0; i < n; i++) remember(m, &heard[i]);
  free(heard);
}

/* What was queued after call `last` is not compared with b, only remembered to be there. */
static void compare(sim_alloc *m, const sim_access *b, const sim_clock *seen, uint64_t last) {
  size_t kept = 0;
  bool freed_before = false;
  for (size_t i = 0; i < m->naccesses; i++) {
    const sim_access a = m->accesses[i];
    const bool ordered = sim_clock_covers(seen, a.slot, a.time);
    const bool both = (a.write || b->write) && sim_region_overlap(&a.region, &b->region);
    const bool conflict = both && (a.foreign || a.place.number <= last);
    if (a.is_free && ordered) freed_before = true;
    if (conflict && !ordered) report(m, &a, b);
    if (!replaces(b, &a, ordered) || a.is_free) m->accesses[kept++] = a;
  }
  m->naccesses = kept;
  if (freed_before) report_stale(m, b);
  remember(m, b);
}

typedef struct question {
  const sim_access *access;
  const sim_clock *seen;
  uint64_t last;
} question;

static void check_part(sim_alloc *m, const sim_region *part, void *arg) {
  const question *q = arg;
  sim_access b = *q->access;
  b.region = *part;
  const bool told = m->share != NULL && !(b.is_free && sim_share_is_others(m->share));
  if (told) hear_others(m);
  compare(m, &b, q->seen, q->last);
  if (told) sim_share_write(m, &b);
}

/* At reserved addresses, each part is an access to the memory that is mapped there. */
static void check_until(sim_alloc *m, const sim_access *b, const sim_clock *seen, uint64_t last) {
  question q = {b, seen, last};
  if (m->maps != NULL) sim_map_parts(m, &b->region, check_part, &q);
  else check_part(m, &b->region, &q);
}

/* It is this process alone that can no longer touch the bytes. */
void sim_check_unmapped(sim_alloc *m, const sim_region *r) {
  const sim_access b = {.region = *r, .write = true, .is_unmap = true, .who = "host", .place = sim_here()};
  for (size_t i = 0; i < m->naccesses; i++) {
    const sim_access *a = &m->accesses[i];
    if (a->foreign || sim_clock_covers(sim_host_clock(), a->slot, a->time)) continue;
    if (sim_region_overlap(&a->region, r)) report(m, a, &b);
  }
}

static void check(sim_alloc *m, const sim_access *b, const sim_clock *seen) {
  check_until(m, b, seen, UINT64_MAX);
}

void sim_check_op(sim_alloc *m, const sim_region *r, bool write, const sim_op *op) {
  if (m == NULL || sim_region_empty(r)) return;
  const sim_access b = {.region = *r, .write = write, .is_free = op->work.kind == SIM_DEATH, .slot = op->slot,
                        .time = op->time, .who = op->who, .place = op->place};
  check(m, &b, &op->clock);
  sim_trap_access(m, r, write, op);
}

/* Where threads count apart, nothing is known to come before the access of one that never called the driver. */
void sim_check_access(sim_alloc *m, const sim_region *r, bool write, const sim_accessor *who) {
  static const sim_clock nothing;
  sim_access b = {.region = *r, .write = write, .who = "host", .place = who->place};
  const sim_op *op = who->acting;
  if (op != NULL) {
    /* A host function runs when its turn comes: what was queued after it may be ordered behind it, and was compared
     * with all that was known then. What was queued before it is not behind it. */
    b.who = op->who;
    b.slot = op->slot;
    b.time = op->time;
    check_until(m, &b, &op->clock, op->place.number - 1);
    return;
  }
  if (sim_conf.separate_threads && who->thread == NULL) {
    check(m, &b, &nothing);
    return;
  }
  b.slot = sim_conf.separate_threads ? who->thread->slot : sim_host_slot();
  sim_clock *clock = sim_conf.separate_threads ? &who->thread->clock : sim_host_clock();
  b.time = sim_clock_tick(clock, b.slot);
  check(m, &b, clock);
}

void sim_check_host(sim_alloc *m, const sim_region *r, bool write, bool is_free) {
  if (m == NULL || sim_region_empty(r)) return;
  const uint32_t slot = sim_host_slot();
  sim_host_tick();
  sim_clock *clock = sim_host_clock();
  const sim_access b = {.region = *r, .write = write, .is_free = is_free, .slot = slot, .time = clock->at[slot],
                        .who = "host", .place = sim_here()};
  check(m, &b, clock);
}

sim_status sim_check_range(const sim_alloc *m, const sim_region *r, const char *what) {
  char here[200];
  const sim_place now = sim_here();
  if (m == NULL && !sim_ours(r->base)) return SIM_OK;
  if (m != NULL && sim_region_end(r) <= m->base + m->nbytes) return SIM_OK;
  sim_place_text(&now, here, sizeof here);
  if (m == NULL)
    sim_found(SIM_BOUNDS, "the %s address %#zx belongs to no allocation: %s", what, (size_t)r->base, here);
  else
    sim_found(SIM_BOUNDS, "the %s at %#zx ends %zu bytes behind its allocation of %zu bytes: %s", what,
              (size_t)r->base, (size_t)(sim_region_end(r) - m->base - m->nbytes), m->nbytes, here);
  return SIM_INVALID;
}

void sim_host_access(const void *p, size_t nbytes, int write) {
  sim_lock();
  const sim_region r = sim_flat((uintptr_t)p, nbytes);
  sim_alloc *m = sim_alloc_find(r.base);
  if (sim_check_range(m, &r, "host's") == SIM_OK) sim_check_host(m, &r, write != 0, false);
  sim_unlock();
}
