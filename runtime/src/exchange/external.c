/* external.c: memory of another graphics API, exported as a file descriptor, as a tensor of a GPU.
 *
 * Invariant: the descriptor is the caller's until MF_OK; from then on the driver's import ends after the last use that
 * the tensor's record knows of. It must not know which API it came from. */
#include "exchange/exchange.h"

typedef struct import {
  mf__device device;
  mf__external memory;
} import;

/* A driver that cannot give it back keeps it: nobody could be told. */
static void end_memory(const import *i) {
  const mf__backend *backend = i->device.backend;
  int unused;
  MF__CALL(unused, mf__enter_to_end, backend, i->device.ordinal, NULL, (backend->external_end(&i->memory), MF_OK));
  (void)unused;
  mf__holders_add(backend, -1);
}

static void end_import(void *ctx) {
  import *i = ctx;
  end_memory(i);
  mf__free(i, sizeof *i);
}

int mf__gpu_resolve(const DLDevice *name, mf__device *out, mf_error *err) {
  char text[MF__NAME_CAP];
  const int rc = mf__device_resolve(name, out, err);
  if (rc != MF_OK || (out->backend != NULL && out->space == MF__DEVICE)) return rc;
  (void)mf_device_format(name, text, sizeof text, NULL);
  return mf__fail(err, MF_EINVAL, "device is %s; a GPU's own memory expected", text);
}

int mf__gpu_queue(const mf__device *device, mf_stream stream, mf__queue *out, mf_error *err) {
  if (stream >= MF_STREAM_CURRENT) return mf__queue_resolve(device, stream, true, out, err);
  return mf__fail(err, MF_EINVAL, "stream is %lld; a name of a stream (0 to 2) or a handle expected",
                  (long long)stream);
}

static int refuse_size(const DLTensor *like, uint64_t wanted, uint64_t nbytes, const char *what, mf_error *err) {
  return mf__fail(err, MF_EINVAL, "the tensor's %llu bytes from %llu on do not fit in the %s's %llu",
                  (unsigned long long)wanted, (unsigned long long)like->byte_offset, what, (unsigned long long)nbytes);
}

int mf__fit_check(const DLTensor *like, uint64_t wanted, uint64_t nbytes, const char *what, mf_error *err) {
  if (like->byte_offset <= nbytes && wanted <= nbytes - like->byte_offset) return MF_OK;
  return refuse_size(like, wanted, nbytes, what, err);
}

static int resolve(const DLTensor *like, uint64_t nbytes, mf__device *out, mf_error *err) {
  mf__checked c;
  int rc = mf__gpu_resolve(&like->device, out, err);
  if (rc != MF_OK) return rc;
  rc = mf__checked_new(like, 0, &c, err);
  if (rc != MF_OK) return rc;
  const uint64_t wanted = (uint64_t)c.span.nbytes;
  if (nbytes == 0) return refuse_size(like, wanted, nbytes, "memory", err); /* no driver imports it */
  return mf__fit_check(like, wanted, nbytes, "memory", err);
}

/* The tensor has the import from now on, which ends with it. */
static int wrap(const DLTensor *like, uint64_t nbytes, import *i, mf_tensor **out, mf_error *err) {
  DLTensor view = *like;
  view.data = i->memory.data;
  view.strides = NULL;
  const int rc = mf_tensor_wrap(&view, 0, end_import, i, out, err);
  if (rc == MF_OK) return mf__memory_own(out, i->memory.data, (int64_t)nbytes, err);
  end_import(i);
  return rc;
}

/* Ends the import where it fails. */
static int take(const DLTensor *like, int fd, uint64_t nbytes, import *i, mf_tensor **out, mf_error *err) {
  const mf__backend *backend = i->device.backend;
  int rc;
  mf__holders_add(backend, 1); /* before the device is left, which another thread's trim may then forget */
  MF__CALL(rc, mf__enter_relaxed, backend, i->device.ordinal, err,
           backend->external_import(fd, (size_t)nbytes, &i->memory, err));
  if (rc == MF_OK) return wrap(like, nbytes, i, out, err);
  mf__holders_add(backend, -1);
  mf__free(i, sizeof *i);
  return rc;
}

int mf_tensor_from_fd(const DLTensor *like, int32_t fd, uint64_t nbytes, mf_tensor **out, mf_error *err) {
  MF__NEED_OUT(out);
  MF__NEED(like);
  mf__device device;
  int rc = resolve(like, nbytes, &device, err);
  import *i = rc == MF_OK ? mf__alloc(sizeof *i) : NULL;
  if (rc == MF_OK && i == NULL) rc = mf__fail(err, MF_ENOMEM, "no memory for %zu bytes", sizeof *i);
  if (rc != MF_OK) return mf__end(rc, __func__, err);
  *i = (import){.device = device};
  rc = take(like, fd, nbytes, i, out, err);
  if (rc == MF_OK) mf__fd_close(fd);
  return mf__end(rc, __func__, err);
}
