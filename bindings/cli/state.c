/* state.c: the program's Lua state: made, taught where Moonferry's Lua files lie, and called with a traceback.
 *
 * Invariant: `require "moonferry"` gives the files that belong to this program, whatever LUA_PATH says, and needs
 * no variable. It must not know the command line. */
#include <string.h>

#include "cli.h"
#include "host.h"

/* LUA_NOENV is how luajit's own -E tells its libraries. */
static void refuse_environment(lua_State *L) {
  lua_pushboolean(L, 1);
  lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
}

/* Ours come first: the files and the library must be of one build, and the folder holds nothing else. */
static void add_path(lua_State *L) {
  const char *package = cli_package();
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "path");
  const char *path = lua_tostring(L, -1);
  if (package != NULL) {
    lua_pushfstring(L, "%s/lua/?.lua;%s/lua/?/init.lua;%s", package, package, path != NULL ? path : "");
    lua_setfield(L, -3, "path");
  }
  lua_pop(L, 2);
}

static int open_all(lua_State *L) {
  const bool *environment = lua_touserdata(L, 1);
  if (!*environment) refuse_environment(L);
  luaL_openlibs(L);
  add_path(L);
  return 0;
}

lua_State *host_open(bool environment) {
  lua_State *L = luaL_newstate();
  if (L == NULL) return NULL;
  lua_gc(L, LUA_GCSTOP, 0);
  const int status = lua_cpcall(L, open_all, &environment);
  lua_gc(L, LUA_GCRESTART, -1);
  host_report(L, status);
  return L;
}

/* sys.exit that nobody caught ends the program as it ends Python. */
static void leave_if_asked(lua_State *L) {
  static const char code[] =
      "local e = ...\n"
      "if e.type ~= 'SystemExit' then return end\n"
      "local status = e.code\n"
      "if type(status) == 'userdata' and tostring(status) == 'None' then status = 0 end\n"
      "if type(status) == 'boolean' then status = status and 1 or 0 end\n"
      "if type(status) ~= 'number' then io.stderr:write(tostring(status), '\\n') status = 1 end\n"
      "os.exit(status)\n";
  const int top = lua_gettop(L);
  if (luaL_loadbuffer(L, code, sizeof code - 1, "=moonferry") == 0) {
    lua_pushvalue(L, 1);
    lua_pcall(L, 1, 0, 0);
  }
  lua_settop(L, top);
}

/* An error that is no string stays what it is if nothing says how to print it. */
static int with_traceback(lua_State *L) {
  if (lua_type(L, 1) == LUA_TUSERDATA) leave_if_asked(L);
  if (!lua_isstring(L, 1)) {
    if (!luaL_callmeta(L, 1, "__tostring")) return 1;
    if (!lua_isstring(L, -1)) {
      lua_pop(L, 1);
      return 1;
    }
    lua_replace(L, 1);
  }
  luaL_traceback(L, L, lua_tostring(L, 1), 1);
  return 1;
}

int host_call(lua_State *L, int arguments, int results) {
  const int handler = lua_gettop(L) - arguments;
  lua_pushcfunction(L, with_traceback);
  lua_insert(L, handler);
  const int status = lua_pcall(L, arguments, results, handler);
  lua_remove(L, handler);
  if (status != 0) lua_gc(L, LUA_GCCOLLECT, 0);
  return status;
}

static const char *report_prefix = "moonferry: ";

void host_prefix(const char *prefix) {
  report_prefix = prefix;
}

int host_report(lua_State *L, int status) {
  if (status == 0) return 0;
  fflush(stdout);
  const char *message = lua_tostring(L, -1);
  if (message != NULL)
    fprintf(stderr, "%s%s\n", report_prefix, message);
  else
    fprintf(stderr, "%s(error object is %s)\n", report_prefix, lua_isnil(L, -1) ? "nil" : "not a string");
  fflush(stderr);
  lua_pop(L, 1);
  return status;
}

int host_require(lua_State *L, const char *name) {
  lua_getglobal(L, "require");
  lua_pushstring(L, name);
  return host_report(L, host_call(L, 1, 1));
}
