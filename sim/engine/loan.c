/* loan.c: memory that is a device's for a while: of a graphics API, which has it before and after.
 *
 * Such memory is an allocation of the simulator's with a copy of the bytes, so that what each side does without the
 * other shows. Invariant: the stream that takes it and the one that gives it back count as writing it whole, so that a
 * use on another stream that waits for neither is a race, and a use after it is stale. It must not know whose memory it
 * is. */
#include "engine.h"

/* Work that touches all of it and moves no bytes. */
static sim_status queue_mark(sim_stream *s, sim_work_kind kind, sim_alloc *a, sim_op **out) {
  const sim_work w = {.kind = kind, .to = a, .dst = sim_flat(a->base, a->nbytes)};
  return sim_submit(s, &w, out);
}

sim_status sim_loan_begin(sim_stream *s, size_t nbytes, sim_alloc **out) {
  sim_op *op;
  sim_status rc = sim_alloc_new(SIM_DEVICE, s->ctx->device->id, nbytes, NULL, out);
  if (rc != SIM_OK) return rc;
  (*out)->ctx = s->ctx;
  (*out)->kept = "is a graphics resource's, which unmapping ends";
  rc = queue_mark(s, SIM_EMPTY, *out, &op);
  if (rc != SIM_OK) sim_alloc_end(*out);
  return rc;
}

/* Runs as far as the operation without the host's having waited for it. */
static void run(sim_op *op) {
  sim_op_keep(op);
  sim_op_run(op);
  sim_op_drop(op);
}

sim_status sim_loan_settle(sim_stream *s, sim_alloc *a) {
  sim_op *op;
  const sim_status rc = queue_mark(s, SIM_EMPTY, a, &op);
  if (rc == SIM_OK) run(op);
  return rc;
}

void sim_loan_end(sim_stream *s, sim_alloc *a) {
  sim_op *op;
  if (queue_mark(s, SIM_DEATH, a, &op) == SIM_OK) run(op);
  sim_alloc_end(a);
}
