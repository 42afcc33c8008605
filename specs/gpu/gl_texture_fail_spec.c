/* gl_texture_fail_spec.c: what is refused of OpenGL's textures, and what each failure, a capture, a second thread, a
 * trim and a fork leave. */
#include "gl_picture.h"

#include <pthread.h>

static void misuse(void **state) {
  (void)state;
  static const gl_form srgb = {GL_SRGB8_ALPHA8_, 0x1908, 0x1401, 4, 1};
  const unsigned texture = new_texture(rgba8, 0), odd = gl_texture(&srgb, 4, 4, NULL);
  const DLDevice device = gpu(0), host = {kDLCPU, 0};
  mf_gl_texture *x = opened(texture, 0), *reads = opened(texture, MF_GL_READ), *writes = opened(texture, MF_GL_DISCARD);
  mf_gl_texture *none;
  mf_tensor *t = picture(device, rgba8, 2, 2), *halves = picture(device, &gl_forms[4], 2, 2);
  mf_tensor *gray = picture(device, &gl_forms[0], 2, 2), *flat, *locked, *gone, *lost;
  OK(mf_tensor_reshape(t, (int64_t[]){16}, 1, &flat, &err));
  OK(mf_tensor_as_readonly(t, &locked, &err));
  REFUSED(mf_gl_texture_upload(x, halves, 0, 0, 0, &err), MF_EDTYPE, "dtype is float16; the texture's uint8 expected");
  REFUSED(mf_gl_texture_upload(x, gray, 0, 0, 0, &err), MF_EINVAL, "the tensor has 1 channels; the texture's 4");
  REFUSED(mf_gl_texture_upload(x, flat, 0, 0, 0, &err), MF_EINVAL, "ndim is 1; 3 (height, width, channels)");
  REFUSED(mf_gl_texture_upload(reads, t, 0, 0, 0, &err), MF_EINVAL, "opened with MF_GL_READ; 0 or MF_GL_DISCARD");
  REFUSED(mf_gl_texture_download(writes, t, 0, 0, 0, &err), MF_EINVAL, "opened with MF_GL_DISCARD; 0 or MF_GL_READ");
  FAILS(mf_gl_texture_download(x, locked, 0, 0, 0, &err), MF_EREADONLY);
  OK(mf_gl_texture_download(reads, t, 0, 0, 0, &err));
  OK(mf_gl_texture_upload(writes, locked, 0, 0, 0, &err));
  REFUSED(mf_gl_texture_upload(x, t, 0, 0, MF_STREAM_HOST, &err), MF_EINVAL, "stream is -2");
  REFUSED(mf_gl_texture_open(&host, texture, 0, 0, &none, &err), MF_EINVAL, "device is cpu");
  REFUSED(mf_gl_texture_open(&device, texture, 0, 3, &none, &err), MF_EINVAL, "flags is 3");
  FAILS(mf_gl_texture_open(&device, 99999, 0, 0, &none, &err), MF_EDRIVER);
  FAILS(mf_gl_texture_open(&device, texture, 0x84F5, 0, &none, &err), MF_EDRIVER); /* no rectangle */
  FAILS(mf_gl_texture_open(&device, odd, 0, 0, &none, &err), MF_EDRIVER);
  assert_null(none);
  const DLTensor mine = {.data = got, .ndim = 3, .shape = (int64_t[]){2, 2, 4}, .dtype = {kDLUInt, 8, 1}};
  OK(mf_tensor_wrap(&mine, 0, NULL, NULL, &gone, &err));
  OK(mf_tensor_invalidate(gone, NULL, &err));
  FAILS(mf_gl_texture_upload(x, gone, 0, 0, 0, &err), MF_ECLOSED);
  FAILS(mf_gl_texture_download(x, gone, 0, 0, 0, &err), MF_ECLOSED);
  const DLTensor there = {.data = data_of(t), .device = device, .ndim = 3, .shape = mine.shape, .dtype = mine.dtype};
  OK(mf_tensor_wrap(&there, 0, NULL, NULL, &lost, &err));
  OK(mf_tensor_invalidate(lost, NULL, &err));
  FAILS(mf_gl_texture_upload(x, lost, 0, 0, 0, &err), MF_ECLOSED);
  mf_tensor *all[] = {t, halves, gray, flat, locked, gone, lost};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
  OK(mf_gl_texture_close(x, &err));
  OK(mf_gl_texture_close(reads, &err));
  OK(mf_gl_texture_close(writes, &err));
  OK(mf_gl_texture_close(NULL, &err));
  assert_int_equal(sim_ask_findings(), 0);
  gl_delete_texture(texture);
  gl_delete_texture(odd);
}

