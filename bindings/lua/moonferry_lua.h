/* moonferry_lua.h: for programs in C that embed LuaJIT: hands tensors to a Lua state and takes them from it.
 *
 *   if (mf_lua_push(L, t) == 0) lua_setglobal(L, "vertices");   // else an error message is at the top, as of lua_pcall
 *   mf_tensor *t = mf_lua_check(L, 1);                          // in a lua_CFunction
 *
 * The state must be able to `require "moonferry"`, and that must find the library that this program is linked with.
 * Link with libmoonferry and with LuaJIT (statically: -Wl,--export-dynamic). */
#ifndef MOONFERRY_LUA_H
#define MOONFERRY_LUA_H

#include <lauxlib.h>
#include <lua.h>
#include <moonferry.h>
#include <string.h>

/* Pushes ${name} of the Lua module ${module}. Raises. */
static inline void mf_lua__field(lua_State *L, const char *module, const char *name) {
  lua_getglobal(L, "require");
  lua_pushstring(L, module);
  lua_call(L, 1, 1);
  lua_getfield(L, -1, name);
  lua_remove(L, -2);
}

/* The box is an FFI value, mf_tensor *[1], which whoever takes the reference over empties. What lies in it may be that
 * of another call, which a hook or a finalizer has interrupted. */
static inline int mf_lua__push(lua_State *L) {
  mf_tensor *t = (mf_tensor *)lua_touserdata(L, 1), *before, *left;
  mf_lua__field(L, "moonferry.crossing", "box");
  void *box = (void *)(uintptr_t)lua_topointer(L, -1);
  mf_lua__field(L, "moonferry.crossing", "adopt");
  memcpy(&before, box, sizeof before);
  mf_tensor_retain(t);
  memcpy(box, &t, sizeof t);
  int status = lua_pcall(L, 0, 1, 0);
  memcpy(&left, box, sizeof left);
  memcpy(box, &before, sizeof before);
  if (status == 0) return 1;
  mf_tensor_release(left);
  return lua_error(L);
}

/* mf_lua_push(L, t): pushes a Lua tensor over the memory of ${t}, which has a reference of its own until it is closed
 * or collected: the caller keeps the one it has. Returns 0, or the status of lua_pcall with an error message at the
 * top. Threads: the one that has ${L}. */
static inline int mf_lua_push(lua_State *L, mf_tensor *t) {
  lua_pushcfunction(L, mf_lua__push);
  lua_pushlightuserdata(L, t);
  return lua_pcall(L, 1, 1, 0);
}

/* mf_lua_check(L, index): the tensor of the Lua tensor at ${index}; raises an argument error for anything else, and for
 * one that was closed. It is borrowed: mf_tensor_retain it to keep it longer than that value is open. Threads: the one
 * that has ${L}. */
static inline mf_tensor *mf_lua_check(lua_State *L, int index) {
  mf_tensor *t = NULL;
  lua_pushvalue(L, index); /* which may count from the top */
  mf_lua__field(L, "moonferry", "is_tensor");
  lua_pushvalue(L, -2);
  lua_call(L, 1, 1);
  int is_tensor = lua_toboolean(L, -1);
  lua_pop(L, 1);
  if (is_tensor) {
    lua_pushliteral(L, "handle");
    lua_rawget(L, -2);
    if (lua_topointer(L, -1) != NULL) memcpy(&t, lua_topointer(L, -1), sizeof t);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  if (t == NULL) luaL_argerror(L, index, "an open Moonferry tensor is expected");
  return t;
}

#endif /* MOONFERRY_LUA_H */
