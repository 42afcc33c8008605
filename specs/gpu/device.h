/* device.h: what the specs of the device layer share that use Moonferry as any program does, beside another library
 * (other.h): memory, streams and the pool in short words. Each test in SPEC ends with Moonferry's ledger and the
 * driver's at zero, and with nothing found. It must not know the runtime's insides: that is spec.h. */
#ifndef MOONFERRY_SPEC_DEVICE_H
#define MOONFERRY_SPEC_DEVICE_H

#include "check.h"
#include "other.h"

/* Devices */

static inline DLDevice gpu(int ordinal) {
  return (DLDevice){(DLDeviceType)other_device_type(), ordinal};
}

static inline DLDevice pinned(void) {
  return (DLDevice){(DLDeviceType)other_pinned_type(), 0};
}

static inline DLDevice managed(void) {
  return (DLDevice){(DLDeviceType)other_managed_type(), 0};
}

static inline void needs_simulator(void) {
  skip_unless_simulated(other_is_simulated());
}

static inline void needs_devices(int wanted) {
  skip_unless_devices(other_devices(), wanted);
}

/* Memory */

static inline int create_at(DLDevice device, int64_t nbytes, mf_tensor **out) {
  const DLTensor like = {.device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &nbytes};
  return mf_tensor_create(&like, 0, out, &err);
}

static inline mf_tensor *create(DLDevice device, int64_t nbytes) {
  mf_tensor *t;
  OK(create_at(device, nbytes, &t));
  return t;
}

static inline void *data_of(const mf_tensor *t) {
  return mf_tensor_dltensor(t)->data;
}

static inline int try_fill(mf_tensor *t, uint64_t byte) {
  const mf_scalar value = {.kind = MF_KIND_UINT, .u = byte};
  return mf_tensor_fill(t, &value, &err);
}

static inline void fill(mf_tensor *t, uint64_t byte) {
  OK(try_fill(t, byte));
}

static inline mf_tensor *moved(mf_tensor *t, DLDevice device, int32_t how) {
  const mf_request request = {.device = device, .copy = how};
  mf_tensor *out;
  OK(mf_tensor_to(t, &request, &out, &err));
  return out;
}

static inline void expect_filled(mf_tensor *t, int byte) {
  const mf_request on_host = {.device = {kDLCPU, 0}};
  mf_tensor *host;
  OK(mf_tensor_to(t, &on_host, &host, &err));
  const unsigned char *bytes = data_of(host);
  const int64_t n = mf_tensor_nbytes(t);
  const bool same = n == 0 || (bytes[0] == byte && memcmp(bytes, bytes + 1, (size_t)n - 1) == 0);
  for (int64_t i = 0; !same && i < n; i++) /* the memcmp is the quicker by far under a sanitizer */
    if (bytes[i] != byte) fail_msg("byte %lld is %#x, not %#x", (long long)i, bytes[i], byte);
  mf_tensor_release(host);
}

/* Streams */

/* The calling thread's current stream of that GPU. */
static inline void use_stream(int ordinal, mf_stream s) {
  const DLDevice device = gpu(ordinal);
  OK(mf_stream_swap(&device, s, NULL, &err));
}

static inline mf_stream stream_new(int ordinal) {
  const DLDevice device = gpu(ordinal);
  mf_stream s;
  OK(mf_stream_create(&device, &s, &err));
  return s;
}

static inline void stream_end(int ordinal, mf_stream s) {
  const DLDevice device = gpu(ordinal);
  OK(mf_stream_destroy(&device, s, &err));
}

static inline void synchronize(int ordinal) {
  const DLDevice device = gpu(ordinal);
  OK(mf_device_synchronize(&device, &err));
}

/* Somebody else's work on a stream of gpu 0, told to Moonferry as it wants it. */
static inline void write_on(mf_tensor *t, mf_stream s, int byte) {
  OK(mf_tensor_acquire(t, s, MF_WRITE, &err));
  other_fill(0, data_of(t), byte, (size_t)mf_tensor_nbytes(t), s);
}

