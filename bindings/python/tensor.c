/* tensor.c: the type moonferry.Tensor: its life and its attributes.
 *
 * Invariant: a Tensor owns exactly one reference to a mf_tensor and nothing else, so that it needs no
 * garbage collector support: it cannot reach another Python object but its type. It must not know how
 * tensors get in or out.
 */
#include "core.h"

#include <stddef.h>
#include <structmember.h>

/* Exchanges make and drop one tensor after another, so a few dead ones are kept for reuse. Without the GIL they would
 * have to be each thread's own, as CPython's free memory is there. */
static inline core_tensor *new_object(core_state *state) {
#ifndef Py_GIL_DISABLED
  if (state->nspares > 0)
    return (core_tensor *)PyObject_Init((PyObject *)state->spares[--state->nspares], state->tensor_type);
#endif
  return PyObject_New(core_tensor, state->tensor_type);
}

static inline void free_object(core_tensor *tensor, const PyTypeObject *type) {
#ifndef Py_GIL_DISABLED
  core_state *state = core_now;
  if (state != NULL && type == state->tensor_type && state->nspares < CORE_SPARES) {
    state->spares[state->nspares++] = tensor;
    return;
  }
#endif
  (void)type;
  PyObject_Free(tensor);
}

PyObject *core_tensor_new(core_state *state, mf_tensor *t) {
  core_tensor *self = new_object(state);
  if (self == NULL) {
    core_release_quietly(t);
    return NULL;
  }
  self->t = t;
  self->weakrefs = NULL;
#ifdef Py_GIL_DISABLED
  atomic_init(&self->door, 0);
#else
  self->inside = self->buffers = 0;
  self->closed = self->lent = false;
#endif
  return (PyObject *)self;
}

/* The result of a mf_tensor_* view function: a Tensor, or its error as an exception. */
PyObject *core_wrap_view(PyObject *self, int status, mf_tensor *t, const mf_error *err) {
  core_state *state = core_state_of_tensor(self);
  if (status == MF_OK) return core_tensor_new(state, t);
  core_raise(state, err);
  return NULL;
}

void core_tensor_dealloc(PyObject *self) {
  core_tensor *tensor = (core_tensor *)self;
  PyTypeObject *type = Py_TYPE(self);
  CORE_CLEAR_WEAKREFS(self, tensor->weakrefs);
  if (tensor->t != NULL) core_release_quietly(tensor->t);
  free_object(tensor, type);
  Py_DECREF(type);
}

static PyObject *tensor_refuse_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  (void)args;
  (void)kwargs;
  PyErr_Format(PyExc_TypeError,
               "cannot create '%s' directly; use moonferry.tensor, empty, zeros, "
               "asarray or from_dlpack",
               type->tp_name);
  return NULL;
}

PyObject *core_int_tuple(const int64_t *values, int32_t count, int64_t factor) {
  PyObject *tuple = PyTuple_New(count);
  if (tuple == NULL) return NULL;
  for (int32_t i = 0; i < count; i++) {
    PyObject *item = PyLong_FromLongLong(values[i] * factor);
    if (item == NULL) {
      Py_DECREF(tuple);
      return NULL;
    }
    PyTuple_SET_ITEM(tuple, i, item);
  }
  return tuple;
}

typedef struct attribute {
  const char *name;
  PyObject *(*read)(PyObject *self);
  const char *instead; /* of setting it */
} attribute;

/* A row of the table of attributes. */
#define ATTRIBUTE(name, function, instead, doc) \
  { name, get, set, doc, (void *)&(const attribute){name, function, instead} }

/* Every attribute: its function, inside of the door. */
static PyObject *get(PyObject *self, void *closure) {
  const attribute *of = closure;
  if (core_enter(self) < 0) return NULL;
  PyObject *value = of->read(self);
  core_leave(self);
  return value;
}

/* No attribute can be set. */
static int set(PyObject *self, PyObject *value, void *closure) {
  const attribute *of = closure;
  (void)value;
  if (core_is_closed(self)) return core_refuse_closed();
  PyErr_Format(PyExc_AttributeError, "%s of a tensor cannot be set%s%s", of->name, of->instead[0] ? "; " : "",
               of->instead);
  return -1;
}

static PyObject *get_shape(PyObject *self) {
  const DLTensor *view = core_view(self);
  return core_int_tuple(view->shape, view->ndim, 1);
}

static PyObject *get_strides(PyObject *self) {
  const DLTensor *view = core_view(self);
  return core_int_tuple(view->strides, view->ndim, 1);
}

static PyObject *get_dtype(PyObject *self) {
  return core_dtype_object(core_state_of_tensor(self), core_view(self)->dtype);
}

static PyObject *get_device(PyObject *self) {
  return core_device_object(core_state_of_tensor(self), core_view(self)->device);
}

static PyObject *get_ndim(PyObject *self) {
  return PyLong_FromLong(core_view(self)->ndim);
}

static PyObject *get_nbytes(PyObject *self) {
  return PyLong_FromLongLong(mf_tensor_nbytes(core_handle(self)));
}

