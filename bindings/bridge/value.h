/* value.h: declares the layer of values that are the same under any policy: numbers, strings, tensors. */
#ifndef MF__VALUE_H
#define MF__VALUE_H

#include "handle.h"

/* Whether strings cross as UTF-8. */
static inline int mf__is_utf8(const mf__bridge *bridge) {
  return !bridge->policy->has_encoding || bridge->state->options.utf8;
}

/* plain.c: None, booleans, numbers and strings. */

/* What a number is in Python; NULL with an exception. */
PyObject *mf__number_to_python(const mf__bridge *bridge, double number);

/* If what is at ${index} is plain, puts it into ${result}, which is NULL with an exception if it failed, and returns 1,
 * else returns 0. Never raises. */
int mf__plain_take(lua_State *L, const mf__bridge *bridge, int index, PyObject **result);

/* Pushes the borrowed ${object} if Lua holds it without allocating and returns 1, or returns 0. Never raises. */
int mf__plain_push(lua_State *L, const mf__bridge *bridge, PyObject *object);

/* Pushes an int that a Lua number holds exactly and returns 1, or nothing and returns 0. */
int mf__push_int(lua_State *L, PyObject *object);

/* Pushes a str as UTF-8 and returns 1; 0 with an exception for one with lone surrogates. */
int mf__push_utf8(lua_State *L, PyObject *object);
void mf__push_bytes(lua_State *L, PyObject *object);

/* names.c */

/* The str of a short string at ${index}, which is interned and remembered, as names are; a new reference. NULL without
 * an exception for one that is none. Raises. */
PyObject *mf__name_to_python(lua_State *L, int index);

/* The same if that is known already, else NULL without an exception. Never raises. */
PyObject *mf__name_known(lua_State *L, int index);

/* A name as a key in Lua: as it is, or as bytes in a state without an encoding. A new reference. */
PyObject *mf__source_name(const mf__state *state, PyObject *name);

/* Pushes the Lua string of ${key} if it is remembered and returns 1, or returns 0. Neither allocates nor raises. */
int mf__key_push(lua_State *L, const mf__bridge *bridge, const PyObject *key);

/* Remembers that the string at the top of the stack is ${key} in Lua. */
void mf__key_remember(lua_State *L, PyObject *key);

/* Forgets all of them, once the registry is gone. */
void mf__keys_free(mf__bridge *bridge);

/* tensor.c */

/* A new Python tensor that shares ${tensor}, which the Lua tensor at ${index} has. */
PyObject *mf__tensor_to_python(lua_State *L, int index, mf_tensor *tensor);

/* Makes sure that DESCRIBE, ADOPT and BOX are in the bridge; 0 where this state cannot have them. */
int mf__crossing_ready(lua_State *L);

/* If ${object} is a Moonferry tensor, pushes a Lua tensor that shares it and returns 1, else 0. */
int mf__tensor_to_lua(lua_State *L, PyObject *object);

/* The same two of a tensor that has crossed before, which neither allocate in Lua nor raise. */
int mf__tensor_unprotected_push(lua_State *L, const mf__bridge *bridge, PyObject *object);
int mf__tensor_unprotected_take(lua_State *L, const mf__bridge *bridge, int index, PyObject **result);

/* Pushes the function that runs the deleters and release callbacks that are due. */
void mf__push_release(lua_State *L, int bridge);

/* unprotected.c: conversions that can neither allocate in Lua nor raise. */

/* Pushes the borrowed ${object} and returns 1, or returns 0, and then the caller puts the stack back. */
int mf__unprotected_push(lua_State *L, const mf__bridge *bridge, PyObject *object);

/* Puts what is at ${index} (absolute) into ${result} and returns 1, or returns 0. The result may be NULL with an
 * exception. */
int mf__unprotected_take(lua_State *L, const mf__bridge *bridge, int index, PyObject **result);

/* The same two for a peek, which no Python code may interrupt: it has no frame, and the program might close the state
 * or wait for another thread there. So nothing here sets an exception: making one may start a collection (up to
 * CPython 3.11), or ask a handler of the program's for errors of codecs. */
int mf__peek_push(lua_State *L, const mf__bridge *bridge, PyObject *object);
int mf__peek_take(lua_State *L, const mf__bridge *bridge, int index, PyObject **result);

/* Each of these pushes and returns 1, or returns 0: a table that has no metatable; a key, which is never nil. */
int mf__peek_table(lua_State *L, const mf__value *value);
int mf__peek_key(lua_State *L, const mf__bridge *bridge, PyObject *key);

#endif
