/* types_spec.c: a simulator's declarations agree with the public header's, value by value. */
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

static void declarations_agree(void **state) {
  (void)state;
  size_t n = 0, m = 0;
  const entry *ours = our_entries(&n), *theirs = their_entries(&m);
  if (m < n) print_message("the header is an older one: %zu of %zu are compared\n", m, n);
  assert_true(m >= 80);
  for (size_t i = 0; i < n && i < m; i++)
    if (ours[i].value != theirs[i].value)
      fail_msg("%s: %zu, not %zu", ours[i].name, (size_t)ours[i].value, (size_t)theirs[i].value);
}

int main(void) {
  const struct CMUnitTest specs[] = {cmocka_unit_test(declarations_agree)};
  return cmocka_run_group_tests(specs, NULL, NULL);
}
