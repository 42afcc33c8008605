/* guard.c: how Lua code gets into Python and out again, and Python code into Lua.
 *
 * Invariant: outside mf__enter and mf__call_in this thread holds neither a lock nor a reference on the bridge's behalf,
 * and has the GIL exactly if it had it before, whether a body returned or raised. Knows nothing of what bodies do. */
#include <unistd.h>

#include "guard.h"

static void push_frame(mf__frame *frame, lua_State *L, mf__bridge *bridge, int is_call_in) {
  frame->below = mf__top;
  frame->L = L;
  frame->bridge = bridge;
  frame->state = bridge->state;
  frame->thread = NULL;
  frame->turn.marks = 0;
  frame->nesting = 0;
  frame->count = 0;
  frame->is_call_in = is_call_in;
  atomic_signal_fence(memory_order_release); /* a handler of a signal reads the frames */
  mf__top = frame;
  mf__collections_stop(frame);
}

void mf__outside_begin(void) {
  mf__state *state = mf__top->state;
  mf__collections_go_on(mf__top);
  mf__top->turn = mf__lock_lend(state);
  mf__section_end(&mf__top->section);
  mf__collections_catch_up();
}

/* Waits for ever, because this thread must not go on with its stack. Daemon threads end with the process. */
static void stay_outside(mf__state *state) {
  mf__unlock(state);
  PyEval_SaveThread();
  for (;;) pause();
}

int mf__is_inside(void) {
  return mf__top != NULL && mf__top->state->owner == mf__self();
}

void mf__outside_end(void) {
  mf__state *state = mf__top->state;
  mf__section_begin(&mf__top->section);
  mf__lock(state, 1);
  if (mf__state_is_over(state)) stay_outside(state);
  mf__lock_resume(state, mf__top->turn);
  mf__top->turn.marks = 0;
  mf__collections_stop(mf__top);
}

/* Kept out of line: each crossing asks whether it holds any references, and few do. A thread that closes Lua below a
 * call (os.exit in a callback) has nothing to lend: nobody can enter that Lua any more, this thread included. */
__attribute__((noinline)) static void give_back_outside(void) {
  const int inside = mf__is_inside() && !mf__state_is_over(mf__top->state);
  if (inside) mf__outside_begin();
  mf__refs_give_back();
  if (inside) mf__outside_end();
}

void mf__refs_drain(void) {
  if (mf__refs_wait()) give_back_outside();
}

/* Without the GIL whoever else has it may give it back at any moment. */
static int is_held_elsewhere(PyObject *object) {
#ifdef Py_GIL_DISABLED
  (void)object;
  return 0;
#else
  return Py_REFCNT(object) > 1;
#endif
}

void mf__let_go(PyObject *object) {
  if (object == NULL) return;
  if (is_held_elsewhere(object) || mf__is_inert(object)) {
    Py_DecRef(object);
    return;
  }
  mf__outside_begin();
  Py_DecRef(object);
  mf__outside_end();
}

void mf__fetch_error(PyObject **type, PyObject **value, PyObject **trace) {
  PyErr_Fetch(type, value, trace);
  if (*value != NULL && (PyObject *)Py_TYPE(*value) == *type) return;
  mf__outside_begin();
  PyErr_NormalizeException(type, value, trace);
  mf__outside_end();
}

void mf__put_traceback(PyObject *exception, PyObject *trace) {
  if (trace == NULL) return;
  PyObject *before = PyException_GetTraceback(exception);
  PyException_SetTraceback(exception, trace);
  mf__let_go(before);
}

void mf__restore_error(PyObject *exception) {
  PyObject *type = (PyObject *)Py_TYPE(exception);
  Py_IncRef(type);
  Py_IncRef(exception);
  PyErr_Restore(type, exception, PyException_GetTraceback(exception));
}

void mf__clear_error(void) {
  if (PyErr_Occurred() == NULL) return;
  mf__outside_begin();
  PyErr_Clear();
  mf__outside_end();
}

/* Gives back the references that a body holds when it has returned or raised. */
void mf__let_all_go(mf__frame *frame) {
  while (frame->count > 0) mf__let_go(frame->held[--frame->count]);
}

static void pop_frame(mf__frame *frame) {
  mf__let_all_go(frame);
  mf__collections_go_on(frame);
  mf__top = frame->below;
}

/* Takes the GIL. Where this thread let it go in mf__run, it takes the same thread state back, which costs less than
 * PyGILState_Ensure. */
