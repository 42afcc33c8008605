/* import_spec.c: structs that must be refused, one fault and two faults at a time, in both forms. Which status
 * each deserves is worked out here, from the struct alone, with numbers wide enough not to overflow.
 */
#include "spec.h"

typedef __int128 wide;

static bool fits(wide n) { return n >= INT64_MIN && n <= INT64_MAX; }

static int device_and_dtype_status(const DLTensor *v) {
  if (v->device.device_type != kDLCPU || v->device.device_id != 0) return MF_EDEVICE;
  if (v->dtype.code > 17 || v->dtype.bits == 0 || v->dtype.lanes == 0) return MF_EDTYPE;
  if ((v->dtype.code == kDLFloat6_e2m3fn || v->dtype.code == kDLFloat6_e3m2fn) && v->dtype.bits != 6)
    return MF_EDTYPE;
  if (v->dtype.code == kDLFloat4_e2m1fn && v->dtype.bits != 4) return MF_EDTYPE;
  return MF_OK;
}

static int shape_status(const DLTensor *v) {
  if (v->ndim < 0 || v->ndim > MF_MAX_NDIM) return MF_EINVAL;
  if (v->ndim > 0 && v->shape == NULL) return MF_EINVAL;
  for (int32_t i = 0; i < v->ndim; i++) {
    if (v->shape[i] < 0) return MF_EINVAL;
  }
  return MF_OK;
}

/* Element count, and the lowest and highest element reached; false if any of them is out of range when it is
 * counted in bits and rounded up to a whole byte. */
static bool reach(const DLTensor *v, wide slot, wide *numel, wide *low, wide *high) {
  wide stride = 1;
  wide product = 1;
  *numel = 1;
  *low = *high = 0;
  for (int32_t i = v->ndim - 1; i >= 0; i--) {
    *numel = fits(*numel) ? *numel * v->shape[i] : *numel;
    product = fits(product) ? product * (v->shape[i] > 0 ? v->shape[i] : 1) : product;
    if (v->strides == NULL && !fits(product)) return false; /* compact strides cannot be written down */
  }
  for (int32_t i = 0; i < v->ndim; i++) {
    if (v->shape[i] == 0) *numel = 0;
  }
  if (*numel == 0) return true;
  for (int32_t i = v->ndim - 1; i >= 0; i--) {
    wide step = v->strides == NULL ? stride : (wide)v->strides[i];
    wide most = (v->shape[i] - 1) * step;
    *(most < 0 ? low : high) += most;
    stride = fits(stride) ? stride * v->shape[i] : stride;
    if (!fits(*low) || !fits(*high)) return false;
  }
  return fits(*numel) && fits(*numel * slot + 7) && fits(*low * slot) && fits(*high * slot + slot + 7);
}

static wide floor8(wide bit) { return bit >= 0 ? bit / 8 : -((-bit + 7) / 8); }

static int memory_status(const DLTensor *v, wide slot) {
  wide numel;
  wide low;
  wide high;
  wide address = (wide)(uintptr_t)v->data + v->byte_offset;
  if (!reach(v, slot, &numel, &low, &high)) return MF_EOVERFLOW;
  if (numel > 0 && v->data == NULL) return MF_EINVAL;
  if (address > UINTPTR_MAX) return MF_EOVERFLOW;
  if (numel > 0 && address + floor8(low * slot) < 0) return MF_EOVERFLOW;
  if (numel > 0 && address + floor8(high * slot + slot + 7) > UINTPTR_MAX) return MF_EOVERFLOW;
  return MF_OK;
}

static int expected_status(const DLTensor *v, uint64_t flags) {
  int status = device_and_dtype_status(v);
  if (status == MF_OK) status = shape_status(v);
  if (status != MF_OK) return status;
  wide bits = (wide)v->dtype.bits * v->dtype.lanes;
  bool packed = v->dtype.bits < 8 && !(flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED);
  return memory_status(v, packed ? bits : (bits + 7) / 8 * 8);
}

/* The faults. Each writes one field (or one number of an array) of a good rank-3 struct. */

