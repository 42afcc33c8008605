/* object.c: handles.
 *
 * Invariant: a handle is never given out twice, and lies in a range where nothing is mapped, so a program
 * that dereferences one faults. It must not know what the objects are. */
#include <stdio.h>
#include <stdlib.h>

#include "engine.h"

#define FIRST_HANDLE 0x510000000000ull
#define STEP 64

static sim_object **objects;
static size_t nobjects, room;
static sim_object *first, *last; /* those that live, in the order of making */

static const char *const names[] = {"",     "context",     "stream", "event",   "pool",    "graph", "executable graph",
                                    "node", "user object", "module", "library", "function"};

const char *sim_type_name(sim_type type) {
  return names[type];
}

void sim_object_add(sim_object *o, sim_type type) {
  if (nobjects == room) {
    room = room * 2 + 64;
    objects = realloc(objects, room * sizeof(sim_object *));
    if (objects == NULL) abort();
  }
  o->type = type;
  o->live = true;
  o->handle = FIRST_HANDLE + nobjects * STEP;
  o->made = sim_here();
  objects[nobjects++] = o;
  o->before = last;
  o->after = NULL;
  *(last == NULL ? &first : &last->after) = o;
  last = o;
}

/* Whoever goes through the list and stands on it goes on from it. */
void sim_object_end(sim_object *o) {
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
  return value >= FIRST_HANDLE && value % STEP == 0 && (value - FIRST_HANDLE) / STEP < nobjects;
}

void *sim_object_find(const void *handle, sim_type type) {
  if (!sim_object_was(handle)) return NULL;
  sim_object *o = objects[((uintptr_t)handle - FIRST_HANDLE) / STEP];
  if (o->type != type) return NULL;
  if (o->live) return o;
  report_gone(o);
  return NULL;
}

sim_object *sim_object_first(void) {
  return first;
}
