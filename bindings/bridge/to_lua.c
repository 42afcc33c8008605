/* to_lua.c: Python objects as Lua values.
 *
 * What is plain is plain.c's; what else there is, and what stays a Python object, is for the kit's policy to say.
 * Must not know: who calls, and why. */
#include "bridge.h"

/* What Lua holds without allocating, so that nothing can raise. */
static int push_plain(lua_State *L, PyObject *object) {
  const mf__kit *kit = mf__top->kit;
  if (object != Py_None || kit->policy->none_is_nil) return mf__plain_push(L, kit, object);
  lua_rawgeti(L, lua_upvalueindex(1), MF__KIT_NONE);
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
  mf__top->kit->policy->push(L, object);
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