typedef enum field {
  DEVICE_TYPE, DEVICE_ID, CODE, BITS, LANES, NDIM, SHAPE, SHAPE_0, SHAPE_1, SHAPE_2,
  STRIDES, STRIDES_0, STRIDES_1, STRIDES_2, DATA, BYTE_OFFSET, FLAGS
} field;

static const struct {
  field where;
  int64_t value;
  const char *names; /* what a refusal for this fault alone names */
} faults[] = {
    {DEVICE_TYPE, 0, "device_type"},      {DEVICE_TYPE, kDLCUDA, "device_type"},
    {DEVICE_TYPE, kDLCUDAHost, "device_type"}, {DEVICE_TYPE, 5, "device_type"},
    {DEVICE_TYPE, kDLTrn, "device_type"}, {DEVICE_TYPE, 19, "device_type"},
    {DEVICE_TYPE, -1, "device_type"},     {DEVICE_TYPE, INT32_MAX, "device_type"},
    {DEVICE_ID, 1, "device_id"},          {DEVICE_ID, -1, "device_id"},
    {DEVICE_ID, INT32_MIN, "device_id"},  {CODE, 18, "code"},
    {CODE, 255, "code"},                  {CODE, kDLFloat6_e2m3fn, "bits"},
    {CODE, kDLFloat6_e3m2fn, "bits"},     {CODE, kDLFloat4_e2m1fn, "bits"},
    {CODE, kDLBool, ""},                  {BITS, 0, "bits"},
    {BITS, 1, ""},                        {BITS, 255, ""},
    {LANES, 0, "lanes"},                  {LANES, 65535, ""},
    {NDIM, -1, "ndim"},                   {NDIM, 65, "ndim"},
    {NDIM, INT32_MAX, "ndim"},            {NDIM, INT32_MIN, "ndim"},
    {NDIM, 0, ""},                        {NDIM, 2, ""},
    {SHAPE, 0, "shape"},                  {SHAPE_0, -1, "shape[0]"},
    {SHAPE_1, -1, "shape[1]"},            {SHAPE_2, INT64_MIN, "shape[2]"},
    {SHAPE_0, 0, ""},                     {SHAPE_0, INT64_MAX, "9223372036854775807"},
    {SHAPE_2, INT64_MAX, ""},             {SHAPE_1, (int64_t)1 << 61, ""},
    {SHAPE_0, (int64_t)1 << 32, ""},      {SHAPE_1, (int64_t)1 << 32, ""},
    {STRIDES, 0, ""},                     {STRIDES_0, INT64_MAX, "strides"},
    {STRIDES_0, INT64_MIN, "strides"},    {STRIDES_1, (int64_t)1 << 60, "strides"},
    {STRIDES_2, -((int64_t)1 << 62), "strides"}, {STRIDES_2, (int64_t)1 << 58, ""},
    {STRIDES_1, -((int64_t)1 << 50), "strides"}, {STRIDES_2, 0, ""},
    {STRIDES_0, -1, ""},                  {DATA, 0, "data"},
    {DATA, -1, "address space"},          {DATA, 1, ""},
    {BYTE_OFFSET, -1, "byte_offset"},     {BYTE_OFFSET, INT64_MIN, ""},
    {BYTE_OFFSET, 8, ""},                 {BYTE_OFFSET, 1, ""},
    {FLAGS, 4, ""},                       {FLAGS, 1, ""},
    {FLAGS, INT64_MIN, ""},
};

static void break_array(spec_loan *loan, field where, int64_t value) {
  DLTensor *v = loan->view;
  if (where == SHAPE) v->shape = NULL;
  if (where >= SHAPE_0 && where <= SHAPE_2) loan->shape[where - SHAPE_0] = value;
  if (where == STRIDES) v->strides = NULL;
  if (where >= STRIDES_0 && where <= STRIDES_2) loan->strides[where - STRIDES_0] = value;
}

