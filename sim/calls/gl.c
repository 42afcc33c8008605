/* gl.c: the OpenGL that the program has brought along: its buffers' bytes.
 *
 * OpenGL's functions are found through what the process has loaded (EGL or GLX); nothing is loaded for it. Invariant:
 * what is bound is bound afterwards. It must not know what the bytes are for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#include "calls.h"

enum {
  COPY_READ = 0x8F36,
  COPY_WRITE = 0x8F37, /* each is the name of its binding, too */
  BUFFER_SIZE = 0x8764,
  BUFFER_MAPPED = 0x88BC,
  BUFFER_MAP_POINTER = 0x88BD,
  IMMUTABLE_STORAGE = 0x821F,
  STORAGE_FLAGS = 0x8220,
  RENDERER = 0x1F01,
  MAP_READ = 1,
  MAP_WRITE = 2,
  STREAM_COPY = 0x88E2
};

typedef struct gl_functions {
  void (*Finish)(void);
  void (*GetIntegerv)(unsigned, int *);
  const char *(*GetString)(unsigned);
  unsigned char (*IsBuffer)(unsigned);
  void (*GenBuffers)(int, unsigned *);
  void (*DeleteBuffers)(int, const unsigned *);
  void (*BindBuffer)(unsigned, unsigned);
  void (*BufferData)(unsigned, ptrdiff_t, const void *, unsigned);
  void (*GetBufferSubData)(unsigned, ptrdiff_t, ptrdiff_t, void *);
  void (*CopyBufferSubData)(unsigned, unsigned, ptrdiff_t, ptrdiff_t, ptrdiff_t);
  void (*GetBufferParameteri64v)(unsigned, unsigned, int64_t *);
  void (*GetBufferPointerv)(unsigned, unsigned, void **);
  void *(*MapBufferRange)(unsigned, ptrdiff_t, ptrdiff_t, unsigned);
  unsigned char (*UnmapBuffer)(unsigned);
} gl_functions;

static gl_functions gl;

sim_get_proc sim_gl_resolver(void) {
  static const char *const known[][3] = {{"libEGL.so.1", "eglGetCurrentContext", "eglGetProcAddress"},
                                         {"libGLX.so.0", "glXGetCurrentContext", "glXGetProcAddressARB"},
                                         {"libGL.so.1", "glXGetCurrentContext", "glXGetProcAddressARB"}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    void *library = dlopen(known[i][0], RTLD_LAZY | RTLD_NOLOAD);
    void *(*current)(void) = NULL;
    sim_get_proc find = NULL;
    if (library == NULL) continue;
    *(void **)&current = dlsym(library, known[i][1]);
    *(void **)&find = dlsym(library, known[i][2]);
    dlclose(library); /* the process has it open */
    if (current != NULL && find != NULL && current() != NULL) return find;
  }
  return NULL;
}

static bool load(void) {
  static const char *const names[] = {
      "glFinish", "glGetIntegerv", "glGetString", "glIsBuffer", "glGenBuffers", "glDeleteBuffers", "glBindBuffer",
      "glBufferData", "glGetBufferSubData", "glCopyBufferSubData", "glGetBufferParameteri64v", "glGetBufferPointerv",
      "glMapBufferRange", "glUnmapBuffer"};
  const sim_get_proc find = sim_gl_resolver();
  void **at = (void **)&gl;
  if (find == NULL) return false;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if ((at[i] = find(names[i])) == NULL) return false;
  return true;
}

static unsigned bind(unsigned target, unsigned buffer) {
  int before = 0;
  gl.GetIntegerv(target, &before);
  gl.BindBuffer(target, buffer);
  return (unsigned)before;
}

static int64_t asked(unsigned what) {
  int64_t value = 0;
  gl.GetBufferParameteri64v(COPY_READ, what, &value);
  return value;
}

bool sim_gl_size(unsigned buffer, size_t *nbytes) {
  *nbytes = 0;
  if (!load()) return false;
  if (buffer == 0 || !gl.IsBuffer(buffer)) return true;
  const unsigned before = bind(COPY_READ, buffer);
  *nbytes = (size_t)asked(BUFFER_SIZE);
  gl.BindBuffer(COPY_READ, before);
  return true;
}

bool sim_gl_read(unsigned buffer, void *bytes, size_t nbytes) {
  if (!load()) return false;
  gl.Finish();
  const unsigned before = bind(COPY_READ, buffer);
  gl.GetBufferSubData(COPY_READ, 0, (ptrdiff_t)nbytes, bytes);
  gl.BindBuffer(COPY_READ, before);
  return true;
}

/* By way of another buffer, because one of fixed storage may refuse the program's bytes but no copy. */
bool sim_gl_write(unsigned buffer, const void *bytes, size_t nbytes) {
  unsigned between = 0;
  if (!load()) return false;
  gl.GenBuffers(1, &between);
  const unsigned read = bind(COPY_READ, between), write = bind(COPY_WRITE, buffer);
  gl.BufferData(COPY_READ, (ptrdiff_t)nbytes, bytes, STREAM_COPY);
  gl.CopyBufferSubData(COPY_READ, COPY_WRITE, 0, 0, (ptrdiff_t)nbytes);
  gl.BindBuffer(COPY_READ, read);
  gl.BindBuffer(COPY_WRITE, write);
  gl.DeleteBuffers(1, &between);
  gl.Finish();
  return true;
}

/* Of the buffer that is bound: by the mapping that it has, or by one for a moment if its storage allows one. */
static void *address_of(size_t nbytes) {
  void *at = NULL;
  const int64_t allowed = asked(IMMUTABLE_STORAGE) ? asked(STORAGE_FLAGS) & (MAP_READ | MAP_WRITE) : MAP_READ;
  if (asked(BUFFER_MAPPED)) {
    gl.GetBufferPointerv(COPY_READ, BUFFER_MAP_POINTER, &at);
    return at;
  }
  if (allowed == 0) return NULL;
  at = gl.MapBufferRange(COPY_READ, 0, (ptrdiff_t)nbytes, (unsigned)allowed);
  if (at != NULL) gl.UnmapBuffer(COPY_READ);
  return at;
}

/* Mesa's renderers on the CPU keep a buffer at one address, which a mapping tells. */
uintptr_t sim_gl_storage(unsigned buffer, size_t nbytes) {
  if (!load()) return 0;
  const char *renderer = gl.GetString(RENDERER);
  if (renderer == NULL || (strstr(renderer, "llvmpipe") == NULL && strstr(renderer, "softpipe") == NULL)) return 0;
  const unsigned before = bind(COPY_READ, buffer);
  void *at = address_of(nbytes);
  gl.BindBuffer(COPY_READ, before);
  return (uintptr_t)at;
}
