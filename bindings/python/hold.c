/* hold.c: tensors over memory that Python objects own: buffers, and pointers with an owner.
 *
 * Invariant: what was taken from Python is given back exactly once, when the memory's last reference goes,
 * with the GIL; a finalizing interpreter is left alone, and so is what it owns. It must not know where the
 * description of the memory came from.
 */
#include "core.h"

#include <stdlib.h>

typedef struct hold {
  Py_buffer view; /* obj NULL: none */
  PyObject *owner;
} hold;

static void hold_release(void *ctx) {
  hold *h = ctx;
  if (!Py_IsInitialized()) { /* or Python is about to end */
    free(h);
    return;
  }
  PyGILState_STATE gil = PyGILState_Ensure();
  const aside exception = aside_begin();
  if (h->view.obj != NULL) PyBuffer_Release(&h->view);
  Py_XDECREF(h->owner);
  aside_end(exception);
  PyGILState_Release(gil);
  free(h);
}

static hold *hold_create(void) {
  hold *h = calloc(1, sizeof *h); /* malloc's, because it may outlive the interpreter */
  if (h == NULL) PyErr_NoMemory();
  return h;
}

static PyObject *wrap(core_state *state, const DLTensor *view, bool readonly, hold *h) {
  mf_tensor *t;
  mf_error err;
  uint64_t flags = readonly ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
  if (mf_tensor_wrap(view, flags, hold_release, h, &t, &err) == MF_OK) return core_tensor_new(state, t);
  core_raise(state, &err);
  hold_release(h);
  return NULL;
}

static hold *hold_buffer(PyObject *obj, int flags) {
  hold *h = hold_create();
  if (h == NULL) return NULL;
  if (PyObject_GetBuffer(obj, &h->view, flags) == 0) return h;
  free(h);
  return NULL;
}

/* Strides in elements; false where one is no multiple of the element size. */
static bool element_strides(const Py_buffer *view, int64_t *strides) {
  for (int i = 0; i < view->ndim; i++) {
    if (view->shape[i] > 1 && view->strides[i] % view->itemsize != 0) return false;
    strides[i] = view->strides[i] / view->itemsize;
  }
  return true;
}

static bool has_pointers(const Py_buffer *view) {
  if (view->suboffsets != NULL)
    for (int i = 0; i < view->ndim; i++)
      if (view->suboffsets[i] >= 0) return true;
  return false;
}

/* 0 if the buffer is described, 1 if no DLTensor can describe it, -1 with an exception. */
static int describe(core_state *state, const Py_buffer *view, int64_t *shape, int64_t *strides, DLTensor *out) {
  *out = (DLTensor){.data = view->buf, .shape = shape, .device = {kDLCPU, 0}};
  if (core_format_parse(view->format, view->itemsize, &out->dtype) < 0)
    return core_refuse(state, "a buffer of format '%s' with items of %zd bytes has no dtype",
                       view->format == NULL ? "B" : view->format, view->itemsize);
  if (view->ndim > MF_MAX_NDIM)
    return core_refuse(state, "a buffer has %d axes, at most %d are possible", view->ndim, MF_MAX_NDIM);
  out->ndim = view->shape == NULL && view->ndim != 0 ? 1 : view->ndim;
  if (view->shape == NULL)
    shape[0] = view->len / view->itemsize;
  else
    for (int i = 0; i < view->ndim; i++) shape[i] = view->shape[i];
  if (has_pointers(view)) return 1;
  if (view->strides == NULL || view->ndim == 0) return 0;
  out->strides = strides;
  return element_strides(view, strides) ? 0 : 1;
}

/* A copy of a buffer that no DLTensor can describe: of pointers to rows, or of unaligned strides. */
static PyObject *copy_buffer(core_state *state, Py_buffer *buffer, const DLTensor *view) {
  mf_tensor *t;
  mf_error err;
  if (mf_tensor_create(view, 0, &t, &err) != MF_OK) {
    core_raise(state, &err);
    return NULL;
  }
  void *data = mf_tensor_dltensor(t)->data;
  if (buffer->len == 0 || PyBuffer_ToContiguous(data, buffer, buffer->len, 'C') == 0) return core_tensor_new(state, t);
  core_release_quietly(t);
  return NULL;
}

/* _from_buffer(obj, may_copy): a tensor over a buffer as its format, shape and strides say. */
PyObject *core_from_buffer(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  core_state *state = core_state_of(module);
  int64_t shape[MF_MAX_NDIM], strides[MF_MAX_NDIM];
  DLTensor view;
  if (nargs != 2) {
    PyErr_SetString(PyExc_TypeError, "_from_buffer() takes 2 arguments");
    return NULL;
  }
  hold *h = hold_buffer(args[0], PyBUF_FULL_RO);
  if (h == NULL) return NULL;
  int rc = describe(state, &h->view, shape, strides, &view);
  if (rc == 0) return wrap(state, &view, h->view.readonly != 0, h);
  PyObject *copy = NULL;
  if (rc == 1 && args[1] == Py_True)
    copy = copy_buffer(state, &h->view, &view);
  else if (rc == 1)
    core_refuse(state, "copy=False, but the buffer%s",
                has_pointers(&h->view) ? " has pointers to its rows" : "'s strides are no multiple of its items");
  hold_release(h);
  return copy;
}

