/* bridge.h: what the files of the bridge share.
 *
 * The bridge carries values between one Lua state and the process's Python interpreter. It does not know
 * which of the two is the host: whoever that is makes sure that Python runs and calls mf__bridge_open.
 *
 * Three rules hold everywhere.
 *   1. Every function that Lua sees is a body behind mf__enter (or a plain finalizer). mf__enter takes
 *      the GIL, runs the body protected, gives back what the body holds, and lets the GIL go. A body may
 *      therefore raise a Lua error at any point, and nothing leaks.
 *   2. What a body owns while Lua can raise, it holds (mf__hold), because an error jumps over it.
 *   3. The first upvalue of every body is the kit: a table with what this Lua state's bridge needs.
 * visit.h has those of the other way, from Python into Lua.
 */
#ifndef MF__BRIDGE_H
#define MF__BRIDGE_H

/* One binary serves CPython 3.9 and later. */
#define Py_LIMITED_API 0x03090000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <lauxlib.h>
#include <lua.h>
#include <moonferry.h>
#include <signal.h>

/* Needs Python.h before it. */
#include "aside.h"

/* LuaJIT's type number of FFI values, which its lua.h keeps to itself. */
#define MF__LUA_TCDATA 10

/* The slots of the kit. */
enum {
  MF__KIT_OBJECT = 1, /* the metatable of Python objects */
  MF__KIT_KEYWORDS,   /* the metatable that py.kw gives its table */
  MF__KIT_NONE,       /* the one userdata that stands for None, so that x == py.None is cheap */
  MF__KIT_NEXT,       /* the step of py.iter */
  MF__KIT_DESCRIBE,   /* Lua: value -> what it is (MF__IS_...), payload; for FFI values and tensors */
  MF__KIT_ADOPT,      /* Lua: makes a Lua tensor of the handle in the box */
  MF__KIT_BOX,        /* an FFI value `mf_tensor *[1]`, through which handles go to Lua */
  MF__KIT_FAULT,      /* the metatable of Python exceptions that were raised in Lua */
  MF__KIT_NEXT_EACH,  /* the step of py.each */
  MF__KIT_STATE,      /* the mf__kit (visit.h) */
  MF__KIT_TRACE,      /* Lua's stack when the last error was raised in mf__visit */
  MF__KIT_CACHE,      /* weak: address of a Python object -> its userdata; where userdata must be unique */
  MF__KIT_OVERFLOW,   /* what is called for an int that no number holds, or nil */
  MF__KIT_UNWRAP,     /* weak keys: functions of as_function -> their Python objects */
  MF__KIT_LOAD,       /* fills DESCRIBE, ADOPT and BOX when they are first needed; nil where they are there */
  MF__KIT_IMPORT,     /* Lua: a Python module of that name; for LOAD */
  MF__KIT_RUNNER,     /* what mf__visit calls, and its message handler; kit.c */
  MF__KIT_HANDLER,
  MF__KIT_RELEASE, /* what runs the deleters that are due, for LOAD */
  MF__KIT_SLOTS       /* so many places a kit has from the start: a table that has to grow may run out of memory */
};

/* What the describing Lua function answers. */
enum {
  MF__IS_UNKNOWN = 0,
  MF__IS_TENSOR,  /* payload: an FFI value that holds a mf_tensor * */
  MF__IS_INT64,   /* payload: the FFI integer */
  MF__IS_UINT64,  /* likewise */
  MF__IS_COMPLEX, /* payload: two doubles */
  MF__IS_NUMBER,  /* payload: a Lua number */
  MF__IS_OBJECT   /* payload: the Python object that was made of it */
};

/* guard.c: the GIL, and what is held meanwhile. */

/* The lua_CFunction in front of every body; its upvalue is the body. */
int mf__enter(lua_State *L);

/* Keeps ${object} until mf__drop or, after an error, until mf__enter gives it back. NULL raises the pending
 * exception. Returns ${object}. */
PyObject *mf__hold(lua_State *L, PyObject *object);

/* How deeply the tables may be nested that a body copies. */
#define MF__NESTING_MAX 80

