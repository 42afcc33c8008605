/* ring.c: the type moonferry.Ring: some memories of the host in turn.
 *
 * Invariant: a frame allocates nothing; the GIL is released only where no slot is free. A ring's fields are read and
 * changed in its critical section. It must not know whose queue a fence is of.
 */
#include "core.h"

#include <stddef.h>
#include <structmember.h>

static core_ring *as_ring(PyObject *obj) {
  return (core_ring *)obj;
}

static core_state *state_of(PyObject *ring) {
  return PyType_GetModuleState(Py_TYPE(ring));
}

PyDoc_STRVAR(from_handle_doc,
             "from_handle($type, handle, /)\n--\n\n"
             "Returns the Ring of an mf_ring * that a C program or a Lua state holds (its `handle`), given as an\n"
             "int. It takes a reference of its own.\n"
             "\n"
             "Moonferry cannot check the number. Raises ValueError for 0.");

static int ring_traverse(PyObject *self, visitproc visit, void *arg) {
  const core_ring *r = as_ring(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(r->slots);
  Py_VISIT(r->begun);
  Py_VISIT(r->stale);
  Py_VISIT(r->fresh);
  Py_VISIT(r->views);
  return 0;
}

/* The C ring goes last: release callbacks may run then. */
static int ring_clear(PyObject *self) {
  core_ring *r = as_ring(self);
  mf_ring *ring = r->ring;
  r->ring = NULL;
  Py_CLEAR(r->views);
  Py_CLEAR(r->begun);
  Py_CLEAR(r->stale);
  Py_CLEAR(r->fresh);
  Py_CLEAR(r->slots);
  core_ring_release(ring);
  return 0;
}

static void ring_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  CORE_CLEAR_WEAKREFS(self, as_ring(self)->weakrefs);
  (void)ring_clear(self);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

static core_ring *open_ring(PyObject *self) {
  if (as_ring(self)->ring != NULL) return as_ring(self);
  PyErr_SetString(PyExc_ValueError, "the ring is closed, by close() or at the end of its with block");
  return NULL;
}

/* A new reference to the answer about a slot. */
static PyObject *answer(PyObject *all, int32_t slot) {
  PyObject *one = PyTuple_GET_ITEM(all, slot);
  Py_INCREF(one);
  return one;
}

/* The writer */

/* Ctrl-C is looked at so often while a thread waits for a slot. */
#define CHUNK_NS 50000000

/* None as for ever, else seconds. */
static int read_timeout(PyObject *obj, int64_t *ns) {
  *ns = INT64_MAX;
  if (obj == NULL || obj == Py_None) return 0;
  const double seconds = PyFloat_AsDouble(obj);
  if (seconds == -1.0 && PyErr_Occurred()) {
    if (PyErr_ExceptionMatches(PyExc_TypeError))
      PyErr_Format(PyExc_TypeError, "timeout must be None or seconds, not '%s'", Py_TYPE(obj)->tp_name);
    return -1;
  }
  if (!(seconds >= 0 && seconds <= 9e9)) {
    PyErr_Format(PyExc_ValueError, "timeout is %R; None or seconds from 0 to 9e9 expected", obj);
    return -1;
  }
  *ns = (int64_t)(seconds * 1e9);
  return 0;
}

/* MF_OK, or a status with an exception. Another thread may close the ring meanwhile. */
static int wait_for_slot(core_ring *self, PyObject *timeout, int64_t ns, int32_t *slot) {
  core_state *state = state_of((PyObject *)self);
  mf_error err;
  int rc = mf_ring_begin(self->ring, 0, slot, &err);
  if (rc == MF_ETIMEOUT && ns > 0) {
    if (open_ring((PyObject *)self) == NULL) return rc; /* the fence that was asked has closed it */
    mf_ring *ring = mf_ring_retain(self->ring);
    for (int64_t left = ns; rc == MF_ETIMEOUT && left > 0; left = left == INT64_MAX ? left : left - CHUNK_NS) {
      PyThreadState *saved = PyEval_SaveThread();
      rc = mf_ring_begin(ring, left < CHUNK_NS ? left : CHUNK_NS, slot, &err);
      PyEval_RestoreThread(saved);
      if (rc == MF_ETIMEOUT && PyErr_CheckSignals() < 0) break;
    }
    core_ring_release(ring);
    if (PyErr_Occurred()) return rc;
  }
  if (rc == MF_ETIMEOUT) PyErr_Format(PyExc_TimeoutError, "timeout is %R s: %s", timeout, err.message);
  else if (rc != MF_OK) core_raise(state, &err);
  return rc;
}

PyDoc_STRVAR(begin_doc,
             "begin($self, /, timeout=None)\n--\n\n"
             "Returns (tensor, number): the slot to write next, and its number from 0. Waits, without the GIL,\n"
             "until that slot's fence is done.\n"
             "\n"
             "timeout: in seconds; None waits as long as necessary.\n"
             "Raises TimeoutError; ValueError if a slot is already being written or the ring is closed.");

static PyObject *begin_locked(PyObject *self, PyObject *timeout) {
  int64_t ns;
  int32_t slot;
  core_ring *r = read_timeout(timeout, &ns) < 0 ? NULL : open_ring(self); /* a timeout is any object */
  if (r == NULL) return NULL;
  PyObject *begun = r->begun;
  Py_INCREF(begun);
  PyObject *told = wait_for_slot(r, timeout, ns, &slot) == MF_OK ? answer(begun, slot) : NULL;
  Py_DECREF(begun);
  return told;
}

CORE_LOCKED(begin, PyObject *)

static PyObject *ring_begin(PyObject *self, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"timeout", NULL};
  PyObject *timeout = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:begin", keywords, &timeout)) return NULL;
  return begin(self, timeout);
}

