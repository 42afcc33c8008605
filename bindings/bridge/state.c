/* state.c: a Lua state as a Python object: how it is made, what Python's collector sees of it, and how it ends.
 *
 * Invariant: a thread that comes back to a state that was closed meanwhile goes no further. Must not know: how values
 * cross. */
#include "open.h"
/* Needs Python.h before it. */
#include <structmember.h>

#include <moonferry_lua.h>
#include <stddef.h>
#include <stdlib.h>

PyTypeObject *mf__state_type;

static int calls_in_of_others(const mf__state *state) {
  return state->inside - mf__calls_in(state);
}

/* Sleeps for a moment if there is a thread that Python itself would wait for at its end; ${more} says so. It joins
 * none: up to CPython 3.12 a join that a signal's exception breaks off makes Python take that thread for ended. */
static const char sleep_beside[] =
    "import threading\n"
    "def is_waited_for(thread):\n"
    "    own = thread is threading.main_thread() or thread.ident == threading.get_ident()\n"
    "    return not (own or thread.daemon)\n"
    "more = any(map(is_waited_for, threading.enumerate()))\n"
    "if more: threading.Event().wait(0.01)\n";

/* A signal's exception ends the waiting. Lua's end has no caller to raise it in, so it is told. */
static int waited_for_one(void) {
  PyObject *names = PyDict_New();
  const int done = names != NULL && mf__run_code(sleep_beside, names) == 0;
  const int more = done && PyDict_GetItemString(names, "more") == Py_True;
  if (!done) PyErr_WriteUnraisable(NULL);
  Py_DecRef(names);
  return more;
}

/* What is pending is not this wait's, which runs Python code. */
static void await_others(mf__state *state) {
  if (calls_in_of_others(state) == 0 || !Py_IsInitialized() || mf__door == MF__DOOR_GONE) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  mf__section section;
  mf__section_begin(&section);
  const aside exception = aside_begin();
  const mf__turn turn = mf__lock_lend(state);
  while (calls_in_of_others(state) > 0 && waited_for_one()) {
  }
  mf__lock(state, 1);
  mf__lock_resume(state, turn);
  aside_end(exception);
  mf__section_end(&section);
  PyGILState_Release(gil);
}

/* The lock guards both fields, and this thread has it, because it runs Lua. Who says that Lua closes next comes before
 * Lua's own end: whoever is inside after the first wait stays there, and is waited for no more. */
void mf__state_close_begin(mf__state *state) {
  state->closer = mf__self();
  if (!state->is_closers) await_others(state);
  state->is_closers = 1;
}

static void shut_bridges(mf__state *state) {
  for (mf__bridge *bridge = state->bridges; bridge != NULL; bridge = bridge->next) {
    bridge->state = NULL;
    if (bridge->box != NULL) *bridge->box = NULL;
  }
}

/* May lack the GIL: what others read of this with the GIL alone is a pointer or, in line, guarded by the mutex. */
void mf__state_shut(mf__state *state) {
  shut_bridges(state);
  mf__lock_close(state);
}

static void free_bridges(mf__state *state) {
  while (state->bridges != NULL) {
    mf__bridge *bridge = state->bridges;
    state->bridges = bridge->next;
    mf__keys_free(bridge);
    free(bridge);
  }
}

/* Lets finalizers allocate so much while a state closes, even if it has reached its limit: what they cannot give back
 * then is lost. It grows with what Lua has, because each FFI object takes a place in a list until the end. */
static void allow_closing(mf__memory *memory) {
  if (memory->limit != 0) memory->limit = memory->used + memory->used / 4 + 65536;
}

/* Runs finalizers of Lua's and deleters, and those may run Python code, which finds the state closed. */
static void close_lua(mf__state *state) {
  lua_State *L = state->L;
  mf__state_shut(state);
  if (state->memory != NULL) allow_closing(state->memory);
  if (state->hosted) mf_lua_close(L);
}

static void forget_refs(mf__state *state) {
  mf__section section;
  mf__section_begin(&section);
  mf__refs_forget(&state->refs);
  mf__scopes_free(&state->scopes);
  mf__section_end(&section);
}

static int refuse_close(const mf__state *state) {
  const int of_others = calls_in_of_others(state);
  if (of_others > 0)
    PyErr_Format(PyExc_RuntimeError,
                 "close: %d call(s) into this Lua state run on other threads; close it after them, or end them by "
                 "interrupt()",
                 of_others);
  else
    PyErr_SetString(PyExc_RuntimeError,
                    "close: called from inside of a call into this Lua state; close it when that has returned");
  return -1;
}

