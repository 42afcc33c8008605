/* scalar.c: one element's value between mf_scalar and Python, and Tensor's conversions to a number.
 *
 * Invariant: a Python number reaches an integer tensor exactly, but for its fraction, or raises OverflowError; no
 * other rounding happens here, the runtime does that. It must not know about shapes.
 */
#include "core.h"

#include <math.h>

PyObject *core_scalar_to_python(const mf_scalar *value) {
  switch (value->kind) {
    case MF_KIND_BOOL:
      return PyBool_FromLong(value->i != 0);
    case MF_KIND_INT:
      return PyLong_FromLongLong(value->i);
    case MF_KIND_UINT:
      return PyLong_FromUnsignedLongLong(value->u);
    case MF_KIND_FLOAT:
      return PyFloat_FromDouble(value->f);
    default:
      return PyComplex_FromDoubles(value->f, value->imag);
  }
}

static int scalar_from_long(PyObject *number, mf_scalar *out) {
  int overflow;
  long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow == 0) {
    *out = (mf_scalar){.kind = MF_KIND_INT, .i = value};
    return 0;
  }
  if (overflow > 0) {
    unsigned long long large = PyLong_AsUnsignedLongLong(number);
    if (!PyErr_Occurred()) {
      *out = (mf_scalar){.kind = MF_KIND_UINT, .u = large};
      return 0;
    }
    PyErr_Clear();
  }
  return core_raise_too_large(PyExc_OverflowError, "an element", number);
}

/* A scalar of another library: its item(), which is a Python number. */
static int scalar_from_item(core_state *state, PyObject *obj, mf_scalar *out) {
  PyObject *plain = PyObject_CallMethodNoArgs(obj, state->names[NAME_ITEM]);
  if (plain == NULL) return -1;
  int rc = -1;
  if (PyLong_Check(plain) || PyFloat_Check(plain) || PyComplex_Check(plain))
    rc = core_scalar_from_python(state, plain, out);
  else
    PyErr_Format(PyExc_TypeError, "item() of '%s' gave a '%s', not a number", Py_TYPE(obj)->tp_name,
                 Py_TYPE(plain)->tp_name);
  Py_DECREF(plain);
  return rc;
}

static int scalar_from_index(PyObject *obj, mf_scalar *out) {
  PyObject *number = PyNumber_Index(obj);
  if (number == NULL) return -1;
  int rc = scalar_from_long(number, out);
  Py_DECREF(number);
  return rc;
}

static int scalar_from_float(PyObject *obj, mf_scalar *out) {
  PyNumberMethods *methods = Py_TYPE(obj)->tp_as_number;
  if (PyUnicode_Check(obj) || methods == NULL || methods->nb_float == NULL) {
    const bool several = Py_TYPE(obj)->tp_iter != NULL && !PySequence_Check(obj);
    PyErr_Format(PyExc_TypeError, "an element must be a number, not '%s'%s", Py_TYPE(obj)->tp_name,
                 several ? "; list() of it is taken where lists are" : "");
    return -1;
  }
  PyObject *number = PyNumber_Float(obj);
  if (number == NULL) return -1;
  *out = (mf_scalar){.kind = MF_KIND_FLOAT, .f = PyFloat_AS_DOUBLE(number)};
  Py_DECREF(number);
  return 0;
}

int core_scalar_from_python(core_state *state, PyObject *obj, mf_scalar *out) {
  if (PyBool_Check(obj)) {
    *out = (mf_scalar){.kind = MF_KIND_BOOL, .i = obj == Py_True};
    return 0;
  }
  if (PyFloat_Check(obj)) {
    *out = (mf_scalar){.kind = MF_KIND_FLOAT, .f = PyFloat_AS_DOUBLE(obj)};
    return 0;
  }
  if (PyLong_Check(obj)) return scalar_from_long(obj, out);
  if (PyComplex_Check(obj)) {
    Py_complex value = PyComplex_AsCComplex(obj);
    *out = (mf_scalar){.kind = MF_KIND_COMPLEX, .f = value.real, .imag = value.imag};
    return 0;
  }
  if (core_is_tensor(obj)) return core_only_element(obj, out);
  const int has_item = answer_has(obj, state->names[NAME_ITEM]);
  if (has_item != 0) return has_item < 0 ? -1 : scalar_from_item(state, obj, out);
  if (PyIndex_Check(obj)) return scalar_from_index(obj, out);
  return scalar_from_float(obj, out);
}

