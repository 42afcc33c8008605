/* stream.c: the type moonferry.Stream, and streams as arguments.
 *
 * Invariant: a Stream is a value: a GPU and a number, which never change; two with the same value are equal.
 * One that was made here gives its stream back when it dies; one around somebody else's object keeps that
 * alive. It must not know which stream is current, nor how work is ordered.
 *
 * Standard: array API 2025.12, __dlpack__, for the numbers; CUDA stream protocol 0, __cuda_stream__.
 */
#include "core.h"

#include <stddef.h>
#include <structmember.h>

static core_stream *as_stream(PyObject *obj) {
  return (core_stream *)obj;
}

static core_state *state_of(PyObject *stream) {
  return PyType_GetModuleState(Py_TYPE(stream));
}

PyObject *core_stream_new(core_state *state, DLDevice device, mf_stream stream) {
  core_stream *self = PyObject_GC_New(core_stream, state->stream_type);
  if (self == NULL) return NULL;
  self->device = device;
  self->stream = stream;
  self->owned = false;
  self->owner = NULL;
  self->weakrefs = NULL;
  PyObject_GC_Track(self);
  return (PyObject *)self;
}

static int stream_traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_stream(self)->owner);
  return 0;
}

static int stream_clear(PyObject *self) {
  Py_CLEAR(as_stream(self)->owner);
  return 0;
}

void core_stream_dealloc(PyObject *self) {
  core_stream *s = as_stream(self);
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  CORE_CLEAR_WEAKREFS(self, s->weakrefs);
  if (s->owned) mf_stream_destroy(&s->device, s->stream, NULL);
  Py_CLEAR(s->owner);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

/* The driver's handle, as __cuda_stream__ and exchange tables want it. On ROCm the default stream is NULL. */
int64_t core_stream_handle(DLDevice device, mf_stream stream) {
  return stream == MF_STREAM_DEFAULT && core_gpu_of(device).device_type == kDLROCM ? 0 : (int64_t)stream;
}

/* Makes a stream of a handle. Handle 0 is the legacy default stream, because the handle does not tell whether its
 * library was compiled for per-thread default streams. */
int core_stream_from_handle(DLDevice device, int64_t handle, mf_stream *out) {
  (void)device;
  *out = handle == 0 ? MF_STREAM_DEFAULT : (mf_stream)handle;
  if (handle >= 0) return 0;
  PyErr_Format(PyExc_ValueError, "a stream's handle must not be negative, but is %lld", (long long)handle);
  return -1;
}

/* None as MF_NUMBER_NONE, or an int; whatever does not fit is as wrong as the smallest number. */
int core_stream_number(PyObject *obj, int64_t *out) {
  int overflow = 0;
  *out = MF_NUMBER_NONE;
  if (obj == NULL || obj == Py_None) return 0;
  if (PyBool_Check(obj) || !PyIndex_Check(obj)) {
    PyErr_Format(PyExc_TypeError, "stream must be an int or None, not '%s'", Py_TYPE(obj)->tp_name);
    return -1;
  }
  PyObject *number = PyNumber_Index(obj);
  if (number == NULL) return -1;
  *out = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow != 0 || *out == MF_NUMBER_NONE) {
    PyErr_Format(PyExc_ValueError, "stream is %R, which is no handle of a stream", number);
    overflow = 1;
  }
  Py_DECREF(number);
  return overflow == 0 ? 0 : -1;
}

static int read_protocol(PyObject *obj, PyObject *pair, int64_t *handle) {
  if (PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2 && PyLong_Check(PyTuple_GET_ITEM(pair, 0)) &&
      PyLong_Check(PyTuple_GET_ITEM(pair, 1))) {
    int beyond, overflow;
    const long version = PyLong_AsLongAndOverflow(PyTuple_GET_ITEM(pair, 0), &beyond);
    *handle = PyLong_AsLongLongAndOverflow(PyTuple_GET_ITEM(pair, 1), &overflow);
    if (version == 0 && overflow == 0) return 0;
  }
  PyErr_Format(PyExc_TypeError, "__cuda_stream__ of '%s' must give (0, handle), not %R", Py_TYPE(obj)->tp_name, pair);
  return -1;
}

