/* gl_buffer_spec.c: OpenGL's buffers as tensors of a GPU: the bytes both ways, the order between the mapping's stream
 * and others, that the tensor says so when it is over, and what each failure leaves. */
#include "../sim/gl.h"
#include "device.h"

#include <pthread.h>

enum { FLOATS = 16384, SIZE = FLOATS * sizeof(float) };

static float values[FLOATS], got[FLOATS];

/* A GPU's own OpenGL is not what EGL gives without a window. */
static unsigned new_buffer(float first) {
  needs_simulator();
  if (gl_of.context == NULL) gl_open();
  for (int i = 0; i < FLOATS; i++) values[i] = first + (float)i;
  return gl_buffer(values, SIZE, 0);
}

static mf_gl_buffer *opened(unsigned buffer, uint32_t flags) {
  const DLDevice device = gpu(0);
  mf_gl_buffer *b;
  OK(mf_gl_buffer_open(&device, buffer, flags, &b, &err));
  return b;
}

/* With junk in the fields that are not read. */
static DLTensor floats(int64_t *count) {
  static int64_t junk = -3;
  return (DLTensor){.data = &junk, .device = {kDLCPU, 7}, .ndim = 1, .shape = count, .strides = &junk,
                    .dtype = {kDLFloat, 32, 1}};
}

static mf_tensor *mapped(mf_gl_buffer *b, mf_stream s) {
  int64_t count = FLOATS;
  const DLTensor like = floats(&count);
  mf_tensor *t;
  OK(mf_gl_buffer_map(b, s, &like, &t, &err));
  return t;
}

static int32_t unmapped(mf_gl_buffer *b) {
  int32_t in_use = -1;
  OK(mf_gl_buffer_unmap(b, &in_use, &err));
  return in_use;
}

static void bytes_go_both_ways_in_order(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  mf_gl_buffer *b = opened(buffer, 0);
  const mf_stream s = stream_new(0), other = stream_new(0);
  for (uint64_t seed = 0; seed < seeds(20); seed++) {
    sim_ask_seed(seed);
    mf_tensor *t = mapped(b, seed % 4 == 0 ? MF_STREAM_DEFAULT : s);
    const DLDevice device = gpu(0);
    mf_stream current;
    OK(mf_stream_current(&device, &current, &err));
    assert_int_equal(current, MF_STREAM_DEFAULT);
    const DLDevice at = mf_tensor_dltensor(t)->device;
    assert_true(at.device_type == gpu(0).device_type && at.device_id == 0);
    use_stream(0, other); /* which waits for the mapping, and is waited for by its end */
    const mf_scalar value = {.kind = MF_KIND_FLOAT, .f = (double)seed};
    OK(mf_tensor_fill(t, &value, &err));
    use_stream(0, MF_STREAM_DEFAULT);
    assert_int_equal(unmapped(b), 0);
    gl_read(buffer, got, SIZE);
    for (int i = 0; i < FLOATS; i++) assert_true(got[i] == (float)seed);
    assert_true(gl_draw(buffer, FLOATS - 1) == (float)seed);
  }
  assert_int_equal(sim_ask_findings(), 0);
  OK(mf_gl_buffer_close(b, &err));
  stream_end(0, s);
  stream_end(0, other);
  gl_delete(buffer);
}

static void the_gpu_reads_what_opengl_wrote(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(3);
  mf_gl_buffer *b = opened(buffer, MF_GL_BUFFER_READ);
  int64_t count = FLOATS - 10;
  DLTensor like = floats(&count);
  const mf_request host = {.device = {kDLCPU, 0}};
  const mf_scalar value = {.kind = MF_KIND_FLOAT, .f = 1};
  mf_tensor *t, *copy;
  like.byte_offset = 10 * sizeof(float);
  OK(mf_gl_buffer_map(b, MF_STREAM_CURRENT, &like, &t, &err));
  FAILS(mf_tensor_fill(t, &value, &err), MF_EREADONLY);
  OK(mf_tensor_to(t, &host, &copy, &err));
  assert_memory_equal(data_of(copy), values + 10, SIZE - 10 * sizeof(float));
  mf_tensor_release(copy);
  OK(mf_gl_buffer_close(b, &err)); /* unmaps it */
  gl_delete(buffer);
}