static int is_integer(DLDataType dtype) {
  return (dtype.code == kDLInt || dtype.code == kDLUInt) && dtype.lanes == 1 && dtype.bits <= 64;
}

static uint64_t highest_of(DLDataType dtype) {
  return UINT64_MAX >> (64 - dtype.bits + (dtype.code == kDLInt));
}

/* Whether an integer dtype holds what is left of a real number without its fraction. */
static int holds(DLDataType dtype, const mf_scalar *value) {
  const int is_signed = dtype.code == kDLInt;
  const uint64_t highest = highest_of(dtype);
  if (value->kind == MF_KIND_FLOAT) {
    const double above = ldexp(1.0, dtype.bits - is_signed), whole = trunc(value->f);
    return whole < above && whole >= (is_signed ? -above : 0.0);
  }
  if (value->kind == MF_KIND_UINT || value->i >= 0) return value->u <= highest;
  return is_signed && value->i >= -(int64_t)highest - 1;
}

static int refuse_number(core_state *state, DLDataType dtype, const mf_scalar *value) {
  const unsigned long long highest = highest_of(dtype);
  const long long lowest = dtype.code == kDLInt ? -(long long)highest - 1 : 0;
  PyObject *name = core_dtype_object(state, dtype), *number = core_scalar_to_python(value);
  if (name != NULL && number != NULL && value->kind == MF_KIND_FLOAT && isnan(value->f))
    PyErr_Format(PyExc_ValueError, "nan does not become an integer of dtype %U; astype makes it 0", name);
  else if (name != NULL && number != NULL)
    PyErr_Format(PyExc_OverflowError, "%R does not fit in dtype %U, which holds %lld to %llu; astype converts it",
                 number, name, lowest, highest);
  Py_XDECREF(name);
  Py_XDECREF(number);
  return -1;
}

static int refuse_complex(core_state *state, DLDataType dtype, const mf_scalar *value) {
  PyObject *name = core_dtype_object(state, dtype), *number = core_scalar_to_python(value);
  if (name != NULL && number != NULL)
    PyErr_Format(PyExc_TypeError, "a complex number, %R, does not convert to %U; its .real does", number, name);
  Py_XDECREF(name);
  Py_XDECREF(number);
  return -1;
}

static int fits(core_state *state, DLDataType dtype, const mf_scalar *value) {
  if (value->kind == MF_KIND_COMPLEX && (is_integer(dtype) || dtype.code == kDLFloat || dtype.code == kDLBfloat))
    return refuse_complex(state, dtype, value);
  if (!is_integer(dtype) || value->kind == MF_KIND_COMPLEX || holds(dtype, value)) return 0;
  return refuse_number(state, dtype, value);
}

/* Whether a large int becomes the nearest number of ${dtype}, as a float does. */
static int rounds(DLDataType dtype) {
  return dtype.code != kDLInt && dtype.code != kDLUInt && dtype.code != kDLBool && dtype.code != kDLOpaqueHandle;
}

/* Whether ${obj} is an int of more than 64 bits. */
static int is_large(PyObject *obj) {
  int overflow = 0;
  if (PyLong_Check(obj)) PyLong_AsLongLongAndOverflow(obj, &overflow);
  return overflow != 0;
}

/* A Python number as an element of ${dtype}. */
int core_scalar_for(core_state *state, PyObject *obj, DLDataType dtype, mf_scalar *out) {
  if (rounds(dtype) && is_large(obj)) {
    *out = (mf_scalar){.kind = MF_KIND_FLOAT, .f = PyLong_AsDouble(obj)};
    return PyErr_Occurred() ? -1 : 0;
  }
  return core_scalar_from_python(state, obj, out) < 0 ? -1 : fits(state, dtype, out);
}

