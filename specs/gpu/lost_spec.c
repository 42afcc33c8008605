/* lost_spec.c: programs at random on GPUs of which one is lost at a driver call at random, at once or when the queued
 * work runs, and fails every call from then on. Whatever the program does then succeeds or tells the driver's failure;
 * all of it ends, nothing of the host's is lost, and when the driver works again it gets back all that it had given. */
#include <pthread.h>
#include <unistd.h>

#include "device.h"

enum { NTHREADS = 3, NTENSORS = 8, NGIVEN = 4, NSTREAMS = 3, STEPS = 120, MOST_CALLS = 900, LOST = 700 };
enum { ROWS = 40, COLUMNS = 50, HANGS_AFTER_SECONDS = 60 };

typedef struct actor {
  uint64_t random;
  mf_tensor *tensors[NTENSORS];
  DLManagedTensorVersioned *given[NGIVEN];
  mf_stream streams[NSTREAMS]; /* of gpu 0 */
  mf_error err;
  char wrong[500];
} actor;

static _Atomic int64_t told;

static uint64_t below(actor *a, uint64_t n) {
  return random_of(&a->random) % n;
}

static void say(actor *a, int rc, const char *what) {
  if (rc == MF_OK) return;
  if (a->err.driver_code == LOST) told++;
  else if (a->wrong[0] == '\0')
    (void)snprintf(a->wrong, sizeof a->wrong, "%s: %d, %s: %s", what, rc, a->err.call, a->err.message);
}

#define TRY(a, call) say((a), (call), #call)

/* What it does */

static mf_tensor **any_place(actor *a) {
  return &a->tensors[below(a, NTENSORS)];
}

static mf_stream any_stream(actor *a) {
  const uint64_t i = below(a, NSTREAMS + 2);
  return i < NSTREAMS ? a->streams[i] : i == NSTREAMS ? MF_STREAM_DEFAULT : MF_STREAM_PER_THREAD;
}

static DLDevice any_device(actor *a) {
  const DLDevice all[] = {gpu(0), gpu(0), gpu(0), gpu(other_devices() > 1), pinned(), {kDLCPU, 0}, managed()};
  return all[below(a, other_managed_type() == 0 ? 6 : 7)];
}

static void replace(mf_tensor **place, mf_tensor *t) {
  mf_tensor_release(*place);
  *place = t;
}

static void make(actor *a, mf_tensor **place) {
  const DLTensor like = {.device = any_device(a), .ndim = 2, .dtype = {kDLInt, 32, 1},
                         .shape = (int64_t[]){ROWS, COLUMNS}};
  mf_tensor *t = NULL;
  TRY(a, mf_tensor_create(&like, 0, &t, &a->err));
  replace(place, t);
}

static void move(actor *a, mf_tensor **to, mf_tensor *from) {
  const mf_request request = {.device = any_device(a), .copy = MF_COPY_ALWAYS};
  mf_tensor *t = NULL;
  TRY(a, mf_tensor_to(from, &request, &t, &a->err));
  replace(to, t);
}

static void give(actor *a, mf_tensor *t) {
  DLManagedTensorVersioned **place = &a->given[below(a, NGIVEN)];
  const bool streams = mf_tensor_dltensor(t)->device.device_id == 0 &&
                       mf_tensor_dltensor(t)->device.device_type == (DLDeviceType)other_device_type();
  const mf_request request = {.stream = streams ? any_stream(a) : MF_STREAM_CURRENT};
  if (*place != NULL) (*place)->deleter(*place);
  *place = NULL;
  TRY(a, mf_tensor_export_to(t, &request, place, &a->err));
}

static void take(actor *a, mf_tensor **place) {
  DLManagedTensorVersioned **m = &a->given[below(a, NGIVEN)];
  mf_tensor *t = NULL;
  if (*m == NULL) return;
  const int rc = mf_tensor_import(*m, &t, &a->err);
  say(a, rc, "import");
  if (rc == MF_OK) *m = NULL;
  if (rc == MF_OK) replace(place, t);
}

static void change_stream(actor *a) {
  const DLDevice device = gpu(0);
  mf_stream *s = &a->streams[below(a, NSTREAMS)];
  if (*s > MF_STREAM_PER_THREAD) {
    TRY(a, mf_stream_swap(&device, MF_STREAM_DEFAULT, NULL, &a->err));
    TRY(a, mf_stream_destroy(&device, *s, &a->err));
  }
  *s = MF_STREAM_DEFAULT;
  TRY(a, mf_stream_create(&device, s, &a->err));
}

