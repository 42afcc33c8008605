/* lua_function.c: makes the Python types of Lua functions.
 *
 *   LuaFunction               calls, .coroutine(*arguments), which makes a LuaThread, what libraries ask of functions
 *   LuaCoroutineFunction      of a coroutine that has not begun: each call makes another one
 *
 * Must not know: how a function is called. */
#include <stddef.h>

#include "objects.h"
/* Needs Python.h before it. */
#include <structmember.h>

static PyObject *function_coroutine(PyObject *self, PyObject *arguments) {
  return mf__thread_start(self, arguments);
}

PyTypeObject *mf__method_type;

static int find_method_type(void) {
  if (mf__method_type != NULL) return 0;
  PyObject *types = PyImport_ImportModule("types");
  mf__method_type = types != NULL ? (PyTypeObject *)PyObject_GetAttrString(types, "MethodType") : NULL;
  Py_DecRef(types);
  return mf__method_type != NULL ? 0 : -1;
}

static PyObject *factory_call(PyObject *self, PyObject *arguments, PyObject *keywords) {
  if (keywords == NULL || PyDict_Size(keywords) == 0) return mf__thread_start(self, arguments);
  PyErr_SetString(PyExc_TypeError, "a Lua function takes no keyword arguments");
  return NULL;
}

/* A function of a Lua program is a method of the class that it is put into, as Python's are; one that Python got from
 * its own moonferry.Lua is none, as in lupa. */
static PyObject *function_bind(PyObject *self, PyObject *object, PyObject *type) {
  (void)type;
  int method = object != NULL && object != Py_None && ((mf__value *)self)->bridge->policy->binds_functions;
  if (method) return PyObject_CallFunctionObjArgs((PyObject *)mf__method_type, self, object, NULL);
  Py_IncRef(self);
  return self;
}

/* Spelt out: the limited API names them from 3.12 on, CPython has had them since 3.9. */
#define HAVE_VECTORCALL (1UL << 11)

static PyMemberDef function_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(mf__value, vectorcall), READONLY, NULL}, {NULL, 0, 0, 0, NULL}};

static PyMethodDef function_methods[] = {
    {"coroutine", function_coroutine, METH_VARARGS,
     "coroutine(*arguments): returns a new coroutine of this function, which gets the arguments when it is first\n"
     "resumed."},
    {"__copy__", mf__function_itself, METH_NOARGS, "The function itself."},
    {"__deepcopy__", mf__function_itself, METH_O, "The function itself."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef function_fields[] = {
    {"__signature__", mf__function_signature, NULL, "The parameters by name.", NULL}, {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot function_slots[] = {
    {Py_tp_dealloc, mf__value_dealloc}, {Py_tp_traverse, mf__value_traverse},    {Py_tp_call, mf__value_tp_call},
    {Py_tp_descr_get, function_bind},   {Py_tp_members, function_members},       {Py_tp_getset, function_fields},
    {Py_tp_methods, function_methods},  {Py_tp_doc, "A Lua function, which Python can call."}, {0, NULL}};

static PyType_Slot factory_slots[] = {{Py_tp_dealloc, mf__value_dealloc},
                                      {Py_tp_traverse, mf__value_traverse},
                                      {Py_tp_call, factory_call},
                                      {Py_tp_methods, function_methods},
                                      {Py_tp_doc, "A function that makes coroutines: each call begins a new one."},
                                      {0, NULL}};

/* Calls without a tuple of arguments come by the field; only functions have it. */
static PyObject *make_function(lua_State *L, int index) {
  PyObject *function = mf__value_new(L, index, mf__function_type);
  ((mf__value *)function)->vectorcall = mf__value_call;
  return function;
}

int mf__function_types_ready(void) {
  const int size = (int)sizeof(mf__value);
  if (find_method_type() != 0) return -1;
  mf__makers.function = make_function;
  if (mf__function_type == NULL)
    mf__function_type = mf__value_subtype("moonferry.LuaFunction", size, function_slots, HAVE_VECTORCALL);
  if (mf__function_type == NULL) return -1;
  /* A library (such as pandas) takes an object that has __iter__ for a list of things, not for a function. */
  if (PyObject_SetAttrString((PyObject *)mf__function_type, "__iter__", Py_None) != 0) return -1;
  if (mf__factory_type == NULL)
    mf__factory_type = mf__value_subtype("moonferry.LuaCoroutineFunction", size, factory_slots, 0);
  return mf__factory_type != NULL ? 0 : -1;
}
