/* copy.h: what the files of moonferry.python share: how values cross there. */
#ifndef MF__COPY_H
#define MF__COPY_H

#include "../bridge/state.h"

extern const mf__policy mf__copy_policy;

/* A list of the first ${count} elements of the table at ${index}; and a dict of all its fields. New references. */
PyObject *mf__to_list(lua_State *L, int index, int count);
PyObject *mf__to_dict(lua_State *L, int index, int keywords);

/* iterate.c: puts its verbs into the table at the top of the stack, and its steps into the kit. */
void mf__put_iterators(lua_State *L, int kit);

#endif
