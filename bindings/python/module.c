/* module.c: the extension module moonferry._core: its state, its functions, its start.
 *
 * Invariant: all state is the module's; the one static variable says which module the interpreter has now,
 * for functions that other libraries call and that get no module. It must not know what the functions do.
 *
 * The main interpreter only: memory that Python objects own is given back through PyGILState, which knows no
 * other interpreter.
 */
#include "core.h"

#include <string.h>

static struct PyModuleDef definition;
core_state *core_now;

core_state *core_state_current(void) {
  if (core_now == NULL) PyErr_SetString(PyExc_RuntimeError, "moonferry is not imported");
  return core_now;
}

PyDoc_STRVAR(
    from_dlpack_doc,
    "from_dlpack($module, x, /, *, device=None, copy=None)\n--\n\n"
    "Returns a Tensor over the memory of x: an object with __dlpack__ or __dlpack_c_exchange_api__, or a DLPack\n"
    "capsule.\n"
    "\n"
    "Shape, strides, dtype and the read-only flag are kept exactly. An object that has only\n"
    "__cuda_array_interface__ is passed to from_cuda_array. The producer's deleter runs once, on any thread, after\n"
    "the last reference to the memory is gone and the work queued on it is done.\n"
    "\n"
    "The producer of GPU memory is told this thread's current stream of that GPU, and the memory may be used on it\n"
    "at once. A capsule must have been made for that stream. The host waits only if device is the cpu.\n"
    "\n"
    "device: None leaves the memory where it is. Otherwise the producer is asked to put it there; if it does not,\n"
    "Moonferry copies it.\n"
    "copy: True always copies; False raises ExchangeError if a copy is needed; None copies only if needed.\n"
    "Raises ExchangeError (a BufferError) if x cannot be exchanged or has masked elements, and leaves a refused\n"
    "capsule unconsumed; AttributeError if x has no __dlpack__; and whatever the producer raises.\n"
    "Standard: array API 2025.12, from_dlpack.");

PyDoc_STRVAR(into_doc,
             "into($module, cls, t, /)\n--\n\n"
             "Returns the tensor t as an array of another library, which shares the memory and keeps it alive.\n"
             "\n"
             "Memory of a GPU may be used at once on the library's current stream. For pinned memory the host waits\n"
             "first. If t is read-only and the library has no read-only arrays, a UserWarning says so.\n"
             "\n"
             "cls: the library's array type, such as torch.Tensor. If it has a C exchange table (DLPack 1.3), that\n"
             "is used; otherwise the library's from_dlpack, as for numpy.ndarray and jax.Array.\n"
             "Raises AttributeError if cls has no table and its library no from_dlpack; ExchangeError for a layout\n"
             "that is known to crash the library; and whatever the library raises.");

PyDoc_STRVAR(
    frombuffer_doc,
    "frombuffer($module, /, buffer, dtype='uint8', count=-1, offset=0)\n--\n\n"
    "Returns a Tensor with one axis over the bytes of an object with the buffer protocol (PEP 3118). The buffer is\n"
    "held until nothing refers to the memory. The tensor is read-only if the buffer is.\n"
    "\n"
    "count: the number of elements; -1 takes all that fit.\n"
    "offset: where the first element begins, in bytes.\n"
    "Raises ValueError, TypeError or BufferError.");

PyDoc_STRVAR(from_buffer_doc,
             "_from_buffer($module, obj, may_copy, /)\n--\n\n"
             "A Tensor over a buffer as its format, shape and strides say, or a copy of one where no Tensor can hold\n"
             "them and may_copy is True.");

PyDoc_STRVAR(arrow_taken_doc,
             "_arrow_taken($module, capsule, kind, /)\n--\n\n"
             "What a capsule of Arrow's has, moved into a new one that releases it; None if it was consumed\n"
             "before. Of None, room for such a struct. kind: 0 is a schema, 1 an array, 2 a stream.");

PyDoc_STRVAR(wrap_pointer_doc,
             "_wrap_pointer($module, address, shape, strides, dtype, readonly, owner, device=None, /)\n--\n\n"
             "A Tensor over memory that owner keeps alive. strides: in elements, or None.");

PyDoc_STRVAR(raw_bytes_doc,
             "_raw_bytes($module, t, /)\n--\n\n"
             "The memory of a contiguous tensor as uint8 with one axis, whatever its dtype.");

PyDoc_STRVAR(from_any_doc,
             "_from_any($module, x, /, *, device=None, copy=None)\n--\n\n"
             "from_dlpack(x) of what has DLPack, else asarray(x).");