static void break_field(spec_loan *loan, size_t fault) {
  DLTensor *v = loan->view;
  int64_t value = faults[fault].value;
  switch (faults[fault].where) {
    case DEVICE_TYPE: v->device.device_type = (DLDeviceType)value; break;
    case DEVICE_ID: v->device.device_id = (int32_t)value; break;
    case CODE: v->dtype.code = (uint8_t)value; break;
    case BITS: v->dtype.bits = (uint8_t)value; break;
    case LANES: v->dtype.lanes = (uint16_t)value; break;
    case NDIM: v->ndim = (int32_t)value; break;
    case DATA: v->data = (void *)(uintptr_t)value; break;
    case BYTE_OFFSET: v->byte_offset = (uint64_t)value; break;
    case FLAGS:
      if (loan->versioned != NULL) loan->versioned->flags = (uint64_t)value;
      break;
    default: break_array(loan, faults[fault].where, value);
  }
}

static spec_loan *good_loan(bool legacy) {
  return spec_lend_compact("float32", DIMS(2, 3, 4), legacy);
}

/* Imports a broken struct and compares with the status that it deserves. Returns that status. */
static int try_import(spec_loan *loan) {
  mf_tensor *t = (mf_tensor *)(uintptr_t)16;
  uint64_t flags = loan->versioned != NULL ? loan->versioned->flags : 0;
  int want = expected_status(loan->view, flags);
  spec_err_arm();
  spec_check(mf_dltensor_check(loan->view, flags, &spec_err), want, NULL, "mf_dltensor_check", __FILE__, __LINE__);
  assert_int_equal(mf_dltensor_check(loan->view, flags, NULL), want);
  spec_err_arm();
  spec_check(spec_import(loan, &t, &spec_err), want, NULL, "spec_import(", __FILE__, __LINE__);
  if (want == MF_OK) {
    mf_tensor_release(t);
    return want;
  }
  assert_null(t);
  assert_int_equal(spec_import(loan, &t, NULL), want);
  spec_loan_refused(loan);
  return want;
}

static void one_fault(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(faults); i++) {
    for (int legacy = 0; legacy < 2; legacy++) {
      spec_loan *loan = good_loan(legacy != 0);
      break_field(loan, i);
      bool refused = try_import(loan) != MF_OK;
      if (faults[i].names[0] != 0) {
        assert_true(refused);
        if (strstr(spec_err.message, faults[i].names) == NULL)
          fail_msg("\"%s\" does not name %s", spec_err.message, faults[i].names);
      }
    }
  }
}

static void two_faults(void **state) {
  int tried = 0;
  int refused = 0;
  (void)state;
  for (size_t i = 0; i < COUNT(faults); i++) {
    for (size_t j = 0; j < COUNT(faults); j++) {
      for (int legacy = 0; legacy < 2; legacy++) {
        if (i == j) continue;
        spec_loan *loan = good_loan(legacy != 0);
        break_field(loan, i);
        break_field(loan, j);
        refused += try_import(loan) != MF_OK;
        tried++;
      }
    }
  }
  print_message("%d structs with two faults, %d refused\n", tried, refused);
  assert_true(tried >= 600 && refused >= 600);
}

/* Random numbers everywhere, small and at the ends of their ranges. */
static int64_t random_number(void) {
  static const int64_t ends[] = {INT64_MAX, INT64_MIN, INT32_MAX, INT32_MIN, 0, -1, 1};
  uint64_t kind = spec_random() % 8;
  if (kind < 4) return spec_between(-3, 9);
  if (kind < 6) return ends[spec_random() % COUNT(ends)];
  return (int64_t)(spec_random() >> (spec_random() % 63));
}

static void random_structs(void **state) {
  int refused = 0;
  (void)state;
  for (int round = 0; round < 30000; round++) {
    spec_loan *loan = good_loan(round % 2 != 0);
    uint64_t n = spec_random() % 6;
    for (uint64_t k = 0; k < n; k++) break_field(loan, spec_random() % COUNT(faults));
    for (int k = 0; k < 3; k++) {
      if (spec_random() % 3 == 0) loan->shape[k] = random_number();
      if (spec_random() % 3 == 0) loan->strides[k] = random_number();
    }
    refused += try_import(loan) != MF_OK;
  }
  assert_true(refused > 1000 && refused < 30000);
}

