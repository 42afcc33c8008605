/* main.c: the `moonferry` program: one table of subcommands, and what it says of itself.
 *
 * A subcommand gets the words from its own name on and returns the program's exit status. It must not know what
 * a subcommand does. */
#include <string.h>

#include "cli.h"

typedef struct subcommand {
  const char *name, *summary;
  int (*run)(int argc, char **argv);
} subcommand;

static const subcommand subcommands[] = {
    {"sim", "run a program on a simulated GPU and report its races, leaks and misuse", cli_sim},
};
enum { SUBCOMMANDS = sizeof subcommands / sizeof *subcommands };

static void help(FILE *out) {
  fprintf(out, "usage: moonferry SUBCOMMAND ...\n       moonferry --help | --version\n\nsubcommands:\n");
  for (size_t i = 0; i < SUBCOMMANDS; i++) fprintf(out, "  %-8s %s\n", subcommands[i].name, subcommands[i].summary);
  fprintf(out, "\n'moonferry SUBCOMMAND --help' says more.\n");
}

int main(int argc, char **argv) {
  const char *word = argc > 1 ? argv[1] : "";
  for (size_t i = 0; i < SUBCOMMANDS; i++)
    if (strcmp(word, subcommands[i].name) == 0) return subcommands[i].run(argc - 1, argv + 1);
  if (strcmp(word, "--version") == 0) {
    printf("moonferry %s\n", MOONFERRY_VERSION);
    return 0;
  }
  if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
    help(stdout);
    return 0;
  }
  if (argc > 1) fprintf(stderr, "moonferry: there is no subcommand '%s'\n", word);
  help(stderr);
  return CLI_USAGE;
}
