/* stop_hook.c: ends a script that runs in a state that is to stop.
 *
 * The library's functions come to their end first: between two of their instructions a new tensor may have two owners,
 * or none. They have a number of instructions for that (stop.c), because any script can name a chunk as if it were the
 * library's. Must not know: who wants the script to end. */
#include <string.h>

#include "guard.h"

/* Takes the GIL and runs Python's handlers of the signal: their exception is the reason. Another signal may come
 * meanwhile, and then finds that none is waiting. */
static void ask_python(mf__state *state) {
  int waiting = MF__STOP_SIGNAL, raised;
  const int runs = mf__top->thread != NULL;
  if (runs) mf__run_end(mf__top);
  atomic_compare_exchange_strong(&state->stop, &waiting, MF__STOP_NOT);
  PyObject *type, *value, *trace;
  MF__OUTSIDE(raised, PyErr_CheckSignals() != 0);
  mf__fetch_error(&type, &value, &trace);
  if (raised) mf__let_go(mf__stop_main(state, value));
  mf__let_go(type);
  mf__let_go(trace);
  if (runs) mf__run_begin(mf__top);
}

/* Throws a memory error, because that runs no message handler of xpcall: a handler would run inside of this hook, where
 * there are no hooks. A state with this hook has an account of its memory (open.c). */
static void throw(lua_State *L, mf__state *state) {
  state->memory->refuse = 1;
  lua_newuserdata(L, 64);
}

/* Whether a function of the library runs that may still come to its end. */
static int may_finish(lua_State *L, lua_Debug *activation, mf__state *state) {
  if (state->library == NULL || state->grace == 0 || lua_getinfo(L, "S", activation) == 0) return 0;
  if (strncmp(activation->source, state->library, strlen(state->library)) != 0) return 0;
  state->grace--;
  return 1;
}

/* Runs on any thread that runs Lua in the state. */
void mf__stop_hook(lua_State *L, lua_Debug *activation) {
  mf__state *state = mf__top != NULL ? mf__top->state : NULL;
  if (state == NULL) return;
  if (atomic_load(&state->stop) == MF__STOP_SIGNAL && mf__on_main_thread()) ask_python(state);
  if (atomic_load(&state->stop) == MF__STOP_NOT) mf__stop_take_hook(state);
  if (mf__stops(state) && !may_finish(L, activation, state)) throw(L, state);
}

/* Not each exit is: a coroutine is closed by GeneratorExit. */
static int is_of_signal(PyObject *exception) {
  return PyErr_GivenExceptionMatches(exception, PyExc_KeyboardInterrupt) ||
         PyErr_GivenExceptionMatches(exception, PyExc_SystemExit);
}

void mf__stop_by(mf__state *state, PyObject *exception) {
  const int stop = atomic_load(&state->stop);
  if ((stop != MF__STOP_SIGNAL && stop != MF__STOP_ASKED) || !mf__on_main_thread()) return;
  if (!is_of_signal(exception)) return;
  Py_IncRef(exception);
  mf__let_go(mf__stop_main(state, exception));
}
