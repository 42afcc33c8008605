/* header.c: a program in C that hands tensors to a Lua state and takes them from it by moonferry_lua.h; header_spec.lua
 * runs it. It prints what it saw, and the ledger at its end. With an argument it runs that, and closes its state; with
 * two it first has Lua collect where Lua gets no memory, then where it does, and prints how many tensors are left each
 * time. */
#include <lualib.h>
#include <moonferry_lua.h>
#include <stdio.h>
#include <stdlib.h>

static float memory[6] = {0, 1, 2, 3, 4, 5};
static int released;

static void on_release(void *unused) {
  (void)unused;
  released++;
}

/* sum(t): of a tensor of Lua's. */
static int sum(lua_State *L) {
  const DLTensor *d = mf_tensor_dltensor(mf_lua_check(L, 1));
  double total = 0;
  for (int64_t i = 0; i < d->shape[0]; i++) total += (double)((float *)d->data)[i * d->strides[0]];
  lua_pushnumber(L, total);
  return 1;
}

/* last(...): what the last argument is, counted from the top. */
static int last(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)mf_tensor_size(mf_lua_check(L, -1)));
  return 1;
}

static int run(lua_State *L, const char *code) {
  if (luaL_dostring(L, code) == 0) return 0;
  printf("error: %s\n", lua_tostring(L, -1));
  return 1;
}

/* Where there is no memory, there is still some for Lua's stack: without it LuaJIT calls no finalizer. */
enum { SMALLEST_STACK = 256 };
static int is_poor;

static void *reallocate(void *unused, void *old, size_t old_nbytes, size_t nbytes) {
  (void)unused;
  if (nbytes == 0) {
    free(old);
    return NULL;
  }
  return is_poor && nbytes > old_nbytes && nbytes < SMALLEST_STACK ? NULL : realloc(old, nbytes);
}

static void print_tensors(void) {
  mf_ledger alive;
  mf_ledger_read(&alive);
  printf("%d\n", (int)alive.tensors);
}

/* No function of Lua's is below these collections, so that what they finalize would wait for the next one; but to make
 * it wait takes memory, and there is none. */
static void collect(lua_State *L) {
  enum { TIMES = 3 };
  is_poor = 1;
  for (int i = 0; i < TIMES; i++) lua_gc(L, LUA_GCCOLLECT, 0);
  print_tensors();
  is_poor = 0;
  for (int i = 0; i < TIMES; i++) lua_gc(L, LUA_GCCOLLECT, 0);
  print_tensors();
}

static int run_and_close(const char *code, int collects) {
  lua_State *L = lua_newstate(reallocate, NULL);
  luaL_openlibs(L);
  const int status = run(L, code);
  if (collects) collect(L);
  mf_lua_close(L);
  print_tensors();
  return status;
}

int main(int argc, char **argv) {
  if (argc > 1) return run_and_close(argv[1], argc > 2);
  DLTensor view = {.data = memory, .ndim = 1, .shape = (int64_t[]){6}, .dtype = {kDLFloat, 32, 1}};
  mf_tensor *t;
  mf_ledger alive;
  if (mf_tensor_wrap(&view, 0, on_release, NULL, &t, NULL) != MF_OK) return 2;
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  lua_register(L, "sum", sum);
  lua_register(L, "last", last);
  run(L, "local preload = package.preload "
         "preload['moonferry.numbers'] = function() preload['moonferry.numbers'] = nil error 'broken off' end");
  if (mf_lua_push(L, t) == 0) return 4;
  lua_pop(L, 1);
  if (mf_lua_push(L, t) != 0) return 3;
  int top = lua_gettop(L);
  lua_setglobal(L, "t");
  run(L, "print(t:get(5), sum(t), sum(t:view { 1, nil, 2 }), last(1, t))");
  run(L, "t:fill(2) local mf = require 'moonferry' print(sum(mf.tensor { 1, 2, 3 }))");
  for (int i = 0; i < 3; i++) {
    static const char *const wrong[] = {"sum(5)", "sum { handle = 5 }", "t:close() sum(t)"};
    run(L, wrong[i]);
  }
  run(L, "package.loaded['moonferry.crossing'].adopt = function() error 'no memory' end");
  int status = mf_lua_push(L, t);
  printf("%d %d %g %d\n", top, status, (double)memory[3], released);
  mf_lua_close(L);
  mf_tensor_release(t);
  mf_ledger_read(&alive);
  printf("%d %d\n", released, (int)alive.tensors);
  return 0;
}
