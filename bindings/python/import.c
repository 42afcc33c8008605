/* import.c: moonferry.from_dlpack: the consumer's side of the array API.
 *
 * Invariant: ownership moves exactly once. A capsule is renamed only after the runtime took its struct
 * over, and until then its destructor stays in charge; a struct from an exchange table is deleted here if
 * the runtime refuses it. Once it is imported, nothing can fail but what gives the reference back.
 * It must not know what a struct contains: the runtime's decoder checks it, and the struct's device is
 * what counts, whatever __dlpack_device__ says.
 *
 * Standard: array API 2025.12, from_dlpack; DLPack 1.3, Python specification and C exchange API.
 */
#include "core.h"

#include <string.h>

/* What was asked of from_dlpack, and what came of it so far. */
typedef struct import_request {
  core_state *state;
  PyObject *x;
  PyObject *method; /* borrowed: what x.__dlpack__ is, NULL where it must be looked up */
  bool device;      /* the CPU was asked for by name */
  int copy;         /* 1, 0, or -1 for None */
  bool promised;    /* the producer was told about copy, and said yes */
  bool versioned;   /* the struct could say that it is a copy */
} import_request;

static int fail(const import_request *request, const mf_error *err) {
  return core_raise_exchange(request->state, err, "from_dlpack", request->x);
}

static int wrong_name(const import_request *request, const char *name) {
  if (name != NULL && strncmp(name, "used_dltensor", strlen("used_dltensor")) == 0)
    return core_refuse(request->state,
                       "from_dlpack: the capsule was consumed before (its name is "
                       "'%s'); every exchange needs a fresh one",
                       name);
  return core_refuse(request->state,
                     "from_dlpack: the capsule's name must be 'dltensor_versioned' or "
                     "'dltensor', not %s%s%s",
                     name == NULL ? "" : "'", name == NULL ? "NULL" : name, name == NULL ? "" : "'");
}

static int import_struct(import_request *request, PyObject *capsule, const char *name, mf_tensor **out) {
  void *managed = PyCapsule_GetPointer(capsule, name);
  mf_error err;
  if (managed == NULL) return -1;
  int status = request->versioned ? mf_tensor_import(managed, out, &err) : mf_tensor_import_legacy(managed, out, &err);
  return status == MF_OK ? 0 : fail(request, &err);
}

/* CPython renames every valid capsule, so the failure below cannot happen; if it did, the capsule would
 * still be in charge, and leaving our reference unreturned is what keeps the deleter to one call. */
static int import_capsule(import_request *request, PyObject *capsule, mf_tensor **out) {
  const char *name = PyCapsule_GetName(capsule);
  if (name == NULL) {
    if (PyErr_Occurred()) return -1;
    return wrong_name(request, NULL);
  }
  request->versioned = strcmp(name, "dltensor_versioned") == 0;
  if (!request->versioned && strcmp(name, "dltensor") != 0) return wrong_name(request, name);
  if (import_struct(request, capsule, name, out) < 0) return -1;
  name = request->versioned ? "used_dltensor_versioned" : "used_dltensor";
  if (PyCapsule_SetName(capsule, name) < 0) return -1;
  /* Some producers' destructors delete whatever the name is. */
  return PyCapsule_SetDestructor(capsule, NULL);
}

/* x.__dlpack__() with the keywords of ${level}: 0 all that were asked for, 1 max_version, 2 none. */
static PyObject *call_dlpack(const import_request *request, int level) {
  core_state *state = request->state;
  PyObject *stack[5] = {NULL, request->x, state->max_version, NULL, NULL};
  int n = 3, kw = 0;
  if (level == 2) return PyObject_CallMethodNoArgs(request->x, state->names[NAME_DLPACK]);
  if (level == 0 && request->device) {
    stack[n++] = state->cpu_pair;
    kw += 1;
  }
  if (level == 0 && request->copy >= 0) {
    stack[n] = request->copy ? Py_True : Py_False;
    kw += 2;
  }
  if (request->method != NULL)
    return PyObject_Vectorcall(request->method, stack + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, state->dlpack_kw[kw]);
  return PyObject_VectorcallMethod(state->names[NAME_DLPACK], stack + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                   state->dlpack_kw[kw]);
}

