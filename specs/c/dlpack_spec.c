/* dlpack_spec.c: exchange of good structs, both forms, both ways. What is refused is in import_spec.c. */
#include "spec.h"

#include <pthread.h>

#define READ_ONLY ((uint64_t)DLPACK_FLAG_BITMASK_READ_ONLY)
#define COPIED ((uint64_t)DLPACK_FLAG_BITMASK_IS_COPIED)
#define PADDED ((uint64_t)DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)

static mf_tensor *import(spec_loan *loan) {
  mf_tensor *t;
  OK(spec_import(loan, &t, &spec_err));
  assert_int_equal(spec_loan_calls(loan), 0);
  return t;
}

static void import_keeps_everything(void **state) {
  (void)state;
  for (int round = 0; round < 2000; round++) {
    bool legacy = round % 2 != 0;
    uint64_t flags = legacy ? 0 : spec_random() % 8;
    spec_layout l;
    spec_layout_random(&l, spec_dtype(round % 3 ? "float32" : "int4"), flags, 6);
    spec_loan *loan = spec_lend(&l.view, flags, legacy);
    loan->memory = l.block;
    uint64_t offset = l.view.data == NULL ? 0 : spec_random() % 100;
    loan->view->byte_offset = offset;
    if (offset > 0) loan->view->data = (char *)l.view.data - offset;
    if (l.view.ndim == 0) loan->view->shape = loan->view->strides = NULL;
    mf_tensor *t = import(loan);
    const DLTensor *d = mf_tensor_dltensor(t);
    assert_int_equal(d->ndim, l.view.ndim);
    assert_memory_equal(&d->dtype, &l.view.dtype, sizeof d->dtype);
    if (l.view.data != NULL) assert_ptr_equal(d->data, l.view.data);
    assert_int_equal(d->byte_offset, 0);
    for (int32_t i = 0; i < d->ndim; i++) {
      assert_int_equal(d->shape[i], l.shape[i]);
      assert_int_equal(d->strides[i], l.strides[i]);
    }
    assert_int_equal(mf_tensor_flags(t), flags);
    mf_tensor_release(t);
    assert_int_equal(spec_loan_calls(loan), 1);
  }
}

static void null_strides_are_compact(void **state) {
  (void)state;
  for (int legacy = 0; legacy < 2; legacy++) {
    spec_loan *loan = spec_lend_compact("float32", DIMS(4, 1, 3), legacy != 0);
    loan->view->strides = NULL;
    mf_tensor *t = import(loan);
    const int64_t *strides = mf_tensor_dltensor(t)->strides;
    assert_true(strides[0] == 3 && strides[1] == 3 && strides[2] == 1);
    assert_int_equal(mf_tensor_is_contiguous(t), 1);
    mf_tensor_release(t);
  }
}

static void a_null_deleter_is_not_called(void **state) {
  (void)state;
  for (int legacy = 0; legacy < 2; legacy++) {
    spec_loan *loan = spec_lend_compact("float32", DIMS(4), legacy != 0);
    spec_loan_no_deleter(loan);
    mf_tensor_release(import(loan));
  }
}

/* Without elements, data may be NULL or anything, and strides anything. */
static void without_elements(void **state) {
  (void)state;
  for (int which = 0; which < 8; which++) {
    spec_loan *loan = spec_lend_compact("float32", DIMS(3, 0, 2), which % 2 != 0);
    if (which & 2) loan->view->data = (void *)(uintptr_t)8;
    if (which & 4) loan->strides[0] = INT64_MIN, loan->strides[2] = INT64_MAX;
    DLManagedTensorVersioned *m;
    mf_tensor *t = import(loan);
    assert_int_equal(mf_tensor_size(t), 0);
    assert_int_equal(mf_tensor_is_contiguous(t), 1);
    OK(mf_tensor_export(t, 0, &m, &spec_err));
    assert_null(m->dl_tensor.data);
    assert_int_equal(m->dl_tensor.shape[1], 0);
    m->deleter(m);
    mf_tensor_release(t);
  }
}

