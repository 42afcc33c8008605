/* view_spec.c: what views refuse, and their edges: ranks, extents of 0 and 1, sub-byte dtypes, flags,
 * numbers at the end of their range. What they give otherwise is in layout_spec.c.
 */
#include "spec.h"

#define READ_ONLY DLPACK_FLAG_BITMASK_READ_ONLY

static const mf_index ellipsis = {.kind = MF_INDEX_ELLIPSIS};
static const mf_index newaxis = {.kind = MF_INDEX_NEWAXIS};
static mf_index at(int64_t i) { return (mf_index){.kind = MF_INDEX_AT, .start = i}; }
static mf_index slice(int64_t start, int64_t stop, int64_t step) {
  return (mf_index){.kind = MF_INDEX_SLICE, .start = start, .stop = stop, .step = step};
}

static void index_refuses(void **state) {
  static const int64_t outside[] = {3, 4, -4, INT64_MAX, INT64_MIN, INT64_MIN + 1};
  mf_tensor *v;
  (void)state;
  mf_tensor *t = spec_create("int8", DIMS(3, 2));
  for (size_t i = 0; i < COUNT(outside); i++) {
    mf_index item = at(outside[i]);
    REFUSES(MF_EBOUNDS, v, mf_tensor_index(t, &item, 1, &v, &spec_err));
    assert_int_equal(mf_tensor_index(t, &item, 1, &v, NULL), MF_EBOUNDS);
  }
  mf_index three[] = {at(0), at(0), at(0)};
  REFUSES(MF_EBOUNDS, v, mf_tensor_index(t, three, 3, &v, &spec_err));
  mf_index outside_first[] = {at(9), at(0)};
  REFUSES(MF_EBOUNDS, v, mf_tensor_index(t, outside_first, 2, &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_index(t, outside_first, -1, &v, &spec_err));
  mf_index no_step = slice(0, 1, 0);
  SAYS(MF_EINVAL, "step is 0", mf_tensor_index(t, &no_step, 1, &v, &spec_err));
  mf_index two[] = {ellipsis, ellipsis};
  REFUSES(MF_EINVAL, v, mf_tensor_index(t, two, 2, &v, &spec_err));
  for (int32_t kind = -2; kind < 8; kind++) {
    mf_index item = {.kind = kind, .step = 1};
    if (kind < MF_INDEX_AT || kind > MF_INDEX_ELLIPSIS)
      SAYS(MF_EINVAL, "kind", mf_tensor_index(t, &item, 1, &v, &spec_err));
    item.kind = MF_INDEX_SLICE;
    item.zero = kind;
    if (kind != 0) SAYS(MF_EINVAL, "zero", mf_tensor_index(t, &item, 1, &v, &spec_err));
  }
  mf_tensor_release(t);
}

static void index_nothing_is_everything(void **state) {
  mf_tensor *v;
  (void)state;
  mf_tensor *t = spec_create("int8", DIMS(3, 2));
  OK(mf_tensor_index(t, NULL, 0, &v, &spec_err));
  assert_int_equal(mf_tensor_size(v), 6);
  assert_ptr_equal(mf_tensor_dltensor(v)->data, mf_tensor_dltensor(t)->data);
  mf_tensor_release(v);
  OK(mf_tensor_index(t, &ellipsis, 1, &v, &spec_err));
  assert_int_equal(mf_tensor_size(v), 6);
  mf_tensor_release(v);
  mf_tensor_release(t);
}

static void an_axis_of_extent_0_has_no_coordinate(void **state) {
  mf_tensor *v;
  (void)state;
  mf_tensor *t = spec_create("int8", DIMS(0));
  mf_index item = at(0);
  REFUSES(MF_EBOUNDS, v, mf_tensor_index(t, &item, 1, &v, &spec_err));
  item = at(-1);
  REFUSES(MF_EBOUNDS, v, mf_tensor_index(t, &item, 1, &v, &spec_err));
  item = slice(MF_INDEX_NONE, MF_INDEX_NONE, -1);
  OK(mf_tensor_index(t, &item, 1, &v, &spec_err));
  assert_int_equal(mf_tensor_size(v), 0);
  mf_tensor_release(v);
  mf_tensor_release(t);
}

static void rank_64_and_no_more(void **state) {
  int64_t ones[65];
  mf_index items[65];
  int32_t axes[65];
  mf_tensor *v;
  mf_tensor *t;
  (void)state;
  for (int32_t i = 0; i < 65; i++) {
    ones[i] = 1;
    items[i] = newaxis;
    axes[i] = i;
  }
  mf_tensor *scalar = spec_create("int8", 0, NULL);
  OK(mf_tensor_index(scalar, items, 64, &t, &spec_err));
  assert_int_equal(mf_tensor_dltensor(t)->ndim, 64);
  REFUSES(MF_EINVAL, v, mf_tensor_index(scalar, items, 65, &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_index(t, items, 1, &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_expand_dims(t, 0, &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_reshape(t, ones, 65, &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_broadcast_to(t, ones, 65, &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_permute_dims(t, axes, 65, &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_squeeze(t, axes, 65, &v, &spec_err));
  OK(mf_tensor_permute_dims(t, axes, 64, &v, &spec_err));
  mf_tensor_release(v);
  OK(mf_tensor_squeeze(t, axes, 64, &v, &spec_err));
  assert_int_equal(mf_tensor_dltensor(v)->ndim, 0);
  mf_tensor_release(v);
  OK(mf_tensor_reshape(t, ones, 64, &v, &spec_err));
  mf_tensor_release(v);
  OK(mf_tensor_broadcast_to(scalar, ones, 64, &v, &spec_err));
  mf_tensor_release(v);
  mf_tensor_release(t);
  mf_tensor_release(scalar);
}

static void permute_refuses(void **state) {
  mf_tensor *v;
  (void)state;
  mf_tensor *t = spec_create("int8", DIMS(3, 2));
  REFUSES(MF_EINVAL, v, mf_tensor_permute_dims(t, (int32_t[]){0, 0}, 2, &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_permute_dims(t, (int32_t[]){0, -2}, 2, &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_permute_dims(t, (int32_t[]){0}, 1, &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_permute_dims(t, (int32_t[]){0, 1, 1}, 3, &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_permute_dims(t, (int32_t[]){0, 1}, 0, &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_permute_dims(t, (int32_t[]){0, 1}, -1, &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_permute_dims(t, NULL, 2, &v, &spec_err));
  REFUSES(MF_EBOUNDS, v, mf_tensor_permute_dims(t, (int32_t[]){0, 2}, 2, &v, &spec_err));
  REFUSES(MF_EBOUNDS, v, mf_tensor_permute_dims(t, (int32_t[]){INT32_MIN, 1}, 2, &v, &spec_err));
  REFUSES(MF_EBOUNDS, v, mf_tensor_permute_dims(t, (int32_t[]){0, INT32_MAX}, 2, &v, &spec_err));
  mf_tensor_release(t);
}

static void reshape_refuses(void **state) {
  static const struct {
    int32_t ndim;
    int64_t shape[4];
    int status;
  } rows[] = {
      {1, {5}, MF_EINVAL},         {1, {7}, MF_EINVAL},           {0, {0}, MF_EINVAL},
      {2, {-1, -1}, MF_EINVAL},    {2, {-2, 3}, MF_EINVAL},       {2, {-1, 4}, MF_EINVAL},
      {2, {-1, 0}, MF_EINVAL},     {2, {0, 6}, MF_EINVAL},        {-1, {0}, MF_EINVAL},
      {65, {0}, MF_EINVAL},        {2, {INT64_MAX, INT64_MAX}, MF_EOVERFLOW},
      {3, {INT64_MAX, 2, -1}, MF_EOVERFLOW}, {2, {INT64_MIN, 1}, MF_EINVAL}, {2, {6, 2}, MF_EINVAL},
  };
  mf_tensor *v;
  (void)state;
  mf_tensor *t = spec_create("int8", DIMS(3, 2));
  for (size_t i = 0; i < COUNT(rows); i++) {
    REFUSES(rows[i].status, v, mf_tensor_reshape(t, rows[i].shape, rows[i].ndim, &v, &spec_err));
    assert_int_equal(mf_tensor_reshape(t, rows[i].shape, rows[i].ndim, &v, NULL), rows[i].status);
  }
  mf_tensor_release(t);
}

static void reshape_of_nothing(void **state) {
  mf_tensor *v;
  (void)state;
  mf_tensor *t = spec_create("int8", DIMS(0, 4));
  OK(mf_tensor_reshape(t, TO(5, 0, 7), &v, &spec_err));
  mf_tensor_release(v);
  OK(mf_tensor_reshape(t, (int64_t[]){2, -1}, 2, &v, &spec_err));
  assert_int_equal(mf_tensor_dltensor(v)->shape[1], 0);
  mf_tensor_release(v);
  REFUSES(MF_EINVAL, v, mf_tensor_reshape(t, (int64_t[]){0, -1}, 2, &v, &spec_err));
  SAYS(MF_EINVAL, "shape[1] is -1, but", mf_tensor_reshape(t, (int64_t[]){0, -1}, 2, &v, &spec_err));
  SAYS(MF_EINVAL, "shape[0] is -1, but", mf_tensor_reshape(t, (int64_t[]){-1, 0}, 2, &v, &spec_err));
  REFUSES(MF_EOVERFLOW, v, mf_tensor_reshape(t, (int64_t[]){INT64_MAX, 3, 0}, 3, &v, &spec_err));
  mf_tensor_release(t);
}

/* Axes of extent 1 may carry any stride and never hinder. */
static void extents_of_1_do_not_count(void **state) {
  unsigned char memory[6];
  mf_tensor *v;
  (void)state;
  mf_tensor *t = spec_wrap(memory, "int8", DIMS(3, 1, 2), (int64_t[]){2, INT64_MIN, 1});
  assert_int_equal(mf_tensor_is_contiguous(t), 1);
  OK(mf_tensor_reshape(t, TO(6), &v, &spec_err));
  mf_tensor_release(v);
  mf_index items[] = {slice(0, 3, 1), at(-1), slice(1, 2, 1)};
  OK(mf_tensor_index(t, items, 3, &v, &spec_err));
  assert_ptr_equal(mf_tensor_dltensor(v)->data, memory + 1);
  mf_tensor_release(v);
  items[1] = slice(MF_INDEX_NONE, MF_INDEX_NONE, -7);
  OK(mf_tensor_index(t, items, 3, &v, &spec_err));
  assert_ptr_equal(mf_tensor_dltensor(v)->data, memory + 1);
  mf_tensor_release(v);
  mf_tensor_release(t);
}

/* A tensor without elements may carry any strides, which no view may multiply. */
static void wild_strides_without_elements(void **state) {
  mf_tensor *v;
  DLDataType wide = {kDLFloat, 64, 1};
  mf_index items[] = {slice(0, 1, 1), at(3), slice(3, 0, -2)};
  (void)state;
  mf_tensor *t = spec_wrap(NULL, "int32", DIMS(0, 4, 4), (int64_t[]){INT64_MAX, INT64_MIN, INT64_MAX});
  assert_int_equal(mf_tensor_is_contiguous(t), 1);
  OK(mf_tensor_index(t, items, 3, &v, &spec_err));
  mf_tensor_release(v);
  OK(mf_tensor_diagonal(t, -1, (int32_t[]){1, 2}, &v, &spec_err));
  mf_tensor_release(v);
  OK(mf_tensor_diagonal(t, 2, (int32_t[]){2, 1}, &v, &spec_err));
  mf_tensor_release(v);
  OK(mf_tensor_permute_dims(t, NULL, 0, &v, &spec_err));
  mf_tensor_release(v);
  OK(mf_tensor_broadcast_to(t, TO(3, 0, 4, 4), &v, &spec_err));
  mf_tensor_release(v);
  REFUSES(MF_ELAYOUT, v, mf_tensor_reinterpret(t, &wide, &v, &spec_err));
  mf_tensor_release(t);
  t = spec_wrap(NULL, "int32", DIMS(0, 4, 4), (int64_t[]){INT64_MAX, INT64_MAX, INT64_MAX});
  OK(mf_tensor_diagonal(t, 0, (int32_t[]){1, 2}, &v, &spec_err));
  mf_tensor_release(v);
  mf_tensor_release(t);
}

/* Strides whose reach fits into int64_t, although stride times extent does not. */
static void strides_at_the_end_of_their_range(void **state) {
  mf_tensor *v;
  unsigned char memory[8];
  (void)state;
  mf_tensor *t = spec_wrap(memory, "uint1", DIMS(2, 2), (int64_t[]){8, (int64_t)1 << 62});
  REFUSES(MF_ELAYOUT, v, mf_tensor_reshape(t, TO(4), &v, &spec_err));
  OK(mf_tensor_reshape(t, TO(2, 1, 2), &v, &spec_err));
  mf_tensor_release(v);
  assert_int_equal(mf_tensor_is_contiguous(t), 0);
  mf_tensor_release(t);
}

static void broadcast_refuses(void **state) {
  mf_tensor *v;
  (void)state;
  mf_tensor *t = spec_create("int8", DIMS(3, 1));
  REFUSES(MF_EINVAL, v, mf_tensor_broadcast_to(t, TO(4, 1), &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_broadcast_to(t, TO(3), &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_broadcast_to(t, TO(3, 1, 2), &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_broadcast_to(t, TO(0, 1), &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_broadcast_to(t, (int64_t[]){3, -1}, 2, &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_broadcast_to(t, NULL, 2, &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_broadcast_to(t, NULL, INT32_MIN, &v, &spec_err));
  REFUSES(MF_EOVERFLOW, v, mf_tensor_broadcast_to(t, TO(3, INT64_MAX), &v, &spec_err));
  REFUSES(MF_EOVERFLOW, v, mf_tensor_broadcast_to(t, TO(INT64_MAX, 3, INT64_MAX), &v, &spec_err));
  OK(mf_tensor_broadcast_to(t, TO(1, 3, 1), &v, &spec_err));
  assert_int_equal(mf_tensor_flags(v), 0);
  mf_tensor_release(v);
  mf_tensor_release(t);
  t = spec_create("float64", DIMS(1)); /* so many elements can be counted, and their bytes cannot */
  REFUSES(MF_EOVERFLOW, v, mf_tensor_broadcast_to(t, TO(INT64_MAX / 4), &v, &spec_err));
  mf_tensor_release(t);
}

static void squeeze_expand_diagonal_refuse(void **state) {
  mf_tensor *v;
  (void)state;
  mf_tensor *t = spec_create("int8", DIMS(3, 1));
  SAYS(MF_EINVAL, "extent 3", mf_tensor_squeeze(t, (int32_t[]){0}, 1, &v, &spec_err));
  REFUSES(MF_EBOUNDS, v, mf_tensor_squeeze(t, (int32_t[]){2}, 1, &v, &spec_err));
  REFUSES(MF_EBOUNDS, v, mf_tensor_squeeze(t, (int32_t[]){-3}, 1, &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_squeeze(t, (int32_t[]){1}, -1, &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_squeeze(t, NULL, 1, &v, &spec_err));
  REFUSES(MF_EBOUNDS, v, mf_tensor_expand_dims(t, 3, &v, &spec_err));
  REFUSES(MF_EBOUNDS, v, mf_tensor_expand_dims(t, -4, &v, &spec_err));
  REFUSES(MF_EBOUNDS, v, mf_tensor_expand_dims(t, INT32_MIN, &v, &spec_err));
  REFUSES(MF_EBOUNDS, v, mf_tensor_expand_dims(t, INT32_MAX, &v, &spec_err));
  REFUSES(MF_EBOUNDS, v, mf_tensor_diagonal(t, 0, (int32_t[]){0, 2}, &v, &spec_err));
  REFUSES(MF_EBOUNDS, v, mf_tensor_diagonal(t, 0, (int32_t[]){-3, 1}, &v, &spec_err));
  REFUSES(MF_EINVAL, v, mf_tensor_diagonal(t, 0, (int32_t[]){1, -1}, &v, &spec_err));
  OK(mf_tensor_diagonal(t, INT64_MIN, (int32_t[]){0, 1}, &v, &spec_err));
  assert_int_equal(mf_tensor_size(v), 0);
  mf_tensor_release(v);
  OK(mf_tensor_diagonal(t, INT64_MAX, (int32_t[]){0, 1}, &v, &spec_err));
  assert_int_equal(mf_tensor_size(v), 0);
  mf_tensor_release(v);
  mf_tensor_release(t);
  t = spec_create("int8", 0, NULL);
  SAYS(MF_EBOUNDS, "axis is 0; ndim is 0", mf_tensor_diagonal(t, 0, (int32_t[]){0, 1}, &v, &spec_err));
  SAYS(MF_EBOUNDS, "axis is -2; -1 to 0 expected", mf_tensor_expand_dims(t, -2, &v, &spec_err));
  mf_tensor_release(t);
}

static void reinterpret_refuses(void **state) {
  mf_tensor *v;
  unsigned char memory[64];
  DLDataType no_dtype = {18, 8, 1};
  DLDataType wide = {kDLFloat, 64, 1};
  DLDataType odd = {kDLUInt, 8, 3};
  (void)state;
  mf_tensor *t = spec_wrap(memory, "float32", DIMS(2, 3), (int64_t[]){4, 1});
  REFUSES(MF_EDTYPE, v, mf_tensor_reinterpret(t, &no_dtype, &v, &spec_err));
  REFUSES(MF_ELAYOUT, v, mf_tensor_reinterpret(t, &wide, &v, &spec_err));
  REFUSES(MF_ELAYOUT, v, mf_tensor_reinterpret(t, &odd, &v, &spec_err));
  mf_tensor_release(t);
  t = spec_wrap(memory, "float32", 0, NULL, NULL);
  REFUSES(MF_ELAYOUT, v, mf_tensor_reinterpret(t, &wide, &v, &spec_err));
  mf_tensor_release(t);
  t = spec_wrap(NULL, "float32", DIMS(4, 0), (int64_t[]){INT64_MAX, 1});
  REFUSES(MF_ELAYOUT, v, mf_tensor_reinterpret(t, &wide, &v, &spec_err));
  mf_tensor_release(t);
  t = spec_wrap(NULL, "float32", DIMS(0, INT64_MAX), (int64_t[]){1, 1});
  assert_int_not_equal(mf_tensor_reinterpret(t, &wide, &v, NULL), MF_OK);
  assert_null(v);
  mf_tensor_release(t);
}

/* Packed elements seen as bytes and back; a view must begin at a whole byte. */
static void sub_byte_views(void **state) {
  unsigned char memory[8];
  mf_tensor *v;
  DLDataType nibble = {kDLInt, 4, 1};
  (void)state;
  mf_tensor *bytes = spec_wrap(memory, "uint8", DIMS(2, 4), NULL);
  mf_tensor *t;
  OK(mf_tensor_reinterpret(bytes, &nibble, &t, &spec_err));
  assert_int_equal(mf_tensor_dltensor(t)->shape[1], 8);
  assert_int_equal(mf_tensor_dltensor(t)->strides[0], 8);
  mf_index odd[] = {ellipsis, slice(1, 8, 1)};
  SAYS(MF_ELAYOUT, "byte", mf_tensor_index(t, odd, 2, &v, &spec_err));
  mf_index even[] = {ellipsis, slice(2, 8, 3)};
  OK(mf_tensor_index(t, even, 2, &v, &spec_err));
  assert_ptr_equal(mf_tensor_dltensor(v)->data, memory + 1);
  mf_tensor_release(v);
  mf_index back[] = {ellipsis, slice(MF_INDEX_NONE, MF_INDEX_NONE, -1)};
  REFUSES(MF_ELAYOUT, v, mf_tensor_index(t, back, 2, &v, &spec_err));
  mf_index none[] = {at(0), slice(3, 3, 1)};
  OK(mf_tensor_index(t, none, 2, &v, &spec_err));
  mf_tensor_release(v);
  mf_tensor_release(t);
  t = spec_wrap(memory, "int4", DIMS(0, 3), NULL);
  mf_index column[] = {ellipsis, at(1)};
  OK(mf_tensor_index(t, column, 2, &v, &spec_err)); /* of nothing, wherever it is */
  mf_tensor_release(v);
  mf_tensor_release(t);
  mf_tensor_release(bytes);
}

/* The view of its kind, of a square. */
static mf_tensor *nth_view(const mf_tensor *t, int kind) {
  static const int32_t axes[] = {0, 1};
  static const int64_t shape[] = {4, 1, 2}, larger[] = {3, 2, 4}, same[] = {2, 4};
  const mf_index item = {.kind = MF_INDEX_SLICE, .start = 0, .stop = 1, .step = 1};
  const DLDataType byte = {kDLUInt, 8, 1};
  mf_tensor *v = NULL;
  switch (kind) {
    case 0: OK(mf_tensor_index(t, &item, 1, &v, &spec_err)); break;
    case 1: OK(mf_tensor_permute_dims(t, NULL, 0, &v, &spec_err)); break;
    case 2: OK(mf_tensor_reshape(t, shape, 3, &v, &spec_err)); break;
    case 3: OK(mf_tensor_squeeze(t, NULL, 0, &v, &spec_err)); break;
    case 4: OK(mf_tensor_expand_dims(t, 1, &v, &spec_err)); break;
    case 5: OK(mf_tensor_diagonal(t, 0, axes, &v, &spec_err)); break;
    case 6: OK(mf_tensor_reinterpret(t, &byte, &v, &spec_err)); break;
    case 7: OK(mf_tensor_broadcast_to(t, same, 2, &v, &spec_err)); break;
    case 8: OK(mf_tensor_broadcast_to(t, larger, 3, &v, &spec_err)); break;
    case 9: OK(mf_tensor_as_readonly(t, &v, &spec_err)); break;
    default: break;
  }
  return v;
}

static void flags_go_on(void **state) {
  enum { REPEATS = 8, AS_READONLY = 9 };
  unsigned char memory[8];
  int64_t shape[] = {2, 4};
  DLTensor like = {.data = memory, .ndim = 2, .dtype = {kDLInt, 8, 1}, .shape = shape};
  mf_tensor *t, *v;
  (void)state;
  for (uint64_t flags = 0; flags < 8; flags++) {
    OK(mf_tensor_wrap(&like, flags, NULL, NULL, &t, &spec_err));
    for (int kind = 0; (v = nth_view(t, kind)) != NULL; kind++) {
      assert_int_equal(mf_tensor_flags(v), flags | (kind == REPEATS || kind == AS_READONLY ? READ_ONLY : 0));
      if (kind == AS_READONLY) assert_memory_equal(mf_tensor_dltensor(v)->shape, shape, sizeof shape);
      mf_tensor_release(v);
    }
    mf_tensor_release(t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(index_refuses),
      SPEC(index_nothing_is_everything),
      SPEC(an_axis_of_extent_0_has_no_coordinate),
      SPEC(rank_64_and_no_more),
      SPEC(permute_refuses),
      SPEC(reshape_refuses),
      SPEC(reshape_of_nothing),
      SPEC(extents_of_1_do_not_count),
      SPEC(wild_strides_without_elements),
      SPEC(strides_at_the_end_of_their_range),
      SPEC(broadcast_refuses),
      SPEC(squeeze_expand_diagonal_refuse),
      SPEC(reinterpret_refuses),
      SPEC(sub_byte_views),
      SPEC(flags_go_on),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
