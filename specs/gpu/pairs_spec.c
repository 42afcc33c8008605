/* pairs_spec.c: each public operation that reaches the device layer, together with each other one and with itself, by
 * two threads at once, on memory that both share. Every call must succeed, whatever the other thread does; nothing
 * may be unordered and nothing left; and the shared memory must be as usable afterwards as before. That the runtime's
 * own data is not raced for is what ThreadSanitizer says of this program. */
#include <pthread.h>

#include "loan.h"

enum { SIDE = 64, LARGE = 100 << 10, NACTORS = 2, NREPEATS = 10 };

typedef struct actor {
  int (*verb)(struct actor *);
  mf_stream stream; /* its current one */
  mf_error err;
  loan *loans[NREPEATS];
  int nloans;
} actor;

/* Of both threads: written and read by devices, and read by the host. */
static mf_tensor *common, *common_pinned;
static pthread_barrier_t barrier;

static int create_as(actor *a, DLDevice device, int64_t nbytes, mf_tensor **out) {
  const DLTensor like = {.device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &nbytes};
  return mf_tensor_create(&like, 0, out, &a->err);
}

static int fill_as(actor *a, mf_tensor *t) {
  const mf_scalar value = {.kind = MF_KIND_UINT, .u = 7};
  return mf_tensor_fill(t, &value, &a->err);
}

/* Releases ${t}, which may be NULL, and hands the status on. */
static int drop(mf_tensor *t, int rc) {
  mf_tensor_release(t);
  return rc;
}

static int to_device(actor *a, mf_tensor *t, DLDevice device) {
  const mf_request request = {.device = device, .copy = MF_COPY_ALWAYS};
  mf_tensor *out;
  const int rc = mf_tensor_to(t, &request, &out, &a->err);
  return rc == MF_OK ? drop(out, MF_OK) : rc;
}

/* The verbs */

static int make_on_gpu(actor *a) {
  mf_tensor *t;
  const int rc = create_as(a, gpu(0), NBYTES, &t);
  return rc == MF_OK ? drop(t, fill_as(a, t)) : rc;
}

static int make_pinned(actor *a) {
  mf_tensor *t;
  const int rc = create_as(a, pinned(), NBYTES, &t);
  return rc == MF_OK ? drop(t, fill_as(a, t)) : rc;
}

static int fill_common(actor *a) {
  return fill_as(a, common);
}

static int copy_into_common(actor *a) {
  mf_tensor *t;
  int rc = create_as(a, gpu(0), NBYTES, &t);
  if (rc != MF_OK) return rc;
  rc = fill_as(a, t);
  return drop(t, rc == MF_OK ? mf_tensor_copy(common, t, &a->err) : rc);
}

static int clone_common(actor *a) {
  mf_tensor *t;
  const int rc = mf_tensor_clone(common, &t, &a->err);
  return rc == MF_OK ? drop(t, MF_OK) : rc;
}

static int download_common(actor *a) {
  return to_device(a, common, (DLDevice){kDLCPU, 0});
}

static int read_pinned_on_device(actor *a) {
  return to_device(a, common_pinned, gpu(0));
}

static int to_the_other_gpu(actor *a) {
  return to_device(a, common, gpu(other_devices() > 1));
}

static int upload_and_back(actor *a, int64_t nbytes) {
  const mf_request up = {.device = gpu(0)};
  mf_tensor *host, *there;
  int rc = create_as(a, (DLDevice){kDLCPU, 0}, nbytes, &host);
  if (rc != MF_OK) return rc;
  memset(data_of(host), 5, (size_t)nbytes);
  rc = mf_tensor_to(host, &up, &there, &a->err);
  mf_tensor_release(host);
  return rc == MF_OK ? drop(there, to_device(a, there, (DLDevice){kDLCPU, 0})) : rc;
}

static int move_small(actor *a) {
  return upload_and_back(a, NBYTES);
}

static int move_in_stages(actor *a) {
  return upload_and_back(a, LARGE);
}

static int get_from_pinned(actor *a) {
  const int64_t first = 0;
  mf_scalar value;
  return mf_tensor_get(common_pinned, &first, 1, &value, &a->err);
}

/* Somebody else's read, so that two threads need not agree whose write comes first. */
static int acquire_common(actor *a) {
  return mf_tensor_acquire(common, a->stream, MF_READ, &a->err);
}

