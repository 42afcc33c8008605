/* scope.c: makes driver calls on a device possible, between enter and leave, and refuses those that a capture forbids.
 *
 * Invariant: nothing here breaks a capture. A stream that is being captured is asked for nothing that a capture
 * forbids, and calls that a capture elsewhere forbids are made in relaxed mode (CUDA Programming Guide, "Prohibited and
 * Unhandled Operations"). It must not know what the calls are made for. */
#include "device/device.h"

/* Threads, backends */

uint32_t mf__thread_number(void) {
  static _Atomic uint32_t last;
  static _Thread_local uint32_t mine;
  if (mine == 0) mine = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
  return mine;
}

static _Atomic uint64_t holders[MF__NBACKENDS];

void mf__holders_add(const mf__backend *backend, int64_t delta) {
  const uint64_t change = (UINT64_C(1) << 32) + (uint64_t)delta;
  atomic_fetch_add_explicit(&holders[backend->index], change, memory_order_acq_rel);
}

uint64_t mf__holders_state(const mf__backend *backend) {
  return atomic_load_explicit(&holders[backend->index], memory_order_acquire);
}

int64_t mf__holders(const mf__backend *backend) {
  return (int64_t)(mf__holders_state(backend) & UINT32_MAX);
}

/* Between enter and leave */

int mf__enter(mf__scope *s, const mf__backend *backend, int32_t ordinal, mf_error *err) {
  *s = (mf__scope){.backend = backend, .cancelling = mf__uncancelled_begin()};
  const int rc = backend->enter(ordinal, &s->before, err);
  if (rc != MF_OK) mf__uncancelled_end(s->cancelling);
  return rc;
}

/* Fails where the mode cannot be set: the calls that come would break a capture. */
int mf__enter_relaxed(mf__scope *s, const mf__backend *backend, int32_t ordinal, mf_error *err) {
  int rc = mf__enter(s, backend, ordinal, err);
  if (rc != MF_OK) return rc;
  rc = backend->capture_relax(true, err);
  if (rc != MF_OK) {
    mf__leave(s);
    return rc;
  }
  s->relaxed = true;
  return MF_OK;
}

/* Where even that fails, the driver keeps it. */
int mf__enter_to_end(mf__scope *s, const mf__backend *backend, int32_t ordinal, mf_error *err) {
  const int rc = mf__enter_relaxed(s, backend, ordinal, err);
  return rc == MF_OK ? rc : mf__enter(s, backend, ordinal, err);
}

void mf__leave(const mf__scope *s) {
  if (s->relaxed) (void)s->backend->capture_relax(false, NULL);
  s->backend->leave(&s->before);
  mf__uncancelled_end(s->cancelling);
}

/* Captures */

mf__queue mf__queue_named(const mf__queue *q) {
  mf__queue named = *q;
  if (!mf__queue_is_elsewhere(q)) return named;
  named.stream = MF_STREAM_DEFAULT;
  named.thread = 0;
  return named;
}

int mf__capture_of(const mf__queue *q, uint64_t *id, mf_error *err) {
  *id = 0;
  int rc;
  MF__CALL(rc, mf__enter, q->backend, q->ordinal, err, q->backend->stream_capture(q->stream, id, err));
  return rc;
}

int mf__capture_refuse_inside(const mf__queue *q, const char *why, mf_error *err) {
  uint64_t id;
  const int rc = q->backend->stream_capture(mf__queue_named(q).stream, &id, err);
  if (rc != MF_OK || id == 0) return rc;
  return mf__fail(err, MF_ECAPTURE, "stream 0x%llx of %s:%d is being captured, and %s", (unsigned long long)q->stream,
                  q->backend->name, q->ordinal, why);
}

int mf__capture_refuse(const mf__queue *q, const char *why, mf_error *err) {
  int rc;
  MF__CALL(rc, mf__enter, q->backend, q->ordinal, err, mf__capture_refuse_inside(q, why, err));
  return rc;
}

static int legacy_check(const mf__queue *on, mf_error *err) {
  uint64_t id;
  return on->stream == MF_STREAM_DEFAULT ? on->backend->stream_capture(on->stream, &id, err) : MF_OK;
}

int mf__queue_enter(mf__scope *s, const mf__queue *on, mf_error *err) {
  int rc = mf__enter(s, on->backend, on->ordinal, err);
  if (rc != MF_OK) return rc;
  rc = legacy_check(on, err);
  if (rc != MF_OK) mf__leave(s);
  return rc;
}
