/* fault.c: what goes wrong, told in Lua.
 *
 * A Python exception becomes one string: where in Lua, the exception's type and message, then the traceback
 * as Python prints it. Invariant: no Python exception is pending afterwards. */
#include <stdarg.h>

#include "bridge.h"

/* The Lua code that called: above the body and mf__enter. */
#define CALLER_LEVEL 2

int mf__fail(lua_State *L, const char *format, ...) {
  va_list args;
  va_start(args, format);
  luaL_where(L, CALLER_LEVEL);
  lua_pushvfstring(L, format, args);
  va_end(args);
  lua_concat(L, 2);
  return lua_error(L);
}

/* Pushes the text of ${text}, a str that may be NULL after a failure, and takes the reference over. */
static void push_text(lua_State *L, PyObject *text, const char *otherwise) {
  PyObject *bytes = text ? PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace") : NULL;
  Py_DecRef(text);
  char *data = NULL;
  Py_ssize_t size = 0;
  if (bytes == NULL || PyBytes_AsStringAndSize(bytes, &data, &size) != 0) {
    PyErr_Clear();
    Py_DecRef(bytes);
    lua_pushstring(L, otherwise);
    return;
  }
  while (size > 0 && data[size - 1] == '\n') size--;
  mf__hold(L, bytes);
  lua_pushlstring(L, data, (size_t)size);
  mf__drop();
}

/* "package.Type", and "Type" alone for what needs no package. */
static PyObject *type_name(PyObject *type) {
  PyObject *name = PyObject_GetAttrString(type, "__qualname__");
  PyObject *module = PyObject_GetAttrString(type, "__module__");
  if (name == NULL || module == NULL) {
    Py_DecRef(module);
    return name;
  }
  PyObject *full = NULL;
  if (PyUnicode_CompareWithASCIIString(module, "builtins") == 0 ||
      PyUnicode_CompareWithASCIIString(module, "__main__") == 0) {
    Py_IncRef(name);
    full = name;
  } else {
    full = PyUnicode_FromFormat("%U.%U", module, name);
  }
  Py_DecRef(module);
  Py_DecRef(name);
  return full;
}

static PyObject *headline(PyObject *type, PyObject *value) {
  PyObject *name = type_name(type);
  PyObject *text = name ? PyObject_Str(value) : NULL;
  PyObject *line = NULL;
  if (text != NULL) {
    line = PyUnicode_GetLength(text) ? PyUnicode_FromFormat("%U: %U", name, text) : NULL;
  } else {
    PyErr_Clear();
  }
  Py_DecRef(text);
  if (line != NULL) {
    Py_DecRef(name);
    return line;
  }
  return name;
}

static PyObject *formatted(PyObject *type, PyObject *value, PyObject *trace) {
  PyObject *module = PyImport_ImportModule("traceback");
  if (module == NULL) return NULL;
  PyObject *lines = PyObject_CallMethod(module, "format_exception", "OOO", type, value, trace);
  Py_DecRef(module);
  PyObject *empty = lines ? PyUnicode_FromString("") : NULL;
  PyObject *text = empty ? PyUnicode_Join(empty, lines) : NULL;
  Py_DecRef(empty);
  Py_DecRef(lines);
  return text;
}

int mf__raise(lua_State *L) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  if (type == NULL) return mf__fail(L, "Python reported a failure without an exception");
  PyErr_NormalizeException(&type, &value, &trace);
  mf__hold(L, type);
  mf__hold(L, value);
  if (trace != NULL) {
    mf__hold(L, trace);
    PyException_SetTraceback(value, trace);
  }
  luaL_where(L, CALLER_LEVEL);
  push_text(L, headline(type, value), "a Python exception that cannot be printed");
  if (trace != NULL) {
    lua_pushliteral(L, "\n");
    push_text(L, formatted(type, value, trace), "(its traceback cannot be printed)");
    lua_concat(L, 3);
  }
  lua_concat(L, 2);
  return lua_error(L);
}
