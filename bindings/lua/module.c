/* module.c: the Lua C module moonferry_bridge, for a Lua process that hosts CPython.
 *
 * Before it is loaded, libpython must be in the process's global scope; lua/moonferry/python.lua sees to
 * that. Must not know: how values cross (bindings/bridge). */
#include <stdlib.h>
#include <string.h>

#include "copy.h"
#include "start.h"

/* start(program or nil): makes sure that Python runs. True if it was started, false if it ran already; nil and a
 * message if it cannot. */
static int module_start(lua_State *L) {
  char why[512];
  int status = mf__python_start(luaL_optstring(L, 1, NULL), why, sizeof why);
  if (status < 0) {
    lua_pushnil(L);
    lua_pushstring(L, why);
    return 2;
  }
  lua_pushboolean(L, status);
  return 1;
}

/* Whether Python has ended, or is about to. */
static int module_ended(lua_State *L) {
  lua_pushboolean(L, mf__door != MF__DOOR_OPEN);
  return 1;
}

static int module_arm(lua_State *L) {
  (void)L;
  mf__python_arm_farewell();
  return 0;
}

/* Runs at lua_close, which comes before exit in most programs: registers what has to run first at exit. */
static void arm_at_close(lua_State *L) {
  lua_newuserdata(L, 1);
  lua_newtable(L);
  lua_pushcfunction(L, module_arm);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_setfield(L, LUA_REGISTRYINDEX, "moonferry.python.close");
}

/* Objects have another layout in a CPython without the GIL, and there is no stable ABI of it; or NULL. */
static const char *why_not_this_python(void) {
  const char *const found = Py_GetVersion();
  const int is_free = strstr(found, "free-threading build") != NULL;
#ifdef Py_GIL_DISABLED
  const size_t length = strcspn(PY_VERSION, ".") + 1;
  const size_t both = length + strcspn(PY_VERSION + length, ".") + 1;
  if (!is_free || strncmp(found, PY_VERSION, both) != 0) return "a free-threaded CPython " PY_VERSION;
#else
  if (is_free) return "a CPython with the GIL";
#endif
  return NULL;
}

__attribute__((visibility("default"))) int luaopen_moonferry_bridge(lua_State *L);

int luaopen_moonferry_bridge(lua_State *L) {
  if (strcmp(mf_build_id(), MF_BUILD_ID) != 0) {
    return luaL_error(L, "moonferry_bridge was built with libmoonferry %s, but the process has %s", MF_BUILD_ID,
                      mf_build_id());
  }
  const char *const wanted = why_not_this_python();
  if (wanted != NULL) {
    return luaL_error(L, "moonferry_bridge was built for %s, but this process has CPython %s; install Moonferry there",
                      wanted, Py_GetVersion());
  }
  static const luaL_Reg functions[] = {
      {"start", module_start}, {"arm", module_arm}, {"ended", module_ended}, {"open", mf__bridge_open},
      {"close_begins", mf__bridge_close_begins}, {NULL, NULL}};
  /* Python keeps pointers to code of ours, and exit comes after lua_close has closed this module. */
  mf__python_pin((void *)(uintptr_t)luaopen_moonferry_bridge, 0);
  mf__after_import = mf__python_imported;
  arm_at_close(L);
  lua_newtable(L);
  for (const luaL_Reg *function = functions; function->name; function++) {
    lua_pushcfunction(L, function->func);
    lua_setfield(L, -2, function->name);
  }
  return 1;
}
