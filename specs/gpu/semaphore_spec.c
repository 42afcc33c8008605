/* semaphore_spec.c: semaphores of another API on streams of a GPU: who waits, and who does not; that the driver's
 * object ends behind its work; misuse, captures, and each failing call. The other API is the simulator, because no
 * driver of Vulkan's for the CPU exports one. */
#include "device.h"
#include "left.h"
#include "made_at.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>

enum { NBYTES = 4096 };

static int fd; /* as the other API keeps it */

static mf_semaphore *imported(bool binary) {
  const DLDevice device = gpu(0);
  mf_semaphore *s;
  needs_simulator();
  fd = sim_ask_semaphore(0, binary);
  assert_true(fd >= 0);
  const int given = dup(fd);
  OK(mf_semaphore_from_fd(&device, given, binary ? MF_SEMAPHORE_BINARY : 0, &s, &err));
  assert_true(fcntl(given, F_GETFD) < 0);
  return s;
}

static void release(mf_semaphore *s) {
  mf_semaphore_release(s);
  sync_all();
  trim(gpu(0));
  close(fd);
}

static bool is_done(mf_stream stream) {
  const DLDevice device = gpu(0);
  int32_t done;
  OK(mf_stream_query(&device, stream, &done, &err));
  return done != 0;
}

/* Frames of an engine: it writes, the GPU works on that, it goes on; the host waits for nothing. */
static void frames(void **state) {
  (void)state;
  mf_semaphore *s = imported(false);
  const mf_stream stream = stream_new(0), other = stream_new(0);
  mf_tensor *t = create(gpu(0), NBYTES);
  for (uint64_t frame = 0; frame < seeds(20); frame++) {
    sim_ask_seed(frame);
    const uint64_t waits = host_waits(), drawn = 2 * frame + 1, moved = 2 * frame + 2;
    OK(mf_semaphore_wait(s, stream, drawn, &err));
    OK(mf_tensor_record(t, stream, MF_WRITE, &err));
    write_on(t, other, (int)frame); /* behind the wait, because of the record */
    OK(mf_tensor_acquire(t, stream, MF_WRITE, &err));
    OK(mf_semaphore_signal(s, stream, moved, &err));
    for (int i = 0; i < 20; i++) assert_true(!is_done(other) && !is_done(stream));
    assert_true(sim_ask_semaphore_value(fd) < drawn);
    sim_ask_semaphore_signal(fd, drawn); /* the engine has drawn */
    while (!is_done(stream)) continue;
    assert_int_equal(host_waits(), waits);
    assert_int_equal(sim_ask_semaphore_value(fd), moved);
    expect_filled(t, (int)frame);
  }
  assert_int_equal(sim_ask_findings(), 0);
  mf_tensor_release(t);
  stream_end(0, stream);
  stream_end(0, other);
  release(s);
}

/* ctx: how often the host had waited before it waits for this. */
static void *signal_one(void *ctx) {
  while (host_waits() == *(const uint64_t *)ctx) sched_yield();
  sim_ask_semaphore_signal(fd, 1);
  return NULL;
}

/* What is queued with it may still be waiting when it is released; it ends behind that. */
static void it_ends_behind_its_work(void **state) {
  (void)state;
  mf_semaphore *s = imported(false);
  const DLDevice device = gpu(0);
  const mf_stream stream = stream_new(0);
  pthread_t engine;
  const uint64_t ends = sim_ask_calls(named("cuDestroyExternalSemaphore", "hipDestroyExternalSemaphore"));
  OK(mf_semaphore_wait(s, stream, 1, &err));
  OK(mf_semaphore_signal(s, stream, 2, &err));
  mf_semaphore_release(s);
  trim(gpu(0));
  assert_int_equal(sim_ask_calls(named("cuDestroyExternalSemaphore", "hipDestroyExternalSemaphore")), ends);
  uint64_t waits = host_waits();
  assert_int_equal(pthread_create(&engine, NULL, signal_one, &waits), 0);
  OK(mf_stream_synchronize(&device, stream, &err));
  assert_int_equal(pthread_join(engine, NULL), 0);
  trim(gpu(0));
  assert_int_equal(sim_ask_calls(named("cuDestroyExternalSemaphore", "hipDestroyExternalSemaphore")), ends + 1);
  assert_int_equal(sim_ask_semaphore_value(fd), 2);
  assert_int_equal(sim_ask_findings(), 0);
  stream_end(0, stream);
  close(fd);
}