static PyGILState_STATE take_gil(mf__frame *below) {
  if (below == NULL || below->thread == NULL) return PyGILState_Ensure();
  PyThreadState *thread = below->thread;
  below->thread = NULL;
  PyEval_RestoreThread(thread);
  return PyGILState_UNLOCKED;
}

void (*_Atomic mf__on_way_out)(void);

static void tell_of_way_out(void) {
  void (*tell)(void) = atomic_load_explicit(&mf__on_way_out, memory_order_relaxed);
  if (tell != NULL) tell();
}

/* Undoes take_gil; saver: the frame that had let the GIL go, NULL if none had. */
static void give_gil(mf__frame *saver, PyGILState_STATE gil) {
  tell_of_way_out();
  if (saver != NULL) saver->thread = PyEval_SaveThread();
  else PyGILState_Release(gil);
}

static int run_body(lua_State *L, mf__frame *frame, int unprotected) {
  if (unprotected == MF__UNPROTECTED_NOT) {
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    return lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
  }
  lua_settop(L, 0);
  lua_rawgeti(L, LUA_REGISTRYINDEX, frame->bridge->runner);
  return lua_pcall(L, 0, LUA_MULTRET, 0);
}

enum { STOPPED = -1, ENDED = -2 };

static void count_in(const mf__frame *below) {
  if (below == NULL) mf__threads_inside++;
}

static void count_out(const mf__frame *below) {
  if (below != NULL) return;
  mf__threads_inside--;
  if (mf__door != MF__DOOR_OPEN) mf__thread_came_out();
}

/* Kept out of mf__enter, so that this C frame is gone when the error is raised: LuaJIT calls a message handler that
 * fails in Python again, on top of the frame that raised the error. Returns 0, or the status of lua_pcall with the
 * error at the top, or STOPPED, or ENDED; never raises. */
__attribute__((noinline)) static int enter(lua_State *L, mf__bridge *bridge, mf__unprotected_body unprotected,
                                           int *results) {
  mf__frame *below = mf__top;
  int saved = below != NULL && below->thread != NULL;
  PyGILState_STATE gil = take_gil(below);
  mf__frame frame;
  mf__section_begin(&frame.section);
  if (!mf__door_is_open()) {
    mf__section_end(&frame.section);
    give_gil(saved ? below : NULL, gil);
    return ENDED;
  }
  count_in(below);
  push_frame(&frame, L, bridge, 0);
  mf__state_arrive(bridge->state, L);
  mf__refs_drain();
  int status = 0;
  *results = unprotected != NULL ? unprotected(L, &frame) : MF__UNPROTECTED_NOT;
  if (*results < 0) {
    status = run_body(L, &frame, *results);
    *results = lua_gettop(L);
  }
  if (status == 0 && mf__stops(bridge->state)) status = STOPPED;
  pop_frame(&frame);
  count_out(below);
  mf__section_end(&frame.section);
  give_gil(saved ? below : NULL, gil);
  return status;
}

static const char ended[] = "Python has ended in this process";

static int nothing(lua_State *L) {
  (void)L;
  return 0;
}

/* Raises the error at the top of ${L}. Since Lua called us, other threads may have run Lua on stacks of their own. When
 * it catches an error, LuaJIT from before October 2023 goes on with the stack that C ran last, and compiled code then
 * writes into a stack that is not its own. So C runs ${L} once more here. */
static int raise_on(lua_State *L) {
  const int top = lua_gettop(L);
  (void)lua_cpcall(L, nothing, NULL);
  lua_settop(L, top);
  return lua_error(L);
}

int mf__enter_by(lua_State *L, mf__unprotected_body unprotected) {
  mf__bridge *bridge = *(mf__bridge **)lua_touserdata(L, lua_upvalueindex(2));
  if (bridge == NULL) return luaL_error(L, "this Lua state is being closed");
  if (!Py_IsInitialized()) return luaL_error(L, "Python is not running (any more)");
  if (!mf__door_is_open()) return luaL_error(L, ended);
  /* Less room is asked for than in mf__call_in, so that calls which nest through both end as Python's do. */
  if (mf__stack_is_low(2)) return luaL_error(L, "C stack overflow");
  int results;
  int status = enter(L, bridge, unprotected, &results);
  if (status == 0) return results;
  if (status == ENDED) return luaL_error(L, ended);
  if (status == STOPPED) lua_pushliteral(L, "interrupted");
  return raise_on(L);
}

int mf__enter(lua_State *L) {
  return mf__enter_by(L, NULL);
}

