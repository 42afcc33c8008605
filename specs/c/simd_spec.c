/* simd_spec.c: the best set of kernels that the machine has is used, any that it has can be chosen, and no other. What
 * the machine has is what Linux says in /proc/cpuinfo. */
#include "spec.h"

#include <stdio.h>

static const char *const ALL[] = {"avx512", "avx2", "sse2", "neon", "plain"};

#if defined(__x86_64__) && defined(__linux__)
static bool cpu_has(const char *flag) {
  char line[8192], word[32];
  bool found = false;
  FILE *file = fopen("/proc/cpuinfo", "r");
  assert_non_null(file);
  snprintf(word, sizeof word, " %s ", flag);
  while (!found && fgets(line, sizeof line, file) != NULL) {
    line[strcspn(line, "\n")] = ' ';
    found = strncmp(line, "flags", 5) == 0 && strstr(line, word) != NULL;
  }
  fclose(file);
  return found;
}
#elif defined(__x86_64__)
#define cpu_has(flag) (strcmp(flag, "f16c") == 0 || __builtin_cpu_supports(flag)) /* no AVX2 comes without F16C */
#endif

static bool has(const char *set) {
#if defined(__x86_64__)
  const bool avx2 = cpu_has("avx2") && cpu_has("f16c");
  if (strcmp(set, "avx2") == 0) return avx2;
  if (strcmp(set, "avx512") == 0)
    return avx2 && cpu_has("avx512f") && cpu_has("avx512bw") && cpu_has("avx512dq") && cpu_has("avx512vl");
  if (strcmp(set, "sse2") == 0) return true;
#elif defined(__aarch64__)
  if (strcmp(set, "neon") == 0) return true;
#endif
  return strcmp(set, "plain") == 0;
}

static void the_best_one_is_used(void **state) {
  size_t best = 0;
  (void)state;
  while (!has(ALL[best])) best++;
  assert_string_equal(mf_simd(), ALL[best]);
}

static void each_is_chosen_by_name(void **state) {
  char names[64] = "";
  (void)state;
  for (size_t i = 0; i < COUNT(ALL); i++) {
    if (!has(ALL[i])) continue;
    OK(mf_simd_set(ALL[i], &spec_err));
    assert_string_equal(mf_simd(), ALL[i]);
    if (names[0] != 0) strcat(names, ", ");
    strcat(names, ALL[i]);
  }
  for (size_t i = 0; i < COUNT(ALL); i++)
    if (!has(ALL[i])) SAYS(MF_EINVAL, names, mf_simd_set(ALL[i], &spec_err));
  assert_string_equal(mf_simd(), "plain");
}

static void no_other_is(void **state) {
  (void)state;
  OK(mf_simd_set("plain", &spec_err));
  assert_int_equal(mf_simd_set("mmx", NULL), MF_EINVAL);
  SAYS(MF_EINVAL, "name is mmx; one of ", mf_simd_set("mmx", &spec_err));
  SAYS(MF_EINVAL, "name is NULL; one of ", mf_simd_set(NULL, &spec_err));
  FAILS(MF_EINVAL, mf_simd_set("", &spec_err));
  assert_string_equal(mf_simd(), "plain");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(the_best_one_is_used), /* which nobody has chosen yet */
      SPEC(each_is_chosen_by_name),
      SPEC(no_other_is),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
