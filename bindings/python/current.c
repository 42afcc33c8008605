/* current.c: which stream is a thread's current one: the with statement, current_stream, and imports that need
 * another one for a moment.
 *
 * Invariant: what a with statement made current is kept alive until the statement ends, in a list in the thread's
 * own dictionary, and the stream before it comes back even if the block failed; that of the innermost block stays
 * current until that one ends, in whichever order blocks do. The runtime knows which stream is current; nothing here
 * keeps a second opinion. It must not know what streams are for.
 */
#include "core.h"

/* The thread's list of (Stream, the stream before); borrowed. */
static PyObject *entered(const core_state *state) {
  PyObject *dict = PyThreadState_GetDict();
  if (dict == NULL) {
    PyErr_SetString(PyExc_RuntimeError, "this thread has no state");
    return NULL;
  }
  PyObject *list = PyDict_GetItemWithError(dict, state->names[NAME_STREAMS]);
  if (list != NULL || PyErr_Occurred()) return list;
  list = PyList_New(0);
  if (list == NULL) return NULL;
  const int rc = PyDict_SetItem(dict, state->names[NAME_STREAMS], list);
  Py_DECREF(list);
  return rc < 0 ? NULL : list;
}

static core_state *state_of(PyObject *stream) {
  return PyType_GetModuleState(Py_TYPE(stream));
}

/* An entry to be filled, made before anything is looked at: up to CPython 3.11 it may begin a collection, which may end
 * other blocks of this thread. */
static PyObject *new_entry(void) {
  return PyTuple_New(2);
}

/* Takes ${before} over, which may be NULL with an exception. */
static int fill_entry(PyObject *entry, PyObject *stream, PyObject *before) {
  if (before == NULL) return -1;
  Py_INCREF(stream);
  PyTuple_SET_ITEM(entry, 0, stream);
  PyTuple_SET_ITEM(entry, 1, before);
  return 0;
}

PyObject *core_stream_enter(PyObject *self, PyObject *ignored) {
  (void)ignored;
  const core_stream *s = (core_stream *)self;
  mf_stream before;
  mf_error err;
  PyObject *list = entered(state_of(self));
  PyObject *entry = list == NULL ? NULL : new_entry();
  if (entry == NULL) return NULL;
  if (mf_stream_swap(&s->device, s->stream, &before, &err) != MF_OK) {
    Py_DECREF(entry);
    core_raise(state_of(self), &err);
    return NULL;
  }
  const int rc = fill_entry(entry, self, PyLong_FromLongLong((long long)before)) < 0 ? -1 : PyList_Append(list, entry);
  Py_DECREF(entry);
  if (rc < 0) {
    mf_stream_swap(&s->device, before, NULL, NULL);
    return NULL;
  }
  Py_INCREF(self);
  return self;
}

static const core_stream *stream_of(PyObject *list, Py_ssize_t i) {
  return (const core_stream *)PyTuple_GET_ITEM(PyList_GET_ITEM(list, i), 0);
}

/* The last entry of ${self}; -1 with an exception where there is none. */
static Py_ssize_t entry_of(PyObject *list, const core_stream *self) {
  Py_ssize_t i = PyList_GET_SIZE(list) - 1;
  while (i >= 0 && stream_of(list, i) != self) i--;
  if (i < 0) PyErr_SetString(PyExc_RuntimeError, "the stream was not made current on this thread");
  return i;
}

/* The first entry behind ${i} of the same device; 0 where there is none. */
static Py_ssize_t entry_behind(PyObject *list, Py_ssize_t i) {
  for (Py_ssize_t j = i + 1; j < PyList_GET_SIZE(list); j++)
    if (core_same_device(stream_of(list, j)->device, stream_of(list, i)->device)) return j;
  return 0;
}

/* The block of entry ${j} goes on after the one around it, ${i}: it ends with what was current before that one. Takes
 * ${entry} over. */