PyDoc_STRVAR(from_raw_doc,
             "_from_raw($module, raw, shape, dtype, padded, /)\n--\n\n"
             "A tensor over the memory of one made by _raw_bytes.");

PyDoc_STRVAR(current_stream_doc,
             "current_stream($module, device, /)\n--\n\n"
             "Returns this thread's current Stream of a device: the one of the innermost `with stream:` block, else\n"
             "the legacy default stream.\n"
             "\n"
             "Raises ValueError if there is no such device.");

PyDoc_STRVAR(from_nested_doc,
             "_from_nested($module, obj, dtype, /)\n--\n\n"
             "A new tensor of the numbers in nested sequences; dtype None is inferred.");

PyDoc_STRVAR(tensor_lacks_doc,
             "_tensor_lacks($module, names, /)\n--\n\n"
             "An attribute that a Tensor lacks is looked up in the class names, which dir() does not list.");

PyDoc_STRVAR(gl_fence_doc,
             "_gl_fence($module, gl, /)\n--\n\n"
             "A capsule with a fence behind what the context at an address (mf_gl) was told until now. It drops the\n"
             "fence unless somebody takes it.");

PyDoc_STRVAR(tensor_fence_doc,
             "_tensor_fence($module, t, fence, write, /)\n--\n\n"
             "The memory of t is in use until the fence in the capsule is reached, which reads it, or also writes it.");

PyDoc_STRVAR(tensor_at_doc,
             "_tensor_at($module, handle, /)\n--\n\n"
             "A new Tensor of the mf_tensor at an address.");

PyDoc_STRVAR(ledger_doc,
             "_ledger($module, /)\n--\n\n"
             "What is alive in the process: (tensors, storages, bytes, blocks).");

static PyObject *ledger(PyObject *module, PyObject *ignored) {
  (void)module;
  (void)ignored;
  mf_ledger now;
  mf_ledger_read(&now);
  return Py_BuildValue("LLLL", (long long)now.tensors, (long long)now.storages, (long long)now.bytes,
                       (long long)now.blocks);
}

PyDoc_STRVAR(fault_arm_doc,
             "_fault_arm($module, nth, sticky=False, /)\n--\n\n"
             "For tests: makes the nth allocation of the runtime on this thread fail (0 is the next one), with sticky\n"
             "every later one too; a negative nth disarms.");

static PyObject *fault_arm(PyObject *module, PyObject *args) {
  (void)module;
  long long nth;
  int sticky = 0;
  if (!PyArg_ParseTuple(args, "L|p:_fault_arm", &nth, &sticky)) return NULL;
  mf_fault_arm(nth, sticky);
  Py_RETURN_NONE;
}

PyDoc_STRVAR(fault_hits_doc,
             "_fault_hits($module, /)\n--\n\n"
             "How many allocations _fault_arm has made fail on this thread since it was armed.");

static PyObject *fault_hits(PyObject *module, PyObject *ignored) {
  (void)module;
  (void)ignored;
  return PyLong_FromLongLong(mf_fault_hits());
}

#define FASTCALL(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef functions[] = {
    {"_from_any", FASTCALL(core_from_any), METH_FASTCALL | METH_KEYWORDS, from_any_doc},
    {"from_dlpack", FASTCALL(core_from_dlpack), METH_FASTCALL | METH_KEYWORDS, from_dlpack_doc},
    {"into", FASTCALL(core_into), METH_FASTCALL, into_doc},
    {"frombuffer", FASTCALL(core_frombuffer), METH_FASTCALL | METH_KEYWORDS, frombuffer_doc},
    {"_from_buffer", FASTCALL(core_from_buffer), METH_FASTCALL, from_buffer_doc},
    {"_wrap_pointer", FASTCALL(core_wrap_pointer), METH_FASTCALL, wrap_pointer_doc},
    {"_arrow_taken", FASTCALL(core_arrow_taken), METH_FASTCALL, arrow_taken_doc},
    {"_raw_bytes", core_raw_bytes, METH_O, raw_bytes_doc},
    {"_from_raw", FASTCALL(core_from_raw), METH_FASTCALL, from_raw_doc},
    {"_from_nested", FASTCALL(core_from_nested), METH_FASTCALL, from_nested_doc},
    {"current_stream", core_current_stream, METH_O, current_stream_doc},
    {"_gl_fence", core_gl_fence, METH_O, gl_fence_doc},
    {"_tensor_fence", FASTCALL(core_tensor_fence), METH_FASTCALL, tensor_fence_doc},
    {"_tensor_at", core_tensor_at, METH_O, tensor_at_doc},
    {"_tensor_lacks", core_tensor_lacks, METH_O, tensor_lacks_doc},
    {"_ledger", ledger, METH_NOARGS, ledger_doc},
    {"_fault_arm", fault_arm, METH_VARARGS, fault_arm_doc},
    {"_fault_hits", fault_hits, METH_NOARGS, fault_hits_doc},
    {NULL, NULL, 0, NULL},
};