static PyObject *none_or_raise(PyObject *self, int rc, const mf_error *err) {
  if (rc == MF_OK) Py_RETURN_NONE;
  core_raise(state_of(self), err);
  return NULL;
}

typedef int (*fence_taker)(mf_ring *ring, const mf_fence *fence, int32_t use, mf_error *err);

/* Of two threads that are given the same capsule one finds it used. */
static PyObject *give_fence(PyObject *self, PyObject *capsule, int write, fence_taker take) {
  const mf_fence *fence;
  mf_error err;
  PyObject *told = NULL;
  Py_BEGIN_CRITICAL_SECTION2(self, capsule == NULL ? self : capsule);
  const core_ring *r = open_ring(self);
  if (r != NULL && core_fence_take(capsule, &fence) == 0) {
    const int rc = take(r->ring, fence, write ? MF_WRITE : MF_READ, &err);
    if (rc != MF_OK) core_fence_back(capsule, fence);
    told = none_or_raise(self, rc, &err);
  }
  Py_END_CRITICAL_SECTION2();
  return told;
}

PyDoc_STRVAR(done_doc,
             "done($self, /, fence=None, write=False)\n--\n\n"
             "Ends the writing that begin started, and puts the slot at the end of the ring. The slot stays in use\n"
             "until fence is done.\n"
             "\n"
             "fence: None frees the slot at once; otherwise a capsule named \"mf_fence\" around an mf_fence, which is\n"
             "copied (the capsule is then renamed).\n"
             "write: whether the work behind the fence writes the memory; otherwise it reads.\n"
             "Raises ValueError if no slot was begun, TypeError, MemoryError. After an error the slot is still\n"
             "being written.");

static PyObject *ring_done(PyObject *self, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"fence", "write", NULL};
  PyObject *capsule = NULL;
  int write = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|Op:done", keywords, &capsule, &write)) return NULL;
  return give_fence(self, capsule, write, mf_ring_end);
}

PyDoc_STRVAR(publish_doc,
             "publish($self, /)\n--\n\n"
             "Ends the writing that begin started, and makes the slot the one that latest returns.\n"
             "\n"
             "Raises ValueError if no slot was begun.");

static PyObject *ring_publish_locked(PyObject *self, PyObject *ignored) {
  (void)ignored;
  mf_error err;
  const core_ring *r = open_ring(self);
  return r == NULL ? NULL : none_or_raise(self, mf_ring_publish(r->ring, &err), &err);
}

CORE_LOCKED(ring_publish, PyObject *)

/* The reader */

