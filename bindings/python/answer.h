/* answer.h: what an object answers when it is asked what it is.
 *
 * An attribute, a method or a length that it has not got is an answer, by an exception. Want of memory, Ctrl-C and an
 * exit are none, and whoever takes one for "no" has lost it. The module and the bridge use this; it needs Python.h
 * before it, and the GIL. */
#ifndef MOONFERRY_ANSWER_H
#define MOONFERRY_ANSWER_H

#include <stdbool.h>

/* Whether the exception that is set can be an answer. */
static inline bool answer_is_set(void) {
  return PyErr_ExceptionMatches(PyExc_Exception) && !PyErr_ExceptionMatches(PyExc_MemoryError);
}

/* Whether ${exception} is Ctrl-C or an exit, which must not be lost in what it interrupted. */
static inline bool answer_is_exit(PyObject *exception) {
  return !PyErr_GivenExceptionMatches(exception, PyExc_Exception);
}

/* Whether a question was answered with no: by an exception, which is gone then, or without one. What is no answer
 * stays. */
static inline bool answer_is_no(void) {
  if (PyErr_Occurred() == NULL) return true;
  if (!answer_is_set()) return false;
  PyErr_Clear();
  return true;
}

/* Whether ${obj} has the attribute: 1, 0, or -1 with an exception other than AttributeError. */
static inline int answer_has(PyObject *obj, PyObject *name) {
  PyObject *value = PyObject_GetAttr(obj, name);
  if (value != NULL) {
    Py_DECREF(value);
    return 1;
  }
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
  PyErr_Clear();
  return 0;
}

/* An array without axes looks like a sequence, but has no length: 1, 0, or -1 with what is no answer. */
static inline int answer_has_length(PyObject *obj) {
  if (PyObject_Size(obj) >= 0) return 1;
  return answer_is_no() ? 0 : -1;
}

#endif
