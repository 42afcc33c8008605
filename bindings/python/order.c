/* order.c: Tensor's methods about devices and streams: to, acquire, record, and the way to the host.
 *
 * Invariant: the GIL is released around whatever may wait for a device or copy, and only around that. It must not
 * know how order is kept.
 */
#include "core.h"

/* Calls mf_tensor_to, without the GIL where it may wait. */
int core_to(mf_tensor *t, const mf_request *request, mf_tensor **out, mf_error *err) {
  const DLDevice from = mf_tensor_dltensor(t)->device;
  const bool stays = request->device.device_type == 0 || core_same_device(from, request->device);
  if (stays && request->copy != MF_COPY_ALWAYS && request->stream != MF_STREAM_HOST)
    return mf_tensor_to(t, request, out, err);
  PyThreadState *saved = PyEval_SaveThread();
  const int status = mf_tensor_to(t, request, out, err);
  PyEval_RestoreThread(saved);
  return status;
}

int core_acquire(mf_tensor *t, mf_stream stream, int32_t use, mf_error *err) {
  if (stream != MF_STREAM_HOST) return mf_tensor_acquire(t, stream, use, err);
  PyThreadState *saved = PyEval_SaveThread();
  const int status = mf_tensor_acquire(t, stream, use, err);
  PyEval_RestoreThread(saved);
  return status;
}

/* Calls mf_tensor_export, for memory labelled as the cpu's, without the GIL where that may wait. */
int core_export(mf_tensor *t, uint64_t flags, DLManagedTensorVersioned **out, mf_error *err) {
  PyThreadState *saved = core_may_wait(t) ? PyEval_SaveThread() : NULL;
  const int status = mf_tensor_export(t, flags, out, err);
  if (saved != NULL) PyEval_RestoreThread(saved);
  return status;
}

/* Waits for the work that is queued on pinned or managed memory, whatever its label, before the host uses it. */
int core_wait_on_host(PyObject *self, bool write, const char *what) {
  mf_tensor *t = core_handle(self);
  mf_error err;
  if (!mf_tensor_is_ordered(t)) return 0;
  const int status = core_acquire(t, MF_STREAM_HOST, write ? MF_WRITE : MF_READ, &err);
  return status == MF_OK ? 0 : core_raise_exchange(core_state_of_tensor(self), &err, what, NULL);
}

/* A new reference to ${self}'s elements where the host can read them now: itself, or from a GPU a copy. */
int core_on_host(PyObject *self, mf_tensor **out) {
  static const mf_request host = {.device = {kDLCPU, 0}, .stream = MF_STREAM_HOST};
  mf_tensor *t = core_handle(self);
  mf_error err;
  if (core_is_cpu(mf_tensor_dltensor(t)->device)) {
    if (core_may_wait(t)) (void)core_acquire(t, MF_STREAM_HOST, MF_READ, NULL); /* a failure comes again at the read */
    *out = mf_tensor_retain(t);
    return 0;
  }
  return core_to(t, &host, out, &err) == MF_OK ? 0 : core_raise(core_state_of_tensor(self), &err);
}

static PyObject *to(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  static const core_signature signature = {"to", 1, 1, 3, {KW_DEVICE, KW_COPY, KW_STREAM}};
  core_state *state = core_state_of_tensor(self);
  PyObject *values[3];
  mf_request request = {.copy = MF_COPY_IF_NEEDED};
  mf_tensor *out;
  mf_error err;
  int copy;
  if (core_args(state, &signature, args, nargs, kwnames, values) < 0) return NULL;
  if (core_device(state, values[0], &request.device) < 0 || core_copy_flag(values[1], &copy) < 0) return NULL;
  /* The stream is one of the target; of the source where the target has none. */
  const DLDevice *on = core_is_cpu(request.device) ? &core_view(self)->device : &request.device;
  if (core_stream_argument(state, values[2], on, &request.stream) < 0) return NULL;
  if (copy >= 0) request.copy = copy ? MF_COPY_ALWAYS : MF_COPY_NEVER;
  const int status = core_to(core_handle(self), &request, &out, &err);
  if (status != MF_OK) {
    if (status == MF_ELAYOUT) core_raise_exchange(state, &err, "to", NULL);
    else core_raise(state, &err);
    return NULL;
  }
  if (out != core_handle(self)) return core_tensor_new(state, out);
  mf_tensor_release(out);
  Py_INCREF(self);
  return self;
}

CORE_KEYWORDS(core_tensor_to, to)

typedef int (*use_fn)(mf_tensor *t, mf_stream stream, int32_t use, mf_error *err);

static int read_use(PyObject *self, PyObject *const values[2], mf_stream *stream, int32_t *use) {
  const DLDevice device = core_view(self)->device;
  const int write = values[1] == NULL ? 0 : PyObject_IsTrue(values[1]);
  *use = write ? MF_WRITE : MF_READ;
  if (write < 0) return -1;
  if (values[0] == NULL || !PyUnicode_Check(values[0]))
    return core_stream_argument(core_state_of_tensor(self), values[0], &device, stream);
  *stream = MF_STREAM_HOST;
  if (PyUnicode_CompareWithASCIIString(values[0], "host") == 0) return 0;
  PyErr_Format(PyExc_TypeError,
               "stream must be a Stream, an object with __cuda_stream__, an int, None or \"host\", not %R", values[0]);
  return -1;
}

static PyObject *use(PyObject *self, PyObject *const values[2], use_fn function) {
  mf_stream stream;
  int32_t how;
  mf_error err;
  if (read_use(self, values, &stream, &how) < 0) return NULL;
  if (function(core_handle(self), stream, how, &err) == MF_OK) Py_RETURN_NONE;
  core_raise(core_state_of_tensor(self), &err);
  return NULL;
}

static PyObject *acquire(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  static const core_signature signature = {"acquire", 2, 0, 2, {KW_STREAM, KW_WRITE}};
  PyObject *values[2];
  if (core_args_self(self, &signature, args, nargs, kwnames, values) < 0) return NULL;
  return use(self, values, core_acquire);
}

CORE_KEYWORDS(core_tensor_acquire, acquire)

static PyObject *record(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  static const core_signature signature = {"record", 2, 0, 2, {KW_STREAM, KW_WRITE}};
  PyObject *values[2];
  if (core_args_self(self, &signature, args, nargs, kwnames, values) < 0) return NULL;
  return use(self, values, mf_tensor_record);
}

CORE_KEYWORDS(core_tensor_record, record)