/* In a body: gives a reference back, or nothing for NULL; where it is the last one, that may run any code. */
void mf__let_go(PyObject *object);

/* In a body: PyErr_Clear. The frames of an exception may have the last reference to anything. */
void mf__clear_error(void);

/* Lets go of what was held last: mf__drop gives the reference back, mf__take hands it to the caller. */
void mf__drop(void);
PyObject *mf__take(void);

/* refs.c: references that Lua values own, and those that wait to be given back. */

typedef struct mf__ref {
  PyObject *object;
  PyObject *origin;     /* what a callable was read from, so that o:method(x) can leave o out; or NULL */
  double nbytes;        /* what it weighs */
  int flags;            /* what the policy wants to know of it */
  struct mf__ref *next; /* on the list of those that wait, or are spare */
  struct mf__ref *newer, *older, **newest; /* in its state, for Python's collector; guarded by the GIL */
} mf__ref;

/* A new pair that owns ${object}, of the state that this thread is in; NULL without memory, and then nothing is owned.
 */
mf__ref *mf__ref_new(PyObject *object);

/* Cuts the references of the list that begins at ${newest} off from it, because it is about to be freed. */
void mf__refs_forget(mf__ref **newest);

/* Queues ${ref} to be given back. Any thread, no GIL, no lock, no allocation: fit for a finalizer. */
void mf__ref_retire(mf__ref *ref);

/* Gives back what is queued; the GIL must be held. In a body, Lua's lock is given up meanwhile. */
void mf__refs_drain(void);

/* fault.c: errors. Both never return; their type lets callers write `return mf__fail(...)`. */

/* Raises a Lua error with the position of the Lua code that called. */
int mf__fail(lua_State *L, const char *format, ...);

/* Raises the pending Python exception as a Lua error: a userdata that knows the exception and where it was raised. */
int mf__raise(lua_State *L);

/* Takes the pending exception, as an object; NULL if there is none. For bodies. */
void mf__fetch_error(PyObject **type, PyObject **value, PyObject **trace);

/* The exception that the Lua value at ${index} is: that of an error which mf__raise raised, or a Python object that
 * is an exception; else NULL. Borrowed from the Lua value. */
PyObject *mf__fault_exception(lua_State *L, int index);

/* The same, but of any error: one that is no exception becomes one, which is held. */
PyObject *mf__exception_of(lua_State *L, int index);

/* Pushes the Lua stack at the time when the exception of the error at ${index} was raised; nil for other values. */
void mf__fault_stack(lua_State *L, int index);

/* Makes, of a copy of the metatable of Python objects at the top of the stack, that of exceptions that were raised. */
void mf__fault_metatable(lua_State *L, int kit);

/* verbs.c: puts it into the kit; the metatable of Python objects is there already. */
void mf__put_fault(lua_State *L, int kit);

/* The verb py.raise. */
int mf__verb_raise(lua_State *L);

/* to_python.c */

/* A new reference to what ${index} (absolute) is in Python. */
PyObject *mf__to_python(lua_State *L, int index);

/* The same of a value whose nature only Lua can tell: FFI values and tables with a metatable. */
PyObject *mf__described_to_python(lua_State *L, int index);

/* A tuple of the values from ${first} to ${last}. */
PyObject *mf__to_tuple(lua_State *L, int first, int last);

/* to_lua.c */

/* Pushes what ${object} is in Lua and takes the reference over. NULL raises the pending exception. */
void mf__to_lua(lua_State *L, PyObject *object);

/* The same, but always as a Python object. */
void mf__wrap(lua_State *L, PyObject *object);

/* The same, of a borrowed reference. */
void mf__push_object(lua_State *L, PyObject *object);

/* Pushes what the borrowed ${object} is as a key: None is never nil. */
void mf__key_to_lua(lua_State *L, PyObject *object);

/* weight.c */

/* Takes account of what a new ${ref} weighs, and collects if there is reason to. */
void mf__weigh(lua_State *L, mf__ref *ref);

