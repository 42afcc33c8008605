/* no_state.c: lets the memory end at the first block of a Lua state, for test_lua_open.py.
 *
 * LuaJIT asks the allocator for that block before all else, and lua_newstate gives NULL where there is none. */
#include <stddef.h>
#include <stdlib.h>

typedef void *(*allocator)(void *, void *, size_t, size_t);

void *lua_newstate(allocator allocate, void *data) {
  if (allocate(data, NULL, 0, (size_t)1 << 62) != NULL) abort();
  return NULL;
}

/* LuaJIT's own gives lua_newstate an allocator that only LuaJIT can call. */
void *luaL_newstate(void) {
  return NULL;
}
