/* tensor.c: passes tensors between the two languages, one mf_tensor under both.
 *
 * Python's side goes through the C-API capsule of the moonferry package, so that the bridge needs no second
 * Python type. Invariant: a crossing takes one reference and copies nothing. Must not know: how either
 * language represents a tensor. */
#include <string.h>

#include "value.h"
/* Needs Python.h before it. */
#include "moonferry_python.h"

/* Set once and for ever: the package cannot be unloaded. */
static const mf_python_api *_Atomic found_api;

static const mf_python_api *get_api(void) {
  return atomic_load_explicit(&found_api, memory_order_acquire);
}

/* NULL with an exception. */
static const mf_python_api *import_api(void) {
  const mf_python_api *api = mf_python_import();
  if (api != NULL) atomic_store(&found_api, api);
  return api;
}

/* Whether tensors can come at all: 1, 0, or -1 with an exception. Until somebody imports the package, this is one look
 * into a dict. */
static int look_for_package(void) {
  PyObject *name = PyUnicode_InternFromString("moonferry");
  PyObject *module = name ? PyImport_GetModule(name) : NULL;
  const int found = module != NULL && import_api() != NULL ? 1 : answer_is_no() ? 0 : -1;
  Py_DecRef(module);
  Py_DecRef(name);
  return found;
}

/* Runs deleters without the GIL, because foreign code that is no Python code may take long. */
static int release_body(lua_State *L) {
  (void)L;
  mf__outside_begin();
  PyThreadState *thread = PyEval_SaveThread();
  mf_releases_run();
  PyEval_RestoreThread(thread);
  mf__outside_end();
  return 0;
}

/* A finalizer may call it where there is no Python any more, or no state that anybody could wait for. */
static int enter_release(lua_State *L) {
  mf__bridge *bridge = *(mf__bridge **)lua_touserdata(L, lua_upvalueindex(2));
  if (bridge != NULL && Py_IsInitialized() && mf__door_is_open()) return mf__enter(L);
  mf_releases_run();
  return 0;
}

void mf__push_release(lua_State *L, int bridge) {
  mf__push_entry(L, enter_release, release_body, bridge);
}

int mf__crossing_ready(lua_State *L) {
  lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_BOX);
  int ready = !lua_isnil(L, -1);
  lua_pop(L, 1);
  if (ready) return 1;
  lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_LOAD);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    return 0;
  }
  lua_call(L, 0, 0);
  return 1;
}

/* The bridge's table of tensors has those that have crossed. Under the address of a tensor is the Lua tensor that was
 * made of it: to make one costs much more than to find it again, so the same tensor is the same Lua value while that is
 * open. Under the address negated is a Lua tensor that Lua had made itself; where Python gives it back it becomes
 * another Lua value, to be closed by itself. An open Lua tensor holds its mf_tensor, so that the address stands for no
 * other. */

/* Where a known tensor comes from, as the sign of its address. */
enum { FROM_PYTHON = 1, FROM_LUA = -1 };

/* Pushes the Lua tensor that is known so and returns 1, or nothing and returns 0. */
static int push_known(lua_State *L, const mf__bridge *bridge, const mf_tensor *tensor, int origin) {
  if (bridge->tensors == 0) return 0;
  lua_rawgeti(L, LUA_REGISTRYINDEX, bridge->tensors);
  if (lua_istable(L, -1)) {
    lua_pushnumber(L, origin * (double)(uintptr_t)tensor);
    lua_rawget(L, -2);
    lua_remove(L, -2);
  }
  if (lua_istable(L, -1)) return 1;
  lua_pop(L, 1);
  return 0;
}

/* Makes the table when the first tensor crosses. Where Lua allocates it may run a finalizer, in which another one is
 * that: its table stays. */
static void make_table(lua_State *L) {
  mf__bridge *bridge = mf__top->bridge;
  const int top = lua_gettop(L);
  if (bridge->tensors != 0) return;
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "v");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  lua_pushliteral(L, "_handle");
  if (bridge->tensors == 0) {
    bridge->handle = mf__anchor(L, bridge->state);
    bridge->tensors = mf__anchor(L, bridge->state);
  }
  lua_settop(L, top);
}

/* Puts the Lua tensor at ${index} into the table, which is there. No finalizer runs meanwhile. */
static void remember(lua_State *L, int index, const mf_tensor *tensor, int origin) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, mf__top->bridge->tensors);
  lua_pushnumber(L, origin * (double)(uintptr_t)tensor);
  lua_pushvalue(L, index);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