/* One stream waits for what another signals later: a stream that had to wait for the other would never come to it. */
static void its_uses_order_nothing(void **state) {
  (void)state;
  mf_semaphore *s = imported(false);
  const mf_stream waits = stream_new(0), signals = stream_new(0);
  const DLDevice device = gpu(0);
  OK(mf_semaphore_wait(s, waits, 1, &err));
  OK(mf_semaphore_signal(s, signals, 1, &err));
  for (int i = 0; i < 100000 && !is_done(signals); i++) sched_yield();
  assert_true(is_done(signals));
  OK(mf_stream_synchronize(&device, waits, &err));
  assert_int_equal(sim_ask_semaphore_value(fd), 1);
  release(s);
  stream_end(0, waits);
  stream_end(0, signals);
}

/* Each call is made on the device that it is imported for. */
static void one_of_another_gpu(void **state) {
  (void)state;
  needs_devices(2);
  needs_simulator();
  const DLDevice device = gpu(1);
  const mf_stream stream = stream_new(1);
  mf_semaphore *s;
  fd = sim_ask_semaphore(0, false);
  looks_begin(1);
  look_at("cuImportExternalSemaphore", "hipImportExternalSemaphore");
  look_at("cuSignalExternalSemaphoresAsync", "hipSignalExternalSemaphoresAsync");
  look_at("cuWaitExternalSemaphoresAsync", "hipWaitExternalSemaphoresAsync");
  look_at("cuDestroyExternalSemaphore", "hipDestroyExternalSemaphore");
  OK(mf_semaphore_from_fd(&device, dup(fd), 0, &s, &err));
  OK(mf_semaphore_signal(s, stream, 1, &err));
  OK(mf_semaphore_wait(s, stream, 1, &err));
  OK(mf_stream_synchronize(&device, stream, &err));
  assert_int_equal(sim_ask_semaphore_value(fd), 1);
  release(s);
  assert_int_equal(looks_there, 4);
  assert_int_equal(sim_ask_findings(), 0);
  stream_end(1, stream);
}

static void a_binary_one(void **state) {
  (void)state;
  mf_semaphore *s = imported(true);
  for (int i = 0; i < 3; i++) {
    sim_ask_semaphore_signal(fd, 1);
    OK(mf_semaphore_wait(s, MF_STREAM_CURRENT, 0, &err));
    OK(mf_semaphore_signal(s, MF_STREAM_DEFAULT, 0, &err));
    OK(mf_semaphore_wait(s, MF_STREAM_PER_THREAD, 0, &err));
    synchronize(0);
    assert_int_equal(sim_ask_semaphore_value(fd), 0);
  }
  assert_int_equal(sim_ask_findings(), 0);
  release(s);
}

static void misuse(void **state) {
  (void)state;
  mf_semaphore *s = imported(false), *none = (mf_semaphore *)(uintptr_t)16;
  const DLDevice device = gpu(0), host = {kDLCPU, 0}, far = gpu(63);
  REFUSED(mf_semaphore_from_fd(&host, fd, 0, &none, &err), MF_EINVAL, "device is cpu");
  assert_null(none);
  FAILS(mf_semaphore_from_fd(&far, fd, 0, &none, &err), MF_EDEVICE);
  FAILS(mf_semaphore_from_fd(&far, fd, 2, &none, &err), MF_EDEVICE);
  REFUSED(mf_semaphore_from_fd(&device, fd, 2, &none, &err), MF_EINVAL, "flags is 2");
  REFUSED(mf_semaphore_from_fd(&device, -1, 0, &none, &err), MF_EINVAL, "fd is -1");
  assert_true(fcntl(fd, F_GETFD) >= 0);
  REFUSED(mf_semaphore_wait(s, MF_STREAM_HOST, 1, &err), MF_EINVAL, "stream is -2");
  REFUSED(mf_semaphore_signal(s, MF_STREAM_NO_ORDER, 1, &err), MF_EINVAL, "stream is");
  if (other_devices() > 1) {
    const mf_stream elsewhere = stream_new(1);
    FAILS(mf_semaphore_signal(s, elsewhere, 1, &err), MF_EINVAL);
    stream_end(1, elsewhere);
  }
  const mf_stream stream = stream_new(0);
  other_capture(0, stream);
  REFUSED(mf_semaphore_wait(s, stream, 1, &err), MF_ECAPTURE, "beside the graph");
  FAILS(mf_semaphore_signal(s, stream, 1, &err), MF_ECAPTURE);
  assert_true(other_capture_is_whole(0, stream));
  other_graph_end(0, other_capture_end(0, stream));
  stream_end(0, stream);
  release(s);
  mf_semaphore_release(NULL);
}

static mf_stream captured;
static int until; /* how often the driver is left before the capture begins */

static void capture_then(void) {
  if (--until == 0) other_capture(0, captured);
}

