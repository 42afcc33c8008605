/* copy.h: what the files of moonferry.python share: how values cross there. */
#ifndef MF__COPY_H
#define MF__COPY_H

#include "../bridge/open.h"

extern const mf__policy mf__copy_policy;

/* A list of the first ${count} elements of the table at ${index}; and a dict of all its fields. New references. */
PyObject *mf__to_list(lua_State *L, int index, int count);

/* What a table becomes in Python: the length of a list, or -1 for a dict; raises for a mixture and for holes. */
int mf__list_count(lua_State *L, int index);
PyObject *mf__to_dict(lua_State *L, int index, int keywords);

/* object.c: the events of Python objects that are this policy's. */
extern const luaL_Reg mf__copy_events[];

/* verbs.c */

/* Called after each import with the GIL held, if the host wants to know of it; NULL otherwise. */
extern void (*mf__after_import)(void);

/* Leaves a table of functions on the stack. Arguments on the stack: describe, adopt, box, the metatable of keyword
 * tables, the innermost scopes, and an FFI object whose finalizer calls mf__bridge_close_begins. The GIL need not be
 * held. */
int mf__bridge_open(lua_State *L);

/* iterate.c: puts its verbs into the table at the top of the stack, and its steps into the bridge. */
void mf__put_iterators(lua_State *L, int bridge);

/* scope.c: puts its verbs there, too. */
void mf__put_scopes(lua_State *L, int bridge);

#endif
