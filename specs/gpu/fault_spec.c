/* fault_spec.c: every driver call of a long scenario fails in turn, with several statuses, once and for ever. Whatever
 * fails: the error names the driver's call and its code, nothing is lost or left behind, the program's current device
 * is what it was, and the same scenario then works. Needs a simulated driver. */
#include "use.h"

/* Not what a status means, but that any is passed on: invalid value, out of memory, not permitted, unknown. */
static const int statuses[] = {1, 2, 800, 999};

enum { MAX_TENSORS = 16 };

/* What a scenario holds, so that it can end anywhere. */
typedef struct held {
  mf_tensor *tensors[MAX_TENSORS];
  int ntensors;
  DLManagedTensorVersioned *given;
  mf_stream streams[2];
  bool swapped;
} held;

static int create(held *h, DLDevice device, int64_t rows, mf_tensor **out) {
  int64_t shape[] = {rows, 64};
  const DLTensor like = {.device = device, .ndim = 2, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  const int rc = mf_tensor_create(&like, 0, out, &err);
  if (rc == MF_OK) h->tensors[h->ntensors++] = *out;
  return rc;
}

static int to(held *h, mf_tensor *t, DLDevice device, mf_tensor **out) {
  const mf_request request = {.device = device, .copy = MF_COPY_ALWAYS};
  const int rc = mf_tensor_to(t, &request, out, &err);
  if (rc == MF_OK) h->tensors[h->ntensors++] = *out;
  return rc;
}

static int transposed(held *h, mf_tensor *t, mf_tensor **out) {
  const int rc = mf_tensor_permute(t, NULL, 0, out, &err);
  if (rc == MF_OK) h->tensors[h->ntensors++] = *out;
  return rc;
}

#define STEP(call)        \
  do {                    \
    if (rc == MF_OK) rc = (call); \
  } while (0)

/* Streams, every kind of memory, copies in every direction, an exchange with a consumer that is not done. */
static int play(held *h) {
  const DLDevice gpu = gpu_device(0), next = gpu_device(other_devices() > 1 ? 1 : 0), cpu = {kDLCPU, 0};
  mf_tensor *a = NULL, *b = NULL, *c = NULL, *d = NULL, *e = NULL, *turned = NULL, *host = NULL;
  int rc = MF_OK;
  STEP(mf_stream_create(&gpu, &h->streams[0], &err));
  STEP(mf_stream_create(&gpu, &h->streams[1], &err));
  STEP(mf_stream_swap(&gpu, h->streams[0], NULL, &err));
  h->swapped = rc == MF_OK;
  STEP(create(h, gpu, 64, &a));
  STEP(use_try_fill(a, 5));
  STEP(create(h, pinned_device(), 64, &b));
  STEP(mf_tensor_copy(b, a, &err));
  const mf_request request = {.stream = h->streams[1]};
  STEP(mf_tensor_export_to(a, &request, &h->given, &err));
  STEP(create(h, gpu, 64, &c));
  STEP(transposed(h, a, &turned));
  STEP(mf_tensor_copy(c, turned, &err));
  STEP(to(h, c, next, &d));
  STEP(to(h, d, cpu, &host));
  STEP(to(h, host, gpu, &e));
  STEP(mf_tensor_acquire(b, MF_STREAM_HOST, MF_READ, &err));
  STEP(mf_stream_wait(&gpu, h->streams[0], &gpu, h->streams[1], &err));
  if (rc == MF_OK && ((unsigned char *)use_data(host))[77] != 5) fail_msg("wrong bytes");
  return rc;
}

static void let_go(held *h) {
  const DLDevice gpu = gpu_device(0);
  if (h->given != NULL) h->given->deleter(h->given);
  for (int i = 0; i < h->ntensors; i++) mf_tensor_release(h->tensors[i]);
  if (h->swapped) OK(mf_stream_swap(&gpu, MF_STREAM_DEFAULT, NULL, &err));
  for (int i = 0; i < 2; i++)
    if (h->streams[i] != 0) OK(mf_stream_destroy(&gpu, h->streams[i], &err));
}

static void plain_run(void) {
  held h = {0};
  OK(play(&h));
  let_go(&h);
}

/* How many calls a run makes when nothing is kept from before. */
static uint64_t count_calls(void) {
  use_trim();
  sim_ask_reset();
  plain_run();
  return sim_ask_calls(NULL);
}

static void expect_named(int status) {
  if (err.driver_code == 0 && err.message[0] != '\0') return; /* our own words for what the driver said */
  if (err.driver_code != status) fail_msg("driver_code is %d, not %d: %s", err.driver_code, status, err.message);
  if (strncmp(err.call, other_device_type() == kDLCUDA ? "cu" : "hip", 2) != 0)
    fail_msg("call is \"%s\": %s", err.call, err.message);
  if (err.status != MF_ENOMEM && strstr(err.message, err.call) == NULL) fail_msg("%s is not in: %s", err.call, err.message);
}

static void one_fault(uint64_t number, int status, const char *how) {
  char rule[64];
  held h = {0};
  use_trim();
  sim_ask_reset();
  void *current = other_current();
  (void)snprintf(rule, sizeof rule, "*@%llu:%d:%s", (unsigned long long)number, status, how);
  memset(&err, 0, sizeof err);
  sim_ask_fail(rule);
  const int rc = play(&h);
  if (rc != MF_OK) expect_named(status);
  let_go(&h);
  sim_ask_reset();
  if (other_current() != current) fail_msg("%s: the current device has changed", rule);
  /* What could not be asked whether it is done is given back when the whole device is. */
  for (int ordinal = 0; ordinal < other_devices(); ordinal++) {
    const DLDevice device = gpu_device(ordinal);
    OK(mf_device_synchronize(&device, &err));
  }
  plain_run();
  use_nothing_left();
  if (sim_ask_findings() != 0) fail_msg("%s leads to what the simulator says above", rule);
}

static void each_call(const char *how) {
  if (!other_is_simulated()) skip();
  const uint64_t calls = count_calls();
  assert_in_range(calls, 50, 5000);
  for (size_t s = 0; s < sizeof statuses / sizeof *statuses; s++)
    for (uint64_t number = 1; number <= calls; number++) one_fault(number, statuses[s], how);
}

static void each_call_once(void **state) {
  (void)state;
  each_call("once");
}

static void each_call_from_then_on(void **state) {
  (void)state;
  each_call("on");
}

static void each_call_and_then_the_device_is_lost(void **state) {
  (void)state;
  each_call("sticky");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      USE(each_call_once),
      USE(each_call_from_then_on),
      USE(each_call_and_then_the_device_is_lost),
  };
  return other_open() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