static void a_tensor_says_that_it_is_over(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  mf_gl_buffer *b = opened(buffer, 0);
  mf_tensor *t = mapped(b, MF_STREAM_DEFAULT), *view, *none;
  const mf_scalar value = {.kind = MF_KIND_FLOAT, .f = 1};
  OK(mf_tensor_reshape(t, (int64_t[]){128, FLOATS / 128}, 2, &view, &err));
  assert_int_equal(unmapped(b), 1);
  FAILS(mf_tensor_fill(view, &value, &err), MF_ECLOSED);
  FAILS(mf_tensor_reshape(view, (int64_t[]){FLOATS}, 1, &none, &err), MF_ECLOSED);
  mf_tensor_release(view);
  (void)mapped(b, MF_STREAM_DEFAULT);
  assert_int_equal(unmapped(b), 0);
  int32_t in_use = 5;
  REFUSED(mf_gl_buffer_unmap(b, &in_use, &err), MF_EINVAL, "is not mapped");
  assert_int_equal(in_use, 0);
  OK(mf_gl_buffer_close(b, &err));
  gl_delete(buffer);
}

/* Work that was announced only to the tensor's record is waited for by the unmapping. */
static void whoever_acquired_it_is_waited_for(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  mf_gl_buffer *b = opened(buffer, MF_GL_BUFFER_DISCARD);
  const mf_stream s = stream_new(0);
  for (uint64_t seed = 0; seed < seeds(20); seed++) {
    sim_ask_seed(seed);
    mf_tensor *t = mapped(b, MF_STREAM_DEFAULT);
    OK(mf_tensor_acquire(t, s, MF_WRITE, &err));
    other_fill(0, data_of(t), 7, SIZE, s);
    assert_int_equal(unmapped(b), 0);
    gl_read(buffer, got, SIZE);
    for (size_t i = 0; i < SIZE; i++) assert_int_equal(((unsigned char *)got)[i], 7);
  }
  unsigned char *seen = other_pinned(SIZE);
  mf_tensor *t = mapped(b, MF_STREAM_DEFAULT);
  fill(t, 0);
  OK(mf_tensor_acquire(t, s, MF_READ, &err)); /* who reads is waited for, too */
  other_copy(0, seen, data_of(t), SIZE, s);
  assert_int_equal(unmapped(b), 0);
  other_sync_all(0);
  other_pinned_free(seen);
  assert_int_equal(sim_ask_findings(), 0);
  OK(mf_gl_buffer_close(b, &err));
  other_sync_all(0);
  stream_end(0, s);
  gl_delete(buffer);
}

static void misuse(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  mf_gl_buffer *b = opened(buffer, 0), *none;
  const DLDevice device = gpu(0), host = {kDLCPU, 0}, shared = pinned(), far = gpu(63);
  int64_t count = FLOATS + 1;
  DLTensor like = floats(&count);
  mf_tensor *t;
  REFUSED(mf_gl_buffer_map(b, MF_STREAM_DEFAULT, &like, &t, &err), MF_EINVAL, "do not fit");
  assert_null(t);
  REFUSED(mf_gl_buffer_map(b, MF_STREAM_HOST, &like, &t, &err), MF_EINVAL, "stream is -2");
  count = -1;
  FAILS(mf_gl_buffer_map(b, MF_STREAM_DEFAULT, &like, &t, &err), MF_EINVAL);
  count = 0;
  like.byte_offset = SIZE;
  OK(mf_gl_buffer_map(b, MF_STREAM_DEFAULT, &like, &t, &err)); /* nothing, at the very end */
  assert_int_equal(unmapped(b), 0);
  if (other_devices() > 1) {
    const mf_stream elsewhere = stream_new(1);
    FAILS(mf_gl_buffer_map(b, elsewhere, &like, &t, &err), MF_EINVAL);
    assert_null(t);
    stream_end(1, elsewhere);
  }
  t = mapped(b, MF_STREAM_DEFAULT);
  REFUSED(mf_gl_buffer_map(b, MF_STREAM_DEFAULT, &like, &t, &err), MF_EINVAL, "the buffer is mapped");
  assert_null(t);
  REFUSED(mf_gl_buffer_open(&host, buffer, 0, &none, &err), MF_EINVAL, "device is cpu");
  REFUSED(mf_gl_buffer_open(&shared, buffer, 0, &none, &err), MF_EINVAL, "a GPU's own memory expected");
  FAILS(mf_gl_buffer_open(&far, buffer, 0, &none, &err), MF_EDEVICE);
  REFUSED(mf_gl_buffer_open(&device, buffer, 3, &none, &err), MF_EINVAL, "flags is 3");
  FAILS(mf_gl_buffer_open(&device, 99999, 0, &none, &err), MF_EDRIVER);
  gl_current(0);
  FAILS(mf_gl_buffer_open(&device, buffer, 0, &none, &err), MF_EDRIVER);
  assert_int_equal(err.driver_code, 219);
  gl_current(1);
  assert_null(none);
  OK(mf_gl_buffer_close(b, &err));
  OK(mf_gl_buffer_close(NULL, &err));
  gl_delete(buffer);
}

