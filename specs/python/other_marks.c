/* other_marks.c: makes the LuaJIT of a process look like one that has its marks of hooks and finalizers elsewhere, for
 * test_lua_marks.py.
 *
 * Only in the state that is asked about them, the first of luaL_newstate's. OTHER_MARKS names what is different. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef struct lua_State lua_State;
typedef void (*hook)(lua_State *, void *activation);

static lua_State *asked;
static int was_made;
static hook hook_of_asked;

static int differs(const lua_State *L, const char *what) {
  return L == asked && strcmp(getenv("OTHER_MARKS"), what) == 0;
}

lua_State *luaL_newstate(void) {
  lua_State *(*original)(void);
  *(void **)&original = dlsym(RTLD_NEXT, "luaL_newstate");
  lua_State *L = original();
  if (!was_made) asked = L;
  was_made = 1;
  return L;
}

/* Another state may come to lie where this one was. */
void lua_close(lua_State *L) {
  void (*original)(lua_State *);
  *(void **)&original = dlsym(RTLD_NEXT, "lua_close");
  original(L);
  if (L == asked) asked = NULL;
}

/* By its first field a coroutine refers to what no state has. */
lua_State *lua_newthread(lua_State *L) {
  static char other[64];
  lua_State *(*original)(lua_State *);
  *(void **)&original = dlsym(RTLD_NEXT, "lua_newthread");
  lua_State *coroutine = original(L);
  return differs(L, "coroutine") ? (lua_State *)other : coroutine;
}

int lua_sethook(lua_State *L, hook called, int events, int count) {
  int (*original)(lua_State *, hook, int, int);
  *(void **)&original = dlsym(RTLD_NEXT, "lua_sethook");
  if (L == asked && called != NULL) hook_of_asked = called;
  if (differs(L, "events") || (differs(L, "left") && called == NULL)) return 1;
  return original(L, called, events, count);
}

/* The hook finds no mark where it looks for that. */
void lua_call(lua_State *L, int arguments, int results) {
  void (*original)(lua_State *, int, int);
  *(void **)&original = dlsym(RTLD_NEXT, "lua_call");
  original(L, arguments, results);
  if (differs(L, "hook")) hook_of_asked(L, NULL);
}

/* No finalizer runs that could find one. */
int lua_setmetatable(lua_State *L, int at) {
  int (*original)(lua_State *, int);
  void (*settop)(lua_State *, int);
  *(void **)&original = dlsym(RTLD_NEXT, "lua_setmetatable");
  *(void **)&settop = dlsym(RTLD_NEXT, "lua_settop");
  if (!differs(L, "finalizer")) return original(L, at);
  settop(L, -2);
  return 1;
}
