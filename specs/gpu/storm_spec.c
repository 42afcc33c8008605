/* storm_spec.c: programs at random: tensors on both GPUs and in pinned memory are made, filled, copied, brought to the
 * host, given to consumers on any stream, and dropped, by one thread and by several at once, each of which changes its
 * current stream as it likes. Every use is Moonferry's own or told to it, so nothing may be unordered, and nothing may
 * be left. */
#include <pthread.h>

#include "device.h"

enum { NTHREADS = 4, NTENSORS = 8, NGIVEN = 32, NSTREAMS = NTHREADS + 2, STEPS = 1200, NBYTES = 256, LONG_MS = 5000 };
enum { NTURNS = 64 };

/* What the threads share: any of them may take, replace or drop a part of it. */
static mf_tensor *tensors[NTENSORS];
static DLManagedTensorVersioned *given[NGIVEN];
static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;
static mf_stream streams[NSTREAMS];

typedef struct actor {
  uint64_t random;
  mf_error err;
} actor;

static uint64_t below(actor *a, uint64_t n) {
  return random_of(&a->random) % n;
}

static bool on_gpu(const mf_tensor *t) {
  return mf_tensor_dltensor(t)->device.device_type == (DLDeviceType)other_device_type();
}

/* The lock of a record is an atomic variable. A simulator that takes threads as separate does not hear of it, nor of a
 * reference count: so each memory has one user at a time there, by mutexes of ours, of which it hears. */
static struct {
  bool needed;
  pthread_mutex_t locks[NTURNS];
} turns;

static pthread_mutex_t *turn_of(const void *memory) {
  return &turns.locks[(uintptr_t)memory / NBYTES % NTURNS];
}

/* Of one memory or two, which may be NULL, the lower mutex first. */
static void turn_change(const void *a, const void *b, int (*change)(pthread_mutex_t *)) {
  pthread_mutex_t *first = a == NULL ? NULL : turn_of(a), *second = b == NULL ? NULL : turn_of(b);
  if (!turns.needed) return;
  if (first > second) {
    pthread_mutex_t *higher = first;
    first = second;
    second = higher;
  }
  if (first != NULL && first != second) change(first);
  if (second != NULL) change(second);
}

static const void *memory_of(const mf_tensor *t) {
  return t == NULL ? NULL : mf_tensor_dltensor(t)->data;
}

static void drop(mf_tensor *t) {
  const void *memory = memory_of(t);
  turn_change(memory, NULL, pthread_mutex_lock);
  mf_tensor_release(t);
  turn_change(memory, NULL, pthread_mutex_unlock);
}

static void give_back(DLManagedTensorVersioned *managed) {
  const void *memory = managed->dl_tensor.data;
  turn_change(memory, NULL, pthread_mutex_lock);
  managed->deleter(managed);
  turn_change(memory, NULL, pthread_mutex_unlock);
}

static mf_tensor *pick(actor *a) {
  pthread_mutex_lock(&shared);
  mf_tensor *t = tensors[below(a, NTENSORS)];
  if (t != NULL) t = mf_tensor_retain(t);
  pthread_mutex_unlock(&shared);
  return t;
}

static void put(actor *a, mf_tensor *t) {
  pthread_mutex_lock(&shared);
  mf_tensor **place = &tensors[below(a, NTENSORS)], *before = *place;
  *place = t;
  pthread_mutex_unlock(&shared);
  drop(before);
}

/* NULL for none: then only the consumer before is done. */
static void hand_out(actor *a, DLManagedTensorVersioned *managed) {
  pthread_mutex_lock(&shared);
  DLManagedTensorVersioned **place = &given[below(a, NGIVEN)], *before = *place;
  *place = managed;
  pthread_mutex_unlock(&shared);
  if (before != NULL) give_back(before);
}

static int fill_one(actor *a, mf_tensor *t) {
  const mf_scalar value = {.kind = MF_KIND_UINT, .u = below(a, 256)};
  return mf_tensor_fill(t, &value, &a->err);
}

