/* state.h: the inside of a state, for the files of the bridge that put Python into Lua. */
#ifndef MF__STATE_H
#define MF__STATE_H

#include <stdatomic.h>

#include "bridge.h"

/* What moonferry.Lua(...) was given that values are converted by. All but the flags may be NULL. */
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
  int exempt;               /* allocations are counted, but not refused: bookkeeping that must not fail halfway */
} mf__memory;

struct mf__state {
  PyObject ob_base;
  PyObject *weakrefs;
  lua_State *L; /* the main one; NULL once it is closed */
  int hosted;   /* by Python, which closes it */
  mf__kit *kit;  /* of a moonferry.Lua */
  mf__kit *kits; /* all of them; until the state goes, because Lua values in Python ask theirs even after lua_close */
  mf__options options;

  const void *owner; /* whose lock it is: the address of that thread's mf__top; NULL: nobody's */
  int depth;         /* how often the owner has taken it */
  struct mf__waiter *first, *last;
  const void *heir;  /* the waiter that was last made the owner, until it has woken up */
  unsigned forks;    /* of how many forks this knows: those in line stay in the parent */
  int inside;        /* how many visits there are, */
  int busy;          /* and how many of them are on the main stack */
  lua_State *service; /* a stack on which nothing ever runs but what makes other stacks */
  lua_State **spare;  /* stacks for threads that come while others are inside; anchored for good */
  int spare_count, spare_total;

  int *unwanted; /* registry references to give back */
  int unwanted_count, unwanted_room;
  int dropped;   /* how many were given back since the last collection for them, */
  int patience;  /* and how many may be before the next */
  mf__ref *refs; /* newest of what Lua holds of Python */
  mf__ref *own;  /* what a Lua program holds of this state; leak checkers do not look into the memory of Lua */

  mf__memory *memory; /* or NULL */
  int interruptible;  /* Lua is never compiled, so that hooks run */
  atomic_int stop;    /* an interrupt was asked for: MF__STOP_... */
  PyObject *reason;   /* the exception that it ends in, or NULL */
  char *library;      /* how the names of the library's own Lua chunks begin; or NULL */
  int grace;          /* instructions that these still have to come to their end */
};

/* Whether strings cross as UTF-8. */
static inline int mf__is_utf8(const mf__kit *kit) {
  return !kit->policy->has_encoding || kit->state->options.utf8;
}

/* state.c */

extern PyTypeObject *mf__state_type;

/* What Lua code does first in Python: whoever gets here owns the lock. */
void mf__state_arrive(mf__state *state, lua_State *L);

/* Takes the lock and returns the stack to work on; NULL with or without an exception if the state is closed or has no
 * memory. mf__state_leave ends it. */
lua_State *mf__state_enter(mf__state *state);
void mf__state_leave(mf__state *state, lua_State *L);

mf__ref **mf__state_refs(mf__state *state);

/* Lua is about to close it: waits for the calls that threads of Python's have there, but for those of daemon threads,
 * which never come back. Without the GIL, or with it. */
void mf__state_await(mf__state *state);

/* From here on nobody gets in. Those who wait find out. */
void mf__state_shut(mf__state *state);

/* kit.c: the same for its kits; and their end. */
void mf__kits_shut(mf__state *state);
void mf__kits_free(mf__state *state);

/* Of a Lua value in Python: the kit, whose table is at ${table}, stays as long as there is one. The first may raise. */
void mf__kit_retain(lua_State *L, mf__kit *kit, int table);
void mf__kit_release(mf__kit *kit, mf__state *state);

/* Whether memory is near its limit and Python has dropped so much that a collection may help; what says that there was
 * one. */
int mf__state_is_short(mf__state *state);
void mf__state_collected(mf__state *state);

/* A new state for ${L}, which Python closes if it is ${hosted}; and kit.c: its entry in Lua's registry, by which
 * mf__kit_open finds it. The second raises. */
mf__state *mf__state_new(PyTypeObject *type, lua_State *L, int hosted);
void mf__state_register(lua_State *L, mf__state *state);

