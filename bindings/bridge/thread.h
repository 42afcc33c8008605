/* thread.h: declares the layer of threads: a Lua state, its lock and its stacks, and what this thread is doing there.
 *
 * A state (mf__state, a Python object) is one Lua universe, whichever language is the host. Only the thread that owns a
 * state's lock uses its Lua. The lock's fields change only with the GIL held, and no thread waits for the lock with the
 * GIL held. The thread that runs Lua owns it. */
#ifndef MF__THREAD_H
#define MF__THREAD_H

/* First, because Python.h chooses what the C library declares. */
#include "lifetime.h"

#include <pthread.h>
#include <stdatomic.h>

/* The arguments of moonferry.Lua(...) by which values are converted. All but the flags may be NULL. */
typedef struct mf__options {
  PyObject *filter, *getter, *setter; /* of attributes */
  char *encoding, *source_encoding;   /* NULL encoding: strings are bytes */
  int utf8;                           /* encoding is UTF-8 */
  int unpack;                         /* tuples that functions return are several values */
  int sandbox;                        /* exceptions show neither the host's files nor their class */
} mf__options;

/* The account of a state's allocator (bindings/python/lua/memory.c). */
typedef struct mf__memory {
  size_t used, base, limit; /* limit: 0 is none */
  int counted;              /* max_memory was given */
  int refuse;               /* the next allocation fails, whatever it is */
  size_t refused;           /* how many allocations have failed for want of memory */
  int exempt;               /* allocations are counted, but not refused: bookkeeping that must not fail halfway */
} mf__memory;

/* What a thread has of the lock of a state when it gives that up in the midst of Lua, and wants back. */
typedef struct mf__turn {
  int depth;           /* how often it had taken it */
  unsigned char marks; /* LuaJIT's, that a hook or a finalizer runs, which this thread runs */
} mf__turn;

typedef struct mf__state mf__state;

/* The bridge: what one opening of the bridge needs in its Lua state, a table. Its slots: */
enum {
  MF__BRIDGE_OBJECT = 1, /* the metatable of Python objects */
  MF__BRIDGE_KEYWORDS,   /* the metatable that py.kw gives its table */
  MF__BRIDGE_NONE,       /* the one userdata that stands for None, so that x == py.None is cheap */
  MF__BRIDGE_NEXT,       /* the step of py.iter */
  MF__BRIDGE_DESCRIBE,   /* Lua: value -> what it is (MF__IS_...), payload; for FFI values and tensors */
  MF__BRIDGE_ADOPT,      /* Lua: makes a Lua tensor of the handle in the box */
  MF__BRIDGE_BOX,        /* an FFI value `mf_tensor *[1]`, through which handles go to Lua */
  MF__BRIDGE_FAULT,      /* the metatable of Python exceptions that were raised in Lua */
  MF__BRIDGE_NEXT_EACH,  /* the step of py.each */
  MF__BRIDGE_STATE,      /* the mf__bridge */
  MF__BRIDGE_TRACE,      /* Lua's stack when the last error was raised in mf__call_in */
  MF__BRIDGE_CACHE,      /* weak: address of a Python object -> its userdata; where userdata must be unique */
  MF__BRIDGE_OVERFLOW,   /* what is called for an int that no number holds, or nil */
  MF__BRIDGE_UNWRAP,     /* weak keys: functions of as_function -> their Python objects */
  MF__BRIDGE_LOAD,       /* fills DESCRIBE, ADOPT and BOX when they are first needed; nil where they are there */
  MF__BRIDGE_IMPORT,     /* Lua: a Python module of that name; for LOAD */
  MF__BRIDGE_RUNNER,     /* what mf__call_in calls, and its message handler; bridge.c */
  MF__BRIDGE_HANDLER,
  MF__BRIDGE_SCOPES,  /* of moonferry.python: by coroutine, the innermost scope, whose field `guest` is an mf__scope;
                       * other bridges of the state take the one that ${innermost} refers to */
  MF__BRIDGE_RELEASE, /* what runs the deleters that are due, for LOAD */
  MF__BRIDGE_SLOTS    /* so many places a bridge has from the start: a table that has to grow may run out of memory */
};

/* What C knows of a bridge; part of its state. A userdata in its slot MF__BRIDGE_STATE, which is the second upvalue
 * of every mf__enter, points to it until the Lua state is closed. */