static void rank_0_has_one_element(void **state) {
  (void)state;
  for (int legacy = 0; legacy < 2; legacy++) {
    int32_t value = 7;
    DLTensor like = {.data = &value, .device = {kDLCPU, 0}, .dtype = {kDLInt, 32, 1}};
    spec_loan *loan = spec_lend(&like, 0, legacy != 0);
    DLManagedTensorVersioned *m;
    mf_tensor *t = import(loan);
    OK(mf_tensor_export(t, 0, &m, &spec_err));
    assert_int_equal(m->dl_tensor.ndim, 0);
    assert_null(m->dl_tensor.shape);
    assert_null(m->dl_tensor.strides);
    assert_ptr_equal(m->dl_tensor.data, &value);
    m->deleter(m);
    mf_tensor_release(t);
  }
}

static void unknown_flags_are_dropped(void **state) {
  (void)state;
  for (int bit = 0; bit < 64; bit++) {
    spec_loan *loan = spec_lend_compact("float32", DIMS(4), false);
    DLManagedTensorVersioned *m;
    loan->versioned->flags = (uint64_t)1 << bit;
    mf_tensor *t = import(loan);
    assert_int_equal(mf_tensor_flags(t), bit < 3 ? (uint64_t)1 << bit : 0);
    OK(mf_tensor_export(t, 0, &m, &spec_err));
    assert_int_equal(m->flags, bit == 0 || bit == 2 ? (uint64_t)1 << bit : 0);
    m->deleter(m);
    mf_tensor_release(t);
  }
}

static void any_minor_version_is_read(void **state) {
  static const uint32_t minors[] = {0, 1, 2, 4, 99, UINT32_MAX};
  (void)state;
  for (size_t i = 0; i < COUNT(minors); i++) {
    spec_loan *loan = spec_lend_compact("float32", DIMS(4), false);
    loan->versioned->version.minor = minors[i];
    mf_tensor_release(import(loan));
  }
}

/* Only the version can be read: the rest of the struct lies on a page without access. */
static void another_major_version_is_not_read(void **state) {
  static const uint32_t majors[] = {0, 2, 3, UINT32_MAX};
  mf_tensor *t;
  (void)state;
  const spec_region region = spec_guarded(sizeof(DLPackVersion));
  void *at_the_edge = region.start + region.nbytes - sizeof(DLPackVersion);
  DLManagedTensorVersioned *m = at_the_edge;
  for (size_t i = 0; i < COUNT(majors); i++) {
    DLPackVersion version = {majors[i], 3};
    memcpy(at_the_edge, &version, sizeof version);
    REFUSES(MF_EVERSION, t, mf_tensor_import(m, &t, &spec_err));
    assert_non_null(strstr(spec_err.message, "version.major"));
    assert_int_equal(mf_tensor_import(m, &t, NULL), MF_EVERSION);
  }
  spec_unguard(region);
}

static void export_describes(void **state) {
  (void)state;
  for (int round = 0; round < 500; round++) {
    spec_layout l;
    uint64_t flags = spec_random() % 8;
    uint64_t asked = spec_random() % 2 ? COPIED : 0;
    DLManagedTensorVersioned *m;
    spec_layout_random(&l, spec_dtype("int16"), flags, 5);
    mf_tensor *t = spec_layout_wrap(&l, flags);
    OK(mf_tensor_export(t, asked, &m, &spec_err));
    assert_int_equal(m->version.major, 1);
    assert_int_equal(m->version.minor, 3);
    assert_int_equal(m->flags, (flags & (READ_ONLY | PADDED)) | asked);
    assert_int_equal(m->dl_tensor.byte_offset, 0);
    assert_int_equal(m->dl_tensor.ndim, l.view.ndim);
    assert_ptr_equal(m->dl_tensor.data, l.view.data);
    assert_int_equal(m->dl_tensor.device.device_type, kDLCPU);
    for (int32_t i = 0; i < l.view.ndim; i++) {
      assert_int_equal(m->dl_tensor.shape[i], l.shape[i]);
      assert_int_equal(m->dl_tensor.strides[i], l.strides[i]);
    }
    mf_tensor_release(t);
    m->deleter(m);
    free(l.block);
  }
}

