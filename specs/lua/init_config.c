/* init_config.c: the way in which CPython 3.14 and later are started (PEP 741), in a library that is preloaded, so that
 * any CPython has it.
 *
 * It prints what it is told, `name=value` in a line, and `freed` in the end, and starts Python by the older way. In the
 * environment: INIT_LACKS names an option that this CPython does not have, INIT_REFUSES one that it does not take, or
 * `create` or `run`; INIT_SAYS is the reason, which an empty one keeps to itself. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_DEFAULT */
#endif
#include <dlfcn.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUPPORT_API __attribute__((visibility("default")))

typedef struct PyInitConfig {
  const char *program;
} PyInitConfig;

static PyInitConfig the_config;

static int is_named_by(const char *variable, const char *name) {
  const char *value = getenv(variable);
  return value != NULL && strcmp(value, name) == 0;
}

SUPPORT_API PyInitConfig *PyInitConfig_Create(void) {
  return is_named_by("INIT_REFUSES", "create") ? NULL : &the_config;
}

SUPPORT_API void PyInitConfig_Free(PyInitConfig *config) {
  if (config != &the_config) abort();
  puts("freed");
  fflush(stdout);
}

SUPPORT_API int PyInitConfig_HasOption(PyInitConfig *config, const char *name) {
  (void)config;
  return !is_named_by("INIT_LACKS", name);
}

SUPPORT_API int PyInitConfig_SetInt(PyInitConfig *config, const char *name, int64_t value) {
  if (config != &the_config || !PyInitConfig_HasOption(config, name)) abort();
  printf("%s=%" PRId64 "\n", name, value);
  return is_named_by("INIT_REFUSES", name) ? -1 : 0;
}

SUPPORT_API int PyInitConfig_SetStr(PyInitConfig *config, const char *name, const char *value) {
  if (strcmp(name, "program_name") != 0) abort();
  config->program = value;
  printf("%s=%s\n", name, value);
  return is_named_by("INIT_REFUSES", name) ? -1 : 0;
}

SUPPORT_API int PyInitConfig_GetError(PyInitConfig *config, const char **message) {
  const char *says = getenv("INIT_SAYS");
  (void)config;
  *message = says != NULL && *says != 0 ? says : NULL;
  return *message != NULL ? -1 : 0;
}

SUPPORT_API int Py_InitializeFromInitConfig(PyInitConfig *config) {
  wchar_t *(*decode)(const char *, size_t *);
  void (*set_program_name)(const wchar_t *), (*initialize)(int);
  if (is_named_by("INIT_REFUSES", "run")) return -1;
  *(void **)&decode = dlsym(RTLD_DEFAULT, "Py_DecodeLocale");
  *(void **)&set_program_name = dlsym(RTLD_DEFAULT, "Py_SetProgramName");
  *(void **)&initialize = dlsym(RTLD_DEFAULT, "Py_InitializeEx");
  if (config->program != NULL && set_program_name != NULL) {
    static wchar_t *name; /* older CPythons keep the pointer */
    name = decode(config->program, NULL);
    set_program_name(name);
  }
  initialize(0);
  return 0;
}
