/* numbers_ways_spec.c: which way a cast or a comparison goes: where the fewer bytes cross, by a kernel where one
 * reaches both sides, else by the host, which waits for whoever uses the memory; and what comes of it in a capture, or
 * where the kernel cannot be made. What the numbers become is numbers_spec.c's. */
#include "places.h"

static uint64_t launches(void) {
  return sim_ask_calls("cuLaunchKernel") + sim_ask_calls("hipModuleLaunchKernel");
}

typedef struct way_of {
  place from, to;
  const char *src, *dst;
  bool kernel, direct; /* converted by one; nothing is copied beside */
} way_of;

static const way_of ways_of_casts[] = {
    {GPU0, GPU0, "int16", "float32", true, true},     {GPU1, GPU1, "int16", "float32", true, true},
    {PINNED, GPU0, "int16", "float32", true, true},   {GPU0, PINNED, "int16", "float32", true, true},
    {PINNED, GPU1, "int16", "float32", true, true},   {GPU1, PINNED, "int16", "float32", true, true},
    {PINNED, PINNED, "int16", "float32", false, true}, {MANAGED, GPU0, "int16", "float32", true, true},
    {CPU, GPU0, "int16", "float32", true, false},     {CPU, GPU0, "int32", "float32", true, false},
    {CPU, GPU0, "float64", "float32", false, false},  {GPU0, CPU, "float64", "int16", true, false},
    {GPU0, CPU, "float32", "int32", true, false},     {GPU0, CPU, "int16", "float64", false, false},
    {GPU0, GPU1, "int16", "float64", true, false},    {GPU1, GPU0, "float64", "int16", true, false},
    {GPU0, GPU0, "int16", "complex64", false, false}, {GPU0, CPU, "float64", "complex64", false, false},
};

static void casts_are_made_where_the_fewer_bytes_cross(void **state) {
  const int64_t n[] = {64};
  (void)state;
  needs_simulator();
  for (size_t i = 0; i < COUNT(ways_of_casts); i++) {
    const way_of *w = &ways_of_casts[i];
    if (!have(w->from) || !have(w->to)) continue;
    mf_tensor *src = create_shaped(w->from, w->src, 1, n), *dst = create_shaped(w->to, w->dst, 1, n);
    fill(src, 0);
    const uint64_t launched = launches(), copied = copies_made();
    OK(mf_tensor_astype(dst, src, &err));
    const bool kernel = launches() > launched, direct = copies_made() == copied;
    if (kernel != w->kernel || direct != w->direct)
      fail_msg("case %zu: by a kernel: %d, nothing copied: %d", i, kernel, direct);
    mf_tensor_release(src);
    mf_tensor_release(dst);
  }
}

/* One number comes back, whatever the size. */
static void a_comparison_brings_one_number_to_the_host(void **state) {
  const int64_t shape[] = {1 << 18};
  (void)state;
  skip_unless(has_kernels(), "there are no kernels here");
  mf_tensor *a = create_shaped(GPU0, "uint16", 1, shape), *b = create_shaped(GPU0, "uint16", 1, shape);
  fill(a, 3);
  fill(b, 3);
  uint64_t before = copies_made();
  assert_true(equal(a, b));
  assert_int_equal(copies_made() - before, other_is_simulated() ? 1 : 0);
  mf_tensor_release(a);
  a = at_place(b, PINNED);
  before = launches();
  assert_true(equal(a, b) && equal(b, a));
  assert_int_equal(launches() - before, other_is_simulated() ? 2 : 0);
  mf_tensor_release(a);
  mf_tensor_release(b);
}

/* Readers do not wait for each other, and the simulated driver takes neither side as written. */
static void a_comparison_only_reads(void **state) {
  const int64_t n[] = {895};
  (void)state;
  for (int i = 0; i < 2; i++) {
    mf_tensor *a = create_shaped(GPU0, "int64", 1, n), *b = create_shaped(PINNED, "int64", 1, n), *copy;
    fill(a, 3);
    fill(b, 3);
    const mf_request elsewhere = {.copy = MF_COPY_ALWAYS, .stream = streams[0][1]};
    OK(mf_tensor_to(a, &elsewhere, &copy, &err));
    assert_true(i == 0 ? equal(a, b) : equal(b, a));
    mf_tensor_release(a);
    mf_tensor_release(b);
    mf_tensor_release(copy);
  }
}