/* Whether another thread's capture of the stream begins within the call, when the driver is left for that time. */
static bool captured_within(mf_semaphore *s, int time, bool signals) {
  until = time;
  when_left = capture_then;
  const int rc = signals ? mf_semaphore_signal(s, captured, (uint64_t)time, &err)
                         : mf_semaphore_wait(s, captured, 0, &err);
  when_left = NULL;
  if (until > 0) {
    assert_int_equal(rc, MF_OK);
    return false;
  }
  if (rc != MF_OK) {
    assert_int_equal(rc, MF_ECAPTURE);
    SAYS("is being captured");
  }
  assert_true(other_capture_is_whole(0, captured));
  other_graph_end(0, other_capture_end(0, captured));
  return true;
}

static void a_capture_that_begins_meanwhile_stays_whole(void **state) {
  (void)state;
  mf_semaphore *s = imported(false);
  captured = other_stream(0, false);
  for (int signals = 0; signals < 2; signals++) {
    int time = 1;
    while (captured_within(s, time, signals)) time++;
    assert_true(time > 1);
  }
  synchronize(0);
  assert_int_equal(sim_ask_findings(), 0);
  release(s);
  other_stream_end(captured);
}

/* Nothing was queued with it, so that it ends when it is released. */
static void what_a_capture_refuses_is_no_use_of_it(void **state) {
  (void)state;
  mf_semaphore *s = imported(false);
  const char *end = named("cuDestroyExternalSemaphore", "hipDestroyExternalSemaphore");
  const int64_t stream = other_stream(0, false);
  const uint64_t ends = sim_ask_calls(end);
  other_capture(0, stream);
  FAILS(mf_semaphore_wait(s, stream, 1, &err), MF_ECAPTURE);
  mf_semaphore_release(s);
  assert_int_equal(sim_ask_calls(end), ends + 1);
  other_graph_end(0, other_capture_end(0, stream));
  other_stream_end(stream);
  close(fd);
}

/* The number that the next descriptor gets. */
static int next_descriptor(void) {
  const int next = dup(fd);
  close(next);
  return next;
}

/* Whichever call fails, the descriptor is still the caller's, the driver's copy of it is closed, the value stays, and
 * the next attempt succeeds. */
static void each_failing_call(void **state) {
  (void)state;
  static const char *const calls[][2] = {
      {"cuImportExternalSemaphore", "hipImportExternalSemaphore"},
      {"cuWaitExternalSemaphoresAsync", "hipWaitExternalSemaphoresAsync"},
      {"cuSignalExternalSemaphoresAsync", "hipSignalExternalSemaphoresAsync"}};
  mf_semaphore *s = imported(false), *second;
  const DLDevice device = gpu(0);
  int64_t failures = 0;
  for (size_t i = 0; i < COUNT(calls); i++) {
    char rule[100];
    const int given = dup(fd), next = next_descriptor();
    snprintf(rule, sizeof rule, "%s@1:999:once", named(calls[i][0], calls[i][1]));
    sim_ask_fail(rule);
    int rc = mf_semaphore_from_fd(&device, given, 0, &second, &err);
    if (i == 0) assert_true(rc != MF_OK && second == NULL && next_descriptor() == next && close(given) == 0);
    if (rc == MF_OK) rc = mf_semaphore_wait(second, MF_STREAM_DEFAULT, 0, &err);
    if (rc == MF_OK) rc = mf_semaphore_signal(second, MF_STREAM_DEFAULT, 1, &err);
    assert_int_equal(rc, MF_EDRIVER);
    assert_string_equal(err.call, named(calls[i][0], calls[i][1]));
    mf_semaphore_release(second);
    synchronize(0);
    assert_int_equal(sim_ask_semaphore_value(fd), 0);
  }
  const int given = dup(fd);
  for (int rc = MF_ENOMEM; rc == MF_ENOMEM; failures++) {
    mf_fault_arm(failures, 0);
    rc = mf_semaphore_from_fd(&device, given, 0, &second, &err);
    assert_true(rc == MF_OK || fcntl(given, F_GETFD) >= 0);
  }
  mf_fault_arm(-1, 0);
  assert_true(failures > 2);
  mf_semaphore_release(second);
  sim_ask_reset();
  release(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(frames), SPEC(it_ends_behind_its_work), SPEC(its_uses_order_nothing), SPEC(one_of_another_gpu),
      SPEC(a_binary_one), SPEC(misuse),
      SPEC(a_capture_that_begins_meanwhile_stays_whole), SPEC(what_a_capture_refuses_is_no_use_of_it),
      SPEC(each_failing_call),
  };
  return RUN(tests);
}
