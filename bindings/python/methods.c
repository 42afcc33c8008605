/* methods.c: Tensor's methods: copies and conversions, one call of the runtime each; and the table of all methods.
 *
 * Invariant: a method parses its arguments, calls one mf_tensor_* function and wraps the result. It must
 * not know what the runtime checks.
 */
#include "core.h"

/* Below this many bytes, giving the GIL away costs more than the work. */
enum { RELEASE_GIL_NBYTES = 1 << 16 };

/* Whether work on the tensor keeps the GIL. On a device even a small copy may have to wait for the driver; and for the
 * memory, whatever its label, if it is ordered. */
static bool keeps_gil(const mf_tensor *t) {
  return mf_tensor_nbytes(t) < RELEASE_GIL_NBYTES && !core_may_wait(t);
}

int core_clone(mf_tensor *t, mf_tensor **out, mf_error *err) {
  if (keeps_gil(t)) return mf_tensor_clone(t, out, err);
  PyThreadState *saved = PyEval_SaveThread();
  const int status = mf_tensor_clone(t, out, err);
  PyEval_RestoreThread(saved);
  return status;
}

static bool same_dtype(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

static bool host_reads(const mf_tensor *t) {
  return core_host_reads(mf_tensor_dltensor(t)->device);
}

int core_cast(mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  if (keeps_gil(dst) && keeps_gil(src)) return mf_tensor_astype(dst, src, err);
  PyThreadState *saved = PyEval_SaveThread();
  const int status = mf_tensor_astype(dst, src, err);
  PyEval_RestoreThread(saved);
  return status;
}

int core_fill(mf_tensor *t, const mf_scalar *value, mf_error *err) {
  if (keeps_gil(t)) return mf_tensor_fill(t, value, err);
  PyThreadState *saved = PyEval_SaveThread();
  const int status = mf_tensor_fill(t, value, err);
  PyEval_RestoreThread(saved);
  return status;
}

PyDoc_STRVAR(fill_doc,
             "fill($self, value, /)\n--\n\n"
             "Sets every element to one number. An integer dtype drops the fraction.\n"
             "\n"
             "Raises OverflowError for a number that the dtype cannot hold; ValueError for nan in an integer dtype,\n"
             "and if the tensor is read-only; TypeError for a dtype without arithmetic.");

static PyObject *fill(PyObject *self, PyObject *value) {
  core_state *state = core_state_of_tensor(self);
  mf_scalar scalar;
  mf_error err;
  if (core_scalar_for(state, value, core_view(self)->dtype, &scalar) < 0) return NULL;
  if (core_fill(core_handle(self), &scalar, &err) == MF_OK) Py_RETURN_NONE;
  core_raise(state, &err);
  return NULL;
}

static CORE_PLAIN(open_fill, fill)

PyDoc_STRVAR(copy_doc,
             "copy($self, src=None, /, *, progress=None)\n--\n\n"
             "Without src, returns a new compact, writable tensor with the same elements. With src, copies its\n"
             "elements into this tensor, broadcast and converted, and returns this tensor.\n"
             "\n"
             "src: a tensor, or anything that asarray accepts. It may overlap this tensor unless progress is given.\n"
             "progress: called as progress(done, total) after each 16 MiB or so, with numbers of elements. An\n"
             "exception that it raises ends the copy.\n"
             "Raises ValueError if this tensor is read-only or the shapes do not fit.");

static PyObject *cast_to(PyObject *self, DLDataType dtype) {
  const DLTensor *view = core_view(self);
  DLTensor like = {.device = view->device, .ndim = view->ndim, .dtype = dtype, .shape = view->shape};
  mf_error err;
  mf_tensor *out;
  int status = core_create(&like, 0, &out, &err);
  if (status == MF_OK) {
    status = core_cast(out, core_handle(self), &err);
    if (status != MF_OK) mf_tensor_release(out);
  }
  if (status == MF_OK) return core_tensor_new(core_state_of_tensor(self), out);
  core_raise(core_state_of_tensor(self), &err);
  return NULL;
}

PyDoc_STRVAR(astype_doc,
             "astype($self, /, dtype, *, copy=True)\n--\n\n"
             "Returns a new compact tensor with the elements converted to dtype. A GPU's elements are converted on\n"
             "the GPU's stream.\n"
             "\n"
             "Conversions to floats round to nearest. From float to integer they truncate toward zero and saturate,\n"
             "from integer to integer they keep the low bits.\n"
             "copy: False returns this tensor if it already has the dtype.\n"
             "Raises TypeError from complex to real, and for a dtype without arithmetic.");

static PyObject *astype(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  static const core_signature signature = {"astype", 1, 1, 2, {KW_DTYPE, KW_COPY}};
  PyObject *values[2];
  DLDataType dtype;
  int force = 1;
  if (core_args_self(self, &signature, args, nargs, kwnames, values) < 0) return NULL;
  if (values[1] != NULL && core_copy_flag(values[1], &force) < 0) return NULL;
  if (core_dtype(core_state_of_tensor(self), values[0], &dtype) < 0) return NULL;
  if (force != 1 && same_dtype(core_view(self)->dtype, dtype)) {
    Py_INCREF(self);
    return self;
  }
  return cast_to(self, dtype);
}

static CORE_KEYWORDS(open_astype, astype)

PyDoc_STRVAR(to_doc,
             "to($self, /, device, *, copy=None, stream=None)\n--\n\n"
             "Returns the tensor on another device: itself if it is already there; a view if both devices mean the\n"
             "same memory (pinned or managed as cpu, managed as a GPU); otherwise a compact copy.\n"
             "\n"
             "A copy to the cpu is complete on return; any other copy is queued on the stream. The GIL is released.\n"
             "copy: True always copies; False raises ExchangeError if a copy is needed; None copies only if needed.\n"
             "stream: a Stream, an object with __cuda_stream__, or a number as for __dlpack__. It belongs to the\n"
             "target, or, if that is the cpu, to the source. None is the current stream.\n"
             "Raises ValueError if there is no such device; DriverError; MemoryError; RuntimeError if a capture\n"
             "forbids the work.");

PyDoc_STRVAR(acquire_doc,
             "acquire($self, /, stream=None, write=False)\n--\n\n"
             "Call this before you queue work of your own on the tensor's memory. The stream then waits until it\n"
             "may use the memory; later uses of the memory, and its release, wait for the work that is on the\n"
             "stream by then.\n"
             "\n"
             "stream: as for `to`; \"host\" makes the host wait instead. A stream of another library must live until\n"
             "the memory is released.\n"
             "write: whether your work writes the memory; otherwise it only reads.");

PyDoc_STRVAR(record_doc,
             "record($self, /, stream=None, write=False)\n--\n\n"
             "As acquire, but the stream does not wait. Call this after you have queued work that uses the memory.");

PyDoc_STRVAR(tolist_doc,
             "tolist($self, /)\n--\n\n"
             "Returns the elements as nested lists of Python numbers, or one number for a tensor without axes. From\n"
             "a GPU's memory they are copied once.\n"
             "\n"
             "Raises TypeError for a dtype without arithmetic.");

PyDoc_STRVAR(item_doc,
             "item($self, /)\n--\n\n"
             "Returns the only element as a Python number. From a GPU's memory it is copied. Raises ValueError if\n"
             "there is not exactly one element.");

PyDoc_STRVAR(complex_doc, "__complex__($self, /)\n--\n\nThe only element as a complex number.");

PyDoc_STRVAR(dlpack_doc,
             "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
             "Returns a capsule that shares the memory with a DLPack consumer and keeps it alive. A capsule that no\n"
             "one consumes releases it.\n"
             "\n"
             "The stream argument names the stream on which the consumer will use the memory, by a number of the\n"
             "target's driver:\n"
             "\n"
             "             None               -1        0        1        2           more      less\n"
             "  cpu        the host           the host  refused  refused  refused     refused   refused\n"
             "  cuda       see stream_none    no order  refused  default  per thread  a handle  refused\n"
             "  cuda_host  the host waits     no order  refused  default  per thread  a handle  refused\n"
             "  rocm       see stream_none    no order  default  refused  refused     a handle  refused\n"
             "  rocm_host  the host waits     no order  default  refused  refused     a handle  refused\n"
             "\n"
             "cuda_managed is like cuda_host. With -1 nothing is ordered: the consumer itself must wait for earlier\n"
             "work, and finish its own before it drops the memory. The host waits only if it is the consumer.\n"
             "\n"
             "max_version: (1, x) and later return a struct of DLPack 1.3; None and (0, x) return the struct of\n"
             "DLPack before 1.0.\n"
             "dl_device: the device that the memory is wanted on, a pair of DLPack's numbers.\n"
             "copy: True returns a copy of the consumer's own, made on the stream; False raises ExchangeError if a\n"
             "copy is needed; None copies only if needed.\n"
             "Raises TypeError for a keyword of the wrong type; ValueError for a refused stream; ExchangeError (a\n"
             "BufferError) if the device cannot be reached, if copy=False and a copy is needed, if the memory is\n"
             "read-only and the struct cannot say so, if a capture forbids the work, and if the memory was taken\n"
             "back.\n"
             "Standard: array API 2025.12, __dlpack__.");

PyDoc_STRVAR(dlpack_device_doc,
             "__dlpack_device__($self, /)\n--\n\n"
             "Returns the pair (device type, device id), in DLPack's numbers (array API 2025.12).");

static PyObject *call_convert(PyObject *self, const char *function, PyObject *args, PyObject *kwargs) {
  PyObject *module = PyImport_ImportModule("moonferry._convert");
  if (module == NULL) return NULL;
  PyObject *callable = PyObject_GetAttrString(module, function);
  Py_DECREF(module);
  if (callable == NULL) return NULL;
  PyObject *head = PyTuple_Pack(1, self);
  PyObject *all = head == NULL ? NULL : PySequence_Concat(head, args);
  Py_XDECREF(head);
  PyObject *result = all == NULL ? NULL : PyObject_Call(callable, all, kwargs);
  Py_XDECREF(all);
  Py_DECREF(callable);
  return result;
}

PyDoc_STRVAR(array_doc,
             "__array__($self, /, dtype=None, copy=None)\n--\n\n"
             "Returns a NumPy array with the same elements. It shares the memory if dtype and copy allow it.\n"
             "\n"
             "Raises ValueError if copy=False but a copy is needed; TypeError if NumPy lacks the dtype, and for a\n"
             "GPU's memory: copy that first with to(\"cpu\").");

static PyObject *array(PyObject *self, PyObject *args, PyObject *kwargs) {
  return call_convert(self, "to_numpy", args, kwargs);
}

static CORE_TUPLE(open_array, array)

PyDoc_STRVAR(numpy_doc,
             "numpy($self, /)\n--\n\n"
             "Returns a NumPy array over the same memory, as numpy.asarray(t) does. Raises what __array__ raises.");

static PyObject *numpy(PyObject *self, PyObject *ignored) {
  (void)ignored;
  return core_call_python("moonferry._convert", "to_numpy", self);
}

static CORE_PLAIN(open_numpy, numpy)

PyDoc_STRVAR(tobytes_doc,
             "tobytes($self, /)\n--\n\n"
             "Returns the elements in row-major order as bytes. From a GPU's memory they are copied once.\n"
             "Elements that do not fill bytes lie as in memory, the first one in the low bits; unused bits of the\n"
             "last byte are 0.");

static PyObject *tobytes(PyObject *self, PyObject *ignored) {
  (void)ignored;
  return core_call_python("moonferry._convert", "to_bytes", self);
}

static CORE_PLAIN(open_tobytes, tobytes)

PyDoc_STRVAR(contiguous_doc,
             "contiguous($self, /)\n--\n\n"
             "Returns this tensor if it is compact, otherwise a compact copy.");

static PyObject *contiguous(PyObject *self, PyObject *ignored) {
  (void)ignored;
  mf_error err;
  mf_tensor *out;
  if (mf_tensor_is_contiguous(core_handle(self))) {
    Py_INCREF(self);
    return self;
  }
  int status = core_clone(core_handle(self), &out, &err);
  return core_wrap_view(self, status, out, &err);
}

static CORE_PLAIN(open_contiguous, contiguous)

PyDoc_STRVAR(reduce_doc,
             "__reduce_ex__($self, protocol, /)\n--\n\n"
             "For pickle: from protocol 5 on the elements travel as a pickle.PickleBuffer, out of band if the\n"
             "pickler takes such buffers (PEP 574); before that as bytes. Every dtype is kept. A tensor of a GPU\n"
             "travels through the host, and is put on the device of the same name where it is read, if there is one.\n"
             "Elements that end within a byte, as three of int4, are copied.");

static PyObject *reduce_ex(PyObject *self, PyObject *args) {
  return call_convert(self, "reduce_ex", args, NULL);
}

static CORE_PLAIN(open_reduce_ex, reduce_ex)

PyDoc_STRVAR(sizeof_doc,
             "__sizeof__($self, /)\n--\n\n"
             "The object and the elements that it shows on the host, whoever owns their memory; repeated ones once.");

static PyObject *size_of(PyObject *self, PyObject *ignored) {
  (void)ignored;
  if (core_look(self) < 0) {
    PyErr_Clear();
    return PyLong_FromSize_t(sizeof(core_tensor));
  }
  const DLTensor *view = core_view(self);
  int64_t nbytes = host_reads(core_handle(self)) ? mf_tensor_nbytes(core_handle(self)) : 0;
  for (int32_t i = 0; i < view->ndim; i++)
    if (view->strides[i] == 0 && view->shape[i] > 1) nbytes /= view->shape[i];
  core_look_end(self);
  return PyLong_FromLongLong((int64_t)sizeof(core_tensor) + nbytes);
}

PyDoc_STRVAR(mlx_doc,
             "__mlx_array__($self, /)\n--\n\n"
             "Returns an MLX array with a copy of the elements, in each dtype that MLX has. mlx.core.array(t) calls\n"
             "this.");

static PyObject *mlx_array(PyObject *self, PyObject *ignored) {
  (void)ignored;
  PyObject *module = PyImport_ImportModule("mlx.core");
  if (module == NULL) return NULL;
  PyObject *made = PyObject_CallMethod(module, "from_dlpack", "(O)", self);
  Py_DECREF(module);
  return made;
}

static CORE_PLAIN(open_mlx_array, mlx_array)

PyDoc_STRVAR(enter_doc, "__enter__($self, /)\n--\n\nThe tensor itself, which __exit__ closes.");
PyDoc_STRVAR(exit_doc, "__exit__($self, /, *exc)\n--\n\nCloses the tensor; an exception goes on.");

#define FASTCALL(function) ((PyCFunction)(void (*)(void))(function))

PyMethodDef core_tensor_methods[] = {
    {"permute_dims", FASTCALL(core_permute_dims), METH_FASTCALL, core_permute_doc},
    {"reshape", FASTCALL(core_reshape), METH_FASTCALL | METH_KEYWORDS, core_reshape_doc},
    {"broadcast_to", FASTCALL(core_broadcast_to), METH_FASTCALL, core_broadcast_doc},
    {"squeeze", FASTCALL(core_squeeze), METH_FASTCALL | METH_KEYWORDS, core_squeeze_doc},
    {"expand_dims", FASTCALL(core_expand_dims), METH_FASTCALL | METH_KEYWORDS, core_expand_doc},
    {"diagonal", FASTCALL(core_diagonal), METH_FASTCALL | METH_KEYWORDS, core_diagonal_doc},
    {"reinterpret", FASTCALL(core_reinterpret), METH_FASTCALL | METH_KEYWORDS, core_reinterpret_doc},
    {"as_readonly", core_as_readonly, METH_NOARGS, core_as_readonly_doc},
    {"fill", open_fill, METH_O, fill_doc},
    {"copy", FASTCALL(core_tensor_copy), METH_FASTCALL | METH_KEYWORDS, copy_doc},
    {"astype", FASTCALL(open_astype), METH_FASTCALL | METH_KEYWORDS, astype_doc},
    {"to", FASTCALL(core_tensor_to), METH_FASTCALL | METH_KEYWORDS, to_doc},
    {"acquire", FASTCALL(core_tensor_acquire), METH_FASTCALL | METH_KEYWORDS, acquire_doc},
    {"record", FASTCALL(core_tensor_record), METH_FASTCALL | METH_KEYWORDS, record_doc},
    {"tolist", core_nested_list, METH_NOARGS, tolist_doc},
    {"item", core_item, METH_NOARGS, item_doc},
    {"__complex__", core_number_complex, METH_NOARGS, complex_doc},
    {"__dlpack__", FASTCALL(core_dlpack), METH_FASTCALL | METH_KEYWORDS, dlpack_doc},
    {"__dlpack_device__", core_dlpack_device, METH_NOARGS, dlpack_device_doc},
    {"numpy", open_numpy, METH_NOARGS, numpy_doc},
    {"tobytes", open_tobytes, METH_NOARGS, tobytes_doc},
    {"contiguous", open_contiguous, METH_NOARGS, contiguous_doc},
    {"__sizeof__", size_of, METH_NOARGS, sizeof_doc},
    {"__arrow_c_schema__", core_arrow_schema, METH_NOARGS, core_arrow_schema_doc},
    {"__arrow_c_array__", FASTCALL(core_arrow_array), METH_VARARGS | METH_KEYWORDS, core_arrow_array_doc},
    {"__arrow_c_device_array__", FASTCALL(core_arrow_device_array), METH_VARARGS | METH_KEYWORDS,
     core_arrow_device_array_doc},
    {"__array__", FASTCALL(open_array), METH_VARARGS | METH_KEYWORDS, array_doc},
    {"close", core_close, METH_NOARGS, core_close_doc},
    {"__enter__", core_tensor_enter, METH_NOARGS, enter_doc},
    {"__exit__", core_tensor_exit, METH_VARARGS, exit_doc},
    {"__mlx_array__", open_mlx_array, METH_NOARGS, mlx_doc},
    {"__reduce_ex__", open_reduce_ex, METH_VARARGS, reduce_doc},
    {NULL, NULL, 0, NULL},
};
