/* nolua.c: the program where it was built without LuaJIT (MOONFERRY_LUA=OFF): it can simulate GPUs, and says so of the
 * rest. */
#include <string.h>

#include "cli.h"

int cli_lua(int argc, char **argv) {
  if (argc == 2 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-v") == 0)) {
    printf("moonferry %s -- built without LuaJIT\n", MOONFERRY_VERSION);
    return 0;
  }
  fprintf(stderr, "moonferry: this program was built without LuaJIT, so it runs no Lua; 'moonferry --help'\n");
  return CLI_USAGE;
}

static int nothing(const char *name) {
  fprintf(stderr, "moonferry %s: this program was built without LuaJIT, which that needs\n", name);
  return CLI_USAGE;
}

int cli_doctor(int argc, char **argv) {
  (void)argc;
  return nothing(argv[0]);
}

int cli_check(int argc, char **argv) {
  (void)argc;
  return nothing(argv[0]);
}
