/* raw.c: tensors as plain bytes and back, for pickling.
 *
 * Invariant: both directions share the memory of a contiguous tensor and keep it alive by a reference of the
 * runtime's, without Python. It must not know about pickle.
 */
#include "core.h"

static void release_tensor(void *ctx) {
  mf_tensor_release(ctx);
}

static int wrap_memory_of(core_state *state, PyObject *owner, DLTensor *view, uint64_t flags, mf_tensor **out) {
  mf_tensor *t = core_handle(owner);
  mf_error err;
  if (!mf_tensor_is_valid(t)) {
    PyErr_SetString(PyExc_ValueError, "the memory was taken back by its owner");
    return -1;
  }
  view->data = mf_tensor_dltensor(t)->data;
  flags |= mf_tensor_flags(t) & DLPACK_FLAG_BITMASK_READ_ONLY;
  if (mf_tensor_wrap(view, flags, release_tensor, mf_tensor_retain(t), out, &err) == MF_OK) return 0;
  mf_tensor_release(t);
  return core_raise(state, &err);
}

/* Another tensor over the memory of ${t}, which does not say that it is read-only: for who never writes. */
int core_unlock(mf_tensor *t, mf_tensor **out, mf_error *err) {
  const uint64_t kept = mf_tensor_flags(t) & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED;
  DLTensor view = *mf_tensor_dltensor(t);
  const int status = mf_tensor_wrap(&view, kept, release_tensor, mf_tensor_retain(t), out, err);
  if (status != MF_OK) mf_tensor_release(t);
  return status;
}

static bool is_compact(PyObject *obj) {
  return core_is_tensor(obj) && mf_tensor_is_contiguous(core_handle(obj)) &&
         core_host_reads(core_view(obj)->device);
}

/* Enters ${obj}, if it is a compact tensor that the host can read, or raises and returns -1. */
static int enter_compact(PyObject *obj, const char *expected) {
  if (core_is_tensor(obj) && core_enter(obj) < 0) return -1;
  if (is_compact(obj)) return 0;
  PyErr_SetString(PyExc_TypeError, expected);
  if (core_is_tensor(obj)) core_leave(obj);
  return -1;
}

static PyObject *raw_bytes(core_state *state, PyObject *obj) {
  mf_tensor *raw;
  if (core_wait_on_host(obj, false, "_raw_bytes()") < 0) return NULL;
  int64_t nbytes = mf_tensor_nbytes(core_handle(obj));
  DLTensor view = {.ndim = 1, .shape = &nbytes, .dtype = {kDLUInt, 8, 1}};
  return wrap_memory_of(state, obj, &view, 0, &raw) < 0 ? NULL : core_tensor_new(state, raw);
}

/* _raw_bytes(t): the memory of a contiguous tensor as uint8, whatever its dtype. */
PyObject *core_raw_bytes(PyObject *module, PyObject *obj) {
  if (enter_compact(obj, "_raw_bytes() takes a contiguous Tensor that the host can read") < 0) return NULL;
  PyObject *raw = raw_bytes(core_state_of(module), obj);
  core_leave(obj);
  return raw;
}

static PyObject *from_raw(core_state *state, PyObject *const *args) {
  int64_t shape[MF_MAX_NDIM];
  DLTensor view = {.shape = shape};
  mf_tensor *t;
  int padded = PyObject_IsTrue(args[3]);
  if (padded < 0 || core_shape(args[1], shape, &view.ndim) < 0) return NULL;
  if (core_dtype(state, args[2], &view.dtype) < 0) return NULL;
  uint64_t flags = padded ? DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED : 0;
  if (wrap_memory_of(state, args[0], &view, flags, &t) < 0) return NULL;
  const long long have = mf_tensor_nbytes(core_handle(args[0])), need = mf_tensor_nbytes(t);
  if (have == need) return core_tensor_new(state, t);
  PyErr_Format(PyExc_ValueError, "%lld bytes given for a tensor of %lld", have, need);
  core_release_quietly(t);
  return NULL;
}

/* _from_raw(raw, shape, dtype, padded): the reverse of _raw_bytes. */
PyObject *core_from_raw(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  static const char *const expected = "_from_raw() takes a contiguous Tensor that the host can read, shape, dtype and "
                                      "padded";
  if (nargs != 4) {
    PyErr_SetString(PyExc_TypeError, expected);
    return NULL;
  }
  if (enter_compact(args[0], expected) < 0) return NULL;
  PyObject *made = from_raw(core_state_of(module), args);
  core_leave(args[0]);
  return made;
}