/* So much that asking whether it is done does not finish it, as it may on a simulator. */
static inline void keep_busy(mf_tensor *t, mf_stream s) {
  OK(mf_tensor_acquire(t, s, MF_WRITE, &err));
  other_busy(0, s);
  for (int i = 0; i < 300; i++) other_fill(0, data_of(t), 1, 1, s);
}

/* Ends the capture on ${stream} of gpu 0 and launches it behind what used ${t}, which then is full of ${byte}. */
static inline void expect_captured(mf_tensor *t, mf_stream stream, int byte) {
  void *graph = other_capture_end(0, stream);
  OK(mf_tensor_acquire(t, stream, MF_WRITE, &err));
  other_launch(0, graph, stream);
  expect_filled(t, byte);
  other_graph_end(0, graph);
}

/* How often the host has waited. */
static inline uint64_t host_waits(void) {
  return sim_ask_calls(named("cuStreamSynchronize", "hipStreamSynchronize")) +
         sim_ask_calls(named("cuEventSynchronize", "hipEventSynchronize")) +
         sim_ask_calls(named("cuCtxSynchronize", "hipDeviceSynchronize"));
}

/* The pool */

static inline mf_pool_stats stats(DLDevice device) {
  mf_pool_stats s;
  OK(mf_pool_read(&device, &s, &err));
  return s;
}

static inline void trim(DLDevice device) {
  OK(mf_pool_trim(&device, &err));
}

/* Host memory first: what marks its blocks is a device's. */
static inline void trim_all(void) {
  trim(pinned());
  if (other_managed_type() != 0) trim(managed());
  for (int i = 0; i < other_devices(); i++) trim(gpu(i));
}

static inline void sync_all(void) {
  for (int i = 0; i < other_devices(); i++) other_sync_all(i);
}

static inline bool is_any_left(void) {
  return sim_ask_left("memory") != 0 || sim_ask_left("events") != 0;
}

/* Everything that the runtime keeps goes back to the driver. A trim waits for no work, so that all must be done before,
 * and what it frees is work of its own, with an event behind it where a kernel is loaded. The second round is for the
 * streams that another device's memory named, more are for memory that only the second could free, and for a driver
 * that calls an event unfinished for a while although it is done (hip.c). */
static inline void give_all_back(void) {
  enum { ROUNDS = 2, MOST = 50 };
  sync_all();
  for (int round = 0; round < ROUNDS || (round < MOST && is_any_left()); round++) {
    trim_all();
    sync_all();
  }
}

/* Begin and end */

static inline int begin(void **state) {
  (void)state;
  sim_ask_seed(0);
  sim_ask_reset();
  return 0;
}

/* A stream that was destroyed with work queued ends when a look says that the work is done, which may take a few. */
static inline void nothing_left(void) {
  give_all_back();
  for (int round = 0; round < 50 && sim_ask_left("streams") != 0; round++) give_all_back();
  expect_empty_ledger();
  expect_empty_driver(sim_ask_left);
}

static inline int end(void **state) {
  (void)state;
  for (int i = 0; i < other_devices(); i++) use_stream(i, MF_STREAM_DEFAULT);
  nothing_left();
  assert_int_equal(sim_ask_findings(), 0);
  return 0;
}

#define SPEC(name) cmocka_unit_test_setup_teardown(name, begin, end)
/* A group's status; 77, with the reason printed, where there is no driver. */
#define RUN(tests) (other_open() ? cmocka_run_group_tests(tests, NULL, NULL) : 77)

/* Chance */

/* Under how many orders of the queued work a spec runs: MOONFERRY_SPEC_SEEDS, if it is set. */
static inline uint64_t seeds(uint64_t otherwise) {
  const char *text = getenv("MOONFERRY_SPEC_SEEDS");
  return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

/* splitmix64. */
static inline uint64_t random_of(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/* Children that open the driver themselves */

static void (*alone_body)(void);

static inline void open_and_run(void) {
  if (other_open() && other_is_simulated()) alone_body();
}

/* status_with of a child that opens the simulated driver before it runs fn; 0 without running fn on a real driver. */
static inline int status_alone(const char *settings, void (*fn)(void)) {
  alone_body = fn;
  return status_with(settings, open_and_run);
}

#endif
