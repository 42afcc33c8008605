/* door.c: when Lua's threads may go into Python no more, and how many are still inside.
 *
 * Invariant: the count and the door change with the GIL held; whoever is in line for the GIL looks at the door again
 * once it has it. Must not know: why the door is closed. */
#include "guard.h"

#include <pthread.h>
#include <time.h>

atomic_int mf__door;
int mf__threads_inside;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t left = PTHREAD_COND_INITIALIZER;

/* The GIL is still held: whoever waits has the mutex until it sleeps, and asks for the GIL without it. */
void mf__thread_came_out(void) {
  pthread_mutex_lock(&mutex);
  pthread_cond_broadcast(&left);
  pthread_mutex_unlock(&mutex);
}

static struct timespec in_ms(int wait_ms) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  long long end = until.tv_nsec + wait_ms % 1000 * 1000000LL;
  until.tv_sec += wait_ms / 1000 + (time_t)(end / 1000000000);
  until.tv_nsec = (long)(end % 1000000000);
  return until;
}

int mf__door_close(int own, int wait_ms) {
  const struct timespec until = in_ms(wait_ms);
  int in_time = 1;
  mf__section section;
  mf__section_begin(&section);
  mf__door = MF__DOOR_CLOSED;
  while (mf__threads_inside > own && in_time) {
    pthread_mutex_lock(&mutex);
    PyThreadState *thread = PyEval_SaveThread();
    in_time = pthread_cond_timedwait(&left, &mutex, &until) == 0;
    pthread_mutex_unlock(&mutex);
    PyEval_RestoreThread(thread);
  }
  const int late = mf__threads_inside - own;
  mf__section_end(&section);
  return late;
}
