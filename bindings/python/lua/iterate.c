/* iterate.c: Python's iterators in Lua's for: python.iter, python.iterex, python.enumerate.
 *
 * A None that would end the loop, because Lua ends it at nil, is python.none; any other is nil. */
#include "runtime.h"

static void push_item(lua_State *L, PyObject *item, int first) {
  if (first) {
    mf__key_to_lua(L, item);
    return;
  }
  Py_IncRef(item);
  mf__to_lua(L, item);
}

static int push_tuple(lua_State *L, PyObject *tuple, int numbered) {
  Py_ssize_t count = PyTuple_Size(tuple);
  if (count == 0 && !numbered)
    mf__fail(L, "an empty tuple gives the loop no value, which would end it; python.enumerate has a number beside it");
  mf__room_for(L, count, "a tuple of more than 7000 values cannot be unpacked");
  for (Py_ssize_t i = 0; i < count; i++) push_item(L, PyTuple_GetItem(tuple, i), i == 0 && !numbered);
  return (int)count;
}

/* The same for one item that is no tuple to take apart, and mostly a number. */
static int step_unprotected(lua_State *L, mf__frame *frame) {
  mf__ref *ref = mf__unprotected_ref(L, frame->bridge, 1);
  if (ref == NULL || ref->flags != 0 || !PyIter_Check(ref->object)) return MF__UNPROTECTED_NOT;
  PyObject *iterator = ref->object;
  Py_IncRef(iterator);
  mf__outside_begin();
  PyObject *item = PyErr_CheckSignals() == 0 ? PyIter_Next(iterator) : NULL;
  Py_DecRef(iterator);
  mf__outside_end();
  if (item == NULL && !PyErr_Occurred()) return 0;
  if (item != Py_None) return mf__unprotected_result(L, frame, item);
  return mf__unprotected_rest(frame, item);
}

static int enter_step(lua_State *L) {
  return mf__enter_by(L, step_unprotected);
}

/* next(iterator, control): the iterator's userdata says how. */
static int step(lua_State *L) {
  mf__check_interrupt(L);
  mf__ref *ref = mf__ref_check(L, 1);
  int flags = ref->flags;
  if (!PyIter_Check(ref->object)) mf__fail(L, "a Python iterator is expected: python.iter makes one");
  PyObject *item = mf__next_item(L, mf__held_at(L, 1));
  if (item == NULL) return 0;
  int numbered = (flags & MF__AS_NUMBERED) != 0;
  if (numbered) lua_pushnumber(L, lua_tonumber(L, 2) + 1);
  if ((flags & MF__AS_TUPLES) && PyTuple_Check(item)) return push_tuple(L, item, numbered) + numbered;
  push_item(L, item, !numbered);
  return 1 + numbered;
}

static int begin(lua_State *L, int flags, double start) {
  if (mf__top->bridge->state->options.unpack) flags |= MF__AS_TUPLES;
  PyObject *object = mf__python_argument(L, 1), *iterator;
  MF__OUTSIDE(iterator, PyObject_GetIter(object));
  mf__hold(L, iterator);
  lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_NEXT);
  mf__push_flagged(L, iterator, flags);
  if (flags & MF__AS_NUMBERED) {
    lua_pushnumber(L, start - 1);
  } else {
    lua_pushnil(L);
  }
  return 3;
}

static void one_argument(lua_State *L) {
  if (lua_gettop(L) > 1) mf__fail(L, "bad argument #2 (one Python object is expected)");
}

static int verb_iter(lua_State *L) {
  one_argument(L);
  return begin(L, 0, 0);
}

static int verb_iterex(lua_State *L) {
  one_argument(L);
  return begin(L, MF__AS_TUPLES, 0);
}

static int verb_enumerate(lua_State *L) {
  if (lua_gettop(L) > 2) mf__fail(L, "bad argument #3 (an object and a start are expected)");
  if (lua_gettop(L) == 2 && !lua_isnumber(L, 2))
    mf__fail(L, "bad argument #2 to 'enumerate' (number expected, got %s)", luaL_typename(L, 2));
  return begin(L, MF__AS_NUMBERED, lua_gettop(L) == 2 ? lua_tonumber(L, 2) : 0);
}

void mf__put_iteration(lua_State *L, int bridge) {
  static const luaL_Reg verbs[] = {
      {"iter", verb_iter}, {"iterex", verb_iterex}, {"enumerate", verb_enumerate}, {NULL, NULL}};
  mf__push_entry(L, enter_step, step, bridge);
  lua_rawseti(L, bridge, MF__BRIDGE_NEXT);
  mf__put_verbs(L, verbs, bridge);
}
