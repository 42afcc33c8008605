/* transfer_spec.c: what copies cost in driver calls, that a capture takes them in, and the failures that one call alone
 * leads to. What they copy is copy_spec.c's; each call of them fails in transfer_fail_spec.c. */
#include <pthread.h>

#include "places.h"

/* Capture */

static void captured_copies_run_at_each_launch(void **state) {
  int64_t shape[] = {6, 10}, turned_shape[] = {10, 6};
  (void)state;
  use_stream(0, streams[0][1]);
  mf_tensor *a = create_shaped(GPU0, "float64", 2, shape), *pinned = create_shaped(PINNED, "float64", 2, shape);
  mf_tensor *b = create_shaped(GPU0, "float64", 2, turned_shape), *turned;
  mf_tensor *result = create_shaped(PINNED, "float64", 2, turned_shape);
  mf_tensor *pageable = create_shaped(CPU, "float64", 2, shape);
  const mf_scalar one = {.kind = MF_KIND_INT, .i = 1}, nine = {.kind = MF_KIND_INT, .i = 9};
  OK(mf_tensor_fill(pinned, &one, &err));
  OK(mf_tensor_permute_dims(a, NULL, 0, &turned, &err));
  OK(mf_tensor_copy(b, turned, &err)); /* whatever the driver prepares once */
  OK(mf_device_synchronize(&(DLDevice){(DLDeviceType)other_device_type(), 0}, &err));
  other_capture(0, streams[0][1]);
  REFUSED(mf_tensor_copy(a, pageable, &err), MF_ECAPTURE, "pinned");
  REFUSED(mf_tensor_copy(pageable, a, &err), MF_ECAPTURE, "pinned");
  OK(mf_tensor_copy(a, pinned, &err));
  OK(mf_tensor_copy(b, turned, &err));
  OK(mf_tensor_copy(result, b, &err));
  void *graph = other_capture_end(0, streams[0][1]);
  for (int i = 0; i < 2; i++) {
    const double *at = mf_tensor_dltensor(result)->data;
    double *in = mf_tensor_dltensor(pinned)->data;
    for (int k = 0; k < 60; k++) in[k] = 100 * i + k;
    other_launch(0, graph, streams[0][1]);
    other_sync(0, streams[0][1]);
    for (int k = 0; k < 60; k++) assert_true(at[k % 10 * 6 + k / 10] == 100 * i + k);
  }
  other_graph_end(0, graph);
  OK(mf_tensor_fill(a, &nine, &err));
  mf_tensor *all[] = {a, b, turned, pinned, result, pageable};
  for (int i = 0; i < 6; i++) mf_tensor_release(all[i]);
}

/* Memory that a copy needs for a while is another tensor's when the graph is launched. */
static void a_capture_refuses_what_needs_memory_of_its_own(void **state) {
  int64_t shape[] = {6, 6};
  mf_tensor *turned, *column;
  (void)state;
  use_stream(0, streams[0][1]);
  mf_tensor *a = create_shaped(GPU0, "float64", 2, shape), *b = create_shaped(GPU0, "float64", 1, shape);
  const mf_scalar one = {.kind = MF_KIND_INT, .i = 1}, nine = {.kind = MF_KIND_INT, .i = 9};
  const mf_index first[] = {{.kind = MF_INDEX_ELLIPSIS}, {.kind = MF_INDEX_AT, .start = 0}};
  OK(mf_tensor_permute_dims(a, NULL, 0, &turned, &err));
  OK(mf_tensor_index(a, first, 2, &column, &err));
  OK(mf_tensor_fill(column, &one, &err)); /* whatever the driver prepares once */
  OK(mf_device_synchronize(&(DLDevice){(DLDeviceType)other_device_type(), 0}, &err));
  other_capture(0, streams[0][1]);
  REFUSED(mf_tensor_copy(turned, a, &err), MF_ECAPTURE, "memory of its own");
  const bool filled = mf_tensor_fill(column, &nine, &err) == MF_OK; /* by kernel; there may be none */
  if (!filled) assert_int_equal(err.status, MF_ECAPTURE);
  OK(mf_tensor_copy(b, column, &err));
  void *graph = other_capture_end(0, streams[0][1]);
  other_launch(0, graph, streams[0][1]);
  other_sync(0, streams[0][1]);
  mf_tensor *back = at_place(b, CPU);
  for (int i = 0; i < 6; i++) assert_true(((double *)mf_tensor_dltensor(back)->data)[i] == (filled ? 9 : 1));
  other_graph_end(0, graph);
  mf_tensor *all[] = {a, b, turned, column, back};
  for (int i = 0; i < 5; i++) mf_tensor_release(all[i]);
}

