/* quick.c: what crosses without a protected call, because nothing about it can fail in Lua.
 *
 * Most calls pass numbers and take one back; a protected call for each conversion would cost more than the call.
 * Invariant: nothing here allocates in Lua, runs Lua code or raises, but for mf__name_to_python. */
#include <math.h>
#include <string.h>

#include "state.h"

int mf__quick_push(lua_State *L, PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  if (type == &PyFloat_Type) {
    lua_pushnumber(L, PyFloat_AsDouble(object));
  } else if (type == &PyLong_Type) {
    return mf__push_int(L, object);
  } else if (type == &PyBool_Type) {
    lua_pushboolean(L, object == Py_True);
  } else if (object == Py_None && mf__top->kit->policy == MF__POLICY_WRAP) {
    lua_pushnil(L);
  } else if (mf__is_value(object) && ((mf__value *)object)->state == mf__top->kit->state) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, ((mf__value *)object)->ref);
    if (!lua_isnil(L, -1)) return 1;
    lua_pop(L, 1);
    return 0;
  } else {
    return 0;
  }
  return 1;
}

static PyObject *of_number(double number) {
  double beyond = mf__top->kit->policy == MF__POLICY_WRAP ? 0x1p63 : 0x1p53 + 1;
  int whole = number == floor(number) && fabs(number) < beyond && !(number == 0 && signbit(number));
  return whole ? PyLong_FromLongLong((long long)number) : PyFloat_FromDouble(number);
}

static int take_string(lua_State *L, int index, PyObject **result) {
  if (mf__top->kit->policy == MF__POLICY_WRAP && !mf__top->kit->state->options.utf8) return 0;
  size_t size;
  const char *data = lua_tolstring(L, index, &size);
  *result = PyUnicode_DecodeUTF8(data, (Py_ssize_t)size, NULL);
  return 1;
}

static int take_object(lua_State *L, int index, PyObject **result) {
  mf__ref **box = mf__is_object(L, index) ? lua_touserdata(L, index) : NULL;
  if (box == NULL || *box == NULL) return 0;
  *result = (*box)->object;
  Py_IncRef(*result);
  return 1;
}

int mf__quick_take(lua_State *L, int index, PyObject **result) {
  switch (lua_type(L, index)) {
    case LUA_TNONE:
    case LUA_TNIL:
      *result = Py_None;
      Py_IncRef(Py_None);
      return 1;
    case LUA_TBOOLEAN:
      *result = PyBool_FromLong(lua_toboolean(L, index));
      return 1;
    case LUA_TNUMBER:
      *result = of_number(lua_tonumber(L, index));
      return 1;
    case LUA_TSTRING:
      return take_string(L, index, result);
    case LUA_TUSERDATA:
      return take_object(L, index, result);
    default:
      return 0;
  }
}

/* Names by the address of their Lua string, which is that name's alone for as long as the string lives. What was there
 * before may have had the same address, so the text is compared. Guarded by the GIL. */
enum { NAME_MAX_SIZE = 31 };

static struct {
  const char *address;
  size_t size;
  char text[NAME_MAX_SIZE + 1];
  PyObject *name;
} names[512];

static void remember(size_t slot, const char *text, size_t size, PyObject *name) {
  PyObject *before = names[slot].name;
  names[slot].address = text;
  names[slot].size = size;
  memcpy(names[slot].text, text, size);
  names[slot].name = name;
  Py_DecRef(before);
}

PyObject *mf__name_to_python(lua_State *L, int index) {
  size_t size;
  const char *text = lua_tolstring(L, index, &size);
  int plain = mf__top->kit->policy == MF__POLICY_COPY || mf__top->kit->state->options.utf8;
  if (!plain || size > NAME_MAX_SIZE) return mf__to_python(L, index);
  size_t slot = ((uintptr_t)text >> 4) % (sizeof names / sizeof *names);
  if (names[slot].address != text || names[slot].size != size || memcmp(names[slot].text, text, size) != 0) {
    PyObject *name = PyUnicode_DecodeUTF8(text, (Py_ssize_t)size, NULL);
    if (name == NULL) mf__raise(L);
    PyUnicode_InternInPlace(&name);
    remember(slot, text, size, name);
  }
  Py_IncRef(names[slot].name);
  return names[slot].name;
}
