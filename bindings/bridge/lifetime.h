/* lifetime.h: declares the lowest layer of the bridge: references that wait to be given back, the end of the C stack,
 * and the types of Lua's errors.
 *
 * The bridge carries values between one Lua state and the process's Python interpreter. It does not know which of
 * the two is the host: the host makes sure that Python runs and opens a bridge (open.h). The layers, from here upward,
 * are lifetime, thread, guard, handle, value, convert, objects and open. Each has a header, which includes the one
 * below; a file includes the header of its layer, and calls only that layer's and lower ones. The two ways in which
 * values cross stand above all of them, in bindings/lua and bindings/python/lua. */
#ifndef MF__LIFETIME_H
#define MF__LIFETIME_H

/* One binary serves CPython 3.9 and later; without the GIL there is no limited API, and each version has its own. */
#include <pyconfig.h>
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x03090000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <lauxlib.h>
#include <lua.h>
#include <moonferry.h>

/* Needs Python.h before it. */
#include "answer.h"
#include "aside.h"

/* The section: one thread at a time in what the bridge keeps for all threads, where CPython has no GIL.
 *
 * With the GIL that is so by itself, and the section is nothing. Without it, a thread that has a thread state takes the
 * section wherever comments here speak of the GIL as what guards something. It is a critical section of CPython's, so
 * that a thread which has to wait for another, or lets its thread state go, gives it up meanwhile, as it gives up the
 * GIL; and it is given up around Python calls (mf__outside_begin) and while Lua runs (mf__run_begin), so that threads
 * with a Lua state each run at the same time. */
#ifdef Py_GIL_DISABLED

typedef struct mf__section {
  PyCriticalSection taken;
  int is_nested; /* the thread had it already */
} mf__section;

/* Whose mutex it is. */
extern PyObject mf__shared;

/* Whether the thread has the section already, as the innermost of its critical sections. From 3.14 on CPython looks at
 * that itself; before, it would find the mutex taken and wait for itself, if only for a moment. */
static inline int mf__section_is_innermost(void) {
#if PY_VERSION_HEX < 0x030E0000
  const uintptr_t innermost = PyThreadState_Get()->critical_section;
  const uintptr_t inactive = 1, marks = 3;
  const PyCriticalSection *section = (const PyCriticalSection *)(innermost & ~marks);
  return section != NULL && (innermost & inactive) == 0 && section->_cs_mutex == &mf__shared.ob_mutex;
#else
  return 0;
#endif
}

static inline void mf__section_begin(mf__section *section) {
  section->is_nested = mf__section_is_innermost();
  if (!section->is_nested) PyCriticalSection_Begin(&section->taken, &mf__shared);
}

static inline void mf__section_end(mf__section *section) {
  if (!section->is_nested) PyCriticalSection_End(&section->taken);
}

/* In a forked child: the section may have been handed to a thread that waited for it, and is not there to end it. */
static inline void mf__section_free_in_child(void) {
  if (PyThreadState_GetUnchecked() == NULL || !mf__section_is_innermost()) mf__shared.ob_mutex = (PyMutex){0};
}

#else

typedef struct mf__section {
  char nothing;
} mf__section;

static inline void mf__section_free_in_child(void) {
}

static inline void mf__section_begin(mf__section *section) {
  (void)section;
}

static inline void mf__section_end(mf__section *section) {
  (void)section;
}

#endif

/* LuaJIT's type number of FFI values, which its lua.h keeps to itself. */
#define MF__LUA_TCDATA 10

/* refs.c: references that Lua values own, and those that wait to be given back. */

typedef struct mf__ref {
  PyObject *object;     /* NULL once it was taken out: the Lua value counts as closed */
  PyObject *origin;     /* what a callable was read from, so that o:method(x) can leave o out; or NULL */
  struct mf__ref *callables;                             /* those that were read from this one, */
  struct mf__ref *source, *next_callable, *last_callable; /* and its place there */
  struct mf__scope *scope;                               /* that it was made in, or NULL, */
  struct mf__ref *next_made, *last_made;                 /* and its place there */
  double nbytes;        /* what it weighs; not 0 where it is in the list of those that weigh */
  struct mf__ref *next_weighed;
  int flags;            /* what the policy wants to know of it */
  struct mf__ref *next; /* on the list of those that wait, or are spare */
  struct mf__ref *newer, *older, **newest; /* in its state, for Python's collector; guarded by the GIL */
} mf__ref;

/* What Lua got of Python between the beginning of a scope and its end. Guarded by the GIL. */
typedef struct mf__scope {
  mf__ref *made;
  struct mf__scope *next; /* in its state */
} mf__scope;

/* A new pair that owns ${object}, on the list that begins at ${newest}; NULL without memory, and then nothing is owned.
 */
mf__ref *mf__ref_new(mf__ref **newest, PyObject *object);

/* Cuts the references of the list that begins at ${newest} off from it, because it is about to be freed. */
void mf__refs_forget(mf__ref **newest);

/* ${ref}, a callable, was read from the object of ${source}: it goes with that one. */
void mf__ref_read_from(mf__ref *ref, mf__ref *source);

/* ${ref} is of ${scope} from now on; NULL: of none. */
void mf__ref_enter(mf__ref *ref, mf__scope *scope);

/* Takes out what ${ref} holds, for the caller to give back; some of it may be NULL. */
void mf__ref_empty(mf__ref *ref, PyObject *held[2]);

/* Cuts all references off from the scopes that begin at ${scopes}, and frees those. */
void mf__scopes_free(mf__scope **scopes);

/* Queues ${ref} to be given back. Any thread, no GIL, no lock, no allocation: fit for a finalizer. */
void mf__ref_retire(mf__ref *ref);

/* Whether any is queued; gives all of them back, with the GIL. That may run any code: see mf__refs_drain (guard.h). */
int mf__refs_wait(void);
void mf__refs_give_back(void);

/* Takes account of what ${ref} weighs, until it is given back, or until its object is about to change; whether a
 * reference to ${object} weighs already; what all of them weigh. */
void mf__ref_weigh(mf__ref *ref, double nbytes);
void mf__ref_unweigh(mf__ref *ref);
int mf__is_weighed(const PyObject *object);
double mf__refs_nbytes(void);

/* stack.c: whether what nests further might not find room on this thread's C stack: less than 1/${part} of what is kept
 * free is left. */
int mf__stack_is_low(int part);

/* Whether there is room for so many bytes, and some beside it for whatever C code they are for. */
int mf__stack_has(size_t nbytes);

/* code.c: runs ${text} with these names, or does not where they are NULL. Returns 0, or -1 with an exception. With the
 * GIL, and without Lua's lock. */
int mf__run_code(const char *text, PyObject *names);

/* error_types.c: made once; 0, or -1 with an exception. */
extern PyObject *mf__lua_error_type, *mf__lua_syntax_error_type, *mf__lua_memory_error_type;
int mf__error_types_ready(void);

#endif