/* Without kernels so many elements are copied from memory that is full of the value. */
static void a_capture_refuses_a_fill_that_needs_memory(void **state) {
  const int64_t shape[] = {65, 65, 2};
  const mf_index first[] = {{.kind = MF_INDEX_ELLIPSIS}, {.kind = MF_INDEX_AT, .start = 0}};
  const mf_scalar one = {.kind = MF_KIND_INT, .i = 1};
  mf_tensor *part;
  (void)state;
  const bool with_kernels = has_kernels();
  use_stream(0, streams[0][1]);
  mf_tensor *whole = create_shaped(GPU0, "float64", 3, shape);
  OK(mf_tensor_index(whole, first, 2, &part, &err));
  OK(mf_tensor_fill(part, &one, &err)); /* whatever the driver prepares once */
  OK(mf_device_synchronize(&(DLDevice){(DLDeviceType)other_device_type(), 0}, &err));
  other_capture(0, streams[0][1]);
  if (!with_kernels) REFUSED(mf_tensor_fill(part, &one, &err), MF_ECAPTURE, "memory of its own");
  else OK(mf_tensor_fill(part, &one, &err));
  other_graph_end(0, other_capture_end(0, streams[0][1]));
  mf_tensor_release(part);
  mf_tensor_release(whole);
}

/* A strided source on another device is packed there first. The packed memory would be in the graph, and somebody
 * else's when that is launched; whether the packing happens to be done when the capture looks must not matter. */
static void a_capture_takes_no_temporary_of_another_device(void **state) {
  const int64_t shape[] = {64, 64};
  const DLDevice first = device_at(GPU0), second = device_at(GPU1);
  mf_tensor *turned;
  (void)state;
  needs_devices(2);
  mf_tensor *src = create_shaped(GPU0, "float32", 2, shape), *dst = create_shaped(GPU1, "float32", 2, shape);
  const mf_scalar one = {.kind = MF_KIND_FLOAT, .f = 1};
  OK(mf_tensor_permute_dims(src, NULL, 0, &turned, &err));
  use_stream(0, streams[0][1]);
  use_stream(1, streams[1][1]);
  OK(mf_tensor_fill(src, &one, &err));
  OK(mf_tensor_copy(dst, turned, &err)); /* whatever the driver prepares once */
  for (uint64_t seed = 0; seed < seeds(10); seed++) {
    sim_ask_seed(seed);
    OK(mf_device_synchronize(&first, &err));
    OK(mf_device_synchronize(&second, &err));
    other_capture(1, streams[1][1]);
    REFUSED(mf_tensor_copy(dst, turned, &err), MF_ECAPTURE, "memory of its own");
    OK(mf_tensor_copy(dst, src, &err)); /* in one piece */
    other_graph_end(1, other_capture_end(1, streams[1][1]));
  }
  mf_tensor *all[] = {src, dst, turned};
  for (int i = 0; i < 3; i++) mf_tensor_release(all[i]);
}

/* Failures */

/* A driver may report an earlier failure where it frees memory, having freed it: the pinned buffers that large copies
 * go through are then made anew. */