/* What __cuda_stream__ of ${obj} gives: 1 with the handle, 0 if it has none, or -1. Some objects have it as an
 * attribute. */
int core_stream_handle_of(core_state *state, PyObject *obj, int64_t *out) {
  PyObject *pair = PyObject_GetAttr(obj, state->names[NAME_CUDA_STREAM]);
  if (pair == NULL) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    PyErr_Clear();
    return 0;
  }
  if (PyCallable_Check(pair)) Py_SETREF(pair, PyObject_CallNoArgs(pair));
  if (pair == NULL) return -1;
  const int rc = read_protocol(obj, pair, out);
  Py_DECREF(pair);
  return rc < 0 ? -1 : 1;
}

static int refuse_device(PyObject *obj, const DLDevice *device) {
  PyErr_Format(PyExc_ValueError, "stream is %R, but one of %s is needed", obj, core_name_of(*device).text);
  return -1;
}

/* Pinned and managed memory may be used on the streams of any GPU; a name then has to say of which. */
static int from_stream(PyObject *obj, const DLDevice *device, mf_stream *out) {
  const core_stream *s = as_stream(obj);
  const DLDevice gpu = core_gpu_of(*device);
  const bool named = s->stream == MF_STREAM_DEFAULT || s->stream == MF_STREAM_PER_THREAD;
  const bool anywhere = core_host_reads(*device);
  *out = named && anywhere ? MF_STREAM_OF(s->device.device_id, s->stream) : s->stream;
  if (s->device.device_type != gpu.device_type) return refuse_device(obj, device);
  return s->device.device_id == gpu.device_id || anywhere ? 0 : refuse_device(obj, device);
}

static int from_number(core_state *state, PyObject *obj, const DLDevice *device, mf_stream *out) {
  int64_t number;
  mf_error err;
  if (core_stream_number(obj, &number) < 0) return -1;
  return mf_stream_from_number(device, number, out, &err) == MF_OK ? 0 : core_raise(state, &err);
}

/* None is the current stream; a Stream; what has __cuda_stream__; a number as __dlpack__ takes it. */
int core_stream_argument(core_state *state, PyObject *obj, const DLDevice *device, mf_stream *out) {
  int64_t handle;
  *out = MF_STREAM_CURRENT;
  if (obj == NULL || obj == Py_None) return 0;
  if (core_is_stream(obj)) return from_stream(obj, device, out);
  if (PyLong_Check(obj)) return from_number(state, obj, device, out);
  const int found = core_stream_handle_of(state, obj, &handle);
  if (found < 0) return -1;
  if (found > 0) return core_stream_from_handle(*device, handle, out);
  if (PyIndex_Check(obj)) return from_number(state, obj, device, out);
  PyErr_Format(PyExc_TypeError, "stream must be a Stream, an object with __cuda_stream__, an int or None, not '%s'",
               Py_TYPE(obj)->tp_name);
  return -1;
}

static PyObject *stream_create(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"device", NULL};
  core_state *state = PyType_GetModuleState(type);
  PyObject *obj;
  DLDevice device;
  mf_stream made;
  mf_error err;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Stream", keywords, &obj)) return NULL;
  if (core_gpu(state, obj, &device) < 0) return NULL;
  if (mf_stream_create(&device, &made, &err) != MF_OK) {
    core_raise(state, &err);
    return NULL;
  }
  PyObject *self = core_stream_new(state, device, made);
  if (self == NULL)
    mf_stream_destroy(&device, made, NULL);
  else
    as_stream(self)->owned = true;
  return self;
}

static PyObject *stream_of(core_state *state, DLDevice device, mf_stream stream) {
  mf_error err;
  if (mf_stream_check(&device, stream, &err) == MF_OK) return core_stream_new(state, device, stream);
  core_raise(state, &err);
  return NULL;
}

