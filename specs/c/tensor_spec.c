/* tensor_spec.c: making tensors over new and over foreign memory, and what they say of themselves. */
#include "spec.h"

#define PADDED DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED

static void create_is_compact_and_aligned(void **state) {
  (void)state;
  for (int round = 0; round < 300; round++) {
    int64_t shape[5];
    int32_t ndim = (int32_t)spec_between(0, 5);
    int64_t numel = 1;
    for (int32_t i = 0; i < ndim; i++) numel *= shape[i] = spec_between(1, 5);
    mf_tensor *t = spec_create("float32", ndim, shape);
    const DLTensor *d = mf_tensor_dltensor(t);
    assert_int_equal((uintptr_t)d->data % MF_ALIGNMENT, 0);
    assert_int_equal(d->device.device_type, kDLCPU);
    assert_int_equal(d->device.device_id, 0);
    assert_int_equal(d->byte_offset, 0);
    assert_int_equal(mf_tensor_size(t), numel);
    assert_int_equal(mf_tensor_nbytes(t), numel * 4);
    assert_int_equal(mf_tensor_is_contiguous(t), 1);
    assert_int_equal(mf_tensor_flags(t), 0);
    assert_int_equal(mf_tensor_is_valid(t), 1);
    assert_true((ndim == 0) == (d->strides == NULL && d->shape == NULL));
    for (int32_t i = ndim - 1, step = 1; i >= 0; i--) {
      assert_int_equal(d->strides[i], step);
      assert_int_equal(d->shape[i], shape[i]);
      step *= (int32_t)shape[i];
    }
    memset(d->data, 0xee, (size_t)mf_tensor_nbytes(t));
    mf_tensor_release(t);
  }
}

static void create_reads_nothing_but_the_prototype(void **state) {
  void *wild = (void *)(uintptr_t)0xdeadbeefdead;
  int64_t shape[] = {2, 3};
  DLTensor like = {.data = wild, .ndim = 2, .shape = shape, .strides = wild, .byte_offset = 99};
  mf_tensor *t;
  (void)state;
  like.dtype = spec_dtype("int16");
  like.device.device_type = kDLCPU;
  OK(mf_tensor_create(&like, 0, &t, &spec_err));
  assert_int_equal(mf_tensor_dltensor(t)->strides[0], 3);
  shape[0] = 77;
  assert_int_equal(mf_tensor_dltensor(t)->shape[0], 2);
  mf_tensor_release(t);
}

static void create_of_nothing(void **state) {
  (void)state;
  mf_tensor *t = spec_create("float64", DIMS(3, 0, 2));
  assert_null(mf_tensor_dltensor(t)->data);
  assert_int_equal(mf_tensor_size(t), 0);
  assert_int_equal(mf_tensor_nbytes(t), 0);
  assert_int_equal(mf_tensor_is_contiguous(t), 1);
  mf_tensor_release(t);
}

static void create_refuses(void **state) {
  int64_t shape[65];
  mf_tensor *t;
  DLTensor like = {.ndim = 1, .shape = shape, .dtype = {kDLFloat, 32, 1}};
  (void)state;
  for (int i = 0; i < 65; i++) shape[i] = 1;
  for (int bit = 0; bit < 64; bit++) {
    if (bit != 2 && bit != 8) REFUSES(MF_EINVAL, t, mf_tensor_create(&like, (uint64_t)1 << bit, &t, &spec_err));
  }
  like.ndim = -1;
  REFUSES(MF_EINVAL, t, mf_tensor_create(&like, 0, &t, &spec_err));
  like.ndim = 65;
  REFUSES(MF_EINVAL, t, mf_tensor_create(&like, 0, &t, &spec_err));
  like.ndim = 64;
  OK(mf_tensor_create(&like, 0, &t, &spec_err));
  mf_tensor_release(t);
  like.ndim = 2;
  shape[1] = -1;
  SAYS(MF_EINVAL, "shape[1] is -1", mf_tensor_create(&like, 0, &t, &spec_err));
  shape[0] = INT64_MAX;
  shape[1] = 2;
  REFUSES(MF_EOVERFLOW, t, mf_tensor_create(&like, 0, &t, &spec_err));
  shape[1] = 1;
  REFUSES(MF_EOVERFLOW, t, mf_tensor_create(&like, 0, &t, &spec_err));
  like.dtype.bits = 8;
  REFUSES(MF_EOVERFLOW, t, mf_tensor_create(&like, 0, &t, &spec_err));
  shape[0] = (int64_t)1 << 59;
  REFUSES(MF_ENOMEM, t, mf_tensor_create(&like, 0, &t, &spec_err));
  like.dtype.lanes = 0;
  REFUSES(MF_EDTYPE, t, mf_tensor_create(&like, 0, &t, &spec_err));
  like.dtype.lanes = 1;
  like.device = (DLDevice){kDLCUDA, 0};
  REFUSES(MF_EDEVICE, t, mf_tensor_create(&like, 0, &t, &spec_err));
  like.device = (DLDevice){kDLCPU, 1};
  REFUSES(MF_EDEVICE, t, mf_tensor_create(&like, 0, &t, &spec_err));
  SAYS(MF_EDEVICE, "device is cpu:1; a device_id of 0 to 0 expected", mf_tensor_create(&like, 0, &t, &spec_err));
  like.device = (DLDevice){(DLDeviceType)0, 0};
  like.shape = NULL;
  REFUSES(MF_EINVAL, t, mf_tensor_create(&like, 0, &t, &spec_err));
  assert_int_equal(mf_tensor_create(&like, 0, &t, NULL), MF_EINVAL);
}

