/* dtype_spec.c: every dtype of DLPack 1.3 has one name, and what is none is refused. */
#include "spec.h"

static const struct {
  const char *name;
  DLDataType dtype;
} usual[] = {
    {"bool", {kDLBool, 8, 1}},
    {"bool1", {kDLBool, 1, 1}},
    {"int8", {kDLInt, 8, 1}},
    {"int16", {kDLInt, 16, 1}},
    {"int32", {kDLInt, 32, 1}},
    {"int64", {kDLInt, 64, 1}},
    {"uint8", {kDLUInt, 8, 1}},
    {"uint16", {kDLUInt, 16, 1}},
    {"uint32", {kDLUInt, 32, 1}},
    {"uint64", {kDLUInt, 64, 1}},
    {"float16", {kDLFloat, 16, 1}},
    {"bfloat16", {kDLBfloat, 16, 1}},
    {"float32", {kDLFloat, 32, 1}},
    {"float64", {kDLFloat, 64, 1}},
    {"complex32", {kDLComplex, 32, 1}},
    {"complex64", {kDLComplex, 64, 1}},
    {"complex128", {kDLComplex, 128, 1}},
    {"handle64", {kDLOpaqueHandle, 64, 1}},
    {"float8_e3m4", {kDLFloat8_e3m4, 8, 1}},
    {"float8_e4m3", {kDLFloat8_e4m3, 8, 1}},
    {"float8_e4m3b11fnuz", {kDLFloat8_e4m3b11fnuz, 8, 1}},
    {"float8_e4m3fn", {kDLFloat8_e4m3fn, 8, 1}},
    {"float8_e4m3fnuz", {kDLFloat8_e4m3fnuz, 8, 1}},
    {"float8_e5m2", {kDLFloat8_e5m2, 8, 1}},
    {"float8_e5m2fnuz", {kDLFloat8_e5m2fnuz, 8, 1}},
    {"float8_e8m0fnu", {kDLFloat8_e8m0fnu, 8, 1}},
    {"float6_e2m3fn", {kDLFloat6_e2m3fn, 6, 1}},
    {"float6_e3m2fn", {kDLFloat6_e3m2fn, 6, 1}},
    {"float4_e2m1fn", {kDLFloat4_e2m1fn, 4, 1}},
    {"float4_e2m1fnx2", {kDLFloat4_e2m1fn, 4, 2}},
    {"float32x4", {kDLFloat, 32, 4}},
    {"int4", {kDLInt, 4, 1}},
    {"uint2", {kDLUInt, 2, 1}},
    {"uint1x65535", {kDLUInt, 1, 65535}},
};

static void usual_names(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(usual); i++) {
    char name[32];
    DLDataType dtype;
    OK(mf_dtype_parse(usual[i].name, &dtype, &spec_err));
    assert_memory_equal(&dtype, &usual[i].dtype, sizeof dtype);
    OK(mf_dtype_format(&usual[i].dtype, name, sizeof name, &spec_err));
    assert_string_equal(name, usual[i].name);
  }
}

static bool is_dtype(int code, int bits) {
  if (bits == 0) return false;
  if (code == kDLFloat6_e2m3fn || code == kDLFloat6_e3m2fn) return bits == 6;
  if (code == kDLFloat4_e2m1fn) return bits == 4;
  return true;
}

static void every_dtype_comes_back(void **state) {
  static const uint16_t lanes[] = {1, 2, 4, 16, 65535};
  (void)state;
  for (int code = 0; code <= 17; code++) {
    for (int bits = 1; bits <= 255; bits += ROUNDS_OF(20) > 1 ? 1 : 5) {
      for (size_t l = 0; l < COUNT(lanes); l++) {
        DLDataType dtype = {(uint8_t)code, (uint8_t)bits, lanes[l]};
        DLDataType back;
        char name[32];
        if (!is_dtype(code, bits)) {
          SAYS(MF_EDTYPE, "bits", mf_dtype_format(&dtype, name, sizeof name, &spec_err));
          continue;
        }
        OK(mf_dtype_format(&dtype, name, sizeof name, &spec_err));
        OK(mf_dtype_parse(name, &back, &spec_err));
        assert_memory_equal(&back, &dtype, sizeof dtype);
      }
    }
  }
}

static int by_text(const void *a, const void *b) { return strcmp(a, b); }

static void names_are_unique(void **state) {
  static char names[18 * 255][32];
  size_t n = 0;
  (void)state;
  for (int code = 0; code <= 17; code++) {
    for (int bits = 1; bits <= 255; bits++) {
      DLDataType dtype = {(uint8_t)code, (uint8_t)bits, 1};
      if (is_dtype(code, bits)) OK(mf_dtype_format(&dtype, names[n++], 32, &spec_err));
    }
  }
  qsort(names, n, 32, by_text);
  for (size_t i = 1; i < n; i++) assert_string_not_equal(names[i - 1], names[i]);
}

