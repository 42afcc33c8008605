/* graphics.c: OpenGL's buffers as tensors of a GPU, while they are mapped.
 *
 * Invariant: a buffer has one tensor at most, from mapping to unmapping; it is invalid before the driver unmaps, and
 * the stream that unmaps waits for all that its record knows of. One call at a time has the buffer, so that the stream
 * that maps is the one that unmaps. A registered buffer counts as a holder, so that its device is not forgotten. It
 * must not know OpenGL. */
#include "exchange/exchange.h"

struct mf_gl_buffer {
  mf__device device;
  void *resource;
  uint32_t flags;
  mf__queue on;      /* where it is mapped */
  mf_tensor *mapped; /* NULL: it is not */
  atomic_bool busy;  /* a call has it */
};

/* No lock: a thread that had one at a fork would be waited for by the child for ever. */
static int begin(mf_gl_buffer *b, mf_error *err) {
  if (!atomic_exchange_explicit(&b->busy, true, memory_order_acquire)) return MF_OK;
  return mf__fail(err, MF_EINVAL, "another call has the buffer; one thread at a time expected");
}

static void end(mf_gl_buffer *b) {
  atomic_store_explicit(&b->busy, false, memory_order_release);
}

static int register_buffer(const DLDevice *device, uint32_t buffer, uint32_t flags, mf_gl_buffer *b, mf_error *err) {
  const uint32_t known = MF_GL_BUFFER_READ | MF_GL_BUFFER_DISCARD;
  int rc = mf__gpu_resolve(device, &b->device, err);
  if (rc != MF_OK) return rc;
  if ((flags & ~known) != 0 || flags == known)
    return mf__fail(err, MF_EINVAL, "flags is %u; 0, MF_GL_BUFFER_READ or MF_GL_BUFFER_DISCARD expected", flags);
  b->flags = flags;
  const mf__backend *backend = b->device.backend;
  MF__CALL(rc, mf__enter_relaxed, backend, b->device.ordinal, err,
           backend->graphics_register(buffer, flags, &b->resource, err));
  if (rc == MF_OK) mf__holders_add(backend, 1);
  return rc;
}

int mf_gl_buffer_open(const DLDevice *device, uint32_t buffer, uint32_t flags, mf_gl_buffer **out, mf_error *err) {
  MF__NEED_OUT(out);
  MF__NEED(device);
  mf_gl_buffer *b = mf__alloc(sizeof *b);
  int rc = b == NULL ? mf__fail(err, MF_ENOMEM, "no memory for %zu bytes", sizeof *b) : MF_OK;
  if (rc == MF_OK) {
    *b = (mf_gl_buffer){.busy = false};
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

static int driver_map_inside(const mf_gl_buffer *b, void **data, size_t *nbytes, mf_error *err) {
  const int rc = mf__capture_refuse_inside(&b->on, "no buffer of OpenGL's can be mapped by it", err);
  return rc == MF_OK ? b->device.backend->graphics_map(b->resource, b->on.stream, data, nbytes, err) : rc;
}

static int driver_unmap(const mf_gl_buffer *b, mf_error *err) {
  const mf__backend *backend = b->device.backend;
  int rc;
  MF__CALL(rc, mf__enter_relaxed, backend, b->device.ordinal, err,
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
  MF__CALL(rc, mf__enter_relaxed, backend, b->device.ordinal, err, driver_map_inside(b, &data, &nbytes, err));
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
  MF__NEED_OUT(out);
  MF__NEED(b);
  MF__NEED(like);
  int rc = begin(b, err);
  if (rc == MF_OK) {
    rc = map(b, stream, like, out, err);
    end(b);
  }
  return mf__end(rc, __func__, err);
}

/* The stream waits for all that used the tensor. */
static int order_unmap(const mf_gl_buffer *b, mf_error *err) {
  const int rc = mf__capture_refuse(&b->on, "no buffer of OpenGL's can be unmapped by it", err);
  if (rc != MF_OK) return rc;
  return mf__order_use(&b->on, &(mf__usage){.record = mf__tensor_record(b->mapped), .write = true}, err);
}

/* A capture would break, or launch what uses the memory later: the buffer stays mapped. Where the streams cannot be
 * ordered for another reason, it goes back to OpenGL all the same; the first failure is told. */
static int unmap(mf_gl_buffer *b, int32_t *in_use, mf_error *err) {
  mf_tensor *t = b->mapped;
  const int rc = order_unmap(b, err);
  if (rc == MF_ECAPTURE) return rc;
  (void)mf_tensor_invalidate(t, in_use, NULL);
  const int driver = driver_unmap(b, rc == MF_OK ? err : NULL);
  b->mapped = NULL;
  (void)mf_tensor_release_later(t);
  return rc != MF_OK ? rc : driver;
}

int mf_gl_buffer_unmap(mf_gl_buffer *b, int32_t *in_use, mf_error *err) {
  MF__NEED(b);
  int32_t unused;
  if (in_use == NULL) in_use = &unused;
  *in_use = 0;
  int rc = begin(b, err);
  if (rc == MF_OK) {
    rc = b->mapped == NULL ? mf__fail(err, MF_EINVAL, "the buffer is not mapped") : unmap(b, in_use, err);
    end(b);
  }
  return mf__end(rc, __func__, err);
}

static int unregister(const mf_gl_buffer *b, mf_error *err) {
  const mf__backend *backend = b->device.backend;
  int rc;
  MF__CALL(rc, mf__enter_relaxed, backend, b->device.ordinal, err, backend->graphics_unregister(b->resource, err));
  mf__holders_add(backend, -1);
  return rc;
}

int mf_gl_buffer_close(mf_gl_buffer *b, mf_error *err) {
  int32_t unused = 0;
  if (b == NULL) return MF_OK;
  int rc = begin(b, err);
  if (rc != MF_OK) return mf__end(rc, __func__, err);
  if (b->mapped != NULL) rc = unmap(b, &unused, err);
  if (rc == MF_ECAPTURE) {
    end(b);
    return mf__end(rc, __func__, err);
  }
  const int driver = unregister(b, rc == MF_OK ? err : NULL);
  mf__free(b, sizeof *b);
  return mf__end(rc != MF_OK ? rc : driver, __func__, err);
}
