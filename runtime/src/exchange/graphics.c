/* graphics.c: OpenGL's buffers as tensors of a GPU, while they are mapped.
 *
 * Invariant: a buffer has one tensor at most, from mapping to unmapping; it is invalid before the driver unmaps, and
 * the stream that unmaps waits for all that its record knows of. A registered buffer counts as a holder, so that its
 * device is not forgotten. It must not know OpenGL. */
#include "exchange/exchange.h"

struct mf_gl_buffer {
  mf__device device;
  void *resource;
  uint32_t flags;
  mf__queue on;      /* where it is mapped */
  mf_tensor *mapped; /* NULL: it is not */
};

static int register_buffer(const DLDevice *device, uint32_t buffer, uint32_t flags, mf_gl_buffer *b, mf_error *err) {
  const uint32_t known = MF_GL_BUFFER_READ | MF_GL_BUFFER_DISCARD;
  int rc = mf__gpu_resolve(device, &b->device, err);
  if (rc != MF_OK) return rc;
  if ((flags & ~known) != 0 || flags == known)
    return mf__fail(err, MF_EINVAL, "flags is %u; 0, MF_GL_BUFFER_READ or MF_GL_BUFFER_DISCARD expected", flags);
  b->flags = flags;
  const mf__backend *backend = b->device.backend;
  MF__CALL(rc, mf__enter, backend, b->device.ordinal, err,
           backend->graphics_register(buffer, flags, &b->resource, err));
  if (rc == MF_OK) mf__holders_add(backend, 1);
  return rc;
}

int mf_gl_buffer_open(const DLDevice *device, uint32_t buffer, uint32_t flags, mf_gl_buffer **out, mf_error *err) {
  *out = NULL;
  mf_gl_buffer *b = mf__alloc(sizeof *b);
  int rc = b == NULL ? mf__fail(err, MF_ENOMEM, "no memory for %zu bytes", sizeof *b) : MF_OK;
  if (rc == MF_OK) {
    *b = (mf_gl_buffer){0};
    rc = register_buffer(device, buffer, flags, b, err);
  }
  if (rc == MF_OK) *out = b;
  else if (b != NULL) mf__free(b, sizeof *b);
  return mf__end(rc, __func__, err);
}

/* The tensor's record begins with the stream that maps, as if that were the thread's current one. */
static int wrap(const mf_gl_buffer *b, const DLTensor *like, void *data, mf_tensor **out, mf_error *err) {
  const uint64_t flags = b->flags == MF_GL_BUFFER_READ ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
  DLTensor view = *like;
  mf_stream before;
  view.data = data;
  view.strides = NULL;
  view.device = mf__device_name(&b->device);
  int rc = mf_stream_swap(&view.device, b->on.stream, &before, err);
  if (rc != MF_OK) return rc;
  rc = mf_tensor_wrap(&view, flags, NULL, NULL, out, err);
  (void)mf_stream_swap(&view.device, before, NULL, NULL);
  return rc;
}

static int driver_unmap(const mf_gl_buffer *b, mf_error *err) {
  const mf__backend *backend = b->device.backend;
  int rc;
  MF__CALL(rc, mf__enter, backend, b->device.ordinal, err,
           backend->graphics_unmap(b->resource, b->on.stream, err));
  return rc;
}

static int map(mf_gl_buffer *b, mf_stream stream, const DLTensor *like, mf_tensor **out, mf_error *err) {
  const mf__backend *backend = b->device.backend;
  void *data = NULL;
  size_t nbytes = 0;
  if (b->mapped != NULL) return mf__fail(err, MF_EINVAL, "the buffer is mapped; mf_gl_buffer_unmap comes first");
  int rc = mf__gpu_queue(&b->device, stream, &b->on, err);
  if (rc != MF_OK) return rc;
  MF__CALL(rc, mf__enter, backend, b->device.ordinal, err,
           backend->graphics_map(b->resource, b->on.stream, &data, &nbytes, err));
  if (rc != MF_OK) return rc;
  rc = wrap(b, like, data, out, err);
  if (rc == MF_OK) rc = mf__fit_check(like, (uint64_t)mf_tensor_nbytes(*out), nbytes, "buffer", err);
  if (rc == MF_OK) {
    b->mapped = *out;
    return rc;
  }
  (void)mf_tensor_release_later(*out);
  *out = NULL;
  (void)driver_unmap(b, NULL);
  return rc;
}

int mf_gl_buffer_map(mf_gl_buffer *b, mf_stream stream, const DLTensor *like, mf_tensor **out, mf_error *err) {
  *out = NULL;
  return mf__end(map(b, stream, like, out, err), __func__, err);
}

/* Also where the streams cannot be ordered, the buffer goes back to OpenGL; the first failure is told. */
static int unmap(mf_gl_buffer *b, int32_t *in_use, mf_error *err) {
  mf_tensor *t = b->mapped;
  mf__record *record = mf__tensor_record(t);
  int rc = record == NULL ? MF_OK : mf__order_use(&b->on, &(mf__usage){.record = record, .write = true}, err);
  (void)mf_tensor_invalidate(t, in_use, NULL);
  const int driver = driver_unmap(b, rc == MF_OK ? err : NULL);
  b->mapped = NULL;
  (void)mf_tensor_release_later(t);
  return rc != MF_OK ? rc : driver;
}

int mf_gl_buffer_unmap(mf_gl_buffer *b, int32_t *in_use, mf_error *err) {
  int32_t unused;
  if (in_use == NULL) in_use = &unused;
  *in_use = 0;
  const int rc = b->mapped == NULL ? mf__fail(err, MF_EINVAL, "the buffer is not mapped") : unmap(b, in_use, err);
  return mf__end(rc, __func__, err);
}

int mf_gl_buffer_close(mf_gl_buffer *b, mf_error *err) {
  int32_t unused = 0;
  if (b == NULL) return MF_OK;
  const mf__backend *backend = b->device.backend;
  int rc = b->mapped == NULL ? MF_OK : unmap(b, &unused, err), driver;
  MF__CALL(driver, mf__enter, backend, b->device.ordinal, rc == MF_OK ? err : NULL,
           backend->graphics_unregister(b->resource, rc == MF_OK ? err : NULL));
  mf__holders_add(backend, -1);
  mf__free(b, sizeof *b);
  return mf__end(rc != MF_OK ? rc : driver, __func__, err);
}
