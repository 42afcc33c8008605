/* device_choice_spec.c: calls that are about no device in particular are made on one that the process uses: memory of
 * GPU 1 that comes in, pinned and managed memory, questions about pointers make no context on GPU 0, which would take
 * hundreds of megabytes there for each process of a node. And what is kept of such memory is given back all the same.
 *
 * The specs run in this order, in one process, and only the last one uses GPU 0. */
#include "device.h"

enum { NBYTES = 4096 };

static int begin_here(void **state) {
  (void)state;
  sim_ask_reset();
  return 0;
}

/* Nothing is left, and GPU 0 has not been touched. */
static int end_here(void **state) {
  (void)state;
  assert_false(other_is_active(0));
  if (other_devices() > 1) other_sync_all(1);
  OK(mf_pools_trim(1000, &err));
  expect_empty_ledger();
  expect_empty_driver(sim_ask_left);
  assert_int_equal(sim_ask_findings(), 0);
  assert_false(other_is_active(0));
  return 0;
}

static DLTensor described(DLDevice device, void *data) {
  static int64_t shape[] = {NBYTES};
  return (DLTensor){.data = data, .device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape};
}

static void memory_of_the_second_comes_in(void **state) {
  (void)state;
  needs_devices(2);
  void *data = other_alloc(1, NBYTES);
  const DLTensor view = described(gpu(1), data);
  mf_tensor *t;
  DLDevice found;
  other_current_set(-1);
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &t, &err));
  OK(mf_device_of_pointer(other_device_type(), data, &found, &err));
  assert_int_equal(found.device_id, 1);
  FAILS(mf_device_of_pointer(other_device_type(), &view, &found, &err), MF_EINVAL);
  assert_int_equal(found.device_type, kDLCPU);
  assert_int_equal(found.device_id, 0);
  mf_tensor_release(t);
  other_free(1, data);
}

/* On the device that is current, else on one that has a context. */
static void pinned_memory(void **state) {
  (void)state;
  needs_devices(2);
  for (int current = 1; current >= -1; current -= 2) {
    other_current_set(current);
    mf_tensor *t = create(pinned(), NBYTES);
    const mf_scalar one = {.kind = MF_KIND_UINT, .u = 1};
    OK(mf_tensor_fill(t, &one, &err));
    OK(mf_tensor_acquire(t, MF_STREAM_HOST, MF_READ, &err));
    assert_int_equal(((unsigned char *)data_of(t))[NBYTES - 1], 1);
    mf_tensor_release(t);
  }
}

static void managed_memory(void **state) {
  (void)state;
  needs_devices(2);
  skip_unless(other_managed_type() != 0, "there is none here");
  other_current_set(1);
  mf_tensor *t = create(managed(), NBYTES);
  mf_tensor_release(t);
  other_current_set(-1);
}

/* However many GPUs there are. */
static void the_hosts_memory_is_one_device(void **state) {
  const int32_t types[] = {other_pinned_type(), other_managed_type()};
  int32_t count;
  (void)state;
  for (size_t i = 0; i < COUNT(types); i++) {
    if (types[i] == 0) continue;
    OK(mf_device_count(types[i], &count, &err));
    assert_int_equal(count, 1);
  }
  OK(mf_device_count(other_device_type(), &count, &err));
  assert_int_equal(count, other_devices());
}

/* CuPy gives managed memory out under the number of the device that it was allocated on. */
static void managed_memory_with_the_number_of_a_gpu(void **state) {
  (void)state;
  needs_devices(2);
  skip_unless(other_managed_type() != 0, "there is none here");
  void *data = other_managed(1, NBYTES);
  DLTensor view = described((DLDevice){(DLDeviceType)other_managed_type(), 1}, data);
  mf_tensor *t;
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &t, &err));
  assert_int_equal(mf_tensor_dltensor(t)->device.device_type, other_managed_type());
  assert_int_equal(mf_tensor_dltensor(t)->device.device_id, 0);
  mf_tensor_release(t);
  view.device.device_id = other_devices();
  REFUSED(mf_tensor_wrap(&view, 0, NULL, NULL, &t, &err), MF_EDEVICE, "device_id");
  view.device.device_id = -1;
  REFUSED(mf_tensor_wrap(&view, 0, NULL, NULL, &t, &err), MF_EDEVICE, ":-1; a device_id of 0 to");
  other_free(1, data);
}