typedef struct mf__bridge {
  mf__state *_Atomic state; /* borrowed. NULL once the Lua state is being closed */
  struct mf__bridge *next;     /* of the same state */
  struct mf__bridge **box;     /* in the bridge's table; NULL once that was collected */
  const struct mf__policy *policy; /* handle.h */
  const void *object, *fault; /* lua_topointer of the metatables */
  int values;                 /* how many Lua values in Python were made by this one; as long as there are any: */
  int runner;                 /* registry references to what mf__call_in calls, */
  int handler;                /* and its message handler; both have the bridge */
  int tensors;                /* weak: address of an mf_tensor -> the Lua tensor that has it; 0 before the first; */
  int handle;                 /* the string "_handle", so that looking it up does not allocate; likewise */
  struct mf__keys *keys;      /* names.c; NULL before the first */
} mf__bridge;

struct mf__state {
  PyObject ob_base;
  PyObject *weakrefs;
  lua_State *L; /* the main one; NULL once it is closed */
  int hosted;   /* by Python, which closes it */
  mf__bridge *bridge;  /* of a moonferry.Lua */
  mf__bridge *bridges; /* all; until the state goes, because Lua values in Python ask theirs even after lua_close */
  mf__options options;

  mf__state *next;   /* of all */
  const void *owner; /* whose lock it is: the address of that thread's mf__top; NULL: nobody's */
  int depth;         /* how often the owner has taken it */
  unsigned char *marks; /* where LuaJIT has its marks; NULL: not known, or closed (marks.c) */
  struct mf__waiter *first, *last;
  const void *heir;  /* the waiter that was last made the owner, until it has woken up */
  const void *closer; /* the thread that has begun to close it, as mf__self; or NULL */
  int is_closers;     /* only the closer may go on there */
  int inside;        /* how many calls into Lua there are, */
  int busy;          /* and how many of them are on the main stack */
  lua_State *service; /* a stack on which nothing ever runs but what makes other stacks */
  lua_State **spare;  /* stacks for threads that come while others are inside; anchored for good */
  int spare_count, spare_total;

  int *unwanted; /* registry references to give back */
  int unwanted_count, unwanted_room;
  int dropped;   /* how many were given back since the last collection for them, */
  int patience;  /* and how many may be before the next */
  mf__ref *refs; /* newest of what Lua holds of Python */
  mf__scope *scopes; /* those that are open */
  int innermost;     /* registry reference: the MF__BRIDGE_SCOPES that came last; 0 before the first */
  mf__ref *own;  /* what a Lua program holds of this state; leak checkers do not look into the memory of Lua */

  int collector_stops; /* how many want Lua's collector to stand still (Lua.nogc) */
  mf__memory *memory; /* or NULL */
  lua_Hook stop_hook; /* what ends a script (mf__stop_hook), where Lua is never compiled, so that hooks run; or NULL */
  atomic_int stop;    /* an interrupt was asked for: MF__STOP_... */
  PyObject *reason;      /* the exception that an interrupt ends in, or NULL */
  PyObject *main_reason; /* what ends the main thread's calls instead, after Ctrl-C; or NULL (mf__stopped) */
  char *library;      /* how the names of the library's own Lua chunks begin; or NULL */
  int grace;          /* instructions that these still have to come to their end */
  void *raising;      /* what lua_thread.c's hook raises, as long as that is the state's hook */
};

/* How deeply the tables may be nested that a body copies. */
#define MF__NESTING_MAX 80

/* A call that a thread is making on the bridge; mf__top is the innermost one. The guard makes frames. */
typedef struct mf__frame {
  struct mf__frame *below;
  lua_State *L;
  mf__bridge *bridge;
  mf__state *state;      /* a call into Lua holds it, because Lua or Python may drop the last reference in its course */
  PyThreadState *thread; /* of a call into Lua: while Lua runs, what the GIL is taken back with; else NULL */
  mf__section section;   /* taken while the body runs, but for what is outside */
  int (*body)(lua_State *L, void *data);
  void *data;
  int is_call_in;
  int collects;                             /* Python's collector goes on where the body does not (collections.c) */
  int top;                                  /* of a call into Lua: the stack's, before it */
  size_t refused;                           /* and the account's, where there is one */
  mf__turn turn;                            /* of the lock, while it is given up; else without marks */
  int nesting;                              /* of tables that are copied */
  int count;                                /* of what is held */
  PyObject *held[2 * MF__NESTING_MAX + 16]; /* a body holds few, and of each table that it copies two */
} mf__frame;

/* thread.c */
extern _Thread_local mf__frame *mf__top;

/* The name of this thread as the owner of a lock. */
static inline const void *mf__self(void) {
  return &mf__top;
}

int mf__on_main_thread(void);

/* How many calls into a state's Lua this thread is in. */
int mf__calls_in(const mf__state *state);

/* Nanoseconds by a clock that nobody sets: setting the wall clock back must not prolong a wait. */
int64_t mf__now(void);

/* A condition for mf__condition_wait, which waits until mf__now() is ${end}: returns 0 if nobody signalled by then. */
void mf__condition_init(pthread_cond_t *condition);
int mf__condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t end);

