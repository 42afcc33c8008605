/* host_loader.c: a program that has its Lua from a plugin, whose symbols nobody else sees.
 *
 *     lua_host_loader PLUGIN SCRIPT */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == NULL) {
    fprintf(stderr, "host_loader: %s\n", dlerror());
    return 2;
  }
  int (*run)(const char *);
  *(void **)&run = dlsym(plugin, "host_run");
  return run != NULL ? run(argv[2]) : 2;
}
