/* hook.c: what a spec wants to happen inside of a driver call: another thread's work, a signal, a fork, a second call.
 * It must not know what a call does, and holds no lock while it runs what it was given. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "engine.h"

typedef struct hook {
  char name[64];
  uint64_t left; /* calls until it runs, that one included; 0: unused */
  void (*fn)(void *ctx);
  void *ctx;
} hook;

enum { MAX_HOOKS = 16 };
static hook hooks[MAX_HOOKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int waiting;

static int add(const char *name, uint64_t nth, void (*fn)(void *), void *ctx) {
  for (int i = 0; i < MAX_HOOKS; i++) {
    if (hooks[i].left != 0) continue;
    hooks[i] = (hook){.left = nth, .fn = fn, .ctx = ctx};
    strncpy(hooks[i].name, name, sizeof hooks[i].name - 1);
    atomic_fetch_add(&waiting, 1);
    return 0;
  }
  return -1;
}

int sim_at(const char *name, uint64_t nth, void (*fn)(void *ctx), void *ctx) {
  int rc = 0;
  pthread_mutex_lock(&lock);
  if (fn == NULL) {
    memset(hooks, 0, sizeof hooks);
    atomic_store(&waiting, 0);
  } else {
    rc = nth == 0 || strlen(name) >= sizeof hooks[0].name ? -1 : add(name, nth, fn, ctx);
  }
  pthread_mutex_unlock(&lock);
  return rc;
}

/* The hook whose turn this call is. */
static bool take(const char *name, hook *out) {
  bool found = false;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MAX_HOOKS && !found; i++) {
    hook *h = &hooks[i];
    if (h->left == 0 || (strcmp(h->name, "*") != 0 && strcmp(h->name, name) != 0) || --h->left != 0) continue;
    *out = *h;
    found = true;
    atomic_fetch_sub(&waiting, 1);
  }
  pthread_mutex_unlock(&lock);
  return found;
}

void sim_hooks_run(const char *name) {
  hook h;
  if (atomic_load_explicit(&waiting, memory_order_relaxed) == 0) return;
  if (take(name, &h)) sim_from_program(h.fn, h.ctx);
}