/* Makes the lock of a state that a Lua program has, this thread's. */
void mf__state_adopt(mf__state *state);
void mf__options_clear(mf__options *options);

/* room.c */

/* Makes sure that ${count} values can be pushed, and never raises. Returns 0, or the status of lua_pcall with an error
 * on the stack. */
int mf__room(lua_State *L, int count);

/* The same for a stack of which nothing is known. */
int mf__grow(lua_State *L, int count);

/* Whether there is room already. A C function that Lua has called has LUA_MINSTACK slots above its arguments, and so
 * has a stack at rest. Where Python was called by another way (a finalizer, a deleter), Lua is at the stack's top. */
static inline int mf__has_room(lua_State *L, int count) {
  if (lua_gettop(L) + count > LUA_MINSTACK) return 0;
  return mf__top == NULL || mf__top->thread == NULL;
}

/* What a visit may push by itself, outside of its body. */
enum { MF__VISIT_ROOM = 8 };

/* Pops a value and returns a reference to it in the registry. Raises without memory, but not for max_memory. */
int mf__anchor(lua_State *L, mf__state *state);
void mf__anchors_open(lua_State *L);

/* lua_atpanic's function of every state that Moonferry makes for Python. */
int mf__panic(lua_State *L);

/* Queues a registry reference to be given back. With the GIL. */
void mf__state_unref(mf__state *state, int ref);

/* Makes the types of this bridge once. Returns 0, or -1 with an exception. */
int mf__types_ready(void);

/* guard.c: from here on what Python's collector runs finds the lock given up. Once; 0, or -1 with an exception. */
int mf__collections_watch(void);

/* guard.c: mf__visit in pieces, for what can do without a protected body. */
int mf__visit_runner(lua_State *L);

/* Returns the stack, or NULL with an exception; then the visit has not begun. Whoever begins ends. */
lua_State *mf__visit_begin(mf__kit *kit, mf__frame *frame);

/* Runs ${body} on the topmost ${arguments} values; returns lua_pcall's status, and leaves the error on the stack. */
int mf__visit_body(mf__frame *frame, int (*body)(lua_State *, void *), void *data, int arguments);

/* Makes the error at the top of the stack the pending exception. */
void mf__visit_fail(mf__frame *frame, int status);
void mf__visit_end(mf__frame *frame);

/* state.c: a look into Lua that neither allocates there nor raises nor runs code, so that it needs no frame: takes the
 * lock if that is free, and returns a stack with room for 8 values; NULL where only a visit will do. */
lua_State *mf__glance_begin(mf__state *state);

/* ${top}: lua_gettop of before. */
void mf__glance_end(mf__state *state, lua_State *L, int top);

/* guard.c: mf__enter with a quick way to try before the body, which has the lock and the GIL but is not protected: it
 * must not raise in Lua. It returns how many results it pushed; or, with the stack as it was, MF__QUICK_NOT if the body
 * shall do all, or MF__QUICK_REST for what it got of Python: frame->data, a new reference, or the exception if that is
 * NULL. */
typedef int (*mf__quick_body)(lua_State *L, mf__frame *frame);
enum { MF__QUICK_NOT = -1, MF__QUICK_REST = -2 };
int mf__enter_by(lua_State *L, mf__quick_body quick);

/* Pushes ${body} behind ${enter}, which calls mf__enter_by. */
void mf__push_entry(lua_State *L, lua_CFunction enter, lua_CFunction body, int kit);

/* quick.c: conversions that can neither allocate in Lua nor raise. */

/* The reference of the open Python object at ${index}, or NULL. */
mf__ref *mf__quick_ref(lua_State *L, const mf__kit *kit, int index);

/* Takes the new reference ${got}, or the pending exception, and returns what a mf__quick_body has to. */
int mf__quick_result(lua_State *L, mf__frame *frame, PyObject *got);

/* Pushes the borrowed ${object} and returns 1, or returns 0. */
int mf__quick_push(lua_State *L, const mf__kit *kit, PyObject *object);

