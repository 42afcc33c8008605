/* table.c: __dlpack_c_exchange_api__, Moonferry's own table, and moonferry.into, which uses others'.
 *
 * Invariant: the table is static, stamped 1.3 and lives for ever; all its slots work; none waits for a
 * device. A slot gets no module, so what it needs to know it finds through the tensor's type, or through
 * the one module of the interpreter. It must not know about capsules of single tensors.
 *
 * Standard: DLPack 1.3, C exchange API.
 */
#include "core.h"

#include <stdatomic.h>
#include <stdlib.h>

typedef void (*set_error_fn)(void *error_ctx, const char *kind, const char *message);

/* "No sync" means that the memory is ready on the stream that current_work_stream names, which is our current one. */
static const mf_request as_is = {.stream = MF_STREAM_CURRENT};

/* Needs neither the GIL nor an interpreter: an error goes to ${set_error}. */
static int table_allocate(DLTensor *prototype, DLManagedTensorVersioned **out, void *error_ctx,
                          set_error_fn set_error) {
  mf_tensor *t;
  mf_error err;
  *out = NULL;
  int status = mf_tensor_create(prototype, 0, &t, &err);
  if (status == MF_OK) {
    status = mf_tensor_export_to(t, &as_is, out, &err);
    mf_tensor_release(t);
  }
  if (status == MF_OK) return 0;
  if (set_error != NULL) set_error(error_ctx, status == MF_ENOMEM ? "MemoryError" : "BufferError", err.message);
  return -1;
}

static int not_a_tensor(PyObject *obj) {
  PyErr_Format(PyExc_TypeError, "expected a moonferry.Tensor, not '%s'", Py_TYPE(obj)->tp_name);
  return -1;
}

static int refuse(PyObject *obj, const mf_error *err) {
  return core_raise_exchange(core_state_of_tensor(obj), err, "__dlpack_c_exchange_api__", NULL);
}

/* Makes the host wait as well for pinned memory, which other libraries use as memory of the host. */
static int wait_if_pinned(mf_tensor *t, mf_error *err) {
  const DLDeviceType type = mf_tensor_dltensor(t)->device.device_type;
  const int32_t use = (mf_tensor_flags(t) & DLPACK_FLAG_BITMASK_READ_ONLY) != 0 ? MF_READ : MF_WRITE;
  if (type != kDLCUDAHost && type != kDLROCMHost) return MF_OK;
  return core_acquire(t, MF_STREAM_HOST, use, err);
}

static int export_ordered(mf_tensor *t, const mf_request *ask, DLManagedTensorVersioned **out, mf_error *err) {
  const int status = wait_if_pinned(t, err);
  return status == MF_OK ? mf_tensor_export_to(t, ask, out, err) : status;
}

/* Of memory for which somebody may have to wait. */
static int from_py_ordered(PyObject *obj, DLManagedTensorVersioned **out, mf_error *err) {
  if (core_enter(obj) < 0) return -1;
  mf_tensor *t = core_handle(obj);
  const bool here = mf_tensor_dltensor(t)->device.device_type == kDLCPU;
  const int status = here ? core_export(t, 0, out, err) : export_ordered(t, &as_is, out, err);
  core_leave(obj);
  return status == MF_OK ? 0 : refuse(obj, err);
}

static int table_from_py(void *py_object, DLManagedTensorVersioned **out) {
  mf_error err;
  *out = NULL;
  if (!core_is_tensor(py_object)) return not_a_tensor(py_object);
  if (core_look(py_object) < 0) return -1;
  mf_tensor *t = core_handle(py_object);
  const bool ordered = core_may_wait(t);
  const int status = ordered ? MF_OK : mf_tensor_export(t, 0, out, &err);
  core_look_end(py_object);
  if (ordered) return from_py_ordered(py_object, out, &err);
  return status == MF_OK ? 0 : refuse(py_object, &err);
}

/* Takes the struct over always: on failure it is deleted. */
static int table_to_py(DLManagedTensorVersioned *managed, void **out) {
  core_state *state = core_state_current();
  mf_tensor *t = NULL;
  mf_error err;
  *out = NULL;
  if (state != NULL && mf_tensor_import(managed, &t, &err) != MF_OK)
    core_raise_exchange(state, &err, "__dlpack_c_exchange_api__", NULL);
  if (t == NULL) {
    core_delete_managed(managed);
    return -1;
  }
  *out = core_tensor_new(state, t);
  return *out == NULL ? -1 : 0;
}

/* The borrower may write, which a DLTensor cannot forbid: mf_tensor_borrow refuses read-only memory. A function of its
 * own, so that the usual case does not pay for the error on the stack. */
