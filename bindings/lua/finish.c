/* finish.c: the end of a Python that Lua started: by the process's end, or earlier because the program says so.
 *
 * Python is never finalised: extension modules and their threads do not survive that, and the system takes everything
 * back anyway. Invariant: threads are waited for and exit functions run once, whoever comes first; whatever was loaded
 * is still there then. Must not know: Lua values, tensors. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_DEFAULT */
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../bridge/open.h"
#include "start.h"

/* Taken by whoever ends Python, for as long as that takes; recursive, because an exit function may end the process. */
static pthread_mutex_t ending;
static int has_begun, is_done;

/* Whether Python is ours to end. */
static int is_watched;

/* Whether the end of the main thread begins with our farewell; another thread's call of exit does not. */
static int main_will_tell;

/* In a child that another thread than main has forked: that one is the main thread, and others may go on after it. */
static int main_is_gone;

/* A failure can only be printed any more. The module is loaded where a program has forgotten it. */
static void run_exit_functions(void) {
  PyObject *module = PyImport_ImportModuleLevel("atexit", NULL, NULL, NULL, 0);
  PyObject *result = module != NULL ? PyObject_CallMethod(module, "_run_exitfuncs", NULL) : NULL;
  if (result == NULL) PyErr_WriteUnraisable(module);
  Py_DecRef(result);
  Py_DecRef(module);
}

static int is_closed(PyObject *file) {
  PyObject *closed = PyObject_GetAttrString(file, "closed");
  const int is = closed != NULL ? PyObject_IsTrue(closed) : 0;
  PyErr_Clear();
  Py_DecRef(closed);
  return is > 0;
}

/* What cannot be written is lost, and who reads the errors should know; there is no place to say that of stderr. */
static void flush(const char *stream, int is_told) {
  PyObject *file = PySys_GetObject(stream);
  if (file == NULL || file == Py_None) return;
  Py_IncRef(file); /* its methods may be Python code, which may replace it */
  PyObject *result = is_closed(file) ? NULL : PyObject_CallMethod(file, "flush", NULL);
  if (PyErr_Occurred() && is_told) PyErr_WriteUnraisable(file);
  PyErr_Clear();
  Py_DecRef(result);
  Py_DecRef(file);
}

/* Waits for Python's threads that are no daemons, up to `seconds` unless that is negative; `late`: who has not ended.
 * To CPython the main thread is the one that started Python, or (up to 3.12) that imported threading first.
 * threading._shutdown waits for that one, for ever unless it is the caller or gone: so whoever calls is the main thread
 * from then on. Later CPythons mark it as ended themselves. A thread of Python's that calls exit has a lock in the set
 * of those to wait for, its own (up to 3.12). */
static const char await_threads[] =
    "def shutdown():\n"
    "    lock = getattr(threading._main_thread, '_tstate_lock', None)\n"
    "    if lock is not None and lock.locked():\n"
    "        threading._main_thread._ident = threading.get_ident()\n"
    "    own = getattr(threading.current_thread(), '_tstate_lock', None)\n"
    "    getattr(threading, '_shutdown_locks', set()).discard(own)\n"
    "    threading._shutdown()\n"
    "if seconds < 0:\n"
    "    shutdown()\n"
    "else:\n"
    "    ended = threading.Event()\n"
    "    def wait():\n"
    "        try: shutdown()\n"
    "        finally: ended.set()\n"
    "    waiter = threading.Thread(target=wait, name='moonferry.finish', daemon=True)\n"
    "    try:\n"
    "        waiter.start()\n"
    "        ended.wait(seconds)\n"
    "    finally:\n"
    "        late = [t for t in threading.enumerate() if not (t.daemon or t is threading.main_thread())]\n"
    "        if not ended.is_set(): late = late or [waiter]\n";

enum { FOR_EVER = -1 };

/* Returns how many threads are late: where that cannot be found out, as if one were. Ctrl-C may end the waiting. */
static int32_t wait_for_threads(double seconds) {
  PyObject *threading = PyDict_GetItemString(PyImport_GetModuleDict(), "threading");
  if (threading == NULL || threading == Py_None) return 0;
  PyObject *names = PyDict_New(), *limit = PyFloat_FromDouble(seconds);
  const int ready = names != NULL && limit != NULL && PyDict_SetItemString(names, "seconds", limit) == 0 &&
                    PyDict_SetItemString(names, "threading", threading) == 0;
  if (!ready || mf__run_code(await_threads, names) != 0) PyErr_WriteUnraisable(threading);
  PyObject *late = names != NULL ? PyDict_GetItemString(names, "late") : NULL;
  const Py_ssize_t count = late != NULL ? PyList_Size(late) : 1;
  Py_DecRef(limit);
  Py_DecRef(names);
  return (int32_t)count;
}

/* What the end of a Python program does, as far as it can be done without finalising. Whoever ends it may have an
 * exception pending. */