/* The rules at their exact edge: the last number that passes, the first that does not. */
static void edges(void **state) {
  static const struct {
    int64_t extent, stride;
    uint8_t bits;
    int status;
  } rows[] = {
      {INT64_MAX / 8, 0, 8, MF_OK},            {INT64_MAX / 8 + 1, 0, 8, MF_EOVERFLOW},
      {INT64_MAX - 7, 0, 1, MF_OK},            {INT64_MAX, 0, 4, MF_EOVERFLOW},
      {2, INT64_MAX / 8 - 1, 8, MF_OK},        {2, INT64_MAX / 8 + 1, 8, MF_EOVERFLOW},
      {2, INT64_MIN, 8, MF_EOVERFLOW},         {3, INT64_MAX / 2 + 1, 1, MF_EOVERFLOW},
      {1, INT64_MIN, 8, MF_OK},                {1, INT64_MAX, 64, MF_OK},
      {0, INT64_MIN, 64, MF_OK},               {INT64_MAX - 6, 0, 1, MF_EOVERFLOW},
      {2, INT64_MIN / 4, 8, MF_EOVERFLOW},     {2, INT64_MAX / 8, 8, MF_EOVERFLOW},
  };
  unsigned char memory[8];
  (void)state;
  for (size_t i = 0; i < COUNT(rows); i++) {
    int64_t shape[] = {rows[i].extent};
    int64_t strides[] = {rows[i].stride};
    DLTensor v = {.data = memory, .device = {kDLCPU, 0}, .ndim = 1, .shape = shape, .strides = strides};
    v.dtype = (DLDataType){kDLUInt, rows[i].bits, 1};
    if (rows[i].status == MF_OK) OK(mf_dltensor_check(&v, 0, &spec_err));
    else FAILS(rows[i].status, mf_dltensor_check(&v, 0, &spec_err));
  }
}

/* Memory that runs up to the last byte, or down to the first, of the address space. */
static void the_ends_of_the_address_space(void **state) {
  int64_t shape[] = {4};
  int64_t strides[] = {1};
  DLTensor v = {.device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape, .strides = strides};
  (void)state;
  v.data = (void *)(UINTPTR_MAX - 4);
  OK(mf_dltensor_check(&v, 0, &spec_err));
  v.data = (void *)(UINTPTR_MAX - 3);
  FAILS(MF_EOVERFLOW, mf_dltensor_check(&v, 0, &spec_err));
  v.byte_offset = 2;
  FAILS(MF_EOVERFLOW, mf_dltensor_check(&v, 0, &spec_err));
  strides[0] = -1;
  v.byte_offset = 0;
  v.data = (void *)(uintptr_t)3;
  OK(mf_dltensor_check(&v, 0, &spec_err));
  v.data = (void *)(uintptr_t)2;
  FAILS(MF_EOVERFLOW, mf_dltensor_check(&v, 0, &spec_err));
  v.byte_offset = 1;
  OK(mf_dltensor_check(&v, 0, &spec_err));
}

static void messages_say_field_value_and_rule(void **state) {
  mf_tensor *t;
  (void)state;
  spec_loan *loan = good_loan(false);
  loan->shape[1] = -5;
  SAYS(MF_EINVAL, "shape[1] is -5", spec_import(loan, &t, &spec_err));
  spec_loan_refused(loan);
  loan = good_loan(true);
  loan->view->ndim = 65;
  SAYS(MF_EINVAL, "ndim is 65; 0 to 64 expected", spec_import(loan, &t, &spec_err));
  spec_loan_refused(loan);
  loan = good_loan(true);
  loan->view->device.device_type = kDLCUDA;
  SAYS(MF_EDEVICE, "cuda", spec_import(loan, &t, &spec_err));
  spec_loan_refused(loan);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(one_fault),
      SPEC(two_faults),
      SPEC(random_structs),
      SPEC(edges),
      SPEC(the_ends_of_the_address_space),
      SPEC(messages_say_field_value_and_rule),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
