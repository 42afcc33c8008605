/* moonferry_lua.h: passes tensors to a Lua state and gets them from it, in C programs that embed LuaJIT.
 *
 *   if (mf_lua_push(L, t) == 0) lua_setglobal(L, "vertices");   // otherwise an error message is at the top
 *   mf_tensor *t = mf_lua_check(L, 1);                          // in a lua_CFunction
 *   mf_lua_close(L);                                            // in place of lua_close
 *
 * `require "moonferry"` must work in the state, and must find the library that this program is linked with. Link the
 * program with libmoonferry and with LuaJIT (if statically, with -Wl,--export-dynamic). */
#ifndef MOONFERRY_LUA_H
#define MOONFERRY_LUA_H

#include <lauxlib.h>
#include <lua.h>
#include <moonferry.h>
#include <string.h>

/* Whether the value at ${index} is the mark by which `require` knows a module that is being loaded: a pointer or, in
 * LuaJIT 2.1, a number that no module would return. Its bits are compared: the processor may take it for 0. */
static inline int mf_lua__is_mark(lua_State *L, int index) {
  static const unsigned char mark[8] = {'s', 0, 0, 0, 0, 0, 0, 0x80};
  const lua_Number number = lua_type(L, index) == LUA_TNUMBER ? lua_tonumber(L, index) : 0;
  return lua_islightuserdata(L, index) || memcmp(&number, mark, sizeof mark) == 0;
}

/* How many modules whose names begin with ${prefix} have begun to load and have not ended; with ${forget} `require`
 * does not know of them any more. */
static inline int mf_lua__unfinished(lua_State *L, const char *prefix, int forget) {
  const int top = lua_gettop(L);
  int count = 0;
  lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
  lua_pushnil(L);
  while (lua_istable(L, -2) && lua_next(L, -2)) {
    const int is_marked = mf_lua__is_mark(L, -1) && lua_type(L, -2) == LUA_TSTRING;
    lua_pop(L, 1);
    if (!is_marked || strncmp(lua_tostring(L, -1), prefix, strlen(prefix)) != 0) continue;
    count++;
    if (!forget) continue;
    lua_pushvalue(L, -1);
    lua_pushnil(L);
    lua_rawset(L, -4);
  }
  lua_settop(L, top);
  return count;
}

/* Calls `require`, which is at the top of the stack, for ${module}, a module of Moonferry's. Raises, for instance where
 * memory ends or a hook raises meanwhile; then the module can be loaded another time, which `require` alone would
 * refuse for ever. */
static inline void mf_lua__load(lua_State *L, const char *module) {
  const int others = mf_lua__unfinished(L, "moonferry", 0); /* below us; their marks stay */
  lua_pushstring(L, module);
  if (lua_pcall(L, 1, 1, 0) == 0) return;
  if (others == 0) (void)mf_lua__unfinished(L, "moonferry", 1);
  lua_error(L);
}

/* Pushes ${name} of the Lua module ${module}. Raises. */
static inline void mf_lua__field(lua_State *L, const char *module, const char *name) {
  lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
  lua_getfield(L, -1, module);
  lua_remove(L, -2);
  if (!lua_istable(L, -1)) {
    lua_pop(L, 1);
    lua_getglobal(L, "require");
    mf_lua__load(L, module);
  }
  lua_getfield(L, -1, name);
  lua_remove(L, -2);
}

/* The box is an FFI value, mf_tensor *[1]. Lua empties it when it takes the reference over. It may already contain the
 * pointer of another call, which a hook or a finalizer has interrupted. */
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

/* mf_lua_push(L, t): pushes a Lua tensor, which has a reference of its own to ${t} until it is closed or collected; the
 * caller keeps its reference. Returns 0, or the status of lua_pcall with an error message at the top. Threads: the one
 * that uses ${L}. */
static inline int mf_lua_push(lua_State *L, mf_tensor *t) {
  lua_pushcfunction(L, mf_lua__push);
  lua_pushlightuserdata(L, t);
  return lua_pcall(L, 1, 1, 0);
}

/* mf_lua_check(L, index): returns the mf_tensor of the Lua tensor at ${index}; raises an argument error for any other
 * value and for a closed tensor. It is borrowed: call mf_tensor_retain to keep it longer than the Lua tensor is open.
 * Threads: the one that uses ${L}. */
static inline mf_tensor *mf_lua_check(lua_State *L, int index) {
  mf_tensor *t = NULL;
  lua_pushvalue(L, index); /* which may count from the top */
  mf_lua__field(L, "moonferry", "is_tensor");
  lua_pushvalue(L, -2);
  lua_call(L, 1, 1);
  int is_tensor = lua_toboolean(L, -1);
  lua_pop(L, 1);
  if (is_tensor) {
    lua_pushliteral(L, "_handle");
    lua_rawget(L, -2);
    if (lua_topointer(L, -1) != NULL) memcpy(&t, lua_topointer(L, -1), sizeof t);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  if (t == NULL) luaL_argerror(L, index, "an open Moonferry tensor is expected");
  return t;
}

/* Raises where Moonferry was not loaded. */
static inline int mf_lua__close_follows(lua_State *L) {
  lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
  lua_getfield(L, -1, "moonferry.finalizer");
  lua_getfield(L, -1, "close_follows");
  lua_call(L, 0, 0);
  return 0;
}

/* mf_lua_close(L): as lua_close. Moonferry hears of it first, so that threads of Python's that are in functions of the
 * state are waited for before anything is finalized, and finalizers which a program gave its own FFI objects (ffi.gc)
 * may close tensors and rings: LuaJIT calls these in any order, and after lua_close alone one may come before Moonferry
 * knows, and give back what is given back once more. Threads: the one that uses ${L}. */
static inline void mf_lua_close(lua_State *L) {
  (void)lua_cpcall(L, mf_lua__close_follows, NULL);
  lua_close(L);
}

#endif /* MOONFERRY_LUA_H */
