/* gl_texture_spec.c: OpenGL's textures and tensors: the pixels of each format both ways, whatever the strides and
 * wherever the tensor lies, what is copied first, and the order between the call's stream and others. */
#include "gl_picture.h"
#include "made_at.h"

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
    const uint64_t before = sim_ask_calls(copies);
    up(x, view, MF_STREAM_CURRENT);
    assert_int_equal(sim_ask_calls(copies) - before, 1);

    expect_texture(texture, rgba8);
    mf_tensor_release(seen);
    mf_tensor_release(view);
    mf_tensor_release(base);
  }
  OK(mf_gl_texture_close(x, &err));
  assert_int_equal(sim_ask_findings(), 0);
  gl_delete_texture(texture);
}

/* What is on the device in compact rows is copied as it is: with as few calls as any; all else takes more. */
static uint64_t calls_of(mf_gl_texture *x, mf_tensor *t, bool upload) {
  for (int warm = 0;; warm++) {
    const uint64_t before = sim_ask_calls(NULL);
    if (upload) OK(mf_gl_texture_upload(x, t, 0, 0, MF_STREAM_CURRENT, &err));
    else OK(mf_gl_texture_download(x, t, 0, 0, MF_STREAM_CURRENT, &err));
    if (warm == 3) return sim_ask_calls(NULL) - before;
  }
}

static void what_lies_right_is_not_copied_first(void **state) {
  (void)state;
  const unsigned texture = new_texture(rgba8, 0), gray = gl_texture(&gl_forms[0], WIDTH, HEIGHT, NULL);
  mf_gl_texture *x = opened(texture, 0), *y = opened(gray, 0);
  mf_tensor *t = picture(gpu(0), rgba8, HEIGHT, WIDTH), *flipped = part(t, MF_INDEX_NONE, MF_INDEX_NONE, -1);
  mf_tensor *wide = under(2), *gaps = seen_as(wide, 2), *planes = under(1), *turned = seen_as(planes, 1), *pixels_of;
  mf_tensor *column, *flat = picture(gpu(0), &gl_forms[0], HEIGHT, WIDTH), *across, *same;
  const mf_index first[] = {{.kind = MF_INDEX_SLICE, .start = MF_INDEX_NONE, .stop = MF_INDEX_NONE, .step = 1},
                            {.kind = MF_INDEX_SLICE, .start = 0, .stop = 1, .step = 1}};
  const mf_index second[] = {first[0],
                             {.kind = MF_INDEX_SLICE, .start = MF_INDEX_NONE, .stop = MF_INDEX_NONE, .step = 2}};
  OK(mf_tensor_index(t, first, 2, &column, &err));
  OK(mf_tensor_index(t, second, 2, &pixels_of, &err));
  OK(mf_tensor_index(flat, second, 2, &across, &err));
  mf_tensor *right[] = {gaps, column, part(t, 0, 1, 1), part(flipped, 0, 1, 1), part(gaps, 0, 2, 1)};
  mf_tensor *wrong[] = {flipped, turned, pixels_of, picture((DLDevice){kDLCPU, 0}, rgba8, HEIGHT, WIDTH),
                        picture(pinned(), rgba8, HEIGHT, WIDTH), part(flipped, 0, 2, 1),
                        other_devices() > 1 ? picture(gpu(1), rgba8, HEIGHT, WIDTH) : mf_tensor_retain(flipped)};
  OK(mf_tensor_broadcast_to(right[2], (int64_t[]){HEIGHT, WIDTH, 4}, 3, &same, &err)); /* all rows are one */
  for (int upload = 0; upload < 2; upload++) {
    const uint64_t least = calls_of(x, t, upload);
    for (size_t i = 0; i < COUNT(right); i++) assert_int_equal(calls_of(x, right[i], upload), least);
    for (size_t i = 0; i < COUNT(wrong); i++) assert_true(calls_of(x, wrong[i], upload) > least);
    assert_int_equal(calls_of(y, flat, upload), least);
    assert_true(calls_of(y, across, upload) > least);
    if (upload) assert_true(calls_of(x, same, upload) > least);
  }
  for (size_t i = 1; i < COUNT(right); i++) mf_tensor_release(right[i]);
  for (size_t i = 2; i < COUNT(wrong); i++) mf_tensor_release(wrong[i]);
  mf_tensor *all[] = {t, flipped, wide, gaps, planes, turned, flat, across, same};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
  OK(mf_gl_texture_close(x, &err));
  OK(mf_gl_texture_close(y, &err));
  synchronize(0);
  assert_int_equal(sim_ask_findings(), 0);
  gl_delete_texture(texture);
  gl_delete_texture(gray);
}