/* Pinned memory, too: no kernel runs, although one would reach it. */
static void the_host_compares_what_it_can_read(void **state) {
  const int64_t n[] = {100};
  const place both[][2] = {{PINNED, PINNED}, {PINNED, CPU}, {CPU, PINNED}};
  (void)state;
  for (size_t i = 0; i < COUNT(both); i++) {
    mf_tensor *a = create_shaped(both[i][0], "int32", 1, n), *b = create_shaped(both[i][1], "int32", 1, n);
    fill(a, 3);
    fill(b, 3);
    const uint64_t before = launches();
    assert_true(equal(a, b));
    assert_int_equal(launches(), before);
    mf_tensor_release(a);
    mf_tensor_release(b);
  }
}

/* Memory that the GPU can reach takes part in a kernel as its own does: nothing else is copied. */
static void pinned_memory_takes_part_in_kernels(void **state) {
  const int64_t n = 300;
  (void)state;
  skip_unless(has_kernels(), "there are no kernels here");
  mf_tensor *there = create_shaped(GPU0, "float32", 1, &n), *here = create_shaped(PINNED, "uint8", 1, &n);
  mf_tensor *same = create_shaped(PINNED, "float32", 1, &n);
  fill(here, 3);
  const uint64_t before = copies_made();
  OK(mf_tensor_astype(there, here, &err));
  OK(mf_tensor_astype(here, there, &err));
  OK(mf_tensor_copy(same, there, &err));
  const uint64_t copied = copies_made();
  assert_int_equal(copied - before, other_is_simulated() ? 1 : 0);
  assert_true(equal(there, same));
  assert_int_equal(copies_made() - copied, other_is_simulated() ? 1 : 0); /* what the comparison says */
  mf_tensor *all[] = {there, here, same};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
}

/* By the host */

static void the_host_waits_for_readers(void **state) {
  static const place places[] = {PINNED, MANAGED};
  const int64_t n[] = {64}, at[] = {63};
  const mf_scalar two = {.kind = MF_KIND_UINT, .u = 2};
  (void)state;
  mf_tensor *wide = create_shaped(GPU0, "complex64", 1, n), *real = create_shaped(GPU0, "float32", 1, n);
  for (uint64_t seed = 0; seed < seeds(5); seed++)
    for (int i = 0; i < 4; i++) {
      if (!have(places[i % 2])) continue;
      sim_ask_seed(seed);
      mf_tensor *t = create_shaped(places[i % 2], "complex64", 1, n);
      mf_scalar got;
      fill(t, 1);
      fill(real, 2);
      use_stream(0, streams[0][1]);
      OK(mf_tensor_copy(wide, t, &err));
      use_stream(0, streams[0][2]);
      if (i < 2) OK(mf_tensor_astype(t, real, &err));
      else OK(mf_tensor_put(t, at, 1, &two, &err));
      OK(mf_tensor_get(wide, at, 1, &got, &err));
      assert_float_equal(got.f, 1, 0);
      OK(mf_tensor_get(t, at, 1, &got, &err));
      assert_float_equal(got.f, 2, 0);
      mf_tensor_release(t);
    }
  mf_tensor_release(wide);
  mf_tensor_release(real);
}

/* What cannot be waited for is not written. */
static void a_wait_that_fails_is_told(void **state) {
  const int64_t n[] = {64};
  (void)state;
  needs_simulator();
  mf_tensor *t = create_shaped(PINNED, "complex64", 1, n), *from = create_shaped(GPU0, "complex64", 1, n);
  mf_tensor *real = create_shaped(CPU, "float32", 1, n), *back;
  fill(from, 1);
  fill(real, 2);
  OK(mf_tensor_copy(t, from, &err));
  sim_ask_fail("*:999");
  FAILS(mf_tensor_astype(t, real, &err), MF_EDRIVER);
  sim_ask_reset();
  back = at_place(t, GPU0);
  assert_true(equal(back, from));
  mf_tensor *all[] = {t, from, real, back};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
}

