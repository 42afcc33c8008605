/* graphics.c: what of OpenGL's is registered with a GPU's driver, and its buffers as tensors of that GPU, while they
 * are mapped.
 *
 * Invariant: a buffer has one tensor at most, from mapping to unmapping; it is invalid before the driver unmaps, and
 * the stream that unmaps waits for all that its record knows of. One call at a time has the buffer, so that the stream
 * that maps is the one that unmaps. What is registered counts as a holder, so that its device is not forgotten. It
 * must not know OpenGL. */
#include "exchange/exchange.h"

struct mf_gl_buffer {
  mf__gl_resource gl;
  mf__queue on;      /* where it is mapped */
  mf_tensor *mapped; /* NULL: it is not */
};

/* No lock: a thread that had one at a fork would be waited for by the child for ever. */
int mf__gl_begin(mf__gl_resource *r, mf_error *err) {
  if (!atomic_exchange_explicit(&r->busy, true, memory_order_acquire)) return MF_OK;
  return mf__fail(err, MF_EINVAL, "another call has the %s; one thread at a time expected", r->sort);
}

void mf__gl_end(mf__gl_resource *r) {
  atomic_store_explicit(&r->busy, false, memory_order_release);
}

int mf__gl_register(mf__gl_resource *r, const DLDevice *device, const mf__gl_name *name, uint32_t flags,
                    mf_error *err) {
  const uint32_t known = MF_GL_READ | MF_GL_DISCARD;
  int rc = mf__gpu_resolve(device, &r->device, err);
  if (rc != MF_OK) return rc;
  if ((flags & ~known) != 0 || flags == known)
    return mf__fail(err, MF_EINVAL, "flags is %u; 0, MF_GL_READ or MF_GL_DISCARD expected", flags);
  const mf__backend *backend = r->device.backend;
  mf__holders_add(backend, 1); /* before the device is left, which another thread's trim may then forget */
  MF__CALL(rc, mf__enter_relaxed, backend, r->device.ordinal, err,
           backend->graphics_register(name, flags, &r->handle, err));
  if (rc != MF_OK) {
    mf__holders_add(backend, -1);
    return rc;
  }
  r->flags = flags;
  r->sort = name->target == 0 ? "buffer" : "texture";
  atomic_init(&r->busy, false);
  return rc;
}

int mf_gl_buffer_open(const DLDevice *device, uint32_t buffer, uint32_t flags, mf_gl_buffer **out, mf_error *err) {
  MF__NEED_OUT(out);
  MF__NEED(device);
  mf_gl_buffer *b = mf__alloc(sizeof *b);
  int rc = b == NULL ? mf__fail(err, MF_ENOMEM, "no memory for %zu bytes", sizeof *b) : MF_OK;
  if (rc == MF_OK) {
    *b = (mf_gl_buffer){.mapped = NULL};
    rc = mf__gl_register(&b->gl, device, &(mf__gl_name){.name = buffer}, flags, err);
  }
  if (rc == MF_OK) *out = b;
  else if (b != NULL) mf__free(b, sizeof *b);
  return mf__end(rc, __func__, err);
}

/* The tensor's record begins with the stream that maps, as if that were the thread's current one. */
static int wrap(const mf_gl_buffer *b, const DLTensor *like, void *data, size_t nbytes, mf_tensor **out,
                mf_error *err) {
  const uint64_t flags = b->gl.flags == MF_GL_READ ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
  DLTensor view = *like;
  mf_stream before;
  view.data = data;
  view.strides = NULL;
  view.device = mf__device_name(&b->gl.device);
  int rc = mf_stream_swap(&view.device, b->on.stream, &before, err);
  if (rc != MF_OK) return rc;
  rc = mf_tensor_wrap(&view, flags, NULL, NULL, out, err);
  (void)mf_stream_swap(&view.device, before, NULL, NULL);
  return rc == MF_OK ? mf__memory_own(out, data, (int64_t)nbytes, err) : rc;
}

static int driver_map_inside(const mf_gl_buffer *b, void **data, size_t *nbytes, mf_error *err) {
  const int rc = mf__capture_refuse_inside(&b->on, "no buffer of OpenGL's can be mapped by it", err);
  return rc == MF_OK ? b->gl.device.backend->graphics_map(b->gl.handle, b->on.stream, data, nbytes, err) : rc;
}

/* The buffer was mapped in vain. A driver that cannot unmap it keeps it: another failure is told. */
static void driver_unmap(const mf_gl_buffer *b) {
  const mf__backend *backend = b->gl.device.backend;
  int unused;
  MF__CALL(unused, mf__enter_to_end, backend, b->gl.device.ordinal, NULL,
           backend->graphics_unmap(b->gl.handle, b->on.stream, NULL));
  (void)unused;
}

static int map(mf_gl_buffer *b, mf_stream stream, const DLTensor *like, mf_tensor **out, mf_error *err) {
  const mf__backend *backend = b->gl.device.backend;
  mf__checked c;
  void *data = NULL;
  size_t nbytes = 0;
  if (b->mapped != NULL) return mf__fail(err, MF_EINVAL, "the buffer is mapped; mf_gl_buffer_unmap comes first");
  int rc = mf__gpu_queue(&b->gl.device, stream, &b->on, err);
  if (rc == MF_OK) rc = mf__checked_new(like, 0, &c, err);
  if (rc != MF_OK) return rc;
  MF__CALL(rc, mf__enter_relaxed, backend, b->gl.device.ordinal, err, driver_map_inside(b, &data, &nbytes, err));
  if (rc != MF_OK) return rc;
  rc = mf__fit_check(like, (uint64_t)c.span.nbytes, nbytes, "buffer", err);
  if (rc == MF_OK) rc = wrap(b, like, data, nbytes, out, err); /* whose driver knows no address behind the buffer */
  if (rc == MF_OK) {
    b->mapped = *out;
    return rc;
  }
  driver_unmap(b);
  return rc;
}

