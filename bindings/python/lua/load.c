/* load.c: compiles a chunk, where the C stack has room for that.
 *
 * LuaJIT's parser calls itself for each level of nesting, up to 200 of them, and looks at no stack. Invariant: it
 * begins only where there is room for as many levels as the text can have. Must not know: whose text it is. */
#include "runtime.h"

/* Measured (LuaJIT 2.1, x86-64): at most 350 bytes for each byte of the text ("{"), 230 KiB in all (functions). */
enum { FOR_EACH_BYTE = 512, FOR_ALL = 320 * 1024 };

int mf__load(lua_State *L, const mf__chunk *chunk) {
  size_t most = chunk->size < FOR_ALL / FOR_EACH_BYTE ? chunk->size * FOR_EACH_BYTE : FOR_ALL;
  if (!mf__stack_has(most)) {
    lua_pushfstring(L, "C stack overflow: less than %d KiB are left to compile a chunk", (int)(most / 1024) + 1);
    return LUA_ERRSYNTAX;
  }
  return luaL_loadbufferx(L, chunk->bytes, chunk->size, chunk->name, chunk->mode);
}