static int check_build(void) {
  if (strcmp(mf_build_id(), MF_BUILD_ID) == 0) return 0;
  PyErr_Format(PyExc_ImportError,
               "moonferry._core was built for libmoonferry %s, but this process has "
               "loaded %s; two builds cannot share a process",
               MF_BUILD_ID, mf_build_id());
  return -1;
}

static int intern_names(core_state *state) {
  static const char *const keywords[KW_NUMBER] = {"stream", "max_version", "dl_device",  "copy",   "device",
                                                  "shape",  "dtype",       "fill_value", "buffer", "count",
                                                  "offset", "axis",        "axis1",      "axis2",  "write",
                                                  "progress", "pages",       "obj",        "source"};
  static const char *const names[NAME_NUMBER] = {"__dlpack__",
                                                 "__dlpack_device__",
                                                 "__dlpack_c_exchange_api__",
                                                 "requires_grad",
                                                 "is_neg",
                                                 "is_conj",
                                                 "item",
                                                 "__cuda_stream__",
                                                 "__cuda_array_interface__",
                                                 "call",
                                                 "code",
                                                 "moonferry.producers",
                                                 "moonferry.streams"};
  for (int i = 0; i < KW_NUMBER; i++)
    if ((state->kw[i] = PyUnicode_InternFromString(keywords[i])) == NULL) return -1;
  for (int i = 0; i < NAME_NUMBER; i++)
    if ((state->names[i] = PyUnicode_InternFromString(names[i])) == NULL) return -1;
  return 0;
}

/* ("max_version", "dl_device", "copy", "stream"), as far as ${what} has them. */
static PyObject *keyword_names(const core_state *state, int what) {
  static const int flags[3] = {ASK_DL_DEVICE, ASK_COPY, ASK_STREAM};
  static const int keywords[3] = {KW_DL_DEVICE, KW_COPY, KW_STREAM};
  PyObject *names[4] = {state->kw[KW_MAX_VERSION]};
  Py_ssize_t n = 1;
  for (int i = 0; i < 3; i++)
    if ((what & flags[i]) != 0) names[n++] = state->kw[keywords[i]];
  PyObject *tuple = PyTuple_New(n);
  for (Py_ssize_t i = 0; tuple != NULL && i < n; i++) {
    Py_INCREF(names[i]);
    PyTuple_SET_ITEM(tuple, i, names[i]);
  }
  return tuple;
}

static int make_constants(core_state *state) {
  state->dtypes = PyDict_New();
  state->devices = PyDict_New();
  state->max_version = Py_BuildValue("ii", DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
  state->cpu_pair = Py_BuildValue("ii", (int)kDLCPU, 0);
  state->stream_kw = PyTuple_Pack(1, state->kw[KW_STREAM]);
  for (int i = 0; i < ASK_KINDS; i++)
    if ((state->dlpack_kw[i] = keyword_names(state, i)) == NULL) return -1;
  if (state->dtypes == NULL || state->devices == NULL || state->stream_kw == NULL) return -1;
  return state->max_version == NULL || state->cpu_pair == NULL ? -1 : 0;
}

static int add_exception(PyObject *module, PyObject **out, const char *name, const char *doc, PyObject *bases) {
  if (bases == NULL) return -1;
  *out = PyErr_NewExceptionWithDoc(name, doc, bases, NULL);
  Py_DECREF(bases);
  if (*out == NULL) return -1;
  Py_INCREF(*out);
  if (PyModule_AddObject(module, strchr(name, '.') + 1, *out) == 0) return 0;
  Py_DECREF(*out);
  return -1;
}

static int make_exceptions(core_state *state, PyObject *module) {
  if (add_exception(module, &state->exchange_error, "moonferry.ExchangeError",
                    "An array cannot be exchanged. It is a BufferError, as the array API requires, and a\n"
                    "ValueError, as older versions of the API require.",
                    PyTuple_Pack(2, PyExc_BufferError, PyExc_ValueError)) < 0)
    return -1;
  return add_exception(module, &state->driver_error, "moonferry.DriverError",
                       "A call of a GPU's driver failed. `call` is the name of the call, `code` the driver's\n"
                       "number.",
                       PyTuple_Pack(1, PyExc_RuntimeError));
}

static int make_types(core_state *state, PyObject *module) {
  state->tensor_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &core_tensor_spec, NULL);
  if (state->tensor_type == NULL || core_table_publish(state->tensor_type) < 0) return -1;
  if (PyModule_AddType(module, state->tensor_type) < 0) return -1;
  state->stream_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &core_stream_spec, NULL);
  if (state->stream_type == NULL || PyModule_AddType(module, state->stream_type) < 0) return -1;
  PyTypeObject *ring = (PyTypeObject *)PyType_FromModuleAndSpec(module, &core_ring_spec, NULL);
  const int rc = ring == NULL ? -1 : PyModule_AddType(module, ring);
  Py_XDECREF(ring);
  return rc;
}

