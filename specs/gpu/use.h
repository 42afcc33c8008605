/* use.h: short words for the specs that use the runtime as a program does, through moonferry.h. */
#ifndef MOONFERRY_SPEC_USE_H
#define MOONFERRY_SPEC_USE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "forked.h"
#include "moonferry.h"
#include "other.h"

enum { NBYTES = 1024 };

static mf_error err;

static inline void use_check(int rc, int want, const char *what, int line) {
  if (rc == want) return;
  fail_msg("line %d: %s: %s, not %s; %s: %s", line, what, mf_status_name(rc), mf_status_name(want),
           rc == MF_OK ? "" : err.call, rc == MF_OK ? "" : err.message);
}

#define OK(call) use_check((call), MF_OK, #call, __LINE__)
#define FAILS(status, call) use_check((call), status, #call, __LINE__)
#define SAYS(text)                                                                        \
  do {                                                                                    \
    if (strstr(err.message, text) == NULL) fail_msg("\"%s\" is not in: %s", text, err.message); \
  } while (0)

static inline DLDevice gpu_device(int ordinal) {
  return (DLDevice){(DLDeviceType)other_device_type(), ordinal};
}

static inline DLDevice pinned_device(void) {
  return (DLDevice){(DLDeviceType)other_pinned_type(), 0};
}

static inline mf_tensor *use_create(DLDevice device) {
  static int64_t shape[] = {NBYTES};
  const DLTensor like = {.device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  mf_tensor *t;
  OK(mf_tensor_create(&like, 0, &t, &err));
  return t;
}

static inline int use_try_fill(mf_tensor *t, uint64_t byte) {
  const mf_scalar value = {.kind = MF_KIND_UINT, .u = byte};
  return mf_tensor_fill(t, &value, &err);
}

static inline void use_fill(mf_tensor *t, uint64_t byte) {
  OK(use_try_fill(t, byte));
}

static inline void *use_data(mf_tensor *t) {
  return mf_tensor_dltensor(t)->data;
}

static inline void use_stream(int ordinal, mf_stream s) {
  const DLDevice device = gpu_device(ordinal);
  OK(mf_stream_swap(&device, s, NULL, &err));
}

static inline mf_stream use_new_stream(int ordinal) {
  const DLDevice device = gpu_device(ordinal);
  mf_stream s;
  OK(mf_stream_create(&device, &s, &err));
  return s;
}

static inline void use_end_stream(int ordinal, mf_stream s) {
  const DLDevice device = gpu_device(ordinal);
  OK(mf_stream_destroy(&device, s, &err));
}

/* All elements are this byte. */
static inline void use_expect(mf_tensor *t, int byte) {
  const mf_request on_host = {.device = {kDLCPU, 0}};
  mf_tensor *host;
  OK(mf_tensor_to(t, &on_host, &host, &err));
  const unsigned char *bytes = use_data(host);
  for (int i = 0; i < NBYTES; i++)
    if (bytes[i] != byte) fail_msg("byte %d is %#x, not %#x", i, bytes[i], byte);
  mf_tensor_release(host);
}

/* Ends the capture on ${stream} of device 0 and launches it behind what used ${t}, which then is full of ${byte}. */
static inline void use_captured(mf_tensor *t, mf_stream stream, int byte) {
  void *graph = other_capture_end(0, stream);
  OK(mf_tensor_acquire(t, stream, MF_WRITE, &err));
  other_launch(0, graph, stream);
  use_expect(t, byte);
  other_graph_end(0, graph);
}

static inline void use_sync(void) {
  for (int ordinal = 0; ordinal < other_devices(); ordinal++) other_sync_all(ordinal);
}

/* Everything that the runtime keeps goes back to the driver. A trim waits for no work, so that all must be done before;
 * and what it frees is work of its own. */
static inline void use_trim(void) {
  const int types[] = {other_device_type(), other_pinned_type(), other_managed_type()};
  use_sync();
  for (int round = 0; round < 2; round++)
    for (int i = 0; i < 3; i++)
      for (int ordinal = 0; types[i] != 0 && ordinal < (i == 0 ? other_devices() : 1); ordinal++) {
        const DLDevice device = {(DLDeviceType)types[i], ordinal};
        OK(mf_pool_trim(&device, &err));
      }
  use_sync();
}

static inline int use_begin(void **state) {
  (void)state;
  sim_ask_seed(0);
  sim_ask_reset();
  return 0;
}

static inline void use_nothing_left(void) {
  static const char *const sorts[] = {"memory", "streams", "events", "captures", "graphs", "contexts", "pending"};
  mf_ledger alive;
  use_trim();
  mf_ledger_read(&alive);
  assert_int_equal(alive.tensors, 0);
  assert_int_equal(alive.storages, 0);
  assert_int_equal(alive.bytes, 0);
  assert_int_equal(alive.blocks, 0);
  for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++)
    if (sim_ask_left(sorts[i]) != 0) fail_msg("%s left: %lld", sorts[i], (long long)sim_ask_left(sorts[i]));
}

/* Ends a spec in which nothing went wrong. */
static inline int use_end(void **state) {
  (void)state;
  for (int ordinal = 0; ordinal < other_devices(); ordinal++) use_stream(ordinal, MF_STREAM_DEFAULT);
  use_nothing_left();
  assert_int_equal(sim_ask_findings(), 0);
  return 0;
}

#define USE(test) cmocka_unit_test_setup_teardown(test, use_begin, use_end)

#endif
