/* device.c: devices as Python names them, and the functions of the module that concern a whole device.
 *
 * Invariant: a device is read by one function, whatever form it was given in, and is one Device object going
 * out. It must not know about tensors or streams.
 */
#include "core.h"

#include <string.h>

int core_device_pair(PyObject *pair, DLDevice *out) {
  int64_t type, id;
  if (core_int64(PyTuple_GET_ITEM(pair, 0), "a device type", &type) < 0) return -1;
  if (core_int64(PyTuple_GET_ITEM(pair, 1), "a device id", &id) < 0) return -1;
  if (type != (int32_t)type || id != (int32_t)id) {
    PyErr_Format(PyExc_ValueError, "device is %R; two integers of 32 bits expected, DLPack's of a device", pair);
    return -1;
  }
  *out = (DLDevice){.device_type = (DLDeviceType)type, .device_id = (int32_t)id};
  return 0;
}

/* A dtype is what to() of other libraries takes, too. Its text ends in its name: torch.float64, numpy.int8'>. */
static int refuse_device(core_state *state, const char *text, const mf_error *err) {
  const char *dot = strrchr(text, '.'), *name = dot != NULL ? dot + 1 : text;
  char alone[64];
  DLDataType dtype;
  const int length = (int)strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
  snprintf(alone, sizeof alone, "%.*s", length, name);
  if (mf_dtype_parse(alone, &dtype, NULL) != MF_OK) return core_raise(state, err);
  PyErr_Format(PyExc_ValueError, "device is '%s', a dtype; astype converts the elements", text);
  return -1;
}

static int parse_device(core_state *state, PyObject *name, DLDevice *out) {
  mf_error err;
  Py_ssize_t length;
  const char *text = PyUnicode_AsUTF8AndSize(name, &length);
  if (text == NULL) return -1;
  if ((size_t)length != strlen(text)) {
    PyErr_Format(PyExc_ValueError, "device is %R, which contains a null character", name);
    return -1;
  }
  return mf_device_parse(text, out, &err) == MF_OK ? 0 : refuse_device(state, text, &err);
}

/* None (the CPU), a name, a pair of numbers, or an object whose str() is a name (torch.device). */
/* Kept out of line, so that whoever names no device does not pay for this one's stack frame. */
static __attribute__((noinline)) int named_device(core_state *state, PyObject *obj, DLDevice *out) {
  if (PyTuple_Check(obj) && PyTuple_GET_SIZE(obj) == 2 && !PyUnicode_Check(PyTuple_GET_ITEM(obj, 0)))
    return core_device_pair(obj, out);
  if (PyLong_Check(obj) || PyFloat_Check(obj) || PyTuple_Check(obj)) {
    PyErr_Format(PyExc_TypeError,
                 "device must be a name such as 'cuda:0', or DLPack's pair of numbers (type, id), not %R", obj);
    return -1;
  }
  /* Of a str of any class its text, which is not what str() says of a member of an enumeration. */
  PyObject *name = PyUnicode_Check(obj) ? PyUnicode_FromObject(obj) : PyObject_Str(obj);
  const int rc = name == NULL ? -1 : parse_device(state, name, out);
  Py_XDECREF(name);
  return rc;
}

int core_device(core_state *state, PyObject *obj, DLDevice *out) {
  *out = (DLDevice){.device_type = kDLCPU, .device_id = 0};
  return obj == NULL || obj == Py_None || obj == core_once_get(&state->cpu) ? 0 : named_device(state, obj, out);
}

core_device_name core_name_of(DLDevice device) {
  core_device_name name = {""};
  mf_device_format(&device, name.text, sizeof name.text, NULL);
  return name;
}

static PyObject *make_device(DLDevice device) {
  PyObject *module = PyImport_ImportModule("moonferry._dtype");
  if (module == NULL) return NULL;
  PyObject *made = PyObject_CallMethod(module, "Device", "s", core_name_of(device).text);
  Py_DECREF(module);
  return made;
}

/* The Device of ${device}: the same object every time. */
PyObject *core_device_object(core_state *state, DLDevice device) {
  const bool cpu = core_is_cpu(device);
  PyObject *usual = cpu ? core_once_get(&state->cpu) : NULL;
  if (usual != NULL) {
    Py_INCREF(usual);
    return usual;
  }
  PyObject *key = PyLong_FromLongLong(((long long)device.device_type << 32) | (uint32_t)device.device_id);
  if (key == NULL) return NULL;
  PyObject *known = core_dict_get(state->devices, key);
  if (known == NULL) known = core_dict_keep(state->devices, key, make_device(device));
  Py_DECREF(key);
  if (cpu && known != NULL) {
    Py_INCREF(known);
    core_once_set(&state->cpu, known);
  }
  return known;
}

