/* gl_texture_spec.c: OpenGL's textures and tensors: the pixels of each format both ways, whatever the strides and
 * wherever the tensor lies, the order between the call's stream and others, and what each failure leaves. */
#include "../sim/gl_texture.h"
#include "device.h"

#include <pthread.h>

enum { WIDTH = 37, HEIGHT = 13, MOST = WIDTH * HEIGHT * 16 };

static unsigned char pixels[MOST], got[MOST];
static const gl_form *const rgba8 = &gl_forms[2];

/* Bytes that are no NaN of any float. */
static void number(const gl_form *f, unsigned first) {
  const int nbytes = WIDTH * HEIGHT * f->channels * f->size;
  for (int i = 0; i < nbytes; i++) pixels[i] = (unsigned char)((i * 5 + (int)first) % 113);
}

static unsigned new_texture(const gl_form *f, unsigned first) {
  needs_simulator();
  if (gl_of.context == NULL) gl_open();
  number(f, first);
  return gl_texture(f, WIDTH, HEIGHT, pixels);
}

static mf_gl_texture *opened(unsigned texture, uint32_t flags) {
  const DLDevice device = gpu(0);
  mf_gl_texture *x;
  OK(mf_gl_texture_open(&device, texture, 0, flags, &x, &err));
  return x;
}

static DLDataType dtype_of(const gl_form *f) {
  return (DLDataType){f->size == 1 ? kDLUInt : kDLFloat, (uint8_t)(f->size * 8), 1};
}

/* A new tensor of a part of a picture; without an axis of channels where there is one alone. */
static mf_tensor *picture(DLDevice device, const gl_form *f, int64_t height, int64_t width) {
  int64_t shape[3] = {height, width, f->channels};
  const DLTensor like = {.device = device, .ndim = f->channels == 1 ? 2 : 3, .shape = shape, .dtype = dtype_of(f)};
  mf_tensor *t;
  OK(mf_tensor_create(&like, 0, &t, &err));
  return t;
}

static mf_tensor *to_device(mf_tensor *t, DLDevice device) {
  const mf_request request = {.device = device, .copy = MF_COPY_ALWAYS};
  mf_tensor *out;
  OK(mf_tensor_to(t, &request, &out, &err));
  return out;
}

static void up(mf_gl_texture *x, mf_tensor *t, mf_stream s) {
  OK(mf_gl_texture_upload(x, t, 0, 0, s, &err));
}

static void expect_texture(unsigned texture, const gl_form *f) {
  gl_read_texture(texture, f, got);
  assert_memory_equal(got, pixels, (size_t)(WIDTH * HEIGHT * f->channels * f->size));
}

/* Down to each kind of memory, other pixels up from it. */
static void one_format(const gl_form *f, DLDevice where, mf_stream s) {
  const size_t nbytes = (size_t)(WIDTH * HEIGHT * f->channels * f->size);
  const DLDevice host = {kDLCPU, 0};
  const unsigned texture = new_texture(f, 1);
  mf_gl_texture *x = opened(texture, 0);
  mf_tensor *t = picture(where, f, HEIGHT, WIDTH), *seen;
  OK(mf_gl_texture_download(x, t, 0, 0, s, &err));
  seen = to_device(t, host);
  assert_memory_equal(data_of(seen), pixels, nbytes);
  number(f, 2);
  memcpy(data_of(seen), pixels, nbytes);
  OK(mf_tensor_copy(t, seen, &err));
  up(x, t, s);
  expect_texture(texture, f);
  mf_tensor_release(seen);
  mf_tensor_release(t);
  OK(mf_gl_texture_close(x, &err));
  gl_delete_texture(texture);
}

static void each_format_both_ways(void **state) {
  (void)state;
  needs_simulator();
  const DLDevice places[] = {gpu(0), {kDLCPU, 0}, pinned()};
  const mf_stream s = stream_new(0);
  for (int i = 0; i < GL_FORMS; i++)
    for (size_t k = 0; k < COUNT(places); k++) {
      sim_ask_seed((uint64_t)i);
      one_format(&gl_forms[i], places[k], k == 0 ? s : MF_STREAM_CURRENT);
    }
  assert_int_equal(sim_ask_findings(), 0);
  stream_end(0, s);
}

