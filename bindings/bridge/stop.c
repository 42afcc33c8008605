/* stop.c: ends scripts that run, for another thread or for Ctrl-C.
 *
 * A state that is to stop gets a hook (stop_hook.c) that raises an error at every instruction, and keeps it until the
 * last call has left: a script that catches the error meets it again at once, outside of the pcall that caught it.
 * LuaJIT runs no hooks in compiled code, so only a state whose compiler is off (interruptible) has one and can always
 * be stopped; any other stops where it next calls Python. Ctrl-C belongs to the main thread. Python's handler only
 * sets a flag for that thread, which is in Lua; so as long as it is inside of an interruptible state, our handler
 * comes before Python's. It ends the calls of the main thread, in whichever states they are, and not those of other
 * threads; so that thread has a reason of its own. Invariant: after the last call has left there is no hook and no
 * reason, after the last of the main thread no handler of ours and no reason of that thread's. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* SA_ONSTACK */
#endif
#include <pthread.h>
#include <signal.h>

#include "thread.h"

int mf__stops(mf__state *state) {
  int stop = atomic_load(&state->stop);
  return stop == MF__STOP_ASKED || (stop == MF__STOP_MAIN && mf__on_main_thread());
}

#define GRACE 100000

static void set_hook(mf__state *state) {
  if (state->stop_hook == NULL || state->L == NULL) return;
  state->grace = GRACE;
  lua_sethook(state->L, state->stop_hook, LUA_MASKCOUNT, 1);
}

/* A signal may set it again at any time, so that what it is for is looked at once more. */
void mf__stop_take_hook(mf__state *state) {
  if (state->stop_hook == NULL || state->L == NULL) return;
  lua_sethook(state->L, NULL, 0, 0);
  if (atomic_load(&state->stop) != MF__STOP_NOT) set_hook(state);
}

enum { MOMENT = 20 * 1000 };

/* LuaJIT marks that a hook or a finalizer runs in the same byte in which lua_sethook writes the hook's events. If the
 * thread that runs Lua takes its mark off between the two halves of that write, the write brings the mark back for
 * good, and no hook runs any more. So the mark of a hook is taken off afterwards, whether a hook runs or not: at worst
 * that hook is stopped in its midst. A finalizer must come to its end, so its mark has to stay: this waits until none
 * runs, but not longer than a moment, after which one that still runs is unlikely to end during the write. */
static void set_hook_beside_lua(mf__state *state) {
  const int64_t end = mf__now() + MOMENT;
  while ((mf__marks(state) & MF__MARK_FINALIZER) != 0 && mf__now() < end) {
  }
  set_hook(state);
  if (mf__marks(state) == MF__MARK_HOOK) mf__marks_take(state);
}

/* That thread, too, may write the byte back as it was before. So this looks for a moment whether the hook stays, and
 * once more where this thread itself was stopped for longer than that. */
static void set_hook_from_outside(mf__state *state) {
  const int64_t end = mf__now() + MOMENT;
  int has, over;
  if (state->stop_hook == NULL || state->L == NULL) return;
  do {
    over = mf__now() >= end;
    has = lua_gethook(state->L) == state->stop_hook && (lua_gethookmask(state->L) & LUA_MASKCOUNT) != 0;
    if (!has) set_hook_beside_lua(state);
  } while (!has || !over);
}

/* Returns a reference to give back, or NULL. */
static PyObject *ask_to_stop(mf__state *state, PyObject *reason) {
  if (state->inside == 0 || atomic_load(&state->stop) == MF__STOP_ASKED) return NULL;
  PyObject *before = state->reason;
  Py_IncRef(reason);
  state->reason = reason;
  atomic_store(&state->stop, MF__STOP_ASKED);
  set_hook_from_outside(state);
  return before;
}

void mf__stop(mf__state *state, PyObject *reason) {
  mf__section section;
  mf__section_begin(&section);
  PyObject *before = ask_to_stop(state, reason);
  mf__section_end(&section);
  Py_DecRef(before);
}

