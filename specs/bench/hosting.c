/* hosting.c: what a call from one language into the other cannot cost less than: lua_pcall and
 * PyObject_Vectorcall alone, in nanoseconds a call. Knows nothing of Moonferry. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <time.h>

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int run(lua_State *L, long n, double *spent) {
  if (luaL_dostring(L, "return function(a, b) return a + b end") != 0) return -1;
  const double start = now_ns();
  for (long i = 0; i < n; i++) {
    lua_pushvalue(L, -1);
    lua_pushnumber(L, 1);
    lua_pushnumber(L, 2);
    if (lua_pcall(L, 2, 1, 0) != 0 || lua_tonumber(L, -1) != 3) return -1;
    lua_pop(L, 1);
  }
  *spent = now_ns() - start;
  return 0;
}

static PyObject *lua_pcalls(PyObject *self, PyObject *args) {
  long n;
  double spent = 0;
  (void)self;
  if (!PyArg_ParseTuple(args, "l", &n)) return NULL;
  lua_State *L = luaL_newstate();
  if (!L) return PyErr_NoMemory();
  const int failed = run(L, n, &spent);
  lua_close(L);
  if (failed) return PyErr_Format(PyExc_RuntimeError, "the Lua function failed");
  return PyFloat_FromDouble(spent / (double)n);
}

static PyObject *vectorcalls(PyObject *self, PyObject *args) {
  PyObject *function;
  long n;
  (void)self;
  if (!PyArg_ParseTuple(args, "Ol", &function, &n)) return NULL;
  PyObject *numbers[] = {PyLong_FromLong(1), PyLong_FromLong(2)};
  PyObject *result = numbers[0] && numbers[1] ? Py_NewRef(Py_None) : NULL;
  const double start = now_ns();
  for (long i = 0; i < n && result; i++) {
    Py_DECREF(result);
    result = PyObject_Vectorcall(function, numbers, 2, NULL);
  }
  const double spent = now_ns() - start;
  Py_XDECREF(numbers[0]);
  Py_XDECREF(numbers[1]);
  if (!result) return NULL;
  Py_DECREF(result);
  return PyFloat_FromDouble(spent / (double)n);
}

static PyMethodDef methods[] = {
    {"lua_pcalls", lua_pcalls, METH_VARARGS, "lua_pcalls(n): a Lua function of two numbers, called from C."},
    {"vectorcalls", vectorcalls, METH_VARARGS, "vectorcalls(f, n): a Python function of two ints, called from C."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "bench_hosting", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_bench_hosting(void) {
  return PyModuleDef_Init(&module);
}
