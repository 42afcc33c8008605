/* view.c: Tensor's methods that give a view of the same memory.
 *
 * Invariant: a method parses its arguments, calls one mf_tensor_* function and wraps the result. It must
 * not know what the runtime checks.
 */
#include "core.h"

static int read_axis_items(PyObject *const *items, Py_ssize_t n, int32_t *axes, int32_t *count) {
  if (n > MF_MAX_NDIM) {
    PyErr_Format(PyExc_ValueError, "%zd axes given, at most %d are possible", n, MF_MAX_NDIM);
    return -1;
  }
  for (Py_ssize_t i = 0; i < n; i++)
    if (core_axis(items[i], "an axis", &axes[i]) < 0) return -1;
  *count = (int32_t)n;
  return 0;
}

/* Integers by position, or one tuple or list of them. */
static int read_axes(PyObject *const *args, Py_ssize_t nargs, int32_t *axes, int32_t *count) {
  if (nargs != 1 || !(PyTuple_Check(args[0]) || PyList_Check(args[0])))
    return read_axis_items(args, nargs, axes, count);
  PyObject *items = PySequence_Tuple(args[0]);
  if (items == NULL) return -1;
  int rc = read_axis_items(((PyTupleObject *)items)->ob_item, PyTuple_GET_SIZE(items), axes, count);
  Py_DECREF(items);
  return rc;
}

const char core_permute_doc[] =
    "permute_dims($self, /, *axes)\n--\n\n"
    "Returns a view whose axis i is axis axes[i] of this tensor; without arguments, the axes are reversed. It\n"
    "shares the memory.\n"
    "\n"
    "Raises ValueError if axes is not a permutation.";

static PyObject *permute(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  int32_t axes[MF_MAX_NDIM], count = 0;
  mf_error err;
  mf_tensor *out;
  if (nargs == 1 && args[0] == Py_None) nargs = 0;
  if (read_axes(args, nargs, axes, &count) < 0) return NULL;
  /* An empty list of axes is the identity of rank 0, not a transposition. */
  int status = mf_tensor_permute_dims(core_handle(self), nargs == 0 ? NULL : axes, count, &out, &err);
  return core_wrap_view(self, status, out, &err);
}

CORE_VECTOR(core_permute_dims, permute)

const char core_reshape_doc[] =
    "reshape($self, /, *shape, copy=False)\n--\n\n"
    "Returns the same elements, in row-major order, in another shape; one extent may be -1. The result shares the\n"
    "memory unless it is a copy.\n"
    "\n"
    "copy: False raises ValueError if the layout needs a copy; None copies only then; True always copies.\n"
    "Raises ValueError if the numbers of elements differ.";

/* The elements of ${self} in a tensor of their own. */
static PyObject *reshape_copy(PyObject *self, const int64_t *shape, int32_t ndim) {
  mf_error err;
  mf_tensor *compact, *out = NULL;
  int status = core_clone(core_handle(self), &compact, &err);
  if (status == MF_OK) {
    status = mf_tensor_reshape(compact, shape, ndim, &out, &err);
    mf_tensor_release(compact);
  }
  return core_wrap_view(self, status, out, &err);
}

static PyObject *reshape(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  static const core_signature signature = {"reshape", 0, 0, 1, {KW_COPY}};
  int64_t shape[MF_MAX_NDIM];
  int32_t ndim;
  PyObject *flag;
  mf_error err;
  mf_tensor *out;
  int copy = 0;
  if (core_args_self(self, &signature, args + nargs, 0, kwnames, &flag) < 0) return NULL;
  if (flag != NULL && core_copy_flag(flag, &copy) < 0) return NULL;
  if (core_varargs_shape(args, nargs, shape, &ndim) < 0) return NULL;
  if (copy == 1) return reshape_copy(self, shape, ndim);
  int status = mf_tensor_reshape(core_handle(self), shape, ndim, &out, &err);
  if (status == MF_ELAYOUT && copy < 0) return reshape_copy(self, shape, ndim);
  return core_wrap_view(self, status, out, &err);
}

CORE_KEYWORDS(core_reshape, reshape)

const char core_broadcast_doc[] =
    "broadcast_to($self, shape, /)\n--\n\n"
    "Returns a view of shape that repeats elements by strides of 0. It shares the memory, and is read-only if it\n"
    "repeats elements.\n"
    "\n"
    "Raises ValueError if the shapes do not fit.";

static PyObject *broadcast(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  int64_t shape[MF_MAX_NDIM];
  int32_t ndim;
  mf_error err;
  mf_tensor *out;
  if (nargs != 1) {
    PyErr_Format(PyExc_TypeError, "broadcast_to() takes one shape, such as (4, 3), got %zd arguments", nargs);
    return NULL;
  }
  if (core_shape(args[0], shape, &ndim) < 0) return NULL;
  int status = mf_tensor_broadcast_to(core_handle(self), shape, ndim, &out, &err);
  return core_wrap_view(self, status, out, &err);
}

