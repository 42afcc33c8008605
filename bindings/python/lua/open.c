/* open.c: makes the Lua state of a moonferry.Lua.
 *
 * Invariant: a state is whole, or it was never there. */
#include <luajit.h>
#include <lualib.h>
#include <moonferry_lua.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

struct plan {
  PyObject *type;
  const char *encoding, *source_encoding, *path;
  PyObject *filter, *getter, *setter, *eval, *builtins, *limit;
  int unpack, sandbox, interruptible;
  mf__state *state;
};

/* Before there is a bridge: libraries, the entry in the registry, and then the bridge. */
static int open_state(lua_State *L) {
  struct plan *plan = lua_touserdata(L, 1);
  if (plan->sandbox) {
    mf__sandbox_open(L);
  } else {
    luaL_openlibs(L);
  }
  mf__state_register(L, plan->state);
  lua_createtable(L, MF__BRIDGE_SLOTS, 0);
  int table = lua_gettop(L);
  mf__bridge *bridge = mf__bridge_new(L, table, &mf__wrap_policy);
  mf__bridge_retain(L, bridge, table);
  plan->state->bridge = bridge;
  return 0;
}

static void put_weak_table(lua_State *L, int bridge, int slot, const char *mode) {
  lua_newtable(L);
  lua_newtable(L);
  lua_pushstring(L, mode);
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  lua_rawseti(L, bridge, slot);
}

/* Lua's half of tensors: moonferry's own Lua files, which most states never need. */
static int load_crossing(lua_State *L) {
  lua_getfield(L, LUA_REGISTRYINDEX, "moonferry.require");
  mf_lua__load(L, "moonferry.crossing");
  lua_getfield(L, -1, "describer");
  lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_IMPORT);
  lua_call(L, 1, 1);
  lua_rawseti(L, lua_upvalueindex(1), MF__BRIDGE_DESCRIBE);
  lua_getfield(L, -1, "adopt");
  lua_rawseti(L, lua_upvalueindex(1), MF__BRIDGE_ADOPT);
  lua_getfield(L, -1, "through");
  lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_RELEASE);
  lua_call(L, 1, 0);
  lua_getfield(L, -1, "box");
  lua_rawseti(L, lua_upvalueindex(1), MF__BRIDGE_BOX);
  return 0;
}

static int import_module(lua_State *L) {
  const char *name = luaL_checkstring(L, 1);
  PyObject *module;
  MF__OUTSIDE(module, PyImport_ImportModule(name));
  mf__push_flagged(L, mf__hold(L, module), 0);
  return 1;
}

static void put_loader(lua_State *L, int bridge) {
  lua_getglobal(L, "require");
  lua_setfield(L, LUA_REGISTRYINDEX, "moonferry.require");
  lua_pushvalue(L, bridge);
  lua_pushcclosure(L, load_crossing, 1);
  lua_rawseti(L, bridge, MF__BRIDGE_LOAD);
  mf__push_verb(L, import_module, bridge);
  lua_rawseti(L, bridge, MF__BRIDGE_IMPORT);
  mf__push_release(L, bridge);
  lua_rawseti(L, bridge, MF__BRIDGE_RELEASE);
}

/* This package's Lua files come first, so that they are of the build of this process's library. */
static void put_path(lua_State *L, const char *path) {
  lua_getglobal(L, "package");
  lua_pushfstring(L, "%s/?.lua;%s/?/init.lua;", path, path);
  lua_getfield(L, -2, "path");
  lua_concat(L, 2);
  lua_setfield(L, -2, "path");
  lua_pop(L, 1);
}

/* A script ends the program as Python ends it, with what Python does at its end. */
static int exit_program(lua_State *L) {
  const lua_Number status = lua_isboolean(L, 1) ? !lua_toboolean(L, 1) : luaL_optnumber(L, 1, 0);
  if (!(status > -0x1p31 - 1 && status < 0x1p31))
    mf__fail(L, "bad argument #1 to 'exit' (%f is no status; -2147483648 to 2147483647 expected)", status);
  PyErr_SetObject(PyExc_SystemExit, mf__hold(L, PyLong_FromLong((long)status)));
  return mf__raise(L);
}

static void put_exit(lua_State *L, int bridge) {
  lua_getglobal(L, "os");
  mf__push_verb(L, exit_program, bridge);
  lua_setfield(L, -2, "exit");
  lua_pop(L, 1);
}

static int refuse_compiler(lua_State *L) {
  return luaL_error(L, "%s", lua_tostring(L, lua_upvalueindex(1)));
}

