/* event.c: events.
 *
 * It must not know what orders streams. */
#include "calls.h"

sim_status sim_call_event_new(unsigned flags, bool timing, void *out) {
  enum { INTERPROCESS = 4 };
  sim_context *c;
  const bool shared = (flags & INTERPROCESS) != 0;
  if (shared && timing) return SIM_INVALID;
  SIM_TRY(sim_context_of(&c));
  const int fd = shared ? sim_semaphore_new(0, SIM_SHARED_EVENT) : -1;
  if (shared && fd < 0) return SIM_NOMEM;
  sim_event *e = sim_event_new(c, flags, timing);
  e->fd = fd;
  if (shared) e->shared = sim_semaphore_open(fd);
  sim_put(out, e->o.handle);
  sim_log_detail("%#zx", (size_t)e->o.handle);
  return SIM_OK;
}

sim_status sim_call_event_end(const void *event) {
  sim_event *e;
  SIM_TRY(sim_given(event, SIM_EVENT, &e));
  sim_event_end(e);
  return SIM_OK;
}

static sim_status both_given(const void *event, const void *stream, sim_event **e, sim_stream **s) {
  if (sim_driver.event_first) SIM_TRY(sim_given(event, SIM_EVENT, e));
  SIM_TRY(sim_stream_given(stream, s));
  return sim_given(event, SIM_EVENT, e);
}

sim_status sim_call_event_record(const void *event, const void *stream) {
  sim_event *e;
  sim_stream *s;
  SIM_TRY(both_given(event, stream, &e, &s));
  sim_log_detail("%p, %s", event, s->name);
  return sim_event_record(e, s);
}

sim_status sim_call_event_wait(const void *stream, const void *event, unsigned flags) {
  enum { EXTERNAL = 1 };
  sim_event *e;
  sim_stream *s;
  if (flags > EXTERNAL) return SIM_INVALID;
  SIM_TRY(both_given(event, stream, &e, &s));
  sim_log_detail("%s, %p", s->name, event);
  return sim_event_wait(s, e);
}

sim_status sim_call_event_query(const void *event) {
  sim_event *e;
  SIM_TRY(sim_given(event, SIM_EVENT, &e));
  return sim_event_query(e);
}

sim_status sim_call_event_wait_host(const void *event) {
  sim_event *e;
  SIM_TRY(sim_given(event, SIM_EVENT, &e));
  return sim_event_wait_host(e);
}

sim_status sim_call_event_elapsed(const void *first, const void *second, float *ms) {
  sim_event *a, *b;
  if (ms == NULL) return SIM_INVALID;
  SIM_TRY(sim_given(first, SIM_EVENT, &a));
  SIM_TRY(sim_given(second, SIM_EVENT, &b));
  return sim_event_elapsed(a, b, ms);
}
