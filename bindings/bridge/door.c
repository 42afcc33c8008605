/* door.c: when Lua's threads may go into Python no more, and how many are still inside.
 *
 * Invariant: the count and the door change with the GIL held; whoever is in line for the GIL looks at the door again
 * once it has it. Must not know: why the door is closed. */
#include "guard.h"

#include <pthread.h>

atomic_int mf__door;
int mf__threads_inside;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t left = PTHREAD_COND_INITIALIZER; /* mf__door_close makes it anew, with its own clock */

/* The GIL is still held: whoever waits has the mutex until it sleeps, and asks for the GIL without it. */
void mf__thread_came_out(void) {
  pthread_mutex_lock(&mutex);
  pthread_cond_broadcast(&left);
  pthread_mutex_unlock(&mutex);
}

/* Whether this thread is one of those that are counted: its outermost call came from Lua. */
static int is_counted(void) {
  const mf__frame *frame = mf__top;
  while (frame != NULL && frame->below != NULL) frame = frame->below;
  return frame != NULL && !frame->is_call_in;
}

/* The other threads will not come out, and one of them may have had the mutex. */
static void in_child(void) {
  pthread_mutex_init(&mutex, NULL);
  mf__threads_inside = is_counted();
}

int mf__door_watch_forks(void) {
  return pthread_atfork(NULL, NULL, in_child);
}

int mf__door_close(int own, int wait_ms) {
  const int64_t end = mf__now() + wait_ms * INT64_C(1000000);
  int in_time = 1;
  mf__section section;
  mf__section_begin(&section);
  mf__condition_init(&left);
  mf__door = MF__DOOR_CLOSED;
  while (mf__threads_inside > own && in_time) {
    pthread_mutex_lock(&mutex);
    PyThreadState *thread = PyEval_SaveThread();
    in_time = mf__condition_wait(&left, &mutex, end);
    pthread_mutex_unlock(&mutex);
    PyEval_RestoreThread(thread);
  }
  const int late = mf__threads_inside - own;
  mf__section_end(&section);
  return late;
}