/* Whether ${obj} is one number rather than something with elements. */
int core_is_scalar(PyObject *obj) {
  if (PyLong_Check(obj) || PyFloat_Check(obj) || PyComplex_Check(obj)) return 1;
  if (PySequence_Check(obj) || PyMapping_Check(obj) || PyObject_CheckBuffer(obj)) return 0;
  PyNumberMethods *methods = Py_TYPE(obj)->tp_as_number;
  return methods != NULL && (methods->nb_float != NULL || methods->nb_index != NULL);
}

/* Reads the value of a tensor that has exactly one element; of a GPU's by a copy. */
static int only_element(PyObject *self, PyObject *refusal, mf_scalar *out) {
  static const int64_t zeros[MF_MAX_NDIM];
  mf_tensor *t;
  mf_error err;
  const int64_t numel = mf_tensor_size(core_handle(self));
  if (numel != 1) {
    PyErr_Format(refusal, "only a tensor of one element is a number; this one has %lld, which tolist() gives",
                 (long long)numel);
    return -1;
  }
  if (core_on_host(self, &t) < 0) return -1;
  const int status = mf_tensor_get(t, zeros, mf_tensor_dltensor(t)->ndim, out, &err);
  mf_tensor_release(t);
  return status == MF_OK ? 0 : core_raise(core_state_of_tensor(self), &err);
}

static int element_or(PyObject *self, PyObject *refusal, mf_scalar *out) {
  if (core_enter(self) < 0) return -1;
  const int rc = only_element(self, refusal, out);
  core_leave(self);
  return rc;
}

int core_only_element(PyObject *self, mf_scalar *out) {
  return element_or(self, PyExc_ValueError, out);
}

PyObject *core_item(PyObject *self, PyObject *ignored) {
  (void)ignored;
  mf_scalar value;
  return core_only_element(self, &value) < 0 ? NULL : core_scalar_to_python(&value);
}

/* As NumPy's arrays: libraries try float() of what may be an array, and catch the TypeError (pyproj). */
static PyObject *through(PyObject *self, PyObject *(*convert)(PyObject *)) {
  mf_scalar value;
  PyObject *plain = element_or(self, PyExc_TypeError, &value) < 0 ? NULL : core_scalar_to_python(&value);
  if (plain == NULL) return NULL;
  PyObject *result = convert(plain);
  Py_DECREF(plain);
  return result;
}

PyObject *core_number_float(PyObject *self) {
  return through(self, PyNumber_Float);
}

PyObject *core_number_int(PyObject *self) {
  return through(self, PyNumber_Long);
}

PyObject *core_number_index(PyObject *self) {
  if (core_look(self) < 0) return NULL;
  const uint8_t code = core_view(self)->dtype.code;
  const int32_t ndim = core_view(self)->ndim;
  core_look_end(self);
  if (ndim != 0 || (code != kDLInt && code != kDLUInt)) {
    PyErr_SetString(PyExc_TypeError, "only an integer tensor without axes can be converted to an index");
    return NULL;
  }
  return core_item(self, NULL);
}

int core_number_bool(PyObject *self) {
  PyObject *plain = core_item(self, NULL);
  if (plain == NULL) return -1;
  int truth = PyObject_IsTrue(plain);
  Py_DECREF(plain);
  return truth;
}

PyObject *core_number_complex(PyObject *self, PyObject *ignored) {
  (void)ignored;
  mf_scalar value;
  if (element_or(self, PyExc_TypeError, &value) < 0) return NULL;
  PyObject *plain = core_scalar_to_python(&value);
  if (plain == NULL || PyComplex_Check(plain)) return plain;
  PyObject *real = PyNumber_Float(plain);
  Py_DECREF(plain);
  if (real == NULL) return NULL;
  PyObject *result = PyComplex_FromDoubles(PyFloat_AS_DOUBLE(real), 0.0);
  Py_DECREF(real);
  return result;
}
