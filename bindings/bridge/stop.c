/* stop.c: ends a script that runs, from another thread or by Ctrl-C.
 *
 * A state that is to stop gets a hook that raises an error at every instruction, and keeps it until the last visit has
 * left: a script that catches the error meets it again at once, outside of what caught it. LuaJIT runs no hooks in
 * compiled code, so only a state whose compiler is off (interruptible) can always be stopped; any other stops where it
 * next calls Python. Ctrl-C: Python's own handler only leaves a note for the main thread, which is in Lua; so as long
 * as an interruptible state runs there, ours comes before it.
 * Invariant: after the last visit has left there is no hook, no reason and no handler of ours. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sigaction, syscall */
#endif
#include <signal.h>
#include <unistd.h>
#ifndef __APPLE__
#include <sys/syscall.h>
#else
#include <pthread.h>
#endif

#include "state.h"

static int on_main_thread(void) {
  static _Thread_local int known; /* 1: no, 2: yes */
  if (known != 0) return known == 2;
#ifdef __APPLE__
  int is = pthread_main_np();
#else
  int is = syscall(SYS_gettid) == getpid();
#endif
  known = 1 + is;
  return is;
}

/* What Python's handlers of the signal make of it, with the GIL taken for that: their exception is the reason. */
static void ask_python(mf__state *state) {
  PyThreadState *thread = mf__top->thread;
  mf__top->thread = NULL;
  if (thread != NULL) PyEval_RestoreThread(thread);
  PyObject *type, *value, *trace;
  int raised = PyErr_CheckSignals() != 0;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (raised && value != NULL) {
    PyObject *before = state->reason;
    state->reason = value;
    value = before;
    atomic_store(&state->stop, MF__STOP_ASKED);
  } else {
    atomic_store(&state->stop, MF__STOP_NOT);
  }
  Py_DecRef(type);
  Py_DecRef(value);
  Py_DecRef(trace);
  mf__top->thread = thread != NULL ? PyEval_SaveThread() : NULL;
}

/* As a memory error, because that is the one that runs no message handler of xpcall: in a handler, which would run
 * inside of this hook, there are no hooks. */
static void throw(lua_State * L, mf__state *state) {
  if (state->memory != NULL) {
    state->memory->refuse = 1;
    lua_newuserdata(L, 64);
    state->memory->refuse = 0;
  }
  luaL_error(L, "interrupted");
}

static void hook(lua_State *L, lua_Debug *activation) {
  (void)activation;
  mf__state *state = mf__top != NULL ? mf__top->kit->state : NULL;
  if (state == NULL) return;
  if (atomic_load(&state->stop) == MF__STOP_SIGNAL) ask_python(state);
  if (atomic_load(&state->stop) == MF__STOP_NOT) {
    lua_sethook(L, NULL, 0, 0);
    return;
  }
  throw(L, state);
}

static void set_hook(mf__state *state) {
  if (state->interruptible && state->L != NULL) lua_sethook(state->L, hook, LUA_MASKCOUNT, 1);
}

void mf__stop(mf__state *state, PyObject *reason) {
  if (state->inside == 0 || atomic_load(&state->stop) == MF__STOP_ASKED) return;
  PyObject *before = state->reason;
  Py_IncRef(reason);
  state->reason = reason;
  atomic_store(&state->stop, MF__STOP_ASKED);
  set_hook(state);
  Py_DecRef(before);
}

/* The interruptible state that the main thread is in, and the handler that was there before. */
static mf__state *_Atomic watched;
static struct sigaction python_action;

static void on_signal(int number) {
  python_action.sa_handler(number);
  mf__state *state = watched;
  if (state == NULL) return;
  atomic_store(&state->stop, MF__STOP_SIGNAL);
  set_hook(state);
}

void mf__stop_arm(mf__state *state) {
  struct sigaction action;
  if (!state->interruptible || watched != NULL || !on_main_thread()) return;
  if (sigaction(SIGINT, NULL, &action) != 0 || (action.sa_flags & SA_SIGINFO)) return;
  if (action.sa_handler == SIG_IGN || action.sa_handler == SIG_DFL || action.sa_handler == on_signal) return;
  python_action = action;
  watched = state;
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, NULL);
}

static void take_handler_back(void) {
  struct sigaction action;
  watched = NULL;
  if (sigaction(SIGINT, NULL, &action) != 0) return;
  if (!(action.sa_flags & SA_SIGINFO) && action.sa_handler == on_signal) sigaction(SIGINT, &python_action, NULL);
}

void mf__stop_disarm(mf__state *state) {
  if (watched == state) take_handler_back();
  if (atomic_load(&state->stop) == MF__STOP_NOT) return;
  atomic_store(&state->stop, MF__STOP_NOT);
  if (state->interruptible && state->L != NULL) lua_sethook(state->L, NULL, 0, 0);
  PyObject *reason = state->reason;
  state->reason = NULL;
  Py_DecRef(reason);
}

int mf__stops(mf__state *state) {
  return atomic_load(&state->stop) == MF__STOP_ASKED;
}

int mf__stopped(mf__state *state) {
  if (!mf__stops(state) || state->reason == NULL) return 0;
  PyObject *type = (PyObject *)Py_TYPE(state->reason);
  PyErr_SetObject(type, state->reason);
  return 1;
}
