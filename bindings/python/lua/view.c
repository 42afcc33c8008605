/* view.c: an object together with how Lua shall see it: what as_attrgetter and as_itemgetter give.
 *
 * Invariant: a view is never seen by Lua, only what is inside. */
#include "runtime.h"

typedef struct view {
  PyObject ob_base;
  PyObject *object;
  int flags;
} view;

static PyTypeObject *view_type;

static void view_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Py_DecRef(((view *)self)->object);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DecRef((PyObject *)type);
}

static int view_traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(((view *)self)->object);
  return 0;
}

static PyType_Slot slots[] = {{Py_tp_dealloc, view_dealloc},
                              {Py_tp_traverse, view_traverse},
                              {Py_tp_new, mf__no_new},
                              {Py_tp_doc, "A Python object, and whether Lua sees its items or its attributes."},
                              {0, NULL}};

static PyType_Spec spec = {.name = "moonferry.LuaView",
                           .basicsize = sizeof(view),
                           .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                           .slots = slots};

int mf__view_type_ready(void) {
  if (view_type == NULL) view_type = (PyTypeObject *)PyType_FromSpec(&spec);
  return view_type != NULL ? 0 : -1;
}

/* Of a view it makes another one of the same object, as if that had not been a view. */
PyObject *mf__view_new(PyObject *object, int flags) {
  if (Py_TYPE(object) == view_type) object = ((view *)object)->object;
  view *made = (view *)PyType_GenericAlloc(view_type, 0);
  if (made == NULL) return NULL;
  Py_IncRef(object);
  made->object = object;
  made->flags = flags;
  return (PyObject *)made;
}

PyObject *mf__view_of(PyObject *object, int *flags) {
  if (Py_TYPE(object) != view_type) return NULL;
  *flags = ((view *)object)->flags;
  return ((view *)object)->object;
}
