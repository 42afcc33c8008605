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

PyObject *core_stream_enter(PyObject *self, PyObject *ignored) {
  (void)ignored;
  const core_stream *s = (core_stream *)self;
  mf_stream before;
  mf_error err;
  PyObject *list = entered(state_of(self));
  if (list == NULL) return NULL;
  if (mf_stream_swap(&s->device, s->stream, &before, &err) != MF_OK) {
    core_raise(state_of(self), &err);
    return NULL;
  }
  PyObject *entry = Py_BuildValue("OL", self, (long long)before);
  const int rc = entry == NULL ? -1 : PyList_Append(list, entry);
  Py_XDECREF(entry);
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

/* The block of entry ${j} goes on after the one around it, ${i}: it ends with what was current before that one. */
static int hand_over(PyObject *list, Py_ssize_t i, Py_ssize_t j) {
  PyObject *before = PyTuple_GET_ITEM(PyList_GET_ITEM(list, i), 1);
  PyObject *entry = PyTuple_Pack(2, (PyObject *)(uintptr_t)stream_of(list, j), before);
  return entry == NULL ? -1 : PyList_SetItem(list, j, entry);
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

/* Blocks of generators end in any order. */
PyObject *core_stream_exit(PyObject *self, PyObject *args) {
  (void)args;
  mf_error err;
  PyObject *list = entered(state_of(self));
  if (list == NULL) return NULL;
  const Py_ssize_t i = entry_of(list, (core_stream *)self);
  if (i < 0) return NULL;
  const Py_ssize_t behind = entry_behind(list, i);
  if (behind != 0 && hand_over(list, i, behind) < 0) return NULL;
  const mf_stream before = PyLong_AsLongLong(PyTuple_GET_ITEM(PyList_GET_ITEM(list, i), 1));
  const int status = behind != 0 ? MF_OK : leave((core_stream *)self, before, &err);
  if (PyList_SetSlice(list, i, i + 1, NULL) < 0) return NULL;
  if (status == MF_OK) Py_RETURN_FALSE;
  core_raise(state_of(self), &err);
  return NULL;
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
