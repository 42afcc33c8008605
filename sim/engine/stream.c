/* stream.c: streams, and what orders them without being asked.
 *
 * Invariant: an operation is ordered after all that its stream has seen and after all that the calling host
 * thread has seen; work on the legacy stream also after all blocking streams of the context but those of threads
 * that have ended, and theirs after it. It must not know what an operation does. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "engine.h"

static const char *name_of(const sim_stream *s) {
  char *name = NULL;
  const int device = s->ctx->device->id;
  char which[32] = "";
  int n;
  if (sim_object_uses(&s->o) > 1) snprintf(which, sizeof which, ", handle's use %u", sim_object_uses(&s->o));
  if (s->kind == SIM_LEGACY)
    n = asprintf(&name, "the legacy stream of device %d", device);
  else if (s->kind == SIM_PER_THREAD)
    n = asprintf(&name, "the per-thread stream of thread %d on device %d", s->thread, device);
  else
    n = asprintf(&name, "stream %#zx (device %d, %sblocking%s)", (size_t)s->o.handle, device,
                 s->blocking ? "" : "non-", which);
  return n < 0 ? "a stream" : name;
}

sim_stream *sim_stream_new(sim_context *c, sim_stream_kind kind, bool blocking, int priority) {
  sim_stream *s = calloc(1, sizeof *s);
  if (s == NULL) abort();
  sim_object_add(&s->o, SIM_STREAM);
  s->o.hidden = kind != SIM_ORDINARY;
  s->ctx = c;
  s->kind = kind;
  s->blocking = blocking;
  s->priority = priority;
  s->thread = sim_self()->id;
  s->slot = sim_clock_slot(sim_host_clock());
  s->name = name_of(s);
  if (kind == SIM_LEGACY) return s;
  s->next = c->streams;
  c->streams = s;
  return s;
}

sim_stream *sim_stream_per_thread(sim_context *c) {
  for (sim_stream *s = c->streams; s != NULL; s = s->next)
    if (s->kind == SIM_PER_THREAD && s->thread == sim_self()->id) return s;
  return sim_stream_new(c, SIM_PER_THREAD, true, 0);
}

sim_status sim_stream_end(sim_stream *s) {
  char here[200];
  const sim_place now = sim_here();
  sim_capture_abandon(s);
  if (!sim_clock_covers(sim_host_clock(), s->slot, s->worked))
    sim_found(SIM_WARNING, "%s is destroyed with work pending: %s", s->name, sim_place_text(&now, here, sizeof here));
  sim_stream **link = &s->ctx->streams;
  while (*link != NULL && *link != s) link = &(*link)->next;
  if (*link != NULL) *link = s->next;
  sim_clock_join(&s->ctx->orphans, &s->clock);
  sim_clock_recycle(s->slot);
  sim_clock_free(&s->clock);
  sim_op_drop(s->last);
  s->last = NULL;
  sim_object_end(&s->o);
  return SIM_OK;
}

static void behind(sim_stream *s, sim_op *op, const sim_stream *other) {
  sim_op_needs(op, other->last);
  sim_clock_join(&s->clock, &other->clock);
}

/* The thread that has ended and left this stream of its own behind, or NULL. No document says what becomes of the
 * work on it, so nothing in the legacy stream speaks for that, as for the work of a stream that was destroyed. */
static const sim_thread *left_by(const sim_stream *s) {
  if (s->kind != SIM_PER_THREAD || sim_conf.legacy_covers) return NULL;
  const sim_thread *t = sim_threads();
  while (t->id != s->thread) t = t->next;
  return t->ended ? t : NULL;
}

/* What a thread has waited for before its end is done, whoever knows of the end. */
static void implicit_order(sim_stream *s, sim_op *op) {
  if (s->kind != SIM_LEGACY) {
    if (s->blocking) behind(s, op, s->ctx->legacy);
    return;
  }
  for (const sim_stream *b = s->ctx->streams; b != NULL; b = b->next) {
    const sim_thread *gone = left_by(b);
    if (gone != NULL) sim_clock_join(&s->clock, &gone->clock);
    else if (b->blocking) behind(s, op, b);
  }
}

static sim_op *enqueue(sim_stream *s, const sim_work *w, sim_op *dep, const sim_clock *clock) {
  sim_op *op = sim_op_new(w, s->name, s->ctx);
  sim_op_needs(op, s->last);
  sim_op_needs(op, dep);
  implicit_order(s, op);
  sim_clock_join(&s->clock, sim_host_clock());
  if (clock != NULL) sim_clock_join(&s->clock, clock);
  op->slot = s->slot;
  op->time = sim_clock_tick(&s->clock, s->slot);
  if (w->kind == SIM_COPY || w->kind == SIM_FILL || w->kind == SIM_HOST || w->kind == SIM_KERNEL) s->worked = op->time;
  sim_clock_copy(&op->clock, &s->clock);
  sim_op_queue(op);
  sim_op_drop(s->last);
  s->last = op;
  s->queries = 0;
  sim_op_stir();
  return op;
}

