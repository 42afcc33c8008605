/* texture.c: copies between tensors and OpenGL's textures, on a stream of a GPU.
 *
 * Invariant: a texture is mapped for the length of one call, whose stream maps, copies and unmaps, so that OpenGL has
 * it before and after, and no pointer is left. One call at a time has it. It must not know OpenGL. */
#include "exchange/exchange.h"

struct mf_gl_texture {
  mf__gl_resource gl;
};

#define MF__GL_TEXTURE_2D 0x0DE1u
#define FAR (MF__MAX_PITCH / 16) /* elements from row to row, of 4 bytes at most */

/* What one call does: rows of the device's memory to or from a part of the image. */
typedef struct move {
  mf_gl_texture *texture;
  mf_tensor *t; /* on the device, with compact pixels in each row */
  mf__queue on;
  int64_t x, y;
  bool upload;
} move;

int mf_gl_texture_open(const DLDevice *device, uint32_t texture, uint32_t target, uint32_t flags,
                       mf_gl_texture **out, mf_error *err) {
  MF__NEED_OUT(out);
  MF__NEED(device);
  const mf__gl_name name = {texture, target == 0 ? MF__GL_TEXTURE_2D : target};
  mf_gl_texture *x = mf__alloc(sizeof *x);
  int rc = x == NULL ? mf__fail(err, MF_ENOMEM, "no memory for %zu bytes", sizeof *x) : MF_OK;
  if (rc == MF_OK) rc = mf__gl_register(&x->gl, device, &name, flags, err);
  if (rc == MF_OK) *out = x;
  else if (x != NULL) mf__free(x, sizeof *x);
  return mf__end(rc, __func__, err);
}

static int64_t channels_of(const DLTensor *dl) {
  return dl->ndim == 3 ? dl->shape[2] : 1;
}

static int dtype_check(const DLTensor *dl, const mf__array *image, mf_error *err) {
  char has[MF__NAME_CAP], wants[MF__NAME_CAP];
  if (mf__dtype_equal(&dl->dtype, &image->dtype)) return MF_OK;
  (void)mf_dtype_format(&dl->dtype, has, sizeof has, NULL);
  (void)mf_dtype_format(&image->dtype, wants, sizeof wants, NULL);
  return mf__fail(err, MF_EDTYPE, "dtype is %s; the texture's %s expected", has, wants);
}

/* Whether the tensor is like a part of the image, and that part is there. */
static int fit_check(const move *m, const mf__array *image, mf_error *err) {
  const DLTensor *dl = &m->t->dl;
  const int64_t height = dl->shape[0], width = dl->shape[1];
  const int rc = dtype_check(dl, image, err);
  if (rc != MF_OK) return rc;
  if (channels_of(dl) != image->channels)
    return mf__fail(err, MF_EINVAL, "the tensor has %lld channels; the texture's %d expected",
                    (long long)channels_of(dl), image->channels);
  if (m->x >= 0 && m->y >= 0 && width <= image->width - m->x && height <= image->height - m->y) return MF_OK;
  return mf__fail(err, MF_EINVAL, "%lld by %lld pixels from %lld, %lld on do not fit in the texture's %lld by %lld",
                  (long long)width, (long long)height, (long long)m->x, (long long)m->y, (long long)image->width,
                  (long long)image->height);
}

/* A single row's pitch is not looked at, and may be anything in a tensor. */
static int queue_copy(const move *m, const mf__array *image, mf_error *err) {
  const DLTensor *dl = &m->t->dl;
  const int64_t channel = mf__tensor_bits(m->t) / 8, pixel = channels_of(dl) * channel;
  const int64_t width = dl->shape[1] * pixel, pitch = dl->shape[0] > 1 ? dl->strides[0] * channel : width;
  const mf__array_copy job = {image->handle, dl->data, m->x * pixel, m->y, width, dl->shape[0], pitch, m->upload};
  return m->texture->gl.device.backend->array_copy(&job, m->on.stream, err);
}

static const char no_texture[] = "no texture of OpenGL's can be mapped by it";

/* Whatever fails in between, OpenGL gets the texture back; the first failure is told. To bring the pixels to the device
 * may have taken long, so that captures are asked about again. */
static int map_and_copy(const move *m, mf_error *err) {
  const mf__gl_resource *gl = &m->texture->gl;
  const mf__backend *backend = gl->device.backend;
  mf__array image;
  int rc = mf__capture_refuse_inside(&m->on, no_texture, err);
  if (rc == MF_OK) rc = backend->graphics_map_array(gl->handle, m->on.stream, &image, err);
  if (rc != MF_OK) return rc;
  rc = fit_check(m, &image, err);
  if (rc == MF_OK && !m->t->empty) rc = queue_copy(m, &image, err);
  const int driver = backend->graphics_unmap(gl->handle, m->on.stream, rc == MF_OK ? err : NULL);
  return rc != MF_OK ? rc : driver;
}

