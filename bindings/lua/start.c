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

/* PEP 741, in libpython from 3.14 on; spelt out because the limited API leaves it out. */
typedef struct PyInitConfig PyInitConfig;

struct init_api {
  PyInitConfig *(*create)(void);
  void (*free)(PyInitConfig *);
  int (*set_int)(PyInitConfig *, const char *, int64_t);
  int (*set_str)(PyInitConfig *, const char *, const char *);
  int (*error)(PyInitConfig *, const char **);
  int (*run)(PyInitConfig *);
};

static int load_init_api(struct init_api *api) {
  /* dlsym gives a data pointer; POSIX lets it be stored as a function's through its address. */
  *(void **)&api->create = symbol("PyInitConfig_Create");
  *(void **)&api->free = symbol("PyInitConfig_Free");
  *(void **)&api->set_int = symbol("PyInitConfig_SetInt");
  *(void **)&api->set_str = symbol("PyInitConfig_SetStr");
  *(void **)&api->error = symbol("PyInitConfig_GetError");
  *(void **)&api->run = symbol("Py_InitializeFromInitConfig");
  return api->create && api->free && api->set_int && api->set_str && api->error && api->run;
}

/* Such a configuration starts isolated; these make it what `python3` is, less its signal handlers. */
static int configure(const struct init_api *api, PyInitConfig *config, const char *program) {
  static const struct {
    const char *name;
    int64_t value;
  } options[] = {{"isolated", 0},    {"use_environment", 1},         {"user_site_directory", 1},
                 {"site_import", 1}, {"install_signal_handlers", 0}, {"utf8_mode", 1}};
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    if (api->set_int(config, options[i].name, options[i].value) != 0) return -1;
  }
  return program ? api->set_str(config, "program_name", program) : 0;
}

static int start_configured(const struct init_api *api, const char *program, char *why, size_t cap) {
  PyInitConfig *config = api->create();
  if (config == NULL) {
    snprintf(why, cap, "not enough memory");
    return -1;
  }
  int failed = configure(api, config, program) != 0 || api->run(config) != 0;
  if (failed) {
    const char *message = NULL;
    api->error(config, &message);
    snprintf(why, cap, "%s", message ? message : "CPython does not say why");
  }
  api->free(config);
  return failed ? -1 : 0;
}

/* Before PEP 741 the program's name is what leads CPython to a virtual environment. */
static int start_named(const char *program, char *why, size_t cap) {
  void (*set_program_name)(const wchar_t *);
  *(void **)&set_program_name = symbol("Py_SetProgramName");
  wchar_t *name = program ? Py_DecodeLocale(program, NULL) : NULL;
  if (program && (name == NULL || set_program_name == NULL)) {
    snprintf(why, cap, "this libpython cannot be told which interpreter it stands for");
    return -1;
  }
  /* CPython keeps the pointer, so the name is never freed. */
  if (name) set_program_name(name);
  Py_InitializeEx(0);
  return 0;
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

static void (*drain_references)(void);

/* What the end of a Python program does, as far as it can be done without finalising. The GIL is kept:
 * daemon threads must not run Python while the libraries under them are torn down. */
static void farewell(void) {
  static int done;
  if (done || !Py_IsInitialized()) return;
  done = 1;
  (void)PyGILState_Ensure();
  drain_references();
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
  struct init_api api;
  int status = 0;
  pthread_mutex_lock(&lock);
  mf__python_pin(symbol("Py_IsInitialized"), RTLD_GLOBAL);
  if (!Py_IsInitialized()) {
    drain_references = drain;
    status = load_init_api(&api) ? start_configured(&api, program, why, cap) : start_named(program, why, cap);
    if (status == 0) {
      started_here = 1;
      if (on_main_thread()) mf__interrupt_arm();
      PyEval_SaveThread();
      mf__python_arm_farewell();
      status = 1;
    }
  }
  pthread_mutex_unlock(&lock);
  return status;
}
