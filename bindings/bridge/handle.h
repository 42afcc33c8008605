/* handle.h: declares the layer of handles: a Python object that Lua holds, a Lua value that Python holds, and errors in
 * Lua. */
#ifndef MF__HANDLE_H
#define MF__HANDLE_H

#include <signal.h>

#include "guard.h"

/* How values cross: what differs between moonferry.python (mf__copy_policy, bindings/lua) and moonferry.Lua
 * (mf__wrap_policy, bindings/python/lua). A bridge has one. The functions are called in bodies. */
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

/* raise.c: errors. Those that return int never return; their type lets callers write `return mf__fail(...)`. */

/* Raises a Lua error with the position of the Lua code that called. */
int mf__fail(lua_State *L, const char *format, ...);

/* Raises the pending Python exception as a Lua error: a userdata that knows the exception and where it was raised. */
int mf__raise(lua_State *L);

/* Pushes it instead. */
void mf__push_raised(lua_State *L);

/* Pushes a new userdata of the borrowed ${object}, which has the metatable of that slot of the bridge. */
mf__ref *mf__push_ref(lua_State *L, PyObject *object, int metatable);

/* Slots of the environment of that of an exception which was raised. */
enum { MF__FAULT_WHERE = 1, MF__FAULT_STACK };

/* Keeps ${object} until mf__drop or, after an error, until mf__enter gives it back. NULL raises the pending
 * exception. Returns ${object}. */
PyObject *mf__hold(lua_State *L, PyObject *object);

/* Set by the handler of SIGINT, where Python itself would not look for it. */
extern volatile sig_atomic_t mf__interrupted;

/* Whether such a signal came and became an exception, which is pending then. */
int mf__interrupt_came(void);

/* Raises that exception, if there is one. */
void mf__check_interrupt(lua_State *L);

/* py_handle.c: the userdata of a Python object. */

/* Whether a metatable is one of Python objects, of this bridge or another one of the same state. */
int mf__bridge_knows(const mf__bridge *bridge, const void *metatable);

/* Whether the value at ${index} is a Python object, closed or not. */
int mf__is_object(lua_State *L, int index);

/* The reference at ${index}, or NULL if it is something else. Raises for an object that was closed. */
mf__ref *mf__ref_at(lua_State *L, int index);

/* The reference at ${index}; raises for something else. */
mf__ref *mf__ref_check(lua_State *L, int index);

/* The object of the userdata at ${index}, held: while Python runs, Lua may close or collect it. */
PyObject *mf__held_at(lua_State *L, int index);

/* The reference of the open Python object at ${index}, or NULL. Neither allocates nor raises. */
mf__ref *mf__unprotected_ref(lua_State *L, const mf__bridge *bridge, int index);

/* scope.c: a new ${ref} is of the innermost scope of the coroutine ${L}, if there is one. Neither raises nor allocates.
 */
void mf__scope_register(lua_State *L, mf__ref *ref);

/* The table at ${innermost} is MF__BRIDGE_SCOPES for those bridges of the state that have none of their own: what
 * Python gives moonferry.Lua is of a scope like what moonferry.python gets. May raise. */
void mf__scopes_of(lua_State *L, mf__state *state, int innermost);

/* Whether an address is that of a scope of the state which has not ended. */
int mf__scope_is_open(const mf__state *state, const void *scope);

/* Gives back what ${ref} holds: the Lua value counts as closed. The same of the callables that were read from it. In
 * bodies. */
void mf__close_ref(mf__ref *ref);
void mf__close_callables(mf__ref *ref);

/* The exception that the Lua value at ${index} is: that of an error which mf__raise raised, or a Python object that
 * is an exception; else NULL. Borrowed from the Lua value. */
PyObject *mf__fault_exception(lua_State *L, int index);

/* Pushes that of a Python object, which weighs something; the object is borrowed. */
void mf__push_object(lua_State *L, PyObject *object);

/* The same, and takes the reference over. NULL raises the pending exception. */
void mf__wrap(lua_State *L, PyObject *object);

/* Adds to the metatable at the top of the stack what every userdata of a Python object needs. */
void mf__handle_metatable(lua_State *L);

/* Pushes ${body} behind mf__enter; behind ${enter}, which calls mf__enter_by; puts all of ${verbs} into the table at
 * the top of the stack. */
void mf__push_verb(lua_State *L, lua_CFunction body, int bridge);
void mf__push_entry(lua_State *L, lua_CFunction enter, lua_CFunction body, int bridge);
void mf__put_verbs(lua_State *L, const luaL_Reg *verbs, int bridge);

/* pressure.c */

/* Adds the weight of a new ${ref}, whose userdata is at the top and whose object is held, and collects if too much has
 * come; and subtracts that of one which was closed. */
void mf__weigh(lua_State *L, mf__ref *ref);
void mf__weigh_closed(const mf__ref *ref);

/* lua_handle.c: a Lua value in Python. */

typedef struct mf__value {
  PyObject ob_base;
  PyObject *weakrefs;
  mf__state *state;     /* strong */
  mf__bridge *bridge;         /* lives as long as the Lua state */
  int ref;              /* in the registry */
  int kind;             /* LUA_T... */
  const void *identity; /* lua_topointer */
  PyObject *(*vectorcall)(PyObject *, PyObject *const *, size_t, PyObject *);
} mf__value;

/* The layer of objects sets these once: the types, and the functions that make objects of functions and coroutines. */
extern PyTypeObject *mf__object_type, *mf__table_type, *mf__function_type, *mf__factory_type, *mf__thread_type,
    *mf__iterator_type;
typedef struct mf__value_makers {
  PyObject *(*function)(lua_State *L, int index);
  PyObject *(*thread)(lua_State *L, int index);
} mf__value_makers;
extern mf__value_makers mf__makers;

/* A new Python object (LuaFunction, LuaTable, LuaThread or LuaObject) that stands for the value at ${index}. Raises. */
PyObject *mf__lua_object(lua_State *L, int index);

/* If ${object} stands for a Lua value, pushes that and returns 1, else 0. Raises for one of another state. */
int mf__push_lua_object(lua_State *L, PyObject *object);

/* A new value of ${type} for what is at ${index}. Raises. */
PyObject *mf__value_new(lua_State *L, int index, PyTypeObject *type);
void mf__value_dealloc(PyObject *self);
int mf__value_traverse(PyObject *self, visitproc visit, void *arg);

/* Pushes the value; raises if it is lost. */
void mf__value_push(lua_State *L, mf__value *value);

/* The same of a table, and raises for something else: Python lets a program give any of these objects the class of
 * another. */
void mf__table_push(lua_State *L, mf__value *value);

/* The name of the value's type in Lua. */
const char *mf__kind_name(const mf__value *value);

/* tp_new of types that only C makes objects of. */
PyObject *mf__no_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords);

/* Whether ${object} is a mf__value. */
static inline int mf__is_value(PyObject *object) {
  return mf__object_type != NULL && PyObject_TypeCheck(object, mf__object_type);
}

/* Counts the Lua values in Python that a bridge has made: it stays, with its table at ${table}, while there is one. The
 * first may raise. */
void mf__bridge_retain(lua_State *L, mf__bridge *bridge, int table);
void mf__bridge_release(mf__bridge *bridge, mf__state *state);

#endif
