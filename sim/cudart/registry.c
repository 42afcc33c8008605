/* registry.c: the compiled kernels of the libraries that are loaded.
 *
 * The compiler makes a library tell of them before its own code runs, and take them back when it is unloaded, by calls
 * that the toolkit's crt/host_runtime.h declares. Invariant: a function is known from its registration until its
 * library's fat binary is taken back. It must not know how a kernel is launched. */
#include <pthread.h>
#include <stdlib.h>

#include "fatbin.h"
#include "front.h"
#include "registry.h"

typedef struct binary {
  void *unused; /* the handle is a pointer to a pointer, which only the runtime looks at */
  const void *image;
} binary;

typedef struct function {
  const void *host;
  const char *name;
  const binary *of;
} function;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static function *functions;
static size_t nfunctions, room;
static bool sorted;

static int by_host(const void *a, const void *b) {
  const uintptr_t x = (uintptr_t)((const function *)a)->host, y = (uintptr_t)((const function *)b)->host;
  return (x > y) - (x < y);
}

/* Libraries register by the ten thousand, and launches are looked up later. */
static function known(const void *host) {
  const function wanted = {.host = host};
  pthread_mutex_lock(&lock);
  if (!sorted && nfunctions > 0) qsort(functions, nfunctions, sizeof *functions, by_host);
  sorted = true;
  const function *f = nfunctions == 0 ? NULL : bsearch(&wanted, functions, nfunctions, sizeof *functions, by_host);
  const function found = f == NULL ? (function){0} : *f;
  pthread_mutex_unlock(&lock);
  return found;
}

const char *kernel_name(const void *host) {
  return known(host).name;
}

const void *kernel_image(const void *host) {
  const function f = known(host);
  return f.of == NULL ? NULL : f.of->image;
}

static void add(const binary *of, const void *host, const char *name) {
  pthread_mutex_lock(&lock);
  if (nfunctions == room) {
    room = room * 2 + 64;
    functions = realloc(functions, room * sizeof *functions);
    if (functions == NULL) abort();
  }
  functions[nfunctions++] = (function){host, name, of};
  sorted = false;
  pthread_mutex_unlock(&lock);
}

static void take_back(const binary *of) {
  size_t kept = 0;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < nfunctions; i++)
    if (functions[i].of != of) functions[kept++] = functions[i];
  nfunctions = kept;
  pthread_mutex_unlock(&lock);
}

SIM_PUBLIC void **__cudaRegisterFatBinary(const void *image);
void **__cudaRegisterFatBinary(const void *image) {
  binary *b = calloc(1, sizeof *b);
  if (b == NULL) abort();
  b->image = image;
  return &b->unused;
}

SIM_PUBLIC void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaRegisterFatBinaryEnd(void **handle) {
  (void)handle;
}

SIM_PUBLIC void __cudaUnregisterFatBinary(void **handle);
void __cudaUnregisterFatBinary(void **handle) {
  if (handle == NULL) return;
  const binary *b = (const binary *)(const void *)handle;
  take_back(b);
  if (b->image != NULL) kernel_forget(b->image);
  free(handle);
}

/* What follows the name concerns emulation, which has been gone for long. */
SIM_PUBLIC void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit) {
  (void)device;
  (void)limit;
  add((const binary *)(const void *)handle, host, name);
}

SIM_PUBLIC void __cudaRegisterVar(void);
void __cudaRegisterVar(void) {
}

SIM_PUBLIC void __cudaRegisterManagedVar(void);
void __cudaRegisterManagedVar(void) {
}

SIM_PUBLIC void __cudaRegisterHostVar(void);
void __cudaRegisterHostVar(void) {
}

SIM_PUBLIC char __cudaInitModule(void **handle);
char __cudaInitModule(void **handle) {
  (void)handle;
  return 1;
}
