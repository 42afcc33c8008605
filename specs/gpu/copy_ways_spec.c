/* copy_ways_spec.c: which way rows with a pitch are copied on one driver, and blocks of rows filled: by calls of the
 * driver's, or by a kernel where that is faster. What the bytes become is copy_spec.c's. */
#include "places.h"

enum { MIB = 1 << 20, KERNEL = 1, ON_CUDA = 2 };

typedef struct way_of {
  place from, to;
  int64_t run, rows, pitch;
  int kernel; /* KERNEL, or only on CUDA, whose kernels are slow to compile: from 4 MiB on */
} way_of;

static const way_of ways_of_rows[] = {
    {GPU0, GPU0, 128, 8, 128, 0}, /* no gap */
    {GPU0, GPU0, 32, 8, 128, KERNEL},
    {GPU0, GPU0, 63, 8, 128, KERNEL},
    {GPU0, GPU0, 64, 8, 128, 0},
    {PINNED, GPU0, 32, 8, 128, KERNEL},
    {PINNED, GPU0, 64, 8, 128, 0},
    {GPU0, GPU0, 1024, 4 * MIB / 1024, 1040, ON_CUDA},
    {GPU0, GPU0, 1024, 4 * MIB / 1024 - 1, 1040, 0},
    {GPU0, GPU0, 1024, 4 * MIB / 1024, 1032, 0}, /* whose rows do not all begin at a multiple of 16 */
    {PINNED, GPU0, 1024, 4 * MIB / 1024, 1040, 0},
    {GPU0, PINNED, 1024, 4 * MIB / 1024, 1040, 0},
    {PINNED, PINNED, 1024, 4 * MIB / 1024, 1040, 0},
};

static uint64_t launches(void) {
  return sim_ask_calls("cuLaunchKernel") + sim_ask_calls("hipModuleLaunchKernel");
}

static void rows_go_by_a_kernel_where_that_is_faster(void **state) {
  (void)state;
  needs_simulator();
  skip_unless(has_kernels(), "there are no kernels here");
  for (size_t i = 0; i < COUNT(ways_of_rows); i++) {
    const way_of *w = &ways_of_rows[i];
    const mf_index left[] = {{.kind = MF_INDEX_SLICE, .start = 0, .stop = w->rows, .step = 1},
                             {.kind = MF_INDEX_SLICE, .start = 0, .stop = w->run, .step = 1}};
    mf_tensor *whole = create_shaped(w->from, "uint8", 2, (int64_t[]){w->rows, w->pitch}), *rows;
    mf_tensor *dst = create_shaped(w->to, "uint8", 2, (int64_t[]){w->rows, w->run});
    OK(mf_tensor_index(whole, left, 2, &rows, &err));
    fill(whole, 7);
    fill(dst, 0);
    const uint64_t launched = launches(), copied = copies_made();
    OK(mf_tensor_copy(dst, rows, &err));
    const bool kernel = w->kernel == KERNEL || (w->kernel == ON_CUDA && gpu(0).device_type == kDLCUDA);
    if ((launches() - launched) != kernel || (copies_made() - copied) != !kernel)
      fail_msg("case %zu: %d launches, %d copies", i, (int)(launches() - launched), (int)(copies_made() - copied));
    expect_filled(dst, 7);
    mf_tensor_release(rows);
    mf_tensor_release(whole);
    mf_tensor_release(dst);
  }
}

static uint64_t fills_made(void) {
  static const char *const calls[] = {"cuMemsetD2D8Async", "cuMemsetD2D16Async", "cuMemsetD2D32Async",
                                      "hipMemset2DAsync"};
  uint64_t made = 0;
  for (size_t i = 0; i < COUNT(calls); i++) made += sim_ask_calls(calls[i]);
  return made;
}

/* Each block takes one call of the driver's, and eight of them are as fast as a kernel. */
static void many_blocks_are_filled_by_a_kernel(void **state) {
  (void)state;
  needs_simulator();
  skip_unless(has_kernels(), "there are no kernels here");
  for (int64_t n = 7; n < 11; n++) {
    const int64_t shape[] = {n, 16, 32};
    const mf_index part[] = {{.kind = MF_INDEX_SLICE, .start = 0, .stop = n, .step = 1},
                             {.kind = MF_INDEX_SLICE, .start = 0, .stop = 12, .step = 1},
                             {.kind = MF_INDEX_SLICE, .start = 0, .stop = 16, .step = 1}};
    mf_tensor *whole = create_shaped(GPU0, "uint8", 3, shape), *blocks;
    OK(mf_tensor_index(whole, part, 3, &blocks, &err));
    const uint64_t launched = launches(), filled = fills_made();
    fill(blocks, 7);
    assert_int_equal(launches() > launched, n > 8);
    assert_int_equal(fills_made() - filled, n > 8 ? 0 : n);
    expect_filled(blocks, 7);
    mf_tensor_release(blocks);
    mf_tensor_release(whole);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {WITH_STREAMS(rows_go_by_a_kernel_where_that_is_faster),
                                     WITH_STREAMS(many_blocks_are_filled_by_a_kernel)};
  return RUN(tests);
}
