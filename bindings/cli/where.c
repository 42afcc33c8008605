/* where.c: where the package is installed, with its Lua files, and where the simulated drivers are.
 *
 * All lie in the Python package; the simulated drivers in folders that no loader searches by itself, one for each
 * device. The program is there too, in the package's bin/, and a second time where pip puts commands. It must not know
 * what they are for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

const char *cli_simulator_file(const char *device) {
  return strcmp(device, "hip") == 0 ? "libamdhip64.so.7" : "libcuda.so.1";
}

/* The file that is running, links resolved. */
const char *cli_program(void) {
  static char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n <= 0) return "moonferry";
  path[n] = '\0';
  return path;
}

static char *own_folder(void) {
  const char *path = cli_program();
  const char *slash = strrchr(path, '/');
  return slash == NULL ? cli_copy(".", 1) : cli_copy(path, (size_t)(slash - path));
}

static char *path_of(const char *folder, const char *device) {
  cli_text path = {0};
  cli_addf(&path, "%s/%s", folder, device);
  char *real = realpath(path.at, NULL);
  return real != NULL ? real : path.at;
}

static bool holds(const char *folder, const char *file) {
  cli_text path = {0};
  cli_addf(&path, "%s/%s", folder, file);
  return access(path.at, R_OK) == 0;
}

/* Adds the folders that folder and the pattern below it stand for; if none, that itself, to be named as a place
 * where nothing was. */
static void add_places(glob_t *places, const char *folder, const char *below) {
  cli_text pattern = {0};
  for (const char *p = folder; *p != '\0'; p++) cli_addf(&pattern, "%s%c", strchr("*?[\\", *p) ? "\\" : "", *p);
  cli_add(&pattern, below);
  if (glob(pattern.at, (places->gl_pathc > 0 ? GLOB_APPEND : 0) | GLOB_NOCHECK, NULL, places) == GLOB_NOSPACE)
    (void)cli_room(NULL, SIZE_MAX);
  free(pattern.at);
}

/* From the package's own bin/; from an environment's, Debian's, and that of pip install --target. */
#define BELOW(name)                                                                                          \
  {"/../" name, "/../lib*/python3*/site-packages/moonferry/" name, "/../lib*/python3*/dist-packages/moonferry/" name, \
   "/../moonferry/" name}

const char *cli_package(void) {
  static const char *const below[] = BELOW("lua");
  static char *found;
  glob_t places = {0};
  if (found != NULL) return found;
  const char *own = own_folder();
  for (size_t i = 0; i < sizeof below / sizeof *below; i++) add_places(&places, own, below[i]);
  for (size_t i = 0; i < places.gl_pathc && found == NULL; i++) {
    if (!holds(places.gl_pathv[i], "moonferry/init.lua")) continue;
    const size_t size = strlen(places.gl_pathv[i]) - strlen("/lua");
    cli_text folder = {0};
    cli_addf(&folder, "%.*s", (int)size, places.gl_pathv[i]);
    found = path_of(folder.at, "");
  }
  globfree(&places);
  return found;
}

char *cli_simulator(const char *device) {
  static const char *const below[] = BELOW("sim");
  const char *set = getenv("MOONFERRY_SIM");
  const char *own = own_folder();
  glob_t places = {0};
  const bool chosen = set != NULL && *set != '\0';
  if (chosen) add_places(&places, set, "");
  for (size_t i = 0; !chosen && i < sizeof below / sizeof *below; i++) add_places(&places, own, below[i]);
  for (size_t i = 0; i < places.gl_pathc; i++) {
    char *path = path_of(places.gl_pathv[i], device);
    if (holds(path, cli_simulator_file(device))) return path;
  }
  fprintf(stderr, "moonferry sim: the simulated driver %s was not found; looked in:\n", cli_simulator_file(device));
  for (size_t i = 0; i < places.gl_pathc; i++) fprintf(stderr, "  %s/%s\n", places.gl_pathv[i], device);
  fprintf(stderr, "MOONFERRY_SIM may name the folder that holds cuda/ and hip/\n");
  return NULL;
}

/* What the simulator says of rules: 0 if it takes them, 1 if not, 2 if it is none. */
static int ask_simulator(const char *file, const char *rules) {
  int (*parse)(const char *) = NULL;
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library != NULL) *(void **)&parse = dlsym(library, "sim_fail");
  if (parse != NULL) return parse(rules) == 0 ? 0 : 1;
  fprintf(stderr, "moonferry sim: %s is no simulated driver: %s\n", file, dlerror());
  return 2;
}

/* Whether rules are what SIM_FAIL takes: the simulator itself says so, so that there is one grammar. A child asks it,
 * because a simulator stays in the process that has loaded it and writes its findings when that ends. */
bool cli_simulator_takes(const char *folder, const char *device, const char *rules) {
  cli_text path = {0};
  int status = 0;
  cli_addf(&path, "%s/%s", folder, cli_simulator_file(device));
  const pid_t child = fork();
  if (child == 0) _exit(ask_simulator(path.at, rules));
  if (child > 0) waitpid(child, &status, 0);
  if (child < 0) fprintf(stderr, "moonferry sim: no process to check --fail in: %s\n", strerror(errno));
  const int answer = child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 2;
  if (answer == 1)
    fprintf(stderr,
            "moonferry sim: --fail is '%s'; expected: rules CALL:STATUS, CALL@K:STATUS, #N:STATUS or *:STATUS, each\n"
            "  perhaps followed by :once, :on, :sticky or :late, separated by commas\n", rules);
  return answer == 0;
}