static PyObject *get_itemsize(PyObject *self) {
  return PyLong_FromLongLong((mf_dtype_bits(&core_view(self)->dtype, 0) + 7) / 8);
}

static PyObject *get_size(PyObject *self) {
  return PyLong_FromLongLong(mf_tensor_size(core_handle(self)));
}

static PyObject *get_readonly(PyObject *self) {
  return PyBool_FromLong((mf_tensor_flags(core_handle(self)) & DLPACK_FLAG_BITMASK_READ_ONLY) != 0);
}

static PyObject *get_is_contiguous(PyObject *self) {
  return PyBool_FromLong(mf_tensor_is_contiguous(core_handle(self)));
}

static PyObject *get_data_ptr(PyObject *self) {
  return PyLong_FromVoidPtr(core_view(self)->data);
}

static PyObject *get_flags(PyObject *self) {
  PyObject *module = PyImport_ImportModule("moonferry._flags");
  if (module == NULL) return NULL;
  const unsigned long long bits = mf_tensor_flags(core_handle(self));
  PyObject *made = PyObject_CallMethod(module, "flags_of", "(OK)", self, bits);
  Py_DECREF(module);
  return made;
}

static PyObject *get_transposed(PyObject *self) {
  mf_error err;
  mf_tensor *out;
  int status = mf_tensor_permute_dims(core_handle(self), NULL, 0, &out, &err);
  return core_wrap_view(self, status, out, &err);
}

/* Slow and comfortable things are written in Python, in a function of moonferry._convert or _format
 * that takes one object. */
PyObject *core_call_python(const char *module_name, const char *function, PyObject *self) {
  PyObject *module = PyImport_ImportModule(module_name);
  if (module == NULL) return NULL;
  PyObject *result = PyObject_CallMethod(module, function, "(O)", self);
  Py_DECREF(module);
  return result;
}

/* Another thread may close the tensor meanwhile. */
static PyObject *tensor_repr(PyObject *self) {
  PyObject *text = core_is_closed(self) ? NULL : core_call_python("moonferry._format", "tensor_repr", self);
  if (text != NULL || !core_is_closed(self)) return text;
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_ValueError)) return NULL;
  PyErr_Clear();
  return PyUnicode_FromString("moonferry.Tensor(closed)");
}

/* Who takes a dict with an address keeps the object, and no more. */
static PyObject *get_array_interface(PyObject *self) {
  core_lend(self);
  return core_call_python("moonferry._convert", "array_interface", self);
}

static PyObject *get_cuda_array_interface(PyObject *self) {
  core_lend(self);
  return core_call_python("moonferry._cuda", "array_interface", self);
}

static PyObject *get_numpy_dtype(PyObject *self) {
  return core_call_python("moonferry._convert", "numpy_dtype", self);
}

/* By identity, as equality is. */
static Py_hash_t tensor_hash(PyObject *self) {
  return PyBaseObject_Type.tp_hash(self);
}

static PyObject *tensor_iter(PyObject *self) {
  if (core_look(self) < 0) return NULL;
  const int32_t ndim = core_view(self)->ndim;
  core_look_end(self);
  if (ndim > 0) return PySeqIter_New(self);
  PyErr_SetString(PyExc_TypeError, "iteration over a tensor without axes");
  return NULL;
}

