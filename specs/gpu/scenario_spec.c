/* scenario_spec.c: every driver call of every exchange fails in turn. Whatever fails: the error names the driver's call
 * and its number, nothing is lost or left behind, the program's current device is what it was, what the program holds
 * can still be used, and the same exchange then works. What a backend alone does with a failure is fault_spec.c's.
 *
 * A call fails once, or whenever it is made from then on, or it and all others from then on (the device is lost), or
 * what it queued fails later. Which status it is rotates from call to call; with MOONFERRY_SPEC_SEEDS of 100 and more
 * every call fails with every status. Needs a simulated driver. */
#include "exchanges.h"
#include "sim.h"

/* Not what a status means, but that any is passed on: invalid value, out of memory, lost context, invalid handle,
 * launch failed, not permitted, forbidden in a capture, unknown. */
static const int statuses[] = {1, 2, 201, 400, 719, 800, 906, 999};

/* Calls that can fail for ever while the others work. */
static const char *const names[][2] = {
    {"cuMemAllocFromPoolAsync", "hipMallocFromPoolAsync"},
    {"cuMemFreeAsync", "hipFreeAsync"},
    {"cuMemHostAlloc", "hipHostMalloc"},
    {"cuMemFreeHost", "hipHostFree"},
    {"cuMemAllocManaged", "hipMallocManaged"},
    {"cuMemPoolTrimTo", "hipMemPoolTrimTo"},
    {"cuPointerGetAttributes", "hipPointerGetAttributes"},
    {"cuMemcpyAsync", "hipMemcpyAsync"},
    {"cuMemcpyPeerAsync", "hipMemcpyPeerAsync"},
    {"cuMemcpy2DAsync", "hipMemcpy2DAsync"},
    {"cuMemcpy3DAsync", "hipMemcpy3DAsync"},
    {"cuMemsetD8Async", "hipMemsetD8Async"},
    {"cuMemsetD32Async", "hipMemsetD32Async"},
    {"cuMemsetD2D8Async", "hipMemset2DAsync"},
    {"cuLaunchKernel", "hipLaunchKernel"},
    {"cuStreamCreate", "hipStreamCreateWithFlags"},
    {"cuStreamQuery", "hipStreamQuery"},
    {"cuStreamSynchronize", "hipStreamSynchronize"},
    {"cuStreamWaitEvent", "hipStreamWaitEvent"},
    {"cuStreamGetCtx", "hipStreamGetDevice"},
    {"cuStreamGetCaptureInfo", "hipStreamGetCaptureInfo"},
    {"cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode"},
    {"cuEventCreate", "hipEventCreateWithFlags"},
    {"cuEventRecord", "hipEventRecord"},
    {"cuEventQuery", "hipEventQuery"},
    {"cuEventSynchronize", "hipEventSynchronize"},
    {"cuCtxSynchronize", "hipDeviceSynchronize"},
};

/* One run, and what must be so afterwards */

/* The runtime's own words, without a number of the driver's, are for what a driver cannot do or a capture forbids. */
static void expect_named(const char *rule, int status) {
  const char *prefix = other_device_type() == kDLCUDA ? "cu" : "hip";
  if (err.driver_code == 0 && (err.status == MF_ECAPTURE || err.status == MF_EDEVICE)) return;
  const bool told = sim_ask_is_direct() ? err.driver_code == status : err.driver_code != 0; /* HIP's number for it */
  if (!told) fail_msg("%s: driver_code is %d: %s", rule, err.driver_code, err.message);
  if (strncmp(err.call, prefix, strlen(prefix)) != 0) fail_msg("%s: call is \"%s\": %s", rule, err.call, err.message);
  if (err.status != MF_ENOMEM && strstr(err.message, err.call) == NULL)
    fail_msg("%s: %s is not in: %s", rule, err.call, err.message);
}

/* A HIP runtime whose device is lost does not make another one current, as it is told to when we leave. */
static void come_back(const char *rule) {
  if (other_device_type() == kDLROCM && strstr(rule, "once") == NULL) other_current_set(0);
}

static void expect_unmoved(const char *rule, void *current) {
  if (other_current() != current) fail_msg("%s: current is %p, not %p", rule, other_current(), current);
  if (sim_ask_left("contexts") != 0) fail_msg("%s: contexts left: %d", rule, (int)sim_ask_left("contexts"));
}

static void expect_nothing_found(const char *rule, const char *when) {
  if (sim_ask_findings() != 0) fail_msg("%s leads to what the simulator says above, %s", rule, when);
}

/* With the device lost nobody can say whether a context was pushed, so that one pop too many is no mistake; whatever
 * touches memory still is. */
static void expect_no_use_found(const char *rule) {
  const int kinds[] = {SIM_RACE, SIM_STALE, SIM_BOUNDS, SIM_CAPTURE};
  for (size_t i = 0; i < COUNT(kinds); i++)
    if (sim_ask_found(kinds[i]) != 0) expect_nothing_found(rule, "with the device lost");
}