/* Puts what is at ${index} (absolute) into ${result} and returns 1, or returns 0. The result may be NULL with an
 * exception. */
int mf__quick_take(lua_State *L, const mf__kit *kit, int index, PyObject **result);

/* tensor.c: the same of a tensor that has crossed before. */
int mf__tensor_quick_push(lua_State *L, const mf__kit *kit, PyObject *object);
int mf__tensor_quick_take(lua_State *L, const mf__kit *kit, int index, PyObject **result);

/* names.c */

/* The str of a short string at ${index}, which is interned and remembered, as names are; a new reference. Raises. */
PyObject *mf__name_to_python(lua_State *L, int index);

/* The same if that is known already, else NULL without an exception. Never raises. */
PyObject *mf__name_known(lua_State *L, int index);

/* Pushes the Lua string of ${key} if it is remembered and returns 1, or returns 0. Neither allocates nor raises. */
int mf__key_push(lua_State *L, const mf__kit *kit, const PyObject *key);

/* Remembers that the string at the top of the stack is ${key} in Lua. */
void mf__key_remember(lua_State *L, PyObject *key);
/* Forgets all of them: what is in the registry, too; and only what Python has, once that is gone. */
void mf__keys_clear(lua_State *L, mf__kit *kit);
void mf__keys_free(mf__kit *kit);

/* stop.c: what ends a script that runs. */
enum {
  MF__STOP_NOT,
  MF__STOP_ASKED,  /* whatever runs there ends */
  MF__STOP_SIGNAL, /* Ctrl-C came for the main thread, and Python has yet to say what that means */
  MF__STOP_MAIN    /* whatever the main thread runs there ends */
};

int mf__on_main_thread(void);

/* Ends whatever runs in the state with ${reason}, an exception, borrowed. Any thread, with the GIL. */
void mf__stop(mf__state *state, PyObject *reason);

/* Of each visit of an interruptible state, and the second of any that is to stop; ${thread_left}: it is the last one of
 * this thread. The second returns a reference to give back without the lock, or NULL. */
void mf__stop_arm(void);
PyObject *mf__stop_disarm(mf__state *state, int thread_left);

/* Of a thread that takes the lock of a state that is to stop, or gives it up: only where that thread is meant, there is
 * a hook. */
void mf__stop_renew(mf__state *state);
void mf__stop_pause(mf__state *state);

/* Of a handler of SIGINT on the main thread: the interruptible states that this thread is in are to stop, as Python's
 * handlers will have it. Returns how many there are. */
int mf__stop_signal(void);

/* If a signal that came meanwhile has become this ${exception}, which gets into Lua, the state is to stop for it: a
 * script may not catch it. */
void mf__stop_by(mf__state *state, PyObject *exception);

/* Whether the state is to stop; and whether it is, with the reason as the pending exception then. */
int mf__stops(mf__state *state);
int mf__stopped(mf__state *state);

/* view.c: what Python's as_attrgetter and as_itemgetter make. */

/* The object inside a view and the flags of it (MF__AS_...), borrowed; NULL for another object. */
PyObject *mf__view_of(PyObject *object, int *flags);
PyObject *mf__view_new(PyObject *object, int flags);
int mf__view_type_ready(void);

/* lua_error.c */

/* A body: makes the error value at 1 the pending exception. ${status}: an int, what lua_pcall returned. */
int mf__error_to_python(lua_State *L, void *status);

/* The same for when that fails. */
void mf__error_fallback(void);

/* The message handler of mf__visit. */
int mf__error_handler(lua_State *L);

/* A new exception of ${type} (LuaError or below), with message, value and traceback; NULL with an exception. */
PyObject *mf__error_new(PyObject *type, PyObject *message, PyObject *value, PyObject *trace);

/* Text that may be no text, for people: as the state's encoding has it, or UTF-8, or Latin-1. */
PyObject *mf__text_of_error(const char *text, size_t size);

extern PyObject *mf__lua_error_type, *mf__lua_syntax_error_type, *mf__lua_memory_error_type;
int mf__error_types_ready(void);

