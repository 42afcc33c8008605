/* import.c: moonferry.from_dlpack: the consumer's side of the array API.
 *
 * Invariant: ownership moves exactly once. A capsule is renamed only after the runtime took its struct
 * over, and until then its destructor stays in charge; a struct from an exchange table is deleted here if
 * the runtime refuses it. Once it is imported, nothing can fail but what gives the reference back.
 * The struct's device is what counts, whatever __dlpack_device__ says, and its record begins with the stream on
 * which the producer made it ready. It must not know what else a struct contains: the runtime's decoder checks it.
 *
 * Standard: array API 2025.12, from_dlpack; DLPack 1.3, Python specification and C exchange API.
 */
#include "core.h"

#include <string.h>

static int fail(const core_import *request, const mf_error *err) {
  return core_raise_exchange(request->state, err, "from_dlpack", request->x);
}

typedef union managed_struct {
  DLManagedTensorVersioned *versioned;
  DLManagedTensor *legacy;
} managed_struct;

static int take(const core_import *request, managed_struct from, mf_tensor **out, mf_error *err) {
  if (request->versioned) return mf_tensor_import(from.versioned, out, err);
  return mf_tensor_import_legacy(from.legacy, out, err);
}

/* The cpu, where the struct is of a version that cannot be read. */
static DLDevice place_of(const core_import *request, managed_struct from) {
  if (!request->versioned) return from.legacy->dl_tensor.device;
  if (from.versioned->version.major == DLPACK_MAJOR_VERSION) return from.versioned->dl_tensor.device;
  return (DLDevice){.device_type = kDLCPU, .device_id = 0};
}

/* A capsule that was handed over is ready on the current stream. A producer that was given no stream has made it
 * ready on the default one, as None says. */
static int take_ordered(const core_import *request, managed_struct from, mf_tensor **out, mf_error *err) {
  const DLDevice device = place_of(request, from);
  const bool asked = request->ordered && core_same_device(core_gpu_of(device), core_gpu_of(request->ready_on));
  core_swap swap;
  if (device.device_type == kDLCPU || PyCapsule_CheckExact(request->x)) return take(request, from, out, err);
  if (core_swap_begin(&swap, device, asked ? request->ready : MF_STREAM_DEFAULT, NULL) != MF_OK)
    return take(request, from, out, err);
  const int status = take(request, from, out, err);
  core_swap_end(&swap);
  return status;
}

/* What the capsule holds if its name is the older one; NULL with an exception if it is neither. */
static void *legacy_pointer(const core_import *request, PyObject *capsule) {
  PyErr_Clear();
  const char *name = PyCapsule_GetName(capsule);
  if (name != NULL && strcmp(name, "dltensor") == 0) return PyCapsule_GetPointer(capsule, name);
  if (name == NULL && PyErr_Occurred()) return NULL;
  if (name != NULL && strncmp(name, "used_dltensor", strlen("used_dltensor")) == 0)
    core_refuse(request->state,
                "from_dlpack: the capsule was consumed before (its name is '%s'); every exchange needs a fresh one",
                name);
  else
    core_refuse(request->state,
                "from_dlpack: the capsule's name must be 'dltensor_versioned' or 'dltensor', not %s%s%s",
                name == NULL ? "" : "'", name == NULL ? "NULL" : name, name == NULL ? "" : "'");
  return NULL;
}

/* CPython renames every valid capsule, so the failure below cannot happen; if it did, the capsule would
 * still be in charge, and leaving our reference unreturned is what keeps the deleter to one call. */
static int consume(core_import *request, PyObject *capsule, mf_tensor **out) {
  void *pointer = PyCapsule_GetPointer(capsule, "dltensor_versioned");
  managed_struct from = {.versioned = pointer};
  mf_error err;
  request->versioned = pointer != NULL;
  if (pointer == NULL && (from.legacy = legacy_pointer(request, capsule)) == NULL) return -1;
  if (take_ordered(request, from, out, &err) != MF_OK) return fail(request, &err);
  if (PyCapsule_SetName(capsule, request->versioned ? "used_dltensor_versioned" : "used_dltensor") < 0) return -1;
  /* Some producers' destructors delete whatever the name is. */
  return PyCapsule_SetDestructor(capsule, NULL);
}

