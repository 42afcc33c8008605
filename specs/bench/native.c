/* native.c: the rows of the benchmark that must be timed in C: the slots of an exchange table, and a large
 * contiguous copy beside memcpy. Times are nanoseconds a call, with the cost of the loop taken off. Knows
 * the exchange table and the public header only. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>
#include <time.h>

#include "moonferry.h"

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int nothing(void *object, void *out) {
  (void)object;
  (void)out;
  return 0;
}

/* Volatile, so that the compiler must load it and call through it, as a consumer of a table does. */
static int (*volatile nothing_ptr)(void *, void *) = nothing;

static const DLPackExchangeAPI *table_of(PyObject *object) {
  PyObject *capsule = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__dlpack_c_exchange_api__");
  if (!capsule) return NULL;
  const DLPackExchangeAPI *table = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  Py_DECREF(capsule);
  return table;
}

/* What the loop alone takes: the least of several, so that an interrupted one takes nothing off a row. */
static double loop_ns(long n) {
  double best = 1e18;
  for (int round = 0; round < 5; round++) {
    const double start = now_ns();
    for (long i = 0; i < n; i++) __asm__ volatile("" ::: "memory");
    const double spent = now_ns() - start;
    if (spent < best) best = spent;
  }
  return best;
}

static PyObject *empty_call(PyObject *self, PyObject *args) {
  long n;
  (void)self;
  if (!PyArg_ParseTuple(args, "l", &n)) return NULL;
  DLTensor out;
  const double start = now_ns();
  for (long i = 0; i < n; i++) {
    nothing_ptr(args, &out);
    __asm__ volatile("" ::: "memory");
  }
  const double spent = now_ns() - start - loop_ns(n);
  return PyFloat_FromDouble(spent / (double)n);
}

static PyObject *borrowed(PyObject *self, PyObject *args) {
  PyObject *object;
  long n;
  (void)self;
  if (!PyArg_ParseTuple(args, "Ol", &object, &n)) return NULL;
  const DLPackExchangeAPI *table = table_of(object);
  if (!table) return NULL;
  DLTensor out;
  const double start = now_ns();
  for (long i = 0; i < n; i++) {
    if (table->dltensor_from_py_object_no_sync(object, &out)) return NULL;
    __asm__ volatile("" ::: "memory");
  }
  const double spent = now_ns() - start - loop_ns(n);
  return PyFloat_FromDouble(spent / (double)n);
}

static PyObject *owned(PyObject *self, PyObject *args) {
  PyObject *object;
  long n;
  (void)self;
  if (!PyArg_ParseTuple(args, "Ol", &object, &n)) return NULL;
  const DLPackExchangeAPI *table = table_of(object);
  if (!table) return NULL;
  const double start = now_ns();
  for (long i = 0; i < n; i++) {
    DLManagedTensorVersioned *out;
    if (table->managed_tensor_from_py_object_no_sync(object, &out)) return NULL;
    out->deleter(out);
  }
  const double spent = now_ns() - start - loop_ns(n);
  return PyFloat_FromDouble(spent / (double)n);
}

/* (nanoseconds of mf_tensor_copy, nanoseconds of memcpy), the least of so many rounds, in turn. */
static PyObject *copies(PyObject *self, PyObject *args) {
  long long nbytes;
  int rounds;
  (void)self;
  if (!PyArg_ParseTuple(args, "Li", &nbytes, &rounds)) return NULL;
  int64_t shape[1] = {nbytes};
  DLTensor like = {.ndim = 1, .shape = shape, .dtype = {kDLUInt, 8, 1}};
  mf_tensor *a = NULL, *b = NULL;
  mf_error err;
  if (mf_tensor_create(&like, 0, &a, &err) || mf_tensor_create(&like, 0, &b, &err)) {
    mf_tensor_release(a);
    return PyErr_Format(PyExc_MemoryError, "%s", err.message);
  }
  void *to = mf_tensor_dltensor(b)->data;
  const void *from = mf_tensor_dltensor(a)->data;
  memset(mf_tensor_dltensor(a)->data, 1, (size_t)nbytes);
  memset(to, 2, (size_t)nbytes);
  double best[2] = {1e18, 1e18};
  for (int i = 0; i < rounds * 2; i++) {
    const double start = now_ns();
    if (i % 2) memcpy(to, from, (size_t)nbytes);
    else mf_tensor_copy(b, a, NULL);
    const double spent = now_ns() - start;
    if (spent < best[i % 2]) best[i % 2] = spent;
  }
  mf_tensor_release(a);
  mf_tensor_release(b);
  return Py_BuildValue("dd", best[0], best[1]);
}

static PyMethodDef methods[] = {
    {"empty_call", empty_call, METH_VARARGS, "empty_call(n): an empty call through a pointer."},
    {"borrowed", borrowed, METH_VARARGS, "borrowed(tensor, n): the slot that fills a DLTensor."},
    {"owned", owned, METH_VARARGS, "owned(tensor, n): the slot that gives a managed tensor, and its deleter."},
    {"copies", copies, METH_VARARGS, "copies(nbytes, rounds): mf_tensor_copy and memcpy."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "bench_native", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_bench_native(void) {
  return PyModuleDef_Init(&module);
}
