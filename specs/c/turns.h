/* turns.h: two threads that tell each other by relaxed atomics that it is their turn. Those order nothing, so what one
 * of them sees of the other's work it sees by way of what is between the two in the library. Elsewhere a mutex or a
 * join stands near, and a memory order that promises too little goes unseen. ThreadSanitizer sees it here; on most
 * processors nothing else does. */
#ifndef MOONFERRY_SPEC_TURNS_H
#define MOONFERRY_SPEC_TURNS_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

static _Atomic int turn;
static int data; /* one thread's at a time */

static inline void wait_for_turn(int wanted) {
  while (atomic_load_explicit(&turn, memory_order_relaxed) != wanted) sched_yield();
}

static inline void give_turn(int next) {
  atomic_store_explicit(&turn, next, memory_order_relaxed);
}

static inline pthread_t begin_thread(void *(*body)(void *)) {
  pthread_t thread;
  atomic_store(&turn, 0);
  data = 0;
  if (pthread_create(&thread, NULL, body, NULL) != 0) abort();
  return thread;
}

static inline void end_thread(pthread_t thread) {
  if (pthread_join(thread, NULL) != 0) abort();
}

#endif
