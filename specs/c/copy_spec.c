/* copy_spec.c: any layout to any layout, against an oracle that copies one element after another from a
 * snapshot of the source; cloning; fills of any layout.
 */
#include "spec.h"

#define READ_ONLY ((uint64_t)DLPACK_FLAG_BITMASK_READ_ONLY)
#define PADDED ((uint64_t)DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)

static const char *const dtypes[] = {
    "int8",   "int16",  "float32", "float64", "complex128", "uint8x3", "uint8x5", "float32x3", "int1",
    "uint2",  "int3",   "int4",    "uint5",   "float6_e2m3fn", "uint7", "float4_e2m1fnx2", "uint4x3", "bool",
    "uint12", "handle64", "float64x4", "uint1x17",
};

/* The memory after the copy, worked out element by element in row-major order. `memory` holds `view`. */
static void oracle_copy(const DLTensor *dst, const DLTensor *src, uint64_t flags, unsigned char *memory,
                        const unsigned char *dst_memory) {
  size_t nbytes = spec_element_nbytes(dst);
  int64_t coords[MF_MAX_NDIM];
  unsigned char *elements = malloc(nbytes * 10000);
  size_t n = 0;
  for (bool more = spec_first(src->ndim, src->shape, coords); more;
       more = spec_next(src->ndim, src->shape, coords)) {
    spec_read(src, flags, coords, elements + nbytes * n++);
  }
  n = 0;
  for (bool more = spec_first(dst->ndim, dst->shape, coords); more;
       more = spec_next(dst->ndim, dst->shape, coords)) {
    int64_t origin = ((const unsigned char *)dst->data - dst_memory) * 8;
    spec_write(memory, origin + spec_bit(dst, flags, coords), (int64_t)dst->dtype.bits * dst->dtype.lanes,
               elements + nbytes * n++);
  }
  free(elements);
}

/* Compares every element of ${view} with what the oracle left in ${memory}. Bits of a slot that belong to no
 * element (of odd widths in whole bytes) may hold anything; all other bytes must be untouched. */
static void same_elements(const DLTensor *view, uint64_t flags, const unsigned char *block,
                          const unsigned char *memory, size_t nbytes) {
  unsigned char *masked[2] = {malloc(nbytes + 1), malloc(nbytes + 1)};
  unsigned char zeros[512] = {0};
  int64_t coords[MF_MAX_NDIM];
  int64_t slot = mf_dtype_bits(&view->dtype, flags);
  int64_t used = (int64_t)view->dtype.bits * view->dtype.lanes;
  memcpy(masked[0], block, nbytes);
  memcpy(masked[1], memory, nbytes);
  for (bool more = spec_first(view->ndim, view->shape, coords); more;
       more = spec_next(view->ndim, view->shape, coords)) {
    int64_t bit = ((const unsigned char *)view->data - block) * 8 + spec_bit(view, flags, coords);
    for (int i = 0; i < 2 && slot > used; i++) spec_write(masked[i], bit + used, slot - used, zeros);
  }
  if (nbytes > 0) assert_memory_equal(masked[0], masked[1], nbytes);
  free(masked[0]);
  free(masked[1]);
}

static void any_layout_to_any_layout(void **state) {
  (void)state;
  for (int round = 0; round < ROUNDS_OF(20000); round++) {
    DLDataType dtype = spec_dtype(dtypes[spec_random() % COUNT(dtypes)]);
    uint64_t flags = spec_random() % 4 == 0 ? PADDED : 0;
    spec_layout d;
    spec_layout s;
    spec_layout_random(&d, dtype, flags, 5);
    s = d;
    s.view.shape = s.shape;
    s.view.strides = s.strides;
    spec_layout_strides(&s, spec_random() % 2 == 0);
    if (spec_random() % 4 == 0) memcpy(s.strides, d.strides, sizeof s.strides);
    spec_layout_memory(&s, flags);
    unsigned char *want = malloc(d.block_nbytes + 1);
    memcpy(want, d.block, d.block_nbytes);
    oracle_copy(&d.view, &s.view, flags, want, d.block);
    mf_tensor *dst = spec_layout_wrap(&d, flags);
    mf_tensor *src = spec_layout_wrap(&s, flags | (spec_random() % 2 ? READ_ONLY : 0));
    OK(mf_tensor_copy(dst, src, &spec_err));
    same_elements(&d.view, flags, d.block, want, d.block_nbytes);
    mf_tensor_release(dst);
    mf_tensor_release(src);
    free(want);
    free(d.block);
    free(s.block);
  }
}

