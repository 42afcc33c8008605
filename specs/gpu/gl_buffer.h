/* gl_buffer.h: what the specs of OpenGL's buffers share: a buffer with known bytes, registered, mapped and unmapped in
 * short words, and what is in it afterwards. */
#ifndef MOONFERRY_SPEC_GL_BUFFER_H
#define MOONFERRY_SPEC_GL_BUFFER_H

#include "../sim/gl.h"
#include "device.h"

enum { FLOATS = 16384, SIZE = FLOATS * sizeof(float) };

static float values[FLOATS], got[FLOATS];

/* A GPU's own OpenGL is not what EGL gives without a window. */
static inline unsigned new_buffer(float first) {
  needs_simulator();
  if (gl_of.context == NULL) gl_open();
  for (int i = 0; i < FLOATS; i++) values[i] = first + (float)i;
  return gl_buffer(values, SIZE, 0);
}

static inline mf_gl_buffer *opened(unsigned buffer, uint32_t flags) {
  const DLDevice device = gpu(0);
  mf_gl_buffer *b;
  OK(mf_gl_buffer_open(&device, buffer, flags, &b, &err));
  return b;
}

/* With junk in the fields that are not read. */
static inline DLTensor floats(int64_t *count) {
  static int64_t junk = -3;
  return (DLTensor){.data = &junk, .device = {kDLCPU, 7}, .ndim = 1, .shape = count, .strides = &junk,
                    .dtype = {kDLFloat, 32, 1}};
}

static inline mf_tensor *mapped(mf_gl_buffer *b, mf_stream s) {
  int64_t count = FLOATS;
  const DLTensor like = floats(&count);
  mf_tensor *t;
  OK(mf_gl_buffer_map(b, s, &like, &t, &err));
  return t;
}

static inline int32_t unmapped(mf_gl_buffer *b) {
  int32_t in_use = -1;
  OK(mf_gl_buffer_unmap(b, &in_use, &err));
  return in_use;
}

static inline void expect_floats(unsigned buffer, uint64_t value) {
  gl_read(buffer, got, SIZE);
  for (int i = 0; i < FLOATS; i++) assert_true(got[i] == (float)value);
}

static inline void expect_bytes(unsigned buffer, int byte) {
  gl_read(buffer, got, SIZE);
  for (size_t i = 0; i < SIZE; i++) assert_int_equal(((unsigned char *)got)[i], byte);
}

#endif
