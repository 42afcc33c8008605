/* convert.h: declares the layer of conversion: any value as it is on the other side, by the bridge's policy; and
 * errors. */
#ifndef MF__CONVERT_H
#define MF__CONVERT_H

#include "value.h"

/* Results of the describing Lua function. */
enum {
  MF__IS_UNKNOWN = 0,
  MF__IS_TENSOR,  /* payload: an FFI value that holds a mf_tensor * */
  MF__IS_INT64,   /* payload: the FFI integer */
  MF__IS_UINT64,  /* likewise */
  MF__IS_COMPLEX, /* payload: two doubles */
  MF__IS_NUMBER,  /* payload: a Lua number */
  MF__IS_OBJECT   /* payload: the Python object that was made of it */
};

/* convert.c */

/* Converts the value at ${index} (absolute) to Python; a new reference. */
PyObject *mf__to_python(lua_State *L, int index);

/* Does so for a value whose type only Lua can tell: an FFI value or a table with a metatable. */
PyObject *mf__described_to_python(lua_State *L, int index);

/* A tuple of the values from ${first} to ${last}. */
PyObject *mf__to_tuple(lua_State *L, int first, int last);

/* Converts an argument of a verb to Python, held; a Python object is itself. Raises KeyboardInterrupt if one is due. */
PyObject *mf__argument(lua_State *L, int index);

/* Converts ${object} to Lua and takes the reference over. NULL raises the pending exception. */
void mf__to_lua(lua_State *L, PyObject *object);

/* Converts the borrowed ${object} to a key: None is never nil. */
void mf__key_to_lua(lua_State *L, PyObject *object);

/* Makes room for ${count} values; raises if those are more than a Lua function can take or return. */
void mf__room_for(lua_State *L, Py_ssize_t count, const char *too_many);

/* Pushes borrowed objects that something holds; there must be room. */
void mf__push_items(lua_State *L, PyObject *const *items, Py_ssize_t count);

/* Makes room for the elements of a ${tuple} that something holds, and pushes them. Returns how many there are. */
int mf__push_tuple(lua_State *L, PyObject *tuple, const char *too_many);

/* For a mf__unprotected_body: takes the new reference ${got}, or the pending exception for NULL, and returns what it
 * has to return; the second where it is known that only a body can push it. */
int mf__unprotected_result(lua_State *L, mf__frame *frame, PyObject *got);
int mf__unprotected_rest(mf__frame *frame, PyObject *got);

/* lua_error.c */

/* A body: makes the error value at 1 the pending exception. ${status} points to the int that lua_pcall returned. */
int mf__error_to_python(lua_State *L, void *status);

/* The same for when that fails, with lua_pcall's ${status} then, and the error at the top. */
void mf__error_fallback(lua_State *L, int status);

/* The message handler of mf__call_in. */
int mf__error_handler(lua_State *L);

/* A new exception of ${type} (LuaError or below), with message, value and traceback; NULL with an exception. */
PyObject *mf__error_new(PyObject *type, PyObject *message, PyObject *value, PyObject *trace);

/* Text that may be no text, for people: as the state's encoding has it, or UTF-8, or Latin-1. */
PyObject *mf__text_of_error(const char *text, size_t size);

/* Takes the pending exception, which is held then, with its traceback. */
PyObject *mf__pending_exception(lua_State *L);

/* The exception that the error at 1 is (mf__fault_exception), held; one that is none becomes one. */
PyObject *mf__exception_of(lua_State *L);

/* The value of a LuaError that comes back into its state, new; NULL without an exception for any other exception. */
PyObject *mf__thrown_value(PyObject *exception);

/* Pushes such a value; takes the reference over. */
void mf__push_thrown(lua_State *L, PyObject *value);

/* call_in.c */

/* Runs ${body} in Lua on behalf of Python code: protected, with the lock and the GIL, and with the bridge as its first
 * upvalue, so that it may do all that bodies may. Returns 0, or -1 with the Lua error as the pending exception. */
int mf__call_in(mf__bridge *bridge, int (*body)(lua_State *L, void *data), void *data);

/* The same by the bridge of ${value}, which stays until the call is over: who calls a method may have borrowed it, as
 * CPython does with a profiler and itertools with its iterators, and what runs meanwhile may take it away from there.
 * The last value of a bridge takes along what a call runs by. */
int mf__call_in_by(mf__value *value, int (*body)(lua_State *L, void *data), void *data);

/* Makes the error at the top of the stack the pending exception. */
void mf__call_in_fail(mf__frame *frame, int status);

#endif