/* Each driver call on the way fails once; nothing is left, and the next attempt succeeds. */
static void each_failing_call(void **state) {
  (void)state;
  static const char *const calls[][2] = {{"cuGraphicsGLRegisterBuffer", "hipGraphicsGLRegisterBuffer"},
                                         {"cuGraphicsMapResources", "hipGraphicsMapResources"},
                                         {"cuGraphicsResourceGetMappedPointer", "hipGraphicsResourceGetMappedPointer"},
                                         {"cuGraphicsUnmapResources", "hipGraphicsUnmapResources"},
                                         {"cuGraphicsUnregisterResource", "hipGraphicsUnregisterResource"}};
  const DLDevice device = gpu(0);
  int64_t count = FLOATS;
  const DLTensor like = floats(&count);
  const unsigned buffer = new_buffer(0);
  const mf_stream s = stream_new(0);
  for (size_t i = 0; i < COUNT(calls); i++) {
    mf_gl_buffer *b = NULL;
    mf_tensor *t = NULL;
    char rule[100];
    snprintf(rule, sizeof rule, "%s@1:999:once", named(calls[i][0], calls[i][1]));
    sim_ask_fail(rule);
    int rc = mf_gl_buffer_open(&device, buffer, 0, &b, &err), close;
    if (rc == MF_OK) rc = mf_gl_buffer_map(b, s, &like, &t, &err);
    if (t != NULL) rc = mf_gl_buffer_unmap(b, NULL, &err);
    close = mf_gl_buffer_close(b, rc == MF_OK ? &err : NULL);
    if (rc == MF_OK) rc = close;
    assert_int_equal(rc, MF_EDRIVER);
    assert_int_equal(err.driver_code, 999);
    assert_string_equal(err.call, named(calls[i][0], calls[i][1]));
    if (i == 2) assert_int_equal(sim_ask_findings(), 0); /* it was unmapped before it was given back */
    sim_ask_reset();
    b = opened(buffer, 0);
    (void)mapped(b, s);
    OK(mf_gl_buffer_close(b, &err));
    assert_int_equal(sim_ask_findings(), 0);
  }
  stream_end(0, s);
  gl_delete(buffer);
}

static void no_memory(void **state) {
  (void)state;
  const DLDevice device = gpu(0);
  int64_t count = FLOATS, failures = 0;
  const DLTensor like = floats(&count);
  const unsigned buffer = new_buffer(0);
  mf_gl_buffer *b = opened(buffer, 0), *second;
  mf_tensor *t;
  mf_fault_arm(0, 0);
  FAILS(mf_gl_buffer_open(&device, buffer, 0, &second, &err), MF_ENOMEM);
  for (int rc = MF_ENOMEM; rc == MF_ENOMEM; failures++) {
    mf_fault_arm(failures, 0);
    rc = mf_gl_buffer_map(b, MF_STREAM_DEFAULT, &like, &t, &err);
  }
  mf_fault_arm(-1, 0);
  assert_true(failures > 1 && t != NULL);
  OK(mf_gl_buffer_close(b, &err));
  gl_delete(buffer);
}

/* A registered buffer keeps its device from being given back to the driver. */
static void a_trim_leaves_it_alone(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(5);
  mf_gl_buffer *b = opened(buffer, 0);
  OK(mf_pools_trim(0, &err));
  mf_tensor *t = mapped(b, MF_STREAM_DEFAULT);
  const mf_request host = {.device = {kDLCPU, 0}};
  mf_tensor *copy;
  OK(mf_tensor_to(t, &host, &copy, &err));
  assert_memory_equal(data_of(copy), values, SIZE);
  mf_tensor_release(copy);
  OK(mf_gl_buffer_close(b, &err));
  gl_delete(buffer);
}

static void expect_floats(unsigned buffer, uint64_t value) {
  gl_read(buffer, got, SIZE);
  for (int i = 0; i < FLOATS; i++) assert_true(got[i] == (float)value);
}

static void expect_bytes(unsigned buffer, int byte) {
  gl_read(buffer, got, SIZE);
  for (size_t i = 0; i < SIZE; i++) assert_int_equal(((unsigned char *)got)[i], byte);
}

