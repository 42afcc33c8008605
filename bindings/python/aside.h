/* aside.h: code of somebody else's that runs while an exception may be on its way.
 *
 * Deleters, finalizers and destructors may run any Python code, which must neither meet that exception nor lose it: it
 * is set aside for as long. What such code leaves behind itself is dropped. Used by the module and by the bridge; needs
 * Python.h before it and the GIL. */
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