/* The handle in the table at ${index}, or NULL. Scripts can write there: it is no more than an address to look for. */
static mf_tensor *handle_of(lua_State *L, const mf__bridge *bridge, int index) {
  mf_tensor *tensor = NULL;
  lua_rawgeti(L, LUA_REGISTRYINDEX, bridge->handle);
  lua_rawget(L, index);
  if (lua_type(L, -1) == MF__LUA_TCDATA) memcpy(&tensor, lua_topointer(L, -1), sizeof tensor);
  lua_pop(L, 1);
  return tensor;
}

/* Pushes the Lua tensor that was made of ${tensor}, while that is open, and returns 1, or returns 0. */
static int push_imported(lua_State *L, const mf__bridge *bridge, const mf_tensor *tensor) {
  if (!push_known(L, bridge, tensor, FROM_PYTHON)) return 0;
  if (handle_of(L, bridge, lua_gettop(L)) == tensor) return 1;
  lua_pop(L, 1);
  return 0;
}

int mf__tensor_unprotected_push(lua_State *L, const mf__bridge *bridge, PyObject *object) {
  const mf_python_api *api = get_api();
  if (bridge->tensors == 0 || api == NULL || !api->check(object)) return 0;
  mf_tensor *tensor = api->retain(object);
  if (tensor == NULL) {
    PyErr_Clear(); /* a closed one: the protected way says so */
    return 0;
  }
  const int found = push_imported(L, bridge, tensor);
  mf_tensor_release(tensor);
  return found;
}

/* The import of the package runs any code, and so may a finalizer where Lua allocates: each may close the tensor. */
PyObject *mf__tensor_to_python(lua_State *L, int index, mf_tensor *tensor) {
  const mf_python_api *api = get_api();
  if (api == NULL) MF__OUTSIDE(api, import_api());
  if (api == NULL) mf__raise(L);
  make_table(L);
  remember(L, index, tensor, FROM_LUA);
  if (handle_of(L, mf__top->bridge, index) != tensor) mf__fail(L, "the tensor was closed while it went to Python");
  PyObject *object = api->wrap(mf_tensor_retain(tensor));
  if (object == NULL) mf_tensor_release(tensor);
  return object;
}

/* Whether the table at ${index} is the known Lua tensor of that origin. */
static int is_known(lua_State *L, const mf__bridge *bridge, int index, const mf_tensor *tensor, int origin) {
  if (!push_known(L, bridge, tensor, origin)) return 0;
  int same = lua_rawequal(L, -1, index);
  lua_pop(L, 1);
  return same;
}

int mf__tensor_unprotected_take(lua_State *L, const mf__bridge *bridge, int index, PyObject **result) {
  const mf_python_api *api = get_api();
  if (bridge->tensors == 0 || api == NULL) return 0;
  mf_tensor *tensor = handle_of(L, bridge, index);
  if (tensor == NULL) return 0;
  if (!is_known(L, bridge, index, tensor, FROM_PYTHON) && !is_known(L, bridge, index, tensor, FROM_LUA)) return 0;
  *result = api->wrap(mf_tensor_retain(tensor));
  if (*result == NULL) mf_tensor_release(tensor);
  return 1;
}

/* Calls the adopting function, which empties the box when it owns the reference; where it failed before that, nobody
 * does. A hook of Lua's may run before it looks, and have another tensor cross by the same box: that one puts back what
 * it found there. */
static int adopt(lua_State *L, void *box, mf_tensor *tensor) {
  mf_tensor *found, *left;
  memcpy(&found, box, sizeof found);
  memcpy(box, &tensor, sizeof tensor);
  int status = lua_pcall(L, 0, 1, 0);
  memcpy(&left, box, sizeof left);
  memcpy(box, &found, sizeof found);
  if (status != 0) mf_tensor_release(left);
  return status;
}

int mf__tensor_to_lua(lua_State *L, PyObject *object) {
  int found = get_api() != NULL;
  if (!found) MF__OUTSIDE(found, look_for_package());
  if (found < 0) mf__raise(L);
  const mf_python_api *api = get_api();
  if (!found || !api->check(object)) return 0;
  if (!mf__crossing_ready(L)) return 0;
  make_table(L);
  mf_tensor *tensor = api->retain(object);
  if (tensor == NULL) mf__raise(L);
  if (push_imported(L, mf__top->bridge, tensor)) {
    mf_tensor_release(tensor);
    return 1;
  }
  lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_ADOPT);
  lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_BOX);
  void *box = (void *)(uintptr_t)lua_topointer(L, -1);
  lua_pop(L, 1);
  if (adopt(L, box, tensor) != 0) return lua_error(L);
  if (push_imported(L, mf__top->bridge, tensor)) return 1; /* a finalizer was given it meanwhile */
  remember(L, lua_gettop(L), tensor, FROM_PYTHON);
  return 1;
}
