/* region_spec.c: whether two strided regions share a byte, compared with marking their bytes one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "engine.h"

enum { SPAN = 512 };
static uint64_t state = 1;

static size_t draw(size_t n) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (size_t)(state >> 33) % n;
}

static sim_region random_region(void) {
  const size_t width = draw(9), rows = draw(5), depth = draw(4);
  const size_t pitch = width + draw(8), slice = pitch * rows + draw(16);
  return (sim_region){1000 + draw(200), width, pitch, rows, slice, depth};
}

static void mark(const sim_region *r, bool *bytes) {
  memset(bytes, 0, SPAN);
  for (size_t d = 0; d < r->depth; d++)
    for (size_t i = 0; i < r->rows; i++)
      for (size_t k = 0; k < r->width; k++) {
        const size_t at = r->base - 1000 + d * r->slice + i * r->pitch + k;
        assert_true(at < SPAN);
        bytes[at] = true;
      }
}

static void overlap_is_exact(void **unused) {
  (void)unused;
  int hits = 0;
  for (int round = 0; round < 200000; round++) {
    bool one[SPAN], two[SPAN], expected = false;
    const sim_region a = random_region(), b = random_region();
    mark(&a, one);
    mark(&b, two);
    for (int i = 0; i < SPAN; i++) expected = expected || (one[i] && two[i]);
    assert_int_equal(sim_region_overlap(&a, &b), expected);
    hits += expected;
  }
  assert_true(hits > 10000);
}

static void the_end_is_the_last_byte(void **unused) {
  (void)unused;
  for (int round = 0; round < 2000; round++) {
    bool bytes[SPAN];
    const sim_region r = random_region();
    size_t last = 0;
    mark(&r, bytes);
    for (size_t i = 0; i < SPAN; i++)
      if (bytes[i]) last = i + 1;
    if (!sim_region_empty(&r)) assert_int_equal(sim_region_end(&r) - 1000, last);
  }
}

int main(void) {
  const struct CMUnitTest specs[] = {cmocka_unit_test(overlap_is_exact), cmocka_unit_test(the_end_is_the_last_byte)};
  return cmocka_run_group_tests(specs, NULL, NULL);
}
