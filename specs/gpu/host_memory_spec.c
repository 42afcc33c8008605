/* host_memory_spec.c: the host has no memory for what an exchange with a device needs. Each allocation of each exchange
 * (exchanges.h) fails in turn, once or with all that follow. The exchange then says MF_ENOMEM, nothing is lost or left
 * behind, what the program holds can still be used, and the same exchange then works. */
#include "exchanges.h"

#include <pthread.h>

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
  if (rc == MF_OK ? struck && sticky : rc != MF_ENOMEM || !struck) /* what failed once may have been tried again */
    fail_msg("allocation %d: %d: %s: %s", (int)number, rc, err.call, err.message);
  if (struck && err.driver_code != 0) fail_msg("allocation %d: a driver's error: %s", (int)number, err.message);
  if (use_again) held_use(&h);
  held_let_go(&h);
  held_close(&h, s);
  nothing_left();
  if (sim_ask_findings() != 0) fail_msg("allocation %d", (int)number);
  return struck;
}

static void each_allocation(void **state) {
  const scenario *s = *state;
  int64_t number = 0;
  if (s->peers) needs_devices(2);
  while (strike(s, number, number % 2 == 0, number % 3 == 0)) {
    (void)strike(s, number, number % 2 != 0, number % 3 != 0);
    number++;
  }
  print_message("%s: %d allocations\n", s->name, (int)number);
  assert_true(number > 0);
  run_well(s);
}

/* As many blocks as one list of them does not hold at first. */
static bool strike_many(int64_t number) {
  enum { MANY = 150 };
  const DLDevice device = gpu(0);
  int64_t shape[] = {NBYTES};
  const DLTensor like = {.device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  mf_tensor *all[MANY];
  int made = 0, rc = MF_OK;
  mf_fault_arm(number, 1);
  for (; made < MANY && rc == MF_OK; made += rc == MF_OK) rc = mf_tensor_create(&like, 0, &all[made], &err);
  const bool struck = mf_fault_hits() > 0;
  mf_fault_arm(-1, 0);
  assert_int_equal(rc, struck ? MF_ENOMEM : MF_OK);
  for (int i = 0; i < made; i++) mf_tensor_release(all[i]);
  nothing_left();
  return struck;
}

static void many_blocks(void **state) {
  int64_t number = 0;
  (void)state;
  while (strike_many(number)) number++;
  assert_true(number > 300);
}

static void *choose_a_stream(void *arg) {
  const DLDevice device = gpu(0);
  const mf_stream chosen = *(mf_stream *)arg;
  mf_stream now = 0;
  mf_fault_arm(0, 1);
  FAILS(mf_stream_swap(&device, chosen, NULL, &err), MF_ENOMEM);
  mf_fault_arm(-1, 0);
  OK(mf_stream_current(&device, &now, &err));
  assert_int_equal(now, MF_STREAM_DEFAULT);
  OK(mf_stream_swap(&device, chosen, NULL, &err));
  OK(mf_stream_current(&device, &now, &err));
  assert_int_equal(now, chosen);
  return NULL;
}

static void a_threads_first_choice_of_a_stream(void **state) {
  mf_stream chosen = stream_new(0);
  pthread_t thread;
  (void)state;
  assert_int_equal(pthread_create(&thread, NULL, choose_a_stream, &chosen), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  stream_end(0, chosen);
}

int main(void) {
  struct CMUnitTest tests[COUNT(scenarios) + 2] = {[COUNT(scenarios)] = SPEC(many_blocks),
                                                   SPEC(a_threads_first_choice_of_a_stream)};
  for (size_t i = 0; i < COUNT(scenarios); i++)
    tests[i] = (struct CMUnitTest){scenarios[i].name, each_allocation, begin, end, &scenarios[i]};
  return RUN(tests);
}