/* A capture forbids it: nothing is queued in it, and it stays whole. */
static void a_capture_is_left_whole(void **state) {
  (void)state;
  const unsigned texture = new_texture(rgba8, 0);
  mf_gl_texture *x = opened(texture, 0);
  const int64_t s = other_stream(0, false);
  mf_tensor *t = picture(gpu(0), rgba8, HEIGHT, WIDTH), *host = picture((DLDevice){kDLCPU, 0}, rgba8, HEIGHT, WIDTH);
  mf_tensor *each[] = {t, host};
  fill(host, 3);
  for (size_t i = 0; i < COUNT(each); i++) {
    fill(t, 3); /* on another stream, for which the captured one would have to wait */
    other_capture(0, s);
    REFUSED(mf_gl_texture_upload(x, each[i], 0, 0, s, &err), MF_ECAPTURE, "is being captured");
    REFUSED(mf_gl_texture_download(x, each[i], 0, 0, s, &err), MF_ECAPTURE, "is being captured");
    assert_true(other_capture_is_whole(0, s));
    other_graph_end(0, other_capture_end(0, s));
  }
  /* beside it all can be done */
  const mf_stream mine = stream_new(0);
  up(x, t, mine); /* the first use makes what is kept */
  other_capture(0, s);
  up(x, t, mine);
  OK(mf_gl_texture_close(x, &err));
  x = opened(texture, 0);
  assert_true(other_capture_is_whole(0, s));
  other_graph_end(0, other_capture_end(0, s));
  /* one that used the tensor keeps it */
  other_capture(0, s);
  write_on(t, s, 6);
  FAILS(mf_gl_texture_upload(x, t, 0, 0, mine, &err), MF_ECAPTURE);
  assert_true(other_capture_is_whole(0, s));
  expect_captured(t, s, 6);
  up(x, t, mine);
  memset(pixels, 6, WIDTH * HEIGHT * 4);
  expect_texture(texture, rgba8);
  mf_tensor_release(t);
  mf_tensor_release(host);
  OK(mf_gl_texture_close(x, &err));
  assert_int_equal(sim_ask_findings(), 0);
  other_stream_end(s);
  stream_end(0, mine);
  gl_delete_texture(texture);
}

static mf_stream captured;

static void capture_now(void *unused) {
  (void)unused;
  other_capture(0, captured);
}

static void capture_soon(void *unused) {
  (void)unused;
  sim_ask_at("cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode", 1, capture_now, NULL);
}

/* Uploads on a stream while another one, or the same, begins to be captured. */
static void upload_meanwhile(mf_stream s, const char *words) {
  const unsigned texture = new_texture(rgba8, 0);
  mf_gl_texture *x = opened(texture, 0);
  mf_tensor *host = picture((DLDevice){kDLCPU, 0}, rgba8, HEIGHT, WIDTH);
  fill(host, 3);
  up(x, host, s);
  synchronize(0);
  sim_ask_at("cuMemcpyAsync", "hipMemcpyAsync", 1, capture_soon, NULL);
  REFUSED(mf_gl_texture_upload(x, host, 0, 0, s, &err), MF_ECAPTURE, words);
  assert_true(other_capture_is_whole(0, captured));
  other_graph_end(0, other_capture_end(0, captured));
  up(x, host, s);
  memset(pixels, 3, WIDTH * HEIGHT * 4);
  expect_texture(texture, rgba8);
  mf_tensor_release(host);
  OK(mf_gl_texture_close(x, &err));
  gl_delete_texture(texture);
}

