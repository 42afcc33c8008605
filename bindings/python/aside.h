/* aside.h: other people's code that runs while an exception may be on its way.
 *
 * Deleters, finalizers and destructors may run any Python code, which must neither meet that exception nor lose it, so
 * it is set aside until they are done. An exception that they leave is dropped. The module and the bridge use this; it
 * needs Python.h before it, and the GIL. */
#ifndef MOONFERRY_ASIDE_H
#define MOONFERRY_ASIDE_H

typedef struct aside {
  PyObject *type, *value, *traceback;
} aside;

static inline aside aside_begin(void) {
  aside kept;
  PyErr_Fetch(&kept.type, &kept.value, &kept.traceback);
  return kept;
}

/* Takes over the references. */
static inline void aside_end(aside kept) {
  PyErr_Restore(kept.type, kept.value, kept.traceback);
}

#endif
