/* clock.c: vector clocks.
 *
 * Each stream, each branch of a running graph and the host has a slot; entry i says how much of slot i's
 * history has been seen. Invariant: a slot's time never goes back, also when the slot gets a new user, who comes after
 * all that earlier users did. It must not know who uses a slot. */
#include <stdlib.h>
#include <string.h>

#include "engine.h"

static uint32_t slots;
static uint32_t *spare, nspare, spare_room;
static sim_clock used; /* how far each slot's history went under earlier users */

static void grow(sim_clock *c, uint32_t size) {
  if (c->size >= size) return;
  if (c->room < size) {
    c->room = size + size / 2;
    c->at = realloc(c->at, c->room * sizeof *c->at);
    if (c->at == NULL) abort();
  }
  memset(c->at + c->size, 0, (size - c->size) * sizeof *c->at);
  c->size = size;
}

uint32_t sim_clock_slot(const sim_clock *seen) {
  for (uint32_t i = nspare; i-- > 0;) {
    const uint32_t slot = spare[i];
    if (!sim_clock_covers(seen, slot, slot < used.size ? used.at[slot] : 0)) continue;
    spare[i] = spare[--nspare];
    return slot;
  }
  return slots++;
}

void sim_clock_recycle(uint32_t slot) {
  if (nspare == spare_room) {
    spare_room = spare_room * 2 + 8;
    spare = realloc(spare, spare_room * sizeof *spare);
    if (spare == NULL) abort();
  }
  spare[nspare++] = slot;
}

uint32_t sim_clock_tick(sim_clock *c, uint32_t slot) {
  grow(c, slot + 1);
  grow(&used, slot + 1);
  const uint32_t now = ++used.at[slot];
  c->at[slot] = now;
  return now;
}

void sim_clock_join(sim_clock *into, const sim_clock *from) {
  grow(into, from->size);
  for (uint32_t i = 0; i < from->size; i++)
    if (into->at[i] < from->at[i]) into->at[i] = from->at[i];
}

bool sim_clock_covers(const sim_clock *c, uint32_t slot, uint32_t time) {
  return time == 0 || (slot < c->size && c->at[slot] >= time);
}

void sim_clock_see(sim_clock *c, uint32_t slot, uint32_t time) {
  grow(c, slot + 1);
  if (c->at[slot] < time) c->at[slot] = time;
}

bool sim_clock_includes(const sim_clock *c, const sim_clock *other) {
  for (uint32_t i = 0; i < other->size; i++)
    if (!sim_clock_covers(c, i, other->at[i])) return false;
  return true;
}

void sim_clock_copy(sim_clock *to, const sim_clock *from) {
  if (to->size > 0) memset(to->at, 0, to->size * sizeof *to->at);
  sim_clock_join(to, from);
}

void sim_clock_free(sim_clock *c) {
  free(c->at);
  *c = (sim_clock){NULL, 0, 0};
}
