/* scope.c: what Lua got of Python while a scope was open, and lets go of at its end.
 *
 * Which scope is whose is Lua's to say (lua/moonferry/scope.lua). Invariant: a reference is of one scope or none, and
 * leaves it when it is given back; a scope that is never ended goes with its state. Must not know: what the objects
 * are. */
#include "handle.h"

int mf__scope_is_open(const mf__state *state, const void *scope) {
  const mf__scope *found = state->scopes;
  while (found != NULL && found != scope) found = found->next;
  return found != NULL;
}

/* Leaves the innermost scope's userdata at the top: the field `guest` of what the table there has for this coroutine.
 * Where the coroutine has no scope the top is no userdata; the caller resets the stack in either case. For the main
 * coroutine the key is "main", unless LuaJIT has Lua 5.2's coroutine.running. */
static void push_innermost(lua_State *L) {
  int is_main = lua_pushthread(L);
  lua_rawget(L, -2);
  if (is_main && lua_isnil(L, -1)) {
    lua_pop(L, 1);
    lua_getfield(L, -1, "main");
  }
  if (!lua_istable(L, -1)) return;
  lua_pushliteral(L, "guest");
  lua_rawget(L, -2);
}

void mf__scopes_of(lua_State *L, mf__state *state, int innermost) {
  if (state->innermost != 0) luaL_unref(L, LUA_REGISTRYINDEX, state->innermost);
  lua_pushvalue(L, innermost);
  state->innermost = luaL_ref(L, LUA_REGISTRYINDEX);
}

static void push_scopes(lua_State *L, const mf__state *state) {
  lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_SCOPES);
  if (!lua_istable(L, -1)) lua_rawgeti(L, LUA_REGISTRYINDEX, state->innermost);
}

void mf__scope_register(lua_State *L, mf__ref *ref) {
  mf__state *state = mf__top->state;
  if (state->scopes == NULL || !lua_checkstack(L, 4)) return;
  int top = lua_gettop(L);
  push_scopes(L, state);
  if (lua_istable(L, -1)) push_innermost(L);
  void *scope = lua_touserdata(L, -1);
  lua_settop(L, top);
  if (scope != NULL && mf__scope_is_open(state, scope)) mf__ref_enter(ref, scope);
}

void mf__close_ref(mf__ref *ref) {
  PyObject *held[2];
  mf__ref_empty(ref, held);
  mf__let_go(held[0]);
  mf__let_go(held[1]);
}

/* What comes first each time, because letting go of it may run any code, which may close others. */
void mf__close_callables(mf__ref *ref) {
  while (ref->callables != NULL) mf__close_ref(ref->callables);
}
