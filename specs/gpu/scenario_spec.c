/* scenario_spec.c: every driver call of every exchange fails in turn. Whatever fails: the error names the driver's call
 * and its number, nothing is lost or left behind, the program's current device is what it was, what the program holds
 * can still be used, and the same exchange then works. What a backend alone does with a failure is fault_spec.c's.
 *
 * A call fails once, or whenever it is made from then on, or it and all others from then on (the device is lost), or
 * what it queued fails later. Which status it is rotates from call to call; with MOONFERRY_SPEC_SEEDS of 100 and more
 * every call fails with every status. Needs a simulated driver. */
#include "scenario.h"
#include "seeds.h"
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

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Every kind of memory, copies in every direction. */
static int copies(held *h) {
  const DLDevice gpu = gpu_device(0), cpu = {kDLCPU, 0};
  mf_tensor *a = NULL, *b = NULL, *c = NULL, *d = NULL, *e = NULL, *host = NULL;
  int rc = MF_OK;
  STEP(make(h, gpu, "uint8", ROWS, &a));
  STEP(use_try_fill(a, 5));
  STEP(make(h, pinned_device(), "uint8", ROWS, &b));
  STEP(mf_tensor_copy(b, a, &err));
  STEP(make(h, gpu, "uint8", ROWS, &c));
  STEP(turned(h, a, &d));
  STEP(mf_tensor_copy(c, d, &err));
  STEP(to(h, c, cpu, &host));
  STEP(expect_byte(host, 77, 5));
  STEP(to(h, host, gpu, &e));
  STEP(mf_tensor_acquire(b, MF_STREAM_HOST, MF_READ, &err));
  STEP(expect_byte(b, 77, 5));
  return rc;
}

static int fills(held *h) {
  static const char *const dtypes[] = {"uint8", "float32", "complex128", "uint4"};
  mf_tensor *t = NULL, *part = NULL, *host = NULL;
  int rc = MF_OK;
  for (size_t i = 0; i < COUNT(dtypes); i++) {
    STEP(make(h, gpu_device(0), dtypes[i], ROWS, &t));
    STEP(fill_with(t, 3));
    STEP(turned(h, t, &part));
    STEP(fill_with(part, 2));
    if (i < 3) STEP(thinned(h, t, &part));
    STEP(fill_with(part, 1));
  }
  STEP(to(h, h->tensors[0], (DLDevice){kDLCPU, 0}, &host));
  STEP(expect_byte(host, 6, 1));
  STEP(expect_byte(host, 7, 2));
  return rc;
}

/* A consumer on each sort of stream, none of them done when we go on. */
static int exports(held *h) {
  const DLDevice gpu = gpu_device(0);
  const mf_stream consumers[] = {MF_STREAM_CURRENT, MF_STREAM_DEFAULT, MF_STREAM_PER_THREAD, MF_STREAM_NO_ORDER,
                                 h->ours[1], h->theirs};
  const mf_request last = {.stream = h->ours[1]};
  mf_tensor *t = NULL, *constant = NULL;
  DLTensor borrowed;
  int rc = MF_OK;
  STEP(make(h, gpu, "uint8", ROWS, &t));
  STEP(use_try_fill(t, 5));
  for (size_t i = 0; i < COUNT(consumers); i++) STEP(give(h, t, consumers[i]));
  STEP(keep(h, mf_tensor_readonly(t, &constant, &err), &constant));
  STEP(give(h, constant, h->ours[1]));
  STEP(mf_tensor_export_legacy_to(t, &last, &h->legacy, &err));
  STEP(mf_tensor_acquire(t, h->ours[0], MF_WRITE, &err));
  STEP(mf_tensor_borrow(t, &borrowed, &err));
  STEP(use_try_fill(t, 6));
  return rc;
}

/* Memory that the host shares: it waits, or a stream does. */
static int shared(held *h) {
  const mf_request on_cpu = {.device = {kDLCPU, 0}}, on_gpu = {.device = gpu_device(0), .stream = h->ours[1]};
  const int types[] = {other_pinned_type(), other_managed_type()};
  mf_scalar first = {0};
  int rc = MF_OK;
  for (size_t i = 0; i < COUNT(types) && types[i] != 0; i++) {
    const DLDevice device = {(DLDeviceType)types[i], 0};
    mf_tensor *t = NULL, *a = NULL, *view = NULL;
    STEP(make(h, device, "uint8", ROWS, &t));
    STEP(make(h, gpu_device(0), "uint8", ROWS, &a));
    STEP(use_try_fill(a, 8));
    STEP(mf_tensor_copy(t, a, &err));
    STEP(give(h, t, h->theirs));
    STEP(keep(h, mf_tensor_to(t, &on_cpu, &view, &err), &view));
    STEP(mf_tensor_get(view, (int64_t[]){1, 1}, 2, &first, &err));
    if (rc == MF_OK && first.u != 8) fail_msg("%d instead of 8", (int)first.u);
    if (i == 1) STEP(keep(h, mf_tensor_to(t, &on_gpu, &view, &err), &view));
    STEP(mf_tensor_copy(a, t, &err));
  }
  return rc;
}

