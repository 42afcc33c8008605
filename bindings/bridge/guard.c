/* guard.c: how Lua code gets into Python and out again.
 *
 * Invariant: outside mf__enter this thread holds neither the GIL nor a reference on the bridge's behalf,
 * whether a body returned or raised. Knows nothing of what bodies do. */
#include "bridge.h"

struct frame {
  struct frame *below;
  int count;
  PyObject *held[MF__NESTING_MAX + 16]; /* a body holds few; what nests asks mf__nest first */
};

static _Thread_local struct frame *top;

int mf__enter(lua_State *L) {
  if (!Py_IsInitialized()) return luaL_error(L, "Python is not running (any more)");
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  struct frame frame;
  PyGILState_STATE gil = PyGILState_Ensure();
  frame.below = top;
  frame.count = 0;
  top = &frame;
  mf__refs_drain();
  int status = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
  while (frame.count > 0) Py_DecRef(frame.held[--frame.count]);
  top = frame.below;
  PyGILState_Release(gil);
  return status == 0 ? lua_gettop(L) : lua_error(L);
}

PyObject *mf__hold(lua_State *L, PyObject *object) {
  if (object == NULL) mf__raise(L);
  top->held[top->count++] = object;
  return object;
}

void mf__nest(lua_State *L) {
  if (top->count >= MF__NESTING_MAX) mf__fail(L, "a table is nested too deeply, or contains itself");
  luaL_checkstack(L, 8, "a table is nested too deeply");
}

void mf__drop(void) {
  Py_DecRef(mf__take());
}

PyObject *mf__take(void) {
  return top->held[--top->count];
}
