/* numbers_element_spec.c: single elements of a device's memory, read and written: what is copied is the element, in the
 * order of the work that is queued. Casts and comparisons are numbers_spec.c's.
 */
#include "places.h"

/* At each place within a byte. */
static void each_element(mf_tensor *there, mf_tensor *host, const char *dtype, const int64_t *shape) {
  const mf_scalar one = {.kind = MF_KIND_BOOL, .i = 1};
  for (int64_t i = 0; i < shape[0] * shape[1]; i++) {
    const int64_t at[] = {i / shape[1] - shape[0], i % shape[1]};
    mf_scalar want, got;
    OK(mf_tensor_get(host, at, 2, &want, &err));
    OK(mf_tensor_get(there, at, 2, &got, &err));
    assert_memory_equal(&want, &got, sizeof want);
    OK(mf_tensor_put(host, at, 2, &one, &err));
    OK(mf_tensor_put(there, at, 2, &one, &err));
    if (i % 9 == 4) same_bytes(there, host, dtype);
    OK(mf_tensor_get(there, at, 2, &got, &err));
    OK(mf_tensor_get(host, at, 2, &want, &err));
    assert_memory_equal(&want, &got, sizeof want);
  }
  same_bytes(there, host, dtype);
}

static void elements_are_read_and_written(void **state) {
  const int64_t shape[] = {5, 7};
  (void)state;
  static const char *const all[] = {"uint8", "float16", "float64", "complex128", "bool", "int4", "uint1", "int3"};
  for (size_t d = 0; d < COUNT(all); d++)
    for (place p = CPU; p < NPLACES; p++) {
      if (!have(p)) continue;
      random_state = seed_of(d);
      mf_tensor *host = random_host(all[d], 2, shape), *there = at_place(host, p);
      each_element(there, host, all[d], shape);
      mf_tensor_release(host);
      mf_tensor_release(there);
    }
}

/* Queued behind what writes the element, and before what writes it afterwards. */
static void elements_are_in_order(void **state) {
  const int64_t at[] = {999};
  const mf_scalar nine = {.kind = MF_KIND_UINT, .u = 9};
  (void)state;
  for (uint64_t seed = 0; seed < seeds(8); seed++) {
    mf_scalar got;
    sim_ask_seed(seed);
    random_state = seed_of(seed);
    mf_tensor *t = create(gpu(0), 1000);
    use_any_stream();
    fill(t, 5);
    use_any_stream();
    OK(mf_tensor_get(t, at, 1, &got, &err));
    assert_int_equal(got.u, 5);
    use_any_stream();
    OK(mf_tensor_put(t, at, 1, &nine, &err));
    use_any_stream();
    OK(mf_tensor_get(t, at, 1, &got, &err));
    assert_int_equal(got.u, 9);
    use_any_stream();
    fill(t, 6);
    expect_filled(t, 6);
    mf_tensor_release(t);
  }
}

static void an_element_is_checked_as_on_the_host(void **state) {
  const int64_t at[] = {4}, inside[] = {0};
  const mf_scalar value = {.kind = MF_KIND_COMPLEX}, number = {.kind = MF_KIND_UINT};
  mf_scalar got;
  mf_tensor *readonly;
  (void)state;
  mf_tensor *t = create(gpu(0), 4);
  REFUSED(mf_tensor_get(t, at, 1, &got, &err), MF_EBOUNDS, "index 4 is out of range for axis 0 of extent 4");
  REFUSED(mf_tensor_put(t, at, 1, &number, &err), MF_EBOUNDS, "index 4 is out of range for axis 0 of extent 4");
  FAILS(mf_tensor_put(t, inside, 1, &value, &err), MF_EDTYPE);
  OK(mf_tensor_as_readonly(t, &readonly, &err));
  FAILS(mf_tensor_put(readonly, inside, 1, &number, &err), MF_EREADONLY);
  mf_tensor_release(readonly);
  mf_tensor_release(t);
}

/* One copy, down or up, but where other elements have a part of the bytes, which are read first. */
static void only_the_element_is_copied(void **state) {
  static const struct {
    const char *dtype;
    uint64_t put;
  } cases[] = {{"uint8", 1}, {"complex128", 1}, {"int4", 2}};
  const int64_t n[] = {4}, at[] = {1};
  const mf_scalar one = {.kind = MF_KIND_INT, .i = 1};
  const char *call = named("cuMemcpyAsync", "hipMemcpyAsync");
  mf_scalar got;
  (void)state;
  needs_simulator();
  for (size_t i = 0; i < COUNT(cases); i++) {
    mf_tensor *t = create_shaped(GPU0, cases[i].dtype, 1, n);
    fill(t, 0);
    uint64_t before = sim_ask_calls(call);
    OK(mf_tensor_put(t, at, 1, &one, &err));
    assert_int_equal(sim_ask_calls(call) - before, cases[i].put);
    before = sim_ask_calls(call);
    OK(mf_tensor_get(t, at, 1, &got, &err));
    assert_int_equal(sim_ask_calls(call) - before, 1);
    mf_tensor_release(t);
  }
}

/* A driver that fails leaves what was asked for, and the element, as they were. */
static void an_element_that_the_driver_does_not_copy(void **state) {
  static const char *const all[] = {"uint8", "int4"}; /* the other half of a byte is read first */
  const int64_t n[] = {4}, at[] = {1};
  const mf_scalar seven = {.kind = MF_KIND_INT, .i = 7};
  (void)state;
  needs_simulator();
  for (size_t i = 0; i < COUNT(all); i++) {
    mf_tensor *t = create_shaped(GPU0, all[i], 1, n);
    mf_scalar got = seven, before;
    fill(t, 3);
    OK(mf_tensor_get(t, at, 1, &before, &err));
    sim_ask_fail(named("cuMemcpyAsync:999:once", "hipMemcpyAsync:999:once"));
    FAILS(mf_tensor_get(t, at, 1, &got, &err), MF_EDRIVER);
    assert_memory_equal(&got, &seven, sizeof got);
    sim_ask_fail(named("cuMemcpyAsync:999:once", "hipMemcpyAsync:999:once"));
    FAILS(mf_tensor_put(t, at, 1, &seven, &err), MF_EDRIVER);
    OK(mf_tensor_get(t, at, 1, &got, &err));
    assert_memory_equal(&got, &before, sizeof got);
    OK(mf_tensor_put(t, at, 1, &seven, &err));
    OK(mf_tensor_get(t, at, 1, &got, &err));
    assert_int_equal(got.i, 7);
    mf_tensor_release(t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_STREAMS(elements_are_read_and_written),
      WITH_STREAMS(elements_are_in_order),
      WITH_STREAMS(an_element_is_checked_as_on_the_host),
      WITH_STREAMS(only_the_element_is_copied),
      WITH_STREAMS(an_element_that_the_driver_does_not_copy),
  };
  return RUN(tests);
}
