/* object.c: a Python object in Lua, as moonferry.python has it.
 *
 *   o.name, o.name = v   attribute; so is o["any string"]
 *   o[key]               item, for keys that are not strings: o[0] is the first one (py.get takes any key)
 *   f(a, b, py.kw{c=1})  call
 *   o:method(a)          call of the attribute; as o.method(o, a) is the same to Lua, a callable that was
 *                        read from o leaves o out when o comes first
 *   tostring(o)          str(), which must be UTF-8; bindings/bridge/operate.c has the operators */
#include "copy.h"

/* Remembers what a callable was read from, the Python object at 1, unless that was closed meanwhile. Bound methods keep
 * it alive anyway, so they are closed with it. */
static void set_origin(lua_State *L, PyObject *origin) {
  mf__ref *source = *(mf__ref **)lua_touserdata(L, 1);
  if (source == NULL || source->object != origin) return;
  mf__ref *ref = mf__ref_at(L, -1);
  if (ref != NULL && PyCallable_Check(ref->object)) mf__ref_read_from(ref, source);
}

static int object_index(lua_State *L) {
  mf__check_interrupt(L);
  PyObject *object = mf__held_at(L, 1), *value;
  PyObject *key = mf__hold(L, mf__to_python(L, 2));
  if (lua_type(L, 2) == LUA_TSTRING) {
    MF__OUTSIDE(value, PyObject_GetAttr(object, key));
    mf__to_lua(L, value);
    set_origin(L, object);
  } else {
    MF__OUTSIDE(value, PyObject_GetItem(object, key));
    mf__to_lua(L, value);
  }
  return 1;
}

static int object_newindex(lua_State *L) {
  mf__check_interrupt(L);
  PyObject *object = mf__held_at(L, 1);
  PyObject *key = mf__hold(L, mf__to_python(L, 2));
  PyObject *value = mf__hold(L, mf__to_python(L, 3));
  int attribute = lua_type(L, 2) == LUA_TSTRING;
  int failed;
  MF__OUTSIDE(failed, attribute ? PyObject_SetAttr(object, key, value) : PyObject_SetItem(object, key, value));
  if (failed) mf__raise(L);
  return 0;
}

/* The dict of the keyword table at ${index}, or NULL if that is no such table. */
static PyObject *keywords_at(lua_State *L, int index) {
  if (lua_type(L, index) != LUA_TTABLE || !lua_getmetatable(L, index)) return NULL;
  lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_KEYWORDS);
  int same = lua_rawequal(L, -1, -2);
  lua_pop(L, 2);
  return same ? mf__hold(L, mf__to_dict(L, index, 1)) : NULL;
}

static int object_call(lua_State *L) {
  mf__ref *ref = mf__ref_check(L, 1);
  int first = 2;
  int last = lua_gettop(L);
  mf__ref *self = ref->origin != NULL ? mf__ref_at(L, 2) : NULL;
  if (self != NULL && self->object == ref->origin) first = 3;
  PyObject *callee = mf__held_at(L, 1), *result;
  PyObject *keywords = last >= first ? keywords_at(L, last) : NULL;
  PyObject *args = mf__hold(L, mf__to_tuple(L, first, keywords ? last - 1 : last));
  mf__check_interrupt(L);
  MF__OUTSIDE(result, PyObject_Call(callee, args, keywords));
  mf__to_lua(L, result);
  return 1;
}

static int object_tostring(lua_State *L) {
  PyObject *object = mf__held_at(L, 1), *text;
  MF__OUTSIDE(text, PyObject_Str(object));
  if (mf__push_utf8(L, mf__hold(L, text))) return 1; /* also one of a class below str */
  if (!answer_is_no()) mf__raise(L);
  return mf__fail(L, "str() of this object is not UTF-8");
}

const luaL_Reg mf__copy_events[] = {{"__index", object_index},
                                    {"__newindex", object_newindex},
                                    {"__call", object_call},
                                    {"__tostring", object_tostring},
                                    {NULL, NULL}};
