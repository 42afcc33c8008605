/* workers.c: threads of the library's own that take parts of a large copy, cast, fill or comparison. The thread that
 * asks is one of those that work; it takes whatever no worker takes, so that nothing depends on a worker.
 *
 * Invariants: there is no worker before the first work that wants one; workers call no foreign code, allocate nothing
 * and have the program's signals blocked; one piece of work has the workers at a time, and who finds them taken works
 * alone; a child process begins without any. Must not know what a part is. */
#include "core/core.h"

#include <stdlib.h>

/* What fills the memory bus of the machines that are known; mf_threads_set may ask for more. */
#define USUAL_MOST 8

static _Atomic int32_t wanted; /* threads for one piece of work, its own included; 0 until somebody asks */
static _Atomic int64_t taken;  /* the process in which the workers have work; 0: none, or that of a parent */

/* From then on workers end with each work: where the main thread leaves by pthread_exit, the process ends with the last
 * of the program's threads. Workers that waited on would keep it, and no signal but SIGKILL would end it. */
static _Atomic bool main_has_ended;
static pthread_key_t of_main; /* the main thread's value ends with it, and is untouched by exit */
static bool has_key;

/* Belongs to whoever has taken the workers; ${lock} guards what workers see. */
static struct {
  int64_t home; /* the process that the threads are in */
  _Atomic int32_t nthreads;
  pthread_t threads[MF_THREADS_MAX - 1];
  pthread_mutex_t lock;
  pthread_cond_t work, done;
  bool stop;
  mf__part_fn part; /* NULL: nothing to do */
  void *ctx;
  int64_t nparts;
  int32_t inside; /* workers that have seen the work and not left it */
  _Atomic int64_t next;
} crew = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

static int32_t usual(void) {
  const int32_t n = mf__processors();
  return n < USUAL_MOST ? n : USUAL_MOST;
}

/* What the environment says, where that is a number that mf_threads_set takes. */
static int32_t first_wanted(void) {
  const char *text = mf__environment("MOONFERRY_THREADS");
  char *end = NULL;
  const long n = text == NULL ? 0 : strtol(text, &end, 10);
  return text != NULL && end != text && *end == '\0' && n >= 1 && n <= MF_THREADS_MAX ? (int32_t)n : usual();
}

int32_t mf_threads(void) {
  int32_t n = atomic_load_explicit(&wanted, memory_order_relaxed);
  if (n != 0) return n;
  int32_t unset = 0;
  n = first_wanted();
  return atomic_compare_exchange_strong(&wanted, &unset, n) ? n : unset;
}

static void take_parts(mf__part_fn part, void *ctx, int64_t nparts) {
  int64_t i;
  while ((i = atomic_fetch_add_explicit(&crew.next, 1, memory_order_relaxed)) < nparts) part(ctx, i);
}

static void *serve(void *arg) {
  (void)arg;
  mf__thread_unbind();
  pthread_mutex_lock(&crew.lock);
  while (!crew.stop) {
    if (crew.part == NULL || atomic_load_explicit(&crew.next, memory_order_relaxed) >= crew.nparts) {
      pthread_cond_wait(&crew.work, &crew.lock);
      continue;
    }
    const mf__part_fn part = crew.part;
    void *ctx = crew.ctx;
    const int64_t nparts = crew.nparts;
    crew.inside++;
    pthread_mutex_unlock(&crew.lock);
    take_parts(part, ctx, nparts);
    pthread_mutex_lock(&crew.lock);
    if (--crew.inside == 0) pthread_cond_signal(&crew.done);
  }
  pthread_mutex_unlock(&crew.lock);
  return NULL;
}

static _Atomic int32_t forks; /* that led to this process from the first one that asked */