/* Of two threads that are given the same capsule one finds it consumed. */
static int import_capsule(core_import *request, PyObject *capsule, mf_tensor **out) {
  int rc;
  Py_BEGIN_CRITICAL_SECTION(capsule);
  rc = consume(request, capsule, out);
  Py_END_CRITICAL_SECTION();
  return rc;
}

/* An object that has only __cuda_array_interface__. */
static int import_cuda_array(const core_import *request, mf_tensor **out) {
  PyObject *module = PyImport_ImportModule("moonferry._cuda");
  PyObject *made = module == NULL ? NULL : PyObject_CallMethod(module, "from_cuda_array", "(O)", request->x);
  Py_XDECREF(module);
  const bool good = made != NULL && core_is_tensor(made);
  if (made != NULL && !good)
    PyErr_SetString(PyExc_TypeError, "moonferry._cuda.from_cuda_array did not give a Tensor");
  if (good) *out = mf_tensor_retain(core_handle(made));
  Py_XDECREF(made);
  return good ? 0 : -1;
}

/* An AttributeError is set: if __dlpack__ is what is missing, another way is taken, or a better error raised. */
static int import_without_method(const core_import *request, mf_tensor **out) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const int has = answer_has(request->x, request->state->names[NAME_DLPACK]);
  const int cuda = has == 0 ? answer_has(request->x, request->state->names[NAME_CUDA_ARRAY]) : 0;
  if (has > 0) {
    PyErr_Restore(type, value, traceback);
    return -1;
  }
  if (has == 0 && cuda == 0)
    PyErr_Format(PyExc_AttributeError,
                 "from_dlpack: a '%s' cannot be imported: it is no DLPack capsule "
                 "and has no __dlpack__ method; moonferry.asarray takes numbers and other arrays",
                 Py_TYPE(request->x)->tp_name);
  core_chain(type, value, traceback); /* dropped where no exception is set */
  return cuda > 0 ? import_cuda_array(request, out) : -1;
}

static int import_from_method(core_import *request, mf_tensor **out) {
  PyObject *method = request->method;
  Py_XINCREF(method); /* the cache may let go of it while it runs */
  PyObject *capsule = core_ask(request);
  request->method = NULL;
  Py_XDECREF(method);
  int rc = -1;
  if (capsule == NULL) return PyErr_ExceptionMatches(PyExc_AttributeError) ? import_without_method(request, out) : -1;
  if (PyCapsule_CheckExact(capsule))
    rc = import_capsule(request, capsule, out);
  else
    rc = core_refuse(request->state, "from_dlpack: __dlpack__ of a '%s' gave a '%s', not a capsule",
                     Py_TYPE(request->x)->tp_name, Py_TYPE(capsule)->tp_name);
  const aside exception = aside_begin();
  Py_DECREF(capsule);
  aside_end(exception);
  return rc;
}

/* The table failed with an exception. __dlpack__ may succeed, and where it fails its errors are the ones
 * that the standard names; without it the table's own error counts. */
static int import_after_table(core_import *request, mf_tensor **out) {
  PyObject *type, *value, *traceback;
  if (PyErr_Occurred() == NULL)
    return core_refuse(request->state, "from_dlpack: the exchange table of '%s' failed without an exception",
                       Py_TYPE(request->x)->tp_name);
  if (!answer_is_set()) return -1;
  PyErr_Fetch(&type, &value, &traceback);
  const int has = answer_has(request->x, request->state->names[NAME_DLPACK]);
  if (has == 0) {
    PyErr_Restore(type, value, traceback);
    return -1;
  }
  const int rc = has > 0 ? import_from_method(request, out) : -1;
  core_chain(type, value, traceback);
  return rc;
}

/* Of a struct that was not taken over. */
void core_delete_managed(DLManagedTensorVersioned *managed) {
  const aside exception = aside_begin();
  if (managed->deleter != NULL) managed->deleter(managed);
  aside_end(exception);
}

/* What take_from_table returns beside a status: the library does not say which stream it works on; an exception is
 * set. */
enum { NOT_SAID = 1, RAISED };

