/* numbers_fail_spec.c: casts, comparisons and single elements in which a device takes part, with every driver call and
 * every allocation of the host failing in turn (fails.h). Each way that they can go has a case: by a kernel here, by
 * one where the other side is, and by the host. */
#include "fails.h"

typedef struct number_case {
  const char *name;
  place from, to;
  const char *src_dtype, *dst_dtype;
  layout src, dst;
  bool overlaps; /* the source is the whole of the destination's memory */
} number_case;

static const number_case casts[] = {
    {"a kernel", GPU0, GPU0, "int16", "float32", FLAT, TURNED, false},
    {"a kernel that reads pinned memory", PINNED, GPU0, "int16", "float32", FLAT, FLAT, false},
    {"a kernel on managed memory", MANAGED, GPU0, "int16", "float32", TURNED, FLAT, false},
    {"up, to wider", CPU, GPU0, "int16", "float32", FLAT, FLAT, false},
    {"up, to narrower", CPU, GPU0, "float64", "float32", FLAT, FLAT, false},
    {"down, to narrower", GPU0, CPU, "float64", "int16", FLAT, THIN, false},
    {"down, to as wide", GPU0, CPU, "float32", "int32", TURNED, FLAT, false},
    {"down, to wider", GPU0, CPU, "int16", "float64", FLAT, FLAT, false},
    {"peer", GPU0, GPU1, "int16", "float64", TURNED, FLAT, false},
    {"to sliding", GPU0, GPU0, "int16", "float32", FLAT, SLIDING, false},
    {"up, to sliding", CPU, GPU0, "int16", "float32", FLAT, SLIDING, false},
    {"overlapping", GPU0, GPU0, "int16", "int16", FLAT, TURNED, true},
    {"complex, by the host", GPU0, GPU0, "float32", "complex64", FLAT, THIN, false},
    {"complex down", GPU0, CPU, "float32", "complex64", FLAT, FLAT, false},
    {"complex up", CPU, GPU0, "float32", "complex64", FLAT, FLAT, false},
    {"complex to pinned", GPU0, PINNED, "float32", "complex64", FLAT, FLAT, false},
    {"complex from pinned", PINNED, GPU0, "float32", "complex64", FLAT, FLAT, false},
    {"half bytes, by the host", GPU0, GPU0, "uint4", "int16", FLAT, FLAT, false},
};

static const number_case comparisons[] = {
    {"equal by a kernel", GPU0, GPU0, "int16", "int16", FLAT, TURNED, false},
    {"equal with pinned memory", PINNED, GPU0, "int16", "int16", FLAT, FLAT, false},
    {"equal to the host's", CPU, GPU0, "int16", "int16", TURNED, FLAT, false},
    {"equal to a peer's", GPU0, GPU1, "int16", "int16", FLAT, THIN, false},
    {"equal by the host", GPU0, GPU0, "complex64", "complex64", FLAT, TURNED, false},
    {"equal half bytes", GPU0, CPU, "uint4", "uint4", FLAT, FLAT, false},
};

static const number_case elements[] = {
    {"an element", GPU0, GPU0, NULL, "float32", FLAT, THIN, false},
    {"an element of half a byte", GPU0, GPU0, NULL, "uint4", FLAT, FLAT, false},
    {"an element of pinned memory", PINNED, PINNED, NULL, "float32", FLAT, TURNED, false},
    {"an element of managed memory", MANAGED, MANAGED, NULL, "float32", FLAT, FLAT, false},
};

static int cast(mf_tensor *dst, mf_tensor *src) {
  return mf_tensor_astype(dst, src, &err);
}

static int compare(mf_tensor *dst, mf_tensor *src) {
  int32_t equal = -1;
  const int rc = mf_tensor_equal(dst, src, &equal, &err);
  said = equal;
  return rc;
}

static const int64_t at[] = {2, 3};

static int get(mf_tensor *dst, mf_tensor *src) {
  mf_scalar value = {0};
  (void)src;
  const int rc = mf_tensor_get(dst, at, 2, &value, &err);
  said = value.kind == MF_KIND_FLOAT ? (int64_t)(value.f * 1e6) : (int64_t)value.u;
  return rc;
}

static int put(mf_tensor *dst, mf_tensor *src) {
  static const mf_scalar five = {.kind = MF_KIND_UINT, .u = 5};
  (void)src;
  return mf_tensor_put(dst, at, 2, &five, &err);
}

/* Numbers that each dtype here can hold, so that a cast changes none and two sides can be equal. */
static void set_numbers(both *b) {
  const DLTensor *v = mf_tensor_dltensor(b->here);
  int64_t i[2];
  for (i[0] = 0; i[0] < v->shape[0]; i[0]++)
    for (i[1] = 0; i[1] < v->shape[1]; i[1]++) {
      const mf_scalar value = {.kind = MF_KIND_UINT, .u = (uint64_t)(i[0] * v->shape[1] + i[1]) % 16};
      OK(mf_tensor_put(b->here, i, 2, &value, &err));
    }
  OK(mf_tensor_copy(b->there, b->here, &err));
}

static void each_fails_in_turn(const number_case *c, on_both call) {
  static const int64_t shape[] = {6, 6};
  if (!have(c->from) || !have(c->to)) return;
  work w = {.name = c->name, .call = call, .overlaps = c->overlaps};
  w.dst = both_open(c->dst_dtype, c->to, c->dst, shape);
  set_numbers(&w.dst);
  if (c->src_dtype != NULL && !c->overlaps) {
    w.src = both_open(c->src_dtype, c->from, c->src, shape);
    set_numbers(&w.src);
  }
  each_failure_of(&w);
  both_close(&w.src);
  both_close(&w.dst);
}

static void each_cast_fails_in_turn(void **state) {
  (void)state;
  needs_simulator();
  for (size_t i = 0; i < COUNT(casts); i++) each_fails_in_turn(&casts[i], cast);
}

static void each_comparison_fails_in_turn(void **state) {
  (void)state;
  needs_simulator();
  for (size_t i = 0; i < COUNT(comparisons); i++) each_fails_in_turn(&comparisons[i], compare);
}

static void each_element_fails_in_turn(void **state) {
  (void)state;
  needs_simulator();
  for (size_t i = 0; i < COUNT(elements); i++) each_fails_in_turn(&elements[i], get);
  for (size_t i = 0; i < COUNT(elements); i++) each_fails_in_turn(&elements[i], put);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_STREAMS(each_cast_fails_in_turn),
      WITH_STREAMS(each_comparison_fails_in_turn),
      WITH_STREAMS(each_element_fails_in_turn),
  };
  (void)setenv("SIM_POISON", "16K", 0);
  return RUN(tests);
}
