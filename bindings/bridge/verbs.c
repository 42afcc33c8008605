/* verbs.c: the functions of the bridge that are not operators of an object, and the opening of it all.
 *
 * Each is a body (bridge.h says what that means) of the same name in lua/moonferry/python.lua, where users
 * read what it does. Must not know: how the interpreter came to run. */
#include "bridge.h"

void (*mf__after_import)(void);

static PyObject *module_attribute(lua_State *L, const char *module, const char *name) {
  PyObject *owner = mf__hold(L, PyImport_ImportModule(module));
  PyObject *value = PyObject_GetAttrString(owner, name);
  mf__drop();
  return mf__hold(L, value);
}

static int verb_import(lua_State *L) {
  if (lua_type(L, 1) != LUA_TSTRING) mf__fail(L, "py.import takes the module's name");
  PyObject *import_module = module_attribute(L, "importlib", "import_module");
  PyObject *args = mf__hold(L, mf__to_tuple(L, 1, 1));
  mf__hold(L, PyObject_Call(import_module, args, NULL));
  if (mf__after_import) mf__after_import();
  mf__wrap(L, mf__take());
  return 1;
}

/* eval and exec of the code at 1, in the dict or module at 2, or in __main__. */
static int run_code(lua_State *L, const char *builtin) {
  if (lua_type(L, 1) != LUA_TSTRING) mf__fail(L, "py.%s takes Python code as a string", builtin);
  PyObject *run = module_attribute(L, "builtins", builtin);
  PyObject *scope = NULL;
  if (lua_isnoneornil(L, 2)) {
    scope = module_attribute(L, "__main__", "__dict__");
  } else {
    scope = mf__hold(L, mf__to_python(L, 2));
    if (!PyDict_Check(scope)) scope = mf__hold(L, PyObject_GetAttrString(scope, "__dict__"));
  }
  PyObject *code = mf__hold(L, mf__to_python(L, 1));
  mf__to_lua(L, PyObject_CallFunctionObjArgs(run, code, scope, NULL));
  return 1;
}

static int verb_eval(lua_State *L) {
  return run_code(L, "eval");
}

static int verb_exec(lua_State *L) {
  run_code(L, "exec");
  return 0;
}

/* A Python object even of what has a Lua value: the whole point of the functions that make one. */
static PyObject *wrapped(lua_State *L, int index) {
  mf__ref *ref = lua_type(L, index) == LUA_TUSERDATA ? mf__ref_at(L, index) : NULL;
  if (ref == NULL) return mf__hold(L, mf__to_python(L, index));
  Py_IncRef(ref->object);
  return mf__hold(L, ref->object);
}

static int verb_object(lua_State *L) {
  wrapped(L, 1);
  mf__wrap(L, mf__take());
  return 1;
}

static int sequence_count(lua_State *L) {
  if (lua_type(L, 1) != LUA_TTABLE) mf__fail(L, "a table is expected, not a %s", luaL_typename(L, 1));
  if (lua_isnoneornil(L, 2)) return (int)lua_objlen(L, 1);
  double count = lua_tonumber(L, 2);
  if (!(count >= 0 && count <= 0x7fffffff)) mf__fail(L, "the count of elements must be 0 ... 2^31-1");
  return (int)count;
}

static int verb_list(lua_State *L) {
  mf__wrap(L, mf__to_list(L, 1, sequence_count(L)));
  return 1;
}

static int verb_tuple(lua_State *L) {
  PyObject *list = mf__hold(L, mf__to_list(L, 1, sequence_count(L)));
  mf__wrap(L, PyList_AsTuple(list));
  return 1;
}

static int verb_dict(lua_State *L) {
  if (lua_type(L, 1) != LUA_TTABLE) mf__fail(L, "a table is expected, not a %s", luaL_typename(L, 1));
  mf__wrap(L, mf__to_dict(L, 1, 0));
  return 1;
}

static int verb_bytes(lua_State *L) {
  size_t size;
  const char *data = lua_type(L, 1) == LUA_TSTRING ? lua_tolstring(L, 1, &size) : NULL;
  if (data == NULL) mf__fail(L, "a string is expected, not a %s", luaL_typename(L, 1));
  mf__wrap(L, PyBytes_FromStringAndSize(data, (Py_ssize_t)size));
  return 1;
}

static int verb_float(lua_State *L) {
  mf__wrap(L, PyNumber_Float(wrapped(L, 1)));
  return 1;
}

static int verb_int(lua_State *L) {
  mf__wrap(L, PyNumber_Long(wrapped(L, 1)));
  return 1;
}

static int verb_number(lua_State *L) {
  mf__to_lua(L, PyNumber_Float(wrapped(L, 1)));
  return 1;
}

/* The key that Lua's arguments from 2 to ${last} mean: one value, or a tuple as in o[i, j]. */
static PyObject *key_of(lua_State *L, int last) {
  if (last < 2) mf__fail(L, "a key is missing");
  return mf__hold(L, last == 2 ? mf__to_python(L, 2) : mf__to_tuple(L, 2, last));
}