static void buffers_that_failed_to_be_freed_are_not_used_again(void **state) {
  const int64_t shape[] = {(9 << 20) + 5};
  const DLDevice device = device_at(GPU0);
  (void)state;
  needs_simulator();
  for (int which = 1; which <= 4; which++) {
    char rule[64];
    mf_tensor *host = random_host("uint8", 1, shape), *gpu = at_place(host, GPU0);
    snprintf(rule, sizeof rule, "%s@%d:719:once", named("cuMemFreeHost", "hipHostFree"), which);
    OK(mf_device_synchronize(&device, &err));
    sim_ask_reset();
    sim_ask_fail(rule);
    (void)mf_pool_trim(&device, &err);
    sim_ask_reset();
    OK(mf_tensor_copy(gpu, host, &err));
    same_bytes(gpu, host, rule);
    mf_tensor_release(host);
    mf_tensor_release(gpu);
  }
}

/* Costs */

static uint64_t asks(void) {
  static const char *const names[] = {"cuCtxGetCurrent", "cuCtxPushCurrent",    "cuCtxPopCurrent",   "hipGetDevice",
                                      "hipSetDevice",    "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
                                      "cuStreamGetCaptureInfo", "hipStreamGetCaptureInfo"};
  uint64_t n = 0;
  for (size_t i = 0; i < COUNT(names); i++) n += sim_ask_calls(names[i]);
  return n;
}

/* The calls since the last reset, but for asking which context is current, and whether a capture forbids the legacy
 * stream. */
static void check_calls(uint64_t most, int line) {
  const uint64_t n = sim_ask_calls(NULL) - asks();
  if (n < 1 || n > most)
    fail_msg("line %d: %llu driver calls, not %llu", line, (unsigned long long)n, (unsigned long long)most);
}

#define COSTS(most, call)                    \
  do {                                       \
    assert_int_equal(sim_ask_findings(), 0); \
    sim_ask_reset();                         \
    OK(call);                                \
    check_calls(most, __LINE__);             \
  } while (0)

static void plain_copies_are_one_driver_call(void **state) {
  int64_t shape[] = {4, 16, 64};
  const mf_scalar three = {.kind = MF_KIND_INT, .i = 3};
  mf_tensor *inner, *outer, *turned;
  (void)state;
  needs_simulator();
  mf_tensor *a = create_shaped(GPU0, "float32", 3, shape), *b = create_shaped(GPU0, "float32", 3, shape);
  mf_tensor *pinned = create_shaped(PINNED, "float32", 3, shape);
  const mf_index rows[] = {{.kind = MF_INDEX_ELLIPSIS}, {.kind = MF_INDEX_SLICE, .start = 8, .stop = 56, .step = 1}};
  const mf_index box[] = {{.kind = MF_INDEX_SLICE, .start = 0, .stop = 4, .step = 1},
                          {.kind = MF_INDEX_SLICE, .start = 2, .stop = 14, .step = 1},
                          {.kind = MF_INDEX_SLICE, .start = 8, .stop = 56, .step = 1}};
  OK(mf_tensor_index(a, rows, 2, &inner, &err));
  OK(mf_tensor_index(a, box, 3, &outer, &err));
  COSTS(1, mf_tensor_copy(a, b, &err));
  COSTS(1, mf_tensor_copy(b, a, &err));
  COSTS(1, mf_tensor_copy(a, pinned, &err));
  COSTS(1, mf_tensor_copy(pinned, a, &err));
  mf_tensor *pageable = create_shaped(CPU, "float32", 3, shape);
  OK(mf_tensor_copy(a, pageable, &err)); /* takes the pinned memory that is kept from now on */
  OK(mf_device_synchronize(&(DLDevice){(DLDeviceType)other_device_type(), 0}, &err));
  COSTS(10, mf_tensor_copy(a, pageable, &err)); /* most are the pool's, to know that the pinned memory is free */
  mf_tensor_release(pageable);
  COSTS(1, mf_tensor_fill(a, &three, &err));
  COSTS(other_device_type() == kDLROCM ? 8 : 1, mf_tensor_fill(inner, &three, &err)); /* HIP fills no rows */
  mf_tensor *packed = create_shaped(GPU0, "float32", 3, (int64_t[]){4, 16, 48});
  COSTS(1, mf_tensor_copy(packed, inner, &err));
  COSTS(1, mf_tensor_copy(inner, packed, &err));
  mf_tensor *cut = create_shaped(GPU0, "float32", 3, (int64_t[]){4, 12, 48});
  COSTS(1, mf_tensor_copy(cut, outer, &err));
  COSTS(1, mf_tensor_copy(outer, cut, &err));
  /* The same order of axes on both sides is one run, whatever it is. */
  mf_tensor *turned_too;
  OK(mf_tensor_permute_dims(a, NULL, 0, &turned, &err));
  OK(mf_tensor_permute_dims(b, NULL, 0, &turned_too, &err));
  COSTS(1, mf_tensor_copy(turned, turned_too, &err));
  mf_tensor *all[] = {a, b, pinned, inner, outer, packed, cut, turned, turned_too};
  for (int i = 0; i < 9; i++) mf_tensor_release(all[i]);
}

