/* objects.h: declares the layer of objects: what Python can do with Lua values, and Lua with Python's objects and
 * exceptions. */
#ifndef MF__OBJECTS_H
#define MF__OBJECTS_H

#include "convert.h"

/* lua_call.c */

/* A call by vectorcall; and tp_call, for callers that know none. */
PyObject *mf__value_call(PyObject *self, PyObject *const *arguments, size_t flags, PyObject *names);
PyObject *mf__value_tp_call(PyObject *self, PyObject *arguments, PyObject *keywords);

/* What the values from ${first} to the top are as the result of a call: None, one value, or a tuple. */
PyObject *mf__results(lua_State *L, int first);

/* lua_object.c */
PyObject *mf__value_get(PyObject *self, PyObject *key);

/* A new type below LuaObject. */
PyTypeObject *mf__value_subtype(const char *name, int basicsize, PyType_Slot *slots, unsigned long flags);

/* Whether a name is of the form __x__, which is Python's and never Lua's. */
int mf__is_dunder(PyObject *name);

/* signature.c: fields and methods of LuaFunction. */
PyObject *mf__function_signature(PyObject *self, void *unused);
PyObject *mf__function_itself(PyObject *self, PyObject *unused);

/* lua_function.c: the class of Python's bound methods. */
extern PyTypeObject *mf__method_type;

/* lua_thread.c */

/* A new coroutine of the function that ${function} is, with the tuple of what it begins with. */
PyObject *mf__thread_start(PyObject *function, PyObject *arguments);

/* Each makes its types once. Return 0, or -1 with an exception; that of LuaObject comes first. */
int mf__object_type_ready(void);
int mf__function_types_ready(void);
int mf__table_types_ready(void);
int mf__thread_type_ready(void);

/* error_copy.c: gives LuaError its methods for pickle and copy, after the types of both. */
int mf__error_copies_ready(void);

/* operate.c: fills the metatable of Python objects at the top of the stack: with what is the same under any policy, and
 * with the policy's ${events}. */
void mf__object_metatable(lua_State *L, const luaL_Reg *events, int bridge);

/* The next item of an iterator, held; NULL at its end. */
PyObject *mf__next_item(lua_State *L, PyObject *iterator);

/* attribute.c: attributes as the state's filter or handlers have them. */

/* The attribute, a new reference, or NULL with an exception. ${key}: a str, or bytes in a state without an encoding. */
PyObject *mf__attribute_get(lua_State *L, PyObject *object, PyObject *key);
void mf__attribute_set(lua_State *L, PyObject *object, PyObject *key, PyObject *value);

/* py_exception.c: makes, of a copy of the metatable of Python objects at the top of the stack, that of exceptions that
 * were raised. */
void mf__fault_metatable(lua_State *L, int bridge);

#endif