void sim_stream_learns(sim_stream *s, const sim_clock *clock) {
  sim_clock_join(&s->clock, clock);
}

void sim_stream_after(sim_stream *s, sim_op *op, const sim_clock *clock) {
  const sim_work empty = {.kind = SIM_EMPTY};
  enqueue(s, &empty, op, clock);
}

/* What gives back does so on a lost device too. */
sim_status sim_submit(sim_stream *s, const sim_work *w, sim_op **out) {
  if (out != NULL) *out = NULL;
  sim_status rc = w->kind == SIM_DEATH ? SIM_OK : sim_device_verdict(s->ctx->device);
  if (rc == SIM_OK) rc = sim_capture_implicit(s);
  if (rc != SIM_OK) return rc;
  if (s->capture != NULL) return sim_capture_node(s, w);
  sim_op *op = enqueue(s, w, NULL, NULL);
  if (out != NULL) *out = op;
  return SIM_OK;
}

void sim_host_after(const sim_op *op) {
  sim_trap_learned();
  sim_clock_join(sim_host_clock(), &op->clock);
}

/* Drivers promise that an action queued in the legacy stream comes behind all blocking streams, and they behind it.
 * To ask or to wait queues no action, so the legacy stream then speaks for itself alone; with SIM_LEGACY=kind a mark in
 * it gathers them. */
static sim_status gather(sim_stream *s) {
  const sim_work empty = {.kind = SIM_EMPTY};
  return s->kind == SIM_LEGACY && sim_conf.legacy_covers ? sim_submit(s, &empty, NULL) : SIM_OK;
}

static sim_status may_wait(sim_stream *s) {
  const sim_status lost = sim_device_verdict(s->ctx->device);
  if (lost != SIM_OK) return lost;
  if (s->capture != NULL) return sim_capture_forbid(s, SIM_CAP_UNSUPPORTED);
  const sim_status rc = sim_capture_implicit(s);
  return rc != SIM_OK ? rc : sim_capture_asking(SIM_ASKS_STREAM);
}

static void wait_for_last(const sim_stream *s) {
  sim_op *op = sim_op_keep(s->last);
  if (op == NULL) return;
  sim_op_run(op);
  sim_host_after(op);
  sim_op_drop(op);
  sim_pools_shrink(s->ctx->device);
}

sim_status sim_stream_wait_host(sim_stream *s) {
  sim_status rc = may_wait(s);
  if (rc == SIM_OK) rc = gather(s);
  if (rc != SIM_OK || s->last == NULL) return rc;
  wait_for_last(s);
  return sim_device_verdict(s->ctx->device);
}

/* Host functions may end streams while this waits, so it begins again after each wait. */
static const sim_stream *unseen_blocking(const sim_context *c) {
  for (const sim_stream *s = c->streams; s != NULL; s = s->next)
    if (s->blocking && s->last != NULL && left_by(s) == NULL &&
        !sim_clock_covers(sim_host_clock(), s->slot, s->last->time))
      return s;
  return NULL;
}

sim_status sim_stream_wait_blocking(sim_context *c) {
  const sim_status rc = sim_stream_wait_host(c->legacy);
  if (rc != SIM_OK) return rc;
  for (const sim_stream *s = unseen_blocking(c); s != NULL; s = unseen_blocking(c)) wait_for_last(s);
  return sim_device_verdict(c->device);
}

/* The first question finds the work unfinished, unless it had to run; later ones move it along. */
sim_status sim_stream_query(sim_stream *s) {
  sim_status rc = may_wait(s);
  if (rc == SIM_OK && s->queries == 0) rc = gather(s);
  if (rc != SIM_OK || s->last == NULL) return rc;
  if (s->queries++ > 0) sim_op_step(s->last);
  if (!s->last->done) return SIM_NOT_READY;
  sim_host_after(s->last);
  return sim_device_verdict(s->ctx->device);
}

sim_status sim_context_wait_host(sim_context *c) {
  const sim_status rc = sim_capture_wide(c);
  return rc != SIM_OK ? rc : sim_context_drain(c);
}

sim_status sim_context_drain(sim_context *c) {
  sim_op_run_context(c);
  sim_trap_learned();
  sim_clock_join(sim_host_clock(), &c->orphans);
  sim_clock_join(sim_host_clock(), &c->legacy->clock);
  for (const sim_stream *s = c->streams; s != NULL; s = s->next) sim_clock_join(sim_host_clock(), &s->clock);
  sim_pools_shrink(c->device);
  return sim_device_verdict(c->device);
}