/* Up to LuaJIT 2.1.0-beta3 compiled code that has no memory ends the process: lj_err_mem reads the frame at L->base,
 * which compiled code does not keep. Later ones have the time of their commit in place of "0-beta3". */
static int is_old(const char *version) {
  return strstr(version, "-beta") != NULL || strncmp(version, "LuaJIT 2.0", 10) == 0;
}

/* Why nothing of a state with this LuaJIT may be compiled; NULL where that may be. */
static const char *why_not_compiled(const struct plan *plan, const char *version) {
  if (plan->interruptible) return "this state is interruptible: compiled code could not be stopped";
  if (plan->limit != Py_None && is_old(version))
    return "this state has max_memory, and compiled code that meets it would end the process in this version of LuaJIT";
  return NULL;
}

/* A sandbox has no library jit, without which the compiler is off. */
static void choose_compiler(lua_State *L, const struct plan *plan) {
  lua_getglobal(L, "jit");
  if (lua_istable(L, -1)) {
    lua_getfield(L, -1, "version");
    const char *why = why_not_compiled(plan, lua_tostring(L, -1));
    lua_pop(L, 1);
    if (why != NULL) {
      luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
      lua_pushstring(L, why);
      lua_pushcclosure(L, refuse_compiler, 1);
      lua_setfield(L, -2, "on");
    }
  }
  lua_pop(L, 1);
}

/* debug.sethook of an interruptible state: a script that is to end keeps the hook that ends it, which another thread
 * may set while the script sets one of its own. */
static int set_hook(lua_State *L) {
  const int hook = lua_isthread(L, 1) ? 2 : 1;
  if (!lua_isnoneornil(L, hook)) { /* refused here, where the error has the caller's line and the name sethook */
    luaL_checkstring(L, hook + 1);
    luaL_checktype(L, hook, LUA_TFUNCTION);
    luaL_optinteger(L, hook + 2, 0);
  }
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, 0);
  if (mf__top != NULL && mf__top->state != NULL) mf__stop_renew(mf__top->state);
  return 0;
}

static void put_sethook(lua_State *L) {
  lua_getglobal(L, "debug");
  lua_getfield(L, -1, "sethook");
  lua_pushcclosure(L, set_hook, 1);
  lua_setfield(L, -2, "sethook");
  lua_pop(L, 1);
}

static int fill_state(lua_State *L, void *data) {
  struct plan *plan = data;
  lua_pushvalue(L, lua_upvalueindex(1));
  int bridge = lua_gettop(L);
  put_weak_table(L, bridge, MF__BRIDGE_CACHE, "v");
  put_weak_table(L, bridge, MF__BRIDGE_UNWRAP, "k");
  lua_newtable(L);
  mf__wrapped_metatable(L, bridge);
  mf__bridge_metatable(L, bridge, MF__BRIDGE_OBJECT);
  mf__put_fault(L, bridge);
  mf__push_flagged(L, Py_None, 0);
  lua_rawseti(L, bridge, MF__BRIDGE_NONE);
  choose_compiler(L, plan);
  if (plan->sandbox) return 0;
  put_path(L, plan->path);
  put_loader(L, bridge);
  put_exit(L, bridge);
  if (plan->interruptible) put_sethook(L);
  mf__push_python(L, bridge, plan->eval, plan->builtins);
  lua_pushvalue(L, -1);
  lua_setglobal(L, "python");
  lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
  lua_insert(L, -2);
  lua_setfield(L, -2, "python");
  return 0;
}

/* A copy of what ${text} says, if anything; 0, or -1. */
static int copy_text(const char *text, char **copy) {
  *copy = text != NULL ? malloc(strlen(text) + 1) : NULL;
  if (*copy != NULL) strcpy(*copy, text);
  return text != NULL && *copy == NULL ? -1 : 0;
}

/* The names of the chunks that are found by put_path begin with this. */
static char *library_at(const char *path) {
  const size_t size = strlen(path) + sizeof "@/moonferry/";
  char *prefix = malloc(size);
  if (prefix != NULL) (void)snprintf(prefix, size, "@%s/moonferry/", path);
  return prefix;
}

static PyObject *option(PyObject *object) {
  if (object == Py_None) return NULL;
  Py_IncRef(object);
  return object;
}

