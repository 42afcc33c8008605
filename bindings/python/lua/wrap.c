/* wrap.c: the conversions of moonferry.Lua, which are lupa's but for what docs/python-hosts-lua.md lists.
 *
 *   Python -> Lua                                   Lua -> Python
 *   None               nil (as a key: python.none)  nil             None
 *   bool               boolean                      boolean         bool
 *   int up to 2^53     number; beyond: see below    number, whole   int
 *   float              number                       other number    float
 *   str                string in the encoding       string          str, or bytes without an encoding
 *   bytes              string                       table           LuaTable
 *   moonferry.Tensor   tensor, same memory          function        LuaFunction
 *   a Lua object       its Lua value                coroutine       LuaThread, or LuaCoroutineFunction
 *   anything else      a Python object              Python object   itself
 *                                                   tensor          moonferry.Tensor, same memory
 *                                                   int64, uint64   int; complex: complex
 *                                                   anything else   LuaObject
 *
 * The first four rows are plain.c's. An int beyond 2^53 goes to the overflow handler; without one it is an
 * OverflowError. One Python object is one userdata as long as Lua holds it, so that it is equal to itself and can be a
 * key. */
#include "runtime.h"

static const mf__options *options_here(void) {
  return &mf__top->bridge->state->options;
}

static void push_str(lua_State *L, PyObject *object) {
  const mf__options *options = options_here();
  if (options->utf8) {
    if (!mf__push_utf8(L, object)) mf__raise(L);
    return;
  }
  PyObject *bytes;
  MF__OUTSIDE(bytes, PyUnicode_AsEncodedString(object, options->encoding, NULL));
  mf__push_bytes(L, mf__hold(L, bytes));
  mf__drop();
}

/* A number that no other object has, whatever the flags, because these are smaller than an object. It has as many low
 * bits of the address as a double holds exactly; those above are a tag, where addresses have one (aarch64). */
static double key_of(const PyObject *object, int flags) {
  const uint64_t exact = (UINT64_C(1) << 53) - 1;
  return (double)(((uintptr_t)object & exact) + (uint64_t)flags);
}

/* Finds the userdata of an object, or makes one. That is remembered before it is weighed, because weighing may run any
 * code, in which the object may cross again. */
void mf__push_flagged(lua_State *L, PyObject *object, int flags) {
  const double key = key_of(object, flags);
  lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_CACHE);
  lua_pushnumber(L, key);
  lua_rawget(L, -2);
  mf__ref **box = lua_touserdata(L, -1);
  if (box != NULL && *box != NULL && (*box)->object == object) {
    lua_remove(L, -2);
    return;
  }
  lua_pop(L, 1);
  mf__ref *ref = mf__push_ref(L, object, MF__BRIDGE_OBJECT);
  ref->flags = flags;
  lua_pushnumber(L, key);
  lua_pushvalue(L, -2);
  lua_rawset(L, -4);
  lua_remove(L, -2);
  mf__weigh(L, ref);
}

/* Types that have items: not classes, which only have type parameters. */
static int has_items(PyObject *object) {
  return PyMapping_Check(object) || PySequence_Check(object);
}

/* By int's own method: that of a class below it may say anything. */
static Py_ssize_t int_bits(PyObject *object) {
  PyObject *bits = PyObject_CallMethod((PyObject *)&PyLong_Type, "bit_length", "O", object);
  Py_ssize_t count = bits != NULL ? PyLong_AsSsize_t(bits) : -1;
  Py_DecRef(bits);
  return count;
}

/* One that gives such an int itself is asked again, as it may get nearer each time; but not for ever. */
static void push_handled(lua_State *L, PyObject *object) {
  enum { MOST = 32 };
  static _Thread_local int nested;
  if (nested == MOST) {
    PyErr_Format(PyExc_OverflowError, "the overflow handler gave an int beyond 2^53 for one, %d times over", MOST);
    mf__raise(L);
  }
  mf__push_flagged(L, object, 0);
  nested++;
  const int status = mf__run_protected(L, 1, 1);
  nested--;
  if (status != 0) lua_error(L);
}

static void push_beyond(lua_State *L, PyObject *object) {
  lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_OVERFLOW);
  if (!lua_isnil(L, -1)) {
    push_handled(L, object);
    return;
  }
  Py_ssize_t bits;
  MF__OUTSIDE(bits, int_bits(object));
  if (bits < 0) mf__raise(L);
  PyErr_Format(PyExc_OverflowError, "an int of %zd bits is beyond 2^53, up to which Lua's numbers are exact", bits);
  mf__raise(L);
}

