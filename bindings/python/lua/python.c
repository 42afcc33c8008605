/* python.c: the table `python` in Lua, as lupa has it.
 *
 *   python.none, python.eval, python.builtins        None as a value; the last two if the state was opened with them
 *   python.as_attrgetter(o), python.as_itemgetter(o) o, with indexing meaning attributes, or items
 *   python.as_function(o)                            a true Lua function that calls o
 *   python.args{...}                                 positional and keyword arguments for a call
 *   python.set_overflow_handler(f)                   what is called for an int beyond 2^53
 *   python.tensor(o, ...)                            what moonferry.from_dlpack makes of o
 *   python.iter, iterex, enumerate                   iterate.c */
#include "runtime.h"

#include <string.h>

static int as_view(lua_State *L, int flags) {
  if (lua_gettop(L) > 1) mf__fail(L, "bad argument #2 (one Python object is expected)");
  mf__push_flagged(L, mf__python_argument(L, 1), flags);
  return 1;
}

static int verb_as_attrgetter(lua_State *L) {
  return as_view(L, 0);
}

static int verb_as_itemgetter(lua_State *L) {
  return as_view(L, MF__AS_ITEMS);
}

/* The body of such a function: its second upvalue is the userdata of the object. */
static int call_inside(lua_State *L) {
  lua_pushvalue(L, lua_upvalueindex(2));
  lua_insert(L, 1);
  return mf__wrapped_call(L);
}

static int verb_as_function(lua_State *L) {
  if (lua_gettop(L) > 1) mf__fail(L, "bad argument #2 (one Python object is expected)");
  mf__push_flagged(L, mf__python_argument(L, 1), 0);
  int object = lua_gettop(L);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_pushvalue(L, object);
  lua_pushcclosure(L, call_inside, 2);
  lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_STATE);
  lua_pushcclosure(L, mf__enter, 2);
  lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_UNWRAP);
  lua_pushvalue(L, -2);
  lua_pushvalue(L, object);
  lua_rawset(L, -3);
  lua_pop(L, 1);
  return 1;
}

static int verb_args(lua_State *L) {
  if (lua_type(L, 1) != LUA_TTABLE)
    mf__fail(L, "bad argument #1 to 'args' (table expected, got %s)", luaL_typename(L, 1));
  PyObject *positional, *keywords;
  mf__arguments_of(L, 1, &positional, &keywords);
  mf__push_flagged(L, mf__hold(L, mf__arguments_new(positional, keywords)), 0);
  return 1;
}

static int verb_set_overflow_handler(lua_State *L) {
  lua_settop(L, 1);
  int type = lua_type(L, 1);
  mf__ref *ref = type == LUA_TUSERDATA ? mf__ref_at(L, 1) : NULL;
  if (type != LUA_TNIL && type != LUA_TFUNCTION && (ref == NULL || !PyCallable_Check(ref->object)))
    mf__fail(L, "bad argument #1 to 'set_overflow_handler' (expected nil, a Lua function or a callable Python object)");
  lua_rawseti(L, lua_upvalueindex(1), MF__BRIDGE_OVERFLOW);
  return 0;
}

static PyObject *from_any(void) {
  PyObject *package = PyImport_ImportModule("moonferry._core");
  PyObject *function = package != NULL ? PyObject_GetAttrString(package, "_from_any") : NULL;
  Py_DecRef(package);
  return function;
}

static int verb_tensor(lua_State *L) {
  PyObject *import;
  MF__OUTSIDE(import, from_any());
  mf__push_flagged(L, mf__hold(L, import), 0);
  lua_insert(L, 1);
  return mf__wrapped_call(L);
}

static void put_object(lua_State *L, const char *name, PyObject *object) {
  if (object == Py_None) return;
  mf__push_flagged(L, object, 0);
  lua_setfield(L, -2, name);
}

/* eval and builtins are nil where the state was opened without them. */
static int lacks(lua_State *L) {
  size_t size = 0;
  const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tolstring(L, 2, &size) : luaL_typename(L, 2);
  if (strlen(name) < size) return luaL_error(L, "python has no name that contains a NUL");
  if (strcmp(name, "eval") == 0 || strcmp(name, "builtins") == 0) return 0;
  if (strcmp(name, "None") == 0) return luaL_error(L, "python has no \"None\"; use python.none");
  return luaL_error(L,
                    "python has no \"%s\"; python.builtins has Python's own functions, and "
                    "require \"moonferry.python\" has import and exec",
                    name);
}

static void put_lacks(lua_State *L) {
  lua_newtable(L);
  lua_pushcfunction(L, lacks);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
}

void mf__push_python(lua_State *L, int bridge, PyObject *eval, PyObject *builtins) {
  static const luaL_Reg verbs[] = {{"as_attrgetter", verb_as_attrgetter},
                                   {"as_itemgetter", verb_as_itemgetter},
                                   {"as_function", verb_as_function},
                                   {"args", verb_args},
                                   {"set_overflow_handler", verb_set_overflow_handler},
                                   {"tensor", verb_tensor},
                                   {NULL, NULL}};
  lua_newtable(L);
  mf__put_verbs(L, verbs, bridge);
  mf__put_iteration(L, bridge);
  lua_rawgeti(L, bridge, MF__BRIDGE_NONE);
  lua_setfield(L, -2, "none");
  put_object(L, "eval", eval);
  put_object(L, "builtins", builtins);
  put_lacks(L);
}