/* Others' memory, used on a stream that it did not come on, and released while that is not done. */
static int imports(held *h) {
  mf_tensor *there = NULL, *shared_with_host = NULL, *copy = NULL;
  int rc = MF_OK;
  STEP(take(h, &h->loans[0], &there));
  STEP(take(h, &h->loans[1], &shared_with_host));
  STEP(mf_tensor_copy(there, shared_with_host, &err));
  STEP(mf_tensor_acquire(there, h->ours[1], MF_READ, &err));
  STEP(mf_tensor_acquire(shared_with_host, h->ours[1], MF_WRITE, &err));
  STEP(use_try_fill(shared_with_host, 9));
  STEP(give(h, there, h->theirs));
  STEP(mf_tensor_record(shared_with_host, h->theirs, MF_READ, &err));
  STEP(keep(h, mf_tensor_clone(there, &copy, &err), &copy));
  held_let_go(h); /* the deleters wait */
  STEP(make(h, gpu_device(0), "uint8", ROWS, &copy));
  STEP(mf_stream_synchronize(&(DLDevice){gpu_device(0).device_type, 0}, h->ours[0], &err));
  STEP(use_try_fill(copy, 4));
  return rc;
}

/* Everything that a capture allows. Three tensors are ready, a fourth was used elsewhere, where all is done. */
static int captured(held *h) {
  mf_tensor *view = NULL;
  int rc = MF_OK;
  STEP(mf_tensor_copy(h->tensors[1], h->tensors[0], &err));
  STEP(use_try_fill(h->tensors[0], 2));
  STEP(give(h, h->tensors[1], h->ours[0]));
  STEP(mf_tensor_copy(h->tensors[2], h->tensors[3], &err));
  STEP(turned(h, h->tensors[2], &view));
  STEP(mf_tensor_acquire(view, h->ours[0], MF_WRITE, &err));
  return rc;
}

/* The pool grows, gives blocks to other streams, comes to its limit and empties itself. */
static int growth(held *h) {
  enum { BLOCK = 512 };
  const DLDevice gpu = gpu_device(0);
  mf_tensor *t = NULL;
  int rc = MF_OK;
  STEP(mf_pool_limit(&gpu, 3 * BLOCK, &err));
  for (int i = 0; i < 3; i++) STEP(make(h, gpu, "uint8", ROWS, &t));
  for (int i = 0; i < h->ntensors; i++) STEP(use_try_fill(h->tensors[i], 1));
  STEP(mf_tensor_acquire(t, h->ours[1], MF_WRITE, &err));
  STEP(give(h, t, h->theirs));
  held_let_go(h);
  STEP(make(h, gpu, "uint8", ROWS, &t));
  STEP(mf_stream_swap(&gpu, h->ours[1], NULL, &err));
  STEP(make(h, gpu, "uint8", ROWS, &t));
  held_let_go(h);
  STEP(make(h, gpu, "uint8", 4 * ROWS, &t));
  STEP(use_try_fill(t, 1));
  STEP(make(h, pinned_device(), "uint8", ROWS, &t));
  STEP(mf_pool_trim(&gpu, &err));
  return rc;
}

/* The first columns: rows long enough for the driver's own pitched copies. */
static int narrowed(held *h, mf_tensor *t, mf_tensor **out) {
  const mf_index items[] = {{.kind = MF_INDEX_ELLIPSIS}, {.kind = MF_INDEX_SLICE, .start = 0, .stop = 12, .step = 1}};
  return keep(h, mf_tensor_index(t, items, 2, out, &err), out);
}

/* Above what goes through pinned memory in one piece: the staging buffers. */
static int staged(held *h) {
  enum { MANY = 700 };
  const DLDevice gpu = gpu_device(0), cpu = {kDLCPU, 0};
  mf_tensor *host = NULL, *there = NULL, *back = NULL, *view = NULL, *other = NULL;
  int rc = MF_OK;
  STEP(make(h, cpu, "uint8x8", MANY, &host));
  if (rc == MF_OK) memset(use_data(host), 3, (size_t)mf_tensor_nbytes(host));
  STEP(to(h, host, gpu, &there));
  STEP(to(h, there, cpu, &back));
  STEP(expect_byte(back, MANY * COLUMNS * 8 - 1, 3));
  STEP(narrowed(h, there, &view));
  STEP(to(h, view, cpu, &back));
  STEP(expect_byte(back, 9, 3));
  STEP(to(h, view, gpu, &other));
  STEP(mf_tensor_copy(view, back, &err));
  return rc;
}