static PyObject *named(PyObject *type, PyObject *obj, mf_stream stream) {
  core_state *state = PyType_GetModuleState((PyTypeObject *)type);
  DLDevice device;
  return core_gpu(state, obj, &device) < 0 ? NULL : stream_of(state, device, stream);
}

PyDoc_STRVAR(default_doc,
             "default($type, device, /)\n--\n\n"
             "Returns the legacy default stream of a device, which is the current one at first.");

static PyObject *stream_default(PyObject *type, PyObject *device) {
  return named(type, device, MF_STREAM_DEFAULT);
}

PyDoc_STRVAR(per_thread_doc,
             "per_thread($type, device, /)\n--\n\n"
             "Returns the per-thread default stream of a device: each thread that uses the value uses its own\n"
             "stream.");

static PyObject *stream_per_thread(PyObject *type, PyObject *device) {
  return named(type, device, MF_STREAM_PER_THREAD);
}

/* Finds the first GPU to which the living stream ${stream} belongs. */
static int find_device(PyObject *obj, mf_stream stream, DLDevice *out) {
  static const int32_t kinds[] = {kDLCUDA, kDLROCM};
  const bool is_name = stream == MF_STREAM_DEFAULT || stream == MF_STREAM_PER_THREAD;
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    int32_t count = 0;
    mf_device_count(kinds[k], &count, NULL);
    if (is_name && count > 1) break;
    for (int32_t i = 0; i < count; i++) {
      *out = (DLDevice){.device_type = (DLDeviceType)kinds[k], .device_id = i};
      if (mf_stream_check(out, stream, NULL) == MF_OK) return 0;
    }
    if (count > 0) break;
  }
  PyErr_Format(PyExc_ValueError,
               "which device %R is a stream of cannot be told; name it, as in Stream.wrap(x, \"cuda:0\")", obj);
  return -1;
}

static PyObject *wrap_handle(core_state *state, PyObject *obj, PyObject *where, int64_t handle) {
  DLDevice device = {.device_type = kDLCUDA, .device_id = 0};
  mf_stream stream;
  if (where != NULL && where != Py_None && core_gpu(state, where, &device) < 0) return NULL;
  if (core_stream_from_handle(device, handle, &stream) < 0) return NULL;
  if ((where == NULL || where == Py_None) && find_device(obj, stream, &device) < 0) return NULL;
  return stream_of(state, device, stream);
}

static PyObject *wrap_number(core_state *state, PyObject *obj, PyObject *where) {
  DLDevice device = {.device_type = kDLCUDA, .device_id = 0};
  mf_stream stream;
  int64_t number;
  if (core_stream_number(obj, &number) < 0) return NULL;
  if (where == NULL || where == Py_None) {
    if (number > 0) return wrap_handle(state, obj, where, number);
    PyErr_Format(PyExc_ValueError, "stream is %lld, which is no handle of a stream", (long long)number);
    return NULL;
  }
  if (core_gpu(state, where, &device) < 0 || from_number(state, obj, &device, &stream) < 0) return NULL;
  if (stream != MF_STREAM_NO_ORDER) return stream_of(state, device, stream);
  PyErr_SetString(PyExc_ValueError, "stream is -1, which is no stream");
  return NULL;
}

PyDoc_STRVAR(wrap_doc,
             "wrap($type, stream, /, device=None)\n--\n\n"
             "Returns a Stream for a stream that another library owns. That must live until the memory that the\n"
             "stream used is released.\n"
             "\n"
             "stream: an object with __cuda_stream__ (of cuda.core, CuPy ...), which is kept alive, or a number: on\n"
             "CUDA 1 (legacy default), 2 (per-thread) or a handle; on ROCm 0 (default) or a handle.\n"
             "device: None asks the driver for the stream's device.\n"
             "Raises TypeError for any other object, ValueError if stream is not a living stream of the device.");