/* A single row of a picture that is upside down, and two rows with a gap. */
static void few_rows(void **state) {
  (void)state;
  const unsigned texture = new_texture(rgba8, 0);
  mf_gl_texture *x = opened(texture, 0);
  mf_tensor *wide = under(2), *gaps = seen_as(wide, 2), *flipped = part(gaps, MF_INDEX_NONE, MF_INDEX_NONE, -1);
  mf_tensor *one = part(flipped, 0, 1, 1), *two = part(gaps, 3, 5, 1);
  fill(wide, 11);
  fill(one, 12);
  fill(two, 13);
  OK(mf_gl_texture_upload(x, one, 0, 0, MF_STREAM_CURRENT, &err));
  OK(mf_gl_texture_upload(x, two, 0, 1, MF_STREAM_CURRENT, &err));
  memset(pixels, 12, WIDTH * 4);
  memset(pixels + WIDTH * 4, 13, WIDTH * 8);
  expect_texture(texture, rgba8);
  fill(wide, 0);
  OK(mf_gl_texture_download(x, two, 0, 1, MF_STREAM_CURRENT, &err));
  mf_tensor *seen = to_device(two, (DLDevice){kDLCPU, 0});
  for (size_t i = 0; i < WIDTH * 8; i++) assert_int_equal(((unsigned char *)data_of(seen))[i], 13);
  mf_tensor *all[] = {wide, gaps, flipped, one, two, seen};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
  OK(mf_gl_texture_close(x, &err));
  gl_delete_texture(texture);
}

/* Who works on the call's stream after it needs no word more, whichever way the pixels went. */
static void what_the_stream_does_next_comes_after_it(void **state) {
  (void)state;
  const unsigned texture = new_texture(rgba8, 0);
  mf_gl_texture *x = opened(texture, 0);
  const mf_stream s = stream_new(0);
  unsigned char *host = other_pinned(WIDTH * HEIGHT * 4);
  mf_tensor *t = picture(gpu(0), rgba8, HEIGHT, WIDTH), *flipped = part(t, MF_INDEX_NONE, MF_INDEX_NONE, -1);
  mf_tensor *both[] = {t, flipped};
  for (uint64_t seed = 0; seed < seeds(8); seed++) {
    sim_ask_seed(seed);
    OK(mf_gl_texture_download(x, both[seed % 2], 0, 0, s, &err));
    other_copy(0, host, data_of(t), WIDTH * HEIGHT * 4, s);
    sync_all();
    assert_int_equal(host[seed % 2 == 0 ? 0 : (HEIGHT - 1) * WIDTH * 4], pixels[0]);
  }
  assert_int_equal(sim_ask_findings(), 0);
  other_pinned_free(host);
  mf_tensor_release(flipped);
  mf_tensor_release(t);
  OK(mf_gl_texture_close(x, &err));
  synchronize(0);
  stream_end(0, s);
  gl_delete_texture(texture);
}

