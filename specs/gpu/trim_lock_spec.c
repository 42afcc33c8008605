/* trim_lock_spec.c: a trim asks many parts of the library whether anything is left, one after the other. Between any
 * two of these questions another thread takes memory that is kept, gives some back, or trims as well.
 *
 * The trim stops before each lock of the library's in turn: pthread_mutex_lock here stands before the system's. */
#include "device.h"
#include "real_lock.h"

#include "../c/moment.h"

enum { NBYTES = 5000, MOST = 1000 };

static _Thread_local bool trims; /* this thread, and is to be stopped */
static int turn, locks;

/* The other thread, which does the first before one lock, the second before the next, and so on. */
static struct {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool runs, acted;
  void (*acts[3])(void), (*act)(void);
} other = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *run_other(void *unused) {
  (void)unused;
  other.act();
  (void)real_mutex_lock(&other.lock);
  other.acted = true;
  pthread_cond_broadcast(&other.changed);
  pthread_mutex_unlock(&other.lock);
  return NULL;
}

static void join_other(void) {
  if (other.runs) pthread_join(other.thread, NULL);
  other.runs = false;
}

/* What waits for something that the trim has goes on when it gives that up. */
static void let_other(void (*act)(void)) {
  if (act == NULL) return;
  other.act = act;
  other.acted = false;
  other.runs = true;
  if (pthread_create(&other.thread, NULL, run_other, NULL) != 0) abort();
  moment_wait(&other.changed, &other.lock, &other.acted);
  if (other.acted) join_other();
}

__attribute__((visibility("default"), no_sanitize("thread"))) int pthread_mutex_lock(pthread_mutex_t *lock) {
  if (trims && is_the_librarys(__builtin_return_address(0))) {
    trims = false;
    const int at = locks++ - turn;
    if (at >= 0 && at < 3 && !other.runs) let_other(other.acts[at]);
    trims = true;
  }
  return real_mutex_lock(lock);
}

static mf_tensor *theirs;

static void give_back(void) {
  mf_tensor_release(theirs);
  theirs = NULL;
}

static void take(void) {
  if (theirs == NULL) theirs = create(gpu(0), NBYTES);
}

static void trim_as_well(void) {
  OK(mf_pools_trim(0, &err));
}

static void trim_stopped(void) {
  locks = 0;
  trims = true;
  const int rc = mf_pools_trim(0, &err);
  trims = false;
  OK(rc);
  join_other();
}

/* Work of a kernel whose memory is given back to the driver before it is done. */
static void leave_work(void) {
  int64_t shape[] = {50, 50};
  const DLTensor like = {.device = gpu(0), .ndim = 2, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  mf_tensor *t, *u, *turned;
  OK(mf_tensor_create(&like, 0, &t, &err));
  OK(mf_tensor_create(&like, 0, &u, &err));
  OK(mf_tensor_permute_dims(u, NULL, 0, &turned, &err));
  keep_busy(t, MF_STREAM_DEFAULT);
  OK(mf_tensor_copy(t, turned, &err));
  mf_tensor_release(turned);
  mf_tensor_release(u);
  mf_tensor_release(t);
  OK(mf_pools_trim(0, &err));
}

/* Not by the other library, whose context would outlive ours, and all memory with it. */
static void expect_ours(mf_tensor *t, int byte) {
  mf_tensor *host = moved(t, (DLDevice){kDLCPU, 0}, MF_COPY_ALWAYS);
  const unsigned char *seen = mf_tensor_dltensor(host)->data;
  for (int i = 0; i < NBYTES; i++) assert_int_equal(seen[i], byte);
  mf_tensor_release(host);
}

static void each_lock(void (*first)(void), void (*second)(void), void (*third)(void), bool works) {
  bool was_last = false;
  needs_simulator();
  moment_init(&other.changed);
  other.acts[0] = first;
  other.acts[1] = second;
  other.acts[2] = third;
  for (turn = 0; !was_last; turn++) {
    assert_true(turn < MOST);
    if (works) leave_work();
    theirs = second == take ? create(gpu(0), NBYTES) : NULL;
    trim_stopped();
    was_last = locks <= turn;
    if (second == take) {
      take();
      fill(theirs, 7);
      expect_ours(theirs, 7);
      give_back();
    }
    if (sim_ask_findings() != 0) fail_msg("lock %d", turn);
  }
  print_message("%d locks\n", turn);
}

/* Before the other library has its context: this comes first. */
static void another_thread_takes_memory_that_it_gave_back(void **state) {
  (void)state;
  each_lock(give_back, take, NULL, false);
  each_lock(give_back, take, give_back, false);
}

static void another_thread_trims(void **state) {
  (void)state;
  alarm(HANGS_SECONDS);
  each_lock(trim_as_well, NULL, NULL, true);
  sync_all();
  alarm(0);
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(another_thread_takes_memory_that_it_gave_back), SPEC(another_thread_trims)};
  return RUN(tests);
}
