/* where.c: where the simulated drivers are installed.
 *
 * They lie in a folder that no loader searches by itself, named after the device, beside the folder that this
 * program lies in. It must not know what they are for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

const char *cli_simulator_file(const char *device) {
  return strcmp(device, "hip") == 0 ? "libamdhip64.so.7" : "libcuda.so.1";
}

/* The folder of the file that is running, links resolved. */
static char *own_folder(void) {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n <= 0) return cli_copy(".", 1);
  path[n] = '\0';
  char *slash = strrchr(path, '/');
  return cli_copy(path, slash == NULL ? 0 : (size_t)(slash - path));
}

static char *path_of(const char *folder, const char *below, const char *device) {
  cli_text path = {0};
  cli_addf(&path, "%s%s/%s", folder, below, device);
  char *real = realpath(path.at, NULL);
  return real != NULL ? real : path.at;
}

static bool holds(const char *folder, const char *file) {
  cli_text path = {0};
  cli_addf(&path, "%s/%s", folder, file);
  return access(path.at, R_OK) == 0;
}

char *cli_simulator(const char *device) {
  const char *set = getenv("MOONFERRY_SIM");
  char *own = own_folder();
  char *places[3] = {NULL};
  size_t count = 0;
  if (set != NULL && *set != '\0') {
    places[count++] = path_of(set, "", device);
  } else {
    places[count++] = path_of(own, "/../sim", device);
    places[count++] = path_of(own, "/../lib/moonferry/sim", device);
  }
  for (size_t i = 0; i < count; i++)
    if (holds(places[i], cli_simulator_file(device))) return places[i];
  fprintf(stderr, "moonferry sim: the simulated driver %s was not found; looked in:\n", cli_simulator_file(device));
  for (size_t i = 0; i < count; i++) fprintf(stderr, "  %s\n", places[i]);
  fprintf(stderr, "MOONFERRY_SIM may name the folder that holds cuda/ and hip/\n");
  return NULL;
}

/* Whether rules are what SIM_FAIL takes: the simulator itself says so, so that there is one grammar. */
bool cli_simulator_takes(const char *folder, const char *device, const char *rules) {
  cli_text path = {0};
  int (*parse)(const char *) = NULL;
  cli_addf(&path, "%s/%s", folder, cli_simulator_file(device));
  void *library = dlopen(path.at, RTLD_NOW | RTLD_LOCAL);
  if (library != NULL) *(void **)&parse = dlsym(library, "sim_fail");
  if (parse == NULL) {
    fprintf(stderr, "moonferry sim: %s is no simulated driver: %s\n", path.at, dlerror());
    return false;
  }
  if (parse(rules) == 0) return true;
  fprintf(stderr,
          "moonferry sim: --fail is '%s'; expected: rules CALL:STATUS, CALL@K:STATUS, #N:STATUS or *:STATUS, each\n"
          "  perhaps followed by :once, :on, :sticky or :late, separated by commas\n", rules);
  return false;
}