static int32_t end_program(double seconds) {
  const aside exception = aside_begin();
  mf__refs_drain();
  int32_t late = wait_for_threads(seconds);
  run_exit_functions();
  flush("stdout", 1);
  flush("stderr", 0);
  mf__refs_drain();
  aside_end(exception);
  return late;
}

/* CPython 3.11 ends the process where a thread state is made and none is left. That can be in the child of a fork: it
 * has that of the thread which forked alone, and Python deletes it where the thread ends, if it is Python's. */
static int has_thread_state(void) {
  PyInterpreterState *(*main_interpreter)(void);
  PyThreadState *(*head)(PyInterpreterState *);
  *(void **)&main_interpreter = dlsym(RTLD_DEFAULT, "PyInterpreterState_Main"); /* outside of the limited API */
  *(void **)&head = dlsym(RTLD_DEFAULT, "PyInterpreterState_ThreadHead");
  return main_interpreter == NULL || head == NULL || head(main_interpreter()) != NULL;
}

/* Another thread's is deleted where its outermost PyGILState_Ensure is undone. This one is never undone. */
static PyObject *keep_thread_state(PyObject *self, PyObject *unused) {
  (void)self;
  (void)unused;
  (void)PyGILState_Ensure();
  Py_INCREF(Py_None);
  return Py_None;
}

/* Whatever fails here is missed in the child of a fork alone. */
static void keep_thread_state_in_children(void) {
  static PyMethodDef keeper = {"keep_thread_state", keep_thread_state, METH_NOARGS, NULL};
  PyObject *names = PyDict_New(), *hook = PyCFunction_New(&keeper, NULL);
  const int ready = names != NULL && hook != NULL && PyDict_SetItemString(names, "hook", hook) == 0;
  if (ready) mf__run_code("import os\nos.register_at_fork(after_in_child=hook)\n", names);
  PyErr_Clear();
  Py_DecRef(hook);
  Py_DecRef(names);
}

/* Whether there is anything left to do; the mutex is ours then. A farewell that has begun and not ended is another
 * thread's, which may wait for this one, or it goes on below: an exit function of Python's has ended the process. */
static int begin_farewell(void) {
  if (!Py_IsInitialized() || !has_thread_state()) return 0;
  if (is_done) return mf__door != MF__DOOR_GONE && pthread_mutex_trylock(&ending) == 0;
  pthread_mutex_lock(&ending);
  return 1;
}

/* At the process's end. The GIL is kept: no thread must run Python while the libraries under it are torn down. Who is
 * waited for may have to go through Lua, which has called exit here; a daemon that is there by then stays. */
static void farewell(void) {
  if (!begin_farewell()) return;
  int first = !has_begun;
  has_begun = is_done = 1;
  (void)PyGILState_Ensure();
  if (first) {
    mf__locks_give_up();
    end_program(FOR_EVER);
  }
  mf__door = MF__DOOR_GONE;
  pthread_mutex_unlock(&ending);
}

static void farewell_of_thread(void *unused) {
  (void)unused;
  farewell();
}

enum { MILLISECOND = 1000000, SECOND = 1000000000 }; /* in nanoseconds */

static int refuse_inside(mf_error *err) {
  if (err == NULL) return MF_EINVAL;
  *err = (mf_error){.status = MF_EINVAL};
  snprintf(err->message, sizeof err->message, "Python cannot be ended from inside of one of its calls");
  return MF_EINVAL;
}

/* A body of Lua's may be the caller, and is inside itself then. */
static int finish(int32_t wait_ms, int32_t *late, mf_error *err) {
  const int own = mf__top != NULL;
  if (own && (mf__top->below != NULL || mf__top->is_call_in)) return refuse_inside(err);
  if (!Py_IsInitialized()) return MF_OK;
  const int64_t end = mf__now() + (int64_t)wait_ms * MILLISECOND;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyThreadState *thread = PyEval_SaveThread();
  pthread_mutex_lock(&ending); /* waited for without the GIL */
  PyEval_RestoreThread(thread);
  if (!has_begun) {
    has_begun = 1;
    *late = mf__door_close(own, wait_ms);
    const int64_t left = end - mf__now();
    *late += end_program(left > 0 ? (double)left / SECOND : 0);
    mf__door = MF__DOOR_GONE;
  }
  PyGILState_Release(gil);
  pthread_mutex_unlock(&ending);
  return MF_OK;
}

static int collect(mf_error *err) {
  (void)err;
  if (!mf__refs_wait() || !Py_IsInitialized() || mf__door == MF__DOOR_GONE) return MF_OK;
  PyGILState_STATE gil = PyGILState_Ensure();
  mf__refs_drain();
  PyGILState_Release(gil);
  return MF_OK;
}

static const mf_guest guest = {collect, finish, farewell};

/* At exit first the calling thread's thread_local objects die, then the handlers of atexit run, among them
 * the destructors of libraries; each in the reverse order of registration. Python's exit functions need
 * what both destroy (JAX's do), so the farewell is registered as either, and again after whatever may have
 * registered more; the first to run does it. Only the main thread's end is the end of the process. */
