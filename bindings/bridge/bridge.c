/* bridge.c: makes the bridges of a Lua state, and finds the state of a bridge.
 *
 * Each time that moonferry.python is loaded in a state it gets another bridge, because each comes with Lua files of
 * its own; a moonferry.Lua has one. A bridge belongs to Lua: it goes when nothing in Lua has it and no Lua value in
 * Python was made by it, and its memory is used again. Invariant: a bridge has no metatable that is gone. Must not
 * know: what a bridge is for. */
#include <stdlib.h>

#include "open.h"

/* Finalizes the bridge's box, which was collected with everything that has the bridge. Runs without the GIL, and
 * changes only fields that are read with the lock. */
static int bridge_gc(lua_State *L) {
  mf__bridge **box = lua_touserdata(L, 1);
  mf__bridge *bridge = *box;
  *box = NULL;
  if (bridge == NULL) return 0;
  bridge->object = bridge->fault = NULL;
  bridge->box = NULL;
  return 0;
}

static mf__bridge **push_bridge_box(lua_State *L) {
  mf__bridge **box = lua_newuserdata(L, sizeof *box);
  *box = NULL;
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, bridge_gc);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  return box;
}

/* Memory for a new bridge: of one that is gone, whose tensors leave the registry, or allocated. One that has values is
 * not gone, because their runner has it. The names that a bridge has remembered are right for the next one, too: the
 * bridge of a moonferry.Lua may encode names in another way, but it goes only with its state. */
static mf__bridge *place_for_bridge(lua_State *L, mf__state *state) {
  for (mf__bridge *bridge = state->bridges; bridge != NULL; bridge = bridge->next) {
    if (bridge->box != NULL) continue;
    if (bridge->handle != 0) luaL_unref(L, LUA_REGISTRYINDEX, bridge->handle);
    if (bridge->tensors != 0) luaL_unref(L, LUA_REGISTRYINDEX, bridge->tensors);
    return bridge;
  }
  mf__bridge *bridge = calloc(1, sizeof *bridge);
  if (bridge == NULL) luaL_error(L, "not enough memory for the bridge to Python");
  bridge->next = state->bridges;
  state->bridges = bridge;
  return bridge;
}

static void put_closure(lua_State *L, int bridge, int slot, lua_CFunction function) {
  lua_pushvalue(L, bridge);
  lua_pushcclosure(L, function, 1);
  lua_rawseti(L, bridge, slot);
}

static mf__state *state_of(lua_State *L);

mf__bridge *mf__bridge_new(lua_State *L, int bridge, const mf__policy *policy) {
  mf__state *state = state_of(L);
  if (state->service == NULL) {
    mf__anchors_open(L);
    lua_State *service = lua_newthread(L);
    mf__anchor(L, state);
    state->service = service;
  }
  put_closure(L, bridge, MF__BRIDGE_RUNNER, mf__call_in_runner);
  put_closure(L, bridge, MF__BRIDGE_HANDLER, mf__error_handler);
  mf__bridge **box = push_bridge_box(L); /* first, because the collector may run a finalizer that loads another */
  mf__bridge *made = place_for_bridge(L, state);
  *made = (mf__bridge){.state = state, .policy = policy, .box = box, .keys = made->keys, .next = made->next};
  *box = made;
  lua_rawseti(L, bridge, MF__BRIDGE_STATE);
  return made;
}

void mf__bridge_metatable(lua_State *L, int bridge, int slot) {
  lua_rawgeti(L, bridge, MF__BRIDGE_STATE);
  mf__bridge *own = *(mf__bridge **)lua_touserdata(L, -1);
  lua_pop(L, 1);
  *(slot == MF__BRIDGE_OBJECT ? &own->object : &own->fault) = lua_topointer(L, -1);
  lua_rawseti(L, bridge, slot);
}

/* Makes the metatable of exceptions, with the functions of that of objects, so that == compares an error with the
 * exception that it is. */