/* Compact bytes of packed and of padded sub-byte dtypes. */
static void sub_byte_sizes(void **state) {
  static const struct {
    const char *dtype;
    int64_t n, packed, padded;
  } rows[] = {
      {"int4", 5, 3, 5},   {"uint1", 9, 2, 9},        {"float6_e2m3fn", 4, 3, 4}, {"int4x3", 3, 5, 6},
      {"bool1", 8, 1, 8},  {"float4_e2m1fnx2", 7, 7, 7}, {"uint7", 8, 7, 8},      {"int8", 5, 5, 5},
      {"uint12", 3, 6, 6}, {"uint1x65535", 1, 8192, 8192},
  };
  (void)state;
  for (size_t i = 0; i < COUNT(rows); i++) {
    DLTensor like = {.ndim = 1, .dtype = spec_dtype(rows[i].dtype), .shape = (int64_t[]){rows[i].n}};
    mf_tensor *t;
    OK(mf_tensor_create(&like, 0, &t, &spec_err));
    assert_int_equal(mf_tensor_nbytes(t), rows[i].packed);
    memset(mf_tensor_dltensor(t)->data, 1, (size_t)rows[i].packed);
    mf_tensor_release(t);
    OK(mf_tensor_create(&like, PADDED, &t, &spec_err));
    assert_int_equal(mf_tensor_nbytes(t), rows[i].padded);
    assert_int_equal(mf_tensor_flags(t), PADDED);
    memset(mf_tensor_dltensor(t)->data, 1, (size_t)rows[i].padded);
    mf_tensor_release(t);
  }
}

static void wrap_describes(void **state) {
  static const uint64_t known[] = {0, 1, 2, 3, 4, 5, 6, 7};
  unsigned char memory[64];
  (void)state;
  for (size_t i = 0; i < COUNT(known); i++) {
    int64_t shape[] = {2, 3};
    DLTensor view = {.data = memory, .ndim = 2, .dtype = {kDLInt, 16, 1}, .shape = shape, .byte_offset = 8};
    spec_once *once = spec_once_new();
    mf_tensor *t;
    OK(mf_tensor_wrap(&view, known[i], spec_once_run, once, &t, &spec_err));
    const DLTensor *d = mf_tensor_dltensor(t);
    assert_ptr_equal(d->data, memory + 8);
    assert_int_equal(d->byte_offset, 0);
    assert_int_equal(d->strides[0], 3);
    assert_int_equal(d->strides[1], 1);
    assert_int_equal(d->device.device_type, kDLCPU);
    assert_int_equal(mf_tensor_flags(t), known[i]);
    assert_int_equal(spec_once_calls(once), 0);
    mf_tensor_release(t);
    assert_int_equal(spec_once_calls(once), 1);
  }
}

static void wrap_refuses_and_does_not_release(void **state) {
  unsigned char memory[64];
  int64_t shape[] = {2, 3};
  DLTensor view = {.data = memory, .ndim = 2, .dtype = {kDLInt, 16, 1}, .shape = shape};
  spec_once *once = spec_once_new();
  mf_tensor *t;
  (void)state;
  spec_once_never(once);
  for (int bit = 3; bit < 64; bit++) {
    REFUSES(MF_EINVAL, t, mf_tensor_wrap(&view, (uint64_t)1 << bit, spec_once_run, once, &t, &spec_err));
  }
  view.data = NULL;
  REFUSES(MF_EINVAL, t, mf_tensor_wrap(&view, 0, spec_once_run, once, &t, &spec_err));
  view.data = memory;
  view.ndim = 65;
  REFUSES(MF_EINVAL, t, mf_tensor_wrap(&view, 0, spec_once_run, once, &t, &spec_err));
  view.ndim = 2;
  view.dtype.code = 18;
  REFUSES(MF_EDTYPE, t, mf_tensor_wrap(&view, 0, spec_once_run, once, &t, &spec_err));
  view.dtype.code = 1;
  view.device.device_type = kDLROCM;
  REFUSES(MF_EDEVICE, t, mf_tensor_wrap(&view, 0, spec_once_run, once, &t, &spec_err));
  view.device.device_type = kDLCPU;
  shape[0] = INT64_MAX;
  REFUSES(MF_EOVERFLOW, t, mf_tensor_wrap(&view, 0, spec_once_run, once, &t, &spec_err));
  assert_int_equal(mf_tensor_wrap(&view, 0, spec_once_run, once, &t, NULL), MF_EOVERFLOW);
}

