/* collections.c: keeps Python's collector from running in the midst of a body.
 *
 * Up to CPython 3.11 any allocation may run it, with anybody's finalizers, and these may wait for a thread that wants
 * the state whose lock the body has. So it is off while a body runs, and the next allocation outside makes up for that.
 * (gc.callbacks tells when it begins and when it ends, but not always both: a program may change that list meanwhile,
 * and where memory ends none is called.) Later ones collect between instructions of Python code alone. Invariant:
 * outside of bodies the collector is as the program has it. Must not know: what a body does. */
#include <stdlib.h>
#include <string.h>

#include "guard.h"

/* The functions of the module gc; NULL where they are not needed, or a program has put others in their place, which may
 * be no code of C's. The limited API has these three from 3.10 on. */
static PyCFunction is_on, turn_off, turn_on;

static PyCFunction function_of(PyObject *module, const char *name) {
  PyObject *function = PyObject_GetAttrString(module, name);
  PyCFunction found = function != NULL && PyCFunction_Check(function) ? PyCFunction_GetFunction(function) : NULL;
  Py_DecRef(function);
  return found;
}

int mf__collections_find(void) {
  if (strncmp(Py_GetVersion(), "3.", 2) != 0 || atoi(Py_GetVersion() + 2) >= 12) return 0;
  PyObject *gc = PyImport_ImportModule("gc");
  if (gc == NULL) return -1;
  turn_off = function_of(gc, "disable");
  turn_on = turn_off != NULL ? function_of(gc, "enable") : NULL;
  is_on = turn_on != NULL ? function_of(gc, "isenabled") : NULL;
  Py_DecRef(gc);
  return answer_is_no() ? 0 : -1;
}

void mf__collections_stop(mf__frame *frame) {
  frame->collects = 0;
  if (is_on == NULL) return;
  PyObject *answer = is_on(NULL, NULL);
  frame->collects = answer == Py_True;
  Py_DecRef(answer);
  if (frame->collects) Py_DecRef(turn_off(NULL, NULL));
}

void mf__collections_go_on(const mf__frame *frame) {
  if (frame->collects) Py_DecRef(turn_on(NULL, NULL));
}

/* A collection begins only where an object is made, and a program may make all of them in bodies. */
void mf__collections_catch_up(void) {
  enum { SELDOM = 256 };
  static unsigned calls;
  if (is_on == NULL || ++calls % SELDOM != 0 || PyErr_Occurred() != NULL) return;
  Py_DecRef(PyCallIter_New(Py_None, Py_None)); /* lists and the like come from stock */
  PyErr_Clear();
}
