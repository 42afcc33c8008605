/* ask.c: asks a producer for a capsule: on which device it is, on which stream it is to be ready, with which
 * keywords it can be asked.
 *
 * Invariant: memory that may be on a device is always asked for with an explicit stream, the current one of the
 * device that it is to be on; the cpu's never. Keywords that were not asked for are not passed, because older
 * producers refuse them. It must not know what a capsule holds.
 *
 * Standard: array API 2025.12, from_dlpack and __dlpack__.
 */
#include "core.h"

/* One way to call __dlpack__. */
typedef struct question {
  int what; /* ASK_*: what accompanies max_version */
  DLDevice device;
  int64_t number; /* of the stream */
} question;

static PyObject *call_method(const core_import *request, PyObject **stack, Py_ssize_t nargs, PyObject *keywords) {
  const size_t count = (size_t)nargs | PY_VECTORCALL_ARGUMENTS_OFFSET;
  if (request->method != NULL) return PyObject_Vectorcall(request->method, stack, count, keywords);
  return PyObject_VectorcallMethod(request->state->names[NAME_DLPACK], stack, count, keywords);
}

static PyObject *call(const core_import *request, const question *q) {
  core_state *state = request->state;
  PyObject *stack[6] = {NULL, request->x, state->max_version};
  PyObject *pair = NULL, *number = NULL, *capsule = NULL;
  int n = 3;
  if ((q->what & ASK_DL_DEVICE) != 0)
    stack[n++] = pair = Py_BuildValue("ii", (int)q->device.device_type, (int)q->device.device_id);
  if ((q->what & ASK_COPY) != 0) stack[n++] = request->copy == 1 ? Py_True : Py_False;
  if ((q->what & ASK_STREAM) != 0) stack[n++] = number = PyLong_FromLongLong((long long)q->number);
  if (!PyErr_Occurred()) capsule = call_method(request, stack + 1, 1, state->dlpack_kw[q->what]);
  Py_XDECREF(pair);
  Py_XDECREF(number);
  return capsule;
}

/* Calls __dlpack__ as it was before it had max_version. */
static PyObject *call_old(const core_import *request, const question *q) {
  core_state *state = request->state;
  PyObject *stack[3] = {NULL, request->x, NULL};
  if ((q->what & ASK_STREAM) == 0) return PyObject_CallMethodNoArgs(request->x, state->names[NAME_DLPACK]);
  stack[2] = PyLong_FromLongLong((long long)q->number);
  if (stack[2] == NULL) return NULL;
  PyObject *capsule = PyObject_VectorcallMethod(state->names[NAME_DLPACK], stack + 1,
                                                1 | PY_VECTORCALL_ARGUMENTS_OFFSET, state->stream_kw);
  Py_DECREF(stack[2]);
  return capsule;
}

/* Older producers do not know all keywords and raise TypeError. So may one that knows them and fails: then
 * its last error is raised, with the first one as context. */
static PyObject *call_again(core_import *request, question *q) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  request->promised = false;
  PyObject *capsule = NULL;
  const int dropped = q->what & (ASK_DL_DEVICE | ASK_COPY);
  q->what &= ASK_STREAM;
  if (dropped != 0) capsule = call(request, q);
  if (capsule == NULL && (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError))) {
    PyErr_Clear();
    capsule = call_old(request, q);
  }
  core_chain(type, value, traceback);
  return capsule;
}

/* Finds the current stream of the device that the memory is to be on, as a number. A device without a driver here has
 * none; the import then decides about its memory. */
static void choose_stream(core_import *request, question *q) {
  mf_stream stream;
  request->ordered = false;
  if (q->device.device_type == kDLCPU) return;
  if (mf_stream_current(&q->device, &stream, NULL) != MF_OK) return;
  if (mf_stream_to_number(&q->device, stream, &q->number, NULL) != MF_OK) {
    /* ROCm's per-thread stream has no number. The default stream has, and is waited for later. */
    stream = MF_STREAM_DEFAULT;
    if (mf_stream_to_number(&q->device, stream, &q->number, NULL) != MF_OK) return;
  }
  q->what |= ASK_STREAM;
  request->ordered = true;
  request->ready_on = q->device;
  request->ready = stream;
}

