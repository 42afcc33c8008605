/* object.c: a Python object in a Lua state of moonferry.Lua, with lupa's meaning.
 *
 *   o[key], o.key, o[key] = v   an item where the type has items (MF__AS_ITEMS), else an attribute; attributes go
 *                               through attribute_filter or attribute_handlers if the state has them
 *   f(a, python.args{b = 1})    a call; a bound method that is called with its own object first leaves that out, so
 *                               that o:method(a) and o.method(a) are the same
 *   tostring(o)                 str()
 *   #o, a + b, a == b, a < b .. as bindings/bridge/operate.c has them */
#include "runtime.h"

/* While Python runs, Lua may close or collect what has it. */
static PyObject *held(lua_State *L, const mf__ref *ref) {
  Py_IncRef(ref->object);
  return mf__hold(L, ref->object);
}

/* The function behind python.as_function keeps its object beside it. */
PyObject *mf__python_argument(lua_State *L, int index) {
  mf__check_interrupt(L);
  if (lua_iscfunction(L, index)) {
    lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_UNWRAP);
    lua_pushvalue(L, index);
    lua_rawget(L, -2);
    mf__ref *inside = lua_isnil(L, -1) ? NULL : mf__ref_check(L, lua_gettop(L));
    lua_pop(L, 2);
    if (inside != NULL) return held(L, inside);
  }
  mf__ref *ref = mf__ref_at(L, index);
  if (ref == NULL) mf__fail(L, "bad argument #%d (not a python object): a Python object is expected, got %s", index,
                           luaL_typename(L, index));
  return held(L, ref);
}

static const mf__options *options_here(void) {
  return &mf__top->bridge->state->options;
}

static PyObject *key_at_2(lua_State *L) {
  PyObject *name = lua_type(L, 2) == LUA_TSTRING ? mf__name_to_python(L, 2) : NULL;
  return mf__hold(L, name != NULL ? name : mf__to_python(L, 2));
}

/* The item; where a script takes an array for a tensor, t:rows(), the array's own error would not say so. */
static PyObject *item_of(PyObject *object, PyObject *key) {
  PyObject *value = PyObject_GetItem(object, key);
  if (value != NULL || !PyUnicode_Check(key)) return value;
  if (!PyErr_ExceptionMatches(PyExc_IndexError) && !PyErr_ExceptionMatches(PyExc_TypeError)) return NULL;
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  PyObject *name = PyUnicode_InternFromString("__dlpack__");
  const int has = name != NULL ? answer_has((PyObject *)Py_TYPE(object), name) : -1;
  Py_DecRef(name);
  if (has == 0) {
    PyErr_Restore(type, error, traceback);
    return NULL;
  }
  if (has > 0)
    PyErr_Format(PyErr_GivenExceptionMatches(type, PyExc_IndexError) ? PyExc_IndexError : PyExc_TypeError,
                 "an array of Python's, %R, has no item %R, which is what o.name asks for; python.tensor(o) or "
                 "moonferry.from_dlpack makes a tensor of it, python.as_attrgetter(o) has its attributes",
                 Py_TYPE(object), key);
  Py_DecRef(type);
  Py_DecRef(error);
  Py_DecRef(traceback);
  return NULL;
}

static int object_index(lua_State *L) {
  mf__check_interrupt(L);
  int flags = mf__ref_check(L, 1)->flags;
  PyObject *object = mf__held_at(L, 1), *value;
  PyObject *key = key_at_2(L);
  if (options_here()->getter == NULL && (flags & MF__AS_ITEMS)) {
    MF__OUTSIDE(value, item_of(object, key));
  } else {
    value = mf__attribute_get(L, object, key);
  }
  mf__to_lua(L, value);
  return 1;
}

/* An attribute by a name that is known, of a state that has nothing to say about attributes. */
static int index_unprotected(lua_State *L, mf__frame *frame) {
  const mf__options *options = &frame->bridge->state->options;
  mf__ref *ref = mf__unprotected_ref(L, frame->bridge, 1);
  if (ref == NULL || (ref->flags & MF__AS_ITEMS) || options->getter != NULL || options->filter != NULL)
    return MF__UNPROTECTED_NOT;
  PyObject *name = lua_type(L, 2) == LUA_TSTRING ? mf__name_known(L, 2) : NULL;
  if (name == NULL) return MF__UNPROTECTED_NOT;
  PyObject *object = ref->object;
  Py_IncRef(object);
  mf__outside_begin();
  PyObject *value = PyErr_CheckSignals() == 0 ? PyObject_GetAttr(object, name) : NULL;
  Py_DecRef(object);
  mf__outside_end();
  Py_DecRef(name);
  return mf__unprotected_result(L, frame, value);
}

static int enter_index(lua_State *L) {
  return mf__enter_by(L, index_unprotected);
}

static int object_newindex(lua_State *L) {
  mf__check_interrupt(L);
  int flags = mf__ref_check(L, 1)->flags, failed;
  PyObject *object = mf__held_at(L, 1);
  PyObject *key = key_at_2(L);
  PyObject *value = mf__hold(L, mf__to_python(L, 3));
  if (options_here()->setter != NULL || !(flags & MF__AS_ITEMS)) {
    mf__attribute_set(L, object, key, value);
    return 0;
  }
  MF__OUTSIDE(failed, PyObject_SetItem(object, key, value));
  if (failed) mf__raise(L);
  return 0;
}

