/* guard.h: the layer of the guard: how Lua code gets into Python and out again, and Python code into Lua.
 *
 * Three rules hold everywhere above.
 *   1. Every function that Lua sees is a body behind mf__enter (or a plain finalizer). mf__enter takes
 *      the GIL, runs the body protected, gives back what the body holds, and lets the GIL go. A body may
 *      therefore raise a Lua error at any point, and nothing leaks.
 *   2. What a body owns while Lua can raise, it holds (mf__hold), because an error jumps over it.
 *   3. The first upvalue of every body is the bridge.
 * And three for the other way, from Python into Lua.
 *   1. Lua runs without the GIL (mf__run). Bodies run with the GIL, without which they have the section (lifetime.h),
 *      and the lock. Around a Python call that may take long or wait for another thread, a body gives up the lock:
 *      MF__OUTSIDE.
 *   2. A call from Python into Lua runs on the lua_State that called out on this thread, else on the main one if nobody
 *      is inside, else on a coroutine of its own.
 *   3. What Python drops is queued on the state and given back by whoever owns the lock next. */
#ifndef MF__GUARD_H
#define MF__GUARD_H

#include "thread.h"

/* The lua_CFunction that runs a body, which is its first upvalue. */
int mf__enter(lua_State *L);

/* mf__enter with an unprotected way to try before the body, which has the lock and the GIL but is not protected: it
 * must not raise in Lua. It returns how many results it pushed; or, with the stack as it was, MF__UNPROTECTED_NOT if
 * the body shall do all, or MF__UNPROTECTED_REST if the frame's own body and data are what is left to do. */
typedef int (*mf__unprotected_body)(lua_State *L, mf__frame *frame);
enum { MF__UNPROTECTED_NOT = -1, MF__UNPROTECTED_REST = -2 };
int mf__enter_by(lua_State *L, mf__unprotected_body unprotected);

/* door.c: the end of Python, where Lua brought it in. Once the door is closed, Lua's threads get no further call into
 * Python; code of Python's that runs still may call Lua, and that Python. Once all is gone, nobody may ask for the GIL,
 * which the thread that ends the process keeps. Read without the GIL, and again with it. */
enum { MF__DOOR_OPEN, MF__DOOR_CLOSED, MF__DOOR_GONE };
extern atomic_int mf__door;

/* Called with the GIL, where a thread goes from Python to Lua; NULL: nothing is. */
extern void (*_Atomic mf__on_way_out)(void);


/* How many threads are in a body that Lua itself has called. Guarded by the GIL. */
extern int mf__threads_inside;
__attribute__((cold)) void mf__thread_came_out(void);

/* Whether Lua code of this thread may go into Python. */
static inline int mf__door_is_open(void) {
  const int door = atomic_load_explicit(&mf__door, memory_order_relaxed);
  return door == MF__DOOR_OPEN || (door == MF__DOOR_CLOSED && mf__top != NULL);
}

/* Closes the door, and gives those inside, but for the caller where it is one (${own}), so long to come out. Returns
 * how many did not. With the GIL, which they get meanwhile. */
int mf__door_close(int own, int wait_ms);

/* From here on a child of this process counts none but its own thread. Once; 0, or an error number. */
int mf__door_watch_forks(void);

/* Around Python calls in a body: gives up the lock, takes it back. They must come in pairs. */
void mf__outside_begin(void);
void mf__outside_end(void);

/* Whether this thread is in a body, and has the lock of its state. */
int mf__is_inside(void);

/* ${result} = ${call}, a Python call, with Lua's lock given up meanwhile: the door through which bodies leave Lua. All
 * that may run Python code goes through it, because such code may wait for a thread that wants this Lua state. (No
 * allocation runs Python's collector in a body: collections.c.) What the call uses must be held: Lua may close or
 * collect anything before it returns. */
#define MF__OUTSIDE(result, call) \
  do {                            \
    mf__outside_begin();          \
    (result) = (call);            \
    mf__outside_end();            \
  } while (0)