static int acquire_pinned_for_the_host(actor *a) {
  return mf_tensor_acquire(common_pinned, MF_STREAM_HOST, MF_READ, &a->err);
}

static int record_common(actor *a) {
  return mf_tensor_record(common, a->stream, MF_READ, &a->err);
}

static int give(actor *a, mf_tensor *t, mf_stream s) {
  const mf_request request = {.stream = s};
  DLManagedTensorVersioned *managed;
  const int rc = mf_tensor_export_to(t, &request, &managed, &a->err);
  if (rc == MF_OK) managed->deleter(managed);
  return rc;
}

static int give_on_the_default_stream(actor *a) {
  return give(a, common, MF_STREAM_DEFAULT);
}

static int give_on_a_foreign_stream(actor *a) {
  const mf_stream s = other_stream(0, true);
  const int rc = give(a, common, s);
  other_stream_end(s);
  return rc;
}

static int give_pinned_to_the_host(actor *a) {
  return give(a, common_pinned, MF_STREAM_HOST);
}

static int give_and_take(actor *a) {
  DLManagedTensorVersioned *managed;
  mf_tensor *t;
  int rc = mf_tensor_export(common, 0, &managed, &a->err);
  if (rc != MF_OK) return rc;
  rc = mf_tensor_import(managed, &t, &a->err);
  return rc == MF_OK ? drop(t, MF_OK) : rc;
}

static int import_and_fill(actor *a) {
  mf_tensor *t;
  loan *l = a->loans[a->nloans++] = loan_new();
  const int rc = mf_tensor_import(&l->managed, &t, &a->err);
  return rc == MF_OK ? drop(t, fill_as(a, t)) : rc;
}

static int fill_a_view(actor *a) {
  mf_tensor *t;
  const mf_index half = {.kind = MF_INDEX_SLICE, .start = MF_INDEX_NONE, .stop = SIDE, .step = 1};
  const int rc = mf_tensor_index(common, &half, 1, &t, &a->err);
  return rc == MF_OK ? drop(t, fill_as(a, t)) : rc;
}

static int borrow_common(actor *a) {
  DLTensor out;
  return mf_tensor_borrow(common, &out, &a->err);
}

static int change_streams(actor *a) {
  const DLDevice device = gpu(0);
  mf_stream s;
  int rc = mf_stream_create(&device, &s, &a->err);
  if (rc == MF_OK) rc = mf_stream_swap(&device, s, NULL, &a->err);
  if (rc == MF_OK) rc = fill_as(a, common);
  if (rc == MF_OK) rc = mf_stream_swap(&device, a->stream, NULL, &a->err);
  return rc == MF_OK ? mf_stream_destroy(&device, s, &a->err) : rc;
}

static int ask_for_streams(actor *a) {
  const DLDevice device = gpu(0);
  mf_stream s;
  const int rc = mf_stream_current(&device, &s, &a->err);
  return rc == MF_OK ? mf_stream_check(&device, s, &a->err) : rc;
}

static int synchronize_stream(actor *a) {
  const DLDevice device = gpu(0);
  return mf_stream_synchronize(&device, a->stream, &a->err);
}

static int query_stream(actor *a) {
  const DLDevice device = gpu(0);
  int32_t done;
  return mf_stream_query(&device, a->stream, &done, &a->err);
}

static int wait_for_the_default_stream(actor *a) {
  const DLDevice device = gpu(0);
  return mf_stream_wait(&device, a->stream, &device, MF_STREAM_DEFAULT, &a->err);
}

static int synchronize_device(actor *a) {
  const DLDevice device = gpu(0);
  return mf_device_synchronize(&device, &a->err);
}

static int trim_gpu(actor *a) {
  const DLDevice device = gpu(0);
  return mf_pool_trim(&device, &a->err);
}

static int trim_pinned(actor *a) {
  const DLDevice device = pinned();
  return mf_pool_trim(&device, &a->err);
}

static int trim_everything(actor *a) {
  return mf_pools_trim(0, &a->err);
}

static int read_pool(actor *a) {
  const DLDevice device = gpu(0);
  mf_pool_stats s;
  mf_ledger alive;
  mf_ledger_read(&alive);
  return mf_pool_read(&device, &s, &a->err);
}

