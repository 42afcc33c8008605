/* common.h: what the specs of both simulated drivers share.
 *
 * A spec ends with nothing left and no finding that it did not account for. It must not know which driver is
 * simulated: that is spec.h's part, which defines begin and end. */
#ifndef SIM_COMMON_H
#define SIM_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim.h"

/* Success is 0 in both drivers. */
#define OK(expression) assert_int_equal(expression, 0)
#define FAILS(expression, status) assert_int_equal(expression, status)
#define NBYTES 4096

static inline void show_findings(void) {
  for (size_t i = 0; sim_finding(i) != NULL; i++) print_message("%s\n", sim_finding(i));
}

/* Ends a spec, or one round of one, when the devices are idle. */
static inline void nothing_left_or_found(void) {
  static const char *const sorts[] = {"memory", "streams", "events", "graphs", "pools", "captures",
                                      "modules", "pending"};
  if (sim_findings(SIM_ANY) + sim_findings(SIM_WARNING) > 0) show_findings();
  assert_int_equal(sim_findings(SIM_ANY), 0);
  assert_int_equal(sim_findings(SIM_WARNING), 0);
  for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++)
    if (sim_left(sorts[i]) != 0) fail_msg("%s left: %lld", sorts[i], (long long)sim_left(sorts[i]));
}

/* The spec made a mistake on purpose: exactly n findings of this kind, and no others, which are then forgotten. */
static inline void found(sim_kind kind, uint64_t n) {
  const uint64_t others = sim_findings(SIM_ANY) - (kind == SIM_WARNING ? 0 : sim_findings(kind));
  if (sim_findings(kind) != n || others != 0) show_findings();
  assert_int_equal(sim_findings(kind), n);
  assert_int_equal(others, 0);
  sim_reset();
}

static inline bool told(const char *text) {
  for (size_t i = 0; sim_finding(i) != NULL; i++)
    if (strstr(sim_finding(i), text) != NULL) return true;
  return false;
}

static inline bool all_bytes(const void *p, size_t n, int value) {
  for (size_t i = 0; i < n; i++)
    if (((const unsigned char *)p)[i] != value) return false;
  return true;
}

#define SPEC(name) cmocka_unit_test_setup_teardown(name, begin, end)
#define RUN(...)                                      \
  int main(void) {                                    \
    const struct CMUnitTest specs[] = {__VA_ARGS__};  \
    return cmocka_run_group_tests(specs, NULL, NULL); \
  }

#endif
