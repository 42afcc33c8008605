/* packed_spec.c: casts and comparisons of elements of less than a byte, packed and padded, by the kernels of every
 * instruction set that this machine has: to the last bit what the plain walk gives, the bits between elements included.
 *
 * MOONFERRY_SPEC_ROUNDS sets how many random layouts; `make test` takes some thousands.
 */
#include "sets.h"

#define PADDED ((uint64_t)DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED)

static const char *const whole[] = {"bool",   "int8",    "uint8",    "int16",   "uint16",  "int32",         "int64",
                                    "uint64", "float16", "bfloat16", "float32", "float64", "float8_e4m3fn",
                                    "float8_e8m0fnu"};
/* The last two lie across bytes where they are packed. */
static const DLDataType parts[] = {{kDLBool, 1, 1}, {kDLUInt, 1, 1}, {kDLInt, 1, 1},  {kDLUInt, 2, 1},
                                   {kDLInt, 2, 1},  {kDLUInt, 4, 1}, {kDLInt, 4, 1},  {kDLFloat4_e2m1fn, 4, 1},
                                   {kDLInt, 3, 1},  {kDLFloat6_e3m2fn, 6, 1}};
enum { ROOM = 1 << 15 };

typedef struct side {
  DLDataType dtype;
  uint64_t flags;
  int64_t strides[2], first; /* of element 0, in bytes */
} side;

static bool is_part(const side *s) { return s->dtype.bits < 8; }

static void draw_dtype(side *s, bool part) {
  s->dtype = part ? parts[spec_random() % COUNT(parts)] : spec_dtype(whole[spec_random() % COUNT(whole)]);
  s->flags = is_part(s) && spec_random() % 3 == 0 ? PADDED : 0;
}

/* Rows side by side or apart, forwards or backwards, along either axis; the source may repeat one. */
static void draw_layout(side *s, const int64_t *shape, bool repeats) {
  const int inner = spec_random() % 4 == 0 ? 0 : 1;
  s->strides[inner] = spec_random() % 4 == 0 ? spec_between(2, 3) : 1;
  s->strides[1 - inner] = shape[inner] * s->strides[inner] + spec_between(0, 3);
  for (int i = 0; i < 2; i++) {
    if (spec_random() % 5 == 0) s->strides[i] = -s->strides[i];
    if (repeats && spec_random() % 8 == 0) s->strides[i] = 0;
  }
  s->first = ROOM * 3 + spec_between(0, 9) * 8;
}

static mf_tensor *over(const side *s, void *memory, int64_t *shape) {
  DLTensor view = {.data = (char *)memory + s->first, .device = {kDLCPU, 0}, .ndim = 2, .dtype = s->dtype,
                   .shape = shape, .strides = (int64_t *)(uintptr_t)s->strides};
  mf_tensor *out;
  OK(mf_tensor_wrap(&view, s->flags, NULL, NULL, &out, &spec_err));
  return out;
}

static char from_memory[ROOM * 6], to_memory[2][ROOM * 6];

/* Bits of any kind, and numbers around those that few bits hold. */
static void draw_source(const side *s, int64_t *shape) {
  spec_random_bytes(from_memory, sizeof from_memory);
  if (is_part(s) || spec_random() % 4 == 0) return;
  mf_tensor *numbers = spec_create("float64", 2, shape), *src = over(s, from_memory, shape);
  double *x = mf_tensor_dltensor(numbers)->data;
  for (int64_t i = 0; i < shape[0] * shape[1]; i++) x[i] = (double)spec_between(-80, 80) / 4;
  OK(mf_tensor_astype(src, numbers, &spec_err));
  mf_tensor_release(numbers);
  mf_tensor_release(src);
}

static void one_cast(const char *set) {
  const uint64_t kind = spec_random() % 3;
  side from, to;
  const bool is_long = spec_random() % 3 == 0; /* more than the pieces that go at once */
  int64_t shape[2] = {spec_between(1, is_long ? 2 : 9), spec_between(1, is_long ? 1200 : 40)};
  draw_dtype(&from, kind != 0);
  draw_dtype(&to, kind != 1);
  draw_layout(&from, shape, true);
  draw_layout(&to, shape, false);
  OK(mf_simd_set("plain", &spec_err));
  draw_source(&from, shape);
  spec_random_bytes(to_memory[0], sizeof to_memory[0]);
  memcpy(to_memory[1], to_memory[0], sizeof to_memory[0]);
  mf_tensor *src = over(&from, from_memory, shape);
  for (int i = 0; i < 2; i++) {
    mf_tensor *dst = over(&to, to_memory[i], shape);
    OK(mf_simd_set(i == 0 ? "plain" : set, &spec_err));
    OK(mf_tensor_astype(dst, src, &spec_err));
    mf_tensor_release(dst);
  }
  mf_tensor_release(src);
  if (memcmp(to_memory[0], to_memory[1], sizeof to_memory[0]) != 0)
    fail_msg("%s: dtype %d of %d bits to %d of %d, shape %lld x %lld, strides %lld, %lld to %lld, %lld", set,
             from.dtype.code, from.dtype.bits, to.dtype.code, to.dtype.bits, (long long)shape[0], (long long)shape[1],
             (long long)from.strides[0], (long long)from.strides[1], (long long)to.strides[0],
             (long long)to.strides[1]);
}

