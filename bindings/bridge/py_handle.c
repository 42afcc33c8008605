/* py_handle.c: makes the userdata that stands for a Python object in Lua, and the Lua functions that are bodies.
 *
 * Invariant: a userdata owns one mf__ref, or none once it was closed or collected. Must not know: what Lua may do with
 * the object. */
#include "handle.h"

int mf__bridge_knows(const mf__bridge *bridge, const void *metatable) {
  if (metatable == bridge->object || metatable == bridge->fault) return 1;
  for (const mf__bridge *other = bridge->state->bridges; other != NULL; other = other->next) {
    if (metatable == other->object || metatable == other->fault) return 1;
  }
  return 0;
}

int mf__is_object(lua_State *L, int index) {
  if (lua_type(L, index) != LUA_TUSERDATA || !lua_getmetatable(L, index)) return 0;
  const void *metatable = lua_topointer(L, -1);
  lua_pop(L, 1);
  return mf__bridge_knows(mf__top->bridge, metatable);
}

mf__ref *mf__ref_at(lua_State *L, int index) {
  if (!mf__is_object(L, index)) return NULL;
  mf__ref **box = lua_touserdata(L, index);
  if (*box == NULL || (*box)->object == NULL)
    mf__fail(L, "this Python object was closed: it is a deleted python object");
  return *box;
}

mf__ref *mf__ref_check(lua_State *L, int index) {
  mf__ref *ref = mf__ref_at(L, index);
  if (ref == NULL) mf__fail(L, "a Python object is expected, not a %s", luaL_typename(L, index));
  return ref;
}

PyObject *mf__held_at(lua_State *L, int index) {
  PyObject *object = mf__ref_check(L, index)->object;
  Py_IncRef(object);
  return mf__hold(L, object);
}

mf__ref *mf__unprotected_ref(lua_State *L, const mf__bridge *bridge, int index) {
  mf__ref **box = lua_touserdata(L, index);
  if (box == NULL || !lua_getmetatable(L, index)) return NULL;
  const void *metatable = lua_topointer(L, -1);
  lua_pop(L, 1);
  if (!mf__bridge_knows(bridge, metatable) || *box == NULL) return NULL;
  return (*box)->object != NULL ? *box : NULL;
}

PyObject *mf__fault_exception(lua_State *L, int index) {
  if (!mf__is_object(L, index)) return NULL;
  mf__ref **box = lua_touserdata(L, index);
  return *box && (*box)->object && PyExceptionInstance_Check((*box)->object) ? (*box)->object : NULL;
}

void mf__push_object(lua_State *L, PyObject *object) {
  mf__weigh(L, mf__push_ref(L, object, MF__BRIDGE_OBJECT));
}

void mf__wrap(lua_State *L, PyObject *object) {
  mf__push_object(L, mf__hold(L, object));
  mf__drop();
}

/* Runs without the GIL, on whichever thread collects; hence no mf__enter. */
static int object_gc(lua_State *L) {
  mf__ref **box = lua_touserdata(L, 1);
  if (*box != NULL) mf__ref_retire(*box);
  *box = NULL;
  return 0;
}

void mf__handle_metatable(lua_State *L) {
  lua_pushcfunction(L, object_gc);
  lua_setfield(L, -2, "__gc");
  /* Out of reach, so that no script can hand a finalizer something else. */
  lua_pushliteral(L, "python object");
  lua_setfield(L, -2, "__metatable");
}

void mf__push_entry(lua_State *L, lua_CFunction enter, lua_CFunction body, int bridge) {
  lua_pushvalue(L, bridge);
  lua_pushcclosure(L, body, 1);
  lua_rawgeti(L, bridge, MF__BRIDGE_STATE);
  lua_pushcclosure(L, enter, 2);
}

void mf__push_verb(lua_State *L, lua_CFunction body, int bridge) {
  mf__push_entry(L, mf__enter, body, bridge);
}

void mf__put_verbs(lua_State *L, const luaL_Reg *verbs, int bridge) {
  for (const luaL_Reg *verb = verbs; verb->name; verb++) {
    mf__push_verb(L, verb->func, bridge);
    lua_setfield(L, -2, verb->name);
  }
}
