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
    case MF_EDRIVER:
      return state->driver_error;
    case MF_ECAPTURE:
      return PyExc_RuntimeError;
    case MF_ETIMEOUT:
      return PyExc_TimeoutError;
    default:
      return PyExc_ValueError;
  }
}

/* A DriverError has the call and the driver's number as attributes. */
static int raise_driver(core_state *state, PyObject *message, const mf_error *err) {
  PyObject *made = message == NULL ? NULL : PyObject_CallOneArg(state->driver_error, message);
  PyObject *call = PyUnicode_FromString(err->call);
  PyObject *code = PyLong_FromLong(err->driver_code);
  if (made != NULL && call != NULL && code != NULL && PyObject_SetAttr(made, state->names[NAME_CALL], call) == 0 &&
      PyObject_SetAttr(made, state->names[NAME_CODE], code) == 0)
    PyErr_SetObject(state->driver_error, made);
  Py_XDECREF(made);
  Py_XDECREF(call);
  Py_XDECREF(code);
  Py_XDECREF(message);
  return -1;
}

int core_raise(core_state *state, const mf_error *err) {
  if (err->status == MF_EDRIVER) return raise_driver(state, PyUnicode_FromString(err->message), err);
  PyErr_SetString(exception_for(state, err->status), err->message);
  return -1;
}

/* What ${what} could not do with an exchanged tensor; ${producer} (may be NULL) is named by its type. */
int core_raise_exchange(core_state *state, const mf_error *err, const char *what, PyObject *producer) {
  PyObject *type = err->status == MF_ENOMEM ? PyExc_MemoryError : state->exchange_error;
  if (err->status == MF_EDRIVER)
    return raise_driver(state, PyUnicode_FromFormat("%s: %s", what, err->message), err);
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
