/* unprotected.c: converts without a protected call, where nothing can fail in Lua.
 *
 * Most calls pass numbers and take one back; a protected call for each conversion would cost more than the call.
 * Invariant: nothing here allocates in Lua, runs Lua code or raises. Must not know: whether a call into Lua or a
 * peek asks. */
#include "value.h"

#include <stdint.h>
#include <string.h>

static int push_value(lua_State *L, const mf__bridge *bridge, const mf__value *value) {
  if (value->state != bridge->state) return 0;
  lua_rawgeti(L, LUA_REGISTRYINDEX, value->ref);
  return !lua_isnil(L, -1);
}

int mf__unprotected_push(lua_State *L, const mf__bridge *bridge, PyObject *object) {
  return mf__peek_push(L, bridge, object) || mf__tensor_unprotected_push(L, bridge, object);
}

static int take_object(lua_State *L, const mf__bridge *bridge, int index, PyObject **result) {
  mf__ref *ref = mf__unprotected_ref(L, bridge, index);
  if (ref == NULL) return 0;
  *result = ref->object;
  Py_IncRef(*result);
  return 1;
}

int mf__unprotected_take(lua_State *L, const mf__bridge *bridge, int index, PyObject **result) {
  if (mf__plain_take(L, bridge, index, result)) return 1;
  switch (lua_type(L, index)) {
    case LUA_TUSERDATA:
      return take_object(L, bridge, index, result);
    case LUA_TTABLE:
      return mf__tensor_unprotected_take(L, bridge, index, result);
    default:
      return 0;
  }
}

/* A tensor may be closed, which is an error. */
int mf__peek_push(lua_State *L, const mf__bridge *bridge, PyObject *object) {
  if (mf__plain_push(L, bridge, object)) return 1;
  return mf__is_value(object) && push_value(L, bridge, (mf__value *)object);
}

/* Whether the string at ${index} is ASCII, which Python decodes without an error: eight bytes at a time, because a look
 * at each alone takes longer than the call into Lua that it saves. */
static int is_ascii(lua_State *L, int index) {
  size_t size;
  const char *text = lua_tolstring(L, index, &size);
  uint64_t word, any = 0;
  for (; size >= sizeof word; size -= sizeof word, text += sizeof word) {
    memcpy(&word, text, sizeof word);
    any |= word;
  }
  for (; size > 0; size--) any |= (unsigned char)*text++;
  return (any & UINT64_C(0x8080808080808080)) == 0;
}

int mf__peek_take(lua_State *L, const mf__bridge *bridge, int index, PyObject **result) {
  if (lua_type(L, index) == LUA_TSTRING && mf__is_utf8(bridge) && !is_ascii(L, index)) return 0;
  return mf__unprotected_take(L, bridge, index, result);
}

int mf__peek_table(lua_State *L, const mf__value *value) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, value->ref);
  return lua_istable(L, -1) && !lua_getmetatable(L, -1);
}

int mf__peek_key(lua_State *L, const mf__bridge *bridge, PyObject *key) {
  if (key == Py_None) return 0;
  return mf__key_push(L, bridge, key) || mf__plain_push(L, bridge, key);
}