/* In a child, whose main thread is the one that forked. Returns whether it was the parent's, as far as it has asked. */
int mf__thread_forked(void);

/* room.c */

/* Makes room for ${count} more values, or raises: Lua's memory error, or that there are too many. Where memory ends, a
 * LuaJIT of 2023 and later answers lua_checkstack as for a stack that is too long; an older one raises by itself. */
void mf__slots(lua_State *L, int count, const char *too_many);

/* Makes sure that ${count} values can be pushed, and never raises. Returns 0, or the status of lua_pcall with an error
 * on the stack. */
int mf__room(lua_State *L, int count);

/* Makes room on a stack of which nothing is known. */
int mf__grow(lua_State *L, int count);

/* Whether there is room already. A C function that Lua has called has LUA_MINSTACK slots above its arguments, and so
 * has a stack at rest. Where Python was called by another way (a finalizer, a deleter), Lua is at the stack's top. */
static inline int mf__has_room(lua_State *L, int count) {
  if (lua_gettop(L) + count > LUA_MINSTACK) return 0;
  return mf__top == NULL || mf__top->thread == NULL;
}

/* What a call into Lua may push by itself, outside of its body. */
enum { MF__CALL_IN_ROOM = 8 };

/* Pops a value and returns a reference to it in the registry. Raises without memory, but not for max_memory. */
int mf__anchor(lua_State *L, mf__state *state);
void mf__anchors_open(lua_State *L);

/* lua_atpanic's function of every state that Moonferry makes for Python. */
int mf__panic(lua_State *L);

/* handlers.c: our handlers of SIGINT, each of which is set before another one. */

typedef struct mf__signal mf__signal; /* one that has come */
typedef void mf__handler(const mf__signal *signal);

/* Sets ${ours} before the handler that is there, of whose flags it gets those in ${kept}. Nothing happens where one of
 * ours is there, or none (SIG_DFL, SIG_IGN); or after so many different handlers that no more can be told apart. The
 * main thread, with the GIL. */
void mf__handler_set(mf__handler *ours, int kept);

/* Where ${ours} is what is called first, the one comes back that it was set before. */
void mf__handler_unset(mf__handler *ours);

/* For a handler of ours: calls the one that it was set before, as the system would. */
void mf__pass_on(const mf__signal *signal);

/* marks.c */

/* In a hook, a handler of LuaJIT's events, or a finalizer. */
enum { MF__MARK_HOOK = 0x10, MF__MARK_EVENT = 0x20, MF__MARK_FINALIZER = 0x40, MF__MARKS = 0x70 };

/* Finds out where LuaJIT keeps them, unless that is known; does nothing where it cannot be found out. */
void mf__marks_find(void);

/* The byte that has those of ${L}'s state among other things; NULL: not known. */
unsigned char *mf__marks_of(lua_State *L);

/* Those that are set; without the lock, too. */
static inline unsigned char mf__marks(const mf__state *state) {
  return state->marks != NULL ? __atomic_load_n(state->marks, __ATOMIC_RELAXED) & MF__MARKS : 0;
}

/* Takes the marks off a state, and returns them; sets them. With the lock, unless the state is to stop. Meanwhile a
 * handler of a signal or another thread may set a hook, which changes the same byte. */
static inline unsigned char mf__marks_take(mf__state *state) {
  const unsigned char marks = mf__marks(state);
  if (marks != 0) __atomic_and_fetch(state->marks, (unsigned char)~marks, __ATOMIC_RELAXED);
  return marks;
}

static inline void mf__marks_put(mf__state *state, unsigned char marks) {
  if (marks != 0 && state->marks != NULL) __atomic_or_fetch(state->marks, marks, __ATOMIC_RELAXED);
}

/* stop.c: ending scripts that run. */
enum {
  MF__STOP_NOT,
  MF__STOP_ASKED,  /* whatever runs there ends; Ctrl-C may have come as well */
  MF__STOP_SIGNAL, /* Ctrl-C came for the main thread, and Python has yet to say what that means */
  MF__STOP_MAIN    /* whatever the main thread runs there ends */
};

/* Ends whatever runs in the state with ${reason}, an exception, borrowed. Any thread, with the GIL. */
void mf__stop(mf__state *state, PyObject *reason);

/* Makes Ctrl-C end the main thread's calls in the state with ${reason}, which is taken over. Returns a reference to
 * give back, or NULL. */
PyObject *mf__stop_main(mf__state *state, PyObject *reason);

/* Begin and end of each call into an interruptible state; mf__stop_disarm also ends calls into any state that is to
 * stop. ${thread_left}: it is the last call of this thread. ${ended}: two references to give back without the lock, or
 * NULL. */
void mf__stop_arm(void);
void mf__stop_disarm(mf__state *state, int thread_left, PyObject *ended[2]);

