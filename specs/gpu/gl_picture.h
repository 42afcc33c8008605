/* gl_picture.h: what the specs of OpenGL's textures share: a texture with known pixels, registered, and tensors of
 * pictures and of parts of them. */
#ifndef MOONFERRY_SPEC_GL_PICTURE_H
#define MOONFERRY_SPEC_GL_PICTURE_H

#include "../sim/gl_texture.h"
#include "device.h"

enum { WIDTH = 37, HEIGHT = 13, MOST = WIDTH * HEIGHT * 16 };

static unsigned char pixels[MOST], got[MOST];
static const gl_form *const rgba8 = &gl_forms[2];

/* Bytes that are no NaN of any float. */
static inline void number(const gl_form *f, unsigned first) {
  const int nbytes = WIDTH * HEIGHT * f->channels * f->size;
  for (int i = 0; i < nbytes; i++) pixels[i] = (unsigned char)((i * 5 + (int)first) % 113);
}

static inline unsigned new_texture(const gl_form *f, unsigned first) {
  needs_simulator();
  if (gl_of.context == NULL) gl_open();
  number(f, first);
  return gl_texture(f, WIDTH, HEIGHT, pixels);
}

static inline mf_gl_texture *opened(unsigned texture, uint32_t flags) {
  const DLDevice device = gpu(0);
  mf_gl_texture *x;
  OK(mf_gl_texture_open(&device, texture, 0, flags, &x, &err));
  return x;
}

static inline DLDataType dtype_of(const gl_form *f) {
  return (DLDataType){f->size == 1 ? kDLUInt : kDLFloat, (uint8_t)(f->size * 8), 1};
}

/* A new tensor of a part of a picture; without an axis of channels where there is one alone. */
static inline mf_tensor *picture(DLDevice device, const gl_form *f, int64_t height, int64_t width) {
  int64_t shape[3] = {height, width, f->channels};
  const DLTensor like = {.device = device, .ndim = f->channels == 1 ? 2 : 3, .shape = shape, .dtype = dtype_of(f)};
  mf_tensor *t;
  OK(mf_tensor_create(&like, 0, &t, &err));
  return t;
}

static inline mf_tensor *to_device(mf_tensor *t, DLDevice device) {
  const mf_request request = {.device = device, .copy = MF_COPY_ALWAYS};
  mf_tensor *out;
  OK(mf_tensor_to(t, &request, &out, &err));
  return out;
}

static inline void up(mf_gl_texture *x, mf_tensor *t, mf_stream s) {
  OK(mf_gl_texture_upload(x, t, 0, 0, s, &err));
}

static inline void expect_texture(unsigned texture, const gl_form *f) {
  gl_read_texture(texture, f, got);
  assert_memory_equal(got, pixels, (size_t)(WIDTH * HEIGHT * f->channels * f->size));
}

/* Rows from the top down, planes instead of pixels, and rows with a gap. */
static inline mf_tensor *seen_as(mf_tensor *t, int how) {
  mf_tensor *view;
  const mf_index flip[] = {{.kind = MF_INDEX_SLICE, .start = MF_INDEX_NONE, .stop = MF_INDEX_NONE, .step = -1}};
  const mf_index narrow[] = {{.kind = MF_INDEX_SLICE, .start = MF_INDEX_NONE, .stop = MF_INDEX_NONE, .step = 1},
                             {.kind = MF_INDEX_SLICE, .start = 2, .stop = 2 + WIDTH, .step = 1}};
  if (how == 0) OK(mf_tensor_index(t, flip, 1, &view, &err));
  else if (how == 1) OK(mf_tensor_permute_dims(t, (int32_t[]){1, 2, 0}, 3, &view, &err));
  else OK(mf_tensor_index(t, narrow, 2, &view, &err));
  return view;
}

static inline mf_tensor *under(int how) {
  int64_t shape[3][3] = {{HEIGHT, WIDTH, 4}, {4, HEIGHT, WIDTH}, {HEIGHT, WIDTH + 5, 4}};
  const DLTensor like = {.device = gpu(0), .ndim = 3, .shape = shape[how], .dtype = {kDLUInt, 8, 1}};
  mf_tensor *t;
  OK(mf_tensor_create(&like, 0, &t, &err));
  return t;
}

static inline mf_tensor *part(mf_tensor *t, int64_t start, int64_t stop, int64_t step) {
  const mf_index rows[] = {{.kind = MF_INDEX_SLICE, .start = start, .stop = stop, .step = step}};
  mf_tensor *view;
  OK(mf_tensor_index(t, rows, 1, &view, &err));
  return view;
}

#endif
