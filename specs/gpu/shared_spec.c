/* shared_spec.c: pinned and managed memory, which the host can reach as well: what is asked for on a stream is done on
 * that stream, and the host waits for nothing; what the host reads it waits for, also where another thread's per-thread
 * stream has written. */
#include <pthread.h>

#include "device.h"

enum { NBYTES = 4096 };

static DLDevice places[3];
static int nplaces;

static void find_places(void) {
  nplaces = 0;
  places[nplaces++] = pinned();
  if (other_managed_type() != 0) places[nplaces++] = managed();
}

typedef void (*operation)(mf_tensor *dst, mf_tensor *src, mf_stream on);

static void copy_with_a_current_stream(mf_tensor *dst, mf_tensor *src, mf_stream on) {
  use_stream(0, on);
  OK(mf_tensor_copy(dst, src, &err));
  use_stream(0, MF_STREAM_DEFAULT);
}

static void fill_with_a_current_stream(mf_tensor *dst, mf_tensor *src, mf_stream on) {
  const mf_scalar one = {.kind = MF_KIND_UINT, .u = 1};
  (void)src;
  use_stream(0, on);
  OK(mf_tensor_fill(dst, &one, &err));
  use_stream(0, MF_STREAM_DEFAULT);
}

static void copy_asked_for_on_a_stream(mf_tensor *dst, mf_tensor *src, mf_stream on) {
  const mf_request request = {.device = mf_tensor_dltensor(dst)->device, .copy = MF_COPY_ALWAYS, .stream = on};
  mf_tensor *copy;
  OK(mf_tensor_to(src, &request, &copy, &err));
  OK(mf_tensor_acquire(copy, on, MF_READ, &err));
  other_copy(0, data_of(dst), data_of(copy), NBYTES, on);
  OK(mf_tensor_record(dst, on, MF_WRITE, &err));
  mf_tensor_release(copy);
}

static void copy_exported_on_a_stream(mf_tensor *dst, mf_tensor *src, mf_stream on) {
  const mf_request request = {.copy = MF_COPY_ALWAYS, .stream = on};
  DLManagedTensorVersioned *given;
  OK(mf_tensor_export_to(src, &request, &given, &err));
  assert_true(given->flags & DLPACK_FLAG_BITMASK_IS_COPIED);
  OK(mf_tensor_acquire(dst, on, MF_WRITE, &err));
  other_copy(0, data_of(dst), given->dl_tensor.data, NBYTES, on);
  given->deleter(given);
}

static const operation operations[] = {copy_with_a_current_stream, fill_with_a_current_stream,
                                       copy_asked_for_on_a_stream, copy_exported_on_a_stream};

/* The source was written by another stream, which has far to go. */
static void one_operation(operation play, DLDevice to, DLDevice from, uint64_t seed) {
  const mf_stream writer = stream_new(0), on = stream_new(0);
  mf_tensor *src = create(from, NBYTES), *dst = create(to, NBYTES);
  sim_ask_seed(seed);
  keep_busy(src, writer);
  write_on(src, writer, 1);
  write_on(dst, writer, 9);
  const uint64_t waited = host_waits();
  play(dst, src, on);
  if (other_is_simulated()) assert_int_equal(host_waits(), waited);
  expect_filled(dst, 1);
  mf_tensor_release(src);
  mf_tensor_release(dst);
  stream_end(0, writer);
  stream_end(0, on);
}

static void what_is_asked_for_on_a_stream_is_done_there(void **state) {
  (void)state;
  find_places();
  for (uint64_t seed = 0; seed < seeds(10); seed++)
    for (size_t i = 0; i < COUNT(operations); i++)
      for (int to = 0; to < nplaces; to++)
        for (int from = 0; from < nplaces; from++) one_operation(operations[i], places[to], places[from], seed);
}

/* Work on a thread's own default stream, for which no other thread has a name. The thread stays until it is told to
 * end, because what a driver says of such a stream afterwards is written nowhere. */

typedef struct worker {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  mf_tensor *t;
  const void *from;
  bool queued, end;
} worker;

