/* support.c: deleters and release callbacks for specs in Lua: some count, some call Lua.
 *
 * A Lua function cannot stand in for them: LuaJIT's own callbacks may not be called from a finalizer, nor on another
 * thread. A counting one adds one to the int32_t that its context points to and frees nothing, so that a spec can look
 * at the struct afterwards. A calling one calls a Lua function as an engine does that has kept its lua_State, with the
 * number that its context points to. And Lua's memory, which is overwritten where Lua has given it back. Knows nothing
 * of Moonferry. */
#include <dlpack/dlpack.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SUPPORT_API __attribute__((visibility("default")))

/* Of Lua 5.1, spelt out: these specs also run where LuaJIT's headers are not. The program that loads this has them. */
typedef struct lua_State lua_State;
enum { LUA_REGISTRYINDEX = -10000 };
void lua_settop(lua_State *L, int index);
void lua_rawgeti(lua_State *L, int index, int n);
void lua_pushnumber(lua_State *L, double n);
int lua_pcall(lua_State *L, int nargs, int nresults, int handler);
int luaL_ref(lua_State *L, int index);
typedef void *(*lua_Alloc)(void *ud, void *memory, size_t old_nbytes, size_t nbytes);
lua_Alloc lua_getallocf(lua_State *L, void **ud);
void lua_setallocf(lua_State *L, lua_Alloc allocate, void *ud);
int lua_toboolean(lua_State *L, int index);

SUPPORT_API void support_release(void *ctx);
SUPPORT_API void support_delete(DLManagedTensorVersioned *self);
SUPPORT_API void support_delete_legacy(DLManagedTensor *self);
SUPPORT_API int support_on_thread(void (*run)(void *), void *argument);
SUPPORT_API int support_calls(lua_State *L);
SUPPORT_API void support_call(void *ctx);
SUPPORT_API void support_delete_and_call(DLManagedTensorVersioned *self);
SUPPORT_API int support_failures(void);
SUPPORT_API int32_t support_wait(void *ctx, uint64_t value, int64_t ns);
SUPPORT_API int support_overwrites(lua_State *L);

void support_release(void *ctx) {
  ++*(int32_t *)ctx;
}

void support_delete(DLManagedTensorVersioned *self) {
  support_release(self->manager_ctx);
}

void support_delete_legacy(DLManagedTensor *self) {
  support_release(self->manager_ctx);
}

static lua_State *engine;
static int callee, failures;

/* A lua_CFunction: from now on support_call calls the function that is its argument, on this lua_State. */
int support_calls(lua_State *L) {
  lua_settop(L, 1);
  engine = L;
  callee = luaL_ref(L, LUA_REGISTRYINDEX);
  return 0;
}

void support_call(void *ctx) {
  lua_rawgeti(engine, LUA_REGISTRYINDEX, callee);
  lua_pushnumber(engine, *(int32_t *)ctx);
  if (lua_pcall(engine, 1, 0, 0) == 0) return;
  failures++;
  lua_settop(engine, -2);
}

void support_delete_and_call(DLManagedTensorVersioned *self) {
  support_call(self->manager_ctx);
}

/* How many of these calls ended in an error. */
int support_failures(void) {
  return failures;
}

/* The wait of a fence that is done once its context's number is not 0, and cannot be waited for before. */
int32_t support_wait(void *ctx, uint64_t value, int64_t ns) {
  (void)value, (void)ns;
  return *(int32_t *)ctx != 0 ? 0 : -1;
}

typedef struct job {
  void (*run)(void *);
  void *argument;
} job;

static void *work(void *ptr) {
  const job *j = ptr;
  j->run(j->argument);
  return NULL;
}

/* Calls run(argument) on a thread of its own and waits for it; 0 if that thread could be started. */
int support_on_thread(void (*run)(void *), void *argument) {
  job j = {run, argument};
  pthread_t thread;
  const int rc = pthread_create(&thread, NULL, work, &j);
  if (rc != 0) return rc;
  return pthread_join(thread, NULL);
}

/* Of a Lua state whose freed memory is overwritten: what allocates in truth. */
typedef struct inner {
  lua_Alloc allocate;
  void *ud;
} inner;

static void *give_back(const inner *in, void *memory, size_t nbytes) {
  memset(memory, 0xA5, nbytes);
  return in->allocate(in->ud, memory, nbytes, 0);
}

/* What changes its size moves, so that nobody gets away with the old address; but shrinking cannot fail. */
static void *allocate_elsewhere(void *ud, void *memory, size_t old_nbytes, size_t nbytes) {
  const inner *in = ud;
  if (memory == NULL) return in->allocate(in->ud, NULL, 0, nbytes);
  if (nbytes == 0) return give_back(in, memory, old_nbytes);
  void *moved = in->allocate(in->ud, NULL, 0, nbytes);
  if (moved == NULL) return in->allocate(in->ud, memory, old_nbytes, nbytes);
  memcpy(moved, memory, old_nbytes < nbytes ? old_nbytes : nbytes);
  give_back(in, memory, old_nbytes);
  return moved;
}

/* A lua_CFunction of a boolean: whether memory that this Lua gives back is overwritten from now on, so that whoever
 * still uses it is seen. Where that does not end before the state does, somebody else keeps this library loaded. */
int support_overwrites(lua_State *L) {
  inner *in = NULL, now;
  now.allocate = lua_getallocf(L, &now.ud);
  if (lua_toboolean(L, 1)) {
    in = malloc(sizeof *in);
    if (in == NULL) return 0;
    *in = now;
    lua_setallocf(L, allocate_elsewhere, in);
  } else {
    in = now.ud;
    lua_setallocf(L, in->allocate, in->ud);
    free(in);
  }
  return 0;
}