void mf__python_arm_farewell(void) {
  int (*at_thread_exit)(void (*)(void *), void *, void *);
  if (!is_watched) return;
  *(void **)&at_thread_exit = dlsym(RTLD_DEFAULT, "__cxa_thread_atexit_impl");
  const int on_main = !main_is_gone && mf__on_main_thread();
  if (at_thread_exit && on_main && at_thread_exit(farewell_of_thread, NULL, &is_done) == 0) main_will_tell = 1;
  atexit(farewell);
}

/* Where another thread than main leaves, or main does not tell, an exit function that is younger than those of all
 * libraries is the best that there is: ours is registered anew after each loading. What a library registers while it is
 * loaded comes before that, and main may leave then: so where main does not tell, ours is also registered anew each
 * millisecond, from CPython's audit event before the loading to the same thread's next one, or its end. That may be
 * long, and each exit function takes memory for good: the pauses grow with the time that has passed, to a sixteenth of
 * it. */
static struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  pthread_key_t end_of_thread;
  int64_t pause; /* nanoseconds */
  int has_thread, has_key;
  int count; /* of threads that load */
} loading;

static _Thread_local int loads;

static void *stay_young(void *unused) {
  (void)unused;
  pthread_mutex_lock(&loading.mutex);
  for (;;) {
    while (loading.count == 0) pthread_cond_wait(&loading.changed, &loading.mutex);
    atexit(farewell);
    mf__condition_wait(&loading.changed, &loading.mutex, mf__now() + loading.pause);
    loading.pause += loading.pause / 16;
  }
  return NULL;
}

/* Signals are blocked in the thread, because they are for the program's. */
static void start_thread(void) {
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  loading.has_thread = pthread_create(&thread, NULL, stay_young, NULL) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (loading.has_thread) pthread_detach(thread);
}

/* What another thread does says nothing of what this one loads, which may leave as soon as it goes on in Lua. */
static void leave_loading(void) {
  if (!loads) return;
  loads = 0;
  pthread_mutex_lock(&loading.mutex);
  if (--loading.count == 0) mf__on_way_out = NULL;
  pthread_mutex_unlock(&loading.mutex);
  atexit(farewell);
}

static void leave_with_thread(void *unused) {
  (void)unused;
  leave_loading();
}

static void set_loading(void) {
  pthread_mutex_lock(&loading.mutex);
  if (!main_will_tell && !loading.has_thread) start_thread();
  loading.count += !loads;
  loads = 1;
  loading.pause = MILLISECOND;
  mf__on_way_out = leave_loading;
  pthread_cond_signal(&loading.changed);
  pthread_mutex_unlock(&loading.mutex);
  if (loading.has_key) pthread_setspecific(loading.end_of_thread, &loading);
}

/* An extension module raises two events of this name; the second knows its file, and comes before that is loaded. Code
 * of other modules may load a library by itself, which ctypes tells. */
static int on_audit(const char *event, PyObject *arguments, void *unused) {
  (void)unused;
  const int is_import = strcmp(event, "import") == 0, is_load = strcmp(event, "ctypes.dlopen") == 0;
  const int names_file = is_import && PyTuple_Size(arguments) > 1 && PyTuple_GetItem(arguments, 1) != Py_None;
  if (is_load || names_file) {
    set_loading();
  } else {
    leave_loading();
  }
  return 0;
}

static void make_mutexes(void) {
  pthread_mutexattr_t recursive;
  pthread_mutexattr_init(&recursive);
  pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&ending, &recursive);
  pthread_mutexattr_destroy(&recursive);
  pthread_mutex_init(&loading.mutex, NULL);
  mf__condition_init(&loading.changed);
  loading.has_thread = loading.count = loads = 0;
  mf__on_way_out = NULL;
}

static pthread_t main_thread;
static int knows_main_thread;

/* The main thread of a child is the one that forked. */
static void before_fork(void) {
  if (!mf__on_main_thread()) return;
  main_thread = pthread_self();
  knows_main_thread = 1;
}

/* Neither whoever was ending Python nor the thread above is there, and main may not be either. */
static void in_child(void) {
  make_mutexes();
  if (!knows_main_thread || !pthread_equal(main_thread, pthread_self())) main_is_gone = 1;
  if (main_is_gone) main_will_tell = 0;
}

void mf__python_watch_for_the_end(void) {
  make_mutexes();
  loading.has_key = pthread_key_create(&loading.end_of_thread, leave_with_thread) == 0;
  is_watched = 1;
  pthread_atfork(before_fork, NULL, in_child);
  keep_thread_state_in_children();
  mf__python_arm_farewell();
  if (mf_guest_set(&guest)) main_will_tell = 1;
  int (*add_hook)(int (*)(const char *, PyObject *, void *), void *);
  *(void **)&add_hook = dlsym(RTLD_DEFAULT, "PySys_AddAuditHook"); /* outside of the limited API */
  if (add_hook != NULL) add_hook(on_audit, NULL);
}
