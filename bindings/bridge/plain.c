/* plain.c: converts None, booleans, numbers and strings, under either policy.
 *
 * Every value that crosses comes through here first; a value that is not plain goes on to the bridge's policy.
 * Invariant: a number crosses exactly or not at all, and mf__plain_push never allocates in Lua or raises.
 * Must not know: tables, objects, the callers. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_DEFAULT */
#endif
#include <dlfcn.h>
#include <math.h>
#include <string.h>

#include "value.h"

#define EXACT_MAX 9007199254740992LL /* 2^53: up to here a double holds every integer */

PyObject *mf__number_to_python(const mf__bridge *bridge, double number) {
  if (!(fabs(number) < bridge->policy->whole_below)) return PyFloat_FromDouble(number);
  long long whole = (long long)number;
  if ((double)whole != number || (whole == 0 && signbit(number))) return PyFloat_FromDouble(number);
  return PyLong_FromLongLong(whole);
}

/* Any other encoding is the policy's: it may be written in Python. */
static int take_string(lua_State *L, const mf__bridge *bridge, int index, PyObject **result) {
  int utf8 = mf__is_utf8(bridge);
  if (!utf8 && bridge->state->options.encoding != NULL) return 0;
  size_t size;
  const char *data = lua_tolstring(L, index, &size);
  *result =
      utf8 ? PyUnicode_DecodeUTF8(data, (Py_ssize_t)size, NULL) : PyBytes_FromStringAndSize(data, (Py_ssize_t)size);
  return 1;
}

int mf__plain_take(lua_State *L, const mf__bridge *bridge, int index, PyObject **result) {
  switch (lua_type(L, index)) {
    case LUA_TNUMBER:
      *result = mf__number_to_python(bridge, lua_tonumber(L, index));
      return 1;
    case LUA_TSTRING:
      return take_string(L, bridge, index, result);
    case LUA_TBOOLEAN:
      *result = PyBool_FromLong(lua_toboolean(L, index));
      return 1;
    case LUA_TNONE:
    case LUA_TNIL:
      Py_IncRef(Py_None);
      *result = Py_None;
      return 1;
    default:
      return 0;
  }
}

int mf__push_int(lua_State *L, PyObject *object) {
  int overflow;
  long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow != 0 || value > EXACT_MAX || value < -EXACT_MAX) return 0;
  lua_pushnumber(L, (double)value);
  return 1;
}

int mf__plain_push(lua_State *L, const mf__bridge *bridge, PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  if (type == &PyLong_Type) return mf__push_int(L, object);
  if (type == &PyFloat_Type) {
    lua_pushnumber(L, PyFloat_AsDouble(object));
  } else if (type == &PyBool_Type) {
    lua_pushboolean(L, object == Py_True);
  } else if (object == Py_None && bridge->policy->none_is_nil) {
    lua_pushnil(L);
  } else {
    return 0;
  }
  return 1;
}

typedef const char *(*as_utf8)(PyObject *, Py_ssize_t *);

/* PyUnicode_AsUTF8AndSize, which copies nothing, and belongs to the stable ABI from 3.10 on; NULL before that. */
#ifndef Py_LIMITED_API
static as_utf8 find_as_utf8(void) {
  return PyUnicode_AsUTF8AndSize;
}
#else
static as_utf8 find_as_utf8(void) {
  static as_utf8 found;
  static int known;
  if (!known && strncmp(Py_GetVersion(), "3.9.", 4) != 0)
    *(void **)&found = dlsym(RTLD_DEFAULT, "PyUnicode_AsUTF8AndSize");
  known = 1;
  return found;
}
#endif

int mf__push_utf8(lua_State *L, PyObject *object) {
  as_utf8 convert = find_as_utf8();
  if (convert == NULL) {
    PyObject *bytes = PyUnicode_AsUTF8String(object);
    if (bytes == NULL) return 0;
    mf__push_bytes(L, mf__hold(L, bytes));
    mf__drop();
    return 1;
  }
  Py_ssize_t size;
  const char *data = convert(object, &size);
  if (data == NULL) return 0;
  lua_pushlstring(L, data, (size_t)size);
  return 1;
}

void mf__push_bytes(lua_State *L, PyObject *object) {
  char *data;
  Py_ssize_t size;
  if (PyBytes_AsStringAndSize(object, &data, &size) != 0) mf__raise(L);
  lua_pushlstring(L, data, (size_t)size);
}
