/* visit.h: how Python gets into Lua, and Lua values as Python objects. Part of bridge.h.
 *
 * A state (mf__state, a Python object) is one Lua universe, whoever hosts whom. Rules:
 *   1. Only the thread that owns a state's lock touches its Lua. The lock's fields change only with the GIL held, and
 *      nobody waits for the lock with the GIL held. The thread that runs Lua owns it.
 *   2. Lua runs without the GIL (mf__run). Bodies run with the GIL and the lock. Around a Python call that may take
 *      long or wait for another thread, a body gives up the lock: mf__outside_begin ... mf__outside_end.
 *   3. A call from Python into Lua runs on the lua_State that called out on this thread, else on the main one if nobody
 *      is inside, else on a coroutine of its own; so threads that are inside at the same time never share a stack.
 *   4. What Python drops is queued on the state and given back by whoever owns the lock next.
 */
#ifndef MF__VISIT_H
#define MF__VISIT_H

typedef struct mf__state mf__state;

/* How values cross: what differs between moonferry.python (mf__copy_policy, bindings/lua) and moonferry.Lua
 * (mf__wrap_policy, bindings/python/lua). A kit has one. The functions are called in bodies. */
typedef struct mf__policy {
  /* Pushes the held ${object}, which is not plain. Raises. */
  void (*push)(lua_State *L, PyObject *object);
  /* A new reference to what ${index} (absolute) is, which is not plain. Raises, or NULL with an exception. */
  PyObject *(*take)(lua_State *L, int index);
  /* Pushes what a Lua error threw that comes back as ${exception} and returns 1, or returns 0. */
  int (*thrown)(lua_State *L, PyObject *exception);
  double whole_below;             /* whole numbers are ints as long as they are smaller than this */
  unsigned none_is_nil : 1;       /* else None is a value of its own, and nil is None all the same */
  unsigned has_encoding : 1;      /* strings are as the state's options have them; else UTF-8 */
  unsigned binds_functions : 1;   /* a Lua function in a Python class is a method */
  unsigned starts_coroutines : 1; /* a coroutine that has not begun is a function that makes coroutines */
} mf__policy;

/* What C knows of a kit; part of its state. A userdata in its slot MF__KIT_STATE, which is the second upvalue of every
 * mf__enter, points to it until the Lua state is closed. */
typedef struct mf__kit {
  mf__state *_Atomic state; /* borrowed. NULL once the Lua state is being closed */
  struct mf__kit *next;     /* of the same state */
  struct mf__kit **box;     /* in the kit's table; NULL once that was collected */
  const mf__policy *policy;
  const void *object, *fault; /* lua_topointer of the metatables */
  int values;                 /* how many Lua values in Python were made by this one; as long as there are any: */
  int runner;                 /* registry references to what mf__visit calls, */
  int handler;                /* and its message handler; both have the kit */
  int tensors;                /* weak: address of an mf_tensor -> the Lua tensor that has it; 0 before the first; */
  int handle;                 /* the string "handle", so that looking it up does not allocate; likewise */
  struct mf__keys *keys;      /* names.c; NULL before the first */
} mf__kit;

/* guard.c: what a thread is doing on the bridge; the innermost is mf__top. */
typedef struct mf__frame {
  struct mf__frame *below;
  lua_State *L;
  mf__kit *kit;
  mf__state *state;      /* a visit holds it, because Lua or Python may drop the last reference in its course */
  PyThreadState *thread; /* of a visit: while Lua runs, what the GIL is taken back with; else NULL */
  int (*body)(lua_State *L, void *data);
  void *data;
  int is_visit;
  int top;                                  /* of a visit: the stack's, before it */
  int depth;                                /* of the lock, while it is given up */
  int nesting;                              /* of tables that are copied */
  int count;                                /* of what is held */
  PyObject *held[2 * MF__NESTING_MAX + 16]; /* a body holds few, and of each table that it copies two */
} mf__frame;

extern _Thread_local mf__frame *mf__top;

/* Runs ${body} in Lua on behalf of Python code: protected, with the lock and the GIL, and with the kit as its first
 * upvalue, so that it may do all that bodies may. Returns 0, or -1 with the Lua error as the pending exception. */
int mf__visit(mf__kit *kit, int (*body)(lua_State *L, void *data), void *data);

/* Around whatever runs a script's code on behalf of Python: lets the GIL go, takes it back. The second returns whether
 * the script is to stop, and then whatever it gave does not count: its last call may have been a pcall that caught the
 * error which ended it. */
void mf__run_begin(mf__frame *frame);
int mf__run_end(mf__frame *frame);

/* In a body of mf__visit: lua_call, without the GIL. Raises if the script is to stop. */
void mf__run(lua_State *L, int arguments, int results);

/* The same in any body, by lua_pcall without a message handler; returns its status, or LUA_ERRRUN with an error if the
 * script is to stop. */
int mf__run_protected(lua_State *L, int arguments, int results);

/* kit.c */

/* Makes the kit at ${kit}, a table, one of this Lua state. Whatever is needed of the state is made, too. Raises.
 * The GIL must be held. */
mf__kit *mf__kit_open(lua_State *L, int kit, const mf__policy *policy);

/* Puts the table at the top of the stack into the kit as its metatable ${slot}: MF__KIT_OBJECT or MF__KIT_FAULT. */
void mf__kit_metatable(lua_State *L, int kit, int slot);

/* Whether a metatable is one of Python objects, of this kit or another one of the same state. */
int mf__kit_knows(const mf__kit *kit, const void *metatable);

/* state.c */

/* Around Python calls in a body: gives up the lock, takes it back. They must come in pairs. */
void mf__outside_begin(void);
void mf__outside_end(void);

/* Whether this thread is in a body, and has the lock of its state. */
int mf__is_inside(void);

/* lua_object.c, lua_table.c, lua_thread.c: Lua values as Python objects. */

/* A new Python object (LuaFunction, LuaTable, LuaThread or LuaObject) that stands for the value at ${index}. Raises. */
PyObject *mf__lua_object(lua_State *L, int index);

/* If ${object} stands for a Lua value, pushes that and returns 1, else 0. Raises for one of another state. */
int mf__push_lua_object(lua_State *L, PyObject *object);

/* wrap.c: how values cross for moonferry.Lua. */

/* What a userdata of a Python object shows; flags of mf__ref. */
enum {
  MF__AS_ITEMS = 1,   /* o[key] is an item, else an attribute */
  MF__AS_TUPLES = 2,  /* an iterator's tuples are several values */
  MF__AS_NUMBERED = 4 /* an iterator counts */
};

void mf__push_flagged(lua_State *L, PyObject *object, int flags);

/* A name as a key in Lua: as it is, or as bytes in a state without an encoding. A new reference. */
PyObject *mf__source_name(const mf__state *state, PyObject *name);

/* lua_error.c */

/* What a LuaError that comes back into its own state carries, new; NULL without an exception for any other. */
PyObject *mf__thrown_value(PyObject *exception);

/* Pushes that; takes the reference over. */
void mf__push_thrown(lua_State *L, PyObject *value);

#endif
