/* signature.c: answers what Python libraries ask of a Lua function beside calling it.
 *
 *   inspect.signature(f)    its parameters by name, then any more: SciPy's curve_fit asks how many there are
 *   copy.copy, deepcopy     the function itself, as of a Python function: so a model with a hook can be copied
 *
 * Must not know: how a function is called. */
#include <string.h>

#include "objects.h"

#define MORE "_more"

struct names {
  mf__value *function;
  PyObject *list;
};

/* By their text, whatever == is for a str of a codec's own class. */
static int is_taken(PyObject *list, PyObject *name) {
  int taken = PyUnicode_CompareWithASCIIString(name, MORE) == 0;
  for (Py_ssize_t i = 0; i < PyList_Size(list) && !taken; i++)
    taken = PyUnicode_Compare(PyList_GetItem(list, i), name) == 0;
  return taken;
}

/* Appends a name, taken over, as a signature can have it: Lua takes any character, and a name again. -1: an error. */
static int append_name(PyObject *list, PyObject *name) {
  if (name != NULL && !PyUnicode_IsIdentifier(name)) {
    Py_DecRef(name);
    name = PyUnicode_FromString("_");
  }
  while (name != NULL && is_taken(list, name)) {
    PyObject *other = PyUnicode_FromFormat("_%U", name);
    Py_DecRef(name);
    name = other;
  }
  int status = name != NULL ? PyList_Append(list, name) : -1;
  Py_DecRef(name);
  return status;
}

/* A list of the function's parameters. One of C, or without debug information, tells none. */
static int names_body(lua_State *L, void *data) {
  struct names *names = data;
  PyObject *list = mf__hold(L, PyList_New(0));
  mf__value_push(L, names->function);
  int known = lua_type(L, -1) == LUA_TFUNCTION && !lua_iscfunction(L, -1);
  const char *name = known ? lua_getlocal(L, NULL, 1) : NULL;
  for (int i = 2; name != NULL; i++) {
    if (append_name(list, mf__text_of_error(name, strlen(name))) != 0) mf__raise(L);
    name = lua_getlocal(L, NULL, i);
  }
  names->list = mf__take();
  return 0;
}

static int add_parameter(PyObject *inspect, PyObject *parameters, PyObject *name, const char *kind_name) {
  PyObject *type = PyObject_GetAttrString(inspect, "Parameter");
  PyObject *kind = type != NULL ? PyObject_GetAttrString(type, kind_name) : NULL;
  PyObject *parameter = kind != NULL ? PyObject_CallFunctionObjArgs(type, name, kind, NULL) : NULL;
  int status = parameter != NULL ? PyList_Append(parameters, parameter) : -1;
  Py_DecRef(parameter);
  Py_DecRef(kind);
  Py_DecRef(type);
  return status;
}

static int add_parameters(PyObject *inspect, PyObject *parameters, PyObject *names) {
  for (Py_ssize_t i = 0; i < PyList_Size(names); i++) {
    if (add_parameter(inspect, parameters, PyList_GetItem(names, i), "POSITIONAL_ONLY") != 0) return -1;
  }
  PyObject *more = PyUnicode_FromString(MORE);
  int status = more != NULL ? add_parameter(inspect, parameters, more, "VAR_POSITIONAL") : -1;
  Py_DecRef(more);
  return status;
}

PyObject *mf__function_signature(PyObject *self, void *unused) {
  (void)unused;
  struct names names = {(mf__value *)self, NULL};
  if (mf__call_in_by(names.function, names_body, &names) != 0) return NULL;
  PyObject *inspect = PyImport_ImportModule("inspect");
  PyObject *parameters = PyList_New(0), *signature = NULL;
  if (inspect != NULL && parameters != NULL && add_parameters(inspect, parameters, names.list) == 0)
    signature = PyObject_CallMethod(inspect, "Signature", "O", parameters);
  Py_DecRef(parameters);
  Py_DecRef(inspect);
  Py_DecRef(names.list);
  return signature;
}

PyObject *mf__function_itself(PyObject *self, PyObject *unused) {
  (void)unused;
  Py_IncRef(self);
  return self;
}