static int hand_over(PyObject *list, Py_ssize_t i, Py_ssize_t j, PyObject *entry) {
  PyObject *before = PyTuple_GET_ITEM(PyList_GET_ITEM(list, i), 1);
  Py_INCREF(before);
  (void)fill_entry(entry, PyTuple_GET_ITEM(PyList_GET_ITEM(list, j), 0), before);
  return PyList_SetItem(list, j, entry);
}

/* The block of ${s} is the innermost of its device, and ends. Where another stream is current, whoever made it so has
 * left the block, as a coroutine of Lua's does, or comes back to it. */
static int leave(const core_stream *s, mf_stream before, mf_error *err) {
  mf_stream now;
  if (mf_stream_current(&s->device, &now, NULL) == MF_OK && now != s->stream) return MF_OK;
  const int status = mf_stream_swap(&s->device, before, NULL, err);
  /* Whoever owned the stream before may have destroyed it meanwhile. */
  if (status != MF_OK) mf_stream_swap(&s->device, MF_STREAM_DEFAULT, NULL, NULL);
  return status;
}

/* Takes ${entry} over. */
static PyObject *leave_block(PyObject *self, PyObject *list, PyObject *entry) {
  mf_error err;
  const Py_ssize_t i = entry_of(list, (core_stream *)self), behind = i < 0 ? 0 : entry_behind(list, i);
  if (behind == 0) Py_DECREF(entry);
  if (i < 0 || (behind != 0 && hand_over(list, i, behind, entry) < 0)) return NULL;
  const mf_stream before = PyLong_AsLongLong(PyTuple_GET_ITEM(PyList_GET_ITEM(list, i), 1));
  const int status = behind != 0 ? MF_OK : leave((core_stream *)self, before, &err);
  if (PyList_SetSlice(list, i, i + 1, NULL) < 0) return NULL;
  if (status == MF_OK) Py_RETURN_FALSE;
  core_raise(state_of(self), &err);
  return NULL;
}

/* Blocks of generators end in any order. */
PyObject *core_stream_exit(PyObject *self, PyObject *args) {
  (void)args;
  PyObject *list = entered(state_of(self));
  PyObject *entry = list == NULL ? NULL : new_entry();
  return entry == NULL ? NULL : leave_block(self, list, entry);
}

/* The entered Stream that has this value, so that it stays alive as long as whoever asks needs it; else a new one. */
static PyObject *stream_with(core_state *state, DLDevice device, mf_stream stream) {
  PyObject *list = entered(state);
  if (list == NULL) return NULL;
  for (Py_ssize_t i = PyList_GET_SIZE(list) - 1; i >= 0; i--) {
    PyObject *found = PyTuple_GET_ITEM(PyList_GET_ITEM(list, i), 0);
    const core_stream *s = (core_stream *)found;
    if (s->stream != stream || !core_same_device(s->device, device)) continue;
    Py_INCREF(found);
    return found;
  }
  return core_stream_new(state, device, stream);
}

PyObject *core_current_stream(PyObject *module, PyObject *arg) {
  core_state *state = core_state_of(module);
  DLDevice device;
  mf_stream stream;
  mf_error err;
  if (core_gpu(state, arg, &device) < 0) return NULL;
  if (mf_stream_current(&device, &stream, &err) == MF_OK) return stream_with(state, device, stream);
  core_raise(state, &err);
  return NULL;
}

/* Makes ${stream} current unless it is already. After a failure there is nothing to end. */
int core_swap_begin(core_swap *swap, DLDevice device, mf_stream stream, mf_error *err) {
  mf_stream now;
  *swap = (core_swap){.device = device};
  int status = mf_stream_current(&device, &now, err);
  if (status != MF_OK || now == stream) return status;
  status = mf_stream_swap(&device, stream, &swap->before, err);
  swap->swapped = status == MF_OK;
  return status;
}

void core_swap_end(const core_swap *swap) {
  if (swap->swapped) mf_stream_swap(&swap->device, swap->before, NULL, NULL);
}