static void upkeep(actor *a) {
  const DLDevice device = gpu(0);
  int32_t done;
  switch (below(a, 6)) {
    case 0: TRY(a, mf_pools_trim((int32_t)below(a, 3), &a->err)); return;
    case 1: TRY(a, mf_stream_synchronize(&device, any_stream(a), &a->err)); return;
    case 2: TRY(a, mf_stream_query(&device, any_stream(a), &done, &a->err)); return;
    case 3: TRY(a, mf_stream_wait(&device, any_stream(a), &device, any_stream(a), &a->err)); return;
    case 4: TRY(a, mf_stream_swap(&device, any_stream(a), NULL, &a->err)); return;
    default: change_stream(a);
  }
}

static void use(actor *a, mf_tensor *t, mf_tensor *u) {
  const mf_scalar one = {.kind = MF_KIND_UINT, .u = 1};
  const int64_t at[] = {3, 4};
  mf_scalar got;
  int32_t same;
  switch (below(a, 7)) {
    case 0: TRY(a, mf_tensor_fill(t, &one, &a->err)); return;
    case 1: TRY(a, mf_tensor_copy(t, u, &a->err)); return;
    case 2: TRY(a, mf_tensor_put(t, at, 2, &one, &a->err)); return;
    case 3: TRY(a, mf_tensor_get(t, at, 2, &got, &a->err)); return;
    case 4: TRY(a, mf_tensor_equal(t, u, &same, &a->err)); return;
    case 5: TRY(a, mf_tensor_acquire(t, MF_STREAM_HOST, MF_WRITE, &a->err)); return;
    default: give(a, t);
  }
}

static void step(actor *a) {
  mf_tensor **t = any_place(a), **u = any_place(a);
  const uint64_t what = below(a, 8);
  if (what == 0) upkeep(a);
  else if (what == 1) take(a, t);
  else if (*t == NULL || what == 2) make(a, t);
  else if (what == 3) move(a, u, *t);
  else if (*u != NULL) use(a, *t, *u);
}

static void *act(void *arg) {
  actor *a = arg;
  const DLDevice device = gpu(0);
  for (int i = 0; i < STEPS; i++) step(a);
  for (int i = 0; i < NGIVEN; i++)
    if (a->given[i] != NULL) a->given[i]->deleter(a->given[i]);
  for (int i = 0; i < NTENSORS; i++) mf_tensor_release(a->tensors[i]);
  TRY(a, mf_stream_swap(&device, MF_STREAM_DEFAULT, NULL, &a->err));
  for (int i = 0; i < NSTREAMS; i++)
    if (a->streams[i] > MF_STREAM_PER_THREAD) TRY(a, mf_stream_destroy(&device, a->streams[i], &a->err));
  return NULL;
}

/* Programs */

static void lose(uint64_t seed) {
  uint64_t random = seed_of(seed) + 1;
  char rule[40];
  const uint64_t nth = random_of(&random) % MOST_CALLS + 1;
  (void)snprintf(rule, sizeof rule, "*@%llu:%d:%s", (unsigned long long)nth, LOST, seed % 2 == 0 ? "sticky" : "late");
  sim_ask_fail(rule);
}

static void program(uint64_t seed, int nthreads) {
  static actor actors[NTHREADS];
  pthread_t threads[NTHREADS];
  alarm(HANGS_AFTER_SECONDS);
  sim_ask_seed(seed);
  lose(seed);
  for (int i = 0; i < nthreads; i++) {
    actors[i] = (actor){.random = seed_of(seed) * NTHREADS + (uint64_t)i};
    assert_int_equal(pthread_create(&threads[i], NULL, act, &actors[i]), 0);
  }
  for (int i = 0; i < nthreads; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  for (int i = 0; i < nthreads; i++)
    if (actors[i].wrong[0] != '\0') fail_msg("seed %llu: %s", (unsigned long long)seed, actors[i].wrong);
  sim_ask_reset();
  for (int g = 0; g < other_devices(); g++) synchronize(g);
  if (sim_ask_findings() != 0) fail_msg("seed %llu", (unsigned long long)seed);
  nothing_left();
}

static void programs(int nthreads) {
  const uint64_t n = seeds(20);
  needs_simulator();
  told = 0;
  for (uint64_t seed = 0; seed < n; seed++) program(seed, nthreads);
  assert_true(told > 0);
  alarm(0);
}

static void by_one_thread(void **state) {
  (void)state;
  programs(1);
}

static void by_several_threads(void **state) {
  (void)state;
  programs(NTHREADS);
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(by_one_thread), SPEC(by_several_threads)};
  (void)setenv("SIM_FAIL_OF", "libmoonferry", 1);
  return RUN(tests);
}