/* Whatever moves elements. */
static uint64_t moves(void) {
  static const char *const names[][2] = {{"cuMemcpyAsync", "hipMemcpyAsync"},
                                         {"cuMemcpyPeerAsync", "hipMemcpyPeerAsync"},
                                         {"cuMemcpy2DAsync", "hipMemcpy2DAsync"},
                                         {"cuMemcpy3DAsync", "hipMemcpy3DAsync"},
                                         {"cuLaunchKernel", "hipLaunchKernel"}};
  uint64_t n = 0;
  for (size_t i = 0; i < COUNT(names); i++) n += sim_ask_calls(named(names[i][0], names[i][1]));
  return n;
}

static void expect_moves(uint64_t want, mf_tensor *dst, mf_tensor *src) {
  const uint64_t before = moves();
  OK(mf_tensor_copy(dst, src, &err));
  assert_int_equal(moves() - before, want);
}

/* What is one run on both sides goes over in one go, and a side that is contiguous needs no second copy of itself. */
static void copies_between_devices_take_no_detour(void **state) {
  const int64_t shape[] = {16, 64}, part[] = {16, 48};
  const mf_index columns[] = {{.kind = MF_INDEX_ELLIPSIS}, {.kind = MF_INDEX_SLICE, .start = 8, .stop = 56, .step = 1}};
  mf_tensor *turned, *turned_there, *inner, *inner_there;
  (void)state;
  needs_simulator();
  needs_devices(2);
  mf_tensor *here = create_shaped(GPU0, "float32", 2, shape), *there = create_shaped(GPU1, "float32", 2, shape);
  mf_tensor *packed = create_shaped(GPU0, "float32", 2, part), *packed_there = create_shaped(GPU1, "float32", 2, part);
  OK(mf_tensor_permute_dims(here, NULL, 0, &turned, &err));
  OK(mf_tensor_permute_dims(there, NULL, 0, &turned_there, &err));
  OK(mf_tensor_index(here, columns, 2, &inner, &err));
  OK(mf_tensor_index(there, columns, 2, &inner_there, &err));
  expect_moves(1, there, here);
  expect_moves(1, turned_there, turned);
  expect_moves(2, packed_there, inner);
  expect_moves(2, inner_there, packed);
  expect_moves(3, inner_there, inner);
  mf_tensor *all[] = {here, there, packed, packed_there, turned, turned_there, inner, inner_there};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
}

/* Too large for one piece of pinned memory: one run on both sides is brought over as it is, and only what has gaps on
 * the device is packed there. */
