/* state.c: a Lua state as Python sees it: its lock, its stacks, and what either side wants back.
 *
 * Invariant: the fields change with the GIL held; a waiter's, and those of the line, under the mutex. A thread that
 * comes back to a state that was closed meanwhile goes no further. Must not know: how values cross. */
#include "state.h"
/* Needs Python.h before it. */
#include <structmember.h>

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

PyTypeObject *mf__state_type;

struct mf__waiter {
  struct mf__waiter *next;
  pthread_cond_t granted;
  int done;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* How many forks lie between the first process and this one. */
static unsigned forks;

/* The owner of a state that another thread was inside of when the process was forked. */
static const char lost;

static const void *self(void) {
  return &mf__top;
}

/* In a child: who waited is not here. Whose turn had come had not begun; whoever was inside will never come out. */
static void note_fork(mf__state *state) {
  if (state->forks == forks) return;
  state->forks = forks;
  state->first = state->last = NULL;
  if (state->owner == NULL || state->owner == self()) return;
  state->owner = state->owner == state->heir ? NULL : &lost;
}

/* Only the thread that has forked is left. What it is inside of is its own; other states are looked at when they are
 * used. Somebody may have been at the mutex. */
static void in_child(void) {
  pthread_mutex_init(&mutex, NULL);
  forks++;
  for (const mf__frame *frame = mf__top; frame != NULL; frame = frame->below) {
    if (frame->state != NULL) note_fork(frame->state);
  }
}

static int refuse_lost(void) {
  PyErr_SetString(PyExc_RuntimeError, "the Lua state was in use by another thread when this process was forked");
  return -1;
}

/* There may be none any more: a state that is closed lets the whole line go. */
static void wake_first(mf__state *state) {
  pthread_mutex_lock(&mutex);
  struct mf__waiter *next = state->first;
  if (next != NULL) {
    state->first = next->next;
    if (state->first == NULL) state->last = NULL;
    state->owner = state->heir = next;
    next->done = 1;
    pthread_cond_signal(&next->granted);
  }
  pthread_mutex_unlock(&mutex);
}

/* Gives the lock up altogether. The address of the waiter stands for an owner that has yet to wake up. */
static inline void hand_over(mf__state *state) {
  if (state->interruptible) mf__stop_pause(state);
  state->depth = 0;
  state->owner = NULL;
  if (state->first != NULL) wake_first(state);
}

/* A state that is closed is waited for by nobody: its line was told to go. */
static void get_in_line(mf__state *state, struct mf__waiter *me) {
  pthread_mutex_lock(&mutex);
  if (state->L == NULL) {
    me->done = 1;
  } else if (state->last != NULL) {
    state->last->next = me;
    state->last = me;
  } else {
    state->first = state->last = me;
  }
  pthread_mutex_unlock(&mutex);
}

/* Returns 0 if the waiter's turn came before it could leave. */
static int leave_line(mf__state *state, struct mf__waiter *me) {
  pthread_mutex_lock(&mutex);
  int waits = !me->done;
  struct mf__waiter **link = &state->first, *before = NULL;
  while (waits && *link != me) {
    before = *link;
    link = &before->next;
  }
  if (waits) *link = me->next;
  if (waits && state->last == me) state->last = before;
  pthread_mutex_unlock(&mutex);
  return waits;
}

/* Until it is our turn or, on a thread that signals come to, for a moment. Without the GIL. */
static int wait_a_while(struct mf__waiter *me, int for_ever) {
  enum { MOMENT = 50 * 1000 * 1000 };
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  long long end = until.tv_nsec + MOMENT;
  until.tv_sec += (time_t)(end / 1000000000);
  until.tv_nsec = (long)(end % 1000000000);
  PyThreadState *thread = PyEval_SaveThread();
  pthread_mutex_lock(&mutex);
  while (!me->done && for_ever) pthread_cond_wait(&me->granted, &mutex);
  if (!me->done) pthread_cond_timedwait(&me->granted, &mutex, &until);
  int done = me->done;
  pthread_mutex_unlock(&mutex);
  PyEval_RestoreThread(thread);
  return done;
}

/* Waits in line. Who gives the lock up makes the first in line its owner, so nobody starves. The main thread looks for
 * signals meanwhile, unless it is ${patient}: it may wait for a script that never ends. Returns 0, or -1 with an
 * exception where one of them raised that. */
__attribute__((noinline)) static int wait_for(mf__state *state, int patient) {
  struct mf__waiter me = {.next = NULL, .done = 0};
  int status = 0, for_ever = patient || !mf__on_main_thread();
  pthread_cond_init(&me.granted, NULL);
  get_in_line(state, &me);
  while (!wait_a_while(&me, for_ever)) {
    if (PyErr_CheckSignals() == 0) continue;
    status = -1;
    if (leave_line(state, &me)) break;
    hand_over(state);
    break;
  }
  pthread_cond_destroy(&me.granted);
  return status;
}

static inline int lock(mf__state *state, int patient) {
  if (state->owner == self()) {
    state->depth++;
    return 0;
  }
  if (state->forks != forks) note_fork(state);
  if (state->owner == &lost && !patient) return refuse_lost();
  if (state->owner != NULL && wait_for(state, patient) != 0) return -1;
  state->owner = self();
  state->depth = 1;
  if (state->interruptible) mf__stop_renew(state);
  return 0;
}

void mf__outside_begin(void) {
  mf__state *state = mf__top->state;
  mf__top->depth = state->depth;
  hand_over(state);
}

/* The stack that this thread would go on with is gone; only what waits for daemon threads to end can end this one. */
static void stay_outside(void) {
  PyEval_SaveThread();
  for (;;) pause();
}

int mf__is_inside(void) {
  return mf__top != NULL && mf__top->state->owner == self();
}

void mf__outside_end(void) {
  mf__state *state = mf__top->state;
  lock(state, 1);
  if (state->L == NULL) stay_outside();
  state->depth = mf__top->depth;
}

void mf__state_adopt(mf__state *state) {
  state->owner = self();
  state->depth = 1;
}

static void drain(mf__state *state, lua_State *L) {
  state->dropped += state->unwanted_count;
  while (state->unwanted_count > 0) luaL_unref(L, LUA_REGISTRYINDEX, state->unwanted[--state->unwanted_count]);
}

void mf__state_arrive(mf__state *state, lua_State *L) {
  state->owner = self();
  if (state->depth == 0) state->depth = 1;
  drain(state, L);
}

static lua_State *stack_of_thread(const mf__state *state) {
  for (const mf__frame *frame = mf__top; frame != NULL; frame = frame->below) {
    if (frame->state == state) return frame->L;
  }
  return NULL;
}

/* Anchored for as long as the state lives: there are never more than threads were inside at once. */
static int new_stack(lua_State *L) {
  mf__state *state = lua_touserdata(L, 1);
  lua_State *stack = lua_newthread(L);
  mf__anchor(L, state);
  state->spare[0] = stack;
  state->spare_count = 1;
  state->spare_total++;
  return 0;
}

/* A stack of its own for a thread that comes while others are inside. */
static lua_State *spare_stack(mf__state *state) {
  if (state->spare_count == 0) {
    size_t size = sizeof *state->spare * (size_t)(state->spare_total + 1);
    lua_State **room = realloc(state->spare, size);
    if (room == NULL) return NULL;
    state->spare = room;
    if (lua_cpcall(state->service, new_stack, state) != 0) {
      lua_pop(state->service, 1);
      return NULL;
    }
  }
  return state->spare[--state->spare_count];
}

static lua_State *choose_stack(mf__state *state) {
  lua_State *L = stack_of_thread(state);
  if (L == NULL && state->busy == 0) L = state->L;
  if (L == NULL) return spare_stack(state);
  if (L == state->L) state->busy++;
  return L;
}

lua_State *mf__state_enter(mf__state *state) {
  if (lock(state, 0) != 0) return NULL;
  state->inside++;
  if (state->interruptible) mf__stop_arm();
  lua_State *L = state->L != NULL ? choose_stack(state) : NULL;
  if (L != NULL) {
    if (mf__room(L, MF__VISIT_ROOM) == 0) {
      drain(state, L);
      return L;
    }
    lua_pop(L, 1);
  }
  if (state->L != NULL) PyErr_SetString(mf__lua_memory_error_type, "not enough memory");
  mf__state_leave(state, L);
  return NULL;
}

void mf__state_leave(mf__state *state, lua_State *L) {
  PyObject *reason = NULL;
  state->inside--;
  if (state->interruptible || state->stop != MF__STOP_NOT)
    reason = mf__stop_disarm(state, stack_of_thread(state) == NULL);
  if (L != NULL && L == state->L) {
    state->busy--;
  } else if (L != NULL && stack_of_thread(state) != L) {
    state->spare[state->spare_count++] = L;
  }
  if (--state->depth == 0) hand_over(state);
  if (reason == NULL) return;
  /* The visit may have ended with an exception, which whatever the reason runs at its end must not see. */
  const aside exception = aside_begin();
  Py_DecRef(reason);
  aside_end(exception);
}

lua_State *mf__glance_begin(mf__state *state) {
  if (state->owner != NULL && state->owner != self()) return NULL;
  lua_State *L = mf__top != NULL ? stack_of_thread(state) : NULL;
  if (L == NULL && state->busy == 0) L = state->L;
  if (L == NULL || !mf__has_room(L, 8)) return NULL;
  state->owner = self();
  state->depth++;
  return L;
}

void mf__glance_end(mf__state *state, lua_State *L, int top) {
  lua_settop(L, top);
  if (--state->depth == 0) hand_over(state);
}

static int is_near_limit(const mf__memory *memory) {
  return memory != NULL && memory->limit != 0 && memory->used >= memory->limit - memory->limit / 8;
}

int mf__state_is_short(mf__state *state) {
  return state->dropped > state->patience && is_near_limit(state->memory);
}

/* Where most of the memory is in use, a collection after each value that Python drops would be nearly all that the
 * state does; so one that helped nothing doubles what is dropped before the next. */
void mf__state_collected(mf__state *state) {
  enum { PATIENCE_MAX = 64 };
  state->dropped = 0;
  state->patience = is_near_limit(state->memory) ? state->patience * 2 + 1 : 0;
  if (state->patience > PATIENCE_MAX) state->patience = PATIENCE_MAX;
}

mf__ref **mf__state_refs(mf__state *state) {
  return &state->refs;
}

/* Without memory the reference is lost: Lua keeps the value as long as the state lives. */
void mf__state_unref(mf__state *state, int ref) {
  if (state->L == NULL) return;
  if (state->unwanted_count == state->unwanted_room) {
    int room = state->unwanted_room * 2 + 16;
    int *grown = realloc(state->unwanted, sizeof *grown * (size_t)room);
    if (grown == NULL) return;
    state->unwanted = grown;
    state->unwanted_room = room;
  }
  state->unwanted[state->unwanted_count++] = ref;
}

static int visits_of_others(const mf__state *state) {
  int count = state->inside;
  for (const mf__frame *frame = mf__top; frame != NULL; frame = frame->below)
    count -= frame->state == state && frame->is_visit;
  return count;
}

/* Joins a thread that Python itself would wait for at its end, for a moment; false if there is none. */
static const char join_one[] =
    "import threading\n"
    "def join_one():\n"
    "    for thread in threading.enumerate():\n"
    "        own = thread is threading.main_thread() or thread.ident == threading.get_ident()\n"
    "        if not (own or thread.daemon):\n"
    "            thread.join(0.05)\n"
    "            return True\n"
    "    return False\n"
    "more = join_one()\n";

static int waited_for_one(void) {
  PyObject *names = PyDict_New(), *builtins = PyEval_GetBuiltins();
  PyObject *run = builtins != NULL ? PyDict_GetItemString(builtins, "exec") : NULL;
  PyObject *done = names != NULL && run != NULL ? PyObject_CallFunction(run, "sO", join_one, names) : NULL;
  int more = done != NULL && PyDict_GetItemString(names, "more") == Py_True;
  if (done == NULL) PyErr_Clear();
  Py_DecRef(done);
  Py_DecRef(names);
  return more;
}

void mf__state_await(mf__state *state) {
  if (visits_of_others(state) == 0 || !Py_IsInitialized()) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  int depth = state->depth;
  hand_over(state);
  while (visits_of_others(state) > 0 && waited_for_one()) {
  }
  lock(state, 1);
  state->depth = depth;
  PyGILState_Release(gil);
}

/* May lack the GIL: what others read of this with the GIL alone is a pointer or, in line, guarded by the mutex. */
void mf__state_shut(mf__state *state) {
  mf__kits_shut(state);
  pthread_mutex_lock(&mutex);
  state->L = NULL;
  for (struct mf__waiter *waiter = state->first; waiter != NULL; waiter = waiter->next) {
    waiter->done = 1;
    pthread_cond_signal(&waiter->granted);
  }
  state->first = state->last = NULL;
  pthread_mutex_unlock(&mutex);
}

/* How much finalizers may allocate while a state closes, even if it has reached its limit: what they cannot give back
 * then is lost. */
#define CLOSING_NBYTES 65536

/* Closing runs finalizers of Lua's, and those may run Python code: a pending exception waits. */
static void state_dealloc(PyObject *self_object) {
  mf__state *state = (mf__state *)self_object;
  PyTypeObject *type = Py_TYPE(self_object);
  const aside exception = aside_begin();
  PyObject_GC_UnTrack(self_object);
  if (state->weakrefs != NULL) PyObject_ClearWeakRefs(self_object);
  lua_State *L = state->L;
  if (L != NULL) {
    mf__state_shut(state);
    if (state->memory != NULL && state->memory->limit != 0) state->memory->limit = state->memory->used + CLOSING_NBYTES;
    if (state->hosted) lua_close(L);
  }
  mf__refs_forget(&state->refs);
  mf__kits_free(state);
  free(state->spare);
  free(state->unwanted);
  mf__options_clear(&state->options);
  Py_DecRef(state->reason);
  free(state->memory);
  free(state->library);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self_object);
  Py_DecRef((PyObject *)type);
  mf__refs_drain();
  aside_end(exception);
}

