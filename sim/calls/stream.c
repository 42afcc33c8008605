/* stream.c: streams, and the program's functions in them.
 *
 * It must not know what orders streams. */
#include <stdlib.h>

#include "calls.h"

sim_status sim_call_stream_new(unsigned flags, int priority, void *out) {
  enum { NON_BLOCKING = 1 };
  sim_context *c;
  if (out == NULL || flags > NON_BLOCKING) return SIM_INVALID;
  SIM_TRY(sim_context_of(&c));
  const sim_stream *s = sim_stream_new(c, SIM_ORDINARY, flags == 0, priority);
  sim_put(out, s->o.handle);
  sim_log_detail("%#zx", (size_t)s->o.handle);
  return SIM_OK;
}

sim_status sim_call_stream_end(const void *stream) {
  sim_stream *s;
  SIM_TRY(sim_given(stream, SIM_STREAM, &s));
  return sim_stream_end(s);
}

sim_status sim_call_stream_query(const void *stream) {
  sim_stream *s;
  SIM_TRY(sim_stream_given(stream, &s));
  return sim_stream_query(s);
}

sim_status sim_call_stream_wait(const void *stream) {
  sim_stream *s;
  SIM_TRY(sim_stream_given(stream, &s));
  sim_log_detail("%s", s->name);
  const bool null = stream == NULL && s->kind == SIM_LEGACY;
  return null && sim_driver.null_waits_for_blocking ? sim_stream_wait_blocking(s->ctx) : sim_stream_wait_host(s);
}

sim_status sim_call_stream_priority(const void *stream, int *priority) {
  sim_stream *s;
  if (priority == NULL) return SIM_INVALID;
  SIM_TRY(sim_stream_given(stream, &s));
  *priority = s->priority;
  return SIM_OK;
}

sim_status sim_call_stream_flags(const void *stream, unsigned *flags) {
  enum { BLOCKING = 0, NON_BLOCKING = 1 };
  sim_stream *s;
  if (flags == NULL) return SIM_INVALID;
  SIM_TRY(sim_stream_given(stream, &s));
  *flags = s->blocking ? BLOCKING : NON_BLOCKING;
  return SIM_OK;
}

sim_status sim_call_stream_device(const void *stream, int *device) {
  sim_stream *s;
  if (device == NULL) return SIM_INVALID;
  SIM_TRY(sim_stream_given(stream, &s));
  *device = s->ctx->device->id;
  return SIM_OK;
}

static sim_status queue_function(sim_stream *s, void (*fn)(void *), void *arg) {
  const sim_work w = {.kind = SIM_HOST, .fn = fn, .arg = arg};
  return fn == NULL ? SIM_INVALID : sim_submit(s, &w, NULL);
}

sim_status sim_call_host(const void *stream, void (*fn)(void *), void *arg) {
  sim_stream *s;
  SIM_TRY(sim_stream_given(stream, &s));
  return queue_function(s, fn, arg);
}

sim_status sim_call_host_with(const void *stream, void (*fn)(void *), const void *bytes, size_t n) {
  sim_stream *s;
  SIM_TRY(sim_stream_given(stream, &s));
  if (s->capture != NULL) return sim_capture_forbid(s, SIM_CAP_UNSUPPORTED);
  void *copy = malloc(n);
  if (copy == NULL) return SIM_NOMEM;
  memcpy(copy, bytes, n);
  const sim_status rc = queue_function(s, fn, copy);
  if (rc != SIM_OK) free(copy);
  return rc;
}
