/* gl_buffer_spec.c: OpenGL's buffers as tensors of a GPU: the bytes both ways, the order between the mapping's stream
 * and others, that the tensor says so when it is over, and what each failure leaves. */
#include "gl_buffer.h"
#include "made_at.h"

#include <pthread.h>

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
  mf_gl_buffer *b = opened(buffer, MF_GL_READ);
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
  mf_gl_buffer *b = opened(buffer, MF_GL_DISCARD);
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
  /* Whatever lies behind the buffer, or nothing, or no address at all. */
  const uint64_t behind[] = {SIZE, SIZE + 4096, UINT64_C(1) << 40, UINT64_MAX};
  count = 1;
  for (size_t i = 0; i < COUNT(behind); i++) {
    like.byte_offset = behind[i];
    REFUSED(mf_gl_buffer_map(b, MF_STREAM_DEFAULT, &like, &t, &err), MF_EINVAL, "do not fit in the buffer's");
    assert_null(t);
  }
  count = 0;
  like.byte_offset = SIZE;
  if (other_devices() > 1) {
    const mf_stream far_stream = stream_new(1);
    const uint64_t maps = sim_ask_calls(named("cuGraphicsMapResources", "hipGraphicsMapResources"));
    FAILS(mf_gl_buffer_map(b, far_stream, &like, &t, &err), MF_EINVAL);
    assert_null(t);
    assert_int_equal(sim_ask_calls(named("cuGraphicsMapResources", "hipGraphicsMapResources")), maps);
    stream_end(1, far_stream);
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

/* Of two that fail the first is told, and the buffer goes back whichever fails. */
static void the_first_failure_is_told(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  const char *question = named("cuStreamGetCaptureInfo", "hipStreamGetCaptureInfo");
  const char *ends[] = {named("cuGraphicsUnmapResources", "hipGraphicsUnmapResources"),
                        named("cuGraphicsUnregisterResource", "hipGraphicsUnregisterResource")};
  const mf_stream s = stream_new(0);
  for (int i = 0; i < 4; i++) {
    char rules[160];
    mf_gl_buffer *b = opened(buffer, 0);
    (void)mapped(b, s);
    if (i < 2) snprintf(rules, sizeof rules, "%s@1:999:once", question);
    else snprintf(rules, sizeof rules, "%s@1:999:once,%s@1:998:once", question, ends[i - 2]);
    sim_ask_fail(rules);
    const int rc = i == 0 || i == 2 ? mf_gl_buffer_unmap(b, NULL, &err) : mf_gl_buffer_close(b, &err);
    assert_int_equal(rc, MF_EDRIVER);
    assert_string_equal(err.call, question);
    assert_int_equal(err.driver_code, 999);
    sim_ask_reset();
    if (i == 0 || i == 2) REFUSED(mf_gl_buffer_unmap(b, NULL, &err), MF_EINVAL, "is not mapped");
    if (i == 0 || i == 2) OK(mf_gl_buffer_close(b, &err));
    sim_ask_reset(); /* one that could not be unmapped was given back mapped */
  }
  stream_end(0, s);
  gl_delete(buffer);
}

/* So it is wherever the stream is asked about, the last time before the driver unmaps. */
static void of_each_question_the_failure_is_told(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  const char *question = named("cuStreamGetCaptureInfo", "hipStreamGetCaptureInfo");
  const mf_stream s = stream_new(0), other = stream_new(0);
  int asked = 0;
  for (bool failed = true; failed; asked += failed) {
    char rules[160];
    mf_gl_buffer *b = opened(buffer, 0);
    mf_tensor *t = mapped(b, s);
    write_on(t, other, 1); /* which the stream has to wait for */
    OK(mf_tensor_record(t, other, MF_WRITE, &err));
    snprintf(rules, sizeof rules, "%s@%d:999:once,%s@1:998:once", question, asked + 1,
             named("cuGraphicsUnmapResources", "hipGraphicsUnmapResources"));
    sim_ask_fail(rules);
    FAILS(mf_gl_buffer_unmap(b, NULL, &err), MF_EDRIVER);
    failed = err.driver_code == 999;
    assert_true(failed || err.driver_code == 998);
    sim_ask_reset();
    OK(mf_gl_buffer_close(b, &err));
    synchronize(0);
    sim_ask_reset(); /* it was given back mapped */
  }
  assert_true(asked > 2);
  stream_end(0, s);
  stream_end(0, other);
  gl_delete(buffer);
}

/* Whatever call fails before the driver unmaps: where the stream cannot be made to wait for another one's work, the
 * host waits for it. */
static void what_fails_gives_no_buffer_back_too_early(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  const char *unmap = named("cuGraphicsUnmapResources", "hipGraphicsUnmapResources");
  const mf_stream s = stream_new(0), other = stream_new(0);
  const mf_request request = {.stream = other};
  int went_back = 0;
  for (unsigned failing = 1;; failing++) {
    char rule[64];
    mf_gl_buffer *b = opened(buffer, 0);
    mf_tensor *t = mapped(b, s);
    DLManagedTensorVersioned *given;
    OK(mf_tensor_export_to(t, &request, &given, &err));
    use_stream(0, other);
    fill(t, failing);
    use_stream(0, MF_STREAM_DEFAULT);
    snprintf(rule, sizeof rule, "*@%u:999:once", failing);
    sim_ask_fail(rule);
    const uint64_t before = sim_ask_calls(unmap);
    const int rc = mf_gl_buffer_unmap(b, NULL, &err);
    const bool went = sim_ask_calls(unmap) > before && (rc == MF_OK || strcmp(err.call, unmap) != 0);
    const bool failed = sim_ask_faults() > 0;
    if (went) assert_int_equal(sim_ask_findings(), 0);
    sim_ask_reset();
    if (went) expect_floats(buffer, failing);
    went_back += went && rc != MF_OK;
    given->deleter(given); /* which waits for nobody */
    OK(mf_gl_buffer_close(b, &err));
    synchronize(0);
    sim_ask_reset(); /* one that could not be unmapped was given back mapped */
    if (!failed) break;
  }
  assert_true(went_back > 3);
  stream_end(0, s);
  stream_end(0, other);
  gl_delete(buffer);
}

/* Each call is made on the device that it is registered with, and the thread's current stream there is what it was. */
static void one_of_another_gpu(void **state) {
  (void)state;
  needs_devices(2);
  const DLDevice device = gpu(1);
  const unsigned buffer = new_buffer(0);
  const mf_stream s = stream_new(1), current = stream_new(1);
  int64_t count = FLOATS;
  const DLTensor like = floats(&count);
  mf_gl_buffer *b;
  mf_tensor *t;
  mf_stream now;
  use_stream(1, current);
  looks_begin(1);
  for (int unmaps = 0; unmaps < 2; unmaps++) {
    look_at("cuGraphicsGLRegisterBuffer", "hipGraphicsGLRegisterBuffer");
    look_at("cuGraphicsMapResources", "hipGraphicsMapResources");
    look_at("cuGraphicsUnmapResources", "hipGraphicsUnmapResources");
    look_at("cuGraphicsUnregisterResource", "hipGraphicsUnregisterResource");
    OK(mf_gl_buffer_open(&device, buffer, 0, &b, &err));
    OK(mf_gl_buffer_map(b, s, &like, &t, &err));
    assert_int_equal(mf_tensor_dltensor(t)->device.device_id, 1);
    fill(t, 6);
    if (unmaps) OK(mf_gl_buffer_unmap(b, NULL, &err));
    OK(mf_stream_current(&device, &now, &err));
    assert_int_equal(now, current);
    OK(mf_gl_buffer_close(b, &err));
    expect_floats(buffer, 6);
  }
  assert_int_equal(looks_there, 8);
  assert_int_equal(sim_ask_findings(), 0);
  use_stream(1, MF_STREAM_DEFAULT);
  stream_end(1, s);
  stream_end(1, current);
  gl_delete(buffer);
}

/* That the mode of captures cannot be set is no reason to keep it. */
static void it_goes_back_in_any_mode(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  char rule[96];
  mf_gl_buffer *b = opened(buffer, 0);
  fill(mapped(b, MF_STREAM_DEFAULT), 5);
  synchronize(0);
  snprintf(rule, sizeof rule, "%s:999:on",
           named("cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode"));
  sim_ask_fail(rule);
  OK(mf_gl_buffer_unmap(b, NULL, &err));
  OK(mf_gl_buffer_close(b, &err));
  sim_ask_reset();
  expect_floats(buffer, 5);
  assert_int_equal(sim_ask_findings(), 0);
  gl_delete(buffer);
}

/* Where the device cannot be entered, the driver is not told; but nobody uses the memory from then on. */
static void without_the_device_the_tensor_is_over(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  char rule[64];
  mf_gl_buffer *b = opened(buffer, 0);
  mf_tensor *t = mf_tensor_retain(mapped(b, MF_STREAM_DEFAULT));
  int32_t in_use = 0;
  snprintf(rule, sizeof rule, "%s:999:on", named("cuCtxGetCurrent", "hipGetDevice"));
  sim_ask_fail(rule);
  FAILS(mf_gl_buffer_unmap(b, &in_use, &err), MF_EDRIVER);
  sim_ask_reset();
  assert_int_equal(in_use, 1);
  assert_false(mf_tensor_is_valid(t));
  REFUSED(mf_gl_buffer_unmap(b, NULL, &err), MF_EINVAL, "is not mapped");
  OK(mf_gl_buffer_close(b, &err));
  sim_ask_reset(); /* it was given back mapped */
  mf_tensor_release(t);
  gl_delete(buffer);
}

/* A thread's first stream takes memory: without it nothing is mapped. */
static mf_gl_buffer *on_thread;

static void *maps_without_memory(void *stream) {
  int64_t count = FLOATS;
  const DLTensor like = floats(&count);
  mf_tensor *t;
  mf_error e;
  gl_current(1);
  mf_fault_arm(0, 0);
  const int rc = mf_gl_buffer_map(on_thread, *(mf_stream *)stream, &like, &t, &e);
  mf_fault_arm(-1, 0);
  gl_current(0);
  return rc == MF_ENOMEM && t == NULL ? NULL : stream;
}

static void no_memory_on_a_new_thread(void **state) {
  (void)state;
  const unsigned buffer = new_buffer(0);
  mf_stream s = stream_new(0);
  pthread_t thread;
  void *wrong;
  on_thread = opened(buffer, 0);
  gl_current(0);
  assert_int_equal(pthread_create(&thread, NULL, maps_without_memory, &s), 0);
  pthread_join(thread, &wrong);
  gl_current(1);
  assert_null(wrong);
  OK(mf_gl_buffer_close(on_thread, &err));
  assert_int_equal(sim_ask_findings(), 0);
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
    if (rc != MF_OK) assert_null(t);
  }
  mf_fault_arm(-1, 0);
  assert_true(failures > 2 && t != NULL);
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

/* Memory that has something in it, so that a field which nobody sets shows. */
static void *dirty_realloc(void *ctx, void *ptr, size_t old_nbytes, size_t new_nbytes) {
  unsigned char *now = new_nbytes == 0 ? NULL : malloc(new_nbytes);
  (void)ctx;
  if (now != NULL) memset(now, 0xA5, new_nbytes);
  if (now != NULL && ptr != NULL) memcpy(now, ptr, old_nbytes < new_nbytes ? old_nbytes : new_nbytes);
  if (now != NULL || new_nbytes == 0) free(ptr);
  return now;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(bytes_go_both_ways_in_order), SPEC(the_gpu_reads_what_opengl_wrote), SPEC(a_tensor_says_that_it_is_over),
      SPEC(whoever_acquired_it_is_waited_for), SPEC(misuse), SPEC(each_failing_call), SPEC(the_first_failure_is_told),
      SPEC(of_each_question_the_failure_is_told), SPEC(what_fails_gives_no_buffer_back_too_early),
      SPEC(without_the_device_the_tensor_is_over), SPEC(no_memory), SPEC(one_of_another_gpu),
      SPEC(it_goes_back_in_any_mode),
      SPEC(no_memory_on_a_new_thread), SPEC(a_trim_leaves_it_alone),
  };
  return mf_allocator_set(dirty_realloc, NULL, &err) == MF_OK ? RUN(tests) : 1;
}
