/* error_types.c: makes the exception types of errors in Lua: LuaError and its kinds.
 *
 * They belong to the lowest layer, so that any layer can raise them. Must not know: how an error becomes one. */
#include "lifetime.h"

PyObject *mf__lua_error_type, *mf__lua_syntax_error_type, *mf__lua_memory_error_type;

static PyObject *new_type(const char *name, const char *doc, PyObject *bases, PyObject *fields) {
  PyObject *type = bases != NULL ? PyErr_NewExceptionWithDoc(name, doc, bases, fields) : NULL;
  Py_DecRef(bases);
  Py_DecRef(fields);
  return type;
}

static PyObject *default_fields(void) {
  return Py_BuildValue("{sOsOsOsO}", "value", Py_None, "traceback", Py_None, "message", Py_None, "_state", Py_None);
}

int mf__error_types_ready(void) {
  if (mf__lua_memory_error_type != NULL) return 0;
  mf__lua_error_type = new_type("moonferry.LuaError",
                                "A Lua error. value: what was thrown; message: its text; traceback: Lua's stack.\n\n"
                                "It can be pickled, so that it comes back from a worker process, and copied. A pickle\n"
                                "leaves out a value that is Lua's: value is None then. Notes and attributes that a\n"
                                "program has set go along.",
                                PyTuple_Pack(1, PyExc_Exception), default_fields());
  if (mf__lua_error_type == NULL) return -1;
  mf__lua_syntax_error_type = new_type("moonferry.LuaSyntaxError", "Lua code cannot be compiled.",
                                       PyTuple_Pack(1, mf__lua_error_type), NULL);
  if (mf__lua_syntax_error_type == NULL) return -1;
  mf__lua_memory_error_type = new_type("moonferry.LuaMemoryError", "Lua has no memory left, or reached its limit.",
                                       PyTuple_Pack(2, mf__lua_error_type, PyExc_MemoryError), NULL);
  return mf__lua_memory_error_type != NULL ? 0 : -1;
}