static int borrow_otherwise(PyObject *obj, DLTensor *out) {
  mf_error err;
  if (core_look(obj) < 0) return -1;
  mf_tensor *t = core_handle(obj);
  core_lend(obj); /* from now on the handle stays */
  core_look_end(obj);
  const bool here = mf_tensor_dltensor(t)->device.device_type == kDLCPU;
  PyThreadState *saved = here && core_may_wait(t) ? PyEval_SaveThread() : NULL;
  int status = mf_tensor_borrow(t, out, &err); /* which orders the use of it on the current stream */
  if (saved != NULL) PyEval_RestoreThread(saved);
  if (status == MF_OK) status = wait_if_pinned(t, &err);
  return status == MF_OK ? 0 : refuse(obj, &err);
}

static int table_borrow(void *py_object, DLTensor *out) {
  if (!core_is_tensor(py_object)) return not_a_tensor(py_object);
  if (core_look(py_object) < 0) return -1;
  mf_tensor *t = core_handle(py_object);
  const bool done = !core_may_wait(t) && mf_tensor_borrow(t, out, NULL) == MF_OK;
  if (done) core_lend(py_object);
  core_look_end(py_object);
  return done ? 0 : borrow_otherwise(py_object, out);
}

static int table_current_stream(DLDeviceType device_type, int32_t device_id, void **out) {
  const DLDevice device = {.device_type = device_type, .device_id = device_id};
  mf_stream stream;
  mf_error err;
  *out = NULL;
  if (device_type == kDLCPU) return 0;
  core_state *state = core_state_current();
  if (state == NULL) return -1;
  if (mf_stream_current(&device, &stream, &err) != MF_OK)
    return core_raise_exchange(state, &err, "current_work_stream", NULL);
  *out = (void *)(intptr_t)core_stream_handle(device, stream);
  return 0;
}

static const DLPackExchangeAPI table = {
    .header = {.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION}, .prev_api = NULL},
    .managed_tensor_allocator = table_allocate,
    .managed_tensor_from_py_object_no_sync = table_from_py,
    .managed_tensor_to_py_object_no_sync = table_to_py,
    .dltensor_from_py_object_no_sync = table_borrow,
    .current_work_stream = table_current_stream,
};

int core_table_publish(PyTypeObject *type) {
  PyObject *capsule = PyCapsule_New((void *)&table, "dlpack_exchange_api", NULL);
  if (capsule == NULL) return -1;
  int rc = PyObject_SetAttrString((PyObject *)type, "__dlpack_c_exchange_api__", capsule);
  Py_DECREF(capsule);
  return rc;
}

/* DLPack says that to_py takes its tensor over, not what happens if it fails; libraries differ. So they get
 * a struct whose deleter may run once more than it should, or never, without harm. Plain malloc, because
 * the deleter may outlive the interpreter. */
typedef struct loan {
  DLManagedTensorVersioned outer;
  DLManagedTensorVersioned *inner;
  atomic_int state;
  struct loan *next; /* in the list */
} loan;

enum { LOAN_OFFERED, LOAN_TAKEN, LOAN_RETURNED };

/* Loans of takers that failed without calling the deleter, and may call it yet. */
static _Atomic(loan *) kept_loans;

/* May run on a thread of the taker's while the taker has not answered yet: whoever offers the loan frees it as soon as
 * it is marked as returned. */
static void loan_delete(DLManagedTensorVersioned *outer) {
  loan *l = outer->manager_ctx;
  DLManagedTensorVersioned *inner = l->inner;
  int before = atomic_exchange(&l->state, LOAN_RETURNED);
  if (before != LOAN_RETURNED) inner->deleter(inner);
  if (before == LOAN_TAKEN) free(l);
}

/* The stream on which the taker of ${t}, of class ${cls}, will work. */
static int taker_stream(core_state *state, PyObject *cls, const DLPackExchangeAPI *api, const mf_tensor *t,
                        mf_stream *out) {
  const DLDevice device = mf_tensor_dltensor(t)->device;
  void *handle = NULL;
  *out = MF_STREAM_CURRENT;
  if (device.device_type == kDLCPU || api->current_work_stream == NULL) return 0;
  if (api->current_work_stream(device.device_type, device.device_id, &handle) != 0)
    return PyErr_Occurred() ? -1
                            : core_refuse(state, "into: '%s' does not say on which stream it works",
                                          ((PyTypeObject *)cls)->tp_name);
  return core_stream_from_handle(device, (int64_t)(intptr_t)handle, out);
}