/* A capture forbids to map and to unmap: that is refused, nothing changes, and the capture stays whole. */
static void a_capture_of_its_stream_is_left_whole(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  mf_gl_buffer *b = opened(buffer, 0);
  const int64_t s = other_stream(0, false);
  int64_t count = FLOATS;
  const DLTensor like = floats(&count);
  mf_tensor *t;
  int32_t in_use = 5;
  other_capture(0, s);
  REFUSED(mf_gl_buffer_map(b, s, &like, &t, &err), MF_ECAPTURE, "is being captured");
  assert_null(t);
  assert_true(other_capture_is_whole(0, s));
  other_graph_end(0, other_capture_end(0, s));
  t = mapped(b, s);
  fill(t, 4);
  other_capture(0, s);
  REFUSED(mf_gl_buffer_unmap(b, &in_use, &err), MF_ECAPTURE, "is being captured");
  assert_int_equal(in_use, 0);
  REFUSED(mf_gl_buffer_close(b, &err), MF_ECAPTURE, "is being captured");
  assert_true(other_capture_is_whole(0, s));
  other_graph_end(0, other_capture_end(0, s));
  fill(t, 5); /* it is mapped still */
  assert_int_equal(unmapped(b), 0);
  expect_floats(buffer, 5);
  OK(mf_gl_buffer_close(b, &err));
  assert_int_equal(sim_ask_findings(), 0);
  other_stream_end(s);
  gl_delete(buffer);
}

/* What a capture has used cannot go before the capture is over. */
static void a_capture_that_used_it_keeps_it_mapped(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  mf_gl_buffer *b = opened(buffer, 0);
  const mf_stream s = stream_new(0);
  const int64_t other = other_stream(0, false);
  mf_tensor *t = mapped(b, s);
  synchronize(0);
  other_capture(0, other);
  write_on(t, other, 6);
  FAILS(mf_gl_buffer_unmap(b, NULL, &err), MF_ECAPTURE);
  FAILS(mf_gl_buffer_close(b, &err), MF_ECAPTURE);
  assert_true(other_capture_is_whole(0, other));
  expect_captured(t, other, 6);
  assert_int_equal(unmapped(b), 0);
  expect_bytes(buffer, 6);
  OK(mf_gl_buffer_close(b, &err));
  assert_int_equal(sim_ask_findings(), 0);
  other_stream_end(other);
  stream_end(0, s);
  gl_delete(buffer);
}

/* Beside a capture of a stream that has nothing to do with it, all can be done. */
static void a_capture_elsewhere_is_no_concern_of_it(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  const mf_stream s = stream_new(0);
  const int64_t other = other_stream(0, false);
  mf_gl_buffer *b = opened(buffer, 0);
  fill(mapped(b, s), 2); /* the first use makes what is kept */
  assert_int_equal(unmapped(b), 0);
  OK(mf_gl_buffer_close(b, &err));
  for (int mapped_at_end = 0; mapped_at_end < 2; mapped_at_end++) {
    other_capture(0, other);
    b = opened(buffer, 0);
    (void)mapped(b, s);
    assert_true(other_capture_is_whole(0, other));
    if (!mapped_at_end) assert_int_equal(unmapped(b), 0);
    OK(mf_gl_buffer_close(b, &err));
    assert_true(other_capture_is_whole(0, other));
    other_graph_end(0, other_capture_end(0, other));
  }
  assert_int_equal(sim_ask_findings(), 0);
  other_stream_end(other);
  stream_end(0, s);
  gl_delete(buffer);
}

/* Between mapping and unmapping */

static mf_gl_buffer *held; /* which what happens there uses */

static void child_ends_what_it_has(void) {
  int64_t count = FLOATS;
  const DLTensor like = floats(&count);
  mf_tensor *t;
  mf_error e;
  alarm(20);
  if (mf_gl_buffer_map(held, MF_STREAM_DEFAULT, &like, &t, &e) == MF_OK) _exit(1);
  if (mf_gl_buffer_unmap(held, NULL, &e) == MF_OK) _exit(2);
  if (mf_gl_buffer_close(held, &e) == MF_OK) _exit(3);
}

static void forks(void *unused) {
  (void)unused;
  in_fork(child_ends_what_it_has);
}

static void *trims_in_thread(void *unused) {
  OK(mf_pools_trim(0, &err));
  return unused;
}

static void another_thread_trims(void *unused) {
  pthread_t thread;
  (void)unused;
  assert_int_equal(pthread_create(&thread, NULL, trims_in_thread, NULL), 0);
  pthread_join(thread, NULL);
}

