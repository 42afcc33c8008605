/* lua.c: the words of the command line that are for Lua, and what they ask for, in luajit's order and meaning.
 *
 * Invariant: nothing runs before all options were read. An error in Lua ends the program with 1, wrong options with 2.
 * It must not know how a prompt reads its lines. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "host.h"

typedef struct request {
  char **argv;
  int argc, script; /* script == argc: there is none */
  bool interactive, version, executes, no_environment, compiled;
  int status;
} request;

static int wrong(const char *what, const char *word) {
  fprintf(stderr, "moonferry: %s '%s'; 'moonferry --help' lists the options\n", what, word);
  return CLI_USAGE;
}

/* Takes argv[*i], and the word after it if that is its value. */
static int read_option(request *r, int *i) {
  const char *word = r->argv[*i];
  const bool alone = word[2] == '\0';
  if (strcmp(word, "-i") == 0)
    r->interactive = true;
  else if (strcmp(word, "-v") == 0 || strcmp(word, "--version") == 0)
    r->version = true;
  else if (strcmp(word, "-E") == 0)
    r->no_environment = true;
  else if (word[1] == 'e' || word[1] == 'l' || word[1] == 'j') {
    r->executes |= word[1] == 'e';
    if (alone && ++*i >= r->argc) return wrong("there is no value after", word);
    r->compiled |= word[1] == 'j' && strcmp(alone ? r->argv[*i] : word + 2, "on") == 0;
  } else if (word[1] != 'O')
    return wrong("there is no option", word);
  return 0;
}

static int read_words(request *r) {
  int i = 1;
  for (; i < r->argc && r->argv[i][0] == '-' && r->argv[i][1] != '\0'; i++) {
    if (strcmp(r->argv[i], "--") == 0) {
      r->script = i + 1;
      return 0;
    }
    const int status = read_option(r, &i);
    if (status != 0) return status;
  }
  r->script = i;
  return 0;
}

static void say_version(void) {
  printf("moonferry %s -- %s -- %s\n", MOONFERRY_VERSION, LUAJIT_VERSION, LUAJIT_COPYRIGHT);
  fflush(stdout);
}

static int run_chunk(lua_State *L, int loaded, int arguments) {
  if (loaded != 0) return host_report(L, loaded);
  lua_insert(L, -arguments - 1);
  host_interruptible(L, false);
  const int status = host_call(L, arguments, 0);
  host_uninterruptible();
  return host_report(L, status);
}

static int run_text(lua_State *L, const char *text, const char *name) {
  return run_chunk(L, luaL_loadbuffer(L, text, strlen(text), name), 0);
}

static int run_init(lua_State *L) {
  const char *init = getenv("LUA_INIT");
  if (init == NULL) return 0;
  return init[0] == '@' ? run_chunk(L, luaL_loadfile(L, init + 1), 0) : run_text(L, init, "=LUA_INIT");
}

/* -j and -O, with what jit.opt and the modules jit.* are for. */
static int control_compiler(lua_State *L, char option, const char *text) {
  static const char code[] =
      "local option, text = ...\n"
      "if option == 'j' and (text == 'on' or text == 'off' or text == 'flush') then return jit[text]() end\n"
      "local name, rest = text:match('^([^=]+)=?(.*)$')\n"
      "local words = {}\n"
      "for word in (option == 'O' and text or rest or ''):gmatch('[^,]+') do words[#words + 1] = word end\n"
      "local found, module = pcall(require, option == 'O' and 'jit.opt' or 'jit.' .. (name or ''))\n"
      "local known = found and type(module) == 'table' and module.start\n"
      "if not known then error('-j: ' .. text .. ' is neither on, off or flush nor a module jit.*', 0) end\n"
      "local ok, why = pcall(known, unpack(words))\n"
      "if not ok then error(why, 0) end\n";
  const int loaded = luaL_loadbuffer(L, code, sizeof code - 1, "=moonferry");
  lua_pushlstring(L, &option, 1);
  lua_pushstring(L, text);
  return host_report(L, loaded != 0 ? loaded : lua_pcall(L, 2, 0, 0));
}

static int run_options(lua_State *L, const request *r) {
  int status = 0;
  for (int i = 1; i < r->script && i < r->argc && status == 0; i++) {
    const char option = r->argv[i][1];
    if (strchr("eljO", option) == NULL) continue;
    const char *text = r->argv[i][2] != '\0' || option == 'O' ? r->argv[i] + 2 : r->argv[++i];
    if (option == 'e') {
      status = run_text(L, text, "=(command line)");
    } else if (option == 'l') {
      lua_pushstring(L, text);
      lua_getglobal(L, "require");
      status = run_chunk(L, 0, 1);
    } else {
      status = control_compiler(L, option, text);
    }
  }
  return status;
}

static void set_arguments(lua_State *L, const request *r) {
  lua_createtable(L, r->argc, r->argc);
  for (int i = 0; i < r->argc; i++) {
    lua_pushstring(L, r->argv[i]);
    lua_rawseti(L, -2, i - r->script);
  }
  lua_setglobal(L, "arg");
}

static int run_script(lua_State *L, const request *r) {
  const char *name = r->argv[r->script];
  const bool input = strcmp(name, "-") == 0 && strcmp(r->argv[r->script - 1], "--") != 0;
  const int arguments = r->argc - r->script - 1;
  luaL_checkstack(L, arguments + 3, "too many arguments to the script");
  for (int i = 0; i < arguments; i++) lua_pushstring(L, r->argv[r->script + 1 + i]);
  const int loaded = luaL_loadfile(L, input ? NULL : name);
  const int status = run_chunk(L, loaded, arguments);
  if (loaded != 0) lua_pop(L, arguments);
  return status;
}

static int run_all(lua_State *L) {
  request *r = lua_touserdata(L, 1);
  const bool script = r->script < r->argc;
  set_arguments(L, r);
  if (r->version && !r->interactive) say_version();
  r->status = r->no_environment ? 0 : run_init(L);
  if (r->status == 0) r->status = run_options(L, r);
  if (r->status == 0 && script) r->status = run_script(L, r);
  if (r->status != 0) return 0;
  const bool idle = !script && !r->executes && !r->version;
  if (r->interactive || (idle && isatty(STDIN_FILENO)))
    r->status = host_repl(L, r->compiled);
  else if (idle)
    r->status = run_chunk(L, luaL_loadfile(L, NULL), 0);
  return 0;
}

int cli_lua(int argc, char **argv) {
  request r = {.argv = argv, .argc = argc};
  const int wrong_words = read_words(&r);
  if (wrong_words != 0) return wrong_words;
  lua_State *L = host_open(!r.no_environment);
  if (L == NULL) {
    fprintf(stderr, "moonferry: cannot make a Lua state: not enough memory\n");
    return CLI_FOUND;
  }
  const int status = host_report(L, lua_cpcall(L, run_all, &r));
  mf_lua_close(L);
  return status != 0 || r.status != 0 ? CLI_FOUND : 0;
}