static void export_refuses_other_flags(void **state) {
  DLManagedTensorVersioned *m;
  (void)state;
  mf_tensor *t = spec_create("int8", DIMS(2));
  for (int bit = 0; bit < 64; bit++) {
    if (bit == 1) continue;
    REFUSES(MF_EINVAL, m, mf_tensor_export(t, (uint64_t)1 << bit, &m, &spec_err));
    assert_int_equal(mf_tensor_export(t, (uint64_t)1 << bit, &m, NULL), MF_EINVAL);
  }
  mf_tensor_release(t);
}

/* What a struct without flags cannot say does not leave through it. */
static void legacy_and_borrowed_say_no_flags(void **state) {
  unsigned char memory[8];
  int64_t shape[] = {4};
  (void)state;
  for (uint64_t flags = 0; flags < 8; flags++) {
    for (int bits = 4; bits <= 8; bits += 4) {
      DLTensor like = {.data = memory, .ndim = 1, .dtype = {kDLInt, (uint8_t)bits, 1}, .shape = shape};
      int want = flags & READ_ONLY ? MF_EREADONLY : flags & PADDED && bits < 8 ? MF_EDTYPE : MF_OK;
      DLManagedTensor *m;
      DLTensor d;
      mf_tensor *t;
      OK(mf_tensor_wrap(&like, flags, NULL, NULL, &t, &spec_err));
      if (want == MF_OK) {
        OK(mf_tensor_export_legacy(t, &m, &spec_err));
        assert_ptr_equal(m->dl_tensor.data, memory);
        m->deleter(m);
        OK(mf_tensor_borrow(t, &d, &spec_err));
        assert_ptr_equal(d.data, memory);
      } else {
        REFUSES(want, m, mf_tensor_export_legacy(t, &m, &spec_err));
        FAILS(want, mf_tensor_borrow(t, &d, &spec_err));
        assert_int_equal(mf_tensor_export_legacy(t, &m, NULL), want);
        assert_int_equal(mf_tensor_borrow(t, &d, NULL), want);
      }
      mf_tensor_release(t);
    }
  }
}

/* Before DLPack had kDLBool, bool was a UInt of one bit that takes a byte: TVM's and MXNet's structs still say so. */
static void a_legacy_bit_is_a_bool(void **state) {
  const DLDataType boolean = {kDLBool, 8, 1};
  DLTensor like = {.data = calloc(3, 1), .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLUInt, 1, 1}};
  like.shape = (int64_t[]){3};
  mf_scalar value;
  (void)state;
  ((unsigned char *)like.data)[2] = 1;
  mf_tensor *t = import(spec_lend(&like, 0, true));
  assert_memory_equal(&mf_tensor_dltensor(t)->dtype, &boolean, sizeof boolean);
  assert_int_equal(mf_tensor_nbytes(t), 3);
  OK(mf_tensor_get(t, TO(2), &value, &spec_err));
  assert_int_equal(value.kind, MF_KIND_BOOL);
  assert_int_equal(value.i, 1);
  mf_tensor_release(t);
  t = import(spec_lend(&like, 0, false));
  assert_int_equal(mf_dtype_bits(&mf_tensor_dltensor(t)->dtype, 0), 1);
  mf_tensor_release(t);
  free(like.data);
}

/* So packed bits cannot leave through such a struct: its consumer would read a byte for each. */
static void packed_bits_are_not_legacy(void **state) {
  DLManagedTensor *m;
  (void)state;
  mf_tensor *t = spec_create("uint1", DIMS(16));
  REFUSES(MF_EDTYPE, m, mf_tensor_export_legacy(t, &m, &spec_err));
  SAYS(MF_EDTYPE, "uint1", mf_tensor_export_legacy(t, &m, &spec_err));
  DLTensor view;
  FAILS(MF_EDTYPE, mf_tensor_borrow(t, &view, &spec_err));
  assert_int_equal(mf_tensor_borrow(t, &view, NULL), MF_EDTYPE);
  SAYS(MF_EDTYPE, "uint1", mf_tensor_borrow(t, &view, &spec_err));
  mf_tensor_release(t);
}

