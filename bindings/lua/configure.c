/* configure.c: starts CPython 3.14 or later as `python3` starts it, but for its signal handlers, its arguments and the
 * locale, which is the host's and stays as it is.
 *
 * PEP 741 is the way that stays, and begins isolated: from the environment, from the user's packages, from the script's
 * folder. Invariant: a PYTHON* variable means what it means to python3; specs/lua/python_environment_spec.lua compares
 * every one. Must not know: which interpreter, and why now. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_DEFAULT */
#endif
#include <pyconfig.h>
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x03090000 /* as in bridge/lifetime.h */
#endif
#include <Python.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "start.h"

/* Spelt out because the limited API leaves it out, and older CPythons have none. */
typedef struct PyInitConfig PyInitConfig;

struct init_api {
  PyInitConfig *(*create)(void);
  void (*free)(PyInitConfig *);
  int (*has)(PyInitConfig *, const char *);
  int (*set_int)(PyInitConfig *, const char *, int64_t);
  int (*set_str)(PyInitConfig *, const char *, const char *);
  int (*error)(PyInitConfig *, const char **);
  int (*run)(PyInitConfig *);
};

/* A start of Python, and the place for the reason why it failed, where CPython reports none. */
struct start {
  struct init_api api;
  PyInitConfig *config;
  char *why;
  size_t cap;
};

static int load_init_api(struct init_api *api) {
  /* dlsym gives a data pointer; POSIX lets it be stored as a function's through its address. */
  *(void **)&api->create = dlsym(RTLD_DEFAULT, "PyInitConfig_Create");
  *(void **)&api->free = dlsym(RTLD_DEFAULT, "PyInitConfig_Free");
  *(void **)&api->has = dlsym(RTLD_DEFAULT, "PyInitConfig_HasOption");
  *(void **)&api->set_int = dlsym(RTLD_DEFAULT, "PyInitConfig_SetInt");
  *(void **)&api->set_str = dlsym(RTLD_DEFAULT, "PyInitConfig_SetStr");
  *(void **)&api->error = dlsym(RTLD_DEFAULT, "PyInitConfig_GetError");
  *(void **)&api->run = dlsym(RTLD_DEFAULT, "Py_InitializeFromInitConfig");
  return api->create != NULL; /* a CPython that has it has them all */
}

/* Leaves out an option that this CPython does not have. */
static int set(struct start *start, const char *option, int64_t value) {
  if (!start->api.has(start->config, option)) return 0;
  return start->api.set_int(start->config, option, value);
}

/* The variable's value, or NULL; to python3 an empty one counts as unset. */
static const char *variable(const char *name) {
  const char *value = getenv(name);
  return value != NULL && *value != 0 ? value : NULL;
}

int mf__python_utf8_mode(void) {
  const char *wish = variable("PYTHONUTF8");
  if (wish != NULL) return strcmp(wish, "0") != 0;
  if (atoi(Py_GetVersion() + 2) >= 15) return 1; /* PEP 686 */
  const char *locale = setlocale(LC_CTYPE, NULL);
  return locale == NULL || strcmp(locale, "C") == 0 || strcmp(locale, "POSIX") == 0; /* PEP 540 */
}

static int set_always(struct start *start) {
  static const struct {
    const char *name;
    int64_t value;
  } options[] = {
      {"isolated", 0},    {"use_environment", 1},  {"user_site_directory", 1},     {"safe_path", 0},
      {"site_import", 1}, {"configure_locale", 0}, {"install_signal_handlers", 0}, {"pathconfig_warnings", 1}};
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    if (set(start, options[i].name, options[i].value) != 0) return -1;
  }
  return set(start, "utf8_mode", mf__python_utf8_mode());
}

/* An isolated configuration has numbers for these, which come before the variables. */
static int set_numbers(struct start *start) {
  static const struct {
    const char *variable, *option;
    unsigned long most;
  } numbers[] = {{"PYTHONHASHSEED", "hash_seed", 4294967295UL},
                 {"PYTHONINTMAXSTRDIGITS", "int_max_str_digits", INT_MAX},
                 {"PYTHONTRACEMALLOC", "tracemalloc", INT_MAX}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    const char *text = variable(numbers[i].variable);
    int is_seed = i == 0;
    if (text == NULL || (is_seed && strcmp(text, "random") == 0)) continue;
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (*end != 0 || errno != 0 || *text == '-' || value > numbers[i].most) {
      snprintf(start->why, start->cap, "%s is \"%s\"; an integer from 0 to %lu is expected", numbers[i].variable, text,
               numbers[i].most);
      return -1;
    }
    if (is_seed && set(start, "use_hash_seed", 1) != 0) return -1;
    if (set(start, numbers[i].option, (int64_t)value) != 0) return -1;
  }
  return 0;
}

static int set_switches(struct start *start) {
  const char *perf = variable("PYTHONPERFSUPPORT"), *perf_jit = variable("PYTHON_PERF_JIT_SUPPORT");
  if (variable("PYTHONDEVMODE") != NULL && set(start, "dev_mode", 1) != 0) return -1;
  if (perf != NULL && strcmp(perf, "1") == 0 && set(start, "perf_profiling", 1) != 0) return -1;
  if (perf_jit != NULL && strcmp(perf_jit, "1") == 0 && set(start, "perf_profiling", 2) != 0) return -1;
  return 0;
}

int mf__python_configured(const char *program, char *why, size_t cap) {
  struct start start = {.why = why, .cap = cap};
  if (!load_init_api(&start.api)) return 0;
  start.config = start.api.create();
  if (start.config == NULL) {
    snprintf(why, cap, "not enough memory");
    return -1;
  }
  *why = 0;
  int failed = set_always(&start) != 0 || set_numbers(&start) != 0 || set_switches(&start) != 0 ||
               (program != NULL && start.api.set_str(start.config, "program_name", program) != 0) ||
               start.api.run(start.config) != 0;
  if (failed && *why == 0) {
    const char *message = NULL;
    start.api.error(start.config, &message);
    snprintf(why, cap, "%s", message != NULL ? message : "CPython does not say why");
  }
  start.api.free(start.config);
  return failed ? -1 : 1;
}