/* Whose streams order memory on ${device}: pinned and managed memory is used on those of a GPU. */
DLDevice core_gpu_of(DLDevice device) {
  if (device.device_type == kDLCUDAHost || device.device_type == kDLCUDAManaged) device.device_type = kDLCUDA;
  if (device.device_type == kDLROCMHost) device.device_type = kDLROCM;
  return device;
}

/* A device with streams; for pinned and managed memory the GPU that uses it. */
int core_gpu(core_state *state, PyObject *obj, DLDevice *out) {
  if (obj == NULL || obj == Py_None) {
    PyErr_SetString(PyExc_TypeError, "a device with streams is needed, such as \"cuda:0\", not None");
    return -1;
  }
  if (core_device(state, obj, out) < 0) return -1;
  *out = core_gpu_of(*out);
  if (out->device_type != kDLCPU) return 0;
  PyErr_SetString(PyExc_ValueError, "device is \"cpu\", which has no streams; a GPU such as \"cuda:0\" expected");
  return -1;
}

PyDoc_STRVAR(device_parse_doc,
             "_device_parse($module, name, /)\n--\n\n"
             "The DLDevice of a device's name as (type, id, its usual name). ValueError for no device.");

static PyObject *device_parse(PyObject *module, PyObject *obj) {
  core_state *state = core_state_of(module);
  DLDevice device;
  if (core_device(state, obj, &device) < 0) return NULL;
  return Py_BuildValue("iis", (int)device.device_type, (int)device.device_id, core_name_of(device).text);
}

PyDoc_STRVAR(device_count_doc,
             "_device_count($module, kind, /)\n--\n\n"
             "How many devices of a kind there are, and None, or the reason why there are none.");

static PyObject *device_count(PyObject *module, PyObject *kind) {
  core_state *state = core_state_of(module);
  DLDevice device;
  int32_t count = 0;
  mf_error err;
  if (core_device(state, kind, &device) < 0) return NULL;
  PyThreadState *saved = PyEval_SaveThread();
  const int status = mf_device_count((int32_t)device.device_type, &count, &err);
  PyEval_RestoreThread(saved);
  return status == MF_OK ? Py_BuildValue("iO", (int)count, Py_None) : Py_BuildValue("is", 0, err.message);
}

typedef int (*device_fn)(const DLDevice *device, mf_error *err);

static PyObject *call_unlocked(PyObject *module, PyObject *obj, device_fn function) {
  core_state *state = core_state_of(module);
  DLDevice device;
  mf_error err;
  if (core_device(state, obj, &device) < 0) return NULL;
  PyThreadState *saved = PyEval_SaveThread();
  const int status = function(&device, &err);
  PyEval_RestoreThread(saved);
  if (status == MF_OK) Py_RETURN_NONE;
  core_raise(state, &err);
  return NULL;
}

PyDoc_STRVAR(synchronize_doc,
             "synchronize($module, device, /)\n--\n\n"
             "Waits until all work queued on a device is done, whoever queued it. Releases the GIL while it waits.\n"
             "\n"
             "Raises ValueError if there is no such device, DriverError, and RuntimeError during a capture.");

static PyObject *synchronize(PyObject *module, PyObject *obj) {
  return call_unlocked(module, obj, mf_device_synchronize);
}

PyDoc_STRVAR(pool_trim_doc,
             "_pool_trim($module, device, /)\n--\n\n"
             "Gives what is kept of one device's memory back to its driver.");

static PyObject *pool_trim(PyObject *module, PyObject *obj) {
  return call_unlocked(module, obj, mf_pool_trim);
}

PyDoc_STRVAR(pools_trim_doc,
             "_pools_trim($module, wait_ms, /)\n--\n\n"
             "The same for every device of the drivers that were opened; what was released is given wait_ms to end.");

static PyObject *pools_trim(PyObject *module, PyObject *wait) {
  mf_error err;
  const long wait_ms = PyLong_AsLong(wait);
  if (wait_ms == -1 && PyErr_Occurred()) return NULL;
  PyThreadState *saved = PyEval_SaveThread();
  const int status = mf_pools_trim((int32_t)wait_ms, &err);
  PyEval_RestoreThread(saved);
  if (status == MF_OK) Py_RETURN_NONE;
  core_raise(core_state_of(module), &err);
  return NULL;
}

PyDoc_STRVAR(pool_read_doc,
             "_pool_read($module, device, /)\n--\n\n"
             "(used_bytes, cached_bytes, limit_bytes, deferred, hits, misses) of one device's memory.");

static PyObject *pool_read(PyObject *module, PyObject *obj) {
  core_state *state = core_state_of(module);
  DLDevice device;
  mf_pool_stats now;
  mf_error err;
  if (core_device(state, obj, &device) < 0) return NULL;
  if (mf_pool_read(&device, &now, &err) == MF_OK)
    return Py_BuildValue("LLLLLL", (long long)now.used_bytes, (long long)now.cached_bytes, (long long)now.limit_bytes,
                         (long long)now.deferred, (long long)now.hits, (long long)now.misses);
  core_raise(state, &err);
  return NULL;
}

