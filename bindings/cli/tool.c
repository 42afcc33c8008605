/* tool.c: the subcommands that are written in Lua and Python: `moonferry doctor` and `moonferry check`.
 *
 * lua/moonferry/program decides what is done; here processes are run for it. It must not know what they find. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "host.h"

/* The strings from index `first` on as a command, its NULL included. */
static char **command_of(lua_State *L, int first) {
  const int count = lua_gettop(L) - first + 1;
  char **command = cli_room(NULL, sizeof *command * (size_t)(count + 1));
  for (int i = 0; i < count; i++) {
    const char *word = luaL_checkstring(L, first + i);
    command[i] = cli_copy(word, strlen(word));
  }
  command[count] = NULL;
  return command;
}

/* run(seconds, command ...): what it printed and its status; no status if it took too long. */
static int lua_run(lua_State *L) {
  cli_text out = {0};
  const lua_Integer seconds = luaL_checkinteger(L, 1);
  const int status = cli_capture(command_of(L, 2), (unsigned)seconds, &out);
  lua_pushlstring(L, out.at, out.size);
  if (status < 0) return 1;
  lua_pushinteger(L, status);
  return 2;
}

static void push_words(lua_State *L, int argc, char **argv) {
  lua_createtable(L, argc, 0);
  for (int i = 1; i < argc; i++) {
    lua_pushstring(L, argv[i]);
    lua_rawseti(L, -2, i);
  }
}

/* A subcommand on its way through a protected call, so that missing memory is an error like any other. */
typedef struct tool {
  char **argv;
  int argc, status;
  char **command; /* what to become at the end, or NULL */
} tool;

static int run(lua_CFunction body, tool *t) {
  lua_State *L = host_open(true);
  t->status = CLI_USAGE;
  if (L == NULL) return CLI_USAGE;
  const int status = host_report(L, lua_cpcall(L, body, t));
  mf_lua_close(L);
  return status == 0 ? t->status : CLI_USAGE;
}

/* Pushes module.name; false if there is no such thing, which was said. */
static bool push_main(lua_State *L, const char *module, const char *name) {
  if (host_require(L, module) != 0) return false;
  lua_getfield(L, -1, name);
  return true;
}

static int doctor(lua_State *L) {
  tool *t = lua_touserdata(L, 1);
  if (!push_main(L, "moonferry.program.doctor", "main")) return 0;
  push_words(L, t->argc, t->argv);
  lua_createtable(L, 0, 3);
  lua_pushcfunction(L, lua_run);
  lua_setfield(L, -2, "run");
  lua_pushstring(L, cli_program());
  lua_setfield(L, -2, "program");
  lua_pushstring(L, MOONFERRY_VERSION);
  lua_setfield(L, -2, "version");
  if (host_report(L, host_call(L, 2, 1)) == 0) t->status = cli_printed((int)lua_tointeger(L, -1), CLI_USAGE);
  return 0;
}

int cli_doctor(int argc, char **argv) {
  tool t = {.argv = argv, .argc = argc};
  return run(doctor, &t);
}

static int check(lua_State *L) {
  tool *t = lua_touserdata(L, 1);
  if (!push_main(L, "moonferry.program.python", "check")) return 0;
  push_words(L, t->argc, t->argv);
  if (host_report(L, host_call(L, 1, 1)) != 0) return 0;
  const int count = (int)lua_objlen(L, -1);
  const int list = lua_gettop(L);
  luaL_checkstack(L, count, "too many words");
  for (int i = 1; i <= count; i++) lua_rawgeti(L, list, i);
  t->command = command_of(L, list + 1);
  return 0;
}

int cli_check(int argc, char **argv) {
  tool t = {.argv = argv, .argc = argc};
  const int status = run(check, &t);
  if (t.command == NULL) return status;
  execvp(t.command[0], t.command);
  fprintf(stderr, "moonferry check: cannot run '%s': %s\n", t.command[0], strerror(errno));
  return CLI_USAGE;
}
