/* lock_fork_spec.c: a child that forks off while a call of its parent's has a lock of the library's, whichever it is.
 * The child gives back what it has inherited without waiting for that lock, and works on the host.
 *
 * The parent forks inside of each lock in turn: pthread_mutex_lock here stands before the system's. */
#include "../sim/gl.h"
#include "loan.h"
#include "real_lock.h"

enum { STAGED_NBYTES = 100000, MOST = 1000 };

static void (*body)(void); /* of the child; NULL: there is none */
static int turn, locks, ended;

__attribute__((visibility("default"), no_sanitize("thread"))) int pthread_mutex_lock(pthread_mutex_t *lock) {
  const int failed = real_mutex_lock(lock);
  if (body != NULL && is_the_librarys(__builtin_return_address(0)) && locks++ == turn) {
    void (*run)(void) = body;
    body = NULL;
    ended = status_in_fork(run);
  }
  return failed;
}

/* What the child inherits: memory that two streams use, of each sort, a mapped buffer of OpenGL's, and a stream. */
static mf_tensor *used[3];
static mf_tensor *unused;
static loan *lent, *waiting;
static mf_stream first, second, third; /* ours, and another library's, of which the third is never a current one */
static mf_gl_buffer *shared;
static DLManagedTensorVersioned *given[2]; /* one consumer of each stream is done and the other is not */

static DLManagedTensorVersioned *give(mf_tensor *t, mf_stream s) {
  DLManagedTensorVersioned *out;
  OK(mf_tensor_export_to(t, &(mf_request){.stream = s}, &out, &err));
  return out;
}

static void share(void) {
  static unsigned buffer;
  const DLDevice device = gpu(0);
  mf_tensor *t;
  if (gl_of.context == NULL) gl_open();
  if (buffer == 0) buffer = gl_buffer(NULL, NBYTES, 0);
  OK(mf_gl_buffer_open(&device, buffer, 0, &shared, &err));
  OK(mf_gl_buffer_map(shared, first, mf_tensor_dltensor(used[0]), &t, &err));
}

static void inherit(void) {
  const DLDevice devices[] = {gpu(0), pinned()};
  for (int i = 0; i < 2; i++) used[i] = create(devices[i], NBYTES);
  lent = loan_new();
  used[2] = import(lent);
  for (int i = 0; i < 3; i++) {
    DLManagedTensorVersioned *done = give(used[i], i == 0 ? second : third); /* behind which an event stays */
    done->deleter(done);
    OK(mf_tensor_acquire(used[i], first, MF_READ, &err));
  }
  share();
  given[0] = give(used[0], second);
  given[1] = give(used[1], third);
  waiting = loan_new();
  mf_tensor *t = import(waiting);
  write_on(t, second, 3);
  mf_tensor_release(t);
}

static void give_back(void) {
  (void)mf_gl_buffer_close(shared, NULL);
  for (int i = 0; i < 2; i++) given[i]->deleter(given[i]);
  for (int i = 0; i < 3; i++) mf_tensor_release(used[i]);
}

static void child(void) {
  const DLDevice device = gpu(0);
  int64_t shape[] = {NBYTES};
  mf_tensor *t, *copy;
  alarm(HANGS_SECONDS);
  (void)mf_tensor_acquire(used[1], first, MF_READ, NULL);
  (void)mf_tensor_record(used[1], first, MF_READ, NULL);
  (void)mf_tensor_record(unused, MF_STREAM_CURRENT, MF_READ, NULL);
  (void)mf_tensor_acquire(unused, MF_STREAM_CURRENT, MF_WRITE, NULL);
  give_back();
  mf_releases_run();
  if (calls_of(lent) != 1) _exit(2);
  DLTensor like = {.device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  if (mf_tensor_create(&like, 0, &t, NULL) != MF_EDEVICE) _exit(3);
  if (mf_stream_destroy(&device, first, NULL) == MF_OK || mf_device_synchronize(&device, NULL) == MF_OK) _exit(4);
  mf_pool_stats stats;
  (void)mf_pool_read(&device, &stats, NULL);
  (void)mf_pool_trim(&device, NULL);
  (void)mf_pools_trim(1, NULL);
  like.device = (DLDevice){kDLCPU, 0};
  if (mf_tensor_create(&like, 0, &t, NULL) != MF_OK || mf_tensor_clone(t, &copy, NULL) != MF_OK) _exit(5);
  mf_tensor_release(copy);
  mf_tensor_release(t);
}

/* Calls that have each lock for a moment. */
static void use_all(void) {
  const DLDevice device = gpu(0);
  mf_stream s;
  OK(mf_stream_create(&device, &s, &err));
  mf_tensor *t = create(device, STAGED_NBYTES);
  mf_tensor *host = moved(t, (DLDevice){kDLCPU, 0}, MF_COPY_ALWAYS);
  write_on(t, s, 3);
  write_on(t, first, 4);
  OK(mf_tensor_copy(t, host, &err));
  mf_tensor_release(t);
  loan *l = loan_new();
  t = import(l);
  write_on(t, s, 1);
  mf_tensor_release(t);
  OK(mf_stream_destroy(&device, s, &err));
  synchronize(0);
  poll();
  loan_end(l);
  mf_tensor_release(host);
  trim(device);
  trim(pinned());
}

static void a_child_of_any_moment_gives_back_what_it_has(void **state) {
  (void)state;
  needs_simulator();
  first = stream_new(0);
  second = other_stream(0, false);
  third = other_stream(0, false);
  use_stream(0, second);
  unused = create(pinned(), NBYTES);
  use_all();
  for (turn = 0; turn < MOST; turn++) {
    inherit();
    locks = ended = 0;
    body = child;
    use_all();
    const bool was_last = body != NULL;
    body = NULL;
    if (ended != 0) fail_msg("the child of lock %d ended with %d", turn, ended);
    give_back();
    synchronize(0);
    poll();
    loan_end(waiting);
    loan_end(lent);
    if (was_last) break;
  }
  print_message("%d locks\n", turn);
  assert_true(turn >= 20 && turn < MOST);
  use_stream(0, MF_STREAM_DEFAULT);
  mf_tensor_release(unused);
  stream_end(0, first);
  other_stream_end(second);
  other_stream_end(third);
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(a_child_of_any_moment_gives_back_what_it_has)};
  return RUN(tests);
}