/* As on another thread, when the pixels are on their way to the device: to map the texture on the legacy stream, or on
 * the stream itself, would break it. */
static void a_capture_that_begins_meanwhile_stays_whole(void **state) {
  (void)state;
  needs_simulator();
  captured = other_stream(0, true);
  upload_meanwhile(MF_STREAM_DEFAULT, "legacy");
  upload_meanwhile(captured, "is being captured");
  other_stream_end(captured);
}

/* Each driver call on the way fails once: OpenGL has the texture back, nothing is left, and the next one succeeds. */
static void each_failing_call(void **state) {
  (void)state;
  static const char *const calls[][2] = {
      {"cuGraphicsGLRegisterImage", "hipGraphicsGLRegisterImage"},
      {"cuGraphicsMapResources", "hipGraphicsMapResources"},
      {"cuGraphicsSubResourceGetMappedArray", "hipGraphicsSubResourceGetMappedArray"},
      {"cuArrayGetDescriptor", "hipArrayGetDescriptor"},
      {"cuMemcpy2DAsync", "hipMemcpy2DToArrayAsync"},
      {"cuGraphicsUnmapResources", "hipGraphicsUnmapResources"},
      {"cuGraphicsUnregisterResource", "hipGraphicsUnregisterResource"}};
  const DLDevice device = gpu(0);
  const unsigned texture = new_texture(rgba8, 0);
  mf_tensor *t = picture(device, rgba8, HEIGHT, WIDTH);
  fill(t, 5);
  for (size_t i = 0; i < COUNT(calls); i++) {
    mf_gl_texture *x = NULL;
    char rule[100];
    snprintf(rule, sizeof rule, "%s@1:999:once", named(calls[i][0], calls[i][1]));
    sim_ask_fail(rule);
    int rc = mf_gl_texture_open(&device, texture, 0, 0, &x, &err), close;
    if (rc == MF_OK) rc = mf_gl_texture_upload(x, t, 0, 0, MF_STREAM_CURRENT, &err);
    close = mf_gl_texture_close(x, rc == MF_OK ? &err : NULL);
    if (rc == MF_OK) rc = close;
    assert_int_equal(rc, MF_EDRIVER);
    assert_string_equal(err.call, named(calls[i][0], calls[i][1]));
    assert_int_equal(err.driver_code, 999);
    assert_int_equal(sim_ask_findings(), 0);
    sim_ask_reset();
    x = opened(texture, 0);
    up(x, t, MF_STREAM_CURRENT);
    OK(mf_gl_texture_close(x, &err));
  }
  memset(pixels, 5, WIDTH * HEIGHT * 4);
  expect_texture(texture, rgba8);
  mf_tensor_release(t);
  gl_delete_texture(texture);
}

/* What was mapped in vain is unmapped on the stream that mapped it: on the legacy stream that would break a capture. */
static void what_was_mapped_in_vain_leaves_a_capture_whole(void **state) {
  (void)state;
  static const char *const calls[][2] = {
      {"cuGraphicsSubResourceGetMappedArray", "hipGraphicsSubResourceGetMappedArray"},
      {"cuMemcpy2DAsync", "hipMemcpy2DToArrayAsync"}};
  const unsigned texture = new_texture(rgba8, 0);
  const mf_stream blocking = other_stream(0, true), s = stream_new(0);
  mf_gl_texture *x = opened(texture, 0);
  mf_tensor *t = picture(gpu(0), rgba8, HEIGHT, WIDTH);
  fill(t, 5);
  up(x, t, s); /* the first use makes what is kept */
  for (size_t i = 0; i < COUNT(calls); i++) {
    char rule[100];
    snprintf(rule, sizeof rule, "%s@1:999:once", named(calls[i][0], calls[i][1]));
    other_capture(0, blocking);
    sim_ask_fail(rule);
    FAILS(mf_gl_texture_upload(x, t, 0, 0, s, &err), MF_EDRIVER);
    assert_int_equal(err.driver_code, 999);
    assert_true(other_capture_is_whole(0, blocking));
    other_graph_end(0, other_capture_end(0, blocking));
    assert_int_equal(sim_ask_findings(), 0);
    sim_ask_reset();
  }
  mf_tensor_release(t);
  OK(mf_gl_texture_close(x, &err));
  other_stream_end(blocking);
  stream_end(0, s);
  gl_delete_texture(texture);
}