/* The memory is ready on the stream that the producer's library works on: the record begins with that one. */
static int take_from_table(core_import *request, const DLPackExchangeAPI *api, DLManagedTensorVersioned *managed,
                           mf_tensor **out, mf_error *err) {
  const managed_struct from = {.versioned = managed};
  const DLDevice device = place_of(request, from);
  void *handle = NULL;
  mf_stream stream;
  core_swap swap;
  if (device.device_type == kDLCPU) return take(request, from, out, err);
  if (api->current_work_stream == NULL) return NOT_SAID;
  if (api->current_work_stream(device.device_type, device.device_id, &handle) != 0 ||
      core_stream_from_handle(device, (int64_t)(intptr_t)handle, &stream) < 0)
    return answer_is_no() ? NOT_SAID : RAISED;
  if (core_swap_begin(&swap, device, stream, err) != MF_OK) return err->status;
  const int status = take(request, from, out, err);
  core_swap_end(&swap);
  return status;
}

/* A struct that a table gave: taken over, or deleted. 1 means that __dlpack__ must be asked instead. */
static int import_managed(core_import *request, const DLPackExchangeAPI *api, DLManagedTensorVersioned *managed,
                          bool lazy, mf_tensor **out) {
  int plain = 1;
  mf_error err;
  if (lazy) plain = core_producer_plain(request->state, request->x, &managed->dl_tensor);
  if (plain != 1) {
    core_delete_managed(managed);
    return plain < 0 ? -1 : 1;
  }
  request->versioned = true;
  const int status = take_from_table(request, api, managed, out, &err);
  if (status == MF_OK) return 0;
  core_delete_managed(managed);
  if (status == RAISED) return -1;
  if (status == NOT_SAID || (err.status == MF_EDEVICE && request->placed)) return 1;
  return fail(request, &err);
}

static int import_from_table(core_import *request, const core_producer *producer, mf_tensor **out) {
  DLManagedTensorVersioned *managed = NULL;
  const DLPackExchangeAPI *api = producer->api;
  bool lazy = producer->lazy;
  if (api->managed_tensor_from_py_object_no_sync(request->x, &managed) != 0) return import_after_table(request, out);
  if (managed == NULL)
    return core_refuse(request->state, "from_dlpack: the exchange table of '%s' gave no tensor",
                       Py_TYPE(request->x)->tp_name);
  int rc = import_managed(request, api, managed, lazy, out);
  return rc == 1 ? import_from_method(request, out) : rc;
}

/* Of NumPy's masked arrays: -1 with an exception if an element of x is masked. */
static int refuse_mask(const core_import *request) {
  PyObject *module = PyImport_ImportModule("moonferry._convert");
  PyObject *none = module == NULL ? NULL : PyObject_CallMethod(module, "refuse_mask", "Os", request->x, "from_dlpack");
  Py_XDECREF(module);
  Py_XDECREF(none);
  return none == NULL ? -1 : 0;
}

static int import_object(core_import *request, mf_tensor **out) {
  if (PyCapsule_CheckExact(request->x)) return import_capsule(request, request->x, out);
  const core_producer *producer = core_producer_of(request->state, Py_TYPE(request->x));
  if (producer == NULL) return -1;
  if (producer->api != NULL && producer->api->managed_tensor_from_py_object_no_sync != NULL)
    return import_from_table(request, producer, out);
  request->method = producer->dlpack;
  request->host = producer->host;
  request->masked = producer->masked;
  request->frozen = producer->frozen;
  return import_from_method(request, out);
}

/* Nothing was asked for but the tensor. */
static bool is_plain(const core_import *request) {
  return request->copy < 0 && !request->placed;
}

/* ${t}, which is taken over, where it was asked for: itself, under another name, or a copy. */
static PyObject *place(const core_import *request, mf_tensor *t, bool copy) {
  mf_request ask = {.copy = copy ? MF_COPY_ALWAYS : request->copy == 0 ? MF_COPY_NEVER : MF_COPY_IF_NEEDED};
  mf_tensor *out;
  mf_error err;
  const DLDevice at = mf_tensor_dltensor(t)->device;
  ask.device = request->placed ? request->device : at;
  if (!copy && core_same_device(ask.device, at)) return core_tensor_new(request->state, t);
  const bool clones = core_same_device(ask.device, at);
  const int status = clones ? core_clone(t, &out, &err) : core_to(t, &ask, &out, &err);
  mf_tensor_release(t);
  if (status == MF_OK) return core_tensor_new(request->state, out);
  fail(request, &err);
  return NULL;
}

/* ${t}, which is taken over, as what nobody may write; NULL with an exception. */
static mf_tensor *freeze(const core_import *request, mf_tensor *t) {
  mf_tensor *out;
  mf_error err;
  const int status = mf_tensor_as_readonly(t, &out, &err);
  mf_tensor_release(t);
  if (status == MF_OK) return out;
  core_raise(request->state, &err);
  return NULL;
}

