/* sets.h: specs of the kernels, once for each instruction set that this machine has. */
#ifndef MOONFERRY_SPEC_SETS_H
#define MOONFERRY_SPEC_SETS_H

#include "spec.h"

static const char *const known_sets[] = {"sse2", "avx2", "avx512", "neon"};

/* How many random cases: MOONFERRY_SPEC_ROUNDS, if it is set. */
static inline int rounds(int usual) {
  const char *given = getenv("MOONFERRY_SPEC_ROUNDS");
  return given != NULL ? atoi(given) : ROUNDS_OF(usual);
}

/* Calls ${test} with each set of kernels in use; with one under ThreadSanitizer, to which they are alike. */
static inline void with_each_set(void (*test)(const char *name)) {
  int found = 0;
  for (size_t i = 0; i < COUNT(known_sets); i++) {
#ifdef __SANITIZE_THREAD__
    if (found > 0) break;
#endif
    if (mf_simd_set(known_sets[i], NULL) != MF_OK) continue;
    assert_string_equal(mf_simd(), known_sets[i]);
    test(known_sets[i]);
    found++;
  }
  assert_true(found > 0);
}

#endif
