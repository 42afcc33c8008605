/* marks.c: finds where LuaJIT keeps its marks that a hook or a finalizer runs.
 *
 * LuaJIT has one byte of them for a whole state: while they are set it runs no hook and compiles nothing. A finalizer,
 * and a protected call that fails, puts back the marks that it found. Where threads take turns in a state these do not
 * nest, and a mark might stay for good; so each thread takes its own along when it gives up the lock (thread.h). LuaJIT
 * has no function for that. So a state that nobody else has is asked here where the byte is and what it means; where
 * the answers are not as expected, all marks stay as they are. Must not know: what a lock is. */
#include <lua.h>
#include <stdint.h>
#include <string.h>

#include <lauxlib.h>

#include "thread.h"

/* What of the byte is no mark: the events that a hook wants. */
enum { EVENTS = 0x0f };

/* What a state and its coroutines share lies behind the main lua_State, in the same allocation. */
enum { NEAR = 4096, LOOKED_AT = 512 };

static struct {
  size_t reference; /* how long LuaJIT's references are, 4 or 8; 0: nothing was found */
  size_t distance;  /* from what a reference shows to the byte */
} found;

/* The address of what ${L} shares with its coroutines, which each refers to by the first field behind the header of the
 * garbage collector's. That is a reference, four bytes, and a gap if references are longer. */
static uintptr_t shared_by(lua_State *L, size_t reference) {
  uint32_t narrow;
  uint64_t wide;
  memcpy(&narrow, (const char *)L + 2 * sizeof narrow, sizeof narrow);
  memcpy(&wide, (const char *)L + 2 * sizeof wide, sizeof wide);
  return reference == sizeof wide ? (uintptr_t)wide : narrow;
}

static unsigned char *byte_of(lua_State *L) {
  return (unsigned char *)shared_by(L, found.reference) + found.distance; // NOLINT(performance-no-int-to-ptr)
}

static size_t reference_of(lua_State *main, lua_State *coroutine) {
  for (size_t reference = sizeof(uint32_t); reference <= sizeof(uint64_t); reference *= 2) {
    const uintptr_t shared = shared_by(main, reference);
    if (shared - (uintptr_t)main < NEAR && shared == shared_by(coroutine, reference)) return reference;
  }
  return 0;
}

static int seen;

static void see_in_hook(lua_State *L, lua_Debug *activation) {
  (void)activation;
  seen = *byte_of(L) & ~EVENTS;
}

static int see_in_finalizer(lua_State *L) {
  seen = *byte_of(L) & ~EVENTS;
  return 0;
}

/* The one byte that has the events which a hook wants in its lower half, whichever they are, and nothing above. The
 * hook that wants all of them stays. */
static int finds_byte(lua_State *L) {
  const unsigned char *shared = (const unsigned char *)shared_by(L, found.reference); // NOLINT
  unsigned char differs[LOOKED_AT] = {0};
  int count = 0;
  for (int events = 0; events <= EVENTS; events++) {
    lua_sethook(L, see_in_hook, events, 1);
    for (size_t i = 0; i < sizeof differs; i++) differs[i] |= (unsigned char)(shared[i] ^ events);
  }
  for (size_t i = 0; i < sizeof differs; i++) {
    if (differs[i] != 0) continue;
    found.distance = i;
    count++;
  }
  return count == 1;
}

/* Whether the byte means what it should, in a hook, which is set by now, and in a finalizer. */
static int is_understood(lua_State *L) {
  if (luaL_loadstring(L, "local x = 1") == 0) lua_call(L, 0, 0);
  lua_sethook(L, NULL, 0, 0);
  if (seen != MF__MARK_HOOK) return 0;
  lua_newuserdata(L, 1);
  lua_newtable(L);
  lua_pushcfunction(L, see_in_finalizer);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_settop(L, 0);
  lua_gc(L, LUA_GCCOLLECT, 0);
  return seen == (MF__MARK_HOOK | MF__MARK_FINALIZER) && *byte_of(L) == 0;
}

static int look(lua_State *L) {
  found.reference = reference_of(L, lua_newthread(L));
  if (found.reference != 0 && finds_byte(L) && is_understood(L)) return 0;
  return luaL_error(L, "LuaJIT's marks are not as expected");
}

/* What was found is forgotten only behind the state's end, which may run the finalizer that looks at it. */
void mf__marks_find(void) {
  lua_State *L = found.reference == 0 ? luaL_newstate() : NULL;
  if (L == NULL) return;
  const int status = lua_cpcall(L, look, NULL);
  lua_close(L);
  if (status != 0) found.reference = 0;
}

unsigned char *mf__marks_of(lua_State *L) {
  return found.reference != 0 ? byte_of(L) : NULL;
}