/* Takes ${ref} out of the account when it is given back; and says that this was done by hand. */
void mf__unweigh(const mf__ref *ref);
void mf__weigh_closed(const mf__ref *ref);

/* object.c: the userdata. */

/* Whether the value at ${index} is a Python object, closed or not. */
int mf__is_object(lua_State *L, int index);

/* The reference at ${index}, or NULL if it is something else. Raises for an object that was closed. */
mf__ref *mf__ref_at(lua_State *L, int index);

/* The same, and raises for something else. */
mf__ref *mf__ref_check(lua_State *L, int index);

/* Fills the metatable at the top of the stack. */
void mf__object_metatable(lua_State *L, int kit);

/* operate.c: adds the operators to it. */
void mf__operator_metatable(lua_State *L, int kit);

/* tensor.c: pushes the function that runs the deleters and release callbacks that are due. */
void mf__push_release(lua_State *L, int kit);

/* Pushes ${body} behind mf__enter. */
void mf__push_verb(lua_State *L, lua_CFunction body, int kit);

/* tensor.c */

/* A new Python tensor that shares ${tensor}, which the Lua tensor at ${index} has. */
PyObject *mf__tensor_to_python(lua_State *L, int index, mf_tensor *tensor);

/* Makes sure that DESCRIBE, ADOPT and BOX are in the kit; 0 where this state cannot have them. */
int mf__crossing_ready(lua_State *L);

/* If ${object} is a Moonferry tensor, pushes a Lua tensor that shares it and returns 1, else 0. */
int mf__tensor_to_lua(lua_State *L, PyObject *object);

/* What a verb's argument is in Python, held; of a Python object itself. Raises KeyboardInterrupt if one is due. */
PyObject *mf__argument(lua_State *L, int index);

#include "visit.h"

/* plain.c: None, booleans, numbers and strings. */

/* What a number is in Python; NULL with an exception. */
PyObject *mf__number_to_python(const mf__kit *kit, double number);

/* If what is at ${index} is plain, puts it into ${result}, which is NULL with an exception if it failed, and returns 1,
 * else returns 0. Never raises. */
int mf__plain_take(lua_State *L, const mf__kit *kit, int index, PyObject **result);

/* Pushes the borrowed ${object} if Lua holds it without allocating and returns 1, or returns 0. Never raises. */
int mf__plain_push(lua_State *L, const mf__kit *kit, PyObject *object);

/* Pushes an int that a Lua number holds exactly and returns 1, or nothing and returns 0. */
int mf__push_int(lua_State *L, PyObject *object);

/* Pushes a str as UTF-8 and returns 1; 0 with an exception for one with lone surrogates. */
int mf__push_utf8(lua_State *L, PyObject *object);
void mf__push_bytes(lua_State *L, PyObject *object);

/* ${result} = ${call}, a Python call, with Lua's lock given up meanwhile: the door through which bodies leave Lua. All
 * that may run Python code goes through it, because such code may wait for a thread that wants this Lua state. (Where
 * an allocation runs Python's collector, mf__collections_watch gives the lock up.) What the call uses must be held: Lua
 * may close or collect anything before it returns. */
#define MF__OUTSIDE(result, call) \
  do {                            \
    mf__outside_begin();          \
    (result) = (call);            \
    mf__outside_end();            \
  } while (0)

/* Whether an object is of a type whose instances run no Python code, whatever is done with them. */
static inline int mf__is_inert(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  return type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBytes_Type ||
         type == &PyBool_Type || object == Py_None;
}

/* Set by the handler of SIGINT. Raises KeyboardInterrupt, if one is due, where Python itself would not look for it. */
extern volatile sig_atomic_t mf__interrupted;
void mf__check_interrupt(lua_State *L);

/* verbs.c */

/* Called after each import with the GIL held, if the host wants to know of it; NULL otherwise. */
extern void (*mf__after_import)(void);

/* Leaves a table of functions on the stack. Arguments on the stack: describe, adopt, box, and the
 * metatable of keyword tables. The GIL need not be held. */
int mf__bridge_open(lua_State *L);

#endif