PyDoc_STRVAR(pool_limit_doc,
             "pool_limit($module, device, nbytes, /)\n--\n\n"
             "Limits the memory of a device that Moonferry uses, for tensors and cache together, to nbytes; 0\n"
             "removes the limit.\n"
             "\n"
             "An allocation that would exceed the limit first empties the cache, and raises MemoryError if that is\n"
             "not enough.\n"
             "Raises ValueError if nbytes is negative or there is no such device.");

static PyObject *pool_limit(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  core_state *state = core_state_of(module);
  DLDevice device;
  int64_t nbytes;
  mf_error err;
  if (nargs != 2) {
    PyErr_SetString(PyExc_TypeError, "pool_limit() takes a device and a number of bytes");
    return NULL;
  }
  if (core_device(state, args[0], &device) < 0 || core_int64(args[1], "nbytes", &nbytes) < 0) return NULL;
  if (mf_pool_limit(&device, nbytes, &err) == MF_OK) Py_RETURN_NONE;
  core_raise(state, &err);
  return NULL;
}

PyDoc_STRVAR(stream_none_doc,
             "_stream_none($module, meaning, /)\n--\n\n"
             "What stream=None means: sets an mf_none unless meaning is None, and gives the one of now.");

static PyObject *stream_none(PyObject *module, PyObject *meaning) {
  int64_t value;
  mf_error err;
  if (meaning != Py_None) {
    if (core_int64(meaning, "meaning", &value) < 0) return NULL;
    if (mf_stream_none_set((int32_t)value, &err) != MF_OK) {
      core_raise(core_state_of(module), &err);
      return NULL;
    }
  }
  return PyLong_FromLong(mf_stream_none());
}

PyDoc_STRVAR(threads_doc,
             "threads($module, n=None, /)\n--\n\n"
             "Sets how many threads share one large copy, cast, fill or comparison in host memory, in the whole\n"
             "process, and returns the number. The number includes the calling thread.\n"
             "\n"
             "n: None changes nothing. 1 starts no threads. 0 restores the first setting: MOONFERRY_THREADS in the\n"
             "environment, else the number of processors.\n"
             "Raises ValueError if n is below 0 or above 64.");

static PyObject *threads(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  int64_t n;
  mf_error err;
  if (nargs > 1) {
    PyErr_Format(PyExc_TypeError, "threads() takes one number at most, got %zd arguments", nargs);
    return NULL;
  }
  if (nargs == 1 && args[0] != Py_None) {
    if (core_int64(args[0], "n", &n) < 0) return NULL;
    const int32_t wanted = n < INT32_MIN ? INT32_MIN : n > INT32_MAX ? INT32_MAX : (int32_t)n;
    PyThreadState *saved = PyEval_SaveThread(); /* threads that end are waited for */
    const int status = mf_threads_set(wanted, &err);
    PyEval_RestoreThread(saved);
    if (status != MF_OK) {
      core_raise(core_state_of(module), &err);
      return NULL;
    }
  }
  return PyLong_FromLong(mf_threads());
}

PyDoc_STRVAR(device_of_pointer_doc,
             "_device_of_pointer($module, kind, address, /)\n--\n\n"
             "The Device where the driver of a kind of device says that an address lies. ValueError if it does not\n"
             "know.");

static PyObject *device_of_pointer(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  core_state *state = core_state_of(module);
  DLDevice kind, found;
  mf_error err;
  if (nargs != 2) {
    PyErr_SetString(PyExc_TypeError, "_device_of_pointer() takes 2 arguments");
    return NULL;
  }
  if (core_device(state, args[0], &kind) < 0) return NULL;
  const void *address = PyLong_AsVoidPtr(args[1]);
  if (address == NULL && PyErr_Occurred()) return NULL;
  if (mf_device_of_pointer((int32_t)kind.device_type, address, &found, &err) == MF_OK)
    return core_device_object(state, found);
  core_raise(state, &err);
  return NULL;
}

#define FASTCALL(function) ((PyCFunction)(void (*)(void))(function))

PyMethodDef core_device_functions[] = {
    {"synchronize", synchronize, METH_O, synchronize_doc},
    {"pool_limit", FASTCALL(pool_limit), METH_FASTCALL, pool_limit_doc},
    {"_device_parse", device_parse, METH_O, device_parse_doc},
    {"_device_count", device_count, METH_O, device_count_doc},
    {"_pool_trim", pool_trim, METH_O, pool_trim_doc},
    {"_pools_trim", pools_trim, METH_O, pools_trim_doc},
    {"_pool_read", pool_read, METH_O, pool_read_doc},
    {"threads", FASTCALL(threads), METH_FASTCALL, threads_doc},
    {"_stream_none", stream_none, METH_O, stream_none_doc},
    {"_device_of_pointer", FASTCALL(device_of_pointer), METH_FASTCALL, device_of_pointer_doc},
    {NULL, NULL, 0, NULL},
};
