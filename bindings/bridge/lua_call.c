/* lua_call.c: calls Lua values from Python. */
#include "objects.h"

/* The arguments of a call. */
struct call {
  mf__value *callee;
  PyObject *const *arguments;
  Py_ssize_t count;
  PyObject *result; /* new */
};

PyObject *mf__results(lua_State *L, int first) {
  int last = lua_gettop(L);
  if (last < first) {
    Py_IncRef(Py_None);
    return Py_None;
  }
  return last == first ? mf__to_python(L, first) : mf__to_tuple(L, first, last);
}

static int call_body(lua_State *L, void *data) {
  struct call *call = data;
  mf__room_for(L, call->count, "too many arguments");
  mf__value_push(L, call->callee);
  mf__push_items(L, call->arguments, call->count);
  mf__run(L, (int)call->count, LUA_MULTRET);
  call->result = mf__results(L, 1);
  return 0;
}

/* Handler, function and arguments, if nothing about them can raise; else the stack is as before. */
static int push_unprotected(mf__frame *frame, struct call *call) {
  lua_State *L = frame->L;
  if (call->count > LUA_MINSTACK || !mf__has_room(L, (int)call->count + MF__CALL_IN_ROOM)) return 0;
  lua_rawgeti(L, LUA_REGISTRYINDEX, frame->bridge->handler);
  int pushed = mf__unprotected_push(L, frame->bridge, (PyObject *)call->callee);
  for (Py_ssize_t i = 0; pushed && i < call->count; i++)
    pushed = mf__unprotected_push(L, frame->bridge, call->arguments[i]);
  if (!pushed) lua_settop(L, frame->top);
  return pushed;
}

static int results_body(lua_State *L, void *data) {
  ((struct call *)data)->result = mf__results(L, 1);
  return 0;
}

static int call_unprotected(mf__frame *frame, struct call *call) {
  lua_State *L = frame->L;
  mf__run_begin(frame);
  int status = lua_pcall(L, (int)call->count, LUA_MULTRET, frame->top + 1);
  if (mf__run_end(frame) && status == 0) return LUA_ERRRUN;
  if (status != 0) return status;
  int results = lua_gettop(L) - frame->top - 1;
  if (results <= 1 && mf__unprotected_take(L, frame->bridge, frame->top + 2, &call->result)) return 0;
  status = mf__room(L, MF__CALL_IN_ROOM);
  return status == 0 ? mf__call_in_body(frame, results_body, call, results) : status;
}

static PyObject *call_in(struct call *call) {
  mf__frame frame;
  if (mf__call_in_begin(call->callee->bridge, &frame) == NULL) return NULL;
  int status =
      push_unprotected(&frame, call) ? call_unprotected(&frame, call) : mf__call_in_body(&frame, call_body, call, 0);
  if (status != 0) mf__call_in_fail(&frame, status);
  mf__call_in_end(&frame);
  return status == 0 ? call->result : NULL;
}

/* The function stays until it has returned, as mf__call_in_by says. */
PyObject *mf__value_call(PyObject *self, PyObject *const *arguments, size_t flags, PyObject *names) {
  if (names != NULL && PyTuple_Size(names) > 0) {
    PyErr_SetString(PyExc_TypeError, "a Lua function takes no keyword arguments");
    return NULL;
  }
  size_t count = flags & ~((size_t)1 << (8 * sizeof flags - 1));
  struct call call = {.callee = (mf__value *)self, .arguments = arguments, .count = (Py_ssize_t)count};
  Py_INCREF(self);
  PyObject *result = call_in(&call);
  Py_DECREF(self);
  return result;
}

/* For callers that know no vectorcall. */
PyObject *mf__value_tp_call(PyObject *self, PyObject *arguments, PyObject *keywords) {
  if (keywords != NULL && PyDict_Size(keywords) > 0) {
    PyErr_SetString(PyExc_TypeError, "a Lua function takes no keyword arguments");
    return NULL;
  }
  Py_ssize_t count = PyTuple_Size(arguments);
  PyObject **items = PyMem_Malloc(sizeof *items * (size_t)(count + 1));
  if (items == NULL) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; i++) items[i] = PyTuple_GetItem(arguments, i);
  PyObject *result = mf__value_call(self, items, (size_t)count, NULL);
  PyMem_Free(items);
  return result;
}