static void trims(void *unused) {
  (void)trims_in_thread(unused);
}

/* Maps on one stream, uses on another and unmaps, where the event strikes at that driver call. */
static bool maps_with(void (*happen)(void *ctx), uint64_t call, unsigned buffer) {
  const mf_stream s = stream_new(0), other = stream_new(0);
  const uint64_t before = sim_ask_calls(NULL);
  sim_ask_at("*", "*", call, happen, NULL);
  mf_tensor *t = mapped(held, s);
  use_stream(0, other);
  fill(t, call % 100);
  use_stream(0, MF_STREAM_DEFAULT);
  assert_int_equal(unmapped(held), 0);
  const bool happened = sim_ask_calls(NULL) - before >= call;
  sim_ask_at("*", "*", 1, NULL, NULL);
  expect_floats(buffer, call % 100);
  assert_int_equal(sim_ask_findings(), 0);
  stream_end(0, s);
  stream_end(0, other);
  return happened;
}

static void each_call_with(void (*happen)(void *ctx)) {
  const unsigned buffer = new_buffer(0);
  uint64_t call = 1;
  held = opened(buffer, 0);
  while (maps_with(happen, call, buffer)) call++;
  assert_true(call > 4);
  OK(mf_gl_buffer_close(held, &err));
  gl_delete(buffer);
}

static void a_fork_in_between(void **state) {
  (void)state;
  each_call_with(forks);
  /* and while it is mapped */
  const unsigned buffer = new_buffer(0);
  held = opened(buffer, 0);
  fill(mapped(held, MF_STREAM_DEFAULT), 9);
  in_fork(child_ends_what_it_has);
  assert_int_equal(unmapped(held), 0);
  OK(mf_gl_buffer_close(held, &err));
  expect_floats(buffer, 9);
  gl_delete(buffer);
}

static void a_trim_in_between(void **state) {
  (void)state;
  each_call_with(trims);
  each_call_with(another_thread_trims);
}

/* One maps it, the other is told so, and where it would have been mapped stays unknown. */
static int told;
static mf_stream elsewhere;

static void *maps_and_ends_it(void *unused) {
  int64_t count = FLOATS;
  const DLTensor like = floats(&count);
  mf_tensor *t;
  mf_error e;
  told += mf_gl_buffer_map(held, elsewhere, &like, &t, &e) == MF_EINVAL && t == NULL;
  told += mf_gl_buffer_unmap(held, NULL, &e) == MF_EINVAL;
  told += mf_gl_buffer_close(held, &e) == MF_EINVAL;
  return unused;
}

static void another_thread_maps(void *unused) {
  pthread_t thread;
  (void)unused;
  assert_int_equal(pthread_create(&thread, NULL, maps_and_ends_it, NULL), 0);
  pthread_join(thread, NULL);
}

static void of_two_threads_one_has_it(void **state) {
  static const char *const calls[][2] = {{"cuGraphicsMapResources", "hipGraphicsMapResources"},
                                         {"cuGraphicsUnmapResources", "hipGraphicsUnmapResources"},
                                         {"cuGraphicsUnregisterResource", "hipGraphicsUnregisterResource"}};
  (void)state;
  const unsigned buffer = new_buffer(0);
  const mf_stream s = stream_new(0);
  elsewhere = stream_new(0);
  for (size_t i = 0; i < COUNT(calls); i++) {
    held = opened(buffer, 0);
    told = 0;
    sim_ask_at(calls[i][0], calls[i][1], 1, another_thread_maps, NULL);
    fill(mapped(held, s), i);
    assert_int_equal(unmapped(held), 0);
    OK(mf_gl_buffer_close(held, &err));
    assert_int_equal(told, 3);
    expect_floats(buffer, i);
  }
  assert_int_equal(sim_ask_findings(), 0);
  stream_end(0, s);
  stream_end(0, elsewhere);
  gl_delete(buffer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(bytes_go_both_ways_in_order), SPEC(the_gpu_reads_what_opengl_wrote), SPEC(a_tensor_says_that_it_is_over),
      SPEC(whoever_acquired_it_is_waited_for), SPEC(misuse), SPEC(each_failing_call), SPEC(no_memory),
      SPEC(a_trim_leaves_it_alone), SPEC(a_capture_of_its_stream_is_left_whole),
      SPEC(a_capture_that_used_it_keeps_it_mapped), SPEC(a_capture_elsewhere_is_no_concern_of_it),
      SPEC(a_fork_in_between), SPEC(a_trim_in_between), SPEC(of_two_threads_one_has_it),
  };
  return RUN(tests);
}