static loan *loan_offer(core_state *state, PyObject *cls, const DLPackExchangeAPI *api, mf_tensor *t) {
  mf_request ask = {.copy = MF_COPY_IF_NEEDED};
  mf_error err;
  if (taker_stream(state, cls, api, t, &ask.stream) < 0) return NULL;
  loan *l = malloc(sizeof *l);
  if (l == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  const bool here = mf_tensor_dltensor(t)->device.device_type == kDLCPU;
  const int status = here ? core_export(t, 0, &l->inner, &err) : export_ordered(t, &ask, &l->inner, &err);
  if (status != MF_OK) {
    core_raise_exchange(state, &err, "into", NULL);
    free(l);
    return NULL;
  }
  l->outer = *l->inner;
  l->outer.manager_ctx = l;
  l->outer.deleter = loan_delete;
  atomic_init(&l->state, LOAN_OFFERED);
  return l;
}

/* The taker failed. If it did not delete, the memory goes back now; the few bytes of the loan stay, in case
 * the taker still calls the deleter. */
static void loan_refused(loan *l) {
  int before = atomic_exchange(&l->state, LOAN_RETURNED);
  if (before == LOAN_RETURNED) {
    free(l);
    return;
  }
  core_delete_managed(l->inner);
  l->next = atomic_load(&kept_loans);
  while (!atomic_compare_exchange_weak(&kept_loans, &l->next, l)) continue;
}

/* PyTorch ends the process when its table is given a negative stride. */
static int check_strides(core_state *state, PyObject *cls, const DLTensor *view) {
  for (int32_t i = 0; i < view->ndim; i++)
    if (view->strides[i] < 0 && view->shape[i] > 1)
      return core_refuse(state,
                         "into: '%s' cannot hold negative strides (axis %d has %lld); "
                         "copy() makes a compact tensor",
                         ((PyTypeObject *)cls)->tp_name, (int)i, (long long)view->strides[i]);
  return 0;
}

/* The table of ${cls} into ${out}, NULL where it has none that can make an array. */
static int table_for(core_state *state, PyObject *cls, mf_tensor *t, const DLPackExchangeAPI **out) {
  const core_producer *producer = core_producer_of(state, (PyTypeObject *)cls);
  if (producer == NULL) return -1;
  *out = NULL;
  if (producer->api == NULL || producer->api->managed_tensor_to_py_object_no_sync == NULL) return 0;
  *out = producer->api;
  return producer->lazy ? check_strides(state, cls, mf_tensor_dltensor(t)) : 0;
}

static PyObject *without_table(PyObject *cls, PyObject *t) {
  PyObject *both = PyTuple_Pack(2, cls, t);
  PyObject *made = both != NULL ? core_call_python("moonferry._convert", "into_by_protocol", both) : NULL;
  Py_XDECREF(both);
  return made;
}

static int check_into(PyObject *const *args, Py_ssize_t nargs) {
  if (nargs != 2)
    PyErr_Format(PyExc_TypeError, "into() takes an array class and a moonferry.Tensor, got %zd argument%s", nargs,
                 nargs == 1 ? "" : "s");
  else if (!PyType_Check(args[0]))
    PyErr_Format(PyExc_TypeError, "into(): cls must be an array class such as torch.Tensor, not %R", args[0]);
  else if (!core_is_tensor(args[1]))
    PyErr_Format(PyExc_TypeError, "into(): t must be a moonferry.Tensor, not '%s'; moonferry.from_dlpack makes one",
                 Py_TYPE(args[1])->tp_name);
  else
    return 0;
  return -1;
}

/* The table's struct says that the memory is read-only, and no taker but Moonferry looks at that. */
static int warn_of_writes(const core_state *state, PyObject *cls, const mf_tensor *t) {
  if ((mf_tensor_flags(t) & DLPACK_FLAG_BITMASK_READ_ONLY) == 0 || cls == (PyObject *)state->tensor_type) return 0;
  return PyErr_WarnFormat(PyExc_UserWarning, 1,
                          "into: the tensor is read-only, which a '%s' does not know: writing to it would change the "
                          "memory; into(cls, t.copy()) makes one that may be written",
                          ((PyTypeObject *)cls)->tp_name);
}

static PyObject *into(core_state *state, PyObject *const *args) {
  mf_tensor *t = core_handle(args[1]);
  const DLPackExchangeAPI *api;
  if (table_for(state, args[0], t, &api) < 0) return NULL;
  if (api == NULL) return without_table(args[0], args[1]);
  loan *l = loan_offer(state, args[0], api, t);
  if (l == NULL) return NULL;
  void *result = NULL;
  int rc = api->managed_tensor_to_py_object_no_sync(&l->outer, &result);
  if (rc == 0 && result != NULL) {
    /* From now on the deleter call of the taker frees the loan too. */
    int offered = LOAN_OFFERED;
    if (!atomic_compare_exchange_strong(&l->state, &offered, LOAN_TAKEN)) free(l);
    if (warn_of_writes(state, args[0], t) == 0) return result;
    Py_DECREF((PyObject *)result);
    return NULL;
  }
  loan_refused(l);
  if (!PyErr_Occurred()) core_refuse(state, "into: '%s' did not take the tensor", ((PyTypeObject *)args[0])->tp_name);
  return NULL;
}

/* into(cls, t), see the docstring in module.c. */
PyObject *core_into(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  if (check_into(args, nargs) < 0 || core_enter(args[1]) < 0) return NULL;
  PyObject *made = into(core_state_of(module), args);
  core_leave(args[1]);
  return made;
}