/* Replaces an AttributeError by a better one, if __dlpack__ is what is missing. */
static void explain_missing(const import_request *request) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (PyObject_HasAttr(request->x, request->state->names[NAME_DLPACK])) {
    PyErr_Restore(type, value, traceback);
    return;
  }
  PyErr_Format(PyExc_AttributeError,
               "from_dlpack: a '%s' cannot be imported: it is no DLPack capsule "
               "and has no __dlpack__ method",
               Py_TYPE(request->x)->tp_name);
  core_chain(type, value, traceback);
}

/* Older producers do not know all keywords and raise TypeError. So may one that knows them and fails: then
 * its last error is raised, with the first one as context. */
static PyObject *retry_dlpack(import_request *request) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  request->promised = false;
  PyObject *capsule = NULL;
  if (request->device || request->copy >= 0) capsule = call_dlpack(request, 1);
  if (capsule == NULL && (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError))) {
    PyErr_Clear();
    capsule = call_dlpack(request, 2);
  }
  core_chain(type, value, traceback);
  return capsule;
}

static int import_from_method(import_request *request, mf_tensor **out) {
  request->promised = true;
  PyObject *method = request->method;
  Py_XINCREF(method); /* the cache may let go of it while it runs */
  PyObject *capsule = call_dlpack(request, 0);
  request->method = NULL;
  Py_XDECREF(method);
  if (capsule == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) explain_missing(request);
  if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) capsule = retry_dlpack(request);
  if (capsule == NULL) return -1;
  int rc;
  if (PyCapsule_CheckExact(capsule))
    rc = import_capsule(request, capsule, out);
  else
    rc = core_refuse(request->state, "from_dlpack: __dlpack__ of a '%s' gave a '%s', not a capsule",
                     Py_TYPE(request->x)->tp_name, Py_TYPE(capsule)->tp_name);
  Py_DECREF(capsule);
  return rc;
}

/* The table failed with an exception. __dlpack__ may succeed, and where it fails its errors are the ones
 * that the standard names; without it the table's own error counts. */
static int import_after_table(import_request *request, mf_tensor **out) {
  PyObject *type, *value, *traceback;
  if (PyErr_ExceptionMatches(PyExc_MemoryError)) return -1;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
  PyErr_Fetch(&type, &value, &traceback);
  if (!PyObject_HasAttr(request->x, request->state->names[NAME_DLPACK])) {
    PyErr_Restore(type, value, traceback);
    return -1;
  }
  int rc = import_from_method(request, out);
  core_chain(type, value, traceback);
  return rc;
}

static void delete_managed(DLManagedTensorVersioned *managed) {
  if (managed->deleter != NULL) managed->deleter(managed);
}

/* A struct that a table gave: taken over, or deleted. 1 means that __dlpack__ must be asked instead. */
static int import_managed(import_request *request, DLManagedTensorVersioned *managed, bool lazy, mf_tensor **out) {
  int plain = 1;
  mf_error err;
  if (lazy) plain = core_producer_plain(request->state, request->x, &managed->dl_tensor);
  if (plain != 1) {
    delete_managed(managed);
    return plain < 0 ? -1 : 1;
  }
  request->versioned = true;
  if (mf_tensor_import(managed, out, &err) == MF_OK) return 0;
  delete_managed(managed);
  if (err.status == MF_EDEVICE && request->device) return 1;
  return fail(request, &err);
}