/* What a lost device had queued never runs, and the other device's streams, which waited for it, go on. */
static bool may_be_lost;

static int peers(held *h) {
  const DLDevice gpu = gpu_device(0), next = gpu_device(1), cpu = {kDLCPU, 0};
  mf_tensor *a = NULL, *b = NULL, *view = NULL, *host = NULL;
  int rc = MF_OK;
  STEP(make(h, gpu, "uint8", ROWS, &a));
  STEP(use_try_fill(a, 5));
  STEP(to(h, a, next, &b));
  STEP(use_try_fill(b, 6));
  STEP(turned(h, b, &view));
  STEP(mf_tensor_copy(a, view, &err));
  STEP(thinned(h, b, &view));
  STEP(to(h, view, gpu, &b));
  STEP(mf_tensor_copy(view, b, &err));
  STEP(to(h, a, cpu, &host));
  if (!may_be_lost) STEP(expect_byte(host, 9, 6));
  return rc;
}

static int waits(held *h) {
  const DLDevice gpu = gpu_device(0);
  mf_tensor *t = NULL;
  int32_t done;
  int rc = MF_OK;
  STEP(mf_stream_create(&gpu, &h->made, &err));
  STEP(mf_stream_check(&gpu, h->theirs, &err));
  STEP(make(h, gpu, "uint8", ROWS, &t));
  STEP(mf_tensor_acquire(t, h->made, MF_WRITE, &err));
  STEP(mf_stream_wait(&gpu, h->ours[0], &gpu, h->made, &err));
  STEP(mf_stream_wait(&gpu, h->theirs, &gpu, h->ours[0], &err));
  STEP(mf_stream_query(&gpu, h->ours[0], &done, &err));
  STEP(mf_stream_synchronize(&gpu, h->theirs, &err));
  STEP(mf_device_synchronize(&gpu, &err));
  return rc;
}

static scenario scenarios[] = {
    {"copies", 30, copies, false, false, false},  {"fills", 20, fills, false, false, false},
    {"exports", 20, exports, false, false, false}, {"shared", 20, shared, false, false, false},
    {"imports", 30, imports, true, false, false},  {"captured", 10, captured, false, true, false},
    {"growth", 30, growth, false, false, false},   {"staged", 20, staged, false, false, false},
    {"peers", 30, peers, false, false, true},      {"waits", 10, waits, false, false, false},
};

/* One run, and what must be so afterwards */

static void run_well(const scenario *s) {
  held h = {0};
  held_open(&h, s);
  OK(s->play(&h));
  held_let_go(&h);
  held_close(&h, s);
}

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
    const DLDevice device = gpu_device(ordinal);
    (void)mf_device_synchronize(&device, NULL);
  }
}

/* What is held is let go while the driver still fails, or used once more when it works again. */
static void strike(const scenario *s, const char *rule, int status, bool use_again) {
  held h = {0};
  use_trim();
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
  use_nothing_left();
  expect_nothing_found(rule, "when all is done again");
}

/* Every call */

static void count_calls(const scenario *s, uint64_t *all, uint64_t *of_names) {
  held h = {0};
  use_trim();
  held_open(&h, s);
  sim_ask_reset();
  OK(s->play(&h));
  *all = sim_ask_calls(NULL);
  for (size_t i = 0; i < COUNT(names); i++) of_names[i] = sim_ask_calls(sim_ask_which(names[i][0], names[i][1]));
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

static void each_number(const scenario *s, uint64_t calls, const char *how, uint64_t shift) {
  for (uint64_t number = 1; number <= calls; number++) {
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
      const char *name = sim_ask_which(names[i][0], names[i][1]);
      (void)snprintf(which, sizeof which, "%s@%llu", name, (unsigned long long)number);
      each_status(s, which, how, number + i);
    }
}

/* A HIP runtime that forwards makes calls of its own around each of ours, and a free that it does not come to is not
 * made: there only calls by name fail. */
static void every_call(void **state) {
  const scenario *s = *state;
  uint64_t all, calls[COUNT(names)];
  if (!sim_ask_is_there()) print_message("skip %s: a real driver cannot be told to fail\n", s->name);
  else if (s->peers && other_devices() < 2) print_message("skip %s: there is one GPU\n", s->name);
  if (!sim_ask_is_there() || (s->peers && other_devices() < 2)) skip();
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
    tests[i] = (struct CMUnitTest){scenarios[i].name, every_call, use_begin, use_end, &scenarios[i]};
  /* Pinned buffers of megabytes are made anew for each call that fails: both ends of them are poisoned. */
  (void)setenv("SIM_POISON", "16K", 0);
  return other_open() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
