/* repl.c: the prompt's loop: a chunk is read, run, and what it gave is shown.
 *
 * What a chunk is, what is shown and how a name is completed is decided in lua/moonferry/program/repl.lua; here is only
 * what must be C: the chunk runs with no frame of Lua code of ours above it, and Ctrl-C ends it alone. Invariant: an
 * error ends the prompt only where no line could be read since the last one. It must not know how a line is edited. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "host.h"

static const char KEY[] = "moonferry.program.repl";

static bool has_read; /* since the loop began or an error was reported */
static bool collector_rests;

/* While no chunk runs, no finalizer does: one that fails would take the line that was read, or the prompt. A program's
 * own collectgarbage "stop" stays. */
static void rest_collector(lua_State *L) {
  if (collector_rests || !lua_gc(L, LUA_GCISRUNNING, 0)) return;
  lua_gc(L, LUA_GCSTOP, 0);
  collector_rests = true;
}

static void wake_collector(lua_State *L) {
  if (collector_rests) lua_gc(L, LUA_GCRESTART, 0);
  collector_rests = false;
}

/* line(prompt): the line; nil at the end of the input; false after Ctrl-C, which means the line while one is read. */
static int lua_line(lua_State *L) {
  const char *prompt = luaL_checkstring(L, 1);
  host_uninterruptible();
  const edit_result got = edit_line(prompt);
  host_interruptible(L, true);
  has_read = true;
  if (got.line != NULL)
    lua_pushlstring(L, got.line, got.size);
  else if (got.interrupted)
    lua_pushboolean(L, 0);
  else
    lua_pushnil(L);
  free(got.line);
  return 1;
}

static int lua_remember(lua_State *L) {
  edit_remember(luaL_checkstring(L, 1));
  return 0;
}

static char *copy_of(lua_State *L, int index) {
  const char *text = lua_tostring(L, index);
  return text != NULL && *text != '\0' ? cli_copy(text, strlen(text)) : NULL;
}

typedef struct question {
  const char *before;
  size_t size;
  edit_completion answer;
} question;

static int ask_complete(lua_State *L) {
  question *q = lua_touserdata(L, 1);
  lua_getfield(L, LUA_REGISTRYINDEX, KEY);
  lua_getfield(L, -1, "complete");
  lua_pushlstring(L, q->before, q->size);
  lua_call(L, 1, 2);
  q->answer = (edit_completion){.insert = copy_of(L, -2), .listing = copy_of(L, -1)};
  return 0;
}

/* Asks repl.complete; whatever goes wrong there completes nothing. The stack is that of lua_line. */
static edit_completion complete(void *data, const char *before, size_t size) {
  lua_State *L = data;
  question q = {.before = before, .size = size};
  const int top = lua_gettop(L);
  host_interruptible(L, true);
  edit_lend_signals();
  lua_cpcall(L, ask_complete, &q);
  edit_take_signals();
  q.answer.stopped = host_uninterruptible();
  lua_settop(L, top);
  return q.answer;
}

/* With a function of that many arguments on top: calls it, and reports an error. Ctrl-C stops both. */
static bool call(lua_State *L, int arguments, int results) {
  host_interruptible(L, true);
  const int status = host_report(L, host_call(L, arguments, results));
  host_uninterruptible();
  return status == 0;
}

/* Calls repl[name], repl being at index 1, with what lies above base; false at an error, which was printed. */
static bool ask(lua_State *L, const char *name, int base, int results) {
  lua_getfield(L, 1, name);
  lua_insert(L, base + 1);
  return call(L, lua_gettop(L) - base - 1, results);
}

/* With the chunk on top: runs it and shows its results. */
static void run(lua_State *L) {
  const int base = lua_gettop(L) - 1;
  if (call(L, 0, LUA_MULTRET) && lua_gettop(L) > base) ask(L, "show", base, 0);
}

/* Until the input ends, or repl.next raises an error. */
static int loop(lua_State *L) {
  bool *ended = lua_touserdata(L, 1);
  lua_getfield(L, LUA_REGISTRYINDEX, KEY);
  lua_replace(L, 1);
  while (ask(L, "next", 1, 1)) {
    *ended = lua_isnil(L, -1);
    if (*ended) return 0;
    wake_collector(L);
    run(L);
    rest_collector(L);
    lua_settop(L, 1);
  }
  return 0;
}

static void push_tools(lua_State *L, bool compiled) {
  lua_createtable(L, 0, 5);
  lua_pushcfunction(L, lua_line);
  lua_setfield(L, -2, "line");
  lua_pushcfunction(L, lua_remember);
  lua_setfield(L, -2, "remember");
  lua_pushboolean(L, edit_able());
  lua_setfield(L, -2, "editing");
  lua_pushboolean(L, compiled);
  lua_setfield(L, -2, "compiled");
  lua_pushstring(L, MOONFERRY_VERSION);
  lua_setfield(L, -2, "version");
}

/* What a chunk has left, as the metatable of strings, may raise an error outside of a call, too. */
static bool run_loop(lua_State *L) {
  bool ended = false;
  do {
    has_read = false;
    rest_collector(L);
    host_report(L, lua_cpcall(L, loop, &ended));
  } while (!ended && has_read);
  wake_collector(L);
  return ended;
}

int host_repl(lua_State *L, bool compiled) {
  lua_settop(L, 0);
  if (host_require(L, "moonferry.program.repl") != 0) return CLI_FOUND;
  lua_pushvalue(L, 1);
  lua_setfield(L, LUA_REGISTRYINDEX, KEY);
  host_prefix("");
  edit_open(complete, L);
  push_tools(L, compiled);
  const bool ended = ask(L, "open", 1, 0) && run_loop(L);
  edit_close();
  return ended ? 0 : CLI_FOUND;
}
