/* shared.c: one memory that NumPy, Vulkan and OpenGL use in turn, and nobody copies.
 *
 *   make shared                          in a window; Escape ends
 *   shared SCRIPT [FRAMES [PICTURE]]     so many frames; the script checks each byte, and a picture is written
 *
 * Vulkan allocates it. It is a tensor, in which shared.lua has NumPy paint a quarter of a picture; Vulkan mirrors that
 * into the rest of the memory; OpenGL, which has imported the memory, draws it from there. A timeline semaphore and
 * OpenGL's fences say when the next one may begin. */
#include "shared.h"

#include <lauxlib.h>
#include <lualib.h>
#include <moonferry_lua.h>
#include <stdio.h>
#include <stdlib.h>

void die(const char *what, const char *why) {
  fprintf(stderr, "shared: %s: %s\n", what, why);
  exit(1);
}

static void check(int rc, const mf_error *err) {
  if (rc != MF_OK) die(err->call, err->message);
}

typedef struct program {
  lua_State *lua;
  vulkan vulkan;
  opengl opengl;
  mf_vulkan *vk;
  mf_vulkan_timeline *timeline;
  mf_gl *gl;
  mf_tensor *memory;
} program;

static void must(lua_State *lua, int rc) {
  if (rc == 0) return;
  lua_getglobal(lua, "tostring");
  lua_insert(lua, -2);
  lua_call(lua, 1, 1);
  die("script", lua_tostring(lua, -1));
}

static void open_all(program *p, const char *script, bool hidden) {
  mf_error err;
  open_vulkan(&p->vulkan);
  const mf_vulkan_device of = {p->vulkan.instance, p->vulkan.physical, p->vulkan.device, vkGetInstanceProcAddr, NULL};
  const mf_vulkan_memory memory = {p->vulkan.memory, NBYTES, p->vulkan.type};
  const DLTensor like = {.ndim = 1, .shape = (int64_t[]){NBYTES}, .dtype = {kDLUInt, 8, 1}};
  check(mf_vulkan_open(&of, &p->vk, &err), &err);
  check(mf_vulkan_wrap(p->vk, &memory, &like, &p->memory, &err), &err);
  check(mf_vulkan_timeline_open(p->vk, p->vulkan.timeline, &p->timeline, &err), &err);
  open_opengl(&p->opengl, export_memory(&p->vulkan), hidden);
  check(mf_gl_create(&p->opengl.calls, &p->gl, &err), &err);
  p->lua = luaL_newstate();
  luaL_openlibs(p->lua);
  must(p->lua, mf_lua_push(p->lua, p->memory));
  lua_setglobal(p->lua, "memory");
  must(p->lua, luaL_loadfile(p->lua, script));
  must(p->lua, lua_pcall(p->lua, 0, 0, 0));
}

/* Each of the three waits for the one before it, and for nothing else. */
static void draw_frame(program *p, uint64_t frame, double time) {
  mf_error err;
  mf_fence fence;
  int32_t done;
  check(mf_tensor_acquire(p->memory, MF_STREAM_HOST, MF_WRITE, &err), &err); /* OpenGL may still read the last one */
  lua_getglobal(p->lua, "paint");
  lua_pushnumber(p->lua, time);
  must(p->lua, lua_pcall(p->lua, 1, 0, 0));
  mirror(&p->vulkan, frame);
  fence = mf_vulkan_reached(p->timeline, frame);
  check(mf_tensor_fence(p->memory, &fence, MF_WRITE, &err), &err);
  check(mf_tensor_fence_wait(p->memory, MF_READ, INT64_MAX, &done, &err), &err);
  draw(&p->opengl);
  check(mf_gl_fence(p->gl, &fence, &err), &err);
  check(mf_tensor_fence(p->memory, &fence, MF_READ, &err), &err);
}

/* The script compares what OpenGL drew with what it painted. */
static void check_frame(program *p) {
  const DLTensor like = {.ndim = 3, .shape = (int64_t[]){SIZE, SIZE, 4}, .dtype = {kDLUInt, 8, 1}};
  mf_tensor *pixels;
  mf_error err;
  check(mf_tensor_create(&like, 0, &pixels, &err), &err);
  read_pixels(mf_tensor_dltensor(pixels)->data);
  lua_getglobal(p->lua, "compare");
  must(p->lua, mf_lua_push(p->lua, pixels));
  must(p->lua, lua_pcall(p->lua, 1, 0, 0));
  mf_tensor_release(pixels);
}

static void write_picture(const char *path) {
  static unsigned char rgba[SIZE * SIZE * 4];
  FILE *f = fopen(path, "wb");
  if (f == NULL) die("picture", path);
  read_pixels(rgba);
  fprintf(f, "P6\n%d %d\n255\n", SIZE, SIZE);
  for (int y = SIZE - 1; y >= 0; y--)
    for (int x = 0; x < SIZE; x++) fwrite(rgba + 4 * ((size_t)y * SIZE + (size_t)x), 3, 1, f);
  fclose(f);
}

static void run_counted(program *p, int frames, const char *picture) {
  for (int i = 1; i <= frames; i++) {
    draw_frame(p, (uint64_t)i, i / 60.0);
    if (i % 10 == 0 || i == frames) check_frame(p);
  }
  if (picture != NULL) write_picture(picture);
  printf("%d frames: NumPy, Vulkan and OpenGL agree on each of %d pixels\n", frames, SIZE * SIZE);
}

/* Python's views go first, then OpenGL, then the memory, then Vulkan. */
static void end(program *p) {
  mf_ledger l;
  mf_lua_close(p->lua);
  glFinish();
  mf_gl_end(p->gl);
  mf_gl_release(p->gl);
  close_opengl(&p->opengl);
  wait_idle(&p->vulkan);
  mf_tensor_release(p->memory);
  if (mf_vulkan_end(p->vk) != 0) die("Vulkan", "its memory is still in use");
  mf_vulkan_timeline_release(p->timeline);
  mf_vulkan_release(p->vk);
  close_vulkan(&p->vulkan);
  mf_ledger_read(&l);
  printf("alive at the end: %lld tensors\n", (long long)l.tensors);
}

int main(int argc, char **argv) {
  program p = {0};
  const int frames = argc > 2 ? atoi(argv[2]) : 0;
  open_all(&p, argc > 1 ? argv[1] : "examples/shared/shared.lua", frames > 0);
  if (frames > 0) run_counted(&p, frames, argc > 3 ? argv[3] : NULL);
  for (uint64_t i = 1; frames == 0 && !wants_to_end(&p.opengl); i++) draw_frame(&p, i, seconds());
  end(&p);
  return 0;
}