PyDoc_STRVAR(latest_doc,
             "latest($self, /)\n--\n\n"
             "Returns (tensor, number, fresh): the slot that was published last, its number, and whether it differs\n"
             "from the last call's. None if no slot was published. Never waits.\n"
             "\n"
             "The reader has the slot until a call returns a fresh one.");

/* To ask a fence may run any code, which may close the ring: the answers are held meanwhile. */
static PyObject *ring_latest_locked(PyObject *self, PyObject *ignored) {
  (void)ignored;
  int32_t slot, is_fresh;
  const core_ring *r = open_ring(self);
  if (r == NULL) return NULL;
  PyObject *fresh = r->fresh, *stale = r->stale;
  Py_INCREF(fresh);
  Py_INCREF(stale);
  (void)mf_ring_latest(r->ring, &slot, &is_fresh, NULL);
  PyObject *told = slot < 0 ? NULL : answer(is_fresh ? fresh : stale, slot);
  Py_DECREF(stale);
  Py_DECREF(fresh);
  if (told == NULL) Py_RETURN_NONE;
  return told;
}

CORE_LOCKED(ring_latest, PyObject *)

PyDoc_STRVAR(hold_doc,
             "hold($self, /, fence, write=False)\n--\n\n"
             "Keeps the reader's slot in use until fence is done; fence and write are as for done.\n"
             "\n"
             "Raises ValueError if the reader has no slot, TypeError, MemoryError.");

static PyObject *ring_hold(PyObject *self, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"fence", "write", NULL};
  PyObject *capsule;
  int write = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p:hold", keywords, &capsule, &write)) return NULL;
  return give_fence(self, capsule, write, mf_ring_fence);
}

/* Views */

static PyObject *convert(PyObject *self, PyObject *with, PyObject *slot) {
  PyObject *pair[2] = {with, slot};
  if (!PyCallable_Check(with)) {
    PyErr_Format(PyExc_TypeError, "convert must be an array class such as torch.Tensor or a function, not '%s'",
                 Py_TYPE(with)->tp_name);
    return NULL;
  }
  if (!PyType_Check(with)) return PyObject_CallOneArg(with, slot);
  return core_into(PyType_GetModule(Py_TYPE(self)), pair, 2);
}

static PyObject *convert_all(PyObject *self, PyObject *with, PyObject *slots) {
  const Py_ssize_t n = PyTuple_GET_SIZE(slots);
  PyObject *made = PyTuple_New(n);
  for (Py_ssize_t i = 0; made != NULL && i < n; i++) {
    PyObject *one = convert(self, with, PyTuple_GET_ITEM(slots, i));
    if (one == NULL) Py_CLEAR(made);
    else PyTuple_SET_ITEM(made, i, one);
  }
  return made;
}

PyDoc_STRVAR(into_doc,
             "into($self, convert, /)\n--\n\n"
             "Returns a tuple with convert's result for each slot. It is made by the first call with that convert;\n"
             "later calls return the same tuple, so that a frame imports nothing.\n"
             "\n"
             "convert: an array type such as torch.Tensor, used as by moonferry.into, or a function of a tensor.\n"
             "Raises whatever convert raises, and TypeError if convert is not hashable.");

/* The hash, the comparison and the conversion are any code, and each may close the ring. */
static PyObject *ring_into_locked(PyObject *self, PyObject *with) {
  const core_ring *r = open_ring(self);
  if (r == NULL) return NULL;
  PyObject *views = r->views, *slots = r->slots;
  Py_INCREF(views);
  Py_INCREF(slots);
  PyObject *made = core_dict_get(views, with);
  if (made == NULL && !PyErr_Occurred()) made = core_dict_keep(views, with, convert_all(self, with, slots));
  Py_DECREF(slots);
  Py_DECREF(views);
  return made;
}

CORE_LOCKED(ring_into, PyObject *)

/* Ending, and what it is */

PyDoc_STRVAR(close_doc,
             "close($self, /)\n--\n\n"
             "Closes the ring, which drops its slots and the results of into. The memory is released when no view\n"
             "is left and all fences are done.\n"
             "\n"
             "A second call does nothing. Any other method then raises ValueError.");

static PyObject *ring_close_locked(PyObject *self, PyObject *ignored) {
  (void)ignored;
  (void)ring_clear(self);
  Py_RETURN_NONE;
}