/* How many elements there are from ${offset} on, where ${count} says so or the buffer's end does. */
static int buffer_count(core_state *state, Py_ssize_t nbytes, DLDataType dtype, int64_t offset, int64_t *count) {
  int64_t bits = mf_dtype_bits(&dtype, 0);
  if (offset < 0 || offset > nbytes) {
    PyErr_Format(PyExc_ValueError, "frombuffer: offset %lld is outside the buffer of %zd bytes", (long long)offset,
                 nbytes);
    return -1;
  }
  int64_t have = nbytes - offset;
  int64_t most = have / bits * 8 + have % bits * 8 / bits;
  if (*count > most)
    PyErr_Format(PyExc_ValueError, "frombuffer: count %lld needs more than the %lld bytes that there are",
                 (long long)*count, (long long)have);
  else if (*count < -1)
    PyErr_Format(PyExc_ValueError, "frombuffer: count must be -1 or more, not %lld", (long long)*count);
  else if (*count == -1 && bits % 8 == 0 && have % (bits / 8) != 0)
    PyErr_Format(PyExc_ValueError, "frombuffer: %lld bytes are no whole number of elements of %lld bytes",
                 (long long)have, (long long)(bits / 8));
  if (PyErr_Occurred()) return -1;
  (void)state;
  if (*count == -1) *count = most;
  return 0;
}

PyObject *core_frombuffer(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  static const core_signature signature = {"frombuffer", 4, 1, 4, {KW_BUFFER, KW_DTYPE, KW_COUNT, KW_OFFSET}};
  core_state *state = core_state_of(module);
  PyObject *values[4];
  int64_t count = -1, offset = 0;
  DLTensor view = {.ndim = 1, .shape = &count, .dtype = {kDLUInt, 8, 1}};
  if (core_args(state, &signature, args, nargs, kwnames, values) < 0) return NULL;
  if (values[1] != NULL && core_dtype(state, values[1], &view.dtype) < 0) return NULL;
  if (values[2] != NULL && core_int64(values[2], "count", &count) < 0) return NULL;
  if (values[3] != NULL && core_int64(values[3], "offset", &offset) < 0) return NULL;
  hold *h = hold_buffer(values[0], PyBUF_SIMPLE);
  if (h == NULL) return NULL;
  if (buffer_count(state, h->view.len, view.dtype, offset, &count) < 0) {
    hold_release(h);
    return NULL;
  }
  view.data = h->view.buf;
  view.byte_offset = (uint64_t)offset;
  return wrap(state, &view, h->view.readonly != 0, h);
}

static int read_pointer(PyObject *const *args, Py_ssize_t nargs, core_state *state, int64_t *strides, DLTensor *out) {
  int32_t nstrides;
  int64_t *shape = out->shape;
  out->data = PyLong_AsVoidPtr(args[0]);
  if (out->data == NULL && PyErr_Occurred()) return -1;
  if (core_shape(args[1], shape, &out->ndim) < 0) return -1;
  if (core_dtype(state, args[3], &out->dtype) < 0) return -1;
  if (nargs == 7 && core_device(state, args[6], &out->device) < 0) return -1;
  if (args[2] == Py_None) return 0;
  if (core_shape(args[2], strides, &nstrides) < 0) return -1;
  out->strides = strides;
  if (nstrides == out->ndim) return 0;
  PyErr_SetString(PyExc_ValueError, "strides must have one entry for each axis of shape");
  return -1;
}

/* _wrap_pointer(address, shape, strides, dtype, readonly, owner, device): a tensor over memory at an address
 * that ${owner} keeps alive; strides in elements, or None; device absent is the cpu. */
PyObject *core_wrap_pointer(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  core_state *state = core_state_of(module);
  int64_t shape[MF_MAX_NDIM], strides[MF_MAX_NDIM];
  DLTensor view = {.shape = shape};
  if (nargs != 6 && nargs != 7) {
    PyErr_SetString(PyExc_TypeError, "_wrap_pointer() takes 6 or 7 arguments");
    return NULL;
  }
  int readonly = PyObject_IsTrue(args[4]);
  if (readonly < 0 || read_pointer(args, nargs, state, strides, &view) < 0) return NULL;
  if (core_is_tensor(args[5])) {
    if (core_look(args[5]) < 0) return NULL;
    core_lend(args[5]);
    core_look_end(args[5]);
  }
  hold *h = hold_create();
  if (h == NULL) return NULL;
  Py_INCREF(args[5]);
  h->owner = args[5];
  return wrap(state, &view, readonly != 0, h);
}
