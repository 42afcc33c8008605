/* error_copy.c: how errors of Lua are pickled and copied.
 *
 * A pickle leaves out what cannot leave the process: the state, and a value that is Lua's. A copy keeps both, so that
 * it is the same error where it gets back into its state. All other attributes go along, notes included. Must not
 * know: how an error becomes an exception. */
#include "objects.h"

static const char methods[] =
    "def __reduce__(self):\n"
    "    make, arguments, *rest = super(LuaError, self).__reduce__()\n"
    "    fields = dict(rest[0] or ()) if rest else {}\n"
    "    fields.pop('_state', None)\n"
    "    if isinstance(fields.get('value'), LuaObject):\n"
    "        del fields['value']\n"
    "    return make, arguments, fields, *rest[1:]\n"
    "\n"
    "def copied(self, part):\n"
    "    made = self.__reduce_ex__(4)\n"
    "    if isinstance(made, str):\n"
    "        return self\n"
    "    make, arguments, fields = (*made, None)[:3]\n"
    "    copy = make(*part(arguments, None))\n"
    "    if fields is not None:\n"
    "        copy.__setstate__(part(fields, copy))\n"
    "    own = vars(self)\n"
    "    if '_state' in own:\n"
    "        copy.__dict__['_state'] = own['_state']\n"
    "    if isinstance(own.get('value'), LuaObject):\n"
    "        copy.__dict__['value'] = own['value']\n"
    "    return copy\n"
    "\n"
    "def __copy__(self):\n"
    "    return copied(self, lambda part, copy: part)\n"
    "\n"
    "def __deepcopy__(self, memo):\n"
    "    from copy import deepcopy\n"
    "    def deep(part, copy):\n"
    "        if copy is not None:\n"
    "            memo[id(self)] = copy\n"
    "        return deepcopy(part, memo)\n"
    "    return copied(self, deep)\n";

/* What the code above defines. It is compiled where it is first needed: up to CPython 3.11 the compiler may end the
 * process where memory ends, and many programs never copy an error. */
static PyObject *_Atomic definitions;

static PyObject *defined(void) {
  PyObject *names = atomic_load(&definitions), *none = NULL;
  if (names != NULL) return names;
  names = Py_BuildValue("{sssOsO}", "__name__", "moonferry", "LuaError", mf__lua_error_type, "LuaObject",
                        (PyObject *)mf__object_type);
  if (names == NULL || mf__run_code(methods, names) != 0) {
    Py_DecRef(names);
    return NULL;
  }
  if (atomic_compare_exchange_strong(&definitions, &none, names)) return names;
  Py_DecRef(names);
  return none;
}

static PyObject *call(const char *name, PyObject *self, PyObject *argument) {
  PyObject *names = defined();
  PyObject *function = names != NULL ? PyDict_GetItemString(names, name) : NULL;
  return function != NULL ? PyObject_CallFunctionObjArgs(function, self, argument, NULL) : NULL;
}

static PyObject *error_reduce(PyObject *self, PyObject *unused) {
  (void)unused;
  return call("__reduce__", self, NULL);
}

static PyObject *error_copy(PyObject *self, PyObject *unused) {
  (void)unused;
  return call("__copy__", self, NULL);
}

static PyObject *error_deepcopy(PyObject *self, PyObject *memo) {
  return call("__deepcopy__", self, memo);
}

static PyMethodDef copies[] = {
    {"__reduce__", error_reduce, METH_NOARGS, "For pickle: without the state, and without a value that is Lua's."},
    {"__copy__", error_copy, METH_NOARGS, "__copy__($self, /)\n--\n\nA copy with the same state and value."},
    {"__deepcopy__", error_deepcopy, METH_O,
     "__deepcopy__($self, memo, /)\n--\n\n"
     "A copy with copies of its attributes. The state is the same, and so is a value that is Lua's."}};

int mf__error_copies_ready(void) {
  for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
    PyObject *method = PyDescr_NewMethod((PyTypeObject *)mf__lua_error_type, &copies[i]);
    const int failed = method == NULL || PyObject_SetAttrString(mf__lua_error_type, copies[i].ml_name, method) != 0;
    Py_DecRef(method);
    if (failed) return -1;
  }
  return 0;
}