static void large_copies_take_no_detour(void **state) {
  const int64_t shape[] = {140, 180}, part[] = {140, 120};
  const mf_index columns[] = {{.kind = MF_INDEX_ELLIPSIS},
                              {.kind = MF_INDEX_SLICE, .start = 8, .stop = 128, .step = 1}};
  mf_tensor *turned, *turned_there, *inner, *inner_there;
  (void)state;
  needs_simulator();
  mf_tensor *here = create_shaped(CPU, "float32", 2, shape), *there = create_shaped(GPU0, "float32", 2, shape);
  mf_tensor *packed = create_shaped(CPU, "float32", 2, part), *packed_there = create_shaped(GPU0, "float32", 2, part);
  OK(mf_tensor_permute_dims(here, NULL, 0, &turned, &err));
  OK(mf_tensor_permute_dims(there, NULL, 0, &turned_there, &err));
  OK(mf_tensor_index(here, columns, 2, &inner, &err));
  OK(mf_tensor_index(there, columns, 2, &inner_there, &err));
  memset(mf_tensor_dltensor(here)->data, 1, (size_t)mf_tensor_nbytes(here));
  memset(mf_tensor_dltensor(packed)->data, 2, (size_t)mf_tensor_nbytes(packed));
  expect_moves(1, there, here);
  expect_moves(1, turned_there, turned);
  expect_moves(1, packed_there, inner);
  expect_moves(2, inner_there, packed);
  expect_moves(1, here, there);
  expect_moves(1, turned, turned_there);
  expect_moves(1, inner, packed_there);
  expect_moves(2, packed, inner_there);
  mf_tensor *all[] = {here, there, packed, packed_there, turned, turned_there, inner, inner_there};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
}

/* Several threads through one ring of buffers, up and down at once, each on a stream of its own. */

enum { NTHREADS = 4, ROUNDS = 3 };

static void *copy_up_and_down(void *arg) {
  const uint64_t seed = (uint64_t)(uintptr_t)arg;
  const DLDevice device = device_at(GPU0);
  const int64_t shape[] = {3 << 20};
  mf_error why;
  mf_stream stream;
  bool good = mf_stream_create(&device, &stream, &why) == MF_OK && mf_stream_swap(&device, stream, NULL, &why) == MF_OK;
  mf_tensor *from = create_shaped(CPU, "int32", 1, shape), *to = create_shaped(CPU, "int32", 1, shape);
  mf_tensor *there = create_shaped(GPU0, "int32", 1, shape);
  uint32_t *in = mf_tensor_dltensor(from)->data, *out = mf_tensor_dltensor(to)->data;
  for (uint64_t round = 0; round < ROUNDS && good; round++) {
    for (uint32_t i = 0; i < shape[0]; i++) in[i] = (uint32_t)(i * (2 * seed + 1) + round);
    good = mf_tensor_copy(there, from, &why) == MF_OK && mf_tensor_copy(to, there, &why) == MF_OK;
    good = good && memcmp(in, out, (size_t)mf_tensor_nbytes(from)) == 0;
  }
  mf_tensor_release(from);
  mf_tensor_release(to);
  mf_tensor_release(there);
  good = good && mf_stream_swap(&device, MF_STREAM_DEFAULT, NULL, &why) == MF_OK;
  good = good && mf_stream_destroy(&device, stream, &why) == MF_OK;
  return good ? NULL : arg;
}

static void threads_share_the_staging_buffers(void **state) {
  pthread_t threads[NTHREADS];
  (void)state;
  for (uintptr_t i = 0; i < NTHREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, copy_up_and_down, (void *)(i + 1)), 0);
  for (int i = 0; i < NTHREADS; i++) {
    void *failed;
    assert_int_equal(pthread_join(threads[i], &failed), 0);
    assert_null(failed);
  }
}

/* Elements of one axis that lie apart, up and down again by way of the staging buffers. */
static void large_copies_of_one_axis_that_lies_apart(void **state) {
  const int64_t n[] = {100000};
  const mf_index odd[] = {{.kind = MF_INDEX_SLICE, .start = 1, .stop = MF_INDEX_NONE, .step = 2}};
  (void)state;
  mf_tensor *host = random_host("float32", 1, n), *back = create_shaped(CPU, "float32", 1, n), *from, *to, *there;
  OK(mf_tensor_index(host, odd, 1, &from, &err));
  OK(mf_tensor_index(back, odd, 1, &to, &err));
  there = at_place(from, GPU0);
  mf_tensor *want = at_place(from, CPU);
  same_bytes(there, want, "up");
  memset(data_of(back), 0, (size_t)mf_tensor_nbytes(back));
  OK(mf_tensor_copy(to, there, &err));
  const float *a = data_of(host), *b = data_of(back);
  for (int64_t i = 0; i < n[0]; i++)
    if (memcmp(&b[i], i % 2 != 0 ? &a[i] : &(float){0}, sizeof *b) != 0) fail_msg("element %lld", (long long)i);
  mf_tensor *all[] = {host, back, from, to, there, want};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
}

