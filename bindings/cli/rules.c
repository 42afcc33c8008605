/* rules.c: rules of `moonferry sim` that did nothing: an injected failure that never came is no tested failure.
 *
 * Invariant: a rule counts as met if any process met it under any seed. It must not know what a rule means. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

static bool was_met(const cli_findings *all, const char *rule) {
  for (size_t i = 0; i < all->nstruck; i++)
    if (strcmp(all->struck[i], rule) == 0) return true;
  return false;
}

/* Whether the simulated driver has a function. Asked in a child, as in where.c; there SIM_MISSING hides none. */
static bool driver_has(const char *file, const char *name) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    unsetenv("SIM_MISSING");
    unsetenv("SIM_JOURNAL");
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    _exit(library != NULL && dlsym(library, name) == NULL ? 1 : 0);
  }
  if (child > 0) waitpid(child, &status, 0);
  return child <= 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 1;
}

/* The entries of a list that commas or spaces separate, in a copy that lives on. */
static char *next_of(const char *list, char **save) {
  return strtok_r(*save == NULL ? cli_copy(list, strlen(list)) : NULL, ", ", save);
}

void cli_note_idle_rules(cli_findings *all, const char *folder, const char *device, uint64_t seed, bool warning) {
  const char *rules = getenv("SIM_FAIL"), *names = getenv("SIM_MISSING");
  char *save = NULL;
  for (char *rule = rules != NULL ? next_of(rules, &save) : NULL; rule != NULL; rule = next_of(rules, &save)) {
    cli_text text = {0};
    if (was_met(all, rule)) continue;
    cli_addf(&text, "the rule %s of --fail matched no call, so that nothing failed by it", rule);
    cli_note(all, warning, seed, text.at);
  }
  cli_text file = {0};
  cli_addf(&file, "%s/%s", folder, cli_simulator_file(device));
  save = NULL;
  for (char *name = names != NULL ? next_of(names, &save) : NULL; name != NULL; name = next_of(names, &save)) {
    cli_text text = {0};
    if (driver_has(file.at, name)) continue;
    cli_addf(&text, "the name %s of --missing is no function of the simulated driver, so nothing is missing", name);
    cli_note(all, warning, seed, text.at);
  }
  free(file.at);
}