/* Of two that fail the first is told. */
static void the_first_failure_is_told(void **state) {
  (void)state;
  const unsigned texture = new_texture(rgba8, 0);
  const char *copy = named("cuMemcpy2DAsync", "hipMemcpy2DToArrayAsync");
  mf_gl_texture *x = opened(texture, 0);
  mf_tensor *t = picture(gpu(0), rgba8, HEIGHT, WIDTH);
  char rules[160];
  snprintf(rules, sizeof rules, "%s@1:999:once,%s@1:998:once", copy,
           named("cuGraphicsUnmapResources", "hipGraphicsUnmapResources"));
  fill(t, 1);
  sim_ask_fail(rules);
  FAILS(mf_gl_texture_upload(x, t, 0, 0, MF_STREAM_CURRENT, &err), MF_EDRIVER);
  assert_string_equal(err.call, copy);
  assert_int_equal(err.driver_code, 999);
  sim_ask_reset();
  mf_tensor *flipped = part(t, MF_INDEX_NONE, MF_INDEX_NONE, -1);
  snprintf(rules, sizeof rules, "%s@1:997:once", named("cuGraphicsMapResources", "hipGraphicsMapResources"));
  sim_ask_fail(rules);
  FAILS(mf_gl_texture_download(x, flipped, 0, 0, MF_STREAM_CURRENT, &err), MF_EDRIVER);
  assert_int_equal(err.driver_code, 997);
  sim_ask_reset();
  mf_tensor_release(flipped);
  mf_tensor_release(t);
  OK(mf_gl_texture_close(x, &err));
  gl_delete_texture(texture);
}

static void no_memory(void **state) {
  (void)state;
  const DLDevice device = gpu(0);
  const unsigned texture = new_texture(rgba8, 0);
  mf_gl_texture *x = opened(texture, 0), *second;
  mf_tensor *base = under(0), *view = seen_as(base, 0); /* goes by memory that is made for it */
  int64_t failures = 0;
  fill(base, 3);
  mf_fault_arm(0, 0);
  FAILS(mf_gl_texture_open(&device, texture, 0, 0, &second, &err), MF_ENOMEM);
  for (int up_too = 0; up_too < 2; up_too++) {
    int rc = MF_ENOMEM;
    for (failures = 0; rc == MF_ENOMEM; failures++) {
      mf_fault_arm(failures, 0);
      rc = up_too ? mf_gl_texture_upload(x, view, 0, 0, 0, &err) : mf_gl_texture_download(x, view, 0, 0, 0, &err);
    }
    mf_fault_arm(-1, 0);
    assert_int_equal(rc, MF_OK);
    assert_true(failures > 1);
  }
  expect_texture(texture, rgba8);
  mf_tensor_release(view);
  mf_tensor_release(base);
  OK(mf_gl_texture_close(x, &err));
  gl_delete_texture(texture);
}

/* Inside of its driver calls: another thread is told that it is taken. */
static mf_gl_texture *held;
static mf_tensor *own;
static int told;

static void *uses_it(void *unused) {
  mf_error e;
  told += mf_gl_texture_upload(held, own, 0, 0, 0, &e) == MF_EINVAL && strstr(e.message, "has the texture") != NULL;
  told += mf_gl_texture_download(held, own, 0, 0, 0, &e) == MF_EINVAL;
  told += mf_gl_texture_close(held, &e) == MF_EINVAL;
  return unused;
}

