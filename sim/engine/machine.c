/* machine.c: the other processes of the simulated machine, and what one process tells another of order.
 *
 * A process has a number that no other has had. What it knows of an order crosses as moments: how far into the history
 * of a slot of some process it has seen. Invariant: a slot of another process has one slot here, for good, so that
 * clocks of several processes are compared as those of one are. It must not know what is ordered. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine.h"

enum { PID_SHIFT = 32 };

typedef struct other_slot {
  uint64_t process;
  uint32_t theirs, ours;
} other_slot;

static other_slot *others;
static size_t nothers, room;

uint64_t sim_process(void) {
  static uint64_t number;
  if (number == 0) number = (uint64_t)getpid() << PID_SHIFT | (sim_now() & UINT32_MAX);
  return number;
}

int sim_process_pid(uint64_t process) {
  return (int)(process >> PID_SHIFT);
}

bool sim_process_lives(uint64_t process) {
  return process == sim_process() || kill(sim_process_pid(process), 0) == 0 || errno != ESRCH;
}

/* A descriptor of another process's, or of this one's, once more; -1: there is none. */
int sim_process_file(uint64_t process, int fd) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", sim_process_pid(process), fd);
  return open(path, O_RDWR | O_CLOEXEC);
}

uint32_t sim_process_slot(uint64_t process, uint32_t slot) {
  static const sim_clock nothing;
  if (process == sim_process()) return slot;
  for (size_t i = 0; i < nothers; i++)
    if (others[i].process == process && others[i].theirs == slot) return others[i].ours;
  if (nothers == room) {
    room = room * 2 + 32;
    others = realloc(others, room * sizeof *others);
    if (others == NULL) abort();
  }
  others[nothers] = (other_slot){process, slot, sim_clock_slot(&nothing)};
  return others[nothers++].ours;
}

static sim_moment moment_of(uint32_t slot, uint32_t at) {
  for (size_t i = 0; i < nothers; i++)
    if (others[i].ours == slot) return (sim_moment){others[i].process, others[i].theirs, at};
  return (sim_moment){sim_process(), slot, at};
}

size_t sim_clock_tell(const sim_clock *c, sim_moment *out, size_t most) {
  size_t n = 0;
  for (uint32_t slot = 0; slot < c->size && n < most; slot++)
    if (c->at[slot] > 0) out[n++] = moment_of(slot, c->at[slot]);
  return n;
}

void sim_clock_hear(sim_clock *c, const sim_moment *told, size_t n) {
  for (size_t i = 0; i < n; i++) sim_clock_see(c, sim_process_slot(told[i].process, told[i].slot), told[i].time);
}

/* A lock in memory of several processes: if one of them ends with it, the next one has it. */
void sim_shared_lock_init(pthread_mutex_t *m) {
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(m, &kind);
  pthread_mutexattr_destroy(&kind);
}

void sim_shared_lock(pthread_mutex_t *m) {
  if (pthread_mutex_lock(m) == EOWNERDEAD) pthread_mutex_consistent(m);
}

void sim_shared_unlock(pthread_mutex_t *m) {
  pthread_mutex_unlock(m);
}

/* Texts of others', which the same finding must have at the same address. */
const char *sim_kept_text(const char *text) {
  static char **kept;
  static size_t n, capacity;
  for (size_t i = 0; i < n; i++)
    if (strcmp(kept[i], text) == 0) return kept[i];
  if (n == capacity) {
    capacity = capacity * 2 + 32;
    kept = realloc(kept, capacity * sizeof *kept);
    if (kept == NULL) abort();
  }
  kept[n] = strdup(text);
  if (kept[n] == NULL) abort();
  return kept[n++];
}