static int import_from_table(import_request *request, const core_producer *producer, mf_tensor **out) {
  DLManagedTensorVersioned *managed = NULL;
  bool lazy = producer->lazy;
  if (producer->api->managed_tensor_from_py_object_no_sync(request->x, &managed) != 0)
    return import_after_table(request, out);
  if (managed == NULL)
    return core_refuse(request->state, "from_dlpack: the exchange table of '%s' gave no tensor",
                       Py_TYPE(request->x)->tp_name);
  int rc = import_managed(request, managed, lazy, out);
  return rc == 1 ? import_from_method(request, out) : rc;
}

static int import_object(import_request *request, mf_tensor **out) {
  if (PyCapsule_CheckExact(request->x)) {
    request->promised = true; /* nothing is copied here, and nobody else can be asked */
    return import_capsule(request, request->x, out);
  }
  const core_producer *producer = core_producer_of(request->state, Py_TYPE(request->x));
  if (producer == NULL) return -1;
  if (producer->api != NULL && producer->api->managed_tensor_from_py_object_no_sync != NULL) {
    request->promised = false;
    return import_from_table(request, producer, out);
  }
  request->method = producer->dlpack;
  return import_from_method(request, out);
}

static PyObject *clone_and_release(const import_request *request, mf_tensor *t) {
  mf_tensor *copy;
  mf_error err;
  int status = core_clone(t, &copy, &err);
  mf_tensor_release(t);
  if (status == MF_OK) return core_tensor_new(request->state, copy);
  fail(request, &err);
  return NULL;
}

/* What copy demands: a copy is believed only where its flag says so. Takes ${t} over. */
static PyObject *finish(const import_request *request, mf_tensor *t) {
  if (request->copy < 0) return core_tensor_new(request->state, t);
  bool copied = (mf_tensor_flags(t) & DLPACK_FLAG_BITMASK_IS_COPIED) != 0;
  bool capsule = PyCapsule_CheckExact(request->x);
  if (request->copy == 1) {
    if (!capsule && copied) return core_tensor_new(request->state, t);
    return clone_and_release(request, t);
  }
  if (capsule || (!copied && (request->promised || request->versioned))) return core_tensor_new(request->state, t);
  mf_tensor_release(t);
  core_refuse(request->state, "from_dlpack: copy=False, but a '%s' %s", Py_TYPE(request->x)->tp_name,
              copied ? "gave a copy" : "does not take that keyword and cannot say whether it copied");
  return NULL;
}

static PyObject *share_own(const import_request *request) {
  mf_tensor *t = core_handle(request->x);
  mf_error err;
  DLTensor ignored;
  if (!mf_tensor_is_valid(t)) {
    mf_tensor_borrow(t, &ignored, &err);
    fail(request, &err);
    return NULL;
  }
  mf_tensor_retain(t);
  if (request->copy == 1) return clone_and_release(request, t);
  return core_tensor_new(request->state, t);
}

static int read_device(import_request *request, PyObject *obj) {
  DLDevice device;
  if (obj == NULL || obj == Py_None) return 0;
  request->device = true;
  if (core_device(request->state, obj, &device) < 0) {
    if (PyErr_ExceptionMatches(PyExc_ValueError)) {
      PyErr_Clear();
      core_refuse(request->state, "from_dlpack: device %R is not known", obj);
    }
    return -1;
  }
  if (device.device_type == kDLCPU && device.device_id == 0) return 0;
  return core_refuse(request->state, "from_dlpack: device must be None or 'cpu', not %R", obj);
}

PyObject *core_from_dlpack(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  static const core_signature signature = {"from_dlpack", 1, 1, 3, {KW_POSITIONAL, KW_DEVICE, KW_COPY}};
  core_state *state = core_state_of(module);
  PyObject *values[3];
  if (core_args(state, &signature, args, nargs, kwnames, values) < 0) return NULL;
  import_request request = {.state = state, .x = values[0], .copy = -1};
  if (read_device(&request, values[1]) < 0 || core_copy_flag(values[2], &request.copy) < 0) return NULL;
  if (core_is_tensor(request.x)) return share_own(&request);
  mf_tensor *t = NULL;
  return import_object(&request, &t) < 0 ? NULL : finish(&request, t);
}
