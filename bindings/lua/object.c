/* object.c: the userdata that stands for a Python object in Lua.
 *
 *   o.name, o.name = v   attribute; so is o["any string"]
 *   o[key]               item, for keys that are not strings: o[0] is the first one (py.get takes any key)
 *   f(a, b, py.kw{c=1})  call
 *   o:method(a)          call of the attribute; as o.method(o, a) is the same to Lua, a callable that was
 *                        read from o leaves o out when o comes first
 *   #o, tostring(o), a == b, a .. b, and what operate.c adds
 *
 * Invariant: a userdata owns one mf__ref, or none once it was closed or collected. */
#include "copy.h"

int mf__is_object(lua_State *L, int index) {
  if (lua_type(L, index) != LUA_TUSERDATA || !lua_getmetatable(L, index)) return 0;
  const void *metatable = lua_topointer(L, -1);
  lua_pop(L, 1);
  return mf__kit_knows(mf__top->kit, metatable);
}

mf__ref *mf__ref_at(lua_State *L, int index) {
  if (!mf__is_object(L, index)) return NULL;
  mf__ref **box = lua_touserdata(L, index);
  if (*box == NULL) mf__fail(L, "this Python object was closed: it is a deleted python object");
  return *box;
}

mf__ref *mf__ref_check(lua_State *L, int index) {
  mf__ref *ref = mf__ref_at(L, index);
  if (ref == NULL) mf__fail(L, "a Python object is expected, not a %s", luaL_typename(L, index));
  return ref;
}

/* Remembers what a callable was read from. Bound methods keep that alive anyway. */
static void set_origin(lua_State *L, PyObject *origin) {
  if (lua_type(L, -1) != LUA_TUSERDATA) return;
  mf__ref *ref = mf__ref_at(L, -1);
  if (ref == NULL || ref->origin != NULL || !PyCallable_Check(ref->object)) return;
  Py_IncRef(origin);
  ref->origin = origin;
}

/* The object of the userdata at ${index}, held: while Python runs, Lua may close or collect it. */
static PyObject *object_at(lua_State *L, int index) {
  PyObject *object = mf__ref_check(L, index)->object;
  Py_IncRef(object);
  return mf__hold(L, object);
}

static int object_index(lua_State *L) {
  PyObject *object = object_at(L, 1), *value;
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
  PyObject *object = object_at(L, 1);
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
  lua_rawgeti(L, lua_upvalueindex(1), MF__KIT_KEYWORDS);
  int same = lua_rawequal(L, -1, -2);
  lua_pop(L, 2);
  return same ? mf__hold(L, mf__to_dict(L, index, 1)) : NULL;
}

static int object_call(lua_State *L) {
  mf__ref *ref = mf__ref_check(L, 1);
  int first = 2;
  int last = lua_gettop(L);
  if (ref->origin != NULL && last >= 2 && lua_type(L, 2) == LUA_TUSERDATA) {
    mf__ref *self = mf__ref_at(L, 2);
    if (self != NULL && self->object == ref->origin) first = 3;
  }
  PyObject *callee = object_at(L, 1), *result;
  PyObject *keywords = last >= first ? keywords_at(L, last) : NULL;
  PyObject *args = mf__hold(L, mf__to_tuple(L, first, keywords ? last - 1 : last));
  mf__check_interrupt(L);
  MF__OUTSIDE(result, PyObject_Call(callee, args, keywords));
  mf__to_lua(L, result);
  return 1;
}

static int object_tostring(lua_State *L) {
  PyObject *object = object_at(L, 1), *text;
  MF__OUTSIDE(text, PyObject_Str(object));
  mf__to_lua(L, text);
  if (lua_type(L, -1) != LUA_TSTRING) mf__fail(L, "str() of this object is not UTF-8");
  return 1;
}

static int object_len(lua_State *L) {
  PyObject *object = object_at(L, 1);
  Py_ssize_t length;
  MF__OUTSIDE(length, PyObject_Size(object));
  if (length < 0) mf__raise(L);
  lua_pushnumber(L, (double)length);
  return 1;
}

static void push_text_of(lua_State *L, int index) {
  int event = luaL_getmetafield(L, index, "__tostring");
  lua_pushvalue(L, index);
  if (event && mf__run_protected(L, 1, 1) != 0) lua_error(L);
  if (lua_tostring(L, -1) == NULL) mf__fail(L, "a %s cannot be concatenated", luaL_typename(L, index));
}

static int object_concat(lua_State *L) {
  push_text_of(L, 1);
  push_text_of(L, 2);
  lua_concat(L, 2);
  return 1;
}

/* Runs without the GIL, on whichever thread collects; hence no mf__enter. */
static int object_gc(lua_State *L) {
  mf__ref **box = lua_touserdata(L, 1);
  if (*box != NULL) mf__ref_retire(*box);
  *box = NULL;
  return 0;
}

void mf__push_entry(lua_State *L, lua_CFunction enter, lua_CFunction body, int kit) {
  lua_pushvalue(L, kit);
  lua_pushcclosure(L, body, 1);
  lua_rawgeti(L, kit, MF__KIT_STATE);
  lua_pushcclosure(L, enter, 2);
}

void mf__push_verb(lua_State *L, lua_CFunction body, int kit) {
  mf__push_entry(L, mf__enter, body, kit);
}

void mf__object_metatable(lua_State *L, int kit) {
  static const luaL_Reg events[] = {{"__index", object_index},
                                    {"__newindex", object_newindex},
                                    {"__call", object_call},
                                    {"__tostring", object_tostring},
                                    {"__len", object_len},
                                    {"__concat", object_concat},
                                    {NULL, NULL}};
  for (const luaL_Reg *event = events; event->name; event++) {
    mf__push_verb(L, event->func, kit);
    lua_setfield(L, -2, event->name);
  }
  mf__operator_metatable(L, kit);
  lua_pushcfunction(L, object_gc);
  lua_setfield(L, -2, "__gc");
  /* Out of reach, so that no script can hand a finalizer something else. */
  lua_pushliteral(L, "python object");
  lua_setfield(L, -2, "__metatable");
}
