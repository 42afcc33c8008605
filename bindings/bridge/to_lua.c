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
 * That is how moonferry.python has it; wrap.c is the policy of moonferry.Lua, and the first five rows are plain.c's.
 * Must not know: who calls, and why. */
#include "bridge.h"

/* What Lua holds without allocating, so that nothing can raise. */
static int push_plain(lua_State *L, PyObject *object) {
  const mf__kit *kit = mf__top->kit;
  if (object != Py_None || kit->policy == MF__POLICY_WRAP) return mf__plain_push(L, kit, object);
  lua_rawgeti(L, lua_upvalueindex(1), MF__KIT_NONE);
  return 1;
}

static int push_str(lua_State *L, PyObject *object) {
  if (mf__push_utf8(L, object)) return 1;
  PyErr_Clear();
  return 0;
}

/* Pushes one value and returns 1, or nothing and returns 0. */
static int push_value(lua_State *L, PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  if (type == &PyUnicode_Type) return push_str(L, object);
  if (type != &PyBytes_Type) return mf__push_lua_object(L, object) || mf__tensor_to_lua(L, object);
  mf__push_bytes(L, object);
  return 1;
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