CORE_VECTOR(core_broadcast_to, broadcast)

const char core_squeeze_doc[] =
    "squeeze($self, /, axis=None)\n--\n\n"
    "Returns a view without the given axes, which must have extent 1. It shares the memory.\n"
    "\n"
    "axis: an int or a tuple of ints; None drops every axis of extent 1.\n"
    "Raises IndexError or ValueError.";

static PyObject *squeeze(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  static const core_signature signature = {"squeeze", 1, 0, 1, {KW_AXIS}};
  PyObject *axis;
  int32_t axes[MF_MAX_NDIM], count = 0;
  mf_error err;
  mf_tensor *out;
  if (core_args_self(self, &signature, args, nargs, kwnames, &axis) < 0) return NULL;
  const bool all = axis == NULL || axis == Py_None;
  if (!all && read_axes(&axis, 1, axes, &count) < 0) return NULL;
  int status = mf_tensor_squeeze(core_handle(self), all ? NULL : axes, count, &out, &err);
  return core_wrap_view(self, status, out, &err);
}

CORE_KEYWORDS(core_squeeze, squeeze)

const char core_expand_doc[] =
    "expand_dims($self, /, axis)\n--\n\n"
    "Returns a view with a new axis of extent 1 at position axis, in 0 ... ndim. It shares the memory. Raises\n"
    "IndexError.";

static PyObject *expand(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  static const core_signature signature = {"expand_dims", 1, 1, 1, {KW_AXIS}};
  PyObject *arg;
  int32_t axis;
  mf_error err;
  mf_tensor *out;
  if (core_args_self(self, &signature, args, nargs, kwnames, &arg) < 0) return NULL;
  if (core_axis(arg, "axis", &axis) < 0) return NULL;
  int status = mf_tensor_expand_dims(core_handle(self), axis, &out, &err);
  return core_wrap_view(self, status, out, &err);
}

CORE_KEYWORDS(core_expand_dims, expand)

const char core_diagonal_doc[] =
    "diagonal($self, /, offset=0, axis1=0, axis2=1)\n--\n\n"
    "Returns a view of the diagonal of the planes that axis1 and axis2 span, as a new last axis. It shares the\n"
    "memory and is as writable as this tensor.\n"
    "\n"
    "offset: 0 is the main diagonal; positive is above it, negative below.\n"
    "Raises IndexError or ValueError.";

static PyObject *diagonal(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  static const core_signature signature = {"diagonal", 3, 0, 3, {KW_OFFSET, KW_AXIS1, KW_AXIS2}};
  PyObject *values[3];
  int64_t offset = 0;
  int32_t axes[2] = {0, 1};
  mf_error err;
  mf_tensor *out;
  if (core_args_self(self, &signature, args, nargs, kwnames, values) < 0) return NULL;
  if (values[0] != NULL && core_int64(values[0], "offset", &offset) < 0) return NULL;
  if (values[1] != NULL && core_axis(values[1], "axis1", &axes[0]) < 0) return NULL;
  if (values[2] != NULL && core_axis(values[2], "axis2", &axes[1]) < 0) return NULL;
  int status = mf_tensor_diagonal(core_handle(self), offset, axes, &out, &err);
  return core_wrap_view(self, status, out, &err);
}

CORE_KEYWORDS(core_diagonal, diagonal)

const char core_reinterpret_doc[] =
    "reinterpret($self, /, dtype)\n--\n\n"
    "Returns a view of the same bytes as another dtype, which shares the memory. If the element size changes, the\n"
    "last axis must be compact, and its extent changes accordingly.\n"
    "\n"
    "Raises TypeError or ValueError.";

static PyObject *reinterpret(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  static const core_signature signature = {"reinterpret", 1, 1, 1, {KW_DTYPE}};
  PyObject *arg;
  DLDataType dtype;
  mf_error err;
  mf_tensor *out;
  if (core_args_self(self, &signature, args, nargs, kwnames, &arg) < 0) return NULL;
  if (core_dtype(core_state_of_tensor(self), arg, &dtype) < 0) return NULL;
  int status = mf_tensor_reinterpret(core_handle(self), &dtype, &out, &err);
  return core_wrap_view(self, status, out, &err);
}

CORE_KEYWORDS(core_reinterpret, reinterpret)

const char core_as_readonly_doc[] =
    "as_readonly($self, /)\n--\n\n"
    "Returns a read-only view, which shares the memory.";

static PyObject *as_readonly(PyObject *self, PyObject *ignored) {
  (void)ignored;
  mf_error err;
  mf_tensor *out;
  int status = mf_tensor_as_readonly(core_handle(self), &out, &err);
  return core_wrap_view(self, status, out, &err);
}

CORE_PLAIN(core_as_readonly, as_readonly)
