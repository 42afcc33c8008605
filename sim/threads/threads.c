/* threads.c: tells the simulator what orders threads: a library to preload, for SIM_THREADS=separate.
 *
 * Takes the place of the calls by which threads of POSIX wait for each other, makes the real call, and says which
 * object was given away (released) and which taken (acquired). The simulator asks for this when it starts; until then,
 * and in a process without it, the calls are as ever. Invariant: a release is told before the real call lets others in,
 * an acquisition after the real call has let this thread in. It must not know what follows from that. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))

typedef bool tell(const void *object); /* false: the simulator does this for itself, and does not listen */

static tell *_Atomic on_release, *_Atomic on_acquire;
static _Thread_local bool telling;

PUBLIC void sim_threads_follow(tell *released, tell *acquired);
void sim_threads_follow(tell *released, tell *acquired) {
  atomic_store(&on_acquire, acquired);
  atomic_store(&on_release, released);
}

static bool call(tell *f, const void *object) {
  if (f == NULL || telling) return false;
  telling = true;
  const bool heard = f(object);
  telling = false;
  return heard;
}

static bool released(const void *object) {
  return call(atomic_load(&on_release), object);
}

static void acquired(const void *object) {
  (void)call(atomic_load(&on_acquire), object);
}

/* A sanitizer's comes first, which dlvsym passes over. Then the new version: dlsym may find the old one of calls that
 * exist in two. */
static void *real(const char *name) {
  char intercepted[64];
  snprintf(intercepted, sizeof intercepted, "__interceptor_%s", name);
  void *at = dlsym(RTLD_NEXT, intercepted);
  if (at == NULL) at = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
  if (at == NULL) at = dlsym(RTLD_NEXT, name);
  if (at == NULL) abort();
  return at;
}