/* Kernels fill what would otherwise take many driver calls; a few calls are cheaper than a kernel. */
static void many_rows_are_filled_by_kernels(void **state) {
  const char *kernel = named("cuLaunchKernel", "hipModuleLaunchKernel");
  (void)state;
  needs_simulator();
  for (int64_t columns = 5; columns <= 12; columns += 7) {
    const mf_index odd[] = {{.kind = MF_INDEX_ELLIPSIS},
                            {.kind = MF_INDEX_SLICE, .start = 0, .stop = 2 * columns, .step = 2}};
    mf_tensor *t = create_shaped(GPU0, "uint8", 2, (int64_t[]){20, 30}), *thin;
    OK(mf_tensor_index(t, odd, 2, &thin, &err));
    const uint64_t before = sim_ask_calls(kernel);
    fill(thin, 3);
    assert_int_equal(sim_ask_calls(kernel) > before, columns > 8 && has_kernels());
    mf_tensor_release(t);
    mf_tensor_release(thin);
  }
}

/* CUDA's own copies of rows within a device take twice as long as a kernel of whole units, which must be worth being
 * compiled. */
static void many_bytes_of_aligned_rows_go_by_a_kernel(void **state) {
  enum { ROWS = 64, WIDTH = 64 << 10 };
  static const struct {
    place from;
    int64_t start, width;
    bool by_kernel;
  } cases[] = {{GPU0, 0, WIDTH, true},      {GPU0, 16, WIDTH, true},      {GPU0, 0, WIDTH - 16, false},
               {GPU0, 8, WIDTH, false},     {GPU0, 0, WIDTH + 8, false},  {PINNED, 0, WIDTH, false}};
  const bool can = other_device_type() == kDLCUDA && has_kernels(); /* else it is one driver copy */
  (void)state;
  needs_simulator();
  for (size_t i = 0; i < COUNT(cases); i++) {
    const mf_index columns[] = {{.kind = MF_INDEX_ELLIPSIS},
                                {.kind = MF_INDEX_SLICE, .start = cases[i].start,
                                 .stop = cases[i].start + cases[i].width, .step = 1}};
    const int64_t shape[] = {ROWS, 2 * WIDTH};
    mf_tensor *from = create_shaped(cases[i].from, "uint8", 2, shape), *to = create_shaped(GPU0, "uint8", 2, shape);
    mf_tensor *part, *copied;
    fill(from, i + 1);
    fill(to, 0);
    OK(mf_tensor_index(from, columns, 2, &part, &err));
    OK(mf_tensor_index(to, columns, 2, &copied, &err));
    const uint64_t kernels = sim_ask_calls("cuLaunchKernel"), copies = copies_made();
    OK(mf_tensor_copy(copied, part, &err));
    const bool by_kernel = cases[i].by_kernel && can;
    assert_int_equal(sim_ask_calls("cuLaunchKernel") - kernels, by_kernel);
    assert_int_equal(copies_made() - copies, !by_kernel);
    assert_true(equal(copied, part));
    mf_tensor *all[] = {from, to, part, copied};
    for (int k = 0; k < 4; k++) mf_tensor_release(all[k]);
  }
}

