/* start.c: how CPython comes to run inside a process that Lua hosts.
 *
 * Starts an interpreter unless one runs already; finish.c sees it off. Invariant: after mf__python_start no thread of
 * ours holds the GIL. Must not know: Lua values, tensors. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr, RTLD_DEFAULT */
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "../bridge/open.h"
#include "start.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int started_here;

static void *symbol(const char *name) {
  return dlsym(RTLD_DEFAULT, name);
}

/* PyPreConfig (PEP 587) of CPython 3.8 to 3.13 off Windows, which the limited API leaves out. */
typedef struct preconfig {
  int kind, parse_argv, isolated, use_environment, configure_locale, coerce_c_locale, coerce_c_locale_warn, utf8_mode,
      dev_mode, allocator;
  int room[16]; /* no CPython fills it; one that is newer than we know would */
} preconfig;

/* What comes before all else: which encodings Python works with. The host's locale stays as it is. */
static void choose_encodings(void) {
  void (*begin)(preconfig *);
  typedef struct status { /* PyStatus */
    int type;
    const char *function, *message;
    int exit_code;
  } status;
  status (*run)(const preconfig *);
  preconfig config = {0};
  *(void **)&begin = symbol("PyPreConfig_InitPythonConfig");
  *(void **)&run = symbol("Py_PreInitialize");
  if (begin == NULL || run == NULL) return;
  begin(&config);
  config.parse_argv = config.configure_locale = config.coerce_c_locale = 0;
  config.utf8_mode = mf__python_utf8_mode();
  (void)run(&config); /* what it refuses, the start itself refuses with its words */
}

/* Starts a CPython older than PEP 741, which finds a virtual environment by the program's name. */
static int start_named(const char *program, char *why, size_t cap) {
  void (*set_program_name)(const wchar_t *);
  choose_encodings();
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

int mf__python_is_guest(void) {
  return started_here;
}

void mf__python_imported(void) {
  static _Atomic(Py_ssize_t) known;
  if (started_here && mf__on_main_thread()) mf__interrupt_arm();
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

int mf__python_start(const char *program, char *why, size_t cap) {
  int status = 0;
  mf__python_pin(symbol("Py_IsInitialized"), RTLD_GLOBAL);
  /* A thread of Python's needs no start: this one may be in it, in what Python runs then (sitecustomize). */
  if (PyGILState_GetThisThreadState() != NULL) return 0;
  pthread_mutex_lock(&lock);
  if (!Py_IsInitialized()) {
    status = mf__python_configured(program, why, cap);
    if (status == 0) status = start_named(program, why, cap);
    if (status == 1) {
      started_here = 1;
      if (mf__on_main_thread()) mf__interrupt_arm();
      mf__python_watch_for_the_end();
      PyEval_SaveThread();
    }
  }
  pthread_mutex_unlock(&lock);
  return status;
}
