/* work.c: queued operations, and the order they run in.
 *
 * Operations form a graph; one may run when all it depends on are done. With seed 0 nothing runs before it
 * must, and then only what it needs; with another seed, what may run is drawn from all that is ready. Invariant:
 * an operation runs once, after all it depends on. It must not know where the dependencies came from. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine.h"
#include "kernel.h"

static sim_op *needed(sim_op *op);

static sim_op *first, *last;
static size_t npending;
static uint64_t now_ns;
static bool helper_started;

uint64_t sim_random(void) {
  uint64_t z = sim_conf.random += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

sim_op *sim_op_new(const sim_work *w, const char *who, sim_context *ctx) {
  sim_op *op = calloc(1, sizeof *op);
  if (op == NULL) abort();
  op->refs = 1;
  op->work = *w;
  op->who = who;
  op->ctx = ctx;
  op->place = sim_here();
  op->late = sim_fault_late();
  if (op->late == 0 && w->launch != NULL) op->late = w->launch->broken;
  sim_launch_pin(sim_launch_keep(w->launch), true);
  if (w->to != NULL) w->to->pins++;
  if (w->from != NULL) w->from->pins++;
  sim_semaphore_keep(w->semaphore);
  return op;
}

sim_op *sim_op_keep(sim_op *op) {
  if (op != NULL) op->refs++;
  return op;
}

void sim_op_drop(sim_op *op) {
  if (op == NULL || --op->refs > 0) return;
  for (size_t i = 0; i < op->ndeps; i++) sim_op_drop(op->deps[i]);
  sim_clock_free(&op->clock);
  free(op->deps);
  free(op->work.staged);
  sim_launch_drop(op->work.launch);
  sim_semaphore_drop(op->work.semaphore);
  free(op);
}

void sim_op_needs(sim_op *op, sim_op *dep) {
  if (dep == NULL || dep->done) return;
  op->deps = realloc(op->deps, (op->ndeps + 1) * sizeof(sim_op *));
  if (op->deps == NULL) abort();
  op->deps[op->ndeps++] = sim_op_keep(dep);
}

/* A program may wait for its host function without any driver call, and another process for an event, so something must
 * run it. */
static bool runs_by_itself(const sim_op *op) {
  return op->work.kind == SIM_HOST || sim_semaphore_wanted(op);
}

static void *helper(void *unused) {
  const struct timespec pause = {.tv_nsec = 20000000};
  for (;;) {
    nanosleep(&pause, NULL);
    sim_lock();
    sim_op *op = first;
    while (op != NULL && (!runs_by_itself(op) || op->running || sim_semaphore_blocks(needed(op)))) op = op->next;
    if (op != NULL) {
      sim_op_keep(op);
      sim_op_run(op);
      sim_op_drop(op);
    }
    sim_unlock();
  }
  return unused;
}

/* Signals are for the program's threads: one that they have blocked to wait for it (sigwait) would end the process in
 * this one. Faults are not blocked: host functions run here, and what they touch may be trapped. */
static void start_helper(void) {
  const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
  sigset_t most, before;
  pthread_t thread;
  sigfillset(&most);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&most, faults[i]);
  pthread_sigmask(SIG_BLOCK, &most, &before);
  helper_started = pthread_create(&thread, NULL, helper, NULL) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (helper_started) pthread_detach(thread);
}

void sim_op_queue(sim_op *op) {
  const sim_work *w = &op->work;
  sim_check_op(w->from, &w->src, false, op);
  sim_check_op(w->to, &w->dst, true, op);
  sim_launch_check(w->launch, op);
  if (w->kind == SIM_COPY || w->kind == SIM_FILL || w->kind == SIM_KERNEL) sim_trap_works(op);
  op->prev = last;
  if (last != NULL) last->next = op;
  if (last == NULL) first = op;
  last = op;
  npending++;
  if (runs_by_itself(op) && !helper_started) start_helper();
  sim_op_keep(op);
}

