/* gl.h: an OpenGL without a window for the specs of graphics calls: a context of EGL's, buffers, and a draw from one.
 *
 * Mesa's llvmpipe will do. Functions are found by name, so that no header of OpenGL's is needed. A failure ends the
 * program with the line. Must not know: any GPU driver. */
#ifndef SIM_GL_H
#define SIM_GL_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define GL_MUST(condition)                                                    \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                \
    }                                                                         \
  } while (0)

typedef struct gl_egl {
  void *(*find)(const char *name);
  unsigned (*make_current)(void *display, void *draw, void *read, void *context);
  void *(*current)(void);
  void *display, *context;
} gl_egl;

static gl_egl gl_of;

/* A function of OpenGL's, of a type that is written at the call. */
#define GL(type, name) ((type)gl_of.find("gl" #name))

static inline void gl_current(int on) {
  GL_MUST(gl_of.make_current(gl_of.display, NULL, NULL, on ? gl_of.context : NULL));
}

static inline void *gl_symbol(void *library, const char *name) {
  void *found = dlsym(library, name);
  GL_MUST(found != NULL);
  return found;
}

/* A context of OpenGL 4.5, current on this thread. */
static inline void gl_open(void) {
  enum { SURFACELESS = 0x31DD, OPENGL_API = 0x30A2 };
  static const int version[] = {0x3098, 4, 0x30FB, 5, 0x30FD, 1, 0x3038};
  void *egl = dlopen("libEGL.so.1", RTLD_NOW);
  GL_MUST(egl != NULL);
  *(void **)&gl_of.find = gl_symbol(egl, "eglGetProcAddress");
  *(void **)&gl_of.make_current = gl_symbol(egl, "eglMakeCurrent");
  *(void **)&gl_of.current = gl_symbol(egl, "eglGetCurrentContext");
  void *(*display)(unsigned, void *, const intptr_t *) = gl_symbol(egl, "eglGetPlatformDisplay");
  unsigned (*initialize)(void *, int *, int *) = gl_symbol(egl, "eglInitialize");
  unsigned (*bind)(unsigned) = gl_symbol(egl, "eglBindAPI");
  void *(*create)(void *, void *, void *, const int *) = gl_symbol(egl, "eglCreateContext");
  gl_of.display = display(SURFACELESS, NULL, NULL);
  GL_MUST(initialize(gl_of.display, NULL, NULL) && bind(OPENGL_API));
  gl_of.context = create(gl_of.display, NULL, NULL, version); /* for no surface, so of no configuration */
  GL_MUST(gl_of.context != NULL);
  gl_current(1);
}

static inline void gl_bind(unsigned buffer) {
  GL(void (*)(unsigned, unsigned), BindBuffer)(0x8892, buffer);
}

/* A buffer with storage of the old kind, or (`fixed`) of the kind that takes only copies. */
static inline unsigned gl_buffer(const void *bytes, size_t nbytes, int fixed) {
  unsigned buffer = 0;
  GL(void (*)(int, unsigned *), GenBuffers)(1, &buffer);
  gl_bind(buffer);
  typedef void (*set_bytes)(unsigned, ptrdiff_t, const void *, unsigned);
  if (fixed) GL(set_bytes, BufferStorage)(0x8892, (ptrdiff_t)nbytes, bytes, 0);
  else GL(set_bytes, BufferData)(0x8892, (ptrdiff_t)nbytes, bytes, 0x88E8);
  return buffer;
}

static inline void gl_read(unsigned buffer, void *bytes, size_t nbytes) {
  gl_bind(buffer);
  GL(void (*)(unsigned, ptrdiff_t, ptrdiff_t, void *), GetBufferSubData)(0x8892, 0, (ptrdiff_t)nbytes, bytes);
}

static inline void gl_write(unsigned buffer, const void *bytes, size_t nbytes) {
  gl_bind(buffer);
  GL(void (*)(unsigned, ptrdiff_t, ptrdiff_t, const void *), BufferSubData)(0x8892, 0, (ptrdiff_t)nbytes, bytes);
}

static inline void gl_delete(unsigned buffer) {
  GL(void (*)(int, const unsigned *), DeleteBuffers)(1, &buffer);
  GL_MUST(GL(unsigned (*)(void), GetError)() == 0);
}

static inline unsigned gl_shader(unsigned kind, const char *text) {
  const unsigned shader = GL(unsigned (*)(unsigned), CreateShader)(kind);
  GL(void (*)(unsigned, int, const char *const *, const int *), ShaderSource)(shader, 1, &text, NULL);
  GL(void (*)(unsigned), CompileShader)(shader);
  return shader;
}

static inline unsigned gl_program(void) {
  static unsigned program;
  unsigned names[3];
  if (program != 0) return program;
  program = GL(unsigned (*)(void), CreateProgram)();
  GL(void (*)(unsigned, unsigned), AttachShader)(
      program, gl_shader(0x8B31, "#version 450\nlayout(location=0) in float v; out float c;\n"
                                 "void main() { gl_Position = vec4(0, 0, 0, 1); c = v; }"));
  GL(void (*)(unsigned, unsigned), AttachShader)(
      program, gl_shader(0x8B30, "#version 450\nin float c; out vec4 o; void main() { o = vec4(c, 0, 0, 1); }"));
  GL(void (*)(unsigned), LinkProgram)(program);
  GL(void (*)(int, unsigned *), GenVertexArrays)(1, &names[0]);
  GL(void (*)(unsigned), BindVertexArray)(names[0]);
  GL(void (*)(int, unsigned *), GenTextures)(1, &names[1]);
  GL(void (*)(unsigned, unsigned), BindTexture)(0x0DE1, names[1]);
  GL(void (*)(unsigned, int, unsigned, int, int), TexStorage2D)(0x0DE1, 1, 0x822E, 1, 1); /* R32F */
  GL(void (*)(int, unsigned *), GenFramebuffers)(1, &names[2]);
  GL(void (*)(unsigned, unsigned), BindFramebuffer)(0x8D40, names[2]);
  GL(void (*)(unsigned, unsigned, unsigned, unsigned, int), FramebufferTexture2D)(0x8D40, 0x8CE0, 0x0DE1, names[1], 0);
  GL(void (*)(int, int, int, int), Viewport)(0, 0, 1, 1);
  return program;
}

/* Draws the i-th float of a buffer on a picture of one pixel, and returns that. */
static inline float gl_draw(unsigned buffer, size_t i) {
  float seen = 0;
  GL(void (*)(unsigned), UseProgram)(gl_program());
  gl_bind(buffer);
  GL(void (*)(unsigned, int, unsigned, unsigned char, int, const void *), VertexAttribPointer)(
      0, 1, 0x1406, 0, 4, (const void *)(i * sizeof(float)));
  GL(void (*)(unsigned), EnableVertexAttribArray)(0);
  GL(void (*)(unsigned, int, int), DrawArrays)(0, 0, 1);
  GL(void (*)(int, int, int, int, unsigned, unsigned, void *), ReadPixels)(0, 0, 1, 1, 0x1903, 0x1406, &seen);
  return seen;
}

#endif
