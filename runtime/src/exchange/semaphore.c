/* semaphore.c: semaphores of another graphics API, exported as file descriptors, for which streams wait and which they
 * signal.
 *
 * Invariant: a semaphore has a record of the streams that were told of it, as memory has, so that the driver's object
 * ends behind their work and nobody waits for that. It must not know which API it came from. */
#include "exchange/exchange.h"

struct mf_semaphore {
  mf__device device;
  mf__record *record;
  void *handle;
  bool binary;
};

typedef int (*semaphore_call)(void *semaphore, uint64_t value, mf_stream stream, mf_error *err);

/* A driver that cannot give it back keeps it: nobody could be told. */
static void finish(void *ctx) {
  mf_semaphore *s = ctx;
  const mf__backend *backend = s->device.backend;
  int unused;
  MF__CALL(unused, mf__enter_to_end, backend, s->device.ordinal, NULL, backend->semaphore_end(s->handle, NULL));
  (void)unused;
  mf__record_free(s->record);
  mf__free(s, sizeof *s);
}

static int import(mf_semaphore *s, int fd, mf_error *err) {
  const mf__backend *backend = s->device.backend;
  int rc = mf__record_create(&s->device, &s->record, err);
  if (rc != MF_OK) return rc;
  MF__CALL(rc, mf__enter_relaxed, backend, s->device.ordinal, err,
           backend->semaphore_import(fd, s->binary, &s->handle, err));
  if (rc != MF_OK) mf__record_free(s->record);
  return rc;
}

int mf_semaphore_from_fd(const DLDevice *device, int32_t fd, uint32_t flags, mf_semaphore **out, mf_error *err) {
  mf__device d;
  MF__NEED_OUT(out);
  MF__NEED(device);
  int rc = mf__gpu_resolve(device, &d, err);
  if (rc == MF_OK && (flags & ~MF_SEMAPHORE_BINARY) != 0)
    rc = mf__fail(err, MF_EINVAL, "flags is %u; 0 (a timeline) or MF_SEMAPHORE_BINARY expected", flags);
  mf_semaphore *s = rc == MF_OK ? mf__alloc(sizeof *s) : NULL;
  if (rc == MF_OK && s == NULL) rc = mf__fail(err, MF_ENOMEM, "no memory for %zu bytes", sizeof *s);
  if (rc != MF_OK) return mf__end(rc, __func__, err);
  *s = (mf_semaphore){.device = d, .binary = flags != 0};
  rc = import(s, fd, err);
  if (rc == MF_OK) {
    mf__fd_close(fd);
    *out = s;
  } else {
    mf__free(s, sizeof *s);
  }
  return mf__end(rc, __func__, err);
}

/* Another thread may begin a capture at any time, so that it is asked about last. */
static int call_inside(const mf_semaphore *s, const mf__queue *on, uint64_t value, semaphore_call call, mf_error *err) {
  const int rc = mf__capture_refuse_inside(on, "each launch would use the same value: call it beside the graph", err);
  return rc == MF_OK ? call(s->handle, value, on->stream, err) : rc;
}

/* Its uses are reads: streams do not wait for each other because of it. */
static int queue(mf_semaphore *s, mf_stream stream, uint64_t value, semaphore_call call, mf_error *err) {
  mf__usage use = {.record = s->record};
  mf__queue on;
  int rc = mf__gpu_queue(&s->device, stream, &on, err);
  if (rc != MF_OK) return rc;
  MF__ORDERED(rc, &on, &use, 1, rc != MF_ECAPTURE, err, call_inside(s, &on, value, call, err));
  return rc;
}

int mf_semaphore_wait(mf_semaphore *s, mf_stream stream, uint64_t value, mf_error *err) {
  MF__NEED(s);
  return mf__end(queue(s, stream, value, s->device.backend->semaphore_wait, err), __func__, err);
}

int mf_semaphore_signal(mf_semaphore *s, mf_stream stream, uint64_t value, mf_error *err) {
  MF__NEED(s);
  return mf__end(queue(s, stream, value, s->device.backend->semaphore_signal, err), __func__, err);
}

void mf_semaphore_release(mf_semaphore *s) {
  if (s != NULL) mf__retire(s->record, finish, s);
}
