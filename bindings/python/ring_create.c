/* ring_create.c: makes a moonferry.Ring: of a shape, of tensors, of an mf_ring.
 *
 * Invariant: what a frame gets is made with the ring: the tensors, and the tuples in which they are handed out. It must
 * not know what a frame is.
 */
#include "core.h"

static PyObject *triple(PyObject *tensor, Py_ssize_t i, PyObject *word) {
  return word == NULL ? Py_BuildValue("On", tensor, i) : Py_BuildValue("OnO", tensor, i, word);
}

/* A tuple with a tuple for each slot: the tensor, its number, and ${word} if there is one. */
static PyObject *answers(PyObject *slots, PyObject *word) {
  const Py_ssize_t n = PyTuple_GET_SIZE(slots);
  PyObject *all = PyTuple_New(n);
  for (Py_ssize_t i = 0; all != NULL && i < n; i++) {
    PyObject *one = triple(PyTuple_GET_ITEM(slots, i), i, word);
    if (one == NULL) Py_CLEAR(all);
    else PyTuple_SET_ITEM(all, i, one);
  }
  return all;
}

/* Runs deleters, release callbacks and what fences have, while an exception may be on its way. */
void core_ring_release(mf_ring *ring) {
  const aside exception = aside_begin();
  mf_ring_release(ring);
  aside_end(exception);
}

/* Takes the reference to ${ring} over; ${slots} stays the caller's. */
static PyObject *ring_new(PyTypeObject *type, mf_ring *ring, PyObject *slots) {
  core_ring *self = PyObject_GC_New(core_ring, type);
  if (self == NULL) {
    core_ring_release(ring);
    return NULL;
  }
  Py_INCREF(slots);
  *self = (core_ring){.ob_base = self->ob_base, .ring = ring, .slots = slots};
  self->begun = answers(slots, NULL);
  self->stale = answers(slots, Py_False);
  self->fresh = answers(slots, Py_True);
  self->views = PyDict_New();
  PyObject_GC_Track(self);
  if (self->begun != NULL && self->stale != NULL && self->fresh != NULL && self->views != NULL) return (PyObject *)self;
  Py_DECREF(self);
  return NULL;
}

/* A reference to each handle, because a slot may be closed meanwhile: how many there are, or -1 with an exception. */
static Py_ssize_t retain_handles(PyObject *slots, mf_tensor *handles[MF_RING_MAX]) {
  const Py_ssize_t n = PyTuple_GET_SIZE(slots) < MF_RING_MAX ? PyTuple_GET_SIZE(slots) : MF_RING_MAX;
  Py_ssize_t i = 0;
  for (; i < n; i++) {
    PyObject *slot = PyTuple_GET_ITEM(slots, i);
    if (!core_is_tensor(slot))
      PyErr_Format(PyExc_TypeError, "slot %zd must be a moonferry.Tensor, not '%s'", i, Py_TYPE(slot)->tp_name);
    if (!core_is_tensor(slot) || core_look(slot) < 0) break;
    handles[i] = mf_tensor_retain(core_handle(slot));
    core_look_end(slot);
  }
  if (i == n) return n;
  while (i > 0) core_release_quietly(handles[--i]);
  return -1;
}

static PyObject *ring_of(PyTypeObject *type, PyObject *slots) {
  mf_tensor *handles[MF_RING_MAX] = {NULL};
  const Py_ssize_t count = PyTuple_GET_SIZE(slots);
  mf_ring *ring;
  mf_error err;
  Py_ssize_t n = retain_handles(slots, handles);
  if (n < 0) return NULL;
  const int status = mf_ring_create(handles, count > INT32_MAX ? INT32_MAX : (int32_t)count, &ring, &err);
  while (n > 0) mf_tensor_release(handles[--n]);
  if (status == MF_OK) return ring_new(type, ring, slots);
  core_raise(PyType_GetModuleState(type), &err);
  return NULL;
}

static PyObject *new_slots(core_state *state, PyObject *shape, PyObject *dtype, PyObject *count) {
  int64_t n = 3;
  if (count != NULL && core_int64(count, "slots", &n) < 0) return NULL;
  if (n < 1 || n > MF_RING_MAX) {
    PyErr_Format(PyExc_ValueError, "slots is %R; 1 to %d expected", count, MF_RING_MAX);
    return NULL;
  }
  PyObject *slots = PyTuple_New((Py_ssize_t)n);
  for (Py_ssize_t i = 0; slots != NULL && i < n; i++) {
    PyObject *t = core_zeros(state, shape, dtype);
    if (t == NULL) Py_CLEAR(slots);
    else PyTuple_SET_ITEM(slots, i, t);
  }
  return slots;
}

/* Whether what stands for a shape is a list or a tuple of tensors: 1, 0, or -1 with an exception. */
static int is_tensors(PyObject *obj) {
  if (!(PyTuple_Check(obj) || PyList_Check(obj))) return 0;
  PyObject *first = PySequence_GetItem(obj, 0);
  if (first == NULL) return answer_is_no() ? 0 : -1;
  const int is = core_is_tensor(first);
  Py_DECREF(first);
  return is;
}

PyObject *core_ring_create(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"shape", "dtype", "slots", NULL};
  PyObject *shape, *dtype = NULL, *count = NULL, *slots = NULL;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO:Ring", keywords, &shape, &dtype, &count)) return NULL;
  const int given = is_tensors(shape);
  if (given < 0) return NULL;
  if (given == 0) {
    slots = new_slots(PyType_GetModuleState(type), shape, dtype, count);
  } else if (dtype != NULL || count != NULL) {
    PyErr_SetString(PyExc_TypeError, "Ring() of tensors takes neither dtype nor slots");
  } else {
    slots = PySequence_Tuple(shape);
  }
  PyObject *self = slots == NULL ? NULL : ring_of(type, slots);
  Py_XDECREF(slots);
  return self;
}

static PyObject *slots_of(core_state *state, const mf_ring *ring) {
  PyObject *slots = PyTuple_New(mf_ring_count(ring));
  for (int32_t i = 0; slots != NULL && i < mf_ring_count(ring); i++) {
    PyObject *t = core_tensor_new(state, mf_tensor_retain(mf_ring_slot(ring, i)));
    if (t == NULL) Py_CLEAR(slots);
    else PyTuple_SET_ITEM(slots, i, t);
  }
  return slots;
}

/* No system has memory below it. */
#define FIRST_ADDRESS 4096

PyObject *core_ring_from_handle(PyObject *type, PyObject *obj) {
  int64_t address;
  if (core_int64(obj, "handle", &address) < 0) return NULL;
  if (address < FIRST_ADDRESS || address % (int64_t)sizeof(void *) != 0) {
    PyErr_Format(PyExc_ValueError, "handle is %lld; the address of an mf_ring expected", (long long)address);
    return NULL;
  }
  mf_ring *ring = mf_ring_retain((mf_ring *)(intptr_t)address); /* a finalizer may close whose it is meanwhile */
  PyObject *slots = slots_of(PyType_GetModuleState((PyTypeObject *)type), ring);
  if (slots == NULL) {
    core_ring_release(ring);
    return NULL;
  }
  PyObject *self = ring_new((PyTypeObject *)type, ring, slots);
  Py_DECREF(slots);
  return self;
}