PyObject *mf__stop_main(mf__state *state, PyObject *reason) {
  PyObject *before = state->main_reason;
  state->main_reason = reason;
  if (atomic_load(&state->stop) != MF__STOP_ASKED) atomic_store(&state->stop, MF__STOP_MAIN);
  return before;
}

/* How many calls into interruptible states this thread is in: any thread, because the one that forks is the main thread
 * of the child. */
static _Thread_local int armed;
static pthread_t main_thread;

/* All of the states that the main thread is in: a script that Python called from another script ends, and so does the
 * other one, unless the Python code between them catches the exception. */
void mf__stop_signal(void) {
  for (const mf__frame *frame = mf__top; frame != NULL; frame = frame->below) {
    int stop = MF__STOP_NOT;
    if (frame->state == NULL || frame->state->stop_hook == NULL) continue;
    atomic_compare_exchange_strong(&frame->state->stop, &stop, MF__STOP_SIGNAL);
    if (frame->state->owner == &mf__top) set_hook(frame->state);
  }
}

void mf__stop_renew(mf__state *state) {
  if (atomic_load(&state->stop) == MF__STOP_NOT) return;
  if (mf__stops(state) || mf__on_main_thread()) set_hook(state);
}

void mf__stop_pause(mf__state *state) {
  int stop = atomic_load(&state->stop);
  if (state->L == NULL) return;
  if (stop == MF__STOP_SIGNAL || stop == MF__STOP_MAIN) lua_sethook(state->L, NULL, 0, 0);
}

static void on_signal(const mf__signal *signal) {
  if (!mf__on_main_thread()) {
    pthread_kill(main_thread, SIGINT);
    return;
  }
  mf__pass_on(signal);
  mf__stop_signal();
}

static void set_handler(void) {
  main_thread = pthread_self();
  mf__handler_set(on_signal, SA_NODEFER | SA_ONSTACK | SA_RESTART);
}

void mf__stop_arm(void) {
  armed++;
  if (mf__on_main_thread()) set_handler();
}

void mf__stop_forked(void) {
  if (armed > 0) set_handler();
  else mf__handler_unset(on_signal);
}

/* Without the GIL, perhaps: a reason of the parent's main thread is lost with what else that thread had. */
void mf__stop_forget_others(mf__state *state, int was_main) {
  if (was_main && state->inside > 0) return;
  state->main_reason = NULL;
  if (state->inside == 0 || atomic_load(&state->stop) != MF__STOP_ASKED) atomic_store(&state->stop, MF__STOP_NOT);
}

static PyObject *take(PyObject **reason) {
  PyObject *taken = *reason;
  *reason = NULL;
  return taken;
}

void mf__stop_disarm(mf__state *state, int thread_left, PyObject *ended[2]) {
  const int is_main = mf__on_main_thread(), is_last = state->inside == 0;
  if (state->stop_hook != NULL && --armed == 0 && is_main) mf__handler_unset(on_signal);
  const int stop = atomic_load(&state->stop), main_left = is_last || (is_main && thread_left);
  if (main_left) ended[0] = take(&state->main_reason);
  if (is_last) ended[1] = take(&state->reason);
  if (!main_left || stop == MF__STOP_NOT || (stop == MF__STOP_ASKED && !is_last)) return;
  atomic_store(&state->stop, MF__STOP_NOT);
  mf__stop_take_hook(state);
}

/* What this thread's calls end in. On the main thread it is the handler's exception where that is Ctrl-C or an exit,
 * which must not be lost in an interrupt, or where there was no interrupt. */
static PyObject *reason_here(const mf__state *state) {
  PyObject *own = mf__on_main_thread() ? state->main_reason : NULL;
  return own != NULL && (state->reason == NULL || answer_is_exit(own)) ? own : state->reason;
}

int mf__stopped(mf__state *state) {
  PyObject *reason = mf__stops(state) ? reason_here(state) : NULL;
  if (reason != NULL) PyErr_SetObject((PyObject *)Py_TYPE(reason), reason);
  return reason != NULL;
}