static void what_is_no_dtype_is_refused(void **state) {
  char name[32];
  (void)state;
  for (int code = 18; code <= 255; code++) {
    DLDataType dtype = {(uint8_t)code, 8, 1};
    SAYS(MF_EDTYPE, "code", mf_dtype_format(&dtype, name, sizeof name, &spec_err));
  }
  for (int code = 0; code <= 17; code++) {
    DLDataType no_bits = {(uint8_t)code, 0, 1};
    SAYS(MF_EDTYPE, "bits is 0", mf_dtype_format(&no_bits, name, sizeof name, &spec_err));
    DLDataType no_lanes = {(uint8_t)code, (uint8_t)(code == 17 ? 4 : code >= 15 ? 6 : 8), 0};
    SAYS(MF_EDTYPE, "lanes is 0", mf_dtype_format(&no_lanes, name, sizeof name, &spec_err));
  }
}

static void unknown_names_are_refused(void **state) {
  static const char *const names[] = {
      "",          "float",      "int",          "int0",        "int08",       "int256",
      "int8x",     "int8x0",     "int8x01",      "int8x65536",  "int8 ",       " int8",
      "Int8",      "float32x1",  "bool8",        "float8_e4m3fn8",
      "float8_e4m3x", "float8_e4m3_b8", "float8_e4m3_b", "float6_e2m3fn_b8", "float4_e2m1fn_b6",
      "float8_e9m9", "uint-8",   "int8x-1",      "int99999999999999999999", "int8x99999999999999999999",
      "complex",   "bfloat",     "handle",       "boolx",       "double",      "f4", "<f4", "int8x2x2",
      "a name that is far longer than any dtype's name could ever be, so long that it does not fit into "
      "a message of two hundred and forty bytes, which must be cut and terminated all the same, whatever "
      "the caller passes to the library as the name of a dtype",
  };
  (void)state;
  for (size_t i = 0; i < COUNT(names); i++) {
    DLDataType dtype = {1, 2, 3};
    FAILS(MF_EDTYPE, mf_dtype_parse(names[i], &dtype, &spec_err));
    assert_true(dtype.code == 1 && dtype.bits == 2 && dtype.lanes == 3);
    assert_int_equal(mf_dtype_parse(names[i], &dtype, NULL), MF_EDTYPE);
  }
}

static void a_short_buffer_is_refused(void **state) {
  DLDataType dtype = {kDLFloat, 32, 4};
  char name[32];
  (void)state;
  for (size_t cap = 0; cap < sizeof "float32x4"; cap++) {
    memset(name, '#', sizeof name);
    SAYS(MF_EINVAL, "cap", mf_dtype_format(&dtype, name, cap, &spec_err));
    assert_int_equal(name[cap], '#');
  }
  OK(mf_dtype_format(&dtype, name, sizeof "float32x4", &spec_err));
  assert_string_equal(name, "float32x4");
  assert_int_equal(mf_dtype_format(&dtype, name, 1, NULL), MF_EINVAL);
}

static void the_longest_name_fits_into_32_bytes(void **state) {
  DLDataType dtype = {kDLFloat8_e4m3b11fnuz, 255, 65535};
  char name[32];
  (void)state;
  OK(mf_dtype_format(&dtype, name, sizeof name, &spec_err));
}

/* From one element to the next: whole bytes, but for packed dtypes narrower than a byte. */
static void slots(void **state) {
  (void)state;
  for (int bits = 1; bits <= 255; bits++) {
    for (int lanes = 1; lanes <= 9; lanes++) {
      DLDataType dtype = {kDLUInt, (uint8_t)bits, (uint16_t)lanes};
      int64_t whole = ((int64_t)bits * lanes + 7) / 8 * 8;
      int64_t packed = bits < 8 ? (int64_t)bits * lanes : whole;
      assert_int_equal(mf_dtype_bits(&dtype, 0), packed);
      assert_int_equal(mf_dtype_bits(&dtype, DLPACK_FLAG_BITMASK_READ_ONLY), packed);
      assert_int_equal(mf_dtype_bits(&dtype, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED), whole);
    }
  }
}

/* Kept exactly by an import and both exports, whatever code, bits and lanes are. */
static void kept_by_import_and_export(void **state) {
  static const uint16_t lanes[] = {1, 2, 3, 300};
  (void)state;
  for (int code = 0; code <= 17; code++) {
    for (int bits = 1; bits <= 255; bits++) {
      if (!is_dtype(code, bits)) continue;
      DLDataType dtype = {(uint8_t)code, (uint8_t)bits, lanes[bits % 4]};
      char name[32];
      OK(mf_dtype_format(&dtype, name, sizeof name, &spec_err));
      spec_loan *loan = spec_lend_compact(name, DIMS(2, 3), bits % 3 == 0);
      mf_tensor *t;
      DLManagedTensorVersioned *v;
      DLManagedTensor *l;
      OK(spec_import(loan, &t, &spec_err));
      OK(mf_tensor_export(t, 0, &v, &spec_err));
      OK(mf_tensor_export_legacy(t, &l, &spec_err));
      assert_memory_equal(&v->dl_tensor.dtype, &dtype, sizeof dtype);
      assert_memory_equal(&l->dl_tensor.dtype, &dtype, sizeof dtype);
      mf_tensor_release(t);
      v->deleter(v);
      l->deleter(l);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(usual_names),
      SPEC(every_dtype_comes_back),
      SPEC(names_are_unique),
      SPEC(what_is_no_dtype_is_refused),
      SPEC(unknown_names_are_refused),
      SPEC(a_short_buffer_is_refused),
      SPEC(the_longest_name_fits_into_32_bytes),
      SPEC(slots),
      SPEC(kept_by_import_and_export),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
