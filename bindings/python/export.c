/* export.c: Tensor.__dlpack__ and __dlpack_device__: the producer's side of the array API.
 *
 * Invariant: every keyword is validated before any work is done, and a capsule that nobody consumed gives
 * its struct back exactly once. The destructors call capsule functions and the struct's deleter only, so
 * that they work while the interpreter shuts down. It must not know who consumes.
 *
 * Standard: array API 2025.12, array.__dlpack__; DLPack 1.3, Python specification.
 */
#include "core.h"

#include <string.h>

static const char *const LEGACY = "dltensor";
static const char *const VERSIONED = "dltensor_versioned";

/* What the four keywords of __dlpack__ ask for. */
typedef struct dlpack_request {
  bool versioned;
  int copy;        /* 1, 0, or -1 for None */
  int64_t number;  /* of the stream; MF_NUMBER_NONE for None */
  DLDevice device; /* the target */
} dlpack_request;

/* A capsule under another name than it was made with belongs to whoever renamed it. */
static void *unconsumed(PyObject *capsule, const char *name) {
  const char *now = PyCapsule_GetName(capsule);
  if (now != name && (now == NULL || strcmp(now, name) != 0)) return NULL;
  return PyCapsule_GetPointer(capsule, now);
}

static void delete_quietly(DLManagedTensorVersioned *versioned, DLManagedTensor *legacy) {
  const aside exception = aside_begin();
  if (versioned != NULL) versioned->deleter(versioned);
  if (legacy != NULL) legacy->deleter(legacy);
  aside_end(exception);
}

static void drop_versioned(PyObject *capsule) {
  DLManagedTensorVersioned *managed = unconsumed(capsule, VERSIONED);
  if (managed == NULL) return;
  if (PyErr_Occurred())
    delete_quietly(managed, NULL);
  else
    managed->deleter(managed);
}

static void drop_legacy(PyObject *capsule) {
  DLManagedTensor *managed = unconsumed(capsule, LEGACY);
  if (managed != NULL) delete_quietly(NULL, managed);
}

/* A pair of ints, clipped to the range of long. */
static int read_pair(PyObject *obj, const char *what, long out[2]) {
  bool good = PyTuple_Check(obj) && PyTuple_GET_SIZE(obj) == 2;
  for (int i = 0; good && i < 2; i++) {
    PyObject *item = PyTuple_GET_ITEM(obj, i);
    int overflow = 0;
    good = PyLong_Check(item) && !PyBool_Check(item);
    if (good) out[i] = PyLong_AsLongAndOverflow(item, &overflow);
    if (overflow != 0) out[i] = overflow > 0 ? LONG_MAX : LONG_MIN;
  }
  if (good) return 0;
  PyErr_Format(PyExc_TypeError, "%s must be a tuple of two ints or None, not %R", what, obj);
  return -1;
}

/* Consumers pass the same constant every time. A tuple of ints cannot change, so that the last good one is kept. It is
 * only compared with what a caller holds, so that no thread looks into one that another has replaced. */
static int read_max_version(core_state *state, PyObject *obj, bool *versioned) {
  long version[2] = {0, 0};
  *versioned = obj != NULL && obj == atomic_load_explicit(&state->good_version, memory_order_relaxed);
  if (obj == NULL || obj == Py_None || *versioned) return 0;
  if (read_pair(obj, "max_version", version) < 0) return -1;
  if (version[0] < 0 || version[1] < 0) {
    PyErr_Format(PyExc_TypeError, "max_version must not be negative: %R", obj);
    return -1;
  }
  *versioned = version[0] >= 1;
  if (*versioned && PyTuple_CheckExact(obj)) {
    Py_INCREF(obj);
    Py_XDECREF(atomic_exchange(&state->good_version, obj));
  }
  return 0;
}

static int read_dl_device(core_state *state, PyObject *obj, DLDevice *out) {
  long device[2] = {0, 0};
  if (read_pair(obj, "dl_device", device) < 0) return -1;
  *out = (DLDevice){.device_type = (DLDeviceType)device[0], .device_id = (int32_t)device[1]};
  if (device[0] > 0 && device[0] <= INT32_MAX && device[1] == (int32_t)device[1]) return 0;
  return core_refuse(state, "__dlpack__: dl_device is %R; a device type of DLPack and an id of 32 bits expected", obj);
}

