/* support.c: deleters and release callbacks that count, for specs in Lua.
 *
 * A Lua function cannot stand in for them: it may not be called from a finalizer, nor on another thread.
 * Each adds one to the int32_t that its context points to and frees nothing, so that a spec can look at the
 * struct afterwards. Knows nothing of Moonferry. */
#include <dlpack/dlpack.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define SUPPORT_API __attribute__((visibility("default")))

SUPPORT_API void support_release(void *ctx);
SUPPORT_API void support_delete(DLManagedTensorVersioned *self);
SUPPORT_API void support_delete_legacy(DLManagedTensor *self);
SUPPORT_API int support_on_thread(void (*run)(void *), void *argument);

void support_release(void *ctx) {
  ++*(int32_t *)ctx;
}

void support_delete(DLManagedTensorVersioned *self) {
  support_release(self->manager_ctx);
}

void support_delete_legacy(DLManagedTensor *self) {
  support_release(self->manager_ctx);
}

typedef struct job {
  void (*run)(void *);
  void *argument;
} job;

static void *work(void *ptr) {
  const job *j = ptr;
  j->run(j->argument);
  return NULL;
}

/* Calls run(argument) on a thread of its own and waits for it; 0 if that thread could be started. */
int support_on_thread(void (*run)(void *), void *argument) {
  job j = {run, argument};
  pthread_t thread;
  const int rc = pthread_create(&thread, NULL, work, &j);
  if (rc != 0) return rc;
  return pthread_join(thread, NULL);
}
