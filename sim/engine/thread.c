/* thread.c: what orders host threads, where they count apart (SIM_THREADS=separate).
 *
 * A thread comes after another if it acquired an object that the other released. The program says so itself
 * (sim_released, sim_acquired), or threads/ does for the calls of POSIX when it is preloaded. Invariant: nothing else
 * orders two threads but what a stream carries from one to the other. It must not know what kind of object it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

typedef struct entry {
  const void *object;
  sim_clock clock; /* of all that released it */
} entry;

static entry *entries; /* by address, open addressing; none is ever taken out */
static size_t nentries, room; /* a power of two */

static entry *find(const void *object) {
  size_t i = ((uintptr_t)object >> 3) * 0x9e3779b97f4a7c15ull >> 20;
  while (entries[i & (room - 1)].object != NULL && entries[i & (room - 1)].object != object) i++;
  return &entries[i & (room - 1)];
}

static void make_room(void) {
  entry *old = entries;
  const size_t n = room;
  if (nentries * 2 < room) return;
  room = room == 0 ? 256 : room * 2;
  entries = calloc(room, sizeof *entries);
  if (entries == NULL) abort();
  for (size_t i = 0; i < n; i++)
    if (old[i].object != NULL) *find(old[i].object) = old[i];
  free(old);
}

static void release(const void *object) {
  make_room();
  entry *e = find(object);
  if (e->object == NULL) nentries++;
  e->object = object;
  sim_clock_join(&e->clock, sim_host_clock());
}

static void acquire(const void *object) {
  if (room == 0) return;
  const entry *e = find(object);
  if (e->object == NULL) return;
  sim_clock_join(sim_host_clock(), &e->clock);
  sim_trap_learned();
}

/* False for what the simulator does for itself. */
static bool tell(void (*what)(const void *), const void *object) {
  if (object == NULL || sim_is_locked() || sim_owns(object)) return false;
  sim_lock();
  const bool matters = sim_conf.separate_threads && sim_is_owner();
  if (matters) what(object);
  sim_unlock();
  return matters;
}

static bool released(const void *object) {
  return tell(release, object);
}

static bool acquired(const void *object) {
  return tell(acquire, object);
}

void sim_released(const void *object) {
  (void)released(object);
}

void sim_acquired(const void *object) {
  (void)acquired(object);
}

void sim_threads_listen(void) {
  void (*follow)(bool (*)(const void *), bool (*)(const void *)) = NULL;
  *(void **)(void *)&follow = dlsym(RTLD_DEFAULT, "sim_threads_follow");
  if (follow != NULL) follow(released, acquired);
}