/* collections.c: from here on Python's collector does not run in a body. Once; 0, or -1 with an exception. */
int mf__collections_find(void);

/* Begin and end of what it must not run in: the body of ${frame}, but for what is outside. With the GIL. */
void mf__collections_stop(mf__frame *frame);
void mf__collections_go_on(const mf__frame *frame);

/* Lets a collection come that is due, now and then. Outside. */
void mf__collections_catch_up(void);

/* Keeps ${object} until mf__drop or, after an error, until mf__enter gives it back. mf__hold (handle.h) is this for
 * what may be NULL with an exception. */
void mf__keep(PyObject *object);

/* Both end the latest hold: mf__drop gives the reference back, mf__take hands it to the caller. */
void mf__drop(void);
PyObject *mf__take(void);

/* In a body: gives a reference back, or nothing for NULL; where it is the last one, that may run any code. */
void mf__let_go(PyObject *object);

/* Gives back all that a body holds. */
void mf__let_all_go(mf__frame *frame);

/* In a body: PyErr_Clear. The frames of an exception may have the last reference to anything. */
void mf__clear_error(void);

/* Takes the pending exception, as an object; NULL if there is none. For bodies. */
void mf__fetch_error(PyObject **type, PyObject **value, PyObject **trace);

/* In a body: gives a held ${exception} the traceback that it was fetched with, which may be NULL. Another one may go
 * with it, whose frames may have the last reference to anything. */
void mf__put_traceback(PyObject *exception, PyObject *trace);

/* Makes ${exception} pending again, with its traceback and its contexts as they are. Takes nothing over. */
void mf__restore_error(PyObject *exception);

/* Gives back the references that are queued; the GIL must be held. In a body, Lua's lock is given up meanwhile. */
void mf__refs_drain(void);

/* Whether an object is of a type whose instances run no Python code, whatever is done with them. */
static inline int mf__is_inert(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  return type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBytes_Type ||
         type == &PyBool_Type || object == Py_None;
}

/* Begins a call into Lua, for callers that do it in pieces (mf__call_in in convert.h does all of it): returns the
 * stack, or NULL with an exception, and then the call has not begun. mf__call_in_end must follow. */
lua_State *mf__call_in_begin(mf__bridge *bridge, mf__frame *frame);

/* Runs ${body} on the topmost ${arguments} values; returns lua_pcall's status, and leaves the error on the stack. */
int mf__call_in_body(mf__frame *frame, int (*body)(lua_State *, void *), void *data, int arguments);

/* After a collection, with which LuaJIT lets its collector go on: it stands still again where it is to. */
void mf__collected(lua_State *L, const mf__state *state);

/* Collects Lua's garbage, if Lua has the memory for that. */
void mf__call_in_collect(mf__frame *frame);
void mf__call_in_end(mf__frame *frame);

/* The lua_CFunction that a call into Lua calls, in whose place its body runs. */
int mf__call_in_runner(lua_State *L);

/* Let the GIL go and take it back, around the code of a script that runs on behalf of Python. The second returns
 * whether the script is to stop, and then its results do not count: its last call may have been a pcall that caught the
 * error which ended it. */
void mf__run_begin(mf__frame *frame);
int mf__run_end(mf__frame *frame);

/* In a body: ends it, and raises the error if the script was stopped meanwhile. */
void mf__run_done(lua_State *L);

/* In a body of mf__call_in: lua_call, without the GIL. Raises if the script is to stop. */
void mf__run(lua_State *L, int arguments, int results);

/* The same in any body, by lua_pcall without a message handler; returns its status, or LUA_ERRRUN with an error if the
 * script is to stop. */
int mf__run_protected(lua_State *L, int arguments, int results);

/* stop_hook.c: the hook of a state that is to stop. */
void mf__stop_hook(lua_State *L, lua_Debug *activation);

/* If a signal that came meanwhile has become this ${exception}, Ctrl-C's or an exit, which gets into Lua, the state is
 * to stop for it: a script may not catch it. Nor may one that is to end anyway. */
void mf__stop_by(mf__state *state, PyObject *exception);

#endif