/* What a foreign struct claims to hold need not exist, and the sum of such claims need not fit: it comes back to 0. */
static void claims_beyond_any_memory(void **state) {
  const int64_t far[] = {(int64_t)1 << 59, 1};
  mf_tensor *held[40];
  (void)state;
  for (size_t i = 0; i < COUNT(held); i++) {
    spec_loan *loan = spec_lend_compact("int8", DIMS(2, 1), i % 2 != 0);
    memcpy(loan->strides, far, sizeof far);
    held[i] = import(loan);
  }
  for (size_t i = 0; i < COUNT(held); i++) mf_tensor_release(held[i]);
}

static void is_copied_is_not_exported_again(void **state) {
  (void)state;
  spec_loan *loan = spec_lend_compact("float32", DIMS(4), false);
  loan->versioned->flags = COPIED;
  DLManagedTensorVersioned *m;
  mf_tensor *v;
  mf_tensor *t = import(loan);
  OK(mf_tensor_permute_dims(t, NULL, 0, &v, &spec_err));
  assert_int_equal(mf_tensor_flags(v), COPIED);
  OK(mf_tensor_export(v, 0, &m, &spec_err));
  assert_int_equal(m->flags, 0);
  m->deleter(m);
  mf_tensor_release(v);
  mf_tensor_release(t);
}

/* The deleter runs with the last of tensor, views and exports, in whatever order they go. */
static void the_deleter_runs_with_the_last(void **state) {
  (void)state;
  for (int order = 0; order < 48; order++) {
    spec_loan *loan = spec_lend_compact("float32", DIMS(2, 2), order % 2 != 0);
    mf_tensor *t = import(loan);
    mf_tensor *v;
    DLManagedTensorVersioned *m;
    DLManagedTensor *l;
    OK(mf_tensor_permute_dims(t, NULL, 0, &v, &spec_err));
    OK(mf_tensor_export(t, 0, &m, &spec_err));
    OK(mf_tensor_export_legacy(v, &l, &spec_err));
    int left[] = {0, 1, 2, 3};
    for (int n = 4, pick = order / 2; n > 0; pick /= n, n--) {
      int which = left[pick % n];
      left[pick % n] = left[n - 1];
      assert_int_equal(spec_loan_calls(loan), 0);
      if (which == 0) mf_tensor_release(t);
      if (which == 1) mf_tensor_release(v);
      if (which == 2) m->deleter(m);
      if (which == 3) l->deleter(l);
    }
    assert_int_equal(spec_loan_calls(loan), 1);
  }
}

/* Out and in again, many times over: every hop keeps the description, and all of them have one memory. */
static void a_chain_of_hops(void **state) {
  enum { HOPS = 100000 };
  (void)state;
  spec_loan *loan = spec_lend_compact("uint8x3", DIMS(5, 2), true);
  const void *data = loan->view->data;
  mf_ledger one, all;
  mf_tensor *t = import(loan), *next;
  mf_ledger_read(&one);
  for (int i = 1; i < HOPS; i++) {
    if (i % 2) {
      DLManagedTensorVersioned *m;
      OK(mf_tensor_export(t, 0, &m, &spec_err));
      OK(mf_tensor_import(m, &next, &spec_err));
    } else {
      DLManagedTensor *m;
      OK(mf_tensor_export_legacy(t, &m, &spec_err));
      OK(mf_tensor_import_legacy(m, &next, &spec_err));
    }
    mf_tensor_release(t);
    t = next;
  }
  mf_ledger_read(&all);
  assert_int_equal(all.storages, one.storages);
  assert_int_equal(all.bytes, one.bytes);
  assert_ptr_equal(mf_tensor_dltensor(t)->data, data);
  assert_int_equal(spec_loan_calls(loan), 0);
  mf_tensor_release(t);
}