/* In one scope, so that the stream which maps can unmap, whatever another thread begins meanwhile. */
static int copy(const move *m, mf_error *err) {
  const mf__device *device = &m->texture->gl.device;
  mf__usage use = {.record = mf__tensor_record(m->t), .write = !m->upload};
  int rc = mf__order_begin(&m->on, &use, 1, err);
  if (rc != MF_OK) return rc;
  MF__CALL(rc, mf__enter_relaxed, device->backend, device->ordinal, err, map_and_copy(m, err));
  mf__order_end(&m->on, &use, 1, rc != MF_ECAPTURE);
  return rc;
}

/* Whether a driver can copy the rows as they are: on the device, compact, and the lowest first. */
static bool is_direct(const move *m) {
  const DLTensor *dl = &m->t->dl;
  const DLDevice device = mf__device_name(&m->texture->gl.device);
  const DLTensor row = {.ndim = dl->ndim - 1, .shape = dl->shape + 1, .strides = dl->strides + 1};
  if (dl->device.device_type != device.device_type || dl->device.device_id != device.device_id) return false;
  if (!mf__is_compact(&row)) return false;
  return dl->shape[0] == 1 || (dl->strides[0] >= dl->shape[1] * channels_of(dl) && dl->strides[0] <= FAR);
}

/* By way of compact memory of the device, on the stream. */
static int copy_staged(move *m, mf_tensor *t, mf_error *err) {
  const bool some = !mf__is_empty(&t->dl);
  int rc = mf__temporary(t, MF__DEVICE, &m->on, &m->t, err);
  if (rc == MF_OK && m->upload && some) rc = mf__transfer(m->t, t, &m->on, err);
  if (rc == MF_OK) rc = copy(m, err);
  if (rc == MF_OK && !m->upload && some) rc = mf__transfer(t, m->t, &m->on, err);
  (void)mf_tensor_release_later(m->t);
  return rc;
}

static int check(const mf_gl_texture *texture, const mf_tensor *t, bool up, mf_error *err) {
  const uint32_t against = up ? MF_GL_READ : MF_GL_DISCARD;
  const int rc = up ? mf__tensor_open(t, err) : mf__tensor_writable(t, err);
  if (rc != MF_OK) return rc;
  if (texture->gl.flags == against)
    return mf__fail(err, MF_EINVAL, "the texture was opened with %s; %s expected", up ? "MF_GL_READ" : "MF_GL_DISCARD",
                    up ? "0 or MF_GL_DISCARD" : "0 or MF_GL_READ");
  if (t->dl.ndim == 2 || t->dl.ndim == 3) return MF_OK;
  return mf__fail(err, MF_EINVAL, "ndim is %d; 3 (height, width, channels), or 2 for one channel, expected",
                  t->dl.ndim);
}

static int begin(move *m, mf_tensor *t, mf_stream stream, mf_error *err) {
  const int rc = check(m->texture, t, m->upload, err);
  return rc == MF_OK ? mf__gpu_queue(&m->texture->gl.device, stream, &m->on, err) : rc;
}

static int transfer(move *m, mf_tensor *t, mf_stream stream, mf_error *err) {
  int rc = mf__gl_begin(&m->texture->gl, err);
  if (rc != MF_OK) return rc;
  rc = begin(m, t, stream, err);
  m->t = t;
  if (rc == MF_OK) rc = is_direct(m) ? copy(m, err) : copy_staged(m, t, err);
  mf__gl_end(&m->texture->gl);
  return rc;
}

int mf_gl_texture_upload(mf_gl_texture *texture, mf_tensor *t, int64_t x, int64_t y, mf_stream stream,
                         mf_error *err) {
  MF__NEED(texture);
  MF__NEED(t);
  move m = {.texture = texture, .x = x, .y = y, .upload = true};
  return mf__end(transfer(&m, t, stream, err), __func__, err);
}

int mf_gl_texture_download(mf_gl_texture *texture, mf_tensor *t, int64_t x, int64_t y, mf_stream stream,
                           mf_error *err) {
  MF__NEED(texture);
  MF__NEED(t);
  move m = {.texture = texture, .x = x, .y = y, .upload = false};
  return mf__end(transfer(&m, t, stream, err), __func__, err);
}

int mf_gl_texture_close(mf_gl_texture *texture, mf_error *err) {
  if (texture == NULL) return MF_OK;
  int rc = mf__gl_begin(&texture->gl, err);
  if (rc != MF_OK) return mf__end(rc, __func__, err);
  rc = mf__gl_unregister(&texture->gl, err);
  mf__free(texture, sizeof *texture);
  return mf__end(rc, __func__, err);
}
