/* api.h: what the specs of the device layer share that use Moonferry as any program does, beside another library
 * (other.h). Each ends with Moonferry's ledger and the driver's at zero, and with nothing found. */
#ifndef MOONFERRY_SPEC_API_H
#define MOONFERRY_SPEC_API_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "forked.h"
#include "moonferry.h"
#include "other.h"
#include "seeds.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define OK(call) spec_ok((call), #call, __LINE__)
#define REFUSED(call, status, saying) spec_refused((call), status, saying, __LINE__)

static mf_error err;

static inline void spec_ok(int rc, const char *what, int line) {
  if (rc != MF_OK) fail_msg("line %d: %s: %s: %s", line, what, err.call, err.message);
}

static inline void spec_refused(int rc, int want, const char *saying, int line) {
  if (rc != want || err.status != want) fail_msg("line %d: %d instead of %d: %s", line, rc, want, err.message);
  if (strstr(err.message, saying) == NULL) fail_msg("line %d: \"%s\" does not say \"%s\"", line, err.message, saying);
}

static inline DLDevice gpu(int ordinal) {
  return (DLDevice){(DLDeviceType)other_device_type(), ordinal};
}

static inline DLDevice pinned(void) {
  return (DLDevice){(DLDeviceType)other_pinned_type(), 0};
}

static inline DLDevice managed(void) {
  return (DLDevice){(DLDeviceType)other_managed_type(), 0};
}

/* The name of a call on the driver at hand, for the simulator. */
static inline const char *named(const char *cuda, const char *hip) {
  return sim_ask_which(cuda, hip);
}

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

/* The calling thread's current stream of gpu 0. */
static inline void use(mf_stream s) {
  const DLDevice device = gpu(0);
  OK(mf_stream_swap(&device, s, NULL, &err));
}

static inline mf_stream stream_new(void) {
  const DLDevice device = gpu(0);
  mf_stream s;
  OK(mf_stream_create(&device, &s, &err));
  return s;
}

static inline void stream_end(mf_stream s) {
  const DLDevice device = gpu(0);
  OK(mf_stream_destroy(&device, s, &err));
}

/* Somebody else's work on a stream, told to Moonferry as it wants it. */
static inline void write_on(mf_tensor *t, mf_stream s, int byte) {
  OK(mf_tensor_acquire(t, s, MF_WRITE, &err));
  other_fill(0, data_of(t), byte, (size_t)mf_tensor_nbytes(t), s);
}

/* So much that asking whether it is done does not finish it, as it may on a simulator. */
static inline void keep_busy(mf_tensor *t, mf_stream s) {
  OK(mf_tensor_acquire(t, s, MF_WRITE, &err));
  for (int i = 0; i < 300; i++) other_fill(0, data_of(t), 1, 1, s);
}

/* How often the host has waited. */
static inline uint64_t host_waits(void) {
  return sim_ask_calls(named("cuStreamSynchronize", "hipStreamSynchronize")) +
         sim_ask_calls(named("cuEventSynchronize", "hipEventSynchronize")) +
         sim_ask_calls(named("cuCtxSynchronize", "hipDeviceSynchronize"));
}

static inline void expect_filled(mf_tensor *t, int byte) {
  const mf_request on_host = {.device = {kDLCPU, 0}};
  mf_tensor *host;
  OK(mf_tensor_to(t, &on_host, &host, &err));
  const unsigned char *bytes = data_of(host);
  for (int64_t i = 0; i < mf_tensor_nbytes(t); i++)
    if (bytes[i] != byte) fail_msg("byte %lld is %#x, not %#x", (long long)i, bytes[i], byte);
  mf_tensor_release(host);
}

static inline mf_pool_stats stats(DLDevice device) {
  mf_pool_stats s;
  OK(mf_pool_read(&device, &s, &err));
  return s;
}

static inline void trim(DLDevice device) {
  OK(mf_pool_trim(&device, &err));
}

static inline void synchronize(void) {
  const DLDevice device = gpu(0);
  OK(mf_device_synchronize(&device, &err));
}

static inline mf_tensor *moved(mf_tensor *t, DLDevice device, int32_t how) {
  const mf_request request = {.device = device, .copy = how};
  mf_tensor *out;
  OK(mf_tensor_to(t, &request, &out, &err));
  return out;
}

/* Host memory first: what marks its blocks is a device's. */
static inline void trim_all(void) {
  trim(pinned());
  if (other_managed_type() != 0) trim(managed());
  for (int i = 0; i < other_devices() && i < 2; i++) trim(gpu(i));
}

static inline int begin(void **state) {
  (void)state;
  sim_ask_seed(0);
  sim_ask_reset();
  return 0;
}

static inline void nothing_left(void) {
  static const char *const sorts[] = {"memory", "streams", "events", "contexts", "captures", "pending"};
  mf_ledger alive;
  for (int i = 0; i < other_devices() && i < 2; i++) other_sync_all(i);
  trim_all();
  for (int i = 0; i < other_devices() && i < 2; i++) other_sync_all(i);
  mf_ledger_read(&alive);
  assert_int_equal(alive.tensors, 0);
  assert_int_equal(alive.storages, 0);
  assert_int_equal(alive.bytes, 0);
  assert_int_equal(alive.blocks, 0);
  for (size_t i = 0; i < COUNT(sorts); i++)
    if (sim_ask_left(sorts[i]) != 0) fail_msg("%s left: %lld", sorts[i], (long long)sim_ask_left(sorts[i]));
}

static inline int end(void **state) {
  (void)state;
  use(MF_STREAM_DEFAULT);
  nothing_left();
  assert_int_equal(sim_ask_findings(), 0);
  return 0;
}

#define SPEC(name) cmocka_unit_test_setup_teardown(name, begin, end)
#define ONLY_SIMULATED                                             \
  if (!other_is_simulated()) {                                     \
    print_message("skipped: it asks what only a simulator knows\n"); \
    skip();                                                        \
  }
/* A group's status; 77, with the reason printed, where there is no driver. */
#define RUN(tests) (other_open() ? cmocka_run_group_tests(tests, NULL, NULL) : 77)

static inline uint64_t random_of(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static void (*run_alone)(void);

static inline void open_and_run(void) {
  if (other_open() && other_is_simulated()) run_alone();
}

/* status_in_fork of a child that opens the simulated driver before it runs fn, which its parent must not have done yet;
 * 0 without running fn on a real driver. */
static inline int status_alone(void (*fn)(void)) {
  run_alone = fn;
  return status_in_fork(open_and_run);
}

/* The same under a setting of the simulator's, which reads it when it is opened. */
static inline int status_with(const char *name, const char *value, void (*fn)(void)) {
  setenv(name, value, 1);
  const int status = status_alone(fn);
  unsetenv(name);
  return status;
}

#endif