static void *queue_there(void *arg) {
  worker *w = arg;
  mf_error mine;
  pthread_mutex_lock(&w->lock);
  if (w->from == NULL) {
    if (mf_tensor_acquire(w->t, MF_STREAM_PER_THREAD, MF_WRITE, &mine) != MF_OK) abort();
    for (int i = 0; i < 300; i++) other_fill(0, data_of(w->t), 2, NBYTES, MF_STREAM_PER_THREAD);
  } else {
    if (mf_tensor_acquire(w->t, MF_STREAM_PER_THREAD, MF_READ, &mine) != MF_OK) abort();
    void *to = (void *)(uintptr_t)w->from;
    for (int i = 0; i < 300; i++) other_copy(0, to, data_of(w->t), NBYTES, MF_STREAM_PER_THREAD);
  }
  w->queued = true;
  pthread_cond_broadcast(&w->changed);
  while (!w->end) pthread_cond_wait(&w->changed, &w->lock);
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

static worker *worker_start(mf_tensor *t, const void *to) {
  worker *w = calloc(1, sizeof *w);
  *w = (worker){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .t = t, .from = to};
  assert_int_equal(pthread_create(&w->thread, NULL, queue_there, w), 0);
  pthread_mutex_lock(&w->lock);
  while (!w->queued) pthread_cond_wait(&w->changed, &w->lock);
  pthread_mutex_unlock(&w->lock);
  return w;
}

static void worker_end(worker *w) {
  pthread_mutex_lock(&w->lock);
  w->end = true;
  pthread_cond_broadcast(&w->changed);
  pthread_mutex_unlock(&w->lock);
  pthread_join(w->thread, NULL);
  free(w);
}

static void the_host_waits_for_another_threads_stream(void **state) {
  (void)state;
  find_places();
  for (uint64_t seed = 0; seed < seeds(10); seed++) {
    for (int i = 0; i < nplaces; i++) {
      sim_ask_seed(seed);
      mf_tensor *t = create(places[i], NBYTES);
      worker *w = worker_start(t, NULL);
      OK(mf_tensor_acquire(t, MF_STREAM_HOST, MF_WRITE, &err));
      const unsigned char *bytes = data_of(t);
      for (int at = 0; at < NBYTES; at++) assert_int_equal(bytes[at], 2);
      memset(data_of(t), 3, NBYTES);
      sim_ask_host(data_of(t), NBYTES, true);
      mf_tensor_release(t);
      worker_end(w);
      assert_int_equal(sim_ask_findings(), 0);
    }
  }
}

/* Its memory is another tensor's only behind that work. */
static void memory_is_not_reused_under_it(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < seeds(10); seed++) {
    sim_ask_seed(seed);
    mf_tensor *t = create(pinned(), NBYTES);
    worker *w = worker_start(t, NULL);
    mf_tensor_release(t);
    t = create(pinned(), NBYTES);
    memset(data_of(t), 4, NBYTES);
    sim_ask_host(data_of(t), NBYTES, true);
    mf_tensor_release(t);
    worker_end(w);
    assert_int_equal(sim_ask_findings(), 0);
  }
}

static int deletions;

static void free_at_once(void *ctx) {
  deletions++;
  other_free(0, ctx);
}

/* The owner of wrapped memory frees it as soon as it is told that it may. */
static void an_owner_is_not_told_too_early(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < seeds(10); seed++) {
    sim_ask_seed(seed);
    void *data = other_alloc(0, NBYTES), *seen = other_pinned(NBYTES);
    const DLTensor view = {.data = data, .device = gpu(0), .ndim = 1, .dtype = {kDLUInt, 8, 1},
                           .shape = (int64_t[]){NBYTES}};
    mf_tensor *t;
    deletions = 0;
    OK(mf_tensor_wrap(&view, 0, free_at_once, data, &t, &err));
    worker *w = worker_start(t, seen);
    mf_tensor_release(t);
    mf_releases_run();
    synchronize(0);
    assert_int_equal(deletions, 1);
    worker_end(w);
    other_pinned_free(seen);
    assert_int_equal(sim_ask_findings(), 0);
  }
}

/* The host copies out of memory that a device is reading: there is nothing to wait for. */
static void the_host_reads_beside_a_device_that_reads(void **state) {
  (void)state;
  needs_simulator();
  const mf_stream s = stream_new(0);
  mf_tensor *shared = create(pinned(), NBYTES), *there = create(gpu(0), NBYTES);
  mf_tensor *here = create((DLDevice){kDLCPU, 0}, NBYTES);
  memset(data_of(shared), 5, NBYTES);
  keep_busy(there, s);
  use_stream(0, s);
  OK(mf_tensor_copy(there, shared, &err));
  const uint64_t before = host_waits();
  OK(mf_tensor_copy(here, shared, &err));
  assert_int_equal(host_waits(), before);
  expect_filled(here, 5);
  use_stream(0, MF_STREAM_DEFAULT);
  expect_filled(there, 5);
  stream_end(0, s);
  mf_tensor_release(here);
  mf_tensor_release(there);
  mf_tensor_release(shared);
}