static void count_fork(void) {
  atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void count_forks(void) {
  mf__at_fork(NULL, NULL, count_fork);
}

/* A number that this process has and no child of its: one that is the first of a PID namespace, as its parent is of
 * another, has its parent's id. One that was made without fork's handlers has an id of its own at least. Never 0. */
static int64_t this_process(void) {
  static pthread_once_t counts = PTHREAD_ONCE_INIT;
  pthread_once(&counts, count_forks);
  return (int64_t)atomic_load_explicit(&forks, memory_order_relaxed) << 32 | mf__process_id();
}

/* After fork the child has its parent's crew without its threads, perhaps in the middle of work. */
static void settle(int64_t self) {
  if (crew.home == self) return;
  crew.home = self;
  crew.nthreads = crew.inside = 0;
  crew.stop = false;
  crew.part = NULL;
  pthread_mutex_init(&crew.lock, NULL);
  pthread_cond_init(&crew.work, NULL);
  pthread_cond_init(&crew.done, NULL);
}

/* False where another thread of this process has the workers. */
static bool take(void) {
  const int64_t self = this_process();
  int64_t by = atomic_load_explicit(&taken, memory_order_relaxed);
  if (by == self || !atomic_compare_exchange_strong(&taken, &by, self)) return false;
  settle(self);
  return true;
}

/* The workers have no work. */
static void dismiss(void) {
  const int before = mf__uncancelled_begin();
  pthread_mutex_lock(&crew.lock);
  crew.stop = true;
  pthread_cond_broadcast(&crew.work);
  pthread_mutex_unlock(&crew.lock);
  for (int32_t i = 0; i < crew.nthreads; i++) pthread_join(crew.threads[i], NULL);
  crew.nthreads = 0;
  crew.stop = false;
  mf__uncancelled_end(before);
}

static void give(void) {
  atomic_store(&taken, 0);
}

static bool are_too_many(void) {
  return crew.nthreads >= mf_threads() || (crew.nthreads > 0 && atomic_load(&main_has_ended));
}

/* Ends the workers if there are more than are wanted. Whoever had them looks again after giving them back, because
 * mf_threads_set, or the end of the main thread, may not have found them free. */
static void shrink(void) {
  while (are_too_many() && take()) {
    if (are_too_many()) dismiss();
    give();
  }
}

static void end_of_main(void *unused) {
  (void)unused;
  atomic_store(&main_has_ended, true);
  shrink();
}

static void make_key(void) {
  has_key = pthread_key_create(&of_main, end_of_main) == 0;
}

/* Where the main thread neither loads this library nor shares work, nothing tells of its end. */
__attribute__((constructor)) static void watch_main(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (mf__thread_id() != mf__process_id()) return;
  pthread_once(&once, make_key);
  if (has_key) (void)pthread_setspecific(of_main, &crew);
}

/* Goes on with fewer workers where one cannot be started. */
static void grow(int32_t nthreads) {
  watch_main();
  while (crew.nthreads < nthreads && mf__thread_start(&crew.threads[crew.nthreads], serve, NULL) == 0) crew.nthreads++;
}

int mf_threads_set(int32_t n, mf_error *err) {
  if (n < 0 || n > MF_THREADS_MAX)
    return mf__end(mf__fail(err, MF_EINVAL, "n is %d; 0 to %d expected", n, MF_THREADS_MAX), __func__, err);
  atomic_store(&wanted, n); /* 0: as at first */
  shrink();
  return MF_OK;
}

static void work_together(int64_t nparts, mf__part_fn part, void *ctx) {
  /* A thread that is cancelled while it waits would leave its stack to the workers. */
  const int before = mf__uncancelled_begin();
  pthread_mutex_lock(&crew.lock);
  crew.part = part;
  crew.ctx = ctx;
  crew.nparts = nparts;
  atomic_store_explicit(&crew.next, 0, memory_order_relaxed);
  pthread_cond_broadcast(&crew.work);
  pthread_mutex_unlock(&crew.lock);
  take_parts(part, ctx, nparts);
  pthread_mutex_lock(&crew.lock);
  crew.part = NULL;
  while (crew.inside > 0) pthread_cond_wait(&crew.done, &crew.lock);
  pthread_mutex_unlock(&crew.lock);
  mf__uncancelled_end(before);
}

void mf__share(int64_t nparts, mf__part_fn part, void *ctx) {
  const int32_t nthreads = nparts < mf_threads() ? (int32_t)nparts : mf_threads();
  if (nthreads < 2 || !take()) {
    for (int64_t i = 0; i < nparts; i++) part(ctx, i);
    return;
  }
  grow(nthreads - 1);
  work_together(nparts, part, ctx);
  give();
  shrink();
}

/* At the end of the process, so that no tool takes the workers for threads that were forgotten. The crew stays taken:
 * what is copied from now on, this thread copies alone. */
MF__AT_END static void end_workers(void) {
  if (crew.home == this_process() && take()) dismiss();
}
