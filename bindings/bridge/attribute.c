/* attribute.c: reads and sets attributes of Python objects for the scripts of a moonferry.Lua.
 *
 * Invariant: no attribute is read or set for a script without asking attribute_filter or attribute_handlers first,
 * attributes of exceptions included. Must not know: what has items. */
#include "objects.h"

static const mf__options *options_here(void) {
  return &mf__top->bridge->state->options;
}

/* The name of an attribute after the filter. Borrowed, or held. */
static PyObject *name_of(lua_State *L, PyObject *object, PyObject *key, PyObject *setting) {
  const mf__options *options = options_here();
  PyObject *name = key;
  if (options->filter != NULL) {
    MF__OUTSIDE(name, PyObject_CallFunctionObjArgs(options->filter, object, key, setting, NULL));
    mf__hold(L, name);
  }
  if (!PyBytes_Check(name)) return name;
  PyObject *text;
  MF__OUTSIDE(text, PyUnicode_FromEncodedObject(name, options->source_encoding, NULL));
  return mf__hold(L, text);
}

PyObject *mf__attribute_get(lua_State *L, PyObject *object, PyObject *key) {
  PyObject *getter = options_here()->getter, *value;
  if (getter != NULL) {
    MF__OUTSIDE(value, PyObject_CallFunctionObjArgs(getter, object, key, NULL));
  } else {
    PyObject *name = name_of(L, object, key, Py_False);
    MF__OUTSIDE(value, PyObject_GetAttr(object, name));
  }
  return value;
}

void mf__attribute_set(lua_State *L, PyObject *object, PyObject *key, PyObject *value) {
  PyObject *setter = options_here()->setter, *answer;
  int failed;
  if (setter != NULL) {
    MF__OUTSIDE(answer, PyObject_CallFunctionObjArgs(setter, object, key, value, NULL));
    mf__hold(L, answer);
    return;
  }
  PyObject *name = name_of(L, object, key, Py_True);
  MF__OUTSIDE(failed, PyObject_SetAttr(object, name, value));
  if (failed) mf__raise(L);
}
