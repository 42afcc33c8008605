/* event.c: events.
 *
 * Invariant: a wait means the last record before the wait, whatever happens to the event afterwards. It must
 * not know about memory. */
#include <stdlib.h>
#include <unistd.h>

#include "engine.h"

sim_event *sim_event_new(sim_context *c, unsigned flags, bool timing) {
  sim_event *e = calloc(1, sizeof *e);
  if (e == NULL) abort();
  sim_object_add(&e->o, SIM_EVENT);
  e->ctx = c;
  e->flags = flags;
  e->timing = timing;
  return e;
}

static void forget(sim_event *e) {
  sim_op_drop(e->op);
  free(e->front);
  e->op = NULL;
  e->in = NULL;
  e->front = NULL;
  e->nfront = 0;
  e->capture = NULL;
  e->queries = 0;
}

void sim_event_end(sim_event *e) {
  forget(e);
  if (e->shared != NULL) close(e->fd);
  sim_semaphore_drop(e->shared);
  sim_clock_free(&e->clock);
  sim_object_end(&e->o);
}

static sim_status wrong_context(const sim_event *e, const sim_stream *s) {
  char here[200], made[200];
  const sim_place now = sim_here();
  sim_found(SIM_MISUSE,
            "an event of device %d is recorded in %s, which is in another context\n  here   %s\n  made   %s",
            e->ctx->device->id, s->name, sim_place_text(&now, here, sizeof here),
            sim_place_text(&e->o.made, made, sizeof made));
  return SIM_BAD_HANDLE;
}

sim_status sim_event_record(sim_event *e, sim_stream *s) {
  const sim_work empty = {.kind = SIM_EMPTY};
  sim_op *op = NULL;
  if (e->ctx != s->ctx) return wrong_context(e, s);
  if (s->capture != NULL) {
    forget(e);
    return sim_capture_record(e, s);
  }
  const uint64_t number = e->shared != NULL ? sim_semaphore_issue(e->shared) : 0;
  const sim_work signal = {.kind = SIM_SIGNAL, .semaphore = e->shared, .reach = number};
  const sim_status rc = sim_submit(s, e->shared != NULL ? &signal : &empty, &op);
  if (rc != SIM_OK) return rc;
  if (e->shared != NULL) sim_semaphore_tell(e->shared, number, &op->clock);
  forget(e);
  e->op = sim_op_keep(op);
  e->in = s;
  sim_clock_copy(&e->clock, &op->clock);
  return SIM_OK;
}

/* Behind the last record of whichever process. */
static sim_status wait_shared(sim_stream *s, sim_event *e) {
  sim_clock told = {0};
  const uint64_t number = sim_semaphore_told(e->shared, &told);
  const sim_work w = {.kind = SIM_WAIT, .semaphore = e->shared, .reach = number};
  sim_stream_learns(s, &told);
  sim_clock_free(&told);
  return number == 0 ? SIM_OK : sim_submit(s, &w, NULL);
}

sim_status sim_event_wait(sim_stream *s, sim_event *e) {
  sim_status rc = sim_device_verdict(s->ctx->device);
  if (rc == SIM_OK) rc = sim_capture_implicit(s);
  if (rc != SIM_OK) return rc;
  if (s->capture != NULL || e->capture != NULL) return sim_capture_wait(s, e);
  if (e->shared != NULL) return wait_shared(s, e);
  if (e->op != NULL) sim_stream_after(s, e->op, &e->clock);
  return SIM_OK;
}

static sim_status may_ask(const sim_event *e) {
  const sim_status lost = sim_device_verdict(e->ctx->device);
  if (lost != SIM_OK) return lost;
  const bool taken = sim_driver.record_joins_capture && e->in != NULL && e->in->capture != NULL;
  if (taken) {
    sim_capture_forbid(e->in, SIM_CAP_EVENT);
    return SIM_CAP_EVENT;
  }
  if (e->capture == NULL) return sim_capture_asking(SIM_ASKS_EVENT);
  if (e->capture->active) sim_capture_forbid(e->capture->origin, SIM_CAP_EVENT);
  return SIM_CAP_EVENT;
}

/* The host has seen all that a record comes after. */
static void host_after_told(const sim_clock *told) {
  sim_trap_learned();
  sim_clock_join(sim_host_clock(), told);
}

static sim_status wait_host_shared(sim_event *e) {
  sim_clock told = {0};
  const uint64_t number = sim_semaphore_told(e->shared, &told);
  const sim_work w = {.kind = SIM_WAIT, .semaphore = e->shared, .reach = number};
  sim_op *op = sim_op_new(&w, "the host", e->ctx);
  op->slot = sim_host_slot();
  sim_clock_copy(&op->clock, sim_host_clock());
  sim_op_queue(op);
  sim_op_run(op);
  sim_op_drop(op);
  host_after_told(&told);
  sim_clock_free(&told);
  return sim_device_verdict(e->ctx->device);
}

sim_status sim_event_wait_host(sim_event *e) {
  const sim_status rc = may_ask(e);
  if (rc == SIM_OK && e->shared != NULL) return wait_host_shared(e);
  if (rc != SIM_OK || e->op == NULL) return rc;
  sim_op *op = sim_op_keep(e->op);
  sim_op_run(op);
  sim_host_after(op);
  sim_op_drop(op);
  sim_pools_shrink(e->ctx->device);
  return sim_device_verdict(e->ctx->device);
}

static sim_status query_shared(sim_event *e) {
  sim_clock told = {0};
  if (e->op != NULL && e->queries++ > 0) sim_op_step(e->op);
  const bool done = sim_semaphore_reached(e->shared, sim_semaphore_told(e->shared, &told));
  if (done) host_after_told(&told);
  sim_clock_free(&told);
  return done ? sim_device_verdict(e->ctx->device) : SIM_NOT_READY;
}

sim_status sim_event_query(sim_event *e) {
  const sim_status rc = may_ask(e);
  if (rc == SIM_OK && e->shared != NULL) return query_shared(e);
  if (rc != SIM_OK || e->op == NULL) return rc;
  if (e->queries++ > 0) sim_op_step(e->op);
  if (!e->op->done) return SIM_NOT_READY;
  sim_host_after(e->op);
  return sim_device_verdict(e->ctx->device);
}

sim_status sim_event_elapsed(const sim_event *a, const sim_event *b, float *ms) {
  if (!a->timing || !b->timing || a->op == NULL || b->op == NULL) return SIM_BAD_HANDLE;
  if (!a->op->done || !b->op->done) return SIM_NOT_READY;
  *ms = (float)((double)((int64_t)b->op->stamp - (int64_t)a->op->stamp) / 1e6);
  return SIM_OK;
}
