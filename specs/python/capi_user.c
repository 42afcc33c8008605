/* capi_user.c: a small extension of somebody else's that uses moonferry_python.h, as its users would.
 *
 * It makes tensors with the C API and hands them to Python, takes tensors from Python and reads them. The
 * spec (test_capi.py) compiles it and calls it. */
#define PY_SSIZE_T_CLEAN
#include <moonferry_python.h>

static const mf_python_api *moonferry;

static PyObject *make(PyObject *self, PyObject *arg) {
  int64_t shape[1] = {PyLong_AsLongLong(arg)};
  DLTensor like = {.ndim = 1, .shape = shape, .dtype = {kDLInt, 64, 1}};
  mf_tensor *t;
  mf_error err;
  (void)self;
  if (shape[0] == -1 && PyErr_Occurred()) return NULL;
  if (mf_tensor_create(&like, 0, &t, &err) != MF_OK) return PyErr_Format(PyExc_ValueError, "%s", err.message);
  for (int64_t i = 0; i < shape[0]; i++) ((int64_t *)mf_tensor_dltensor(t)->data)[i] = i * i;
  PyObject *obj = moonferry->wrap(t);
  if (obj == NULL) mf_tensor_release(t);
  return obj;
}

static PyObject *total(PyObject *self, PyObject *arg) {
  mf_tensor *t = moonferry->unwrap(arg);
  long long sum = 0;
  (void)self;
  if (t == NULL) return NULL;
  const DLTensor *view = mf_tensor_dltensor(t);
  for (int64_t i = 0; i < view->shape[0]; i++) sum += ((const int64_t *)view->data)[i * view->strides[0]];
  return PyLong_FromLongLong(sum);
}

static PyObject *is_tensor(PyObject *self, PyObject *arg) {
  (void)self;
  return PyBool_FromLong(moonferry->check(arg));
}

static PyMethodDef functions[] = {
    {"make", make, METH_O, NULL},
    {"total", total, METH_O, NULL},
    {"is_tensor", is_tensor, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "capi_user", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_capi_user(void) {
  moonferry = mf_python_import();
  PyObject *self = moonferry == NULL ? NULL : PyModule_Create(&module);
#ifdef Py_GIL_DISABLED
  if (self != NULL) PyUnstable_Module_SetGIL(self, Py_MOD_GIL_NOT_USED);
#endif
  return self;
}
