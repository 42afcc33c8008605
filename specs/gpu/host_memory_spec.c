/* host_memory_spec.c: the host has no memory for what an exchange with a device needs. Each allocation of each exchange
 * (exchanges.h) fails in turn, once or with all that follow. The exchange then says MF_ENOMEM, nothing is lost or left
 * behind, what the program holds can still be used, and the same exchange then works. */
#include "exchanges.h"

/* Whether there was an allocation of that number. */
static bool strike(const scenario *s, int64_t number, bool sticky, bool use_again) {
  held h = {0};
  held_open(&h, s);
  memset(&err, 0, sizeof err);
  mf_fault_arm(number, sticky);
  const int rc = s->play(&h);
  const bool struck = mf_fault_hits() > 0;
  if (!use_again) held_let_go(&h);
  mf_fault_arm(-1, 0);
  if (rc != (struck ? MF_ENOMEM : MF_OK)) fail_msg("allocation %d: %d: %s: %s", (int)number, rc, err.call, err.message);
  if (struck && err.driver_code != 0) fail_msg("allocation %d: a driver's error: %s", (int)number, err.message);
  if (use_again) held_use(&h);
  held_let_go(&h);
  held_close(&h, s);
  use_nothing_left();
  if (sim_ask_findings() != 0) fail_msg("allocation %d", (int)number);
  return struck;
}

static void each_allocation(void **state) {
  const scenario *s = *state;
  int64_t number = 0;
  if (s->peers && other_devices() < 2) print_message("skip %s: there is one GPU\n", s->name);
  if (s->peers && other_devices() < 2) skip();
  while (strike(s, number, number % 2 == 0, number % 3 == 0)) {
    (void)strike(s, number, number % 2 != 0, number % 3 != 0);
    number++;
  }
  print_message("%s: %d allocations\n", s->name, (int)number);
  assert_true(number > 0);
  run_well(s);
}

int main(void) {
  struct CMUnitTest tests[COUNT(scenarios)];
  for (size_t i = 0; i < COUNT(scenarios); i++)
    tests[i] = (struct CMUnitTest){scenarios[i].name, each_allocation, use_begin, use_end, &scenarios[i]};
  return other_open() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