void mf__put_fault(lua_State *L, int bridge) {
  lua_newtable(L);
  lua_rawgeti(L, bridge, MF__BRIDGE_OBJECT);
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
    lua_pushvalue(L, -2);
    lua_pushvalue(L, -2);
    lua_rawset(L, -6);
  }
  lua_pop(L, 1);
  mf__fault_metatable(L, bridge);
  mf__bridge_metatable(L, bridge, MF__BRIDGE_FAULT);
}

/* The value that Lua's registry keeps: the state, and the reference on it that a Lua program holds. */
struct box {
  mf__state *state;
  mf__ref *ref;
};

#define BOX "moonferry.state"

/* lua_close is no finalizer of a value that happens to be collected: it may wait for the GIL. What the state held of
 * Python is retired by now, because the younger goes first, and an engine may want its memory back. */
static void give_back_all(void) {
  if (!mf__refs_wait() || !Py_IsInitialized() || mf__door == MF__DOOR_GONE) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  mf__refs_drain();
  PyGILState_Release(gil);
}

static int box_gc(lua_State *L) {
  struct box *box = lua_touserdata(L, 1);
  if (box->ref == NULL) return 0;
  mf__state_shut(box->state);
  mf__ref_retire(box->ref);
  box->ref = NULL;
  give_back_all();
  return 0;
}

static struct box *push_box(lua_State *L) {
  struct box *box = lua_newuserdata(L, sizeof *box);
  *box = (struct box){NULL, NULL};
  lua_newtable(L);
  lua_pushcfunction(L, box_gc);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  return box;
}

#define CLOSES_WITH "moonferry.closes_with"

void mf__bridge_closes_with(lua_State *L, int object) {
  lua_pushvalue(L, object);
  lua_setfield(L, LUA_REGISTRYINDEX, CLOSES_WITH);
}

/* An object that another bridge has replaced is garbage, and says nothing. */
int mf__bridge_close_begins(lua_State *L) {
  lua_getfield(L, LUA_REGISTRYINDEX, CLOSES_WITH);
  const int is_it = lua_rawequal(L, 1, -1);
  lua_getfield(L, LUA_REGISTRYINDEX, BOX);
  const struct box *box = lua_touserdata(L, -1);
  if (!is_it || box->ref == NULL) return 0;
  lua_pushvalue(L, 2);
  lua_call(L, 0, 0);
  mf__state_close_begin(box->state);
  return 0;
}

void mf__state_register(lua_State *L, mf__state *state) {
  push_box(L)->state = state;
  lua_setfield(L, LUA_REGISTRYINDEX, BOX);
}

/* Makes the state of a Lua program that loads the bridge itself: its thread owns the lock. Calls from other threads get
 * a stack that the program does not use. */
static int adopt_foreign(lua_State *stack, struct box *box) {
  if (mf__types_ready() != 0) return -1;
  mf__state *state = mf__state_new(mf__state_type, stack, 0);
  mf__ref *ref = state != NULL ? calloc(1, sizeof *ref) : NULL;
  if (ref == NULL) {
    Py_DecRef((PyObject *)state);
    return -1;
  }
  ref->object = (PyObject *)state;
  state->own = ref;
  mf__state_adopt(state);
  box->ref = ref;
  box->state = state;
  return 0;
}

static mf__state *state_of(lua_State *L) {
  lua_getfield(L, LUA_REGISTRYINDEX, BOX);
  struct box *box = lua_touserdata(L, -1);
  if (box == NULL) {
    lua_State *stack = lua_newthread(L);
    luaL_ref(L, LUA_REGISTRYINDEX);
    box = push_box(L);
    PyGILState_STATE gil = PyGILState_Ensure();
    int status = adopt_foreign(stack, box);
    if (status != 0) PyErr_Clear();
    PyGILState_Release(gil);
    if (status != 0) luaL_error(L, "not enough memory for Python's view of this Lua state");
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, BOX);
    lua_remove(L, -2);
  }
  lua_pop(L, 1);
  return box->state;
}