static int verb_get(lua_State *L) {
  PyObject *object = wrapped(L, 1);
  mf__to_lua(L, PyObject_GetItem(object, key_of(L, lua_gettop(L))));
  return 1;
}

static int verb_set(lua_State *L) {
  PyObject *object = wrapped(L, 1);
  int last = lua_gettop(L);
  PyObject *key = key_of(L, last - 1);
  if (PyObject_SetItem(object, key, mf__hold(L, mf__to_python(L, last))) != 0) mf__raise(L);
  return 0;
}

static int verb_next(lua_State *L) {
  PyObject *item = PyIter_Next(mf__ref_check(L, 1)->object);
  if (item == NULL && PyErr_Occurred()) mf__raise(L);
  if (item == NULL) return 0;
  mf__to_lua(L, item);
  return 1;
}

static int verb_iter(lua_State *L) {
  lua_rawgeti(L, lua_upvalueindex(1), MF__KIT_NEXT);
  mf__wrap(L, PyObject_GetIter(wrapped(L, 1)));
  return 2;
}

static int verb_unpack(lua_State *L) {
  PyObject *list = mf__hold(L, PySequence_List(wrapped(L, 1)));
  Py_ssize_t count = PyList_Size(list);
  lua_settop(L, 0);
  if (count > 7000) mf__fail(L, "too many values to unpack");
  luaL_checkstack(L, (int)count + 8, "too many values to unpack");
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *item = PyList_GetItem(list, i);
    Py_IncRef(item);
    mf__to_lua(L, item);
  }
  return (int)count;
}

static int verb_close(lua_State *L) {
  mf__ref **box = lua_touserdata(L, 1);
  /* None is shared by the whole state, and costs nothing to keep. */
  if (mf__ref_check(L, 1)->object == Py_None) return 0;
  mf__weigh_closed(*box);
  mf__ref_retire(*box);
  *box = NULL;
  mf__refs_drain();
  return 0;
}

/* Not behind mf__ref_check: a closed object still is one. */
static int verb_is(lua_State *L) {
  int same = 0;
  if (lua_type(L, 1) == LUA_TUSERDATA && lua_getmetatable(L, 1)) {
    lua_rawgeti(L, lua_upvalueindex(1), MF__KIT_OBJECT);
    same = lua_rawequal(L, -1, -2);
  }
  lua_pushboolean(L, same);
  return 1;
}

static int verb_drain(lua_State *L) {
  lua_pushnumber(L, (double)mf__refs_drain());
  return 1;
}

/* The userdata of None, made once: two of them would be equal, but not the same key of a table. */
static int verb_none(lua_State *L) {
  Py_IncRef(Py_None);
  mf__wrap(L, Py_None);
  return 1;
}

static void put_verbs(lua_State *L, int kit) {
  static const luaL_Reg verbs[] = {{"import", verb_import},
                                   {"eval", verb_eval},
                                   {"exec", verb_exec},
                                   {"object", verb_object},
                                   {"list", verb_list},
                                   {"tuple", verb_tuple},
                                   {"dict", verb_dict},
                                   {"bytes", verb_bytes},
                                   {"float", verb_float},
                                   {"int", verb_int},
                                   {"number", verb_number},
                                   {"get", verb_get},
                                   {"set", verb_set},
                                   {"iter", verb_iter},
                                   {"unpack", verb_unpack},
                                   {"close", verb_close},
                                   {"is", verb_is},
                                   {"collect", verb_drain},
                                   {NULL, NULL}};
  for (const luaL_Reg *verb = verbs; verb->name; verb++) {
    mf__push_verb(L, verb->func, kit);
    lua_setfield(L, -2, verb->name);
  }
}

int mf__bridge_open(lua_State *L) {
  static const int slots[] = {MF__KIT_DESCRIBE, MF__KIT_ADOPT, MF__KIT_BOX, MF__KIT_KEYWORDS};
  enum { COUNT = sizeof slots / sizeof *slots };
  const int kit = COUNT + 1;
  luaL_checkany(L, COUNT);
  lua_settop(L, COUNT);
  lua_newtable(L);
  for (int i = 0; i < COUNT; i++) {
    lua_pushvalue(L, i + 1);
    lua_rawseti(L, kit, slots[i]);
  }
  lua_newtable(L);
  mf__object_metatable(L, kit);
  lua_rawseti(L, kit, MF__KIT_OBJECT);
  mf__push_verb(L, verb_next, kit);
  lua_rawseti(L, kit, MF__KIT_NEXT);
  mf__push_verb(L, verb_none, kit);
  lua_call(L, 0, 1);
  lua_pushvalue(L, -1);
  lua_rawseti(L, kit, MF__KIT_NONE);
  lua_newtable(L);
  lua_insert(L, -2);
  lua_setfield(L, -2, "None");
  put_verbs(L, kit);
  return 1;
}