static int close_if_free(mf__state *state) {
  if (state->inside > 0) return refuse_close(state);
  if (state->L == NULL) return 0;
  Py_INCREF((PyObject *)state);
  /* Another thread may be about to take the lock, or be in line for it. */
  int status = mf__lock(state, 0);
  if (status == 0) {
    if (state->inside > 0)
      status = refuse_close(state);
    else if (state->L != NULL)
      close_lua(state);
    if (--state->depth == 0) mf__unlock(state);
  }
  Py_DECREF((PyObject *)state);
  return status;
}

int mf__state_close(mf__state *state) {
  mf__section section;
  mf__section_begin(&section);
  const int status = close_if_free(state);
  mf__section_end(&section);
  if (status == 0) mf__refs_drain();
  return status;
}

static void drop_handlers(mf__options *options) {
  PyObject *objects[] = {options->filter, options->getter, options->setter};
  options->filter = options->getter = options->setter = NULL;
  for (int i = 0; i < 3; i++) Py_DecRef(objects[i]);
}

/* A pending exception waits meanwhile. */
static void state_dealloc(PyObject *self_object) {
  mf__state *state = (mf__state *)self_object;
  PyTypeObject *type = Py_TYPE(self_object);
  const aside exception = aside_begin();
  PyObject_GC_UnTrack(self_object);
  if (state->weakrefs != NULL) PyObject_ClearWeakRefs(self_object);
  if (state->L != NULL) close_lua(state);
  mf__lock_free(state);
  forget_refs(state);
  free_bridges(state);
  free(state->spare);
  free(state->unwanted);
  drop_handlers(&state->options);
  free(state->options.encoding);
  free(state->options.source_encoding);
  free(state->memory);
  free(state->library);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self_object);
  Py_DecRef((PyObject *)type);
  mf__refs_drain();
  aside_end(exception);
}

/* Visits the Python objects that a hosted state holds; those that a Lua program holds belong to that program. */
static int state_traverse(PyObject *self_object, visitproc visit, void *arg) {
  mf__state *state = (mf__state *)self_object;
  Py_VISIT(Py_TYPE(self_object));
  if (!state->hosted) return 0;
  Py_VISIT(state->options.filter);
  Py_VISIT(state->options.getter);
  Py_VISIT(state->options.setter);
  for (mf__ref *ref = state->refs; ref != NULL; ref = ref->older) {
    Py_VISIT(ref->object);
    Py_VISIT(ref->origin);
  }
  return 0;
}

static int count_refs(const mf__state *state) {
  int count = 0;
  for (mf__ref *ref = state->refs; ref != NULL; ref = ref->older) count++;
  return count;
}

/* Makes the objects that Lua holds None. Takes all of them out before the first is given back, because that may run any
 * code. */
static int state_clear(PyObject *self_object) {
  mf__state *state = (mf__state *)self_object;
  if (!state->hosted) return 0;
  mf__section section;
  mf__section_begin(&section);
  int count = count_refs(state);
  PyObject **objects = malloc(sizeof *objects * 2 * (size_t)(count + 1));
  int number = 0;
  for (mf__ref *ref = objects != NULL ? state->refs : NULL; ref != NULL; ref = ref->older) {
    objects[number++] = ref->object;
    objects[number++] = ref->origin;
    mf__ref_unweigh(ref);
    Py_IncRef(Py_None);
    ref->object = Py_None;
    ref->origin = NULL;
  }
  mf__section_end(&section);
  if (objects == NULL) return 0;
  for (int i = 0; i < number; i++) Py_DecRef(objects[i]);
  free(objects);
  drop_handlers(&state->options);
  return 0;
}

static PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(mf__state, weakrefs), READONLY, NULL},
                                {NULL, 0, 0, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, state_dealloc},
                              {Py_tp_traverse, state_traverse},
                              {Py_tp_clear, state_clear},
                              {Py_tp_members, members},
                              {Py_tp_doc, "A Lua state. moonferry.Lua makes them."},
                              {0, NULL}};

static PyType_Spec spec = {.name = "moonferry._lua.State",
                           .basicsize = sizeof(mf__state),
                           .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                           .slots = slots};

int mf__state_type_ready(void) {
  if (mf__state_type == NULL) mf__state_type = (PyTypeObject *)PyType_FromSpec(&spec);
  return mf__state_type != NULL ? 0 : -1;
}

mf__state *mf__state_new(PyTypeObject *type, lua_State *L, int hosted) {
  mf__state *state = (mf__state *)PyType_GenericAlloc(type, 0);
  if (state == NULL) return NULL;
  state->L = L;
  state->hosted = hosted;
  state->marks = mf__marks_of(L);
  mf__lock_create(state);
  return state;
}