CORE_LOCKED(ring_close, PyObject *)

static PyObject *ring_enter_locked(PyObject *self, PyObject *ignored) {
  (void)ignored;
  if (open_ring(self) == NULL) return NULL;
  Py_INCREF(self);
  return self;
}

CORE_LOCKED(ring_enter, PyObject *)

static PyObject *ring_exit_locked(PyObject *self, PyObject *args) {
  (void)args;
  (void)ring_clear(self);
  Py_RETURN_FALSE;
}

CORE_LOCKED(ring_exit, PyObject *)

static PyObject *get_slots_locked(PyObject *self, void *closure) {
  (void)closure;
  const core_ring *r = open_ring(self);
  if (r == NULL) return NULL;
  Py_INCREF(r->slots);
  return r->slots;
}

CORE_LOCKED(get_slots, void *)

static PyObject *get_handle_locked(PyObject *self, void *closure) {
  (void)closure;
  const core_ring *r = open_ring(self);
  return r == NULL ? NULL : PyLong_FromVoidPtr(r->ring);
}

CORE_LOCKED(get_handle, void *)

static PyObject *get_repr_locked(PyObject *self, void *closure) {
  (void)closure;
  const core_ring *r = as_ring(self);
  if (r->ring == NULL) return PyUnicode_FromString("<moonferry.Ring, closed>");
  return PyUnicode_FromFormat("<moonferry.Ring of %zd slots>", PyTuple_GET_SIZE(r->slots));
}

CORE_LOCKED(get_repr, void *)

static PyObject *ring_repr(PyObject *self) {
  return get_repr(self, NULL);
}

#define WITH_KEYWORDS(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {
    {"from_handle", core_ring_from_handle, METH_O | METH_CLASS, from_handle_doc},
    {"begin", WITH_KEYWORDS(ring_begin), METH_VARARGS | METH_KEYWORDS, begin_doc},
    {"done", WITH_KEYWORDS(ring_done), METH_VARARGS | METH_KEYWORDS, done_doc},
    {"publish", ring_publish, METH_NOARGS, publish_doc},
    {"latest", ring_latest, METH_NOARGS, latest_doc},
    {"hold", WITH_KEYWORDS(ring_hold), METH_VARARGS | METH_KEYWORDS, hold_doc},
    {"into", ring_into, METH_O, into_doc},
    {"close", ring_close, METH_NOARGS, close_doc},
    {"__enter__", ring_enter, METH_NOARGS, "__enter__($self, /)\n--\n\nThe ring itself."},
    {"__exit__", ring_exit, METH_VARARGS, "__exit__($self, /, *exc)\n--\n\nCloses the ring."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"slots", get_slots, NULL, "tuple of Tensor: the slots.", NULL},
    {"handle", get_handle, NULL, "int: the mf_ring *, for C or for a Lua state (mf.ring_from_handle).", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(core_ring, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(doc,
             "Ring(shape, dtype='float32', slots=3)\n--\n\n"
             "A ring of slots, each a tensor in host memory. One slot is written while others are still read. A\n"
             "frame allocates nothing.\n"
             "\n"
             "    t, i = ring.begin(); ...; ring.done(fence)       # one thread, such as a renderer\n"
             "    t, i = ring.begin(); ...; ring.publish()         # a worker, while another thread calls latest\n"
             "\n"
             "Ring(shape, dtype=\"float32\", slots=3) makes slots of zeros; Ring([a, b, c]) uses existing tensors.\n"
             "There may be one writer and one reader at a time. A with statement closes the ring at its end.\n"
             "Raises ValueError if slots overlap or a GPU's driver knows their memory; TypeError; MemoryError.");

static PyType_Slot type_slots[] = {
    {Py_tp_doc, (void *)doc},
    {Py_tp_new, core_ring_create},
    {Py_tp_dealloc, ring_dealloc},
    {Py_tp_traverse, ring_traverse},
    {Py_tp_clear, ring_clear},
    {Py_tp_repr, ring_repr},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_members, members},
    {0, NULL},
};

PyType_Spec core_ring_spec = {
    .name = "moonferry.Ring",
    .basicsize = sizeof(core_ring),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = type_slots,
};