/* Another way is taken where there is no kernel, not where one fails: that is told. */
static void a_kernel_that_fails_is_told(void **state) {
  int64_t shape[] = {40, 30};
  const mf_scalar two = {.kind = MF_KIND_INT, .i = 2};
  mf_tensor *turned;
  (void)state;
  const char *call = other_device_type() == kDLROCM ? "hipModuleLaunchKernel" : "cuLaunchKernel";
  char rule[64];
  needs_simulator();
  mf_tensor *a = create_shaped(GPU0, "float64", 2, shape), *thin;
  mf_tensor *b = create_shaped(GPU0, "float64", 2, (int64_t[]){30, 40});
  const mf_index odd[] = {{.kind = MF_INDEX_ELLIPSIS}, {.kind = MF_INDEX_SLICE, .start = 0, .stop = 40, .step = 2}};
  OK(mf_tensor_permute_dims(a, NULL, 0, &turned, &err));
  OK(mf_tensor_index(b, odd, 2, &thin, &err));
  OK(mf_tensor_copy(b, turned, &err));
  snprintf(rule, sizeof rule, "%s:719:once", call);
  for (int i = 0; i < 2 && has_kernels(); i++) {
    memset(&err, 0, sizeof err);
    sim_ask_fail(rule);
    assert_int_equal(i == 0 ? mf_tensor_copy(b, turned, &err) : mf_tensor_fill(thin, &two, &err), MF_EDRIVER);
    assert_int_equal(err.driver_code, 719);
    assert_string_equal(err.call, call);
    sim_ask_fail(rule);
    assert_int_equal(i == 0 ? mf_tensor_copy(b, turned, NULL) : mf_tensor_fill(thin, &two, NULL), MF_EDRIVER);
    OK(mf_tensor_copy(b, turned, &err));
    OK(mf_tensor_fill(thin, &two, &err));
  }
  mf_tensor *all[] = {a, b, turned, thin};
  for (int i = 0; i < 4; i++) mf_tensor_release(all[i]);
}

/* A buffer, and a piece of what each helper moves, hold no whole number of them; both sides lie as they like. */
static void elements_of_three_bytes_in_more_than_a_buffer(void **state) {
  enum { ROWS = 1800, COLUMNS = 1700 };
  mf_tensor *turned;
  int32_t same = 0;
  (void)state;
  mf_tensor *whole = random_host("uint8x3", 2, (int64_t[]){COLUMNS, ROWS});
  mf_tensor *there = create_shaped(GPU0, "uint8x3", 2, (int64_t[]){ROWS, COLUMNS});
  mf_tensor *here = create_shaped(CPU, "uint8x3", 2, (int64_t[]){ROWS, COLUMNS});
  OK(mf_tensor_permute_dims(whole, NULL, 0, &turned, &err));
  mf_tensor *const backwards = backwards_of(here);
  OK(mf_tensor_copy(there, turned, &err));
  OK(mf_tensor_copy(backwards, there, &err));
  OK(mf_tensor_equal(backwards, turned, &same, &err));
  assert_int_equal(same, 1);
  mf_tensor *const all[] = {turned, backwards, whole, there, here};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_STREAMS(threads_share_the_staging_buffers),
      WITH_STREAMS(captured_copies_run_at_each_launch),
      WITH_STREAMS(a_capture_refuses_what_needs_memory_of_its_own),
      WITH_STREAMS(a_capture_refuses_a_fill_that_needs_memory),
      WITH_STREAMS(a_capture_takes_no_temporary_of_another_device),
      WITH_STREAMS(buffers_that_failed_to_be_freed_are_not_used_again),
      WITH_STREAMS(plain_copies_are_one_driver_call),
      WITH_STREAMS(copies_between_devices_take_no_detour),
      WITH_STREAMS(large_copies_take_no_detour),
      WITH_STREAMS(large_copies_of_one_axis_that_lies_apart),
      WITH_STREAMS(elements_of_three_bytes_in_more_than_a_buffer),
      WITH_STREAMS(many_rows_are_filled_by_kernels),
      WITH_STREAMS(many_bytes_of_aligned_rows_go_by_a_kernel),
      WITH_STREAMS(a_kernel_that_fails_is_told),
  };
  if (!other_open()) return 0;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