static PyObject *stream_wrap(PyObject *type, PyObject *args, PyObject *kwargs) {
  static char *keywords[] = {"", "device", NULL};
  core_state *state = PyType_GetModuleState((PyTypeObject *)type);
  PyObject *obj, *where = NULL;
  int64_t handle;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:wrap", keywords, &obj, &where)) return NULL;
  if (PyLong_Check(obj)) return wrap_number(state, obj, where);
  const int found = core_stream_handle_of(state, obj, &handle);
  if (found < 0) return NULL;
  if (found == 0) {
    if (PyIndex_Check(obj)) return wrap_number(state, obj, where);
    PyErr_Format(PyExc_TypeError, "Stream.wrap() takes an object with __cuda_stream__ or an int, not '%s'",
                 Py_TYPE(obj)->tp_name);
    return NULL;
  }
  PyObject *self = wrap_handle(state, obj, where, handle);
  if (self == NULL) return NULL;
  Py_INCREF(obj);
  as_stream(self)->owner = obj;
  return self;
}

PyDoc_STRVAR(synchronize_doc,
             "synchronize($self, /)\n--\n\n"
             "Waits, without the GIL, until all work queued on the stream is done, and releases the memory that\n"
             "waited for it.");

static PyObject *stream_synchronize(PyObject *self, PyObject *ignored) {
  (void)ignored;
  const core_stream *s = as_stream(self);
  mf_error err;
  PyThreadState *saved = PyEval_SaveThread();
  const int status = mf_stream_synchronize(&s->device, s->stream, &err);
  PyEval_RestoreThread(saved);
  if (status == MF_OK) Py_RETURN_NONE;
  core_raise(state_of(self), &err);
  return NULL;
}

PyDoc_STRVAR(query_doc,
             "query($self, /)\n--\n\n"
             "Returns whether all work queued on the stream is done. Does not wait.");

static PyObject *stream_query(PyObject *self, PyObject *ignored) {
  (void)ignored;
  const core_stream *s = as_stream(self);
  int32_t done;
  mf_error err;
  if (mf_stream_query(&s->device, s->stream, &done, &err) == MF_OK) return PyBool_FromLong(done);
  core_raise(state_of(self), &err);
  return NULL;
}

PyDoc_STRVAR(wait_doc,
             "wait($self, other, /)\n--\n\n"
             "Makes work that is queued on this stream from now on wait for the work that was queued on the other\n"
             "one until now. The host does not wait.\n"
             "\n"
             "other: a Stream of any device of the same driver; or an object with __cuda_stream__ or a number, for\n"
             "a stream of this stream's device.\n"
             "Raises RuntimeError if only one of the two is being captured; ValueError; TypeError.");

static PyObject *stream_wait(PyObject *self, PyObject *other) {
  const core_stream *s = as_stream(self);
  DLDevice device = s->device;
  mf_stream stream;
  mf_error err;
  if (core_is_stream(other)) {
    device = as_stream(other)->device;
    stream = as_stream(other)->stream;
  } else if (other == Py_None) {
    PyErr_SetString(PyExc_TypeError, "wait() takes a stream, not None");
    return NULL;
  } else if (core_stream_argument(state_of(self), other, &device, &stream) < 0) {
    return NULL;
  }
  if (mf_stream_wait(&s->device, s->stream, &device, stream, &err) == MF_OK) Py_RETURN_NONE;
  core_raise(state_of(self), &err);
  return NULL;
}

PyDoc_STRVAR(cuda_stream_doc,
             "__cuda_stream__($self, /)\n--\n\n"
             "Returns (0, handle), by which other libraries take the stream (CUDA stream protocol, version 0).");

static PyObject *stream_protocol(PyObject *self, PyObject *ignored) {
  (void)ignored;
  const core_stream *s = as_stream(self);
  return Py_BuildValue("iL", 0, (long long)core_stream_handle(s->device, s->stream));
}

PyDoc_STRVAR(enter_doc,
             "__enter__($self, /)\n--\n\n"
             "Makes the stream this thread's current one of its device, until the with block ends.");