/* In a child, whose main thread is the one that forked; the second for each state, once its calls are counted anew.
 * ${was_main}: that thread was the parent's main thread, too. */
void mf__stop_forked(void);
void mf__stop_forget_others(mf__state *state, int was_main);

/* A thread takes the lock of a state that is to stop, or gives it up: the hook is there only while the lock is held by
 * the thread that is meant. */
void mf__stop_renew(mf__state *state);
void mf__stop_pause(mf__state *state);

/* Takes the hook away, unless a signal has asked for a stop meanwhile. */
void mf__stop_take_hook(mf__state *state);

/* Called by a handler of SIGINT on the main thread: the interruptible states that this thread is in are to stop, as
 * Python's handlers will have it. */
void mf__stop_signal(void);

/* Whether the state is to stop; and whether it is, with the reason as the pending exception then. */
int mf__stops(mf__state *state);
int mf__stopped(mf__state *state);

/* lock.c */

/* All that there are; linked by their `next`. Changes with the GIL held. */
extern mf__state *mf__states;

/* What there is to do for a lock that another thread has or had, and for one that others wait for; cold, so that the
 * usual way has no jumps. */
__attribute__((cold)) int mf__lock_wait(mf__state *state, int patient);
__attribute__((cold)) void mf__lock_pass_on(mf__state *state);

/* Takes the lock. Waits in line for it; on the main thread, unless it is ${patient}, it looks for signals meanwhile.
 * Returns 0, or -1 with an exception. */
static inline int mf__lock(mf__state *state, int patient) {
  if (state->owner == mf__self()) {
    state->depth++;
    return 0;
  }
  if (state->owner != NULL && mf__lock_wait(state, patient) != 0) return -1;
  state->owner = mf__self();
  state->depth = 1;
  if (state->stop_hook != NULL) mf__stop_renew(state);
  return 0;
}

/* Gives the lock up altogether, to the first in line. */
static inline void mf__unlock(mf__state *state) {
  if (state->stop_hook != NULL) mf__stop_pause(state);
  mf__marks_take(state);
  state->depth = 0;
  state->owner = NULL;
  if (state->first != NULL) mf__lock_pass_on(state);
}

/* Gives the lock up in the midst of Lua; the thread gets back what it had, once it has the lock again and is to go on
 * there. */
static inline mf__turn mf__lock_lend(mf__state *state) {
  const mf__turn turn = {state->depth, mf__marks_take(state)};
  mf__unlock(state);
  return turn;
}

static inline void mf__lock_resume(mf__state *state, mf__turn turn) {
  state->depth = turn.depth;
  mf__marks_put(state, turn.marks);
}

/* Begin and end of a state's lock. Once it is closed, its L is NULL, and the threads that wait in line find out. It is
 * freed with its state. */
void mf__lock_create(mf__state *state);
void mf__lock_close(mf__state *state);
void mf__lock_free(const mf__state *state);

/* From here on a child of this process knows that the other threads are not there. Once; 0, or an error number. */
int mf__forks_watch(void);

/* stacks.c */

/* Begins every call from Lua into Python: the thread that gets here owns the lock. */
void mf__state_arrive(mf__state *state, lua_State *L);

/* Makes the lock of a state that a Lua program has, this thread's. */
void mf__state_adopt(mf__state *state);

/* For a thread that leaves the process and goes on in no Lua: gives up its locks of all states that Lua programs have.
 * With the GIL. */
void mf__locks_give_up(void);

/* Whether this thread, which has the lock, must not go on in Lua because the state is closed, or is being closed by
 * another thread that waits for nobody any more. */
static inline int mf__state_is_over(const mf__state *state) {
  return state->L == NULL || (state->is_closers && state->closer != mf__self());
}

/* Takes the lock and returns the stack to work on; NULL with or without an exception if the state is closed or has no
 * memory. mf__state_leave ends it. */
lua_State *mf__state_enter(mf__state *state);
void mf__state_leave(mf__state *state, lua_State *L);

/* A look into Lua that neither allocates there nor raises nor runs code, so that it needs no frame: takes the lock if
 * that is free, and returns a stack with room for 8 values; NULL where only a call into Lua will do. */
lua_State *mf__peek_begin(mf__state *state, mf__section *section);

/* ${top}: lua_gettop of before. */
void mf__peek_end(mf__state *state, lua_State *L, int top, mf__section *section);

/* Whether memory is near its limit and Python has dropped so much that a collection may help; what says that there was
 * one. */
int mf__state_is_short(mf__state *state);
void mf__state_collected(mf__state *state);

/* Queues a registry reference to be given back. With the GIL, in the section. */
void mf__state_unref(mf__state *state, int ref);

#endif