/* What the host reads beside it, it has not waited for: a stream that writes then waits for the device that reads. */
static void a_reader_is_not_forgotten_when_the_host_reads(void **state) {
  (void)state;
  const mf_scalar six = {.kind = MF_KIND_UINT, .u = 6};
  const mf_stream s = stream_new(0), t = stream_new(0);
  mf_tensor *shared = create(pinned(), NBYTES), *there = create(gpu(0), NBYTES);
  mf_tensor *here = create((DLDevice){kDLCPU, 0}, NBYTES);
  memset(data_of(shared), 5, NBYTES);
  keep_busy(there, s);
  use_stream(0, s);
  OK(mf_tensor_copy(there, shared, &err));
  OK(mf_tensor_copy(here, shared, &err));
  use_stream(0, t);
  OK(mf_tensor_fill(shared, &six, &err));
  use_stream(0, MF_STREAM_DEFAULT);
  expect_filled(there, 5);
  expect_filled(here, 5);
  expect_filled(shared, 6);
  stream_end(0, s);
  stream_end(0, t);
  mf_tensor_release(here);
  mf_tensor_release(there);
  mf_tensor_release(shared);
}

/* The host writes memory that a device has yet to read only when it was read. */
static void the_host_overwrites_what_was_read(void **state) {
  (void)state;
  const mf_stream s = stream_new(0);
  mf_tensor *shared = create(pinned(), NBYTES), *there = create(gpu(0), NBYTES);
  mf_tensor *here = create((DLDevice){kDLCPU, 0}, NBYTES);
  memset(data_of(shared), 5, NBYTES);
  memset(data_of(here), 6, NBYTES);
  keep_busy(there, s);
  use_stream(0, s);
  OK(mf_tensor_copy(there, shared, &err));
  OK(mf_tensor_copy(shared, here, &err));
  expect_filled(there, 5);
  expect_filled(shared, 6);
  use_stream(0, MF_STREAM_DEFAULT);
  stream_end(0, s);
  mf_tensor_release(here);
  mf_tensor_release(there);
  mf_tensor_release(shared);
}

static mf_tensor *create_half_bytes(DLDevice device) {
  int64_t shape[] = {64, 64};
  const DLTensor like = {.device = device, .ndim = 2, .dtype = {kDLUInt, 4, 1}, .shape = shape};
  mf_tensor *t;
  OK(mf_tensor_create(&like, 0, &t, &err));
  return t;
}

static mf_tensor *half_bytes(DLDevice device, int value) {
  const mf_scalar filler = {.kind = MF_KIND_INT, .i = value};
  mf_tensor *t = create_half_bytes(device);
  OK(mf_tensor_fill(t, &filler, &err));
  return t;
}

/* The host copies and fills these itself, because no driver call writes half bytes in another order. */
static mf_tensor *turned_of(mf_tensor *t) {
  mf_tensor *turned;
  OK(mf_tensor_permute_dims(t, NULL, 0, &turned, &err));
  return turned;
}

static const mf_scalar six = {.kind = MF_KIND_INT, .i = 6};

/* The same as above, of half bytes. */
static void half_bytes_that_were_read(bool fill) {
  mf_tensor *shared = half_bytes(pinned(), 5), *there = half_bytes(gpu(0), 1), *from = half_bytes(gpu(0), 6);
  mf_tensor *turned = turned_of(shared);
  synchronize(0);
  const mf_stream reader = stream_new(0), writer = stream_new(0);
  keep_busy(there, reader);
  use_stream(0, reader);
  OK(mf_tensor_copy(there, shared, &err));
  use_stream(0, writer);
  OK(fill ? mf_tensor_fill(turned, &six, &err) : mf_tensor_copy(turned, from, &err));
  use_stream(0, MF_STREAM_DEFAULT);
  expect_filled(there, 0x55);
  expect_filled(shared, 0x66);
  stream_end(0, reader);
  stream_end(0, writer);
  mf_tensor *all[] = {turned, shared, there, from};
  for (int i = 0; i < 4; i++) mf_tensor_release(all[i]);
}

static void the_host_overwrites_half_bytes_that_were_read(void **state) {
  (void)state;
  half_bytes_that_were_read(false);
  half_bytes_that_were_read(true);
}