int mf_gl_buffer_map(mf_gl_buffer *b, mf_stream stream, const DLTensor *like, mf_tensor **out, mf_error *err) {
  MF__NEED_OUT(out);
  MF__NEED(b);
  MF__NEED(like);
  int rc = mf__gl_begin(&b->gl, err);
  if (rc == MF_OK) {
    rc = map(b, stream, like, out, err);
    mf__gl_end(&b->gl);
  }
  return mf__end(rc, __func__, err);
}

/* For whoever asks from now on, and for whoever has asked and waits until he may order his use. */
static void take_back(mf_tensor *t, int32_t *in_use) {
  mf__record *record = mf__tensor_record(t); /* NULL: without elements */
  (void)mf_tensor_invalidate(t, in_use, NULL);
  mf__memory_disown(t);
  if (record != NULL) atomic_store_explicit(&record->taken_back, true, memory_order_relaxed);
}

typedef struct unmapping {
  mf__usage use;
  mf__queue waits; /* the stream, or the host */
  bool locked;     /* nobody queues more that uses the buffer until mf__order_end */
  int32_t *in_use;
} unmapping;

/* Where the stream cannot be made to wait, the host waits instead: OpenGL may use the buffer as soon as it has it. */
static int order_unmap(const mf_gl_buffer *b, unmapping *u, mf_error *err) {
  mf_error why;
  u->waits = b->on;
  int rc = mf__order_begin(&u->waits, &u->use, 1, err);
  u->locked = rc == MF_OK;
  if (rc == MF_OK || rc == MF_ECAPTURE) return rc;
  u->waits = mf__queue_host();
  const int host = mf__order_begin(&u->waits, &u->use, 1, &why);
  u->locked = host == MF_OK;
  if (host != MF_ECAPTURE) return rc;
  if (err != NULL) *err = why;
  return host;
}

/* The stream may be captured, or be since it was ordered, by another thread. */
static int unmap_inside(const mf_gl_buffer *b, const unmapping *u, int ordered, mf_error *err) {
  static const char no_unmapping[] = "no buffer of OpenGL's can be unmapped by it";
  const int rc = ordered == MF_OK ? mf__capture_refuse_inside(&b->on, no_unmapping, err) : ordered;
  if (rc == MF_ECAPTURE) return rc;
  take_back(b->mapped, u->in_use);
  const int driver = b->gl.device.backend->graphics_unmap(b->gl.handle, b->on.stream, rc == MF_OK ? err : NULL);
  return rc != MF_OK ? rc : driver;
}

/* A capture would break, or launch what uses the memory later: the buffer stays mapped. Whatever else fails, it goes
 * back to OpenGL; the first failure is told. */
static int unmap(mf_gl_buffer *b, int32_t *in_use, mf_error *err) {
  const mf__gl_resource *gl = &b->gl;
  mf_tensor *t = b->mapped;
  unmapping u = {.use = {.record = mf__tensor_record(t), .write = true}, .in_use = in_use};
  const int ordered = order_unmap(b, &u, err);
  int rc;
  if (ordered == MF_ECAPTURE) return ordered;
  MF__CALL(rc, mf__enter_to_end, gl->device.backend, gl->device.ordinal, err, unmap_inside(b, &u, ordered, err));
  if (rc != MF_ECAPTURE) take_back(t, in_use); /* where the device could not be entered, too */
  if (u.locked) mf__order_end(&u.waits, &u.use, 1, rc != MF_ECAPTURE);
  if (rc == MF_ECAPTURE) return rc;
  b->mapped = NULL;
  (void)mf_tensor_release_later(t);
  return rc;
}

int mf_gl_buffer_unmap(mf_gl_buffer *b, int32_t *in_use, mf_error *err) {
  MF__NEED(b);
  int32_t unused;
  if (in_use == NULL) in_use = &unused;
  *in_use = 0;
  int rc = mf__gl_begin(&b->gl, err);
  if (rc == MF_OK) {
    rc = b->mapped == NULL ? mf__fail(err, MF_EINVAL, "the buffer is not mapped") : unmap(b, in_use, err);
    mf__gl_end(&b->gl);
  }
  return mf__end(rc, __func__, err);
}

int mf__gl_unregister(const mf__gl_resource *r, mf_error *err) {
  const mf__backend *backend = r->device.backend;
  int rc;
  MF__CALL(rc, mf__enter_to_end, backend, r->device.ordinal, err, backend->graphics_unregister(r->handle, err));
  mf__holders_add(backend, -1);
  return rc;
}

int mf_gl_buffer_close(mf_gl_buffer *b, mf_error *err) {
  int32_t unused = 0;
  if (b == NULL) return MF_OK;
  int rc = mf__gl_begin(&b->gl, err);
  if (rc != MF_OK) return mf__end(rc, __func__, err);
  if (b->mapped != NULL) rc = unmap(b, &unused, err);
  if (rc == MF_ECAPTURE) {
    mf__gl_end(&b->gl);
    return mf__end(rc, __func__, err);
  }
  const int driver = mf__gl_unregister(&b->gl, rc == MF_OK ? err : NULL);
  mf__free(b, sizeof *b);
  return mf__end(rc != MF_OK ? rc : driver, __func__, err);
}