/* Rows from the top down, planes instead of pixels, and rows with a gap. */
static mf_tensor *seen_as(mf_tensor *t, int how) {
  mf_tensor *view;
  const mf_index flip[] = {{.kind = MF_INDEX_SLICE, .start = MF_INDEX_NONE, .stop = MF_INDEX_NONE, .step = -1}};
  const mf_index narrow[] = {{.kind = MF_INDEX_SLICE, .start = MF_INDEX_NONE, .stop = MF_INDEX_NONE, .step = 1},
                             {.kind = MF_INDEX_SLICE, .start = 2, .stop = 2 + WIDTH, .step = 1}};
  if (how == 0) OK(mf_tensor_index(t, flip, 1, &view, &err));
  else if (how == 1) OK(mf_tensor_permute_dims(t, (int32_t[]){1, 2, 0}, 3, &view, &err));
  else OK(mf_tensor_index(t, narrow, 2, &view, &err));
  return view;
}

static mf_tensor *under(int how) {
  int64_t shape[3][3] = {{HEIGHT, WIDTH, 4}, {4, HEIGHT, WIDTH}, {HEIGHT, WIDTH + 5, 4}};
  const DLTensor like = {.device = gpu(0), .ndim = 3, .shape = shape[how], .dtype = {kDLUInt, 8, 1}};
  mf_tensor *t;
  OK(mf_tensor_create(&like, 0, &t, &err));
  return t;
}

static void any_strides_do(void **state) {
  (void)state;
  const char *copies = named("cuMemcpy2DAsync", "hipMemcpy2DToArrayAsync");
  const DLDevice host = {kDLCPU, 0};
  const unsigned texture = new_texture(rgba8, 9);
  mf_gl_texture *x = opened(texture, 0);
  for (int how = 0; how < 3; how++) {
    mf_tensor *base = under(how), *view = seen_as(base, how);
    number(rgba8, 9);
    gl_write_texture(texture, rgba8, WIDTH, HEIGHT, pixels);
    OK(mf_gl_texture_download(x, view, 0, 0, MF_STREAM_CURRENT, &err));
    mf_tensor *seen = to_device(view, host);
    assert_memory_equal(data_of(seen), pixels, WIDTH * HEIGHT * 4);
    number(rgba8, 30);
    memcpy(data_of(seen), pixels, WIDTH * HEIGHT * 4);
    OK(mf_tensor_copy(view, seen, &err));
    const uint64_t before = sim_ask_calls(copies), all = sim_ask_calls(NULL);
    up(x, view, MF_STREAM_CURRENT);
    assert_int_equal(sim_ask_calls(copies) - before, 1);
    if (how == 2) assert_in_range(sim_ask_calls(NULL) - all, 1, 24); /* as it is: nothing is made for it */
    expect_texture(texture, rgba8);
    mf_tensor_release(seen);
    mf_tensor_release(view);
    mf_tensor_release(base);
  }
  OK(mf_gl_texture_close(x, &err));
  assert_int_equal(sim_ask_findings(), 0);
  gl_delete_texture(texture);
}

static void a_part_of_it(void **state) {
  (void)state;
  const unsigned texture = new_texture(rgba8, 4);
  mf_gl_texture *x = opened(texture, 0);
  mf_tensor *t = picture(gpu(0), rgba8, 3, 5), *row = picture(gpu(0), rgba8, 1, WIDTH), *none;
  none = picture(gpu(0), rgba8, 0, 5);
  fill(t, 7);
  OK(mf_gl_texture_upload(x, t, WIDTH - 5, HEIGHT - 3, MF_STREAM_CURRENT, &err));
  for (int y = HEIGHT - 3; y < HEIGHT; y++) memset(pixels + (y * WIDTH + WIDTH - 5) * 4, 7, 20);
  fill(row, 8);
  OK(mf_gl_texture_upload(x, row, 0, 6, MF_STREAM_CURRENT, &err));
  memset(pixels + 6 * WIDTH * 4, 8, WIDTH * 4);
  OK(mf_gl_texture_upload(x, none, 0, HEIGHT, MF_STREAM_CURRENT, &err));
  expect_texture(texture, rgba8);
  REFUSED(mf_gl_texture_upload(x, t, WIDTH - 4, 0, MF_STREAM_CURRENT, &err), MF_EINVAL,
          "5 by 3 pixels from 33, 0 on do not fit in the texture's 37 by 13");
  FAILS(mf_gl_texture_upload(x, t, 0, HEIGHT - 2, MF_STREAM_CURRENT, &err), MF_EINVAL);
  FAILS(mf_gl_texture_upload(x, t, -1, 0, MF_STREAM_CURRENT, &err), MF_EINVAL);
  FAILS(mf_gl_texture_download(x, t, 0, -1, MF_STREAM_CURRENT, &err), MF_EINVAL);
  FAILS(mf_gl_texture_upload(x, t, INT64_MAX, 0, MF_STREAM_CURRENT, &err), MF_EINVAL);
  expect_texture(texture, rgba8);
  mf_tensor_release(none);
  mf_tensor_release(row);
  mf_tensor_release(t);
  OK(mf_gl_texture_close(x, &err));
  assert_int_equal(sim_ask_findings(), 0);
  gl_delete_texture(texture);
}