static void pinned_memory_with_the_number_of_a_gpu(void **state) {
  (void)state;
  needs_devices(2);
  other_current_set(1);
  mf_tensor *ours = create(pinned(), NBYTES), *t;
  const DLTensor view = described((DLDevice){(DLDeviceType)other_pinned_type(), 1}, data_of(ours));
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &t, &err));
  assert_int_equal(mf_tensor_dltensor(t)->device.device_id, 0);
  mf_tensor_release(t);
  mf_tensor_release(ours);
}

/* Copies that go through pinned memory leave some in its pool, which belongs to no device. */
static void what_is_kept_goes_back(void **state) {
  (void)state;
  needs_devices(2);
  const DLDevice second = gpu(1);
  other_current_set(1);
  mf_tensor *t = create(second, NBYTES), *host = create((DLDevice){kDLCPU, 0}, NBYTES);
  OK(mf_tensor_copy(t, host, &err));
  OK(mf_tensor_copy(host, t, &err));
  mf_tensor_release(t);
  mf_tensor_release(host);
  OK(mf_device_synchronize(&second, &err));
  assert_true(stats(pinned()).cached_bytes > 0);
  trim(pinned());
  assert_int_equal(stats(pinned()).cached_bytes, 0);
  assert_false(other_is_active(0)); /* nothing of ours is there that could be trimmed */
  OK(mf_pools_trim(1000, &err));
  assert_int_equal(sim_ask_left("memory"), 0);
}

/* Pinned memory that a stream of the second device still uses is counted as waiting. */
static void what_waits_is_counted(void **state) {
  (void)state;
  needs_devices(2);
  const DLDevice second = gpu(1);
  const int64_t theirs = other_stream(1, false);
  DLManagedTensorVersioned *given;
  other_current_set(1);
  mf_tensor *t = create(pinned(), NBYTES);
  const mf_request request = {.stream = theirs};
  OK(mf_tensor_export_to(t, &request, &given, &err));
  other_capture(1, theirs);
  mf_tensor_release(t);
  given->deleter(given); /* no event can be recorded while the stream is being captured */
  assert_int_equal(stats(pinned()).deferred, 1);
  other_graph_end(1, other_capture_end(1, theirs));
  OK(mf_device_synchronize(&second, &err));
  assert_int_equal(stats(pinned()).deferred, 0);
  other_stream_end(theirs);
}

/* A stream of any device may be made current for pinned memory, and is then that device's. */
static void a_stream_of_another_device(void **state) {
  (void)state;
  needs_devices(2);
  const DLDevice second = gpu(1), host = pinned();
  const int64_t theirs = other_stream(1, false);
  mf_stream before, now;
  other_current_set(1);
  OK(mf_stream_swap(&host, theirs, &before, &err));
  OK(mf_stream_current(&second, &now, &err));
  assert_int_equal(now, theirs);
  OK(mf_stream_current(&host, &now, &err));
  assert_int_equal(now, theirs);
  OK(mf_stream_swap(&second, before, NULL, &err));
  other_stream_end(theirs);
}

#define HERE(name) cmocka_unit_test_setup_teardown(name, begin_here, end_here)

int main(void) {
  const struct CMUnitTest tests[] = {
      HERE(memory_of_the_second_comes_in),
      HERE(pinned_memory),
      HERE(managed_memory),
      HERE(the_hosts_memory_is_one_device),
      HERE(managed_memory_with_the_number_of_a_gpu),
      HERE(pinned_memory_with_the_number_of_a_gpu),
      HERE(what_is_kept_goes_back),
      HERE(what_waits_is_counted),
      HERE(a_stream_of_another_device),
  };
  return RUN(tests);
}