static bool is_none(PyObject *obj) {
  return obj == NULL || obj == Py_None;
}

/* The device is the tensor's own so far. What is None is not worth a call. */
static int read_keywords(core_state *state, PyObject *const values[4], dlpack_request *out) {
  out->number = MF_NUMBER_NONE;
  out->copy = -1;
  if (!is_none(values[0]) && core_stream_number(values[0], &out->number) < 0) return -1;
  if (read_max_version(state, values[1], &out->versioned) < 0) return -1;
  if (!is_none(values[3]) && core_copy_flag(values[3], &out->copy) < 0) return -1;
  return is_none(values[2]) ? 0 : read_dl_device(state, values[2], &out->device);
}

static PyObject *refuse(PyObject *self, const mf_error *err) {
  core_raise_exchange(core_state_of_tensor(self), err, "__dlpack__", NULL);
  return NULL;
}

static PyObject *capsule_of(DLManagedTensorVersioned *managed) {
  PyObject *capsule = PyCapsule_New(managed, VERSIONED, drop_versioned);
  if (capsule == NULL) delete_quietly(managed, NULL);
  return capsule;
}

static PyObject *capsule_of_legacy(DLManagedTensor *managed) {
  PyObject *capsule = PyCapsule_New(managed, LEGACY, drop_legacy);
  if (capsule == NULL) delete_quietly(NULL, managed);
  return capsule;
}

static PyObject *versioned_capsule(PyObject *self, mf_tensor *t, uint64_t flags) {
  DLManagedTensorVersioned *managed;
  mf_error err;
  return core_export(t, flags, &managed, &err) == MF_OK ? capsule_of(managed) : refuse(self, &err);
}

/* The usual export, of memory for which nobody has to wait. The caller knows that; core_export would ask again. */
static PyObject *usual_capsule(PyObject *self) {
  DLManagedTensorVersioned *managed;
  mf_error err;
  return mf_tensor_export(core_handle(self), 0, &managed, &err) == MF_OK ? capsule_of(managed) : refuse(self, &err);
}

/* Whether the Python code that has called is of a library: ${prefix} begins its module's name. DLPack has no word by
 * which a consumer says who it is, so where it matters, and only there, we look: 1, 0, or -1 with an exception. */
static __attribute__((noinline, cold)) int is_asked_by(const char *prefix) {
  PyObject *globals = PyEval_GetGlobals();
  PyObject *name = globals != NULL ? PyMapping_GetItemString(globals, "__name__") : NULL;
  const char *module = name != NULL && PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  const int is = module != NULL ? strncmp(module, prefix, strlen(prefix)) == 0 : answer_is_no() ? 0 : -1;
  Py_XDECREF(name);
  return is;
}

static PyObject *plain_legacy_capsule(PyObject *self, mf_tensor *t) {
  DLManagedTensor *managed;
  mf_error err;
  PyThreadState *saved = core_may_wait(t) ? PyEval_SaveThread() : NULL;
  const int status = mf_tensor_export_legacy(t, &managed, &err);
  if (saved != NULL) PyEval_RestoreThread(saved);
  return status == MF_OK ? capsule_of_legacy(managed) : refuse(self, &err);
}

/* JAX asks for no other struct, and never writes: its arrays are immutable, and what it is given is not donated. */
static __attribute__((noinline, cold)) PyObject *legacy_capsule_of_readonly(PyObject *self, mf_tensor *t) {
  mf_tensor *unlocked;
  mf_error err;
  const int by_jax = is_asked_by("jax.");
  if (by_jax < 0) return NULL;
  if (by_jax == 0) return plain_legacy_capsule(self, t);
  if (core_unlock(t, &unlocked, &err) != MF_OK) return refuse(self, &err);
  PyObject *capsule = plain_legacy_capsule(self, unlocked);
  core_release_quietly(unlocked);
  return capsule;
}

