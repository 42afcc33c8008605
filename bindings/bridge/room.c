/* room.c: makes room on Lua's stacks and keeps references in Lua's registry, where Lua's memory may end at any moment.
 *
 * A memory error outside of a protected call ends the process, or jumps over Python's frames to the next protected
 * call. So nothing that allocates is called outside of one: values are pushed there only where there is room already.
 * A stack that is at its end grows with any push; hence mf__room. A Lua table that runs out of memory while it grows
 * loses entries; hence mf__anchor. Must not know: which values are pushed. */
#include <stdio.h>

#include "thread.h"

void mf__slots(lua_State *L, int count, const char *too_many) {
  const mf__memory *memory = mf__top != NULL ? mf__top->state->memory : NULL;
  const size_t refused = memory != NULL ? memory->refused : 0;
  if (lua_checkstack(L, count)) return;
  if (memory == NULL || memory->refused == refused) {
    luaL_checkstack(L, count, too_many); /* which fails, and words it */
    return;
  }
  lua_pushliteral(L, "not enough memory");
  lua_error(L);
}

/* lua_cpcall calls it with LUA_MINSTACK slots of its own above the stack's top, which stay when it has returned. */
static int grow(lua_State *L) {
  const int *count = lua_touserdata(L, 1);
  mf__slots(L, *count, "too many values");
  return 0;
}

int mf__grow(lua_State *L, int count) {
  return lua_cpcall(L, grow, &count);
}

int mf__room(lua_State *L, int count) {
  return mf__has_room(L, count) ? 0 : mf__grow(L, count);
}

int mf__anchor(lua_State *L, mf__state *state) {
  mf__memory *memory = state->memory;
  if (memory != NULL) memory->exempt = 1;
  int ref = luaL_ref(L, LUA_REGISTRYINDEX);
  if (memory != NULL) memory->exempt = 0;
  return ref;
}

/* The registry's list of free references begins in its slot 0, which is there from now on: giving one back is then
 * nothing but assignments to slots that exist. */
void mf__anchors_open(lua_State *L) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, 0);
  if (lua_isnil(L, -1)) {
    lua_pushnumber(L, 0);
    lua_rawseti(L, LUA_REGISTRYINDEX, 0);
  }
  lua_pop(L, 1);
}

/* Says what happened before the process ends. No call of ours leads here. */
int mf__panic(lua_State *L) {
  const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "an error that is no text";
  fprintf(stderr, "moonferry: Lua raised an error outside of a protected call, which ends the process: %s\n", text);
  return 0;
}
