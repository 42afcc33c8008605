/* draw.c: OpenGL's part: it imports the memory as a buffer, and draws the picture in it. */
#include "shared.h"

static void *find(const char *name) {
  void *function = SDL_GL_GetProcAddress(name);
  if (function == NULL) die(name, "OpenGL has no such function (GL_EXT_memory_object_fd)");
  return function;
}

/* A buffer over the memory that the descriptor is of, which is OpenGL's from then on. */
static void import_memory(opengl *g, int fd) {
  const PFNGLCREATEMEMORYOBJECTSEXTPROC create = (PFNGLCREATEMEMORYOBJECTSEXTPROC)find("glCreateMemoryObjectsEXT");
  const PFNGLIMPORTMEMORYFDEXTPROC import = (PFNGLIMPORTMEMORYFDEXTPROC)find("glImportMemoryFdEXT");
  const PFNGLNAMEDBUFFERSTORAGEMEMEXTPROC store =
      (PFNGLNAMEDBUFFERSTORAGEMEMEXTPROC)find("glNamedBufferStorageMemEXT");
  create(1, &g->memory);
  import(g->memory, NBYTES + 4096, GL_HANDLE_TYPE_OPAQUE_FD_EXT, fd);
  glCreateBuffers(1, &g->buffer);
  store(g->buffer, NBYTES, g->memory, 0);
  if (glGetError() != GL_NO_ERROR) die("OpenGL", "it cannot import Vulkan's memory: is it another device's?");
}

static GLuint shader(GLenum kind, const char *text) {
  const GLuint s = glCreateShader(kind);
  GLint good;
  char log[1000];
  glShaderSource(s, 1, &text, NULL);
  glCompileShader(s);
  glGetShaderiv(s, GL_COMPILE_STATUS, &good);
  if (good) return s;
  glGetShaderInfoLog(s, sizeof log, NULL, log);
  die("shader", log);
}

/* The picture as it lies in the buffer, dark outside of a circle: each byte can be told from what was painted. */
static const char *const fragment =
    "#version 450\n"
    "layout(std430, binding = 0) readonly buffer memory { uint bytes[]; };\n"
    "out vec4 color;\n"
    "void main() {\n"
    "  ivec2 at = ivec2(gl_FragCoord.xy), middle = 2 * at - 511;\n"
    "  uint pixel = bytes[256 * 256 + at.y * 512 + at.x];\n"
    "  if (middle.x * middle.x + middle.y * middle.y > 500 * 500) pixel = (pixel >> 2) & 0x3F3F3F3Fu;\n"
    "  color = unpackUnorm4x8(pixel);\n"
    "}";

/* One triangle that covers all of it. */
static const char *const vertex = "#version 450\n"
                                  "void main() {\n"
                                  "  gl_Position = vec4(gl_VertexID / 2 * 4 - 1, gl_VertexID % 2 * 4 - 1, 0, 1);\n"
                                  "}";

/* A picture of its own to draw on, so that what is read back does not hang on a window. */
static void make_target(opengl *g) {
  glCreateTextures(GL_TEXTURE_2D, 1, &g->picture);
  glTextureStorage2D(g->picture, 1, GL_RGBA8, SIZE, SIZE);
  glCreateFramebuffers(1, &g->target);
  glNamedFramebufferTexture(g->target, GL_COLOR_ATTACHMENT0, g->picture, 0);
  glBindFramebuffer(GL_FRAMEBUFFER, g->target);
  glViewport(0, 0, SIZE, SIZE);
  glDisable(GL_DITHER);
}

void open_opengl(opengl *g, int memory, bool hidden) {
  SDL_SetMainReady();
  if (SDL_Init(SDL_INIT_VIDEO) != 0) die("SDL", SDL_GetError());
  SDL_GL_SetAttribute(SDL_GL_CONTEXT_MAJOR_VERSION, 4);
  SDL_GL_SetAttribute(SDL_GL_CONTEXT_MINOR_VERSION, 5);
  SDL_GL_SetAttribute(SDL_GL_CONTEXT_PROFILE_MASK, SDL_GL_CONTEXT_PROFILE_CORE);
  const int middle = SDL_WINDOWPOS_CENTERED;
  g->window = SDL_CreateWindow("One memory: NumPy, Vulkan, OpenGL", middle, middle, SIZE, SIZE,
                               SDL_WINDOW_OPENGL | (hidden ? SDL_WINDOW_HIDDEN : 0u));
  g->context = g->window != NULL ? SDL_GL_CreateContext(g->window) : NULL;
  if (g->context == NULL) die("SDL", SDL_GetError());
  import_memory(g, memory);
  g->program = glCreateProgram();
  glAttachShader(g->program, shader(GL_VERTEX_SHADER, vertex));
  glAttachShader(g->program, shader(GL_FRAGMENT_SHADER, fragment));
  glLinkProgram(g->program);
  glCreateVertexArrays(1, &g->array);
  make_target(g);
  g->calls = (mf_gl_calls){
      .fence_sync = (void *(*)(uint32_t, uint32_t))find("glFenceSync"),
      .client_wait_sync = (uint32_t (*)(void *, uint32_t, uint64_t))find("glClientWaitSync"),
      .delete_sync = (void (*)(void *))find("glDeleteSync"),
      .current_context = SDL_GL_GetCurrentContext};
}

void draw(const opengl *g) {
  glBindBufferBase(GL_SHADER_STORAGE_BUFFER, 0, g->buffer);
  glUseProgram(g->program);
  glBindVertexArray(g->array);
  glDrawArrays(GL_TRIANGLES, 0, 3);
}

void read_pixels(void *rgba) {
  glReadPixels(0, 0, SIZE, SIZE, GL_RGBA, GL_UNSIGNED_BYTE, rgba);
}

bool wants_to_end(const opengl *g) {
  glBlitNamedFramebuffer(g->target, 0, 0, 0, SIZE, SIZE, 0, 0, SIZE, SIZE, GL_COLOR_BUFFER_BIT, GL_NEAREST);
  SDL_GL_SwapWindow(g->window);
  for (SDL_Event event; SDL_PollEvent(&event);)
    if (event.type == SDL_QUIT || (event.type == SDL_KEYDOWN && event.key.keysym.sym == SDLK_ESCAPE)) return true;
  return false;
}

double seconds(void) {
  return SDL_GetTicks() / 1000.0;
}

void close_opengl(opengl *g) {
  const PFNGLDELETEMEMORYOBJECTSEXTPROC end = (PFNGLDELETEMEMORYOBJECTSEXTPROC)find("glDeleteMemoryObjectsEXT");
  glDeleteBuffers(1, &g->buffer);
  end(1, &g->memory);
  SDL_GL_DeleteContext(g->context);
  SDL_DestroyWindow(g->window);
  SDL_Quit();
}