static PyObject *legacy_capsule(PyObject *self, mf_tensor *t) {
  const bool is_readonly = (mf_tensor_flags(t) & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
  return is_readonly ? legacy_capsule_of_readonly(self, t) : plain_legacy_capsule(self, t);
}

static PyObject *copied_capsule(PyObject *self, bool versioned) {
  mf_tensor *copy;
  mf_error err;
  if (core_clone(core_handle(self), &copy, &err) != MF_OK) return refuse(self, &err);
  PyObject *capsule =
      versioned ? versioned_capsule(self, copy, DLPACK_FLAG_BITMASK_IS_COPIED) : legacy_capsule(self, copy);
  core_release_quietly(copy);
  return capsule;
}

/* Whether the host may have to wait: for a copy, for memory, or because it is the consumer. */
static bool may_wait(const mf_tensor *t, const mf_request *ask) {
  return ask->copy == MF_COPY_ALWAYS || ask->stream == MF_STREAM_HOST ||
         !core_same_device(ask->device, mf_tensor_dltensor(t)->device);
}

/* A device that nobody drives has no table of streams either: then the device is what is wrong. */
static int read_order(PyObject *self, const dlpack_request *request, mf_stream *out) {
  core_state *state = core_state_of_tensor(self);
  mf_error err;
  if (mf_stream_from_number(&request->device, request->number, out, &err) == MF_OK) return 0;
  if (err.status == MF_EDEVICE || request->number == MF_NUMBER_NONE)
    return core_raise_exchange(state, &err, "__dlpack__: dl_device cannot be reached", NULL);
  return core_raise(state, &err);
}

/* To or from a device: ready on the stream that the consumer named. */
static PyObject *ordered_capsule(PyObject *self, const dlpack_request *request) {
  mf_request ask = {.device = request->device, .copy = MF_COPY_IF_NEEDED};
  mf_tensor *t = core_handle(self);
  DLManagedTensorVersioned *managed = NULL;
  DLManagedTensor *legacy = NULL;
  mf_error err;
  if (read_order(self, request, &ask.stream) < 0) return NULL;
  if (request->copy >= 0) ask.copy = request->copy ? MF_COPY_ALWAYS : MF_COPY_NEVER;
  PyThreadState *saved = may_wait(t, &ask) ? PyEval_SaveThread() : NULL;
  const int status = request->versioned ? mf_tensor_export_to(t, &ask, &managed, &err)
                                        : mf_tensor_export_legacy_to(t, &ask, &legacy, &err);
  if (saved != NULL) PyEval_RestoreThread(saved);
  if (status == MF_OK) return managed != NULL ? capsule_of(managed) : capsule_of_legacy(legacy);
  const char *what = err.status == MF_EDEVICE ? "__dlpack__: dl_device cannot be reached" : "__dlpack__";
  core_raise_exchange(core_state_of_tensor(self), &err, what, NULL);
  return NULL;
}

/* From the cpu to the cpu: nothing to order. */
static PyObject *plain_capsule(PyObject *self, const dlpack_request *request) {
  if (request->number != MF_NUMBER_NONE && request->number != MF_STREAM_NO_ORDER) {
    PyErr_Format(PyExc_ValueError, "stream must be None or -1 for a tensor on the cpu, not %lld",
                 (long long)request->number);
    return NULL;
  }
  if (request->copy == 1) return copied_capsule(self, request->versioned);
  return request->versioned ? versioned_capsule(self, core_handle(self), 0) : legacy_capsule(self, core_handle(self));
}

/* Every export asks this, so that the usual answer costs one instruction an axis: no stride has its sign bit set. */
static inline bool runs_backwards(const DLTensor *d) {
  int64_t signs = 0;
  for (int32_t i = 0; i < d->ndim; i++) signs |= d->strides[i];
  if (signs >= 0) return false;
  for (int32_t i = 0; i < d->ndim; i++)
    if (d->strides[i] < 0 && d->shape[i] > 1) return true;
  return false;
}

/* PyTorch (2.13) ends the process where an extent's stride is negative, which DLPack allows. */
static __attribute__((noinline, cold)) int refuse_who_would_abort(PyObject *self) {
  const int by_torch = is_asked_by("torch.");
  if (by_torch <= 0) return by_torch;
  return core_refuse(core_state_of_tensor(self), "%s",
                     "__dlpack__: a stride is negative, for which PyTorch would end the process; t.copy() is compact");
}

/* Consumers pass the same tuple of names every time, too. One number says all of it, so that no thread sees half. Each
 * of the ${kwnames} is one of the four keywords, so that the place is below CORE_NAMES_MAX. */
static void remember_names(core_state *state, PyObject *kwnames) {
  Py_ssize_t at = 0;
  const Py_ssize_t n = PyTuple_GET_SIZE(kwnames);
  while (at < n && PyTuple_GET_ITEM(kwnames, at) != state->kw[KW_MAX_VERSION]) at++;
  if (at == n || n == 1) return;
  Py_INCREF(kwnames);
  Py_XDECREF(core_names_of(atomic_exchange(&state->good_names, (uintptr_t)kwnames | (uintptr_t)at)));
}

/* __dlpack__(max_version=V) with the V of the last time, and with nothing else but None: what a consumer in a loop
 * does. */
static bool is_usual_call(const core_state *state, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  const PyObject *version = atomic_load_explicit(&state->good_version, memory_order_relaxed);
  if (kwnames == NULL || nargs != 0 || version == NULL) return false;
  const Py_ssize_t count = PyTuple_GET_SIZE(kwnames);
  if (count == 1) return args[0] == version && PyTuple_GET_ITEM(kwnames, 0) == state->kw[KW_MAX_VERSION];
  const uintptr_t at = atomic_load_explicit(&state->good_names, memory_order_relaxed) - (uintptr_t)kwnames;
  if (at >= CORE_NAMES_MAX) return false;
  for (Py_ssize_t i = 0; i < count; i++)
    if (args[i] != ((uintptr_t)i == at ? version : Py_None)) return false;
  return true;
}

static PyObject *any_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  static const core_signature signature = {"__dlpack__", 0, 0, 4, {KW_STREAM, KW_MAX_VERSION, KW_DL_DEVICE, KW_COPY}};
  PyObject *values[4];
  core_state *state = core_state_of_tensor(self);
  dlpack_request request;
  request.device = core_view(self)->device;
  const bool here = core_is_cpu(request.device);
  if (core_args(state, &signature, args, nargs, kwnames, values) < 0) return NULL;
  if (read_keywords(state, values, &request) < 0) return NULL;
  if (kwnames != NULL && kwnames != core_names_of(atomic_load(&state->good_names))) remember_names(state, kwnames);
  if (request.copy != 1 && runs_backwards(core_view(self)) && refuse_who_would_abort(self) < 0) return NULL;
  if (here && core_is_cpu(request.device)) return plain_capsule(self, &request);
  return ordered_capsule(self, &request);
}

/* Kept out of line, so that the usual call does not pay for this one's stack frame. */
static __attribute__((noinline)) CORE_KEYWORDS(any_call_inside, any_call)

PyObject *core_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  if (is_usual_call(core_state_of_tensor(self), args, nargs, kwnames)) {
    if (core_look(self) < 0) return NULL;
    const DLTensor *view = core_view(self);
    const bool usual = !core_may_wait(core_handle(self)) && !runs_backwards(view);
    PyObject *capsule = usual ? usual_capsule(self) : NULL;
    core_look_end(self);
    if (usual) return capsule;
  }
  return any_call_inside(self, args, nargs, kwnames);
}

static PyObject *dlpack_device(PyObject *self, PyObject *ignored) {
  (void)ignored;
  DLDevice device = core_view(self)->device;
  core_state *state = core_state_of_tensor(self);
  if (core_is_cpu(device)) {
    Py_INCREF(state->cpu_pair);
    return state->cpu_pair;
  }
  return Py_BuildValue("ii", (int)device.device_type, (int)device.device_id);
}

CORE_PLAIN(core_dlpack_device, dlpack_device)
