/* collections.c: keeps Python's collector from running in the midst of a body.
 *
 * Up to CPython 3.11 any allocation may run it, with anybody's finalizers, and these may wait for a thread that wants
 * the state whose lock the body has. So it is off while a body runs, and the next allocation outside makes up for that.
 * (gc.callbacks tells when it begins and when it ends, but not always both: a program may change that list meanwhile,
 * and where memory ends none is called.) CPython 3.12 and later collect between instructions of
 * Python code alone. Invariant: outside of bodies the collector is as the program has it. Must not know: what a body
 * does. */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "guard.h"

/* PyGC_Disable and PyGC_Enable, which the limited API has from 3.10 on; NULL where they are not needed. The first says
 * whether the collector was on. */
static int (*turn_off)(void), (*turn_on)(void);

/* CPython 3.9: the functions of the module gc, unless a program has put others in their place, which may be no code of
 * C's. */
static PyCFunction gc_isenabled, gc_disable, gc_enable;

static int turn_off_by_module(void) {
  PyObject *answer = gc_isenabled(NULL, NULL);
  const int was_on = answer == Py_True;
  Py_DecRef(answer);
  if (was_on) Py_DecRef(gc_disable(NULL, NULL));
  return was_on;
}

static int turn_on_by_module(void) {
  Py_DecRef(gc_enable(NULL, NULL));
  return 0;
}

static PyCFunction function_of(PyObject *module, const char *name) {
  PyObject *function = PyObject_GetAttrString(module, name);
  PyCFunction found = function != NULL && PyCFunction_Check(function) ? PyCFunction_GetFunction(function) : NULL;
  Py_DecRef(function);
  return found;
}

static int find_in_module(void) {
  PyObject *gc = PyImport_ImportModule("gc");
  if (gc == NULL) return -1;
  gc_isenabled = function_of(gc, "isenabled");
  gc_disable = function_of(gc, "disable");
  gc_enable = function_of(gc, "enable");
  Py_DecRef(gc);
  if (!answer_is_no()) return -1;
  if (gc_isenabled == NULL || gc_disable == NULL || gc_enable == NULL) return 0;
  turn_off = turn_off_by_module;
  turn_on = turn_on_by_module;
  return 0;
}

int mf__collections_find(void) {
  if (strncmp(Py_GetVersion(), "3.", 2) != 0 || atoi(Py_GetVersion() + 2) >= 12) return 0;
  *(void **)&turn_off = dlsym(RTLD_DEFAULT, "PyGC_Disable");
  *(void **)&turn_on = dlsym(RTLD_DEFAULT, "PyGC_Enable");
  return turn_off != NULL && turn_on != NULL ? 0 : find_in_module();
}

void mf__collections_stop(mf__frame *frame) {
  frame->collects = turn_off != NULL && turn_off() != 0;
}

void mf__collections_go_on(const mf__frame *frame) {
  if (frame->collects) (void)turn_on();
}

/* A collection begins only where an object is made, and a program may make all of them in bodies. */
void mf__collections_catch_up(void) {
  enum { SELDOM = 256 };
  static unsigned calls;
  if (turn_off == NULL || ++calls % SELDOM != 0 || PyErr_Occurred() != NULL) return;
  Py_DecRef(PyCallIter_New(Py_None, Py_None)); /* lists and the like come from stock */
  PyErr_Clear();
}