static void unlink_op(sim_op *op) {
  if (op->prev != NULL) op->prev->next = op->next;
  if (op->prev == NULL) first = op->next;
  if (op->next != NULL) op->next->prev = op->prev;
  if (op->next == NULL) last = op->prev;
  op->next = op->prev = NULL;
  npending--;
}

static void copy_rows(const sim_work *w) {
  const sim_region *d = &w->dst, *s = &w->src;
  for (size_t k = 0; k < d->depth; k++)
    for (size_t i = 0; i < d->rows; i++) {
      const char *from = w->staged != NULL ? (char *)w->staged + (k * d->rows + i) * d->width
                                           : sim_view(s->base + k * s->slice + i * s->pitch);
      memmove(sim_view(d->base + k * d->slice + i * d->pitch), from, d->width);
    }
}

/* Each copy doubles what is filled. */
static void fill_row(char *row, size_t width, const sim_work *w) {
  if (w->unit == 1) {
    memset(row, (int)(w->value & 0xff), width);
    return;
  }
  memcpy(row, &w->value, w->unit);
  for (size_t n = w->unit; n < width; n *= 2) memcpy(row + n, row, n < width - n ? n : width - n);
}

static void fill_rows(const sim_work *w) {
  const sim_region *d = &w->dst;
  for (size_t k = 0; k < d->depth; k++)
    for (size_t i = 0; i < d->rows; i++) fill_row(sim_view(d->base + k * d->slice + i * d->pitch), d->width, w);
}

void sim_call_out(void (*fn)(void *), void *arg) {
  sim_thread *self = sim_self();
  const bool was = self->in_callback;
  self->in_callback = true;
  sim_unlock();
  sim_from_program(fn, arg);
  sim_lock();
  self->in_callback = was;
}

/* Where a host function begins, the host has waited for what came before it in the stream (cuLaunchHostFunc), and may
 * go on by a word of the function's of which the driver hears nothing. Where threads count apart, that is so for the
 * function alone: what it releases carries it to whoever acquires that. */
static void call_host(sim_op *op) {
  const sim_op *before = sim_self()->acting;
  sim_clock known = {0};
  if (sim_conf.separate_threads) sim_clock_copy(&known, sim_host_clock());
  sim_host_after(op);
  op->running = true;
  sim_self()->acting = op;
  sim_call_out(op->work.fn, op->work.arg);
  sim_self()->acting = before;
  op->running = false;
  if (sim_conf.separate_threads) sim_clock_copy(sim_host_clock(), &known);
  sim_clock_free(&known);
  sim_changed();
}

static void perform(sim_op *op) {
  const sim_work *w = &op->work;
  if (sim_device_verdict(op->ctx->device) != SIM_OK) return;
  if (op->late != 0) {
    sim_stick(op->ctx->device, op->late);
    return;
  }
  if (w->kind == SIM_COPY) copy_rows(w);
  if (w->kind == SIM_FILL) fill_rows(w);
  if (w->kind == SIM_BIRTH) sim_poison(w->to, SIM_FRESH);
  if (w->kind == SIM_DEATH) sim_poison(w->to, SIM_GONE);
  if (w->kind == SIM_HOST) call_host(op);
  if (w->kind == SIM_KERNEL) sim_launch_run(w->launch);
  if (w->kind == SIM_WAIT) sim_semaphore_taken(w->semaphore);
  if (w->kind == SIM_SIGNAL) sim_semaphore_set(w->semaphore, w->reach);
}

static void finish(sim_op *op) {
  if (op->work.to != NULL) sim_alloc_unpin(op->work.to);
  if (op->work.from != NULL) sim_alloc_unpin(op->work.from);
  sim_launch_pin(op->work.launch, false);
  const sim_region *d = &op->work.dst;
  op->stamp = now_ns += op->work.kind == SIM_EMPTY ? 10 : 1000 + d->width * d->rows * d->depth / 10;
  op->done = true;
  if (op->work.kind == SIM_DEATH && op->work.to->pool != NULL) sim_pool_freed(op->work.to);
  for (size_t i = 0; i < op->ndeps; i++) sim_op_drop(op->deps[i]);
  op->ndeps = 0;
  unlink_op(op);
  sim_op_drop(op);
}