/* Source and destination somewhere in one block, with any strides: shifted, reversed, transposed in place,
 * interleaved, repeated. */
static void overlap(void **state) {
  enum { NBYTES = 4096, ORIGIN = 2048 };
  static unsigned char block[NBYTES];
  static unsigned char want[NBYTES];
  (void)state;
  for (int round = 0; round < ROUNDS_OF(20000); round++) {
    DLDataType dtype = spec_dtype(dtypes[spec_random() % 18]);
    spec_layout d;
    spec_layout s;
    const uint64_t flags = spec_random() % 4 == 0 ? PADDED : 0;
    spec_layout_random(&d, dtype, flags, 3);
    free(d.block);
    s = d;
    s.view.shape = s.shape;
    s.view.strides = s.strides;
    int how = (int)(spec_random() % 4);
    if (how == 0) spec_layout_strides(&s, true);
    if (how == 1 && s.view.ndim > 0) s.strides[0] = -s.strides[0];
    if (how == 2 && s.view.ndim == 2 && s.shape[0] == s.shape[1]) {
      s.strides[0] = d.strides[1];
      s.strides[1] = d.strides[0];
    }
    d.view.data = block + ORIGIN;
    s.view.data = block + ORIGIN + spec_between(-40, 40);
    spec_random_bytes(block, NBYTES);
    memcpy(want, block, NBYTES);
    oracle_copy(&d.view, &s.view, flags, want, block);
    mf_tensor *dst = spec_layout_wrap(&d, flags);
    mf_tensor *src = spec_layout_wrap(&s, flags);
    OK(mf_tensor_copy(dst, src, &spec_err));
    same_elements(&d.view, flags, block, want, NBYTES);
    mf_tensor_release(dst);
    mf_tensor_release(src);
  }
}

static void reversed_and_transposed_in_place(void **state) {
  enum { N = 300 };
  static int16_t a[N][N];
  mf_tensor *t;
  mf_tensor *v;
  (void)state;
  for (int i = 0; i < N * N; i++) a[i / N][i % N] = (int16_t)i;
  t = spec_wrap(a, "int16", DIMS(N, N), NULL);
  OK(mf_tensor_permute_dims(t, NULL, 0, &v, &spec_err));
  OK(mf_tensor_copy(t, v, &spec_err));
  for (int i = 0; i < N * N; i++) assert_int_equal(a[i % N][i / N], (int16_t)i);
  mf_tensor_release(v);
  mf_index back[] = {{.kind = MF_INDEX_SLICE, .start = MF_INDEX_NONE, .stop = MF_INDEX_NONE, .step = -1}};
  OK(mf_tensor_index(t, back, 1, &v, &spec_err));
  OK(mf_tensor_copy(t, v, &spec_err));
  for (int i = 0; i < N * N; i++) assert_int_equal(a[N - 1 - i % N][i / N], (int16_t)i);
  mf_tensor_release(v);
  mf_tensor_release(t);
}

typedef struct pair {
  mf_tensor *dst, *src;
} pair;

static int copy_pair(void *ctx, mf_error *error) {
  const pair *p = ctx;
  return mf_tensor_copy(p->dst, p->src, error);
}

