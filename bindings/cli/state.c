/* state.c: the program's Lua state: made, taught where Moonferry's Lua files lie, and called with a traceback.
 *
 * Invariant: `require "moonferry"` gives the files that belong to this program, whatever LUA_PATH says, and needs
 * no variable. It must not know the command line. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "host.h"

/* LUA_NOENV is how luajit's own -E tells its libraries. */
static void refuse_environment(lua_State *L) {
  lua_pushboolean(L, 1);
  lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
}

/* Ours come first: the files and the library must be of one build, and the folder holds nothing else. */
static void add_path(lua_State *L) {
  const char *package = cli_package();
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "path");
  const char *path = lua_tostring(L, -1);
  if (package != NULL) {
    lua_pushfstring(L, "%s/lua/?.lua;%s/lua/?/init.lua;%s", package, package, path != NULL ? path : "");
    lua_setfield(L, -3, "path");
  }
  lua_pop(L, 2);
}

static int open_all(lua_State *L) {
  const bool *environment = lua_touserdata(L, 1);
  if (!*environment) refuse_environment(L);
  luaL_openlibs(L);
  add_path(L);
  return 0;
}

lua_State *host_open(bool environment) {
  lua_State *L = luaL_newstate();
  if (L == NULL) return NULL;
  lua_gc(L, LUA_GCSTOP, 0);
  const int status = lua_cpcall(L, open_all, &environment);
  lua_gc(L, LUA_GCRESTART, -1);
  host_report(L, status);
  return L;
}

/* sys.exit that nobody caught ends the program as it ends Python. */
static void leave_if_asked(lua_State *L) {
  static const char code[] =
      "local e = ...\n"
      "if not e:is 'SystemExit' then return end\n"
      "local status = e.code\n"
      "if type(status) == 'userdata' and tostring(status) == 'None' then status = 0 end\n"
      "if type(status) == 'boolean' then status = status and 1 or 0 end\n"
      "if type(status) ~= 'number' or status % 1 ~= 0 then io.stderr:write(tostring(status), '\\n') status = 1 end\n"
      "os.exit(status)\n";
  const int top = lua_gettop(L);
  if (luaL_loadbuffer(L, code, sizeof code - 1, "=moonferry") == 0) {
    lua_pushvalue(L, 1);
    lua_pcall(L, 1, 0, 0);
  }
  lua_settop(L, top);
}

/* Whether a line of a traceback, "\tFILE:LINE: ...", names a file of Moonferry's own. Of a long path Lua
 * shows the end. */
static bool is_own(const char *line, size_t size) {
  const char *package = cli_package(), *colon = memchr(line, ':', size);
  if (package == NULL || colon == NULL || *line != '\t') return false;
  const char *slash = colon;
  while (slash > line && *slash != '/') slash--;
  cli_text own = {0};
  cli_addf(&own, "%s/lua/moonferry%.*s", package, (int)(colon - slash), slash);
  const bool cut = strncmp(line + 1, "...", 3) == 0;
  const char *shown = line + (cut ? 4 : 1);
  const size_t length = (size_t)(colon - shown);
  const bool same = length <= own.size && (cut || length == own.size) &&
                    memcmp(own.at + own.size - length, shown, length) == 0;
  free(own.at);
  return same;
}

/* The program's own main, and the error() of Moonferry's own files. */
static bool is_own_c(const char *line, const char *next) {
  if (strncmp(line, "\t[C]: at 0x", 11) == 0) return true;
  if (strncmp(line, "\t[C]: in function 'error'", 24) != 0 || next == NULL) return false;
  return is_own(next + 1, strcspn(next + 1, "\n"));
}

/* Pushes the traceback at the top without the frames that are not the user's. */
static void push_users_frames(lua_State *L) {
  const char *text = lua_tostring(L, -1), *at = strstr(text, "\nstack traceback:");
  if (at == NULL) return;
  luaL_Buffer kept;
  luaL_buffinit(L, &kept);
  luaL_addlstring(&kept, text, (size_t)(at - text));
  bool any = false;
  for (const char *line = strchr(at + 1, '\n'); line != NULL;) {
    const char *end = strchr(line + 1, '\n');
    const size_t size = end != NULL ? (size_t)(end - line) : strlen(line);
    if (!is_own(line + 1, size - 1) && !is_own_c(line + 1, end)) {
      if (!any) luaL_addstring(&kept, "\nstack traceback:");
      luaL_addlstring(&kept, line, size);
      any = true;
    }
    line = end;
  }
  luaL_pushresult(&kept);
}

/* An error that is no string stays what it is if nothing says how to print it. */
static int with_traceback(lua_State *L) {
  if (lua_type(L, 1) == LUA_TUSERDATA) leave_if_asked(L);
  if (!lua_isstring(L, 1)) {
    if (!luaL_callmeta(L, 1, "__tostring")) return 1;
    if (!lua_isstring(L, -1)) {
      lua_pop(L, 1);
      return 1;
    }
    lua_replace(L, 1);
  }
  luaL_traceback(L, L, lua_tostring(L, 1), 1);
  push_users_frames(L);
  return 1;
}

static int collect(lua_State *L) {
  lua_gc(L, LUA_GCCOLLECT, 0);
  return 0;
}

/* What a failed call held is let go. A finalizer's own error does not take the place of the call's, which is on top. */
int host_call(lua_State *L, int arguments, int results) {
  const int handler = lua_gettop(L) - arguments;
  lua_pushcfunction(L, with_traceback);
  lua_insert(L, handler);
  const int status = lua_pcall(L, arguments, results, handler);
  lua_remove(L, handler);
  if (status != 0) host_report(L, lua_cpcall(L, collect, NULL));
  return status;
}

static const char *report_prefix = "moonferry: ";

void host_prefix(const char *prefix) {
  report_prefix = prefix;
}

static int show_value(lua_State *L) {
  lua_getglobal(L, "require");
  lua_pushliteral(L, "moonferry.program.show");
  lua_call(L, 1, 1);
  lua_getfield(L, -1, "value");
  lua_pushvalue(L, 1);
  lua_call(L, 1, 1);
  return 1;
}

/* The value at the top as the prompt shows it; NULL where that cannot be had. It stays on the stack. */
static const char *show(lua_State *L) {
  lua_pushcfunction(L, show_value);
  lua_pushvalue(L, -2);
  return lua_pcall(L, 1, 1, 0) == 0 ? lua_tostring(L, -1) : NULL;
}

int host_report(lua_State *L, int status) {
  if (status == 0) return 0;
  fflush(stdout);
  const int base = lua_gettop(L) - 1;
  const char *message = lua_tostring(L, -1), *shown = message == NULL ? show(L) : NULL;
  if (message != NULL)
    fprintf(stderr, "%s%s\n", report_prefix, message);
  else if (shown != NULL)
    fprintf(stderr, "%s(error object is %s)\n", report_prefix, shown);
  else
    fprintf(stderr, "%s(error object is not a string)\n", report_prefix);
  fflush(stderr);
  lua_settop(L, base);
  return status;
}

int host_require(lua_State *L, const char *name) {
  lua_getglobal(L, "require");
  lua_pushstring(L, name);
  return host_report(L, host_call(L, 1, 1));
}
