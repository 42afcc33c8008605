/* free_threads.h: what differs where CPython has no GIL (PEP 703), for the module and the bridge.
 *
 * With the GIL everything here is what was written without it: the same instructions. Without it a pointer that is
 * shared is atomic, a reference is never borrowed from what others may change, and an object that changes is changed
 * in its critical section. It needs Python.h before it. */
#ifndef MOONFERRY_FREE_THREADS_H
#define MOONFERRY_FREE_THREADS_H

#include <stdatomic.h>

#ifndef Py_BEGIN_CRITICAL_SECTION
#define Py_BEGIN_CRITICAL_SECTION(object) {
#define Py_END_CRITICAL_SECTION() }
#define Py_BEGIN_CRITICAL_SECTION2(first, second) {
#define Py_END_CRITICAL_SECTION2() }
#endif

/* Defines ${name} as ${name}_locked in the critical section of the object that is its first argument. */
#define CORE_LOCKED(name, type)                     \
  static PyObject *name(PyObject *self, type arg) { \
    PyObject *result;                               \
    Py_BEGIN_CRITICAL_SECTION(self);                \
    result = name##_locked(self, arg);              \
    Py_END_CRITICAL_SECTION();                      \
    return result;                                  \
  }

/* A reference that is set once, by whichever thread comes first, and then never changes. */
typedef _Atomic(PyObject *) core_once;

/* NULL before it is set. Borrowed. */
static inline PyObject *core_once_get(const core_once *once) {
  return atomic_load_explicit(once, memory_order_acquire);
}

/* Takes ${made} over, unless that is NULL; returns what is kept from now on, borrowed. */
static inline PyObject *core_once_set(core_once *once, PyObject *made) {
  PyObject *before = NULL;
  if (made == NULL || atomic_compare_exchange_strong(once, &before, made)) return made;
  Py_DECREF(made);
  return before;
}

/* A new reference to the value of ${key}; NULL without an exception where there is none. */
static inline PyObject *core_dict_get(PyObject *dict, PyObject *key) {
  PyObject *found;
#ifdef Py_GIL_DISABLED
  (void)PyDict_GetItemRef(dict, key, &found);
#else
  found = PyDict_GetItemWithError(dict, key);
  Py_XINCREF(found);
#endif
  return found;
}

/* Takes ${made} over, unless that is NULL; a new reference to what the dict has under ${key} from now on, which is
 * another thread's where that one came first. */
static inline PyObject *core_dict_keep(PyObject *dict, PyObject *key, PyObject *made) {
  PyObject *kept;
  if (made == NULL) return NULL;
#ifdef Py_GIL_DISABLED
  (void)PyDict_SetDefaultRef(dict, key, made, &kept);
#else
  kept = PyDict_SetDefault(dict, key, made);
  Py_XINCREF(kept);
#endif
  Py_DECREF(made);
  return kept;
}

/* Clears the weak references to an object that dies. Those may be dying on other threads, so the field is read as
 * they write it. */
#define CORE_CLEAR_WEAKREFS(self, field)                                                   \
  do {                                                                                     \
    if (__atomic_load_n(&(field), __ATOMIC_RELAXED) != NULL) PyObject_ClearWeakRefs(self); \
  } while (0)

#endif