/* 0, or -1 where there is no memory: an encoding that is lost would give bytes in the place of text. */
static int take_options(mf__state *state, const struct plan *plan) {
  mf__options *options = &state->options;
  options->filter = option(plan->filter);
  options->getter = option(plan->getter);
  options->setter = option(plan->setter);
  options->utf8 = plan->encoding != NULL && (!strcmp(plan->encoding, "UTF-8") || !strcmp(plan->encoding, "utf-8"));
  options->unpack = plan->unpack;
  options->sandbox = plan->sandbox;
  state->stop_hook = plan->interruptible ? mf__stop_hook : NULL;
  state->library = plan->interruptible ? library_at(plan->path) : NULL;
  if (plan->interruptible && state->library == NULL) return -1;
  if (copy_text(plan->encoding, &options->encoding) != 0) return -1;
  return copy_text(plan->source_encoding, &options->source_encoding);
}

/* Why there is no state: a LuaJIT without GC64 on a 64-bit machine takes only its own allocator, and asks no other one
 * for anything. */
static void fail_without_lua(const mf__memory *memory) {
  if (memory == NULL || memory->refused > 0)
    PyErr_SetString(mf__lua_memory_error_type, "LuaJIT gives no state: not enough memory");
  else
    PyErr_SetString(PyExc_RuntimeError, "max_memory and interruptible need a LuaJIT that was built with GC64");
}

/* NULL with an exception; ${memory}: the account of a state that has one. */
static lua_State *new_lua(const struct plan *plan, mf__memory **memory) {
  const int counts = plan->limit != Py_None || plan->interruptible;
  *memory = counts ? calloc(1, sizeof **memory) : NULL;
  lua_State *L = !counts ? luaL_newstate() : *memory != NULL ? lua_newstate(mf__memory_allocate, *memory) : NULL;
  if (L == NULL) fail_without_lua(*memory);
  return L;
}

/* Nothing but memory that ends fails here. */
static int run_opening(struct plan *plan, lua_State *L) {
  lua_atpanic(L, mf__panic);
  int status = lua_cpcall(L, open_state, plan);
  if (status != 0)
    PyErr_Format(mf__lua_memory_error_type, "the Lua state cannot be opened: %s", lua_tostring(L, -1));
  return status == 0 ? mf__call_in(plan->state->bridge, fill_state, plan) : -1;
}

/* Lua's own needs do not count: the limit is what comes on top of them. */
static int set_limit(mf__memory *memory, PyObject *limit) {
  if (limit == Py_None) return 0;
  size_t bytes = PyLong_AsSize_t(limit);
  if (PyErr_Occurred()) return -1;
  memory->counted = 1;
  memory->base = memory->used;
  memory->limit = bytes != 0 ? memory->base + bytes : 0;
  return 0;
}

/* A collector that waits until memory has doubled would meet the limit first. */
static int tighten(lua_State *L, void *unused) {
  (void)unused;
  lua_gc(L, LUA_GCCOLLECT, 0);
  lua_gc(L, LUA_GCSETPAUSE, 110);
  lua_gc(L, LUA_GCSETSTEPMUL, 400);
  return 0;
}

static PyObject *open_with(struct plan *plan) {
  mf__memory *memory;
  lua_State *L = new_lua(plan, &memory);
  plan->state = L != NULL ? mf__state_new((PyTypeObject *)plan->type, L, 1) : NULL;
  if (plan->state == NULL) {
    if (L != NULL) lua_close(L);
    free(memory);
    return NULL;
  }
  plan->state->memory = memory;
  int failed = take_options(plan->state, plan);
  if (failed) PyErr_NoMemory();
  if (!failed) failed = run_opening(plan, L);
  if (!failed && plan->limit != Py_None) failed = mf__call_in(plan->state->bridge, tighten, NULL);
  if (!failed) failed = set_limit(memory, plan->limit);
  if (!failed) return (PyObject *)plan->state;
  Py_DecRef((PyObject *)plan->state);
  return NULL;
}

/* Lua.__new__ is a function in Python, which gets whatever class its caller names. */
static int check_type(PyObject *type) {
  if (PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, mf__state_type)) return 0;
  PyErr_Format(PyExc_TypeError, "Lua.__new__(%R): this is no subclass of moonferry.Lua", type);
  return -1;
}

PyObject *mf__open(PyObject *module, PyObject *arguments) {
  (void)module;
  struct plan plan = {.state = NULL};
  if (!PyArg_ParseTuple(arguments, "OzsyOOOOOOppp", &plan.type, &plan.encoding, &plan.source_encoding, &plan.path,
                        &plan.filter, &plan.getter, &plan.setter, &plan.eval, &plan.builtins, &plan.limit, &plan.unpack,
                        &plan.sandbox, &plan.interruptible))
    return NULL;
  return check_type(plan.type) == 0 ? open_with(&plan) : NULL;
}
