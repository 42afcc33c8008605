/* iterate.c: Python's iterables in Lua's `for`.
 *
 * A step gives the next item, or nothing at the end. None is py.None and not nil, so no item ends a loop early.
 * Must not know: who iterates. */
#include "copy.h"

/* The next item of the iterator at 1, held; NULL at its end. */
static PyObject *next_item(lua_State *L) {
  PyObject *iterator = mf__argument(L, 1);
  if (!PyIter_Check(iterator)) mf__fail(L, "a Python iterator is expected: py.iter makes one");
  return mf__next_item(L, iterator);
}

static int step(lua_State *L) {
  if (next_item(L) == NULL) return 0;
  mf__to_lua(L, mf__take());
  return 1;
}

/* Pushes the elements of ${iterable}, which is held. */
static int push_elements(lua_State *L, PyObject *iterable) {
  PyObject *tuple;
  MF__OUTSIDE(tuple, PySequence_Tuple(iterable));
  return mf__push_tuple(L, mf__hold(L, tuple), "too many values to unpack");
}

static int step_each(lua_State *L) {
  PyObject *item = next_item(L);
  if (item == NULL) return 0;
  if (!PyTuple_Check(item)) {
    mf__to_lua(L, mf__take());
    return 1;
  }
  int count = push_elements(L, item);
  if (count == 0) mf__fail(L, "py.each met an empty tuple, which would end the loop: use py.iter");
  return count;
}

static int begin(lua_State *L, int step_slot, PyObject *iterable) {
  PyObject *iterator;
  lua_rawgeti(L, lua_upvalueindex(1), step_slot);
  MF__OUTSIDE(iterator, PyObject_GetIter(iterable));
  mf__wrap(L, iterator);
  return 2;
}

static int verb_iter(lua_State *L) {
  return begin(L, MF__BRIDGE_NEXT, mf__argument(L, 1));
}

static int verb_each(lua_State *L) {
  return begin(L, MF__BRIDGE_NEXT_EACH, mf__argument(L, 1));
}

static int verb_items(lua_State *L) {
  PyObject *mapping = mf__argument(L, 1), *items;
  MF__OUTSIDE(items, PyObject_CallMethod(mapping, "items", NULL));
  return begin(L, MF__BRIDGE_NEXT_EACH, mf__hold(L, items));
}

static int verb_unpack(lua_State *L) {
  PyObject *iterable = mf__argument(L, 1);
  lua_settop(L, 0);
  return push_elements(L, iterable);
}

void mf__put_iterators(lua_State *L, int bridge) {
  static const luaL_Reg verbs[] = {
      {"iter", verb_iter}, {"each", verb_each}, {"items", verb_items}, {"unpack", verb_unpack}, {NULL, NULL}};
  mf__push_verb(L, step, bridge);
  lua_rawseti(L, bridge, MF__BRIDGE_NEXT);
  mf__push_verb(L, step_each, bridge);
  lua_rawseti(L, bridge, MF__BRIDGE_NEXT_EACH);
  mf__put_verbs(L, verbs, bridge);
}