/* What copy and device demand: a copy is believed only where its flag says so. Takes ${t} over. */
static PyObject *finish(const core_import *request, mf_tensor *t) {
  if (request->frozen && (t = freeze(request, t)) == NULL) return NULL;
  if (is_plain(request)) return core_tensor_new(request->state, t);
  bool copied = (mf_tensor_flags(t) & DLPACK_FLAG_BITMASK_IS_COPIED) != 0;
  bool capsule = PyCapsule_CheckExact(request->x);
  if (request->copy == 1) return place(request, t, capsule || !copied);
  if (request->copy < 0 || capsule || (!copied && (request->promised || request->versioned)))
    return place(request, t, false);
  mf_tensor_release(t);
  core_refuse(request->state, "from_dlpack: copy=False, but a '%s' %s", Py_TYPE(request->x)->tp_name,
              copied ? "gave a copy" : "does not take that keyword and cannot say whether it copied");
  return NULL;
}

static PyObject *share_own(const core_import *request) {
  mf_tensor *t = core_handle(request->x);
  mf_error err;
  DLTensor ignored;
  if (!mf_tensor_is_valid(t)) {
    mf_tensor_borrow(t, &ignored, &err);
    fail(request, &err);
    return NULL;
  }
  mf_tensor_retain(t);
  return is_plain(request) ? core_tensor_new(request->state, t) : place(request, t, request->copy == 1);
}

static PyObject *share_own_open(const core_import *request) {
  if (core_look(request->x) < 0) return NULL;
  PyObject *made = share_own(request);
  core_look_end(request->x);
  return made;
}

static int read_device(core_import *request, PyObject *obj) {
  if (obj == NULL || obj == Py_None) return 0;
  request->placed = true;
  if (core_device(request->state, obj, &request->device) == 0) return 0;
  if (PyErr_ExceptionMatches(PyExc_ValueError)) {
    PyErr_Clear();
    core_refuse(request->state,
                "from_dlpack: device %R is not known; a name such as 'cpu', 'cuda:0' or 'rocm:0' expected", obj);
  }
  return -1;
}

PyObject *core_from_dlpack(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  static const core_signature signature = {"from_dlpack", 1, 1, 3, {KW_POSITIONAL + KW_OBJ, KW_DEVICE, KW_COPY}};
  core_state *state = core_state_of(module);
  PyObject *values[3];
  if (core_args(state, &signature, args, nargs, kwnames, values) < 0) return NULL;
  core_import request = {.state = state, .x = values[0], .copy = -1};
  if (read_device(&request, values[1]) < 0 || core_copy_flag(values[2], &request.copy) < 0) return NULL;
  if (core_is_tensor(request.x)) return share_own_open(&request);
  mf_tensor *t = NULL;
  if (import_object(&request, &t) < 0) return NULL;
  if (!request.masked || refuse_mask(&request) == 0) return finish(&request, t);
  core_release_quietly(t);
  return NULL;
}

static PyObject *as_any_array(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  PyObject *convert = PyImport_ImportModule("moonferry._convert");
  PyObject *function = convert != NULL ? PyObject_GetAttrString(convert, "asarray") : NULL;
  Py_XDECREF(convert);
  PyObject *made = function != NULL ? PyObject_Vectorcall(function, args, (size_t)nargs, kwnames) : NULL;
  Py_XDECREF(function);
  return made;
}

/* _from_any(x, ...): from_dlpack; what has no DLPack is given to moonferry.asarray, with the same keywords. Of what is
 * no array either, from_dlpack's error says more. */
PyObject *core_from_any(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  PyObject *type, *value, *traceback;
  PyObject *made = core_from_dlpack(module, args, nargs, kwnames);
  if (made != NULL || nargs != 1 || !PyErr_ExceptionMatches(PyExc_AttributeError)) return made;
  PyErr_Fetch(&type, &value, &traceback);
  const int has = answer_has(args[0], core_state_of(module)->names[NAME_DLPACK]);
  if (has == 0) made = as_any_array(args, nargs, kwnames);
  const bool no_array = made == NULL && PyErr_ExceptionMatches(PyExc_TypeError) && !PySequence_Check(args[0]);
  if (has > 0 || (has == 0 && no_array)) {
    PyErr_Restore(type, value, traceback);
    return NULL;
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return made;
}