PyDoc_STRVAR(exit_doc,
             "__exit__($self, /, *exc)\n--\n\n"
             "Makes the stream current again that was before.");

static PyObject *get_device(PyObject *self, void *closure) {
  (void)closure;
  return core_device_object(state_of(self), as_stream(self)->device);
}

static PyObject *get_handle(PyObject *self, void *closure) {
  (void)closure;
  return PyLong_FromLongLong((long long)core_stream_handle(as_stream(self)->device, as_stream(self)->stream));
}

static PyObject *stream_repr(PyObject *self) {
  const core_stream *s = as_stream(self);
  const core_device_name name = core_name_of(s->device);
  if (s->stream == MF_STREAM_DEFAULT) return PyUnicode_FromFormat("moonferry.Stream.default('%s')", name.text);
  if (s->stream == MF_STREAM_PER_THREAD) return PyUnicode_FromFormat("moonferry.Stream.per_thread('%s')", name.text);
  return PyUnicode_FromFormat("moonferry.Stream.wrap(%lld, '%s')", (long long)s->stream, name.text);
}

static Py_hash_t stream_hash(PyObject *self) {
  const core_stream *s = as_stream(self);
  const uint64_t device = ((uint64_t)s->device.device_id << 8) + (uint64_t)s->device.device_type;
  return (Py_hash_t)((((uint64_t)s->stream ^ (device << 48)) * 0x9E3779B97F4A7C15U) >> 1); /* never -1 */
}

static PyObject *stream_compare(PyObject *self, PyObject *other, int op) {
  if (!core_is_stream(other) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  const core_stream *a = as_stream(self), *b = as_stream(other);
  const bool same = a->stream == b->stream && core_same_device(a->device, b->device);
  return PyBool_FromLong(same == (op == Py_EQ));
}

#define WITH_KEYWORDS(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {
    {"default", stream_default, METH_O | METH_CLASS, default_doc},
    {"per_thread", stream_per_thread, METH_O | METH_CLASS, per_thread_doc},
    {"wrap", WITH_KEYWORDS(stream_wrap), METH_VARARGS | METH_KEYWORDS | METH_CLASS, wrap_doc},
    {"synchronize", stream_synchronize, METH_NOARGS, synchronize_doc},
    {"query", stream_query, METH_NOARGS, query_doc},
    {"wait", stream_wait, METH_O, wait_doc},
    {"__cuda_stream__", stream_protocol, METH_NOARGS, cuda_stream_doc},
    {"__enter__", core_stream_enter, METH_NOARGS, enter_doc},
    {"__exit__", core_stream_exit, METH_VARARGS, exit_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"device", get_device, NULL, "Device: the GPU that the stream belongs to.", NULL},
    {"handle", get_handle, NULL,
     "int: the driver's handle. The legacy default stream is 1 on CUDA and 0 on ROCm; the per-thread one is 2.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(core_stream, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(doc,
             "Stream(device)\n--\n\n"
             "A queue of work on a GPU, which runs in order. Stream(\"cuda:0\") makes a new one, which does not wait\n"
             "for the legacy default stream.\n"
             "\n"
             "In a with statement it is this thread's current stream of its device: tensors are made, copied,\n"
             "imported and exported on it. When the object dies, the stream is released; its queued work goes on,\n"
             "and memory that the work uses may be released later. A Stream is immutable; two objects for the same\n"
             "stream are equal.\n"
             "Raises ValueError if the device does not exist or has no streams, and DriverError.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)doc},
    {Py_tp_new, stream_create},
    {Py_tp_dealloc, core_stream_dealloc},
    {Py_tp_traverse, stream_traverse},
    {Py_tp_clear, stream_clear},
    {Py_tp_repr, stream_repr},
    {Py_tp_hash, stream_hash},
    {Py_tp_richcompare, stream_compare},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_members, members},
    {0, NULL},
};

PyType_Spec core_stream_spec = {
    .name = "moonferry.Stream",
    .basicsize = sizeof(core_stream),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};