static void the_host_reads_half_bytes_that_were_written(void **state) {
  (void)state;
  mf_tensor *shared = half_bytes(pinned(), 5), *there = half_bytes(gpu(0), 1), *from = half_bytes(gpu(0), 6);
  mf_tensor *here = create_half_bytes(pinned()), *turned = turned_of(here);
  synchronize(0);
  const mf_stream writer = stream_new(0), reader = stream_new(0);
  keep_busy(there, writer);
  use_stream(0, writer);
  OK(mf_tensor_copy(shared, from, &err));
  use_stream(0, reader);
  OK(mf_tensor_copy(turned, shared, &err));
  use_stream(0, MF_STREAM_DEFAULT);
  expect_filled(here, 0x66);
  stream_end(0, writer);
  stream_end(0, reader);
  mf_tensor *all[] = {turned, shared, there, from, here};
  for (int i = 0; i < 5; i++) mf_tensor_release(all[i]);
}

static void the_host_reads_half_bytes_beside_a_device_that_reads(void **state) {
  (void)state;
  needs_simulator();
  const mf_stream s = stream_new(0);
  mf_tensor *shared = create_half_bytes(pinned()), *here = create_half_bytes(pinned()), *turned = turned_of(here);
  mf_tensor *there = create_half_bytes(gpu(0));
  memset(data_of(shared), 0x55, (size_t)mf_tensor_nbytes(shared));
  keep_busy(there, s);
  use_stream(0, s);
  OK(mf_tensor_copy(there, shared, &err));
  const uint64_t before = host_waits();
  OK(mf_tensor_copy(turned, shared, &err));
  assert_int_equal(host_waits(), before);
  use_stream(0, MF_STREAM_DEFAULT);
  expect_filled(here, 0x55);
  expect_filled(there, 0x55);
  stream_end(0, s);
  mf_tensor *all[] = {turned, shared, there, here};
  for (int i = 0; i < 4; i++) mf_tensor_release(all[i]);
}

/* The device may still be reading then: what it reads stays as it was. */
static void half_bytes_after_a_wait_that_fails(bool fill) {
  mf_tensor *shared = half_bytes(pinned(), 5), *there = half_bytes(gpu(0), 1), *from = create_half_bytes(pinned());
  mf_tensor *turned = turned_of(shared);
  synchronize(0);
  memset(data_of(from), 0x66, (size_t)mf_tensor_nbytes(from)); /* so that nothing is waited for to read it */
  const mf_stream s = stream_new(0);
  keep_busy(there, s);
  use_stream(0, s);
  OK(mf_tensor_copy(there, shared, &err));
  use_stream(0, MF_STREAM_DEFAULT);
  sim_ask_reset();
  sim_ask_fail(named("cuEventSynchronize@1:999:once,cuStreamSynchronize@1:999:once",
                     "hipEventSynchronize@1:999:once,hipStreamSynchronize@1:999:once"));
  REFUSED(fill ? mf_tensor_fill(turned, &six, &err) : mf_tensor_copy(turned, from, &err), MF_EDRIVER, "");
  assert_true(sim_ask_faults() > 0);
  sim_ask_reset();
  expect_filled(shared, 0x55);
  expect_filled(there, 0x55);
  OK(fill ? mf_tensor_fill(turned, &six, &err) : mf_tensor_copy(turned, from, &err));
  expect_filled(shared, 0x66);
  stream_end(0, s);
  mf_tensor *all[] = {turned, shared, there, from};
  for (int i = 0; i < 4; i++) mf_tensor_release(all[i]);
}

static void a_wait_that_fails_changes_no_half_bytes(void **state) {
  (void)state;
  needs_simulator();
  half_bytes_after_a_wait_that_fails(false);
  half_bytes_after_a_wait_that_fails(true);
}

/* A graph would not have what the host does. */
static void no_capture_has_what_the_host_does(void **state) {
  (void)state;
  mf_tensor *shared = half_bytes(pinned(), 5), *from = half_bytes(pinned(), 6), *turned = turned_of(shared);
  synchronize(0);
  const mf_stream s = stream_new(0);
  use_stream(0, s);
  other_capture(0, s);
  REFUSED(mf_tensor_copy(turned, from, &err), MF_ECAPTURE, "copied by the host");
  REFUSED(mf_tensor_fill(turned, &six, &err), MF_ECAPTURE, "filled by the host");
  other_graph_end(0, other_capture_end(0, s)); /* it is a good one */
  use_stream(0, MF_STREAM_DEFAULT);
  expect_filled(shared, 0x55);
  stream_end(0, s);
  mf_tensor *all[] = {turned, shared, from};
  for (int i = 0; i < 3; i++) mf_tensor_release(all[i]);
}

