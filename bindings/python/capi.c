/* capi.c: moonferry._C_API, the table of moonferry_python.h.
 *
 * Invariant: members are only ever added at its end. It must not know who calls.
 */
#include "core.h"

static PyObject *api_wrap(mf_tensor *t) {
  core_state *state = core_state_current();
  if (state == NULL) return NULL;
  PyObject *obj = core_tensor_new(state, mf_tensor_retain(t));
  if (obj != NULL) mf_tensor_release(t);
  return obj;
}

static int api_check(PyObject *obj) {
  return core_is_tensor(obj);
}

static mf_tensor *api_unwrap(PyObject *obj) {
  if (core_is_tensor(obj)) {
    if (core_look(obj) < 0) return NULL;
    mf_tensor *t = core_handle(obj);
    core_lend(obj);
    core_look_end(obj);
    return t;
  }
  PyErr_Format(PyExc_TypeError, "expected a moonferry.Tensor, not '%s'", Py_TYPE(obj)->tp_name);
  return NULL;
}

static mf_tensor *api_retain(PyObject *obj) {
  if (!core_is_tensor(obj)) return api_unwrap(obj);
  if (core_look(obj) < 0) return NULL;
  mf_tensor *t = mf_tensor_retain(core_handle(obj));
  core_look_end(obj);
  return t;
}

static mf_python_api api = {
    .version = MF_PYTHON_API_VERSION,
    .size = sizeof(mf_python_api),
    .wrap = api_wrap,
    .unwrap = api_unwrap,
    .check = api_check,
    .retain = api_retain,
};

/* A new capsule around the one table. */
PyObject *core_capi(void) {
  api.build_id = mf_build_id();
  return PyCapsule_New(&api, MF_PYTHON_API_NAME, NULL);
}
