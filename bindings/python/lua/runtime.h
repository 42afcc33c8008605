/* runtime.h: what the files of moonferry.Lua share: the Lua state that Python hosts, and what Lua sees of Python there.
 *
 * They are part of moonferry._lua and of moonferry_bridge, so that one process has one bridge, whoever is the host. */
#ifndef MF__RUNTIME_H
#define MF__RUNTIME_H

#include "../../bridge/open.h"

/* wrap.c: how values cross for moonferry.Lua. */
extern const mf__policy mf__wrap_policy;

/* What a userdata of a Python object shows; flags of mf__ref. */
enum {
  MF__AS_ITEMS = 1,   /* o[key] is an item, else an attribute */
  MF__AS_TUPLES = 2,  /* an iterator's tuples are several values */
  MF__AS_NUMBERED = 4 /* an iterator counts */
};

/* Pushes the one userdata of the borrowed ${object} that shows this. */
void mf__push_flagged(lua_State *L, PyObject *object, int flags);

/* view.c: what Python's as_attrgetter and as_itemgetter make. */

/* The object inside a view and the flags of it (MF__AS_...), borrowed; NULL for another object. */
PyObject *mf__view_of(PyObject *object, int *flags);
PyObject *mf__view_new(PyObject *object, int flags);
int mf__view_type_ready(void);

/* object.c: fills the metatable at the top of the stack, for userdata of Python objects as lupa has them. */
void mf__wrapped_metatable(lua_State *L, int bridge);

/* The body of a call: the callee is at 1. */
int mf__wrapped_call(lua_State *L);

/* The Python object at ${index}, or inside the function of as_function there; raises for others. */
PyObject *mf__python_argument(lua_State *L, int index);

/* iterate.c: python.iter and its like, into the table at the top of the stack. */
void mf__put_iteration(lua_State *L, int bridge);

/* python.c: leaves the table `python` on the stack. */
void mf__push_python(lua_State *L, int bridge, PyObject *eval, PyObject *builtins);

/* arguments.c: python.args{...}, and Python's unpacks_lua_table. */

/* New references to the positional and the keyword arguments that the table at ${index} means; held. Raises. */
void mf__arguments_of(lua_State *L, int index, PyObject **positional, PyObject **keywords);

/* An object of them, of borrowed references; whether an object is one, and then what is inside, borrowed. */
PyObject *mf__arguments_new(PyObject *positional, PyObject *keywords);
int mf__arguments_in(PyObject *object, PyObject **positional, PyObject **keywords);
int mf__arguments_type_ready(void);

/* memory.c: the allocator of a state that has an account. */
void *mf__memory_allocate(void *memory, void *block, size_t before, size_t after);

/* load.c: lua_load of a chunk's bytes; the same status and stack. */
typedef struct mf__chunk {
  const char *bytes;
  size_t size;
  const char *name, *mode;
} mf__chunk;
int mf__load(lua_State *L, const mf__chunk *chunk);

/* sandbox.c: opens the libraries that an untrusted script may have. Raises. */
void mf__sandbox_open(lua_State *L);

/* open.c */
PyObject *mf__open(PyObject *module, PyObject *arguments);

#endif
