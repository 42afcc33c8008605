/* types_spec.c: what the runtime declares of the drivers' interfaces agrees with the real headers, value by value. The
 * signatures of the functions were compared when this was compiled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "types.h"

static void compare(const type_entry *ours, size_t n, const type_entry *theirs, size_t m) {
  if (m < n) print_message("an old header: %zu of %zu are compared\n", m, n);
  assert_true(m >= 50);
  for (size_t i = 0; i < n && i < m; i++)
    if (ours[i].value != theirs[i].value)
      fail_msg("%s: %zu, not %zu", ours[i].name, (size_t)ours[i].value, (size_t)theirs[i].value);
}

static void cuda_declarations_agree(void **state) {
  size_t n, m;
  const type_entry *ours = our_cuda(&n), *theirs = their_cuda(&m);
  (void)state;
  compare(ours, n, theirs, m);
}

static void hip_declarations_agree(void **state) {
  size_t n, m;
  const type_entry *ours = our_hip(&n), *theirs = their_hip(&m);
  (void)state;
  compare(ours, n, theirs, m);
}

int main(void) {
  const struct CMUnitTest specs[] = {cmocka_unit_test(cuda_declarations_agree),
                                     cmocka_unit_test(hip_declarations_agree)};
  return cmocka_run_group_tests(specs, NULL, NULL);
}