/* stack.c: whether what nests further might not find room on this thread's C stack: less than 1/${part} of what is kept
 * free is left. */
int mf__stack_is_low(int part);

/* Whether there is room for so many bytes, and some beside it for whatever C code they are for. */
int mf__stack_has(size_t nbytes);

/* attribute.c: attributes as the state's filter or handlers have them. */

/* The attribute, a new reference, or NULL with an exception. ${key}: a str, or bytes in a state without an encoding. */
PyObject *mf__attribute_get(lua_State *L, PyObject *object, PyObject *key);
void mf__attribute_set(lua_State *L, PyObject *object, PyObject *key, PyObject *value);

/* signature.c: fields and methods of LuaFunction. */
PyObject *mf__function_signature(PyObject *self, void *unused);
PyObject *mf__function_itself(PyObject *self, PyObject *unused);

/* lua_object.c */

/* A Lua value in Python. */
typedef struct mf__value {
  PyObject ob_base;
  PyObject *weakrefs;
  mf__state *state;     /* strong */
  mf__kit *kit;         /* lives as long as the Lua state */
  int ref;              /* in the registry */
  int kind;             /* LUA_T... */
  const void *identity; /* lua_topointer */
  PyObject *(*vectorcall)(PyObject *, PyObject *const *, size_t, PyObject *);
} mf__value;

/* quick.c: each of these pushes and returns 1, or returns 0: a table that has no metatable; a key, which is never nil.
 */
int mf__glance_table(lua_State *L, const mf__value *value);
int mf__glance_key(lua_State *L, const mf__kit *kit, PyObject *key);

extern PyTypeObject *mf__object_type, *mf__table_type, *mf__function_type, *mf__factory_type, *mf__thread_type,
    *mf__iterator_type;

/* Pushes the value; raises if it is lost. */
void mf__value_push(lua_State *L, mf__value *value);

/* The same of a table, and raises for something else: Python lets a program give any of these objects the class of
 * another. */
void mf__table_push(lua_State *L, mf__value *value);

/* What Lua calls the type of the value. */
const char *mf__kind_name(const mf__value *value);

/* A new value of ${type} for what is at ${index}. Raises. */
PyObject *mf__value_new(lua_State *L, int index, PyTypeObject *type);
void mf__value_dealloc(PyObject *self);
int mf__value_traverse(PyObject *self, visitproc visit, void *arg);

/* The arguments of a call. */
typedef struct mf__call {
  mf__value *callee;
  PyObject *const *arguments;
  Py_ssize_t count;
  PyObject *result; /* new */
} mf__call;

/* The body of a call. */
int mf__call_body(lua_State *L, void *call);

PyObject *mf__value_call(PyObject *self, PyObject *const *arguments, size_t flags, PyObject *names);
PyObject *mf__value_get(PyObject *self, PyObject *key);

/* A new type below LuaObject. */
PyTypeObject *mf__value_subtype(const char *name, int basicsize, PyType_Slot *slots, unsigned long flags);

/* tp_new of types that only C makes objects of. */
PyObject *mf__no_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords);

/* Whether ${object} is a mf__value. */
static inline int mf__is_value(PyObject *object) {
  return mf__object_type != NULL && PyObject_TypeCheck(object, mf__object_type);
}

/* Whether a name is of the form __x__, which is Python's and never Lua's. */
int mf__is_dunder(PyObject *name);

/* What the values from ${first} to the top are as the result of a call: None, one value, or a tuple. */
PyObject *mf__results(lua_State *L, int first);

/* lua_table.c, lua_thread.c */
/* A new coroutine of the function that ${function} is, with the tuple of what it begins with. */
PyObject *mf__thread_start(PyObject *function, PyObject *arguments);

int mf__object_types_ready(void);
int mf__table_types_ready(void);
int mf__thread_types_ready(void);

/* For a coroutine at ${index}: a new value; one that has not begun is a function that makes them. */
PyObject *mf__thread_object(lua_State *L, int index);

#endif
