/* engine.c: a program with threads that embeds LuaJIT, for those endings of cases.py whose host is an engine.
 *
 * It runs a script in a state of its own on the main thread, closes that state and returns. The script finds these
 * functions, as does every state that it makes by them:
 *
 *   thread(code)         runs code in a new state on a new thread, which closes the state and ends
 *   state(code)          the same on this thread, before it returns
 *   join()               waits until every thread has ended
 *   set(name)            an event has happened, from now on
 *   await(name)          waits until it has
 *   leave(status)        exit, with every state open
 *   join_at_exit()       exit sets "exit" and joins, after what Python registers later
 *
 * Before it closes the state of a script that defines the function `collected`, it has Lua collect twice, and calls
 * that function with 1 and 2.
 *
 * It knows nothing of Python or Moonferry; where it is linked with libmoonferry, as an engine is that wraps its memory,
 * it says so by calling it, and closes its states as that wants it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* strdup */
#endif
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef ENGINE_LINKED
#include <moonferry_lua.h>
#else
#define mf_lua_close lua_close
#endif

enum { MANY = 64 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static char *events[MANY];
static int event_count, running;

static void open_engine(lua_State *L);

/* Where the script has left a function of that name. */
static void collect(lua_State *L) {
  for (int times = 1; times <= 2; times++) {
    lua_getglobal(L, "collected");
    const int is_asked_for = lua_isfunction(L, -1);
    lua_pop(L, 1);
    if (!is_asked_for) return;
    lua_gc(L, LUA_GCCOLLECT, 0);
    lua_getglobal(L, "collected");
    lua_pushinteger(L, times);
    lua_call(L, 1, 0);
  }
}

static int run(const char *code) {
  lua_State *L = luaL_newstate();
  if (L == NULL) return 1;
  luaL_openlibs(L);
  open_engine(L);
  int failed = luaL_dostring(L, code);
  if (failed) {
    lua_getglobal(L, "tostring");
    lua_insert(L, -2);
    lua_call(L, 1, 1);
    fprintf(stderr, "engine: %s\n", lua_tostring(L, -1));
  }
  lua_settop(L, 0);
  collect(L);
  mf_lua_close(L);
  return failed;
}

static void *run_thread(void *code) {
  run(code);
  free(code);
  pthread_mutex_lock(&mutex);
  running--;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
  return NULL;
}

static int engine_thread(lua_State *L) {
  pthread_t thread;
  char *code = strdup(luaL_checkstring(L, 1));
  pthread_mutex_lock(&mutex);
  running++;
  pthread_mutex_unlock(&mutex);
  if (code == NULL || pthread_create(&thread, NULL, run_thread, code) != 0) return luaL_error(L, "no thread");
  pthread_detach(thread);
  return 0;
}

static int engine_state(lua_State *L) {
  lua_pushboolean(L, run(luaL_checkstring(L, 1)) == 0);
  return 1;
}

static void join(void) {
  pthread_mutex_lock(&mutex);
  while (running > 0) pthread_cond_wait(&changed, &mutex);
  pthread_mutex_unlock(&mutex);
}

static int engine_join(lua_State *L) {
  (void)L;
  join();
  return 0;
}

static int has_happened(const char *name) {
  for (int i = 0; i < event_count; i++) {
    if (strcmp(events[i], name) == 0) return 1;
  }
  return 0;
}

static void set(const char *name) {
  pthread_mutex_lock(&mutex);
  if (!has_happened(name) && event_count < MANY) events[event_count++] = strdup(name);
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
}

static int engine_set(lua_State *L) {
  set(luaL_checkstring(L, 1));
  return 0;
}

static int engine_await(lua_State *L) {
  const char *name = luaL_checkstring(L, 1);
  pthread_mutex_lock(&mutex);
  while (!has_happened(name)) pthread_cond_wait(&changed, &mutex);
  pthread_mutex_unlock(&mutex);
  return 0;
}

static int engine_leave(lua_State *L) {
  exit((int)luaL_checkinteger(L, 1));
}

static void set_and_join(void) {
  set("exit");
  join();
}

static int engine_join_at_exit(lua_State *L) {
  (void)L;
  atexit(set_and_join);
  return 0;
}

static void open_engine(lua_State *L) {
  static const luaL_Reg functions[] = {{"thread", engine_thread}, {"state", engine_state}, {"join", engine_join},
                                       {"set", engine_set},       {"await", engine_await}, {"leave", engine_leave},
                                       {"join_at_exit", engine_join_at_exit}, {NULL, NULL}};
  for (const luaL_Reg *function = functions; function->name != NULL; function++)
    lua_register(L, function->name, function->func);
}

/* The whole file, or NULL. */
static char *read_file(const char *path) {
  enum { MOST = 1 << 16 };
  FILE *file = fopen(path, "r");
  char *text = file != NULL ? calloc(1, MOST) : NULL;
  if (text != NULL && fread(text, 1, MOST - 1, file) == MOST - 1) fprintf(stderr, "engine: %s is too long\n", path);
  if (file != NULL) fclose(file);
  return text;
}

int main(int argc, char **argv) {
  char *code = argc == 2 ? read_file(argv[1]) : NULL;
  if (code == NULL) return 2;
#ifdef ENGINE_LINKED
  if (strlen(mf_version_string()) == 0) return 2;
#endif
  int status = run(code);
  free(code);
  return status;
}
