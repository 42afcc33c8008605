/* lua_handle.c: holds a Lua value for Python.
 *
 * Invariant: an object keeps its value and its state alive, and holds a registry reference that is queued, not given
 * back, when Python drops it: on any thread, at any time. Must not know: what Python may do with the object. */
#include "handle.h"

PyTypeObject *mf__object_type, *mf__table_type, *mf__function_type, *mf__factory_type, *mf__thread_type,
    *mf__iterator_type;
mf__value_makers mf__makers;

static mf__value *value_of(PyObject *object) {
  return (mf__value *)object;
}

void mf__bridge_retain(lua_State *L, mf__bridge *bridge, int table) {
  if (bridge->values == 0) {
    lua_rawgeti(L, table, MF__BRIDGE_RUNNER);
    bridge->runner = mf__anchor(L, bridge->state);
    lua_rawgeti(L, table, MF__BRIDGE_HANDLER);
    bridge->handler = mf__anchor(L, bridge->state);
  }
  bridge->values++;
}

void mf__bridge_release(mf__bridge *bridge, mf__state *state) {
  if (--bridge->values > 0) return;
  mf__state_unref(state, bridge->runner);
  mf__state_unref(state, bridge->handler);
}

PyObject *mf__value_new(lua_State *L, int index, PyTypeObject *type) {
  mf__bridge *bridge = mf__top->bridge;
  mf__state *state = mf__top->state;
  const void *identity = lua_topointer(L, index);
  mf__bridge_retain(L, bridge, lua_upvalueindex(1));
  lua_pushvalue(L, index);
  int ref = mf__anchor(L, state);
  mf__value *value = (mf__value *)PyType_GenericAlloc(type, 0);
  if (value == NULL) {
    mf__state_unref(state, ref);
    mf__bridge_release(bridge, state);
    mf__raise(L);
  }
  value->bridge = bridge;
  value->state = state;
  Py_IncRef((PyObject *)state);
  value->ref = ref;
  value->kind = lua_type(L, index);
  value->identity = identity;
  return (PyObject *)value;
}

void mf__value_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  mf__value *value = value_of(self);
  PyObject_GC_UnTrack(self);
  if (value->weakrefs != NULL) PyObject_ClearWeakRefs(self);
  mf__section section;
  mf__section_begin(&section);
  if (value->state != NULL) {
    mf__state_unref(value->state, value->ref);
    mf__bridge_release(value->bridge, value->state);
  }
  mf__section_end(&section);
  Py_DecRef((PyObject *)value->state);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DecRef((PyObject *)type);
}

int mf__value_traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT((PyObject *)value_of(self)->state);
  return 0;
}

void mf__value_push(lua_State *L, mf__value *value) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, value->ref);
  if (lua_isnil(L, -1)) mf__fail(L, "the reference to this Lua value is lost");
}

const char *mf__kind_name(const mf__value *value) {
  static const char *const names[] = {"nil",      "boolean",  "userdata", "number", "string", "table",
                                      "function", "userdata", "thread",   "proto",  "cdata"};
  return names[value->kind];
}

void mf__table_push(lua_State *L, mf__value *value) {
  if (value->kind != LUA_TTABLE) {
    PyErr_Format(PyExc_TypeError, "a Lua table is expected, not a Lua %s", mf__kind_name(value));
    mf__raise(L);
  }
  mf__value_push(L, value);
}

PyObject *mf__lua_object(lua_State *L, int index) {
  switch (lua_type(L, index)) {
    case LUA_TFUNCTION:
      return mf__makers.function(L, index);
    case LUA_TTHREAD:
      return mf__makers.thread(L, index);
    default:
      return mf__value_new(L, index, lua_istable(L, index) ? mf__table_type : mf__object_type);
  }
}

int mf__push_lua_object(lua_State *L, PyObject *object) {
  if (!mf__is_value(object)) return 0;
  if (value_of(object)->state != mf__top->bridge->state) {
    PyErr_SetString(mf__lua_error_type, "cannot mix objects from different Lua runtimes");
    mf__raise(L);
  }
  mf__value_push(L, value_of(object));
  return 1;
}

PyObject *mf__no_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  (void)arguments;
  (void)keywords;
  PyErr_Format(PyExc_TypeError, "Lua makes these objects: %S cannot be called", (PyObject *)type);
  return NULL;
}
