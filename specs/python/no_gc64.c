/* no_gc64.c: makes the LuaJIT of a process look like one that was built without GC64, for test_lua_open.py.
 *
 * Such a LuaJIT takes no allocator but its own: lua_newstate gives NULL, luaL_newstate works. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

typedef void *(*allocator)(void *, void *, size_t, size_t);

void *lua_newstate(allocator allocate, void *data) {
  void *(*original)(allocator, void *);
  Dl_info info;
  *(void **)&original = dlsym(RTLD_NEXT, "lua_newstate");
  /* LuaJIT's own is a number that is no address. */
  int foreign = dladdr((void *)(size_t)allocate, &info) && info.dli_fname && !strstr(info.dli_fname, "libluajit");
  return foreign ? NULL : original(allocate, data);
}