static PyGetSetDef getset[] = {
    ATTRIBUTE("shape", get_shape, "reshape gives another view",
              "tuple of int: the extent of each axis."),
    ATTRIBUTE("strides", get_strides, "permute_dims and broadcast_to give another view",
              "tuple of int: the distance between neighbours along each axis, in elements, as in DLPack (NumPy\n"
              "counts bytes)."),
    ATTRIBUTE("dtype", get_dtype, "astype gives a converted copy, reinterpret another view",
              "DType: the element type."),
    ATTRIBUTE("device", get_device, "to() gives the tensor there",
              "Device: the device that the memory belongs to."),
    ATTRIBUTE("ndim", get_ndim, "",
              "int: the number of axes."),
    ATTRIBUTE("nbytes", get_nbytes, "",
              "int: the bytes that the elements take in compact form."),
    ATTRIBUTE("itemsize", get_itemsize, "",
              "int: the bytes of one element, rounded up."),
    ATTRIBUTE("size", get_size, "",
              "int: the number of elements, the product of the shape."),
    ATTRIBUTE("readonly", get_readonly, "as_readonly gives another view",
              "bool: whether the elements must not be written."),
    ATTRIBUTE("is_contiguous", get_is_contiguous, "",
              "bool: whether the tensor is compact."),
    ATTRIBUTE("data_ptr", get_data_ptr, "",
              "int: the address of the first element."),
    ATTRIBUTE("flags", get_flags, "",
              "int: DLPack's flag bits: 1 read-only, 2 copied by the producer, 4 sub-byte elements padded to bytes.\n"
              "For code written for NumPy it also has c_contiguous, f_contiguous, aligned, writeable and owndata\n"
              "(False), as attributes and as items."),
    ATTRIBUTE("T", get_transposed, "",
              "Tensor: a view with the axes in reverse order."),
    ATTRIBUTE("__array_interface__", get_array_interface, "",
              "dict: NumPy's array interface, version 3. Raises AttributeError for a dtype that it cannot express\n"
              "and for a GPU's memory."),
    ATTRIBUTE("__cuda_array_interface__", get_cuda_array_interface, "",
              "dict: the CUDA array interface, version 3, of memory that CUDA can use. It names the current stream,\n"
              "on which the memory may be used at once.\n"
              "\n"
              "With MOONFERRY_CUDA_ARRAY_INTERFACE=2 in the environment it is version 2, which names no stream: the\n"
              "host waits until the memory is ready.\n"
              "Raises AttributeError for other devices, and for a dtype that the interface cannot express."),
    ATTRIBUTE("__numpy_dtype__", get_numpy_dtype, "",
              "numpy.dtype: the element type, for NumPy and for what asks NumPy, as JAX does. AttributeError where\n"
              "it has none."),
    {"closed", core_get_closed, NULL, "bool: whether close() was called.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(core_tensor, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(doc,
             "A strided array: an immutable description (shape, strides, dtype) of elements in memory that may be\n"
             "shared. The memory is released, on any thread, when its last tensor, view and export are gone. A\n"
             "tensor is compact if its elements lie in row-major (C) order without gaps.\n"
             "\n"
             "Tensors are made by moonferry.tensor, empty, zeros, ones, full, asarray, frombuffer, from_dlpack and\n"
             "from_cuda_array. They are exchanged by __dlpack__ and __dlpack_c_exchange_api__ (DLPack 1.3, array\n"
             "API 2025.12), the buffer protocol (PEP 3118), __array_interface__, __cuda_array_interface__, and\n"
             "pickling with out-of-band buffers (PEP 574).\n"
             "\n"
             "t == t is true. Any other comparison by == with a tensor, a number or a list raises TypeError:\n"
             "moonferry.equal compares contents, np.asarray(t) == x compares element by element.\n"
             "\n"
             "Single elements of a GPU's memory cannot be read or written by index. Only functions whose result is\n"
             "a value on the host copy from it: to(\"cpu\"), tolist, tobytes, item, float, int, bool, complex and\n"
             "repr. Work on a GPU is ordered on the thread's current stream (see Stream).");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)doc},
    {Py_tp_new, tensor_refuse_new},
    {Py_tp_dealloc, core_tensor_dealloc},
    {Py_tp_repr, tensor_repr},
    {Py_tp_iter, tensor_iter},
    {Py_tp_richcompare, core_compare},
    {Py_tp_hash, tensor_hash},
    {Py_tp_getset, getset},
    {Py_tp_members, members},
    {Py_tp_methods, core_tensor_methods},
    {Py_sq_length, core_length},
    {Py_sq_item, core_sequence_item},
    {Py_mp_length, core_length},
    {Py_mp_subscript, core_getitem},
    {Py_mp_ass_subscript, core_setitem},
    {Py_nb_add, core_add},
    {Py_nb_subtract, core_subtract},
    {Py_nb_multiply, core_multiply},
    {Py_nb_matrix_multiply, core_matmul},
    {Py_nb_true_divide, core_true_divide},
    {Py_nb_floor_divide, core_floor_divide},
    {Py_nb_remainder, core_remainder},
    {Py_nb_divmod, core_divmod},
    {Py_nb_and, core_bitwise_and},
    {Py_nb_or, core_bitwise_or},
    {Py_nb_xor, core_bitwise_xor},
    {Py_nb_lshift, core_left_shift},
    {Py_nb_rshift, core_right_shift},
    {Py_nb_power, core_power},
    {Py_nb_negative, core_negative},
    {Py_nb_absolute, core_absolute},
    {Py_nb_invert, core_invert},
    {Py_nb_float, core_number_float},
    {Py_nb_int, core_number_int},
    {Py_nb_index, core_number_index},
    {Py_nb_bool, core_number_bool},
    {Py_bf_getbuffer, core_getbuffer},
    {Py_bf_releasebuffer, core_releasebuffer},
    {0, NULL},
};

PyType_Spec core_tensor_spec = {
    .name = "moonferry.Tensor",
    .basicsize = sizeof(core_tensor),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

/* What to write instead of another library's name must cost nothing where the name is there: with a tp_getattro of its
 * own, CPython would make an object of each method before it calls it. So the class that answers stands last but one
 * among those in which a name is looked up, and it is no base, so that dir() and help() do not list what it has. */
PyObject *core_tensor_lacks(PyObject *module, PyObject *names) {
  PyTypeObject *type = core_state_of(module)->tensor_type;
  if (!PyType_Check(names)) return PyErr_Format(PyExc_TypeError, "a class expected, not '%s'", Py_TYPE(names)->tp_name);
  PyObject *order = PyTuple_Pack(3, type, names, &PyBaseObject_Type), *before = type->tp_mro;
  if (order == NULL) return NULL;
  type->tp_mro = order;
  PyType_Modified(type);
  Py_XDECREF(before);
  Py_RETURN_NONE;
}
