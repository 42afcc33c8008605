/* transfer_fail_spec.c: copies and fills in which a device takes part, with every driver call and every allocation of
 * the host failing in turn (fails.h). Each way that a copy can go has a case. */
#include "fails.h"

typedef struct copy_case {
  const char *name, *dtype;
  place from, to;
  layout src, dst;
  int64_t shape[2]; /* {0}: MANY axes of 2 */
  bool overlaps; /* both are views of the destination's memory */
} copy_case;

static const copy_case copies[] = {
    {"small up", "float32", CPU, GPU0, FLAT, FLAT, {3, 5}, false},
    {"small up, thin", "float32", CPU, GPU0, FLAT, THIN, {3, 5}, false},
    {"small down", "float32", GPU0, CPU, FLAT, FLAT, {3, 5}, false},
    {"small down, thin", "float32", GPU0, CPU, THIN, FLAT, {3, 5}, false},
    {"on the device", "float32", GPU0, GPU0, FLAT, FLAT, {3, 5}, false},
    {"on the device, turned", "float32", GPU0, GPU0, TURNED, FLAT, {6, 5}, false},
    {"on the device, to sliding", "float32", GPU0, GPU0, TURNED, SLIDING, {5, 6}, false},
    {"up, to sliding", "int16", CPU, GPU0, FLAT, SLIDING, {5, 6}, false},
    {"of many axes, to turned", "int16", GPU0, GPU0, FLAT, TURNED, {0}, false},
    {"of many axes, turned to backwards", "int16", GPU0, GPU0, TURNED, BACK, {0}, false},
    {"of many axes, backwards to turned", "int16", GPU0, GPU0, BACK, TURNED, {0}, false},
    {"of many axes, repeated", "int16", GPU0, GPU0, REPEATED, FLAT, {0}, false},
    {"of many axes, turned to thin", "int16", GPU0, GPU0, TURNED, THIN, {0}, false},
    {"large of many axes, to turned", "float32", GPU0, GPU0, FLAT, TURNED, {0}, false},
    {"half bytes", "uint4", GPU0, GPU0, FLAT, TURNED, {6, 4}, false},
    {"half bytes of rows apart", "uint4", GPU0, GPU0, LEFT, LEFT, {3, 4}, false},
    {"half bytes up", "uint4", CPU, GPU0, FLAT, TURNED, {6, 4}, false},
    {"half bytes down", "uint4", GPU0, CPU, TURNED, FLAT, {6, 4}, false},
    {"padded half bytes, to sliding", "uint4+", GPU0, GPU0, TURNED, SLIDING, {5, 6}, false},
    {"padded half bytes of many axes", "uint4+", GPU0, GPU0, FLAT, TURNED, {0}, false},
    {"padded half bytes down, to sliding", "uint4+", GPU0, CPU, FLAT, SLIDING, {5, 6}, false},
    {"padded half bytes, large down, sliding", "uint4+", GPU0, CPU, FLAT, SLIDING, {365, 366}, false},
    {"padded half bytes, overlapping", "uint4+", GPU0, GPU0, FLAT, TURNED, {6, 6}, true},
    {"overlapping", "float32", GPU0, GPU0, FLAT, TURNED, {6, 6}, true},
    {"from pinned", "float32", PINNED, GPU0, FLAT, FLAT, {3, 5}, false},
    {"large up", "complex128", CPU, GPU0, FLAT, FLAT, {65, 66}, false},
    {"large up, turned", "complex128", CPU, GPU0, TURNED, FLAT, {65, 66}, false},
    {"large up, thin", "complex128", CPU, GPU0, FLAT, THIN, {65, 66}, false},
    {"large down", "complex128", GPU0, CPU, FLAT, FLAT, {65, 66}, false},
    {"large down, turned", "complex128", GPU0, CPU, FLAT, TURNED, {65, 66}, false},
    {"large down, thin", "complex128", GPU0, CPU, THIN, FLAT, {65, 66}, false},
    {"large down, sliding", "complex128", GPU0, CPU, FLAT, SLIDING, {65, 66}, false},
    {"peer", "float32", GPU0, GPU1, FLAT, FLAT, {3, 5}, false},
    {"peer, from turned", "float32", GPU0, GPU1, TURNED, FLAT, {6, 5}, false},
    {"peer, to thin", "float32", GPU0, GPU1, FLAT, THIN, {6, 5}, false},
    {"peer, from turned to thin", "float32", GPU0, GPU1, TURNED, THIN, {6, 5}, false},
};

