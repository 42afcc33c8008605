/* lock.c: the lock of a Lua state, and the line of threads that wait for it.
 *
 * Invariant: the fields change with the GIL held; a waiter's, and those of the line, under the mutex. Must not know:
 * what the lock is taken for. */
#include "thread.h"

#include <pthread.h>

struct mf__waiter {
  struct mf__waiter *next;
  pthread_cond_t granted;
  int done;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

mf__state *mf__states;

/* The owner of a state that another thread was inside of when the process was forked. */
static const char lost;

/* Resets the lock: the threads that waited do not exist in the child. A thread whose turn had come had not begun; a
 * thread that was inside will never come out, and what it was to stop for is over. */
static void reset_after_fork(mf__state *state, int was_main) {
  state->first = state->last = NULL;
  state->inside = mf__calls_in(state);
  mf__stop_forget_others(state, was_main);
  if (state->owner == NULL || state->owner == mf__self()) return;
  state->owner = state->owner == state->heir ? NULL : &lost;
}

/* Only the thread that has forked is left. A new one may get the memory of one that is not there, and with it the name
 * that this had as an owner: so all states are reset now. Another thread may have held the mutex. */
static void in_child(void) {
  pthread_mutex_init(&mutex, NULL);
  mf__section_free_in_child();
  const int was_main = mf__thread_forked();
  mf__stop_forked();
  for (mf__state *state = mf__states; state != NULL; state = state->next) reset_after_fork(state, was_main);
}

/* A patient caller has Lua below, and would go on there: no exception can lead past that. */
static int refuse_lost(int patient) {
  /* The function: where there is no limited API a macro of that name puts the caller's before the message. */
  if (patient) (Py_FatalError)("a forked child cannot go back into a Lua state that another thread was using");
  PyErr_SetString(PyExc_RuntimeError, "the Lua state was in use by another thread when this process was forked");
  return -1;
}

/* The address of the waiter stands for an owner that has yet to wake up. There may be none in line any more: a state
 * that is closed lets the whole line go. */
void mf__lock_pass_on(mf__state *state) {
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
  const int64_t end = mf__now() + MOMENT;
  PyThreadState *thread = PyEval_SaveThread();
  pthread_mutex_lock(&mutex);
  while (!me->done && for_ever) pthread_cond_wait(&me->granted, &mutex);
  if (!me->done) mf__condition_wait(&me->granted, &mutex, end);
  int done = me->done;
  pthread_mutex_unlock(&mutex);
  PyEval_RestoreThread(thread);
  return done;
}

/* Waits in line. Who gives the lock up makes the first in line its owner, so nobody starves. The main thread looks for
 * signals meanwhile, unless it is ${patient}: it may wait for a script that never ends. Returns 0, or -1 with an
 * exception where one of them raised that. */
static int wait_for(mf__state *state, int patient) {
  struct mf__waiter me = {.next = NULL, .done = 0};
  int status = 0, for_ever = patient || !mf__on_main_thread();
  mf__condition_init(&me.granted);
  get_in_line(state, &me);
  while (!wait_a_while(&me, for_ever)) {
    if (PyErr_CheckSignals() == 0) continue;
    status = -1;
    if (leave_line(state, &me)) break;
    mf__unlock(state);
    break;
  }
  pthread_cond_destroy(&me.granted);
  return status;
}

int mf__lock_wait(mf__state *state, int patient) {
  return state->owner == &lost ? refuse_lost(patient) : wait_for(state, patient);
}

int mf__forks_watch(void) {
  return pthread_atfork(NULL, NULL, in_child);
}

void mf__lock_create(mf__state *state) {
  mf__section section;
  mf__section_begin(&section);
  state->next = mf__states;
  mf__states = state;
  mf__section_end(&section);
}

/* A program can make an object of the type that never was opened, and is none of them. */
void mf__lock_free(const mf__state *state) {
  mf__section section;
  mf__section_begin(&section);
  mf__state **link = &mf__states;
  while (*link != NULL && *link != state) link = &(*link)->next;
  if (*link != NULL) *link = state->next;
  mf__section_end(&section);
}

void mf__lock_close(mf__state *state) {
  pthread_mutex_lock(&mutex);
  state->L = NULL;
  state->marks = NULL;
  for (struct mf__waiter *waiter = state->first; waiter != NULL; waiter = waiter->next) {
    waiter->done = 1;
    pthread_cond_signal(&waiter->granted);
  }
  state->first = state->last = NULL;
  pthread_mutex_unlock(&mutex);
}