static int read_device_pair(PyObject *pair, DLDevice *out) {
  if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) return 0;
  if (core_device_pair(pair, out) < 0) return answer_is_no() ? 0 : -1;
  return 1;
}

/* An array without its memory fails at whatever needs it first: JAX's deleted ones say that a None has no length. Where
 * x knows that it was deleted, the exception says so. */
static int explain_deleted(const core_import *request) {
  PyObject *type, *value, *traceback;
  if (!answer_is_set()) return -1;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *answer = PyObject_CallMethod(request->x, "is_deleted", NULL);
  const int deleted = answer == NULL ? -1 : PyObject_IsTrue(answer);
  Py_XDECREF(answer);
  if (deleted > 0)
    core_refuse(request->state, "from_dlpack: the '%s' was deleted (its is_deleted() says so), and has no memory",
                Py_TYPE(request->x)->tp_name);
  if (deleted > 0 || !answer_is_no())
    core_chain(type, value, traceback);
  else
    PyErr_Restore(type, value, traceback);
  return -1;
}

/* Asks x for its device: 1, 0 if it does not say (or says nonsense), or -1 with its exception. */
static int ask_place(const core_import *request, DLDevice *out) {
  *out = (DLDevice){.device_type = kDLCPU, .device_id = 0};
  if (request->host) return 1;
  PyObject *method = PyObject_GetAttr(request->x, request->state->names[NAME_DLPACK_DEVICE]);
  if (method == NULL) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    PyErr_Clear();
    return 0;
  }
  PyObject *pair = PyCallable_Check(method) ? PyObject_CallNoArgs(method) : method;
  if (pair != method) Py_DECREF(method);
  if (pair == NULL) return explain_deleted(request);
  const int known = read_device_pair(pair, out);
  Py_DECREF(pair);
  return known;
}

static PyObject *ask_here(core_import *request, DLDevice where, int what) {
  question q = {.what = what, .device = where};
  choose_stream(request, &q);
  request->promised = (what & ASK_COPY) != 0 || request->copy < 0;
  PyObject *capsule = call(request, &q);
  if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) capsule = call_again(request, &q);
  return capsule;
}

/* Asks for memory on another device than x is on. If the producer does not copy it there, the import does. */
static PyObject *ask_elsewhere(core_import *request, DLDevice where, int what) {
  question q = {.what = what | ASK_DL_DEVICE, .device = request->device};
  PyObject *type, *value, *traceback;
  if (request->host) return ask_here(request, where, 0);
  choose_stream(request, &q);
  request->promised = true;
  PyObject *capsule = call(request, &q);
  if (capsule != NULL) return capsule;
  if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_TypeError) &&
      !PyErr_ExceptionMatches(PyExc_ValueError) && !PyErr_ExceptionMatches(PyExc_NotImplementedError))
    return NULL;
  PyErr_Fetch(&type, &value, &traceback);
  capsule = ask_here(request, where, 0);
  core_chain(type, value, traceback);
  return capsule;
}

/* Asks for memory on the cpu, as it is: the call that NumPy's arrays get. */
static PyObject *ask_host(core_import *request) {
  core_state *state = request->state;
  PyObject *stack[3] = {NULL, request->x, state->max_version};
  question q = {.device = {.device_type = kDLCPU}};
  PyObject *capsule = call_method(request, stack + 1, 1, state->dlpack_kw[0]);
  return capsule != NULL || !PyErr_ExceptionMatches(PyExc_TypeError) ? capsule : call_again(request, &q);
}

/* What x.__dlpack__ gives. */
PyObject *core_ask(core_import *request) {
  DLDevice where;
  if (request->host && !request->placed && request->copy < 0) return ask_host(request);
  int what = request->copy >= 0 ? ASK_COPY : 0;
  const int known = ask_place(request, &where);
  if (known < 0) return NULL;
  if (known == 0 && request->placed) where = request->device;
  if (request->placed && !core_same_device(where, request->device)) return ask_elsewhere(request, where, what);
  if (request->placed) what |= ASK_DL_DEVICE;
  return ask_here(request, where, what);
}
