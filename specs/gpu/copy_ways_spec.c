/* copy_ways_spec.c: which way rows with a pitch are copied on one driver: by one copy of the driver's, or by a kernel
 * where that is faster. What the bytes become is copy_spec.c's. */
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

int main(void) {
  const struct CMUnitTest tests[] = {WITH_STREAMS(rows_go_by_a_kernel_where_that_is_faster)};
  return RUN(tests);
}
