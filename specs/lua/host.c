/* host.c: a small engine that embeds LuaJIT, for the specs of moonferry.python in such a program.
 *
 * It loads a script into a state of its own, calls the script's frame(i) for some frames, closes the state, and does
 * all of it once more: a game that starts a second level. It knows nothing of Python or Moonferry. Built in three ways:
 * with LuaJIT linked statically, with its shared library, and as a plugin that a program loads for itself alone. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <string.h>

#define LEVELS 2
#define FRAMES 100

static int failed(lua_State *L) {
  lua_getglobal(L, "tostring");
  lua_insert(L, -2);
  lua_call(L, 1, 1);
  fprintf(stderr, "host: %s\n", lua_tostring(L, -1));
  return 1;
}

static int run_frames(lua_State *L) {
  for (int i = 0; i < FRAMES; i++) {
    lua_getglobal(L, "frame");
    lua_pushinteger(L, i);
    if (lua_pcall(L, 1, 0, 0) != 0) return failed(L);
  }
  return 0;
}

static int run_level(const char *script, int level) {
  lua_State *L = luaL_newstate();
  if (L == NULL) return 1;
  luaL_openlibs(L);
  lua_pushinteger(L, level);
  lua_setglobal(L, "level");
  int status = luaL_loadfile(L, script) != 0 || lua_pcall(L, 0, 0, 0) != 0 ? failed(L) : run_frames(L);
  lua_close(L);
  return status;
}

__attribute__((visibility("default"))) int host_run(const char *script);

int host_run(const char *script) {
  int status = 0;
  for (int level = 1; level <= LEVELS && status == 0; level++) status = run_level(script, level);
  return status;
}

#ifndef HOST_PLUGIN
int main(int argc, char **argv) {
  return argc == 2 ? host_run(argv[1]) : 2;
}
#endif