/* What the source's writer leaves is unknown then: the destination stays as it was. */
static void a_wait_that_fails_copies_nothing(void **state) {
  (void)state;
  needs_simulator();
  const mf_stream s = stream_new(0);
  mf_tensor *shared = create(pinned(), NBYTES), *here = create((DLDevice){kDLCPU, 0}, NBYTES);
  memset(data_of(here), 3, NBYTES);
  keep_busy(shared, s);
  sim_ask_reset();
  sim_ask_fail(named("cuEventSynchronize@1:999:once,cuStreamSynchronize@1:999:once",
                     "hipEventSynchronize@1:999:once,hipStreamSynchronize@1:999:once"));
  REFUSED(mf_tensor_copy(here, shared, &err), MF_EDRIVER, "");
  assert_true(sim_ask_faults() > 0);
  sim_ask_reset();
  expect_filled(here, 3);
  write_on(shared, s, 4);
  OK(mf_tensor_copy(here, shared, &err));
  expect_filled(here, 4);
  stream_end(0, s);
  mf_tensor_release(here);
  mf_tensor_release(shared);
}

/* Streams of both devices use pinned memory: who waits for its device waits for all of them. */
static void a_wait_for_it_is_one_for_each_device(void **state) {
  (void)state;
  needs_devices(2);
  needs_simulator();
  const DLDevice second = gpu(1), host = pinned();
  const int64_t theirs = other_stream(1, false);
  mf_tensor *t = create(host, NBYTES);
  int32_t done;
  OK(mf_tensor_acquire(t, theirs, MF_WRITE, &err));
  for (int i = 0; i < 300; i++) other_fill(1, data_of(t), 6, NBYTES, theirs);
  OK(mf_stream_query(&second, theirs, &done, &err));
  assert_int_equal(done, 0);
  OK(mf_device_synchronize(&host, &err));
  OK(mf_stream_query(&second, theirs, &done, &err));
  assert_int_equal(done, 1);
  OK(mf_tensor_acquire(t, theirs, MF_WRITE, &err));
  other_fill(1, data_of(t), 7, NBYTES, theirs);
  other_stream_end(theirs); /* which breaks a promise, and the remedy is to wait for the memory's device */
  REFUSED(mf_tensor_acquire(t, MF_STREAM_HOST, MF_READ, &err), MF_EINVAL, "mf_device_synchronize");
  sim_ask_reset();
  OK(mf_device_synchronize(&mf_tensor_dltensor(t)->device, &err));
  OK(mf_tensor_acquire(t, MF_STREAM_HOST, MF_READ, &err));
  expect_filled(t, 7);
  mf_tensor_release(t);
}

/* A wait that fails on one device is one for the others all the same. Of two that fail the first is told. */
static void a_wait_that_fails_is_told(void **state) {
  (void)state;
  needs_devices(2);
  needs_simulator();
  const DLDevice host = pinned();
  mf_tensor *t[] = {create(gpu(0), NBYTES), create(gpu(1), NBYTES)};
  const char *name = named("cuCtxSynchronize", "hipDeviceSynchronize");
  char rules[128];
  for (int failing = 1; failing <= 2; failing++) {
    snprintf(rules, sizeof rules, "%s@%d:999,%s@%d:400", name, failing, name, failing); /* the next one gets the 400 */
    sim_ask_fail(rules);
    FAILS(mf_device_synchronize(&host, &err), MF_EDRIVER);
    assert_int_equal(err.driver_code, 999);
    sim_ask_reset();
  }
  for (int i = 0; i < 2; i++) mf_tensor_release(t[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(what_is_asked_for_on_a_stream_is_done_there),
      SPEC(the_host_waits_for_another_threads_stream),
      SPEC(memory_is_not_reused_under_it),
      SPEC(an_owner_is_not_told_too_early),
      SPEC(the_host_reads_beside_a_device_that_reads),
      SPEC(a_reader_is_not_forgotten_when_the_host_reads),
      SPEC(the_host_overwrites_what_was_read),
      SPEC(the_host_overwrites_half_bytes_that_were_read),
      SPEC(the_host_reads_half_bytes_that_were_written),
      SPEC(the_host_reads_half_bytes_beside_a_device_that_reads),
      SPEC(a_wait_that_fails_changes_no_half_bytes),
      SPEC(no_capture_has_what_the_host_does),
      SPEC(a_wait_that_fails_copies_nothing),
      SPEC(a_wait_for_it_is_one_for_each_device),
      SPEC(a_wait_that_fails_is_told),
  };
  return RUN(tests);
}