static int add_capi(PyObject *module) {
  PyObject *capsule = core_capi();
  if (capsule == NULL) return -1;
  if (PyModule_AddObject(module, "_C_API", capsule) == 0) return 0;
  Py_DECREF(capsule);
  return -1;
}

/* Keeps the module for as long as the interpreter, because other libraries keep the exchange table. */
static int make_current(core_state *state, PyObject *module) {
  PyObject *dict = PyInterpreterState_GetDict(PyInterpreterState_Get());
  if (dict == NULL) {
    PyErr_SetString(PyExc_ImportError, "the interpreter has no dictionary");
    return -1;
  }
  if (PyDict_SetItemString(dict, "moonferry._core", module) < 0) return -1;
  core_now = state;
  return 0;
}

static int module_exec(PyObject *module) {
  core_state *state = core_state_of(module);
  if (check_build() < 0) return -1;
  if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
    PyErr_SetString(PyExc_ImportError, "moonferry works in the main interpreter only");
    return -1;
  }
  if (intern_names(state) < 0 || make_constants(state) < 0) return -1;
  if (make_exceptions(state, module) < 0 || make_types(state, module) < 0) return -1;
  if (PyModule_AddFunctions(module, core_create_functions) < 0) return -1;
  if (PyModule_AddFunctions(module, core_device_functions) < 0) return -1;
  if (PyModule_AddStringConstant(module, "build_id", MF_BUILD_ID) < 0) return -1;
  if (PyModule_AddStringConstant(module, "version", mf_version_string()) < 0) return -1;
  if (add_capi(module) < 0) return -1;
  return make_current(state, module);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
  core_state *state = core_state_of(module);
  Py_VISIT(state->tensor_type);
  Py_VISIT(state->stream_type);
  Py_VISIT(state->exchange_error);
  Py_VISIT(state->driver_error);
  Py_VISIT(state->dtypes);
  Py_VISIT(state->devices);
  Py_VISIT(core_once_get(&state->dtype_resolve));
  Py_VISIT(core_once_get(&state->cpu));
  return core_producers_traverse(state, visit, arg);
}

static int module_clear(PyObject *module) {
  core_state *state = core_state_of(module);
  if (core_now == state) core_now = NULL;
  Py_CLEAR(state->tensor_type);
  Py_CLEAR(state->stream_type);
  Py_CLEAR(state->exchange_error);
  Py_CLEAR(state->driver_error);
  Py_CLEAR(state->dtypes);
  Py_CLEAR(state->devices);
  Py_XDECREF(atomic_exchange(&state->dtype_resolve, NULL));
  Py_XDECREF(atomic_exchange(&state->cpu, NULL));
  Py_CLEAR(state->max_version);
  Py_CLEAR(state->cpu_pair);
  Py_XDECREF(atomic_exchange(&state->good_version, NULL));
  Py_XDECREF(core_names_of(atomic_exchange(&state->good_names, 0)));
  Py_CLEAR(state->stream_kw);
  for (int i = 0; i < ASK_KINDS; i++) Py_CLEAR(state->dlpack_kw[i]);
  for (int i = 0; i < KW_NUMBER; i++) Py_CLEAR(state->kw[i]);
  for (int i = 0; i < NAME_NUMBER; i++) Py_CLEAR(state->names[i]);
  core_producers_clear(state);
#ifndef Py_GIL_DISABLED
  while (state->nspares > 0) PyObject_Free(state->spares[--state->nspares]);
#endif
  return 0;
}

static void module_free(void *module) {
  module_clear(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "moonferry._core",
    .m_doc = "The C part of moonferry: Tensor and its exchange with other libraries.",
    .m_size = sizeof(core_state),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void) {
  return PyModuleDef_Init(&definition);
}