/* Neighbours whose last and first bytes touch do not overlap: no temporary is needed, whichever lies first. */
static void neighbours_need_no_temporary(void **state) {
  int32_t memory[12];
  (void)state;
  for (int first = 0; first < 2; first++) {
    for (int i = 0; i < 12; i++) memory[i] = i;
    pair p = {spec_wrap(memory + (first ? 0 : 6), "int32", DIMS(2, 3), (int64_t[]){1, 2}),
              spec_wrap(memory + (first ? 6 : 0), "int32", DIMS(2, 3), NULL)};
    assert_int_equal(spec_each_failure(copy_pair, &p), 0);
    const int32_t *to = memory + (first ? 0 : 6), *from = memory + (first ? 6 : 0);
    for (int i = 0; i < 6; i++) assert_int_equal(to[i % 3 * 2 + i / 3], from[i]);
    mf_tensor_release(p.dst);
    mf_tensor_release(p.src);
  }
}

/* What overlaps needs a temporary; without memory for it nothing is written. */
static void an_overlap_without_memory_changes_nothing(void **state) {
  int32_t memory[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  pair p = {.dst = spec_wrap(memory, "int32", DIMS(3, 3), NULL)};
  (void)state;
  OK(mf_tensor_permute_dims(p.dst, NULL, 0, &p.src, &spec_err));
  mf_fault_arm(0, 1);
  FAILS(MF_ENOMEM, mf_tensor_copy(p.dst, p.src, &spec_err));
  mf_fault_arm(-1, 0);
  for (int i = 0; i < 9; i++) assert_int_equal(memory[i], i);
  assert_true(spec_each_failure(copy_pair, &p) > 0);
  mf_tensor_release(p.src);
  mf_tensor_release(p.dst);
}

/* Compact memory that overlaps moves as a whole, however much there is. */
static void a_large_overlap_of_compact_memory_needs_none(void **state) {
  enum { N = 4 << 20, BY = 100 };
  unsigned char *memory = malloc(N + BY);
  (void)state;
  assert_non_null(memory);
  for (int i = 0; i < N + BY; i++) memory[i] = (unsigned char)(i % 251);
  mf_tensor *src = spec_wrap(memory, "uint8", DIMS(N), NULL), *dst = spec_wrap(memory + BY, "uint8", DIMS(N), NULL);
  mf_fault_arm(0, 1);
  OK(mf_tensor_copy(dst, src, &spec_err));
  mf_fault_arm(-1, 0);
  for (int i = 0; i < N; i++) assert_int_equal(memory[BY + i], i % 251);
  mf_tensor_release(src);
  mf_tensor_release(dst);
  free(memory);
}

/* The memory of either side ends where a page without access begins: elements of parts of bytes are copied one by one,
 * and none of them needs the byte behind the last. */
static void nothing_behind_the_last_element_is_touched(void **state) {
  static const char *const widths[] = {"uint1", "uint2", "int3", "uint4", "uint5", "float6_e2m3fn", "uint7", "uint12"};
  enum { N = 16 };
  (void)state;
  const spec_region region = spec_guarded(1);
  unsigned char *end = region.start + region.nbytes;
  for (size_t w = 0; w < COUNT(widths); w++) {
    const DLDataType dtype = spec_dtype(widths[w]);
    const int64_t bits = mf_dtype_bits(&dtype, 0), nbytes = N * bits / 8;
    unsigned char elsewhere[2 * N * 2];
    mf_tensor *last = spec_wrap(end - nbytes, widths[w], DIMS(N), NULL);
    mf_tensor *apart = spec_wrap(elsewhere, widths[w], DIMS(N), (int64_t[]){2});
    mf_tensor *copy;
    spec_random_bytes(end - nbytes, (size_t)nbytes);
    OK(mf_tensor_clone(last, &copy, &spec_err));
    OK(mf_tensor_copy(apart, last, &spec_err));
    memset(end - nbytes, 0, (size_t)nbytes);
    OK(mf_tensor_copy(last, apart, &spec_err));
    assert_memory_equal(end - nbytes, mf_tensor_dltensor(copy)->data, (size_t)nbytes);
    mf_tensor_release(copy);
    mf_tensor_release(apart);
    mf_tensor_release(last);
  }
  spec_unguard(region);
}

/* Sizes around any block edge inside, contiguous, with a step, and repeated from one element. */
static void sizes_around_edges(void **state) {
  static const int64_t edges[] = {1, 8, 16, 64, 256, 4096, 32768, 65536, 1 << 20};
  static const char *const widths[] = {"int8", "uint8x3", "int32", "float64x3", "int4"};
  (void)state;
  for (size_t e = 0; e < COUNT(edges) - (ROUNDS_OF(20) > 1 ? 0 : 2); e++) {
    for (size_t w = 0; w < COUNT(widths); w++) {
      for (int64_t n = edges[e] - 1; n <= edges[e] + 1; n++) {
        DLDataType dtype = spec_dtype(widths[w]);
        int64_t nbytes = (n * mf_dtype_bits(&dtype, 0) + 7) / 8;
        unsigned char *from = malloc((size_t)nbytes * 2 + 64);
        spec_random_bytes(from, (size_t)nbytes * 2 + 64);
        mf_tensor *dst = spec_create(widths[w], 1, &n);
        mf_tensor *src = spec_wrap(n > 0 ? from : NULL, widths[w], 1, &n, NULL);
        OK(mf_tensor_copy(dst, src, &spec_err));
        int32_t equal;
        OK(mf_tensor_equal(dst, src, &equal, &spec_err));
        if (n > 0 && dtype.bits >= 8)
          assert_memory_equal(mf_tensor_dltensor(dst)->data, from, (size_t)nbytes);
        mf_tensor_release(src);
        src = spec_wrap(n > 0 ? from : NULL, widths[w], 1, &n, (int64_t[]){0});
        OK(mf_tensor_copy(dst, src, &spec_err));
        size_t one = (size_t)mf_dtype_bits(&dtype, 0) / 8;
        for (size_t i = one; i < (size_t)nbytes && one > 0; i += one) memcpy(from + i, from, one);
        if (n > 0 && one > 0) assert_memory_equal(mf_tensor_dltensor(dst)->data, from, (size_t)nbytes);
        mf_tensor_release(src);
        mf_tensor_release(dst);
        free(from);
      }
    }
  }
}

/* So large that lines are written past the cache, and each row of the destination ends within one. */
static void all_axes_turned(void **state) {
  enum { A = 120, B = 140, C = 45 };
  static int32_t from[C][B][A], to[A][B][C];
  (void)state;
  for (int c = 0; c < C; c++)
    for (int b = 0; b < B; b++)
      for (int a = 0; a < A; a++) from[c][b][a] = (c * B + b) * A + a;
  mf_tensor *src = spec_wrap(from, "int32", DIMS(A, B, C), (int64_t[]){1, A, A * B});
  mf_tensor *dst = spec_wrap(to, "int32", DIMS(A, B, C), NULL);
  OK(mf_tensor_copy(dst, src, &spec_err));
  for (int c = 0; c < C; c++)
    for (int b = 0; b < B; b++)
      for (int a = 0; a < A; a++) assert_int_equal(to[a][b][c], (c * B + b) * A + a);
  mf_tensor_release(src);
  mf_tensor_release(dst);
}

/* One element of more bytes than any block inside, repeated. */
static void a_huge_element(void **state) {
  static unsigned char element[8 * 65535];
  mf_tensor *v;
  (void)state;
  spec_random_bytes(element, sizeof element);
  mf_tensor *src = spec_wrap(element, "float64x65535", DIMS(1), NULL);
  mf_tensor *dst = spec_create("float64x65535", DIMS(5));
  OK(mf_tensor_broadcast_to(src, TO(5), &v, &spec_err));
  OK(mf_tensor_copy(dst, v, &spec_err));
  for (size_t i = 0; i < 5; i++)
    assert_memory_equal((char *)mf_tensor_dltensor(dst)->data + i * sizeof element, element, sizeof element);
  mf_tensor_release(v);
  mf_tensor_release(src);
  mf_tensor_release(dst);
}

static void nothing_to_copy(void **state) {
  (void)state;
  mf_tensor *a = spec_create("int32", DIMS(3, 0));
  mf_tensor *b = spec_wrap(NULL, "int32", DIMS(3, 0), (int64_t[]){INT64_MAX, INT64_MIN});
  mf_tensor *c;
  OK(mf_tensor_copy(a, b, &spec_err));
  OK(mf_tensor_copy(b, a, &spec_err));
  OK(mf_tensor_clone(b, &c, &spec_err));
  assert_null(mf_tensor_dltensor(c)->data);
  mf_tensor_release(a);
  mf_tensor_release(b);
  mf_tensor_release(c);
}

static void copy_refuses(void **state) {
  float memory[6] = {1, 2, 3, 4, 5, 6};
  mf_tensor *dst = spec_wrap(memory, "float32", DIMS(2, 3), NULL);
  mf_tensor *ro;
  (void)state;
  OK(mf_tensor_as_readonly(dst, &ro, &spec_err));
  static const int64_t shapes[][3] = {{3, 2, 0}, {2, 2, 0}, {2, 4, 0}, {1, 3, 0}, {2, 0, 0}};
  for (size_t i = 0; i < COUNT(shapes); i++) {
    mf_tensor *src = spec_create("float32", 2, shapes[i]);
    FAILS(MF_EINVAL, mf_tensor_copy(dst, src, &spec_err));
    FAILS(MF_EINVAL, mf_tensor_astype(dst, src, &spec_err));
    assert_int_equal(mf_tensor_copy(dst, src, NULL), MF_EINVAL);
    mf_tensor_release(src);
  }
  mf_tensor *flat = spec_create("float32", DIMS(6));
  SAYS(MF_EINVAL, "src.ndim is 1; dst.ndim, 2, expected", mf_tensor_copy(dst, flat, &spec_err));
  mf_tensor_release(flat);
  mf_tensor *other = spec_create("int32", DIMS(2, 3));
  SAYS(MF_EDTYPE, "src.dtype is int32; dst.dtype, float32, expected", mf_tensor_copy(dst, other, &spec_err));
  mf_tensor *lanes = spec_create("float32x2", DIMS(2, 3));
  SAYS(MF_EDTYPE, "float32x2", mf_tensor_copy(dst, lanes, &spec_err));
  mf_tensor_release(lanes);
  FAILS(MF_EREADONLY, mf_tensor_copy(ro, dst, &spec_err));
  FAILS(MF_EREADONLY, mf_tensor_astype(ro, other, &spec_err));
  for (int i = 0; i < 6; i++) assert_true(memory[i] == (float)(i + 1));
  mf_tensor_release(other);
  mf_tensor_release(ro);
  mf_tensor_release(dst);
}

static void packed_is_not_padded(void **state) {
  DLTensor like = {.ndim = 1, .dtype = {kDLInt, 4, 1}, .shape = (int64_t[]){4}};
  mf_tensor *packed;
  mf_tensor *padded;
  (void)state;
  OK(mf_tensor_create(&like, 0, &packed, &spec_err));
  OK(mf_tensor_create(&like, PADDED, &padded, &spec_err));
  FAILS(MF_EDTYPE, mf_tensor_copy(packed, padded, &spec_err));
  FAILS(MF_EDTYPE, mf_tensor_copy(padded, packed, &spec_err));
  for (int64_t i = 0; i < 4; i++)
    OK(mf_tensor_put(packed, &i, 1, &(mf_scalar){.kind = MF_KIND_INT, .i = i - 3}, &spec_err));
  OK(mf_tensor_astype(padded, packed, &spec_err)); /* a cast changes the form, too */
  for (int64_t i = 0; i < 4; i++) {
    mf_scalar value;
    OK(mf_tensor_get(padded, &i, 1, &value, &spec_err));
    assert_int_equal(value.i, i - 3);
  }
  mf_tensor_release(packed);
  mf_tensor_release(padded);
}

static void clone_is_compact_and_writable(void **state) {
  (void)state;
  for (int round = 0; round < ROUNDS_OF(3000); round++) {
    DLDataType dtype = spec_dtype(dtypes[spec_random() % COUNT(dtypes)]);
    uint64_t flags = spec_random() % 8;
    spec_layout l;
    unsigned char a[600];
    unsigned char b[600];
    int64_t coords[MF_MAX_NDIM];
    mf_tensor *c;
    spec_layout_random(&l, dtype, flags, 4);
    mf_tensor *t = spec_layout_wrap(&l, flags);
    OK(mf_tensor_clone(t, &c, &spec_err));
    const DLTensor *d = mf_tensor_dltensor(c);
    assert_int_equal(mf_tensor_flags(c), flags & PADDED);
    assert_int_equal(mf_tensor_is_contiguous(c), 1);
    assert_int_equal((uintptr_t)d->data % MF_ALIGNMENT, 0);
    for (bool more = spec_first(d->ndim, d->shape, coords); more;
         more = spec_next(d->ndim, d->shape, coords)) {
      spec_read(&l.view, flags, coords, a);
      spec_read(d, flags, coords, b);
      assert_memory_equal(a, b, spec_element_nbytes(d));
    }
    mf_tensor_release(t);
    mf_tensor_release(c);
    free(l.block);
  }
}

/* Fill: every element of the view, and nothing beside it. */
static void fill_any_layout(void **state) {
  static const char *const numeric[] = {"int8", "int16", "int32", "int64", "int4", "uint2", "uint1", "int3"};
  (void)state;
  for (int round = 0; round < ROUNDS_OF(4000); round++) {
    uint64_t flags = spec_random() % 4 == 0 ? PADDED : 0;
    spec_layout l;
    int64_t coords[MF_MAX_NDIM];
    spec_layout_random(&l, spec_dtype(numeric[spec_random() % COUNT(numeric)]), flags, 4);
    mf_scalar value = {.kind = MF_KIND_INT, .i = (int64_t)spec_random()};
    unsigned char *want = malloc(l.block_nbytes + 1);
    memcpy(want, l.block, l.block_nbytes);
    for (bool more = spec_first(l.view.ndim, l.shape, coords); more;
         more = spec_next(l.view.ndim, l.shape, coords)) {
      int64_t bit = ((unsigned char *)l.view.data - l.block) * 8 + spec_bit(&l.view, flags, coords);
      spec_write(want, bit, l.view.dtype.bits, (const unsigned char *)&value.i);
    }
    mf_tensor *t = spec_layout_wrap(&l, flags);
    OK(mf_tensor_fill(t, &value, &spec_err));
    same_elements(&l.view, flags, l.block, want, l.block_nbytes);
    mf_tensor_release(t);
    free(want);
    free(l.block);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(any_layout_to_any_layout),
      SPEC(overlap),
      SPEC(reversed_and_transposed_in_place),
      SPEC(neighbours_need_no_temporary),
      SPEC(an_overlap_without_memory_changes_nothing),
      SPEC(a_large_overlap_of_compact_memory_needs_none),
      SPEC(nothing_behind_the_last_element_is_touched),
      SPEC(sizes_around_edges),
      SPEC(all_axes_turned),
      SPEC(a_huge_element),
      SPEC(nothing_to_copy),
      SPEC(copy_refuses),
      SPEC(packed_is_not_padded),
      SPEC(clone_is_compact_and_writable),
      SPEC(fill_any_layout),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