static void another_thread_uses_it(void *unused) {
  pthread_t thread;
  (void)unused;
  assert_int_equal(pthread_create(&thread, NULL, uses_it, NULL), 0);
  pthread_join(thread, NULL);
}

static void of_two_threads_one_has_it(void **state) {
  (void)state;
  static const char *const calls[][2] = {{"cuGraphicsMapResources", "hipGraphicsMapResources"},
                                         {"cuGraphicsUnmapResources", "hipGraphicsUnmapResources"},
                                         {"cuGraphicsUnregisterResource", "hipGraphicsUnregisterResource"}};
  const unsigned texture = new_texture(rgba8, 0);
  own = picture(gpu(0), rgba8, HEIGHT, WIDTH);
  fill(own, 0);
  for (size_t i = 0; i < COUNT(calls); i++) {
    held = opened(texture, 0);
    told = 0;
    sim_ask_at(calls[i][0], calls[i][1], 1, another_thread_uses_it, NULL);
    up(held, own, MF_STREAM_CURRENT);
    OK(mf_gl_texture_close(held, &err));
    assert_int_equal(told, 3);
  }
  mf_tensor_release(own);
  assert_int_equal(sim_ask_findings(), 0);
  gl_delete_texture(texture);
}

/* A registered texture keeps its device from being given back to the driver; a child has nothing of it. */
static void child_cannot_use_it(void) {
  mf_error e;
  alarm(HANGS_SECONDS);
  if (mf_gl_texture_upload(held, own, 0, 0, 0, &e) == MF_OK) _exit(1);
  if (mf_gl_texture_close(held, &e) == MF_OK) _exit(2);
}

/* A thread's first stream takes memory: without it nothing is done. */
static void *downloads_without_memory(void *stream) {
  mf_error e;
  gl_current(1);
  mf_fault_arm(0, 0);
  const int rc = mf_gl_texture_download(held, own, 0, 0, *(mf_stream *)stream, &e);
  mf_fault_arm(-1, 0);
  gl_current(0);
  return rc == MF_ENOMEM ? NULL : stream;
}

static void no_memory_on_a_new_thread(void **state) {
  (void)state;
  const unsigned texture = new_texture(rgba8, 0);
  mf_stream s = stream_new(0);
  mf_tensor *t = picture(gpu(0), rgba8, HEIGHT, WIDTH);
  pthread_t thread;
  void *wrong;
  held = opened(texture, 0);
  own = part(t, MF_INDEX_NONE, MF_INDEX_NONE, -1);
  gl_current(0);
  assert_int_equal(pthread_create(&thread, NULL, downloads_without_memory, &s), 0);
  pthread_join(thread, &wrong);
  gl_current(1);
  assert_null(wrong);
  mf_tensor_release(own);
  mf_tensor_release(t);
  OK(mf_gl_texture_close(held, &err));
  assert_int_equal(sim_ask_findings(), 0);
  stream_end(0, s);
  gl_delete_texture(texture);
}

static void a_trim_and_a_fork_leave_it_alone(void **state) {
  (void)state;
  const unsigned texture = new_texture(rgba8, 0);
  held = opened(texture, 0);
  OK(mf_pools_trim(0, &err));
  own = picture(gpu(0), rgba8, HEIGHT, WIDTH);
  fill(own, 9);
  in_fork(child_cannot_use_it);
  up(held, own, MF_STREAM_CURRENT);
  memset(pixels, 9, WIDTH * HEIGHT * 4);
  expect_texture(texture, rgba8);
  mf_tensor_release(own);
  OK(mf_gl_texture_close(held, &err));
  gl_delete_texture(texture);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(misuse), SPEC(a_capture_is_left_whole), SPEC(a_capture_that_begins_meanwhile_stays_whole),
      SPEC(each_failing_call), SPEC(what_was_mapped_in_vain_leaves_a_capture_whole), SPEC(the_first_failure_is_told),
      SPEC(no_memory), SPEC(no_memory_on_a_new_thread), SPEC(of_two_threads_one_has_it),
      SPEC(a_trim_and_a_fork_leave_it_alone),
  };
  return RUN(tests);
}
