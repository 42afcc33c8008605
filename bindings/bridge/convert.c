/* convert.c: converts values to what they are on the other side.
 *
 * plain.c converts plain values; the bridge's policy says what a table, a function or an object becomes. FFI values
 * become the same under any policy: an integer, a complex number, a tensor or a stream, else a LuaObject. Every
 * conversion is exact or an error. Invariant: a result is a new reference; on an error nothing stays. */
#include <string.h>

#include "convert.h"

/* Payloads are read through memcpy, because Lua aligns FFI values, but does not tell C their type. */

static PyObject *from_payload(lua_State *L, int index, int kind, const void *payload) {
  mf_tensor *tensor;
  long long integer;
  double parts[2];
  switch (kind) {
    case MF__IS_TENSOR:
      memcpy(&tensor, payload, sizeof tensor);
      return mf__tensor_to_python(L, index, tensor);
    case MF__IS_COMPLEX:
      memcpy(parts, payload, sizeof parts);
      return PyComplex_FromDoubles(parts[0], parts[1]);
    default:
      memcpy(&integer, payload, sizeof integer);
      return kind == MF__IS_INT64 ? PyLong_FromLongLong(integer)
                                  : PyLong_FromUnsignedLongLong((unsigned long long)integer);
  }
}

/* Converts a value whose type only Lua can tell: an FFI value or a table with a metatable. */
PyObject *mf__described_to_python(lua_State *L, int index) {
  lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_DESCRIBE);
  lua_pushvalue(L, index);
  lua_call(L, 1, 2);
  int kind = (int)lua_tointeger(L, -2);
  PyObject *object = NULL;
  if (kind == MF__IS_NUMBER) {
    object = mf__number_to_python(mf__top->bridge, lua_tonumber(L, -1));
  } else if (kind == MF__IS_OBJECT) {
    object = mf__ref_check(L, -1)->object;
    Py_IncRef(object);
  } else if (kind != MF__IS_UNKNOWN) {
    object = from_payload(L, index, kind, lua_topointer(L, -1));
  } else {
    object = mf__lua_object(L, index);
  }
  lua_pop(L, 2);
  if (object == NULL) mf__raise(L);
  return object;
}

PyObject *mf__to_python(lua_State *L, int index) {
  PyObject *object;
  const mf__bridge *bridge = mf__top->bridge;
  if (!mf__plain_take(L, bridge, index, &object)) return bridge->policy->take(L, index);
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

PyObject *mf__argument(lua_State *L, int index) {
  mf__check_interrupt(L);
  return mf__hold(L, mf__to_python(L, index));
}

void mf__to_lua(lua_State *L, PyObject *object) {
  const mf__bridge *bridge = mf__top->bridge;
  if (object == NULL) mf__raise(L);
  /* First what Lua holds without allocating, so that nothing can raise. */
  int pushed = object == Py_None && !bridge->policy->none_is_nil;
  if (pushed) lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_NONE);
  if (pushed || mf__plain_push(L, bridge, object)) {
    Py_DecRef(object);
    return;
  }
  mf__hold(L, object);
  bridge->policy->push(L, object);
  mf__drop();
}

void mf__key_to_lua(lua_State *L, PyObject *object) {
  if (object == Py_None) {
    lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_NONE);
    return;
  }
  Py_IncRef(object);
  mf__to_lua(L, object);
}

/* LuaJIT's limit for the values of one function lies a little above. */
enum { VALUES_MAX = 7000 };

void mf__room_for(lua_State *L, Py_ssize_t count, const char *too_many) {
  if (count > VALUES_MAX) mf__fail(L, "%s: %d", too_many, (int)count);
  mf__slots(L, (int)count + LUA_MINSTACK, too_many);
}

void mf__push_items(lua_State *L, PyObject *const *items, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; i++) {
    Py_IncRef(items[i]);
    mf__to_lua(L, items[i]);
  }
}

int mf__push_tuple(lua_State *L, PyObject *tuple, const char *too_many) {
  Py_ssize_t count = PyTuple_Size(tuple);
  mf__room_for(L, count, too_many);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *item = PyTuple_GetItem(tuple, i);
    mf__push_items(L, &item, 1);
  }
  return (int)count;
}

/* Pushes what an unprotected way got of Python but could not push, or raises the exception that it got instead. */
static int push_rest(lua_State *L, void *data) {
  if (data == NULL) return mf__raise(L);
  mf__key_to_lua(L, mf__hold(L, data));
  return 1;
}

int mf__unprotected_rest(mf__frame *frame, PyObject *got) {
  frame->body = push_rest;
  frame->data = got;
  return MF__UNPROTECTED_REST;
}

int mf__unprotected_result(lua_State *L, mf__frame *frame, PyObject *got) {
  if (got != NULL && mf__plain_push(L, frame->bridge, got)) {
    Py_DecRef(got);
    return 1;
  }
  return mf__unprotected_rest(frame, got);
}
