/* code.c: runs Python code of ours.
 *
 * By CPython itself, not by builtins.exec, which a program may have taken away. Must not know: what the code does. */
#include "lifetime.h"

int mf__run_code(const char *text, PyObject *names) {
  PyObject *builtins = PyEval_GetBuiltins();
  const int ready = names != NULL && builtins != NULL && PyDict_SetItemString(names, "__builtins__", builtins) == 0;
  PyObject *code = ready ? Py_CompileString(text, "<moonferry>", Py_file_input) : NULL;
  PyObject *result = code != NULL ? PyEval_EvalCode(code, names, names) : NULL;
  Py_DecRef(result);
  Py_DecRef(code);
  return result != NULL ? 0 : -1;
}
