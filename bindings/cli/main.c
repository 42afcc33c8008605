/* main.c: the `moonferry` program: one table of subcommands, what it says of itself, and Lua for all other words.
 *
 * A subcommand gets the words from its own name on and returns the program's exit status. A script that has the name
 * of a subcommand is run as ./NAME; a word that names no file and is nearly a subcommand is told so. It must not know
 * what a subcommand does, nor Lua. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

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
  return cli_printed(0, CLI_FOUND);
}

/* Whether one letter added, left out or changed, or two neighbours exchanged, makes ${typed} this name. */
static bool is_a_slip(const char *typed, const char *name) {
  while (*typed != '\0' && *typed == *name) typed++, name++;
  if (*typed == '\0' || *name == '\0') return strlen(typed) + strlen(name) == 1;
  if (typed[1] == name[0] && typed[0] == name[1] && strcmp(typed + 2, name + 2) == 0) return true;
  return strcmp(typed + 1, name + 1) == 0 || strcmp(typed + 1, name) == 0 || strcmp(typed, name + 1) == 0;
}

/* What was meant by a word that is neither a subcommand nor a file; -1 where nobody can say. */
static int no_script(const char *word) {
  if (strcmp(word, "help") == 0) return help();
  for (size_t i = 0; i < SUBCOMMANDS; i++) {
    if (!is_a_slip(word, subcommands[i].name)) continue;
    fprintf(stderr, "moonferry: no file is called %s; 'moonferry %s' is a subcommand\n", word, subcommands[i].name);
    return 1;
  }
  return -1;
}

int main(int argc, char **argv) {
  const char *word = argc > 1 ? argv[1] : "";
  signal(SIGCHLD, SIG_DFL); /* who started us may ignore it, and then no command would have a status */
  for (size_t i = 0; i < SUBCOMMANDS; i++)
    if (strcmp(word, subcommands[i].name) == 0) return subcommands[i].run(argc - 1, argv + 1);
  if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return help();
  const int answered = access(word, F_OK) != 0 ? no_script(word) : -1;
  return answered >= 0 ? answered : cli_lua(argc, argv);
}
