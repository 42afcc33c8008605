/* luajit_host.c: a game for Windows that embeds LuaJIT, as docs/platforms.md and docs/engines.md tell its author.
 *
 * Its memory becomes a tensor, which a script fills; a tensor of the script's comes back; a second state does it all
 * again. It prints how many cases passed, and ends with 1 if one did not. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <moonferry_lua.h>
#include <stdio.h>

static const char *const script =
  "local mf = require 'moonferry'\n"
  "for i = 0, vertices.shape[1] - 1 do vertices:set(i, 0, i * 0.5) end\n"
  "local sum = 0\n"
  "for i = 0, vertices.shape[1] - 1 do sum = sum + vertices:get(i, 0) end\n"
  "assert(sum == 999 * 1000 / 4)\n"
  "return mf.zeros({ 3, 4 }, 'uint8')\n";

static void on_release(void *user) {
  ++*(int *)user;
}

static int failed(const char *text) {
  fprintf(stderr, "luajit_host: %s\n", text);
  return 1;
}

static int give(lua_State *L, float *vertices, int *released) {
  int64_t shape[] = {1000, 4};
  DLTensor view = {.data = vertices, .ndim = 2, .shape = shape, .dtype = {kDLFloat, 32, 1}};
  mf_tensor *t;
  mf_error err;
  if (mf_tensor_wrap(&view, 0, on_release, released, &t, &err) != MF_OK) return failed(err.message);
  int status = mf_lua_push(L, t);
  mf_tensor_release(t);
  if (status != 0) return failed(lua_tostring(L, -1));
  lua_setglobal(L, "vertices");
  return 0;
}

static int play(lua_State *L) {
  static float vertices[1000][4];
  int released = 0;
  luaL_openlibs(L);
  if (give(L, vertices[0], &released) != 0) return 1;
  if (luaL_loadstring(L, script) != 0 || lua_pcall(L, 0, 1, 0) != 0) return failed(lua_tostring(L, -1));
  if (vertices[999][0] != 499.5f || vertices[999][1] != 0) return failed("the script's numbers are not here");
  mf_tensor *back = mf_lua_check(L, -1);
  if (mf_tensor_dltensor(back)->shape[1] != 4) return failed("the script's tensor has another shape");
  lua_close(L);
  return released == 1 ? 0 : failed("the memory was not given back when the state was closed");
}

int main(void) {
  int passed = 0, levels = 2;
  for (int level = 0; level < levels; level++) {
    lua_State *L = luaL_newstate();
    if (L != NULL && play(L) == 0) passed++;
  }
  printf("alone: %d passed\n", passed);
  return passed == levels ? 0 : 1;
}
