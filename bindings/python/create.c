/* create.c: moonferry.empty, zeros, ones, full, equal and what the Python files of the package need.
 *
 * Invariant: every tensor made here owns fresh memory. It must not know how memory comes in from outside.
 */
#include "core.h"

#include <string.h>

typedef struct request {
  int64_t shape[MF_MAX_NDIM];
  DLTensor like;
  uint64_t flags;
} request;

/* ${args}: shape, dtype, device, pages; an absent dtype is float32. */
static int read_request(core_state *state, PyObject *const args[4], request *out) {
  const int pages = args[3] == NULL ? 0 : PyObject_IsTrue(args[3]);
  if (pages < 0) return -1;
  out->flags = pages ? MF_CREATE_PAGES : 0;
  out->like = (DLTensor){.shape = out->shape, .dtype = {kDLFloat, 32, 1}};
  if (core_shape(args[0], out->shape, &out->like.ndim) < 0) return -1;
  if (args[1] != NULL && args[1] != Py_None && core_dtype(state, args[1], &out->like.dtype) < 0) return -1;
  if (core_device(state, args[2], &out->like.device) < 0) return -1;
  if (!pages || core_is_cpu(out->like.device)) return 0;
  PyErr_Format(PyExc_ValueError, "pages is true, but device is \"%s\"; whole pages are the cpu's alone",
               core_name_of(out->like.device).text);
  return -1;
}

/* A GPU's first use opens its driver, and its memory may have to be waited for. */
int core_create(const DLTensor *like, uint64_t flags, mf_tensor **out, mf_error *err) {
  if (like->device.device_type == kDLCPU) return mf_tensor_create(like, flags, out, err);
  PyThreadState *saved = PyEval_SaveThread();
  const int status = mf_tensor_create(like, flags, out, err);
  PyEval_RestoreThread(saved);
  return status;
}

/* Zero bytes are zero in every dtype, those without arithmetic included. */
static int zero_host(mf_tensor *t) {
  size_t nbytes = (size_t)mf_tensor_nbytes(t);
  if (nbytes > 0) memset(mf_tensor_dltensor(t)->data, 0, nbytes);
  return MF_OK;
}

static int zero_device(mf_tensor *t, mf_error *err) {
  DLTensor like = *mf_tensor_dltensor(t);
  mf_tensor *zeros;
  like.device = (DLDevice){.device_type = kDLCPU, .device_id = 0};
  int status = mf_tensor_create(&like, 0, &zeros, err);
  if (status != MF_OK) return status;
  zero_host(zeros);
  status = core_cast(t, zeros, err);
  mf_tensor_release(zeros);
  return status;
}

static PyObject *create(core_state *state, const request *what, const mf_scalar *value) {
  mf_tensor *t;
  mf_error err;
  int status = core_create(&what->like, what->flags, &t, &err);
  if (status == MF_OK && value != NULL) {
    status = core_fill(t, value, &err);
    if (status == MF_EDTYPE && value->kind == MF_KIND_INT && value->i == 0)
      status = core_is_cpu(what->like.device) ? zero_host(t) : zero_device(t, &err);
    if (status != MF_OK) mf_tensor_release(t);
  }
  if (status == MF_OK) return core_tensor_new(state, t);
  core_raise(state, &err);
  return NULL;
}

static PyObject *create_from(PyObject *module, PyObject *const args[4], const mf_scalar *value) {
  core_state *state = core_state_of(module);
  request what;
  return read_request(state, args, &what) < 0 ? NULL : create(state, &what, value);
}

/* A new tensor of zeros on the host; without a ${dtype} (NULL) of float32. */
PyObject *core_zeros(core_state *state, PyObject *shape, PyObject *dtype) {
  static const mf_scalar zero = {.kind = MF_KIND_INT};
  PyObject *args[4] = {shape, dtype};
  request what;
  return read_request(state, args, &what) < 0 ? NULL : create(state, &what, &zero);
}