/* The same elements twice, packed or padded, in layouts of their own; in half of the cases one gets a random value. */
static void one_comparison(const char *set) {
  side sides[2];
  mf_tensor *both[2];
  int32_t equal[2];
  const bool is_long = spec_random() % 3 == 0;
  int64_t shape[2] = {spec_between(1, is_long ? 2 : 9), spec_between(1, is_long ? 1200 : 40)};
  OK(mf_simd_set("plain", &spec_err));
  for (int i = 0; i < 2; i++) {
    draw_dtype(&sides[i], true);
    if (i == 1) sides[1].dtype = sides[0].dtype;
    draw_layout(&sides[i], shape, false);
    spec_random_bytes(to_memory[i], sizeof to_memory[i]);
    both[i] = over(&sides[i], to_memory[i], shape);
  }
  OK(mf_tensor_astype(both[1], both[0], &spec_err));
  if (spec_random() % 2 == 0) {
    const int64_t at[2] = {spec_between(0, shape[0] - 1), spec_between(0, shape[1] - 1)};
    const mf_scalar value = {.kind = MF_KIND_INT, .i = spec_between(-2, 2)};
    OK(mf_tensor_put(both[1], at, 2, &value, &spec_err));
  }
  for (int i = 0; i < 2; i++) {
    OK(mf_simd_set(i == 0 ? "plain" : set, &spec_err));
    OK(mf_tensor_equal(both[0], both[1], &equal[i], &spec_err));
  }
  if (equal[0] != equal[1])
    fail_msg("%s: equal of dtype %d of %d bits, %lld x %lld, is %d, not %d", set, sides[0].dtype.code,
             sides[0].dtype.bits, (long long)shape[0], (long long)shape[1], equal[1], equal[0]);
  for (int i = 0; i < 2; i++) mf_tensor_release(both[i]);
}

static mf_tensor *at_end(spec_region r, bool end, DLDataType dtype, int64_t n) {
  const size_t nbytes = (size_t)(n * dtype.bits + 7) / 8;
  const DLTensor view = {.data = r.start + (end ? r.nbytes - nbytes : 0), .device = {kDLCPU, 0}, .ndim = 1,
                         .dtype = dtype, .shape = &n};
  mf_tensor *out;
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &out, &spec_err));
  return out;
}

/* Between pages that nobody may touch. */
static void at_the_ends_of_memory(const char *set) {
  spec_region packed = spec_guarded(4096), wide = spec_guarded(4096), again = spec_guarded(4096);
  const DLDataType floats = spec_dtype("float32");
  int32_t same;
  OK(mf_simd_set(set, &spec_err));
  for (int64_t n = 1; n < 70; n++) {
    for (size_t i = 0; i < COUNT(parts); i++) {
      const bool end = (n + (int64_t)i) % 2;
      mf_tensor *t = at_end(packed, end, parts[i], n), *x = at_end(wide, end, floats, n);
      mf_tensor *u = at_end(again, end, parts[i], n);
      const mf_scalar one = {.kind = MF_KIND_INT, .i = 1};
      OK(mf_tensor_fill(x, &one, &spec_err));
      OK(mf_tensor_astype(t, x, &spec_err));
      OK(mf_tensor_astype(x, t, &spec_err));
      OK(mf_tensor_copy(u, t, &spec_err));
      OK(mf_tensor_equal(t, u, &same, &spec_err));
      assert_int_equal(same, 1);
      mf_tensor_release(t);
      mf_tensor_release(u);
      mf_tensor_release(x);
    }
  }
  spec_unguard(packed);
  spec_unguard(wide);
  spec_unguard(again);
}

static void nothing_beyond_is_touched(void **state) {
  (void)state;
  with_each_set(at_the_ends_of_memory);
}

static void casts(const char *set) {
  for (int round = 0; round < rounds(1000); round++) one_cast(set);
}

static void comparisons(const char *set) {
  for (int round = 0; round < rounds(1000); round++) one_comparison(set);
}

static void casts_are_as_codecs_have_them(void **state) {
  (void)state;
  with_each_set(casts);
}

static void comparisons_are_as_codecs_have_them(void **state) {
  (void)state;
  with_each_set(comparisons);
}

/* The source is read as it was: a copy of it has a byte for each element, too. */
static void an_overlapping_cast_of_padded_elements(void **state) {
  signed char bytes[12];
  int64_t shape[] = {8};
  DLTensor from = {.data = bytes, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLInt, 4, 1}, .shape = shape};
  DLTensor to = from;
  mf_tensor *src, *dst;
  (void)state;
  for (int i = 0; i < 12; i++) bytes[i] = (signed char)i;
  to.data = bytes + 3;
  to.dtype.bits = 8;
  OK(mf_tensor_wrap(&from, PADDED, NULL, NULL, &src, &spec_err));
  OK(mf_tensor_wrap(&to, 0, NULL, NULL, &dst, &spec_err));
  OK(mf_tensor_astype(dst, src, &spec_err));
  for (int i = 0; i < 8; i++) assert_int_equal(bytes[3 + i], i);
  mf_tensor_release(src);
  mf_tensor_release(dst);
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(casts_are_as_codecs_have_them), SPEC(comparisons_are_as_codecs_have_them),
                                     SPEC(nothing_beyond_is_touched), SPEC(an_overlapping_cast_of_padded_elements)};
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