static int make(actor *a) {
  static int64_t shape[] = {NBYTES};
  const DLDevice devices[] = {gpu(0), gpu(0), gpu(other_devices() > 1), pinned()};
  const DLTensor like = {.device = devices[below(a, 4)], .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  mf_tensor *t;
  int rc = mf_tensor_create(&like, 0, &t, &a->err);
  if (rc != MF_OK) return rc;
  if (on_gpu(t)) rc = fill_one(a, t);
  put(a, t);
  return rc;
}

/* The host's own use of pinned memory would be for the threads to order. */
static int change(actor *a, mf_tensor *t, const mf_tensor *from) {
  if (!on_gpu(t)) return MF_OK;
  return from == NULL || from == t ? fill_one(a, t) : mf_tensor_copy(t, from, &a->err);
}

static int give(actor *a, mf_tensor *t, DLManagedTensorVersioned **managed) {
  const bool elsewhere = on_gpu(t) && mf_tensor_dltensor(t)->device.device_id != 0;
  const mf_request request = {.stream = elsewhere ? MF_STREAM_DEFAULT : streams[below(a, NSTREAMS)]};
  return mf_tensor_export_to(t, &request, managed, &a->err);
}

static int to_host(actor *a, mf_tensor *t) {
  const mf_request on_host = {.device = {kDLCPU, 0}};
  mf_tensor *copy;
  const int rc = mf_tensor_to(t, &on_host, &copy, &a->err);
  if (rc == MF_OK) mf_tensor_release(copy);
  return rc;
}

static int with_one(actor *a, uint64_t what) {
  mf_tensor *t = pick(a), *from = t != NULL && what < 4 ? pick(a) : NULL, *copy = NULL;
  DLManagedTensorVersioned *managed = NULL;
  int rc;
  if (t == NULL) return MF_OK;
  const void *memory = memory_of(t), *other = memory_of(from);
  turn_change(memory, other, pthread_mutex_lock);
  if (what < 4) rc = change(a, t, from);
  else if (what < 7) rc = give(a, t, &managed);
  else rc = what == 7 ? to_host(a, t) : mf_tensor_clone(t, &copy, &a->err);
  turn_change(memory, other, pthread_mutex_unlock);
  if (rc == MF_OK && managed != NULL) hand_out(a, managed);
  if (rc == MF_OK && copy != NULL) put(a, copy);
  drop(from);
  drop(t);
  return rc;
}

static int step(actor *a) {
  const DLDevice device = gpu(0);
  const uint64_t what = below(a, 16);
  if (what < 9) return with_one(a, what);
  if (what < 11) return make(a);
  if (what == 11) hand_out(a, NULL);
  else if (what == 12) put(a, NULL);
  else if (what < 15) return mf_stream_swap(&device, streams[below(a, NSTREAMS)], NULL, &a->err);
  else if (below(a, 16) == 0) return below(a, 2) ? mf_pools_trim(0, &a->err) : mf_device_synchronize(&device, &a->err);
  return MF_OK;
}

/* The first failure, or NULL. */
static void *act(void *arg) {
  actor *a = arg;
  const DLDevice device = gpu(0);
  int rc = MF_OK;
  for (int i = 0; i < STEPS && rc == MF_OK; i++) rc = step(a);
  if (rc == MF_OK) rc = mf_stream_swap(&device, MF_STREAM_DEFAULT, NULL, &a->err);
  return rc == MF_OK ? NULL : a;
}

static void drop_all(void) {
  for (int i = 0; i < NGIVEN; i++)
    if (given[i] != NULL) given[i]->deleter(given[i]);
  for (int i = 0; i < NTENSORS; i++) mf_tensor_release(tensors[i]);
  memset(given, 0, sizeof given);
  memset(tensors, 0, sizeof tensors);
}

static void check_act(const actor *failed) {
  if (failed != NULL) fail_msg("%s: %s", failed->err.call, failed->err.message);
}

/* One call gives back all that is kept. */
static void storm(uint64_t seed, int nthreads) {
  static const char *const sorts[] = {"memory", "streams", "events"};
  pthread_t threads[NTHREADS];
  actor actors[NTHREADS];
  sim_ask_seed(seed);
  for (int i = 0; i < NTHREADS; i++) streams[i] = stream_new(0);
  streams[NTHREADS] = MF_STREAM_DEFAULT;
  streams[NTHREADS + 1] = other_device_type() == kDLCUDA ? MF_STREAM_PER_THREAD : MF_STREAM_DEFAULT;
  for (int i = 0; i < nthreads; i++) actors[i] = (actor){.random = seed_of(seed) * NTHREADS + (uint64_t)i};
  for (int i = 1; i < nthreads; i++) assert_int_equal(pthread_create(&threads[i], NULL, act, &actors[i]), 0);
  const actor *failed = act(&actors[0]);
  for (int i = 1; i < nthreads; i++) {
    void *other;
    assert_int_equal(pthread_join(threads[i], &other), 0);
    if (failed == NULL) failed = other;
  }
  check_act(failed);
  drop_all();
  for (int i = 0; i < NTHREADS; i++) stream_end(0, streams[i]);
  OK(mf_pools_trim(LONG_MS, &err));
  for (size_t i = 0; i < COUNT(sorts); i++)
    if (sim_ask_left(sorts[i]) != 0) fail_msg("%s left: %lld", sorts[i], (long long)sim_ask_left(sorts[i]));
  if (sim_ask_findings() != 0) fail_msg("seed %llu", (unsigned long long)seed);
}

static void by_one_thread(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < seeds(30); seed++) storm(seed, 1);
}

static void by_several_threads(void **state) {
  const char *threads = getenv("SIM_THREADS");
  (void)state;
  turns.needed = threads != NULL && strcmp(threads, "separate") == 0;
  for (int i = 0; i < NTURNS; i++) pthread_mutex_init(&turns.locks[i], NULL);
  for (uint64_t seed = 0; seed < seeds(30); seed++) storm(seed, NTHREADS);
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(by_one_thread), SPEC(by_several_threads)};
  return RUN(tests);
}