PyDoc_STRVAR(empty_doc,
             "empty($module, /, shape, dtype='float32', *, device=None, pages=False)\n--\n\n"
             "Returns a new compact tensor that owns its memory, aligned to 256 bytes. Its elements are not\n"
             "initialised.\n"
             "\n"
             "shape: an int or a sequence of ints.\n"
             "device: None or \"cpu\"; a GPU, such as \"cuda:0\" or \"rocm:1\"; \"cuda_host\" or \"rocm_host\" for\n"
             "pinned memory; \"cuda_managed\" for managed memory; a pair of DLPack's numbers; or a PyTorch device.\n"
             "Memory of a GPU may be used on the current stream at once.\n"
             "pages: True allocates whole pages of host memory, so that a graphics API can import them.\n"
             "Raises ValueError, TypeError, OverflowError, MemoryError or DriverError.");

static PyObject *empty(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  static const core_signature signature = {"empty", 2, 1, 4, {KW_SHAPE, KW_DTYPE, KW_DEVICE, KW_PAGES}};
  PyObject *values[4];
  if (core_args(core_state_of(module), &signature, args, nargs, kwnames, values) < 0) return NULL;
  return create_from(module, values, NULL);
}

PyDoc_STRVAR(zeros_doc,
             "zeros($module, /, shape, dtype='float32', *, device=None, pages=False)\n--\n\n"
             "Returns a new tensor, as empty does, with 0 in every element.");

static PyObject *zeros(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  static const core_signature signature = {"zeros", 2, 1, 4, {KW_SHAPE, KW_DTYPE, KW_DEVICE, KW_PAGES}};
  static const mf_scalar zero = {.kind = MF_KIND_INT};
  PyObject *values[4];
  if (core_args(core_state_of(module), &signature, args, nargs, kwnames, values) < 0) return NULL;
  return create_from(module, values, &zero);
}

PyDoc_STRVAR(ones_doc,
             "ones($module, /, shape, dtype='float32', *, device=None, pages=False)\n--\n\n"
             "Returns a new tensor, as empty does, with 1 in every element.");

static PyObject *ones(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  static const core_signature signature = {"ones", 2, 1, 4, {KW_SHAPE, KW_DTYPE, KW_DEVICE, KW_PAGES}};
  static const mf_scalar one = {.kind = MF_KIND_INT, .i = 1};
  PyObject *values[4];
  if (core_args(core_state_of(module), &signature, args, nargs, kwnames, values) < 0) return NULL;
  return create_from(module, values, &one);
}

static DLDataType natural_dtype(const mf_scalar *value) {
  switch (value->kind) {
    case MF_KIND_BOOL:
      return (DLDataType){kDLBool, 8, 1};
    case MF_KIND_INT:
      return (DLDataType){kDLInt, 64, 1};
    case MF_KIND_UINT:
      return (DLDataType){kDLUInt, 64, 1};
    case MF_KIND_FLOAT:
      return (DLDataType){kDLFloat, 64, 1};
    default:
      return (DLDataType){kDLComplex, 128, 1};
  }
}

/* That of a NumPy scalar or a tensor of one element is its own. */
static int dtype_of_number(core_state *state, PyObject *obj, const mf_scalar *value, DLDataType *out) {
  *out = natural_dtype(value);
  if (PyLong_Check(obj) || PyFloat_Check(obj) || PyComplex_Check(obj)) return 0;
  PyObject *own = PyObject_GetAttrString(obj, "dtype");
  if (own == NULL) return answer_is_no() ? 0 : -1;
  const int rc = core_dtype(state, own, out);
  Py_DECREF(own);
  return rc;
}

PyDoc_STRVAR(full_doc,
             "full($module, /, shape, fill_value, dtype=None, *, device=None, pages=False)\n--\n\n"
             "Returns a new tensor, as empty does, with fill_value in every element.\n"
             "\n"
             "dtype: None chooses bool, int64, float64 or complex128, according to fill_value, and keeps the dtype\n"
             "of a NumPy scalar.\n"
             "Raises OverflowError if the dtype cannot hold fill_value.");