/* Kernels that cannot be made */

/* No other spec here converts this pair of dtypes, or compares the second one, so that both kernels are made here. */
static void a_kernel_that_cannot_be_made(void **state) {
  const int64_t n[] = {64};
  const char *rule = named("cuModuleLoadDataEx:999:once", "hipModuleLoadData:999:once");
  int32_t same = 7;
  (void)state;
  needs_simulator();
  mf_tensor *src = create_shaped(GPU0, "uint16", 1, n), *dst = create_shaped(GPU0, "int64", 1, n);
  fill(src, 3);
  sim_ask_fail(rule);
  REFUSED(mf_tensor_astype(dst, src, &err), MF_EDRIVER, "ModuleLoadData");
  sim_ask_fail(rule);
  assert_int_equal(mf_tensor_astype(dst, src, NULL), MF_EDRIVER);
  OK(mf_tensor_astype(dst, src, &err));
  sim_ask_fail(rule);
  REFUSED(mf_tensor_equal(dst, dst, &same, &err), MF_EDRIVER, "ModuleLoadData");
  OK(mf_tensor_equal(dst, dst, &same, &err));
  assert_int_equal(same, 1);
  mf_tensor_release(src);
  mf_tensor_release(dst);
}

/* Captures */

static void a_cast_is_captured(void **state) {
  const int64_t n[] = {64};
  (void)state;
  skip_unless(has_kernels(), "there are no kernels here");
  mf_stream s = stream_new(0);
  mf_tensor *bytes = create(gpu(0), 64), *wide = create_shaped(GPU0, "float32", 1, n), *back = create(gpu(0), 64);
  use_stream(0, s);
  fill(bytes, 3);
  synchronize(0);
  other_capture(0, s);
  OK(mf_tensor_astype(wide, bytes, &err));
  OK(mf_tensor_astype(back, wide, &err));
  int32_t same;
  REFUSED(mf_tensor_equal(wide, wide, &same, &err), MF_ECAPTURE, "the host waits");
  expect_captured(back, s, 3);
  use_stream(0, MF_STREAM_DEFAULT);
  mf_tensor_release(bytes);
  mf_tensor_release(wide);
  mf_tensor_release(back);
  stream_end(0, s);
}

/* Each launch of the graph would use that memory, which is another tensor's by then. */
static void memory_for_a_while_is_not_captured(void **state) {
  int64_t shape[] = {16, 4}, strides[] = {0, 1};
  (void)state;
  mf_stream s = stream_new(0);
  mf_tensor *src = create_shaped(GPU0, "int16", 2, shape), *row = create_shaped(GPU0, "float32", 1, shape + 1), *rows;
  DLTensor view = *mf_tensor_dltensor(row);
  view.ndim = 2;
  view.shape = shape;
  view.strides = strides;
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &rows, &err));
  use_stream(0, s);
  fill(src, 3);
  OK(mf_tensor_astype(rows, src, &err));
  synchronize(0);
  other_capture(0, s);
  FAILS(mf_tensor_astype(rows, src, &err), MF_ECAPTURE);
  if (has_kernels()) assert_non_null(strstr(err.message, "this cast needs memory of its own for a while"));
  other_graph_end(0, other_capture_end(0, s));
  use_stream(0, MF_STREAM_DEFAULT);
  mf_tensor *all[] = {src, rows, row};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
  stream_end(0, s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_STREAMS(casts_are_made_where_the_fewer_bytes_cross),
      WITH_STREAMS(a_comparison_brings_one_number_to_the_host),
      WITH_STREAMS(a_comparison_only_reads),
      WITH_STREAMS(the_host_compares_what_it_can_read),
      WITH_STREAMS(pinned_memory_takes_part_in_kernels),
      WITH_STREAMS(the_host_waits_for_readers),
      WITH_STREAMS(a_wait_that_fails_is_told),
      WITH_STREAMS(a_kernel_that_cannot_be_made),
      WITH_STREAMS(a_cast_is_captured),
      WITH_STREAMS(memory_for_a_while_is_not_captured),
  };
  return RUN(tests);
}
