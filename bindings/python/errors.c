/* errors.c: a mf_error, or a refusal of our own, as a Python exception.
 *
 * Invariant: which exception belongs to which status is decided here only, and every function here
 * returns -1 with an exception set. It must not know who calls.
 */
#include "core.h"

#include <stdarg.h>

static PyObject *exception_for(const core_state *state, int32_t status) {
  switch (status) {
    case MF_ENOMEM:
      return PyExc_MemoryError;
    case MF_EOVERFLOW:
      return PyExc_OverflowError;
    case MF_EBOUNDS:
      return PyExc_IndexError;
    case MF_EDTYPE:
      return PyExc_TypeError;
    case MF_EVERSION:
      return state->exchange_error;
    default:
      return PyExc_ValueError;
  }
}

int core_raise(core_state *state, const mf_error *err) {
  PyErr_SetString(exception_for(state, err->status), err->message);
  return -1;
}

/* What ${what} could not do with an exchanged tensor; ${producer} (may be NULL) is named by its type. */
int core_raise_exchange(core_state *state, const mf_error *err, const char *what, PyObject *producer) {
  PyObject *type = err->status == MF_ENOMEM ? PyExc_MemoryError : state->exchange_error;
  if (producer == NULL)
    PyErr_Format(type, "%s: %s", what, err->message);
  else
    PyErr_Format(type, "%s: %s (from a '%s')", what, err->message, Py_TYPE(producer)->tp_name);
  return -1;
}

int core_refuse(core_state *state, const char *format, ...) {
  va_list args;
  va_start(args, format);
  PyErr_FormatV(state->exchange_error, format, args);
  va_end(args);
  return -1;
}

/* Makes a fetched exception (whose references it takes over) the context of the one that is set, as an
 * except clause would. Without a set one it is dropped. */
void core_chain(PyObject *type, PyObject *value, PyObject *traceback) {
  PyObject *new_type, *new_value, *new_traceback;
  PyErr_Fetch(&new_type, &new_value, &new_traceback);
  if (type != NULL && new_type != NULL) {
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) PyException_SetTraceback(value, traceback);
    PyErr_NormalizeException(&new_type, &new_value, &new_traceback);
    if (new_value != value) {
      Py_INCREF(value);
      PyException_SetContext(new_value, value);
    }
  }
  PyErr_Restore(new_type, new_value, new_traceback);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
}