static int limit_pool(actor *a) {
  const DLDevice device = gpu(0);
  const int rc = mf_pool_limit(&device, INT64_C(1) << 40, &a->err);
  return rc == MF_OK ? mf_pool_limit(&device, 0, &a->err) : rc;
}

static int ask_for_devices(actor *a) {
  DLDevice found;
  int32_t count;
  const int rc = mf_device_count(other_device_type(), &count, &a->err);
  return rc == MF_OK ? mf_device_of_pointer(other_device_type(), data_of(common), &found, &a->err) : rc;
}

static int take_memory_back(actor *a) {
  const DLTensor view = *mf_tensor_dltensor(common);
  mf_tensor *t;
  const int rc = mf_tensor_wrap(&view, 0, NULL, NULL, &t, &a->err);
  return rc == MF_OK ? drop(t, mf_tensor_invalidate(t, NULL, &a->err)) : rc;
}

static int (*const verbs[])(actor *) = {
    make_on_gpu,       make_pinned,          fill_common,
    copy_into_common,  clone_common,         download_common,
    to_the_other_gpu,  move_small,           move_in_stages,
    get_from_pinned,   acquire_common,       acquire_pinned_for_the_host,
    record_common,     fill_a_view,          give_on_the_default_stream,
    give_and_take,     borrow_common,        give_on_a_foreign_stream,
    import_and_fill,   change_streams,       ask_for_streams,
    query_stream,      synchronize_stream,   wait_for_the_default_stream,
    limit_pool,        synchronize_device,   give_pinned_to_the_host,
    trim_gpu,          trim_pinned,          trim_everything,
    read_pool,         ask_for_devices,      read_pinned_on_device,
    take_memory_back,
};

/* Two threads */

static void *act(void *arg) {
  actor *a = arg;
  const DLDevice device = gpu(0);
  int rc = mf_stream_swap(&device, a->stream, NULL, &a->err);
  pthread_barrier_wait(&barrier);
  for (int i = 0; rc == MF_OK && i < NREPEATS; i++) rc = a->verb(a);
  return rc == MF_OK ? NULL : a;
}

static void check_act(const actor *failed, size_t first, size_t second) {
  if (failed != NULL)
    fail_msg("verbs %zu and %zu: %zu: %s: %s", first, second, failed->verb == verbs[first] ? first : second,
             failed->err.call, failed->err.message);
}

static void at_once(size_t first, size_t second, mf_stream s, mf_stream t) {
  actor actors[NACTORS] = {{.verb = verbs[first], .stream = s}, {.verb = verbs[second], .stream = t}};
  pthread_t threads[NACTORS];
  pthread_barrier_init(&barrier, NULL, NACTORS);
  for (int i = 0; i < NACTORS; i++) assert_int_equal(pthread_create(&threads[i], NULL, act, &actors[i]), 0);
  for (int i = 0; i < NACTORS; i++) {
    void *failed;
    assert_int_equal(pthread_join(threads[i], &failed), 0);
    check_act(failed, first, second);
  }
  pthread_barrier_destroy(&barrier);
  synchronize(0);
  for (int i = 0; i < NACTORS; i++)
    for (int k = 0; k < actors[i].nloans; k++) loan_end(actors[i].loans[k]);
}

/* With both threads on one stream, and on two. */
static void pair(size_t first, size_t second) {
  const mf_stream s = stream_new(0), t = stream_new(0);
  common = create(gpu(0), NBYTES);
  common_pinned = create(pinned(), NBYTES);
  write_on(common, s, 1);
  write_on(common_pinned, t, 2);
  at_once(first, second, s, t);
  at_once(first, second, s, s);
  write_on(common, t, 3);
  expect_filled(common, 3);
  expect_filled(common_pinned, 2);
  mf_tensor_release(common);
  mf_tensor_release(common_pinned);
  stream_end(0, s);
  stream_end(0, t);
  nothing_left();
  if (sim_ask_findings() != 0) fail_msg("verbs %zu and %zu", first, second);
}

static void any_two_operations_at_once(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(verbs); i++)
    for (size_t j = i; j < COUNT(verbs); j++) pair(i, j);
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(any_two_operations_at_once)};
  return RUN(tests);
}
