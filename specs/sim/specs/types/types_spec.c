/* types_spec.c: the simulator's declarations agree with the toolkit's, value by value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct entry {
  const char *name;
  uint64_t value;
} entry;
const entry *our_entries(size_t *n);
const entry *their_entries(size_t *n);

static void declarations_agree(void **unused) {
  (void)unused;
  size_t n = 0, m = 0;
  const entry *ours = our_entries(&n), *theirs = their_entries(&m);
  assert_int_equal(n, m);
  assert_true(n >= 80);
  for (size_t i = 0; i < n; i++)
    if (ours[i].value != theirs[i].value) fail_msg("%s: %zu, not %zu", ours[i].name, (size_t)ours[i].value,
                                                   (size_t)theirs[i].value);
}

int main(void) {
  const struct CMUnitTest specs[] = {cmocka_unit_test(declarations_agree)};
  return cmocka_run_group_tests(specs, NULL, NULL);
}