/* The lua_CFunction that mf__call_in calls: it is what has the bridge as its upvalue. */
int mf__call_in_runner(lua_State *L) {
  return mf__top->body(L, mf__top->data);
}

int mf__call_in_body(mf__frame *frame, int (*body)(lua_State *, void *), void *data, int arguments) {
  lua_State *L = frame->L;
  frame->body = body;
  frame->data = data;
  lua_rawgeti(L, LUA_REGISTRYINDEX, frame->bridge->handler);
  lua_rawgeti(L, LUA_REGISTRYINDEX, frame->bridge->runner);
  int handler = lua_gettop(L) - 1 - arguments;
  if (arguments > 0) {
    lua_insert(L, handler);
    lua_insert(L, handler);
  }
  int status = lua_pcall(L, arguments, 0, handler);
  if (frame->thread != NULL) mf__run_end(frame);
  if (status == 0) lua_settop(L, handler - 1);
  return status;
}

void mf__collected(lua_State *L, const mf__state *state) {
  if (state->collector_stops > 0) lua_gc(L, LUA_GCSTOP, 0);
}

/* Collects after a script that ran out of memory: its garbage would keep the next one from running. */
static int collect(lua_State *L, void *unused) {
  (void)unused;
  lua_gc(L, LUA_GCCOLLECT, 0);
  mf__collected(L, mf__top->state);
  return 0;
}

void mf__call_in_collect(mf__frame *frame) {
  if (mf__call_in_body(frame, collect, NULL, 0) != 0) lua_settop(frame->L, frame->top);
}

lua_State *mf__call_in_begin(mf__bridge *bridge, mf__frame *frame) {
  if (mf__door == MF__DOOR_GONE) {
    PyErr_SetString(PyExc_RuntimeError, ended);
    return NULL;
  }
  if (mf__stack_is_low(1)) {
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded: the C stack has no room to call Lua");
    return NULL;
  }
  /* Before the lock is taken, because what goes may run any Python code. */
  mf__refs_drain();
  mf__section_begin(&frame->section);
  mf__state *state = bridge->state;
  Py_XINCREF((PyObject *)state);
  lua_State *L = state != NULL ? mf__state_enter(state) : NULL;
  if (L == NULL) {
    mf__section_end(&frame->section);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "this Lua state was closed");
    Py_XDECREF((PyObject *)state);
    return NULL;
  }
  push_frame(frame, L, bridge, 1);
  frame->top = lua_gettop(L);
  frame->refused = state->memory != NULL ? state->memory->refused : 0;
  /* Values that Python has dropped may take the memory that this call needs below the limit. */
  if (mf__state_is_short(state)) {
    mf__call_in_collect(frame);
    mf__state_collected(state);
  }
  return L;
}

void mf__call_in_end(mf__frame *frame) {
  mf__state *state = frame->state;
  lua_settop(frame->L, frame->top);
  pop_frame(frame);
  mf__state_leave(state, frame->L);
  mf__section_end(&frame->section);
  Py_DECREF((PyObject *)state);
}

void mf__run_begin(mf__frame *frame) {
  mf__collections_go_on(frame);
  mf__section_end(&frame->section);
  tell_of_way_out();
  frame->thread = PyEval_SaveThread();
}

int mf__run_end(mf__frame *frame) {
  PyThreadState *thread = frame->thread;
  frame->thread = NULL;
  PyEval_RestoreThread(thread);
  mf__section_begin(&frame->section);
  mf__collections_stop(frame);
  return mf__stops(frame->state);
}

void mf__run_done(lua_State *L) {
  if (mf__run_end(mf__top)) luaL_error(L, "interrupted");
}

void mf__run(lua_State *L, int arguments, int results) {
  mf__run_begin(mf__top);
  lua_call(L, arguments, results);
  mf__run_done(L);
}

int mf__run_protected(lua_State *L, int arguments, int results) {
  int below = lua_gettop(L) - arguments - 1;
  mf__run_begin(mf__top);
  int status = lua_pcall(L, arguments, results, 0);
  if (!mf__run_end(mf__top) || status != 0) return status;
  lua_settop(L, below);
  lua_pushliteral(L, "interrupted");
  return LUA_ERRRUN;
}

void mf__keep(PyObject *object) {
  mf__top->held[mf__top->count++] = object;
}

void mf__drop(void) {
  mf__let_go(mf__take());
}

PyObject *mf__take(void) {
  return mf__top->held[--mf__top->count];
}
