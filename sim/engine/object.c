/* object.c: handles.
 *
 * Drivers give the handle of what was destroyed last to the next object of its kind; so does this where handles are
 * used again (sim_reuses), and else never. Invariant: at most one living object has a handle, its id is its own for
 * good, and the handle lies in a range where nothing is mapped, so a program that dereferences one faults. It must not
 * know what the objects are. */
#include <stdio.h>
#include <stdlib.h>

#include "engine.h"

#define FIRST_HANDLE 0x510000000000ull
#define STEP 64

typedef struct slot {
  sim_object *object; /* that has the handle, or had it last */
  uint32_t below;     /* unused: the slot that was given back before, plus 1 */
  unsigned uses;
} slot;

static slot *slots;
static size_t nslots, room;
static uint32_t spare[SIM_FUNCTION + 1]; /* by type: the slot that was given back last, plus 1 */
static uint64_t ids;
static sim_object *first, *last; /* those that live, in the order of making */

static const char *const names[] = {"",     "context",     "stream", "event",   "pool",    "graph", "executable graph",
                                    "node", "user object", "module", "library", "graphics resource", "external memory",
                                    "link", "external semaphore", "array", "physical memory", "function"};

const char *sim_type_name(sim_type type) {
  return names[type];
}

bool sim_reuses(void) {
  if (sim_conf.reuse == SIM_BY_SEED) return sim_conf.seed % 2 != 0;
  return sim_conf.reuse == SIM_ALWAYS;
}

static size_t new_slot(void) {
  if (nslots == room) {
    room = room * 2 + 64;
    slots = realloc(slots, room * sizeof *slots);
    if (slots == NULL) abort();
  }
  slots[nslots] = (slot){NULL, 0, 0};
  return nslots++;
}

static size_t slot_of(const sim_object *o) {
  return (o->handle - FIRST_HANDLE) / STEP;
}

unsigned sim_object_uses(const sim_object *o) {
  return slots[slot_of(o)].uses;
}

void sim_object_add(sim_object *o, sim_type type) {
  const bool reused = sim_reuses() && spare[type] != 0;
  const size_t i = reused ? spare[type] - 1 : new_slot();
  if (reused) spare[type] = slots[i].below;
  o->type = type;
  o->live = true;
  o->handle = FIRST_HANDLE + i * STEP;
  o->id = ++ids;
  o->made = sim_here();
  o->former = slots[i].object;
  slots[i].object = o;
  slots[i].uses++;
  o->before = last;
  o->after = NULL;
  *(last == NULL ? &first : &last->after) = o;
  last = o;
}

/* Whoever goes through the list and stands on it goes on from it. The handle of a context stays its own: a reset that
 * the program did not expect shows as a finding then. */
void sim_object_end(sim_object *o) {
  const size_t i = slot_of(o);
  if (o->type != SIM_CONTEXT) {
    slots[i].below = spare[o->type];
    spare[o->type] = (uint32_t)i + 1;
  }
  o->live = false;
  o->gone = sim_here();
  *(o->before == NULL ? &first : &o->before->after) = o->after;
  *(o->after == NULL ? &last : &o->after->before) = o->before;
}

static void report_gone(const sim_object *o) {
  char here[200], gone[200];
  const sim_place now = sim_here();
  if (!sim_found_pair(SIM_MISUSE, &now, &o->gone)) return;
  sim_found(SIM_MISUSE, "use of a destroyed %s %#zx\n  used      %s\n  destroyed %s", names[o->type],
            (size_t)o->handle, sim_place_text(&now, here, sizeof here), sim_place_text(&o->gone, gone, sizeof gone));
}

bool sim_object_was(const void *handle) {
  const uintptr_t value = (uintptr_t)handle;
  return value >= FIRST_HANDLE && value % STEP == 0 && (value - FIRST_HANDLE) / STEP < nslots;
}

void *sim_object_find(const void *handle, sim_type type) {
  if (!sim_object_was(handle)) return NULL;
  sim_object *o = slots[((uintptr_t)handle - FIRST_HANDLE) / STEP].object;
  if (o->type != type) return NULL;
  if (o->live) return o;
  report_gone(o);
  return NULL;
}

sim_object *sim_object_first(void) {
  return first;
}
