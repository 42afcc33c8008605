/* last_byte_spec.c: elements of half a byte that end within one leave the other half as it was: it may be another
 * view's, or somebody else's. What a source has between its elements is not copied. */
#include "places.h"

enum { NBYTES = 6, ELEMENTS = 5 };

static unsigned char *bytes_of(mf_tensor *t) {
  return mf_tensor_dltensor(t)->data;
}

static mf_tensor *elements_at(void *data, place at) {
  int64_t shape[] = {ELEMENTS};
  const DLTensor described = {.data = data, .device = device_at(at), .ndim = 1, .dtype = {kDLUInt, 4, 1},
                              .shape = shape};
  mf_tensor *t;
  OK(mf_tensor_wrap(&described, 0, NULL, NULL, &t, &err));
  return t;
}

/* Five elements 1, 2, 3 ... on the host. */
static mf_tensor *counted(void) {
  const int64_t shape[] = {ELEMENTS};
  mf_tensor *t = create_shaped(CPU, "uint4", 1, shape);
  memcpy(bytes_of(t), (unsigned char[]){0x21, 0x43, 0x05}, 3);
  return t;
}

/* All bytes of GPU memory were 0xee before the five elements came. */
static void expect_five(mf_tensor *whole) {
  static const unsigned char expected[NBYTES] = {0x21, 0x43, 0xe5, 0xee, 0xee, 0xee};
  mf_tensor *host = at_place(whole, CPU);
  assert_memory_equal(bytes_of(host), expected, NBYTES);
  mf_tensor_release(host);
}

static void copy_five_into(mf_tensor *dst, mf_tensor *bytes) {
  mf_tensor *host = counted(), *there = at_place(host, GPU0);
  for (int from_gpu = 0; from_gpu < 2; from_gpu++) {
    const mf_scalar value = {.kind = MF_KIND_INT, .i = 0xee};
    OK(mf_tensor_fill(bytes, &value, &err));
    other_sync_all(0);
    OK(mf_tensor_copy(dst, from_gpu ? there : host, &err));
    other_sync_all(0);
    expect_five(bytes);
  }
  mf_tensor_release(there);
  mf_tensor_release(host);
}

static void somebody_elses_memory(void **state) {
  (void)state;
  const int64_t shape[] = {NBYTES};
  mf_tensor *bytes = create_shaped(GPU0, "uint8", 1, shape), *dst = elements_at(bytes_of(bytes), GPU0);
  copy_five_into(dst, bytes);
  mf_tensor_release(dst);
  mf_tensor_release(bytes);
}

/* So many bits of 1 into memory of 0. */
static void any_number_of_bits(void **state) {
  (void)state;
  const int64_t shape[] = {NBYTES};
  const mf_scalar none = {.kind = MF_KIND_INT}, one = {.kind = MF_KIND_INT, .i = 1};
  mf_tensor *bytes = create_shaped(GPU0, "uint8", 1, shape);
  for (int64_t n = 1; n <= 17; n++) {
    const DLTensor described = {.data = bytes_of(bytes), .device = device_at(GPU0), .ndim = 1,
                                .dtype = {kDLUInt, 1, 1}, .shape = (int64_t *)&n};
    const uint32_t expected = (1u << n) - 1;
    mf_tensor *dst, *src = create_shaped(CPU, "uint1", 1, &n);
    OK(mf_tensor_fill(src, &one, &err));
    OK(mf_tensor_fill(bytes, &none, &err));
    other_sync_all(0);
    OK(mf_tensor_wrap(&described, 0, NULL, NULL, &dst, &err));
    OK(mf_tensor_copy(dst, src, &err));
    other_sync_all(0);
    mf_tensor *host = at_place(bytes, CPU);
    const unsigned char *got = bytes_of(host);
    assert_int_equal(got[0] | got[1] << 8 | got[2] << 16, expected);
    mf_tensor *tensors[] = {dst, src, host};
    for (int i = 0; i < 3; i++) mf_tensor_release(tensors[i]);
  }
  mf_tensor_release(bytes);
}

/* The tensor of twelve elements is ours; a view has five of them, the next one begins in the same byte. */
static void another_views_memory(void **state) {
  (void)state;
  const int64_t shape[] = {2 * NBYTES};
  const mf_index items[] = {{.kind = MF_INDEX_SLICE, .start = 0, .stop = ELEMENTS, .step = 1}};
  const mf_scalar all = {.kind = MF_KIND_INT, .i = 0xe};
  mf_tensor *whole = create_shaped(GPU0, "uint4", 1, shape), *dst, *host = counted(), *there = at_place(host, GPU0);
  OK(mf_tensor_index(whole, items, 1, &dst, &err));
  for (int from_gpu = 0; from_gpu < 2; from_gpu++) {
    OK(mf_tensor_fill(whole, &all, &err));
    OK(mf_tensor_copy(dst, from_gpu ? there : host, &err));
    expect_five(whole);
  }
  mf_tensor *tensors[] = {whole, dst, host, there};
  for (int i = 0; i < 4; i++) mf_tensor_release(tensors[i]);
}

/* Every second element of twelve is six elements, which fill three bytes. */
static void a_source_with_gaps(void **state) {
  (void)state;
  const int64_t shape[] = {2 * NBYTES}, half[] = {NBYTES};
  const mf_index items[] = {{.kind = MF_INDEX_SLICE, .start = 0, .stop = MF_INDEX_NONE, .step = 2}};
  mf_tensor *host = create_shaped(CPU, "uint4", 1, shape), *dst = create_shaped(GPU0, "uint4", 1, half), *view, *back;
  memcpy(bytes_of(host), (unsigned char[]){0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6}, NBYTES);
  mf_tensor *there = at_place(host, GPU0);
  OK(mf_tensor_index(there, items, 1, &view, &err));
  OK(mf_tensor_copy(dst, view, &err));
  back = at_place(dst, CPU);
  assert_memory_equal(bytes_of(back), ((unsigned char[]){0x21, 0x43, 0x65}), 3);
  mf_tensor *tensors[] = {host, dst, view, back, there};
  for (int i = 0; i < 5; i++) mf_tensor_release(tensors[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_STREAMS(somebody_elses_memory),
      WITH_STREAMS(any_number_of_bits),
      WITH_STREAMS(another_views_memory),
      WITH_STREAMS(a_source_with_gaps),
  };
  return RUN(tests);
}