#define REAL(name)                                     \
  static __typeof__(name) *_Atomic found;              \
  __typeof__(name) *next = atomic_load(&found);        \
  if (next == NULL) {                                  \
    *(void **)(void *)&next = real(#name);             \
    atomic_store(&found, next);                        \
  }

/* A call that lets this thread in if it answers 0, and by which object. */
#define TAKES(name, params, args, object) \
  PUBLIC int name params {                \
    REAL(name)                            \
    const int rc = next args;             \
    if (rc == 0) acquired(object);        \
    return rc;                            \
  }
#define GIVES(name, params, args, object) \
  PUBLIC int name params {                \
    REAL(name)                            \
    (void)released(object);               \
    return next args;                     \
  }

TAKES(pthread_mutex_lock, (pthread_mutex_t *m), (m), m)
TAKES(pthread_mutex_trylock, (pthread_mutex_t *m), (m), m)
TAKES(pthread_mutex_timedlock, (pthread_mutex_t *m, const struct timespec *t), (m, t), m)
TAKES(pthread_mutex_clocklock, (pthread_mutex_t *m, clockid_t c, const struct timespec *t), (m, c, t), m)
GIVES(pthread_mutex_unlock, (pthread_mutex_t *m), (m), m)
TAKES(pthread_spin_lock, (pthread_spinlock_t *m), (m), (const void *)m)
TAKES(pthread_spin_trylock, (pthread_spinlock_t *m), (m), (const void *)m)
GIVES(pthread_spin_unlock, (pthread_spinlock_t *m), (m), (const void *)m)
TAKES(sem_wait, (sem_t *s), (s), s)
TAKES(sem_trywait, (sem_t *s), (s), s)
TAKES(sem_timedwait, (sem_t *s, const struct timespec *t), (s, t), s)
TAKES(sem_clockwait, (sem_t *s, clockid_t c, const struct timespec *t), (s, c, t), s)
GIVES(sem_post, (sem_t *s), (s), s)

/* The mutex is let go and taken again within, also where the time runs out. */
#define WAITS(name, params, args) \
  PUBLIC int name params {        \
    REAL(name)                    \
    (void)released(m);            \
    const int rc = next args;     \
    acquired(m);                  \
    return rc;                    \
  }
WAITS(pthread_cond_wait, (pthread_cond_t *c, pthread_mutex_t *m), (c, m))
WAITS(pthread_cond_timedwait, (pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t), (c, m, t))
WAITS(pthread_cond_clockwait, (pthread_cond_t *c, pthread_mutex_t *m, clockid_t k, const struct timespec *t),
      (c, m, k, t))

/* All come after all that came before. */
PUBLIC int pthread_barrier_wait(pthread_barrier_t *b) {
  REAL(pthread_barrier_wait)
  (void)released(b);
  const int rc = next(b);
  acquired(b);
  return rc;
}

/* A reader comes after the writers before it, a writer after readers and writers. A writer is told from a reader when
 * it lets go by what its thread holds, and the two have a byte of the lock each for a name. */
enum { MOST_HELD = 64 };
static _Thread_local const pthread_rwlock_t *held_to_write[MOST_HELD];

static const void *of_readers(const pthread_rwlock_t *l) {
  return (const char *)l + 1;
}

static bool swap_held(const pthread_rwlock_t *from, const pthread_rwlock_t *to) {
  for (int i = 0; i < MOST_HELD; i++) {
    if (held_to_write[i] != from) continue;
    held_to_write[i] = to;
    return true;
  }
  return false;
}

static void may_write(const pthread_rwlock_t *l) {
  (void)swap_held(NULL, l);
  acquired(l);
  acquired(of_readers(l));
}

#define WRITES(name, params, args) \
  PUBLIC int name params {         \
    REAL(name)                     \
    const int rc = next args;      \
    if (rc == 0) may_write(l);     \
    return rc;                     \
  }
TAKES(pthread_rwlock_rdlock, (pthread_rwlock_t *l), (l), l)
TAKES(pthread_rwlock_tryrdlock, (pthread_rwlock_t *l), (l), l)
TAKES(pthread_rwlock_timedrdlock, (pthread_rwlock_t *l, const struct timespec *t), (l, t), l)
WRITES(pthread_rwlock_wrlock, (pthread_rwlock_t *l), (l))
WRITES(pthread_rwlock_trywrlock, (pthread_rwlock_t *l), (l))
WRITES(pthread_rwlock_timedwrlock, (pthread_rwlock_t *l, const struct timespec *t), (l, t))

PUBLIC int pthread_rwlock_unlock(pthread_rwlock_t *l) {
  REAL(pthread_rwlock_unlock)
  (void)released(swap_held(l, NULL) ? l : of_readers(l));
  return next(l);
}

/* A thread that comes later comes after what was done once, and after nothing else of the thread that did it. */
static _Thread_local struct {
  void (*run)(void);
  const void *object;
} once;

static void run_once(void) {
  const void *object = once.object;
  once.run();
  (void)released(object);
}

PUBLIC int pthread_once(pthread_once_t *o, void (*f)(void)) {
  REAL(pthread_once)
  const __typeof__(once) outer = once;
  once.run = f;
  once.object = o;
  const int rc = next(o, run_once);
  once = outer;
  acquired(o);
  return rc;
}

/* A thread's beginning and end: each has a name of its own, which the thread leaves for who joins it. It has begun
 * before its maker goes on, so that the simulator knows it: what it has not seen is not forgotten. */
typedef struct life {
  void *(*run)(void *);
  void *arg;
  char begins, ends;
  bool known;
  int rounds;
  _Atomic bool begun;
  pthread_t thread;
  struct life *next;
} life;

static life *lives;
static atomic_flag lives_busy = ATOMIC_FLAG_INIT;

static void keep(life *l) {
  while (atomic_flag_test_and_set(&lives_busy)) continue;
  l->next = lives;
  lives = l;
  atomic_flag_clear(&lives_busy);
}

static life *take(pthread_t thread) {
  while (atomic_flag_test_and_set(&lives_busy)) continue;
  life **link = &lives;
  while (*link != NULL && !pthread_equal((*link)->thread, thread)) link = &(*link)->next;
  life *l = *link;
  if (l != NULL) *link = l->next;
  atomic_flag_clear(&lives_busy);
  return l;
}

static pthread_key_t own;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

/* What a thread does as it ends, in destructors, it does before it is joined. Those of keys come in rounds, of which
 * this waits for the last but one: the simulator learns in a destructor, too, that a thread has ended. */
static void at_end(void *p) {
  life *l = p;
  if (++l->rounds < PTHREAD_DESTRUCTOR_ITERATIONS - 1) (void)pthread_setspecific(own, l);
  else (void)released(&l->ends);
}

static void create_own(void) {
  if (pthread_key_create(&own, at_end) != 0) abort();
}

/* Before the simulator makes its own key, so that in the same round this destructor comes before that one: in the last
 * round ThreadSanitizer knows the thread no more. By the call that is told of elsewhere; this one orders no threads of
 * the program's. */
__attribute__((constructor)) static void make_own(void) {
  const bool outer = telling;
  telling = true;
  (void)pthread_once(&own_once, create_own);
  telling = outer;
}

static void *begin(void *p) {
  life *l = p;
  if (l->known) acquired(&l->begins);
  atomic_store(&l->begun, true);
  (void)pthread_setspecific(own, l);
  return l->run(l->arg);
}

PUBLIC int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg) {
  REAL(pthread_create)
  make_own();
  life *l = malloc(sizeof *l);
  if (l == NULL) return next(thread, attr, run, arg);
  *l = (life){.run = run, .arg = arg};
  l->known = released(&l->begins);
  const int rc = next(thread, attr, begin, l);
  if (rc != 0) {
    free(l);
    return rc;
  }
  while (l->known && !atomic_load(&l->begun)) sched_yield();
  l->thread = *thread;
  keep(l);
  return 0;
}

/* What a thread that is never joined leaves stays. */
static int joined(int rc, pthread_t thread) {
  life *l = rc == 0 ? take(thread) : NULL;
  if (l == NULL) return rc;
  acquired(&l->ends);
  free(l);
  return rc;
}

PUBLIC int pthread_join(pthread_t thread, void **result) {
  REAL(pthread_join)
  return joined(next(thread, result), thread);
}

PUBLIC int pthread_tryjoin_np(pthread_t thread, void **result) {
  REAL(pthread_tryjoin_np)
  return joined(next(thread, result), thread);
}

PUBLIC int pthread_timedjoin_np(pthread_t thread, void **result, const struct timespec *t) {
  REAL(pthread_timedjoin_np)
  return joined(next(thread, result, t), thread);
}
