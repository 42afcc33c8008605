/* sandbox.c: the libraries of a state for scripts that are not trusted with files, programs, FFI or Python.
 *
 * Invariant: a script finds what is listed here and no more, whichever LuaJIT opened the libraries; what it finds runs
 * no bytecode, which can be made to crash the process, and calls no Lua function from C without a look at the C stack;
 * and nothing is compiled, because opening the library jit starts the compiler. Must not know: Python objects. */
#include <lualib.h>
#include <string.h>

#include "runtime.h"

static const char *const base_names[] = {
    "_G",         "_VERSION", "assert",       "bit",    "coroutine", "error",    "getmetatable", "ipairs", "load",
    "loadstring", "math",     "next",         "pairs",  "pcall",     "print",    "rawequal",     "rawget", "rawlen",
    "rawset",     "select",   "setmetatable", "string", "table",     "tonumber", "tostring",     "type",   "unpack",
    "xpcall",     NULL};
static const char *const bit_names[] = {"arshift", "band", "bnot",   "bor",   "bswap", "bxor", "lshift",
                                        "rol",     "ror",  "rshift", "tobit", "tohex", NULL};
static const char *const coroutine_names[] = {"create", "isyieldable", "resume", "running",
                                              "status", "wrap",        "yield",  NULL};
static const char *const math_names[] = {"abs",        "acos", "asin",  "atan", "atan2", "ceil", "cos",   "cosh",
                                         "deg",        "exp",  "floor", "fmod", "frexp", "huge", "ldexp", "log",
                                         "log10",      "max",  "min",   "modf", "pi",    "pow",  "rad",   "random",
                                         "randomseed", "sin",  "sinh",  "sqrt", "tan",   "tanh", NULL};
static const char *const string_names[] = {"byte",  "char",  "find", "format",  "gmatch", "gsub",  "len",
                                           "lower", "match", "rep",  "reverse", "sub",    "upper", NULL};
static const char *const table_names[] = {"concat", "foreach", "foreachi", "getn", "insert", "maxn",
                                          "move",   "pack",    "remove",   "sort", "unpack", NULL};

/* What load returns for the error at the top of the stack. */
static int nil_and_error(lua_State *L) {
  lua_pushnil(L);
  lua_insert(L, -2);
  return 2;
}

/* load and loadstring of text alone: of the string at the top of the stack, if ${mode} lets text be. */
static int load_text(lua_State *L, const char *name, const char *mode) {
  size_t size;
  const char *text = lua_tolstring(L, -1, &size);
  if (mf__load(L, &(mf__chunk){text, size, name, strchr(mode, 't') != NULL ? "t" : ""}) == 0) return 1;
  return nil_and_error(L);
}

/* Joins the pieces that the function at 1 gives until it gives nil or "". */
static int join_pieces(lua_State *L) {
  const int pieces = 2;
  lua_newtable(L);
  for (int count = 1;; count++) {
    lua_pushvalue(L, 1);
    lua_call(L, 0, 1);
    if (lua_isnil(L, -1) || (lua_isstring(L, -1) && lua_objlen(L, -1) == 0)) break;
    if (!lua_isstring(L, -1)) luaL_error(L, "reader function must return a string");
    lua_tostring(L, -1);
    lua_rawseti(L, pieces, count);
  }
  lua_settop(L, pieces);
  lua_getfield(L, LUA_REGISTRYINDEX, "moonferry.concat");
  lua_insert(L, pieces);
  lua_call(L, 1, 1);
  return 1;
}

static int safe_load(lua_State *L) {
  luaL_checkany(L, 1);
  int given = !lua_isnoneornil(L, 4);
  if (given && !lua_istable(L, 4)) /* lua_setfenv takes anything for a table */
    return luaL_error(L, "bad argument #4 to 'load' (table expected, got %s)", luaL_typename(L, 4));
  const int is_text = lua_type(L, 1) == LUA_TSTRING;
  const char *name = luaL_optstring(L, 2, is_text ? lua_tostring(L, 1) : "=(load)");
  const char *mode = luaL_optstring(L, 3, "t");
  if (is_text) {
    lua_pushvalue(L, 1);
  } else {
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_pushcfunction(L, join_pieces);
    lua_pushvalue(L, 1);
    if (lua_pcall(L, 1, 1, 0) != 0) return nil_and_error(L);
  }
  int results = load_text(L, name, mode);
  if (results == 1 && given) {
    lua_pushvalue(L, 4);
    lua_setfenv(L, -2);
  }
  return results;
}