void mf__options_clear(mf__options *options) {
  PyObject *objects[] = {options->filter, options->getter, options->setter};
  options->filter = options->getter = options->setter = NULL;
  for (int i = 0; i < 3; i++) Py_DecRef(objects[i]);
  free(options->encoding);
  free(options->source_encoding);
  options->encoding = options->source_encoding = NULL;
}

/* What a hosted state holds of Python is held by nobody else; what Lua's own program holds, Lua's program holds. */
static int state_traverse(PyObject *self_object, visitproc visit, void *arg) {
  mf__state *state = (mf__state *)self_object;
  Py_VISIT(Py_TYPE(self_object));
  if (!state->hosted) return 0;
  Py_VISIT(state->options.filter);
  Py_VISIT(state->options.getter);
  Py_VISIT(state->options.setter);
  Py_VISIT(state->reason);
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

/* Lua's objects become None. All are taken out before the first goes, because that may run any code. */
static int state_clear(PyObject *self_object) {
  mf__state *state = (mf__state *)self_object;
  if (!state->hosted) return 0;
  int count = count_refs(state);
  PyObject **objects = malloc(sizeof *objects * 2 * (size_t)(count + 1));
  if (objects == NULL) return 0;
  int number = 0;
  for (mf__ref *ref = state->refs; ref != NULL; ref = ref->older) {
    objects[number++] = ref->object;
    objects[number++] = ref->origin;
    Py_IncRef(Py_None);
    ref->object = Py_None;
    ref->origin = NULL;
  }
  for (int i = 0; i < number; i++) Py_DecRef(objects[i]);
  free(objects);
  PyObject *options[] = {state->options.filter, state->options.getter, state->options.setter};
  state->options.filter = state->options.getter = state->options.setter = NULL;
  for (int i = 0; i < 3; i++) Py_DecRef(options[i]);
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

int mf__types_ready(void) {
  if (mf__iterator_type != NULL) return 0;
  if (mf__error_types_ready() != 0 || mf__view_type_ready() != 0) return -1;
  if (mf__state_type == NULL) {
    if (pthread_atfork(NULL, NULL, in_child) != 0 || mf__collections_watch() != 0) return -1;
    mf__state_type = (PyTypeObject *)PyType_FromSpec(&spec);
  }
  if (mf__state_type == NULL || mf__object_types_ready() != 0) return -1;
  return mf__thread_types_ready() != 0 || mf__table_types_ready() != 0 ? -1 : 0;
}

mf__state *mf__state_new(PyTypeObject *type, lua_State *L, int hosted) {
  mf__state *state = (mf__state *)PyType_GenericAlloc(type, 0);
  if (state == NULL) return NULL;
  state->L = L;
  state->hosted = hosted;
  state->forks = forks;
  return state;
}
