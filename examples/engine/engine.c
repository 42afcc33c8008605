/* engine.c: a small engine of SDL2, OpenGL and LuaJIT, whose swarm PyTorch moves in the engine's own vertex buffer.
 *
 *   make engine                          in a window; R reads swarm.lua anew, Escape ends
 *   engine SCRIPT [FRAMES [PICTURE]]     so many frames; checks each pixel against the vertices, and writes a picture
 *
 * The vertex buffer stays mapped. Each of its three parts is a tensor, and the three are a ring: while one is drawn the
 * script fills the next. Nothing is copied, and the engine waits for OpenGL only where all three are being drawn. */
#define GL_GLEXT_PROTOTYPES
#define SDL_MAIN_HANDLED
#include <GL/gl.h>
#include <GL/glext.h>
#include <SDL.h>
#include <lauxlib.h>
#include <lualib.h>
#include <moonferry.h>
#include <moonferry_lua.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 720, SWARM = 100000, SLOTS = 3, MEASURED = 21 };

typedef struct vertex {
  float x, y, speed, hue;
} vertex;

typedef struct engine {
  lua_State *lua;
  const char *script;
  SDL_Window *window;
  SDL_GLContext context;
  GLuint program, buffer;
  vertex *vertices; /* SLOTS times SWARM, mapped */
  mf_ring *ring;
  mf_gl *gl;
} engine;

static void die(const char *what, const char *why) {
  fprintf(stderr, "engine: %s: %s\n", what, why);
  exit(1);
}

static void check(int rc, const mf_error *err) {
  if (rc != MF_OK) die(err->call, err->message);
}

/* OpenGL */

static GLuint shader(GLenum kind, const char *text) {
  const GLuint s = glCreateShader(kind);
  GLint good;
  char log[1000];
  glShaderSource(s, 1, &text, NULL);
  glCompileShader(s);
  glGetShaderiv(s, GL_COMPILE_STATUS, &good);
  glGetShaderInfoLog(s, sizeof log, NULL, log);
  if (!good) die("shader", log);
  return s;
}

static void open_window(engine *e, Uint32 flags) {
  GLuint array;
  if (SDL_Init(SDL_INIT_VIDEO) != 0) die("SDL", SDL_GetError());
  SDL_GL_SetAttribute(SDL_GL_CONTEXT_MAJOR_VERSION, 4);
  SDL_GL_SetAttribute(SDL_GL_CONTEXT_MINOR_VERSION, 5);
  SDL_GL_SetAttribute(SDL_GL_CONTEXT_PROFILE_MASK, SDL_GL_CONTEXT_PROFILE_CORE);
  e->window = SDL_CreateWindow("Moonferry", 0, 0, SIZE, SIZE, SDL_WINDOW_OPENGL | flags);
  e->context = e->window == NULL ? NULL : SDL_GL_CreateContext(e->window);
  if (e->context == NULL) die("SDL", SDL_GetError());
  e->program = glCreateProgram();
  glAttachShader(e->program, shader(GL_VERTEX_SHADER,
                                    "#version 450\nlayout(location = 0) in vec4 v; out vec3 color;\n"
                                    "void main() {\n"
                                    "  gl_Position = vec4(v.xy, 0, 1);\n"
                                    "  vec3 tint = 0.5 + 0.5 * cos(6.28 * (v.w + vec3(0, 0.33, 0.67)));\n"
                                    "  color = (0.06 + min(v.z * 22, 0.5)) * (tint + 0.15);\n"
                                    "}"));
  glAttachShader(e->program, shader(GL_FRAGMENT_SHADER, "#version 450\nin vec3 color; out vec4 o;\n"
                                                        "void main() { o = vec4(color, 1); }"));
  glLinkProgram(e->program);
  glGenVertexArrays(1, &array);
  glBindVertexArray(array);
  glEnable(GL_BLEND);
  glBlendFunc(GL_ONE, GL_ONE);
}