/* The function that is the upvalue, as long as there is C stack for it: LuaJIT lets these nest without a limit. */
static int nested(lua_State *L) {
  if (mf__stack_is_low(1)) return luaL_error(L, "C stack overflow");
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

static int nested_wrap(lua_State *L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, 1);
  lua_pushcclosure(L, nested, 1);
  return 1;
}

/* xpcall's message handler, nested: an error in it calls another one, if that is caught by an xpcall of its own. */
static int nested_handler(lua_State *L) {
  if (lua_isfunction(L, 1)) lua_pushcclosure(L, nested, 1);
  return 1;
}

/* In Lua, because a coroutine may yield out of xpcall, and could not out of a C function. */
static void limit_xpcall(lua_State *L) {
  static const char code[] =
      "local xpcall, nested = ... "
      "return function(f, handler, ...) return xpcall(f, nested(handler), ...) end";
  if (luaL_loadbuffer(L, code, sizeof code - 1, "=xpcall") != 0) lua_error(L);
  lua_getglobal(L, "xpcall");
  lua_pushcfunction(L, nested_handler);
  lua_call(L, 2, 1);
  lua_setglobal(L, "xpcall");
}

static void limit(lua_State *L, const char *library, const char *name, lua_CFunction with) {
  lua_getglobal(L, library);
  lua_getfield(L, -1, name);
  lua_pushcclosure(L, with, 1);
  lua_setfield(L, -2, name);
  lua_pop(L, 1);
}

static void open_library(lua_State *L, const char *name, lua_CFunction open) {
  lua_pushcfunction(L, open);
  lua_pushstring(L, name);
  lua_call(L, 1, 0);
}

static int is_listed(const char *name, const char *const *names) {
  while (*names != NULL && strcmp(*names, name) != 0) names++;
  return *names != NULL;
}

/* Takes every field out of the table at the top of the stack that is not listed, and pops it. */
static void keep(lua_State *L, const char *const *names) {
  int table = lua_gettop(L);
  lua_pushnil(L);
  while (lua_next(L, table)) {
    lua_settop(L, table + 1);
    if (lua_type(L, -1) == LUA_TSTRING && is_listed(lua_tostring(L, -1), names)) continue;
    lua_pushvalue(L, -1);
    lua_pushnil(L);
    lua_rawset(L, table);
  }
  lua_settop(L, table - 1);
}

static void keep_listed(lua_State *L) {
  static const struct {
    const char *library;
    const char *const *names;
  } lists[] = {{"_G", base_names},   {"bit", bit_names},       {"coroutine", coroutine_names},
               {"math", math_names}, {"string", string_names}, {"table", table_names},
               {NULL, NULL}};
  for (int i = 0; lists[i].library != NULL; i++) {
    lua_getglobal(L, lists[i].library);
    keep(L, lists[i].names);
  }
}

void mf__sandbox_open(lua_State *L) {
  open_library(L, "", luaopen_base);
  open_library(L, LUA_TABLIBNAME, luaopen_table);
  open_library(L, LUA_STRLIBNAME, luaopen_string);
  open_library(L, LUA_MATHLIBNAME, luaopen_math);
  open_library(L, LUA_BITLIBNAME, luaopen_bit);
  keep_listed(L);
  lua_getglobal(L, "table");
  lua_getfield(L, -1, "concat");
  lua_setfield(L, LUA_REGISTRYINDEX, "moonferry.concat");
  limit(L, "coroutine", "resume", nested);
  limit(L, "coroutine", "wrap", nested_wrap);
  limit(L, "string", "gsub", nested);
  limit(L, "string", "format", nested);
  limit(L, "table", "sort", nested);
  limit(L, "_G", "print", nested);
  limit_xpcall(L);
  lua_pushcfunction(L, safe_load);
  lua_pushcclosure(L, nested, 1);
  lua_pushvalue(L, -1);
  lua_setglobal(L, "load");
  lua_setglobal(L, "loadstring");
}