/* Whether ${function} is bound to ${first}, of the kinds that a:b() reads. The static method of a C type is bound to
 * nothing, and says that this is None. */
static int is_bound_to(lua_State *L, PyObject *function, PyObject *first) {
  if (PyCFunction_Check(function)) return PyCFunction_GetSelf(function) == first;
  if (Py_TYPE(function) != mf__method_type) return 0;
  PyObject *bound = PyObject_GetAttrString(function, "__self__");
  if (bound == NULL) mf__raise(L);
  Py_DecRef(bound);
  return bound == first;
}

/* Appends what is at ${index} to the list, or extends it and the dict by what python.args made there. */
static void add_argument(lua_State *L, int index, PyObject *list, PyObject *keywords) {
  PyObject *value = mf__hold(L, mf__to_python(L, index));
  PyObject *positional, *named;
  if (!mf__arguments_in(value, &positional, &named)) {
    if (PyList_Append(list, value) != 0) mf__raise(L);
    mf__drop();
    return;
  }
  PyObject *key, *item;
  Py_ssize_t size = PyList_Size(list), at = 0;
  if (PyList_SetSlice(list, size, size, positional) != 0) mf__raise(L);
  while (PyDict_Next(named, &at, &key, &item)) {
    int there = PyDict_Contains(keywords, key);
    if (there > 0) PyErr_Format(PyExc_TypeError, "got multiple values for keyword argument '%U'", key);
    if (there != 0 || PyDict_SetItem(keywords, key, item) != 0) mf__raise(L);
  }
  mf__drop();
}

static int has_arguments_object(lua_State *L, int last) {
  for (int i = 2; i <= last; i++) {
    mf__ref *ref = lua_type(L, i) == LUA_TUSERDATA ? mf__ref_at(L, i) : NULL;
    PyObject *positional, *named;
    if (ref != NULL && mf__arguments_in(ref->object, &positional, &named)) return 1;
  }
  return 0;
}

static PyObject *call_outside(lua_State *L, PyObject *callee, PyObject *arguments, PyObject *keywords) {
  PyObject *result;
  MF__OUTSIDE(result, PyObject_Call(callee, arguments, keywords));
  return mf__hold(L, result);
}

static PyObject *call_with_objects(lua_State *L, PyObject *callee, int last) {
  PyObject *list = mf__hold(L, PyList_New(0));
  PyObject *keywords = mf__hold(L, PyDict_New());
  for (int i = 2; i <= last; i++) add_argument(L, i, list, keywords);
  if (PyList_Size(list) > 0 && is_bound_to(L, callee, PyList_GetItem(list, 0)))
    list = mf__hold(L, PyList_GetSlice(list, 1, PyList_Size(list)));
  return call_outside(L, callee, mf__hold(L, PyList_AsTuple(list)), keywords);
}

static int push_result(lua_State *L, PyObject *result) {
  if (!options_here()->unpack || !PyTuple_Check(result)) {
    Py_IncRef(result);
    mf__to_lua(L, result);
    return 1;
  }
  return mf__push_tuple(L, result, "a tuple of more than 7000 values cannot be unpacked");
}

int mf__wrapped_call(lua_State *L) {
  PyObject *callee = mf__python_argument(L, 1);
  int last = lua_gettop(L);
  if (has_arguments_object(L, last)) return push_result(L, call_with_objects(L, callee, last));
  int first = 2;
  if (lua_type(L, 2) == LUA_TUSERDATA) {
    mf__ref *self = mf__ref_at(L, 2);
    if (self != NULL && is_bound_to(L, callee, self->object)) first = 3;
  }
  return push_result(L, call_outside(L, callee, mf__hold(L, mf__to_tuple(L, first, last)), NULL));
}

static int object_tostring(lua_State *L) {
  const mf__options *options = options_here();
  const char *encoding = options->encoding != NULL ? options->encoding : "UTF-8";
  PyObject *object = mf__held_at(L, 1), *text, *bytes;
  MF__OUTSIDE(text, PyObject_Str(object));
  mf__hold(L, text);
  MF__OUTSIDE(bytes, PyUnicode_AsEncodedString(text, encoding, NULL));
  mf__push_bytes(L, mf__hold(L, bytes));
  return 1;
}

/* What getmetatable shows: that the events are there, and none of them to take away. */
static void push_shown(lua_State *L, const luaL_Reg *events) {
  int metatable = lua_gettop(L);
  lua_newtable(L);
  for (const luaL_Reg *event = events; event->name; event++) {
    lua_getfield(L, metatable, event->name);
    lua_setfield(L, -2, event->name);
  }
  lua_pushliteral(L, "python object"); /* as LuaJIT's own getmetatable says of one where it hosts Python */
  lua_setfield(L, -2, "__name");
  lua_setfield(L, metatable, "__metatable");
}

void mf__wrapped_metatable(lua_State *L, int bridge) {
  static const luaL_Reg events[] = {{"__index", object_index},
                                    {"__newindex", object_newindex},
                                    {"__call", mf__wrapped_call},
                                    {"__tostring", object_tostring},
                                    {NULL, NULL}};
  mf__object_metatable(L, events, bridge);
  mf__push_entry(L, enter_index, object_index, bridge);
  lua_setfield(L, -2, "__index");
  push_shown(L, events);
}
