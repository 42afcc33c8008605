/* to_python.c: Lua values as Python objects.
 *
 *   nil                      None
 *   boolean                  bool
 *   number                   int if it is whole and at most 2^53 in size, else float (so is -0)
 *   string                   str; it must be UTF-8 (py.bytes makes bytes of any string)
 *   int64_t, uint64_t cdata  int; complex cdata is complex, other numeric cdata goes as its number
 *   tensor                   moonferry.Tensor over the same memory
 *   stream                   moonferry.Stream of the same value
 *   Python object            itself
 *   table 1 ... n            list, and so on inside; one without such keys is a dict
 *   function, coroutine,     a Python object that stands for it (lua_object.c); so do other userdata and other FFI
 *   table with a metatable   values
 *
 * Tables nested more than 80 deep, as one is that contains itself, are an error.
 *
 * That is how moonferry.python has it; wrap.c is the policy of moonferry.Lua, and the first four rows are plain.c's.
 * Every conversion is exact or an error. Invariant: a result is a new reference; on an error nothing stays. */
#include <string.h>

#include "bridge.h"

/* Payloads are read through memcpy: Lua aligns FFI values, but says nothing of their type to C. */

static PyObject *from_tensor(lua_State *L, int index, const void *payload) {
  mf_tensor *tensor;
  memcpy(&tensor, payload, sizeof tensor);
  return mf__tensor_to_python(L, index, tensor);
}

static PyObject *from_payload(int kind, const void *payload) {
  long long integer;
  double parts[2];
  switch (kind) {
    case MF__IS_COMPLEX:
      memcpy(parts, payload, sizeof parts);
      return PyComplex_FromDoubles(parts[0], parts[1]);
    default:
      memcpy(&integer, payload, sizeof integer);
      return kind == MF__IS_INT64 ? PyLong_FromLongLong(integer)
                                  : PyLong_FromUnsignedLongLong((unsigned long long)integer);
  }
}

/* A value whose nature only Lua can tell: FFI values and tables with a metatable. */
PyObject *mf__described_to_python(lua_State *L, int index) {
  lua_rawgeti(L, lua_upvalueindex(1), MF__KIT_DESCRIBE);
  lua_pushvalue(L, index);
  lua_call(L, 1, 2);
  int kind = (int)lua_tointeger(L, -2);
  PyObject *object = NULL;
  if (kind == MF__IS_NUMBER) {
    object = mf__number_to_python(mf__top->kit, lua_tonumber(L, -1));
  } else if (kind == MF__IS_OBJECT) {
    object = mf__ref_check(L, -1)->object;
    Py_IncRef(object);
  } else if (kind == MF__IS_TENSOR) {
    object = from_tensor(L, index, lua_topointer(L, -1));
  } else if (kind != MF__IS_UNKNOWN) {
    object = from_payload(kind, lua_topointer(L, -1));
  } else {
    object = mf__lua_object(L, index);
  }
  lua_pop(L, 2);
  if (object == NULL) mf__raise(L);
  return object;
}

/* What a table is in Python: how many elements a list of it has, or -1 for a dict. It is a list only if 1 ... n are all
 * the keys that it has, and a dict only if it has none of them. */
static int list_count(lua_State *L, int index) {
  int count = (int)lua_objlen(L, index);
  int whole = 0, other = 0;
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    if (lua_type(L, -2) == LUA_TNUMBER) {
      whole++;
    } else {
      other++;
    }
  }
  if (whole == 0 && other > 0) return -1;
  if (other > 0) {
    mf__fail(L,
             "a table with keys both of 1 ... n and others cannot be passed to Python as it is: "
             "say py.dict, or py.kw for keyword arguments (which come last)");
  }
  if (whole != count)
    mf__fail(L, "a list with holes cannot be passed to Python: fill them with py.None, or say py.dict");
  return count;
}

static PyObject *from_table(lua_State *L, int index) {
  if (lua_getmetatable(L, index)) {
    lua_pop(L, 1);
    return mf__described_to_python(L, index);
  }
  int count = list_count(L, index);
  return count < 0 ? mf__to_dict(L, index, 0) : mf__to_list(L, index, count);
}

static PyObject *from_userdata(lua_State *L, int index) {
  mf__ref *ref = mf__ref_at(L, index);
  if (ref == NULL) return mf__lua_object(L, index);
  Py_IncRef(ref->object);
  return ref->object;
}

static PyObject *copied(lua_State *L, int index) {
  switch (lua_type(L, index)) {
    case LUA_TTABLE:
      return from_table(L, index);
    case LUA_TUSERDATA:
      return from_userdata(L, index);
    case LUA_TFUNCTION:
    case LUA_TTHREAD:
      return mf__lua_object(L, index);
    default:
      return mf__described_to_python(L, index);
  }
}

PyObject *mf__to_python(lua_State *L, int index) {
  PyObject *object;
  const mf__kit *kit = mf__top->kit;
  if (!mf__plain_take(L, kit, index, &object))
    return kit->policy == MF__POLICY_WRAP ? mf__wrapping_to_python(L, index) : copied(L, index);
  if (object == NULL) mf__raise(L);
  return object;
}

PyObject *mf__to_tuple(lua_State *L, int first, int last) {
  int count = last < first ? 0 : last - first + 1;
  PyObject *tuple = mf__hold(L, PyTuple_New(count));
  for (int i = 0; i < count; i++) {
    if (PyTuple_SetItem(tuple, i, mf__to_python(L, first + i)) != 0) mf__raise(L);
  }
  return mf__take();
}

PyObject *mf__to_list(lua_State *L, int index, int count) {
  mf__nest(L);
  PyObject *list = mf__hold(L, PyList_New(count));
  for (int i = 0; i < count; i++) {
    lua_rawgeti(L, index, i + 1);
    if (PyList_SetItem(list, i, mf__to_python(L, lua_gettop(L))) != 0) mf__raise(L);
    lua_pop(L, 1);
  }
  mf__unnest();
  return mf__take();
}

PyObject *mf__to_dict(lua_State *L, int index, int keywords) {
  mf__nest(L);
  PyObject *dict = mf__hold(L, PyDict_New());
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    int at = lua_gettop(L);
    if (keywords && lua_type(L, at - 1) != LUA_TSTRING) mf__fail(L, "a keyword must be a string");
    PyObject *key = mf__hold(L, mf__to_python(L, at - 1));
    PyObject *value = mf__hold(L, mf__to_python(L, at));
    int failed;
    if (mf__is_inert(key)) {
      failed = PyDict_SetItem(dict, key, value);
    } else {
      MF__OUTSIDE(failed, PyDict_SetItem(dict, key, value));
    }
    if (failed) mf__raise(L);
    mf__drop();
    mf__drop();
  }
  mf__unnest();
  return mf__take();
}