static void what_came_back_is_taken_back_with_the_rest(void **state) {
  float memory[4];
  int32_t in_use = 0;
  mf_tensor *back, *older, *none;
  DLManagedTensorVersioned *m;
  DLManagedTensor *old;
  (void)state;
  mf_tensor *t = spec_wrap(memory, "float32", DIMS(4), NULL);
  OK(mf_tensor_export(t, 0, &m, &spec_err));
  OK(mf_tensor_import(m, &back, &spec_err));
  OK(mf_tensor_export_legacy(back, &old, &spec_err));
  OK(mf_tensor_import_legacy(old, &older, &spec_err));
  OK(mf_tensor_export(t, 0, &m, &spec_err));
  OK(mf_tensor_export_legacy(t, &old, &spec_err));
  OK(mf_tensor_invalidate(back, &in_use, &spec_err));
  assert_int_equal(in_use, 1);
  assert_true(!mf_tensor_is_valid(t) && !mf_tensor_is_valid(back) && !mf_tensor_is_valid(older));
  REFUSES(MF_ECLOSED, none, mf_tensor_import(m, &none, &spec_err));
  REFUSES(MF_ECLOSED, none, mf_tensor_import_legacy(old, &none, &spec_err));
  m->deleter(m);
  old->deleter(old);
  mf_tensor_release(t);
  mf_tensor_release(back);
  mf_tensor_release(older);
}

static void *delete_here(void *arg) {
  DLManagedTensorVersioned *m = arg;
  m->deleter(m);
  return NULL;
}

static void *release_here(void *arg) {
  mf_tensor_release(arg);
  return NULL;
}

static void on_another_thread(void **state) {
  pthread_t thread;
  DLManagedTensorVersioned *m;
  (void)state;
  spec_loan *loan = spec_lend_compact("float32", DIMS(4), false);
  mf_tensor *t = import(loan);
  OK(mf_tensor_export(t, 0, &m, &spec_err));
  mf_tensor_release(t);
  assert_int_equal(pthread_create(&thread, NULL, delete_here, m), 0);
  pthread_join(thread, NULL);
  assert_int_equal(spec_loan_calls(loan), 1);

  loan = spec_lend_compact("float32", DIMS(4), true);
  t = import(loan);
  assert_int_equal(pthread_create(&thread, NULL, release_here, t), 0);
  pthread_join(thread, NULL);
  assert_int_equal(spec_loan_calls(loan), 1);
}

/* A struct that was exported may be imported by address after its own tensor is gone. */
static void our_own_struct_comes_back(void **state) {
  DLManagedTensorVersioned *m;
  mf_tensor *back;
  (void)state;
  mf_tensor *t = spec_create("float64", DIMS(2, 3));
  ((double *)mf_tensor_dltensor(t)->data)[5] = 42;
  OK(mf_tensor_export(t, COPIED, &m, &spec_err));
  mf_tensor_release(t);
  OK(mf_tensor_import(m, &back, &spec_err));
  assert_int_equal(mf_tensor_flags(back), COPIED);
  assert_true(((double *)mf_tensor_dltensor(back)->data)[5] == 42);
  mf_tensor_release(back);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(import_keeps_everything),
      SPEC(null_strides_are_compact),
      SPEC(a_null_deleter_is_not_called),
      SPEC(without_elements),
      SPEC(rank_0_has_one_element),
      SPEC(unknown_flags_are_dropped),
      SPEC(any_minor_version_is_read),
      SPEC(another_major_version_is_not_read),
      SPEC(export_describes),
      SPEC(export_refuses_other_flags),
      SPEC(legacy_and_borrowed_say_no_flags),
      SPEC(a_legacy_bit_is_a_bool),
      SPEC(packed_bits_are_not_legacy),
      SPEC(claims_beyond_any_memory),
      SPEC(is_copied_is_not_exported_again),
      SPEC(the_deleter_runs_with_the_last),
      SPEC(a_chain_of_hops),
      SPEC(what_came_back_is_taken_back_with_the_rest),
      SPEC(on_another_thread),
      SPEC(our_own_struct_comes_back),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