typedef struct fill_case {
  const char *name, *dtype;
  place at;
  layout dst;
  int64_t shape[2]; /* {0}: MANY axes of 2 */
} fill_case;

static const fill_case fills[] = {
    {"a fill", "float32", GPU0, FLAT, {3, 5}},
    {"a fill of wide elements", "float64", GPU0, FLAT, {3, 5}},
    {"a fill of some columns", "float32", GPU0, THIN, {9, 5}},
    {"a fill of many columns", "float64", GPU0, THIN, {65, 65}},
    {"a fill of half bytes", "uint4", GPU0, FLAT, {3, 6}},
    {"a fill of three bits", "uint3", GPU0, FLAT, {3, 6}},
    {"a fill of sliding rows", "int16", GPU0, SLIDING, {5, 6}},
    {"a fill of hopping rows", "int16", GPU0, HOPPING, {5, 6}},
    {"a fill on the next device", "float32", GPU1, THIN, {9, 5}},
};

static int copy(mf_tensor *dst, mf_tensor *src) {
  return mf_tensor_copy(dst, src, &err);
}

static int set(mf_tensor *dst, mf_tensor *src) {
  static const mf_scalar filler = {.kind = MF_KIND_UINT, .u = 5};
  (void)src;
  return mf_tensor_fill(dst, &filler, &err);
}

static void each_copy_fails_in_turn(void **state) {
  (void)state;
  needs_simulator();
  for (size_t i = 0; i < COUNT(copies); i++) {
    const copy_case *c = &copies[i];
    if (!have(c->from) || !have(c->to) || !is_drawn(i)) continue;
    random_state = seed_of(i);
    work w = {.name = c->name, .call = copy, .overlaps = c->overlaps};
    w.src = both_open(c->dtype, c->from, c->src, c->shape);
    w.dst = both_open(c->dtype, c->to, c->dst, c->shape);
    each_failure_of(&w);
    both_close(&w.src);
    both_close(&w.dst);
  }
}

static void each_fill_fails_in_turn(void **state) {
  (void)state;
  needs_simulator();
  for (size_t i = 0; i < COUNT(fills); i++) {
    const fill_case *f = &fills[i];
    if (!have(f->at)) continue;
    random_state = seed_of(i);
    work w = {.name = f->name, .call = set, .dst = both_open(f->dtype, f->at, f->dst, f->shape)};
    each_failure_of(&w);
    both_close(&w.dst);
  }
}

/* Whether something failed. */
static bool attempt_a_clone(mf_tensor *t, const mf_tensor *host, failure what, int64_t number) {
  mf_ledger before, after;
  mf_tensor *clone = t;
  give_all_back();
  mf_ledger_read(&before);
  arm(what, number);
  const int rc = mf_tensor_clone(t, &clone, &err);
  const bool struck = disarm(what);
  assert_true(rc == MF_OK || struck);
  if (rc == MF_OK) {
    same_bytes(clone, host, "a clone");
    mf_tensor_release(clone);
    return struck;
  }
  expect_told("a clone", what, number, rc);
  assert_null(clone);
  mf_ledger_read(&after);
  assert_int_equal(after.tensors, before.tensors);
  assert_int_equal(after.storages, before.storages);
  assert_int_equal(after.bytes, before.bytes);
  return struck;
}

static void a_clone_fails_in_turn(void **state) {
  int64_t shape[] = {3, 5}, number = 0;
  (void)state;
  needs_simulator();
  random_state = seed_of(0);
  mf_tensor *host = random_host("float32", 2, shape), *there = at_place(host, GPU0);
  for (failure what = A_CALL; what <= ALL_ALLOCATIONS; what++) {
    for (number = 0; attempt_a_clone(there, host, what, number); number++) {
    }
    assert_true(number > 1);
  }
  mf_tensor_release(there);
  mf_tensor_release(host);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_STREAMS(each_copy_fails_in_turn),
      WITH_STREAMS(each_fill_fails_in_turn),
      WITH_STREAMS(a_clone_fails_in_turn),
  };
  /* Pinned buffers of megabytes are made anew for each call that fails: both ends of them are poisoned. */
  (void)setenv("SIM_POISON", "16K", 0);
  return RUN(tests);
}
