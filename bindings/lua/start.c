/* start.c: CPython's life inside a process that Lua hosts.
 *
 * Starts an interpreter unless one runs already, and sees it off when the process exits. It is never
 * finalised: extension modules and their threads do not survive that, and the system takes everything
 * back anyway. Invariant: after mf__python_start no thread of ours holds the GIL.
 * Must not know: Lua values, tensors. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr, RTLD_DEFAULT */
#endif
#define Py_LIMITED_API 0x03090000
#include <Python.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#ifndef __APPLE__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "start.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int started_here;

static void *symbol(const char *name) {
  return dlsym(RTLD_DEFAULT, name);
}

/* Before PEP 741 the program's name is what leads CPython to a virtual environment, and such a start looks neither at
 * PYTHONUTF8 nor at the locale. */
static int start_named(const char *program, char *why, size_t cap) {
  void (*set_program_name)(const wchar_t *);
  int *utf8_mode = symbol("Py_UTF8Mode");
  if (utf8_mode != NULL) *utf8_mode = mf__python_utf8_mode();
  *(void **)&set_program_name = symbol("Py_SetProgramName");
  wchar_t *name = program ? Py_DecodeLocale(program, NULL) : NULL;
  if (program && (name == NULL || set_program_name == NULL)) {
    snprintf(why, cap, "this libpython cannot be told which interpreter it stands for");
    return -1;
  }
  /* CPython keeps the pointer, so the name is never freed. */
  if (name) set_program_name(name);
  Py_InitializeEx(0);
  return 1;
}

/* Runs ${module}.${name}() if the module is there. A failure can only be printed any more. */
static void call_if_loaded(const char *module, const char *name) {
  PyObject *modules = PyImport_GetModuleDict();
  PyObject *owner = PyDict_GetItemString(modules, module);
  PyObject *result = owner ? PyObject_CallMethod(owner, name, NULL) : NULL;
  if (owner && result == NULL) PyErr_WriteUnraisable(owner);
  Py_DecRef(result);
}

static void flush(const char *stream) {
  PyObject *file = PySys_GetObject(stream);
  PyObject *result = file && file != Py_None ? PyObject_CallMethod(file, "flush", NULL) : NULL;
  if (result == NULL) PyErr_Clear();
  Py_DecRef(result);
}

/* To CPython the main thread is the one that started Python, or (up to 3.12) that imported threading first. At the end
 * threading._shutdown waits for that one, for ever unless it is the caller: so the thread that sees the process off is
 * the main one. Later CPythons mark it as ended themselves, whoever calls. */
static const char become_main[] =
    "import sys, _thread\n"
    "threading = sys.modules.get('threading')\n"
    "if threading is not None:\n"
    "    threading._main_thread._ident = _thread.get_ident()\n";

static void run(const char *code) {
  PyObject *names = PyDict_New(), *builtins = PyEval_GetBuiltins();
  PyObject *exec = builtins != NULL ? PyDict_GetItemString(builtins, "exec") : NULL;
  PyObject *done = names != NULL && exec != NULL ? PyObject_CallFunction(exec, "sO", code, names) : NULL;
  if (done == NULL) PyErr_WriteUnraisable(exec);
  Py_DecRef(done);
  Py_DecRef(names);
}

static void (*drain_references)(void);

/* What the end of a Python program does, as far as it can be done without finalising. The GIL is kept:
 * daemon threads must not run Python while the libraries under them are torn down. */
static void farewell(void) {
  static int done;
  if (done || !Py_IsInitialized()) return;
  done = 1;
  (void)PyGILState_Ensure();
  drain_references();
  run(become_main);
  call_if_loaded("threading", "_shutdown");
  call_if_loaded("atexit", "_run_exitfuncs");
  flush("stdout");
  flush("stderr");
}

static void farewell_of_thread(void *unused) {
  (void)unused;
  farewell();
}

static int on_main_thread(void) {
#ifdef __APPLE__
  return pthread_main_np();
#else
  return syscall(SYS_gettid) == getpid();
#endif
}

/* At exit first the calling thread's thread_local objects die, then the handlers of atexit run, among them
 * the destructors of libraries; each in the reverse order of registration. Python's exit functions need
 * what both destroy (JAX's do), so the farewell is registered as either, and again after whatever may have
 * registered more; the first to run does it. Only the main thread's end is the end of the process. */
void mf__python_arm_farewell(void) {
  int (*at_thread_exit)(void (*)(void *), void *, void *);
  if (!started_here) return;
  *(void **)&at_thread_exit = symbol("__cxa_thread_atexit_impl");
  if (at_thread_exit && on_main_thread()) at_thread_exit(farewell_of_thread, NULL, &started_here);
  atexit(farewell);
}

void mf__python_imported(void) {
  static Py_ssize_t known;
  if (started_here && on_main_thread()) mf__interrupt_arm();
  Py_ssize_t count = PyDict_Size(PyImport_GetModuleDict());
  if (count == known) return;
  known = count;
  mf__python_arm_farewell();
}

void mf__python_pin(void *address, int flags) {
  Dl_info info;
  if (address == NULL || dladdr(address, &info) == 0 || info.dli_fname == NULL) return;
  dlopen(info.dli_fname, RTLD_NOW | RTLD_NODELETE | RTLD_NOLOAD | flags);
}

int mf__python_start(const char *program, void (*drain)(void), char *why, size_t cap) {
  int status = 0;
  pthread_mutex_lock(&lock);
  mf__python_pin(symbol("Py_IsInitialized"), RTLD_GLOBAL);
  if (!Py_IsInitialized()) {
    drain_references = drain;
    status = mf__python_configured(program, why, cap);
    if (status == 0) status = start_named(program, why, cap);
    if (status == 1) {
      started_here = 1;
      if (on_main_thread()) mf__interrupt_arm();
      PyEval_SaveThread();
      mf__python_arm_farewell();
    }
  }
  pthread_mutex_unlock(&lock);
  return status;
}
