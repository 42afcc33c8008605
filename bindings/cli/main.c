/* main.c: the `moonferry` program: one table of subcommands, what it says of itself, and Lua for all other words.
 *
 * A subcommand gets the words from its own name on and returns the program's exit status. A script that has the name
 * of a subcommand is run as ./NAME. It must not know what a subcommand does, nor Lua. */
#include <string.h>

#include "cli.h"

typedef struct subcommand {
  const char *name, *summary;
  int (*run)(int argc, char **argv);
} subcommand;

static const subcommand subcommands[] = {
    {"sim", "run a program on a simulated GPU and report its races, leaks and misuse", cli_sim},
    {"doctor", "say what was found: LuaJIT, Python, array libraries, drivers", cli_doctor},
    {"check", "check the exchange protocols of a Python library, rule by rule", cli_check},
};
enum { SUBCOMMANDS = sizeof subcommands / sizeof *subcommands };

static const char before[] =
    "usage: moonferry [OPTION ...] [SCRIPT [ARGUMENT ...]]\n"
    "       moonferry SUBCOMMAND ...\n\n"
    "Runs a Lua script, in which require \"moonferry\" and require \"moonferry.python\" work. Without a script there\n"
    "is a prompt, if this is a terminal; else the script is read from the standard input.\n\n"
    "options:\n"
    "  -e CODE      run CODE\n"
    "  -l MODULE    require MODULE\n"
    "  -i           a prompt, after all else\n"
    "  -j COMMAND   the compiler: on, off, or a module jit.COMMAND[=ARGUMENT,...]\n"
    "  -O[OPTION]   an optimisation of the compiler\n"
    "  -E           LUA_INIT, LUA_PATH and LUA_CPATH are ignored\n"
    "  -v, --version, -h, --help\n"
    "  --           no more options\n"
    "  -            the script is read from the standard input\n\n"
    "subcommands:\n";

static const char behind[] =
    "\n'moonferry SUBCOMMAND --help' says more.\n\n"
    "Exit status: 0; 1 after an error in Lua; 2 for wrong options; what os.exit was given.\n";

static int help(void) {
  fputs(before, stdout);
  for (size_t i = 0; i < SUBCOMMANDS; i++) printf("  %-8s %s\n", subcommands[i].name, subcommands[i].summary);
  fputs(behind, stdout);
  return 0;
}

int main(int argc, char **argv) {
  const char *word = argc > 1 ? argv[1] : "";
  for (size_t i = 0; i < SUBCOMMANDS; i++)
    if (strcmp(word, subcommands[i].name) == 0) return subcommands[i].run(argc - 1, argv + 1);
  if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return help();
  return cli_lua(argc, argv);
}