/* Values of the types that have a Lua value, subclasses included. */
static int push_value(lua_State *L, PyObject *object) {
  if (PyUnicode_Check(object) && options_here()->encoding != NULL) {
    push_str(L, object);
  } else if (PyLong_Check(object)) {
    if (!mf__push_int(L, object)) push_beyond(L, object);
  } else if (PyBytes_Check(object)) {
    mf__push_bytes(L, object);
  } else if (PyFloat_Check(object)) {
    lua_pushnumber(L, PyFloat_AsDouble(object));
  } else {
    return mf__push_lua_object(L, object) || mf__tensor_to_lua(L, object);
  }
  return 1;
}

static void push(lua_State *L, PyObject *object) {
  int flags;
  if (push_value(L, object)) return;
  PyObject *inside = mf__view_of(object, &flags);
  if (inside == NULL) {
    inside = object;
    flags = has_items(object) ? MF__AS_ITEMS : 0;
  }
  mf__push_flagged(L, inside, flags);
}

/* Lua -> Python. */

static PyObject *from_object(mf__ref *ref) {
  Py_IncRef(ref->object);
  return ref->object;
}

static PyObject *from_string(lua_State *L, int index) {
  size_t size;
  const char *text = lua_tolstring(L, index, &size);
  PyObject *result;
  MF__OUTSIDE(result, PyUnicode_Decode(text, (Py_ssize_t)size, options_here()->encoding, NULL));
  if (result == NULL) mf__raise(L);
  return result;
}

static PyObject *from_function(lua_State *L, int index) {
  if (lua_iscfunction(L, index)) {
    lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_UNWRAP);
    lua_pushvalue(L, index);
    lua_rawget(L, -2);
    mf__ref *ref = lua_isnil(L, -1) ? NULL : mf__ref_at(L, lua_gettop(L));
    lua_pop(L, 2);
    if (ref != NULL) return from_object(ref);
  }
  return mf__lua_object(L, index);
}

/* Only where a script has loaded moonferry, or a tensor has come in, can a table be one. */
static int may_be_tensor(lua_State *L) {
  lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_BOX);
  int known = !lua_isnil(L, -1);
  lua_pop(L, 1);
  if (known) return 1;
  lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
  lua_pushliteral(L, "moonferry");
  lua_rawget(L, -2);
  known = lua_istable(L, -1);
  lua_pop(L, 2);
  return known && mf__crossing_ready(L);
}

static PyObject *from_table(lua_State *L, int index) {
  if (!lua_getmetatable(L, index)) return mf__lua_object(L, index);
  lua_pop(L, 1);
  return may_be_tensor(L) ? mf__described_to_python(L, index) : mf__lua_object(L, index);
}

static PyObject *from_other(lua_State *L, int index) {
  mf__ref *ref = lua_type(L, index) == LUA_TUSERDATA ? mf__ref_at(L, index) : NULL;
  if (ref != NULL) return from_object(ref);
  int cdata = lua_type(L, index) == MF__LUA_TCDATA && mf__crossing_ready(L);
  return cdata ? mf__described_to_python(L, index) : mf__lua_object(L, index);
}

static PyObject *take(lua_State *L, int index) {
  switch (lua_type(L, index)) {
    case LUA_TSTRING:
      return from_string(L, index);
    case LUA_TTABLE:
      return from_table(L, index);
    case LUA_TFUNCTION:
      return from_function(L, index);
    default:
      return from_other(L, index);
  }
}

/* Text is less than the exception, which it stays. */
static int push_thrown(lua_State *L, PyObject *exception) {
  PyObject *value = mf__thrown_value(exception);
  if (value == NULL || PyUnicode_Check(value) || PyBytes_Check(value) || value == Py_None) {
    Py_DecRef(value);
    return 0;
  }
  mf__push_thrown(L, value);
  return 1;
}

const mf__policy mf__wrap_policy = {.push = push,
                                    .take = take,
                                    .thrown = push_thrown,
                                    .whole_below = 0x1p63,
                                    .none_is_nil = 1,
                                    .has_encoding = 1,
                                    .starts_coroutines = 1};
