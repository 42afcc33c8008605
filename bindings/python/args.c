/* args.c: from Python arguments to C values: keywords, integers, shapes, dtypes.
 *
 * Invariant: nothing here touches a tensor, and each function either fills its output or sets an
 * exception that names the parameter. It must not know what the values are for.
 */
#include "core.h"

#include <string.h>

static int find_keyword(const core_state *state, const core_signature *sig, PyObject *name) {
  for (int i = 0; i < sig->count; i++)
    if (sig->kw[i] < KW_POSITIONAL && state->kw[sig->kw[i]] == name) return i;
  for (int i = 0; i < sig->count; i++)
    if (sig->kw[i] < KW_POSITIONAL && PyUnicode_Compare(state->kw[sig->kw[i]], name) == 0) return i;
  return -1;
}

static int take_keywords(const core_state *state, const core_signature *sig, PyObject *const *values, PyObject *kwnames,
                         PyObject **out) {
  Py_ssize_t n = PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t k = 0; k < n; k++) {
    PyObject *name = PyTuple_GET_ITEM(kwnames, k);
    int i = find_keyword(state, sig, name);
    if (i < 0) {
      PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", sig->function, name);
      return -1;
    }
    if (out[i] != NULL) {
      PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'", sig->function, name);
      return -1;
    }
    out[i] = values[k];
  }
  return 0;
}

static int check_required(const core_state *state, const core_signature *sig, PyObject **out) {
  for (int i = 0; i < sig->required; i++) {
    if (out[i] != NULL) continue;
    PyErr_Format(PyExc_TypeError, "%s() is missing required argument '%U'", sig->function,
                 state->kw[sig->kw[i] % KW_POSITIONAL]);
    return -1;
  }
  return 0;
}

/* Adds one more name to ${names}, which it takes over; NULL with an exception. */
static PyObject *joined(PyObject *names, const char *separator, PyObject *name) {
  PyObject *both = names == NULL ? NULL : PyUnicode_FromFormat("%U%s%U", names, separator, name);
  Py_XDECREF(names);
  return both;
}

/* Too many were given by position: says which parameters go by name. */
static int refuse_positional(const core_state *state, const core_signature *sig, Py_ssize_t nargs) {
  PyObject *names = PyUnicode_FromString("");
  for (int i = sig->positional; i < sig->count; i++)
    names = joined(names, i > sig->positional ? ", " : "", state->kw[sig->kw[i]]);
  if (names == NULL) return -1;
  PyErr_Format(PyExc_TypeError, "%s() takes at most %d positional argument%s (%zd given)%s%U", sig->function,
               sig->positional, sig->positional == 1 ? "" : "s", nargs,
               sig->positional < sig->count ? "; by name: " : "", names);
  Py_DECREF(names);
  return -1;
}

/* Sorts the arguments of a vectorcall into ${out}, one place per parameter, borrowed, NULL if absent. */
int core_sort_args(core_state *state, const core_signature *sig, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames, PyObject **out) {
  if (nargs > sig->positional) return refuse_positional(state, sig, nargs);
  for (int i = 0; i < sig->count; i++) out[i] = i < nargs ? args[i] : NULL;
  if (kwnames != NULL && take_keywords(state, sig, args + nargs, kwnames, out) < 0) return -1;
  return nargs < sig->required ? check_required(state, sig, out) : 0;
}

int core_args_self(PyObject *self, const core_signature *sig, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames, PyObject **out) {
  return core_args(core_state_of_tensor(self), sig, args, nargs, kwnames, out);
}

/* ${number} does not fit in 64 bits. Python refuses to print the longest; that error is replaced, too. */
int core_raise_too_large(PyObject *kind, const char *what, PyObject *number) {
  PyObject *digits = PyObject_Str(number);
  if (digits != NULL && PyUnicode_GET_LENGTH(digits) <= 80)
    PyErr_Format(kind, "%s is %U, which does not fit in 64 bits", what, digits);
  else
    PyErr_Format(kind, "%s does not fit in 64 bits", what);
  Py_XDECREF(digits);
  return -1;
}

/* An int, or whatever has __index__; bool is refused, because as a size or an axis it is a mistake. */
int core_int64(PyObject *obj, const char *what, int64_t *out) {
  if (PyBool_Check(obj) || !PyIndex_Check(obj)) {
    PyErr_Format(PyExc_TypeError, "%s must be an integer, not '%s'", what, Py_TYPE(obj)->tp_name);
    return -1;
  }
  PyObject *number = PyNumber_Index(obj);
  if (number == NULL) return -1;
  int overflow;
  *out = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow != 0) core_raise_too_large(PyExc_OverflowError, what, number);
  Py_DECREF(number);
  return overflow != 0 ? -1 : 0;
}

int core_axis(PyObject *obj, const char *what, int32_t *out) {
  int64_t value;
  if (core_int64(obj, what, &value) < 0) return -1;
  *out = (int32_t)value;
  if (*out == value) return 0;
  PyErr_Format(PyExc_IndexError, "axis is %lld; a tensor has at most %d axes", (long long)value, MF_MAX_NDIM);
  return -1;
}

static int read_extents(PyObject *const *items, Py_ssize_t n, int64_t *shape, int32_t *ndim) {
  if (n > MF_MAX_NDIM) {
    PyErr_Format(PyExc_ValueError, "shape has %zd axes, at most %d are possible", n, MF_MAX_NDIM);
    return -1;
  }
  for (Py_ssize_t i = 0; i < n; i++)
    if (core_int64(items[i], "an extent of shape", &shape[i]) < 0) return -1;
  *ndim = (int32_t)n;
  return 0;
}

