/* open.h: declares the layer of opening: types, states and bridges. The two policies include this header. */
#ifndef MF__OPEN_H
#define MF__OPEN_H

#include "objects.h"

/* types.c: makes the types of this bridge once. Returns 0, or -1 with an exception. */
int mf__types_ready(void);

/* bridge.c */

/* Makes the bridge at ${bridge}, a table, one of this Lua state. Whatever is needed of the state is made, too. Raises.
 * The GIL must be held. */
mf__bridge *mf__bridge_new(lua_State *L, int bridge, const mf__policy *policy);

/* Puts the table at the top of the stack into the bridge as its metatable ${slot}: MF__BRIDGE_OBJECT or
 * MF__BRIDGE_FAULT. */
void mf__bridge_metatable(lua_State *L, int bridge, int slot);

/* Puts the FFI object at ${object} into Lua's registry, so that Lua finalizes it when it is closed: with all other FFI
 * objects, in any order, and before userdata. */
void mf__bridge_closes_with(lua_State *L, int object);

/* A Lua function (object, begins) for that object's finalizer: calls ${begins} and begins the end of the state. */
int mf__bridge_close_begins(lua_State *L);

/* Makes the second of them; the first is there already. */
void mf__put_fault(lua_State *L, int bridge);

/* Enters a state that Python opens in Lua's registry, where mf__bridge_new finds it. Raises. */
void mf__state_register(lua_State *L, mf__state *state);

/* state.c */

extern PyTypeObject *mf__state_type;
int mf__state_type_ready(void);

/* A new state for ${L}, which Python closes if it is ${hosted}. */
mf__state *mf__state_new(PyTypeObject *type, lua_State *L, int hosted);

/* Lua has begun to close it: waits for the calls that threads of Python's have there, but for those of daemon threads,
 * which never come back from now on. New calls are refused. Without the GIL, or with it. */
void mf__state_close_begin(mf__state *state);

/* Closes a hosted state for Python: what Lua has of Python is given back, and calls raise RuntimeError from then on.
 * Returns 0, also for one that is closed; -1 with a RuntimeError while calls are inside, this thread's own included. */
int mf__state_close(mf__state *state);

/* From here on nobody gets in. Those who wait find out. */
void mf__state_shut(mf__state *state);

#endif
