/* gl_texture.h: textures for the specs of graphics calls, on the OpenGL of gl.h. Must not know: any GPU driver. */
#ifndef SIM_GL_TEXTURE_H
#define SIM_GL_TEXTURE_H

#include "gl.h"

enum {
  GL_2D = 0x0DE1,
  GL_R8_ = 0x8229,
  GL_RG8_ = 0x822B,
  GL_RGBA8_ = 0x8058,
  GL_R16F_ = 0x822D,
  GL_RGBA16F_ = 0x881A,
  GL_R32F_ = 0x822E,
  GL_RGBA32F_ = 0x8814,
  GL_SRGB8_ALPHA8_ = 0x8C43
};

/* How the pixels of an internal format are told to OpenGL. */
typedef struct gl_form {
  int internal;
  unsigned format, type;
  int channels, size; /* of a channel, in bytes */
} gl_form;

static const gl_form gl_forms[] = {
    {GL_R8_, 0x1903, 0x1401, 1, 1},    {GL_RG8_, 0x8227, 0x1401, 2, 1},     {GL_RGBA8_, 0x1908, 0x1401, 4, 1},
    {GL_R16F_, 0x1903, 0x140B, 1, 2},  {GL_RGBA16F_, 0x1908, 0x140B, 4, 2}, {GL_R32F_, 0x1903, 0x1406, 1, 4},
    {GL_RGBA32F_, 0x1908, 0x1406, 4, 4},
};
enum { GL_FORMS = sizeof gl_forms / sizeof *gl_forms };

static inline void gl_bind_texture(unsigned texture) {
  GL(void (*)(unsigned, unsigned), BindTexture)(GL_2D, texture);
  GL(void (*)(unsigned, int), PixelStorei)(0x0CF5, 1);
  GL(void (*)(unsigned, int), PixelStorei)(0x0D05, 1);
}

static inline void gl_write_texture(unsigned texture, const gl_form *f, int width, int height, const void *bytes) {
  gl_bind_texture(texture);
  GL(void (*)(unsigned, int, int, int, int, int, unsigned, unsigned, const void *), TexSubImage2D)(
      GL_2D, 0, 0, 0, width, height, f->format, f->type, bytes);
}

/* A texture with storage; without bytes it has none of anybody's. */
static inline unsigned gl_texture(const gl_form *f, int width, int height, const void *bytes) {
  unsigned texture = 0;
  GL(void (*)(int, unsigned *), GenTextures)(1, &texture);
  gl_bind_texture(texture);
  GL(void (*)(unsigned, int, unsigned, int, int), TexStorage2D)(GL_2D, 1, (unsigned)f->internal, width, height);
  if (bytes != NULL) gl_write_texture(texture, f, width, height, bytes);
  return texture;
}

static inline void gl_read_texture(unsigned texture, const gl_form *f, void *bytes) {
  gl_bind_texture(texture);
  GL(void (*)(unsigned, int, unsigned, unsigned, void *), GetTexImage)(GL_2D, 0, f->format, f->type, bytes);
}

static inline void gl_delete_texture(unsigned texture) {
  GL(void (*)(int, const unsigned *), DeleteTextures)(1, &texture);
  GL_MUST(GL(unsigned (*)(void), GetError)() == 0);
}

#endif