/* The call's stream waits for what used the tensor, and what uses it next waits for the call. */
static void it_is_ordered_with_other_streams(void **state) {
  (void)state;
  const unsigned texture = new_texture(rgba8, 0);
  mf_gl_texture *x = opened(texture, 0);
  const mf_stream s = stream_new(0), other = stream_new(0);
  mf_tensor *t = picture(gpu(0), rgba8, HEIGHT, WIDTH), *staged = under(1), *view = seen_as(staged, 1);
  mf_tensor *of[] = {t, view};
  for (uint64_t seed = 0; seed < seeds(20); seed++) {
    mf_tensor *one = of[seed % 2];
    sim_ask_seed(seed);
    use_stream(0, other);
    fill(one, seed);
    up(x, one, s);
    fill(one, 99);
    use_stream(0, MF_STREAM_DEFAULT);
    memset(pixels, (int)seed, WIDTH * HEIGHT * 4);
    expect_texture(texture, rgba8);
    OK(mf_gl_texture_download(x, one, 0, 0, s, &err));
    const DLDevice host = {kDLCPU, 0};
    mf_tensor *seen = to_device(one, host);
    assert_memory_equal(data_of(seen), pixels, WIDTH * HEIGHT * 4);
    mf_tensor_release(seen);
  }
  mf_tensor_release(view);
  mf_tensor_release(staged);
  mf_tensor_release(t);
  OK(mf_gl_texture_close(x, &err));
  synchronize(0);
  assert_int_equal(sim_ask_findings(), 0);
  stream_end(0, s);
  stream_end(0, other);
  gl_delete_texture(texture);
}

/* The thread's current stream is what it was, though the call has another one. */
static void the_current_stream_stays(void **state) {
  (void)state;
  const DLDevice device = gpu(0);
  const unsigned texture = new_texture(rgba8, 0);
  mf_gl_texture *x = opened(texture, 0);
  const mf_stream s = stream_new(0);
  mf_tensor *t = picture((DLDevice){kDLCPU, 0}, rgba8, HEIGHT, WIDTH);
  mf_stream current;
  OK(mf_gl_texture_download(x, t, 0, 0, s, &err));
  assert_memory_equal(data_of(t), pixels, WIDTH * HEIGHT * 4);
  up(x, t, s);
  OK(mf_stream_current(&device, &current, &err));
  assert_int_equal(current, MF_STREAM_DEFAULT);
  mf_tensor_release(t);
  OK(mf_gl_texture_close(x, &err));
  stream_end(0, s);
  gl_delete_texture(texture);
}

static void misuse(void **state) {
  (void)state;
  static const gl_form srgb = {GL_SRGB8_ALPHA8_, 0x1908, 0x1401, 4, 1};
  const unsigned texture = new_texture(rgba8, 0), odd = gl_texture(&srgb, 4, 4, NULL);
  const DLDevice device = gpu(0), host = {kDLCPU, 0};
  mf_gl_texture *x = opened(texture, 0), *reads = opened(texture, MF_GL_READ), *writes = opened(texture, MF_GL_DISCARD);
  mf_gl_texture *none;
  mf_tensor *t = picture(device, rgba8, 2, 2), *halves = picture(device, &gl_forms[4], 2, 2);
  mf_tensor *gray = picture(device, &gl_forms[0], 2, 2), *flat, *locked, *gone;
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
  mf_tensor *all[] = {t, halves, gray, flat, locked, gone};
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
  fill(t, 3);
  fill(host, 3);
  synchronize(0);
  for (size_t i = 0; i < COUNT(each); i++) {
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
  told += mf_gl_texture_upload(held, own, 0, 0, 0, &e) == MF_EINVAL && strstr(e.message, "another call has") != NULL;
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
  alarm(20);
  if (mf_gl_texture_upload(held, own, 0, 0, 0, &e) == MF_OK) _exit(1);
  if (mf_gl_texture_close(held, &e) == MF_OK) _exit(2);
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
      SPEC(each_format_both_ways), SPEC(any_strides_do), SPEC(a_part_of_it), SPEC(it_is_ordered_with_other_streams),
      SPEC(the_current_stream_stays), SPEC(misuse), SPEC(a_capture_is_left_whole), SPEC(each_failing_call),
      SPEC(the_first_failure_is_told), SPEC(no_memory), SPEC(of_two_threads_one_has_it),
      SPEC(a_trim_and_a_fork_leave_it_alone),
  };
  return RUN(tests);
}