int core_varargs_shape(PyObject *const *args, Py_ssize_t nargs, int64_t *shape, int32_t *ndim) {
  if (nargs == 1 && (PyTuple_Check(args[0]) || PyList_Check(args[0]))) return core_shape(args[0], shape, ndim);
  return read_extents(args, nargs, shape, ndim);
}

/* An integer, or a sequence of them. The items are copied first: __index__ may change a list. */
int core_shape(PyObject *obj, int64_t *shape, int32_t *ndim) {
  if (PyIndex_Check(obj)) {
    const int several = PySequence_Check(obj) ? answer_has_length(obj) : 0;
    if (several < 0) return -1;
    if (several == 0) return read_extents(&obj, 1, shape, ndim);
  }
  if (PyUnicode_Check(obj) || PyBytes_Check(obj) || !PySequence_Check(obj)) {
    PyErr_Format(PyExc_TypeError, "shape must be an integer or a sequence of integers, not '%s'",
                 Py_TYPE(obj)->tp_name);
    return -1;
  }
  PyObject *items = PySequence_Tuple(obj);
  if (items == NULL) return -1;
  const int rc = read_extents(((PyTupleObject *)items)->ob_item, PyTuple_GET_SIZE(items), shape, ndim);
  Py_DECREF(items);
  return rc;
}

/* A dtype of any width by the runtime's name. */
int core_dtype_name(core_state *state, PyObject *name, DLDataType *out) {
  Py_ssize_t length;
  const char *text = PyUnicode_AsUTF8AndSize(name, &length);
  if (text == NULL) return -1;
  mf_error err;
  if ((size_t)length != strlen(text)) {
    PyErr_SetString(PyExc_TypeError, "a dtype name contains a null character");
    return -1;
  }
  return mf_dtype_parse(text, out, &err) == MF_OK ? 0 : core_raise(state, &err);
}

static PyObject *dtype_module(const char *attribute) {
  PyObject *module = PyImport_ImportModule("moonferry._dtype");
  if (module == NULL) return NULL;
  PyObject *value = PyObject_GetAttrString(module, attribute);
  Py_DECREF(module);
  return value;
}

/* Whether a library has the dtype. Another width, int23 or float33, is rather a slip where it is a plain name. */
static bool is_common(DLDataType dtype) {
  switch (dtype.code) {
    case kDLInt:
    case kDLUInt:
      return dtype.bits <= 8 || dtype.bits == 16 || dtype.bits == 32 || dtype.bits == 64;
    case kDLFloat:
      return dtype.bits == 16 || dtype.bits == 32 || dtype.bits == 64;
    case kDLComplex:
      return dtype.bits == 32 || dtype.bits == 64 || dtype.bits == 128;
    case kDLBool:
      return dtype.bits == 8;
    case kDLBfloat:
      return dtype.bits == 16;
    default:
      return true; /* the names of the others say their width */
  }
}

/* A dtype by name, or anything that moonferry._dtype.resolve makes a DType of, names that are not usual included. What
 * has a class of its own, as a DType, may be of any width. */
int core_dtype(core_state *state, PyObject *obj, DLDataType *out) {
  mf_error err;
  if (PyUnicode_Check(obj)) {
    Py_ssize_t length;
    const char *text = PyUnicode_AsUTF8AndSize(obj, &length);
    if (text == NULL && !PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) return -1;
    if (text == NULL) PyErr_Clear(); /* half a surrogate pair is in no name, which resolve says */
    const bool known = text != NULL && (size_t)length == strlen(text) && mf_dtype_parse(text, out, &err) == MF_OK;
    if (known && (!PyUnicode_CheckExact(obj) || is_common(*out))) return 0;
  }
  PyObject *resolve = core_once_get(&state->dtype_resolve);
  if (resolve == NULL) resolve = core_once_set(&state->dtype_resolve, dtype_module("resolve"));
  if (resolve == NULL) return -1;
  PyObject *name = PyObject_CallOneArg(resolve, obj);
  if (name == NULL) return -1;
  const int rc = core_dtype_name(state, name, out);
  Py_DECREF(name);
  return rc;
}

static PyObject *make_dtype(DLDataType dtype) {
  char name[64]; /* longer than any name; each dtype that was checked has one */
  (void)mf_dtype_format(&dtype, name, sizeof name, NULL);
  PyObject *cls = dtype_module("DType");
  if (cls == NULL) return NULL;
  PyObject *made = PyObject_CallFunction(cls, "s", name);
  Py_DECREF(cls);
  return made;
}

/* The DType of ${dtype}: the same object every time. */
PyObject *core_dtype_object(core_state *state, DLDataType dtype) {
  const uint32_t both = (uint32_t)dtype.lanes << 16 | (uint32_t)dtype.bits << 8 | dtype.code;
  PyObject *key = PyLong_FromUnsignedLong(both);
  if (key == NULL) return NULL;
  PyObject *known = core_dict_get(state->dtypes, key);
  if (known == NULL) known = core_dict_keep(state->dtypes, key, make_dtype(dtype));
  Py_DECREF(key);
  return known;
}

int core_copy_flag(PyObject *obj, int *out) {
  if (obj == NULL || obj == Py_None)
    *out = -1;
  else if (obj == Py_True || obj == Py_False)
    *out = obj == Py_True;
  else {
    PyErr_Format(PyExc_TypeError, "copy must be True, False or None, not '%s'", Py_TYPE(obj)->tp_name);
    return -1;
  }
  return 0;
}