static sim_op *unmet(const sim_op *op) {
  for (size_t i = 0; i < op->ndeps; i++)
    if (!op->deps[i]->done) return op->deps[i];
  return NULL;
}

static void execute(sim_op *op) {
  sim_op_keep(op);
  perform(op);
  finish(op);
  sim_op_drop(op);
}

/* Of a wait that blocks, a queued signal that ends it is needed, too. */
static sim_op *before(const sim_op *op) {
  sim_op *dep = unmet(op);
  if (dep != NULL || !sim_semaphore_blocks(op)) return dep;
  return sim_op_signals(op->work.semaphore, op->work.reach);
}

/* One that op waits for, by whatever way, and that waits for none itself: ready, unless it waits for another API. */
static sim_op *needed(sim_op *op) {
  size_t steps = 0;
  for (sim_op *dep = before(op); dep != NULL; dep = before(op)) {
    const bool in_circle = steps++ > npending;
    if (in_circle && sim_semaphore_blocks(op) && unmet(op) == NULL) return op;
    op = dep;
  }
  return op;
}

static sim_op *pick(bool with_host) {
  size_t n = 0;
  sim_op *chosen = NULL;
  for (sim_op *op = first; op != NULL; op = op->next) {
    if (op->running || unmet(op) != NULL || (op->work.kind == SIM_HOST && !with_host)) continue;
    if (sim_semaphore_blocks(op)) continue;
    if (sim_random() % ++n == 0) chosen = op;
  }
  return chosen;
}

void sim_op_step(sim_op *op) {
  if (op->done) return;
  sim_op *next = needed(op);
  if (sim_conf.seed != 0 && sim_random() % 2 == 0) {
    sim_op *other = pick(true);
    if (other != NULL) next = other;
  }
  if (next->running || sim_semaphore_blocks(next)) return;
  execute(next);
}

void sim_op_run(sim_op *op) {
  while (!op->done) {
    sim_op *next = needed(op);
    if (next->running) sim_sleep_on_change();
    else if (sim_semaphore_blocks(next)) sim_semaphore_sleep(next);
    if (!op->done) sim_op_step(op);
  }
}

/* A third of the seeds leave everything to the waits, a third run about half of what is ready as it comes, a
 * third nearly all: a wait that is missing may show in only one of these. */
void sim_op_stir(void) {
  const uint64_t mood = sim_conf.seed % 3;
  if (sim_conf.seed == 0 || mood == 0) return;
  for (uint64_t n = sim_random() % (mood == 1 ? 2 : 6); n > 0; n--) {
    sim_op *op = pick(false);
    if (op != NULL) execute(op);
  }
}

static sim_op *pending_of(const sim_context *c) {
  size_t n = 0;
  sim_op *chosen = NULL;
  for (sim_op *op = first; op != NULL; op = op->next) {
    if (op->ctx != c) continue;
    if (sim_conf.seed == 0) return op;
    if (sim_random() % ++n == 0) chosen = op;
  }
  return chosen;
}

void sim_op_run_context(const sim_context *c) {
  for (sim_op *op = pending_of(c); op != NULL; op = pending_of(c)) {
    sim_op_keep(op);
    sim_op_run(op);
    sim_op_drop(op);
  }
}

sim_op *sim_op_signals(const sim_semaphore *m, uint64_t value) {
  sim_op *found = NULL;
  for (sim_op *op = first; op != NULL; op = op->next)
    if (op->work.kind == SIM_SIGNAL && op->work.semaphore == m && op->work.reach >= value &&
        (found == NULL || op->work.reach < found->work.reach))
      found = op;
  return found;
}

const sim_op *sim_op_uses(const sim_semaphore *m) {
  const sim_op *op = first;
  while (op != NULL && op->work.semaphore != m) op = op->next;
  return op;
}

size_t sim_pending(void) {
  return npending;
}