static void make_ring(engine *e) {
  const GLbitfield flags = GL_MAP_WRITE_BIT | GL_MAP_READ_BIT | GL_MAP_PERSISTENT_BIT | GL_MAP_COHERENT_BIT;
  const mf_gl_calls calls = {
      .fence_sync = (void *(*)(uint32_t, uint32_t))SDL_GL_GetProcAddress("glFenceSync"),
      .client_wait_sync = (uint32_t (*)(void *, uint32_t, uint64_t))SDL_GL_GetProcAddress("glClientWaitSync"),
      .delete_sync = (void (*)(void *))SDL_GL_GetProcAddress("glDeleteSync"),
      .current_context = SDL_GL_GetCurrentContext};
  mf_tensor *slots[SLOTS];
  mf_error err;
  glCreateBuffers(1, &e->buffer);
  glNamedBufferStorage(e->buffer, SLOTS * SWARM * sizeof(vertex), NULL, flags);
  e->vertices = glMapNamedBufferRange(e->buffer, 0, SLOTS * SWARM * sizeof(vertex), flags);
  if (e->vertices == NULL) die("glMapNamedBufferRange", "the buffer cannot be mapped");
  for (int i = 0; i < SLOTS; i++) {
    const DLTensor part = {.data = e->vertices + i * SWARM,
                           .ndim = 2,
                           .dtype = {kDLFloat, 32, 1},
                           .shape = (int64_t[]){SWARM, sizeof(vertex) / sizeof(float)}};
    check(mf_tensor_wrap(&part, 0, NULL, NULL, &slots[i], &err), &err);
  }
  check(mf_ring_create(slots, SLOTS, &e->ring, &err), &err);
  for (int i = 0; i < SLOTS; i++) mf_tensor_release(slots[i]);
  check(mf_gl_create(&calls, &e->gl, &err), &err);
}

/* Lua */

static void must(lua_State *lua, int rc) {
  if (rc == 0) return;
  lua_getglobal(lua, "tostring");
  lua_insert(lua, -2);
  lua_call(lua, 1, 1);
  die("script", lua_tostring(lua, -1));
}

/* The script finds the ring in `ring` and gives two global functions, `frame` and `finish`. Read anew, it finds
 * what it left in globals. */
static void load_script(engine *e) {
  must(e->lua, luaL_loadfile(e->lua, e->script));
  must(e->lua, lua_pcall(e->lua, 0, 0, 0));
}

static void run_frame(engine *e, int slot, double time) {
  int x = SIZE / 2, y = SIZE / 2;
  if (SDL_GetMouseFocus() == e->window) (void)SDL_GetMouseState(&x, &y);
  lua_getglobal(e->lua, "frame");
  lua_pushinteger(e->lua, slot + 1);
  lua_pushnumber(e->lua, time);
  lua_pushnumber(e->lua, 2.0 * x / SIZE - 1);
  lua_pushnumber(e->lua, 1 - 2.0 * y / SIZE);
  must(e->lua, lua_pcall(e->lua, 4, 0, 0));
}

/* A frame */

static int draw_frame(engine *e, double time) {
  int32_t slot;
  mf_error err;
  mf_fence fence;
  check(mf_ring_begin(e->ring, INT64_MAX, &slot, &err), &err);
  const size_t offset = (size_t)slot * SWARM * sizeof(vertex);
  run_frame(e, slot, time);
  glClear(GL_COLOR_BUFFER_BIT);
  glUseProgram(e->program);
  glBindBuffer(GL_ARRAY_BUFFER, e->buffer);
  glVertexAttribPointer(0, 4, GL_FLOAT, GL_FALSE, sizeof(vertex), (const void *)offset);
  glEnableVertexAttribArray(0);
  glDrawArrays(GL_POINTS, 0, SWARM);
  check(mf_gl_fence(e->gl, &fence, &err), &err);
  check(mf_ring_end(e->ring, &fence, MF_READ, &err), &err);
  return slot;
}

/* Marks the pixels within the rasterizer's 1/16 of a pixel around a vertex, or says whether one of them is marked. */
static int around(unsigned char *marks, const vertex *v, int mark) {
  const double x = ((double)v->x + 1) * SIZE / 2, y = ((double)v->y + 1) * SIZE / 2;
  int found = 0;
  for (int k = 0; k < 4; k++) {
    const int px = (int)(x + (k % 2 ? 0.0625 : -0.0625)), py = (int)(y + (k / 2 ? 0.0625 : -0.0625));
    if (px < 0 || px >= SIZE || py < 0 || py >= SIZE) continue;
    found |= marks[py * SIZE + px];
    if (mark) marks[py * SIZE + px] = 1;
  }
  return found;
}

/* A pixel is lit where a vertex is, and nowhere else. Returns how many are lit; -1 where that does not hold. */
static int check_pixels(const vertex *v, const unsigned char *rgb) {
  static unsigned char lit[SIZE * SIZE], near[SIZE * SIZE];
  int nlit = 0;
  memset(near, 0, sizeof near);
  for (int i = 0; i < SIZE * SIZE; i++) nlit += lit[i] = rgb[3 * i] + rgb[3 * i + 1] + rgb[3 * i + 2] > 0;
  for (int i = 0; i < SWARM; i++) {
    if (!around(lit, &v[i], 0)) return -1;
    (void)around(near, &v[i], 1);
  }
  for (int i = 0; i < SIZE * SIZE; i++)
    if (lit[i] && !near[i]) return -1;
  return nlit;
}

