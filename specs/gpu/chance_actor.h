/* chance_actor.h: who acts in programs at random (chance_spec.c), what fails there, and which failure is excused.
 * chance.h comes first. */
#ifndef GPU_CHANCE_ACTOR_H
#define GPU_CHANCE_ACTOR_H

#include <sched.h>

enum { NTHREADS = 3, NITEMS = 8, NGIVEN = 4, NGRAPHS = 2, NGPUS = 2, NOWN = 3 };
enum { STEPS = 150, TRIES = 100, MOST_CALLS = 24, MOST_RULES = 60, MOST_ALLOCATIONS = 3 };

typedef struct actor {
  uint64_t random;
  bool alone, failing, shares;
  item *items;
  graph graphs[NGRAPHS];
  DLManagedTensorVersioned *given[NGIVEN];
  mf_stream streams[NGPUS][NOWN];
  mf_error err;
  char wrong[600];
  int step;
} actor;

static _Atomic int64_t told; /* failures that somebody was told of, in one program */
/* How much of what the specs are for has happened, in all programs of one. */
static _Atomic int64_t steps, launched, failed, starved;
static _Atomic int rules;    /* that the simulator was given */

static int gpus(void) {
  return other_devices() < NGPUS ? other_devices() : NGPUS;
}

static uint64_t below(actor *a, uint64_t n) {
  return random_below(&a->random, n);
}

static mf_stream own_stream(actor *a, int g) {
  return a->streams[g][below(a, NOWN)];
}

static mf_stream any_stream(actor *a, int g) {
  const uint64_t i = below(a, NOWN + 2);
  return i < NOWN ? a->streams[g][i] : i == NOWN ? MF_STREAM_DEFAULT : MF_STREAM_PER_THREAD;
}

/* Failures */

enum { ASKED_FOR = 999 };

/* A call of the driver's, or an allocation of the thread's. */
static void let_one_fail(actor *a) {
  char rule[40];
  mf_fault_arm(-1, 0);
  if (!a->failing || below(a, 3) != 0) return;
  if (below(a, 3) == 0) {
    mf_fault_arm((int64_t)below(a, MOST_ALLOCATIONS), 0);
    return;
  }
  if (++rules > MOST_RULES) return;
  (void)snprintf(rule, sizeof rule, "*@%llu:%d:once", (unsigned long long)below(a, MOST_CALLS) + 1, ASKED_FOR);
  sim_ask_fail(rule);
}

/* A failure that was asked for, or a call that waits for the end of another thread's capture. */
static bool excused(const actor *a, int rc) {
  if (rc == MF_ECAPTURE) return !a->alone;
  if (!a->failing) return false;
  if (rc == MF_ENOMEM && mf_fault_hits() > 0) {
    mf_fault_arm(-1, 0);
    starved++;
    return true;
  }
  if (a->err.driver_code != ASKED_FOR) return false;
  told++;
  failed++;
  return true;
}

/* Says what is wrong, unless it is excused: then 1. */
static int outcome(actor *a, int rc, const char *what) {
  if (rc == MF_OK) return 0;
  if (excused(a, rc)) return 1;
  (void)snprintf(a->wrong, sizeof a->wrong, "step %d: %s: %s: %s", a->step, what, a->err.call, a->err.message);
  return -1;
}

static int never(actor *a, const char *what) {
  (void)snprintf(a->wrong, sizeof a->wrong, "step %d: never succeeds: %s: %s", a->step, what, a->err.message);
  return -1;
}

/* Tries until it succeeds. */
#define INSIST(a, result, call)                                                             \
  do {                                                                                      \
    (result) = 1;                                                                           \
    for (int try_ = 0; (result) == 1 && try_ < TRIES; try_++) {                             \
      (result) = outcome(a, call, #call);                                                   \
      if ((result) == 1) sched_yield();                                                     \
    }                                                                                       \
    if ((result) == 1) (result) = never(a, #call);                                          \
  } while (0)

#endif
