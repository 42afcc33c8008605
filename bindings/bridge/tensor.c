/* tensor.c: tensors across the two languages, one mf_tensor under both.
 *
 * Python's side goes through the C-API capsule of the moonferry package, so that the bridge needs no second
 * Python type. Invariant: a crossing takes one reference and copies nothing. Must not know: how either
 * language represents a tensor. */
#include <string.h>

#include "bridge.h"
#include "moonferry_python.h"

/* Set once, with the GIL held, and for ever: the package cannot be unloaded. */
static const mf_python_api *api;

/* Whether tensors can come at all. Until somebody imports the package, this is one look into a dict. */
static int package_is_there(void) {
  static PyObject *name;
  if (api != NULL) return 1;
  if (name == NULL) name = PyUnicode_InternFromString("moonferry");
  PyObject *module = name ? PyImport_GetModule(name) : NULL;
  Py_DecRef(module);
  if (module != NULL) api = mf_python_import();
  if (api == NULL) PyErr_Clear();
  return api != NULL;
}

PyObject *mf__tensor_to_python(lua_State *L, mf_tensor *tensor) {
  if (api == NULL) api = mf_python_import();
  if (api == NULL) mf__raise(L);
  PyObject *object = api->wrap(mf_tensor_retain(tensor));
  if (object == NULL) mf_tensor_release(tensor);
  return object;
}

int mf__crossing_ready(lua_State *L) {
  lua_rawgeti(L, lua_upvalueindex(1), MF__KIT_BOX);
  int ready = !lua_isnil(L, -1);
  lua_pop(L, 1);
  if (ready) return 1;
  lua_rawgeti(L, lua_upvalueindex(1), MF__KIT_LOAD);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    return 0;
  }
  lua_call(L, 0, 0);
  return 1;
}

/* Pushes the table of the tensors that are known. */
static void push_known(lua_State *L) {
  lua_rawgeti(L, lua_upvalueindex(1), MF__KIT_TENSORS);
  if (!lua_isnil(L, -1)) return;
  lua_pop(L, 1);
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "v");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  lua_pushvalue(L, -1);
  lua_rawseti(L, lua_upvalueindex(1), MF__KIT_TENSORS);
}

static int is_open(lua_State *L, const mf_tensor *tensor) {
  const mf_tensor *held = NULL;
  if (!lua_istable(L, -1)) return 0;
  lua_pushliteral(L, "handle");
  lua_rawget(L, -2);
  if (lua_type(L, -1) == MF__LUA_TCDATA) memcpy(&held, lua_topointer(L, -1), sizeof held);
  lua_pop(L, 1);
  return held == tensor;
}

/* A Lua tensor costs much more to make than to find again, so the same tensor is the same Lua value while that is
 * open. An open one holds its mf_tensor, so its address stands for no other. */
static int push_again(lua_State *L, const mf_tensor *tensor) {
  push_known(L);
  lua_pushnumber(L, (double)(uintptr_t)tensor);
  lua_rawget(L, -2);
  lua_remove(L, -2);
  if (is_open(L, tensor)) return 1;
  lua_pop(L, 1);
  return 0;
}

static void remember(lua_State *L, const mf_tensor *tensor) {
  push_known(L);
  lua_pushnumber(L, (double)(uintptr_t)tensor);
  lua_pushvalue(L, -3);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

int mf__tensor_to_lua(lua_State *L, PyObject *object) {
  if (!package_is_there() || !api->check(object)) return 0;
  mf_tensor *tensor = api->unwrap(object);
  if (tensor == NULL) mf__raise(L);
  if (push_again(L, tensor)) return 1;
  if (!mf__crossing_ready(L)) return 0;
  lua_rawgeti(L, lua_upvalueindex(1), MF__KIT_ADOPT);
  lua_rawgeti(L, lua_upvalueindex(1), MF__KIT_BOX);
  void *box = (void *)(uintptr_t)lua_topointer(L, -1);
  lua_pop(L, 1);
  mf_tensor_retain(tensor);
  memcpy(box, &tensor, sizeof tensor);
  /* The adopting function owns the reference from its first statement on, whatever happens there. */
  lua_call(L, 0, 1);
  remember(L, tensor);
  return 1;
}
