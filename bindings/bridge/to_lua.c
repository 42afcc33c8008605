/* to_lua.c: Python objects as Lua values.
 *
 *   None               py.None, always (nil would vanish from argument lists, tables and loops)
 *   bool               boolean
 *   int                number up to 2^53 in size, where a double is exact; else a Python object
 *   float              number
 *   str                string in UTF-8; one with lone surrogates stays a Python object
 *   bytes              string
 *   moonferry.Tensor   a Lua tensor over the same memory
 *   a Lua object       the Lua value that it stands for
 *   anything else      a Python object; so are instances of subclasses, which know more than their value
 *
 * That is how moonferry.python has it; wrap.c is the policy of moonferry.Lua. Must not know: who calls, and why. */
#include "bridge.h"

/* In every libpython since 3.3, but in the limited API's headers only since 3.10. */
PyAPI_FUNC(const char *) PyUnicode_AsUTF8AndSize(PyObject *object, Py_ssize_t *size);

#define EXACT_MAX 9007199254740992LL

/* Each of these pushes one value and returns 1, or nothing and returns 0. */

int mf__push_int(lua_State *L, PyObject *object) {
  int overflow;
  long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow != 0 || value > EXACT_MAX || value < -EXACT_MAX) return 0;
  lua_pushnumber(L, (double)value);
  return 1;
}

static int push_str(lua_State *L, PyObject *object) {
  Py_ssize_t size;
  const char *data = PyUnicode_AsUTF8AndSize(object, &size);
  if (data == NULL) {
    PyErr_Clear();
    return 0;
  }
  lua_pushlstring(L, data, (size_t)size);
  return 1;
}

static int push_bytes(lua_State *L, PyObject *object) {
  char *data;
  Py_ssize_t size;
  if (PyBytes_AsStringAndSize(object, &data, &size) != 0) mf__raise(L);
  lua_pushlstring(L, data, (size_t)size);
  return 1;
}

/* What Lua holds without allocating, so that nothing can raise. */
static int push_plain(lua_State *L, PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  if (object == Py_None) {
    if (mf__top->kit->policy == MF__POLICY_WRAP) {
      lua_pushnil(L);
    } else {
      lua_rawgeti(L, lua_upvalueindex(1), MF__KIT_NONE);
    }
  } else if (type == &PyFloat_Type) {
    lua_pushnumber(L, PyFloat_AsDouble(object));
  } else if (type == &PyBool_Type) {
    lua_pushboolean(L, object == Py_True);
  } else {
    return type == &PyLong_Type && mf__push_int(L, object);
  }
  return 1;
}

static int push_value(lua_State *L, PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  if (type == &PyUnicode_Type) return push_str(L, object);
  if (type == &PyBytes_Type) return push_bytes(L, object);
  return mf__push_lua_object(L, object) || mf__tensor_to_lua(L, object);
}

void mf__push_object(lua_State *L, PyObject *object) {
  mf__ref **box = lua_newuserdata(L, sizeof *box);
  *box = NULL;
  lua_rawgeti(L, lua_upvalueindex(1), MF__KIT_OBJECT);
  lua_setmetatable(L, -2);
  *box = mf__ref_new(object);
  if (*box == NULL) mf__fail(L, "not enough memory");
  Py_IncRef(object);
  mf__weigh(L, *box);
}

void mf__to_lua(lua_State *L, PyObject *object) {
  if (object == NULL) mf__raise(L);
  if (push_plain(L, object)) {
    Py_DecRef(object);
    return;
  }
  mf__hold(L, object);
  if (mf__top->kit->policy == MF__POLICY_WRAP) {
    mf__push_wrapping(L, object);
  } else if (!push_value(L, object)) {
    mf__push_object(L, object);
  }
  mf__drop();
}

void mf__key_to_lua(lua_State *L, PyObject *object) {
  if (object == Py_None) {
    lua_rawgeti(L, lua_upvalueindex(1), MF__KIT_NONE);
    return;
  }
  Py_IncRef(object);
  mf__to_lua(L, object);
}

void mf__wrap(lua_State *L, PyObject *object) {
  mf__push_object(L, mf__hold(L, object));
  mf__drop();
}