/* What fails late has to have been run before the driver works again. */
static void run_all_late(void) {
  for (int ordinal = 0; ordinal < other_devices(); ordinal++) {
    const DLDevice device = gpu(ordinal);
    (void)mf_device_synchronize(&device, NULL);
  }
}

/* What is held is let go while the driver still fails, or used once more when it works again. */
static void strike(const scenario *s, const char *rule, int status, bool use_again) {
  held h = {0};
  give_all_back();
  held_open(&h, s);
  sim_ask_reset();
  void *current = other_current();
  memset(&err, 0, sizeof err);
  sim_ask_fail(rule);
  may_be_lost = strstr(rule, "sticky") != NULL || strstr(rule, "late") != NULL;
  const int rc = s->play(&h);
  may_be_lost = false;
  if (!use_again) held_let_go(&h);
  if (!h.captured) run_all_late();
  if (strstr(rule, "once") == NULL) expect_no_use_found(rule);
  else expect_nothing_found(rule, "while it fails");
  sim_ask_reset();
  if (rc != MF_OK) expect_named(rule, status);
  come_back(rule);
  expect_unmoved(rule, current);
  if (use_again) held_use(&h);
  held_let_go(&h);
  held_close(&h, s);
  expect_unmoved(rule, current);
  if (sim_ask_left("memory") != 0) fail_msg("%s: memory left: %d", rule, (int)sim_ask_left("memory"));
  expect_nothing_found(rule, "when it works again");
  run_well(s);
  nothing_left();
  expect_nothing_found(rule, "when all is done again");
}

/* Every call */

static void count_calls(const scenario *s, uint64_t *all, uint64_t *of_names) {
  held h = {0};
  give_all_back();
  held_open(&h, s);
  sim_ask_reset();
  OK(s->play(&h));
  *all = sim_ask_calls(NULL);
  for (size_t i = 0; i < COUNT(names); i++) of_names[i] = sim_ask_calls(named(names[i][0], names[i][1]));
  held_let_go(&h);
  held_close(&h, s);
}

static size_t nstatuses(void) {
  return seeds(1) >= 100 ? COUNT(statuses) : 1;
}

static void each_status(const scenario *s, const char *which, const char *how, uint64_t shift) {
  for (size_t i = 0; i < nstatuses(); i++) {
    char rule[96];
    const int status = statuses[(shift + i) % COUNT(statuses)];
    (void)snprintf(rule, sizeof rule, "%s:%d:%s", which, status, how);
    strike(s, rule, status, shift % 2 == 0);
  }
}

/* One call in so many, others with each seed; MOONFERRY_SPEC_EVERY asks for all. */
#if defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 6 };
#else
enum { STRIDE = 3 };
#endif

static void each_number(const scenario *s, uint64_t calls, const char *how, uint64_t shift) {
  const uint64_t stride = one_in(STRIDE);
  for (uint64_t number = 1 + (shift + seed_of(1)) % stride; number <= calls; number += stride) {
    char which[32];
    (void)snprintf(which, sizeof which, "*@%llu", (unsigned long long)number);
    each_status(s, which, how, number + shift);
  }
}

/* calls: of each name. */
static void each_name(const scenario *s, const uint64_t *calls, const char *how, uint64_t most) {
  for (size_t i = 0; i < COUNT(names); i++)
    for (uint64_t number = 1; number <= calls[i] && number <= most; number++) {
      char which[64];
      const char *name = named(names[i][0], names[i][1]);
      (void)snprintf(which, sizeof which, "%s@%llu", name, (unsigned long long)number);
      each_status(s, which, how, number + i);
    }
}

/* A HIP runtime that forwards makes calls of its own around each of ours, and a free that it does not come to is not
 * made: there only calls by name fail. */
static void every_call(void **state) {
  const scenario *s = *state;
  uint64_t all, calls[COUNT(names)];
  skip_unless(sim_ask_is_there(), "a real driver cannot be told to fail");
  if (s->peers) needs_devices(2);
  count_calls(s, &all, calls);
  print_message("%s: %d driver calls\n", s->name, (int)all);
  assert_true(all >= (uint64_t)s->least && all <= 2000);
  each_name(s, calls, "on", 2);
  if (!sim_ask_is_direct()) each_name(s, calls, "once", UINT64_MAX);
  if (!sim_ask_is_direct()) return;
  each_number(s, all, "once", 0);
  each_number(s, all, "sticky", 3);
  each_number(s, all, "late", 5);
}

int main(void) {
  struct CMUnitTest tests[COUNT(scenarios)];
  for (size_t i = 0; i < COUNT(scenarios); i++)
    tests[i] = (struct CMUnitTest){scenarios[i].name, every_call, begin, end, &scenarios[i]};
  /* Pinned buffers of megabytes are made anew for each call that fails: both ends of them are poisoned. */
  (void)setenv("SIM_POISON", "16K", 0);
  return RUN(tests);
}