static void write_picture(const char *path, const unsigned char *rgb) {
  FILE *f = fopen(path, "wb");
  if (f == NULL) die("picture", path);
  fprintf(f, "P6\n%d %d\n255\n", SIZE, SIZE);
  for (int y = SIZE - 1; y >= 0; y--) fwrite(rgb + (size_t)y * SIZE * 3, 3, SIZE, f);
  fclose(f);
}

static double lua_kib(const engine *e) {
  return lua_gc(e->lua, LUA_GCCOUNT, 0) + lua_gc(e->lua, LUA_GCCOUNTB, 0) / 1024.0;
}

static int by_size(const void *a, const void *b) {
  return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* Of the last frames, with the collector stopped, the one in the middle: LuaJIT may compile in any of them, whose code
 * stays. Less memory after a frame than before means that something collected, and that there is no figure. */
static double middle_frame(double kib[MEASURED + 1]) {
  for (int i = 0; i < MEASURED; i++) {
    kib[i] = kib[i + 1] - kib[i];
    if (kib[i] < 0) die("garbage", "something collects, although the collector is stopped");
  }
  qsort(kib, MEASURED, sizeof *kib, by_size);
  return kib[MEASURED / 2];
}

static void run_counted(engine *e, int frames, const char *picture) {
  static unsigned char rgb[SIZE * SIZE * 3];
  int slot = 0, lit = 0;
  double kib[MEASURED + 1] = {0};
  mf_ledger before = {0}, after;
  for (int i = 0; i < frames; i++) {
    if (i == frames / 2) load_script(e); /* as if R was pressed */
    if (i == frames - MEASURED) {
      lua_gc(e->lua, LUA_GCCOLLECT, 0);
      lua_gc(e->lua, LUA_GCSTOP, 0);
      kib[0] = lua_kib(e);
      mf_ledger_read(&before);
    }
    slot = draw_frame(e, i / 60.0);
    if (i >= frames - MEASURED) kib[i - frames + MEASURED + 1] = lua_kib(e);
    if (i % 50 != 49 && i != frames - 1) continue;
    glPixelStorei(GL_PACK_ALIGNMENT, 1);
    glReadPixels(0, 0, SIZE, SIZE, GL_RGB, GL_UNSIGNED_BYTE, rgb);
    lit = check_pixels(e->vertices + (size_t)slot * SWARM, rgb);
    if (lit < 0) die("pixels", "they are not where the vertices are");
  }
  mf_ledger_read(&after);
  lua_gc(e->lua, LUA_GCRESTART, 0);
  printf("%d frames of %d particles: %d pixels lit, each where a particle is\n", frames, SWARM, lit);
  printf("a frame: %.2f KiB of Lua garbage, %lld new blocks of Moonferry's\n", middle_frame(kib),
         (long long)(after.blocks - before.blocks));
  if (picture != NULL) write_picture(picture, rgb);
}

static void run_window(engine *e) {
  for (SDL_Event event;;) {
    while (SDL_PollEvent(&event)) {
      if (event.type == SDL_QUIT || (event.type == SDL_KEYDOWN && event.key.keysym.sym == SDLK_ESCAPE)) return;
      if (event.type == SDL_KEYDOWN && event.key.keysym.sym == SDLK_r) load_script(e);
    }
    (void)draw_frame(e, SDL_GetTicks() / 1000.0);
    SDL_GL_SwapWindow(e->window);
  }
}

/* The script's views go first, then the fences, then the mapping. */
static void end(engine *e) {
  mf_ledger l;
  lua_getglobal(e->lua, "finish");
  must(e->lua, lua_pcall(e->lua, 0, 0, 0));
  mf_lua_close(e->lua);
  mf_ring_release(e->ring);
  glFinish();
  mf_gl_end(e->gl);
  mf_gl_release(e->gl);
  mf_releases_run();
  glUnmapNamedBuffer(e->buffer);
  SDL_GL_DeleteContext(e->context);
  SDL_DestroyWindow(e->window);
  SDL_Quit();
  mf_ledger_read(&l);
  printf("alive at the end: %lld tensors\n", (long long)l.tensors);
}

int main(int argc, char **argv) {
  engine e = {.script = argc > 1 ? argv[1] : "examples/engine/swarm.lua"};
  const int frames = argc > 2 ? atoi(argv[2]) : 0;
  open_window(&e, frames > 0 ? SDL_WINDOW_HIDDEN : 0);
  make_ring(&e);
  e.lua = luaL_newstate();
  luaL_openlibs(e.lua);
  lua_pushlightuserdata(e.lua, e.ring);
  lua_setglobal(e.lua, "ring");
  load_script(&e);
  if (frames > 0) run_counted(&e, frames, argc > 3 ? argv[3] : NULL);
  else run_window(&e);
  end(&e);
  return 0;
}
