/* missing.c: names that an older or smaller driver lacks.
 *
 * Programs notice a missing function with dlsym, so a function that is to be missing loses its name in the library's
 * own table of names, when the library is loaded and before anyone can ask. It must not read the other settings: that
 * is done at the first call, which a forked child may be the first to make. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine.h"

/* The library that this is part of: where it lies, and a handle to search it. */
static void *library(void **base) {
  Dl_info info;
  if (dladdr((const void *)(uintptr_t)sim_hide, &info) == 0) return NULL;
  *base = info.dli_fbase;
  return dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

void sim_hide(const char *symbol) {
  Dl_info info;
  void *base = NULL, *own = library(&base), *at = own == NULL ? NULL : dlsym(own, symbol);
  if (own != NULL) dlclose(own);
  if (at == NULL || dladdr(at, &info) == 0 || info.dli_fbase != base) return;
  if (info.dli_sname == NULL || strcmp(info.dli_sname, symbol) != 0) return;
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)info.dli_sname / page * page;
  if (mprotect((void *)start, page, PROT_READ | PROT_WRITE) == 0) *(char *)(uintptr_t)info.dli_sname = '?';
}

__attribute__((constructor)) static void hide_missing(void) {
  const char *list = getenv("SIM_MISSING");
  while (list != NULL && *list != '\0') {
    char name[128];
    const size_t n = strcspn(list, ", ");
    if (n > 0 && snprintf(name, sizeof name, "%.*s", (int)n, list) < (int)sizeof name) sim_hide(name);
    list += n + (list[n] != '\0');
  }
}