static PyObject *full(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  static const core_signature signature = {"full", 3, 2, 5, {KW_SHAPE, KW_FILL_VALUE, KW_DTYPE, KW_DEVICE, KW_PAGES}};
  core_state *state = core_state_of(module);
  PyObject *values[5];
  mf_scalar value;
  request what;
  if (core_args(state, &signature, args, nargs, kwnames, values) < 0) return NULL;
  const bool natural = values[2] == NULL || values[2] == Py_None;
  if (natural && core_scalar_from_python(state, values[1], &value) < 0) return NULL;
  PyObject *rest[4] = {values[0], values[2], values[3], values[4]};
  if (read_request(state, rest, &what) < 0) return NULL;
  const int rc = natural ? dtype_of_number(state, values[1], &value, &what.like.dtype)
                         : core_scalar_for(state, values[1], what.like.dtype, &value);
  if (rc < 0) return NULL;
  return create(state, &what, &value);
}

PyDoc_STRVAR(equal_doc,
             "equal($module, a, b, /)\n--\n\n"
             "Returns whether two tensors have the same shape, dtype and elements. NaN differs from itself; -0.0\n"
             "equals 0.0. One of them may be anything that asarray accepts. Two tensors on one GPU are compared\n"
             "there.");

static PyObject *equal_tensors(PyObject *module, PyObject *left, PyObject *right) {
  const mf_tensor *a = core_handle(left), *b = core_handle(right);
  int32_t same;
  mf_error err;
  PyThreadState *saved = PyEval_SaveThread();
  const int status = mf_tensor_equal(a, b, &same, &err);
  PyEval_RestoreThread(saved);
  if (status == MF_OK) return PyBool_FromLong(same);
  core_raise(core_state_of(module), &err);
  return NULL;
}

static PyObject *equal_inside(PyObject *module, PyObject *a, PyObject *b) {
  PyObject *result = NULL;
  if (core_enter(a) < 0) return NULL;
  if (core_enter(b) == 0) {
    result = equal_tensors(module, a, b);
    core_leave(b);
  }
  core_leave(a);
  return result;
}

static PyObject *tensor_of(PyObject *obj) {
  if (!core_is_tensor(obj)) return core_call_python("moonferry._convert", "asarray", obj);
  Py_INCREF(obj);
  return obj;
}

static PyObject *equal(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  if (nargs != 2 || !(core_is_tensor(args[0]) || core_is_tensor(args[1]))) {
    PyErr_Format(PyExc_TypeError, "equal() takes two tensors, or a tensor and an array; got %zd argument%s", nargs,
                 nargs == 2 ? "s, of which none is a tensor" : nargs == 1 ? "" : "s");
    return NULL;
  }
  PyObject *a = tensor_of(args[0]), *b = a != NULL ? tensor_of(args[1]) : NULL;
  PyObject *result = NULL;
  if (b != NULL && core_is_tensor(a) && core_is_tensor(b))
    result = equal_inside(module, a, b);
  else if (b != NULL)
    PyErr_SetString(PyExc_TypeError, "moonferry._convert.asarray did not give a Tensor");
  Py_XDECREF(a);
  Py_XDECREF(b);
  return result;
}

PyDoc_STRVAR(dtype_parse_doc,
             "_dtype_parse($module, name, /)\n--\n\n"
             "The DLDataType of a dtype's name as (code, bits, lanes, bytes of one element). TypeError for no dtype.");

static PyObject *dtype_parse(PyObject *module, PyObject *name) {
  DLDataType dtype;
  if (core_dtype_name(core_state_of(module), name, &dtype) < 0) return NULL;
  int64_t nbytes = (mf_dtype_bits(&dtype, 0) + 7) / 8;
  return Py_BuildValue("iiiL", dtype.code, dtype.bits, dtype.lanes, (long long)nbytes);
}

#define FASTCALL(function) ((PyCFunction)(void (*)(void))(function))

PyMethodDef core_create_functions[] = {
    {"empty", FASTCALL(empty), METH_FASTCALL | METH_KEYWORDS, empty_doc},
    {"zeros", FASTCALL(zeros), METH_FASTCALL | METH_KEYWORDS, zeros_doc},
    {"ones", FASTCALL(ones), METH_FASTCALL | METH_KEYWORDS, ones_doc},
    {"full", FASTCALL(full), METH_FASTCALL | METH_KEYWORDS, full_doc},
    {"equal", FASTCALL(equal), METH_FASTCALL, equal_doc},
    {"_dtype_parse", dtype_parse, METH_O, dtype_parse_doc},
    {NULL, NULL, 0, NULL},
};