static void a_part_of_it(void **state) {
  (void)state;
  const unsigned texture = new_texture(rgba8, 4);
  mf_gl_texture *x = opened(texture, 0);
  mf_tensor *t = picture(gpu(0), rgba8, 3, 5), *row = picture(gpu(0), rgba8, 1, WIDTH);
  mf_tensor *none = picture(gpu(0), rgba8, 0, 5), *none_here = picture((DLDevice){kDLCPU, 0}, rgba8, 0, 5);
  fill(t, 7);
  OK(mf_gl_texture_upload(x, t, WIDTH - 5, HEIGHT - 3, MF_STREAM_CURRENT, &err));
  for (int y = HEIGHT - 3; y < HEIGHT; y++) memset(pixels + (y * WIDTH + WIDTH - 5) * 4, 7, 20);
  fill(row, 8);
  OK(mf_gl_texture_upload(x, row, 0, 6, MF_STREAM_CURRENT, &err));
  memset(pixels + 6 * WIDTH * 4, 8, WIDTH * 4);
  OK(mf_gl_texture_upload(x, none, 0, HEIGHT, MF_STREAM_CURRENT, &err));
  OK(mf_gl_texture_upload(x, none_here, 0, HEIGHT, MF_STREAM_CURRENT, &err));
  OK(mf_gl_texture_download(x, none_here, 0, HEIGHT, MF_STREAM_CURRENT, &err));
  expect_texture(texture, rgba8);
  REFUSED(mf_gl_texture_upload(x, t, WIDTH - 4, 0, MF_STREAM_CURRENT, &err), MF_EINVAL,
          "5 by 3 pixels from 33, 0 on do not fit in the texture's 37 by 13");
  FAILS(mf_gl_texture_upload(x, t, 0, HEIGHT - 2, MF_STREAM_CURRENT, &err), MF_EINVAL);
  FAILS(mf_gl_texture_upload(x, t, -1, 0, MF_STREAM_CURRENT, &err), MF_EINVAL);
  FAILS(mf_gl_texture_download(x, t, 0, -1, MF_STREAM_CURRENT, &err), MF_EINVAL);
  FAILS(mf_gl_texture_upload(x, t, INT64_MAX, 0, MF_STREAM_CURRENT, &err), MF_EINVAL);
  expect_texture(texture, rgba8);
  OK(mf_gl_texture_download(x, t, 2, 5, MF_STREAM_CURRENT, &err));
  mf_tensor *seen = to_device(t, (DLDevice){kDLCPU, 0});
  for (int y = 0; y < 3; y++)
    assert_memory_equal((const char *)data_of(seen) + y * 20, pixels + ((y + 5) * WIDTH + 2) * 4, 20);
  mf_tensor_release(seen);
  mf_tensor_release(none_here);
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

/* Each call is made on the device that it is registered with, whichever way the pixels go, and the thread's current
 * stream there is what it was, though the call has another one. */
static void one_of_another_gpu(void **state) {
  (void)state;
  needs_devices(2);
  const DLDevice device = gpu(1);
  const unsigned texture = new_texture(rgba8, 0);
  const mf_stream s = stream_new(1), current = stream_new(1);
  mf_tensor *t[] = {picture(device, rgba8, HEIGHT, WIDTH), picture((DLDevice){kDLCPU, 0}, rgba8, HEIGHT, WIDTH)};
  mf_gl_texture *x;
  mf_stream now;
  use_stream(1, current);
  for (size_t i = 0; i < COUNT(t); i++) {
    fill(t[i], 40 + i);
    looks_begin(1);
    look_at("cuGraphicsGLRegisterImage", "hipGraphicsGLRegisterImage");
    look_at("cuGraphicsMapResources", "hipGraphicsMapResources");
    look_at("cuMemcpy2DAsync", "hipMemcpy2DToArrayAsync");
    look_at("cuGraphicsUnmapResources", "hipGraphicsUnmapResources");
    look_at("cuGraphicsUnregisterResource", "hipGraphicsUnregisterResource");
    OK(mf_gl_texture_open(&device, texture, 0, 0, &x, &err));
    up(x, t[i], s);
    OK(mf_gl_texture_download(x, t[i], 0, 0, s, &err));
    OK(mf_stream_current(&device, &now, &err));
    assert_int_equal(now, current);
    OK(mf_gl_texture_close(x, &err));
    assert_int_equal(looks_there, 5);
    memset(pixels, 40 + (int)i, WIDTH * HEIGHT * 4);
    expect_texture(texture, rgba8);
    mf_tensor_release(t[i]);
  }
  assert_int_equal(sim_ask_findings(), 0);
  use_stream(1, MF_STREAM_DEFAULT);
  stream_end(1, s);
  stream_end(1, current);
  gl_delete_texture(texture);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(each_format_both_ways), SPEC(any_strides_do), SPEC(what_lies_right_is_not_copied_first), SPEC(few_rows),
      SPEC(what_the_stream_does_next_comes_after_it), SPEC(a_part_of_it), SPEC(it_is_ordered_with_other_streams),
      SPEC(one_of_another_gpu),
  };
  return RUN(tests);
}
