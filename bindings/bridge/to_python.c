/* to_python.c: Lua values as Python objects.
 *
 * What is plain is plain.c's; what a table, a function or an object is, is for the kit's policy to say. FFI values are
 * the same under any: an integer, a complex number, a tensor or a stream, else a LuaObject.
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

PyObject *mf__to_python(lua_State *L, int index) {
  PyObject *object;
  const mf__kit *kit = mf__top->kit;
  if (!mf__plain_take(L, kit, index, &object)) return kit->policy->take(L, index);
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
