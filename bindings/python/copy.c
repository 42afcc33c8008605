/* copy.c: Tensor.copy: a clone, or another's elements, at once or in parts whose progress is told.
 *
 * Invariant: what progress runs may raise, and may do anything to either tensor: the copy is inside of both. Must not
 * know how elements are moved.
 */
#include "core.h"

/* In parts, with progress(done, total) after each. What that raises ends the copy. */
int core_copy_watched(core_state *state, mf_tensor *dst, const mf_tensor *src, PyObject *progress) {
  const int64_t total = mf_tensor_size(dst);
  int64_t done = 0;
  mf_error err;
  do {
    PyThreadState *saved = PyEval_SaveThread();
    const int status = mf_tensor_copy_part(dst, src, &done, &err);
    PyEval_RestoreThread(saved);
    if (status != MF_OK) return core_raise(state, &err);
    PyObject *answer = PyObject_CallFunction(progress, "LL", (long long)done, (long long)total);
    if (answer == NULL) return -1;
    Py_DECREF(answer);
  } while (done < total);
  return 0;
}

static PyObject *clone_watched(PyObject *self, PyObject *progress) {
  core_state *state = core_state_of_tensor(self);
  const DLTensor *view = core_view(self);
  DLTensor like = {.device = view->device, .ndim = view->ndim, .dtype = view->dtype, .shape = view->shape};
  mf_error err;
  mf_tensor *out;
  const uint64_t padded = mf_tensor_flags(core_handle(self)) & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED;
  if (core_create(&like, padded, &out, &err) != MF_OK) {
    core_raise(state, &err);
    return NULL;
  }
  if (core_copy_watched(state, out, core_handle(self), progress) == 0) return core_tensor_new(state, out);
  core_release_quietly(out);
  return NULL;
}

static PyObject *copy_from(PyObject *self, PyObject *src, PyObject *progress) {
  if (progress != NULL && core_is_scalar(src)) {
    PyErr_SetString(PyExc_TypeError, "copy() with progress takes an array, not a number");
    return NULL;
  }
  if (core_assign(self, core_handle(self), src, progress) < 0) return NULL;
  Py_INCREF(self);
  return self;
}

static PyObject *copy(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  static const core_signature signature = {"copy", 1, 0, 2, {KW_POSITIONAL + KW_SOURCE, KW_PROGRESS}};
  PyObject *values[2];
  mf_error err;
  mf_tensor *out;
  if (core_args_self(self, &signature, args, nargs, kwnames, values) < 0) return NULL;
  PyObject *src = values[0] == Py_None ? NULL : values[0], *progress = values[1] == Py_None ? NULL : values[1];
  if (progress != NULL && !PyCallable_Check(progress)) {
    PyErr_Format(PyExc_TypeError, "progress must be a callable or None, not '%s'", Py_TYPE(progress)->tp_name);
    return NULL;
  }
  if (src != NULL) return copy_from(self, src, progress);
  if (progress != NULL) return clone_watched(self, progress);
  const int status = core_clone(core_handle(self), &out, &err);
  return core_wrap_view(self, status, out, &err);
}

CORE_KEYWORDS(core_tensor_copy, copy)
