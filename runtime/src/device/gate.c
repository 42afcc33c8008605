/* gate.c: counts the threads between enter and leave on a device, so that a trim can take away what they all use there.
 *
 * Invariant: while a device is shut no thread is inside, and a thread that comes waits. */
#include "device/backend.h"

#include <pthread.h>

#define SHUT (INT32_MIN / 2)

/* Held while a gate is shut, so that others wait for it. */
static pthread_mutex_t shut_lock = PTHREAD_MUTEX_INITIALIZER;

void mf__gate_enter(mf__gate *gate) {
  while (atomic_fetch_add_explicit(&gate->inside, 1, memory_order_acquire) < 0) {
    atomic_fetch_sub_explicit(&gate->inside, 1, memory_order_relaxed);
    pthread_mutex_lock(&shut_lock);
    pthread_mutex_unlock(&shut_lock);
  }
  if (!atomic_load_explicit(&gate->used, memory_order_relaxed)) atomic_store(&gate->used, true);
}

void mf__gate_leave(mf__gate *gate) {
  atomic_fetch_sub_explicit(&gate->inside, 1, memory_order_release);
}

void mf__gate_forget(mf__gate *gate) {
  atomic_store(&gate->used, false);
}

bool mf__gate_used(const mf__gate *gate) {
  return atomic_load(&gate->used);
}

bool mf__device_used(const mf__backend *backend, int32_t ordinal) {
  return mf__gate_used(&backend->gates[ordinal]);
}

bool mf__device_shut(const mf__backend *backend, int32_t ordinal) {
  int32_t nobody = 0;
  pthread_mutex_lock(&shut_lock);
  if (atomic_compare_exchange_strong(&backend->gates[ordinal].inside, &nobody, SHUT)) return true;
  pthread_mutex_unlock(&shut_lock);
  return false;
}

void mf__device_open(const mf__backend *backend, int32_t ordinal) {
  atomic_fetch_sub_explicit(&backend->gates[ordinal].inside, SHUT, memory_order_release);
  pthread_mutex_unlock(&shut_lock);
}
