/* stop.c: ends a script that runs, from another thread or by Ctrl-C.
 *
 * A state that is to stop gets a hook that raises an error at every instruction, and keeps it until the last visit has
 * left: a script that catches the error meets it again at once, outside of what caught it. LuaJIT runs no hooks in
 * compiled code, so only a state whose compiler is off (interruptible) can always be stopped; any other stops where it
 * next calls Python. The library's own functions come to their end first: between two of their instructions a new
 * tensor may have two owners, or none. They have a number of instructions for that, because any script can name a chunk
 * as if it were the library's. Ctrl-C is the main thread's: Python's own handler only leaves a note for that thread,
 * which is in Lua; so as long as it visits an interruptible state, ours comes before Python's. It ends the main
 * thread's visits, in whichever states they are, and not those of other threads. Invariant: after the last visit has
 * left there is no hook and no reason, after the last of the main thread no handler of ours. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sigaction, syscall */
#endif
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#ifndef __APPLE__
#include <sys/syscall.h>
#endif

#include "state.h"

int mf__on_main_thread(void) {
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

int mf__stops(mf__state *state) {
  int stop = atomic_load(&state->stop);
  return stop == MF__STOP_ASKED || (stop == MF__STOP_MAIN && mf__on_main_thread());
}

/* The state of a thread that Ctrl-C has come for is to end with ${reason}, which is taken over. */
static void stop_main(mf__state *state, PyObject *reason) {
  int stop = atomic_load(&state->stop);
  if (stop != MF__STOP_ASKED) {
    PyObject *before = state->reason;
    state->reason = reason;
    reason = before;
    atomic_store(&state->stop, MF__STOP_MAIN);
  }
  mf__let_go(reason);
}

/* What Python's handlers of the signal make of it, with the GIL taken for that: their exception is the reason. Another
 * signal may come meanwhile, and then finds that none is waiting. */
static void ask_python(mf__state *state) {
  int waiting = MF__STOP_SIGNAL;
  PyThreadState *thread = mf__top->thread;
  mf__top->thread = NULL;
  if (thread != NULL) PyEval_RestoreThread(thread);
  atomic_compare_exchange_strong(&state->stop, &waiting, MF__STOP_NOT);
  PyObject *type, *value, *trace;
  int raised;
  MF__OUTSIDE(raised, PyErr_CheckSignals() != 0);
  mf__fetch_error(&type, &value, &trace);
  if (raised && value != NULL) {
    stop_main(state, value);
    value = NULL;
  }
  mf__let_go(type);
  mf__let_go(value);
  mf__let_go(trace);
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

#define GRACE 100000

static void hook(lua_State *L, lua_Debug *activation);

static void set_hook(mf__state *state) {
  if (!state->interruptible || state->L == NULL) return;
  state->grace = GRACE;
  lua_sethook(state->L, hook, LUA_MASKCOUNT, 1);
}

/* A signal may set it again at any time, so that what it is for is looked at once more. */
static void take_hook(mf__state *state) {
  if (!state->interruptible || state->L == NULL) return;
  lua_sethook(state->L, NULL, 0, 0);
  if (atomic_load(&state->stop) != MF__STOP_NOT) set_hook(state);
}

static int may_end(lua_State *L, lua_Debug *activation, mf__state *state) {
  if (state->library == NULL || state->grace == 0 || lua_getinfo(L, "S", activation) == 0) return 0;
  if (strncmp(activation->source, state->library, strlen(state->library)) != 0) return 0;
  state->grace--;
  return 1;
}

/* Runs on any thread that runs Lua in the state. */
static void hook(lua_State *L, lua_Debug *activation) {
  mf__state *state = mf__top != NULL ? mf__top->state : NULL;
  if (state == NULL) return;
  if (atomic_load(&state->stop) == MF__STOP_SIGNAL && mf__on_main_thread()) ask_python(state);
  if (atomic_load(&state->stop) == MF__STOP_NOT) take_hook(state);
  if (mf__stops(state) && !may_end(L, activation, state)) throw(L, state);
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

/* How many visits of the main thread to interruptible states there are, the thread, and the handler that was there
 * before. */
static int armed;
static pthread_t main_thread;
static struct sigaction python_action;

/* All of the states that the main thread is in: a script that Python called from another script ends, and so does the
 * other one, unless the Python code between them catches the exception. */
int mf__stop_signal(void) {
  int count = 0;
  for (const mf__frame *frame = mf__top; frame != NULL; frame = frame->below) {
    int stop = MF__STOP_NOT;
    if (frame->state == NULL || !frame->state->interruptible) continue;
    atomic_compare_exchange_strong(&frame->state->stop, &stop, MF__STOP_SIGNAL);
    if (frame->state->owner == &mf__top) set_hook(frame->state);
    count++;
  }
  return count;
}

void mf__stop_renew(mf__state *state) {
  if (atomic_load(&state->stop) == MF__STOP_NOT) return;
  if (mf__stops(state) || mf__on_main_thread()) set_hook(state);
}

void mf__stop_pause(mf__state *state) {
  int stop = atomic_load(&state->stop);
  if (stop == MF__STOP_SIGNAL || stop == MF__STOP_MAIN) lua_sethook(state->L, NULL, 0, 0);
}

static void on_signal(int number) {
  if (!mf__on_main_thread()) {
    pthread_kill(main_thread, number);
    return;
  }
  python_action.sa_handler(number);
  mf__stop_signal();
}

void mf__stop_arm(void) {
  struct sigaction action;
  if (!mf__on_main_thread()) return;
  armed++;
  if (sigaction(SIGINT, NULL, &action) != 0 || (action.sa_flags & SA_SIGINFO)) return;
  if (action.sa_handler == SIG_IGN || action.sa_handler == SIG_DFL || action.sa_handler == on_signal) return;
  python_action = action;
  main_thread = pthread_self();
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, NULL);
}

static void take_handler_back(void) {
  struct sigaction action;
  if (sigaction(SIGINT, NULL, &action) != 0) return;
  if (!(action.sa_flags & SA_SIGINFO) && action.sa_handler == on_signal) sigaction(SIGINT, &python_action, NULL);
}

static PyObject *forget(mf__state *state) {
  atomic_store(&state->stop, MF__STOP_NOT);
  take_hook(state);
  PyObject *reason = state->reason;
  state->reason = NULL;
  return reason;
}

PyObject *mf__stop_disarm(mf__state *state, int thread_left) {
  int is_main = state->interruptible && mf__on_main_thread();
  if (is_main && --armed == 0) take_handler_back();
  int stop = atomic_load(&state->stop);
  if (stop == MF__STOP_NOT) return NULL;
  return state->inside == 0 || (is_main && thread_left && stop != MF__STOP_ASKED) ? forget(state) : NULL;
}

void mf__stop_by(mf__state *state, PyObject *exception) {
  if (atomic_load(&state->stop) != MF__STOP_SIGNAL || !mf__on_main_thread()) return;
  if (!PyErr_GivenExceptionMatches(exception, PyExc_KeyboardInterrupt)) return;
  Py_IncRef(exception);
  stop_main(state, exception);
}

int mf__stopped(mf__state *state) {
  if (!mf__stops(state) || state->reason == NULL) return 0;
  PyObject *type = (PyObject *)Py_TYPE(state->reason);
  PyErr_SetObject(type, state->reason);
  return 1;
}
