/* quick.c: what crosses without a protected call, because nothing about it can fail in Lua.
 *
 * Most calls pass numbers and take one back; a protected call for each conversion would cost more than the call.
 * Invariant: nothing here allocates in Lua, runs Lua code or raises. Must not know: whether a visit or a glance asks.
 */
#include "value.h"

static int push_value(lua_State *L, const mf__kit *kit, const mf__value *value) {
  if (value->state != kit->state) return 0;
  lua_rawgeti(L, LUA_REGISTRYINDEX, value->ref);
  if (!lua_isnil(L, -1)) return 1;
  lua_pop(L, 1);
  return 0;
}

int mf__quick_push(lua_State *L, const mf__kit *kit, PyObject *object) {
  if (mf__plain_push(L, kit, object)) return 1;
  if (mf__is_value(object)) return push_value(L, kit, (mf__value *)object);
  return mf__tensor_quick_push(L, kit, object);
}

static int take_object(lua_State *L, const mf__kit *kit, int index, PyObject **result) {
  mf__ref *ref = mf__quick_ref(L, kit, index);
  if (ref == NULL) return 0;
  *result = ref->object;
  Py_IncRef(*result);
  return 1;
}

int mf__quick_take(lua_State *L, const mf__kit *kit, int index, PyObject **result) {
  if (mf__plain_take(L, kit, index, result)) return 1;
  switch (lua_type(L, index)) {
    case LUA_TUSERDATA:
      return take_object(L, kit, index, result);
    case LUA_TTABLE:
      return mf__tensor_quick_take(L, kit, index, result);
    default:
      return 0;
  }
}

int mf__glance_table(lua_State *L, const mf__value *value) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, value->ref);
  return lua_istable(L, -1) && !lua_getmetatable(L, -1);
}

int mf__glance_key(lua_State *L, const mf__kit *kit, PyObject *key) {
  if (key == Py_None) return 0;
  return mf__key_push(L, kit, key) || mf__plain_push(L, kit, key);
}
