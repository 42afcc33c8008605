/* chance_actor.h: who acts in programs at random (chance_spec.c), what fails there, which failure is excused, and
 * whether a tensor holds what it must.
 * chance.h comes first. */
#ifndef GPU_CHANCE_ACTOR_H
#define GPU_CHANCE_ACTOR_H

#include <sched.h>

enum { NTHREADS = 3, NITEMS = 8, NGIVEN = 4, NGRAPHS = 2, NGPUS = 2, NOWN = 3, NGUESTS = 8, NVISITORS = 6 };
enum { STEPS = 150, TRIES = 100, MOST_CALLS = 24, MOST_RULES = 60, MOST_ALLOCATIONS = 3 };

/* Memory of another library's, which uses it on a stream of its own as soon as it has it back. */
typedef struct guest {
  DLManagedTensorVersioned managed; /* first */
  int64_t shape[2];
  int gpu;
  int64_t stream;
  bool lent;
  _Atomic int returned; /* how often its deleter was called */
} guest;

typedef struct actor {
  uint64_t random;
  bool alone, failing, shares;
  item *items;
  graph graphs[NGRAPHS];
  DLManagedTensorVersioned *given[NGIVEN];
  mf_stream streams[NGPUS][NOWN];
  guest guests[NGUESTS];
  int64_t visitors[NVISITORS]; /* streams of gpu 0; 0: gone */
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

/* Values */

static int view(actor *a, const item *x, const window *w, const int64_t *shape, mf_tensor **out) {
  mf_index at[2];
  for (int i = 0; i < 2; i++) {
    const int64_t stop = w->first[i] + shape[i] * w->step[i];
    at[i] = (mf_index){.kind = MF_INDEX_SLICE, .start = w->first[i], .stop = stop < 0 ? MF_INDEX_NONE : stop,
                       .step = w->step[i]};
  }
  int rc;
  INSIST(a, rc, mf_tensor_index(x->t, at, 2, out, &a->err));
  return rc;
}

static int check_item(actor *a, const item *x) {
  const mf_request on_host = {.device = {kDLCPU, 0}, .copy = MF_COPY_ALWAYS};
  mf_tensor *host;
  int rc;
  INSIST(a, rc, mf_tensor_to(x->t, &on_host, &host, &a->err));
  if (rc != 0) return -1;
  for (int64_t i = 0; rc == 0 && i < CELLS; i++) {
    if (value_of(host, i) == x->values[i]) continue;
    (void)snprintf(a->wrong, sizeof a->wrong, "step %d: cell %d of a tensor on %d:%d is %d, not %d", a->step, (int)i,
                   (int)mf_tensor_dltensor(x->t)->device.device_type, gpu_of(x->t), value_of(host, i), x->values[i]);
    rc = -1;
  }
  mf_tensor_release(host);
  return rc;
}

/* What a failed call has written, nobody knows. */
static int fill_whole(actor *a, item *x) {
  const mf_scalar v = {.kind = MF_KIND_UINT, .u = below(a, 200)};
  int rc;
  INSIST(a, rc, mf_tensor_fill(x->t, &v, &a->err));
  for (int i = 0; i < CELLS; i++) x->values[i] = (int32_t)v.u;
  return rc;
}

static int drop(actor *a, item *x) {
  const int rc = below(a, 2) == 0 ? check_item(a, x) : 0;
  mf_tensor_release(x->t);
  x->t = NULL;
  return rc;
}

static DLDevice any_device(actor *a) {
  const DLDevice all[] = {gpu(0), gpu(0), gpu(other_devices() > 1), pinned(), {kDLCPU, 0}, managed()};
  return all[below(a, other_managed_type() == 0 ? 5 : 6)];
}

#endif
