/* semaphore.c: semaphores that another API has exported as opaque file descriptors.
 *
 * The descriptors are the simulator's own (sim_semaphore_create), because Mesa's drivers for the CPU export none. It
 * must not know what a semaphore is made of. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <unistd.h>

#include "../include/sim.h"
#include "calls.h"

typedef struct imported {
  sim_object o;
  int fd;
  sim_semaphore *semaphore;
} imported;

static sim_status refuse(int fd, const char *why) {
  char here[200];
  const sim_place now = sim_here();
  sim_found(SIM_MISUSE, "file descriptor %d %s: %s", fd, why, sim_place_text(&now, here, sizeof here));
  return SIM_INVALID;
}

sim_status sim_call_semaphore_import(int fd, bool binary, unsigned flags, void *out) {
  sim_context *c;
  if (out == NULL || flags != 0) return SIM_INVALID;
  SIM_TRY(sim_context_of(&c));
  sim_semaphore *m = sim_semaphore_open(fd);
  if (m == NULL) return refuse(fd, "is no semaphore that the simulator knows");
  if (sim_semaphore_binary(m) != binary) {
    sim_semaphore_drop(m);
    return refuse(fd, binary ? "is a timeline's, imported as a binary semaphore" : "is a binary semaphore's, imported "
                                                                                   "as a timeline");
  }
  imported *i = calloc(1, sizeof *i);
  if (i == NULL) abort();
  *i = (imported){.fd = fd, .semaphore = m};
  sim_object_add(&i->o, SIM_SEMAPHORE);
  sim_put(out, i->o.handle);
  return SIM_OK;
}

/* The value is what each entry begins with, and the flags stand for what semaphores have not. */
sim_status sim_call_semaphores(const void *const *semaphores, const void *values, size_t stride, unsigned n,
                               const void *stream, sim_work_kind kind) {
  sim_stream *s;
  imported *i;
  if (n == 0 || semaphores == NULL || values == NULL) return SIM_INVALID;
  SIM_TRY(sim_stream_given(stream, &s));
  for (unsigned k = 0; k < n; k++) SIM_TRY(sim_given(semaphores[k], SIM_SEMAPHORE, &i));
  for (unsigned k = 0; k < n; k++) {
    unsigned long long value;
    memcpy(&value, (const char *)values + k * stride, sizeof value);
    SIM_TRY(sim_given(semaphores[k], SIM_SEMAPHORE, &i));
    SIM_TRY(sim_semaphore_queue(s, i->semaphore, kind, value));
    sim_log_detail("%s %llu in %s", kind == SIM_WAIT ? "waits for" : "signals", value, s->name);
  }
  return SIM_OK;
}

/* What is queued goes on with it. */
sim_status sim_call_semaphore_end(const void *semaphore) {
  char here[200], queued[200];
  const sim_place now = sim_here();
  imported *i;
  SIM_TRY(sim_given(semaphore, SIM_SEMAPHORE, &i));
  const sim_op *op = sim_op_uses(i->semaphore);
  if (op != NULL)
    sim_found(SIM_MISUSE, "a semaphore is destroyed while %s has work with it\n  here    %s\n  queued  %s", op->who,
              sim_place_text(&now, here, sizeof here), sim_place_text(&op->place, queued, sizeof queued));
  close(i->fd);
  sim_semaphore_drop(i->semaphore);
  sim_object_end(&i->o);
  return SIM_OK;
}

int sim_semaphore_create(uint64_t value, int binary) {
  return sim_semaphore_new(value, binary != 0 ? SIM_BINARY : SIM_TIMELINE);
}

int sim_semaphore_read(int fd, uint64_t *value) {
  sim_lock();
  sim_semaphore *m = sim_semaphore_open(fd);
  if (m != NULL) *value = sim_semaphore_value(m);
  sim_semaphore_drop(m);
  sim_unlock();
  return m == NULL ? -1 : 0;
}

int sim_semaphore_signal(int fd, uint64_t value) {
  sim_lock();
  sim_semaphore *m = sim_semaphore_open(fd);
  if (m != NULL) sim_semaphore_set(m, sim_semaphore_binary(m) ? 1 : value);
  sim_semaphore_drop(m);
  sim_unlock();
  return m == NULL ? -1 : 0;
}