static void wrap_without_release(void **state) {
  float memory[6] = {1, 2, 3, 4, 5, 6};
  (void)state;
  mf_tensor *t = spec_wrap(memory, "float32", DIMS(2, 3), (int64_t[]){1, 2});
  assert_int_equal(mf_tensor_is_contiguous(t), 0);
  assert_int_equal(mf_tensor_size(t), 6);
  mf_tensor_release(t);
  t = spec_wrap(memory, "float32", 0, NULL, NULL);
  assert_int_equal(mf_tensor_size(t), 1);
  assert_null(mf_tensor_dltensor(t)->shape);
  mf_tensor_release(t);
}

/* Where there is no status to say so. */
static void null_is_nothing(void **state) {
  (void)state;
  assert_null(mf_tensor_retain(NULL));
  mf_tensor_release(NULL);
  assert_int_equal(mf_tensor_release_later(NULL), 0);
  assert_int_equal(mf_tensor_is_valid(NULL), 0);
  assert_null(mf_tensor_dltensor(NULL));
  assert_int_equal(mf_tensor_flags(NULL), 0);
  assert_int_equal(mf_tensor_size(NULL), 0);
  assert_int_equal(mf_tensor_nbytes(NULL), 0);
  assert_int_equal(mf_tensor_is_ordered(NULL), 0);
  assert_int_equal(mf_tensor_is_contiguous(NULL), 0);
  mf_export_delete_later(NULL);
  mf_export_delete_later_legacy(NULL);
}

static void references_count(void **state) {
  unsigned char memory[4];
  spec_once *once = spec_once_new();
  DLTensor view = {.data = memory, .ndim = 0, .dtype = {kDLInt, 32, 1}};
  mf_tensor *t;
  mf_ledger l;
  (void)state;
  OK(mf_tensor_wrap(&view, 0, spec_once_run, once, &t, &spec_err));
  for (int i = 0; i < 1000; i++) assert_ptr_equal(mf_tensor_retain(t), t);
  for (int i = 0; i < 1000; i++) mf_tensor_release(t);
  mf_ledger_read(&l);
  assert_int_equal(l.tensors, 1);
  assert_int_equal(spec_once_calls(once), 0);
  mf_tensor_release(t);
}

static void a_view_keeps_the_memory(void **state) {
  unsigned char memory[6] = {0, 1, 2, 3, 4, 5};
  spec_once *once = spec_once_new();
  int64_t shape[] = {2, 3};
  DLTensor like = {.data = memory, .ndim = 2, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  mf_tensor *t;
  mf_tensor *v;
  (void)state;
  OK(mf_tensor_wrap(&like, 0, spec_once_run, once, &t, &spec_err));
  OK(mf_tensor_permute_dims(t, NULL, 0, &v, &spec_err));
  mf_tensor_release(t);
  assert_int_equal(spec_once_calls(once), 0);
  assert_ptr_equal(mf_tensor_dltensor(v)->data, memory);
  mf_tensor_release(v);
  assert_int_equal(spec_once_calls(once), 1);
}

static void borrow_describes(void **state) {
  DLTensor d;
  (void)state;
  mf_tensor *t = spec_create("int32", DIMS(2, 2));
  memset(&d, 0x77, sizeof d);
  OK(mf_tensor_borrow(t, &d, &spec_err));
  assert_memory_equal(&d, mf_tensor_dltensor(t), sizeof d);
  mf_tensor_release(t);
  t = spec_create("int32", DIMS(2, 0));
  OK(mf_tensor_borrow(t, &d, &spec_err));
  assert_null(d.data);
  mf_tensor_release(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(create_is_compact_and_aligned),
      SPEC(create_reads_nothing_but_the_prototype),
      SPEC(create_of_nothing),
      SPEC(create_refuses),
      SPEC(sub_byte_sizes),
      SPEC(wrap_describes),
      SPEC(wrap_refuses_and_does_not_release),
      SPEC(wrap_without_release),
      SPEC(null_is_nothing),
      SPEC(references_count),
      SPEC(a_view_keeps_the_memory),
      SPEC(borrow_describes),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
